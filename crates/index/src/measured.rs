//! A key whose length was asked for once.

use polychron_base::key::{EncodedKey, HashSeed, MAX_KEY_BYTES};

/// A key whose length is at most [`MAX_KEY_BYTES`] and stays as it was: the size of an entry's memory and what is written to it go by
/// one answer, whatever a type of keys answers the second time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<K> {
    key: K,
    len: usize,
}

impl<K: EncodedKey> Measured<K> {
    /// `None`: it is too long.
    #[inline]
    pub(crate) fn new(key: K) -> Option<Self> {
        let len = key.len();
        (len <= MAX_KEY_BYTES).then_some(Self { key, len })
    }

    /// One that is going to be inserted.
    ///
    /// # Panics
    /// When it is too long.
    #[inline]
    pub(crate) fn inserted(key: K) -> Self {
        Self::new(key).expect("a key that is inserted is not too long")
    }
}

impl<K: EncodedKey> EncodedKey for Measured<K> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        self.key.slice(index)
    }

    /// The key's own: a wrong one leads to a wrong bucket, and nowhere else.
    #[inline]
    fn hash(&self, seed: HashSeed) -> u64 {
        self.key.hash(seed)
    }
}
