//! Statements and what PostgreSQL answers to them, on several protocols.
//!
//! Each file of `corpus` has statements, each followed by `----` and the answer: rows with `|` between values and `NULL` in words, or `ERROR` with the
//! code and the first line. Rows of a block with a line `# any order` are compared as a set. The answers are those of PostgreSQL 15, in UTC and with the
//! collation `C`.

use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlDatabase};

/// What the statements of a text answer, in words.
fn answer<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> String {
    let outcome = match connection.execute(text, &[]) {
        Ok(outcome) => outcome,
        Err(error) => return format!("ERROR {}: {}", error.state(), error.message()),
    };
    let shown = |row: Vec<Option<String>>| {
        let values = row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned()));
        values.collect::<Vec<_>>().join("|")
    };
    outcome.texts().map(shown).collect::<Vec<_>>().join("\n")
}

fn sorted(answer: &str) -> String {
    let mut lines: Vec<_> = answer.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn check<P: Protocol<Worker: Interactive>>(name: &str, corpus: &str) {
    let database = SqlDatabase::new(P::open(P::Options::default(), Common::default()).unwrap());
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
    assert!(count > 30, "{name} has {count} blocks");
    assert!(wrong.is_empty(), "{name}, {}: {} of {count}\n{}", P::NAME, wrong.len(), wrong.join("\n"));
}

macro_rules! corpus {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            let (name, corpus) = (stringify!($name), include_str!(concat!("corpus/", stringify!($name), ".txt")));
            check::<Serial>(name, corpus);
            check::<Cicada>(name, corpus);
            check::<Maflingo>(name, corpus);
        }
    )*};
}

corpus!(expressions, queries, changes, subqueries, shapes, patterns, levels);
