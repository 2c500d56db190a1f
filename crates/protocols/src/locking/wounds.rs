//! Who asks for locks, and how an older transaction tells a younger one to give way.
//!
//! Each transaction has an age, which its next attempts keep. One that finds a younger one in its way *wounds* it: sets a flag that
//! the younger one sees at its next look, wherever it waits. Whoever wounds does so under the latch of a list in which the
//! other has something, and who has something in a list takes it out before its transaction ends. So the flag is there
//! as long as others may set it, and never tells of a transaction that has ended.

use std::ptr::NonNull;

use polychron_sync::atomic::{AtomicBool, Ordering};

/// What to do about a lock that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It cannot be had.
    Refuse,
    /// Queue for it: the caller keeps to the global order.
    Queue,
    /// Wound who is younger, and wait for who is older.
    Wound,
}

/// A transaction, as its requests show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) thread: u64,
    /// The smaller, the older; no two that wound have the same.
    age: u64,
    wounded: NonNull<AtomicBool>,
}

// SAFETY: the flag is an atomic, and is touched as `Asker::wound` says.
unsafe impl Send for Asker {}
// SAFETY: as above.
unsafe impl Sync for Asker {}

impl Asker {
    /// Of a request that is in no list.
    pub(super) const fn nobody() -> Self {
        Self { thread: 0, age: 0, wounded: NonNull::dangling() }
    }

    /// Of a thread that wounds nobody.
    #[cfg(all(test, loom))]
    pub(super) const fn in_thread(thread: u64) -> Self {
        Self { thread, ..Self::nobody() }
    }

    /// Whether it is the same transaction.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        self.wounded == other.wounded
    }

    /// Whether it began before another one.
    #[inline]
    pub(super) fn is_older(self, other: Self) -> bool {
        self.age < other.age
    }

    /// Wounds a younger one, unless it runs in the same thread, which does not wait for itself.
    ///
    /// # Safety
    /// The other has something in a list that the caller has latched.
    #[inline]
    pub(super) unsafe fn wound(self, other: Self) {
        if self.is_older(other) && self.thread != other.thread {
            // SAFETY: as the caller promises, the other's transaction has not ended, so its flag is there.
            // Relaxed: nothing is read by it; who is wounded gives its locks back under their latches.
            unsafe { other.wounded.as_ref() }.store(true, Ordering::Relaxed);
        }
    }
}

/// A worker's own side of it.
#[derive(Debug)]
pub(super) struct Wounds {
    flag: Box<AtomicBool>,
    age: u64,
    thread: u64,
}

impl Default for Wounds {
    fn default() -> Self {
        Self { flag: Box::new(AtomicBool::new(false)), age: 0, thread: 0 }
    }
}

impl Wounds {
    /// A transaction begins, in this thread. The one before has nothing in any list.
    #[inline]
    pub(super) fn begin(&mut self, age: u64) {
        self.flag.store(false, Ordering::Relaxed);
        (self.age, self.thread) = (age, polychron_sync::this_thread());
    }

    #[inline]
    pub(super) fn asker(&self) -> Asker {
        Asker { thread: self.thread, age: self.age, wounded: NonNull::from(&*self.flag) }
    }

    /// Whether an older one wants what this one has.
    #[inline]
    pub(super) fn wounded(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    pub(super) fn age(&self) -> u64 {
        self.age
    }
}
