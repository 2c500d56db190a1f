//! What commits hand to the log: recorded, held to the contract of [`Log`](polychron_engine::redo::Log), and replayed.
//!
//! Random transactions run on a protocol whose journal leads to a [`Recorder`]. At the end the rows that its changes make, each key's in the order of
//! their numbers, are loaded into the serial protocol and compared with those of the original.

mod definitions;
mod recorder;
mod replay;
mod scenarios;

pub use definitions::{Notary, definitions_are_told, evolutions_are_told, restored_tables_work};
pub use recorder::Recorder;
pub use scenarios::{answer_too_early, is_seen_before_sealed, is_seen_before_sealed_within};

use std::sync::Arc;
use std::time::Duration;

use polychron_base::random::Random;
use polychron_engine::redo::Journal;
use polychron_engine::{Common, Error, Interactive, Protocol, Worker};
use polychron_sync::atomic::AtomicBool;

use crate::Setup;
use crate::history::{Leeway, Mix, Pair, Round, interleave, run_round_until};
use replay::{rows_of, same_in};

/// Transactions of a thread.
const TRANSACTIONS: usize = 60;
/// Threads.
const THREADS: u32 = 3;

impl<P: Protocol> Setup<P> {
    /// The same with a log.
    #[must_use]
    pub fn logged(&self, log: &Arc<Recorder>) -> Self {
        let journal = Journal::new(Arc::clone(log) as _);
        let setup = self.clone();
        Self { common: Common { journal, ..setup.common }, ..setup }
    }
}

fn leeway<P: Protocol>(setup: &Setup<P>) -> Leeway {
    Leeway { refusing_log: true, ..Leeway::of(setup.name) }
}

/// Runs the random transactions of a seed on free-running threads, so many of them `submitted` at once if any, and answers in what the rows that the
/// log makes differ from those that are there, or in what they differ in a database of another protocol.
///
/// # Panics
/// When a transaction is refused that should not have been.
pub fn differs_on_threads<P: Protocol, C: Protocol<Worker: Interactive + 'static>>(
    (setup, copy): (&Setup<P>, &Setup<C>),
    seed: u64,
    submitted: usize,
) -> Option<String> {
    let recorder = Arc::new(Recorder::new(seed));
    let database = setup.logged(&recorder).open();
    recorder.watch(&database);
    let round = Round { submitted, leeway: leeway(setup), ..Round::new(seed, THREADS, TRANSACTIONS) };
    let mut difference = None;
    let compare = |tables: &Pair| {
        let mut worker = database.worker()?;
        difference = differs(&mut worker, &recorder, tables, copy)?;
        Ok(())
    };
    run_round_until(&database, &round, &AtomicBool::new(false), compare).expect("the round runs");
    difference.or_else(|| never_ends(setup, &database, &recorder))
}

/// The same step by step in random turns of one thread: a seed stands for one history.
///
/// # Panics
/// As [`differs_on_threads`].
pub fn differs_in_turns<P: Protocol<Worker: Interactive>, C: Protocol<Worker: Interactive + 'static>>(
    (setup, copy): (&Setup<P>, &Setup<C>),
    seed: u64,
    waves: usize,
) -> Option<String> {
    let recorder = Arc::new(Recorder::new(seed));
    let setup = setup.logged(&recorder);
    let database = setup.open();
    recorder.watch(&database);
    let mut random = Random::stream(16, seed);
    let mix = Mix::draw(&mut random);
    let mut difference = None;
    let compare = |tables: &Pair| {
        let mut worker = database.worker()?;
        difference = differs(&mut worker, &recorder, tables, copy)?;
        Ok(())
    };
    interleave(&setup, &database, (&mut random, &mix, leeway(&setup)), waves, compare);
    difference.or_else(|| never_ends(&setup, &database, &recorder))
}

/// All transactions are over: in what time the database does not know.
fn never_ends<P: Protocol>(setup: &Setup<P>, database: &Arc<P>, recorder: &Recorder) -> Option<String> {
    let last = recorder.last_order();
    for _ in 0..1000 {
        if database.storage().ended() >= last {
            return None;
        }
        setup.pass(database, 1);
        // A thread of the database's own may still have to say so.
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(format!("all up to {last:?} have ended, and not by {:?}", database.storage().ended()))
}

fn differs<W: Worker, C: Protocol<Worker: Interactive + 'static>>(
    worker: &mut W,
    recorder: &Recorder,
    tables: &Pair,
    copy: &Setup<C>,
) -> Result<Option<String>, Error> {
    let copy = copy.open();
    let replayed = recorder.replay();
    let ids = [tables.owners.id(), tables.ordered.id(), tables.hash.id()];
    let mut flaws = replayed.flaws;
    for id in ids {
        let (there, replayed) = (rows_of(worker, id)?, replayed.rows.get(&id).cloned().unwrap_or_default());
        if there.rows != replayed {
            let differing =
                there.rows.keys().chain(replayed.keys()).find(|key| there.rows.get(*key) != replayed.get(*key));
            let key = differing.expect("the maps differ");
            flaws.push(format!(
                "{id:?}: key {key:?} has {:?}, and {:?} by the log",
                there.rows.get(key),
                replayed.get(key)
            ));
        }
        flaws.extend(same_in(&copy, &there, &replayed)?);
    }
    Ok(flaws.into_iter().next())
}
