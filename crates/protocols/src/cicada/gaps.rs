//! Read timestamps for what is not there.
//!
//! A row that was read has a version, which keeps until when it was read. An absent key has none, and in the order of timestamps
//! that matters: after a transaction with timestamp 9 has found a key absent and committed, one with timestamp 5 may still
//! be under way and insert it. The paper's multi-version indexes keep read timestamps in their nodes; nodes of the shared
//! indexes have stamps instead, which tell of insertions before the reader's validation and nothing of those after it.
//!
//! So there is a table of read timestamps for parts of the key space, found by hashing. A part is a single key, or all
//! keys that begin with the same bytes. A transaction that missed a key raises that key's timestamp; one that scanned raises the one of the longest
//! prefix that all keys of the visited range share. One that inserts looks at the key and at those of its prefixes that
//! were ever scanned by, which each index keeps as a set of lengths. Parts that share a word make an early inserter abort in
//! vain, and only when the other part was read by a transaction with a later timestamp in these microseconds.
//!
//! Keys are what is divided, not nodes, so that nothing changes when nodes split, merge, or move.

use std::ops::Bound;

use polychron_base::key::{EncodedKey, HashSeed};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;
use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::record::raise;
use super::steps::Step;
use super::timestamp::Timestamp;

/// Words of the table: what was read absent within the life of a transaction is spread over them.
const WORDS: usize = if MODELLED { 64 } else { 4096 };
/// The longest prefix that is distinguished.
const LONGEST_PREFIX: usize = 31;

/// The table.
#[derive(Debug)]
pub(super) struct GapReadTimestamps {
    words: Box<[AtomicU64]>,
}

/// A part of the key space of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyPartition(u64);

/// The lengths of prefixes by which an index was scanned.
#[derive(Debug, Default)]
pub(super) struct PrefixLengths(AtomicU32);

fn mix(state: u64, value: u64) -> u64 {
    let product = u128::from(state ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline]
fn seed(place: IndexRef, kind: u64) -> u64 {
    ((place.table.position() as u64) << 32 | u64::from(place.index.0)).rotate_left(17)
        ^ kind.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl KeyPartition {
    /// A single key.
    // A client that chooses keys that share a word makes transactions conflict; one key alone does that, too.
    #[inline]
    pub(super) fn key<K: EncodedKey>(place: IndexRef, key: K) -> Self {
        Self(mix(seed(place, u64::MAX), key.hash(HashSeed::FIXED)))
    }

    /// All keys that begin with the first `bytes` bytes of `key`.
    #[inline]
    fn prefix<K: EncodedKey>(place: IndexRef, key: K, bytes: usize) -> Self {
        let mut state = seed(place, bytes as u64 + 1);
        for index in 0..bytes / 8 {
            state = mix(state, key.slice(index));
        }
        if !bytes.is_multiple_of(8) {
            state = mix(state, key.slice(bytes / 8) >> (64 - 8 * (bytes % 8)));
        }
        Self(mix(state, 1))
    }

    /// The smallest part that holds the whole range; the index notes that it is scanned so.
    pub(super) fn range(place: IndexRef, lower: Bound<&[u8]>, upper: Bound<&[u8]>, lengths: &PrefixLengths) -> Self {
        let low = match lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let bytes = shared_prefix(low, upper).min(LONGEST_PREFIX);
        lengths.add(bytes);
        Self::prefix(place, low, bytes)
    }

    fn word(self) -> usize {
        (self.0 >> 40) as usize % WORDS
    }
}

/// How many first bytes all keys from `low` to the bound share.
fn shared_prefix(low: &[u8], upper: Bound<&[u8]>) -> usize {
    // The largest key below an excluded bound ends in a smaller byte and then the largest ones, without end.
    let high: (&[u8], Option<u8>) = match upper {
        Bound::Unbounded => return 0,
        Bound::Included(key) => (key, None),
        Bound::Excluded(key) => match key.split_last() {
            None => return 0,
            Some((0, rest)) => (rest, None),
            Some((last, rest)) => (rest, Some(last - 1)),
        },
    };
    let (bytes, last) = high;
    let byte_at = |index: usize| match index.checked_sub(bytes.len()) {
        None => Some(bytes[index]),
        Some(0) => last,
        Some(_) => last.map(|_| u8::MAX),
    };
    low.iter().enumerate().take_while(|&(index, &byte)| byte_at(index) == Some(byte)).count()
}

impl PrefixLengths {
    fn add(&self, bytes: usize) {
        if left_out(Step::NoteLengths) {
            return;
        }
        let bit = 1 << bytes;
        // Relaxed here is enough to save the write: a thread that finds the bit set relies on the one that set it, sequentially consistent too.
        if self.0.load(Ordering::SeqCst) & bit == 0 {
            // SeqCst: before the timestamp is raised and the stamps are asked, in the one order of all.
            self.0.fetch_or(bit, Ordering::SeqCst);
        }
    }
}

impl GapReadTimestamps {
    /// Nothing was found empty after `stable`.
    pub(super) fn new(stable: Timestamp) -> Self {
        Self { words: (0..WORDS).map(|_| AtomicU64::new(stable.0)).collect() }
    }

    /// Notes that nothing more may come into the part before `timestamp`.
    #[inline]
    pub(super) fn raise(&self, part: KeyPartition, timestamp: Timestamp) {
        raise(&self.words[part.word()], timestamp);
    }

    /// Whether a key may come into being at `timestamp`: no part that holds it was found empty later.
    #[inline]
    pub(super) fn admit<K: EncodedKey>(
        &self,
        place: IndexRef,
        key: K,
        lengths: &PrefixLengths,
        timestamp: Timestamp,
    ) -> bool {
        // SeqCst: behind the insertion in the one order of all.
        let admits =
            |part: KeyPartition| !Timestamp(self.words[part.word()].load(Ordering::SeqCst)).is_after(timestamp);
        if !admits(KeyPartition::key(place, key)) && !left_out(Step::AdmitKeys) {
            return false;
        }
        let mut lengths = lengths.0.load(Ordering::SeqCst);
        while lengths != 0 {
            let bytes = lengths.trailing_zeros() as usize;
            lengths &= lengths - 1;
            if bytes <= key.len() && !admits(KeyPartition::prefix(place, key, bytes)) && !left_out(Step::AdmitRanges) {
                return false;
            }
        }
        true
    }

    /// Brings words near that nobody can still depend on, so that they never come to lie in the future.
    pub(super) fn refresh(&self, stable: Timestamp) {
        for word in &self.words {
            raise(word, stable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polychron_base::{IndexId, TableId};

    const PLACE: IndexRef = IndexRef { table: TableId::new(1, 3), index: IndexId(1) };

    #[test]
    fn ranges_share_the_prefix_of_all_their_keys() {
        let shared = |low: &[u8], upper| shared_prefix(low, upper);
        assert_eq!(shared(&[1, 2, 3], Bound::Included(&[1, 2, 9][..])), 2);
        assert_eq!(shared(&[1, 2], Bound::Excluded(&[1, 3][..])), 2, "all keys below begin with 1, 2");
        assert_eq!(shared(&[1, 2, 0], Bound::Excluded(&[1, 3][..])), 2);
        assert_eq!(shared(&[1, 2, 255], Bound::Excluded(&[1, 3][..])), 3);
        assert_eq!(shared(&[1, 2], Bound::Excluded(&[1, 2, 0][..])), 2);
        assert_eq!(shared(&[1, 2], Bound::Excluded(&[1, 4][..])), 1);
        assert_eq!(shared(&[], Bound::Excluded(&[1, 4][..])), 0);
        assert_eq!(shared(&[7], Bound::Unbounded), 0);
    }

    #[test]
    fn an_early_insertion_into_a_range_that_was_read_later_is_refused() {
        let (gaps, lengths) = (GapReadTimestamps::new(Timestamp(0)), PrefixLengths::default());
        let part = KeyPartition::range(PLACE, Bound::Included(&[5, 1]), Bound::Excluded(&[5, 2][..]), &lengths);
        gaps.raise(part, Timestamp(100));
        let admit = |key: &[u8], timestamp| gaps.admit(PLACE, key, &lengths, Timestamp(timestamp));
        assert!(!admit(&[5, 1, 7], 99) && !admit(&[5, 1], 1));
        assert!(admit(&[5, 1, 7], 101));
        assert!(admit(&[5, 2, 7], 99) && admit(&[5], 99), "other parts were not read");
        gaps.raise(KeyPartition::key(PLACE, &[9u8, 9][..]), Timestamp(200));
        assert!(!admit(&[9, 9], 199) && admit(&[9, 8], 199));
    }
}
