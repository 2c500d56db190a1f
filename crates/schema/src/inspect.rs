//! Whether bytes are a row of a layout: for rows that come from outside of the typed operations.

use crate::buffer::RowRef;
use crate::column::ColumnSet;
use crate::error::SchemaError;
use crate::layout::{Layout, LayoutColumn, round_up};
use crate::types::ColumnType;

impl Layout {
    /// Checks that a row is one of this layout: its length, and a value of its type in each column.
    ///
    /// # Errors
    /// [`SchemaError::RowLength`], [`SchemaError::MalformedColumn`], [`SchemaError::TooLong`].
    pub fn check_row(&self, row: RowRef<'_>) -> Result<(), SchemaError> {
        let (bytes, fixed) = (row.as_bytes().len(), self.shape().fixed_bytes as usize);
        if bytes < fixed {
            return Err(SchemaError::RowLength { bytes, expected: fixed });
        }
        self.check_columns(row, ColumnSet::ALL)?;
        let variable = self.columns().iter().filter(|column| column.slot.variable);
        let values: usize = variable.map(|column| row.variable(column.slot).len()).sum();
        let expected = round_up((fixed + values) as u64, 8) as usize;
        if bytes == expected { Ok(()) } else { Err(SchemaError::RowLength { bytes, expected }) }
    }

    /// Checks that these columns of a row hold values of their types.
    ///
    /// # Errors
    /// [`SchemaError::MalformedColumn`], [`SchemaError::TooLong`].
    pub fn check_columns(&self, row: RowRef<'_>, columns: ColumnSet) -> Result<(), SchemaError> {
        let chosen = self.columns().iter().enumerate().filter(|&(position, _)| columns.contains(position as u16));
        chosen.map(|(_, column)| column).try_for_each(|column| column.check(row, self.shape().fixed_bytes))
    }

    /// Checks that one column of a row, by its position, holds a value of its type.
    ///
    /// # Errors
    /// As of [`check_columns`](Self::check_columns).
    ///
    /// # Panics
    /// When there is no such column.
    pub fn check_column(&self, row: RowRef<'_>, position: usize) -> Result<(), SchemaError> {
        self.columns()[position].check(row, self.shape().fixed_bytes)
    }

    /// The columns in whose values two rows differ. Columns of the same bit ([`ColumnSet`]) are told of as one.
    pub fn differences(&self, one: RowRef<'_>, other: RowRef<'_>) -> ColumnSet {
        let columns = self.columns().iter().enumerate().filter(|(_, column)| column.differs(one, other));
        columns.fold(ColumnSet::EMPTY, |set, (position, _)| set.with(position as u16))
    }
}

impl LayoutColumn {
    /// Whether two rows differ in this column.
    pub fn differs(&self, one: RowRef<'_>, other: RowRef<'_>) -> bool {
        let slot = self.slot;
        let bytes = |row| if slot.variable { RowRef::variable(row, slot) } else { RowRef::fixed(row, slot) };
        one.is_null(slot) != other.is_null(slot) || bytes(one) != bytes(other)
    }

    /// Whether all that can lie in its place is a value of its type.
    pub fn holds_anything(&self) -> bool {
        use ColumnType::{Bool, Char, Enum, FixedString, String};
        !self.slot.variable && !matches!(self.column_type, Bool | Char | Enum(_) | String { .. } | FixedString { .. })
    }

    fn check(&self, row: RowRef<'_>, fixed_bytes: u32) -> Result<(), SchemaError> {
        let slot = self.slot;
        let malformed = || SchemaError::MalformedColumn { column: self.name.clone(), expected: self.column_type };
        let value = if slot.variable {
            let pair = u64::from_le_bytes(row.load(slot.offset));
            let (offset, len) = (pair as u32, (pair >> 32) as usize);
            let value = row.variable(slot);
            // An empty value need not lie anywhere.
            if value.len() != len || len > 0 && offset < fixed_bytes {
                return Err(malformed());
            }
            crate::column::check_max(&self.name, slot, len)?;
            value
        } else {
            row.fixed(slot)
        };
        let is_right = match self.column_type {
            ColumnType::Bool => value.iter().all(|&byte| byte <= 1),
            ColumnType::Char => char::from_u32(row.number(slot.offset, 4) as u32).is_some(),
            // The zero in the place of a NULL need not be a variant.
            ColumnType::Enum(kind) => row.is_null(slot) || kind.holds_bits(row.number(slot.offset, slot.width)),
            ColumnType::String { .. } | ColumnType::FixedString { .. } => std::str::from_utf8(value).is_ok(),
            _ => true,
        };
        if is_right { Ok(()) } else { Err(malformed()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ColumnSet, Row, RowBuffer, RowRef, SchemaError};

    #[derive(Row)]
    struct Note {
        #[key]
        id: u64,
        is_read: bool,
        text: String,
        remark: Option<String>,
    }

    fn words(text: &str) -> Vec<u64> {
        let mut buffer = RowBuffer::new();
        let note = Note { id: 7, is_read: true, text: text.to_owned(), remark: Some("remark".to_owned()) };
        note.encode(&mut buffer).unwrap();
        buffer.as_words().to_vec()
    }

    #[test]
    fn encoded_rows_are_rows() {
        let layout = Note::definition().layout().unwrap();
        for text in ["", "a", "some text"] {
            layout.check_row(RowRef::from_words(&words(text))).unwrap();
        }
    }

    #[test]
    fn other_bytes_are_not() {
        let layout = Note::definition().layout().unwrap();
        let whole = words("some text");
        for length in 0..whole.len() {
            assert!(layout.check_row(RowRef::from_words(&whole[..length])).is_err(), "{length} words");
        }
        let longer = [&whole[..], &[0]].concat();
        let refused = layout.check_row(RowRef::from_words(&longer));
        assert!(matches!(refused, Err(SchemaError::RowLength { .. })), "{refused:?}");
        // No bit of a pair of offset and length, and none of a truth value but the lowest, may be another one. A length that differs by
        // less than a word may make another row of the same length.
        let slots: Vec<_> = layout.columns().iter().map(|column| column.slot).collect();
        let tells = |bit: &usize| !(32..35).contains(bit);
        for (offset, bits) in [(slots[2].offset, 3..64), (slots[3].offset, 35..64), (slots[1].offset, 1..8)] {
            for bit in bits.filter(tells) {
                let mut bytes: Vec<u8> = whole.iter().flat_map(|word| word.to_ne_bytes()).collect();
                bytes[offset as usize + bit / 8] ^= 1 << (bit % 8);
                let (chunks, _) = bytes.as_chunks::<8>();
                let changed: Vec<u64> = chunks.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect();
                let refused = layout.check_row(RowRef::from_words(&changed));
                assert!(refused.is_err(), "bit {bit} at {offset}");
            }
        }
    }

    #[test]
    fn differences_are_found_in_values() {
        let layout = Note::definition().layout().unwrap();
        let (one, other) = (words("some text"), words("other"));
        let differences = layout.differences(RowRef::from_words(&one), RowRef::from_words(&other));
        assert_eq!(differences, ColumnSet::single(2), "where the others lie is of no matter");
    }
}
