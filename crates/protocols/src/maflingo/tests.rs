//! White-box tests; behaviour is tested in the crate `check`.

use polychron_memory::{Memory, Options};

use super::record::{Record, Tid};

#[test]
fn ids_are_the_smallest_that_exceed_what_was_seen() {
    let first = Tid::after(Tid::ZERO, 5, 3).unwrap();
    assert_eq!(first.epoch(), 5);
    let next = Tid::after(first, 5, 2).unwrap();
    assert!(next > first, "an id exceeds those it follows, whatever its worker's number");
    assert!(Tid::after(first, 6, 0).unwrap() > next, "a later epoch exceeds every id of an earlier one");
    assert_ne!(Tid::after(Tid::ZERO, 5, 2), Some(first), "two workers never draw the same id");
}

#[test]
#[cfg_attr(miri, ignore = "counts further than an interpreter can")]
fn an_epochs_ids_run_out_without_reaching_into_the_next() {
    let (mut last, mut drawn) = (Tid::ZERO, 0);
    while let Some(next) = Tid::after(last, 7, Tid::MAX_WORKERS - 1) {
        assert!(next > last && next.epoch() == 7);
        (last, drawn) = (next, drawn + 1);
    }
    assert_eq!(drawn, (1 << 16) - 1);
    assert_eq!(Tid::after(last, 8, 0).unwrap().epoch(), 8);
}

/// Reclamation may hold a latch for as long as it takes a processor to come back to it: who validates passes, and who
/// wants to latch waits, however long that is.
#[test]
fn a_latch_of_the_background_makes_nobody_give_up() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let record = Record::latched(0, &[7], &guard).unwrap();
    record.publish(Tid::after(Tid::ZERO, 1, 0).unwrap(), true);
    let state = record.latch_in_background().unwrap();
    assert!(!state.latched_by_other(0) && !record.state().latched_by_other(1));
    std::thread::scope(|scope| {
        let (started, start) = std::sync::mpsc::channel();
        let writer = scope.spawn(move || {
            started.send(()).unwrap();
            record.latch(1).is_some()
        });
        start.recv().unwrap();
        for _ in 0..polychron_base::sizes::scaled(2000, 50) {
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        record.unlatch();
        assert!(writer.join().unwrap(), "a writer gave up because of the background");
    });
    assert!(record.state().latched_by_other(0) && !record.state().latched_by_other(1));
    assert!(record.latch_in_background().is_none(), "the background does not wait for a transaction");
}
