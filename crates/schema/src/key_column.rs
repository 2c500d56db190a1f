//! A column of a key, in the order that its index gives it.
//!
//! Values are encoded as by [`crate::Key`]; a descending column has all bits of its value inverted. A variable-width value that is
//! inverted is escaped wherever it stands, because its end must sort behind what continues. A nullable column has a byte in front: 1 for a value,
//! and for NULL 0 or 2, which is never inverted.

use std::ops::Deref;

use crate::buffer::RowRef;
use crate::definition::ColumnOrder;
use crate::error::SchemaError;
use crate::key::{KeyReader, KeyScratch, KeySink};
use crate::layout::LayoutColumn;
use crate::value::{Value, ValueRef};

/// In front of a value that could be NULL.
const PRESENT: u8 = 1;

/// A column of a key, and how the key sorts it.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumn {
    column: LayoutColumn,
    order: ColumnOrder,
}

impl Deref for KeyColumn {
    type Target = LayoutColumn;

    fn deref(&self) -> &LayoutColumn {
        &self.column
    }
}

impl KeyColumn {
    pub(crate) fn new(column: LayoutColumn, order: ColumnOrder) -> Self {
        Self { column, order }
    }

    /// The same column of rows in which it is never NULL.
    pub(crate) fn without_null(mut self) -> Self {
        self.column.slot.null_bit = crate::Slot::NOT_NULL;
        self
    }

    pub(crate) fn order(&self) -> ColumnOrder {
        self.order
    }

    /// The byte that stands for NULL.
    fn null(&self) -> u8 {
        if self.order.nulls_last { PRESENT + 1 } else { PRESENT - 1 }
    }

    fn put_null(&self, key: &mut KeyScratch) {
        key.bytes(&[self.null()]);
        key.zeros(self.column_type.key_width().unwrap_or(0));
    }

    /// Appends a value by `put`, which is told whether more follows.
    #[inline]
    fn put(&self, key: &mut KeyScratch, open: bool, put: impl FnOnce(&mut KeyScratch, bool)) {
        if self.slot.is_nullable() {
            key.bytes(&[PRESENT]);
        }
        let start = key.as_bytes().len();
        put(key, open || self.order.descending);
        if self.order.descending {
            key.invert_from(start);
        }
    }

    /// Appends a checked value.
    pub(crate) fn put_value(&self, value: ValueRef<'_>, key: &mut KeyScratch, open: bool) -> Result<(), SchemaError> {
        match self.raw_or_null(value)? {
            None => self.put_null(key),
            Some(raw) => self.put(key, open, |key, open| self.put_raw(raw, key, open)),
        }
        Ok(())
    }

    /// Appends the column of a row.
    #[inline]
    pub(crate) fn put_column(&self, row: RowRef<'_>, key: &mut KeyScratch, open: bool) {
        if row.is_null(self.slot) {
            return self.put_null(key);
        }
        self.put(key, open, |key, open| self.put_stored(row, key, open));
    }

    /// Takes the column's value from the front of a key.
    pub(crate) fn take_value(&self, reader: &mut KeyReader<'_>, open: bool) -> Result<Value, SchemaError> {
        if self.slot.is_nullable() {
            match reader.array()? {
                [PRESENT] => {}
                [null] if null == self.null() => {
                    let zeros = reader.slice(self.column_type.key_width().unwrap_or(0))?;
                    let blank = zeros.iter().all(|&byte| byte == 0);
                    return if blank { Ok(Value::Null) } else { Err(SchemaError::MalformedKey) };
                }
                _ => return Err(SchemaError::MalformedKey),
            }
        }
        if !self.order.descending {
            return self.take_present(reader, open);
        }
        let inverted = self.upright(reader.rest());
        let mut upright = KeyReader::new(&inverted);
        let value = self.take_present(&mut upright, true)?;
        reader.slice(inverted.len() - upright.rest().len())?;
        Ok(value)
    }

    /// The bytes of a value, which may be cut, as they are in ascending order.
    pub(crate) fn upright(&self, bytes: &[u8]) -> Vec<u8> {
        let inversion = if self.order.descending { u8::MAX } else { 0 };
        bytes.iter().map(|byte| byte ^ inversion).collect()
    }
}
