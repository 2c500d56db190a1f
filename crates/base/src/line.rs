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

/// The name of a type as its users write it, without the modules that it is from: messages name what users know.
pub fn short_type_name<T: ?Sized>() -> String {
    let is_of_path = |it: char| it.is_alphanumeric() || matches!(it, '_' | ':');
    let parts = std::any::type_name::<T>().split_inclusive(|it| !is_of_path(it));
    parts.filter_map(|part| part.rsplit("::").next()).collect()
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

/// Control characters, those that separate lines and paragraphs, and format characters: what breaks lines, changes the direction of writing, or is not
/// seen.
fn is_special(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{2028}' | '\u{2029}')
        || matches!(it, '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{FEFF}' | '\u{600}'..='\u{605}' | '\u{6DD}' | '\u{70F}')
        || matches!(it, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}')
        || matches!(it, '\u{FFF9}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_without_their_modules() {
        assert_eq!(short_type_name::<u32>(), "u32");
        assert_eq!(short_type_name::<(u32, Option<String>, &[u8])>(), "(u32, Option<String>, &[u8])");
    }

    #[test]
    fn what_breaks_lines_is_escaped_and_nothing_else() {
        assert_eq!(
            OneLine("a table\nof \u{1b}[1mbold\0 rows\u{202e}").to_string(),
            "a table\\nof \\u{1b}[1mbold\\u{0} rows\\u{202e}"
        );
        assert_eq!(OneLine("Größe: \"5\" → 'ü'").to_string(), "Größe: \"5\" → 'ü'");
        assert_eq!(OneLine("").to_string(), "");
        for special in
            ['\u{85}', '\u{2028}', '\u{2029}', '\u{200b}', '\u{200f}', '\u{2066}', '\u{feff}', '\u{ad}', '\u{e0041}']
        {
            assert_eq!(OneLine(special).to_string(), special.escape_default().to_string());
        }
    }
}
