//! The knobs of this protocol.

use std::time::Duration;

use polychron_engine::Configuration;
use polychron_engine::stores::knobs::{self, Knobs};

/// Options of Maflingo; the defaults suit an embedded user, [`Options::paper`] gives the thesis's values.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often the epoch moves on (§4.7; the thesis: 1 s). It bounds the staleness of snapshots (one to two epochs), how
    /// long superseded versions and tombstones live, and how often a record that is updated all the time leaves a version
    /// behind. At 2 ms a queue-like table, whose front is deleted again and again, stays free of tombstones to walk over,
    /// memory comes back while it is still in the caches, and the clock costs nothing that can be measured.
    pub epoch_interval: Duration,
    /// Whether older versions are kept for snapshots (§4.7). Without them a snapshot is an ordinary read-only
    /// transaction that reads the present and may be retried.
    pub snapshots: bool,
    /// Whether a snapshot contains what its session, or the calling thread, has committed or seen. Where that was written just now, the
    /// snapshot begins an epoch, or waits for the commits of others that are under way, some microseconds. Without it a
    /// snapshot begins at once, one to two epochs in the past.
    pub own_commits: bool,
    /// After how many operations a running transaction checks that what it read still stands together, so that a loop
    /// over inconsistent reads ends (§5, inconsistent reads). The thesis does not check before commit.
    pub check_every: u32,
    /// Whether every commit also changes one shared word.
    pub counter: Counter,
    /// Whether reads look for own writes (§5). The laboratory leaves it out to measure what it costs: then a transaction that reads or changes what it
    /// has written finds what was there before, and is serializable only if it never does.
    #[cfg(any(test, feature = "ablation"))]
    pub read_own_writes: bool,
}

/// Where transaction ids come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counter {
    /// The worker draws them alone, and writes nothing shared (§4.1).
    #[default]
    Own,
    /// Every commit changes a shared counter besides, as designs with a central one do (GlobalTID, §6.4): for comparison.
    Shared,
}

impl Counter {
    /// The configuration that has a name of its own.
    pub(super) const SHARED: &'static [Configuration] = &[Configuration::new(
        "global-tid",
        "maflingo with one shared counter in every commit: for comparison",
        &[("counter", "shared")],
    )];
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epoch_interval: Duration::from_millis(2),
            snapshots: true,
            own_commits: true,
            check_every: 4096,
            counter: Counter::Own,
            #[cfg(any(test, feature = "ablation"))]
            read_own_writes: true,
        }
    }
}

impl Options {
    /// The values of the thesis's evaluation.
    pub fn paper() -> Self {
        Self { epoch_interval: Duration::from_secs(1), own_commits: false, ..Self::default() }
    }
}

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "counter" => {
                self.counter = knobs::choice(name, value, &[("own", Counter::Own), ("shared", Counter::Shared)])?;
            }
            "snapshots" => self.snapshots = knobs::yes_or_no(name, value)?,
            "own-commits" => self.own_commits = knobs::yes_or_no(name, value)?,
            "epoch-us" => self.epoch_interval = knobs::interval(name, value)?,
            "check-every" => self.check_every = knobs::number(name, value)?,
            #[cfg(any(test, feature = "ablation"))]
            "read-own-writes" => self.read_own_writes = knobs::yes_or_no(name, value)?,
            _ => {
                let known = "`check-every`, `counter`, `epoch-us`, `own-commits` and `snapshots`";
                return Err(knobs::unknown("maflingo", name, known));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_name_and_a_value() {
        let mut options = Options::default();
        for (name, value) in [
            ("check-every", "7"),
            ("counter", "shared"),
            ("epoch-us", "7"),
            ("own-commits", "no"),
            ("snapshots", "no"),
            ("read-own-writes", "no"),
        ] {
            options.set(name, value).unwrap();
            assert!(options.set(name, "?").unwrap_err().contains(name));
        }
        assert_eq!((options.check_every, options.counter), (7, Counter::Shared));
        assert_eq!(options.epoch_interval, Duration::from_micros(7));
        assert!(!options.own_commits && !options.snapshots && !options.read_own_writes);
        assert!(options.set("nothing", "1").is_err());
    }
}
