//! Cicada: every behaviour, and what each check of its validation is for.

use std::time::Duration;

use polychron_check::{Setup, conformance};
use polychron_protocols::cicada::{Cicada, Options};

/// Cicada whose horizons move only when the tests move them.
fn cicada() -> Setup<Cicada> {
    let still = Duration::from_secs(3600);
    let options =
        Options { collection_interval: still, background_interval: still, ..Options::default() };
    Setup::new(options, |database| database.tick())
}

conformance!(cicada, cicada());
