//! Recorded histories of every protocol: those that promise a serial order have one, and the others are found out.

use crate::setups;
use polychron_check::Setup;
use polychron_check::checker::{Aborts, Anomaly, Explanation, Verdict, examine};
use polychron_check::conformance::{histories, predicates};
use polychron_check::history::{Outcome, Round, find_anomaly, find_skew, run_round};
use polychron_compared::hekaton::{self, Hekaton};
use polychron_compared::key_value::KeyValue;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_engine::any::AnyProtocol;
use polychron_engine::{Common, Protocol};
use polychron_protocols::hyper::{self, Hyper};
use polychron_sync::atomic::AtomicBool;

fn partitioned_store() -> Setup<PartitionedStore> {
    Setup::new(Default::default(), |_| ()).alone()
}

#[test]
fn partitioned_store_in_turns() {
    histories::in_turns(&partitioned_store().erased());
}

#[test]
fn partitioned_store_on_threads() {
    histories::on_threads(&partitioned_store().erased());
}

/// What BOHM discards to find out what a procedure writes is no abort, and counted as often as it is recorded.
#[test]
fn runs_that_find_out_what_to_write_are_no_aborts() {
    let bohm = polychron::any_protocol("bohm", &[]).expect("it is listed");
    let database = AnyProtocol::open(bohm, Common::default()).expect("the options are sound");
    let round = Round::new(5, 1, 200);
    let history = run_round(&database, &round, &AtomicBool::new(false)).expect("the round runs");
    let found_out = history.count(Outcome::Reconnaissance) as u64;
    assert!(found_out > 0, "some procedures do not say what they write");
    assert_eq!(database.statistics().reconnaissance, found_out);
    let (verdict, aborts) = examine(&history, true);
    assert!(matches!(verdict, Verdict::Serializable(_)));
    assert_eq!(aborts, Some(Aborts::default()), "one thread meets nobody");
}

/// Anomalies that one of many seeds shows.
fn anomalies(setup: &Setup<AnyProtocol>, seeds: u64) -> Vec<Explanation> {
    (0..seeds).filter_map(|seed| find_anomaly(setup, seed, 240)).collect()
}

#[test]
fn a_store_without_transactions_is_found_out() {
    let found = anomalies(&Setup::<KeyValue>::new(Default::default(), |_| ()).erased(), 10);
    assert_eq!(found.len(), 10, "every seed shows it");
}

/// Maflingo without the check of its node set.
#[test]
fn phantoms_are_found() {
    let _careless = polychron_engine::mutations::leave_out(polychron_protocols::maflingo::Step::CompareNodes);
    let setup = setups::maflingo().erased();
    assert!((0..100).any(|seed| find_anomaly(&setup, seed, 240).is_some_and(|it| it.anomaly == Anomaly::G2)));
}

/// Condition locks that no client looks at, conditions that are not held, and conditions that are not looked at again.
#[test]
fn conditions_that_change_are_found() {
    use polychron_protocols::{lazy, locking};
    fn shows<P: polychron_engine::Protocol<Worker: polychron_engine::Interactive>>(setup: &Setup<P>) -> bool {
        let is_of_a_condition = |it: Explanation| it.story.iter().any(|line| line.contains("was told that"));
        (0..20).any(|seed| find_anomaly(setup, seed, 240).is_some_and(is_of_a_condition))
    }
    for step in [locking::Step::RespectConditions, locking::Step::HoldConditions] {
        let _careless = polychron_engine::mutations::leave_out(step);
        assert!(shows(&setups::lazy_2pl()), "{step:?}");
    }
    let _careless = polychron_engine::mutations::leave_out(lazy::Step::CheckConditions);
    assert!(shows(&setups::lazy_occ()));
}

/// A transaction fails because of a row that is not there, after it observed what is no longer so.
#[test]
fn failures_that_nothing_explains_are_found() {
    let _careless = polychron_engine::mutations::leave_out(polychron_protocols::lazy::Step::CheckBeforeFailing);
    let setup = setups::lazy_occ().erased();
    let is_of_a_failure = |it: Explanation| it.story.iter().any(|line| line.contains("(rolled back)"));
    assert!((0..300).any(|seed| find_anomaly(&setup, seed, 240).is_some_and(is_of_a_failure)));
}

/// A row that was deleted and is locked for what is going to be written comes back.
#[test]
fn deleted_rows_that_come_back_are_found() {
    let setup = setups::by_epochs::<polychron_protocols::lazy::Lazy<Hyper>>().erased();
    let found = anomalies(&setup, 10);
    assert!(found.is_empty(), "{found:?}");
    let _careless = polychron_engine::mutations::leave_out(hyper::Step::PassOverDeleted);
    assert!((0..100).any(|seed| find_anomaly(&setup, seed, 240).is_some()));
}

/// Questions that HyPer's predicates do not know whole, by the oracle and in recorded histories.
#[test]
fn predicates_that_miss_something_are_found() {
    let setup = setups::by_epochs::<Hyper>().erased();
    for step in [hyper::Step::LogFailures, hyper::Step::LogLooks, hyper::Step::LogRestrictions] {
        let _careless = polychron_engine::mutations::leave_out(step);
        let shows = |seed| predicates::find_stale_answer(&setup, seed, 400).0.is_some();
        assert!((0..40).any(shows), "the oracle misses {step:?}");
    }
    for step in [hyper::Step::LogLooks, hyper::Step::LogRestrictions] {
        let _careless = polychron_engine::mutations::leave_out(step);
        assert!((0..200).any(|seed| find_anomaly(&setup, seed, 240).is_some()), "histories miss {step:?}");
    }
}

/// A row whose update was refused changes, or the one that stood in the way goes, and who was told of the refusal goes on.
#[test]
fn refusals_that_tell_of_a_row_that_changes_are_found() {
    let setup = setups::by_epochs::<Hyper>().erased();
    for step in [hyper::Step::LogRefused, hyper::Step::LogDuplicates] {
        let _careless = polychron_engine::mutations::leave_out(step);
        assert!((0..200).any(|seed| find_anomaly(&setup, seed, 240).is_some()), "histories miss {step:?}");
    }
}

fn by_clock<P: Protocol>() -> Setup<P> {
    Setup::new(P::Options::default(), |database| _ = database.memory().epochs().advance())
}

fn snapshot_isolation() -> Setup<Hekaton> {
    by_clock().named("snapshot-isolation")
}

fn hyper_snapshot() -> Setup<Hyper> {
    by_clock().named("hyper-snapshot")
}

/// Snapshot isolation shows write skew and phantoms, and nothing that it does not allow.
fn shows_write_skew_alone(setup: &Setup<AnyProtocol>) {
    let skews: Vec<_> = (0..6).filter_map(|seed| find_skew(setup, seed, 240)).collect();
    assert!(skews.iter().all(|it| matches!(it.anomaly, Anomaly::G2Item | Anomaly::G2)), "{skews:?}");
    assert!(skews.iter().any(|it| it.anomaly == Anomaly::G2Item), "{skews:?}");
    let found = anomalies(setup, 6);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn snapshot_isolation_shows_write_skew_alone() {
    shows_write_skew_alone(&snapshot_isolation().erased());
}

#[test]
fn hyper_snapshot_shows_write_skew_alone() {
    shows_write_skew_alone(&hyper_snapshot().erased());
}

/// The same where the later of two writers goes on: updates are lost, in one form or another.
#[test]
fn rows_that_are_overwritten_under_snapshot_isolation_are_found() {
    let _careless = polychron_engine::mutations::leave_out(hekaton::Step::RefuseOverwritten);
    let setup = snapshot_isolation().erased();
    assert!((0..6).any(|seed| find_anomaly(&setup, seed, 240).is_some_and(|it| it.anomaly < Anomaly::G2Item)));
}
