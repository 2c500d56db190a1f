//! The log of batches: which thread may do what to a batch, and when (§3.2.4, §3.3).
//!
//! ```text
//!   client batches ──sequence──► batch 7 ──plan, by partition──► batch 6 ──execute, by chunks──► batch 5 finished
//! ```
//!
//! Each stage takes batches in their order. Any thread may do the next unit of any stage: sequencing under a latch, planning
//! under the latch of a partition, execution by claiming a chunk of transactions.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use polychron_base::clock::{Clock, SystemClock};
use polychron_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{CachePadded, Mutex, SpinLatch, raise};

use super::planned::{ClientBatch, HandedIn, LiveBatch, OwnBatch, Planned, Progress};
use super::timestamp::Timestamp;

/// Batches under way at most; so few in models that slots are reused.
pub(super) const RING: u64 = if polychron_sync::MODELLED { 2 } else { 64 };
/// A batch that is not full waits while so many are under way.
const ENOUGH: u64 = 2;
/// A full one waits while so many are. Behind these there are only batches that are closed because threads have nothing else to do, while a
/// long procedure holds an earlier one up.
const MANY: u64 = if polychron_sync::MODELLED { 2 } else { 8 };
/// Transactions that a thread takes to execute at a time; so few in models that threads share a batch.
const CHUNK: usize = if polychron_sync::MODELLED { 1 } else { 16 };
/// Bits of a cursor for the position in the batch.
const CURSOR_BITS: u32 = 20;

/// The slot of a batch; it is reused after so many batches as there are slots.
#[derive(Debug, Default)]
struct Slot {
    content: UnsafeCell<Content>,
    count: AtomicUsize,
    /// The number of the batch, and its next transaction that was not claimed.
    cursor: AtomicU64,
    /// Partitions that were not planned yet.
    unplanned: AtomicUsize,
    /// Transactions that were not executed yet.
    incomplete: AtomicUsize,
    /// All batches up to this one were executed when this one was closed, which is before it was planned.
    finished_before: AtomicU64,
    /// When it was closed.
    closed_ns: AtomicU64,
}

impl Slot {
    /// The transactions behind a cursor, if it names this batch and there are some.
    fn next_chunk(&self, cursor: u64, batch: u64) -> Option<Chunk> {
        // Acquire: pairs with the release in `sequence`. The count belongs to the batch that the cursor names, if it still does when
        // it is exchanged.
        let count = self.count.load(Ordering::Acquire);
        let first = cursor as usize & ((1 << CURSOR_BITS) - 1);
        let is_there = cursor >> CURSOR_BITS == batch && first < count;
        is_there.then(|| Chunk { batch, first, end: (first + CHUNK).min(count) })
    }
}

/// The client batches of a batch.
#[derive(Debug, Default)]
struct Content {
    client_batches: Vec<Member>,
}

/// A client batch in a batch.
#[derive(Debug)]
pub(super) struct Member {
    client_batch: Arc<ClientBatch>,
    /// The positions of its transactions in the batch. They are here too, because the client takes the client batch back as soon as its own
    /// transactions are executed.
    first: usize,
    end: usize,
}

#[cfg(test)]
impl Member {
    /// The client batch, which a test keeps.
    pub(super) fn keep(&self) -> Arc<ClientBatch> {
        Arc::clone(&self.client_batch)
    }
}

// SAFETY: the content is written by the sequencer while the slot is free, which is when the batch before it there is finished, and read until
// this one is.
unsafe impl Sync for Slot {}

/// The log.
#[derive(Debug)]
pub(super) struct Pipeline {
    queue: Mutex<VecDeque<Arc<ClientBatch>>>,
    waiting: AtomicUsize,
    sequencer: SpinLatch<()>,
    slots: [CachePadded<Slot>; RING as usize],
    /// The last batch that was closed.
    sequenced: CachePadded<AtomicU64>,
    /// All batches up to here have their placeholders.
    planned: CachePadded<AtomicU64>,
    /// All batches up to here were executed: the low watermark (§3.3.2).
    finished: CachePadded<AtomicU64>,
    /// The last batch with a transaction that may write anything; zero if there was none.
    everything: CachePadded<AtomicU64>,
    batch_size: usize,
    partitions: usize,
    pub(super) time: SystemClock,
}

/// Some transactions of a batch that one thread sees executed.
#[derive(Debug)]
pub(super) struct Chunk {
    batch: u64,
    first: usize,
    end: usize,
}

/// How far the planning of a partition has come. [`Pipeline::new`] makes one for each partition.
#[derive(Debug)]
pub(super) struct PartitionProgress {
    /// The last batch that was planned.
    planned: u64,
}

impl PartitionProgress {
    /// The last batch that was planned.
    pub(super) fn planned(&self) -> u64 {
        self.planned
    }
}

impl Chunk {
    /// The batch of its transactions.
    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    /// How many transactions it has.
    pub(super) fn len(&self) -> usize {
        self.end - self.first
    }
}

impl Pipeline {
    /// An empty log, and the progress of each partition.
    pub(super) fn new(batch_size: usize, partitions: usize) -> (Self, Vec<PartitionProgress>) {
        let log = Self {
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            sequencer: SpinLatch::new(()),
            slots: std::array::from_fn(|_| CachePadded::default()),
            sequenced: CachePadded::default(),
            planned: CachePadded::default(),
            finished: CachePadded::default(),
            everything: CachePadded::default(),
            batch_size,
            partitions,
            time: SystemClock::new(),
        };
        (log, (0..partitions).map(|_| PartitionProgress { planned: 0 }).collect())
    }

    fn slot(&self, batch: u64) -> &Slot {
        &self.slots[(batch % RING) as usize]
    }

    /// The last batch that was closed.
    #[inline]
    pub(super) fn sequenced(&self) -> u64 {
        // Acquire: pairs with the release in `sequence`.
        self.sequenced.load(Ordering::Acquire)
    }

    /// All batches up to this one have their placeholders.
    #[inline]
    pub(super) fn planned(&self) -> u64 {
        // Acquire: pairs with the release in `end_planning`.
        self.planned.load(Ordering::Acquire)
    }

    /// All batches up to this one were executed.
    #[inline]
    pub(super) fn finished(&self) -> u64 {
        // Acquire: pairs with the release in `end_execution`.
        self.finished.load(Ordering::Acquire)
    }

    /// Whether all batches that were closed before the call were executed.
    pub(super) fn is_idle(&self) -> bool {
        let sequenced = self.sequenced();
        self.finished() >= sequenced
    }

    /// Whether nothing is under way, and nothing was handed in.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && self.is_idle()
    }

    /// Whether a version that concurrency control found for a transaction of this batch is the one to read: no transaction before it
    /// that was not executed then may have put another one in between.
    #[inline]
    pub(super) fn is_annotation_valid(&self, batch: u64) -> bool {
        // Relaxed: it was stored before the batch was closed, whose number the caller has.
        let everything = self.everything.load(Ordering::Relaxed);
        everything == 0 || everything <= self.finished_before(batch)
    }

    /// Up to which batch all were executed when a batch was closed that is under way.
    #[inline]
    pub(super) fn finished_before(&self, batch: u64) -> u64 {
        // Relaxed: as above.
        self.slot(batch).finished_before.load(Ordering::Relaxed)
    }

    /// For how many microseconds the end of this batch has been in the past: since the next one was closed.
    pub(super) fn age_us(&self, batch: u64) -> u64 {
        if self.sequenced() <= batch {
            return 0;
        }
        // Relaxed: stored before the batch was closed. Where its slot is reused by now the age comes out too small, by less than the
        // time that the caller has taken since.
        let closed = self.slot(batch + 1).closed_ns.load(Ordering::Relaxed);
        self.time.now_ns().saturating_sub(closed) / 1000
    }

    /// Hands a client batch in.
    ///
    /// # Safety
    /// The stores of its entries stay until it is taken back. Its job, and the procedures and answers to which that leads, stay until all of its
    /// transactions were executed, and the procedures and answers are the executors' alone until then. Each procedure is that of one transaction.
    pub(super) unsafe fn hand_in(&self, client_batch: OwnBatch) -> HandedIn {
        let count = client_batch.content().count;
        let (client_batch, handed_in) = client_batch.hand_over();
        // Counted first, so that the count is never below what lies in the queue.
        self.waiting.fetch_add(count, Ordering::Relaxed);
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(client_batch);
        handed_in
    }

    /// Whether a batch can be closed. `has_time`: the caller has looked for something else to do for a while.
    pub(super) fn can_sequence(&self, has_time: bool) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed);
        waiting > 0 && self.has_room(waiting, has_time)
    }

    /// Closes the next batch if there is something to put into it, and it is worth it. `false`: nothing was done.
    pub(super) fn sequence(&self, has_time: bool) -> bool {
        if !self.can_sequence(has_time) {
            return false;
        }
        let Some(_alone) = self.sequencer.try_lock() else { return false };
        if !self.can_sequence(has_time) {
            return false;
        }
        let batch = self.sequenced.load(Ordering::Relaxed) + 1;
        let slot = self.slot(batch);
        // SAFETY: the batch that was kept here is finished, so no thread reads the content; the latch keeps other sequencers away.
        let content = unsafe { &mut *slot.content.get() };
        content.client_batches.clear();
        let mut count = 0;
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(next) = queue.front() {
                let more = next.content().count;
                if count > 0 && count + more > self.batch_size {
                    break;
                }
                let client_batch = queue.pop_front().expect("it was looked at just now");
                content.client_batches.push(Member { client_batch, first: count, end: count + more });
                count += more;
            }
        }
        if count == 0 {
            return false;
        }
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        for member in &content.client_batches {
            self.number(&member.client_batch, batch, member.first);
        }
        slot.finished_before.store(self.finished(), Ordering::Relaxed);
        slot.closed_ns.store(self.time.now_ns(), Ordering::Relaxed);
        slot.cursor.store(batch << CURSOR_BITS, Ordering::Relaxed);
        // Release: pairs with the acquire in `next_chunk`: a thread that finds this count can no longer exchange the cursor of an earlier batch.
        slot.count.store(count, Ordering::Release);
        slot.unplanned.store(self.partitions, Ordering::Relaxed);
        slot.incomplete.store(count, Ordering::Relaxed);
        // Release: pairs with the acquire in `sequenced`.
        self.sequenced.store(batch, Ordering::Release);
        true
    }

    fn has_room(&self, waiting: usize, has_time: bool) -> bool {
        let under_way = self.sequenced.load(Ordering::Relaxed).saturating_sub(self.finished());
        let is_wanted = || under_way < MANY && waiting >= self.batch_size || has_time && self.is_all_claimed();
        under_way < ENOUGH || under_way < RING && is_wanted()
    }

    /// Whether some thread sees to each transaction of all batches that are closed.
    fn is_all_claimed(&self) -> bool {
        self.planned() == self.sequenced() && !self.has_chunk(u64::MAX)
    }

    /// Assigns the transactions of a client batch their log positions.
    fn number(&self, client_batch: &ClientBatch, batch: u64, first: usize) {
        let content = client_batch.content();
        client_batch.enter_log(batch, first);
        if content.has_everything {
            self.everything.store(batch, Ordering::Relaxed);
        }
    }

    /// The client batches of a batch.
    ///
    /// # Safety
    /// The caller plans the batch or executes a chunk of it, so it is not finished and its slot not reused.
    pub(super) unsafe fn client_batches(&self, batch: u64) -> &[Member] {
        // SAFETY: the caller says so.
        unsafe { &(&*self.slot(batch).content.get()).client_batches }
    }

    /// The client batches of which a chunk may have transactions.
    fn members<'c>(&'c self, chunk: &'c Chunk) -> &'c [Member] {
        // SAFETY: a batch is not finished before the end of its chunks.
        unsafe { self.client_batches(chunk.batch) }
    }

    /// Whether there is a batch to plan for a partition.
    pub(super) fn can_plan(&self, partition: &PartitionProgress) -> bool {
        partition.planned < self.sequenced()
    }

    /// Plans the next batch for a partition: has `plan` plan each client batch, of which the first transaction has this position in this batch.
    /// `false`: there is none.
    pub(super) fn plan_next(
        &self,
        partition: &mut PartitionProgress,
        mut plan: impl FnMut(LiveBatch<'_>, u64, usize),
    ) -> bool {
        if !self.can_plan(partition) {
            return false;
        }
        let batch = partition.planned + 1;
        // SAFETY: the batch is not planned before the end of this, and no transaction of it is executed before that.
        let members =
            unsafe { self.client_batches(batch).iter().map(|member| (member.client_batch.live(), member.first)) };
        members.for_each(|(client_batch, first)| plan(client_batch, batch, first));
        partition.planned = batch;
        self.end_planning(batch);
        true
    }

    /// A partition of the batch was planned.
    fn end_planning(&self, batch: u64) {
        // AcqRel: the last one hands on what all did: the one barrier of a batch (§3.2.4).
        if self.slot(batch).unplanned.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Release: pairs with the acquire in `planned`. All partitions of earlier batches were planned before.
            raise(&self.planned, batch, Ordering::AcqRel);
        }
    }

    /// Takes the next transactions to execute, of batches up to this one.
    pub(super) fn claim(&self, last: u64) -> Option<Chunk> {
        let (finished, planned) = (self.finished(), self.planned());
        (finished + 1..=planned.min(last)).find_map(|batch| {
            let slot = self.slot(batch);
            let mut cursor = slot.cursor.load(Ordering::Relaxed);
            loop {
                let chunk = slot.next_chunk(cursor, batch)?;
                let next = batch << CURSOR_BITS | chunk.end as u64;
                match slot.cursor.compare_exchange(cursor, next, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return Some(chunk),
                    Err(other) => cursor = other,
                }
            }
        })
    }

    /// Whether there is something to claim.
    pub(super) fn has_chunk(&self, last: u64) -> bool {
        let (finished, planned) = (self.finished(), self.planned());
        (finished + 1..=planned.min(last)).any(|batch| {
            let slot = self.slot(batch);
            slot.next_chunk(slot.cursor.load(Ordering::Relaxed), batch).is_some()
        })
    }

    /// Calls `visit` with each transaction of a chunk: its client batch, and its position there.
    pub(super) fn for_each(&self, chunk: &Chunk, mut visit: impl FnMut(&ClientBatch, usize, Timestamp)) {
        for Member { client_batch, first, end } in self.members(chunk) {
            for position in chunk.first.max(*first)..chunk.end.min(*end) {
                visit(client_batch, position - first, Timestamp::new(chunk.batch, position));
            }
        }
    }

    /// The transaction of a chunk at a position in the batch, and its timestamp.
    pub(super) fn transaction<'c>(&'c self, chunk: &'c Chunk, position: usize) -> (&'c Planned, Timestamp) {
        let mut members = self.members(chunk).iter();
        let member = members.find(|member| position < member.end).expect("the position is in the batch");
        (member.client_batch.planned(position - member.first), Timestamp::new(chunk.batch, position))
    }

    /// Calls `visit` with each client batch of a chunk, and its first entry there.
    pub(super) fn for_first(&self, chunk: &Chunk, visit: impl Fn(LiveBatch<'_>, usize)) {
        for Member { client_batch, first, end } in self.members(chunk) {
            let position = chunk.first.max(*first);
            if position < chunk.end.min(*end) {
                // SAFETY: a transaction of the chunk is under way until the chunk has ended.
                let live = unsafe { client_batch.live() };
                visit(live, live.content().firsts[position - first] as usize);
            }
        }
    }

    /// All transactions of a chunk were executed: wakes their clients, and advances the low watermark.
    pub(super) fn end_execution(&self, chunk: Chunk) {
        self.for_each(&chunk, |client_batch, position, timestamp| {
            let progress = client_batch.planned(position).progress(timestamp);
            assert!(progress == Progress::Complete, "each transaction was executed");
        });
        for Member { client_batch, first, end } in self.members(&chunk) {
            let done = chunk.end.min(*end).saturating_sub(chunk.first.max(*first));
            if done > 0 {
                // SAFETY: they were executed, and are in no other chunk.
                unsafe { client_batch.end(done) };
            }
        }
        // AcqRel: the last one hands on what all did.
        if self.slot(chunk.batch).incomplete.fetch_sub(chunk.len(), Ordering::AcqRel) == chunk.len() {
            self.advance();
        }
    }

    /// Moves the low watermark over all batches that are complete.
    fn advance(&self) {
        loop {
            // SeqCst: a thread that ends a batch, or moves the watermark, publishes that and then reads the other; of two threads one sees what both did.
            fence(Ordering::SeqCst);
            let next = self.finished() + 1;
            // A batch that is planned keeps its slot until it is finished, which it is not while the watermark is below it.
            if next > self.planned() || self.slot(next).incomplete.load(Ordering::Acquire) > 0 {
                return;
            }
            // AcqRel: hands on what all threads did that executed the batch. The second thread finds it moved, and continues.
            let _ = self.finished.compare_exchange(next - 1, next, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
