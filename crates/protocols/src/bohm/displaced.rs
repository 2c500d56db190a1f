//! Deleted keys that only snapshots see leave their index for one beside it.
//!
//! A row that a snapshot sees keeps its chain when it is deleted. If its key stayed in the index, a queue would be scanned through all rows that
//! were deleted since the snapshot began. So when collection leaves such a key for a snapshot, the thread that plans its partition *displaces*
//! the key:
//!
//! 1. its chain goes into the index beside;
//! 2. `until` is raised to the batch of the deletion, which is finished;
//! 3. the chain is sealed and takes no further version: a key that comes back gets another chain, as with a closed one;
//! 4. the key leaves the index.
//!
//! Every transaction that is executed, now and from now on, is of a later batch: it sees no such row, and reads the index alone. A snapshot of an
//! earlier batch that finds no row of a key searches the index beside, and its scans go along both. It reads `until` after the index: where step
//! 4 made it miss a key, step 2 is visible. Later batches only grow, so `until` is never lowered.
//!
//! Once no snapshot still sees the row, the chain is closed as others are, and leaves the index beside.

use polychron_base::key::EncodedKey;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{self, Base, StoreDefinition};
use polychron_index::AnyIndex;
use polychron_memory::Guard;
use polychron_schema::IndexKind;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::chain::{Chain, Chains};
use super::steps::Step;
use super::table::BohmStore;
use super::timestamp::Timestamp;

/// The index beside, and the latest deletion of a key in it.
#[derive(Debug)]
pub(super) struct Displaced {
    /// None beside a hash table, of which no ranges are scanned, and where there was no memory for it: then deleted keys stay where they are.
    entries: Option<stores::Store<Chains>>,
    /// Snapshots of this batch, or of a later one, see nothing of what lies beside.
    until: AtomicU64,
}

impl Displaced {
    pub(super) fn new(base: &Base<BohmStore>, definition: &StoreDefinition) -> Self {
        let is_scanned = definition.kind == IndexKind::Ordered;
        let entries = if is_scanned { base.store_beside(definition) } else { None };
        Self { entries, until: AtomicU64::new(0) }
    }

    /// One for models.
    #[cfg(all(test, loom))]
    pub(super) fn without_index() -> Self {
        Self { entries: None, until: AtomicU64::new(0) }
    }

    pub(super) fn index(&self) -> Option<&AnyIndex> {
        self.entries.as_ref().map(stores::Store::index)
    }

    /// The chain of a key that lies beside.
    pub(super) fn find<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        Chains::find(self.entries.as_ref()?, key, guard)
    }

    /// Whether rows that are seen at this timestamp may lie beside.
    #[inline]
    pub(super) fn concern(&self, timestamp: Timestamp) -> bool {
        // Acquire: pairs with the release in `raise`.
        timestamp.batch() < self.until.load(Ordering::Acquire) && !left_out(Step::LookBeside)
    }

    /// Makes known that what was deleted up to this batch may lie beside.
    pub(super) fn raise(&self, batch: u64) {
        // Release: pairs with the acquire in `concern`.
        self.until.fetch_max(batch, Ordering::Release);
    }
}
