//! Four numbers at once, sixteen in flight.

use core::arch::asm;
#[allow(clippy::wildcard_imports, reason = "the names of the instructions")]
use core::arch::x86_64::*;

use super::{AtomicU64, Form, part_of, portable};

/// Words that are loaded by one block.
const BLOCK: usize = 16;

/// All bits of a lane for each bit of a nibble.
static LANES: [[u64; 4]; 16] = {
    let mut lanes = [[0; 4]; 16];
    let mut nibble = 0;
    while nibble < 16 {
        let mut lane = 0;
        while lane < 4 {
            lanes[nibble][lane] = if nibble >> lane & 1 != 0 { u64::MAX } else { 0 };
            lane += 1;
        }
        nibble += 1;
    }
    lanes
};

/// Loads sixteen words.
#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[AtomicU64; BLOCK]) -> [__m256i; 4] {
    let (a, b, c, d): (__m256i, __m256i, __m256i, __m256i);
    // SAFETY: the sixteen words are readable, and nothing is written. To the language, these are relaxed loads of each of them: the
    // words are aligned, and the processor does not tear an aligned word of 8 bytes.
    unsafe {
        asm!(
            "vmovdqu {a}, ymmword ptr [{words}]",
            "vmovdqu {b}, ymmword ptr [{words} + 32]",
            "vmovdqu {c}, ymmword ptr [{words} + 64]",
            "vmovdqu {d}, ymmword ptr [{words} + 96]",
            words = in(reg) words.as_ptr(),
            a = out(ymm_reg) a,
            b = out(ymm_reg) b,
            c = out(ymm_reg) c,
            d = out(ymm_reg) d,
            options(readonly, nostack, preserves_flags),
        );
    }
    [a, b, c, d]
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(word: u64) -> __m256i {
    _mm256_set1_epi64x(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes(vectors: [__m256i; 4]) -> [i64; 16] {
    // SAFETY: both are 128 bytes without invalid values.
    unsafe { core::mem::transmute(vectors) }
}

/// What turns words into numbers.
#[derive(Clone, Copy)]
struct Decoder {
    shift: __m128i,
    mask: __m256i,
    flip: __m256i,
    base: __m256i,
}

impl Decoder {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(form: Form) -> Self {
        let shift = _mm_cvtsi64_si128(form.shift.into());
        Self { shift, mask: splat(form.mask), flip: splat(form.flip), base: splat(form.base) }
    }

    /// As [`Form::ordered`].
    #[inline]
    #[target_feature(enable = "avx2")]
    fn ordered(self, words: __m256i) -> __m256i {
        let number = _mm256_and_si256(_mm256_srl_epi64(words, self.shift), self.mask);
        _mm256_sub_epi64(_mm256_xor_si256(number, self.flip), self.base)
    }

    /// The same, with less work where the words are the numbers, but for their highest bit.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn numbers<const WHOLE: bool>(self, words: __m256i) -> __m256i {
        if WHOLE { _mm256_xor_si256(words, self.flip) } else { self.ordered(words) }
    }
}

/// The mask of four lanes, from the bits of their block.
#[inline]
#[target_feature(enable = "avx2")]
fn chosen(bits: u64, quarter: usize) -> __m256i {
    let lanes = &LANES[(bits >> (4 * quarter) & 15) as usize];
    // SAFETY: the four words are readable.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

/// The bits of a block of words in a mask.
#[inline]
fn bits_of_block(mask: &[u64], block: usize) -> u64 {
    mask[block / 4] >> (16 * (block % 4)) & 0xFFFF
}

#[target_feature(enable = "avx2")]
pub(super) fn sum(words: &[AtomicU64], form: Form, mask: Option<&[u64]>) -> i128 {
    let (mut total, mut rest) = (0, mask);
    for words in words.chunks(SMALL_SUM) {
        let mask = rest.map(|mask| &mask[..words.len().div_ceil(64)]);
        total += match (mask, form.is_whole_word()) {
            (None, true) => sum_of::<true, false>(words, form, &[]),
            (None, false) => sum_of::<false, false>(words, form, &[]),
            (Some(mask), true) => sum_of::<true, true>(words, form, mask),
            (Some(mask), false) => sum_of::<false, true>(words, form, mask),
        };
        rest = rest.map(|mask| mask.get(SMALL_SUM / 64..).unwrap_or_default());
    }
    total
}

/// So many numbers of up to [`SMALL`] bits add up to one of 64.
const SMALL_SUM: usize = 1 << 10;
const SMALL: u32 = 53;

/// Adds up to [`SMALL_SUM`] numbers in 64 bits, which fits if all of them are small, as most are; and if some are not, adds them again.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_of<const WHOLE: bool, const MASKED: bool>(words: &[AtomicU64], form: Form, mask: &[u64]) -> i128 {
    let decoder = Decoder::new(form);
    // Small signed numbers are so moved between 0 and 2^53; narrow ones, and those without sign, are small where they are. The order of the
    // latter, which turns their highest bit, is made up for at the end.
    let moved = if WHOLE && form.bias == 0 { 1 << (SMALL - 1) } else { 0 };
    let more = splat(moved);
    let (mut sums, mut seen) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
    let (blocks, rest) = words.as_chunks::<BLOCK>();
    for (block, words) in blocks.iter().enumerate() {
        let loaded = load(words);
        let bits = if MASKED { bits_of_block(mask, block) } else { 0 };
        for quarter in 0..4 {
            let mut number = if WHOLE { loaded[quarter] } else { decoder.ordered(loaded[quarter]) };
            if MASKED {
                number = _mm256_and_si256(number, chosen(bits, quarter));
            }
            if WHOLE {
                number = _mm256_add_epi64(number, more);
                seen[quarter] = _mm256_or_si256(seen[quarter], number);
            }
            sums[quarter] = _mm256_add_epi64(sums[quarter], number);
        }
    }
    let done = BLOCK * blocks.len();
    let seen = lanes(seen).into_iter().fold(0, |seen, lane| seen | lane);
    if seen.cast_unsigned() >> SMALL != 0 {
        return portable::sum(words, form, MASKED.then_some(mask));
    }
    let sum: i64 = lanes(sums).into_iter().fold(0, i64::wrapping_add);
    let counted = match MASKED {
        false => done,
        true => (0..done).step_by(64).map(|first| part_of(mask, first, done).count_ones() as usize).sum(),
    };
    let turned = if WHOLE { counted as i128 * form.bias() } else { 0 };
    let sum = i128::from(sum) - i128::from(moved) * done as i128 - turned;
    sum + tail(rest, mask, MASKED, done, |rest, mask| portable::sum(rest, form, mask))
}

/// What the portable path makes of the words behind the last block.
#[inline]
fn tail<O>(
    rest: &[AtomicU64],
    mask: &[u64],
    is_masked: bool,
    done: usize,
    work: impl FnOnce(&[AtomicU64], Option<&[u64]>) -> O,
) -> O {
    if !is_masked || rest.is_empty() {
        return work(rest, None);
    }
    let bits = [part_of(mask, done / 64 * 64, done + rest.len()) >> (done % 64)];
    work(rest, Some(&bits))
}

#[target_feature(enable = "avx2")]
pub(super) fn largest(words: &[AtomicU64], form: Form, mask: Option<&[u64]>, turn: i64) -> i64 {
    match (mask, form.is_whole_word()) {
        (None, true) => largest_of::<true, false>(words, form, &[], turn),
        (None, false) => largest_of::<false, false>(words, form, &[], turn),
        (Some(mask), true) => largest_of::<true, true>(words, form, mask, turn),
        (Some(mask), false) => largest_of::<false, true>(words, form, mask, turn),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn largest_of<const WHOLE: bool, const MASKED: bool>(words: &[AtomicU64], form: Form, mask: &[u64], turn: i64) -> i64 {
    let decoder = Decoder::new(form);
    let (turned, least) = (_mm256_set1_epi64x(turn), _mm256_set1_epi64x(i64::MIN));
    let mut most = [least; 4];
    let (blocks, rest) = words.as_chunks::<BLOCK>();
    for (block, words) in blocks.iter().enumerate() {
        let loaded = load(words);
        let bits = if MASKED { bits_of_block(mask, block) } else { 0 };
        for quarter in 0..4 {
            let mut number = _mm256_xor_si256(decoder.numbers::<WHOLE>(loaded[quarter]), turned);
            if MASKED {
                number = _mm256_blendv_epi8(least, number, chosen(bits, quarter));
            }
            let is_more = _mm256_cmpgt_epi64(number, most[quarter]);
            most[quarter] = _mm256_blendv_epi8(most[quarter], number, is_more);
        }
    }
    let found = lanes(most).into_iter().fold(i64::MIN, i64::max);
    let done = BLOCK * blocks.len();
    found.max(tail(rest, mask, MASKED, done, |rest, mask| portable::largest(rest, form, mask, turn)))
}

#[target_feature(enable = "avx2")]
pub(super) fn within(words: &[AtomicU64], form: Form, least: i64, most: i64, bits: &mut [u64]) {
    if form.is_whole_word() {
        within_of::<true>(words, form, least, most, bits);
    } else {
        within_of::<false>(words, form, least, most, bits);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn within_of<const WHOLE: bool>(words: &[AtomicU64], form: Form, least: i64, most: i64, bits: &mut [u64]) {
    let decoder = Decoder::new(form);
    let (first, last) = (_mm256_set1_epi64x(least), _mm256_set1_epi64x(most));
    for (chunk, bits) in words.chunks(64).zip(bits) {
        let (blocks, rest) = chunk.as_chunks::<BLOCK>();
        let mut outside = 0;
        for (block, words) in blocks.iter().enumerate() {
            let loaded = load(words);
            for (quarter, words) in loaded.into_iter().enumerate() {
                let number = decoder.numbers::<WHOLE>(words);
                let out = _mm256_or_si256(_mm256_cmpgt_epi64(first, number), _mm256_cmpgt_epi64(number, last));
                let lanes = _mm256_movemask_pd(_mm256_castsi256_pd(out)).cast_unsigned();
                outside |= u64::from(lanes) << (BLOCK * block + 4 * quarter);
            }
        }
        let done = BLOCK * blocks.len();
        *bits = !outside & (u64::MAX.checked_shr(64 - done as u32).unwrap_or(0));
        if !rest.is_empty() {
            let mut tail = [0];
            portable::within(rest, form, least, most, &mut tail);
            *bits |= tail[0] << done;
        }
    }
}
