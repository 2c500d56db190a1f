//! Sessions that change what is said of one table, all at once: what a session was told is so stays so until it says otherwise.

use crate::common::{all, connect, database, run};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo};
use polychron_sql::{Connection, SqlError};
use polychron_sync::atomic::{AtomicBool, Ordering};

/// What a client makes and takes away again: the statements, and what counts them.
const KINDS: [[&str; 3]; 9] = [
    ["CREATE INDEX i# ON t (x)", "DROP INDEX i#", "SELECT count(*) FROM pg_indexes WHERE indexname = 'i#'"],
    [
        "ALTER TABLE t ADD c# int NOT NULL DEFAULT 7#",
        "ALTER TABLE t DROP c#",
        "SELECT count(*) FROM information_schema.columns WHERE column_name = 'c#'",
    ],
    ["CREATE VIEW v# AS SELECT id, x FROM t", "DROP VIEW v#", "SELECT count(*) FROM pg_views WHERE viewname = 'v#'"],
    [
        "ALTER TABLE t ADD CONSTRAINT k# CHECK (x > -1#)",
        "ALTER TABLE t DROP CONSTRAINT k#",
        "SELECT count(*) FROM pg_constraint WHERE conname = 'k#'",
    ],
    [
        "GRANT SELECT ON t TO r#",
        "REVOKE SELECT ON t FROM r#",
        "SELECT CASE WHEN has_table_privilege('r#', 't', 'SELECT') THEN 1 ELSE 0 END",
    ],
    [
        "CREATE TABLE f# (t int REFERENCES t)",
        "DROP TABLE f#",
        "SELECT count(*) FROM pg_constraint WHERE conname = 'f#_t_fkey'",
    ],
    [
        "COMMENT ON COLUMN t.o# IS 'text'",
        "COMMENT ON COLUMN t.o# IS NULL",
        "SELECT count(*) FROM pg_attribute WHERE attname = 'o#' AND col_description(attrelid, attnum) = 'text'",
    ],
    [
        "ALTER TABLE t ADD g# int GENERATED ALWAYS AS (x + #) STORED",
        "ALTER TABLE t DROP g#",
        "SELECT count(*) FROM information_schema.columns WHERE column_name = 'g#' AND is_generated = 'ALWAYS'",
    ],
    [
        "ALTER TYPE e RENAME VALUE 'l#' TO 'm#'",
        "ALTER TYPE e RENAME VALUE 'm#' TO 'l#'",
        "SELECT count(*) FROM pg_enum WHERE enumlabel = 'm#'",
    ],
];

/// What a view answers that all of them replace.
const SHARED: &str = "SELECT max(n) FROM w";

struct Client<P: Protocol> {
    session: Connection<P>,
    number: usize,
    /// Which of its kinds are there.
    there: [bool; KINDS.len()],
    state: u64,
    done: usize,
}

impl<P: Protocol> Client<P> {
    fn draw(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % below
    }

    fn text(&self, kind: usize, which: usize) -> String {
        KINDS[kind][which].replace('#', &self.number.to_string())
    }

    /// Runs a statement that may meet others; whether it was done.
    fn run(&mut self, text: &str) -> bool {
        match run(&mut self.session, text) {
            Ok(_) => true,
            Err(error) => {
                self.is_met(text, &error);
                false
            }
        }
    }

    fn is_met(&self, text: &str, error: &SqlError) {
        // Columns of tables with views stay.
        let may_be =
            ["40001", "40P01", "55P03"].contains(&error.state().code()) || error.message().contains("views are made");
        assert!(may_be, "{}: {text}: {} {error} {:?}", P::NAME, error.state().code(), error.detail());
    }

    /// Changes one or two of its things, alone or in a transaction that may be rolled back.
    fn change(&mut self) {
        let first = self.draw(KINDS.len());
        let mut kinds = vec![first];
        let how = self.draw(5);
        if how > 1 && self.draw(2) == 0 {
            kinds.push((first + 1 + self.draw(KINDS.len() - 1)) % KINDS.len());
        }
        if how == 1 {
            let replaced = format!("CREATE OR REPLACE VIEW w AS SELECT {} AS n FROM t", self.draw(1000));
            self.run(&replaced);
        }
        let texts: Vec<_> = kinds.iter().map(|&kind| self.text(kind, usize::from(self.there[kind]))).collect();
        let is_done = if how < 2 {
            self.run(&texts[0])
        } else {
            let mut all_texts = vec!["BEGIN".to_owned()];
            if how == 4 {
                // What is undone leaves nothing, whatever it was.
                let undone = self.draw(KINDS.len());
                let text = self.text(undone, usize::from(self.there[undone]));
                all_texts.extend(["SAVEPOINT s".to_owned(), text, "ROLLBACK TO s".to_owned()]);
            }
            all_texts.extend(texts.iter().cloned());
            let mut seen = None;
            let are_done = all_texts.iter().all(|text| {
                // Its client is silent for long, now and then.
                if self.draw(4) == 0 {
                    self.session.park();
                }
                self.run(text) && self.sees_one_view(&mut seen)
            });
            let ends = are_done && how != 3 && self.run("COMMIT");
            if !ends {
                all(&mut self.session, &["ROLLBACK"]);
            }
            ends
        };
        if is_done {
            kinds.iter().for_each(|&kind| self.there[kind] = !self.there[kind]);
            self.done += 1;
        }
        self.look(&texts);
    }

    /// Reads through the view that others replace, in a transaction that has seen this through it before; whether it could.
    fn sees_one_view(&mut self, seen: &mut Option<String>) -> bool {
        match run(&mut self.session, SHARED) {
            Ok(now) => {
                let before = seen.get_or_insert_with(|| now.clone());
                assert_eq!(*before, now, "{}: the view is another one within a transaction", P::NAME);
                true
            }
            Err(error) => {
                self.is_met(SHARED, &error);
                false
            }
        }
    }

    /// Its things are there or not, as it was told, and the table can be used with them.
    fn look(&mut self, texts: &[String]) {
        for kind in 0..KINDS.len() {
            let query = self.text(kind, 2);
            let found = loop {
                match run(&mut self.session, &query) {
                    Ok(found) => break found,
                    Err(error) => self.is_met(&query, &error),
                }
            };
            assert_eq!(found, u8::from(self.there[kind]).to_string(), "{} {texts:?}: {query}", P::NAME);
        }
        let insert = format!("INSERT INTO t (x) VALUES ({}) RETURNING *", self.number);
        self.run(&insert);
        for (kind, name, value) in [(1, 'c', "7#"), (7, 'g', "x + #")] {
            if !self.there[kind] {
                continue;
            }
            let query = format!("SELECT count(*) FROM t WHERE {name}# IS DISTINCT FROM {value}");
            let query = query.replace('#', &self.number.to_string());
            match run(&mut self.session, &query) {
                Ok(found) => assert_eq!(found, "0", "{} {texts:?}", P::NAME),
                Err(error) => self.is_met(&query, &error),
            }
        }
    }
}

fn sessions_change_one_table<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let roles = ["CREATE ROLE r0", "CREATE ROLE r1", "CREATE ROLE r2"];
    let table = "CREATE TABLE t (id serial PRIMARY KEY, x int, o0 int, o1 int, o2 int, m e DEFAULT 'z')";
    all(&mut connect(&database), &["CREATE TYPE e AS ENUM ('l0', 'l1', 'l2', 'z')", table]);
    all(&mut connect(&database), &["INSERT INTO t (x) VALUES (1)", "CREATE VIEW w AS SELECT 0 AS n FROM t"]);
    all(&mut connect(&database), &roles);
    let clients: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..roles.len())
            .map(|number| {
                let database = &database;
                scope.spawn(move || {
                    let (mut session, state) = (connect(database), number as u64 + 1);
                    // Two transactions that have described the table wait for each other when both go on to alter it.
                    all(&mut session, &["SET lock_timeout = 300"]);
                    let mut client = Client { session, number, there: Default::default(), state, done: 0 };
                    (0..40).for_each(|_| client.change());
                    client
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for mut client in clients {
        assert!(client.done > 0, "{}", P::NAME);
        client.look(&[]);
    }
}

#[test]
fn what_was_told_of_a_table_stays() {
    sessions_change_one_table::<Cicada>();
    sessions_change_one_table::<Maflingo>();
    sessions_change_one_table::<Hyper>();
    sessions_change_one_table::<Locking>();
}

/// One session alters and renames a table all the time, and others list what there is.
fn listings_beside_definitions<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    all(&mut connect(&database), &["CREATE TABLE w (id int PRIMARY KEY, a int)", "INSERT INTO w VALUES (1, 1)"]);
    let has_ended = AtomicBool::new(false);
    let list = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = connect(&database);
                while !has_ended.load(Ordering::Relaxed) {
                    match run(&mut session, list) {
                        Ok(names) => assert!(["", "w", "x", "w\nx"].contains(&&*names), "{}: {names}", P::NAME),
                        Err(error) => assert_eq!(error.state().code(), "40001", "{}: {error}", P::NAME),
                    }
                }
            });
        }
        let mut session = connect(&database);
        for _ in 0..40 {
            for text in [
                "ALTER TABLE w ADD d int NOT NULL DEFAULT 7",
                "ALTER TABLE w RENAME TO x",
                "ALTER TABLE x RENAME TO w",
                "ALTER TABLE w DROP d",
            ] {
                while let Err(error) = run(&mut session, text) {
                    assert_eq!(error.state().code(), "40001", "{}: {text}: {error}", P::NAME);
                }
            }
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    let mut session = connect(&database);
    assert_eq!(run(&mut session, list).unwrap(), "w", "{}", P::NAME);
    let columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'w'";
    assert_eq!(run(&mut session, columns).unwrap(), "id\na", "{}", P::NAME);
}

#[test]
fn what_is_only_on_its_way_is_not_listed() {
    listings_beside_definitions::<Cicada>();
    listings_beside_definitions::<Maflingo>();
    listings_beside_definitions::<Hyper>();
}
