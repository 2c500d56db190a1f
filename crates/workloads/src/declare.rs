//! Declaring rows by typed keys.

use polychron_engine::{Access, Declare, Row, Table};
use polychron_schema::{Key, KeyPrefix, KeyRef, KeyScratch};

/// Declares a row by its key.
#[inline]
pub(crate) fn declare_key<R: Row, D: Declare>(
    declaration: &mut D,
    table: &Table<R>,
    key: KeyRef<'_, R>,
    access: Access,
) {
    let mut scratch = KeyScratch::new();
    declaration.key(table.id(), key.encode(&mut scratch), access);
}

/// Declares that rows may be written whose keys begin with the columns of `prefix`.
#[inline]
pub(crate) fn declare_prefix<'k, R: Row, D: Declare, P: KeyPrefix<KeyRef<'k, R>>>(
    declaration: &mut D,
    table: &Table<R>,
    prefix: P,
    access: Access,
) {
    let mut scratch = KeyScratch::new();
    declaration.prefix(table.id(), prefix.encode_prefix(&mut scratch), access);
}
