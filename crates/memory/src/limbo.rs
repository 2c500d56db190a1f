//! Limbo: what is retired and not yet freed, oldest first.
//!
//! Entries wait in a ring. Those retired since the worker's last barrier have no tag; [`Limbo::tag`] gives all of them
//! one mark. Marks of the same epoch merge, so there is about one an epoch, and in steady state nothing is allocated.

use std::collections::VecDeque;
use std::ptr::NonNull;

use crate::Epochs;
use crate::epochs::Horizon;

/// Whom the blocks of a list wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitsFor {
    /// All guards.
    Guards,
    /// Guards of workers that follow links between versions, and snapshots.
    Walkers,
}

impl WaitsFor {
    #[inline]
    pub(crate) fn horizon(self, epochs: &Epochs) -> Horizon {
        match self {
            Self::Guards => epochs.horizon(),
            Self::Walkers => epochs.version_horizon(),
        }
    }
}

/// A block that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) pointer: NonNull<u8>,
    pub(crate) bytes: usize,
    /// The epoch whose snapshots and all newer ones do without the block; 0 when no snapshot ever needed it.
    pub(crate) superseded_at: u64,
    /// Whether the block was once found without a snapshot: it waits for all guards when it has waited for these.
    pub(crate) was_found: bool,
}

/// All entries before position `end` were unlinked before some moment in epoch `tag`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    tag: u64,
    end: u64,
}

/// A first-in-first-out list of what waits. See the head of the module.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    entries: VecDeque<Entry>,
    marks: VecDeque<Mark>,
    /// Position of the first entry, counted from the first that ever was.
    first: u64,
    /// Position behind the last tagged entry.
    tagged: u64,
}

// SAFETY: the blocks that wait are owned by the limbo; nobody else frees them or writes to them.
unsafe impl Send for Limbo {}

/// Rings larger than this give memory back when they have become nearly empty.
const SHRINK_ABOVE: usize = 16 << 10;

impl Limbo {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    /// Tags what has no tag yet. The caller passed a barrier after the last push and read `epoch` after the barrier.
    #[inline]
    pub(crate) fn tag(&mut self, epoch: u64) {
        let end = self.first + self.entries.len() as u64;
        if end == self.tagged {
            return;
        }
        self.tagged = end;
        match self.marks.back_mut() {
            Some(mark) if mark.tag == epoch => mark.end = end,
            _ => self.marks.push_back(Mark { tag: epoch, end }),
        }
    }

    /// Takes the oldest entry out if it can be freed.
    #[inline]
    pub(crate) fn pop_ready(&mut self, horizon: Horizon) -> Option<Entry> {
        let mark = self.marks.front()?;
        let entry = self.entries.front()?;
        if mark.tag > horizon.guards || entry.superseded_at > horizon.collectable {
            return None;
        }
        self.first += 1;
        if self.first == mark.end {
            self.marks.pop_front();
        }
        let entry = self.entries.pop_front();
        if self.entries.capacity() > SHRINK_ABOVE && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: usize, superseded_at: u64) -> Entry {
        Entry { pointer: NonNull::dangling(), bytes, superseded_at, was_found: false }
    }

    fn horizon(guards: u64, collectable: u64) -> Horizon {
        Horizon { guards, collectable }
    }

    #[test]
    fn entries_wait_for_their_tag() {
        let mut limbo = Limbo::default();
        limbo.push(entry(1, 0));
        assert!(limbo.pop_ready(horizon(100, 100)).is_none(), "without a tag nothing leaves");
        limbo.tag(5);
        limbo.push(entry(2, 0));
        assert!(limbo.pop_ready(horizon(4, 4)).is_none());
        assert_eq!(limbo.pop_ready(horizon(5, 0)).unwrap().bytes, 1);
        assert!(limbo.pop_ready(horizon(5, 5)).is_none());
        limbo.tag(6);
        limbo.push(entry(3, 0));
        limbo.tag(6);
        assert_eq!(limbo.marks.len(), 1, "marks of an epoch merge");
        assert_eq!(limbo.pop_ready(horizon(6, 0)).unwrap().bytes, 2);
        assert_eq!(limbo.pop_ready(horizon(6, 0)).unwrap().bytes, 3);
        assert!(limbo.is_empty() && limbo.marks.is_empty());
        limbo.tag(7);
        assert!(limbo.marks.is_empty());
    }

    #[test]
    fn versions_wait_for_snapshots_too() {
        let mut limbo = Limbo::default();
        limbo.push(entry(1, 3));
        limbo.tag(3);
        assert!(limbo.pop_ready(horizon(9, 2)).is_none());
        assert_eq!(limbo.pop_ready(horizon(9, 3)).unwrap().bytes, 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a large ring takes an interpreter too long")]
    fn a_large_ring_shrinks() {
        let mut limbo = Limbo::default();
        for _ in 0..100_000 {
            limbo.push(entry(1, 0));
        }
        limbo.tag(1);
        while limbo.pop_ready(horizon(1, 0)).is_some() {}
        assert!(limbo.entries.capacity() <= SHRINK_ABOVE);
    }
}
