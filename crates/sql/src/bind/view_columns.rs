//! The columns that views look at: of what they are made, and what may become of it.

use sqlparser::ast::{self, SelectItem, SetExpr};

use super::alter::Alteration;
use super::drops::cascaded;
use super::{Binder, Recorded, Scope};
use crate::catalog::{Object, Table, View};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::names::Name;

/// Writes the columns in the place of a `*`, so that the query keeps its columns where a table gets more. `names` are those of the query. Where it is not clear what a `*` stands for, it stays.
pub(super) fn with_columns(query: &mut ast::Query, names: &[String]) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    let is_wildcard = |it: &SelectItem| matches!(it, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    let mut wildcards = (0..select.projection.len()).filter(|at| is_wildcard(&select.projection[*at]));
    let (Some(at), None) = (wildcards.next(), wildcards.next()) else { return };
    let behind = select.projection.len() - at - 1;
    let Some(own) = names.get(at..names.len().saturating_sub(behind)) else { return };
    let is_twice = |name: &String| own.iter().filter(|other| *other == name).count() > 1;
    if own.iter().any(is_twice) {
        return;
    }
    let prefix = match &select.projection[at] {
        SelectItem::Wildcard(_) => Vec::new(),
        SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            name.0.iter().filter_map(|part| part.as_ident().cloned()).collect()
        }
        _ => return,
    };
    let item = |name: &String| {
        let needs_quotes = super::quoted(name) != *name;
        let own = if needs_quotes { ast::Ident::with_quote('"', name.clone()) } else { ast::Ident::new(name.clone()) };
        SelectItem::UnnamedExpr(match prefix.is_empty() {
            true => ast::Expr::Identifier(own),
            false => ast::Expr::CompoundIdentifier(prefix.iter().cloned().chain([own]).collect()),
        })
    };
    let items: Vec<_> = own.iter().map(item).collect();
    select.projection.splice(at..=at, items);
}

impl Recorded<'_> {
    /// The primary keys of their tables stand for these columns in GROUP BY.
    pub(super) fn note_grouped(&self, columns: &[Expr], scope: &Scope) {
        let tables = columns.iter().filter_map(|column| match column {
            Expr::Column(at) => scope.columns[*at].origin.as_ref().map(|(table, _)| table.id),
            _ => None,
        });
        self.grouped_by_key.borrow_mut().extend(tables);
    }
}

impl Binder<'_> {
    /// Whether a view looks at a column of a table. Where its query is no longer bound, it looks at all.
    fn looks_at(&self, view: &View, table: &Table, column: usize) -> bool {
        let mut binder = Binder::new(&self.catalog, &[], &self.drawn);
        if binder.view(view).is_err() {
            return true;
        }
        let needs = binder.catalog.needs.take();
        needs.iter().any(|need| need.reads_of(table, column))
    }

    /// The views that look at a column, and know of it.
    fn views_of_column(&self, name: &str, change: &Alteration) -> Result<Vec<Name>, SqlError> {
        let table = &change.table;
        let Some(column) = table.column(name) else { return Ok(Vec::new()) };
        let mut views = Vec::new();
        for of in &change.draft.description.views {
            if let Some(Object::View(view)) = self.catalog.object(of)?
                && self.looks_at(&view, table, column)
            {
                views.push(of.clone());
            }
        }
        Ok(views)
    }

    /// The views that look at a column that is dropped go with it, or it stays.
    pub(super) fn drop_views_of_column(
        &mut self,
        (name, what): (&str, &str),
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let views = self.views_of_column(name, change)?;
        self.drop_these_views((what, &views), cascade, change)
    }

    /// Refuses another type for a column at which a view looks.
    pub(super) fn check_views_of_column(&self, name: &str, change: &Alteration) -> Result<(), SqlError> {
        let Some(view) = self.views_of_column(name, change)?.into_iter().next() else { return Ok(()) };
        let message = "cannot alter type of a column used by a view or rule";
        let detail = format!("rule _RETURN on view {} depends on column \"{name}\"", self.catalog.shown(&view)?);
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
    }

    /// The views that are grouped by the primary key, and show other columns, go with it, or it stays.
    pub(super) fn drop_views_by_key(
        &mut self,
        what: &str,
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let mut views = Vec::new();
        for of in &change.draft.description.views {
            let Some(Object::View(view)) = self.catalog.object(of)? else { continue };
            let mut binder = Binder::new(&self.catalog, &[], &self.drawn);
            let is_bound = binder.view(&view).is_ok();
            if !is_bound || binder.catalog.grouped_by_key.take().contains(&change.table.id) {
                views.push(of.clone());
            }
        }
        self.drop_these_views((what, &views), cascade, change)
    }

    fn drop_these_views(
        &mut self,
        (what, views): (&str, &[Name]),
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let mut details = Vec::new();
        // What becomes of the table itself is said by its draft.
        let own = [change.table.name.clone()];
        self.drop_views((what, views), &own, (cascade, &mut details), &mut change.definition)?;
        cascaded(what, &details, cascade, &mut change.definition)?;
        let gone = |name: &Name| change.definition.objects.iter().any(|(own, object)| own == name && object.is_none());
        change.draft.description.views.retain(|view| !gone(view));
        Ok(())
    }
}
