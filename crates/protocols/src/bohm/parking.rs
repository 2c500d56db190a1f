//! How threads wait that have nothing to do: they spin, yield the processor, and then sleep until another thread wakes them.
//!
//! A thread that waits for something that is under way sleeps for a bounded time only, and looks again: a wake that comes late costs time, and never
//! an answer. Where nothing is under way a thread sleeps until it is woken, so that a database at rest needs no processor.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use polychron_sync::atomic::{AtomicUsize, Ordering, fence};
use polychron_sync::{Backoff, Condvar, Mutex, MutexGuard, thread};

/// Yields of the processor before a thread sleeps.
const YIELDS: u32 = 16;

/// The first sleep, in microseconds, and how often it is doubled.
const SHORTEST_US: u64 = 50;
const DOUBLINGS: u32 = 7;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one thread sleeps at.
#[derive(Debug, Default)]
pub(super) struct ThreadParker {
    is_woken: Mutex<bool>,
    called: Condvar,
}

impl ThreadParker {
    /// Wakes the thread that sleeps there, or will before it prepares for its next sleep.
    pub(super) fn wake(&self) {
        *lock(&self.is_woken) = true;
        self.called.notify_one();
    }

    fn prepare(&self) {
        *lock(&self.is_woken) = false;
    }

    fn sleep(&self, nap: ParkTime) {
        let mut is_woken = lock(&self.is_woken);
        match nap {
            // There is something to do, but another thread may have to go on first.
            ParkTime::None => thread::yield_now(),
            ParkTime::AtMost(time) if !*is_woken => {
                // A wake out of turn makes the sleep shorter, and its caller looks again.
                drop(self.called.wait_timeout(is_woken, time).unwrap_or_else(PoisonError::into_inner));
            }
            ParkTime::AtMost(_) => {}
            ParkTime::UntilWoken => {
                while !*is_woken {
                    is_woken = self.called.wait(is_woken).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// How long to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkTime {
    None,
    AtMost(Duration),
    UntilWoken,
}

/// Threads that sleep until there is work for one of them.
#[derive(Debug, Default)]
pub(super) struct ParkedThreads {
    count: AtomicUsize,
    asleep: Mutex<Vec<Arc<ThreadParker>>>,
}

impl ParkedThreads {
    /// Lets the calling thread sleep. How long is asked when others can wake it already, so that nothing which they do from then on is
    /// missed.
    pub(super) fn sleep(&self, parker: &Arc<ThreadParker>, how_long: impl FnOnce() -> ParkTime) {
        parker.prepare();
        lock(&self.asleep).push(Arc::clone(parker));
        self.count.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `wake_one`: the caller sees what was done before it, or the thread that did it sees the caller.
        fence(Ordering::SeqCst);
        parker.sleep(how_long());
        let mut asleep = lock(&self.asleep);
        if let Some(position) = asleep.iter().position(|other| Arc::ptr_eq(other, parker)) {
            asleep.swap_remove(position);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether some thread sleeps here, as far as the caller sees.
    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Wakes a thread for work that the caller has published.
    #[inline]
    pub(super) fn wake_one(&self) {
        // SeqCst: pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        if self.has_some() {
            self.wake(1);
        }
    }

    /// Wakes all threads.
    pub(super) fn wake_all(&self) {
        // SeqCst: as above.
        fence(Ordering::SeqCst);
        self.wake(usize::MAX);
    }

    #[cold]
    fn wake(&self, most: usize) {
        let mut asleep = lock(&self.asleep);
        // The last one to come is woken first: its stack and its rows are still near.
        let kept = asleep.len() - most.min(asleep.len());
        let woken: Vec<_> = asleep.drain(kept..).collect();
        self.count.fetch_sub(woken.len(), Ordering::Relaxed);
        drop(asleep);
        woken.iter().for_each(|parker| parker.wake());
    }
}

/// How long a thread has waited in vain.
#[derive(Debug, Default)]
pub(super) struct SpinBudget {
    backoff: Backoff,
    yields: u32,
    sleeps: u32,
}

impl SpinBudget {
    /// There was something to do.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.backoff.reset();
        (self.yields, self.sleeps) = (0, 0);
    }

    /// Waits for a short time. `false`: that was done often enough, and it is time to sleep.
    #[inline]
    pub(super) fn wait_shortly(&mut self) -> bool {
        // Model checkers have no time that passes.
        if self.backoff.is_yielding() && !polychron_sync::MODELLED {
            if self.yields == YIELDS {
                return false;
            }
            self.yields += 1;
        }
        self.backoff.wait();
        true
    }

    /// Whether the thread has spun without finding anything to do.
    pub(super) fn is_yielding(&self) -> bool {
        self.backoff.is_yielding()
    }

    /// Whether the thread has slept and found nothing to do then either.
    #[inline]
    pub(super) fn has_slept(&self) -> bool {
        self.sleeps > 0
    }

    /// For how long to sleep next, where there is something to look after.
    pub(super) fn next_sleep(&mut self) -> Duration {
        let time = Duration::from_micros(SHORTEST_US << self.sleeps.min(DOUBLINGS));
        self.sleeps += 1;
        time
    }

    /// Waits for something of which no thread notifies this one, longer each time.
    pub(super) fn wait(&mut self, parker: &ThreadParker) {
        if !self.wait_shortly() {
            parker.prepare();
            parker.sleep(ParkTime::AtMost(self.next_sleep()));
        }
    }
}
