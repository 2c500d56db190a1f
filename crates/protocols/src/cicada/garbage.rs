//! Records that have garbage, as they wait to be collected (`reclaim.rs`).

use polychron_engine::stores::{IndexRef, OwnedKey};

use super::reclaim::Site;
use super::record::{OfRecord, Queued, Record, Tagged};
use super::table::Store;
use super::timestamp::Timestamp;

/// The store and the record of an item, unless the store has gone.
pub(super) type Found<'s> = Option<(&'s Store, Record<'s>)>;

/// A record that is collected: the address, and the store in which it lies, as one of a row or of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) place: IndexRef,
    /// With whether it is a node. A flag of its own would make each entry of a queue 8 bytes longer, and a backlog has an entry for each record.
    pub(super) record: Tagged<OfRecord>,
}

impl Item {
    /// # Safety
    /// The record lies in that store, as one of a row or of a node as is said. The item goes into a bin, where it keeps the record's page ([`Bins::are_empty`]),
    /// or is used under the guard under which the record was found.
    ///
    /// [`Bins::are_empty`]: super::bins::Bins::are_empty
    #[inline]
    pub(super) unsafe fn new(place: IndexRef, is_node: bool, record: Record<'_>) -> Self {
        Self { place, record: Tagged::new(record.address(), is_node) }
    }

    #[inline]
    pub(super) fn place(self) -> IndexRef {
        self.place
    }

    /// The store and the record. A dropped table or index gives its records back as a whole: without it they are not looked at.
    #[inline]
    pub(super) fn found<'s>(self, site: &Site<'s>) -> Found<'s> {
        let store = site.store(self.place)?;
        // SAFETY: the record lies in the store, and its page stays while the item waits in a bin, or under the site's guard.
        Some((store, unsafe { self.record.address().under(site.guard) }))
    }
}

// A backlog has an entry for each record that was written, beside the memory limit.
const _: () = assert!(size_of::<Garbage>() <= 56);

/// A record that has garbage.
#[derive(Debug)]
pub(super) struct Garbage {
    pub(super) item: Item,
    /// What lies behind a version of this timestamp is garbage.
    pub(super) wts: Timestamp,
    /// What the index has to do with it.
    pub(super) entry: Entry,
}

/// What an index has to do with garbage of a record.
#[derive(Debug)]
pub(super) enum Entry {
    /// Nothing: the record stays.
    Stays,
    /// The record may have to leave the index, where it stands under this key.
    Key(OwnedKey),
    /// The deletion that made the garbage has unlinked the record from a multi-version index.
    Unlinked,
}

impl Entry {
    /// What the record's mark says of an item with this entry.
    #[inline]
    pub(super) fn kind(&self) -> Queued {
        if matches!(self, Self::Stays) { Queued::Versions } else { Queued::Leaving }
    }
}
