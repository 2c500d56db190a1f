//! Ranges of typed rows, visited in place.

use std::ops::{AddAssign, Bound, ControlFlow};

use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{Columns, Index, OwnedKey, Projection, Row};

use super::bounds::{BoundKey, KeyBounds};
use super::{Rows, Table};
use crate::aggregate::{Grouping, the_one};
use crate::{Aggregate, Direction, Restriction, Scan, Transaction};

/// A range of rows that is about to be read.
///
/// Its methods visit the rows where they lie, which is fastest; [`Range::iter`], and a `for` loop over the range, read them one by one as owned
/// values. Either way the range, as far as it was visited, stays as it was seen until the commit, or the transaction conflicts. Dropping
/// an iterator early, or stopping a visit, protects less.
#[must_use = "a range reads nothing until one of its methods is called"]
pub struct Range<'t, T: ?Sized, R: Row, K = All> {
    pub(super) transaction: &'t mut T,
    pub(super) table: TableId,
    pub(super) index: IndexId,
    /// The secondary index, if it is one.
    pub(super) secondary: Option<Index<R, ()>>,
    /// Refused when a bound is longer than any key.
    pub(super) bounds: Result<KeyBounds, Error>,
    pub(super) direction: Direction,
    pub(super) limit: usize,
    pub(super) restrictions: Vec<Restriction>,
    projection: Projection,
    keep: K,
}

/// Which rows of a range are looked at.
pub trait Keep<R: Row> {
    /// Whether it is every row.
    const ALL: bool = false;

    /// Whether this row is one of them; `Break`: nor are those behind it.
    fn keep(&mut self, row: R::Ref<'_>) -> ControlFlow<(), bool>;
}

/// Every row.
#[derive(Clone, Copy, Debug)]
pub struct All;

impl<R: Row> Keep<R> for All {
    const ALL: bool = true;

    #[inline]
    fn keep(&mut self, _: R::Ref<'_>) -> ControlFlow<(), bool> {
        ControlFlow::Continue(true)
    }
}

/// Rows that a closure chooses.
struct Chosen<F>(F);

impl<R: Row, F: FnMut(R::Ref<'_>) -> ControlFlow<(), bool>> Keep<R> for Chosen<F> {
    #[inline]
    fn keep(&mut self, row: R::Ref<'_>) -> ControlFlow<(), bool> {
        (self.0)(row)
    }
}

impl<'t, T: Transaction + ?Sized, R: Row> Range<'t, T, R> {
    pub(crate) fn new(
        transaction: &'t mut T,
        table: TableId,
        index: IndexId,
        bounds: Result<KeyBounds, Error>,
    ) -> Self {
        Self {
            transaction,
            table,
            index,
            secondary: None,
            bounds: bounds.map_err(|error| error.in_index(table, index)),
            direction: Direction::Forward,
            limit: usize::MAX,
            restrictions: Vec::new(),
            projection: Projection::ALL,
            keep: All,
        }
    }

    /// A range of a secondary index, whose handle must be of this table.
    #[inline]
    pub(crate) fn by<K: OwnedKey>(
        transaction: &'t mut T,
        table: &Table<R>,
        index: Index<R, K>,
        bounds: Result<KeyBounds, Error>,
    ) -> Self {
        match index.id_in(table.id) {
            Ok(id) => Self { secondary: Some(index.untyped()), ..Self::new(transaction, table.id, id, bounds) },
            Err(error) => Self::new(transaction, table.id, IndexId::PRIMARY, Err(error)),
        }
    }

    /// The rows one by one, as owned values, from either end. The transaction reads ahead, some rows at first and more of longer ranges. A
    /// limit holds for both ends together: so many rows are given, those from the other end among them.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// fn debts<T: Transaction>(transaction: &mut T, accounts: &Table<Account>) -> Result<i64, Error> {
    ///     let mut debts = 0;
    ///     for account in transaction.scan(accounts, 10..20) {
    ///         debts += account?.balance.min(0);
    ///     }
    ///     Ok(debts)
    /// }
    /// ```
    pub fn iter(self) -> Rows<'t, T, R> {
        Rows::new(self)
    }

    /// All rows as owned values.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn rows(mut self) -> Result<Vec<R>, Error> {
        self.projection = Projection::ALL;
        self.map(R::from_ref).collect()
    }

    /// Only these columns will be looked at.
    pub fn columns(mut self, columns: impl Columns<R>) -> Self {
        self.projection = columns.projection();
        self
    }
}

impl<'t, T: Transaction + ?Sized, R: Row> IntoIterator for Range<'t, T, R> {
    type Item = Result<R, Error>;
    type IntoIter = Rows<'t, T, R>;

    fn into_iter(self) -> Rows<'t, T, R> {
        self.iter()
    }
}

impl<'t, T: Transaction + ?Sized, R: Row, K: Keep<R>> Range<'t, T, R, K> {
    /// From the largest key down.
    pub fn rev(mut self) -> Self {
        self.direction = match self.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        self
    }

    /// At most so many rows.
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = self.limit.min(rows);
        self
    }

    /// The rows for which `is_wanted` holds. They are read and protected like the others.
    pub fn filter(self, mut is_wanted: impl FnMut(R::Ref<'_>) -> bool) -> Range<'t, T, R, impl Keep<R>> {
        self.choose(move |row| ControlFlow::Continue(is_wanted(row)))
    }

    /// The rows up to the first one for which `goes_on` does not hold.
    pub fn take_while(self, mut goes_on: impl FnMut(R::Ref<'_>) -> bool) -> Range<'t, T, R, impl Keep<R>> {
        self.choose(move |row| if goes_on(row) { ControlFlow::Continue(true) } else { ControlFlow::Break(()) })
    }

    fn choose(self, mut choose: impl FnMut(R::Ref<'_>) -> ControlFlow<(), bool>) -> Range<'t, T, R, impl Keep<R>> {
        let Self { transaction, table, index, secondary, bounds, direction, limit, restrictions, projection, mut keep } =
            self;
        let keep =
            Chosen(move |row: R::Ref<'_>| if keep.keep(row)? { choose(row) } else { ControlFlow::Continue(false) });
        Range { transaction, table, index, secondary, bounds, direction, limit, restrictions, projection, keep }
    }

    /// Visits the rows until the visitor breaks.
    ///
    /// # Errors
    /// Conflicts, [`Error::NoOrder`] for a range of a hash index, and [`Error::KeyTooLong`] for a bound longer than any key.
    pub fn visit(mut self, mut visitor: impl FnMut(R::Ref<'_>) -> ControlFlow<()>) -> Result<(), Error> {
        let bounds = self.bounds?;
        let scan = Scan {
            table: self.table,
            index: self.index,
            lower: bounds.lower.as_ref().map(BoundKey::as_bytes),
            upper: bounds.upper.as_ref().map(BoundKey::as_bytes),
            direction: self.direction,
            limit: if K::ALL || self.limit == 0 { self.limit } else { usize::MAX },
            projection: self.projection,
            restrictions: &self.restrictions,
        };
        let mut left = self.limit;
        self.transaction.scan_unchecked(&scan, &mut |row| {
            let row = R::view(row);
            if !self.keep.keep(row)? {
                return ControlFlow::Continue(());
            }
            left -= 1;
            let flow = visitor(row);
            if left == 0 { ControlFlow::Break(()) } else { flow }
        })
    }

    /// Visits the rows until the visitor fails, and passes its error on.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// enum Failed {
    ///     Overdrawn(u64),
    ///     Other(Error),
    /// }
    ///
    /// impl From<Error> for Failed {
    ///     fn from(error: Error) -> Self {
    ///         Self::Other(error)
    ///     }
    /// }
    ///
    /// fn audit<T: Transaction>(transaction: &mut T, accounts: &Table<Account>) -> Result<(), Failed> {
    ///     transaction.scan(accounts, ..).try_for_each(|row| {
    ///         if row.balance() < 0 { Err(Failed::Overdrawn(row.id())) } else { Ok(()) }
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Range::visit`], and the visitor's.
    pub fn try_for_each<E: From<Error>>(self, mut visitor: impl FnMut(R::Ref<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut failed = None;
        self.visit(|row| match visitor(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Visits all rows.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn for_each(self, mut visitor: impl FnMut(R::Ref<'_>)) -> Result<(), Error> {
        self.visit(|row| {
            visitor(row);
            ControlFlow::Continue(())
        })
    }

    /// Folds the rows into one value.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn fold<A>(self, first: A, mut fold: impl FnMut(A, R::Ref<'_>) -> A) -> Result<A, Error> {
        let mut value = Some(first);
        self.for_each(|row| {
            if let Some(before) = value.take() {
                value = Some(fold(before, row));
            }
        })?;
        Ok(value.expect("every call puts a value back"))
    }

    /// The number of rows.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn count(mut self) -> Result<u64, Error> {
        if K::ALL {
            if self.is_whole_table() {
                let scan = Scan { restrictions: &self.restrictions, ..Scan::all(self.table) };
                let groups = self.transaction.aggregate_range(&scan, &Grouping::whole(&[Aggregate::Rows]))?;
                return Ok(the_one(groups).to_column::<u64>()?);
            }
            self.projection = Projection::NONE;
        }
        self.fold(0, |count, _| count + 1)
    }

    /// Whether the range is the whole table: a protocol may know how to count that without a visit of each row.
    fn is_whole_table(&self) -> bool {
        let is_unbounded =
            |bounds: &KeyBounds| matches!((&bounds.lower, &bounds.upper), (Bound::Unbounded, Bound::Unbounded));
        self.index == IndexId::PRIMARY && self.limit == usize::MAX && self.bounds.as_ref().is_ok_and(is_unbounded)
    }

    /// Whether there is no row.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn is_empty(self) -> Result<bool, Error> {
        Ok(self.limit(1).count()? == 0)
    }

    /// The result of `read` for the first row, or `None` for an empty range: with [`Range::rev`], of the last one.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn first<O>(self, mut read: impl FnMut(R::Ref<'_>) -> O) -> Result<Option<O>, Error> {
        let mut output = None;
        self.limit(1).for_each(|row| output = Some(read(row)))?;
        Ok(output)
    }

    /// The result of `read` for the last row, or `None` for an empty range.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn last<O>(self, read: impl FnMut(R::Ref<'_>) -> O) -> Result<Option<O>, Error> {
        self.rev().first(read)
    }

    /// The result of `read` for each row; to be collected, summed or compared.
    pub fn map<O, F: FnMut(R::Ref<'_>) -> O>(self, read: F) -> Mapped<'t, T, R, F, K> {
        Mapped { range: self, read }
    }
}

/// A range with something to read of each row.
#[must_use = "a range reads nothing until one of its methods is called"]
pub struct Mapped<'t, T: ?Sized, R: Row, F, K = All> {
    range: Range<'t, T, R, K>,
    read: F,
}

impl<T: Transaction + ?Sized, R: Row, O, F: FnMut(R::Ref<'_>) -> O, K: Keep<R>> Mapped<'_, T, R, F, K> {
    /// Gives each value to `visitor`.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn for_each(mut self, mut visitor: impl FnMut(O)) -> Result<(), Error> {
        self.range.for_each(|row| visitor((self.read)(row)))
    }

    /// Collects what was read.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn collect<C: Default + Extend<O>>(self) -> Result<C, Error> {
        let mut all = C::default();
        self.for_each(|value| all.extend(std::iter::once(value)))?;
        Ok(all)
    }

    /// Sums what was read. The sum has the type of what is summed: widen it in `map` where it could overflow.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn sum(self) -> Result<O, Error>
    where
        O: Default + AddAssign,
    {
        let mut sum = O::default();
        self.for_each(|value| sum += value)?;
        Ok(sum)
    }

    /// The smallest value, or `None` of none; the first of equal ones.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn min(self) -> Result<Option<O>, Error>
    where
        O: PartialOrd,
    {
        self.best(|value, best| value < best)
    }

    /// The largest value, or `None` of none; the first of equal ones.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn max(self) -> Result<Option<O>, Error>
    where
        O: PartialOrd,
    {
        self.best(|value, best| value > best)
    }

    fn best(self, is_better: impl Fn(&O, &O) -> bool) -> Result<Option<O>, Error> {
        let mut best = None;
        self.for_each(|value| {
            if best.as_ref().is_none_or(|best| is_better(&value, best)) {
                best = Some(value);
            }
        })?;
        Ok(best)
    }
}
