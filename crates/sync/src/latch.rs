//! A latch for sections of a few instructions.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::atomic::{AtomicBool, Ordering};
use crate::{Backoff, CachePadded};

/// A padded test-and-test-and-set latch around a value. Not fair and not re-entrant: for sections of a few instructions.
pub struct SpinLatch<T = ()> {
    inner: CachePadded<Inner<T>>,
}

struct Inner<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the latch gives access to the value to one thread at a time, so sharing the latch only ever moves the
// right to use the value between threads, which `T: Send` allows.
unsafe impl<T: Send> Sync for SpinLatch<T> {}

impl<T> SpinLatch<T> {
    /// A free latch.
    pub fn new(value: T) -> Self {
        Self { inner: CachePadded::new(Inner { held: AtomicBool::new(false), value: UnsafeCell::new(value) }) }
    }

    /// Waits until the latch is free and takes it.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_slowly(),
        }
    }

    /// Takes the latch if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the release store of the guard's drop.
        let taken = self.inner.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then(|| SpinGuard { latch: self })
    }

    #[cold]
    fn lock_slowly(&self) -> SpinGuard<'_, T> {
        let mut backoff = Backoff::new();
        loop {
            while self.inner.held.load(Ordering::Relaxed) {
                backoff.wait();
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }
}

impl<T: Default> Default for SpinLatch<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for SpinLatch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SpinLatch").finish_non_exhaustive()
    }
}

/// Holds a [`SpinLatch`] until it is dropped.
pub struct SpinGuard<'latch, T = ()> {
    latch: &'latch SpinLatch<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the latch, so no other thread touches the value.
        unsafe { &*self.latch.inner.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the exclusive borrow of the guard keeps its own thread from a second reference.
        unsafe { &mut *self.latch.inner.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next holder's compare-and-exchange.
        self.latch.inner.held.store(false, Ordering::Release);
    }
}

// SAFETY: a shared guard gives shared access to the value only.
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let latch = SpinLatch::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        *latch.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*latch.lock(), 4000);
    }

    #[test]
    fn a_held_latch_is_not_taken_twice() {
        let latch = SpinLatch::new(());
        let guard = latch.lock();
        assert!(latch.try_lock().is_none());
        drop(guard);
        assert!(latch.try_lock().is_some());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::model::explore;
    use crate::{Arc, thread};
    use loom::cell::UnsafeCell;

    /// Adds one, in a cell for which loom checks that accesses are ordered.
    fn add(held: &SpinGuard<'_, UnsafeCell<u32>>) {
        // SAFETY: loom checks it.
        held.with_mut(|value| unsafe { *value += 1 });
    }

    fn counted(latch: &SpinLatch<UnsafeCell<u32>>) -> u32 {
        // SAFETY: loom checks it.
        latch.lock().with(|value| unsafe { *value })
    }

    #[test]
    fn one_holder_at_a_time() {
        // Two threads that wait for a third would give way to each other for ever, so there are two.
        explore(3, || {
            let latch = Arc::new(SpinLatch::new(UnsafeCell::new(0)));
            let other = Arc::clone(&latch);
            let thread = thread::spawn(move || (0..2).for_each(|_| add(&other.lock())));
            (0..2).for_each(|_| add(&latch.lock()));
            thread.join().unwrap();
            assert_eq!(counted(&latch), 4);
        });
    }

    /// A thread that gives up at once has nothing, and a thread that gets the latch sees what its last holder did.
    #[test]
    fn attempts_take_all_or_nothing() {
        explore(3, || {
            let latch = Arc::new(SpinLatch::new(UnsafeCell::new(0)));
            let other = Arc::clone(&latch);
            let attempt = |latch: &SpinLatch<_>| latch.try_lock().map(|held| add(&held)).is_some();
            let thread = thread::spawn(move || u32::from(attempt(&other)));
            let mine = u32::from(attempt(&latch));
            let theirs = thread.join().unwrap();
            assert!(mine + theirs > 0, "the first attempt finds the latch free");
            assert_eq!(counted(&latch), mine + theirs);
        });
    }
}
