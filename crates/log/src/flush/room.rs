//! The room that the log has ahead, and the refusals where that is not enough.

use polychron_base::Error;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Change;
use polychron_sync::atomic::Ordering;

use super::Log;
use crate::disk::Disk;
use crate::steps::Step;

/// How much room is left to deletions at most once nothing else is staged, in bytes.
const FOR_DELETIONS: u64 = 1 << 20;

impl<D: Disk> Log<D> {
    /// Why a change cannot be staged, if it cannot: the log has stopped, or may not grow. Deletions go on while what the log has of room is enough for them.
    #[cold]
    pub(super) fn refuse(&self, change: Change<'_>) -> Result<(), Error> {
        if left_out(Step::RefuseStopped) {
            return Ok(());
        }
        if let Some(why) = self.turn.stopped() {
            return Err(why.into());
        }
        let is_deletion = matches!(change, Change::Delete) && !left_out(Step::DeleteWhenFull);
        if self.is_full() && !(is_deletion && self.room() >= self.need()) {
            return Err(Error::disk_full(String::new(), "the log cannot grow".to_owned()));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn refuses(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.is_full.load(Ordering::Relaxed)
    }

    /// Whether the log may not grow.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Whether a checkpoint is wanted, because the log cannot grow now, or soon.
    pub(crate) fn is_tight(&self) -> bool {
        self.pool.is_tight()
    }

    /// How many bytes are to be had before they are needed: all that may be sealed, also by a worker that comes new, and half as much again for what is lost at
    /// the ends of files and frames. Then no flush waits for room.
    pub(super) fn need(&self) -> u64 {
        let memory = self.rings.memory_bytes();
        (memory + memory / 2 + 2 * self.rings.ring_bytes()) as u64
    }

    /// The same with what is left to deletions.
    pub(super) fn comfort(&self) -> u64 {
        let need = self.need();
        need + need.min(FOR_DELETIONS)
    }

    pub(super) fn room(&self) -> u64 {
        self.rest.load(Ordering::Relaxed) + self.pool.spare_bytes()
    }

    /// Sees to room for a long transaction, of which this is staged.
    #[cold]
    pub(super) fn find_room(&self, change: Change<'_>) -> Result<(), Error> {
        if self.room() < self.comfort() {
            self.make_files();
            return self.refuse(change);
        }
        Ok(())
    }

    /// Makes a file before it is needed, if there is none to spare: what a thread of the log does again and again.
    pub fn make_files(&self) {
        match self.pool.fill(self.comfort()) {
            Ok(()) => self.is_full.store(false, Ordering::Relaxed),
            Err(error) if error.is_full() => self.is_full.store(true, Ordering::Relaxed),
            // A flush that needs the file fails, and stops the log.
            Err(_) => {}
        }
        self.is_short.store(false, Ordering::Relaxed);
    }
}
