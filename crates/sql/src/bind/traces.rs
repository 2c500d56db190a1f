//! Where the query of a view names tables and columns, and the same query where they have other names.

use std::sync::Arc;

use sqlparser::ast;
use sqlparser::tokenizer::{Location, Span};

use super::alter::quoted;
use super::needs::Origin;
use super::scope::Qualifier;
use super::{Binder, Recorded, folded};
use crate::catalog::{Changes, Object, View, taken};
use crate::error::{SqlError, SqlState};
use crate::expr::Typed;
use crate::names::Name;
use crate::statement::{Definition, NewObject};

/// What a query names, while it is bound for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The name that is bound next.
    next: Option<Span>,
    columns: Vec<(Span, Origin)>,
    /// Names that stand alone in a list, whose columns are called so.
    items: Vec<Span>,
    /// Tables and views in FROM, and whether an alias follows.
    tables: Vec<(Span, Name, bool)>,
    /// Columns that are read and not named: `*`, USING.
    unnamed: Vec<Origin>,
}

/// New names of an object and its columns.
#[derive(Clone, Copy)]
pub(super) struct NewNames<'n> {
    pub(super) old: &'n Name,
    pub(super) new: &'n Name,
    /// Positions, old names and new ones.
    pub(super) columns: &'n [(usize, String, String)],
}

/// A part of a text, by its bytes, and what comes in its place.
type Edit = (usize, usize, String);

impl Recorded<'_> {
    /// A column is read.
    pub(super) fn trace_read(&self, origin: Option<Origin>) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            match (trace.next.take(), origin) {
                (Some(span), Some(origin)) => trace.columns.push((span, origin)),
                (None, Some(origin)) => trace.unnamed.push(origin),
                (_, None) => {}
            }
        }
    }

    /// An item of a list is bound.
    pub(super) fn trace_item(&self, expr: &ast::Expr) {
        let name = match expr {
            ast::Expr::Identifier(name) => Some(name),
            ast::Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let (Some(trace), Some(name)) = (&mut *self.trace.borrow_mut(), name) {
            trace.items.push(name.span);
        }
    }

    /// A table, or a view, in FROM is found.
    pub(super) fn trace_table(&self, written: &ast::ObjectName, found: &Name, is_aliased: bool) {
        let parts = || written.0.iter().filter_map(|part| part.as_ident()).map(|part| part.span);
        if let (Some(trace), Some(first), Some(last)) =
            (&mut *self.trace.borrow_mut(), parts().next(), parts().next_back())
        {
            trace.tables.push((Span::new(first.start, last.end), found.clone(), is_aliased));
        }
    }
}

impl Binder<'_> {
    /// A column by its name, as it is written.
    pub(super) fn named_column(&mut self, table: Option<Qualifier<'_>>, name: &ast::Ident) -> Result<Typed, SqlError> {
        if let Some(trace) = &mut *self.catalog.trace.borrow_mut() {
            trace.next = Some(name.span);
        }
        let bound = self.column(table, &folded(name));
        if let Some(trace) = &mut *self.catalog.trace.borrow_mut() {
            trace.next = None;
        }
        bound
    }

    /// Gives the queries of views the new names of what they look at. `becomes` is the object under these names.
    pub(super) fn rename_in_views(
        &self,
        names: NewNames<'_>,
        views: &[Name],
        becomes: &Object,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let mut changes = Changes::new();
        changes.insert(names.old.clone(), None);
        changes.insert(names.new.clone(), Some(becomes.clone()));
        let catalog = self.catalog.changed(&changes);
        for of in views {
            let Some(Object::View(view)) = self.catalog.object(of)? else { continue };
            let refused = || SqlError::unsupported(format!("another name of what the view {of} looks at"));
            let mut renamed = View::clone(&view);
            renamed.query = self.renamed_query(&view, names)?.ok_or_else(refused)?;
            renamed.about.iter_mut().filter(|own| *own == names.old).for_each(|own| own.clone_from(names.new));
            let bound = Binder::new(&catalog, &[], &self.drawn).view(&renamed).map_err(|_| refused())?;
            if !bound.columns.iter().map(|column| column.of).eq(view.types.iter().copied()) {
                return Err(refused());
            }
            definition.set_object(of, Some(NewObject::View(renamed)));
        }
        Ok(())
    }

    /// The query of a view with other names. `None`: something is read there that is not named.
    fn renamed_query(&self, view: &View, names: NewNames<'_>) -> Result<Option<String>, SqlError> {
        let mut binder = Binder::new(&self.catalog, &[], &self.drawn);
        binder.catalog.trace.replace(Some(Trace::default()));
        binder.view(view)?;
        let (trace, needs) = (binder.catalog.trace.take().unwrap_or_default(), binder.catalog.needs.take());
        let renamed = |(need, column): Origin| {
            let of = names.columns.iter().find(|(at, ..)| *at == column)?;
            needs.get(need).is_some_and(|need| need.is_about(names.old)).then_some(of)
        };
        if trace.unnamed.iter().any(|origin| renamed(*origin).is_some()) {
            return Ok(None);
        }
        let mut edits: Vec<Edit> = Vec::new();
        let mut edit = |span: Span, text: String| {
            let bytes = byte_of(&view.query, span.start).zip(byte_of(&view.query, span.end));
            bytes.map(|(start, end)| edits.push((start, end, text)))
        };
        for (span, origin) in &trace.columns {
            let Some((_, old, new)) = renamed(*origin) else { continue };
            // What is around goes on calling it by the old name.
            let alias = if trace.items.contains(span) { format!(" AS {}", quoted(old)) } else { String::new() };
            if edit(*span, format!("{}{alias}", quoted(new))).is_none() {
                return Ok(None);
            }
        }
        for (span, _, is_aliased) in trace.tables.iter().filter(|(_, name, _)| name == names.old) {
            let alias = if *is_aliased { String::new() } else { format!(" AS {}", quoted(names.old.plain())) };
            if names.new != names.old && edit(*span, format!("{}{alias}", names.new.written())).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(edited(&view.query, edits)))
    }

    /// The query of a view, where tables that their names alone do not stand for have their schemas in front.
    pub(super) fn shown_query(&self, view: &View, is_visible: &dyn Fn(&Name) -> bool) -> String {
        if view.about.iter().all(is_visible) {
            return view.query.clone();
        }
        let mut binder = Binder::new(&self.catalog, &[], &self.drawn);
        binder.catalog.trace.replace(Some(Trace::default()));
        if binder.view(view).is_err() {
            return view.query.clone();
        }
        let trace = binder.catalog.trace.take().unwrap_or_default();
        let hidden = trace.tables.iter().filter(|(_, name, _)| !is_visible(name));
        let edits = hidden.filter_map(|(span, name, _)| {
            let (start, end) = byte_of(&view.query, span.start).zip(byte_of(&view.query, span.end))?;
            Some((start, end, super::system::in_schema(name)))
        });
        edited(&view.query, edits.collect())
    }

    /// ALTER VIEW, where it gives the view or a column another name.
    pub(super) fn rename_view(
        &self,
        view: &Arc<View>,
        operation: &ast::AlterTableOperation,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        use ast::{AlterTableOperation as Operation, RenameTableNameKind as Kind};
        self.catalog.check_owner(&Object::View(view.clone()))?;
        self.close_under(view, definition)?;
        let mut renamed = View::clone(view);
        let mut columns = Vec::new();
        match operation {
            Operation::RenameTable { table_name: Kind::As(name) | Kind::To(name) }
                if crate::gaps::moved_to(name).is_none() =>
            {
                renamed.name = view.name.beside(&super::plain_name(name)?);
                if self.catalog.is_taken(&renamed.name)? {
                    return Err(taken(&renamed.name));
                }
            }
            Operation::RenameColumn { old_column_name, new_column_name } => {
                let (old, new) = (folded(old_column_name), folded(new_column_name));
                let missing = || SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{old}\" does not exist"));
                let at = view.columns.iter().position(|own| *own == old).ok_or_else(missing)?;
                if view.columns.contains(&new) {
                    let message = format!("column \"{new}\" of relation \"{}\" already exists", view.name);
                    return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
                }
                renamed.columns[at].clone_from(&new);
                let grants = renamed.column_grants.remove(&old);
                grants.map(|grants| renamed.column_grants.insert(new.clone(), grants));
                let comment = renamed.column_comments.remove(&old);
                comment.map(|comment| renamed.column_comments.insert(new.clone(), comment));
                columns.push((at, old, new));
            }
            other => return Err(SqlError::unsupported(format!("ALTER VIEW {other}"))),
        }
        let becomes = Object::View(renamed.clone().into());
        let names = NewNames { old: &view.name, new: &renamed.name, columns: &columns };
        if renamed.name != view.name {
            definition.set_object(&view.name, None);
            for other in &view.about {
                self.note_views(other, definition, &|views| {
                    views.iter_mut().filter(|own| **own == view.name).for_each(|own| own.clone_from(names.new));
                })?;
            }
        }
        self.rename_in_views(names, &view.views, &becomes, definition)?;
        definition.set_object(&renamed.name.clone(), Some(NewObject::View(renamed)));
        Ok(())
    }
}

/// The byte of a text at which a place lies.
fn byte_of(text: &str, place: Location) -> Option<usize> {
    let mut start = 0;
    let mut lines = text.split_inclusive('\n');
    for _ in 1..place.line {
        start += lines.next()?.len();
    }
    let line = lines.next().unwrap_or_default();
    let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
    let within = line.char_indices().nth(column).map(|(at, _)| at);
    within.or_else(|| (line.chars().count() == column).then_some(line.len())).map(|at| start + at)
}

/// A text with other parts. A part that is named twice is one.
fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort();
    edits.dedup_by_key(|(start, ..)| *start);
    let (mut made, mut from) = (String::new(), 0);
    for (start, end, part) in edits {
        made.push_str(&text[from..start]);
        made.push_str(&part);
        from = end;
    }
    made.push_str(&text[from..]);
    made
}
