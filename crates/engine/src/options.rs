//! Options that every protocol shares.

use std::time::Duration;

use polychron_base::Error;
use polychron_base::key::HashSeed;

use crate::events::Events;
use crate::redo::Journal;

/// Options of a database that do not depend on its protocol.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Regions, limits, worker slots, the epoch clock.
    pub memory: polychron_memory::Options,
    /// The retry of transactions that conflict.
    pub retry: Retry,
    /// The execution of submitted procedures.
    pub submissions: Submissions,
    /// The seed of the hashes of keys: chosen anew whenever such options are made, so that no client can foresee which keys collide.
    pub hash_seed: HashSeed,
    /// The listener of events.
    pub events: Events,
    /// The journal to which commits hand their changes. A protocol without logging refuses any but an empty one ([`Journal::refuse`]).
    pub journal: Journal,
}

impl Common {
    /// Refuses more worker slots than a protocol can distinguish.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub fn check_workers(&self, protocol: &str, most: usize) -> Result<(), Error> {
        let asked = self.memory.max_workers;
        if (1..=most).contains(&asked) {
            return Ok(());
        }
        Err(Error::options(format!("max_workers lies between 1 and {most} under {protocol}; {asked} were asked for")))
    }
}

/// The retry of transactions that conflict.
#[derive(Clone, Debug)]
pub struct Retry {
    /// The number of conflicts after which a transaction fails with [`crate::Error::Conflicts`]. By default a million times, which no
    /// transaction comes near that has a chance: those that conflict repeatedly are favoured.
    pub attempts: u64,
    /// For how long a transaction may conflict before its caller is told likewise, counted from one of its first conflicts on; `None`:
    /// without end. By default 30 seconds: then a client has what it needs open, and does nothing with it. For so long, too, each of the steps
    /// of [`create_index`](crate::Protocol::create_index) and of [`evolve::open`](crate::evolve::open) waits that has to wait for transactions
    /// of others; then it fails with [`crate::Error::TimedOut`] or [`crate::Error::Conflicts`].
    pub time: Option<Duration>,
    /// Longest single wait, in microseconds. Short, because on a main-memory engine a transaction takes microseconds.
    pub backoff_max_us: u64,
}

impl Retry {
    /// Bounded, but far beyond what transactions take.
    pub const DEFAULT: Self = Self { attempts: 1_000_000, time: Some(Duration::from_secs(30)), backoff_max_us: 64 };

    /// Without end.
    pub const UNBOUNDED: Self = Self { attempts: u64::MAX, time: None, ..Self::DEFAULT };
}

impl Default for Retry {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The batching of submitted procedures, and the threads that execute them.
#[derive(Clone, Debug)]
pub struct Submissions {
    /// Threads that execute them; each takes a worker's slot, from the first submission on. One for each core, unless told
    /// otherwise: a protocol with threads of its own needs fewer.
    pub threads: usize,
    /// Procedures of a batch at most. One that is full is closed; larger ones make planning and looking ahead cheaper, and answers
    /// later. Those behind one that lasts are executed by threads that are free, after a millisecond or more.
    pub batch_size: usize,
    /// For how long after its first procedure a batch that is not full is kept open while a thread is free, in microseconds. The default is
    /// not to wait for company: what comes while the threads are busy makes the next batch, so that batches grow with the load.
    pub batch_time_us: u64,
    /// Procedures at most that were submitted and that no thread took yet. A client that submits more waits; a batch that is not full is
    /// then kept open no longer.
    pub most_waiting: usize,
}

impl Default for Submissions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, batch_size: 1024, batch_time_us: 0, most_waiting: 1 << 16 }
    }
}
