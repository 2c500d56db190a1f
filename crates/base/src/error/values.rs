//! Why there is no value: of a future, or of an aggregate.

use std::fmt;

use super::tables;
use crate::id::TableId;
use crate::line::OneLine;

/// Computations that keep the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Of integers towards zero.
    Divide,
    Min,
    Max,
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "×",
            Self::Divide => "÷",
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// Why a future has no value. Ends the procedure as [`Error::NoValue`](crate::Error::NoValue).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FutureError {
    /// The result of a computation does not fit in its type.
    #[error("{left} {operation} {right} does not fit in {type_name}")]
    Overflow {
        /// The computation.
        operation: Arithmetic,
        /// Its type.
        type_name: String,
        /// The left side's value.
        left: i128,
        /// The right side's value.
        right: i128,
    },
    /// The number does not fit in the type that it is converted to.
    #[error("{value} of type {from} does not fit in {to}")]
    Conversion {
        /// The number; of a decimal its units.
        value: i128,
        /// Its type.
        from: String,
        /// The type that it is converted to.
        to: String,
    },
    /// A division by zero.
    #[error("{left} ÷ 0 has no value")]
    DivisionByZero {
        /// The left side's value.
        left: i128,
    },
    /// The row whose column was read or written does not exist. A procedure that must know reads the row instead.
    #[error("a future names a row that does not exist in {}", OneLine(tables::table(*.0)))]
    NoRow(TableId),
    /// The column is NULL.
    #[error("a future names a column that is NULL in {}", OneLine(tables::table(*.0)))]
    Null(TableId),
    /// A value that must be there is NULL.
    #[error("a future is NULL where a value must be")]
    NoNull,
    /// The text is no number of the type that it is converted to.
    #[error("{text:?} is no value of type {type_name}")]
    NotANumber {
        /// The text, or how it begins.
        text: String,
        /// The type that it is converted to.
        type_name: String,
    },
    /// The bytes that become text are no UTF-8.
    #[error("bytes of a future are no text: they are no UTF-8")]
    NotText,
    /// Text or bytes that are longer than any row, or than a transaction keeps of them.
    #[error("a future of {bytes} bytes is longer than the {most} that there is room for")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// Text or bytes that are longer than their column.
    #[error("a future of {bytes} bytes does not fit in {}, which takes {most}", OneLine(tables::column(*.table, *.column)))]
    TooLongFor {
        /// The table.
        table: TableId,
        /// The column's position.
        column: usize,
        /// The length of the value.
        bytes: usize,
        /// The longest that the column takes.
        most: usize,
    },
    /// The row would be longer than a row can be.
    #[error("futures make a row of {bytes} bytes in {}: the longest has {most}", OneLine(tables::table(*.table)))]
    RowTooLong {
        /// The table.
        table: TableId,
        /// Its length.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// The column that a NULL is written to has none.
    #[error("a future is NULL, and {} has no NULL", OneLine(tables::column(*.0, *.1)))]
    NullInto(TableId, usize),
    /// The future belongs to another transaction, or to none that still runs.
    #[error("a future of another transaction was used")]
    Foreign,
}

/// Why an aggregate, or a restriction, has no answer. Ends the procedure as [`Error::NoAnswer`](crate::Error::NoAnswer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// The table has no such column.
    #[error("{} has no column {}", OneLine(tables::table(*.0)), .1)]
    NoSuchColumn(TableId, usize),
    /// Values of this type, as the column has, have no sum.
    #[error("{} of type {} has no sum", OneLine(tables::column(*.0, *.1)), .2)]
    NoSum(TableId, usize, String),
    /// The sum does not fit in 64 bits, or in 128 where the column's numbers have these.
    #[error("the sum of {} does not fit in the widest type of its kind", OneLine(tables::column(*.0, *.1)))]
    Overflow(TableId, usize),
    /// The rows are of more groups than were allowed.
    #[error("the rows of {} make more groups than the {most} that are allowed", OneLine(tables::table(*.table)))]
    TooManyGroups {
        /// The table.
        table: TableId,
        /// How many were allowed.
        most: usize,
    },
}
