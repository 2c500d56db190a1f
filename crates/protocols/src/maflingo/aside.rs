//! Between two operations a transaction is in no epoch for long, so that one whose client does nothing holds back what it uses and nothing
//! else.
//!
//! A snapshot rests (`Guard::rest`): it holds no record and no node from one operation to the next. A transaction that is validated holds
//! those in its sets, so it *shows* them (`polychron_memory::Finds`). It stands aside after each operation; any thread that moves the clock
//! and finds it aside in an epoch that has ended long ago notes what is in the sets, and everything else is freed as if the transaction were
//! not there. When it comes back it enters an epoch again, and finds
//!
//! * the records of its read set and write set, and those that it has latched, where they were: none of them was freed, so each tells by its
//!   TID and its data version what has become of it;
//! * the nodes of its node set, of which it may not ask what they lead to: one that was unlinked is a conflict (`NodeSet::stand_alone`);
//! * no finger and no hint.
//!
//! What is measured by the epochs besides memory goes on waiting for the transaction (`Epochs::readonly`): its list of tables stays, and the
//! records that it has claimed stay in their indexes. The transactions of a batch stay in its epoch, and an operation whose visitor sleeps
//! in its own.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::contested::RowAddress;
use polychron_engine::mutations::left_out;
use polychron_memory::{Finds, Guard, Local};

use super::record::{Address, Record};
use super::sets::Sets;
use super::steps::Step;
use super::transaction::MaflingoTransaction;

/// A record in the sets of a transaction, or one that it has found in the operation that runs. It stays with the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Kept(Address);

impl Kept {
    /// The record, under the guard of its transaction.
    #[inline]
    pub(super) fn under<'g>(self, guard: &'g OwnGuard<'_>) -> Record<'g> {
        // SAFETY: a transaction has found it under its guard, which keeps it or shows it, as `OwnGuard::new` was promised.
        unsafe { self.0.under(guard) }
    }

    /// The number of its place.
    #[inline]
    pub(super) fn addr(self) -> usize {
        self.0.addr()
    }
}

impl From<Record<'_>> for Kept {
    #[inline]
    fn from(record: Record<'_>) -> Self {
        Self(record.address())
    }
}

impl From<Kept> for RowAddress {
    fn from(record: Kept) -> Self {
        Self(record.addr())
    }
}

/// The guard of a transaction, under which all is found that is in its sets.
#[derive(Debug)]
pub(super) struct OwnGuard<'w>(Guard<'w>);

impl<'w> OwnGuard<'w> {
    /// # Safety
    /// What is kept beyond an operation is in the sets that the guard's worker shows, was found there under this guard or one that still stands,
    /// and is used in operations alone; the sets are cleared before the guard ends.
    #[inline]
    pub(super) unsafe fn new(guard: Guard<'w>) -> Self {
        Self(guard)
    }
}

impl<'w> Deref for OwnGuard<'w> {
    type Target = Guard<'w>;

    #[inline]
    fn deref(&self) -> &Guard<'w> {
        &self.0
    }
}

impl DerefMut for OwnGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A worker's sets, where others find them while it stands aside.
#[derive(Debug)]
struct Shown(UnsafeCell<Sets>);

// SAFETY: the sets are used by their worker alone, through `ShownSets`, and while it stands aside read by a thread that has the lock of its
// finds, which the worker waits for before it uses them again.
unsafe impl Sync for Shown {}

// SAFETY: the sets hold addresses, which any thread may have.
unsafe impl Send for Shown {}

// SAFETY: behind its return a transaction uses of what it has found the records in its sets and those that it has latched, and the nodes of
// its stamps: fingers and hints are cleared (`come_back`), and nodes are asked alone.
unsafe impl Finds for Shown {
    unsafe fn each(&self, note: &mut dyn FnMut(usize)) {
        // SAFETY: the worker stands aside until this returns, and uses its sets in operations alone.
        let sets = unsafe { &*self.0.get() };
        let mut note_record = |record: Kept| note(record.addr());
        if !left_out(Step::NoteReads) {
            sets.reads.iter().for_each(|read| note_record(read.record));
        }
        if !left_out(Step::NoteWrites) {
            sets.writes.iter().for_each(|write| note_record(write.record));
        }
        sets.latched.iter().copied().for_each(note_record);
        if !left_out(Step::NoteNodes) {
            sets.nodes.addresses().for_each(note);
        }
    }
}

/// The worker's way to its sets.
#[derive(Debug)]
pub(super) struct ShownSets(Arc<Shown>);

impl ShownSets {
    /// The sets of a new worker.
    pub(super) fn of(local: &mut Local) -> Self {
        let shown = Arc::new(Shown(UnsafeCell::new(Sets::default())));
        local.show_finds(Arc::clone(&shown) as Arc<dyn Finds>);
        Self(shown)
    }
}

impl Deref for ShownSets {
    type Target = Sets;

    #[inline]
    fn deref(&self) -> &Sets {
        // SAFETY: the worker has one of these, which it uses while it does not stand aside.
        unsafe { &*self.0.0.get() }
    }
}

impl DerefMut for ShownSets {
    #[inline]
    fn deref_mut(&mut self) -> &mut Sets {
        // SAFETY: as above.
        unsafe { &mut *self.0.0.get() }
    }
}

impl MaflingoTransaction<'_> {
    /// Runs an operation. In between the transaction stands aside, or rests.
    #[inline(always)]
    pub(super) fn work<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.come_back();
        let outcome = operation(self);
        self.stand_aside();
        outcome
    }

    /// Called at the end of every operation, and of the beginning.
    #[inline(always)]
    pub(super) fn stand_aside(&mut self) {
        if self.snapshot.is_some() {
            self.guard.rest();
        } else {
            self.guard.stand_aside();
        }
    }

    /// The transaction is in an epoch from now on.
    #[inline(always)]
    pub(super) fn come_back(&mut self) {
        let stayed = if self.snapshot.is_some() { self.guard.resume() } else { self.guard.come_back() };
        if !stayed {
            self.forget_found();
        }
    }

    /// The epoch was left: see the head of the file.
    #[cold]
    fn forget_found(&mut self) {
        let state = &mut *self.state;
        state.base.forget_found();
        if self.snapshot.is_none() && !left_out(Step::AskNodesAlone) {
            state.sets.nodes.stand_alone();
        }
    }
}
