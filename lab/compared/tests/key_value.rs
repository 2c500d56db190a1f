//! What clients do to Key-Value besides well-behaved procedures.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use polychron::{Commit, Common, Error, Interactive, Mode, Operations, Protocol, Row, Table};
use polychron_compared::key_value::KeyValue;
use polychron_schema::IndexDefinition;

#[derive(Row, Clone)]
struct Counter {
    #[key]
    id: u64,
    left: u64,
}

fn open() -> (Arc<KeyValue>, Table<Counter>) {
    let database = KeyValue::open(Default::default(), Common::default()).unwrap();
    let counters = Table::from_id(database.create_table(Counter::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    for id in 0..4 {
        transaction.insert(&counters, &Counter { id, left: 0 }).unwrap();
    }
    transaction.commit().unwrap();
    (database, counters)
}

/// Writes of procedures are visible at once, but the pin must not stay.
#[test]
fn leaked_procedures_end() {
    let (database, counters) = open();
    let mut worker = database.worker().unwrap();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    transaction.get(&counters, 1).unwrap();
    std::mem::forget(transaction);
    worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
    let epochs = database.memory().epochs();
    let present = epochs.current();
    for _ in 0..3 {
        while !epochs.advance() {}
    }
    assert!(epochs.readonly() >= present, "{epochs:?}");
}

/// A new index inside of a procedure of the same thread would wait for it.
#[test]
fn an_index_in_a_procedure_is_refused() {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        let (database, counters) = open();
        let mut worker = database.worker().unwrap();
        let definition = || IndexDefinition::new("by_left", [1]);
        for mode in [Mode::ReadWrite, Mode::Snapshot] {
            let mut transaction = worker.begin(mode).unwrap();
            transaction.get(&counters, 1).unwrap();
            let created = database.create_index(counters.id(), definition());
            assert!(matches!(created, Err(Error::WaitsForItself { .. }) | Ok(_)), "{created:?}");
            if let Ok(index) = created {
                database.drop_index(counters.id(), index).unwrap();
            }
            assert!(mode == Mode::Snapshot || created.is_err());
        }
        database.create_index(counters.id(), definition()).unwrap();
        done.send(()).unwrap();
    });
    assert_ne!(
        ended.recv_timeout(Duration::from_secs(60)),
        Err(RecvTimeoutError::Timeout),
        "the thread waits for itself"
    );
    thread.join().unwrap();
}
