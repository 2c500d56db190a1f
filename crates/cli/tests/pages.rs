//! Completions and manual pages.

use std::process::{Command, Output, Stdio};

fn polychron(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polychron")).args(arguments).output().expect("the binary was built for this test")
}

#[test]
fn every_shell_gets_completions_that_know_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = polychron(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{shell}");
        for word in ["bench", "tpcc", "compare", "protocol-option", "warehouses"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
    let output = polychron(&["completions", "sh"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
}

#[test]
fn the_manual_is_a_page_or_a_page_for_each_command() {
    let output = polychron(&["man"]);
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && page.contains(".TH polychron") && page.contains("bench"), "{page}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert!(polychron(&["man", "--directory", path]).status.success());
    let tpcc = std::fs::read_to_string(directory.path().join("polychron-bench-tpcc.1")).unwrap();
    assert!(tpcc.contains("warehouses"), "{tpcc}");
    let output = polychron(&["man", "--directory", "/no/such/folder"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
}

#[test]
fn both_are_hidden_and_end_quietly_without_a_reader() {
    let help = polychron(&["--help"]);
    assert!(!String::from_utf8_lossy(&help.stdout).contains("completions"));
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
    }
}
