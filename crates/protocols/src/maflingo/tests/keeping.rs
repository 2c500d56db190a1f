//! Versions are kept while snapshots are used.

use std::time::Duration;

use polychron_engine::{Commit, Common, Interactive, Mode, Operations, Protocol, Table};
use polychron_schema::Row;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::Pair;
use crate::Maflingo;
use crate::maflingo::{MaflingoWorker, Options};

const ROWS: u64 = 4;

/// A database with a clock that the test moves, in which all rows are equal.
fn database(snapshots: bool) -> (std::sync::Arc<Maflingo>, Table<Pair>) {
    let epoch_interval = Duration::from_secs(3600);
    let options = Options { epoch_interval, own_commits: false, snapshots, ..Options::default() };
    let database = <Maflingo>::open(options, Common::default()).unwrap();
    let pairs = Table::<Pair>::from_id(database.create_table(Pair::definition()).unwrap());
    write(&mut Maflingo::worker(&database).unwrap(), &pairs, 0);
    (database, pairs)
}

fn write(worker: &mut MaflingoWorker, pairs: &Table<Pair>, value: u64) {
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    (0..ROWS).for_each(|id| transaction.upsert(pairs, &Pair { id, left: value, right: 0 }).unwrap());
    transaction.commit().unwrap();
}

/// What a snapshot sees: one state, whole.
fn value(worker: &mut MaflingoWorker, pairs: &Table<Pair>) -> u64 {
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    let mut values =
        (0..ROWS).map(|id| snapshot.get(pairs, id).unwrap().expect("each row was there from the first on").left());
    let first = values.next().unwrap();
    assert!(values.all(|value| value == first));
    first
}

#[test]
fn without_snapshots_nothing_is_kept() {
    let (database, pairs) = database(true);
    let (mut worker, mut reader) = (Maflingo::worker(&database).unwrap(), Maflingo::worker(&database).unwrap());
    let waiting = || database.shared.base.memory.statistics().retired_bytes;
    let mut overwrite = |value| {
        database.tick();
        write(&mut worker, &pairs, value);
    };
    overwrite(1);
    assert_eq!(waiting(), 0, "no snapshot was there that could see it");
    assert_eq!(value(&mut reader, &pairs), 1, "what was not kept is older than the first snapshot");
    overwrite(2);
    assert!(waiting() > 0, "the next snapshot may see it");
}

/// With `snapshots=no` a snapshot is a transaction that reads the present and is validated (No-Snapshots, §6.6).
#[test]
fn without_the_option_snapshots_are_validated() {
    let (database, pairs) = database(false);
    let (mut worker, mut reader) = (Maflingo::worker(&database).unwrap(), Maflingo::worker(&database).unwrap());
    for value_before in 0..2 {
        let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
        assert_eq!(snapshot.get(&pairs, 0).unwrap().map(|pair| pair.left()), Some(value_before));
        database.tick();
        write(&mut worker, &pairs, value_before + 1);
        assert!(snapshot.commit().unwrap_err().is_conflict());
        assert_eq!(value(&mut reader, &pairs), value_before + 1, "it is there at once");
        assert_eq!(database.shared.base.memory.statistics().retired_bytes, 0, "nothing is kept");
    }
}

/// The keeping goes off while there is no snapshot, beside a writer, and each snapshot that begins then misses nothing.
#[test]
fn keeping_comes_and_goes() {
    let (database, pairs) = database(true);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                database.tick();
            }
        });
        scope.spawn(|| {
            let mut worker = Maflingo::worker(&database).unwrap();
            (1..).take_while(|_| !done.load(Ordering::Relaxed)).for_each(|value| write(&mut worker, &pairs, value));
        });
        let mut reader = Maflingo::worker(&database).unwrap();
        let mut last = 0;
        for _ in 0..polychron_base::sizes::scaled(50, 2) {
            while database.shared.keeping.is_needed() {
                std::thread::yield_now();
            }
            for _ in 0..3 {
                let now = value(&mut reader, &pairs);
                assert!(now >= last);
                last = now;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
