//! Every interleaving of two threads on a record, under loom: readers against writers in place, and against the record's end.

use polychron_memory::Guard;
use polychron_sync::model::explore;

use polychron_memory::model::beside;

use super::record::Record;

fn made(guard: &Guard<'_>) -> Record {
    Record::new(&[1, 1], guard).expect("memory is there")
}

/// Adds one to every word of a row of two words.
fn add(record: Record) -> bool {
    let Some(latched) = record.latch() else { return false };
    let mut row = [0; 2];
    latched.copy_to(&mut row);
    latched.write(0, &row.map(|word| word + 1), 2);
    true
}

fn read(record: Record) -> Option<[u64; 2]> {
    let mut row = [0; 2];
    record.read(0..2, &mut row).map(|_| row)
}

#[test]
fn readers_see_whole_rows() {
    explore(2, || {
        beside(
            made,
            |record, _| assert!(add(record) && add(record)),
            |record, _| {
                let row = read(record).expect("nobody ends the record");
                assert_eq!(row[0], row[1]);
            },
            |record, _| assert_eq!(read(record), Some([3, 3])),
        );
    });
}

#[test]
fn no_change_is_lost() {
    explore(3, || {
        beside(
            made,
            |record, _| assert!(add(record)),
            |record, _| assert!(add(record)),
            |record, _| assert_eq!(read(record), Some([3, 3])),
        );
    });
}

/// A change comes before the record's end, or does not happen; readers see the row or the end.
#[test]
fn the_end_is_final() {
    explore(2, || {
        beside(
            made,
            |record, guard| record.latch().expect("nobody else ends it").unlink(guard),
            |record, _| {
                let changed = add(record);
                assert!(read(record).is_none_or(|row| row == [1 + u64::from(changed); 2]));
            },
            |record, _| assert!(!add(record) && read(record).is_none()),
        );
    });
}
