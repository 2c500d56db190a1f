//! Texts of statements under a protocol that plans: they are gathered, and run as one transaction. What needs a transaction that stays open is refused.

use std::sync::Arc;

use sqlparser::ast;

use crate::bind::TABLE_AS;
use crate::connection::Connection;
use crate::control::{Control, Modes};
use crate::cursors::Declare;
use crate::cursors::kept::Cursor;
use crate::datum::{Datum, OwnedDatum};
use crate::define::let_others_define;
use crate::error::{SqlError, SqlState};
use crate::outcome::Outcome;
use crate::parse::Command;
use crate::plan::Plan;
use crate::session::{Sum, Then};
use crate::statement::{Action, Source};
use crate::types::Type;
use polychron_engine::{Error, Protocol};

/// How often a definition is made again.
const ATTEMPTS: usize = 20;

/// Parameters of a text: their types, and their values.
type Parameters<'p> = (&'p [Type], &'p [Datum<'p>]);

impl<P: Protocol> Connection<P> {
    /// The error of what needs an open transaction.
    #[cold]
    pub(crate) fn needs_block(&mut self, statement: &str) -> SqlError {
        let name = self.database.protocol.name();
        let error = SqlError::unsupported(format!("{statement} under the protocol {name}"));
        self.fail(
            error.with_hint("It plans whole transactions: put the statements into one text, or into a procedure."),
        )
    }

    /// Runs the statements of a text, which have one that only reads or changes rows beside others, or none.
    pub(crate) fn execute_whole(
        &mut self,
        commands: &[Command],
        parameters: Parameters<'_>,
        answered: &mut dyn FnMut(Outcome),
    ) -> Result<(), SqlError> {
        for attempt in 0..ATTEMPTS {
            let (ended, told) = self.run_gathered(commands, parameters);
            // Others have defined what a statement defines. It alone is made again.
            let is_conflict = |error: &SqlError| error.state() == SqlState::SERIALIZATION_FAILURE;
            if commands.len() > 1 || !ended.as_ref().is_err_and(is_conflict) {
                told.into_iter().for_each(&mut *answered);
                return ended;
            }
            self.finish_definitions();
            let_others_define(attempt);
        }
        Err(SqlError::of_engine(Error::Conflict))
    }

    fn run_gathered(
        &mut self,
        commands: &[Command],
        parameters: Parameters<'_>,
    ) -> (Result<(), SqlError>, Vec<Outcome>) {
        let (mut told, mut last) = (Vec::new(), None);
        for command in commands {
            match self.gather(command, parameters, commands.len() == 1) {
                Ok(outcome) => told.push((outcome, self.session.gathered())),
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        let kept = if last.is_none() { self.keep_tables() } else { Ok(()) };
        let last = last.or(kept.err());
        let (ended, ran) = self.session.commit_gathered(last.as_ref(), &self.zone);
        let mut outcomes = ran.outcomes.into_iter();
        // What a definition has gathered may fail, too.
        let told = told.into_iter().take_while(|(_, end)| ended.is_ok() || *end <= ran.done);
        let told = told.filter_map(|(outcome, _)| outcome.or_else(|| outcomes.next())).collect();
        (ended, told)
    }

    /// Does what a statement says that needs no transaction, or has it wait for that: then it is answered when that has run.
    fn gather(
        &mut self,
        command: &Command,
        parameters: Parameters<'_>,
        is_alone: bool,
    ) -> Result<Option<Outcome>, SqlError> {
        if !is_alone && !self.session.is_open() && command.is_set() {
            // A later statement that fails undoes it.
            self.session.begin(Modes::default(), false)?;
        }
        let statement = match command {
            Command::Sql(statement) => statement,
            Command::AlterSequence(alter) => return self.define_own(Source::AlterSequence(alter)).map(Some),
            Command::Roles(command) => return self.run_role_command(command).map(Some),
            Command::Cursor(cursor) => return self.run_cursor(cursor, parameters, is_alone).map(Some),
            Command::Copy(copy) => return Err(copy.needs_stream()),
        };
        match Control::of(statement)? {
            Some(Control::Ask(calls)) => {
                let (types, values) = parameters;
                return self.run_calls(&calls, crate::connection::Parameters { types, values }).map(Some);
            }
            Some(control) => return self.control_whole(control).map(Some),
            None => {}
        }
        if let Some(set) = self.set(statement) {
            return set.map(Some);
        }
        let (types, values) = parameters;
        let own = crate::connection::Parameters { types, values };
        if let Some(called) = self.called(statement, own) {
            let (bound, values) = called?;
            let values: Vec<_> = values.iter().map(OwnedDatum::get).collect();
            return self.gather_plan(bound.plan(), &values);
        }
        if let Some(done) = self.about_session(statement, own) {
            return done.map(Some);
        }
        self.gather_statement(statement, parameters)
    }

    fn gather_statement(
        &mut self,
        statement: &ast::Statement,
        (types, values): Parameters<'_>,
    ) -> Result<Option<Outcome>, SqlError> {
        let bound = self.bind(statement, crate::connection::Parameters { types, values })?;
        match bound.action {
            Action::Run(plan) => self.gather_plan(&plan.into(), values),
            Action::Define(definition) => {
                // How many rows a new table has got is known when the transaction has run.
                let is_filled = definition.tag == TABLE_AS && definition.tables.iter().any(|it| it.source.is_some());
                self.define(Source::Known(statement), *definition).map(|outcome| Some(outcome).filter(|_| !is_filled))
            }
            Action::Skip { tag, notice } => Ok(Some(Outcome { notices: vec![notice], ..Outcome::tagged(tag) })),
        }
    }

    fn gather_plan(&mut self, plan: &Arc<Plan>, values: &[Datum<'_>]) -> Result<Option<Outcome>, SqlError> {
        self.session.begin(Modes::default(), false)?;
        self.session.put((plan, values), Then::Answer, &self.zone)
    }

    fn control_whole(&mut self, control: Control) -> Result<Outcome, SqlError> {
        match &control {
            Control::Begin { tag, .. } => Err(self.needs_block(tag)),
            Control::Savepoint(_) => Err(self.needs_block("SAVEPOINT")),
            Control::Release(_) => Err(self.needs_block("RELEASE SAVEPOINT")),
            Control::RollBackTo(_) => Err(self.needs_block("ROLLBACK TO SAVEPOINT")),
            Control::Commit { .. } if self.session.is_open() => Err(self.needs_block("COMMIT among other statements")),
            Control::RollBack { .. } if self.session.is_open() => {
                Err(self.needs_block("ROLLBACK among other statements"))
            }
            _ => self.control(control),
        }
    }

    /// Runs a query as a transaction, and gives its rows to `each` when that has committed.
    pub(crate) fn run_copied(
        &mut self,
        plan: &Plan,
        each: &mut dyn FnMut(&[Datum<'_>]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut answer = Outcome::default();
        self.session.run_all(&[(plan, &[])], None, &self.zone, &mut |outcome| answer = outcome)?;
        answer.rows.iter().try_for_each(|row| each(&row.iter().map(OwnedDatum::get).collect::<Vec<_>>()))
    }

    /// Declares a cursor that outlives its transaction.
    pub(crate) fn declare_whole(
        &mut self,
        declare: &Declare,
        (plan, values): (&Plan, &[Datum<'_>]),
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        if !is_alone {
            return Err(self.needs_block("DECLARE CURSOR among other statements"));
        }
        let mut answer = Outcome::default();
        self.session.run_all(&[(plan, values)], None, &self.zone, &mut |outcome| answer = outcome)?;
        let mut portal = self.declared(declare, plan, Vec::new());
        portal.cursor = Some(Cursor::of_rows(answer.rows, declare.way, Sum::default()).into());
        portal.has_survived = true;
        self.session.portals.insert(portal);
        if let Err(error) = self.session.portals.check_room() {
            self.session.portals.remove(&declare.name);
            return Err(error);
        }
        Ok(Outcome::tagged("DECLARE CURSOR"))
    }
}
