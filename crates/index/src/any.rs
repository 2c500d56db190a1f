//! Either index behind one interface, for tables that let their definition choose.

use polychron_base::key::EncodedKey;
use polychron_memory::{Guard, OutOfMemory};

use crate::hash::HashIndex;
use crate::ordered::OrderedIndex;
use crate::{Changes, Handle, Inserted, Lookup};

/// An index of either kind. The branch is the same for a table's whole life, so it is predicted.
#[derive(Debug)]
pub enum AnyIndex {
    /// Ordered: ranges, minimum, maximum.
    Ordered(OrderedIndex),
    /// Hash: points only, one cache line a lookup.
    Hash(HashIndex),
}

macro_rules! either {
    ($self:expr, $index:ident => $call:expr) => {
        match $self {
            AnyIndex::Ordered($index) => $call,
            AnyIndex::Hash($index) => $call,
        }
    };
}

impl AnyIndex {
    /// Looks a key up.
    #[inline]
    pub fn get<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> Lookup {
        either!(self, index => index.get(key, guard))
    }

    /// Looks a key's handle up, without the stamp.
    #[inline]
    pub fn find<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> Option<Handle> {
        match self {
            Self::Ordered(index) => index.get(key, guard).handle,
            Self::Hash(index) => index.find(key, guard),
        }
    }

    /// Inserts a key that is absent.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the index is then as it was.
    #[inline]
    pub fn insert<K: EncodedKey>(
        &self,
        key: K,
        handle: Handle,
        changes: &mut impl Changes,
        guard: &Guard<'_>,
    ) -> Result<Inserted, OutOfMemory> {
        either!(self, index => index.insert(key, handle, changes, guard))
    }

    /// Removes a key if it still maps to `expected`.
    #[inline]
    pub fn remove<K: EncodedKey>(&self, key: K, expected: Handle, guard: &Guard<'_>) -> bool {
        either!(self, index => index.remove(key, expected, guard))
    }

    /// Gives a key another handle if it still maps to `expected`.
    #[inline]
    pub fn replace<K: EncodedKey>(&self, key: K, expected: Handle, new: Handle, guard: &Guard<'_>) -> bool {
        either!(self, index => index.replace(key, expected, new, guard))
    }

    /// Starts bringing the first line of a lookup into the cache.
    #[inline]
    pub fn prefetch<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) {
        match self {
            Self::Ordered(index) => drop(index.start(key, guard)),
            Self::Hash(index) => {
                index.prefetch(key, guard);
            }
        }
    }

    /// Gives the index's memory back; what its handles mean is the caller's business.
    ///
    /// # Safety
    /// No thread uses the index, now or later.
    pub unsafe fn destroy(self, guard: &Guard<'_>) {
        // SAFETY: the caller promises the same.
        unsafe {
            match self {
                Self::Ordered(index) => index.destroy(guard),
                Self::Hash(mut index) => index.destroy(guard),
            }
        }
    }
}
