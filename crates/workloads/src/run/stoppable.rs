//! Loading that can be ended: workers that refuse work once the run is to stop.

use polychron_base::Error;
use polychron_engine::{Counters, Procedure, Ticket, Worker};
use polychron_sync::atomic::{AtomicBool, Ordering};

/// A worker that executes nothing once `stop` is set.
pub(super) struct Stoppable<'s, W> {
    pub(super) worker: W,
    pub(super) stop: &'s AtomicBool,
}

impl<W> Stoppable<'_, W> {
    fn go_on(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::RolledBack) } else { Ok(()) }
    }
}

impl<W: Worker> Worker for Stoppable<'_, W> {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.go_on()?;
        self.worker.execute(procedure)
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.go_on()?;
        self.worker.snapshot(procedure)
    }

    fn admit(&mut self) -> Result<(), Error> {
        self.worker.admit()
    }

    fn take_ticket(&mut self) -> Ticket {
        self.worker.take_ticket()
    }

    fn counters(&self) -> &Counters {
        self.worker.counters()
    }

    fn maintain(&mut self) {
        self.worker.maintain();
    }
}
