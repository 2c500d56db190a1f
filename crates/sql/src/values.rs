//! Rust's values as those of SQL, and back.

use polychron_schema::{Date, Decimal128, Timestamp};

use crate::context::Context;
use crate::datum::{Datum, Interval, OwnedDatum};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::text;
use crate::types::Type;
use crate::wide::Number;

/// A value that can be a parameter of a statement. What it becomes depends on the type that the statement gives the parameter: a text is read as that type, an integer
/// becomes one of it, if it fits.
pub trait ToSql {
    /// The value, by reference.
    fn to_sql(&self) -> Datum<'_>;
}

/// A value that a column of an answer can be read as.
pub trait FromSql<'r>: Sized {
    /// The value; `None`: the column's is none of this type, or does not fit. NULL is read as [`Option`] alone.
    fn from_sql(value: Datum<'r>) -> Option<Self>;
}

impl<T: ToSql + ?Sized> ToSql for &T {
    fn to_sql(&self) -> Datum<'_> {
        (**self).to_sql()
    }
}

impl<T: ToSql> ToSql for Option<T> {
    fn to_sql(&self) -> Datum<'_> {
        self.as_ref().map_or(Datum::Null, ToSql::to_sql)
    }
}

impl<'r, T: FromSql<'r>> FromSql<'r> for Option<T> {
    fn from_sql(value: Datum<'r>) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_sql(value).map(Some) }
    }
}

/// Both ways of types that one kind of datum has.
macro_rules! values {
    ($($type:ty: |$own:ident| $to:expr, $($kind:pat => $from:expr),+;)*) => {$(
        impl ToSql for $type {
            fn to_sql(&self) -> Datum<'_> {
                let $own = self;
                $to
            }
        }

        impl<'r> FromSql<'r> for $type {
            fn from_sql(value: Datum<'r>) -> Option<Self> {
                match value {
                    $($kind => $from,)+
                    _ => None,
                }
            }
        }
    )*};
}

values! {
    bool: |own| Datum::Bool(*own), Datum::Bool(it) => Some(it);
    i8: |own| Datum::Int((*own).into()), Datum::Int(it) => it.try_into().ok();
    i16: |own| Datum::Int((*own).into()), Datum::Int(it) => it.try_into().ok();
    i32: |own| Datum::Int((*own).into()), Datum::Int(it) => it.try_into().ok();
    i64: |own| Datum::Int(*own), Datum::Int(it) => Some(it), Datum::Numeric(it) => whole(it)?.try_into().ok();
    u8: |own| Datum::Int((*own).into()), Datum::Int(it) => it.try_into().ok();
    u16: |own| Datum::Int((*own).into()), Datum::Int(it) => it.try_into().ok();
    u32: |own| Datum::Int((*own).into()), Datum::Int(it) => it.try_into().ok();
    u64: |own| whole_datum((*own).into()), Datum::Int(it) => it.try_into().ok(), Datum::Numeric(it) => whole(it)?.try_into().ok();
    i128: |own| whole_datum(*own), Datum::Int(it) => Some(it.into()), Datum::Numeric(it) => whole(it);
    f32: |own| Datum::Float((*own).into()), Datum::Float(it) => Some(it as f32);
    f64: |own| Datum::Float(*own), Datum::Float(it) => Some(it);
    Decimal: |own| Datum::Numeric(*own), Datum::Numeric(it) => Some(it), Datum::Int(it) => Some(Decimal::new(it.into(), 0));
    Date: |own| Datum::Date(own.0), Datum::Date(it) => Some(Date(it));
    Timestamp: |own| Datum::Timestamp(own.0), Datum::Timestamp(it) => Some(Timestamp(it));
    Interval: |own| Datum::Interval(*own), Datum::Interval(it) => Some(it);
    String: |own| Datum::Text(own), Datum::Text(it) => Some(it.to_owned());
    Box<str>: |own| Datum::Text(own), Datum::Text(it) => Some(it.into());
    Vec<u8>: |own| Datum::Bytes(own), Datum::Bytes(it) => Some(it.to_vec());
    // A UUID; bytes of another number are read as slices.
    [u8; 16]: |own| Datum::Uuid(*own), Datum::Uuid(it) => Some(it), Datum::Bytes(it) => it.try_into().ok();
}

impl<const SCALE: u32> ToSql for polychron_schema::Decimal<SCALE> {
    fn to_sql(&self) -> Datum<'_> {
        Datum::Numeric(Decimal::new(self.units().into(), SCALE))
    }
}

impl<const SCALE: u32> FromSql<'_> for polychron_schema::Decimal<SCALE> {
    fn from_sql(value: Datum<'_>) -> Option<Self> {
        units(value, SCALE)?.try_into().ok().map(Self::from_units)
    }
}

impl<const SCALE: u32> ToSql for Decimal128<SCALE> {
    fn to_sql(&self) -> Datum<'_> {
        Datum::Numeric(Decimal::new(self.units(), SCALE))
    }
}

impl<const SCALE: u32> FromSql<'_> for Decimal128<SCALE> {
    fn from_sql(value: Datum<'_>) -> Option<Self> {
        units(value, SCALE).map(Self::from_units)
    }
}

impl ToSql for str {
    fn to_sql(&self) -> Datum<'_> {
        Datum::Text(self)
    }
}

impl<'r> FromSql<'r> for &'r str {
    fn from_sql(value: Datum<'r>) -> Option<Self> {
        if let Datum::Text(it) = value { Some(it) } else { None }
    }
}

impl ToSql for [u8] {
    fn to_sql(&self) -> Datum<'_> {
        Datum::Bytes(self)
    }
}

impl<'r> FromSql<'r> for &'r [u8] {
    fn from_sql(value: Datum<'r>) -> Option<Self> {
        if let Datum::Bytes(it) = value { Some(it) } else { None }
    }
}

impl ToSql for Datum<'_> {
    fn to_sql(&self) -> Datum<'_> {
        *self
    }
}

impl<'r> FromSql<'r> for Datum<'r> {
    fn from_sql(value: Self) -> Option<Self> {
        Some(value)
    }
}

impl ToSql for OwnedDatum {
    fn to_sql(&self) -> Datum<'_> {
        self.get()
    }
}

impl FromSql<'_> for OwnedDatum {
    fn from_sql(value: Datum<'_>) -> Option<Self> {
        Some(value.owned())
    }
}

/// The integer that a numeric is.
fn whole(numeric: Decimal) -> Option<i128> {
    numeric.rescale(0).ok().filter(|whole| *whole == numeric).map(Decimal::units)
}

fn whole_datum<'a>(value: i128) -> Datum<'a> {
    i64::try_from(value).map_or(Datum::Numeric(Decimal::new(value, 0)), Datum::Int)
}

/// How many units of a scale a number is.
fn units(value: Datum<'_>, scale: u32) -> Option<i128> {
    let numeric = Decimal::from_sql(value)?;
    numeric.rescale(scale).ok().filter(|rescaled| *rescaled == numeric).map(Decimal::units)
}

/// Parameters of a statement: a tuple of values, an array or a slice of values, or `()`.
pub trait Parameters {
    /// Lends the values.
    fn lend<O>(&self, work: impl FnOnce(&[Datum<'_>]) -> O) -> O;
}

impl Parameters for () {
    fn lend<O>(&self, work: impl FnOnce(&[Datum<'_>]) -> O) -> O {
        work(&[])
    }
}

impl<T: ToSql> Parameters for [T] {
    fn lend<O>(&self, work: impl FnOnce(&[Datum<'_>]) -> O) -> O {
        let values: Vec<_> = self.iter().map(ToSql::to_sql).collect();
        work(&values)
    }
}

impl<T: ToSql, const N: usize> Parameters for [T; N] {
    fn lend<O>(&self, work: impl FnOnce(&[Datum<'_>]) -> O) -> O {
        work(&self.each_ref().map(ToSql::to_sql))
    }
}

impl<P: Parameters + ?Sized> Parameters for &P {
    fn lend<O>(&self, work: impl FnOnce(&[Datum<'_>]) -> O) -> O {
        (**self).lend(work)
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl<$($name: ToSql),+> Parameters for ($($name,)+) {
            #[allow(non_snake_case, reason = "the names are those of the types")]
            fn lend<O>(&self, work: impl FnOnce(&[Datum<'_>]) -> O) -> O {
                let ($($name,)+) = self;
                work(&[$($name.to_sql()),+])
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
    A B C D E F G H I J K L M;
    A B C D E F G H I J K L M N;
    A B C D E F G H I J K L M N R;
    A B C D E F G H I J K L M N R S;
}

/// Whether a value can be a parameter of the type as it is.
pub(crate) fn fits(value: Datum<'_>, of: Type) -> bool {
    match (value, of) {
        (Datum::Null, _) => true,
        (Datum::Int(it), Type::Int4) => i32::try_from(it).is_ok(),
        (Datum::Int(it), Type::Int2) => i16::try_from(it).is_ok(),
        (Datum::Int(it), Type::Oid) => u32::try_from(it).is_ok(),
        (Datum::Int(it), Type::Enum(of)) => of.label(it).is_some(),
        (Datum::Int(_), Type::Int8)
        | (Datum::Bool(_), Type::Bool)
        | (Datum::Float(_), Type::Float8)
        | (Datum::Numeric(_) | Datum::Wide(_), Type::Numeric)
        | (Datum::Text(_), Type::Text | Type::Varchar)
        | (Datum::Bytes(_), Type::Bytea)
        | (Datum::Date(_), Type::Date)
        | (Datum::Time(_), Type::Time)
        | (Datum::Timestamp(_), Type::Timestamp | Type::Timestamptz)
        | (Datum::Interval(_), Type::Interval)
        | (Datum::Uuid(_), Type::Uuid) => true,
        _ => false,
    }
}

/// The value of a type that stands for a parameter; its number is told where there is none.
///
/// # Errors
/// It is out of the type's range, a text that stands for none of its values, or of another kind.
pub(crate) fn coerced<'a>(
    value: Datum<'a>,
    of: Type,
    number: usize,
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    if fits(value, of) {
        return Ok(value);
    }
    let out_of_range = || {
        SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("parameter ${number} is out of range for type {of}"),
        )
    };
    match (value, of) {
        (Datum::Text(it), _) => text::read(of, it, context),
        (Datum::Int(_), Type::Int2 | Type::Int4 | Type::Oid) => Err(out_of_range()),
        (Datum::Int(it), Type::Numeric) => Ok(Datum::Numeric(Decimal::new(it.into(), 0))),
        (Datum::Int(it), Type::Float8 | Type::Float4) => Ok(Datum::Float(it as f64)),
        (Datum::Float(it), Type::Float4) => {
            let narrow = it as f32;
            if narrow.is_infinite() && it.is_finite() { Err(out_of_range()) } else { Ok(Datum::Float(narrow.into())) }
        }
        (Datum::Float(it), Type::Numeric) => Number::of_float(it).within(context.arena),
        (Datum::Numeric(it), Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid) => {
            let whole = whole(it).and_then(|it| it.try_into().ok()).map(Datum::Int);
            whole.filter(|whole| fits(*whole, of)).ok_or_else(out_of_range)
        }
        (Datum::Numeric(it), Type::Float8 | Type::Float4) => Ok(Datum::Float(it.to_float())),
        (Datum::Bytes(it), Type::Uuid) if it.len() == 16 => Ok(it.try_into().map_or(Datum::Null, Datum::Uuid)),
        (Datum::Uuid(it), Type::Bytea) => Ok(Datum::Bytes(context.arena.alloc(it))),
        _ => {
            let message = format!("parameter ${number} is of type {of}, but the value is a {}", kind(value));
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
        }
    }
}

/// What a value is, in a word.
pub(crate) fn kind(value: Datum<'_>) -> &'static str {
    match value {
        Datum::Null => "NULL",
        Datum::Bool(_) => "boolean",
        Datum::Int(_) => "integer",
        Datum::Float(_) => "floating-point number",
        Datum::Numeric(_) | Datum::Wide(_) => "numeric",
        Datum::Text(_) => "text",
        Datum::Bytes(_) => "byte string",
        Datum::Date(_) => "date",
        Datum::Time(_) => "time",
        Datum::Timestamp(_) => "timestamp",
        Datum::Interval(_) => "interval",
        Datum::Uuid(_) => "UUID",
        Datum::Json(_) => "JSON value",
        Datum::Array(_) => "array",
    }
}

/// The type that a value has where no statement gives it one.
pub(crate) fn natural_type(value: Datum<'_>) -> Type {
    match value {
        Datum::Null | Datum::Text(_) | Datum::Array(_) => Type::Unknown,
        Datum::Bool(_) => Type::Bool,
        Datum::Int(_) => Type::Int8,
        Datum::Float(_) => Type::Float8,
        Datum::Numeric(_) | Datum::Wide(_) => Type::Numeric,
        Datum::Bytes(_) => Type::Bytea,
        Datum::Date(_) => Type::Date,
        Datum::Time(_) => Type::Time,
        Datum::Timestamp(_) => Type::Timestamp,
        Datum::Interval(_) => Type::Interval,
        Datum::Uuid(_) => Type::Uuid,
        Datum::Json(_) => Type::Jsonb,
    }
}
