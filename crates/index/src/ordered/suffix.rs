//! The rest of a key that is alone under its slice: an allocation of its own, with the handle.

use crate::Handle;
use polychron_base::key::EncodedKey;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicU64, Ordering};
use std::cmp;
use std::ptr::NonNull;

use super::node::{Header, Value};

/// The head of a suffix; its slices follow. All but the handle is immutable once it is published.
#[repr(C)]
#[derive(Debug)]
struct Head {
    handle: AtomicU64,
    /// Bytes of the suffix.
    len: u64,
}

/// A suffix that stays readable for a while; the holder knows for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suffix<'g> {
    head: &'g Head,
    slices: &'g [u64],
}

fn bytes_for(len: usize) -> usize {
    // Sixteen is the alignment of the memory's small blocks.
    (size_of::<Head>() + len.div_ceil(8) * 8).next_multiple_of(16)
}

impl<'g> Suffix<'g> {
    /// Stores what a key has beyond its first `depth` slices.
    pub(super) fn allocate<K: EncodedKey>(
        key: K,
        depth: usize,
        handle: Handle,
        guard: &Guard<'_>,
    ) -> Result<Value, OutOfMemory> {
        let len = key.len() - 8 * depth;
        let memory = guard.allocate(bytes_for(len))?;
        // SAFETY: the memory is fresh, aligned to 16 and holds the head and the slices.
        unsafe {
            memory.cast::<Head>().write(Head { handle: AtomicU64::new(handle.get()), len: len as u64 });
            let slices = memory.cast::<Head>().add(1).cast::<u64>();
            for index in 0..len.div_ceil(8) {
                slices.add(index).write(key.slice(depth + index));
            }
        }
        Ok(memory.cast::<Header>().as_ptr())
    }

    /// # Safety
    /// The value is that of an entry of kind suffix, read from a validated or latched leaf, and the guard under which that
    /// happened lives for `'g`.
    #[inline]
    pub(super) unsafe fn from_value(value: Value) -> Self {
        // SAFETY: such values come from `allocate`, were published with Release and read with Acquire, and are retired,
        // not freed.
        unsafe {
            let head = value.cast::<Head>();
            let len = (*head).len as usize;
            let slices = std::slice::from_raw_parts(head.add(1).cast::<u64>(), len.div_ceil(8));
            Self { head: &*head, slices }
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head.len as usize
    }

    #[inline]
    pub(super) fn handle(&self) -> Handle {
        // Acquire: pairs with the Release in `set_handle`, so that what the handle names is seen.
        Handle::new(self.head.handle.load(Ordering::Acquire)).expect("handles are not zero")
    }

    /// Under the leaf's latch.
    pub(super) fn set_handle(&self, handle: Handle) {
        // Release: pairs with the Acquire in `handle`.
        self.head.handle.store(handle.get(), Ordering::Release);
    }

    /// Whether this is what `key` has beyond its first `depth` slices.
    #[inline]
    pub(super) fn equals<K: EncodedKey>(&self, key: K, depth: usize) -> bool {
        self.len() == key.len() - 8 * depth
            && self.slices.iter().enumerate().all(|(index, slice)| *slice == key.slice(depth + index))
    }

    /// Compares with what `key` has beyond its first `depth` slices.
    pub(super) fn compare<K: EncodedKey>(&self, key: K, depth: usize) -> cmp::Ordering {
        let len = key.len() - 8 * depth;
        for (index, slice) in self.slices.iter().enumerate().take(len.div_ceil(8)) {
            match slice.cmp(&key.slice(depth + index)) {
                cmp::Ordering::Equal => {}
                different => return different,
            }
        }
        self.len().cmp(&len)
    }

    /// Writes the bytes to the front of `buffer`, padded to whole slices.
    pub(super) fn write_to(&self, buffer: &mut [u8]) {
        for (chunk, slice) in buffer.chunks_exact_mut(8).zip(self.slices) {
            chunk.copy_from_slice(&slice.to_be_bytes());
        }
    }

    fn memory(value: Value, len: usize) -> (NonNull<u8>, usize) {
        (NonNull::new(value.cast()).expect("suffixes are not null"), bytes_for(len))
    }

    /// # Safety
    /// The value was a suffix of the tree and can no longer be reached by new guards.
    pub(super) unsafe fn retire(value: Value, guard: &Guard<'_>) {
        // SAFETY: the caller promises a suffix.
        let (memory, bytes) = Self::memory(value, unsafe { Self::from_value(value) }.len());
        // SAFETY: as above; sizes are computed in one place.
        unsafe { guard.retire(memory, bytes) }
    }

    /// # Safety
    /// The value is a suffix that no other thread can reach.
    pub(super) unsafe fn free(value: Value, guard: &Guard<'_>) {
        // SAFETY: the caller promises a suffix.
        let (memory, bytes) = Self::memory(value, unsafe { Self::from_value(value) }.len());
        // SAFETY: as above.
        unsafe { guard.free(memory, bytes) }
    }

    /// Bytes the suffix takes.
    pub(super) fn bytes(&self) -> usize {
        bytes_for(self.len())
    }
}

/// A suffix is a key itself: that of its place in the next layer.
impl EncodedKey for Suffix<'_> {
    fn len(&self) -> usize {
        Suffix::len(self)
    }

    fn slice(&self, index: usize) -> u64 {
        self.slices.get(index).copied().unwrap_or(0)
    }
}
