//! The lock. A leaked transaction goes on holding it, so it is not a guard of the standard library: the worker releases it.

use polychron_base::Error;
use polychron_engine::limits;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Backoff, this_thread};

/// The thread that has acquired it, or 0.
#[derive(Debug, Default)]
pub(crate) struct Lock(AtomicU64);

impl Lock {
    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when this thread holds it, and would wait for itself; what [`limits::check`] says while it waits.
    pub(crate) fn acquire(&self) -> Result<(), Error> {
        let (thread, mut backoff) = (this_thread(), Backoff::new());
        // Acquire: pairs with the release in `release`, so that all that the holder did is seen.
        while let Err(holder) = self.0.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
            if holder == thread {
                return Err(Error::unsupported("one-lock", "a call from inside a transaction of the same thread"));
            }
            limits::check()?;
            backoff.wait();
        }
        Ok(())
    }

    /// Gives the lock back.
    pub(crate) fn release(&self) {
        // Release: pairs with the acquire in `acquire`.
        self.0.store(0, Ordering::Release);
    }

    /// Waits for the lock and holds it until the answer is dropped.
    pub(crate) fn hold(&self) -> Result<Held<'_>, Error> {
        self.acquire()?;
        Ok(Held(self))
    }
}

/// The lock, while tables or indexes change.
pub(crate) struct Held<'l>(&'l Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
