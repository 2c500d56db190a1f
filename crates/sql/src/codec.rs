//! Values of SQL as those of columns, and back.

use bumpalo::Bump;
use polychron_schema::{ColumnType as Stored, ValueRef};

use crate::arrays::Array;
use crate::datum::{Datum, Interval};
use crate::decimal::Decimal;
use crate::types::Type;

/// The value that a column holds, as one of the type that SQL gives the column. Text and bytes stay where they are.
pub(crate) fn from_stored<'a>(value: ValueRef<'a>, of: Type) -> Datum<'a> {
    match (value, of) {
        (ValueRef::Null, _) => Datum::Null,
        (ValueRef::Bool(value), _) => Datum::Bool(value),
        (ValueRef::Integer(value), Type::Time) => Datum::Time(value),
        (ValueRef::Integer(value), _) => Datum::Int(value),
        // Unsigned integers of 64 bits are numerics.
        (ValueRef::Unsigned(value), Type::Numeric) => Datum::Numeric(Decimal::new(value.into(), 0)),
        (ValueRef::Unsigned(value), _) => Datum::Int(value as i64),
        (ValueRef::Integer128(value), _) => Datum::Numeric(Decimal::new(value, 0)),
        (ValueRef::Unsigned128(value), _) => Datum::Numeric(Decimal::new(value as i128, 0)),
        (ValueRef::Float(value), _) => Datum::Float(value),
        (ValueRef::Decimal { units, scale }, _) => Datum::Numeric(Decimal::new(units, scale)),
        (ValueRef::Date(days), _) => Datum::Date(days),
        (ValueRef::Timestamp(micros), _) => Datum::Timestamp(micros),
        (ValueRef::String(text), Type::Jsonb) => Datum::Json(text),
        (ValueRef::String(text), _) => Datum::Text(text),
        (ValueRef::Bytes(bytes), Type::Array(_)) => Datum::Array(Array::of_bytes(bytes)),
        (ValueRef::Bytes(bytes), Type::Uuid) => bytes.try_into().map_or(Datum::Null, Datum::Uuid),
        (ValueRef::Bytes(bytes), Type::Numeric) => numeric_of(bytes).map_or(Datum::Null, Datum::Numeric),
        (ValueRef::Bytes(bytes), Type::Interval) => interval_of(bytes).map_or(Datum::Null, Datum::Interval),
        (ValueRef::Bytes(bytes), _) => Datum::Bytes(bytes),
        // No column that SQL knows holds one.
        (ValueRef::Char(_), _) => Datum::Null,
    }
}

/// The value for a column of the type, if the column can hold it. The arena has what is no text and no number.
pub(crate) fn to_stored<'a>(datum: Datum<'a>, of: Stored, arena: &'a Bump) -> Option<ValueRef<'a>> {
    Some(match datum {
        Datum::Null => ValueRef::Null,
        Datum::Bool(value) => ValueRef::Bool(value),
        Datum::Int(value) => ValueRef::Integer(value),
        // What differs in the sign of its zero or in its NaN is the same to SQL.
        Datum::Float(0.0) => ValueRef::Float(0.0),
        Datum::Float(value) if value.is_nan() => ValueRef::Float(f64::NAN),
        Datum::Float(value) => ValueRef::Float(value),
        Datum::Numeric(value) => match of {
            // One without precision: its units and its scale.
            Stored::FixedBytes { .. } => {
                let room = arena.alloc([0; 20]);
                room[..16].copy_from_slice(&value.units().to_le_bytes());
                room[16..].copy_from_slice(&value.scale().to_le_bytes());
                ValueRef::Bytes(room)
            }
            Stored::Decimal { scale } | Stored::Decimal128 { scale } => {
                let rescaled = value.rescale(scale).ok().filter(|rescaled| *rescaled == value)?;
                ValueRef::Decimal { units: rescaled.units(), scale }
            }
            _ => ValueRef::Integer128(value.rescale(0).ok().filter(|whole| *whole == value)?.units()),
        },
        // Columns have decimals alone.
        Datum::Wide(_) => return None,
        Datum::Text(text) | Datum::Json(text) => ValueRef::String(text),
        Datum::Array(array) => ValueRef::Bytes(array.bytes()),
        Datum::Bytes(bytes) => ValueRef::Bytes(bytes),
        Datum::Date(days) => ValueRef::Date(days),
        Datum::Time(micros) => ValueRef::Integer(micros),
        Datum::Timestamp(micros) => ValueRef::Timestamp(micros),
        Datum::Uuid(uuid) => ValueRef::Bytes(arena.alloc(uuid)),
        Datum::Interval(interval) => ValueRef::Bytes(arena.alloc(bytes_of(interval))),
    })
}

fn numeric_of(bytes: &[u8]) -> Option<Decimal> {
    let (units, rest) = bytes.split_first_chunk()?;
    Some(Decimal::new(i128::from_le_bytes(*units), u32::from_le_bytes(*rest.first_chunk()?)))
}

/// An interval as bytes: months, days and microseconds, little-endian.
fn bytes_of(interval: Interval) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&interval.months.to_le_bytes());
    bytes[4..8].copy_from_slice(&interval.days.to_le_bytes());
    bytes[8..].copy_from_slice(&interval.micros.to_le_bytes());
    bytes
}

fn interval_of(bytes: &[u8]) -> Option<Interval> {
    let (months, rest) = bytes.split_first_chunk()?;
    let (days, rest) = rest.split_first_chunk()?;
    let micros = rest.first_chunk()?;
    Some(Interval {
        months: i32::from_le_bytes(*months),
        days: i32::from_le_bytes(*days),
        micros: i64::from_le_bytes(*micros),
    })
}
