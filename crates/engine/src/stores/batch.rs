//! Ranges of an ordered index, as handles, some at a time: their records can be fetched into the caches together, and a
//! visitor of rows does not run inside the index.

use std::ops::{Bound, ControlFlow};

use polychron_index::{AnyIndex, Handle, Stamp, ordered};
use polychron_memory::Guard;

use super::deferred::Keys;
use crate::{Direction, Scan};

/// Handles of a range.
#[derive(Debug, Default)]
pub struct Batch {
    handles: Vec<Handle>,
    keys: Keys,
    with_keys: bool,
    /// The stamps of the leaves, and for each handle how many leaves had been met; only when they are asked for.
    stamps: Vec<Stamp>,
    leaves: Vec<u32>,
    with_stamps: bool,
    resume: Vec<u8>,
    /// The memory of the key behind which the collection before has begun.
    spare: Vec<u8>,
    size: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Fresh,
    More,
    Last,
}

impl Batch {
    /// Handles collected at first: few, for scans that stop early.
    const FIRST: usize = 64;
    /// The factor by which each later collection is larger: a thread that wants one row may have to pass a few deleted ones.
    const GROWTH: usize = 8;
    /// Handles collected at a time at most.
    const LARGEST: usize = 1024;
    /// The number of records that are fetched ahead of the visit.
    pub const AHEAD: usize = 8;

    /// Begins a scan of at most `limit` entries, as far as is known. Keys are kept when they are asked for.
    pub fn begin(&mut self, limit: usize, with_keys: bool) {
        self.size = limit.clamp(1, Self::FIRST);
        self.with_keys = with_keys;
        self.with_stamps = false;
        self.state = State::Fresh;
    }

    /// As [`Batch::begin`], with keys, and with the stamps of the leaves for a transaction that guards what it did not find.
    pub fn begin_guarded(&mut self, limit: usize) {
        self.begin(limit, true);
        self.with_stamps = true;
    }

    /// Collects the next entries of the range. `false`: there are no more.
    pub fn fill(&mut self, index: &AnyIndex, scan: &Scan<'_>, guard: &Guard<'_>) -> bool {
        self.handles.clear();
        self.keys.clear();
        self.stamps.clear();
        self.leaves.clear();
        if self.state == State::Last {
            return false;
        }
        let index = match index {
            AnyIndex::Ordered(index) => index,
            AnyIndex::Hash(index) => {
                let found = scan.point().and_then(|key| Some((key, index.get(key, guard).handle?)));
                if let Some((key, handle)) = found {
                    let _ = ordered::Visitor::entry(self, key, handle);
                }
                self.state = State::Last;
                return found.is_some();
            }
        };
        let resumed = std::mem::replace(&mut self.resume, std::mem::take(&mut self.spare));
        let (mut lower, mut upper) = (scan.lower, scan.upper);
        let direction = match scan.direction {
            Direction::Forward => ordered::Direction::Forward,
            Direction::Backward => ordered::Direction::Backward,
        };
        if self.state == State::More {
            match scan.direction {
                Direction::Forward => lower = Bound::Excluded(&resumed[..]),
                Direction::Backward => upper = Bound::Excluded(&resumed[..]),
            }
            self.size = (self.size * Self::GROWTH).min(Self::LARGEST);
        }
        self.state = State::Last;
        index.scan(lower, upper, direction, self, guard);
        self.spare = resumed;
        !self.handles.is_empty()
    }

    /// The last key that was collected, if there may be more behind it.
    #[inline]
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.state == State::More).then_some(&self.resume[..])
    }

    /// The number of handles.
    #[inline]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// The handles.
    #[inline]
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// The handle at a position, if there are so many.
    #[inline]
    pub fn get(&self, position: usize) -> Option<Handle> {
        self.handles.get(position).copied()
    }

    /// The stamps of the leaves that were met, in their order; only when stamps are kept.
    #[inline]
    pub fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// For each handle, the number of leaves that had been visited when it was collected; only when stamps are kept.
    #[inline]
    pub fn leaves(&self, position: usize) -> usize {
        self.leaves[position] as usize
    }

    /// The key at a position; only when keys are kept.
    #[inline]
    pub fn key(&self, position: usize) -> &[u8] {
        self.keys.get(position)
    }
}

impl ordered::Visitor for Batch {
    #[inline]
    fn node(&mut self, stamp: Stamp) {
        if self.with_stamps {
            self.stamps.push(stamp);
        }
    }

    #[inline]
    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        self.handles.push(handle);
        if self.with_stamps {
            self.leaves.push(self.stamps.len() as u32);
        }
        if self.with_keys {
            self.keys.push(key);
        }
        if self.handles.len() < self.size {
            return ControlFlow::Continue(());
        }
        self.state = State::More;
        self.resume.clear();
        self.resume.extend_from_slice(key);
        ControlFlow::Break(())
    }
}
