//! A signal for a thread that does something again and again.

use std::sync::PoisonError;

use polychron_base::clock::Duration;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{Condvar, Mutex};

/// Calls a thread before its time, and stops it.
#[derive(Default)]
pub(crate) struct Signal {
    is_called: AtomicBool,
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Has the thread act soon, unless it was called already and has not begun to act since: then this is one read.
    #[inline]
    pub(crate) fn call(&self) {
        // Relaxed: the thread looks for itself. Where it does not see yet what it was called for, it is called again, or does it at its time.
        if !self.is_called.load(Ordering::Relaxed) {
            self.call_slowly();
        }
    }

    #[cold]
    fn call_slowly(&self) {
        if !self.is_called.swap(true, Ordering::Relaxed) {
            // The thread looks at the call under this lock before it sleeps, so it has seen the call or is asleep by now.
            drop(self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Does something again and again, after each interval and each call, until the stop. `act` learns whether it was called.
    pub(super) fn repeat(&self, interval: Duration, mut act: impl FnMut(bool)) {
        let mut is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_stopped {
            drop(is_stopped);
            // A call from here on has it act once more.
            act(self.is_called.swap(false, Ordering::Relaxed));
            is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            if !*is_stopped && !self.is_called.load(Ordering::Relaxed) {
                is_stopped = self.changed.wait_timeout(is_stopped, interval).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    /// Each call has the thread act behind it, however long its interval is.
    #[test]
    fn a_call_is_not_lost() {
        let signal = Arc::new(Signal::default());
        let (acts, acted) = channel();
        let its = Arc::clone(&signal);
        let thread = std::thread::spawn(move || {
            its.repeat(Duration::from_secs(3600), |is_called| acts.send(is_called).unwrap())
        });
        assert!(!acted.recv().unwrap(), "it acts at once, and nobody has called");
        for _ in 0..polychron_base::sizes::scaled(10_000, 100) {
            signal.call();
            assert!(acted.recv().unwrap());
        }
        signal.stop();
        thread.join().unwrap();
    }
}
