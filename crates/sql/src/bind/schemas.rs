//! Schemas: CREATE SCHEMA, DROP SCHEMA, and tables that go from one to another.

use sqlparser::ast;

use super::alter::Alteration;
use super::alter_sequences::asks;
use super::drops::{SEVERAL, cascaded};
use super::{Binder, Written};
use crate::catalog::{Object, OnCommit, Schema, Table};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, PUBLIC, check_identifier, is_reserved, no_schema};
use crate::outcome::Notice;
use crate::procedures;
use crate::roles::{Access, bits};
use crate::sequences::SequenceDefinition;
use crate::statement::{Action, Definition, NewObject};

/// The name of a schema as a statement says it.
fn schema_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    let name = super::plain_name(name)?;
    check_identifier(&name)?;
    Ok(name)
}

impl Binder<'_> {
    pub(crate) fn create_schema(&mut self, name: &ast::SchemaName, may_be: bool) -> Result<Action, SqlError> {
        let mut owner = None;
        let name = match name {
            ast::SchemaName::Simple(name) => schema_name(name)?,
            ast::SchemaName::UnnamedAuthorization(role) => {
                let (id, name) = self.owner_named(role)?;
                owner = Some(id);
                name
            }
            ast::SchemaName::NamedAuthorization(name, role) => {
                owner = Some(self.owner_named(role)?.0);
                schema_name(name)?
            }
        };
        self.catalog.check_database(bits::CREATE)?;
        if is_reserved(&name) {
            let error = SqlError::new(SqlState::RESERVED_NAME, format!("unacceptable schema name \"{name}\""));
            return Err(error.with_detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        if self.catalog.schema(&name)?.is_some() {
            let message = format!("schema \"{name}\" already exists");
            if !may_be {
                return Err(SqlError::new(SqlState::DUPLICATE_SCHEMA, message));
            }
            let notice = Notice::remark(SqlState::DUPLICATE_SCHEMA, format!("{message}, skipping"));
            return Ok(Action::Skip { tag: "CREATE SCHEMA", notice });
        }
        let mut definition = Definition::new("CREATE SCHEMA");
        let access = owner.map(Access::owned_by).unwrap_or_default();
        definition.set_object(&Name::of_schema(&name), Some(NewObject::Schema(Schema { name, access, comment: None })));
        Ok(Action::Define(definition.into()))
    }

    pub(crate) fn drop_schemas(
        &mut self,
        names: &[ast::ObjectName],
        cascade: bool,
        may_be_missing: bool,
    ) -> Result<Definition, SqlError> {
        let mut definition = Definition::new("DROP SCHEMA");
        let mut schemas = Vec::new();
        for name in names {
            let name = schema_name(name)?;
            if name == PUBLIC {
                return Err(SqlError::unsupported("DROP SCHEMA of public"));
            }
            match self.catalog.schema(&name)? {
                Some(found) if self.catalog.has_schema(&found)? => {
                    if let Some(object) = self.catalog.object(&Name::of_schema(&found))? {
                        self.catalog.check_owner(&object)?;
                    }
                    schemas.push(found);
                }
                Some(_) => {
                    let message = format!("cannot drop schema {name} because it is required by the database system");
                    return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
                }
                None if may_be_missing => {
                    let message = format!("{}, skipping", no_schema(&name).message());
                    definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
                }
                None => return Err(no_schema(&name)),
            }
        }
        self.forget_defaults(&schemas, &mut definition)?;
        let content = self.content(&schemas)?;
        let keys: Vec<_> = content.iter().map(|(name, _, _)| name.clone()).collect();
        let mut details = Vec::new();
        for (name, object, shown) in content {
            if let Some(shown) = shown {
                details.push(match cascade {
                    true => format!("drop cascades to {shown}"),
                    false => format!("{shown} depends on schema {}", name.schema()),
                });
            }
            match &object {
                Object::Table(_) | Object::View(_) => {
                    self.drop_relation(&object, &keys, (cascade, &mut details), &mut definition)?;
                }
                Object::Sequence(sequence) => {
                    self.drop_sequence(sequence, &keys, (cascade, &mut details), &mut definition)?;
                }
                Object::Enum(of) => self.drop_type(of, (cascade, &mut details), &mut definition)?,
                _ => definition.set_object(&name, None),
            }
        }
        let what = match &schemas[..] {
            [one] => format!("schema {one}"),
            _ => SEVERAL.to_owned(),
        };
        cascaded(&what, &details, cascade, &mut definition)?;
        for schema in schemas {
            definition.set_object(&Name::of_schema(&schema), None);
        }
        Ok(definition)
    }

    /// What is in these schemas, with the names under which the catalog has it, and how messages show what does not go with something else.
    fn content(&self, schemas: &[String]) -> Result<Vec<(Name, Object, Option<String>)>, SqlError> {
        let mut content = Vec::new();
        for object in self.catalog.objects()? {
            let (rank, name) = match &object {
                Object::Table(table) => ((0, table.id.position()), table.name.clone()),
                Object::View(view) => ((1, 0), view.name.clone()),
                Object::Sequence(sequence) => ((2, 0), sequence.name.clone()),
                Object::Procedure(procedure) => ((3, 0), procedure.name.clone()),
                Object::Enum(of) => ((4, 0), of.name.clone()),
                Object::Schema(_) | Object::Role(_) | Object::Shared(_) => continue,
            };
            if !schemas.iter().any(|schema| schema == name.schema()) {
                continue;
            }
            let shown = self.catalog.shown(&name)?;
            let (key, shown) = match &object {
                Object::Table(_) => (name, Some(format!("table {shown}"))),
                Object::View(_) => (name, Some(format!("view {shown}"))),
                Object::Sequence(sequence) if sequence.definition.owner.is_some() => (name, None),
                Object::Sequence(_) => (name, Some(format!("sequence {shown}"))),
                Object::Enum(of) => (crate::enums::key(&name), Some(format!("type {}", of.of()?.name()))),
                Object::Procedure(of) => {
                    let types = of.signature();
                    let types = types.split_once('(').map_or("", |(_, types)| types);
                    (procedures::key(&name), Some(format!("function {shown}({types}")))
                }
                Object::Schema(_) | Object::Role(_) | Object::Shared(_) => continue,
            };
            content.push((rank, (key, object, shown)));
        }
        content.sort_by_key(|(rank, _)| *rank);
        Ok(content.into_iter().map(|(_, found)| found).collect())
    }

    /// `ALTER TABLE … SET SCHEMA`: the sequences of its columns go with it.
    pub(super) fn set_schema(&mut self, schema: &str, change: &mut Alteration) -> Result<(), SqlError> {
        let schema = self.catalog.schema(schema)?.ok_or_else(|| no_schema(schema))?;
        self.catalog.check_may(&schema, bits::CREATE)?;
        let old = change.draft.name.clone();
        let new = Name::new(&schema, old.plain());
        if new == old {
            return Ok(());
        }
        if new.is_temporary() || old.is_temporary() {
            let message = "cannot move objects into or out of temporary schemas";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let indexes = change.table.indexes.iter().map(|index| &*index.name);
        for name in std::iter::once(old.plain()).chain(indexes.filter(|name| !name.is_empty())) {
            if self.catalog.is_taken(&new.beside(name))? {
                let message = format!("relation \"{name}\" already exists in schema \"{schema}\"");
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
            }
        }
        self.move_table(new.clone(), change)?;
        for (sequence, column) in self.owned_sequences(&change.table)? {
            let (name, moved) = (&sequence.name, new.beside(sequence.name.plain()));
            if self.catalog.is_taken(&moved)? {
                let message = format!("relation \"{moved}\" already exists in schema \"{schema}\"");
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
            }
            let description = &mut change.draft.description;
            let asking = description.columns.iter_mut().filter(|column| asks(column, name));
            asking.for_each(|column| column.default = Some(super::sequences::next_number(&moved)));
            description.owned.iter_mut().filter(|own| *own == name).for_each(|own| own.clone_from(&moved));
            for other in self.tables_asking(name)?.into_iter().filter(|other| other.name != old) {
                let mut description = change.definition.described(&other);
                let asking = description.columns.iter_mut().filter(|column| asks(column, name));
                asking.for_each(|column| column.default = Some(super::sequences::next_number(&moved)));
                change.definition.closes.push(other.id);
                change.definition.set_object(&other.name.clone(), Some(NewObject::Table(other, description)));
            }
            let of = SequenceDefinition { owner: Some((new.clone(), column)), ..sequence.definition.clone() };
            change.definition.set_object(name, None);
            change.definition.set_object(&moved, Some(NewObject::Sequence(of, Some(sequence.clone()))));
        }
        Ok(())
    }

    /// The name of a table or a sequence that is to be made.
    pub(crate) fn new_relation_name(&mut self, name: &ast::ObjectName, temporary: bool) -> Result<Name, SqlError> {
        let written = Written::of(name)?;
        let is_in_temporary = match &written.schema {
            Some(schema) => self.catalog.schema(schema)?.is_some_and(|found| found == self.catalog.path.temporary),
            None => false,
        };
        if temporary || is_in_temporary {
            self.catalog.check_database(bits::TEMPORARY)?;
        } else {
            return self.catalog.new_name(&written);
        }
        if written.schema.is_some() && !is_in_temporary {
            let message = "cannot create temporary relation in non-temporary schema";
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        Ok(Name::new(&self.catalog.path.temporary, &written.name))
    }

    /// What becomes of a table when a transaction commits.
    pub(super) fn on_commit(name: &Name, create: &ast::CreateTable) -> Result<OnCommit, SqlError> {
        match create.on_commit {
            None => Ok(OnCommit::Keep),
            Some(_) if !name.is_temporary() => {
                let message = "ON COMMIT can only be used on temporary tables";
                Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message))
            }
            Some(ast::OnCommit::PreserveRows) => Ok(OnCommit::Keep),
            Some(ast::OnCommit::DeleteRows) => Ok(OnCommit::DeleteRows),
            Some(ast::OnCommit::Drop) => Ok(OnCommit::Drop),
        }
    }

    /// The table that a foreign key leads to. `None`: the one that is being defined.
    pub(super) fn parent_of(
        &self,
        child: &Name,
        parent: &ast::ObjectName,
    ) -> Result<Option<std::sync::Arc<Table>>, SqlError> {
        let written = Written::of(parent)?;
        self.catalog.check_schema(&written)?;
        let first = self.catalog.first(&written, |name| Ok(name == child || self.catalog.object(name)?.is_some()))?;
        let parent = match first {
            Some(name) if name == *child => return Ok(None),
            Some(name) => self.catalog.table(&name)?,
            None => return Err(written.missing()),
        };
        let (own, other) = (child.is_temporary(), parent.name.is_temporary());
        if own != other {
            let kind = if own { "temporary" } else { "permanent" };
            let message = format!("constraints on {kind} tables may reference only {kind} tables");
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        Ok(Some(parent))
    }
}
