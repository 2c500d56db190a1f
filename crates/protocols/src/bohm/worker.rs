//! A worker: hands in a client's procedures, and takes turns in all stages while it waits for the answers.

use std::collections::VecDeque;
use std::sync::Arc;

use polychron_base::clock::Clock;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::statistics::Registered;
use polychron_engine::stores::OwnedKey;
use polychron_engine::{Counters, Procedure, Ticket, Worker, drive};
use polychron_memory::Local;
use polychron_sync::atomic::Ordering;

use super::answers::Kept;
use super::attempt::{Answer, Ended, attempt, finish_answer};
use super::execution::{Executor, ExecutorState, ensure_complete};
use super::guesses::Guess;
use super::naming::{ByKey, Naming, refuse_inside};
use super::options::Unknown;
use super::parking::{ParkTime, ParkedThreads};
use super::planned::{HandedIn, OwnBatch};
use super::protocol::Shared;
use super::timestamp::Timestamp;
use super::transaction::BohmTransaction;

/// After so many guesses that were wrong a transaction keeps its log position, and the others wait for it.
const GUESSES: u32 = 2;

/// One thread's way into the database.
#[derive(Debug)]
pub struct BohmWorker {
    pub(super) executor: Executor,
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Registered,
    /// Client batches of this worker that are not under way.
    pub(super) idle: Vec<OwnBatch>,
    /// The list of those that are under way, which is kept.
    pub(super) under_way: VecDeque<HandedIn>,
    /// The keys of the transaction that is being named.
    pub(super) known: ByKey,
    /// What it drives interactively, or did last.
    pub(super) driven: Option<HandedIn>,
    /// Procedures of its client are under way, and it is held in an epoch that keeps what they name.
    pub(super) is_under_way: bool,
}

impl BohmWorker {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let counters = shared.base.counters.register();
        Self {
            executor: Executor { local, state: ExecutorState::default() },
            shared: Arc::clone(shared),
            counters,
            idle: Vec::new(),
            under_way: VecDeque::new(),
            known: ByKey::default(),
            driven: None,
            is_under_way: false,
        }
    }

    /// Waits until all transactions of a client batch are executed, and does what is due meanwhile. It may not be back yet.
    pub(super) fn await_client_batch(&mut self, client_batch: &HandedIn) {
        let mut since = None;
        loop {
            if client_batch.is_executed() {
                break;
            }
            let busy = self.shared.takes_turns() && self.executor.take_turn(&self.shared);
            if !self.executor.rest(busy) {
                continue;
            }
            since.get_or_insert_with(|| self.shared.pipeline.time.now_ns());
            // The thread that took the chunk may be busy with another transaction of it, for how long is not known.
            if self.executor.state.spin_budget.has_slept() && self.execute_own(client_batch) {
                break;
            }
            self.sleep(client_batch);
        }
        self.executor.state.spin_budget.reset();
        if let Some(since) = since {
            let waited = self.shared.pipeline.time.now_ns().saturating_sub(since) / 1000;
            polychron_sync::raise(&self.shared.longest_wait_us, waited, Ordering::Relaxed);
        }
        if self.shared.takes_turns() {
            self.shared.hand_over();
        }
    }

    /// Executes the transactions of a client batch that is handed in, wherever they are due. Returns whether all are complete.
    fn execute_own(&mut self, client_batch: &HandedIn) -> bool {
        let is_planned = client_batch.batch().is_some_and(|batch| self.shared.pipeline.planned() >= batch);
        if !is_planned || !self.shared.takes_turns() {
            return false;
        }
        let Executor { local, state } = &mut self.executor;
        let mut all = true;
        for position in 0..client_batch.content().count {
            let (planned, timestamp) = (client_batch.planned(position), client_batch.timestamp(position));
            all &= ensure_complete(&self.shared, state, local, planned, timestamp);
        }
        all
    }

    fn sleep(&mut self, client_batch: &HandedIn) {
        let ExecutorState { parker, spin_budget, .. } = &mut self.executor.state;
        let shared = &self.shared;
        client_batch.await_with(parker, || {
            let how_long = || {
                // Acquire: as in `await_client_batch`.
                let is_due = client_batch.is_executed() || shared.can_take_turn();
                if is_due { ParkTime::None } else { ParkTime::AtMost(spin_budget.next_sleep()) }
            };
            if shared.takes_turns() {
                shared.executing.sleep(parker, how_long);
            } else {
                ParkedThreads::default().sleep(parker, how_long);
            }
        });
    }

    /// Keeps a client batch for the next time, or has it kept until it is back.
    pub(super) fn keep_client_batch(&mut self, client_batch: HandedIn) {
        match client_batch.take_back() {
            Ok(own) => self.idle.push(own),
            Err(client_batch) => self.shared.client_batches.put_back_later(client_batch),
        }
    }

    pub(super) fn empty_client_batch(&mut self) -> OwnBatch {
        let mut client_batch = self.idle.pop().unwrap_or_else(|| self.shared.client_batches.take());
        client_batch.clear();
        client_batch
    }

    /// Adds a procedure to a client batch: names what it writes, as far as it is known.
    pub(super) fn add<P: Procedure>(
        &mut self,
        client_batch: &mut OwnBatch,
        procedure: &P,
        position: usize,
        guess: Option<&Guess>,
    ) {
        let options = &self.shared.options;
        let owner = client_batch.add(position);
        let mut naming = Naming {
            client_batch,
            tables: &self.executor.state.tables,
            owner,
            partitions: self.shared.partitions.len(),
            reads: options.annotate_reads,
            has_more: false,
            is_too_long: false,
            known: &mut self.known,
        };
        naming.known.clear();
        // One that panics here panics again when it runs, where it is caught and reported.
        let declared = drive::catch(|| procedure.declare(&mut naming));
        let is_too_long = naming.is_too_long;
        let mut has_more = !is_too_long && (naming.has_more || declared.is_err());
        for (table, key) in guess.into_iter().flat_map(|guess| &guess.keys) {
            let Some(table) = polychron_engine::catalog::known(naming.tables, *table) else { continue };
            match key {
                OwnedKey::Short(key) => naming.write(table, *key),
                OwnedKey::Long(key) => naming.write(table, &**key),
            }
        }
        let guesses = guess.map_or(0, |guess| guess.attempts);
        let everything = has_more && (options.unknown == Unknown::InPlace || guesses >= GUESSES);
        if everything {
            naming.everything();
            has_more = false;
        }
        let content = client_batch.content_mut();
        content.has_everything |= everything;
        let end = content.entries.len() as u32;
        let body = client_batch.body_mut(owner as usize);
        body.end = end;
        (body.has_more, body.is_everything, body.is_too_long) = (has_more, everything, is_too_long);
    }

    pub(super) fn prepare(&mut self, client_batch: &mut OwnBatch) {
        let preprocess = self.shared.options.preprocess;
        let content = client_batch.content_mut();
        content.sorted.resize_with(if preprocess { self.shared.partitions.len() } else { 0 }, Vec::new);
    }

    /// Has procedures executed, each as a transaction, and passes the answers to `done`, or other threads pass them to `shared`. What `others` hands in
    /// comes right behind them.
    ///
    /// Those for which there was no memory are executed once more: what waits for the epochs to pass is not lost, but could not be had under the
    /// guard of the first time.
    fn execute_all<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
        shared: Option<&(impl Fn(usize, Result<P::Output, P::Error>) + Sync)>,
        others: impl FnOnce(&mut Self),
    ) {
        let mut refused = Kept(Vec::new());
        let mut first = |position, procedure: &mut P, answer| match answer {
            Err(ended @ Ended { wants_memory: true, .. }) => refused.0.push((position, ended)),
            answer => done(position, finish_answer(procedure, answer)),
        };
        self.execute_once(procedures, &mut first, shared, others);
        if refused.0.is_empty() {
            return;
        }
        refused.0.reverse();
        let wants_memory = |answer: &Answer<P>| answer.as_ref().is_err_and(|ended| ended.wants_memory);
        let mut is_full = false;
        while let Some((position, ended)) = refused.0.pop() {
            let mut answer = Err(ended);
            // The first try uses what the others have left, the second one all that there is.
            for makes_room in [false, true] {
                if is_full || !wants_memory(&answer) {
                    break;
                }
                if makes_room {
                    self.make_room();
                }
                let procedure = std::slice::from_mut(&mut procedures[position]);
                let mut again = |_, _: &mut P, outcome| drive::discard(std::mem::replace(&mut answer, outcome));
                self.execute_once(procedure, &mut again, alone::<P>(), |_| ());
            }
            is_full |= wants_memory(&answer);
            done(position, finish_answer(&mut procedures[position], answer));
        }
    }

    /// Frees all that is not needed.
    #[cold]
    fn make_room(&mut self) {
        for _ in 0..2 {
            self.shared.base.memory.epochs().advance();
            self.maintain();
        }
    }

    /// Makes the entries of a new index that the catalog shows already, and answers the timestamp from which on they are there.
    pub(super) fn fill(&mut self, table: TableId, index: IndexId) -> Result<Timestamp, Error> {
        let mut transaction = self.begin_everything()?;
        let (ran, filled) = attempt(&mut transaction, &mut |transaction| transaction.fill_index(table, index));
        let timestamp = transaction.timestamp;
        transaction.end_interactive(ran);
        let filled = filled.expect("nothing conflicts with a transaction that may write anything");
        filled.map_err(|ended: Ended<Error>| ended.failure.into_own())?;
        Ok(timestamp)
    }
}

/// The type of a callback that is not there.
type Nobody<P> = fn(usize, Result<<P as Procedure>::Output, <P as Procedure>::Error>);

/// For clients that take all answers themselves.
fn alone<'a, P: Procedure>() -> Option<&'a Nobody<P>>
where
    P::Output: 'a,
    P::Error: 'a,
{
    None
}

impl Worker for BohmWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.end_leaked();
        if self.shared.is_inside() {
            return Err(refuse_inside(procedure).into());
        }
        let mut answer = None;
        self.execute_all(
            std::slice::from_mut(procedure),
            &mut |_, outcome| answer = Some(outcome),
            alone::<P>(),
            |_| (),
        );
        answer.expect("each procedure is answered")
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    ) {
        self.end_leaked();
        if !self.shared.is_inside() {
            return self.execute_all(procedures, done, alone::<P>(), |_| ());
        }
        for (position, procedure) in procedures.iter().enumerate() {
            done(position, Err(refuse_inside(procedure).into()));
        }
    }

    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, P::Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        self.end_leaked();
        if !self.shared.is_inside() {
            let mut own = |position, outcome| done(position, outcome);
            return self.execute_all(procedures, &mut own, Some(done), others);
        }
        for (position, procedure) in procedures.iter().enumerate() {
            done(position, Err(refuse_inside(procedure).into()));
        }
        others(self);
    }

    fn help_others(&mut self) -> Option<bool> {
        self.end_leaked();
        let Self { shared, executor, .. } = self;
        let has_helped = shared.notices.help(shared, executor);
        executor.state.ticket.raise(shared.journal_ticket(shared.pipeline.planned()));
        Some(has_helped)
    }

    /// Reads all that was acknowledged to clients before.
    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.end_leaked();
        let Self { executor: Executor { local, state }, shared, counters, .. } = self;
        let worker = local.worker_id().position();
        let mut transaction = BohmTransaction::snapshot(shared, state, local, worker);
        let age_us = shared.pipeline.age_us(transaction.timestamp.batch());
        let (_, answer) = attempt(&mut transaction, &mut |transaction| procedure.run(transaction));
        transaction.await_batch();
        let answer = answer.expect("a snapshot meets no conflict");
        let answer = finish_answer(procedure, answer);
        match answer {
            Ok(_) => counters.snapshot(age_us),
            Err(_) => counters.refused(),
        }
        answer
    }

    fn take_ticket(&mut self) -> Ticket {
        std::mem::take(&mut self.executor.state.ticket)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn maintain(&mut self) {
        self.end_leaked();
        let shared = &self.shared;
        {
            let guard = self.executor.local.pin();
            shared.partitions.iter().for_each(|partition| drop(partition.maintain(shared, &guard)));
        }
        self.executor.local.collect();
        shared.maintain();
    }
}

impl Drop for BohmWorker {
    fn drop(&mut self) {
        self.end_leaked();
        self.idle.drain(..).for_each(|client_batch| self.shared.client_batches.put_back(client_batch));
    }
}
