//! Angles, and what else is known of numbers.

use super::{Function, functions};
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::wide::decimal;

fn float(datum: Datum<'_>) -> f64 {
    if let Datum::Float(value) = datum { value } else { unreachable!("a float") }
}

fn within<'a>(value: f64, is_within: bool, of: fn(f64) -> f64) -> Result<Datum<'a>, SqlError> {
    if is_within || value.is_nan() {
        return Ok(Datum::Float(of(value)));
    }
    Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range"))
}

/// A number and by how many bits it is shifted: of those, as many count as the processor of PostgreSQL takes.
fn shifted(arguments: &[Datum<'_>]) -> (i64, u32) {
    let (Datum::Int(value), Datum::Int(by)) = (arguments[0], arguments[1]) else { unreachable!("integers") };
    (value, by as u32)
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "<<"(Int2, Int4) -> Int2 = |it, _| { let (a, by) = shifted(it); Ok(Datum::Int(((a as i32).wrapping_shl(by) as i16).into())) };
    "<<"(Int4, Int4) -> Int4 = |it, _| { let (a, by) = shifted(it); Ok(Datum::Int((a as i32).wrapping_shl(by).into())) };
    "<<"(Int8, Int4) -> Int8 = |it, _| { let (a, by) = shifted(it); Ok(Datum::Int(a.wrapping_shl(by))) };
    ">>"(Int2, Int4) -> Int2 = |it, _| { let (a, by) = shifted(it); Ok(Datum::Int(((a as i32).wrapping_shr(by) as i16).into())) };
    ">>"(Int4, Int4) -> Int4 = |it, _| { let (a, by) = shifted(it); Ok(Datum::Int((a as i32).wrapping_shr(by).into())) };
    ">>"(Int8, Int4) -> Int8 = |it, _| { let (a, by) = shifted(it); Ok(Datum::Int(a.wrapping_shr(by))) };
    "sin"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).is_finite(), f64::sin);
    "cos"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).is_finite(), f64::cos);
    "tan"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).is_finite(), f64::tan);
    "cot"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).is_finite(), |it| 1.0 / it.tan());
    "asin"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).abs() <= 1.0, f64::asin);
    "acos"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).abs() <= 1.0, f64::acos);
    "atan"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it[0]).atan()));
    "atan2"(Float8, Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it[0]).atan2(float(it[1]))));
    "sinh"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it[0]).sinh()));
    "cosh"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it[0]).cosh()));
    "tanh"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it[0]).tanh()));
    "asinh"(Float8) -> Float8 = |it, _| Ok(Datum::Float(float(it[0]).asinh()));
    "acosh"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]) >= 1.0, f64::acosh);
    "atanh"(Float8) -> Float8 = |it, _| within(float(it[0]), float(it[0]).abs() <= 1.0, f64::atanh);
    "scale"(Numeric) -> Int4 = |it, _| Ok(Datum::Int(decimal(it[0])?.scale().into()));
    "min_scale"(Numeric) -> Int4 = |it, _| Ok(Datum::Int(decimal(it[0])?.normalized().scale().into()));
    "trim_scale"(Numeric) -> Numeric = |it, _| Ok(Datum::Numeric(decimal(it[0])?.normalized()));
    "width_bucket"(Float8, Float8, Float8, Int4) -> Int4 = |it, _| {
        let (value, low, high) = (float(it[0]), float(it[1]), float(it[2]));
        let Datum::Int(count) = it[3] else { unreachable!("an integer") };
        let bad = |what: &str| SqlError::new(SqlState("2201G"), what.to_owned());
        if value.is_nan() || low.is_nan() || high.is_nan() {
            return Err(bad("operand, lower bound, and upper bound cannot be NaN"));
        }
        if low.is_infinite() || high.is_infinite() {
            return Err(bad("lower and upper bounds must be finite"));
        }
        if count <= 0 {
            return Err(bad("count must be greater than zero"));
        }
        if low == high {
            return Err(bad("lower bound cannot equal upper bound"));
        }
        let place = (value - low) / (high - low);
        Ok(Datum::Int(if place < 0.0 { 0 } else if place >= 1.0 { count + 1 } else { (place * count as f64) as i64 + 1 }))
    };
};
