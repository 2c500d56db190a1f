//! How long requests of each kind take: a name for what a caller asks of a database, and counts under that name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polychron_base::clock::{Clock, SystemClock};
use polychron_base::line::OneLine;
use polychron_engine::{Distribution, SharedDistribution};
use polychron_engine::{Error, Interactive, Protocol};

use crate::{Database, Session, TransactionOf};

/// A kind of request to a database: `database.request("transfer")`. What is executed through it is counted under its name, with the time that it took
/// from the call to the answer, repetitions included.
///
/// ```
/// use polychron::{Database, Operations, Row};
///
/// #[derive(Row)]
/// struct Account {
///     #[key]
///     id: u64,
///     balance: i64,
/// }
///
/// let database = Database::in_memory()?;
/// let accounts = database.create_table::<Account>()?;
/// let open = database.request("open account");
/// for id in 0..10 {
///     open.transact(|transaction| transaction.insert(&accounts, &Account { id, balance: 0 }))?;
/// }
/// for request in database.requests() {
///     println!("{request}");
/// }
/// assert_eq!(database.requests()[0].completed, 10);
/// # Ok::<(), polychron::Error>(())
/// ```
pub struct Request<P: Protocol = crate::DefaultProtocol> {
    database: Database<P>,
    counts: Arc<Counts>,
}

impl<P: Protocol> Clone for Request<P> {
    fn clone(&self) -> Self {
        Self { database: self.database.clone(), counts: Arc::clone(&self.counts) }
    }
}

impl<P: Protocol> fmt::Debug for Request<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Request").field(&self.counts.name).finish()
    }
}

/// Counts of all kinds of requests to a database, by their names.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_name: Mutex<BTreeMap<String, Arc<Counts>>>,
    clock: SystemClock,
}

#[derive(Debug)]
struct Counts {
    name: String,
    completed: SharedDistribution,
    failed: SharedDistribution,
}

/// Durations are counted in units of so many nanoseconds, so that they reach from 16 ns to over a minute.
const UNIT_NS: u64 = 16;

/// The latencies of one kind of request since the database was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestStatistics {
    /// Their name.
    pub name: String,
    /// How many were answered.
    pub completed: u64,
    /// How many ended with an error, of the caller or of the engine.
    pub failed: u64,
    completed_in: Distribution,
    failed_in: Distribution,
}

impl RequestStatistics {
    /// A time that at least this share of the completed requests did not exceed, at most an eighth too large; `None` where there are none.
    /// Over a minute counts as a minute.
    pub fn latency(&self, share: f64) -> Option<Duration> {
        self.completed_in.quantile(share).map(in_units)
    }

    /// The same of those that ended with an error.
    pub fn latency_of_failed(&self, share: f64) -> Option<Duration> {
        self.failed_in.quantile(share).map(in_units)
    }
}

fn in_units(units: u64) -> Duration {
    Duration::from_nanos(units * UNIT_NS)
}

impl fmt::Display for RequestStatistics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} completed, {} failed", OneLine(&self.name), self.completed, self.failed)?;
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            if let Some(latency) = self.latency(share) {
                write!(out, ", {name} {latency:?}")?;
            }
        }
        Ok(())
    }
}

impl Requests {
    fn counts(&self, name: &str) -> Arc<Counts> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = by_name.get(name) {
            return Arc::clone(counts);
        }
        let counts = Counts {
            name: name.to_owned(),
            completed: SharedDistribution::default(),
            failed: SharedDistribution::default(),
        };
        Arc::clone(by_name.entry(name.to_owned()).or_insert(Arc::new(counts)))
    }

    fn statistics(&self) -> Vec<RequestStatistics> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |counts: &Arc<Counts>| {
            let (completed_in, failed_in) = (counts.completed.sum(), counts.failed.sum());
            RequestStatistics {
                name: counts.name.clone(),
                completed: completed_in.total(),
                failed: failed_in.total(),
                completed_in,
                failed_in,
            }
        };
        by_name.values().map(of).collect()
    }
}

impl<P: Protocol> Database<P> {
    /// A kind of request, by name. Two of the same name count together; a name is kept as long as the database, so it should not hold ids.
    pub fn request(&self, name: &str) -> Request<P> {
        Request { database: self.clone(), counts: self.requests.counts(name) }
    }

    /// The latencies of each kind of request so far, in the order of their names.
    pub fn requests(&self) -> Vec<RequestStatistics> {
        self.requests.statistics()
    }
}

impl<P: Protocol> Request<P> {
    /// Measures what `work` takes: for what is executed in other ways than those below.
    pub fn measure<O, E>(&self, work: impl FnOnce() -> Result<O, E>) -> Result<O, E> {
        let clock = &self.database.requests.clock;
        let begun = clock.now_ns();
        let result = work();
        let units = (clock.now_ns() - begun) / UNIT_NS;
        let counts = if result.is_ok() { &self.counts.completed } else { &self.counts.failed };
        counts.count(units, crate::pool::thread_number());
        result
    }
}

impl<P: Protocol<Worker: Interactive>> Request<P> {
    /// As [`Database::transact`].
    ///
    /// # Errors
    /// As there.
    pub fn transact<O, E: From<Error>>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.measure(|| self.database.transact(body))
    }

    /// As [`Session::transact`].
    ///
    /// # Errors
    /// As there.
    pub fn transact_in<O, E: From<Error>>(
        &self,
        session: &mut Session<P>,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.measure(|| session.transact(body))
    }

    /// As [`Database::snapshot`].
    ///
    /// # Errors
    /// As there.
    pub fn snapshot<O, E: From<Error>>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.measure(|| self.database.snapshot(body))
    }
}
