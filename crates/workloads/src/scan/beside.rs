//! A thread with a worker of its own: changes rows, and scans, while a transaction of another thread is open.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Protocol, Worker};
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::options::ScanOptions;
use super::procedure::{ScanProcedure, Shape, Task};

/// For how long nothing may come of what is asked of the thread. One update takes microseconds, one scan of 2^32 rows seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to the thread.
enum Job {
    /// Raise the amounts of the dirty rows.
    Change,
    Scan(Box<ScanProcedure>),
}

/// A reply of the thread.
enum Reply {
    /// The first row is changed, so that no thread waits.
    Begun,
    /// All is done.
    Done(Result<Option<Box<ScanProcedure>>, Error>),
}

/// The thread, as transactions know it.
#[derive(Debug)]
pub(super) struct Beside {
    line: Mutex<(Sender<Job>, Receiver<Reply>)>,
    /// The sum by which all amounts were raised.
    raised: Arc<AtomicU64>,
}

/// The thread waits for the transaction that waits for it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("transactions wait for one another here; --dirty changes rows while a transaction is open")]
struct Waiting;

impl From<Waiting> for Error {
    fn from(error: Waiting) -> Self {
        Self::other(error)
    }
}

impl Beside {
    /// Starts the thread. It ends with the last who knows it.
    pub(super) fn start<P: Protocol>(database: &Arc<P>, shape: Shape, options: &ScanOptions) -> Result<Self, Error> {
        let (to_thread, jobs) = channel();
        let (replies, from_thread) = channel();
        let raised = Arc::new(AtomicU64::new(0));
        let mut thread = Thread {
            worker: database.worker()?,
            shape,
            rows: dirty_rows(options),
            versions: options.versions,
            raised: Arc::clone(&raised),
        };
        std::thread::spawn(move || {
            while let Ok(job) = jobs.recv() {
                let outcome = match job {
                    Job::Change => thread.change(&replies).map(|()| None),
                    Job::Scan(mut procedure) => thread.worker.snapshot(&mut *procedure).map(|()| Some(procedure)),
                };
                if replies.send(Reply::Done(outcome)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { line: Mutex::new((to_thread, from_thread)), raised })
    }

    /// The sum by which all amounts together are higher than at first.
    pub(super) fn raised(&self) -> u64 {
        // The thread's answers order it before this.
        self.raised.load(Ordering::Relaxed)
    }

    /// Changes the dirty rows.
    pub(super) fn change(&self) -> Result<(), Error> {
        self.ask(Job::Change).map(drop)
    }

    /// Scans on a snapshot.
    pub(super) fn scan(&self, procedure: ScanProcedure) -> Result<ScanProcedure, Error> {
        let done = self.ask(Job::Scan(Box::new(procedure)))?;
        Ok(*done.expect("a scan comes back"))
    }

    fn ask(&self, job: Job) -> Result<Option<Box<ScanProcedure>>, Error> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let (jobs, answers) = &*line;
        let mut timeout = if matches!(job, Job::Change) { FIRST_TIMEOUT } else { TIMEOUT };
        jobs.send(job).map_err(|_| Waiting)?;
        loop {
            match answers.recv_timeout(timeout).map_err(|_| Waiting)? {
                Reply::Begun => timeout = TIMEOUT,
                Reply::Done(outcome) => return outcome,
            }
        }
    }
}

/// Different rows, in no order.
fn dirty_rows(options: &ScanOptions) -> Vec<u64> {
    let mut random = Random::stream(0, options.records);
    let mut drawn = std::collections::HashSet::new();
    let distinct = std::iter::repeat_with(|| random.below(options.records)).filter(|row| drawn.insert(*row));
    distinct.take(options.dirty as usize).collect()
}

/// The state of the thread.
struct Thread<W> {
    worker: W,
    shape: Shape,
    rows: Vec<u64>,
    versions: u64,
    raised: Arc<AtomicU64>,
}

impl<W: Worker> Thread<W> {
    /// Raises each amount by one, as often as there are to be versions, each time by a transaction of its own.
    fn change(&mut self, replies: &Sender<Reply>) -> Result<(), Error> {
        for _ in 0..self.versions {
            for &row in &self.rows {
                self.worker.execute(&mut ScanProcedure::new(self.shape, Task::Raise { row }))?;
                // The answer orders it.
                self.raised.fetch_add(1, Ordering::Relaxed);
                // A client that has gone does not receive it.
                let _ = replies.send(Reply::Begun);
            }
        }
        Ok(())
    }
}
