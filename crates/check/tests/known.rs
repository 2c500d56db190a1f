//! What is known not to be as it should is ignored here, with the reason; what once was, and is mended, stays as a test.

mod setups;

use polychron_check::Setup;
use polychron_check::conformance::{changes, secondaries};
use polychron_protocols::key_value::KeyValue;
use polychron_protocols::maflingo::LocalTid;

use setups::maflingo;

#[test]
fn unique_text() {
    secondaries::unique_text(&maflingo::<LocalTid>());
}

#[test]
fn shared_hash_look_up_in_serial() {
    let setup = Setup::new(polychron_protocols::serial::Options::default(), |_| ()).alone();
    secondaries::shared_hash_look_up::<polychron_protocols::serial::Serial>(&setup);
}

#[test]
fn new_index_under_an_older_procedure_of_key_value() {
    let options = polychron_protocols::key_value::Options::default();
    changes::new_index_under_an_older_transaction(&Setup::<KeyValue>::new(options, |_| ()));
}
