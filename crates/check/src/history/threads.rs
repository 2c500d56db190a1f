//! Random transactions on free-running threads, as users run them: through [`Worker::execute`], with its retries, or submitted.

use std::sync::{Arc, PoisonError};

use polychron_base::clock::SystemClock;
use polychron_base::random::Random;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{Error, Mode, Protocol, Worker};
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::interleave::{create, drop_tables};
use super::script::{Pair, Scripted, Submitted};
use super::{History, Log, Mix, Script, Sequence};

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
}

impl Round {
    /// A round whose mix is drawn from the seed, too.
    pub fn new(seed: u64, threads: u32, transactions: usize) -> Self {
        Self { seed, threads, transactions, mix: Mix::draw(&mut Random::stream(seed, 0)), submitted: 0 }
    }
}

/// Runs a round on new tables and returns what happened. It ends early when `stop` is set.
///
/// # Errors
/// What keeps tables from being made or workers from being had.
pub fn run_round<P: Protocol>(database: &Arc<P>, round: &Round, stop: &AtomicBool) -> Result<History, Error> {
    let tables = create(database)?;
    let clock = Arc::new(Sequence::default());
    let workers: Result<Vec<P::Worker>, Error> = (0..round.threads).map(|_| database.worker()).collect();
    let mut workers = workers?;
    let mut loading = Log::new(0, clock.clone());
    execute(&mut workers[0], &Script::load(&round.mix), &tables, &mut loading);
    let mut history = loading.take();
    let service = (round.submitted > 0).then(|| start(database)).transpose()?;
    let histories: Vec<Vec<History>> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .zip(0..)
            .map(|(worker, thread)| {
                let (tables, clock, service) = (&tables, &clock, service.as_ref());
                let client = move |number| Log::new(1 + thread * round.submitted.max(1) as u32 + number, clock.clone());
                scope.spawn(move || match service {
                    None => vec![run_thread(worker, round, tables, (1 + thread, client(0)), stop)],
                    Some(service) => submit_thread((worker, service), round, tables, (1 + thread, client), stop),
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that records does not panic")).collect()
    });
    drop(service);
    histories.into_iter().flatten().for_each(|of_client| history.append(of_client));
    drop(workers);
    drop_tables(database, &tables)?;
    Ok(history)
}

/// Executes a thread's transactions one after the other.
fn run_thread<W: Worker>(
    worker: &mut W,
    round: &Round,
    tables: &Pair,
    (number, mut log): (u32, Log),
    stop: &AtomicBool,
) -> History {
    let mut random = Random::stream(round.seed, number.into());
    for _ in 0..round.transactions {
        // Relaxed: nothing else is told by it.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        execute(worker, &Script::draw(&mut random, &round.mix), tables, &mut log);
    }
    log.take()
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
) -> Vec<History> {
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
                execute(worker, &script, tables, &mut own);
                continue;
            }
            own.call(false);
            drop(own);
            let (kind, tables, own) = (script.steps.len() % 2, *tables, Arc::clone(log));
            let submission = match kind {
                0 => service.submit(Submitted::<0> { script, tables, log: own }),
                _ => service.submit(Submitted::<1> { script, tables, log: own }),
            };
            submissions.push((log, submission));
        }
        for (log, submission) in submissions {
            let answer = submission.wait();
            log.lock().unwrap_or_else(PoisonError::into_inner).answered(&answer);
        }
    }
    // The service may still hold the procedures, whose answers it has given.
    logs.iter().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner).take()).collect()
}

fn execute<W: Worker>(worker: &mut W, script: &Script, tables: &Pair, log: &mut Log) {
    log.call(script.mode == Mode::Snapshot);
    let mut scripted = Scripted { script, tables, log };
    let answer = match script.mode {
        Mode::ReadWrite => worker.execute(&mut scripted),
        Mode::Snapshot => worker.snapshot(&mut scripted),
    };
    log.answered(&answer);
}
