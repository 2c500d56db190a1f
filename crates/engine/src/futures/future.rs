//! A future, and what can be made of futures.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use polychron_base::Error;
use polychron_schema::{ColumnType, ColumnValue, Date, Decimal, Timestamp};

use super::arena::Scope;
use super::expression::{Arithmetic, Expression, FutureError, Operand, Scalar};
use crate::Transaction;
use crate::scan::Comparison;

/// A value of type `T` that may not be known before the commit: a small value itself, to be copied at will. It belongs to the
/// transaction that made it, and elsewhere is refused with [`FutureError::Foreign`]. A plain value becomes one with `into()`, and
/// serves everywhere.
///
/// Futures combine as their values would, with each other and with plain values, and nothing is computed before it must be. A
/// computation that has no value (an overflow, a division by zero) is an error where it is used: one that is not used, or is on
/// the side of a choice that is not taken, is none.
///
/// ```
/// use polychron_engine::Future;
///
/// fn after_refill(stock: Future<i16>, ordered: i16) -> Future<i16> {
///     let left = stock - ordered;
///     left.at_least(10).then(left).otherwise(left + 91)
/// }
/// fn is_even_split(total: Future<u32>, shares: Future<u32>) -> Future<bool> {
///     let share = shares.equal_to(0).then(0).otherwise(total / shares);
///     (share * shares).equal_to(total) & shares.greater_than(0)
/// }
/// ```
///
/// Values of different types do not combine:
///
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn add(stock: Future<i64>, open: Future<bool>) -> Future<i64> {
///     stock + open
/// }
/// ```
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn add(stock: Future<i64>, more: i32) -> Future<i64> {
///     stock + more
/// }
/// ```
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn either(open: Future<bool>, stock: Future<i64>) -> Future<i64> {
///     open.then(stock).otherwise(true)
/// }
/// ```
/// Unsigned values cannot be negated, and dates cannot be added:
///
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn negative(stock: Future<u64>) -> Future<u64> {
///     -stock
/// }
/// ```
/// ```compile_fail
/// # use polychron_engine::Future;
/// # use polychron_schema::Date;
/// fn add(one: Future<Date>, two: Future<Date>) -> Future<Date> {
///     one + two
/// }
/// ```
/// A future is not its value, nor a condition its answer:
///
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn value(stock: Future<i64>) -> i64 {
///     stock
/// }
/// ```
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn enough(stock: Future<i64>) -> bool {
///     if stock.at_least(10) { true } else { false }
/// }
/// ```
/// ```compile_fail
/// # use polychron_engine::Future;
/// fn choose(stock: Future<i64>) -> Future<i64> {
///     stock.then(1).otherwise(2)
/// }
/// ```
pub struct Future<T> {
    pub(super) state: State,
    value: PhantomData<fn() -> T>,
}

/// A future without its type.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// A value that is in no arena.
    Plain(Scalar),
    /// A value that a transaction has learnt.
    Known { scope: Scope, value: Scalar },
    /// A place on an expression arena.
    Open { scope: Scope, position: u32 },
    /// It has no value.
    Failed(Failure),
}

/// Why not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    Computed { operation: Arithmetic, column_type: &'static ColumnType, left: Scalar, right: Scalar },
    Converted { from: &'static ColumnType, to: &'static ColumnType, value: Scalar },
    Foreign,
}

const _: () = assert!(size_of::<State>() <= 40, "a future is a small value");

impl Failure {
    /// The computation that has failed.
    fn expression(self) -> Option<Expression> {
        match self {
            Self::Foreign => None,
            Self::Computed { operation, column_type, left, right } => {
                let (left, right) = (Operand::Known(left), Operand::Known(right));
                Some(Expression::Arithmetic { operation, column_type: *column_type, left, right })
            }
            Self::Converted { from, to, value } => {
                Some(Expression::Convert { from: *from, to: *to, value: Operand::Known(value) })
            }
        }
    }

    fn error(self) -> FutureError {
        self.expression().map_or(FutureError::Foreign, |expression| {
            expression.evaluate(|_| Err(FutureError::Foreign)).expect_err("it has failed before")
        })
    }
}

impl State {
    const FOREIGN: Self = Self::Failed(Failure::Foreign);

    /// The transaction's name for `operand`.
    #[inline]
    pub(super) fn given(scope: Scope, operand: Operand) -> Self {
        match operand {
            Operand::Known(value) => Self::Known { scope, value },
            Operand::Pending(position) => Self::Open { scope, position },
        }
    }

    fn scope(self) -> Scope {
        match self {
            Self::Plain(_) | Self::Failed(_) => Scope::default(),
            Self::Known { scope, .. } | Self::Open { scope, .. } => scope,
        }
    }

    fn known(self) -> Option<Scalar> {
        match self {
            Self::Plain(value) | Self::Known { value, .. } => Some(value),
            Self::Open { .. } | Self::Failed(_) => None,
        }
    }

    /// The operand on the expression arena of its scope. A failure becomes the computation that fails.
    fn in_arena(self, scope: Scope) -> Option<Operand> {
        match self {
            Self::Plain(value) | Self::Known { value, .. } => Some(Operand::Known(value)),
            Self::Open { position, .. } => Some(Operand::Pending(position)),
            Self::Failed(failure) => scope.make(failure.expression()?),
        }
    }

    fn arithmetic(operation: Arithmetic, column_type: &'static ColumnType, left: Self, right: Self) -> Self {
        Self::combine(left, right, |left, right| Expression::Arithmetic {
            operation,
            column_type: *column_type,
            left,
            right,
        })
        .unwrap_or_else(|| match (left.known(), right.known()) {
            (Some(left), Some(right)) => Self::Failed(Failure::Computed { operation, column_type, left, right }),
            _ => Self::FOREIGN,
        })
    }

    fn convert(self, from: &'static ColumnType, to: &'static ColumnType) -> Self {
        let conversion = |value| Expression::Convert { from: *from, to: *to, value };
        let of_known = |value| conversion(Operand::Known(value)).evaluate(|_| Err(FutureError::Foreign));
        match self {
            Self::Failed(_) => self,
            Self::Plain(value) | Self::Known { value, .. } => match (of_known(value), self) {
                (Ok(value), Self::Known { scope, .. }) => Self::Known { scope, value },
                (Ok(value), _) => Self::Plain(value),
                (Err(_), _) => Self::Failed(Failure::Converted { from, to, value }),
            },
            Self::Open { scope, position } => scope
                .make(conversion(Operand::Pending(position)))
                .map_or(Self::FOREIGN, |operand| Self::given(scope, operand)),
        }
    }

    fn compare(comparison: Comparison, column_type: ColumnType, left: Self, right: Self) -> Self {
        Self::combine(left, right, |left, right| Expression::Compare { comparison, column_type, left, right })
            .unwrap_or(Self::FOREIGN)
    }

    /// `None` where both sides are known and have no result, or the scopes differ.
    #[inline]
    fn combine(left: Self, right: Self, of: impl FnOnce(Operand, Operand) -> Expression) -> Option<Self> {
        if let Self::Failed(_) = left {
            return Some(left);
        }
        if let Self::Failed(_) = right {
            return Some(right);
        }
        let Some(scope) = left.scope().joined(right.scope()) else { return Some(Self::FOREIGN) };
        let expression = of(left.in_arena(scope)?, right.in_arena(scope)?);
        if left.known().is_some() && right.known().is_some() {
            let value = expression.evaluate(|_| Err(FutureError::Foreign)).ok()?;
            return Some(match scope == Scope::default() {
                true => Self::Plain(value),
                false => Self::Known { scope, value },
            });
        }
        scope.make(expression).map(|operand| Self::given(scope, operand))
    }

    /// All three belong to one transaction, and so does what is chosen, whichever side that is.
    fn choose(condition: Self, then: Self, otherwise: Self) -> Self {
        if let Self::Failed(_) = condition {
            return condition;
        }
        let is_foreign = |side| matches!(side, Self::Failed(Failure::Foreign));
        let scope = condition.scope().joined(then.scope()).and_then(|scope| scope.joined(otherwise.scope()));
        let Some(scope) = scope.filter(|_| !is_foreign(then) && !is_foreign(otherwise)) else { return Self::FOREIGN };
        if let Some(truth) = condition.known() {
            return match if truth != 0 { then } else { otherwise } {
                Self::Plain(value) if scope != Scope::default() => Self::Known { scope, value },
                chosen => chosen,
            };
        }
        let make = || {
            let condition = condition.in_arena(scope)?;
            let (then, otherwise) = (then.in_arena(scope)?, otherwise.in_arena(scope)?);
            scope.make(Expression::Choose { condition, then, otherwise }).map(|operand| Self::given(scope, operand))
        };
        make().unwrap_or(Self::FOREIGN)
    }

    /// The value after the commit of the transaction of this scope.
    pub(super) fn resolved(self, of: Scope) -> Result<Scalar, FutureError> {
        match self {
            Self::Plain(value) => Ok(value),
            Self::Failed(failure) => Err(failure.error()),
            Self::Known { scope, .. } | Self::Open { scope, .. } if scope != of => Err(FutureError::Foreign),
            Self::Known { value, .. } => Ok(value),
            Self::Open { scope, position } => match scope.value(position) {
                Some(Some(value)) => Ok(value),
                Some(None) => Err(scope.failure(position).unwrap_or(FutureError::Foreign)),
                None => Err(FutureError::Foreign),
            },
        }
    }
}

/// The transaction's name for a future.
#[inline]
pub(super) fn hand_over<T: Transaction + ?Sized>(transaction: &mut T, state: State) -> Result<Operand, Error> {
    let (scope, operand) = match state {
        State::Plain(value) => return Ok(Operand::Known(value)),
        State::Failed(failure) => return Err(failure.error().into()),
        State::Known { scope, value } => (scope, Operand::Known(value)),
        State::Open { scope, position } => (scope, Operand::Pending(position)),
    };
    if scope == transaction.future_scope() { Ok(operand) } else { Err(FutureError::Foreign.into()) }
}

impl<T> Future<T> {
    #[inline]
    pub(super) fn new(state: State) -> Self {
        Self { state, value: PhantomData }
    }

    /// Whether the value is known, so that nothing is left to be asked. It is not told here: to learn it is to depend on it, which
    /// [`Futures::resolve`](super::Futures::resolve) sees to.
    pub fn is_known(self) -> bool {
        self.state.known().is_some()
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
        self.state.fmt(out)
    }
}

impl<T: FutureValue> From<T> for Future<T> {
    #[inline]
    fn from(value: T) -> Self {
        Self::new(State::Plain(value.to_scalar()))
    }
}

impl<T: FutureValue> Future<T> {
    fn with(self, operation: Arithmetic, other: impl Into<Self>) -> Self {
        Self::new(State::arithmetic(operation, const { &T::TYPE }, self.state, other.into().state))
    }

    fn compare(self, comparison: Comparison, other: impl Into<Self>) -> Future<bool> {
        Future::new(State::compare(comparison, T::TYPE, self.state, other.into().state))
    }

    /// The smaller of two.
    pub fn min(self, other: impl Into<Self>) -> Self {
        self.with(Arithmetic::Min, other)
    }

    /// The larger of two.
    pub fn max(self, other: impl Into<Self>) -> Self {
        self.with(Arithmetic::Max, other)
    }

    /// Whether it is `=` another.
    pub fn equal_to(self, other: impl Into<Self>) -> Future<bool> {
        self.compare(Comparison::Equal, other)
    }

    /// Whether it is `≠` another.
    pub fn not_equal_to(self, other: impl Into<Self>) -> Future<bool> {
        self.compare(Comparison::NotEqual, other)
    }

    /// Whether it is `<` another.
    pub fn less_than(self, other: impl Into<Self>) -> Future<bool> {
        self.compare(Comparison::Less, other)
    }

    /// Whether it is `≤` another.
    pub fn at_most(self, other: impl Into<Self>) -> Future<bool> {
        self.compare(Comparison::AtMost, other)
    }

    /// Whether it is `>` another.
    pub fn greater_than(self, other: impl Into<Self>) -> Future<bool> {
        self.compare(Comparison::Greater, other)
    }

    /// Whether it is `≥` another.
    pub fn at_least(self, other: impl Into<Self>) -> Future<bool> {
        self.compare(Comparison::AtLeast, other)
    }
}

impl<T: Number> Future<T> {
    /// The same number in another type. It fails where the number does not fit; digits behind the point for which there is no room are rounded, halves
    /// away from zero.
    ///
    /// ```
    /// use polychron_engine::Future;
    /// use polychron_schema::Decimal;
    ///
    /// fn price(each: Future<Decimal<2>>, quantity: Future<u16>, discount: Future<Decimal<4>>) -> Future<Decimal<2>> {
    ///     each * quantity.convert() * (Decimal::from_units(10_000) - discount).convert()
    /// }
    /// ```
    pub fn convert<U: Number>(self) -> Future<U> {
        Future::new(self.state.convert(const { &T::TYPE }, const { &U::TYPE }))
    }
}

impl Future<bool> {
    /// One of two values, by this condition: `condition.then(one).otherwise(another)`.
    pub fn then<T: FutureValue>(self, value: impl Into<Future<T>>) -> Then<T> {
        Then { condition: self, value: value.into() }
    }
}

/// One side of a choice; [`Then::otherwise`] gives the other.
#[derive(Clone, Copy, Debug)]
#[must_use = "a choice has two sides: `condition.then(one).otherwise(another)`"]
pub struct Then<T> {
    condition: Future<bool>,
    value: Future<T>,
}

impl<T: FutureValue> Then<T> {
    /// The value if the condition is not true.
    pub fn otherwise(self, value: impl Into<Future<T>>) -> Future<T> {
        Future::new(State::choose(self.condition.state, self.value.state, value.into().state))
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

/// A type with products and quotients. Quotients of integers are rounded towards zero; products and quotients of decimals to the nearest number that they
/// have, halves away from zero.
pub trait Factor: Number {}

/// A type with negative values.
pub trait Signed: Number {}

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

/// An operator with a plain value on its left side.
macro_rules! plain_left {
    ([$($generics:tt)*] $type:ty: $trait:ident $method:ident) => {
        impl<$($generics)*> $trait<Future<$type>> for $type {
            type Output = Future<$type>;

            #[inline]
            fn $method(self, other: Future<$type>) -> Future<$type> {
                Future::from(self).$method(other)
            }
        }
    };
}

macro_rules! operator {
    ($($bound:ident: $trait:ident $method:ident $operation:ident;)*) => {$(
        impl<T: $bound> $trait for Future<T> {
            type Output = Self;

            #[inline]
            fn $method(self, other: Self) -> Self {
                self.with(Arithmetic::$operation, other)
            }
        }

        impl<T: $bound> $trait<T> for Future<T> {
            type Output = Self;

            #[inline]
            fn $method(self, other: T) -> Self {
                self.with(Arithmetic::$operation, other)
            }
        }
    )*};
}

operator! {
    Number: Add add Add;
    Number: Sub sub Subtract;
    Factor: Mul mul Multiply;
    Factor: Div div Divide;
}

impl<T: Signed> Neg for Future<T> {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        Self::new(State::Plain(0)).with(Arithmetic::Subtract, self)
    }
}

impl Not for Future<bool> {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        self.equal_to(false)
    }
}

impl<F: Into<Self>> BitAnd<F> for Future<bool> {
    type Output = Self;

    /// Whether both are true. Both are looked at.
    #[inline]
    fn bitand(self, other: F) -> Self {
        self.min(other)
    }
}

impl<F: Into<Self>> BitOr<F> for Future<bool> {
    type Output = Self;

    /// Whether either is true. Both are looked at.
    #[inline]
    fn bitor(self, other: F) -> Self {
        self.max(other)
    }
}

macro_rules! integer {
    ($($type:ident)*) => {$(
        future_value! { [] $type, |value| value as Scalar, |scalar| scalar as Self; }
        plain_left!([] $type: Add add);
        plain_left!([] $type: Sub sub);
        plain_left!([] $type: Mul mul);
        plain_left!([] $type: Div div);
        impl Number for $type {}
        impl Factor for $type {}
    )*};
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);
future_value! {
    [] bool, |value| value.into(), |scalar| scalar != 0;
    [] Date, |value| value.0 as Scalar, |scalar| Self(scalar as i32);
    [] Timestamp, |value| value.0 as Scalar, |scalar| Self(scalar as i64);
    [const SCALE: u32] Decimal<SCALE>, |value| value.units() as Scalar, |scalar| Self::from_units(scalar as i64);
}
plain_left!([const SCALE: u32] Decimal<SCALE>: Add add);
plain_left!([const SCALE: u32] Decimal<SCALE>: Sub sub);
plain_left!([const SCALE: u32] Decimal<SCALE>: Mul mul);
plain_left!([const SCALE: u32] Decimal<SCALE>: Div div);
impl<const SCALE: u32> Number for Decimal<SCALE> {}
impl<const SCALE: u32> Factor for Decimal<SCALE> {}
impl<const SCALE: u32> Signed for Decimal<SCALE> {}
impl Signed for i8 {}
impl Signed for i16 {}
impl Signed for i32 {}
impl Signed for i64 {}
