//! Nodes in general, and leaves: their layout, and what is done inside one leaf. Interior nodes are in `interior.rs`.
//!
//! ```text
//! leaf, five lines:      version parent insertions permutation kinds low next prev | 15 slices 15 values | forward, its state
//! interior, six lines:   version parent count | 22 slices 23 children
//! ```

use super::interior::Interior;
use super::permutation::Permutation;
use super::version::{DELETED, DIRTY, INTERIOR, LATCHED, Version};
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use polychron_sync::{MODELLED, prefetch_read};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Entries of a leaf. All keys with the same slice lie in one leaf: at most ten entries (lengths 0 to 8, and one for all
/// that are longer).
pub(super) const LEAF_WIDTH: usize = 15;

/// Kinds 0 to 8: the key ends in this slice, with so many bytes; the value is its handle.
/// This kind: exactly one key goes on beyond the slice; the value points to its [`Suffix`](super::suffix::Suffix).
pub(super) const KIND_SUFFIX: usize = 9;
/// Several keys go on beyond the slice, or did once; the value points to the root of the next layer.
pub(super) const KIND_LAYER: usize = 10;
/// The slot is free.
const KIND_FREE: u64 = 15;
/// The highest nibble of the kinds: the slot of the entry that came last, or that of none.
const LATEST_SHIFT: usize = 4 * LEAF_WIDTH;
const ALL_FREE: u64 = u64::MAX;

/// The place of a kind in the order of the keys with one slice.
#[inline]
pub(super) const fn class(kind: usize) -> usize {
    if kind > KIND_SUFFIX { KIND_SUFFIX } else { kind }
}

/// The contents of a value slot of a leaf. Handles are carried as addresses without provenance.
pub(super) type Value = *mut Header;

/// The common beginning of both kinds of node.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: Version,
    /// The interior node above; for the root of a layer the leaf that holds the layer; null for the root of the index.
    /// Changed only under the latch of the node it points to.
    parent: AtomicPtr<Header>,
}

impl Header {
    /// The header of a node that is created latched and dirty, without a parent.
    pub(super) fn newborn(kind: u64) -> Self {
        Self { version: Version::new(LATCHED | DIRTY | kind), parent: AtomicPtr::default() }
    }
}

/// A leaf.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Leaf {
    header: Header,
    insertions: AtomicU64,
    permutation: AtomicU64,
    kinds: AtomicU64,
    low: AtomicU64,
    next: AtomicPtr<Header>,
    prev: AtomicPtr<Header>,
    slices: [AtomicU64; LEAF_WIDTH],
    values: [AtomicPtr<Header>; LEAF_WIDTH],
    forward: AtomicPtr<Header>,
    forward_state: AtomicU64,
}

const _: () = assert!(MODELLED || size_of::<Leaf>() == 320);
const _: () = assert!(MODELLED || std::mem::offset_of!(Leaf, slices) == 64);

/// A node of either kind that stays readable for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node<'g> {
    pointer: NonNull<Header>,
    guarded: PhantomData<&'g Header>,
}

impl<'g> Node<'g> {
    /// # Safety
    /// The pointer names a whole leaf or interior node that stays allocated for `'g`.
    #[inline]
    pub(super) unsafe fn new(pointer: NonNull<Header>) -> Self {
        Self { pointer, guarded: PhantomData }
    }

    /// # Safety
    /// As for [`Node::new`], or the pointer is null.
    #[inline]
    pub(super) unsafe fn from_raw(pointer: *mut Header) -> Option<Self> {
        NonNull::new(pointer).map(|pointer| Self { pointer, guarded: PhantomData })
    }

    #[inline]
    pub(super) fn pointer(self) -> NonNull<Header> {
        self.pointer
    }

    #[inline]
    pub(super) fn as_raw(self) -> *mut Header {
        self.pointer.as_ptr()
    }

    #[inline]
    pub(super) fn header(self) -> &'g Header {
        // SAFETY: `new` asks for a node that lives for 'g; all fields are atomics, so sharing is sound.
        unsafe { self.pointer.as_ref() }
    }

    #[inline]
    pub(super) fn version(self) -> &'g Version {
        &self.header().version
    }

    #[inline]
    pub(super) fn is_interior(self) -> bool {
        self.version().load() & INTERIOR != 0
    }

    /// # Safety
    /// The node's version lacks the interior bit.
    #[inline]
    pub(super) unsafe fn as_leaf(self) -> &'g Leaf {
        debug_assert!(!self.is_interior());
        // SAFETY: the caller knows the kind, and the pointer came with the provenance of the whole node.
        unsafe { self.pointer.cast::<Leaf>().as_ref() }
    }

    /// # Safety
    /// The node's version has the interior bit.
    #[inline]
    pub(super) unsafe fn as_interior(self) -> &'g Interior {
        debug_assert!(self.is_interior());
        // SAFETY: as above.
        unsafe { self.pointer.cast::<Interior>().as_ref() }
    }

    /// The leaf, or else the interior node.
    #[inline]
    pub(super) fn kind(self) -> Result<&'g Leaf, &'g Interior> {
        if self.is_interior() {
            // SAFETY: the bit was looked at, and never changes.
            Err(unsafe { self.as_interior() })
        } else {
            // SAFETY: as above.
            Ok(unsafe { self.as_leaf() })
        }
    }

    /// The node above; stable only under that node's latch.
    pub(super) fn parent(self) -> Option<Node<'g>> {
        // Acquire: pairs with the Release in `set_parent`.
        // SAFETY: parents are unlinked only after their children, so a parent seen under the guard lives for 'g.
        unsafe { Self::from_raw(self.header().parent.load(Ordering::Acquire)) }
    }

    /// Under the latch of the old parent, or of the new one when there was none.
    pub(super) fn set_parent(self, parent: Option<Node<'_>>) {
        // Release: pairs with the Acquire in `parent`.
        self.header().parent.store(parent.map_or(ptr::null_mut(), Node::as_raw), Ordering::Release);
    }

    /// Bytes the node takes.
    pub(super) fn bytes(self) -> usize {
        if self.is_interior() { size_of::<Interior>() } else { size_of::<Leaf>() }
    }

    /// Gives the node's memory back once no guard can see it.
    ///
    /// # Safety
    /// The node was unlinked of the tree by the caller.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        let bytes = self.bytes();
        // SAFETY: nodes are allocated with their size; the caller took it out, so new guards cannot reach it.
        unsafe { guard.retire(self.pointer.cast(), bytes) }
    }

    /// Gives the node's memory back at once.
    ///
    /// # Safety
    /// No other thread can reach the node, and it is no longer used.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        let bytes = self.bytes();
        // SAFETY: the caller promises it.
        unsafe { guard.free(self.pointer.cast(), bytes) }
    }
}

/// Asks for all lines of a node.
#[inline]
pub(super) fn prefetch_node(node: *const Header) {
    for line in 0..6 {
        prefetch_read(node.cast::<u8>().wrapping_add(64 * line));
    }
}

/// One entry of a leaf, unlinked of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) slice: u64,
    pub(super) kind: usize,
    pub(super) value: Value,
}

impl Entry {
    const NONE: Self = Self { slice: 0, kind: 0, value: ptr::null_mut() };
}

/// A run of entries in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    list: [Entry; LEAF_WIDTH + 1],
    count: usize,
}

impl Entries {
    pub(super) const fn new() -> Self {
        Self { list: [Entry::NONE; LEAF_WIDTH + 1], count: 0 }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.list[self.count] = entry;
        self.count += 1;
    }
}

impl std::ops::Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.list[..self.count]
    }
}

/// A copy of a leaf. It means something once the leaf's version was validated after the copy was made.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) state: u64,
    pub(super) permutation: Permutation,
    kinds: u64,
    pub(super) low: u64,
    pub(super) next: *mut Header,
    slices: [u64; LEAF_WIDTH],
    values: [Value; LEAF_WIDTH],
}

impl Snapshot {
    #[inline]
    pub(super) fn entry(&self, position: usize) -> Entry {
        let slot = self.permutation.slot(position);
        Entry { slice: self.slices[slot], kind: (self.kinds >> (4 * slot)) as usize & 15, value: self.values[slot] }
    }
}

// In the methods below loads are Acquire and stores are Release, and pair with each other as `version.rs` explains.
impl Leaf {
    /// A new leaf, born latched and dirty.
    pub(super) fn new(low: u64, entries: &[Entry]) -> Self {
        let mut kinds = ALL_FREE;
        for (slot, entry) in entries.iter().enumerate() {
            kinds = kinds & !(15 << (4 * slot)) | (entry.kind as u64) << (4 * slot);
        }
        let entry = |slot: usize| entries.get(slot).copied().unwrap_or(Entry::NONE);
        Self {
            header: Header::newborn(0),
            insertions: AtomicU64::new(1),
            permutation: AtomicU64::new(Permutation::identity(entries.len()).0),
            kinds: AtomicU64::new(kinds),
            low: AtomicU64::new(low),
            next: AtomicPtr::default(),
            prev: AtomicPtr::default(),
            slices: std::array::from_fn(|slot| AtomicU64::new(entry(slot).slice)),
            values: std::array::from_fn(|slot| AtomicPtr::new(entry(slot).value)),
            forward: AtomicPtr::default(),
            forward_state: AtomicU64::new(0),
        }
    }

    /// A new leaf in the guard's memory.
    pub(super) fn allocate<'g>(low: u64, entries: &[Entry], guard: &'g Guard<'_>) -> Result<&'g Leaf, OutOfMemory> {
        let memory = guard.allocate(size_of::<Leaf>())?.cast::<Leaf>();
        // SAFETY: the memory is fresh, large enough and aligned to 64; nothing frees it while the guard lives but an
        // explicit `free` of a leaf that was never published.
        unsafe {
            memory.write(Self::new(low, entries));
            Ok(memory.as_ref())
        }
    }

    #[inline]
    pub(super) fn node(&self) -> Node<'_> {
        // SAFETY: the reference covers the whole leaf.
        unsafe { Node::new(NonNull::from(self).cast()) }
    }

    #[inline]
    pub(super) fn version(&self) -> &Version {
        &self.header.version
    }

    #[inline]
    pub(super) fn state(&self) -> u64 {
        self.insertions.load(Ordering::Acquire)
    }

    /// The state as a validator must read it.
    #[inline]
    pub(super) fn state_sequential(&self) -> u64 {
        // SeqCst: ordered after the validator's load of the version word.
        self.insertions.load(Ordering::SeqCst)
    }

    /// Makes every stamp of the leaf fail; returns the new state.
    #[inline]
    pub(super) fn count_insertion(&self) -> u64 {
        let state = self.insertions.load(Ordering::Relaxed) + 1;
        self.insertions.store(state, Ordering::Release);
        state
    }

    #[inline]
    pub(super) fn permutation(&self) -> Permutation {
        Permutation(self.permutation.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn low(&self) -> u64 {
        self.low.load(Ordering::Acquire)
    }

    pub(super) fn set_low(&self, low: u64) {
        self.low.store(low, Ordering::Release);
    }

    /// The leaf to the right in the same layer.
    #[inline]
    pub(super) fn next(&self) -> Option<&Leaf> {
        // SAFETY: a leaf is unlinked after it was unlinked, so what is linked here lives as long as the guard.
        unsafe { Node::from_raw(self.next.load(Ordering::Acquire)).map(|node| node.as_leaf()) }
    }

    /// The leaf to the left in the same layer. Changed under that leaf's latch.
    #[inline]
    pub(super) fn prev(&self) -> Option<&Leaf> {
        // SAFETY: as in `next`; a leaf that is out keeps a left neighbour that was unlinked later than itself.
        unsafe { Node::from_raw(self.prev.load(Ordering::Acquire)).map(|node| node.as_leaf()) }
    }

    pub(super) fn set_next(&self, next: Option<&Leaf>) {
        self.next.store(next.map_or(ptr::null_mut(), |leaf| leaf.node().as_raw()), Ordering::Release);
    }

    pub(super) fn set_prev(&self, prev: Option<&Leaf>) {
        self.prev.store(prev.map_or(ptr::null_mut(), |leaf| leaf.node().as_raw()), Ordering::Release);
    }

    /// Where the range of a leaf that is out went, and that leaf's state when it did.
    pub(super) fn forward(&self) -> Option<(&Leaf, u64)> {
        // SAFETY: the heir was in the tree when this leaf was unlinked, so it is unlinked later and lives as long.
        let heir = unsafe { Node::from_raw(self.forward.load(Ordering::Acquire)).map(|node| node.as_leaf())? };
        Some((heir, self.forward_state.load(Ordering::Acquire)))
    }

    pub(super) fn set_forward(&self, heir: &Leaf) {
        self.forward_state.store(heir.state(), Ordering::Release);
        self.forward.store(heir.node().as_raw(), Ordering::Release);
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> Value {
        self.values[slot].load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_value(&self, slot: usize, value: Value) {
        self.values[slot].store(value, Ordering::Release);
    }

    /// The slice of the last entry; that of the first place in a leaf without entries.
    #[inline]
    pub(super) fn last_slice(&self) -> u64 {
        let permutation = self.permutation();
        self.slices[permutation.slot(permutation.count().saturating_sub(1))].load(Ordering::Acquire)
    }

    /// The entry for a key that has `remaining` bytes from this slice on: its slot and kind.
    #[inline]
    pub(super) fn find(&self, slice: u64, remaining: usize) -> Option<(usize, usize)> {
        let kinds = self.kinds.load(Ordering::Acquire);
        let mut equal = 0u32;
        for (slot, stored) in self.slices.iter().enumerate() {
            equal |= u32::from(stored.load(Ordering::Acquire) == slice) << slot;
        }
        let (first, second) = if remaining > 8 { (KIND_SUFFIX, KIND_LAYER) } else { (remaining, remaining) };
        while equal != 0 {
            let slot = equal.trailing_zeros() as usize;
            let kind = (kinds >> (4 * slot)) as usize & 15;
            if kind == first || kind == second {
                return Some((slot, kind));
            }
            equal &= equal - 1;
        }
        None
    }

    #[inline]
    fn entry_at(&self, slot: usize) -> Entry {
        Entry {
            slice: self.slices[slot].load(Ordering::Acquire),
            kind: (self.kinds.load(Ordering::Acquire) >> (4 * slot)) as usize & 15,
            value: self.value(slot),
        }
    }

    /// All entries in order.
    pub(super) fn entries(&self) -> Entries {
        let permutation = self.permutation();
        let mut entries = Entries::new();
        for position in 0..permutation.count() {
            entries.push(self.entry_at(permutation.slot(position)));
        }
        entries
    }

    /// The number of entries before a key. Under the latch.
    pub(super) fn rank(&self, slice: u64, remaining: usize) -> usize {
        let permutation = self.permutation();
        let kinds = self.kinds.load(Ordering::Acquire);
        let wanted = class(remaining);
        // Ascending keys go behind the last.
        if self.last_slice() < slice {
            return permutation.count();
        }
        let mut rank = 0;
        for position in 0..permutation.count() {
            let slot = permutation.slot(position);
            let stored = self.slices[slot].load(Ordering::Acquire);
            let kind = class((kinds >> (4 * slot)) as usize & 15);
            rank += usize::from(stored < slice || (stored == slice && kind < wanted));
        }
        rank
    }

    /// The position of the entry in `slot`, which is there under the latch.
    pub(super) fn position_of(&self, slot: usize) -> Option<usize> {
        let permutation = self.permutation();
        (0..permutation.count()).find(|position| permutation.slot(*position) == slot)
    }

    /// The value of the entry at `position`, if it is that of a key that ends in this slice, and the leaf is not being changed.
    #[inline]
    pub(super) fn value_at(&self, position: usize, slice: u64, remaining: usize) -> Option<Value> {
        let (version, permutation) = (self.version().load(), self.permutation());
        if version & (DIRTY | DELETED) != 0 || remaining > 8 || position >= permutation.count() {
            return None;
        }
        let entry = self.entry_at(permutation.slot(position));
        let is_there = entry.slice == slice && entry.kind == remaining;
        (is_there && self.version().is(version & !LATCHED)).then_some(entry.value)
    }

    /// The slot of the entry that holds a layer's root. Under the latch.
    pub(super) fn slot_of_layer(&self, root: Node<'_>) -> usize {
        let permutation = self.permutation();
        (0..permutation.count())
            .map(|position| permutation.slot(position))
            .find(|slot| self.value(*slot) == root.as_raw() && self.entry_at(*slot).kind == KIND_LAYER)
            .expect("the root's parent pointer names the leaf that holds the layer")
    }

    /// Adds an entry at `position`. Under the latch, marked dirty, not full.
    pub(super) fn insert_entry(&self, position: usize, entry: Entry) {
        let (permutation, slot) = self.permutation().insert(position);
        self.slices[slot].store(entry.slice, Ordering::Release);
        self.set_value(slot, entry.value);
        let kinds = self.kinds.load(Ordering::Relaxed) & !(15 << (4 * slot) | 15 << LATEST_SHIFT);
        self.kinds.store(kinds | (entry.kind as u64) << (4 * slot) | (slot as u64) << LATEST_SHIFT, Ordering::Release);
        self.permutation.store(permutation.0, Ordering::Release);
    }

    /// Whether an entry at `position` goes on where the one that came last ended: the insertions are probably ascending.
    /// Under the latch.
    pub(super) fn continues_run(&self, position: usize) -> bool {
        let latest = (self.kinds.load(Ordering::Relaxed) >> LATEST_SHIFT) as usize;
        position > 0 && self.permutation().slot(position - 1) == latest
    }

    /// Makes the entry in `slot` another one with the same slice. Under the latch, marked dirty.
    pub(super) fn replace_entry(&self, slot: usize, kind: usize, value: Value) {
        self.set_value(slot, value);
        self.set_kind(slot, kind as u64);
    }

    /// Takes the entry in `slot` out. Under the latch, marked dirty.
    pub(super) fn remove_entry(&self, slot: usize) {
        let position = self.position_of(slot).expect("the slot was found under the latch that still stands");
        let permutation = self.permutation().remove(position);
        self.set_kind(slot, KIND_FREE);
        self.permutation.store(permutation.0, Ordering::Release);
    }

    /// Keeps the first `count` entries. Under the latch, marked dirty.
    pub(super) fn truncate(&self, count: usize) {
        let permutation = self.permutation();
        for position in count..permutation.count() {
            self.set_kind(permutation.slot(position), KIND_FREE);
        }
        self.permutation.store(permutation.truncate(count).0, Ordering::Release);
    }

    fn set_kind(&self, slot: usize, kind: u64) {
        let kinds = self.kinds.load(Ordering::Relaxed);
        self.kinds.store(kinds & !(15 << (4 * slot)) | kind << (4 * slot), Ordering::Release);
    }

    /// A copy, to be validated by the caller.
    #[inline]
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state(),
            permutation: self.permutation(),
            kinds: self.kinds.load(Ordering::Acquire),
            low: self.low(),
            next: self.next.load(Ordering::Acquire),
            slices: std::array::from_fn(|slot| self.slices[slot].load(Ordering::Acquire)),
            values: std::array::from_fn(|slot| self.value(slot)),
        }
    }
}
