//! Answers over the rows of a range: counts, sums, smallest and largest values.

use std::ops::ControlFlow;

use polychron_base::{Error, TableId};
use polychron_schema::{ColumnSpan, ColumnType, Layout, LayoutColumn, Projection, Value, ValueRef};

use crate::batch::{ColumnBatch, Sum};
use crate::{Scan, Transaction};

pub use polychron_base::error::AggregateError;

/// What is wanted of a range. Columns are named by position; NULLs do not count, as in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// How many rows there are, as [`Value::Unsigned`].
    Rows,
    /// How many rows have a value in the column, as [`Value::Unsigned`].
    Count(usize),
    /// The sum of the column's values in the column's own type (integers as the widest of their kind, of up to 64 bits or of 128;
    /// floating-point numbers in 64 bits), or NULL of none.
    Sum(usize),
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
            Self::Count(column) | Self::Sum(column) | Self::Min(column) | Self::Max(column) => Some(column),
        }
    }
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

/// The default of [`Queries::aggregate_range`](crate::Queries::aggregate_range).
///
/// # Errors
/// As there.
pub fn over_rows<T: Transaction + ?Sized>(
    transaction: &mut T,
    scan: &Scan<'_>,
    wanted: Aggregate,
) -> Result<Value, Error> {
    let layout = transaction.definition(scan.table)?.layout().map_err(polychron_base::Error::from)?;
    let mut projection = Projection::NONE;
    if let Some(column) = wanted.column() {
        column_of(&layout, scan.table, column)?;
        projection = projection_of(&layout, &[column]);
    }
    let mut state = State::new(&layout, scan.table, wanted)?;
    transaction.scan_unchecked(&Scan { projection, ..scan.clone() }, &mut |row| {
        state.add(wanted.column().map_or(ValueRef::Null, |column| row.value_ref(&layout, column)));
        ControlFlow::Continue(())
    })?;
    let column = wanted.column().unwrap_or_default();
    Ok(state.finish(&layout, column).ok_or(AggregateError::Overflow(scan.table, column))?)
}

/// As [`over_rows`], from the column batches of a range: for protocols that lend columns. The column must come in batches.
///
/// # Errors
/// As [`Queries::aggregate_range`](crate::Queries::aggregate_range), and [`crate::batch::NotNumeric`].
pub fn over_columns<T: Transaction + ?Sized>(
    transaction: &mut T,
    scan: &Scan<'_>,
    wanted: Aggregate,
) -> Result<Value, Error> {
    let layout = transaction.definition(scan.table)?.layout().map_err(polychron_base::Error::from)?;
    if let Some(column) = wanted.column() {
        column_of(&layout, scan.table, column)?;
    }
    let mut state = State::new(&layout, scan.table, wanted)?;
    let column = wanted.column();
    transaction.visit_columns(scan, column.as_slice(), &mut |batch| State::of(batch, wanted), &mut |part| {
        state.merge(part);
        ControlFlow::Continue(())
    })?;
    let column = column.unwrap_or_default();
    Ok(state.finish(&layout, column).ok_or(AggregateError::Overflow(scan.table, column))?)
}

/// An aggregate under way.
enum State {
    Rows(u64),
    Count(u64),
    /// Wide enough for as many 64-bit numbers as there can be rows.
    Whole(Option<i128>),
    /// Of 128-bit numbers.
    Wide(Option<WideSum>),
    Float(Option<f64>),
    Min(Option<Value>),
    Max(Option<Value>),
}

impl State {
    fn new(layout: &Layout, table: TableId, wanted: Aggregate) -> Result<Self, AggregateError> {
        Ok(match wanted {
            Aggregate::Rows => Self::Rows(0),
            Aggregate::Count(_) => Self::Count(0),
            Aggregate::Min(_) => Self::Min(None),
            Aggregate::Max(_) => Self::Max(None),
            Aggregate::Sum(column) => match layout.columns()[column].column_type {
                ColumnType::F32 | ColumnType::F64 => Self::Float(None),
                ColumnType::Decimal { .. } => Self::Whole(None),
                number if number.is_integer() => Self::Whole(None),
                ColumnType::I128 | ColumnType::U128 | ColumnType::Decimal128 { .. } => Self::Wide(None),
                other => return Err(AggregateError::NoSum(table, column, other.to_string())),
            },
        })
    }

    fn add(&mut self, value: ValueRef<'_>) {
        if let Self::Rows(rows) = self {
            *rows += 1;
            return;
        }
        if value.is_null() {
            return;
        }
        match self {
            Self::Rows(_) => {}
            Self::Count(count) => *count += 1,
            Self::Whole(sum) => {
                let number = match value {
                    ValueRef::Integer(number) => number.into(),
                    ValueRef::Decimal { units: number, .. } => number,
                    ValueRef::Unsigned(number) => number.into(),
                    _ => 0,
                };
                *sum = Some(sum.unwrap_or(0) + number);
            }
            Self::Wide(sum) => {
                let sum = sum.get_or_insert_default();
                match value {
                    ValueRef::Integer128(number) | ValueRef::Decimal { units: number, .. } => {
                        sum.add(number.cast_unsigned(), if number < 0 { -1 } else { 0 });
                    }
                    ValueRef::Unsigned128(number) => sum.add(number, 0),
                    _ => {}
                }
            }
            Self::Float(sum) => {
                if let ValueRef::Float(number) = value {
                    *sum = Some(sum.unwrap_or(0.0) + number);
                }
            }
            Self::Min(least) => keep(least, value, |new, old| new < old),
            Self::Max(most) => keep(most, value, |new, old| new > old),
        }
    }

    /// That of a batch with the column alone.
    fn of(batch: &ColumnBatch<'_>, wanted: Aggregate) -> Self {
        let extreme = |is_largest| Some(batch.extreme(0, is_largest).to_value()).filter(|value| !value.is_null());
        match wanted {
            Aggregate::Rows => Self::Rows(batch.count() as u64),
            Aggregate::Count(_) => Self::Count(batch.count_values(0) as u64),
            Aggregate::Min(_) => Self::Min(extreme(false)),
            Aggregate::Max(_) => Self::Max(extreme(true)),
            Aggregate::Sum(_) => match batch.sum(0) {
                Some(Sum::Float(sum)) => Self::Float(Some(sum)),
                Some(Sum::Whole(sum)) => Self::Whole(Some(sum)),
                None => Self::Whole(None),
            },
        }
    }

    /// Adds that of other rows.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Rows(count), Self::Rows(more)) | (Self::Count(count), Self::Count(more)) => *count += more,
            (Self::Whole(sum), Self::Whole(Some(more))) => *sum = Some(sum.unwrap_or(0) + more),
            (Self::Float(sum), Self::Float(Some(more))) => *sum = Some(sum.unwrap_or(0.0) + more),
            (state @ (Self::Min(_) | Self::Max(_)), Self::Min(Some(value)) | Self::Max(Some(value))) => {
                state.add(value.as_value_ref());
            }
            // Of no values.
            _ => {}
        }
    }

    /// The answer, or `None` when it does not fit.
    fn finish(self, layout: &Layout, column: usize) -> Option<Value> {
        Some(match self {
            Self::Rows(count) | Self::Count(count) => Value::Unsigned(count),
            Self::Whole(None) | Self::Float(None) | Self::Wide(None) => Value::Null,
            Self::Wide(Some(sum)) => match layout.columns()[column].column_type {
                ColumnType::Decimal128 { scale } => Value::Decimal { units: sum.signed()?, scale },
                ColumnType::U128 => Value::Unsigned128(sum.unsigned()?),
                _ => Value::Integer128(sum.signed()?),
            },
            Self::Whole(Some(sum)) => match layout.columns()[column].column_type {
                ColumnType::Decimal { scale } => Value::Decimal { units: i64::try_from(sum).ok()?.into(), scale },
                ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => {
                    Value::Unsigned(sum.try_into().ok()?)
                }
                _ => Value::Integer(sum.try_into().ok()?),
            },
            Self::Float(Some(sum)) => Value::Float(sum),
            Self::Min(value) | Self::Max(value) => value.unwrap_or_default(),
        })
    }
}

/// A sum of 128-bit numbers, which may need more bits before all are added: the result does not depend on their order.
#[derive(Clone, Copy, Default)]
struct WideSum {
    high: i64,
    low: u128,
}

impl WideSum {
    /// Adds a number of which this is the low half, and the high one is nothing but the sign.
    fn add(&mut self, low: u128, sign: i64) {
        let carries;
        (self.low, carries) = self.low.overflowing_add(low);
        self.high += sign + i64::from(carries);
    }

    fn signed(self) -> Option<i128> {
        let low = self.low.cast_signed();
        (self.high == if low < 0 { -1 } else { 0 }).then_some(low)
    }

    fn unsigned(self) -> Option<u128> {
        (self.high == 0).then_some(self.low)
    }
}

fn keep(kept: &mut Option<Value>, value: ValueRef<'_>, better: fn(&ValueRef<'_>, &ValueRef<'_>) -> bool) {
    if kept.as_ref().is_none_or(|kept| better(&value, &kept.as_value_ref())) {
        *kept = Some(value.to_value());
    }
}
