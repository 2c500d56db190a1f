//! COPY TO: the rows of a query as bytes, which go to the client while the query runs.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::Protocol;

use super::input::copy_of;
use super::options::{Format, Header, Options};
use super::{Copy, CopyShape, binary, fields};
use crate::connection::Connection;
use crate::control::Modes;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::interrupts::Running;
use crate::outcome::Outcome;
use crate::plan::{Node, OutputColumn, Plan};
use crate::statement::Action;
use crate::text::{self, Zone};
use crate::texts::TextClient;
use crate::types::Type;

/// What is held back before it is given to the client. Until then the query can be run again.
const HELD_BACK: usize = 64 << 10;
/// How often a query is run again that conflicts before anything of it was given.
const ATTEMPTS: usize = 20;

/// Rows as bytes.
pub(crate) struct Encoder<'w> {
    options: Options,
    /// Their names and types, and whether they are always quoted.
    columns: Vec<(String, Type, bool)>,
    zone: Zone,
    buffer: Vec<u8>,
    /// A field as text.
    shown: String,
    out: &'w mut dyn io::Write,
    /// Where rows end, if they are to be given one by one.
    ends: Option<Vec<usize>>,
    /// Whether the client has got something.
    pub(crate) has_given: bool,
}

impl<'w> Encoder<'w> {
    fn new(
        options: Options,
        (table, all): (&str, &[String]),
        columns: &[OutputColumn],
        zone: Zone,
        out: &'w mut dyn io::Write,
    ) -> Result<Self, SqlError> {
        let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
        let forced =
            options.force_quote.among("FORCE_QUOTE", &names, (table, if table.is_empty() { &names } else { all }))?;
        let columns = columns.iter().zip(forced).map(|(column, forced)| (column.name.clone(), column.of.base, forced));
        let columns = columns.collect();
        let (buffer, shown) = (Vec::new(), String::new());
        Ok(Self { options, columns, zone, buffer, shown, out, ends: None, has_given: false })
    }

    /// Begins anew, where nothing was given yet.
    pub(crate) fn begin(&mut self) {
        self.buffer.clear();
        self.ends.iter_mut().for_each(Vec::clear);
        if self.options.format == Format::Binary {
            binary::begin(&mut self.buffer);
        }
        if self.options.header == Header::None {
            return;
        }
        for (at, (name, ..)) in self.columns.iter().enumerate() {
            if at > 0 {
                self.buffer.push(self.options.delimiter);
            }
            fields::write(Some(name), (false, self.columns.len() == 1), &self.options, &mut self.buffer);
        }
        self.buffer.push(b'\n');
        self.end_row();
    }

    fn end_row(&mut self) {
        let at = self.buffer.len();
        self.ends.iter_mut().for_each(|ends| ends.push(at));
    }

    /// Takes a row.
    pub(crate) fn row(&mut self, row: &[Datum<'_>]) -> Result<(), SqlError> {
        let is_binary = self.options.format == Format::Binary;
        if is_binary {
            self.buffer.extend_from_slice(&(row.len() as i16).to_be_bytes());
        }
        for (at, (value, (_, of, is_forced))) in row.iter().zip(&self.columns).enumerate() {
            if is_binary {
                binary::write(*of, *value, &mut self.buffer);
                continue;
            }
            if at > 0 {
                self.buffer.push(self.options.delimiter);
            }
            let field = match *value {
                Datum::Null => None,
                Datum::Text(text) => Some(text),
                value => {
                    self.shown.clear();
                    text::write(*of, value, &self.zone, &mut self.shown);
                    Some(self.shown.as_str())
                }
            };
            fields::write(field, (*is_forced, row.len() == 1), &self.options, &mut self.buffer);
        }
        if !is_binary {
            self.buffer.push(b'\n');
        }
        self.end_row();
        if self.buffer.len() >= HELD_BACK { self.give() } else { Ok(()) }
    }

    /// Gives the client what is there.
    fn give(&mut self) -> Result<(), SqlError> {
        self.has_given |= !self.buffer.is_empty();
        let given = match &mut self.ends {
            None => self.out.write_all(&self.buffer),
            Some(ends) => {
                let mut start = 0;
                // What follows the last row stands alone.
                let rest = Some(self.buffer.len()).filter(|length| ends.last() != Some(length) && *length > 0);
                ends.drain(..).chain(rest).try_for_each(|end| {
                    let piece = std::mem::replace(&mut start, end)..end;
                    self.out.write_all(&self.buffer[piece])
                })
            }
        };
        self.buffer.clear();
        given.map_err(|error| SqlError::new(SqlState::IO_ERROR, format!("could not write the data of COPY: {error}")))
    }

    /// The rows are complete.
    fn end(&mut self) -> Result<(), SqlError> {
        if self.options.format == Format::Binary {
            binary::end(&mut self.buffer);
        }
        self.give()?;
        let flushed = self.out.flush();
        flushed.map_err(|error| SqlError::new(SqlState::IO_ERROR, format!("could not write the data of COPY: {error}")))
    }
}

/// Ends a copy whose `out` panics: its transaction has failed, or goes with it.
struct Copying<'c, P: Protocol>(&'c mut Connection<P>);

impl<P: Protocol> Drop for Copying<'_, P> {
    fn drop(&mut self) {
        self.0.end_leaked_copy();
    }
}

/// Rows for the client of a text, one with each call.
struct RowsOf<'r, 'c>(&'r RefCell<&'c mut dyn TextClient>);

impl io::Write for RowsOf<'_, '_> {
    fn write(&mut self, row: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().row(row).map(|()| row.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is told how the data look.
type Begun<'b> = Option<&'b mut dyn FnMut(CopyShape)>;

impl<P: Protocol> Connection<P> {
    /// Runs a `COPY … TO STDOUT`, and gives its data to `out` in pieces while the query runs. The answer is the number of rows.
    ///
    /// A query that conflicts is run again as long as nothing was given, and otherwise fails: what was given is to be thrown away where the answer is an error.
    ///
    /// # Errors
    /// The text is another statement, the query fails, or `out` does ([`SqlState::IO_ERROR`]).
    pub fn copy_out(&mut self, text: &str, out: &mut dyn io::Write) -> Result<u64, SqlError> {
        self.copy_out_to(text, out, None)
    }

    /// As [`Connection::copy_out`], for a client that is told first how the data look, and gets each row with a call of its own.
    ///
    /// # Errors
    /// As there.
    pub fn copy_out_by_row(
        &mut self,
        text: &str,
        begun: &mut dyn FnMut(CopyShape),
        out: &mut dyn io::Write,
    ) -> Result<u64, SqlError> {
        self.copy_out_to(text, out, Some(begun))
    }

    fn copy_out_to(&mut self, text: &str, out: &mut dyn io::Write, begun: Begun<'_>) -> Result<u64, SqlError> {
        self.session.check_thread()?;
        let counted = self.begin_counted(text)?;
        let running = self.begin_statement();
        let copying = Copying(self);
        copying.0.is_copying = true;
        let ended = Running::hold(running.as_ref(), || {
            copying.0.wake(text)?;
            copying.0.run_copy_out(copy_of(text, false)?, out, begun)
        });
        copying.0.is_copying = false;
        drop(copying);
        drop(running);
        let ended = ended.map_err(|error| self.fail(error));
        self.end_counted(counted, ended.as_ref().map(|rows| *rows));
        self.finish_definitions();
        self.session.rest();
        ended
    }

    /// Runs a COPY TO among other statements of a text, whose transaction is open.
    pub(crate) fn copy_out_of_text(&mut self, copy: &Copy, client: &mut dyn TextClient) -> Result<Outcome, SqlError> {
        let client = RefCell::new(client);
        let mut begun = |shape| client.borrow_mut().begin_rows(shape);
        let copied = self.run_copy_out(copy.clone(), &mut RowsOf(&client), Some(&mut begun));
        let count = copied.map_err(|error| self.fail(error))?;
        client.into_inner().end_rows();
        Ok(Outcome { count, ..Outcome::tagged(format!("COPY {count}")) })
    }

    fn run_copy_out(&mut self, copy: Copy, out: &mut dyn io::Write, begun: Begun<'_>) -> Result<u64, SqlError> {
        let Copy { statement, table, options, .. } = copy;
        self.check_not_failed()?;
        let (bound, _) = self.bind_to_tables(&statement, &[])?;
        let Action::Run(plan) = bound.action else { return Err(SqlError::unsupported("COPY of this statement")) };
        self.check_may_run(&plan, None)?;
        if plan.changes().is_some() && plan.columns().is_empty() {
            let message = "COPY query must have a RETURNING clause";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let plan = Arc::new(plan);
        let all = match &*plan {
            Plan::Query { node: Node::Scan(scan), .. } => {
                scan.table.visible().map(|(_, column)| column.name.clone()).collect()
            }
            _ => Vec::new(),
        };
        let mut encoder = Encoder::new(options, (&table, &all), plan.columns(), self.zone.clone(), out)?;
        if let Some(begun) = begun {
            encoder.ends = Some(Vec::new());
            begun(CopyShape { is_binary: encoder.options.format == Format::Binary, columns: encoder.columns.len() });
        }
        encoder.begin();
        if self.session.is_planned() {
            let mut count = 0;
            self.run_copied(&plan, &mut |row| {
                count += 1;
                encoder.row(row)
            })?;
            return encoder.end().map(|()| count);
        }
        let is_own = !self.session.is_open();
        // It is given while it runs, so it reads a snapshot if it can.
        let is_repeatable = is_own.then(|| plan.changes().is_none());
        for attempt in 0.. {
            self.session.begin(Modes { is_repeatable, ..Modes::default() }, false)?;
            let count = self.session.run_out(&plan, &self.zone, &mut encoder);
            let ended = match count {
                Ok(count) if is_own => self.commit().map(|_| count),
                other => other,
            };
            match ended {
                Err(error) if error.state() == SqlState::SERIALIZATION_FAILURE => {
                    if !is_own || encoder.has_given || attempt == ATTEMPTS {
                        return Err(error);
                    }
                    encoder.begin();
                }
                Err(error) => return Err(error),
                Ok(count) => return encoder.end().map(|()| count),
            }
        }
        Err(SqlError::of_engine(Error::Conflict))
    }
}
