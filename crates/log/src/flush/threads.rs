//! The threads of a log.

use std::io;
use std::sync::{Arc, PoisonError};

use polychron_base::clock::Duration;
use polychron_sync::thread::{Builder, JoinHandle};
use polychron_sync::{Condvar, Mutex, Process};

use super::{Beat, IDLE, Log};
use crate::disk::Disk;

/// The threads that do for a log what no transaction waits for, until this is dropped; then the log is flushed and closed. One flushes, and one makes
/// files, which takes long.
pub struct Threads<D: Disk> {
    log: Arc<Log<D>>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    process: Process,
}

#[derive(Default)]
struct Stop {
    wanted: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Does something again and again, until the stop is wanted.
    fn repeat(&self, interval: Duration, mut act: impl FnMut()) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        while !*wanted {
            drop(wanted);
            act();
            wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if !*wanted {
                wanted = self.changed.wait_timeout(wanted, interval).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl<D: Disk> Threads<D> {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has none.
    pub fn start(log: Arc<Log<D>>) -> io::Result<Self> {
        let mut this = Self { log, stop: Arc::default(), threads: Vec::new(), process: Process::here() };
        let interval = super::period(this.log.options.durability).map_or(IDLE, |period| period.min(IDLE));
        let (log, mut beat) = (Arc::clone(&this.log), Beat::default());
        this.spawn("polychron-log", interval, move || log.tick(&mut beat))?;
        let log = Arc::clone(&this.log);
        this.spawn("polychron-files", IDLE, move || log.make_files())?;
        Ok(this)
    }

    /// One more thread, which does something again and again.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        interval: Duration,
        act: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || stop.repeat(interval, act))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl<D: Disk> Drop for Threads<D> {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // There are no such threads in a process that was forked, and the files are the other one's.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.log.pool.give_up();
        // Threads that are joined do not wait for the time of a flush either.
        self.log.hurry();
        *self.stop.wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        for thread in self.threads.drain(..) {
            // If it has panicked, the log has stopped, or goes on without it.
            let _ = thread.join();
        }
        // What was not durable is in doubt then, and whoever waits for it learns so.
        let _ = self.log.close();
    }
}
