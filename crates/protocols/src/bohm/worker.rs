//! A worker: hands in a client's procedures, and takes turns in all stages while it waits for the answers.

use std::ops::Range;
use std::sync::Arc;

use polychron_base::clock::Clock;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::statistics::Registered;
use polychron_engine::stores::OwnedKey;
use polychron_engine::{Counters, Procedure, Worker, drive};
use polychron_sync::atomic::Ordering;

use super::answers::{Job, Kept};
use super::attempt::{Answer, Ended, attempt, tell_ended};
use super::execution::{Executor, ExecutorState, ensure_complete};
use super::guesses::{Guess, guess};
use super::naming::{ByKey, Naming, refuse_inside};
use super::options::Unknown;
use super::planned::{HandedIn, OwnBatch, Progress};
use super::protocol::Shared;
use super::sleeping::{Nap, Sleepers};
use super::telling::{Opened, Telling, Told};
use super::timestamp::Timestamp;
use super::transaction::BohmTransaction;

/// Client batches that a worker has under way at most, so that planning and executing go on while it fills the next.
const UNDER_WAY: usize = 3;
/// After so many guesses that were wrong a transaction keeps its place, and the others wait for it.
const GUESSES: u32 = 2;

/// One thread's way into the database.
#[derive(Debug)]
pub struct BohmWorker {
    pub(super) executor: Executor,
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Registered,
    /// Client batches of this worker that are not under way.
    pub(super) idle: Vec<OwnBatch>,
    /// The keys of the transaction that is being named.
    pub(super) known: ByKey,
    /// What it drives interactively, or did last.
    pub(super) driven: Option<HandedIn>,
    /// Procedures of its client are under way, and it is held in an epoch that keeps what they name.
    pub(super) is_under_way: bool,
}

/// The client batches of a client that are under way. However the client ends, the procedures of others must not outlive it.
struct UnderWay<'w> {
    client_batches: std::collections::VecDeque<(HandedIn, Vec<u32>)>,
    worker: &'w mut BohmWorker,
    /// Where others may give the answers.
    opened: Option<&'w Opened<'w>>,
    /// Others were under way already, and this client comes right behind them.
    is_nested: bool,
}

impl UnderWay<'_> {
    fn hand_in(&mut self, (client_batch, attempts): (OwnBatch, Vec<u32>)) {
        let client_batch = self.worker.hand_in(client_batch);
        self.opened.iter().for_each(|opened| opened.add(&client_batch));
        self.client_batches.push_back((client_batch, attempts));
    }

    /// Waits for the answers of the oldest client batch, and does what is due meanwhile.
    fn await_oldest(&mut self) -> Option<(HandedIn, Vec<u32>)> {
        let (client_batch, attempts) = self.client_batches.pop_front()?;
        self.worker.await_client_batch(&client_batch);
        self.opened.iter().for_each(|opened| opened.take_back(&client_batch));
        Some((client_batch, attempts))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        while let Some((client_batch, _)) = self.await_oldest() {
            self.worker.keep_client_batch(client_batch);
        }
        self.worker.is_under_way = self.is_nested;
        if !self.is_nested {
            self.worker.executor.local.release();
        }
    }
}

impl BohmWorker {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, Error> {
        Ok(Self::over(Executor::new(shared)?, shared))
    }

    /// A worker for the database's own transactions.
    pub(super) fn own(shared: &Arc<Shared>) -> Result<Self, Error> {
        Ok(Self::over(Executor::own(shared)?, shared))
    }

    fn over(executor: Executor, shared: &Arc<Shared>) -> Self {
        let counters = shared.counters.register();
        Self {
            executor,
            shared: Arc::clone(shared),
            counters,
            idle: Vec::new(),
            known: ByKey::default(),
            driven: None,
            is_under_way: false,
        }
    }

    /// Hands a client batch in.
    pub(super) fn hand_in(&self, client_batch: OwnBatch) -> HandedIn {
        // SAFETY: the worker waits until all are executed, and has a guard meanwhile that keeps stores; an interactive transaction names none, and has
        // no job.
        let client_batch = unsafe { self.shared.pipeline.hand_in(client_batch) };
        if !self.shared.takes_turns() {
            self.shared.planning.wake_one();
        }
        client_batch
    }

    /// Waits until all transactions of a client batch are executed, and does what is due meanwhile. It may not be back yet.
    fn await_client_batch(&mut self, client_batch: &HandedIn) {
        let mut since = None;
        loop {
            // Acquire: pairs with the release of who executed the last ones.
            if client_batch.remaining.load(Ordering::Acquire) == 0 {
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

    /// Executes the transactions of a client batch that is handed in, wherever they are due. Answers whether all are complete.
    fn execute_own(&mut self, client_batch: &HandedIn) -> bool {
        let content = client_batch.content();
        let batch = content.batch.load(Ordering::Relaxed);
        if batch == 0 || self.shared.pipeline.planned() < batch || !self.shared.takes_turns() {
            return false;
        }
        let Executor { local, state } = &mut self.executor;
        let first = content.first_place.load(Ordering::Relaxed);
        let mut all = true;
        for place in 0..content.count {
            let timestamp = Timestamp::new(batch, first + place);
            all &= ensure_complete(&self.shared, state, local, client_batch.planned(place), timestamp);
        }
        all
    }

    fn sleep(&mut self, client_batch: &HandedIn) {
        let ExecutorState { sleeper, spin_budget, .. } = &mut self.executor.state;
        let shared = &self.shared;
        client_batch.await_with(sleeper, || {
            let how_long = || {
                // Acquire: as in `await_client_batch`.
                let is_due = client_batch.remaining.load(Ordering::Acquire) == 0 || shared.can_take_turn();
                if is_due { Nap::Not } else { Nap::AtMost(spin_budget.next_sleep()) }
            };
            if shared.takes_turns() {
                shared.executing.sleep(sleeper, how_long);
            } else {
                Sleepers::default().sleep(sleeper, how_long);
            }
        });
    }

    /// Keeps a client batch for the next time, or has it kept until it is back.
    fn keep_client_batch(&mut self, client_batch: HandedIn) {
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
    fn add<P: Procedure>(
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

    /// Fills a client batch with procedures that are planned again, and with new ones; answers it with how often each was planned.
    fn fill_client_batch<P: Procedure>(
        &mut self,
        job: &Job<P>,
        new: Range<usize>,
        guesses: impl Iterator<Item = Guess>,
    ) -> (OwnBatch, Vec<u32>) {
        let Executor { local, state } = &mut self.executor;
        assert!(local.is_held(), "the tables stay while the procedures are under way");
        state.renew_tables(&self.shared, &local.pin());
        let mut client_batch = self.empty_client_batch();
        self.prepare(&mut client_batch);
        let mut attempts = Vec::new();
        for next in guesses.map(Ok).chain(new.map(Err)) {
            let (position, guess) = match &next {
                Ok(guess) => (guess.position, Some(guess)),
                Err(position) => (*position, None),
            };
            // SAFETY: the procedure is one of the job, and is not under way.
            let (procedure, _) = unsafe { job.at(position) };
            self.add(&mut client_batch, procedure, position, guess);
            attempts.push(guess.map_or(0, |guess| guess.attempts));
        }
        let content = client_batch.content_mut();
        content.job = std::ptr::from_ref(job).expose_provenance();
        content.run = Job::<P>::RUN;
        (client_batch, attempts)
    }

    /// Has procedures executed, each as a transaction, and tells `done` the answers, or others tell `shared`. What `others` hands in comes right
    /// behind them.
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
            answer => done(position, tell_ended(procedure, answer)),
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
            done(position, tell_ended(&mut procedures[position], answer));
        }
    }

    /// Gives back all that nobody needs.
    #[cold]
    fn make_room(&mut self) {
        for _ in 0..2 {
            self.shared.memory.epochs().advance();
            self.maintain();
        }
    }

    fn execute_once<P: Procedure, D: Fn(usize, Result<P::Output, P::Error>) + Sync>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, &mut P, Answer<P>),
        shared_done: Option<&D>,
        others: impl FnOnce(&mut Self),
    ) {
        let count = procedures.len();
        let mut answers: Kept<Option<Answer<P>>> = Kept((0..count).map(|_| None).collect());
        let job = Job::<P> { procedures: procedures.as_mut_ptr(), answers: answers.0.as_mut_ptr() };
        let shared = Arc::clone(&self.shared);
        // The tables and stores that the procedures name are found in this epoch, and stay while they are under way.
        self.executor.local.hold();
        let Some(done_by_any) = shared_done else { return self.execute_job(&job, count, None, done, others) };
        let telling = Telling::new(&job, count, done_by_any);
        shared.notices.open(&telling, |opened| {
            let told = |position| telling.told(position);
            self.execute_job(&job, count, Some((opened, &told)), done, others);
        });
    }

    /// Has the procedures of a job executed, and takes the answers that no other thread has given.
    fn execute_job<P: Procedure>(
        &mut self,
        job: &Job<P>,
        count: usize,
        answering: Option<(&Opened<'_>, &dyn Fn(usize) -> Told)>,
        done: &mut impl FnMut(usize, &mut P, Answer<P>),
        others: impl FnOnce(&mut Self),
    ) {
        let mut others = Some(others);
        let shared = Arc::clone(&self.shared);
        let opened = answering.map(|(opened, _)| opened);
        let is_nested = std::mem::replace(&mut self.is_under_way, true);
        let mut under_way =
            UnderWay { client_batches: std::collections::VecDeque::new(), worker: self, opened, is_nested };
        let mut next = 0;
        let mut guesses: Vec<Guess> = Vec::new();
        loop {
            while under_way.client_batches.len() < UNDER_WAY && (next < count || !guesses.is_empty()) {
                let first = next;
                next = count.min(next + shared.options.batch_size.saturating_sub(guesses.len()));
                let filled = under_way.worker.fill_client_batch(job, first..next, guesses.drain(..));
                under_way.hand_in(filled);
            }
            if let Some(others) = others.take() {
                others(under_way.worker);
            }
            let Some((client_batch, attempts)) = under_way.await_oldest() else { break };
            shared.acknowledged.raise(client_batch.content().batch.load(Ordering::Relaxed));
            let told = |position| answering.map_or(Told::No, |(_, told)| told(position));
            for (place, attempts) in attempts.into_iter().enumerate() {
                let again = under_way.worker.take_answer(job, &client_batch, place, attempts, told, done);
                guesses.extend(again);
            }
            under_way.worker.keep_client_batch(client_batch);
        }
        drop(under_way);
    }

    /// Tells the answer of a procedure whose transaction is complete, unless somebody else has. Answers what is known of one that is to be planned again.
    #[inline]
    fn take_answer<P: Procedure>(
        &self,
        job: &Job<P>,
        client_batch: &HandedIn,
        place: usize,
        attempts: u32,
        told: impl Fn(usize) -> Told,
        done: &mut impl FnMut(usize, &mut P, Answer<P>),
    ) -> Option<Guess> {
        let position = client_batch.content().procedures[place] as usize;
        let counters = &self.counters;
        match told(position) {
            Told::No => {}
            Told::Committed => {
                counters.committed();
                return None;
            }
            Told::Refused => {
                counters.refused();
                return None;
            }
        }
        let timestamp = client_batch.timestamp(place);
        assert!(client_batch.planned(place).progress(timestamp) == Progress::Complete, "it was executed");
        let is_again = client_batch.planned(place).is_again();
        debug_assert!(client_batch.content().job == std::ptr::from_ref(job).addr(), "the client batch is of this job");
        // SAFETY: the transaction was executed, and nobody else has claimed the answer.
        let (procedure, answer) = unsafe { job.at(position) };
        if is_again {
            counters.reconnoitred();
            let guess = guess(client_batch, place, position, attempts + 1);
            let given_up = guess.given_up(self.shared.common.retry.attempts);
            drive::discard(std::mem::replace(answer, given_up.map(|error| Err(Ended::by(error)))));
            if answer.is_none() {
                return Some(guess);
            }
        }
        let answer = answer.take().expect("a procedure that was executed has left an answer");
        if answer.is_ok() {
            counters.committed()
        } else {
            counters.refused()
        }
        done(position, procedure, answer);
        None
    }

    /// Makes the entries of a new index that the catalog shows already, and answers the batch from which on they are there.
    pub(super) fn fill(&mut self, table: TableId, index: IndexId) -> Result<u64, Error> {
        let mut transaction = self.begin_everything()?;
        let (ran, filled) = attempt(&mut transaction, &mut |transaction| transaction.fill_index(table, index));
        let batch = transaction.timestamp.batch();
        transaction.end_interactive(ran);
        let filled = filled.expect("nothing conflicts with who may write anything");
        filled.map_err(|ended: Ended<Error>| ended.failure.into_own())?;
        Ok(batch)
    }
}

/// A way to be told answers that nobody takes.
type Nobody<P> = fn(usize, Result<<P as Procedure>::Output, <P as Procedure>::Error>);

/// For clients that give all answers themselves.
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
        Some(shared.notices.help(shared, executor))
    }

    /// Reads all that clients were told of before.
    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.end_leaked();
        let Self { executor: Executor { local, state }, shared, counters, .. } = self;
        let worker = local.worker_id().position();
        let mut transaction = BohmTransaction::snapshot(shared, state, local, worker);
        let age_us = shared.pipeline.age_us(transaction.timestamp.batch());
        let (_, answer) = attempt(&mut transaction, &mut |transaction| procedure.run(transaction));
        let answer = answer.expect("a snapshot meets no conflict");
        let answer = tell_ended(procedure, answer);
        match answer {
            Ok(_) => counters.snapshot(age_us),
            Err(_) => counters.refused(),
        }
        answer
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
