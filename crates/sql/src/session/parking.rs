//! Held transactions that hear nothing are parked: the engine's transaction is rolled back and the worker given back. The next statement has what was done run again in a new one, which
//! must answer the same (`replay`).
//!
//! What cannot be run again is not parked. Only the thread of the transaction parks it (`resident`); it goes on in any thread.

use std::fmt;
use std::sync::{Arc, PoisonError};

use polychron_base::clock::Duration;
use polychron_engine::mutations::left_out;
use polychron_engine::{Error, Interactive};

use super::{Block, Home, Session};
use crate::error::{SqlError, SqlState};
use crate::exec::Failure;
use crate::gates::Slot;
use crate::parking::Shortage;
use crate::resident::{Parked, now_ns};
use crate::statement::Scratch;
use crate::steps::Step;
use crate::text::Zone;

/// How long a held transaction hears nothing before it is parked, if nothing else is set.
pub(crate) const PARK_AFTER: Duration = Duration::from_millis(100);

/// How long a transaction that has only read is kept open where that holds nobody up. What it can still see takes memory.
const KEEP_READERS: Duration = Duration::from_secs(600);

/// What has become of a transaction that was to be parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parking {
    /// The connection holds no transaction. It has given its worker back, and takes one with its next statement.
    NoTransaction,
    /// It is parked, and has nothing of the engine.
    Parked,
    /// It stays as it is.
    Kept(KeptBecause),
}

/// Why a transaction is not parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptBecause {
    /// It is in another thread, which alone can park it.
    OtherThread,
    /// It was not idle for `park_after`, or that is off.
    NotIdle,
    /// A COPY is under way.
    Copying,
    /// `SET replay = off`.
    ReplayOff,
    /// A statement has failed, and its savepoints are kept.
    Failed,
    /// The client has seen what a return to a savepoint has undone, or `SET CONSTRAINTS` has changed how its statements ran.
    RunsOnce,
    /// It has only read, holds nobody up and reads on what it has begun with. It is parked where its worker or one of its tables is wanted, where memory is short, and after ten minutes.
    Reads,
    /// It has more statements, values, or values of volatile functions than are kept.
    TooLong,
}

impl fmt::Display for KeptBecause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OtherThread => "the transaction is in another thread",
            Self::NotIdle => "the transaction is not idle",
            Self::Copying => "a COPY is under way",
            Self::ReplayOff => "replay is off",
            Self::Failed => "the transaction has failed",
            Self::RunsOnce => "the transaction cannot be run again behind ROLLBACK TO or SET CONSTRAINTS",
            Self::Reads => "the transaction has only read, and nobody wants its worker or its tables",
            Self::TooLong => "the transaction is too long to be run again",
        })
    }
}

/// What parks a session's transactions.
pub(super) struct Parker<W> {
    home: Arc<Home<W>>,
    slot: Arc<Slot>,
    shortage: Arc<Shortage>,
}

impl<W: Interactive + 'static> Parker<W> {
    pub(super) fn new(home: &Arc<Home<W>>, slot: &Arc<Slot>, shortage: &Arc<Shortage>) -> Arc<Self> {
        Arc::new(Self { home: home.clone(), slot: slot.clone(), shortage: shortage.clone() })
    }
}

impl<W: Interactive + 'static> Parked for Parker<W> {
    fn parked(&self) {
        self.home.give_back();
        self.slot.park();
    }

    fn is_wanted(&self) -> bool {
        self.slot.is_awaited() || self.shortage.claim()
    }
}

impl<W: Interactive + 'static> Home<W> {
    /// Gives the worker back to where it comes from.
    fn give_back(&self) {
        if left_out(Step::GiveWorkersBack) {
            return;
        }
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker {
            self.source.give_back(worker);
        }
    }
}

impl<W: Interactive + 'static> Block<W> {
    /// Whether it can be run again without the client's notice.
    pub(super) fn can_run_again(&self, is_replayed: bool) -> bool {
        is_replayed && !self.script.runs_once && !self.script.is_cut && !self.tape.is_cut()
    }

    /// Why it is not parked, if it is not.
    pub(super) fn kept_because(&self, is_replayed: bool) -> Option<KeptBecause> {
        Some(match () {
            () if !is_replayed => KeptBecause::ReplayOff,
            () if self.has_failed => KeptBecause::Failed,
            () if self.script.runs_once => KeptBecause::RunsOnce,
            () if self.script.is_cut || self.tape.is_cut() => KeptBecause::TooLong,
            () => return None,
        })
    }
}

/// The time that a setting ends at, from now on.
fn from_now(now: u64, time: Option<Duration>) -> u64 {
    time.map_or(u64::MAX, |time| now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

impl<W: Interactive + 'static> Session<W> {
    /// A statement has ended: the transaction rests from now on, until it is parked or its time is over.
    pub(crate) fn rest(&mut self) {
        let times = (self.park_after, self.idle_timeout);
        let is_replayed = self.is_replayed;
        let Some(block) = self.block.as_mut().filter(|block| block.is_explicit) else { return };
        let now = now_ns();
        block.rests_since = now;
        block.ends_at = from_now(now, times.1);
        let is_kept_until =
            if self.keeps_readers && block.has_only_read() { from_now(now, Some(KEEP_READERS)) } else { 0 };
        let Some(transaction) = &block.transaction else { return };
        let parks_at = match block.kept_because(is_replayed) {
            None => from_now(now, times.0),
            Some(_) => u64::MAX,
        };
        transaction.rest(parks_at.min(block.ends_at), is_kept_until.min(block.ends_at));
    }

    /// A statement begins. Whether the transaction is parked, and has to be run again first.
    ///
    /// # Errors
    /// It was idle for too long, and is rolled back.
    pub(crate) fn wake(&mut self) -> Result<bool, SqlError> {
        let Some(block) = &mut self.block else { return Ok(false) };
        let ends_at = std::mem::replace(&mut block.ends_at, u64::MAX);
        let is_parked = block.transaction.as_ref().is_some_and(|transaction| {
            transaction.wake();
            transaction.is_parked()
        });
        if ends_at == u64::MAX || now_ns() < ends_at {
            return Ok(is_parked);
        }
        block.transaction = None;
        block.savepoints.clear();
        let message = "canceling transaction due to idle-in-transaction timeout";
        Err(self.fail(SqlError::new(SqlState::IDLE_IN_TRANSACTION_TIMEOUT, message).into()))
    }

    /// The parked transaction goes on in this thread. `slot` has the tables that it uses.
    ///
    /// # Errors
    /// Something else is answered now, or there is no worker; in the second case it stays parked.
    pub(crate) fn unpark(&mut self, slot: &Slot, zone: &Zone) -> Result<(), SqlError> {
        self.worker()?;
        if !slot.unpark() && !left_out(Step::RefuseOutdated) {
            let detail = "A table that the transaction uses was altered or dropped while it was parked.";
            return Err(self.lose(conflict_while_parked(detail)));
        }
        if let Some(block) = &mut self.block {
            block.transaction = None;
        }
        match self.do_again(zone, Step::CompareParked) {
            Ok(()) => Ok(()),
            Err(Some(Failure::Engine(error))) if error.is_conflict() && self.begin_again(zone) => Ok(()),
            Err(Some(failure)) => Err(self.fail(failure)),
            // Others have changed meanwhile what the client knows.
            Err(None) => {
                let error = conflict_while_parked("Others have changed what it had read while it was parked.");
                Err(self.lose(error.with_hint("A transaction that is begun with READ ONLY reads a snapshot.")))
            }
        }
    }

    /// The transaction is lost, whatever savepoints it has.
    pub(super) fn lose(&mut self, error: SqlError) -> SqlError {
        if let Some(block) = &mut self.block {
            block.transaction = None;
        }
        self.fail(error.into())
    }

    /// How long the held transaction has heard nothing.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let block = self.block.as_ref().filter(|block| block.is_explicit)?;
        Some(Duration::from_nanos(now_ns().saturating_sub(block.rests_since)))
    }

    /// Whether the held transaction need not be parked, because it has only read.
    pub(crate) fn keeps_reader(&self) -> bool {
        let reads = |block: &Block<W>| {
            let is_open = block.transaction.as_ref().is_some_and(|transaction| !transaction.is_parked());
            is_open && block.kept_because(self.is_replayed).is_none() && block.has_only_read()
        };
        let is_recent = self.idle_for().is_some_and(|idle| idle < KEEP_READERS);
        is_recent && self.keeps_readers && self.block.as_ref().is_some_and(reads) && !self.parker.is_wanted()
    }

    /// Parks the held transaction, or gives the worker back where none is held.
    pub(crate) fn park(&mut self) -> Parking {
        let is_replayed = self.is_replayed;
        let Some(block) = &self.block else {
            self.give_worker_back();
            return Parking::NoTransaction;
        };
        let Some(transaction) = &block.transaction else {
            // It has failed, and has nothing.
            self.give_worker_back();
            return Parking::Parked;
        };
        if transaction.is_parked() {
            return Parking::Parked;
        }
        if !transaction.is_here() {
            return Parking::Kept(KeptBecause::OtherThread);
        }
        if let Some(why) = block.kept_because(is_replayed) {
            return Parking::Kept(why);
        }
        transaction.park();
        Parking::Parked
    }

    /// Gives memory back that one statement leaves to the next.
    pub(crate) fn shrink(&mut self) {
        self.scratch = Scratch::default();
    }

    fn give_worker_back(&mut self) {
        if let Some(worker) = self.worker.take() {
            *self.home.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
        }
        self.home.give_back();
    }
}

fn conflict_while_parked(detail: &str) -> SqlError {
    SqlError::of_engine(Error::Conflict).with_detail(detail)
}
