//! The thread that does what a protocol's workers do between their transactions, in case they have none.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle, current, park_timeout};
use std::time::Duration;

use polychron_base::Error;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{MODELLED, Process};

/// A thread that works from time to time until this is dropped. In models there is none.
#[derive(Debug)]
pub struct Background {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

impl Background {
    /// Has `work` done after each `interval`, as long as anybody else has the database. The first pause comes first: a thread that starts
    /// late would else work at any time, beside a test that does so interactively.
    ///
    /// # Errors
    /// [`Error::Options`]: the system gives no thread.
    pub fn start<S: Send + Sync + 'static>(
        name: &str,
        interval: Duration,
        shared: &Arc<S>,
        work: impl Fn(&S) + Send + 'static,
    ) -> Result<Self, Error> {
        let stopping = Arc::new(AtomicBool::new(false));
        let mut background = Self { stopping: Arc::clone(&stopping), thread: None, process: Process::here() };
        if MODELLED {
            return Ok(background);
        }
        let weak = Arc::downgrade(shared);
        let run = move || {
            loop {
                park_timeout(interval);
                let Some(shared) = weak.upgrade() else { return };
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                work(&shared);
            }
        };
        let spawned = Builder::new().name(name.to_owned()).spawn(run);
        let thread =
            spawned.map_err(|error| Error::options(format!("the thread {name} could not be started: {error}")))?;
        background.thread = Some(thread);
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // There is no such thread in a process that was forked.
            return std::mem::forget(self.thread.take());
        }
        self.stopping.store(true, Ordering::Relaxed);
        // What it calls may be the last to have the database.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != current().id()) {
            thread.thread().unpark();
            // A panic there was reported when it happened; there is nothing to add at the end.
            let _ = thread.join();
        }
    }
}
