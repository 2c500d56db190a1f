//! Mutation proof: each step of SQL is left out, and something then goes wrong that a test sees.
//!
//! A *killer* plays one interleaving in one thread and tells whether it went wrong. With the step it must not, and without it must.

use polychron_engine::mutations::leave_out;
use polychron_engine::{Common, Interactive, Protocol};
use polychron_lab_sql::{Answer, Ours, System};
use polychron_protocols::hyper::Hyper;
use polychron_protocols::maflingo::Maflingo;
use polychron_protocols::serial::Serial;
use polychron_sql::{Connection, SqlDatabase, SqlError, Step};

/// Connections to a database with these objects; they wait for no lock.
fn connections<P: Protocol<Worker: Interactive>>(count: usize, objects: &str) -> Vec<Ours<P>> {
    let mut all = Ours::<P>::several(count);
    for text in objects.split("; ") {
        done(&mut all[0], text);
    }
    for text in ["SET lock_timeout = '1ms'", "SET park_after = 0"] {
        all.iter_mut().for_each(|it| drop(done(it, text)));
    }
    all
}

#[track_caller]
fn done(system: &mut impl System, text: &str) -> Answer {
    let answer = system.run(text);
    assert_eq!(answer.code(), None, "{text}: {answer}");
    answer
}

/// Whether a row that was inserted is not there, although nobody else has changed rows: `begin_late` begins its transaction when the definition has the table.
fn loses_a_row(begin_late: bool) -> bool {
    let [writer, altering] = &mut connections::<Maflingo>(2, "CREATE TABLE t (id int PRIMARY KEY)")[..] else {
        unreachable!("two connections")
    };
    let insert = |writer: &mut Ours<Maflingo>| {
        done(writer, "BEGIN");
        writer.run("INSERT INTO t VALUES (1)").code().is_none()
    };
    let early = !begin_late && insert(writer);
    done(altering, "BEGIN");
    let altered = altering.run("ALTER TABLE t ADD COLUMN v int").code().is_none();
    let inserted = early || begin_late && insert(writer);
    let altered = altering.run("COMMIT").code().is_none() && altered;
    let committed = writer.run("COMMIT").code().is_none();
    altered && inserted && !(committed && done(writer, "SELECT count(*) FROM t").value() == Some("1"))
}

fn a_writer_passes_a_closed_gate() -> bool {
    loses_a_row(true)
}

fn a_definition_passes_a_writer() -> bool {
    loses_a_row(false)
}

/// Whether a client has seen a sum that no order of the transactions has.
fn a_transaction_goes_on_with_other_answers() -> bool {
    let objects = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)";
    let [one, other] = &mut connections::<Hyper>(2, objects)[..] else { unreachable!("two connections") };
    done(one, "BEGIN");
    let read = done(one, "SELECT v FROM t WHERE id = 1");
    done(other, "UPDATE t SET v = 5");
    let changed = one.run("UPDATE t SET v = v + 1 WHERE id = 2").code().is_none() && one.run("COMMIT").code().is_none();
    changed && read.value() == Some("0")
}

/// The same of a transaction that was parked.
fn a_parked_transaction_goes_on_with_other_answers() -> bool {
    let objects = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)";
    let [one, other] = &mut connections::<Maflingo>(2, objects)[..] else { unreachable!("two connections") };
    done(one, "BEGIN");
    let read = done(one, "SELECT v FROM t WHERE id = 1");
    one.park();
    done(other, "UPDATE t SET v = 5");
    let changed = one.run("UPDATE t SET v = v + 1 WHERE id = 2").code().is_none() && one.run("COMMIT").code().is_none();
    changed && read.value() == Some("0")
}

/// Whether parked transactions leave no worker for another one.
fn parked_transactions_have_all_workers() -> bool {
    let mut common = Common::default();
    common.memory.max_workers = 4;
    let database = SqlDatabase::open(Maflingo::open(Default::default(), common).unwrap());
    let begun = (0..8).map(|_| {
        let mut connection = Connection::open(&database)?;
        connection.execute("BEGIN", &[])?;
        connection.park();
        Ok(connection)
    });
    begun.collect::<Result<Vec<_>, SqlError>>().is_err()
}

/// Whether a row is there that the table does not allow.
fn a_parked_transaction_goes_on_with_an_altered_table() -> bool {
    let objects = "CREATE TABLE t (id int PRIMARY KEY, v int)";
    let [one, other] = &mut connections::<Maflingo>(2, objects)[..] else { unreachable!("two connections") };
    done(one, "BEGIN");
    done(one, "INSERT INTO t VALUES (1, 0)");
    one.park();
    done(other, "ALTER TABLE t ADD CHECK (v > 0)");
    one.run("COMMIT");
    done(other, "SELECT count(*) FROM t WHERE v = 0").value() == Some("1")
}

/// Whether a child without its parent is committed.
fn a_child_is_committed_without_its_parent() -> bool {
    let objects = "CREATE TABLE p (id int PRIMARY KEY); \
         CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED)";
    let [one] = &mut connections::<Serial>(1, objects)[..] else { unreachable!("a connection") };
    done(one, "BEGIN");
    done(one, "INSERT INTO c VALUES (1, 1)");
    one.run("COMMIT").code().is_none()
}

/// The same behind a savepoint, up to which the parent was there.
fn a_child_is_committed_without_the_parent_that_was_undone() -> bool {
    let objects = "CREATE TABLE p (id int PRIMARY KEY); \
         CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED)";
    let [one] = &mut connections::<Serial>(1, objects)[..] else { unreachable!("a connection") };
    for text in ["BEGIN", "INSERT INTO c VALUES (1, 1)", "SAVEPOINT s", "INSERT INTO p VALUES (1)"] {
        done(one, text);
    }
    done(one, "SET CONSTRAINTS ALL IMMEDIATE");
    done(one, "ROLLBACK TO s");
    one.run("COMMIT").code().is_none()
}

/// Whether an error is answered that no order of the transactions has.
fn an_error_comes_of_reads_that_never_were() -> bool {
    let objects = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 1)";
    let [one, other] = &mut connections::<Maflingo>(2, objects)[..] else { unreachable!("two connections") };
    done(one, "BEGIN");
    let read = done(one, "SELECT v FROM t WHERE id = 1");
    done(other, "UPDATE t SET v = 0");
    read.value() == Some("1") && one.run("SELECT 1 / v FROM t WHERE id = 2").code() == Some("22012")
}

/// Whether a table that is there is not.
/// Another object of the database has made the table, so the session's own does not know since when it is there.
fn a_newer_table_is_not_there() -> bool {
    let protocol = Maflingo::open(Default::default(), Common::default()).expect("the defaults are valid");
    let connect = || Connection::open(&SqlDatabase::open(protocol.clone())).expect("there are workers");
    let (mut one, mut other) = (connect(), connect());
    one.execute("BEGIN", &[]).expect("it begins");
    other.execute("CREATE TABLE u (id int PRIMARY KEY)", &[]).expect("the name is free");
    one.execute("SELECT * FROM u", &[]).is_err_and(|error| error.state().code() != "40001")
}

fn a_table_is_there_without_its_rows() -> bool {
    let objects = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)";
    let [one, other] = &mut connections::<Hyper>(2, objects)[..] else { unreachable!("two connections") };
    done(other, "BEGIN");
    done(other, "ALTER TABLE t ADD COLUMN a int");
    done(one, "BEGIN");
    done(other, "COMMIT");
    done(one, "SELECT count(*) FROM t").value() != Some("1")
}

fn a_null_comes_first() -> bool {
    let [one] = &mut connections::<Serial>(1, "SELECT 1")[..] else { unreachable!("a connection") };
    let sorted = |one: &mut Ours<Serial>, order: &str| {
        let answer =
            done(one, &format!("SELECT x IS NULL FROM (VALUES (1), (NULL), (2)) t (x) ORDER BY x{order} LIMIT 1"));
        answer.value().map(str::to_owned)
    };
    [sorted(one, ""), sorted(one, " DESC")] != [Some("f".to_owned()), Some("t".to_owned())]
}

/// Makes a test for every step; a step without a killer does not compile.
macro_rules! killers {
    ($($step:ident: $killer:ident;)*) => {
        fn killer(step: Step) -> fn() -> bool {
            match step {
                $(Step::$step => $killer),*
            }
        }

        #[allow(non_snake_case)]
        mod each {
            $(
                #[test]
                fn $step() {
                    super::kill(super::Step::$step);
                }
            )*
        }
    };
}

/// Plays a step's killer with the step and without.
#[track_caller]
fn kill(step: Step) {
    let play = killer(step);
    assert!(!play(), "it goes wrong although nothing is left out");
    let _without = leave_out(step);
    assert!(play(), "nothing goes wrong without {step:?}");
}

killers! {
    WaitAtGates: a_writer_passes_a_closed_gate;
    AwaitUsers: a_definition_passes_a_writer;
    CompareAnswers: a_transaction_goes_on_with_other_answers;
    CompareParked: a_parked_transaction_goes_on_with_other_answers;
    GiveWorkersBack: parked_transactions_have_all_workers;
    RefuseOutdated: a_parked_transaction_goes_on_with_an_altered_table;
    RunDeferred: a_child_is_committed_without_its_parent;
    KeepChecks: a_child_is_committed_without_the_parent_that_was_undone;
    DoubtErrors: an_error_comes_of_reads_that_never_were;
    RenewOutdated: a_newer_table_is_not_there;
    RenewBehind: a_table_is_there_without_its_rows;
    NullsLast: a_null_comes_first;
}
