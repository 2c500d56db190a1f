//! The types that statements name.

use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};

use crate::error::{SqlError, SqlState};
use crate::types::{Bound, ColumnType, Type};

/// The type of this name.
pub(crate) fn column_type(of: &DataType) -> Result<ColumnType, SqlError> {
    let plain = |of: Type| Ok(ColumnType::from(of));
    match of {
        DataType::Bool | DataType::Boolean => plain(Type::Bool),
        DataType::Int2(_) | DataType::SmallInt(_) => plain(Type::Int2),
        DataType::Int4(_) | DataType::Int(_) | DataType::Integer(_) => plain(Type::Int4),
        DataType::Int8(_) | DataType::BigInt(_) => plain(Type::Int8),
        DataType::Float4 | DataType::Real => plain(Type::Float4),
        DataType::Float8 | DataType::DoublePrecision | DataType::Double(_) => plain(Type::Float8),
        DataType::Float(info) => match info {
            ExactNumberInfo::None => plain(Type::Float8),
            ExactNumberInfo::Precision(1..=24) => plain(Type::Float4),
            ExactNumberInfo::Precision(25..=53) => plain(Type::Float8),
            _ => Err(invalid("precision for type float must be between 1 and 53 bits")),
        },
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(*info),
        DataType::Text => plain(Type::Text),
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            text(Type::Varchar, length.as_ref(), None)
        }
        DataType::Char(length) | DataType::Character(length) => text(Type::Bpchar, length.as_ref(), Some(1)),
        DataType::Bytea => plain(Type::Bytea),
        DataType::Date => plain(Type::Date),
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Ok(seconds(Type::Time, *digits)),
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Ok(seconds(Type::Timestamp, *digits))
        }
        DataType::Timestamp(digits, _) => Ok(seconds(Type::Timestamptz, *digits)),
        DataType::Interval { fields: None, precision } => Ok(seconds(Type::Interval, *precision)),
        DataType::Uuid => plain(Type::Uuid),
        DataType::Regclass => plain(Type::Regclass),
        DataType::JSON => plain(Type::Json),
        DataType::JSONB => plain(Type::Jsonb),
        DataType::Array(ArrayElemTypeDef::SquareBracket(of, _) | ArrayElemTypeDef::Qualified(of, _)) => {
            let of = column_type(of)?;
            let base = if of.base.element().is_some() { Some(of.base) } else { of.base.array() };
            let base = base.ok_or_else(|| SqlError::unsupported(format!("an array of {of}")))?;
            Ok(ColumnType { base, bound: of.bound })
        }
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let is_quoted = matches!(&name.0[..], [one] if one.as_ident().is_some_and(|it| it.quote_style.is_some()));
            let name = super::calls::function_name(name)?;
            if is_quoted && name == "char" {
                return plain(Type::Text);
            }
            let known = Type::by_name(&name).map(ColumnType::from);
            known.ok_or_else(|| SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")))
        }
        other => Err(SqlError::unsupported(format!("the type {other}"))),
    }
}

/// A type with so many digits of a second, six at most: it has no more.
pub(super) fn seconds(base: Type, digits: Option<u64>) -> ColumnType {
    ColumnType { base, bound: digits.map_or(Bound::None, |digits| Bound::Seconds(digits.min(6) as u32)) }
}

fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn numeric(info: ExactNumberInfo) -> Result<ColumnType, SqlError> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(Type::Numeric.into()),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=1000).contains(&precision) {
        return Err(invalid(&format!("NUMERIC precision {precision} must be between 1 and 1000")));
    }
    if precision > 38 || scale < 0 || scale as u64 > precision {
        return Err(SqlError::unsupported(format!("numeric({precision},{scale})")));
    }
    Ok(ColumnType { base: Type::Numeric, bound: Bound::Digits(precision as u32, scale as u32) })
}

fn text(base: Type, length: Option<&CharacterLength>, default: Option<u32>) -> Result<ColumnType, SqlError> {
    let length = match length {
        None => default,
        Some(CharacterLength::IntegerLength { length: 0, .. }) => {
            let name = if base == Type::Bpchar { "char" } else { "varchar" };
            return Err(invalid(&format!("length for type {name} must be at least 1")));
        }
        Some(CharacterLength::IntegerLength { length, .. }) => {
            let fitting = u32::try_from(*length).ok().filter(|length| *length <= 10_485_760);
            Some(fitting.ok_or_else(|| invalid("length for type varchar cannot exceed 10485760"))?)
        }
        Some(CharacterLength::Max) => return Err(SqlError::unsupported("a length of max")),
    };
    Ok(ColumnType { base, bound: length.map_or(Bound::None, Bound::Length) })
}
