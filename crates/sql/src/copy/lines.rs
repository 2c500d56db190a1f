//! Bytes into lines, as PostgreSQL cuts them: a line ends as the first one did, a backslash takes the next byte along, and so do quotes in CSV.

use std::ops::Range;

use super::{LONGEST, bad_data, too_long};
use crate::error::SqlError;

/// How lines end: as the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Unknown,
    Newline,
    Return,
    Both,
}

/// The bytes that are not cut yet.
#[derive(Debug)]
pub(super) struct Lines {
    is_csv: bool,
    quote: u8,
    /// `None`: it is the quote.
    escape: Option<u8>,
    buffer: Vec<u8>,
    /// Where the line begins, and the next byte to look at.
    start: usize,
    at: usize,
    ending: Ending,
    is_quoted: bool,
    is_escaped: bool,
    /// The number of the line; in CSV, line breaks within quotes count.
    number: u64,
    is_begun: bool,
    is_ended: bool,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Bytes of the buffer.
    Line(Range<usize>),
    /// More bytes are needed.
    More,
    End,
}

/// What `\.` is.
enum Marker {
    None,
    Ends,
    /// More bytes are needed.
    Unknown,
}

impl Lines {
    pub(super) fn new(quotes: Option<(u8, u8)>) -> Self {
        let (quote, escape) = quotes.unwrap_or_default();
        Self {
            is_csv: quotes.is_some(),
            quote,
            escape: (quote != escape).then_some(escape),
            buffer: Vec::new(),
            start: 0,
            at: 0,
            ending: Ending::Unknown,
            is_quoted: false,
            is_escaped: false,
            number: 0,
            is_begun: false,
            is_ended: false,
        }
    }

    /// The number of the line that came last, or is under way.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }

    /// Adds bytes. Ranges of lines hold no longer.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        if !self.is_ended {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next line. `is_last`: no more bytes will come.
    pub(super) fn next(&mut self, is_last: bool) -> Result<Next, SqlError> {
        if self.is_ended {
            return Ok(Next::End);
        }
        while let Some(&byte) = self.buffer.get(self.at) {
            if !self.is_begun {
                (self.is_begun, self.is_quoted, self.is_escaped) = (true, false, false);
                self.number += 1;
            }
            let next = self.buffer.get(self.at + 1).copied();
            if matches!(byte, b'\\' | b'\r') && next.is_none() && !is_last {
                return self.more();
            }
            let is_first = self.at == self.start;
            let may_be_marker = byte == b'\\' && next == Some(b'.') && (!self.is_csv || is_first);
            if may_be_marker {
                match self.marker(is_last)? {
                    Marker::Unknown => return self.more(),
                    Marker::Ends => {
                        self.is_ended = true;
                        let line = self.start..self.at;
                        return Ok(if line.is_empty() { Next::End } else { Next::Line(line) });
                    }
                    Marker::None => {}
                }
            }
            self.note_quotes(byte);
            match byte {
                b'\r' | b'\n' if !self.is_quoted => {
                    if let Some(line) = self.ended(byte, next)? {
                        return Ok(Next::Line(line));
                    }
                }
                // It takes the next byte along.
                b'\\' if !self.is_csv && next.is_some() => self.at += 2,
                _ => self.at += 1,
            }
        }
        if !is_last {
            return self.more();
        }
        self.is_ended = true;
        let line = self.start..self.at;
        self.start = self.at;
        Ok(if line.is_empty() { Next::End } else { Next::Line(line) })
    }

    fn more(&self) -> Result<Next, SqlError> {
        if self.buffer.len() - self.start > LONGEST { Err(too_long()) } else { Ok(Next::More) }
    }

    /// Notes whether what follows the byte is within quotes.
    fn note_quotes(&mut self, byte: u8) {
        if !self.is_csv {
            return;
        }
        if self.is_quoted && self.escape == Some(byte) {
            self.is_escaped = !self.is_escaped;
        }
        if byte == self.quote && !self.is_escaped {
            self.is_quoted = !self.is_quoted;
        }
        if self.escape != Some(byte) {
            self.is_escaped = false;
        }
        let counted = if self.ending == Ending::Newline { b'\n' } else { b'\r' };
        self.number += u64::from(self.is_quoted && byte == counted);
    }

    /// The line that ends at this byte.
    fn ended(&mut self, byte: u8, next: Option<u8>) -> Result<Option<Range<usize>>, SqlError> {
        let line = self.start..self.at;
        let mut length = 1;
        self.ending = match (byte, self.ending) {
            (b'\r', Ending::Unknown | Ending::Both) if next == Some(b'\n') => {
                length = 2;
                Ending::Both
            }
            (b'\r', Ending::Unknown | Ending::Return) => Ending::Return,
            (b'\n', Ending::Unknown | Ending::Newline) => Ending::Newline,
            _ => return Err(self.mixed(byte)),
        };
        self.at += length;
        self.start = self.at;
        self.is_begun = false;
        Ok(Some(line))
    }

    #[cold]
    fn mixed(&self, byte: u8) -> SqlError {
        let (name, sign) = if byte == b'\r' { ("carriage return", "\\r") } else { ("newline", "\\n") };
        if self.is_csv {
            return bad_data(format!("unquoted {name} found in data"))
                .with_hint(format!("Use quoted CSV field to represent {name}."));
        }
        bad_data(format!("literal {name} found in data")).with_hint(format!("Use \"{sign}\" to represent {name}."))
    }

    /// Whether the `\.` that begins at the next byte ends the data.
    fn marker(&self, is_last: bool) -> Result<Marker, SqlError> {
        let mut behind = self.at + 2;
        let other = |what: &str| {
            if self.is_csv { Ok(Marker::None) } else { Err(bad_data(format!("end-of-copy marker {what}"))) }
        };
        let styles = "does not match previous newline style";
        if self.ending == Ending::Both {
            match self.buffer.get(behind) {
                None if !is_last => return Ok(Marker::Unknown),
                Some(b'\r') => behind += 1,
                Some(b'\n') => return other(styles),
                _ => return other("corrupt"),
            }
        }
        match (self.buffer.get(behind), self.ending) {
            (None, _) if !is_last => Ok(Marker::Unknown),
            (Some(b'\r'), Ending::Unknown | Ending::Return)
            | (Some(b'\n'), Ending::Unknown | Ending::Newline | Ending::Both) => Ok(Marker::Ends),
            (Some(b'\r' | b'\n'), _) => Err(bad_data(format!("end-of-copy marker {styles}"))),
            _ => other("corrupt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that comes in pieces of a size.
    fn lines(quotes: Option<(u8, u8)>, text: &str, size: usize) -> Result<Vec<(u64, String)>, String> {
        let (mut lines, mut found) = (Lines::new(quotes), Vec::new());
        let mut pieces = text.as_bytes().chunks(size);
        loop {
            let piece = pieces.next();
            lines.add(piece.unwrap_or_default());
            loop {
                match lines.next(piece.is_none()).map_err(|error| error.message().to_owned())? {
                    Next::Line(line) => {
                        found.push((lines.number(), String::from_utf8_lossy(lines.bytes(line)).into_owned()));
                    }
                    Next::More => break,
                    Next::End if piece.is_none() => return Ok(found),
                    Next::End => break,
                }
            }
        }
    }

    #[track_caller]
    fn check(quotes: Option<(u8, u8)>, text: &str, wanted: Result<&[(u64, &str)], &str>) {
        let owned = |lines: &[(u64, &str)]| lines.iter().map(|(number, line)| (*number, (*line).to_owned())).collect();
        let wanted: Result<Vec<_>, _> = wanted.map(owned).map_err(str::to_owned);
        for size in 1..=text.len().max(1) {
            assert_eq!(lines(quotes, text, size), wanted, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn lines_of_text_in_pieces_of_every_size() {
        check(None, "a\nb", Ok(&[(1, "a"), (2, "b")]));
        check(None, "a\r\n\r\nb\r\n", Ok(&[(1, "a"), (2, ""), (3, "b")]));
        check(None, "a\rb\r", Ok(&[(1, "a"), (2, "b")]));
        check(None, "a\\\nb\\\\\nc", Ok(&[(1, "a\\\nb\\\\"), (2, "c")]));
        check(None, "a\n\\.\nb\n", Ok(&[(1, "a")]));
        check(None, "a\nb\\.\nb\n", Ok(&[(1, "a"), (2, "b")]));
        check(None, "a\r\n\\.\r\nb", Ok(&[(1, "a")]));
        check(None, "a\n\\.", Err("end-of-copy marker corrupt"));
        check(None, "a\r\n\\.\nb", Err("end-of-copy marker does not match previous newline style"));
        check(None, "a\n\\.x", Err("end-of-copy marker corrupt"));
        check(None, "a\nb\r\n", Err("literal carriage return found in data"));
        check(None, "a\rb\n", Err("literal newline found in data"));
        check(None, "", Ok(&[]));
    }

    #[test]
    fn lines_of_csv_in_pieces_of_every_size() {
        let plain = Some((b'"', b'"'));
        check(plain, "a\n\"b\n\"\"c\"\nd\n", Ok(&[(1, "a"), (3, "\"b\n\"\"c\""), (4, "d")]));
        check(plain, "a\n\\.\nb\n", Ok(&[(1, "a")]));
        check(plain, "a\n\\.x\nb,\\.\n", Ok(&[(1, "a"), (2, "\\.x"), (3, "b,\\.")]));
        check(plain, "a\n\\.", Ok(&[(1, "a"), (2, "\\.")]));
        check(plain, "a\n\"b\nc", Ok(&[(1, "a"), (3, "\"b\nc")]));
        check(plain, "a\nb\r\n", Err("unquoted carriage return found in data"));
        check(Some((b'"', b'\\')), "\"a\\\"\n\\\\\"\nb", Ok(&[(1, "\"a\\\"\n\\\\\""), (2, "b")]));
        check(Some((b'\\', b'\\')), "\\.a\n\\,b\n", Ok(&[(1, "\\.a\n\\,b")]));
    }
}
