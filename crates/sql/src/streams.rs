//! Answers that are given to the client while their statement runs, so that they take little memory however long they are.
//!
//! The first rows are held back: most answers are no longer, and are given when the transaction has committed. A statement whose rows were given may have to run
//! again all the same. Then the rows that the client has got must come again, as their checksum tells; otherwise the statement fails with `40001`. So the client has
//! the whole answer of a transaction that has committed, or an error.

use std::io;

use hashbrown::DefaultHashBuilder;
use polychron_engine::{Error, Protocol};
use sqlparser::ast;

use crate::connection::Connection;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::exec::{Flow, bytes_of};
use crate::outcome::Notice;
use crate::parse::{self, Command};
use crate::prepared::Prepared;
use crate::rows::{RowColumn, Rows};
use crate::session::Sum;
use crate::types::Type;

/// How many bytes of rows are held back.
const HELD_BACK: usize = 1 << 20;

/// Takes the rows of an answer with these columns, one after the other.
pub type Give<'g> = dyn FnMut(&[RowColumn], &[Datum<'_>]) -> io::Result<()> + 'g;

/// An answer under way, over all attempts.
pub(crate) struct Stream<'g> {
    give: &'g mut Give<'g>,
    hashes: DefaultHashBuilder,
    /// How many rows the client has got, and what stands for them.
    given: u64,
    given_sum: u64,
    /// How many rows are wanted.
    most: u64,
    /// Rows, bytes held back and the checksum of the attempt.
    count: u64,
    bytes: usize,
    sum: Sum,
    /// The client takes no more.
    is_broken: bool,
    /// Rows may be given; and whether one was to be given when they may not.
    may_give: bool,
    is_refused: bool,
}

impl<'g> Stream<'g> {
    fn new(give: &'g mut Give<'g>) -> Self {
        let hashes = DefaultHashBuilder::default();
        let (given, given_sum, count, bytes, sum) = (0, 0, 0, 0, Sum::of(&hashes));
        let (is_broken, may_give, is_refused) = (false, true, false);
        Self { give, hashes, given, given_sum, most: u64::MAX, count, bytes, sum, is_broken, may_give, is_refused }
    }

    /// What its rows are hashed with; it is to be set before the first attempt.
    pub(crate) fn hash_with(&mut self, hashes: &DefaultHashBuilder) {
        if self.given == 0 {
            self.hashes = hashes.clone();
        }
    }

    /// Whether rows may be given from now on. Where they may not, an answer that is longer than what is held back fails.
    pub(crate) fn gives(&mut self, may_give: bool) {
        (self.may_give, self.is_refused) = (may_give, false);
    }

    /// Whether the answer was too long.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The statement begins, perhaps again.
    pub(crate) fn begin(&mut self) {
        (self.count, self.bytes, self.sum) = (0, 0, Sum::of(&self.hashes));
    }

    /// Takes a row, and tells whether more are wanted. What is held back is put into `rows`.
    pub(crate) fn row(&mut self, row: &[Datum<'_>], rows: &mut Rows) -> Result<Flow, SqlError> {
        self.take(row, rows)?;
        Ok(if self.count < self.most { Flow::More } else { Flow::Enough })
    }

    fn take(&mut self, row: &[Datum<'_>], rows: &mut Rows) -> Result<(), SqlError> {
        self.count += 1;
        if self.given == 0 {
            self.bytes += bytes_of(row);
            rows.push(row);
            return match () {
                () if self.bytes < HELD_BACK => Ok(()),
                () if self.may_give => self.give_all(rows),
                () => {
                    self.is_refused = true;
                    Err(SqlError::internal("the answer is read again where it may be given"))
                }
            };
        }
        row.iter().for_each(|value| self.sum.add(*value));
        if self.count > self.given {
            return self.give(rows.columns(), row);
        }
        if self.count == self.given && self.sum.now() != self.given_sum { Err(changed()) } else { Ok(()) }
    }

    fn give_all(&mut self, rows: &mut Rows) -> Result<(), SqlError> {
        let mut values = Vec::with_capacity(rows.columns().len());
        for row in &*rows {
            values.clear();
            values.extend((0..rows.columns().len()).map(|at| row.value(at)));
            values.iter().for_each(|value| self.sum.add(*value));
            self.give(rows.columns(), &values)?;
        }
        self.given = self.count;
        rows.clear();
        Ok(())
    }

    fn give(&mut self, columns: &[RowColumn], row: &[Datum<'_>]) -> Result<(), SqlError> {
        let given = if self.is_broken { Err(io::ErrorKind::BrokenPipe.into()) } else { (self.give)(columns, row) };
        (self.given, self.given_sum) = (self.given.max(self.count), self.sum.now());
        given.map_err(|error| {
            self.is_broken = true;
            SqlError::new(SqlState::IO_ERROR, format!("could not write the rows of an answer: {error}"))
        })
    }

    /// The statement has given all of its rows. How many of them the client has got.
    ///
    /// # Errors
    /// It had got more of them before.
    pub(crate) fn end(&self) -> Result<u64, SqlError> {
        if self.count < self.given { Err(changed()) } else { Ok(self.given) }
    }

    /// What stands for the answer, if the client has got rows of it.
    pub(crate) fn whole_sum(&self, notices: &[Notice]) -> Option<u64> {
        (self.given > 0).then(|| self.sum.clone().finish(self.count, notices))
    }
}

#[cold]
fn changed() -> SqlError {
    let detail = "Others have changed rows of the answer that the client had got when the statement conflicted.";
    SqlError::of_engine(Error::Conflict).with_detail(detail)
}

impl<P: Protocol> Connection<P> {
    /// As [`Connection::answer_decoded`]. A query gives the first `most` rows alone. Of a long answer rows are given to `give` while the query runs: those are not in the answer, which counts them ([`Rows::given`]).
    /// Where it is an error, the rows that were given are to be thrown away.
    ///
    /// # Errors
    /// As there; [`SqlState::SERIALIZATION_FAILURE`] where the query conflicts, is run again and answers other rows than were given; [`SqlState::IO_ERROR`] where `give` fails.
    pub fn stream_decoded(
        &mut self,
        prepared: &mut Prepared,
        types: &[Type],
        parameters: &[Datum<'_>],
        most: usize,
        give: &mut Give<'_>,
    ) -> Result<Rows, SqlError> {
        let stream = &mut Stream { most: most as u64, ..Stream::new(give) };
        self.run_prepared(prepared, parameters, Some(types), Some(stream))
    }

    /// As [`Connection::stream_decoded`], of a text. `None`: it is not one query alone, and nothing was done.
    ///
    /// # Errors
    /// As there.
    pub fn stream_query(&mut self, text: &str, give: &mut Give<'_>) -> Result<Option<Rows>, SqlError> {
        let Ok(commands) = parse::commands(text) else { return Ok(None) };
        let [Command::Sql(statement @ (ast::Statement::Query(_) | ast::Statement::Execute { .. }))] = &commands[..]
        else {
            return Ok(None);
        };
        let ended = self.limited(text, |connection| {
            connection.slot.activity.note_text(text);
            let bound = match statement {
                ast::Statement::Query(_) => connection.bound_statement(text, statement, &[]),
                // What is refused is refused when it is run as other statements are.
                _ => match connection.called_query(statement) {
                    Some(Ok((bound, values))) => {
                        let values: Vec<_> = values.iter().map(OwnedDatum::get).collect();
                        return connection.run_bound(&bound, &values, true, Some(&mut Stream::new(give))).map(Some);
                    }
                    Some(Err(error)) => Err(error),
                    None => Ok(None),
                },
            };
            match bound {
                Ok(Some(bound)) => connection.run_bound(&bound, &[], false, Some(&mut Stream::new(give))).map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(connection.fail(error)),
            }
        });
        self.finish_definitions();
        ended.map_err(|error| error.within(text))
    }
}
