//! What the before-images of a slot put back, told by the slot itself: so collection finds out that a newer before-image is not needed
//! without looking at older ones, which lie anywhere.
//!
//! ```text
//!  restored   timestamp (48) │ words (16)
//! ```

use std::ops::Range;

use polychron_engine::mutations::left_out;

use super::steps::Step;
use super::undo::{Kind, Undo};

/// Bits for words; the last one stands for its word and all behind it.
const BITS: u32 = 16;
const LAST: usize = BITS as usize - 1;
const MANY: u16 = 1 << LAST;

/// Any thread that undoes the slot down to the timestamp `at`, while that is read, puts all of these words back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restored {
    at: u64,
    words: u16,
}

impl Restored {
    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Self { at: word >> BITS, words: word as u16 }
    }

    /// Of timestamps that need more bits nothing is known.
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        if self.at >> (u64::BITS - BITS) == 0 { self.at << BITS | u64::from(self.words) } else { 0 }
    }

    #[inline]
    pub(super) fn is_unknown(self) -> bool {
        self.at == 0
    }

    /// Whether that is known of all words that a before-image puts back, at a timestamp.
    #[inline]
    pub(super) fn has(self, before_image: Undo<'_>, timestamp: u64) -> bool {
        (timestamp == self.at || left_out(Step::RestoredTimestamps))
            && (wanted(before_image) & !self.words == 0 || left_out(Step::RestoredWords))
    }

    /// What is known at a timestamp, once a before-image that was committed later is in the chain of a row of so many words.
    #[inline]
    pub(super) fn with(self, before_image: Undo<'_>, timestamp: u64, row_words: usize) -> Self {
        let known = if timestamp == self.at { self.words } else { 0 };
        Self { at: timestamp, words: known | given(before_image, row_words) }
    }
}

/// The words that a before-image puts back, those behind the last bit as one.
#[inline]
fn wanted(before_image: Undo<'_>) -> u16 {
    fragments(before_image).fold(0, |words, fragment| words | bits(fragment))
}

/// The words that it puts back for certain: a thread that undoes an insertion needs none.
#[inline]
fn given(before_image: Undo<'_>, row_words: usize) -> u16 {
    if before_image.kind() == Kind::Insert {
        return u16::MAX;
    }
    fragments(before_image).fold(0, |words, fragment| words | certain_bits(fragment, row_words))
}

fn fragments(before_image: Undo<'_>) -> impl Iterator<Item = Range<usize>> {
    before_image.fragments().map(|(first, fragment)| first..first + fragment.len())
}

/// The bits of some words, the last one if any of its words is among them.
#[inline]
fn bits(words: Range<usize>) -> u16 {
    let below = |word: usize| if word >= LAST { MANY - 1 } else { (1 << word) - 1 };
    below(words.end) & !below(words.start) | if words.end > LAST { MANY } else { 0 }
}

/// The bits of some words, the last one if all of its words are among them.
#[inline]
fn certain_bits(words: Range<usize>, row_words: usize) -> u16 {
    let has_rest = words.start <= LAST && words.end >= row_words;
    bits(words.start..if has_rest { usize::MAX } else { words.end.min(LAST) })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_be_put_back_is() {
        let ranges = |end: usize| (0..end).flat_map(move |first| (first + 1..=end).map(move |end| first..end));
        for row_words in [2, 16, 17] {
            for (put_back, asked) in
                ranges(row_words).flat_map(|range| ranges(row_words).map(move |other| (range.clone(), other)))
            {
                let is_inside = put_back.start <= asked.start && asked.end <= put_back.end;
                let is_known = bits(asked.clone()) & !certain_bits(put_back.clone(), row_words) == 0;
                assert!(is_inside || !is_known, "{put_back:?} does not have {asked:?}");
                let has_a_bit = asked.end <= LAST || put_back.start <= LAST && put_back.end == row_words;
                assert_eq!(is_known, is_inside && has_a_bit, "{put_back:?} and {asked:?} of {row_words} words");
            }
        }
    }
}
