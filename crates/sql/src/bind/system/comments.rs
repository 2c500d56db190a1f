//! What COMMENT has said of objects.

use super::objects::Objects;
use super::{int, table_id, text};
use crate::bind::Binder;
use crate::casts::Place;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::expr::{Expr, Typed};
use crate::types::Type;

/// The ids of the relations that have the objects.
const RELATIONS: i64 = 1259;
const SCHEMAS: i64 = 2615;

/// More than a table has columns.
const COLUMNS: i64 = 1 << 12;

/// What comments are looked up by: the ids of all objects, of relations, of schemas, and of columns with their numbers.
const BY_OBJECT: &str = "obj_description";
const BY_RELATION: &str = "obj_description of pg_class";
const BY_SCHEMA: &str = "obj_description of pg_namespace";
const BY_COLUMN: &str = "col_description";

struct Comment<'o> {
    class: i64,
    object: i64,
    /// The number of the column; 0: the comment is about the object.
    column: i64,
    text: &'o str,
}

fn comments<'o>(objects: &'o Objects) -> Vec<Comment<'o>> {
    let mut all = Vec::new();
    let mut note = |class, object, column, text: Option<&'o String>| {
        all.extend(text.map(|text| Comment { class, object, column, text }));
    };
    for table in &objects.tables {
        let id = table_id(table);
        note(RELATIONS, id, 0, table.comment.as_ref());
        let columns = (1..).zip(table.visible());
        columns.for_each(|(number, (_, column))| note(RELATIONS, id, number, column.comment.as_ref()));
    }
    for (id, view) in &objects.views {
        note(RELATIONS, *id, 0, view.comment.as_ref());
        let columns = (1..).zip(&view.columns);
        columns.for_each(|(number, name)| note(RELATIONS, *id, number, view.column_comments.get(name)));
    }
    for (id, sequence) in &objects.sequences {
        note(RELATIONS, *id, 0, sequence.definition.comment.as_ref());
    }
    for (id, name) in &objects.schemas {
        note(SCHEMAS, *id, 0, objects.comments_of_schemas.get(name));
    }
    all
}

/// The rows of `pg_description`.
pub(super) fn rows(objects: &Objects) -> Vec<super::Row> {
    let row = |it: Comment<'_>| {
        vec![
            ("objoid", int(it.object)),
            ("classoid", int(it.class)),
            ("objsubid", int(it.column)),
            ("description", text(it.text)),
        ]
    };
    comments(objects).into_iter().map(row).collect()
}

/// The comments that are looked up so, with their keys.
pub(super) fn by_id<'o>(what: &str, objects: &'o Objects) -> impl Iterator<Item = (i64, String)> + use<'o> {
    let (class, is_of_columns) = match what {
        BY_RELATION => (Some(RELATIONS), false),
        BY_SCHEMA => (Some(SCHEMAS), false),
        BY_COLUMN => (Some(RELATIONS), true),
        BY_OBJECT => (None, false),
        _ => (Some(0), false),
    };
    let wanted = comments(objects).into_iter();
    let wanted = wanted.filter(move |it| class.is_none_or(|class| class == it.class));
    wanted.filter_map(move |it| match is_of_columns {
        true if it.column > 0 => Some((it.object * COLUMNS + it.column, it.text.to_owned())),
        false if it.column == 0 => Some((it.object, it.text.to_owned())),
        _ => None,
    })
}

impl Binder<'_> {
    /// `obj_description` and `col_description`.
    pub(super) fn comment_of(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let what = match (name, arguments.get(1).map(super::objects::known_text)) {
            ("obj_description", None) => BY_OBJECT,
            ("obj_description", Some(Some("pg_class"))) => BY_RELATION,
            ("obj_description", Some(Some("pg_namespace"))) => BY_SCHEMA,
            // Objects of other kinds have no comments.
            ("obj_description", Some(Some(_))) => return Ok(Typed::new(Expr::NULL, Type::Text)),
            ("obj_description", Some(None)) => {
                return Err(SqlError::unsupported("obj_description of a computed catalog"));
            }
            _ => BY_COLUMN,
        };
        let of = self.cast(arguments.remove(0), Type::Oid.into(), Place::Implicit)?;
        let mut key = Typed::new(of.expr, Type::Int8);
        if what == BY_COLUMN {
            let number = self.cast(arguments.remove(0), Type::Int8.into(), Place::Implicit)?;
            let factor = Typed::new(Expr::Constant(OwnedDatum::Plain(Datum::Int(COLUMNS))), Type::Int8);
            key = self.apply("*", vec![key, factor])?;
            key = self.apply("+", vec![key, number])?;
        }
        Ok(Typed::new(Expr::Lookup { names: self.names(what)?, of: Box::new(key.expr) }, Type::Text))
    }
}
