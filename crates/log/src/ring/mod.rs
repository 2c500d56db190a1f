//! Rings: where commits put what they have changed, and the epochs in which they do so.
//!
//! Each worker has a ring. A transaction's changes are encoded straight into it, behind what is sealed, where nobody looks for them; sealing stamps them
//! with the number of the epoch and moves the head behind them. A ring's latch is held for one change, for one seal, or to read the ends: copying the
//! records out goes on beside the worker, which writes other words meanwhile. `docs/durability.md` has the invariants.

mod array;
#[cfg(all(test, loom))]
mod model;
mod sink;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::sync::Arc;

use polychron_engine::mutations::{left_out, pass};
use polychron_sync::atomic::{AtomicU64, Ordering, fence};
use polychron_sync::{CachePadded, SpinLatch};

use crate::frame::{Edit, Order, Refused};
use crate::steps::{Point, Step};
use array::{Array, Budget};
use sink::{WordSink, copy_out, index};

/// Words in front of the bytes of a sealed record: how many bytes, the epoch, era and timestamp of its order.
const FRONT: u64 = 4;

/// How long rings may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The words of an ordinary ring, a power of two.
    pub(crate) ring_words: usize,
    /// The bytes of one transaction.
    pub(crate) transaction_bytes: usize,
    /// The bytes of all rings together.
    pub(crate) memory_bytes: usize,
}

/// Why a change was not staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unstaged {
    /// Such a change cannot be.
    Refused(Refused),
    /// The transaction is longer than it may be.
    TooLong { bytes: usize },
    /// The rings may take no more memory.
    OutOfMemory { requested: usize, used: usize },
}

/// The rings of all workers, and the epoch.
pub(crate) struct Rings {
    rings: Box<[Ring]>,
    epochs: CachePadded<Epochs>,
    /// Rings from this one on have never had a record.
    used: AtomicU64,
    budget: Arc<Budget>,
    limits: Limits,
}

/// Read by every seal, and written once or twice an epoch.
struct Epochs {
    /// The one in which seals are now.
    current: AtomicU64,
    /// The latest one in which something was sealed.
    sealed: AtomicU64,
}

struct Ring {
    latch: SpinLatch<Ends>,
}

/// Positions are words since the ring began.
struct Ends {
    array: Arc<Array>,
    /// What lies before was copied out.
    tail: u64,
    /// What lies before is sealed.
    head: u64,
    /// How many bytes are staged: behind the head and the room for the record's front.
    staged: usize,
}

/// The sealed records of one ring, as an epoch's end found them.
pub(crate) struct Heads {
    array: Arc<Array>,
    worker: usize,
    tail: u64,
    head: u64,
}

/// A sealed record that lies in a ring.
pub(crate) struct Sealed {
    pub(crate) order: Order,
    pub(crate) bytes: usize,
    start: u64,
}

impl Rings {
    /// Empty rings, which take no memory, in an epoch.
    pub(crate) fn new(workers: usize, epoch: u64, limits: Limits) -> Self {
        assert!(limits.ring_words.is_power_of_two());
        let budget = Arc::new(Budget::new(limits.memory_bytes));
        let ring = || Ring {
            latch: SpinLatch::new(Ends { array: Arc::new(Array::empty(&budget)), tail: 0, head: 0, staged: 0 }),
        };
        let rings = (0..workers).map(|_| ring()).collect();
        let epochs = CachePadded::new(Epochs { current: AtomicU64::new(epoch), sealed: AtomicU64::new(0) });
        Self { rings, epochs, used: AtomicU64::new(0), budget, limits }
    }

    /// Encodes a change of the worker's transaction behind those that it has staged.
    #[inline]
    pub(crate) fn stage(&self, worker: usize, table: u32, edit: &Edit<'_>) -> Result<(), Unstaged> {
        edit.check().map_err(Unstaged::Refused)?;
        let mut ends = self.rings[worker].latch.lock();
        if !left_out(Step::RefuseOverfull) || ends.array.words().is_empty() {
            self.make_room(worker, &mut ends, edit.most_bytes())?;
        }
        let mut sink = WordSink::resume(ends.array.words(), ends.head + FRONT, ends.staged);
        edit.write(table, &mut sink);
        ends.staged = sink.finish();
        Ok(())
    }

    /// Sees to it that so many bytes more can be staged.
    #[inline]
    fn make_room(&self, worker: usize, ends: &mut Ends, more: usize) -> Result<(), Unstaged> {
        let bytes = ends.staged + more;
        let words = (ends.head - ends.tail + FRONT) as usize + bytes.div_ceil(8);
        let has = ends.array.words().len();
        // A ring that was lengthened becomes as long as the others again, once it is empty.
        let is_long = has > self.limits.ring_words && ends.staged == 0 && words <= self.limits.ring_words;
        if words <= has && bytes <= self.limits.transaction_bytes && !is_long {
            return Ok(());
        }
        self.replace(worker, ends, bytes, words)
    }

    #[cold]
    fn replace(&self, worker: usize, ends: &mut Ends, bytes: usize, words: usize) -> Result<(), Unstaged> {
        if bytes > self.limits.transaction_bytes {
            return Err(Unstaged::TooLong { bytes });
        }
        let words = words.next_power_of_two().max(self.limits.ring_words);
        let array =
            Array::new(words, &self.budget).map_err(|used| Unstaged::OutOfMemory { requested: 8 * words, used })?;
        let end = ends.head + FRONT + ends.staged.div_ceil(8) as u64;
        for at in ends.tail..end.min(ends.tail + ends.array.words().len() as u64) {
            let word = ends.array.words()[index(ends.array.words(), at)].load(Ordering::Relaxed);
            array.words()[index(array.words(), at)].store(word, Ordering::Relaxed);
        }
        ends.array = Arc::new(array);
        polychron_sync::raise(&self.used, worker as u64 + 1, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `close`. Whoever closes an epoch and does not see that this ring is used has raised the number before the
        // worker reads it for its first seal.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Forgets what the worker has staged.
    pub(crate) fn discard(&self, worker: usize) {
        self.rings[worker].latch.lock().staged = 0;
    }

    /// Seals what the worker has staged, and answers the epoch; 0 if there is nothing.
    #[inline]
    pub(crate) fn seal(&self, worker: usize, order: Order) -> u64 {
        let mut ends = self.rings[worker].latch.lock();
        if ends.staged == 0 {
            return 0;
        }
        // Relaxed: under the ring's latch it is the epoch that is open, or one that is being closed by a thread which has not had this latch since it
        // raised the number. That one finds the record before the head.
        let epoch = self.epochs.current.load(Ordering::Relaxed);
        // Relaxed: whoever has read what this transaction writes comes behind it.
        if self.epochs.sealed.load(Ordering::Relaxed) < epoch {
            polychron_sync::raise(&self.epochs.sealed, epoch, Ordering::Relaxed);
        }
        let words = ends.array.words();
        let front = [ends.staged as u64, epoch, order.era, order.timestamp];
        for (at, word) in (ends.head..).zip(front) {
            words[index(words, at)].store(word, Ordering::Relaxed);
        }
        ends.head += FRONT + ends.staged.div_ceil(8) as u64;
        ends.staged = 0;
        epoch
    }

    /// The latest epoch in which something was sealed that the caller may have read; 0 if there is none.
    #[inline]
    pub(crate) fn last_sealed(&self) -> u64 {
        self.epochs.sealed.load(Ordering::Relaxed)
    }

    /// The epoch in which seals are now.
    pub(crate) fn current(&self) -> u64 {
        self.epochs.current.load(Ordering::Relaxed)
    }

    /// Whether a worker's ring is more than half full of what was not copied out.
    #[inline]
    pub(crate) fn is_behind(&self, worker: usize) -> bool {
        let ends = self.rings[worker].latch.lock();
        (ends.head - ends.tail) as usize > self.limits.ring_words / 2
    }

    /// Closes the epoch, and appends the heads of all rings that have records. One thread at a time. Every record of this epoch and those before lies
    /// before the heads; some of the next one may do so, too.
    pub(crate) fn close(&self, heads: &mut Vec<Heads>) -> u64 {
        let epoch = self.epochs.current.load(Ordering::Relaxed);
        // Relaxed: a worker that takes its latch behind this thread sees it.
        let raise = || self.epochs.current.store(epoch + 1, Ordering::Relaxed);
        let is_late = left_out(Step::RaiseEpochFirst);
        if !is_late {
            raise();
            pass(Point::Closing);
        }
        // SeqCst: pairs with the fence in `replace`.
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::Relaxed) as usize;
        for (worker, ring) in self.rings[..used].iter().enumerate() {
            let ends = ring.latch.lock();
            if ends.head > ends.tail {
                heads.push(Heads { array: Arc::clone(&ends.array), worker, tail: ends.tail, head: ends.head });
            }
            drop(ends);
            if worker == 0 {
                pass(Point::FirstHeadRead);
            }
        }
        if is_late {
            pass(Point::Closing);
            raise();
        }
        epoch
    }

    /// Frees what was taken of a ring.
    pub(crate) fn free(&self, taken: &Heads) {
        if !left_out(Step::FreeCopied) {
            self.rings[taken.worker].latch.lock().tail = taken.tail;
        }
    }

    /// The memory that rings take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.budget.used()
    }
}

impl Heads {
    /// The next record, if it is of this epoch or one before.
    pub(crate) fn next(&mut self, epoch: u64) -> Option<Sealed> {
        if self.tail == self.head {
            return None;
        }
        let words = self.array.words();
        let word = |at| words[index(words, self.tail + at)].load(Ordering::Relaxed);
        if word(1) > epoch && !left_out(Step::LeaveLaterEpochs) {
            return None;
        }
        let bytes = word(0) as usize;
        let sealed = Sealed { order: Order { era: word(2), timestamp: word(3) }, bytes, start: self.tail + FRONT };
        self.tail += FRONT + bytes.div_ceil(8) as u64;
        Some(sealed)
    }

    /// Appends the bytes of a record.
    pub(crate) fn copy(&self, sealed: &Sealed, into: &mut Vec<u8>) {
        copy_out(self.array.words(), sealed.start, sealed.bytes, into);
    }

    /// Whose ring it is.
    pub(crate) fn worker(&self) -> u32 {
        self.worker as u32
    }
}
