//! One bucket: a cache line with a meta word, a chain pointer and three slots.
//!
//! The meta word of a bucket's head holds the latch, the mark of a moved bucket, the kinds of the three slots and the
//! number of insertions into the whole chain. Overflow buckets have the same layout and use only the kinds.
//!
//! Slot words change under the latch and only by an insertion or a move. Therefore a reader that finds the head's meta
//! word as it was before has read words that belong together: a removal clears a kind and leaves the words, a
//! replacement stores one word. No counter but that of insertions is needed.

use std::ptr::{self, NonNull};

use polychron_base::key::EncodedKey;
use polychron_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use polychron_sync::{Backoff, MODELLED};

use super::entry::{EMPTY, LONG, LongKey, Probe};
use crate::Handle;

pub(super) const SLOTS: usize = 3;

const LATCHED: u64 = 1;
const MOVED: u64 = 1 << 1;
const KIND_SHIFT: u32 = 2;
const KIND_BITS: u32 = 4;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const COUNT_SHIFT: u32 = KIND_SHIFT + KIND_BITS * SLOTS as u32;
const KINDS_MASK: u64 = (1 << COUNT_SHIFT) - (1 << KIND_SHIFT);

/// One key word and what it maps to: a handle as an address without provenance, or a pointer to a long key's node.
#[repr(C)]
pub(super) struct Slot {
    pub(super) word: AtomicU64,
    pub(super) value: AtomicPtr<LongKey>,
}

#[repr(C, align(64))]
pub(super) struct Bucket {
    meta: AtomicU64,
    /// The next overflow bucket; in a moved head, the lower of its two successors (the other one lies behind it).
    pub(super) next: AtomicPtr<Bucket>,
    pub(super) slots: [Slot; SLOTS],
}

const _: () = assert!(MODELLED || size_of::<Bucket>() == 64);
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// A meta word, as loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta(u64);

impl Meta {
    #[inline]
    pub(super) fn is_stable(self) -> bool {
        self.0 & (LATCHED | MOVED) == 0
    }

    #[inline]
    pub(super) fn is_latched(self) -> bool {
        self.0 & LATCHED != 0
    }

    #[inline]
    pub(super) fn is_moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// Insertions into the chain so far: the state that stamps carry.
    #[inline]
    pub(super) fn insertions(self) -> u64 {
        self.0 >> COUNT_SHIFT
    }

    #[inline]
    pub(super) fn kind(self, slot: usize) -> u64 {
        (self.0 >> (KIND_SHIFT + KIND_BITS * slot as u32)) & KIND_MASK
    }

    pub(super) fn has_no_entries(self) -> bool {
        self.0 & KINDS_MASK == 0
    }

    fn free_slot(self) -> Option<usize> {
        (0..SLOTS).find(|slot| self.kind(*slot) == EMPTY)
    }

    pub(super) fn with_kind(self, slot: usize, kind: u64) -> Self {
        let shift = KIND_SHIFT + KIND_BITS * slot as u32;
        Self(self.0 & !(KIND_MASK << shift) | (kind << shift))
    }

    fn with_insertion(self) -> Self {
        Self(self.0.wrapping_add(1 << COUNT_SHIFT))
    }
}

/// An optimistic read met a writer and must start again.
pub(super) struct Disturbed;

/// A handle as a slot's value.
#[inline]
pub(super) fn inline_value(handle: Handle) -> *mut LongKey {
    ptr::without_provenance_mut(handle.get() as usize)
}

impl Bucket {
    /// An empty bucket that has seen `insertions` insertions.
    pub(super) fn new(insertions: u64) -> Self {
        let slot = || Slot { word: AtomicU64::new(0), value: AtomicPtr::new(ptr::null_mut()) };
        Self {
            meta: AtomicU64::new(insertions << COUNT_SHIFT),
            next: AtomicPtr::new(ptr::null_mut()),
            slots: [slot(), slot(), slot()],
        }
    }

    /// The meta word. Acquire pairs with the release of every store to it: a thread that sees a kind sees the words behind it, who
    /// sees the mark of a move sees the successors.
    #[inline]
    pub(super) fn meta(&self) -> Meta {
        Meta(self.meta.load(Ordering::Acquire))
    }

    /// The meta word for validation: in the one order of all SeqCst operations, a load that comes after an insertion's
    /// latch (a SeqCst exchange) sees the latch or what the insertion left behind.
    #[inline]
    pub(super) fn meta_in_order(&self) -> Meta {
        Meta(self.meta.load(Ordering::SeqCst))
    }

    /// Publishes kinds of an overflow bucket, or of a bucket that is not reachable yet. Release pairs with
    /// [`Bucket::meta`].
    pub(super) fn set_meta(&self, meta: Meta) {
        self.meta.store(meta.0, Ordering::Release);
    }

    /// Writes a slot's words. The caller holds the latch of the chain.
    pub(super) fn fill(&self, slot: usize, word: u64, value: *mut LongKey) {
        // Release pairs with the acquire loads of optimistic readers: a thread that sees a new word sees the latch in the head.
        self.slots[slot].word.store(word, Ordering::Release);
        self.slots[slot].value.store(value, Ordering::Release);
    }

    /// Takes the latch; `None` when the bucket was moved.
    pub(super) fn latch(&self) -> Option<Latched<'_>> {
        let mut backoff = Backoff::new();
        loop {
            let meta = self.meta();
            if meta.is_moved() {
                return None;
            }
            if !meta.is_latched() {
                // SeqCst pairs with `meta_in_order` of validators; as an acquire it pairs with the release of the latch.
                let taken =
                    self.meta.compare_exchange_weak(meta.0, meta.0 | LATCHED, Ordering::SeqCst, Ordering::Relaxed);
                if taken.is_ok() {
                    return Some(Latched { head: self, meta });
                }
            }
            backoff.wait();
        }
    }

    /// The slots of this bucket, as a bit set, whose kind and word are those of the probe.
    #[inline]
    fn candidates<K>(&self, kinds: Meta, probe: &Probe<K>) -> u32 {
        let mut found = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            // Acquire pairs with `fill`.
            let same = (slot.word.load(Ordering::Acquire) == probe.word) & (kinds.kind(index) == probe.kind);
            found |= u32::from(same) << index;
        }
        found
    }

    /// The short way of [`Bucket::read`]: the handle of a key that lies in this bucket itself.
    ///
    /// Only words are compared at first, which is less work; a free slot, or a key of another length, that has the same
    /// word by chance is left to the long way.
    #[inline]
    pub(super) fn read_inline<K>(&self, meta: Meta, probe: &Probe<K>) -> Option<Handle> {
        let mut found = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            // Acquire pairs with `fill`.
            found |= u32::from(slot.word.load(Ordering::Acquire) == probe.word) << index;
        }
        // No branch tells the slots apart: which one it is no thread can predict, and a wrong guess would wait for the memory.
        if found == 0 {
            return None;
        }
        let index = found.trailing_zeros() as usize;
        // Acquire pairs with `fill` and with the release of a replacement.
        let value = self.slots[index].value.load(Ordering::Acquire);
        if probe.kind == LONG || meta.kind(index) != probe.kind || self.meta() != meta {
            return None;
        }
        Handle::new(value.addr() as u64)
    }

    /// Looks the probe up in the chain of this head without writing anything; `meta` is the head's stable meta word.
    ///
    /// The caller's guard must have been alive since before the head was found.
    pub(super) fn read<K: EncodedKey>(&self, meta: Meta, probe: &Probe<K>) -> Result<Option<Handle>, Disturbed> {
        let (mut bucket, mut kinds) = (self, meta);
        loop {
            let mut found = bucket.candidates(kinds, probe);
            while found != 0 {
                // Acquire pairs with `fill` and with the release of a replacement.
                let value = bucket.slots[found.trailing_zeros() as usize].value.load(Ordering::Acquire);
                if self.meta() != meta {
                    return Err(Disturbed);
                }
                if probe.kind != LONG {
                    return Ok(Handle::new(value.addr() as u64));
                }
                // SAFETY: no slot was filled while we looked, so the value belongs to the kind and is a node; it was
                // linked under our guard and thus is not freed.
                if let Some(handle) = unsafe { read_long(value, probe.key) } {
                    return Ok(Some(handle));
                }
                found &= found - 1;
            }
            // Acquire pairs with the release that linked the next bucket: its words are initialised.
            let next = bucket.next.load(Ordering::Acquire);
            if self.meta() != meta {
                return Err(Disturbed);
            }
            // SAFETY: chain pointers are null or point to buckets that are retired, never freed, while guards live.
            let Some(next) = (unsafe { next.as_ref() }) else {
                return Ok(None);
            };
            (bucket, kinds) = (next, next.meta());
        }
    }
}

/// The handle of a long key's node if its key is `key`.
///
/// # Safety
/// `node` points to a node that lives throughout the call.
unsafe fn read_long<K: EncodedKey>(node: *mut LongKey, key: K) -> Option<Handle> {
    let node = NonNull::new(node)?;
    // SAFETY: passed on from the caller.
    let (same, handle) = unsafe { (LongKey::matches(node, key), &(*node.as_ptr()).handle) };
    // Acquire pairs with the release of a replacement.
    if same { Handle::new(handle.load(Ordering::Acquire)) } else { None }
}

/// A position in a latched chain.
#[derive(Clone, Copy)]
pub(super) struct Position<'g> {
    pub(super) bucket: &'g Bucket,
    pub(super) slot: usize,
}

/// The result of a search of a latched chain.
pub(super) struct Search<'g> {
    /// The key's place and handle.
    pub(super) found: Option<(Position<'g>, Handle)>,
    /// The first free place.
    pub(super) free: Option<Position<'g>>,
    /// The last bucket of the chain, unless the key was found.
    pub(super) last: &'g Bucket,
}

/// A latched chain. Dropping releases the latch and leaves the meta word as it was.
pub(super) struct Latched<'g> {
    pub(super) head: &'g Bucket,
    /// The head's meta word without the latch: what it will be after the release.
    pub(super) meta: Meta,
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        // Release pairs with `Bucket::meta` and with the next latch.
        self.head.meta.store(self.meta.0, Ordering::Release);
    }
}

impl<'g> Latched<'g> {
    /// Kinds of a bucket of the chain.
    pub(super) fn kinds(&self, bucket: &Bucket) -> Meta {
        if ptr::eq(bucket, self.head) { self.meta } else { bucket.meta() }
    }

    /// Changes one kind of a bucket of the chain.
    pub(super) fn set_kind(&mut self, position: Position<'_>, kind: u64) {
        if ptr::eq(position.bucket, self.head) {
            self.meta = self.meta.with_kind(position.slot, kind);
        } else {
            position.bucket.set_meta(position.bucket.meta().with_kind(position.slot, kind));
        }
    }

    pub(super) fn count_insertion(&mut self) {
        self.meta = self.meta.with_insertion();
    }

    /// Releases the latch with the mark of a move.
    pub(super) fn release_as_moved(self) {
        // SeqCst pairs with `meta_in_order`: a validation that comes after an insertion into a successor must see the
        // mark, or it would not go on to the successor. It is a release as well, for `Bucket::meta`.
        self.head.meta.store(self.meta.0 | MOVED, Ordering::SeqCst);
        std::mem::forget(self);
    }

    /// The next bucket of a chain.
    pub(super) fn next(&self, bucket: &Bucket) -> Option<&'g Bucket> {
        // Relaxed: chains change under the latch, and taking it acquired all earlier changes.
        // SAFETY: the pointer is null or points to an overflow bucket of this chain, which is linked while we hold the latch.
        unsafe { bucket.next.load(Ordering::Relaxed).as_ref() }
    }

    /// Searches the whole chain for the probe.
    pub(super) fn search<K: EncodedKey>(&self, probe: &Probe<K>) -> Search<'g> {
        let mut free = None;
        let mut bucket = self.head;
        loop {
            let kinds = self.kinds(bucket);
            let mut found = bucket.candidates(kinds, probe);
            while found != 0 {
                let position = Position { bucket, slot: found.trailing_zeros() as usize };
                // Relaxed: values change under the latch that we hold.
                let value = bucket.slots[position.slot].value.load(Ordering::Relaxed);
                let handle = if probe.kind == LONG {
                    // SAFETY: the slot is occupied by a long key, and the latch keeps it from being removed.
                    unsafe { read_long(value, probe.key) }
                } else {
                    Handle::new(value.addr() as u64)
                };
                if let Some(handle) = handle {
                    return Search { found: Some((position, handle)), free, last: bucket };
                }
                found &= found - 1;
            }
            free = free.or_else(|| kinds.free_slot().map(|slot| Position { bucket, slot }));
            match self.next(bucket) {
                Some(next) => bucket = next,
                None => return Search { found: None, free, last: bucket },
            }
        }
    }

    /// Links `bucket`, which is empty, behind the `last` one of the chain with the probe's key as its first entry.
    ///
    /// # Safety
    /// `bucket` is initialised and known to this thread only.
    pub(super) unsafe fn append<K>(
        &mut self,
        last: &Bucket,
        bucket: NonNull<Bucket>,
        probe: &Probe<K>,
        value: *mut LongKey,
    ) {
        // SAFETY: the caller says that the bucket is initialised.
        let new = unsafe { bucket.as_ref() };
        new.fill(0, probe.word, value);
        new.set_meta(new.meta().with_kind(0, probe.kind));
        // Release pairs with the acquire of readers: a thread that follows the pointer sees the bucket initialised.
        last.next.store(bucket.as_ptr(), Ordering::Release);
    }

    /// Takes an overflow bucket out of the chain if it has no entries, and returns it for retirement.
    pub(super) fn unlink_if_empty(&self, bucket: &'g Bucket) -> Option<NonNull<Bucket>> {
        if ptr::eq(bucket, self.head) || !bucket.meta().has_no_entries() {
            return None;
        }
        let mut before = self.head;
        while let Some(next) = self.next(before) {
            if ptr::eq(next, bucket) {
                let unlinked = NonNull::new(before.next.load(Ordering::Relaxed));
                // The unlinked bucket keeps its own chain pointer, for readers that are in it.
                // Release pairs with the readers' acquire: the buckets behind stay initialised for them.
                before.next.store(bucket.next.load(Ordering::Relaxed), Ordering::Release);
                return unlinked;
            }
            before = next;
        }
        None
    }
}
