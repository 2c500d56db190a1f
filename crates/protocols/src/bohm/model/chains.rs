//! Chains that are added to at both ends, closed, and sealed when their keys are displaced.

use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::model::explore;

use polychron_memory::model::beside;
use polychron_sync::model::Witness;

use super::super::chain::{Head, Readers, Superseded};
use super::super::displaced::Displaced;
use super::super::planned::Planned;
use super::super::timestamp::Timestamp;
use super::super::version::{Fresh, RawVersion, Version};
use super::{both, planned, timestamp};

/// A chain that threads add to, and what its versions hold.
#[derive(Clone, Copy)]
struct Row {
    head: &'static Head,
    /// Of the batches 1 to 3.
    versions: [RawVersion; 3],
    producer: &'static Planned,
    /// What is done before a version is put there.
    filled: &'static [Witness; 3],
    superseded: &'static [AtomicUsize; 3],
}

impl Row {
    /// A chain with the version of batch 1.
    fn new(guard: &Guard<'_>) -> Self {
        let producer = &*Box::leak(Box::new(planned(timestamp(1))));
        let version = |batch| producer.placeholder(timestamp(batch), 1, guard).expect("memory is there").keep();
        let row = Self {
            head: Box::leak(Box::new(Head::new())),
            versions: [1, 2, 3].map(version),
            producer,
            filled: Box::leak(Box::default()),
            superseded: Box::leak(Box::default()),
        };
        row.push(1);
        row
    }

    fn fill(self, batch: usize) -> Fresh<'static> {
        self.filled[batch - 1].write();
        // SAFETY: each is put there once.
        unsafe { Fresh::of(self.versions[batch - 1]) }
    }

    fn version(version: RawVersion) -> Version<'static> {
        // SAFETY: versions stay for the whole model.
        unsafe { version.get() }
    }

    fn begin(version: RawVersion) -> Timestamp {
        Self::version(version).begin()
    }

    fn supersede(self, old: Option<Superseded>) {
        let Some(old) = old else { return };
        let batch = Self::begin(old.version()).batch() as usize;
        assert_eq!(self.superseded[batch - 1].fetch_add(1, Ordering::Relaxed), 0, "it is superseded once");
    }

    /// Puts a placeholder on top, as a planner does.
    fn push(self, batch: usize) {
        // SAFETY: one thread puts versions on top, in their order.
        let below =
            unsafe { self.head.push(self.fill(batch), Readers::Snapshots) }.expect("no thread closes the chain");
        self.supersede(below);
    }

    /// Puts a version where it belongs, as an executor does. `false`: the chain is closed.
    fn insert(self, batch: usize) -> bool {
        let mut version = self.fill(batch);
        version.filling().finish(true);
        // SAFETY: one thread puts versions below others.
        let Ok(superseded) = (unsafe { self.head.insert(version) }) else { return false };
        if let Some(old) = superseded {
            assert!(Self::begin(old.version()) < Self::begin(old.above()));
            assert_eq!(Self::begin(old.above()).batch(), old.batch());
            self.supersede(Some(old));
        }
        true
    }

    /// The batches of the versions, newest first, of which what they hold is seen.
    fn batches(self) -> Vec<usize> {
        let mut batches = Vec::new();
        let mut next = self.head.newest();
        while let Some(version) = next {
            let version = Self::version(version);
            let batch = version.begin().batch() as usize;
            assert!(self.filled[batch - 1].read() == 1 && batches.last().is_none_or(|&last| last > batch));
            batches.push(batch);
            next = version.below();
        }
        batches
    }

    fn free(self) {
        // SAFETY: they were leaked when they were made, and no thread is left that knows them.
        unsafe {
            drop(Box::from_raw(std::ptr::from_ref(self.head).cast_mut()));
            drop(Box::from_raw(std::ptr::from_ref(self.filled).cast_mut()));
            drop(Box::from_raw(std::ptr::from_ref(self.superseded).cast_mut()));
            drop(Box::from_raw(std::ptr::from_ref(self.producer).cast_mut()));
        }
    }
}

/// A version that was not planned is put where it belongs, whatever comes on top meanwhile, and each version is superseded once.
#[test]
fn late_versions_find_their_place() {
    explore(3, || {
        beside(
            Row::new,
            |row, _| assert!(row.insert(2)),
            |row, _| row.push(3),
            |row, _| {
                assert_eq!(row.batches(), [3, 2, 1]);
                let superseded = row.superseded.each_ref().map(|count| count.load(Ordering::Relaxed));
                assert_eq!(superseded, [1, 1, 0]);
                row.free();
            },
        );
    });
}

/// A reader of a chain finds its versions whole and in their order, while others come on top and between.
#[test]
fn readers_find_versions_in_their_order() {
    explore(3, || {
        beside(
            Row::new,
            |row, _| {
                row.push(3);
                assert!(row.insert(2));
            },
            |row, _| {
                let batches = row.batches();
                assert!([&[1][..], &[3, 1], &[3, 2, 1]].contains(&&*batches), "{batches:?}");
                // SAFETY: versions stay for the whole model.
                let first = unsafe { row.head.at(timestamp(1)) };
                assert_eq!(first.map(Version::raw), Some(row.versions[0]));
            },
            |row, _| row.free(),
        );
    });
}

/// A chain is closed, or a version is put into it.
#[test]
fn a_closed_chain_takes_no_version() {
    explore(3, || {
        beside(
            |guard| (Row::new(guard), &*Box::leak(Box::new(AtomicUsize::new(0)))),
            |(row, closed), _| {
                // SAFETY: no other thread closes the chain.
                let is_closed = unsafe { row.head.close(row.versions[0], 3) }.is_some();
                _ = closed.fetch_add(is_closed.into(), Ordering::Relaxed)
            },
            |(row, closed), _| {
                let is_in = row.insert(2);
                assert!(is_in || row.head.newest().is_none());
                closed.fetch_add(2 * usize::from(is_in), Ordering::Relaxed);
            },
            |(row, closed), _| {
                // SAFETY: it was leaked above, and no thread is left that knows it.
                let closed = unsafe { Box::from_raw(std::ptr::from_ref(closed).cast_mut()) };
                assert!([1, 2].contains(&closed.load(Ordering::Relaxed)), "one of them, and not both");
                row.free();
            },
        );
    });
}

/// A chain is sealed, or a version is put into it; what was there is found all the time.
#[test]
fn a_sealed_chain_takes_no_version() {
    explore(3, || {
        beside(
            |guard| (Row::new(guard), &*Box::leak(Box::new(AtomicUsize::new(0)))),
            |(row, sealed), _| {
                sealed.fetch_add(row.head.seal(row.versions[0]).into(), Ordering::Relaxed);
                assert!([vec![1], vec![2, 1]].contains(&row.batches()));
            },
            |(row, sealed), _| {
                let is_in = row.insert(2);
                assert_eq!(row.batches(), if is_in { vec![2, 1] } else { vec![1] });
                sealed.fetch_add(2 * usize::from(is_in), Ordering::Relaxed);
            },
            |(row, sealed), _| {
                // SAFETY: it was leaked above, and no thread is left that knows it.
                let sealed = unsafe { Box::from_raw(std::ptr::from_ref(sealed).cast_mut()) };
                assert!([1, 2].contains(&sealed.load(Ordering::Relaxed)), "one of them, and not both");
                assert_eq!(row.head.is_sealed(), sealed.load(Ordering::Relaxed) == 1);
                row.free();
            },
        );
    });
}

/// A snapshot that misses a key in the index, which has been displaced, looks beside and finds it there.
#[test]
fn who_misses_a_displaced_key_finds_it_beside() {
    explore(3, || {
        let displaced = Displaced::without_index();
        // Whether the key is in the index, and beside.
        let keys = [AtomicUsize::new(1), AtomicUsize::new(0)];
        both(
            (displaced, keys),
            |(displaced, [index, beside])| {
                beside.store(1, Ordering::Release);
                displaced.raise(2);
                index.store(0, Ordering::Release);
            },
            |(displaced, [index, beside])| {
                let is_missed = index.load(Ordering::Acquire) == 0;
                assert!(
                    !displaced.concern(Timestamp::end_of(2)),
                    "a snapshot that sees the deletion has nothing to look for"
                );
                assert!(!is_missed || displaced.concern(Timestamp::end_of(1)) && beside.load(Ordering::Acquire) == 1);
            },
            |(displaced, _)| assert!(displaced.concern(Timestamp::end_of(1))),
        );
    });
}
