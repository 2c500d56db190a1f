//! Which types of SQL the columns of tables have that were made without it.

use polychron_schema::ColumnType as Stored;

use crate::types::{Bound, ColumnType, Type};

/// The type of SQL whose values a column of the engine holds.
pub(super) fn of_stored(stored: Stored) -> Option<ColumnType> {
    let base = match stored {
        Stored::Bool => Type::Bool,
        Stored::I8 | Stored::I16 | Stored::U8 => Type::Int2,
        Stored::I32 | Stored::U16 => Type::Int4,
        Stored::I64 | Stored::U32 => Type::Int8,
        Stored::U64 => return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(20, 0) }),
        Stored::F32 => Type::Float4,
        Stored::F64 => Type::Float8,
        Stored::Decimal { scale } => return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(18, scale) }),
        Stored::Decimal128 { scale } => {
            return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(38, scale) });
        }
        Stored::I128 => return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(38, 0) }),
        Stored::Date => Type::Date,
        Stored::Timestamp => Type::Timestamp,
        Stored::String { .. } | Stored::FixedString { .. } => Type::Text,
        Stored::Bytes { .. } | Stored::FixedBytes { .. } => Type::Bytea,
        _ => return None,
    };
    Some(base.into())
}
