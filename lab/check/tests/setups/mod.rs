//! Protocols whose clocks and horizons move when a test moves them.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod table;

use std::time::Duration;

use polychron_check::Setup;
use polychron_engine::Protocol;
use polychron_protocols::bohm::Bohm;
use polychron_protocols::cicada::{self, Cicada, Indexes};
use polychron_protocols::lazy::{self, Lazy};
use polychron_protocols::locking::Locking;
use polychron_protocols::maflingo::{self, Maflingo};

/// Maflingo and its kin.
pub(crate) fn maflingo() -> Setup<Maflingo> {
    let options = maflingo::Options { epoch_interval: Duration::from_secs(3600), ..Default::default() };
    Setup::new(options, |database| database.tick())
}

/// Maflingo under futures.
pub(crate) fn lazy_occ() -> Setup<Lazy<Maflingo>> {
    let base = maflingo::Options { epoch_interval: Duration::from_secs(3600), ..Default::default() };
    Setup::new(lazy::Options { base, ..Default::default() }, |database| database.base().tick())
}

/// Cicada under futures.
pub(crate) fn lazy_cicada() -> Setup<Lazy<Cicada>> {
    let host = still_cicada();
    let options = lazy::Options { base: host.options, ..Default::default() };
    let setup = Setup::new(options, |database: &std::sync::Arc<Lazy<Cicada>>| database.base().tick());
    let (maintains_by_clock, kept_slots_bytes) = (host.maintains_by_clock, host.kept_slots_bytes);
    Setup { maintains_by_clock, kept_slots_bytes, ..setup }
}

/// Two-phase locking under futures; its snapshots lock.
pub(crate) fn lazy_2pl() -> Setup<Lazy<Locking>> {
    let mut setup = by_epochs::<Lazy<Locking>>();
    setup.snapshots_lock = true;
    setup
}

/// BOHM. Driven interactively it runs one transaction at a time.
pub(crate) fn bohm() -> Setup<Bohm> {
    let mut setup: Setup<Bohm> = Setup::new(Default::default(), |database| database.tick());
    setup.common.memory.epoch_interval = None;
    setup.interleaves = false;
    // The last one of those that may write anything stays in their list, as a version without a row.
    setup.kept_slots_bytes = 32;
    setup
}

/// Cicada whose timestamps are counted.
pub(crate) fn cicada() -> Setup<Cicada> {
    let still = Duration::from_secs(3600);
    let options = cicada::Options {
        central_clock: true,
        collection_interval: still,
        background_interval: still,
        ..Default::default()
    };
    Setup::new(options, |database| database.tick())
}

/// The same with multi-version indexes.
pub(crate) fn multi_version() -> Setup<Cicada> {
    let mut setup = cicada();
    setup.options.indexes = Indexes::MultiVersion;
    setup
}

/// A protocol that has no clock but the memory's.
pub(crate) fn by_epochs<P: Protocol>() -> Setup<P> {
    let mut setup = Setup::new(P::Options::default(), |database: &std::sync::Arc<P>| {
        database.memory().epochs().advance();
    });
    setup.common.memory.epoch_interval = None;
    setup
}

/// Cicada whose horizons move only when the tests move them.
pub(crate) fn still_cicada() -> Setup<Cicada> {
    let still = Duration::from_secs(3600);
    let (pruning_after, overtaking_after) = (Duration::ZERO, Duration::ZERO);
    let options = cicada::Options {
        collection_interval: still,
        background_interval: still,
        pruning_after,
        overtaking_after,
        ..Default::default()
    };
    let setup = Setup::new(options, |database: &std::sync::Arc<Cicada>| database.tick());
    // What came and went behind a long snapshot, 4000 rounds of 20 rows with heads of 64 bytes, is twenty times as much.
    Setup { maintains_by_clock: true, kept_slots_bytes: 256 << 10, ..setup }
}

/// Two-phase locking; its snapshots lock.
pub(crate) fn locking() -> Setup<Locking> {
    let mut setup: Setup<Locking> = Setup::new(Default::default(), |database: &std::sync::Arc<Locking>| {
        database.memory().epochs().advance();
    });
    setup.common.memory.epoch_interval = None;
    setup.snapshots_lock = true;
    setup
}

/// The same with multi-version indexes: keys that came after a snapshot, and went, leave nothing in the present.
pub(crate) fn still_multi_version() -> Setup<Cicada> {
    let mut setup = still_cicada();
    setup.options.indexes = Indexes::MultiVersion;
    Setup { name: "cicada, multi-version", ..setup }
}
