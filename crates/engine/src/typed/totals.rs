//! Aggregates of a range of typed rows, or of each group of them.

use std::fmt;
use std::marker::PhantomData;

use polychron_base::{Error, TableId};
use polychron_schema::{Column, ColumnValue, Columns, OwnedKey, Row, Value};

use super::Range;
use super::bounds::BoundKey;
use crate::aggregate::{AggregateError, Group, Grouping};
use crate::{Aggregate, Scan, Transaction};

/// Groups that [`Range::group_by`] makes at most.
pub const MOST_GROUPS: usize = 1 << 16;

/// The common values of each group, and the answers over it.
pub type Groups<K, A> = Vec<(K, A)>;

/// An answer over rows `R`, of the type `O`: [`count()`], or made of a column by [`Aggregates`].
pub struct Total<R, O> {
    aggregate: Aggregate,
    read: fn(TableId, Aggregate, &Value) -> Result<O, Error>,
    rows: PhantomData<fn() -> R>,
}

impl<R, O> Clone for Total<R, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, O> Copy for Total<R, O> {}

impl<R, O> fmt::Debug for Total<R, O> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Total").field(&self.aggregate).finish()
    }
}

impl<R, O> Total<R, O> {
    fn new(aggregate: Aggregate, read: fn(TableId, Aggregate, &Value) -> Result<O, Error>) -> Self {
        Self { aggregate, read, rows: PhantomData }
    }
}

/// The number of rows.
pub fn count<R>() -> Total<R, u64> {
    Total::new(Aggregate::Rows, read_count)
}

fn read_count(_: TableId, _: Aggregate, value: &Value) -> Result<u64, Error> {
    Ok(value.to_column::<u64>()?)
}

fn read_value<T: ColumnValue>(_: TableId, _: Aggregate, value: &Value) -> Result<Option<T>, Error> {
    if value.is_null() { Ok(None) } else { Ok(Some(value.to_column::<T>()?)) }
}

fn read_sum<T: Summed>(table: TableId, aggregate: Aggregate, value: &Value) -> Result<Option<T::Sum>, Error> {
    if value.is_null() {
        return Ok(None);
    }
    let overflow = || AggregateError::Overflow(table, aggregate.column().unwrap_or_default()).into();
    T::sum_of(value).map(Some).ok_or_else(overflow)
}

/// Questions about a column over many rows: for [`Range::aggregate`] and [`Range::group_by`]. NULLs do not count, as in SQL, and of no values
/// there is no sum, average or extreme.
pub trait Aggregates<R, T: ColumnValue> {
    /// The number of rows that have a value in the column.
    fn count(self) -> Total<R, u64>;

    /// The sum, in the widest type of its kind: `i64`, `u64`, `i128`, `u128`, `f64`, or the decimal itself. A sum of whole numbers or decimals is
    /// exact, and one that the type cannot hold is [`AggregateError::Overflow`]. Floating-point numbers are added in 64 bits in any order, so
    /// that sums of the same rows may differ in the last digits; a sum that is zero is 0.0.
    fn sum(self) -> Total<R, Option<T::Sum>>
    where
        T: Summed;

    /// The average: the exact sum of whole numbers or decimals, which overflows nothing, divided by their number and rounded; of floating-point
    /// numbers their sum as [`Aggregates::sum`] has it.
    fn average(self) -> Total<R, Option<f64>>
    where
        T: Summed;

    /// The smallest value, in the order of keys: -0.0 before 0.0, and NaN at the ends.
    fn min(self) -> Total<R, Option<T::Plain>>;

    /// The largest value, in the same order.
    fn max(self) -> Total<R, Option<T::Plain>>;
}

impl<R, T: ColumnValue> Aggregates<R, T> for Column<R, T> {
    fn count(self) -> Total<R, u64> {
        Total::new(Aggregate::Count(self.index.into()), read_count)
    }

    fn sum(self) -> Total<R, Option<T::Sum>>
    where
        T: Summed,
    {
        Total::new(Aggregate::Sum(self.index.into()), read_sum::<T>)
    }

    fn average(self) -> Total<R, Option<f64>>
    where
        T: Summed,
    {
        Total::new(Aggregate::Average(self.index.into()), read_value::<f64>)
    }

    fn min(self) -> Total<R, Option<T::Plain>> {
        Total::new(Aggregate::Min(self.index.into()), read_value::<T::Plain>)
    }

    fn max(self) -> Total<R, Option<T::Plain>> {
        Total::new(Aggregate::Max(self.index.into()), read_value::<T::Plain>)
    }
}

/// One [`Total`] or a tuple of up to eight.
pub trait Totals<R>: Copy {
    /// Their answers.
    type Answers;

    /// The question to the engine.
    #[doc(hidden)]
    fn wanted(self) -> Vec<Aggregate>;

    /// The answers, of the values that the engine gives for that.
    #[doc(hidden)]
    fn read(self, table: TableId, values: &[Value]) -> Result<Self::Answers, Error>;
}

impl<R, O> Totals<R> for Total<R, O> {
    type Answers = O;

    fn wanted(self) -> Vec<Aggregate> {
        vec![self.aggregate]
    }

    fn read(self, table: TableId, values: &[Value]) -> Result<O, Error> {
        (self.read)(table, self.aggregate, values.first().unwrap_or(&Value::Null))
    }
}

macro_rules! tuple_totals {
    ($($output:ident $position:tt),+) => {
        impl<R, $($output),+> Totals<R> for ($(Total<R, $output>,)+) {
            type Answers = ($($output,)+);

            fn wanted(self) -> Vec<Aggregate> {
                vec![$(self.$position.aggregate),+]
            }

            fn read(self, table: TableId, values: &[Value]) -> Result<Self::Answers, Error> {
                Ok(($(self.$position.read(table, values.get($position..).unwrap_or_default())?,)+))
            }
        }
    };
}

tuple_totals!(A 0);
tuple_totals!(A 0, B 1);
tuple_totals!(A 0, B 1, C 2);
tuple_totals!(A 0, B 1, C 2, D 3);
tuple_totals!(A 0, B 1, C 2, D 3, E 4);
tuple_totals!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple_totals!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_totals!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Columns by which rows are grouped: one, or a tuple of up to eight.
pub trait GroupColumns<R>: Columns<R> {
    /// Their values, owned.
    type Key: OwnedKey;

    /// Their positions.
    #[doc(hidden)]
    fn positions(self) -> Vec<usize>;
}

impl<R, T: ColumnValue + OwnedKey> GroupColumns<R> for Column<R, T> {
    type Key = T;

    fn positions(self) -> Vec<usize> {
        vec![self.index.into()]
    }
}

macro_rules! tuple_groups {
    ($($column:ident $position:tt),+) => {
        impl<R, $($column: ColumnValue + OwnedKey),+> GroupColumns<R> for ($(Column<R, $column>,)+) {
            type Key = ($($column,)+);

            fn positions(self) -> Vec<usize> {
                vec![$(self.$position.index.into()),+]
            }
        }
    };
}

tuple_groups!(A 0);
tuple_groups!(A 0, B 1);
tuple_groups!(A 0, B 1, C 2);
tuple_groups!(A 0, B 1, C 2, D 3);
tuple_groups!(A 0, B 1, C 2, D 3, E 4);
tuple_groups!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple_groups!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_groups!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// A column type whose values have a sum.
pub trait Summed: ColumnValue {
    /// The type of the sum: the widest of its kind.
    type Sum;

    /// The sum as a protocol computes it, which is never NULL here.
    #[doc(hidden)]
    fn sum_of(value: &Value) -> Option<Self::Sum>;
}

macro_rules! summed {
    ($($type:ty, [$($generics:tt)*], $sum:ty;)*) => {$(
        impl<$($generics)*> Summed for $type {
            type Sum = $sum;

            fn sum_of(value: &Value) -> Option<$sum> {
                value.to_column().ok()
            }
        }
    )*};
}

summed! {
    i8, [], i64;
    i16, [], i64;
    i32, [], i64;
    i64, [], i64;
    u8, [], u64;
    u16, [], u64;
    u32, [], u64;
    u64, [], u64;
    i128, [], i128;
    u128, [], u128;
    f32, [], f64;
    f64, [], f64;
    polychron_schema::Decimal<SCALE>, [const SCALE: u32], Self;
    polychron_schema::Decimal128<SCALE>, [const SCALE: u32], Self;
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

impl<T: Transaction + ?Sized, R: Row> Range<'_, T, R> {
    /// Several answers over the rows, in one pass. A protocol that stores columns computes them from these, and one that locks predicates protects
    /// the answers alone: a change of a column that is not asked for is no conflict, nor is one of a row outside of the range and its
    /// [conditions](Range::such_that), nor, of an extreme, one that does not go beyond it.
    ///
    /// ```
    /// # use polychron_engine::{Error, Operations, Row, Table, Transaction};
    /// use polychron_engine::typed::{Aggregates, Conditions, count};
    ///
    /// #[derive(Row)]
    /// struct Item { #[key] id: u64, price: u32, stock: Option<i32> }
    ///
    /// fn report<T: Transaction>(transaction: &mut T, items: &Table<Item>) -> Result<(), Error> {
    ///     let dear = transaction.scan(items, ..).such_that(Item::PRICE.at_least(100));
    ///     let (value, least, items) = dear.aggregate((Item::PRICE.sum(), Item::STOCK.min(), count()))?;
    ///     println!("{items} items, {} in all, at least {least:?} of each", value.unwrap_or(0));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Range::visit`], and [`AggregateError::Overflow`] for a sum that its type cannot hold.
    pub fn aggregate<A: Totals<R>>(self, totals: A) -> Result<A::Answers, Error> {
        let (table, wanted) = (self.table, totals.wanted());
        let groups = self.answer(&Grouping::whole(&wanted))?;
        totals.read(table, groups.first().map_or(&[], |group| &group.values))
    }

    /// Answers over each group of rows that have equal values in some columns, in the order of these values as keys: NULL first, as a group of its
    /// own, -0.0 before 0.0. What is protected is as of [`Range::aggregate`], with the columns by which rows are grouped.
    ///
    /// ```
    /// # use polychron_engine::{Error, Operations, Row, Table, Transaction};
    /// use polychron_engine::typed::{Aggregates, count};
    ///
    /// #[derive(Row)]
    /// struct Item { #[key] id: u64, shelf: String, price: u32 }
    ///
    /// fn shelves<T: Transaction>(transaction: &mut T, items: &Table<Item>) -> Result<(), Error> {
    ///     for (shelf, (items, dearest)) in transaction.scan(items, ..).group_by(Item::SHELF, (count(), Item::PRICE.max()))? {
    ///         println!("{shelf}: {items} items, up to {}", dearest.unwrap_or(0));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Range::aggregate`]; [`AggregateError::TooManyGroups`] beyond [`MOST_GROUPS`]; [`Error::KeyTooLong`] where the common values are longer
    /// than a key.
    pub fn group_by<C: GroupColumns<R>, A: Totals<R>>(
        self,
        columns: C,
        totals: A,
    ) -> Result<Groups<C::Key, A::Answers>, Error> {
        self.group_by_at_most(MOST_GROUPS, columns, totals)
    }

    /// As [`Range::group_by`], with another number of groups that there may be: memory for so many is needed.
    ///
    /// # Errors
    /// As there.
    pub fn group_by_at_most<C: GroupColumns<R>, A: Totals<R>>(
        self,
        most: usize,
        columns: C,
        totals: A,
    ) -> Result<Groups<C::Key, A::Answers>, Error> {
        let (table, by, wanted) = (self.table, columns.positions(), totals.wanted());
        let groups = self.answer(&Grouping { by: &by, wanted: &wanted, most })?;
        let read = |group: Group| Ok((C::Key::decode(&group.key)?, totals.read(table, &group.values)?));
        groups.into_iter().map(read).collect()
    }

    /// The sum of one column; see [`Aggregates::sum`].
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
    /// As [`Range::aggregate`].
    pub fn sum_of<C: Summed>(self, column: Column<R, C>) -> Result<Option<C::Sum>, Error> {
        self.aggregate(column.sum())
    }

    fn answer(self, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        let bounds = self.bounds?;
        let scan = Scan {
            index: self.index,
            lower: bounds.lower.as_ref().map(BoundKey::as_bytes),
            upper: bounds.upper.as_ref().map(BoundKey::as_bytes),
            direction: self.direction,
            limit: self.limit,
            restrictions: &self.restrictions,
            ..Scan::all(self.table)
        };
        self.transaction.aggregate_range(&scan, grouping)
    }
}
