//! Numbers.

use super::{Function, functions};
use crate::casts::in_range;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::types::Type;

#[cold]
fn by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn integers(arguments: &[Datum<'_>]) -> (i128, i128) {
    match arguments {
        [Datum::Int(a), Datum::Int(b)] => ((*a).into(), (*b).into()),
        _ => unreachable!("two integers"),
    }
}

fn floats(arguments: &[Datum<'_>]) -> (f64, f64) {
    match arguments {
        [Datum::Float(a), Datum::Float(b)] => (*a, *b),
        _ => unreachable!("two floats"),
    }
}

fn integer(arguments: &[Datum<'_>]) -> i128 {
    if let [Datum::Int(value), ..] = arguments { (*value).into() } else { unreachable!("an integer") }
}

fn float(arguments: &[Datum<'_>]) -> f64 {
    if let [Datum::Float(value), ..] = arguments { *value } else { unreachable!("a float") }
}

fn quotient(a: i128, b: i128) -> Result<i128, SqlError> {
    if b == 0 { Err(by_zero()) } else { Ok(a / b) }
}

fn remainder(a: i128, b: i128) -> Result<i128, SqlError> {
    if b == 0 { Err(by_zero()) } else { Ok(a % b) }
}

/// A float of a type that came of `operands`; infinity and zero must not come of numbers that are neither.
pub(crate) fn checked<'a>(value: f64, of: Type, operands: [f64; 2], may_be_zero: bool) -> Result<Datum<'a>, SqlError> {
    let value = if of == Type::Float4 { f64::from(value as f32) } else { value };
    let out =
        |what: &str| Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}")));
    if value.is_infinite() && operands.iter().all(|it| it.is_finite()) {
        return out("overflow");
    }
    if value == 0.0 && !may_be_zero { out("underflow") } else { Ok(Datum::Float(value)) }
}

/// The sum of two floats of a type.
pub(crate) fn sum<'a>(a: f64, b: f64, of: Type) -> Result<Datum<'a>, SqlError> {
    checked(a + b, of, [a, b], true)
}

fn add_floats<'a>(arguments: &[Datum<'a>], of: Type) -> Result<Datum<'a>, SqlError> {
    let (a, b) = floats(arguments);
    sum(a, b, of)
}

fn subtract_floats<'a>(arguments: &[Datum<'a>], of: Type) -> Result<Datum<'a>, SqlError> {
    let (a, b) = floats(arguments);
    checked(a - b, of, [a, b], true)
}

fn multiply_floats<'a>(arguments: &[Datum<'a>], of: Type) -> Result<Datum<'a>, SqlError> {
    let (a, b) = floats(arguments);
    checked(a * b, of, [a, b], a == 0.0 || b == 0.0)
}

fn divide_floats<'a>(arguments: &[Datum<'a>], of: Type) -> Result<Datum<'a>, SqlError> {
    let (a, b) = floats(arguments);
    if b == 0.0 && !a.is_nan() {
        return Err(by_zero());
    }
    checked(a / b, of, [a, b], a == 0.0 || b.is_infinite())
}

fn power(base: f64, exponent: f64) -> Result<f64, SqlError> {
    if base == 0.0 && exponent < 0.0 {
        return Err(SqlError::new(SqlState("2201F"), "zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.fract() != 0.0 && exponent.is_finite() {
        return Err(SqlError::new(
            SqlState("2201F"),
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    Ok(base.powf(exponent))
}

fn logarithm<'a>(value: f64, of: impl FnOnce(f64) -> f64) -> Result<Datum<'a>, SqlError> {
    if value <= 0.0 {
        let shown = if value == 0.0 { "zero" } else { "a negative number" };
        return Err(SqlError::new(SqlState("2201E"), format!("cannot take logarithm of {shown}")));
    }
    Ok(Datum::Float(of(value)))
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: i128, b: i128) -> i128 {
    if a == 0 || b == 0 { 0 } else { (a / gcd(a, b) * b).abs() }
}

/// The four operations and the remainder on integers, of which the result has the wider type.
macro_rules! integer_operators {
    ($($left:ident $right:ident $result:ident;)*) => {
        functions! {
            $(
                "+"($left, $right) -> $result = |it, _| { let (a, b) = integers(it); in_range(a + b, Type::$result) };
                "-"($left, $right) -> $result = |it, _| { let (a, b) = integers(it); in_range(a - b, Type::$result) };
                "*"($left, $right) -> $result = |it, _| { let (a, b) = integers(it); in_range(a * b, Type::$result) };
                "/"($left, $right) -> $result = |it, _| { let (a, b) = integers(it); in_range(quotient(a, b)?, Type::$result) };
            )*
            "%"(Int2, Int2) -> Int2 = |it, _| { let (a, b) = integers(it); in_range(remainder(a, b)?, Type::Int2) };
            "%"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(remainder(a, b)?, Type::Int4) };
            "%"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(remainder(a, b)?, Type::Int8) };
            "mod"(Int2, Int2) -> Int2 = |it, _| { let (a, b) = integers(it); in_range(remainder(a, b)?, Type::Int2) };
            "mod"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(remainder(a, b)?, Type::Int4) };
            "mod"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(remainder(a, b)?, Type::Int8) };
            "-"(Int2) -> Int2 = |it, _| in_range(-integer(it), Type::Int2);
            "-"(Int4) -> Int4 = |it, _| in_range(-integer(it), Type::Int4);
            "-"(Int8) -> Int8 = |it, _| in_range(-integer(it), Type::Int8);
            "+"(Int2) -> Int2 = |it, _| Ok(it[0]);
            "+"(Int4) -> Int4 = |it, _| Ok(it[0]);
            "+"(Int8) -> Int8 = |it, _| Ok(it[0]);
            "abs"(Int2) -> Int2 = |it, _| in_range(integer(it).abs(), Type::Int2);
            "abs"(Int4) -> Int4 = |it, _| in_range(integer(it).abs(), Type::Int4);
            "abs"(Int8) -> Int8 = |it, _| in_range(integer(it).abs(), Type::Int8);
            "&"(Int2, Int2) -> Int2 = |it, _| { let (a, b) = integers(it); in_range(a & b, Type::Int2) };
            "&"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(a & b, Type::Int4) };
            "&"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(a & b, Type::Int8) };
            "#"(Int2, Int2) -> Int2 = |it, _| { let (a, b) = integers(it); in_range(a ^ b, Type::Int2) };
            "#"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(a ^ b, Type::Int4) };
            "#"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(a ^ b, Type::Int8) };
            "|"(Int2, Int2) -> Int2 = |it, _| { let (a, b) = integers(it); in_range(a | b, Type::Int2) };
            "|"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(a | b, Type::Int4) };
            "|"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(a | b, Type::Int8) };
            "+"(Float4, Float4) -> Float4 = |it, _| add_floats(it, Type::Float4);
            "-"(Float4, Float4) -> Float4 = |it, _| subtract_floats(it, Type::Float4);
            "*"(Float4, Float4) -> Float4 = |it, _| multiply_floats(it, Type::Float4);
            "/"(Float4, Float4) -> Float4 = |it, _| divide_floats(it, Type::Float4);
            "+"(Float8, Float8) -> Float8 = |it, _| add_floats(it, Type::Float8);
            "-"(Float8, Float8) -> Float8 = |it, _| subtract_floats(it, Type::Float8);
            "*"(Float8, Float8) -> Float8 = |it, _| multiply_floats(it, Type::Float8);
            "/"(Float8, Float8) -> Float8 = |it, _| divide_floats(it, Type::Float8);
            "+"(Float4, Float8) -> Float8 = |it, _| add_floats(it, Type::Float8);
            "-"(Float4, Float8) -> Float8 = |it, _| subtract_floats(it, Type::Float8);
            "*"(Float4, Float8) -> Float8 = |it, _| multiply_floats(it, Type::Float8);
            "/"(Float4, Float8) -> Float8 = |it, _| divide_floats(it, Type::Float8);
            "+"(Float8, Float4) -> Float8 = |it, _| add_floats(it, Type::Float8);
            "-"(Float8, Float4) -> Float8 = |it, _| subtract_floats(it, Type::Float8);
            "*"(Float8, Float4) -> Float8 = |it, _| multiply_floats(it, Type::Float8);
            "/"(Float8, Float4) -> Float8 = |it, _| divide_floats(it, Type::Float8);
            "^"(Float8, Float8) -> Float8 = |it, _| {
                let (a, b) = floats(it);
                checked(power(a, b)?, Type::Float8, [a, b], a == 0.0 || !a.is_finite() || !b.is_finite())
            };
            "power"(Float8, Float8) -> Float8 = |it, _| {
                let (a, b) = floats(it);
                checked(power(a, b)?, Type::Float8, [a, b], a == 0.0 || !a.is_finite() || !b.is_finite())
            };
            "-"(Float4) -> Float4 = |it, _| Ok(Datum::Float(-float(it)));
            "-"(Float8) -> Float8 = |it, _| Ok(Datum::Float(-float(it)));
            "+"(Float8) -> Float8 = |it, _| Ok(it[0]);
            "abs"(Float4) -> Float4 = |it, _| Ok(Datum::Float(float(it).abs()));
            "abs"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).abs()));
            "floor"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).floor()));
            "ceil"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).ceil()));
            "ceiling"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).ceil()));
            "round"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).round_ties_even()));
            "trunc"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).trunc()));
            "sign"(Float8) -> Float8 = |it, _| {
                let value = float(it);
                Ok(Datum::Float(f64::from(i8::from(value > 0.0) - i8::from(value < 0.0))))
            };
            "sqrt"(Float8) -> Float8 = |it, _| {
                let value = float(it);
                if value < 0.0 {
                    return Err(SqlError::new(SqlState("2201F"), "cannot take square root of a negative number"));
                }
                Ok(Datum::Float(value.sqrt()))
            };
            "exp"(Float8) -> Float8 = |it, _| checked(float(it).exp(), Type::Float8, [float(it), 0.0], float(it).is_infinite());
            "ln"(Float8) -> Float8 = |it, _| logarithm(float(it), f64::ln);
            "gcd"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(gcd(a, b), Type::Int4) };
            "gcd"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(gcd(a, b), Type::Int8) };
            "lcm"(Int4, Int4) -> Int4 = |it, _| { let (a, b) = integers(it); in_range(lcm(a, b), Type::Int4) };
            "lcm"(Int8, Int8) -> Int8 = |it, _| { let (a, b) = integers(it); in_range(lcm(a, b), Type::Int8) };
            "log"(Float8) -> Float8 = |it, _| logarithm(float(it), f64::log10);
            "log10"(Float8) -> Float8 = |it, _| logarithm(float(it), f64::log10);
            "cbrt"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).cbrt()));
            "degrees"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).to_degrees()));
            "radians"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it).to_radians()));
            "pi"() -> Float8 = |_, _| Ok(Datum::Float(std::f64::consts::PI));
        }
    };
}

pub(super) const FUNCTIONS: &[Function] = integer_operators! {
    Int2 Int2 Int2;
    Int4 Int4 Int4;
    Int8 Int8 Int8;
    Int2 Int4 Int4;
    Int4 Int2 Int4;
    Int2 Int8 Int8;
    Int8 Int2 Int8;
    Int4 Int8 Int8;
    Int8 Int4 Int8;
};
