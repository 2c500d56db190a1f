//! What a running transaction remembers: read set, node set, write set (§4.2, 4.3), in memory that is kept from one
//! transaction to the next (§5).
//!
//! The write set is a list that only grows: every write is an entry of its own, linked to the entry before it for the same
//! record. So a savepoint is a length, undoing to it is a truncation, and commit applies the entries of a record in order.

use polychron_base::clear_each;
use polychron_base::key::EncodedKey;
use polychron_base::room::KeptList;
use polychron_engine::stores::{IndexRef, KeySpan, NodeSet, WriteTable};

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
    pub(super) key: KeySpan,
    pub(super) data: Span,
    /// The write before this one for the same record.
    pub(super) prior: Option<u32>,
}

/// Patches of a record on top of each other; the next change of the row writes it whole.
pub(super) const MOST_PATCHES: usize = 8;

/// The write set: entries, their data, and what finds a record's latest entry.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    writes: Vec<Write>,
    arena: Vec<u64>,
    table: WriteTable,
    /// Whether a record was written more than once.
    repeats: bool,
    /// Whether any write brings a whole row to a record, which may have to grow.
    has_rows: bool,
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
        write.key.bytes(&self.arena)
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
    pub(super) fn keep_key<K: EncodedKey>(&mut self, key: K) -> KeySpan {
        KeySpan::keep(&mut self.arena, key)
    }

    /// The latest write of `record`.
    #[inline]
    pub(super) fn latest(&self, record: Kept) -> Option<u32> {
        if self.writes.is_empty() { None } else { self.table.get(self.slot(record)) }
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

    #[inline]
    fn slot(&self, record: Kept) -> usize {
        self.table.slot(record.addr() as u64, |position| self.writes[position as usize].record == record)
    }

    /// Adds a write. Whose record it is and what came before is filled in where the record was written before.
    #[inline(always)]
    pub(super) fn push(&mut self, mut write: Write) {
        if self.table.is_full(self.writes.len()) {
            self.grow_table();
        }
        let at = self.slot(write.record);
        if let Some(prior) = self.table.get(at) {
            (write.own_record, write.prior) = (self.get(prior).own_record, Some(prior));
            self.repeats = true;
        }
        self.has_rows |= write.kind == Kind::Put;
        self.table.set(at, Some(self.writes.len() as u32));
        self.writes.push(write);
    }

    #[cold]
    fn grow_table(&mut self) {
        self.table.begin_anew();
        for position in 0..self.writes.len() {
            let at = self.slot(self.writes[position].record);
            self.table.set(at, Some(position as u32));
        }
    }

    /// Forgets the writes from `len` on and hands each to `undo`, newest first.
    pub(super) fn truncate(&mut self, len: usize, mut undo: impl FnMut(&Self, &Write)) {
        while self.writes.len() > len {
            let Some(&write) = self.writes.last() else { return };
            undo(self, &write);
            let at = self.slot(write.record);
            self.table.set(at, write.prior);
            self.writes.pop();
            let kept = if write.data.words > 0 { write.data.offset as usize } else { write.key.offset() };
            self.arena.truncate(kept);
        }
    }

    /// Forgets everything and keeps the memory, unless one huge transaction had inflated it.
    pub(super) fn clear(&mut self) {
        if self.writes.is_empty() && self.arena.is_empty() {
            return;
        }
        self.table.clear(self.writes.len());
        self.writes.forget();
        (self.repeats, self.has_rows) = (false, false);
        self.arena.clear();
        self.arena.shrink_to(1 << 20);
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
        let of_writes = self.writes.writes.room().max(self.writes.table.room());
        of_writes.max(self.reads.room()).max(self.latched.room()).max(self.order.room())
    }
}
