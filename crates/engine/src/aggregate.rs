//! Answers over the rows of a range, or over each group of them: counts, sums, averages, smallest and largest values.

mod groups;
mod state;

use polychron_base::TableId;
use polychron_schema::{ColumnSpan, Layout, LayoutColumn, Projection, Value};

pub use groups::{over_columns, over_rows};

pub use polychron_base::error::AggregateError;

/// A question about a range. Columns are named by position; NULLs do not count, as in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// The number of rows, as [`Value::Unsigned`].
    Rows,
    /// The number of rows that have a value in the column, as [`Value::Unsigned`].
    Count(usize),
    /// The sum of the column's values in the column's own type (integers as the widest of their kind, of up to 64 bits or of 128;
    /// floating-point numbers in 64 bits), or NULL of none.
    Sum(usize),
    /// The average of the values as [`Value::Float`], or NULL of none: their exact sum divided by their number, so it overflows nothing; of
    /// floating-point numbers the sum in 64 bits.
    Average(usize),
    /// The smallest value, or NULL of none.
    Min(usize),
    /// The largest value, or NULL of none.
    Max(usize),
}

impl Aggregate {
    /// The column that is looked at.
    pub fn column(self) -> Option<usize> {
        match self {
            Self::Rows => None,
            Self::Count(column) | Self::Sum(column) | Self::Average(column) | Self::Min(column) | Self::Max(column) => {
                Some(column)
            }
        }
    }
}

/// Questions about a range as a whole, or of each group of its rows.
#[derive(Clone, Copy, Debug)]
pub struct Grouping<'a> {
    /// The columns, by position, in which the rows of a group have equal values; without any, all rows are one group, also where there are none.
    /// NULL equals NULL here, and floating-point numbers are equal bit by bit, so that -0.0 and 0.0 are two.
    pub by: &'a [usize],
    /// The questions about each group.
    pub wanted: &'a [Aggregate],
    /// The maximum number of groups.
    pub most: usize,
}

impl<'a> Grouping<'a> {
    /// All rows as one group.
    pub const fn whole(wanted: &'a [Aggregate]) -> Self {
        Self { by: &[], wanted, most: 1 }
    }

    /// The columns that are looked at, each once.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = self.by.to_vec();
        columns.extend(self.wanted.iter().filter_map(|wanted| wanted.column()));
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// Some rows, and what was wanted of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The values that they have in common, encoded as a key ([`polychron_schema::KeyExtractor::of_columns`]).
    pub key: Box<[u8]>,
    /// The answers, in the order in which they were asked for.
    pub values: Vec<Value>,
}

/// The column at a position.
pub(crate) fn column_of(layout: &Layout, table: TableId, column: usize) -> Result<&LayoutColumn, AggregateError> {
    layout.columns().get(column).ok_or(AggregateError::NoSuchColumn(table, column))
}

/// The columns at these positions, as a projection.
pub(crate) fn projection_of(layout: &Layout, columns: &[usize]) -> Projection {
    let span = |column: &usize| ColumnSpan { index: *column as u16, slot: layout.columns()[*column].slot };
    Projection::of(&columns.iter().map(span).collect::<Vec<_>>())
}

/// The one answer that there is to one question about all rows.
pub(crate) fn the_one(groups: Vec<Group>) -> Value {
    groups.into_iter().flat_map(|group| group.values).next().unwrap_or_default()
}
