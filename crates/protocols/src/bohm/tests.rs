//! White-box tests; behaviour is tested in `crates/protocols/tests/bohm` and in the crate `check`.

mod snapshots;
mod waiting;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};

use polychron_base::{Error, IndexId};
use polychron_engine::{
    Access, Common, Declare, IndexDefinition, Operations, Procedure, Protocol, Scan, Table, Transaction, Worker,
};
use polychron_schema::{Key, KeyScratch, Row};
use polychron_sync::atomic::Ordering;

use super::execution::{Executor, ensure_complete};
use super::planned::OwnBatch;
use super::protocol::Shared;
use super::timestamp::Timestamp;
use super::transaction::BohmTransaction;
use super::{Bohm, Options};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "item")]
struct Item {
    #[key]
    id: u64,
    count: i64,
}

/// Inserts the item.
struct First(Table<Item>);

impl Procedure for First {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.insert(&self.0, &Item { id: 1, count: 0 })
    }
}

thread_local! {
    /// Procedures that run inside of one another, and how many there were at most.
    static DEPTH: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Increments; the first one of its batch has the last one executed before itself.
struct Link {
    items: Table<Item>,
    last: Option<(Arc<Shared>, usize)>,
    /// Bytes of stack that it uses.
    stack: usize,
}

/// Uses so many bytes of stack, however large the compiler makes a frame, and does something then.
fn use_stack<O>(bytes: usize, work: &mut dyn FnMut() -> O) -> O {
    fn below<O>(top: usize, bytes: usize, work: &mut dyn FnMut() -> O) -> O {
        let used = std::hint::black_box([1_u8; 8 << 10]);
        if top.saturating_sub(used.as_ptr().addr()) >= bytes {
            return work();
        }
        let outcome = below(top, bytes, work);
        assert_eq!(std::hint::black_box(&used)[bytes % used.len()], 1);
        outcome
    }
    let top = 0_u8;
    if bytes == 0 { work() } else { below((&raw const top).addr(), bytes, work) }
}

impl Procedure for Link {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
        if let Some((shared, position)) = &self.last {
            let mut executor = Executor::new(shared).unwrap();
            let batch = shared.pipeline.planned();
            // SAFETY: this is executed in a chunk of the batch.
            let client_batch = unsafe { shared.pipeline.client_batches(batch) }[0].keep();
            let timestamp = Timestamp::new(batch, *position);
            assert!(ensure_complete(
                shared,
                &mut executor.state,
                &executor.local,
                client_batch.planned(*position),
                timestamp
            ));
            return Ok(0);
        }
        let (depth, most) = DEPTH.get();
        DEPTH.set((depth + 1, most.max(depth + 1)));
        let mut answer = 0;
        let mut update = || {
            t.update(&self.items, 1, |row| {
                answer = row.count() + 1;
                row.set_count(answer);
            })
        };
        let updated = use_stack(self.stack, &mut update);
        DEPTH.set((depth, DEPTH.get().1));
        updated.map(|_| answer)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        if self.last.is_none() {
            declaration.key(self.items.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
        }
    }
}

/// Executes a chain of transactions, from its end, and answers how many ran inside of one another.
fn run_chain(links: usize, stack: usize) -> usize {
    let common = Common { memory: polychron_memory::Options::tiny(), ..Common::default() };
    let database = Bohm::open(Options { batch_size: links + 1, ..Options::default() }, common).unwrap();
    let items = Table::from_id(database.create_table(Item::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    worker.execute(&mut First(items)).unwrap();
    let link = |last| Link { items, last, stack };
    let mut chain = vec![link(Some((Arc::clone(&database.shared), links)))];
    chain.extend((0..links).map(|_| link(None)));
    let mut answers = vec![0; chain.len()];
    worker.execute_batch(&mut chain, &mut |position, answer| answers[position] = answer.unwrap());
    assert_eq!(answers, (0..=links as i64).collect::<Vec<_>>());
    let (left, most) = DEPTH.replace((0, 0));
    assert_eq!(left, 0);
    most
}

#[test]
fn recursion_is_bounded() {
    let most = run_chain(polychron_base::sizes::scaled(500, 40), 0);
    assert!((20..=33).contains(&most), "{most} procedures ran inside of one another");
}

/// Procedures that use much stack run inside of one another only as far as it lasts.
#[test]
#[cfg_attr(miri, ignore = "an interpreter's stack is not the system's")]
fn recursion_is_bounded_by_the_stack() {
    let run = |size: usize, used: usize| {
        let thread = std::thread::Builder::new().stack_size(size);
        thread.spawn(move || run_chain(50, used)).unwrap().join().unwrap()
    };
    for used in [128 << 10, 512 << 10, 1400 << 10] {
        let most = run(2 << 20, used);
        assert!(most < 16, "{most} procedures ran inside of one another, each with {used} bytes of stack");
    }
    assert!(run(16 << 20, 128 << 10) > 16, "there is stack for more");
}

/// Deletes the item.
struct Last(Table<Item>);

impl Procedure for Last {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
        t.delete(&self.0, 1)
    }
}

/// A snapshot finds the version of the deletion just before its chain is closed and leaves the index, and reads it just after:
/// until then the version's memory is not reused, and then it is.
#[test]
fn absent_versions_outlive_who_found_their_chains() {
    let common = Common { memory: polychron_memory::Options::tiny(), ..Common::default() };
    let database = Bohm::open(Options { partitions: 1, ..Options::default() }, common).unwrap();
    let items: Table<Item> = Table::from_id(database.create_table(Item::definition()).unwrap());
    let mut writer = database.worker().unwrap();
    writer.execute(&mut First(items)).unwrap();
    assert!(writer.execute(&mut Last(items)).unwrap());
    let mut reader = Executor::new(&database.shared).unwrap();
    let number = reader.local.worker_id().position();
    let mut snapshot = BohmTransaction::snapshot(&database.shared, &mut reader.state, &reader.local, number);
    let mut scratch = KeyScratch::new();
    let key = 1_u64.encode(&mut scratch);
    let store = Arc::clone(&snapshot.state.tables.table(items.id()).unwrap().primary);
    // As within an operation.
    snapshot.wake();
    let absent =
        store.find(key, &snapshot.guard).and_then(|chain| chain.head().newest()).expect("the index leads to it");
    // The first time takes it out, the second time gives the version back.
    (0..2).for_each(|_| writer.maintain());
    assert!(store.find(key, &snapshot.guard).is_none(), "it has left the index");
    // Whether one of so many versions reuses its memory.
    let reuses = |writer: &super::worker::BohmWorker, versions: usize| {
        let guard = writer.executor.local.pin();
        let client_batch = one_transaction(&database.shared);
        let producer = client_batch.planned(0);
        let allocate = |_| producer.placeholder(Timestamp::new(9, 0), store.row_words, &guard).unwrap();
        let versions: Vec<_> = (0..versions).map(allocate).collect();
        let found = versions.iter().any(|version| version.raw() == absent);
        versions.into_iter().for_each(|version| version.free(&guard));
        found
    };
    assert!(!reuses(&writer, 100), "a snapshot may come to it");
    drop(snapshot);
    for _ in 0..4 {
        database.shared.base.memory.epochs().advance();
        writer.maintain();
    }
    // More than there were before, all of whose blocks are free.
    assert!(reuses(&writer, 1000), "no thread comes to it");
}

/// A client batch with one transaction, which is not handed in.
fn one_transaction(shared: &Shared) -> OwnBatch {
    let mut client_batch = shared.client_batches.take();
    client_batch.add(0);
    client_batch
}

/// Waits until something is so, which it will be.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let tries = 30_000;
    let found = (0..tries).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        is_so()
    });
    assert!(found, "{what}");
}

/// Blocks until the test lets it go on.
struct Blocked {
    items: Table<Item>,
    goes_on: std::sync::mpsc::Receiver<()>,
}

impl Procedure for Blocked {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.goes_on.recv_timeout(std::time::Duration::from_secs(60)).expect("the test lets it go on");
        t.update(&self.items, 1, |row| row.set_count(5)).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.items.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
    }
}

/// Threads that have nothing to do sleep, and are woken: those of the stages, and clients that wait for others.
#[test]
#[cfg_attr(miri, ignore = "an interpreter runs its threads too slowly")]
fn who_waits_sleeps() {
    let staged = Options { concurrency_control_threads: 1, execution_threads: 1, ..Options::default() };
    for options in [Options::default(), staged] {
        let takes_turns = options.execution_threads == 0;
        let common = Common { memory: polychron_memory::Options::tiny(), ..Common::default() };
        let database = Bohm::open(options, common).unwrap();
        let shared = &database.shared;
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let mut worker = database.worker().unwrap();
        worker.execute(&mut First(items)).unwrap();
        let stages_sleep = || shared.planning.has_some() && shared.executing.has_some();
        if !takes_turns {
            until("threads without work sleep", stages_sleep);
        }
        let before = shared.pipeline.planned();
        let (end, goes_on) = std::sync::mpsc::channel();
        let clients = std::thread::scope(|scope| {
            let [mut first, mut second] = [database.worker().unwrap(), database.worker().unwrap()];
            let blocked = scope.spawn(move || worker.execute(&mut Blocked { items, goes_on }).unwrap());
            until("it is under way", || shared.pipeline.planned() > before);
            let first = scope.spawn(move || first.execute(&mut Last(items)).unwrap());
            let second = scope.spawn(move || second.execute(&mut Last(items)).unwrap());
            if takes_turns {
                until("clients that wait sleep", || shared.executing.has_some());
            }
            end.send(()).unwrap();
            blocked.join().unwrap();
            [first.join().unwrap(), second.join().unwrap()]
        });
        assert!(clients[0] != clients[1], "one of them finds the row");
        assert!(!takes_turns || shared.longest_wait_us.load(Ordering::Relaxed) > 0, "the wait is reported");
        if !takes_turns {
            until("threads without work sleep again", stages_sleep);
        }
    }
}

/// Writes the item, once it is told to go on.
struct Held {
    items: Table<Item>,
    began: mpsc::Sender<()>,
    goes_on: mpsc::Receiver<()>,
}

impl Procedure for Held {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.began.send(()).unwrap();
        self.goes_on.recv().unwrap();
        t.update(&self.items, 1, |row| row.set_count(7)).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.items.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Write);
    }
}

/// Lets the other one go on, and counts by the index when it is there.
struct CountByIndex {
    items: Table<Item>,
    end: mpsc::Sender<()>,
    is_made: mpsc::Receiver<()>,
}

impl Procedure for CountByIndex {
    type Output = usize;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<usize, Error> {
        self.end.send(()).unwrap();
        self.is_made.recv().unwrap();
        let (scan, mut count) = (Scan { index: IndexId(1), ..Scan::all(self.items.id()) }, 0);
        t.scan_rows(&scan, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// The filling comes right behind the reader in one batch, and has ended when that asks.
#[test]
fn an_index_is_not_there_before_its_filling() {
    let memory = polychron_memory::Options { max_workers: 100, ..polychron_memory::Options::tiny() };
    let database = Bohm::open(Options::default(), Common { memory, ..Common::default() }).unwrap();
    let items: Table<Item> = Table::from_id(database.create_table(Item::definition()).unwrap());
    database.worker().unwrap().execute(&mut First(items)).unwrap();
    let planned = || database.shared.pipeline.planned();
    let answer = Mutex::new(None);
    std::thread::scope(|scope| {
        let ((began, has_begun), (end, goes_on), (made, is_made)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let (mut writer, mut reader) = (database.worker().unwrap(), database.worker().unwrap());
        scope.spawn(move || writer.execute(&mut Held { items, began, goes_on }).unwrap());
        has_begun.recv().unwrap();
        let before = planned();
        let mut count = [CountByIndex { items, end, is_made }];
        let done = |_, counted| *answer.lock().unwrap() = Some(counted);
        reader.execute_batch_with(&mut count, &done, |_| {
            let database = &database;
            scope.spawn(move || {
                database.create_index(items.id(), IndexDefinition::new("by_count", [1])).unwrap();
                made.send(()).unwrap();
            });
            while planned() == before {
                std::thread::yield_now();
            }
        });
    });
    let answer = answer.into_inner().unwrap();
    assert!(matches!(answer, Some(Err(Error::NoSuchIndex(..)))), "{answer:?}");
}
