//! The threads of a log.

use std::io;
use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_sync::Process;
use polychron_sync::thread::{Builder, JoinHandle};

use super::signal::Signal;

use super::{Beat, IDLE, Log};
use crate::disk::Disk;

/// The threads that do for a log what no transaction waits for, until this is dropped; then the log is flushed and closed. One flushes, and one makes
/// files, which takes long.
pub struct Threads<D: Disk> {
    log: Arc<Log<D>>,
    threads: Vec<(Arc<Signal>, JoinHandle<()>)>,
    process: Process,
}

impl<D: Disk> Threads<D> {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has none.
    pub fn start(log: Arc<Log<D>>) -> io::Result<Self> {
        let mut this = Self { log, threads: Vec::new(), process: Process::here() };
        let interval = super::period(this.log.options.durability).map_or(IDLE, |period| period.min(IDLE));
        let (log, mut beat) = (Arc::clone(&this.log), Beat::default());
        let signal = Arc::clone(&log.filling);
        this.start_thread("polychron-log", signal, interval, move |is_called| {
            if is_called {
                log.make_room();
            }
            log.tick(&mut beat);
        })?;
        let log = Arc::clone(&this.log);
        this.spawn("polychron-files", IDLE, move || log.make_files())?;
        Ok(this)
    }

    /// One more thread, which does something again and again.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        interval: Duration,
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        self.start_thread(name, Arc::default(), interval, move |_| act())
    }

    /// The same with a signal, by which others may call it in between. `act` learns whether one has.
    fn start_thread(
        &mut self,
        name: &str,
        signal: Arc<Signal>,
        interval: Duration,
        act: impl FnMut(bool) + Send + 'static,
    ) -> io::Result<()> {
        let its = Arc::clone(&signal);
        let thread = Builder::new().name(name.to_owned()).spawn(move || its.repeat(interval, act))?;
        self.threads.push((signal, thread));
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
        self.threads.iter().for_each(|(signal, _)| signal.stop());
        for (_, thread) in self.threads.drain(..) {
            // If it has panicked, the log has stopped, or goes on without it.
            let _ = thread.join();
        }
        // What was not durable is in doubt then, and whoever waits for it learns so.
        let _ = self.log.close();
    }
}
