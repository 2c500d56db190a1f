//! Every interleaving of two threads in BOHM's words, under loom: the state of a transaction, the log of batches and its low watermark,
//! chains that are added to at both ends, lists of intents, snapshots beside collection, and answers that helpers give.

mod chains;
mod notices;

use std::sync::{Arc, Mutex, OnceLock};

use polychron_memory::{Guard, Memory, Options};
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::model::explore;
use polychron_sync::thread;

use polychron_memory::model::beside;
use polychron_sync::model::Witness;

use super::chain::{Head, Readers};
use super::execution::LAST;
use super::parking::{ParkTime, ParkedThreads, ThreadParker};
use super::pipeline::{PartitionProgress, Pipeline, RING};
use super::planned::{ClientBatches, HandedIn, OwnBatch, Planned, Progress};
use super::protocol::Snapshots;
use super::timestamp::Timestamp;
use super::version::{RawVersion, State, Version};

/// Runs threads beside each other on one thing, and then `after`.
fn each<T: Send + Sync + 'static, const N: usize>(thing: Arc<T>, works: [fn(&T); N], after: fn(&T)) {
    let threads = works.map(|work| {
        let thing = Arc::clone(&thing);
        thread::spawn(move || work(&thing))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    after(&thing);
}

/// Runs two of them.
fn both<T: Send + Sync + 'static>(thing: T, left: fn(&T), right: fn(&T), after: fn(&T)) {
    each(Arc::new(thing), [left, right], after);
}

/// The timestamp of the only transaction of a batch.
fn timestamp(batch: u64) -> Timestamp {
    Timestamp::new(batch, 0)
}

/// A transaction that was not executed yet.
fn planned(timestamp: Timestamp) -> Planned {
    Planned::alone(timestamp)
}

/// A transaction, and what is done in its runs.
struct Run {
    planned: Planned,
    done: Witness,
}

impl Run {
    fn new() -> Self {
        Self { planned: planned(timestamp(1)), done: Witness::default() }
    }

    /// Has it executed, by this thread or another one. The first `attempts` of this thread are handed back.
    fn complete(&self, mut attempts: u32) {
        while self.planned.progress(timestamp(1)) != Progress::Complete {
            let Some(executing) = self.planned.claim(timestamp(1)) else {
                thread::yield_now();
                continue;
            };
            self.done.write();
            if attempts == 0 {
                executing.complete(false);
            } else {
                attempts -= 1;
                executing.hand_back();
            }
        }
        assert!((1..4).contains(&self.done.read()));
    }
}

/// One of two threads executes a transaction, and the other one finds what it did.
#[test]
fn a_transaction_is_executed_once() {
    let complete = |run: &Run| run.complete(0);
    explore(3, move || both(Run::new(), complete, complete, |run| assert_eq!(run.done.read(), 1)));
}

/// The thread that executes a transaction finds what an attempt left that was handed back.
#[test]
fn what_is_handed_back_is_found() {
    explore(3, || both(Run::new(), |run| run.complete(1), |run| run.complete(0), |run| assert!(run.done.read() <= 2)));
}

/// A thread that comes too late to a transaction finds that its memory has been reused, and does not execute the other one.
#[test]
fn memory_that_serves_again_is_not_mistaken() {
    explore(3, || {
        both(
            Run::new(),
            |run| {
                run.complete(0);
                // SAFETY: it was executed.
                unsafe { run.planned.set_timestamp(timestamp(2)) };
            },
            |run| {
                if let Some(executing) = run.planned.claim(timestamp(1)) {
                    run.done.write();
                    executing.complete(false);
                }
            },
            |run| assert_eq!((run.done.read(), run.planned.progress(timestamp(2))), (1, Progress::Unprocessed)),
        );
    });
}

/// A placeholder, its transaction, and the row that loom sees.
#[derive(Clone, Copy)]
struct Placeholder {
    version: RawVersion,
    run: &'static Run,
}

impl Placeholder {
    fn new(guard: &Guard<'_>) -> Self {
        let run = Box::leak(Box::new(Run::new()));
        let version = run.planned.placeholder(timestamp(1), 2, guard).expect("memory is there");
        Self { version: version.keep(), run }
    }

    /// Reads the row, as a reader does: executes the transaction, or waits for it.
    fn read(self, guard: &Guard<'_>) {
        // SAFETY: it stays for the whole model.
        let version: Version<'_> = unsafe { self.version.get() };
        while let State::Pending(_) = version.state() {
            let Some(executing) = self.run.planned.claim(timestamp(1)) else {
                thread::yield_now();
                continue;
            };
            self.run.done.write();
            // SAFETY: it is the only one.
            let mut filling = unsafe { version.fill(&executing) }.expect("it is pending");
            filling.put(&[7, 8], guard).expect("the row has room");
            filling.finish(true);
            executing.complete(false);
        }
        let State::Row(row) = version.state() else { unreachable!("it was filled") };
        assert_eq!((row.words(), self.run.done.read()), (&[7, 8][..], 1));
    }

    fn free(self) {
        // SAFETY: it was leaked when it was made, and no thread is left that knows it.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.run).cast_mut()) });
    }
}

/// A version is filled once, and a reader finds the row, as soon as there is one.
#[test]
fn a_version_is_filled_once() {
    explore(3, || beside(Placeholder::new, |p, guard| p.read(guard), |p, guard| p.read(guard), |p, _| p.free()));
}

/// A log, and for each batch what is done with it.
struct Log {
    pipeline: Pipeline,
    progress: Vec<Mutex<PartitionProgress>>,
    planned: [Witness; 2],
    /// Of each batch its transactions, two at most.
    executed: Vec<[Witness; 2]>,
    /// Those that are not handed in, and those that are.
    own: Vec<Mutex<Option<OwnBatch>>>,
    handed_in: Vec<OnceLock<HandedIn>>,
    counts: Vec<usize>,
    /// Keeps the transactions.
    _kept: ClientBatches,
}

impl Log {
    /// A log with a closed batch for each number: so many transactions.
    fn new(partitions: usize, counts: &[usize]) -> Self {
        let (pipeline, progress) = Pipeline::new(1, partitions);
        let progress = progress.into_iter().map(Mutex::new).collect();
        let kept = ClientBatches::default();
        let own = counts.iter().map(|&count| Mutex::new(Some(client_batch(&kept, count)))).collect();
        let handed_in = counts.iter().map(|_| OnceLock::new()).collect();
        let executed = counts.iter().map(|_| Default::default()).collect();
        let counts = counts.to_vec();
        Self { pipeline, progress, planned: Default::default(), executed, own, handed_in, counts, _kept: kept }
    }

    /// Hands the client batch of a batch in, and closes the batch.
    fn close(&self, batch: u64) {
        let own = self.own[batch as usize - 1].lock().expect("no thread panics").take();
        let handed_in = hand_in(&self.pipeline, own.expect("it is handed in once"));
        self.handed_in[batch as usize - 1].set(handed_in).expect("it is handed in once");
        // The client of the batch before learns of its end earlier than the log.
        while !self.pipeline.sequence(false) {
            thread::yield_now();
        }
        assert_eq!(self.pipeline.sequenced(), batch);
    }

    /// Plans the next batch for a partition.
    fn plan(&self, partition: usize) {
        let mut progress = self.progress[partition].lock().expect("no thread panics");
        assert!(self.pipeline.plan_next(&mut progress, |_, _, _| ()), "there is a batch to plan");
    }

    /// Executes a chunk, if there is one.
    fn execute(&self) -> bool {
        let Some(chunk) = self.pipeline.claim(LAST) else { return false };
        self.planned.iter().for_each(|witness| _ = witness.read());
        self.pipeline.for_each(&chunk, |client_batch, position, timestamp| {
            let planned = client_batch.planned(position);
            let executing = planned.claim(timestamp).expect("a transaction is in one chunk");
            self.executed[timestamp.batch() as usize - 1][position].write();
            executing.complete(false);
        });
        self.pipeline.end_execution(chunk);
        true
    }

    /// Waits until a client batch is back.
    fn await_client_batch(&self, batch: u64) {
        let handed_in = self.handed_in[batch as usize - 1].get().expect("it was handed in");
        while !handed_in.is_executed() {
            if !self.execute() {
                thread::yield_now();
            }
        }
        self.assert_executed(batch);
    }

    fn assert_executed(&self, batch: u64) {
        let count = self.counts[batch as usize - 1];
        self.executed[batch as usize - 1][..count].iter().for_each(|executed| assert_eq!(executed.read(), 1));
    }
}

fn hand_in(log: &Pipeline, client_batch: OwnBatch) -> HandedIn {
    // SAFETY: it has neither a job nor entries.
    unsafe { log.hand_in(client_batch) }
}

fn client_batch(kept: &ClientBatches, count: usize) -> OwnBatch {
    let mut client_batch = kept.take();
    (0..count).for_each(|_| _ = client_batch.add(0));
    client_batch
}

/// Two threads plan a partition each. Executors find all placeholders, and the client finds what was executed.
#[test]
fn a_batch_is_known_when_it_is_planned() {
    fn work(log: &Log, partition: usize) {
        log.planned[partition].write();
        log.plan(partition);
        log.await_client_batch(1);
    }
    explore(2, || {
        let log = Log::new(2, &[1]);
        log.close(1);
        both(log, |log| work(log, 0), |log| work(log, 1), |log| assert_eq!(log.pipeline.finished(), 1));
    });
}

/// A thread that looks for work while the slot of a batch is reused takes nothing of either batch that others have.
#[test]
fn chunks_belong_to_one_batch() {
    explore(2, || {
        let counts: Vec<usize> = (0..=RING as usize).map(|behind| if behind < RING as usize { 1 } else { 2 }).collect();
        let log = Log::new(1, &counts);
        log.close(1);
        log.plan(0);
        both(
            log,
            |log| {
                log.await_client_batch(1);
                for batch in 2..=log.counts.len() as u64 {
                    log.close(batch);
                    log.plan(0);
                    log.await_client_batch(batch);
                }
            },
            |log| _ = log.execute(),
            |log| (1..=log.counts.len() as u64).for_each(|batch| log.assert_executed(batch)),
        );
    });
}

/// Two threads share a batch: one that finds it finished finds what both did.
#[test]
fn what_is_finished_was_executed() {
    fn work(log: &Log) {
        while log.execute() {}
        if log.pipeline.finished() == 1 {
            log.assert_executed(1);
        }
    }
    explore(3, || {
        let log = Log::new(1, &[2]);
        log.close(1);
        log.plan(0);
        both(log, work, work, |log| assert_eq!(log.pipeline.finished(), 1));
    });
}

/// Two threads come to the end of a batch each: the low watermark is behind both.
#[test]
fn the_watermark_stops_before_nothing() {
    explore(3, || {
        let log = Log::new(1, &[1, 1]);
        for batch in [1, 2] {
            log.close(batch);
            log.plan(0);
        }
        let execute = |log: &Log| assert!(log.execute());
        both(log, execute, execute, |log| assert_eq!(log.pipeline.finished(), 2, "the batches are complete"));
    });
}

/// A thread that looks for work and sleeps, and one that publishes work and wakes, do not miss one another.
#[test]
fn no_sleeper_is_forgotten() {
    explore(3, || {
        let room = (ParkedThreads::default(), AtomicUsize::new(0));
        both(
            room,
            |(parked, work)| {
                while work.load(Ordering::Relaxed) == 0 {
                    parked.sleep(&Arc::default(), || match work.load(Ordering::Relaxed) {
                        0 => ParkTime::UntilWoken,
                        _ => ParkTime::None,
                    });
                }
            },
            |(parked, work)| {
                work.store(1, Ordering::Relaxed);
                parked.wake_one();
            },
            |(parked, _)| assert!(!parked.has_some()),
        );
    });
}

/// A client that sleeps is woken when its client batch is back.
#[test]
fn a_client_is_woken_for_its_client_batch() {
    explore(3, || {
        let kept = ClientBatches::default();
        let client_batch = hand_in(&Pipeline::new(1, 1).0, client_batch(&kept, 1));
        each(
            Arc::new(client_batch),
            [
                |client_batch| {
                    let parker = Arc::<ThreadParker>::default();
                    while !client_batch.is_executed() {
                        client_batch.await_with(&parker, || {
                            let is_back = || client_batch.is_executed();
                            let nap = || if is_back() { ParkTime::None } else { ParkTime::UntilWoken };
                            ParkedThreads::default().sleep(&parker, nap);
                        });
                    }
                },
                // SAFETY: it counts for the one that is to be executed.
                |client_batch| unsafe { client_batch.end(1) },
            ],
            |_| (),
        );
    });
}

/// A log whose last batch is about to end, the snapshots that are open, and a version that this batch supersedes.
struct Reading {
    log: Log,
    snapshots: Snapshots,
    superseded: Witness,
}

impl Reading {
    fn read(&self) {
        let batch = self.snapshots.open(0, &self.log.pipeline, 0);
        if batch == 0 {
            self.superseded.read();
        }
        self.snapshots.close(0);
    }

    /// Frees the version if no snapshot sees it.
    fn collect(&self) {
        if self.snapshots.watermark(self.log.pipeline.finished()) >= 1 {
            self.superseded.write();
        }
    }
}

/// A version is freed only when no snapshot sees it, and none will.
#[test]
fn snapshots_keep_what_they_see() {
    explore(3, || {
        let log = Log::new(1, &[1]);
        log.close(1);
        log.plan(0);
        let reading = Reading { log, snapshots: Snapshots::new(1), superseded: Witness::default() };
        both(
            reading,
            |reading| {
                assert!(reading.log.execute());
                reading.collect();
            },
            |reading| {
                reading.read();
                reading.read();
            },
            |reading| assert_eq!(reading.snapshots.watermark(1), 1, "no snapshot is open"),
        );
    });
}

/// A list of intents, of batches 1 and 2, and what the runs of their transactions did.
struct Listed {
    head: Head,
    runs: [Run; 2],
}

impl Listed {
    fn new(guard: &Guard<'_>) -> Arc<Self> {
        let run = |batch| Run { planned: planned(timestamp(batch)), done: Witness::default() };
        let intents = Arc::new(Self { head: Head::new(), runs: [run(1), run(2)] });
        for (batch, run) in (1..).zip(&intents.runs) {
            let version = run.planned.placeholder(timestamp(batch), 0, guard).expect("memory is there");
            // SAFETY: no other thread has the list.
            unsafe { intents.head.push(version, Readers::Below) }.expect("the list is open");
        }
        intents
    }

    /// Executes the transaction of a batch, as a reader that needs it does.
    fn execute(&self, batch: u64) {
        let run = &self.runs[batch as usize - 1];
        if let Some(executing) = run.planned.claim(timestamp(batch)) {
            run.done.write();
            // SAFETY: the versions of the list stay for the whole model, and this is the only one that is filled.
            let filling = unsafe { self.head.at(timestamp(batch)).expect("it was put there").fill(&executing) };
            filling.expect("it is pending").finish(false);
            executing.complete(false);
        }
        while run.planned.progress(timestamp(batch)) != Progress::Complete {
            thread::yield_now();
        }
    }

    /// Waits for all before a batch, and finds what they did.
    fn read(&self, batch: u64) {
        let mut wait = |_: &Planned, at: Timestamp| {
            self.execute(at.batch());
            Ok(())
        };
        // SAFETY: the versions of the list stay for the whole model.
        let waited = unsafe { self.head.await_pending(timestamp(batch), 0, &mut wait) };
        waited.expect("no thread gives up");
        self.runs[..batch as usize - 1].iter().for_each(|run| assert_eq!(run.done.read(), 1));
    }
}

/// A thread that finds an intent noted as the last of complete ones has seen what all below it did, though it waited for none of them itself.
#[test]
fn who_waited_for_all_says_so_for_others() {
    explore(1, || {
        let memory = Memory::new(Options { max_workers: 1, ..Options::tiny() }).expect("sound options");
        let local = memory.register().expect("a slot is free");
        let guard = local.pin();
        let intents = Listed::new(&guard);
        each(Arc::clone(&intents), [|list| list.execute(1), |list| list.read(3), |list| list.read(3)], |_| ());
        drop(guard);
    });
}
