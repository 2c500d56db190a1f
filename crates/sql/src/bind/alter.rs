//! ALTER TABLE.

use std::sync::Arc;

use sqlparser::ast::{self, AlterColumnOperation, AlterTableOperation as Operation};

use super::changes::scope_of;
use super::definitions::{Constraint, Draft, constraint_of};
use super::drops::cascaded;
use super::indexes::{DraftIndex, renamed};
use super::renames::{mentions, rename_constraint};
use super::traces::NewNames;
use super::{Binder, Scope, Written, folded, plain_name};
use crate::casts::Place;
use crate::catalog::{Column, ForeignKey, Object, Table, taken};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::names::Name;
use crate::outcome::Notice;
use crate::plan::{Node, Scan};
use crate::sequences::{BLOCK, Draw, ROW_BLOCKS};
use crate::statement::{Action, Definition, NewObject};

/// A table on its way.
pub(super) struct Alteration {
    pub(super) table: Arc<Table>,
    pub(super) draft: Draft,
    /// What each column that is seen is of a row as it was.
    values: Vec<Expr>,
    /// Whether the engine's table is another one afterwards.
    pub(super) is_rewritten: bool,
    /// The columns that have got another type.
    pub(super) retyped: Vec<String>,
    pub(super) definition: Definition,
}

/// A name as a statement says it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Draft {
    /// The table as it is.
    pub(super) fn of(table: &Table) -> Self {
        let names = |columns: &[usize]| columns.iter().map(|&at| table.columns[at].name.clone()).collect::<Vec<_>>();
        let mut description = table.description.clone();
        description.columns.retain(|column| !column.is_hidden);
        Self {
            name: table.name.clone(),
            description,
            key: table.has_primary_key().then(|| names(&table.sources(table.primary()))),
            indexes: DraftIndex::all_of(table),
            renames: Vec::new(),
            objects: Vec::new(),
        }
    }
}

impl Alteration {
    /// One that changes nothing yet.
    pub(super) fn of(table: &Arc<Table>, tag: &'static str) -> Self {
        let mut definition = Definition::new(tag);
        definition.closes.push(table.id);
        let values = table.visible().map(|(at, _)| Expr::Column(at)).collect();
        let (draft, retyped) = (Draft::of(table), Vec::new());
        Self { table: table.clone(), draft, values, is_rewritten: false, retyped, definition }
    }

    fn column(&self, name: &ast::Ident) -> Result<usize, SqlError> {
        let name = folded(name);
        let missing = || {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", self.draft.name);
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        };
        self.draft.column(&name).ok_or_else(missing)
    }

    pub(super) fn check(&mut self, query: String, state: SqlState, message: String) {
        self.definition.checks.push((query, SqlError::new(state, message)));
    }
}

impl Binder<'_> {
    pub(crate) fn alter_table(&mut self, alter: &ast::AlterTable) -> Result<Action, SqlError> {
        let renames = |it: &Operation| matches!(it, Operation::RenameTable { .. } | Operation::RenameColumn { .. });
        let written = Written::of(&alter.name)?;
        if !alter.if_exists {
            self.catalog.check_schema(&written)?;
        }
        let found = self.catalog.find_written(&written)?;
        if let (Some((_, Object::View(view))), [operation]) = (&found, &alter.operations[..])
            && (renames(operation) || crate::gaps::is_of_view(alter))
        {
            let tag = if crate::gaps::is_of_view(alter) { "ALTER VIEW" } else { "ALTER TABLE" };
            let mut definition = Definition::new(tag);
            self.rename_view(view, operation, &mut definition)?;
            return Ok(Action::Define(definition.into()));
        }
        let found = found.and_then(|(_, it)| it.table().cloned());
        let Some(table) = found else {
            let shown = if alter.if_exists { written.name.clone() } else { written.to_string() };
            let message = format!("relation \"{shown}\" does not exist");
            return match alter.if_exists {
                true => {
                    let notice = Notice::remark(SqlState::SUCCESS, format!("{message}, skipping"));
                    let tag = if crate::gaps::is_of_view(alter) { "ALTER VIEW" } else { "ALTER TABLE" };
                    Ok(Action::Skip { tag, notice })
                }
                false => Err(SqlError::new(SqlState::UNDEFINED_TABLE, message)),
            };
        };
        self.catalog.check_owner(&Object::Table(table.clone()))?;
        if !table.views.is_empty() && alter.operations.len() > 1 && alter.operations.iter().any(renames) {
            return Err(SqlError::unsupported("a change of names of which views are made, among others,"));
        }
        if alter.operations.iter().any(|it| matches!(it, Operation::AddColumn { .. })) {
            self.check_views_of_all_columns(&table.views)?;
        }
        let mut change = Alteration::of(&table, "ALTER TABLE");
        for operation in &alter.operations {
            self.alteration(operation, &mut change)?;
        }
        Ok(Action::Define(self.altered(change)?.into()))
    }

    /// The definition that an alteration is.
    pub(super) fn altered(&mut self, mut change: Alteration) -> Result<Definition, SqlError> {
        self.check_retyped(&mut change)?;
        let Alteration { table, draft, values, is_rewritten, mut definition, .. } = change;
        if draft.name != table.name {
            definition.set_object(&table.name, None);
        }
        if is_rewritten {
            self.rewrite(&table, draft, values, &mut definition)?;
        } else {
            let includes = draft.includes();
            let Draft { name, mut description, objects, renames, .. } = draft;
            description.includes = includes;
            if name != table.name {
                description.engine = Some(table.engine.clone().unwrap_or_else(|| table.name.key().to_owned()));
            }
            let hidden = table.columns.iter().filter(|column| column.is_hidden).cloned();
            description.columns.extend(hidden.map(|column| {
                let renamed = |of, (old, new): &(String, String)| renamed(of, old, new);
                let computed = column.computed.map(|of| renames.iter().fold(of, renamed));
                Column { computed, ..column }
            }));
            objects.into_iter().for_each(|(name, object)| definition.set_object(&name, object));
            let columns = renames.into_iter().filter_map(|(old, new)| Some((table.column(&old)?, old, new)));
            let columns: Vec<_> = columns.collect();
            if !table.views.is_empty() && (name != table.name || !columns.is_empty()) {
                let names = NewNames { old: &table.name, new: &name, columns: &columns };
                let becomes = Object::Table(Arc::new(table.redescribed(&name, description.clone())));
                self.rename_in_views(names, &table.views, &becomes, &mut definition)?;
            }
            definition.set_object(&name, Some(NewObject::Table(table, description)));
        }
        Ok(definition)
    }

    /// The table without these columns, and all that goes with them.
    pub(super) fn without_columns(&mut self, table: &Arc<Table>, columns: &[String]) -> Result<Definition, SqlError> {
        let names = columns.iter().map(|name| ast::Ident::with_quote('"', name)).collect();
        let drop_behavior = Some(ast::DropBehavior::Cascade);
        let operation =
            Operation::DropColumn { column_names: names, has_column_keyword: true, if_exists: false, drop_behavior };
        if !table.views.is_empty() {
            return Err(SqlError::unsupported("a change of columns and names of which views are made"));
        }
        let mut change = Alteration::of(table, "ALTER TABLE");
        self.alteration(&operation, &mut change)?;
        self.altered(change)
    }

    /// Has the engine make the table anew, with these values of its rows.
    pub(super) fn rewrite(
        &mut self,
        table: &Arc<Table>,
        draft: Draft,
        mut values: Vec<Expr>,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        if !table.definition.foreign_keys.is_empty() {
            return Err(SqlError::unsupported("a change of the rows of a table whose foreign keys are not of SQL"));
        }
        let (mut new, objects) = draft.table(&self.catalog)?;
        let hidden = table.columns.iter().position(|column| column.is_hidden && column.computed.is_none());
        if let Some(number) = new.description.row_numbers {
            values.push(match hidden {
                Some(at) => Expr::Column(at),
                None => {
                    let source = self.catalog.sequence_of_rows(&new.name, number);
                    source.prepare(ROW_BLOCKS.0)?;
                    self.drawing(Draw::Row(source), Box::new([]))
                }
            });
        }
        // What is computed is so when the rows are inserted.
        values.resize(new.description.columns.len(), Expr::NULL);
        let scan = Node::Scan(Scan::whole(table));
        new.source = Some(Node::Project { input: Box::new(scan), columns: values });
        objects.into_iter().for_each(|(name, object)| definition.set_object(&name, object));
        definition.tables.push(new);
        Ok(())
    }

    fn alteration(&mut self, operation: &Operation, change: &mut Alteration) -> Result<(), SqlError> {
        match operation {
            Operation::AddColumn { if_not_exists, column_def, .. } => {
                self.add_column(column_def, *if_not_exists, change)
            }
            Operation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
                column_names.iter().try_for_each(|name| self.drop_column(name, *if_exists, cascade, change))
            }
            Operation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(old_column_name, &folded(new_column_name), change)
            }
            Operation::RenameTable { table_name } => {
                let (ast::RenameTableNameKind::As(name) | ast::RenameTableNameKind::To(name)) = table_name;
                if let Some(schema) = crate::gaps::moved_to(name) {
                    return self.set_schema(schema, change);
                }
                self.rename_table(change.draft.name.beside(&plain_name(name)?), change)
            }
            Operation::RenameConstraint { old_name, new_name } => {
                rename_constraint(&folded(old_name), &folded(new_name), change)
            }
            Operation::AlterColumn { column_name, op } => self.alter_column(column_name, op, change),
            Operation::AddConstraint { constraint, not_valid } => {
                self.add_late_constraint(constraint_of(constraint)?, *not_valid, change)
            }
            Operation::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
                self.drop_constraint(&folded(name), *if_exists, cascade, change)
            }
            Operation::ValidateConstraint { name } => change.validate(&folded(name)),
            Operation::OwnerTo { .. } => Err(SqlError::unsupported("OWNER TO among other changes")),
            other => Err(SqlError::unsupported(format!("ALTER TABLE {other}"))),
        }
    }

    fn add_column(&mut self, column: &ast::ColumnDef, may_be: bool, change: &mut Alteration) -> Result<(), SqlError> {
        let (name, table) = (folded(&column.name), change.draft.name.clone());
        if change.draft.column(&name).is_some() {
            let message = format!("column \"{name}\" of relation \"{table}\" already exists");
            if !may_be {
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            let notice = Notice::remark(SqlState::DUPLICATE_COLUMN, format!("{message}, skipping"));
            change.definition.notices.push(notice);
            return Ok(());
        }
        let mut constraints = Vec::new();
        self.new_column(column, &mut change.draft, &mut constraints)?;
        let new = change.draft.description.columns.last().cloned();
        let Some(new) = new else { return Ok(()) };
        self.check_generated(&change.draft)?;
        let own = change.draft.objects.iter().rev().find_map(|(name, object)| match object {
            Some(NewObject::Sequence(of, _))
                if new.default.as_deref().and_then(super::drops::sequence_of).as_ref() == Some(name) =>
            {
                Some((name.clone(), of.clone()))
            }
            _ => None,
        });
        let value = match (&own, &new.default) {
            (Some((name, of)), _) => {
                let sequence = self.catalog.new_sequence(name, of.clone());
                sequence.prepare(BLOCK)?;
                change.draft.objects.retain(|(own, _)| own != name);
                let kept = NewObject::Sequence(of.clone(), Some(sequence.clone()));
                change.draft.objects.push((name.clone(), Some(kept)));
                let next =
                    crate::expr::Typed::new(self.drawing(Draw::Next(sequence), Box::new([])), crate::types::Type::Int8);
                self.cast(next, new.of, Place::Assignment)?.expr
            }
            (None, Some(text)) => {
                let expr = crate::parse::expression(text)?;
                let value = self.under_public(|binder| binder.within(Scope::default(), |binder| binder.expr(&expr)))?;
                self.cast(value, new.of, Place::Assignment)?.expr
            }
            (None, None) => Expr::NULL,
        };
        change.values.push(value);
        change.is_rewritten = true;
        constraints.into_iter().try_for_each(|constraint| self.add_late_constraint(constraint, false, change))
    }

    fn add_late_constraint(
        &mut self,
        constraint: Constraint,
        not_valid: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        if let Constraint::Primary(named, _) | Constraint::Unique(named, _) = &constraint {
            change.is_rewritten = true;
            if let Some(name) = named.as_ref().filter(|name| change.draft.has_name(name)) {
                return Err(taken(&change.draft.name.beside(name)));
            }
        }
        let is_check = matches!(constraint, Constraint::Check(..));
        let is_foreign = matches!(constraint, Constraint::Foreign(..));
        if let Constraint::Check(Some(name), _) | Constraint::Foreign(Some(name), _) = &constraint
            && change.draft.has_name(name)
        {
            let kind = format!("constraint \"{name}\" for relation \"{}\" already exists", change.draft.name);
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, kind));
        }
        self.add_constraint(&mut change.draft, constraint, &mut change.definition)?;
        if not_valid {
            return Ok(());
        }
        if is_check && let Some(check) = change.draft.description.checks.last().cloned() {
            change.check_rows(&check);
        }
        if is_foreign && let Some(key) = change.draft.description.foreign.last().cloned() {
            change.check_keys(&change.draft.name.clone(), &key);
        }
        Ok(())
    }

    fn alter_column(
        &mut self,
        name: &ast::Ident,
        operation: &AlterColumnOperation,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let at = change.column(name)?;
        let (table, name) = (change.draft.name.clone(), folded(name));
        let of = change.draft.description.columns[at].of;
        let is_identity = change.draft.description.columns[at].identity.is_some();
        let is_generated = change.draft.description.columns[at].generated.is_some();
        let column = format!("column \"{name}\" of relation \"{table}\"");
        match operation {
            AlterColumnOperation::SetDefault { value: ast::Expr::Identifier(text) }
                if let Some(text) = text.value.strip_prefix(crate::parse::CHANGE) =>
            {
                return self.change_column(at, text, change);
            }
            AlterColumnOperation::SetNotNull => {
                change.draft.description.columns[at].nullable = false;
                let query = format!("SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1", table.written(), quoted(&name));
                change.check(query, SqlState::NOT_NULL_VIOLATION, format!("{column} contains null values"));
            }
            AlterColumnOperation::DropNotNull => {
                if change.draft.key.as_ref().is_some_and(|key| key.contains(&name)) {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
                }
                if is_identity {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{column} is an identity column")));
                }
                change.draft.description.columns[at].nullable = true;
                let engine = change.draft.description.columns[at].engine_name();
                let held = &change.table.definition.columns;
                change.is_rewritten |= held.iter().any(|column| column.name == engine && !column.nullable);
            }
            AlterColumnOperation::SetDefault { .. } | AlterColumnOperation::DropDefault if is_identity => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{column} is an identity column")));
            }
            AlterColumnOperation::SetDefault { .. } | AlterColumnOperation::DropDefault if is_generated => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{column} is a generated column")));
            }
            AlterColumnOperation::SetDefault { value } => {
                change.draft.description.columns[at].default = Some(self.new_default(value, of)?);
            }
            AlterColumnOperation::DropDefault => change.draft.description.columns[at].default = None,
            AlterColumnOperation::SetDataType { data_type, using, .. } => {
                self.retype(at, (&name, data_type), using.as_ref(), change)?;
            }
            AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
                let is_always = matches!(generated_as, Some(ast::GeneratedAs::Always));
                self.add_identity(at, (is_always, sequence_options.as_deref().unwrap_or_default()), change)?;
            }
            other => return Err(SqlError::unsupported(format!("ALTER COLUMN {other}"))),
        }
        Ok(())
    }

    fn retype(
        &mut self,
        at: usize,
        (name, data_type): (&str, &ast::DataType),
        using: Option<&ast::Expr>,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let to = self.catalog.usable_type(data_type)?;
        super::generated::check_retyped(&change.draft.description.columns, name)?;
        self.check_views_of_column(name, change)?;
        let from = change.draft.description.columns[at].of;
        let value = match using {
            Some(expr) => {
                let scope = scope_of(change.table.name.plain(), &change.table.columns);
                self.within(scope, |binder| binder.expr(expr))?
            }
            None => crate::expr::Typed::new(change.values[at].clone(), from),
        };
        let cast = self.cast(value, to, Place::Assignment).map_err(|error| {
            if error.state() != SqlState::DATATYPE_MISMATCH {
                return error;
            }
            let message = format!("column \"{name}\" cannot be cast automatically to type {}", to.base);
            let hint = format!("You might need to specify \"USING {name}::{}\".", to.base);
            SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint)
        })?;
        if let Some(text) = change.draft.description.columns[at].default.clone() {
            let expr = crate::parse::expression(&text)?;
            self.under_public(|binder| binder.new_default(&expr, to))?;
        }
        change.values[at] = cast.expr;
        change.draft.description.columns[at].of = to;
        change.retyped.push(name.to_owned());
        self.check_generated(&change.draft)?;
        change.is_rewritten = true;
        Ok(())
    }

    pub(super) fn drop_column(
        &mut self,
        name: &ast::Ident,
        may_be_missing: bool,
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let at = match change.column(name) {
            Ok(at) => at,
            Err(error) if may_be_missing => {
                let notice = Notice::remark(SqlState::SUCCESS, format!("{}, skipping", error.message()));
                change.definition.notices.push(notice);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (name, table) = (folded(name), change.draft.name.clone());
        let what = format!("column {name} of table {}", self.catalog.shown(&table)?);
        let is_meant = |child: &Name, key: &ForeignKey| {
            // A key of the table itself goes with its column.
            key.parents.contains(&name) && (*child != table || !key.columns.contains(&name))
        };
        self.free_of_children((&what, &what), &is_meant, cascade, change)?;
        self.drop_views_of_column((&name, &what), cascade, change)?;
        self.drop_generated((&name, &what), cascade, change)?;
        let at = change.draft.column(&name).unwrap_or(at);
        change.draft.description.columns.remove(at);
        change.values.remove(at);
        let Draft { description, key, indexes, .. } = &mut change.draft;
        if key.as_ref().is_some_and(|key| key.contains(&name)) {
            *key = None;
        }
        let gone: Vec<_> = indexes.extract_if(.., |index| index.names(&name)).collect();
        description.constraints.retain(|own| gone.iter().all(|index| index.name != *own));
        let gone: Vec<_> = description.foreign.extract_if(.., |key| key.columns.contains(&name)).collect();
        description.checks.retain(|check| !mentions(&check.condition, &name));
        for key in gone {
            self.has_left(&key.parent, change)?;
        }
        for (sequence, _) in self.owned_sequences(&change.table)?.into_iter().filter(|(_, column)| *column == name) {
            change.draft.description.owned.retain(|own| *own != sequence.name);
            let mut details = Vec::new();
            let going = [table.clone()];
            self.drop_sequence(&sequence, &going, (cascade, &mut details), &mut change.definition)?;
            cascaded(&what, &details, cascade, &mut change.definition)?;
        }
        change.is_rewritten = true;
        Ok(())
    }
}
