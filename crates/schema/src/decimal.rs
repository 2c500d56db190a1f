//! Fixed-point decimals.

use std::fmt;
use std::str::FromStr;

/// A decimal number with `SCALE` digits behind the point, such as money: a 64-bit count of units of ten to the power of
/// `-SCALE`.
///
/// ```
/// use polychron_schema::Decimal;
/// let price: Decimal<2> = "19.90".parse().unwrap();
/// let total = price.checked_mul_integer(3).unwrap();
/// assert_eq!(total.to_string(), "59.70");
/// assert_eq!(total.units(), 5970);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Decimal<const SCALE: u32>(i64);

/// A text that is no decimal of the wanted scale, or one that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal number with at most {scale} digits behind the point")]
pub struct ParseDecimalError {
    scale: u32,
}

impl<const SCALE: u32> Decimal<SCALE> {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Units in one.
    pub const ONE_IN_UNITS: i64 = {
        assert!(SCALE <= crate::MAX_DECIMAL_SCALE, "a decimal has at most 18 digits behind the point");
        10_i64.pow(SCALE)
    };

    /// A decimal of so many units.
    #[inline]
    pub const fn from_units(units: i64) -> Self {
        Self(units)
    }

    /// The number of units.
    #[inline]
    pub const fn units(self) -> i64 {
        self.0
    }

    /// A whole number, or `None` when it does not fit.
    #[inline]
    pub const fn from_integer(integer: i64) -> Option<Self> {
        match integer.checked_mul(Self::ONE_IN_UNITS) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The sum, or `None` when it does not fit.
    #[inline]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The difference, or `None` when it does not fit.
    #[inline]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The product with a whole number, or `None` when it does not fit.
    #[inline]
    pub const fn checked_mul_integer(self, factor: i64) -> Option<Self> {
        match self.0.checked_mul(factor) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The product with a decimal of any scale, rounded half away from zero, or `None` when it does not fit.
    #[inline]
    pub const fn checked_mul<const OTHER: u32>(self, other: Decimal<OTHER>) -> Option<Self> {
        let product = self.0 as i128 * other.0 as i128;
        Self::rounded(product, Decimal::<OTHER>::ONE_IN_UNITS as i128)
    }

    /// The quotient, rounded half away from zero, or `None` when the divisor is zero or it does not fit.
    #[inline]
    pub const fn checked_div<const OTHER: u32>(self, other: Decimal<OTHER>) -> Option<Self> {
        if other.0 == 0 {
            return None;
        }
        Self::rounded(self.0 as i128 * Decimal::<OTHER>::ONE_IN_UNITS as i128, other.0 as i128)
    }

    const fn rounded(dividend: i128, divisor: i128) -> Option<Self> {
        let (quotient, rest) = (dividend / divisor, dividend % divisor);
        let away = if rest.unsigned_abs() * 2 < divisor.unsigned_abs() {
            0
        } else if (dividend < 0) == (divisor < 0) {
            1
        } else {
            -1
        };
        let result = quotient + away;
        if result < i64::MIN as i128 || result > i64::MAX as i128 { None } else { Some(Self(result as i64)) }
    }

    /// The nearest floating-point number.
    #[inline]
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / Self::ONE_IN_UNITS as f64
    }
}

/// Writes `units` with `scale` digits behind the point.
pub(crate) fn write_units(f: &mut fmt::Formatter<'_>, units: i64, scale: u32) -> fmt::Result {
    let one = 10_u64.pow(scale.min(crate::MAX_DECIMAL_SCALE));
    let (whole, part) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
    let text = if scale == 0 { whole.to_string() } else { format!("{whole}.{part:0width$}", width = scale as usize) };
    f.pad_integral(units >= 0, "", &text)
}

impl<const SCALE: u32> fmt::Display for Decimal<SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_units(f, self.0, SCALE)
    }
}

/// Reads a decimal with at most `scale` digits behind the point as units; fewer digits are filled up with zeros.
pub(crate) fn parse_units(text: &str, scale: u32) -> Option<i64> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() || part.len() > scale as usize {
        return None;
    }
    let mut units: i128 = 0;
    let filled = scale as usize - part.len();
    for digit in whole.bytes().chain(part.bytes()).chain(std::iter::repeat_n(b'0', filled)) {
        let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
        units = units.checked_mul(10)?.checked_add(digit)?;
    }
    i64::try_from(if negative { -units } else { units }).ok()
}

impl<const SCALE: u32> FromStr for Decimal<SCALE> {
    type Err = ParseDecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_units(text, SCALE).map(Self).ok_or(ParseDecimalError { scale: SCALE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["0.00", "1.05", "-0.01", "-92233720368547758.08", "92233720368547758.07"] {
            assert_eq!(text.parse::<Decimal<2>>().unwrap().to_string(), text);
        }
        assert_eq!("7".parse::<Decimal<2>>().unwrap(), Decimal::from_units(700));
        assert_eq!("+.5".parse::<Decimal<2>>().unwrap(), Decimal::from_units(50));
        for text in [
            "",
            ".",
            "-",
            "1.234",
            "1e3",
            "1,0",
            "92233720368547758.08",
            "--1",
            "99999999999999999999999999999999999999999",
        ] {
            assert!(text.parse::<Decimal<2>>().is_err(), "{text}");
        }
        assert_eq!(
            format!("{:>7}|{:<7}|", Decimal::<1>::from_units(-15), Decimal::<0>::from_units(3)),
            "   -1.5|3      |"
        );
    }

    #[test]
    fn arithmetic_rounds_half_away_from_zero() {
        let units = Decimal::<2>::from_units;
        assert_eq!(units(105).checked_mul(Decimal::<1>::from_units(5)), Some(units(53)));
        assert_eq!(units(-105).checked_mul(Decimal::<1>::from_units(5)), Some(units(-53)));
        assert_eq!(units(100).checked_div(units(300)), Some(units(33)));
        assert_eq!(units(200).checked_div(units(-300)), Some(units(-67)));
        assert_eq!(units(1).checked_div(units(0)), None);
        assert_eq!(units(i64::MAX).checked_add(units(1)), None);
        assert_eq!(units(i64::MIN).checked_sub(units(1)), None);
        assert_eq!(units(i64::MAX).checked_mul_integer(2), None);
        assert_eq!(Decimal::<2>::from_integer(3), Some(units(300)));
        assert_eq!(Decimal::<2>::from_integer(i64::MAX), None);
    }
}
