//! Transactions of several connections beside each other: what they have answered and left must be what some serial order of them answers and leaves.
//!
//! One thread takes the steps of the transactions in a drawn order. What has conflicted, or was rolled back, is not to be believed, and neither is an error behind a
//! savepoint. A transaction that ended with another error has happened up to it, and left nothing: an error that no serial order answers was believed too early.

pub mod broad;

use crate::answer::{Answer, System};
use crate::draw::Draw;

/// A transaction of a session: the statements between BEGIN and its end.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The statement that begins it.
    pub begin: &'static str,
    /// The statements, and where it is parked.
    pub statements: Vec<String>,
    /// Whether it ends with COMMIT.
    pub commits: bool,
}

/// What became of a transaction.
#[derive(Clone, Debug)]
struct Run {
    /// The statements that were answered.
    answers: Vec<(String, Answer)>,
    is_committed: bool,
}

/// Transactions and the order of their steps.
#[derive(Clone, Debug)]
pub struct Play {
    /// Statements that make what is there before.
    pub setup: Vec<String>,
    /// The transactions, a connection each.
    pub transactions: Vec<Transaction>,
    /// Which transaction takes the next step.
    pub turns: Vec<usize>,
    /// Queries that show what there is in the end.
    pub finals: Vec<String>,
}

/// The step of a transaction that is parked. What it answers does not tell.
const PARK: &str = "PARK";

/// How a step begins that makes an index. It changes no answer, so the model does not take it: definitions cannot follow the model's returns to savepoints.
const INDEX: &str = "CREATE INDEX";

/// Whether a transaction has not happened: it conflicted, would wait for another one of its thread, or has waited for a table that one defines or uses.
fn is_conflict(answer: &Answer) -> bool {
    matches!(answer.code(), Some("40001" | "40P01" | "55P03"))
}

impl Play {
    /// Lets each transaction take its steps; in the end, those that are left take theirs.
    fn run(&self, connections: &mut [impl System]) -> Vec<Option<Run>> {
        let empty = Run { answers: Vec::new(), is_committed: false };
        let mut runs = vec![Some(empty); self.transactions.len()];
        let mut next = vec![0; self.transactions.len()];
        for connection in &mut *connections {
            // What another transaction of the thread holds does not become free by waiting.
            connection.run("SET lock_timeout = '1ms'");
        }
        let rest = (0..self.transactions.len()).flat_map(|at| vec![at; self.transactions[at].statements.len() + 2]);
        for at in self.turns.iter().copied().chain(rest) {
            let (transaction, connection) = (&self.transactions[at], &mut connections[at]);
            let step = next[at];
            next[at] += 1;
            let Some(run) = runs[at].as_mut().filter(|_| step < transaction.statements.len() + 2) else { continue };
            let text = match step {
                0 => transaction.begin,
                _ if step <= transaction.statements.len() => &*transaction.statements[step - 1],
                _ if transaction.commits => "COMMIT",
                _ => "ROLLBACK",
            };
            if text == PARK {
                connection.park();
                continue;
            }
            let answer = connection.run(text);
            if is_conflict(&answer) {
                connection.run("ROLLBACK");
                runs[at] = None;
            } else if step > transaction.statements.len() {
                run.is_committed = transaction.commits && answer.code().is_none();
                if !run.is_committed {
                    runs[at] = None;
                }
            } else if step > 0 {
                let has_failed = answer.code().is_some();
                run.answers.push((text.to_owned(), answer));
                if has_failed && !transaction.statements[step..].iter().any(|it| it.starts_with("ROLLBACK TO")) {
                    connection.run("ROLLBACK");
                    if transaction.statements[..step].iter().any(|it| it.starts_with("SAVEPOINT")) {
                        runs[at] = None;
                    }
                    next[at] = usize::MAX - 64;
                }
            }
        }
        runs
    }

    /// Why no serial order explains the answers, if none does, and how many transactions have committed.
    ///
    /// # Panics
    /// When the setup fails.
    pub fn check(&self, connections: &mut [impl System], model: &mut impl System) -> (usize, Option<String>) {
        for text in &self.setup {
            for system in [&mut connections[0] as &mut dyn System, model] {
                let answer = system.run(text);
                assert_eq!(answer.code(), None, "{text}: {answer}");
            }
        }
        let runs: Vec<_> = self.run(connections).into_iter().flatten().collect();
        let finals: Vec<_> = self.finals.iter().map(|text| connections[0].run(text)).collect();
        let committed = runs.iter().filter(|run| run.is_committed).count();
        model.run("BEGIN");
        let is_explained = explained(&runs, &self.finals, &finals, model);
        model.run("ROLLBACK");
        let fault = (!is_explained).then(|| self.report(&runs, &finals));
        (committed, fault)
    }

    fn report(&self, runs: &[Run], finals: &[Answer]) -> String {
        use std::fmt::Write;
        let mut text = format!("{}\nturns {:?}\n", self.setup.join(";\n"), self.turns);
        for run in runs {
            let _ = writeln!(text, "transaction, committed: {}", run.is_committed);
            for (statement, answer) in &run.answers {
                let _ = writeln!(text, "  {statement}\n    {answer}");
            }
        }
        finals.iter().for_each(|answer| {
            let _ = writeln!(text, "in the end: {answer}");
        });
        text
    }
}

/// Whether some order of the runs that are left answers as they have, and leaves what is there in the end.
fn explained(left: &[Run], queries: &[String], finals: &[Answer], model: &mut impl System) -> bool {
    if left.is_empty() {
        return queries.iter().zip(finals).all(|(text, wanted)| is_alike(&model.run(text), wanted));
    }
    let name = format!("left{}", left.len());
    (0..left.len()).any(|at| {
        let mut others = left.to_vec();
        let run = others.remove(at);
        model.run(&format!("SAVEPOINT {name}"));
        let mut asked = run.answers.iter().filter(|(text, _)| !text.starts_with(INDEX));
        let fits = asked.all(|(text, wanted)| is_alike(&model.run(text), wanted));
        if fits && !run.is_committed {
            model.run(&format!("ROLLBACK TO {name}"));
        }
        let is_explained = fits && explained(&others, queries, finals, model);
        model.run(&format!("ROLLBACK TO {name}"));
        is_explained
    })
}

fn is_alike(one: &Answer, other: &Answer) -> bool {
    one.code() == other.code()
        && one.sorted_rows() == other.sorted_rows()
        && match (one, other) {
            (Answer::Done { count, .. }, Answer::Done { count: other, .. }) => count == other,
            _ => true,
        }
}

/// Draws transactions over two small tables, and an order of their steps.
pub fn drawn(seed: u64) -> Play {
    let draw = &mut Draw::of(seed);
    let setup = vec![
        "CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL, w int, UNIQUE (w), CHECK (v > -50))".to_owned(),
        "CREATE TABLE b (x int, y int, v int NOT NULL, PRIMARY KEY (x, y))".to_owned(),
        format!("CREATE INDEX a_v ON a (v{})", draw.word(&["", " DESC"])),
        "CREATE INDEX b_v ON b (v, y)".to_owned(),
        "INSERT INTO a VALUES (1, 10, 1), (2, 20, 2), (3, 30, NULL), (5, 10, 5)".to_owned(),
        "INSERT INTO b VALUES (1, 1, 10), (1, 2, 20), (2, 1, 10), (4, 4, 40)".to_owned(),
    ];
    let count = draw.within(2, 4);
    let transactions: Vec<_> = (0..count).map(|_| transaction(draw)).collect();
    let mut turns: Vec<_> =
        transactions.iter().enumerate().flat_map(|(at, it)| vec![at; it.statements.len() + 2]).collect();
    let length = turns.len();
    turns = draw.some(&turns, length);
    let finals = vec!["SELECT * FROM a".to_owned(), "SELECT * FROM b".to_owned()];
    Play { setup, transactions, turns, finals }
}

/// How transactions begin: some read a snapshot, for as long as they change nothing.
const BEGINS: [&str; 4] =
    ["BEGIN", "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN TRANSACTION READ ONLY DEFERRABLE"];

fn transaction(draw: &mut Draw) -> Transaction {
    let begin = draw.word(&BEGINS);
    if begin.contains("READ ONLY") {
        return reader(draw, begin);
    }
    let (mut statements, mut is_undone) = (Vec::new(), false);
    for _ in 0..draw.within(1, 3) {
        match draw.below(6) {
            0 => {
                statements.push("SAVEPOINT s".to_owned());
                statements.push(step(draw));
                statements.push("ROLLBACK TO s".to_owned());
                statements.push(step(draw));
                is_undone = true;
            }
            _ => statements.push(step(draw)),
        }
        if draw.below(3) == 0 {
            statements.push(PARK.to_owned());
        }
    }
    if is_undone {
        // A definition begins the transaction again, and does not compare what was undone.
        statements.retain(|statement| !statement.starts_with(INDEX));
    }
    Transaction { begin, statements, commits: draw.below(8) > 0 }
}

/// A transaction of queries, some of them behind a pause.
fn reader(draw: &mut Draw, begin: &'static str) -> Transaction {
    let mut statements = Vec::new();
    for _ in 0..draw.within(2, 5) {
        statements.push(query(draw));
        if draw.below(5) == 0 {
            statements.push(PARK.to_owned());
        }
    }
    Transaction { begin, statements, commits: draw.below(8) > 0 }
}

/// A statement that reads.
fn query(draw: &mut Draw) -> String {
    let (id, v) = (draw.within(1, 6), draw.within(0, 4) * 10);
    let sign = draw.word(&["=", "<", ">=", ">"]);
    match draw.below(9) {
        0 => format!("SELECT v, w FROM a WHERE id = {id}"),
        1 => format!("SELECT count(*), sum(v) FROM a WHERE v {sign} {v}"),
        2 => format!("SELECT min(id), max(w) FROM a WHERE id {sign} {id}"),
        3 => format!("SELECT a.id, b.y FROM a JOIN b ON b.x = a.id WHERE a.v {sign} {v}"),
        4 => format!("SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.v = a.v AND b.y {sign} {id})"),
        5 => format!("SELECT id FROM a ORDER BY v, id LIMIT {}", draw.within(1, 2)),
        6 => format!("SELECT x, count(*) FROM b WHERE v {sign} {v} GROUP BY x"),
        7 => format!("SELECT id FROM a WHERE w IN (SELECT y FROM b WHERE x = {id})"),
        _ => format!("SELECT 100 / (v - {v}) FROM a WHERE id = {id}"),
    }
}

fn step(draw: &mut Draw) -> String {
    let (id, other, v) = (draw.within(1, 6), draw.within(1, 6), draw.within(0, 4) * 10);
    let sign = draw.word(&["=", "<", ">=", ">"]);
    match draw.below(25) {
        0..9 => query(draw),
        9 => format!("UPDATE a SET v = v + {} WHERE id = {id}", draw.within(1, 9)),
        10 => format!("UPDATE a SET v = (SELECT count(*) FROM a z WHERE z.v {sign} {v}) WHERE id = {id}"),
        11 => format!("UPDATE a SET v = {v} WHERE v {sign} {} RETURNING id", draw.within(0, 4) * 10),
        12 => format!("UPDATE a SET w = {other} WHERE id = {id}"),
        13 => format!("UPDATE b SET v = v - {v} WHERE x = {id} RETURNING y, v"),
        14 => format!("INSERT INTO a VALUES ({id}, {v}, {other})"),
        15 => format!("INSERT INTO a VALUES ({id}, {v}, NULL) ON CONFLICT (id) DO UPDATE SET v = a.v + 1 RETURNING v"),
        16 => format!("INSERT INTO a VALUES ({id}, {v}, {other}) ON CONFLICT DO NOTHING"),
        17 => format!(
            "INSERT INTO a VALUES ({id}, {v}, {other}) ON CONFLICT (w) DO UPDATE SET v = excluded.v RETURNING id"
        ),
        18 => format!("INSERT INTO b SELECT {id}, w, v FROM a WHERE w IS NOT NULL AND v {sign} {v}"),
        19 => format!("INSERT INTO b SELECT {id}, {other}, count(*) FROM a WHERE v = {v}"),
        20 => format!("DELETE FROM a WHERE id = {id}"),
        21 => format!("DELETE FROM b WHERE v {sign} {v} RETURNING x, y"),
        22 => format!("UPDATE a SET id = {other} WHERE id = {id} RETURNING v"),
        23 => {
            format!("{INDEX} ON {}", draw.word(&["a (w, v)", "a ((v + 1))", "b (y) WHERE v > 10", "b (v DESC)"]))
        }
        _ => format!("UPDATE a SET v = v - 100 WHERE v {sign} {v}"),
    }
}
