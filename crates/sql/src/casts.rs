//! Casts: which there are, where they happen by themselves, and what they do.

use bumpalo::Bump;

use crate::arrays::Array;
use crate::context::Context;
use crate::datum::{Datum, Interval, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::functions::Eval;
use crate::json;
use crate::text::{self, DAY, from_local, to_local};
use crate::types::{Bound, ColumnType, Type};
use crate::wide::{self, Number};

/// Where a cast happens: the later ones allow what the earlier ones do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Anywhere, by itself.
    Implicit,
    /// Where a value is put into a column.
    Assignment,
    /// Where the statement asks for it.
    Explicit,
}

/// What a cast does.
#[derive(Clone, Copy)]
pub(crate) enum Cast {
    /// Nothing: the values are the same.
    Same,
    /// A function of one value that is not NULL.
    Call(Eval),
    /// The value's text is read as one of the type.
    Read(Type),
    /// The value becomes its text.
    Write(Type),
    /// The value becomes what is shown of it.
    Show(Type),
    /// The elements of an array are cast.
    Items(Type, Type),
    /// The elements of an array become what is shown of them.
    ShowItems(Type),
    /// A `character`, or each in an array, gets blanks up to a length.
    Pad(u32),
    /// The value becomes JSON, in normal form where it is one of `jsonb`.
    Json(Type, bool),
}

/// The cast from one type to another, if there is one in this place.
pub(crate) fn find(from: Type, to: Type, place: Place) -> Option<Cast> {
    use Type::{Bpchar, Text, Unknown, Varchar};
    let is_text = |of: Type| matches!(of, Text | Varchar | Bpchar);
    let (least, cast) = match (from, to) {
        _ if from == to => (Place::Implicit, Cast::Same),
        (_, Type::AnyElement) | (Unknown, Type::AnyArray) => (Place::Implicit, Cast::Same),
        (_, Type::AnyArray) if from.element().is_some() => (Place::Implicit, Cast::Same),
        (Unknown | Type::Enum(_), Type::AnyEnum) => (Place::Implicit, Cast::Same),
        (_, Type::AnyArray | Type::AnyEnum) => return None,
        (Unknown, _) => (Place::Implicit, Cast::Read(to)),
        (_, Unknown) => return None,
        (Text | Varchar | Bpchar, Text | Varchar) => (Place::Implicit, Cast::Same),
        (Text | Varchar, Bpchar) => (
            Place::Implicit,
            Cast::Call(|args, _| {
                let Datum::Text(text) = args[0] else { return Ok(args[0]) };
                Ok(Datum::Text(text.trim_end_matches(' ')))
            }),
        ),
        _ if from.is_object() && matches!(to, Type::Oid | Type::Int8)
            || to.is_object() && matches!(from, Type::Oid | Type::Int2 | Type::Int4 | Type::Int8) =>
        {
            (Place::Implicit, Cast::Same)
        }
        (_, Type::Int4) if from.is_object() => (Place::Assignment, Cast::Same),
        // Two versions of one enum.
        (Type::Enum(one), Type::Enum(other)) if one.number() == other.number() => (Place::Implicit, Cast::Same),
        (_, Type::Array(other)) if let Some(one) = from.element() => {
            let other = other.get();
            return find(one, other, place)
                .map(|cast| if matches!(cast, Cast::Same) { cast } else { Cast::Items(one, other) });
        }
        _ => match between_numbers(from, to).or_else(|| between_times(from, to)).or_else(|| of_json(from, to)) {
            Some(found) => found,
            None if is_text(to) => (Place::Assignment, Cast::Write(from)),
            None if is_text(from) => (Place::Explicit, Cast::Read(to)),
            None => return None,
        },
    };
    (least <= place).then_some(cast)
}

/// A cast between types of numbers, and the first place of it.
fn between_numbers(from: Type, to: Type) -> Option<(Place, Cast)> {
    use Place::{Assignment, Explicit, Implicit};
    use Type::{Bool, Float4, Float8, Int2, Int4, Int8, Numeric, Oid};
    Some(match (from, to) {
        (Int2, Int4 | Int8) | (Int4, Int8) => (Implicit, Cast::Same),
        (Int4, Int2) | (Int8, Int2) => (Assignment, Cast::Call(|args, _| narrow(args[0], Int2))),
        (Int8, Int4) => (Assignment, Cast::Call(|args, _| narrow(args[0], Int4))),
        // The same 32 bits.
        (Int2 | Int4, Oid) => (Implicit, Cast::Call(|args, _| Ok(Datum::Int((integer(args[0]) as u32).into())))),
        (Int8, Oid) => (Implicit, Cast::Call(|args, _| narrow(args[0], Oid))),
        (Oid, Int8) => (Assignment, Cast::Same),
        (Oid, Int4) => (Assignment, Cast::Call(|args, _| narrow(args[0], Int4))),
        (Int2 | Int4 | Int8, Float8) => (Implicit, Cast::Call(|args, _| Ok(Datum::Float(integer(args[0]) as f64)))),
        (Int2 | Int4 | Int8, Float4) => {
            (Implicit, Cast::Call(|args, _| Ok(Datum::Float(f64::from(integer(args[0]) as f32)))))
        }
        (Int2 | Int4 | Int8, Numeric) => (Implicit, Cast::Call(|args, _| Ok(Datum::Numeric(integer(args[0]).into())))),
        (Float4, Float8) => (Implicit, Cast::Same),
        (Float8, Float4) => (Assignment, Cast::Call(|args, _| short(float(args[0])))),
        (Numeric, Float8) => (Implicit, Cast::Call(|args, _| float_of(args[0]).map(Datum::Float))),
        (Numeric, Float4) => (Implicit, Cast::Call(|args, _| short_of(args[0]))),
        (Float4, Numeric) => (
            Assignment,
            Cast::Call(|args, context| {
                // Six digits are what a short float has for certain.
                let text = format!("{:.5e}", float(args[0]));
                Number::of_float(text.parse().unwrap_or(float(args[0]))).within(context.arena)
            }),
        ),
        (Float8, Numeric) => {
            (Assignment, Cast::Call(|args, context| Number::of_float(float(args[0])).within(context.arena)))
        }
        (Float4 | Float8, Int2) => (Assignment, Cast::Call(|args, _| whole(float(args[0]), Int2))),
        (Float4 | Float8, Int4) => (Assignment, Cast::Call(|args, _| whole(float(args[0]), Int4))),
        (Float4 | Float8, Int8) => (Assignment, Cast::Call(|args, _| whole(float(args[0]), Int8))),
        (Numeric, Int2) => (Assignment, Cast::Call(|args, _| rounded(args[0], Int2))),
        (Numeric, Int4) => (Assignment, Cast::Call(|args, _| rounded(args[0], Int4))),
        (Numeric, Int8) => (Assignment, Cast::Call(|args, _| rounded(args[0], Int8))),
        (Bool, Int4) => {
            (Explicit, Cast::Call(|args, _| Ok(Datum::Int(i64::from(matches!(args[0], Datum::Bool(true)))))))
        }
        (Int4, Bool) => (Explicit, Cast::Call(|args, _| Ok(Datum::Bool(integer(args[0]) != 0)))),
        _ => return None,
    })
}

/// A cast between types of dates, times and spans, and the first place of it.
fn between_times(from: Type, to: Type) -> Option<(Place, Cast)> {
    use Place::{Assignment, Implicit};
    use Type::{Date, Interval as Span, Time, Timestamp, Timestamptz};
    Some(match (from, to) {
        (Date, Timestamp) => (Implicit, Cast::Call(|args, _| midnight(args[0]).map(Datum::Timestamp))),
        (Date, Timestamptz) => {
            (Implicit, Cast::Call(|args, context| Ok(Datum::Timestamp(from_local(midnight(args[0])?, context.zone)))))
        }
        (Timestamp, Timestamptz) => {
            (Implicit, Cast::Call(|args, context| Ok(Datum::Timestamp(from_local(micros(args[0]), context.zone)))))
        }
        (Timestamptz, Timestamp) => {
            (Assignment, Cast::Call(|args, context| Ok(Datum::Timestamp(to_local(micros(args[0]), context.zone)))))
        }
        (Timestamp, Date) => (Assignment, Cast::Call(|args, _| Ok(date_of(micros(args[0]))))),
        (Timestamptz, Date) => {
            (Assignment, Cast::Call(|args, context| Ok(date_of(to_local(micros(args[0]), context.zone)))))
        }
        (Timestamp, Time) => (Assignment, Cast::Call(|args, _| Ok(time_of(micros(args[0]))))),
        (Timestamptz, Time) => {
            (Assignment, Cast::Call(|args, context| Ok(time_of(to_local(micros(args[0]), context.zone)))))
        }
        (Time, Span) => (
            Implicit,
            Cast::Call(|args, _| {
                let Datum::Time(micros) = args[0] else { return Ok(Datum::Null) };
                Ok(Datum::Interval(Interval { micros, ..Interval::default() }))
            }),
        ),
        (Span, Time) => (
            Assignment,
            Cast::Call(|args, _| {
                let Datum::Interval(span) = args[0] else { return Ok(Datum::Null) };
                Ok(Datum::Time(span.micros.rem_euclid(DAY)))
            }),
        ),
        _ => return None,
    })
}

/// A cast of JSON, and the first place of it.
fn of_json(from: Type, to: Type) -> Option<(Place, Cast)> {
    use Type::{Bool, Float4, Float8, Int2, Int4, Int8, Json, Jsonb, Numeric};
    let scalar = |eval: Eval| Some((Place::Explicit, Cast::Call(eval)));
    match (from, to) {
        (Json, Jsonb) => Some((Place::Assignment, Cast::Read(Jsonb))),
        (Jsonb, Json) => Some((Place::Assignment, Cast::Write(Jsonb))),
        (Jsonb, Bool) => scalar(|args, context| of_scalar(args[0], Bool, context)),
        (Jsonb, Int2) => scalar(|args, context| of_scalar(args[0], Int2, context)),
        (Jsonb, Int4) => scalar(|args, context| of_scalar(args[0], Int4, context)),
        (Jsonb, Int8) => scalar(|args, context| of_scalar(args[0], Int8, context)),
        (Jsonb, Float4) => scalar(|args, context| of_scalar(args[0], Float4, context)),
        (Jsonb, Float8) => scalar(|args, context| of_scalar(args[0], Float8, context)),
        (Jsonb, Numeric) => scalar(|args, context| of_scalar(args[0], Numeric, context)),
        _ => None,
    }
}

/// The number or truth value that a JSON value is.
fn of_scalar<'a>(datum: Datum<'a>, to: Type, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let Datum::Json(text) = datum else { return Ok(Datum::Null) };
    let value = json::known(text);
    let kind = value.kind();
    match (&value.of, to) {
        (json::Form::Bool(value), Type::Bool) => Ok(Datum::Bool(*value)),
        (json::Form::Number, to) if to != Type::Bool => {
            let number = text::read(Type::Numeric, text, context)?;
            find(Type::Numeric, to, Place::Explicit).map_or(Ok(number), |cast| cast.apply(number, context))
        }
        _ => {
            let kind = if kind == "number" { "numeric" } else { kind };
            let message = format!("cannot cast jsonb {kind} to type {to}");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Appends a value as JSON.
fn write_json(of: Type, datum: Datum<'_>, context: &Context<'_>, out: &mut String) {
    match datum {
        Datum::Null => out.push_str("null"),
        Datum::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Datum::Json(text) => out.push_str(text),
        Datum::Text(text) if of == Type::Json => out.push_str(text),
        Datum::Text(text) => json::write_text(text, out),
        Datum::Array(row) if of == Type::Record => {
            out.push('{');
            for (at, ((name, of), value)) in crate::records::fields(row).enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                json::write_text(&name, out);
                out.push(':');
                write_json(of, value, context, out);
            }
            out.push('}');
        }
        Datum::Array(array) => {
            let dimensions: Vec<_> = array.dimensions().iter().map(|it| it.length as usize).collect();
            let element = of.element().unwrap_or(Type::Text);
            if dimensions.is_empty() {
                out.push_str("[]");
                return;
            }
            write_json_level(&dimensions, &mut array.items(), out, &mut |item, out| {
                write_json(element, item, context, out)
            });
        }
        _ => {
            let mut text = String::new();
            text::write(of, datum, context.zone, &mut text);
            match datum {
                Datum::Timestamp(_) => {
                    let mut text = text.replacen(' ', "T", 1);
                    let is_short = |sign: &usize| text.len() - sign == 3;
                    if of == Type::Timestamptz && text.rfind(['+', '-']).as_ref().is_some_and(is_short) {
                        text.push_str(":00");
                    }
                    json::write_text(&text, out);
                }
                Datum::Int(_) | Datum::Float(_) | Datum::Numeric(_) | Datum::Wide(_)
                    if text.ends_with(|it: char| it.is_ascii_digit()) && !matches!(of, Type::Enum(_)) =>
                {
                    out.push_str(&text);
                }
                _ => json::write_text(&text, out),
            }
        }
    }
}

fn write_json_level<'a>(
    lengths: &[usize],
    items: &mut dyn Iterator<Item = Datum<'a>>,
    out: &mut String,
    write: &mut dyn FnMut(Datum<'a>, &mut String),
) {
    let Some((length, inner)) = lengths.split_first() else {
        items.next().into_iter().for_each(|item| write(item, out));
        return;
    };
    out.push('[');
    for at in 0..*length {
        out.push_str(if at > 0 { "," } else { "" });
        write_json_level(inner, items, out, write);
    }
    out.push(']');
}

/// The text as a value of `json`, or of `jsonb`.
pub(crate) fn json_of<'a>(text: &str, is_binary: bool, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    if !is_binary {
        return Ok(Datum::Text(context.arena.alloc_str(text)));
    }
    Ok(Datum::Json(context.arena.alloc_str(&json::parse(text)?.normal()?)))
}

fn integer(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { 0 }
}

fn float(datum: Datum<'_>) -> f64 {
    if let Datum::Float(value) = datum { value } else { f64::NAN }
}

/// A numeric as a `real`, of which its text tells where there is none.
fn short_of<'a>(datum: Datum<'_>) -> Result<Datum<'a>, SqlError> {
    let value = float_of(datum)?;
    short(value).map_err(|_| {
        let message = format!("\"{}\" is out of range for type real", Number::of(datum));
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

/// A numeric as a float.
fn float_of(datum: Datum<'_>) -> Result<f64, SqlError> {
    let Datum::Wide(_) = datum else {
        return Ok(if let Datum::Numeric(value) = datum { value.to_float() } else { f64::NAN });
    };
    let number = Number::of(datum);
    let value = number.to_float();
    if value.is_infinite() && matches!(number, Number::Finite { .. }) {
        let message = format!("\"{number}\" is out of range for type double precision");
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    Ok(value)
}

fn micros(datum: Datum<'_>) -> i64 {
    if let Datum::Timestamp(value) = datum { value } else { 0 }
}

/// An integer of a type, unless it is out of its range.
pub(crate) fn in_range<'a>(value: i128, of: Type) -> Result<Datum<'a>, SqlError> {
    let (least, most) = match of {
        Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int4 => (i32::MIN.into(), i32::MAX.into()),
        Type::Oid => (0, u32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    };
    let fitting = i64::try_from(value).ok().filter(|value| (least..=most).contains(value));
    let out_of_range = || {
        SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("{} out of range", if of == Type::Oid { "OID" } else { of.name() }),
        )
    };
    fitting.map(Datum::Int).ok_or_else(out_of_range)
}

fn narrow<'a>(datum: Datum<'_>, to: Type) -> Result<Datum<'a>, SqlError> {
    in_range(integer(datum).into(), to)
}

/// Rounded half to even, as the processor does.
fn whole<'a>(value: f64, to: Type) -> Result<Datum<'a>, SqlError> {
    // Floats beyond 128 bits stay beyond 64; what is no number becomes too large as well.
    let value = if value.is_nan() { f64::INFINITY } else { value };
    in_range(value.round_ties_even() as i128, to)
}

fn rounded<'a>(value: Datum<'_>, to: Type) -> Result<Datum<'a>, SqlError> {
    let cannot =
        |what: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to {to}")));
    match value {
        Datum::Numeric(value) => in_range(value.to_whole(), to),
        _ => match wide::rounded(&Number::of(value), 0, false) {
            Number::Nan => cannot("NaN"),
            Number::Infinite { .. } => cannot("infinity"),
            Number::Finite { units, .. } => in_range(i128::try_from(units).unwrap_or(i128::MAX), to),
        },
    }
}

fn short<'a>(value: f64) -> Result<Datum<'a>, SqlError> {
    let short = value as f32;
    if short.is_infinite() && value.is_finite() || short == 0.0 && value != 0.0 {
        let what = if short == 0.0 { "underflow" } else { "overflow" };
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}")));
    }
    Ok(Datum::Float(short.into()))
}

/// The beginning of a date as a local timestamp.
pub(crate) fn midnight(datum: Datum<'_>) -> Result<i64, SqlError> {
    match datum {
        Datum::Date(i32::MAX) => Ok(i64::MAX),
        Datum::Date(i32::MIN) => Ok(i64::MIN),
        Datum::Date(days) => i64::from(days)
            .checked_mul(DAY)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp")),
        _ => Ok(0),
    }
}

fn date_of<'a>(local: i64) -> Datum<'a> {
    match local {
        i64::MAX => Datum::Date(i32::MAX),
        i64::MIN => Datum::Date(i32::MIN),
        _ => Datum::Date(local.div_euclid(DAY) as i32),
    }
}

fn time_of<'a>(local: i64) -> Datum<'a> {
    if matches!(local, i64::MIN | i64::MAX) { Datum::Null } else { Datum::Time(local.rem_euclid(DAY)) }
}

impl Cast {
    /// The value as one of the other type. NULL stays NULL.
    pub(crate) fn apply<'a>(self, datum: Datum<'a>, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
        match (self, datum) {
            (_, Datum::Null) | (Self::Same, _) => Ok(datum),
            (Self::Call(eval), _) => eval(&[datum], context),
            (Self::Items(from, to), Datum::Array(array)) => {
                let cast = find(from, to, Place::Explicit).unwrap_or(Self::Same);
                let items = array.items().map(|item| cast.apply(item, context)).collect::<Result<Vec<_>, _>>()?;
                Ok(Array::datum(context.arena, &array.dimensions(), items))
            }
            (Self::ShowItems(of), Datum::Array(array)) => {
                let items =
                    array.items().map(|item| Self::Show(of).apply(item, context)).collect::<Result<Vec<_>, _>>()?;
                Ok(Array::datum(context.arena, &array.dimensions(), items))
            }
            (Self::Pad(length), datum) => Ok(padded(datum, length, context.arena)),
            (Self::Json(of, is_binary), _) => {
                let mut text = String::new();
                write_json(of, datum, context, &mut text);
                json_of(&text, is_binary, context)
            }
            (Self::Items(..) | Self::ShowItems(_), _) => unreachable!("an array"),
            (Self::Read(of), Datum::Text(text)) => text::read(of, text, context),
            (Self::Read(_), _) => unreachable!("only text is read"),
            // A cast says it in a word, what is shown in a letter.
            (Self::Write(_), Datum::Bool(value)) => Ok(Datum::Text(if value { "true" } else { "false" })),
            (Self::Write(of) | Self::Show(of), _) => Ok(context.text(|out| text::write(of, datum, context.zone, out))),
        }
    }
}

/// A `character`, or each in an array, with blanks up to a length.
pub(crate) fn padded<'a>(datum: Datum<'_>, length: u32, arena: &'a Bump) -> Datum<'a> {
    match datum {
        Datum::Text(text) => Datum::Text(bumpalo::format!(in arena, "{:<1$}", text, length as usize).into_bump_str()),
        Datum::Array(array) => {
            let items: Vec<_> = array.items().map(|item| padded(item, length, arena)).collect();
            Array::datum(arena, &array.dimensions(), items)
        }
        other => other.within(arena),
    }
}

fn field_overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
}

/// The beginning of the year 2000, in microseconds since 1970.
const MILLENNIUM: i64 = 946_684_800_000_000;

/// Microseconds with so many digits of a second; halves are rounded away from zero.
fn round(micros: i64, digits: u32) -> i64 {
    let unit = 10_i64.pow(6_u32.saturating_sub(digits));
    let rest = micros % unit;
    let whole = micros - rest;
    let step = if rest.abs() * 2 >= unit { unit * micros.signum() } else { 0 };
    whole.checked_add(step).unwrap_or(whole)
}

/// A value within the bound of its type. Where the statement asks for the cast, a text that is too long is cut.
pub(crate) fn bound<'a>(
    datum: Datum<'a>,
    to: ColumnType,
    place: Place,
    arena: &'a Bump,
) -> Result<Datum<'a>, SqlError> {
    match (datum, to.bound) {
        (Datum::Array(_), Bound::None) => Ok(datum),
        (Datum::Array(array), _) => {
            let of = ColumnType { base: to.base.element().unwrap_or(to.base), bound: to.bound };
            let items = array.items().map(|item| bound(item, of, place, arena)).collect::<Result<Vec<_>, _>>()?;
            Ok(Array::datum(arena, &array.dimensions(), items))
        }
        (Datum::Time(micros), Bound::Seconds(digits)) => Ok(Datum::Time(round(micros, digits))),
        (Datum::Timestamp(i64::MIN | i64::MAX), Bound::Seconds(_)) => Ok(datum),
        (Datum::Timestamp(micros), Bound::Seconds(digits)) => {
            // Halves are rounded away from the year 2000, from which PostgreSQL counts.
            let rounded = micros.checked_sub(MILLENNIUM).map(|since| round(since, digits));
            Ok(Datum::Timestamp(rounded.and_then(|since| since.checked_add(MILLENNIUM)).unwrap_or(micros)))
        }
        (Datum::Interval(span), Bound::Seconds(digits)) => {
            Ok(Datum::Interval(Interval { micros: round(span.micros, digits), ..span }))
        }
        (Datum::Numeric(value), Bound::Digits(precision, scale)) => value.fit(precision, scale).map(Datum::Numeric),
        (Datum::Wide(_), Bound::Digits(precision, scale)) => {
            match wide::rounded(&Number::of(datum), scale.into(), false).datum()? {
                OwnedDatum::Plain(Datum::Numeric(value)) => value.fit(precision, scale).map(Datum::Numeric),
                other => match Number::of(other.get()) {
                    Number::Nan => Ok(datum),
                    Number::Infinite { .. } => Err(field_overflow().with_detail(format!(
                        "A field with precision {precision}, scale {scale} cannot hold an infinite value."
                    ))),
                    Number::Finite { .. } => Err(field_overflow()),
                },
            }
        }
        (Datum::Text(text), Bound::Length(length)) => {
            let Some((end, _)) = text.char_indices().nth(length as usize) else { return Ok(datum) };
            let is_blank = text[end..].bytes().all(|byte| byte == b' ');
            if place != Place::Explicit && !is_blank {
                return Err(SqlError::new(
                    SqlState::STRING_DATA_RIGHT_TRUNCATION,
                    format!("value too long for type {to}"),
                ));
            }
            let cut = &text[..end];
            // char(n) has no blanks at its end, wherever it is cut.
            Ok(Datum::Text(if to.base == Type::Bpchar { cut.trim_end_matches(' ') } else { cut }))
        }
        _ => Ok(datum),
    }
}
