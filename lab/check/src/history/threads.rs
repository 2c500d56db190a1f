//! Random transactions on free-running threads, as users run them: through [`Worker::execute`], with its retries, or submitted.

use std::sync::{Arc, PoisonError};

use polychron_base::clock::SystemClock;
use polychron_base::random::Random;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{Error, Mode, Projection, Protocol, Table, Worker};
use polychron_schema::{Key, KeyScratch, Row};
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::interleave::{create, drop_tables};
use super::recorded::Seen;
use super::script::{Pair, Scripted, Step, Submitted};
use super::{History, Item, Leeway, Log, Mix, Operation, Script, Sequence, Tracked};

/// How one round is run.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The seed of all inputs.
    pub seed: u64,
    /// Threads.
    pub threads: u32,
    /// Transactions of each thread.
    pub transactions: usize,
    /// What they are drawn from.
    pub mix: Mix,
    /// So many of them each thread submits at once; with none it executes them one by one.
    pub submitted: usize,
    /// Sessions of each thread, which takes one or another, at most; fewer where workers are few.
    pub sessions: usize,
    /// What the protocol does not promise of real time.
    pub leeway: Leeway,
}

impl Round {
    /// A round whose mix is drawn from the seed, too.
    pub fn new(seed: u64, threads: u32, transactions: usize) -> Self {
        Self {
            seed,
            threads,
            transactions,
            mix: Mix::draw(&mut Random::stream(seed, 0)),
            submitted: 0,
            sessions: 2,
            leeway: Leeway::default(),
        }
    }
}

/// The number of a session that does nothing but take snapshots.
const SNAPSHOTS: u32 = u32::MAX;

/// Runs a round on new tables and returns what happened. It ends early when `stop` is set.
///
/// # Errors
/// What keeps tables from being made or workers from being had, and a transaction that was refused and should not have been.
pub fn run_round<P: Protocol>(database: &Arc<P>, round: &Round, stop: &AtomicBool) -> Result<History, Error> {
    run_round_until(database, round, stop, |_| Ok(()))
}

/// The same; `look` has the tables before they are dropped.
///
/// # Errors
/// As [`run_round`], and those of `look`.
pub fn run_round_until<P: Protocol>(
    database: &Arc<P>,
    round: &Round,
    stop: &AtomicBool,
    look: impl FnOnce(&Pair) -> Result<(), Error>,
) -> Result<History, Error> {
    run_round_beside(database, round, stop, |_| Ok(History::default()), look)
}

/// What goes on beside a round: a copy of its database is read.
pub struct Beside<'r> {
    round: &'r Round,
    clock: Arc<Sequence>,
    is_over: &'r AtomicBool,
    /// The tables of the round's own database.
    pub tables: Pair,
}

impl Beside<'_> {
    /// The least number of a thread of such readers.
    const FIRST_THREAD: u32 = 1000;
    /// Snapshots of each, at least and at most.
    const LEAST: usize = 50;
    const MOST: usize = 600;

    /// Takes snapshots of a database that has these tables, in one session, until the round's transactions have ended.
    ///
    /// # Errors
    /// As [`run_round`].
    pub fn snapshots<P: Protocol>(&self, copy: &Arc<P>, tables: &Pair, number: u32) -> Result<History, Error> {
        let mut random = Random::stream(self.round.seed, u64::from(Self::FIRST_THREAD + number));
        let mut log = Log::new(Self::FIRST_THREAD + number, self.clock.clone());
        let mut worker = copy.worker()?;
        let mix = Mix { snapshots: 100, failures: 0, conditions: 0, refusals: 0, ..self.round.mix };
        for count in 0..Self::MOST {
            // Relaxed: nothing else is told by it.
            if count >= Self::LEAST && self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let script = Script::draw(&mut random, &mix);
            execute(&mut worker, &script, tables, &mut log, (0, Leeway { past_reads: true, ..self.round.leeway }))?;
            // The others need the processors, too.
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Ok(log.take())
    }
}

/// As [`run_round_until`]; `beside` goes on in a thread of its own meanwhile, and what it has recorded is a part of the history.
///
/// # Errors
/// As there, and those of `beside`.
pub fn run_round_beside<P: Protocol>(
    database: &Arc<P>,
    round: &Round,
    stop: &AtomicBool,
    beside: impl FnOnce(&Beside<'_>) -> Result<History, Error> + Send,
    look: impl FnOnce(&Pair) -> Result<(), Error>,
) -> Result<History, Error> {
    let tables = create(database)?;
    let clock = Arc::new(Sequence::default());
    let workers: Result<Vec<P::Worker>, Error> = (0..round.threads).map(|_| database.worker()).collect();
    let mut workers = workers?;
    let mut loading = Log::new(0, clock.clone());
    execute(&mut workers[0], &Script::load(&round.mix), &tables, &mut loading, (0, round.leeway))?;
    let mut history = loading.take();
    let service = (round.submitted > 0).then(|| start(database)).transpose()?;
    let mut workers: Vec<Vec<P::Worker>> = workers.into_iter().map(|worker| vec![worker]).collect();
    for sessions in &mut workers {
        sessions.extend((1..round.sessions).map_while(|_| database.worker().ok()));
    }
    let is_over = AtomicBool::new(false);
    let other = Beside { round, clock: clock.clone(), is_over: &is_over, tables };
    let (histories, copy): (Vec<Result<Vec<History>, Error>>, _) = std::thread::scope(|scope| {
        let copy = scope.spawn(|| beside(&other));
        let threads: Vec<_> = workers
            .iter_mut()
            .zip(0..)
            .map(|(sessions, thread)| {
                let (tables, clock, service) = (&tables, &clock, service.as_ref());
                let client = move |number| Log::new(1 + thread * round.submitted.max(1) as u32 + number, clock.clone());
                scope.spawn(move || match service {
                    None => run_thread((database, sessions), round, tables, (1 + thread, client(0)), stop)
                        .map(|it| vec![it]),
                    Some(service) => {
                        submit_thread((&mut sessions[0], service), round, tables, (1 + thread, client), stop)
                    }
                })
            })
            .collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().expect("a thread that records does not panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        (ended, copy.join().expect("a thread that records does not panic"))
    });
    history.append(copy?);
    drop(service);
    drop(workers);
    for of_thread in histories {
        of_thread?.into_iter().for_each(|of_client| history.append(of_client));
    }
    look(&tables)?;
    drop_tables(database, &tables)?;
    Ok(history)
}

/// Of so many transactions one is the first of a new session, which replaces an older one.
const RENEWED: u64 = 24;

/// Executes a thread's transactions one after the other, by one or another of its sessions, which come and go.
fn run_thread<P: Protocol>(
    (database, sessions): (&Arc<P>, &mut Vec<P::Worker>),
    round: &Round,
    tables: &Pair,
    (number, mut log): (u32, Log),
    stop: &AtomicBool,
) -> Result<History, Error> {
    let mut random = Random::stream(round.seed, number.into());
    for _ in 0..round.transactions {
        // Relaxed: nothing else is told by it.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let script = Script::draw(&mut random, &round.mix);
        let session = random.below(sessions.len() as u64) as usize;
        if random.below(RENEWED) == 0 {
            drop(sessions.swap_remove(session));
            sessions.push(database.worker()?);
            let last = sessions.len() - 1;
            sessions.swap(session, last);
        }
        let number =
            if round.leeway.stale_snapshots && script.mode == Mode::Snapshot { SNAPSHOTS } else { session as u32 };
        execute(&mut sessions[session], &script, tables, &mut log, (number, round.leeway))?;
    }
    Ok(log.take())
}

/// A service with small batches and little room.
fn start<P: Protocol>(database: &Arc<P>) -> Result<Service<P>, Error> {
    let options = Submissions { threads: 2, batch_size: 6, most_waiting: 12, ..Submissions::default() };
    Service::start(database, &options, Arc::new(SystemClock::new()), || database.worker())
}

/// Submits a thread's transactions, some at once, each as a client of its own; those on snapshots it executes.
fn submit_thread<P: Protocol>(
    (worker, service): (&mut P::Worker, &Service<P>),
    round: &Round,
    tables: &Pair,
    (number, client): (u32, impl Fn(u32) -> Log),
    stop: &AtomicBool,
) -> Result<Vec<History>, Error> {
    let mut random = Random::stream(round.seed, number.into());
    let logs: Vec<_> = (0..round.submitted as u32).map(|number| Arc::new(Mutex::new(client(number)))).collect();
    for _ in 0..round.transactions.div_ceil(round.submitted) {
        // Relaxed: nothing else is told by it.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut submissions = Vec::new();
        for log in &logs {
            let script = Script::draw(&mut random, &round.mix);
            let mut own = log.lock().unwrap_or_else(PoisonError::into_inner);
            if script.mode == Mode::Snapshot {
                // By a session of its own: what was submitted is executed by others.
                execute(worker, &script, tables, &mut own, (SNAPSHOTS, round.leeway))?;
                continue;
            }
            own.call(false, 0);
            drop(own);
            let (kind, tables, own) = (script.steps.len() % 2, *tables, Arc::clone(log));
            let (own_script, script) = (script.clone(), script);
            let submission = match kind {
                0 => service.submit(Submitted::<0> { script, tables, log: own }),
                _ => service.submit(Submitted::<1> { script, tables, log: own }),
            };
            submissions.push((log, own_script, submission));
        }
        for (log, script, submission) in submissions {
            let answer = submission.wait();
            log.lock().unwrap_or_else(PoisonError::into_inner).answered(&answer);
            is_as_wanted(&script, answer, round.leeway)?;
        }
    }
    // The service may still hold the procedures, whose answers it has given.
    Ok(logs.iter().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner).take()).collect())
}

fn execute<W: Worker>(
    worker: &mut W,
    script: &Script,
    tables: &Pair,
    log: &mut Log,
    (session, leeway): (u32, Leeway),
) -> Result<(), Error> {
    log.call(script.mode == Mode::Snapshot || script.reads_one && leeway.past_reads, session);
    let answer = match script.steps[..] {
        [Step::Read { hash, id, .. }] if script.reads_one => {
            let table = if hash { tables.hash } else { tables.ordered };
            read_one(worker, table, id, log)
        }
        _ => {
            let mut scripted = Scripted { script, tables, log };
            match script.mode {
                Mode::ReadWrite => worker.execute(&mut scripted),
                Mode::Snapshot => worker.snapshot(&mut scripted),
            }
        }
    };
    log.answered(&answer);
    is_as_wanted(script, answer, leeway)
}

/// A script may conflict and end as it wants to. Whatever else ends it is a refusal, which is no part of a history.
fn is_as_wanted(script: &Script, answer: Result<(), Error>, leeway: Leeway) -> Result<(), Error> {
    match answer {
        Err(error) if !matches!(error, Error::Conflicts { .. }) && !script.wants(&error, leeway) => Err(error),
        _ => Ok(()),
    }
}

/// Reads a row outside of any transaction.
fn read_one<W: Worker>(worker: &mut W, table: Table<Tracked>, id: u64, log: &mut Log) -> Result<(), Error> {
    let mut scratch = KeyScratch::new();
    let key = id.encode(&mut scratch);
    let seen = worker.read_one(table.id(), key, &Projection::ALL, |row| row.map(Tracked::view).map(Seen::of))?;
    let item = Item { table: table.id().position() as u32, key: id };
    log.begin();
    if seen.is_some_and(|seen| !seen.whole || seen.id != id) {
        log.note(Operation::Torn { item });
    }
    log.note(Operation::Read { item, seen: seen.map(|seen| seen.version) });
    log.finish();
    Ok(())
}
