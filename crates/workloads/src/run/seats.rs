//! The part of a run that is compiled for each protocol: clients at its workers.

use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::Histogram;
use polychron_base::Error;
use polychron_engine::Protocol;
use polychron_engine::submission::Service;

use super::client::{Failure, Loop};
use super::{Settings, submitting};
use crate::Workload;

/// A worker for each thread, and whom the threads submit to.
pub(super) trait Seats<W: Workload>: Sync {
    /// Lets a client work on thread `thread`, once for each thread, until the run is over: the latencies of the measured interval by
    /// kind.
    fn run(&self, thread: usize, client: Loop<'_, W::Client>) -> Result<Vec<Histogram<u64>>, Failure>;
}

/// Those of one protocol.
pub(super) struct Taken<P: Protocol> {
    workers: Vec<Mutex<Option<P::Worker>>>,
    service: Option<Service<P>>,
}

/// Takes what the threads need.
pub(super) fn take<P: Protocol>(database: &Arc<P>, settings: &Settings) -> Result<Taken<P>, Error> {
    let worker = |_| database.worker().map(|worker| Mutex::new(Some(worker)));
    let workers = (0..settings.threads).map(worker).collect::<Result<_, _>>()?;
    Ok(Taken { workers, service: submitting::start(database, settings)? })
}

impl<P: Protocol, W: Workload> Seats<W> for Taken<P> {
    fn run(&self, thread: usize, client: Loop<'_, W::Client>) -> Result<Vec<Histogram<u64>>, Failure> {
        let worker = self.workers[thread].lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut worker = worker.expect("each thread comes once");
        match &self.service {
            None => client.run(&mut worker),
            Some(service) => client.submit(&mut worker, service),
        }
    }
}
