//! The keys of a planned transaction, and what is found and put there.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::key::{EncodedKey, Key16};
use polychron_index::Handle;
use polychron_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::chain::Chain;
use super::table::BohmStore;
use super::version::{Fresh, RawVersion};

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

/// A key that outlives its entry.
pub(super) type KeptKey = (Key16, Option<LongKey>);

/// A key of a transaction. The thread that plans for the key writes what it finds, and the thread that executes the transaction what it puts.
#[derive(Debug)]
pub(super) struct Entry {
    /// The address in the store's `Arc`, so that the store can be kept by it; none of an entry of everything.
    store: Option<NonZeroUsize>,
    pub(super) hash: u64,
    key: Key16,
    long: Option<LongKey>,
    /// The placeholder; of a key that is read the version to read, if there is one.
    version: AtomicU64,
    /// The chain of the placeholder.
    chain: AtomicU64,
    pub(super) want: Want,
    put: AtomicU8,
    /// Which thread of concurrency control the key belongs to.
    pub(super) partition: u16,
    /// The transaction in the client batch.
    pub(super) owner: u32,
}

/// An entry of a transaction that is under way, so that its store is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a>(&'a Entry);

impl Deref for Known<'_> {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        self.0
    }
}

impl<'a> Known<'a> {
    /// The entry.
    ///
    /// # Safety
    /// The store is kept for `'a`: by the client's guard while the transaction is under way, and if it was not planned by the database until
    /// its batch is finished.
    #[inline]
    pub(super) unsafe fn new(entry: &'a Entry) -> Self {
        Self(entry)
    }

    /// The store of its key.
    #[inline]
    pub(super) fn store(self) -> &'a BohmStore {
        // SAFETY: the caller of `new` said that the store is kept.
        unsafe { NonNull::with_exposed_provenance(self.0.store.expect("it is of a key")).as_ref() }
    }

    /// The version that was planned, and whether its transaction fills it. Such entries stay as they were planned.
    #[inline]
    fn lead(self) -> Option<(RawVersion, bool)> {
        match self.want {
            Want::Read => Some((self.version()?, false)),
            Want::Write | Want::Update => Some((self.version()?, true)),
            _ => None,
        }
    }

    /// Starts fetching the version that was planned.
    #[inline]
    pub(super) fn fetch_version(self) {
        if let Some((version, _)) = self.lead() {
            version.prefetch();
        }
    }

    /// Starts fetching the row that will be read, and the memory of one that will be written. The version that is read may be freed by now,
    /// when a late write has superseded it.
    #[inline]
    pub(super) fn fetch_row(self) {
        let Some((version, is_placeholder)) = self.lead() else { return };
        let words = self.store().row_words;
        version.prefetch_row(words);
        // SAFETY: a placeholder stays until its batch is finished.
        if is_placeholder && let Some(below) = unsafe { version.get() }.below() {
            below.prefetch();
            below.prefetch_row(words);
        }
    }

    /// The store, to be kept for longer.
    pub(super) fn keep_store(self) -> Arc<BohmStore> {
        let store: *const BohmStore = self.store();
        // SAFETY: stores lie in `Arc`s, and this one is alive.
        unsafe {
            Arc::increment_strong_count(store);
            Arc::from_raw(store)
        }
    }
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
    pub(super) fn new<K: EncodedKey>(
        store: Option<&Arc<BohmStore>>,
        key: K,
        hash: u64,
        want: Want,
        owner: u32,
    ) -> Self {
        let short = Key16::from_key(key);
        let long = short.is_none().then(|| {
            let mut bytes = vec![0; key.len()];
            key.write_to(&mut bytes);
            bytes.into()
        });
        let key = short.unwrap_or(Key16::new(0, 0));
        let store = store.and_then(|store| NonZeroUsize::new(Arc::as_ptr(store).expose_provenance()));
        let (version, chain, put) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU8::new(Put::Nothing as u8));
        Self { store, hash, key, long, version, chain, want, put, partition: 0, owner }
    }

    /// The placeholder; of a key that is read the version to read, if there is one.
    #[inline]
    pub(super) fn version(&self) -> Option<RawVersion> {
        // Relaxed, here and below: the barrier of the batch hands on what was planned, and the transaction's state what was put.
        RawVersion::from_address(self.version.load(Ordering::Relaxed))
    }

    /// Sets the version, and of a placeholder the chain in which it is.
    ///
    /// # Safety
    /// The version stays until the transaction of the entry is complete. A placeholder is put into that chain by the transaction of the entry, whose
    /// batch is not finished.
    #[inline]
    pub(super) unsafe fn set_version(&self, version: RawVersion, chain: Option<Chain<'_>>) {
        self.version.store(version.address(), Ordering::Relaxed);
        self.chain.store(chain.map_or(0, |chain| chain.handle().get()), Ordering::Relaxed);
    }

    /// Sets a version that is put into no chain: the entry alone has it.
    pub(super) fn guess(&self, version: Fresh<'_>) {
        self.version.store(version.keep().address(), Ordering::Relaxed);
    }

    /// The entry no longer has a version.
    pub(super) fn forget_version(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// The chain in which the version was put. It is returned once.
    #[inline]
    pub(super) fn take_chain(&self) -> Option<Handle> {
        let chain = Handle::new(self.chain.load(Ordering::Relaxed));
        self.chain.store(0, Ordering::Relaxed);
        chain
    }

    /// What the transaction has put so far.
    #[inline]
    pub(super) fn put(&self) -> Put {
        match self.put.load(Ordering::Relaxed) {
            put if put == Put::Row as u8 => Put::Row,
            put if put == Put::Deletion as u8 => Put::Deletion,
            _ => Put::Nothing,
        }
    }

    #[inline]
    pub(super) fn set_put(&self, put: Put) {
        self.put.store(put as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn key(&self) -> AnyKey<'_> {
        match &self.long {
            None => AnyKey::Short(self.key),
            Some(long) => AnyKey::Long(long),
        }
    }

    /// The key as one that outlives the entry: short, or long.
    pub(super) fn kept_key(&self) -> KeptKey {
        (self.key, self.long.clone())
    }

    /// Whether it is of this key.
    #[inline]
    pub(super) fn is_of<K: EncodedKey>(&self, store: *const BohmStore, hash: u64, key: K) -> bool {
        self.hash == hash
            && self.is_in(store)
            && (self.is_written() || self.want == Want::Read)
            && same(self.key(), key)
    }

    /// Whether it is of everything.
    pub(super) fn is_of_no_store(&self) -> bool {
        self.store.is_none()
    }

    /// Whether its key is one of this store.
    #[inline]
    pub(super) fn is_in(&self, store: *const BohmStore) -> bool {
        self.store.is_some_and(|own| own.get() == store.addr())
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
