//! Decimals of `rust_decimal`, which have a scale of their own each.

use crate::{Decimal, Decimal128, DecimalRangeError};

type Foreign = ::rust_decimal::Decimal;

impl<const SCALE: u32> TryFrom<Foreign> for Decimal128<SCALE> {
    type Error = DecimalRangeError;

    /// The same number; one with more digits behind the point is refused.
    fn try_from(decimal: Foreign) -> Result<Self, Self::Error> {
        let units = crate::dynamic::rescale(decimal.mantissa(), decimal.scale(), SCALE);
        units.map(Self::from_units).ok_or(DecimalRangeError(()))
    }
}

impl<const SCALE: u32> TryFrom<Foreign> for Decimal<SCALE> {
    type Error = DecimalRangeError;

    /// The same number; one with more digits behind the point is refused.
    fn try_from(decimal: Foreign) -> Result<Self, Self::Error> {
        Decimal128::<SCALE>::try_from(decimal)?.try_into()
    }
}

impl<const SCALE: u32> TryFrom<Decimal128<SCALE>> for Foreign {
    type Error = DecimalRangeError;

    /// The same number; one of more than 96 bits or 28 digits behind the point is refused.
    fn try_from(decimal: Decimal128<SCALE>) -> Result<Self, Self::Error> {
        Self::try_from_i128_with_scale(decimal.units(), SCALE).map_err(|_| DecimalRangeError(()))
    }
}

impl<const SCALE: u32> From<Decimal<SCALE>> for Foreign {
    fn from(decimal: Decimal<SCALE>) -> Self {
        // 64 bits and 18 digits behind the point always fit.
        Self::from_i128_with_scale(decimal.units().into(), SCALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_mean_the_same() {
        for text in ["0.00", "-1.25", "92233720368547758.07", "-92233720368547758.08"] {
            let (own, foreign): (Decimal<2>, Foreign) = (text.parse().unwrap(), text.parse().unwrap());
            assert_eq!((Decimal::try_from(foreign), Foreign::from(own)), (Ok(own), foreign));
            assert_eq!(Foreign::try_from(Decimal128::from(own)), Ok(foreign));
        }
        let fine: Foreign = "1.250".parse().unwrap();
        assert_eq!(Decimal::<2>::try_from(fine), Ok(Decimal::from_units(125)));
        assert!(Decimal::<1>::try_from(fine).is_err() && Decimal::<18>::try_from(Foreign::MAX).is_err());
        assert!(Foreign::try_from(Decimal128::<0>::MAX).is_err());
        assert!(Foreign::try_from(Decimal128::<38>::from_units(1)).is_err());
    }
}
