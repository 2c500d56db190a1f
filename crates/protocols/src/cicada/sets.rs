//! What a running transaction remembers: read set, node set, gaps, write set; in memory that is kept from one transaction
//! to the next.
//!
//! The write set is a list that only grows. A write holds the whole row as it will be, in a buffer that is kept for the write's
//! position, and is linked to the write before it of the same record or key; the latest one counts. So a savepoint is a
//! length, and undoing to it is a truncation. A write behind the last savepoint is overwritten by a later one of its record.
//!
//! A write names its record; the insertion of a key that has no row names its key instead, because a tombstone to which
//! the key leads may leave the index at any time.

mod own_keys;

use polychron_base::clear_each;
use polychron_base::key::{EncodedKey, HashSeed, Key16};
use polychron_base::room::{KeptList, ROOM};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{IndexRef, KeySpan, NodeSet, WriteTable};
use polychron_index::Stamp;
use polychron_schema::RowBuffer;

use super::array::TakenRecord;
use super::gaps::KeyPartition;
use super::kept::{Kept, OwnGuard};
use super::reads::Reads;
use super::record::{RecordAddress, Version};
use super::searches::Searches;
use super::steps::Step;
use super::timestamp::Timestamp;

/// A record that the transaction has taken for a row or a node which nobody else knows yet.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) record: TakenRecord,
    pub(super) place: IndexRef,
    pub(super) is_node: bool,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The row becomes what the write's buffer holds.
    Put,
    /// The row goes.
    Delete,
}

/// What a write is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A record that had a row.
    Record(Kept),
    /// A key that had none, or that nobody looked at.
    Key,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) target: Target,
    pub(super) place: IndexRef,
    pub(super) kind: Kind,
    /// Blind write: the previous value is not read.
    pub(super) blind: bool,
    /// Whether the key led to a record when it was looked up, so that it is looked up again before it is inserted.
    pub(super) has_record: bool,
    /// Whether the row stays as it is, so that the log need not know.
    pub(super) unlogged: bool,
    pub(super) key: KeySpan,
    /// Where the key was seen to be absent. The insertion itself shows that it still is; the stamp is for when it is given up.
    pub(super) stamp: Option<Stamp>,
    /// Where the row on which the write was made is in the read set, if it is there.
    pub(super) on_read: Option<u32>,
    /// The write before this one for the same record or key.
    pub(super) prior: Option<u32>,
    /// Whether the record is a node of a multi-version index.
    pub(super) is_node: bool,
    /// Whether the transaction has taken the record itself, so that there is nothing to delete.
    pub(super) is_fresh: bool,
    /// Whether it is part of a deletion, which goes on at the memory limit.
    pub(super) makes_room: bool,
}

impl Write {
    /// A write on a record or key; what else it is comes from [`WriteSet::push`].
    pub(super) fn new(target: Target, place: IndexRef, kind: Kind) -> Self {
        let key = KeySpan::default();
        Self {
            target,
            place,
            kind,
            blind: false,
            has_record: false,
            unlogged: false,
            key,
            stamp: None,
            on_read: None,
            prior: None,
            is_node: false,
            is_fresh: false,
            makes_room: kind == Kind::Delete,
        }
    }

    /// The record that is written, if it is known.
    #[inline]
    pub(super) fn record(&self) -> Option<Kept> {
        if let Target::Record(record) = self.target { Some(record) } else { None }
    }

    /// A write on a node of a multi-version index.
    pub(super) fn of_node(record: Kept, place: IndexRef, kind: Kind) -> Self {
        Self { is_node: true, unlogged: true, ..Self::new(Target::Record(record), place, kind) }
    }
}

/// The row of a write that is added.
#[derive(Debug)]
pub(super) enum NewRow<'r> {
    /// It goes.
    None,
    /// It is in a buffer, for which the write set gives another one.
    In(&'r mut RowBuffer),
    /// It has these words.
    Of(&'r [u64]),
}

/// Buffers of rows longer than this are not kept.
const KEPT_ROW_BYTES: usize = 1 << 14;

/// The write set: writes, their rows and keys, and what finds the latest write of a record or key.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    writes: Vec<Write>,
    /// The row of the write at the same position.
    rows: Vec<RowBuffer>,
    keys: Vec<u64>,
    table: WriteTable,
    /// Writes before this position must stay as they are: a savepoint may return there.
    floor: usize,
    /// How many writes name keys.
    keyed: usize,
    hash_seed: HashSeed,
    /// A bit for each record that was written, and for some that were not: most records that are read were not.
    records: u64,
    /// How many are on nodes of multi-version indexes.
    on_nodes: usize,
    /// Whether anything was written more than once.
    repeats: bool,
    /// The keys that were written, in order, for scans: of the writes before this position.
    ordered: own_keys::KeyTree,
    ordered_to: usize,
    /// Writes before this position have no stamps.
    stampless: usize,
    /// Keys that scans have looked at, and those that were put in order for them.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
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

    /// All writes, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    #[inline]
    pub(super) fn get(&self, position: u32) -> &Write {
        &self.writes[position as usize]
    }

    #[inline]
    pub(super) fn row(&self, position: u32) -> &RowBuffer {
        &self.rows[position as usize]
    }

    /// Whether any key was written that had no row.
    #[inline]
    pub(super) fn has_keys(&self) -> bool {
        self.keyed > 0
    }

    /// Whether any node of a multi-version index was written.
    #[inline]
    pub(super) fn has_nodes(&self) -> bool {
        self.on_nodes > 0
    }

    /// The positions of the writes that count: the latest of each record and key.
    #[inline]
    pub(super) fn latest_ones(&self) -> impl Iterator<Item = u32> {
        let all = self.writes.iter().enumerate();
        all.filter(move |&(position, write)| {
            !self.repeats || self.table.get(self.slot_of(write)) == Some(position as u32)
        })
        .map(|(position, _)| position as u32)
    }

    /// The key of a write, as bytes; empty where it was not needed.
    #[inline]
    pub(super) fn key(&self, write: &Write) -> &[u8] {
        write.key.bytes(&self.keys)
    }

    /// The same in registers, if it is short enough.
    #[inline]
    pub(super) fn short_key(&self, write: &Write) -> Option<Key16> {
        let (first, second) = match *write.key.words(&self.keys) {
            [] => (0, 0),
            [first] => (first, 0),
            [first, second] => (first, second),
            _ => return None,
        };
        let slices = u128::from(u64::from_be(first)) << 64 | u128::from(u64::from_be(second));
        let bytes = write.key.len();
        Some(Key16::new(slices.checked_shr(128 - 8 * bytes as u32).unwrap_or(0), bytes))
    }

    /// Whether a record may have been written, or a key that had no row.
    #[inline]
    pub(super) fn may_have(&self, record: RecordAddress) -> bool {
        self.records & bit_of(record) != 0 || self.keyed > 0
    }

    /// The latest write of a record.
    #[inline]
    pub(super) fn latest(&self, record: RecordAddress) -> Option<u32> {
        if self.writes.is_empty() { None } else { self.table.get(self.slot_of_record(record)) }
    }

    #[inline]
    fn slot_of_record(&self, record: RecordAddress) -> usize {
        let is_it = |write: &Write| matches!(write.target, Target::Record(other) if other.address() == record);
        self.table.slot(record.number(), |position| is_it(self.get(position)))
    }

    /// The latest write of a key that had no row.
    #[inline]
    pub(super) fn latest_of_key<K: EncodedKey>(&self, place: IndexRef, key: K) -> Option<u32> {
        if self.keyed == 0 { None } else { self.table.get(self.slot_of_key(place, key)) }
    }

    #[inline(always)]
    fn slot_of_key<K: EncodedKey>(&self, place: IndexRef, key: K) -> usize {
        let is_it = |write: &Write| write.target == Target::Key && write.place == place && same(self.key(write), key);
        self.table.slot(key.hash(self.hash_seed), |position| is_it(self.get(position)))
    }

    #[inline(never)]
    fn slot_of(&self, write: &Write) -> usize {
        match write.target {
            Target::Record(record) => self.slot_of_record(record.address()),
            Target::Key => self.slot_of_key(write.place, self.key(write)),
        }
    }

    /// Writes from here on may be undone one by one.
    #[inline]
    pub(super) fn set_floor(&mut self) -> usize {
        self.floor = self.writes.len();
        self.floor
    }

    /// Adds a write with its row. A write of the same record behind the last savepoint is overwritten.
    #[inline]
    pub(super) fn push<K: EncodedKey>(&mut self, mut write: Write, key: Option<K>, row: NewRow<'_>) {
        if self.table.is_full(self.writes.len()) {
            self.grow_table();
        }
        let kept = self.keys.len();
        write.key = key.map_or_else(KeySpan::default, |key| KeySpan::keep(&mut self.keys, key));
        let at = match (write.target, key) {
            (Target::Record(record), _) => self.slot_of_record(record.address()),
            (Target::Key, Some(key)) => self.slot_of_key(write.place, key),
            (Target::Key, None) => self.slot_of(&write),
        };
        write.prior = self.table.get(at);
        if let Some(prior) = write.prior {
            let before = self.writes[prior as usize];
            (write.blind, write.is_fresh, write.on_read) = (before.blind, before.is_fresh, before.on_read);
            if prior as usize >= self.floor && (!before.key.is_empty() || write.key.is_empty()) {
                self.keys.truncate(kept);
                self.writes[prior as usize] =
                    Write { key: before.key, stamp: before.stamp, prior: before.prior, ..write };
                self.put_row(prior as usize, row);
                return;
            }
            self.repeats = true;
        }
        let position = self.writes.len();
        self.table.set(at, Some(position as u32));
        match write.target {
            Target::Record(record) => self.records |= bit_of(record.address()),
            Target::Key => self.keyed += 1,
        }
        self.on_nodes += usize::from(write.is_node);
        self.writes.push(write);
        self.put_row(position, row);
    }

    #[inline(always)]
    fn put_row(&mut self, position: usize, row: NewRow<'_>) {
        if self.rows.len() <= position {
            self.rows.push(RowBuffer::new());
        }
        match row {
            NewRow::In(row) => std::mem::swap(&mut self.rows[position], row),
            NewRow::Of(words) => self.rows[position].overwrite_words(words.len()).copy_from_slice(words),
            NewRow::None => self.rows[position].clear(),
        }
    }

    #[cold]
    fn grow_table(&mut self) {
        self.table.begin_anew();
        for position in 0..self.writes.len() {
            let at = self.slot_of(&self.writes[position]);
            self.table.set(at, Some(position as u32));
        }
    }

    /// Forgets the writes from `len` on. That a key could be inserted shows that it was absent, and the transaction may go on:
    /// its stamp guards that from now on.
    pub(super) fn truncate(&mut self, len: usize, nodes: &mut NodeSet) {
        while self.writes.len() > len {
            let Some(&write) = self.writes.last() else { return };
            if let Some(stamp) = write.stamp.filter(|_| !left_out(Step::NodesOfUndone)) {
                nodes.add(stamp, write.place);
            }
            let at = self.slot_of(&write);
            self.table.set(at, write.prior);
            if self.ordered_to == self.writes.len() {
                self.ordered_to -= 1;
                if write.target == Target::Key && write.prior.is_none() {
                    self.forget_own_key(self.ordered_to as u32);
                }
            }
            self.writes.pop();
            self.keyed -= usize::from(write.target == Target::Key);
            self.on_nodes -= usize::from(write.is_node);
            if !write.key.is_empty() {
                self.keys.truncate(write.key.offset());
            }
        }
        self.floor = len;
        self.stampless = self.stampless.min(len);
    }

    /// Forgets where keys were seen to be absent, and where rows are in the read set. Answers how many writes were looked at.
    fn forget_found(&mut self) -> usize {
        let stamped = &mut self.writes[self.stampless..];
        stamped.iter_mut().for_each(|write| (write.stamp, write.on_read) = (None, None));
        let looked_at = stamped.len();
        self.stampless = self.writes.len();
        looked_at
    }

    /// Forgets everything and keeps the memory, unless one huge transaction had inflated it.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.writes.is_empty() || self.floor > 0 {
            self.clear_written();
        }
    }

    fn clear_written(&mut self) {
        let written = self.writes.len();
        for row in self.rows.iter_mut().take(written) {
            if row.len() > KEPT_ROW_BYTES {
                *row = RowBuffer::new();
            }
        }
        self.writes.forget();
        self.rows.truncate(ROOM / 4);
        self.rows.give_back_room();
        self.keys.clear();
        self.keys.shrink_to(1 << 16);
        (self.floor, self.keyed, self.records) = (0, 0, 0);
        (self.on_nodes, self.repeats, self.stampless) = (0, false, 0);
        if self.ordered_to > 0 {
            self.ordered.clear();
            self.ordered_to = 0;
        }
        self.table.clear(written);
    }

    /// Where a key was seen to be absent before its first write.
    pub(super) fn first_stamp(&self, mut position: u32) -> Option<Stamp> {
        while let Some(prior) = self.get(position).prior {
            position = prior;
        }
        self.get(position).stamp
    }
}

/// The bit of a record among 64.
#[inline]
fn bit_of(record: RecordAddress) -> u64 {
    1 << (record.number().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

#[inline]
fn same<K: EncodedKey>(bytes: &[u8], key: K) -> bool {
    bytes.len() == key.len() && (0..bytes.len().div_ceil(8)).all(|index| bytes.slice(index) == key.slice(index))
}

/// All that a running transaction remembers.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) reads: Reads,
    pub(super) nodes: NodeSet,
    pub(super) gaps: Vec<KeyPartition>,
    pub(super) searches: Searches,
    pub(super) writes: WriteSet,
    /// What is given back if the transaction does not commit.
    pub(super) fresh: Vec<Fresh>,
    /// Reads and writes that were looked at when epochs were left.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Sets {
    /// Undoes the writes from `len` on.
    pub(super) fn undo_writes(&mut self, len: usize) {
        self.writes.truncate(len, &mut self.nodes);
    }

    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        clear_each!(self.reads, self.nodes, self.searches, self.writes);
        self.gaps.forget();
        self.fresh.forget();
    }

    /// Entries that the list has room for which has room for most.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        let of_writes = self.writes.writes.room().max(self.writes.rows.room()).max(self.writes.table.room());
        let of_writes = of_writes.max(self.writes.ordered.room());
        of_writes.max(self.reads.room()).max(self.gaps.room()).max(self.fresh.room())
    }

    /// The version on which a write was made, if it is in the read set.
    #[inline]
    pub(super) fn version_below<'g>(&self, write: &Write, guard: &'g OwnGuard<'_>) -> Option<Version<'g>> {
        write.on_read.and_then(|read| self.reads.get(read as usize, guard).version)
    }

    /// The timestamp of the newest version that was read, if nothing else was done than to read versions: nothing was missed, no range was looked through, and
    /// nothing was written.
    pub(super) fn newest_read(&self, guard: &OwnGuard<'_>) -> Option<Timestamp> {
        let has_missed = !self.nodes.is_empty() || !self.gaps.is_empty() || self.searches.len() > 0;
        if has_missed && !left_out(Step::AwaitMissed) || !self.writes.is_empty() {
            return None;
        }
        self.reads.newest(guard)
    }

    /// The epoch was left in which everything so far was found: only versions of rows and their records are kept still. What was searched
    /// for is searched again in the end.
    pub(super) fn forget_found(&mut self, guard: &OwnGuard<'_>) {
        let looked_at = self.reads.forget_found(guard) + self.writes.forget_found();
        #[cfg(test)]
        {
            self.steps += looked_at;
        }
        let _ = looked_at;
        self.nodes.clear();
        self.searches.lose();
    }
}
