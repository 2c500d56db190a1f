//! Statements without measure, and values at the edges of their types: an answer or an error, and the connection works behind it.

use polychron_lab_sql::{Answer, Ours, System};
use polychron_protocols::serial::Serial;

/// The first value that a statement answers, or its error's code, of a connection that works behind it.
fn answer(system: &mut Ours<Serial>, text: &str) -> String {
    let answer = system.run(text);
    assert_eq!(system.run("SELECT 1").value(), Some("1"), "behind {:.60}", text);
    match answer {
        Answer::Done { .. } => answer.value().unwrap_or_default().to_owned(),
        Answer::Failed { code, .. } => code,
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let mut system = Ours::new();
    let wrong: Vec<_> = cases
        .iter()
        .filter_map(|(text, wanted)| {
            let ours = answer(&mut system, text);
            (ours != *wanted).then(|| format!("{text}\n  ours:   {ours}\n  wanted: {wanted}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn long_texts_are_answered_or_refused() {
    let mut system = Ours::new();
    let literal = "x".repeat(10_000_000);
    assert_eq!(answer(&mut system, &format!("SELECT length('{literal}')")), "10000000");
    assert_eq!(answer(&mut system, &format!("SELECT length(/*{literal}*/ 'a')")), "1");
    assert_eq!(answer(&mut system, &format!("SELECT 1 --{literal}")), "1");
    assert_eq!(answer(&mut system, &format!("SELECT {}", "9".repeat(1_000_000))), "22003");
    assert_eq!(answer(&mut system, &"x".repeat(17 << 20)), "54000");
}

#[test]
fn lists_of_a_million_are_answered_or_refused() {
    let mut system = Ours::new();
    let list = (0..1_000_000).map(|it| it.to_string()).collect::<Vec<_>>().join(",");
    let ours = answer(&mut system, &format!("SELECT 999999 IN ({list})"));
    assert!(["t", "54000", "54001", "53200"].contains(&&*ours), "{ours}");
}

/// PostgreSQL cuts names off behind 63 bytes.
#[test]
fn long_names_are_cut_off_or_refused() {
    let mut system = Ours::new();
    let name = "n".repeat(10_000);
    for text in [
        format!("SELECT 1 AS {name}"),
        format!("SELECT {name} FROM (SELECT 1 AS {name}) {name}"),
        format!("CREATE TABLE {name} ({name} int PRIMARY KEY)"),
        format!("SELECT {name}(1)"),
        format!("SELECT 1::{name}"),
        format!("SAVEPOINT {name}"),
    ] {
        let ours = answer(&mut system, &text);
        assert!(ours.len() <= 5, "{:.40}: {ours:.80}", text);
    }
}

/// As PostgreSQL 15 answers.
#[test]
fn edges_of_types_hold() {
    check(&[
        ("SELECT -9223372036854775808", "-9223372036854775808"),
        ("SELECT 9223372036854775808", "9223372036854775808"),
        ("SELECT (-9223372036854775808)::int8 / -1", "22003"),
        ("SELECT (-9223372036854775808)::int8 % -1", "0"),
        ("SELECT -(-9223372036854775808)::int8", "22003"),
        ("SELECT abs((-9223372036854775808)::int8)", "22003"),
        ("SELECT (-2147483648)::int4 / -1", "22003"),
        ("SELECT (-32768)::int2 / (-1)::int2", "22003"),
        ("SELECT gcd((-9223372036854775808)::int8, (-9223372036854775808)::int8)", "22003"),
        ("SELECT lcm((-2147483648)::int4, 1)", "22003"),
        ("SELECT '1e400'::float8", "22003"),
        ("SELECT '1e-400'::float8", "22003"),
        ("SELECT 'infinity'::float8 - 'infinity'::float8", "NaN"),
        ("SELECT 'NaN'::float8::int4", "22003"),
        ("SELECT 1e308::float8 * 10", "22003"),
        ("SELECT 'infinity'::timestamp - '1 day'::interval", "infinity"),
        ("SELECT 'infinity'::date + 1", "infinity"),
        ("SELECT '2023-02-29'::date", "22008"),
        ("SELECT '2024-02-29'::date + interval '1 year'", "2025-02-28 00:00:00"),
        ("SELECT '294276-12-31 23:59:59.999999'::timestamp + interval '1 day'", "22008"),
        ("SELECT '4714-11-24 BC'::date", "4714-11-24 BC"),
        ("SELECT '4714-11-23 BC'::date", "22008"),
        ("SELECT '5874898-01-01'::date", "22008"),
        ("SELECT '178956971 years'::interval", "22008"),
        ("SELECT '24:00:00.000001'::time", "22008"),
        ("SELECT '9223372036854775807'::int8 + 1::int2", "22003"),
        ("SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) t(x)", "9223372036854775808"),
        ("SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1'::uuid", "22P02"),
        ("SELECT '\\x0'::bytea", "22023"),
        ("SELECT chr(0)", "54000"),
        ("SELECT chr(1114112)", "54000"),
        ("SELECT chr(55296)", "54000"),
        ("SELECT repeat('x', -1)", ""),
        ("SELECT lpad('x', -5)", ""),
        ("SELECT 1 LIMIT -1", "2201W"),
        ("SELECT 1 OFFSET -1", "2201X"),
        ("SELECT substr('abc', 2147483647, 2147483647)", ""),
    ]);
}

#[test]
fn a_branch_that_is_not_taken_fails_nothing() {
    check(&[
        ("SELECT CASE WHEN x > 0 THEN 1 / x ELSE 0 END FROM (VALUES (0)) t(x)", "0"),
        ("SELECT COALESCE(1, 1 / x) FROM (VALUES (0)) t(x)", "1"),
        ("SELECT x > 0 AND 1 / x > 0 FROM (VALUES (0)) t(x)", "f"),
        ("SELECT x = 0 OR 1 / x > 0 FROM (VALUES (0)) t(x)", "t"),
        ("SELECT CASE x WHEN 0 THEN 7 WHEN 1 / x THEN 8 END FROM (VALUES (0)) t(x)", "7"),
        ("SELECT CASE WHEN x = 0 THEN 1 ELSE (SELECT 1 / x) END FROM (VALUES (0)) t(x)", "1"),
        ("SELECT count(*) FILTER (WHERE x > 0 AND 1 / x > 0) FROM (VALUES (0)) t(x)", "0"),
        ("SELECT 1 WHERE false AND 1 / 0 > 0", ""),
        ("SELECT 1 FROM (VALUES (0)) t(x) WHERE x <> 0 AND 1 / x > 0", ""),
        ("SELECT CASE WHEN true THEN 5 ELSE 1 / 0 END", "5"),
        ("SELECT EXISTS (SELECT 1 / x FROM (VALUES (0)) t(x))", "t"),
    ]);
}

#[test]
fn zero_bytes_are_refused() {
    let mut system = Ours::new();
    for text in ["SELECT '\0'", "SELECT 1\0", "\0", "SELECT E'\\000'", "SELECT U&'\\0000'"] {
        let ours = answer(&mut system, text);
        assert!(["22021", "42601", "0A000", "22P05"].contains(&&*ours), "{text:?}: {ours:?}");
    }
}
