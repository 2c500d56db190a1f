//! Between two operations a transaction is in no epoch, so that one whose client does nothing holds back only what its timestamp keeps.
//!
//! A snapshot rests (`Guard::rest`). A transaction that may write stands aside, which costs less, and finds out when it comes back whether it
//! was asked to leave its epoch. If it was not, everything is as if it had stayed. If it was, of all that it has found there remains what its
//! *span* keeps, the timestamps from its floor to its timestamp (`clocks/held.rs`): the versions of rows that it has read, and their records. What
//! only the epoch kept is given up:
//!
//! * fingers, hints, and notes for promotion;
//! * where repeated searches begin: they begin at the heads;
//! * records that showed no row, and the stamps of the nodes in which nothing was found. The keys and ranges were kept
//!   (`searches.rs`), and the validation looks again.
//!
//! The list of tables stays as long as the timestamp is held (`Shared::release_lists`). The transactions of a batch stay in its epoch.

use polychron_base::Error;
use polychron_engine::midway::Midway;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Primitives;

use super::steps::Step;
use super::transaction::CicadaTransaction;
use super::worker::State;

impl CicadaTransaction<'_> {
    /// Runs an operation.
    #[inline]
    pub(super) fn work<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.come_back();
        let outcome = match self.step() {
            Ok(()) => operation(self),
            Err(error) => Err(error),
        };
        self.rest();
        outcome
    }

    /// Called at the start of every operation, and between the parts of a long one: conflicts stick, and long procedures find out that
    /// they are doomed.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), Error> {
        self.flags().check()?;
        if self.midway.is_due() { self.check_midway() } else { Ok(()) }
    }

    /// A procedure that loops on what is not mutually consistent is stopped here. A snapshot takes the occasion to renew its
    /// guard, so that it holds back nothing but the versions it can see.
    #[cold]
    fn check_midway(&mut self) -> Result<(), Error> {
        self.midway = Midway::new(self.shared.options.check_every, self.snapshot);
        if self.snapshot {
            self.renew_guard();
            return Ok(());
        }
        if left_out(Step::ValidateRunning) {
            return Ok(());
        }
        self.check_reads(true).inspect_err(|_| self.state.base.conflicted_midway())
    }

    /// Leaves a snapshot's epoch for the present one.
    pub(super) fn renew_guard(&mut self) {
        let State { base, stays, .. } = &mut *self.state;
        self.guard.renew(base, stays);
    }

    /// Called at the end of every operation, and of the beginning.
    #[inline(always)]
    pub(super) fn rest(&mut self) {
        if self.stands_aside {
            self.guard.stand_aside();
        } else if self.snapshot {
            self.guard.rest();
            self.midway = Midway::at_once();
        }
    }

    /// A transaction that may write is in an epoch from now on. A snapshot enters one with its next step.
    #[inline]
    pub(super) fn come_back(&mut self) {
        let State { base, stays, .. } = &mut *self.state;
        if self.stands_aside && !self.guard.come_back(base, stays) {
            self.forget_found();
        }
    }

    /// The epoch was left: see the head of the file.
    #[cold]
    fn forget_found(&mut self) {
        let state = &mut *self.state;
        state.promotions.clear();
        state.sets.forget_found(&self.guard);
    }
}
