//! Transactions inside of transactions, on one thread.
//!
//! The inner one may meet what the outer one holds, and the outer one what the inner one has committed. Each conflicts, and a client that drives
//! its transactions step by step can go on. But where a transaction is run again until it commits, it would be run without end;
//! there the answer is [`Error::WaitsForItself`]:
//!
//! * A latch of a transaction that is open on the same thread, or a row that is left to one (`engine::contested`): at once. Its owner's slot tells the thread (`Epochs::is_here`).
//! * A row that was read and that a transaction of the same thread has overwritten since: at the second time in a row, for the inner
//!   transaction may run at the first attempt only. The row's id tells the writer, and `Shared::moved_after` from which id on
//!   that one is on this thread.
//! * Any other conflict during which the thread has committed something: nothing tells whose insertion broke a range, so only after
//!   many in a row. A row that another thread has overwritten ends the count.

use std::cell::Cell;

use polychron_base::error::KeyPreview;
use polychron_base::{Error, IndexId, Reason, TableId};
use polychron_engine::nested;
use polychron_engine::stores::IndexRef;
use polychron_sync::atomic::Ordering;
use polychron_sync::{this_thread, thread_local};

use super::conflicts::Met;
use super::transaction::MaflingoTransaction;

/// Conflicts in a row with the thread's own commits that may come from others.
const SPIN_BUDGET: u32 = 64;

thread_local! {
    /// How often the calling thread has written, in any database.
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

/// What a worker remembers to tell its thread's own doing from others'.
#[derive(Debug, Default)]
pub(super) struct Nested {
    thread: u64,
    /// What the thread had committed when the transaction began.
    commits: u64,
    /// Conflicts in a row during which the thread committed something: where that was the reason, and in all.
    own: u32,
    all: u32,
    /// The newest epoch of a change that the worker has committed or read.
    newest: u64,
    /// The same of the transaction alone, as far as its read set does not tell; and whether it has missed something that the set of nodes does not tell.
    pub(super) noted: u64,
    pub(super) has_missed: bool,
    /// Where the transaction conflicted, if beginning again cannot help.
    waits: Option<(TableId, IndexId, Option<KeyPreview>)>,
}

impl Nested {
    /// A transaction begins. `moved`: the worker has come from another thread.
    #[inline]
    pub(super) fn begin(&mut self, moved: impl FnOnce()) {
        let here = this_thread();
        if self.thread != here {
            self.thread = here;
            moved();
        }
        self.commits = COMMITS.with(Cell::get);
        self.waits = None;
        (self.noted, self.has_missed) = (0, false);
    }

    /// What a transaction that is run again and again is ended with.
    pub(super) fn error(&self) -> Option<Error> {
        self.waits.map(|(table, index, key)| Error::waits_in_index(table, index, key))
    }

    /// A transaction has committed that wrote in this database and epoch.
    #[inline]
    pub(super) fn committed(&mut self, database: u32, epoch: u64) {
        COMMITS.with(|commits| commits.set(commits.get() + 1));
        self.committed_reads(database, epoch);
    }

    /// A transaction has committed whose newest read or write is of this epoch.
    #[inline]
    pub(super) fn committed_reads(&mut self, database: u32, epoch: u64) {
        self.has_read(database, epoch);
        (self.own, self.all) = (0, 0);
    }

    /// A transaction has read what was written in this epoch, whatever becomes of it.
    #[inline]
    pub(super) fn has_read(&mut self, database: u32, epoch: u64) {
        self.newest = self.newest.max(epoch);
        self.noted = self.noted.max(epoch);
        nested::note_seen(database, epoch, 0);
    }

    /// The epoch of the newest change that the worker, or the calling thread through any worker, has committed or seen.
    pub(super) fn newest(&self, database: u32) -> u64 {
        nested::last_seen(database).map_or(self.newest, |(epoch, _)| self.newest.max(epoch))
    }

    /// Counts a conflict: `own` tells whether this thread has committed what it is with, where that is known. Whether beginning again cannot
    /// help.
    #[cold]
    fn conflicts(&mut self, own: Option<bool>) -> bool {
        if COMMITS.with(Cell::get) == self.commits || own == Some(false) {
            (self.own, self.all) = (0, 0);
            return false;
        }
        self.all += 1;
        self.own = if own.is_some() { self.own + 1 } else { 0 };
        self.own >= 2 || self.all >= SPIN_BUDGET
    }
}

impl MaflingoTransaction<'_> {
    /// Finds out whether the calling thread itself is why this transaction conflicts, and will be again.
    #[cold]
    pub(super) fn look_for_itself(
        &mut self,
        reason: Reason,
        index_ref: IndexRef,
        met: Option<Met>,
        key: Option<KeyPreview>,
    ) {
        let (epochs, worker) = (self.guard.epochs(), self.state.base.slot);
        let is_other = |other: &usize| *other != worker && epochs.is_here(*other);
        let holds = met.and_then(|met| met.owner).is_some_and(|owner| is_other(&owner));
        let is_latch = matches!(reason, Reason::Latched | Reason::BeingWritten | Reason::InsertedFirst);
        let wrote = met.filter(|_| reason == Reason::StaleRead).map(|Met { tid, .. }| {
            let moved_after = self.shared.moved_after.get(tid.worker()).map(|after| after.load(Ordering::Relaxed));
            is_other(&tid.worker()) && moved_after.is_some_and(|after| tid.0 > after)
        });
        if is_latch && holds || self.state.nested.conflicts(wrote) {
            self.state.nested.waits = Some((index_ref.table, index_ref.index, key));
        }
    }
}
