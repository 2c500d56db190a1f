//! Fingers: where a running transaction found its last keys in some ordered indexes. Keys that lie near each other, such as those of
//! an order's lines, are then found without going down the tree.

use polychron_base::key::EncodedKey;
use polychron_index::ordered::Finger;
use polychron_index::{AnyIndex, Changes, Handle, Inserted, Lookup};
use polychron_memory::{Guard, OutOfMemory};

use super::{IndexRef, Records, Store};

/// A finger for each of the indexes that were used last.
///
/// Fingers are good under the guard under which they were set: a thread that renews it, or begins with another one, clears them
/// first. They are kept by index; no index gets the place of another while a transaction that knew that one runs.
#[derive(Debug, Default)]
pub struct Fingers {
    rooms: [(Option<IndexRef>, Finger); 4],
    used: bool,
}

impl Fingers {
    /// The finger of an index; an empty one when another index had its room.
    #[inline]
    fn of(&mut self, index_ref: IndexRef) -> &mut Finger {
        self.used = true;
        let room = (index_ref.table.position() ^ (index_ref.index.position() << 1)) % self.rooms.len();
        let (of, finger) = &mut self.rooms[room];
        if *of != Some(index_ref) {
            (*of, *finger) = (Some(index_ref), Finger::default());
        }
        finger
    }

    /// Looks a key up, in an ordered index near where its last key was.
    ///
    /// # Safety
    /// The guard has been the caller's, and was not renewed, since the fingers were cleared.
    #[inline]
    pub unsafe fn get<K: EncodedKey, R: Records>(&mut self, store: &Store<R>, key: K, guard: &Guard<'_>) -> Lookup {
        match store.index() {
            // SAFETY: the finger is this index's, set under the guard.
            AnyIndex::Ordered(index) => unsafe { index.get_near(key, self.of(store.index_ref), guard) },
            AnyIndex::Hash(index) => index.get(key, guard),
        }
    }

    /// As [`Fingers::get`], of the handle alone.
    ///
    /// # Safety
    /// As for [`Fingers::get`].
    #[inline]
    pub unsafe fn find<K: EncodedKey, R: Records>(
        &mut self,
        store: &Store<R>,
        key: K,
        guard: &Guard<'_>,
    ) -> Option<Handle> {
        match store.index() {
            // SAFETY: as in `get`.
            AnyIndex::Ordered(index) => unsafe { index.get_near(key, self.of(store.index_ref), guard) }.handle,
            AnyIndex::Hash(index) => index.find(key, guard),
        }
    }

    /// Inserts a key that is absent.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the index is then as it was.
    ///
    /// # Safety
    /// As for [`Fingers::get`].
    #[inline]
    pub unsafe fn insert<K: EncodedKey, R: Records>(
        &mut self,
        store: &Store<R>,
        key: K,
        handle: Handle,
        changes: &mut impl Changes,
        guard: &Guard<'_>,
    ) -> Result<Inserted, OutOfMemory> {
        match store.index() {
            // SAFETY: as in `get`.
            AnyIndex::Ordered(index) => unsafe {
                index.insert_near(key, handle, self.of(store.index_ref), changes, guard)
            },
            AnyIndex::Hash(index) => index.insert(key, handle, changes, guard),
        }
    }

    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        if self.used {
            *self = Self::default();
        }
    }
}
