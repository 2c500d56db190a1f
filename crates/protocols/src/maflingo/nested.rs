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

use polychron_base::Reason;
use polychron_base::error::KeyPreview;
use polychron_engine::nested;
use polychron_engine::stores::IndexRef;
use polychron_sync::atomic::Ordering;
use polychron_sync::this_thread;

use super::conflicts::Met;
use super::transaction::MaflingoTransaction;

/// The epochs of what a worker has committed and read, and the thread it is on.
#[derive(Debug, Default)]
pub(super) struct Known {
    thread: u64,
    /// The newest epoch of a change that the worker has committed or read.
    newest: u64,
    /// The same of the transaction alone, as far as its read set does not tell; and whether it has missed something that the set of nodes does not tell.
    pub(super) noted: u64,
    pub(super) has_missed: bool,
}

impl Known {
    /// A transaction begins. `moved`: the worker has come from another thread.
    #[inline]
    pub(super) fn begin(&mut self, moved: impl FnOnce()) {
        let here = this_thread();
        if self.thread != here {
            self.thread = here;
            moved();
        }
        (self.noted, self.has_missed) = (0, false);
    }

    /// A transaction has written or read a change of this epoch in a database, known by its number. What it read counts whatever becomes of it.
    #[inline]
    pub(super) fn note(&mut self, database: u32, epoch: u64) {
        self.newest = self.newest.max(epoch);
        self.noted = self.noted.max(epoch);
        nested::note_seen(database, epoch, 0);
    }

    /// The epoch of the newest change that the worker, or the calling thread through any worker, has committed or seen.
    pub(super) fn newest(&self, database: u32) -> u64 {
        nested::last_seen(database).map_or(self.newest, |(epoch, _)| self.newest.max(epoch))
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
        let (nested, at) = (&mut self.state.base.nested, (index_ref.table, index_ref.index, key));
        if is_latch && holds { nested.conflicts_inside(at) } else { nested.conflicts_at(wrote, at) }
    }
}
