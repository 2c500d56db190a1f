//! The thread of a log.

use std::sync::{Arc, PoisonError};

use polychron_sync::thread::{Builder, JoinHandle};
use polychron_sync::{Condvar, Mutex};

use super::{Beat, IDLE, Log};
use crate::disk::Disk;

/// The thread that does for a log what no transaction waits for, until it is dropped; then the log is flushed and closed.
pub struct Thread<D: Disk> {
    log: Arc<Log<D>>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    wanted: Mutex<bool>,
    changed: Condvar,
}

impl<D: Disk> Thread<D> {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(log: Arc<Log<D>>) -> std::io::Result<Self> {
        let stop = Arc::<Stop>::default();
        let (seen, served) = (Arc::clone(&stop), Arc::clone(&log));
        let interval = log.options.durability.period().map_or(IDLE, |period| period.min(IDLE));
        let run = move || {
            let mut beat = Beat::default();
            let mut wanted = seen.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            while !*wanted {
                drop(wanted);
                served.tick(&mut beat);
                wanted = seen.wanted.lock().unwrap_or_else(PoisonError::into_inner);
                if !*wanted {
                    wanted = seen.changed.wait_timeout(wanted, interval).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        let thread = Builder::new().name("polychron-log".to_owned()).spawn(run)?;
        Ok(Self { log, stop, thread: Some(thread) })
    }
}

impl<D: Disk> Drop for Thread<D> {
    fn drop(&mut self) {
        self.log.pool.give_up();
        *self.stop.wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, the log has stopped, or goes on without it.
            let _ = thread.join();
        }
        // What was not durable is in doubt then, and whoever waits for it learns so.
        let _ = self.log.close();
    }
}
