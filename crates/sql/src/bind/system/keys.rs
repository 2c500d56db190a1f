//! Indexes and constraints in words.

use std::sync::Arc;

use super::objects::{Objects, in_schema, indexes};
use super::words::{condition_in_words, expression_in_words, peeled, unwrapped};
use super::{constraint_id, index_id, quoted};
use crate::catalog::{ForeignAction, ForeignKey, Index, Table};
use crate::computed;

fn names_in_words(table: &Table, columns: &[usize]) -> String {
    columns.iter().map(|&at| quoted(&table.columns[at].name)).collect::<Vec<_>>().join(", ")
}

pub(super) fn index_in_words(objects: &Objects, table: &Table, index: &Index, is_pretty: bool) -> String {
    let unique = if index.is_unique { "UNIQUE " } else { "" };
    let name = if is_pretty { objects.shown(&table.name) } else { in_schema(&table.name) };
    let method = if index.is_ordered { "btree" } else { "hash" };
    let columns = parts(table, index).map(|(at, position)| {
        let order = index.orders.get(position).copied().unwrap_or_default();
        let has_nulls = table.columns[index.columns[position]].nullable;
        let nulls = match (order.descending, order.nulls_last) {
            _ if !has_nulls => "",
            (false, false) => " NULLS FIRST",
            (true, true) => " NULLS LAST",
            _ => "",
        };
        format!("{}{}{nulls}", part_in_words(table, at, is_pretty), if order.descending { " DESC" } else { "" })
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    let include = match table.includes.get(&index.name) {
        Some(names) => format!(" INCLUDE ({})", names.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(", ")),
        None => String::new(),
    };
    let condition = match table.condition(index) {
        Some(condition) if is_pretty => format!(" WHERE {}", unwrapped(&condition_in_words(condition))),
        Some(condition) => format!(" WHERE {}", condition_in_words(condition)),
        None => String::new(),
    };
    format!("CREATE {unique}INDEX {} ON {name} USING {method} ({columns}){include}{condition}", quoted(&index.name))
}

/// The columns that the keys of an index have, and their positions in it.
pub(super) fn parts<'t>(table: &'t Table, index: &'t Index) -> impl Iterator<Item = (usize, usize)> + 't {
    let keys = table.keys(index);
    let first = index.columns.len() - keys.len();
    keys.iter().enumerate().map(move |(number, &at)| (table.source(at), first + number))
}

/// A part of a key in words.
pub(super) fn part_in_words(table: &Table, at: usize, is_pretty: bool) -> String {
    match table.expression(at) {
        Some(text) if is_pretty => computed::in_words(unwrapped(&expression_in_words(text))),
        Some(text) => computed::in_words(&expression_in_words(text)),
        None => quoted(&table.columns[at].name),
    }
}

/// The expressions of an index, as `pg_get_expr` shows them.
pub(super) fn expressions_in_words(table: &Table, index: &Index) -> Option<String> {
    let texts = parts(table, index).filter_map(|(at, _)| table.expression(at)).map(expression_in_words);
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// A constraint of a table.
pub(super) struct Constraint<'t> {
    pub(super) id: i64,
    pub(super) name: &'t str,
    pub(super) columns: Vec<usize>,
    /// The id of the index that it has, or leads to.
    pub(super) index: i64,
    pub(super) kind: Kind<'t>,
}

pub(super) enum Kind<'t> {
    Primary,
    Unique,
    Check(&'t str),
    Foreign(Foreign<'t>),
}

/// What a foreign key leads to.
pub(super) struct Foreign<'t> {
    pub(super) key: &'t ForeignKey,
    pub(super) parent: &'t Arc<Table>,
    pub(super) columns: Vec<usize>,
    pub(super) index: Option<&'t Index>,
}

/// `confupdtype` and `confdeltype`, and the words for it.
pub(super) fn action(of: ForeignAction) -> (&'static str, &'static str) {
    match of {
        ForeignAction::NoAction => ("a", "NO ACTION"),
        ForeignAction::Restrict => ("r", "RESTRICT"),
        ForeignAction::Cascade => ("c", "CASCADE"),
        ForeignAction::SetNull => ("n", "SET NULL"),
        ForeignAction::SetDefault => ("d", "SET DEFAULT"),
    }
}

impl Constraint<'_> {
    /// `contype`, and the words for it.
    pub(super) fn kind_in_words(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Primary => ("p", "PRIMARY KEY"),
            Kind::Unique => ("u", "UNIQUE"),
            Kind::Check(_) => ("c", "CHECK"),
            Kind::Foreign(_) => ("f", "FOREIGN KEY"),
        }
    }

    pub(super) fn foreign(&self) -> Option<&Foreign<'_>> {
        if let Kind::Foreign(foreign) = &self.kind { Some(foreign) } else { None }
    }

    pub(super) fn in_words(&self, objects: &Objects, table: &Table, is_pretty: bool) -> String {
        let columns = names_in_words(table, &self.columns);
        match &self.kind {
            Kind::Primary | Kind::Unique => format!("{} ({columns})", self.kind_in_words().1),
            Kind::Check(condition) if is_pretty => format!("CHECK ({})", peeled(condition)),
            Kind::Check(condition) => format!("CHECK (({}))", peeled(condition)),
            Kind::Foreign(Foreign { key, parent, columns: parents, .. }) => {
                let (name, parents) = (objects.shown(&parent.name), names_in_words(parent, parents));
                let mut words = format!("FOREIGN KEY ({columns}) REFERENCES {name}({parents})");
                for (what, of) in [(" ON UPDATE ", key.on_update), (" ON DELETE ", key.on_delete)] {
                    if of != ForeignAction::NoAction {
                        words.extend([what, action(of).1]);
                    }
                }
                words.push_str(if key.deferrable { " DEFERRABLE" } else { "" });
                words.push_str(if key.deferred { " INITIALLY DEFERRED" } else { "" });
                words
            }
        }
    }
}

pub(super) fn constraints<'t>(objects: &'t Objects, table: &'t Table) -> Vec<Constraint<'t>> {
    let is_constraint = |at: usize, index: &Index| at == 0 || table.constraints.contains(&index.name);
    let of_indexes = indexes(table).filter(|(at, index)| is_constraint(*at, index)).map(|(at, index)| Constraint {
        id: constraint_id(table, at),
        name: &index.name,
        columns: table.sources(index),
        index: index_id(table, at),
        kind: if at == 0 { Kind::Primary } else { Kind::Unique },
    });
    let checks = table.checks.iter().enumerate().map(|(at, check)| Constraint {
        id: constraint_id(table, 1024 + at),
        name: &check.name,
        columns: named_in(table, &check.condition),
        index: 0,
        kind: Kind::Check(&check.condition),
    });
    let foreign = table.foreign.iter().enumerate().filter_map(|(at, key)| {
        let parent = objects.table(&key.parent)?;
        let columns: Vec<_> = key.parents.iter().filter_map(|name| parent.column(name)).collect();
        let is_of = |index: &Index| {
            let own = parent.sources(index);
            index.is_unique
                && parent.is_plain(index)
                && own.len() == columns.len()
                && columns.iter().all(|column| own.contains(column))
        };
        let index = indexes(parent).find(|(_, index)| is_of(index));
        Some(Constraint {
            id: constraint_id(table, 1536 + at),
            name: &key.name,
            columns: key.columns.iter().filter_map(|name| table.column(name)).collect(),
            index: index.map_or(0, |(position, _)| index_id(parent, position)),
            kind: Kind::Foreign(Foreign { key, parent, columns, index: index.map(|(_, index)| index) }),
        })
    });
    of_indexes.chain(checks).chain(foreign).collect()
}

/// The columns whose names stand in a condition.
fn named_in(table: &Table, condition: &str) -> Vec<usize> {
    let words: Vec<_> = condition.split(|it: char| !it.is_alphanumeric() && it != '_').collect();
    table.visible().filter(|(_, column)| words.contains(&column.name.as_str())).map(|(at, _)| at).collect()
}
