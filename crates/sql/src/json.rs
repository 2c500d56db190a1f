//! JSON: `json` is kept as its text, `jsonb` as the text of its normal form.
//!
//! Numbers keep all their digits and texts of `json` are answered as they were written, which is why they are read here.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::sort_keys::put_number;

/// How deeply values may nest.
const DEPTH: usize = 500;

/// A value, and its text.
#[derive(Clone, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) raw: &'a str,
    pub(crate) of: Form<'a>,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Form<'a> {
    Null,
    Bool(bool),
    /// The digits are the text.
    Number,
    Text(Cow<'a, str>),
    Array(Vec<Value<'a>>),
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Texts may have `\u0000`, which no text of SQL has.
    takes_zero: bool,
}

fn invalid(detail: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json").with_detail(detail)
}

/// The value that a text is.
pub(crate) fn parse(text: &str) -> Result<Value<'_>, SqlError> {
    read(text, false)
}

/// The value that the text of a `json` is: it may have `\u0000` as long as nothing wants to know its texts.
pub(crate) fn read_json(text: &str) -> Result<Value<'_>, SqlError> {
    read(text, true)
}

fn read(text: &str, takes_zero: bool) -> Result<Value<'_>, SqlError> {
    let mut reader = Reader { text, at: 0, takes_zero };
    reader.skip_blanks();
    let value = reader.value(0)?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(invalid(format!("Expected end of input, but found \"{}\".", reader.token())));
    }
    Ok(value)
}

/// A value that was read before: a text that is none stands for null.
pub(crate) fn known(text: &str) -> Value<'_> {
    parse(text).unwrap_or(Value { raw: "null", of: Form::Null })
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// What stands here, up to a blank or a sign.
    fn token(&self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
        let first = rest.chars().next().map_or(0, char::len_utf8);
        &rest[..end.max(first)]
    }

    fn unexpected(&self) -> SqlError {
        if self.at >= self.text.len() {
            invalid("The input string ended unexpectedly.")
        } else {
            invalid(format!("Token \"{}\" is invalid.", self.token()))
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, SqlError> {
        if depth > DEPTH {
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"));
        }
        let start = self.at;
        let of = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Form::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                Form::Number
            }
            _ => match self.token() {
                word @ ("true" | "false") => {
                    self.at += word.len();
                    Form::Bool(word == "true")
                }
                "null" => {
                    self.at += 4;
                    Form::Null
                }
                _ => return Err(self.unexpected()),
            },
        };
        Ok(Value { raw: &self.text[start..self.at], of })
    }

    fn object(&mut self, depth: usize) -> Result<Form<'a>, SqlError> {
        let mut pairs = Vec::new();
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Form::Object(pairs));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let key = self.string()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.unexpected());
            }
            self.at += 1;
            self.skip_blanks();
            pairs.push((key, self.value(depth + 1)?));
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Form::Object(pairs));
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Form<'a>, SqlError> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Form::Array(items));
        }
        loop {
            self.skip_blanks();
            items.push(self.value(depth + 1)?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Form::Array(items));
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn number(&mut self) -> Result<(), SqlError> {
        let start = self.at;
        let digits = |it: &mut Self| {
            let first = it.at;
            while matches!(it.peek(), Some(b'0'..=b'9')) {
                it.at += 1;
            }
            it.at > first
        };
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let mut is_right = if self.peek() == Some(b'0') {
            self.at += 1;
            true
        } else {
            digits(self)
        };
        if is_right && self.peek() == Some(b'.') {
            self.at += 1;
            is_right = digits(self);
        }
        if is_right && matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            is_right = digits(self);
        }
        if is_right && !self.peek().is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_') {
            return Ok(());
        }
        self.at = start;
        Err(self.unexpected())
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SqlError> {
        self.at += 1;
        let start = self.at;
        let mut made = String::new();
        loop {
            let plain = self.at;
            while self.peek().is_some_and(|it| it != b'"' && it != b'\\' && it >= 0x20) {
                self.at += 1;
            }
            let part = &self.text[plain..self.at];
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    let is_plain = plain == start;
                    made.push_str(part);
                    return Ok(if is_plain { Cow::Borrowed(part) } else { Cow::Owned(made) });
                }
                Some(b'\\') => {
                    made.push_str(part);
                    self.at += 1;
                    made.push(self.escape()?);
                }
                Some(byte) => return Err(invalid(format!("Character with value 0x{byte:02x} must be escaped."))),
                None => return Err(invalid("The input string ended unexpectedly.")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SqlError> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code(),
            _ => {
                self.at -= 1;
                let shown = self.token().to_owned();
                return Err(invalid(format!("Escape sequence \"\\{shown}\" is invalid.")));
            }
        })
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let unit = digits.bytes().all(|it| it.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        unit.flatten()
    }

    fn code(&mut self) -> Result<char, SqlError> {
        let bad = || invalid("\"\\u\" must be followed by four hexadecimal digits.");
        let first = self.unit().ok_or_else(bad)?;
        let code = match first {
            0 if !self.takes_zero => {
                return Err(SqlError::new(SqlState("22P05"), "unsupported Unicode escape sequence")
                    .with_detail("\\u0000 cannot be converted to text."));
            }
            0xd800..=0xdbff if self.text[self.at..].starts_with("\\u") => {
                self.at += 2;
                match self.unit().ok_or_else(bad)? {
                    low @ 0xdc00..=0xdfff => 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00),
                    _ => first,
                }
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| invalid("Unicode low surrogate must follow a high surrogate."))
    }
}

/// Appends a text in quotes.
pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            letter if letter < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

/// The order of keys in an object: by length, then by bytes.
fn by_key(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// The pairs of an object in the order of their keys; of equal keys the last one stays.
pub(crate) fn in_order<'v, 'a>(pairs: &'v [(Cow<'a, str>, Value<'a>)]) -> Vec<(&'v str, &'v Value<'a>)> {
    let mut sorted: Vec<(&str, &Value<'a>)> = Vec::with_capacity(pairs.len());
    let mut all: Vec<_> = pairs.iter().map(|(key, value)| (&**key, value)).collect();
    all.sort_by(|one, other| by_key(one.0, other.0));
    for pair in all {
        match sorted.last_mut() {
            Some(last) if last.0 == pair.0 => *last = pair,
            _ => sorted.push(pair),
        }
    }
    sorted
}

fn number(raw: &str) -> Result<Decimal, SqlError> {
    Decimal::parse(raw).unwrap_or_else(|| Err(invalid(format!("Token \"{raw}\" is invalid."))))
}

impl Value<'_> {
    /// Appends the normal form: keys in order and once, one blank behind colons and commas, numbers without exponents.
    pub(crate) fn write(&self, out: &mut String) -> Result<(), SqlError> {
        match &self.of {
            Form::Null => out.push_str("null"),
            Form::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Form::Number => out.push_str(&number(self.raw)?.to_string()),
            Form::Text(text) => write_text(text, out),
            Form::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    item.write(out)?;
                }
                out.push(']');
            }
            Form::Object(pairs) => {
                out.push('{');
                for (at, (key, value)) in in_order(pairs).into_iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    write_text(key, out);
                    out.push_str(": ");
                    value.write(out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }

    pub(crate) fn normal(&self) -> Result<String, SqlError> {
        let mut out = String::with_capacity(self.raw.len());
        self.write(&mut out)?;
        Ok(out)
    }

    /// Appends it over several lines, as `jsonb_pretty` does.
    pub(crate) fn write_pretty(&self, depth: usize, out: &mut String) -> Result<(), SqlError> {
        let line = |depth: usize, out: &mut String| {
            out.push('\n');
            out.push_str(&"    ".repeat(depth));
        };
        match &self.of {
            Form::Array(items) if items.is_empty() => {
                out.push('[');
                line(depth, out);
                out.push(']');
            }
            Form::Object(pairs) if pairs.is_empty() => {
                out.push('{');
                line(depth, out);
                out.push('}');
            }
            Form::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    line(depth + 1, out);
                    item.write_pretty(depth + 1, out)?;
                }
                line(depth, out);
                out.push(']');
            }
            Form::Object(pairs) => {
                out.push('{');
                for (at, (key, value)) in in_order(pairs).into_iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    line(depth + 1, out);
                    write_text(key, out);
                    out.push_str(": ");
                    value.write_pretty(depth + 1, out)?;
                }
                line(depth, out);
                out.push('}');
            }
            _ => self.write(out)?,
        }
        Ok(())
    }

    /// The place among the kinds of values. An empty array comes first, unless it lies within another value.
    pub(crate) fn rank(&self, is_within: bool) -> u8 {
        match &self.of {
            Form::Array(items) if items.is_empty() && !is_within => 0,
            Form::Null => 1,
            Form::Text(_) => 2,
            Form::Number => 3,
            Form::Bool(_) => 4,
            Form::Array(_) => 5,
            Form::Object(_) => 6,
        }
    }

    /// The order of `compareJsonbContainers`: kinds, then how many parts there are, then these. Keys are taken by their length and compared by their bytes.
    pub(crate) fn compare(&self, other: &Value<'_>, is_within: bool) -> Ordering {
        match (&self.of, &other.of) {
            (Form::Bool(one), Form::Bool(other)) => one.cmp(other),
            (Form::Text(one), Form::Text(other)) => one.cmp(other),
            (Form::Number, Form::Number) => match (number(self.raw), number(other.raw)) {
                (Ok(one), Ok(other)) => one.cmp(&other),
                // Beyond what a numeric holds, their digits say it.
                _ => {
                    let key = |raw: &str| {
                        let mut key = Vec::new();
                        put_number(&mut key, raw);
                        key
                    };
                    key(self.raw).cmp(&key(other.raw))
                }
            },
            (Form::Array(one), Form::Array(other)) => one.len().cmp(&other.len()).then_with(|| {
                let pairs = one.iter().zip(other).map(|(one, other)| one.compare(other, true));
                pairs.fold(Ordering::Equal, Ordering::then)
            }),
            (Form::Object(one), Form::Object(other)) => {
                let (one, other) = (in_order(one), in_order(other));
                one.len().cmp(&other.len()).then_with(|| {
                    let pairs = one.iter().zip(&other);
                    let pairs = pairs.map(|(one, other)| one.0.cmp(other.0).then_with(|| one.1.compare(other.1, true)));
                    pairs.fold(Ordering::Equal, Ordering::then)
                })
            }
            _ => self.rank(is_within).cmp(&other.rank(is_within)),
        }
    }

    /// Whether it has all that the other one has.
    pub(crate) fn contains(&self, other: &Value<'_>) -> bool {
        match (&self.of, &other.of) {
            (Form::Object(own), Form::Object(wanted)) => wanted.iter().all(|(key, value)| {
                own.iter().rev().find(|(own, _)| own == key).is_some_and(|(_, own)| own.contains(value))
            }),
            (Form::Array(own), Form::Array(wanted)) => {
                wanted.iter().all(|value| own.iter().any(|own| own.is_like(value) && own.contains(value)))
            }
            // An array has a value that it is an array of.
            (Form::Array(own), Form::Null | Form::Bool(_) | Form::Number | Form::Text(_)) => {
                own.iter().any(|own| own.is_like(other) && own.contains(other))
            }
            _ => self.is_like(other) && self.compare(other, true).is_eq(),
        }
    }

    fn is_like(&self, other: &Value<'_>) -> bool {
        std::mem::discriminant(&self.of) == std::mem::discriminant(&other.of)
    }

    pub(crate) fn kind(&self) -> &'static str {
        match &self.of {
            Form::Null => "null",
            Form::Bool(_) => "boolean",
            Form::Number => "number",
            Form::Text(_) => "string",
            Form::Array(_) => "array",
            Form::Object(_) => "object",
        }
    }

    /// The value of a key; of several the last one.
    pub(crate) fn key(&self, key: &str) -> Option<&Self> {
        let Form::Object(pairs) = &self.of else { return None };
        pairs.iter().rev().find(|(own, _)| own == key).map(|(_, value)| value)
    }

    /// The element at a position, which counts from the end where it is negative.
    pub(crate) fn item(&self, at: i64) -> Option<&Self> {
        let Form::Array(items) = &self.of else { return None };
        position(items.len(), at).and_then(|at| items.get(at))
    }

    /// What a path leads to: keys, and positions in arrays.
    pub(crate) fn path(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, step| match &value.of {
            Form::Object(_) => value.key(step),
            Form::Array(_) => value.item(step.parse().ok()?),
            _ => None,
        })
    }

    /// The text of a text, the JSON of others; nothing of null.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.of {
            Form::Null => None,
            Form::Text(text) => Some(text),
            _ => Some(self.raw),
        }
    }
}

/// A position that counts from the end where it is negative.
pub(crate) fn position(length: usize, at: i64) -> Option<usize> {
    usize::try_from(if at < 0 { at + length as i64 } else { at }).ok()
}

/// The order of two texts of `jsonb`.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    if one == other { Ordering::Equal } else { known(one).compare(&known(other), false) }
}

/// A text that equal values share: numbers without zeros at their ends.
pub(crate) fn equal_form(text: &str) -> String {
    fn write(value: &Value<'_>, out: &mut String) {
        match &value.of {
            Form::Number => {
                out.push_str(&number(value.raw).map_or_else(|_| value.raw.to_owned(), |it| it.normalized().to_string()))
            }
            Form::Array(items) => {
                out.push('[');
                items.iter().for_each(|item| {
                    write(item, out);
                    out.push(',');
                });
                out.push(']');
            }
            Form::Object(pairs) => {
                out.push('{');
                for (key, value) in in_order(pairs) {
                    write_text(key, out);
                    write(value, out);
                }
                out.push('}');
            }
            _ => out.push_str(value.raw),
        }
    }
    let mut out = String::new();
    write(&known(text), &mut out);
    out
}
