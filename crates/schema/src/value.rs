//! Values whose type is known at run time only.

use std::cmp::Ordering;
use std::fmt;

use polychron_base::floats::widen;

use crate::decimal::write_units;

/// A value, or NULL.
///
/// Equality and order are total, and agree with the order of keys for values of one column: NULL comes first; integers
/// of all four types, and decimals of different scales, compare by what they stand for; floating-point numbers
/// follow [`f64::total_cmp`] (so -0.0 is less than 0.0, and NaN lies at the ends). Values of different kinds sort by
/// kind, in the order of the variants. The value of an enum is its number.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer of any width.
    Integer(i64),
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of 128 bits.
    Integer128(i128),
    /// An unsigned integer of 128 bits.
    Unsigned128(u128),
    /// A floating-point number of either width.
    Float(f64),
    /// `units` of ten to the power of `-scale`.
    Decimal {
        /// The number of units.
        units: i128,
        /// Digits behind the point.
        scale: u32,
    },
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 00:00 UTC.
    Timestamp(i64),
    /// A character.
    Char(char),
    /// Text of fixed or variable width.
    String(String),
    /// Bytes of fixed or variable width.
    Bytes(Vec<u8>),
}

/// A [`Value`] whose text or bytes lie elsewhere, such as in a row.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "as in `Value`")]
pub enum ValueRef<'a> {
    #[default]
    Null,
    Bool(bool),
    Integer(i64),
    Unsigned(u64),
    Integer128(i128),
    Unsigned128(u128),
    Float(f64),
    Decimal {
        units: i128,
        scale: u32,
    },
    Date(i32),
    Timestamp(i64),
    Char(char),
    String(&'a str),
    Bytes(&'a [u8]),
}

impl Value {
    /// The value by reference.
    pub fn as_value_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Unsigned(value) => ValueRef::Unsigned(*value),
            Self::Integer128(value) => ValueRef::Integer128(*value),
            Self::Unsigned128(value) => ValueRef::Unsigned128(*value),
            Self::Float(value) => ValueRef::Float(*value),
            Self::Decimal { units, scale } => ValueRef::Decimal { units: *units, scale: *scale },
            Self::Date(value) => ValueRef::Date(*value),
            Self::Timestamp(value) => ValueRef::Timestamp(*value),
            Self::Char(value) => ValueRef::Char(*value),
            Self::String(value) => ValueRef::String(value),
            Self::Bytes(value) => ValueRef::Bytes(value),
        }
    }

    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl ValueRef<'_> {
    /// The value with memory of its own.
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Integer(value) => Value::Integer(value),
            Self::Unsigned(value) => Value::Unsigned(value),
            Self::Integer128(value) => Value::Integer128(value),
            Self::Unsigned128(value) => Value::Unsigned128(value),
            Self::Float(value) => Value::Float(value),
            Self::Decimal { units, scale } => Value::Decimal { units, scale },
            Self::Date(value) => Value::Date(value),
            Self::Timestamp(value) => Value::Timestamp(value),
            Self::Char(value) => Value::Char(value),
            Self::String(value) => Value::String(value.to_owned()),
            Self::Bytes(value) => Value::Bytes(value.to_owned()),
        }
    }

    /// Whether this is NULL.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// The kind of value, for messages.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Bool(_) => "a truth value",
            Self::Integer(_) | Self::Unsigned(_) | Self::Integer128(_) | Self::Unsigned128(_) => "an integer",
            Self::Float(_) => "a floating-point number",
            Self::Decimal { .. } => "a decimal",
            Self::Date(_) => "a date",
            Self::Timestamp(_) => "a timestamp",
            Self::Char(_) => "a character",
            Self::String(_) => "a string",
            Self::Bytes(_) => "bytes",
        }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Integer(_) | Self::Unsigned(_) | Self::Integer128(_) | Self::Unsigned128(_) => 2,
            Self::Float(_) => 3,
            Self::Decimal { .. } => 4,
            Self::Date(_) => 5,
            Self::Timestamp(_) => 6,
            Self::Char(_) => 7,
            Self::String(_) => 8,
            Self::Bytes(_) => 9,
        }
    }

    /// The integer, whatever its type.
    pub(crate) fn as_whole(self) -> Option<Whole> {
        match self {
            Self::Integer(value) => Some(Whole::signed(value.into())),
            Self::Unsigned(value) => Some(Whole::unsigned(value.into())),
            Self::Integer128(value) => Some(Whole::signed(value)),
            Self::Unsigned128(value) => Some(Whole::unsigned(value)),
            _ => None,
        }
    }
}

/// An integer of up to 128 bits with or without a sign; in the order of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Whole {
    is_natural: bool,
    /// The number in two's complement, which has the numbers' order on either side of zero.
    bits: u128,
}

impl Whole {
    fn signed(value: i128) -> Self {
        Self { is_natural: value >= 0, bits: value.cast_unsigned() }
    }

    fn unsigned(bits: u128) -> Self {
        Self { is_natural: true, bits }
    }

    /// The number, if it is one of `bytes` bytes.
    pub(crate) fn in_bytes(self, bytes: u32, is_signed: bool) -> Option<u128> {
        let bits = 8 * bytes - u32::from(is_signed);
        let rest = if self.is_natural { self.bits } else { !self.bits };
        let fits = (is_signed || self.is_natural) && rest.checked_shr(bits).unwrap_or(0) == 0;
        fits.then_some(self.bits)
    }
}

/// Compares decimals by whole part first, so that no scale overflows.
fn compare_decimals(units: i128, scale: u32, other: i128, other_scale: u32) -> Ordering {
    if scale == other_scale {
        return units.cmp(&other);
    }
    let parts = |units: i128, scale: u32| {
        // Ten to the 38th is the highest power in 128 bits.
        let one = 10_i128.pow(scale.min(38));
        (units.div_euclid(one), units.rem_euclid(one))
    };
    let ((whole, part), (other_whole, other_part)) = (parts(units, scale), parts(other, other_scale));
    let common = scale.max(other_scale).min(38);
    let widen = |part: i128, scale: u32| part * 10_i128.pow(common - scale.min(38));
    whole.cmp(&other_whole).then_with(|| widen(part, scale).cmp(&widen(other_part, other_scale)))
}

impl Ord for ValueRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(&b),
            (Self::Decimal { units: a, scale: m }, Self::Decimal { units: b, scale: n }) => {
                compare_decimals(a, m, b, n)
            }
            (Self::Date(a), Self::Date(b)) => a.cmp(&b),
            (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(&b),
            (Self::Char(a), Self::Char(b)) => a.cmp(&b),
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()).then_with(|| a.as_whole().cmp(&b.as_whole())),
        }
    }
}

impl PartialOrd for ValueRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ValueRef<'_> {}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_value_ref().cmp(&other.as_value_ref())
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) | Self::Timestamp(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Integer128(value) => value.fmt(f),
            Self::Unsigned128(value) => value.fmt(f),
            Self::Char(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Decimal { units, scale } => write_units(f, units, scale),
            Self::Date(value) => value.fmt(f),
            Self::String(value) => value.fmt(f),
            Self::Bytes(value) => write!(f, "{}", value.escape_ascii()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_value_ref().fmt(f)
    }
}

macro_rules! value_from {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

value_from!(
    bool => Bool, i8 => Integer, i16 => Integer, i32 => Integer, i64 => Integer, u8 => Unsigned, u16 => Unsigned,
    u32 => Unsigned, u64 => Unsigned, i128 => Integer128, u128 => Unsigned128, f64 => Float, char => Char,
    &str => String, String => String, &[u8] => Bytes, Vec<u8> => Bytes
);

impl<const SCALE: u32> From<crate::Decimal<SCALE>> for Value {
    fn from(value: crate::Decimal<SCALE>) -> Self {
        Self::Decimal { units: value.units().into(), scale: SCALE }
    }
}

impl<const SCALE: u32> From<crate::Decimal128<SCALE>> for Value {
    fn from(value: crate::Decimal128<SCALE>) -> Self {
        Self::Decimal { units: value.units(), scale: SCALE }
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Self {
        Self::Float(widen(value))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(value: &[u8; N]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(value: [u8; N]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl From<crate::Date> for Value {
    fn from(value: crate::Date) -> Self {
        Self::Date(value.0)
    }
}

impl From<crate::Timestamp> for Value {
    fn from(value: crate::Timestamp) -> Self {
        Self::Timestamp(value.0)
    }
}

impl<const N: usize> From<crate::FixedString<N>> for Value {
    fn from(value: crate::FixedString<N>) -> Self {
        Self::String(value.as_str().to_owned())
    }
}

impl<const N: usize> From<crate::FixedBytes<N>> for Value {
    fn from(value: crate::FixedBytes<N>) -> Self {
        Self::Bytes(value.0.to_vec())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, T::into)
    }
}
