//! Angles, and what else is known of numbers.

use super::{Function, functions};
use crate::datum::Datum;
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};

fn float(datum: Datum<'_>) -> f64 {
    if let Datum::Float(value) = datum { value } else { unreachable!("a float") }
}

fn decimal(datum: Datum<'_>) -> Decimal {
    if let Datum::Numeric(value) = datum { value } else { unreachable!("a numeric") }
}

fn within<'a>(value: f64, is_within: bool, of: fn(f64) -> f64) -> Result<Datum<'a>, SqlError> {
    if is_within || value.is_nan() {
        return Ok(Datum::Float(of(value)));
    }
    Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range"))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
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
    "scale"(Numeric) -> Int4 = |it, _| Ok(Datum::Int(decimal(it[0]).scale().into()));
    "min_scale"(Numeric) -> Int4 = |it, _| Ok(Datum::Int(decimal(it[0]).normalized().scale().into()));
    "trim_scale"(Numeric) -> Numeric = |it, _| Ok(Datum::Numeric(decimal(it[0]).normalized()));
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
