//! What is known not to be as it should is ignored here, with the reason; what once was, and is mended, stays as a test.

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::Setup;
use polychron_check::conformance::{changes, secondaries};
use polychron_compared::key_value::KeyValue;
use polychron_protocols::serial::Serial;

use crate::setups::maflingo;

#[test]
fn unique_text() {
    secondaries::unique_text(&maflingo().erased());
}

#[test]
fn shared_hash_lookup_in_serial() {
    let setup = Setup::<Serial>::new(Default::default(), |_| ()).alone();
    secondaries::shared_hash_lookup(&setup.erased());
}

#[test]
fn new_index_under_an_older_procedure_of_key_value() {
    let options = polychron_compared::key_value::Options::default();
    changes::new_index_under_an_older_transaction(&Setup::<KeyValue>::new(options, |_| ()).erased());
}
