//! Foreign keys, once for each kind of protocol: the checks stand in the engine, and what is left to a protocol is to protect reads.

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::Setup;
use polychron_check::conformance::foreign_keys;
use polychron_compared::hekaton::Hekaton;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::lazy::Lazy;
use polychron_protocols::locking::Locking;
use polychron_protocols::serial::Serial;

use crate::setups::{bohm, by_epochs, cicada, lazy_2pl, lazy_cicada, lazy_occ, locking, maflingo};

macro_rules! protocols {
    ($($name:ident: $setup:expr;)*) => {$(
        #[test]
        fn $name() {
            let setup = $setup.erased();
            foreign_keys::hold(&setup);
            foreign_keys::of_bytes(&setup);
            foreign_keys::to_their_own_table(&setup);
            foreign_keys::definitions(&setup);
            foreign_keys::of_futures(&setup);
            foreign_keys::deletion_beside_insertion(&setup);
            foreign_keys::refusals_behind_a_void_savepoint(&setup);
            foreign_keys::refusals_beside_an_open_condition(&setup);
            foreign_keys::on_threads(&setup);
        }
    )*};
}

protocols! {
    maflingo_checks: maflingo();
    cicada_checks: cicada();
    bohm_checks: bohm();
    hekaton_checks: by_epochs::<Hekaton>();
    snapshot_isolation_checks: by_epochs::<Hekaton>().named("snapshot-isolation");
    hyper_checks: by_epochs::<Hyper>();
    hyper_record_level_checks: by_epochs::<Hyper>().named("hyper-record-level");
    hyper_snapshot_checks: by_epochs::<Hyper>().named("hyper-snapshot");
    locking_checks: locking();
    locking_no_wait_checks: by_epochs::<Locking>().named("locking-no-wait");
    locking_wound_wait_checks: by_epochs::<Locking>().named("locking-wound-wait");
    lazy_occ_checks: lazy_occ();
    lazy_2pl_checks: lazy_2pl();
    lazy_cicada_checks: lazy_cicada();
    lazy_hyper_checks: by_epochs::<Lazy<Hyper>>();
    partitioned_store_checks: Setup { interleaves: false, ..by_epochs::<PartitionedStore>() };
    serial_checks: Setup::<Serial>::new(Default::default(), |_| ()).alone();
}
