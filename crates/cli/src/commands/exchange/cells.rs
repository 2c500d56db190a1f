//! Values as the cells of a CSV file, and back, without loss.

use polychron::schema::{ColumnType, Value, ValueRef};

use super::{variant_name, variant_number};

/// What stands for NULL.
const NULL: &str = r"\N";
const MICROSECONDS: i64 = 1_000_000;

/// A value as text.
pub(super) fn cell(kind: ColumnType, value: ValueRef<'_>) -> String {
    match (kind, value) {
        (_, ValueRef::Null) => NULL.to_owned(),
        (_, ValueRef::String(text)) => escaped(text.to_owned()),
        (_, ValueRef::Char(character)) => escaped(character.to_string()),
        (_, ValueRef::Bytes(bytes)) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        // The short number says as much as the long one.
        (ColumnType::F32, ValueRef::Float(number)) => (number as f32).to_string(),
        (ColumnType::Enum(kind), value) => {
            let text = value.to_string();
            let name = text.parse().ok().and_then(|number| variant_name(kind, number));
            name.map_or(text, |name| escaped(name.to_owned()))
        }
        (_, ValueRef::Date(days)) => date(days).unwrap_or_else(|| days.to_string()),
        (_, ValueRef::Timestamp(time)) => {
            jiff::Timestamp::from_microsecond(time).map_or_else(|_| time.to_string(), |time| time.to_string())
        }
        (_, value) => value.to_string(),
    }
}

/// Text of a cell as a value for a column.
///
/// # Errors
/// What the cell is not.
pub(super) fn parse(kind: ColumnType, is_nullable: bool, cell: &str) -> Result<Value, String> {
    if cell == NULL {
        return Ok(Value::Null);
    }
    let is_text = matches!(
        kind,
        ColumnType::String { .. }
            | ColumnType::FixedString { .. }
            | ColumnType::Bytes { .. }
            | ColumnType::FixedBytes { .. }
    );
    if cell.is_empty() && is_nullable && !is_text {
        return Ok(Value::Null);
    }
    value(kind, cell).ok_or_else(|| format!("`{cell}` is no {kind}"))
}

fn value(kind: ColumnType, cell: &str) -> Option<Value> {
    Some(match kind {
        ColumnType::Bool => Value::Bool(cell.parse().ok()?),
        ColumnType::F32 => Value::Float(f64::from(cell.parse::<f32>().ok()?)),
        ColumnType::F64 => Value::Float(cell.parse().ok()?),
        ColumnType::Char => {
            let text = unescaped(cell)?;
            let mut characters = text.chars();
            let first = characters.next()?;
            return characters.next().is_none().then_some(Value::Char(first));
        }
        ColumnType::Enum(kind) => return variant_number(kind, unescaped(cell)?),
        ColumnType::Decimal { .. } | ColumnType::Decimal128 { .. } => return decimal(cell),
        ColumnType::Date => Value::Date(cell.parse().ok().or_else(|| days(cell))?),
        ColumnType::Timestamp => {
            let time = cell.parse::<i64>().ok();
            Value::Timestamp(time.or_else(|| microseconds(cell.parse().ok()?))?)
        }
        ColumnType::String { .. } | ColumnType::FixedString { .. } => Value::String(unescaped(cell)?.to_owned()),
        ColumnType::Bytes { .. } | ColumnType::FixedBytes { .. } => Value::Bytes(bytes(cell)?),
        _ => return integer(cell),
    })
}

fn escaped(text: String) -> String {
    if text.starts_with('\\') { format!("\\{text}") } else { text }
}

/// Text that begins with a backslash has another one before.
fn unescaped(cell: &str) -> Option<&str> {
    match cell.strip_prefix('\\') {
        Some(rest) => rest.starts_with('\\').then_some(rest),
        None => Some(cell),
    }
}

fn integer(cell: &str) -> Option<Value> {
    let narrow = cell.parse().map(Value::Integer).or_else(|_| cell.parse().map(Value::Unsigned));
    narrow.or_else(|_| cell.parse().map(Value::Integer128)).or_else(|_| cell.parse().map(Value::Unsigned128)).ok()
}

fn decimal(cell: &str) -> Option<Value> {
    let (whole, part) = cell.split_once('.').unwrap_or((cell, ""));
    if !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let units = format!("{whole}{part}").parse().ok()?;
    Some(Value::Decimal { units, scale: part.len() as u32 })
}

fn date(days: i32) -> Option<String> {
    let first = jiff::civil::date(1970, 1, 1);
    first.checked_add(jiff::Span::new().try_days(days).ok()?).ok().map(|date| date.to_string())
}

fn days(cell: &str) -> Option<i32> {
    let date: jiff::civil::Date = cell.parse().ok()?;
    let first = jiff::civil::date(1970, 1, 1);
    Some(first.until(date).ok()?.get_days())
}

/// Exactly: a time between two microseconds is none.
fn microseconds(time: jiff::Timestamp) -> Option<i64> {
    let back = time.as_microsecond();
    let is_exact = time.as_nanosecond() == i128::from(back) * i128::from(1_000_000_000 / MICROSECONDS);
    is_exact.then_some(back)
}

fn bytes(cell: &str) -> Option<Vec<u8>> {
    let digits = cell.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round_trip(kind: ColumnType, value: &Value, expected: &str) {
        let text = cell(kind, value.as_value_ref());
        assert_eq!(text, expected);
        assert_eq!(cell(kind, parse(kind, true, &text).unwrap().as_value_ref()), text);
    }

    #[test]
    fn values_are_written_as_people_write_them() {
        let text = ColumnType::String { max: 100 };
        round_trip(text, &Value::Null, r"\N");
        round_trip(text, &Value::from(""), "");
        round_trip(text, &Value::from(r"\N"), r"\\N");
        round_trip(text, &Value::from("a,\"b\"\r\n"), "a,\"b\"\r\n");
        round_trip(ColumnType::Bytes { max: 9 }, &Value::from(vec![0, 255, 16]), "00ff10");
        round_trip(ColumnType::F32, &Value::Float(f64::from(0.1_f32)), "0.1");
        round_trip(ColumnType::F64, &Value::Float(0.1), "0.1");
        round_trip(ColumnType::Date, &Value::Date(20_000), "2024-10-04");
        round_trip(ColumnType::Date, &Value::Date(i32::MIN), "-2147483648");
        round_trip(ColumnType::Timestamp, &Value::Timestamp(1_000_001), "1970-01-01T00:00:01.000001Z");
        round_trip(ColumnType::Timestamp, &Value::Timestamp(i64::MAX), "9223372036854775807");
        round_trip(ColumnType::Decimal { scale: 2 }, &Value::Decimal { units: -5, scale: 2 }, "-0.05");
        round_trip(ColumnType::U128, &Value::Unsigned128(u128::MAX), &u128::MAX.to_string());
        round_trip(ColumnType::Char, &Value::Char('\\'), r"\\");
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (kind, cell) in [
            (ColumnType::U8, "x"),
            (ColumnType::U8, ""),
            (ColumnType::Bool, "1"),
            (ColumnType::Decimal { scale: 2 }, "1.2.3"),
            (ColumnType::Decimal { scale: 2 }, "1.-2"),
            (ColumnType::Date, "2024-13-01"),
            (ColumnType::Timestamp, "1970-01-01T00:00:00.0000001Z"),
            (ColumnType::Char, "ab"),
            (ColumnType::Bytes { max: 9 }, "0"),
            (ColumnType::Bytes { max: 9 }, "0g"),
            (ColumnType::String { max: 9 }, r"\x"),
        ] {
            assert_eq!(parse(kind, false, cell), Err(format!("`{cell}` is no {kind}")));
        }
        assert_eq!(parse(ColumnType::U8, true, ""), Ok(Value::Null));
    }
}
