//! The types of SQL, with PostgreSQL's names and object ids.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Type {
    /// What a literal in quotes, a parameter or NULL has until its surroundings say more.
    Unknown,
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `oid`
    Oid,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric`
    Numeric,
    /// `text`
    Text,
    /// `character varying`
    Varchar,
    /// `character`, padded with blanks
    Bpchar,
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time without time zone`
    Time,
    /// `timestamp without time zone`
    Timestamp,
    /// `timestamp with time zone`
    Timestamptz,
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// The result of a statement without one.
    Void,
}

/// What types have in common, by which functions are chosen: `typcategory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Unknown,
    Boolean,
    Number,
    Text,
    DateTime,
    Timespan,
    User,
    Pseudo,
}

/// A type with what bounds it: the digits of a numeric, the length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColumnType {
    /// The type.
    pub base: Type,
    /// Its bound, if it has one.
    pub bound: Bound,
}

/// What bounds a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bound {
    /// Nothing.
    #[default]
    None,
    /// So many characters.
    Length(u32),
    /// So many digits, and how many of them stand behind the point.
    Digits(u32, u32),
}

impl Type {
    /// All types that columns can have.
    pub(crate) const ALL: [Self; 18] = [
        Self::Bool,
        Self::Int2,
        Self::Int4,
        Self::Int8,
        Self::Oid,
        Self::Float4,
        Self::Float8,
        Self::Numeric,
        Self::Text,
        Self::Varchar,
        Self::Bpchar,
        Self::Bytea,
        Self::Date,
        Self::Time,
        Self::Timestamp,
        Self::Timestamptz,
        Self::Interval,
        Self::Uuid,
    ];

    /// Its object id in PostgreSQL.
    pub const fn oid(self) -> u32 {
        match self {
            Self::Unknown => 705,
            Self::Bool => 16,
            Self::Bytea => 17,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Oid => 26,
            Self::Float4 => 700,
            Self::Float8 => 701,
            Self::Bpchar => 1042,
            Self::Varchar => 1043,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::Timestamptz => 1184,
            Self::Interval => 1186,
            Self::Numeric => 1700,
            Self::Uuid => 2950,
            Self::Void => 2278,
        }
    }

    /// Its name as `format_type` gives it, and as messages have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Bool => "boolean",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Oid => "oid",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Numeric => "numeric",
            Self::Text => "text",
            Self::Varchar => "character varying",
            Self::Bpchar => "character",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Time => "time without time zone",
            Self::Timestamp => "timestamp without time zone",
            Self::Timestamptz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Uuid => "uuid",
            Self::Void => "void",
        }
    }

    /// Its name in `pg_type`.
    pub(crate) const fn internal_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Float4 => "float4",
            Self::Float8 => "float8",
            Self::Varchar => "varchar",
            Self::Bpchar => "bpchar",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
            other => other.name(),
        }
    }

    /// The type of this name in `pg_type`, or of one of the names that SQL gives it.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let other = match name {
            "int" => Self::Int4,
            "decimal" | "dec" => Self::Numeric,
            "char" => Self::Bpchar,
            _ => return Self::ALL.into_iter().find(|it| it.internal_name() == name || it.name() == name),
        };
        Some(other)
    }

    pub(crate) const fn category(self) -> Category {
        match self {
            Self::Unknown => Category::Unknown,
            Self::Bool => Category::Boolean,
            Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid | Self::Float4 | Self::Float8 | Self::Numeric => {
                Category::Number
            }
            Self::Text | Self::Varchar | Self::Bpchar => Category::Text,
            Self::Date | Self::Time | Self::Timestamp | Self::Timestamptz => Category::DateTime,
            Self::Interval => Category::Timespan,
            Self::Bytea | Self::Uuid => Category::User,
            Self::Void => Category::Pseudo,
        }
    }

    /// Whether it is preferred among the types of its category: `typispreferred`.
    pub(crate) const fn is_preferred(self) -> bool {
        matches!(self, Self::Bool | Self::Float8 | Self::Oid | Self::Text | Self::Timestamptz | Self::Interval)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl From<Type> for ColumnType {
    fn from(base: Type) -> Self {
        Self { base, bound: Bound::None }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::None => out.write_str(self.base.name()),
            Bound::Length(length) => write!(out, "{}({length})", self.base.name()),
            Bound::Digits(precision, scale) => write!(out, "{}({precision},{scale})", self.base.name()),
        }
    }
}
