//! The simple protocol: a text of statements, and all that they answer.

use std::io;

use polychron::Protocol;
use polychron_sql::{CopyShape, Datum, Forms, Kind, Outcome, RowColumn, SqlError, SqlState, Take, TextClient, copy_of};

use crate::answers::Format;
use crate::error::End;
use crate::extended::described;
use crate::session::{Session, Wire};

impl<P: Protocol> Session<P> {
    /// Runs the statements of a text, and tells what they answer, or what fails.
    ///
    /// # Errors
    /// The session ends.
    pub(crate) fn simple(&mut self, text: &str) -> Result<(), End> {
        // It takes the place of what has no name.
        self.connection.close_portal("");
        self.connection.forget_statement("");
        let done = match begins_with_copy(text).then(|| copy_of(text)).flatten() {
            Some(Kind::CopyIn) => self.copy_in(text)?,
            Some(Kind::CopyOut) => self.copy_out(text)?,
            _ => self.run(text)?,
        };
        // The text went on with what came in front of it without Sync, and ends it.
        let ended = self.connection.end_pipeline();
        if let Err(error) = done.and(ended) {
            self.wire.answers.error(&error);
        }
        Ok(())
    }

    fn run(&mut self, text: &str) -> Result<Result<(), SqlError>, End> {
        if begins_with(text, &["select", "with", "values", "table", "execute"]) {
            let forms = self.connection.forms();
            match self.query(text, &forms) {
                _ if self.wire.is_gone => return Err(End::Gone),
                Ok(true) => return Ok(Ok(())),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        let mut told = Told { wire: &mut self.wire, is_empty: true, ended: Ok(()) };
        let done = self.connection.execute_for(text, &[], &mut told);
        let Told { is_empty, ended, .. } = told;
        ended?;
        if done.is_ok() && is_empty {
            self.wire.answers.plain(b'I');
        }
        Ok(done)
    }
}

impl<P: Protocol> Session<P> {
    /// Runs a text that is one query, and gives its rows while it runs; `false`: it is none, and nothing was done.
    fn query(&mut self, text: &str, forms: &Forms) -> Result<bool, SqlError> {
        let Session { connection, wire, .. } = self;
        let mut has_begun = false;
        let give = &mut |columns: &[RowColumn], row: &[Datum<'_>]| {
            if !std::mem::replace(&mut has_begun, true) {
                describe(wire, columns);
            }
            let values = columns.iter().zip(row).map(|(column, value)| (column.of, *value));
            wire.answers.values(values, forms, |_| Format::Text);
            wire.write_much()
        };
        let Some(rows) = connection.stream_query(text, give)? else { return Ok(false) };
        wire.answers.notices(rows.notices());
        if !has_begun && (!rows.columns().is_empty() || rows.is_of_query()) {
            describe(wire, rows.columns());
        }
        for row in &rows {
            wire.answers.row(row, rows.columns(), forms, |_| Format::Text);
            // Whoever is gone is found to be so here, too.
            if wire.write_much().is_err() {
                break;
            }
        }
        wire.answers.complete(&rows.tag());
        Ok(true)
    }
}

/// The client of a text of statements.
struct Told<'w> {
    wire: &'w mut Wire,
    is_empty: bool,
    /// A client that is gone gets nothing, and the text goes on to its end.
    ended: Result<(), End>,
}

impl Told<'_> {
    fn is_gone(&self) -> bool {
        self.ended.is_err()
    }
}

impl TextClient for Told<'_> {
    fn answer(&mut self, outcome: Outcome, forms: &Forms) {
        self.is_empty = false;
        if !self.is_gone() {
            self.ended = tell(self.wire, &outcome, forms);
        }
    }

    fn copies(&self) -> bool {
        true
    }

    fn send(&mut self, shape: CopyShape, take: &mut Take<'_>) -> Result<(), SqlError> {
        let gone = || SqlError::new(SqlState::QUERY_CANCELED, "COPY from stdin failed: the client is gone");
        if self.is_gone() {
            return Err(gone());
        }
        self.wire.receive_copy(shape, take).unwrap_or_else(|end| {
            self.ended = Err(end);
            Err(gone())
        })
    }

    fn begin_rows(&mut self, shape: CopyShape) {
        self.is_empty = false;
        self.wire.answers.copy(b'H', shape);
    }

    fn row(&mut self, row: &[u8]) -> io::Result<()> {
        if !self.is_gone() {
            self.wire.answers.put(b'd', |out| out.extend_from_slice(row));
            self.ended = self.wire.answers.write_much(&self.wire.socket);
        }
        if self.is_gone() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn end_rows(&mut self) {
        self.wire.answers.plain(b'c');
    }
}

fn describe(wire: &mut Wire, columns: &[RowColumn]) {
    wire.answers.columns(columns.iter().map(described), |_| Format::Text);
}

/// Tells what a statement has done.
fn tell(wire: &mut Wire, outcome: &Outcome, forms: &Forms) -> Result<(), End> {
    let Outcome { tag, is_query, columns, bounds, origins, rows, notices, .. } = outcome;
    wire.answers.notices(notices);
    // A query without columns has rows all the same.
    if !columns.is_empty() || *is_query {
        let bound = |at: usize| bounds.get(at).copied().unwrap_or_default();
        let origin = |at: usize| origins.get(at).copied().flatten();
        let columns = columns.iter().enumerate().map(|(at, (name, of))| (name.as_str(), *of, bound(at), origin(at)));
        wire.answers.columns(columns, |_| Format::Text);
    }
    for row in rows {
        let values = row.iter().zip(columns).map(|(value, (_, of))| (*of, value.get()));
        wire.answers.values(values, forms, |_| Format::Text);
        wire.answers.write_much(&wire.socket)?;
    }
    wire.answers.complete(tag);
    Ok(())
}

/// Whether the first word of a text is COPY: other texts are not parsed to find it out.
fn begins_with_copy(text: &str) -> bool {
    begins_with(text, &["copy"])
}

/// Whether a text begins with one of these words, or a longer one.
fn begins_with(text: &str, words: &[&str]) -> bool {
    let mut rest = text.trim_start();
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest).trim_start();
        } else if let Some(more) = rest.strip_prefix(';') {
            rest = more.trim_start();
        } else {
            let is_first = |word: &&str| rest.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word));
            return words.iter().any(is_first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_known_by_their_first_word() {
        for text in ["copy t from stdin", " ;\n-- a\n/* b */COPY (SELECT 1) TO STDOUT"] {
            assert!(begins_with_copy(text), "{text}");
        }
        for text in ["", "SELECT 'copy'", "-- copy", "/* copy", "cop", "é"] {
            assert!(!begins_with_copy(text), "{text}");
        }
    }
}
