//! Every interleaving of two threads in Hekaton's words, under loom: the outcome of a transaction against those that depend on it, stamps against
//! readers, and collection against readers that begin.
//!
//! That of two transactions which write what the other reads one fails is validation, which shuttle explores (`lab/check`).

use std::sync::Arc;

use polychron_memory::Guard;
use polychron_sync::model::explore;

use polychron_memory::model::beside;
use polychron_sync::model::Witness;

use super::collect::collect;
use super::transactions::{Basis, Held, Look, Transactions};
use super::version::{Record, TransactionId, Version};

/// The writer is worker 0, the reader worker 1.
const WRITER: usize = 0;
const READER: usize = 1;

/// What both threads know beside the record.
struct World {
    transactions: Transactions,
    /// Touched where the row of the new version is.
    new: Witness,
    /// The same of the old one.
    old: Witness,
    /// What the writer does before it has committed.
    done: Witness,
}

impl World {
    fn new() -> Arc<Self> {
        let transactions = Transactions::new(2);
        transactions.enter(WRITER);
        transactions.enter(READER);
        let [new, old, done] = Default::default();
        Arc::new(Self { transactions, new, old, done })
    }

    /// The number of a row that is sure to be there.
    fn read(&self, version: Version) -> u64 {
        let row = version.row().as_words()[0];
        if row == 1 {
            self.old.read();
        } else {
            assert_eq!((self.new.read(), self.done.read()), (1, 1));
        }
        row
    }
}

/// A record with a version that was committed at timestamp 1, as the writer's first transaction.
fn record(world: &World, guard: &Guard<'_>) -> Record {
    let (id, _) = world.transactions.begin(WRITER, 0);
    let version = Version::new(id, &[1], None, guard).expect("memory is there");
    let record = Record::new(version, guard).expect("memory is there");
    let end = world.transactions.prepare(id, || ());
    world.transactions.decide(id, true);
    version.set_begin(end);
    world.transactions.end(WRITER);
    record
}

/// A write of the record's row.
struct Write {
    id: TransactionId,
    old: Version,
    new: Version,
}

impl Write {
    /// Begins a transaction and puts its version on top.
    fn begin(world: &World, record: Record, guard: &Guard<'_>) -> Self {
        let (id, _) = world.transactions.begin(WRITER, 1);
        let old = record.latest().expect("it has a version");
        assert!(old.lock(id), "no other transaction writes");
        world.new.write();
        let new = Version::new(id, &[2], Some(old), guard).expect("memory is there");
        assert!(record.replace_top(old, Some(new)));
        Self { id, old, new }
    }

    /// Ends it, and makes the stamps final.
    fn end(self, world: &World, commits: bool) -> u64 {
        let end = world.transactions.prepare(self.id, || ());
        self.decide(world, end, commits);
        end
    }

    fn decide(self, world: &World, end: u64, commits: bool) {
        let Self { id, old, new } = self;
        world.done.write();
        world.transactions.decide(id, commits);
        if commits {
            new.set_begin(end);
            old.set_end(end);
        } else {
            new.set_begin(super::version::INFINITY);
            old.set_end(super::version::INFINITY);
        }
        world.transactions.end(WRITER);
    }
}

/// What a reader of a timestamp sees, once that is certain: the row's number, or `None` where it rests on what has failed.
fn see(world: &World, record: Record, id: TransactionId, timestamp: u64) -> Option<u64> {
    loop {
        let Look::Row(version, basis) = world.transactions.look(record, timestamp, id) else {
            panic!("the key has a row at every timestamp");
        };
        if let Basis::On(on) = basis {
            if !world.transactions.depend(id, on) {
                continue;
            }
            // What it sees is whole already.
            world.new.read();
            if !world.transactions.await_others(id) {
                return None;
            }
        }
        return Some(world.read(version));
    }
}

/// A thread that sees a version of a transaction that is about to commit commits only if that does; a thread that reads later than its end
/// sees it, and an earlier reader does not.
#[test]
fn who_depends_learns_of_the_outcome() {
    for commits in [true, false] {
        explore(2, move || {
            let world = World::new();
            let (by_writer, by_reader) = (Arc::clone(&world), Arc::clone(&world));
            beside(
                move |guard| {
                    let record = record(&world, guard);
                    let write = Write::begin(&world, record, guard);
                    let end = world.transactions.prepare(write.id, || ());
                    (record, end, write.id, write.old, write.new)
                },
                move |(_, end, id, old, new), _| Write { id, old, new }.decide(&by_writer, end, commits),
                move |(record, end, ..), _| {
                    let (id, timestamp) = by_reader.transactions.begin(READER, 1);
                    assert!(timestamp > end);
                    let seen = see(&by_reader, record, id, timestamp);
                    assert!(if commits { seen == Some(2) } else { seen != Some(2) }, "{seen:?}");
                    by_reader.transactions.end(READER);
                },
                |_, _| (),
            );
        });
    }
}

/// While a transaction draws its end, a reader finds out on which side of it it reads: it sees the same when it looks again.
#[test]
fn what_a_timestamp_shows_stays() {
    explore(2, || {
        let world = World::new();
        let (by_writer, by_reader) = (Arc::clone(&world), Arc::clone(&world));
        beside(
            move |guard| {
                let record = record(&world, guard);
                let Write { id, old, new } = Write::begin(&world, record, guard);
                (record, id, old, new)
            },
            move |(_, id, old, new), _| _ = Write { id, old, new }.end(&by_writer, true),
            move |(record, ..), _| {
                let (id, timestamp) = by_reader.transactions.begin(READER, 1);
                let first = see(&by_reader, record, id, timestamp);
                assert!(first.is_some() && first == see(&by_reader, record, id, timestamp));
                by_reader.transactions.end(READER);
            },
            |_, _| (),
        );
    });
}

/// Collects the record if all see the new version, and says so where the old one is freed at once.
fn collect_old(world: &World, record: Record, over_at: u64, guard: &Guard<'_>) {
    let mut held = Held::default();
    world.transactions.held(&mut held);
    let mut tails = Vec::new();
    let _ = collect(record, false, &held, &mut tails, guard);
    for tail in tails {
        assert!(tail.next().is_none(), "there is one old version");
        // SAFETY: no thread sees it.
        unsafe { tail.free(guard) };
    }
    if over_at <= held.oldest() {
        world.old.write();
    }
}

/// A version is freed when no thread reads at a timestamp that sees it, and no thread will.
#[test]
fn who_reads_keeps_what_it_sees() {
    for is_snapshot in [false, true] {
        explore(2, move || {
            let world = World::new();
            let (by_writer, by_reader) = (Arc::clone(&world), Arc::clone(&world));
            beside(
                move |guard| {
                    let record = record(&world, guard);
                    let Write { id, old, new } = Write::begin(&world, record, guard);
                    (record, id, old, new)
                },
                move |(record, id, old, new), guard| {
                    let end = Write { id, old, new }.end(&by_writer, true);
                    collect_old(&by_writer, record, end, guard);
                },
                move |(record, ..), _| {
                    let transactions = &by_reader.transactions;
                    if is_snapshot {
                        let timestamp = transactions.begin_snapshot(READER, 1);
                        // A thread that waits for no thread has no id.
                        see_as_snapshot(&by_reader, record, timestamp);
                    } else {
                        let (id, timestamp) = transactions.begin(READER, 1);
                        assert!(see(&by_reader, record, id, timestamp).is_some());
                    }
                    transactions.end(READER);
                },
                |_, _| (),
            );
        });
    }
}

/// As [`see`], of a snapshot, which waits for a thread that is about to commit.
fn see_as_snapshot(world: &World, record: Record, timestamp: u64) {
    loop {
        match world.transactions.look(record, timestamp, TransactionId::NONE) {
            Look::Row(_, Basis::On(on)) => world.transactions.await_outcome(on),
            Look::Row(version, _) => {
                world.read(version);
                return;
            }
            Look::Nothing(..) => panic!("the key has a row at every timestamp"),
        }
    }
}
