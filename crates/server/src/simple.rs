//! The simple protocol: a text of statements, and all that they answer.

use polychron::Protocol;
use polychron_sql::{Datum, Forms, Kind, Outcome, RowColumn, SqlError, copy_of};

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
        self.extended.forget_unnamed();
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
        let (mut is_empty, mut ended) = (true, Ok(()));
        let forms = self.connection.forms();
        if begins_with(text, &["select", "with", "values", "table"]) {
            match self.query(text, &forms) {
                _ if self.wire.is_gone => return Err(End::Gone),
                Ok(true) => return Ok(Ok(())),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        let wire = &mut self.wire;
        let done = self.connection.execute_each(text, &[], &mut |outcome| {
            is_empty = false;
            // A client that is gone gets nothing, and the text goes on to its end.
            if ended.is_ok() {
                ended = tell(wire, &outcome, &forms);
            }
        });
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
        if !has_begun {
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

fn describe(wire: &mut Wire, columns: &[RowColumn]) {
    wire.answers.columns(columns.iter().map(described), |_| Format::Text);
}

/// Tells what a statement has done.
fn tell(wire: &mut Wire, outcome: &Outcome, forms: &polychron_sql::Forms) -> Result<(), End> {
    let Outcome { tag, columns, bounds, origins, rows, notices, .. } = outcome;
    wire.answers.notices(notices);
    // A query without columns has rows all the same.
    if !columns.is_empty() || tag.starts_with("SELECT ") {
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
