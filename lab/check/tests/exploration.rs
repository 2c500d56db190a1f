//! Whole transactions under schedules, and under the machine's own: every protocol, one line each.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --features polychron-sync/shuttle -p polychron-check --test exploration`; `POLYCHRON_EXPLORE_FIRST`,
//! `POLYCHRON_EXPLORE_SEEDS` and `POLYCHRON_EXPLORE_SCHEDULES` say from which seed, how many, and how often each.

mod setups;

use std::time::Duration;

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::Setup;
use polychron_compared::hekaton::{self, Hekaton};
use polychron_compared::partitioned_store::PartitionedStore;
#[cfg(shuttle)]
use polychron_engine::any::AnyProtocol;
use polychron_protocols::bohm::{self, Bohm};
use polychron_protocols::cicada::{self, Cicada};
use polychron_protocols::hyper::{self, Hyper};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::locking::Locking;
use polychron_protocols::serial::Serial;

use setups::{lazy_2pl, lazy_cicada, lazy_occ, maflingo};

/// Cicada whose horizons move, and whose garbage goes, so often that it happens in the middle of such small histories.
fn cicada(change: impl FnOnce(&mut cicada::Options)) -> Setup<Cicada> {
    let often = Duration::from_micros(1);
    let mut options = cicada::Options { collection_interval: often, pruning_after: often, ..Default::default() };
    change(&mut options);
    Setup::new(options, |database| database.tick())
}

/// Cicada that finds conflicts in its validation only.
fn without_early_looks() -> Setup<Cicada> {
    cicada(|options| {
        (options.ablation.check_early, options.ablation.write_latest_only, options.ablation.wait_for_pending) =
            (false, false, false);
    })
}

fn partitioned() -> Setup<PartitionedStore> {
    let options = polychron_compared::partitioned_store::Options { partitions: 4 };
    Setup::new(options, |database| {
        polychron_engine::Protocol::memory(&**database).epochs().advance();
    })
}

/// Hekaton; snapshot isolation has no serial order to be found.
fn hekaton() -> Setup<Hekaton> {
    Setup::new(hekaton::Options::default(), |database| {
        polychron_engine::Protocol::memory(&**database).epochs().advance();
    })
}

/// HyPer's MVCC at its levels that have a serial order.
fn hyper(backend: hyper::Backend) -> Setup<Hyper> {
    Setup::new(hyper::Options { backend, ..Default::default() }, |database| {
        polychron_engine::Protocol::memory(&**database).epochs().advance();
    })
}

fn locked() -> Setup<Locking> {
    Setup::new(Default::default(), |database| {
        polychron_engine::Protocol::memory(&**database).epochs().advance();
    })
}

fn serial() -> Setup<Serial> {
    Setup::new(polychron_protocols::serial::Options::default(), |_| ()).alone()
}

fn bohm(change: impl FnOnce(&mut bohm::Options)) -> Setup<Bohm> {
    let mut options = bohm::Options { batch_size: 2, partitions: 2, ..Default::default() };
    change(&mut options);
    Setup::new(options, |database| database.tick())
}

fn bohm_in_place() -> Setup<Bohm> {
    bohm(|options| options.unknown = bohm::Unknown::InPlace)
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

macro_rules! explore {
    ($($name:ident: $setup:expr;)*) => {$(
        #[test]
        fn $name() {
            let (first, seeds) = (number("POLYCHRON_EXPLORE_FIRST", 0), number("POLYCHRON_EXPLORE_SEEDS", 40));
            #[cfg(shuttle)]
            {
                let schedules = number("POLYCHRON_EXPLORE_SCHEDULES", 100) as usize;
                let explored = polychron_check::exploration::explore(&$setup.erased(), first..first + seeds, schedules);
                eprintln!("{}: {explored} schedules of {seeds} plans", stringify!($name));
            }
            #[cfg(not(shuttle))]
            polychron_check::exploration::run_freely(&$setup.erased(), first..first + 10 * seeds).unwrap();
        }
    )*};
}

explore! {
    cicada_has_a_serial_order: cicada(|_| ());
    cicada_with_a_counter_has_a_serial_order: cicada(|options| options.central_clock = true);
    cicada_without_its_early_looks_has_a_serial_order: without_early_looks();
    multi_version_has_a_serial_order: cicada(|options| options.indexes = cicada::Indexes::MultiVersion);
    bohm_has_a_serial_order: bohm(|_| ());
    bohm_in_place_has_a_serial_order: bohm_in_place();
    bohm_with_sorted_keys_has_a_serial_order: bohm(|options| options.preprocess = true);
    bohm_with_its_own_threads_has_a_serial_order: bohm(|options| {
        (options.concurrency_control_threads, options.execution_threads) = (2, 2);
    });
    maflingo_has_a_serial_order: maflingo();
    global_tid_has_a_serial_order: maflingo().named("global-tid");
    hekaton_has_a_serial_order: hekaton();
    hyper_has_a_serial_order: hyper(hyper::Backend::Rows);
    hyper_by_record_over_columns_has_a_serial_order: hyper(hyper::Backend::Columns).named("hyper-record-level");
    locking_has_a_serial_order: locked();
    locking_no_wait_has_a_serial_order: locked().named("locking-no-wait");
    locking_wound_wait_has_a_serial_order: locked().named("locking-wound-wait");
    lazy_occ_has_a_serial_order: lazy_occ();
    lazy_2pl_has_a_serial_order: lazy_2pl();
    lazy_cicada_has_a_serial_order: lazy_cicada();
    lazy_hyper_has_a_serial_order: setups::by_epochs::<Lazy<Hyper>>();
    partitioned_store_has_a_serial_order: partitioned();
    serial_has_a_serial_order: serial();
}

/// The search is not blind: with a step left out it finds what goes wrong. All threads of a schedule run on this one, so the step
/// is left out in each.
#[cfg(shuttle)]
fn finds(setup: &Setup<AnyProtocol>, step: impl polychron_engine::mutations::Named) {
    let _careless = polychron_engine::mutations::leave_out(step);
    let search = std::panic::AssertUnwindSafe(|| polychron_check::exploration::explore(setup, 0..200, 100));
    let found = std::panic::catch_unwind(search);
    let story = found.expect_err("the search is blind");
    let story = story.downcast_ref::<String>().expect("a text");
    let is_anomaly =
        ["no serial order explains this", "one snapshot, two states"].iter().any(|way| story.contains(way));
    assert!(is_anomaly, "{story}");
}

#[cfg(shuttle)]
macro_rules! find {
    ($($name:ident: $setup:expr, $step:expr;)*) => {$(
        #[test]
        fn $name() {
            finds(&$setup.erased(), $step);
        }
    )*};
}

#[cfg(shuttle)]
find! {
    without_the_node_set_there_is_none: maflingo(), polychron_protocols::maflingo::Step::CompareNodes;
    without_the_read_timestamps_there_is_none: cicada(|_| ()), cicada::Step::RaiseVersions;
    without_comparing_versions_there_is_none: hekaton(), hekaton::Step::CompareVersions;
    without_waiting_for_pending_versions_there_is_none: without_early_looks(), cicada::Step::AwaitPendingReads;
    without_waiting_for_placeholders_there_is_none: bohm(|_| ()), bohm::Step::AwaitPlaceholder;
    without_waiting_for_fronts_there_is_none: bohm(|_| ()), bohm::Step::AwaitPrefixes;
    without_waiting_for_intents_there_is_none: bohm(|_| ()), bohm::Step::AwaitIntents;
    without_waiting_for_unknown_writers_there_is_none: bohm_in_place(), bohm::Step::AwaitEverything;
    without_passing_rows_on_there_is_none: bohm(|_| ()), bohm::Step::PassOn;
    without_discarding_there_is_none: bohm(|_| ()), bohm::Step::DiscardFailed;
    without_locking_reads_there_is_none: locked(), polychron_protocols::locking::Step::LockReads;
    without_holding_locks_there_is_none: locked().named("locking-no-wait"), polychron_protocols::locking::Step::HoldLocks;
    without_locking_ranges_there_is_none: locked().named("locking-no-wait"), polychron_protocols::locking::Step::LockRanges;
    without_looking_for_conditions_there_is_none: lazy_2pl(), polychron_protocols::locking::Step::RespectConditions;
    without_checking_conditions_there_is_none: lazy_occ(), polychron_protocols::lazy::Step::CheckConditions;
    without_comparing_predicates_there_is_none: hyper(hyper::Backend::Rows), hyper::Step::ComparePoints;
    without_widening_intervals_there_is_none: hyper(hyper::Backend::Columns), hyper::Step::CoverVersions;
    without_passing_over_deleted_rows_there_is_none: setups::by_epochs::<Lazy<Hyper>>(), hyper::Step::PassOverDeleted;
}

/// The plan that found it: a run that guessed waited for a version that was gone, because an earlier transaction had put another one
/// there by then.
#[cfg(shuttle)]
#[test]
fn a_guess_sees_what_changes_below_it() {
    assert_eq!(polychron_check::exploration::explore(&bohm(|_| ()).erased(), 2097..2098, 100), 100);
}
