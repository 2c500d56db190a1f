//! Encoded keys: order-preserving byte strings that stay in registers when they are short.
//!
//! Every key in Polychron is a string of at most [`MAX_KEY_BYTES`] bytes whose lexicographic order is the order of the
//! values it was made from. A key of fixed width up to 8 or 16 bytes never becomes bytes in memory: it is carried as one
//! or two integers ([`Key8`], [`Key16`]), and the indexes ask for its 8-byte slices.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The longest key an index takes, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A key as the indexes see it: a byte string read in big-endian slices of 8 bytes.
///
/// Anyone may implement it, so nothing relies on what a key answers a second time, unless its type is [`Steady`]: a caller that is given
/// another one from outside copies its bytes first.
pub trait EncodedKey: Copy + Send {
    /// Whether the keys of this type are steady.
    #[doc(hidden)]
    const STEADY: Option<Steady> = None;

    /// Length of the key in bytes, at most [`MAX_KEY_BYTES`].
    fn len(&self) -> usize;

    /// Bytes `8 * index .. 8 * index + 8` of the key as a big-endian integer, padded with zero bytes past the end.
    fn slice(&self, index: usize) -> u64;

    /// Whether the key has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A hash of the bytes and the length; equal for equal byte strings of every representation.
    #[inline]
    fn hash(&self, seed: HashSeed) -> u64 {
        // No key is longer; one that says so must not keep us busy.
        let len = self.len().min(MAX_KEY_BYTES);
        let first = fold(seed.begin(len) ^ self.slice(0));
        seed.finish((1..len.div_ceil(8)).fold(first, |state, index| fold(state ^ self.slice(index))))
    }

    /// Writes the key's bytes to the front of `buffer` and returns how many they are.
    ///
    /// # Panics
    /// When `buffer` is shorter than the key.
    #[inline]
    fn write_to(&self, buffer: &mut [u8]) -> usize {
        let len = self.len();
        for (index, chunk) in buffer[..len].chunks_mut(8).enumerate() {
            let size = chunk.len();
            chunk.copy_from_slice(&self.slice(index).to_be_bytes()[..size]);
        }
        len
    }
}

/// Tells of a type that its keys are steady: they give the same length and the same slices whenever they are asked, and replace nothing that
/// [`EncodedKey`] provides with something else. Only this module can tell so.
#[derive(Clone, Copy, Debug)]
pub struct Steady(());

const HASH_LENGTH: u64 = 0xA076_1D64_78BD_642F;
const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// What the hashes of keys depend on. A client that chooses keys does not know it, and so cannot choose keys that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed(u64);

impl HashSeed {
    /// The same in every program: for runs that are to be repeated exactly, and where many equal hashes cost nothing.
    pub const FIXED: Self = Self(0);

    /// An unpredictable one.
    pub fn random() -> Self {
        // Models explore executions that differ in nothing but their schedule.
        if cfg!(any(loom, shuttle)) { Self::FIXED } else { Self(RandomState::new().build_hasher().finish()) }
    }

    #[inline]
    fn begin(self, len: usize) -> u64 {
        (len as u64).wrapping_mul(HASH_LENGTH) ^ self.0
    }

    /// One folding leaves patterns in keys that differ in a few middle bits only.
    #[inline]
    fn finish(self, state: u64) -> u64 {
        fold(state.rotate_left(32) ^ self.0)
    }
}

impl Default for HashSeed {
    fn default() -> Self {
        Self::random()
    }
}

/// Multiplies to 128 bits and folds the halves, so that every input bit reaches every output bit.
#[inline]
fn fold(value: u64) -> u64 {
    let product = u128::from(value ^ HASH_LENGTH).wrapping_mul(u128::from(HASH_MULTIPLIER));
    (product as u64) ^ ((product >> 64) as u64)
}

/// A key of at most 8 bytes in one integer, its first byte in the highest position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key8 {
    slice: u64,
    len: u8,
}

impl Key8 {
    /// A key of `len` bytes, at most 8, that are the low `len` bytes of `value` in big-endian order.
    #[inline]
    pub const fn new(value: u64, len: usize) -> Self {
        debug_assert!(len <= 8);
        let slice = if len == 0 { 0 } else { value << (64 - 8 * len) };
        Self { slice, len: len as u8 }
    }
}

impl EncodedKey for Key8 {
    const STEADY: Option<Steady> = Some(Steady(()));

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        if index == 0 { self.slice } else { 0 }
    }

    #[inline]
    fn hash(&self, seed: HashSeed) -> u64 {
        seed.finish(fold(seed.begin(self.len()) ^ self.slice))
    }
}

/// A key of at most 16 bytes in two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key16 {
    slices: [u64; 2],
    len: u8,
}

impl Key16 {
    /// A key of `len` bytes, at most 16, that are the low `len` bytes of `value` in big-endian order.
    #[inline]
    pub const fn new(value: u128, len: usize) -> Self {
        debug_assert!(len <= 16);
        let shifted = if len == 0 { 0 } else { value << (128 - 8 * len) };
        Self { slices: [(shifted >> 64) as u64, shifted as u64], len: len as u8 }
    }
}

impl Key16 {
    /// Keeps any key that is short enough, for carrying it around without its type.
    #[inline]
    pub fn from_key<K: EncodedKey>(key: K) -> Option<Self> {
        let len = key.len();
        (len <= 16).then(|| Self { slices: [key.slice(0), key.slice(1)], len: len as u8 })
    }
}

impl EncodedKey for Key16 {
    const STEADY: Option<Steady> = Some(Steady(()));

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        if index < 2 { self.slices[index] } else { 0 }
    }

    #[inline]
    fn hash(&self, seed: HashSeed) -> u64 {
        let first = fold(seed.begin(self.len()) ^ self.slices[0]);
        seed.finish(if self.len() > 8 { fold(first ^ self.slices[1]) } else { first })
    }
}

impl EncodedKey for &[u8] {
    const STEADY: Option<Steady> = Some(Steady(()));

    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        let start = index * 8;
        if let Some(chunk) = self.get(start..start + 8) {
            return u64::from_be_bytes(chunk.try_into().expect("the range has eight bytes"));
        }
        let mut padded = [0; 8];
        if let Some(rest) = self.get(start..) {
            padded[..rest.len()].copy_from_slice(rest);
        }
        u64::from_be_bytes(padded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representations_agree() {
        let seed = HashSeed::random();
        let bytes: &[u8] = &[1, 2, 3, 4, 5];
        let narrow = Key8::new(0x01_0203_0405, 5);
        let wide = Key16::new(0x01_0203_0405, 5);
        for index in 0..3 {
            assert_eq!(bytes.slice(index), narrow.slice(index));
            assert_eq!(bytes.slice(index), wide.slice(index));
        }
        assert_eq!(bytes.hash(seed), narrow.hash(seed));
        assert_eq!(bytes.hash(seed), wide.hash(seed));
        for len in 0..=16 {
            let bytes: &[u8] = &[7; 16][..len];
            let value = (0..len).fold(0, |value, _| value << 8 | 7);
            assert_eq!(bytes.hash(seed), Key16::new(value, len).hash(seed));
            assert!(len > 8 || bytes.hash(seed) == Key8::new(value as u64, len).hash(seed));
        }
        let mut buffer = [0; 8];
        assert_eq!(narrow.write_to(&mut buffer), 5);
        assert_eq!(&buffer[..5], bytes);
    }

    #[test]
    fn length_distinguishes_padding_from_zero_bytes() {
        let seed = HashSeed::random();
        assert_ne!((&[0u8; 3][..]).hash(seed), (&[0u8; 4][..]).hash(seed));
        assert_eq!((&[][..]).slice(0), 0);
    }

    /// Keys that lie in one part of a thousand under one seed lie all over under another one.
    #[test]
    fn colliding_keys_cannot_be_chosen_without_the_seed() {
        let bucket = |key: &u64, seed: u64| Key8::new(*key, 8).hash(HashSeed(seed)) >> 54;
        for seed in 1..20 {
            let chosen: Vec<u64> = (0..200_000).filter(|key| bucket(key, 0) == 7).collect();
            let mut buckets: Vec<u64> = chosen.iter().map(|key| bucket(key, seed)).collect();
            buckets.sort_unstable();
            buckets.dedup();
            // About 195 keys, of which some share one of 1,024 places.
            assert!(buckets.len() * 4 > chosen.len() * 3, "{} keys in {} places", chosen.len(), buckets.len());
        }
    }
}
