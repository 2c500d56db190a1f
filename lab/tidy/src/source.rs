//! Just enough of Rust's lexical rules to tell code from comments and literals, and to find paths in it.

/// The code of a Rust file: comments and the insides of literals become blanks, lines stay where they are.
pub fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_end(bytes, at).unwrap_or(at),
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#`, if that is what begins here.
fn raw_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn character_end(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start + 1..)?;
    if rest.first() == Some(&b'\\') {
        return rest[2..].iter().position(|byte| *byte == b'\'').map(|length| start + 3 + length + 1);
    }
    // A character is at most four bytes long.
    let width = rest.first().map(|byte| match byte {
        0..=0x7F => 1,
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        _ => 4,
    })?;
    (rest.get(width) == Some(&b'\'')).then_some(start + 1 + width + 1)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether the byte before belongs to a word; the prefixes of byte and C strings are none.
fn follows_word(bytes: &[u8], at: usize) -> bool {
    match at.checked_sub(1).map(|before| bytes[before]) {
        Some(b'b' | b'c') => at >= 2 && is_word(bytes[at - 2]),
        Some(byte) => is_word(byte),
        None => false,
    }
}

/// The line, from one, of a position.
pub fn line_of(text: &str, position: usize) -> usize {
    text[..position].bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Positions at which `needle` stands as whole words.
pub fn words(code: &str, needle: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let alone = |at: usize| {
        let before = at.checked_sub(1).is_some_and(|before| is_word(bytes[before]));
        let after = bytes.get(at + needle.len()).is_some_and(|byte| is_word(*byte));
        !before && !after
    };
    code.match_indices(needle).map(|(at, _)| at).filter(|at| alone(*at)).collect()
}

/// The code without its modules of tests (`#[cfg(test)] mod … { … }` at the left margin), which become empty lines.
pub fn without_test_modules(code: &str) -> String {
    let mut lines: Vec<&str> = code.lines().collect();
    let mut at = 0;
    while at + 1 < lines.len() {
        let opens = lines[at].starts_with("#[cfg(") && lines[at].contains("test");
        if opens && lines[at + 1].starts_with("mod ") && lines[at + 1].ends_with('{') {
            let length = lines[at..].iter().position(|line| *line == "}").map_or(lines.len() - at, |last| last + 1);
            lines.drain(at..at + length);
        } else {
            at += 1;
        }
    }
    lines.join("\n")
}

/// All paths that a file names, with the lines they are in: those of `use` declarations written out in full, and those
/// in the code as they stand.
pub fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = code.as_bytes().to_vec();
    for at in words(code, "use") {
        // `use<'a>` is a bound, no declaration.
        let is_bound = code[at + 3..].trim_start().starts_with('<');
        let Some(length) = code[at..].find(';').filter(|_| !is_bound) else { continue };
        rest[at..at + length].fill(b' ');
        let tree: String = code[at + 3..at + length].split_whitespace().collect::<Vec<_>>().join(" ");
        let tree = tree.replace(" as ", "@").replace(' ', "");
        expand("", &tree, &mut |path| found.push((line_of(code, at), path)));
    }
    let mut at = 0;
    while at < rest.len() {
        let length = rest[at..].iter().take_while(|byte| is_word(**byte) || **byte == b':').count();
        if rest[at..at + length].windows(2).any(|pair| pair == b"::") {
            found.push((line_of(code, at), code[at..at + length].to_owned()));
        }
        at += length.max(1);
    }
    found
}

/// Writes out a `use` tree.
fn expand(prefix: &str, tree: &str, found: &mut impl FnMut(String)) {
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split('@').next().unwrap_or_default();
        return found(format!("{prefix}{name}"));
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start) = (0, 0);
    let prefix = format!("{prefix}{head}");
    for (at, byte) in inner.bytes().chain([b',']).enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                if start < at {
                    expand(&prefix, &inner[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        let text =
            "a // unsafe\n/* unsafe /* x */ unsafe */ b \"unsafe \\\" unsafe\" br#\"unsafe\"# 'u' '\\'' &'unsafe c";
        let code = code(text);
        assert_eq!(words(&code, "unsafe").len(), 1, "{code}");
        assert_eq!(code.len(), text.len());
        for word in ["a", "b", "c"] {
            assert!(!words(&code, word).is_empty(), "{code}");
        }
    }

    #[test]
    fn use_trees_are_written_out() {
        let found = paths("use std::{sync::{Arc, atomic::{self, AtomicU64 as A}}, fmt};\nlet x = core::mem::take(y);");
        let paths: Vec<_> = found.iter().map(|(_, path)| path.as_str()).collect();
        for path in ["std::sync::Arc", "std::sync::atomic::self", "std::sync::atomic::AtomicU64", "std::fmt"] {
            assert!(paths.contains(&path), "{paths:?}");
        }
        assert!(found.contains(&(2, "core::mem::take".to_owned())));
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}";
        assert_eq!(without_test_modules(text), "fn a() {}\nfn c() {}");
    }
}
