//! What is known not to be as it should is ignored here, with the reason; what once was, and is mended, stays as a test.

use std::time::Duration;

use polychron_check::Setup;
use polychron_check::conformance::{changes, secondaries};
use polychron_protocols::key_value::KeyValue;
use polychron_protocols::maflingo::{Maflingo, Options};

fn maflingo() -> Setup<Maflingo> {
    let options = Options { epoch_interval: Duration::from_secs(3600), ..Options::default() };
    Setup::new(options, |database| database.tick())
}

#[test]
fn unique_text() {
    secondaries::unique_text(&maflingo());
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
