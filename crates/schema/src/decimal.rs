//! Fixed-point decimals.

mod conversions;
mod wide;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

/// A decimal number with `SCALE` digits behind the point, such as money: a 64-bit count of units of ten to the power of
/// `-SCALE`. [`Decimal128`] has room for more.
///
/// Products and quotients are rounded half away from zero. Operators panic where a result does not fit, and the methods
/// `checked_…` answer `None`.
///
/// ```
/// use polychron_schema::Decimal;
/// let price: Decimal<2> = "19.90".parse().unwrap();
/// let total = price * 3 + "0.30".parse().unwrap();
/// assert_eq!(total.to_string(), "60.00");
/// assert_eq!(total.units(), 6000);
/// let interest: Decimal<4> = "0.0125".parse().unwrap();
/// assert_eq!((total * interest).to_string(), "0.75");
/// assert_eq!([price, price].into_iter().sum::<Decimal<2>>().to_string(), "39.80");
/// assert_eq!(Decimal::<2>::from_units(i64::MAX).checked_add(price), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Decimal<const SCALE: u32>(i64);

/// As [`Decimal`], in a 128-bit count of units: up to 38 digits, as many of them behind the point as `SCALE` says.
///
/// ```
/// use polychron_schema::{Decimal, Decimal128};
/// let supply: Decimal128<18> = "120000000.000000000000000001".parse().unwrap();
/// assert_eq!((supply + supply).to_string(), "240000000.000000000000000002");
/// assert_eq!(Decimal128::from(Decimal::<2>::from_units(150)).to_string(), "1.50");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Decimal128<const SCALE: u32>(i128);

/// A text that is no decimal of the wanted scale, or one that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal number with at most {scale} digits behind the point, or one that does not fit")]
pub struct ParseDecimalError {
    scale: u32,
}

/// A decimal that another type cannot hold exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the decimal does not fit, or has more digits behind the point than the other type")]
pub struct DecimalRangeError(pub(crate) ());

macro_rules! decimal {
    ($name:ident, $units:ty, $max_scale:expr, $too_fine:literal) => {
        impl<const SCALE: u32> $name<SCALE> {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// The smallest number.
            pub const MIN: Self = Self(<$units>::MIN);

            /// The largest number.
            pub const MAX: Self = Self(<$units>::MAX);

            /// Units in one.
            pub const ONE_IN_UNITS: $units = {
                assert!(SCALE <= $max_scale, $too_fine);
                (10 as $units).pow(SCALE)
            };

            /// A decimal of so many units.
            #[inline]
            pub const fn from_units(units: $units) -> Self {
                Self(units)
            }

            /// The number of units.
            #[inline]
            pub const fn units(self) -> $units {
                self.0
            }

            /// A whole number, or `None` when it does not fit.
            #[inline]
            pub const fn from_integer(integer: $units) -> Option<Self> {
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

            /// The number with the other sign, or `None` when it does not fit.
            #[inline]
            pub const fn checked_neg(self) -> Option<Self> {
                match self.0.checked_neg() {
                    Some(units) => Some(Self(units)),
                    None => None,
                }
            }

            /// The number without its sign, or `None` when it does not fit.
            #[inline]
            pub const fn checked_abs(self) -> Option<Self> {
                match self.0.checked_abs() {
                    Some(units) => Some(Self(units)),
                    None => None,
                }
            }

            /// The product with a whole number, or `None` when it does not fit.
            #[inline]
            pub const fn checked_mul_integer(self, factor: $units) -> Option<Self> {
                match self.0.checked_mul(factor) {
                    Some(units) => Some(Self(units)),
                    None => None,
                }
            }

            /// The product with a decimal of any scale, rounded half away from zero, or `None` when it does not fit.
            #[inline]
            pub const fn checked_mul<const OTHER: u32>(self, other: $name<OTHER>) -> Option<Self> {
                Self::of(wide::mul_div(self.0 as i128, other.0 as i128, $name::<OTHER>::ONE_IN_UNITS as i128))
            }

            /// The quotient, rounded half away from zero, or `None` when the divisor is zero or it does not fit.
            #[inline]
            pub const fn checked_div<const OTHER: u32>(self, other: $name<OTHER>) -> Option<Self> {
                Self::of(wide::mul_div(self.0 as i128, $name::<OTHER>::ONE_IN_UNITS as i128, other.0 as i128))
            }

            /// The same number with another scale, rounded half away from zero, or `None` when it does not fit.
            #[inline]
            pub const fn rescale<const OTHER: u32>(self) -> Option<$name<OTHER>> {
                let (to, from) = ($name::<OTHER>::ONE_IN_UNITS as i128, Self::ONE_IN_UNITS as i128);
                $name::<OTHER>::of(wide::mul_div(self.0 as i128, to, from))
            }

            const fn of(units: Option<i128>) -> Option<Self> {
                match units {
                    Some(units) if units as $units as i128 == units => Some(Self(units as $units)),
                    _ => None,
                }
            }

            /// The nearest floating-point number, or one beside it.
            #[inline]
            pub fn to_f64(self) -> f64 {
                self.0 as f64 / Self::ONE_IN_UNITS as f64
            }
        }

        impl<const SCALE: u32> Add for $name<SCALE> {
            type Output = Self;

            #[inline]
            fn add(self, other: Self) -> Self {
                self.checked_add(other).expect("the sum of two decimals does not fit")
            }
        }

        impl<const SCALE: u32> Sub for $name<SCALE> {
            type Output = Self;

            #[inline]
            fn sub(self, other: Self) -> Self {
                self.checked_sub(other).expect("the difference of two decimals does not fit")
            }
        }

        impl<const SCALE: u32> Neg for $name<SCALE> {
            type Output = Self;

            #[inline]
            fn neg(self) -> Self {
                self.checked_neg().expect("the least decimal has no counterpart")
            }
        }

        impl<const SCALE: u32> Mul<$units> for $name<SCALE> {
            type Output = Self;

            #[inline]
            fn mul(self, factor: $units) -> Self {
                self.checked_mul_integer(factor).expect("the product of a decimal and an integer does not fit")
            }
        }

        impl<const SCALE: u32, const OTHER: u32> Mul<$name<OTHER>> for $name<SCALE> {
            type Output = Self;

            #[inline]
            fn mul(self, other: $name<OTHER>) -> Self {
                self.checked_mul(other).expect("the product of two decimals does not fit")
            }
        }

        impl<const SCALE: u32, const OTHER: u32> Div<$name<OTHER>> for $name<SCALE> {
            type Output = Self;

            #[inline]
            fn div(self, other: $name<OTHER>) -> Self {
                self.checked_div(other).expect("a decimal is divided by zero, or the quotient does not fit")
            }
        }

        impl<const SCALE: u32> AddAssign for $name<SCALE> {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl<const SCALE: u32> SubAssign for $name<SCALE> {
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }

        impl<const SCALE: u32> MulAssign<$units> for $name<SCALE> {
            #[inline]
            fn mul_assign(&mut self, factor: $units) {
                *self = *self * factor;
            }
        }

        impl<const SCALE: u32, const OTHER: u32> MulAssign<$name<OTHER>> for $name<SCALE> {
            #[inline]
            fn mul_assign(&mut self, other: $name<OTHER>) {
                *self = *self * other;
            }
        }

        impl<const SCALE: u32, const OTHER: u32> DivAssign<$name<OTHER>> for $name<SCALE> {
            #[inline]
            fn div_assign(&mut self, other: $name<OTHER>) {
                *self = *self / other;
            }
        }

        impl<const SCALE: u32> Sum for $name<SCALE> {
            fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
                numbers.fold(Self::ZERO, Self::add)
            }
        }

        impl<'n, const SCALE: u32> Sum<&'n Self> for $name<SCALE> {
            fn sum<I: Iterator<Item = &'n Self>>(numbers: I) -> Self {
                numbers.copied().sum()
            }
        }

        impl<const SCALE: u32> fmt::Display for $name<SCALE> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_units(f, self.0.into(), SCALE)
            }
        }

        impl<const SCALE: u32> FromStr for $name<SCALE> {
            type Err = ParseDecimalError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::of(parse_units(text, SCALE)).ok_or(ParseDecimalError { scale: SCALE })
            }
        }
    };
}

decimal!(Decimal, i64, crate::MAX_DECIMAL_SCALE, "a decimal has at most 18 digits behind the point");
decimal!(Decimal128, i128, crate::MAX_DECIMAL128_SCALE, "a 128-bit decimal has at most 38 digits behind the point");

/// Writes `units` with `scale` digits behind the point.
pub(crate) fn write_units(f: &mut fmt::Formatter<'_>, units: i128, scale: u32) -> fmt::Result {
    let one = 10_u128.pow(scale.min(crate::MAX_DECIMAL128_SCALE));
    let (whole, part) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
    let text = if scale == 0 { whole.to_string() } else { format!("{whole}.{part:0width$}", width = scale as usize) };
    f.pad_integral(units >= 0, "", &text)
}

/// Reads a decimal with at most `scale` digits behind the point as units; fewer digits are filled up with zeros.
pub fn parse_units(text: &str, scale: u32) -> Option<i128> {
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
        // Downwards where there is a sign: the least number has no counterpart.
        let shifted = units.checked_mul(10)?;
        units = if negative { shifted.checked_sub(digit)? } else { shifted.checked_add(digit)? };
    }
    Some(units)
}

#[cfg(test)]
mod tests;
