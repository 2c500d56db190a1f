//! Workers for calls that bring none: any thread may transact on a database without keeping a worker itself.

use std::sync::{Arc, Mutex, PoisonError};

use polychron_engine::{Error, Protocol};

/// The most workers that are kept while nobody uses them.
const IDLE_MAX: usize = 64;

/// Idle workers.
pub(crate) struct Pool<P: Protocol> {
    idle: Mutex<Vec<P::Worker>>,
}

/// A worker that goes back to its pool.
pub(crate) struct Borrowed<'p, P: Protocol> {
    pool: &'p Pool<P>,
    worker: Option<P::Worker>,
}

impl<P: Protocol> Pool<P> {
    pub(crate) fn new() -> Self {
        Self { idle: Mutex::new(Vec::new()) }
    }

    /// An idle worker, or a new one. Calls inside of a transaction get another worker than the transaction has.
    pub(crate) fn borrow(&self, protocol: &Arc<P>) -> Result<Borrowed<'_, P>, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let worker = match idle {
            Some(worker) => worker,
            None => protocol.worker()?,
        };
        Ok(Borrowed { pool: self, worker: Some(worker) })
    }

    /// A worker that does not come back. When all slots are taken, the idle workers give up theirs.
    pub(crate) fn take(&self, protocol: &Arc<P>) -> Result<P::Worker, Error> {
        match protocol.worker() {
            Err(Error::TooManyWorkers { .. }) => {
                let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
                drop(idle);
                protocol.worker()
            }
            other => other,
        }
    }
}

impl<P: Protocol> Borrowed<'_, P> {
    pub(crate) fn worker(&mut self) -> &mut P::Worker {
        self.worker.as_mut().expect("the worker is here until the borrow ends")
    }
}

impl<P: Protocol> Drop for Borrowed<'_, P> {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(worker);
        } else {
            // A worker leaves its slot when it is dropped; that need not happen under the lock.
            drop(idle);
            drop(worker);
        }
    }
}
