//! Statements and what PostgreSQL answers to them, on several protocols.
//!
//! Each file of `corpus` has statements, each followed by `----` and the answer: rows with `|` between values and `NULL` in words, or `ERROR` with the
//! code and the first line. Rows of a block with a line `# any order` are compared as a set. The answers are those of PostgreSQL 15, in UTC and with the
//! collation `C`.

use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, Outcome, SqlDatabase};

/// What each statement of a text answers, with its remarks and its tag, as a terminal shows it.
fn whole_answer<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> String {
    let (mut remarks, mut lines) = (Vec::new(), Vec::new());
    let ended = connection.execute_each(text, &[], &mut |outcome| {
        let of = outcome.notices.iter().map(|it| format!("{} {}: {}", it.severity, it.state, it.message));
        remarks.extend(of);
        lines.extend(shown(&outcome));
        if !outcome.tag.starts_with("SELECT") && outcome.tag != "SHOW" {
            lines.push(outcome.tag);
        }
    });
    lines.extend(ended.err().map(|error| format!("ERROR {}: {}", error.state(), error.message())));
    // A terminal has them from another stream, before the rest.
    remarks.append(&mut lines);
    remarks.join("\n")
}

fn shown(outcome: &Outcome) -> impl Iterator<Item = String> {
    outcome.texts().map(|row| {
        let values = row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned()));
        values.collect::<Vec<_>>().join("|")
    })
}

/// What the last statement of a text answers, in words.
fn answer<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> String {
    let outcome = match connection.execute(text, &[]) {
        Ok(outcome) => outcome,
        Err(error) => return format!("ERROR {}: {}", error.state(), error.message()),
    };
    shown(&outcome).collect::<Vec<_>>().join("\n")
}

fn sorted(answer: &str) -> String {
    let mut lines: Vec<_> = answer.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn check<P: Protocol<Worker: Interactive>>(
    name: &str,
    corpus: &str,
    answer: impl Fn(&mut Connection<P>, &str) -> String,
) {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let mut connection = Connection::open(&database).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for block in corpus.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let is_unordered = block.starts_with("# any order");
        let block: Vec<_> = block.lines().filter(|line| !line.starts_with('#')).collect();
        let end = block.iter().position(|line| *line == "----").expect("each block has an answer");
        let (statements, wanted) = (block[..end].join("\n"), block[end + 1..].join("\n"));
        let ours = answer(&mut connection, &statements);
        let is_right = if is_unordered { sorted(&ours) == sorted(&wanted) } else { ours == wanted };
        if !is_right {
            wrong.push(format!("{statements}\n  ours:   {ours}\n  wanted: {wanted}"));
        }
        count += 1;
    }
    assert!(count > 20, "{name} has {count} blocks");
    assert!(wrong.is_empty(), "{name}, {}: {} of {count}\n{}", P::NAME, wrong.len(), wrong.join("\n"));
}

macro_rules! corpus {
    ($answer:ident: $($name:ident),*) => {$(
        #[test]
        fn $name() {
            let (name, corpus) = (stringify!($name), include_str!(concat!("corpus/", stringify!($name), ".txt")));
            check::<Serial>(name, corpus, $answer);
            check::<Cicada>(name, corpus, $answer);
            check::<Maflingo>(name, corpus, $answer);
        }
    )*};
}

corpus!(answer: expressions, queries, changes, subqueries, shapes, patterns, levels);
// Their answers have the tags, warnings and notices of all statements.
corpus!(whole_answer: transactions, definitions, constraints, sequences, ddl_transactions, alter, foreign_keys, pgbench, views);
