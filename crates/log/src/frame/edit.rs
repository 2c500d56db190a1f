//! How changes are written: to memory of any kind, and only once they are known to be within all limits.

use polychron_base::key::MAX_KEY_BYTES;

use crate::codec::{Sink, put_varint, put_varints};

/// How many words of eight bytes a row may have.
pub const MAX_ROW_WORDS: usize = 1 << 17;

pub(super) const PUT: u64 = 0;
pub(super) const PATCH: u64 = 1;
pub(super) const DELETE: u64 = 2;

/// Why a change or a record was not written; nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The frame has no room for it.
    #[error("the frame is full")]
    Full,
    /// Such a change cannot be.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A change that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit<'a> {
    /// A row is now these words.
    Put(&'a [u64]),
    /// Ranges of the row of a key, each by its first word, are now these.
    Patch(&'a [u8], &'a [(usize, &'a [u64])]),
    /// The row of a key is gone.
    Delete(&'a [u8]),
}

impl Edit<'_> {
    /// Whether it is within the limits, and so can be written.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Put(words) => check_words(0, words),
            Self::Delete(key) => check_key(key),
            Self::Patch(key, ranges) => {
                check_key(key)?;
                if ranges.is_empty() {
                    return Err(Refused::Invalid("a patch has a range"));
                }
                let mut end = 0;
                for (first, words) in *ranges {
                    check_words(*first, words)?;
                    if *first < end || words.is_empty() {
                        return Err(Refused::Invalid("ranges of a patch ascend and are not empty"));
                    }
                    end = first + words.len();
                }
                Ok(())
            }
        }
    }

    /// How many bytes it takes at most.
    pub(crate) fn most_bytes(&self) -> usize {
        /// Numbers that tell of table, kind and lengths.
        const NUMBERS: usize = 16;
        // Each run takes no more than its words, but for the first one, which may have no zeroes.
        let words = |words: &[u64]| NUMBERS + 8 * words.len();
        match self {
            Self::Put(row) => NUMBERS + words(row),
            Self::Delete(key) => NUMBERS + key.len(),
            Self::Patch(key, ranges) => {
                NUMBERS + key.len() + ranges.iter().map(|(_, range)| words(range)).sum::<usize>()
            }
        }
    }

    /// Writes it. It was checked.
    #[inline]
    pub(crate) fn write(&self, table: u32, sink: &mut impl Sink) {
        let head = |kind| u64::from(table) << 2 | kind;
        match self {
            Self::Put(row) => {
                put_varints(sink, head(PUT), row.len() as u64);
                write_words(sink, row);
            }
            Self::Patch(key, ranges) => {
                write_key(sink, head(PATCH), key);
                put_varint(sink, ranges.len() as u64);
                let mut end = 0;
                for (first, words) in *ranges {
                    put_varints(sink, (first - end) as u64, words.len() as u64);
                    write_words(sink, words);
                    end = first + words.len();
                }
            }
            Self::Delete(key) => write_key(sink, head(DELETE), key),
        }
    }
}

#[inline]
fn write_key(sink: &mut impl Sink, head: u64, key: &[u8]) {
    put_varints(sink, head, key.len() as u64);
    sink.bytes(key);
}

#[inline]
fn write_words(sink: &mut impl Sink, mut words: &[u64]) {
    let run = |words: &[u64], is_zero| words.iter().position(|word| (*word == 0) != is_zero).unwrap_or(words.len());
    while !words.is_empty() {
        let (zeroes, rest) = words.split_at(run(words, true));
        let (others, rest) = rest.split_at(run(rest, false));
        put_varints(sink, zeroes.len() as u64, others.len() as u64);
        sink.words(others);
        words = rest;
    }
}

fn check_key(key: &[u8]) -> Result<(), Refused> {
    if key.len() <= MAX_KEY_BYTES { Ok(()) } else { Err(Refused::Invalid("the key is too long")) }
}

fn check_words(first: usize, words: &[u64]) -> Result<(), Refused> {
    let is_fine = first <= MAX_ROW_WORDS && words.len() <= MAX_ROW_WORDS - first;
    if is_fine { Ok(()) } else { Err(Refused::Invalid("the row is too long")) }
}
