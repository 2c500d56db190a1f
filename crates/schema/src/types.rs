//! The types a column can have.

use std::fmt;

use crate::enums::EnumType;

/// Largest scale of a decimal: ten to its power still fits in 64 bits.
pub const MAX_DECIMAL_SCALE: u32 = 18;

/// Largest scale of a 128-bit decimal: ten to its power still fits in 128 bits.
pub const MAX_DECIMAL128_SCALE: u32 = 38;

/// Maximum of a string or byte string column that declares none.
pub const DEFAULT_VARIABLE_MAX: u32 = crate::MAX_ROW_BYTES as u32;

/// Type of a column, without whether it is nullable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the integers say what they are")]
pub enum ColumnType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    I128,
    U128,
    F32,
    F64,
    /// A Unicode character, stored as its number in 32 bits.
    Char,
    /// One of an enum's numbers, stored as the smallest integer that holds them all.
    Enum(&'static EnumType),
    /// A 64-bit integer read as that many units of ten to the power of `-scale`.
    Decimal {
        scale: u32,
    },
    /// A 128-bit integer read as that many units of ten to the power of `-scale`.
    Decimal128 {
        scale: u32,
    },
    /// Days since 1970-01-01 in 32 bits.
    Date,
    /// Microseconds since 1970-01-01 00:00 UTC in 64 bits.
    Timestamp,
    /// Text of at most `bytes` bytes, stored in exactly that many.
    FixedString {
        bytes: u32,
    },
    /// Exactly `bytes` bytes.
    FixedBytes {
        bytes: u32,
    },
    /// Text of at most `max` bytes, stored behind the fixed part.
    String {
        max: u32,
    },
    /// At most `max` bytes, stored behind the fixed part.
    Bytes {
        max: u32,
    },
}

impl ColumnType {
    /// Bytes in the fixed part of a row; a variable column has its offset and length there.
    pub const fn width(self) -> u32 {
        match self {
            Self::Enum(kind) => kind.width(),
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 | Self::Char | Self::Date => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Decimal { .. } | Self::Timestamp => 8,
            Self::I128 | Self::U128 | Self::Decimal128 { .. } => 16,
            Self::FixedString { bytes } | Self::FixedBytes { bytes } => bytes,
            Self::String { .. } | Self::Bytes { .. } => 8,
        }
    }

    /// Alignment in the row; rows lie at multiples of 8.
    pub const fn alignment(self) -> u32 {
        match self {
            Self::FixedString { .. } | Self::FixedBytes { .. } => 1,
            Self::I128 | Self::U128 | Self::Decimal128 { .. } => 8,
            other => other.width(),
        }
    }

    /// The type that has the same bytes, in rows and in keys, and the same dynamic values: the integer of an enum, and of
    /// every other type itself.
    pub const fn stored(self) -> Self {
        match self {
            Self::Enum(kind) => kind.integer(),
            other => other,
        }
    }

    /// Whether a number has a sign: of integers, decimals, dates and timestamps.
    pub const fn is_signed(self) -> bool {
        use ColumnType::{Date, Decimal, Decimal128, I8, I16, I32, I64, I128, Timestamp};
        matches!(self.stored(), I8 | I16 | I32 | I64 | I128 | Decimal { .. } | Decimal128 { .. } | Date | Timestamp)
    }

    /// Whether values are integers of at most 64 bits without another meaning.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// Whether the value lies behind the fixed part.
    pub const fn is_variable(self) -> bool {
        matches!(self, Self::String { .. } | Self::Bytes { .. })
    }

    /// Bytes of the value in a key, or `None` when that depends on the value.
    pub const fn key_width(self) -> Option<usize> {
        if self.is_variable() { None } else { Some(self.width() as usize) }
    }

    /// The longest value in bytes.
    pub const fn max_bytes(self) -> u32 {
        match self {
            Self::String { max } | Self::Bytes { max } => max,
            other => other.width(),
        }
    }

    /// The same type with another maximum, which only strings and byte strings of variable length have.
    ///
    /// # Panics
    /// For other types; in `derive(Row)` that is an error at compile time.
    pub const fn with_max(self, max: u32) -> Self {
        match self {
            Self::String { .. } => Self::String { max },
            Self::Bytes { .. } => Self::Bytes { max },
            _ => panic!("only String and Vec<u8> columns have a maximum"),
        }
    }

    /// As [`ColumnType::with_max`]; a type without a maximum stays as it is, which `derive(Row)` tells of.
    #[doc(hidden)]
    pub const fn bounded_by(self, max: u32) -> Self {
        if self.is_variable() { self.with_max(max) } else { self }
    }

    /// Whether values of both types are the same but for the greatest length.
    pub fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::String { .. }, Self::String { .. }) | (Self::Bytes { .. }, Self::Bytes { .. }) => true,
            _ => self == other,
        }
    }

    /// Whether widths, maximum and scale are within what the layout can hold.
    pub const fn is_valid(self) -> bool {
        let max = crate::MAX_ROW_BYTES as u32;
        match self {
            Self::Decimal { scale } => scale <= MAX_DECIMAL_SCALE,
            Self::Decimal128 { scale } => scale <= MAX_DECIMAL128_SCALE,
            Self::Enum(kind) => !kind.variants().is_empty(),
            Self::FixedString { bytes } | Self::FixedBytes { bytes } => bytes > 0 && bytes <= max,
            Self::String { max: bytes } | Self::Bytes { max: bytes } => bytes <= max,
            _ => true,
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::I8 => f.write_str("i8"),
            Self::I16 => f.write_str("i16"),
            Self::I32 => f.write_str("i32"),
            Self::I64 => f.write_str("i64"),
            Self::U8 => f.write_str("u8"),
            Self::U16 => f.write_str("u16"),
            Self::U32 => f.write_str("u32"),
            Self::U64 => f.write_str("u64"),
            Self::I128 => f.write_str("i128"),
            Self::U128 => f.write_str("u128"),
            Self::F32 => f.write_str("f32"),
            Self::F64 => f.write_str("f64"),
            Self::Char => f.write_str("char"),
            Self::Enum(kind) => kind.fmt(f),
            Self::Decimal { scale } => write!(f, "decimal({scale})"),
            Self::Decimal128 { scale } => write!(f, "decimal128({scale})"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::FixedString { bytes } => write!(f, "fixed string({bytes})"),
            Self::FixedBytes { bytes } => write!(f, "fixed bytes({bytes})"),
            Self::String { max } => write!(f, "string({max})"),
            Self::Bytes { max } => write!(f, "bytes({max})"),
        }
    }
}
