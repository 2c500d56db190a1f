//! Words by wide registers, in inline assembly.
//!
//! To the language a block of it is what it could have done with a load and a store for each word, in some order: the words are aligned, and the
//! processor does not tear an aligned word of 8 bytes. It keeps loads behind earlier loads and stores behind earlier stores, whatever their
//! width, and to the compiler a block touches all of memory; so each load is an acquire and each store a release as well.

use core::arch::asm;

/// Words that are moved by one block.
const BLOCK: usize = 4;

/// Copies `count` words, some of them perhaps twice.
///
/// # Safety
/// So many words are readable at `src` and writable at `dst`, both aligned; those of one of the two are the caller's alone, or nobody changes
/// them.
#[inline]
pub(super) unsafe fn copy(src: *const u64, dst: *mut u64, count: usize) {
    if count < BLOCK {
        for at in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                asm!(
                    "mov {word}, [{src} + 8 * {at}]",
                    "mov [{dst} + 8 * {at}], {word}",
                    src = in(reg) src, dst = in(reg) dst, at = in(reg) at, word = out(reg) _,
                    options(nostack, preserves_flags),
                );
            }
        }
        return;
    }
    // The last block ends with the last word, and may begin within the block before.
    let last = count - BLOCK;
    let mut at = 0;
    loop {
        // SAFETY: as the caller promises; the block ends before `count` or there.
        unsafe {
            asm!(
                "movups {low}, [{src} + 8 * {at}]",
                "movups {high}, [{src} + 8 * {at} + 16]",
                "movups [{dst} + 8 * {at}], {low}",
                "movups [{dst} + 8 * {at} + 16], {high}",
                src = in(reg) src, dst = in(reg) dst, at = in(reg) at, low = out(xmm_reg) _, high = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        if at == last {
            return;
        }
        at = (at + BLOCK).min(last);
    }
}
