//! How a thread waits for another one without using its processor.

use core::fmt;
use std::sync::PoisonError;

use crate::atomic::{AtomicBool, Ordering, fence};
use crate::{Condvar, MODELLED, Mutex, MutexGuard, spin_hint};

/// Where one thread waits until something is so, and others wake it when they have made it so.
///
/// The thread may first spin for a bounded time, because most waits are short. Then it sleeps: a thread that waits for one without a
/// processor must leave its own to that one.
#[derive(Default)]
pub struct Parker {
    /// Whether the owner sleeps, or is about to.
    asleep: AtomicBool,
    mutex: Mutex<()>,
    woken: Condvar,
}

impl Parker {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spin hints that take somewhat longer than to wake a thread on a machine with a free processor. A thread that spins for less goes to
    /// sleep while the thread that it waits for wakes up, which then waits for it in turn: once two threads have slept they never
    /// find each other awake again.
    pub const SPINS: u32 = 1000;

    /// Waits until `done` says so: with so many spin hints, and then asleep. One thread at a time waits here. `done` looks at
    /// atomics and takes no lock: any thread that calls [`Parker::wake`] may hold one.
    pub fn wait(&self, spins: u32, done: impl Fn() -> bool) {
        if !Self::spin(spins, &done) && !done() {
            self.sleep(done);
        }
    }

    /// The first part of [`Parker::wait`], and whether that was all.
    pub fn spin(spins: u32, done: impl Fn() -> bool) -> bool {
        for _ in 0..if MODELLED { 0 } else { spins } {
            if done() {
                return true;
            }
            spin_hint();
        }
        false
    }

    #[cold]
    fn sleep(&self, done: impl Fn() -> bool) {
        let mut held = self.lock();
        self.asleep.store(true, Ordering::Relaxed);
        // SeqCst: the barrier that pairs with the one in `wake`. Either `done` sees what was made so, or the other sees the sleeper.
        fence(Ordering::SeqCst);
        while !done() {
            held = self.woken.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the owner, if it sleeps. The caller has stored what the owner waits for.
    pub fn wake(&self) {
        // SeqCst: pairs with the barrier in `sleep`.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // With the mutex in hand the owner has not looked yet, or waits already.
            drop(self.lock());
            self.woken.notify_one();
        }
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Parker").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::AtomicU64;

    /// Two threads hand a turn to and fro: a wake that is lost is a turn that never comes.
    #[test]
    fn no_wake_is_lost() {
        let (turn, parkers) = (AtomicU64::new(0), [Parker::default(), Parker::default()]);
        let (turn, parkers) = (&turn, &parkers);
        std::thread::scope(|scope| {
            for own in 0..2 {
                scope.spawn(move || {
                    for round in (own..2000).step_by(2) {
                        // Acquire and release: the turn is all that is handed over.
                        parkers[own as usize % 2].wait(own as u32 * 10, || turn.load(Ordering::Acquire) == round);
                        turn.store(round + 1, Ordering::Release);
                        parkers[(own as usize + 1) % 2].wake();
                    }
                });
            }
        });
        assert_eq!(turn.load(Ordering::Relaxed), 2000);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::model::explore;
    use crate::{Arc, thread};

    /// Any thread that stores and then wakes finds the owner awake, or asleep and wakes it: under every interleaving the wait ends.
    #[test]
    fn a_wait_ends_when_it_is_over() {
        explore(3, || {
            let shared = Arc::new((Parker::default(), AtomicBool::new(false), AtomicBool::new(false)));
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                // Relaxed: the barriers of the parker are what is tried.
                other.1.store(true, Ordering::Relaxed);
                other.0.wake();
                other.2.store(true, Ordering::Relaxed);
                other.0.wake();
            });
            shared.0.wait(0, || shared.1.load(Ordering::Relaxed));
            shared.0.wait(0, || shared.2.load(Ordering::Relaxed));
            thread.join().unwrap();
        });
    }
}
