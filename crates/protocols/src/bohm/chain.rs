//! Chains of versions, and the indexes that lead to them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::key::{EncodedKey, HashSeed};
use polychron_engine::stores::{DeferredDrops, Hinted, OwnedKey, Records, Store};
use polychron_index::hash::HashIndex;
use polychron_index::{AnyIndex, Handle, Inserted, handle_of, pointer_of};
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::planned::Planned;
use super::timestamp::Timestamp;
use super::version::{Free, Fresh, HEADER_BYTES, RawVersion, State, Version};

/// Bytes of a chain; a model checker's words are larger.
const CHAIN_BYTES: usize = size_of::<Head>().next_multiple_of(16);
const _: () = assert!(polychron_sync::MODELLED || CHAIN_BYTES == 16);

/// The head of a chain that is being removed from its index.
const CLOSED: u64 = 1;
/// The mark of a chain in the index beside, next to the address of its newest version. Versions lie at multiples of 8.
const SEALED: u64 = 2;

/// The versions of a key, newest first, or a list of intents.
#[derive(Debug)]
pub(super) struct Head(AtomicU64);

/// A version that no transaction reads which comes after a batch. Its holder frees it.
///
/// It stays until then, and so does the version above when this one was superseded, or that was unlinked.
#[derive(Debug)]
pub(super) struct Superseded {
    version: RawVersion,
    /// The version that was above when this one was superseded; others may have been inserted in between since.
    above: RawVersion,
    /// The batch of the version above.
    batch: u64,
    readers: Readers,
}

/// How readers may still reach a superseded version when all transactions that read it are complete.
#[derive(Clone, Copy, Debug)]
pub(super) enum Readers {
    /// Snapshots that are older than the version above.
    Snapshots,
    /// By its chain, which has left its index: a reader that found the chain there before.
    Guards,
    /// They walk further down than to the intent that they search for: from the one above, which then ends the list.
    Below,
}

impl Superseded {
    pub(super) fn version(&self) -> RawVersion {
        self.version
    }

    /// The version above when this one was superseded.
    pub(super) fn above(&self) -> RawVersion {
        self.above
    }

    /// The batch of the version above.
    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    pub(super) fn readers(&self) -> Readers {
        self.readers
    }

    /// A late version of this batch, or of a later one, is known to lie in between.
    pub(super) fn lower_batch(&mut self, batch: u64) {
        self.batch = self.batch.min(batch);
    }
}

impl Head {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The newest version.
    #[inline]
    pub(super) fn newest(&self) -> Option<RawVersion> {
        // Acquire: pairs with the release in `push` and `insert`.
        let address = self.0.load(Ordering::Acquire);
        if address == CLOSED { None } else { RawVersion::from_address(address & !SEALED) }
    }

    /// The newest version that does not begin after a timestamp.
    ///
    /// # Safety
    /// Until `'g` is over, a transaction of this timestamp is under way, or a snapshot of it open, and the caller has a guard. So the version
    /// stays, and those above stay meanwhile.
    #[inline]
    pub(super) unsafe fn at<'g>(&self, timestamp: Timestamp) -> Option<Version<'g>> {
        let mut next = self.newest();
        loop {
            // SAFETY: the caller says so of those that begin after the timestamp, and of the one below them.
            let version = unsafe { next?.get() };
            if version.begin() <= timestamp {
                return Some(version);
            }
            next = version.below();
        }
    }

    /// Puts a version on top; answers the one that it supersedes. `Err`: the chain is closed, and has not taken the version.
    ///
    /// # Safety
    /// The version begins after all others. No two threads do so at a time. `readers` says how the versions of this chain are reached.
    #[inline]
    pub(super) unsafe fn push<'g>(&self, fresh: Fresh<'g>, readers: Readers) -> Result<Option<Superseded>, Fresh<'g>> {
        let (version, batch) = (fresh.raw(), fresh.begin().batch());
        let mut newest = self.0.load(Ordering::Acquire);
        loop {
            if newest & (CLOSED | SEALED) != 0 {
                return Err(fresh);
            }
            fresh.set_below(RawVersion::from_address(newest));
            // Release: a reader that finds the version finds it whole. Acquire: another one came in between.
            let exchanged = self.0.compare_exchange(newest, version.address(), Ordering::AcqRel, Ordering::Acquire);
            match exchanged {
                Ok(_) => {
                    let below = RawVersion::from_address(newest);
                    return Ok(below.map(|below| Superseded { version: below, above: version, batch, readers }));
                }
                Err(other) => newest = other,
            }
        }
    }

    /// Inserts a version in its order, perhaps below others; answers the version that is superseded now. `Err`: as in `push`.
    ///
    /// # Safety
    /// The caller has a guard, and executes the transaction of the version. Below the newest version only the thread inserts that executes the latest
    /// transaction of those that may write here unplanned, and it is alone.
    pub(super) unsafe fn insert<'g>(&self, fresh: Fresh<'g>) -> Result<Option<Superseded>, Fresh<'g>> {
        let (version, begin, readers) = (fresh.raw(), fresh.begin(), Readers::Snapshots);
        loop {
            let newest = self.0.load(Ordering::Acquire);
            if newest & (CLOSED | SEALED) != 0 {
                return Err(fresh);
            }
            let mut above: Option<Version<'_>> = None;
            let mut below = RawVersion::from_address(newest);
            // SAFETY: those above stay until their batches are finished, which this one's is not, and so does the one below. The caller says
            // that it may insert here.
            unsafe {
                while let Some(next) = below {
                    let other = next.get();
                    if other.begin() <= begin {
                        debug_assert!(other.begin() < begin, "a transaction has one version of a key");
                        break;
                    }
                    above = Some(other);
                    below = other.below();
                }
                fresh.set_below(below);
                if let Some(above) = above {
                    above.set_below(Some(version));
                    let (batch, above) = (above.begin().batch(), above.raw());
                    return Ok(Some(Superseded { version, above, batch, readers }));
                }
            }
            // Release: pairs with the acquire in `newest`.
            let exchanged = self.0.compare_exchange(newest, version.address(), Ordering::AcqRel, Ordering::Relaxed);
            if exchanged.is_ok() {
                let batch = begin.batch();
                return Ok(below.map(|below| Superseded { version: below, above: version, batch, readers }));
            }
        }
    }

    /// Closes the chain if this version is its newest, and returns that.
    ///
    /// # Safety
    /// The caller alone seals and closes the chain. Transactions of no batch after `planned` know the version.
    pub(super) unsafe fn close(&self, version: RawVersion, planned: u64) -> Option<Superseded> {
        let newest = version.address() | if self.is_sealed() { SEALED } else { 0 };
        // Relaxed: nothing is read through the head from now on. A closed chain is as good as an absent key.
        let closed = self.0.compare_exchange(newest, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        closed.is_ok().then_some(Superseded { version, above: version, batch: planned, readers: Readers::Guards })
    }

    /// Keeps further versions out of the chain if this one, a deletion, is its newest. The versions are read as before.
    pub(super) fn seal(&self, version: RawVersion) -> bool {
        // Relaxed: an exchange hands on what was released when the version was put there.
        let sealed = version.address() | SEALED;
        self.0.compare_exchange(version.address(), sealed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the chain was sealed. The caller is the thread that may seal it.
    pub(super) fn is_sealed(&self) -> bool {
        let newest = self.0.load(Ordering::Relaxed);
        newest & SEALED != 0
    }

    /// Calls `wait` with each pending transaction of a list of intents before a timestamp, from the latest one down to those that are known to be
    /// complete.
    ///
    /// # Safety
    /// The caller has a guard for `'g`, and had it before it read how far batches are finished.
    pub(super) unsafe fn await_pending<'g>(
        &self,
        before: Timestamp,
        finished: u64,
        mut wait: impl FnMut(&'g Planned, Timestamp) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut next, mut latest) = (self.newest(), None);
        while let Some(intent) = next {
            // SAFETY: the caller says so; what a finished batch has superseded is cut off before it is freed.
            let intent: Version<'g> = unsafe { intent.get() };
            if intent.begin().batch() <= finished || intent.is_all_complete() {
                break;
            }
            if intent.begin() < before {
                if let State::Pending(producer) = intent.state() {
                    wait(producer, intent.begin())?;
                }
                latest.get_or_insert(intent);
            }
            next = intent.below();
        }
        if let Some(latest) = latest {
            // The next reader need not go further down than here.
            latest.set_all_complete();
        }
        Ok(())
    }
}

/// A chain, or a list of intents, in memory of its own, to which an index leads. It stays for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain<'g> {
    head: NonNull<Head>,
    _stays: PhantomData<&'g Head>,
}

impl<'g> Chain<'g> {
    /// The chain of a handle.
    ///
    /// # Safety
    /// The handle was found in an index of chains under a guard that stays for `'g`, or the caller is the only one that removes the chain.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        Self { head: pointer_of(handle), _stays: PhantomData }
    }

    #[inline]
    pub(super) fn handle(self) -> Handle {
        handle_of(self.head)
    }

    #[inline]
    pub(super) fn head(self) -> &'g Head {
        // SAFETY: the chain stays for that time.
        unsafe { self.head.as_ref() }
    }

    #[inline]
    pub(super) fn prefetch(self) {
        polychron_sync::prefetch_read(self.head.as_ptr());
    }

    /// Starts fetching the newest version, with a row of so many words.
    #[inline]
    pub(super) fn prefetch_newest(self, words: usize) {
        if let Some(newest) = self.head().newest() {
            newest.prefetch();
            newest.prefetch_row(words);
        }
    }

    /// Removes the chain, which was closed just now, from its index, and frees it; its versions are freed by the holders of their [`Superseded`].
    pub(super) fn remove(self, index: Option<&AnyIndex>, key: &OwnedKey, _closed: &Superseded, guard: &Guard<'_>) {
        let is_removed = index.is_some_and(|index| match key {
            OwnedKey::Short(key) => index.remove(*key, self.handle(), guard),
            OwnedKey::Long(key) => index.remove(&**key, self.handle(), guard),
        });
        self.retire(is_removed, guard);
    }

    /// Frees the chain, which was just removed from its index, behind the guards.
    fn retire(self, is_removed: bool, guard: &Guard<'_>) {
        assert!(is_removed, "the thread that closes a chain removes it");
        // SAFETY: the index no longer leads there, and removes a chain once.
        unsafe { guard.retire(self.head.cast(), CHAIN_BYTES) };
    }
}

/// Makes a chain and has it inserted, unless there is one by now.
pub(super) fn make_chain<'g>(
    insert: impl FnOnce(Handle) -> Result<Inserted, OutOfMemory>,
    guard: &'g Guard<'_>,
) -> Result<Chain<'g>, Error> {
    let head = guard.allocate(CHAIN_BYTES)?.cast::<Head>();
    // SAFETY: the block has room for a head and is aligned to 16 bytes. Nothing else knows it before the index has taken it, and it is freed if the
    // index has not. A handle that the index answers was found under the guard.
    unsafe {
        head.write(Head::new());
        let inserted = insert(handle_of(head));
        if let Ok(Inserted::New) = inserted {
            return Ok(Chain { head, _stays: PhantomData });
        }
        guard.free(head.cast(), CHAIN_BYTES);
        let Inserted::Existing(found) = inserted? else { unreachable!("a new key was answered above") };
        Ok(Chain::from_handle(found.handle.expect("an existing key has a handle")))
    }
}

/// The chain behind a handle that an index of chains has just given under the guard.
#[inline]
pub(super) fn found<'g>(handle: Handle, _guard: &'g Guard<'_>) -> Chain<'g> {
    // SAFETY: callers hand over what an index has given them.
    unsafe { Chain::from_handle(handle) }
}

/// Chains behind an index.
#[derive(Debug)]
pub enum Chains {}

impl Records for Chains {
    const HEADER_BYTES: usize = HEADER_BYTES;

    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller says that nothing still finds the chain. The versions below the newest one are freed by the holders of their
        // `Superseded`.
        unsafe {
            let chain = Chain::from_handle(handle);
            if let Some(newest) = chain.head().newest() {
                newest.get().free(Free::BehindGuards, guard);
            }
            guard.retire(chain.head.cast(), CHAIN_BYTES);
        }
    }
}

impl Chains {
    /// The chain of a key.
    #[inline]
    pub(super) fn find<'g, K: EncodedKey>(entries: &Store<Self>, key: K, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        entries.index().find(key, guard).map(|handle| found(handle, guard))
    }

    /// The chain of a key that had none just before.
    pub(super) fn make_or_find<'g, K: EncodedKey>(
        entries: &Store<Self>,
        key: K,
        guard: &'g Guard<'_>,
    ) -> Result<Chain<'g>, Error> {
        make_chain(|handle| entries.index().insert(key, handle, &mut (), guard), guard)
    }

    /// Starts fetching the newest version of a chain that a hint has led to, with a row of so many words.
    #[inline]
    pub(super) fn fetch_newest(record: Hinted<'_>, words: usize) {
        // SAFETY: an index of this protocol gave it, under a guard that is held.
        unsafe { Chain::from_handle(record.handle()) }.prefetch_newest(words);
    }
}

/// Lists of intents by their keys.
#[derive(Debug)]
pub(super) struct Lists {
    index: ManuallyDrop<HashIndex>,
    deferred_drops: Arc<DeferredDrops>,
}

impl Lists {
    pub(super) fn new(seed: HashSeed, deferred_drops: &Arc<DeferredDrops>) -> Result<Self, Error> {
        let index = deferred_drops.with_guard(|guard| HashIndex::new(0, seed, guard))?;
        Ok(Self { index: ManuallyDrop::new(index), deferred_drops: Arc::clone(deferred_drops) })
    }

    /// The list of a key.
    pub(super) fn find<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        self.index.find(key, guard).map(|handle| found(handle, guard))
    }

    /// Makes a list for a key that has none.
    pub(super) fn make<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Result<Chain<'g>, Error> {
        make_chain(|handle| self.index.insert(key, handle, &mut (), guard), guard)
    }

    /// Removes a list, and frees it.
    pub(super) fn remove<K: EncodedKey>(&self, key: K, list: Chain<'_>, guard: &Guard<'_>) {
        list.retire(self.index.remove(key, list.handle(), guard), guard);
    }

    /// Visits all lists.
    pub(super) fn for_each<'g>(&self, mut visit: impl FnMut(&[u8], Chain<'g>), guard: &'g Guard<'_>) {
        let mut bytes = Vec::new();
        self.index.for_each(
            |_, entries| {
                for entry in entries {
                    bytes.resize(entry.key.len(), 0);
                    entry.key.write_to(&mut bytes);
                    visit(&bytes, found(entry.handle, guard));
                }
            },
            guard,
        );
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        if self.deferred_drops.is_closing() {
            return;
        }
        self.deferred_drops.with_guard(|guard| {
            // SAFETY: nothing uses the index or looks at the field from now on. It is empty: the planning thread keeps the store until then.
            unsafe { ManuallyDrop::take(&mut self.index).destroy(guard) };
        });
    }
}
