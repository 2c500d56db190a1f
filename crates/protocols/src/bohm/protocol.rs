//! The database as a whole: tables, the pipeline, and the threads that do nothing but one stage of it.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::futures::Attempt;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::{self, Order};
use polychron_engine::stores::{Base, StoreDefinition, StoreProtocol};
use polychron_engine::{Common, Metric, MetricValue, TableDefinition};
use polychron_memory::Local;
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::thread::{self, JoinHandle};
use polychron_sync::{CachePadded, publish};

use super::chain::Head;
use super::collection::Horizon;
use super::dropped::Dropped;
use super::execution::{Executor, LAST};
use super::executors::Executors;
use super::leftovers::Leftovers;
use super::notices::Notices;
use super::options::Options;
use super::parking::{ParkTime, ParkedThreads};
use super::pipeline::Pipeline;
use super::plan::Partition;
use super::planned::ClientBatches;
use super::steps::Step;
use super::table::BohmStore;
use super::timestamp::Timestamp;
use super::worker::BohmWorker;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<BohmStore>,
    pub(super) options: Options,
    pub(super) pipeline: Pipeline,
    pub(super) executors: Executors,
    pub(super) partitions: Box<[CachePadded<Partition>]>,
    /// A placeholder for each transaction that may write anything.
    pub(super) everything: Head,
    pub(super) client_batches: ClientBatches,
    pub(super) snapshots: Snapshots,
    /// Stores of tables and indexes that are there no more.
    pub(super) dropped: Dropped,
    /// Chunks that no thread executes.
    pub(super) leftovers: Leftovers,
    /// Clients whose answers any thread may give.
    pub(super) notices: Notices,
    /// Threads that sleep until there is something to execute; where clients take turns, until there is anything to do.
    pub(super) executing: ParkedThreads,
    /// Threads that do nothing but plan, and sleep.
    pub(super) planning: ParkedThreads,
    /// Which threads run procedures.
    pub(super) running: Running,
    pub(super) acknowledged: Acknowledged,
    /// The longest time that a client waited for answers with nothing else to do, in microseconds.
    pub(super) longest_wait_us: AtomicU64,
    /// The thread that drives a transaction interactively; those after it wait for it.
    pub(super) driver: AtomicU64,
    stopping: AtomicBool,
}

/// The batches that snapshots read up to (§3.3.2 knows none: they are read-only transactions that need no log position).
#[derive(Debug)]
pub(super) struct Snapshots {
    open: AtomicUsize,
    /// Per worker: the snapshot's batch plus one, or zero.
    batches: Box<[CachePadded<AtomicU64>]>,
    /// The highest batch below which versions may have been freed.
    collected: AtomicU64,
}

impl Snapshots {
    pub(super) fn new(workers: usize) -> Self {
        let batches = (0..workers).map(|_| CachePadded::default()).collect();
        Self { open: AtomicUsize::new(0), batches, collected: AtomicU64::new(0) }
    }

    /// Opens a snapshot of the last finished batch, or of a later one that is planned: what it sees stays until it is closed.
    pub(super) fn open(&self, worker: usize, pipeline: &Pipeline, at_least: u64) -> u64 {
        self.open.fetch_add(1, Ordering::Relaxed);
        loop {
            let batch = pipeline.finished().max(at_least);
            // Barrier: a thread that opens publishes that and then reads what is collected, one that collects publishes that and then reads
            // what is open (`watermark`); one of them sees the other.
            publish(&self.batches[worker], batch + 1);
            // Acquire: what is seen of the collector's batches is at least as late.
            if self.collected.load(Ordering::Acquire) <= batch {
                return batch;
            }
        }
    }

    /// Closes the worker's snapshot, if it has one.
    pub(super) fn close(&self, worker: usize) {
        if self.batches[worker].load(Ordering::Relaxed) > 0 {
            self.batches[worker].store(0, Ordering::Release);
            self.open.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether the worker has a snapshot open, for that worker.
    #[inline]
    pub(super) fn is_open(&self, worker: usize) -> bool {
        self.batches[worker].load(Ordering::Relaxed) > 0
    }

    /// Versions superseded up to this batch are invisible to every snapshot.
    pub(super) fn watermark(&self, finished: u64) -> u64 {
        self.older_than(finished).fold(finished, u64::min)
    }

    /// The open snapshots that are older than a finished batch. One that is not among them, or is opened later, is of that batch or of a later
    /// one.
    pub(super) fn older_than(&self, finished: u64) -> impl Iterator<Item = u64> {
        // Release: pairs with the acquire in `open`, which then finds this batch finished.
        polychron_sync::raise(&self.collected, finished, Ordering::Release);
        // SeqCst: pairs with the barrier in `open`.
        fence(Ordering::SeqCst);
        // Acquire, here and below: pairs with the releases in `close`; what a snapshot read was read before it is freed.
        let any = self.open.load(Ordering::Acquire) > 0;
        let batches = if any { &*self.batches } else { &[] };
        let batches = batches.iter().filter_map(|batch| batch.load(Ordering::Acquire).checked_sub(1));
        batches.filter(move |&batch| batch < finished)
    }
}

/// The last batch that was acknowledged to some client.
#[derive(Debug, Default)]
pub(super) struct Acknowledged(CachePadded<AtomicU64>);

impl Acknowledged {
    /// A client is about to get answers of this batch: snapshots that begin from now on have it.
    #[inline]
    pub(super) fn raise(&self, batch: u64) {
        // Relaxed: this thread looks at what it has put there itself, or at something later.
        if self.0.load(Ordering::Relaxed) < batch {
            // Release: pairs with the acquire below; the batch was planned before.
            polychron_sync::raise(&self.0, batch, Ordering::Release);
        }
    }

    /// The last batch that a snapshot must have.
    pub(super) fn batch(&self) -> u64 {
        // Acquire: pairs with the release above.
        self.0.load(Ordering::Acquire)
    }
}

/// For each worker the thread that runs procedures by it, so that calls of such a procedure can be distinguished from those of others.
#[derive(Debug)]
pub(super) struct Running {
    threads: Box<[CachePadded<AtomicU64>]>,
}

impl Running {
    fn new(workers: usize) -> Self {
        Self { threads: (0..workers).map(|_| CachePadded::default()).collect() }
    }

    /// The calling thread runs procedures by this worker.
    #[inline]
    pub(super) fn enter(&self, worker: usize) {
        // Relaxed, here and below: a thread looks for itself only.
        self.threads[worker].store(polychron_sync::this_thread(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn leave(&self, worker: usize) {
        self.threads[worker].store(0, Ordering::Relaxed);
    }

    /// Whether the calling thread runs a procedure.
    pub(super) fn has_this_thread(&self) -> bool {
        let this = polychron_sync::this_thread();
        self.threads.iter().any(|thread| thread.load(Ordering::Relaxed) == this)
    }
}

impl Shared {
    /// Whether there is something to do for a thread that executes: where clients take turns, for one that does anything.
    fn can_execute(&self) -> bool {
        (self.pipeline.has_chunk(LAST) || self.leftovers.has_ready()) && self.executors.enter(false).is_some()
    }

    /// Whether there is something to do for a thread that plans.
    fn can_plan(&self) -> bool {
        self.pipeline.planned() < self.pipeline.sequenced() || self.pipeline.can_sequence(true)
    }

    /// Whether there is something to do for a client that takes turns.
    pub(super) fn can_take_turn(&self) -> bool {
        self.takes_turns() && (self.can_execute() || self.can_plan())
    }

    /// Whether the calling thread is inside of a transaction of this database: what comes later in the log waits for it.
    pub(super) fn is_inside(&self) -> bool {
        self.driver.load(Ordering::Relaxed) == polychron_sync::this_thread()
            || Attempt::is_running() && self.running.has_this_thread()
    }

    /// Wakes a client to take turns, because the caller does so no more.
    pub(super) fn hand_over(&self) {
        if self.executing.has_some() && self.can_take_turn() {
            self.executing.wake_one();
        }
    }

    /// Lets a thread of one stage sleep until there is something to do, or the database is closed.
    fn sleep(&self, executor: &mut Executor, plans: bool) {
        let (parked, parker) =
            (if plans { &self.planning } else { &self.executing }, Arc::clone(&executor.state.parker));
        parked.sleep(&parker, || {
            if self.stopping.load(Ordering::Relaxed) || if plans { self.can_plan() } else { self.can_execute() } {
                ParkTime::None
            } else if self.pipeline.is_quiet() {
                ParkTime::UntilWoken
            } else {
                ParkTime::AtMost(executor.state.spin_budget.next_sleep())
            }
        });
    }

    /// Finds out what may be freed.
    pub(super) fn look_at_snapshots(&self, horizon: &mut Horizon) {
        horizon.finished = self.pipeline.finished();
        horizon.open.clear();
        horizon.open.extend(self.snapshots.older_than(horizon.finished));
        horizon.open.sort_unstable();
        horizon.open.dedup();
        if left_out(Step::AwaitReaders) {
            (horizon.finished, horizon.open) = (u64::MAX, Vec::new());
        }
    }

    /// The partition that keys of this hash belong to.
    pub(super) fn partition(&self, hash: u64) -> &Partition {
        &self.partitions[(hash % self.partitions.len() as u64) as usize]
    }

    /// Whether clients do the work of the stages while they wait.
    pub(super) fn takes_turns(&self) -> bool {
        self.options.execution_threads == 0
    }

    /// Gives back what was dropped: the lists of tables go first, and then the stores.
    fn give_back(&self) {
        self.base.give_back();
        if self.dropped.let_go(self) {
            self.base.give_back();
        }
    }

    /// Frees what was dropped and is no longer needed.
    pub(super) fn maintain(&self) {
        self.dropped.let_go(self);
        self.base.deferred_drops.maintain(&self.base.catalog, self.base.memory.epochs());
    }
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Bohm {
    pub(super) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Bohm {
    /// Lets an epoch pass and frees what can be freed, as happens by itself: for tests that must not depend on time.
    pub fn tick(&self) {
        let shared = &self.shared;
        shared.base.memory.epochs().advance();
        let unused: Vec<_> = shared.base.deferred_drops.with_guard(|guard| {
            shared.partitions.iter().flat_map(|partition| partition.maintain(shared, guard)).collect()
        });
        drop(unused);
        shared.maintain();
    }

    fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, Error> {
        let mut threads = Vec::new();
        let Options { concurrency_control_threads, execution_threads, .. } = shared.options;
        for number in 0..concurrency_control_threads + execution_threads {
            let mut executor = Executor::new(shared)?;
            let own = Arc::clone(shared);
            let plans = number < concurrency_control_threads;
            let run = move || {
                while !own.stopping.load(Ordering::Relaxed) {
                    let busy = if plans { executor.plan(&own, number) } else { executor.execute(&own) };
                    if executor.rest(busy) {
                        own.sleep(&mut executor, plans);
                    }
                }
            };
            let name = if plans { "polychron-plan" } else { "polychron-run" };
            let spawned = thread::Builder::new().name(name.into()).spawn(run);
            threads.push(spawned.map_err(|error| Error::options(format!("a thread could not be started: {error}")))?);
        }
        Ok(threads)
    }
}

impl Drop for Bohm {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.planning.wake_all();
        self.shared.executing.wake_all();
        // A procedure may hold the last reference, and drop it as it is executed: then that thread ends behind it.
        let own = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != own) {
            // A panic there was reported when it happened; there is nothing to add at the end.
            let _ = thread.join();
        }
    }
}

impl StoreProtocol for Bohm {
    const NAME: &'static str = "bohm";
    const SUMMARY: &'static str =
        "planned batches, versions before values: whole procedures that name what they write never abort";

    type Options = Options;
    type Worker = BohmWorker;
    type Driven = polychron_engine::WholeOnly<BohmWorker>;
    type Store = BohmStore;

    fn memory_options(options: &Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        options.check()?;
        let own_threads = options.concurrency_control_threads + options.execution_threads;
        common.check_workers(Self::NAME, polychron_memory::Options::MOST_WORKERS - own_threads)?;
        let max_workers = common.memory.max_workers + own_threads;
        Ok(polychron_memory::Options { max_workers, ..common.memory.clone() })
    }

    fn over(base: Base<BohmStore>, options: Options) -> Result<Self, Error> {
        let workers = base.slots();
        let partitions = options.partitions.max(options.concurrency_control_threads);
        let (pipeline, partitions) = Pipeline::new(options.batch_size, partitions);
        let shared = Arc::new(Shared {
            pipeline,
            executors: Executors::default(),
            partitions: partitions.into_iter().map(|progress| CachePadded::new(Partition::new(progress))).collect(),
            snapshots: Snapshots::new(workers),
            dropped: Dropped::default(),
            base,
            options,
            everything: Head::new(),
            client_batches: ClientBatches::default(),
            leftovers: Leftovers::default(),
            notices: Notices::default(),
            executing: ParkedThreads::default(),
            planning: ParkedThreads::default(),
            running: Running::new(workers),
            acknowledged: Acknowledged::default(),
            longest_wait_us: AtomicU64::new(0),
            driver: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let mut database = Self { shared, threads: Vec::new() };
        database.threads = Self::start(&database.shared)?;
        Ok(database)
    }

    fn enter(&self, local: Local) -> BohmWorker {
        BohmWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<BohmStore> {
        &self.shared.base
    }

    fn make(&self, table: &TableDefinition, store: &StoreDefinition) -> Result<BohmStore, Error> {
        BohmStore::new(&self.shared.base, table, store)
    }

    /// The index is filled by a transaction that may write anything: those before it are executed first, those after it wait.
    fn fill(&self, table: TableId, index: IndexId, store: &Arc<BohmStore>) -> Result<(), Error> {
        let filled = self.enter(self.shared.base.memory.register_own()?).fill(table, index)?;
        store.entries.set_ready_from(filled.bits());
        Ok(())
    }

    fn waits_for_itself(&self) -> bool {
        self.shared.is_inside()
    }

    fn dropping(&self, store: &Arc<BohmStore>) {
        self.shared.dropped.keep(Arc::clone(store));
    }

    fn give_back(&self) {
        self.shared.give_back();
    }

    fn ended(&self) -> Order {
        let pipeline = &self.shared.pipeline;
        let batch = if left_out(redo::Step::AwaitSealing) { pipeline.sequenced() } else { pipeline.finished() };
        Timestamp::end_of(batch).bits().into()
    }

    fn metrics(&self) -> Vec<Metric> {
        let shared = &self.shared;
        let count = |name, count| Metric { name, value: MetricValue::Count(count) };
        let longest_wait = MetricValue::Level(shared.longest_wait_us.load(Ordering::Relaxed) as f64);
        vec![
            count("batches", shared.pipeline.finished()),
            count("stalls", shared.executors.stalls()),
            count("planned_again", shared.base.counters.sum().reconnaissance),
            Metric { name: "longest_wait_us", value: longest_wait },
        ]
    }
}
