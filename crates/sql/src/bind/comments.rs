//! COMMENT: a text about an object, which is a part of the object's definition and goes with it.

use sqlparser::ast::{self, CommentObject};

use super::{Binder, Written, folded};
use crate::catalog::{Object, Table};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, PUBLIC, no_schema};
use crate::roles;
use crate::statement::{Definition, NewObject};

fn wrong(name: &Name, what: &str) -> SqlError {
    SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {what}", name.plain()))
}

fn no_column(name: &str, relation: &Name) -> SqlError {
    let message = format!("column \"{name}\" of relation \"{}\" does not exist", relation.plain());
    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
}

impl Binder<'_> {
    pub(crate) fn comment(
        &mut self,
        of: CommentObject,
        name: &ast::ObjectName,
        comment: Option<&str>,
    ) -> Result<Definition, SqlError> {
        self.check_commenter(of, name)?;
        // No text takes a comment away.
        let text = comment.filter(|text| !text.is_empty()).map(str::to_owned);
        let mut definition = Definition::new("COMMENT");
        let (name, object) = match of {
            CommentObject::Table | CommentObject::View | CommentObject::Sequence => {
                self.relation_with_comment(of, name, text)?
            }
            CommentObject::Column => self.column_with_comment(name, text)?,
            CommentObject::Schema => self.schema_with_comment(name, text)?,
            other => return Err(SqlError::unsupported(format!("COMMENT ON {other}"))),
        };
        definition.set_object(&name, Some(object));
        Ok(definition)
    }

    fn relation_with_comment(
        &self,
        of: CommentObject,
        name: &ast::ObjectName,
        text: Option<String>,
    ) -> Result<(Name, NewObject), SqlError> {
        let written = Written::of(name)?;
        let (name, object) = self.catalog.find_within(&written)?.ok_or_else(|| written.missing())?;
        let mut new = object.as_new();
        match (&mut new, of) {
            (NewObject::Table(_, description), CommentObject::Table) => description.comment = text,
            (NewObject::View(view), CommentObject::View) => view.comment = text,
            (NewObject::Sequence(sequence, _), CommentObject::Sequence) => sequence.comment = text,
            (_, CommentObject::Table) => return Err(wrong(&name, "table")),
            (_, CommentObject::View) => return Err(wrong(&name, "view")),
            _ => return Err(wrong(&name, "sequence")),
        }
        Ok((name, new))
    }

    fn column_with_comment(&self, name: &ast::ObjectName, text: Option<String>) -> Result<(Name, NewObject), SqlError> {
        let mut parts = name.0.clone();
        let column = parts.pop().as_ref().and_then(|part| part.as_ident()).map(folded);
        let Some(column) = column.filter(|_| !parts.is_empty()) else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "column name must be qualified"));
        };
        let written = Written::of(&ast::ObjectName(parts))?;
        let (name, object) = self.catalog.find_within(&written)?.ok_or_else(|| written.missing())?;
        let mut new = object.as_new();
        match &mut new {
            NewObject::Table(table, description) => {
                let at = visible_column(table, &column).ok_or_else(|| no_column(&column, &name))?;
                description.columns[at].comment = text;
            }
            NewObject::View(view) if view.columns.contains(&column) => match text {
                Some(text) => drop(view.column_comments.insert(column, text)),
                None => drop(view.column_comments.remove(&column)),
            },
            NewObject::View(_) => return Err(no_column(&column, &name)),
            _ => {
                let message = format!("cannot set comment on relation \"{}\"", name.plain());
                let detail = "This operation is not supported for sequences.";
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).with_detail(detail));
            }
        }
        Ok((name, new))
    }

    fn schema_with_comment(&self, name: &ast::ObjectName, text: Option<String>) -> Result<(Name, NewObject), SqlError> {
        let name = super::plain_name(name)?;
        if name == PUBLIC {
            let mut shared = (*self.catalog.known_roles()?.1).clone();
            shared.public_comment = text;
            return Ok((roles::shared_key(), NewObject::Shared(shared)));
        }
        let found = self.catalog.schema(&name)?.ok_or_else(|| no_schema(&name))?;
        let key = Name::of_schema(&found);
        match self.catalog.object(&key)?.map(|object: Object| object.as_new()) {
            Some(NewObject::Schema(mut schema)) => {
                schema.comment = text;
                Ok((key, NewObject::Schema(schema)))
            }
            _ => Err(SqlError::unsupported(format!("COMMENT ON SCHEMA {name}"))),
        }
    }
}

fn visible_column(table: &Table, name: &str) -> Option<usize> {
    table.visible().find(|(_, column)| column.name == name).map(|(at, _)| at)
}
