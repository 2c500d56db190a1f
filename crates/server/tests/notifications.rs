//! LISTEN and NOTIFY over the wire: clients hear when they are silent, in between statements, and behind their transactions.

use std::time::Duration;

use crate::common::{Answer, Raw, bind, execute, kinds, parse, query, server, sync};

/// The channel and the text of a notification.
fn told(answer: &Answer) -> String {
    assert_eq!(answer.kind, 'A');
    let texts = String::from_utf8(answer.content[4..].to_vec()).unwrap();
    texts.trim_end_matches('\0').replace('\0', " ")
}

#[test]
fn a_silent_client_hears() {
    let server = server();
    let (mut one, mut other) = (Raw::ready(&server), Raw::ready(&server));
    assert_eq!(one.ask(&query("LISTEN a")), "C:LISTEN Z:I");
    for pause in [0, 20, 300] {
        std::thread::sleep(Duration::from_millis(pause));
        let text = format!("NOTIFY a, '{pause}'");
        assert_eq!(other.ask(&query(&text)), "C:NOTIFY Z:I");
        assert_eq!(told(&one.next().unwrap()), format!("a {pause}"));
    }
    // It goes on as before.
    assert_eq!(one.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    assert_eq!(one.ask(&query("UNLISTEN *")), "C:UNLISTEN Z:I");
    other.ask(&query("NOTIFY a"));
    assert_eq!(one.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
}

#[test]
fn what_is_told_comes_before_the_client_may_go_on() {
    let server = server();
    let mut one = Raw::ready(&server);
    assert_eq!(one.ask(&query("LISTEN a; NOTIFY a, '1'; NOTIFY a, '1'")), "C:LISTEN C:NOTIFY C:NOTIFY A Z:I");
    assert_eq!(one.ask(&query("SELECT pg_notify('a', '2')")), "T D C:SELECT 1 A Z:I");
    assert_eq!(one.ask(&query("BEGIN; NOTIFY a")), "C:BEGIN C:NOTIFY Z:T");
    assert_eq!(one.ask(&query("COMMIT")), "C:COMMIT A Z:I");
    assert_eq!(one.ask(&query("BEGIN; NOTIFY a; ROLLBACK")), "C:BEGIN C:NOTIFY C:ROLLBACK Z:I");
    let extended = |text| [parse("", text), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(one.ask(&extended("NOTIFY a, '3'")), "1 2 C:NOTIFY A Z:I");
    assert_eq!(one.ask(&extended("SELECT pg_notify('a', '4')")), "1 2 D C:SELECT 1 A Z:I");
    let several = [parse("", "NOTIFY a, '5'"), bind("", "", &[]), execute("", 0), extended("SELECT 1 / 0")].concat();
    assert_eq!(one.ask(&several), "1 2 C:NOTIFY 1 2 E:22012 Z:I");
    assert_eq!(one.ask(&query("NOTIFY b")), "C:NOTIFY Z:I");
}

#[test]
fn a_client_in_a_transaction_hears_behind_it() {
    let server = server();
    let (mut one, mut other) = (Raw::ready(&server), Raw::ready(&server));
    one.ask(&query("LISTEN a"));
    one.ask(&query("BEGIN; SELECT 1"));
    for number in 0..3 {
        other.ask(&query(&format!("NOTIFY a, '{number}'")));
        // Its transaction is parked, and it is told nothing.
        std::thread::sleep(Duration::from_millis(150));
    }
    one.send(&query("SELECT 1"));
    assert_eq!(kinds(&one.until_ready()), "T D C:SELECT 1 Z:T");
    assert_eq!(one.ask(&query("ROLLBACK")), "C:ROLLBACK A A A Z:I");
}

/// What many sessions tell at the same time comes to all who listen, once, and in one order.
#[test]
fn all_who_listen_hear_the_same() {
    const LISTENERS: usize = 20;
    const EACH: usize = 50;
    let server = server();
    let mut listeners: Vec<_> = (0..LISTENERS).map(|_| Raw::ready(&server)).collect();
    listeners.iter_mut().for_each(|raw| drop(raw.ask(&query("LISTEN a"))));
    std::thread::scope(|scope| {
        for client in 0..3 {
            let mut raw = Raw::ready(&server);
            scope.spawn(move || {
                for number in 0..EACH {
                    assert_eq!(raw.ask(&query(&format!("NOTIFY a, '{client} {number}'"))), "C:NOTIFY Z:I");
                }
            });
        }
    });
    let mut first = None;
    for raw in &mut listeners {
        let heard: Vec<_> = (0..3 * EACH).map(|_| told(&raw.next().unwrap())).collect();
        for client in 0..3 {
            let own: Vec<_> = heard.iter().filter(|it| it.starts_with(&format!("a {client} "))).cloned().collect();
            let wanted: Vec<_> = (0..EACH).map(|number| format!("a {client} {number}")).collect();
            assert_eq!(own, wanted);
        }
        assert_eq!(*first.get_or_insert_with(|| heard.clone()), heard);
        assert_eq!(raw.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    }
}

#[test]
fn locks_go_with_their_client() {
    let server = server();
    let (mut one, mut other) = (Raw::ready(&server), Raw::ready(&server));
    one.ask(&query("SELECT pg_advisory_lock(1)"));
    one.ask(&query("BEGIN; SELECT pg_advisory_xact_lock(2)"));
    // Both are kept while the transaction is parked.
    std::thread::sleep(Duration::from_millis(300));
    other.send(&query("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)"));
    let row = other.until_ready().into_iter().find(|it| it.kind == 'D').unwrap();
    assert_eq!(row.content, b"\0\x02\0\0\0\x01f\0\0\0\x01f");
    other.send(&query("SELECT pg_advisory_lock(1), pg_advisory_lock(2)"));
    drop(one);
    assert_eq!(kinds(&other.until_ready()), "T D C:SELECT 1 Z:I");
}

#[test]
fn clients_are_told_of_their_zone() {
    let server = server();
    let mut raw = Raw::ready(&server);
    assert_eq!(raw.ask(&query("SET TIME ZONE 'europe/berlin'")), "C:SET S Z:I");
    raw.send(&query("SELECT timestamptz '2024-07-01 12:00+00', timestamptz '2024-03-31 02:30'"));
    let row = raw.until_ready().into_iter().find(|it| it.kind == 'D').unwrap();
    let text = String::from_utf8_lossy(&row.content).into_owned();
    assert!(text.contains("2024-07-01 14:00:00+02") && text.contains("2024-03-31 03:30:00+02"), "{text}");
    assert_eq!(raw.ask(&query("BEGIN; SET LOCAL TimeZone = 3")), "C:BEGIN C:SET S Z:T");
    raw.send(&query("COMMIT"));
    let told = raw.until_ready().into_iter().find(|it| it.kind == 'S').unwrap();
    assert_eq!(told.content, b"TimeZone\0Europe/Berlin\0");
}
