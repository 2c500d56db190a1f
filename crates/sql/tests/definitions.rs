//! Definitions are kept in the database, and tables of others are there under their names.

use std::sync::Arc;

use crate::common::{all, code, connect, run};
use polychron_engine::{Common, Interactive, Protocol, Standing};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_schema::{ColumnType, TableDefinition};
use polychron_sql::{Connection, SqlDatabase};

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
    // The next table of a name is another one, which another object meets once.
    run(&mut one, "DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY)").unwrap();
    assert_eq!(code(run(&mut early, "SELECT * FROM t")), "40001");
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

/// An index is found by its name though nothing has named its table yet, as after a reopening.
#[test]
fn indexes_of_tables_that_nothing_has_named_are_found() {
    let protocol = Cicada::open(Default::default(), Common::default()).unwrap();
    let reopened = || Connection::open(&SqlDatabase::open(protocol.clone())).unwrap();
    let mut one = reopened();
    all(
        &mut one,
        &["CREATE SCHEMA s", "CREATE TABLE t (id int PRIMARY KEY, v int UNIQUE)", "CREATE TABLE s.t (v int)"],
    );
    all(&mut one, &["CREATE INDEX of_v ON t (v)", "CREATE INDEX of_s ON s.t (v)"]);
    assert_eq!(code(run(&mut reopened(), "CREATE TABLE of_v (id int)")), "42P07");
    assert_eq!(code(run(&mut reopened(), "DROP INDEX t_v_key")), "2BP01");
    assert_eq!(code(run(&mut reopened(), "DROP INDEX of_s")), "42704");
    all(&mut reopened(), &["DROP INDEX of_v, s.of_s"]);
    assert_eq!(code(run(&mut reopened(), "DROP INDEX of_v")), "42704");
    run(&mut reopened(), "CREATE TABLE of_v (id int)").unwrap();
}

/// The columns of a view are those of when it was made.
#[test]
fn views_keep_their_columns_or_refuse_new_ones() {
    let protocol = Serial::open(Default::default(), Common::default()).unwrap();
    let mut connection = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    run(&mut connection, "CREATE TABLE t (id int PRIMARY KEY, v int)").unwrap();
    run(&mut connection, "INSERT INTO t VALUES (1, 2)").unwrap();
    for query in
        ["SELECT *, 7 AS seven FROM t", "SELECT 7 AS seven, t.* FROM t", "SELECT DISTINCT ON (id) *, 7 AS seven FROM t"]
    {
        run(&mut connection, &format!("CREATE VIEW w AS {query}")).unwrap();
        let before = run(&mut connection, "SELECT * FROM w").unwrap();
        run(&mut connection, "ALTER TABLE t ADD COLUMN w int DEFAULT 3").unwrap();
        assert_eq!(run(&mut connection, "SELECT * FROM w").unwrap(), before, "{query}");
        run(&mut connection, "ALTER TABLE t DROP COLUMN w").unwrap();
        run(&mut connection, "DROP VIEW w").unwrap();
    }
    let queries =
        ["SELECT 7 AS seven FROM (SELECT * FROM t) s", "SELECT 7 AS seven FROM t NATURAL JOIN (SELECT 1 AS id) s"];
    for query in queries {
        run(&mut connection, &format!("CREATE VIEW w AS {query}")).unwrap();
        assert_eq!(code(run(&mut connection, "ALTER TABLE t ADD COLUMN w int DEFAULT 3")), "0A000", "{query}");
        assert_eq!(run(&mut connection, "SELECT seven FROM w").unwrap(), "7", "{query}");
        run(&mut connection, "DROP VIEW w").unwrap();
    }
    run(&mut connection, "CREATE VIEW w AS SELECT count(*) AS n, sum(v * 2 * (v)) AS s FROM t").unwrap();
    run(&mut connection, "ALTER TABLE t ADD COLUMN w int DEFAULT 3").unwrap();
    assert_eq!(run(&mut connection, "SELECT * FROM w").unwrap(), "1|8");
}

/// What a view reads without its name keeps the name.
#[test]
fn columns_that_views_read_unnamed_keep_their_names() {
    let protocol = Serial::open(Default::default(), Common::default()).unwrap();
    let mut connection = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    run(&mut connection, "CREATE TABLE t (id int PRIMARY KEY, v int)").unwrap();
    run(&mut connection, "INSERT INTO t VALUES (1, 2)").unwrap();
    for query in [
        "SELECT x.v FROM t x JOIN t y USING (id)",
        "SELECT s.v FROM (SELECT * FROM t) s",
        "SELECT row_to_json(t) AS v FROM t",
        "SELECT s.v FROM (SELECT id::int, v FROM t) s WHERE s.id = 1",
    ] {
        run(&mut connection, &format!("CREATE VIEW w AS {query}")).unwrap();
        let before = run(&mut connection, "SELECT v FROM w").unwrap();
        assert_eq!(code(run(&mut connection, "ALTER TABLE t RENAME COLUMN id TO other")), "0A000", "{query}");
        assert_eq!(run(&mut connection, "SELECT v FROM w").unwrap(), before, "{query}");
        run(&mut connection, "DROP VIEW w").unwrap();
    }
    run(&mut connection, "ALTER TABLE t RENAME COLUMN id TO other").unwrap();
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

/// What another object has altered is a conflict once, in a transaction and without one, and then known.
#[test]
fn tables_that_others_have_altered_are_conflicts() {
    let protocol = Maflingo::open(Default::default(), Common::default()).unwrap();
    let mut one = connect(&SqlDatabase::open(protocol.clone()));
    let mut other = connect(&SqlDatabase::open(protocol));
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 2)"]);
    let mut find = other.prepare("SELECT v FROM t WHERE id = $1").unwrap();
    let mut found = |other: &mut Connection<Maflingo>| {
        other.answer_prepared(&mut find, &[polychron_sql::Datum::Int(1)]).map(|rows| rows.len().to_string())
    };
    assert_eq!(found(&mut other).unwrap(), "1");
    all(&mut one, &["ALTER TABLE t ADD w int DEFAULT 3"]);
    assert_eq!(code(found(&mut other)), "40001");
    assert_eq!(found(&mut other).unwrap(), "1");
    all(&mut one, &["ALTER TABLE t DROP w"]);
    all(&mut other, &["BEGIN"]);
    assert_eq!(code(run(&mut other, "SELECT v FROM t")), "40001");
    assert_eq!(code(run(&mut other, "SELECT v FROM t")), "25P02");
    all(&mut other, &["ROLLBACK"]);
    assert_eq!(run(&mut other, "SELECT * FROM t").unwrap(), "1|2");
}

fn database<P: Protocol>() -> (Arc<P>, Arc<SqlDatabase<P>>) {
    let protocol = P::open(P::Options::default(), Common::default()).unwrap();
    (protocol.clone(), SqlDatabase::open(protocol))
}

fn what_is_not_committed_is_not_seen<P: Protocol<Worker: Interactive>>() {
    let (protocol, database) = database::<P>();
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)"]);
    all(&mut one, &["BEGIN", "CREATE TABLE u (a int)", "INSERT INTO u VALUES (2)", "CREATE SEQUENCE s"]);
    for text in ["SELECT * FROM u", "SELECT nextval('s')"] {
        assert_eq!(code(run(&mut other, text)), "42P01", "{}", P::NAME);
    }
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(code(run(&mut one, "SELECT * FROM u")), "42P01");
    assert!(protocol.storage().find_table("u").is_none(), "{}", P::NAME);
    // Who has looked for a name may be later than who defines it, by the clocks of some protocols: that is a conflict.
    loop {
        all(&mut one, &["BEGIN", "CREATE TABLE u (a int)", "INSERT INTO u VALUES (2)", "ALTER TABLE t RENAME TO v"]);
        assert_eq!(code(run(&mut other, "SELECT * FROM u")), "42P01");
        match run(&mut one, "COMMIT") {
            Ok(_) => break,
            Err(error) => assert!(["40001", "40P01"].contains(&error.state().code()), "{}: {error}", P::NAME),
        }
    }
    assert_eq!(run(&mut other, "SELECT u.a, v.a FROM u, v").unwrap(), "2|1", "{}", P::NAME);
    assert_eq!(code(run(&mut other, "SELECT * FROM t")), "42P01");
}

#[test]
fn others_do_not_see_what_is_not_committed() {
    what_is_not_committed_is_not_seen::<Cicada>();
    what_is_not_committed_is_not_seen::<Maflingo>();
    what_is_not_committed_is_not_seen::<Hyper>();
    what_is_not_committed_is_not_seen::<Locking>();
}

fn tables_are_closed_while_they_are_altered<P: Protocol<Worker: Interactive>>() {
    let (_, database) = database::<P>();
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["SET lock_timeout = '20ms'", "CREATE TABLE t (a int PRIMARY KEY)", "CREATE TABLE u (a int)"]);
    all(&mut other, &["SET lock_timeout = '20ms'", "BEGIN", "INSERT INTO t VALUES (1)"]);
    for text in ["ALTER TABLE t ADD COLUMN b int", "DROP TABLE t", "ALTER TABLE t RENAME TO v"] {
        assert_eq!(code(run(&mut one, text)), "55P03", "{}: {text}", P::NAME);
    }
    // Another table is another gate, and after a time that is over all are open.
    all(&mut one, &["ALTER TABLE u ADD COLUMN b int"]);
    all(&mut other, &["INSERT INTO t VALUES (2)", "COMMIT"]);
    all(&mut one, &["BEGIN", "ALTER TABLE t ADD COLUMN b int DEFAULT 7"]);
    for text in ["SELECT * FROM t", "INSERT INTO t VALUES (3)", "ALTER TABLE t DROP COLUMN a"] {
        assert_eq!(code(run(&mut other, text)), "55P03", "{}: {text}", P::NAME);
    }
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut other, "SELECT * FROM t ORDER BY a").unwrap(), "1|7\n2|7", "{}", P::NAME);
}

#[test]
fn a_table_is_closed_while_it_is_altered() {
    tables_are_closed_while_they_are_altered::<Cicada>();
    tables_are_closed_while_they_are_altered::<Maflingo>();
    tables_are_closed_while_they_are_altered::<Hyper>();
}

#[test]
fn a_connection_that_goes_leaves_nothing_closed() {
    let (protocol, database) = database::<Maflingo>();
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["CREATE TABLE t (a int)", "BEGIN", "ALTER TABLE t ADD COLUMN b int", "CREATE TABLE u (a int)"]);
    drop(one);
    assert!(protocol.storage().find_table("u").is_none());
    all(
        &mut other,
        &["SET lock_timeout = '20ms'", "INSERT INTO t VALUES (1)", "DROP TABLE t", "CREATE TABLE u (b int)"],
    );
}

#[test]
fn what_a_transaction_has_read_before_a_definition_is_read_again() {
    let (_, database) = database::<Maflingo>();
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["CREATE TABLE t (a int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)"]);
    all(&mut one, &["BEGIN", "SELECT v FROM t"]);
    all(&mut other, &["UPDATE t SET v = 2"]);
    assert_eq!(code(run(&mut one, "CREATE TABLE u (a int)")), "40001");
    all(&mut one, &["ROLLBACK", "CREATE TABLE u (a int)"]);
}

fn objects_are_found_again<P: Protocol<Worker: Interactive>>() {
    let (protocol, first) = database::<P>();
    let mut one = Connection::open(&first).unwrap();
    all(
        &mut one,
        &[
            "CREATE TABLE t (id serial, v int, w text)",
            "INSERT INTO t (v) VALUES (10), (20)",
            "ALTER TABLE t RENAME COLUMN v TO x",
            "ALTER TABLE t RENAME TO u",
            "ALTER TABLE u DROP COLUMN w",
            "CREATE TABLE t (a int)",
        ],
    );
    all(&mut one, &["INSERT INTO t VALUES (5)", "CREATE VIEW w AS SELECT x FROM u"]);
    all(
        &mut one,
        &["COMMENT ON TABLE u IS 'kept'", "COMMENT ON COLUMN u.x IS 'of x'", "COMMENT ON COLUMN w.x IS 'seen'"],
    );
    let mut other = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    let comments =
        "SELECT obj_description('u'::regclass), col_description('u'::regclass, 2), col_description('w'::regclass, 1)";
    assert_eq!(run(&mut other, comments).unwrap(), "kept|of x|seen", "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT x FROM w ORDER BY x").unwrap(), "10\n20", "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT * FROM t").unwrap(), "5");
    // Both draw from one sequence, and get no number twice.
    for _ in 0..2 {
        all(&mut other, &["INSERT INTO u (x) VALUES (0)"]);
        all(&mut one, &["INSERT INTO u (x) VALUES (0)"]);
    }
    assert_eq!(run(&mut other, "SELECT count(DISTINCT id), count(*) FROM u").unwrap(), "6|6", "{}", P::NAME);
    let rows = run(&mut other, "INSERT INTO t VALUES (6); INSERT INTO t VALUES (7); SELECT count(*) FROM t");
    assert_eq!(rows.unwrap(), "3");
}

#[test]
fn objects_are_found_again_by_another_database_object() {
    objects_are_found_again::<Serial>();
    objects_are_found_again::<Cicada>();
    objects_are_found_again::<Maflingo>();
}

#[test]
fn a_cascade_is_long_and_goes_whole() {
    let (_, database) = database::<Maflingo>();
    let mut one = connect(&database);
    all(
        &mut one,
        &[
            "CREATE TABLE p (id int PRIMARY KEY)",
            "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE)",
            "INSERT INTO p VALUES (1), (2)",
            "INSERT INTO c SELECT n, 1 FROM generate_series(1, 100000) n",
            "INSERT INTO c VALUES (0, 2)",
            "DELETE FROM p WHERE id = 1",
        ],
    );
    assert_eq!(run(&mut one, "SELECT count(*) FROM c").unwrap(), "1");
    // A chain is as long as it is, and nothing goes down in it.
    all(
        &mut one,
        &[
            "CREATE TABLE chain (id int PRIMARY KEY, next int REFERENCES chain ON DELETE CASCADE ON UPDATE CASCADE)",
            "INSERT INTO chain SELECT n, nullif(n - 1, 0) FROM generate_series(1, 500) n",
            "DELETE FROM chain WHERE id = 1",
        ],
    );
    assert_eq!(run(&mut one, "SELECT count(*) FROM chain").unwrap(), "0");
}

/// An index that a transaction makes comes with a copy of its table, so nobody writes into the table until it has ended.
fn an_index_loses_no_writes<P: Protocol<Worker: Interactive>>() {
    let (_protocol, database) = database::<P>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1), (2, 2)"]);
    all(&mut other, &["SET lock_timeout = '20ms'"]);
    all(&mut one, &["BEGIN", "CREATE INDEX ON t (n)"]);
    assert_eq!(code(run(&mut other, "UPDATE t SET n = 22 WHERE id = 2")), "55P03");
    all(&mut one, &["COMMIT"]);
    all(&mut other, &["UPDATE t SET n = 22 WHERE id = 2"]);
    assert_eq!(run(&mut one, "SELECT n FROM t WHERE n > 2").unwrap(), "22");
}

#[test]
fn indexes_lose_no_writes() {
    an_index_loses_no_writes::<Cicada>();
    an_index_loses_no_writes::<Maflingo>();
    an_index_loses_no_writes::<Hyper>();
}

/// What a return to a savepoint has undone of definitions is as it was when the transaction has committed, and when another object opens the database.
fn savepoints_undo_definitions<P: Protocol<Worker: Interactive>>() {
    for undone in [
        "CREATE INDEX ON t (n)",
        "CREATE INDEX ON t ((n + 1))",
        "ALTER TABLE t ADD COLUMN z int",
        "ALTER TABLE t RENAME TO u",
        "DROP TABLE t",
        "TRUNCATE t",
        "DROP TABLE t; CREATE TABLE t (other int)",
    ] {
        for earlier in ["SELECT 1", "ALTER TABLE t ADD COLUMN early int"] {
            let (protocol, database) = database::<P>();
            let mut one = connect(&database);
            all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)"]);
            all(
                &mut one,
                &["BEGIN", earlier, "SAVEPOINT s", undone, "ROLLBACK TO s", "INSERT INTO t VALUES (2, 2)", "COMMIT"],
            );
            for connection in [&mut one, &mut connect(&SqlDatabase::open(protocol))] {
                let rows = run(connection, "SELECT id, n FROM t ORDER BY id");
                assert_eq!(
                    rows.unwrap_or_else(|error| error.to_string()),
                    "1|1\n2|2",
                    "{}: {earlier}, {undone}",
                    P::NAME
                );
            }
        }
    }
}

#[test]
fn savepoints_undo_what_was_defined_behind_them() {
    savepoints_undo_definitions::<Cicada>();
    savepoints_undo_definitions::<Maflingo>();
    savepoints_undo_definitions::<Hyper>();
    savepoints_undo_definitions::<Locking>();
}

/// Readings of definitions that a transaction's own thread makes beside it stand in its way: none are made behind its first change.
fn define_much_in_a_transaction<P: Protocol<Worker: Interactive>>() {
    let (protocol, database) = database::<P>();
    let mut session = connect(&database);
    all(
        &mut session,
        &["CREATE TABLE a (id serial PRIMARY KEY)", "CREATE TABLE b (id serial PRIMARY KEY, a int REFERENCES a)"],
    );
    all(&mut session, &["CREATE SEQUENCE s", "CREATE SEQUENCE t"]);
    drop(session);
    // Nobody has named anything there.
    let again = SqlDatabase::open(protocol);
    let mut session = connect(&again);
    all(
        &mut session,
        &["BEGIN", "CREATE TABLE c (id int)", "SELECT * FROM pg_class", "DROP SEQUENCE s", "DROP SEQUENCE t"],
    );
    all(&mut session, &["SELECT * FROM pg_class, pg_attribute LIMIT 1", "DROP TABLE b", "DROP TABLE a", "COMMIT"]);
    all(
        &mut session,
        &["BEGIN", "DROP TABLE IF EXISTS a", "DROP TABLE c", "CREATE TABLE a (id serial)", "SELECT * FROM pg_class"],
    );
    all(&mut session, &["ALTER TABLE a ADD COLUMN b int", "SELECT * FROM pg_class", "CREATE INDEX ON a (b)", "COMMIT"]);
    all(&mut session, &["INSERT INTO a (b) VALUES (1)"]);
}

#[test]
fn many_definitions_are_one_transaction() {
    define_much_in_a_transaction::<Cicada>();
    define_much_in_a_transaction::<Maflingo>();
    define_much_in_a_transaction::<Hyper>();
    define_much_in_a_transaction::<Locking>();
}

/// Sessions define and drop tables with numbers of their own, all at once: each table has its default, and no sequence outlives its table.
fn define_beside_others<P: Protocol<Worker: Interactive>>() {
    let (_, database) = database::<P>();
    all(&mut connect(&database), &["CREATE SEQUENCE shared"]);
    let done = |session: &mut Connection<P>, statement: &str| {
        // Those that always meet others are told so in the end; nothing is done then.
        let ended = run(session, statement);
        assert!(ended.is_ok() || code(ended.clone()) == "40001", "{} {statement}: {ended:?}", P::NAME);
        ended.is_ok()
    };
    std::thread::scope(|scope| {
        for client in 0..3 {
            let database = &database;
            scope.spawn(move || {
                let mut session = connect(database);
                for round in 0..60 {
                    let table = format!("t{client}");
                    let (create, add) = match (client + round) % 5 {
                        0 => ("(id serial, x int)", ""),
                        1 => ("(id int GENERATED ALWAYS AS IDENTITY, x int)", ""),
                        2 => ("(id int NOT NULL DEFAULT nextval('shared'), x int)", ""),
                        3 => ("(x int)", "ADD COLUMN id serial"),
                        _ => ("(x int PRIMARY KEY)", "ADD COLUMN id int NOT NULL DEFAULT nextval('shared')"),
                    };
                    if !done(&mut session, &format!("CREATE TABLE {table} {create}")) {
                        continue;
                    }
                    if add.is_empty() || done(&mut session, &format!("ALTER TABLE {table} {add}")) {
                        let number = run(&mut session, &format!("INSERT INTO {table} (x) VALUES (1) RETURNING id"));
                        assert!(
                            number.as_ref().is_ok_and(|number| number.parse::<i64>().is_ok()),
                            "{create} {add}: {number:?}"
                        );
                    }
                    while !done(&mut session, &format!("DROP TABLE {table}")) {}
                    for _ in 0..3 {
                        if done(&mut session, &format!("CREATE SEQUENCE s{client}")) {
                            while !done(&mut session, &format!("DROP SEQUENCE s{client}")) {}
                        }
                    }
                }
            });
        }
    });
    let left = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'S') AND relname !~ '^(pg|sql)_'";
    assert_eq!(run(&mut connect(&database), left).unwrap(), "shared", "{}", P::NAME);
}

#[test]
fn definitions_of_many_sessions_are_whole() {
    define_beside_others::<Cicada>();
    define_beside_others::<Maflingo>();
    define_beside_others::<Hyper>();
    define_beside_others::<Locking>();
}

/// A definition that changes what is said of a table, but not the table, and an index that another session makes meanwhile: both stay.
fn index_beside_description<P: Protocol<Worker: Interactive>>() {
    let (_, database) = database::<P>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, x int)", "CREATE ROLE reader"]);
    all(&mut other, &["SET lock_timeout = 100"]);
    let descriptions =
        ["GRANT SELECT ON t TO reader", "CREATE TABLE c (t int REFERENCES t)", "CREATE VIEW v AS SELECT x FROM t"];
    for (index, description) in descriptions.into_iter().chain(["REVOKE SELECT ON t FROM reader"]).enumerate() {
        // Within a transaction the index comes with another table of the engine.
        for texts in [
            vec![format!("CREATE INDEX i{index} ON t (x)")],
            vec!["BEGIN".into(), format!("CREATE INDEX j{index} ON t (x)"), "COMMIT".into()],
        ] {
            all(&mut one, &["BEGIN", description]);
            let made = texts.iter().try_for_each(|text| run(&mut other, text).map(drop));
            let described = run(&mut one, "COMMIT");
            if made.is_err() {
                let _ = run(&mut other, "ROLLBACK");
                texts.iter().for_each(|text| all(&mut other, &[text]));
            }
            if described.is_err() {
                all(&mut one, &[description]);
            }
            all(&mut one, &["INSERT INTO t SELECT count(*), 1 FROM t", "UPDATE t SET x = x + 1"]);
            if index == 1 || index == 2 {
                all(&mut one, &[["DROP TABLE c", "DROP VIEW v"][index - 1]]);
            }
        }
    }
    let indexes = "SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1";
    assert_eq!(run(&mut one, indexes).unwrap(), "i0\ni1\ni2\ni3\nj0\nj1\nj2\nj3\nt_pkey", "{}", P::NAME);
    all(&mut one, &["DROP INDEX i0, i1, i2, i3", "DROP INDEX j0, j1, j2, j3"]);
}

#[test]
fn indexes_stay_beside_definitions_of_others() {
    index_beside_description::<Cicada>();
    index_beside_description::<Maflingo>();
    index_beside_description::<Hyper>();
    index_beside_description::<Locking>();
}

/// Where an index does not wait for open transactions, it may come between two definitions of one.
#[test]
fn an_index_comes_between_two_definitions() {
    let (_, database) = database::<Cicada>();
    let mut one = connect(&database);
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, x int)", "CREATE ROLE reader"]);
    all(&mut one, &["BEGIN", "GRANT SELECT ON t TO reader"]);
    std::thread::scope(|scope| {
        scope.spawn(|| all(&mut connect(&database), &["CREATE INDEX k ON t (x)"])).join().unwrap();
    });
    all(&mut one, &["ALTER TABLE t ADD y int", "COMMIT"]);
    let indexes = "SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1";
    assert_eq!(run(&mut one, indexes).unwrap(), "k\nt_pkey");
}

/// A transaction that has read through a view reads the same view to its end.
fn views_stay_for_their_readers<P: Protocol<Worker: Interactive>>() {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["CREATE TABLE t (a int PRIMARY KEY, b int)", "INSERT INTO t VALUES (1, 1), (2, 200)"]);
    all(&mut one, &["CREATE VIEW v AS SELECT * FROM t WHERE b < 3", "CREATE VIEW w AS SELECT * FROM v"]);
    all(&mut one, &["BEGIN", "SELECT count(*) FROM w"]);
    all(&mut other, &["SET lock_timeout = '20ms'"]);
    for text in [
        "CREATE OR REPLACE VIEW v AS SELECT * FROM t WHERE b > 100",
        "DROP VIEW w",
        "ALTER VIEW w RENAME TO x",
        "DROP VIEW v CASCADE",
    ] {
        assert_eq!(code(run(&mut other, text)), "55P03", "{}: {text}", P::NAME);
    }
    assert_eq!(run(&mut one, "SELECT a FROM w").unwrap(), "1", "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    all(&mut other, &["CREATE OR REPLACE VIEW v AS SELECT * FROM t WHERE b > 100"]);
    assert_eq!(run(&mut one, "SELECT a FROM w").unwrap(), "2", "{}", P::NAME);
    all(&mut one, &["BEGIN", "SELECT count(*) FROM w", "DROP VIEW v CASCADE", "COMMIT"]);
}

#[test]
fn a_view_stays_for_those_who_have_read_it() {
    views_stay_for_their_readers::<Cicada>();
    views_stay_for_their_readers::<Locking>();
}

/// Sessions that wait for each other's tables: one of them is told so, without any time being over.
fn deadlocks<P: Protocol<Worker: Interactive>>() {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["CREATE TABLE t (a int PRIMARY KEY)", "CREATE TABLE u (a int PRIMARY KEY)"]);
    let both_began = std::sync::Barrier::new(2);
    let end = |connection: &mut Connection<P>, own, text| {
        all(connection, &["SET lock_timeout = 0", "BEGIN", own]);
        both_began.wait();
        let ended = run(connection, text).map_err(|error| error.state().code());
        let last = if ended.is_ok() { "COMMIT" } else { "ROLLBACK" };
        run(connection, last).unwrap_or_else(|error| panic!("{}: {last}: {error}", P::NAME));
        ended.err()
    };
    let ends = std::thread::scope(|scope| {
        let first = scope.spawn(|| end(&mut one, "ALTER TABLE t ADD x int", "SELECT count(*) FROM u"));
        let second = scope.spawn(|| end(&mut other, "ALTER TABLE u ADD x int", "ALTER TABLE t ADD y int"));
        [first, second].map(|thread| thread.join().unwrap())
    });
    assert!(matches!(ends, [Some("40P01"), None] | [None, Some("40P01")]), "{}: {ends:?}", P::NAME);
}

#[test]
fn who_waits_for_each_other_is_told() {
    deadlocks::<Cicada>();
    deadlocks::<Hyper>();
}
