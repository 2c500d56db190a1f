//! `pg_catalog` and `information_schema`: relations whose rows are computed from the catalog when a statement is bound.
//!
//! `shapes.txt` has their shapes, as PostgreSQL 15 has them. What is not computed here has no rows.

mod comments;
mod dependencies;
mod enums;
mod keys;
mod live;
mod objects;
mod origins;
mod relations;
mod rights;
mod routines;
mod settings;
mod standard;
mod visible;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use polychron_base::TableId;
use sqlparser::ast;

use super::naming::SYSTEM;
use super::{Binder, Written, folded};
use crate::arrays::{Array, Dimension};
use crate::catalog::{Object, Table, View};
use crate::computed::TABLE_ID;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::names::no_schema;
use crate::plan::Node;
use crate::procedures::Procedure;
use crate::roles::RoleId;
use crate::settings::{Setting, is_of_transaction, not_to_see, unrecognized};
use crate::types::{Bound, ColumnType, Type};
use crate::watch::{Deed, Watch};

pub(super) use objects::in_schema;

use keys::{constraints, index_in_words, part_in_words, parts};
use objects::{Objects, indexes};

const SHAPES: &str = include_str!("shapes.txt");

/// The object ids of `pg_catalog`, `public`, `information_schema`, and of the role that owns everything.
const SYSTEM_SCHEMA: i64 = 11;
const SCHEMA: i64 = 2200;
const STANDARD_SCHEMA: i64 = 13_183;
pub(crate) const OWNER: i64 = 10;
/// The names of the database and of that role.
pub(crate) const DATABASE: &str = "polychron";
pub(crate) const ROLE: &str = "postgres";

/// Object ids that a table takes: of itself, its indexes, its constraints and its defaults.
const IDS_OF_TABLE: i64 = 8192;
const FIRST_TABLE: i64 = 16_384;

/// An index and a column of it are asked for as one number: more than columns of an index.
pub(super) const COLUMNS_OF_INDEX: i64 = 4096;

/// Stands between the parts of a text that is looked up as one.
const BETWEEN: &str = "\u{1}";

/// What is done to a session, and of which roles it may be, if not of all.
pub(crate) struct Signal {
    watch: Arc<Watch>,
    deed: Deed,
    of: Option<BTreeSet<RoleId>>,
}

/// Texts that stand for numbers, such as the names of tables for their object ids, or what texts stand for.
pub(crate) struct Names {
    what: &'static str,
    by_id: HashMap<i64, String>,
    by_text: HashMap<String, OwnedDatum>,
    /// A number without a text is its own.
    shows_others: bool,
    /// The function does this to the session of the number.
    deed: Option<Signal>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.what)
    }
}

impl Names {
    pub(crate) fn get<'a>(&'a self, of: Datum<'a>, arena: &'a bumpalo::Bump) -> Result<Datum<'a>, SqlError> {
        let id = match of {
            Datum::Int(id) => match &self.deed {
                Some(Signal { watch, deed, of }) => return Ok(Datum::Bool(watch.act(*deed, id, of.as_ref())?)),
                None => id,
            },
            Datum::Text(text) => return self.stands_for(text),
            _ => return Ok(Datum::Null),
        };
        Ok(match self.by_id.get(&id) {
            Some(name) => Datum::Text(name),
            None if self.shows_others && id == 0 => Datum::Text("-"),
            None if self.shows_others => Datum::Text(arena.alloc_str(&id.to_string())),
            None => Datum::Null,
        })
    }

    fn stands_for(&self, text: &str) -> Result<Datum<'_>, SqlError> {
        if self.what == "current_setting" {
            let name = text.to_lowercase();
            return match self.by_text.get(&name) {
                Some(value) => Ok(value.get()),
                None if is_of_transaction(&name) => {
                    Err(SqlError::unsupported(format!("current_setting of \"{name}\"")))
                }
                None if Setting::find(&name).is_some() => Err(not_to_see(&name)),
                None if self.shows_others => Ok(Datum::Null),
                None => Err(unrecognized(text)),
            };
        }
        if let Some((table, column)) = text.split_once(BETWEEN) {
            let found = self.by_text.get(&format!("{}{BETWEEN}{column}", as_key(table)));
            return Ok(found.map_or(Datum::Null, OwnedDatum::get));
        }
        match (self.by_text.get(&as_key(text)), text.parse::<u32>()) {
            (_, Ok(id)) => Ok(Datum::Int(id.into())),
            (Some(found), _) => Ok(found.get()),
            (None, _) if self.what.starts_with("to_") => Ok(Datum::Null),
            (None, _) if text == "-" => Ok(Datum::Int(0)),
            _ if self.what == "regtype" => {
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{text}\" does not exist")))
            }
            _ => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist"))),
        }
    }
}

pub(crate) fn table_id(table: &Table) -> i64 {
    id_of_table(table.id)
}

fn id_of_table(table: TableId) -> i64 {
    FIRST_TABLE + table.position() as i64 * IDS_OF_TABLE
}

fn index_id(table: &Table, position: usize) -> i64 {
    table_id(table) + 1 + position as i64
}

fn default_id(table: &Table, number: i64) -> i64 {
    table_id(table) + 4096 + number
}

/// The id of a relation of the system.
fn system_id(name: &str) -> i64 {
    system_relations().find(|(_, own)| *own == name).map_or(0, |(id, _)| id)
}

fn constraint_id(table: &Table, position: usize) -> i64 {
    table_id(table) + 2048 + position as i64
}

fn int(value: i64) -> OwnedDatum {
    OwnedDatum::Plain(Datum::Int(value))
}

fn flag(value: bool) -> OwnedDatum {
    OwnedDatum::Plain(Datum::Bool(value))
}

fn text(text: impl Into<Box<str>>) -> OwnedDatum {
    OwnedDatum::Text(text.into())
}

/// An array of texts.
fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> OwnedDatum {
    let values: Vec<_> = values.into_iter().map(Datum::Text).collect();
    OwnedDatum::Array(Array::encode(&[Dimension::of(values.len())], values).into())
}

fn numbers(lower: i32, values: impl IntoIterator<Item = i64>) -> OwnedDatum {
    let values: Vec<_> = values.into_iter().map(Datum::Int).collect();
    let dimension = Dimension { lower, ..Dimension::of(values.len()) };
    let dimensions = if values.is_empty() { &[][..] } else { &[dimension] };
    OwnedDatum::Array(Array::encode(dimensions, values).into())
}

/// A relation of the system.
pub(super) struct Relation {
    pub(super) schema: &'static str,
    pub(super) name: String,
    pub(super) node: Node,
    pub(super) columns: Vec<(String, ColumnType)>,
}

/// The values of a row by the names of their columns.
type Row = Vec<(&'static str, OwnedDatum)>;

/// The columns of a relation.
fn shape(schema: &str, name: &str) -> Option<Vec<(&'static str, ColumnType)>> {
    let line = SHAPES.lines().find(|line| {
        line.split_once(' ').and_then(|(own, _)| own.split_once('.')).is_some_and(|own| own == (schema, name))
    })?;
    let columns = line.split(' ').skip(1).map(|column| {
        let (name, of) = column.split_once(':')?;
        let bound = if of == "name" { Bound::Name } else { Bound::None };
        Some((name, ColumnType { base: Type::by_name(of)?, bound }))
    });
    columns.collect()
}

impl Binder<'_> {
    /// The relation of this name and its columns, if it is one of the system.
    pub(super) fn system_relation(&self, name: &ast::ObjectName) -> Result<Option<Relation>, SqlError> {
        let parts: Vec<_> = name.0.iter().filter_map(ast::ObjectNamePart::as_ident).map(folded).collect();
        let (schema, name) = match &parts[..] {
            [schema, name] => (schema.as_str(), name.as_str()),
            [name] if name.starts_with("pg_") || live::is_own(name) => ("pg_catalog", name.as_str()),
            _ => return Ok(None),
        };
        let Some(mut columns) = shape(schema, name) else {
            if matches!(schema, "pg_catalog" | "information_schema") && parts.len() == 2 {
                let message = format!("relation \"{schema}.{name}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
            return Ok(None);
        };
        let is_standard = schema == "information_schema";
        if schema == "pg_catalog" {
            columns.push((TABLE_ID, Type::Oid.into()));
        }
        let own_id = system_id(name);
        let objects = Objects::of(&self.catalog)?;
        self.check_secret(name)?;
        let rights = self.known_rights()?;
        let live = if is_standard { None } else { self.live_rows(name, &objects)? };
        let rows = match live.or_else(|| rights.rows(name, &objects)) {
            Some(rows) => rows,
            None if is_standard => rights.completed(name, standard::rows(name, &objects, &rights), &objects),
            None => rights.completed(name, relations::rows(name, &objects), &objects),
        };
        let rows = rows.into_iter().map(|row| {
            let mut row: HashMap<_, _> = row.into_iter().collect();
            let value = |(name, of): &(&'static str, ColumnType)| {
                let default = match of.base {
                    _ if *name == TABLE_ID => int(own_id),
                    _ if is_standard => OwnedDatum::NULL,
                    Type::Bool => flag(false),
                    Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid => int(0),
                    _ => OwnedDatum::NULL,
                };
                Expr::Constant(row.remove(name).unwrap_or(default))
            };
            columns.iter().map(value).collect()
        });
        let rows: Vec<_> = rows.collect();
        let node = if rows.is_empty() {
            // Rows know how many columns they have.
            let input = Box::new(Node::Rows(vec![vec![Expr::NULL; columns.len()]]));
            Node::Filter { input, condition: Expr::Constant(flag(false)) }
        } else {
            Node::Rows(rows)
        };
        let columns = columns.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
        let schema = if is_standard { "information_schema" } else { "pg_catalog" };
        Ok(Some(Relation { schema, name: name.to_owned(), node, columns }))
    }

    /// The texts that a function of the catalog, or a type, gives numbers.
    pub(super) fn names(&self, what: &'static str) -> Result<Arc<Names>, SqlError> {
        let (mut by_id, mut by_text) = (HashMap::new(), HashMap::new());
        let mut shows_others = false;
        match what {
            "pg_get_serial_sequence" => {
                let objects = Objects::of(&self.catalog)?;
                for (_, sequence) in &objects.sequences {
                    let Some((table, column)) = &sequence.definition.owner else { continue };
                    for key in objects.keys(table) {
                        by_text.insert(format!("{key}{BETWEEN}{column}"), text(objects::in_schema(&sequence.name)));
                    }
                }
            }
            "regtype" | "to_regtype" => {
                shows_others = what == "regtype";
                let objects = Objects::of(&self.catalog)?;
                for (of, itself) in enums::types(&objects) {
                    let id = i64::from(itself.oid());
                    by_id.insert(id, objects.type_in_words(itself.into()));
                    let end = if itself.element().is_some() { "[]" } else { "" };
                    by_text.extend(objects.keys(of.key()).map(|key| (format!("{key}{end}"), int(id))));
                    by_text.insert(itself.name().to_owned(), int(id));
                }
                for of in Type::known() {
                    let id = i64::from(of.oid());
                    by_id.insert(id, of.name().to_owned());
                    by_text.extend([of.name(), of.internal_name()].map(|name| (name.to_owned(), int(id))));
                }
            }
            "format_type" => {
                let objects = Objects::of(&self.catalog)?;
                by_id.extend(enums::types(&objects).map(|(_, of)| (of.oid().into(), objects.type_in_words(of.into()))));
            }
            "pg_type_is_visible" => by_id = enums::visible(self, &Objects::of(&self.catalog)?)?,
            "regnamespace" => {
                by_id.extend(schemas(&Objects::of(&self.catalog)?).map(|(id, name)| (id, quoted(name))));
                shows_others = true;
            }
            "regrole" | "pg_get_userbyid" => by_id.extend(self.known_rights()?.names()),
            "regproc" => {
                by_id.extend(relations::functions_by_id());
                shows_others = true;
            }
            _ => {
                let objects = Objects::of(&self.catalog)?;
                names_of(what, &objects, &mut by_id);
                if what == "pg_get_viewdef" {
                    let shown = |view: &View| self.shown_query(view, &|name| objects.is_visible(name));
                    by_id.extend(objects.views.iter().map(|(id, view)| (*id, format!(" {};", shown(view)))));
                }
                by_id.extend(comments::by_id(what, &objects));
                shows_others = what == "regclass";
                if shows_others || what == "to_regclass" {
                    by_text.extend(system_relations().map(|(id, name)| (name.to_owned(), int(id))));
                    for (id, name) in objects.relations_and_indexes() {
                        by_text.extend(objects.keys(&name).map(|key| (key, int(id))));
                    }
                }
            }
        }
        Ok(Arc::new(Names { what, by_id, by_text, shows_others, deed: None }))
    }

    /// The object id that a name stands for, as `regclass` and its like.
    pub(crate) fn id_of_name(&self, of: Type, name: &str) -> Result<i64, SqlError> {
        if let Ok(id) = name.parse::<u32>() {
            return Ok(id.into());
        }
        if name == "-" {
            return Ok(0);
        }
        // A type may have more than a name.
        let written = Written::of_text(name).or_else(|error| {
            let alone = Written { schema: None, name: name.to_owned() };
            if of == Type::Regtype { Ok(alone) } else { Err(error) }
        })?;
        let plain = &written.name;
        let missing = |state: SqlState, what: &str| SqlError::new(state, format!("{what} \"{name}\" does not exist"));
        match of {
            Type::Regclass => {
                let is_of_system = written.schema.as_deref().is_none_or(|schema| SYSTEM.contains(&schema));
                if let Some((id, _)) = system_relations().find(|(_, own)| is_of_system && own == plain) {
                    return Ok(id);
                }
                self.catalog.check_schema(&written)?;
                let objects = Objects::of(&self.catalog)?;
                let mut found = None;
                self.catalog.first(&written, |name| {
                    found = objects.relations_and_indexes().into_iter().find(|(_, own)| own == name);
                    Ok(found.is_some())
                })?;
                if let Some((id, _)) = found {
                    return Ok(id);
                }
                if let Some((_, Object::Table(table))) = self.catalog.find_written(&written)? {
                    return Ok(table_id(&table));
                }
                Err(missing(SqlState::UNDEFINED_TABLE, "relation"))
            }
            Type::Regtype => {
                let parsed = crate::parse::expression(&format!("NULL::{name}"));
                let of = match parsed {
                    Ok(ast::Expr::Cast { data_type, .. }) => self.catalog.column_type(&data_type).ok(),
                    _ => None,
                };
                of.map(|of| of.base.oid().into()).ok_or_else(|| missing(SqlState::UNDEFINED_OBJECT, "type"))
            }
            Type::Regnamespace => match plain.as_str() {
                "pg_catalog" => Ok(SYSTEM_SCHEMA),
                "public" => Ok(SCHEMA),
                "information_schema" => Ok(STANDARD_SCHEMA),
                _ => {
                    let objects = Objects::of(&self.catalog)?;
                    let found = objects.schemas.iter().find(|(_, own)| own == plain);
                    found.map(|(id, _)| *id).ok_or_else(|| no_schema(plain))
                }
            },
            Type::Regrole => {
                let rights = self.known_rights()?;
                let found = rights.names().find(|(_, name)| name == plain);
                found.map(|(id, _)| id).ok_or_else(|| missing(SqlState::UNDEFINED_OBJECT, "role"))
            }
            Type::Regproc => relations::function_named(plain, name),
            _ => Err(missing(SqlState::UNDEFINED_FUNCTION, "function")),
        }
    }
}

/// What the objects have for names, or in words, by their ids.
fn names_of(what: &str, objects: &Objects, by_id: &mut HashMap<i64, String>) {
    if what == "regclass" {
        by_id.extend(system_relations().map(|(id, name)| (id, name.to_owned())));
        by_id.extend(objects.relations_and_indexes().into_iter().map(|(id, name)| (id, objects.shown(&name))));
    }
    if what == "pg_table_is_visible" {
        let in_words = |is_visible: bool| if is_visible { "t" } else { "f" }.to_owned();
        by_id.extend(system_relations().map(|(id, _)| (id, in_words(true))));
        let all = objects.relations_and_indexes().into_iter();
        by_id.extend(all.map(|(id, name)| (id, in_words(objects.is_visible(&name)))));
    }
    if what.starts_with("pg_get_function") {
        let has_defaults = what == "pg_get_function_arguments";
        let of = |(id, procedure): &(i64, Arc<Procedure>)| (*id, routines::parameters(procedure, has_defaults));
        by_id.extend(objects.procedures.iter().map(of));
    }
    let is_pretty = what.ends_with("pretty");
    for table in &objects.tables {
        match what {
            "pg_get_indexdef" | "pg_get_indexdef_pretty" => {
                for (at, index) in indexes(table) {
                    let id = index_id(table, at) * COLUMNS_OF_INDEX;
                    by_id.insert(id, index_in_words(objects, table, index, is_pretty));
                    let parts = (1..).zip(parts(table, index));
                    by_id.extend(parts.map(|(number, (at, _))| (id + number, part_in_words(table, at, is_pretty))));
                }
            }
            "pg_get_constraintdef" | "pg_get_constraintdef_pretty" => {
                by_id.extend(
                    constraints(objects, table).iter().map(|it| (it.id, it.in_words(objects, table, is_pretty))),
                );
            }
            _ => {}
        }
    }
}

/// The relations of the system with their ids: PostgreSQL's, where clients compare them.
fn system_relations() -> impl Iterator<Item = (i64, &'static str)> {
    let known = |name| {
        Some(match name {
            "pg_type" => 1247,
            "pg_attribute" => 1249,
            "pg_proc" => 1255,
            "pg_class" => 1259,
            "pg_authid" => 1260,
            "pg_database" => 1262,
            "pg_sequence" => 2224,
            "pg_am" => 2601,
            "pg_attrdef" => 2604,
            "pg_constraint" => 2606,
            "pg_depend" => 2608,
            "pg_description" => 2609,
            "pg_index" => 2610,
            "pg_namespace" => 2615,
            "pg_rewrite" => 2618,
            "pg_trigger" => 2620,
            _ => return None,
        })
    };
    let names = SHAPES.lines().filter_map(|line| line.strip_prefix("pg_catalog.")?.split(' ').next());
    (1000..).zip(names).map(move |(at, name)| (known(name).unwrap_or(at), name))
}

/// The key of a name that is looked up: its parts as they are.
fn as_key(name: &str) -> String {
    let mut parts = crate::names::parts(name).unwrap_or_default();
    if matches!(&parts[..], [database, _, _] if database == DATABASE) {
        parts.remove(0);
    }
    if matches!(&parts[..], [schema, _] if SYSTEM.contains(&schema.as_str())) {
        parts.remove(0);
    }
    parts.join(".")
}

/// The schemas with their ids.
fn schemas(objects: &Objects) -> impl Iterator<Item = (i64, &str)> {
    let of_system = [(SYSTEM_SCHEMA, "pg_catalog"), (STANDARD_SCHEMA, "information_schema")];
    let own = objects.schemas.iter().map(|(id, name)| (*id, name.as_str()));
    of_system.into_iter().chain(own)
}

/// A name as it has to be written.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|it: char| it.is_ascii_lowercase() || it == '_')
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
