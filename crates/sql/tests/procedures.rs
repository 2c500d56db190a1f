//! Procedures: in transactions, behind conflicts, in another process, and beyond their limits.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{all, connect, run};
use polychron_engine::limits::{Cancellation, Limits};
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, Datum, SqlDatabase};

fn code<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> &'static str {
    match run(connection, text) {
        Ok(answer) => panic!("{}: {text} answers {answer}", P::NAME),
        Err(error) => error.state().code(),
    }
}

fn opened<P: Protocol<Worker: Interactive>>() -> Arc<SqlDatabase<P>> {
    SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap())
}

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 10), (3, 10)";

const MOVE: &str = "CREATE PROCEDURE move(source int, target int, amount int, INOUT least int) LANGUAGE plpgsql AS $$
    DECLARE left_over int;
    BEGIN
        UPDATE t SET v = v - amount WHERE id = source RETURNING v INTO left_over;
        IF left_over < least THEN RAISE EXCEPTION 'too little'; END IF;
        UPDATE t SET v = v + amount WHERE id = target;
        SELECT min(v) INTO least FROM t;
    END $$";

/// The transaction of a call that conflicts is run again, alone and in a transaction that is held.
fn is_run_again<P: Protocol<Worker: Interactive>>() {
    let database = opened::<P>();
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &[TABLE, MOVE]);
    all(&mut one, &["BEGIN", "SELECT count(v) FROM t WHERE id = 2", "CALL move(1, 3, 1, 0)"]);
    all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 2"]);
    all(&mut one, &["UPDATE t SET v = v + 100 WHERE id = 2", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t ORDER BY id").unwrap(), "9\n111\n11", "{}", P::NAME);
    // What it has answered differs now.
    all(&mut one, &["BEGIN", "SELECT count(v) FROM t WHERE id = 2", "CALL move(1, 3, 1, 0)"]);
    all(&mut other, &["UPDATE t SET v = 0 WHERE id = 2"]);
    let told = run(&mut one, "UPDATE t SET v = 5 WHERE id = 2").and_then(|_| run(&mut one, "COMMIT"));
    let told = told.unwrap_err().state().code();
    assert!(["40001", "40P01"].contains(&told), "{}: {told}", P::NAME);
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(run(&mut other, "SELECT v FROM t ORDER BY id").unwrap(), "9\n0\n11", "{}", P::NAME);
}

#[test]
fn a_call_that_conflicts_is_run_again() {
    is_run_again::<Cicada>();
    is_run_again::<Maflingo>();
    is_run_again::<Hyper>();
}

/// Calls of several threads keep what each of them keeps.
fn keeps_the_sum<P: Protocol<Worker: Interactive>>() {
    let database = opened::<P>();
    all(&mut connect(&database), &[TABLE, MOVE]);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let database = &database;
            scope.spawn(move || {
                let mut connection = connect(database);
                let mut call = connection.prepare("CALL move($1, $2, $3, -1000)").unwrap();
                for round in 0..200_i64 {
                    let row = [1 + (thread + round) % 3, 1 + (round * 7) % 3, round % 5].map(Datum::Int);
                    let answer = connection.answer_prepared(&mut call, &row).unwrap();
                    assert_eq!(answer.count(), 1);
                }
            });
        }
    });
    let mut connection = connect(&database);
    assert_eq!(run(&mut connection, "SELECT sum(v) FROM t").unwrap(), "30", "{}", P::NAME);
}

#[test]
fn calls_of_several_threads_are_transactions() {
    keeps_the_sum::<Cicada>();
    keeps_the_sum::<Maflingo>();
    keeps_the_sum::<Hyper>();
    keeps_the_sum::<Locking>();
}

fn are_kept<P: Protocol<Worker: Interactive>>() {
    let protocol = P::open(P::Options::default(), Common::default()).unwrap();
    let stranger = || Connection::open(&SqlDatabase::open(protocol.clone())).unwrap();
    let database = SqlDatabase::open(protocol.clone());
    let mut one = connect(&database);
    all(&mut one, &[TABLE, MOVE]);
    assert_eq!(run(&mut stranger(), "CALL move(1, 2, 3, 0)").unwrap(), "7", "{}", P::NAME);
    all(&mut one, &["DROP PROCEDURE move(int, int, int, int)"]);
    assert_eq!(code(&mut stranger(), "CALL move(1, 2, 3, 0)"), "42883");
    // A definition is seen by its own transaction alone until that commits.
    all(&mut one, &["BEGIN", MOVE, "CALL move(1, 2, 3, 0)"]);
    let mut beside = connect(&database);
    assert_eq!(code(&mut beside, "CALL move(1, 2, 3, 0)"), "42883", "{}", P::NAME);
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(code(&mut one, "CALL move(1, 2, 3, 0)"), "42883", "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT v FROM t ORDER BY id").unwrap(), "7\n13\n10", "{}", P::NAME);
    all(&mut one, &["BEGIN", MOVE, "COMMIT"]);
    let mut call = beside.prepare("CALL move($1, $2, $3, 0)").unwrap();
    let values = [1, 2, 1].map(Datum::Int);
    assert_eq!(beside.answer_prepared(&mut call, &values).unwrap().columns()[0].name, "least");
    // What is bound is bound again behind each change of what it stands for.
    all(
        &mut one,
        &[
            "CREATE OR REPLACE PROCEDURE move(source int, target int, amount int, INOUT least int) LANGUAGE plpgsql AS $$ BEGIN least := 77; END $$",
        ],
    );
    let answer = beside.answer_prepared(&mut call, &values).unwrap();
    assert_eq!(answer.iter().next().and_then(|row| row.get::<i64>(0).ok()), Some(77), "{}", P::NAME);
}

#[test]
fn definitions_are_parts_of_transactions_and_kept() {
    are_kept::<Cicada>();
    are_kept::<Maflingo>();
    are_kept::<Hyper>();
    are_kept::<Serial>();
}

#[test]
fn what_the_tables_are_decides_at_each_call() {
    let mut connection = Connection::open(&opened::<Maflingo>()).unwrap();
    all(
        &mut connection,
        &[TABLE, "CREATE PROCEDURE set_v(n int) LANGUAGE sql AS 'UPDATE t SET v = n'", "CALL set_v(1)"],
    );
    all(&mut connection, &["ALTER TABLE t RENAME COLUMN v TO w"]);
    assert_eq!(code(&mut connection, "CALL set_v(1)"), "42703");
    all(&mut connection, &["ALTER TABLE t ADD COLUMN v int", "CALL set_v(5)"]);
    assert_eq!(run(&mut connection, "SELECT w, v FROM t WHERE id = 1").unwrap(), "1|5");
    all(&mut connection, &["DROP TABLE t"]);
    assert_eq!(code(&mut connection, "CALL set_v(1)"), "42P01");
    all(&mut connection, &["BEGIN", "CREATE TABLE t (v int)", "INSERT INTO t VALUES (0)", "CALL set_v(9)", "COMMIT"]);
    assert_eq!(run(&mut connection, "SELECT v FROM t").unwrap(), "9");
}

#[test]
fn a_read_only_transaction_calls_what_changes_nothing() {
    let mut connection = Connection::open(&opened::<Maflingo>()).unwrap();
    all(&mut connection, &[TABLE, MOVE]);
    all(&mut connection, &["CREATE PROCEDURE look(INOUT n int) LANGUAGE sql AS 'SELECT count(*)::int + n FROM t'"]);
    all(&mut connection, &["BEGIN READ ONLY"]);
    assert_eq!(run(&mut connection, "CALL look(1)").unwrap(), "4");
    let error = run(&mut connection, "CALL move(1, 2, 3, 0)").unwrap_err();
    assert_eq!((error.state().code(), error.message()), ("25006", "cannot execute UPDATE in a read-only transaction"));
}

#[test]
fn an_error_says_where_it_comes_from() {
    let mut connection = Connection::open(&opened::<Serial>()).unwrap();
    all(
        &mut connection,
        &[
            "CREATE PROCEDURE inner_one(n int) LANGUAGE plpgsql AS $$\nBEGIN\n  RAISE NOTICE 'at %', n;\n  n := 1 / n;\nEND $$",
            "CREATE PROCEDURE outer_one(n int) LANGUAGE plpgsql AS $$\n\nBEGIN\n  IF n = 0 THEN\n    CALL inner_one(n);\n  END IF;\nEND $$",
        ],
    );
    let error = run(&mut connection, "CALL outer_one(0)").unwrap_err();
    assert_eq!((error.state().code(), error.message()), ("22012", "division by zero"));
    let context = "PL/pgSQL function inner_one(integer) line 4 at assignment\nPL/pgSQL function outer_one(integer) line 5 at CALL";
    assert_eq!(error.context(), Some(context));
    assert_eq!(error.notices().iter().map(|it| it.message.as_str()).collect::<Vec<_>>(), ["at 0"]);
    all(
        &mut connection,
        &[
            "CREATE PROCEDURE told(n int) LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'w' USING DETAIL = 'd', HINT = n; END $$",
        ],
    );
    let answer = connection.answer("CALL told(5)", &[]).unwrap();
    let notice = &answer.notices()[0];
    let parts = (notice.severity, notice.state.code(), notice.detail.as_deref(), notice.hint.as_deref());
    assert_eq!(parts, ("WARNING", "01000", Some("d"), Some("5")));
}

#[test]
fn what_is_missing_is_refused_by_its_name() {
    let mut connection = Connection::open(&opened::<Serial>()).unwrap();
    all(&mut connection, &[TABLE]);
    for (body, name) in [
        ("BEGIN NULL; EXCEPTION WHEN OTHERS THEN NULL; END", "EXCEPTION"),
        ("BEGIN EXECUTE 'SELECT 1'; END", "EXECUTE"),
        ("DECLARE r record; BEGIN FOR r IN EXECUTE 'SELECT 1' LOOP END LOOP; END", "EXECUTE"),
        ("BEGIN COMMIT; END", "COMMIT"),
        ("BEGIN ROLLBACK; END", "ROLLBACK"),
        ("BEGIN SAVEPOINT a; END", "SAVEPOINT"),
        ("BEGIN CASE WHEN true THEN NULL; END CASE; END", "CASE"),
        ("BEGIN ASSERT true; END", "ASSERT"),
        ("DECLARE c CURSOR FOR SELECT 1; BEGIN END", "CURSOR"),
        ("DECLARE a ALIAS FOR $1; BEGIN END", "ALIAS"),
        ("BEGIN OPEN c; END", "OPEN"),
        ("BEGIN CREATE TABLE u (id int); END", "CREATE TABLE"),
        ("BEGIN GET STACKED DIAGNOSTICS a = MESSAGE_TEXT; END", "STACKED"),
        ("DECLARE a int[]; BEGIN a[1] := 2; END", "element of an array"),
        ("BEGIN RAISE NOTICE 'x' USING TABLE = 't'; END", "TABLE"),
        ("DECLARE r record; s record; BEGIN r := s; END", "record"),
    ] {
        let text = format!("CREATE PROCEDURE p(n int) LANGUAGE plpgsql AS $$ {body} $$");
        let error = run(&mut connection, &text).unwrap_err();
        assert!(error.state().code() == "0A000" && error.message().contains(name), "{body}: {error}");
    }
    for text in [
        "CREATE FUNCTION p() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE PROCEDURE p() LANGUAGE c AS 'x'",
        "DO $$ BEGIN END $$",
        "EXPLAIN CALL p()",
    ] {
        let code = code(&mut connection, text);
        assert!(["0A000", "42601", "42883"].contains(&code), "{text}: {code}");
    }
    all(&mut connection, &["CREATE PROCEDURE p(n int) LANGUAGE sql AS ''"]);
    assert_eq!(code(&mut connection, "CREATE PROCEDURE p(n text) LANGUAGE sql AS ''"), "0A000");
    assert_eq!(code(&mut connection, "EXPLAIN ANALYZE CALL p(1)"), "0A000");
}

/// What a record has must not depend on the way that an execution takes.
#[test]
fn a_record_whose_columns_depend_on_the_execution_is_refused() {
    let mut connection = Connection::open(&opened::<Serial>()).unwrap();
    for body in [
        "IF n = 1 THEN SELECT 1 AS a INTO r; ELSE SELECT 'x' AS b INTO r; END IF; RAISE NOTICE '%', r.b;",
        "IF n = 1 THEN SELECT 1 AS a INTO r; ELSIF n = 2 THEN SELECT 'x' AS b INTO r; END IF; RAISE NOTICE '%', r.a;",
        "SELECT 1 AS a INTO r; FOR r IN SELECT 'x' AS b LOOP EXIT WHEN n = 1; SELECT 2 AS c INTO r; END LOOP; RAISE NOTICE '%', r.b;",
        "SELECT 1 AS a INTO r; WHILE r.a < 3 LOOP SELECT 'x' AS b INTO r; END LOOP;",
        "LOOP SELECT 1 AS a INTO r; EXIT WHEN n = 1; SELECT 'x' AS b INTO r; END LOOP; RAISE NOTICE '%', r.a;",
        "SELECT 1 AS a INTO r; FOR k IN 1..2 LOOP RAISE NOTICE '%', r.a; SELECT 'x' AS b INTO r; END LOOP;",
        "SELECT 1 AS a INTO r; FOR k IN 1..2 LOOP RAISE NOTICE '%', r.a; FOR r IN SELECT 'x' AS b LOOP NULL; END LOOP; END LOOP;",
        "SELECT 1 AS a INTO r; <<x>> BEGIN EXIT x WHEN n = 1; SELECT 'x' AS b INTO r; END; RAISE NOTICE '%', r.b;",
    ] {
        let text = format!(
            "CREATE OR REPLACE PROCEDURE p(n int) LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN {body} END $$"
        );
        let ended = run(&mut connection, &text).and_then(|_| run(&mut connection, "CALL p(1)"));
        assert_eq!(ended.unwrap_err().state().code(), "0A000", "{body}");
    }
}

#[test]
fn wrong_texts_are_errors() {
    let mut connection = Connection::open(&opened::<Serial>()).unwrap();
    let long = "x".repeat(10_000);
    for body in [
        "",
        "BEGIN",
        "END",
        "BEGIN END END",
        "BEGIN IF THEN END IF; END",
        "BEGIN IF true THEN END; END",
        "BEGIN LOOP END; END",
        "BEGIN FOR IN 1..2 LOOP END LOOP; END",
        "BEGIN FOR i IN 1.. LOOP END LOOP; END",
        "BEGIN FOR i IN ..1 LOOP END LOOP; END",
        "BEGIN <<a>> NULL; END",
        "BEGIN <<a b>> LOOP END LOOP; END",
        "<<a>> BEGIN END b",
        "BEGIN RAISE; ",
        "BEGIN RAISE 'x' USING; END",
        "BEGIN n := ; END",
        "BEGIN n := 1 END",
        "BEGIN SELECT 1 INTO; END",
        "BEGIN SELECT INTO n; END;;",
        "BEGIN ; END",
        "DECLARE BEGIN",
        "DECLARE a; BEGIN END",
        "DECLARE a int := ; BEGIN END",
        "DECLARE a int, b int; BEGIN END",
        "BEGIN EXIT 1; END",
        "BEGIN GET DIAGNOSTICS n; END",
        "BEGIN SELECT ((1 INTO n; END",
        "BEGIN n := (1; END",
        "BEGIN $1 $2; END",
        "DECLARE a t.b.c%TYPE; BEGIN END",
        "DECLARE a %TYPE; BEGIN END",
        "BEGIN 'text'; END",
        "BEGIN WHILE LOOP END LOOP; END",
        "BEGIN FOR i IN 1..2 BY LOOP END LOOP; END",
        "BEGIN RETURN",
        "\u{1F600}",
        "BEGIN n\u{e4} := 1; END",
    ] {
        let text = format!("CREATE PROCEDURE p(n int) LANGUAGE plpgsql AS $body$ {body} $body$");
        let code = code(&mut connection, &text);
        assert!(["42601", "0A000", "42P01", "42703"].contains(&code), "{body}: {code}");
    }
    for text in [
        "CREATE PROCEDURE",
        "CREATE PROCEDURE p",
        "CREATE PROCEDURE p()",
        "CREATE PROCEDURE p() BEGIN ATOMIC",
        "CREATE PROCEDURE p() BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END",
        "CREATE PROCEDURE p( LANGUAGE sql AS ''",
        "CREATE PROCEDURE a.b.p() LANGUAGE sql AS ''",
        "CALL",
        "CALL p",
        "CALL p(",
        "CALL p(1, DISTINCT 2)",
        "CALL p(*)",
        "DROP PROCEDURE",
        "CREATE OR REPLACE PROCEDURE p() RETURNS int LANGUAGE sql AS ''",
        "CALL a.p()",
        "CREATE PROCEDURE p() LANGUAGE plpgsql BEGIN ATOMIC END",
        "CREATE PROCEDURE p() LANGUAGE sql IMMUTABLE AS ''",
    ] {
        run(&mut connection, text).unwrap_err();
    }
    // A name of any length is one, or an error.
    let _ = run(
        &mut connection,
        &format!("CREATE PROCEDURE {long}({long} int) LANGUAGE plpgsql AS $$ BEGIN {long} := 1; END $$"),
    );
    run(&mut connection, &format!("CALL {long}x(1)")).unwrap_err();
    let many: Vec<_> = (0..2_000).map(|at| format!("a{at} int")).collect();
    let _ = run(&mut connection, &format!("CREATE PROCEDURE wide({}) LANGUAGE sql AS ''", many.join(", ")));
    assert_eq!(run(&mut connection, "SELECT 1").unwrap(), "1");
}

#[test]
fn nesting_is_bounded() {
    let mut connection = Connection::open(&opened::<Serial>()).unwrap();
    let nested = |depth: usize| {
        let (open, close) = ("IF true THEN ".repeat(depth), "END IF; ".repeat(depth));
        format!("CREATE OR REPLACE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN {open} NULL; {close} END $$")
    };
    all(&mut connection, &[&nested(60), "CALL p()"]);
    assert_eq!(code(&mut connection, &nested(10_000)), "54001");
    let loops = "BEGIN ".repeat(50_000);
    assert_eq!(code(&mut connection, &format!("CREATE PROCEDURE q() LANGUAGE plpgsql AS $$ {loops} $$")), "54001");
    // Each call of the recursion is a statement in a block, and an expression that is as deep as it may be.
    let deep = format!("{}n{}", "abs(".repeat(90), ")".repeat(90));
    let down = format!(
        "CREATE PROCEDURE down(n int) LANGUAGE plpgsql AS $$ BEGIN IF {deep} > 0 THEN CALL down(n - 1); END IF; END $$"
    );
    all(&mut connection, &[&down, "CALL down(40)"]);
    assert_eq!(code(&mut connection, "CALL down(100000)"), "54001");
    // Those that call each other are bound once each.
    all(&mut connection, &["CREATE PROCEDURE ping(n int) LANGUAGE plpgsql AS $$ BEGIN CALL pong(n - 1); END $$"]);
    all(
        &mut connection,
        &["CREATE PROCEDURE pong(n int) LANGUAGE plpgsql AS $$ BEGIN IF n > 0 THEN CALL ping(n - 1); END IF; END $$"],
    );
    all(&mut connection, &["CALL ping(20)"]);
}

#[test]
fn an_endless_loop_ends_with_the_limits_of_its_thread() {
    let mut connection = Connection::open(&opened::<Maflingo>()).unwrap();
    let endless = [
        "CREATE PROCEDURE endless() LANGUAGE plpgsql AS $$ BEGIN LOOP END LOOP; END $$",
        "CREATE PROCEDURE endless() LANGUAGE plpgsql AS $$ BEGIN WHILE true LOOP NULL; END LOOP; END $$",
        "CREATE PROCEDURE endless() LANGUAGE plpgsql AS $$ BEGIN LOOP FOR i IN 1..0 LOOP END LOOP; END LOOP; END $$",
    ];
    for text in endless {
        all(&mut connection, &[text]);
        let token = Cancellation::default();
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                token.cancel();
            });
            Limits::token(&token).hold(|| run(&mut connection, "CALL endless()"))
        });
        assert_eq!(ended.unwrap_err().state().code(), "57014");
        let ended = Limits::timeout(Duration::from_millis(20)).hold(|| run(&mut connection, "CALL endless()"));
        assert_eq!(ended.unwrap_err().state().code(), "57014");
        all(&mut connection, &["DROP PROCEDURE endless"]);
    }
}

#[test]
fn memory_of_variables_and_notices_is_bounded() {
    let mut connection = Connection::open(&opened::<Maflingo>()).unwrap();
    for (body, is_bounded) in [
        ("FOR i IN 1..64 LOOP s := s || s; END LOOP", true),
        ("LOOP RAISE NOTICE '%', repeat('x', 1000000); END LOOP", true),
        ("FOR r IN SELECT repeat('x', 1000000) AS x FROM generate_series(1, 1000) LOOP NULL; END LOOP", true),
        // What goes is given back.
        ("FOR i IN 1..1000 LOOP s := repeat('x', 1000000); END LOOP", false),
    ] {
        let text = format!(
            "CREATE OR REPLACE PROCEDURE p() LANGUAGE plpgsql AS $$ DECLARE s text := 'x'; r record; BEGIN {body}; END $$"
        );
        all(&mut connection, &[&text]);
        match run(&mut connection, "CALL p()") {
            Ok(_) => assert!(!is_bounded, "{body}"),
            Err(error) => {
                assert!(is_bounded && ["53200", "54000"].contains(&error.state().code()), "{body}: {error}");
            }
        }
    }
}

#[test]
fn a_long_body_is_kept_or_refused() {
    let mut connection = Connection::open(&opened::<Maflingo>()).unwrap();
    all(&mut connection, &["CREATE TABLE t (v int)"]);
    let mut body = String::new();
    for number in 0..2_000 {
        write!(body, "INSERT INTO t VALUES ({number}); ").unwrap();
    }
    let text = |body: &str| format!("CREATE OR REPLACE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN {body} END $$");
    match run(&mut connection, &text(&body)) {
        Ok(_) => {
            all(&mut connection, &["CALL p()"]);
            assert_eq!(run(&mut connection, "SELECT count(*) FROM t").unwrap(), "2000");
        }
        Err(error) => assert_eq!(error.state().code(), "54000", "{error}"),
    }
    assert_eq!(code(&mut connection, &text(&"NULL; ".repeat(2_000_000))), "54000");
}
