//! COPY as a stream: pieces of every size, the binary format of PostgreSQL, and copies that are given up.

use std::io::{self, Write as _};

use crate::common::{all as run, connect, database};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlError, SqlState};

fn copied<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    connection.copy_out(text, &mut out).unwrap_or_else(|error| panic!("{text}: {error}"));
    out
}

fn text<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, query: &str) -> String {
    String::from_utf8(copied(connection, &format!("COPY ({query}) TO STDOUT csv"))).unwrap()
}

/// Copies data that come in pieces of a size.
fn copy<P: Protocol<Worker: Interactive>>(
    connection: &mut Connection<P>,
    statement: &str,
    data: &[u8],
    size: usize,
) -> Result<u64, SqlError> {
    let mut copy = connection.copy_in(statement)?;
    for piece in data.chunks(size) {
        copy.write(piece)?;
    }
    copy.finish()
}

const ALL_TYPES: &str = "CREATE TABLE all_types (id int PRIMARY KEY, b boolean, i2 smallint, i8 bigint, f4 real, f8 double precision, n numeric, n2 numeric(10,3), t text, c char(4), \
     x bytea, d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid, j json, jb jsonb, ia int[], ta text[])";
const ROWS: &str = r#"INSERT INTO all_types VALUES (1, true, -5, 99, 1.5, '1e100', 1.50, 2.5, 'text', 'ab', '\x00ff', '2024-02-29', '12:30:00.25', '2024-02-29 12:00:00', '2024-02-29 10:00:00+00', '1 mon 1 day 02:00:00', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a" :1}', '{"b":2, "a":1}', '{1,NULL,3}', '{{"a,b","c"},{d,e}}'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, false, 0, 0, 'NaN', '-Infinity', 0, 0, '', '', '', 'infinity', '00:00', '-infinity', 'infinity', '-1 day', '00000000-0000-0000-0000-000000000000', '[]', '[]', '{}', '[2:3]={x,NULL}'), (4, NULL, NULL, NULL, NULL, NULL, 12345678901234567890.00012, -1000.001, NULL, NULL, NULL, '0001-01-01', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (5, NULL, NULL, NULL, NULL, NULL, -0.00001234, 10000, NULL, NULL, NULL, '0044-03-15 BC', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (6, NULL, NULL, NULL, NULL, NULL, 100000000, 0.5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"#;

/// What PostgreSQL 15 writes of these rows in the binary format.
fn of_postgresql() -> Vec<u8> {
    let digits: Vec<_> = include_str!("data/all_types.hex").bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_binary_format_is_that_of_postgresql() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &[ALL_TYPES, ROWS]);
    let wanted = of_postgresql();
    assert_eq!(copied(&mut connection, "COPY all_types TO STDOUT (FORMAT binary)"), wanted);
    let before = copied(&mut connection, "COPY all_types TO STDOUT");
    for size in [1, 2, 3, 7, 64, wanted.len()] {
        run(&mut connection, &["DELETE FROM all_types"]);
        let count = copy(&mut connection, "COPY all_types FROM STDIN (FORMAT binary)", &wanted, size).unwrap();
        assert_eq!((count, copied(&mut connection, "COPY all_types TO STDOUT")), (6, before.clone()), "{size}");
    }
}

#[test]
fn binary_data_that_are_cut_or_changed_are_refused() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    run(&mut connection, &[ALL_TYPES]);
    let (statement, whole) = ("COPY all_types FROM STDIN (FORMAT binary)", of_postgresql());
    for length in 0..whole.len() - 2 {
        let ended = copy(&mut connection, statement, &whole[..length], 97);
        // Whole rows without the end are taken by PostgreSQL, too.
        let count = ended.unwrap_or(0);
        run(&mut connection, &["DELETE FROM all_types"]);
        assert!(count <= 6, "{length}");
    }
    // No byte makes it panic, and a failed copy leaves nothing.
    for at in 0..whole.len() {
        for byte in [0, 0x7f, 0xff] {
            let mut data = whole.clone();
            data[at] = byte;
            match copy(&mut connection, statement, &data, data.len()) {
                Ok(_) => run(&mut connection, &["DELETE FROM all_types"]),
                Err(_) => assert_eq!(text(&mut connection, "SELECT count(*) FROM all_types"), "0\n", "{at} {byte}"),
            }
        }
    }
    let mut refused = |data: &[u8], wanted: (&str, &str)| {
        let error = copy(&mut connection, statement, data, 5).unwrap_err();
        assert_eq!((error.state().code(), error.message()), wanted, "{data:?}");
    };
    refused(b"", ("22P04", "COPY file signature not recognized"));
    refused(b"PGCOPY\n\xff\r\n", ("22P04", "COPY file signature not recognized"));
    refused(&whole[..13], ("22P04", "invalid COPY file header (missing flags)"));
    refused(&whole[..17], ("22P04", "invalid COPY file header (missing length)"));
    refused(&[&whole[..], b"x"].concat(), ("22P04", "received copy data after EOF marker"));
    refused(&[&whole[..19], &[0, 1]].concat(), ("22P04", "row field count is 1, expected 21"));
    refused(&[&whole[..19], &[0, 21, 0, 0, 0, 4, 0]].concat(), ("22P04", "unexpected EOF in COPY data"));
    refused(&[&whole[..19], &[0, 21, 0, 0, 0, 2, 0, 0]].concat(), ("22P04", "unexpected EOF in COPY data"));
}

fn pieces_of_every_size<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &["CREATE TABLE t (a int PRIMARY KEY, b text)"]);
    let cases = [
        ("COPY t FROM STDIN", "1\tü\\\n\\x41\\n\r\n2\t\\N\r\n\\.\r\nignored", "1,\"ü\nA\n\"\n2,\n"),
        ("COPY t FROM STDIN csv header", "a,b\n1,\"ü\n\"\"\"\n2,\n\\.\nignored", "1,\"ü\n\"\"\"\n2,\n"),
    ];
    for (statement, data, wanted) in cases {
        for size in 1..=data.len() {
            assert_eq!(copy(&mut connection, statement, data.as_bytes(), size).unwrap(), 2, "{statement} {size}");
            assert_eq!(text(&mut connection, "SELECT * FROM t ORDER BY a"), wanted, "{statement} {size}");
            run(&mut connection, &["DELETE FROM t"]);
        }
    }
}

#[test]
fn pieces_may_end_anywhere() {
    pieces_of_every_size::<Serial>();
    pieces_of_every_size::<Cicada>();
    pieces_of_every_size::<Maflingo>();
}

fn many_rows<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &["CREATE TABLE t (a int PRIMARY KEY, b text UNIQUE)"]);
    let mut data = String::new();
    (0..5000).for_each(|number| data += &format!("{number}\tb{number}\n"));
    assert_eq!(copy(&mut connection, "COPY t FROM STDIN", data.as_bytes(), 1000).unwrap(), 5000);
    assert_eq!(String::from_utf8(copied(&mut connection, "COPY t TO STDOUT")).unwrap(), data);
    // The line of a key that is there already, some batches later.
    let again = data.replace('b', "c").replacen("4321\t", "9999\t", 1);
    let mut again: Vec<_> = again.lines().map(|line| format!("1{line:0>9}\n")).collect();
    again[4200] = "5\tx\n".to_owned();
    let error = copy(&mut connection, "COPY t FROM STDIN", again.concat().as_bytes(), 1 << 20).unwrap_err();
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION, "{error}");
    assert_eq!(error.context(), Some("COPY t, line 4201"));
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "5000\n", "nothing of it remains");
}

#[test]
fn rows_go_through_in_batches_and_back() {
    many_rows::<Serial>();
    many_rows::<Cicada>();
    many_rows::<Maflingo>();
}

fn given_up<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &["CREATE TABLE t (a int PRIMARY KEY)"]);
    let data: String = (0..3000).map(|number| format!("{number}\n")).collect();
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(data.as_bytes()).unwrap();
    drop(copy);
    assert!(!connection.is_in_transaction());
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "0\n");
    // A held transaction can go on behind a savepoint alone.
    run(&mut connection, &["BEGIN", "INSERT INTO t VALUES (7)", "SAVEPOINT s"]);
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(b"8\n9\n").unwrap();
    copy.abandon("the reader has gone");
    let error = connection.execute("SELECT 1", &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::IN_FAILED_TRANSACTION);
    run(&mut connection, &["ROLLBACK TO s", "COMMIT"]);
    assert_eq!(text(&mut connection, "SELECT a FROM t"), "7\n");
    // The same where it is leaked.
    let others: String = (100..3000).map(|number| format!("{number}\n")).collect();
    for begin in [&[][..], &["BEGIN", "DELETE FROM t"]] {
        run(&mut connection, begin);
        let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
        copy.write(others.as_bytes()).unwrap();
        std::mem::forget(copy);
        assert_eq!(connection.execute("ROLLBACK", &[]).unwrap().tag, "ROLLBACK");
        assert_eq!(text(&mut connection, "SELECT a FROM t"), "7\n");
    }
    run(&mut connection, &["BEGIN"]);
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(others.as_bytes()).unwrap();
    std::mem::forget(copy);
    assert_eq!(connection.execute("COMMIT", &[]).unwrap().tag, "ROLLBACK", "it is a statement that has failed");
    // One that has failed takes no more, and answers what it has failed with through `io::Write`.
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    let error = copy.write_all(b"1\nx\n").unwrap_err();
    assert!(error.to_string().contains("line 2, column a"), "{error}");
    assert_eq!(io::Write::write(&mut copy, b"2\n").unwrap_err().kind(), io::ErrorKind::Other);
    assert_eq!(copy.finish().unwrap_err().state(), SqlState::NOT_IN_PREREQUISITE_STATE);
    assert_eq!(text(&mut connection, "SELECT a FROM t"), "7\n");
}

#[test]
fn nothing_remains_of_a_copy_that_is_given_up() {
    given_up::<Serial>();
    given_up::<Cicada>();
    given_up::<Maflingo>();
}

/// Takes so many bytes.
struct Narrow(usize);

impl io::Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_fails_ends_the_copy() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    for room in [0, 10, 100_000] {
        let error = connection.copy_out("COPY (SELECT generate_series(1, 100000)) TO STDOUT", &mut Narrow(room));
        assert_eq!(error.unwrap_err().state(), SqlState::IO_ERROR);
        assert!(!connection.is_in_transaction());
    }
    assert_eq!(text(&mut connection, "SELECT 1"), "1\n");
}

/// Panics when it gets something.
struct Panics;

impl io::Write for Panics {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("a writer of a test")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_panics_ends_the_copy() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &["CREATE TABLE t (a int PRIMARY KEY)"]);
    let statement = "COPY (INSERT INTO t SELECT generate_series(1, 50000) RETURNING a) TO STDOUT";
    let copy = std::panic::AssertUnwindSafe(|| connection.copy_out(statement, &mut Panics));
    std::panic::catch_unwind(copy).unwrap_err();
    // Its transaction has gone, so that the table can be altered.
    let mut other = Connection::open(&database).unwrap();
    run(&mut other, &["SET lock_timeout = 100", "ALTER TABLE t ADD COLUMN b int"]);
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "0\n");
    run(&mut connection, &["BEGIN", "INSERT INTO t VALUES (1)"]);
    let copy = std::panic::AssertUnwindSafe(|| {
        connection.copy_out("COPY (SELECT generate_series(1, 50000)) TO STDOUT", &mut Panics)
    });
    std::panic::catch_unwind(copy).unwrap_err();
    assert_eq!(connection.execute("COMMIT", &[]).unwrap().tag, "ROLLBACK");
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "0\n");
}

#[test]
fn statements_of_another_kind_are_refused() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &["CREATE TABLE t (a int PRIMARY KEY)"]);
    for (statement, state) in [
        ("COPY t FROM STDIN", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t TO STDOUT", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t FROM '/etc/passwd'", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t TO '/tmp/x'", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t TO PROGRAM 'cat'", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t FROM STDIN WHERE a > 1", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t FROM STDIN (ENCODING 'latin1')", SqlState::FEATURE_NOT_SUPPORTED),
        ("COPY t", SqlState::SYNTAX_ERROR),
        ("COPY t FROM nowhere", SqlState::SYNTAX_ERROR),
        ("COPY t FROM STDIN csv csv; SELECT 1", SqlState::SYNTAX_ERROR),
        ("COPY (SELECT 1) FROM STDIN", SqlState::SYNTAX_ERROR),
        ("COPY (CREATE TABLE u (a int)) TO STDOUT", SqlState::SYNTAX_ERROR),
        ("EXPLAIN COPY t TO STDOUT", SqlState::SYNTAX_ERROR),
    ] {
        assert_eq!(connection.execute(statement, &[]).unwrap_err().state(), state, "{statement}");
        assert_eq!(connection.answer(statement, &[]).unwrap_err().state(), state, "{statement}");
    }
    for statement in ["SELECT 1", "COPY t TO STDOUT", "COPY t FROM STDIN; SELECT 1", ""] {
        assert_eq!(connection.copy_in(statement).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{statement}");
    }
    for statement in ["SELECT 1", "COPY t FROM STDIN"] {
        let error = connection.copy_out(statement, &mut Vec::new()).unwrap_err();
        assert_eq!(error.state(), SqlState::SYNTAX_ERROR, "{statement}");
    }
}

/// A copy in a held transaction is run again behind a conflict, as other statements are.
#[test]
fn a_small_copy_is_replayed() {
    let database = database::<Maflingo>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(
        &mut one,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b int)",
            "CREATE TABLE u (a int PRIMARY KEY)",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
        ],
    );
    run(&mut one, &["BEGIN", "SELECT count(*) FROM t"]);
    assert_eq!(copy(&mut one, "COPY u FROM STDIN", b"1\n2\n", 3).unwrap(), 2);
    assert_eq!(copied(&mut one, "COPY (SELECT a FROM t ORDER BY a) TO STDOUT"), b"1\n2\n");
    // It changes what was read, but nothing of what was answered.
    run(&mut other, &["UPDATE t SET b = 5"]);
    run(&mut one, &["COMMIT"]);
    assert_eq!(text(&mut one, "SELECT a FROM u ORDER BY a"), "1\n2\n");
    run(&mut one, &["BEGIN"]);
    assert_eq!(copied(&mut one, "COPY t TO STDOUT"), b"1\t5\n2\t5\n");
    run(&mut other, &["UPDATE t SET b = 6"]);
    let ended = one.execute("INSERT INTO u VALUES (3)", &[]).and_then(|_| one.execute("COMMIT", &[]));
    assert_eq!(ended.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    // Definitions begin the transaction anew, with what was copied.
    run(&mut one, &["BEGIN"]);
    assert_eq!(copy(&mut one, "COPY u FROM STDIN", b"5\n", 1).unwrap(), 1);
    run(&mut one, &["CREATE TABLE w (a int)", "COMMIT"]);
    assert_eq!(text(&mut one, "SELECT max(a) FROM u"), "5\n");
}

#[test]
fn large_copies_are_bounded() {
    let database = database::<Maflingo>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(&mut one, &["CREATE TABLE t (a int PRIMARY KEY, b text)", "CREATE TABLE n (a int PRIMARY KEY)"]);
    run(&mut one, &["INSERT INTO n VALUES (1)"]);
    let long = "x".repeat(100_000);
    let data: String = (0..200).map(|number| format!("{number}\t{long}\n")).collect();
    assert_eq!(copy(&mut one, "COPY t FROM STDIN", data.as_bytes(), data.len()).unwrap(), 200);
    assert_eq!(copied(&mut one, "COPY t TO STDOUT").len(), data.len());
    // What has so much is not run again.
    run(&mut one, &["DELETE FROM t", "BEGIN", "SELECT * FROM n"]);
    assert_eq!(copy(&mut one, "COPY t FROM STDIN", data.as_bytes(), 1 << 20).unwrap(), 200);
    run(&mut other, &["UPDATE n SET a = 2"]);
    let error = one.execute("COMMIT", &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
    run(&mut one, &["BEGIN"]);
    assert_eq!(copy(&mut one, "COPY t FROM STDIN", data.as_bytes(), 1 << 20).unwrap(), 200);
    let error = one.execute("CREATE TABLE u (a int)", &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{error}");
    run(&mut one, &["ROLLBACK"]);
    // A line without an end is refused before it takes all memory, and so is a field of the binary format.
    let mut endless = one.copy_in("COPY t FROM STDIN csv").unwrap();
    let error = (0..1000).find_map(|_| endless.write(long.as_bytes()).err()).expect("it has no end");
    assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    drop(endless);
    let header = copied(&mut one, "COPY n TO STDOUT (FORMAT binary)")[..19].to_vec();
    let mut endless = one.copy_in("COPY n FROM STDIN (FORMAT binary)").unwrap();
    endless.write(&header).unwrap();
    let error = endless.write(&[0, 1, 0x7f, 0xff, 0xff, 0xff]).unwrap_err();
    assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    drop(endless);
    assert_eq!(text(&mut one, "SELECT count(*) FROM t"), "0\n");
}
