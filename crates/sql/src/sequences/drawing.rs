//! What expressions ask of sequences.

use std::sync::Arc;

use super::{BLOCK, Draw, Drawn, ROW_BLOCKS, Sequence, Shown, planned};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};

/// A question to sequences in an expression, with the connection that asks.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    pub(crate) draw: Arc<Draw>,
    pub(crate) drawn: Arc<Drawn>,
}

impl Drawing {
    pub(crate) fn answer<'a>(&self, arguments: &[Datum<'a>], context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
        let number = match &*self.draw {
            Draw::Next(sequence) => {
                self.drawn.check_writable(sequence, "nextval")?;
                let number = self.next(sequence)?;
                // The numbers of a planned transaction were granted before, and it must not wait for the sequence's lock.
                if !self.drawn.is_planned {
                    self.drawn.note_unsaved(sequence);
                }
                number
            }
            Draw::Row(sequence) => self.row(sequence)?,
            Draw::Asked(asked) => return asked.answer(&self.drawn, arguments, context),
            Draw::Current(sequence) => {
                let known = self.drawn.inner().last.get(&sequence.definition.number).copied();
                known.ok_or_else(|| {
                    let message =
                        format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
                    SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
                })?
            }
            Draw::Last => self.drawn.inner().latest.map(|(_, number)| number).ok_or_else(|| {
                let message = "lastval is not yet defined in this session";
                SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
            })?,
            Draw::Shown(sequence, Shown::LastValue) => self.shown(sequence, Shown::LastValue)?,
            Draw::Shown(sequence, Shown::IsCalled) => {
                return Ok(Datum::Bool(self.shown(sequence, Shown::IsCalled)? != 0));
            }
            Draw::Set(sequence) => match arguments {
                [Datum::Int(number), rest @ ..] if rest.iter().all(|it| !it.is_null()) => {
                    self.drawn.check_writable(sequence, "setval")?;
                    let is_called = !matches!(rest, [Datum::Bool(false)]);
                    let own = sequence.definition.number;
                    let is_again = self.drawn.inner().next_given(own).is_some();
                    if !is_again && self.drawn.is_planned {
                        sequence.check_within(*number)?;
                        self.drawn.inner().wanted = Some(planned::Wanted::Set(sequence.clone(), *number, is_called));
                        return Err(SqlError::internal("a planned transaction sets no sequence"));
                    }
                    if !is_again {
                        sequence.set(*number, is_called)?;
                        self.drawn.inner().note_given(own, *number);
                        self.drawn.note_unsaved(sequence);
                    }
                    let mut inner = self.drawn.inner();
                    if is_called {
                        inner.last.insert(sequence.definition.number, *number);
                    }
                    *number
                }
                _ => return Ok(Datum::Null),
            },
        };
        Ok(Datum::Int(number))
    }

    fn next(&self, sequence: &Arc<Sequence>) -> Result<i64, SqlError> {
        let own = sequence.definition.number;
        let again = self.drawn.inner().next_given(own);
        let number = match again {
            Some(number) => number,
            None if self.drawn.is_planned => {
                let granted = sequence.take_granted(1);
                granted.ok_or_else(|| self.drawn.inner().exhaust(sequence, BLOCK))?.0
            }
            None => sequence.take(1, BLOCK)?.0,
        };
        let mut inner = self.drawn.inner();
        if again.is_none() {
            inner.note_given(own, number);
        }
        inner.last.insert(sequence.definition.number, number);
        inner.latest = Some((sequence.definition.number, number));
        Ok(number)
    }

    /// What the row of a sequence has. A transaction that is run again is shown the same.
    fn shown(&self, sequence: &Arc<Sequence>, part: Shown) -> Result<i64, SqlError> {
        let own = sequence.definition.number;
        let again = self.drawn.inner().next_given(own);
        if let Some(number) = again {
            return Ok(number);
        }
        if self.drawn.is_planned {
            self.drawn.inner().wanted = Some(planned::Wanted::Show(sequence.clone(), part));
            return Err(SqlError::internal("a planned transaction looks at no sequence"));
        }
        let number = sequence.shown(part)?;
        self.drawn.inner().note_given(own, number);
        Ok(number)
    }

    fn row(&self, sequence: &Arc<Sequence>) -> Result<i64, SqlError> {
        let mut inner = self.drawn.inner();
        if !self.drawn.is_planned {
            return inner.row_number(sequence, |count| sequence.take(count, ROW_BLOCKS.0));
        }
        inner.planned_row(sequence)
    }
}
