//! Every protocol, one line each.

mod setups;

use polychron_check::{Setup, conformance};
use polychron_protocols::maflingo::{GlobalTid, LocalTid, Maflingo};
use polychron_protocols::partitioned_store::PartitionedStore;
use polychron_protocols::serial::Serial;

use setups::{by_epochs, maflingo};

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
    let mut setup = by_epochs::<PartitionedStore>();
    setup.interleaves = false;
    setup
}

conformance!(partitioned_store, partitioned_store());

/// The oracle; it has no clock, and its rows lie on the common heap.
fn serial() -> Setup<Serial> {
    Setup::new(polychron_protocols::serial::Options::default(), |_| ()).alone()
}

conformance!(serial, serial());
