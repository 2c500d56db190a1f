//! Records that are written in place: two lengths and the row. There is no concurrency control in them; a thread that touches one
//! holds the locks that its protocol asks for.
//!
//! ```text
//!  word 0  length in words (31) and *deleted* │ capacity in words (32)
//!  word 1… the row, or a secondary entry's primary key
//! ```
//!
//! A record that a running transaction deleted is *deleted* and stays in its index until the commit, so that a rollback
//! needs no memory. One that has left its index stays so, as long as anybody may still come to it.

use std::ptr::NonNull;

use polychron_index::{Handle, handle_of, pointer_of};
use polychron_memory::{Guard, OutOfMemory};

use super::Records;

#[repr(C)]
struct Header {
    length: u32,
    capacity: u32,
}

const HEADER_BYTES: usize = 8;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES && HEADER_BYTES.is_multiple_of(align_of::<u64>()));
const DELETED: u32 = 1 << 31;

/// Words of a record that no row is worth moving for.
const ROOMY: usize = 64;

/// Whether a row of so many words moves to a smaller record: what a row once needed does not stay with it for ever. It is written in place
/// where it takes a quarter of its record or more.
#[inline]
pub fn is_too_roomy(capacity: usize, words: usize) -> bool {
    capacity >= ROOMY && words < capacity / 4
}

/// A record that is written in place. All methods ask that the caller holds the record's locks: any for reading, all that writing needs for
/// writing. [`Record::from_handle`] is where that is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record(NonNull<Header>);

// SAFETY: a record is an address until it is touched, which takes its protocol's locks; those hand what one thread wrote
// to the next.
unsafe impl Send for Record {}

impl Record {
    #[inline]
    fn bytes(self) -> usize {
        HEADER_BYTES + 8 * self.capacity()
    }

    /// A record that holds `row`, and no more than that.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    #[inline]
    pub fn new(row: &[u64], guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let memory = guard.allocate(HEADER_BYTES + size_of_val(row))?.cast::<Header>();
        let record = Self(memory);
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone until the record is linked.
        unsafe {
            memory.write(Header { length: row.len() as u32, capacity: row.len() as u32 });
            record.first_word().copy_from_nonoverlapping(row.as_ptr(), row.len());
        }
        Ok(record)
    }

    /// Gives the record back at once.
    ///
    /// # Safety
    /// No index leads to it, and the caller holds the locks for writing it, so that no other thread has found it.
    #[inline]
    pub unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: as the caller promises.
        unsafe { guard.free(self.0.cast(), self.bytes()) };
    }

    /// Gives the record back when no guard of the present is left.
    ///
    /// # Safety
    /// No index still leads to it, and it is retired once.
    #[inline]
    pub unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: as the caller promises.
        unsafe { guard.retire(self.0.cast(), self.bytes()) };
    }

    /// The record's handle in the index.
    #[inline]
    pub fn handle(self) -> Handle {
        handle_of(self.0)
    }

    /// The record behind a handle.
    ///
    /// # Safety
    /// `handle` came from [`Record::handle`] through an index, and the caller holds the locks for whatever it does with
    /// the record, as long as it does.
    #[inline]
    pub unsafe fn from_handle(handle: Handle) -> Self {
        Self(pointer_of(handle))
    }

    #[inline]
    fn first_word(self) -> *mut u64 {
        // SAFETY: the row begins right behind the header in the same allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES).cast() }
    }

    #[inline]
    fn raw_length(self) -> u32 {
        // SAFETY: the record is linked or ours, and the caller's locks keep writers away.
        unsafe { (*self.0.as_ptr()).length }
    }

    #[inline]
    fn set_raw_length(self, length: u32) {
        // SAFETY: the record is linked or ours, and the caller's locks keep all others away.
        unsafe { (*self.0.as_ptr()).length = length };
    }

    /// The number of words that the row may grow to in place.
    #[inline]
    pub fn capacity(self) -> usize {
        // SAFETY: the capacity never changes after the record's birth.
        unsafe { (*self.0.as_ptr()).capacity as usize }
    }

    /// Whether the row is deleted, or the record has left its index.
    #[inline]
    pub fn is_deleted(self) -> bool {
        self.raw_length() & DELETED != 0
    }

    /// Deletes the row, or takes that back.
    #[inline]
    pub fn set_deleted(self, deleted: bool) {
        let length = self.raw_length() & !DELETED;
        self.set_raw_length(if deleted { length | DELETED } else { length });
    }

    /// The row, or what it was before it was deleted.
    ///
    /// # Safety
    /// The caller keeps the record's locks, and writes it not, for `'a`.
    #[inline]
    pub unsafe fn words<'a>(self) -> &'a [u64] {
        // SAFETY: the first `length` of `capacity` words hold the row; no thread writes them, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.first_word(), (self.raw_length() & !DELETED) as usize) }
    }

    /// Overwrites words of the row from `start` on, and sets its length.
    ///
    /// # Panics
    /// When the record has no room for them.
    #[inline]
    pub fn write(self, start: usize, words: &[u64], length: usize) {
        assert!(start + words.len() <= self.capacity() && length <= self.capacity(), "the row fits its record");
        // SAFETY: there is room, the caller's locks keep all others away, and `words` is the caller's own buffer.
        unsafe { self.first_word().add(start).copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        self.set_raw_length(length as u32 | self.raw_length() & DELETED);
    }

    /// Starts bringing the first lines of the record into the cache.
    #[inline]
    pub fn prefetch(self, lines: usize) {
        for line in 0..lines {
            polychron_sync::prefetch_read(self.0.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// As [`Record::prefetch`], of the record behind a handle, which is not looked at.
    #[inline]
    pub fn prefetch_behind(handle: Handle, lines: usize) {
        Self(pointer_of(handle)).prefetch(lines);
    }
}

/// Frees the records of stores.
#[derive(Debug)]
pub enum RowRecords {}

impl Records for RowRecords {
    const HEADER_BYTES: usize = HEADER_BYTES;

    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller promises that the handle is one of ours, and no thread still uses the store.
        let record = unsafe { Record::from_handle(handle) };
        // SAFETY: the caller promises that no thread that pins from now on can reach it.
        unsafe { record.retire(guard) };
    }
}
