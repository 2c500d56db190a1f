//! Every protocol, one line each.

use std::time::Duration;

use polychron_check::{Setup, conformance};
use polychron_engine::Protocol;
use polychron_protocols::locking::{InOrder, Locking, NoWait, Policy};
use polychron_protocols::maflingo::{GlobalTid, LocalTid, Maflingo, Options, TidSource};
use polychron_protocols::partitioned_store::PartitionedStore;
use polychron_protocols::serial::Serial;

/// Maflingo with a clock that the tests move.
fn maflingo<T: TidSource>() -> Setup<Maflingo<T>> {
    let options = Options { epoch_interval: Duration::from_secs(3600), ..Options::default() };
    Setup::new(options, |database| database.tick())
}

conformance!(maflingo, maflingo::<LocalTid>());
conformance!(global_tid, maflingo::<GlobalTid>());

/// Maflingo that looks after every operation whether its reads still stand together.
fn watchful() -> Setup<Maflingo> {
    let mut setup = maflingo();
    setup.options.check_every = 1;
    setup
}

conformance!(watchful_maflingo, watchful());

/// Whole-partition locks; no table here is divided, so one transaction runs at a time.
fn partitioned_store() -> Setup<PartitionedStore> {
    let mut setup: Setup<PartitionedStore> =
        Setup::new(polychron_protocols::partitioned_store::Options::default(), |database| {
            database.memory().epochs().advance();
        });
    setup.common.memory.epoch_interval = None;
    setup.interleaves = false;
    setup
}

conformance!(partitioned_store, partitioned_store());

/// The oracle; it has no clock, and its rows lie on the common heap.
fn serial() -> Setup<Serial> {
    Setup::new(polychron_protocols::serial::Options::default(), |_| ()).alone()
}

conformance!(serial, serial());

/// Two-phase locking; its snapshots lock.
fn locking<P: Policy>() -> Setup<Locking<P>> {
    let mut setup: Setup<Locking<P>> = Setup::new(Default::default(), |database| {
        database.memory().epochs().advance();
    });
    setup.common.memory.epoch_interval = None;
    setup.snapshots_lock = true;
    setup
}

conformance!(locking, locking::<InOrder>());
conformance!(locking_no_wait, locking::<NoWait>());
