//! Conditions on the columns of typed rows, and what is computed of a range.

use std::marker::PhantomData;

use polychron_base::Error;
use polychron_schema::{Column, ColumnValue, Row, Value};

use super::Range;
use super::bounds::BoundKey;
use super::range::Keep;
use crate::aggregate::AggregateError;
use crate::scan::Comparison;
use crate::{Aggregate, Restriction, Scan, Transaction};

/// A condition on a column of the rows `R`: for [`Range::such_that`].
#[derive(Debug)]
pub struct Condition<R>(pub(super) Restriction, PhantomData<fn() -> R>);

/// What columns can be compared with: `Item::STOCK.at_least(5)`. A comparison with NULL holds for no row, as in SQL.
pub trait Conditions<R, T: ColumnValue> {
    /// The column compared with a value.
    fn compared(self, comparison: Comparison, value: T::Ref<'_>) -> Condition<R>;

    /// `=`
    fn equals(self, value: T::Ref<'_>) -> Condition<R>
    where
        Self: Sized,
    {
        self.compared(Comparison::Equal, value)
    }

    /// `≠`
    fn differs_from(self, value: T::Ref<'_>) -> Condition<R>
    where
        Self: Sized,
    {
        self.compared(Comparison::NotEqual, value)
    }

    /// `<`
    fn less_than(self, value: T::Ref<'_>) -> Condition<R>
    where
        Self: Sized,
    {
        self.compared(Comparison::Less, value)
    }

    /// `≤`
    fn at_most(self, value: T::Ref<'_>) -> Condition<R>
    where
        Self: Sized,
    {
        self.compared(Comparison::AtMost, value)
    }

    /// `>`
    fn greater_than(self, value: T::Ref<'_>) -> Condition<R>
    where
        Self: Sized,
    {
        self.compared(Comparison::Greater, value)
    }

    /// `≥`
    fn at_least(self, value: T::Ref<'_>) -> Condition<R>
    where
        Self: Sized,
    {
        self.compared(Comparison::AtLeast, value)
    }
}

impl<R, T: ColumnValue + Into<Value>> Conditions<R, T> for Column<R, T> {
    fn compared(self, comparison: Comparison, value: T::Ref<'_>) -> Condition<R> {
        let value = T::own(value).into();
        Condition(Restriction { column: self.index.into(), comparison, value }, PhantomData)
    }
}

/// A column type whose values have a sum.
pub trait Summed: ColumnValue {
    /// The type of the sum: the widest of its kind.
    type Sum;

    /// The sum as a protocol computes it, which is never NULL here.
    #[doc(hidden)]
    fn sum_of(value: &Value) -> Option<Self::Sum>;
}

macro_rules! summed {
    ($($type:ty, [$($generics:tt)*], $sum:ty, |$value:ident| $from:expr;)*) => {$(
        impl<$($generics)*> Summed for $type {
            type Sum = $sum;

            fn sum_of($value: &Value) -> Option<$sum> {
                $from
            }
        }
    )*};
}

summed! {
    i8, [], i64, |value| integer(value);
    i16, [], i64, |value| integer(value);
    i32, [], i64, |value| integer(value);
    i64, [], i64, |value| integer(value);
    u8, [], u64, |value| unsigned(value);
    u16, [], u64, |value| unsigned(value);
    u32, [], u64, |value| unsigned(value);
    u64, [], u64, |value| unsigned(value);
    f64, [], f64, |value| if let Value::Float(sum) = value { Some(*sum) } else { None };
    polychron_schema::Decimal<SCALE>, [const SCALE: u32], Self, |value| match value {
        Value::Decimal { units, .. } => i64::try_from(*units).ok().map(Self::from_units),
        _ => None,
    };
}

impl<T: Summed> Summed for Option<T>
where
    Self: ColumnValue,
{
    type Sum = T::Sum;

    fn sum_of(value: &Value) -> Option<T::Sum> {
        T::sum_of(value)
    }
}

fn integer(value: &Value) -> Option<i64> {
    if let Value::Integer(sum) = value { Some(*sum) } else { None }
}

fn unsigned(value: &Value) -> Option<u64> {
    if let Value::Unsigned(sum) = value { Some(*sum) } else { None }
}

impl<T: Transaction + ?Sized, R: Row, K: Keep<R>> Range<'_, T, R, K> {
    /// The rows for which the condition holds. Unlike those that [`Range::filter`] chooses, these are all that a protocol with precision locking
    /// (HyPer's) protects: what others do to rows that do not satisfy it, before or after, is no conflict.
    ///
    /// ```
    /// # use polychron_engine::{Error, Operations, Row, Table, Transaction};
    /// use polychron_engine::typed::Conditions;
    ///
    /// #[derive(Row)]
    /// struct Item { #[key] id: u64, stock: u32, shelf: String }
    ///
    /// fn low<T: Transaction>(transaction: &mut T, items: &Table<Item>) -> Result<Vec<Item>, Error> {
    ///     transaction.scan(items, ..).such_that(Item::STOCK.less_than(5)).such_that(Item::SHELF.equals("A")).rows()
    /// }
    /// ```
    pub fn such_that(mut self, condition: Condition<R>) -> Self {
        self.restrictions.push(condition.0);
        self
    }
}

impl<T: Transaction + ?Sized, R: Row> Range<'_, T, R> {
    /// The sum of a column, in the widest type of its kind; `None` where no row has a value. The limit and direction of the range do not
    /// count. A protocol that stores columns computes it from them, and protects the answer alone.
    ///
    /// ```
    /// # use polychron_engine::{Error, Operations, Row, Table, Transaction};
    /// use polychron_engine::typed::Conditions;
    ///
    /// #[derive(Row)]
    /// struct Item { #[key] id: u64, stock: u32, reserved: bool }
    ///
    /// fn free<T: Transaction>(transaction: &mut T, items: &Table<Item>) -> Result<u64, Error> {
    ///     let free = transaction.scan(items, ..).such_that(Item::RESERVED.equals(false));
    ///     Ok(free.sum_of(Item::STOCK)?.unwrap_or(0))
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Range::visit`], and [`AggregateError::Overflow`] for a sum that the type cannot hold.
    pub fn sum_of<C: Summed>(self, column: Column<R, C>) -> Result<Option<C::Sum>, Error> {
        let (table, position) = (self.table, usize::from(column.index));
        match self.aggregate(Aggregate::Sum(position))? {
            Value::Null => Ok(None),
            sum => match C::sum_of(&sum) {
                Some(sum) => Ok(Some(sum)),
                None => Err(AggregateError::Overflow(table, position).into()),
            },
        }
    }

    fn aggregate(self, wanted: Aggregate) -> Result<Value, Error> {
        let bounds = self.bounds?;
        let scan = Scan {
            index: self.index,
            lower: bounds.lower.as_ref().map(BoundKey::as_bytes),
            upper: bounds.upper.as_ref().map(BoundKey::as_bytes),
            restrictions: &self.restrictions,
            ..Scan::all(self.table)
        };
        self.transaction.aggregate_range(&scan, wanted)
    }
}
