//! Which Parquet type has the values of a column, and both ways between them.
//!
//! What Parquet cannot hold exactly under the type that is next to it has one with more room: integers of 128 bits and decimals are decimals
//! with as many digits as their extremes have. What is read may have any type whose values are some of the column's.

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use parquet::schema::types::{ColumnDescriptor, Type};
use polychron::schema::{ColumnDefinition, ColumnType, Value, ValueRef};

use super::super::{variant_name, variant_number};

/// Digits of the extremes of 64 and of 128 bits, and the bytes that hold all numbers of so many digits.
const NARROW: (i32, usize) = (19, 9);
const WIDE: (i32, usize) = (39, 17);

/// The type that a column is written with.
pub(super) fn type_of(column: &ColumnDefinition) -> Result<Type> {
    use ColumnType as T;
    let integer = |bits, is_signed| Some(LogicalType::integer(bits, is_signed));
    let decimal = |(digits, bytes), scale: u32| {
        (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::decimal(scale as i32, digits)), bytes as i32)
    };
    let (physical, logical, bytes) = match column.column_type {
        T::Bool => (Physical::BOOLEAN, None, 0),
        T::I8 => (Physical::INT32, integer(8, true), 0),
        T::I16 => (Physical::INT32, integer(16, true), 0),
        T::I32 => (Physical::INT32, integer(32, true), 0),
        T::I64 => (Physical::INT64, integer(64, true), 0),
        T::U8 => (Physical::INT32, integer(8, false), 0),
        T::U16 => (Physical::INT32, integer(16, false), 0),
        T::U32 => (Physical::INT32, integer(32, false), 0),
        T::U64 => (Physical::INT64, integer(64, false), 0),
        T::I128 | T::U128 => decimal(WIDE, 0),
        T::F32 => (Physical::FLOAT, None, 0),
        T::F64 => (Physical::DOUBLE, None, 0),
        T::Decimal { scale } => decimal(NARROW, scale),
        T::Decimal128 { scale } => decimal(WIDE, scale),
        T::Date => (Physical::INT32, Some(LogicalType::Date), 0),
        T::Timestamp => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS)), 0),
        T::Char | T::Enum(_) | T::FixedString { .. } | T::String { .. } => {
            (Physical::BYTE_ARRAY, Some(LogicalType::String), 0)
        }
        T::FixedBytes { bytes } => (Physical::FIXED_LEN_BYTE_ARRAY, None, bytes as i32),
        T::Bytes { .. } => (Physical::BYTE_ARRAY, None, 0),
    };
    let (scale, precision) = match &logical {
        Some(LogicalType::Decimal(decimal)) => (decimal.scale, decimal.precision),
        _ => (-1, -1),
    };
    let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(&column.name, physical).with_repetition(repetition);
    builder.with_logical_type(logical).with_length(bytes).with_scale(scale).with_precision(precision).build()
}

/// Values as Parquet has them, without NULLs.
pub(super) enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

impl Values {
    /// None of a type, but for one that only outdated programs write.
    pub(super) fn new(physical: Physical) -> Option<Self> {
        Some(match physical {
            Physical::BOOLEAN => Self::Bool(Vec::new()),
            Physical::INT32 => Self::Int32(Vec::new()),
            Physical::INT64 => Self::Int64(Vec::new()),
            Physical::FLOAT => Self::Float(Vec::new()),
            Physical::DOUBLE => Self::Double(Vec::new()),
            Physical::BYTE_ARRAY => Self::Bytes(Vec::new()),
            Physical::FIXED_LEN_BYTE_ARRAY => Self::Fixed(Vec::new()),
            Physical::INT96 => return None,
        })
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Bool(all) => all.clear(),
            Self::Int32(all) => all.clear(),
            Self::Int64(all) => all.clear(),
            Self::Float(all) => all.clear(),
            Self::Double(all) => all.clear(),
            Self::Bytes(all) => all.clear(),
            Self::Fixed(all) => all.clear(),
        }
    }

    /// Appends a value of a column, which is not NULL; returns how many bytes that takes.
    pub(super) fn push(&mut self, kind: ColumnType, value: ValueRef<'_>) -> usize {
        match self {
            Self::Bool(all) => all.push(matches!(value, ValueRef::Bool(true))),
            Self::Int32(all) => all.push(bits_of(value) as i32),
            Self::Int64(all) => all.push(bits_of(value) as i64),
            Self::Float(all) => all.push(float_of(value) as f32),
            Self::Double(all) => all.push(float_of(value)),
            Self::Bytes(all) => {
                let bytes = bytes_of(kind, value);
                let len = bytes.len();
                all.push(ByteArray::from(bytes));
                return size_of::<ByteArray>() + len;
            }
            Self::Fixed(all) => {
                let bytes = fixed_of(kind, value);
                let len = bytes.len();
                all.push(FixedLenByteArray::from(bytes));
                return size_of::<FixedLenByteArray>() + len;
            }
        }
        size_of::<u64>()
    }

    /// A value for a column; none where it is none of the column's.
    pub(super) fn value(&self, at: usize, stored: Stored, kind: ColumnType) -> Option<Value> {
        Some(match self {
            Self::Bool(all) => Value::Bool(*all.get(at)?),
            Self::Int32(all) => {
                let number = *all.get(at)?;
                let is_signed = !matches!(stored, Stored::Integer { is_signed: false });
                let number = if is_signed { number.into() } else { number.cast_unsigned().into() };
                return of_number(number, stored, kind);
            }
            Self::Int64(all) => {
                let number = *all.get(at)?;
                let is_signed = !matches!(stored, Stored::Integer { is_signed: false });
                let number = if is_signed { number.into() } else { number.cast_unsigned().into() };
                return of_number(number, stored, kind);
            }
            Self::Float(all) => Value::Float((*all.get(at)?).into()),
            Self::Double(all) => Value::Float(*all.get(at)?),
            Self::Bytes(all) => return of_bytes(all.get(at)?.data(), stored, kind),
            Self::Fixed(all) => return of_bytes(all.get(at)?.data(), stored, kind),
        })
    }
}

fn bits_of(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Integer(number) | ValueRef::Timestamp(number) => number.cast_unsigned(),
        ValueRef::Unsigned(number) => number,
        ValueRef::Date(days) => i64::from(days).cast_unsigned(),
        _ => 0,
    }
}

fn float_of(value: ValueRef<'_>) -> f64 {
    if let ValueRef::Float(number) = value { number } else { 0.0 }
}

fn bytes_of(kind: ColumnType, value: ValueRef<'_>) -> Vec<u8> {
    match (kind, value) {
        (_, ValueRef::String(text)) => text.as_bytes().to_vec(),
        (_, ValueRef::Bytes(bytes)) => bytes.to_vec(),
        (_, ValueRef::Char(character)) => character.to_string().into_bytes(),
        (ColumnType::Enum(kind), value) => {
            let text = value.to_string();
            let name = text.parse().ok().and_then(|number| variant_name(kind, number));
            name.map_or(text, str::to_owned).into_bytes()
        }
        (_, value) => value.to_string().into_bytes(),
    }
}

fn fixed_of(kind: ColumnType, value: ValueRef<'_>) -> Vec<u8> {
    let (bits, is_negative) = match value {
        ValueRef::Bytes(bytes) => return bytes.to_vec(),
        ValueRef::Decimal { units: number, .. } | ValueRef::Integer128(number) => (number.cast_unsigned(), number < 0),
        ValueRef::Unsigned128(number) => (number, false),
        other => (bits_of(other).into(), false),
    };
    let (_, bytes) = if matches!(kind, ColumnType::Decimal { .. }) { NARROW } else { WIDE };
    let mut all = [if is_negative { u8::MAX } else { 0 }; WIDE.1];
    all[1..].copy_from_slice(&bits.to_be_bytes());
    all[WIDE.1 - bytes..].to_vec()
}

/// What a file's column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Bool,
    Integer { is_signed: bool },
    Decimal { scale: u32 },
    Date,
    Timestamp(Unit),
    Float,
    Text,
    Bytes,
}

/// Of how many parts a second has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Stored {
    /// None for what no column has.
    pub(super) fn of(column: &ColumnDescriptor) -> Option<Self> {
        let physical = column.physical_type();
        let decimal = || u32::try_from(column.type_scale()).ok().map(|scale| Self::Decimal { scale });
        let Some(logical) = column.logical_type_ref() else {
            return match column.converted_type() {
                ConvertedType::NONE => Self::of_physical(physical),
                ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON => Some(Self::Text),
                ConvertedType::BSON => Some(Self::Bytes),
                ConvertedType::DECIMAL => decimal(),
                ConvertedType::DATE => Some(Self::Date),
                ConvertedType::TIMESTAMP_MILLIS => Some(Self::Timestamp(Unit::Millis)),
                ConvertedType::TIMESTAMP_MICROS => Some(Self::Timestamp(Unit::Micros)),
                ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64 => {
                    Some(Self::Integer { is_signed: true })
                }
                ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 => {
                    Some(Self::Integer { is_signed: false })
                }
                _ => None,
            };
        };
        match logical {
            LogicalType::String | LogicalType::Enum | LogicalType::Json => Some(Self::Text),
            LogicalType::Bson | LogicalType::Uuid => Some(Self::Bytes),
            LogicalType::Decimal(_) => decimal(),
            LogicalType::Date => Some(Self::Date),
            LogicalType::Timestamp(timestamp) => Some(Self::Timestamp(match timestamp.unit {
                TimeUnit::MILLIS => Unit::Millis,
                TimeUnit::MICROS => Unit::Micros,
                TimeUnit::NANOS => Unit::Nanos,
            })),
            LogicalType::Integer(integer) => Some(Self::Integer { is_signed: integer.is_signed }),
            // A column of NULLs alone.
            LogicalType::Unknown => Self::of_physical(physical),
            _ => None,
        }
    }

    fn of_physical(physical: Physical) -> Option<Self> {
        match physical {
            Physical::BOOLEAN => Some(Self::Bool),
            Physical::INT32 | Physical::INT64 => Some(Self::Integer { is_signed: true }),
            Physical::FLOAT | Physical::DOUBLE => Some(Self::Float),
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => Some(Self::Bytes),
            Physical::INT96 => None,
        }
    }

    /// Whether values of a column can be of these.
    pub(super) fn is_of(self, kind: ColumnType) -> bool {
        use ColumnType as T;
        let is_whole = kind.is_integer() || matches!(kind, T::I128 | T::U128);
        match self {
            Self::Bool => kind == T::Bool,
            Self::Integer { .. } => is_whole || matches!(kind, T::Enum(_) | T::Decimal { .. } | T::Decimal128 { .. }),
            Self::Decimal { scale: 0 } if is_whole => true,
            Self::Decimal { .. } => matches!(kind, T::Decimal { .. } | T::Decimal128 { .. }),
            Self::Date => kind == T::Date,
            Self::Timestamp(_) => kind == T::Timestamp,
            Self::Float => matches!(kind, T::F32 | T::F64),
            Self::Text => matches!(kind, T::Char | T::Enum(_) | T::String { .. } | T::FixedString { .. }),
            // Some programs do not say what is text.
            Self::Bytes => {
                matches!(kind, T::Bytes { .. } | T::FixedBytes { .. } | T::String { .. } | T::FixedString { .. })
            }
        }
    }

    /// What it is, for messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bool => "truth values",
            Self::Integer { .. } => "integers",
            Self::Decimal { .. } => "decimals",
            Self::Date => "dates",
            Self::Timestamp(_) => "timestamps",
            Self::Float => "floating-point numbers",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }
}

fn of_number(number: i128, stored: Stored, kind: ColumnType) -> Option<Value> {
    Some(match stored {
        Stored::Date => Value::Date(number.try_into().ok()?),
        Stored::Timestamp(Unit::Millis) => Value::Timestamp((number * 1000).try_into().ok()?),
        Stored::Timestamp(Unit::Micros) => Value::Timestamp(number.try_into().ok()?),
        // A time between two microseconds is none.
        Stored::Timestamp(Unit::Nanos) if number % 1000 != 0 => return None,
        Stored::Timestamp(Unit::Nanos) => Value::Timestamp((number / 1000).try_into().ok()?),
        Stored::Decimal { scale } => return of_units(number, scale, kind),
        _ => return of_units(number, 0, kind),
    })
}

fn of_units(units: i128, scale: u32, kind: ColumnType) -> Option<Value> {
    Some(match kind {
        ColumnType::Decimal { .. } | ColumnType::Decimal128 { .. } => Value::Decimal { units, scale },
        _ => Value::Integer128(units),
    })
}

fn of_bytes(bytes: &[u8], stored: Stored, kind: ColumnType) -> Option<Value> {
    if let Stored::Decimal { scale } = stored {
        return match whole(bytes)? {
            Value::Integer128(units) => of_units(units, scale, kind),
            // More than a decimal of ours has.
            _ if matches!(kind, ColumnType::Decimal128 { .. } | ColumnType::Decimal { .. }) => None,
            large => Some(large),
        };
    }
    let text = || std::str::from_utf8(bytes).ok();
    Some(match kind {
        ColumnType::Bytes { .. } | ColumnType::FixedBytes { .. } => Value::Bytes(bytes.to_vec()),
        ColumnType::Enum(kind) => return variant_number(kind, text()?),
        ColumnType::Char => {
            let mut characters = text()?.chars();
            let first = characters.next()?;
            return characters.next().is_none().then_some(Value::Char(first));
        }
        _ => Value::String(text()?.to_owned()),
    })
}

/// A number in two's complement, the first byte first.
fn whole(bytes: &[u8]) -> Option<Value> {
    let fill = if bytes.first()? & 0x80 == 0 { 0 } else { u8::MAX };
    let (rest, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut all = [fill; 16];
    all[16 - low.len()..].copy_from_slice(low);
    let bits = u128::from_be_bytes(all);
    if rest.iter().any(|byte| *byte != fill) {
        return None;
    }
    match (fill, bits.cast_signed()) {
        (0, number) if number < 0 => Some(Value::Unsigned128(bits)),
        (0, number) => Some(Value::Integer128(number)),
        (_, number) => (number < 0).then_some(Value::Integer128(number)),
    }
}
