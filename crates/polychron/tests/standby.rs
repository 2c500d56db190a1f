//! Standbys over TCP: what they show, what they refuse, and what becomes of them when either side is closed, opened again or promoted.

use polychron_sync::atomic::{AtomicBool, Ordering};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polychron::protocols::{Bohm, Cicada, Hyper, Locking, Maflingo, Serial};
use polychron::schema::IndexDefinition;
use polychron::{Builder, Database, Error, Interactive, Operations, Protocol, Retry, Row};

#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[row(name = "account")]
struct Account {
    #[key]
    id: u64,
    balance: i64,
    note: Option<String>,
}

/// Says which transaction was the last one.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Last {
    #[key]
    id: u64,
    number: u64,
}

const ACCOUNTS: u64 = 20;

fn builder<P: Protocol>() -> Builder<P> {
    Database::builder().small().with::<P>()
}

fn primary<P: Protocol>(path: &Path, address: &str) -> Database<P> {
    builder::<P>().serve_standbys(address).open(path).unwrap()
}

fn address<P: Protocol>(database: &Database<P>) -> String {
    database.standby_address().unwrap().to_string()
}

fn fill<P: Protocol<Worker: Interactive>>(database: &Database<P>) {
    let (accounts, lasts) = (database.create_table::<Account>().unwrap(), database.create_table::<Last>().unwrap());
    let all = |t: &mut polychron::TransactionOf<'_, P>| {
        (0..ACCOUNTS).try_for_each(|id| t.insert(&accounts, &Account { id, balance: 100, note: None }))?;
        t.insert(&lasts, &Last { id: 0, number: 0 })
    };
    database.transact(all).unwrap();
}

/// Moves money, and counts.
fn transfer<P: Protocol<Worker: Interactive>>(database: &Database<P>, number: u64) {
    let (accounts, lasts) = (database.table::<Account>().unwrap().unwrap(), database.table::<Last>().unwrap().unwrap());
    let (from, to) = (number % ACCOUNTS, (7 * number + 3) % ACCOUNTS);
    let moved = database.transact(|t| {
        t.update(&accounts, from, |row| row.set_balance(row.balance() - 1))?;
        t.update(&accounts, to, |row| row.set_balance(row.balance() + 1))?;
        if number.is_multiple_of(5) {
            t.delete(&accounts, ACCOUNTS)?;
        } else {
            let note = Some("note ".repeat(number as usize % 9));
            t.upsert(&accounts, &Account { id: ACCOUNTS, balance: 0, note })?;
        }
        t.update(&lasts, 0, |row| row.set_number(number)).map(drop)
    });
    moved.unwrap();
}

/// What a standby shows: a state that the primary had.
fn look<P: Protocol<Worker: Interactive>>(database: &Database<P>) -> Option<u64> {
    let (accounts, lasts) = (database.table::<Account>().unwrap()?, database.table::<Last>().unwrap()?);
    let seen = database.snapshot(|t| {
        let rows: Vec<Account> = t.scan(&accounts, ..).rows()?;
        polychron::Ok((rows, t.get_owned(&lasts, 0)?))
    });
    let (rows, last) = seen.unwrap();
    let number = last?.number;
    assert_eq!(rows.iter().map(|row| row.balance).sum::<i64>(), 100 * ACCOUNTS as i64, "a transaction is whole");
    let noted = rows.iter().find(|row| row.id == ACCOUNTS).map(|row| row.note.clone().unwrap());
    let expected = (!number.is_multiple_of(5)).then(|| "note ".repeat(number as usize % 9));
    assert!(number == 0 || noted == expected, "{noted:?} at {number}");
    Some(number)
}

fn wait_until(is_so: impl Fn() -> bool) {
    // However long that takes on a busy machine.
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come to be");
}

/// One primary under load, and a standby that comes while it is, goes, and comes back.
fn follows<A: Protocol<Worker: Interactive>, B: Protocol<Worker: Interactive>>() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("primary"), directory.path().join("standby"));
    let database = primary::<A>(&path, "127.0.0.1:0");
    fill(&database);
    let (address, is_over) = (address(&database), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                transfer(&database, number);
                // A standby that is slower than its primary would have all the more to catch up with at the end.
                std::thread::sleep(Duration::from_millis(1));
                if number.is_multiple_of(400) {
                    database.checkpoint().unwrap();
                }
            }
            number
        });
        let mut last = None;
        for _ in 0..3 {
            let standby = builder::<B>().open_standby(&copy, &address).unwrap();
            let first = standby.standby().unwrap().points;
            for _ in 0..20 {
                let seen = look(&standby);
                assert!(seen >= last, "it does not go back");
                last = seen;
                std::thread::sleep(Duration::from_millis(2));
            }
            wait_until(|| standby.standby().unwrap().points > first + 20);
            standby.checkpoint().unwrap();
            standby.close().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let number = writer.join().unwrap();
        let standby = builder::<B>().open_standby(&copy, &address).unwrap();
        wait_until(|| look(&standby) == Some(number));
        // What its own log has it shows before it is connected.
        wait_until(|| standby.standby().is_some_and(|status| status.is_connected && status.trouble.is_none()));
        assert!(database.standby().is_none());
    });
}

#[test]
fn a_standby_follows_a_primary_of_any_protocol() {
    follows::<Cicada, Cicada>();
    follows::<Hyper, Maflingo>();
    follows::<Maflingo, Hyper>();
    follows::<Serial, Serial>();
}

#[test]
fn a_planned_protocol_has_standbys_and_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let database = builder::<Bohm>().serve_standbys("127.0.0.1:0").open(directory.path().join("primary")).unwrap();
    database.create_table::<Last>().unwrap();
    let standby = builder::<Cicada>().open_standby(directory.path().join("standby"), &address(&database)).unwrap();
    wait_until(|| standby.table::<Last>().unwrap().is_some());
}

#[test]
fn changes_of_a_standby_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let database = primary::<Cicada>(&directory.path().join("primary"), "127.0.0.1:0");
    fill(&database);
    let path = directory.path().join("standby");
    let standby = builder::<Cicada>().open_standby(&path, &address(&database)).unwrap();
    wait_until(|| look(&standby).is_some());
    let accounts = standby.table::<Account>().unwrap().unwrap();
    let row = Account { id: 99, balance: 0, note: None };
    let refused = standby.transact(|t| t.insert(&accounts, &row));
    assert!(matches!(refused, Err(Error::OpenedReadOnly(_))), "{refused:?}");
    let refused = standby.transact(|t| t.update(&accounts, 1, |row| row.set_balance(7)));
    assert!(matches!(refused, Err(Error::OpenedReadOnly(_))), "{refused:?}");
    let refused = standby.drop_table(accounts.id());
    assert!(matches!(&refused, Err(Error::OpenedReadOnly(told)) if told.table == "account"), "{refused:?}");
    assert!(matches!(builder::<Cicada>().open(&path), Err(Error::InUse(_))));
    transfer(&database, 1);
    wait_until(|| look(&standby) == Some(1));
    let backup = directory.path().join("backup");
    standby.backup(&backup).unwrap();
    assert_eq!(look(&builder::<Hyper>().open(&backup).unwrap()), Some(1));
}

mod after {
    #[derive(polychron::Row, Clone, Debug)]
    #[row(name = "account")]
    pub(super) struct Account {
        #[key]
        pub(super) id: u64,
        pub(super) balance: i64,
        pub(super) note: Option<String>,
        #[column(default = 3)]
        pub(super) rank: i64,
    }
}

/// Tables and indexes come, go and change.
#[test]
fn tables_follow_too() {
    let directory = tempfile::tempdir().unwrap();
    let database = primary::<Cicada>(&directory.path().join("primary"), "127.0.0.1:0");
    let path = directory.path().join("standby");
    let mut standby = builder::<Cicada>().open_standby(&path, &address(&database)).unwrap();
    for round in 0..3 {
        fill(&database);
        let accounts = database.table::<Account>().unwrap().unwrap();
        database.create_index_with(accounts.id(), IndexDefinition::new("notes", [2, 0]).with_unique(true)).unwrap();
        (1..30).for_each(|number| transfer(&database, number));
        wait_until(|| look(&standby) == Some(29));
        let there = standby.table::<Account>().unwrap().unwrap();
        wait_until(|| standby.find_index(there.id(), "notes").is_ok_and(|index| index.is_some()));
        let changed = database.create_or_open_table::<after::Account>().unwrap();
        database.transact(|t| t.update(&changed, 1, |row| row.set_rank(9))).unwrap();
        let ranks = || {
            let Ok(Some(table)) = standby.table::<after::Account>() else { return None };
            let rows: Vec<after::Account> = standby.snapshot(|t| t.scan(&table, ..).rows()).ok()?;
            Some(rows.iter().map(|row| row.rank).collect::<Vec<_>>())
        };
        let expected: Vec<i64> = (0..=ACCOUNTS).map(|id| if id == 1 { 9 } else { 3 }).collect();
        wait_until(|| ranks().as_ref() == Some(&expected));
        if round == 1 {
            standby.close().unwrap();
            standby = builder::<Cicada>().open_standby(&path, &address(&database)).unwrap();
        }
        database.drop_table(changed.id()).unwrap();
        database.drop_table(database.find_table("last").unwrap()).unwrap();
        database.transact(|_| polychron::Ok(())).unwrap();
        wait_until(|| {
            // Something has to be in the log behind it.
            let table = database.create_or_open_table::<Tick>().unwrap();
            database.transact(|t| t.upsert(&table, &Tick { id: 1 })).unwrap();
            standby.find_table("account").is_none() && standby.find_table("last").is_none()
        });
    }
}

#[derive(Row, Clone, Debug)]
struct Tick {
    #[key]
    id: u64,
}

/// A directory, which goes at the end, and in it the places of a primary and two standbys.
fn places() -> (tempfile::TempDir, PathBuf, [PathBuf; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let [primary, first, second] = ["primary", "first", "second"].map(|name| directory.path().join(name));
    (directory, primary, [first, second])
}

/// The primary is opened again, and then a standby is promoted.
#[test]
fn a_standby_takes_over() {
    let (_directory, path, copies) = places();
    let database = primary::<Cicada>(&path, "127.0.0.1:0");
    let at = address(&database);
    fill(&database);
    let standbys = copies.each_ref().map(|copy| builder::<Cicada>().open_standby(copy, &at).unwrap());
    database.close().unwrap();
    let database = primary::<Hyper>(&path, &at);
    (1..50).for_each(|number| transfer(&database, number));
    standbys.iter().for_each(|standby| wait_until(|| look(standby) == Some(49)));
    let [first, second] = standbys;
    drop(database);
    first.close().unwrap();
    // Without a primary it is read all the same.
    let first = builder::<Cicada>().open_standby(&copies[0], &at).unwrap();
    assert_eq!(look(&first), Some(49));
    first.close().unwrap();
    let promoted = primary::<Cicada>(&copies[0], &at);
    assert_eq!(look(&promoted), Some(49));
    transfer(&promoted, 50);
    wait_until(|| look(&second) == Some(50));
    promoted.close().unwrap();
    // The old one is refused, however often it is opened.
    for _ in 0..3 {
        let old = primary::<Cicada>(&path, &at);
        transfer(&old, 60);
        drop(old);
    }
    let old = primary::<Cicada>(&path, &at);
    transfer(&old, 61);
    wait_until(|| {
        let trouble = second.standby().unwrap().trouble;
        trouble.is_some_and(|trouble| trouble.contains("newer primary"))
    });
    assert_eq!(look(&second), Some(50));
    drop(old);
    // A database of its own is no standby.
    assert!(builder::<Cicada>().open_standby(&copies[0], &at).is_err());
}

/// A standby comes back when the log that it needs is gone.
#[test]
fn a_standby_that_was_away_for_too_long_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let database = primary::<Cicada>(&directory.path().join("primary"), "127.0.0.1:0");
    fill(&database);
    let (path, at) = (directory.path().join("standby"), address(&database));
    let standby = builder::<Cicada>().open_standby(&path, &at).unwrap();
    wait_until(|| look(&standby).is_some());
    standby.close().unwrap();
    let accounts = database.table::<Account>().unwrap().unwrap();
    let note = Some("note ".repeat(4000));
    for id in 1000..1300 {
        database.transact(|t| t.insert(&accounts, &Account { id, balance: 0, note: note.clone() })).unwrap();
        if id % 50 == 0 {
            database.checkpoint().unwrap();
        }
    }
    transfer(&database, 1);
    let standby = builder::<Cicada>().open_standby(&path, &at).unwrap();
    wait_until(|| standby.standby().unwrap().trouble.is_some_and(|trouble| trouble.contains("begins anew")));
    assert_eq!(look(&standby), Some(0), "it is read all the same");
    standby.close().unwrap();
    let standby = builder::<Cicada>().open_standby(&path, &at).unwrap();
    wait_until(|| look(&standby) == Some(1));
    let accounts = standby.table::<Account>().unwrap().unwrap();
    assert_eq!(standby.snapshot(|t| t.scan(&accounts, 1000..).count()).unwrap(), 300);
}

/// A standby has more than the one that was promoted.
#[test]
fn a_standby_with_another_history_ends() {
    let (_directory, path, copies) = places();
    let database = primary::<Cicada>(&path, "127.0.0.1:0");
    let at = address(&database);
    fill(&database);
    let [first, second] = copies.each_ref().map(|copy| builder::<Cicada>().open_standby(copy, &at).unwrap());
    wait_until(|| look(&first).is_some());
    first.close().unwrap();
    transfer(&database, 1);
    wait_until(|| look(&second) == Some(1));
    database.close().unwrap();
    let promoted = primary::<Cicada>(&copies[0], &at);
    transfer(&promoted, 2);
    wait_until(|| second.standby().unwrap().ended.is_some());
    let ended = second.standby().unwrap().ended.unwrap();
    assert!(matches!(&*ended, Error::NotFollowing(_)) && ended.to_string().contains("history"), "{ended}");
    assert_eq!(look(&second), Some(1), "it is read all the same");
}

#[test]
fn a_standby_serves_no_standbys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("standby");
    let refused = builder::<Cicada>().serve_standbys("127.0.0.1:0").open_standby(&path, "127.0.0.1:1");
    assert!(matches!(refused, Err(Error::Options(_))));
    assert!(!path.exists(), "nothing is made");
}

/// A reader locks what the primary changes, and the applying transaction may conflict once alone.
#[test]
fn readers_that_lock_hold_up_and_end_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let database = primary::<Cicada>(&directory.path().join("primary"), "127.0.0.1:0");
    fill(&database);
    let once = Retry { attempts: 1, ..Retry::DEFAULT };
    let path = directory.path().join("standby");
    let standby = builder::<Locking>().retry(once).open_standby(&path, &address(&database)).unwrap();
    let (accounts, lasts) = (standby.table::<Account>().unwrap().unwrap(), standby.table::<Last>().unwrap().unwrap());
    let read = standby.snapshot(|t| {
        let before: Vec<Account> = t.scan(&accounts, ..).rows()?;
        let first = t.get_owned(&lasts, 0)?;
        transfer(&database, 1);
        // So that it comes here meanwhile.
        std::thread::sleep(Duration::from_millis(100));
        let after: Vec<Account> = t.scan(&accounts, ..).rows()?;
        polychron::Ok((before == after, first == t.get_owned(&lasts, 0)?))
    });
    assert_eq!(read.unwrap(), (true, true), "what a reader sees stays");
    wait_until(|| {
        let seen = standby.snapshot(|t| t.get_owned(&lasts, 0));
        seen.is_ok_and(|last| last.is_some_and(|last| last.number == 1))
    });
    let status = standby.standby().unwrap();
    assert!(status.ended.is_none() && status.trouble.is_none(), "{status:?}");
}

/// Whoever connects and sends anything does no harm, and neither does what a standby connects to.
#[test]
fn strangers_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let database = primary::<Cicada>(&directory.path().join("primary"), "127.0.0.1:0");
    fill(&database);
    let at = address(&database);
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xFF; 64], &[0; 64], &[200, 0, 0, 0, 1, 2, 3]] {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    let path = directory.path().join("standby");
    let standby = builder::<Cicada>().open_standby(&path, &at).unwrap();
    wait_until(|| look(&standby).is_some());
    standby.close().unwrap();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = stranger.local_addr().unwrap().to_string();
    let standby = builder::<Cicada>().open_standby(&path, &there).unwrap();
    for bytes in [&[0xFF; 100][..], &[0; 100], b"SSH-2.0-OpenSSH_9.6\r\n and something else that is long enough"] {
        let (mut stream, _) = stranger.accept().unwrap();
        stream.write_all(bytes).unwrap();
    }
    wait_until(|| standby.standby().unwrap().trouble.is_some());
    assert_eq!(look(&standby), Some(0));
    standby.close().unwrap();
    assert!(matches!(
        builder::<Cicada>().open_standby(directory.path().join("primary"), &at),
        Err(Error::Inaccessible(_) | Error::InUse(_))
    ));
}

/// Answers wait for a standby: without one they end in time, with one they leave, and what they said is there when it takes over.
#[test]
fn answers_wait_for_standbys() {
    let (_directory, path, copies) = places();
    let waiting = |replicas, timeout| {
        builder::<Cicada>().replicas(replicas).replica_timeout(timeout).serve_standbys("127.0.0.1:0").open(&path)
    };
    assert!(matches!(builder::<Cicada>().replicas(1).open(&path), Err(Error::Options(_))));
    assert!(matches!(builder::<Cicada>().replicas(1).in_memory(), Err(Error::Options(_))));
    assert!(!path.exists(), "nothing is made");
    let database = waiting(1, Duration::from_millis(50)).unwrap();
    let lasts = database.create_table::<Last>().unwrap();
    let put = |database: &Database<Cicada>, number| {
        let lasts = database.table::<Last>().unwrap().unwrap();
        database.transact(|t| t.upsert(&lasts, &Last { id: 0, number }))
    };
    let alone = put(&database, 1);
    assert!(
        matches!(&alone, Err(Error::NotReplicated(few)) if (few.acknowledged, few.replicas) == (0, 1)),
        "{alone:?}"
    );
    let eventually = database.with(polychron::Durability::Eventual(Duration::from_millis(1)));
    assert_eq!(eventually.transact(|t| t.get_owned(&lasts, 0)).unwrap().unwrap().number, 1, "it was done");
    assert!(database.transact(|t| t.get_owned(&lasts, 0)).is_err(), "who has read it waits, too");
    let submitted = database.submit_closure(move |t: &mut polychron::TransactionOf<'_, Cicada>| t.get_owned(&lasts, 0));
    assert!(matches!(submitted.wait(), Err(Error::NotReplicated(_))));
    drop(eventually);
    database.close().unwrap();
    // Now they have the time that they need.
    let database = waiting(1, Duration::from_secs(600)).unwrap();
    let at = address(&database);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| put(&database, 2));
        let mut standby = builder::<Cicada>().open_standby(&copies[0], &at).unwrap();
        first.join().unwrap().unwrap();
        for number in 3..40 {
            put(&database, number).unwrap();
            if number % 9 == 0 {
                standby.close().unwrap();
                standby = builder::<Cicada>().open_standby(&copies[0], &at).unwrap();
            }
        }
        let status = database.replication().unwrap();
        assert_eq!((status.replicas, status.acknowledged.len()), (1, 1), "{status:?}");
        assert!(status.replicated <= status.durable && standby.standby().unwrap().received >= status.replicated);
    });
    drop(database);
    std::fs::remove_dir_all(&path).unwrap();
    let promoted = builder::<Cicada>().open(&copies[0]).unwrap();
    let lasts = promoted.table::<Last>().unwrap().unwrap();
    assert_eq!(promoted.transact(|t| t.get_owned(&lasts, 0)).unwrap().unwrap().number, 39);
}

/// Two are wanted, one comes, and the other one later.
#[test]
fn answers_wait_for_both_standbys() {
    let (_directory, path, copies) = places();
    let timeout = Duration::from_millis(100);
    let opened = builder::<Cicada>().replicas(2).replica_timeout(timeout).serve_standbys("127.0.0.1:0").open(&path);
    let database = opened.unwrap();
    let (at, lasts) = (address(&database), database.create_table::<Last>().unwrap());
    let put = || database.transact(|t| t.upsert(&lasts, &Last { id: 0, number: 1 }));
    let _first = builder::<Cicada>().open_standby(&copies[0], &at).unwrap();
    wait_until(|| matches!(put(), Err(Error::NotReplicated(few)) if few.acknowledged == 1));
    let second = builder::<Cicada>().open_standby(&copies[1], &at).unwrap();
    wait_until(|| put().is_ok());
    drop(second);
    wait_until(|| database.replication().unwrap().acknowledged.len() == 1);
    assert!(matches!(put(), Err(Error::NotReplicated(_))));
}

#[test]
fn what_is_read_alone_serves_no_standbys() {
    let (_directory, path, _) = places();
    builder::<Cicada>().open(&path).unwrap().close().unwrap();
    let refused = builder::<Cicada>().serve_standbys("127.0.0.1:0").open_read_only(&path);
    assert!(matches!(refused, Err(Error::Options(_))));
}

/// A standby has less memory than what it is to show takes: it says so, and does not end. Opened with more, it shows all.
#[test]
fn a_lack_of_memory_ends_no_standby() {
    let (_directory, path, copies) = places();
    let opened = builder::<Cicada>().memory_limit(512 << 20).serve_standbys("127.0.0.1:0").open(&path);
    let database = opened.unwrap();
    fill(&database);
    let at = address(&database);
    let standby = builder::<Cicada>().open_standby(&copies[0], &at).unwrap();
    wait_until(|| look(&standby).is_some());
    let accounts = database.table::<Account>().unwrap().unwrap();
    let row = |id| Account { id, balance: 0, note: Some("note ".repeat(4000)) };
    for first in (1000..6000).step_by(100) {
        database.transact(|t| (first..first + 100).try_for_each(|id| t.insert(&accounts, &row(id)))).unwrap();
    }
    transfer(&database, 1);
    wait_until(|| standby.standby().unwrap().trouble.is_some_and(|trouble| trouble.contains("memory")));
    let status = standby.standby().unwrap();
    assert!(status.ended.is_none() && look(&standby) == Some(0), "{status:?}");
    standby.close().unwrap();
    let standby = builder::<Cicada>().memory_limit(512 << 20).open_standby(&copies[0], &at).unwrap();
    wait_until(|| look(&standby) == Some(1));
}

/// A reader keeps the old version of each row until there is no memory for more. When it ends, the standby goes on by itself, however much has come
/// meanwhile.
fn uses_memory_that_comes_back<P: Protocol<Worker: Interactive>>() {
    const ROWS: std::ops::Range<u64> = 1000..2600;
    let directory = tempfile::tempdir().unwrap();
    let opened = builder::<Maflingo>().memory_limit(512 << 20).serve_standbys("127.0.0.1:0");
    let database = opened.open(directory.path().join("primary")).unwrap();
    fill(&database);
    let standby = builder::<P>().open_standby(directory.path().join("standby"), &address(&database)).unwrap();
    wait_until(|| look(&standby).is_some());
    let accounts = database.table::<Account>().unwrap().unwrap();
    let points = || standby.standby().unwrap().points;
    let lacks_memory = || standby.standby().unwrap().trouble.is_some_and(|trouble| trouble.contains("memory"));
    // Writes half of the memory full, and has the standby show it as long as it can.
    let write = |text: &str| {
        ROWS.step_by(100).for_each(|first| {
            let (shown, note) = (points(), Some(text.repeat(4000)));
            let row = |id| Account { id, balance: 0, note: note.clone() };
            database.transact(|t| (first..first + 100).try_for_each(|id| t.upsert(&accounts, &row(id)))).unwrap();
            wait_until(|| points() > shown || lacks_memory());
        });
    };
    write("note ");
    assert!(!lacks_memory());
    let lasts = standby.table::<Last>().unwrap().unwrap();
    let read = standby.snapshot(|t| {
        let first = t.get_owned(&lasts, 0)?;
        write("text ");
        assert!(lacks_memory(), "two versions of each row have no room");
        // More waits than has room beside what is there.
        write("more ");
        polychron::Ok(first == t.get_owned(&lasts, 0)?)
    });
    assert!(read.unwrap(), "what a reader sees stays");
    transfer(&database, 1);
    wait_until(|| look(&standby) == Some(1));
    wait_until(|| standby.standby().unwrap().trouble.is_none());
}

#[test]
fn memory_that_comes_back_is_used() {
    uses_memory_that_comes_back::<Cicada>();
    uses_memory_that_comes_back::<Maflingo>();
    uses_memory_that_comes_back::<Hyper>();
}
