//! The operations of a pinned worker: allocate, free, retire, read snapshots, announce commits.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::id::WorkerId;

use crate::limbo::{Entry, WaitsFor};
use crate::local::Worker;
use crate::memory::Memory;
use crate::{Epochs, OutOfMemory};

/// Proof that the worker is inside an epoch; gives access to its pools.
#[derive(Debug)]
pub struct Guard<'l> {
    pub(crate) worker: &'l Worker,
    /// Whether it has left the epoch for a while.
    pub(crate) resting: bool,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.resting {
            self.worker.leave();
        }
    }
}

/// A commit that was announced. See [`Guard::begin_commit`].
#[derive(Debug)]
pub struct Committing<'l> {
    pub(crate) worker: &'l Worker,
}

impl Drop for Committing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.worker.shared().epochs.end_commit(self.worker.id.position());
    }
}

impl<'l> Guard<'l> {
    /// The epoch the worker is in. While the guard lives, [`Epochs::readonly`] stays below it, so a transaction may commit
    /// in this epoch or in a later one.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.worker.epoch.get()
    }

    /// Leaves the epoch and enters the current one, for a thread that works long under one guard. Pointers found before must not be
    /// used after it. Ends a rest. Under nested guards nothing else happens: the outer one still relies on its epoch. Returns the epoch.
    #[inline]
    pub fn refresh(&mut self) -> u64 {
        if self.resting {
            self.resume();
        } else if self.worker.pins.get() == 1 {
            self.worker.enter();
        }
        self.epoch()
    }

    /// The worker's slot.
    #[inline]
    pub fn worker_id(&self) -> WorkerId {
        self.worker.id
    }

    /// The memory the worker belongs to.
    #[inline]
    pub fn memory(&self) -> &'l Arc<Memory> {
        &self.worker.memory
    }

    /// The epoch clock.
    #[inline]
    pub fn epochs(&self) -> &'l Epochs {
        &self.worker.memory.shared.epochs
    }

    /// Opens a snapshot, as [`Local::begin_snapshot`](crate::Local::begin_snapshot) does. It may outlive the guard.
    #[inline]
    pub fn begin_snapshot(&self) -> Snapshot<'l> {
        self.worker.begin_snapshot()
    }

    /// Takes `bytes` bytes of uninitialised memory, aligned to 64 when `bytes` is a multiple of 64 and to 16 otherwise.
    ///
    /// # Errors
    /// When the limit is reached, or the system has no more, after everything that can be freed was freed.
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        #[cfg(feature = "faults")]
        if crate::faults::refused() {
            return Err(self.refusal(bytes));
        }
        self.worker.allocate(bytes)
    }

    /// The error for an allocation of so many bytes that is refused now.
    #[cold]
    pub fn refusal(&self, requested: usize) -> OutOfMemory {
        self.worker.shared().refusal(requested)
    }

    /// Runs work that makes room in the end, and needs a little memory for it: what is used up for all else comes
    /// from the reserve. Allocations of more than 4 MiB do not.
    #[inline]
    pub fn with_reserve<O>(&self, work: impl FnOnce(&Self) -> O) -> O {
        /// Puts the permission back, whatever happens.
        struct Permission<'w>(&'w Cell<bool>, bool);
        impl Drop for Permission<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _permission = Permission(&self.worker.may_draw, self.worker.may_draw.replace(true));
        work(self)
    }

    /// Gives memory back at once.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] of a worker of the same memory with the same `bytes`, and no thread can
    /// still reach it.
    #[inline]
    pub unsafe fn free(&self, pointer: NonNull<u8>, bytes: usize) {
        debug_assert!(self.worker.pins.get() > 0, "in no epoch others may take what the worker keeps");
        // SAFETY: the caller promises the same.
        unsafe { self.worker.free(pointer, bytes) }
    }

    /// Gives memory back once every guard that exists now is dropped or renewed.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] of a worker of the same memory with the same `bytes`; it is retired once;
    /// threads that pin from now on cannot reach it.
    #[inline]
    pub unsafe fn retire(&self, pointer: NonNull<u8>, bytes: usize) {
        let entry = Entry { pointer, bytes, superseded_at: 0, was_found: false };
        self.worker.retire(&self.worker.retired, WaitsFor::Guards, entry);
    }

    /// Gives the memory of a version back once every snapshot that exists now has renewed its guard or ended **and** every
    /// snapshot, present or to come, reads at `superseded_at` or a newer epoch.
    ///
    /// The epochs passed by one worker should not fall: one that is too high holds up those behind it.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] of a worker of the same memory with the same `bytes`; it is retired once;
    /// from now on only snapshots older than `superseded_at` reach it, and those only while they are open. Guards without a snapshot
    /// have never reached it ([`Guard::retire_found_versions`]).
    #[inline]
    pub unsafe fn retire_versions(&self, pointer: NonNull<u8>, bytes: usize, superseded_at: u64) {
        let entry = Entry { pointer, bytes, superseded_at, was_found: false };
        self.worker.retire(&self.worker.versions, WaitsFor::Walkers, entry);
    }

    /// As [`Guard::retire_versions`], of a version that was once found through an index: other guards may still hold it when no
    /// snapshot does.
    ///
    /// # Safety
    /// As there, but that guards without a snapshot of the time of its unlinking may reach it.
    pub unsafe fn retire_found_versions(&self, pointer: NonNull<u8>, bytes: usize, superseded_at: u64) {
        let entry = Entry { pointer, bytes, superseded_at, was_found: true };
        self.worker.retire(&self.worker.versions, WaitsFor::Walkers, entry);
    }

    /// Gives the memory of a version back that was unlinked, once every snapshot that exists now has renewed its guard
    /// or ended.
    ///
    /// # Safety
    /// As for [`Guard::retire_versions`], of a version that no thread finds from now on.
    #[inline]
    pub unsafe fn retire_pruned(&self, pointer: NonNull<u8>, bytes: usize) {
        let entry = Entry { pointer, bytes, superseded_at: 0, was_found: false };
        self.worker.retire(&self.worker.pruned, WaitsFor::Walkers, entry);
    }

    /// Announces a commit: no epoch that is read before the answer is dropped becomes the past of snapshots ([`Epochs::past`])
    /// while it lives.
    #[inline]
    pub fn begin_commit(&self) -> Committing<'l> {
        self.worker.shared().epochs.begin_commit(self.worker.id.position());
        Committing { worker: self.worker }
    }

    /// Leaves the epoch until [`Guard::resume`] or [`Guard::refresh`], for a snapshot whose client may do nothing for a while. Pointers
    /// found before are not protected, and until then the guard stands for nothing.
    #[inline]
    pub fn rest(&mut self) {
        if !self.resting {
            self.resting = true;
            self.worker.leave();
        }
    }

    /// Comes back from a rest. Whether the epoch is still the same: then what the guard protected before was not freed meanwhile, because
    /// everything retired since waits for the end of this epoch.
    #[inline]
    pub fn resume(&mut self) -> bool {
        if !self.resting {
            return true;
        }
        let epoch = self.epoch();
        self.resting = false;
        self.worker.come();
        self.epoch() == epoch
    }

    /// Stands aside between two operations, until [`Guard::come_back`], for a transaction whose client may do nothing for a while: where the
    /// worker would hold back others, it has left its epoch. This costs less than [`Guard::rest`], but the guard must not follow
    /// versions (no snapshot is open). Under nested guards nothing happens.
    #[inline]
    pub fn stand_aside(&mut self) {
        if !self.resting {
            self.worker.stand_aside();
        }
    }

    /// Comes back from aside. Whether pointers that were found before are protected still. If not, those are that the worker has shown, if
    /// it shows any ([`Local::show_finds`](crate::Local::show_finds)).
    #[inline]
    pub fn come_back(&mut self) -> bool {
        self.resting || self.worker.come_back()
    }

    /// Keeps every version that is not collectable now from being freed until the answer is dropped, so that chains of
    /// versions can be walked and pruned: `None` when the clock is just being moved or the worker has a snapshot open.
    ///
    /// A time's thing: while it lasts no version is freed that it might keep.
    pub fn hold_versions(&self) -> Option<Hold<'l>> {
        if self.worker.snapshots.get() > 0 {
            return None;
        }
        let epoch = self.worker.shared().epochs.hold(self.worker.id.position())?;
        self.worker.snapshots.set(1);
        self.worker.snapshot.set(epoch);
        Some(Hold { snapshot: Snapshot { worker: self.worker } })
    }
}

/// Keeps the horizon of versions where it is. See [`Guard::hold_versions`].
#[derive(Debug)]
pub struct Hold<'l> {
    snapshot: Snapshot<'l>,
}

impl Hold<'_> {
    /// [`Epochs::collectable`] for as long as this lives: what was superseded later stays.
    #[inline]
    pub fn collectable(&self) -> u64 {
        self.snapshot.epoch()
    }
}

/// An open snapshot: keeps what can be seen at its epoch until it is dropped.
#[derive(Debug)]
pub struct Snapshot<'l> {
    pub(crate) worker: &'l Worker,
}

impl Snapshot<'_> {
    /// The epoch the snapshot reads at: versions written in it or before it are visible.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.worker.snapshot.get()
    }
}

impl Drop for Snapshot<'_> {
    #[inline]
    fn drop(&mut self) {
        let snapshots = self.worker.snapshots.get() - 1;
        self.worker.snapshots.set(snapshots);
        if snapshots == 0 {
            self.worker.shared().epochs.end_snapshot(self.worker.id.position());
        }
    }
}
