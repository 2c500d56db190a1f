//! Values as text, as PostgreSQL reads and shows them (`DateStyle` ISO, `IntervalStyle` postgres, `bytea_output` hex).

mod intervals;
mod times;

use std::fmt::Write;

use bumpalo::Bump;

use crate::arrays::{self, Array, Dimension};
use crate::context::Context;
use crate::datum::Datum;
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::json;
use crate::types::Type;
use crate::wide::Number;

pub(crate) use times::{DATES, TIMESTAMPS, Zone, days_from_civil, days_of_month};
pub(crate) use times::{civil_from_days, from_local, seconds_of, to_local};

/// Microseconds of a day.
pub(crate) const DAY: i64 = 86_400_000_000;

/// A text that stands for no value of a type.
#[cold]
pub(crate) fn invalid(of: Type, text: &str) -> SqlError {
    let state = match of {
        Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            SqlState::INVALID_DATETIME_FORMAT
        }
        _ => SqlState::INVALID_TEXT_REPRESENTATION,
    };
    SqlError::new(state, format!("invalid input syntax for type {of}: \"{text}\""))
}

#[cold]
fn out_of_range(of: Type, text: &str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value \"{text}\" is out of range for type {of}"))
}

/// The value of a type that a text stands for.
pub(crate) fn read<'a>(of: Type, text: &str, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    match of {
        Type::Unknown | Type::Text | Type::Varchar => Ok(Datum::Text(context.arena.alloc_str(text))),
        Type::Bpchar => Ok(Datum::Text(context.arena.alloc_str(text.trim_end_matches(' ')))),
        Type::Bool => read_bool(trimmed).map(Datum::Bool).ok_or_else(|| invalid(of, text)),
        Type::Int2 => read_integer(of, text, trimmed, i16::MIN.into(), i16::MAX.into()),
        Type::Int4 => read_integer(of, text, trimmed, i32::MIN.into(), i32::MAX.into()),
        Type::Int8 => read_integer(of, text, trimmed, i64::MIN, i64::MAX),
        Type::Oid => read_integer(of, text, trimmed, 0, u32::MAX.into()),
        Type::Float4 => {
            let (long, value) = read_float(of, text, trimmed).map(|long| (long, long as f32))?;
            let is_lost = value.is_infinite() && long.is_finite() || value == 0.0 && long != 0.0;
            if is_lost { Err(float_range(of, trimmed)) } else { Ok(Datum::Float(f64::from(value))) }
        }
        Type::Float8 => read_float(of, text, trimmed).map(Datum::Float),
        Type::Numeric => match Decimal::parse(trimmed) {
            Some(Ok(number)) => Ok(Datum::Numeric(number)),
            _ => Number::parse(trimmed).ok_or_else(|| invalid(of, text))??.within(context.arena),
        },
        Type::Bytea => read_bytes(text, context.arena).map(Datum::Bytes),
        Type::Uuid => read_uuid(trimmed).map(Datum::Uuid).ok_or_else(|| invalid(of, text)),
        Type::Date => times::read_date(text, trimmed, context).map(Datum::Date),
        Type::Time => times::read_time(text, trimmed).map(Datum::Time),
        Type::Timestamp | Type::Timestamptz => times::read_timestamp(of, text, trimmed, context).map(Datum::Timestamp),
        Type::Interval => intervals::read(text, trimmed).map(Datum::Interval),
        Type::Json => {
            json::read_json(text)?;
            Ok(Datum::Text(context.arena.alloc_str(text)))
        }
        Type::Jsonb => Ok(Datum::Json(context.arena.alloc_str(&json::parse(text)?.normal()?))),
        Type::Array(element) => {
            let (dimensions, items) = arrays::read(text)?;
            let read = |item: Option<String>| item.map_or(Ok(Datum::Null), |item| read(element.get(), &item, context));
            let items = items.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
            Ok(Array::datum(context.arena, &dimensions, items))
        }
        Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace | Type::Regrole => {
            read_integer(of, text, trimmed, 0, u32::MAX.into())
        }
        Type::Int2vector => read_vector(Type::Int2, trimmed, context),
        Type::Oidvector => read_vector(Type::Oid, trimmed, context),
        Type::Enum(of) => of.code(text).map(Datum::Int),
        Type::Record => Err(SqlError::unsupported("a text that stands for a row")),
        Type::Void | Type::AnyArray | Type::AnyElement | Type::AnyEnum => Ok(Datum::Null),
    }
}

/// Numbers with blanks between them, as an array that counts from 0.
fn read_vector<'a>(of: Type, text: &str, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let items = text.split_ascii_whitespace().map(|item| read(of, item, context)).collect::<Result<Vec<_>, _>>()?;
    let dimension = Dimension { lower: 0, ..Dimension::of(items.len()) };
    Ok(Array::datum(context.arena, if items.is_empty() { &[] } else { std::slice::from_ref(&dimension) }, items))
}

fn read_bool(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let starts = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
    match lower.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ if starts("true", 1) || starts("yes", 1) || lower == "on" => Some(true),
        _ if starts("false", 1) || starts("no", 1) || starts("off", 2) => Some(false),
        _ => None,
    }
}

fn read_integer<'a>(of: Type, text: &str, trimmed: &str, least: i64, most: i64) -> Result<Datum<'a>, SqlError> {
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(of, text));
    }
    let value = trimmed.parse::<i64>().ok().filter(|value| (least..=most).contains(value));
    value.map(Datum::Int).ok_or_else(|| out_of_range(of, text))
}

fn float_range(of: Type, text: &str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("\"{text}\" is out of range for type {of}"))
}

fn read_float(of: Type, text: &str, trimmed: &str) -> Result<f64, SqlError> {
    let lower = trimmed.to_ascii_lowercase();
    let value = match lower.as_str() {
        "nan" => return Ok(f64::NAN),
        "infinity" | "inf" | "+infinity" | "+inf" => return Ok(f64::INFINITY),
        "-infinity" | "-inf" => return Ok(f64::NEG_INFINITY),
        _ if lower.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'+' | b'-')) => None,
        _ => lower.parse::<f64>().ok(),
    };
    let value = value.ok_or_else(|| invalid(of, text))?;
    let is_zero = !lower.split('e').next().unwrap_or_default().bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    if value.is_infinite() || value == 0.0 && !is_zero { Err(float_range(of, trimmed)) } else { Ok(value + 0.0) }
}

fn read_bytes<'a>(text: &str, arena: &'a Bump) -> Result<&'a [u8], SqlError> {
    let bad = |what: &str| Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, what.to_owned()));
    let bad_hex = |what: String| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, what));
    let mut bytes = bumpalo::collections::Vec::with_capacity_in(text.len(), arena);
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<char> = hex.chars().filter(|it| !it.is_ascii_whitespace()).collect();
        if let Some(odd) = digits.iter().find(|digit| !digit.is_ascii_hexdigit()) {
            return bad_hex(format!("invalid hexadecimal digit: \"{odd}\""));
        }
        if digits.len() % 2 == 1 {
            return bad_hex("invalid hexadecimal data: odd number of digits".to_owned());
        }
        let value = |digit: char| digit.to_digit(16).unwrap_or_default() as u8;
        bytes.extend(digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])));
        return Ok(bytes.into_bump_slice());
    }
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match (byte, behind) {
            (b'\\', [b'\\', behind @ ..]) => {
                bytes.push(b'\\');
                behind
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                behind
            }
            (b'\\', _) => return bad("invalid input syntax for type bytea"),
            _ => {
                bytes.push(byte);
                behind
            }
        };
    }
    Ok(bytes.into_bump_slice())
}

fn read_uuid(text: &str) -> Option<[u8; 16]> {
    let inner = text.strip_prefix('{').map_or(Some(text), |inner| inner.strip_suffix('}'))?;
    let mut digits = Vec::with_capacity(32);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'-' if at > 0 && digits.len() % 4 == 0 && digits.len() < 32 => {}
            _ => digits.push(char::from(byte).to_digit(16)? as u8),
        }
    }
    let mut uuid = [0; 16];
    if digits.len() != 32 || inner.ends_with('-') || inner.contains("--") {
        return None;
    }
    uuid.iter_mut().zip(digits.chunks(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
    Some(uuid)
}

/// Appends a value that is not NULL as text.
pub(crate) fn write(of: Type, datum: Datum<'_>, zone: &Zone, out: &mut String) {
    // Writing to a string does not fail.
    let _ = match datum {
        Datum::Null => Ok(()),
        Datum::Bool(value) => write!(out, "{}", if value { 't' } else { 'f' }),
        Datum::Int(value) => match of {
            Type::Enum(of) if let Some(label) = of.label(value) => out.write_str(label),
            _ => write!(out, "{value}"),
        },
        Datum::Float(value) => {
            out.push_str(&format_float(value, of == Type::Float4));
            Ok(())
        }
        Datum::Numeric(value) => write!(out, "{value}"),
        Datum::Wide(_) => write!(out, "{}", Number::of(datum)),
        Datum::Text(text) | Datum::Json(text) => out.write_str(text),
        Datum::Array(row) if of == Type::Record => {
            crate::records::write(row, zone, out);
            Ok(())
        }
        Datum::Array(array) if of.is_vector() => {
            let items = array.items().enumerate();
            items.for_each(|(at, item)| {
                out.push_str(if at > 0 { " " } else { "" });
                write(Type::Oid, item, zone, out);
            });
            Ok(())
        }
        Datum::Array(array) => {
            let element = of.element().unwrap_or(Type::Text);
            arrays::write(array, out, &mut |item, out| write(element, item, zone, out));
            Ok(())
        }
        Datum::Bytes(bytes) => {
            out.push_str("\\x");
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Datum::Date(days) => times::format_date(days, out),
        Datum::Time(micros) => times::format_time(micros, out),
        Datum::Timestamp(micros) => {
            let zone = (of == Type::Timestamptz).then_some(zone);
            times::format_timestamp(micros, zone, out)
        }
        Datum::Interval(interval) => intervals::format(interval, out),
        Datum::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(out, "{dash}{byte:02x}")
        }),
    };
}

/// The shortest digits that stand for the number, in PostgreSQL's form (`extra_float_digits` 1).
pub(crate) fn format_float(value: f64, is_short: bool) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = if is_short { format!("{:e}", value as f32) } else { format!("{value:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let most = if is_short { 6 } else { 15 };
    if (-4..most).contains(&exponent) {
        return if is_short { format!("{}", value as f32) } else { format!("{value}") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(of: Type, text: &str) -> Result<String, SqlError> {
        let (arena, zone) = (Bump::new(), Zone::utc());
        let mut out = String::new();
        write(of, read(of, text, &Context::of(&arena, &zone))?, &zone, &mut out);
        Ok(out)
    }

    fn check(of: Type, pairs: &[(&str, &str)]) {
        for (text, wanted) in pairs {
            assert_eq!(through(of, text).map_err(|error| error.to_string()).as_deref(), Ok(*wanted), "{of} {text}");
        }
    }

    fn refused(of: Type, texts: &[&str], state: SqlState) {
        for text in texts {
            assert_eq!(through(of, text).map_err(|error| error.state()), Err(state), "{of} {text}");
        }
    }

    #[test]
    fn numbers() {
        check(Type::Int4, &[(" 42 ", "42"), ("-2147483648", "-2147483648"), ("+7", "7")]);
        refused(Type::Int4, &["", "x", "1.0", "0x10", "--1"], SqlState::INVALID_TEXT_REPRESENTATION);
        refused(Type::Int2, &["32768", "99999999999999999999"], SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        refused(Type::Oid, &["-1"], SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        let floats = [("1e15", "1e+15"), ("100000", "100000"), ("0.0001", "0.0001"), ("0.00001", "1e-05")];
        check(Type::Float8, &floats);
        check(Type::Float8, &[("-0", "0"), ("inf", "Infinity"), ("nan", "NaN"), ("1.5E+3", "1500"), (".5", "0.5")]);
        check(Type::Float4, &[("1e6", "1e+06"), ("123456", "123456"), ("0.1", "0.1")]);
        refused(Type::Float8, &["1e400", "1e-400"], SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        refused(Type::Float8, &["", "infinit", "1e", "0x1p3"], SqlState::INVALID_TEXT_REPRESENTATION);
        check(Type::Bool, &[("T", "t"), ("ye", "t"), ("on", "t"), ("of", "f"), ("0", "f"), (" n ", "f")]);
        refused(Type::Bool, &["", "o", "2", "truee"], SqlState::INVALID_TEXT_REPRESENTATION);
    }

    #[test]
    fn bytes_and_uuids() {
        check(Type::Bytea, &[("\\xDEad", "\\xdead"), ("a\\\\b\\001", "\\x615c6201"), ("", "\\x")]);
        refused(Type::Bytea, &["\\x1", "\\xg0"], SqlState::INVALID_PARAMETER_VALUE);
        refused(Type::Bytea, &["\\9"], SqlState::INVALID_TEXT_REPRESENTATION);
        let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        check(Type::Uuid, &[(uuid, uuid), ("{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", uuid)]);
        refused(
            Type::Uuid,
            &["", "a0", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
            SqlState::INVALID_TEXT_REPRESENTATION,
        );
    }

    #[test]
    fn dates_and_times() {
        check(
            Type::Date,
            &[("2024-02-29", "2024-02-29"), ("0001-01-01 BC", "0001-01-01 BC"), ("infinity", "infinity")],
        );
        check(Type::Date, &[("20240229", "2024-02-29"), ("epoch", "1970-01-01"), ("294276-12-31", "294276-12-31")]);
        refused(Type::Date, &["2023-02-29", "2024-13-01"], SqlState::DATETIME_FIELD_OVERFLOW);
        refused(Type::Date, &["", "today-ish", "2024"], SqlState::INVALID_DATETIME_FORMAT);
        check(Type::Time, &[("04:05:06.789", "04:05:06.789"), ("04:05", "04:05:00"), ("24:00:00", "24:00:00")]);
        refused(Type::Time, &["25:00:00", "04:60:00"], SqlState::DATETIME_FIELD_OVERFLOW);
        let timestamps = [
            ("2024-02-29 12:34:56.5", "2024-02-29 12:34:56.5"),
            ("2024-02-29T12:34", "2024-02-29 12:34:00"),
            ("2024-02-29", "2024-02-29 00:00:00"),
            ("-infinity", "-infinity"),
            ("2024-02-29 24:00:00", "2024-03-01 00:00:00"),
        ];
        check(Type::Timestamp, &timestamps);
        let zoned = [
            ("2024-02-29 12:00:00+02", "2024-02-29 10:00:00+00"),
            ("2024-02-29 12:00:00Z", "2024-02-29 12:00:00+00"),
            ("2024-07-01 12:00:00 Europe/Berlin", "2024-07-01 10:00:00+00"),
            ("2024-02-29 12:00:00-03:30", "2024-02-29 15:30:00+00"),
        ];
        check(Type::Timestamptz, &zoned);
    }

    #[test]
    fn spans() {
        let spans = [
            ("1 year 2 months 3 days 04:05:06.5", "1 year 2 mons 3 days 04:05:06.5"),
            ("-1 day", "-1 days"),
            ("1 day -00:00:01", "1 day -00:00:01"),
            ("1.5 hours", "01:30:00"),
            ("2 weeks", "14 days"),
            ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            ("1 month ago", "-1 mons"),
            ("0", "00:00:00"),
            ("1-2", "1 year 2 mons"),
        ];
        check(Type::Interval, &spans);
        refused(Type::Interval, &["", "1 fortnight", "x"], SqlState::INVALID_DATETIME_FORMAT);
    }
}
