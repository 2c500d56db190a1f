//! Classes of characters.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

pub(super) fn one(letter: char) -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new(letter, letter)])
}

/// The class that `regex_syntax` has for a set of characters.
fn set(written: &str) -> ClassUnicode {
    match regex_syntax::parse(written).map(|hir| hir.into_kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => ClassUnicode::empty(),
    }
}

/// Letters, with digits other than 0 to 9 among them, as the C library has them.
const LETTERS: &str = r"\p{Alphabetic}[\p{Nd}--0-9]";

/// `\d`, `\s` and `\w`.
pub(super) fn short(letter: char) -> ClassUnicode {
    let name = match letter {
        'd' => "digit",
        's' => "space",
        _ => "word",
    };
    named(name, false).unwrap_or_else(ClassUnicode::empty)
}

/// `[:name:]`
pub(super) fn named(name: &str, ignores_case: bool) -> Option<ClassUnicode> {
    Some(match name {
        "upper" | "lower" if ignores_case => set(&format!("[{LETTERS}]")),
        "alpha" => set(&format!("[{LETTERS}]")),
        "alnum" => set(&format!("[{LETTERS}0-9]")),
        "word" => set(&format!("[{LETTERS}0-9_]")),
        "digit" => set("[0-9]"),
        "xdigit" => set("[0-9A-Fa-f]"),
        "upper" => set(r"[\p{Uppercase}]"),
        "lower" => set(r"[\p{Lowercase}]"),
        "space" => set(r"[\s--[\x{85}\x{a0}\x{2007}\x{202f}]]"),
        "blank" => set(r"[\t[\p{Zs}--[\x{a0}\x{2007}\x{202f}]]]"),
        "cntrl" => set(r"[\p{Cc}\x{2028}\x{2029}]"),
        "punct" => set(r"[[\p{P}\p{S}]--\p{Alphabetic}]"),
        "graph" => set(r"[^\p{Cc}\p{Cn}\p{Z}]"),
        "print" => set(r"[^\p{Cc}\p{Cn}\p{Zl}\p{Zp}]"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_characters() {
        for name in "upper lower alpha alnum word digit xdigit space blank cntrl punct graph print".split(' ') {
            for ignores_case in [false, true] {
                let class = named(name, ignores_case).expect("it is known");
                assert!(!class.ranges().is_empty(), "{name}");
            }
        }
    }
}
