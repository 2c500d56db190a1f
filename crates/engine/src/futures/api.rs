//! Operations on futures, for procedures.

use std::marker::PhantomData;

use polychron_base::error::FutureError;
use polychron_base::{Error, TableId};
use polychron_schema::{Column, ColumnSet, Key, KeyRef, KeyScratch, Row, RowRef};

use super::arena::Scope;
use super::column::FutureColumn;
use super::future::{Future, State, hand_over};
use super::keys::{FutureKey, OpenKey};
use super::types::FutureValue;
use super::value::{Bytes, Held, Operand, Value};
use super::{NewRow, close_key, insert_now, resolve_all, resolve_in_turn, write_now};
use crate::typed::with_encoded;
use crate::{Table, Transaction, foreign_keys};

/// Operations on futures, for procedures. Every [`Transaction`] has it.
///
/// # What fails
///
/// A transaction in which an operation fails, and that does not catch the error, does not commit: under every protocol the same
/// transactions commit, as if each operation had been computed in its turn. This holds also if what failed is overwritten later, or undone
/// by a return to a savepoint. Only the time at which it is told differs: a protocol that leaves futures open tells it at the latest at the
/// commit, or, if it would be undone before, as the error of [`Operations::roll_back_to`](crate::Operations::roll_back_to), which has taken place then. Where several
/// operations fail, any of them may be told.
///
/// A computation that nothing uses need not have a value. What an index must know at once does not stay open: the columns of foreign keys and
/// of unique secondary indexes, when an existing row is written.
///
/// ```
/// # use polychron_base::Error;
/// use polychron_engine::{Futures, Table, Transaction};
/// # use polychron_schema::Row;
/// #[derive(Row)]
/// struct Item { #[key] id: u64, stock: i64 }
///
/// fn take<T: Transaction>(transaction: &mut T, items: &Table<Item>, id: u64, quantity: i64) -> Result<bool, Error> {
///     let stock = transaction.future(items, id, Item::STOCK)?;
///     if transaction.is_true(stock.at_least(quantity))? {
///         transaction.set_future(items, id, Item::STOCK, stock - quantity)?;
///         return Ok(true);
///     }
///     Ok(false)
/// }
/// ```
///
/// Several columns at once, a row whose number is not known yet, and a write to one under such a number:
///
/// ```
/// # use polychron_base::Error;
/// use polychron_engine::{Becomes, Futures, Table, Transaction};
/// # use polychron_schema::Row;
/// # #[derive(Row)] struct Counter { #[key] id: u16, next: u32, taken: u64 }
/// # #[derive(Row)] struct Order { #[key] shop: u16, #[key] number: u32, weight: u64 }
/// # fn order<T: Transaction>(transaction: &mut T, counters: &Table<Counter>, orders: &Table<Order>) -> Result<(), Error> {
/// let (number, taken) = transaction.future(counters, 1, (Counter::NEXT, Counter::TAKEN))?;
/// transaction.set_futures(counters, 1, [Counter::NEXT.becomes(number + 1), Counter::TAKEN.becomes(taken + 5)])?;
/// let order = Order { shop: 1, number: 0, weight: 5 };
/// transaction.insert_future(orders, &order, [Order::NUMBER.becomes(number)])?;
/// transaction.set_futures_at(orders, (1, number - 1), [Order::WEIGHT.becomes(taken)])?;
/// # Ok(())
/// # }
/// ```
///
/// Columns and values must fit together, and only a truth value is a condition:
///
/// ```compile_fail
/// # use polychron_base::Error;
/// # use polychron_engine::{Future, Futures, Transaction};
/// fn ask<T: Transaction>(transaction: &mut T, stock: Future<i64>) -> Result<bool, Error> {
///     transaction.is_true(stock)
/// }
/// ```
/// ```compile_fail
/// # use polychron_base::Error;
/// # use polychron_engine::{Futures, Table, Transaction};
/// # #[derive(polychron_schema::Row)] struct Item { #[key] id: u64, stock: i64, open: bool }
/// fn set<T: Transaction>(transaction: &mut T, items: &Table<Item>) -> Result<(), Error> {
///     let open = transaction.future(items, 1, Item::OPEN)?;
///     transaction.set_future(items, 1, Item::STOCK, open)
/// }
/// ```
/// ```compile_fail
/// # use polychron_base::Error;
/// # use polychron_engine::{Becomes, Futures, Table, Transaction};
/// # #[derive(polychron_schema::Row)] struct Item { #[key] id: u64, stock: i64 }
/// # #[derive(polychron_schema::Row)] struct Order { #[key] id: u64, number: i64 }
/// fn set<T: Transaction>(transaction: &mut T, items: &Table<Item>) -> Result<(), Error> {
///     transaction.set_futures(items, 1, [Order::NUMBER.becomes(1)])
/// }
/// ```
pub trait Futures: Transaction {
    /// The value of a column, or of several in a tuple. Where there is no such row, the procedure ends with
    /// [`FutureError::NoRow`](super::FutureError::NoRow), now or at the commit.
    #[inline]
    fn future<R: Row, C: FutureColumns<R>>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        columns: C,
    ) -> Result<C::Futures, Error> {
        key.check().map_err(Error::from)?;
        columns.read(|columns, states| {
            let mut scratch = KeyScratch::new();
            self.read_futures(table.id(), key.encode(&mut scratch), columns, states)?;
            Ok(self.future_scope())
        })
    }

    /// As [`Futures::future`], of a row whose key has futures in it; they are resolved at once (§3.2).
    fn future_at<'k, R: Row + 'k, C: FutureColumns<R>>(
        &mut self,
        table: &Table<R>,
        key: impl FutureKey<KeyRef<'k, R>>,
        columns: C,
    ) -> Result<C::Futures, Error> {
        let mut open = OpenKey::new();
        key.encode_open(self, &mut open)?;
        let mut scratch = KeyScratch::new();
        let key = super::close_key(self, &open, &mut scratch)?;
        columns.read(|columns, states| {
            self.read_futures(table.id(), key, columns, states)?;
            Ok(self.future_scope())
        })
    }

    /// Makes a future the value of a column of a row that exists.
    #[inline]
    fn set_future<R: Row, T: FutureValue>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        column: Column<R, T>,
        value: impl Into<Future<T>>,
    ) -> Result<(), Error> {
        self.set_futures(table, key, [column.becomes(value)])
    }

    /// Makes futures the values of columns of a row that exists.
    #[inline]
    fn set_futures<R: Row, const N: usize>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        columns: [Assignment<R>; N],
    ) -> Result<(), Error> {
        key.check().map_err(Error::from)?;
        let mut columns = assigned(self, table.id(), columns)?;
        let mut scratch = KeyScratch::new();
        if resolve_in_turn(self, table.id(), &mut columns)? {
            return write_now(self, table.id(), key.encode(&mut scratch), &columns);
        }
        self.write_futures(table.id(), key.encode(&mut scratch), &columns)
    }

    /// As [`Futures::set_futures`], of a row whose key has futures in it; they stay open.
    fn set_futures_at<'k, R: Row + 'k, const N: usize>(
        &mut self,
        table: &Table<R>,
        key: impl FutureKey<KeyRef<'k, R>>,
        columns: [Assignment<R>; N],
    ) -> Result<(), Error> {
        let mut open = OpenKey::new();
        key.encode_open(self, &mut open)?;
        let mut columns = assigned(self, table.id(), columns)?;
        if resolve_in_turn(self, table.id(), &mut columns)? {
            let mut scratch = KeyScratch::new();
            let key = close_key(self, &open, &mut scratch)?;
            return write_now(self, table.id(), key, &columns);
        }
        self.write_futures_at(table.id(), &open, &columns)
    }

    /// Inserts a row, of which some columns are futures, those of the key too.
    ///
    /// # Errors
    /// [`Error::Duplicate`] when one of its keys is taken, now or at the commit.
    fn insert_future<R: Row, const N: usize>(
        &mut self,
        table: &Table<R>,
        row: &R,
        columns: [Assignment<R>; N],
    ) -> Result<(), Error> {
        row.key_ref().check().map_err(Error::from)?;
        let mut columns = assigned(self, table.id(), columns)?;
        // Any of its columns may refer to a parent, those too that are known.
        let refers = foreign_keys::concerns(self, table.id(), ColumnSet::ALL)?;
        if refers {
            resolve_all(self, &mut columns)?;
        }
        let mut key = OpenKey::new();
        key.set_row(self.definition(table.id())?, row, &columns)?;
        with_encoded(table.id(), row, |row: RowRef<'_>| {
            let row = NewRow { row, shape: R::SHAPE };
            match refers {
                true => insert_now(self, table.id(), &key, row, &columns),
                false => self.insert_futures(table.id(), &key, row, &columns),
            }
        })
    }

    /// Whether a condition is true: it stays so until the commit, or the transaction conflicts.
    #[inline]
    fn is_true(&mut self, condition: Future<bool>) -> Result<bool, Error> {
        let condition = hand_over(self, condition.state)?;
        self.test_future(condition)
    }

    /// As [`Futures::is_true`], where the answer is known beforehand most of the time: a protocol that looks at conditions at the
    /// commit anyway takes the assumed answer, and asks properly at the next attempt if it was wrong (LSD+, §3.3.2).
    fn is_true_assuming(&mut self, condition: Future<bool>, assumed: bool) -> Result<bool, Error> {
        let condition = hand_over(self, condition.state)?;
        self.test_future_assuming(condition, assumed)
    }

    /// The value: from now on the transaction depends on it.
    #[inline]
    fn resolve<T: FutureValue>(&mut self, future: Future<T>) -> Result<T, Error> {
        let future = hand_over(self, future.state)?;
        let value = self.resolve_future(future)?;
        Ok(T::Held::from_value(value).map(T::release).ok_or(FutureError::NoNull)?)
    }
}

impl<T: Transaction + ?Sized> Futures for T {}

/// The new value of a column.
#[derive(Debug)]
pub struct Assignment<R> {
    column: FutureColumn,
    state: State<Value<Bytes>>,
    row: PhantomData<fn() -> R>,
}

/// Columns become what is said of them: `Item::STOCK.becomes(stock - 1)`.
pub trait Becomes<R, T: FutureValue> {
    /// The column with its value.
    fn becomes(self, value: impl Into<Future<T>>) -> Assignment<R>;
}

impl<R, T: FutureValue> Becomes<R, T> for Column<R, T> {
    #[inline]
    fn becomes(self, value: impl Into<Future<T>>) -> Assignment<R> {
        Assignment { column: place_of(self), state: value.into().state.of_any_type(), row: PhantomData }
    }
}

/// A column that can be read as a future, or a tuple of such columns.
pub trait FutureColumns<R> {
    /// Its future, or theirs.
    type Futures;

    /// Reads them by `read`, which is shown where they lie, and answers whose the futures are that it gives.
    #[doc(hidden)]
    fn read(
        self,
        read: impl FnOnce(&[FutureColumn], &mut [Operand]) -> Result<Scope, Error>,
    ) -> Result<Self::Futures, Error>;
}

impl<R, T: FutureValue> FutureColumns<R> for Column<R, T> {
    type Futures = Future<T>;

    #[inline]
    fn read(
        self,
        read: impl FnOnce(&[FutureColumn], &mut [Operand]) -> Result<Scope, Error>,
    ) -> Result<Future<T>, Error> {
        let mut futures = [Operand::of(0)];
        let scope = read(&[place_of(self)], &mut futures)?;
        let [future] = futures;
        Ok(Future::new(State::given(scope, future)))
    }
}

macro_rules! tuple_of_columns {
    ($($type:ident $position:tt)*) => {
        impl<R, $($type: FutureValue),*> FutureColumns<R> for ($(Column<R, $type>,)*) {
            type Futures = ($(Future<$type>,)*);

            #[inline]
            #[allow(non_snake_case, reason = "each future is named as its type")]
            fn read(
                self,
                read: impl FnOnce(&[FutureColumn], &mut [Operand]) -> Result<Scope, Error>,
            ) -> Result<Self::Futures, Error> {
                let columns = [$(place_of(self.$position)),*];
                let mut futures = [$({ let _ = $position; Operand::of(0) }),*];
                let scope = read(&columns, &mut futures)?;
                let [$($type),*] = futures;
                Ok(($(Future::<$type>::new(State::given(scope, $type)),)*))
            }
        }
    };
}

tuple_of_columns!(A 0);
tuple_of_columns!(A 0 B 1);
tuple_of_columns!(A 0 B 1 C 2);
tuple_of_columns!(A 0 B 1 C 2 D 3);
tuple_of_columns!(A 0 B 1 C 2 D 3 E 4);
tuple_of_columns!(A 0 B 1 C 2 D 3 E 4 F 5);
tuple_of_columns!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuple_of_columns!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);

fn place_of<R, T: FutureValue>(column: Column<R, T>) -> FutureColumn {
    FutureColumn { span: column.span(), column_type: T::TYPE, nullable: T::NULLABLE }
}

/// Hands over what columns become. What is known and does not fit is refused at once.
#[inline]
fn assigned<T: Transaction + ?Sized, R, const N: usize>(
    transaction: &mut T,
    table: TableId,
    columns: [Assignment<R>; N],
) -> Result<[(FutureColumn, Operand); N], Error> {
    let mut outcome = Ok(());
    let assigned = columns.map(|Assignment { column, state, .. }| {
        let handed = hand_over(transaction, state).and_then(|operand| {
            if let Operand::Known(value) = &operand {
                column.check(table, value)?;
            }
            Ok(operand)
        });
        let operand = handed.unwrap_or_else(|error| {
            outcome = Err(error);
            Operand::of(0)
        });
        (column, operand)
    });
    outcome.map(|()| assigned)
}
