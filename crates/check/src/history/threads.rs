//! Random transactions on free-running threads, as users run them: through [`Worker::execute`], with its retries.

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_engine::{Error, Mode, Protocol, Worker};
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::interleave::{create, drop_tables};
use super::script::{Pair, Scripted};
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
}

impl Round {
    /// A round whose mix is drawn from the seed, too.
    pub fn new(seed: u64, threads: u32, transactions: usize) -> Self {
        Self { seed, threads, transactions, mix: Mix::draw(&mut Random::stream(seed, 0)) }
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
    let logs: Vec<Log> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .zip(1..)
            .map(|(worker, number)| {
                let mut log = Log::new(number, clock.clone());
                let (tables, mix) = (&tables, &round.mix);
                scope.spawn(move || {
                    let mut random = Random::stream(round.seed, number.into());
                    for _ in 0..round.transactions {
                        // Relaxed: nothing else is told by it.
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        execute(worker, &Script::draw(&mut random, mix), tables, &mut log);
                    }
                    log
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that records does not panic")).collect()
    });
    logs.into_iter().for_each(|mut log| history.append(log.take()));
    drop(workers);
    drop_tables(database, &tables)?;
    Ok(history)
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
