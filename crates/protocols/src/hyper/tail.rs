//! Tails: what of a row lies behind its fixed part. A tail is written once and never changed, so who finds it may read it for as long as
//! a guard or the transaction's moment keeps it.
//!
//! ```text
//!  tail   length in words │ word 0 │ word 1 │ …
//! ```

use std::ptr::NonNull;

use polychron_memory::{Guard, OutOfMemory};

/// A tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail(NonNull<u64>);

// SAFETY: a tail is an address whose words do not change; who gives it back promises that nobody reads it any more.
unsafe impl Send for Tail {}

impl Tail {
    /// A tail of these words; none of none.
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

    /// The tail at an address, which may be none.
    #[inline]
    pub(super) fn at(address: u64) -> Option<Self> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).map(Self)
    }

    /// Where it is.
    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Its words, for as long as the caller's guard or moment keeps them.
    #[inline]
    pub(super) fn words<'r>(self) -> &'r [u64] {
        // SAFETY: the first word says how many follow; none of them changes, and the caller keeps the tail alive.
        unsafe { std::slice::from_raw_parts(self.0.add(1).as_ptr(), self.0.read() as usize) }
    }

    /// Gives the memory back once all guards that exist now are gone.
    ///
    /// # Safety
    /// Who pins from now on does not find the tail; it is given back once.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the caller promises the same.
        unsafe { guard.retire(self.0.cast(), 8 + size_of_val(self.words())) };
    }
}
