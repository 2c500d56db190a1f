//! What is known of a transaction before it runs: its place in the log, and the keys that it will write.
//!
//! A client puts its transactions into *client batches*. The sequencer puts those into batches, the threads of concurrency control fill in the
//! placeholders, and the threads of execution run the procedures. Everything that these threads write of a transaction lies in
//! its client batch, in words that one of them writes at a time.

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use polychron_base::key::{EncodedKey, Key16};
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{Mutex, fence_behind_exchange};

use super::leftovers::Blocker;
use super::sleeping::Sleeper;
use super::table::BohmStore;
use super::timestamp::Timestamp;
use super::transaction::BohmTransaction;
use super::version::{Chain, Version};

/// Transactions in one piece of a client batch's memory; few where each of their words is followed.
const PIECE: usize = if polychron_sync::MODELLED { 2 } else { 64 };

/// Entries between the one that is used and the one whose row is fetched, and again as many to the one whose version is.
pub(super) const AHEAD: usize = 4;

/// What a key is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// To be read; concurrency control finds the version (§3.2.3).
    Read,
    /// To be written; concurrency control puts a placeholder.
    Write,
    /// The same, without entries of secondary indexes.
    Update,
    /// Rows may be written whose keys begin with this one; which ones is known only when the transaction runs.
    Prefix,
    /// The same, without entries of secondary indexes.
    PrefixUpdate,
    /// Some entries of a secondary index may be written: which ones is known only when the row is.
    Entries,
    /// Anything may be written.
    Everything,
    /// To be written although it was not planned, by a transaction that all later ones wait for.
    Late,
    /// As far as known, to be written in the next attempt: this one only finds out what there is to plan.
    Guessed,
}

/// What the transaction has put into a version so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Nothing: what is below passes through.
    Nothing,
    Row,
    Deletion,
}

/// A key that is too long to be carried in registers.
type LongKey = Arc<[u8]>;

/// A key of a transaction. While its client batch is handed in, any thread may look at it, and the cells belong to one at a time.
#[derive(Debug)]
pub(super) struct Entry {
    /// The client's guard keeps it until the transaction was executed. It is the pointer of the store's `Arc`, so that the store can be kept by it.
    pub(super) store: *const BohmStore,
    pub(super) hash: u64,
    key: Key16,
    long: Option<LongKey>,
    /// The placeholder; of a key that is read the version to read, if there is one.
    pub(super) version: Cell<Option<Version>>,
    /// Found ahead of its use by who plans.
    pub(super) chain: Cell<Option<Chain>>,
    pub(super) want: Want,
    pub(super) put: Cell<Put>,
    /// Which thread of concurrency control the key belongs to.
    pub(super) partition: u16,
    /// The transaction in the client batch.
    pub(super) owner: u32,
}

/// A key out of an [`Entry`] or for one.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyKey<'k> {
    Short(Key16),
    Long(&'k [u8]),
}

impl EncodedKey for AnyKey<'_> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Short(key) => key.len(),
            Self::Long(key) => <[u8]>::len(key),
        }
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        match self {
            Self::Short(key) => key.slice(index),
            Self::Long(key) => key.slice(index),
        }
    }
}

impl Entry {
    pub(super) fn new<K: EncodedKey>(store: *const BohmStore, key: K, hash: u64, want: Want, owner: u32) -> Self {
        let short = Key16::from_key(key);
        let long = short.is_none().then(|| {
            let mut bytes = vec![0; key.len()];
            key.write_to(&mut bytes);
            bytes.into()
        });
        let key = short.unwrap_or(Key16::new(0, 0));
        let (version, chain, put) = (Cell::new(None), Cell::new(None), Cell::new(Put::Nothing));
        Self { store, hash, key, long, version, chain, want, put, partition: 0, owner }
    }

    #[inline]
    pub(super) fn key(&self) -> AnyKey<'_> {
        match &self.long {
            None => AnyKey::Short(self.key),
            Some(long) => AnyKey::Long(long),
        }
    }

    /// The key as one that outlives the entry: short, or long.
    pub(super) fn kept_key(&self) -> (Key16, Option<LongKey>) {
        (self.key, self.long.clone())
    }

    /// Whether it stands for this key.
    #[inline]
    pub(super) fn is_of<K: EncodedKey>(&self, store: *const BohmStore, hash: u64, key: K) -> bool {
        self.hash == hash
            && self.store == store
            && (self.is_written() || self.want == Want::Read)
            && same(self.key(), key)
    }

    /// Whether the transaction has a version of its own there.
    #[inline]
    pub(super) fn is_written(&self) -> bool {
        matches!(self.want, Want::Write | Want::Update | Want::Late | Want::Guessed)
    }
}

#[inline]
fn same<L: EncodedKey, R: EncodedKey>(left: L, right: R) -> bool {
    let len = left.len();
    len == right.len() && (0..len.div_ceil(8)).all(|index| left.slice(index) == right.slice(index))
}

/// How far a transaction is (§3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Unprocessed,
    Executing,
    Complete,
}

/// A planned transaction. Its memory is used again by others, but never given back while the database is open; its state names the
/// timestamp, so that who comes too late finds another one.
#[derive(Debug)]
pub(super) struct Planned {
    state: AtomicU64,
    /// How many bytes could not be had for a placeholder.
    pub(super) refused: AtomicUsize,
    body: UnsafeCell<Body>,
}

/// What belongs to the client, then to the sequencer, and then to who executes the transaction.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) client_batch: NonNull<ClientBatch>,
    /// The place in the client batch.
    pub(super) place: u32,
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
    late: UnsafeCell<Vec<Entry>>,
    /// Its procedure is to be planned again: it wanted to write what it had not planned.
    pub(super) again: Cell<bool>,
    /// Of one that was handed back: what it waits for.
    pub(super) blocker: Cell<Option<Blocker>>,
}

impl Body {
    /// What it writes without having planned it.
    ///
    /// # Safety
    /// The caller is the thread whose the transaction is now, and holds one such reference at a time.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the state says whose it is")]
    pub(super) unsafe fn late(&self) -> &mut Vec<Entry> {
        // SAFETY: the caller says so.
        unsafe { &mut *self.late.get() }
    }
}

impl Planned {
    pub(super) fn new(client_batch: NonNull<ClientBatch>, place: u32) -> Self {
        let body = Body {
            client_batch,
            place,
            first: 0,
            end: 0,
            has_more: false,
            is_everything: false,
            is_too_long: false,
            late: UnsafeCell::default(),
            again: Cell::new(false),
            blocker: Cell::new(None),
        };
        Self { state: AtomicU64::new(0), refused: AtomicUsize::new(0), body: UnsafeCell::new(body) }
    }

    #[inline]
    fn word(timestamp: Timestamp, progress: Progress) -> u64 {
        timestamp.bits() << 2 | progress as u64
    }

    /// Gives the transaction its place in the log.
    pub(super) fn set_timestamp(&self, timestamp: Timestamp, interactive: bool) {
        let progress = if interactive { Progress::Executing } else { Progress::Unprocessed };
        self.state.store(Self::word(timestamp, progress), Ordering::Release);
    }

    /// How far the transaction of this timestamp is. One that is not here any more is complete.
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

    /// Makes the calling thread the one that executes it. `false`: another one does or did.
    #[inline]
    pub(super) fn claim(&self, timestamp: Timestamp) -> bool {
        let (from, to) = (Self::word(timestamp, Progress::Unprocessed), Self::word(timestamp, Progress::Executing));
        // Acquire: pairs with the release in `hand_back`, so that what an earlier attempt left is there.
        self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Leaves it to be executed later, by whoever comes.
    pub(super) fn hand_back(&self, timestamp: Timestamp) {
        // Release: pairs with the acquire in `claim`.
        self.state.store(Self::word(timestamp, Progress::Unprocessed), Ordering::Release);
    }

    /// It was executed.
    #[inline]
    pub(super) fn complete(&self, timestamp: Timestamp) {
        // Release: pairs with the acquire in `progress`.
        self.state.store(Self::word(timestamp, Progress::Complete), Ordering::Release);
    }

    /// What only one thread looks at.
    ///
    /// # Safety
    /// The caller is that thread: the client before it hands the client batch in and after it came back, or who claimed the transaction.
    #[inline]
    pub(super) unsafe fn body(&self) -> &Body {
        // SAFETY: the caller says so; it is changed by the client alone.
        unsafe { &*self.body.get() }
    }

    /// The same for the client that fills the client batch.
    ///
    /// # Safety
    /// The caller is that client, and holds no other reference to the body.
    #[allow(clippy::mut_from_ref, reason = "the client batch goes from executor to executor")]
    pub(super) unsafe fn body_mut(&self) -> &mut Body {
        // SAFETY: the caller says so.
        unsafe { &mut *self.body.get() }
    }
}

// SAFETY: the body is one thread's at a time, as `body` says; the rest is atomic.
unsafe impl Sync for Planned {}
// SAFETY: its pointers lead to what the client's guard and the database keep.
unsafe impl Send for Planned {}

/// How a run of a procedure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It is content, and has left its answer.
    Commit,
    /// It failed, and has left the error.
    RollBack,
    /// It passed a conflict on.
    Conflict,
}

/// Runs a procedure of a client: the job is the client's, the number is that of its procedure.
pub(super) type RunProcedure = unsafe fn(*const (), usize, &mut BohmTransaction<'_>) -> Ran;

/// Transactions that are handed in together.
#[derive(Debug)]
pub(super) struct ClientBatch {
    pieces: UnsafeCell<Vec<Box<[Planned]>>>,
    content: UnsafeCell<Content>,
    /// Transactions that were not executed yet.
    pub(super) remaining: AtomicUsize,
    /// Its client sleeps until the client batch is back, or is about to.
    is_awaited: AtomicBool,
    client: Mutex<Option<Arc<Sleeper>>>,
}

/// What belongs to the client, and is only read, but for the entries, while the client batch is handed in.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) count: usize,
    pub(super) entries: UnsafeCell<Vec<Entry>>,
    /// For each thread of concurrency control the entries that belong to it, where they are sorted out beforehand.
    pub(super) sorted: Vec<Vec<u32>>,
    pub(super) job: *const (),
    pub(super) run: RunProcedure,
    /// For each transaction the client's procedure.
    pub(super) procedures: Vec<u32>,
    /// Some transaction may write anything.
    pub(super) has_everything: bool,
    /// The client runs the one transaction itself.
    pub(super) interactive: bool,
    /// Set by the sequencer.
    pub(super) batch: AtomicU64,
    pub(super) first_place: AtomicUsize,
}

// SAFETY: the content is the client's alone, or else only read; entries are written by the thread of concurrency control that
// their key belongs to, and then by who executes their transaction.
unsafe impl Sync for ClientBatch {}
// SAFETY: as above; its pointers lead to what the client keeps until the client batch is back.
unsafe impl Send for ClientBatch {}

unsafe fn no_procedure(_: *const (), _: usize, _: &mut BohmTransaction<'_>) -> Ran {
    unreachable!("a client batch is handed in with its procedures")
}

impl ClientBatch {
    fn new() -> Self {
        let content = Content {
            count: 0,
            entries: UnsafeCell::default(),
            sorted: Vec::new(),
            job: std::ptr::null(),
            run: no_procedure,
            procedures: Vec::new(),
            has_everything: false,
            interactive: false,
            batch: AtomicU64::new(0),
            first_place: AtomicUsize::new(0),
        };
        Self {
            pieces: UnsafeCell::default(),
            content: UnsafeCell::new(content),
            remaining: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            client: Mutex::default(),
        }
    }

    /// So many of its transactions were executed.
    #[inline]
    pub(super) fn end(&self, done: usize) {
        // AcqRel: pairs with the acquire of the client, who finds the answers, and hands on what others did.
        if self.remaining.fetch_sub(done, Ordering::AcqRel) == done {
            // Pairs with the fence in `await_with`: the client sees the client batch back, or is seen waiting.
            fence_behind_exchange();
            if self.is_awaited.load(Ordering::Relaxed) {
                self.call_client();
            }
        }
    }

    #[cold]
    fn call_client(&self) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.iter().for_each(|client| client.wake());
    }

    /// Lets the client wait by `sleep`, which is woken when the client batch is back.
    pub(super) fn await_with(&self, sleeper: &Arc<Sleeper>, sleep: impl FnOnce()) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(sleeper));
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

    /// The content, to be written.
    ///
    /// # Safety
    /// The caller is the client batch's client, the client batch is not handed in, and the caller holds one such reference at a time.
    #[allow(clippy::mut_from_ref, reason = "the client batch goes from executor to executor")]
    pub(super) unsafe fn content_mut(&self) -> &mut Content {
        // SAFETY: the caller says so.
        unsafe { &mut *self.content.get() }
    }

    /// The transaction at a place.
    #[inline]
    pub(super) fn planned(&self, place: usize) -> &Planned {
        // SAFETY: pieces are added only by the client while the client batch is not handed in.
        unsafe { &(&*self.pieces.get())[place / PIECE][place % PIECE] }
    }

    /// The entry at a position. Its cells are the caller's while the entry belongs to the calling thread.
    #[inline]
    pub(super) fn entry(&self, position: usize) -> &Entry {
        let entries = self.entries();
        debug_assert!(position < entries.len());
        // SAFETY: positions come from the client batch itself.
        unsafe { entries.get_unchecked(position) }
    }

    /// The entries, which only the client adds or changes, while the client batch is not handed in.
    #[inline]
    fn entries(&self) -> &[Entry] {
        // SAFETY: the client holds no other reference while it looks here.
        unsafe { &*self.content().entries.get() }
    }

    /// Starts fetching what entries lead to that will be used soon, whoever executes their transactions.
    #[inline]
    pub(super) fn fetch_behind(&self, position: usize) {
        self.fetch_version(position + 2 * AHEAD);
        self.fetch_row(position + AHEAD);
    }

    /// Starts fetching what the first of some entries lead to.
    pub(super) fn fetch_first(&self, position: usize) {
        (position..position + 2 * AHEAD).for_each(|position| self.fetch_version(position));
        (position..position + AHEAD).for_each(|position| self.fetch_row(position));
    }

    /// The version of an entry that was planned, and whether its transaction fills it. Such cells stay as they were planned.
    #[inline]
    fn lead(&self, position: usize) -> Option<(&Entry, Version, bool)> {
        let entry = self.entries().get(position)?;
        match entry.want {
            Want::Read => Some((entry, entry.version.get()?, false)),
            Want::Write | Want::Update => Some((entry, entry.version.get()?, true)),
            _ => None,
        }
    }

    #[inline]
    fn fetch_version(&self, position: usize) {
        if let Some((_, version, _)) = self.lead(position) {
            version.prefetch();
        }
    }

    /// Starts fetching the row that will be read, and where one will be written that place too. The version that is read may be gone by now,
    /// when a late write took its place.
    #[inline]
    fn fetch_row(&self, position: usize) {
        let Some((entry, version, is_placeholder)) = self.lead(position) else { return };
        // SAFETY: the client keeps the store until the transaction was executed.
        let words = unsafe { (*entry.store).row_words };
        version.prefetch_row(words);
        if is_placeholder && let Some(below) = version.previous() {
            below.prefetch();
            below.prefetch_row(words);
        }
    }

    /// How many entries there are.
    #[inline]
    pub(super) fn entry_count(&self) -> usize {
        self.entries().len()
    }

    /// The client begins anew.
    ///
    /// # Safety
    /// As for [`ClientBatch::content_mut`].
    pub(super) unsafe fn clear(&self) {
        // SAFETY: the caller is the client.
        let content = unsafe { self.content_mut() };
        content.entries.get_mut().clear();
        content.sorted.iter_mut().for_each(Vec::clear);
        content.procedures.clear();
        content.count = 0;
        (content.has_everything, content.interactive) = (false, false);
    }

    /// Adds a transaction, whose entries begin here.
    ///
    /// # Safety
    /// As for [`ClientBatch::content_mut`].
    pub(super) unsafe fn add(&self, procedure: usize) -> u32 {
        // SAFETY: the caller is the client.
        let (content, pieces) = unsafe { (self.content_mut(), &mut *self.pieces.get()) };
        let place = content.count;
        if place / PIECE == pieces.len() {
            let client_batch = NonNull::from(self);
            pieces.push((0..PIECE).map(|offset| Planned::new(client_batch, (place + offset) as u32)).collect());
        }
        content.count += 1;
        content.procedures.push(procedure as u32);
        let first = content.entries.get_mut().len() as u32;
        // SAFETY: as above.
        let body = unsafe { self.planned(place).body_mut() };
        body.late.get_mut().clear();
        (body.first, body.end) = (first, first);
        (body.has_more, body.is_everything, body.is_too_long) = (false, false, false);
        body.again.set(false);
        self.planned(place).refused.store(0, Ordering::Relaxed);
        place as u32
    }
}

/// Client batches that nobody uses. None is given back while the database is open: a version may still name a transaction of long ago.
#[derive(Debug, Default)]
pub(super) struct ClientBatches {
    idle: Mutex<Vec<Arc<ClientBatch>>>,
    /// Those whose clients have their answers already, while some thread has not told so of the last transactions.
    lingering: Mutex<Vec<Arc<ClientBatch>>>,
}

impl ClientBatches {
    pub(super) fn take(&self) -> Arc<ClientBatch> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.is_empty() {
            let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
            // Acquire: pairs with the release of who was the last to tell.
            idle.extend(lingering.extract_if(.., |client_batch| client_batch.remaining.load(Ordering::Acquire) == 0));
        }
        idle.pop().unwrap_or_else(|| Arc::new(ClientBatch::new()))
    }

    pub(super) fn put_back(&self, client_batch: Arc<ClientBatch>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client_batch);
    }

    /// Puts back one that threads still count in, though all its transactions were executed.
    pub(super) fn put_back_later(&self, client_batch: Arc<ClientBatch>) {
        self.lingering.lock().unwrap_or_else(PoisonError::into_inner).push(client_batch);
    }
}
