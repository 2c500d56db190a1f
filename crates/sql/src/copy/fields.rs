//! Lines into fields, and fields as they are written.

use std::ops::Range;

use super::bad_data;
use super::options::{Format, Options};
use crate::error::{SqlError, SqlState};

/// The fields of a line, without quotes and backslashes.
#[derive(Debug, Default)]
pub(super) struct Fields {
    text: String,
    /// `None`: NULL.
    found: Vec<Option<Range<usize>>>,
}

/// Bytes that are no text.
#[cold]
pub(super) fn invalid_bytes(bytes: &[u8]) -> SqlError {
    let length = match bytes.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let shown = bytes.iter().take(length).map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(" ");
    let message = format!("invalid byte sequence for encoding \"UTF8\": {shown}");
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
}

/// Bytes as text, which has no zeros.
pub(super) fn text_of(bytes: &[u8]) -> Result<&str, SqlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| invalid_bytes(&bytes[error.valid_up_to()..]))?;
    if text.contains('\0') { Err(invalid_bytes(&[0])) } else { Ok(text) }
}

impl Fields {
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// A field; `None` is NULL.
    pub(super) fn get(&self, at: usize) -> Option<&str> {
        let range = self.found.get(at)?.clone()?;
        Some(&self.text[range])
    }

    /// Takes a line apart.
    pub(super) fn read(&mut self, line: &str, options: &Options) -> Result<(), SqlError> {
        self.text.clear();
        self.found.clear();
        if options.format == Format::Csv { self.read_csv(line, options) } else { self.read_text(line, options) }
    }

    fn end(&mut self, start: usize, is_null: bool) {
        self.found.push((!is_null).then_some(start..self.text.len()));
    }

    fn read_csv(&mut self, line: &str, options: &Options) -> Result<(), SqlError> {
        let (delimiter, quote, escape) =
            (char::from(options.delimiter), char::from(options.quote), char::from(options.escape));
        let mut rest = line;
        loop {
            let (start, whole) = (self.text.len(), rest);
            let (mut is_quoted, mut had_quotes) = (false, false);
            let is_last = loop {
                let mut letters = rest.chars();
                let Some(letter) = letters.next() else {
                    if is_quoted {
                        return Err(bad_data("unterminated CSV quoted field"));
                    }
                    break true;
                };
                let after = letters.as_str();
                if is_quoted && letter == escape && after.starts_with([escape, quote]) {
                    self.text.push(letters.next().unwrap_or(letter));
                    rest = letters.as_str();
                    continue;
                }
                if letter == delimiter && !is_quoted {
                    break false;
                }
                rest = after;
                if letter == quote {
                    (is_quoted, had_quotes) = (!is_quoted, true);
                } else {
                    self.text.push(letter);
                }
            };
            let raw = &whole[..whole.len() - rest.len()];
            self.end(start, !had_quotes && raw == options.null);
            if is_last {
                return Ok(());
            }
            rest = &rest[1..];
        }
    }

    fn read_text(&mut self, line: &str, options: &Options) -> Result<(), SqlError> {
        let delimiter = options.delimiter;
        let bytes = line.as_bytes();
        let mut at = 0;
        loop {
            let (begin, start) = (at, self.text.len());
            // A field with bytes that are no letters by themselves.
            let mut odd: Option<Vec<u8>> = None;
            let mut run = at;
            while at < bytes.len() && bytes[at] != delimiter {
                if bytes[at] != b'\\' {
                    at += 1;
                    continue;
                }
                let (byte, length) = unescaped(&bytes[at + 1..]);
                let own = odd.get_or_insert_with(Vec::new);
                own.extend_from_slice(&bytes[run..at]);
                own.push(byte);
                at += 1 + length;
                run = at;
            }
            let raw = &line[begin..at];
            match odd {
                _ if raw == options.null => self.end(start, true),
                None => {
                    self.text.push_str(raw);
                    self.end(start, false);
                }
                Some(mut own) => {
                    own.extend_from_slice(&bytes[run..at]);
                    self.text.push_str(text_of(&own)?);
                    self.end(start, false);
                }
            }
            if at >= bytes.len() {
                return Ok(());
            }
            at += 1;
        }
    }
}

/// What follows a backslash: the byte that it stands for, and its length. A byte of a letter of several stands for itself.
fn unescaped(rest: &[u8]) -> (u8, usize) {
    let octal = |byte: Option<&u8>| byte.filter(|byte| matches!(byte, b'0'..=b'7')).map(|byte| byte - b'0');
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let Some(&first) = rest.first() else { return (b'\\', 0) };
    match first {
        b'0'..=b'7' => {
            let (mut value, mut length) = (0_u8, 0);
            while let Some(digit) = octal(rest.get(length)).filter(|_| length < 3) {
                value = (value << 3) | digit;
                length += 1;
            }
            (value, length)
        }
        b'x' => match (hex(rest.get(1)), hex(rest.get(2))) {
            (Some(high), Some(low)) => (high << 4 | low, 3),
            (Some(digit), None) => (digit, 2),
            (None, _) => (b'x', 1),
        },
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'v' => (11, 1),
        other => (other, 1),
    }
}

/// Appends a field; `None` is NULL. `is_alone`: the row has no other one.
pub(super) fn write(field: Option<&str>, (is_forced, is_alone): (bool, bool), options: &Options, out: &mut Vec<u8>) {
    let Some(text) = field else { return out.extend_from_slice(options.null.as_bytes()) };
    match options.format {
        Format::Csv => write_csv(text, (is_forced, is_alone), options, out),
        _ => write_text(text, options, out),
    }
}

fn write_csv(text: &str, (is_forced, is_alone): (bool, bool), options: &Options, out: &mut Vec<u8>) {
    let odd = [options.delimiter, options.quote, b'\n', b'\r'];
    // A reader would take it for the end of the data.
    let is_marker = is_alone && text == "\\.";
    let is_quoted = is_forced || is_marker || text == options.null || text.bytes().any(|byte| odd.contains(&byte));
    if !is_quoted {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(options.quote);
    for byte in text.bytes() {
        if byte == options.quote || byte == options.escape {
            out.push(options.escape);
        }
        out.push(byte);
    }
    out.push(options.quote);
}

fn write_text(text: &str, options: &Options, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            _ if byte == options.delimiter => byte,
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
}
