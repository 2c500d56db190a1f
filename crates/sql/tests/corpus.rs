//! Statements and what PostgreSQL answers to them, on several protocols.
//!
//! Each file of `corpus` has statements, each followed by `----` and the answer: rows with `|` between values and `NULL` in words, or `ERROR` with the
//! code and the first line. Rows of a block with a line `# any order` are compared as a set. The answers are those of PostgreSQL 15, in UTC and with the
//! collation `C`.

use polychron_engine::{Common, Protocol};
use polychron_protocols::{bohm::Bohm, cicada::Cicada, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, Outcome, SqlDatabase, SqlError};

/// What each statement of a text answers, with its remarks and its tag, as a terminal shows it.
fn whole_answer<P: Protocol>(connection: &mut Connection<P>, text: &str) -> String {
    let (mut remarks, mut lines) = (Vec::new(), Vec::new());
    let ended = connection.execute_each(text, &[], &mut |outcome| {
        let of = outcome.notices.iter().map(|it| format!("{} {}: {}", it.severity, it.state, it.message));
        remarks.extend(of);
        lines.extend(shown(&outcome));
        // That of a query says how many rows there are; that of a table that is made of one is all that it says.
        if !outcome.tag.starts_with("SELECT") && outcome.tag != "SHOW" || outcome.columns.is_empty() {
            lines.push(outcome.tag);
        }
    });
    let notices = ended.as_ref().err().map_or(&[][..], SqlError::notices);
    remarks.extend(notices.iter().map(|it| format!("{} {}: {}", it.severity, it.state, it.message)));
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

/// As [`whole_answer`], with the data of a COPY behind a line `<<`, and with what errors say of their place.
fn copied<P: Protocol>(connection: &mut Connection<P>, text: &str) -> String {
    if !text.starts_with("COPY") {
        return whole_answer(connection, text);
    }
    let (statement, data) =
        text.split_once("\n<<\n").map_or((text, String::new()), |(it, data)| (it, format!("{data}\n")));
    let mut out = Vec::new();
    let ended = if statement.contains(" FROM STDIN") {
        connection.copy_in(statement).and_then(|mut copy| {
            copy.write(data.as_bytes())?;
            copy.finish()
        })
    } else {
        connection.copy_out(statement, &mut out)
    };
    let mut answer = if ended.is_ok() { String::from_utf8(out).unwrap() } else { String::new() };
    answer += &match &ended {
        Ok(count) => format!("COPY {count}"),
        Err(error) => format!("ERROR {}: {}", error.state(), error.message()),
    };
    if let Err(error) = &ended {
        let more = [("DETAIL", error.detail()), ("CONTEXT", error.context())];
        let more = more.iter().filter_map(|(what, line)| Some(format!("\n{what}: {}", (*line)?)));
        answer.extend(more);
    }
    answer
}

/// Plans are shown in words.
#[test]
fn explain() {
    let database = SqlDatabase::open(Serial::open(Default::default(), Common::default()).unwrap());
    let mut connection = Connection::open(&database).unwrap();
    for statement in ["CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b text)", "CREATE INDEX ta ON t (a, b)"] {
        connection.execute(statement, &[]).unwrap();
    }
    for (statement, wanted) in [
        ("SELECT * FROM t", "Seq Scan on t"),
        ("SELECT * FROM t WHERE id = 1", "Index Scan using t_pkey on t\n  Index Cond: (id = 1)"),
        (
            "SELECT * FROM t WHERE a = 1 AND b > 'x' ORDER BY id LIMIT 1",
            "Limit\n  ->  Sort\n        Sort Key: id\n        ->  Index Scan using ta on t\n              Index Cond: ((a = 1) AND (b > 'x'))\n              Filter: (b > 'x')",
        ),
        ("SELECT * FROM t ORDER BY id DESC LIMIT 1", "Limit\n  ->  Index Scan Backward using t_pkey on t"),
        ("SELECT * FROM t WHERE a = 1 ORDER BY b", "Index Scan using ta on t\n  Index Cond: (a = 1)"),
        ("SELECT * FROM t WHERE a = 1 ORDER BY b DESC", "Index Scan Backward using ta on t\n  Index Cond: (a = 1)"),
        (
            "SELECT * FROM t WHERE a = 1 ORDER BY b DESC NULLS LAST",
            "Sort\n  Sort Key: b DESC NULLS LAST\n  ->  Index Scan using ta on t\n        Index Cond: (a = 1)",
        ),
        ("SELECT a, count(*) FROM t GROUP BY a", "HashAggregate\n  Group Key: a\n  ->  Seq Scan on t"),
        ("DELETE FROM t WHERE b IS NULL", "Delete on t\n  ->  Seq Scan on t\n        Filter: (b IS NULL)"),
        (
            "UPDATE t SET b = x.b FROM t x WHERE x.b = t.b",
            "Update on t\n  ->  Hash Join\n        Hash Cond: (b = b)\n        ->  Seq Scan on t\n        ->  Seq Scan on t",
        ),
        (
            "SELECT * FROM t x JOIN t y ON x.b = y.b",
            "Hash Join\n  Hash Cond: (b = b)\n  ->  Seq Scan on t\n  ->  Seq Scan on t",
        ),
    ] {
        assert_eq!(answer(&mut connection, &format!("EXPLAIN {statement}")), wanted, "{statement}");
    }
    assert_eq!(answer(&mut connection, "SELECT count(*) FROM t"), "0");
    assert_eq!(answer(&mut connection, "EXPLAIN (COSTS OFF) SELECT 1"), "Result");
    assert!(answer(&mut connection, "EXPLAIN (FORMAT JSON) SELECT 1").starts_with("ERROR 0A000"));
}

/// What the last statement of a text answers, in words.
fn answer<P: Protocol>(connection: &mut Connection<P>, text: &str) -> String {
    let outcome = match connection.execute(text, &[]) {
        Ok(outcome) => outcome,
        Err(error) => return format!("ERROR {}: {}", error.state(), error.message()),
    };
    shown(&outcome).collect::<Vec<_>>().join("\n")
}

/// What needs a transaction that stays open, which a protocol that plans does not have.
const HOLDING: [&str; 7] = ["BEGIN", "START TRANSACTION", "SAVEPOINT", "COMMIT", "ROLLBACK", "DECLARE", "SET_CONFIG"];

fn sorted(answer: &str) -> String {
    let mut lines: Vec<_> = answer.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn check<P: Protocol>(name: &str, corpus: &str, answer: impl Fn(&mut Connection<P>, &str) -> String, is_planned: bool) {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let mut connection = Connection::open(&database).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    let mut holds = false;
    for block in corpus.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let is_unordered = block.starts_with("# any order");
        let block: Vec<_> = block.lines().filter(|line| !line.starts_with('#')).collect();
        let end = block.iter().position(|line| *line == "----").expect("each block has an answer");
        let (statements, wanted) = (block[..end].join("\n"), block[end + 1..].join("\n"));
        let ours = answer(&mut connection, &statements);
        if ours.contains(&format!("under the protocol {} is not supported", P::NAME)) {
            assert!(
                is_planned && HOLDING.iter().any(|word| statements.to_uppercase().contains(word)),
                "{name}: {statements}\n{ours}"
            );
            // What comes behind may be of the transaction that was not begun.
            holds = true;
            break;
        }
        let is_right = if is_unordered { sorted(&ours) == sorted(&wanted) } else { ours == wanted };
        if !is_right {
            wrong.push(format!("{statements}\n  ours:   {ours}\n  wanted: {wanted}"));
        }
        count += 1;
    }
    assert!(count > 20 || holds, "{name} has {count} blocks");
    assert!(wrong.is_empty(), "{name}, {}: {} of {count}\n{}", P::NAME, wrong.len(), wrong.join("\n"));
}

macro_rules! corpus {
    ($answer:ident: $($name:ident),*) => {$(
        #[test]
        fn $name() {
            let (name, corpus) = (stringify!($name), include_str!(concat!("corpus/", stringify!($name), ".txt")));
            check::<Serial>(name, corpus, $answer, false);
            check::<Cicada>(name, corpus, $answer, false);
            check::<Maflingo>(name, corpus, $answer, false);
            check::<Bohm>(name, corpus, $answer, true);
        }
    )*};
}

corpus!(answer: expressions, group_sets, queries, changes, subqueries, shapes, patterns, levels, characters, floats, numerics, regexes);
corpus!(answer: aggregates, arrays, catalog, frames, functions, json, orders, relations, windows);
// Their answers have the tags, warnings and notices of all statements.
corpus!(copied: copy);
corpus!(whole_answer: cursors, transactions, definitions, constraints, dates, precisions, enums, sequences, ddl_transactions, alter, foreign_keys, pgbench, views);
corpus!(whole_answer: changes_in_with, comments, merge, row_comparisons, procedures, procedure_bodies, points, indexes, keys, comparable, settings, schemas, temporary, assignments, alter_sequences, session_statements, table_as, likes, generated, more_functions, json_records, view_columns, view_names, index_names, identities, key_types, retyped_keys, needed_keys, row_values, row_locks);
