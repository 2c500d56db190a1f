//! One aggregate under way.

use polychron_base::TableId;
use polychron_schema::{ColumnType, Layout, Value, ValueRef};

use super::{Aggregate, AggregateError};
use crate::batch::{ColumnBatch, Sum};

/// An aggregate of some rows. Sums of whole numbers do not depend on the order of the rows.
pub(super) enum State {
    Rows(u64),
    Count(u64),
    /// Wide enough for as many 64-bit numbers as there can be rows.
    Whole {
        count: u64,
        sum: i128,
    },
    /// Of 128-bit numbers.
    Wide {
        count: u64,
        sum: WideSum,
    },
    Float {
        count: u64,
        sum: f64,
    },
    Min(Option<Value>),
    Max(Option<Value>),
}

impl State {
    /// The state before any row.
    pub(super) fn new(layout: &Layout, table: TableId, wanted: Aggregate) -> Result<Self, AggregateError> {
        Ok(match wanted {
            Aggregate::Rows => Self::Rows(0),
            Aggregate::Count(_) => Self::Count(0),
            Aggregate::Min(_) => Self::Min(None),
            Aggregate::Max(_) => Self::Max(None),
            Aggregate::Sum(column) | Aggregate::Average(column) => match layout.columns()[column].column_type {
                ColumnType::F32 | ColumnType::F64 => Self::Float { count: 0, sum: 0.0 },
                ColumnType::Decimal { .. } => Self::Whole { count: 0, sum: 0 },
                number if number.is_integer() => Self::Whole { count: 0, sum: 0 },
                ColumnType::I128 | ColumnType::U128 | ColumnType::Decimal128 { .. } => {
                    Self::Wide { count: 0, sum: WideSum::default() }
                }
                other => return Err(AggregateError::NoSum(table, column, other.to_string())),
            },
        })
    }

    /// Adds a row, by its value in the column that is looked at.
    pub(super) fn add(&mut self, value: ValueRef<'_>) {
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
            Self::Whole { count, sum } => {
                let number = match value {
                    ValueRef::Integer(number) => number.into(),
                    ValueRef::Decimal { units: number, .. } => number,
                    ValueRef::Unsigned(number) => number.into(),
                    _ => 0,
                };
                *count += 1;
                *sum += number;
            }
            Self::Wide { count, sum } => {
                *count += 1;
                match value {
                    ValueRef::Integer128(number) | ValueRef::Decimal { units: number, .. } => {
                        sum.add(number.cast_unsigned(), if number < 0 { -1 } else { 0 });
                    }
                    ValueRef::Unsigned128(number) => sum.add(number, 0),
                    _ => {}
                }
            }
            Self::Float { count, sum } => {
                if let ValueRef::Float(number) = value {
                    *count += 1;
                    *sum += number;
                }
            }
            Self::Min(least) => keep(least, value, |new, old| new < old),
            Self::Max(most) => keep(most, value, |new, old| new > old),
        }
    }

    /// The state after the rows of a batch, in which the aggregated column is at position `at`.
    pub(super) fn of(batch: &ColumnBatch<'_>, wanted: Aggregate, at: usize) -> Self {
        let extreme = |is_largest| Some(batch.extreme(at, is_largest).to_value()).filter(|value| !value.is_null());
        let count = || batch.count_values(at) as u64;
        match wanted {
            Aggregate::Rows => Self::Rows(batch.count() as u64),
            Aggregate::Count(_) => Self::Count(count()),
            Aggregate::Min(_) => Self::Min(extreme(false)),
            Aggregate::Max(_) => Self::Max(extreme(true)),
            Aggregate::Sum(_) | Aggregate::Average(_) => match batch.sum(at) {
                Some(Sum::Float(sum)) => Self::Float { count: count(), sum },
                Some(Sum::Whole(sum)) => Self::Whole { count: count(), sum },
                None => Self::Whole { count: 0, sum: 0 },
            },
        }
    }

    /// Adds that of other rows.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Rows(rows), Self::Rows(more)) | (Self::Count(rows), Self::Count(more)) => *rows += more,
            (Self::Whole { count, sum }, Self::Whole { count: others, sum: more }) => {
                *count += others;
                *sum += more;
            }
            (Self::Float { count, sum }, Self::Float { count: others, sum: more }) => {
                *count += others;
                *sum += more;
            }
            (state @ (Self::Min(_) | Self::Max(_)), Self::Min(Some(value)) | Self::Max(Some(value))) => {
                state.add(value.as_value_ref());
            }
            // Of no values.
            _ => {}
        }
    }

    /// The answer, or `None` when it does not fit.
    pub(super) fn finish(self, layout: &Layout, wanted: Aggregate) -> Option<Value> {
        let column_type = wanted.column().map(|column| layout.columns()[column].column_type);
        if let Aggregate::Average(_) = wanted {
            return Some(self.average(column_type));
        }
        Some(match self {
            Self::Rows(count) | Self::Count(count) => Value::Unsigned(count),
            Self::Whole { count: 0, .. } | Self::Float { count: 0, .. } | Self::Wide { count: 0, .. } => Value::Null,
            Self::Wide { sum, .. } => match column_type {
                Some(ColumnType::Decimal128 { scale }) => Value::Decimal { units: sum.signed()?, scale },
                Some(ColumnType::U128) => Value::Unsigned128(sum.unsigned()?),
                _ => Value::Integer128(sum.signed()?),
            },
            Self::Whole { sum, .. } => match column_type {
                Some(ColumnType::Decimal { scale }) => Value::Decimal { units: i64::try_from(sum).ok()?.into(), scale },
                Some(ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64) => {
                    Value::Unsigned(sum.try_into().ok()?)
                }
                _ => Value::Integer(sum.try_into().ok()?),
            },
            Self::Float { sum, .. } => Value::Float(sum),
            Self::Min(value) | Self::Max(value) => value.unwrap_or_default(),
        })
    }

    fn average(self, column_type: Option<ColumnType>) -> Value {
        let (count, sum) = match self {
            Self::Whole { count, sum } => (count, sum as f64),
            Self::Wide { count, sum } => (count, sum.to_float()),
            Self::Float { count, sum } => (count, sum),
            _ => (0, 0.0),
        };
        let one = match column_type {
            Some(ColumnType::Decimal { scale } | ColumnType::Decimal128 { scale }) => 10_f64.powi(scale as i32),
            _ => 1.0,
        };
        if count == 0 { Value::Null } else { Value::Float(sum / count as f64 / one) }
    }
}

/// A sum of 128-bit numbers, which may need more bits before all are added: the result does not depend on their order.
#[derive(Clone, Copy, Default)]
pub(super) struct WideSum {
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

    fn to_float(self) -> f64 {
        match (self.signed(), self.unsigned()) {
            (Some(sum), _) => sum as f64,
            (None, Some(sum)) => sum as f64,
            // Beyond 128 bits the low half is rounded before it is added.
            (None, None) => self.high as f64 * 2_f64.powi(128) + self.low as f64,
        }
    }
}

fn keep(kept: &mut Option<Value>, value: ValueRef<'_>, better: fn(&ValueRef<'_>, &ValueRef<'_>) -> bool) {
    if kept.as_ref().is_none_or(|kept| better(&value, &kept.as_value_ref())) {
        *kept = Some(value.to_value());
    }
}
