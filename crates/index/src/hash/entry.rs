//! The contents of a slot: matching of a key against it, and the storage of keys that do not fit in it.

use std::ptr::NonNull;

use polychron_base::key::{EncodedKey, HashSeed, Key8};
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::Handle;

/// The slot is free.
pub(super) const EMPTY: u64 = 0;
/// The slot's word is the key's hash and its value points to a [`LongKey`]. Kinds between say `length + 1` of a key that
/// is its own word.
pub(super) const LONG: u64 = 10;

/// Longest key that is kept in the bucket itself, in bytes.
const INLINE_BYTES: usize = 8;

/// A key prepared for comparison with slots.
#[derive(Clone, Copy)]
pub(super) struct Probe<K> {
    pub(super) key: K,
    pub(super) hash: u64,
    /// The word that the slot must have: the key's only slice, or its hash.
    pub(super) word: u64,
    /// The kind that the slot must have.
    pub(super) kind: u64,
}

impl<K: EncodedKey> Probe<K> {
    #[inline]
    pub(super) fn new(key: K, seed: HashSeed) -> Self {
        Self::with_hash(key, key.hash(seed))
    }

    #[inline]
    pub(super) fn with_hash(key: K, hash: u64) -> Self {
        let len = key.len();
        if len <= INLINE_BYTES {
            Self { key, hash, word: key.slice(0), kind: len as u64 + 1 }
        } else {
            Self { key, hash, word: hash, kind: LONG }
        }
    }

    pub(super) fn is_long(&self) -> bool {
        self.kind == LONG
    }
}

/// The hash of the key in a slot: bucket moves need it again.
#[inline]
pub(super) fn hash_of(kind: u64, word: u64, seed: HashSeed) -> u64 {
    if kind == LONG { word } else { inline_key(kind, word).hash(seed) }
}

#[inline]
fn inline_key(kind: u64, word: u64) -> Key8 {
    let len = kind as usize - 1;
    let value = if len == 0 { 0 } else { word >> (64 - 8 * len) };
    Key8::new(value, len)
}

/// A key of more than 8 bytes with its handle. The slices follow the header in the same allocation and never change.
#[repr(C, align(8))]
pub(super) struct LongKey {
    pub(super) handle: AtomicU64,
    len: usize,
}

impl LongKey {
    fn slices_in(len: usize) -> usize {
        len.div_ceil(8)
    }

    fn bytes_for(len: usize) -> usize {
        size_of::<Self>() + Self::slices_in(len) * 8
    }

    /// Bytes that the node of `this` takes.
    ///
    /// # Safety
    /// `this` is live.
    pub(super) unsafe fn bytes(this: NonNull<Self>) -> usize {
        // SAFETY: the caller says that the node is live; its length never changes.
        Self::bytes_for(unsafe { (*this.as_ptr()).len })
    }

    pub(super) fn allocate<K: EncodedKey>(
        key: K,
        handle: Handle,
        guard: &Guard<'_>,
    ) -> Result<NonNull<Self>, OutOfMemory> {
        let len = key.len();
        let this = guard.allocate(Self::bytes_for(len))?.cast::<Self>();
        // SAFETY: the allocation is aligned to 16 bytes, has room for header and slices, and is not shared yet.
        unsafe {
            this.write(Self { handle: AtomicU64::new(handle.get()), len });
            let slices = this.add(1).cast::<u64>();
            for index in 0..Self::slices_in(len) {
                slices.add(index).write(key.slice(index));
            }
        }
        Ok(this)
    }

    /// The key's slices.
    ///
    /// # Safety
    /// `this` carries the provenance of the whole node, which stays allocated for `'g`.
    pub(super) unsafe fn slices<'g>(this: NonNull<Self>) -> &'g [u64] {
        // SAFETY: the slices were written before the node was published and are never written again.
        unsafe { std::slice::from_raw_parts(this.add(1).cast::<u64>().as_ptr(), Self::slices_in((*this.as_ptr()).len)) }
    }

    /// The node's handle if its key is `key`.
    ///
    /// # Safety
    /// As for [`LongKey::slices`], for the length of the call.
    pub(super) unsafe fn matches<K: EncodedKey>(this: NonNull<Self>, key: K) -> bool {
        // SAFETY: passed on from the caller.
        let (len, slices) = unsafe { ((*this.as_ptr()).len, Self::slices(this)) };
        len == key.len() && slices.iter().enumerate().all(|(index, slice)| *slice == key.slice(index))
    }
}

/// A key as the index stores it, lent to visitors.
#[derive(Clone, Copy, Debug)]
pub struct StoredKey<'g> {
    len: usize,
    word: u64,
    slices: &'g [u64],
}

impl EncodedKey for StoredKey<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        if self.len > INLINE_BYTES {
            self.slices.get(index).copied().unwrap_or(0)
        } else if index == 0 {
            self.word
        } else {
            0
        }
    }
}

/// A key and its handle, as [`HashIndex::for_each`](super::HashIndex::for_each) shows them.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'g> {
    /// The key.
    pub key: StoredKey<'g>,
    /// The handle that it maps to.
    pub handle: Handle,
}

impl Entry<'_> {
    /// The entry of an occupied slot.
    ///
    /// # Safety
    /// `kind`, `word` and `value` were together in one slot; if the kind is [`LONG`] the node stays allocated for `'g`.
    pub(super) unsafe fn of_slot<'g>(kind: u64, word: u64, value: *mut LongKey) -> Option<Entry<'g>> {
        if kind != LONG {
            let key = StoredKey { len: kind as usize - 1, word, slices: &[] };
            return Handle::new(value.addr() as u64).map(|handle| Entry { key, handle });
        }
        let node = NonNull::new(value)?;
        // SAFETY: the caller says that the pointer belongs to the kind, so it is a node, and that the node lives.
        let (len, slices, handle) = unsafe {
            // Acquire pairs with the release of a replacement's store.
            ((*value).len, LongKey::slices(node), (*value).handle.load(Ordering::Acquire))
        };
        Handle::new(handle).map(|handle| Entry { key: StoredKey { len, word, slices }, handle })
    }
}
