//! Texts of several statements for clients that send and get the data of COPY.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{all, connect, database, run};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, CopyShape, Forms, Outcome, SqlError, SqlState, Take, TextClient};

/// A client that notes what it is told, in the order in which that comes.
#[derive(Default)]
struct Client<'c> {
    told: Vec<String>,
    /// What each COPY FROM gets, the last one first.
    data: Vec<&'static str>,
    /// What is done before data are sent.
    before: Option<&'c mut dyn FnMut()>,
    /// It sends on whatever fails, and tells nothing of it.
    is_deaf: bool,
}

impl TextClient for Client<'_> {
    fn answer(&mut self, outcome: Outcome, _: &Forms) {
        let rows =
            outcome.texts().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|"));
        self.told.extend(rows.collect::<Vec<_>>());
        self.told.push(outcome.tag);
    }

    fn copies(&self) -> bool {
        true
    }

    fn send(&mut self, shape: CopyShape, take: &mut Take<'_>) -> Result<(), SqlError> {
        if let Some(before) = &mut self.before {
            before();
        }
        self.told.push(format!("{} columns in", shape.columns));
        for piece in self.data.pop().expect("the data of another COPY").as_bytes().chunks(3) {
            let taken = take(piece);
            if !self.is_deaf {
                taken?;
            }
        }
        Ok(())
    }

    fn begin_rows(&mut self, shape: CopyShape) {
        self.told.push(format!("{} columns out", shape.columns));
    }

    fn row(&mut self, row: &[u8]) -> std::io::Result<()> {
        self.told.push(String::from_utf8_lossy(row).trim_end().to_owned());
        Ok(())
    }

    fn end_rows(&mut self) {
        self.told.push("complete".to_owned());
    }
}

fn tables<P: Protocol<Worker: Interactive>>() -> [Connection<P>; 2] {
    let database = database::<P>();
    let [mut one, other] = [connect(&database), connect(&database)];
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (id int PRIMARY KEY)"]);
    all(&mut one, &["INSERT INTO t VALUES (1, 1), (2, 2)"]);
    [one, other]
}

fn copies_are_statements<P: Protocol<Worker: Interactive>>() {
    let [mut one, _] = tables::<P>();
    let text = "SET LOCAL statement_timeout = '7s'; COPY u FROM STDIN; COPY u FROM STDIN WITH (FORMAT csv);
        COPY (SELECT id, current_setting('statement_timeout') FROM u ORDER BY id) TO STDOUT; SELECT count(*) FROM u";
    let mut client = Client { data: vec!["3\n", "1\n2\n"], ..Client::default() };
    one.execute_for(text, &[], &mut client).unwrap();
    let told = "SET, 1 columns in, COPY 2, 1 columns in, COPY 1, 2 columns out, 1\t7s, 2\t7s, 3\t7s, complete, COPY 3, 3, SELECT 1";
    assert_eq!(client.told.join(", "), told, "{}", P::NAME);
    assert_eq!(run(&mut one, "SHOW statement_timeout").unwrap(), "0", "{}", P::NAME);
    // What fails leaves nothing, whatever the client does about it.
    for is_deaf in [false, true] {
        let mut client = Client { data: vec!["x\n5\n", "4\n"], is_deaf, ..Client::default() };
        let text = "COPY u FROM STDIN;\n\nCOPY u FROM STDIN;\n-- no data\nSELECT 1;\n";
        let error = one.execute_for(text, &[], &mut client).unwrap_err();
        assert_eq!(error.state().code(), "22P02", "{}", P::NAME);
        assert_eq!(client.told.join(", "), "1 columns in, COPY 1, 1 columns in", "{}", P::NAME);
        assert_eq!(run(&mut one, "SELECT count(*) FROM u").unwrap(), "3", "{}", P::NAME);
    }
    // Within the client's transaction an error is one of that.
    let mut client = Client { data: vec!["x\n"], ..Client::default() };
    one.execute_for("BEGIN; SAVEPOINT a; COPY u FROM STDIN", &[], &mut client).unwrap_err();
    all(&mut one, &["ROLLBACK TO a", "INSERT INTO u VALUES (9)", "COMMIT"]);
    assert_eq!(run(&mut one, "SELECT count(*) FROM u").unwrap(), "4", "{}", P::NAME);
    let error = one.execute("SELECT 1; COPY u FROM STDIN", &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{}", P::NAME);
    assert!(!one.is_in_transaction(), "{}", P::NAME);
    // Positions are those of the whole text.
    let text = "COPY u FROM STDIN;\nSELECT 1;\nCOPY u FROM STDIN;\n  SELEC 2";
    let error = one.execute_for(text, &[], &mut Client::default()).unwrap_err();
    assert_eq!((error.state().code(), error.position()), ("42601", Some(51)), "{}", P::NAME);
}

#[test]
fn copies_are_statements_of_texts() {
    copies_are_statements::<Serial>();
    copies_are_statements::<Cicada>();
    copies_are_statements::<Maflingo>();
    copies_are_statements::<Hyper>();
    copies_are_statements::<Locking>();
}

fn panics_leave_nothing<P: Protocol<Worker: Interactive>>() {
    let [mut one, _] = tables::<P>();
    for (text, code) in
        [("INSERT INTO u VALUES (1); COPY u FROM STDIN", None), ("BEGIN; COPY u FROM STDIN", Some("25P02"))]
    {
        let mut panics = || panic!("the client's own");
        let mut client = Client { before: Some(&mut panics), ..Client::default() };
        catch_unwind(AssertUnwindSafe(|| one.execute_for(text, &[], &mut client))).unwrap_err();
        let next = run(&mut one, "SELECT count(*) FROM u");
        match code {
            None => assert_eq!(next.unwrap(), "0", "{}", P::NAME),
            Some(code) => assert_eq!(next.unwrap_err().state().code(), code, "{}", P::NAME),
        }
    }
    all(&mut one, &["ROLLBACK", "INSERT INTO u VALUES (1)"]);
}

#[test]
fn clients_that_panic_leave_nothing() {
    panics_leave_nothing::<Cicada>();
    panics_leave_nothing::<Maflingo>();
    panics_leave_nothing::<Locking>();
}

/// Others write while the client sends: what was answered is answered again, or the text conflicts and leaves nothing.
fn texts_conflict<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = tables::<P>();
    let text = "SELECT v FROM t WHERE id = 1; COPY u FROM STDIN; INSERT INTO t SELECT max(id) + 1, 0 FROM t";
    let mut adds = || all(&mut other, &["INSERT INTO t SELECT max(id) + 1, 0 FROM t"]);
    let mut client = Client { data: vec!["1\n"], before: Some(&mut adds), ..Client::default() };
    one.execute_for(text, &[], &mut client).unwrap();
    assert_eq!(client.told.join(", "), "1, SELECT 1, 1 columns in, COPY 1, INSERT 0 1", "{}", P::NAME);
    let mut changes = || all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
    let mut client = Client { data: vec!["2\n"], before: Some(&mut changes), ..Client::default() };
    let error = one.execute_for(text, &[], &mut client).unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{}", P::NAME);
    assert!(!one.is_in_transaction(), "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT count(*) FROM u; SELECT sum(v), count(*) FROM t").unwrap(), "4|4", "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT count(*) FROM u").unwrap(), "1", "{}", P::NAME);
}

#[test]
fn texts_conflict_as_transactions_do() {
    texts_conflict::<Cicada>();
    texts_conflict::<Maflingo>();
    texts_conflict::<Hyper>();
}
