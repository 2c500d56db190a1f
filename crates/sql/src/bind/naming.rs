//! What names of objects stand for: those with a schema in front of them there alone, others in the first schema of the path that has one.

use std::sync::Arc;

use sqlparser::ast;

use super::scope::Qualifier;
use super::system::{DATABASE, ROLE, quoted};
use super::{Binder, Recorded, folded};
use crate::catalog::{Object, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::Typed;
use crate::names::{Name, PUBLIC, Path, USER, check_identifier, no_schema, parts};
use crate::procedures;

/// The schemas of the system.
pub(super) const SYSTEM: [&str; 2] = ["pg_catalog", "information_schema"];

/// A name as a statement says it.
pub(crate) struct Written {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl Written {
    /// # Errors
    /// It is that of another database, or has too many parts.
    pub(crate) fn of(name: &ast::ObjectName) -> Result<Self, SqlError> {
        let parts: Option<Vec<_>> = name.0.iter().map(|part| part.as_ident().map(folded)).collect();
        let parts = parts.ok_or_else(|| SqlError::unsupported(format!("the name {name}")))?;
        Self::of_parts(parts)
    }

    pub(crate) fn of_parts(mut parts: Vec<String>) -> Result<Self, SqlError> {
        parts.iter().try_for_each(|part| check_identifier(part))?;
        let whole = parts.join(".");
        let (name, schema) = (parts.pop().unwrap_or_default(), parts.pop());
        match &parts[..] {
            [] => Ok(Self { schema, name }),
            [database] if database == DATABASE => Ok(Self { schema, name }),
            [_] => {
                let message = format!("cross-database references are not implemented: \"{whole}\"");
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            _ => {
                let message = format!("improper qualified name (too many dotted names): {whole}");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
        }
    }

    /// A name in a text, such as the argument of `nextval`.
    pub(crate) fn of_text(text: &str) -> Result<Self, SqlError> {
        Self::of_parts(parts(text).ok_or_else(|| SqlError::new(SqlState("42602"), "invalid name syntax"))?)
    }

    /// That no relation has the name.
    pub(crate) fn missing(&self) -> SqlError {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{self}\" does not exist"))
    }
}

impl std::fmt::Display for Written {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.schema {
            Some(schema) => write!(out, "{schema}.{}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

impl Recorded<'_> {
    /// The schema that a statement names so, if it is there.
    pub(super) fn schema(&self, name: &str) -> Result<Option<String>, SqlError> {
        let temporary = &self.path.temporary;
        if name == "pg_temp" && !temporary.is_empty() || !temporary.is_empty() && name == temporary {
            return Ok(Some(temporary.clone()));
        }
        let is_there = name == PUBLIC || SYSTEM.contains(&name) || self.has_schema(name)?;
        Ok(is_there.then(|| name.to_owned()))
    }

    /// The schemas of the path that are there, in their order, without those that stand in front of it by themselves.
    pub(super) fn searched(&self) -> Result<Vec<String>, SqlError> {
        let mut found = Vec::new();
        for schema in &self.path.schemas {
            let found_schema = match schema == USER {
                true => self.knows_schema(ROLE)?.then(|| ROLE.to_owned()),
                false => self.schema(schema)?,
            };
            found.extend(found_schema.filter(|schema| !found.contains(schema)));
        }
        Ok(found)
    }

    /// All schemas in which names without one are looked for, but for `pg_catalog`.
    pub(super) fn visible(&self) -> Result<Vec<String>, SqlError> {
        let mut schemas = self.searched()?;
        let temporary = &self.path.temporary;
        if !temporary.is_empty() && !schemas.contains(temporary) {
            schemas.insert(0, temporary.clone());
        }
        Ok(schemas)
    }

    /// The first name that the written one may stand for and of which this holds.
    pub(super) fn first(
        &self,
        written: &Written,
        mut stands: impl FnMut(&Name) -> Result<bool, SqlError>,
    ) -> Result<Option<Name>, SqlError> {
        let schemas = match &written.schema {
            Some(schema) => self.schema(schema)?.into_iter().collect(),
            None => self.visible()?,
        };
        for schema in &schemas {
            let name = Name::new(schema, &written.name);
            if stands(&name)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// What a name stands for, with its schema.
    pub(crate) fn find_written(&self, written: &Written) -> Result<Option<(Name, Object)>, SqlError> {
        let mut object = None;
        let name = self.first(written, |name| {
            object = self.object(name)?;
            Ok(object.is_some())
        })?;
        let found = name.zip(object);
        if let (None, Some((name, _))) = (&written.schema, &found)
            && name.schema() != PUBLIC
        {
            self.found_by_path.borrow_mut().push(name.clone());
        }
        Ok(found)
    }

    /// As [`Recorded::find_written`]. A schema that is written has to be there.
    pub(crate) fn find_within(&self, written: &Written) -> Result<Option<(Name, Object)>, SqlError> {
        self.check_schema(written)?;
        self.find_written(written)
    }

    pub(super) fn check_schema(&self, written: &Written) -> Result<(), SqlError> {
        match &written.schema {
            Some(schema) if self.schema(schema)?.is_none() => Err(no_schema(schema)),
            _ => Ok(()),
        }
    }

    /// The table of this name.
    pub(crate) fn written_table(&self, name: &ast::ObjectName) -> Result<Arc<Table>, SqlError> {
        self.named_table(&Written::of(name)?).map_err(|error| super::places::of_relation(error, name))
    }

    pub(super) fn named_table(&self, written: &Written) -> Result<Arc<Table>, SqlError> {
        let found = self.find_written(written)?;
        let (name, _) = found.filter(|(_, it)| it.table().is_some()).ok_or_else(|| written.missing())?;
        self.table(&name)
    }

    /// As [`Recorded::written_table`]. A schema that is written has to be there.
    pub(crate) fn table_within(&self, name: &ast::ObjectName) -> Result<Arc<Table>, SqlError> {
        self.check_schema(&Written::of(name)?)?;
        self.written_table(name)
    }

    /// The table that has an index of this name, and the index's name.
    pub(super) fn written_index(&self, written: &Written) -> Result<Option<(Name, Arc<Table>)>, SqlError> {
        self.check_schema(written)?;
        let mut owner = None;
        let name = self.first(written, |name| {
            owner = self.index_owner(name)?;
            Ok(owner.is_some())
        })?;
        Ok(name.zip(owner))
    }

    /// The procedure of this name.
    pub(super) fn written_procedure(&self, written: &Written) -> Result<Option<Arc<procedures::Procedure>>, SqlError> {
        let mut found = None;
        self.first(written, |name| {
            found = match self.object(&procedures::key(name))? {
                Some(Object::Procedure(procedure)) => Some(procedure),
                _ => None,
            };
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    /// The name that a new object gets.
    pub(crate) fn new_name(&self, written: &Written) -> Result<Name, SqlError> {
        let schema = match &written.schema {
            Some(schema) => self.schema(schema)?.ok_or_else(|| no_schema(schema))?,
            None => self.searched()?.into_iter().next().ok_or_else(|| {
                SqlError::new(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
            })?,
        };
        if SYSTEM.contains(&schema.as_str()) {
            let message = format!("permission denied to create \"{schema}.{}\"", written.name);
            let error = SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
            return Err(error.with_detail("System catalog modifications are currently disallowed."));
        }
        Ok(Name::new(&schema, &written.name))
    }

    pub(crate) fn new_object(&self, name: &ast::ObjectName) -> Result<Name, SqlError> {
        self.new_name(&Written::of(name)?)
    }

    /// Whether the name alone stands for this object, or index.
    pub(super) fn is_visible(&self, name: &Name) -> Result<bool, SqlError> {
        let written = Written { schema: None, name: name.plain().to_owned() };
        let first = self.first(&written, |other| self.is_taken(other))?;
        Ok(first.as_ref() == Some(name))
    }

    /// A name as it has to be written: alone where that stands for the object.
    pub(super) fn shown(&self, name: &Name) -> Result<String, SqlError> {
        let plain = quoted(name.plain());
        Ok(if self.is_visible(name)? { plain } else { format!("{}.{plain}", quoted(shown_schema(name))) })
    }
}

impl Binder<'_> {
    /// Binds a text as the schemas of another path have it.
    pub(super) fn under_path<O>(
        &mut self,
        schemas: Vec<String>,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        let path = Path { schemas, ..Path::clone(&self.catalog.path) };
        let path = std::mem::replace(&mut self.catalog.path, Arc::new(path));
        let bound = bind(self);
        self.catalog.path = path;
        bound
    }

    /// Binds a text that belongs to a table. Whatever the session's path, names without a schema are those of `public` there.
    pub(super) fn under_public<O>(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        self.under_path(vec![PUBLIC.to_owned()], |binder| binder.without_variables(bind))
    }

    /// Binds a text that a table is to have, and which does not keep the session's path.
    pub(super) fn for_table<O>(&mut self, bind: impl FnOnce(&mut Self) -> Result<O, SqlError>) -> Result<O, SqlError> {
        self.catalog.found_by_path.borrow_mut().clear();
        let bound = bind(self)?;
        match self.catalog.found_by_path.borrow().first() {
            Some(name) => Err(SqlError::unsupported(format!(
                "an expression of a table that names {}.{name} without its schema",
                name.schema()
            ))),
            None => Ok(bound),
        }
    }

    /// A column of a table that is written with its schema.
    pub(super) fn column_of_schema(&mut self, schema: &str, table: &str, name: &str) -> Result<Typed, SqlError> {
        let schema = self.catalog.schema(schema)?.unwrap_or_else(|| schema.to_owned());
        self.column(Some(Qualifier { schema: Some(&schema), table }), name)
    }
}

/// A schema as statements show it.
pub(super) fn shown_schema(name: &Name) -> &str {
    if name.is_temporary() { "pg_temp" } else { name.schema() }
}
