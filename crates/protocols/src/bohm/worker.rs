//! A worker: hands a client's procedures in, and does what is due while it waits for the answers.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polychron_base::error::Stopped;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Stop, TableId};
use polychron_engine::futures::Attempt;
use polychron_engine::stores::{Keys, OwnedKey, for_each};
use polychron_engine::{Counters, Procedure, Worker, drive};
use polychron_schema::KeyScratch;
use polychron_sync::atomic::Ordering;

use super::execution::Hand;
use super::naming::{ByKey, Naming};
use super::options::Unknown;
use super::planned::{Parcel, Ran, RunProcedure};
use super::protocol::Shared;
use super::transaction::BohmTransaction;

/// Parcels that a worker has under way at most, so that planning and executing go on while it fills the next.
const UNDER_WAY: usize = 3;
/// After so many guesses that were wrong a transaction keeps its place, and the others wait for it.
const GUESSES: u32 = 2;

/// One thread's way into the database.
#[derive(Debug)]
pub struct BohmWorker {
    pub(super) hand: Hand,
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<Counters>,
    /// Parcels of this worker that are not under way.
    pub(super) idle: Vec<Arc<Parcel>>,
    /// The keys of the transaction that is being named.
    pub(super) known: ByKey,
}

/// What the pipeline is told of a client's procedures.
struct Job<P: Procedure> {
    procedures: *mut P,
    answers: *mut Option<Result<P::Output, Error>>,
}

/// Runs a procedure, and leaves its answer.
///
/// # Safety
/// `job` is a [`Job`] of `P` whose client waits, and nobody else runs the procedure at this position.
unsafe fn run<P: Procedure>(job: *const (), position: usize, transaction: &mut BohmTransaction<'_>) -> Ran {
    // SAFETY: the caller says so.
    let (procedure, answer) = unsafe {
        let job = &*job.cast::<Job<P>>();
        (&mut *job.procedures.add(position), &mut *job.answers.add(position))
    };
    let (ran, outcome) = attempt(transaction, &mut |transaction| procedure.run(transaction));
    *answer = outcome;
    ran
}

/// Runs a body once.
fn attempt<O>(
    transaction: &mut BohmTransaction<'_>,
    body: &mut dyn FnMut(&mut BohmTransaction<'_>) -> Result<O, Stop>,
) -> (Ran, Option<Result<O, Error>>) {
    if let Some(refusal) = transaction.refusal() {
        return (Ran::RollBack, Some(Err(refusal)));
    }
    let _scope = Attempt::begin();
    // The transaction discards what a procedure put that panics, so nothing half done can be observed.
    match catch_unwind(AssertUnwindSafe(|| body(transaction))) {
        // A procedure may take the refusal of a write for an answer, but it would commit without that write.
        Ok(_) if let Some((table, key)) = transaction.undeclared => {
            (Ran::RollBack, Some(Err(Error::Undeclared { table, key })))
        }
        Ok(Ok(output)) => (Ran::Commit, Some(Ok(output))),
        Ok(Err(stop)) => match stop.into_parts() {
            Stopped::Conflict if transaction.doomed => (Ran::Conflict, None),
            Stopped::Conflict => (Ran::RollBack, Some(Err(Error::UnknownConflict))),
            Stopped::Failed(error) => (Ran::RollBack, Some(Err(error))),
        },
        Err(panic) => (Ran::RollBack, Some(Err(Error::Panicked(drive::panic_text(&*panic))))),
    }
}

/// A procedure that is planned again, and what is known of the keys it writes.
struct Guess {
    position: usize,
    attempts: u32,
    keys: Vec<(TableId, OwnedKey)>,
}

/// The parcels of a client that are under way. However the client ends, the procedures of others must not outlive it.
struct UnderWay<'w> {
    parcels: std::collections::VecDeque<(Arc<Parcel>, Vec<u32>)>,
    worker: &'w mut BohmWorker,
}

impl UnderWay<'_> {
    /// Waits for the oldest parcel, and does what is due meanwhile.
    fn await_oldest(&mut self) -> Option<(Arc<Parcel>, Vec<u32>)> {
        let (parcel, attempts) = self.parcels.pop_front()?;
        self.worker.await_parcel(&parcel);
        Some((parcel, attempts))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        while let Some((parcel, _)) = self.await_oldest() {
            self.worker.idle.push(parcel);
        }
    }
}

impl BohmWorker {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, Error> {
        Ok(Self::over(Hand::new(shared)?, shared))
    }

    /// A worker for the database's own transactions.
    pub(super) fn own(shared: &Arc<Shared>) -> Result<Self, Error> {
        Ok(Self::over(Hand::own(shared)?, shared))
    }

    fn over(hand: Hand, shared: &Arc<Shared>) -> Self {
        let counters = shared.counters.register();
        Self { hand, shared: Arc::clone(shared), counters, idle: Vec::new(), known: ByKey::default() }
    }

    /// Waits until all transactions of a parcel are executed, and does what is due meanwhile.
    pub(super) fn await_parcel(&mut self, parcel: &Parcel) {
        // Acquire: pairs with the release of who executed the last ones.
        while parcel.remaining.load(Ordering::Acquire) > 0 {
            let busy = self.shared.takes_turns() && self.hand.take_turn(&self.shared);
            self.hand.rest(busy);
        }
    }

    pub(super) fn empty_parcel(&mut self) -> Arc<Parcel> {
        let parcel = self.idle.pop().unwrap_or_else(|| self.shared.parcels.take());
        // SAFETY: the parcel is this worker's, and not under way.
        unsafe { parcel.clear() };
        parcel
    }

    /// Adds a procedure to a parcel: names what it writes, as far as it is known.
    fn add<P: Procedure>(&mut self, parcel: &Parcel, procedure: &P, position: usize, guess: Option<&Guess>) {
        let options = &self.shared.options;
        // SAFETY: the parcel is this worker's, and not under way.
        let owner = unsafe { parcel.add(position) };
        let mut naming = Naming {
            parcel,
            tables: &self.hand.state.tables,
            owner,
            partitions: self.shared.partitions.len(),
            reads: options.annotate_reads,
            has_more: false,
            known: &mut self.known,
        };
        naming.known.clear();
        // One that panics here panics again when it runs, where it is caught and reported.
        let declared = catch_unwind(AssertUnwindSafe(|| procedure.declare(&mut naming)));
        let mut has_more = naming.has_more || declared.is_err();
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
        // SAFETY: as above.
        let (content, body) = unsafe { (parcel.content_mut(), parcel.planned(owner as usize).body_mut()) };
        content.has_everything |= everything;
        body.end = content.entries.get_mut().len() as u32;
        (body.has_more, body.is_everything) = (has_more, everything);
    }

    pub(super) fn prepare(&mut self, parcel: &Parcel) {
        let preprocess = self.shared.options.preprocess;
        // SAFETY: the parcel is this worker's, and not under way.
        let content = unsafe { parcel.content_mut() };
        content.sorted.resize_with(if preprocess { self.shared.partitions.len() } else { 0 }, Vec::new);
    }

    /// Fills a parcel with procedures that are planned again, and with new ones; answers it with how often each was planned.
    fn fill_parcel<P: Procedure>(
        &mut self,
        job: &Job<P>,
        new: Range<usize>,
        guesses: impl Iterator<Item = Guess>,
    ) -> (Arc<Parcel>, Vec<u32>) {
        // SAFETY: the caller has a guard that is the oldest of this worker.
        unsafe { self.hand.state.tables.renew(&self.shared.catalog) };
        let parcel = self.empty_parcel();
        self.prepare(&parcel);
        let mut attempts = Vec::new();
        for guess in guesses {
            // SAFETY: the procedure is not under way.
            self.add(&parcel, unsafe { &*job.procedures.add(guess.position) }, guess.position, Some(&guess));
            attempts.push(guess.attempts);
        }
        for position in new {
            // SAFETY: as above.
            self.add(&parcel, unsafe { &*job.procedures.add(position) }, position, None);
            attempts.push(0);
        }
        // SAFETY: the parcel is this worker's, and not under way yet.
        let content = unsafe { parcel.content_mut() };
        content.job = std::ptr::from_ref(job).cast();
        content.run = run::<P> as RunProcedure;
        (parcel, attempts)
    }

    /// Has procedures executed, each as a transaction, and tells `done` the answers. What `others` hands in comes right behind them.
    fn execute_all<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
        others: impl FnOnce(&mut Self),
    ) {
        let mut others = Some(others);
        let count = procedures.len();
        let mut answers: Vec<Option<Result<P::Output, Error>>> = (0..count).map(|_| None).collect();
        let job = Job::<P> { procedures: procedures.as_mut_ptr(), answers: answers.as_mut_ptr() };
        let answers = job.answers;
        let shared = Arc::clone(&self.shared);
        // What the procedures name is found under this guard, and stays while they are under way.
        let memory = std::ptr::from_ref(&self.hand.local);
        // SAFETY: the worker is borrowed for the whole call, and its place in the epochs is not replaced.
        let guard = unsafe { &*memory }.pin();
        let mut under_way = UnderWay { parcels: std::collections::VecDeque::new(), worker: self };
        let mut next = 0;
        let mut guesses: Vec<Guess> = Vec::new();
        loop {
            while under_way.parcels.len() < UNDER_WAY && (next < count || !guesses.is_empty()) {
                let first = next;
                next = count.min(next + shared.options.batch_size.saturating_sub(guesses.len()));
                let filled = under_way.worker.fill_parcel(&job, first..next, guesses.drain(..));
                shared.pipeline.hand_in(&filled.0);
                under_way.parcels.push_back(filled);
            }
            if let Some(others) = others.take() {
                others(under_way.worker);
            }
            let Some((parcel, attempts)) = under_way.await_oldest() else { break };
            for (place, attempts) in attempts.into_iter().enumerate() {
                let position = parcel.content().procedures[place] as usize;
                // SAFETY: the parcel is back, so its transactions and their answers are this worker's.
                let (body, answer) = unsafe { (parcel.planned(place).body(), &mut *answers.add(position)) };
                if body.again.get() {
                    shared.replanned.fetch_add(1, Ordering::Relaxed);
                    *answer = None;
                    // SAFETY: as above.
                    guesses.push(unsafe { guess(&parcel, place, position, attempts + 1) });
                    continue;
                }
                let answer = answer.take().expect("a procedure that was executed has left an answer");
                let counters = &under_way.worker.counters;
                if answer.is_ok() {
                    counters.committed()
                } else {
                    counters.refused()
                }
                // SAFETY: the procedure is executed no more.
                let procedure = unsafe { &mut *job.procedures.add(position) };
                let looked = answer.and_then(|output| drive::tell_committed(procedure, output));
                done(position, looked);
            }
            under_way.worker.idle.push(parcel);
        }
        drop(under_way);
        drop(guard);
    }

    /// Makes the entries of a new index that the catalog shows already, and answers the batch from which on they are there.
    pub(super) fn fill(&mut self, table: TableId, index: IndexId) -> Result<u64, Error> {
        let mut transaction = self.begin_everything()?;
        let (ran, filled) = attempt(&mut transaction, &mut |transaction| transaction.fill_index(table, index));
        let batch = transaction.moment.batch();
        transaction.end_by_hand(ran);
        filled.expect("nothing conflicts with who may write anything")?;
        Ok(batch)
    }
}

impl BohmTransaction<'_> {
    /// Makes the entries of all rows in one index.
    fn fill_index(&mut self, table: TableId, index: IndexId) -> Result<(), Stop> {
        let table = self.table(table)?;
        let store = table.store(index)?;
        let mut keys = Keys::default();
        for_each(table.primary.index(), &self.guard, &mut |key, _| keys.push(key));
        for position in 0..keys.len() {
            let primary = keys.get(position);
            let Some(row) = self.see(&table.primary, primary)? else { continue };
            let mut scratch = KeyScratch::new();
            // SAFETY: the version has a row, which is not written while its key is made.
            let row = polychron_schema::RowRef::from_words(unsafe { row.words() });
            let key = store.entries.extractor.extract(row, &mut scratch).map_err(Error::from)?;
            // Who has put the row there since the catalog shows the index has made its entry, too.
            if !self.add_entry(store, key, primary)? && !self.leads_to(store, key, primary)? {
                return Err(Error::Duplicate { table: table.id, index }.into());
            }
        }
        Ok(())
    }
}

/// What is known of the keys that a procedure writes: those that it named, and those that its run found out.
///
/// # Safety
/// The parcel is back with the caller.
unsafe fn guess(parcel: &Parcel, place: usize, position: usize, attempts: u32) -> Guess {
    // SAFETY: the caller says so; the entries' stores are kept by its guard.
    let keys = unsafe {
        let body = parcel.planned(place).body();
        let planned = (body.first..body.end).map(|position| parcel.entry(position as usize));
        let written = planned.chain(body.late().iter()).filter(|entry| entry.is_written());
        let of_rows =
            written.map(|entry| (entry, (*entry.store).place())).filter(|(_, place)| place.index == IndexId::PRIMARY);
        let mut bytes = Vec::new();
        of_rows
            .map(|(entry, place)| {
                bytes.resize(entry.key().len(), 0);
                entry.key().write_to(&mut bytes);
                (place.table, OwnedKey::new(&bytes))
            })
            .collect()
    };
    Guess { position, attempts, keys }
}

impl Worker for BohmWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        self.refuse_inside()?;
        let mut answer = None;
        self.execute_all(std::slice::from_mut(procedure), &mut |_, outcome| answer = Some(outcome), |_| ());
        answer.expect("each procedure is answered")
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
    ) {
        self.execute_batch_with(procedures, done, |_| ());
    }

    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
        others: impl FnOnce(&mut Self),
    ) {
        match self.refuse_inside() {
            Ok(()) => self.execute_all(procedures, done, others),
            Err(_) => {
                (0..procedures.len()).for_each(|position| {
                    done(position, Err(self.refuse_inside().expect_err("it was refused just now")));
                });
                others(self);
            }
        }
    }

    /// Reads as of the last batch that is finished.
    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        let Self { hand: Hand { local, state }, shared, counters, .. } = self;
        let worker = local.worker_id().position();
        let mut transaction = BohmTransaction::snapshot(shared, state, local, worker);
        let (_, answer) = attempt(&mut transaction, &mut |transaction| procedure.run(transaction));
        let answer = answer.expect("a snapshot meets no conflict");
        let answer = answer.and_then(|output| drive::tell_committed(procedure, output));
        match answer {
            Ok(_) => counters.snapshot(0),
            Err(_) => counters.refused(),
        }
        answer
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn tidy_up(&mut self) {
        let shared = &self.shared;
        {
            let guard = self.hand.local.pin();
            shared.partitions.iter().for_each(|partition| drop(partition.tidy_up(shared, &guard)));
        }
        self.hand.local.collect();
        shared.keeper.tidy_up(&shared.catalog, shared.memory.epochs());
    }
}

impl Drop for BohmWorker {
    fn drop(&mut self) {
        self.shared.counters.leave(&self.counters);
        self.idle.drain(..).for_each(|parcel| self.shared.parcels.put_back(parcel));
    }
}
