//! Nothing that happens in the background aborts a transaction: tombstones leave, time passes, memory is freed.

use polychron_engine::{Insertion, Interactive, Mode, Operations, Protocol, Worker};

use crate::Setup;
use crate::client::Client;
use crate::rows::{Item, Person, person, set};
use crate::setup::{all, done, items, persons};

/// Lets so much time pass that everything deleted has left, as far as open transactions allow.
fn quiesce<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    database: &std::sync::Arc<P>,
    workers: &mut [P::Worker],
) {
    for _ in 0..4 {
        setup.pass(database, 2);
        workers.iter_mut().for_each(Worker::maintain);
    }
}

/// A database in which item 2 was deleted so long ago that its tombstone may go, and a worker that may take it out.
fn with_tombstone<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
) -> (std::sync::Arc<P>, polychron_engine::Table<Item>, P::Worker) {
    let (database, table) = items(setup, &[(1, 10), (2, 20), (3, 30)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.delete(&table, 2));
    (database, table, worker)
}

/// A transaction that read a tombstone, as a key and in a range, commits after the tombstone has gone.
pub fn tombstones_that_were_read<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for ticks_before in [0, 1, 3] {
        let (database, table, cleaner) = with_tombstone(setup);
        let mut reader = database.worker().unwrap();
        setup.pass(&database, ticks_before);
        let mut client = Client::begin(&mut reader, Mode::ReadWrite);
        client.step(|t| {
            assert!(t.get(&table, 2)?.is_none());
            assert_eq!(t.scan(&table, ..).count()?, 2);
            assert_eq!(t.scan(&table, 2..).rev().count()?, 1);
            set(t, &table, 1, 11)
        });
        quiesce(setup, &database, &mut [cleaner]);
        assert!(client.commit(), "background work aborted a transaction after {ticks_before} ticks");
    }
}

/// The same for a key that was never there, and for a transaction that writes nothing.
pub fn absent_keys_that_were_read<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table, cleaner) = with_tombstone(setup);
    let mut reader = database.worker().unwrap();
    let mut client = Client::begin(&mut reader, Mode::ReadWrite);
    client.step(|t| {
        assert!(t.get(&table, 4)?.is_none());
        assert!(t.get(&table, 2)?.is_none());
        assert!(!t.delete(&table, 2)?);
        Ok(())
    });
    quiesce(setup, &database, &mut [cleaner]);
    assert!(client.commit());
}

/// An insertion onto a tombstone that goes between the operation and the commit still commits.
pub fn insertion_on_a_tombstone<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for ticks_before in [0, 1, 3] {
        let (database, table, cleaner) = with_tombstone(setup);
        let mut writer = database.worker().unwrap();
        setup.pass(&database, ticks_before);
        let mut client = Client::begin(&mut writer, Mode::ReadWrite);
        client.step(|t| {
            assert_eq!(t.try_insert(&table, &Item { id: 2, value: 22 })?, Insertion::Inserted);
            set(t, &table, 2, 23)
        });
        quiesce(setup, &database, &mut [cleaner]);
        let sees_itself = client.step(|t| Ok(t.get(&table, 2)?.map(|row| row.value())));
        assert_eq!(sees_itself, Some(Some(23)));
        assert!(client.commit(), "after {ticks_before} ticks");
        let rows = all(&mut writer, &table);
        assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), [10, 23, 30]);
        quiesce(setup, &database, &mut [writer]);
        let mut worker = database.worker().unwrap();
        assert_eq!(all(&mut worker, &table), rows);
    }
}

/// A blind write onto a tombstone, in a table with secondary indexes whose entries go as well.
pub fn upsert_on_a_tombstone<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for ticks_before in [0, 1, 3] {
        let (database, table) = persons(setup, &[person(1, 1, 1), person(2, 1, 2)]);
        let mut cleaner = database.worker().unwrap();
        done(&mut cleaner, |t| t.delete(&table, 2));
        let mut writer = database.worker().unwrap();
        setup.pass(&database, ticks_before);
        let mut client = Client::begin(&mut writer, Mode::ReadWrite);
        let row = Person { text: "a longer one".repeat(30), ..person(2, 1, 2) };
        client.step(|t| t.upsert(&table, &row));
        quiesce(setup, &database, &mut [cleaner]);
        assert!(client.commit(), "after {ticks_before} ticks");
        assert_eq!(all(&mut writer, &table), [person(1, 1, 1), row]);
        let team = done(&mut writer, |t| t.scan_by(&table, Person::BY_TEAM, 1).count());
        assert_eq!(team, 2);
    }
}

/// A range with many tombstones, read forward and backward and by a secondary index, while all of them go.
pub fn ranges_that_were_read<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..200).map(|id| person(id, (id % 5) as u16, id as u32)).collect();
    let (database, table) = persons(setup, &rows);
    let mut cleaner = database.worker().unwrap();
    done(&mut cleaner, |t| (0..200).filter(|id| id % 4 != 0).try_for_each(|id| t.delete(&table, id).map(drop)));
    setup.pass(&database, 1);
    let mut reader = database.worker().unwrap();
    let mut client = Client::begin(&mut reader, Mode::ReadWrite);
    client.step(|t| {
        assert_eq!(t.scan(&table, ..).count()?, 50);
        assert_eq!(t.scan(&table, 20..100).rev().count()?, 20);
        assert_eq!(t.scan_by(&table, Person::BY_TEAM, 3).count()?, 10);
        t.update(&table, 0, |row| row.set_number(1))
    });
    quiesce(setup, &database, &mut [cleaner]);
    client.step(|t| {
        assert_eq!(t.scan(&table, ..).count()?, 50);
        t.insert(&table, &person(1, 1, 1))
    });
    quiesce(setup, &database, &mut []);
    assert!(client.commit());
    assert_eq!(all(&mut reader, &table).len(), 51);
}

/// A row that the transaction itself makes too large for its place, read by it before.
pub fn own_rows_that_move<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1), person(2, 1, 2)]);
    let mut worker = database.worker().unwrap();
    for round in 1..20 {
        let mut client = Client::begin(&mut worker, Mode::ReadWrite);
        client.step(|t| {
            assert_eq!(t.scan(&table, ..).count()?, 2);
            t.update(&table, 1, |row| row.set_text(&"w".repeat(round * 100)).unwrap())
        });
        (setup.tick)(&database);
        assert!(client.commit());
    }
}
