//! Every interleaving of two threads on a list of versions, under loom: writers against readers, installations against each other,
//! against collection and against closing; and on the words of absent keys.
//!
//! Validation rests on the one order of sequentially consistent accesses, which loom does not model. So the models put a fence
//! between what a transaction makes known and its look at the others, which loom does model: they show that the
//! order of the steps is enough if their accesses have one order, and not that these accesses have it.

use std::ops::Bound;
use std::sync::{Arc, Mutex};

use polychron_base::{IndexId, TableId};
use polychron_engine::stores::IndexRef;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicBool, Ordering, fence};
use polychron_sync::model::explore;

use polychron_memory::model::beside;

use super::gaps::{GapReadTimestamps, KeyPartition, PrefixLengths};
use super::reclaim::free_below;
use super::record::{HEAD_BYTES, Link, Record, Status, Version, search};
use super::timestamp::Timestamp;

const PLACE: IndexRef = IndexRef { table: TableId::new(1, 3), index: IndexId(0) };

/// Who has passed its validation.
pub(super) type Passed = Arc<Mutex<Vec<&'static str>>>;

pub(super) fn pass(passed: &Passed, who: &'static str) {
    passed.lock().expect("no thread panics").push(who);
}

pub(super) fn have_passed(passed: &Passed) -> usize {
    passed.lock().expect("no thread panics").len()
}

/// A record without a version.
pub(super) fn empty(guard: &Guard<'_>) -> Record {
    let place = guard.allocate(HEAD_BYTES + 8).expect("memory is there");
    // SAFETY: the block has room for a head and a word, and nobody else knows it.
    unsafe { Record::create(place) }
}

/// A version of that moment, with the moment for its row: the head's, if it is free.
fn version(record: Record, wts: u64, guard: &Guard<'_>) -> Version {
    let version = record.claim_version();
    let version = version.unwrap_or_else(|| Version::allocate(1, guard).expect("memory is there"));
    // SAFETY: the version was claimed or allocated just now, with room for a word.
    unsafe { version.fill(Timestamp(wts), &[wts]) };
    version
}

/// Puts a version into its place; `false`: the record is closed.
pub(super) fn install(record: Record, version: Version) -> bool {
    loop {
        let mut place = record.latest();
        let below = loop {
            match place.link() {
                Link::To(other) if other.wts().is_after(version.wts()) => place = other.next(),
                Link::To(other) => break Some(other),
                Link::End => break None,
                Link::Closed => return false,
            }
        };
        if place.install(below, version) {
            return true;
        }
    }
}

/// A record with versions of these moments and statuses, the earliest first.
fn record(versions: &[(u64, Status)], guard: &Guard<'_>) -> Record {
    let record = empty(guard);
    for &(wts, status) in versions {
        let version = version(record, wts, guard);
        assert!(install(record, version));
        version.end(status);
    }
    record
}

/// The moments of a record's versions, the latest first.
fn moments(record: Record) -> Vec<u64> {
    let (mut place, mut moments) = (record.latest(), Vec::new());
    while let Link::To(version) = place.link() {
        moments.push(version.wts().0);
        place = version.next();
    }
    moments
}

/// What a transaction of that moment sees, by the row.
fn seen(record: Record, moment: u64) -> Option<u64> {
    let version = search(record, Timestamp(moment), None, true).version?;
    // SAFETY: no model frees what is visible.
    let row = unsafe { version.row() }.as_words()[0];
    assert_eq!(row, version.wts().0, "the row is another version's");
    Some(row)
}

/// A writer installs, and then looks until when the version below was read.
fn writer(record: Record, moment: u64, passed: &Passed, guard: &Guard<'_>) {
    let version = version(record, moment, guard);
    assert!(install(record, version));
    fence(Ordering::SeqCst);
    let below = search(record, Timestamp(moment), Some(version), true).version;
    let read_later = below.is_some_and(|below| below.rts().is_after(Timestamp(moment)));
    if !read_later {
        pass(passed, "writer");
    }
    version.end(if read_later { Status::Aborted } else { Status::Committed });
}

/// A reader raises the read timestamp of what it saw, and then looks whether it still sees that.
fn reader(record: Record, read: Version, moment: u64, passed: &Passed) {
    read.raise_rts(Timestamp(moment));
    fence(Ordering::SeqCst);
    if search(record, Timestamp(moment), None, true).version == Some(read) {
        pass(passed, "reader");
    }
}

fn only(record: Record) -> Version {
    let Link::To(version) = record.latest().link() else { panic!("there is a version") };
    version
}

/// Of a later reader and an earlier writer of the same record one fails.
#[test]
fn a_later_reader_or_an_earlier_writer_fails() {
    explore(3, || {
        let passed = Passed::default();
        let (by_writer, by_reader) = (Arc::clone(&passed), Arc::clone(&passed));
        beside(
            |guard| {
                let record = record(&[(1, Status::Committed)], guard);
                (record, only(record))
            },
            move |(record, _), guard| writer(record, 5, &by_writer, guard),
            move |(record, read), _| reader(record, read, 9, &by_reader),
            |_, _| assert!(have_passed(&passed) < 2, "the reader did not see the writer"),
        );
    });
}

/// Two readers raise one timestamp: the later one stays.
#[test]
fn a_read_timestamp_never_goes_back() {
    explore(3, || {
        beside(
            |guard| record(&[(1, Status::Committed)], guard),
            |record, _| only(record).raise_rts(Timestamp(9)),
            |record, _| only(record).raise_rts(Timestamp(7)),
            |record, _| assert_eq!(only(record).rts(), Timestamp(9)),
        );
    });
}

/// The same where both write: the later one overwrites what the earlier one has read, and has not seen what that writes.
#[test]
fn there_is_no_write_skew() {
    const START: u64 = 1;
    fn transact(own: Record, other: Record, moment: u64, passed: &Passed, guard: &Guard<'_>) {
        let read = search(other, Timestamp(moment), None, true).version.expect("it was committed");
        let (version, below) = (version(own, moment, guard), only(own));
        assert!(install(own, version));
        fence(Ordering::SeqCst);
        read.raise_rts(Timestamp(moment));
        fence(Ordering::SeqCst);
        let unchanged = search(other, Timestamp(moment), None, true).version == Some(read);
        let passes = unchanged && !below.rts().is_after(Timestamp(moment));
        if passes && read.wts().0 == START {
            pass(passed, "on what was there");
        }
        version.end(if passes { Status::Committed } else { Status::Aborted });
    }
    explore(2, || {
        let passed = Passed::default();
        let (by_earlier, by_later) = (Arc::clone(&passed), Arc::clone(&passed));
        beside(
            |guard| {
                let committed = || record(&[(START, Status::Committed)], guard);
                (committed(), committed())
            },
            move |(left, right), guard| transact(left, right, 5, &by_earlier, guard),
            move |(left, right), guard| transact(right, left, 9, &by_later, guard),
            |_, _| assert!(have_passed(&passed) < 2, "write skew"),
        );
    });
}

/// Two installations into one list, one of them in the head: both are there, in order, each with its own row.
#[test]
fn the_heads_version_has_one_owner() {
    fn write(record: Record, moment: u64, guard: &Guard<'_>) {
        let version = version(record, moment, guard);
        assert!(install(record, version));
        version.end(Status::Committed);
    }
    explore(3, || {
        beside(
            empty,
            |record, guard| write(record, 5, guard),
            |record, guard| write(record, 9, guard),
            |record, _| {
                assert_eq!(moments(record), [9, 5]);
                assert_eq!((seen(record, 5), seen(record, 9)), (Some(5), Some(9)));
            },
        );
    });
}

/// A head's version that is cut off serves a writer, while a reader reads the version that superseded it.
#[test]
fn a_heads_version_that_is_free_again_is_claimed_whole() {
    explore(2, || {
        beside(
            |guard| {
                let record = record(&[(1, Status::Committed), (3, Status::Committed)], guard);
                (record, only(record))
            },
            |(record, settled), guard| {
                assert!(free_below(record, settled, u64::MAX, guard).1);
            },
            |(record, _), guard| {
                let version = version(record, 9, guard);
                assert!(install(record, version));
                version.end(Status::Committed);
                assert_eq!((seen(record, 4), seen(record, 9)), (Some(3), Some(9)));
            },
            |(record, _), _| assert_eq!(moments(record), [9, 3]),
        );
    });
}

/// What is cut off lies behind what every reader sees; an aborted version is taken out under readers.
#[test]
fn readers_do_not_notice_collection() {
    explore(3, || {
        beside(
            |guard| {
                record(
                    &[(1, Status::Committed), (3, Status::Committed), (4, Status::Aborted), (7, Status::Committed)],
                    guard,
                )
            },
            |record, guard| {
                let aborted = only(record).next();
                let Link::To(version) = aborted.link() else { panic!("it is there") };
                assert!(aborted.take_out(version));
                let Link::To(visible) = aborted.link() else { panic!("it stays") };
                assert!(free_below(record, visible, u64::MAX, guard).1);
            },
            |record, _| assert_eq!((seen(record, 5), seen(record, 8)), (Some(3), Some(7))),
            |record, _| assert_eq!(moments(record), [7, 3]),
        );
    });
}

/// An aborted version is taken out where another one is installed: neither change undoes the other.
#[test]
fn an_installation_beside_a_collector_is_not_lost() {
    explore(3, || {
        beside(
            |guard| record(&[(3, Status::Committed), (4, Status::Aborted)], guard),
            |record, _| {
                let mut place = record.latest();
                while let Link::To(version) = place.link() {
                    if version.status() != Status::Aborted {
                        place = version.next();
                    } else if !place.take_out(version) {
                        place = record.latest();
                    }
                }
            },
            |record, guard| {
                let version = version(record, 7, guard);
                assert!(install(record, version));
                version.end(Status::Committed);
            },
            |record, _| assert_eq!(moments(record), [7, 3]),
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
            |guard| {
                let record = record(&[(3, Status::Deleted)], guard);
                (record, only(record))
            },
            move |(record, deletion), _| {
                if record.latest().close(Some(deletion)) {
                    pass(&by_collector, "closed");
                }
            },
            move |(record, _), guard| {
                let version = version(record, 7, guard);
                if install(record, version) {
                    version.end(Status::Committed);
                    pass(&by_writer, "written");
                }
            },
            |(record, _), _| {
                assert_eq!(have_passed(&happened), 1);
                let closed = record.latest().link() == Link::Closed;
                assert_eq!(seen(record, 9).is_some(), !closed);
            },
        );
    });
}

/// Of a later transaction that misses a key and an earlier one that inserts it one fails. The flag stands for the index: who sets it
/// has inserted, and whoever finds it set knows that its stamp is broken.
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
