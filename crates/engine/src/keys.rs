//! Keys from outside: their length is checked here before any other use.
//!
//! Anyone may implement [`EncodedKey`], and answer differently at each call. So whatever a client can give a key to begins with
//! [`steady!`](crate::steady), behind which a key is short enough, and stays what it was. Nothing is done for the types whose keys are known
//! to; of those with a fixed width, not even the length is looked at.

use polychron_base::Error;
use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};

/// Whether keys of this type give the same answers at each call.
#[inline(always)]
pub const fn is_steady<K: EncodedKey>(_: &K) -> bool {
    K::STEADY.is_some()
}

/// A key, or a bound on keys, must be short enough for the indexes.
///
/// # Errors
/// [`Error::KeyTooLong`].
#[inline(always)]
pub fn check_key<K: EncodedKey>(key: K) -> Result<(), Error> {
    if key.len() > MAX_KEY_BYTES { Err(Error::KeyTooLong) } else { Ok(()) }
}

/// Lends a copy of a key's bytes. Its length is asked for once.
///
/// # Errors
/// [`Error::KeyTooLong`].
#[inline]
pub fn with_bytes<K: EncodedKey, O>(key: K, use_it: impl FnOnce(&[u8]) -> O) -> Result<O, Error> {
    let len = key.len();
    if len <= 64 {
        return Ok(use_it(copy(key, &mut [0; 64][..len])));
    }
    if len > MAX_KEY_BYTES {
        return Err(Error::KeyTooLong);
    }
    Ok(use_it(copy(key, &mut [0; MAX_KEY_BYTES][..len])))
}

fn copy<K: EncodedKey>(key: K, bytes: &mut [u8]) -> &[u8] {
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        let size = chunk.len();
        chunk.copy_from_slice(&key.slice(index).to_be_bytes()[..size]);
    }
    bytes
}

/// The first thing that a function does with a key from outside: `steady!(key => self.read(key))`, where the expression calls the function
/// itself. It is called with a copy of a key that may not be steady, and the function goes on with any other one that is short enough.
#[doc(hidden)]
#[macro_export]
macro_rules! steady {
    ($key:ident => $again:expr) => {
        if !$crate::keys::is_steady(&$key) {
            return $crate::keys::with_bytes($key, |$key| $again)?;
        }
        $crate::keys::check_key($key)?;
    };
}
