//! ALTER SEQUENCE, and what columns have to do with sequences: those that own one, and those whose default asks one for numbers.

use std::sync::Arc;

use sqlparser::ast::{self, SequenceOptions};

use super::drops::sequence_of;
use super::sequences::{check_definition, check_restart, next_number, number};
use super::{Binder, Written, column_type, folded};
use crate::catalog::{Column, Object, Table, taken};
use crate::error::{SqlError, SqlState};
use crate::gaps::{AlterSequence, SequenceChange, SequenceOption};
use crate::names::{Name, no_schema};
use crate::outcome::Notice;
use crate::roles::bits;
use crate::sequences::{Sequence, SequenceDefinition, greatest_of};
use crate::statement::{Action, Definition, NewObject};
use crate::types::Type;

const TAG: &str = "ALTER SEQUENCE";

/// Whether the default of a column is the next number of a sequence.
pub(super) fn asks(column: &Column, sequence: &Name) -> bool {
    column.default.as_deref().and_then(sequence_of).as_ref() == Some(sequence)
}

impl Binder<'_> {
    pub(crate) fn alter_sequence(&mut self, alter: &AlterSequence) -> Result<Action, SqlError> {
        let written = Written::of(&alter.name)?;
        if !alter.if_exists {
            self.catalog.check_schema(&written)?;
        }
        let (name, sequence) = match self.catalog.find_written(&written)? {
            Some((name, Object::Sequence(sequence))) => (name, sequence),
            Some(_) => {
                let message = format!("\"{}\" is not a sequence", written.name);
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            None if alter.if_exists => {
                let message = format!("relation \"{}\" does not exist, skipping", written.name);
                return Ok(Action::Skip { tag: TAG, notice: Notice::remark(SqlState::SUCCESS, message) });
            }
            None => return Err(written.missing()),
        };
        self.catalog.check_owner(&Object::Sequence(sequence.clone()))?;
        let mut definition = Definition::new(TAG);
        match &alter.change {
            SequenceChange::Options(options) => self.set_options((&name, &sequence), options, &mut definition)?,
            SequenceChange::Rename(new) => {
                let new = name.beside(&folded(new));
                if self.catalog.is_taken(&new)? {
                    return Err(taken(&new));
                }
                self.move_sequence((&name, &sequence), &new, &mut definition)?;
            }
            SequenceChange::Schema(schema) => {
                let schema = folded(schema);
                let schema = self.catalog.schema(&schema)?.ok_or_else(|| no_schema(&schema))?;
                self.catalog.check_may(&schema, bits::CREATE)?;
                let new = Name::new(&schema, name.plain());
                if new.is_temporary() || name.is_temporary() {
                    let message = "cannot move objects into or out of temporary schemas";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                if sequence.definition.owner.is_some() {
                    let message = "cannot move an owned sequence into another schema";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                if new != name && self.catalog.is_taken(&new)? {
                    let message = format!("relation \"{new}\" already exists in schema \"{schema}\"");
                    return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
                }
                if new != name {
                    self.move_sequence((&name, &sequence), &new, &mut definition)?;
                }
            }
        }
        Ok(Action::Define(definition.into()))
    }

    /// Gives a sequence another name, which is free, and the defaults that ask it.
    fn move_sequence(
        &self,
        (name, sequence): (&Name, &Arc<Sequence>),
        new: &Name,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        for table in self.tables_asking(name)? {
            let mut description = definition.described(&table);
            let asking = description.columns.iter_mut().filter(|column| asks(column, name));
            asking.for_each(|column| column.default = Some(next_number(new)));
            description.owned.iter_mut().filter(|own| *own == name).for_each(|own| own.clone_from(new));
            definition.closes.push(table.id);
            definition.set_object(&table.name.clone(), Some(NewObject::Table(table, description)));
        }
        definition.set_object(name, None);
        let same = NewObject::Sequence(sequence.definition.clone(), Some(sequence.clone()));
        definition.set_object(new, Some(same));
        Ok(())
    }

    /// The tables of which a column owns the sequence, or has its next number as its default.
    pub(super) fn tables_asking(&self, sequence: &Name) -> Result<Vec<Arc<Table>>, SqlError> {
        let all = self.catalog.objects()?.into_iter().filter_map(|object| object.table().cloned());
        let is_meant = |table: &Arc<Table>| {
            table.owned.contains(sequence) || table.columns.iter().any(|column| asks(column, sequence))
        };
        Ok(all.filter(is_meant).collect())
    }

    /// The sequences that columns of a table own, with the columns' names.
    pub(super) fn owned_sequences(&self, table: &Table) -> Result<Vec<(Arc<Sequence>, String)>, SqlError> {
        let of_defaults = table.columns.iter().filter_map(|column| column.default.as_deref().and_then(sequence_of));
        let mut names: Vec<_> = of_defaults.chain(table.owned.iter().cloned()).collect();
        names.sort_unstable();
        names.dedup();
        let mut owned = Vec::new();
        for name in names {
            if let Some(Object::Sequence(sequence)) = self.catalog.object(&name)?
                && let Some((owner, column)) = &sequence.definition.owner
                && *owner == table.name
            {
                owned.push((sequence.clone(), column.clone()));
            }
        }
        Ok(owned)
    }

    /// Has a table know that a column of it owns a sequence, or does no more.
    pub(super) fn note_owner(
        &self,
        sequence: &Name,
        (old, new): (Option<&Name>, Option<&Name>),
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        if old == new {
            return Ok(());
        }
        for (name, owns) in [(old, false), (new, true)] {
            let Some(table) = name.map_or(Ok(None), |name| self.catalog.find(name))? else { continue };
            let mut description = definition.described(&table);
            description.owned.retain(|own| own != sequence);
            description.owned.extend(owns.then(|| sequence.clone()));
            definition.closes.push(table.id);
            definition.set_object(&table.name.clone(), Some(NewObject::Table(table, description)));
        }
        Ok(())
    }

    fn set_options(
        &mut self,
        (name, sequence): (&Name, &Arc<Sequence>),
        options: &[SequenceOption],
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let old = &sequence.definition;
        let mut of = old.clone();
        let (mut least, mut greatest, mut restart) = (None, None, None);
        for option in options {
            match option {
                SequenceOption::Restart(to) => restart = Some(to.as_ref().map(number).transpose()?),
                SequenceOption::Known(option) => match option {
                    SequenceOptions::DataType(data_type) => {
                        of.of = column_type(data_type)?.base;
                        if !matches!(of.of, Type::Int2 | Type::Int4 | Type::Int8) {
                            let message = "sequence type must be smallint, integer, or bigint";
                            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
                        }
                    }
                    SequenceOptions::IncrementBy(by, _) => of.increment = number(by)?,
                    SequenceOptions::MinValue(value) => least = Some(value.as_ref().map(number).transpose()?),
                    SequenceOptions::MaxValue(value) => greatest = Some(value.as_ref().map(number).transpose()?),
                    SequenceOptions::StartWith(value, _) => of.start = number(value)?,
                    SequenceOptions::Cache(_) => {}
                    SequenceOptions::Cycle(no) => of.cycles = !no,
                    SequenceOptions::OwnedBy(owner) => {
                        if old.is_internal {
                            let message = "cannot change ownership of identity sequence";
                            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                        }
                        of.owner = owner.as_ref().map(|owner| self.owner_of(name, owner)).transpose()?.flatten();
                    }
                },
            }
        }
        set_bounds(&mut of, old, (least, greatest));
        check_definition(&of)?;
        let first = match restart {
            Some(to) => to.unwrap_or(of.start),
            None => sequence.last()?.unwrap_or(of.first),
        };
        check_restart(&of, first)?;
        let kept = match restart {
            None => Some(sequence.clone()),
            Some(_) => {
                (of.number, of.first) = (self.catalog.new_number(), first);
                None
            }
        };
        let owners = [old, &of].map(|of| of.owner.as_ref().map(|(table, _)| table.clone()));
        self.note_owner(name, (owners[0].as_ref(), owners[1].as_ref()), definition)?;
        definition.set_object(name, Some(NewObject::Sequence(of, kept)));
        Ok(())
    }
}

/// What an option says of a bound: nothing, that there is none, or which.
type Given = Option<Option<i64>>;

/// The bounds of a sequence as they are given. Those of the old type become those of the new one.
fn set_bounds(of: &mut SequenceDefinition, old: &SequenceDefinition, (least, greatest): (Given, Given)) {
    let (end, old_end) = (greatest_of(of.of), greatest_of(old.of));
    let is_retyped = of.of != old.of;
    let resets_least = is_retyped && old.least == -old_end - 1;
    let resets_greatest = is_retyped && old.greatest == old_end;
    match least {
        Some(Some(least)) => of.least = least,
        None if !resets_least => {}
        _ => of.least = if of.increment < 0 || resets_least { -end - 1 } else { 1 },
    }
    match greatest {
        Some(Some(greatest)) => of.greatest = greatest,
        None if !resets_greatest => {}
        _ => of.greatest = if of.increment > 0 || resets_greatest { end } else { -1 },
    }
}

impl Binder<'_> {
    /// The statement CREATE EXTENSION: what is there of extensions is built in.
    pub(crate) fn create_extension(&self, create: &ast::CreateExtension) -> Result<Action, SqlError> {
        const TAG: &str = "CREATE EXTENSION";
        let name = folded(&create.name);
        match name.as_str() {
            "plpgsql" if create.if_not_exists => {
                let message = "extension \"plpgsql\" already exists, skipping";
                Ok(Action::Skip { tag: TAG, notice: Notice::remark(SqlState::DUPLICATE_OBJECT, message) })
            }
            "plpgsql" => Err(SqlError::new(SqlState::DUPLICATE_OBJECT, "extension \"plpgsql\" already exists")),
            "uuid-ossp" | "pgcrypto" if self.catalog.check_database(bits::CREATE).is_err() => {
                let message = format!("permission denied to create extension \"{name}\"");
                let hint = "Must have CREATE privilege on current database to create this extension.";
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).with_hint(hint))
            }
            "uuid-ossp" | "pgcrypto" => Ok(Action::Define(Definition::new(TAG).into())),
            _ => Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("extension \"{name}\" is not available"))),
        }
    }
}
