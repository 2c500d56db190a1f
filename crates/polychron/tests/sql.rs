//! SQL and typed tables of one database, in memory and with a path.
#![cfg(feature = "sql")]

use polychron::protocols::{Bohm, Hyper, Locking, Maflingo, Serial};
use polychron::sql::{Connection, Datum, FromRow, SqlState};
use polychron::{Database, DefaultProtocol, Interactive, Operations, Protocol, Row};

#[derive(Row, FromRow, Clone, Debug, PartialEq)]
struct Account {
    #[key]
    id: u64,
    owner: String,
    balance: i64,
    note: Option<String>,
}

fn account(id: u64, owner: &str, balance: i64) -> Account {
    Account { id, owner: owner.into(), balance, note: (balance < 0).then(|| "overdrawn".into()) }
}

fn typed_tables_are_tables_of_sql<P: Protocol<Worker: Interactive>>(database: &Database<P>) {
    let accounts = database.create_table::<Account>().unwrap();
    let all = [account(1, "Ada", 5), account(2, "Grace", -7), account(u64::MAX, "Alan", 0)];
    database.transact(|transaction| transaction.insert(&accounts, &all[0])).unwrap();
    let mut connection = database.sql().unwrap();
    // It is listed although nobody has named it yet.
    let listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(connection.query(listed, ()).unwrap().all::<(String,)>().unwrap(), [("account".to_owned(),)]);
    let mut insert = connection.prepare("INSERT INTO account VALUES ($1, $2, $3, $4)").unwrap();
    for Account { id, owner, balance, note } in &all[1..] {
        assert_eq!(insert.execute(&mut connection, (id, owner, balance, note)).unwrap(), 1);
    }
    let rows = connection.query("SELECT * FROM account ORDER BY id", ()).unwrap();
    assert_eq!(rows.all::<Account>().unwrap(), all, "{}", P::NAME);
    for row in &all {
        let typed = database.transact(|transaction| transaction.get_owned(&accounts, row.id)).unwrap();
        assert_eq!(typed.as_ref(), Some(row), "{}", P::NAME);
    }
    // One refuses what the other has, and sees its changes.
    let twice = database.transact(|transaction| transaction.insert(&accounts, &all[1]));
    assert!(matches!(twice, Err(polychron::Error::Duplicate(_))));
    let twice = insert.execute(&mut connection, (1, "Eve", 0, None::<&str>)).unwrap_err();
    assert_eq!(twice.state(), SqlState::UNIQUE_VIOLATION);
    database.transact(|transaction| transaction.update(&accounts, 1, |row| row.set_balance(50))).unwrap();
    let found = connection.query("SELECT balance FROM account WHERE id = $1", (1_u64,)).unwrap();
    assert_eq!(found.only::<(i64,)>().unwrap(), (50,));
    assert_eq!(connection.execute("DELETE FROM account WHERE balance <= 0", ()).unwrap(), 2);
    assert_eq!(database.transact(|transaction| transaction.len(&accounts)).unwrap(), 1);
}

#[test]
fn typed_tables_are_tables_of_sql_on_protocols() {
    typed_tables_are_tables_of_sql(&Database::in_memory().unwrap());
    typed_tables_are_tables_of_sql(&Database::builder().with::<Maflingo>().in_memory().unwrap());
    typed_tables_are_tables_of_sql(&Database::builder().with::<Hyper>().in_memory().unwrap());
    typed_tables_are_tables_of_sql(&Database::builder().with::<Locking>().in_memory().unwrap());
    typed_tables_are_tables_of_sql(&Database::builder().with::<Serial>().in_memory().unwrap());
}

/// What SQL makes of `CREATE TABLE tally (id bigint PRIMARY KEY, n integer, words text NOT NULL)`.
#[derive(Row, Debug, PartialEq)]
struct Tally {
    #[key]
    id: i64,
    n: Option<i32>,
    words: String,
}

const TALLY: &str = "CREATE TABLE tally (id bigint PRIMARY KEY, n integer, words text NOT NULL)";

#[test]
fn tables_of_sql_are_typed_tables() {
    let database = Database::in_memory().unwrap();
    let mut connection = database.sql().unwrap();
    connection.execute(TALLY, ()).unwrap();
    connection.execute("INSERT INTO tally VALUES (1, NULL, 'by SQL')", ()).unwrap();
    let tallies = database.table::<Tally>().unwrap().expect("SQL has made it");
    database
        .transact(|transaction| transaction.insert(&tallies, &Tally { id: 2, n: Some(3), words: "typed".into() }))
        .unwrap();
    let rows = connection.query("SELECT id, n, words FROM tally ORDER BY id", ()).unwrap();
    let rows: Vec<(i64, Option<i32>, &str)> = rows.all().unwrap();
    assert_eq!(rows, [(1, None, "by SQL"), (2, Some(3), "typed")]);
    let first = database.transact(|transaction| transaction.get_owned(&tallies, 1)).unwrap();
    assert_eq!(first, Some(Tally { id: 1, n: None, words: "by SQL".into() }));
}

#[test]
fn rows_are_read_as_structs() {
    #[derive(FromRow, Debug, PartialEq)]
    struct Total<'r> {
        owner: &'r str,
        #[sql(name = "sum")]
        total: Option<i64>,
    }
    #[derive(FromRow, Debug, PartialEq)]
    struct Pair(i32, Option<String>);

    let mut connection = Database::in_memory().unwrap().sql().unwrap();
    let rows = connection.query("SELECT 7::bigint AS sum, 'Ada' AS owner", ()).unwrap();
    assert_eq!(rows.only::<Total<'_>>().unwrap(), Total { owner: "Ada", total: Some(7) });
    assert!(matches!(rows.first().unwrap().value(0), Datum::Int(7)));
    let rows = connection.query("VALUES (1, 'x'), (2, NULL)", ()).unwrap();
    assert_eq!(rows.all::<Pair>().unwrap(), [Pair(1, Some("x".into())), Pair(2, None)]);
    let missing = rows.find::<Total<'_>>().unwrap_err();
    assert_eq!(missing.state(), SqlState::UNDEFINED_COLUMN);
    assert_eq!(rows.only::<Pair>().unwrap_err().state(), SqlState::CARDINALITY_VIOLATION);
}

#[test]
fn a_connection_has_a_slot() {
    let database = Database::builder().small().workers(2).in_memory().unwrap();
    let one = database.sql().unwrap();
    let _other = database.sql().unwrap();
    let refused = database.sql().unwrap_err();
    assert_eq!(refused.state(), SqlState::TOO_MANY_CONNECTIONS);
    std::thread::spawn(move || drop(one)).join().unwrap();
    let mut third = database.sql().unwrap();
    third.execute("BEGIN", ()).unwrap();
    assert!(third.is_in_transaction());
    third.execute("COMMIT", ()).unwrap();
    assert!(!third.is_in_transaction());
}

fn filled(connection: &mut Connection) {
    let text =
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(5) DEFAULT 'none', price numeric(8, 2) CHECK (price > 0));
        CREATE INDEX by_name ON item (name); INSERT INTO item (id, price) VALUES (1, 2.50), (2, 7)";
    connection.run(text, &mut |_| {}).unwrap();
    connection.execute(TALLY, ()).unwrap();
    connection.execute("DROP TABLE tally", ()).unwrap();
    let text = "CREATE SCHEMA shop; CREATE TABLE shop.item (id serial PRIMARY KEY, name text UNIQUE);
        CREATE VIEW shop.names AS SELECT name FROM shop.item; INSERT INTO shop.item (name) VALUES ('in a schema');
        CREATE TEMP TABLE passing (a int); INSERT INTO passing VALUES (1); CREATE SCHEMA empty; DROP SCHEMA empty";
    connection.run(text, &mut |_| {}).unwrap();
}

fn is_whole(connection: &mut Connection) {
    let rows = connection.query("SELECT id, name, price::text FROM item WHERE name = 'none' ORDER BY id", ()).unwrap();
    let rows: Vec<(i32, &str, &str)> = rows.all().unwrap();
    assert_eq!(rows, [(1, "none", "2.50"), (2, "none", "7.00")]);
    let error = connection.execute("INSERT INTO item VALUES (3, 'x', -1)", ()).unwrap_err();
    assert_eq!(error.state(), SqlState::CHECK_VIOLATION);
    let error = connection.execute("INSERT INTO item VALUES (3, 'longer', 1)", ()).unwrap_err();
    assert_eq!(error.state(), SqlState::STRING_DATA_RIGHT_TRUNCATION);
    for gone in ["tally", "passing", "names", "empty.t"] {
        let error = connection.query(&format!("SELECT * FROM {gone}"), ()).unwrap_err();
        assert_eq!(error.state(), SqlState::UNDEFINED_TABLE);
    }
    let names: Vec<(String,)> = connection.query("SELECT name FROM shop.names", ()).unwrap().all().unwrap();
    assert_eq!(names, [("in a schema".to_owned(),)]);
    let error = connection.execute("INSERT INTO shop.item (name) VALUES ('in a schema')", ()).unwrap_err();
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    let error = connection.execute("CREATE TABLE empty.t (a int)", ()).unwrap_err();
    assert_eq!(error.state(), SqlState::INVALID_SCHEMA_NAME);
    connection.run("CREATE TABLE shop.other (a int); DROP TABLE shop.other", &mut |_| {}).unwrap();
}

#[test]
fn definitions_and_rows_are_there_in_memory() {
    let database = Database::in_memory().unwrap();
    filled(&mut database.sql().unwrap());
    is_whole(&mut database.sql().unwrap());
}

#[cfg(feature = "durability")]
#[test]
fn definitions_and_rows_are_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let mut connection = database.sql().unwrap();
    filled(&mut connection);
    // What a transaction has not committed is not there.
    connection.execute("BEGIN", ()).unwrap();
    connection.execute("INSERT INTO item VALUES (9, 'late', 1)", ()).unwrap();
    drop(connection);
    database.close().unwrap();
    let database = Database::<DefaultProtocol>::open(directory.path()).unwrap();
    is_whole(&mut database.sql().unwrap());
    // The connection alone keeps the database open, and its end is that of the log.
    let mut connection = database.sql().unwrap();
    drop(database);
    connection.execute("INSERT INTO item VALUES (5, 'last', 1)", ()).unwrap();
    drop(connection);
    let mut connection = Database::open(directory.path()).unwrap().sql().unwrap();
    assert_eq!(connection.query("SELECT * FROM item WHERE id = 5", ()).unwrap().len(), 1);
}

/// A protocol that plans has SQL, but for transactions that stay open; what it has answered is there when the database is opened again.
#[test]
fn a_protocol_that_plans_has_sql() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::builder().with::<Bohm>().open(directory.path().join("data")).unwrap();
    let database = open();
    let accounts = database.create_table::<Account>().unwrap();
    let mut connection = database.sql().unwrap();
    connection.execute("INSERT INTO account VALUES (1, 'Ada', 5, NULL), (2, 'Grace', 7, NULL)", ()).unwrap();
    connection.execute("CREATE TABLE payment (amount bigint)", ()).unwrap();
    let pay = "CREATE PROCEDURE pay(from_id bigint, to_id bigint, amount bigint) LANGUAGE plpgsql AS $$ BEGIN
               UPDATE account SET balance = balance - amount WHERE id = from_id;
               UPDATE account SET balance = balance + amount WHERE id = to_id;
               INSERT INTO payment VALUES (amount);
               END $$";
    connection.execute(pay, ()).unwrap();
    let mut pay = connection.prepare("CALL pay($1, $2, $3)").unwrap();
    for amount in 1..=3 {
        pay.execute(&mut connection, (1, 2, amount)).unwrap();
    }
    assert_eq!(connection.execute("BEGIN", ()).unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED);
    drop(connection);
    let grace = database.snapshot(|transaction| transaction.get_owned(&accounts, 2)).unwrap();
    assert_eq!(grace.map(|account| account.balance), Some(13));
    database.close().unwrap();
    let database = open();
    let mut connection = database.sql().unwrap();
    let sums = "SELECT (SELECT sum(balance) FROM account)::bigint, (SELECT sum(amount) FROM payment)::bigint";
    assert_eq!(connection.query(sums, ()).unwrap().only::<(i64, i64)>().unwrap(), (12, 6));
}
