//! The simple protocol: a text of statements, and all that they answer.

use polychron::Protocol;
use polychron_sql::{Kind, Outcome, SqlError, copy_of};

use crate::answers::Format;
use crate::error::End;
use crate::session::{Session, Wire};

impl<P: Protocol> Session<'_, P> {
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

/// Tells what a statement has done.
fn tell(wire: &mut Wire<'_>, outcome: &Outcome, forms: &polychron_sql::Forms) -> Result<(), End> {
    let Outcome { tag, columns, bounds, rows, notices, .. } = outcome;
    wire.answers.notices(notices);
    // A query without columns has rows all the same.
    if !columns.is_empty() || tag.starts_with("SELECT ") {
        let bound = |at: usize| bounds.get(at).copied().unwrap_or_default();
        let columns = columns.iter().enumerate().map(|(at, (name, of))| (name.as_str(), *of, bound(at)));
        wire.answers.columns(columns, |_| Format::Text);
    }
    for row in rows {
        let values = row.iter().zip(columns).map(|(value, (_, of))| (*of, value.get()));
        wire.answers.values(values, forms, |_| Format::Text);
        wire.answers.write_much(wire.socket)?;
    }
    wire.answers.complete(tag);
    Ok(())
}

/// Whether the first word of a text is COPY: other texts are not parsed to find it out.
fn begins_with_copy(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest).trim_start();
        } else if let Some(more) = rest.strip_prefix(';') {
            rest = more.trim_start();
        } else {
            return rest.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
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
