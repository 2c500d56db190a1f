//! Keys from outside: their length is checked here before any other use.
//!
//! Anyone may implement [`EncodedKey`], and answer differently at each call. So whatever a client can give a key to begins with
//! [`steady!`](crate::steady), behind which a key is short enough, and stays what it was. Nothing is done for the types whose keys are known
//! to; of those with a fixed width, not even the length is looked at.

use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};
use polychron_base::{Error, IndexId, TableId};

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
    let bytes = key.len();
    if bytes > MAX_KEY_BYTES { Err(Error::key_too_long(Some(bytes))) } else { Ok(()) }
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
        return Err(Error::key_too_long(Some(len)));
    }
    Ok(use_it(copy(key, &mut [0; MAX_KEY_BYTES][..len])))
}

/// As [`check_key`], of a primary key of a table.
///
/// # Errors
/// [`Error::KeyTooLong`].
#[doc(hidden)]
#[inline(always)]
pub fn check_key_of<K: EncodedKey>(table: TableId, key: K) -> Result<(), Error> {
    check_key(key).map_err(|error| error.in_index(table, IndexId::PRIMARY))
}

/// As [`with_bytes`], of a primary key of a table.
///
/// # Errors
/// [`Error::KeyTooLong`].
#[doc(hidden)]
#[inline]
pub fn with_bytes_of<K: EncodedKey, O>(table: TableId, key: K, use_it: impl FnOnce(&[u8]) -> O) -> Result<O, Error> {
    with_bytes(key, use_it).map_err(|error| error.in_index(table, IndexId::PRIMARY))
}

/// Refuses a typed key that is too long for a table.
///
/// # Errors
/// [`Error::KeyTooLong`].
#[inline(always)]
pub(crate) fn check_typed<K: polychron_schema::Key>(table: TableId, key: &K) -> Result<(), Error> {
    key.check().map_err(|error| Error::from(error).in_index(table, IndexId::PRIMARY))
}

fn copy<K: EncodedKey>(key: K, bytes: &mut [u8]) -> &[u8] {
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        let size = chunk.len();
        chunk.copy_from_slice(&key.slice(index).to_be_bytes()[..size]);
    }
    bytes
}

/// The first thing that a function does with a key from outside: `steady!(table, key => self.read(table, key))`, where the expression calls the function
/// itself. It is called with a copy of a key that may not be steady, and the function goes on with any other one that is short enough.
#[doc(hidden)]
#[macro_export]
macro_rules! steady {
    ($table:ident, $key:ident => $again:expr) => {
        if !$crate::keys::is_steady(&$key) {
            return $crate::keys::with_bytes_of($table, $key, |$key| $again)?;
        }
        $crate::keys::check_key_of($table, $key)?;
    };
}
