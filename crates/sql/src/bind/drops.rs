//! DROP, and what depends on what.

use std::sync::Arc;

use sqlparser::ast::{self, ObjectType};

use super::alter::Alteration;
use super::alter_sequences::asks;
use super::{Binder, Written};
use crate::catalog::{Object, Table};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, PUBLIC, no_schema};
use crate::outcome::Notice;
use crate::sequences::Sequence;
use crate::statement::{Definition, NewObject};

/// What is dropped where there are several things.
pub(super) const SEVERAL: &str = "desired object(s)";

/// That others depend on what is to be dropped.
pub(super) fn depended_on(what: &str, details: &[String]) -> SqlError {
    let them = if what == SEVERAL { "them" } else { "it" };
    SqlError::new(SqlState::DEPENDENT_OBJECTS, format!("cannot drop {what} because other objects depend on {them}"))
        .with_detail(details.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// What becomes of those that depend on what is dropped.
pub(super) fn cascaded(
    what: &str,
    details: &[String],
    cascade: bool,
    definition: &mut Definition,
) -> Result<(), SqlError> {
    let message = match details {
        [] => return Ok(()),
        _ if !cascade => return Err(depended_on(what, details)),
        [one] => one.clone(),
        more => format!("drop cascades to {} other objects", more.len()),
    };
    definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
    Ok(())
}

/// The statement that drops objects of a kind, and what one of them is called.
fn words_of(kind: ObjectType) -> Result<(&'static str, &'static str), SqlError> {
    Ok(match kind {
        ObjectType::Table => ("DROP TABLE", "table"),
        ObjectType::Index => ("DROP INDEX", "index"),
        ObjectType::Sequence => ("DROP SEQUENCE", "sequence"),
        ObjectType::View => ("DROP VIEW", "view"),
        other => return Err(SqlError::unsupported(format!("the statement DROP {other}"))),
    })
}

impl Binder<'_> {
    pub(crate) fn drop_objects(
        &mut self,
        kind: ObjectType,
        names: &[ast::ObjectName],
        cascade: bool,
        may_be_missing: bool,
    ) -> Result<Definition, SqlError> {
        let (tag, word) = words_of(kind)?;
        let mut definition = Definition::new(tag);
        let mut found = Vec::new();
        for name in names {
            let written = Written::of(name)?;
            if let Some(schema) = &written.schema
                && self.catalog.schema(schema)?.is_none()
            {
                let missing = no_schema(schema);
                if !may_be_missing {
                    return Err(missing);
                }
                let message = format!("{}, skipping", missing.message());
                definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
                continue;
            }
            let object = match kind {
                ObjectType::Index => {
                    self.catalog.written_index(&written)?.map(|(name, table)| (name, Object::Table(table)))
                }
                _ => self.catalog.find_written(&written)?,
            };
            found.push((written, object));
        }
        let names: Vec<Name> = found.iter().filter_map(|(_, found)| Some(found.as_ref()?.0.clone())).collect();
        for (written, object) in found {
            let Some((name, object)) = object else {
                let missing = format!("{word} \"{written}\" does not exist");
                if !may_be_missing {
                    let state =
                        if kind == ObjectType::Index { SqlState::UNDEFINED_OBJECT } else { SqlState::UNDEFINED_TABLE };
                    return Err(SqlError::new(state, missing));
                }
                definition.notices.push(Notice::remark(SqlState::SUCCESS, format!("{missing}, skipping")));
                continue;
            };
            if kind == ObjectType::Index {
                self.catalog.check_owner_of_index(&object, &name)?;
            } else {
                self.catalog.check_dropper(&object, &name)?;
            }
            match (kind, &object) {
                (ObjectType::Table, Object::Table(_)) | (ObjectType::View, Object::View(_)) => {
                    let (what, mut details) = (format!("{word} {}", self.catalog.shown(&name)?), Vec::new());
                    self.drop_relation(&object, &names, (cascade, &mut details), &mut definition)?;
                    cascaded(&what, &details, cascade, &mut definition)?;
                }
                (ObjectType::Index, Object::Table(table)) => {
                    self.drop_index(table, name.plain(), cascade, &mut definition)?;
                }
                (ObjectType::Sequence, Object::Sequence(sequence)) => {
                    let (what, mut details) = (format!("{word} {}", self.catalog.shown(&name)?), Vec::new());
                    self.drop_sequence(sequence, &names, (cascade, &mut details), &mut definition)?;
                    cascaded(&what, &details, cascade, &mut definition)?;
                }
                _ => {
                    let message = format!("\"{name}\" is not a{} {word}", if word == "index" { "n" } else { "" });
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
            }
        }
        Ok(definition)
    }

    /// Drops a table or a view, and tells what else has to go that is not among `names`.
    pub(super) fn drop_relation(
        &mut self,
        object: &Object,
        names: &[Name],
        (cascade, details): (bool, &mut Vec<String>),
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        match object {
            Object::Table(table) => self.drop_table(table, names, (cascade, details), definition),
            Object::View(view) => {
                let what = format!("view {}", self.catalog.shown(&view.name)?);
                self.drop_views((&what, &view.views), names, (cascade, details), definition)?;
                definition.set_object(&view.name, None);
                self.forget_view(view, names, definition)
            }
            _ => Ok(()),
        }
    }

    fn drop_table(
        &mut self,
        table: &Arc<Table>,
        names: &[Name],
        (cascade, details): (bool, &mut Vec<String>),
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let name = &table.name;
        let what = format!("table {}", self.catalog.shown(name)?);
        definition.closes.push(table.id);
        for child in table.children.iter().filter(|child| !names.contains(child) && *child != name) {
            let Some(child) = self.catalog.find(child)? else { continue };
            let mut description = definition.described(&child);
            for key in description.foreign.iter().filter(|key| key.parent == *name) {
                let own = format!("constraint {} on table {}", key.name, self.catalog.shown(&child.name)?);
                details.push(match cascade {
                    true => format!("drop cascades to {own}"),
                    false => format!("{own} depends on {what}"),
                });
            }
            description.foreign.retain(|key| key.parent != *name);
            definition.closes.push(child.id);
            definition.set_object(&child.name.clone(), Some(NewObject::Table(child, description)));
        }
        self.drop_views((&what, &table.views), names, (cascade, details), definition)?;
        for parent in table.foreign.iter().map(|key| &key.parent).filter(|parent| !names.contains(parent)) {
            self.forget_child(name, parent, definition)?;
        }
        for (sequence, _) in self.owned_sequences(table)? {
            self.drop_sequence(
                &sequence,
                &[names, std::slice::from_ref(name)].concat(),
                (cascade, details),
                definition,
            )?;
        }
        definition.set_object(name, None);
        Ok(())
    }

    /// The parent has this child no more.
    pub(super) fn forget_child(
        &self,
        child: &Name,
        parent: &Name,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let Some(parent) = self.catalog.find(parent)? else { return Ok(()) };
        let mut description = definition.described(&parent);
        description.children.retain(|own| own != child);
        definition.closes.push(parent.id);
        definition.set_object(&parent.name.clone(), Some(NewObject::Table(parent, description)));
        Ok(())
    }

    /// A sequence goes, and with it the defaults that ask it, but for those of tables that go, too.
    pub(super) fn drop_sequence(
        &self,
        sequence: &Sequence,
        names: &[Name],
        (cascade, details): (bool, &mut Vec<String>),
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let (name, what) = (&sequence.name, format!("sequence {}", self.catalog.shown(&sequence.name)?));
        for table in self.tables_asking(name)?.into_iter().filter(|table| !names.contains(&table.name)) {
            let shown = self.catalog.shown(&table.name)?;
            let mut description = definition.described(&table);
            for column in description.columns.iter_mut().filter(|column| asks(column, name)) {
                if column.identity.is_some() {
                    let column = format!("column {} of table {shown}", column.name);
                    let message = format!("cannot drop {what} because {column} requires it");
                    let error = SqlError::new(SqlState::DEPENDENT_OBJECTS, message);
                    return Err(error.with_hint(format!("You can drop {column} instead.")));
                }
                let value = format!("default value for column {} of table {shown}", column.name);
                details.push(match cascade {
                    true => format!("drop cascades to {value}"),
                    false => format!("{value} depends on {what}"),
                });
                column.default = None;
            }
            description.owned.retain(|own| own != name);
            definition.closes.push(table.id);
            definition.set_object(&table.name.clone(), Some(NewObject::Table(table, description)));
        }
        definition.set_object(name, None);
        Ok(())
    }

    fn drop_index(
        &mut self,
        table: &Arc<Table>,
        name: &str,
        cascade: bool,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        if table.primary().name == name || table.constraints.iter().any(|own| own == name) {
            let constraint = format!("constraint {name} on table {}", table.name);
            let message = format!("cannot drop index {name} because {constraint} requires it");
            let hint = format!("You can drop {constraint} instead.");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_hint(hint));
        }
        let mut change = Alteration::of(table, "DROP INDEX");
        change.definition = std::mem::take(definition);
        change.definition.closes.push(table.id);
        self.free_of_index(name, cascade, &mut change)?;
        change.draft.indexes.retain(|index| index.name != name);
        change.is_rewritten = true;
        *definition = self.altered(change)?;
        Ok(())
    }
}

/// The name of the sequence of which a default is the next number.
pub(super) fn sequence_of(default: &str) -> Option<Name> {
    let text = default.strip_prefix("nextval('")?.split('\'').next()?;
    let Written { schema, name } = Written::of_text(text).ok()?;
    Some(Name::new(schema.as_deref().unwrap_or(PUBLIC), &name))
}
