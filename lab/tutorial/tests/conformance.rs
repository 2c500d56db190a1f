//! The behaviour that every protocol shows.

use polychron_check::{Setup, conformance};
use polychron_engine::Protocol;
use polychron_tutorial::{OneLock, Options};

/// One transaction at a time, and epochs that the tests move.
fn one_lock() -> Setup<OneLock> {
    let mut setup = Setup::new(Options::default(), |database: &std::sync::Arc<OneLock>| {
        database.memory().epochs().advance();
    });
    setup.common.memory.epoch_interval = None;
    setup.alone()
}

conformance!(one_lock, one_lock());
