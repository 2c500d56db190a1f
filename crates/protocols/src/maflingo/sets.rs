//! What a running transaction remembers: read set, node set, write set (§4.2, 4.3), in memory that is kept from one
//! transaction to the next (§5).
//!
//! The write set is a list that only grows: every write is an entry of its own, linked to the entry before it for the same
//! record. So a savepoint is a length, undoing to it is a truncation, and commit applies the entries of a record in order.

use polychron_base::clear_each;
use polychron_base::room::KeptList;
use polychron_engine::stores::{IndexRef, NodeSet};
use polychron_schema::RowRef;

use super::aside::Kept;
use super::record::Tid;

/// A record that was read, and the id it had then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) record: Kept,
    pub(super) tid: Tid,
    pub(super) index_ref: IndexRef,
}

/// What a write does to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The record is this transaction's own, already in the index, absent, with the row inside.
    Insert,
    /// The row becomes `data`; the record had no row when this was decided, or it did not matter.
    Put,
    /// Words from `start` on become `data`.
    Patch,
    /// The row goes.
    Delete,
}

/// A span of words in the transaction's arena.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) offset: u32,
    pub(super) words: u32,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) record: Kept,
    pub(super) index_ref: IndexRef,
    pub(super) kind: Kind,
    /// Whether the record came into the index by this transaction: on all writes of such a record.
    pub(super) own_record: bool,
    /// First word of a patch.
    pub(super) start: u32,
    /// The key's length in bytes; its words are in the arena.
    pub(super) key_bytes: u16,
    pub(super) key: Span,
    pub(super) data: Span,
    /// The write before this one for the same record.
    pub(super) prior: Option<u32>,
}

const EMPTY: u32 = u32::MAX;
/// Patches of a record on top of each other; the next change of the row writes it whole.
pub(super) const MOST_PATCHES: usize = 8;
const FIRST_SLOTS: usize = 64;

/// The write set: entries, their data, and a small hash table that finds a record's latest entry.
#[derive(Debug)]
pub(super) struct WriteSet {
    writes: Vec<Write>,
    arena: Vec<u64>,
    slots: Vec<u32>,
    /// Whether a record was written more than once.
    repeats: bool,
    /// Whether any write brings a whole row to a record, which may have to grow.
    has_rows: bool,
}

impl Default for WriteSet {
    fn default() -> Self {
        Self { writes: Vec::new(), arena: Vec::new(), slots: vec![EMPTY; FIRST_SLOTS], repeats: false, has_rows: false }
    }
}

impl WriteSet {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether some write may need a record of another size. Sticks, though the write be undone.
    #[inline]
    pub(super) fn has_rows(&self) -> bool {
        self.has_rows
    }

    #[inline]
    pub(super) fn get(&self, position: u32) -> &Write {
        &self.writes[position as usize]
    }

    /// All writes, oldest first.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    /// The first write of each written record, and the position of its latest one.
    #[inline]
    pub(super) fn firsts(&self) -> impl Iterator<Item = (&Write, u32)> {
        let firsts = self.writes.iter().enumerate().filter(|(_, write)| write.prior.is_none());
        firsts.map(|(position, write)| {
            let latest = if self.repeats { self.latest(write.record) } else { None };
            (write, latest.unwrap_or(position as u32))
        })
    }

    /// Puts the positions of a record's writes into `chain`, latest first.
    #[inline]
    pub(super) fn chain(&self, latest: u32, chain: &mut Vec<u32>) {
        chain.clear();
        let mut at = Some(latest);
        while let Some(position) = at {
            chain.push(position);
            at = self.writes[position as usize].prior;
        }
    }

    /// The length in words of the longest row among a record's writes; 0 when none is a whole row.
    #[inline]
    pub(super) fn longest_put(&self, latest: u32) -> usize {
        let (mut longest, mut at) = (0, Some(latest));
        while let Some(position) = at {
            let write = &self.writes[position as usize];
            if write.kind == Kind::Put {
                longest = longest.max(write.data.words as usize);
            }
            at = write.prior;
        }
        longest
    }

    #[inline]
    pub(super) fn words(&self, span: Span) -> &[u64] {
        &self.arena[span.offset as usize..][..span.words as usize]
    }

    /// The key of a write, as bytes.
    #[inline]
    pub(super) fn key_bytes(&self, write: &Write) -> &[u8] {
        let words = self.words(write.key);
        &RowRef::from_words(words).as_bytes()[..usize::from(write.key_bytes)]
    }

    /// Keeps words for the transaction's life.
    #[inline]
    pub(super) fn keep(&mut self, words: &[u64]) -> Span {
        let offset = self.arena.len() as u32;
        self.arena.extend_from_slice(words);
        Span { offset, words: words.len() as u32 }
    }

    /// Keeps a key's bytes.
    #[inline]
    pub(super) fn keep_key<K: polychron_base::key::EncodedKey>(&mut self, key: K) -> (Span, u16) {
        let offset = self.arena.len() as u32;
        let words = key.len().div_ceil(8);
        // The words hold the bytes in memory order, so that they can be lent as a byte slice.
        self.arena.extend((0..words).map(|index| key.slice(index).to_be()));
        (Span { offset, words: words as u32 }, key.len() as u16)
    }

    #[inline]
    fn home(&self, record: Kept) -> usize {
        let address = record.addr() as u64;
        (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.slots.len() - 1)
    }

    /// The latest write of `record`.
    #[inline]
    pub(super) fn latest(&self, record: Kept) -> Option<u32> {
        if self.writes.is_empty() {
            return None;
        }
        let slot = self.slots[self.slot(record)];
        (slot != EMPTY).then_some(slot)
    }

    /// Whether the latest writes of `record` are so many patches that a whole row is due.
    #[inline]
    pub(super) fn is_much_patched(&self, record: Kept) -> bool {
        self.repeats && self.latest(record).is_some_and(|latest| self.patches(latest) >= MOST_PATCHES)
    }

    /// How many patches are on top of the last whole row; counts as far as is needed.
    fn patches(&self, latest: u32) -> usize {
        let (mut patches, mut at) = (0, Some(latest));
        while patches < MOST_PATCHES
            && let Some(write) = at.map(|position| self.get(position)).filter(|write| write.kind == Kind::Patch)
        {
            (patches, at) = (patches + 1, write.prior);
        }
        patches
    }

    /// The slot that holds the record, or the empty one where it would go.
    #[inline]
    fn slot(&self, record: Kept) -> usize {
        let mut at = self.home(record);
        while self.slots[at] != EMPTY && self.writes[self.slots[at] as usize].record != record {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Adds a write. Whose record it is and what came before is filled in where the record was written before.
    #[inline(always)]
    pub(super) fn push(&mut self, mut write: Write) {
        if (self.writes.len() + 1) * 2 > self.slots.len() {
            self.rehash(self.slots.len() * 2);
        }
        let at = self.slot(write.record);
        let prior = self.slots[at];
        if prior != EMPTY {
            (write.own_record, write.prior) = (self.get(prior).own_record, Some(prior));
            self.repeats = true;
        }
        self.has_rows |= write.kind == Kind::Put;
        self.slots[at] = self.writes.len() as u32;
        self.writes.push(write);
    }

    #[cold]
    fn rehash(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        for position in 0..self.writes.len() {
            let at = self.slot(self.writes[position].record);
            self.slots[at] = position as u32;
        }
    }

    /// Forgets the writes from `len` on and hands each to `undo`, newest first.
    ///
    /// Taking the newest write out leaves the hash table as it was before that write: it had either changed its record's
    /// slot or filled the last one of a run of slots.
    pub(super) fn truncate(&mut self, len: usize, mut undo: impl FnMut(&Self, &Write)) {
        while self.writes.len() > len {
            let Some(&write) = self.writes.last() else { return };
            undo(self, &write);
            let at = self.slot(write.record);
            self.slots[at] = write.prior.unwrap_or(EMPTY);
            self.writes.pop();
            let kept = if write.data.words > 0 { write.data.offset } else { write.key.offset };
            self.arena.truncate(kept as usize);
        }
    }

    /// Forgets everything and keeps the memory, unless one huge transaction had inflated it.
    pub(super) fn clear(&mut self) {
        if self.writes.is_empty() && self.arena.is_empty() {
            return;
        }
        // After a large transaction small ones clear half as many slots each.
        if self.writes.len() * 8 < self.slots.len() {
            self.slots.truncate((self.slots.len() / 2).max(FIRST_SLOTS));
        }
        self.writes.forget();
        (self.repeats, self.has_rows) = (false, false);
        self.arena.clear();
        self.arena.shrink_to(1 << 20);
        if self.slots.len() > 1 << 12 {
            self.slots = vec![EMPTY; FIRST_SLOTS];
        } else {
            self.slots.fill(EMPTY);
        }
    }
}

/// All that a running transaction remembers.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) reads: Vec<Read>,
    pub(super) nodes: NodeSet,
    pub(super) writes: WriteSet,
    /// Records that were latched before the commit.
    pub(super) latched: Vec<Kept>,
    /// Positions of one record's writes.
    pub(super) order: Vec<u32>,
}

impl Sets {
    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        clear_each!(self.nodes, self.writes);
        self.reads.forget();
        self.latched.give_back_room();
        self.order.give_back_room();
    }

    /// Entries that the list has room for which has room for most.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        let of_writes = self.writes.writes.room().max(self.writes.slots.len());
        of_writes.max(self.reads.room()).max(self.latched.room()).max(self.order.room())
    }
}
