//! Decimals to and from each other.

use super::{Decimal, Decimal128, DecimalRangeError};

impl<const SCALE: u32> From<Decimal<SCALE>> for Decimal128<SCALE> {
    fn from(decimal: Decimal<SCALE>) -> Self {
        Self(decimal.0.into())
    }
}

impl<const SCALE: u32> TryFrom<Decimal128<SCALE>> for Decimal<SCALE> {
    type Error = DecimalRangeError;

    fn try_from(decimal: Decimal128<SCALE>) -> Result<Self, Self::Error> {
        i64::try_from(decimal.0).map(Self).map_err(|_| DecimalRangeError(()))
    }
}
