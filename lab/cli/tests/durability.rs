//! `polychron-lab durability` on tiny databases.

use std::process::{Command, Output};

fn durability(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron-lab"));
    command.arg("durability").args(arguments).output().expect("the binary was built for this test")
}

#[test]
fn every_part_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    for (part, expected) in [
        ("latency", &["bare write and sync", "commit, immediate"][..]),
        ("clients", &["1 clients, immediate", "64 clients, in memory"]),
        ("submissions", &["eventual=10ms", "in memory"]),
        ("opening", &["open from the log", "open from a checkpoint"]),
    ] {
        let tiny = ["--part", part, "--seconds", "0.02", "--repeat", "1", "--megabytes", "1", "--directory", place];
        let output = durability(&tiny);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{part}: {err}");
        assert!(expected.iter().all(|name| out.contains(name)), "{part}: {out}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "directories stay");
}

#[test]
fn bad_input_gets_one_line_and_code_2() {
    for (arguments, expected) in [
        (&["--seconds", "0"][..], "--seconds is 0; it lies above 0"),
        (&["--repeat", "0"], "--repeat is 0; it lies between"),
        (&["--protocol", "nothing"], "there is no protocol `nothing`"),
        (&["--part", "latency", "--directory", "/nowhere/at/all"], "/nowhere/at/all: "),
    ] {
        let output = durability(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains(expected) && err.trim_end().lines().count() == 1, "{err}");
    }
}
