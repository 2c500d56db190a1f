//! The keys whose hashes belong to one part.

use std::cmp::Ordering;

use polychron_base::key::HashSeed;
use polychron_engine::mutations::left_out;
use polychron_sync::prefetch_read;

use super::arena::{Arena, Span};
use super::keys::{Entry, Keys, NONE, NOTHING, UNKNOWN};
use super::scatter::hash_of;
use super::stream::{Block, Changes, Era};
use crate::frame::{Ranges, Words};
use crate::steps::RecoveryStep;

/// How many of a key's patches are looked at for one that a newer one covers.
const LOOKED_AT: usize = 8;

/// By how many changes one step of looking a key up is ahead of the next one.
const AHEAD: usize = 8;
/// How many steps that takes.
const STEPS: usize = 4;

/// Which change of which transaction one is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    /// Incarnation and era, by their number in [`Eras`].
    era: u32,
    sequence: u32,
    timestamp: u64,
}

/// Incarnations and eras, which few changes differ in.
#[derive(Debug, Default)]
struct Eras {
    known: Vec<(u64, u64)>,
    numbers: std::collections::HashMap<(u64, u64), u32>,
    last: u32,
}

impl Eras {
    fn number(&mut self, (incarnation, era): Era) -> u32 {
        let incarnation = if left_out(RecoveryStep::CompareIncarnations) { 0 } else { incarnation };
        let era = (incarnation, era);
        if self.known.get(self.last as usize) != Some(&era) {
            let next = self.known.len() as u32;
            self.last = *self.numbers.entry(era).or_insert(next);
            if self.last == next {
                self.known.push(era);
            }
        }
        self.last
    }

    /// Which of two changes of a key is newer: that of the later incarnation, of the higher order, and within a transaction the one that was staged later.
    #[inline]
    fn compare(&self, one: Stamp, other: Stamp) -> Ordering {
        let in_era = (one.timestamp, one.sequence).cmp(&(other.timestamp, other.sequence));
        if one.era == other.era {
            return in_era;
        }
        self.known[one.era as usize].cmp(&self.known[other.era as usize]).then(in_era)
    }

    fn memory_bytes(&self) -> usize {
        // The map has the same, and a number and a byte of each.
        self.known.capacity() * 2 * size_of::<((u64, u64), u32)>()
    }
}

/// A change of a key, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incoming<'b> {
    /// The order of its transaction, within an era.
    pub(super) timestamp: u64,
    /// Which one of its changes it is.
    pub(super) sequence: u32,
    pub(super) key: &'b [u8],
    pub(super) kind: Kind,
    /// The result of [`Words::encoded`] or [`Ranges::encoded`].
    pub(super) bytes: &'b [u8],
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The row is so many words.
    Put { words: u32 },
    /// So many ranges; the words between, if it is one range.
    Patch { ranges: u32, covered: Option<(u32, u32)> },
    /// There is no row.
    Delete,
}

#[derive(Clone, Copy, Debug)]
struct Patch {
    stamp: Stamp,
    ranges: u32,
    covered: Option<(u32, u32)>,
    encoded: Span,
    next: u32,
}

/// A change that is looked up.
struct LookedUp<'b> {
    table: usize,
    hash: u64,
    stamp: Stamp,
    incoming: Incoming<'b>,
    /// The entry of its key, most likely, once that was looked for.
    likely: Option<u32>,
}

/// Keys, and what was done to them.
#[derive(Debug)]
pub(super) struct Part {
    /// Changes that were not taken in: blocks of them, each of one era.
    waiting: Vec<(Span, Era)>,
    stream: Arena,
    tables: Vec<Keys>,
    patches: Vec<Patch>,
    /// Patches that are no longer needed.
    free: u32,
    arena: Arena,
    eras: Eras,
}

/// The row under a key's patches.
pub(super) enum Below<'p> {
    /// This row.
    Row(Words<'p>),
    /// No row.
    Nothing,
    /// The checkpoint's row.
    Checkpoint,
}

impl Part {
    pub(super) fn new(tables: usize) -> Self {
        let tables = (0..tables).map(|_| Keys::default()).collect();
        let (waiting, stream, arena) = (Vec::new(), Arena::default(), Arena::default());
        Self { waiting, stream, tables, patches: Vec::new(), free: NONE, arena, eras: Eras::default() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.stream.bytes() + self.waiting.capacity() * size_of::<(Span, Era)>() + self.taken_bytes()
    }

    /// The memory of what was taken in.
    fn taken_bytes(&self) -> usize {
        self.arena.bytes()
            + self.eras.memory_bytes()
            + self.patches.capacity() * size_of::<Patch>()
            + self.tables.iter().map(|keys| size_of::<Keys>() + keys.memory_bytes()).sum::<usize>()
    }

    /// Adds changes. So many bytes of them may wait, or as many as the memory of what was taken in before: so each change is taken in once, and rows
    /// that are changed again and again do not take more and more memory.
    pub(super) fn add(&mut self, block: &Block, seed: HashSeed, most_waiting: usize) {
        let span = self.stream.push(block.bytes());
        self.waiting.push((span, block.era));
        if self.stream.bytes() >= most_waiting.max(self.taken_bytes()) {
            self.take_in(seed);
        }
    }

    /// Takes in the changes that wait: finds out what counts of each key.
    pub(super) fn take_in(&mut self, seed: HashSeed) {
        let (stream, waiting) = (std::mem::take(&mut self.stream), std::mem::take(&mut self.waiting));
        let mut changes = Vec::new();
        for (span, era) in waiting {
            let era = self.eras.number(era);
            changes.extend(Changes::of(stream.get(span)).map(|(table, incoming)| {
                let stamp = Stamp { era, sequence: incoming.sequence, timestamp: incoming.timestamp };
                let stamp = if left_out(RecoveryStep::CompareOrders) { Stamp::default() } else { stamp };
                LookedUp { table, hash: hash_of(seed, incoming.key), stamp, incoming, likely: None }
            }));
            for step in 0..changes.len() + STEPS * AHEAD {
                self.fetch(&mut changes, step);
                if let Some(change) = step.checked_sub(STEPS * AHEAD).and_then(|at| changes.get(at)) {
                    self.apply(change);
                }
            }
            changes.clear();
        }
    }

    /// Gives back what memory growth has taken in vain. No more changes come.
    pub(super) fn shrink(&mut self) {
        self.patches.shrink_to_fit();
        self.tables.iter_mut().for_each(|keys| keys.entries.shrink_to_fit());
    }

    fn apply(&mut self, LookedUp { table, hash, stamp, incoming, likely }: &LookedUp<'_>) {
        let (table, stamp) = (*table, *stamp);
        let found = likely.map(|at| at as usize).filter(|at| self.tables[table].has(*at, incoming.key, &self.arena));
        let insert = || self.tables[table].find_or_insert(*hash, incoming.key, &mut self.arena);
        let at = found.unwrap_or_else(insert);
        let words = match incoming.kind {
            Kind::Patch { ranges, covered } => {
                let patch = Patch { stamp, ranges, covered, encoded: Span::default(), next: NONE };
                return self.patch(table, at, patch, incoming.bytes);
            }
            Kind::Put { words } => words,
            Kind::Delete => NOTHING,
        };
        let entry = &mut self.tables[table].entries[at];
        if entry.words != UNKNOWN && self.eras.compare(stamp, entry.stamp).is_lt() {
            return;
        }
        // An empty span has no room, and deletions have no bytes.
        entry.encoded = self.arena.replace(entry.encoded, incoming.bytes);
        (entry.stamp, entry.words) = (stamp, words);
        let newest = entry.patches;
        let is_older = |patch: &Patch| self.eras.compare(patch.stamp, stamp).is_lt();
        if self.patches.get(newest as usize).is_some_and(is_older) && !left_out(RecoveryStep::PassOverOlderPatches) {
            entry.patches = NONE;
            self.forget(newest);
        }
    }

    /// Adds a patch to those of a key. One that a newer one covers is not kept, so that a row that is patched again and again takes no more memory.
    fn patch(&mut self, table: usize, at: usize, patch: Patch, bytes: &[u8]) {
        let entry = &self.tables[table].entries[at];
        if entry.words != UNKNOWN && self.eras.compare(patch.stamp, entry.stamp).is_lt() {
            return;
        }
        let (mut before, mut number) = (NONE, entry.patches);
        for _ in 0..LOOKED_AT {
            let Some(other) = self.patches.get(number as usize).copied() else { break };
            let is_newer = self.eras.compare(other.stamp, patch.stamp).is_gt();
            if is_newer && patch.is_covered_by(&other) {
                return;
            }
            if !is_newer && other.is_covered_by(&patch) {
                let encoded = self.arena.replace(other.encoded, bytes);
                self.unlink(table, at, before, other.next);
                return self.link(table, at, number, Patch { encoded, ..patch });
            }
            (before, number) = (number, other.next);
        }
        let patch = Patch { encoded: self.arena.push(bytes), ..patch };
        let number = self.free;
        if let Some(free) = self.patches.get(number as usize) {
            self.free = free.next;
            self.link(table, at, number, patch);
        } else {
            self.patches.push(patch);
            self.link(table, at, self.patches.len() as u32 - 1, patch);
        }
    }

    fn unlink(&mut self, table: usize, at: usize, before: u32, next: u32) {
        match self.patches.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.tables[table].entries[at].patches = next,
        }
    }

    /// Writes a patch to its place, and into the list of its key: in front if it is the newest, else behind that one.
    fn link(&mut self, table: usize, at: usize, number: u32, patch: Patch) {
        let head = &mut self.tables[table].entries[at].patches;
        let next = match self.patches.get_mut(*head as usize) {
            Some(newest) if self.eras.compare(newest.stamp, patch.stamp).is_gt() => {
                std::mem::replace(&mut newest.next, number)
            }
            _ => std::mem::replace(head, number),
        };
        self.patches[number as usize] = Patch { next, ..patch };
    }

    /// The patches from this one on may be used again.
    fn forget(&mut self, first: u32) {
        let mut number = first;
        while let Some(patch) = self.patches.get_mut(number as usize) {
            let next = std::mem::replace(&mut patch.next, self.free);
            self.free = number;
            number = next;
        }
    }

    /// The entry of a key: the one that is most likely, or another one.
    pub(super) fn find<'p>(&'p self, table: usize, likely: &'p Entry, hash: u64, key: &[u8]) -> Option<&'p Entry> {
        if likely.key(&self.arena) == key {
            return Some(likely);
        }
        let keys = &self.tables[table];
        keys.find(hash, key, &self.arena).map(|at| &keys.entries[at])
    }

    /// The keys of a table, perhaps in their order; they are gone from here then.
    pub(super) fn take(&mut self, table: usize, in_order: bool) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.tables[table]).entries;
        if in_order {
            // Much is in order already, as it came.
            entries.sort_by(|one, other| one.compare(other, &self.arena));
        }
        entries
    }

    /// The keys of a table, as they came.
    pub(super) fn entries(&self, table: usize) -> &[Entry] {
        &self.tables[table].entries
    }

    pub(super) fn key<'p>(&'p self, entry: &'p Entry) -> &'p [u8] {
        entry.key(&self.arena)
    }

    pub(super) fn below(&self, entry: &Entry) -> Below<'_> {
        match entry.words {
            UNKNOWN => Below::Checkpoint,
            NOTHING => Below::Nothing,
            words => Below::Row(Words::of(self.arena.get(entry.encoded), words as usize)),
        }
    }

    /// Whether patches count over what lies under them, and which, the newest last.
    pub(super) fn patches(&self, entry: &Entry, numbers: &mut Vec<u32>) -> bool {
        numbers.clear();
        let is_over = |stamp| {
            entry.words == UNKNOWN
                || self.eras.compare(stamp, entry.stamp).is_gt()
                || left_out(RecoveryStep::PassOverOlderPatches)
        };
        let mut number = entry.patches;
        while let Some(patch) = self.patches.get(number as usize) {
            if is_over(patch.stamp) {
                numbers.push(number);
            }
            number = patch.next;
        }
        if numbers.len() > 1 && !left_out(RecoveryStep::SortPatches) {
            let stamp = |number: &u32| self.patches[*number as usize].stamp;
            numbers.sort_unstable_by(|one, other| self.eras.compare(stamp(one), stamp(other)));
        }
        !numbers.is_empty()
    }

    /// The ranges of a patch that [`patches`](Self::patches) has found.
    pub(super) fn ranges(&self, number: u32) -> Ranges<'_> {
        let patch = &self.patches[number as usize];
        Ranges::of(self.arena.get(patch.encoded), u64::from(patch.ranges))
    }

    /// The words that patches of one row have changed, each as the last of them left it, by position.
    pub(super) fn newest(&self, patches: &[u32]) -> Vec<(usize, u64)> {
        let mut patched: Vec<(usize, u64)> = Vec::new();
        for (first, words) in patches.iter().flat_map(|number| self.ranges(*number)) {
            patched.extend((first..).zip(words));
        }
        // The newest last.
        patched.sort_by_key(|(at, _)| *at);
        patched.reverse();
        patched.dedup_by_key(|(at, _)| *at);
        patched.reverse();
        patched
    }
}

/// What lies ahead is asked for before it is needed, each behind the one before.
impl Part {
    /// Asks for what changes need: the place where a key is found, and for those behind what that leads to.
    #[inline]
    fn fetch(&self, changes: &mut [LookedUp<'_>], step: usize) {
        if let Some(change) = changes.get(step) {
            self.tables[change.table].fetch_slot(change.hash);
        }
        if let Some(change) = step.checked_sub(AHEAD).and_then(|at| changes.get_mut(at)) {
            let keys = &self.tables[change.table];
            let found = keys.candidate(change.hash);
            change.likely = found.map(|at| at as u32);
            if let Some(at) = found {
                prefetch_read(&keys.entries[at]);
            }
        }
        let likely = |change: &LookedUp<'_>| self.tables[change.table].entries.get(change.likely? as usize);
        if let Some(change) = step.checked_sub(2 * AHEAD).and_then(|at| changes.get(at)) {
            self.fetch_patch(likely(change));
        }
        if let Some(change) = step.checked_sub(3 * AHEAD).and_then(|at| changes.get(at)) {
            self.fetch_bytes(likely(change));
        }
    }

    /// Asks for the place where a key of a table is found.
    pub(super) fn fetch_slot(&self, table: usize, hash: u64) {
        self.tables[table].fetch_slot(hash);
    }

    /// Its entry, most likely; if there is none, nothing is known of it.
    pub(super) fn candidate(&self, table: usize, hash: u64) -> Option<&Entry> {
        let keys = &self.tables[table];
        keys.candidate(hash).map(|at| &keys.entries[at])
    }

    /// Asks for an entry's newest patch.
    pub(super) fn fetch_patch(&self, entry: Option<&Entry>) {
        if let Some(patch) = entry.and_then(|entry| self.patches.get(entry.patches as usize)) {
            prefetch_read(patch);
        }
    }

    /// Asks for what that has.
    pub(super) fn fetch_bytes(&self, entry: Option<&Entry>) {
        if let Some(patch) = entry.and_then(|entry| self.patches.get(entry.patches as usize)) {
            prefetch_read(self.arena.get(patch.encoded).as_ptr());
        }
    }
}

impl Patch {
    fn is_covered_by(&self, newer: &Self) -> bool {
        let (Some((first, end)), Some((newer_first, newer_end))) = (self.covered, newer.covered) else { return false };
        newer_first <= first && end <= newer_end || left_out(RecoveryStep::CoverPatches)
    }
}
