//! The types that statements name.

use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo};

use super::{Recorded, Written};
use crate::error::{SqlError, SqlState};
use crate::types::{Bound, ColumnType, Type};

/// The type of this name, which is no enum.
pub(crate) fn column_type(of: &DataType) -> Result<ColumnType, SqlError> {
    named_type(of, &|_| Ok(None))
}

/// What finds the type that a definition has given a name.
type Find<'f> = &'f dyn Fn(&Written) -> Result<Option<Type>, SqlError>;

impl Recorded<'_> {
    /// The type of this name.
    pub(crate) fn column_type(&self, of: &DataType) -> Result<ColumnType, SqlError> {
        named_type(of, &|written| {
            self.check_schema(written)?;
            Ok(self.written_enum(written)?.map(Type::Enum))
        })
    }
}

/// The name that a column has which is cast to this type.
pub(super) fn name_of(of: &DataType) -> Option<String> {
    match (column_type(of), of) {
        (Ok(of), _) => Some(of.base.internal_name().to_owned()),
        (_, DataType::Custom(name, _)) => Written::of(name).ok().map(|written| written.name),
        (_, DataType::Array(ArrayElemTypeDef::SquareBracket(of, _) | ArrayElemTypeDef::Qualified(of, _))) => {
            name_of(of)
        }
        _ => None,
    }
}

fn named_type(of: &DataType, find: Find<'_>) -> Result<ColumnType, SqlError> {
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
            let of = named_type(of, find)?;
            let base = if matches!(of.base, Type::Array(_)) { Some(of.base) } else { of.base.array() };
            let base = base.ok_or_else(|| SqlError::unsupported(format!("an array of {of}")))?;
            Ok(ColumnType { base, bound: of.bound })
        }
        DataType::Custom(name, modifiers) if modifiers.is_empty() => custom(name, find),
        other => Err(SqlError::unsupported(format!("the type {other}"))),
    }
}

/// Types of PostgreSQL that are not there.
const ABSENT: [&str; 26] = [
    "bit",
    "box",
    "cidr",
    "datemultirange",
    "daterange",
    "inet",
    "int4multirange",
    "int4range",
    "int8multirange",
    "int8range",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "nummultirange",
    "numrange",
    "path",
    "point",
    "polygon",
    "timetz",
    "tsquery",
    "tsrange",
    "tsvector",
    "xml",
];

/// A type that has no word of its own in statements.
fn custom(name: &ObjectName, find: Find<'_>) -> Result<ColumnType, SqlError> {
    let is_quoted = matches!(&name.0[..], [one] if one.as_ident().is_some_and(|it| it.quote_style.is_some()));
    let written = Written::of(name)?;
    if is_quoted && written.name == "char" {
        return Ok(Type::Text.into());
    }
    let is_of_system = matches!(written.schema.as_deref(), None | Some("public" | "pg_catalog"));
    if let Some(known) = Type::by_name(&written.name).filter(|_| is_of_system) {
        return Ok(known.into());
    }
    let missing = || match is_of_system && ABSENT.contains(&&*written.name) {
        true => SqlError::unsupported(format!("the type {}", written.name)),
        false => SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{written}\" does not exist")),
    };
    find(&written)?.map(ColumnType::from).ok_or_else(missing)
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
