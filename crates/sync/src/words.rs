//! Payloads as atomic words, and prefetches.

use crate::atomic::{AtomicU64, Ordering};

/// Copies atomic words out, each with an acquire load.
///
/// A reader that looks at a version word before and after the copy learns whether it was torn: being acquires, these loads
/// stay before the second look, and a load that meets a word of [`store_words`] makes the second look see what the
/// writer did to the version word first.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub fn load_words(src: &[AtomicU64], dst: &mut [u64]) {
    assert_eq!(src.len(), dst.len(), "both sides have the same number of words");
    for (word, copy) in src.iter().zip(dst) {
        // Acquire: pairs with the release stores of `store_words`.
        *copy = word.load(Ordering::Acquire);
    }
}

/// Copies words into atomic words, each with a release store. See [`load_words`].
///
/// # Panics
/// When the lengths differ.
#[inline]
pub fn store_words(dst: &[AtomicU64], src: &[u64]) {
    assert_eq!(src.len(), dst.len(), "both sides have the same number of words");
    for (word, value) in dst.iter().zip(src) {
        // Release: pairs with the acquire loads of `load_words`.
        word.store(*value, Ordering::Release);
    }
}

/// Asks the processor to bring the cache line at `pointer` near. Any address will do: a prefetch neither reads nor faults.
#[inline]
pub fn prefetch_read<T>(pointer: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it does not access memory as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: a prefetch is a hint; it does not access memory as far as the program can tell.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = pointer;
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let words: Vec<AtomicU64> = (0..9).map(|_| AtomicU64::new(0)).collect();
        let source = [1, 2, 3, 4, 5, 6, 7, 8, u64::MAX];
        store_words(&words, &source);
        let mut copy = [0; 9];
        load_words(&words, &mut copy);
        assert_eq!(copy, source);
    }

    #[test]
    fn any_address_may_be_prefetched() {
        prefetch_read(&7u64);
        prefetch_read(core::ptr::null::<u64>());
        prefetch_read(core::ptr::without_provenance::<u64>(0xDEAD_BEEF_0000));
    }
}
