//! Every interleaving of two threads on a list of versions, under loom: writers against readers, installations against each other,
//! against collection and against closing; and on the words of absent keys.
//!
//! Validation rests on the one order of sequentially consistent accesses, which loom does not model. So the models put a fence
//! between what a transaction makes known and its look at the others, which loom does model: they show that the
//! order of the steps is enough if their accesses have one order, and not that these accesses have it.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};

use polychron_base::{IndexId, TableId};
use polychron_engine::stores::IndexRef;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicBool, Ordering, fence};
use polychron_sync::model::explore;

use polychron_memory::model::beside;

use super::array::Page;
use super::clocks::Horizon;
use super::gaps::{GapReadTimestamps, KeyPartition, PrefixLengths};
use super::record::{
    Address, Guarded, HEAD_BYTES, Installed, Kind, Link, NewVersion, OfRecord, OfVersion, Reader, Record, Status,
    Unlinked, Version,
};
use super::timestamp::Timestamp;

const PLACE: IndexRef = IndexRef { table: TableId::new(1, 3), index: IndexId(0) };

/// The transactions that have passed their validation.
pub(super) type Passed = Arc<Mutex<Vec<&'static str>>>;

pub(super) fn pass(passed: &Passed, who: &'static str) {
    passed.lock().expect("no thread panics").push(who);
}

pub(super) fn have_passed(passed: &Passed) -> usize {
    passed.lock().expect("no thread panics").len()
}

/// A record of a model, or a version that stays until its end.
#[derive(Clone, Copy)]
pub(super) struct InModel<K>(Address<K>);

pub(super) type Modelled = InModel<OfRecord>;
type ModelledVersion = InModel<OfVersion>;

impl<K: Kind> InModel<K> {
    pub(super) fn of(found: Guarded<'_, K>) -> Self {
        Self(found.address())
    }

    pub(super) fn of_address(address: Address<K>) -> Self {
        Self(address)
    }

    pub(super) fn under<'g>(self, guard: &'g Guard<'_>) -> Guarded<'g, K> {
        // SAFETY: no model gives a record back, or frees such a version.
        unsafe { self.0.under(guard) }
    }
}

/// The transactions that read and write at a timestamp.
pub(super) fn at<'g>(timestamp: u64, guard: &'g Guard<'_>) -> Reader<'g> {
    // SAFETY: no model frees what is visible to its readers.
    unsafe { Reader::at_timestamp(guard, Timestamp(timestamp)) }
}

/// A record without a version.
pub(super) fn empty<'g>(guard: &'g Guard<'_>) -> Record<'g> {
    let bytes = (HEAD_BYTES + 8).next_multiple_of(64);
    let mut page = Page::allocate(1, bytes, guard).expect("memory is there");
    let record = page.make().expect("there is room for one").address();
    Modelled::of_address(record).under(guard)
}

/// A version with its timestamp for its row: the head's, if it is free.
fn version<'g>(record: Record<'g>, wts: u64, guard: &'g Guard<'_>) -> NewVersion<'g> {
    new_version(record, wts, &[wts], true, guard)
}

/// A version of a record of a model.
pub(super) fn new_version<'g>(
    record: Record<'g>,
    wts: u64,
    row: &[u64],
    inlines: bool,
    guard: &'g Guard<'_>,
) -> NewVersion<'g> {
    record.new_version(Timestamp(wts), row, inlines, guard).expect("memory is there")
}

/// Puts a version into a list; `None`: the record is closed.
pub(super) fn install<'g>(
    record: Record<'g>,
    wts: u64,
    mut version: NewVersion<'g>,
    guard: &'g Guard<'_>,
) -> Option<Installed<'g>> {
    loop {
        let position = at(wts, guard).position(record, |_| ControlFlow::<()>::Continue(()));
        let position = position.continue_value().flatten()?;
        match position.install(version) {
            Ok(installed) => return Some(installed),
            Err(again) => version = again,
        }
    }
}

/// Ends a version.
pub(super) fn end(version: Installed<'_>, status: Status) {
    match status {
        Status::Committed => version.commit(),
        Status::Deleted => version.delete(),
        _ => version.abort(),
    }
}

/// Writes a version, and ends it.
fn write<'g>(record: Record<'g>, wts: u64, status: Status, guard: &'g Guard<'_>) -> Option<Version<'g>> {
    let installed = install(record, wts, version(record, wts, guard), guard)?;
    let written = installed.version();
    end(installed, status);
    Some(written)
}

/// A record with versions of these timestamps and statuses, the earliest first.
fn record<'g>(versions: &[(u64, Status)], guard: &'g Guard<'_>) -> Record<'g> {
    let record = empty(guard);
    for &(wts, status) in versions {
        assert!(write(record, wts, status, guard).is_some());
    }
    record
}

/// The timestamps of a record's versions, the latest first.
fn timestamps(record: Modelled, guard: &Guard<'_>) -> Vec<u64> {
    let mut latched = record.under(guard).latch();
    let (mut cursor, mut timestamps) = (latched.cursor(), Vec::new());
    while let Link::To(version) = cursor.link() {
        timestamps.push(version.wts().0);
        cursor.pass();
    }
    timestamps
}

/// What a transaction of that timestamp sees, by the row.
fn seen(record: Modelled, timestamp: u64, guard: &Guard<'_>) -> Option<u64> {
    let version = at(timestamp, guard).search(record.under(guard), None, true).version?;
    let row = version.row().as_words()[0];
    assert_eq!(row, version.wts().0, "the row is another version's");
    Some(row)
}

/// A writer installs, and then looks until when the version below was read.
fn writer(record: Modelled, timestamp: u64, passed: &Passed, guard: &Guard<'_>) {
    let record = record.under(guard);
    let own = install(record, timestamp, version(record, timestamp, guard), guard).expect("nobody closes it");
    fence(Ordering::SeqCst);
    let below = at(timestamp, guard).search(record, Some(own.version()), true).version;
    let read_later = below.is_some_and(|below| below.rts().is_after(Timestamp(timestamp)));
    if !read_later {
        pass(passed, "writer");
    }
    end(own, if read_later { Status::Aborted } else { Status::Committed });
}

/// A reader raises the read timestamp of what it saw, and then looks whether it still sees that.
fn reader(record: Modelled, read: ModelledVersion, timestamp: u64, passed: &Passed, guard: &Guard<'_>) {
    let read = read.under(guard);
    read.raise_rts(Timestamp(timestamp));
    fence(Ordering::SeqCst);
    if at(timestamp, guard).search(record.under(guard), None, true).version == Some(read) {
        pass(passed, "reader");
    }
}

fn only<'g>(record: Record<'g>, guard: &'g Guard<'_>) -> Version<'g> {
    let Link::To(version) = at(0, guard).latest(record) else { panic!("there is a version") };
    version
}

/// A record, and its latest version.
fn with_latest(versions: &[(u64, Status)], guard: &Guard<'_>) -> (Modelled, ModelledVersion) {
    let record = record(versions, guard);
    (Modelled::of(record), ModelledVersion::of(only(record, guard)))
}

/// Of a later reader and an earlier writer of the same record one fails.
#[test]
fn a_later_reader_or_an_earlier_writer_fails() {
    explore(3, || {
        let passed = Passed::default();
        let (by_writer, by_reader) = (Arc::clone(&passed), Arc::clone(&passed));
        beside(
            |guard| with_latest(&[(1, Status::Committed)], guard),
            move |(record, _), guard| writer(record, 5, &by_writer, guard),
            move |(record, read), guard| reader(record, read, 9, &by_reader, guard),
            |_, _| assert!(have_passed(&passed) < 2, "the reader did not see the writer"),
        );
    });
}

/// The same where the later one writes the row as well: it looks at the link below its own version alone.
#[test]
fn a_later_update_or_an_earlier_writer_fails() {
    fn update(record: Modelled, read: ModelledVersion, timestamp: u64, passed: &Passed, guard: &Guard<'_>) {
        let (record, read) = (record.under(guard), read.under(guard));
        let Some(above) = at(timestamp, guard).position_above(record, read) else { return };
        let own = match above.install(version(record, timestamp, guard)) {
            Ok(own) => own,
            Err(new) => return new.discard(guard),
        };
        fence(Ordering::SeqCst);
        read.raise_rts(Timestamp(timestamp));
        fence(Ordering::SeqCst);
        let passes = own.version().leads_to(read.address()) && !read.rts().is_after(Timestamp(timestamp));
        if passes {
            pass(passed, "update");
        }
        end(own, if passes { Status::Committed } else { Status::Aborted });
    }
    explore(3, || {
        let passed = Passed::default();
        let (by_writer, by_update) = (Arc::clone(&passed), Arc::clone(&passed));
        beside(
            |guard| with_latest(&[(1, Status::Committed)], guard),
            move |(record, _), guard| writer(record, 5, &by_writer, guard),
            move |(record, read), guard| update(record, read, 9, &by_update, guard),
            |_, _| assert!(have_passed(&passed) < 2, "the update did not see the writer"),
        );
    });
}

/// Two readers raise one timestamp: the later one stays.
#[test]
fn a_read_timestamp_never_goes_back() {
    explore(3, || {
        beside(
            |guard| with_latest(&[(1, Status::Committed)], guard).1,
            |version, guard| version.under(guard).raise_rts(Timestamp(9)),
            |version, guard| version.under(guard).raise_rts(Timestamp(7)),
            |version, guard| assert_eq!(version.under(guard).rts(), Timestamp(9)),
        );
    });
}

/// The same where both write: the later one overwrites what the earlier one has read, and has not seen what that writes.
#[test]
fn there_is_no_write_skew() {
    const START: u64 = 1;
    fn transact((own, other): (Modelled, Modelled), timestamp: u64, passed: &Passed, guard: &Guard<'_>) {
        let (own, other) = (own.under(guard), other.under(guard));
        let read = at(timestamp, guard).search(other, None, true).version.expect("it was committed");
        let (new, below) = (version(own, timestamp, guard), only(own, guard));
        let installed = install(own, timestamp, new, guard).expect("nobody closes it");
        fence(Ordering::SeqCst);
        read.raise_rts(Timestamp(timestamp));
        fence(Ordering::SeqCst);
        let unchanged = at(timestamp, guard).search(other, None, true).version == Some(read);
        let passes = unchanged && !below.rts().is_after(Timestamp(timestamp));
        if passes && read.wts().0 == START {
            pass(passed, "on what was there");
        }
        end(installed, if passes { Status::Committed } else { Status::Aborted });
    }
    explore(2, || {
        let passed = Passed::default();
        let (by_earlier, by_later) = (Arc::clone(&passed), Arc::clone(&passed));
        beside(
            |guard| {
                let committed = || Modelled::of(record(&[(START, Status::Committed)], guard));
                (committed(), committed())
            },
            move |(left, right), guard| transact((left, right), 5, &by_earlier, guard),
            move |(left, right), guard| transact((right, left), 9, &by_later, guard),
            |_, _| assert!(have_passed(&passed) < 2, "write skew"),
        );
    });
}

/// Two installations into one list, one of them in the head: both are there, in order, each with its own row.
#[test]
fn the_heads_version_has_one_owner() {
    explore(3, || {
        beside(
            |guard| Modelled::of(empty(guard)),
            |record, guard| assert!(write(record.under(guard), 5, Status::Committed, guard).is_some()),
            |record, guard| assert!(write(record.under(guard), 9, Status::Committed, guard).is_some()),
            |record, guard| {
                assert_eq!(timestamps(record, guard), [9, 5]);
                assert_eq!((seen(record, 5, guard), seen(record, 9, guard)), (Some(5), Some(9)));
            },
        );
    });
}

/// Frees what lies below the latest version up to a timestamp.
fn free_below(record: Modelled, until: u64, guard: &Guard<'_>) {
    let mut latched = record.under(guard).latch();
    let horizon = Horizon::of_test(Timestamp(until));
    let (bottom, _) = latched.bottom(horizon).expect("there is such a version");
    let (_, is_all) = bottom.free_below(horizon, u64::MAX, guard);
    assert!(is_all);
}

/// A head's version that is cut off serves a writer, while a reader reads the version that superseded it.
#[test]
fn a_heads_version_that_is_free_again_is_claimed_whole() {
    explore(2, || {
        beside(
            |guard| with_latest(&[(1, Status::Committed), (3, Status::Committed)], guard),
            |(record, _), guard| free_below(record, 3, guard),
            |(record, _), guard| {
                assert!(write(record.under(guard), 9, Status::Committed, guard).is_some());
                assert_eq!((seen(record, 4, guard), seen(record, 9, guard)), (Some(3), Some(9)));
            },
            |(record, _), guard| assert_eq!(timestamps(record, guard), [9, 3]),
        );
    });
}

/// Unlinks aborted versions, beginning again where something was installed.
fn unlink_aborted(record: Modelled, guard: &Guard<'_>) {
    let mut latched = record.under(guard).latch();
    let mut cursor = latched.cursor();
    while let Link::To(_) = cursor.link() {
        if cursor.status() != Some(Status::Aborted) {
            cursor.pass();
        } else if cursor.unlink_aborted(guard) == Unlinked::Not {
            cursor = latched.cursor();
        }
    }
}

/// What is cut off lies behind what every reader sees; an aborted version is unlinked under readers.
#[test]
fn readers_do_not_notice_collection() {
    explore(3, || {
        beside(
            |guard| {
                let (one, three) = ((1, Status::Committed), (3, Status::Committed));
                Modelled::of(record(&[one, three, (4, Status::Aborted), (7, Status::Committed)], guard))
            },
            |record, guard| {
                unlink_aborted(record, guard);
                free_below(record, 3, guard);
            },
            |record, guard| assert_eq!((seen(record, 5, guard), seen(record, 8, guard)), (Some(3), Some(7))),
            |record, guard| assert_eq!(timestamps(record, guard), [7, 3]),
        );
    });
}

/// An aborted version is unlinked where another one is installed: neither change undoes the other.
#[test]
fn an_installation_beside_a_collector_is_not_lost() {
    explore(3, || {
        beside(
            |guard| Modelled::of(record(&[(3, Status::Committed), (4, Status::Aborted)], guard)),
            unlink_aborted,
            |record, guard| assert!(write(record.under(guard), 7, Status::Committed, guard).is_some()),
            |record, guard| assert_eq!(timestamps(record, guard), [7, 3]),
        );
    });
}

/// A deleted record is closed, or a version is installed in it.
#[test]
fn a_record_is_closed_or_written() {
    explore(3, || {
        let happened = Passed::default();
        let (by_collector, by_writer) = (Arc::clone(&happened), Arc::clone(&happened));
        beside(
            |guard| Modelled::of(record(&[(3, Status::Deleted)], guard)),
            move |record, guard| {
                let latched = record.under(guard).latch();
                if latched.close(Horizon::of_test(Timestamp(3))).is_some() {
                    pass(&by_collector, "closed");
                }
            },
            move |record, guard| {
                if write(record.under(guard), 7, Status::Committed, guard).is_some() {
                    pass(&by_writer, "written");
                }
            },
            |record, guard| {
                assert_eq!(have_passed(&happened), 1);
                let closed = at(9, guard).latest(record.under(guard)) == Link::Closed;
                assert_eq!(seen(record, 9, guard).is_some(), !closed);
            },
        );
    });
}

/// Of a later transaction that misses a key and an earlier one that inserts it one fails. The flag stands for the index: the one that sets it
/// has inserted, and the one that finds it set knows that its stamp is broken.
fn misses_or_inserts(part: impl Fn(&PrefixLengths) -> KeyPartition + Clone + Send + Sync + 'static) {
    explore(3, move || {
        let shared = Arc::new((GapReadTimestamps::new(Timestamp(1)), PrefixLengths::default(), AtomicBool::new(false)));
        let passed = Passed::default();
        let (for_writer, by_writer) = (Arc::clone(&shared), Arc::clone(&passed));
        let (by_reader, part) = (Arc::clone(&passed), part.clone());
        beside(
            |_| (),
            move |(), _| {
                let (gaps, lengths, inserted) = &*for_writer;
                // AcqRel: as the latch of an index node.
                inserted.swap(true, Ordering::AcqRel);
                fence(Ordering::SeqCst);
                if gaps.admit(PLACE, &[5u8, 1][..], lengths, Timestamp(5)) {
                    pass(&by_writer, "writer");
                }
            },
            move |(), _| {
                let (gaps, lengths, inserted) = &*shared;
                gaps.raise(part(lengths), Timestamp(9));
                fence(Ordering::SeqCst);
                // Acquire: as a stamp.
                if !inserted.load(Ordering::Acquire) {
                    pass(&by_reader, "reader");
                }
            },
            |(), _| assert!(have_passed(&passed) < 2, "a phantom"),
        );
    });
}

#[test]
fn a_key_is_missed_or_inserted() {
    misses_or_inserts(|_| KeyPartition::key(PLACE, &[5u8, 1][..]));
}

#[test]
fn a_range_is_empty_or_inserted_into() {
    misses_or_inserts(|lengths| KeyPartition::range(PLACE, Bound::Included(&[5]), Bound::Excluded(&[6][..]), lengths));
}
