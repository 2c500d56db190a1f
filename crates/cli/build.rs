//! Notes the commit that is built, for the reports of benchmarks.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let answer = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = match answer {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    };
    println!("cargo::rustc-env=COMMIT_OF_POLYCHRON={commit}");
}
