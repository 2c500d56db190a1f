//! Transactions with definitions, streams, cursors, calls and settings, which are compared with transactions of databases that are made anew for each order.

use super::{PARK, Play, Run, Transaction, is_alike, is_conflict};
use crate::answer::{Answer, System};
use crate::draw::Draw;

impl Play {
    /// As [`Play::check`], of transactions that define something: each order of them is taken by connections to a new database.
    ///
    /// # Panics
    /// When the setup fails.
    pub fn check_anew<M: System>(
        &self,
        connections: &mut [impl System],
        anew: impl Fn(usize) -> Vec<M>,
    ) -> (usize, Option<String>) {
        for text in &self.setup {
            let answer = connections[0].run(text);
            assert_eq!(answer.code(), None, "{text}: {answer}");
        }
        let runs: Vec<_> = self.run(connections).into_iter().flatten().collect();
        let finals: Vec<_> = self.finals.iter().map(|text| connections[0].run(text)).collect();
        let committed = runs.iter().filter(|run| run.is_committed).count();
        if finals.iter().any(is_conflict) {
            return (committed, Some(self.report(&runs, &finals)));
        }
        // What each order that explains nothing answers differently.
        let differs = |order: &Vec<usize>| {
            let mut model = anew(runs.len().max(1));
            self.setup.iter().for_each(|text| drop(model[0].run(text)));
            let ends = order.iter().try_for_each(|&at| takes(&mut model[at], &runs[at]));
            let shows = |(text, wanted): (&String, &Answer)| same(&mut model[0], text, wanted);
            let ends = ends.and_then(|()| self.finals.iter().zip(&finals).try_for_each(shows));
            ends.err().map(|difference| format!("order {order:?}: {difference}\n"))
        };
        let differences: Option<Vec<_>> = orders(runs.len()).iter().map(differs).collect();
        let fault = differences.map(|differences| self.report(&runs, &finals) + &differences.concat());
        (committed, fault)
    }
}

/// Has a connection take a transaction, which must be answered as it was.
fn takes(model: &mut impl System, run: &Run) -> Result<(), String> {
    model.run("BEGIN");
    run.answers.iter().try_for_each(|(text, wanted)| same(model, text, wanted))?;
    let end = model.run(if run.is_committed { "COMMIT" } else { "ROLLBACK" });
    if end.code().is_none() { Ok(()) } else { Err(format!("the end is {end}")) }
}

/// Whether a connection answers a statement as it was answered.
fn same(model: &mut impl System, text: &str, wanted: &Answer) -> Result<(), String> {
    let answer = model.run(text);
    if is_alike(&answer, wanted) { Ok(()) } else { Err(format!("{text}\n    {answer}")) }
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let shorter = orders(last);
    let with_last = shorter.iter().flat_map(|order| {
        (0..=last).map(|at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    });
    with_last.collect()
}

/// Draws transactions with steps of all kinds.
pub fn drawn(seed: u64) -> Play {
    let draw = &mut Draw::of(seed);
    let setup = [
        "CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL, w int, UNIQUE (w), CHECK (v > -50))",
        "CREATE TABLE b (x int, y int, v int NOT NULL, PRIMARY KEY (x, y))",
        "CREATE TABLE c (n int, a int REFERENCES a ON DELETE CASCADE)",
        "CREATE SCHEMA s",
        "CREATE INDEX b_v ON b (v, y)",
        "CREATE PROCEDURE add(i int, d int) LANGUAGE sql AS 'UPDATE a SET v = v + d WHERE id = i; INSERT INTO c SELECT d, id FROM a WHERE id = i'",
        "CREATE PROCEDURE move(i int, INOUT n int) LANGUAGE plpgsql AS 'DECLARE r record; BEGIN n := 0; FOR r IN SELECT x, y FROM b WHERE x = i LOOP UPDATE b SET v = v + 1 WHERE x = r.x AND y = r.y; n := n + 1; END LOOP; END'",
        "INSERT INTO a VALUES (1, 10, 1), (2, 20, 2), (3, 30, NULL), (5, 10, 5)",
        "INSERT INTO b VALUES (1, 1, 10), (1, 2, 20), (2, 1, 10), (4, 4, 40)",
        "INSERT INTO c VALUES (1, 1), (2, 1), (3, 5), (4, NULL)",
    ];
    let setup = setup.map(str::to_owned).to_vec();
    let count = draw.within(2, 3);
    let transactions: Vec<_> = (0..count).map(|number| transaction(draw, number)).collect();
    let mut turns: Vec<_> =
        transactions.iter().enumerate().flat_map(|(at, it)| vec![at; it.statements.len() + 2]).collect();
    let length = turns.len();
    turns = draw.some(&turns, length);
    let finals = ["SELECT * FROM a", "SELECT * FROM b", "SELECT * FROM c", "SELECT * FROM n", "SELECT * FROM s.a"];
    Play { setup, transactions, turns, finals: finals.map(str::to_owned).to_vec() }
}

fn transaction(draw: &mut Draw, number: usize) -> Transaction {
    let mut statements = Vec::new();
    for _ in 0..draw.within(1, 4) {
        if draw.once_in(5) {
            statements.push("SAVEPOINT s".to_owned());
            steps(draw, number, &mut statements);
            steps(draw, number, &mut statements);
            statements.push(draw.word(&["ROLLBACK TO s", "ROLLBACK TO s", "RELEASE s"]).to_owned());
        }
        steps(draw, number, &mut statements);
        if draw.once_in(4) {
            statements.push(PARK.to_owned());
        }
    }
    Transaction { begin: "BEGIN", statements, commits: draw.below(8) > 0 }
}

/// Statements that belong together.
fn steps(draw: &mut Draw, number: usize, statements: &mut Vec<String>) {
    let (id, other, v) = (draw.within(1, 6), draw.within(1, 6), draw.within(0, 4) * 10);
    let sign = draw.word(&["=", "<", ">=", ">"]);
    let mut add = |text: String| statements.push(text);
    match draw.below(30) {
        0 => {
            add(format!("DECLARE c{id} CURSOR FOR SELECT id, v FROM a WHERE v {sign} {v} ORDER BY id"));
            add(format!("FETCH {} FROM c{id}", draw.within(1, 3)));
            add(super::step(draw));
            add(format!("FETCH ALL FROM c{id}"));
            add(format!("CLOSE c{id}"));
        }
        1 => {
            add(format!(
                "CREATE TEMP TABLE t{number} (id int PRIMARY KEY, v int) ON COMMIT {}",
                draw.word(&["DROP", "DELETE ROWS", "PRESERVE ROWS"])
            ));
            add(format!("INSERT INTO t{number} SELECT id, v FROM a WHERE v {sign} {v}"));
            add(format!("UPDATE a SET v = a.v + 1 FROM t{number} t WHERE t.id = a.id"));
            add(format!("SELECT * FROM t{number}"));
        }
        2 => add(format!("CREATE TABLE n (id int PRIMARY KEY, k int DEFAULT {v})")),
        3 => add(format!("INSERT INTO n VALUES ({id}, {other})")),
        4 => add("SELECT * FROM n".to_owned()),
        5 => add("DROP TABLE IF EXISTS n".to_owned()),
        6 => add(format!("ALTER TABLE {} ADD COLUMN z int DEFAULT {v}", draw.word(&["a", "b", "c"]))),
        7 => add(format!("ALTER TABLE {} DROP COLUMN IF EXISTS z", draw.word(&["a", "b", "c"]))),
        8 => add(draw
            .word(&[
                "ALTER TABLE b ALTER v TYPE bigint",
                "ALTER TABLE a DROP CONSTRAINT IF EXISTS a_w_key",
                "ALTER TABLE b ALTER v DROP NOT NULL",
                "ALTER TABLE b ADD CONSTRAINT k CHECK (v < 1000)",
                "ALTER TABLE c RENAME n TO m",
                "ALTER TABLE c SET SCHEMA s",
                "CREATE TABLE s.a (id int)",
                "SET search_path = s, public",
                "SET LOCAL search_path = s, public",
                "RESET search_path",
                "CREATE INDEX i ON a (v, w)",
                "DROP INDEX IF EXISTS i",
                "DROP INDEX IF EXISTS b_v",
                "CREATE INDEX IF NOT EXISTS b_v ON b (v DESC)",
                "DROP SCHEMA IF EXISTS s",
                "ALTER TABLE n RENAME TO n2",
                "ALTER TABLE n2 RENAME TO n",
            ])
            .to_owned()),
        9 => add(format!("TRUNCATE {}", draw.word(&["b", "c", "n", "a, c", "b, c"]))),
        10 => add(format!("CALL add({id}, {})", draw.within(0, 3))),
        11 => add(format!("CALL move({id}, 0)")),
        12 => add(format!("COPY b FROM STDIN\n<<\n{id}\t{other}\t{v}\n{other}\t9\t{v}")),
        13 => add(format!("COPY c FROM STDIN\n<<\n{v}\t{id}\n{v}\t\\N")),
        14 => add(format!("UPDATE a SET v = a.v + b.v FROM b WHERE b.x = a.id AND b.y = {other} RETURNING a.id, a.v")),
        15 => add(format!("DELETE FROM b USING a WHERE a.id = b.x AND a.v {sign} {v} RETURNING b.x, b.y")),
        16 => add(format!("UPDATE c SET n = n + 1 FROM a WHERE a.id = c.a AND a.v {sign} {v} RETURNING c.n")),
        17 => add(format!("INSERT INTO c VALUES ({v}, {id}) RETURNING a")),
        18 => add(format!("SELECT c.n, a.v FROM c LEFT JOIN a ON a.id = c.a WHERE c.n {sign} {v}")),
        19 => add(format!("DELETE FROM a WHERE id = {id} RETURNING v")),
        20 => {
            add(format!("SET LOCAL timezone = '{}'", draw.word(&["UTC", "Europe/Berlin"])));
            add(format!("SELECT count(*), '2020-01-01 00:00:00Z'::timestamptz::text FROM a WHERE v {sign} {v}"));
        }
        21 => add(format!("PREPARED SELECT v, w FROM a WHERE id = $1\u{1}'{id}'")),
        22 => add(format!("PREPARED UPDATE b SET v = v + $1::int WHERE x = $2 RETURNING y, v\u{1}'{v}'\u{1}'{id}'")),
        _ => add(super::step(draw)),
    }
}
