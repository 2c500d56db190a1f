//! A worker: one of the host protocol, and an arena.

use std::fmt;

use polychron_base::clock::Duration;
use polychron_base::{Abort, Error, TableId};
use polychron_engine::futures::ExpressionArena;
use polychron_engine::lazy::LazyHost;
use polychron_engine::options::Retry;
use polychron_engine::{Counters, Interactive, LoadedRow, Mode, Procedure, Ticket, Worker, drive};

use super::arena::Arena;
use super::options::Resolution;
use super::transaction::LazyTransaction;

/// One thread's way into the database.
pub struct LazyWorker<B: LazyHost> {
    base: B::Worker,
    arena: Arena,
    /// Whether the next transaction is another attempt.
    again: bool,
    resolution: Resolution,
}

impl<B: LazyHost> LazyWorker<B> {
    pub(super) fn new(base: B::Worker, resolution: Resolution) -> Self {
        Self { base, arena: Arena::default(), again: false, resolution }
    }
}

impl<B: LazyHost> fmt::Debug for LazyWorker<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LazyWorker").field("arena", &self.arena).finish_non_exhaustive()
    }
}

impl<B: LazyHost> Worker for LazyWorker<B> {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, P::Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        drive::execute_batch_with(self, procedures, done, others);
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        drive::execute(self, Mode::Snapshot, procedure)
    }

    fn load(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        self.base.load(table, rows)
    }

    #[inline]
    fn admit(&mut self) -> Result<(), Error> {
        self.base.admit()
    }

    fn take_ticket(&mut self) -> Ticket {
        self.base.take_ticket()
    }

    fn counters(&self) -> &Counters {
        self.base.counters()
    }

    fn maintain(&mut self) {
        self.base.maintain();
    }
}

impl<B: LazyHost> Interactive for LazyWorker<B> {
    type Transaction<'w> = LazyTransaction<'w, B>;

    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<LazyTransaction<'_, B>, Error> {
        let speculates = !std::mem::take(&mut self.again) & !std::mem::take(&mut self.arena.was_mistaken);
        self.arena.clear();
        let is_deferred = self.resolution == Resolution::Deferred && mode == Mode::ReadWrite;
        let expressions = is_deferred.then(ExpressionArena::new);
        Ok(LazyTransaction { base: self.base.begin(mode)?, arena: &mut self.arena, expressions, speculates })
    }

    fn last_abort(&self) -> Option<Abort> {
        self.base.last_abort()
    }

    fn waits_for_itself(&self) -> Option<Error> {
        self.base.waits_for_itself()
    }

    fn is_nested(&self) -> bool {
        self.base.is_nested()
    }

    fn await_snapshot(&mut self, longest: Duration) -> bool {
        self.base.await_snapshot(longest)
    }

    fn keeps_readers(&self, mode: Mode) -> bool {
        self.base.keeps_readers(mode)
    }

    fn back_off(&mut self, attempts: u64) {
        self.again = true;
        self.base.back_off(attempts);
    }

    fn retry(&self) -> &Retry {
        self.base.retry()
    }
}
