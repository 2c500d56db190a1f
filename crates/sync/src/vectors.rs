//! Columns of numbers in atomic words: sums, extremes and comparisons, by the machine's vectors where it has them.
//!
//! Other threads may write the words meanwhile. Each load is a relaxed one of a whole word, so nothing is torn within a word and there is no
//! data race; any thread that asks finds out by other means whether the words stood still (a look at a word that writers change first,
//! before and after). The vector path loads four words by one instruction, in inline assembly: to the language such a block is what it could
//! have done with relaxed loads of the four words one after the other. Models, Miri and the sanitizer run the portable path, which makes
//! those.

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
mod avx2;

use crate::atomic::{AtomicU64, Ordering};

/// The answer of the vectors where they are there and know the form, and else that of the portable path.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
macro_rules! fastest {
    ($function:ident($words:expr, $form:expr $(, $argument:expr)*)) => {
        if !$form.is_float && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            unsafe { avx2::$function($words, $form $(, $argument)*) }
        } else {
            portable::$function($words, $form $(, $argument)*)
        }
    };
}
#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow)))))]
macro_rules! fastest {
    ($function:ident($($argument:expr),*)) => { portable::$function($($argument),*) };
}

/// How a number lies in a word, and how numbers of one form become signed ones in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    shift: u32,
    mask: u64,
    flip: u64,
    base: u64,
    bias: u64,
    is_float: bool,
}

impl Form {
    /// An integer of `bytes` (1, 2, 4 or 8) bytes, `offset` bytes from the lowest of its word.
    ///
    /// # Panics
    /// When it does not lie in one word.
    pub const fn integer(offset: u32, bytes: u32, is_signed: bool) -> Self {
        assert!(bytes > 0 && offset + bytes <= 8, "a number lies in one word");
        let bits = 8 * bytes;
        let (mask, sign) = (u64::MAX >> (64 - bits), 1 << (bits - 1));
        let (flip, base, bias) = match (is_signed, bytes) {
            // In place it is what it stands for.
            (true, 8) => (0, 0, 0),
            (true, _) => (sign, sign, 0),
            (false, 8) => (sign, 0, sign),
            (false, _) => (0, 0, 0),
        };
        Self { shift: 8 * offset, mask, flip, base, bias, is_float: false }
    }

    /// A floating-point number of `bytes` (4 or 8) bytes, `offset` bytes from the lowest of its word; in the order of
    /// [`f64::total_cmp`].
    ///
    /// # Panics
    /// When it does not lie in one word.
    pub const fn float(offset: u32, bytes: u32) -> Self {
        Self { is_float: true, ..Self::integer(offset, bytes, true) }
    }

    /// Whether it is a floating-point number.
    #[inline]
    pub const fn is_float(self) -> bool {
        self.is_float
    }

    /// A word's number as a signed one: numbers of one form have the order of these.
    #[inline]
    pub const fn ordered(self, word: u64) -> i64 {
        let number = (((word >> self.shift) & self.mask) ^ self.flip).wrapping_sub(self.base).cast_signed();
        if self.is_float { self.turned(number) } else { number }
    }

    /// Turns the bits of negative floating-point numbers but for the sign, which the bits of narrow ones fill up with.
    #[inline]
    const fn turned(self, bits: i64) -> i64 {
        bits ^ ((bits >> 63).cast_unsigned() & self.mask >> 1).cast_signed()
    }

    /// What is to be added to such a signed number for what it stands for; of a floating-point number nothing is.
    #[inline]
    pub const fn bias(self) -> i128 {
        self.bias as i128
    }

    /// The bits of the number for which a signed one stands: sign- or zero-extended, or those of a floating-point number in
    /// its own width.
    #[inline]
    pub const fn bits(self, ordered: i64) -> u64 {
        if self.is_float {
            return self.turned(ordered).cast_unsigned() & self.mask;
        }
        ordered.cast_unsigned() ^ self.bias
    }

    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, polychron_slow))))]
    #[inline]
    const fn is_whole_word(self) -> bool {
        self.mask == u64::MAX && !self.is_float
    }
}

/// Whether a position is among those that are looked at: all where there is no mask.
#[inline]
fn is_set(mask: Option<&[u64]>, position: usize) -> bool {
    mask.is_none_or(|mask| mask[position / 64] >> (position % 64) & 1 != 0)
}

/// The sum of the numbers as [`Form::ordered`] gives them, without those whose bit in the mask is not set.
///
/// # Panics
/// When there are more words than the mask has bits, or than 2^32.
#[inline]
pub fn sum(words: &[AtomicU64], form: Form, mask: Option<&[u64]>) -> i128 {
    check(words, mask);
    fastest!(sum(words, form, mask))
}

/// The largest or smallest of the numbers as [`Form::ordered`] gives them; `None` of none.
///
/// # Panics
/// As [`sum`].
#[inline]
pub fn extreme(words: &[AtomicU64], form: Form, mask: Option<&[u64]>, is_largest: bool) -> Option<i64> {
    check(words, mask);
    let is_none = match mask {
        None => words.is_empty(),
        Some(mask) => (0..words.len()).step_by(64).all(|first| part_of(mask, first, words.len()) == 0),
    };
    if is_none {
        return None;
    }
    // The smallest is the complement of the largest complement.
    let turn = if is_largest { 0 } else { -1 };
    let largest = fastest!(largest(words, form, mask, turn));
    Some(largest ^ turn)
}

/// Sets a bit for each number that, as [`Form::ordered`] gives it, lies between `least` and `most`, both included; clears the others, and
/// those behind the last number in its word of bits.
///
/// # Panics
/// When there are more numbers than bits.
#[inline]
pub fn within(words: &[AtomicU64], form: Form, least: i64, most: i64, bits: &mut [u64]) {
    check(words, Some(bits));
    fastest!(within(words, form, least, most, bits));
}

/// Sets a bit for each word whose bit of that number is set, as [`within`] does.
///
/// # Panics
/// As [`within`].
#[inline]
pub fn bits_of(words: &[AtomicU64], bit: u32, bits: &mut [u64]) {
    check(words, Some(bits));
    for (chunk, bits) in words.chunks(64).zip(bits) {
        // Relaxed: see the module.
        *bits = chunk
            .iter()
            .enumerate()
            .fold(0, |bits, (position, word)| bits | (word.load(Ordering::Relaxed) >> bit & 1) << position);
    }
}

/// Copies words, each with a relaxed load. See the module for what that is worth.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub fn copy(words: &[AtomicU64], out: &mut [u64]) {
    assert_eq!(words.len(), out.len(), "both sides have the same number of words");
    for (word, out) in words.iter().zip(out) {
        *out = word.load(Ordering::Relaxed);
    }
}

#[inline]
fn check(words: &[AtomicU64], mask: Option<&[u64]>) {
    assert!(mask.is_none_or(|mask| words.len() <= 64 * mask.len()), "a bit for each word");
    assert!(words.len() <= 1 << 32, "so many sums of 32 bits fit in 64");
}

/// The word of a mask from a position on, without the bits behind the last one.
#[inline]
fn part_of(mask: &[u64], first: usize, len: usize) -> u64 {
    mask[first / 64] & u64::MAX >> (64 - (len - first).min(64))
}

/// One number after the other.
mod portable {
    use super::{AtomicU64, Form, Ordering, is_set};

    #[inline]
    fn numbers(words: &[AtomicU64], form: Form, mask: Option<&[u64]>) -> impl Iterator<Item = i64> {
        let wanted = words.iter().enumerate().filter(move |(position, _)| is_set(mask, *position));
        // Relaxed: see the module.
        wanted.map(move |(_, word)| form.ordered(word.load(Ordering::Relaxed)))
    }

    pub(super) fn sum(words: &[AtomicU64], form: Form, mask: Option<&[u64]>) -> i128 {
        numbers(words, form, mask).map(i128::from).sum()
    }

    pub(super) fn largest(words: &[AtomicU64], form: Form, mask: Option<&[u64]>, turn: i64) -> i64 {
        numbers(words, form, mask).map(|number| number ^ turn).max().unwrap_or(i64::MIN)
    }

    pub(super) fn within(words: &[AtomicU64], form: Form, least: i64, most: i64, bits: &mut [u64]) {
        for (chunk, bits) in words.chunks(64).zip(bits) {
            *bits = numbers(chunk, form, None)
                .enumerate()
                .fold(0, |bits, (position, number)| bits | u64::from((least..=most).contains(&number)) << position);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_base::random::Random;
    use polychron_base::sizes::scaled;

    use super::*;

    const FORMS: [Form; 11] = [
        Form::integer(0, 8, true),
        Form::integer(0, 8, false),
        Form::integer(4, 4, true),
        Form::integer(0, 4, false),
        Form::integer(2, 2, true),
        Form::integer(6, 2, false),
        Form::integer(7, 1, true),
        Form::integer(3, 1, false),
        Form::float(0, 8),
        Form::float(4, 4),
        Form::float(0, 4),
    ];

    /// Words of all magnitudes, the outermost ones among them, or numbers near zero.
    fn words(random: &mut Random, len: usize, are_small: bool) -> Vec<AtomicU64> {
        let draw = |random: &mut Random| match random.below(8) {
            _ if are_small => (random.next_u64().cast_signed() >> (12 + random.below(40))).cast_unsigned(),
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 63,
            3 => (1 << 63) - 1,
            4 => random.below(100),
            _ => random.next_u64(),
        };
        (0..len).map(|_| AtomicU64::new(draw(random))).collect()
    }

    /// What the functions ought to answer, from the definition.
    fn plain(words: &[AtomicU64], form: Form, mask: Option<&[u64]>) -> Vec<i64> {
        let wanted = words.iter().enumerate().filter(|(position, _)| is_set(mask, *position));
        wanted.map(|(_, word)| form.ordered(word.load(Ordering::Relaxed))).collect()
    }

    #[test]
    fn vectors_answer_what_numbers_do_one_by_one() {
        let mut random = Random::from_seed(7);
        let short = (0..70).step_by(70 / scaled(70, 3));
        let lengths = short.chain([127, 128, 129, 1000, 1024, 3000]).filter(|len| *len <= scaled(3000, 70));
        for (len, are_small) in lengths.flat_map(|len| [(len, true), (len, false)]) {
            let words = words(&mut random, len, are_small);
            let drawn: Vec<u64> = (0..len.div_ceil(64)).map(|_| random.next_u64()).collect();
            let (all, none) = (vec![u64::MAX; len.div_ceil(64)], vec![0; len.div_ceil(64)]);
            for form in FORMS {
                for mask in [None, Some(&drawn[..]), Some(&all), Some(&none)] {
                    let numbers = plain(&words, form, mask);
                    let total: i128 = numbers.iter().copied().map(i128::from).sum();
                    let sums = [sum(&words, form, mask), portable::sum(&words, form, mask)];
                    assert_eq!(sums, [total; 2], "{form:?} {len}");
                    assert_eq!(extreme(&words, form, mask, true), numbers.iter().copied().max(), "{form:?} {len}");
                    assert_eq!(extreme(&words, form, mask, false), numbers.iter().copied().min(), "{form:?} {len}");
                }
                let ends = [i64::MIN, -3, 0, 50, random.next_u64().cast_signed(), i64::MAX];
                let ends: Vec<i64> = ends.into_iter().step_by(6 / scaled(6, 3)).collect();
                let numbers = plain(&words, form, None);
                for (least, most) in ends.iter().flat_map(|least| ends.iter().map(|most| (*least, *most))) {
                    let mut bits = vec![u64::MAX; len.div_ceil(64)];
                    within(&words, form, least, most, &mut bits);
                    let mut portably = vec![u64::MAX; len.div_ceil(64)];
                    portable::within(&words, form, least, most, &mut portably);
                    assert_eq!(bits, portably, "{form:?} {len}");
                    for (position, word) in bits.iter().enumerate() {
                        let inside = |bit: &usize| numbers.get(64 * position + bit);
                        let expected = (0..64).filter(|bit| inside(bit).is_some_and(|n| (least..=most).contains(n)));
                        assert_eq!(*word, expected.fold(0, |bits, bit| bits | 1 << bit), "{form:?} {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_match_their_bits_and_order() {
        let word = 0xF0E1_D2C3_B4A5_9687_u64;
        let expected = |form: Form| match (form.mask, form.bias, form.base) {
            (mask, _, _) if form.is_float() => word >> form.shift & mask,
            (u64::MAX, _, _) => word,
            (mask, _, 0) => word >> form.shift & mask,
            (mask, _, sign) => ((word >> form.shift & mask) ^ sign).wrapping_sub(sign),
        };
        for form in FORMS {
            assert_eq!(form.bits(form.ordered(word)), expected(form), "{form:?}");
        }
        let floats = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let form = Form::float(0, 8);
        let ordered = floats.map(|float| form.ordered(float.to_bits()));
        assert!(ordered.is_sorted());
        assert!(ordered.iter().zip(floats).all(|(&number, float)| form.bits(number) == float.to_bits()));
        let floats = [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-40, 2.0, f32::INFINITY, f32::NAN];
        let form = Form::float(4, 4);
        let ordered = floats.map(|float| form.ordered(u64::from(float.to_bits()) << 32 | 0xFFFF_FFFF));
        assert!(ordered.is_sorted());
        assert!(ordered.iter().zip(floats).all(|(&number, float)| form.bits(number) == float.to_bits().into()));
    }

    #[test]
    fn bits_of_words_are_gathered() {
        let mut random = Random::from_seed(9);
        for len in [1, 63, 64, 65, 200] {
            let words = words(&mut random, len, false);
            let mut bits = vec![0; len.div_ceil(64)];
            bits_of(&words, 5, &mut bits);
            for (position, word) in words.iter().enumerate() {
                assert_eq!(bits[position / 64] >> (position % 64) & 1, word.load(Ordering::Relaxed) >> 5 & 1);
            }
        }
    }
}
