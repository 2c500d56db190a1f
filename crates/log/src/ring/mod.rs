//! Rings: where commits put what they have changed, and the epochs in which they do so.
//!
//! Each worker has a ring. A transaction's changes are encoded straight into it, behind what is sealed, where nobody looks for them, and without a latch;
//! sealing stamps them with the number of the epoch and moves the head behind them. A ring's latch is held for one seal, or to read the ends: copying the
//! records out goes on beside the worker, which writes other words meanwhile. A transaction that is too long for its ring is gathered outside of it.
//! `docs/durability.md` has the invariants.

mod array;
#[cfg(all(test, loom))]
mod model;
mod sink;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::sync::{Arc, OnceLock, PoisonError};

use polychron_engine::mutations::{left_out, pass};
use polychron_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{CachePadded, Mutex, MutexGuard, SpinLatch};

use crate::frame::{Edit, Order, Piece, Refused, changes_of};
use crate::steps::{Point, Step};
use array::{Array, Budget, Long, PieceBytes};
use sink::{WordSink, copy_out, index};

/// Words in front of the bytes of a sealed record: how many bytes, the epoch, era and timestamp of its order.
const FRONT: u64 = 4;

/// In place of how many bytes are staged: they are gathered outside of the ring. No room is enough for as many.
const LONG: usize = usize::MAX / 4;

/// The words of the shortest ring, unless no ring may have as many.
const LEAST_WORDS: usize = 1 << 9;

/// How long rings may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The words of the longest ring, a power of two, and no more than one transaction may have.
    pub(crate) ring_words: usize,
    /// The bytes that the rings share. Each takes one part of what is left when its worker begins.
    pub(crate) rings_bytes: usize,
    /// How many parts what is left has: as many as there are workers, if they are few.
    pub(crate) parts: usize,
    /// The bytes of one transaction.
    pub(crate) transaction_bytes: usize,
    /// The bytes of one piece of a transaction that is too long for its ring, but for a single longer change.
    pub(crate) piece_bytes: usize,
    /// The bytes of all rings together.
    pub(crate) memory_bytes: usize,
}

/// Where a change was staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staged {
    InRing,
    /// Outside of it, because the transaction is long.
    Long,
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
    /// The bytes that rings to come share.
    left: Mutex<usize>,
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
    own: CachePadded<Own>,
    latch: SpinLatch<Ends>,
}

/// Fields that the worker alone uses, but for the array. Positions are words since the ring began. All accesses are relaxed: the latch orders what another
/// thread reads.
#[derive(Default)]
struct Own {
    array: OnceLock<Array>,
    /// How many bytes are staged: behind the head and the room for the record's front.
    staged: AtomicUsize,
    /// Words before this position are sealed.
    head: AtomicU64,
    /// Words before this position were copied out, as far as the worker knows.
    tail: AtomicU64,
}

/// Fields that the worker shares with the thread that flushes.
#[derive(Default)]
struct Ends {
    tail: u64,
    head: u64,
    /// The transaction that is staged, if it is long.
    staged: Option<Long>,
    /// Those that are sealed, with their epochs.
    sealed: Vec<(u64, Order, Long)>,
}

/// The sealed records of one ring, as an epoch's end found them.
pub(crate) struct Heads {
    worker: usize,
    tail: u64,
    head: u64,
    long: Vec<(u64, Order, Long)>,
}

/// A sealed record.
pub(crate) struct Sealed {
    pub(crate) order: Order,
    pub(crate) piece: Piece,
    pub(crate) bytes: usize,
    place: Place,
}

/// Where a record lies.
enum Place {
    /// In the ring, from this word on.
    Ring(u64),
    Long(PieceBytes),
}

impl Limits {
    /// The words of a ring for which so many bytes are left.
    fn ring_words_of(&self, left: usize) -> usize {
        let words = (left / 8 / self.parts).clamp(LEAST_WORDS.min(self.ring_words), self.ring_words);
        1 << words.ilog2()
    }
}

impl Own {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.array.get().map_or(&[], Array::words)
    }

    /// Whether the ring has room for so many bytes behind the head.
    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        let used = self.head.load(Ordering::Relaxed) - self.tail.load(Ordering::Relaxed) + FRONT;
        used as usize + bytes.div_ceil(8) <= self.words().len()
    }
}

impl Rings {
    /// Empty rings, which take no memory, in an epoch.
    pub(crate) fn new(workers: usize, epoch: u64, limits: Limits) -> Self {
        assert!(limits.ring_words.is_power_of_two() && 8 * limits.ring_words <= limits.transaction_bytes);
        let budget = Arc::new(Budget::new(limits.memory_bytes));
        let ring = || Ring { own: CachePadded::default(), latch: SpinLatch::default() };
        let rings = (0..workers).map(|_| ring()).collect();
        let epochs = CachePadded::new(Epochs { current: AtomicU64::new(epoch), sealed: AtomicU64::new(0) });
        Self { rings, epochs, used: AtomicU64::new(0), budget, left: Mutex::new(limits.rings_bytes), limits }
    }

    /// Encodes a change of the worker's transaction behind those that it has staged.
    #[inline]
    pub(crate) fn stage(&self, worker: usize, table: u32, edit: &Edit<'_>) -> Result<Staged, Unstaged> {
        edit.check().map_err(Unstaged::Refused)?;
        let own = &*self.rings[worker].own;
        let staged = own.staged.load(Ordering::Relaxed);
        let is_careless = left_out(Step::RefuseOverfull) && !own.words().is_empty();
        if own.has_room(staged + edit.most_bytes()) || is_careless {
            let start = own.head.load(Ordering::Relaxed) + FRONT;
            let mut sink = WordSink::resume(own.words(), start, staged);
            edit.write(table, &mut sink);
            own.staged.store(sink.finish(), Ordering::Relaxed);
            return Ok(Staged::InRing);
        }
        self.stage_slowly(worker, table, edit)
    }

    /// The same, where the ring has no room, as far as is known.
    #[cold]
    fn stage_slowly(&self, worker: usize, table: u32, edit: &Edit<'_>) -> Result<Staged, Unstaged> {
        let Ring { own, latch } = &self.rings[worker];
        if own.array.get().is_none() {
            self.begin(worker)?;
        }
        let ends = &mut *latch.lock();
        own.tail.store(ends.tail, Ordering::Relaxed);
        let staged = own.staged.load(Ordering::Relaxed);
        let start = own.head.load(Ordering::Relaxed) + FRONT;
        if own.has_room(staged + edit.most_bytes()) {
            let mut sink = WordSink::resume(own.words(), start, staged);
            edit.write(table, &mut sink);
            own.staged.store(sink.finish(), Ordering::Relaxed);
            return Ok(Staged::InRing);
        }
        let has = ends.staged.as_ref().map_or(staged, Long::bytes);
        let bytes = has + edit.most_bytes();
        if bytes > self.limits.transaction_bytes {
            return Err(Unstaged::TooLong { bytes });
        }
        let memory = |(requested, used)| Unstaged::OutOfMemory { requested, used };
        let write = |into: &mut Vec<u8>| edit.write(table, into);
        if let Some(long) = &mut ends.staged {
            long.push(edit.most_bytes(), self.limits.piece_bytes, write).map_err(memory)?;
            return Ok(Staged::Long);
        }
        let mut long = Long::new(&self.budget);
        if staged > 0 {
            let copied = long.push_piece(staged, |into| {
                copy_out(own.words(), start, staged, into);
                changes_of(into).count() as u32
            });
            copied.map_err(memory)?;
        }
        long.push(edit.most_bytes(), self.limits.piece_bytes, write).map_err(memory)?;
        ends.staged = Some(long);
        own.staged.store(LONG, Ordering::Relaxed);
        Ok(Staged::Long)
    }

    /// Gives a worker its ring.
    fn begin(&self, worker: usize) -> Result<(), Unstaged> {
        let mut left = self.left();
        let words = self.limits.ring_words_of(*left);
        let array = Array::new(words, &self.budget);
        let array = array.map_err(|used| Unstaged::OutOfMemory { requested: 8 * words, used })?;
        *left = left.saturating_sub(8 * words);
        drop(left);
        // It is set by this worker alone.
        let _ = self.rings[worker].own.array.set(array);
        polychron_sync::raise(&self.used, worker as u64 + 1, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `close`. Whoever closes an epoch and does not see that this ring is used has raised the number before the
        // worker reads it for its first seal.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Forgets what the worker has staged.
    pub(crate) fn discard(&self, worker: usize) {
        let Ring { own, latch } = &self.rings[worker];
        if own.staged.load(Ordering::Relaxed) == LONG {
            latch.lock().staged = None;
        }
        own.staged.store(0, Ordering::Relaxed);
    }

    /// Seals what the worker has staged, and answers the epoch; 0 if there is nothing.
    #[inline]
    pub(crate) fn seal(&self, worker: usize, order: Order) -> u64 {
        let Ring { own, latch } = &self.rings[worker];
        let staged = own.staged.load(Ordering::Relaxed);
        if staged == 0 {
            return 0;
        }
        let mut ends = latch.lock();
        // Relaxed: under the ring's latch it is the epoch that is open, or one that is being closed by a thread which has not had this latch since it
        // raised the number. That one finds the record before the head.
        let epoch = self.epochs.current.load(Ordering::Relaxed);
        // Relaxed: whoever has read what this transaction writes comes behind it.
        if self.epochs.sealed.load(Ordering::Relaxed) < epoch {
            polychron_sync::raise(&self.epochs.sealed, epoch, Ordering::Relaxed);
        }
        if let Some(long) = ends.staged.take() {
            ends.sealed.push((epoch, order, long));
        } else {
            let words = own.words();
            let front = [staged as u64, epoch, order.era, order.timestamp];
            for (at, word) in (ends.head..).zip(front) {
                words[index(words, at)].store(word, Ordering::Relaxed);
            }
            ends.head += FRONT + staged.div_ceil(8) as u64;
            own.head.store(ends.head, Ordering::Relaxed);
        }
        own.tail.store(ends.tail, Ordering::Relaxed);
        own.staged.store(0, Ordering::Relaxed);
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

    /// Whether a worker's ring is more than half full of what was not copied out, or a long transaction was not.
    #[inline]
    pub(crate) fn is_behind(&self, worker: usize) -> bool {
        let ends = self.rings[worker].latch.lock();
        (ends.head - ends.tail) as usize > self.rings[worker].own.words().len() / 2 || !ends.sealed.is_empty()
    }

    /// Whether a worker's ring is more than a quarter full of what was not copied out, as far as the worker knows.
    #[inline]
    pub(crate) fn is_filling(&self, worker: usize) -> bool {
        let own = &*self.rings[worker].own;
        (own.head.load(Ordering::Relaxed) - own.tail.load(Ordering::Relaxed)) as usize > own.words().len() / 4
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
            let mut ends = ring.latch.lock();
            if ends.head > ends.tail || !ends.sealed.is_empty() {
                let is_taken = |(sealed, ..): &mut (u64, Order, Long)| is_due(*sealed, epoch);
                let long = ends.sealed.extract_if(.., is_taken).collect();
                heads.push(Heads { worker, tail: ends.tail, head: ends.head, long });
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

    /// Takes the next record of a ring, if it is of this epoch or one before.
    pub(crate) fn take(&self, heads: &mut Heads, epoch: u64) -> Option<Sealed> {
        // One after the other: no other record comes between the pieces of a transaction.
        while let Some((_, order, long)) = heads.long.last_mut() {
            if let Some((bytes, goes_on)) = long.take() {
                let first = if left_out(Step::NumberPieces) { 0 } else { bytes.first };
                let piece = Piece { first, goes_on };
                return Some(Sealed { order: *order, piece, bytes: bytes.bytes.len(), place: Place::Long(bytes) });
            }
            heads.long.pop();
        }
        if heads.tail == heads.head {
            return None;
        }
        let words = self.rings[heads.worker].own.words();
        let word = |at| words[index(words, heads.tail + at)].load(Ordering::Relaxed);
        if !is_due(word(1), epoch) {
            return None;
        }
        let (bytes, order) = (word(0) as usize, Order { era: word(2), timestamp: word(3) });
        let start = heads.tail + FRONT;
        heads.tail = start + bytes.div_ceil(8) as u64;
        Some(Sealed { order, piece: Piece::WHOLE, bytes, place: Place::Ring(start) })
    }

    /// Appends the bytes of a record that was taken.
    pub(crate) fn copy(&self, heads: &Heads, sealed: &Sealed, into: &mut Vec<u8>) {
        match &sealed.place {
            Place::Ring(start) => copy_out(self.rings[heads.worker].own.words(), *start, sealed.bytes, into),
            Place::Long(piece) => into.extend_from_slice(&piece.bytes),
        }
    }

    /// Frees what was taken of a ring.
    pub(crate) fn free(&self, taken: &Heads) {
        if !left_out(Step::FreeCopied) {
            self.rings[taken.worker].latch.lock().tail = taken.tail;
        }
    }

    /// The lowest order of what is sealed and was not taken.
    pub(crate) fn lowest(&self) -> Option<Order> {
        let of_ring = |ring: &Ring| {
            let ends = ring.latch.lock();
            let words = ring.own.words();
            let word = |at| words[index(words, at)].load(Ordering::Relaxed);
            let mut lowest = ends.sealed.iter().map(|(_, order, _)| *order).min();
            let mut at = ends.tail;
            while at < ends.head {
                let order = Order { era: word(at + 2), timestamp: word(at + 3) };
                lowest = Some(lowest.map_or(order, |lowest| lowest.min(order)));
                at += FRONT + word(at).div_ceil(8);
            }
            lowest
        };
        self.rings.iter().filter_map(of_ring).min()
    }

    /// Shows the changes of each record that is sealed and was not taken. Nothing is taken meanwhile, by another thread or later.
    pub(crate) fn each_sealed(&self, look: &mut dyn FnMut(&[u8])) {
        let mut bytes = Vec::new();
        for Ring { own, latch } in &self.rings {
            let mut ends = latch.lock();
            let (mut at, head, mut long) = (ends.tail, ends.head, std::mem::take(&mut ends.sealed));
            drop(ends);
            long.iter().flat_map(|(.., long)| long.pieces()).for_each(&mut *look);
            // What is between tail and head is not written again before it is taken.
            while at < head {
                let words = own.words();
                let count = words[index(words, at)].load(Ordering::Relaxed);
                bytes.clear();
                copy_out(words, at + FRONT, count as usize, &mut bytes);
                look(&bytes);
                at += FRONT + count.div_ceil(8);
            }
            let mut ends = latch.lock();
            long.append(&mut ends.sealed);
            ends.sealed = long;
        }
    }

    /// The memory that the next ring takes, in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        8 * self.limits.ring_words_of(*self.left())
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that rings take, and what lies outside of them, in bytes: no less than what is sealed and not copied out.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.budget.used()
    }
}

/// Whether what was sealed in an epoch belongs into the frame of another one.
fn is_due(sealed: u64, epoch: u64) -> bool {
    sealed <= epoch || left_out(Step::LeaveLaterEpochs)
}

impl Heads {
    /// Whether long transactions were taken out of the ring with them.
    pub(crate) fn is_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// Whose ring it is.
    pub(crate) fn worker(&self) -> u32 {
        self.worker as u32
    }
}
