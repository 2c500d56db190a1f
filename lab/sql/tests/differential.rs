//! Drawn statements, and PostgreSQL's answers to them. `POLYCHRON_POSTGRES` names a server (`host=… port=… user=…`); without it nothing is compared.
//! `POLYCHRON_SQL_STATEMENTS` says how many statements, `POLYCHRON_FIRST_SEED` from which seed.

use polychron_lab_sql::{Case, Ours, Postgres, Statement, Tally, differences, shrunk, wanted};
use polychron_protocols::serial::Serial;

const STATEMENTS: usize = 40;

/// A database that no other run of the tests has.
fn database() -> String {
    format!("polychron_{}", std::process::id())
}

#[test]
fn answers_are_those_of_postgresql() {
    let Some(mut postgres) = Postgres::connect(&database()) else {
        println!("POLYCHRON_POSTGRES names no server, so nothing was compared");
        return;
    };
    let first = wanted("POLYCHRON_FIRST_SEED", 1);
    let cases = wanted("POLYCHRON_SQL_STATEMENTS", 1000).div_ceil(STATEMENTS as u64);
    let most = wanted("POLYCHRON_SQL_FAILURES", 1);
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    for seed in first..first + cases {
        let case = Case::drawn(seed, STATEMENTS);
        let mut compare = |statements: &[Statement], tally: &mut Tally| {
            postgres.clear();
            differences(statements, &mut Ours::<Serial>::new(), &mut postgres, tally)
        };
        let Some(found) = compare(&case.statements, &mut tally) else { continue };
        let kept = &case.statements[..=found.at];
        let kept = shrunk(kept, |part| compare(part, &mut Tally::default()).is_some_and(|it| it.text == found.text));
        let texts: Vec<_> = kept.iter().map(|it| format!("{it};")).collect();
        let found = compare(&kept, &mut Tally::default()).unwrap_or(found);
        failures.push(format!("seed {seed}:\n{}\n{found}", texts.join("\n")));
        if failures.len() as u64 >= most {
            break;
        }
    }
    println!("{tally:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(tally.done * 2 > tally.compared, "most statements succeed: {tally:?}");
    assert!((tally.left_open + tally.refused + tally.known) * 8 < tally.compared, "few are not compared: {tally:?}");
}
