//! Records: a version word, the row's length, and the row in the same allocation.
//!
//! ```text
//!  word 0  version   counter │ unlinked │ dirty │ latched
//!  word 1  length in words (32) │ capacity in words (32)
//!  word 2… the row, or a secondary entry's primary key
//! ```
//!
//! * A record is created with its row and without a latch: before it is linked no thread sees it, afterwards all threads do.
//! * Only the owner of the latch changes a record that others can reach.
//! * A reader takes the version, then the other words with acquiring loads, then compares the version, its latch aside. The
//!   owner sets *dirty* first and stores every further word with a release, so a reader that saw any of the new words also
//!   sees *dirty* or a later counter, and tries again.
//! * *Unlinked* is set once, by the owner of the latch after the index has forgotten the record, and never taken back. Who
//!   meets it looks the key up again. There is no *absent* bit: a row that is not there has no record.

use std::ops::Range;
use std::ptr::NonNull;

use polychron_engine::stores::Records;
use polychron_index::{Handle, handle_of, pointer_of};
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::RowBuffer;
use polychron_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use polychron_sync::{Backoff, MODELLED, spin_hint};

const LATCHED: u64 = 1;
const DIRTY: u64 = 2;
const UNLINKED: u64 = 4;
const COUNTER: u64 = 8;

#[repr(C)]
struct Header {
    version: AtomicU64,
    length: AtomicU32,
    capacity: u32,
}

pub(super) const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(MODELLED || HEADER_BYTES == 16);
/// Of a word of the row.
const WORD_BYTES: usize = size_of::<AtomicU64>();
const _: () = assert!(MODELLED || WORD_BYTES == 8);

/// A record that the guard of the running procedure keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(NonNull<Header>);

/// A latched record, to be changed or unlinked. Dropping it gives the latch back with nothing changed.
#[derive(Debug)]
pub(super) struct Latched(Record);

impl Record {
    #[inline]
    fn bytes(self) -> usize {
        HEADER_BYTES + WORD_BYTES * self.capacity()
    }

    /// A record that holds `row`, and no more than that.
    #[inline]
    pub(super) fn new(row: &[u64], guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let memory = guard.allocate(HEADER_BYTES + WORD_BYTES * row.len())?.cast::<Header>();
        let words = row.len() as u32;
        let header = Header { version: AtomicU64::new(0), length: AtomicU32::new(words), capacity: words };
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone until the record is linked.
        unsafe { memory.write(header) };
        let record = Self(memory);
        let first = record.first_word();
        for (position, &word) in row.iter().enumerate() {
            // SAFETY: there are as many words behind the header as the row has.
            unsafe { first.add(position).write(AtomicU64::new(word)) };
        }
        Ok(record)
    }

    /// Gives a record back that was never linked.
    ///
    /// # Safety
    /// No index has ever held it.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: no thread but the caller knows of the record.
        unsafe { guard.free(self.0.cast(), self.bytes()) };
    }

    /// What the index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        handle_of(self.0)
    }

    /// The record behind a handle.
    ///
    /// # Safety
    /// `handle` came from [`Record::handle`] through an index, under a guard that lives as long as the record is used.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        Self(pointer_of(handle))
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: records are reached under a guard that keeps them alive (`from_handle`), or are not linked yet.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn first_word(self) -> *mut AtomicU64 {
        // SAFETY: the row begins right behind the header in the same allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES).cast() }
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the allocation has `capacity` initialised words behind the header.
        unsafe { std::slice::from_raw_parts(self.first_word(), self.capacity()) }
    }

    /// How many words the row may have without moving.
    #[inline]
    pub(super) fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    /// Acquiring: pairs with the release in `Latched::set_length`.
    #[inline]
    fn length(self) -> usize {
        self.header().length.load(Ordering::Acquire) as usize
    }

    /// Starts bringing the first lines of the record into the cache.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        for line in 0..lines {
            polychron_sync::prefetch_read(self.0.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// Copies words `range` of the row to the same place of `row` and answers the row's length in words; `None` when the
    /// record is unlinked. Waits while the record is dirty, which lasts as long as one row is copied.
    #[inline]
    pub(super) fn read(self, range: Range<usize>, row: &mut [u64]) -> Option<usize> {
        let version = &self.header().version;
        loop {
            // Pairs with the release that ended the last write.
            let before = version.load(Ordering::Acquire);
            if before & UNLINKED != 0 {
                return None;
            }
            if before & DIRTY == 0 {
                let words = self.length().min(self.capacity());
                let end = range.end.min(words).min(row.len());
                let start = range.start.min(end);
                polychron_sync::load_words(&self.words()[start..end], &mut row[start..end]);
                // The loads above acquire, so this one is not taken before them.
                if (version.load(Ordering::Relaxed) ^ before) & !LATCHED == 0 {
                    return Some(words);
                }
            }
            spin_hint();
        }
    }

    /// The row that an unlinked record held last; it no longer changes.
    #[cold]
    pub(super) fn last_words(self, row: &mut RowBuffer) {
        let words = self.length();
        polychron_sync::load_words(&self.words()[..words], row.overwrite_words(words));
    }

    /// Latches the record, or answers `None` when it is unlinked.
    #[inline]
    pub(super) fn latch(self) -> Option<Latched> {
        let version = &self.header().version;
        let mut backoff = Backoff::new();
        loop {
            let found = version.load(Ordering::Relaxed);
            if found & UNLINKED != 0 {
                return None;
            }
            // Acquire: pairs with the release that gave the latch back last.
            if found & LATCHED == 0
                && version.compare_exchange_weak(found, found | LATCHED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(Latched(self));
            }
            backoff.wait();
        }
    }
}

impl Latched {
    /// The record.
    #[inline]
    pub(super) fn record(&self) -> Record {
        self.0
    }

    /// The row's length in words.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.0.length()
    }

    /// Copies the whole row, which cannot change under the latch.
    #[inline]
    pub(super) fn copy_to(&self, row: &mut [u64]) {
        polychron_sync::load_words(&self.0.words()[..row.len()], row);
    }

    /// Overwrites words of the row from `start` on, and gives the latch back. `length`: the row's length from now on.
    #[inline]
    pub(super) fn write(self, start: usize, words: &[u64], length: usize) {
        let header = self.0.header();
        let latched = header.version.load(Ordering::Relaxed);
        // Every word stored after this one is stored with a release, so any thread that sees one of them sees the dirty bit.
        header.version.store(latched | DIRTY, Ordering::Relaxed);
        polychron_sync::store_words(&self.0.words()[start..start + words.len()], words);
        // Pairs with the acquiring load in `Record::length`.
        header.length.store(length as u32, Ordering::Release);
        // Pairs with the acquiring load at the start of a read.
        header.version.store((latched & !LATCHED).wrapping_add(COUNTER), Ordering::Release);
        std::mem::forget(self);
    }

    /// Ends the record's life: the index has forgotten it.
    pub(super) fn unlink(self, guard: &Guard<'_>) {
        let version = &self.0.header().version;
        // Pairs with the acquiring load of the next reader.
        version.store(version.load(Ordering::Relaxed) & !LATCHED | UNLINKED, Ordering::Release);
        // SAFETY: the index has forgotten the record, so only guards that exist now can reach it; *unlinked* is set once,
        // under the latch, so it is retired once.
        unsafe { guard.retire(self.0.0.cast(), self.0.bytes()) };
        std::mem::forget(self);
    }
}

impl Drop for Latched {
    fn drop(&mut self) {
        let version = &self.0.header().version;
        // Pairs with the acquiring exchange of the next owner.
        version.store(version.load(Ordering::Relaxed) & !LATCHED, Ordering::Release);
    }
}

/// How stores give records back.
#[derive(Debug)]
pub enum RowRecords {}

impl Records for RowRecords {
    const HEADER_BYTES: usize = HEADER_BYTES;

    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller promises that the handle is one of ours and found under the guard.
        let record = unsafe { Record::from_handle(handle) };
        // SAFETY: the caller promises that no thread that pins from now on can reach it.
        unsafe { guard.retire(record.0.cast(), record.bytes()) };
    }
}
