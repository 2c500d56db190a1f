//! The columns that futures stand for.

use polychron_base::TableId;
use polychron_base::error::FutureError;
use polychron_schema::{ColumnSpan, ColumnType, MAX_ROW_BYTES, RowMut, RowRef, SchemaError};

use super::value::{Scalar, Value};

/// A column that a future is read from or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutureColumn {
    /// Its position in the row.
    pub span: ColumnSpan,
    /// Its type: one that has a [`FutureValue`](crate::FutureValue).
    pub column_type: ColumnType,
    /// Whether NULL is a value of its futures; where it is none, it is a failure to read it.
    pub nullable: bool,
}

/// Bytes without the zeros at their end.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

impl FutureColumn {
    /// The column's value in a row.
    ///
    /// # Errors
    /// [`FutureError::Null`].
    #[inline]
    pub fn load(self, table: TableId, row: RowRef<'_>) -> Result<Value<&[u8]>, FutureError> {
        if row.is_null(self.span.slot) {
            return if self.nullable { Ok(Value::Null) } else { Err(FutureError::Null(table)) };
        }
        Ok(match self.column_type {
            ColumnType::String { .. } | ColumnType::Bytes { .. } => Value::Bytes(row.variable(self.span.slot)),
            ColumnType::FixedString { .. } => Value::Bytes(trimmed(row.fixed(self.span.slot))),
            ColumnType::FixedBytes { .. } => Value::Bytes(row.fixed(self.span.slot)),
            _ => Value::Scalar(self.load_scalar(row.fixed(self.span.slot))),
        })
    }

    #[inline]
    fn load_scalar(self, bytes: &[u8]) -> Scalar {
        let mut word = [0; 8];
        let width = bytes.len().min(8);
        word[..width].copy_from_slice(&bytes[..width]);
        let unused = 64 - 8 * width.max(1) as u32;
        let bits = u64::from_le_bytes(word) << unused;
        if self.column_type.is_signed() { ((bits as i64) >> unused) as u64 } else { bits >> unused }
    }

    /// Whether the column takes the value.
    ///
    /// # Errors
    /// [`FutureError::NullInto`], [`FutureError::TooLongFor`].
    #[inline]
    pub fn check<B: AsRef<[u8]>>(self, table: TableId, value: &Value<B>) -> Result<(), FutureError> {
        match value {
            Value::Scalar(_) => Ok(()),
            Value::Null if self.span.slot.is_nullable() => Ok(()),
            Value::Null => Err(FutureError::NullInto(table, self.span.index.into())),
            Value::Bytes(bytes) => self.check_length(table, bytes.as_ref().len()),
        }
    }

    /// Whether a value that is not known yet may be one that the column does not take, other than NULL.
    #[inline]
    pub fn may_be_too_long(self) -> bool {
        use ColumnType::{Bytes, FixedBytes, FixedString, String};
        matches!(self.column_type, String { .. } | FixedString { .. } | Bytes { .. } | FixedBytes { .. })
    }

    fn check_length(self, table: TableId, bytes: usize) -> Result<(), FutureError> {
        let most = self.span.slot.max as usize;
        if bytes > most {
            return Err(FutureError::TooLongFor { table, column: self.span.index.into(), bytes, most });
        }
        Ok(())
    }

    /// Makes `value` the column's value, which it takes.
    #[inline]
    fn store(self, row: &mut RowMut<'_>, value: Value<&[u8]>) -> Result<(), SchemaError> {
        match value {
            Value::Null => row.set_null(self.span),
            Value::Bytes(bytes) if self.span.slot.variable => return row.set_bytes(self.span, bytes),
            Value::Bytes(bytes) => {
                let into = row.fixed_mut(self.span);
                let length = bytes.len().min(into.len());
                into[..length].copy_from_slice(&bytes[..length]);
                into[length..].fill(0);
            }
            Value::Scalar(scalar) => {
                let bytes = row.fixed_mut(self.span);
                let width = bytes.len().min(8);
                bytes[..width].copy_from_slice(&scalar.to_le_bytes()[..width]);
            }
        }
        Ok(())
    }
}

/// Makes values those of columns, which take them. If the row would be too long, it stays as it is.
///
/// # Errors
/// [`FutureError::RowTooLong`].
#[inline]
pub fn store_all<'v>(
    table: TableId,
    row: &mut RowMut<'_>,
    values: impl Iterator<Item = (FutureColumn, Value<&'v [u8]>)> + Clone,
) -> Result<(), FutureError> {
    if row.shape().variable_count > 0 {
        check_row(table, row, values.clone())?;
    }
    // Of two values of one column the later one counts, and only then may the row be too long yet.
    for (column, value) in values {
        column.store(row, value).map_err(|_| row_too_long(table, MAX_ROW_BYTES + 8))?;
    }
    Ok(())
}

fn row_too_long(table: TableId, bytes: usize) -> FutureError {
    FutureError::RowTooLong { table, bytes, most: MAX_ROW_BYTES }
}

fn check_row<'v>(
    table: TableId,
    row: &RowMut<'_>,
    values: impl Iterator<Item = (FutureColumn, Value<&'v [u8]>)>,
) -> Result<(), FutureError> {
    let lengths = values.filter(|(column, _)| column.span.slot.variable).map(|(column, value)| match value {
        Value::Bytes(bytes) => (column.span, bytes.len()),
        Value::Null | Value::Scalar(_) => (column.span, 0),
    });
    let bytes = row.length_with(lengths);
    if bytes > MAX_ROW_BYTES { Err(row_too_long(table, bytes)) } else { Ok(()) }
}
