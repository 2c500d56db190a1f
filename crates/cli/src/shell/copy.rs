//! `\copy`: rows of a file into a table as one transaction, or rows into a file, as CSV.

use std::fs::{self, File};
use std::io::{Read as _, Write as _, stdin};

use polychron::sql::Error;

use super::session::{Session, column};
use super::show::csv;

/// What `\copy` is to do.
#[derive(Debug, PartialEq, Eq)]
struct Copy<'t> {
    /// A table, with its columns if they are named, or a query in parentheses.
    what: &'t str,
    is_from: bool,
    /// None: the standard input or output.
    file: Option<String>,
    has_names: bool,
}

const USAGE: &str = "\\copy: it is \\copy TABLE [(COLUMNS)] from 'FILE' csv [header], or \\copy {TABLE | (QUERY)} to 'FILE' csv [header]";

impl Session {
    /// The answer is what is said of it.
    ///
    /// # Errors
    /// What it has failed with; no row was inserted then.
    pub(super) fn copy(&mut self, line: &str) -> Result<String, String> {
        let copy = Copy::parse(line).ok_or_else(|| USAGE.to_owned())?;
        if copy.is_from { self.copy_from(&copy) } else { self.copy_to(&copy) }
    }

    fn copy_to(&mut self, copy: &Copy<'_>) -> Result<String, String> {
        let query = match copy.what.strip_prefix('(') {
            Some(query) => query.trim_end().strip_suffix(')').ok_or_else(|| USAGE.to_owned())?.to_owned(),
            None => {
                let (table, columns) = copy.table();
                format!("SELECT {} FROM {table}", columns.unwrap_or("*"))
            }
        };
        let outcome = self.ask(&query).map_err(|error| told(&error))?;
        let columns: Vec<_> = outcome.columns.iter().map(|(name, of)| column(name, *of)).collect();
        let rows: Vec<_> = outcome.texts().collect();
        let text = csv(&columns, &rows, copy.has_names);
        match &copy.file {
            None => {
                self.print(&text);
                return Ok(String::new());
            }
            Some(path) => {
                let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
                written.map_err(|error| format!("{path}: {error}"))?;
            }
        }
        Ok(format!("COPY {}", rows.len()))
    }

    fn copy_from(&mut self, copy: &Copy<'_>) -> Result<String, String> {
        let name = copy.file.as_deref().unwrap_or("the standard input");
        let text = match &copy.file {
            Some(path) => fs::read_to_string(path),
            None if self.reads_input => return Err("\\copy: the standard input is the script".to_owned()),
            None => {
                let mut text = String::new();
                stdin().lock().read_to_string(&mut text).map(|_| text)
            }
        };
        let text = text.map_err(|error| format!("{name}: {error}"))?;
        let is_own = !self.connection.is_in_transaction();
        if is_own {
            self.connection.execute("BEGIN", ()).map_err(|error| told(&error))?;
        }
        let result = self.insert(copy, &text);
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = if is_own { self.connection.execute(end, ()).map(|_| ()) } else { Ok(()) };
        self.is_aborted = result.is_err() && self.connection.is_in_transaction();
        let count = result
            .map_err(|(line, why)| if line == 0 { why } else { format!("{why}\nCONTEXT:  {name}, line {line}") })?;
        ended.map_err(|error| told(&error))?;
        Ok(format!("COPY {count}"))
    }

    /// Inserts all records. Errors have the line of the record.
    fn insert(&mut self, copy: &Copy<'_>, text: &str) -> Result<u64, (usize, String)> {
        let head = |error: Error| (0, told(&error));
        let (table, columns) = copy.table();
        let selected = columns.unwrap_or("*");
        let query = self.connection.prepare(&format!("SELECT {selected} FROM {table}")).map_err(head)?;
        let width = query.columns().len();
        let values = (1..=width).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
        let named = columns.map(|columns| format!(" ({columns})")).unwrap_or_default();
        let statement = format!("INSERT INTO {table}{named} VALUES ({values})");
        let mut insert = self.connection.prepare(&statement).map_err(head)?;
        let mut records = Records { rest: text, line: 1 };
        let mut count = 0;
        if copy.has_names {
            records.next();
        }
        for (line, record) in records {
            let record = record.map_err(|why| (line, format!("ERROR:  {why}")))?;
            if record.len() != width {
                let what = if record.len() < width {
                    "missing data for a column"
                } else {
                    "extra data after last expected column"
                };
                return Err((line, format!("ERROR:  {what}")));
            }
            count += insert.execute(&mut self.connection, record.as_slice()).map_err(|error| (line, told(&error)))?;
        }
        Ok(count)
    }
}

fn told(error: &Error) -> String {
    let detail = error.detail().map(|detail| format!("\nDETAIL:  {detail}")).unwrap_or_default();
    let hint = error.hint().map(|hint| format!("\nHINT:  {hint}")).unwrap_or_default();
    format!("ERROR:  {}{detail}{hint}", error.message())
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
        let (file, rest) = file(rest)?;
        let lower = rest.to_ascii_lowercase().replace(['(', ')', ','], " ");
        let (mut is_csv, mut has_names) = (false, false);
        for option in lower.split_whitespace() {
            match option {
                "csv" => is_csv = true,
                "header" => has_names = true,
                "with" | "format" | "true" => {}
                _ => return None,
            }
        }
        is_csv.then_some(Self { what, is_from, file, has_names })
    }

    /// The table, and the columns that are named.
    fn table(&self) -> (&str, Option<&str>) {
        match self.what.split_once('(') {
            Some((table, columns)) => (table.trim(), Some(columns.trim_end().trim_end_matches(')'))),
            None => (self.what, None),
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

/// The file, none for the standard input or output, and what is behind it.
fn file(text: &str) -> Option<(Option<String>, &str)> {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('\'') else {
        let (name, rest) = word(text);
        let is_standard = ["stdin", "stdout", "pstdin", "pstdout"].contains(&name.to_ascii_lowercase().as_str());
        return (!name.is_empty()).then(|| ((!is_standard).then(|| name.to_owned()), rest));
    };
    let mut from = 0;
    loop {
        let at = from + quoted[from..].find('\'')?;
        if !quoted[at + 1..].starts_with('\'') {
            return Some((Some(quoted[..at].replace("''", "'")), &quoted[at + 1..]));
        }
        from = at + 2;
    }
}

/// The records of a text in CSV. An empty field is NULL, unless it is quoted.
struct Records<'t> {
    rest: &'t str,
    line: usize,
}

type Record = Vec<Option<String>>;

impl Iterator for Records<'_> {
    /// The line in which it begins.
    type Item = (usize, Result<Record, &'static str>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut record = Vec::new();
        loop {
            let field = self.field();
            let Some((field, end)) = field else {
                self.rest = "";
                return Some((line, Err("unterminated CSV quoted field")));
            };
            record.push(field);
            if end != ',' {
                return Some((line, Ok(record)));
            }
        }
    }
}

impl Records<'_> {
    /// The next field, and what ends it: a comma or the line.
    fn field(&mut self) -> Option<(Option<String>, char)> {
        let (mut field, mut is_quoted, mut had_quotes) = (String::new(), false, false);
        let mut letters = self.rest.char_indices().peekable();
        let mut end = (self.rest.len(), '\n');
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' if is_quoted && letters.next_if(|(_, next)| *next == '"').is_some() => field.push('"'),
                '"' => {
                    is_quoted = !is_quoted;
                    had_quotes = true;
                }
                letter if is_quoted => {
                    self.line += usize::from(letter == '\n');
                    field.push(letter);
                }
                '\r' if letters.peek().is_none_or(|(_, next)| *next == '\n') => {}
                ',' | '\n' => {
                    self.line += usize::from(letter == '\n');
                    end = (at + 1, letter);
                    break;
                }
                letter => field.push(letter),
            }
        }
        if is_quoted {
            return None;
        }
        self.rest = &self.rest[end.0..];
        Some(((had_quotes || !field.is_empty()).then_some(field), end.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_understood_in_its_forms() {
        let copy = |what, is_from, file: Option<&str>, has_names| {
            Some(Copy { what, is_from, file: file.map(str::to_owned), has_names })
        };
        let cases = [
            ("t from 'a b.csv' csv", copy("t", true, Some("a b.csv"), false)),
            ("t(a, b) from a.csv with (format csv, header)", copy("t(a, b)", true, Some("a.csv"), true)),
            ("t (a, b) FROM stdin CSV HEADER", copy("t (a, b)", true, None, true)),
            ("(SELECT ')' FROM t) to 'it''s' csv header", copy("(SELECT ')' FROM t)", false, Some("it's"), true)),
            ("\"a b\" to stdout csv", copy("\"a b\"", false, None, false)),
            ("t from 'a.csv'", None),
            ("(SELECT 1) from 'a.csv' csv", None),
            ("t from", None),
            ("t", None),
            ("t from 'a csv", None),
            ("t from a csv delimiter ';'", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(Copy::parse(line), wanted, "{line}");
        }
    }

    #[test]
    fn an_empty_field_is_null_and_a_quoted_one_is_not() {
        let records: Vec<_> = Records { rest: "a,,\"\"\r\n\"x\n\"\"y\",b\"c,d\n\n1", line: 1 }.collect();
        let field = |text: &str| Some(text.to_owned());
        let wanted = [(1, Ok(vec![field("a"), None, field("")])), (2, Ok(vec![field("x\n\"y"), None]))];
        assert_eq!(records[0], wanted[0]);
        assert_eq!(records.len(), 2, "{records:?}");
        assert_eq!(records[1].1, Err("unterminated CSV quoted field"));
        let records: Vec<_> = Records { rest: "\"x\n\"\"y\",b\n\n1", line: 1 }.collect();
        assert_eq!(
            records,
            [(1, Ok(vec![field("x\n\"y"), field("b")])), (3, Ok(vec![None])), (4, Ok(vec![field("1")]))]
        );
    }
}
