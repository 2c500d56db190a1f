//! One thread's part of a history while it is being written.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::clock::Clock;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::{Attempt, History, Item, Operation, Outcome, Version};

/// A clock whose time is the number of questions it was asked.
///
/// The machine's time-stamp counter is no proof that one thing came before another: it may be read before earlier stores
/// are seen by other threads. Of two answers of this clock, the earlier *happens before* the later.
#[derive(Debug, Default)]
pub struct Sequence {
    next: AtomicU64,
}

impl Clock for Sequence {
    fn now_ns(&self) -> u64 {
        // AcqRel: each question pairs with the one before it, so that what was acknowledged before an answer is visible to
        // who was answered later.
        self.next.fetch_add(1, Ordering::AcqRel)
    }
}

/// What one thread did.
pub struct Log {
    thread: u32,
    clock: Arc<dyn Clock>,
    history: History,
    next_attempt: u64,
    /// When the client called, whether it called for a snapshot, and by which session.
    call: (u64, bool, u32),
    /// Start of the open attempt's operations.
    open: Option<usize>,
    writes: u64,
    /// Savepoints of the open attempt.
    savepoints: usize,
    /// Rows because of which the open attempt must fail, and how many savepoints there were.
    lacking: Vec<(Item, usize)>,
    /// Whether the open attempt's procedure ran to its end.
    finished: bool,
    /// Whether the open attempt only finds out what its transaction writes.
    reconnoitres: bool,
}

impl Log {
    /// Ids are counted in each thread, below the thread's number.
    pub(super) const THREAD_SHIFT: u32 = 36;

    /// An empty log of one of at most 4,096 threads.
    pub fn new(thread: u32, clock: Arc<dyn Clock>) -> Self {
        assert!(thread < 1 << 12, "versions have room for 4096 threads");
        Self {
            thread,
            clock,
            history: History::default(),
            next_attempt: (u64::from(thread) << Self::THREAD_SHIFT) + 1,
            call: (0, false, 0),
            open: None,
            writes: 0,
            savepoints: 0,
            lacking: Vec::new(),
            finished: false,
            reconnoitres: false,
        }
    }

    /// The client calls for a transaction, by one of its sessions.
    pub fn call(&mut self, snapshot: bool, session: u32) {
        debug_assert!(self.open.is_none(), "the call before was not answered");
        self.call = (self.clock.now_ns(), snapshot, session);
    }

    /// An attempt begins; if another one was under way, it was discarded.
    pub fn begin(&mut self) {
        self.discarded();
        self.open = Some(self.history.operations.len());
        (self.writes, self.savepoints) = (0, 0);
        self.lacking.clear();
        (self.finished, self.reconnoitres) = (false, false);
    }

    /// Whether the open attempt, as far as is known, only finds out what its transaction writes: then it is discarded for no conflict.
    pub(super) fn reconnoitres(&mut self, truth: bool) {
        self.reconnoitres = truth;
    }

    /// The open attempt is discarded, and the procedure runs again.
    pub(super) fn discarded(&mut self) {
        self.close(if self.reconnoitres { Outcome::Reconnaissance } else { Outcome::Aborted });
    }

    /// The procedure of the open attempt came to its end.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The client was answered.
    pub fn answered<O>(&mut self, answer: &Result<O, Error>) {
        let outcome = match answer {
            Ok(_) => Outcome::Committed,
            Err(Error::Conflicts { .. }) => Outcome::Aborted,
            // These come from the engine, perhaps when it was to begin once more; the attempt before had lost.
            Err(Error::OutOfMemory(_) | Error::TooManyWorkers { .. }) => Outcome::Refused,
            Err(_) if self.finished => Outcome::Refused,
            Err(_) => Outcome::RolledBack,
        };
        self.close(outcome);
    }

    /// The open attempt, if there is one, ended so.
    pub fn close(&mut self, outcome: Outcome) {
        let Some(start) = self.open.take() else { return };
        if let Some(&(item, _)) = self.lacking.first().filter(|_| outcome == Outcome::Committed) {
            let what = "it was going to be written, was not there, and the transaction committed";
            self.note(Operation::Contradiction { item, what });
        }
        self.history.attempts.push(Attempt {
            id: self.next_attempt,
            thread: self.thread,
            begin: self.call.0,
            end: self.clock.now_ns(),
            outcome,
            snapshot: self.call.1,
            session: self.call.2,
            operations: start..self.history.operations.len(),
        });
        self.next_attempt += 1;
    }

    /// The version of the open attempt's next write.
    pub(super) fn next_version(&mut self) -> Version {
        self.writes += 1;
        Version::new(self.next_attempt, self.writes)
    }

    /// Notes an operation of the open attempt.
    pub(super) fn note(&mut self, operation: Operation) {
        self.history.operations.push(operation);
    }

    /// A savepoint is set.
    pub(super) fn savepoint(&mut self) {
        self.savepoints += 1;
        self.note(Operation::Savepoint);
    }

    /// What was done since the savepoint of this number is undone.
    pub(super) fn roll_back_to(&mut self, number: usize) {
        self.savepoints = number + 1;
        self.lacking.retain(|&(_, savepoints)| savepoints <= number);
        self.note(Operation::RollBackTo(number));
    }

    /// The open attempt cannot commit: what it is going to write is of a row that is not there.
    pub(super) fn must_fail(&mut self, item: Item) {
        self.lacking.push((item, self.savepoints));
    }

    /// Takes what was written so far; ids go on, so that versions stay unique.
    pub fn take(&mut self) -> History {
        debug_assert!(self.open.is_none(), "an attempt is under way");
        std::mem::take(&mut self.history)
    }
}
