//! Two protocols in turns, as a user meets them.

use std::process::{Command, Output};

fn polychron(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polychron")).args(arguments).output().expect("the binary was built for this test")
}

const WORKLOAD: &[&str] = &["increment", "--records", "50", "--threads", "1", "--seconds", "0.05", "--warmup", "0"];

#[test]
fn two_setups_run_in_turns_and_one_is_named_or_none_can_be() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("compared.json");
    let sides = ["bench", "compare", "cicada,indexes=multi-version", "maflingo", "--runs", "3"];
    let output = polychron(&[&sides, WORKLOAD, &["--json", json.to_str().unwrap()]].concat());
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let turns: Vec<_> = errors.lines().filter(|line| line.starts_with("run ")).collect();
    assert_eq!(turns.len(), 6, "{errors}");
    for (at, turn) in turns.iter().enumerate() {
        let side = ["cicada,indexes=multi-version", "maflingo"][at % 2];
        assert!(turn.starts_with(&format!("run {} of 3: {side}: ", at / 2 + 1)), "{turn}");
    }
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[lines.len() - 2], "consistency: passed", "{out}");
    let verdict = lines[lines.len() - 1];
    assert!(["times as fast as", "too close", "nothing to tell"].iter().any(|it| verdict.contains(it)), "{out}");
    let data: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(data["first"]["options"][0], "indexes=multi-version");
    assert_eq!((&data["first"]["protocol"], &data["second"]["protocol"]), (&"cicada".into(), &"maflingo".into()));
    for side in ["first", "second"] {
        let (spread, runs) = (&data[side]["throughput"], data[side]["runs"].as_array().unwrap());
        assert_eq!((runs.len(), &spread["runs"]), (3, &3.into()), "{data}");
        assert!(spread["least"].as_f64() <= spread["median"].as_f64(), "{spread}");
        assert!(runs.iter().all(|run| run["checks"] == "passed"), "{data}");
    }
}

#[test]
fn bad_sides_get_one_line_and_code_2_before_anything_runs() {
    let refusals: &[(&[&str], &str)] = &[
        (&["cicada", "nothing"], "no protocol `nothing`"),
        (&["cicada,index=1", "maflingo"], "cicada has no option `index`"),
        (&["cicada,multi-version", "maflingo"], "behind the protocol stand its options"),
        (&["cicada", "maflingo", "--runs", "0"], "--runs is 0"),
    ];
    for (sides, expected) in refusals {
        refused(&[&["bench", "compare"], *sides, WORKLOAD].concat(), expected);
    }
    refused(&["bench", "compare", "cicada"], "a workload is missing; it is `bench compare A B WORKLOAD`");
    let more = [&["bench", "compare", "cicada", "maflingo"], WORKLOAD, &["--protocol", "hyper"]].concat();
    refused(&more, "--protocol does not go with compare");
}

fn refused(arguments: &[&str], expected: &str) {
    let output = polychron(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    assert!(text.starts_with("error: ") && text.contains(expected), "{arguments:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
}
