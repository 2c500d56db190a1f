//! What is known of a transaction before it runs: its log position, and the keys that it will write.
//!
//! A client puts its transactions into *client batches*. The sequencer puts those into batches, the threads of concurrency control fill in the
//! placeholders, and the threads of execution run the procedures. Everything that these threads write of a transaction lies in
//! its client batch, in words that one of them writes at a time.

mod live;
mod pool;
mod shared;

use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use polychron_base::{Error, clear_each};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{Mutex, fence_behind_exchange};

use super::entry::{Entry, Known, Want};
use super::parking::ThreadParker;
use super::timestamp::Timestamp;
use super::transaction::{BohmTransaction, Position};
use super::version::{Filling, Fresh, Version};

pub(super) use self::live::LiveBatch;
pub(super) use self::pool::ClientBatches;
pub(super) use self::shared::Shared;
pub(super) use super::attempt::Ran;

/// Transactions in one chunk of a client batch's memory; few where each of their words is followed.
const CHUNK: usize = if polychron_sync::MODELLED { 2 } else { 64 };

/// How far a transaction is (§3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Unprocessed,
    Executing,
    Complete,
}

/// A planned transaction. Its memory is reused by others, but never freed while the database is open; its state names the
/// timestamp, so that a thread that comes too late finds another one.
#[derive(Debug)]
pub(super) struct Planned {
    state: AtomicU64,
    /// How many bytes could not be had for a placeholder.
    pub(super) refused: AtomicUsize,
    /// Its procedure is to be planned again: it wanted to write what it had not planned.
    again: AtomicBool,
    /// The address of its client batch, in whose memory it lies.
    client_batch: NonZeroUsize,
    body: UnsafeCell<Body>,
}

/// The data that belong to the client, then to the sequencer, and then to the thread that executes the transaction.
#[derive(Debug)]
pub(super) struct Body {
    /// Its position in the client batch.
    position: u32,
    /// Its entries in the client batch.
    pub(super) first: u32,
    pub(super) end: u32,
    /// The keys that it names may not be all.
    pub(super) has_more: bool,
    /// It may write anything.
    pub(super) is_everything: bool,
    /// It names a key that is too long, and is refused for that.
    pub(super) is_too_long: bool,
    /// What it writes without having planned it.
    pub(super) late: Vec<Entry>,
    /// Of one that was handed back: what it waits for.
    pub(super) blocker: Option<Blocker>,
}

/// A transaction at a timestamp: one that another one waits for, or that is executed by another thread.
#[derive(Clone, Debug)]
pub(super) struct Blocker {
    /// The address of the transaction, in the memory of the client batch.
    planned: NonZeroUsize,
    client_batch: Arc<ClientBatch>,
    timestamp: Timestamp,
}

impl Blocker {
    pub(super) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// The transaction. Its client may have taken the client batch back and may add others to it, so the content is not looked at.
    pub(super) fn planned(&self) -> &Planned {
        // SAFETY: the transaction lies in a chunk of the client batch, which this keeps; chunks are neither moved nor freed before.
        unsafe { NonNull::with_exposed_provenance(self.planned).as_ref() }
    }

    /// Whether some thread executes the transaction.
    pub(super) fn is_executing(&self) -> bool {
        self.planned().progress(self.timestamp) == Progress::Executing
    }

    /// Whether it is a transaction of this client batch.
    pub(super) fn is_of(&self, client_batch: &ClientBatch) -> bool {
        std::ptr::eq(&raw const *self.client_batch, client_batch)
    }
}

/// A transaction that its holder executes. No other thread does, or looks at its body, until it is handed back or complete.
#[derive(Debug)]
pub(super) struct Executing<'p> {
    planned: &'p Planned,
    timestamp: Timestamp,
}

impl<'p> Executing<'p> {
    #[inline]
    pub(super) fn planned(&self) -> &'p Planned {
        self.planned
    }

    #[inline]
    pub(super) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// The data of the transaction.
    #[inline]
    pub(super) fn body(&self) -> &Body {
        // SAFETY: the holder alone looks at it.
        unsafe { &*self.planned.body.get() }
    }

    #[inline]
    pub(super) fn body_mut(&mut self) -> &mut Body {
        // SAFETY: as above.
        unsafe { &mut *self.planned.body.get() }
    }

    /// Its client batch, which its client does not take back before this is complete.
    #[inline]
    pub(super) fn client_batch(&self) -> LiveBatch<'_> {
        LiveBatch(self.planned.client_batch())
    }

    /// The position of its procedure in the job.
    #[inline]
    pub(super) fn procedure(&self) -> usize {
        self.client_batch().content().procedures[self.body().position as usize] as usize
    }

    /// An entry that it has added.
    #[inline]
    fn late(&self, position: usize) -> Known<'_> {
        // SAFETY: it is under way.
        unsafe { Known::new(&self.body().late[position]) }
    }

    /// An entry of it: a planned one, or one that it has added.
    #[inline]
    pub(super) fn entry(&self, position: Position) -> Known<'_> {
        match position.late() {
            None => self.client_batch().entry(position.0 as usize),
            Some(late) => self.late(late),
        }
    }

    /// The version of an entry that it writes.
    #[inline]
    pub(super) fn version(&self, position: Position) -> Option<Version<'p>> {
        let entry = self.entry(position);
        let version = entry.version().filter(|_| entry.want != Want::Read);
        // SAFETY: a version that a transaction writes stays until its batch is finished, or its entry no longer names it.
        version.map(|version| unsafe { version.get() })
    }

    /// The version below that of an entry that it writes.
    #[inline]
    pub(super) fn below(&self, position: Position) -> Option<Version<'p>> {
        let version = self.version(position).filter(|_| self.entry(position).want != Want::Guessed)?;
        // SAFETY: it was superseded in this batch or a later one, so it stays, too.
        version.below().map(|below| unsafe { below.get() })
    }

    /// The version of an entry, to be filled, and the entry. `None`: there is none, or it was finished.
    #[inline]
    pub(super) fn filling(&mut self, position: Position) -> Option<(Filling<'_>, Known<'_>)> {
        let this: &Self = self;
        // SAFETY: the answer borrows the transaction, as everything does that looks at the rows it has put.
        let filling = unsafe { this.version(position)?.fill(this) };
        Some((filling?, this.entry(position)))
    }

    /// Leaves it to be executed later, by any thread.
    pub(super) fn hand_back(self) {
        assert!(
            !self.client_batch().content().interactive,
            "executors do not execute a transaction that its client drives"
        );
        // Release: pairs with the acquire in `claim`.
        self.planned.state.store(Planned::word(self.timestamp, Progress::Unprocessed), Ordering::Release);
    }

    /// It was executed. `again`: its procedure is to be planned again.
    #[inline]
    pub(super) fn complete(self, again: bool) {
        // Relaxed: handed on with the state.
        self.planned.again.store(again, Ordering::Relaxed);
        // Release: pairs with the acquire in `progress`.
        self.planned.state.store(Planned::word(self.timestamp, Progress::Complete), Ordering::Release);
    }
}

impl Planned {
    fn new(client_batch: NonNull<ClientBatch>, position: u32) -> Self {
        let body = Body {
            position,
            first: 0,
            end: 0,
            has_more: false,
            is_everything: false,
            is_too_long: false,
            late: Vec::new(),
            blocker: None,
        };
        let (state, client_batch) = (AtomicU64::new(0), client_batch.expose_provenance());
        let (refused, again) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { state, refused, again, client_batch, body: UnsafeCell::new(body) }
    }

    /// The client batch in whose memory it lies.
    #[inline]
    fn client_batch(&self) -> &ClientBatch {
        // SAFETY: transactions lie in client batches, which stay for longer.
        unsafe { NonNull::with_exposed_provenance(self.client_batch).as_ref() }
    }

    /// One for models, alone in its client batch.
    #[cfg(all(test, loom))]
    pub(super) fn alone(timestamp: Timestamp) -> Self {
        let client_batch = Arc::into_raw(Arc::new(ClientBatch::new())).cast_mut();
        let planned = Self::new(NonNull::new(client_batch).expect("an address"), 0);
        planned.enter_log(timestamp, false);
        planned
    }

    #[inline]
    fn word(timestamp: Timestamp, progress: Progress) -> u64 {
        timestamp.bits() << 2 | progress as u64
    }

    /// Lets the transaction enter the log again, for models.
    ///
    /// # Safety
    /// No thread executes it, or looks at its body.
    #[cfg(all(test, loom))]
    pub(super) unsafe fn set_timestamp(&self, timestamp: Timestamp) {
        self.enter_log(timestamp, false);
    }

    /// Gives the transaction its log position. No thread executes it, or looks at its body.
    fn enter_log(&self, timestamp: Timestamp, interactive: bool) {
        let progress = if interactive { Progress::Executing } else { Progress::Unprocessed };
        self.state.store(Self::word(timestamp, progress), Ordering::Release);
    }

    /// How far the transaction of this timestamp is. One that is no longer here is complete.
    #[inline]
    pub(super) fn progress(&self, timestamp: Timestamp) -> Progress {
        // Acquire: pairs with the release in `complete`.
        let state = self.state.load(Ordering::Acquire);
        if state == Self::word(timestamp, Progress::Unprocessed) {
            Progress::Unprocessed
        } else if state == Self::word(timestamp, Progress::Executing) {
            Progress::Executing
        } else {
            Progress::Complete
        }
    }

    /// Whether its procedure is to be planned again, of one that is complete.
    #[inline]
    pub(super) fn is_again(&self) -> bool {
        // Relaxed: a thread that found it complete has acquired it.
        self.again.load(Ordering::Relaxed)
    }

    /// The transaction, to be waited for.
    pub(super) fn blocker(&self, timestamp: Timestamp) -> Blocker {
        let planned = NonZeroUsize::new(std::ptr::from_ref(self).expose_provenance()).expect("nothing lies at zero");
        let client_batch: *const ClientBatch = std::ptr::with_exposed_provenance(self.client_batch.get());
        // SAFETY: client batches lie in `Arc`s, from one of which the address came, and this one stays as long as the transaction.
        let client_batch = unsafe {
            Arc::increment_strong_count(client_batch);
            Arc::from_raw(client_batch)
        };
        Blocker { planned, client_batch, timestamp }
    }

    /// A version that it will fill, with room for a row of so many words.
    pub(super) fn placeholder<'g>(
        &self,
        timestamp: Timestamp,
        words: usize,
        guard: &'g Guard<'_>,
    ) -> Result<Fresh<'g>, Error> {
        Fresh::allocate(timestamp, self, words, guard)
    }

    /// Makes the calling thread the one that executes it. `None`: another one does or did.
    #[inline]
    pub(super) fn claim(&self, timestamp: Timestamp) -> Option<Executing<'_>> {
        let (from, to) = (Self::word(timestamp, Progress::Unprocessed), Self::word(timestamp, Progress::Executing));
        // Acquire: pairs with the release in `hand_back`, so that what an earlier attempt left is there.
        let exchanged = self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        exchanged.is_ok().then_some(Executing { planned: self, timestamp })
    }
}

// SAFETY: the body is one thread's at a time, as [`Executing`], [`HandedIn`] and [`OwnBatch`] say; the rest is atomic.
unsafe impl Sync for Planned {}

/// Runs a procedure of a client: the job is the client's, the number is that of its procedure.
pub(super) type RunProcedure = unsafe fn(*const (), usize, &mut BohmTransaction<'_>) -> Ran;

/// Transactions that are handed in together.
#[derive(Debug)]
pub(super) struct ClientBatch {
    content: UnsafeCell<Content>,
    /// Transactions that were not executed yet.
    remaining: AtomicUsize,
    /// How many [`Shared`] there are.
    shares: AtomicUsize,
    /// Transactions of which all that they have read is known to be durable, in a log that has stopped.
    certain: AtomicUsize,
    /// Its client sleeps until the client batch is back, or is about to.
    is_awaited: AtomicBool,
    client: Mutex<Option<Arc<ThreadParker>>>,
}

/// What belongs to the client, and is only read, but for the entries, while the client batch is handed in.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) count: usize,
    /// The memory of the transactions.
    chunks: Vec<Box<[Planned]>>,
    pub(super) entries: Vec<Entry>,
    /// For each thread of concurrency control the entries that belong to it, where they are sorted out beforehand.
    pub(super) sorted: Vec<Vec<u32>>,
    /// Its address.
    pub(super) job: usize,
    pub(super) run: RunProcedure,
    /// For each transaction the client's procedure.
    pub(super) procedures: Vec<u32>,
    /// For each transaction that a procedure of the client runs in, how often that was planned before.
    pub(super) attempts: Vec<u32>,
    /// For each transaction its first entry.
    pub(super) firsts: Vec<u32>,
    /// Some transaction may write anything.
    pub(super) has_everything: bool,
    /// The client runs the one transaction itself.
    pub(super) interactive: bool,
    /// Set by the sequencer, before which it is zero.
    batch: AtomicU64,
    first_position: AtomicUsize,
}

// SAFETY: the content is the client's alone, or else only read; entries are written by the thread of concurrency control that
// their key belongs to, and then by the thread that executes their transaction.
unsafe impl Sync for ClientBatch {}

fn no_procedure(_: *const (), _: usize, _: &mut BohmTransaction<'_>) -> Ran {
    unreachable!("a client batch is handed in with its procedures")
}

impl ClientBatch {
    fn new() -> Self {
        let content = Content {
            count: 0,
            chunks: Vec::new(),
            entries: Vec::new(),
            sorted: Vec::new(),
            job: 0,
            run: no_procedure,
            procedures: Vec::new(),
            attempts: Vec::new(),
            firsts: Vec::new(),
            has_everything: false,
            interactive: false,
            batch: AtomicU64::new(0),
            first_position: AtomicUsize::new(0),
        };
        Self {
            content: UnsafeCell::new(content),
            remaining: AtomicUsize::new(0),
            shares: AtomicUsize::new(0),
            certain: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            client: Mutex::default(),
        }
    }

    /// So many of its transactions were executed.
    ///
    /// # Safety
    /// That is so, and this is called once of each. The caller does not look at them again.
    #[inline]
    pub(super) unsafe fn end(&self, done: usize) {
        // AcqRel: pairs with the acquire of the client, which finds the answers, and passes on what others did.
        if self.remaining.fetch_sub(done, Ordering::AcqRel) == done {
            // Pairs with the fence in `await_with`: the client sees the client batch back, or is seen waiting.
            fence_behind_exchange();
            if self.is_awaited.load(Ordering::Relaxed) {
                self.call_client();
            }
        }
    }

    /// Whether all transactions were executed.
    #[inline]
    pub(super) fn is_executed(&self) -> bool {
        // Acquire: pairs with the release in `end`.
        self.remaining.load(Ordering::Acquire) == 0
    }

    /// Assigns the transactions their log positions, once: before, no other thread finds them.
    pub(super) fn enter_log(&self, batch: u64, first: usize) {
        let content = self.content();
        let before = content.batch.swap(batch, Ordering::Relaxed);
        assert!(before == 0, "a client batch is in one batch");
        content.first_position.store(first, Ordering::Relaxed);
        for position in 0..content.count {
            self.planned(position).enter_log(Timestamp::new(batch, first + position), content.interactive);
        }
    }

    #[cold]
    fn call_client(&self) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.iter().for_each(|client| client.wake());
    }

    /// Lets the client wait by `sleep`, which is woken when the client batch is back.
    pub(super) fn await_with(&self, parker: &Arc<ThreadParker>, sleep: impl FnOnce()) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(parker));
        self.is_awaited.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `end`.
        fence(Ordering::SeqCst);
        sleep();
        self.is_awaited.store(false, Ordering::Relaxed);
    }

    /// The content, to be read.
    #[inline]
    pub(super) fn content(&self) -> &Content {
        // SAFETY: it is written only by its client while it is not handed in.
        unsafe { &*self.content.get() }
    }

    /// The batch in which it is, once that is closed.
    #[inline]
    pub(super) fn batch(&self) -> Option<u64> {
        // Relaxed: the thread that waits for it to be planned acquires that.
        Some(self.content().batch.load(Ordering::Relaxed)).filter(|&batch| batch > 0)
    }

    /// The timestamp of the transaction at a position, once its batch is closed.
    #[inline]
    pub(super) fn timestamp(&self, position: usize) -> Timestamp {
        let batch = self.batch().expect("its batch is closed");
        Timestamp::new(batch, self.content().first_position.load(Ordering::Relaxed) + position)
    }

    /// The transaction at a position.
    #[inline]
    pub(super) fn planned(&self, position: usize) -> &Planned {
        &self.content().chunks[position / CHUNK][position % CHUNK]
    }
}

/// A client batch that its client alone has: it is not handed in.
#[derive(Debug)]
pub(super) struct OwnBatch(Arc<ClientBatch>);

/// A client batch that was handed in, for its client.
#[derive(Debug)]
pub(super) struct HandedIn(Arc<ClientBatch>);

impl OwnBatch {
    #[inline]
    pub(super) fn content(&self) -> &Content {
        self.0.content()
    }

    #[inline]
    pub(super) fn content_mut(&mut self) -> &mut Content {
        // SAFETY: no other thread reads a client batch that is not handed in.
        unsafe { &mut *self.0.content.get() }
    }

    /// What is known of the transaction at a position.
    #[inline]
    pub(super) fn body_mut(&mut self, position: usize) -> &mut Body {
        // SAFETY: as above.
        unsafe { &mut *self.0.planned(position).body.get() }
    }

    /// The client begins anew.
    pub(super) fn clear(&mut self) {
        let content = self.content_mut();
        clear_each!(content.entries, content.procedures, content.attempts, content.firsts);
        content.sorted.iter_mut().for_each(Vec::clear);
        content.count = 0;
        (content.has_everything, content.interactive) = (false, false);
    }

    /// Adds a transaction, whose entries begin here.
    pub(super) fn add(&mut self, procedure: usize) -> u32 {
        let client_batch = NonNull::new(Arc::as_ptr(&self.0).cast_mut()).expect("nothing lies at zero");
        let content = self.content_mut();
        let (position, first) = (content.count, content.entries.len() as u32);
        content.count += 1;
        content.procedures.push(procedure as u32);
        content.firsts.push(first);
        if position / CHUNK == content.chunks.len() {
            content
                .chunks
                .push((0..CHUNK).map(|offset| Planned::new(client_batch, (position + offset) as u32)).collect());
        }
        let body = self.body_mut(position);
        body.late.clear();
        (body.first, body.end) = (first, first);
        (body.has_more, body.is_everything, body.is_too_long) = (false, false, false);
        self.0.planned(position).refused.store(0, Ordering::Relaxed);
        position as u32
    }

    /// The client batch, for the pipeline and for the client, with all of its transactions to be executed.
    pub(super) fn hand_over(self) -> (Arc<ClientBatch>, HandedIn) {
        self.0.remaining.store(self.content().count, Ordering::Relaxed);
        self.0.certain.store(0, Ordering::Relaxed);
        self.content().batch.store(0, Ordering::Relaxed);
        (Arc::clone(&self.0), HandedIn(self.0))
    }

    /// A transaction that is not handed in, for tests.
    #[cfg(test)]
    pub(super) fn planned(&self, position: usize) -> &Planned {
        self.0.planned(position)
    }
}

impl Deref for HandedIn {
    type Target = ClientBatch;

    #[inline]
    fn deref(&self) -> &ClientBatch {
        &self.0
    }
}

impl HandedIn {
    /// The client batch for the client alone, if all of its transactions were executed, and no other thread shares it.
    pub(super) fn take_back(self) -> Result<OwnBatch, Self> {
        // Acquire: pairs with the release of the thread that counted last, and of those that dropped what they shared.
        let is_back = self.is_executed() && self.0.shares.load(Ordering::Acquire) == 0;
        if is_back { Ok(OwnBatch(self.0)) } else { Err(self) }
    }

    /// The transaction at a position, if it was executed.
    #[inline]
    pub(super) fn complete(&self, position: usize) -> Option<&Planned> {
        let planned = self.planned(position);
        (planned.progress(self.timestamp(position)) == Progress::Complete).then_some(planned)
    }

    /// What is known of the transaction at a position, which was executed.
    #[inline]
    fn executed(&self, position: usize) -> &Body {
        let planned = self.complete(position).expect("it was executed");
        // SAFETY: nothing executes it, and its client fills it anew only after it took this back.
        unsafe { &*planned.body.get() }
    }

    /// The entries of a transaction that was executed.
    pub(super) fn entries(&self, position: usize) -> impl Iterator<Item = Known<'_>> {
        let body = self.executed(position);
        let planned = &self.content().entries[body.first as usize..body.end as usize];
        // SAFETY: the stores stay until this is taken back, as the client has promised when it handed the client batch in.
        planned.iter().chain(&body.late).map(|entry| unsafe { Known::new(entry) })
    }

    /// The only transaction, which the client executes without having claimed it, and the client batch. `None`: it was executed.
    pub(super) fn drive(&mut self) -> Option<(Executing<'_>, &ClientBatch)> {
        let (planned, timestamp) = (self.0.planned(0), self.timestamp(0));
        let is_driven = self.content().interactive && planned.progress(timestamp) == Progress::Executing;
        // No executor claims it, and what this answered before is dropped.
        is_driven.then(|| (Executing { planned, timestamp }, &*self.0))
    }
}
