//! What transactions read.
//!
//! A transaction reads the present, and is validated; or it reads a snapshot of the engine, which never conflicts and holds nobody up. A read-only one reads a snapshot with all that was
//! committed before it began (`read_only_freshness = strict`), or one that may be a little older (`recent`). So does one at REPEATABLE READ, and one that begins with a cursor or with a
//! long answer: where it is about to change something after all, it goes on in the present, if that answers the same.
//!
//! Where a protocol has no such snapshots, and where one does not come in time, the present is read in its place.

use polychron_base::clock::Duration;
use polychron_engine::open::Open;
use polychron_engine::{Error, Interactive, Mode};

use super::{Block, Session, error_of};
use crate::control::Modes;
use crate::error::{SqlError, SqlState};
use crate::plan::Plan;
use crate::steps::Step;
use crate::text::Zone;

/// What a transaction is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The present.
    Present,
    /// A snapshot that has all that was committed before it began.
    Fresh,
    /// A snapshot that may be older.
    Recent,
}

/// How long a transaction waits for such a snapshot. Others make way for it, but for those that are being committed.
const FRESH_WAIT: Duration = Duration::from_secs(1);

impl<W: Interactive + 'static> Block<W> {
    /// Whether it has read something, and done nothing else.
    pub(super) fn has_only_read(&self) -> bool {
        self.script.has_run() && !self.script.has_written && self.script.before.is_empty()
    }
}

impl<W: Interactive + 'static> Session<W> {
    /// What a transaction is to read that the client holds.
    pub(super) fn view_of(&self, is_read_only: bool, is_repeatable: bool) -> View {
        match () {
            () if is_read_only && self.reads_recent => View::Recent,
            () if is_read_only || is_repeatable && self.is_replayed => View::Fresh,
            () => View::Present,
        }
    }

    /// What a transaction of the engine with this view is begun as, now. The worker is here. The caller has looked at the catalog's version before: what the snapshot has not, is newer.
    pub(super) fn mode_for(&mut self, view: View) -> Result<Mode, SqlError> {
        // A snapshot of the past could be older than the rows of a table that has taken the place of another one.
        let view = if view == View::Recent && self.versions.has_replaced() { View::Fresh } else { view };
        let worker = self.worker()?;
        Ok(match view {
            View::Recent => Mode::Snapshot,
            View::Fresh if worker.keeps_readers(Mode::Snapshot) && worker.await_snapshot(FRESH_WAIT) => Mode::Snapshot,
            View::Fresh | View::Present => Mode::ReadWrite,
        })
    }

    /// Whether the held transaction reads a snapshot in which it can change nothing, and that it cannot leave.
    pub(crate) fn is_bound_to_snapshot(&self) -> bool {
        let is_bound = |block: &Block<W>| block.script.has_run() && !block.can_run_again(self.is_replayed);
        self.mode == Mode::Snapshot && self.block.as_ref().is_some_and(is_bound)
    }

    /// What the transaction was begun with.
    pub(crate) fn modes(&self) -> Modes {
        let block = self.block.as_ref();
        Modes {
            is_read_only: block.map(|block| block.is_read_only),
            is_repeatable: block.map(|block| block.is_repeatable),
        }
    }

    /// Changes what the transaction was begun with. Before its first statement it is begun anew.
    ///
    /// # Errors
    /// It was read-only, and is not to be behind a statement.
    pub(crate) fn set(&mut self, modes: Modes) -> Result<(), SqlError> {
        let Some(block) = &mut self.block else { return Ok(()) };
        let has_begun = block.script.has_run() || !block.savepoints.is_empty();
        let is_read_only = modes.is_read_only.unwrap_or(block.is_read_only);
        if has_begun && block.is_read_only && !is_read_only {
            let message = "transaction read-write mode must be set before any query";
            return Err(self.fail(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into()));
        }
        block.is_read_only = is_read_only;
        // What has written or read something goes on as it is.
        if has_begun {
            return Ok(());
        }
        block.is_repeatable = modes.is_repeatable.unwrap_or(block.is_repeatable);
        let is_repeatable = block.is_repeatable;
        self.begin_anew(self.view_of(is_read_only, is_repeatable))
    }

    /// Begins the engine's transaction anew with this view, if it has another one. Nothing was done in it.
    pub(super) fn begin_anew(&mut self, view: View) -> Result<(), SqlError> {
        let Some(block) = self.block.as_mut().filter(|block| block.view != view) else { return Ok(()) };
        block.view = view;
        let Some(transaction) = block.transaction.take() else { return Ok(()) };
        if let Ok(transaction) = transaction.take() {
            Open::rollback(transaction);
        }
        match self.begin_held(view) {
            Ok(transaction) => {
                if let Some(block) = &mut self.block {
                    block.transaction = Some(transaction);
                }
                Ok(())
            }
            Err(failure) => {
                let error = error_of(failure);
                Err(self.fail(error.into()))
            }
        }
    }

    /// Whether the held transaction has done nothing yet, and may read a snapshot although it is not read-only: it is run again where it changes something.
    pub(super) fn may_move_to_snapshot(&self) -> bool {
        let is_new = |block: &Block<W>| !block.script.has_run() && block.savepoints.is_empty();
        let may_leave = |block: &Block<W>| block.can_run_again(self.is_replayed);
        let may_move = |block: &Block<W>| block.view == View::Present && is_new(block) && may_leave(block);
        self.has_snapshots && self.block.as_ref().is_some_and(may_move)
    }

    /// The held transaction is about to run this plan. One that reads a snapshot and is to change something goes on in the present.
    pub(super) fn make_way_for(&mut self, plan: &Plan, zone: &Zone) -> Result<(), SqlError> {
        if self.mode == Mode::ReadWrite {
            return Ok(());
        }
        if plan.changes().is_some() { self.leave_snapshot(zone) } else { self.leave_undeclared(true, zone) }
    }

    /// The held transaction is about to become one that cannot be run again. If it may change something later, it leaves its snapshot before. `only_where_long`: unless it is short.
    pub(crate) fn leave_undeclared(&mut self, only_where_long: bool, zone: &Zone) -> Result<(), SqlError> {
        let may_write = |block: &Block<W>| !block.is_read_only && (!only_where_long || block.script.is_long());
        let leaves = self.mode == Mode::Snapshot && self.block.as_ref().is_some_and(may_write);
        if leaves { self.leave_snapshot(zone) } else { Ok(()) }
    }

    /// Goes on in the present, where what was read in the snapshot must be read again.
    #[cold]
    fn leave_snapshot(&mut self, zone: &Zone) -> Result<(), SqlError> {
        let is_replayed = self.is_replayed;
        let Some(block) = self.block.as_mut().filter(|block| block.transaction.is_some()) else { return Ok(()) };
        if !block.script.has_run() && block.savepoints.is_empty() {
            return self.begin_anew(View::Present);
        }
        let can_run_again = block.can_run_again(is_replayed);
        block.view = View::Present;
        if let Some(Ok(transaction)) = block.transaction.take().map(super::Resident::take) {
            Open::rollback(transaction);
        }
        let ended = if can_run_again { self.do_again(zone, Step::CompareAnswers) } else { Err(None) };
        match ended {
            Ok(()) => Ok(()),
            Err(Some(crate::exec::Failure::Engine(error))) if error.is_conflict() && self.begin_again(zone) => Ok(()),
            Err(Some(failure)) => Err(self.fail(failure)),
            Err(None) => {
                let detail = "It has read a snapshot, and others have changed since then what it had read.";
                Err(self.lose(SqlError::of_engine(Error::Conflict).with_detail(detail)))
            }
        }
    }
}
