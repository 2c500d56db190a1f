//! What commits hand to the log, on each protocol that has a journal: replayed, it makes the rows that are there.

use crate::setups;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polychron_check::Setup;
use polychron_check::journal::{
    Recorder, answer_too_early, definitions_are_told, differs_in_turns, differs_on_threads, evolutions_are_told,
    is_seen_before_sealed, is_seen_before_sealed_within, restored_tables_work,
};
use polychron_compared::hekaton::Hekaton;
use polychron_compared::key_value::KeyValue;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_engine::any::AnyProtocol;
use polychron_engine::mutations::leave_out;
use polychron_engine::redo::{self, Journal};
use polychron_engine::{Common, Error, Protocol};
use polychron_protocols::bohm::Unknown;
use polychron_protocols::hyper::{BeforeImages, Hyper};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::serial::Serial;

use crate::setups::by_epochs;

fn serial() -> Setup<Serial> {
    Setup::new(Default::default(), |_| ()).alone()
}

/// How many histories of each kind are tried: 24, or `POLYCHRON_JOURNAL_HISTORIES`; from `POLYCHRON_FIRST_SEED` on.
fn seeds() -> std::ops::Range<u64> {
    let wanted = |name, usual| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual);
    let first = wanted("POLYCHRON_FIRST_SEED", 0);
    first..first + wanted("POLYCHRON_JOURNAL_HISTORIES", 24)
}

fn replays_in_turns(setup: &Setup<AnyProtocol>) {
    for seed in seeds() {
        let difference = differs_in_turns((setup, &serial()), seed, 12);
        assert_eq!(difference, None, "{}, seed {seed}", setup.name);
    }
}

fn replays_on_threads(setup: &Setup<AnyProtocol>) {
    for seed in seeds() {
        let difference = differs_on_threads((setup, &serial()), seed, if seed % 3 == 0 { 5 } else { 0 });
        assert_eq!(difference, None, "{}, seed {seed}", setup.name);
    }
}

/// Whether histories show that a step is left out.
fn finds(setup: &Setup<AnyProtocol>, step: redo::Step) -> bool {
    let _careless = leave_out(step);
    (0..20).any(|seed| differs_in_turns((setup, &serial()), seed, 12).is_some())
}

macro_rules! replays {
    ($($name:ident: $setup:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn in_turns() {
                replays_in_turns(&$setup.erased());
            }

            #[test]
            fn on_threads() {
                replays_on_threads(&$setup.erased());
            }

            #[test]
            fn definitions() {
                (0..4).for_each(|seed| definitions_are_told(&$setup.erased(), seed));
                restored_tables_work(&$setup.erased());
                evolutions_are_told(&$setup.erased());
            }

            #[test]
            fn needs_patches() {
                assert!(finds(&$setup.erased(), redo::Step::StagePatches));
            }

            #[test]
            fn needs_whole_patches() {
                assert!(finds(&$setup.erased(), redo::Step::WholePatches));
            }

            #[test]
            fn needs_discarding() {
                assert!(finds(&$setup.erased(), redo::Step::Discard));
            }

            #[test]
            fn needs_orders() {
                assert!(finds(&$setup.erased(), redo::Step::OrderSeals));
            }

            #[test]
            fn needs_ends() {
                // HyPer tells the last commit time, which it makes known behind the seal.
                let setup = $setup.erased();
                let is_clock = setup.name.contains("hyper");
                assert!(finds(&setup, if is_clock { redo::Step::SealFirst } else { redo::Step::AwaitSealing }));
            }

            #[test]
            fn answers_wait() {
                assert_eq!(answer_too_early(&$setup.erased()), None);
                let _careless = leave_out(redo::Step::AwaitReads);
                assert!(answer_too_early(&$setup.erased()).is_some());
            }
        }
    )*};
}

replays! {
    serial: super::serial();
    locking: setups::locking();
    no_wait: setups::locking().named("locking-no-wait");
    wound_wait: setups::locking().named("locking-wound-wait");
    hyper: by_epochs::<Hyper>();
    hyper_snapshot: by_epochs::<Hyper>().named("hyper-snapshot");
    maflingo: setups::maflingo();
    lazy_occ: setups::lazy_occ();
    lazy_2pl: setups::lazy_2pl();
    lazy_hyper: by_epochs::<Lazy<Hyper>>();
    bohm: setups::bohm();
    cicada: setups::still_cicada();
    cicada_multi_version: setups::still_multi_version();
    lazy_cicada: setups::lazy_cicada();
}

/// The same with options that change what is staged, or where.
#[test]
fn other_options() {
    let mut whole_images = by_epochs::<Hyper>();
    whole_images.options.before_images = BeforeImages::Records;
    replays_in_turns(&whole_images.erased());
    let mut at_once = setups::bohm();
    at_once.options.unknown = Unknown::InPlace;
    replays_in_turns(&at_once.clone().erased());
    replays_on_threads(&at_once.erased());
    let mut own_threads = setups::bohm();
    (own_threads.options.concurrency_control_threads, own_threads.options.execution_threads) = (1, 2);
    replays_on_threads(&own_threads.erased());
    replays_on_threads(&setups::maflingo().named("global-tid").erased());
}

/// Changes are sealed before another transaction can see them.
#[test]
fn sealed_before_seen() {
    let of_one_thread: [(&str, Setup<AnyProtocol>); 7] = [
        ("serial", serial().erased()),
        ("locking", setups::locking().erased()),
        ("hyper", by_epochs::<Hyper>().erased()),
        ("maflingo", setups::maflingo().erased()),
        ("lazy-occ", setups::lazy_occ().erased()),
        ("lazy-2pl", setups::lazy_2pl().erased()),
        ("lazy-hyper", by_epochs::<Lazy<Hyper>>().erased()),
    ];
    for (name, setup) in of_one_thread {
        assert!(!is_seen_before_sealed(&setup), "{name}");
        let _careless = leave_out(redo::Step::SealFirst);
        assert!(is_seen_before_sealed(&setup), "{name}");
    }
}

/// The same where a reader waits for the writer, and is another thread.
#[test]
fn sealed_before_those_go_on_who_wait() {
    fn seals_first<P: Protocol>(setup: &Setup<P>) {
        assert!(!is_seen_before_sealed_within(setup, Duration::from_millis(50)), "{}", setup.name);
        let _careless = leave_out(redo::Step::SealFirst);
        assert!(is_seen_before_sealed_within(setup, Duration::from_secs(60)), "{}", setup.name);
    }
    seals_first(&setups::bohm());
    seals_first(&setups::still_cicada());
    seals_first(&setups::lazy_cicada());
}

/// Without a step of a catalog's changes the log and the tables differ.
#[test]
fn definitions_need_their_steps() {
    for step in [redo::Step::DefineFirst, redo::Step::DefineFilled] {
        let _careless = leave_out(step);
        let setup = setups::maflingo().erased();
        let told = || (0..4).for_each(|seed| definitions_are_told(&setup, seed));
        assert!(catch_unwind(AssertUnwindSafe(told)).is_err(), "{step:?}");
    }
}

/// A protocol that hands its changes to no log does not open with one.
#[test]
fn protocols_without_a_journal_refuse() {
    fn refuses<P: Protocol>() -> bool {
        let common = Common { journal: Journal::new(Arc::new(Recorder::patient())), ..Common::default() };
        matches!(P::open(P::Options::default(), common), Err(Error::Unsupported { .. }))
    }
    assert!(refuses::<Hekaton>() && refuses::<KeyValue>() && refuses::<PartitionedStore>());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let refused = polychron::Database::builder().small().with::<KeyValue>().open(&path);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    assert!(!path.exists());
    assert!(!refuses::<Serial>());
}
