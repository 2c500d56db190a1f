//! What the program writes where no client reads, no room is left, or the system asks it to end.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

fn polychron(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron-lab"));
    command.args(arguments);
    command
}

const CHECK: &[&str] = &["check", "--protocol", "serial", "--threads", "2", "--seconds", "0.05"];
const FIGURES: &[&str] =
    &["figures", "cicada", "--quick", "--records", "200", "--scale", "tiny", "--figure", "8", "--threads", "1"];

fn full() -> Option<Stdio> {
    // Not every system has a file that is always full.
    File::options().write(true).open("/dev/full").ok().map(Stdio::from)
}

fn code_and_error(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_full_output_is_reported_in_one_line() {
    let Some(full) = full() else { return };
    let (code, errors) = code_and_error(&polychron(CHECK).stdout(full).output().unwrap());
    assert_eq!(code, Some(1), "{errors}");
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("error: the standard output could not be written: "), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

/// Asks a program to end as the system does.
fn terminate(child: &Child) {
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

/// Waits until the program has said something: by then it listens.
fn heard(child: &mut Child) {
    let mut byte = [0];
    child.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
}

/// Whenever the end comes, a file is as it was or whole, and nothing else is left in its folder.
#[test]
fn figures_that_are_ended_leave_whole_files() {
    let directory = tempfile::tempdir().unwrap();
    let (page, data) = (directory.path().join("page.html"), directory.path().join("page.json"));
    std::fs::write(&page, "an earlier page").unwrap();
    let output = page.to_str().unwrap();
    let arguments = [FIGURES, &["--seconds", "600", "--output", output]].concat();
    let mut child = polychron(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    heard(&mut child);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "an earlier page");
    assert!(!data.exists());
    terminate(&child);
    let (code, errors) = code_and_error(&child.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "it ends as by Ctrl-C: {errors}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("<html"));
    assert!(serde_json::from_slice::<serde_json::Value>(&std::fs::read(&data).unwrap()).is_ok());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}
