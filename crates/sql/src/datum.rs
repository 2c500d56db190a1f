//! Values while a statement runs.

use std::cmp::Ordering;

use bumpalo::Bump;

use crate::arrays::Array;
use crate::decimal::Decimal;
use crate::json;
use crate::wide::{Number, Wide};

/// A span of time, as PostgreSQL has it: months and days have no fixed length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Months; twelve of them are shown as a year.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// What it is compared by: a month has 30 days, and a day 24 hours.
    pub(crate) fn span(self) -> i128 {
        const DAY: i128 = 86_400_000_000;
        (i128::from(self.months) * 30 + i128::from(self.days)) * DAY + i128::from(self.micros)
    }
}

/// A value, whose text or bytes lie in the row that it comes from or in the statement's arena.
///
/// It does not know its type: `Int` is a value of each integer type, and `Timestamp` of both types of timestamps. The expression knows.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the types of SQL say what they are")]
pub enum Datum<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Numeric(Decimal),
    /// A numeric that no [`Decimal`] is.
    Wide(Wide<'a>),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Days since 1970-01-01; the ends stand for ±infinity.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 1970-01-01, in UTC where the type has a zone; the ends stand for ±infinity.
    Timestamp(i64),
    Interval(Interval),
    Uuid([u8; 16]),
    /// The normal form of a `jsonb`.
    Json(&'a str),
    Array(Array<'a>),
}

const _: () = assert!(size_of::<Datum<'_>>() == 24, "rows are made of them");

impl Datum<'_> {
    /// Whether it is NULL.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// The order of two values of one type, as `ORDER BY` has it. NULL comes last.
    pub(crate) fn compare(self, other: Datum<'_>) -> Ordering {
        use Datum::{Bool, Bytes, Date, Float, Int, Null, Numeric, Text, Time, Timestamp, Uuid};
        match (self, other) {
            (Null, Null) => Ordering::Equal,
            (Null, _) => Ordering::Greater,
            (_, Null) => Ordering::Less,
            (Bool(a), Bool(b)) => a.cmp(&b),
            (Int(a), Int(b)) | (Time(a), Time(b)) | (Timestamp(a), Timestamp(b)) => a.cmp(&b),
            (Float(a), Float(b)) => compare_floats(a, b),
            (Numeric(a), Numeric(b)) => a.cmp(&b),
            (Text(a), Text(b)) => a.cmp(b),
            (Bytes(a), Bytes(b)) => a.cmp(b),
            (Date(a), Date(b)) => a.cmp(&b),
            (Datum::Interval(a), Datum::Interval(b)) => a.span().cmp(&b.span()),
            (Uuid(a), Uuid(b)) => a.cmp(&b),
            (Datum::Json(a), Datum::Json(b)) => json::compare(a, b),
            (Datum::Array(a), Datum::Array(b)) => a.compare(b),
            (Datum::Wide(_), Numeric(_)) | (Numeric(_) | Datum::Wide(_), Datum::Wide(_)) => {
                Number::of(self).cmp(&Number::of(other))
            }
            (a, b) => unreachable!("{a:?} and {b:?} are of one type"),
        }
    }

    /// The same value with memory of its own.
    pub(crate) fn owned(self) -> OwnedDatum {
        match self {
            Self::Text(text) => OwnedDatum::Text(text.into()),
            Self::Bytes(bytes) => OwnedDatum::Bytes(bytes.into()),
            Self::Json(text) => OwnedDatum::Json(text.into()),
            Self::Array(array) => OwnedDatum::Array(array.bytes().into()),
            Self::Wide(wide) => OwnedDatum::Wide(wide.bytes().into()),
            plain => OwnedDatum::Plain(plain.moved(|_| "", |_| &[])),
        }
    }

    /// The same value with its text or bytes in the arena.
    pub(crate) fn within(self, arena: &Bump) -> Datum<'_> {
        self.moved(|text| arena.alloc_str(text), |bytes| arena.alloc_slice_copy(bytes))
    }

    /// The same value with its text or bytes where they are moved to.
    pub(crate) fn moved<'b>(
        self,
        text: impl FnOnce(&str) -> &'b str,
        bytes: impl FnOnce(&[u8]) -> &'b [u8],
    ) -> Datum<'b> {
        match self {
            Self::Text(it) => Datum::Text(text(it)),
            Self::Bytes(it) => Datum::Bytes(bytes(it)),
            Self::Json(it) => Datum::Json(text(it)),
            Self::Array(it) => Datum::Array(Array::of_bytes(bytes(it.bytes()))),
            Self::Wide(it) => Datum::Wide(Wide::of_bytes(bytes(it.bytes()))),
            Self::Null => Datum::Null,
            Self::Bool(it) => Datum::Bool(it),
            Self::Int(it) => Datum::Int(it),
            Self::Float(it) => Datum::Float(it),
            Self::Numeric(it) => Datum::Numeric(it),
            Self::Date(it) => Datum::Date(it),
            Self::Time(it) => Datum::Time(it),
            Self::Timestamp(it) => Datum::Timestamp(it),
            Self::Interval(it) => Datum::Interval(it),
            Self::Uuid(it) => Datum::Uuid(it),
        }
    }
}

/// The order of PostgreSQL: NaN equals itself and is greater than every number, and −0 equals 0.
pub(crate) fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// A value with memory of its own.
#[derive(Clone, Debug)]
pub enum OwnedDatum {
    /// One without text or bytes.
    Plain(Datum<'static>),
    /// Text.
    Text(Box<str>),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// The normal form of a `jsonb`.
    Json(Box<str>),
    /// The bytes of an array.
    Array(Box<[u8]>),
    /// The bytes of a numeric.
    Wide(Box<[u8]>),
}

impl OwnedDatum {
    /// How many bytes it takes beside itself.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Text(text) | Self::Json(text) => text.len(),
            Self::Bytes(bytes) | Self::Array(bytes) | Self::Wide(bytes) => bytes.len(),
        }
    }

    /// NULL.
    pub const NULL: Self = Self::Plain(Datum::Null);

    /// The value by reference.
    pub fn get(&self) -> Datum<'_> {
        match self {
            Self::Plain(datum) => *datum,
            Self::Text(text) => Datum::Text(text),
            Self::Bytes(bytes) => Datum::Bytes(bytes),
            Self::Json(text) => Datum::Json(text),
            Self::Array(bytes) => Datum::Array(Array::of_bytes(bytes)),
            Self::Wide(bytes) => Datum::Wide(Wide::of_bytes(bytes)),
        }
    }
}
