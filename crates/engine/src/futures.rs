//! Futures: values of a transaction that need not be known before its commit (lazy state determination, §3.2).
//!
//! A procedure reads a column as a [`Future`], computes with it, asks whether a condition over futures is true, and writes
//! futures back, all without learning a value. A protocol that can leave them open keeps the expressions in an arena and
//! resolves them when it commits, so that two transactions that only add to one counter need not conflict. Every other
//! protocol resolves at once, which the paper calls equivalent: the same procedure runs everywhere.
//!
//! Procedures use the typed face, [`Futures`]. Protocols see [`Operand`]s and [`Expression`]s, and a lazy one overrides the
//! six methods of [`Transaction`] that take them. An [`Expression`] refers to operands that were made before it, so an arena
//! in the order of their making is resolved in one pass with [`Expression::evaluate`].
//!
//! Every combination is checked, whether or not its value is used in the end, so that a procedure fails in the same cases
//! on every protocol. When it fails differs: at once, or at the commit.

use std::fmt;
use std::marker::PhantomData;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Stop, TableId};
use polychron_schema::{
    Column, ColumnSet, ColumnSpan, ColumnType, ColumnValue, Date, Decimal, Key, KeyRef, KeyScratch, Row, RowRef,
    Timestamp,
};

use crate::scan::Comparison;
use crate::{Table, Transaction, foreign_keys};

/// The bits of a column's value, extended to 64 by its sign; truth values are 0 and 1, decimals their units.
pub type Scalar = u64;

/// What a protocol sees of a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A value.
    Known(Scalar),
    /// A place in the transaction's arena, which the protocol made.
    Pending(u32),
}

/// Computations that keep the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Towards zero.
    Divide,
    Min,
    Max,
}

/// What is made of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Expression {
    /// Checked: a result that does not fit in the column type is an error.
    Arithmetic { operation: Arithmetic, column_type: ColumnType, left: Operand, right: Operand },
    /// A truth value. `column_type` is that of both sides.
    Compare { comparison: Comparison, column_type: ColumnType, left: Operand, right: Operand },
    /// One of two, by a truth value.
    Choose { condition: Operand, then: Operand, otherwise: Operand },
}

/// A column that a future is read from or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutureColumn {
    /// Where it lies.
    pub span: ColumnSpan,
    /// Its type: one that has a [`FutureValue`].
    pub column_type: ColumnType,
}

/// Why a future has no value. Ends the procedure as [`Error::Procedure`], from which it can be downcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FutureError {
    /// The result of a computation does not fit in its type.
    Overflow {
        /// The computation.
        operation: Arithmetic,
        /// Its type.
        column_type: ColumnType,
        /// The left side's value.
        left: i128,
        /// The right side's value.
        right: i128,
    },
    /// A division by zero.
    DivisionByZero {
        /// The left side's value.
        left: i128,
    },
    /// The row whose column was read or written does not exist. A procedure that must know reads the row instead.
    NoRow(TableId),
    /// The column is NULL.
    Null(TableId),
    /// The future belongs to another transaction.
    Foreign,
}

impl fmt::Display for FutureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow { operation, column_type, left, right } => {
                let operation = match operation {
                    Arithmetic::Add => "+",
                    Arithmetic::Subtract => "-",
                    Arithmetic::Multiply => "×",
                    Arithmetic::Divide => "÷",
                    Arithmetic::Min => "min",
                    Arithmetic::Max => "max",
                };
                write!(out, "{left} {operation} {right} does not fit in {column_type}")
            }
            Self::DivisionByZero { left } => write!(out, "{left} ÷ 0 has no value"),
            Self::NoRow(table) => write!(out, "a future names a row that does not exist in {table}"),
            Self::Null(table) => write!(out, "a future names a column that is NULL in {table}"),
            Self::Foreign => out.write_str("a future of another transaction was used"),
        }
    }
}

impl std::error::Error for FutureError {}

/// The number behind the bits.
#[inline]
fn widen(scalar: Scalar, column_type: ColumnType) -> i128 {
    if column_type == ColumnType::U64 { scalar.into() } else { (scalar as i64).into() }
}

/// Whether a value of this type can have that number.
fn fits(number: i128, column_type: ColumnType) -> bool {
    let bits = 8 * column_type.width();
    match column_type {
        ColumnType::Bool => (0..=1).contains(&number),
        ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => (0..1 << bits).contains(&number),
        _ => (-(1 << (bits - 1))..1 << (bits - 1)).contains(&number),
    }
}

impl Expression {
    /// The value, once those of pending operands are known.
    ///
    /// # Errors
    /// [`FutureError::Overflow`], [`FutureError::DivisionByZero`], or what `pending` answers.
    pub fn evaluate(self, mut pending: impl FnMut(u32) -> Result<Scalar, FutureError>) -> Result<Scalar, FutureError> {
        let mut value = |operand| match operand {
            Operand::Known(scalar) => Ok(scalar),
            Operand::Pending(place) => pending(place),
        };
        match self {
            Self::Arithmetic { operation, column_type, left, right } => {
                let (left, right) = (widen(value(left)?, column_type), widen(value(right)?, column_type));
                let result = match operation {
                    Arithmetic::Add => Some(left + right),
                    Arithmetic::Subtract => Some(left - right),
                    // The product of two 64-bit numbers without sign can need all 128 bits.
                    Arithmetic::Multiply => left.checked_mul(right),
                    Arithmetic::Divide if right == 0 => return Err(FutureError::DivisionByZero { left }),
                    Arithmetic::Divide => Some(left / right),
                    Arithmetic::Min => Some(left.min(right)),
                    Arithmetic::Max => Some(left.max(right)),
                };
                let result = result.filter(|result| fits(*result, column_type));
                result.map(|result| result as Scalar).ok_or(FutureError::Overflow {
                    operation,
                    column_type,
                    left,
                    right,
                })
            }
            Self::Compare { comparison, column_type, left, right } => {
                let (left, right) = (widen(value(left)?, column_type), widen(value(right)?, column_type));
                Ok(comparison.holds(&left, &right).into())
            }
            Self::Choose { condition, then, otherwise } => {
                let (condition, then, otherwise) = (value(condition)?, value(then)?, value(otherwise)?);
                Ok(if condition != 0 { then } else { otherwise })
            }
        }
    }
}

impl FutureColumn {
    /// The column's value in a row; `None` is NULL.
    pub fn load(self, row: RowRef<'_>) -> Option<Scalar> {
        if row.is_null(self.span.slot) {
            return None;
        }
        let bytes = row.fixed(self.span.slot);
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
        let bits = u64::from_le_bytes(word) << unused;
        Some(match self.column_type {
            ColumnType::Bool | ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => bits >> unused,
            _ => ((bits as i64) >> unused) as u64,
        })
    }

    /// Makes `value` the column's value.
    pub fn store(self, row: &mut crate::RowMut<'_>, value: Scalar) {
        let bytes = row.fixed_mut(self.span);
        let width = bytes.len().min(8);
        bytes[..width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// The eager [`Transaction::read_future`].
pub(crate) fn read_now<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    column: FutureColumn,
) -> Result<Operand, Stop> {
    let projection = polychron_schema::Projection::of(&[column.span]);
    let row = transaction.read_row(table, key, &projection)?.ok_or(FutureError::NoRow(table))?;
    Ok(Operand::Known(column.load(row).ok_or(FutureError::Null(table))?))
}

/// The eager [`Transaction::write_future`].
pub(crate) fn write_now<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    column: FutureColumn,
    value: Operand,
) -> Result<(), Stop> {
    let value = transaction.resolve_future(value)?;
    let projection = polychron_schema::Projection::of(&[column.span]);
    let found = foreign_keys::update_row(transaction, table, key, &projection, |row| column.store(row, value))?;
    if found { Ok(()) } else { Err(FutureError::NoRow(table).into()) }
}

/// A value of type `T` that may not be known yet. Belongs to the transaction that made it; a plain value becomes one with
/// `into()`, and serves in every transaction.
pub struct Future<T> {
    operand: Operand,
    value: PhantomData<fn() -> T>,
}

impl<T> Future<T> {
    fn new(operand: Operand) -> Self {
        Self { operand, value: PhantomData }
    }

    /// Whether the value is known, so that nothing is left to be asked. It is not told here: to learn it is to depend on it, which
    /// [`Futures::resolve`] sees to.
    pub fn is_known(self) -> bool {
        matches!(self.operand, Operand::Known(_))
    }
}

impl<T> Clone for Future<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Future<T> {}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operand.fmt(out)
    }
}

impl<T: FutureValue> From<T> for Future<T> {
    fn from(value: T) -> Self {
        Self::new(Operand::Known(value.to_scalar()))
    }
}

/// A type of column that a future can stand for: fixed width, 64 bits at most, not NULL.
pub trait FutureValue: ColumnValue + Copy {
    /// The value's bits.
    fn to_scalar(self) -> Scalar;
    /// The value of these bits.
    fn from_scalar(scalar: Scalar) -> Self;
}

/// A type with sums and differences.
pub trait Number: FutureValue {}

/// A type with products.
pub trait Integer: Number {}

macro_rules! future_value {
    ($([$($generics:tt)*] $type:ty, |$value:ident| $to:expr, |$scalar:ident| $from:expr;)*) => {$(
        impl<$($generics)*> FutureValue for $type {
            #[inline]
            fn to_scalar(self) -> Scalar {
                let $value = self;
                $to
            }

            #[inline]
            fn from_scalar($scalar: Scalar) -> Self {
                $from
            }
        }
    )*};
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        future_value! { [] $type, |value| value as Scalar, |scalar| scalar as Self; }
        impl Number for $type {}
        impl Integer for $type {}
    )*};
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);
future_value! {
    [] bool, |value| value.into(), |scalar| scalar != 0;
    [] Date, |value| value.0 as Scalar, |scalar| Self(scalar as i32);
    [] Timestamp, |value| value.0 as Scalar, |scalar| Self(scalar as i64);
    [const SCALE: u32] Decimal<SCALE>, |value| value.units() as Scalar, |scalar| Self::from_units(scalar as i64);
}
impl<const SCALE: u32> Number for Decimal<SCALE> {}

/// What procedures do with futures. Every [`Transaction`] has it.
///
/// ```
/// # use polychron_base::Stop;
/// use polychron_engine::scan::Comparison;
/// use polychron_engine::{Futures, Table, Transaction};
/// # use polychron_schema::Row;
/// #[derive(Row)]
/// struct Item { #[key] id: u64, stock: i64 }
///
/// fn take<T: Transaction>(transaction: &mut T, items: &Table<Item>, id: u64, quantity: i64) -> Result<bool, Stop> {
///     let stock = transaction.future(items, id, Item::STOCK)?;
///     let enough = transaction.compare(stock, Comparison::AtLeast, quantity)?;
///     if transaction.is_true(enough)? {
///         let left = transaction.subtract(stock, quantity)?;
///         transaction.set_future(items, id, Item::STOCK, left)?;
///         return Ok(true);
///     }
///     Ok(false)
/// }
/// ```
///
/// Values of different types do not combine, and only a truth value is a condition:
///
/// ```compile_fail
/// # use polychron_base::Stop;
/// # use polychron_engine::{Future, Futures, Transaction};
/// fn add<T: Transaction>(transaction: &mut T, stock: Future<i64>, open: Future<bool>) -> Result<Future<i64>, Stop> {
///     transaction.add(stock, open)
/// }
/// ```
///
/// ```compile_fail
/// # use polychron_base::Stop;
/// # use polychron_engine::{Future, Futures, Transaction};
/// fn ask<T: Transaction>(transaction: &mut T, stock: Future<i64>) -> Result<bool, Stop> {
///     transaction.is_true(stock)
/// }
/// ```
pub trait Futures: Transaction {
    /// The value of a column. Where there is no such row, the procedure ends with [`FutureError::NoRow`], now or at the
    /// commit.
    fn future<R: Row, T: FutureValue>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        column: Column<R, T>,
    ) -> Result<Future<T>, Stop> {
        key.check().map_err(Error::from)?;
        let mut scratch = KeyScratch::new();
        self.read_future(table.id(), key.encode(&mut scratch), place_of(column)).map(Future::new)
    }

    /// Makes a future the value of a column of a row that exists.
    fn set_future<R: Row, T: FutureValue>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        column: Column<R, T>,
        value: impl Into<Future<T>>,
    ) -> Result<(), Stop> {
        key.check().map_err(Error::from)?;
        let mut scratch = KeyScratch::new();
        let (key, column, value) = (key.encode(&mut scratch), place_of(column), value.into().operand);
        if foreign_keys::concerns(self, table.id(), ColumnSet::single(column.span.index))? {
            // Whether there is a parent can be told only of a value that is known.
            return write_now(self, table.id(), key, column, value);
        }
        self.write_future(table.id(), key, column, value)
    }

    /// `left + right`.
    fn add<T: Number>(&mut self, left: impl Into<Future<T>>, right: impl Into<Future<T>>) -> Result<Future<T>, Stop> {
        arithmetic(self, Arithmetic::Add, left, right)
    }

    /// `left - right`.
    fn subtract<T: Number>(
        &mut self,
        left: impl Into<Future<T>>,
        right: impl Into<Future<T>>,
    ) -> Result<Future<T>, Stop> {
        arithmetic(self, Arithmetic::Subtract, left, right)
    }

    /// `left × right`.
    fn multiply<T: Integer>(
        &mut self,
        left: impl Into<Future<T>>,
        right: impl Into<Future<T>>,
    ) -> Result<Future<T>, Stop> {
        arithmetic(self, Arithmetic::Multiply, left, right)
    }

    /// `left ÷ right`, towards zero. The right side must not be zero, whether or not the result is used.
    fn divide<T: Integer>(
        &mut self,
        left: impl Into<Future<T>>,
        right: impl Into<Future<T>>,
    ) -> Result<Future<T>, Stop> {
        arithmetic(self, Arithmetic::Divide, left, right)
    }

    /// The smaller of two; of truth values, whether both are true.
    fn min<T: FutureValue>(
        &mut self,
        left: impl Into<Future<T>>,
        right: impl Into<Future<T>>,
    ) -> Result<Future<T>, Stop> {
        arithmetic(self, Arithmetic::Min, left, right)
    }

    /// The larger of two; of truth values, whether either is true.
    fn max<T: FutureValue>(
        &mut self,
        left: impl Into<Future<T>>,
        right: impl Into<Future<T>>,
    ) -> Result<Future<T>, Stop> {
        arithmetic(self, Arithmetic::Max, left, right)
    }

    /// A condition, over one future or two.
    fn compare<T: FutureValue>(
        &mut self,
        left: impl Into<Future<T>>,
        comparison: Comparison,
        right: impl Into<Future<T>>,
    ) -> Result<Future<bool>, Stop> {
        let (left, right) = (left.into().operand, right.into().operand);
        self.combine_futures(Expression::Compare { comparison, column_type: T::TYPE, left, right }).map(Future::new)
    }

    /// One of two values, by a condition that stays open.
    fn choose<T: FutureValue>(
        &mut self,
        condition: Future<bool>,
        then: impl Into<Future<T>>,
        otherwise: impl Into<Future<T>>,
    ) -> Result<Future<T>, Stop> {
        let (then, otherwise) = (then.into().operand, otherwise.into().operand);
        self.combine_futures(Expression::Choose { condition: condition.operand, then, otherwise }).map(Future::new)
    }

    /// Whether a condition is true: it stays so until the commit, or the transaction conflicts.
    fn is_true(&mut self, condition: Future<bool>) -> Result<bool, Stop> {
        self.test_future(condition.operand)
    }

    /// As [`Futures::is_true`], where the answer is known beforehand most of the time: a protocol that looks at conditions at the
    /// commit anyway takes the assumed answer, and asks properly at the next attempt if it was wrong (LSD+, §3.3.2).
    fn is_true_assuming(&mut self, condition: Future<bool>, assumed: bool) -> Result<bool, Stop> {
        self.test_future_assuming(condition.operand, assumed)
    }

    /// The value: from now on the transaction depends on it.
    fn resolve<T: FutureValue>(&mut self, future: Future<T>) -> Result<T, Stop> {
        self.resolve_future(future.operand).map(T::from_scalar)
    }
}

impl<T: Transaction + ?Sized> Futures for T {}

fn place_of<R, T: FutureValue>(column: Column<R, T>) -> FutureColumn {
    FutureColumn { span: column.span(), column_type: T::TYPE }
}

fn arithmetic<T: FutureValue>(
    transaction: &mut (impl Transaction + ?Sized),
    operation: Arithmetic,
    left: impl Into<Future<T>>,
    right: impl Into<Future<T>>,
) -> Result<Future<T>, Stop> {
    let (left, right) = (left.into().operand, right.into().operand);
    transaction
        .combine_futures(Expression::Arithmetic { operation, column_type: T::TYPE, left, right })
        .map(Future::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(operation: Arithmetic, column_type: ColumnType, values: [i128; 2]) -> Result<i128, FutureError> {
        let (left, right) = (Operand::Pending(0), Operand::Pending(1));
        let expression = Expression::Arithmetic { operation, column_type, left, right };
        let result = expression.evaluate(|place| Ok(values[place as usize] as Scalar))?;
        Ok(widen(result, column_type))
    }

    #[test]
    fn results_that_do_not_fit_are_refused() {
        use Arithmetic::{Add, Divide, Max, Min, Multiply, Subtract};
        let most = i128::from(u64::MAX);
        assert_eq!(compute(Add, ColumnType::U64, [most - 1, 1]), Ok(most));
        assert!(compute(Add, ColumnType::U64, [most, 1]).is_err());
        assert!(compute(Multiply, ColumnType::U64, [most, most]).is_err());
        assert_eq!(compute(Multiply, ColumnType::I64, [-3, 5]), Ok(-15));
        assert!(compute(Subtract, ColumnType::U8, [1, 2]).is_err());
        assert_eq!(compute(Subtract, ColumnType::I8, [-100, 28]), Ok(-128));
        let overflow = compute(Subtract, ColumnType::I8, [-100, 29]).unwrap_err();
        assert_eq!(overflow.to_string(), "-100 - 29 does not fit in i8");
        assert!(compute(Add, ColumnType::Decimal { scale: 2 }, [i64::MAX.into(), 1]).is_err());
        assert_eq!(compute(Divide, ColumnType::I64, [-7, 2]), Ok(-3));
        assert!(compute(Divide, ColumnType::I64, [i64::MIN.into(), -1]).is_err());
        assert_eq!(compute(Divide, ColumnType::U64, [7, 0]), Err(FutureError::DivisionByZero { left: 7 }));
        assert_eq!(compute(Min, ColumnType::I32, [-1, 1]), Ok(-1));
        assert_eq!(compute(Max, ColumnType::Bool, [0, 1]), Ok(1));
    }

    #[test]
    fn an_arena_is_resolved_in_the_order_of_its_making() {
        // choose(counter >= 10, counter - 10, counter + 91), as a lazy protocol would keep it.
        let (counter, column_type) = (Operand::Pending(0), ColumnType::I64);
        let known = |value: i64| Operand::Known(value.to_scalar());
        let (comparison, right) = (Comparison::AtLeast, known(10));
        let arena = [
            Expression::Compare { comparison, column_type, left: counter, right },
            Expression::Arithmetic { operation: Arithmetic::Subtract, column_type, left: counter, right },
            Expression::Arithmetic { operation: Arithmetic::Add, column_type, left: counter, right: known(91) },
            Expression::Choose {
                condition: Operand::Pending(1),
                then: Operand::Pending(2),
                otherwise: Operand::Pending(3),
            },
        ];
        for (counter, expected) in [(12, 2), (9, 100)] {
            let mut values = vec![counter];
            for expression in arena {
                values.push(expression.evaluate(|place| Ok(values[place as usize])).unwrap());
            }
            assert_eq!(values.last(), Some(&expected));
        }
    }
}
