//! Random transactions that one thread runs step by step in random turns: the same seed gives the same history, whatever
//! the machine does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Commit, Interactive, Protocol, Table, Worker};
use polychron_schema::{IndexKind, Row};

use super::script::{Ending, Pair};
use super::{History, Leeway, Log, Mix, Outcome, Owner, Recorded, Script, Sequence, Tracked};
use crate::checker::{self, Explanation, Verdict};
use crate::setup::Tx;
use crate::{Savepoints, Setup};

/// Transactions that are open at once.
const CLIENTS: usize = 5;
/// Waves of transactions whose history is checked as one.
const WAVES: usize = 12;

/// Runs random transactions interleaved, checks their history, and does so again until an anomaly is found or `rounds`
/// waves of transactions have run.
///
/// # Panics
/// When a history leaves too much open to be decided, which makes the seed worthless.
pub fn find_anomaly<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    seed: u64,
    rounds: usize,
) -> Option<Explanation> {
    find(setup, seed, rounds, |verdict| match verdict {
        Verdict::Anomalous(mut explanations) => Some(explanations.swap_remove(0)),
        _ => None,
    })
}

/// As [`find_anomaly`], for the first history that has no serial order although all is as promised: what snapshot isolation allows.
pub fn find_skew<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, seed: u64, rounds: usize) -> Option<Explanation> {
    find(setup, seed, rounds, |verdict| match verdict {
        Verdict::Skewed(explanation) => Some(explanation),
        _ => None,
    })
}

fn find<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    seed: u64,
    rounds: usize,
    wanted: impl Fn(Verdict) -> Option<Explanation>,
) -> Option<Explanation> {
    let mut random = Random::stream(14, seed);
    let database = setup.open();
    let mut left = rounds;
    while left > 0 {
        let waves = left.min(WAVES);
        left -= waves;
        let mix = Mix::draw(&mut random);
        let inputs = (&mut random, &mix, Leeway::of(setup.name));
        let history = interleave(setup, &database, inputs, waves, |_| Ok(()));
        let verdict = checker::check_at(&history, setup.strict, setup.isolation);
        assert!(!matches!(verdict, Verdict::Undecided), "seed {seed} leaves too much open");
        if let Some(explanation) = wanted(verdict) {
            return Some(explanation);
        }
    }
    None
}

/// Creates the tables of a history.
pub(super) fn create<P: Protocol>(database: &Arc<P>) -> Result<Pair, Error> {
    let owners = database.create_table(Owner::definition()).map(Table::from_id)?;
    let table = |name, kind| database.create_table(Tracked::table(name, kind)).map(Table::from_id);
    Ok(Pair { ordered: table("ordered", IndexKind::Ordered)?, hash: table("hash", IndexKind::Hash)?, owners })
}

/// Drops them.
pub(super) fn drop_tables<P: Protocol>(database: &Arc<P>, tables: &Pair) -> Result<(), Error> {
    database.drop_table(tables.ordered.id())?;
    database.drop_table(tables.hash.id())?;
    database.drop_table(tables.owners.id())
}

/// Runs waves of random transactions on new tables and returns what happened; `look` has the tables before they are dropped.
///
/// # Panics
/// When a transaction is refused that should not have been, and where `look` fails.
pub fn interleave<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    database: &Arc<P>,
    (random, mix, leeway): (&mut Random, &Mix, Leeway),
    waves: usize,
    look: impl FnOnce(&Pair) -> Result<(), Error>,
) -> History {
    let tables = create(database).expect("the definitions are sound");
    let clock = Arc::new(Sequence::default());
    let clients = if setup.interleaves { CLIENTS } else { 1 };
    let mut workers: Vec<(P::Worker, Log)> = (0..clients)
        .map(|number| (database.worker().expect("a slot is free"), Log::new(number as u32, clock.clone())))
        .collect();
    let mut collector = database.worker().expect("a slot is free");
    let load = Script::load(mix);
    // Drawn apart, so that a seed stands for the same transactions with and without pauses.
    let mut pauses = Random::stream(15, random.clone().below(u64::MAX));
    wave::<P>(random, &tables, &mut workers[..1], vec![load], leeway, &mut || ());
    for _ in 0..waves {
        let scripts = (0..clients).map(|_| Script::draw(random, mix)).collect();
        // In some waves time passes between two steps, and what no client needs is freed.
        let is_slow = setup.interleaves && pauses.below(4) == 0;
        let mut pause = || {
            if is_slow && pauses.below(3) == 0 {
                setup.pass(database, 1 + pauses.below(3) as usize);
                collector.maintain();
            }
        };
        wave::<P>(random, &tables, &mut workers, scripts, leeway, &mut pause);
        if random.below(3) == 0 {
            (setup.tick)(database);
        }
        if random.below(3) == 0 {
            workers[0].0.maintain();
        }
    }
    let mut history = History::default();
    for (_, log) in &mut workers {
        history.append(log.take());
    }
    drop(workers);
    look(&tables).expect("the tables can be read");
    drop_tables(database, &tables).expect("the tables are there");
    history
}

/// One of the transactions of a wave.
enum Client<'w, P: Protocol<Worker: Interactive>> {
    Waiting(&'w mut P::Worker),
    Running(Tx<'w, P>, usize, Savepoints),
    Done,
}

/// Runs a script with each worker, in random turns, and `pause` between them. A transaction begins at its first turn.
fn wave<P: Protocol<Worker: Interactive>>(
    random: &mut Random,
    tables: &Pair,
    workers: &mut [(P::Worker, Log)],
    scripts: Vec<Script>,
    leeway: Leeway,
    pause: &mut impl FnMut(),
) {
    let (mut clients, mut logs): (Vec<Client<'_, P>>, Vec<&mut Log>) =
        workers.iter_mut().map(|(worker, log)| (Client::Waiting(worker), log)).unzip();
    let mut left = clients.len();
    while left > 0 {
        pause();
        let turn = random.below(clients.len() as u64) as usize;
        let (script, log) = (&scripts[turn], &mut *logs[turn]);
        let client = std::mem::replace(&mut clients[turn], Client::Done);
        clients[turn] = match client {
            Client::Done => continue,
            Client::Waiting(worker) => {
                let snapshot = script.mode == polychron_engine::Mode::Snapshot;
                log.call(snapshot, u32::from(snapshot && leeway.stale_snapshots));
                let transaction = worker.begin(script.mode).expect("a transaction can begin");
                log.begin();
                Client::Running(transaction, 0, Savepoints::default())
            }
            Client::Running(transaction, at, savepoints) => {
                take_turn::<P>((script, tables, leeway), log, transaction, at, savepoints)
            }
        };
        left -= usize::from(matches!(clients[turn], Client::Done));
    }
}

/// Takes a step. The engine ends a transaction in which it left something half done by a panic whose payload is the error: a driver answers
/// with it.
fn answered(step: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| match panic.downcast::<Error>() {
        Ok(error) => Err(*error),
        Err(panic) => resume_unwind(panic),
    })
}

/// Takes a transaction's next step, or ends it.
fn take_turn<'w, P: Protocol<Worker: Interactive>>(
    (script, tables, leeway): (&Script, &Pair, Leeway),
    log: &mut Log,
    mut transaction: Tx<'w, P>,
    at: usize,
    mut savepoints: Savepoints,
) -> Client<'w, P> {
    let rolled_back = |transaction: Tx<'w, P>| match transaction.roll_back() {
        true => Outcome::RolledBack,
        false => Outcome::Aborted,
    };
    if at < script.steps.len() {
        let mut recorded = Recorded::new(&mut transaction, log);
        match answered(|| script.step(at, &mut recorded, tables, &mut savepoints)) {
            Ok(()) => return Client::Running(transaction, at + 1, savepoints),
            Err(error) if error.is_conflict() => {
                drop(transaction);
                log.close(Outcome::Aborted);
            }
            Err(error) => {
                let outcome = match error {
                    // Another transaction of this thread is in the way.
                    Error::Conflict | Error::WaitsForItself { .. } => Outcome::Aborted,
                    error => {
                        assert!(script.wants(&error, leeway), "a script is refused: {error}: {script:?}");
                        rolled_back(transaction)
                    }
                };
                log.close(outcome);
            }
        }
        return Client::Done;
    }
    let outcome = match script.ending {
        Ending::Commit => match transaction.commit() {
            Ok(()) => Outcome::Committed,
            Err(Error::Conflict | Error::WaitsForItself { .. }) => Outcome::Aborted,
            Err(error) => {
                assert!(script.wants(&error, leeway), "a script is refused: {error}: {script:?}");
                Outcome::Refused
            }
        },
        Ending::RollBack => rolled_back(transaction),
        // What a panic leaves behind is dropped.
        Ending::Panic => {
            drop(transaction);
            Outcome::Refused
        }
    };
    log.close(outcome);
    Client::Done
}
