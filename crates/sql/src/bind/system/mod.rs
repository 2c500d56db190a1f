//! `pg_catalog` and `information_schema`: relations whose rows are computed from the catalog when a statement is bound.
//!
//! `shapes.txt` has their shapes, as PostgreSQL 15 has them. What is not computed here has no rows.

mod relations;
mod standard;

use std::sync::Arc;

use hashbrown::HashMap;
use sqlparser::ast;

use super::{Binder, folded};
use crate::arrays::{Array, Dimension};
use crate::catalog::{Index, Table};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::Node;
use crate::types::{ColumnType, Type};

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

/// Texts that stand for numbers, such as the names of tables for their object ids.
pub(crate) struct Names {
    what: &'static str,
    by_id: HashMap<i64, String>,
    /// A number without a text is its own.
    shows_others: bool,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.what)
    }
}

impl Names {
    pub(crate) fn get<'a>(&'a self, of: Datum<'a>, arena: &'a bumpalo::Bump) -> Datum<'a> {
        let Datum::Int(id) = of else { return Datum::Null };
        match self.by_id.get(&id) {
            Some(name) => Datum::Text(name),
            None if self.shows_others && id == 0 => Datum::Text("-"),
            None if self.shows_others => Datum::Text(arena.alloc_str(&id.to_string())),
            None => Datum::Null,
        }
    }
}

pub(crate) fn table_id(table: &Table) -> i64 {
    FIRST_TABLE + table.id.position() as i64 * IDS_OF_TABLE
}

fn index_id(table: &Table, position: usize) -> i64 {
    table_id(table) + 1 + position as i64
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

fn numbers(lower: i32, values: impl IntoIterator<Item = i64>) -> OwnedDatum {
    let values: Vec<_> = values.into_iter().map(Datum::Int).collect();
    let dimension = Dimension { lower, ..Dimension::of(values.len()) };
    let dimensions = if values.is_empty() { &[][..] } else { &[dimension] };
    OwnedDatum::Array(Array::encode(dimensions, values).into())
}

/// A relation of the system.
pub(super) struct Relation {
    pub(super) name: String,
    pub(super) node: Node,
    pub(super) columns: Vec<(String, ColumnType)>,
}

/// The values of a row by the names of their columns.
type Row = Vec<(&'static str, OwnedDatum)>;

/// The columns of a relation.
fn shape(schema: &str, name: &str) -> Option<Vec<(&'static str, Type)>> {
    let line = SHAPES.lines().find(|line| {
        line.split_once(' ').and_then(|(own, _)| own.split_once('.')).is_some_and(|own| own == (schema, name))
    })?;
    let columns = line.split(' ').skip(1).map(|column| {
        let (name, of) = column.split_once(':')?;
        Some((name, Type::by_name(of)?))
    });
    columns.collect()
}

impl Binder<'_> {
    /// The relation of this name and its columns, if it is one of the system.
    pub(super) fn system_relation(&self, name: &ast::ObjectName) -> Result<Option<Relation>, SqlError> {
        let parts: Vec<_> = name.0.iter().filter_map(ast::ObjectNamePart::as_ident).map(folded).collect();
        let (schema, name) = match &parts[..] {
            [schema, name] => (schema.as_str(), name.as_str()),
            [name] if name.starts_with("pg_") => ("pg_catalog", name.as_str()),
            _ => return Ok(None),
        };
        let Some(columns) = shape(schema, name) else {
            if matches!(schema, "pg_catalog" | "information_schema") && parts.len() == 2 {
                let message = format!("relation \"{schema}.{name}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
            return Ok(None);
        };
        let is_standard = schema == "information_schema";
        let rows =
            if is_standard { standard::rows(name, &self.catalog)? } else { relations::rows(name, &self.catalog)? };
        let rows = rows.into_iter().map(|row| {
            let mut row: HashMap<_, _> = row.into_iter().collect();
            let value = |(name, of): &(&'static str, Type)| {
                let default = match of {
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
        let columns = columns.into_iter().map(|(name, of)| (name.to_owned(), of.into())).collect();
        Ok(Some(Relation { name: name.to_owned(), node, columns }))
    }

    /// The texts that a function of the catalog, or a type, gives numbers.
    pub(super) fn names(&self, what: &'static str) -> Result<Arc<Names>, SqlError> {
        let mut by_id = HashMap::new();
        let mut shows_others = false;
        match what {
            "regtype" => {
                by_id.extend(all_types().map(|of| (i64::from(of.oid()), of.name().to_owned())));
                shows_others = true;
            }
            "regnamespace" => {
                let schemas =
                    [(SYSTEM_SCHEMA, "pg_catalog"), (SCHEMA, "public"), (STANDARD_SCHEMA, "information_schema")];
                by_id.extend(schemas.map(|(id, name)| (id, name.to_owned())));
                shows_others = true;
            }
            "regrole" => drop(by_id.insert(OWNER, ROLE.to_owned())),
            "regproc" => shows_others = true,
            _ => {
                for table in self.catalog.all()? {
                    self.names_of(what, &table, &mut by_id);
                }
                shows_others = what == "regclass";
            }
        }
        Ok(Arc::new(Names { what, by_id, shows_others }))
    }

    fn names_of(&self, what: &str, table: &Table, by_id: &mut HashMap<i64, String>) {
        let indexes = table.indexes.iter().enumerate();
        match what {
            "regclass" => {
                by_id.insert(table_id(table), quoted(&table.name));
                by_id.extend(indexes.map(|(at, index)| (index_id(table, at), quoted(&index.name))));
            }
            "pg_get_indexdef" | "pg_get_indexdef_pretty" => {
                let is_pretty = what.ends_with("pretty");
                by_id.extend(indexes.map(|(at, index)| (index_id(table, at), index_in_words(table, index, is_pretty))));
            }
            "pg_get_constraintdef" | "pg_get_constraintdef_pretty" => {
                let is_pretty = what.ends_with("pretty");
                let all = constraints(table);
                by_id.extend(all.iter().map(|it| (it.id, it.in_words(table, is_pretty))));
            }
            _ => {}
        }
    }

    /// The object id that a name stands for, as `regclass` and its like.
    pub(super) fn id_of_name(&self, of: Type, name: &str) -> Result<i64, SqlError> {
        if let Ok(id) = name.parse::<u32>() {
            return Ok(id.into());
        }
        if name == "-" {
            return Ok(0);
        }
        let plain = match name.split_once('.') {
            Some(("public" | "pg_catalog" | "information_schema", plain)) => plain,
            _ => name,
        };
        let plain = match plain.strip_prefix('"').and_then(|it| it.strip_suffix('"')) {
            Some(quoted) => quoted.to_owned(),
            None => plain.to_lowercase(),
        };
        let missing = |state: SqlState, what: &str| SqlError::new(state, format!("{what} \"{name}\" does not exist"));
        match of {
            Type::Regclass => {
                if let Some(at) = SHAPES.lines().position(|line| line.starts_with(&format!("pg_catalog.{plain} "))) {
                    return Ok(1000 + at as i64);
                }
                if let Some(table) = self.catalog.find(&plain)? {
                    return Ok(table_id(&table));
                }
                for table in self.catalog.all()? {
                    if let Some(at) = table.indexes.iter().position(|index| index.name == plain) {
                        return Ok(index_id(&table, at));
                    }
                }
                Err(missing(SqlState::UNDEFINED_TABLE, "relation"))
            }
            Type::Regtype => {
                let parsed = crate::parse::expression(&format!("NULL::{name}"));
                let of = match parsed {
                    Ok(ast::Expr::Cast { data_type, .. }) => super::column_type(&data_type).ok(),
                    _ => None,
                };
                of.map(|of| of.base.oid().into()).ok_or_else(|| missing(SqlState::UNDEFINED_OBJECT, "type"))
            }
            Type::Regnamespace => match plain.as_str() {
                "pg_catalog" => Ok(SYSTEM_SCHEMA),
                "public" => Ok(SCHEMA),
                "information_schema" => Ok(STANDARD_SCHEMA),
                _ => Err(missing(SqlState("3F000"), "schema")),
            },
            Type::Regrole if plain == ROLE => Ok(OWNER),
            Type::Regrole => Err(missing(SqlState::UNDEFINED_OBJECT, "role")),
            _ => Err(missing(SqlState::UNDEFINED_FUNCTION, "function")),
        }
    }
}

fn all_types() -> impl Iterator<Item = Type> {
    let others =
        [Type::Regclass, Type::Regtype, Type::Regproc, Type::Regnamespace, Type::Regrole, Type::Unknown, Type::Void];
    Type::ALL.into_iter().chain(Type::ALL.into_iter().filter_map(Type::array)).chain(others)
}

/// A name as it has to be written.
pub(super) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|it: char| it.is_ascii_lowercase() || it == '_')
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn names_in_words(table: &Table, columns: &[usize]) -> String {
    columns.iter().map(|&at| quoted(&table.columns[at].name)).collect::<Vec<_>>().join(", ")
}

fn index_in_words(table: &Table, index: &Index, is_pretty: bool) -> String {
    let unique = if index.is_unique { "UNIQUE " } else { "" };
    let schema = if is_pretty { "" } else { "public." };
    let method = if index.is_ordered { "btree" } else { "hash" };
    let columns = index.columns.iter().enumerate().map(|(position, &at)| {
        let order = if index.is_ascending(position) { "" } else { " DESC" };
        format!("{}{order}", quoted(&table.columns[at].name))
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    format!(
        "CREATE {unique}INDEX {} ON {schema}{} USING {method} ({columns})",
        quoted(&index.name),
        quoted(&table.name)
    )
}

/// A constraint of a table.
struct Constraint<'t> {
    id: i64,
    name: &'t str,
    kind: char,
    columns: Vec<usize>,
    index: i64,
    condition: &'t str,
}

impl Constraint<'_> {
    fn in_words(&self, table: &Table, is_pretty: bool) -> String {
        match self.kind {
            'p' => format!("PRIMARY KEY ({})", names_in_words(table, &self.columns)),
            'u' => format!("UNIQUE ({})", names_in_words(table, &self.columns)),
            _ if is_pretty => format!("CHECK ({})", self.condition),
            _ => format!("CHECK (({}))", self.condition),
        }
    }
}

fn constraints(table: &Table) -> Vec<Constraint<'_>> {
    let unique = table.indexes.iter().enumerate().filter(|(_, index)| index.is_unique);
    let mut all: Vec<_> = unique
        .map(|(at, index)| Constraint {
            id: constraint_id(table, at),
            name: &index.name,
            kind: if at == 0 { 'p' } else { 'u' },
            columns: index.columns.clone(),
            index: index_id(table, at),
            condition: "",
        })
        .collect();
    let checks = table.checks.iter().enumerate().map(|(at, check)| Constraint {
        id: constraint_id(table, 1024 + at),
        name: &check.name,
        kind: 'c',
        columns: named_in(table, &check.condition),
        index: 0,
        condition: &check.condition,
    });
    all.extend(checks);
    all
}

/// The columns whose names stand in a condition.
fn named_in(table: &Table, condition: &str) -> Vec<usize> {
    let words: Vec<_> = condition.split(|it: char| !it.is_alphanumeric() && it != '_').collect();
    (0..table.columns.len()).filter(|&at| words.contains(&table.columns[at].name.as_str())).collect()
}
