//! `\\copy`, and COPY as a statement: rows of a file or of the script into a table as one transaction, or rows into a file.
//!
//! The shell only knows where the data are. What they look like is for the database to say, to which the options go as they are.

use std::fs::File;
use std::io::{self, BufRead as _, Read, stdin, stdout};
use std::path::Path;

use polychron::sql::Error;
use polychron_sync::atomic::Ordering;

use super::session::Session;
use super::split::comment;
use crate::interrupt::STOP;
use crate::output::{Pending, print_status};

/// What is to be copied, and where.
#[derive(Debug, PartialEq, Eq)]
struct Copy<'t> {
    /// A table, with its columns if they are named, or a query in parentheses.
    what: &'t str,
    is_from: bool,
    place: Place,
    /// The options.
    rest: &'t str,
}

/// Where the data are.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    File(String),
    /// Where the statements come from, or go to.
    Script,
    /// The standard input or output of the program.
    Standard,
}

const USAGE: &str =
    "\\copy: it is \\copy TABLE [(COLUMNS)] from 'FILE' [OPTIONS], or \\copy {TABLE | (QUERY)} to 'FILE' [OPTIONS]";

/// How much is read at once.
const PIECE: usize = 64 << 10;

impl Session {
    /// The answer is what is said of it.
    ///
    /// # Errors
    /// What it has failed with; no row was inserted then.
    pub(super) fn copy(&mut self, line: &str) -> Result<String, String> {
        let copy = Copy::parse(line).ok_or_else(|| USAGE.to_owned())?;
        if copy.is_from { self.copy_from(&copy) } else { self.copy_to(&copy) }
    }

    /// Runs a statement if it is a COPY of a stream, which then is the script, or the standard input or output.
    pub(super) fn copy_statement(&mut self, text: &str) -> Option<Result<String, String>> {
        let line = behind_comments(text).trim_end().trim_end_matches(';');
        let (first, rest) = line.split_at(line.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(line.len()));
        if !first.eq_ignore_ascii_case("copy") {
            return None;
        }
        // What is wrong with others the database says.
        let copy = Copy::parse(rest.trim_start()).filter(|copy| copy.place == Place::Script)?;
        Some(if copy.is_from { self.copy_from(&copy) } else { self.copy_to(&copy) })
    }

    fn copy_to(&mut self, copy: &Copy<'_>) -> Result<String, String> {
        let statement = format!("COPY {} TO STDOUT {}", copy.what, copy.rest);
        let Place::File(path) = &copy.place else {
            let given = self.connection.copy_out(&statement, &mut Output);
            return self.ended(given).map(|_| String::new());
        };
        let mut file = Pending::open("\\copy", Path::new(path))?;
        let written = file.write_with(|file| self.connection.copy_out(&statement, file));
        let count = self.ended(written)?;
        file.keep()?;
        Ok(format!("COPY {count}"))
    }

    fn copy_from(&mut self, copy: &Copy<'_>) -> Result<String, String> {
        let statement = format!("COPY {} FROM STDIN {}", copy.what, copy.rest);
        let copied = match &copy.place {
            Place::File(path) => match File::open(path) {
                Ok(mut file) => self.read_whole(&statement, path, &mut file),
                Err(error) => return Err(format!("{path}: {error}")),
            },
            Place::Script if self.input.is_some() || self.is_interactive => self.read_lines(&statement),
            Place::Script | Place::Standard => self.read_whole(&statement, "the standard input", &mut stdin().lock()),
        };
        let count = self.ended(copied?)?;
        Ok(format!("COPY {count}"))
    }

    /// What is said of a copy that has ended.
    fn ended(&mut self, ended: Result<u64, Error>) -> Result<u64, String> {
        self.is_aborted = ended.is_err() && self.connection.is_in_transaction();
        ended.map_err(|error| told(&error))
    }

    /// Copies all that a file has.
    ///
    /// # Errors
    /// It cannot be read: the copy is given up.
    fn read_whole(&mut self, statement: &str, name: &str, file: &mut dyn Read) -> Result<Result<u64, Error>, String> {
        let mut copy = match self.connection.copy_in(statement) {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(error)),
        };
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok(copy.finish()),
                Ok(length) => {
                    if let Err(error) = copy.write(&piece[..length]) {
                        return Ok(Err(error));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    copy.abandon(&error.to_string());
                    self.is_aborted = self.connection.is_in_transaction();
                    return Err(format!("{name}: {error}"));
                }
            }
        }
    }

    /// Copies the lines that follow in the script, or that are typed, up to one with `\\.` alone. Where the copy fails, they are read all the same: they are no
    /// statements.
    ///
    /// # Errors
    /// They cannot be read: the copy is given up.
    fn read_lines(&mut self, statement: &str) -> Result<Result<u64, Error>, String> {
        if self.input.is_none() {
            print_status(
                "Enter data to be copied followed by a newline.\nEnd with a backslash and a period on a line by itself, or an EOF signal.",
            );
        }
        let Self { connection, input, place, .. } = self;
        let (mut copy, mut failed) = match connection.copy_in(statement) {
            Ok(copy) => (Some(copy), None),
            Err(error) => (None, Some(error)),
        };
        // Nothing is typed behind a statement that is refused.
        if input.is_none()
            && let Some(error) = failed
        {
            return Ok(Err(error));
        }
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = match input.as_mut() {
                Some(input) => input.read_until(b'\n', &mut line),
                None => stdin().lock().read_until(b'\n', &mut line),
            };
            if let Some((_, number)) = place {
                *number += 1;
            }
            match read {
                Ok(0) => break,
                Ok(_) if matches!(&line[..], b"\\.\n" | b"\\.\r\n" | b"\\.") => break,
                Ok(_) => {
                    if let Some(Err(error)) = copy.as_mut().map(|copy| copy.write(&line)) {
                        (copy, failed) = (None, Some(error));
                        // Ctrl-C: nothing more is typed.
                        if input.is_none() && STOP.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                Err(error) => {
                    copy.into_iter().for_each(|copy| copy.abandon(&error.to_string()));
                    self.is_aborted = self.connection.is_in_transaction();
                    return Err(format!("the data of COPY: {error}"));
                }
            }
        }
        Ok(match (copy, failed) {
            (Some(copy), _) => copy.finish(),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(0),
        })
    }
}

/// The standard output. A reader that is gone wants no more.
struct Output;

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        stdout().lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        stdout().lock().flush()
    }
}

fn told(error: &Error) -> String {
    let more = [("DETAIL", error.detail()), ("HINT", error.hint()), ("CONTEXT", error.context())];
    let more = more.iter().filter_map(|(what, line)| Some(format!("\n{what}:  {}", (*line)?))).collect::<String>();
    format!("ERROR:  {}{more}", error.message())
}

impl<'t> Copy<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let (what, rest) = target(line)?;
        let (direction, rest) = word(rest);
        let is_from = match direction.to_ascii_lowercase().as_str() {
            "from" if !what.starts_with('(') => true,
            "to" => false,
            _ => return None,
        };
        let (place, rest) = file(rest)?;
        Some(Self { what, is_from, place, rest: rest.trim() })
    }
}

/// What follows the comments that a text begins with.
fn behind_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if text.starts_with("--") {
            text = text.split_once('\n').map_or("", |(_, rest)| rest);
        } else if text.starts_with("/*") {
            text = comment(text).map_or("", |length| &text[length..]);
        } else {
            return text;
        }
    }
}

fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(|letter: char| letter.is_whitespace()).unwrap_or(text.len()))
}

/// The table with its columns, or the query, and what is behind it.
fn target(text: &str) -> Option<(&str, &str)> {
    let is_query = text.starts_with('(');
    let (mut depth, mut quote) = (0_usize, None);
    let mut name_ends = text.len();
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(text.split_at(at + 1));
                }
            }
            (None, letter) if letter.is_whitespace() && depth == 0 && !is_query => {
                name_ends = name_ends.min(at);
                // Columns may follow.
                if !text[at..].trim_start().starts_with('(') {
                    return Some(text.split_at(at));
                }
            }
            _ => {}
        }
    }
    None
}

/// Where the data are, and what is behind that.
fn file(text: &str) -> Option<(Place, &str)> {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('\'') else {
        let (name, rest) = word(text);
        let place = match name.to_ascii_lowercase().as_str() {
            // Programs are not run.
            "" | "program" => return None,
            "stdin" | "stdout" => Place::Script,
            "pstdin" | "pstdout" => Place::Standard,
            _ => Place::File(name.to_owned()),
        };
        return Some((place, rest));
    };
    let mut from = 0;
    loop {
        let at = from + quoted[from..].find('\'')?;
        if !quoted[at + 1..].starts_with('\'') {
            return Some((Place::File(quoted[..at].replace("''", "'")), &quoted[at + 1..]));
        }
        from = at + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_understood_in_its_forms() {
        let copy = |what, is_from, place, rest| Some(Copy { what, is_from, place, rest });
        let file = |path: &str| Place::File(path.to_owned());
        let cases = [
            ("t from 'a b.csv' csv", copy("t", true, file("a b.csv"), "csv")),
            (
                "t(a, b) from a.csv with (format csv, header)",
                copy("t(a, b)", true, file("a.csv"), "with (format csv, header)"),
            ),
            ("t (a, b) FROM stdin CSV HEADER", copy("t (a, b)", true, Place::Script, "CSV HEADER")),
            ("t from pstdin", copy("t", true, Place::Standard, "")),
            ("(SELECT ')' FROM t) to 'it''s' csv", copy("(SELECT ')' FROM t)", false, file("it's"), "csv")),
            ("\"a b\" to stdout", copy("\"a b\"", false, Place::Script, "")),
            ("(SELECT 1) from 'a.csv' csv", None),
            ("t from program 'cat'", None),
            ("t from", None),
            ("t", None),
            ("t from 'a csv", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(Copy::parse(line), wanted, "{line}");
        }
    }
}
