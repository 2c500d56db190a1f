//! Events that a database reports to a listener while it works.

use std::fmt;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use polychron_base::Abort;
use polychron_base::clock::{Clock, SystemClock};

use crate::drive;

/// Something that happened. Most listeners want some events only: match those, and ignore the others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A transaction has conflicted and was rolled back. It runs again, unless it gives up.
    #[non_exhaustive]
    Conflict {
        /// Why, and at which key.
        abort: &'e Abort,
        /// The number of its conflicts so far.
        attempts: u64,
    },
    /// A transaction took as long as [`Events::slow`] says, or longer, its repetitions included. Transactions that are kept as objects
    /// ([`crate::open::Open`]) are not among them: how long these last is their clients' affair.
    #[non_exhaustive]
    Slow {
        /// Its duration.
        time: Duration,
        /// The number of its conflicts.
        conflicts: u64,
        /// Whether it has committed.
        committed: bool,
    },
    /// The memory in use has passed a mark: the soft one ([`polychron_memory::Options::soft_percent`]), or 95 % of the limit. Reported by a
    /// thread of the database, again only after the use has fallen 5 % of the limit below the mark.
    #[non_exhaustive]
    Memory {
        /// The mark, in percent of the limit.
        mark_percent: u8,
        /// Bytes in use.
        used_bytes: usize,
        /// The memory limit, in bytes.
        limit_bytes: usize,
    },
    /// A database with a path is being opened, and has come so far. Reported by the threads that do it, at most ten times a second.
    #[non_exhaustive]
    Opening {
        /// The present stage.
        stage: OpeningStage,
        /// The amount of work that is done.
        done: u64,
        /// The amount of work in all, at most.
        of: u64,
        /// For how long this stage has lasted.
        time: Duration,
    },
    /// The archive of log files fails, and nothing that it lacks is removed: the log grows. Reported by a thread of the database, again only after it has
    /// worked.
    #[non_exhaustive]
    ArchiveFails {
        /// Why.
        reason: &'e str,
    },
    /// A transaction or snapshot has been open for a second: others may conflict with it or wait for it, and what it can still see stays
    /// in memory. Reported by a thread of the database, again when the time has doubled. Procedures of a protocol that plans them are not among
    /// them.
    #[non_exhaustive]
    Open {
        /// For how long.
        time: Duration,
        /// The thread that began it.
        thread: &'e Thread,
    },
}

/// The stages of opening a database with a path, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpeningStage {
    /// The log is read, so many bytes.
    Log,
    /// Rows are loaded, so many.
    Rows,
}

impl OpeningStage {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "reading the log",
            Self::Rows => "loading rows",
        }
    }
}

type Listener = dyn Fn(&Event<'_>) + Send + Sync;

/// The listener of a database, and the events that it wants.
#[derive(Clone, Default)]
pub struct Events {
    listener: Option<Arc<Listener>>,
    slow: Option<Duration>,
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, slow } = self;
        out.debug_struct("Events").field("listens", &listener.is_some()).field("slow", slow).finish()
    }
}

impl Events {
    /// Has `listener` called with each event, on the thread on which it happens, while no transaction of that call is open. What it panics with is
    /// dropped.
    #[must_use]
    pub fn listener(self, listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..self }
    }

    /// Reports transactions that take so long: [`Event::Slow`]. Then each transaction reads the clock twice.
    #[must_use]
    pub fn slow(self, least: Duration) -> Self {
        Self { slow: Some(least), ..self }
    }

    /// Whether there is a listener.
    #[inline]
    pub fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    #[cold]
    pub(crate) fn report(&self, event: &Event<'_>) {
        if let Some(listener) = &self.listener {
            // A listener must not decide about the transaction.
            drop(drive::catch(|| listener(event)));
        }
    }

    /// A database is being opened.
    pub fn opening(&self, stage: OpeningStage, (done, of): (u64, u64), time: Duration) {
        if self.listener.is_some() {
            self.report(&Event::Opening { stage, done, of, time });
        }
    }

    /// The archive of log files fails.
    pub fn archive_fails(&self, reason: &str) {
        self.report(&Event::ArchiveFails { reason });
    }

    /// A transaction has conflicted.
    pub(crate) fn conflict(&self, abort: &Abort, attempts: u64) {
        if self.listener.is_some() {
            self.report(&Event::Conflict { abort, attempts });
        }
    }

    /// A transaction begins: from when on its time counts, if somebody listens to that.
    #[inline]
    pub(crate) fn begin(&self) -> Option<SystemClock> {
        if self.slow.is_none() || self.listener.is_none() { None } else { Some(SystemClock::new()) }
    }

    /// It has ended.
    #[cold]
    pub(crate) fn ended(&self, since: &SystemClock, conflicts: u64, committed: bool) {
        let time = Duration::from_nanos(since.now_ns());
        if self.slow.is_some_and(|least| time >= least) {
            self.report(&Event::Slow { time, conflicts, committed });
        }
    }
}
