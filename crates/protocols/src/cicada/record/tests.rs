//! Heads, lists and versions by themselves, also for Miri.

use std::ops::ControlFlow;

use polychron_memory::{Guard, Memory, Options};

use super::{Installed, Link, NewVersion, Reader, Record, RecordAddress, Status, Unlinked, Version};
use crate::cicada::array::{Page, RecordArray};
use crate::cicada::clocks::Horizon;
use crate::cicada::timestamp::Timestamp;

/// Words that there is room for in the heads of these tests.
const ROOM: usize = 3;

fn with_guard(test: impl FnOnce(&Guard<'_>)) {
    let memory = Memory::new(Options::tiny()).expect("memory is there");
    let local = memory.register().expect("a slot is free");
    test(&local.pin());
}

fn page(guard: &Guard<'_>) -> (Page, RecordAddress) {
    let mut page = Page::allocate(2, 64, guard).expect("memory is there");
    let first = page.make().expect("there is room for two").address();
    assert!(page.make().is_some() && page.make().is_none());
    (page, first)
}

fn reader<'g>(timestamp: u64, guard: &'g Guard<'_>) -> Reader<'g> {
    // SAFETY: no test frees what is visible to its readers.
    unsafe { Reader::at_timestamp(guard, Timestamp(timestamp)) }
}

fn version<'g>(record: Record<'g>, wts: u64, row: &[u64], guard: &'g Guard<'_>) -> NewVersion<'g> {
    record.new_version(Timestamp(wts), row, true, guard).expect("memory is there")
}

fn install<'g>(record: Record<'g>, wts: u64, row: &[u64], guard: &'g Guard<'_>) -> Installed<'g> {
    let position = reader(wts, guard).position(record, |_| ControlFlow::<()>::Continue(()));
    let position = position.continue_value().flatten().expect("nobody closes it");
    position.install(version(record, wts, row, guard)).expect("nobody else installs")
}

fn seen(record: Record<'_>, timestamp: u64, guard: &Guard<'_>) -> Option<Vec<u64>> {
    let record = record.address();
    // SAFETY: the page stays for the test.
    let seen = reader(timestamp, guard).search(unsafe { record.under(guard) }, None, false);
    seen.version.filter(|_| seen.is_row).map(|version| version.row().as_words().to_vec())
}

fn all(record: Record<'_>) -> Vec<u64> {
    let mut latched = record.try_latch().expect("the latch is free");
    let (mut cursor, mut all) = (latched.cursor(), Vec::new());
    while let Link::To(version) = cursor.link() {
        all.push(version.wts().0);
        cursor.pass();
    }
    all
}

/// A thread that is refused a latch does not take it from its holder.
#[test]
fn a_latch_that_is_refused_stays_with_its_holder() {
    with_guard(|guard| {
        let (page, _) = page(guard);
        let record = page.get(0).expect("it was made");
        let held = record.try_latch().expect("nobody has it");
        assert!(record.try_latch().is_none());
        assert!(record.try_latch().is_none(), "the refusal released it");
        drop(held);
        assert!(record.try_latch().is_some());
        page.free(guard);
    });
}

/// Versions in the head and elsewhere are read, superseded and freed, and the head's serves again.
#[test]
fn versions_come_and_go() {
    with_guard(|guard| {
        let (page, _) = page(guard);
        let record = page.get(0).expect("it was made");
        // SAFETY: the page stays for the test.
        let under = unsafe { record.address().under(guard) };
        for (wts, row) in [(10, &[1, 2, 3][..]), (20, &[4]), (30, &[5, 6, 7, 8])] {
            install(under, wts, row, guard).commit();
        }
        let latest = |record: Record<'_>| match reader(30, guard).latest(under) {
            Link::To(version) => record.is_inline(Version::address(version)),
            _ => panic!("there is one"),
        };
        assert!(!latest(record), "the head was claimed before");
        assert_eq!(seen(record, 9, guard), None);
        assert_eq!(seen(record, 19, guard), Some(vec![1, 2, 3]));
        assert_eq!(seen(record, 30, guard), Some(vec![5, 6, 7, 8]));
        assert_eq!(reader(20, guard).versions(under).count(), 2, "no reader goes behind the version that it sees");
        let (mut latched, horizon) = (record.try_latch().expect("the latch is free"), Horizon::of_test(Timestamp(25)));
        let (bottom, above) = latched.bottom(horizon).expect("there is one");
        assert_eq!((above, bottom.free_below(horizon, 1, guard)), (1, (1, true)));
        drop(latched);
        assert_eq!((all(record), record.inline_status()), (vec![30, 20], Status::Unused));
        install(under, 40, &[9], guard).commit();
        assert!(latest(record), "the head is free again");
        version(under, 50, &[1; 9], guard).discard(guard);
        page.free(guard);
    });
}

/// Aborted versions are unlinked wherever they lie; a row keeps its record open, a deletion lets it be closed.
#[test]
fn aborted_versions_are_unlinked_and_deleted_records_closed() {
    with_guard(|guard| {
        let array = RecordArray::new(8 * ROOM);
        let record = array.take(0, guard).expect("memory is there").publish();
        install(record, 10, &[1], guard).abort();
        install(record, 20, &[2], guard).commit();
        install(record, 30, &[3], guard).abort();
        let mut latched = record.try_latch().expect("the latch is free");
        let (mut cursor, mut unlinked) = (latched.cursor(), Vec::new());
        while let Link::To(_) = cursor.link() {
            match cursor.unlink_aborted(guard) {
                Unlinked::Not => cursor.pass(),
                gone => unlinked.push(gone),
            }
        }
        assert_eq!(unlinked, [Unlinked::Outside, Unlinked::Inline(record.address())]);
        let horizon = Horizon::of_test(Timestamp(25));
        assert!(latched.close(horizon).is_none(), "it is a row");
        install(record, 24, &[], guard).delete();
        let (bottom, _) = latched.bottom(horizon).expect("there is one");
        assert_eq!(bottom.free_below(horizon, u64::MAX, guard), (1, true));
        let closed = latched.close(horizon).expect("it was deleted");
        assert_eq!(closed.retire(guard), record.address());
        assert_eq!(latched.latest(), Link::Closed);
        drop(latched);
        assert!(reader(40, guard).search(record, None, true).closed);
        let mut array = array;
        array.free_all(guard);
    });
}
