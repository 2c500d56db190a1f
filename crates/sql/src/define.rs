//! How a definition is made in a transaction: `docs/sql.md`, "Definitions".

use std::collections::BTreeSet;
use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::clock::Duration;
use polychron_engine::{Protocol, limits};
use sqlparser::ast;

use crate::bind::{NewTable, TABLE_AS};
use crate::catalog::{Catalog, Object};
use crate::connection::Connection;
use crate::control::Modes;
use crate::definitions::{self, Definitions, Kept, Step};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, Path, no_schema};
use crate::outcome::{Notice, Outcome};
use crate::plan::{OnConflict, Plan};
use crate::procedures;
use crate::sequences::Drawn;
use crate::session::{Expected, Script, Then};
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
            // An index comes with a copy of the table: nobody may write into the original meanwhile.
            definition.closes.extend(definition.index.iter().map(|(table, _)| table.id));
            let mut new: Vec<_> = definition.closes.iter().copied().filter(|table| !closed.contains(table)).collect();
            if new.is_empty() {
                return Ok(definition);
            }
            closed.append(&mut new);
            self.database.close(&closed, &self.slot, self.lock_timeout)?;
            // Others may have made indexes of what the transaction has only described anew.
            if let Some(Script { made, changes, .. }) = self.session.script() {
                for object in changes.values_mut() {
                    let table = object.as_ref().and_then(Object::table).filter(|table| !made.contains(&table.id));
                    if let Some(now) = table.and_then(|table| self.database.as_it_is(table)) {
                        *object = Some(Object::Table(now.into()));
                    }
                }
            }
            match self.bound(statement, &[])?.action {
                Action::Define(again) => definition = *again,
                // What was to be dropped has gone, and may be missing.
                _ => return Ok(Definition::new(definition.tag)),
            }
        }
    }

    /// Closes the tables that a definition changes, and uses those of which it only says something else, so that nobody replaces them before its transaction has ended.
    fn close_and_use(&mut self, statement: Source<'_>, first: Definition) -> Result<Definition, SqlError> {
        let mut definition = first;
        loop {
            definition = self.close(statement, definition)?;
            let described = definition.objects.iter().filter_map(|(_, object)| match object {
                Some(NewObject::Table(table, _)) => Some(table.id).filter(|table| !definition.closes.contains(table)),
                _ => None,
            });
            let used = definition.uses.iter().copied().filter(|table| !definition.closes.contains(table));
            let (described, bound_to): (Vec<_>, _) = (described.chain(used).collect(), definition.bound_to.as_ref());
            let version = bound_to.map_or_else(|| self.database.version(), |catalog| catalog.version);
            if described.is_empty() || self.database.enter((&described, version), &self.slot, self.lock_timeout)? {
                return Ok(definition);
            }
            match self.bound(statement, &[])?.action {
                Action::Define(again) => definition = *again,
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
        let mut attempt = 0;
        loop {
            let catalog = self.catalog();
            let once = || Statement::of(statement, &catalog, types, self.session.drawn());
            let mut bound = match once() {
                Err(_) if self.answer_question() => {
                    let again = once();
                    self.forget_answer();
                    again?
                }
                bound => bound?,
            };
            if let Action::Define(definition) = &mut bound.action {
                attempt += 1;
                // What it names that was not named before has come into the catalog meanwhile: a definition is bound to one that has all.
                if catalog.version != self.database.version() && attempt < 3 {
                    continue;
                }
                definition.bound_to = Some(catalog);
            }
            return Ok(bound);
        }
    }

    /// Makes a definition in the open transaction, which it begins where there is none.
    pub(crate) fn define(&mut self, statement: Source<'_>, definition: Definition) -> Result<Outcome, SqlError> {
        let tag = definition.tag;
        if definition.index.is_some() && !self.session.is_open() {
            return self.create_index(statement);
        }
        self.check_not_open(statement, &definition).map_err(|error| self.session.fail(error.into()))?;
        let definition = self.close_and_use(statement, definition).map_err(|error| self.session.fail(error.into()))?;
        let met: Vec<_> = definition.closes.iter().chain(&definition.uses).copied().collect();
        self.session.renew(&met, &self.zone)?;
        let notices = definition.notices.clone();
        let filled = self.make(definition).map_err(|error| self.session.fail(error.into()))?;
        let outcome = filled.unwrap_or_else(|| Outcome::tagged(tag));
        Ok(Outcome { notices, ..outcome })
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
            self.database.refresh(&table);
            return Ok(Outcome::tagged("CREATE INDEX"));
        }
    }

    /// Does what SET says of constraints and of settings; of nothing else.
    pub(crate) fn set(&mut self, statement: &ast::Statement) -> Option<Result<Outcome, SqlError>> {
        if let ast::Statement::Set(ast::Set::SetTimeZone { local, value }) = statement {
            return Some(self.set_time_zone(value, *local));
        }
        let ast::Statement::Set(ast::Set::SingleAssignment { scope, variable, values, .. }) = statement else {
            return None;
        };
        let is_local = *scope == Some(ast::ContextModifier::Local);
        let name = crate::settings::name_of(variable);
        if name != "constraints" {
            let set = self.set_written(&name, values, is_local);
            return Some(set.map_err(|error| self.fail(error)));
        }
        let words: Vec<_> = values.iter().map(|value| value.to_string().trim_matches('\'').to_lowercase()).collect();
        let [names @ .., how] = &words[..] else { return None };
        if how != "deferred" && how != "immediate" {
            return None;
        }
        let names: &[_] = if names == ["all"] { &[] } else { names };
        self.session.drawn().set_deferred(names, how == "deferred");
        if !self.is_in_block() {
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

    /// Makes what a definition says. Of a table that is made with the rows of a query the answer is how many these are.
    fn make(&mut self, mut definition: Definition) -> Result<Option<Outcome>, SqlError> {
        let then = if definition.tag == TABLE_AS { Then::Filled } else { Then::Told(of_copy) };
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
        let new = self.session.script().map_or_else(Vec::new, |script| {
            script.made.extend(made.iter().filter_map(|(_, object)| object.table().map(|table| table.id)));
            script.made.clone()
        });
        let (mut steps, mut met) = (Vec::new(), BTreeSet::new());
        let changed = definition.objects.iter().map(|(name, object)| (name.clone(), self.object(name, object.clone())));
        let changed: Vec<_> = changed.chain(made.into_iter().map(|(name, object)| (name, Some(object)))).collect();
        let definitions = Definitions::make(&self.database.protocol)?;
        for (name, object) in changed.iter().filter(|(name, _)| !name.is_temporary()) {
            let own = definitions.steps(name, object.as_ref().map(Kept::of).as_ref())?;
            let first = match &definition.bound_to {
                Some(catalog) if met.insert(name) => Then::Finds(self.row_before(name, catalog, &new)?),
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
        let mut filled = None;
        for copy in copies {
            let ran = self.session.put((&copy.into(), &[]), then.clone(), &self.zone)?;
            filled = ran.filter(|_| matches!(then, Then::Filled));
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
        Ok(filled)
    }

    /// What the row of a name must be when it is replaced: what the definition was bound to. Others may have defined the name since, or anew.
    fn row_before(&self, name: &Name, bound_to: &Catalog, own: &[TableId]) -> Result<Expected, SqlError> {
        let (name, database) = (name.clone(), self.database.clone());
        let Some(object) = bound_to.known(&name) else {
            let own = own.to_vec();
            // A row may be there that stands for nothing.
            return Ok(Expected(Arc::new(move |found| {
                let kept = found.map(|text| definitions::parsed(name.plain(), text));
                kept.is_none_or(|kept| kept.is_ok_and(|kept| !database.stands(&name, &kept, &own)))
            })));
        };
        let is_kept = object.table().is_none_or(|table| table.is_kept);
        let text = Kept::of(&object).text()?;
        // Compared as it would be written now: it may have been written by an earlier version.
        let is_same = move |found: &str| {
            let kept = definitions::parsed(name.plain(), found).and_then(|kept| kept.text());
            kept.is_ok_and(|kept| kept == text)
        };
        Ok(Expected(Arc::new(move |found| found.map_or(!is_kept, &is_same))))
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
            NewObject::Enum(of) => Object::Enum(of.into()),
        })
    }

    /// Makes what a transaction that has ended has defined known to all, or nobody, and opens what it had closed.
    pub(crate) fn finish_definitions(&mut self) {
        // Whatever ends the statement does not end what follows from its end.
        limits::lifted(|| self.finish());
    }

    fn finish(&mut self) {
        self.session.drawn().locks.set_leaving(false);
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
            self.session.drawn().end();
            for sequence in self.session.drawn().take_unsaved() {
                // What is not stored now is stored with the next number.
                let _ = sequence.save();
            }
            self.database.leave(&self.slot);
            self.act_on_commit();
        } else if self.session.is_lost() {
            // It has nothing that others would have to wait for.
            self.session.drawn().end();
            self.database.leave(&self.slot);
        }
    }
}
