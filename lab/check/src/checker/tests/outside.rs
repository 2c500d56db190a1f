//! Histories from outside, as lines of JSON.

use crate::checker::{Anomaly, Verdict, check};
use crate::history::lines::parse;

#[track_caller]
fn verdict(lines: &[&str], strict: bool) -> Verdict {
    check(&parse(&lines.join("\n")).expect("the lines are sound"), strict)
}

#[track_caller]
fn assert_named(lines: &[&str], expected: Anomaly) {
    let verdict = verdict(lines, false);
    assert_eq!(verdict.anomaly().map(|it| it.anomaly), Some(expected), "{verdict:?}");
}

#[track_caller]
fn assert_clean(lines: &[&str], strict: bool) {
    let verdict = verdict(lines, strict);
    assert!(matches!(verdict, Verdict::Serializable(_)), "{verdict:?}");
}

const APPEND_1: &str = r#"{"operations": [{"do": "append", "key": 1, "value": 10}]}"#;
const APPEND_2: &str =
    r#"{"operations": [{"do": "append", "key": 1, "value": 20}, {"do": "append", "key": 2, "value": 20}]}"#;

fn lists(first: &[u64], second: &[u64]) -> String {
    let list = |key, values| format!(r#"{{"do": "list", "key": {key}, "values": {values:?}}}"#);
    format!(r#"{{"operations": [{}, {}]}}"#, list(1, first), list(2, second))
}

#[test]
fn lists_show_their_order() {
    assert_clean(&[APPEND_1, APPEND_2, &lists(&[10, 20], &[20]), &lists(&[10], &[]), &lists(&[], &[])], false);
    assert_clean(&[APPEND_1, APPEND_2, &lists(&[20, 10], &[20]), &lists(&[20], &[20])], false);
    assert_clean(&["", APPEND_1, APPEND_2], false);
}

#[test]
fn lists_that_show_parts_are_anomalies() {
    assert_named(&[APPEND_1, APPEND_2, &lists(&[10, 20], &[])], Anomaly::GSingle);
    assert_named(&[APPEND_1, APPEND_2, &lists(&[10], &[20])], Anomaly::GSingle);
    assert_named(&[APPEND_1, APPEND_2, &lists(&[20], &[]), &lists(&[10], &[])], Anomaly::Internal);
    assert_named(&[APPEND_1, &lists(&[10, 99], &[])], Anomaly::Garbage);
    let aborted = r#"{"outcome": "aborted", "operations": [{"do": "append", "key": 1, "value": 30}]}"#;
    assert_named(&[APPEND_1, aborted, &lists(&[30, 10], &[])], Anomaly::G1a);
    let twice = r#"{"operations": [{"do": "append", "key": 1, "value": 1}, {"do": "append", "key": 1, "value": 2}]}"#;
    assert_named(&[twice, &lists(&[1], &[])], Anomaly::G1b);
    assert_clean(&[twice, &lists(&[1, 2], &[])], false);
}

#[test]
fn lists_show_write_cycles_and_lost_updates() {
    let both = r#"{"operations": [{"do": "append", "key": 1, "value": 30}, {"do": "append", "key": 2, "value": 30}]}"#;
    assert_named(&[APPEND_2, both, &lists(&[20, 30], &[30, 20])], Anomaly::G0);
    let update = |value| {
        format!(
            r#"{{"operations": [{{"do": "list", "key": 1, "values": [10]}}, {{"do": "append", "key": 1, "value": {value}}}]}}"#
        )
    };
    let all = r#"{"operations": [{"do": "list", "key": 1, "values": [10, 11, 12]}]}"#;
    assert_named(&[APPEND_1, &update(11), &update(12), all], Anomaly::LostUpdate);
}

/// Of values that no client saw only this is known: they came behind those that some client saw.
#[test]
fn unobserved_values_come_last() {
    let unseen = r#"{"operations": [{"do": "append", "key": 1, "value": 40}, {"do": "list", "key": 2, "values": []}]}"#;
    let other = r#"{"operations": [{"do": "append", "key": 1, "value": 50}]}"#;
    assert_clean(&[APPEND_1, unseen, other, &lists(&[10], &[])], false);
    assert_named(&[APPEND_1, APPEND_2, unseen, &lists(&[10, 20], &[20])], Anomaly::GSingle);
    let writer =
        r#"{"operations": [{"do": "append", "key": 1, "value": 40}, {"do": "append", "key": 3, "value": 40}]}"#;
    let reader =
        r#"{"operations": [{"do": "list", "key": 1, "values": []}, {"do": "list", "key": 3, "values": [40]}]}"#;
    assert_named(&[writer, other, reader], Anomaly::GSingle);
}

#[test]
fn unknown_ends_are_commits_once_they_are_seen() {
    let unknown =
        r#"{"begin": 1, "end": 2, "outcome": "unknown", "operations": [{"do": "append", "key": 1, "value": 10}]}"#;
    assert_clean(&[unknown, &lists(&[10], &[])], true);
    assert_clean(&[unknown, &lists(&[], &[])], true);
}

#[test]
fn rows_with_versions_are_read_too() {
    let load = r#"{"operations": [{"do": "write", "key": 1, "version": 1}, {"do": "write", "key": 2, "version": 1}]}"#;
    let skew = |read, write| {
        format!(
            r#"{{"operations": [{{"do": "read", "key": {read}, "version": 1}},
            {{"do": "write", "key": {write}, "version": 2, "over": 1}}]}}"#
        )
        .replace('\n', " ")
    };
    assert_clean(&[load, &skew(1, 2)], false);
    assert_named(&[load, &skew(1, 2), &skew(2, 1)], Anomaly::G2Item);
    let gone = r#"{"operations": [{"do": "delete", "key": 1, "over": 1}, {"do": "read", "key": 1}]}"#;
    assert_clean(&[load, gone, r#"{"operations": [{"do": "put", "key": 3, "version": 7}]}"#], false);
}

#[test]
fn real_time_is_begin_and_end() {
    let writer = r#"{"begin": 1, "end": 2, "operations": [{"do": "append", "key": 1, "value": 10}]}"#;
    let reader =
        |begin| format!(r#"{{"begin": {begin}, "end": 9, "operations": [{{"do": "list", "key": 1, "values": []}}]}}"#);
    assert_clean(&[writer, &reader(3)], false);
    assert_clean(&[writer, &reader(2)], true);
    let verdict = verdict(&[writer, &reader(3)], true);
    assert!(verdict.anomaly().is_some_and(|it| it.real_time), "{verdict:?}");
}

#[test]
fn bad_lines_are_named() {
    let error = |lines: &[&str]| parse(&lines.join("\n")).unwrap_err().to_string();
    assert!(error(&[APPEND_1, "", "{"]).starts_with("line 3: "));
    assert!(error(&[APPEND_1, APPEND_1]).contains("line 2: value 10 is written twice at key 1"));
    assert!(error(&[r#"{"operations": [{"do": "jump"}]}"#]).contains("unknown variant `jump`"));
    assert!(error(&[r#"{"operation": []}"#]).contains("unknown field `operation`"));
}
