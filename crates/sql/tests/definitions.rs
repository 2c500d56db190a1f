//! Definitions are kept in the database, and tables of others are there under their names.

use polychron_engine::{Common, Interactive, Protocol, Standing};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_schema::{ColumnType, TableDefinition};
use polychron_sql::{Connection, SqlDatabase, SqlError};

fn run<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Result<String, SqlError> {
    let outcome = connection.execute(text, &[])?;
    let rows = outcome.texts().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|"));
    Ok(rows.collect::<Vec<_>>().join("\n"))
}

fn code(ended: Result<String, SqlError>) -> &'static str {
    ended.unwrap_err().state().code()
}

fn definitions_are_kept<P: Protocol<Worker: Interactive>>() {
    let protocol = P::open(P::Options::default(), Common::default()).unwrap();
    let connect = || Connection::open(&SqlDatabase::open(protocol.clone())).unwrap();
    let mut one = connect();
    let mut early = connect();
    run(&mut one, "CREATE TABLE t (id int PRIMARY KEY, v varchar(3) DEFAULT 'x', c char(4) NOT NULL, u uuid)").unwrap();
    run(&mut one, "INSERT INTO t (id, c) VALUES (1, 'a')").unwrap();
    for other in [&mut early, &mut connect()] {
        assert_eq!(run(other, "SELECT id, v, c || '.', u FROM t").unwrap(), "1|x|a.|", "{}", P::NAME);
        assert_eq!(code(run(other, "INSERT INTO t VALUES (2, 'long', 'a')")), "22001");
        assert_eq!(code(run(other, "INSERT INTO t VALUES (2)")), "23502");
        assert_eq!(code(run(other, "SELECT * FROM polychron_sql_definitions")), "42P01");
    }
    run(&mut one, "CREATE TABLE checked (id int CONSTRAINT k PRIMARY KEY, v int CONSTRAINT positive CHECK (v > 0))")
        .unwrap();
    let error = run(&mut connect(), "INSERT INTO checked VALUES (1, 0)").unwrap_err();
    assert_eq!(error.message(), "new row for relation \"checked\" violates check constraint \"positive\"");
    assert_eq!(error.detail(), Some("Failing row contains (1, 0)."));
    // What another object has dropped is gone, and the next table of the name is another one.
    run(&mut one, "DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY)").unwrap();
    assert_eq!(code(run(&mut early, "SELECT * FROM t")), "42P01");
    assert_eq!(run(&mut early, "INSERT INTO t VALUES (3000000000) RETURNING *").unwrap(), "3000000000");
    assert_eq!(run(&mut connect(), "SELECT * FROM t").unwrap(), "3000000000");
}

#[test]
fn definitions_are_kept_in_the_database() {
    definitions_are_kept::<Serial>();
    definitions_are_kept::<Cicada>();
    definitions_are_kept::<Maflingo>();
    definitions_are_kept::<Hyper>();
    definitions_are_kept::<Locking>();
}

#[test]
fn tables_of_others_are_there_and_a_stale_description_is_not_theirs() {
    let protocol = Maflingo::open(Default::default(), Common::default()).unwrap();
    let mut connection = Connection::open(&SqlDatabase::open(protocol.clone())).unwrap();
    let native = TableDefinition::new("native").with_column("id", ColumnType::U32).with_key([0]);
    let id = protocol.storage().create_table(native.clone(), Standing::Permanent).unwrap();
    assert_eq!(run(&mut connection, "INSERT INTO native VALUES (4000000000) RETURNING id").unwrap(), "4000000000");
    assert_eq!(code(run(&mut connection, "CREATE TABLE native (id int PRIMARY KEY)")), "42P07");
    protocol.drop_table(id).unwrap();
    // The first one meets the table gone, and those behind it know.
    let _ = run(&mut connection, "SELECT * FROM native");
    run(&mut connection, "CREATE TABLE native (id smallint PRIMARY KEY)").unwrap();
    let id = protocol.storage().find_table("native").unwrap();
    protocol.drop_table(id).unwrap();
    protocol.storage().create_table(native, Standing::Permanent).unwrap();
    let mut other = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    assert_eq!(run(&mut other, "INSERT INTO native VALUES (4000000000) RETURNING id").unwrap(), "4000000000");
}
