//! Clients that read and pause beside others that write: each of their transactions comes to its end.
#![cfg(target_os = "linux")]

use std::thread;
use std::time::Duration;

use crate::common::{Raw, query, server};
use polychron_sync::atomic::{AtomicBool, Ordering};

const ACCOUNTS: i64 = 20;

/// Statements of a transaction that pauses for longer than transactions are left in peace.
const STATEMENTS: usize = 20;

#[test]
fn readers_that_pause_come_to_their_ends() {
    let server = server();
    let mut owner = Raw::ready(&server);
    owner.ask(&query("CREATE TABLE account (id int PRIMARY KEY, balance int)"));
    let fill = format!("INSERT INTO account SELECT g, 100 FROM generate_series(1, {ACCOUNTS}) g");
    assert!(owner.ask(&query(&fill)).ends_with("Z:I"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (mut raw, is_over) = (Raw::ready(&server), &is_over);
            scope.spawn(move || {
                for step in 0_i64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (from, to) = ((step * 7 + writer) % ACCOUNTS + 1, (step * 3 + 5) % ACCOUNTS + 1);
                    let text = format!(
                        "UPDATE account SET balance = balance - 1 WHERE id = {from}; UPDATE account SET balance = balance + 1 WHERE id = {to}; INSERT INTO account VALUES ({}, 0)",
                        1000 + step * 2 + writer
                    );
                    let answer = raw.ask(&query(&text));
                    assert!(answer.ends_with("C:INSERT 0 1 Z:I"), "{answer}");
                }
            });
        }
        let begins =
            ["BEGIN READ ONLY", "BEGIN TRANSACTION READ ONLY DEFERRABLE", "BEGIN ISOLATION LEVEL REPEATABLE READ"];
        let readers = begins.map(|begin| {
            let mut raw = Raw::ready(&server);
            scope.spawn(move || {
                raw.ask(&query("SET park_after = '10ms'"));
                assert_eq!(raw.ask(&query(begin)), "C:BEGIN Z:T");
                for _ in 0..STATEMENTS {
                    // What was transferred is there once.
                    let sum = format!("SELECT 1 FROM account HAVING sum(balance) = {}", ACCOUNTS * 100);
                    assert_eq!(raw.ask(&query(&sum)), "T D C:SELECT 1 Z:T", "{begin}");
                    thread::sleep(Duration::from_millis(40));
                }
                assert_eq!(raw.ask(&query("COMMIT")), "C:COMMIT Z:I", "{begin}");
            })
        });
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
}

/// A definition does not wait for a client that has read and says nothing.
#[test]
fn definitions_do_not_wait_for_clients_that_pause() {
    let server = server();
    let (mut owner, mut reader) = (Raw::ready(&server), Raw::ready(&server));
    owner.ask(&query("CREATE TABLE t (id int PRIMARY KEY); SET lock_timeout = 0"));
    assert!(reader.ask(&query("BEGIN READ ONLY; SELECT FROM t")).ends_with("C:SELECT 0 Z:T"));
    assert_eq!(owner.ask(&query("DROP TABLE t")), "C:DROP TABLE Z:I");
    assert_eq!(reader.ask(&query("SELECT FROM t")), "E:40001 Z:E");
    assert_eq!(reader.ask(&query("ROLLBACK; SELECT FROM t")), "C:ROLLBACK E:42P01 Z:I");
}
