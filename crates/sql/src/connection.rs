//! Connections: texts of statements, one after the other.

use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_engine::Protocol;
use polychron_engine::redo::Answers;
use sqlparser::ast;

use crate::control::{Control, Modes};
use crate::database::SqlDatabase;
use crate::datum::Datum;
use crate::define::LOCK_TIMEOUT;
use crate::error::{SqlError, SqlState};
use crate::gates::Slot;
use crate::interrupts::Interrupts;
use crate::names::{Path, temporary_schema};
use crate::outcome::{Notice, Outcome};
use crate::parameters::ClientSettings;
use crate::parking::Workers;
use crate::parse::Command;
use crate::plan::Plan;
use crate::prepared::Cache;
use crate::session::Session;
use crate::session_statements::Statements;
use crate::settings::{Changed, Settings};
use crate::statement::{Action, Source, Statement};
use crate::text::Zone;
use crate::types::Type;

/// A connection: runs one statement after the other.
///
/// Statements run in a transaction of their own, which is run again when it conflicts: the statements of one text together. Between BEGIN and COMMIT the
/// client holds the transaction, which is run again where it conflicts and each statement answers the same; otherwise the client runs it again, where it ends with
/// [`SqlState::SERIALIZATION_FAILURE`].
///
/// It may go from thread to thread. A transaction that the client holds stays in the thread that has begun it: elsewhere each statement is refused with
/// [`SqlState::FEATURE_NOT_SUPPORTED`], and nothing else becomes of the transaction. Where the connection is dropped elsewhere, or leaked, the transaction is rolled back by its
/// thread, when that begins another one or ends.
pub struct Connection<P: Protocol> {
    pub(crate) database: Arc<SqlDatabase<P>>,
    pub(crate) session: Session<P::Driven>,
    pub(crate) zone: Zone,
    pub(crate) cache: Cache,
    /// The tables that its transaction uses.
    pub(crate) slot: Arc<Slot>,
    /// How long it waits for tables that others have closed, or use.
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) interrupts: Interrupts,
    /// A COPY is under way, or was leaked.
    pub(crate) is_copying: bool,
    /// What its transaction has set.
    pub(crate) changed: Changed,
    /// What clients set for themselves.
    pub(crate) client: ClientSettings,
    /// The open transaction ends with the pipeline, and not with a text.
    pub(crate) is_pipelined: bool,
    /// Counts the changes of its settings.
    pub(crate) settings_changes: u64,
    /// Where it looks for names without a schema.
    pub(crate) path: Arc<Path>,
    /// What settings are where nothing sets them.
    pub(crate) initial: Option<Box<Settings>>,
    /// Statements by their names, of PREPARE and of a server's clients.
    pub(crate) statements: Statements,
    /// It has temporary tables with which something is to be done when a transaction commits.
    pub(crate) acts_on_commit: bool,
}

impl<P: Protocol> std::fmt::Debug for Connection<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Parameters of a text, as the client gives them.
#[derive(Clone, Copy)]
pub(crate) struct Parameters<'p> {
    pub(crate) types: &'p [Type],
    pub(crate) values: &'p [Datum<'p>],
}

impl<P: Protocol> Connection<P> {
    /// As [`Connection::with_workers`]. Now and later it waits so long for a worker where there is none ([`Connection::wait_for_workers`]).
    ///
    /// # Errors
    /// As there.
    pub fn with_workers_within(
        database: &Arc<SqlDatabase<P>>,
        answers: Answers,
        workers: Box<dyn Workers<P::Driven>>,
        longest: Duration,
    ) -> Result<Self, SqlError> {
        let (slot, lock_timeout) = (database.gates.admit(), Some(LOCK_TIMEOUT));
        let (session, cache) = (
            Session::new(answers, workers, &slot, database.versions.clone(), (&database.shortage, longest))?,
            Cache::default(),
        );
        let (zone, interrupts) = (Zone::utc(), Interrupts::default());
        let (database, is_copying, changed) = (database.clone(), false, Changed::default());
        let (client, is_pipelined) = (ClientSettings::default(), false);
        let path = Arc::new(Path { temporary: temporary_schema(slot.session), ..Path::default() });
        session.drawn().set_path(path.clone());
        let acts_on_commit = false;
        let _ = session.drawn().activity.set(slot.activity.clone());
        session.drawn().connect(&database.post, &database.locks, slot.session);
        let mut own = Self {
            initial: None,
            statements: Statements::default(),
            database,
            session,
            zone,
            cache,
            slot,
            lock_timeout,
            interrupts,
            is_copying,
            changed,
            client,
            is_pipelined,
            settings_changes: 0,
            path,
            acts_on_commit,
        };
        own.take_configuration();
        own.slot.activity.set_settings(&own.settings());
        Ok(own)
    }

    /// Whether the client holds a transaction, or has one that failed and was not ended.
    pub fn is_in_transaction(&self) -> bool {
        self.session.is_explicit()
    }

    /// Binds a statement to the tables as they are, which it uses from now on.
    pub(crate) fn bind(
        &mut self,
        statement: &ast::Statement,
        parameters: Parameters<'_>,
    ) -> Result<Statement, SqlError> {
        let (bound, _) = self.bind_to_tables(statement, parameters.types)?;
        if bound.parameters.len() > parameters.values.len() {
            let message = format!("there is no parameter ${}", parameters.values.len() + 1);
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
        }
        Ok(bound)
    }

    /// Binds a statement to the tables as they are, which it uses from now on. The answer has the catalog's version, too.
    pub(crate) fn bind_to_tables(
        &mut self,
        statement: &ast::Statement,
        types: &[Type],
    ) -> Result<(Statement, u64), SqlError> {
        loop {
            let version = self.database.version();
            let bound = self.bound(Source::Known(statement), types)?;
            let is_plan = matches!(bound.action, Action::Run(_));
            if !is_plan || self.database.enter((&bound.tables, version), &self.slot, self.lock_timeout)? {
                self.session.renew(&bound.tables, &self.zone)?;
                return Ok((bound, version));
            }
        }
    }

    /// Commits the open transaction, with what it has defined.
    pub(crate) fn commit(&mut self) -> Result<bool, SqlError> {
        let checked = self.session.check_deferred(&self.zone).and_then(|()| self.keep_tables());
        let checked = checked.and_then(|()| self.session.gather_held(&self.zone));
        if let Err(error) = checked {
            self.session.roll_back();
            self.finish_definitions();
            return Err(error);
        }
        let ended = self.session.commit(&self.zone);
        self.finish_definitions();
        ended
    }

    /// Makes the tables permanent that the open transaction has made. Where the protocol does not while it is open, that stands aside.
    pub(crate) fn keep_tables(&mut self) -> Result<(), SqlError> {
        let has_failed = self.session.has_failed();
        let Some(script) = self.session.script().filter(|script| !has_failed && !script.made.is_empty()) else {
            return Ok(());
        };
        let (made, changes) = (script.made.clone(), script.changes.clone());
        if self.database.keep(&made, &changes).is_ok() {
            return Ok(());
        }
        self.session.pause()?;
        let kept = self.database.keep(&made, &changes);
        self.session.resume(&self.zone)?;
        kept?;
        self.session.check_deferred(&self.zone)
    }

    /// Runs a statement in the open transaction, which it begins where there is none.
    pub(crate) fn step(&mut self, statement: &ast::Statement, parameters: Parameters<'_>) -> Result<Outcome, SqlError> {
        let control = Control::of(statement).map_err(|error| self.session.fail(error.into()))?;
        let may_follow_error =
            matches!(control, Some(Control::Commit { .. } | Control::RollBack { .. } | Control::RollBackTo(_)));
        if !may_follow_error {
            self.check_not_failed()?;
        }
        match control {
            Some(Control::Ask(calls)) => self.run_calls(&calls, parameters).map_err(|error| self.fail(error)),
            Some(control) => self.control(control),
            None => match self.set(statement) {
                Some(set) => set,
                None => match self.about_session(statement, parameters) {
                    Some(done) => done.map_err(|error| self.fail(error)),
                    None => self.run(statement, parameters),
                },
            },
        }
    }

    /// As [`Connection::step`], of a statement that the parser does not know.
    pub(crate) fn step_own(
        &mut self,
        command: &Command,
        parameters: Parameters<'_>,
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        self.check_not_failed()?;
        match command {
            Command::Sql(statement) => self.step(statement, parameters),
            Command::Cursor(cursor) => self.run_cursor(cursor, (parameters.types, parameters.values), is_alone),
            Command::Copy(copy) => Err(self.fail(copy.needs_stream())),
            Command::AlterSequence(alter) => self.define_own(Source::AlterSequence(alter)),
            Command::Roles(command) => self.run_role_command(command),
        }
    }

    /// Defines what a statement says that the parser does not know.
    pub(crate) fn define_own(&mut self, source: Source<'_>) -> Result<Outcome, SqlError> {
        match self.bound(source, &[]).map_err(|error| self.fail(error))?.action {
            Action::Define(definition) => {
                self.check_writable(definition.tag)?;
                self.define(source, *definition)
            }
            Action::Skip { tag, notice } => Ok(Outcome { notices: vec![notice], ..Outcome::tagged(tag) }),
            Action::Run(_) => Err(SqlError::internal("a definition has no plan")),
        }
    }

    /// The plan of a query.
    pub(crate) fn plan_of(
        &mut self,
        query: &ast::Statement,
        types: &[Type],
        values: &[Datum<'_>],
    ) -> Result<Plan, SqlError> {
        match self.bind(query, Parameters { types, values })?.action {
            Action::Run(plan) => Ok(plan),
            _ => Err(SqlError::internal("a query has no plan")),
        }
    }

    pub(crate) fn run(&mut self, statement: &ast::Statement, parameters: Parameters<'_>) -> Result<Outcome, SqlError> {
        let bound = self.bind(statement, parameters).map_err(|error| self.session.fail(error.into()))?;
        match bound.action {
            Action::Run(plan) => self.run_here(&plan.into(), parameters.values),
            Action::Define(definition) => {
                self.check_writable(definition.tag)?;
                self.define(Source::Known(statement), *definition)
            }
            Action::Skip { tag, notice } => Ok(Outcome { notices: vec![notice], ..Outcome::tagged(tag) }),
        }
    }

    /// Runs a plan in the open transaction, which it begins where there is none.
    pub(crate) fn run_here(&mut self, plan: &Arc<Plan>, values: &[Datum<'_>]) -> Result<Outcome, SqlError> {
        self.check_may_run(plan, None)?;
        self.session.begin(Modes::default(), false)?;
        let outcome = self.session.run((plan, values), &self.zone)?;
        self.slot.activity.count_uses(plan.uses(), outcome.count);
        Ok(outcome)
    }

    /// A statement has failed, in the open transaction if there is one.
    pub(crate) fn fail(&mut self, error: SqlError) -> SqlError {
        self.session.fail(error.into())
    }

    pub(crate) fn check_not_failed(&self) -> Result<(), SqlError> {
        if !self.session.has_failed() {
            return Ok(());
        }
        let message = "current transaction is aborted, commands ignored until end of transaction block";
        Err(SqlError::new(SqlState::IN_FAILED_TRANSACTION, message))
    }

    pub(crate) fn check_writable(&mut self, verb: &str) -> Result<(), SqlError> {
        if !self.session.is_read_only() {
            return Ok(());
        }
        let message = format!("cannot execute {verb} in a read-only transaction");
        Err(self.session.fail(SqlError::new(SqlState::READ_ONLY_TRANSACTION, message).into()))
    }

    pub(crate) fn control(&mut self, control: Control) -> Result<Outcome, SqlError> {
        match control {
            Control::Begin { modes, tag } => {
                let mut outcome = Outcome::tagged(tag);
                if self.session.is_explicit() {
                    let message = "there is already a transaction in progress";
                    outcome.notices.push(Notice::warning(SqlState::ACTIVE_TRANSACTION, message));
                }
                if !self.session.is_open() {
                    self.database.know_all()?;
                }
                self.session.begin(modes, true)?;
                Ok(outcome)
            }
            Control::Commit { chain } => self.end(chain, "COMMIT"),
            Control::RollBack { chain } => self.end(chain, "ROLLBACK"),
            Control::Savepoint(name) => {
                self.check_block("SAVEPOINT")?;
                let saved = (self.save_settings(), self.database.closed_by(&self.slot));
                self.session.set_savepoint(name, saved, &self.zone)?;
                Ok(Outcome::tagged("SAVEPOINT"))
            }
            Control::Release(name) => {
                self.check_block("RELEASE SAVEPOINT")?;
                self.session.release(&name)?;
                Ok(Outcome::tagged("RELEASE"))
            }
            Control::RollBackTo(name) => {
                self.check_block("ROLLBACK TO SAVEPOINT")?;
                let (saved, closed) = self.session.roll_back_to(&name)?;
                self.return_to_settings(saved);
                self.database.open_all_but(&closed, &self.slot);
                Ok(Outcome::tagged("ROLLBACK"))
            }
            Control::SetTransaction(modes) => {
                let mut outcome = Outcome::tagged("SET");
                self.session.set(modes)?;
                if !self.is_in_block() {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    outcome.notices.push(Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message));
                }
                Ok(outcome)
            }
            Control::SetSession(modes) => {
                if let Some(is_read_only) = modes.is_read_only {
                    self.change_settings(false, |settings| settings.reads_only = is_read_only);
                }
                Ok(Outcome::tagged("SET"))
            }
            Control::Show(name) => self.show(&name),
            Control::Ask(_) => Err(SqlError::internal("calls have parameters")),
        }
    }

    /// Ends the transaction as the statement of this name does.
    fn end(&mut self, chain: bool, statement: &'static str) -> Result<Outcome, SqlError> {
        let mut outcome = Outcome::tagged(statement);
        if !self.session.is_explicit() {
            if chain {
                return Err(self.outside_of_block(&format!("{statement} AND CHAIN")));
            }
            let message = "there is no transaction in progress";
            outcome.notices.push(Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message));
        }
        let modes = self.session.modes();
        if statement == "ROLLBACK" {
            self.session.roll_back();
            self.finish_definitions();
        } else if !self.commit()? {
            "ROLLBACK".clone_into(&mut outcome.tag);
        }
        if chain {
            self.session.begin(modes, true)?;
        }
        Ok(outcome)
    }

    fn check_block(&mut self, statement: &str) -> Result<(), SqlError> {
        if self.session.is_explicit() { Ok(()) } else { Err(self.outside_of_block(statement)) }
    }

    #[cold]
    fn outside_of_block(&mut self, statement: &str) -> SqlError {
        let message = format!("{statement} can only be used in transaction blocks");
        self.session.fail(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message).into())
    }
}

/// What it has closed is opened, and what it has defined goes.
impl<P: Protocol> Drop for Connection<P> {
    fn drop(&mut self) {
        self.session.roll_back();
        self.finish_definitions();
        self.drop_temporary(&|_, _| true);
        self.session.drawn().close();
        self.session.drawn().forget_units();
    }
}
