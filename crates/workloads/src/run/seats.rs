//! The part of a run that is compiled for each protocol: clients at its workers.

use std::mem::take;
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
    /// Those of each thread: several where its transactions take turns.
    workers: Vec<Mutex<Vec<P::Worker>>>,
    service: Option<Service<P>>,
}

/// Takes what the threads need.
pub(super) fn seat<P: Protocol>(database: &Arc<P>, settings: &Settings) -> Result<Taken<P>, Error> {
    let of_a_thread = |_| (0..settings.interleave).map(|_| database.worker()).collect::<Result<_, _>>().map(Mutex::new);
    let workers = (0..settings.threads).map(of_a_thread).collect::<Result<_, _>>()?;
    Ok(Taken { workers, service: submitting::start(database, settings)? })
}

impl<P: Protocol, W: Workload> Seats<W> for Taken<P> {
    fn run(&self, thread: usize, client: Loop<'_, W::Client>) -> Result<Vec<Histogram<u64>>, Failure> {
        let mut workers = take(&mut *self.workers[thread].lock().unwrap_or_else(PoisonError::into_inner));
        match &self.service {
            // Of constants, so that only what can be interleaved is compiled for it.
            None if P::INTERLEAVES && W::INTERLEAVES && workers.len() > 1 => client.interleave(&mut workers),
            None => client.run(&mut workers[0]),
            Some(service) => client.submit(&mut workers[0], service),
        }
    }
}
