//! DROP, and what depends on what.

use std::sync::Arc;

use sqlparser::ast::{self, ObjectType};

use super::{Binder, object_name};
use crate::catalog::{Object, Table};
use crate::error::{SqlError, SqlState};
use crate::outcome::Notice;
use crate::statement::{Definition, NewObject};

/// That others depend on what is to be dropped.
pub(super) fn depended_on(what: &str, details: &[String]) -> SqlError {
    SqlError::new(SqlState::DEPENDENT_OBJECTS, format!("cannot drop {what} because other objects depend on it"))
        .with_detail(details.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// What becomes of those that depend on what is dropped.
fn cascaded(what: &str, details: &[String], cascade: bool, definition: &mut Definition) -> Result<(), SqlError> {
    let message = match details {
        [] => return Ok(()),
        _ if !cascade => return Err(depended_on(what, details)),
        [one] => one.clone(),
        more => format!("drop cascades to {} other objects", more.len()),
    };
    definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
    Ok(())
}

impl Binder<'_> {
    pub(crate) fn drop_objects(
        &mut self,
        kind: ObjectType,
        names: &[ast::ObjectName],
        cascade: bool,
        may_be_missing: bool,
    ) -> Result<Definition, SqlError> {
        let (tag, word) = match kind {
            ObjectType::Table => ("DROP TABLE", "table"),
            ObjectType::Index => ("DROP INDEX", "index"),
            ObjectType::Sequence => ("DROP SEQUENCE", "sequence"),
            ObjectType::View => ("DROP VIEW", "view"),
            other => return Err(SqlError::unsupported(format!("the statement DROP {other}"))),
        };
        let mut definition = Definition::new(tag);
        let names = names.iter().map(object_name).collect::<Result<Vec<_>, _>>()?;
        for name in &names {
            let object = match kind {
                ObjectType::Index => self.catalog.index_owner(name).map(Object::Table),
                _ => self.catalog.object(name)?,
            };
            let Some(object) = object else {
                let missing = format!("{word} \"{name}\" does not exist");
                if !may_be_missing {
                    let state =
                        if kind == ObjectType::Index { SqlState::UNDEFINED_OBJECT } else { SqlState::UNDEFINED_TABLE };
                    return Err(SqlError::new(state, missing));
                }
                definition.notices.push(Notice::remark(SqlState::SUCCESS, format!("{missing}, skipping")));
                continue;
            };
            match (kind, object) {
                (ObjectType::Table, Object::Table(table)) => {
                    self.drop_table(&table, &names, cascade, &mut definition)?
                }
                (ObjectType::View, Object::View(view)) => {
                    let (what, mut details) = (format!("view {name}"), Vec::new());
                    self.drop_views((&what, &view.views), &names, (cascade, &mut details), &mut definition)?;
                    cascaded(&what, &details, cascade, &mut definition)?;
                    definition.set_object(name, None);
                    self.forget_view(&view, &names, &mut definition)?;
                }
                (ObjectType::Index, Object::Table(table)) => self.drop_index(&table, name, &mut definition)?,
                (ObjectType::Sequence, Object::Sequence(sequence)) => {
                    if let Some((table, column)) = &sequence.definition.owner {
                        self.drop_default((table, column), name, cascade, &mut definition)?;
                    }
                    definition.set_object(name, None);
                }
                _ => {
                    let message = format!("\"{name}\" is not a{} {word}", if word == "index" { "n" } else { "" });
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
            }
        }
        Ok(definition)
    }

    fn drop_table(
        &mut self,
        table: &Arc<Table>,
        names: &[String],
        cascade: bool,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let name = &table.name;
        definition.closes.push(table.id);
        let mut details = Vec::new();
        for child in table.children.iter().filter(|child| !names.contains(child) && *child != name) {
            let Some(child) = self.catalog.find(child)? else { continue };
            let mut description = definition.described(&child);
            for key in description.foreign.iter().filter(|key| key.parent == *name) {
                let own = format!("constraint {} on table {}", key.name, child.name);
                let kind = if cascade { "drop cascades to" } else { "" };
                details.push(if cascade { format!("{kind} {own}") } else { format!("{own} depends on table {name}") });
            }
            description.foreign.retain(|key| key.parent != *name);
            definition.closes.push(child.id);
            definition.set_object(&child.name.clone(), Some(NewObject::Table(child, description)));
        }
        let what = format!("table {name}");
        self.drop_views((&what, &table.views), names, (cascade, &mut details), definition)?;
        cascaded(&what, &details, cascade, definition)?;
        for parent in table.foreign.iter().map(|key| &key.parent).filter(|parent| !names.contains(parent)) {
            self.forget_child(name, parent, definition)?;
        }
        for column in table.columns.iter().filter_map(|column| column.default.as_deref()) {
            self.drop_owned(name, column, definition)?;
        }
        definition.set_object(name, None);
        Ok(())
    }

    /// The parent has this child no more.
    pub(super) fn forget_child(&self, child: &str, parent: &str, definition: &mut Definition) -> Result<(), SqlError> {
        let Some(parent) = self.catalog.find(parent)? else { return Ok(()) };
        let mut description = definition.described(&parent);
        description.children.retain(|own| own != child);
        definition.closes.push(parent.id);
        definition.set_object(&parent.name.clone(), Some(NewObject::Table(parent, description)));
        Ok(())
    }

    /// Drops the sequence of a default if it is the table's own.
    pub(super) fn drop_owned(&self, table: &str, default: &str, definition: &mut Definition) -> Result<(), SqlError> {
        let Some(name) = sequence_of(default) else { return Ok(()) };
        if let Some(Object::Sequence(sequence)) = self.catalog.object(&name)?
            && sequence.definition.owner.as_ref().is_some_and(|(owner, _)| owner == table)
        {
            definition.set_object(&name, None);
        }
        Ok(())
    }

    /// A sequence goes, and with it the default of a column.
    fn drop_default(
        &self,
        (table, column): (&str, &str),
        sequence: &str,
        cascade: bool,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let Some(table) = self.catalog.find(table)? else { return Ok(()) };
        let mut description = definition.described(&table);
        let is_of = |it: &&mut crate::catalog::Column| {
            it.name == *column && it.default.as_deref().and_then(sequence_of).as_deref() == Some(sequence)
        };
        let Some(own) = description.columns.iter_mut().find(is_of) else { return Ok(()) };
        let value = format!("default value for column {column} of table {}", table.name);
        if !cascade {
            let details = [format!("{value} depends on sequence {sequence}")];
            return Err(depended_on(&format!("sequence {sequence}"), &details));
        }
        own.default = None;
        definition.notices.push(Notice::remark(SqlState::SUCCESS, format!("drop cascades to {value}")));
        definition.closes.push(table.id);
        definition.set_object(&table.name.clone(), Some(NewObject::Table(table, description)));
        Ok(())
    }

    fn drop_index(&mut self, table: &Arc<Table>, name: &str, definition: &mut Definition) -> Result<(), SqlError> {
        if table.primary().name == name || table.constraints.iter().any(|own| own == name) {
            let constraint = format!("constraint {name} on table {}", table.name);
            let message = format!("cannot drop index {name} because {constraint} requires it");
            let hint = format!("You can drop {constraint} instead.");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_hint(hint));
        }
        let mut draft = super::definitions::Draft::of(table);
        draft.indexes.retain(|index| index.name != name);
        definition.closes.push(table.id);
        let columns = table.visible().map(|(at, _)| crate::expr::Expr::Column(at)).collect();
        self.rewrite(table, draft, columns, definition)
    }
}

/// The name of the sequence of which a default is the next number.
pub(super) fn sequence_of(default: &str) -> Option<String> {
    default.strip_prefix("nextval('")?.split('\'').next().map(super::system::plain_name)
}
