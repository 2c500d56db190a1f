//! Running a workload on a protocol: load, warm up, measure, check.

mod client;
mod course;
mod held;
mod idle;
mod keyed;
mod machine;
mod quiesce;
mod report;
mod slots;
mod spread;
mod stoppable;
mod submitting;
mod totals;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::any::AnyProtocol;
use polychron_engine::options::Submissions;
use polychron_engine::redo::Answers;
use polychron_engine::{Isolation, Protocol, Statistics, Worker};
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{CheckError, Workload};
use client::{Counts, Failure, Loop, MAX_KINDS, Phase, Tally};
use course::Watch;
use held::Held;
use idle::Comings;
use slots::Slots;
use stoppable::Stoppable;

pub use course::{Course, Quarter};
pub use idle::Idle;
pub use keyed::{IndexChoice, Share, for_each_row, load_rows, span};
pub use machine::{Machine, available_bytes, peak_rss_bytes, rss_bytes};
pub use report::{Latencies, Load, MemoryReport, Report, Staleness, VersionReport};
pub use spread::{Contest, Spread};
pub use totals::{Part, Totals};

/// How to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that execute transactions.
    pub threads: usize,
    /// Seconds of ramp-up that are not measured.
    pub warmup_seconds: f64,
    /// Seconds that are measured.
    pub seconds: f64,
    /// The seed of all inputs.
    pub seed: u64,
    /// Procedures handed over at once; 1 is one by one. Of what is submitted the largest batch.
    pub batch: usize,
    /// The number of transactions that each thread submits and keeps under way; as many threads again execute them. With 0 each thread
    /// executes its transactions itself.
    pub submit: usize,
    /// For how long a batch of what is submitted is kept open while a thread is free, in microseconds.
    pub batch_time_us: u64,
    /// The number of transactions that each thread draws beforehand, to execute them again and again; 0 draws each one
    /// before it is executed.
    pub pregenerate: usize,
    /// Whether a snapshot stays open for the whole run, on a thread of its own that does nothing else.
    pub open_snapshot: bool,
    /// The transaction that an additional client, which comes and goes, leaves open while it does nothing.
    pub idle: Option<Idle>,
    /// Transactions a second that all threads together execute at most; 0 stands for as many as they can.
    pub rate: f64,
    /// Bytes of memory touched before loading, so that no page fault falls into the measured interval; the papers do so.
    pub prefault_bytes: usize,
    /// The commit that was built, for the report.
    pub commit: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            warmup_seconds: 2.0,
            seconds: 10.0,
            seed: 1,
            batch: 1,
            submit: 0,
            batch_time_us: Submissions::default().batch_time_us,
            pregenerate: 0,
            open_snapshot: false,
            idle: None,
            rate: 0.0,
            prefault_bytes: 0,
            commit: "unknown".to_owned(),
        }
    }
}

/// Watches a run. Every method may be left out.
pub trait Observer {
    /// `_rows` of `_of` rows are loaded.
    fn loading(&self, _rows: u64, _of: u64) {}

    /// All rows are loaded.
    fn loaded(&self, _load: Load) {}

    /// A second has passed.
    fn live(&self, _live: &Live) {}

    /// The transactions have ended; the checks begin.
    fn checking(&self) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// The last second of a run.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Whether the ramp-up still goes on.
    pub warmup: bool,
    /// Seconds since the ramp-up or the measured interval began.
    pub elapsed_seconds: f64,
    /// Seconds that it will take.
    pub of_seconds: f64,
    /// Completed transactions a second, lately.
    pub tps: f64,
    /// Conflicts as a share of all attempts, lately.
    pub abort_rate: f64,
    /// Memory of the database now, where the protocol uses the engine's.
    pub memory: Option<MemoryReport>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The tables could not be made or filled.
    #[error("loading failed: {0}")]
    Load(#[source] Error),
    /// A thread did not get a worker.
    #[error("a thread could not begin: {0}")]
    Worker(#[source] Error),
    /// A transaction failed.
    #[error("a {kind} transaction failed: {error}")]
    Transaction {
        /// Which kind.
        kind: &'static str,
        /// How.
        error: Error,
    },
    /// The check could not be done.
    #[error("{0}")]
    Check(#[source] CheckError),
}

/// The interval at which the reporting thread samples the run.
const TICK: Duration = Duration::from_millis(20);

/// Loads, runs, measures and checks a workload on a fresh database. Setting `stop` ends the run early; what was measured
/// until then is reported. A run that is ended while it loads has measured nothing, and its database is not checked.
///
/// # Errors
/// When loading, a transaction or the reading for a check fails. A check that does not hold is no error here: the report
/// says so.
///
/// # Panics
/// When the workload has more than 16 kinds of transactions.
pub fn run<P: Protocol, W: Workload>(
    database: &Arc<P>,
    options: &W::Options,
    settings: &Settings,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Report, RunError> {
    let take_slots = || slots::slot(database, settings).map(|slots| Box::new(slots) as Box<dyn Slots<W>>);
    let stage = Stage { database: AnyProtocol::over(database), take_slots: &take_slots, settings, stop, observer };
    stage.run(options)
}

/// The setting of a run. The measured part is compiled for each protocol, the rest once.
struct Stage<'r, W> {
    database: Arc<AnyProtocol>,
    take_slots: &'r dyn Fn() -> Result<Box<dyn Slots<W> + 'r>, Error>,
    settings: &'r Settings,
    stop: &'r AtomicBool,
    observer: &'r dyn Observer,
}

impl<W: Workload> Stage<'_, W> {
    fn run(&self, options: &W::Options) -> Result<Report, RunError> {
        assert!(W::KINDS.len() <= MAX_KINDS, "a workload has at most {MAX_KINDS} kinds");
        let Self { database, settings, stop, observer, .. } = self;
        if settings.prefault_bytes > 0 {
            database.memory().prefault(settings.prefault_bytes);
        }
        let workload = W::create(options, database).map_err(RunError::Load)?;
        let (load, is_whole) = load(&workload, database, settings, stop, *observer).map_err(RunError::Load)?;
        if !is_whole {
            let nothing = (Report::NOT_LOADED.to_owned(), Vec::new());
            return Ok(described(&workload, options).report(
                database,
                settings,
                load,
                Measured::nothing(database),
                nothing,
            ));
        }
        quiesce::quiesce(database).map_err(RunError::Load)?;
        observer.loaded(load);
        let measured = self.measure(&workload)?;
        observer.checking();
        let checked = check(&workload, database)?;
        Ok(described(&workload, options).report(database, settings, load, measured, checked))
    }

    fn measure(&self, workload: &W) -> Result<Measured, RunError> {
        let Self { database, settings, stop, observer, .. } = self;
        let isolation = database.isolation();
        let threads = settings.threads;
        let slots = (self.take_slots)().map_err(RunError::Worker)?;
        let mut reader = settings.open_snapshot.then(|| database.worker()).transpose().map_err(RunError::Worker)?;
        let mut comings =
            settings.idle.map(|idle| Comings::new(database, idle)).transpose().map_err(RunError::Worker)?;
        let tallies: Vec<CachePadded<Tally>> = (0..threads).map(|_| CachePadded::default()).collect();
        let phase = Phase::default();
        let failure: Mutex<Option<Failure>> = Mutex::new(None);
        std::thread::scope(|scope| {
            let holding = reader.as_mut().map(|worker| {
                let mut held = Held { phase: &phase, table: workload.a_table() };
                scope.spawn(move || worker.snapshot(&mut held))
            });
            let coming = comings.as_mut().map(|comings| {
                let phase = &phase;
                scope.spawn(move || comings.go_on(phase))
            });
            let running: Vec<_> = (0..threads)
                .map(|thread| {
                    let (tally, phase, failure, slots) = (&*tallies[thread], &phase, &failure, &*slots);
                    // The name tells profilers the run from the loading and the checks.
                    let named = std::thread::Builder::new().name(format!("client-{thread}"));
                    let spawned = named.spawn_scoped(scope, move || {
                        let client = workload.client(settings.seed, thread, threads);
                        let client = Loop::new(client, W::KINDS.len(), (tally, phase), settings, isolation);
                        slots.run(thread, client).map_err(|failed| {
                            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
                        })
                    });
                    spawned.expect("the system gives a thread")
                })
                .collect();
            // A failed or panicking thread ends the run as a whole.
            let over = || stop.load(Ordering::Relaxed) || running.iter().any(|thread| thread.is_finished());
            let conductor =
                Conductor { database, tallies: &tallies, settings, observer: *observer, clock: SystemClock::new() };
            let mut measured = conductor.conduct(&phase, &over);
            for thread in running {
                match thread.join() {
                    Ok(Ok(latencies)) => measured.latencies.push(latencies),
                    Ok(Err(())) => {}
                    Err(panic) => resume_unwind(panic),
                }
            }
            if let Some(holding) = holding {
                let held = holding.join().unwrap_or_else(|panic| resume_unwind(panic));
                held.map_err(|error| RunError::Transaction { kind: "snapshot", error })?;
            }
            if let Some(coming) = coming {
                let gone = coming.join().unwrap_or_else(|panic| resume_unwind(panic));
                let waited_ns = gone.map_err(|error| RunError::Transaction { kind: "idle", error })?;
                measured.course.waited(waited_ns);
            }
            match failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(Failure { kind, error }) => Err(RunError::Transaction { kind: W::KINDS[kind], error }),
                None => Ok(measured),
            }
        })
    }
}

fn described<W: Workload>(workload: &W, options: &W::Options) -> Described {
    Described {
        name: W::NAME,
        kinds: W::KINDS,
        grows: W::GROWS,
        options: serde_json::to_value(options).unwrap_or_default(),
        metrics: workload.metrics(),
    }
}

/// A workload, as reports describe it. What makes them is compiled once.
struct Described {
    name: &'static str,
    kinds: &'static [&'static str],
    grows: bool,
    options: serde_json::Value,
    metrics: Vec<(&'static str, u64)>,
}

impl Described {
    fn report(
        self,
        database: &AnyProtocol,
        settings: &Settings,
        load: Load,
        measured: Measured,
        (checks, conditions): (String, Vec<String>),
    ) -> Report {
        let Measured { counts, seconds, before, after, latencies, interrupted, course } = measured;
        let conflicts = after.conflicts() - before.conflicts();
        let of_before: BTreeMap<_, _> = before.aborts_by_reason().collect();
        let since =
            |(reason, count): (&'static str, u64)| (reason.to_owned(), count - of_before.get(reason).unwrap_or(&0));
        let by_kind = || self.kinds.iter().zip(counts.completed).map(|(&kind, count)| (kind.to_owned(), count));
        let (latency_us, latency_us_by_kind) = report::latencies(self.kinds, &latencies);
        let a_second = |count: u64| count as f64 / seconds.max(1e-9);
        Report {
            workload: self.name.to_owned(),
            protocol: database.name().to_owned(),
            options: self.options,
            threads: settings.threads,
            batch: settings.batch,
            submitted: settings.submit,
            seconds,
            interrupted,
            seed: settings.seed,
            completed: counts.total(),
            rolled_back: counts.rolled_back,
            metrics: self.metrics.into_iter().map(|(name, metric)| (name.to_owned(), metric)).collect(),
            committed_tps: a_second(counts.total()),
            completed_by_kind: by_kind().collect(),
            tps_by_kind: by_kind().map(|(kind, count)| (kind, a_second(count))).collect(),
            abort_rate: abort_rate(conflicts, counts.total()),
            aborts: after.aborts_by_reason().map(since).filter(|&(_, count)| count > 0).collect(),
            latency_us,
            latency_us_by_kind,
            peak_rss_bytes: peak_rss_bytes(),
            course,
            grows: self.grows,
            memory: MemoryReport::of(&database.statistics()),
            versions: database.versions().map(VersionReport::from),
            staleness_us: Staleness::between(&before, &after),
            protocol_metrics: report::protocol_metrics(&before, &after, &database.inspect()),
            load,
            checks,
            conditions,
            machine: Machine::this(),
            commit: settings.commit.clone(),
        }
    }
}

/// Checks a database at rest: the verdict, and the conditions that hold.
fn check<W: Workload>(workload: &W, database: &Arc<AnyProtocol>) -> Result<(String, Vec<String>), RunError> {
    match workload.check(database) {
        _ if database.isolation() == Isolation::Nothing => Ok((Report::NOT_PROMISED.to_owned(), Vec::new())),
        Ok(checked) => Ok((Report::PASSED.to_owned(), checked.conditions)),
        Err(broken @ CheckError::Broken { .. }) => Ok((broken.to_string(), Vec::new())),
        Err(other) => Err(RunError::Check(other)),
    }
}

fn abort_rate(conflicts: u64, completed: u64) -> f64 {
    conflicts as f64 / (conflicts + completed).max(1) as f64
}

/// Fills the tables, on as many threads as the run will have or the machine has cores. Also tells whether all was loaded:
/// `stop` ends it before.
fn load<W: Workload>(
    workload: &W,
    database: &Arc<AnyProtocol>,
    settings: &Settings,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<(Load, bool), Error> {
    let clock = SystemClock::new();
    let loaders = std::thread::available_parallelism().map_or(1, usize::from).max(settings.threads).min(MAX_LOADERS);
    let workers = (0..loaders).map(|_| database.worker()).collect::<Result<Vec<_>, _>>()?;
    let (done, rows) = (AtomicU64::new(0), workload.rows_to_load());
    let outcomes: Vec<Result<(), Error>> = std::thread::scope(|scope| {
        let loading: Vec<_> = (workers.into_iter().enumerate())
            .map(|(part, worker)| {
                let (done, mut worker) = (&done, Stoppable { worker, stop });
                scope.spawn(move || {
                    let progress = |rows| {
                        done.fetch_add(rows, Ordering::Relaxed);
                    };
                    workload.load_part(
                        &mut worker,
                        &Share { part, parts: loaders, seed: settings.seed, progress: &progress },
                    )
                })
            })
            .collect();
        while loading.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(TICK);
            observer.loading(done.load(Ordering::Relaxed).min(rows), rows);
        }
        let joined = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        loading.into_iter().map(joined).collect()
    });
    let stopped = |outcome: &Result<(), Error>| matches!(outcome, Err(Error::RolledBack));
    let is_whole = !(stop.load(Ordering::Relaxed) && outcomes.iter().any(stopped));
    outcomes.into_iter().filter(|outcome| is_whole || !stopped(outcome)).collect::<Result<(), _>>()?;
    // All of it is durable before anything is measured, as far as the database has answers wait.
    Answers::new(database.storage().journal().clone()).give_behind_all(Ok::<_, Error>(()))?;
    let rows = if is_whole { rows } else { done.into_inner() };
    Ok((Load { rows, seconds: clock.now_ns() as f64 / 1e9 }, is_whole))
}

/// More threads than this do not load faster.
const MAX_LOADERS: usize = 64;

/// The results of the measured interval.
struct Measured {
    counts: Counts,
    seconds: f64,
    before: Statistics,
    after: Statistics,
    /// Indexed by thread and kind.
    latencies: Vec<Vec<Histogram<u64>>>,
    interrupted: bool,
    course: Course,
}

impl Measured {
    /// Of a run that did not come to measuring.
    fn nothing(database: &Arc<AnyProtocol>) -> Self {
        let (before, after) = (database.statistics(), database.statistics());
        let course = Course::default();
        Self {
            counts: Counts::default(),
            seconds: 0.0,
            before,
            after,
            latencies: Vec::new(),
            interrupted: true,
            course,
        }
    }
}

/// Leads the threads through the phases and takes the counts between them.
struct Conductor<'r> {
    database: &'r Arc<AnyProtocol>,
    tallies: &'r [CachePadded<Tally>],
    settings: &'r Settings,
    observer: &'r dyn Observer,
    clock: SystemClock,
}

/// Counts at one time.
struct Sample {
    ns: u64,
    counts: Counts,
    statistics: Statistics,
}

impl Conductor<'_> {
    fn conduct(&self, phase: &Phase, over: &dyn Fn() -> bool) -> Measured {
        // No thread draws what it executes in the measured time.
        while !self.tallies.iter().all(|tally| tally.has_drawn()) && !over() {
            std::thread::sleep(TICK);
        }
        let start = self.now();
        let warmed = self.wait(true, self.settings.warmup_seconds, over, &mut |_| ());
        // A run that is ended during its ramp-up has nothing else to show than that.
        let begin = if warmed { self.now() } else { start };
        let mut watch = Watch::new(begin.ns, self.settings.seconds, self.tallies);
        let finished = warmed && {
            phase.set(Phase::MEASURED);
            self.wait(false, self.settings.seconds, over, &mut |now_ns| watch.look(now_ns, self.tallies))
        };
        let end = self.now();
        phase.set(Phase::OVER);
        Measured {
            counts: end.counts.since(&begin.counts),
            seconds: (end.ns - begin.ns) as f64 / 1e9,
            before: begin.statistics,
            after: end.statistics,
            latencies: Vec::new(),
            interrupted: !finished,
            course: watch.course(),
        }
    }

    fn now(&self) -> Sample {
        Sample { counts: Counts::of(self.tallies), statistics: self.database.statistics(), ns: self.clock.now_ns() }
    }

    /// Waits for so many seconds, and tells each of them; `false` when the run was over before.
    fn wait(&self, warmup: bool, seconds: f64, over: &dyn Fn() -> bool, look: &mut dyn FnMut(u64)) -> bool {
        let mut last = self.now();
        let begin_ns = last.ns;
        let end_ns = begin_ns + (seconds * 1e9) as u64;
        loop {
            let now_ns = self.clock.now_ns();
            look(now_ns);
            if over() {
                return false;
            }
            if now_ns >= end_ns {
                return true;
            }
            if now_ns >= last.ns + 1_000_000_000 {
                let now = self.now();
                let completed = now.counts.since(&last.counts).total();
                self.observer.live(&Live {
                    warmup,
                    elapsed_seconds: (now.ns - begin_ns) as f64 / 1e9,
                    of_seconds: seconds,
                    tps: completed as f64 / ((now.ns - last.ns) as f64 / 1e9),
                    abort_rate: abort_rate(now.statistics.conflicts() - last.statistics.conflicts(), completed),
                    memory: MemoryReport::of(&now.statistics),
                });
                last = now;
            }
            std::thread::sleep(TICK.min(Duration::from_nanos(end_ns - now_ns)));
        }
    }
}
