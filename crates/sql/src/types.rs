//! The types of SQL, with PostgreSQL's names and object ids.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::enums::{self, EnumType};

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
    /// `json`
    Json,
    /// `jsonb`
    Jsonb,
    /// An enum.
    Enum(EnumType),
    /// An array of values of a type.
    Array(Element),
    /// `int2vector`: an array of `smallint` that counts from 0, as the catalog has it.
    Int2vector,
    /// `oidvector`: the same of `oid`.
    Oidvector,
    /// The result of a statement without one.
    Void,
    /// `regclass`: the object id of a relation.
    Regclass,
    /// `regtype`
    Regtype,
    /// `regproc`
    Regproc,
    /// `regnamespace`
    Regnamespace,
    /// `regrole`
    Regrole,
    /// `record`: a row.
    Record,
    /// An array of any type, as an argument.
    AnyArray,
    /// A value of any type, or of that of the elements of the arrays beside it.
    AnyElement,
    /// A value of any enum.
    AnyEnum,
}

/// The type of an array's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Element(ElementType);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ElementType {
    /// The one at this position of `Type::ALL`.
    Known(u8),
    Enum(EnumType),
}

impl Element {
    /// The type.
    pub const fn get(self) -> Type {
        match self.0 {
            ElementType::Known(at) => Type::ALL[at as usize],
            ElementType::Enum(of) => Type::Enum(of),
        }
    }

    const fn known(at: usize) -> Self {
        Self(ElementType::Known(at as u8))
    }

    /// The names and the object id of arrays of it.
    const fn array_names(self) -> (&'static str, &'static str, u32) {
        match self.0 {
            ElementType::Known(at) => ARRAYS[at as usize],
            ElementType::Enum(of) => (of.array_name(), of.internal_array_name(), of.oid() + 1),
        }
    }
}

/// What stands in front of the number of an enum whose arrays a kept column has. No type has such a name.
const ENUM: &str = "enum ";

impl fmt::Debug for Element {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.get())
    }
}

impl From<Element> for String {
    fn from(element: Element) -> Self {
        match element.get() {
            Type::Enum(of) => format!("{ENUM}{}", of.number()),
            of => of.internal_name().to_owned(),
        }
    }
}

impl TryFrom<String> for Element {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if let Some(number) = name.strip_prefix(ENUM).and_then(|number| number.parse().ok())
            && let Type::Enum(of) = enums::unresolved(number)
        {
            return Ok(Self(ElementType::Enum(of)));
        }
        let at = Type::ALL.into_iter().position(|it| it.internal_name() == name);
        at.map(Self::known).ok_or_else(|| format!("no type has the name {name}"))
    }
}

/// Names and object ids of array types, by the positions of their elements in `Type::ALL`.
const ARRAYS: [(&str, &str, u32); Type::ALL.len()] = [
    ("boolean[]", "_bool", 1000),
    ("smallint[]", "_int2", 1005),
    ("integer[]", "_int4", 1007),
    ("bigint[]", "_int8", 1016),
    ("oid[]", "_oid", 1028),
    ("real[]", "_float4", 1021),
    ("double precision[]", "_float8", 1022),
    ("numeric[]", "_numeric", 1231),
    ("text[]", "_text", 1009),
    ("character varying[]", "_varchar", 1015),
    ("character[]", "_bpchar", 1014),
    ("bytea[]", "_bytea", 1001),
    ("date[]", "_date", 1182),
    ("time without time zone[]", "_time", 1183),
    ("timestamp without time zone[]", "_timestamp", 1115),
    ("timestamp with time zone[]", "_timestamptz", 1185),
    ("interval[]", "_interval", 1187),
    ("uuid[]", "_uuid", 2951),
    ("json[]", "_json", 199),
    ("jsonb[]", "_jsonb", 3807),
];

/// What types have in common, by which functions are chosen: `typcategory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Unknown,
    Boolean,
    Number,
    Text,
    DateTime,
    Timespan,
    Array,
    Enum,
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
    /// So many digits of a second.
    Seconds(u32),
    /// A name of the catalog, whose letters are numbered from 0.
    Name,
    /// The columns of rows, by the number that the statement gives them.
    Row(u32),
}

/// What a modifier of `interval` has in its upper half where all fields are allowed.
const ALL_FIELDS: i32 = 0x7fff;

impl Bound {
    /// The type modifier that says so of a type in PostgreSQL; −1: nothing.
    pub fn modifier(self, of: Type) -> i32 {
        match self {
            Self::None | Self::Name | Self::Row(_) => -1,
            Self::Length(length) => (length as i32).saturating_add(4),
            Self::Digits(precision, scale) => ((precision << 16 | scale) as i32).saturating_add(4),
            Self::Seconds(digits) if of.element().unwrap_or(of) == Type::Interval => ALL_FIELDS << 16 | digits as i32,
            Self::Seconds(digits) => digits as i32,
        }
    }

    /// The bound that a type modifier says, if it says one of the type.
    pub(crate) fn of_modifier(of: Type, modifier: i64) -> Self {
        let beyond_header = u32::try_from(modifier).ok().and_then(|it| it.checked_sub(4));
        match (of.element().unwrap_or(of), beyond_header) {
            (Type::Numeric, Some(it)) => Self::Digits(it >> 16, it & 0xffff),
            (Type::Varchar | Type::Bpchar, Some(it)) => Self::Length(it),
            (Type::Time | Type::Timestamp | Type::Timestamptz, _) if (0..=6).contains(&modifier) => {
                Self::Seconds(modifier as u32)
            }
            (Type::Interval, _) if modifier >> 16 == i64::from(ALL_FIELDS) && modifier & 0xffff <= 6 => {
                Self::Seconds((modifier & 0xffff) as u32)
            }
            _ => Self::None,
        }
    }
}

impl Type {
    /// All types that columns can have.
    pub(crate) const ALL: [Self; 20] = [
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
        Self::Json,
        Self::Jsonb,
    ];

    /// Types of values that the relations of the system have, and tables have not.
    pub(crate) const OF_SYSTEM: [Self; 7] = [
        Self::Regclass,
        Self::Regtype,
        Self::Regproc,
        Self::Regnamespace,
        Self::Regrole,
        Self::Int2vector,
        Self::Oidvector,
    ];

    /// All types but enums that `pg_type` has.
    pub(crate) fn known() -> impl Iterator<Item = Self> {
        let arrays = Self::ALL.into_iter().filter_map(Self::array);
        Self::ALL.into_iter().chain(arrays).chain(Self::OF_SYSTEM).chain([Self::Unknown, Self::Void, Self::Record])
    }

    /// Whether it is an array of the catalog, which counts from 0 and is shown with blanks between its elements.
    pub(crate) const fn is_vector(self) -> bool {
        matches!(self, Self::Int2vector | Self::Oidvector)
    }

    /// `integer[]`
    #[allow(non_upper_case_globals, reason = "it stands among the names of types")]
    pub(crate) const Int4s: Self = Self::Array(Element::known(2));
    /// `text[]`
    #[allow(non_upper_case_globals, reason = "it stands among the names of types")]
    pub(crate) const Texts: Self = Self::Array(Element::known(8));

    /// The type of arrays of it.
    pub(crate) fn array(self) -> Option<Self> {
        if let Self::Enum(of) = self {
            return Some(Self::Array(Element(ElementType::Enum(of))));
        }
        Self::ALL.into_iter().position(|it| it == self).map(|at| Self::Array(Element::known(at)))
    }

    /// The type of its elements, if it is one of arrays.
    pub(crate) const fn element(self) -> Option<Self> {
        match self {
            Self::Array(element) => Some(element.get()),
            Self::Int2vector => Some(Self::Int2),
            Self::Oidvector => Some(Self::Oid),
            _ => None,
        }
    }

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
            Self::Json => 114,
            Self::Jsonb => 3802,
            Self::Enum(of) => of.oid(),
            Self::Array(element) => element.array_names().2,
            Self::Int2vector => 22,
            Self::Oidvector => 30,
            Self::Regclass => 2205,
            Self::Regtype => 2206,
            Self::Regproc => 24,
            Self::Regnamespace => 4089,
            Self::Regrole => 4096,
            Self::Record => 2249,
            Self::AnyArray => 2277,
            Self::AnyElement => 2283,
            Self::AnyEnum => 3500,
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
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Enum(of) => of.name(),
            Self::Array(element) => element.array_names().0,
            Self::Int2vector => "int2vector",
            Self::Oidvector => "oidvector",
            Self::Regclass => "regclass",
            Self::Regtype => "regtype",
            Self::Regproc => "regproc",
            Self::Regnamespace => "regnamespace",
            Self::Regrole => "regrole",
            Self::Record => "record",
            Self::AnyArray => "anyarray",
            Self::AnyElement => "anyelement",
            Self::AnyEnum => "anyenum",
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
            Self::Enum(of) => of.internal_name(),
            Self::Array(element) => element.array_names().1,
            other => other.name(),
        }
    }

    /// The type of this name in `pg_type`, or of one of the names that SQL gives it.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let other = match name {
            "int" => Self::Int4,
            "decimal" | "dec" => Self::Numeric,
            "char" => Self::Bpchar,
            "name" => Self::Text,
            "xid" => Self::Int8,
            "regprocedure" => Self::Regproc,
            _ if name.starts_with('_') => return Self::by_name(&name[1..]).and_then(Self::array),
            _ => {
                let all = Self::ALL.into_iter().chain(Self::OF_SYSTEM);
                return all.into_iter().find(|it| it.internal_name() == name || it.name() == name);
            }
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
            Self::Bytea | Self::Uuid | Self::Json | Self::Jsonb => Category::User,
            Self::Array(_) | Self::Int2vector | Self::Oidvector => Category::Array,
            Self::Enum(_) => Category::Enum,
            _ if self.is_object() => Category::Number,
            _ => Category::Pseudo,
        }
    }

    /// Whether its values are object ids that are shown as names.
    pub(crate) const fn is_object(self) -> bool {
        matches!(self, Self::Regclass | Self::Regtype | Self::Regproc | Self::Regnamespace | Self::Regrole)
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
        if let Some(element) = self.base.element() {
            return write!(out, "{}[]", Self { base: element, bound: self.bound });
        }
        match self.bound {
            Bound::None | Bound::Name | Bound::Row(_) => out.write_str(self.base.name()),
            Bound::Length(length) => write!(out, "{}({length})", self.base.name()),
            Bound::Digits(precision, scale) => write!(out, "{}({precision},{scale})", self.base.name()),
            Bound::Seconds(digits) => {
                let name = self.base.name();
                let (first, rest) = name.split_at(name.find(' ').unwrap_or(name.len()));
                write!(out, "{first}({digits}){rest}")
            }
        }
    }
}
