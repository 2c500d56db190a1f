//! The log has what was committed, and each step before it is needed.

use polychron_check::Setup;
use polychron_check::journal::{
    answer_too_early, definitions_are_told, differs_in_turns, differs_on_threads, evolutions_are_told,
    is_seen_before_sealed, restored_tables_work,
};
use polychron_engine::any::AnyProtocol;
use polychron_engine::mutations::leave_out;
use polychron_engine::redo::Step;
use polychron_tutorial::{OneLock, Options};

fn one_lock() -> Setup<OneLock> {
    Setup::new(Options::default(), |_| ()).alone()
}

fn erased() -> Setup<AnyProtocol> {
    one_lock().erased()
}

/// What is replayed differs from what is there, in one of so many histories.
fn differs(histories: u64) -> bool {
    (0..histories).any(|seed| differs_in_turns((&erased(), &one_lock()), seed, 12).is_some())
}

#[test]
fn replays() {
    assert!(!differs(24));
    (0..24).for_each(|seed| {
        assert_eq!(differs_on_threads((&erased(), &one_lock()), seed, if seed % 3 == 0 { 5 } else { 0 }), None)
    });
}

#[test]
fn definitions() {
    (0..4).for_each(|seed| definitions_are_told(&erased(), seed));
    restored_tables_work(&erased());
    evolutions_are_told(&erased());
}

#[test]
fn every_step_is_needed() {
    for step in [Step::StagePatches, Step::WholePatches, Step::Discard, Step::OrderSeals, Step::AwaitSealing] {
        let _careless = leave_out(step);
        assert!(differs(20), "{step:?}");
    }
}

#[test]
fn changes_are_sealed_before_they_are_seen() {
    assert!(!is_seen_before_sealed(&erased()));
    let _careless = leave_out(Step::SealFirst);
    assert!(is_seen_before_sealed(&erased()));
}

#[test]
fn answers_wait() {
    assert_eq!(answer_too_early(&erased()), None);
    let _careless = leave_out(Step::AwaitReads);
    assert!(answer_too_early(&erased()).is_some());
}
