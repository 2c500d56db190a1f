//! What the program writes where nobody reads, or no room is left.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn polychron(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
    command.args(arguments);
    command
}

const SHORT: &[&str] =
    &["bench", "increment", "--records", "50", "--threads", "1", "--seconds", "0.05", "--warmup", "0"];

fn full() -> Option<Stdio> {
    // Not every system has a file that is always full.
    File::options().write(true).open("/dev/full").ok().map(Stdio::from)
}

fn code_and_error(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_full_output_is_reported_in_one_line() {
    for arguments in [SHORT, &["bench", "list"][..]] {
        let Some(full) = full() else { return };
        let (code, errors) = code_and_error(&polychron(arguments).stdout(full).output().unwrap());
        assert_eq!(code, Some(1), "{arguments:?}: {errors}");
        let last = errors.lines().last().unwrap();
        assert!(last.starts_with("error: the standard output could not be written: "), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

#[test]
fn a_full_error_output_is_ignored() {
    let Some(full) = full() else { return };
    let output = polychron(SHORT).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.is_empty());
}

/// As `| head` does: it reads a little, or nothing, and goes.
#[test]
fn a_reader_that_goes_ends_nothing() {
    for arguments in [SHORT, &["bench", "list"][..]] {
        let mut child = polychron(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let (code, errors) = code_and_error(&child.wait_with_output().unwrap());
        assert_eq!(code, Some(0), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked") && !errors.contains("error"), "{errors}");
    }
}

#[test]
fn too_many_procedures_at_a_time_are_refused() {
    let huge = usize::MAX.to_string();
    for option in ["--batch", "--pregenerate", "--submit"] {
        for count in [&huge[..], "10000001"] {
            let run = polychron(&[SHORT, &[option, count]].concat()).output().unwrap();
            let (code, errors) = code_and_error(&run);
            assert_eq!(code, Some(2), "{errors}");
            assert_eq!(errors, format!("error: {option} is {count}; on 1 threads it is 10000000 at most\n"));
        }
    }
}

/// What is refused leaves no file.
#[test]
fn a_refused_run_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let arguments = [SHORT, &["--json", json.to_str().unwrap(), "--protocol-option", "nothing=1"]].concat();
    assert_eq!(polychron(&arguments).output().unwrap().status.code(), Some(2));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
