//! Every interleaving of two threads on a record's data version and transaction id, under loom: readers, also of snapshots,
//! against writers in place, latches against each other, and tombstones that are claimed and unlinked.
//!
//! That of two transactions which write what the other reads one sees the other's latch rests on the one order of
//! sequentially consistent operations, which loom does not model; shuttle explores it (`lab/check`).

use polychron_memory::Guard;
use polychron_schema::RowBuffer;
use polychron_sync::model::explore;
use polychron_sync::thread;

use polychron_memory::model;

use super::record::{Address, Claim, Record, Tid};

/// As the shared one, of a record that stays until all is over.
fn beside(
    make: impl for<'g> FnOnce(&'g Guard<'_>) -> Record<'g>,
    other: impl for<'g> FnOnce(Record<'g>, &'g Guard<'_>) + 'static,
    own: impl for<'g> FnOnce(Record<'g>, &'g Guard<'_>) + 'static,
    after: impl for<'g> FnOnce(Record<'g>, &'g Guard<'_>),
) {
    fn under<'g>(address: Address, guard: &'g Guard<'_>) -> Record<'g> {
        // SAFETY: nothing is freed.
        unsafe { address.under(guard) }
    }
    model::beside(
        |guard| make(guard).address(),
        move |record, guard| other(under(record, guard), guard),
        move |record, guard| own(under(record, guard), guard),
        move |record, guard| after(under(record, guard), guard),
    );
}

/// The id of worker 1's transaction in an epoch.
fn tid(epoch: u64) -> Tid {
    Tid::after(Tid::ZERO, epoch, 1).expect("the epoch is fresh")
}

/// A record that was committed in epoch 1 with this row.
fn committed<'g>(row: &[u64], guard: &'g Guard<'_>) -> Record<'g> {
    let record = Record::absent(row, guard).expect("memory is there");
    record.publish(tid(1), true);
    record
}

fn latch(record: Record<'_>, worker: usize) {
    while record.latch(worker).is_none() {
        thread::yield_now();
    }
}

/// Writes a row in place, as a commit does.
fn write(record: Record<'_>, row: &[u64], epoch: u64) {
    record.begin_write();
    record.write_words(0, row);
    record.set_length(row.len());
    record.publish(tid(epoch), true);
}

/// What a reader gets is one writer's whole row with that writer's id.
#[test]
fn a_row_and_its_id_belong_together() {
    explore(2, || {
        beside(
            |guard| committed(&[1, 1], guard),
            |record, _| {
                for epoch in 2..4 {
                    latch(record, 0);
                    write(record, &[epoch, epoch], epoch);
                }
            },
            |record, _| {
                let mut row = RowBuffer::new();
                let mut last = Tid::ZERO;
                for _ in 0..2 {
                    let seen = record.read(0..2, &mut row);
                    assert!(seen.present);
                    assert_eq!(row.as_words(), [seen.tid.epoch(); 2]);
                    assert!(seen.tid >= last, "what was read once does not become older");
                    last = seen.tid;
                }
            },
            |record, _| assert_eq!(record.tid(), tid(3)),
        );
    });
}

/// A row that shrinks, vanishes or comes back is seen before or after.
#[test]
fn lengths_and_absence_belong_to_the_row() {
    explore(2, || {
        beside(
            |guard| committed(&[1, 1], guard),
            |record, _| {
                latch(record, 0);
                write(record, &[2], 2);
                latch(record, 0);
                record.begin_write();
                record.publish(tid(3), false);
            },
            |record, _| {
                let mut row = RowBuffer::new();
                let seen = record.read(0..2, &mut row);
                let expected = [(2, true), (1, true), (1, false)][seen.tid.epoch() as usize - 1];
                assert_eq!((row.as_words().len(), seen.present), expected);
                assert!(!seen.present || row.as_words()[0] == seen.tid.epoch());
            },
            |record, _| assert!(record.state().absent()),
        );
    });
}

/// Two owners of the latch follow each other: no update is lost, and the latch alone changes nothing that readers see.
#[test]
fn owners_of_the_latch_follow_each_other() {
    fn add(record: Record<'_>, worker: usize) {
        latch(record, worker);
        let mut row = RowBuffer::new();
        let seen = record.read(0..1, &mut row);
        record.begin_write();
        record.write_words(0, &[row.as_words()[0] + 1]);
        record.publish(Tid::after(seen.tid, 2, worker).expect("the epoch is fresh"), true);
    }
    explore(2, || {
        beside(
            |guard| committed(&[10], guard),
            |record, _| add(record, 0),
            |record, _| add(record, 1),
            |record, _| {
                let mut row = RowBuffer::new();
                record.read(0..1, &mut row);
                assert_eq!(row.as_words(), [12]);
            },
        );
    });
}

/// A snapshot reads the version of its epoch, while a writer saves a copy of it and overwrites it in place.
#[test]
fn snapshots_find_the_version_that_is_being_overwritten() {
    fn read<'g>(record: Record<'g>, epoch: u64, guard: &'g Guard<'_>) -> (u64, u64) {
        let mut row = RowBuffer::new();
        // SAFETY: nothing is freed.
        let older = |record: Record<'g>| record.previous().map(|address| unsafe { address.under(guard) });
        let seen = record.read_version(epoch, 0..1, &mut row, older);
        assert!(seen.present && seen.tid.epoch() <= epoch);
        (seen.tid.epoch(), row.as_words()[0])
    }
    for epoch in [1, 2] {
        explore(1, move || {
            beside(
                |guard| committed(&[1], guard),
                |record, guard| {
                    for epoch in 2..4 {
                        latch(record, 0);
                        let version = record.copy_as_version(guard).expect("memory is there");
                        record.begin_write();
                        record.write_words(0, &[epoch]);
                        record.set_previous(Some(version.address()));
                        record.publish(tid(epoch), true);
                    }
                },
                move |record, guard| {
                    let (written, value) = read(record, epoch, guard);
                    assert_eq!(written, value);
                },
                move |record, guard| assert_eq!(read(record, epoch, guard), (epoch, epoch)),
            );
        });
    }
}

/// A tombstone that is claimed stays; one that is unlinked cannot be claimed.
#[test]
fn a_tombstone_is_claimed_or_unlinked() {
    explore(3, || {
        beside(
            |guard| {
                let record = committed(&[1], guard);
                latch(record, 1);
                record.begin_write();
                record.publish(tid(2), false);
                record
            },
            |record, _| {
                if let Some(state) = record.latch(0) {
                    assert!(state.absent() && !state.unlinked());
                    if state.claimed() { record.unlatch() } else { record.unlink() }
                }
            },
            |record, _| {
                let claim = record.claim();
                let after = record.state();
                assert!(claim != Claim::Held || (after.claimed() && !after.unlinked()));
                assert!(claim != Claim::Gone || after.unlinked());
            },
            |record, _| assert!(!(record.state().claimed() && record.state().unlinked())),
        );
    });
}

/// An insertion that is given up is unlinked, or left to a thread that has claimed it and writes it.
#[test]
fn an_insertion_is_taken_back_or_claimed() {
    explore(3, || {
        beside(
            |guard| Record::absent(&[1], guard).expect("memory is there"),
            |record, _| match record.latch_in_background() {
                Some(state) if !state.claimed() && record.tid() == Tid::ZERO => record.unlink(),
                state => {
                    if state.is_some() {
                        record.unlatch();
                    }
                    record.give_up();
                }
            },
            |record, _| {
                if record.claim() == Claim::Held
                    && let Some(state) = record.latch(0)
                {
                    assert!(!state.unlinked(), "what is claimed stays");
                    write(record, &[2], 2);
                }
            },
            |record, _| {
                let state = record.state();
                assert!(!state.unlinked() || record.tid() == Tid::ZERO);
                assert!(state.unlinked() || state.given_up() || record.tid() == tid(2));
            },
        );
    });
}

/// A reader of a record that is superseded by a larger one sees its row, and in time that it moved.
#[test]
fn a_record_that_moves_is_marked() {
    explore(3, || {
        beside(
            |guard| committed(&[1], guard),
            |record, guard| {
                latch(record, 0);
                let larger = Record::latched_empty(0, 2, guard).expect("memory is there");
                write(larger, &[2, 2], 2);
                record.move_away();
            },
            |record, _| {
                let mut row = RowBuffer::new();
                let seen = record.read(0..1, &mut row);
                assert_eq!((row.as_words()[0], seen.tid), (1, tid(1)));
                assert!(record.state().moved() || !seen.moved, "moved is never taken back");
            },
            |record, _| assert!(record.state().moved() && record.state().unlinked()),
        );
    });
}
