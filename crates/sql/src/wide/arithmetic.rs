//! What is computed of numerics of any size, where [`Decimal`] is too small.

use num_bigint::{BigInt, Sign};

use super::{Number, digits, power};
use crate::datum::{Datum, OwnedDatum};
use crate::decimal::{Decimal, overflow};
use crate::error::{SqlError, SqlState};

/// The most digits that stand behind the point of a quotient.
const MOST_OF_QUOTIENTS: i64 = 1000;

/// Something of two numerics: as decimals where they and the result are such, and as numbers of any size otherwise.
pub(crate) struct Operation {
    pub(crate) small: fn(Decimal, Decimal) -> Result<Decimal, SqlError>,
    pub(crate) any: fn(&Number, &Number) -> Result<Number, SqlError>,
}

impl Operation {
    pub(crate) fn of(&self, a: Datum<'_>, b: Datum<'_>) -> Result<OwnedDatum, SqlError> {
        match (a, b) {
            (Datum::Numeric(one), Datum::Numeric(other)) if let Ok(result) = (self.small)(one, other) => {
                Ok(OwnedDatum::Plain(Datum::Numeric(result)))
            }
            _ => (self.any)(&Number::of(a), &Number::of(b))?.datum(),
        }
    }
}

fn infinite(is_negative: bool) -> Number {
    Number::Infinite { is_negative }
}

fn by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

impl Number {
    /// −1, 0 or 1; nothing where it is no number.
    pub(crate) fn sign(&self) -> Option<i32> {
        match self {
            Self::Finite { units, .. } => Some(match units.sign() {
                Sign::Minus => -1,
                Sign::NoSign => 0,
                Sign::Plus => 1,
            }),
            Self::Infinite { is_negative } => Some(if *is_negative { -1 } else { 1 }),
            Self::Nan => None,
        }
    }

    /// The position of the first group of four digits that is not zero, counted from the point, and that group.
    fn leading_group(&self) -> (i64, u32) {
        let Self::Finite { units, scale } = self else { return (0, 0) };
        let text = units.magnitude().to_string();
        if text == "0" {
            return (0, 0);
        }
        let first = text.len() as i64 - 1 - i64::from(*scale);
        let weight = first.div_euclid(4);
        let wanted = (first - 4 * weight + 1) as usize;
        let group = format!("{text:0<wanted$}");
        (weight, group[..wanted].parse().unwrap_or(0))
    }
}

/// Divides and rounds half away from zero.
fn divide_rounded(units: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, rest) = (units / divisor, units % divisor);
    if rest.magnitude() * 2_u8 < *divisor.magnitude() {
        return quotient;
    }
    if (units.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) { quotient + 1 } else { quotient - 1 }
}

fn rescaled(units: &BigInt, from: u32, to: u32) -> BigInt {
    if to >= from { units * power(to - from) } else { divide_rounded(units, &power(from - to)) }
}

pub(crate) fn add(a: &Number, b: &Number) -> Result<Number, SqlError> {
    Ok(match (a, b) {
        (Number::Finite { units, scale }, Number::Finite { units: more, scale: other }) => {
            let common = (*scale).max(*other);
            Number::Finite { units: rescaled(units, *scale, common) + rescaled(more, *other, common), scale: common }
        }
        (Number::Nan, _) | (_, Number::Nan) => Number::Nan,
        (Number::Infinite { is_negative: one }, Number::Infinite { is_negative: other }) if one != other => Number::Nan,
        (Number::Infinite { is_negative }, _) | (_, Number::Infinite { is_negative }) => infinite(*is_negative),
    })
}

pub(crate) fn negate(of: &Number) -> Number {
    match of {
        Number::Finite { units, scale } => Number::Finite { units: -units, scale: *scale },
        Number::Infinite { is_negative } => infinite(!is_negative),
        Number::Nan => Number::Nan,
    }
}

pub(crate) fn multiply(a: &Number, b: &Number) -> Result<Number, SqlError> {
    Ok(match (a, b) {
        (Number::Finite { units, scale }, Number::Finite { units: factor, scale: other }) => {
            let (units, scale) = (units * factor, scale + other);
            let kept = scale.min(super::MOST_BEHIND);
            Number::Finite { units: rescaled(&units, scale, kept), scale: kept }
        }
        _ => match (a.sign(), b.sign()) {
            (Some(one), Some(other)) if one * other != 0 => infinite(one * other < 0),
            _ => Number::Nan,
        },
    })
}

pub(crate) fn divide(a: &Number, b: &Number) -> Result<Number, SqlError> {
    let (Number::Finite { units, scale }, Number::Finite { units: divisor, scale: other }) = (a, b) else {
        return match (a, b) {
            (Number::Nan, _) | (_, Number::Nan) => Ok(Number::Nan),
            (Number::Infinite { .. }, Number::Infinite { .. }) => Ok(Number::Nan),
            (Number::Infinite { is_negative }, _) => match b.sign() {
                Some(0) | None => Err(by_zero()),
                Some(sign) => Ok(infinite(*is_negative == (sign > 0))),
            },
            _ => Ok(Number::Finite { units: BigInt::ZERO, scale: 0 }),
        };
    };
    if divisor.sign() == Sign::NoSign {
        return Err(by_zero());
    }
    let ((weight, first), (other_weight, other_first)) = (a.leading_group(), b.leading_group());
    let weight = weight - other_weight - i64::from(first <= other_first);
    let wanted = (16 - 4 * weight).max((*scale).into()).max((*other).into()).clamp(0, MOST_OF_QUOTIENTS) as u32;
    // The dividend gets the digits that the result is to have.
    let shift = i64::from(wanted) + i64::from(*other) - i64::from(*scale);
    let units = match u32::try_from(shift) {
        Ok(shift) => divide_rounded(&(units * power(shift)), divisor),
        Err(_) => divide_rounded(units, &(divisor * power(shift.unsigned_abs() as u32))),
    };
    Ok(Number::Finite { units, scale: wanted })
}

/// The quotient without what stands behind its point.
pub(crate) fn whole_quotient(a: &Number, b: &Number) -> Result<Number, SqlError> {
    match (a, b) {
        (Number::Finite { units, scale }, Number::Finite { units: divisor, scale: other }) => {
            if divisor.sign() == Sign::NoSign {
                return Err(by_zero());
            }
            let common = (*scale).max(*other);
            let units = rescaled(units, *scale, common) / rescaled(divisor, *other, common);
            Ok(Number::Finite { units, scale: 0 })
        }
        _ => divide(a, b),
    }
}

pub(crate) fn remainder(a: &Number, b: &Number) -> Result<Number, SqlError> {
    match (a, b) {
        (Number::Finite { units, scale }, Number::Finite { units: divisor, scale: other }) => {
            if divisor.sign() == Sign::NoSign {
                return Err(by_zero());
            }
            let common = (*scale).max(*other);
            let units = rescaled(units, *scale, common) % rescaled(divisor, *other, common);
            Ok(Number::Finite { units, scale: common })
        }
        (Number::Finite { .. }, Number::Infinite { .. }) => Ok(a.clone()),
        (Number::Infinite { .. }, _) if b.sign() == Some(0) => Err(by_zero()),
        _ => Ok(Number::Nan),
    }
}

/// With so many digits behind the point, or in front of it where there are fewer than none: rounded half away from zero, or cut.
pub(crate) fn rounded(of: &Number, to: i64, is_cut: bool) -> Number {
    let Number::Finite { units, scale } = of else { return of.clone() };
    let to = to.clamp(-200_000, super::MOST_BEHIND.into());
    let drop = i64::from(*scale) - to;
    let Ok(drop) = u32::try_from(drop) else {
        return Number::Finite { units: rescaled(units, *scale, to as u32), scale: to as u32 };
    };
    let kept = if is_cut { units / power(drop) } else { divide_rounded(units, &power(drop)) };
    match u32::try_from(to) {
        Ok(scale) => Number::Finite { units: kept, scale },
        Err(_) => Number::Finite { units: kept * power(to.unsigned_abs() as u32), scale: 0 },
    }
}

/// The greatest whole number that is not greater.
pub(crate) fn floor(of: &Number) -> Number {
    let cut = rounded(of, 0, true);
    match (&cut, of.sign()) {
        (Number::Finite { units, .. }, Some(-1)) if cut != *of && cut > *of => {
            Number::Finite { units: units - 1, scale: 0 }
        }
        _ => cut,
    }
}

/// The square root with 16 significant digits, and no fewer behind the point than the number has.
pub(crate) fn root(of: &Number) -> Result<Number, SqlError> {
    let Number::Finite { units, scale } = of else { return Ok(of.clone()) };
    let (weight, _) = of.leading_group();
    let wanted = (17 - (weight + 1) * 2).max((*scale).into()).clamp(0, MOST_OF_QUOTIENTS) as u32;
    root_to(units, *scale, wanted)
}

/// The square root with this scale; the number is not negative.
pub(crate) fn root_to(units: &BigInt, scale: u32, wanted: u32) -> Result<Number, SqlError> {
    if digits(units) > 2 * super::MOST_IN_FRONT {
        return Err(overflow());
    }
    // One digit more to round by, and an even number of digits behind the point.
    let behind = 2 * (wanted + 1);
    let root = rescaled(units, scale, behind.max(scale + scale % 2)).sqrt();
    let has = behind.max(scale + scale % 2) / 2;
    Ok(Number::Finite { units: rescaled(&root, has, wanted), scale: wanted })
}

/// A whole power that is not negative, with 16 digits behind the point, and no fewer than the base has.
pub(crate) fn whole_power(base: &Number, exponent: u32) -> Result<Number, SqlError> {
    let Number::Finite { units, scale } = base else { return Ok(Number::Nan) };
    let about = (digits(units) as f64 - f64::from(*scale)) * f64::from(exponent);
    if about > super::MOST_IN_FRONT as f64 * 1.1 || digits(units) * u64::from(exponent) > 4_000_000 {
        return Err(overflow());
    }
    let (units, behind) = (units.pow(exponent), scale * exponent);
    let wanted = (*scale).max(16);
    Ok(Number::Finite { units: rescaled(&units, behind, wanted), scale: wanted })
}

/// The most digits of numbers of which a common divisor is looked for.
const MOST_OF_DIVISORS: u64 = 10_000;

/// The greatest common divisor, or the least common multiple.
pub(crate) fn common(a: &Number, b: &Number, is_multiple: bool) -> Result<Number, SqlError> {
    let (Number::Finite { units, scale }, Number::Finite { units: more, scale: other }) = (a, b) else {
        return Ok(Number::Nan);
    };
    let scale_of_both = (*scale).max(*other);
    let [one, other] = [rescaled(units, *scale, scale_of_both), rescaled(more, *other, scale_of_both)];
    if digits(&one).max(digits(&other)) > MOST_OF_DIVISORS {
        return Err(overflow());
    }
    let (mut divisor, mut rest) = (BigInt::from(one.magnitude().clone()), BigInt::from(other.magnitude().clone()));
    while rest.sign() != Sign::NoSign {
        (divisor, rest) = (rest.clone(), divisor % rest);
    }
    let units = match is_multiple {
        false => divisor,
        true if divisor.sign() == Sign::NoSign => divisor,
        true => BigInt::from((one / divisor * other).magnitude().clone()),
    };
    Ok(Number::Finite { units, scale: scale_of_both })
}

pub(crate) fn factorial(of: u32) -> Number {
    Number::Finite { units: (1..=of).fold(BigInt::from(1), |product, next| product * next), scale: 0 }
}
