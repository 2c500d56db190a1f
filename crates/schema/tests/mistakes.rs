//! Mistakes with the derives: each is told of once, where it is, with what to write in its place.
//!
//! `TRYBUILD=overwrite cargo test -p polychron-schema --test mistakes` writes down what is told now. What the compiler words itself is
//! compared for one version of it.

use std::process::Command;

/// The compiler whose words are written down.
const COMPILER: &str = "rustc 1.95.";

fn is_written_down() -> bool {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().expect("the compiler that made this test is there");
    version.stdout.starts_with(COMPILER.as_bytes())
}

#[test]
#[cfg_attr(miri, ignore = "starts the compiler")]
fn mistakes_are_told_of_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/mistakes/*.rs");
    if is_written_down() {
        cases.compile_fail("tests/mistakes/compiler/*.rs");
    }
}
