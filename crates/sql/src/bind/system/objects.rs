//! The objects of a catalog with their ids, and what the relations of the system show of them.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::{Binder, SCHEMA, table_id};
use crate::bind::literals::constant;
use crate::bind::naming::shown_schema;
use crate::bind::{Recorded, Written};
use crate::casts::Place;
use crate::catalog::{Column, Index, Object, Table, View};
use crate::datum::{Datum, OwnedDatum};
use crate::enums::{Enum, EnumType};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::names::{Name, PUBLIC};
use crate::procedures::Procedure;
use crate::roles::Access;
use crate::sequences::Sequence;
use crate::types::{ColumnType, Type};

/// Ids of views and sequences follow from their names, and are greater than those of tables.
const FIRST_NAMED: i64 = 3 << 30;
const NAMED_COUNT: i64 = 1 << 30;

/// All objects. Those of a kind are in the order of their names.
pub(super) struct Objects {
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) views: Vec<(i64, Arc<View>)>,
    pub(super) sequences: Vec<(i64, Arc<Sequence>)>,
    pub(super) procedures: Vec<(i64, Arc<Procedure>)>,
    /// With their types.
    pub(super) enums: Vec<(EnumType, Arc<Enum>)>,
    /// The schemas that are not the system's, with their ids; `public` among them.
    pub(super) schemas: Vec<(i64, String)>,
    /// Who may do what in those that SQL has made.
    pub(super) access_of_schemas: HashMap<String, Access>,
    /// What COMMENT has said of schemas.
    pub(super) comments_of_schemas: HashMap<String, String>,
    /// What names without a schema stand for.
    first: HashMap<String, Name>,
    /// The same of types.
    first_types: HashMap<String, Name>,
}

impl Objects {
    pub(super) fn of(catalog: &Recorded<'_>) -> Result<Self, SqlError> {
        let (tables, views, sequences, procedures, first, access_of_schemas) = Default::default();
        let (enums, comments_of_schemas, first_types) = Default::default();
        let schemas = vec![(SCHEMA, PUBLIC.to_owned())];
        let mut all = Self {
            tables,
            views,
            sequences,
            procedures,
            enums,
            schemas,
            access_of_schemas,
            comments_of_schemas,
            first,
            first_types,
        };
        let mut taken = HashSet::new();
        let mut id_of = |name: &Name| {
            // FNV-1a: the same in each process.
            let hash = name
                .key()
                .bytes()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            let mut at = (hash % NAMED_COUNT as u64) as i64;
            while !taken.insert(at) {
                at = (at + 1) % NAMED_COUNT;
            }
            FIRST_NAMED + at
        };
        // What other sessions have for themselves is nowhere seen.
        let is_seen = |name: &Name| !name.is_temporary() || *name.schema() == catalog.path.temporary;
        for object in catalog.objects()? {
            match object {
                Object::Table(table) if !is_seen(&table.name) => {}
                Object::Sequence(sequence) if !is_seen(&sequence.name) => {}
                Object::Schema(schema) => {
                    all.schemas.push((id_of(&Name::of_schema(&schema.name)), schema.name.clone()));
                    let comment = schema.comment.iter().map(|text| (schema.name.clone(), text.clone()));
                    all.comments_of_schemas.extend(comment);
                    all.access_of_schemas.insert(schema.name.clone(), schema.access.clone());
                }
                Object::Table(table) => all.tables.push(table),
                Object::Shared(shared) => {
                    let comment = shared.public_comment.iter().map(|text| (PUBLIC.to_owned(), text.clone()));
                    all.comments_of_schemas.extend(comment);
                }
                Object::Role(_) => {}
                Object::Enum(of) => all.enums.push((of.of()?, of)),
                Object::View(view) => all.views.push((id_of(&view.name), view)),
                Object::Sequence(sequence) => all.sequences.push((id_of(&sequence.name), sequence)),
                Object::Procedure(procedure) => {
                    all.procedures.push((id_of(&crate::procedures::key(&procedure.name)), procedure));
                }
            }
        }
        let temporary = &catalog.path.temporary;
        if all.names().any(|name| name.is_temporary()) {
            all.schemas.push((id_of(&Name::of_schema(temporary)), temporary.clone()));
        }
        for schema in catalog.visible()? {
            let of_schema = all.names().filter(|name| name.schema() == schema).collect::<Vec<_>>();
            for name in of_schema {
                all.first.entry(name.plain().to_owned()).or_insert(name);
            }
            all.note_types(&schema);
        }
        Ok(all)
    }

    /// Notes what the names of types stand for that are looked for in a schema next.
    fn note_types(&mut self, schema: &str) {
        for (of, _) in self.enums.iter().filter(|(of, _)| of.key().schema() == schema) {
            self.first_types.entry(of.key().plain().to_owned()).or_insert_with(|| of.key().clone());
        }
    }

    /// The names of relations and indexes.
    fn names(&self) -> impl Iterator<Item = Name> {
        let tables = self.tables.iter().flat_map(|table| {
            let indexes = indexes(table).map(|(_, index)| table.name.beside(&index.name));
            std::iter::once(table.name.clone()).chain(indexes)
        });
        let views = self.views.iter().map(|(_, view)| view.name.clone());
        tables.chain(views).chain(self.sequences.iter().map(|(_, sequence)| sequence.name.clone()))
    }

    /// Whether the name alone stands for this object.
    pub(super) fn is_visible(&self, name: &Name) -> bool {
        self.first.get(name.plain()) == Some(name)
    }

    /// A name as it has to be written.
    pub(super) fn shown(&self, name: &Name) -> String {
        if self.is_visible(name) { super::quoted(name.plain()) } else { in_schema(name) }
    }

    /// A type as it has to be written.
    pub(super) fn type_in_words(&self, of: ColumnType) -> String {
        let (Type::Enum(own), is_array) = (of.base.element().unwrap_or(of.base), of.base.element().is_some()) else {
            return of.to_string();
        };
        let name = own.key();
        let is_visible = self.first_types.get(name.plain()) == Some(name);
        let name = if is_visible { super::quoted(name.plain()) } else { in_schema(name) };
        if is_array { format!("{name}[]") } else { name }
    }

    /// The id of the schema that an object is in.
    pub(super) fn schema_of(&self, name: &Name) -> i64 {
        self.schemas.iter().find(|(_, own)| own == name.schema()).map_or(SCHEMA, |(id, _)| *id)
    }

    pub(super) fn table(&self, name: &Name) -> Option<&Arc<Table>> {
        self.tables.iter().find(|table| table.name == *name)
    }

    /// The relations that are no indexes, with their ids.
    pub(super) fn relations(&self) -> impl Iterator<Item = (i64, &Name)> {
        let tables = self.tables.iter().map(|table| (table_id(table), &table.name));
        let views = self.views.iter().map(|(id, view)| (*id, &view.name));
        tables.chain(views).chain(self.sequences.iter().map(|(id, sequence)| (*id, &sequence.name)))
    }

    /// The same with the indexes.
    pub(super) fn relations_and_indexes(&self) -> Vec<(i64, Name)> {
        let of_table =
            |table: &Table, (at, index): (usize, &Index)| (super::index_id(table, at), table.name.beside(&index.name));
        let indexes = self.tables.iter().flat_map(|table| indexes(table).map(move |it| of_table(table, it)));
        self.relations().map(|(id, name)| (id, name.clone())).chain(indexes).collect()
    }

    /// What may be written for an object.
    pub(super) fn keys(&self, name: &Name) -> impl Iterator<Item = String> {
        let alone = self.is_visible(name).then(|| name.plain().to_owned());
        std::iter::once(format!("{}.{}", shown_schema(name), name.plain())).chain(alone)
    }

    /// The table and the number of the column with which a sequence goes.
    pub(super) fn owner(&self, sequence: &Sequence) -> Option<(&Table, i64)> {
        let (table, column) = sequence.definition.owner.as_ref()?;
        let table = self.table(table)?;
        Some((table, number(table, table.column(column)?)))
    }

    /// The sequence of a column, with its id.
    pub(super) fn sequence_of(&self, table: &Name, column: &str) -> Option<&(i64, Arc<Sequence>)> {
        let is_owner = |owner: &(Name, String)| owner.0 == *table && owner.1 == column;
        self.sequences.iter().find(|(_, sequence)| sequence.definition.owner.as_ref().is_some_and(is_owner))
    }
}

/// The number of a column among those that are seen.
pub(super) fn number(table: &Table, at: usize) -> i64 {
    1 + table.visible().filter(|(other, _)| *other < at).count() as i64
}

pub(super) fn numbers_of<'t>(table: &'t Table, columns: &'t [usize]) -> impl Iterator<Item = i64> + 't {
    // Expressions have no number.
    columns.iter().map(|&at| if table.columns[at].is_hidden { 0 } else { number(table, at) })
}

/// The indexes that are seen, with their positions.
pub(super) fn indexes(table: &Table) -> impl Iterator<Item = (usize, &Index)> {
    table.indexes.iter().enumerate().skip(usize::from(!table.has_primary_key()))
}

/// A default as PostgreSQL writes it. An identity has none.
pub(super) fn default_in_words(objects: &Objects, column: &Column) -> Option<String> {
    if let Some(text) = &column.generated {
        return Some(super::words::expression_in_words(text));
    }
    let default = column.default.as_deref().filter(|_| column.identity.is_none())?;
    let sequence = default.strip_prefix("nextval('").and_then(|rest| rest.split_once('\''));
    if let Some((name, ")" | "::regclass)")) = sequence {
        let sequence = super::super::drops::sequence_of(default).map(|name| objects.shown(&name).replace('\'', "''"));
        let name = sequence.as_deref().unwrap_or(name);
        return Some(format!("nextval('{name}'::regclass)"));
    }
    let base = column.of.base;
    let own = || matches!(base.element().unwrap_or(base), Type::Enum(_)).then(|| objects.type_in_words(base.into()));
    if let Some(shown) = super::words::cast_text_in_words(default, own) {
        return Some(shown);
    }
    let inside = default.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let is_literal = inside.is_some_and(|inside| !inside.replace("''", "").contains('\''));
    let of = objects.type_in_words(column.of.base.into());
    Some(if is_literal { format!("{default}::{of}") } else { default.to_owned() })
}

/// A name with its schema.
pub(in crate::bind) fn in_schema(name: &Name) -> String {
    format!("{}.{}", super::quoted(shown_schema(name)), super::quoted(name.plain()))
}

/// The text of an argument that is known when the statement is bound.
pub(super) fn known_text(argument: &Typed) -> Option<&str> {
    let Expr::Constant(OwnedDatum::Text(text)) = &argument.expr else { return None };
    Some(text)
}

impl Binder<'_> {
    /// A function of what names stand for.
    pub(in crate::bind) fn call_of_names(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        match (name, arguments.len()) {
            ("pg_get_serial_sequence", _) => self.serial_sequence(arguments),
            ("to_regclass", 1) => self.known_object("to_regclass", Type::Regclass, arguments.remove(0)),
            ("to_regtype", 1) => self.known_object("to_regtype", Type::Regtype, arguments.remove(0)),
            ("obj_description", 1 | 2) | ("col_description", 2) => self.comment_of(name, arguments),
            ("pg_typeof", 1) => Ok(constant(Datum::Int(arguments.remove(0).base().oid().into()), Type::Regtype)),
            ("current_schema", 0) => self.current_schema(),
            ("current_schemas", 1) => {
                let has_implicit = self.cast(arguments.remove(0), Type::Bool.into(), Place::Implicit)?;
                self.current_schemas(has_implicit.expr)
            }
            ("pg_get_userbyid", 1) => {
                let of = self.cast(arguments.remove(0), Type::Oid.into(), Place::Implicit)?;
                let (names, of) = (self.names("pg_get_userbyid")?, of.expr);
                let known = Typed::new(Expr::Lookup { names, of: Box::new(of.clone()) }, Type::Text);
                let other = self.call("pg_get_userbyid", vec![Typed::new(of, Type::Oid)])?;
                Ok(Typed::new(Expr::Coalesce(Box::new([known.expr, other.expr])), Type::Text))
            }
            ("format_type", 2) => self.formatted_type(arguments),
            ("acldefault", 2) => {
                let owner = self.cast(arguments.remove(1), Type::Oid.into(), Place::Implicit)?;
                let (names, of) = (self.names("regrole")?, Box::new(owner.expr));
                arguments.push(Typed::new(Expr::Lookup { names, of }, Type::Text));
                self.call(name, arguments)
            }
            ("pg_table_is_visible" | "pg_type_is_visible", 1) => {
                let what = if name == "pg_table_is_visible" { "pg_table_is_visible" } else { "pg_type_is_visible" };
                let of = self.cast(arguments.remove(0), Type::Oid.into(), Place::Implicit)?;
                let (names, of) = (self.names(what)?, Box::new(of.expr));
                self.cast(Typed::new(Expr::Lookup { names, of }, Type::Text), Type::Bool.into(), Place::Explicit)
            }
            _ => self.call(name, arguments),
        }
    }

    /// The schema in which objects are made that are named without one.
    fn current_schema(&self) -> Result<Typed, SqlError> {
        let first = self.catalog.searched()?.into_iter().next();
        Ok(Typed::new(Expr::Constant(first.map_or(OwnedDatum::NULL, super::text)), Type::Text))
    }

    /// The schemas of the path, with those that stand in front of it by themselves where this holds.
    fn current_schemas(&self, has_implicit: Expr) -> Result<Typed, SqlError> {
        let explicit = self.catalog.searched()?;
        let mut all = self.catalog.visible()?;
        let temporary = &self.catalog.path.temporary;
        all.retain(|schema| schema != temporary || !self.catalog.in_schema(temporary).is_empty());
        if !explicit.iter().any(|schema| schema == "pg_catalog") {
            all.insert(usize::from(all.len() > explicit.len()), "pg_catalog".to_owned());
        }
        let list = |schemas: &[String]| Expr::Constant(super::texts(schemas.iter().map(String::as_str)));
        let is_false = Expr::Not(Box::new(has_implicit.clone()));
        let branches = [(has_implicit, list(&all)), (is_false, list(&explicit))].into();
        Ok(Typed::new(Expr::Case { branches, otherwise: Box::new(Expr::NULL) }, Type::Texts))
    }

    /// `pg_get_serial_sequence` of a table and a column. Errors are those of constants.
    fn serial_sequence(&mut self, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let mut texts = Vec::new();
        for argument in arguments {
            texts.push(self.cast(argument, Type::Text.into(), Place::Implicit)?);
        }
        let [Some(table), Some(column)] = [0, 1].map(|at| texts.get(at).and_then(known_text)) else {
            let name = "pg_get_serial_sequence";
            let [table, column] = <[Typed; 2]>::try_from(texts)
                .map_err(|_| functions::no_function(name, &[], functions::Unresolved::None))?;
            let between = Typed::new(Expr::Constant(super::text(super::BETWEEN)), Type::Text);
            let table = self.apply("||", vec![table, between])?;
            let of = Box::new(self.apply("||", vec![table, column])?.expr);
            return Ok(Typed::new(Expr::Lookup { names: self.names(name)?, of }, Type::Text));
        };
        let written = Written::of_text(table)?;
        self.catalog.check_schema(&written)?;
        let table = self.catalog.named_table(&written)?;
        if table.visible().all(|(_, own)| own.name != column) {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
        let objects = Objects::of(&self.catalog)?;
        let name = objects.sequence_of(&table.name, column).map(|(_, sequence)| in_schema(&sequence.name));
        let value = name.map_or(OwnedDatum::NULL, super::text);
        Ok(Typed::new(Expr::Constant(value), Type::Text))
    }

    /// `to_regclass` and `to_regtype`: the object of this name, or NULL.
    fn known_object(&mut self, function: &'static str, of: Type, name: Typed) -> Result<Typed, SqlError> {
        let Some(known) = known_text(&name) else {
            let name = self.cast(name, Type::Text.into(), Place::Implicit)?;
            return Ok(Typed::new(Expr::Lookup { names: self.names(function)?, of: Box::new(name.expr) }, of));
        };
        let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_OBJECT];
        match self.id_of_name(of, known) {
            Ok(id) => Ok(constant(Datum::Int(id), of)),
            Err(error) if missing.contains(&error.state()) => Ok(constant(Datum::Null, of)),
            Err(error) => Err(error),
        }
    }
}
