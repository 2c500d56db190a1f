//! Conditions on the columns of typed rows.

use std::marker::PhantomData;

use polychron_schema::{Column, ColumnValue, Row, Value};

use super::Range;
use super::range::Keep;
use crate::scan::Comparison;
use crate::{Restriction, Transaction};

/// A condition on a column of the rows `R`: for [`Range::such_that`].
#[derive(Debug)]
pub struct Condition<R>(pub(super) Restriction, PhantomData<fn() -> R>);

/// Comparisons of columns: `Item::STOCK.at_least(5)`. A comparison with NULL holds for no row, as in SQL.
///
/// Floating-point numbers compare in the order of keys, which is that of [`f64::total_cmp`], and not as `<` and `==` do: −0.0 is less than 0.0 and
/// differs from it; NaN equals NaN of the same bits and no other; NaN is greater than +∞, and less than −∞ where its sign bit is set.
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
