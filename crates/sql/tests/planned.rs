//! SQL under a protocol that plans: statements run as procedures that declare the keys they write.

use std::sync::Arc;

use crate::common::{all, run};
use polychron_engine::any::{AnyOptions, AnyProtocol};
use polychron_engine::{Common, Protocol};
use polychron_protocols::bohm::Bohm;
use polychron_protocols::serial::Serial;
use polychron_sql::{Connection, Datum, SqlDatabase, SqlError};

type Answer = Result<String, SqlError>;

fn database() -> Arc<SqlDatabase<Bohm>> {
    SqlDatabase::open(Bohm::open(Default::default(), Common::default()).unwrap())
}

/// How many procedures were run to find their keys.
fn reconnoitred<P: Protocol>(database: &SqlDatabase<P>) -> u64 {
    database.protocol().statistics().reconnaissance
}

const TABLES: [&str; 5] = [
    "CREATE TABLE account (branch int, id int, balance int NOT NULL, name text, PRIMARY KEY (branch, id))",
    "CREATE INDEX account_name ON account (name)",
    "CREATE TABLE note (words text)",
    "CREATE TABLE numbered (id serial PRIMARY KEY, words text)",
    "INSERT INTO account SELECT b, i, 100, 'a' || i FROM generate_series(1, 3) b, generate_series(1, 20) i",
];

#[test]
fn what_needs_an_open_transaction_is_refused_by_name() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    for text in [
        "BEGIN",
        "START TRANSACTION READ ONLY",
        "SAVEPOINT s",
        "RELEASE SAVEPOINT s",
        "ROLLBACK TO SAVEPOINT s",
        "DECLARE c CURSOR FOR SELECT 1",
        "INSERT INTO note VALUES ('lost'); COMMIT",
        "INSERT INTO note VALUES ('lost'); BEGIN; INSERT INTO note VALUES ('lost')",
        "INSERT INTO note VALUES ('lost'); DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    ] {
        let error = run(&mut connection, text).unwrap_err();
        assert_eq!(error.state().code(), "0A000", "{text}: {error}");
        assert!(error.message().contains("under the protocol bohm"), "{text}: {error}");
        assert!(!connection.is_in_transaction());
    }
    assert_eq!(run(&mut connection, "SELECT count(*) FROM note").unwrap(), "0");
    // Without a transaction they are remarks, as elsewhere.
    assert_eq!(connection.execute("COMMIT", &[]).unwrap().notices.len(), 1);
    assert_eq!(connection.execute("ROLLBACK", &[]).unwrap().notices.len(), 1);
}

/// A protocol that is chosen when the program runs says then that it plans.
#[test]
fn a_chosen_protocol_plans_too() {
    let protocol = AnyProtocol::open(AnyOptions::of::<Bohm>(Default::default()), Common::default()).unwrap();
    let database = SqlDatabase::open(protocol);
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    assert!(run(&mut connection, "BEGIN").unwrap_err().message().contains("bohm"));
    assert_eq!(run(&mut connection, "SELECT sum(balance) FROM account").unwrap(), "6000");
    let whole = AnyProtocol::open(AnyOptions::of::<Serial>(Default::default()), Common::default()).unwrap();
    let database = SqlDatabase::open(whole);
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    assert!(run(&mut connection, "BEGIN").unwrap_err().message().contains("serial"));
    assert_eq!(run(&mut connection, "SELECT sum(balance) FROM account").unwrap(), "6000");
}

#[test]
fn texts_are_one_transaction() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    let mut tags = Vec::new();
    let text = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2); SELECT * FROM t";
    connection.execute_each(text, &[], &mut |outcome| tags.push(outcome.tag)).unwrap();
    assert_eq!(tags, ["CREATE TABLE", "INSERT 0 2", "SELECT 2"]);
    all(
        &mut connection,
        &[
            "CREATE TABLE w (id int); ALTER TABLE w ADD COLUMN n int DEFAULT 3; INSERT INTO w VALUES (1); DROP TABLE w; CREATE TABLE w (a int)",
        ],
    );
    assert_eq!(run(&mut connection, "SELECT count(a) FROM w").unwrap(), "0");
    tags.clear();
    let text = "CREATE TABLE u (id int); SET lock_timeout = '1s'; INSERT INTO t VALUES (3); INSERT INTO t VALUES (3); SELECT 1";
    let error = connection.execute_each(text, &[], &mut |outcome| tags.push(outcome.tag)).unwrap_err();
    assert_eq!(
        (error.state().code(), &tags[..]),
        ("23505", &["CREATE TABLE", "SET", "INSERT 0 1"].map(String::from)[..])
    );
    assert_eq!(run(&mut connection, "SELECT count(*) FROM t; SHOW lock_timeout").unwrap(), "10s");
    assert_eq!(run(&mut connection, "SELECT count(*) FROM t").unwrap(), "2");
    assert_eq!(run(&mut connection, "SELECT * FROM u").unwrap_err().state().code(), "42P01");
    // What cannot be bound comes behind what has run, and undoes it.
    let error = run(&mut connection, "INSERT INTO t VALUES (9); SELECT missing FROM t").unwrap_err();
    assert_eq!(error.state().code(), "42703");
    assert_eq!(run(&mut connection, "SELECT count(*) FROM t").unwrap(), "2");
}

/// Statements whose keys follow from their parameters are planned with them, and never run to find them.
#[test]
fn known_keys_are_declared() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    all(
        &mut connection,
        &[
            "CREATE PROCEDURE pay(b int, from_id int, ids int[], amount int, OUT left_over int) LANGUAGE plpgsql AS $$
             DECLARE n int := 0; BEGIN
               IF amount <= 0 THEN RAISE EXCEPTION 'nothing'; END IF;
               FOR i IN 1..array_length(ids, 1) LOOP
                 CONTINUE WHEN ids[i] = from_id;
                 UPDATE account SET balance = balance + amount WHERE branch = b AND id = ids[i];
                 INSERT INTO note VALUES ('to ' || ids[i]);
                 n := n + amount;
               END LOOP;
               UPDATE account SET balance = balance - n WHERE branch = b AND id = from_id RETURNING balance INTO left_over;
               IF left_over < 0 THEN
                 UPDATE account SET balance = 0 WHERE branch = b AND id = from_id;
                 INSERT INTO note VALUES ('poor');
               END IF;
             END $$",
            "CREATE PROCEDURE twice(b int, id int, amount int) LANGUAGE sql AS $$
               UPDATE account SET balance = balance + amount WHERE branch = b AND account.id = $2;
               DELETE FROM account WHERE branch = b AND account.id = $2 + 1000 $$",
        ],
    );
    let before = reconnoitred(&database);
    for text in [
        "UPDATE account SET balance = balance + 1 WHERE branch = 1 AND id = 1",
        "UPDATE account SET name = 'z' WHERE id = 2 AND branch = 1 AND balance > 0",
        "DELETE FROM account WHERE branch = 1 AND id = 3",
        "INSERT INTO account VALUES (1, 3, 100, 'a3'), (2, 1000, 1, NULL)",
        "INSERT INTO account VALUES (1, 3, 100, 'a3') ON CONFLICT (branch, id) DO UPDATE SET balance = 7",
        "INSERT INTO account VALUES (1, 3, 100, 'a3') ON CONFLICT DO NOTHING",
        "INSERT INTO note VALUES ('one'), ('two')",
        "UPDATE account SET balance = balance + 1 WHERE branch = 2",
        "UPDATE account SET balance = balance + 1 WHERE branch = 1 AND id = 1; DELETE FROM account WHERE branch = 1 AND id = 5",
        "UPDATE account SET balance = 1 WHERE branch = NULL AND id = 1",
        "CALL pay(1, 1, ARRAY[2, 3, 1], 10, NULL)",
        "CALL pay(1, 1, ARRAY[2, 3, 1, 4], 1000, NULL)",
        "CALL twice(2, 2, 5)",
        "SELECT * FROM account WHERE branch = 1 AND id = 1",
        "SELECT count(*) FROM account",
    ] {
        run(&mut connection, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(reconnoitred(&database), before, "{text}");
    }
    let mut add =
        connection.prepare("UPDATE account SET balance = balance + $3 WHERE branch = $1 AND id = $2").unwrap();
    for id in 1..10 {
        connection.answer_prepared(&mut add, &[Datum::Int(3), Datum::Int(id), Datum::Int(id)]).unwrap();
    }
    assert_eq!(reconnoitred(&database), before);
    assert_eq!(run(&mut connection, "SELECT sum(balance) FROM account WHERE branch = 3").unwrap(), "2045");
    assert_eq!(run(&mut connection, "SELECT count(*) FROM note WHERE words = 'poor'").unwrap(), "1");
    // The others are found by a run.
    run(&mut connection, "UPDATE account SET balance = balance + 1 WHERE name = 'a7'").unwrap();
    assert!(reconnoitred(&database) > before);
}

/// Statements and bodies of many forms over small tables: nothing is written that was not declared, and what is left is what another protocol leaves.
#[test]
fn declarations_are_complete() {
    let planned = database();
    let other = SqlDatabase::open(Serial::open(Default::default(), Common::default()).unwrap());
    let (mut ours, mut theirs) = (Connection::open(&planned).unwrap(), Connection::open(&other).unwrap());
    let definitions = [
        "CREATE TABLE p (a int, b text, n int DEFAULT 0 UNIQUE, PRIMARY KEY (a, b))",
        "CREATE TABLE c (id int PRIMARY KEY, a int, b text, FOREIGN KEY (a, b) REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE log (what text, a int)",
        "CREATE PROCEDURE walk(x int, y int, words text, OUT seen int) LANGUAGE plpgsql AS $$
         DECLARE r record; k int := x; BEGIN
           seen := 0;
           <<outer_loop>> FOR i IN 1..x LOOP
             FOR r IN SELECT a, n FROM p ORDER BY a, b LOOP
               seen := seen + 1;
               EXIT outer_loop WHEN r.n > y;
               CONTINUE WHEN r.a = i;
               INSERT INTO log VALUES (words, r.a);
               k := r.a;
             END LOOP;
             UPDATE p SET n = n + 100 WHERE a = i AND b = words;
             IF k > y THEN k := y; ELSIF y > 2 THEN k := i; INSERT INTO log VALUES ('branch', k); END IF;
             DELETE FROM c WHERE id = k;
           END LOOP;
           WHILE k < 4 LOOP k := k + 1; INSERT INTO log VALUES ('rising', k); EXIT WHEN k = y; END LOOP;
           IF seen > 5 THEN RETURN; END IF;
           INSERT INTO p VALUES (k, words, seen + 1000) ON CONFLICT DO NOTHING;
           UPDATE p SET b = b || 'x' WHERE a = k AND b = words;
         END $$",
    ];
    for text in definitions {
        assert_eq!(
            run(&mut ours, text).map_err(|it| it.to_string()),
            run(&mut theirs, text).map_err(|it| it.to_string())
        );
    }
    let mut state = 7_u64;
    let mut next = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let (mut failed, mut ran) = (0, 0);
    for _ in 0..600 {
        let (a, n, id, word) = (next(5), next(30), next(12), ["k", "l", "kx"][next(3) as usize]);
        let text = match next(12) {
            0 => format!("INSERT INTO p VALUES ({a}, '{word}', {n})"),
            1 => {
                format!("INSERT INTO p VALUES ({a}, '{word}', {n}) ON CONFLICT (a, b) DO UPDATE SET n = excluded.n + 1")
            }
            2 => format!("INSERT INTO p VALUES ({a}, '{word}', {n}) ON CONFLICT (n) DO UPDATE SET a = p.a + 1"),
            3 => format!("UPDATE p SET a = {n} % 5 WHERE a = {a} AND b = '{word}'"),
            4 => format!("UPDATE p SET n = n + 1 WHERE a = {a}"),
            5 => format!("DELETE FROM p WHERE a = {a} AND b = '{word}'"),
            6 => format!("INSERT INTO c VALUES ({id}, {a}, '{word}')"),
            7 => format!("INSERT INTO c SELECT {id}, a, b FROM p WHERE n > {n} LIMIT 1"),
            8 => format!("UPDATE c SET a = p.a, b = p.b FROM p WHERE c.id = {id} AND p.n = {n}"),
            9 => format!(
                "INSERT INTO log SELECT b, a FROM p; DELETE FROM log WHERE a = {a}; INSERT INTO log VALUES ('{word}', {n})"
            ),
            _ => format!("CALL walk({}, {n}, '{word}', NULL)", next(4)),
        };
        let told = |answer: Answer| answer.map_err(|error| (error.state().code(), error.message().to_owned()));
        let (own, wanted) = (told(run(&mut ours, &text)), told(run(&mut theirs, &text)));
        assert_eq!(own, wanted, "{text}");
        if own.is_ok() { ran += 1 } else { failed += 1 }
    }
    assert!(failed > 30 && ran > 200, "{failed} have failed, and {ran} have not");
    for query in ["SELECT * FROM p ORDER BY 1, 2", "SELECT * FROM c ORDER BY 1", "SELECT * FROM log ORDER BY 1, 2"] {
        assert_eq!(run(&mut ours, query).unwrap(), run(&mut theirs, query).unwrap());
    }
}

/// Numbers are the same in each run, and there are as many as a statement wants.
#[test]
fn sequences_serve_planned_statements() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    assert_eq!(run(&mut connection, "INSERT INTO numbered (words) VALUES ('a'), ('b') RETURNING id").unwrap(), "1\n2");
    all(&mut connection, &["INSERT INTO numbered (words) SELECT 'x' || g FROM generate_series(1, 20000) g"]);
    assert_eq!(run(&mut connection, "SELECT count(*), max(id) FROM numbered").unwrap(), "20002|20002");
    all(&mut connection, &["INSERT INTO note SELECT g FROM generate_series(1, 200000) g"]);
    assert_eq!(run(&mut connection, "SELECT count(*) FROM note").unwrap(), "200000");
    let text = "SELECT setval('numbered_id_seq', 50000), nextval('numbered_id_seq'), nextval('numbered_id_seq')";
    assert_eq!(run(&mut connection, text).unwrap(), "50000|50001|50002");
    assert_eq!(run(&mut connection, "SELECT lastval(), currval('numbered_id_seq')").unwrap(), "50002|50002");
    all(&mut connection, &["CREATE SEQUENCE small MAXVALUE 3", "CREATE SEQUENCE round MAXVALUE 3 CYCLE"]);
    let drawn = run(&mut connection, "SELECT nextval('round') FROM generate_series(1, 7)").unwrap();
    assert_eq!(drawn.replace('\n', " "), "1 2 3 1 2 3 1");
    assert_eq!(
        run(&mut connection, "SELECT nextval('small') FROM generate_series(1, 4)").unwrap_err().state().code(),
        "2200H"
    );
    // Several connections draw from one sequence beside each other.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut connection = Connection::open(&database).unwrap();
                for _ in 0..40 {
                    all(&mut connection, &["INSERT INTO numbered (words) SELECT 'y' FROM generate_series(1, 300)"]);
                }
            });
        }
    });
    assert_eq!(run(&mut connection, "SELECT count(*) FROM numbered WHERE words = 'y'").unwrap(), "36000");
}

/// What a function of chance gives does not depend on how often the procedure runs.
#[test]
fn volatile_values_are_those_of_the_first_run() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(
        &mut connection,
        &["CREATE TABLE t (id uuid PRIMARY KEY, other uuid)", "CREATE TABLE one (id int PRIMARY KEY, a uuid)"],
    );
    let before = reconnoitred(&database);
    all(&mut connection, &["INSERT INTO t SELECT gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 5)"]);
    // Its keys are those that the first run has found.
    assert_eq!(reconnoitred(&database), before + 1);
    assert_eq!(run(&mut connection, "SELECT count(DISTINCT id) FROM t").unwrap(), "5");
}

#[test]
fn copies_and_cursors() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &["CREATE TABLE t (id int PRIMARY KEY, words text CHECK (words <> 'bad'))"]);
    let lines: String = (1..=5000).map(|id| format!("{id}\twords {id}\n")).collect();
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(lines.as_bytes()).unwrap();
    assert_eq!(copy.finish().unwrap(), 5000);
    for (lines, code, context) in [
        ("6000\ta\n6001\tbad\n6002\n", "23514", "COPY t, line 2: \"6001\tbad\""),
        ("6000\ta\n6001\tgood\n6002\n", "22P04", "COPY t, line 3: \"6002\""),
        ("6000\ta\n17\tgood\n", "23505", "COPY t, line 2"),
    ] {
        let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
        let error = copy.write(lines.as_bytes()).and_then(|()| copy.finish().map(drop)).unwrap_err();
        assert_eq!((error.state().code(), error.context()), (code, Some(context)));
    }
    drop(connection.copy_in("COPY t FROM STDIN").unwrap());
    assert_eq!(run(&mut connection, "SELECT count(*) FROM t").unwrap(), "5000");
    let mut data = Vec::new();
    let count = connection.copy_out("COPY (SELECT id FROM t WHERE id < 4 ORDER BY id) TO STDOUT", &mut data).unwrap();
    assert_eq!((count, &data[..]), (3, &b"1\n2\n3\n"[..]));
    all(&mut connection, &["DECLARE c CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id", "FETCH 2 FROM c"]);
    assert_eq!(run(&mut connection, "FETCH FROM c").unwrap(), "3");
    all(&mut connection, &["CLOSE c"]);
}

/// The limits of a client hold for its own procedure alone, whoever runs it.
#[test]
fn limits_hold_in_planned_statements() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    all(&mut connection, &["SET statement_timeout = '20ms'"]);
    let endless = "INSERT INTO note SELECT g FROM generate_series(1, 100000000000) g";
    assert_eq!(run(&mut connection, endless).unwrap_err().state().code(), "57014");
    all(&mut connection, &["SET statement_timeout = 0"]);
    assert_eq!(run(&mut connection, "SELECT count(*) FROM note").unwrap(), "0");
}

#[test]
fn explain_tells_what_is_declared() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    all(
        &mut connection,
        &["CREATE PROCEDURE p(b int, word text) LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN
           UPDATE account SET balance = 0 WHERE branch = b AND id = b + 1 RETURNING balance INTO n;
           UPDATE account SET balance = 0 WHERE branch = b AND id = n;
           DELETE FROM account WHERE name = word;
           INSERT INTO note VALUES (word);
           END $$"],
    );
    let wanted = "Call of PL/pgSQL function p(integer,text)\nDeclared: update on account (branch = 2, id = 3)\n\
                  Declared: update on account (branch = 2)\nUnknown: write on account\nDeclared: insert on note (a new row)";
    assert_eq!(run(&mut connection, "EXPLAIN CALL p(2, 'x')").unwrap(), wanted);
    assert_eq!(run(&mut connection, "SELECT sum(balance) FROM account").unwrap(), "6000", "nothing has run");
    let text = "EXPLAIN DELETE FROM account WHERE branch = 1 AND id = 2";
    let lines = run(&mut connection, text).unwrap();
    assert!(lines.ends_with("Declared: write on account (branch = 1, id = 2)"), "{lines}");
    assert!(run(&mut connection, "EXPLAIN ANALYZE SELECT 1").unwrap().ends_with("Attempts: 1"));
}

/// Rows of an answer that is prepared, where the statement runs more than once.
#[test]
fn answers_are_those_of_the_last_run() {
    let database = database();
    let mut connection = Connection::open(&database).unwrap();
    all(&mut connection, &TABLES);
    let rows = connection
        .answer("UPDATE account SET balance = $1 WHERE name = 'a7' RETURNING id, name", &[Datum::Int(3)])
        .unwrap();
    assert_eq!((rows.len(), rows.count()), (3, 3));
    let value = rows.get(0).unwrap().value(1);
    assert!(matches!(value, Datum::Text("a7")), "{value:?}");
}

/// Of definitions of one name one is made, and the others find it.
#[test]
fn a_name_is_defined_once() {
    let database = database();
    for round in 0..10 {
        let made = std::thread::scope(|scope| {
            let database = &database;
            let clients = [0, 1, 2].map(|client| {
                scope.spawn(move || {
                    let mut connection = Connection::open(database).unwrap();
                    let made = run(&mut connection, &format!("CREATE TABLE t{round} (id int PRIMARY KEY)"));
                    if let Err(error) = &made {
                        assert_eq!(error.state().code(), "42P07", "{error}");
                    }
                    all(&mut connection, &[&format!("INSERT INTO t{round} VALUES ({client})")]);
                    made.is_ok()
                })
            });
            clients.map(|client| client.join().unwrap())
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        let mut connection = Connection::open(&database).unwrap();
        assert_eq!(run(&mut connection, &format!("SELECT count(*) FROM t{round}")).unwrap(), "3");
    }
}
