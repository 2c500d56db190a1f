//! How a definition is made in a transaction: `docs/sql.md`, "Definitions".

use std::collections::BTreeSet;
use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::clock::Duration;
use polychron_engine::{Error, Protocol, limits};
use sqlparser::ast;

use crate::bind::{NewTable, folded};
use crate::catalog::{Catalog, Object};
use crate::connection::Connection;
use crate::control::Modes;
use crate::definitions::{Definitions, Kept, Step};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, Path, no_schema};
use crate::outcome::{Notice, Outcome};
use crate::plan::{OnConflict, Plan};
use crate::procedures;
use crate::sequences::Drawn;
use crate::session::{PARK_AFTER, Then};
use crate::settings::Settings;
use crate::statement::{Action, Definition, NewObject, Source, Statement};
use crate::types::Type;

/// Waits before a definition is made again that conflicts with others, a little longer each time: those need a thread to end.
pub(crate) fn let_others_define(attempt: usize) {
    std::thread::sleep(Duration::from_millis(attempt as u64));
}

/// How long a definition waits for transactions that use its tables, if nothing else is set.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The error of a row that does not go over into the table as it is to be.
fn of_copy(error: SqlError) -> SqlError {
    let message = error.message().to_owned();
    let named = |at: usize| message.split('"').nth(at).unwrap_or_default();
    let message = match error.state() {
        SqlState::UNIQUE_VIOLATION => format!("could not create unique index \"{}\"", named(1)),
        SqlState::NOT_NULL_VIOLATION => {
            format!("column \"{}\" of relation \"{}\" contains null values", named(1), named(3))
        }
        _ => return error,
    };
    SqlError::new(error.state(), message)
}

/// The schemas that a definition needs to be there, and those that it drops.
struct Schemas {
    /// With what finds it.
    used: Vec<(String, Step)>,
    /// With what finds objects in it.
    dropped: Vec<(String, Step)>,
}

impl Schemas {
    fn of<P: Protocol>(changed: &[(Name, Option<Object>)], definitions: &Definitions<'_, P>) -> Result<Self, SqlError> {
        let used = changed.iter().filter(|(_, object)| object.is_some());
        let used = used.filter_map(|(name, _)| procedures::unmarked(name).kept_schema().map(str::to_owned));
        let dropped = changed.iter().filter(|(_, object)| object.is_none());
        let dropped = dropped.filter_map(|(name, _)| name.as_schema().map(str::to_owned));
        let used = used.collect::<BTreeSet<_>>().into_iter();
        Ok(Self {
            used: used.map(|it| definitions.schema_step(&it).map(|step| (it, step))).collect::<Result<_, _>>()?,
            dropped: dropped
                .map(|it| definitions.content_step(&it).map(|step| (it, step)))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Tables by their names, and what fills them.
type Made = (Vec<(Name, Object)>, Vec<Plan>);

/// The time that a setting is given: `None` for 0, which means without end.
fn duration(name: &str, text: &str) -> Result<Option<Duration>, SqlError> {
    if text == "default" {
        return Ok(match name {
            "lock_timeout" => Some(LOCK_TIMEOUT),
            "park_after" => Some(PARK_AFTER),
            _ => None,
        });
    }
    if name == "park_after" && text == "off" {
        return Ok(None);
    }
    let wrong = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let invalid = || wrong(format!("invalid value for parameter \"{name}\": \"{text}\""));
    let unit_at = text.find(|it: char| !matches!(it, '0'..='9' | '.' | '-' | '+')).unwrap_or(text.len());
    let unit = match text[unit_at..].trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        _ => {
            let hint = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";
            return Err(invalid().with_hint(hint));
        }
    };
    let number: f64 = text[..unit_at].parse().map_err(|_| invalid())?;
    let millis = (number * unit).round_ties_even();
    if !(0.0..=f64::from(i32::MAX)).contains(&millis) {
        let range = format!("{millis} ms is outside the valid range for parameter \"{name}\" (0 .. 2147483647)");
        return Err(wrong(range));
    }
    Ok((millis > 0.0).then(|| Duration::from_millis(millis as u64)))
}

/// Which of two values a setting is given.
fn chosen(value: &str, values: [&str; 2]) -> Option<bool> {
    match value {
        "true" | "yes" | "1" if values[0] == "on" => Some(true),
        "false" | "no" | "0" if values[0] == "on" => Some(false),
        value if value == values[0] => Some(true),
        value if value == values[1] => Some(false),
        _ => None,
    }
}

/// The schemas of a path that is set.
fn path_of(values: &[ast::Expr]) -> Result<Vec<String>, SqlError> {
    let name = |value: &ast::Expr| match value {
        ast::Expr::Identifier(name) => Ok(folded(name)),
        ast::Expr::Value(ast::ValueWithSpan { value: ast::Value::SingleQuotedString(name), .. }) => Ok(name.clone()),
        other => Err(SqlError::unsupported(format!("the schema {other} in search_path"))),
    };
    match values {
        [ast::Expr::Identifier(word)] if word.quote_style.is_none() && folded(word) == "default" => Ok(Path::initial()),
        values => values.iter().map(name).collect(),
    }
}

/// A time as PostgreSQL shows it: in the largest unit of which it is a multiple.
pub(crate) fn shown_time(time: Option<Duration>) -> String {
    let millis = time.map_or(0, |time| time.as_millis());
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let fitting = units.iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    fitting.map_or_else(|| "0".to_owned(), |(unit, name)| format!("{}{name}", millis / unit))
}

impl<P: Protocol> Connection<P> {
    /// The objects as the session sees them, with what its transaction has defined.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.database.catalog();
        match self.session.changes() {
            Some(changes) if !changes.is_empty() => Arc::new(catalog.changed(changes)),
            _ => catalog,
        }
    }

    /// Closes the tables of a definition, and then binds it to them as they are. They may have been altered before they were closed.
    fn close(&mut self, statement: Source<'_>, first: Definition) -> Result<Definition, SqlError> {
        let (mut definition, mut closed) = (first, Vec::<TableId>::new());
        loop {
            let mut new: Vec<_> = definition.closes.iter().copied().filter(|table| !closed.contains(table)).collect();
            if new.is_empty() {
                return Ok(definition);
            }
            closed.append(&mut new);
            self.database.close(&closed, &self.slot, self.lock_timeout)?;
            match self.bound(statement, &[])?.action {
                Action::Define(again) => definition = *again,
                // What was to be dropped has gone, and may be missing.
                _ => return Ok(Definition::new(definition.tag)),
            }
        }
    }

    /// Binds a statement. Where the protocol finds nothing out while a transaction is open, that stands aside.
    pub(crate) fn bound(&mut self, statement: Source<'_>, types: &[Type]) -> Result<Statement, SqlError> {
        let bound = self.bound_once(statement, types);
        if !self.session.is_open() || !bound.as_ref().is_err_and(SqlError::is_from_inside) {
            return bound;
        }
        self.session.pause()?;
        let bound = self.bound_once(statement, types);
        self.session.resume(&self.zone)?;
        bound
    }

    fn bound_once(&self, statement: Source<'_>, types: &[Type]) -> Result<Statement, SqlError> {
        let catalog = self.catalog();
        let mut bound = Statement::of(statement, &catalog, types, self.session.drawn())?;
        if let Action::Define(definition) = &mut bound.action {
            definition.bound_to = Some(catalog);
        }
        Ok(bound)
    }

    /// Makes a definition in the open transaction, which it begins where there is none.
    pub(crate) fn define(&mut self, statement: Source<'_>, definition: Definition) -> Result<Outcome, SqlError> {
        let tag = definition.tag;
        let mut definition = definition;
        if let Some((table, _)) = &definition.index {
            if !self.session.is_open() {
                return self.create_index(statement);
            }
            // The index comes with a copy of the table: nobody may write into the original meanwhile.
            definition.closes.push(table.id);
        }
        let definition = self.close(statement, definition).map_err(|error| self.session.fail(error.into()))?;
        self.session.renew(&definition.closes, &self.zone)?;
        let notices = definition.notices.clone();
        self.make(definition).map_err(|error| self.session.fail(error.into()))?;
        Ok(Outcome { notices, ..Outcome::tagged(tag) })
    }

    /// Makes an index outside of a transaction, and fills it while other sessions use the table. This session is noted as one that uses it, so that ALTER waits.
    fn create_index(&mut self, statement: Source<'_>) -> Result<Outcome, SqlError> {
        loop {
            let version = self.database.version();
            let index = match self.bound(statement, &[])?.action {
                Action::Define(definition) => definition.index,
                Action::Skip { tag, notice } => return Ok(Outcome { notices: vec![notice], ..Outcome::tagged(tag) }),
                Action::Run(_) => None,
            };
            let (table, index) = index.ok_or_else(|| SqlError::internal("a statement makes an index, or none"))?;
            if !self.database.enter((&[table.id], version), &self.slot, self.lock_timeout)? {
                continue;
            }
            self.database.protocol.create_index(table.id, index.clone()).map_err(|error| {
                let error = SqlError::of_engine(error);
                let message = format!("could not create unique index \"{}\"", index.name);
                if error.state() == SqlState::UNIQUE_VIOLATION { SqlError::new(error.state(), message) } else { error }
            })?;
            self.database.refresh(&table)?;
            return Ok(Outcome::tagged("CREATE INDEX"));
        }
    }

    /// Changes settings as SET does, or SET LOCAL.
    fn change(&mut self, is_local: bool, change: impl Fn(&mut Settings)) -> Outcome {
        if is_local && !self.session.is_explicit() {
            let message = "SET LOCAL can only be used in transaction blocks";
            let notices = vec![Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message)];
            return Outcome { notices, ..Outcome::tagged("SET") };
        }
        self.change_settings(is_local, change);
        Outcome::tagged("SET")
    }

    /// Does what SET says of constraints, replays and time-outs; of nothing else.
    pub(crate) fn set(&mut self, statement: &ast::Statement) -> Option<Result<Outcome, SqlError>> {
        let ast::Statement::Set(ast::Set::SingleAssignment { scope, variable, values, .. }) = statement else {
            return None;
        };
        let is_local = *scope == Some(ast::ContextModifier::Local);
        if variable.to_string().eq_ignore_ascii_case("search_path") {
            if is_local && !self.session.is_explicit() {
                return Some(Ok(self.change(true, |_| {})));
            }
            return Some(path_of(values).map(|schemas| self.set_path(is_local, schemas, "SET")));
        }
        let words: Vec<_> = values.iter().map(|value| value.to_string().trim_matches('\'').to_lowercase()).collect();
        match (variable.to_string().to_lowercase().as_str(), &words[..]) {
            ("constraints", [names @ .., how]) if how == "deferred" || how == "immediate" => {
                let names: &[_] = if names == ["all"] { &[] } else { names };
                self.session.drawn().set_deferred(names, how == "deferred");
                if !self.session.is_explicit() {
                    let message = "SET CONSTRAINTS can only be used in transaction blocks";
                    let notices = vec![Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message)];
                    return Some(Ok(Outcome { notices, ..Outcome::tagged("SET CONSTRAINTS") }));
                }
                let left = self.session.leave_undeclared(false, &self.zone);
                if let Some(script) = self.session.script() {
                    script.runs_once = true;
                }
                if let Err(error) = left {
                    return Some(Err(error));
                }
                let checked = if how == "immediate" { self.session.check_due(&self.zone) } else { Ok(()) };
                Some(checked.map(|()| Outcome::tagged("SET CONSTRAINTS")))
            }
            (name, [value]) if self.settings().choice(name).is_some() => {
                let wanted = self.settings().choice(name).and_then(|(_, values)| chosen(value, values));
                let Some(wanted) = wanted else {
                    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
                    return Some(Err(self.fail(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))));
                };
                Some(Ok(self.change(is_local, |settings| {
                    settings.choice(name).into_iter().for_each(|(it, _)| *it = wanted);
                })))
            }
            (name, [time]) if self.settings().time(name).is_some() => {
                let time = match duration(name, time) {
                    Ok(time) => time,
                    Err(error) => return Some(Err(self.fail(error))),
                };
                Some(Ok(self.change(is_local, |settings| settings.time(name).into_iter().for_each(|it| *it = time))))
            }
            (name, _) if crate::parameters::is_known(name) => Some(self.set_client(name, values, is_local)),
            _ => None,
        }
    }

    fn set_path(&mut self, is_local: bool, schemas: Vec<String>, tag: &'static str) -> Outcome {
        let path = Arc::new(Path { schemas, ..Path::clone(&self.path) });
        self.change_settings(is_local, |settings| settings.path = path.clone());
        Outcome::tagged(tag)
    }

    fn make(&mut self, mut definition: Definition) -> Result<(), SqlError> {
        if let Some((table, index)) = definition.index.take() {
            definition.tables.push(NewTable::with_index(&table, index));
        }
        let is_new = Definitions::find(&self.database.protocol)?.is_none();
        let needs_tables = !definition.tables.is_empty() || is_new;
        if needs_tables {
            self.session.pause()?;
        }
        let made = self.make_tables(&mut definition);
        // The transaction goes on, or is begun here, after an error, too: it decides what becomes of that.
        self.session.begin(Modes::default(), false)?;
        self.session.resume(&self.zone)?;
        let (made, copies) = made?;
        if let Some(script) = self.session.script() {
            script.made.extend(made.iter().filter_map(|(_, object)| object.table().map(|table| table.id)));
        }
        let mut steps = Vec::new();
        let changed = definition.objects.iter().map(|(name, object)| (name.clone(), self.object(name, object.clone())));
        let changed: Vec<_> = changed.chain(made.into_iter().map(|(name, object)| (name, Some(object)))).collect();
        let definitions = Definitions::make(&self.database.protocol)?;
        for (name, object) in changed.iter().filter(|(name, _)| !name.is_temporary()) {
            let own = definitions.steps(name, object.as_ref().map(Kept::of).as_ref())?;
            let first = match &definition.bound_to {
                Some(catalog) if self.session.is_planned() => self.row_of_new(&definitions, name, catalog)?,
                _ => Then::Nothing,
            };
            let then = std::iter::once(first).chain(std::iter::repeat(Then::Nothing));
            steps.extend(own.into_iter().zip(then));
        }
        let schemas = Schemas::of(&changed, &definitions)?;
        let needs =
            definition.needs.drain(..).map(|(name, error)| Ok((definitions.row_step(&name)?, Then::IsFound(error))));
        let needs = needs.collect::<Result<Vec<_>, SqlError>>()?;
        for (name, object) in changed {
            let before = self.database.catalog().known(&name);
            self.database.note_pending(&name, before.clone());
            self.session.change(&name, before, object);
        }
        for copy in copies {
            self.session.put((&copy.into(), &[]), Then::Told(of_copy), &self.zone)?;
        }
        for ((plan, values), then) in steps {
            let values: Vec<_> = values.iter().map(crate::datum::OwnedDatum::get).collect();
            self.session.put((&plan.into(), &values), then, &self.zone)?;
        }
        self.check_schemas(schemas)?;
        for ((plan, values), then) in needs {
            let values: Vec<_> = values.iter().map(crate::datum::OwnedDatum::get).collect();
            self.session.put((&plan.into(), &values), then, &self.zone)?;
        }
        // They look at rows for the database, and not for the session's role.
        let unlimited = Arc::<Drawn>::default();
        unlimited.set_path(Arc::new(Path { user: Arc::default(), ..Path::clone(&self.path) }));
        for (query, error) in definition.checks {
            let statements = crate::parse::statements(&query)?;
            let bound = Statement::bind(&self.catalog(), &statements[0], &[], &unlimited)?;
            let Action::Run(plan) = bound.action else { continue };
            self.session.put((&plan.into(), &[]), Then::IsEmpty(error), &self.zone)?;
        }
        for plan in definition.plans {
            self.session.put((&plan.into(), &[]), Then::Nothing, &self.zone)?;
        }
        Ok(())
    }

    /// What the row of a name must be that is about to be defined, when the definition is made: a planned transaction does not find out by itself that others have defined
    /// the name since. A row may be there that stands for nothing.
    fn row_of_new(&self, definitions: &Definitions<'_, P>, name: &Name, bound_to: &Catalog) -> Result<Then, SqlError> {
        let is_own = self.session.changes().is_some_and(|changes| changes.contains_key(name));
        // An object that has appeared since the statement was bound is another client's.
        if is_own || bound_to.known(name).is_some() {
            return Ok(Then::Nothing);
        }
        let Some(kept) = definitions.read(name)? else { return Ok(Then::Finds(None)) };
        let text = kept.text()?;
        match self.database.load(name, kept)? {
            None => Ok(Then::Finds(Some(text))),
            Some(_) => Err(SqlError::of_engine(Error::Conflict)),
        }
    }

    /// Finds the schemas of new objects, and nothing in those that are dropped: another transaction may have changed that since the statement was bound.
    fn check_schemas(&mut self, schemas: Schemas) -> Result<(), SqlError> {
        let used = schemas.used.into_iter().map(|(schema, step)| (step, Then::IsFound(no_schema(&schema))));
        let dropped = schemas.dropped.into_iter().map(|(schema, step)| {
            let message = format!("others have made objects in schema \"{schema}\"");
            (step, Then::IsEmpty(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)))
        });
        for ((plan, values), then) in used.chain(dropped) {
            let values: Vec<_> = values.iter().map(crate::datum::OwnedDatum::get).collect();
            self.session.put((&plan.into(), &values), then, &self.zone)?;
        }
        Ok(())
    }

    /// Has the engine make the tables, and answers them with what their first rows come from.
    fn make_tables(&mut self, definition: &mut Definition) -> Result<Made, SqlError> {
        Definitions::make(&self.database.protocol)?;
        let (mut made, mut copies) = (Vec::new(), Vec::new());
        for NewTable { name, definition, mut description, source } in definition.tables.drain(..) {
            let (table, engine) = self.database.make_table(definition)?;
            description.engine = (engine != name.key()).then_some(engine);
            let table = Arc::new(self.database.describe(&name, table, description));
            table.prepare(&self.catalog())?;
            made.push((name, Object::Table(table.clone())));
            if let Some(source) = source {
                let (checks, keys, on_conflict) = (Vec::new(), Arc::default(), OnConflict::Fail);
                copies.push(Plan::Insert { table, source, checks, keys, on_conflict, returning: None });
            }
        }
        Ok((made, copies))
    }

    fn object(&self, name: &Name, new: Option<NewObject>) -> Option<Object> {
        Some(match new? {
            NewObject::Table(table, description) => Object::Table(Arc::new(table.redescribed(name, description))),
            NewObject::Sequence(of, None) => Object::Sequence(self.database.new_sequence(name, of)),
            NewObject::Sequence(of, Some(sequence)) => Object::Sequence(Arc::new(sequence.altered(name, of))),
            NewObject::Schema(schema) => Object::Schema(schema.into()),
            NewObject::Role(role) => Object::Role(role.into()),
            NewObject::Shared(shared) => Object::Shared(shared.into()),
            NewObject::View(view) => Object::View(view.into()),
            NewObject::Procedure(procedure) => Object::Procedure(procedure.into()),
        })
    }

    /// Makes what a transaction that has ended has defined known to all, or nobody, and opens what it had closed.
    pub(crate) fn finish_definitions(&mut self) {
        // Whatever ends the statement does not end what follows from its end.
        limits::lifted(|| self.finish());
    }

    fn finish(&mut self) {
        let ended = self.session.take_ended();
        let has_committed = ended.as_ref().is_some_and(|(_, has_committed)| *has_committed);
        if ended.is_some() {
            self.slot.activity.end_transaction(has_committed);
        }
        if let Some((script, _)) = ended
            && !(script.before.is_empty() && script.made.is_empty())
        {
            let nothing = crate::catalog::Changes::new();
            let (changes, before) =
                if has_committed { (&script.changes, &script.before) } else { (&nothing, &nothing) };
            self.database.publish(&script.made, changes, before);
            self.database.forget_pending(script.before.keys());
            self.note_temporary(changes);
        }
        if !self.session.is_open() {
            self.end_settings(has_committed);
            for sequence in self.session.drawn().take_unsaved() {
                // What is not stored now is stored with the next number.
                let _ = sequence.save();
            }
            self.database.leave(&self.slot);
            self.act_on_commit();
        }
    }
}
