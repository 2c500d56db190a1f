//! The types of column that a future can stand for, and the operators that each has.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use polychron_schema::{Blank, ColumnValue, Date, Decimal, FixedBytes, FixedString, Timestamp};

use super::expression::Arithmetic;
use super::future::Future;
use super::value::{Bytes, Held, Scalar};

/// A type of column that a future can stand for: what has fixed width and at most 64 bits, text and bytes, and each of them with NULL.
pub trait FutureValue: ColumnValue {
    /// How a value is kept that is known. It is copied at will where the value has at most 64 bits.
    type Held: Held;
    /// Keeps a value.
    fn hold(self) -> Self::Held;
    /// The value that was kept.
    fn release(held: Self::Held) -> Self;
}

/// A type with sums and differences.
pub trait Number: FutureValue<Held = Scalar> {}

/// A type with products and quotients. Quotients of integers are rounded towards zero; products and quotients of decimals to the nearest number that they
/// have, halves away from zero.
pub trait Factor: Number {}

/// A type with negative values.
pub trait Signed: Number {}

/// A type of which values become values of another one: [`Future::convert`].
pub trait ConvertTo<U>: FutureValue {}

impl<T: Number, U: Number> ConvertTo<U> for T {}
impl<T: Number> ConvertTo<String> for T {}
impl<U: Number> ConvertTo<U> for String {}
impl ConvertTo<Vec<u8>> for String {}
impl ConvertTo<String> for Vec<u8> {}
impl<const N: usize> ConvertTo<String> for FixedString<N> {}
impl<const N: usize> ConvertTo<FixedString<N>> for String {}

/// A column type as it is.
macro_rules! future_value {
    ($([$($generics:tt)*] $type:ty: $held:ty, |$value:ident| $to:expr, |$kept:ident| $from:expr;)*) => {$(
        impl<$($generics)*> FutureValue for $type {
            type Held = $held;

            #[inline]
            fn hold(self) -> $held {
                let $value = self;
                $to
            }

            #[inline]
            fn release($kept: $held) -> Self {
                $from
            }
        }
    )*};
}

impl<T: FutureValue + Blank> FutureValue for Option<T> {
    type Held = Option<T::Held>;

    #[inline]
    fn hold(self) -> Self::Held {
        self.map(T::hold)
    }

    #[inline]
    fn release(held: Self::Held) -> Self {
        held.map(T::release)
    }
}

/// An operator with a plain value on its left side.
macro_rules! plain_left {
    ([$($generics:tt)*] $type:ty: $trait:ident $method:ident) => {
        impl<$($generics)*> $trait<Future<$type>> for $type {
            type Output = Future<$type>;

            #[inline]
            fn $method(self, other: Future<$type>) -> Future<$type> {
                Future::from(self).$method(other)
            }
        }
    };
}

macro_rules! operator {
    ($($bound:ident: $trait:ident $method:ident $operation:ident;)*) => {$(
        impl<T: $bound> $trait for Future<T> {
            type Output = Self;

            #[inline]
            fn $method(self, other: Self) -> Self {
                self.with(Arithmetic::$operation, other)
            }
        }

        impl<T: $bound> $trait<T> for Future<T> {
            type Output = Self;

            #[inline]
            fn $method(self, other: T) -> Self {
                self.with(Arithmetic::$operation, other)
            }
        }
    )*};
}

operator! {
    Number: Add add Add;
    Number: Sub sub Subtract;
    Factor: Mul mul Multiply;
    Factor: Div div Divide;
}

impl<T: Signed> Neg for Future<T> {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        Self::zero().with(Arithmetic::Subtract, self)
    }
}

impl Not for Future<bool> {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        self.equal_to(false)
    }
}

impl<F: Into<Self>> BitAnd<F> for Future<bool> {
    type Output = Self;

    /// Whether both are true. Both are looked at.
    #[inline]
    fn bitand(self, other: F) -> Self {
        self.min(other)
    }
}

impl<F: Into<Self>> BitOr<F> for Future<bool> {
    type Output = Self;

    /// Whether either is true. Both are looked at.
    #[inline]
    fn bitor(self, other: F) -> Self {
        self.max(other)
    }
}

macro_rules! integer {
    ($($type:ident)*) => {$(
        future_value! { [] $type: Scalar, |value| value as Scalar, |scalar| scalar as Self; }
        plain_left!([] $type: Add add);
        plain_left!([] $type: Sub sub);
        plain_left!([] $type: Mul mul);
        plain_left!([] $type: Div div);
        impl Number for $type {}
        impl Factor for $type {}
    )*};
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);
future_value! {
    [] bool: Scalar, |value| value.into(), |scalar| scalar != 0;
    [] Date: Scalar, |value| value.0 as Scalar, |scalar| Self(scalar as i32);
    [] Timestamp: Scalar, |value| value.0 as Scalar, |scalar| Self(scalar as i64);
    [const SCALE: u32] Decimal<SCALE>: Scalar, |value| value.units() as Scalar, |scalar| Self::from_units(scalar as i64);
    [] String: Bytes, |value| value.into_bytes().into(), |bytes| Self::from_utf8_lossy(&bytes).into_owned();
    [] Vec<u8>: Bytes, |value| value.into(), |bytes| bytes.to_vec();
    [const N: usize] FixedString<N>: Bytes, |value| value.as_str().as_bytes().into(), |bytes| {
        Self::truncated(str::from_utf8(&bytes).unwrap_or_default())
    };
    [const N: usize] FixedBytes<N>: Bytes, |value| value.0.as_slice().into(), |bytes| Self(array_of(&bytes));
    [const N: usize] [u8; N]: Bytes, |value| value.as_slice().into(), |bytes| array_of(&bytes);
}
plain_left!([const SCALE: u32] Decimal<SCALE>: Add add);
plain_left!([const SCALE: u32] Decimal<SCALE>: Sub sub);
plain_left!([const SCALE: u32] Decimal<SCALE>: Mul mul);
plain_left!([const SCALE: u32] Decimal<SCALE>: Div div);
impl<const SCALE: u32> Number for Decimal<SCALE> {}
impl<const SCALE: u32> Factor for Decimal<SCALE> {}
impl<const SCALE: u32> Signed for Decimal<SCALE> {}
impl Signed for i8 {}
impl Signed for i16 {}
impl Signed for i32 {}
impl Signed for i64 {}

/// The bytes of a value of fixed width, which has as many.
fn array_of<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

impl From<&str> for Future<String> {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&[u8]> for Future<Vec<u8>> {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl<F: Into<Self>> Add<F> for Future<String> {
    type Output = Self;

    /// The text with another one behind it.
    fn add(self, other: F) -> Self {
        self.join(other.into())
    }
}

impl<F: Into<Self>> Add<F> for Future<Vec<u8>> {
    type Output = Self;

    /// The bytes with others behind them.
    fn add(self, other: F) -> Self {
        self.join(other.into())
    }
}
