//! Texts of statements, which are one transaction unless their statements begin and end others.
//!
//! A text whose statements only read and change rows is run again whole until it commits. Every other text of several statements holds a transaction open in front of its first statement,
//! as BEGIN does; it ends with the text, or with a COMMIT or ROLLBACK in it, behind which the next statement begins another one.

use std::sync::Arc;

use polychron_engine::Protocol;
use sqlparser::ast;

use crate::connection::{Connection, Parameters};
use crate::control::Modes;
use crate::copy::CopyShape;
use crate::datum::{Datum, OwnedDatum};
use crate::define::let_others_define;
use crate::error::{SqlError, SqlState};
use crate::outcome::Outcome;
use crate::parse::Command;
use crate::plan::Plan;
use crate::statement::Action;
use crate::types::Type;
use crate::wire::Forms;

/// How often a definition is made again.
const ATTEMPTS: usize = 20;

/// A client that is told what each statement of a text answers, and that sends and gets the data of COPY.
pub trait TextClient {
    /// A statement has done this. `forms` is how the session shows values now.
    fn answer(&mut self, outcome: Outcome, forms: &Forms);

    /// Whether COPY can be among the statements.
    fn copies(&self) -> bool {
        false
    }

    /// Hands the data of a COPY FROM to `take`, in pieces of any size, up to their end.
    ///
    /// # Errors
    /// What `take` fails with, which then takes no more; or the client has given the copy up.
    fn send(&mut self, shape: CopyShape, take: &mut Take<'_>) -> Result<(), SqlError> {
        let _ = (shape, take);
        Err(SqlError::internal("the client sends no data"))
    }

    /// A COPY TO begins, whose data look so.
    fn begin_rows(&mut self, shape: CopyShape) {
        let _ = shape;
    }

    /// A row of a COPY TO.
    ///
    /// # Errors
    /// The client is gone.
    fn row(&mut self, row: &[u8]) -> std::io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// The rows of the COPY TO are complete.
    fn end_rows(&mut self) {}
}

/// What takes the data of a COPY FROM.
pub type Take<'t> = dyn FnMut(&[u8]) -> Result<(), SqlError> + 't;

/// A client that sends and gets no data of COPY.
struct Answered<'a>(&'a mut dyn FnMut(Outcome));

impl TextClient for Answered<'_> {
    fn answer(&mut self, outcome: Outcome, _: &Forms) {
        (self.0)(outcome);
    }
}

impl<P: Protocol> Connection<P> {
    /// Runs the statements of a text and answers with what the last one has done. `parameters` are those of each of them, with their types.
    ///
    /// # Errors
    /// The first statement that fails, or the commit. Where no transaction was begun before, nothing of the text is done then, but for what
    /// came before a COMMIT or a definition in it.
    pub fn execute(&mut self, text: &str, parameters: &[(Type, Datum<'_>)]) -> Result<Outcome, SqlError> {
        let mut last = Outcome::default();
        self.execute_each(text, parameters, &mut |outcome| last = outcome)?;
        Ok(last)
    }

    /// As [`Connection::execute`], and tells what each of the statements has done, up to the one that fails. If `answered` panics, the text ends there,
    /// and a transaction that it has not begun with BEGIN is rolled back, unless that has committed before.
    ///
    /// # Errors
    /// As there.
    pub fn execute_each(
        &mut self,
        text: &str,
        parameters: &[(Type, Datum<'_>)],
        answered: &mut dyn FnMut(Outcome),
    ) -> Result<(), SqlError> {
        self.execute_for(text, parameters, &mut Answered(answered))
    }

    /// As [`Connection::execute_each`], for a client that also sends and gets the data of COPY.
    ///
    /// # Errors
    /// As there.
    pub fn execute_for(
        &mut self,
        text: &str,
        parameters: &[(Type, Datum<'_>)],
        client: &mut dyn TextClient,
    ) -> Result<(), SqlError> {
        let unwound = Unwound(self);
        let ended = unwound.0.limited(text, |connection| connection.execute_counted(text, parameters, client));
        // It has not unwound.
        std::mem::forget(unwound);
        self.finish_definitions();
        if ended.as_ref().is_err_and(SqlError::is_of_unknown_table) {
            self.database.forget_dropped();
        }
        ended.map_err(|error| error.within(text))
    }

    /// Runs the statements of a text as a part of a request, and counts them.
    pub(crate) fn execute_within(
        &mut self,
        text: &str,
        parameters: &[(Type, Datum<'_>)],
        answered: &mut dyn FnMut(Outcome),
    ) -> Result<(), SqlError> {
        self.execute_counted(text, parameters, &mut Answered(answered))
    }

    fn execute_counted(
        &mut self,
        text: &str,
        parameters: &[(Type, Datum<'_>)],
        client: &mut dyn TextClient,
    ) -> Result<(), SqlError> {
        // A `character` has no blanks at its end but in answers.
        let (types, values): (Vec<_>, Vec<_>) = parameters
            .iter()
            .map(|(of, value)| match (of, value) {
                (Type::Bpchar, Datum::Text(text)) => (*of, Datum::Text(text.trim_end_matches(' '))),
                _ => (*of, *value),
            })
            .unzip();
        let parameters = Parameters { types: &types, values: &values };
        self.slot.activity.note_text(text);
        let mut rows = 0;
        let ended = self.execute_text(text, parameters, client, &mut rows);
        self.slot.activity.count_noted(ended.as_ref().ok().map(|()| rows));
        ended
    }

    /// Runs the statements of a text, and adds to `rows` what they say that they have answered or changed.
    fn execute_text(
        &mut self,
        text: &str,
        parameters: Parameters<'_>,
        client: &mut dyn TextClient,
        rows: &mut u64,
    ) -> Result<(), SqlError> {
        let commands = crate::parse::commands(text).map_err(|error| self.session.fail(error.into()))?;
        let forms = self.forms();
        let mut answered = |outcome: Outcome| {
            *rows += outcome.count;
            client.answer(outcome, &forms);
        };
        if !self.session.is_open()
            && let Some(statements) = commands.iter().map(Command::runs).collect::<Option<Vec<_>>>()
        {
            return self.run_all(&statements, parameters, &mut answered);
        }
        if self.session.is_planned() {
            return self.execute_whole(&commands, (parameters.types, parameters.values), &mut answered);
        }
        if !self.session.is_open() && commands.iter().any(Command::is_definition) {
            self.database.know_all()?;
        }
        if let ([command], false) = (&commands[..], self.session.is_open())
            && command.is_definition()
        {
            return self.define_alone(command, parameters).map(answered);
        }
        for (number, command) in commands.iter().enumerate() {
            let stepped = self.step_within(command, parameters, client, commands.len() == 1);
            // One that the text has begun by itself does not outlive an error, whichever it is.
            let stepped = stepped.map_err(|error| if self.session.is_explicit() { error } else { self.fail(error) });
            self.finish_definitions();
            let (outcome, forms) = (stepped?, self.forms());
            // The last statement is not answered where the transaction fails behind it.
            if number + 1 == commands.len() && self.session.is_open() && self.ends_with_text() {
                self.commit()?;
            }
            *rows += outcome.count;
            client.answer(outcome, &forms);
        }
        Ok(())
    }

    /// Whether an open transaction ends with its text.
    fn ends_with_text(&self) -> bool {
        !self.session.is_explicit() && !self.is_pipelined
    }

    /// Runs a statement of a text. Of several statements the first one begins a transaction, and so does one behind a COMMIT.
    fn step_within(
        &mut self,
        command: &Command,
        parameters: Parameters<'_>,
        client: &mut dyn TextClient,
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        if !is_alone && !self.session.is_open() && !command.is_begin() {
            self.session.begin(Modes::default(), false)?;
        }
        match command {
            Command::Sql(statement) => self.step(statement, parameters),
            Command::Copy(copy) if client.copies() => {
                self.check_not_failed()?;
                if copy.is_from { self.copy_in_text(copy, client) } else { self.copy_out_of_text(copy, client) }
            }
            other => self.step_own(other, parameters, is_alone),
        }
    }

    /// Whether the client holds a transaction, or a text of several statements does.
    pub(crate) fn is_in_block(&self) -> bool {
        self.session.is_explicit() || self.session.is_open() && !self.is_pipelined
    }

    /// A definition as a transaction of its own, which is made again where it conflicts.
    fn define_alone(&mut self, command: &Command, parameters: Parameters<'_>) -> Result<Outcome, SqlError> {
        let mut attempts = 0;
        loop {
            let stepped = match command {
                Command::Sql(statement) => self.step(statement, parameters),
                other => self.step_own(other, parameters, true),
            };
            let made = stepped.and_then(|outcome| self.commit().map(|_| outcome));
            self.finish_definitions();
            match made {
                Err(error) if error.state() == SqlState::SERIALIZATION_FAILURE && attempts < ATTEMPTS => {
                    attempts += 1;
                    let_others_define(attempts);
                }
                other => return other,
            }
        }
    }

    /// Statements that neither define anything nor end a transaction, in a transaction of their own.
    fn run_all(
        &mut self,
        statements: &[&ast::Statement],
        parameters: Parameters<'_>,
        answered: &mut dyn FnMut(Outcome),
    ) -> Result<(), SqlError> {
        let (mut bound, mut last) = (Vec::with_capacity(statements.len()), None);
        for statement in statements {
            match self.planned(statement, parameters) {
                Ok(planned) => bound.push(planned),
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        match last {
            Some(error) if bound.is_empty() => return Err(error),
            None if bound.is_empty() => return Ok(()),
            _ => {}
        }
        let values: Vec<Option<Vec<_>>> =
            bound.iter().map(|(_, own)| Some(own.as_ref()?.iter().map(OwnedDatum::get).collect())).collect();
        let plans =
            bound.iter().zip(&values).map(|((plan, _), own)| (&**plan, own.as_deref().unwrap_or(parameters.values)));
        let plans: Vec<_> = plans.collect();
        let (slot, mut counts) = (self.slot.clone(), Vec::new());
        let ended = self.session.run_all(&plans, last.as_ref(), &self.zone, &mut |outcome| {
            counts.push(outcome.count);
            answered(outcome);
        });
        if ended.is_ok() {
            bound.iter().zip(counts).for_each(|((plan, _), rows)| slot.activity.count_uses(plan.uses(), rows));
        }
        ended
    }

    /// The plan of a statement that reads or changes rows, or of one that EXECUTE names, with the arguments of that.
    fn planned(
        &mut self,
        statement: &ast::Statement,
        parameters: Parameters<'_>,
    ) -> Result<(Arc<Plan>, Option<Vec<OwnedDatum>>), SqlError> {
        let (plan, own) = match self.called(statement, parameters) {
            Some(called) => called.map(|(bound, values)| (bound.plan().clone(), Some(values)))?,
            None => match self.bind(statement, parameters)?.action {
                Action::Run(plan) => (Arc::new(plan), None),
                _ => return Err(SqlError::internal("the statement has no plan")),
            },
        };
        self.check_may_run(&plan, None)?;
        Ok((plan, own))
    }
}

/// Ends a text whose answers are given to what panics: the transaction that the text has begun by itself is rolled back, and its tables are free.
struct Unwound<'c, P: Protocol>(&'c mut Connection<P>);

impl<P: Protocol> Drop for Unwound<'_, P> {
    fn drop(&mut self) {
        if !self.0.session.is_explicit() {
            self.0.session.roll_back();
        }
        self.0.finish_definitions();
    }
}
