//! Options that every protocol shares.

/// Options of a database that do not depend on its protocol.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Regions, limits, worker slots, the epoch clock.
    pub memory: polychron_memory::Options,
    /// How conflicts are retried.
    pub retry: Retry,
}

/// How conflicts are retried.
#[derive(Clone, Debug)]
pub struct Retry {
    /// How often a transaction may conflict before its caller is told with [`crate::Error::Conflicts`]. The default never
    /// gives up: under the back-off every transaction gets through, and callers that want a bound can have one.
    pub attempts: u64,
    /// Longest single wait, in microseconds. Short, because on a main-memory engine a transaction takes microseconds.
    pub backoff_max_us: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: u64::MAX, backoff_max_us: 64 }
    }
}
