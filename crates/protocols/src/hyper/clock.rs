//! The counter of all times, which timestamps are still read, and the list of what has committed.
//!
//! Start times and commit times are values of one counter, ids of transactions lie above all of them. A commit time is drawn, and becomes
//! the latest, under the lock of the list; so a thread that reads the counter finds every commit up to there whole.

#[cfg(all(test, loom))]
mod model;

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use polychron_base::room::{KeptList, ROOM};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo;
use polychron_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{CachePadded, Mutex, MutexGuard, fence_behind_exchange, publish, this_thread};

use super::steps::{Point, Step};
use super::undo::{Buffer, FIRST_ID, Kept, Undo, Writing};

/// Bits of a transaction's id that count the worker's transactions; above them stands its slot.
const GENERATION_BITS: u32 = 48;

/// Commits that most transactions live through at most.
const LATELY: u64 = 256;

/// A worker's word: the timestamp that it reads, and what is said of it by these bits. Without any it may read that one or a later one.
const TIMESTAMP_SHIFT: u32 = 2;
/// It will read no other one.
const SINGLE: u64 = 1;
/// It reads that one, and will compare what was committed since with what it has asked. It may move to a later one.
const CHOSEN: u64 = 2;

/// The word of a slot that reads nothing.
const IDLE: u64 = u64::MAX;

/// A transaction that has committed, or a before-image of one that was moved out of its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committed {
    pub(super) at: u64,
    pub(super) buffer: Buffer,
    /// Bytes of the buffer.
    pub(super) bytes: usize,
    /// How many of its before-images were in chains when this was put into its list.
    pub(super) before_images: usize,
    /// Whether there may be deletions among them.
    pub(super) has_deleted: bool,
}

impl Committed {
    /// Its place among those that are behind a transaction that may write: what is moved out of a buffer has that one's commit time.
    pub(super) fn position(&self) -> (u64, usize) {
        (self.at, self.buffer.address())
    }
}

/// One of those, and how many of its before-images are in chains still, or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    pub(super) committed: Committed,
    linked: usize,
}

/// A buffer that no thread still undoes, some of whose before-images may have to be cut out of their chains yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Old {
    pub(super) buffer: Buffer,
    /// The next of them.
    pub(super) next: Option<Kept>,
}

impl Old {
    pub(super) fn new(buffer: Buffer) -> Self {
        Self { buffer, next: buffer.before_images().next().map(Undo::kept) }
    }
}

/// A commit that is to be looked at again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// Where it is among those behind a transaction that may write.
    pub(super) position: (u64, usize),
    /// How often it was looked at.
    pub(super) times: u32,
    /// When no thread that began lately reads an earlier timestamp.
    pub(super) after: u64,
}

impl Again {
    const MOST: u32 = 8;

    /// A commit that was looked at so often, for the last time at a timestamp; none when that was often enough.
    pub(super) fn new(position: (u64, usize), times: u32, now: u64) -> Option<Self> {
        (times < Self::MOST).then_some(Self { position, times, after: now + (LATELY << times) })
    }

    /// A commit that is to be looked at as soon as may be.
    fn at_once(position: (u64, usize)) -> Self {
        Self { position, times: 0, after: 0 }
    }
}

/// What has committed and may still be undone by some thread.
#[derive(Debug, Default)]
pub(super) struct History {
    /// In the order of their commits.
    pub(super) recent: VecDeque<Committed>,
    /// What was committed behind a transaction that may write, before all of those in `recent`, and was pruned: that transaction will
    /// compare what is left.
    pub(super) behind: BTreeMap<(u64, usize), Behind>,
    /// The same of what a worker is just pruning, for each slot of the clock.
    being_pruned: Vec<Vec<Committed>>,
    /// The latest commit that ever came there.
    pub(super) behind_by: u64,
    /// Up to where those were gone through in the present sweep.
    pub(super) behind_swept: Option<(u64, usize)>,
    /// Before-images in them, and how many left their chains of which it is not known where they are counted, or more.
    pub(super) behind_before_images: usize,
    pub(super) behind_gone: usize,
    /// What snapshots alone need, roughly in the order of their commits: before-images that were moved out, and buffers of which so many
    /// before-images are needed that they stay where they are.
    pub(super) kept: VecDeque<Committed>,
    /// While the list of those is gone through, which is done in slices: the older part, which has been looked at.
    pub(super) swept: VecDeque<Committed>,
    pub(super) is_sweeping: bool,
    /// Commits behind a transaction that may write whose deletions some thread saw that may have ended since.
    pub(super) again: VecDeque<Again>,
    /// Large buffers whose before-images did not all fit into one slice of collection.
    pub(super) unfinished: Vec<Old>,
    /// Before-images in `kept` and `swept`, and how many of them have left their chains since they were put there, or fewer.
    pub(super) kept_before_images: usize,
    pub(super) gone_before_images: usize,
    /// Bytes of all buffers that are not given back, and the most that there ever were.
    pub(super) bytes: usize,
    pub(super) most_bytes: usize,
}

impl History {
    /// What has committed after a timestamp and no later than another one: for each row that has changed since, one that has changed it.
    /// Some that came and went are left out.
    pub(super) fn between(&self, after: u64, by: u64) -> impl Iterator<Item = Committed> {
        let has_behind = after < self.behind_by;
        let behind = if has_behind { self.behind.range((after + 1, 0)..) } else { Default::default() };
        let behind = behind.map(|(_, behind)| behind.committed).take_while(move |committed| committed.at <= by);
        let being_pruned = if has_behind { &self.being_pruned[..] } else { &[] };
        let is_wanted = move |committed: &Committed| after < committed.at && committed.at <= by;
        let being_pruned = being_pruned.iter().flatten().copied().filter(is_wanted);
        let first = self.recent.partition_point(|committed| committed.at <= after);
        let recent = self.recent.range(first..).copied().take_while(move |committed| committed.at <= by);
        behind.chain(being_pruned).chain(recent)
    }

    /// A timestamp after the first and no later than the second one, so that not many more than so many have committed between it and the
    /// first.
    pub(super) fn slice(&self, after: u64, by: u64, most: usize) -> u64 {
        if by - after <= most as u64 {
            return by;
        }
        let end = if after < self.behind_by {
            self.behind.range((after + 1, 0)..).nth(most).map_or(self.behind_by, |(position, _)| position.0)
        } else {
            let first = self.recent.partition_point(|committed| committed.at <= after);
            self.recent.get(first + most).map_or(by, |committed| committed.at)
        };
        end.min(by)
    }

    /// How many buffers there are.
    pub(super) fn buffers(&self) -> usize {
        let being_pruned: usize = self.being_pruned.iter().map(Vec::len).sum();
        self.recent.len()
            + self.behind.len()
            + being_pruned
            + self.kept.len()
            + self.swept.len()
            + self.unfinished.len()
    }

    /// Puts the oldest of the recent ones, which was committed by then, behind a transaction that may write, and into the hand of a worker.
    pub(super) fn put_behind(&mut self, by: u64, slot: usize) -> Option<Committed> {
        let next = self.recent.pop_front_if(|next| next.at <= by)?;
        self.hand_to(slot, next);
        self.behind_by = next.at;
        Some(next)
    }

    fn hand_to(&mut self, slot: usize, committed: Committed) {
        if self.being_pruned.len() <= slot {
            self.being_pruned.resize_with(slot + 1, Vec::new);
        }
        self.being_pruned[slot].push(committed);
    }

    /// The oldest of those behind, if it was committed by then.
    pub(super) fn pop_behind(&mut self, by: u64) -> Option<Committed> {
        let first = self.behind.first_entry().filter(|first| first.key().0 <= by)?;
        let committed = first.remove().committed;
        self.behind_before_images -= committed.before_images;
        Some(self.forget(committed))
    }

    /// Takes one of those behind into the hand of a worker, if it is there.
    pub(super) fn take_to_prune(&mut self, position: (u64, usize), slot: usize) -> Option<Committed> {
        let committed = self.behind.remove(&position)?.committed;
        self.behind_before_images -= committed.before_images;
        self.hand_to(slot, committed);
        Some(committed)
    }

    /// Removes what a worker was pruning.
    pub(super) fn end_pruning(&mut self, slot: usize) {
        let Some(being_pruned) = self.being_pruned.get_mut(slot) else { return };
        self.bytes -= being_pruned.drain(..).map(|committed| committed.bytes).sum::<usize>();
        being_pruned.shrink_to(ROOM);
    }

    /// Puts in what is left of it.
    pub(super) fn keep_behind(&mut self, kept: Committed) {
        self.behind.insert(kept.position(), Behind { committed: kept, linked: kept.before_images });
        self.behind_before_images += kept.before_images;
        self.add_bytes(kept.bytes);
    }

    /// Some before-images of a buffer behind have left their chains. When none is left the buffer is answered, out of the list; when few
    /// are, it is looked at again soon.
    pub(super) fn have_left(&mut self, position: (u64, usize), before_images: usize) -> Option<Buffer> {
        let Some(Behind { committed, linked }) = self.behind.get_mut(&position) else {
            // Some thread is processing it, or it is not there yet, or is gone.
            self.behind_gone += before_images;
            return None;
        };
        let was_worth_it = 2 * *linked > committed.before_images;
        *linked = linked.saturating_sub(before_images);
        // Any thread that was processing it may have counted the same.
        if *linked == 0 && committed.buffer.linked().next().is_none() {
            return self.remove(position);
        }
        if was_worth_it && 2 * *linked <= committed.before_images {
            self.again.push_front(Again::at_once(position));
        }
        None
    }

    fn remove(&mut self, position: (u64, usize)) -> Option<Buffer> {
        let committed = self.behind.remove(&position)?.committed;
        self.behind_before_images -= committed.before_images;
        Some(self.forget(committed).buffer)
    }

    fn add(&mut self, committed: Committed) {
        self.recent.push_back(committed);
        self.add_bytes(committed.bytes);
    }

    fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.most_bytes = self.most_bytes.max(self.bytes);
    }

    /// Keeps what snapshots need.
    pub(super) fn keep(&mut self, kept: Committed) {
        self.kept.push_back(kept);
        self.kept_before_images += kept.before_images;
        self.add_bytes(kept.bytes);
    }

    /// What was unlinked of a list: it no longer counts.
    pub(super) fn forget(&mut self, taken: Committed) -> Committed {
        self.bytes -= taken.bytes;
        taken
    }

    /// As [`History::forget`], of what no thread still undoes.
    pub(super) fn forget_old(&mut self, taken: Committed) -> Old {
        Old::new(self.forget(taken).buffer)
    }

    /// The oldest that is kept, if it was committed by then.
    pub(super) fn pop_kept(&mut self, by: u64) -> Option<Committed> {
        let list = if self.swept.is_empty() { &mut self.kept } else { &mut self.swept };
        let next = list.pop_front_if(|next| next.at <= by)?;
        self.kept_before_images -= next.before_images;
        if self.kept.is_empty() && self.swept.is_empty() {
            self.gone_before_images = 0;
            self.is_sweeping = false;
        }
        Some(self.forget(next))
    }

    /// Gives back the room of a backlog that is gone: while a thread has no processor in the midst of a transaction, others commit
    /// thousands.
    #[inline]
    pub(super) fn give_back_room(&mut self) {
        let Self { recent, kept, swept, again, .. } = self;
        [recent, kept, swept].into_iter().for_each(KeptList::give_back_room);
        again.give_back_room();
    }

    /// The most entries that a list has room for.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn room(&self) -> usize {
        let lists = [&self.recent, &self.kept, &self.swept].map(VecDeque::capacity);
        lists.into_iter().fold(self.again.capacity(), usize::max)
    }
}

/// The timestamps at which something is read, or may be from now on.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// From here on all of them may be, or what is committed is compared with what a transaction has asked that may write.
    pub(super) from: u64,
    /// Before that, these are read.
    pub(super) single: Vec<u64>,
    /// From here on all timestamps may be read.
    pub(super) later: u64,
    /// Before that, of transactions that may write, these are; and these timestamps are distinguished from later ones by a thread that
    /// compares.
    pub(super) starts: Vec<u64>,
    /// Up to there all timestamps that are read are among these, and no thread that began lately reads one, but for those from `from` on.
    pub(super) upto: u64,
}

impl Held {
    /// The oldest of them.
    #[inline]
    pub(super) fn oldest(&self) -> u64 {
        self.single.iter().copied().min().map_or(self.from, |single| single.min(self.from))
    }

    /// Up to where no timestamp is read by transactions that began lately, and will end soon; those that read an old one may read it for long.
    fn calm(&self) -> u64 {
        let young = self.later.saturating_sub(LATELY);
        self.timestamps().filter(|timestamp| *timestamp > young).min().unwrap_or(self.later).min(self.later)
    }

    fn timestamps(&self) -> impl Iterator<Item = u64> {
        self.single.iter().chain(&self.starts).copied()
    }

    /// The latest that lies before a timestamp, if any does.
    pub(super) fn latest_before(&self, timestamp: u64) -> Option<u64> {
        if self.upto < timestamp {
            return Some(timestamp - 1);
        }
        self.timestamps().filter(|&read| read < timestamp).max()
    }
}

/// A worker's words.
#[derive(Debug)]
struct Slot {
    /// What it reads; see `TIMESTAMP_SHIFT`.
    reading: AtomicU64,
    /// The thread that began its latest transaction.
    thread: AtomicU64,
    /// Up to where its transaction has listed what was committed, to compare it. Written under the lock of the list, or to `IDLE`.
    listed: AtomicU64,
}

impl Slot {
    fn new() -> Self {
        Self { reading: AtomicU64::new(IDLE), thread: AtomicU64::new(0), listed: AtomicU64::new(IDLE) }
    }

    fn is_open_here(&self) -> bool {
        // Acquire: pairs with the release in `begin`: any thread that has begun has stored the thread before. In this order, because a
        // thread may have the number of one that had the slot before it ended.
        self.reading.load(Ordering::Acquire) != IDLE && self.thread.load(Ordering::Relaxed) == this_thread()
    }
}

/// See the head of the module.
#[derive(Debug)]
pub(super) struct Clock {
    latest: CachePadded<AtomicU64>,
    workers: Box<[CachePadded<Slot>]>,
    used: AtomicUsize,
    history: Mutex<History>,
}

impl Clock {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            latest: CachePadded::new(AtomicU64::new(1)),
            workers: (0..slots).map(|_| CachePadded::new(Slot::new())).collect(),
            used: AtomicUsize::new(0),
            history: Mutex::default(),
        }
    }

    /// A worker takes a slot.
    pub(super) fn enter(&self, slot: usize) {
        // SeqCst: any thread that looks for readers after this worker has begun to read sees its slot, too; see `held`.
        self.used.fetch_max(slot + 1, Ordering::SeqCst);
    }

    /// The id of a worker's next transaction.
    #[inline]
    pub(super) fn id(slot: usize, generation: u64) -> u64 {
        FIRST_ID | (slot as u64) << GENERATION_BITS | generation & ((1 << GENERATION_BITS) - 1)
    }

    /// Notes that the calling thread begins a transaction of a worker, before that announces what it reads, which releases this.
    #[inline]
    pub(super) fn note_thread(&self, slot: usize) {
        self.workers[slot].thread.store(this_thread(), Ordering::Relaxed);
    }

    /// Whether the transaction of an id, which stood somewhere, was begun by the calling thread and is still open. Relaxed: what this thread
    /// has not written is another thread's.
    pub(super) fn is_open_here(&self, id: u64) -> bool {
        let slot = (id & !FIRST_ID) >> GENERATION_BITS;
        self.workers.get(slot as usize).is_some_and(|slot| slot.is_open_here())
    }

    /// Whether a worker has no transaction open. Acquire: as in `held`.
    pub(super) fn is_idle(&self, slot: usize) -> bool {
        self.workers[slot].reading.load(Ordering::Acquire) == IDLE
    }

    /// Whether the calling thread has a transaction open.
    pub(super) fn is_open_on_this_thread(&self) -> bool {
        let workers = &self.workers[..self.used.load(Ordering::Relaxed)];
        workers.iter().any(|slot| slot.is_open_here())
    }

    /// The time of the latest commit. Acquire: pairs with the release in `commit`.
    #[inline]
    pub(super) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// A transaction begins to read: it first makes known that it may read anything from `known` on, which is no later than the
    /// latest commit, and then chooses.
    #[inline]
    pub(super) fn begin(&self, slot: usize, known: u64, snapshot: bool) -> u64 {
        if !left_out(Step::AnnounceStart) {
            // Barrier: pairs with the one in `held`. A thread that does not see this word has read a latest commit that this one sees, too.
            publish(&self.workers[slot].reading, known << TIMESTAMP_SHIFT);
        }
        self.choose(slot, snapshot)
    }

    /// The first half of [`Clock::begin`], for a thread that makes an exchange of its own before it comes to the other half,
    /// [`Clock::begin_behind_exchange`].
    #[inline]
    pub(super) fn announce(&self, slot: usize, known: u64) {
        if !left_out(Step::AnnounceStart) {
            // Release: pairs with the acquire in `held`.
            self.workers[slot].reading.store(known << TIMESTAMP_SHIFT, Ordering::Release);
        }
    }

    /// See [`Clock::announce`].
    #[inline]
    pub(super) fn begin_behind_exchange(&self, slot: usize, snapshot: bool) -> u64 {
        // Barrier: as in `begin`.
        fence_behind_exchange();
        self.choose(slot, snapshot)
    }

    #[inline]
    fn choose(&self, slot: usize, snapshot: bool) -> u64 {
        let start = self.latest();
        pass(Point::Starting);
        // Release: pairs with the acquire in `held`.
        self.workers[slot]
            .reading
            .store(start << TIMESTAMP_SHIFT | if snapshot { SINGLE } else { CHOSEN }, Ordering::Release);
        start
    }

    /// A transaction that reads a timestamp is going to choose a later one. Barrier: as in `begin`.
    pub(super) fn announce_move(&self, slot: usize, start: u64) {
        publish(&self.workers[slot].reading, start << TIMESTAMP_SHIFT);
    }

    /// A transaction that has announced it reads a later timestamp. Release: as in `begin`.
    #[inline]
    pub(super) fn move_on(&self, slot: usize, start: u64) {
        self.workers[slot].reading.store(start << TIMESTAMP_SHIFT | CHOSEN, Ordering::Release);
    }

    /// A transaction reads no more.
    #[inline]
    pub(super) fn end(&self, slot: usize) {
        // Release: what it has read comes before; pairs with the acquire in `held`.
        self.workers[slot].reading.store(IDLE, Ordering::Release);
    }

    /// A transaction has listed what was committed by a timestamp, under the lock of the list. What comes later stands in the list for
    /// itself, until the transaction forgets this: relaxed, because any thread that takes from the list does so under that lock.
    pub(super) fn note_listed(&self, slot: usize, by: u64) {
        if !left_out(Step::ListedTimestamps) {
            self.workers[slot].listed.store(by, Ordering::Relaxed);
        }
    }

    /// See [`Clock::note_listed`].
    pub(super) fn forget_listed(&self, slot: usize) {
        self.workers[slot].listed.store(IDLE, Ordering::Relaxed);
    }

    /// Adds what transactions that compare have listed to the timestamps that are held. Under the lock of the list: a thread that lists
    /// later lists all that was committed up to `Held::upto`.
    pub(super) fn add_listed(&self, held: &mut Held) {
        for slot in &self.workers[..self.used.load(Ordering::Relaxed)] {
            let listed = slot.listed.load(Ordering::Relaxed);
            if listed != IDLE {
                held.starts.push(listed);
            }
        }
    }

    /// Finds out which timestamps are held.
    pub(super) fn held(&self, held: &mut Held) {
        held.single.clear();
        held.starts.clear();
        held.later = self.latest.load(Ordering::SeqCst);
        held.from = held.later;
        // Barrier: pairs with the one in `begin`.
        fence(Ordering::SeqCst);
        for slot in &self.workers[..self.used.load(Ordering::SeqCst)] {
            let word = slot.reading.load(Ordering::Acquire);
            if word == IDLE || left_out(Step::AwaitReaders) {
                continue;
            }
            let timestamp = word >> TIMESTAMP_SHIFT;
            if word & SINGLE != 0 {
                held.single.push(timestamp);
                continue;
            }
            held.from = held.from.min(timestamp);
            if word & CHOSEN != 0 {
                held.starts.push(timestamp);
            } else {
                held.later = held.later.min(timestamp);
            }
        }
        held.upto = held.from.max(held.calm());
    }

    /// The list, locked.
    #[inline]
    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the commit time of a transaction whose validation has passed, seals its changes, commits it, and makes that known; under the lock.
    #[inline]
    pub(super) fn commit(&self, history: &mut History, writing: &Writing, mut seal: impl FnMut(u64)) -> u64 {
        let buffer = writing.buffer().expect("a transaction that has written has a buffer");
        // Only the holder of the lock writes it.
        let at = self.latest.load(Ordering::Relaxed) + 1;
        let seals_late = left_out(redo::Step::SealFirst);
        if !seals_late {
            seal(at);
        }
        buffer.commit(at);
        history.add(Committed {
            at,
            buffer,
            bytes: writing.bytes(),
            before_images: writing.len(),
            has_deleted: writing.has_deleted(),
        });
        // Release: pairs with the acquire in `latest`, so that a thread that reads the time sees the stamp. SeqCst: see `held`.
        self.latest.store(at, Ordering::SeqCst);
        if seals_late {
            seal(at);
        }
        at
    }
}
