//! Payloads as atomic words, and prefetches.

use core::mem::MaybeUninit;

use crate::atomic::AtomicU64;
#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow)))))]
use crate::atomic::Ordering;

/// Models, Miri and the sanitizer copy word by word, and so do other processors.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
mod wide;

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
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
    // SAFETY: there are so many words on both sides, and `dst` is the caller's alone.
    unsafe {
        wide::copy(src.as_ptr().cast(), dst.as_mut_ptr(), src.len());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow)))))]
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
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
    // SAFETY: there are so many words on both sides, those of `dst` may be written through a shared reference, and nobody changes `src`.
    unsafe {
        wide::copy(src.as_ptr(), dst.as_ptr().cast_mut().cast(), src.len());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow)))))]
    for (word, value) in dst.iter().zip(src) {
        // Release: pairs with the acquire loads of `load_words`.
        word.store(*value, Ordering::Release);
    }
}

/// Copies atomic words that nobody changes meanwhile into new ones.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub fn copy_words(src: &[AtomicU64], dst: &mut [MaybeUninit<AtomicU64>]) {
    assert_eq!(src.len(), dst.len(), "both sides have the same number of words");
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
    // SAFETY: there are so many words on both sides, and `dst` is the caller's alone; an atomic word lies in memory like the number.
    unsafe {
        wide::copy(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src.len());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow)))))]
    for (word, copy) in src.iter().zip(dst) {
        copy.write(AtomicU64::new(word.load(Ordering::Relaxed)));
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
    use crate::atomic::Ordering;

    #[test]
    fn words_come_back() {
        for count in 0..40u64 {
            let source: Vec<u64> = (0..count).map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::MAX).collect();
            // One more at each end, which nobody touches.
            let words: Vec<AtomicU64> = (0..count + 2).map(AtomicU64::new).collect();
            store_words(&words[1..=count as usize], &source);
            let mut copy = vec![7; count as usize + 2];
            load_words(&words[1..=count as usize], &mut copy[1..=count as usize]);
            assert_eq!(copy[1..=count as usize], source);
            assert_eq!((copy[0], copy[count as usize + 1]), (7, 7));
            assert_eq!(
                (words[0].load(Ordering::Relaxed), words[count as usize + 1].load(Ordering::Relaxed)),
                (0, count + 1)
            );
            let mut fresh = Vec::with_capacity(count as usize);
            copy_words(&words[1..=count as usize], &mut fresh.spare_capacity_mut()[..count as usize]);
            // SAFETY: so many were just written.
            unsafe { fresh.set_len(count as usize) };
            assert!(fresh.iter().map(|word: &AtomicU64| word.load(Ordering::Relaxed)).eq(source));
        }
    }

    #[test]
    fn any_address_may_be_prefetched() {
        prefetch_read(&7u64);
        prefetch_read(core::ptr::null::<u64>());
        prefetch_read(core::ptr::without_provenance::<u64>(0xDEAD_BEEF_0000));
    }
}
