//! Tails: what of a row lies behind its fixed part. A tail is written once and never changed, so who finds it may read it for as long as
//! a guard or the transaction's timestamp keeps it.
//!
//! ```text
//!  tail   length in words │ word 0 │ word 1 │ …
//! ```

use std::marker::PhantomData;
use std::ptr::NonNull;

use polychron_memory::{Guard, OutOfMemory};

/// A tail that a guard or the transaction's timestamp keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail<'g>(TailAddress, PhantomData<&'g [u64]>);

impl<'g> Tail<'g> {
    /// Its words.
    #[inline]
    pub(super) fn words(self) -> &'g [u64] {
        let first = self.0.0;
        // SAFETY: the first word says how many follow; none of them changes, and the guard keeps the tail.
        unsafe { std::slice::from_raw_parts(first.add(1).as_ptr(), first.read() as usize) }
    }

    /// Where it is.
    #[inline]
    pub(super) fn address(self) -> TailAddress {
        self.0
    }
}

/// Where a tail is. Whether it is still there is for its owner to know: a slot, an image, or who has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TailAddress(NonNull<u64>);

// SAFETY: an address is a number until `TailAddress::under`.
unsafe impl Send for TailAddress {}

impl TailAddress {
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

    /// The tail that lies here.
    ///
    /// # Safety
    /// It is kept for `'g`: by a guard under which it was found, or by the timestamp of a transaction.
    #[inline]
    pub(super) unsafe fn under<'g>(self) -> Tail<'g> {
        Tail(self, PhantomData)
    }

    /// The number that it is.
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Gives the memory back once all guards that exist now are gone.
    ///
    /// # Safety
    /// Who pins from now on does not find the tail; it is given back once.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the caller promises the same.
        unsafe { guard.retire(self.0.cast(), 8 + size_of_val(self.under().words())) };
    }
}
