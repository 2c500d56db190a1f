//! DROP CONSTRAINT, and the foreign keys and views that depend on a key.

use super::Binder;
use super::alter::Alteration;
use super::definitions::Draft;
use super::drops::cascaded;
use super::indexes::DraftIndex;
use crate::catalog::ForeignKey;
use crate::error::{SqlError, SqlState};
use crate::names::Name;
use crate::outcome::Notice;
use crate::statement::NewObject;

/// Whether a foreign key leads to these columns, in any order.
fn leads_to(key: &ForeignKey, columns: &[String]) -> bool {
    key.parents.len() == columns.len() && columns.iter().all(|it| key.parents.contains(it))
}

impl Draft {
    /// The columns of a unique index on which foreign keys may depend: no other key has them.
    pub(super) fn needed_key(&self, index: &str) -> Option<Vec<String>> {
        let unique = |it: &&DraftIndex| it.is_unique && it.columns().is_some();
        let columns = self.indexes.iter().filter(unique).find(|it| it.name == index)?.columns()?;
        let others = self.indexes.iter().filter(unique).filter(|it| it.name != index).filter_map(DraftIndex::columns);
        let is_same = |it: &Vec<String>| it.len() == columns.len() && it.iter().all(|name| columns.contains(name));
        let has_other = others.chain(self.key.clone()).any(|it| is_same(&it));
        (!has_other).then_some(columns)
    }
}

impl Binder<'_> {
    /// Drops the foreign keys that depend on an index which is dropped, or refuses to.
    pub(super) fn free_of_index(&mut self, name: &str, cascade: bool, change: &mut Alteration) -> Result<(), SqlError> {
        let Some(columns) = change.draft.needed_key(name) else { return Ok(()) };
        let what = format!("index {}", self.catalog.shown(&change.draft.name.beside(name))?);
        self.free_of_children((&what, &what), &|_, key| leads_to(key, &columns), cascade, change)
    }

    /// A foreign key has gone: its parent is told if it was the last one to it.
    pub(super) fn has_left(&self, parent: &Name, change: &mut Alteration) -> Result<(), SqlError> {
        let Alteration { draft, definition, .. } = change;
        if draft.description.foreign.iter().any(|key| key.parent == *parent) {
            return Ok(());
        }
        if *parent == draft.name {
            let name = draft.name.clone();
            draft.description.children.retain(|child| *child != name);
            return Ok(());
        }
        self.forget_child(&draft.name, parent, definition)
    }

    /// Drops the foreign keys to this table of which this holds, or refuses to. They depend on `on`, where `what` is dropped.
    pub(super) fn free_of_children(
        &mut self,
        (what, on): (&str, &str),
        is_meant: &dyn Fn(&Name, &ForeignKey) -> bool,
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let mut details = Vec::new();
        let own = change.draft.name.clone();
        for name in change.draft.description.children.clone() {
            let child = if name == own { Some(change.table.clone()) } else { self.catalog.find(&name)? };
            let Some(child) = child else { continue };
            let shown = self.catalog.shown(&name)?;
            let mut description = match name == own {
                true => change.draft.description.clone(),
                false => change.definition.described(&child),
            };
            let gone = description.foreign.extract_if(.., |key| key.parent == own && is_meant(&name, key));
            let gone: Vec<_> = gone.map(|key| format!("constraint {} on table {shown}", key.name)).collect();
            if gone.is_empty() {
                continue;
            }
            details.extend(gone.into_iter().map(|it| match cascade {
                true => format!("drop cascades to {it}"),
                false => format!("{it} depends on {on}"),
            }));
            if name == own {
                change.draft.description.foreign = description.foreign;
                self.has_left(&own, change)?;
                continue;
            }
            if description.foreign.iter().all(|key| key.parent != own) {
                change.draft.description.children.retain(|it| *it != name);
            }
            change.definition.closes.push(child.id);
            change.definition.set_object(&name, Some(NewObject::Table(child, description)));
        }
        cascaded(what, &details, cascade, &mut change.definition)
    }

    pub(super) fn drop_constraint(
        &mut self,
        name: &str,
        may_be_missing: bool,
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let table = change.draft.name.clone();
        let of = &mut change.draft;
        if let Some(at) = of.description.checks.iter().position(|check| check.name == name) {
            of.description.checks.remove(at);
        } else if let Some(at) = of.description.foreign.iter().position(|key| key.name == name) {
            let key = of.description.foreign.remove(at);
            self.has_left(&key.parent, change)?;
        } else {
            let key = match of.description.constraints.iter().any(|own| own == name) {
                true => of.indexes.iter().find(|index| index.name == name).and_then(DraftIndex::columns),
                false => of.key.clone().filter(|_| of.description.primary == name),
            };
            let Some(key) = key else {
                let message = format!("constraint \"{name}\" of relation \"{table}\" does not exist");
                if !may_be_missing {
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
                let notice = Notice::remark(SqlState::SUCCESS, format!("{message}, skipping"));
                change.definition.notices.push(notice);
                return Ok(());
            };
            let what = format!("constraint {name} on table {}", self.catalog.shown(&table)?);
            let on = format!("index {name}");
            self.free_of_children((&what, &on), &|_, it| leads_to(it, &key), cascade, change)?;
            if change.draft.description.primary == name {
                self.drop_views_by_key(&what, cascade, change)?;
            }
            let of = &mut change.draft;
            if of.key.is_some() && of.description.primary == name {
                of.key = None;
            }
            of.description.constraints.retain(|own| own != name);
            of.indexes.retain(|index| index.name != name);
            change.is_rewritten = true;
        }
        Ok(())
    }
}
