//! White-box tests: every transaction gets through, whatever others want; waiting for oneself is an error; what is leaked is undone.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use polychron_base::room::ROOM;
use polychron_base::sizes::scaled;
use polychron_base::{Error, TableId};
use polychron_engine::{Commit, Common, Interactive, Mode, Operations, Protocol, Table, drive};
use polychron_schema::{IndexDefinition, Row};

use super::{Locking, LockingTransaction, LockingWorker, Options, Policy};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "entry")]
#[index(name = "by_place", columns(place))]
struct Entry {
    #[key]
    id: u64,
    place: u64,
    count: u64,
}

fn entry(id: u64) -> Entry {
    Entry { id, place: id % 4, count: 0 }
}

struct Opened {
    database: Arc<Locking>,
    table: Table<Entry>,
}

/// What a transaction does; the number is its own.
type Body = fn(&mut LockingTransaction<'_>, &Table<Entry>, u64) -> Result<(), Error>;

impl Clone for Opened {
    fn clone(&self) -> Self {
        Self { database: Arc::clone(&self.database), table: self.table }
    }
}

fn open(policy: Policy, rows: u64) -> Opened {
    open_with(Options { policy, buckets: 64 }, rows)
}

fn open_with(options: Options, rows: u64) -> Opened {
    let memory =
        polychron_memory::Options { limit_bytes: Some(64 << 20), max_workers: 64, ..polychron_memory::Options::tiny() };
    let common = Common { memory, ..Common::default() };
    let database = Locking::open(options, common).expect("the options are sound");
    let table = Table::from_id(database.create_table(Entry::definition()).expect("there is memory"));
    let opened = Opened { database, table };
    let insert = |transaction: &mut LockingTransaction<'_>| {
        (0..rows).try_for_each(|id| transaction.insert(&table, &entry(id)).map(|_| ()))
    };
    opened.transact(insert).expect("it commits");
    opened
}

impl Opened {
    fn worker(&self) -> LockingWorker {
        self.database.worker().expect("a slot is free")
    }

    fn transact<O>(&self, mut body: impl FnMut(&mut LockingTransaction<'_>) -> Result<O, Error>) -> Result<O, Error> {
        drive::transact(&mut self.worker(), Mode::ReadWrite, &mut body)
    }

    fn rows(&self) -> Vec<Entry> {
        self.transact(|transaction| transaction.scan(&self.table, ..).rows()).expect("it commits")
    }

    /// Runs a transaction so many times in each of so many threads. No transaction begins again more than `most` times.
    fn run(&self, threads: u64, times: usize, most: usize, body: Body) {
        let opened = self.clone();
        ends(move || {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (mut worker, table) = (opened.worker(), opened.table);
                    scope.spawn(move || {
                        for number in 0..times as u64 {
                            let mut attempts = 0;
                            let answer = drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
                                attempts += 1;
                                assert!(attempts <= most, "a transaction begins again and again");
                                body(transaction, &table, thread << 32 | number)
                            });
                            answer.expect("it commits");
                        }
                    });
                }
            });
        });
    }
}

/// Runs work in a thread of its own, and fails when it does not end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        work();
        // No thread still waits where it took too long.
        let _ = done.send(());
    });
    if ended.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().expect("a check has failed");
}

/// Calls a test for each policy.
macro_rules! each_policy {
    ($($test:ident),*) => {
        $(
            #[test]
            fn $test() {
                cases::$test(Policy::InOrder);
                cases::$test(Policy::NoWait);
                cases::$test(Policy::WoundWait);
                cases::$test(Policy::Conditional);
            }
        )*
    };
}

each_policy!(
    transactions_that_read_and_then_write_get_through,
    scans_and_insertions_get_through,
    many_threads_share_a_row,
    waiting_for_oneself_is_an_error,
    leaked_transactions_are_undone,
    leaked_locks_go_with_their_worker,
    large_transactions_end
);

mod cases {
    use super::*;

    /// All hold the row shared, and want it alone.
    pub(super) fn transactions_that_read_and_then_write_get_through(policy: Policy) {
        let opened = open(policy, 1);
        let times = scaled(200, 20);
        opened.run(6, times, 100, |transaction, table, _| {
            let count = transaction.get(table, 0)?.map_or(0, |row| row.count());
            transaction.update(table, 0, |row| row.set_count(count + 1)).map(|_| ())
        });
        assert_eq!(opened.rows()[0].count, 6 * times as u64);
    }

    /// Each scans all rows, of both indexes, and then adds one, which comes into the ranges of all others.
    pub(super) fn scans_and_insertions_get_through(policy: Policy) {
        let opened = open(policy, 0);
        let times = scaled(40, 4);
        opened.run(4, times, 100, |transaction, table, id| {
            let places = transaction.scan_range_by(table, Entry::BY_PLACE, 0_u64..).rows()?.len();
            let count = transaction.scan(table, ..).rows()?.len();
            assert_eq!(places, count);
            transaction.insert(table, &Entry { id, place: id % 4, count: count as u64 }).map(|_| ())
        });
        let mut counts: Vec<_> = opened.rows().iter().map(|row| row.count).collect();
        counts.sort_unstable();
        assert!(counts.into_iter().eq(0..4 * times as u64), "each has seen those before it");
    }

    /// Far more threads than processors.
    pub(super) fn many_threads_share_a_row(policy: Policy) {
        let opened = open(policy, 1);
        opened.run(32, scaled(30, 3), 200, |transaction, table, _| {
            transaction.update(table, 0, |row| row.set_count(row.count() + 1)).map(|_| ())
        });
        assert_eq!(opened.rows()[0].count, 32 * scaled(30, 3) as u64);
    }

    fn is_own_wait<O: std::fmt::Debug>(answer: Result<O, Error>, table: TableId) {
        assert!(matches!(answer, Err(Error::WaitsForItself(ref wait)) if wait.table == table), "{answer:?}");
    }

    /// A transaction inside another one of the same thread wants what that holds.
    pub(super) fn waiting_for_oneself_is_an_error(policy: Policy) {
        let opened = open(policy, 8);
        let (table, id) = (opened.table, opened.table.id());
        let inner = opened.clone();
        opened
            .transact(|outer| {
                outer.update(&table, 1, |row| row.set_count(7))?;
                is_own_wait(inner.transact(|it| it.get(&table, 1).map(|row| row.is_some())), id);
                is_own_wait(inner.transact(|it| it.update(&table, 1, |row| row.set_count(8))), id);
                is_own_wait(inner.transact(|it| it.scan(&table, ..).rows()), id);
                is_own_wait(inner.transact(|it| it.delete(&table, 1)), id);
                // What the other does not hold can be had, and the error can be caught.
                let others = inner.transact(|it| {
                    assert!(it.upsert(&table, &entry(1)).is_err());
                    it.update(&table, 2, |row| row.set_count(9))
                });
                assert!(others?);
                let rows = outer.scan(&table, 3..7).rows()?.len();
                assert_eq!(rows, 4);
                is_own_wait(inner.transact(|it| it.update(&table, 4, |row| row.set_count(1))), id);
                is_own_wait(inner.transact(|it| it.delete(&table, 4)), id);
                assert!(inner.transact(|it| it.get(&table, 4).map(|row| row.is_some()))?);
                let _ = outer.scan(&table, 100..).rows()?;
                is_own_wait(inner.transact(|it| it.insert(&table, &entry(100))), id);
                let by_count = IndexDefinition { name: "by_count".into(), ..Entry::definition().indexes[0].clone() };
                is_own_wait(inner.database.create_index(id, by_count), id);
                Ok(())
            })
            .expect("it commits");
        let rows = opened.rows();
        assert_eq!([rows[1].count, rows[2].count, rows.len() as u64], [7, 9, 8]);
    }

    /// Nothing of a leaked transaction is committed, and nothing of it stays locked.
    pub(super) fn leaked_transactions_are_undone(policy: Policy) {
        let opened = open(policy, 4);
        let (table, mut worker) = (opened.table, opened.worker());
        for mode in [Mode::ReadWrite, Mode::Snapshot] {
            let mut leaked = worker.begin(Mode::ReadWrite).expect("it begins");
            leaked.update(&table, 1, |row| row.set_count(1)).expect("no other transaction blocks it");
            leaked.insert(&table, &entry(9)).expect("no other transaction blocks it");
            assert!(leaked.delete(&table, 2).expect("no other transaction blocks it"));
            assert_eq!(leaked.scan(&table, ..).rows().expect("no other transaction blocks it").len(), 4);
            std::mem::forget(leaked);
            let next = worker.begin(mode).expect("it begins");
            next.commit().expect("it did nothing");
            assert_eq!(opened.rows(), [entry(0), entry(1), entry(2), entry(3)]);
        }
        opened.transact(|it| it.insert(&table, &entry(9))).expect("nothing is locked");
        let epochs = opened.database.memory().epochs();
        let before = epochs.readonly();
        (0..4).for_each(|_| _ = epochs.advance());
        assert!(epochs.readonly() > before, "a leaked guard holds up the epochs");
    }

    /// What an operation costs does not grow with those before it: a transaction of which it did would not end.
    pub(super) fn large_transactions_end(policy: Policy) {
        let opened = open_with(Options { policy, ..Options::default() }, 0);
        let (table, count) = (opened.table, scaled(1 << 15, 100) as u64);
        let large = |it: &mut LockingTransaction<'_>| {
            for id in 0..count {
                assert!(it.get(&table, id)?.is_none());
                it.insert(&table, &entry(id))?;
                it.update(&table, 0, |row| row.set_count(id))?;
                // A range that grows, and one that is another each time.
                assert_eq!(it.scan(&table, ..=id).limit(1).count()?, 1);
                assert_eq!(it.scan(&table, id..).limit(1).count()?, 1);
            }
            (0..count).try_for_each(|id| it.get(&table, id).map(|row| assert!(row.is_some())))
        };
        opened.transact(large).expect("it commits");
        assert_eq!(opened.rows().len() as u64, count);
    }

    /// Others wait for what a leaked transaction holds, and get it when its worker goes.
    pub(super) fn leaked_locks_go_with_their_worker(policy: Policy) {
        let opened = open(policy, 2);
        let (table, mut worker) = (opened.table, opened.worker());
        let mut leaked = worker.begin(Mode::ReadWrite).expect("it begins");
        leaked.update(&table, 1, |row| row.set_count(1)).expect("no other transaction blocks it");
        std::mem::forget(leaked);
        let other = opened.clone();
        let (began, begun) = channel();
        let waiting = std::thread::spawn(move || {
            other.transact(|it| {
                let _ = began.send(());
                it.update(&table, 1, |row| row.set_count(row.count() + 2))
            })
        });
        begun.recv().expect("it begins");
        drop(worker);
        ends(move || assert!(waiting.join().expect("it does not panic").expect("it commits")));
        assert_eq!(opened.rows()[1].count, 2);
    }
}

/// Beside a client that does nothing, one waits for what it has locked: neither holds back what others retire.
fn memory_beside_a_waiter(waits: Body) {
    ends(move || {
        let opened = open(Policy::WoundWait, 8);
        let (mut idle, others) = (opened.worker(), opened.clone());
        let mut writer = idle.begin(Mode::ReadWrite).unwrap();
        writer.update(&opened.table, 5, |row| row.set_count(1)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || others.transact(|t| waits(t, &others.table, 0)).unwrap());
            while !opened.database.shared.locks.has_waiters() {
                std::thread::yield_now();
            }
            let (memory, table) = (opened.database.memory(), opened.table);
            let mut queue = |id: u64| {
                opened.transact(|t| t.insert(&table, &entry(100 + id))).unwrap();
                opened.transact(|t| t.delete(&table, 100 + id)).unwrap();
                memory.epochs().advance();
            };
            (0..200).for_each(&mut queue);
            let first = memory.statistics().used_bytes;
            (200..1200).for_each(&mut queue);
            let later = memory.statistics().used_bytes;
            assert!(later < first + 16_000, "{first} bytes became {later}");
            writer.commit().unwrap();
        });
    });
}

#[test]
fn a_wait_for_a_row_holds_nothing_back() {
    memory_beside_a_waiter(|t, table, _| t.update(table, 5, |row| row.set_count(2)).map(drop));
}

/// What it had collected before it waited is looked up again.
#[test]
fn a_wait_in_a_scan_holds_nothing_back() {
    memory_beside_a_waiter(|t, table, _| {
        let rows = t.scan(table, ..8).rows()?;
        assert_eq!(rows.iter().map(|row| (row.id, row.count)).collect::<Vec<_>>(), {
            let counts = (0..8).map(|id| (id, u64::from(id == 5)));
            counts.collect::<Vec<_>>()
        });
        Ok(())
    });
}

/// A huge transaction leaves short lists with little capacity.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn the_memory_of_a_huge_transaction_is_freed() {
    const ROWS: u64 = 2 * ROOM as u64;
    let opened = open(Policy::default(), ROWS);
    let mut worker = opened.worker();
    let table = opened.table;
    let mut huge = worker.begin(Mode::ReadWrite).unwrap();
    (0..ROWS).for_each(|id| assert!(huge.get(&table, id).unwrap().is_some()));
    huge.state.wanted.remember(huge.records.held(), None);
    assert!(huge.records.held().room() > ROOM && huge.state.wanted.room() > ROOM);
    huge.commit().unwrap();
    drive::transact(&mut worker, Mode::ReadWrite, &mut |t| t.get(&table, 1).map(drop)).unwrap();
    let rooms = [worker.records.held().room(), worker.state.wanted.room()];
    assert!(rooms.iter().all(|&room| room <= ROOM), "{rooms:?}");
}
