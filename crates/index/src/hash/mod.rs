//! The hash index: encoded keys to handles, one cache line a bucket.
//!
//! Lookups are optimistic and write nothing; writers latch one bucket. Keys of at most 8 bytes lie in the bucket, longer
//! ones behind a pointer next to their hash. The index grows on line: a table of twice the size is added, and inserting
//! threads move a few buckets each; any thread that meets a moved bucket goes on in the next table. A bucket counts the
//! insertions into it, and that count is what a [`Stamp`](crate::Stamp) carries; the buckets that a moved bucket is divided into take
//! the count over, so that growth breaks no stamp. `docs/hash-index.md` has the protocol and the proofs.

mod bucket;
mod entry;
#[cfg(all(test, loom))]
mod model;
mod scan;
mod table;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use polychron_base::key::{EncodedKey, HashSeed};
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicPtr, Ordering};
use polychron_sync::{Backoff, prefetch_read};

use crate::measured::Measured;
use crate::{Changes, Handle, Inserted, Lookup};
use bucket::{Bucket, Latched, Meta, Position, inline_value};
use entry::{EMPTY, LongKey, Probe};
use table::{Header, Table};

pub use entry::{Entry, StoredKey};
pub use scan::HashStatistics;

/// Buckets that an inserting thread moves while the index grows.
const MOVES_PER_INSERT: usize = 8;
/// The smallest table.
const MIN_BUCKETS: usize = 8;
/// Keys loaded in bulk whose buckets are touched ahead.
const LOAD_AHEAD: usize = 16;

/// An index from encoded keys to handles without an order.
///
/// All keys, handles and stamps belong to one memory: every guard that is passed must come from the memory that the
/// index was made with. Dropping an index does not free it; see [`HashIndex::destroy`].
#[derive(Debug)]
pub struct HashIndex {
    /// The oldest table that still has buckets.
    current: AtomicPtr<Header>,
    seed: HashSeed,
}

/// Why [`HashIndex::bulk_load`] refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkLoadError {
    /// Two pairs have the same key.
    Duplicate {
        /// Position, from zero, of the second one.
        position: usize,
    },
    /// Memory ran out.
    OutOfMemory(OutOfMemory),
}

impl std::fmt::Display for BulkLoadError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Duplicate { position } => write!(formatter, "the key at position {position} was loaded before"),
            Self::OutOfMemory(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for BulkLoadError {}

/// Whether no key was inserted into the bucket, or into those it was divided into, since the stamp was taken.
///
/// # Safety
/// `node` is a bucket's head, and a guard that was alive when the stamp was taken still is.
pub(crate) unsafe fn stamp_holds(node: NonNull<()>, state: u64) -> bool {
    // SAFETY: heads lie in tables, which are retired, not freed, while the caller's guard lives.
    let bucket = unsafe { node.cast::<Bucket>().as_ref() };
    let meta = meta_unlatched(bucket);
    if meta.insertions() != state || !meta.is_moved() {
        return meta.insertions() == state;
    }
    // Acquire pairs with the release in `move_bucket`, which came before the mark that we saw.
    let low = NonNull::new(bucket.next.load(Ordering::Acquire)).expect("a moved bucket has successors");
    // SAFETY: the successors lie side by side in the next table, which is retired after this one.
    unsafe { stamp_holds(low.cast(), state) && stamp_holds(low.add(1).cast(), state) }
}

/// As [`stamp_holds`], of the bucket alone: `false` if it was moved.
///
/// # Safety
/// `node` is a bucket's head, and its table was not freed since the stamp was taken.
pub(crate) unsafe fn stamp_holds_alone(node: NonNull<()>, state: u64) -> bool {
    // SAFETY: the caller keeps the table.
    let meta = meta_unlatched(unsafe { node.cast::<Bucket>().as_ref() });
    meta.insertions() == state && !meta.is_moved()
}

/// Waits for any thread that has the latch of a bucket.
#[inline]
fn meta_unlatched(bucket: &Bucket) -> Meta {
    let mut backoff = Backoff::new();
    loop {
        let meta = bucket.meta_in_order();
        if !meta.is_latched() {
            return meta;
        }
        backoff.wait();
    }
}

/// Memory that an insertion allocated before it latched a bucket; it is freed if it was not needed.
struct Spare<'g, 'l> {
    guard: &'g Guard<'l>,
    long: Option<NonNull<LongKey>>,
    overflow: Option<NonNull<Bucket>>,
}

impl Drop for Spare<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: what is still here was allocated by this insertion and never linked.
        unsafe {
            if let Some(long) = self.long {
                self.guard.free(long.cast(), LongKey::bytes(long));
            }
            if let Some(overflow) = self.overflow {
                self.guard.free(overflow.cast(), size_of::<Bucket>());
            }
        }
    }
}

impl HashIndex {
    /// An empty index in which `expected_keys` keys fit without growth if their hashes, which depend on the seed, spread evenly.
    ///
    /// # Errors
    /// When the table cannot be allocated.
    pub fn new(expected_keys: usize, seed: HashSeed, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        // Four buckets for five keys: 3.4 % of the keys then lie in overflow buckets.
        let buckets = (expected_keys - expected_keys / 5).max(MIN_BUCKETS);
        let table = Table::allocate_empty(buckets, guard)?;
        Ok(Self { current: AtomicPtr::new(table.raw().as_ptr()), seed })
    }

    /// An index of all pairs that `pairs` yields, sized for `expected_keys` of them.
    ///
    /// # Errors
    /// When two pairs have the same key, or when memory runs out. Nothing stays allocated then.
    pub fn bulk_load<K: EncodedKey>(
        pairs: impl IntoIterator<Item = (K, Handle)>,
        expected_keys: usize,
        seed: HashSeed,
        guard: &Guard<'_>,
    ) -> Result<Self, BulkLoadError> {
        let mut index = Self::new(expected_keys, seed, guard).map_err(BulkLoadError::OutOfMemory)?;
        let result = index.load(pairs.into_iter(), guard);
        if result.is_err() {
            // SAFETY: no other thread has seen the index.
            unsafe { index.destroy(guard) };
        }
        result.map(|()| index)
    }

    fn load<K: EncodedKey>(
        &self,
        mut pairs: impl Iterator<Item = (K, Handle)>,
        guard: &Guard<'_>,
    ) -> Result<(), BulkLoadError> {
        let mut group = [None; LOAD_AHEAD];
        for position in (0..).step_by(LOAD_AHEAD) {
            for slot in &mut group {
                *slot = pairs.next();
                if let Some((key, _)) = *slot {
                    self.prefetch(key, guard);
                }
            }
            for (offset, pair) in group.iter().enumerate() {
                let Some((key, handle)) = *pair else { return Ok(()) };
                match self.insert(key, handle, &mut (), guard) {
                    Ok(Inserted::New) => {}
                    Ok(Inserted::Existing(_)) => return Err(BulkLoadError::Duplicate { position: position + offset }),
                    Err(error) => return Err(BulkLoadError::OutOfMemory(error)),
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn table<'g>(&self, _guard: &'g Guard<'_>) -> Table<'g> {
        // Acquire pairs with the release of the thread that finished a growth: all buckets are initialised.
        let raw = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is never null before `destroy`; tables are retired after they are replaced, so this one
        // lives as long as the guard.
        unsafe { Table::from_raw(NonNull::new_unchecked(raw)) }
    }

    /// Finds a key's handle and the stamp of the bucket that covers it. Writes nothing that is shared.
    #[inline]
    pub fn get<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> Lookup {
        let probe = Probe::new(key, self.seed);
        let (table, head, meta, handle) = self.look_once(&probe, guard);
        match handle {
            Some(_) => Lookup { handle, stamp: table.stamp(head.into(), meta.insertions()) },
            None => get_anywhere(table, key, probe.hash),
        }
    }

    /// Finds a key's handle alone, which is less work than [`HashIndex::get`]. Writes nothing that is shared.
    #[inline]
    pub fn find<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> Option<Handle> {
        self.find_hashed(key, key.hash(self.seed), guard)
    }

    /// The same with the key's hash, which [`HashIndex::prefetch`] has given.
    #[inline]
    pub fn find_hashed<K: EncodedKey>(&self, key: K, hash: u64, guard: &Guard<'_>) -> Option<Handle> {
        let probe = Probe::with_hash(key, hash);
        let (table, _, _, handle) = self.look_once(&probe, guard);
        handle.or_else(|| get_anywhere(table, key, probe.hash).handle)
    }

    /// The short way of a lookup: the bucket, its meta word, and the handle if the key lies in the bucket itself and no thread
    /// changes it.
    #[inline]
    fn look_once<'g, K: EncodedKey>(
        &self,
        probe: &Probe<K>,
        guard: &'g Guard<'_>,
    ) -> (Table<'g>, &'g Bucket, Meta, Option<Handle>) {
        let table = self.table(guard);
        // SAFETY: the table is the current one.
        let head = unsafe { table.bucket(probe.hash) };
        let meta = head.meta();
        let handle = if meta.is_stable() { head.read_inline(meta, probe) } else { None };
        (table, head, meta, handle)
    }

    /// Touches the cache line of the bucket that covers a key, so that a lookup some time later need not wait for it. Answers the key's hash.
    #[inline]
    pub fn prefetch<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> u64 {
        let (table, hash) = (self.table(guard), key.hash(self.seed));
        prefetch_read(table.bucket_at(table.index_of(hash)).as_ptr());
        hash
    }

    /// Inserts a key that is absent, and tells `changes` what that did to stamps.
    ///
    /// # Errors
    /// When memory for the entry cannot be had; the index is as before.
    ///
    /// # Panics
    /// When the key is longer than [`MAX_KEY_BYTES`](polychron_base::key::MAX_KEY_BYTES).
    pub fn insert<K: EncodedKey>(
        &self,
        key: K,
        handle: Handle,
        changes: &mut impl Changes,
        guard: &Guard<'_>,
    ) -> Result<Inserted, OutOfMemory> {
        let key = Measured::inserted(key);
        self.advance_growth(guard);
        let probe = Probe::new(key, self.seed);
        let mut spare = Spare { guard, long: None, overflow: None };
        if probe.is_long() {
            spare.long = Some(LongKey::allocate(key, handle, guard)?);
        }
        loop {
            let (table, mut latched) = self.latch(probe.hash, guard);
            let before = latched.meta.insertions();
            let search = latched.search(&probe);
            if let Some((_, handle)) = search.found {
                return Ok(Inserted::Existing(Lookup {
                    handle: Some(handle),
                    stamp: table.stamp(latched.head.into(), before),
                }));
            }
            let value = spare.long.map_or(inline_value(handle), NonNull::as_ptr);
            let mut overflow = None;
            if let Some(position) = search.free {
                position.bucket.fill(position.slot, probe.word, value);
                latched.set_kind(position, probe.kind);
            } else if let Some(bucket) = spare.overflow.take() {
                // SAFETY: the spare bucket is initialised, and no other thread knows it.
                unsafe { latched.append(search.last, bucket, &probe, value) };
                overflow = Some(table);
            } else {
                drop(latched);
                spare.overflow = Some(allocate_overflow(guard)?);
                continue;
            }
            spare.long = None;
            latched.count_insertion();
            drop(latched);
            table.report(table.index_of(probe.hash), before, changes);
            if let Some(table) = overflow {
                self.count_overflow(table, guard);
            }
            return Ok(Inserted::New);
        }
    }

    /// Removes a key if it still maps to `expected`, and says whether it did. Stamps stay valid.
    pub fn remove<K: EncodedKey>(&self, key: K, expected: Handle, guard: &Guard<'_>) -> bool {
        let probe = Probe::new(key, self.seed);
        let (table, mut latched) = self.latch(probe.hash, guard);
        let Some((position, _)) = latched.search(&probe).found.filter(|(_, handle)| *handle == expected) else {
            return false;
        };
        // Relaxed: values change under the latch that we hold.
        let value = position.bucket.slots[position.slot].value.load(Ordering::Relaxed);
        latched.set_kind(position, EMPTY);
        let emptied = latched.unlink_if_empty(position.bucket);
        drop(latched);
        if let Some(bucket) = emptied {
            // Relaxed: a count that decides when to grow, nothing else.
            table.header().growth.overflow.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the bucket was unlinked, so threads that pin from now on do not find it.
            unsafe { guard.retire(bucket.cast(), size_of::<Bucket>()) };
        }
        if probe.is_long()
            && let Some(node) = NonNull::new(value)
        {
            // SAFETY: the slot was cleared, so threads that pin from now on do not find the node.
            unsafe { guard.retire(node.cast(), LongKey::bytes(node)) };
        }
        true
    }

    /// Maps a key to `new` if it still maps to `expected`, and says whether it did. Stamps stay valid.
    pub fn replace<K: EncodedKey>(&self, key: K, expected: Handle, new: Handle, guard: &Guard<'_>) -> bool {
        let probe = Probe::new(key, self.seed);
        let (_, latched) = self.latch(probe.hash, guard);
        let Some((Position { bucket, slot }, _)) =
            latched.search(&probe).found.filter(|(_, handle)| *handle == expected)
        else {
            return false;
        };
        let value = &bucket.slots[slot].value;
        if probe.is_long() {
            // SAFETY: the latched chain holds the node, so it lives. Release pairs with the acquire of readers.
            unsafe { (*value.load(Ordering::Relaxed)).handle.store(new.get(), Ordering::Release) };
        } else {
            // Release pairs with the acquire of readers.
            value.store(inline_value(new), Ordering::Release);
        }
        true
    }

    /// Latches the bucket that covers a hash, wherever growth has moved it.
    fn latch<'g>(&self, hash: u64, guard: &'g Guard<'_>) -> (Table<'g>, Latched<'g>) {
        let mut table = self.table(guard);
        loop {
            // SAFETY: the table is the current one, or was reached through a moved bucket that covers the hash.
            let head = unsafe { table.bucket(hash) };
            if let Some(latched) = head.latch() {
                return (table, latched);
            }
            table = table.next().expect("a moved bucket's table has a next one");
        }
    }

    /// Counts an overflow bucket that was added to `table`, and begins to grow when there are too many.
    fn count_overflow(&self, table: Table<'_>, guard: &Guard<'_>) {
        let growth = &table.header().growth;
        // Relaxed: counts that decide when to grow, nothing else.
        let overflow = growth.overflow.fetch_add(1, Ordering::Relaxed) + 1;
        let is_current = table.raw() == self.table(guard).raw();
        if overflow <= growth.overflow_mark.load(Ordering::Relaxed) || !is_current || table.next().is_some() {
            return;
        }
        // Acquire and release pair among the threads that claim one after the other.
        if growth.claimed.swap(true, Ordering::Acquire) {
            return;
        }
        match Table::allocate_after(table, guard) {
            // The claim is never given back, so there is one next table.
            Ok(next) => table.set_next(next),
            Err(OutOfMemory { .. }) => {
                // Carry on with longer chains, and try again when there are twice as many.
                growth.overflow_mark.store(2 * overflow, Ordering::Relaxed);
                growth.claimed.store(false, Ordering::Release);
            }
        }
    }

    /// Moves a few buckets if the index is growing, and says whether it is. Every insertion does so; a background thread
    /// may, too, to bring a growth to its end when no thread inserts.
    #[inline]
    pub fn advance_growth(&self, guard: &Guard<'_>) -> bool {
        let table = self.table(guard);
        match table.next() {
            None => false,
            Some(next) => self.move_some(table, next, guard),
        }
    }

    #[cold]
    fn move_some(&self, table: Table<'_>, next: Table<'_>, guard: &Guard<'_>) -> bool {
        let Header { buckets, growth, .. } = table.header();
        // Relaxed: the cursor hands out numbers; what is done with them is ordered by the buckets' latches.
        let start = match growth.cursor.load(Ordering::Relaxed) {
            taken if taken >= *buckets => return true,
            _ => growth.cursor.fetch_add(MOVES_PER_INSERT, Ordering::Relaxed),
        };
        let end = buckets.min(&(start + MOVES_PER_INSERT)).to_owned();
        if start >= end {
            return true;
        }
        let mut overflow = 0;
        for index in start..end {
            // SAFETY: the cursor gave the bucket to this thread alone.
            overflow += unsafe { table.move_bucket(index, next, self.seed, guard) };
        }
        next.header().growth.overflow.fetch_add(overflow, Ordering::Relaxed);
        // Release and acquire: the thread that moves the last buckets has seen all moves, and publishes them below.
        if growth.moved.fetch_add(end - start, Ordering::AcqRel) + end - start < *buckets {
            return true;
        }
        // Release pairs with the acquire in `table`.
        self.current.store(next.raw().as_ptr(), Ordering::Release);
        // SAFETY: the table is no longer the current one, so threads that pin from now on do not find it.
        unsafe { guard.retire(table.raw().cast(), table.bytes()) };
        false
    }
}

fn allocate_overflow(guard: &Guard<'_>) -> Result<NonNull<Bucket>, OutOfMemory> {
    let bucket = guard.allocate(size_of::<Bucket>())?.cast::<Bucket>();
    // SAFETY: the allocation is 64 bytes, aligned to 64, and not shared yet.
    unsafe { bucket.write(Bucket::new(0)) };
    Ok(bucket)
}

/// A lookup of a key that does not lie in its bucket itself, or that met a writer or a moved bucket.
#[inline(never)]
fn get_anywhere<K: EncodedKey>(mut table: Table<'_>, key: K, hash: u64) -> Lookup {
    let probe = &Probe::with_hash(key, hash);
    let mut backoff = Backoff::new();
    loop {
        // SAFETY: the table was the current one, or was reached through a moved bucket that covers the hash.
        let head = unsafe { table.bucket(probe.hash) };
        let meta = head.meta();
        if meta.is_moved() && !meta.is_latched() {
            table = table.next().expect("a moved bucket's table has a next one");
            continue;
        }
        if meta.is_stable()
            && let Ok(handle) = head.read(meta, probe)
        {
            return Lookup { handle, stamp: table.stamp(head.into(), meta.insertions()) };
        }
        backoff.wait();
    }
}
