//! Views: queries with a name, which a FROM that names them has in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sqlparser::ast;

use super::query::Query;
use super::{Binder, folded};
use crate::catalog::{Object, View, taken};
use crate::error::{SqlError, SqlState};
use crate::names::Name;
use crate::roles::Access;
use crate::statement::{Definition, NewObject};
use crate::types::{ColumnType, Type};

impl Binder<'_> {
    /// The rows of a view. Nothing around it is seen from inside.
    pub(super) fn view(&mut self, view: &View) -> Result<Query, SqlError> {
        if self.views.contains(&view.name) {
            return Err(recursive(&view.name));
        }
        crate::parse::check_views(self.views.len())?;
        let statements = crate::parse::statements(&view.query)?;
        let Some(ast::Statement::Query(query)) = statements.first() else {
            return Err(SqlError::internal("a view that is no query"));
        };
        let (scopes, tables) = (std::mem::take(&mut self.scopes), std::mem::take(&mut self.tables));
        let start = std::mem::replace(&mut self.from_start, 0);
        let aggregates = self.aggregates.take();
        let is_nested = !self.views.is_empty();
        self.views.push(view.name.clone());
        let bind = |binder: &mut Self| binder.without_variables(|binder| binder.query(query));
        let check_as = self.catalog.check_as.replace(Some(view.access.owner()));
        // What another view names is in its own text.
        let trace = if is_nested { self.catalog.trace.take() } else { None };
        let bound = self.under_path(view.path.clone(), bind);
        if is_nested {
            self.catalog.trace.replace(trace);
        }
        self.catalog.check_as.set(check_as);
        self.views.pop();
        (self.scopes, self.tables, self.from_start, self.aggregates) = (scopes, tables, start, aggregates);
        let mut bound = bound?;
        bound.columns.iter_mut().zip(&view.columns).for_each(|(column, name)| column.name.clone_from(name));
        Ok(bound)
    }

    /// The view that a new one takes the place of, if its name is not free.
    fn replaced_view(&self, name: &Name, may_replace: bool) -> Result<Option<Arc<View>>, SqlError> {
        match self.catalog.object(name)? {
            Some(Object::View(old)) if may_replace => {
                self.catalog.check_owner(&Object::View(old.clone()))?;
                Ok(Some(old))
            }
            Some(_) if may_replace => {
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a view")))
            }
            None if !self.catalog.is_taken(name)? => Ok(None),
            _ => Err(taken(name)),
        }
    }

    /// Refuses a column of a type that the role may not use, or that is no type of a column.
    fn check_column_of_view(&self, of: ColumnType) -> Result<(), SqlError> {
        match of.base {
            Type::Record => Err(SqlError::unsupported("a column of rows in a view")),
            _ => self.catalog.check_usable(of),
        }
    }

    pub(crate) fn create_view(&mut self, create: &ast::CreateView) -> Result<Definition, SqlError> {
        if create.materialized || create.temporary || create.or_alter {
            return Err(SqlError::unsupported("CREATE MATERIALIZED VIEW, and TEMPORARY VIEW"));
        }
        if create.options != ast::CreateTableOptions::None {
            return Err(SqlError::unsupported("CREATE VIEW WITH options"));
        }
        let name = self.catalog.new_object(&create.name)?;
        if name.is_temporary() {
            return Err(SqlError::unsupported("CREATE TEMPORARY VIEW"));
        }
        let old = self.replaced_view(&name, create.or_replace)?;
        self.check_free_of_type(&name)?;
        super::check_reads_only(&create.query, "views")?;
        self.catalog.named.borrow_mut().clear();
        // Its query is bound as if it were within the view, so that it is not made of itself.
        self.views.push(name.clone());
        let bound = self.query(&create.query)?;
        self.views.pop();
        // What it reads is asked of its owner when it is read.
        self.catalog.needs.take();
        let mut about = self.catalog.named.take();
        about.sort_unstable();
        about.dedup();
        if let Some(temporary) = about.iter().find(|it| it.is_temporary()) {
            return Err(SqlError::unsupported(format!("a view about the temporary table {temporary}")));
        }
        let types: Vec<_> = bound.columns.iter().map(|column| column.of).collect();
        types.iter().try_for_each(|of| self.check_column_of_view(*of))?;
        let own: Vec<_> = bound.columns.iter().map(|column| column.name.clone()).collect();
        let mut query = create.query.clone();
        super::view_columns::with_columns(&mut query, &own);
        let columns = named(own, create)?;
        let mut definition = Definition::new("CREATE VIEW");
        let (mut views, mut access, mut column_grants) = (Vec::new(), Access::default(), BTreeMap::new());
        let (mut comment, mut column_comments) = (None, BTreeMap::new());
        if let Some(old) = old {
            check_columns((&old.columns, &old.types), (&columns, &types))?;
            self.forget_view(&old, &[], &mut definition)?;
            views.clone_from(&old.views);
            (access, column_grants) = (old.access.clone(), old.column_grants.clone());
            (comment, column_comments) = (old.comment.clone(), old.column_comments.clone());
        }
        for other in &about {
            self.note_views(other, &mut definition, &|views| {
                if !views.contains(&name) {
                    views.push(name.clone());
                }
            })?;
        }
        let query = query.to_string();
        let path = self.catalog.path.schemas.clone();
        let view = View {
            name: name.clone(),
            columns,
            types,
            query,
            about,
            views,
            path,
            access,
            column_grants,
            comment,
            column_comments,
        };
        definition.set_object(&name, Some(NewObject::View(view)));
        Ok(definition)
    }

    /// Refuses a new column of a table of which a view takes all: the view's columns are those of when it was made.
    pub(super) fn check_views_of_all_columns(&self, views: &[Name]) -> Result<(), SqlError> {
        for name in views {
            if let Some(Object::View(view)) = self.catalog.object(name)?
                && crate::parse::takes_all_columns(&view.query)?
            {
                return Err(SqlError::unsupported(format!(
                    "a new column under the view {name}, which has all columns,"
                )));
            }
        }
        Ok(())
    }

    /// Changes which views an object knows to be about it.
    pub(super) fn note_views(
        &self,
        name: &Name,
        definition: &mut Definition,
        change: &dyn Fn(&mut Vec<Name>),
    ) -> Result<(), SqlError> {
        match self.catalog.object(name)? {
            Some(Object::Table(table)) => {
                let mut description = definition.described(&table);
                change(&mut description.views);
                definition.set_object(name, Some(NewObject::Table(table, description)));
            }
            Some(Object::View(view)) => {
                let mut view = definition.view(&view);
                change(&mut view.views);
                definition.set_object(name, Some(NewObject::View(view)));
            }
            _ => {}
        }
        Ok(())
    }

    /// A view goes: what it is about is told, but for what goes, too.
    pub(super) fn forget_view(&self, view: &View, going: &[Name], definition: &mut Definition) -> Result<(), SqlError> {
        self.close_under(view, definition)?;
        for other in view.about.iter().filter(|other| !going.contains(other)) {
            let goes = definition.objects.iter().any(|(name, object)| name == other && object.is_none());
            if !goes {
                self.note_views(other, definition, &|views| views.retain(|own| *own != view.name))?;
            }
        }
        Ok(())
    }

    /// Closes the tables that a view reads: a transaction that has read through it goes on with it as it is.
    pub(super) fn close_under(&self, view: &View, definition: &mut Definition) -> Result<(), SqlError> {
        let (mut waiting, mut seen) = (view.about.clone(), BTreeSet::new());
        while let Some(name) = waiting.pop() {
            match self.catalog.object(&name)? {
                Some(Object::Table(table)) => definition.closes.push(table.id),
                Some(Object::View(other)) if seen.insert(name) => waiting.extend(other.about.iter().cloned()),
                _ => {}
            }
        }
        definition.closes.sort_unstable();
        definition.closes.dedup();
        Ok(())
    }

    /// Drops the views that are about an object which goes, or tells of them.
    pub(super) fn drop_views(
        &self,
        (what, views): (&str, &[Name]),
        names: &[Name],
        (cascade, details): (bool, &mut Vec<String>),
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let mut waiting: Vec<(Name, String)> = views.iter().map(|view| (view.clone(), what.to_owned())).collect();
        while let Some((name, of)) = waiting.pop() {
            let gone = definition.objects.iter().any(|(own, object)| *own == name && object.is_none());
            let Some(Object::View(view)) = self.catalog.object(&name)?.filter(|_| !gone && !names.contains(&name))
            else {
                continue;
            };
            let shown = format!("view {}", self.catalog.shown(&name)?);
            details.push(match cascade {
                true => format!("drop cascades to {shown}"),
                false => format!("{shown} depends on {of}"),
            });
            if cascade {
                definition.set_object(&name, None);
                self.forget_view(&view, names, definition)?;
            }
            waiting.extend(view.views.iter().map(|other| (other.clone(), shown.clone())));
        }
        Ok(())
    }
}

/// The names of a view's columns: those of its query, but for those that are given.
fn named(mut columns: Vec<String>, create: &ast::CreateView) -> Result<Vec<String>, SqlError> {
    if create.columns.len() > columns.len() {
        let message = "CREATE VIEW specifies more column names than columns";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    columns.iter_mut().zip(&create.columns).for_each(|(column, new)| *column = folded(&new.name));
    if let Some(twice) = columns.iter().enumerate().find(|(at, name)| columns[..*at].contains(name)) {
        let message = format!("column \"{}\" specified more than once", twice.1);
        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
    }
    Ok(columns)
}

fn recursive(name: &Name) -> SqlError {
    let message = format!("infinite recursion detected in rules for relation \"{name}\"");
    SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message)
}

/// A view that is replaced keeps its columns, and may get more.
fn check_columns(
    (old, old_types): (&[String], &[ColumnType]),
    (new, types): (&[String], &[ColumnType]),
) -> Result<(), SqlError> {
    let refused = |message: String| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if new.len() < old.len() {
        return refused("cannot drop columns from view".to_owned());
    }
    if let Some((old, new)) = old.iter().zip(new).find(|(old, new)| old != new) {
        return refused(format!("cannot change name of view column \"{old}\" to \"{new}\""));
    }
    match new.iter().zip(old_types.iter().zip(types)).find(|(_, (old, new))| old != new) {
        None => Ok(()),
        Some((name, (old, new))) => {
            refused(format!("cannot change data type of view column \"{name}\" from {old} to {new}"))
        }
    }
}

/// A shared view as one of its own.
impl Definition {
    fn view(&self, view: &Arc<View>) -> View {
        match self.objects.iter().rev().find(|(name, _)| *name == view.name) {
            Some((_, Some(NewObject::View(changed)))) => changed.clone(),
            _ => View::clone(view),
        }
    }
}
