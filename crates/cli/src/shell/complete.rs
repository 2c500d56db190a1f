//! What the words of a line can become: commands, keywords, and the names of tables and columns.

use std::borrow::Cow;

use rustyline::completion::Completer;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::session::Session;

const COMMANDS: &[&str] = &[
    "\\?", "\\copy", "\\d", "\\df", "\\di", "\\dn", "\\ds", "\\dt", "\\dv", "\\echo", "\\g", "\\gx", "\\h", "\\i",
    "\\p", "\\pset", "\\q", "\\r", "\\set", "\\timing", "\\unset", "\\watch", "\\x",
];

const KEYWORDS: &str = "ADD ALL ALTER ALWAYS AND ANY AS ASC BEGIN BETWEEN BIGINT BOOLEAN BY BYTEA CASCADE CASE CAST CHECK COALESCE COLUMN COMMIT \
    CONFLICT CONSTRAINT COUNT CREATE CROSS CURRENT_DATE CURRENT_TIMESTAMP DATE DEFAULT DELETE DESC DISTINCT DO DOUBLE DROP ELSE END EXCEPT EXISTS EXPLAIN \
    EXTRACT FALSE FILTER FIRST FOREIGN FROM FULL GENERATED GROUP HAVING IDENTITY IF ILIKE IN INDEX INNER INSERT INTEGER INTERSECT INTERVAL INTO IS JOIN \
    KEY LAST LATERAL LEFT LIKE LIMIT NOT NOTHING NULL NULLS NUMERIC OFFSET ON ONLY OR ORDER OUTER OVER PARTITION PRECISION PRIMARY READ REAL RECURSIVE \
    REFERENCES RELEASE RENAME RETURNING RIGHT ROLLBACK ROW ROWS SAVEPOINT SELECT SEQUENCE SET SHOW SMALLINT TABLE TEXT THEN TIME TIMESTAMP TIMESTAMPTZ TO \
    TRANSACTION TRUE UNION UNIQUE UPDATE USING UUID VALUES VARCHAR VIEW WHEN WHERE WINDOW WITH WRITE";

const NAMES: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') \
    UNION SELECT column_name FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema')";

/// The names that there are, and whether the terminal shows colours.
pub(super) struct Words {
    pub(super) names: Vec<String>,
    pub(super) is_coloured: bool,
}

impl Words {
    /// Looks for names again, outside of transactions, which this would become part of.
    pub(super) fn look(&mut self, session: &mut Session) {
        if !session.connection.is_in_transaction()
            && let Ok(answer) = session.ask(NAMES)
        {
            self.names = answer.texts().flatten().flatten().collect();
        }
    }

    /// Where the word before a position begins, and what it can become.
    fn complete_word(&self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = &line[..at];
        let is_end = |letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == '\\');
        let start = before.rfind(is_end).map_or(0, |end| end + before[end..].chars().next().map_or(1, char::len_utf8));
        let word = &before[start..];
        if word.starts_with('\\') {
            let commands = COMMANDS.iter().filter(|command| command.starts_with(word));
            return (start, commands.map(|command| (*command).to_owned()).collect());
        }
        let lower = word.to_lowercase();
        let mut found: Vec<String> = self.names.iter().filter(|name| name.starts_with(&lower)).cloned().collect();
        // A command takes names alone.
        if !word.is_empty() && !before.trim_start().starts_with('\\') {
            let is_lower = word.chars().any(char::is_lowercase);
            let keywords = KEYWORDS
                .split_whitespace()
                .map(|keyword| if is_lower { keyword.to_lowercase() } else { keyword.to_owned() });
            found.extend(keywords.filter(|keyword| keyword.to_lowercase().starts_with(&lower)));
        }
        found.sort();
        found.dedup();
        (start, found)
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.complete_word(line, at))
    }
}

impl Highlighter for Words {
    /// Keywords are bold, and texts green.
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if !self.is_coloured || line.trim_start().starts_with('\\') {
            return Cow::Borrowed(line);
        }
        let mut shown = String::with_capacity(line.len() * 2);
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let end = match first {
                '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
                first if is_word(first) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
                first => first.len_utf8(),
            };
            let (piece, behind) = rest.split_at(end);
            let is_keyword = || KEYWORDS.split_whitespace().any(|keyword| keyword.eq_ignore_ascii_case(piece));
            match first {
                '\'' => shown += &format!("\x1b[32m{piece}\x1b[0m"),
                first if is_word(first) && is_keyword() => shown += &format!("\x1b[1m{piece}\x1b[0m"),
                _ => shown += piece,
            }
            rest = behind;
        }
        Cow::Owned(shown)
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        self.is_coloured
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Validator for Words {}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words { names: vec!["account".to_owned(), "balance".to_owned()], is_coloured: true }
    }

    #[test]
    fn words_become_keywords_names_and_commands() {
        let complete = |line: &str| words().complete_word(line, line.len());
        assert_eq!(complete("SEL"), (0, vec!["SELECT".to_owned()]));
        assert_eq!(complete("select ba"), (7, vec!["balance".to_owned()]));
        assert_eq!(complete("delete fr"), (7, vec!["from".to_owned()]));
        assert_eq!(complete("\\d ac"), (3, vec!["account".to_owned()]));
        assert_eq!(complete("\\wa"), (0, vec!["\\watch".to_owned()]));
        assert_eq!(complete("SELECT ü,ba"), (10, vec!["balance".to_owned()]));
        assert_eq!(complete("\\d se"), (3, vec![]));
    }

    #[test]
    fn colours_change_no_letters() {
        for line in ["SELECT 'a', ü FROM t WHERE x = 'open", "\\d t", "", "''"] {
            assert_eq!(console::strip_ansi_codes(&words().highlight(line, 0)), line);
        }
        assert_eq!(words().highlight("select 'a'", 0), "\x1b[1mselect\x1b[0m \x1b[32m'a'\x1b[0m");
    }
}
