//! The loop of one thread in a run that submits its transactions.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, PoisonError};

use hdrhistogram::Histogram;
use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::futures::Resolved;
use polychron_engine::options::Submissions;
use polychron_engine::submission::{Service, Submission};
use polychron_engine::{Declare, Mode, Procedure, Protocol, Transaction};
use polychron_sync::Mutex;

use super::Settings;
use super::client::{Failure, Loop, Phase, count};
use super::slots::{Slot, Submits};
use crate::{Client, Transact};

/// Starts the executing threads, if anything is to be submitted.
pub(super) fn start<P: Protocol>(database: &Arc<P>, settings: &Settings) -> Result<Option<Service<P>>, Error> {
    if settings.submit == 0 {
        return Ok(None);
    }
    let Settings { threads, batch: batch_size, batch_time_us, .. } = *settings;
    let options = Submissions { threads, batch_size, batch_time_us, ..Submissions::default() };
    Service::start(database, &options, Arc::new(SystemClock::new()), || database.worker()).map(Some)
}

/// A procedure that its client sees again when it was executed.
pub(super) struct Shared<P>(Arc<Mutex<P>>);

impl<P> Shared<P> {
    fn with<O>(&self, look: impl FnOnce(&mut P) -> O) -> O {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<P: Procedure> Procedure for Shared<P> {
    type Output = P::Output;
    type Error = P::Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<P::Output, P::Error> {
        self.with(|procedure| procedure.run(transaction))
    }

    #[inline]
    fn committed(&mut self, output: &mut P::Output, resolved: &Resolved) {
        self.with(|procedure| procedure.committed(output, resolved));
    }

    #[inline]
    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.with(|procedure| procedure.declare(declaration));
    }
}

/// A transaction that was submitted.
struct UnderWay<P: Procedure> {
    procedure: Shared<P>,
    submission: Submission<P::Output, P::Error>,
    kind: usize,
    begun_ns: Option<u64>,
}

impl<C: Client> Loop<'_, C> {
    /// Submits transactions until the run is over, as many at a time as the settings say, and returns the latencies of the
    /// measured interval by kind. Those that want a snapshot are executed in between.
    pub(super) fn submit(
        mut self,
        worker: &mut dyn Slot<C::Procedure>,
        service: &dyn Submits<C::Procedure>,
    ) -> Result<Vec<Histogram<u64>>, Failure> {
        let mut under_way: VecDeque<UnderWay<C::Procedure>> = VecDeque::with_capacity(self.under_way);
        let mut phase = Phase::WARMUP;
        loop {
            let now = self.phase.get();
            if now == Phase::OVER {
                under_way.into_iter().try_for_each(|oldest| self.finish(oldest))?;
                return Ok(self.timer.latencies);
            }
            if now != phase {
                self.timer.reset();
                phase = now;
            }
            while let Some(oldest) = under_way.pop_front() {
                if under_way.len() + 1 < self.under_way && !oldest.submission.is_answered() {
                    under_way.push_front(oldest);
                    break;
                }
                self.finish(oldest)?;
            }
            let mut procedure = self.client.next();
            let kind = procedure.kind();
            let begun_ns = self.timer.is_due(kind).then(|| self.timer.clock.now_ns());
            if procedure.mode() == Mode::Snapshot {
                self.execute_single(worker, &mut procedure, begun_ns)?;
                continue;
            }
            let procedure = Arc::new(Mutex::new(procedure));
            let submission = service.submit(Shared(Arc::clone(&procedure)));
            under_way.push_back(UnderWay { procedure: Shared(procedure), submission, kind, begun_ns });
        }
    }

    /// Waits for an answer, and counts it.
    fn finish(&mut self, done: UnderWay<C::Procedure>) -> Result<(), Failure> {
        let UnderWay { procedure, submission, kind, begun_ns } = done;
        let outcome = submission.wait().map(|output| drop(black_box(output)));
        if let Some(begun_ns) = begun_ns {
            self.timer.record(kind, begun_ns);
        }
        count(self.tally, kind, outcome, self.isolation)?;
        procedure.with(|procedure| self.client.finished(procedure));
        Ok(())
    }
}
