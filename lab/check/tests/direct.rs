//! Protocols that are known when the program is compiled, where the layer of virtual calls would hide something: it copies the bytes of keys, and
//! keeps answers itself.

use crate::setups;
use polychron_check::Setup;
use polychron_check::conformance::{destructors, false_keys};
use polychron_compared::hekaton::Hekaton;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::serial::Serial;

macro_rules! false_keys {
    ($($name:ident: $setup:expr;)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn too_long() {
                false_keys::too_long(&$setup);
            }

            #[test]
            fn fickle() {
                false_keys::fickle(&$setup);
            }

            #[test]
            fn declared() {
                false_keys::declared(&$setup);
            }
        }
    )*};
}

false_keys! {
    maflingo: setups::maflingo();
    cicada: setups::still_cicada();
    multi_version_cicada: setups::still_multi_version();
    hyper: setups::by_epochs::<Hyper>();
    locking: setups::locking();
    lazy_occ: setups::lazy_occ();
    bohm: setups::bohm();
    hekaton: setups::by_epochs::<Hekaton>();
    partitioned_store: setups::by_epochs::<PartitionedStore>();
    serial: Setup::<Serial>::new(Default::default(), |_| ()).alone();
}

#[test]
fn destructors_of_answers() {
    destructors::of_answers(&setups::bohm());
    destructors::of_answers_that_are_not_taken(&setups::bohm());
    destructors::of_submissions(&setups::bohm());
    destructors::of_clients_that_panic(&setups::bohm());
}
