//! Tails: what of a row lies behind its fixed part. An out-of-line part is written once and never changed, so a thread that finds it may
//! read it for as long as a guard or the transaction's timestamp keeps it.
//!
//! ```text
//!  out-of-line part   length in words │ word 0 │ word 1 │ …
//! ```

use std::marker::PhantomData;
use std::ptr::NonNull;

use polychron_memory::{Guard, OutOfMemory};

/// An out-of-line part that a guard or the transaction's timestamp keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfLine<'g>(OutOfLineAddress, PhantomData<&'g [u64]>);

impl<'g> OutOfLine<'g> {
    /// Its words.
    #[inline]
    pub(super) fn words(self) -> &'g [u64] {
        let first = self.0.0;
        // SAFETY: the first word says how many follow; none of them changes, and the guard keeps the out-of-line part.
        unsafe { std::slice::from_raw_parts(first.add(1).as_ptr(), first.read() as usize) }
    }

    /// Where it is.
    #[inline]
    pub(super) fn address(self) -> OutOfLineAddress {
        self.0
    }
}

/// Where an out-of-line part is. Whether it is still there is for its owner to know: a slot, a before-image, or a thread that has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfLineAddress(NonNull<u64>);

// SAFETY: an address is a number until `OutOfLineAddress::under`.
unsafe impl Send for OutOfLineAddress {}

impl OutOfLineAddress {
    /// An out-of-line part of these words; none of none.
    #[inline]
    pub(super) fn new(words: &[u64], guard: &Guard<'_>) -> Result<Option<Self>, OutOfMemory> {
        if words.is_empty() {
            return Ok(None);
        }
        let memory = guard.allocate(8 + size_of_val(words))?.cast::<u64>();
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone.
        unsafe {
            memory.write(words.len() as u64);
            memory.add(1).as_ptr().copy_from_nonoverlapping(words.as_ptr(), words.len());
        }
        Ok(Some(Self(memory)))
    }

    /// The out-of-line part at an address, which may be none.
    #[inline]
    pub(super) fn at(address: u64) -> Option<Self> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).map(Self)
    }

    /// The out-of-line part that lies here.
    ///
    /// # Safety
    /// It is kept for `'g`: by a guard under which it was found, or by the timestamp of a transaction.
    #[inline]
    pub(super) unsafe fn under<'g>(self) -> OutOfLine<'g> {
        OutOfLine(self, PhantomData)
    }

    /// The number that it is.
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Gives the memory back once all guards that exist now are gone.
    ///
    /// # Safety
    /// A thread that pins from now on does not find the out-of-line part; it is freed once.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the caller promises the same.
        unsafe { guard.retire(self.0.cast(), 8 + size_of_val(self.under().words())) };
    }
}
