//! Rules that SQL has for tables hold for what is written without it.
#![cfg(feature = "sql")]

use polychron::protocols::{Bohm, Hyper, Locking, Maflingo, Serial};
use polychron::sql::{self, SqlState};
use polychron::{Database, Error, EvolutionError, Operations, Procedure, Protocol, Row, Table, Transaction};

#[derive(Row, Clone, Debug, PartialEq)]
struct Item {
    #[key]
    id: i64,
    amount: i64,
}

/// The same with one more column.
mod later {
    use super::Row;

    #[derive(Row)]
    pub(super) struct Item {
        #[key]
        id: i64,
        amount: i64,
        #[column(default = 1)]
        more: i64,
    }
}

/// Sets the amount of the row, or deletes it.
struct Set(Table<Item>, Option<i64>);

impl Procedure for Set {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        match self.1 {
            Some(amount) => transaction.upsert(&self.0, &Item { id: 1, amount }),
            None => transaction.delete(&self.0, 1).map(drop),
        }
    }
}

const TABLE: &str =
    "CREATE TABLE item (id bigint PRIMARY KEY, amount bigint NOT NULL CONSTRAINT some CHECK (amount > 0));
    INSERT INTO item VALUES (1, 10)";

fn run<P: Protocol>(database: &Database<P>, text: &str) {
    database.sql().unwrap().run(text, &mut |_| {}).unwrap();
}

/// The state of the SQL error that a write has failed with.
fn state(outcome: Result<(), Error>) -> Option<SqlState> {
    match outcome {
        Err(Error::Other(inner)) => inner.downcast_ref::<sql::Error>().map(sql::Error::state),
        _ => None,
    }
}

fn set<P: Protocol>(database: &Database<P>, table: &Table<Item>, amount: i64) -> Result<(), Error> {
    database.execute(&mut Set(*table, Some(amount)))
}

fn delete<P: Protocol>(database: &Database<P>, table: &Table<Item>) -> Result<(), Error> {
    database.execute(&mut Set(*table, None))
}

fn checks_hold<P: Protocol>(database: &Database<P>) {
    run(database, TABLE);
    let table = database.table::<Item>().unwrap().unwrap();
    assert_eq!(state(set(database, &table, -1)), Some(SqlState::CHECK_VIOLATION), "{}", P::NAME);
    let found = database.sql().unwrap().query("SELECT amount FROM item", ()).unwrap().only::<(i64,)>();
    assert_eq!(found.unwrap(), (10,), "{}", P::NAME);
    // The table does not become another one, which would have no rules.
    match database.create_or_open_table::<later::Item>() {
        Err(Error::Other(inner)) => {
            assert!(matches!(inner.downcast_ref(), Some(EvolutionError::Ruled { .. })), "{}: {inner}", P::NAME);
        }
        other => panic!("{}: {other:?}", P::NAME),
    }
    set(database, &table, 5).unwrap();
    delete(database, &table).unwrap();
    run(database, "INSERT INTO item VALUES (1, 3); UPDATE item SET amount = 4");
    // Rules come and go with definitions.
    run(database, "ALTER TABLE item DROP CONSTRAINT some");
    set(database, &table, -1).unwrap();
    run(database, "UPDATE item SET amount = 1; ALTER TABLE item ADD CHECK (amount <> 7)");
    assert_eq!(state(set(database, &table, 7)), Some(SqlState::CHECK_VIOLATION), "{}", P::NAME);
    let children = "CREATE TABLE child (id bigint PRIMARY KEY, parent bigint REFERENCES item)";
    run(database, children);
    assert_eq!(state(delete(database, &table)), Some(SqlState::FEATURE_NOT_SUPPORTED), "{}", P::NAME);
    run(database, "DROP TABLE child; DELETE FROM item");
    set(database, &table, 8).unwrap();
}

#[test]
fn checks_hold_under_protocols() {
    checks_hold(&Database::in_memory().unwrap());
    checks_hold(&Database::builder().with::<Maflingo>().in_memory().unwrap());
    checks_hold(&Database::builder().with::<Hyper>().in_memory().unwrap());
    checks_hold(&Database::builder().with::<Locking>().in_memory().unwrap());
    checks_hold(&Database::builder().with::<Serial>().in_memory().unwrap());
    checks_hold(&Database::builder().with::<Bohm>().in_memory().unwrap());
}

#[test]
fn bounds_of_types_hold() {
    #[derive(Row)]
    struct Note {
        #[key]
        id: i64,
        #[column(max = 20)]
        text: String,
        price: polychron::schema::Decimal<2>,
    }
    let database = Database::in_memory().unwrap();
    run(&database, "CREATE TABLE note (id bigint PRIMARY KEY, text varchar(5) NOT NULL, price numeric(4, 2) NOT NULL)");
    let table = database.table::<Note>().unwrap().unwrap();
    let insert = |text: &str, units| {
        let row = Note { id: 1, text: text.into(), price: polychron::schema::Decimal::from_units(units) };
        database.transact(|transaction| transaction.upsert(&table, &row))
    };
    assert_eq!(state(insert("longer", 100)), Some(SqlState::STRING_DATA_RIGHT_TRUNCATION));
    assert_eq!(state(insert("short", 10_000)), Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE));
    insert("short", 9_999).unwrap();
}

/// A table that a transaction has defined and not committed has no rules for others, and one that is rolled back keeps those that it had.
#[test]
fn rules_are_those_of_committed_definitions() {
    let database = Database::in_memory().unwrap();
    run(&database, TABLE);
    let table = database.table::<Item>().unwrap().unwrap();
    run(&database, "BEGIN; ALTER TABLE item DROP CONSTRAINT some; ROLLBACK");
    assert_eq!(state(set(&database, &table, -1)), Some(SqlState::CHECK_VIOLATION));
    run(&database, "BEGIN; ALTER TABLE item DROP CONSTRAINT some; COMMIT");
    set(&database, &table, -1).unwrap();
    // Its rows move to another table of the engine.
    run(
        &database,
        "DELETE FROM item; ALTER TABLE item ADD CHECK (amount > 0); ALTER TABLE item ADD COLUMN more bigint",
    );
    run(&database, "ALTER TABLE item DROP COLUMN more");
    let table = database.table::<Item>().unwrap().unwrap();
    assert_eq!(state(set(&database, &table, -1)), Some(SqlState::CHECK_VIOLATION));
}

#[cfg(feature = "durability")]
#[test]
fn rules_hold_when_a_database_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path().join("data")).unwrap();
    let database = open();
    run(&database, TABLE);
    run(&database, "CREATE TABLE free (id bigint PRIMARY KEY, amount bigint NOT NULL)");
    database.close().unwrap();
    let database = open();
    let table = database.table::<Item>().unwrap().unwrap();
    // Nobody has asked for SQL.
    for amount in [-1, 5] {
        match set(&database, &table, amount) {
            Err(Error::Other(inner)) => {
                let told = inner.downcast_ref::<polychron::RulesNotLoaded>().expect("it says that rules are missing");
                assert_eq!(told.table, "item");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(database.sql().unwrap());
    assert_eq!(state(set(&database, &table, -1)), Some(SqlState::CHECK_VIOLATION));
    set(&database, &table, 5).unwrap();
    // The rules go with the table.
    run(&database, "DROP TABLE item; CREATE TABLE item (id bigint PRIMARY KEY, amount bigint NOT NULL)");
    database.close().unwrap();
    let database = open();
    let table = database.table::<Item>().unwrap().unwrap();
    set(&database, &table, -1).unwrap();
}
