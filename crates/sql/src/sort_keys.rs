//! Bytes that are sorted as the values of types are that the engine does not sort: numerics without precision, spans of time, arrays, `jsonb`.
//!
//! Two values have the same bytes if they are equal, and only then. No value's bytes begin with those of another one, so that elements stand side by side.

use crate::arrays::Array;
use crate::datum::{Datum, compare_floats};
use crate::functions::Function;
use crate::json::{self, Form, Value};
use crate::types::{Bound, ColumnType, Type};
use crate::wide::Number;

/// Makes the bytes of a value. Statements have no name for it.
pub(crate) static SORT_KEY: Function = Function {
    name: "sort key",
    arguments: &[Type::AnyElement],
    result: Type::Bytea,
    is_strict: true,
    eval: |values, context| {
        let mut bytes = Vec::new();
        put(&mut bytes, values[0]);
        Ok(Datum::Bytes(context.arena.alloc_slice_copy(&bytes)))
    },
};

/// Whether keys of the engine are sorted, and equal, as values of the type are.
pub(crate) fn is_sorted_as_stored(of: ColumnType) -> bool {
    match of.base {
        Type::Numeric => of.bound != Bound::None,
        Type::Interval | Type::Jsonb | Type::Array(_) => false,
        _ => true,
    }
}

/// What stands in front of a value in an array: nothing comes behind it, or one that is not NULL, or NULL, which is the greatest.
const END: u8 = 0;
const VALUE: u8 = 1;
const NULL: u8 = 2;

/// Signs of a number.
const NEGATIVE: u8 = 0x40;
const ZERO: u8 = 0x80;
const POSITIVE: u8 = 0xC0;

fn put(key: &mut Vec<u8>, value: Datum<'_>) {
    match value {
        Datum::Null => key.push(NULL),
        Datum::Bool(value) => key.push(value.into()),
        Datum::Int(value) | Datum::Time(value) | Datum::Timestamp(value) => put_signed(key, value.into(), 8),
        Datum::Date(days) => put_signed(key, days.into(), 4),
        Datum::Float(value) => put_float(key, value),
        Datum::Numeric(value) => put_number(key, &value.to_string()),
        Datum::Wide(_) => put_wide(key, &Number::of(value)),
        Datum::Text(text) => put_bytes(key, text.as_bytes()),
        Datum::Bytes(bytes) => put_bytes(key, bytes),
        Datum::Interval(interval) => put_signed(key, interval.span(), 16),
        Datum::Uuid(uuid) => key.extend(uuid),
        Datum::Json(text) => put_json(key, &json::known(text), false),
        Datum::Array(array) => put_array(key, array),
    }
}

/// Infinity lies beyond all numbers, and what is no number beyond that.
fn put_wide(key: &mut Vec<u8>, value: &Number) {
    match value {
        Number::Finite { .. } => put_number(key, &value.to_string()),
        Number::Infinite { is_negative: true } => key.push(0),
        Number::Infinite { .. } => key.push(u8::MAX - 1),
        Number::Nan => key.push(u8::MAX),
    }
}

/// An integer in so many bytes, with its sign in front.
fn put_signed(key: &mut Vec<u8>, value: i128, width: usize) {
    let bytes = value.to_be_bytes();
    let start = key.len();
    key.extend(&bytes[bytes.len() - width..]);
    key[start] ^= 0x80;
}

fn put_float(key: &mut Vec<u8>, value: f64) {
    // One zero, and one NaN, which is the greatest.
    let value = if compare_floats(value, 0.0).is_eq() { 0.0 } else { value };
    let bits = if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { value.to_bits() };
    let sorted = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    key.extend(sorted.to_be_bytes());
}

/// Bytes with an end that is less than whatever goes on.
fn put_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        key.push(byte);
        if byte == 0 {
            key.push(u8::MAX);
        }
    }
    key.extend([0, 0]);
}

/// A number, of any length, as it is written without an exponent: its sign, the position of its first digit, and its digits in pairs.
pub(crate) fn put_number(key: &mut Vec<u8>, text: &str) {
    let (sign, digits) = text.strip_prefix('-').map_or((POSITIVE, text), |digits| (NEGATIVE, digits));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let leading = whole.bytes().chain(part.bytes()).take_while(|digit| *digit == b'0').count();
    let digits: Vec<u8> =
        whole.bytes().chain(part.bytes()).skip(leading).map(|digit| digit.wrapping_sub(b'0')).collect();
    let length = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
    if length == 0 {
        key.push(ZERO);
        return;
    }
    let start = key.len();
    put_signed(key, whole.len() as i128 - leading as i128, 4);
    for pair in digits[..length].chunks(2) {
        // No pair is the end.
        key.push(1 + pair[0] * 10 + pair.get(1).copied().unwrap_or(0));
    }
    key.push(0);
    if sign == NEGATIVE {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    key.insert(start, sign);
}

/// As [`Array::compare`] has it: elements, then how many there are, then the dimensions.
fn put_array(key: &mut Vec<u8>, array: Array<'_>) {
    for item in array.items() {
        if !item.is_null() {
            key.push(VALUE);
        }
        put(key, item);
    }
    key.push(END);
    let dimensions = array.dimensions();
    key.push(dimensions.len() as u8);
    for dimension in dimensions {
        put_signed(key, dimension.length.into(), 4);
        put_signed(key, dimension.lower.into(), 4);
    }
}

/// As [`Value::compare`] has it: the kind, then for those that have parts how many, then these.
fn put_json(key: &mut Vec<u8>, value: &Value<'_>, is_within: bool) {
    key.push(value.rank(is_within));
    match &value.of {
        Form::Null => {}
        Form::Bool(value) => key.push((*value).into()),
        Form::Text(text) => put_bytes(key, text.as_bytes()),
        Form::Number => put_number(key, value.raw),
        Form::Array(items) => {
            put_signed(key, items.len() as i128, 4);
            items.iter().for_each(|item| put_json(key, item, true));
        }
        Form::Object(pairs) => {
            let pairs = json::in_order(pairs);
            put_signed(key, pairs.len() as i128, 4);
            for (name, value) in pairs {
                put_bytes(key, name.as_bytes());
                put_json(key, value, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datum::Interval;
    use crate::decimal::Decimal;

    fn key(value: Datum<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, value);
        bytes
    }

    /// Bytes have the order of all pairs of these values, and those of none begin with another one's.
    fn check(values: &[Datum<'_>]) {
        for one in values {
            for other in values {
                let (own, others) = (key(*one), key(*other));
                assert_eq!(own.cmp(&others), one.compare(*other), "{one:?} and {other:?}");
                assert!(own == others || !own.starts_with(&others), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn numbers_are_sorted_by_their_bytes() {
        let texts = [
            "0",
            "0.00",
            "1",
            "1.0",
            "1.5",
            "10",
            "9.99",
            "100",
            "101",
            "0.1",
            "0.10",
            "0.01",
            "0.011",
            "-1",
            "-1.0",
            "-1.5",
            "-10",
            "-0.1",
            "-0.01",
            "99999999999999999999999999999999999999",
            "123456789012345678901234567890",
            "-99999999999999999999999999999999999999",
            "0.00000000000000000000000000000000000001",
            "10203",
            "10203.04",
        ];
        let values: Vec<_> = texts.iter().map(|it| Datum::Numeric(Decimal::parse(it).unwrap().unwrap())).collect();
        check(&values);
    }

    #[test]
    fn spans_floats_and_texts_are_sorted_by_their_bytes() {
        let span = |months, days, micros| Datum::Interval(Interval { months, days, micros });
        check(&[
            span(0, 0, 0),
            span(1, 0, 0),
            span(0, 30, 0),
            span(0, 29, 86_400_000_000),
            span(0, 31, -1),
            span(-1, 0, 1),
            span(i32::MIN, i32::MIN, i64::MIN),
            span(i32::MAX, i32::MAX, i64::MAX),
        ]);
        check(&[0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, 1e-300].map(Datum::Float));
        check(&["", "a", "a\0", "a\0b", "ab", "b", "\u{1}"].map(Datum::Text));
        check(&[i64::MIN, -1, 0, 1, 255, 256, i64::MAX].map(Datum::Int));
    }

    #[test]
    fn arrays_are_sorted_by_their_bytes() {
        let arena = bumpalo::Bump::new();
        let mut lists = vec![Array::list(&arena, &[])];
        let items = [Datum::Int(-1), Datum::Int(0), Datum::Int(7), Datum::Null];
        for first in items {
            lists.push(Array::list(&arena, &[first]));
            lists.extend(items.map(|second| Array::list(&arena, &[first, second])));
            lists.extend(items.map(|last| Array::list(&arena, &[first, Datum::Int(0), last])));
        }
        lists.push(crate::arrays::nested(&arena, &[lists[2], lists[2]]).unwrap());
        check(&lists);
    }

    #[test]
    fn json_is_sorted_by_its_bytes() {
        let texts = [
            "null",
            "true",
            "false",
            "1",
            "1.0",
            "-1",
            "10",
            "\"\"",
            "\"a\"",
            "\"ab\"",
            "[]",
            "[1]",
            "[1, 2]",
            "[2]",
            "[[]]",
            "{}",
            "{\"a\": 1}",
            "{\"a\": 2}",
            "{\"b\": 1}",
            "{\"aa\": 1}",
            "{\"a\": []}",
            "{\"a\": null}",
            "[[], 1]",
            "[null]",
            "{\"b\": 0, \"aa\": 1}",
            "{\"a\": 1, \"b\": null}",
            "123456789012345678901234567890123456789012345",
            "123456789012345678901234567890123456789012345.0",
            "99999999999999999999999999999999999999999999",
        ];
        check(&texts.map(Datum::Json));
    }
}
