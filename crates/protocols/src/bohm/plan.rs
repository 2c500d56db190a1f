//! Concurrency control (§3.2): it puts a placeholder, on top of the one before, for each key that a transaction will write, and finds the version
//! for each key that it will read.
//!
//! The keys are divided by their hash into partitions. One thread at a time plans for a partition, batch by batch, so planning is coordinated with
//! the readers of chains and indexes alone.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use polychron_base::Error;
use polychron_engine::stores::OwnedKey;
use polychron_index::Handle;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{Mutex, SpinLatch};

use super::chain::{Chain, Head, Readers, Superseded};
use super::collection::{Deleted, Garbage};
use super::entry::{Known, Want};
use super::pipeline::{PartitionProgress, RING};
use super::planned::LiveBatch;
use super::protocol::Shared;
use super::table::{BohmStore, Prefix};
use super::timestamp::Timestamp;
use super::version::Fresh;

/// Keys ahead of the one that is planned whose buckets, and then whose chains, are fetched.
const AHEAD: usize = 8;

/// Batches after which the list of a prefix is removed that no transaction declares.
const PREFIXES_STAY: u64 = 64;
// A batch that was planned before the last transaction of a prefix was executed finds its list: it lies at most so far behind.
const _: () = assert!(PREFIXES_STAY >= RING);
/// Prefixes that are looked at in one batch, and of those that there are besides a part.
const PREFIXES_AT_ONCE: usize = 16;
const PART_OF_PREFIXES: usize = 16;

/// One part of the keys.
#[derive(Debug)]
pub(super) struct Partition {
    plan: SpinLatch<Plan>,
    /// What other threads hand over.
    inbox: Mutex<Inbox>,
    has_mail: AtomicBool,
}

/// What belongs to the thread that plans for the partition.
#[derive(Debug)]
struct Plan {
    progress: PartitionProgress,
    left: Left,
}

/// What planning leaves in the partition.
#[derive(Debug, Default)]
struct Left {
    garbage: Garbage,
    /// Prefixes of this partition that have a list of intents.
    prefixes: VecDeque<KnownPrefix>,
}

/// A prefix that has a list of intents.
#[derive(Debug)]
struct KnownPrefix {
    store: Arc<BohmStore>,
    prefix: OwnedKey,
    list: Handle,
    /// The batch of its last intent, when that was looked at.
    newest: u64,
}

impl KnownPrefix {
    /// The list, if the prefix still has it.
    fn list<'g>(&self, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        let found = match &self.prefix {
            OwnedKey::Short(key) => self.store.prefixes.find(Prefix::of(*key), guard),
            OwnedKey::Long(key) => self.store.prefixes.find(Prefix::of(&**key), guard),
        };
        found.filter(|found| found.handle() == self.list)
    }
}

/// What execution leaves to be collected.
#[derive(Debug, Default)]
struct Inbox {
    superseded: Vec<Superseded>,
    deleted: Vec<Deleted>,
}

impl Partition {
    pub(super) fn new(progress: PartitionProgress) -> Self {
        let plan = SpinLatch::new(Plan { progress, left: Left::default() });
        Self { plan, inbox: Mutex::default(), has_mail: AtomicBool::new(false) }
    }

    /// Leaves a version to be freed.
    pub(super) fn leave_superseded(&self, superseded: Superseded) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).superseded.push(superseded);
        self.has_mail.store(true, Ordering::Release);
    }

    /// Leaves a key to be removed from its index.
    pub(super) fn leave_deleted(&self, deleted: Deleted) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).deleted.push(deleted);
        self.has_mail.store(true, Ordering::Release);
    }

    /// Plans the next batch for the keys of this partition. `false`: there is none, or another thread does.
    pub(super) fn plan_next(&self, number: usize, shared: &Shared, guard: &Guard<'_>) -> bool {
        let Some(mut plan) = self.plan.try_lock() else { return false };
        if !shared.pipeline.can_plan(&plan.progress) {
            return false;
        }
        self.collect(&mut plan, false, PREFIXES_STAY, shared, guard);
        let Plan { progress, left } = &mut *plan;
        left.garbage.unused.clear();
        shared.pipeline.plan_next(progress, |client_batch, batch, first| {
            Planner { client_batch, first, batch, partition: number, shared, guard }.plan(left);
        })
    }

    /// The versions and keys that wait to be collected, for tests.
    #[cfg(test)]
    pub(super) fn garbage<O>(&self, look: impl FnOnce(&Garbage) -> O) -> O {
        look(&self.plan.lock().left.garbage)
    }

    /// Frees what can be freed, when no batch is there to be planned either. Returns stores that may be freed with it: the last user
    /// of one asks the deferred drops, which may be busy with the guard.
    #[must_use]
    pub(super) fn maintain(&self, shared: &Shared, guard: &Guard<'_>) -> Vec<Arc<BohmStore>> {
        if let Some(mut plan) = self.plan.try_lock() {
            // A batch that is under way may know versions from before the last one of a prefix was put.
            let age = if shared.pipeline.is_idle() { 0 } else { PREFIXES_STAY };
            self.collect(&mut plan, true, age, shared, guard);
            return std::mem::take(&mut plan.left.garbage.unused);
        }
        Vec::new()
    }

    fn collect(&self, plan: &mut Plan, all: bool, age: u64, shared: &Shared, guard: &Guard<'_>) {
        let Plan { progress, left } = plan;
        // Acquire: pairs with the release in `leave_superseded` and `leave_deleted`.
        if self.has_mail.swap(false, Ordering::Acquire) {
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            left.garbage.superseded.extend(inbox.superseded.drain(..));
            left.garbage.deleted.extend(inbox.deleted.drain(..));
        }
        if left.garbage.is_empty() && left.prefixes.is_empty() {
            return;
        }
        shared.look_at_snapshots(&mut left.garbage.horizon);
        // SAFETY: the latch is the caller's, so it alone plans for the partition, and the horizon was just looked up.
        unsafe { left.garbage.collect(all, progress.planned(), guard) };
        let prefixes = left.prefixes.len();
        for _ in 0..prefixes.min(PREFIXES_AT_ONCE + prefixes / PART_OF_PREFIXES) {
            // Those behind it were looked at later, and wait so long at most.
            let finished = left.garbage.horizon.finished;
            let Some(prefix) = left.prefixes.pop_front_if(|prefix| prefix.newest + age <= finished) else { break };
            if let Some(prefix) = forget_prefix(prefix, age, progress.planned(), left, guard) {
                left.prefixes.push_back(prefix);
            }
        }
    }
}

/// Removes a prefix's list whose last intent lies so many batches back; returns the prefix if it stays. The caller has the latch of its partition, for
/// which batches up to `planned` are planned.
fn forget_prefix(
    mut prefix: KnownPrefix,
    age: u64,
    planned: u64,
    left: &mut Left,
    guard: &Guard<'_>,
) -> Option<KnownPrefix> {
    let list = prefix.list(guard)?;
    let last = list.head().newest()?;
    // SAFETY: the last intent stays until the list is removed here. The thread that plans for the partition alone closes the list, and no later batch
    // knows the intent.
    let closed = unsafe {
        prefix.newest = last.get().begin().batch();
        let is_recent = prefix.newest + age > left.garbage.horizon.finished;
        if is_recent { None } else { list.head().close(last, planned) }
    };
    let Some(superseded) = closed else { return Some(prefix) };
    match &prefix.prefix {
        OwnedKey::Short(key) => prefix.store.prefixes.remove(*key, list, guard),
        OwnedKey::Long(key) => prefix.store.prefixes.remove(&**key, list, guard),
    }
    left.garbage.unused.push(prefix.store);
    left.garbage.superseded.push_back(superseded);
    None
}

/// Plans the transactions of a client batch.
struct Planner<'p> {
    client_batch: LiveBatch<'p>,
    /// The position of its first transaction in the batch.
    first: usize,
    batch: u64,
    partition: usize,
    shared: &'p Shared,
    guard: &'p Guard<'p>,
}

impl<'p> Planner<'p> {
    fn plan(&self, left: &mut Left) {
        let content = self.client_batch.content();
        let sorted = content.sorted.get(self.partition);
        let count = sorted.map_or_else(|| self.client_batch.entry_count(), Vec::len);
        let position = |step: usize| sorted.map_or(step, |sorted| sorted[step] as usize);
        // The chains that were looked up ahead.
        let mut found = [None; AHEAD];
        for step in 0..count + 2 * AHEAD {
            if step < count {
                self.fetch_bucket(position(step));
            }
            let known = found[step % AHEAD].take();
            if let Some(step) = step.checked_sub(AHEAD).filter(|&step| step < count) {
                found[step % AHEAD] = self.fetch_chain(position(step));
            }
            if let Some(step) = step.checked_sub(2 * AHEAD) {
                self.plan_entry(position(step), known, left);
            }
        }
    }

    /// The entry, if it belongs to this partition: until the batch is planned, such entries are the planner's.
    #[inline]
    fn entry(&self, position: usize) -> Option<Known<'p>> {
        let entry = self.client_batch.entry(position);
        (usize::from(entry.partition) == self.partition).then_some(entry)
    }

    #[inline]
    fn fetch_bucket(&self, position: usize) {
        if let Some(entry) = self.entry(position)
            && let Some(store) = store_of(entry)
        {
            store.index().prefetch(entry.key(), self.guard);
        }
    }

    #[inline]
    fn fetch_chain(&self, position: usize) -> Option<Chain<'p>> {
        let entry = self.entry(position)?;
        let chain = store_of(entry)?.find(entry.key(), self.guard)?;
        chain.prefetch();
        Some(chain)
    }

    #[inline]
    fn plan_entry(&self, position: usize, known: Option<Chain<'p>>, left: &mut Left) {
        let superseded = &mut left.garbage.superseded;
        let Some(entry) = self.entry(position) else { return };
        let planned = match entry.want {
            // This thread alone puts versions on top of the chain, in the order of the log: the newest is the one to read.
            Want::Read => {
                // The transaction that inserts the key may have been planned since it was looked up ahead.
                let chain = known.or_else(|| store_of(entry)?.find(entry.key(), self.guard));
                if let Some(newest) = chain.and_then(|chain| chain.head().newest()) {
                    // SAFETY: it is superseded by no earlier batch, so it stays until the transaction is complete.
                    unsafe { entry.set_version(newest, None) };
                }
                Ok(())
            }
            Want::Write | Want::Update => self.put_placeholder(entry, known, superseded),
            Want::Prefix | Want::PrefixUpdate => self.put_prefix(entry, left),
            Want::Entries => self.put_intent(entry, &entry.store().intents, superseded),
            Want::Everything => self.put_intent(entry, &self.shared.everything, superseded),
            Want::Late | Want::Guessed => unreachable!("such entries are made in execution"),
        };
        if let Err(Error::OutOfMemory(refused)) = planned {
            self.client_batch.planned(entry.owner as usize).refused.store(refused.requested.max(1), Ordering::Relaxed);
        }
    }

    fn timestamp(&self, entry: Known<'_>) -> Timestamp {
        Timestamp::new(self.batch, self.first + entry.owner as usize)
    }

    fn allocate(&self, entry: Known<'_>, words: usize) -> Result<Fresh<'p>, Error> {
        self.client_batch.planned(entry.owner as usize).placeholder(self.timestamp(entry), words, self.guard)
    }

    /// Puts a version of the entry's transaction on top of a chain of this partition, or of a list of intents.
    #[inline]
    fn push(&self, entry: Known<'_>, to: Result<Chain<'p>, &Head>, version: Fresh<'p>) -> Option<Superseded> {
        let (head, readers) = to.map_or_else(|head| (head, Readers::Below), |chain| (chain.head(), Readers::Snapshots));
        // SAFETY: this thread alone plans for the key, batch by batch, and a batch's entries are in the order of their transactions. What it puts there is
        // not superseded before this batch, so it stays until the batch is finished.
        let pushed = unsafe {
            entry.set_version(version.raw(), to.ok());
            head.push(version, readers)
        };
        pushed.unwrap_or_else(|_| unreachable!("only this thread closes a chain of its partition"))
    }

    #[inline]
    fn put_placeholder(
        &self,
        entry: Known<'_>,
        known: Option<Chain<'p>>,
        superseded: &mut VecDeque<Superseded>,
    ) -> Result<(), Error> {
        let store = entry.store();
        let allocate = || self.allocate(entry, store.row_words);
        // A version that supersedes another one makes room in the end.
        let version = if known.is_some() { self.guard.with_reserve(|_| allocate()) } else { allocate() }?;
        let chain = match known.map_or_else(|| store.find_or_make(entry.key(), self.guard), Ok) {
            Ok(chain) => chain,
            Err(error) => {
                version.free(self.guard);
                return Err(error);
            }
        };
        superseded.extend(self.push(entry, Ok(chain), version));
        Ok(())
    }

    fn put_prefix(&self, entry: Known<'_>, left: &mut Left) -> Result<(), Error> {
        let prefixes = &entry.store().prefixes;
        let prefix = Prefix::of(entry.key());
        if let Some(list) = prefixes.find(prefix, self.guard) {
            return self.put_intent(entry, list.head(), &mut left.garbage.superseded);
        }
        let list = prefixes.make(prefix, self.guard)?;
        if let Err(error) = self.put_intent(entry, list.head(), &mut left.garbage.superseded) {
            // A list without intents would never be removed.
            prefixes.remove(prefix, list, self.guard);
            return Err(error);
        }
        let (store, prefix, list) = (entry.keep_store(), OwnedKey::new(entry.key()), list.handle());
        left.prefixes.push_back(KnownPrefix { store, prefix, list, newest: self.batch });
        Ok(())
    }

    fn put_intent(&self, entry: Known<'_>, intents: &Head, superseded: &mut VecDeque<Superseded>) -> Result<(), Error> {
        let version = self.guard.with_reserve(|_| self.allocate(entry, 0))?;
        superseded.extend(self.push(entry, Err(intents), version));
        Ok(())
    }
}

/// The store of an entry of a key.
#[inline]
fn store_of<'p>(entry: Known<'p>) -> Option<&'p BohmStore> {
    match entry.want {
        Want::Read | Want::Write | Want::Update => Some(entry.store()),
        _ => None,
    }
}
