//! How long files and functions may be.

use crate::source::{code, line_of, without_test_modules, words};
use crate::{Finding, Source};

/// Most lines of a file, tests aside.
pub const FILE_LINES: usize = 600;
/// Most lines of a function.
pub const FUNCTION_LINES: usize = 70;

/// Files and functions beyond the limits, and exceptions that are no longer needed.
///
/// `exceptions` are known cases, by path or `path::function`, with the size that they must not exceed.
pub fn sizes(sources: &[Source], exceptions: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut met = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test()) {
        let lines = without_test_modules_of(&source.text);
        let mut check = |name: String, line: usize, size: usize, limit: usize| {
            if size <= limit {
                return;
            }
            let most = exceptions.iter().find(|(known, _)| *known == name).map(|(_, most)| *most);
            if size > most.unwrap_or(limit) {
                let most = most.unwrap_or(limit);
                findings.push(Finding::new(
                    source,
                    line,
                    format!("{name} has {size} lines; at most {most} are allowed"),
                ));
            }
            met.push(name);
        };
        check(source.path.clone(), 0, lines, FILE_LINES);
        for (name, line, size) in functions(&without_test_modules(&code(&source.text))) {
            check(format!("{}::{name}", source.path), line, size, FUNCTION_LINES);
        }
    }
    for (name, _) in exceptions.iter().filter(|(name, _)| !met.iter().any(|met| met == name)) {
        let source = Source::new(name, "");
        findings.push(Finding::new(&source, 0, "this is within the limit now, or gone: take it off the list"));
    }
    findings
}

/// Lines of a file without its modules of tests; these are found in the code, where no literal can look like one.
fn without_test_modules_of(text: &str) -> usize {
    without_test_modules(&code(text)).lines().count()
}

/// A folder, by the beginning of its paths, that has no code, or more lines of it than so many. Blank lines and comments do not count.
pub fn code_of(sources: &[Source], folder: &str, most: usize) -> Vec<Finding> {
    let inside = sources.iter().filter(|source| source.path.starts_with(folder));
    let lines = |source: &Source| code(&source.text).lines().filter(|line| !line.trim().is_empty()).count();
    let lines: usize = inside.map(lines).sum();
    let message = || format!("there are {lines} lines of code, and may be {most}");
    let finding = || Finding::new(&Source::new(folder, ""), 0, message());
    Vec::from_iter((lines == 0 || lines > most).then(finding))
}

/// Name, first line and length of every function with a body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let rest = code[at + 2..].trim_start();
        let name: String =
            rest.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect();
        if name.is_empty() {
            continue;
        }
        let (mut braces, mut others) = (0_usize, 0_isize);
        for (offset, byte) in code[at..].bytes().enumerate() {
            match byte {
                b'(' | b'[' => others += 1,
                b')' | b']' => others -= 1,
                b';' if braces == 0 && others == 0 => break,
                b'{' => braces += 1,
                b'}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 && others == 0 {
                        let first = line_of(code, at);
                        found.push((name, first, line_of(code, at + offset) - first + 1));
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long(a: [u8; 3]) {{\n{}}}\n", "    let b = '}';\n".repeat(lines - 2))
    }

    #[test]
    fn code_is_counted_without_comments() {
        let source = [Source::new("lab/small/src/a.rs", "//! Head.\n\nfn a() {\n    b(); // call\n}\n")];
        assert_eq!(code_of(&source, "lab/small/", 3), []);
        assert_eq!(code_of(&source, "lab/small/", 2).len(), 1);
        assert_eq!(code_of(&source, "lab/gone/", 3).len(), 1);
    }

    #[test]
    fn a_long_file_is_found() {
        let path = "crates/engine/src/a.rs";
        let source = Source::new(path, &"// line\n".repeat(FILE_LINES + 1));
        assert_eq!(sizes(std::slice::from_ref(&source), &[]).len(), 1);
        assert_eq!(sizes(std::slice::from_ref(&source), &[(path, FILE_LINES + 1)]), []);
        assert_eq!(sizes(&[Source::new("crates/engine/tests/a.rs", &source.text)], &[]), []);
    }

    #[test]
    fn a_long_function_is_found() {
        let source = |lines| [Source::new("crates/engine/src/a.rs", &function(lines))];
        assert_eq!(sizes(&source(FUNCTION_LINES), &[]), []);
        assert_eq!(sizes(&source(FUNCTION_LINES + 1), &[]).len(), 1);
    }

    #[test]
    fn exceptions_only_shrink() {
        let exceptions = [("crates/engine/src/a.rs::long", 80)];
        let source = |lines| [Source::new("crates/engine/src/a.rs", &function(lines))];
        assert_eq!(sizes(&source(80), &exceptions), []);
        assert_eq!(sizes(&source(81), &exceptions).len(), 1);
        assert_eq!(sizes(&source(70), &exceptions).len(), 1);
    }
}
