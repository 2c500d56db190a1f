//! Texts of others in messages of one line.

use std::fmt::{self, Write};

/// Shows something on one line: line breaks and other control characters are written as escapes. Names, and what users' code says of itself, may
/// have any.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<D>(pub D);

impl<D: fmt::Display> fmt::Display for OneLine<D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(out), "{}", self.0)
    }
}

struct Escaping<'f, 'o>(&'f mut fmt::Formatter<'o>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_special) {
            match part.chars().next_back().filter(|last| is_special(*last)) {
                Some(last) => write!(self.0, "{}{}", &part[..part.len() - last.len_utf8()], last.escape_default())?,
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// Control characters, and those that break lines or change the direction of writing.
fn is_special(it: char) -> bool {
    it.is_control() || matches!(it, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_lines_is_escaped_and_nothing_else() {
        assert_eq!(
            OneLine("a table\nof \u{1b}[1mbold\0 rows\u{202e}").to_string(),
            "a table\\nof \\u{1b}[1mbold\\u{0} rows\\u{202e}"
        );
        assert_eq!(OneLine("Größe: \"5\" → 'ü'").to_string(), "Größe: \"5\" → 'ü'");
        assert_eq!(OneLine("").to_string(), "");
    }
}
