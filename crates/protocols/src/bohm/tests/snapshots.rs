//! What collection does beside snapshots that stay open: its steps, and what is held.

use std::collections::VecDeque;
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::sizes::scaled;
use polychron_engine::stores::for_each;
use polychron_engine::{
    Access, Common, Declare, Operations, Prefetch, Procedure, Protocol, Table, Transaction, Worker,
};
use polychron_memory::Guard;
use polychron_schema::{Key, KeyScratch, Row};

use crate::bohm::chain::{Chain, Head, Readers, Superseded};
use crate::bohm::collection::{Garbage, Horizon};
use crate::bohm::execution::Executor;
use crate::bohm::planned::{ClientBatches, Planned};
use crate::bohm::timestamp::Timestamp;
use crate::bohm::transaction::BohmTransaction;
use crate::bohm::version::{Fresh, Version};
use crate::bohm::worker::BohmWorker;
use crate::bohm::{Bohm, Options};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "item")]
struct Item {
    #[key]
    id: u64,
    count: i64,
}

const ROWS: u64 = 16;

/// One transaction of those that work beside snapshots.
#[derive(Clone, Copy)]
enum Work {
    /// Updates a row.
    Update(u64),
    /// Deletes the first row and inserts one behind the last.
    Advance(u64, u64),
}

struct Working(Table<Item>, Work);

impl Procedure for Working {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        match self.1 {
            Work::Update(id) => t.update(&self.0, id, |row| row.set_count(row.count() + 1)).map(drop),
            Work::Advance(first, next) => {
                assert_eq!(t.scan(&self.0, ..).limit(1).first(|row| row.id())?, Some(first));
                assert!(t.delete(&self.0, first)?);
                t.insert(&self.0, &Item { id: next, count: 0 })
            }
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let mut key = |id: u64, access| declaration.key(self.0.id(), id.encode(&mut KeyScratch::new()), access);
        match self.1 {
            Work::Update(id) => key(id, Access::Update),
            Work::Advance(first, next) => {
                key(first, Access::Write);
                key(next, Access::Write);
            }
        }
    }
}

/// A database with some rows, in one partition.
struct Stage {
    database: Arc<Bohm>,
    items: Table<Item>,
    worker: BohmWorker,
    first: u64,
    next: u64,
}

impl Stage {
    fn new() -> Self {
        let common = Common { memory: polychron_memory::Options::tiny(), ..Common::default() };
        let database = Bohm::open(Options { partitions: 1, ..Options::default() }, common).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let worker = database.worker().unwrap();
        let mut stage = Self { database, items, worker, first: 0, next: 0 };
        for id in 0..ROWS {
            stage.worker.execute(&mut Insert(items, id)).unwrap();
        }
        stage.next = ROWS;
        stage
    }

    fn update(&mut self, id: u64) {
        self.worker.execute(&mut Working(self.items, Work::Update(id))).unwrap();
    }

    fn advance(&mut self) {
        let work = Work::Advance(self.first, self.next);
        self.worker.execute(&mut Working(self.items, work)).unwrap();
        (self.first, self.next) = (self.first + 1, self.next + 1);
    }

    /// Steps of collection so far, and what it holds for snapshots.
    fn collected(&self) -> (usize, usize) {
        self.database.shared.partitions[0].garbage(|garbage| (garbage.steps, garbage.held()))
    }

    /// Keys in the index, and versions that are reached through it.
    fn reached(&self) -> (usize, usize) {
        let local = self.database.memory().register().unwrap();
        let guard = local.pin();
        let (_, tables) = self.database.shared.base.catalog.snapshot();
        let store = &polychron_engine::catalog::get(&tables, self.items.id()).unwrap().primary;
        let shared = &self.database.shared;
        let oldest = shared.snapshots.watermark(shared.pipeline.finished());
        let (mut keys, mut versions) = (0, 0);
        for_each(store.index(), &guard, &mut |_, handle| {
            keys += 1;
            // SAFETY: the handle was found under the guard.
            let chain: Chain<'_> = unsafe { Chain::from_handle(handle) };
            let mut next = chain.head().newest();
            while let Some(version) = next {
                versions += 1;
                // SAFETY: it is reached.
                let version = unsafe { version.get() };
                // What is below the oldest snapshot's version is not reached by anybody, and may be gone.
                next = if version.begin().batch() > oldest { version.below() } else { None };
            }
        });
        (keys, versions)
    }
}

struct Insert(Table<Item>, u64);

impl Procedure for Insert {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.insert(&self.0, &Item { id: self.1, count: 0 })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), self.1.encode(&mut KeyScratch::new()), Access::Insert);
    }
}

fn open<'h>(stage: &'h Bohm, executor: &'h mut Executor) -> BohmTransaction<'h> {
    let number = executor.local.worker_id().position();
    BohmTransaction::snapshot(&stage.shared, &mut executor.state, &executor.local, number)
}

/// What a snapshot sees.
fn rows(snapshot: &mut BohmTransaction<'_>, items: Table<Item>) -> Vec<Item> {
    snapshot.scan(&items, ..).rows().unwrap()
}

/// Transactions beside snapshots that stay open take as many steps of collection at the end as at the beginning, and what is held is a version
/// of each row for each snapshot; when they are over nothing is.
#[test]
fn idle_snapshots_cost_the_same_all_the_time() {
    let count = scaled(2000, 200);
    let works: [fn(&mut Stage, usize); 3] =
        [|stage, _| stage.update(0), |stage, number| stage.update(number as u64 % ROWS), |stage, _| stage.advance()];
    for (kind, work) in works.into_iter().enumerate() {
        let mut stage = Stage::new();
        let (database, items) = (Arc::clone(&stage.database), stage.items);
        let mut hands: Vec<_> = (0..3).map(|_| Executor::new(&database.shared).unwrap()).collect();
        let mut open: VecDeque<_> = VecDeque::new();
        for executor in &mut hands {
            (0..20).for_each(|number| work(&mut stage, number));
            let mut snapshot = self::open(&database, executor);
            let seen = rows(&mut snapshot, items);
            open.push_back((snapshot, seen));
        }
        let snapshots = open.len();
        for round in 0..4 {
            let (before, _) = stage.collected();
            (0..count).for_each(|number| work(&mut stage, number));
            let (steps, held) = stage.collected();
            assert!(steps - before <= 10 * count, "{} steps of {count} transactions, {kind} {round}", steps - before);
            // A version for each, and, of a queue, that the key is absent by now.
            assert!(held <= 2 * snapshots * ROWS as usize, "{held} held by {snapshots} snapshots, {kind} {round}");
            let (keys, versions) = stage.reached();
            assert!(keys <= (snapshots + 1) * ROWS as usize + 4, "{keys} keys, {kind} {round}");
            assert!(versions <= 2 * (snapshots + 1) * ROWS as usize + 8, "{versions} versions, {kind} {round}");
        }
        // They end in another order than they began in.
        while let Some((mut snapshot, seen)) = open.remove(open.len() / 2) {
            assert_eq!(rows(&mut snapshot, items), seen);
            drop(snapshot);
            work(&mut stage, 0);
        }
        stage.worker.maintain();
        stage.worker.maintain();
        let (_, held) = stage.collected();
        assert_eq!((held, stage.reached().0), (0, ROWS as usize));
    }
}

/// Transactions that scan a queue beside a snapshot pass over none of the rows that only the snapshot sees, of which there are ever more.
#[test]
fn queues_are_scanned_from_their_first_row() {
    let rows = scaled(400, 150) as u64;
    let mut stage = Stage::new();
    for id in ROWS..rows {
        stage.worker.execute(&mut Insert(stage.items, id)).unwrap();
    }
    stage.next = rows;
    let (database, items) = (Arc::clone(&stage.database), stage.items);
    let mut hands = [(); 2].map(|()| Executor::new(&database.shared).unwrap());
    let [first, second] = &mut hands;
    let mut first = open(&database, first);
    (0..rows / 2).for_each(|_| stage.advance());
    let mut second = open(&database, second);
    let seen = [rows_of(0..rows), rows_of(rows / 2..rows + rows / 2)];
    for _ in 0..4 {
        let before = stage.worker.executor.state.scanned;
        (0..rows / 4).for_each(|_| stage.advance());
        let scanned = stage.worker.executor.state.scanned - before;
        assert!(scanned as u64 <= 6 * (rows / 4), "{scanned} keys in {} scans", rows / 4);
        assert!(self::rows(&mut first, items) == seen[0] && self::rows(&mut second, items) == seen[1]);
        let backward = |snapshot: &mut BohmTransaction<'_>| snapshot.scan(&items, 10..).rev().rows().unwrap();
        assert!(backward(&mut first).into_iter().rev().eq(rows_of(10..rows)));
        let get = |snapshot: &mut BohmTransaction<'_>, id| snapshot.get(&items, id).unwrap().is_some();
        assert!(get(&mut first, 3) && !get(&mut second, 3) && get(&mut second, rows) && !get(&mut first, rows));
    }
    // A key that was displaced comes back, and goes again.
    for _ in 0..2 {
        stage.worker.execute(&mut Insert(items, 0)).unwrap();
        assert_eq!((self::rows(&mut first, items), self::rows(&mut second, items)), (seen[0].clone(), seen[1].clone()));
        let next = std::mem::replace(&mut stage.first, 0);
        stage.advance();
        stage.first = next;
        stage.update(stage.first);
    }
    drop(first);
    stage.update(stage.first);
    assert_eq!(self::rows(&mut second, items), seen[1]);
    drop(second);
    (0..2).for_each(|_| stage.worker.maintain());
    assert_eq!((stage.collected().1, stage.reached().0 as u64), (0, rows + 2));
}

/// Rows that are deleted, and displaced, while a snapshot goes along them are met once each, in their order.
#[test]
fn rows_that_go_during_a_scan_are_met() {
    let rows = scaled(800, 200) as u64;
    for backward in [false, true] {
        for pace in [1, 3] {
            let mut stage = Stage::new();
            for id in ROWS..rows {
                stage.worker.execute(&mut Insert(stage.items, id)).unwrap();
            }
            stage.next = rows;
            let (database, items) = (Arc::clone(&stage.database), stage.items);
            let mut executor = Executor::new(&database.shared).unwrap();
            let mut snapshot = open(&database, &mut executor);
            let mut met = Vec::new();
            let range = snapshot.scan(&items, ..);
            let range = if backward { range.rev() } else { range };
            let visited = range.for_each(|row| {
                met.push(row.id());
                (0..pace).for_each(|_| stage.advance());
            });
            visited.unwrap();
            if backward {
                met.reverse();
            }
            assert!(met.into_iter().eq(0..rows), "backward: {backward}, pace {pace}");
        }
    }
}

/// Rows as they were inserted.
fn rows_of(ids: std::ops::Range<u64>) -> Vec<Item> {
    ids.map(|id| Item { id, count: 0 }).collect()
}

/// What a snapshot has held is looked at in chunks when it is over, and no transaction waits for all of it.
#[test]
fn what_was_held_goes_bit_by_bit() {
    let many = scaled(6000, 1300) as u64;
    let mut stage = Stage::new();
    for id in ROWS..many {
        stage.worker.execute(&mut Insert(stage.items, id)).unwrap();
    }
    let database = Arc::clone(&stage.database);
    let mut executor = Executor::new(&database.shared).unwrap();
    let snapshot = open(&database, &mut executor);
    (0..many).for_each(|id| stage.update(id));
    let (_, held) = stage.collected();
    assert!(held as u64 > many - 8, "{held} versions of {many} rows are held");
    drop(snapshot);
    let mut left = held;
    while left > 0 {
        let (before, _) = stage.collected();
        stage.update(0);
        let (after, now) = stage.collected();
        assert!(after - before <= 1100, "{} steps beside one transaction", after - before);
        assert!(now < left, "{left} versions are held, and go no more");
        left = now;
    }
}

/// A snapshot is in no epoch between two operations, but while it has keys to read that it has asked for; even then not in the same one for long.
#[test]
fn snapshots_rest_between_operations() {
    let stage = Stage::new();
    let (database, items) = (Arc::clone(&stage.database), stage.items);
    let mut executor = Executor::new(&database.shared).unwrap();
    let mut snapshot = open(&database, &mut executor);
    let epochs = database.shared.base.memory.epochs();
    // Whether no thread stays in an epoch of before.
    let nobody_stays = || {
        let current = epochs.current();
        (0..2).for_each(|_| _ = epochs.advance());
        epochs.readonly() >= current
    };
    assert!(nobody_stays(), "it has begun, and does nothing");
    assert!(snapshot.get(&items, 1).unwrap().is_some() && nobody_stays());
    assert!(snapshot.scan(&items, ..).count().unwrap() == ROWS && nobody_stays());
    let mut scratch = KeyScratch::new();
    (0..200).for_each(|_| snapshot.prefetch_row(items.id(), 1_u64.encode(&mut scratch)));
    let stays: usize = (0..200)
        .map(|_| {
            assert!(snapshot.get(&items, 1).unwrap().is_some());
            usize::from(!nobody_stays())
        })
        .sum();
    assert!((1..200).contains(&stays), "it goes over to the present epoch from time to time: {stays}");
    assert!(nobody_stays(), "it has read all that it had asked for");
    assert!(snapshot.get(&items, 1).unwrap().is_some() && nobody_stays());
}

/// A leaked snapshot holds nothing once its worker begins something else.
#[test]
fn leaked_snapshots_hold_nothing() {
    let mut stage = Stage::new();
    let mut reader = stage.database.worker().unwrap();
    let number = reader.executor.local.worker_id().position();
    let Executor { local, state } = &mut reader.executor;
    std::mem::forget(BohmTransaction::snapshot(&stage.database.shared, state, local, number));
    assert!(!reader.executor.local.is_pinned(), "it rests");
    (0..ROWS).for_each(|id| stage.update(id));
    stage.worker.maintain();
    assert_eq!(stage.collected().1, ROWS as usize);
    reader.maintain();
    assert_eq!(stage.collected().1, 0);
}

/// A version that was inserted between two others is left to collection, with the one below, later than those above. These wait for it, so that the
/// version that superseded the one below is still there.
#[test]
fn versions_that_are_left_late_are_waited_for() {
    let memory = polychron_memory::Memory::new(polychron_memory::Options::tiny()).unwrap();
    let local = memory.register().unwrap();
    let head = Head::new();
    let client_batches = ClientBatches::default();
    let mut client_batch = client_batches.take();
    client_batch.add(0);
    let producer = client_batch.planned(0);
    fn make<'g>(producer: &Planned, batch: u64, guard: &'g Guard<'_>) -> Fresh<'g> {
        let mut version = producer.placeholder(Timestamp::new(batch, 0), 1, guard).unwrap();
        version.filling().put(&[batch], guard).unwrap();
        version.filling().finish(true);
        version
    }
    let guard = local.pin();
    let fresh = [1, 2, 4, 6, 8].map(|batch| make(producer, batch, &guard));
    let [oldest, _, late, above, newest] = fresh.each_ref().map(|version| version.raw());
    let [first, second, inserted, fourth, fifth] = fresh;
    // SAFETY: this thread alone has the chain.
    let (pushed, inserted) = unsafe {
        let pushed = [first, second, fourth, fifth].map(|version| head.push(version, Readers::Snapshots).unwrap());
        (pushed, head.insert(inserted).unwrap().expect("it is superseded"))
    };
    assert_eq!((inserted.version(), inserted.above(), inserted.batch()), (late, above, 6));
    let [None, Some(oldest_old), Some(middle_old), Some(above_old)] = pushed else {
        unreachable!("each push supersedes")
    };
    assert_eq!([&oldest_old, &middle_old, &above_old].map(Superseded::batch), [2, 6, 8]);
    let left_first = [inserted, above_old];
    // It was superseded before the late one was inserted above it.
    let left_late = [middle_old, oldest_old];
    drop(guard);
    let mut garbage = Garbage::default();
    garbage.horizon = Horizon { finished: 10, open: vec![1, 5] };
    let mut collect = |left: [Superseded; 2]| {
        garbage.superseded.extend(left);
        for _ in 0..4 {
            // SAFETY: this thread alone has the chain, and nothing reads it below the horizon.
            unsafe { garbage.collect(true, 10, &local.pin()) };
            memory.epochs().advance();
            local.collect();
        }
        // The memory that was freed is reused.
        let guard = local.pin();
        (0..8).for_each(|_| _ = make(producer, 9, &guard).keep());
        garbage.held()
    };
    assert_eq!(collect(left_first), 0);
    assert_eq!(collect(left_late), 2);
    // SAFETY: the snapshots are open, as far as collection knows.
    let seen = |batch| unsafe { head.at(Timestamp::end_of(batch)) };
    assert_eq!([1, 5, 10].map(|batch| seen(batch).map(Version::raw)), [Some(oldest), Some(late), Some(newest)]);
    assert_eq!([10, 5].map(|batch| seen(batch).and_then(Version::below)), [Some(late), Some(oldest)]);
}
