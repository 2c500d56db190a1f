//! Cicada: every behaviour, with its options and with its clocks running.

use std::time::Duration;

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_base::sizes::scaled;
use polychron_check::conformance::{differential, phantoms};
use polychron_check::{Setup, conformance};
use polychron_engine::any::AnyProtocol;
use polychron_engine::mutations::leave_out;
use polychron_protocols::cicada::{Cicada, Indexes, Options, Step};

use crate::setups::{still_cicada, still_multi_version};

/// Cicada with its clocks running, and one switch turned.
fn with(change: impl FnOnce(&mut Options)) -> Setup<Cicada> {
    let mut options = Options::default();
    change(&mut options);
    Setup::new(options, |database| database.tick())
}

/// The same where the horizons move only when the tests move them.
fn still_with(change: impl FnOnce(&mut Options)) -> Setup<Cicada> {
    let mut setup = still_cicada();
    change(&mut setup.options);
    setup
}

/// Multi-version indexes, and one switch turned.
fn versioned_with(change: impl FnOnce(&mut Options)) -> Setup<Cicada> {
    let mut setup = still_multi_version();
    change(&mut setup.options);
    setup
}

conformance!(multi_version, still_multi_version());
conformance!(multi_version_by_a_counter, versioned_with(|options| options.central_clock = true));
conformance!(multi_version_without_inlining, versioned_with(|options| options.ablation.inlining = false));
conformance!(multi_version_watchful, versioned_with(|options| options.check_every = 7));
conformance!(
    multi_version_without_optimisations,
    versioned_with(|options| {
        options.ablation.wait_for_pending = false;
        options.ablation.write_latest_only = false;
        options.ablation.sort_by_contention = false;
        options.ablation.check_early = false;
    })
);

conformance!(central_clock, still_with(|options| options.central_clock = true));
conformance!(without_inlining, still_with(|options| options.ablation.inlining = false));
conformance!(watchful, still_with(|options| options.check_every = 7));
conformance!(
    without_optimisations,
    still_with(|options| {
        options.ablation.wait_for_pending = false;
        options.ablation.write_latest_only = false;
        options.ablation.sort_by_contention = false;
        options.ablation.check_early = false;
    })
);

/// A deletion takes the free place in its record's head.
#[test]
fn deletions_need_no_memory() {
    polychron_check::conformance::limits::deletions_without_any_memory(&still_cicada().erased());
}

#[test]
fn own_writes_are_found_by_a_look_that_can_be_left_out() {
    let setup = with(|options| options.ablation.read_own_writes = false);
    polychron_check::conformance::options::without_own_writes(&setup.erased());
}

/// What threads do while the horizons move by themselves.
macro_rules! running {
    ($($name:ident: $change:expr;)*) => {$(
        mod $name {
            use super::*;
            use polychron_check::conformance::{anomalies, differential, snapshots, stress};

            #[test]
            fn stress() {
                let setup = with($change).erased();
                stress::bank(&setup);
                stress::audited_by_snapshots(&setup);
                stress::counters(&setup);
                stress::secondaries_agree(&setup);
                stress::queue_of_one_key(&setup);
            }

            #[test]
            fn snapshots() {
                let setup = with($change).erased();
                snapshots::are_consistent_under_writers(&setup);
                snapshots::many_at_once(&setup);
                snapshots::keep_deleted_rows(&setup);
                snapshots::scan_while_memory_is_used_again(&setup);
                snapshots::whole_tables(&setup);
            }

            #[test]
            fn interleavings() {
                let setup = with($change).erased();
                differential::interleaved(&setup);
                anomalies::read_only_anomaly_with_a_snapshot(&setup);
            }
        }
    )*};
}

running! {
    by_default: |_| ();
    collecting_all_the_time: |options| options.collection_interval = Duration::ZERO;
    pruning_all_the_time: |options| {
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
    };
    collecting_seldom: |options| options.collection_interval = Duration::from_millis(100);
    without_waiting: |options| options.ablation.wait_for_pending = false;
    with_a_counter: |options| options.central_clock = true;
    with_a_fixed_wait: |options| options.fixed_backoff = Some(Duration::from_micros(5));
    multi_version_running: |options| options.indexes = Indexes::MultiVersion;
    multi_version_pruning: |options| {
        options.indexes = Indexes::MultiVersion;
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
    };
    multi_version_without_waiting: |options| {
        (options.indexes, options.ablation.wait_for_pending) = (Indexes::MultiVersion, false);
    };
}

/// Whether so many random interleavings find an anomaly in multi-version indexes when a step is left out.
fn is_needed_of_versions(step: Step, seeds: u64) -> bool {
    let mut careless = versioned_with(|options| {
        // These would find most of what the step is for before it comes to it.
        (options.ablation.check_early, options.ablation.write_latest_only) = (false, false);
    });
    // One thread reads what is left, and meets no client.
    careless.common.retry.attempts = 100;
    let careless = careless.erased();
    let _without = leave_out(step);
    // What is left behind may also be such that no client can still read it.
    let shows = |seed| {
        let search = std::panic::AssertUnwindSafe(|| differential::find_anomaly(&careless, seed, 400).is_some());
        std::panic::catch_unwind(search).unwrap_or(true)
    };
    (0..seeds).any(shows)
}

/// Nodes are validated like rows; neither stamps nor words of absent parts serve for anything.
#[test]
fn versioned_nodes_need_the_validation_and_nothing_else() {
    for step in [Step::CompareNodes, Step::RaiseGaps, Step::AdmitKeys] {
        assert!(!is_needed_of_versions(step, 30), "{step:?} serves for something");
    }
    let needed =
        [Step::CompareVersions, Step::RaiseVersions, Step::RefuseReadLater, Step::NodesOfMisses, Step::NodesOfRanges];
    for step in needed {
        // Some 6 % of them show that a later reader is not asked for: snapshots that follow their thread let the horizon pass what is open.
        assert!(is_needed_of_versions(step, 300), "{step:?}");
    }
}

#[test]
fn versioned_absent_key_in_a_hash_table() {
    let _careless = leave_out(Step::NodesOfMisses);
    assert!(
        phantoms::commits_absent_key_in_a_hash_table(&still_multi_version().erased()),
        "it is refused for another reason"
    );
}

/// Clients who pause between their operations while epochs go by, who are overtaken soon, and whose garbage is freed at once.
fn pausing() -> Setup<AnyProtocol> {
    let options = Options {
        collection_interval: Duration::ZERO,
        pruning_after: Duration::ZERO,
        overtaking_after: Duration::from_micros(1),
        ..Options::default()
    };
    Setup::<Cicada>::new(options, |database| database.tick()).erased()
}

/// What was not there when an epoch was left is looked for again, and histories tell when it is not.
#[test]
fn clients_that_pause_need_a_second_look() {
    let setup = pausing();
    let shows = |seed: u64| polychron_check::history::find_anomaly(&setup, seed, 240);
    let found = (0..scaled(12, 2) as u64).find_map(shows);
    assert!(found.is_none(), "{found:?}");
    for step in [Step::MissAgain, Step::CountAgain] {
        let _careless = leave_out(step);
        let is_found = |seed| {
            let search = std::panic::AssertUnwindSafe(|| shows(seed).is_some());
            std::panic::catch_unwind(search).unwrap_or(true)
        };
        assert!((0..400).any(is_found), "{step:?} serves for nothing");
    }
}
