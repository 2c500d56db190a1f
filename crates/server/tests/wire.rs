//! Messages in any order, byte by byte.

use std::net::Shutdown;

use crate::common::{Raw, bind, execute, frame, kinds, parse, query, server, server_with, startup, sync};
use polychron_base::random::Random;
use polychron_server::Credentials;

#[test]
fn starts_are_negotiated() {
    let server = server();
    let user = ("user", "postgres");
    let mut raw = Raw::open(&server);
    // TLS and GSS are refused once each, and the start follows.
    raw.send(&[0, 0, 0, 8, 4, 210, 22, 47]);
    raw.send(&[0, 0, 0, 8, 4, 210, 22, 48]);
    let mut refusals = [0; 2];
    std::io::Read::read_exact(&mut raw.stream, &mut refusals).unwrap();
    assert_eq!(&refusals, b"NN");
    raw.send(&startup(3 << 16, &[user]));
    let answers = raw.until_ready();
    assert_eq!(answers[0].kind, 'R');
    assert_eq!(answers.iter().find(|it| it.kind == 'K').unwrap().content.len(), 8);
    assert!(answers.iter().any(|it| it.kind == 'S' && it.text() == "server_version\x0015.0"));

    let mut raw = Raw::open(&server);
    raw.send(&startup(3 << 16 | 2, &[user]));
    let answers = raw.until_ready();
    assert!(answers.iter().all(|it| it.kind != 'v'));
    assert_eq!(answers.iter().find(|it| it.kind == 'K').unwrap().content.len(), 36);

    let mut raw = Raw::open(&server);
    raw.send(&startup(3 << 16 | 9, &[user, ("_pq_.strange", "1")]));
    let answers = raw.until_ready();
    assert_eq!(answers[0].kind, 'v');
    assert_eq!(answers[0].content, [&[0, 3, 0, 2, 0, 0, 0, 1][..], b"_pq_.strange\0"].concat());
    assert_eq!(answers.last().unwrap().kind, 'Z');
}

#[test]
fn starts_that_cannot_be_are_refused() {
    let server = server();
    for (bytes, code) in [
        (startup(2 << 16, &[("user", "postgres")]), "0A000"),
        (startup(3 << 16, &[]), "28000"),
        (startup(3 << 16, &[("user", "nobody")]), "28000"),
        (startup(3 << 16, &[("user", "postgres"), ("database", "other")]), "3D000"),
        (startup(3 << 16, &[("user", "postgres"), ("no_such_setting", "1")]), "42704"),
        (startup(3 << 16, &[("user", "postgres"), ("client_encoding", "LATIN1")]), "0A000"),
        (startup(3 << 16, &[("user", "postgres"), ("replication", "true")]), "0A000"),
        (vec![0, 0, 0, 3, 0, 3, 0, 0], "08P01"),
        (vec![0, 1, 0, 0, 0, 3, 0, 0], "08P01"),
        (vec![0xff; 8], "08P01"),
        (vec![0, 0, 0, 9, 0, 3, 0, 0, 7], "08P01"),
    ] {
        let mut raw = Raw::open(&server);
        raw.send(&bytes);
        let answers = raw.until_ready();
        let last = answers.last().unwrap();
        assert_eq!((last.kind, last.field('C').as_deref()), ('E', Some(code)), "{bytes:?}");
        assert_eq!(last.field('S').as_deref(), Some("FATAL"));
    }
}

#[test]
fn a_second_start_ends_the_session() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.send(&startup(3 << 16, &[("user", "postgres")]));
    assert_eq!(kinds(&raw.until_ready()), "E:08P01");
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&frame('y', b"")), "E:08P01");
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&[b'Q', 0x7f, 0xff, 0xff, 0xff]), "E:08P01");
}

#[test]
fn simple_queries() {
    let server = server();
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&query("")), "I Z:I");
    assert_eq!(raw.ask(&query(" ; -- nothing")), "I Z:I");
    assert_eq!(raw.ask(&query("CREATE TABLE t (id int PRIMARY KEY, v text)")), "C:CREATE TABLE Z:I");
    assert_eq!(
        raw.ask(&query("INSERT INTO t VALUES (1, 'a'); SELECT * FROM t; SELECT FROM t")),
        "C:INSERT 0 1 T D C:SELECT 1 T D C:SELECT 1 Z:I"
    );
    // What answers no rows tells of no columns.
    assert_eq!(raw.ask(&query("SELECT FROM t WHERE id = 7")), "T C:SELECT 0 Z:I");
    assert_eq!(raw.ask(&query("CREATE TABLE c AS SELECT 1 AS x")), "C:SELECT 1 Z:I");
    assert_eq!(raw.ask(&query("SELECT * INTO d FROM c; SELECT * FROM d")), "C:SELECT 1 T D C:SELECT 1 Z:I");
    let moved = "WITH gone AS (DELETE FROM d RETURNING x) INSERT INTO c SELECT x FROM gone";
    assert_eq!(raw.ask(&query(moved)), "C:INSERT 0 1 Z:I");
    assert_eq!(raw.ask(&query(&format!("{moved} RETURNING x"))), "T C:INSERT 0 0 Z:I");
    assert_eq!(raw.ask(&query("WITH g AS (DELETE FROM c RETURNING x) SELECT FROM g")), "T D D C:SELECT 2 Z:I");
    // The statements of a text are one transaction.
    assert_eq!(raw.ask(&query("DELETE FROM t; SELECT 1/0")), "C:DELETE 1 E:22012 Z:I");
    assert_eq!(raw.ask(&query("SELECT count(*) FROM t")), "T D C:SELECT 1 Z:I");
    assert_eq!(raw.ask(&query("BEGIN; INSERT INTO t VALUES (2, 'b')")), "C:BEGIN C:INSERT 0 1 Z:T");
    assert_eq!(raw.ask(&query("nonsense")), "E:42601 Z:E");
    assert_eq!(raw.ask(&query("SELECT 1")), "E:25P02 Z:E");
    assert_eq!(raw.ask(&query("COMMIT")), "C:ROLLBACK Z:I");
    assert_eq!(raw.ask(&query("COMMIT")), "N C:COMMIT Z:I");
    assert_eq!(raw.ask(&frame('F', b"whatever")), "E:0A000 Z:I");
    // A frame with wrong content is one error, and the next one is where its length says.
    assert_eq!(raw.ask(&frame('Q', b"no end")), "E:08P01 Z:I");
    assert_eq!(raw.ask(&frame('Q', b"\xff\0")), "E:22021 Z:I");
    assert_eq!(raw.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    raw.send(&frame('X', b""));
    assert_eq!(raw.next(), None);
}

#[test]
fn rows_are_as_they_are_shown() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.send(&query("SELECT 1, 'a', NULL, true, 1.50, '{1,2}'::int[], '\\x01'::bytea"));
    let answers = raw.until_ready();
    let row = answers.iter().find(|it| it.kind == 'D').unwrap();
    let mut wanted = vec![0, 7];
    for value in [Some("1"), Some("a"), None, Some("t"), Some("1.50"), Some("{1,2}"), Some("\\x01")] {
        wanted.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
        wanted.extend_from_slice(value.unwrap_or_default().as_bytes());
    }
    assert_eq!(row.content, wanted);
}

#[test]
fn extended_queries() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    let all = [parse("s", "INSERT INTO t VALUES ($1)"), bind("", "s", &["1"]), execute("", 0), sync()].concat();
    assert_eq!(raw.ask(&all), "1 2 C:INSERT 0 1 Z:I");
    assert_eq!(raw.ask(&[frame('D', b"Ss\0"), sync()].concat()), "t n Z:I");
    // A name is taken until it is closed.
    assert_eq!(raw.ask(&[parse("s", "SELECT 1"), sync()].concat()), "E:42P05 Z:I");
    assert_eq!(raw.ask(&[frame('C', b"Ss\0"), parse("s", "SELECT 1"), sync()].concat()), "3 1 Z:I");
    assert_eq!(raw.ask(&[frame('C', b"Sother\0"), frame('C', b"Pother\0"), sync()].concat()), "3 3 Z:I");
    // Behind an error nothing is done up to Sync.
    assert_eq!(raw.ask(&[bind("", "none", &[]), execute("", 0), query("SELECT 1"), sync()].concat()), "E:26000 Z:I");
    assert_eq!(raw.ask(&[execute("none", 0), sync()].concat()), "E:34000 Z:I");
    assert_eq!(raw.ask(&[bind("", "s", &["1"]), sync()].concat()), "E:08P01 Z:I");
    assert_eq!(raw.ask(&[parse("", "SELECT 1; SELECT 2"), sync()].concat()), "E:42601 Z:I");
    assert_eq!(raw.ask(&[frame('P', b"\0SELECT 1\0\0\x01\0\0\0\x01"), sync()].concat()), "E:42704 Z:I");
    assert_eq!(raw.ask(&[frame('B', b"\0s"), execute("", 0), sync()].concat()), "E:08P01 Z:I");
    // An empty text.
    assert_eq!(raw.ask(&[parse("", ""), bind("", "", &[]), execute("", 0), sync()].concat()), "1 2 I Z:I");
    // Columns are told where the answer has some.
    let show = [parse("", "SHOW server_version"), bind("", "", &[]), frame('D', b"P\0"), execute("", 0), sync()];
    assert_eq!(raw.ask(&show.concat()), "1 2 T D C:SHOW Z:I");
    // What is asked for with Flush comes without Sync.
    raw.send(&[bind("", "s", &[]), frame('H', b"")].concat());
    assert_eq!(raw.next().unwrap().kind, '2');
    assert_eq!(raw.ask(&sync()), "Z:I");
}

#[test]
fn portals_are_suspended() {
    let server = server();
    let mut raw = Raw::ready(&server);
    let first = [parse("", "SELECT * FROM generate_series(1, 5) g"), bind("p", "", &[]), execute("p", 2)].concat();
    let more = [execute("p", 2), execute("p", 2), execute("p", 2), sync()].concat();
    assert_eq!(raw.ask(&[first.clone(), more].concat()), "1 2 D D s D D s D C:SELECT 1 C:SELECT 0 Z:I");
    // Sync ends the transaction, and with it the portal.
    assert_eq!(raw.ask(&[execute("p", 2), sync()].concat()), "E:34000 Z:I");
    // In one that the client holds it stays.
    assert_eq!(raw.ask(&query("BEGIN")), "C:BEGIN Z:T");
    assert_eq!(raw.ask(&[first.clone(), sync()].concat()), "1 2 D D s Z:T");
    assert_eq!(raw.ask(&[execute("p", 0), sync()].concat()), "D D D C:SELECT 3 Z:T");
    assert_eq!(raw.ask(&[bind("p", "", &[]), sync()].concat()), "E:42P03 Z:E");
    assert_eq!(raw.ask(&query("ROLLBACK")), "C:ROLLBACK Z:I");
    assert_eq!(raw.ask(&[execute("p", 0), sync()].concat()), "E:34000 Z:I");
    // Behind an error it gives no more rows.
    assert_eq!(raw.ask(&[query("BEGIN"), first.clone(), sync()].concat()), "C:BEGIN Z:T");
    assert_eq!(kinds(&raw.until_ready()), "1 2 D D s Z:T");
    assert_eq!(raw.ask(&query("nonsense")), "E:42601 Z:E");
    assert_eq!(raw.ask(&[execute("p", 2), sync()].concat()), "E:25P02 Z:E");
    assert_eq!(raw.ask(&query("ROLLBACK")), "C:ROLLBACK Z:I");
    // What has no rows runs once.
    raw.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    let twice = [parse("", "INSERT INTO t VALUES (1)"), bind("", "", &[]), execute("", 0), execute("", 0), sync()];
    assert_eq!(raw.ask(&twice.concat()), "1 2 C:INSERT 0 1 E:55000 Z:I");
    assert_eq!(raw.ask(&query("SELECT * FROM t")), "T C:SELECT 0 Z:I");
}

/// A return to a savepoint undoes the portals that were bound behind it, however it is said, and no older ones.
#[test]
fn portals_go_with_their_savepoints() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.ask(&query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2)"));
    let first = |portal: &str| [parse("", "SELECT a FROM t"), bind(portal, "", &[]), execute(portal, 1)].concat();
    raw.ask(&query("BEGIN"));
    assert_eq!(raw.ask(&[first("old"), sync()].concat()), "1 2 D s Z:T");
    raw.ask(&query("SAVEPOINT s; INSERT INTO t VALUES (3)"));
    assert_eq!(raw.ask(&[first("new"), sync()].concat()), "1 2 D s Z:T");
    raw.ask(&query("ROLLBACK TO s"));
    assert_eq!(raw.ask(&[execute("old", 0), sync()].concat()), "D C:SELECT 1 Z:T");
    let back = [parse("", "ROLLBACK TO s"), bind("", "", &[]), execute("", 0), execute("newer", 0), sync()].concat();
    assert_eq!(raw.ask(&[first("newer"), back].concat()), "1 2 D s 1 2 C:ROLLBACK E:34000 Z:E");
    raw.ask(&query("ROLLBACK TO s"));
    assert_eq!(raw.ask(&[execute("new", 0), sync()].concat()), "E:34000 Z:E");
}

/// A statement without a name goes when another one is sent, even a wrong one.
#[test]
fn wrong_statements_leave_no_older_ones() {
    let server = server();
    let mut raw = Raw::ready(&server);
    for wrong in ["selct", "SELECT * FROM nowhere"] {
        assert_eq!(raw.ask(&[parse("", "SELECT 1"), sync()].concat()), "1 Z:I");
        let code = raw.ask(&[parse("", wrong), sync()].concat());
        assert!(code.starts_with("E:42"), "{code}");
        assert_eq!(raw.ask(&[bind("", "", &[]), execute("", 0), sync()].concat()), "E:26000 Z:I");
    }
}

#[test]
fn what_lies_between_two_syncs_is_one_transaction() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    let insert = |id: &str| [parse("", "INSERT INTO t VALUES ($1)"), bind("", "", &[id]), execute("", 0)].concat();
    assert_eq!(
        raw.ask(&[insert("1"), insert("2"), insert("1"), sync()].concat()),
        "1 2 C:INSERT 0 1 1 2 C:INSERT 0 1 1 2 E:23505 Z:I"
    );
    assert_eq!(raw.ask(&query("SELECT * FROM t")), "T C:SELECT 0 Z:I");
    let defined = [parse("", "CREATE TABLE u (id int)"), bind("", "", &[]), execute("", 0)].concat();
    assert_eq!(
        raw.ask(&[insert("1"), defined.clone(), insert("1"), sync()].concat()),
        "1 2 C:INSERT 0 1 1 2 C:CREATE TABLE 1 2 E:23505 Z:I"
    );
    assert_eq!(raw.ask(&query("SELECT * FROM u")), "E:42P01 Z:I");
    assert_eq!(
        raw.ask(&[insert("1"), defined, insert("2"), sync()].concat()),
        "1 2 C:INSERT 0 1 1 2 C:CREATE TABLE 1 2 C:INSERT 0 1 Z:I"
    );
    assert_eq!(raw.ask(&query("SELECT * FROM u; SELECT * FROM t")), "T C:SELECT 0 T D D C:SELECT 2 Z:I");
    // BEGIN makes the transaction the client's, and COMMIT ends it before Sync.
    let run = |text: &str| [parse("", text), bind("", "", &[]), execute("", 0)].concat();
    assert_eq!(raw.ask(&[run("BEGIN"), insert("3"), sync()].concat()), "1 2 C:BEGIN 1 2 C:INSERT 0 1 Z:T");
    assert_eq!(raw.ask(&[run("COMMIT"), insert("3"), sync()].concat()), "1 2 C:COMMIT 1 2 E:23505 Z:I");
    // A simple query ends what came in front of it.
    assert_eq!(raw.ask(&[insert("4"), query("SELECT * FROM t")].concat()), "1 2 C:INSERT 0 1 T D D D D C:SELECT 4 Z:I");
    // With it, what came in front is committed, rolled back, or has failed.
    assert!(raw.ask(&[insert("6"), query("SELECT 1 / 0")].concat()).ends_with("E:22012 Z:I"));
    assert!(raw.ask(&[insert("6"), query("ROLLBACK")].concat()).ends_with("C:ROLLBACK Z:I"));
    assert!(raw.ask(&[insert("6"), query("BEGIN; INSERT INTO t VALUES (7); ROLLBACK")].concat()).ends_with("Z:I"));
    assert_eq!(raw.ask(&query("SELECT * FROM t")), "T D D D D C:SELECT 4 Z:I");
    // A client that goes has not committed.
    raw.send(&[insert("5"), frame('H', b"")].concat());
    assert_eq!((0..3).map(|_| raw.next().unwrap().kind).collect::<String>(), "12C");
    raw.stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(Raw::ready(&server).ask(&query("SELECT * FROM t")), "T D D D D C:SELECT 4 Z:I");
}

#[test]
fn copies() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.ask(&query("CREATE TABLE t (id int PRIMARY KEY, v text)"));
    // Flush and Sync within the data are nothing.
    let data = [
        query("COPY t FROM STDIN"),
        frame('d', b"1\ton"),
        sync(),
        frame('H', b""),
        frame('d', b"e\n2\ttwo\n"),
        frame('c', b""),
    ];
    assert_eq!(raw.ask(&data.concat()), "G C:COPY 2 Z:I");
    raw.send(&query("COPY t TO STDOUT (FORMAT csv, HEADER)"));
    let answers = raw.until_ready();
    assert_eq!(kinds(&answers), "H d d d c C:COPY 2 Z:I");
    assert_eq!(answers[0].content, [0, 0, 2, 0, 0, 0, 0]);
    assert_eq!((answers[1].text().as_str(), answers[3].text().as_str()), ("id,v\n", "2,two\n"));
    raw.send(&query("COPY t TO STDOUT (FORMAT binary)"));
    let answers = raw.until_ready();
    assert_eq!(kinds(&answers), "H d d d c C:COPY 2 Z:I");
    assert_eq!(answers[3].content, [0xff, 0xff]);
    // What fails is told at once; what the client has sent besides is nothing.
    let wrong = [query("COPY t FROM STDIN"), frame('d', b"x\ty\n"), frame('d', b"3\tz\n"), frame('c', b"")].concat();
    assert_eq!(raw.ask(&wrong), "G E:22P02 Z:I");
    assert_eq!(raw.ask(&[query("COPY t FROM STDIN"), frame('f', b"enough\0")].concat()), "G E:57014 Z:I");
    assert_eq!(raw.ask(&[query("COPY t FROM STDIN"), query("SELECT 1")].concat()), "G E:08P01 Z:I");
    // Data without COPY.
    assert_eq!(raw.ask(&[frame('d', b"4\tz\n"), frame('c', b""), query("SELECT 1")].concat()), "T D C:SELECT 1 Z:I");
    // In the extended protocol.
    let copy = [
        parse("", "COPY t FROM STDIN"),
        bind("", "", &[]),
        execute("", 0),
        frame('d', b"5\tfive\n"),
        frame('c', b""),
        sync(),
    ];
    assert_eq!(raw.ask(&copy.concat()), "1 2 G C:COPY 1 Z:I");
    assert_eq!(raw.ask(&query("BEGIN")), "C:BEGIN Z:T");
    assert_eq!(raw.ask(&wrong), "G E:22P02 Z:E");
    assert_eq!(raw.ask(&query("ROLLBACK")), "C:ROLLBACK Z:I");
    assert_eq!(raw.ask(&query("SELECT * FROM t")), "T D D D C:SELECT 3 Z:I");
    // A client that goes has copied nothing.
    raw.send(&[query("COPY t FROM STDIN"), frame('d', b"6\tsix\n")].concat());
    assert_eq!(raw.next().unwrap().kind, 'G');
    raw.stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(Raw::ready(&server).ask(&query("SELECT * FROM t")), "T D D D C:SELECT 3 Z:I");
}

#[test]
fn cancels_need_the_key() {
    let server = server();
    let mut raw = Raw::open(&server);
    raw.send(&startup(3 << 16 | 2, &[("user", "postgres")]));
    let key = raw.until_ready().into_iter().find(|it| it.kind == 'K').unwrap().content;
    let cancel = |key: &[u8]| {
        let mut other = Raw::open(&server);
        let content = [&80_877_102_i32.to_be_bytes()[..], key].concat();
        other.send(&[&(content.len() as u32 + 4).to_be_bytes()[..], &content].concat());
        assert_eq!(other.next(), None, "no answer");
    };
    let mut wrong = key.clone();
    wrong[35] ^= 1;
    // Where nothing runs, nothing is cancelled.
    cancel(&key);
    assert_eq!(raw.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    raw.send(&query("SELECT count(*) FROM generate_series(1, 1000000000000)"));
    let answered = std::thread::scope(|scope| {
        let answer = scope.spawn(|| raw.until_ready());
        for key in [&wrong[..], &key[..8], &key[..4], &[]] {
            cancel(key);
        }
        assert!(!answer.is_finished());
        while !answer.is_finished() {
            cancel(&key);
        }
        answer.join().unwrap()
    });
    assert_eq!(kinds(&answered), "E:57014 Z:I");
}

#[test]
fn settings_are_told() {
    let server = server();
    let mut raw = Raw::open(&server);
    let options = ("options", "-c statement_timeout=7s");
    raw.send(&startup(3 << 16, &[("user", "postgres"), ("application_name", "a"), options]));
    assert!(raw.until_ready().iter().any(|it| it.kind == 'S' && it.text() == "application_name\0a"));
    raw.send(&query("SHOW statement_timeout"));
    assert!(raw.until_ready()[1].text().ends_with("7s"));
    raw.send(&query("SET application_name = 'b'"));
    let answers = raw.until_ready();
    assert_eq!((kinds(&answers).as_str(), answers[1].text().as_str()), ("C:SET S Z:I", "application_name\0b"));
    assert_eq!(raw.ask(&query("BEGIN; SET application_name = 'c'; ROLLBACK")), "C:BEGIN C:SET C:ROLLBACK Z:I");
    assert_eq!(
        raw.ask(&query("SET client_encoding TO 'UTF8'; SET DateStyle = ISO, MDY; SET extra_float_digits = 3")),
        "C:SET C:SET C:SET Z:I"
    );
    assert_eq!(raw.ask(&query("SET TimeZone = 'Europe/Nowhere'")), "E:22023 Z:I");
    assert_eq!(raw.ask(&query("SET server_version = '9'")), "E:55P02 Z:I");
    assert_eq!(raw.ask(&query("SET extra_float_digits = x")), "E:22023 Z:I");
}

#[test]
fn crowds_that_never_say_who_they_are_keep_nobody_out() {
    let server = server_with(Credentials::Trust, |options| options.max_unauthenticated = 8);
    let mut crowd = Vec::new();
    for _ in 0..400 {
        let mut raw = Raw::open(&server);
        // Some begin, and do not go on.
        let half = startup(3 << 16, &[("user", "postgres")]);
        let _ = std::io::Write::write_all(&mut raw.stream, &half[..crowd.len() % half.len()]);
        crowd.push(raw);
    }
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}

#[test]
fn more_clients_than_may_be_are_refused() {
    let server = server_with(Credentials::Trust, |options| {
        (options.max_connections, options.superuser_reserved_connections) = (2, 0);
    });
    let (_a, b) = (Raw::ready(&server), Raw::ready(&server));
    let mut refused = Raw::open(&server);
    refused.send(&startup(3 << 16, &[("user", "postgres")]));
    assert!(kinds(&refused.until_ready()).ends_with("E:53300"));
    drop(b);
    loop {
        let mut raw = Raw::open(&server);
        raw.send(&startup(3 << 16, &[("user", "postgres")]));
        if kinds(&raw.until_ready()).ends_with("Z:I") {
            break;
        }
    }
}

#[test]
fn a_server_that_ends_lets_transactions_end() {
    let server = server();
    let (mut idle, mut open, mut stuck) = (Raw::ready(&server), Raw::ready(&server), Raw::ready(&server));
    open.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    assert_eq!(open.ask(&query("BEGIN; INSERT INTO t VALUES (1)")), "C:BEGIN C:INSERT 0 1 Z:T");
    assert_eq!(stuck.ask(&query("BEGIN")), "C:BEGIN Z:T");
    server.stopper().stop();
    let waits = std::thread::spawn(move || server.wait().unwrap());
    assert_eq!(kinds(&idle.until_ready()), "E:57P01");
    assert_eq!(open.ask(&query("COMMIT")), "C:COMMIT Z:I");
    assert_eq!(kinds(&open.until_ready()), "E:57P01");
    drop(stuck);
    let database = waits.join().unwrap();
    let mut connection = database.sql().unwrap();
    assert_eq!(connection.execute("SELECT * FROM t", ()).unwrap(), 1);
}

#[test]
fn a_server_that_ends_waits_for_a_time() {
    let server = server_with(Credentials::Trust, |options| options.shutdown_grace = std::time::Duration::ZERO);
    let mut open = Raw::ready(&server);
    assert_eq!(open.ask(&query("BEGIN")), "C:BEGIN Z:T");
    server.stopper().stop();
    assert!(server.wait().is_some());
    assert_eq!(open.next().map(|it| it.kind), None);
}

#[test]
fn whatever_a_client_sends_others_go_on() {
    let server = server();
    let mut beside = Raw::ready(&server);
    let mut random = Random::from_seed(3);
    let known = [
        query("SELECT 1"),
        parse("a", "SELECT $1::int"),
        bind("a", "a", &["1"]),
        execute("a", 1),
        frame('D', b"Sa\0"),
        frame('D', b"Pa\0"),
        frame('C', b"Pa\0"),
        frame('C', b"Sa\0"),
        frame('H', b""),
        sync(),
        query("BEGIN"),
        query("ROLLBACK"),
        query("LISTEN a; NOTIFY a, 'x'"),
        query("UNLISTEN *"),
        query("SELECT pg_advisory_xact_lock(1), pg_try_advisory_lock(2)"),
        query("SET TimeZone = 'Asia/Tokyo'"),
        parse("n", "SELECT pg_notify('a', $1), pg_advisory_lock(1), now()"),
        bind("n", "n", &["1"]),
        execute("n", 0),
        query("COPY (SELECT 1) TO STDOUT"),
        frame('d', b"1\n"),
        frame('c', b""),
        frame('f', b"no\0"),
    ];
    for _ in 0..60 {
        let mut raw = Raw::ready(&server);
        let mut bytes = Vec::new();
        for _ in 0..random.below(30) {
            let mut next = known[random.below(known.len() as u64) as usize].clone();
            if random.below(3) == 0 {
                let at = random.below(next.len() as u64) as usize;
                next[at] = random.next_u64() as u8;
            }
            bytes.extend_from_slice(&next);
        }
        // It may be sent away in the middle.
        let _ = std::io::Write::write_all(&mut raw.stream, &bytes);
        let _ = raw.stream.shutdown(Shutdown::Write);
        while let Some(answer) = raw.next() {
            assert!(answer.kind != 'E' || answer.field('C').as_deref() != Some("XX000"), "{answer:?}");
        }
        assert_eq!(beside.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    }
    // Nobody has left a lock behind, nor a place in the line of those who tell.
    assert_eq!(beside.ask(&query("SELECT pg_advisory_lock(1), pg_advisory_lock(2)")), "T D C:SELECT 1 Z:I");
    assert_eq!(beside.ask(&query("LISTEN a; NOTIFY a")), "C:LISTEN C:NOTIFY A Z:I");
}

/// A silent client in a transaction is told why its session ends, whether transactions are parked before that or not.
#[test]
fn idle_transactions_end_their_sessions() {
    let server = server();
    for parks_after in ["0", "20ms", "10min"] {
        let mut raw = Raw::ready(&server);
        let text = format!("SET park_after = '{parks_after}'; SET idle_in_transaction_session_timeout = '60ms'");
        assert_eq!(raw.ask(&query(&text)), "C:SET C:SET Z:I");
        assert_eq!(raw.ask(&query("BEGIN; SELECT 1")), "C:BEGIN T D C:SELECT 1 Z:T");
        assert_eq!(kinds(&raw.until_ready()), "E:25P03", "{parks_after}");
        assert!(raw.next().is_none());
    }
}

#[test]
fn whatever_a_termination_contains_it_ends_the_session() {
    let server = server();
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&frame('X', b"more")), "");
    assert!(raw.next().is_none());
}
