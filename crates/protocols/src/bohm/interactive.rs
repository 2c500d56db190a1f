//! Transactions that one thread drives step by step, and not the pipeline: snapshots, the filling of an index, and tests.
//!
//! Such a transaction may write anything. It has a log position like any other, those before it are executed when it needs them, and those after
//! it wait. So users are not offered it: [`polychron_engine::Interactive`] is there for tests only.

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::rows::make_entry;
use polychron_engine::stores::{Keys, for_each};
use polychron_sync::atomic::Ordering;

use super::execution::{Executor, LAST, Outcome, take_turn};
use super::naming::Naming;
use super::parking::SpinBudget;
use super::planned::{ClientBatch, HandedIn, Ran};
use super::transaction::BohmTransaction;
use super::worker::BohmWorker;

/// What drives a transaction.
#[derive(Debug)]
pub(super) enum Driver<'t> {
    /// The thread that claimed it.
    ByThePipeline,
    /// It is the snapshot of this worker.
    Snapshot(usize),
    /// The client of this client batch.
    Interactive(&'t ClientBatch),
}

impl BohmWorker {
    /// Begins a transaction that may write anything, when it is planned.
    pub(super) fn begin_everything(&mut self) -> Result<BohmTransaction<'_>, Error> {
        let client_batch = self.plan_everything();
        let timestamp = client_batch.timestamp(0);
        let client_batch = self.driven.insert(client_batch);
        let (planned, client_batch) = client_batch.drive().expect("it was not executed");
        let mut transaction =
            BohmTransaction::planned(&self.shared, &mut self.executor.state, &self.executor.local, planned, timestamp);
        transaction.driver = Driver::Interactive(client_batch);
        if let Some(refusal) = transaction.refusal() {
            return Err(refusal);
        }
        let begun = transaction.begin();
        debug_assert!(begun.is_ok(), "an interactive transaction waits as long as it takes");
        self.shared.driver.store(polychron_sync::this_thread(), Ordering::Relaxed);
        Ok(transaction)
    }

    /// Ends what this worker drove interactively and was leaked: those after it would wait for ever. Nothing can still use it, for it
    /// borrowed the worker.
    #[inline]
    pub(super) fn end_leaked(&mut self) {
        let has_snapshot = || self.shared.snapshots.is_open(self.executor.local.worker_id().position());
        if !self.is_under_way && (self.driven.is_some() || self.executor.local.is_pinned() || has_snapshot()) {
            self.end_leaked_now();
        }
    }

    #[cold]
    fn end_leaked_now(&mut self) {
        // The guard of a leaked transaction, and what its snapshot sees.
        self.executor.local.end_leaked();
        self.shared.snapshots.close(self.executor.local.worker_id().position());
        let Some(mut client_batch) = self.driven.take() else { return };
        let timestamp = client_batch.timestamp(0);
        if let Some((planned, driven)) = client_batch.drive() {
            let Executor { local, state } = &mut self.executor;
            let mut transaction = BohmTransaction::planned(&self.shared, state, local, planned, timestamp);
            transaction.driver = Driver::Interactive(driven);
            transaction.end_interactive(Ran::RollBack);
        }
        match client_batch.take_back() {
            Ok(own) => self.shared.client_batches.put_back(own),
            // The thread that has its chunk is busy with a long procedure; it counts it later.
            Err(other) => self.shared.client_batches.put_back_later(other),
        }
    }

    fn plan_everything(&mut self) -> HandedIn {
        let mut client_batch = self.empty_client_batch();
        self.prepare(&mut client_batch);
        let owner = client_batch.add(0);
        let partitions = self.shared.partitions.len();
        Naming {
            client_batch: &mut client_batch,
            tables: &[],
            owner,
            partitions,
            reads: false,
            has_more: false,
            is_too_long: false,
            known: &mut self.known,
        }
        .everything();
        let content = client_batch.content_mut();
        (content.has_everything, content.interactive) = (true, true);
        let body = client_batch.body_mut(0);
        (body.end, body.is_everything) = (1, true);
        let client_batch = self.hand_in_interactive(client_batch);
        loop {
            // Looked at first: a client batch that has no batch then will have a later one.
            let sequenced = self.shared.pipeline.sequenced();
            let batch = client_batch.batch();
            if batch.is_some_and(|batch| self.shared.pipeline.planned() >= batch) {
                return client_batch;
            }
            // Neither this transaction, nor one that waits for it, may be executed here: that would wait for this thread.
            let busy = self.shared.takes_turns()
                && if batch.is_none() {
                    self.executor.take_turn_up_to(&self.shared, sequenced)
                } else {
                    self.executor.plan(&self.shared, 0)
                };
            self.executor.rest_or_sleep(busy);
        }
    }
}

impl BohmTransaction<'_> {
    /// Ends a transaction that a client drives, and waits until its batch knows.
    pub(super) fn end_interactive(&mut self, ran: Ran) {
        let Driver::Interactive(client_batch) = std::mem::replace(&mut self.driver, Driver::ByThePipeline) else {
            return;
        };
        self.shared.driver.store(0, Ordering::Relaxed);
        let outcome = self.end(ran);
        debug_assert_eq!(outcome, Outcome::Complete, "an interactive transaction waits as long as it takes");
        self.planned.take().expect("it was planned").complete(self.again);
        self.shared.acknowledged.raise(self.timestamp.batch());
        self.await_batch();
        let mut spin_budget = SpinBudget::default();
        while !client_batch.is_executed() {
            if self.shared.takes_turns() && take_turn(self.shared, self.local, self.state, LAST) {
                spin_budget.reset();
            } else if !spin_budget.wait_shortly() {
                // The thread that has its chunk is busy with a long procedure; it counts it later.
                break;
            }
        }
        self.shared.hand_over();
    }
}

impl BohmTransaction<'_> {
    /// Makes the entries of all rows in one index.
    pub(super) fn fill_index(&mut self, table: TableId, index: IndexId) -> Result<(), Error> {
        let mut keys = Keys::default();
        let rows = self.state.tables.table(table)?.primary.index();
        for_each(rows, &self.guard, &mut |key, _| keys.push(key));
        // A transaction that has put the row there since the catalog shows the index has made its entry, too.
        (0..keys.len()).try_for_each(|row| make_entry(self, table, index, keys.get(row)))
    }
}

impl Drop for BohmTransaction<'_> {
    fn drop(&mut self) {
        match self.driver {
            Driver::ByThePipeline => {}
            Driver::Snapshot(worker) => self.shared.snapshots.close(worker),
            Driver::Interactive(_) => self.end_interactive(Ran::RollBack),
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.state.scratches.push(scratch);
    }
}

#[cfg(feature = "interactive")]
mod tests_only {
    use polychron_base::{Abort, Error};
    use polychron_engine::options::Retry;
    use polychron_engine::{Commit, Interactive, Mode, Protocol};

    use super::super::protocol::Bohm;
    use super::{BohmTransaction, BohmWorker, Driver, Executor, Ran};

    impl Interactive for BohmWorker {
        type Transaction<'w> = BohmTransaction<'w>;

        fn begin(&mut self, mode: Mode) -> Result<BohmTransaction<'_>, Error> {
            self.end_leaked();
            if mode == Mode::ReadWrite {
                if self.shared.is_inside() {
                    let what = "a transaction inside of one of the same thread";
                    return Err(Error::unsupported(Bohm::NAME, what));
                }
                return self.begin_everything();
            }
            let Self { executor: Executor { local, state }, shared, counters, .. } = self;
            let worker = local.worker_id().position();
            let transaction = BohmTransaction::snapshot(shared, state, local, worker);
            counters.snapshot(shared.pipeline.age_us(transaction.timestamp.batch()));
            Ok(transaction)
        }

        fn last_abort(&self) -> Option<Abort> {
            None
        }

        fn back_off(&mut self, _attempts: u64) {}

        fn retry(&self) -> &Retry {
            &self.shared.base.common.retry
        }
    }

    impl Commit for BohmTransaction<'_> {
        fn commit(mut self) -> Result<(), Error> {
            if self.is_void() {
                return Err(Error::Conflict);
            }
            self.stage_changes()?;
            self.await_snapshot();
            self.end_interactive(Ran::Commit);
            Ok(())
        }

        fn roll_back(mut self) -> bool {
            self.await_snapshot();
            true
        }
    }

    impl BohmTransaction<'_> {
        /// What a snapshot is answered waits for its batch, too; of all others the end does this.
        fn await_snapshot(&mut self) {
            if let Driver::Snapshot(_) = self.driver {
                self.await_batch();
            }
        }
    }
}
