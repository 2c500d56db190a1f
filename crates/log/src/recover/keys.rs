//! The keys of one table, and where each is found.
//!
//! A hash table of its own, because its memory has to be asked for ahead: what a change needs lies in three places or four, each behind the one before,
//! and reading them one after the other is nearly all that a change would cost.

use std::cmp::Ordering;

use polychron_sync::atomic::{self, AtomicBool};
use polychron_sync::prefetch_read;

use super::arena::{Arena, Span};
use super::part::Stamp;

/// What stands for no row that is known, and for no row at all, in place of a number of words, of which rows have fewer.
pub(super) const UNKNOWN: u32 = u32::MAX;
pub(super) const NOTHING: u32 = u32::MAX - 1;
/// No patch.
pub(super) const NONE: u32 = u32::MAX;

const SHORT: usize = 16;
/// The length that stands for a key that lies in the arena.
const LONG: u8 = u8::MAX;
const FIRST_SLOTS: usize = 16;

/// The knowledge of a key, in one cache line.
#[derive(Debug)]
pub(super) struct Entry {
    /// Of the newest put or deletion.
    pub(super) stamp: Stamp,
    /// How many words the row has that was put.
    pub(super) words: u32,
    /// These words, encoded.
    pub(super) encoded: Span,
    /// The newest patch, and behind it the others, in no order.
    pub(super) patches: u32,
    /// The key, if it is short.
    bytes: [u8; SHORT],
    length: u8,
    /// Whether the checkpoint has had its row.
    met: AtomicBool,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Entry>() <= 64);

impl Entry {
    fn new(key: &[u8], arena: &mut Arena) -> Self {
        let mut bytes = [0; SHORT];
        let length = match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key);
                key.len() as u8
            }
            None => {
                bytes[..Span::BYTES].copy_from_slice(&arena.push(key).to_bytes());
                LONG
            }
        };
        let met = AtomicBool::new(false);
        Self { stamp: Stamp::default(), words: UNKNOWN, encoded: Span::default(), patches: NONE, bytes, length, met }
    }

    #[inline]
    pub(super) fn key<'k>(&'k self, arena: &'k Arena) -> &'k [u8] {
        match self.bytes.get(..usize::from(self.length)) {
            Some(short) => short,
            None => {
                let Some(span) = self.bytes.first_chunk() else { unreachable!("it is longer") };
                arena.get(Span::from_bytes(*span))
            }
        }
    }

    /// Which key is first.
    #[inline]
    pub(super) fn compare(&self, other: &Self, arena: &Arena) -> Ordering {
        if self.length == LONG || other.length == LONG {
            return self.key(arena).cmp(other.key(arena));
        }
        let short = |entry: &Self| (u128::from_be_bytes(entry.bytes), entry.length);
        short(self).cmp(&short(other))
    }

    /// Notes that the checkpoint has a row of this key; whether it had one before.
    pub(super) fn meet(&self) -> bool {
        // Threads share it, and nothing else depends on it before they have all ended.
        self.met.swap(true, atomic::Ordering::Relaxed)
    }

    pub(super) fn was_met(&self) -> bool {
        self.met.load(atomic::Ordering::Relaxed)
    }
}

/// The keys of one table.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The low half of a key's hash, and one more than the number of its entry; 0 if it is free. As many as a power of two.
    slots: Vec<(u32, u32)>,
    pub(super) entries: Vec<Entry>,
}

impl Keys {
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<(u32, u32)>() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The first entry that may be that of a key with this hash, and is.
    #[inline]
    fn probe(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let (tag, mask) = (hash as u32, self.slots.len().wrapping_sub(1));
        let mut at = tag as usize & mask;
        // It ends at a slot that is free: a quarter is, or there are none.
        while let Some((other, entry)) = self.slots.get(at).filter(|(_, entry)| *entry != 0) {
            let number = *entry as usize - 1;
            if *other == tag && is_it(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
        None
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8], arena: &Arena) -> Option<usize> {
        self.probe(hash, |number| self.has(number, key, arena))
    }

    /// Whether an entry is that of a key.
    #[inline]
    pub(super) fn has(&self, number: usize, key: &[u8], arena: &Arena) -> bool {
        self.entries.get(number).is_some_and(|entry| entry.key(arena) == key)
    }

    pub(super) fn find_or_insert(&mut self, hash: u64, key: &[u8], arena: &mut Arena) -> usize {
        if let Some(at) = self.find(hash, key, arena) {
            return at;
        }
        // A quarter is free, so that searches end soon.
        if self.slots.len() * 3 <= self.entries.len() * 4 {
            let count = (2 * self.slots.len()).max(FIRST_SLOTS);
            let slots = std::mem::replace(&mut self.slots, vec![(0, 0); count]);
            slots.into_iter().filter(|(_, entry)| *entry != 0).for_each(|slot| self.place(slot));
        }
        self.entries.push(Entry::new(key, arena));
        self.place((hash as u32, self.entries.len() as u32));
        self.entries.len() - 1
    }

    fn place(&mut self, slot: (u32, u32)) {
        let mask = self.slots.len() - 1;
        let mut at = slot.0 as usize & mask;
        while self.slots[at].1 != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Asks for the place where a key of this hash is found.
    pub(super) fn fetch_slot(&self, hash: u64) {
        prefetch_read(self.slots.as_ptr().wrapping_add(hash as u32 as usize & self.slots.len().wrapping_sub(1)));
    }

    /// The number of its entry, most likely.
    #[inline]
    pub(super) fn candidate(&self, hash: u64) -> Option<usize> {
        self.probe(hash, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_compare_as_their_keys() {
        let long = [7; 40];
        let keys = [&b""[..], b"\0", b"\0\0", b"a", b"a\0", b"ab", &long[..16], &long[..17], &long, &[8]];
        let mut arena = Arena::default();
        let entries: Vec<Entry> = keys.iter().map(|key| Entry::new(key, &mut arena)).collect();
        for (one, first) in entries.iter().zip(keys) {
            for (other, second) in entries.iter().zip(keys) {
                assert_eq!(one.compare(other, &arena), first.cmp(second), "{first:?} and {second:?}");
            }
        }
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let (mut keys, mut arena) = (Keys::default(), Arena::default());
        assert_eq!((keys.candidate(7), keys.find(7, b"", &arena)), (None, None));
        let key = |number: usize| number.to_be_bytes();
        (0..100).for_each(|number| assert_eq!(keys.find_or_insert(7, &key(number), &mut arena), number));
        for number in 0..100 {
            assert_eq!(keys.find_or_insert(7, &key(number), &mut arena), number);
            assert_eq!(keys.find(7, &key(number), &arena), Some(number));
            assert!(keys.has(number, &key(number), &arena) && !keys.has(number, &key(number + 1), &arena));
        }
        assert!(keys.candidate(7).is_some() && keys.candidate(8).is_none());
        assert!(keys.find(7, &key(100), &arena).is_none() && !keys.has(100, &key(100), &arena));
    }
}
