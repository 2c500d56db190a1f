//! A worker of a protocol with stores: what it keeps from one transaction to the next, and how it executes procedures.

use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, Reason, TableId};
use polychron_memory::{Guard, Local};
use polychron_schema::{Projection, RowRef};

use super::table::dropped_among;
use super::{Base, Fingers, Hints, IndexRef, Keyed, StoreTable};
use crate::catalog::{Catalog, Seen};
use crate::contested::Contested;
use crate::drive::RandomWait;
use crate::nested::Nested;
use crate::options::Retry;
use crate::redo::{Journal, Ticket};
use crate::single::ReadOne;
use crate::statistics::Registered;
use crate::{Commit, Counters, Interactive, LoadedRow, Mode, Procedure, Worker, drive, load, rows, steady};

/// Procedures whose keys are looked up together. Measured on 16-key transactions: 4 leave latency uncovered, 16 gain
/// nothing more and begin to push lines out of the first-level cache again.
pub const GROUP: usize = 8;

/// The memory that every such worker keeps from one transaction to the next.
#[derive(Debug)]
pub struct WorkerBase<S> {
    /// Its slot in the epochs.
    pub slot: usize,
    /// The tables that the running transaction knows. Each transaction renews the list before it looks at it.
    pub tables: Seen<StoreTable<S>>,
    /// The tables in which the keys of a group were looked up. Nothing else looks at the list.
    gathered: Seen<StoreTable<S>>,
    /// Records that were looked up ahead of their use.
    pub hints: Hints,
    /// Leaves of indexes that the running transaction was at.
    pub fingers: Fingers,
    /// Memory of the row layer, with the savepoints.
    pub rows: rows::Buffers,
    /// Whether a transaction has begun and not ended. Between two transactions it tells that one was leaked.
    pub is_open: bool,
    /// Why the latest transaction that conflicted did.
    pub last_abort: Option<Abort>,
    /// How its transaction stands to others at the rows at which its attempts have conflicted, for protocols with a favour.
    pub contested: Contested,
    /// Tells conflicts with what its own thread has committed from others.
    pub nested: Nested,
    /// Its waits between attempts, for protocols without a rule of their own.
    pub back_off: RandomWait,
    /// The log epoch that its answers wait for.
    pub ticket: Ticket,
    /// Its counts.
    pub counters: Registered,
}

impl<S: Keyed> WorkerBase<S> {
    /// The memory of a new worker, which has its slot in `local`.
    pub fn new(database: &Base<S>, local: &Local) -> Self {
        let slot = local.worker_id().position();
        Self {
            slot,
            tables: Seen::default(),
            gathered: Seen::default(),
            hints: Hints::default(),
            fingers: Fingers::default(),
            rows: rows::Buffers::default(),
            is_open: false,
            last_abort: None,
            contested: Contested::default(),
            nested: Nested::default(),
            back_off: RandomWait::new(slot),
            ticket: Ticket::DONE,
            counters: database.counters.register(),
        }
    }

    /// A transaction begins: nothing is left of the one before.
    #[inline]
    pub fn begin(&mut self) {
        self.is_open = true;
        self.fingers.clear();
        self.rows.savepoints.clear();
    }

    /// The same of a protocol with a journal: reads are watched if its log has stopped.
    #[inline]
    pub fn begin_logged(&mut self, journal: &Journal) {
        self.begin();
        self.rows.watch.begin(journal);
    }

    /// [`Hints::answer`] from the tables of the running transaction, if any keys wait for that.
    #[inline]
    pub fn answer_hints(&mut self, guard: &Guard<'_>) -> Option<usize> {
        if self.hints.waits() { self.hints.answer(&self.tables, guard) } else { None }
    }

    /// The first of these places whose index was dropped, as far as the running transaction knows. What it has read there is not what it
    /// would find had others gone on to keep the index up. `None` where it knows the present list: a thread that leaves the index alone has
    /// begun with that.
    #[inline]
    pub fn dropped<P: Iterator<Item = IndexRef>>(
        &self,
        catalog: &Catalog<StoreTable<S>>,
        index_refs: impl FnOnce() -> P,
    ) -> Option<IndexRef> {
        if self.tables.is_present(catalog) { None } else { dropped_among(&self.tables, index_refs()) }
    }

    /// Keeps why the running transaction of a database, known by its number, conflicts.
    #[cold]
    pub fn keep_abort(
        &mut self,
        database: u32,
        reason: Reason,
        IndexRef { table, index }: IndexRef,
        key: Option<KeyPreview>,
    ) {
        let mut abort = Abort { reason, table, index, key, opponent: None };
        self.nested.conflicts(database, &mut abort);
        self.last_abort = Some(abort);
    }

    /// Waits before the next attempt: for the favour, or else for a random time.
    pub fn wait_contested(&mut self, database: &Base<S>, attempts: u64) {
        if !self.contested.wait(&database.favour, self.slot, attempts) {
            self.back_off.wait(attempts, &database.common.retry);
        }
    }

    /// The running transaction conflicts before its commit, because what it has read is not mutually consistent.
    #[cold]
    pub fn conflicted_midway(&mut self) {
        if let Some(abort) = &mut self.last_abort {
            abort.reason = Reason::Inconsistent;
        }
    }

    /// The guard of a snapshot leaves its epoch for another one: what was found so far is no longer looked at, but the keys that a batch has declared
    /// stay in their places.
    #[inline]
    pub fn leave_epoch(&mut self) {
        self.fingers.clear();
        self.hints.outdate();
    }

    /// Forgets hints and fingers: they were found in an epoch that the worker has left.
    #[cold]
    pub fn forget_found(&mut self) {
        self.fingers.clear();
        self.hints.clear();
    }
}

/// [`StoreWorker::parts`] and [`StoreWorker::parts_mut`] of a worker that has its slot in `local`, what it keeps in `state.base`, and its database in
/// the field that is named.
#[macro_export]
macro_rules! worker_parts {
    ($($database:ident).+) => {
        #[inline]
        fn parts(&self) -> $crate::stores::Parts<'_, Self::Store> {
            (&self.local, &self.state.base, &self.$($database).+)
        }

        #[inline]
        fn parts_mut(&mut self) -> $crate::stores::PartsMut<'_, Self::Store> {
            (&mut self.local, &mut self.state.base, &self.$($database).+)
        }
    };
}

/// The parts of every worker: a slot in the epochs, what it keeps, and its database.
pub type Parts<'w, S> = (&'w Local, &'w WorkerBase<S>, &'w Base<S>);

/// The same, to change it.
pub type PartsMut<'w, S> = (&'w mut Local, &'w mut WorkerBase<S>, &'w Base<S>);

/// A worker of a [`StoreProtocol`](super::StoreProtocol): what differs between such workers. The rest is [`Worker`] and [`Interactive`],
/// written once.
///
/// A transaction may be leaked, which is found out when the worker is used again. A worker ends it when it is dropped, too
/// ([`StoreWorker::end_leaked`]).
pub trait StoreWorker: Send {
    /// The representation of one index.
    type Store: Keyed;
    /// A running transaction.
    type Transaction<'w>: Commit
    where
        Self: 'w;

    /// Whether transactions use what was looked up for their group, and so stay in its epoch. Elsewhere it is in the caches, and no more.
    const HOLDS_GROUPS: bool = true;

    /// The parts of every such worker. [`worker_parts!`](crate::worker_parts) implements both where the fields have the usual names.
    fn parts(&self) -> Parts<'_, Self::Store>;

    /// The same, to change it.
    fn parts_mut(&mut self) -> PartsMut<'_, Self::Store>;

    /// Begins a transaction where none is open; see [`Interactive::begin`]. It renews its list of tables ([`Seen::renew`]) before it looks
    /// at that.
    ///
    /// # Errors
    /// As [`Interactive::begin`].
    fn start(&mut self, mode: Mode) -> Result<Self::Transaction<'_>, Error>;

    /// Whether a transaction was leaked; asked when none runs.
    #[inline]
    fn has_leaked(&self) -> bool {
        self.parts().1.is_open
    }

    /// Undoes a transaction that was leaked: nothing of it may commit, and what it holds may not stay held. Its guard stays until then.
    fn undo_leaked(&mut self);

    /// Ends a transaction that was leaked, if one was.
    #[inline]
    fn end_leaked(&mut self) {
        if self.has_leaked() {
            end_leaked_now(self);
        }
    }

    /// The worker goes: no transaction of it is open, or favoured.
    fn end_all(&mut self) {
        self.end_leaked();
        let (_, base, database) = self.parts_mut();
        base.contested.end(&database.favour);
    }

    /// Gets ready to begin a transaction: no other one is open, and no hint is in force but those of the procedure.
    #[inline]
    fn make_ready(&mut self) {
        self.end_leaked();
        if Self::HOLDS_GROUPS {
            let (local, base, _) = self.parts_mut();
            // What a group of procedures has looked up holds as long as the group.
            if local.is_held() { base.hints.rewind() } else { base.hints.clear() }
        }
    }

    /// Asks a procedure that is about to be executed what it wants.
    #[inline]
    fn ask<P: Procedure>(&mut self, _procedure: &P) {}

    /// The keys that a group of procedures declares were looked up in these tables, as far as that happens in indexes. They hold as long as
    /// the group; asked where [`StoreWorker::HOLDS_GROUPS`].
    #[inline]
    fn has_gathered(&mut self, _tables: &[Option<Arc<StoreTable<Self::Store>>>]) {}

    /// Waits before the next attempt: see [`Interactive::back_off`]. By default, for the favour, or else for a random time.
    fn wait(&mut self, attempts: u64) {
        let (_, base, database) = self.parts_mut();
        base.wait_contested(database, attempts);
    }

    /// See [`Interactive::await_snapshot`].
    fn await_present(&mut self, _longest: Duration) -> bool {
        false
    }

    /// See [`Interactive::keeps_readers`].
    fn keeps_open_readers(&self, _mode: Mode) -> bool {
        false
    }

    /// Does pending background work: see [`Worker::maintain`]. No transaction is open. By default, what was retired and dropped is freed.
    fn maintain_stores(&mut self) {
        let (local, _, database) = self.parts_mut();
        local.collect();
        database.deferred_drops.maintain(&database.catalog, database.epochs());
    }

    /// See [`Worker::read_one`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn read_alone<K: EncodedKey, O: Send>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        read: impl FnMut(Option<RowRef<'_>>) -> O + Send,
    ) -> Result<O, Error>
    where
        Self: Sized,
    {
        self.execute(&mut ReadOne { table, key, projection, read })
    }

    /// See [`Worker::load`]; [`load_rows`](super::load_rows) does it with stores.
    ///
    /// # Errors
    /// As there.
    fn load_rows(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error>
    where
        Self: Sized,
    {
        load::by_transaction(self, table, rows)
    }
}

#[cold]
fn end_leaked_now<W: StoreWorker + ?Sized>(worker: &mut W) {
    worker.undo_leaked();
    let (local, base, database) = worker.parts_mut();
    base.is_open = false;
    base.contested.end(&database.favour);
    local.end_leaked();
}

impl<W: StoreWorker> Worker for W {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.ask(procedure);
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    ) {
        execute_in_groups(self, procedures, done, Worker::execute);
    }

    /// Submitted procedures are driven by what is compiled once for all of them.
    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, P::Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        execute_in_groups(self, procedures, &mut |position, outcome| done(position, outcome), |worker, procedure| {
            worker.ask(procedure);
            drive::execute_unnamed(worker, Mode::ReadWrite, procedure)
        });
        others(self);
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.ask(procedure);
        drive::execute(self, Mode::Snapshot, procedure)
    }

    #[inline]
    fn read_one<K: EncodedKey, O: Send>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        read: impl FnMut(Option<RowRef<'_>>) -> O + Send,
    ) -> Result<O, Error> {
        steady!(table, key => self.read_one(table, key, projection, read));
        self.read_alone(table, key, projection, read)
    }

    fn load(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        self.load_rows(table, rows)
    }

    #[inline]
    fn admit(&mut self) -> Result<(), Error> {
        let (_, base, database) = self.parts();
        database.common.journal.admit(base.slot)
    }

    fn take_ticket(&mut self) -> Ticket {
        std::mem::take(&mut self.parts_mut().1.ticket)
    }

    #[inline]
    fn counters(&self) -> &Counters {
        &self.parts().1.counters
    }

    fn maintain(&mut self) {
        self.end_leaked();
        self.maintain_stores();
    }
}

/// Executes procedures in groups: the records of a whole group are brought into the caches before its procedures run one after the other.
fn execute_in_groups<W: StoreWorker, P: Procedure>(
    worker: &mut W,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    execute: impl Fn(&mut W, &mut P) -> Result<P::Output, P::Error>,
) {
    for (number, procedures) in procedures.chunks_mut(GROUP).enumerate() {
        // While it is in no epoch. Each procedure learns of a refusal for itself.
        let _ = worker.admit();
        let group = Group::begin(worker, procedures);
        for (position, procedure) in procedures.iter_mut().enumerate() {
            if W::HOLDS_GROUPS {
                group.0.parts_mut().1.hints.put_in_force(position);
            }
            let outcome = execute(group.0, procedure);
            done(number * GROUP + position, outcome);
        }
    }
}

/// The group of procedures that is executed; it ends when this is dropped, after a panic, too.
struct Group<'w, W: StoreWorker>(&'w mut W);

impl<'w, W: StoreWorker> Group<'w, W> {
    /// Looks up the keys that the procedures declare.
    fn begin<P: Procedure>(worker: &'w mut W, procedures: &[P]) -> Self {
        worker.end_leaked();
        let group = Self(worker);
        let (local, base, database) = group.0.parts_mut();
        if W::HOLDS_GROUPS {
            local.hold();
        }
        let guard = local.pin();
        // SAFETY: the list is looked at in this function alone: under this guard, and behind it where the group stays in its epoch.
        unsafe { base.gathered.renew(&database.catalog) };
        base.hints.gather(&base.gathered, procedures, &guard);
        drop(guard);
        if W::HOLDS_GROUPS {
            let tables = std::mem::take(&mut base.gathered);
            group.0.has_gathered(&tables);
            group.0.parts_mut().1.gathered = tables;
        }
        group
    }
}

impl<W: StoreWorker> Drop for Group<'_, W> {
    fn drop(&mut self) {
        if W::HOLDS_GROUPS {
            let (local, base, _) = self.0.parts_mut();
            base.hints.clear();
            local.release();
        }
    }
}

impl<W: StoreWorker> Interactive for W {
    type Transaction<'w>
        = W::Transaction<'w>
    where
        Self: 'w;

    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<W::Transaction<'_>, Error> {
        self.make_ready();
        self.start(mode)
    }

    fn last_abort(&self) -> Option<Abort> {
        self.parts().1.last_abort
    }

    fn waits_for_itself(&self) -> Option<Error> {
        self.parts().1.nested.error()
    }

    fn is_nested(&self) -> bool {
        self.parts().0.is_nested()
    }

    fn await_snapshot(&mut self, longest: Duration) -> bool {
        self.end_leaked();
        self.await_present(longest)
    }

    fn keeps_readers(&self, mode: Mode) -> bool {
        self.keeps_open_readers(mode)
    }

    fn back_off(&mut self, attempts: u64) {
        self.wait(attempts);
    }

    fn retry(&self) -> &Retry {
        &self.parts().2.common.retry
    }
}
