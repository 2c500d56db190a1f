//! Rows and entries of secondary indexes as words.

use std::ops::Range;

use polychron_base::{Error, IndexId};
use polychron_schema::{MAX_ROW_BYTES, Projection, RowBuffer, RowRef};

use super::table::StoreTable;

/// The words in which the columns of a projection lie.
#[inline]
pub fn words_of(projection: &Projection) -> Range<usize> {
    let end = if projection.end == u32::MAX { usize::MAX } else { projection.end as usize / 8 };
    // A projection that a caller made up may end before it begins.
    (projection.start as usize / 8).min(end)..end
}

/// A secondary entry's words for a primary key: its length in bytes, and the key.
pub fn entry_words<'b>(key: &[u8], buffer: &'b mut RowBuffer) -> &'b [u64] {
    let words = buffer.overwrite_words(1 + key.len().div_ceil(8));
    words[0] = key.len() as u64;
    for (word, chunk) in words[1..].iter_mut().zip(key.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_ne_bytes(bytes);
    }
    words
}

/// The primary key in a secondary entry; empty when the words are none.
#[inline]
pub fn key_in_entry(words: &[u64]) -> &[u8] {
    let Some((&len, rest)) = words.split_first() else { return &[] };
    RowRef::from_words(rest).as_bytes().get(..len as usize).unwrap_or_default()
}

/// A row must have its table's fixed part, and end within the limit.
///
/// # Errors
/// [`Error::RowTooLong`], [`Error::Definition`].
#[inline]
pub fn check_row<S>(table: &StoreTable<S>, row: RowRef<'_>) -> Result<(), Error> {
    let bytes = row.as_bytes().len();
    if bytes > MAX_ROW_BYTES {
        return Err(Error::row_too_long(bytes, MAX_ROW_BYTES).in_index(table.id, IndexId::PRIMARY));
    }
    if bytes < table.layout.shape().fixed_bytes as usize {
        return Err(Error::definition(format!("a row of {bytes} bytes is too short for `{}`", table.definition.name)));
    }
    Ok(())
}
