//! PostgreSQL's binary format of COPY: its header, its rows, and values as their types' send functions write them.

use bumpalo::Bump;

use super::{bad_data, fields};
use crate::arrays::{Array, Dimension, MOST_DIMENSIONS, size};
use crate::datum::{Datum, Interval};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::json;
use crate::text::{DATES, DAY, TIMESTAMPS};
use crate::types::Type;
use crate::wide::Number;

const SIGNATURE: [u8; 11] = *b"PGCOPY\n\xff\r\n\0";
/// Days from 1970 to 2000, where PostgreSQL begins to count.
const EPOCH: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH as i64 * DAY;
/// The sign of a numeric.
const NEGATIVE: u16 = 0x4000;
/// Numerics with more digits of the base in front of their point have more than 38 digits.
const MOST_EXPONENT: i32 = 10;

#[cold]
fn cut_off() -> SqlError {
    bad_data("unexpected EOF in COPY data")
}

#[cold]
fn incorrect() -> SqlError {
    SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, "incorrect binary data format")
}

/// A row of the format.
pub(super) enum Row<'b> {
    /// So many bytes are needed at least.
    More(usize),
    /// The last one was before; the rest has this length.
    End(usize),
    /// Its fields, and its length.
    Fields(Vec<Option<&'b [u8]>>, usize),
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes)
}

/// The length of the header; `None`: more bytes are needed.
pub(super) fn header(bytes: &[u8], is_last: bool) -> Result<Option<usize>, SqlError> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes[..known] != SIGNATURE[..known] || is_last && known < SIGNATURE.len() {
        return Err(bad_data("COPY file signature not recognized"));
    }
    let missing = |what: &str| {
        if is_last { Err(bad_data(format!("invalid COPY file header (missing {what})"))) } else { Ok(None) }
    };
    let Some(flags) = number(bytes, SIGNATURE.len()) else { return missing("flags") };
    if flags & (1 << 16) != 0 {
        return Err(bad_data("invalid COPY file header (WITH OIDS)"));
    }
    if (flags as u32) >> 16 != 0 {
        return Err(bad_data("unrecognized critical flags in COPY file header"));
    }
    let Some(extension) = number(bytes, SIGNATURE.len() + 4) else { return missing("length") };
    let wrong = || bad_data("invalid COPY file header (wrong length)");
    let extension = usize::try_from(extension).ok().filter(|it| *it <= super::LONGEST).ok_or_else(wrong)?;
    let length = SIGNATURE.len() + 8 + extension;
    match bytes.len() >= length {
        true => Ok(Some(length)),
        false if is_last => Err(wrong()),
        false => Ok(None),
    }
}

/// The row at the beginning of these bytes, which has as many fields.
pub(super) fn row(bytes: &[u8], width: usize, is_last: bool) -> Result<Row<'_>, SqlError> {
    let Some(count) = bytes.get(..2) else {
        // Without its end the data are complete as well.
        return match (is_last, bytes.len()) {
            (true, 0) => Ok(Row::End(0)),
            (true, _) => Err(cut_off()),
            (false, _) => Ok(Row::More(2)),
        };
    };
    let count = i16::from_be_bytes([count[0], count[1]]);
    if count == -1 {
        return Ok(Row::End(2));
    }
    if usize::try_from(count) != Ok(width) {
        return Err(bad_data(format!("row field count is {count}, expected {width}")));
    }
    let (mut found, mut at) = (Vec::with_capacity(width), 2);
    let more = |length| if is_last { Err(cut_off()) } else { Ok(Row::More(length)) };
    for _ in 0..width {
        let Some(length) = number(bytes, at) else { return more(at + 4) };
        at += 4;
        if length == -1 {
            found.push(None);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| bad_data("invalid field size"))?;
        let Some(end) = at.checked_add(length).filter(|end| *end <= super::LONGEST) else {
            return Err(super::too_long());
        };
        let Some(field) = bytes.get(at..end) else { return more(end) };
        found.push(Some(field));
        at = end;
    }
    Ok(Row::Fields(found, at))
}

/// What is left of a value's bytes.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], SqlError> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message"));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SqlError> {
        self.take(N).map(|bytes| bytes.try_into().unwrap_or([0; N]))
    }

    fn int2(&mut self) -> Result<i16, SqlError> {
        self.array().map(i16::from_be_bytes)
    }

    fn int4(&mut self) -> Result<i32, SqlError> {
        self.array().map(i32::from_be_bytes)
    }

    fn int8(&mut self) -> Result<i64, SqlError> {
        self.array().map(i64::from_be_bytes)
    }
}

/// The value of a type that these bytes stand for.
pub(crate) fn read<'a>(of: Type, bytes: &[u8], arena: &'a Bump) -> Result<Datum<'a>, SqlError> {
    let mut rest = Rest(bytes);
    let value = value(of, &mut rest, arena)?;
    if rest.0.is_empty() { Ok(value) } else { Err(incorrect()) }
}

fn value<'a>(of: Type, rest: &mut Rest<'_>, arena: &'a Bump) -> Result<Datum<'a>, SqlError> {
    let length = rest.0.len();
    let text = |rest: &mut Rest<'_>| {
        let text = fields::text_of(rest.take(rest.0.len())?)?;
        Ok::<_, SqlError>(&*arena.alloc_str(text))
    };
    Ok(match of {
        Type::Bool => Datum::Bool(rest.take(1)?[0] != 0),
        Type::Int2 => Datum::Int(rest.int2()?.into()),
        Type::Int4 => Datum::Int(rest.int4()?.into()),
        Type::Int8 => Datum::Int(rest.int8()?),
        Type::Oid => Datum::Int((rest.int4()? as u32).into()),
        _ if of.is_object() => Datum::Int((rest.int4()? as u32).into()),
        Type::Float4 => Datum::Float((f32::from_be_bytes(rest.array()?) + 0.0).into()),
        Type::Float8 => Datum::Float(f64::from_be_bytes(rest.array()?) + 0.0),
        Type::Numeric => Datum::Numeric(numeric(rest)?),
        Type::Text | Type::Varchar | Type::Unknown => Datum::Text(text(rest)?),
        Type::Bpchar => Datum::Text(text(rest)?.trim_end_matches(' ')),
        Type::Json => {
            let text = text(rest)?;
            json::parse(text)?;
            Datum::Text(text)
        }
        Type::Jsonb => {
            let version = rest.take(1)?[0];
            if version != 1 {
                return Err(SqlError::internal(format!("unsupported jsonb version number {version}")));
            }
            Datum::Json(arena.alloc_str(&json::parse(text(rest)?)?.normal()?))
        }
        Type::Bytea => Datum::Bytes(arena.alloc_slice_copy(rest.take(length)?)),
        Type::Date => Datum::Date(date(rest.int4()?)?),
        Type::Time => {
            let micros = rest.int8()?;
            if !(0..=DAY).contains(&micros) {
                return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "time out of range"));
            }
            Datum::Time(micros)
        }
        Type::Timestamp | Type::Timestamptz => Datum::Timestamp(timestamp(rest.int8()?)?),
        Type::Interval => {
            let (micros, days, months) = (rest.int8()?, rest.int4()?, rest.int4()?);
            Datum::Interval(Interval { months, days, micros })
        }
        Type::Uuid => Datum::Uuid(rest.array()?),
        Type::Array(element) => array(element.get(), rest, arena)?,
        Type::Int2vector => array(Type::Int2, rest, arena)?,
        Type::Oidvector => array(Type::Oid, rest, arena)?,
        Type::Enum(of) => Datum::Int(of.code(text(rest)?)?),
        Type::Record => return Err(SqlError::unsupported("a row that a client sends")),
        Type::Void | Type::AnyArray | Type::AnyElement | Type::AnyEnum => return Err(incorrect()),
        Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace | Type::Regrole => {
            Datum::Int((rest.int4()? as u32).into())
        }
    })
}

fn date(days: i32) -> Result<i32, SqlError> {
    if matches!(days, i32::MIN | i32::MAX) {
        return Ok(days);
    }
    let since = i64::from(days) + i64::from(EPOCH);
    let known = DATES.contains(&since).then(|| since.try_into().ok()).flatten();
    known.ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range"))
}

fn timestamp(micros: i64) -> Result<i64, SqlError> {
    if matches!(micros, i64::MIN | i64::MAX) {
        return Ok(micros);
    }
    let since = micros.checked_add(EPOCH_MICROS).filter(|since| TIMESTAMPS.contains(since));
    since.ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
}

/// Digits to the base of 10,000.
fn numeric(rest: &mut Rest<'_>) -> Result<Decimal, SqlError> {
    use std::fmt::Write as _;

    let bad = |what: &str| {
        let message = format!("invalid {what} in external \"numeric\" value");
        Err(SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message))
    };
    let (count, weight) = (rest.int2()? as u16, rest.int2()?);
    let (sign, scale) = (rest.int2()? as u16, rest.int2()?);
    let is_number = matches!(sign, 0 | NEGATIVE);
    if !is_number {
        let is_known = matches!(sign, 0xc000 | 0xd000 | 0xf000);
        let unsupported = || Err(SqlError::unsupported("a numeric that is no number, or infinite,"));
        return if is_known { unsupported() } else { bad("sign") };
    }
    if !(0..=0x3fff).contains(&scale) {
        return bad("scale");
    }
    let mut digits = Vec::with_capacity(usize::from(count).min(1024));
    for _ in 0..count {
        let digit = rest.int2()?;
        if !(0..10_000).contains(&digit) {
            return bad("digit");
        }
        digits.push(digit);
    }
    let first = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
    let exponent = i32::from(weight) - first as i32;
    let too_large = || SqlError::unsupported("a numeric of more than 38 digits");
    let places = usize::try_from(scale).unwrap_or_default();
    // Below its scale it is cut, as a numeric is that is received.
    if first == digits.len() || exponent < -i32::from(scale) {
        return Decimal::ZERO.rescale(scale.unsigned_abs().into()).map_err(|_| too_large());
    }
    if exponent > MOST_EXPONENT {
        return Err(too_large());
    }
    // The digits, of which the point stands behind so many.
    let point = usize::try_from((exponent + 1) * 4).unwrap_or_default();
    let mut all = "0000".repeat(usize::try_from(-(exponent + 1)).unwrap_or_default());
    for digit in &digits[first..] {
        let _ = write!(all, "{digit:04}");
    }
    while all.len() < point + places {
        all.push('0');
    }
    let (whole, fraction) = (&all[..point], &all[point..point + places]);
    let (sign, separator) = (if sign == NEGATIVE { "-" } else { "" }, if fraction.is_empty() { "" } else { "." });
    Decimal::parse(&format!("{sign}0{whole}{separator}{fraction}")).unwrap_or_else(|| Err(too_large()))
}

fn array<'a>(of: Type, rest: &mut Rest<'_>, arena: &'a Bump) -> Result<Datum<'a>, SqlError> {
    let bad = |message: String| SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message);
    let count = rest.int4()?;
    let dimensions = usize::try_from(count).map_err(|_| bad(format!("invalid number of dimensions: {count}")))?;
    if dimensions > MOST_DIMENSIONS {
        return Err(crate::arrays::too_many_dimensions(dimensions));
    }
    let flags = rest.int4()?;
    if !matches!(flags, 0 | 1) {
        return Err(bad("invalid array flags".to_owned()));
    }
    let oid = rest.int4()? as u32;
    if oid != of.oid() {
        let message = format!("binary data has array element type {oid} instead of expected {}", of.oid());
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    let mut shape = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        let (length, lower) = (rest.int4()?, rest.int4()?);
        if length < 0 || lower.checked_add(length).is_none() {
            return Err(bad("invalid array dimensions".to_owned()));
        }
        shape.push(Dimension { length, lower });
    }
    let count = if shape.is_empty() { 0 } else { size(&shape)? };
    // Each has its length, at least.
    if count > rest.0.len() / 4 {
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message"));
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let length = rest.int4()?;
        items.push(match usize::try_from(length) {
            Ok(length) => read(of, rest.take(length)?, arena)?,
            Err(_) if length == -1 => Datum::Null,
            Err(_) => return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message")),
        });
    }
    if count == 0 {
        shape.clear();
    }
    Ok(Array::datum(arena, &shape, items))
}

/// Appends what comes before the rows.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[0; 8]);
}

/// Appends what comes behind the rows.
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i16).to_be_bytes());
}

/// Appends a value with its length.
pub(crate) fn write(of: Type, datum: Datum<'_>, out: &mut Vec<u8>) {
    if datum.is_null() {
        return out.extend_from_slice(&(-1_i32).to_be_bytes());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write_value(of, datum, out);
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// As [`write_numeric`], of any numeric.
fn write_wide(number: &Number, out: &mut Vec<u8>) {
    let special = match number {
        Number::Finite { .. } => None,
        Number::Nan => Some(0xc000_u16),
        Number::Infinite { is_negative: false } => Some(0xd000),
        Number::Infinite { is_negative: true } => Some(0xf000),
    };
    if let Some(sign) = special {
        [0, 0, sign, 0].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        return;
    }
    let text = number.to_string();
    let unsigned = text.trim_start_matches('-');
    let (whole, part) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let whole = format!("{:0>1$}", whole, whole.len().next_multiple_of(4));
    let all = format!("{whole}{:0<1$}", part, part.len().next_multiple_of(4));
    let digit = |four: &[u8]| four.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let digits: Vec<_> = all.as_bytes().chunks(4).map(digit).collect();
    let first = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
    let end = digits.iter().rposition(|digit| *digit != 0).map_or(first, |at| at + 1);
    let weight = (whole.len() / 4) as i32 - 1 - first as i32;
    let sign = if text.starts_with('-') { NEGATIVE } else { 0 };
    let head = [(end - first) as u16, weight as u16, sign, part.len() as u16];
    head.iter().chain(&digits[first..end]).for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

fn write_value(of: Type, datum: Datum<'_>, out: &mut Vec<u8>) {
    match (datum, of) {
        (Datum::Null, _) => {}
        (Datum::Bool(value), _) => out.push(value.into()),
        (Datum::Int(value), Type::Int2) => out.extend_from_slice(&(value as i16).to_be_bytes()),
        (Datum::Int(value), Type::Int8) => out.extend_from_slice(&value.to_be_bytes()),
        (Datum::Int(value), Type::Enum(of)) => out.extend_from_slice(of.label(value).unwrap_or_default().as_bytes()),
        // `integer` and object ids have 32 bits.
        (Datum::Int(value), _) => out.extend_from_slice(&(value as u32).to_be_bytes()),
        (Datum::Float(value), Type::Float4) => out.extend_from_slice(&(value as f32).to_be_bytes()),
        (Datum::Float(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Datum::Numeric(value), _) => write_numeric(value, out),
        (Datum::Wide(_), _) => write_wide(&Number::of(datum), out),
        (Datum::Text(text), _) => out.extend_from_slice(text.as_bytes()),
        (Datum::Json(text), _) => {
            out.push(1);
            out.extend_from_slice(text.as_bytes());
        }
        (Datum::Bytes(bytes), _) => out.extend_from_slice(bytes),
        (Datum::Date(days), _) => {
            let days = if matches!(days, i32::MIN | i32::MAX) { days } else { days - EPOCH };
            out.extend_from_slice(&days.to_be_bytes());
        }
        (Datum::Time(micros), _) => out.extend_from_slice(&micros.to_be_bytes()),
        (Datum::Timestamp(micros), _) => {
            let micros = if matches!(micros, i64::MIN | i64::MAX) { micros } else { micros - EPOCH_MICROS };
            out.extend_from_slice(&micros.to_be_bytes());
        }
        (Datum::Interval(Interval { months, days, micros }), _) => {
            out.extend_from_slice(&micros.to_be_bytes());
            out.extend_from_slice(&days.to_be_bytes());
            out.extend_from_slice(&months.to_be_bytes());
        }
        (Datum::Uuid(bytes), _) => out.extend_from_slice(&bytes),
        (Datum::Array(row), Type::Record) => write_row(row, out),
        (Datum::Array(array), _) => write_array(of.element().unwrap_or(Type::Text), array, out),
    }
}

fn write_array(of: Type, array: Array<'_>, out: &mut Vec<u8>) {
    let dimensions = array.dimensions();
    let has_nulls = array.items().any(Datum::is_null);
    out.extend_from_slice(&(dimensions.len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(has_nulls).to_be_bytes());
    out.extend_from_slice(&of.oid().to_be_bytes());
    for dimension in dimensions {
        out.extend_from_slice(&dimension.length.to_be_bytes());
        out.extend_from_slice(&dimension.lower.to_be_bytes());
    }
    array.items().for_each(|item| write(of, item, out));
}

fn write_row(row: Array<'_>, out: &mut Vec<u8>) {
    let fields: Vec<_> = crate::records::fields(row).collect();
    out.extend_from_slice(&(fields.len() as i32).to_be_bytes());
    for ((_, of), value) in fields {
        out.extend_from_slice(&of.oid().to_be_bytes());
        write(of, value, out);
    }
}

fn write_numeric(value: Decimal, out: &mut Vec<u8>) {
    let (scale, base) = (value.scale(), 10_000_u128);
    let units = value.units().unsigned_abs();
    // The fraction has whole digits of the base: up to three zeros are put behind it.
    let zeros = (4 - scale % 4) % 4;
    let places = (scale + zeros) / 4;
    let mut digits = Vec::new();
    // With the zeros it may need more than 128 bits: the last digit is taken apart first.
    let split = 10_u128.pow(4 - zeros);
    let (mut rest, last) = (units / split, (units % split) * 10_u128.pow(zeros));
    digits.push(last as u16);
    while rest > 0 {
        digits.push((rest % base) as u16);
        rest /= base;
    }
    let weight = digits.len() as i32 - 1 - places as i32;
    let leading = digits.iter().rev().take_while(|digit| **digit == 0).count();
    let trailing = digits.iter().take_while(|digit| **digit == 0).count();
    let is_zero = leading == digits.len();
    let kept: Vec<_> =
        if is_zero { Vec::new() } else { digits[trailing..digits.len() - leading].iter().rev().collect() };
    let weight = if is_zero { 0 } else { weight - leading as i32 };
    out.extend_from_slice(&(kept.len() as u16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    out.extend_from_slice(&(if value.units() < 0 { NEGATIVE } else { 0 }).to_be_bytes());
    out.extend_from_slice(&(scale as u16).to_be_bytes());
    kept.into_iter().for_each(|digit| out.extend_from_slice(&digit.to_be_bytes()));
}
