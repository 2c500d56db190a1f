//! Limits of a caller: the time it waits for its transaction, and the cancellation of one.
//!
//! Limits hold for what a thread does inside of [`Limits::hold`], transactions inside of transactions and changes of tables and indexes included.
//! They are looked at where a transaction would be run again, where it waits for others, before its procedure runs and before it commits: never while the procedure itself
//! runs, and never behind the point from which on the transaction is committed. A protocol that plans procedures looks before it gets them.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{MODELLED, Mutex, MutexGuard, nap, try_lock};

/// Calls off the transactions that it was given to, from any thread. Clones are the same token.
///
/// ```
/// use polychron_engine::limits::Cancellation;
///
/// let token = Cancellation::default();
/// token.clone().cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Calls off what has not committed yet. There is no way back.
    pub fn cancel(&self) {
        // Relaxed, here and below: nothing is handed over with it.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that has been done.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Cancellation").field(&self.is_cancelled()).finish()
    }
}

/// A time until which a transaction has to commit, a token that calls it off, or both.
///
/// ```
/// use std::time::Duration;
///
/// use polychron_engine::limits::{Cancellation, Limits};
///
/// let token = Cancellation::default();
/// let limits = Limits::timeout(Duration::from_millis(50)).with_token(&token);
/// assert!(limits.check().is_ok());
/// token.cancel();
/// assert!(limits.check().is_err());
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "limits do nothing until a transaction is run within them"]
pub struct Limits {
    /// The clock that began with them, and the time they leave, in nanoseconds.
    time: Option<(SystemClock, u64)>,
    token: Option<Cancellation>,
}

impl Limits {
    /// The time runs from now on.
    pub fn timeout(timeout: Duration) -> Self {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self { time: Some((SystemClock::new(), nanoseconds)), token: None }
    }

    /// Without an end, until the token is used.
    pub fn token(token: &Cancellation) -> Self {
        Self::default().with_token(token)
    }

    /// The same time, and a token.
    pub fn with_token(mut self, token: &Cancellation) -> Self {
        self.token = Some(token.clone());
        self
    }

    /// Whether they are kept.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::TimedOut`].
    pub fn check(&self) -> Result<(), Error> {
        if self.token.as_ref().is_some_and(Cancellation::is_cancelled) {
            return Err(Error::Cancelled);
        }
        match &self.time {
            Some((clock, most)) if clock.now_ns() >= *most => Err(Error::timed_out(most / 1_000_000)),
            _ => Ok(()),
        }
    }

    /// Runs `work` within these limits and those that hold already.
    pub fn hold<O>(&self, work: impl FnOnce() -> O) -> O {
        /// Takes the limits back, also when `work` panics.
        struct Held(bool);

        impl Drop for Held {
            fn drop(&mut self) {
                if self.0 {
                    let _ = CURRENT.try_with(|current| current.borrow_mut().pop());
                }
            }
        }

        let _held = Held(CURRENT.try_with(|current| current.borrow_mut().push(self.clone())).is_ok());
        work()
    }
}

std::thread_local! {
    /// The limits of the calling thread. In destructors of a thread's variables there are none.
    static CURRENT: RefCell<Vec<Limits>> = const { RefCell::new(Vec::new()) };
}

/// Runs `wait` within a time of its own, beside the limits that hold already: for what waits for others and is not their transaction. `None`:
/// without end. Time does not pass in models.
pub fn patiently<O>(time: Option<Duration>, wait: impl FnOnce() -> O) -> O {
    match time.filter(|_| !MODELLED) {
        Some(time) => Limits::timeout(time).hold(wait),
        None => wait(),
    }
}

/// The limits of a thread, for what another one does on its behalf.
#[derive(Clone, Debug, Default)]
pub struct Carried(Vec<Limits>);

/// The limits of the calling thread.
pub fn carried() -> Carried {
    Carried(CURRENT.try_with(|current| current.borrow().clone()).unwrap_or_default())
}

impl Carried {
    /// Runs `work` within these limits, and not within those of the calling thread.
    pub fn hold<O>(&self, work: impl FnOnce() -> O) -> O {
        if self.0.is_empty() && !are_set() {
            return work();
        }
        lifted(|| {
            let _ = CURRENT.try_with(|current| current.replace(self.0.clone()));
            work()
        })
    }
}

/// Runs `work` without limits: it undoes what was left half done, which nothing is to prevent.
pub fn lifted<O>(work: impl FnOnce() -> O) -> O {
    /// Has them hold again, also when `work` panics.
    struct Lifted(Vec<Limits>);

    impl Drop for Lifted {
        fn drop(&mut self) {
            let _ = CURRENT.try_with(|current| current.replace(std::mem::take(&mut self.0)));
        }
    }

    if !are_set() {
        return work();
    }
    let _lifted = Lifted(CURRENT.try_with(RefCell::take).unwrap_or_default());
    work()
}

/// Locks a mutex that may be held for long.
///
/// # Errors
/// As [`check`], where the calling thread has limits and has to wait.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Error> {
    if !are_set() {
        return Ok(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }
    loop {
        if let Some(guard) = try_lock(mutex) {
            return Ok(guard);
        }
        // No thread wakes this thread when its time is over, so it looks for itself.
        check()?;
        nap(1);
    }
}

/// Whether the calling thread has limits.
#[inline]
pub fn are_set() -> bool {
    CURRENT.try_with(|current| !current.borrow().is_empty()).unwrap_or(false)
}

/// Whether those of the calling thread are kept.
///
/// # Errors
/// As [`Limits::check`].
pub fn check() -> Result<(), Error> {
    CURRENT.try_with(|current| current.borrow().iter().try_for_each(Limits::check)).unwrap_or(Ok(()))
}
