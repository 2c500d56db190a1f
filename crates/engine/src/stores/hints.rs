//! Hints: where the records of keys are that will be asked for soon.
//!
//! A worker that looks up one key after the other pays a memory latency for every node and record it touches. Of keys that are
//! known beforehand it can start all lookups, a step of each in turn, so that the latencies overlap; and it starts
//! fetching the records. No record is read. Where a key's record was found is kept as a hint, so that the key is looked up
//! once; what may be concluded from a hint is the protocol's business.
//!
//! Keys are known because the procedures of a batch declare them ([`Hints::gather`]), or because a running transaction asks for
//! some at once ([`Hints::ask`], and [`Hints::answer`] before the first of them is read).

use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::key::{EncodedKey, Key16};
use polychron_index::ordered::{Cursor, OrderedIndex, Step};
use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;

use super::{Keyed, StoreTable};
use crate::catalog::known;
use crate::drive::catch;
use crate::{Access, Declare, Procedure};

/// Hints that are looked at for a key, ahead and from the first on: a key without a hint must not cost a walk over all.
const WINDOW: usize = 4;

/// Keys whose first eight bytes are so far apart at most, as numbers, are taken to lie in one leaf. Those that share all eight are not: the
/// leaves in which they differ are others.
const SIDE_BY_SIDE: RangeInclusive<u64> = 1..=15;

/// Lines of a record that are fetched. An update reads the whole row for the older version, so more than the first few are worth
/// it: measured on TPC-C, 6 lines are 4 % ahead of 2.
const MOST_LINES: usize = 6;

/// The record that a key led to when it was looked up.
#[derive(Clone, Copy, Debug)]
struct Hint {
    key: Key16,
    handle: Option<Handle>,
    /// The key's hash, where it is looked up in a hash index.
    hash: u64,
    table: TableId,
}

impl Hint {
    #[inline]
    fn new(table: TableId, key: Key16) -> Self {
        Self { key, handle: None, hash: 0, table }
    }

    #[inline]
    fn is_of<K: EncodedKey>(&self, table: TableId, key: K) -> bool {
        let [first, second] = [0, 1].map(|index| self.key.slice(index) == key.slice(index));
        self.table == table && self.key.len() == key.len() && first && second
    }

    /// Whether the key comes next to that of the hint before, so that one lookup leads to both.
    #[inline]
    fn follows(&self, before: &Self) -> bool {
        self.table == before.table && SIDE_BY_SIDE.contains(&self.key.slice(0).wrapping_sub(before.key.slice(0)))
    }
}

/// The handle that an index gave for a hint, under a guard that is held.
#[derive(Clone, Copy, Debug)]
pub struct Hinted<'g> {
    handle: Handle,
    guard: PhantomData<&'g ()>,
}

impl Hinted<'_> {
    /// The handle.
    #[inline]
    pub fn handle(self) -> Handle {
        self.handle
    }
}

/// Hints in force are `next .. end`, then `first .. next`: keys are mostly asked for in the order in which they came.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    first: usize,
    next: usize,
    end: usize,
}

impl Window {
    /// The position of a key's hint.
    fn find(&mut self, all: &[Hint], table: TableId, key: Key16) -> Option<usize> {
        let ahead = self.next..self.end.min(self.next + WINDOW);
        let mut positions = ahead.chain(self.first..self.next.min(self.first + WINDOW));
        let position = positions.find(|&position| all[position].is_of(table, key))?;
        self.next = position + 1;
        Some(position)
    }
}

/// The hints of a group of procedures, those of the one that runs in force, and behind them those that it asked for itself.
#[derive(Debug, Default)]
pub struct Hints {
    all: Vec<Hint>,
    /// For each procedure of the group, the end of its hints.
    ends: Vec<usize>,
    declared: Window,
    own: Window,
    /// From here on hints wait for their lookups.
    answered: usize,
    /// Hints before this one were found in an epoch that was left since, and lead nowhere.
    outdated: usize,
    /// Memory of lookups under way, empty between them.
    walks: Vec<Walk<'static>>,
}

// SAFETY: cursors are what keeps a lookup in its thread, and none outlives the call that began it.
unsafe impl Send for Hints {}

/// A lookup in an ordered index under way.
#[derive(Debug)]
struct Walk<'g> {
    index: &'g OrderedIndex,
    cursor: Cursor<'g, Key16>,
    lines: usize,
    /// The hint of its key, and of those that follow it and wait until it has been down the tree.
    hints: Range<usize>,
}

/// Takes the keys that a procedure declares.
struct Gathering<'g>(&'g mut Vec<Hint>);

impl Declare for Gathering<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, _access: Access) {
        if let Some(key) = Key16::from_key(key) {
            self.0.push(Hint::new(table, key));
        }
    }
}

impl Hints {
    /// Whether there are any hints.
    #[inline]
    pub fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether the procedure that runs has declared keys, which were looked up.
    #[inline]
    pub fn has_declared(&self) -> bool {
        self.declared.end > self.declared.first
    }

    /// The record of a key, if a hint for it is among the next ones, or among the first ones that were passed by.
    #[inline]
    pub fn find<K: EncodedKey>(&mut self, table: TableId, key: K) -> Option<Handle> {
        // Mostly keys are asked for in their order, and either all were declared or none.
        let window = if self.has_declared() { &mut self.declared } else { &mut self.own };
        match self.all.get(window.next) {
            Some(hint) if window.next < window.end && hint.is_of(table, key) => {
                window.next += 1;
                if window.next > self.outdated { hint.handle } else { None }
            }
            _ => self.find_further(table, Key16::from_key(key)?),
        }
    }

    #[inline(never)]
    fn find_further(&mut self, table: TableId, key: Key16) -> Option<Handle> {
        let declared = self.declared.find(&self.all, table, key);
        let position = declared.or_else(|| self.own.find(&self.all, table, key))?;
        if position >= self.outdated { self.all[position].handle } else { None }
    }

    /// Looks the keys up that a group of procedures declares, and starts fetching their records. What is found holds under
    /// the guard.
    #[inline]
    pub fn gather<S: Keyed, P: Procedure>(
        &mut self,
        tables: &[Option<Arc<StoreTable<S>>>],
        group: &[P],
        guard: &Guard<'_>,
    ) {
        self.clear();
        for procedure in group {
            // One that panics here, and goes on to panic when it runs, is reported there. What it named is no more than a hint.
            let mut gathering = Gathering(&mut self.all);
            let _named = catch(|| procedure.declare(&mut gathering));
            self.ends.push(self.all.len());
        }
        self.answer(tables, guard);
    }

    /// The hints of this procedure of the group are those in force now.
    #[inline]
    pub fn put_in_force(&mut self, position: usize) {
        let first = if position == 0 { 0 } else { self.ends[position - 1] };
        self.declared = Window { first, next: first, end: self.ends[position] };
        self.rewind();
    }

    /// The procedure that runs begins, or begins again after a conflict: what it asked for itself is forgotten, and what it declared
    /// will be wanted from the first key on.
    #[inline]
    pub fn rewind(&mut self) {
        let group = self.ends.last().map_or(0, |&end| end);
        self.all.truncate(group);
        self.declared.next = self.declared.first;
        self.own = Window { first: group, next: group, end: group };
        self.answered = group;
        self.outdated = self.outdated.min(group);
    }

    /// Adds a key to those that the running transaction will read, unless it is too long. Touches no index, so the transaction need be in no
    /// epoch.
    #[inline]
    pub fn ask<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Some(key) = Key16::from_key(key) {
            self.all.push(Hint::new(table, key));
            self.own.end = self.all.len();
        }
    }

    /// Whether any key was asked for that was not looked up yet.
    #[inline]
    pub fn waits(&self) -> bool {
        self.answered < self.all.len()
    }

    /// Looks up the keys that were asked for, all of them together, and starts fetching their records. What is found
    /// holds under the guard. Answers the position of the first of these keys, if the tables of some are not looked up here.
    #[inline(never)]
    pub fn answer<S: Keyed>(&mut self, tables: &[Option<Arc<StoreTable<S>>>], guard: &Guard<'_>) -> Option<usize> {
        let locate = |hint: &Hint| S::locate(known(tables, hint.table)?, &hint.key);
        let first = std::mem::replace(&mut self.answered, self.all.len());
        let mut walks = lend(std::mem::take(&mut self.walks));
        let (mut has_more, mut is_all) = (false, true);
        for hint in &mut self.all[first..] {
            if let Some((AnyIndex::Hash(index), _)) = locate(hint) {
                hint.hash = index.prefetch(hint.key, guard);
            }
        }
        for position in first..self.all.len() {
            if let Some(walk) = walks.last_mut()
                && walk.hints.end == position
                && self.all[position].follows(&self.all[position - 1])
            {
                walk.hints.end += 1;
                continue;
            }
            let hint = &mut self.all[position];
            let Some((index, lines)) = locate(hint) else {
                is_all = false;
                continue;
            };
            has_more |= S::FETCHES_MORE;
            match index {
                AnyIndex::Hash(index) => {
                    hint.handle = index.find_hashed(hint.key, hint.hash, guard);
                    fetch(hint.handle, lines);
                }
                AnyIndex::Ordered(index) => {
                    let hints = position..position + 1;
                    walks.push(Walk { index, cursor: index.start(hint.key, guard), lines, hints });
                }
            }
        }
        while !walks.is_empty() {
            walks.retain_mut(|walk| {
                let Step::Done(lookup) = walk.index.advance(&mut walk.cursor, guard) else { return true };
                let hints = &mut self.all[walk.hints.clone()];
                hints[0].handle = lookup.handle;
                walk.index.find_run(hints[1..].iter_mut().map(|hint| (hint.key, &mut hint.handle)), guard);
                hints.iter().for_each(|hint| fetch(hint.handle, walk.lines));
                false
            });
        }
        self.walks = lend(walks);
        if has_more {
            for hint in &self.all[first..] {
                if let Some((table, handle)) = known(tables, hint.table).zip(hint.handle) {
                    S::fetch_more(table, Hinted { handle, guard: PhantomData });
                }
            }
        }
        (!is_all).then_some(first)
    }

    /// Keys from a position on, with their positions.
    pub fn keys_from(&self, first: usize) -> impl Iterator<Item = (usize, TableId, Key16)> {
        self.all.iter().enumerate().skip(first).map(|(position, hint)| (position, hint.table, hint.key))
    }

    /// Answers one key.
    pub fn set(&mut self, position: usize, handle: Option<Handle>) {
        self.all[position].handle = handle;
    }

    /// The guard leaves its epoch for another one: what was found so far is no longer looked at, for the memory may be gone.
    #[inline]
    pub fn outdate(&mut self) {
        self.outdated = self.answered;
    }

    /// Forgets all hints, before the epoch ends in which they were found.
    #[inline]
    pub fn clear(&mut self) {
        if self.all.is_empty() && self.ends.is_empty() {
            return;
        }
        self.all.clear();
        self.ends.clear();
        (self.declared, self.own) = (Window::default(), Window::default());
        (self.answered, self.outdated) = (0, 0);
    }
}

#[inline]
fn fetch(handle: Option<Handle>, lines: usize) {
    let Some(handle) = handle else { return };
    let record: *const u8 = std::ptr::without_provenance(handle.get() as usize);
    for line in 0..lines.min(MOST_LINES) {
        polychron_sync::prefetch_read(record.wrapping_add(64 * line));
    }
}

/// Empties a list of walks and lends its memory to walks of another life: collecting an iterator of the same layout takes
/// over the allocation.
fn lend<'a>(mut walks: Vec<Walk<'_>>) -> Vec<Walk<'a>> {
    walks.clear();
    walks.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

#[cfg(test)]
mod tests;
