//! White-box tests; behaviour is tested in the crate `check`.

use super::record::Tid;

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
fn an_epochs_ids_run_out_without_reaching_into_the_next() {
    let (mut last, mut drawn) = (Tid::ZERO, 0);
    while let Some(next) = Tid::after(last, 7, Tid::MAX_WORKERS - 1) {
        assert!(next > last && next.epoch() == 7);
        (last, drawn) = (next, drawn + 1);
    }
    assert_eq!(drawn, (1 << 16) - 1);
    assert_eq!(Tid::after(last, 8, 0).unwrap().epoch(), 8);
}
