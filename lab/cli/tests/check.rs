//! `polychron-lab check` as a user meets it.

use std::process::{Command, Output};

use polychron::{Isolation, ProtocolList};
use polychron_compared::Everything;

fn polychron(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polychron-lab"))
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn text(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// By default all that promise something are checked, and keep it, also in real time.
#[test]
fn every_protocol_keeps_its_promise() {
    for strict in [&[][..], &["--strict"]] {
        let output = polychron(&[&["check", "--seconds", "0.5", "--seed", "5", "--threads", "3"], strict].concat());
        let (out, err) = text(&output);
        assert!(output.status.success(), "{out}{err}");
        for protocol in Everything::all() {
            let promises = protocol.isolation != Isolation::Nothing;
            assert_eq!(out.contains(&format!(" {} ", protocol.name)), promises, "{out}");
        }
        assert!(out.contains("false aborts"), "{out}");
        // Of all protocols BOHM alone runs procedures to find out what they write.
        let reconnaissance = |name| {
            let line = out.lines().find(|line| line.contains(&format!(" {name} "))).expect("it has a row");
            line.split_whitespace().nth(4).map(str::to_owned)
        };
        assert_eq!(reconnaissance("maflingo").as_deref(), Some("0"), "{out}");
        assert_ne!(reconnaissance("bohm").as_deref(), Some("0"), "{out}");
    }
}

/// With multi-version indexes, too; an option that there is not is refused in one line.
#[test]
fn options_of_a_protocol_are_passed_on() {
    let check = |protocol, option| {
        let common = ["--seconds", "0.5", "--seed", "5", "--threads", "3", "--strict"];
        polychron(&[&["check", "--protocol", protocol, "--protocol-option", option][..], &common].concat())
    };
    let output = check("cicada", "indexes=multi-version");
    let (out, err) = text(&output);
    assert!(output.status.success() && out.contains("serializable"), "{out}{err}");
    let refused = [
        ("cicada", "indexes=many", "indexes is `many`"),
        ("cicada", "indexes", "it is NAME=VALUE"),
        ("cicada", "index=multi-version", "cicada has no option `index`"),
        ("serial", "indexes=multi-version", "serial has no option `indexes`"),
    ];
    for (protocol, option, line) in refused {
        let output = check(protocol, option);
        let (_, err) = text(&output);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(line) && err.trim_end().lines().count() == 1, "{err}");
    }
}

/// A store without transactions is found out, and told how to see it again.
#[test]
fn anomalies_end_with_code_1_and_a_seed() {
    let output = polychron(&["check", "--protocol", "key-value", "--seconds", "30", "--threads", "3"]);
    let (out, err) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(out.contains("polychron-lab check --protocol key-value --seed "), "{out}");
    assert!((1..=3).any(|thread| out.contains(&format!("T{thread}."))), "the transactions are named: {out}");
}

#[test]
fn histories_of_others_are_checked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().expect("temporary paths are text");
    let append = r#"{"operations": [{"do": "append", "key": 1, "value": 1}, {"do": "append", "key": 2, "value": 1}]}"#;
    let list = r#"{"operations": [{"do": "list", "key": 1, "values": [1]}, {"do": "list", "key": 2, "values": []}]}"#;
    std::fs::write(path, format!("{append}\n{list}\n")).unwrap();
    let output = polychron(&["check", "--history", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).0.starts_with("G-single"), "{}", text(&output).0);
    std::fs::write(path, append).unwrap();
    let output = polychron(&["check", "--history", path, "--strict"]);
    assert!(output.status.success() && text(&output).0.contains("1 transactions have a serial order"));
}

#[test]
fn bad_input_gets_one_line_and_code_2() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "{}").unwrap();
    let path = file.path().to_str().expect("temporary paths are text");
    let refusals: &[(&[&str], &str)] = &[
        (&["--protocol", "nothing"], "no protocol `nothing`"),
        (&["--threads", "0"], "--threads is 0"),
        (&["--threads", "100000"], "--threads is 100000"),
        (&["--seconds", "-1"], "--seconds is -1"),
        (&["--seconds", "NaN"], "--seconds"),
        (&["--minutes", "0"], "--minutes is 0"),
        (&["--minutes", "1", "--seconds", "1"], "--minutes"),
        (&["--seed", "x"], "--seed"),
        (&["--unheard-of"], "--unheard-of"),
        (&["--history", "/no/such/file"], "/no/such/file"),
        (&["--history", path], "line 1: missing field `operations`"),
        (&["--history", path, "--protocol", "serial"], "--protocol"),
    ];
    for (arguments, expected) in refusals {
        let output = polychron(&[&["check"], *arguments].concat());
        let (out, err) = text(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.starts_with("error: ") && err.contains(expected), "{arguments:?}: {err}");
        assert_eq!(err.lines().count(), 1, "{arguments:?}: {err}");
        assert!(out.is_empty(), "{arguments:?}: {out}");
    }
}

/// Ctrl-C as a terminal sends it.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_run_and_reports() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let mut child = Command::new(env!("CARGO_BIN_EXE_polychron-lab"))
        .args(["check", "--protocol", "serial", "--minutes", "10", "--threads", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let running = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("serial: "));
    assert!(running, "the run tells now and then");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    lines.for_each(drop);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(out.contains("ended early"), "{out}");
}
