//! Operations on the whole index: scans, statistics, and freeing it.

use std::ptr::{self, NonNull};

use polychron_memory::Guard;
use polychron_sync::Backoff;
use polychron_sync::atomic::Ordering;

use super::HashIndex;
use super::bucket::{Bucket, Meta, SLOTS};
use super::entry::{EMPTY, Entry, LONG, LongKey};
use super::table::Table;
use crate::Stamp;

/// The shape of a hash index at some time. Counts are exact when no thread writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashStatistics {
    /// Keys in the index.
    pub keys: usize,
    /// Buckets that cover keys, overflow buckets apart.
    pub buckets: usize,
    /// Overflow buckets.
    pub overflow_buckets: usize,
    /// Bytes of tables, overflow buckets and long keys.
    pub bytes: usize,
    /// Cache lines of the longest chain; 1 when nothing has overflowed.
    pub longest_chain: usize,
}

/// The words of an occupied slot.
type Words = (u64, u64, *mut LongKey);

/// A bucket's chain as it was at one time between two insertions.
struct Snapshot {
    stamp: Stamp,
    slots: Vec<Words>,
    overflow: usize,
}

impl Snapshot {
    /// Reads a chain; `false` when a writer got in between.
    fn read(&mut self, head: &Bucket, meta: Meta) -> bool {
        self.slots.clear();
        self.overflow = 0;
        let (mut bucket, mut kinds) = (head, meta);
        loop {
            for (index, slot) in bucket.slots.iter().enumerate().take(SLOTS) {
                if kinds.kind(index) != EMPTY {
                    // Acquire pairs with `Bucket::fill`: a thread that sees new words sees the latch in the head.
                    let words = (slot.word.load(Ordering::Acquire), slot.value.load(Ordering::Acquire));
                    self.slots.push((kinds.kind(index), words.0, words.1));
                }
            }
            // Acquire pairs with the release that linked the next bucket.
            let next = bucket.next.load(Ordering::Acquire);
            if head.meta() != meta {
                return false;
            }
            // SAFETY: chain pointers are null or point to buckets that are not freed while the caller's guard lives.
            let Some(next) = (unsafe { next.as_ref() }) else {
                return true;
            };
            (bucket, kinds) = (next, next.meta());
            self.overflow += 1;
        }
    }
}

/// Shows the chain of one bucket, or of those it was divided into, to `visit`.
///
/// # Safety
/// The bucket is initialised, and the guard that keeps the table was alive when it was found so.
unsafe fn visit_bucket(table: Table<'_>, index: usize, snapshot: &mut Snapshot, visit: &mut impl FnMut(&Snapshot)) {
    // SAFETY: the caller says that the bucket is initialised.
    let bucket = unsafe { table.bucket_at(index).as_ref() };
    let mut backoff = Backoff::new();
    loop {
        let meta = bucket.meta();
        if meta.is_moved() && !meta.is_latched() {
            let next = table.next().expect("a moved bucket's table has a next one");
            // SAFETY: the move has initialised the successors.
            return unsafe {
                visit_bucket(next, 2 * index, snapshot, visit);
                visit_bucket(next, 2 * index + 1, snapshot, visit);
            };
        }
        if meta.is_stable() && snapshot.read(bucket, meta) {
            snapshot.stamp = table.stamp(bucket.into(), meta.insertions());
            return visit(snapshot);
        }
        backoff.wait();
    }
}

impl HashIndex {
    fn visit_all(&self, guard: &Guard<'_>, visit: &mut impl FnMut(&Snapshot)) {
        let table = self.table(guard);
        let mut snapshot = Snapshot { stamp: table.stamp(table.bucket_at(0), 0), slots: Vec::new(), overflow: 0 };
        for index in 0..table.header().buckets {
            // SAFETY: all buckets of the current table are initialised, and the guard keeps it.
            unsafe { visit_bucket(table, index, &mut snapshot, visit) };
        }
    }

    /// Shows every bucket's stamp and entries to `visitor`, in no order of keys.
    ///
    /// The entries of one call are what its bucket held at one time, as far as insertions go, and the stamp tells
    /// whether an insertion has come since. Every bucket is shown exactly once, empty ones too.
    pub fn for_each<'g>(&self, mut visitor: impl FnMut(Stamp, &[Entry<'g>]), guard: &'g Guard<'_>) {
        let mut entries = Vec::new();
        self.visit_all(guard, &mut |snapshot| {
            entries.clear();
            // SAFETY: the snapshot was undisturbed, so the words belong together; nodes live as long as the guard.
            entries.extend(
                snapshot.slots.iter().filter_map(|(kind, word, value)| unsafe { Entry::of_slot(*kind, *word, *value) }),
            );
            visitor(snapshot.stamp, &entries);
        });
    }

    /// Walks the index and tells its shape.
    pub fn statistics(&self, guard: &Guard<'_>) -> HashStatistics {
        let table = self.table(guard);
        let mut statistics = HashStatistics { bytes: table.bytes(), ..HashStatistics::default() };
        statistics.bytes += table.next().map_or(0, Table::bytes);
        self.visit_all(guard, &mut |snapshot| {
            statistics.buckets += 1;
            statistics.keys += snapshot.slots.len();
            statistics.overflow_buckets += snapshot.overflow;
            statistics.bytes += snapshot.overflow * size_of::<Bucket>();
            statistics.longest_chain = statistics.longest_chain.max(snapshot.overflow + 1);
            for (_, _, value) in snapshot.slots.iter().filter(|(kind, ..)| *kind == LONG) {
                // SAFETY: the snapshot was undisturbed, so the value is a node, which lives as long as the guard.
                statistics.bytes += NonNull::new(*value).map_or(0, |node| unsafe { LongKey::bytes(node) });
            }
        });
        statistics
    }

    /// Gives all memory of the index back. The index is not to be used afterwards; destroying it again does nothing.
    ///
    /// # Safety
    /// No other thread uses the index, no stamp of it will be asked for, and nothing that it lent is still in use. No
    /// method but this one is called afterwards.
    pub unsafe fn destroy(&mut self, guard: &Guard<'_>) {
        // Relaxed: the caller has exclusive access.
        let mut current = NonNull::new(self.current.swap(ptr::null_mut(), Ordering::Relaxed));
        if let Some(raw) = current {
            // SAFETY: the pointer was the current table's.
            let table = unsafe { Table::from_raw(raw) };
            for index in 0..table.header().buckets {
                // SAFETY: all buckets of the current table are initialised.
                unsafe { destroy_bucket(table, index, guard) };
            }
        }
        while let Some(raw) = current {
            // SAFETY: tables are linked from old to new, and no thread uses them.
            unsafe {
                let table = Table::from_raw(raw);
                current = table.next().map(Table::raw);
                guard.free(raw.cast(), table.bytes());
            }
        }
    }
}

/// Frees what hangs on one bucket, or on those it was divided into.
///
/// # Safety
/// The bucket is initialised, and the caller has exclusive access to the index.
unsafe fn destroy_bucket(table: Table<'_>, index: usize, guard: &Guard<'_>) {
    let head = table.bucket_at(index);
    // SAFETY: the caller says that the bucket is initialised.
    if unsafe { head.as_ref() }.meta().is_moved() {
        let next = table.next().expect("a moved bucket's table has a next one");
        // SAFETY: the move has initialised the successors.
        return unsafe {
            destroy_bucket(next, 2 * index, guard);
            destroy_bucket(next, 2 * index + 1, guard);
        };
    }
    let mut next = Some(head);
    while let Some(current) = next {
        // SAFETY: chains consist of initialised buckets, each freed once and after it was read.
        unsafe {
            let bucket = current.as_ref();
            let kinds = bucket.meta();
            for (_, slot) in bucket.slots.iter().enumerate().filter(|(index, _)| kinds.kind(*index) == LONG) {
                if let Some(node) = NonNull::new(slot.value.load(Ordering::Relaxed)) {
                    guard.free(node.cast(), LongKey::bytes(node));
                }
            }
            next = NonNull::new(bucket.next.load(Ordering::Relaxed));
            if current != head {
                guard.free(current.cast(), size_of::<Bucket>());
            }
        }
    }
}
