//! Texts without their constants, so that statements that differ in these alone are one, and nothing secret is told.

use std::borrow::Cow;

/// Longer texts and shapes are cut, in bytes.
const LONGEST: usize = 1024;

/// The beginning of a text.
pub(crate) fn cut(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

/// A text as others may see it: one that may have a password is told without constants.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    const SECRET: &[u8] = b"password";
    let is_secret = text.as_bytes().windows(SECRET.len()).any(|part| part.eq_ignore_ascii_case(SECRET));
    if is_secret { Cow::Owned(shape(text)) } else { Cow::Borrowed(cut(text)) }
}

/// The text with `$n` in the place of constants, numbered behind the parameters that it has; comments are left out, blanks are single, and what is not in quotes is in small
/// letters.
pub(crate) fn shape(text: &str) -> String {
    let mut scanner = Scanner { rest: text, out: String::with_capacity(text.len().min(LONGEST)), next: most(text) + 1 };
    while !scanner.rest.is_empty() && scanner.out.len() < LONGEST {
        scanner.step();
    }
    let out = scanner.out.trim_end_matches([' ', ';']);
    cut(out).to_owned()
}

/// The greatest number of a parameter in the text.
fn most(text: &str) -> u32 {
    let parts = text.split('$').skip(1);
    let number = |part: &str| part[..part.bytes().take_while(u8::is_ascii_digit).count().min(5)].parse().ok();
    parts.filter_map(number).max().unwrap_or(0)
}

struct Scanner<'t> {
    rest: &'t str,
    out: String,
    next: u32,
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

impl Scanner<'_> {
    fn step(&mut self) {
        let Some(first) = self.rest.chars().next() else { return };
        let second = self.rest[first.len_utf8()..].chars().next();
        match (first, second) {
            ('-', Some('-')) => {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
                self.blank();
            }
            ('/', Some('*')) => {
                self.skip(end_of_comment(self.rest));
                self.blank();
            }
            ('\'', _) => self.constant(end_of_quote(self.rest, '\'', false)),
            ('"', _) => self.keep(end_of_quote(self.rest, '"', false)),
            ('$', Some('0'..='9')) => self.keep(1 + word(&self.rest[1..])),
            ('$', _) => match end_of_dollars(self.rest) {
                Some(end) => self.constant(end),
                None => self.keep(1),
            },
            ('0'..='9', _) | ('.', Some('0'..='9')) => self.constant(end_of_number(self.rest)),
            (blank, _) if blank.is_whitespace() => {
                self.skip(blank.len_utf8());
                self.blank();
            }
            (letter, _) if is_word(letter) => {
                let end = word(self.rest);
                let name = &self.rest[..end];
                let quoted = self.rest[end..].starts_with('\'');
                if quoted && ["e", "b", "x", "n"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
                    let has_escapes = name.eq_ignore_ascii_case("e");
                    self.constant(end + end_of_quote(&self.rest[end..], '\'', has_escapes));
                } else if name.eq_ignore_ascii_case("u") && self.rest[end..].starts_with("&'") {
                    self.constant(end + 1 + end_of_quote(&self.rest[end + 1..], '\'', false));
                } else {
                    self.out.push_str(&name.to_lowercase());
                    self.skip(end);
                }
            }
            (other, _) => self.keep(other.len_utf8()),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn keep(&mut self, bytes: usize) {
        self.out.push_str(&self.rest[..bytes]);
        self.skip(bytes);
    }

    fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
    }

    fn constant(&mut self, bytes: usize) {
        self.out.push_str(&format!("${}", self.next));
        self.next += 1;
        self.skip(bytes);
    }
}

/// The length of the word at the beginning.
fn word(text: &str) -> usize {
    text.find(|letter| !is_word(letter)).unwrap_or(text.len())
}

fn end_of_number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let is_sign = matches!(bytes[end], b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
        if !(bytes[end].is_ascii_alphanumeric() || matches!(bytes[end], b'.' | b'_') || is_sign) {
            break;
        }
        end += 1;
    }
    end
}

/// Behind what is in quotes at the beginning; a text without an end ends with itself.
fn end_of_quote(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && has_escapes {
            letters.next();
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

fn end_of_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// Behind a text between `$tag$` and its like.
fn end_of_dollars(text: &str) -> Option<usize> {
    let tag = 1 + text[1..].find('$')? + 1;
    let is_tag = text[1..tag - 1].chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    let end = text[tag..].find(&text[..tag]).map_or(text.len(), |at| tag + at + tag);
    is_tag.then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_cut_and_names_are_not() {
        let same = [
            (
                "SELECT  a1 FROM \"T 1\"\n WHERE b = 5 AND c = 'it''s' ;",
                "select a1 from \"T 1\" where b = $1 and c = $2",
            ),
            ("select $2, 1.5e-3, .5, 0x1f, e'a\\'b', U&'x', $q$ ' $q$ -- rest", "select $2, $3, $4, $5, $6, $7, $8"),
            ("/* a /* b */ 'c' */ VALUES (-1, x'ff')", "values (-$1, $2)"),
            ("select 'never ends", "select $1"),
            ("select $$ never ends", "select $1"),
            ("select Ünder, a$b, $", "select ünder, a$b, $"),
            ("select \"never ends", "select \"never ends"),
            ("", ""),
        ];
        for (text, wanted) in same {
            assert_eq!(shape(text), wanted);
        }
        assert!(shape(&"é, ".repeat(5000)).len() <= LONGEST);
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(shown("ALTER ROLE a PassWord 'secret'"), "alter role a password $1");
        assert_eq!(shown("SELECT 'plain'"), "SELECT 'plain'");
        assert!(shown(&"é".repeat(5000)).len() <= LONGEST);
    }
}
