//! A future, and what can be made of futures.

use std::fmt;
use std::marker::PhantomData;

use polychron_base::Error;

use super::arena::Scope;
use super::expression::{Arithmetic, Expression, Failure, Function, FutureError};
use super::types::{ConvertTo, FutureValue};
use super::value::{Bytes, Held, Operand, Scalar, Term, Texts, Value};
use crate::Transaction;
use crate::lazy::Nodes;
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
pub struct Future<T: FutureValue> {
    pub(super) state: State<T::Held>,
    value: PhantomData<fn() -> T>,
}

/// A future without its type; what is known is kept as an `H`.
#[derive(Clone, Copy, Debug)]
pub(super) enum State<H> {
    /// A value that is in no arena.
    Plain(H),
    /// A value that a transaction has learnt.
    Known { scope: Scope, value: H },
    /// A place on an expression arena.
    Open { scope: Scope, position: u32 },
    /// It has no value.
    Failed(Failure),
}

const _: () = assert!(size_of::<State<Scalar>>() <= 40, "a future is a small value");

impl<H: Held> State<H> {
    const FOREIGN: Self = Self::Failed(Failure::Foreign);

    /// The transaction's name for `operand`.
    #[inline]
    pub(super) fn given(scope: Scope, operand: Operand) -> Self {
        match operand {
            Operand::Known(value) => match H::from_value(value) {
                Some(value) => Self::Known { scope, value },
                None => Self::Failed(Failure::NoNull),
            },
            Operand::Pending(position) => Self::Open { scope, position },
        }
    }

    /// The same where NULL could be.
    pub(super) fn nullable(self) -> State<Option<H>> {
        match self {
            Self::Plain(value) => State::Plain(Some(value)),
            Self::Known { scope, value } => State::Known { scope, value: Some(value) },
            Self::Open { scope, position } => State::Open { scope, position },
            Self::Failed(failure) => State::Failed(failure),
        }
    }

    #[inline]
    fn scope(&self) -> Scope {
        match self {
            Self::Plain(_) | Self::Failed(_) => Scope::default(),
            Self::Known { scope, .. } | Self::Open { scope, .. } => *scope,
        }
    }

    #[inline]
    fn known(&self) -> Option<&H> {
        match self {
            Self::Plain(value) | Self::Known { value, .. } => Some(value),
            Self::Open { .. } | Self::Failed(_) => None,
        }
    }

    /// The same of any type.
    #[inline]
    pub(super) fn of_any_type(self) -> State<Value<Bytes>> {
        match self {
            Self::Plain(value) => State::Plain(value.into_value()),
            Self::Known { scope, value } => State::Known { scope, value: value.into_value() },
            Self::Open { scope, position } => State::Open { scope, position },
            Self::Failed(failure) => State::Failed(failure),
        }
    }

    /// Its term among the nodes of its scope. A failure becomes a node that fails.
    #[inline]
    fn term(&self, nodes: &mut Nodes) -> Result<Term, FutureError> {
        match self {
            Self::Plain(value) | Self::Known { value, .. } => value.keep(&mut nodes.program.texts).map(Term::Known),
            Self::Open { position, .. } => nodes.term(&Operand::Pending(*position)),
            Self::Failed(Failure::Foreign) => Err(FutureError::Foreign),
            Self::Failed(failure) => nodes.combine(Expression::Failed(*failure)),
        }
    }

    /// What is made of one future. `failed` says why it has no value where it is known that it has none.
    #[inline]
    fn make<O: Held>(
        self,
        of: impl Fn(Term) -> Expression,
        failed: impl FnOnce(&H, &FutureError) -> Failure,
    ) -> State<O> {
        self.combine(State::Plain(0), |value, _: Term| of(value), |value, _: &Scalar, error| failed(value, error))
    }

    /// What is made of two.
    #[inline]
    fn combine<R: Held, O: Held>(
        self,
        right: State<R>,
        of: impl Fn(Term, Term) -> Expression,
        failed: impl FnOnce(&H, &R, &FutureError) -> Failure,
    ) -> State<O> {
        if let Self::Failed(failure) = self {
            return State::Failed(failure);
        }
        if let State::Failed(failure) = right {
            return State::Failed(failure);
        }
        let Some(scope) = self.scope().joined(right.scope()) else { return State::FOREIGN };
        if let (Some(left), Some(right)) = (self.known(), right.known()) {
            return match compute(left, right, of) {
                Ok(value) if scope == Scope::default() => State::Plain(value),
                Ok(value) => State::Known { scope, value },
                Err(error) => State::Failed(failed(left, right, &error)),
            };
        }
        let made = scope.make(|nodes| Ok(of(self.term(nodes)?, right.term(nodes)?)));
        made.map_or(State::FOREIGN, |operand| State::given(scope, operand))
    }

    /// All three belong to one transaction, and so does what is chosen, whichever side that is.
    fn choose(condition: State<Scalar>, then: Self, otherwise: Self) -> Self {
        if let State::Failed(failure) = condition {
            return Self::Failed(failure);
        }
        let is_foreign = |side: &Self| matches!(side, Self::Failed(Failure::Foreign));
        let scope = condition.scope().joined(then.scope()).and_then(|scope| scope.joined(otherwise.scope()));
        let Some(scope) = scope.filter(|_| !is_foreign(&then) && !is_foreign(&otherwise)) else { return Self::FOREIGN };
        if let Some(truth) = condition.known() {
            return match if *truth != 0 { then } else { otherwise } {
                Self::Plain(value) if scope != Scope::default() => Self::Known { scope, value },
                chosen => chosen,
            };
        }
        let made = scope.make(|nodes| {
            let condition = condition.term(nodes)?;
            let (then, otherwise) = (then.term(nodes)?, otherwise.term(nodes)?);
            Ok(Expression::Choose { condition, then, otherwise })
        });
        made.map_or(Self::FOREIGN, |operand| Self::given(scope, operand))
    }

    /// The value after the commit of the transaction of this scope.
    pub(super) fn resolved(self, of: Scope) -> Result<H, FutureError> {
        match self {
            Self::Plain(value) => Ok(value),
            Self::Failed(failure) => Err(failure.error()),
            Self::Known { scope, .. } | Self::Open { scope, .. } if scope != of => Err(FutureError::Foreign),
            Self::Known { value, .. } => Ok(value),
            Self::Open { scope, position } => match scope.value(position) {
                Some(Some(value)) => H::from_value(value).ok_or(FutureError::NoNull),
                Some(None) => Err(scope.failure(position).unwrap_or(FutureError::Foreign)),
                None => Err(FutureError::Foreign),
            },
        }
    }
}

/// What is made of two known values.
#[inline]
pub(super) fn compute<L: Held, R: Held, O: Held>(
    left: &L,
    right: &R,
    of: impl Fn(Term, Term) -> Expression,
) -> Result<O, FutureError> {
    let mut texts = Texts::new();
    let (left, right) = (left.keep(&mut texts)?, right.keep(&mut texts)?);
    let value = of(Term::Known(left), Term::Known(right)).evaluate(&mut texts, |_| Err(FutureError::Foreign))?;
    O::from_value(texts.release(value)).ok_or(FutureError::NoNull)
}

/// The transaction's name for a future.
#[inline]
pub(super) fn hand_over<T: Transaction + ?Sized, H: Held>(
    transaction: &mut T,
    state: State<H>,
) -> Result<Operand, Error> {
    let (scope, operand) = match state {
        State::Plain(value) => return Ok(Operand::Known(value.into_value())),
        State::Failed(failure) => return Err(failure.error().into()),
        State::Known { scope, value } => (scope, Operand::Known(value.into_value())),
        State::Open { scope, position } => (scope, Operand::Pending(position)),
    };
    if scope == transaction.future_scope() { Ok(operand) } else { Err(FutureError::Foreign.into()) }
}

impl<T: FutureValue> Future<T> {
    #[inline]
    pub(super) fn new(state: State<T::Held>) -> Self {
        Self { state, value: PhantomData }
    }

    /// Whether the value is known, so that nothing is left to be asked. It is not told here: to learn it is to depend on it, which
    /// [`Futures::resolve`](super::Futures::resolve) sees to.
    pub fn is_known(&self) -> bool {
        self.state.known().is_some()
    }
}

impl<T: FutureValue> Clone for Future<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self::new(self.state.clone())
    }
}

impl<T: FutureValue<Held: Copy>> Copy for Future<T> {}

impl<T: FutureValue> fmt::Debug for Future<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(out)
    }
}

impl<T: FutureValue> From<T> for Future<T> {
    #[inline]
    fn from(value: T) -> Self {
        Self::new(State::Plain(value.hold()))
    }
}

impl<T: FutureValue> From<&Self> for Future<T> {
    #[inline]
    fn from(other: &Self) -> Self {
        other.clone()
    }
}

impl<T: FutureValue> Future<T> {
    #[inline]
    pub(super) fn with(self, operation: Arithmetic, other: impl Into<Self>) -> Self {
        let of = |left, right| Expression::Arithmetic { operation, column_type: T::TYPE, left, right };
        Self::new(self.state.combine(other.into().state, of, |left, right, error| {
            match (left.clone().into_value(), right.clone().into_value()) {
                (Value::Scalar(left), Value::Scalar(right)) => {
                    Failure::Computed { operation, column_type: const { &T::TYPE }, left, right }
                }
                _ => Failure::of(error, const { &T::TYPE }),
            }
        }))
    }

    #[inline]
    fn compare(self, comparison: Comparison, other: impl Into<Self>) -> Future<bool> {
        let of = |left, right| Expression::Compare { comparison, column_type: T::TYPE, left, right };
        Future::new(self.state.combine(other.into().state, of, |_, _, error| Failure::of(error, const { &T::TYPE })))
    }

    /// What a function makes of it.
    pub(super) fn apply<U: FutureValue>(self, function: Function) -> Future<U> {
        let of = |value| Expression::Apply { function, value };
        Future::new(self.state.make(of, |_, error| Failure::of(error, const { &T::TYPE })))
    }

    /// The number 0 of its type.
    pub(super) fn zero() -> Self
    where
        T: FutureValue<Held = Scalar>,
    {
        Self::new(State::Plain(0))
    }

    /// Text behind text.
    pub(super) fn join(self, other: Self) -> Self {
        let of = |left, right| Expression::Join { left, right };
        Self::new(self.state.combine(other.state, of, |_, _, error| Failure::of(error, const { &T::TYPE })))
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

impl<T: FutureValue> Future<T> {
    /// The same in another type: a number in another type, a number as text, the number that a text is, text as bytes, and bytes as text. It
    /// fails where that does not fit, or is none; digits behind the point for which there is no room in a number are rounded, halves away from
    /// zero.
    ///
    /// ```
    /// use polychron_engine::Future;
    /// use polychron_schema::Decimal;
    ///
    /// fn price(each: Future<Decimal<2>>, quantity: Future<u16>, discount: Future<Decimal<4>>) -> Future<Decimal<2>> {
    ///     each * quantity.convert() * (Decimal::from_units(10_000) - discount).convert()
    /// }
    /// fn label(shop: Future<String>, number: Future<u32>) -> Future<String> {
    ///     shop + "/" + number.convert::<String>()
    /// }
    /// ```
    pub fn convert<U: FutureValue>(self) -> Future<U>
    where
        T: ConvertTo<U>,
    {
        let of = |value| Expression::Convert { from: T::TYPE, to: U::TYPE, value };
        Future::new(self.state.make(of, |value, error| match value.clone().into_value() {
            Value::Scalar(value) => Failure::Converted { from: const { &T::TYPE }, to: const { &U::TYPE }, value },
            _ => Failure::of(error, const { &U::TYPE }),
        }))
    }
}

impl Future<bool> {
    /// One of two values, by this condition: `condition.then(one).otherwise(another)`.
    pub fn then<T: FutureValue>(self, value: impl Into<Future<T>>) -> Then<T> {
        Then { condition: self, value: value.into() }
    }
}

/// One side of a choice; [`Then::otherwise`] gives the other.
#[derive(Clone, Debug)]
#[must_use = "a choice has two sides: `condition.then(one).otherwise(another)`"]
pub struct Then<T: FutureValue> {
    condition: Future<bool>,
    value: Future<T>,
}

impl<T: FutureValue> Then<T> {
    /// The value if the condition is not true.
    pub fn otherwise(self, value: impl Into<Future<T>>) -> Future<T> {
        Future::new(State::choose(self.condition.state, self.value.state, value.into().state))
    }
}
