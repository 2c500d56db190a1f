//! The thread that moves the epochs on.

use std::sync::Arc;
use std::time::Duration;

use polychron_sync::thread::{Builder, JoinHandle};
use polychron_sync::{Condvar, Mutex, Process};

use crate::memory::lock;
use crate::{Epochs, Error};

/// Moves the epochs on until it is dropped. Holds the epochs alone, never the memory, so that it keeps nothing alive.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

#[derive(Debug, Default)]
struct Stop {
    wanted: Mutex<bool>,
    changed: Condvar,
}

impl Ticker {
    pub(crate) fn start(epochs: Arc<Epochs>, interval: Duration) -> Result<Self, Error> {
        let stop = Arc::<Stop>::default();
        let seen = Arc::clone(&stop);
        let run = move || {
            let mut wanted = lock(&seen.wanted);
            while !*wanted {
                let waited = seen.changed.wait_timeout(wanted, interval);
                wanted = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                epochs.tick();
            }
        };
        let builder = Builder::new().name("polychron-epochs".to_owned());
        let thread = builder.spawn(run).map_err(|error| Error::Ticker { kind: error.kind() })?;
        Ok(Self { stop, thread: Some(thread), process: Process::here() })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // There is no such thread in a process that was forked.
            return std::mem::forget(self.thread.take());
        }
        *lock(&self.stop.wanted) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread runs nothing that panics; if it did, there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}
