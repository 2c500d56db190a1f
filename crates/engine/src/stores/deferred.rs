//! Frees the memory of dropped stores, and walks over whole indexes.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, PoisonError};

use polychron_base::Error;
use polychron_base::error::Opponent;
use polychron_base::key::{EncodedKey, Key16};
use polychron_index::{AnyIndex, Handle, Stamp, ordered};
use polychron_memory::{Epochs, Guard, Local, Memory};
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{Backoff, Mutex};

use crate::catalog::{Catalog, Described};
use crate::limits;

/// A database's own place in the epochs, which belongs to no worker.
#[derive(Debug)]
pub struct DeferredDrops {
    local: Mutex<Local>,
    closing: AtomicBool,
}

impl DeferredDrops {
    /// Claims one of the slots that are not for users.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`].
    pub fn new(memory: &Arc<Memory>) -> Result<Self, Error> {
        Ok(Self { local: Mutex::new(memory.register_own()?), closing: AtomicBool::new(false) })
    }

    /// From now on dropped stores leave their memory to the memory's own end.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether the database is going, and its memory with it.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Runs `work` inside an epoch. `work` must not drop a store, which would come here again.
    pub fn with_guard<O>(&self, work: impl FnOnce(&Guard<'_>) -> O) -> O {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        work(&local.pin())
    }

    /// Gives back what waits, as far as no guard still holds it.
    pub fn collect(&self) {
        self.local.lock().unwrap_or_else(PoisonError::into_inner).collect();
    }

    /// As [`DeferredDrops::collect`], and lets dropped tables go that no guard still holds, whose memory then waits in turn.
    pub fn maintain<T: Described>(&self, catalog: &Catalog<T>, epochs: &Epochs) {
        self.collect();
        catalog.release(epochs);
    }

    /// Gives back the memory of a table or an index that was dropped. Where no transaction runs, all of it goes; otherwise the
    /// rest goes with [`DeferredDrops::maintain`] or the next that is dropped. `tick` ends an epoch.
    pub fn give_back<T: Described>(&self, catalog: &Catalog<T>, epochs: &Epochs, tick: impl Fn()) {
        // The list of tables waits for the guards of one epoch, and the records, which are found then, for those of the next.
        for _ in 0..4 {
            self.maintain(catalog, epochs);
            tick();
        }
    }
}

/// Ends epochs until no transaction of `epoch`, or of one before, is running. The calling thread has nothing pinned: it would wait for
/// itself ([`Epochs::is_pinned_here`]).
///
/// # Errors
/// The errors of [`limits::check`], with the transaction that is waited for.
pub fn wait_for(epochs: &Epochs, epoch: u64) -> Result<(), Error> {
    debug_assert!(!epochs.is_pinned_here(), "this thread is pinned in an epoch whose end it waits for");
    let mut backoff = Backoff::new();
    while epochs.readonly() < epoch {
        limits::check().map_err(|error| error.waiting_for(epochs.oldest_pinned(epoch).map(Opponent::of_worker)))?;
        epochs.advance();
        backoff.wait();
    }
    Ok(())
}

/// Visits every key and handle of an index: in order when it has one.
pub fn for_each(index: &AnyIndex, guard: &Guard<'_>, visitor: &mut dyn FnMut(&[u8], Handle)) {
    match index {
        AnyIndex::Ordered(index) => {
            let mut all = All { visitor };
            index.scan(Bound::Unbounded, Bound::Unbounded, ordered::Direction::Forward, &mut all, guard);
        }
        AnyIndex::Hash(index) => {
            let mut bytes = Vec::new();
            index.for_each(
                |_, entries| {
                    for entry in entries {
                        bytes.resize(EncodedKey::len(&entry.key), 0);
                        EncodedKey::write_to(&entry.key, &mut bytes);
                        visitor(&bytes, entry.handle);
                    }
                },
                guard,
            );
        }
    }
}

struct All<'v> {
    visitor: &'v mut dyn FnMut(&[u8], Handle),
}

impl ordered::Visitor for All<'_> {
    fn node(&mut self, _: Stamp) {}

    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        (self.visitor)(key, handle);
        ControlFlow::Continue(())
    }
}

/// A key that is kept for later; short ones need no allocation.
#[derive(Debug)]
pub enum OwnedKey {
    /// Up to 16 bytes.
    Short(Key16),
    /// More.
    Long(Box<[u8]>),
}

impl OwnedKey {
    /// Keeps a key.
    pub fn new<K: EncodedKey>(key: K) -> Self {
        let long = || {
            let mut bytes = vec![0; key.len()];
            key.write_to(&mut bytes);
            Self::Long(bytes.into())
        };
        Key16::from_key(key).map_or_else(long, Self::Short)
    }
}

/// Many keys, one after the other in one allocation.
#[derive(Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a key.
    #[inline]
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The number of deferred drops.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at a position.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub fn get(&self, position: usize) -> &[u8] {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.bytes[start..self.ends[position]]
    }
}
