//! Chains of versions, and the indexes that lead to them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
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
use super::version::{Fresh, HEADER_BYTES, Old, RawVersion, State, Version};

/// Bytes of a chain; a model checker's words are larger.
const CHAIN_BYTES: usize = size_of::<Head>().next_multiple_of(16);
const _: () = assert!(polychron_sync::MODELLED || CHAIN_BYTES == 16);

/// The head of a chain that is being taken out of its index.
const CLOSED: u64 = 1;
/// The mark of a chain that lies beside its index, next to the address of its newest version. Versions lie at multiples of 8.
const SEALED: u64 = 2;

/// The versions of a key, newest first, or intents.
#[derive(Debug)]
pub(super) struct Head(AtomicU64);

impl Head {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The newest version.
    #[inline]
    pub(super) fn newest(&self) -> Option<RawVersion> {
        // Acquire: pairs with the release of who put the version there.
        let address = self.0.load(Ordering::Acquire);
        if address == CLOSED { None } else { RawVersion::from_address(address & !SEALED) }
    }

    /// The newest version that does not begin after a timestamp.
    ///
    /// # Safety
    /// Of this timestamp there is a transaction under way, or a snapshot open, until `'g` is over, and the caller has a guard: so the version
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

    /// Puts a version on top; answers the one it supersedes. `Err`: the chain is closed, and has not taken it.
    ///
    /// # Safety
    /// The version begins after all others. No two threads do so at a time, and no version is put in two chains.
    #[inline]
    pub(super) unsafe fn push<'g>(&self, fresh: Fresh<'g>) -> Result<Option<Old>, Fresh<'g>> {
        let version = fresh.raw();
        let mut newest = self.0.load(Ordering::Acquire);
        loop {
            if newest & (CLOSED | SEALED) != 0 {
                return Err(fresh);
            }
            fresh.set_below(RawVersion::from_address(newest));
            // Release: who finds the version finds it whole. Acquire: another one came in between.
            let exchanged = self.0.compare_exchange(newest, version.address(), Ordering::AcqRel, Ordering::Acquire);
            match exchanged {
                Ok(_) => return Ok(RawVersion::from_address(newest).map(|below| Old::new(below, version))),
                Err(other) => newest = other,
            }
        }
    }

    /// Puts a version where it belongs, perhaps below others; answers which version is now superseded, and by a version of which batch. `Err`:
    /// as in `push`.
    ///
    /// # Safety
    /// The caller has a guard, and executes the transaction of the version. Below the newest one only the thread that executes the latest
    /// transaction of those that may write here unplanned puts versions, and it is alone.
    pub(super) unsafe fn insert<'g>(&self, fresh: Fresh<'g>) -> Result<Option<(Old, u64)>, Fresh<'g>> {
        let (version, begin) = (fresh.raw(), fresh.begin());
        loop {
            let newest = self.0.load(Ordering::Acquire);
            if newest & (CLOSED | SEALED) != 0 {
                return Err(fresh);
            }
            let mut above: Option<Version<'_>> = None;
            let mut below = RawVersion::from_address(newest);
            while let Some(next) = below {
                // SAFETY: those above stay until their batches are finished, which this one's is not, and so does the one below.
                let other = unsafe { next.get() };
                if other.begin() <= begin {
                    debug_assert!(other.begin() < begin, "a transaction has one version of a key");
                    break;
                }
                above = Some(other);
                below = other.below();
            }
            fresh.set_below(below);
            if let Some(above) = above {
                // Release: pairs with the acquire in `below`.
                above.set_below(Some(version), Ordering::Release);
                return Ok(Some((Old::new(version, above.raw()), above.begin().batch())));
            }
            // Release: pairs with the acquire in `newest`.
            let exchanged = self.0.compare_exchange(newest, version.address(), Ordering::AcqRel, Ordering::Relaxed);
            if exchanged.is_ok() {
                return Ok(below.map(|below| (Old::new(below, version), begin.batch())));
            }
        }
    }

    /// Closes the chain if this version is its newest, and answers it. The caller alone seals and closes it.
    pub(super) fn close(&self, version: RawVersion) -> Option<Old> {
        let newest = version.address() | if self.is_sealed() { SEALED } else { 0 };
        // Relaxed: nothing is read through the head from now on. A closed chain is as good as an absent key.
        let closed = self.0.compare_exchange(newest, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        closed.is_ok().then_some(Old::new(version, version))
    }

    /// Keeps further versions out of the chain if this one, which says that the key is absent, is its newest. What is there is read as before.
    pub(super) fn seal(&self, version: RawVersion) -> bool {
        // Relaxed: an exchange hands on what was released by who put the version there.
        let sealed = version.address() | SEALED;
        self.0.compare_exchange(version.address(), sealed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the chain was sealed, for who may seal it.
    pub(super) fn is_sealed(&self) -> bool {
        let newest = self.0.load(Ordering::Relaxed);
        newest & SEALED != 0
    }
}

/// A list of intents.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Intents(Head);

impl Deref for Intents {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        &self.0
    }
}

impl Intents {
    pub(super) fn new() -> Self {
        Self(Head::new())
    }

    /// Calls `wait` with each transaction before a timestamp that is pending, from the latest on down to those that are
    /// known to be complete.
    ///
    /// # Safety
    /// The caller has a guard for `'g`, and had it before it looked how far batches are finished.
    pub(super) unsafe fn await_pending<'g>(
        &self,
        before: Timestamp,
        finished: u64,
        mut wait: impl FnMut(&'g Planned, Timestamp) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut next, mut latest) = (self.newest(), None);
        while let Some(intent) = next {
            // SAFETY: the caller says so; what a finished batch has superseded is cut off before it goes.
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

/// A chain in memory of its own, to which an index leads; it stays for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain<'g> {
    place: NonNull<Head>,
    _stays: PhantomData<&'g Head>,
}

impl<'g> Chain<'g> {
    /// The chain behind a handle.
    ///
    /// # Safety
    /// The handle was found in an index of chains under a guard that stands for `'g`.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        Self { place: pointer_of(handle), _stays: PhantomData }
    }

    #[inline]
    pub(super) fn handle(self) -> Handle {
        handle_of(self.place)
    }

    #[inline]
    pub(super) fn head(self) -> &'g Head {
        // SAFETY: the chain stays for that time.
        unsafe { self.place.as_ref() }
    }

    #[inline]
    pub(super) fn prefetch(self) {
        polychron_sync::prefetch_read(self.place.as_ptr());
    }

    /// Closes the chain if this version is its newest, takes it out of its index, and gives it back; its versions are given back by who superseded
    /// them. Answers the version. The caller alone seals and closes the chain.
    pub(super) fn take_out(
        self,
        index: Option<&AnyIndex>,
        key: &OwnedKey,
        version: RawVersion,
        guard: &Guard<'_>,
    ) -> Option<Old> {
        let old = self.head().close(version)?;
        let removed = index.is_some_and(|index| match key {
            OwnedKey::Short(key) => index.remove(*key, self.handle(), guard),
            OwnedKey::Long(key) => index.remove(&**key, self.handle(), guard),
        });
        assert!(removed, "who closes a chain takes it out");
        // SAFETY: the index does not lead there any more, since now and by this.
        unsafe { guard.retire(self.place.cast(), CHAIN_BYTES) };
        Some(old)
    }
}

/// Makes a chain and has it inserted, unless there is one by now.
fn make_chain<'g>(
    insert: impl FnOnce(Handle) -> Result<Inserted, OutOfMemory>,
    guard: &'g Guard<'_>,
) -> Result<Chain<'g>, Error> {
    let place = guard.allocate(CHAIN_BYTES)?.cast::<Head>();
    // SAFETY: the block has room for a head, is aligned to 16 bytes, and nobody else knows it.
    unsafe { place.write(Head::new()) };
    let inserted = insert(handle_of(place));
    if let Ok(Inserted::New) = inserted {
        return Ok(Chain { place, _stays: PhantomData });
    }
    // SAFETY: the index did not take it.
    unsafe { guard.free(place.cast(), CHAIN_BYTES) };
    let Inserted::Existing(found) = inserted? else { unreachable!("a new key was answered above") };
    // SAFETY: the handle was found under the guard.
    Ok(unsafe { Chain::from_handle(found.handle.expect("an existing key has a handle")) })
}

/// Chains behind an index.
#[derive(Debug)]
pub enum Chains {}

impl Records for Chains {
    const HEADER_BYTES: usize = HEADER_BYTES;

    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller says that nobody finds the chain any more. What lies below its newest version is given back by who
        // superseded it.
        unsafe {
            let chain = Chain::from_handle(handle);
            if let Some(newest) = chain.head().newest() {
                newest.get().retire(guard);
            }
            guard.retire(chain.place.cast(), CHAIN_BYTES);
        }
    }
}

impl Chains {
    /// The chain of a key.
    #[inline]
    pub(super) fn find<'g, K: EncodedKey>(entries: &Store<Self>, key: K, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        // SAFETY: the handle was found under the guard.
        entries.index().find(key, guard).map(|handle| unsafe { Chain::from_handle(handle) })
    }

    /// The chain of a key that had none a moment ago.
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
        let chain: Chain<'_> = unsafe { Chain::from_handle(record.handle()) };
        if let Some(newest) = chain.head().newest() {
            newest.prefetch();
            newest.prefetch_row(words);
        }
    }
}

/// A list of intents in memory of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'g> {
    handle: Handle,
    intents: &'g Intents,
}

impl<'g> List<'g> {
    /// The list behind a handle.
    ///
    /// # Safety
    /// It was found in [`Lists`], under a guard that stands for `'g`, or by who takes the list out.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        // SAFETY: the caller says so; a list of intents is a head.
        Self { handle, intents: unsafe { pointer_of::<Intents>(handle).as_ref() } }
    }

    pub(super) fn handle(self) -> Handle {
        self.handle
    }

    #[inline]
    pub(super) fn intents(self) -> &'g Intents {
        self.intents
    }
}

/// Lists of intents by their keys.
#[derive(Debug)]
pub(super) struct Lists {
    index: ManuallyDrop<HashIndex>,
    deferred_drops: Arc<DeferredDrops>,
    is_destroyed: bool,
}

impl Lists {
    pub(super) fn new(seed: HashSeed, deferred_drops: &Arc<DeferredDrops>, guard: &Guard<'_>) -> Result<Self, Error> {
        let index = ManuallyDrop::new(HashIndex::new(0, seed, guard)?);
        Ok(Self { index, deferred_drops: Arc::clone(deferred_drops), is_destroyed: false })
    }

    /// The list of a key.
    pub(super) fn find<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Option<List<'g>> {
        // SAFETY: the handle was found under the guard.
        self.index.find(key, guard).map(|handle| unsafe { List::from_handle(handle) })
    }

    /// Makes a list for a key that has none.
    pub(super) fn make<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Result<List<'g>, Error> {
        let made = make_chain(|handle| self.index.insert(key, handle, &mut (), guard), guard)?;
        // SAFETY: it is in the index, and was found under the guard.
        Ok(unsafe { List::from_handle(made.handle()) })
    }

    /// Takes a list out, and gives it back.
    pub(super) fn remove<K: EncodedKey>(&self, key: K, list: List<'_>, guard: &Guard<'_>) {
        assert!(self.index.remove(key, list.handle(), guard), "who closes a list takes it out");
        // SAFETY: the index does not lead there any more, since now and by this.
        unsafe { guard.retire(pointer_of(list.handle()), CHAIN_BYTES) };
    }

    /// Visits all lists.
    pub(super) fn for_each<'g>(&self, mut visit: impl FnMut(&[u8], List<'g>), guard: &'g Guard<'_>) {
        let mut bytes = Vec::new();
        self.index.for_each(
            |_, entries| {
                for entry in entries {
                    bytes.resize(entry.key.len(), 0);
                    entry.key.write_to(&mut bytes);
                    // SAFETY: the handle was found under the guard.
                    visit(&bytes, unsafe { List::from_handle(entry.handle) });
                }
            },
            guard,
        );
    }

    /// Gives the index back, of whose lists there are none: by a caller who has the deferred drops' guard, for which a drop would ask.
    pub(super) fn destroy(mut self, guard: &Guard<'_>) {
        self.destroy_once(guard);
    }

    fn destroy_once(&mut self, guard: &Guard<'_>) {
        if !std::mem::replace(&mut self.is_destroyed, true) {
            // SAFETY: nobody uses the index any more, or looks at the field again. It is empty: who plans keeps the store until then.
            unsafe { ManuallyDrop::take(&mut self.index).destroy(guard) };
        }
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        if self.is_destroyed || self.deferred_drops.is_closing() {
            return;
        }
        let deferred_drops = Arc::clone(&self.deferred_drops);
        deferred_drops.with_guard(|guard| self.destroy_once(guard));
    }
}
