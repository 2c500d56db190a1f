//! Numbers with digits behind the point: PostgreSQL's `numeric` of up to 38 digits.
//!
//! A number remembers how many digits stand behind its point (its *scale*), as PostgreSQL's does: `1.50` is shown as it was written, and the rules
//! by which results get their scales are those of `numeric.c`. What needs more than 38 digits is out of range here, and left to `wide`.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{SqlError, SqlState};

/// The most digits.
pub(crate) const MAX_DIGITS: u32 = 38;

/// `units` of ten to the power of `-scale`.
///
/// Packed, so that a value of SQL takes 24 bytes and not 48.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub struct Decimal {
    units: i128,
    scale: u32,
}

pub(crate) fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
        .with_detail("A numeric has at most 38 digits here.")
}

fn power(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

/// Divides and rounds half away from zero.
fn divide_rounded(units: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (units / divisor, units % divisor);
    let is_half = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
    if is_half && rest != 0 { quotient + (units.signum() * divisor.signum()) } else { quotient }
}

impl Decimal {
    pub(crate) const ZERO: Self = Self { units: 0, scale: 0 };

    /// `units` of ten to the power of `-scale`.
    pub const fn new(units: i128, scale: u32) -> Self {
        Self { units, scale }
    }

    /// The number of units.
    pub const fn units(self) -> i128 {
        self.units
    }

    /// Digits behind the point.
    pub const fn scale(self) -> u32 {
        self.scale
    }

    /// The number that a text stands for, with as many digits behind the point as the text has.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, SqlError>> {
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (negative, digits) = match mantissa.as_bytes().first()? {
            b'-' => (true, &mantissa[1..]),
            b'+' => (false, &mantissa[1..]),
            _ => (false, mantissa),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let mut all = whole.bytes().chain(part.bytes());
        if whole.len() + part.len() == 0 || !all.all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut units = 0_i128;
        for digit in whole.bytes().chain(part.bytes()) {
            match units.checked_mul(10).and_then(|units| units.checked_add(i128::from(digit - b'0'))) {
                Some(more) => units = more,
                None => return Some(Err(overflow())),
            }
        }
        let units = if negative { -units } else { units };
        let scale = part.len() as i64 - i64::from(exponent);
        if scale >= 0 {
            let scale = u32::try_from(scale).ok().filter(|scale| *scale <= MAX_DIGITS);
            return Some(scale.map(|scale| Self { units, scale }).ok_or_else(overflow));
        }
        let factor = u32::try_from(-scale).ok().and_then(power);
        let units = factor.and_then(|factor| units.checked_mul(factor));
        Some(units.map(|units| Self { units, scale: 0 }).ok_or_else(overflow))
    }

    /// The same number with so many digits behind the point, rounded half away from zero.
    pub(crate) fn rescale(self, scale: u32) -> Result<Self, SqlError> {
        let units = if scale >= self.scale {
            power(scale - self.scale).and_then(|factor| self.units.checked_mul(factor)).ok_or_else(overflow)?
        } else {
            power(self.scale - scale).map_or(0, |divisor| divide_rounded(self.units, divisor))
        };
        Ok(Self { units, scale })
    }

    /// As a value of `numeric(precision, scale)`.
    pub(crate) fn fit(self, precision: u32, scale: u32) -> Result<Self, SqlError> {
        let out_of_range = || {
            let whole = precision.saturating_sub(scale);
            let bound = if whole == 0 { "1".to_owned() } else { format!("10^{whole}") };
            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
            ))
        };
        let fitted = self.rescale(scale).map_err(|_| out_of_range())?;
        let limit = power(precision).ok_or_else(overflow)?;
        if fitted.units.unsigned_abs() < limit.unsigned_abs() { Ok(fitted) } else { Err(out_of_range()) }
    }

    /// Both with the greater scale.
    fn aligned(self, other: Self) -> Result<(i128, i128, u32), SqlError> {
        let scale = self.scale.max(other.scale);
        Ok((self.rescale(scale)?.units, other.rescale(scale)?.units, scale))
    }

    pub(crate) fn add(self, other: Self) -> Result<Self, SqlError> {
        let (a, b, scale) = self.aligned(other)?;
        Ok(Self { units: a.checked_add(b).ok_or_else(overflow)?, scale })
    }

    pub(crate) fn subtract(self, other: Self) -> Result<Self, SqlError> {
        self.add(other.negate()?)
    }

    pub(crate) fn negate(self) -> Result<Self, SqlError> {
        Ok(Self { units: self.units.checked_neg().ok_or_else(overflow)?, ..self })
    }

    pub(crate) fn multiply(self, other: Self) -> Result<Self, SqlError> {
        let units = self.units.checked_mul(other.units).ok_or_else(overflow)?;
        Self { units, scale: self.scale + other.scale }.checked()
    }

    /// It, unless it has too many digits behind its point.
    fn checked(self) -> Result<Self, SqlError> {
        if self.scale > MAX_DIGITS { Err(overflow()) } else { Ok(self) }
    }

    /// The quotient, with the scale that `select_div_scale` chooses: 16 significant digits at least, and no fewer behind the point than either has.
    pub(crate) fn divide(self, other: Self) -> Result<Self, SqlError> {
        if other.units == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let ((weight, first), (other_weight, other_first)) = (self.leading_group(), other.leading_group());
        let weight = weight - other_weight - i64::from(first <= other_first);
        let scale = (16 - 4 * weight).max(self.scale.into()).max(other.scale.into()).max(0);
        self.quotient(other, u32::try_from(scale).map_err(|_| overflow())?)
    }

    /// The quotient with this scale, rounded half away from zero.
    pub(crate) fn quotient(self, other: Self, scale: u32) -> Result<Self, SqlError> {
        // Digit by digit, so that nothing but the result has to fit.
        let (mut quotient, mut rest) = (self.units / other.units, self.units % other.units);
        let shift = i64::from(scale) + i64::from(other.scale) - i64::from(self.scale);
        if shift < 0 {
            let divisor = power(u32::try_from(-shift).map_err(|_| overflow())?).ok_or_else(overflow)?;
            return Ok(Self { units: divide_rounded(quotient, divisor), scale });
        }
        if scale > MAX_DIGITS {
            return Err(overflow());
        }
        for _ in 0..shift {
            let ten = rest.checked_mul(10).ok_or_else(overflow)?;
            quotient =
                quotient.checked_mul(10).and_then(|it| it.checked_add(ten / other.units)).ok_or_else(overflow)?;
            rest = ten % other.units;
        }
        let is_half = rest.unsigned_abs() >= other.units.unsigned_abs() - rest.unsigned_abs();
        let step = if is_half && rest != 0 { self.units.signum() * other.units.signum() } else { 0 };
        Ok(Self { units: quotient + step, scale })
    }

    pub(crate) fn remainder(self, other: Self) -> Result<Self, SqlError> {
        if other.units == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let (a, b, scale) = self.aligned(other)?;
        Ok(Self { units: a % b, scale })
    }

    /// The position of the first group of four digits that is not zero, counted from the point, and that group.
    fn leading_group(self) -> (i64, u128) {
        let units = self.units.unsigned_abs();
        let Some(digits) = units.checked_ilog10() else { return (0, 0) };
        let first = i64::from(digits) - i64::from(self.scale);
        let weight = first.div_euclid(4);
        // The group's digits, of which the number may have fewer.
        let wanted = first - 4 * weight;
        let drop = i64::from(digits) - wanted;
        let group = match u32::try_from(drop) {
            Ok(drop) => units / 10_u128.pow(drop),
            Err(_) => units * 10_u128.pow(drop.unsigned_abs() as u32),
        };
        (weight, group)
    }

    /// The square root with 16 significant digits, and no fewer behind the point than the number has.
    pub(crate) fn root(self) -> Result<Self, SqlError> {
        let (weight, _) = self.leading_group();
        let scale = (17 - (weight + 1) * 2).max(self.scale.into()).max(0);
        self.square_root(u32::try_from(scale).map_err(|_| overflow())?)
    }

    /// The square root with this scale, rounded; the number is not negative.
    pub(crate) fn square_root(self, scale: u32) -> Result<Self, SqlError> {
        let even = if self.scale % 2 == 1 { self.rescale(self.scale + 1)? } else { self };
        let units = even.units.unsigned_abs();
        let (mut root, mut has) = (units.isqrt(), even.scale / 2);
        let mut rest = units - root * root;
        // Digit by digit, and one more to round by.
        while has < scale + 1 {
            rest = rest.checked_mul(100).ok_or_else(overflow)?;
            let twenty = root.checked_mul(20).ok_or_else(overflow)?;
            let digit = (1..=9).rev().find(|digit| (twenty + digit) * digit <= rest).unwrap_or(0);
            rest -= (twenty + digit) * digit;
            root = root * 10 + digit;
            has += 1;
        }
        let units = i128::try_from(root).map_err(|_| overflow())?;
        Self { units, scale: has }.rescale(scale)
    }

    /// The greatest whole number that is not greater.
    pub(crate) fn floor(self) -> Result<Self, SqlError> {
        let divisor = power(self.scale).ok_or_else(overflow)?;
        Ok(Self { units: self.units.div_euclid(divisor), scale: 0 })
    }

    /// As a whole number, rounded half away from zero.
    pub(crate) fn to_whole(self) -> i128 {
        power(self.scale).map_or(0, |divisor| divide_rounded(self.units, divisor))
    }

    pub(crate) fn to_float(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Without zeros at the end of what stands behind the point.
    pub(crate) fn normalized(self) -> Self {
        let mut it = self;
        while it.scale > 0 && it.units % 10 == 0 {
            it = Self { units: it.units / 10, scale: it.scale - 1 };
        }
        it
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self { units: value.into(), scale: 0 }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.scale == other.scale {
            return self.units().cmp(&other.units());
        }
        let parts = |it: &Self| {
            let one = 10_i128.pow(it.scale.min(MAX_DIGITS));
            (it.units.div_euclid(one), it.units.rem_euclid(one))
        };
        let ((whole, part), (other_whole, other_part)) = (parts(self), parts(other));
        let common = self.scale.max(other.scale);
        let widen = |part: i128, scale: u32| part * 10_i128.pow(common - scale);
        whole.cmp(&other_whole).then_with(|| widen(part, self.scale).cmp(&widen(other_part, other.scale)))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal {}

impl fmt::Display for Decimal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, units) = (if self.units < 0 { "-" } else { "" }, self.units.unsigned_abs());
        if self.scale == 0 {
            return write!(out, "{sign}{units}");
        }
        let digits = format!("{units:0>width$}", width = self.scale as usize + 1);
        let (whole, part) = digits.split_at(digits.len() - self.scale as usize);
        write!(out, "{sign}{whole}.{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap().unwrap()
    }

    #[test]
    fn texts_are_read_and_shown() {
        for text in ["0", "1.50", "-0.05", "12345678901234567890.1234567890", "-7"] {
            assert_eq!(number(text).to_string(), text);
        }
        assert_eq!(number("1.5e3").to_string(), "1500");
        assert_eq!(number("15e-3").to_string(), "0.015");
        assert_eq!(number("+.5").to_string(), "0.5");
        assert_eq!(number("5.").to_string(), "5");
        for text in ["", ".", "-", "1e", "1.2.3", "0x1", "1e1.5"] {
            assert!(Decimal::parse(text).is_none(), "{text}");
        }
        assert!(Decimal::parse(&"9".repeat(50)).unwrap().is_err());
        assert!(Decimal::parse("1e400").unwrap().is_err());
    }

    /// What PostgreSQL 15 answers.
    #[test]
    fn quotients_have_the_digits_of_postgresql() {
        for (a, b, wanted) in [
            ("1", "3", "0.33333333333333333333"),
            ("10", "3", "3.3333333333333333"),
            ("2", "3", "0.66666666666666666667"),
            ("1", "7000", "0.00014285714285714286"),
            ("100000", "3", "33333.333333333333"),
            ("-1", "3", "-0.33333333333333333333"),
            ("1.000", "8", "0.12500000000000000000"),
            ("0", "5", "0.00000000000000000000"),
            ("7", "7", "1.00000000000000000000"),
            ("12345.678", "0.001", "12345678.000000000000"),
        ] {
            assert_eq!(number(a).divide(number(b)).unwrap().to_string(), wanted, "{a} / {b}");
        }
        assert_eq!(number("1").divide(Decimal::ZERO).unwrap_err().state(), SqlState::DIVISION_BY_ZERO);
    }

    #[test]
    fn sums_and_products_keep_all_digits() {
        assert_eq!(number("1.5").add(number("2.25")).unwrap().to_string(), "3.75");
        assert_eq!(number("1.5").multiply(number("2.25")).unwrap().to_string(), "3.375");
        assert_eq!(number("-7.5").remainder(number("2")).unwrap().to_string(), "-1.5");
        assert_eq!(number("2.5").rescale(0).unwrap().to_string(), "3");
        assert_eq!(number("-2.5").rescale(0).unwrap().to_string(), "-3");
        assert_eq!(number("2.449").fit(3, 2).unwrap().to_string(), "2.45");
        assert_eq!(number("9.996").fit(3, 2).unwrap_err().message(), "numeric field overflow");
        assert!(number("1.50") == number("1.5") && number("-1.51") < number("-1.5"));
    }
}
