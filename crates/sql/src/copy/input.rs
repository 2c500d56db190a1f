//! COPY FROM: the bytes that the client gives become rows, which are inserted in batches.

use std::io;
use std::sync::Arc;

use polychron_engine::{Protocol, limits};

use super::decoder::{Batch, Decoder, Progress};
use super::{Copy, CopyShape};
use crate::connection::Connection;
use crate::control::Modes;
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::interrupts::Running;
use crate::outcome::Outcome;
use crate::parse::{self, Command};
use crate::plan::{Node, Plan};
use crate::session::Then;
use crate::statement::Action;
use crate::texts::TextClient;
use crate::watch::Begun;

/// How much of what the client gives is looked at in one go.
const PIECE: usize = 64 << 10;

/// A COPY FROM that takes bytes, in pieces of any size.
///
/// The rows are those of one statement: all of them are there when [`CopyIn::finish`] has answered, and none if the copy fails or is dropped before. In a transaction that the client
/// holds it behaves as other statements that fail: the transaction can only be rolled back, or to a savepoint.
#[must_use = "nothing is copied before it is finished"]
pub struct CopyIn<'c, P: Protocol> {
    connection: &'c mut Connection<P>,
    loading: Loading,
    /// Whether it has failed or is finished, so that nothing is left to be given up.
    has_ended: bool,
    running: Option<Running>,
    begun: Begun,
}

/// The statement that a COPY FROM is: bytes become rows, which a connection inserts.
struct Loading {
    plan: Arc<Plan>,
    decoder: Decoder,
    /// Rows that are inserted.
    count: u64,
    /// The batches of a planned transaction, which inserts all of them when it runs. Their values have gone there.
    gathered: Vec<Batch>,
}

impl<P: Protocol> std::fmt::Debug for CopyIn<'_, P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CopyIn").field("count", &self.loading.count).finish_non_exhaustive()
    }
}

impl<P: Protocol> Connection<P> {
    /// Begins a `COPY … FROM STDIN`, whose data the answer takes.
    ///
    /// # Errors
    /// The text is another statement, or this one is wrong.
    pub fn copy_in(&mut self, text: &str) -> Result<CopyIn<'_, P>, SqlError> {
        self.session.check_thread()?;
        let counted = self.begin_counted(text)?;
        let running = self.begin_statement();
        let begun = Running::hold(running.as_ref(), || {
            self.wake(text)?;
            self.begin_copy(copy_of(text, true)?)
        });
        let begun = begun.map_err(|error| self.fail(error));
        if let Err(error) = &begun {
            self.end_counted(counted, Err(error));
            self.finish_definitions();
            self.session.rest();
        }
        let loading = begun?;
        self.is_copying = true;
        Ok(CopyIn { connection: self, loading, has_ended: false, running, begun: counted })
    }

    /// Runs a COPY FROM among other statements of a text, whose transaction is open.
    pub(crate) fn copy_in_text(&mut self, copy: &Copy, client: &mut dyn TextClient) -> Result<Outcome, SqlError> {
        let mut loading = self.begin_copy(copy.clone()).map_err(|error| self.fail(error))?;
        // A client that panics leaves the transaction without it.
        self.is_copying = true;
        let mut failed = None;
        let sent = client.send(loading.decoder.shape(), &mut |bytes| {
            if let Some(error) = &failed {
                return Err(SqlError::clone(error));
            }
            let taken = bytes.chunks(PIECE).try_for_each(|piece| {
                limits::check().map_err(SqlError::of_engine)?;
                loading.add(piece, self)
            });
            taken.inspect_err(|error| failed = Some(error.clone()))
        });
        let ended = failed.map_or(sent, Err).and_then(|()| loading.end(self));
        self.is_copying = false;
        if let Err(error) = ended {
            self.session.drawn().take_postponed();
            return Err(self.fail(error));
        }
        let count = loading.count;
        Ok(Outcome { count, ..Outcome::tagged(format!("COPY {count}")) })
    }

    /// A COPY that was leaked, or has panicked, has failed: nothing of it remains.
    pub(crate) fn end_leaked_copy(&mut self) {
        if std::mem::take(&mut self.is_copying) {
            self.end_copy(SqlError::new(SqlState::QUERY_CANCELED, "COPY failed: it was given up"));
        }
    }

    /// A COPY FROM has failed.
    fn end_copy(&mut self, error: SqlError) -> SqlError {
        self.is_copying = false;
        self.session.drawn().take_postponed();
        // The transaction may have ended with the error already.
        let error = if self.session.is_open() { self.fail(error) } else { error };
        if self.session.is_planned() {
            self.session.roll_back();
        }
        self.finish_definitions();
        self.session.rest();
        error
    }

    fn begin_copy(&mut self, copy: Copy) -> Result<Loading, SqlError> {
        let Copy { statement, table, options, .. } = copy;
        self.check_not_failed()?;
        let (bound, _) = self.bind_to_tables(&statement, &[])?;
        let Action::Run(plan) = bound.action else { return Err(SqlError::internal("a COPY has no plan")) };
        self.check_may_run(&plan, Some("COPY FROM"))?;
        let (names, columns) = columns_of(&plan)?;
        let decoder = Decoder::new((table, &names), columns, options)?;
        self.session.begin(Modes::default(), false)?;
        self.session.drawn().take_postponed();
        let now = self.session.now().unwrap_or_default();
        let decoder = decoder.with_time(self.zone.clone(), now);
        Ok(Loading { plan: Arc::new(plan), decoder, count: 0, gathered: Vec::new() })
    }
}

/// The COPY that a text is, in this direction.
pub(super) fn copy_of(text: &str, is_from: bool) -> Result<Copy, SqlError> {
    let mut commands = parse::commands(text)?;
    match (commands.pop(), commands.is_empty()) {
        (Some(Command::Copy(copy)), true) if copy.is_from == is_from => Ok(*copy),
        _ => {
            let wanted = if is_from { "COPY ... FROM STDIN" } else { "COPY ... TO STDOUT" };
            Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("the statement is not one {wanted}")))
        }
    }
}

/// The names of all columns of the table, and the columns that are given.
fn columns_of(plan: &Plan) -> Result<(Vec<String>, Vec<super::decoder::Column>), SqlError> {
    let none = || SqlError::internal("a COPY has no columns");
    let Plan::Insert { table, source, .. } = plan else { return Err(none()) };
    // Where all columns are given, they are the row.
    let rows = if let Node::Project { input, .. } = source { input } else { source };
    let Node::Given(given) = rows else { return Err(none()) };
    let names = table.visible().map(|(_, column)| column.name.clone()).collect();
    let columns = given.iter().map(|&at| {
        let column = &table.columns[at];
        super::decoder::Column::new(column.name.clone(), column.of)
    });
    Ok((names, columns.collect()))
}

impl<P: Protocol> CopyIn<'_, P> {
    /// How its data look.
    pub fn shape(&self) -> CopyShape {
        self.loading.decoder.shape()
    }

    /// Takes more bytes of the data, which may end anywhere.
    ///
    /// # Errors
    /// What the data, or their insertion, fails with. The copy has ended then, and nothing of it remains.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        self.check_open()?;
        let running = self.running.take();
        let taken = Running::hold(running.as_ref(), || {
            bytes.chunks(PIECE).try_for_each(|piece| {
                Running::check(running.as_ref())?;
                self.loading.add(piece, self.connection)
            })
        });
        self.running = running;
        taken.map_err(|error| self.fail(error))
    }

    /// The data are complete: the answer is the number of rows, once the statement's transaction has committed, if the client holds none.
    ///
    /// # Errors
    /// As [`CopyIn::write`]; and what the commit fails with.
    pub fn finish(mut self) -> Result<u64, SqlError> {
        self.check_open()?;
        let running = self.running.take();
        let ended = Running::hold(running.as_ref(), || {
            Running::check(running.as_ref())?;
            self.end()
        });
        match ended {
            Ok(()) => {
                (self.has_ended, self.connection.is_copying) = (true, false);
                self.connection.finish_definitions();
                self.connection.session.rest();
                self.connection.end_counted(self.begun, Ok(self.loading.count));
                Ok(self.loading.count)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Gives the copy up for a reason: nothing of it remains.
    pub fn abandon(mut self, reason: &str) {
        self.give_up(reason);
    }

    fn give_up(&mut self, reason: &str) {
        if !self.has_ended {
            let message = format!("COPY from stdin failed: {reason}");
            self.fail(SqlError::new(SqlState::QUERY_CANCELED, message));
        }
    }

    fn check_open(&self) -> Result<(), SqlError> {
        if self.has_ended {
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, "the COPY has failed before"));
        }
        self.connection.session.check_thread()
    }

    fn end(&mut self) -> Result<(), SqlError> {
        self.loading.end(self.connection)?;
        let connection = &mut *self.connection;
        if connection.session.is_planned() || connection.session.is_explicit() || connection.is_pipelined {
            return Ok(());
        }
        connection.commit().map(|_| ())
    }

    /// The copy has failed.
    fn fail(&mut self, error: SqlError) -> SqlError {
        if self.has_ended {
            return error;
        }
        self.has_ended = true;
        self.running = None;
        let error = self.connection.end_copy(error);
        self.connection.end_counted(self.begun, Err(&error));
        error
    }
}

impl Loading {
    /// Takes more bytes of the data, and inserts the batches that are complete.
    fn add<P: Protocol>(&mut self, bytes: &[u8], connection: &mut Connection<P>) -> Result<(), SqlError> {
        self.decoder.add(bytes);
        self.advance(false, connection)
    }

    /// The data are complete.
    fn end<P: Protocol>(&mut self, connection: &mut Connection<P>) -> Result<(), SqlError> {
        self.advance(true, connection)?;
        self.insert(connection)?;
        if connection.session.is_planned() {
            return self.run_gathered(None, connection);
        }
        connection.session.check_postponed(&connection.zone)
    }

    /// Inserts what is complete.
    fn advance<P: Protocol>(&mut self, is_last: bool, connection: &mut Connection<P>) -> Result<(), SqlError> {
        loop {
            match self.decoder.decode(is_last) {
                Ok(Progress::Waits) => return Ok(()),
                Ok(Progress::IsFull) => self.insert(connection)?,
                Err(error) => return Err(self.first_error(error, connection)),
            }
        }
    }

    /// The error of rows in front of one that cannot be read, if that comes first in PostgreSQL: rows are checked as they come, but keys are looked at in batches.
    fn first_error<P: Protocol>(&mut self, error: SqlError, connection: &mut Connection<P>) -> SqlError {
        let checks = [SqlState::CHECK_VIOLATION, SqlState::NOT_NULL_VIOLATION];
        if connection.session.is_planned() {
            let inserted = self.insert(connection);
            return inserted.and_then(|()| self.run_gathered(Some(&error), connection)).err().unwrap_or(error);
        }
        match self.insert(connection) {
            Err(earlier) if checks.contains(&earlier.state()) => earlier,
            _ => error,
        }
    }

    /// Inserts the rows of the batch.
    fn insert<P: Protocol>(&mut self, connection: &mut Connection<P>) -> Result<(), SqlError> {
        if self.decoder.batch.is_empty() {
            return Ok(());
        }
        let values: Vec<_> = self.decoder.batch.values.iter().map(OwnedDatum::get).collect();
        if connection.session.is_planned() {
            connection.session.put((&self.plan, &values), Then::Answer, &connection.zone)?;
            drop(values);
            let mut batch = std::mem::take(&mut self.decoder.batch);
            batch.values = Vec::new();
            self.gathered.push(batch);
            return Ok(());
        }
        let inserted = connection.session.run((&self.plan, &values), &connection.zone);
        drop(values);
        let inserted = inserted.map_err(|error| self.decoder.in_batch(error));
        self.decoder.batch.clear();
        self.count += inserted?.count;
        Ok(())
    }

    /// Inserts the rows of all batches as one transaction, which fails with `last` if there is one. Its error is of a row in front of that, if such a one comes first
    /// in PostgreSQL.
    fn run_gathered<P: Protocol>(
        &mut self,
        last: Option<&SqlError>,
        connection: &mut Connection<P>,
    ) -> Result<(), SqlError> {
        let (ended, ran) = connection.session.commit_gathered(last, &connection.zone);
        self.count = ran.outcomes.iter().map(|outcome| outcome.count).sum();
        let Err(error) = ended else { return Ok(()) };
        let is_early = ran.done + 1 < self.gathered.len();
        let checks = [SqlState::CHECK_VIOLATION, SqlState::NOT_NULL_VIOLATION];
        match last {
            Some(last) if !is_early && !checks.contains(&error.state()) => Err(last.clone()),
            _ if ran.done < self.gathered.len() => {
                self.decoder.batch = self.gathered.swap_remove(ran.done);
                Err(self.decoder.in_batch(error))
            }
            _ => Err(error),
        }
    }
}

/// A copy that is not finished is given up.
impl<P: Protocol> Drop for CopyIn<'_, P> {
    fn drop(&mut self) {
        self.give_up("it was given up");
    }
}

/// Errors are those of the copy, inside of one of [`io::ErrorKind::Other`].
impl<P: Protocol> io::Write for CopyIn<'_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CopyIn::write(self, bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
