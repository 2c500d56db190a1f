//! Frames that no client should send: of every length, cut off anywhere, with counts that do not fit, and in the wrong order.

use std::io::Write as _;
use std::net::Shutdown;

use crate::common::{Raw, bind, execute, frame, kinds, parse, query, server, startup, sync};

/// A frame whose length says something else than there is.
fn with_length(kind: u8, length: i32, content: &[u8]) -> Vec<u8> {
    [&[kind][..], &length.to_be_bytes(), content].concat()
}

/// All that is answered up to the end of the stream.
fn until_end(raw: &mut Raw) -> String {
    let mut answers = Vec::new();
    while let Some(answer) = raw.next() {
        assert!(answer.kind != 'E' || answer.field('C').as_deref() != Some("XX000"), "{answer:?}");
        answers.push(answer);
    }
    kinds(&answers)
}

const KINDS: &[u8] = b"QPBEDCHSXFdcfp";

#[test]
fn lengths_that_cannot_be_end_the_session() {
    let server = server();
    let mut beside = Raw::ready(&server);
    for kind in KINDS {
        for length in [0, 1, 2, 3, -1, i32::MIN, i32::MAX, (64 << 20) + 5] {
            let mut raw = Raw::ready(&server);
            raw.send(&with_length(*kind, length, b""));
            assert_eq!(until_end(&mut raw), "E:08P01", "{} {length}", *kind as char);
        }
    }
    // Before a client has shown who it is, it says little.
    for length in [i32::MIN, -1, 0, 1, 3, 4, 7, 10_004, 10_005, i32::MAX] {
        let mut raw = Raw::open(&server);
        raw.send(&length.to_be_bytes());
        raw.stream.shutdown(Shutdown::Write).unwrap();
        let said = until_end(&mut raw);
        assert!(said == "E:08P01" || (said.is_empty() && (4..=10_004).contains(&length)), "{length}: {said}");
    }
    assert_eq!(beside.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}

#[test]
fn what_is_cut_off_anywhere_does_nothing() {
    let server = server();
    let mut beside = Raw::ready(&server);
    assert_eq!(beside.ask(&query("CREATE TABLE t (id int PRIMARY KEY)")), "C:CREATE TABLE Z:I");
    // A Sync of which a part has come, or that has a wrong length, commits nothing either.
    let whole = [
        query("INSERT INTO t VALUES (1)"),
        [parse("s", "INSERT INTO t VALUES ($1)"), bind("p", "s", &["2"]), execute("p", 0), sync()].concat(),
        [query("COPY t FROM STDIN"), frame('d', b"3\n"), frame('c', b"")].concat(),
        frame('D', b"Ss\0"),
        frame('C', b"Ps\0"),
        frame('F', b"\0\0\0\x01\0\0\0\0\0\0"),
    ];
    let mut wrong = [parse("s", "INSERT INTO t VALUES (4)"), bind("p", "s", &[]), execute("p", 0)].concat();
    wrong.extend_from_slice(&with_length(b'S', 3, b""));
    let mut raw = Raw::ready(&server);
    raw.send(&wrong);
    assert_eq!(until_end(&mut raw), "1 2 C:INSERT 0 1 E:08P01");
    for bytes in &whole {
        for end in 0..bytes.len() {
            let mut raw = Raw::ready(&server);
            raw.send(&bytes[..end]);
            raw.stream.shutdown(Shutdown::Write).unwrap();
            until_end(&mut raw);
        }
    }
    // An INSERT of a text has come whole or not at all, and one without Sync or the end of its COPY is undone.
    assert_eq!(beside.ask(&query("SELECT * FROM t")), "T C:SELECT 0 Z:I");
    let start = startup(3 << 16, &[("user", "postgres"), ("database", "polychron")]);
    for end in 0..start.len() {
        let mut raw = Raw::open(&server);
        raw.send(&start[..end]);
        raw.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(until_end(&mut raw), "", "{end}");
    }
}

/// A Bind of these formats, values and formats of answers, whatever their counts say.
fn counted(formats: (i16, &[i16]), values: (i16, &[Option<&[u8]>]), answers: (i16, &[i16])) -> Vec<u8> {
    let mut content = b"\0s\0".to_vec();
    let mut put = |count: i16, codes: &[i16]| {
        content.extend_from_slice(&count.to_be_bytes());
        codes.iter().for_each(|code| content.extend_from_slice(&code.to_be_bytes()));
    };
    put(formats.0, formats.1);
    put(values.0, &[]);
    for value in values.1 {
        let length = value.map_or(-1, |value| value.len() as i32);
        content.extend_from_slice(&length.to_be_bytes());
        content.extend_from_slice(value.unwrap_or_default());
    }
    content.extend_from_slice(&answers.0.to_be_bytes());
    answers.1.iter().for_each(|code| content.extend_from_slice(&code.to_be_bytes()));
    frame('B', &content)
}

#[test]
fn counts_that_do_not_fit_are_refused() {
    let server = server();
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&[parse("s", "SELECT $1::text, $2::text"), sync()].concat()), "1 Z:I");
    let two = [Some(&b"a"[..]), Some(&b"b"[..])];
    let two = (2, &two[..]);
    let mut ask = |bind: Vec<u8>| raw.ask(&[bind, execute("", 0), sync()].concat());
    let right = "2 D C:SELECT 1 Z:I";
    for formats in [(0, &[][..]), (1, &[0][..]), (1, &[1][..]), (2, &[0, 1][..])] {
        assert_eq!(ask(counted(formats, two, (0, &[]))), right);
        assert_eq!(ask(counted((0, &[]), two, formats)), right);
    }
    let wrong = "E:08P01 Z:I";
    for formats in [(3, &[0, 0, 0][..]), (-1, &[][..]), (i16::MAX, &[][..]), (2, &[0][..])] {
        assert_eq!(ask(counted(formats, two, (0, &[]))), wrong, "{formats:?}");
        assert_eq!(ask(counted((0, &[]), two, formats)), wrong, "{formats:?}");
    }
    for code in [2, -1, 256] {
        assert_eq!(ask(counted((1, &[code]), two, (0, &[]))), "E:22023 Z:I", "{code}");
        assert_eq!(ask(counted((0, &[]), two, (1, &[code]))), "E:22023 Z:I", "{code}");
    }
    for values in [(1, &[Some(&b"a"[..])][..]), (3, &[None, None, None][..]), (0, &[][..])] {
        assert_eq!(ask(counted((0, &[]), values, (0, &[]))), wrong, "{values:?}");
    }
    for count in [-1, 3, i16::MAX] {
        assert_eq!(ask(counted((0, &[]), (count, two.1), (0, &[]))), wrong, "{count}");
    }
    // A value that is longer than its frame.
    for length in [2, i32::MAX, -2, i32::MIN] {
        let content = [&b"\0s\0\0\0\0\x02"[..], &length.to_be_bytes(), b"a", &[0; 2]].concat();
        assert_eq!(ask(frame('B', &content)), wrong, "{length}");
    }
    // More types than there is room for, and one that is none.
    for content in [&b"\0SELECT 1\0\x7f\xff"[..], b"\0SELECT 1\0\xff\xff", b"\0SELECT 1\0\0\x02\0\0\0\x17"] {
        assert_eq!(raw.ask(&[frame('P', content), sync()].concat()), wrong);
    }
    let unknown = frame('P', b"\0SELECT $1\0\0\x01\x7f\xff\xff\xff");
    assert_eq!(raw.ask(&[unknown, sync()].concat()), "E:42704 Z:I");
    assert_eq!(raw.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}

#[test]
fn messages_in_the_wrong_order_are_refused() {
    let server = server();
    let mut raw = Raw::ready(&server);
    raw.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    // Data without a COPY is skipped, as in PostgreSQL.
    assert_eq!(
        raw.ask(&[frame('d', b"1\n"), frame('c', b""), frame('f', b"no\0"), query("SELECT 1")].concat()),
        "T D C:SELECT 1 Z:I"
    );
    // A portal that is open is not bound again, unless it has no name.
    let select = parse("s", "SELECT g FROM generate_series(1, 3) g");
    assert_eq!(raw.ask(&[select, query("BEGIN")].concat()), "1 C:BEGIN Z:T");
    let again = [bind("p", "s", &[]), bind("", "s", &[]), bind("", "s", &[]), execute("", 0), sync()].concat();
    assert_eq!(raw.ask(&again), "2 2 2 D D D C:SELECT 3 Z:T");
    assert_eq!(raw.ask(&[bind("p", "s", &[]), sync()].concat()), "E:42P03 Z:E");
    assert_eq!(raw.ask(&query("ROLLBACK")), "C:ROLLBACK Z:I");
    // Sync within a COPY is no message of it.
    let copy = [query("COPY t FROM STDIN"), sync(), frame('d', b"1\n"), frame('H', b""), frame('c', b"")].concat();
    assert_eq!(raw.ask(&copy), "G C:COPY 1 Z:I");
    // Another message ends it with an error, and takes nothing.
    assert_eq!(raw.ask(&[query("COPY t FROM STDIN"), frame('d', b"2\n"), query("SELECT 1")].concat()), "G E:08P01 Z:I");
    assert_eq!(raw.ask(&query("SELECT * FROM t")), "T D C:SELECT 1 Z:I");
    // A password nobody asked for.
    let mut raw = Raw::ready(&server);
    raw.send(&frame('p', b"secret\0"));
    assert_eq!(until_end(&mut raw), "E:08P01");
    // A second start-up.
    let mut raw = Raw::ready(&server);
    raw.send(&startup(3 << 16, &[("user", "postgres")]));
    assert_eq!(until_end(&mut raw), "E:08P01");
}

/// A value of many megabytes goes in and comes back; a frame of more than may be ends the session before memory is taken for it.
#[test]
fn large_values_go_through() {
    let server = server();
    let mut raw = Raw::ready(&server);
    let large = "x".repeat(20 << 20);
    raw.send(&[parse("", "SELECT $1::text"), bind("", "", &[&large]), execute("", 0), sync()].concat());
    let answers = raw.until_ready();
    assert_eq!(kinds(&answers), "1 2 D C:SELECT 1 Z:I");
    assert_eq!(answers[2].content.len(), 2 + 4 + large.len());
    drop((answers, large));
    // A gigabyte is announced, and a megabyte of it comes.
    raw.send(&with_length(b'B', 1 << 30, b""));
    let _ = raw.stream.write_all(&vec![0; 1 << 20]);
    let said = until_end(&mut raw);
    assert!(said == "E:08P01" || said.is_empty(), "{said}");
    assert_eq!(Raw::ready(&server).ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}
