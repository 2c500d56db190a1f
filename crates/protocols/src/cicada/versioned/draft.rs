//! Nodes as rows of words: how they are made. A node never changes; a changed one is drafted from those before, and written whole.

use polychron_base::key::EncodedKey;
use polychron_schema::RowBuffer;

use super::node::{HAS_HIGH, HAS_LOW, HEADER, KeyRef, MIXED, Node};

/// Entries of the largest node that is drafted: one with most entries and one more.
pub(super) const MOST: usize = 40;
/// A node of so few entries is never divided, however long its keys.
pub(super) const LEAST: usize = 8;

/// A node in the making.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) level: usize,
    pub(super) low: Option<KeyRef<'a>>,
    pub(super) high: Option<KeyRef<'a>>,
    pub(super) next: u64,
    entries: [(KeyRef<'a>, u64); MOST],
    count: usize,
}

impl<'a> Draft<'a> {
    /// A node without entries that covers everything.
    pub(super) fn empty(level: usize) -> Self {
        Draft { level, low: None, high: None, next: 0, entries: [(KeyRef::EMPTY, 0); MOST], count: 0 }
    }

    /// The same as a node.
    pub(super) fn of(node: Node<'a>) -> Self {
        let mut draft = Self::empty(node.level());
        (draft.low, draft.high, draft.next) = (node.low(), node.high(), node.next());
        (0..node.count()).for_each(|position| draft.push(node.key(position), node.value(position)));
        draft
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The key of an entry.
    pub(super) fn key(&self, position: usize) -> KeyRef<'a> {
        self.entries[position].0
    }

    pub(super) fn push(&mut self, key: KeyRef<'a>, value: u64) {
        self.insert(self.count, key, value);
    }

    pub(super) fn insert(&mut self, position: usize, key: KeyRef<'a>, value: u64) {
        self.entries.copy_within(position..self.count, position + 1);
        self.entries[position] = (key, value);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, position: usize) {
        self.entries.copy_within(position + 1..self.count, position);
        self.count -= 1;
    }

    /// Whether a node of so many words may hold it: a few entries stay together in any case.
    pub(super) fn fits(&self, words: usize) -> bool {
        self.count <= LEAST || self.count < MOST && self.words() <= words
    }

    /// Takes the upper half away, as a node to the right; this one's next is still to be said. Where keys come in ascending
    /// order the left one stays full.
    pub(super) fn divide(&mut self, ascending: bool) -> Self {
        let middle = if ascending { self.count - 1 } else { self.count / 2 };
        let mut right = Self::empty(self.level);
        self.entries[middle..self.count].iter().for_each(|&(key, value)| right.push(key, value));
        (right.low, right.high, right.next) = (Some(right.key(0)), self.high, self.next);
        self.high = right.low;
        self.count = middle;
        right
    }

    /// How many entries at the front have keys that say nothing.
    fn unbounded(&self) -> usize {
        usize::from(self.level > 0 && self.low.is_none() && self.count > 0)
    }

    /// The key of an entry, as it is kept.
    fn kept_key(&self, position: usize) -> KeyRef<'a> {
        if position < self.unbounded() { KeyRef::EMPTY } else { self.entries[position].0 }
    }

    /// All keys whose bytes are kept.
    fn keys(&self) -> impl Iterator<Item = KeyRef<'a>> {
        let entries = &self.entries[self.unbounded()..self.count];
        self.low.into_iter().chain(self.high).chain(entries.iter().map(|entry| entry.0))
    }

    /// The width that all keys have.
    fn width(&self) -> Option<usize> {
        let mut keys = self.keys();
        // A node without any key has room for numbers, which most keys are.
        let width = keys.next().map_or(8, |key| key.len());
        (width > 0 && keys.all(|key| key.len() == width)).then_some(width)
    }

    fn words(&self) -> usize {
        match self.width() {
            Some(width) => HEADER + 2 * width.div_ceil(8) + self.count * (width.div_ceil(8) + 1),
            None => HEADER + 2 + 3 * self.count + self.keys().map(|key| key.len().div_ceil(8)).sum::<usize>(),
        }
    }

    /// Writes the node.
    pub(super) fn write(&self, row: &mut RowBuffer) {
        self.write_padded(0, row);
    }

    /// Writes a node that replaces one of `before` words. It has as many, if it has more than half of them: memory of the same size
    /// comes back for what it takes, which at the limit may be all that fits.
    pub(super) fn write_padded(&self, before: usize, row: &mut RowBuffer) {
        let (width, least) = (self.width(), self.words());
        let words = row.overwrite_words(if least > before / 2 { least.max(before) } else { least });
        let flag = |is_there: bool, bit| if is_there { bit } else { 0 };
        words[0] = self.count as u64
            | (self.level as u64) << 16
            | flag(self.low.is_some(), HAS_LOW)
            | flag(self.high.is_some(), HAS_HIGH)
            | width.map_or(MIXED, |width| width as u64) << 32;
        words[1] = self.next;
        match width {
            Some(width) => self.write_even(words, width.div_ceil(8)),
            None => self.write_mixed(words),
        }
    }

    fn write_even(&self, words: &mut [u64], slices: usize) {
        let (bounds, entries) = words[HEADER..].split_at_mut(2 * slices);
        for (number, key) in [self.low, self.high].into_iter().enumerate() {
            let key = key.unwrap_or(KeyRef::EMPTY);
            (0..slices).for_each(|slice| bounds[number * slices + slice] = key.slice(slice));
        }
        let (keys, values) = entries.split_at_mut(slices * self.count);
        for (position, value) in self.entries[..self.count].iter().map(|entry| entry.1).enumerate() {
            let key = self.kept_key(position);
            (0..slices).for_each(|slice| keys[slice * self.count + position] = key.slice(slice));
            values[position] = value;
        }
    }

    fn write_mixed(&self, words: &mut [u64]) {
        let count = self.count;
        let mut end = HEADER + 2 + 3 * count;
        let mut keep = |words: &mut [u64], key: KeyRef<'_>| {
            let slices = key.len().div_ceil(8);
            (0..slices).for_each(|slice| words[end + slice] = key.slice(slice));
            let word = end as u64 | (key.len() as u64) << 32;
            end += slices;
            word
        };
        for (number, key) in [self.low, self.high].into_iter().enumerate() {
            words[HEADER + number] = key.map_or(0, |key| keep(words, key));
        }
        let start = HEADER + 2;
        for (position, value) in self.entries[..count].iter().map(|entry| entry.1).enumerate() {
            let key = self.kept_key(position);
            words[start + position] = key.slice(0);
            words[start + count + position] = keep(words, key);
            words[start + 2 * count + position] = value;
        }
    }
}

/// Says of a node that was written what its right sibling is.
pub(super) fn set_next(row: &mut RowBuffer, next: u64) {
    let words = row.as_words().len();
    row.overwrite_words(words)[1] = next;
}

/// Keeps the slices of a key.
pub(super) fn keep<K: EncodedKey>(key: K, words: &mut Vec<u64>) {
    words.clear();
    words.extend((0..key.len().div_ceil(8)).map(|index| key.slice(index)));
}
