//! Texts as bytes and bytes as texts, quoting, and texts of a format.

use std::iter::Peekable;
use std::str::Chars;

use super::strings::check_length;
use super::{Function, functions};
use crate::arrays::Array;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::tape::volatile;
use crate::text::read;
use crate::types::Type;

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn bytes<'a>(datum: Datum<'a>) -> &'a [u8] {
    if let Datum::Bytes(bytes) = datum { bytes } else { unreachable!("bytes") }
}

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

fn made<'a>(context: &Context<'a>, text: &str) -> Result<Datum<'a>, SqlError> {
    Ok(Datum::Text(context.arena.alloc_str(text)))
}

fn made_bytes<'a>(context: &Context<'a>, bytes: &[u8]) -> Datum<'a> {
    Datum::Bytes(context.arena.alloc_slice_copy(bytes))
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// In lines of 76 letters.
fn in_base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, chunk) in bytes.chunks(3).enumerate() {
        if at > 0 && at % 19 == 0 {
            out.push('\n');
        }
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for letter in 0..4 {
            let is_there = letter <= chunk.len();
            let digit = word >> (18 - 6 * letter) & 63;
            out.push(if is_there { char::from(BASE64[digit as usize]) } else { '=' });
        }
    }
    out
}

fn of_base64(text: &str) -> Result<Vec<u8>, SqlError> {
    let (mut out, mut word, mut count, mut ends) = (Vec::new(), 0_u32, 0, 0);
    for letter in text.chars().filter(|it| !it.is_ascii_whitespace()) {
        let digit = match letter {
            '=' if count >= 2 => {
                ends += 1;
                0
            }
            '=' => return Err(invalid("unexpected \"=\" while decoding base64 sequence")),
            _ => {
                let digit = BASE64.iter().position(|own| char::from(*own) == letter).filter(|_| ends == 0);
                digit.ok_or_else(|| {
                    invalid(format!("invalid symbol \"{letter}\" found while decoding base64 sequence"))
                })?
            }
        };
        word = word << 6 | digit as u32;
        count += 1;
        if count == 4 {
            let all = word.to_be_bytes();
            out.extend(&all[1..4 - ends.min(2)]);
            (word, count, ends) = (0, 0, 0);
        }
    }
    if count > 0 {
        return Err(invalid("invalid base64 end sequence")
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

fn encoded(of: &[u8], format: &str) -> Result<String, SqlError> {
    match format.to_lowercase().as_str() {
        "hex" => Ok(of.iter().map(|byte| format!("{byte:02x}")).collect()),
        "base64" => Ok(in_base64(of)),
        "escape" => {
            let escaped = of.iter().map(|byte| match byte {
                0 | 0x80.. => format!("\\{byte:03o}"),
                b'\\' => "\\\\".to_owned(),
                byte => char::from(*byte).to_string(),
            });
            Ok(escaped.collect())
        }
        _ => Err(invalid(format!("unrecognized encoding: \"{format}\""))),
    }
}

fn decoded(of: &str, format: &str, context: &Context<'_>) -> Result<Vec<u8>, SqlError> {
    match format.to_lowercase().as_str() {
        "hex" => {
            let digits: Vec<_> = of.chars().filter(|it| !it.is_ascii_whitespace()).collect();
            if let Some(odd) = digits.iter().find(|it| !it.is_ascii_hexdigit()) {
                return Err(invalid(format!("invalid hexadecimal digit: \"{odd}\"")));
            }
            if digits.len() % 2 == 1 {
                return Err(invalid("invalid hexadecimal data: odd number of digits"));
            }
            let value = |digit: char| digit.to_digit(16).unwrap_or(0) as u8;
            Ok(digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
        }
        "base64" => of_base64(of),
        "escape" => match crate::text::read(crate::types::Type::Bytea, of, context)? {
            Datum::Bytes(bytes) => Ok(bytes.to_vec()),
            _ => Ok(Vec::new()),
        },
        _ => Err(invalid(format!("unrecognized encoding: \"{format}\""))),
    }
}

/// A text as a constant of SQL.
fn literal(of: &str) -> String {
    let escape = if of.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'", of.replace('\'', "''").replace('\\', "\\\\"))
}

/// Words that have to be quoted as names.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

fn identifier(of: &str) -> String {
    let is_plain = of.starts_with(|it: char| it.is_ascii_lowercase() || it == '_')
        && of.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
        && RESERVED.binary_search(&of).is_err();
    if is_plain { of.to_owned() } else { format!("\"{}\"", of.replace('"', "\"\"")) }
}

/// A number in a format. Too large a one is the largest.
fn width_of(letters: &mut Peekable<Chars<'_>>) -> Option<usize> {
    let mut digits = String::new();
    while let Some(digit) = letters.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(usize::MAX))
}

fn check_width(width: usize) -> Result<(), SqlError> {
    if i32::try_from(width).is_err() {
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range"));
    }
    check_length(width)
}

/// `format`: `%s`, `%I` and `%L`, with positions, widths and `-`.
fn formatted(context: &Context<'_>, format: &str, arguments: &[Datum<'_>]) -> Result<String, SqlError> {
    let mut out = String::new();
    let mut letters = format.chars().peekable();
    let mut next = 0;
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        if letters.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut width = width_of(&mut letters);
        if width.is_some() && letters.next_if_eq(&'$').is_some() {
            let Some(position) = width.take().filter(|it| *it > 0) else {
                return Err(invalid("format specifies argument 0, but arguments are numbered from 1"));
            };
            next = position - 1;
            width = None;
        }
        let mut is_left = false;
        while letters.next_if_eq(&'-').is_some() {
            is_left = true;
        }
        width = width.or_else(|| width_of(&mut letters));
        if letters.next_if_eq(&'*').is_some() {
            let wanted = match arguments.get(next) {
                Some(Datum::Text(digits)) => read(Type::Int4, digits, context)?,
                Some(_) => Datum::Int(0),
                None => return Err(invalid("too few arguments for format()")),
            };
            let wanted = int(wanted);
            (is_left, width, next) = (is_left || wanted < 0, Some(wanted.unsigned_abs() as usize), next + 1);
        }
        let Some(kind) = letters.next() else {
            return Err(invalid("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\"."));
        };
        if !matches!(kind, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{kind}\"");
            return Err(invalid(message).with_hint("For a single \"%\" use \"%%\"."));
        }
        let value = arguments.get(next).ok_or_else(|| invalid("too few arguments for format()"))?;
        next += 1;
        let shown = match (kind, value) {
            ('I', Datum::Text(text)) => identifier(text),
            ('I', _) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(SqlError::new(SqlState("22004"), message));
            }
            ('L', Datum::Text(text)) => literal(text),
            ('L', _) => "NULL".to_owned(),
            (_, Datum::Text(text)) => (*text).to_owned(),
            _ => String::new(),
        };
        let width = width.unwrap_or(0);
        check_width(width)?;
        let missing = width.saturating_sub(shown.chars().count());
        let blanks = " ".repeat(missing);
        out.push_str(&if is_left { shown + &blanks } else { blanks + &shown });
        check_length(out.len())?;
    }
    Ok(out)
}

fn translated(of: &str, from: &str, to: &str) -> String {
    let to: Vec<_> = to.chars().collect();
    let with = |letter: char| match from.chars().position(|own| own == letter) {
        Some(at) => to.get(at).copied(),
        None => Some(letter),
    };
    of.chars().filter_map(with).collect()
}

fn overlaid(of: &str, by: &str, start: i64, count: Option<i64>) -> Result<String, SqlError> {
    if start < 1 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let count = count.unwrap_or(by.chars().count() as i64);
    let letters: Vec<_> = of.chars().collect();
    let first = (start as usize - 1).min(letters.len());
    let rest = usize::try_from(start - 1 + count).unwrap_or(0).min(letters.len());
    Ok(letters[..first].iter().copied().chain(by.chars()).chain(letters[rest..].iter().copied()).collect())
}

fn part_of(of: &[u8], start: i64, count: Option<i64>) -> Result<&[u8], SqlError> {
    if count.is_some_and(|count| count < 0) {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = count.map_or(i64::MAX, |count| start.saturating_add(count));
    let at = |position: i64| usize::try_from(position - 1).unwrap_or(0).min(of.len());
    let (first, last) = (at(start.max(1)), at(end.max(1)));
    Ok(&of[first..last.max(first)])
}

fn byte_index(of: &[u8], at: i64, bits: i64) -> Result<usize, SqlError> {
    let most = of.len() as i64 * bits - 1;
    let bad = || SqlError::new(SqlState("2202E"), format!("index {at} out of valid range, 0..{most}"));
    usize::try_from(at).ok().filter(|_| at <= most).ok_or_else(bad)
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "encode"(Bytea, Text) -> Text = |it, context| made(context, &encoded(bytes(it[0]), text(it[1]))?);
    "decode"(Text, Text) -> Bytea = |it, context| Ok(made_bytes(context, &decoded(text(it[0]), text(it[1]), context)?));
    "octet_length"(Bytea) -> Int4 = |it, _| Ok(Datum::Int(bytes(it[0]).len() as i64));
    "bit_length"(Text) -> Int4 = |it, _| Ok(Datum::Int(text(it[0]).len() as i64 * 8));
    "bit_length"(Bytea) -> Int4 = |it, _| Ok(Datum::Int(bytes(it[0]).len() as i64 * 8));
    "bit_count"(Bytea) -> Int8 = |it, _| Ok(Datum::Int(bytes(it[0]).iter().map(|byte| i64::from(byte.count_ones())).sum()));
    "substring"(Bytea, Int4) -> Bytea = |it, _| part_of(bytes(it[0]), int(it[1]), None).map(Datum::Bytes);
    "substring"(Bytea, Int4, Int4) -> Bytea = |it, _| part_of(bytes(it[0]), int(it[1]), Some(int(it[2]))).map(Datum::Bytes);
    "substr"(Bytea, Int4) -> Bytea = |it, _| part_of(bytes(it[0]), int(it[1]), None).map(Datum::Bytes);
    "substr"(Bytea, Int4, Int4) -> Bytea = |it, _| part_of(bytes(it[0]), int(it[1]), Some(int(it[2]))).map(Datum::Bytes);
    "get_byte"(Bytea, Int4) -> Int4 = |it, _| {
        let of = bytes(it[0]);
        Ok(Datum::Int(of[byte_index(of, int(it[1]), 1)?].into()))
    };
    "set_byte"(Bytea, Int4, Int4) -> Bytea = |it, context| {
        let mut of = bytes(it[0]).to_vec();
        let at = byte_index(&of, int(it[1]), 1)?;
        of[at] = int(it[2]) as u8;
        Ok(made_bytes(context, &of))
    };
    "get_bit"(Bytea, Int8) -> Int4 = |it, _| {
        let of = bytes(it[0]);
        let at = byte_index(of, int(it[1]), 8)?;
        Ok(Datum::Int((of[at / 8] >> (at % 8) & 1).into()))
    };
    "strpos"(Bytea, Bytea) -> Int4 = |it, _| {
        let (of, part) = (bytes(it[0]), bytes(it[1]));
        let found = if part.is_empty() { Some(0) } else { of.windows(part.len()).position(|it| it == part) };
        Ok(Datum::Int(found.map_or(0, |at| at as i64 + 1)))
    };
    "btrim"(Bytea, Bytea) -> Bytea = |it, _| {
        let (mut of, set) = (bytes(it[0]), bytes(it[1]));
        while let [first, rest @ ..] = of && set.contains(first) { of = rest }
        while let [rest @ .., last] = of && set.contains(last) { of = rest }
        Ok(Datum::Bytes(of))
    };
    "convert_from"(Bytea, Text) -> Text = |it, _| {
        let bad = |_| SqlError::new(SqlState("22021"), "invalid byte sequence for encoding \"UTF8\"");
        // No text has a zero byte.
        let zero = || SqlError::new(SqlState("22021"), "invalid byte sequence for encoding \"UTF8\": 0x00");
        let text = std::str::from_utf8(bytes(it[0])).map_err(bad)?;
        Some(Datum::Text(text)).filter(|_| !text.contains('\0')).ok_or_else(zero)
    };
    "convert_to"(Text, Text) -> Bytea = |it, _| Ok(Datum::Bytes(text(it[0]).as_bytes()));
    "translate"(Text, Text, Text) -> Text = |it, context| made(context, &translated(text(it[0]), text(it[1]), text(it[2])));
    "overlay"(Text, Text, Int4) -> Text = |it, context| made(context, &overlaid(text(it[0]), text(it[1]), int(it[2]), None)?);
    "overlay"(Text, Text, Int4, Int4) -> Text = |it, context| {
        made(context, &overlaid(text(it[0]), text(it[1]), int(it[2]), Some(int(it[3])))?)
    };
    "position"(Text, Text) -> Int4 = |it, _| {
        let (part, of) = (text(it[0]), text(it[1]));
        Ok(Datum::Int(of.find(part).map_or(0, |at| of[..at].chars().count() as i64 + 1)))
    };
    "quote_ident"(Text) -> Text = |it, context| made(context, &identifier(text(it[0])));
    "quote_literal"(Text) -> Text = |it, context| made(context, &literal(text(it[0])));
    "to_hex"(Int4) -> Text = |it, context| made(context, &format!("{:x}", int(it[0]) as u32));
    "to_hex"(Int8) -> Text = |it, context| made(context, &format!("{:x}", int(it[0])));
    "gen_random_uuid"() -> Uuid = |_, _| {
        let mut uuid = volatile(|| polychron_base::random::unpredictable() as u128).to_be_bytes();
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Ok(Datum::Uuid(uuid))
    };
    "random"() -> Float8 = |_, _| {
        let drawn = volatile(|| polychron_base::random::unpredictable() as u128);
        Ok(Datum::Float((drawn as u64 >> 11) as f64 / (1_u64 << 53) as f64))
    };
};

/// Those that are called with NULL, too.
pub(super) const LENIENT: &[Function] = functions! {
    "quote_nullable"(Text) -> Text = |it, context| match it[0] {
        Datum::Text(text) => made(context, &literal(text)),
        _ => Ok(Datum::Text("NULL")),
    };
    "format"(Text, Texts) -> Text = |it, context| match (it[0], it[1]) {
        (Datum::Text(format), Datum::Array(arguments)) => {
            made(context, &formatted(context, format, &arguments.items().collect::<Vec<_>>())?)
        }
        _ => Ok(Datum::Null),
    };
    "concat"(Texts) -> Text = |it, context| joined(context, "", it[0]);
    "concat_ws"(Text, Texts) -> Text = |it, context| match it[0] {
        Datum::Text(by) => joined(context, by, it[1]),
        _ => Ok(Datum::Null),
    };
};

fn joined<'a>(context: &Context<'a>, by: &str, of: Datum<'a>) -> Result<Datum<'a>, SqlError> {
    let parts = if let Datum::Array(array) = of { array } else { Array::of_bytes(&[]) };
    let texts = parts.items().filter_map(|part| if let Datum::Text(text) = part { Some(text) } else { None });
    let texts: Vec<_> = texts.collect();
    check_length(texts.iter().map(|text| text.len().saturating_add(by.len())).sum())?;
    made(context, &texts.join(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_sorted() {
        assert!(RESERVED.is_sorted());
    }
}
