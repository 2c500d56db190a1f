//! Numerics: decimals where they and the result are such, and numbers of any size otherwise.

use super::{Function, functions};
use crate::context::Context;
use crate::datum::Datum;
use crate::decimal::{Decimal, overflow};
use crate::error::{SqlError, SqlState};
use crate::wide::{self, Number, Operation};

/// Something of two numerics.
fn of_two<'a>(arguments: &[Datum<'a>], operation: &Operation, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    if let [Datum::Numeric(a), Datum::Numeric(b)] = arguments
        && let Ok(result) = (operation.small)(*a, *b)
    {
        return Ok(Datum::Numeric(result));
    }
    (operation.any)(&Number::of(arguments[0]), &Number::of(arguments[1]))?.within(context.arena)
}

/// Something of one numeric.
fn of_one<'a>(
    of: Datum<'a>,
    small: impl FnOnce(Decimal) -> Result<Decimal, SqlError>,
    any: impl FnOnce(&Number) -> Result<Number, SqlError>,
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    if let Datum::Numeric(value) = of
        && let Ok(result) = small(value)
    {
        return Ok(Datum::Numeric(result));
    }
    any(&Number::of(of))?.within(context.arena)
}

pub(crate) const ADD: Operation = Operation { small: Decimal::add, any: wide::add };
const SUBTRACT: Operation = Operation { small: Decimal::subtract, any: |a, b| wide::add(a, &wide::negate(b)) };
pub(crate) const MULTIPLY: Operation = Operation { small: Decimal::multiply, any: wide::multiply };
pub(crate) const DIVIDE: Operation = Operation { small: Decimal::divide, any: wide::divide };
const REMAINDER: Operation = Operation { small: Decimal::remainder, any: wide::remainder };
const WHOLE_QUOTIENT: Operation = Operation { small: whole_quotient, any: wide::whole_quotient };

/// The quotient without its digits behind the point, which is not that of a rounded one.
fn whole_quotient(a: Decimal, b: Decimal) -> Result<Decimal, SqlError> {
    let scale = a.scale().max(b.scale());
    let (units, divisor) = (a.rescale(scale)?.units(), b.rescale(scale)?.units());
    // A division by zero is refused by the other way.
    units.checked_div(divisor).map(|whole| Decimal::new(whole, 0)).ok_or_else(overflow)
}

fn digits(value: i64) -> Result<Option<u32>, SqlError> {
    match value {
        ..0 => Ok(None),
        0..=38 => Ok(Some(value as u32)),
        _ => Err(overflow()),
    }
}

/// Rounded to so many digits behind the point, or in front of it where there are fewer than none.
fn rounded(value: Decimal, to: i64) -> Result<Decimal, SqlError> {
    match digits(to)? {
        Some(scale) => value.rescale(scale),
        None => {
            let shift = (-to).min(38) as u32;
            let shifted = Decimal::new(value.units(), value.scale() + shift).rescale(0)?;
            Decimal::new(shifted.units(), 0).multiply(Decimal::new(10_i128.pow(shift), 0))
        }
    }
}

fn truncated(value: Decimal, to: i64) -> Result<Decimal, SqlError> {
    match digits(to)? {
        Some(scale) if scale >= value.scale() => value.rescale(scale),
        Some(scale) => Ok(Decimal::new(value.units() / 10_i128.pow(value.scale() - scale), scale)),
        None => {
            let factor = 10_i128.pow((-to).min(38) as u32);
            let whole = value.units() / 10_i128.pow(value.scale());
            Ok(Decimal::new(whole / factor * factor, 0))
        }
    }
}

fn round<'a>(of: Datum<'a>, to: i64, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    of_one(of, |it| rounded(it, to), |it| Ok(wide::rounded(it, to, false)), context)
}

fn truncate<'a>(of: Datum<'a>, to: i64, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    of_one(of, |it| truncated(it, to), |it| Ok(wide::rounded(it, to, true)), context)
}

/// −1, 0 or 1; nothing where it is no number.
fn sign_of(of: Datum<'_>) -> Option<i32> {
    if let Datum::Numeric(value) = of { Some(value.units().signum() as i32) } else { Number::of(of).sign() }
}

fn negate<'a>(of: Datum<'a>, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    of_one(of, Decimal::negate, |it| Ok(wide::negate(it)), context)
}

fn floor<'a>(of: Datum<'a>, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    of_one(of, Decimal::floor, |it| Ok(wide::floor(it)), context)
}

fn ceiling<'a>(of: Datum<'a>, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    negate(floor(negate(of, context)?, context)?, context)
}

fn root<'a>(of: Datum<'a>, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    if sign_of(of) == Some(-1) {
        return Err(SqlError::new(SqlState("2201F"), "cannot take square root of a negative number"));
    }
    of_one(of, Decimal::root, wide::root, context)
}

/// The greatest common divisor by Euclid's method, or the least common multiple.
fn common<'a>(arguments: &[Datum<'a>], is_multiple: bool, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let [one, other] = [0, 1].map(|at| Number::of(arguments[at]));
    wide::common(&one, &other, is_multiple)?.within(context.arena)
}

fn factorial<'a>(of: Datum<'a>, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    match digits_of(of) {
        ..0 => {
            let message = "factorial of a negative number is undefined";
            Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))
        }
        // Those of greater numbers have more digits than a numeric has.
        count @ 0..=32_177 => wide::factorial(count as u32).within(context.arena),
        _ => Err(overflow()),
    }
}

fn digits_of(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "+"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &ADD, context);
    "-"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &SUBTRACT, context);
    "*"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &MULTIPLY, context);
    "/"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &DIVIDE, context);
    "%"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &REMAINDER, context);
    "mod"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &REMAINDER, context);
    "div"(Numeric, Numeric) -> Numeric = |it, context| of_two(it, &WHOLE_QUOTIENT, context);
    "-"(Numeric) -> Numeric = |it, context| negate(it[0], context);
    "+"(Numeric) -> Numeric = |it, _| Ok(it[0]);
    "abs"(Numeric) -> Numeric = |it, context| {
        if sign_of(it[0]) == Some(-1) { negate(it[0], context) } else { Ok(it[0]) }
    };
    "sign"(Numeric) -> Numeric = |it, _| {
        Ok(sign_of(it[0]).map_or(it[0], |sign| Datum::Numeric(Decimal::new(sign.into(), 0))))
    };
    "round"(Numeric) -> Numeric = |it, context| round(it[0], 0, context);
    "round"(Numeric, Int4) -> Numeric = |it, context| round(it[0], digits_of(it[1]), context);
    "trunc"(Numeric) -> Numeric = |it, context| truncate(it[0], 0, context);
    "trunc"(Numeric, Int4) -> Numeric = |it, context| truncate(it[0], digits_of(it[1]), context);
    "floor"(Numeric) -> Numeric = |it, context| floor(it[0], context);
    "ceil"(Numeric) -> Numeric = |it, context| ceiling(it[0], context);
    "ceiling"(Numeric) -> Numeric = |it, context| ceiling(it[0], context);
    "sqrt"(Numeric) -> Numeric = |it, context| root(it[0], context);
    "gcd"(Numeric, Numeric) -> Numeric = |it, context| common(it, false, context);
    "lcm"(Numeric, Numeric) -> Numeric = |it, context| common(it, true, context);
    "factorial"(Int8) -> Numeric = |it, context| factorial(it[0], context);
};
