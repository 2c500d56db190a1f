//! Numerics that [`Decimal`] does not hold: more than 38 digits, infinity, and what is no number.
//!
//! Columns do not store them, but what is computed may come by way of them: a product that is divided, a sum of squares. A value is one of these only where
//! it is no `Decimal`. The rules by which results get their scales are those of `numeric.c`.

mod arithmetic;

use std::cmp::Ordering;
use std::fmt;

use bumpalo::Bump;
use num_bigint::{BigInt, Sign};

use crate::datum::{Datum, OwnedDatum};
use crate::decimal::{Decimal, MAX_DIGITS, overflow};
use crate::error::SqlError;

pub(crate) use arithmetic::{
    Operation, add, common, divide, factorial, floor, multiply, negate, remainder, root, root_to, rounded, whole_power,
    whole_quotient,
};

/// Digits that may stand in front of the point, and behind it.
const MOST_IN_FRONT: u64 = 131_072;
const MOST_BEHIND: u32 = 16_383;

/// The bytes of such a numeric: what it is, its scale, its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wide<'a>(&'a [u8]);

/// A numeric of any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Units of ten to the power of minus the scale.
    Finite {
        units: BigInt,
        scale: u32,
    },
    Infinite {
        is_negative: bool,
    },
    Nan,
}

/// A numeric that is a decimal.
///
/// # Errors
/// [`SqlError::unsupported`]: the function takes no others.
pub(crate) fn decimal(datum: Datum<'_>) -> Result<Decimal, SqlError> {
    match datum {
        Datum::Numeric(value) => Ok(value),
        _ => Err(SqlError::unsupported(
            "a numeric of more than 38 digits, or one that is no finite number, in this place",
        )),
    }
}

impl<'a> Wide<'a> {
    /// What [`Self::bytes`] has given.
    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Ten to the power of this.
fn power(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// How many digits it has; none if it is zero.
fn digits(units: &BigInt) -> u64 {
    if units.sign() == Sign::NoSign { 0 } else { units.magnitude().to_string().len() as u64 }
}

impl Number {
    /// The number that a numeric is.
    pub(crate) fn of(datum: Datum<'_>) -> Self {
        match datum {
            Datum::Int(value) => Self::Finite { units: value.into(), scale: 0 },
            Datum::Numeric(value) => Self::Finite { units: value.units().into(), scale: value.scale() },
            Datum::Wide(Wide([0, bytes @ ..])) if let Some((scale, units)) = bytes.split_first_chunk() => {
                Self::Finite { units: BigInt::from_signed_bytes_le(units), scale: u32::from_le_bytes(*scale) }
            }
            Datum::Wide(Wide([1, ..])) => Self::Infinite { is_negative: false },
            Datum::Wide(Wide([2, ..])) => Self::Infinite { is_negative: true },
            _ => Self::Nan,
        }
    }

    /// The number that a text stands for, with as many digits behind the point as the text has.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, SqlError>> {
        match text.to_ascii_lowercase().as_str() {
            "nan" => return Some(Ok(Self::Nan)),
            "infinity" | "inf" | "+infinity" | "+inf" => return Some(Ok(Self::Infinite { is_negative: false })),
            "-infinity" | "-inf" => return Some(Ok(Self::Infinite { is_negative: true })),
            _ => {}
        }
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i64>().ok()?),
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, part) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let mut all = whole.bytes().chain(part.bytes());
        if whole.len() + part.len() == 0 || !all.all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let scale = part.len() as i64 - exponent;
        let in_front = whole.trim_start_matches('0').len() as i64 + exponent;
        if scale > MOST_BEHIND.into() || in_front > MOST_IN_FRONT as i64 || part.len() > MOST_BEHIND as usize {
            return Some(Err(overflow()));
        }
        let units = BigInt::parse_bytes(format!("{whole}{part}").as_bytes(), 10)?;
        let units = if mantissa.starts_with('-') { -units } else { units };
        Some(Ok(match u32::try_from(scale) {
            Ok(scale) => Self::Finite { units, scale },
            Err(_) => Self::Finite { units: units * power(scale.unsigned_abs() as u32), scale: 0 },
        }))
    }

    /// As a value, in the form that its size has.
    pub(crate) fn datum(&self) -> Result<OwnedDatum, SqlError> {
        let bytes = match self {
            Self::Finite { units, scale } => {
                if let (Ok(units), true) = (i128::try_from(units), *scale <= MAX_DIGITS)
                    && units.unsigned_abs() < 10_u128.pow(MAX_DIGITS)
                {
                    return Ok(OwnedDatum::Plain(Datum::Numeric(Decimal::new(units, *scale))));
                }
                if *scale > MOST_BEHIND || digits(units).saturating_sub((*scale).into()) > MOST_IN_FRONT {
                    return Err(overflow());
                }
                let mut bytes = vec![0];
                bytes.extend(scale.to_le_bytes());
                bytes.extend(units.to_signed_bytes_le());
                bytes
            }
            Self::Infinite { is_negative: false } => vec![1],
            Self::Infinite { is_negative: true } => vec![2],
            Self::Nan => vec![3],
        };
        Ok(OwnedDatum::Wide(bytes.into()))
    }

    /// The value in an arena.
    pub(crate) fn within<'a>(&self, arena: &'a Bump) -> Result<Datum<'a>, SqlError> {
        Ok(self.datum()?.get().within(arena))
    }

    /// Without zeros at the end of what stands behind the point.
    pub(crate) fn normalized(self) -> Self {
        let Self::Finite { mut units, mut scale } = self else { return self };
        let ten = BigInt::from(10);
        while scale > 0 && &units % &ten == BigInt::ZERO {
            (units, scale) = (units / &ten, scale - 1);
        }
        Self::Finite { units, scale }
    }

    pub(crate) fn to_float(&self) -> f64 {
        match self {
            Self::Finite { .. } => self.to_string().parse().unwrap_or(f64::NAN),
            Self::Infinite { is_negative: true } => f64::NEG_INFINITY,
            Self::Infinite { .. } => f64::INFINITY,
            Self::Nan => f64::NAN,
        }
    }

    /// What a float stands for, with 15 significant digits.
    pub(crate) fn of_float(value: f64) -> Self {
        if value.is_nan() {
            return Self::Nan;
        }
        if value.is_infinite() {
            return Self::Infinite { is_negative: value < 0.0 };
        }
        let text = format!("{value:.14e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        Self::parse(&format!("{mantissa}e{exponent}")).and_then(Result::ok).unwrap_or(Self::Nan)
    }
}

impl Ord for Number {
    /// What is no number is greater than infinity, and equals itself.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |of: &Self| match of {
            Self::Infinite { is_negative: true } => 0,
            Self::Finite { .. } => 1,
            Self::Infinite { .. } => 2,
            Self::Nan => 3,
        };
        match (self, other) {
            (Self::Finite { units, scale }, Self::Finite { units: others, scale: other_scale }) => {
                let common = (*scale).max(*other_scale);
                (units * power(common - scale)).cmp(&(others * power(common - other_scale)))
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite { units, scale } => {
                let sign = if units.sign() == Sign::Minus { "-" } else { "" };
                let scale = *scale as usize;
                let digits = format!("{:0>1$}", units.magnitude().to_string(), scale + 1);
                let (whole, part) = digits.split_at(digits.len() - scale);
                let point = if scale > 0 { "." } else { "" };
                write!(out, "{sign}{whole}{point}{part}")
            }
            Self::Infinite { is_negative: true } => out.write_str("-Infinity"),
            Self::Infinite { .. } => out.write_str("Infinity"),
            Self::Nan => out.write_str("NaN"),
        }
    }
}
