//! Nodes as rows of words: how they are read.
//!
//! ```text
//! word 0   entries (16) │ level (8) │ has low, has high (8) │ width of all keys in bytes, or MIXED (16)
//! word 1   the right sibling's record, or 0
//! then, when all keys have one width, of S slices:
//!          low (S) │ high (S) │ first slices of all keys │ second slices … │ values
//! or else  where low is │ where high is │ first slices of all keys │ where each key is │ values │ keys, slice after slice
//! ```
//!
//! A slice is eight bytes of a key as a number, so keys are compared natively. *Where* is the word at which a key begins,
//! and its length in bytes. A node covers the keys from *low* up to, not including, *high*; at the ends of the key space it has
//! none. The value of an entry is a record: in a leaf that of the row, in an inner node the child that covers the keys from the
//! entry's on. The first entry of an inner node covers from the node's low on, so where there is no low its key says nothing.

use std::cmp::Ordering;

use polychron_base::key::EncodedKey;
use polychron_index::Handle;

use crate::cicada::record::{Record, RecordAddress};

/// The width of a node whose keys have different ones.
pub(super) const MIXED: u64 = 0xFFFF;
/// Words before everything else.
pub(super) const HEADER: usize = 2;
pub(super) const HAS_LOW: u64 = 1 << 24;
pub(super) const HAS_HIGH: u64 = 1 << 25;

/// A node as a transaction sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    words: &'a [u64],
}

/// A key in a node, or in words of the same kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRef<'a> {
    words: &'a [u64],
    at: u32,
    stride: u32,
    len: u32,
}

impl<'a> KeyRef<'a> {
    /// A key of no bytes.
    pub(super) const EMPTY: Self = KeyRef { words: &[], at: 0, stride: 1, len: 0 };

    /// The key of `len` bytes whose slices are `words`.
    pub(super) fn new(words: &'a [u64], len: usize) -> Self {
        KeyRef { words, at: 0, stride: 1, len: len as u32 }
    }
}

impl EncodedKey for KeyRef<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        if index < self.len().div_ceil(8) { self.words[self.at as usize + index * self.stride as usize] } else { 0 }
    }
}

/// Compares two keys as byte strings.
#[inline]
pub(super) fn compare<A: EncodedKey, B: EncodedKey>(left: A, right: B) -> Ordering {
    let slices = left.len().min(right.len()).div_ceil(8).max(1);
    for index in 0..slices {
        match left.slice(index).cmp(&right.slice(index)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    // One is a prefix of the other, as far as zero bytes do not tell them apart; the longer one is larger.
    left.len().cmp(&right.len())
}

impl<'a> Node<'a> {
    /// The node in a row.
    ///
    /// # Safety
    /// The words are those of a node, as a transaction has written it, or sees it at a timestamp that is held for `'a`.
    #[inline]
    pub(super) unsafe fn new(words: &'a [u64]) -> Self {
        debug_assert!(words.len() > HEADER, "a node has at least its bounds");
        Node { words }
    }

    /// How many words it has, empty ones at the end included.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// How many entries there are.
    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.words[0] & 0xFFFF) as usize
    }

    /// Leaves have 0, their parents 1, and so on.
    #[inline]
    pub(super) fn level(&self) -> usize {
        (self.words[0] >> 16 & 0xFF) as usize
    }

    #[inline]
    fn width(&self) -> u64 {
        self.words[0] >> 32 & 0xFFFF
    }

    #[inline]
    fn slices(&self) -> usize {
        (self.width() as usize).div_ceil(8)
    }

    /// The right sibling, as it is kept in nodes.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.words[1]
    }

    /// The key where a word says.
    #[inline]
    fn key_where(&self, word: u64) -> KeyRef<'a> {
        KeyRef { words: self.words, at: word as u32, stride: 1, len: (word >> 32) as u32 }
    }

    #[inline]
    fn bound(&self, number: usize) -> KeyRef<'a> {
        if self.width() == MIXED {
            return self.key_where(self.words[HEADER + number]);
        }
        let slices = self.slices();
        KeyRef { words: self.words, at: (HEADER + number * slices) as u32, stride: 1, len: self.width() as u32 }
    }

    /// The least key that the node covers; `None` at the beginning of the key space.
    #[inline]
    pub(super) fn low(&self) -> Option<KeyRef<'a>> {
        (self.words[0] & HAS_LOW != 0).then(|| self.bound(0))
    }

    /// The least key behind those that the node covers; `None` at the end of the key space.
    #[inline]
    pub(super) fn high(&self) -> Option<KeyRef<'a>> {
        (self.words[0] & HAS_HIGH != 0).then(|| self.bound(1))
    }

    /// Where the first slices of the keys begin.
    #[inline]
    fn keys_start(&self) -> usize {
        HEADER + if self.width() == MIXED { 2 } else { 2 * self.slices() }
    }

    /// The key of an entry.
    #[inline]
    pub(super) fn key(&self, position: usize) -> KeyRef<'a> {
        let (start, count) = (self.keys_start(), self.count());
        debug_assert!(position < count);
        if self.width() == MIXED {
            return self.key_where(self.words[start + count + position]);
        }
        KeyRef { words: self.words, at: (start + position) as u32, stride: count as u32, len: self.width() as u32 }
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, position: usize) -> u64 {
        let columns = if self.width() == MIXED { 2 } else { self.slices() };
        self.words[self.keys_start() + columns * self.count() + position]
    }

    /// The record of an entry.
    #[inline]
    pub(super) fn record(&self, position: usize) -> Record<'a> {
        self.record_of(self.value(position)).expect("entries name records")
    }

    /// The right sibling.
    #[inline]
    pub(super) fn sibling(&self) -> Option<Record<'a>> {
        self.record_of(self.next())
    }

    /// The record that one of the node's words names.
    #[inline]
    fn record_of(&self, word: u64) -> Option<Record<'a>> {
        // SAFETY: nodes hold handles of records only, and a transaction that reads a node keeps the records that it leads to (`mod.rs`).
        Handle::new(word).map(|handle| unsafe { RecordAddress::of(handle).under(self.words) })
    }

    /// Whether all keys have the width of this one, and one slice.
    #[inline]
    fn is_narrow<K: EncodedKey>(&self, key: K) -> bool {
        self.width() <= 8 && key.len() == self.width() as usize
    }

    /// Where a key lies: less than what the node covers, greater, or covered by it.
    #[inline]
    pub(super) fn side_of<K: EncodedKey>(&self, key: K) -> Ordering {
        let (has_low, has_high) = (self.words[0] & HAS_LOW != 0, self.words[0] & HAS_HIGH != 0);
        if self.is_narrow(key) {
            let (number, low, high) = (key.slice(0), self.words[HEADER], self.words[HEADER + 1]);
            return if has_high && number >= high {
                Ordering::Greater
            } else if has_low && number < low {
                Ordering::Less
            } else {
                Ordering::Equal
            };
        }
        if self.high().is_some_and(|high| compare(high, key).is_le()) {
            Ordering::Greater
        } else if self.low().is_some_and(|low| compare(key, low).is_lt()) {
            Ordering::Less
        } else {
            Ordering::Equal
        }
    }

    /// How many keys are smaller than `key`, and whether the one behind those is `key`.
    #[inline]
    pub(super) fn rank<K: EncodedKey>(&self, key: K) -> (usize, bool) {
        // An inner node's first entry is looked at by nobody: its key may say nothing.
        let (first, count) = (usize::from(self.level() > 0), self.count());
        if self.is_narrow(key) {
            let start = self.keys_start();
            let rank = first + count_below(&self.words[start + first..start + count], key.slice(0));
            return (rank, rank < count && self.words[start + rank] == key.slice(0));
        }
        let (mut from, mut to) = (first, count);
        while from < to {
            let middle = (from + to) / 2;
            match compare(self.key(middle), key) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => to = middle,
            }
        }
        (from, false)
    }

    /// The entry of an inner node whose child covers `key`, or what lies just below it.
    #[inline]
    pub(super) fn child<K: EncodedKey>(&self, key: K, below: bool) -> usize {
        debug_assert!(self.level() > 0 && self.count() > 0);
        let (rank, is_there) = self.rank(key);
        rank + usize::from(is_there && !below) - 1
    }
}

/// How many of some sorted numbers are smaller than `number`; without a branch on what they are.
#[inline]
fn count_below(numbers: &[u64], number: u64) -> usize {
    let (mut base, mut size) = (0, numbers.len());
    while size > 1 {
        let half = size / 2;
        base += if numbers[base + half - 1] < number { half } else { 0 };
        size -= half;
    }
    base + usize::from(size == 1 && numbers[base] < number)
}

/// The word that names a record.
#[inline]
pub(super) fn word_of(record: RecordAddress) -> u64 {
    record.handle().get()
}
