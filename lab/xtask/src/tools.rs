//! Which tools are at hand, and running them with their output in a file.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether a command can be run and ends well.
fn works(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What Miri needs and is not there.
pub(crate) fn missing_miri() -> Option<String> {
    let there = works(Command::new("cargo").args(["+nightly", "miri", "--version"]));
    (!there).then(|| "Miri is missing: rustup component add --toolchain nightly miri rust-src".to_owned())
}

/// What ThreadSanitizer needs and is not there.
pub(crate) fn missing_sanitizer() -> Option<String> {
    let output = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).stderr(Stdio::null()).output().ok();
    let sysroot =
        output.filter(|output| output.status.success()).and_then(|output| String::from_utf8(output.stdout).ok());
    let there = sysroot.is_some_and(|path| Path::new(path.trim()).join("lib/rustlib/src/rust/library").is_dir());
    (!there).then(|| {
        "the standard library's source is missing: rustup component add --toolchain nightly rust-src".to_owned()
    })
}

/// The target whose programs need neither a linker nor libraries of another system.
pub(crate) const AARCH64: &str = "aarch64-unknown-linux-musl";

/// What tests on an emulated processor need and is not there.
pub(crate) fn missing_aarch64() -> Option<String> {
    if !works(Command::new("qemu-aarch64").arg("--version")) {
        return Some("qemu-aarch64 is missing".to_owned());
    }
    let installed = Command::new("rustup").args(["target", "list", "--installed"]).output().ok();
    let there = installed.is_some_and(|output| String::from_utf8_lossy(&output.stdout).contains(AARCH64));
    (!there).then(|| format!("the target is missing: rustup target add {AARCH64}"))
}

/// What the fuzzers need and is not there.
pub(crate) fn missing_fuzzer() -> Option<String> {
    let there = works(Command::new("cargo").args(["+nightly", "fuzz", "--version"]));
    (!there).then(|| "cargo-fuzz or the nightly toolchain is missing: cargo install cargo-fuzz".to_owned())
}

/// Whether the command line can check histories.
pub(crate) fn missing_check() -> Option<String> {
    let there = works(cargo(&[]).args(["run", "--quiet", "--release", "-p", "polychron-lab", "--", "check", "--help"]));
    (!there).then(|| "there is no command `polychron-lab check`".to_owned())
}

/// The machine's target triple, as the compiler calls it; empty when the compiler does not say.
pub(crate) fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned()
}

/// Cargo, with flags for the compiler beside those of the environment.
pub(crate) fn cargo(flags: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // Line tables would only cost time and disk.
    command.env("CARGO_PROFILE_TEST_DEBUG", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags.join(" "));
    }
    command
}

/// Runs a command, and adds its output to the log. Answers whether it ended well.
pub(crate) fn run(command: &mut Command, log: &Path) -> bool {
    let file = match OpenOptions::new().create(true).append(true).open(log) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{}: {error}", log.display());
            return false;
        }
    };
    let Ok(errors) = file.try_clone() else { return false };
    let passed = command.stdin(Stdio::null()).stdout(file).stderr(errors).status().is_ok_and(|status| status.success());
    if !passed {
        eprintln!("{command:?} failed; the end of its output:\n{}", end_of(log));
    }
    passed
}

/// An empty log for a part.
pub(crate) fn fresh_log(folder: &Path, name: &str) -> PathBuf {
    let log = folder.join(format!("{name}.log"));
    // What cannot be removed will be appended to, or be reported when it is opened.
    let _ = std::fs::remove_file(&log);
    log
}

fn end_of(log: &Path) -> String {
    const BYTES: u64 = 4000;
    let mut text = Vec::new();
    if let Ok(mut file) = std::fs::File::open(log) {
        let length = file.metadata().map_or(0, |data| data.len());
        let sought = file.seek(SeekFrom::Start(length.saturating_sub(BYTES)));
        let _ = sought.and_then(|_| file.read_to_end(&mut text));
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// What the last line of a log says that contains `mark`, without the borders of tables; nothing where there is none.
pub(crate) fn last_line(log: &Path, mark: &str) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let line = text.lines().rfind(|line| line.contains(mark)).unwrap_or_default();
    let words = line.split_whitespace().filter(|word| word.chars().any(|letter| !"│┆|".contains(letter)));
    words.collect::<Vec<_>>().join(" ")
}

/// The sum of the numbers that stand before `word` in the lines of a log that begin with, or contain, `mark`.
pub(crate) fn sum(log: &Path, mark: &str, word: &str) -> u64 {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let number = |line: &str| line.split(word).next()?.trim().rsplit([' ', ':']).next()?.trim().parse::<u64>().ok();
    text.lines().filter(|line| line.contains(mark) && line.contains(word)).filter_map(number).sum()
}
