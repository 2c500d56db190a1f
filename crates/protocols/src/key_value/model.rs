//! Every interleaving of two threads on a record, under loom: readers against writers in place, and against the record's end.

use polychron_sync::model::explore;

use crate::model::{spawn, with_places};

use super::record::Record;

/// Adds one to every word of a row of two words.
fn add(record: Record) -> bool {
    let Some(latched) = record.latch() else { return false };
    let mut row = [0; 2];
    latched.copy_to(&mut row);
    latched.write(0, &row.map(|word| word + 1), 2);
    true
}

#[test]
fn readers_see_whole_rows() {
    explore(3, || {
        with_places(|guard, place| {
            let record = Record::new(&[1, 1], guard).expect("memory is there");
            let writer = spawn(place, move |_| assert!(add(record) && add(record)));
            let mut row = [0; 2];
            assert_eq!(record.read(0..2, &mut row), Some(2));
            assert_eq!(row[0], row[1]);
            writer.join().expect("the writer does not panic");
        });
    });
}

#[test]
fn no_change_is_lost() {
    explore(3, || {
        with_places(|guard, place| {
            let record = Record::new(&[1, 1], guard).expect("memory is there");
            let other = spawn(place, move |_| assert!(add(record)));
            assert!(add(record));
            other.join().expect("the other one does not panic");
            let mut row = [0; 2];
            record.read(0..2, &mut row);
            assert_eq!(row, [3, 3]);
        });
    });
}

/// A change comes before the record's end, or does not happen; readers see the row or the end.
#[test]
fn the_end_is_final() {
    explore(2, || {
        with_places(|guard, place| {
            let record = Record::new(&[1, 1], guard).expect("memory is there");
            let other = spawn(place, move |guard| {
                record.latch().expect("nobody else ends it").unlink(guard);
            });
            let changed = add(record);
            let mut row = [0; 2];
            if record.read(0..2, &mut row).is_some() {
                assert_eq!(row, [1 + u64::from(changed); 2]);
            }
            other.join().expect("the other one does not panic");
            assert!(!add(record) && record.read(0..2, &mut row).is_none());
        });
    });
}
