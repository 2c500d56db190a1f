//! Indexes and constraints in words.

use std::sync::Arc;

use super::objects::{Objects, in_schema, indexes};
use super::{constraint_id, index_id, quoted};
use crate::catalog::{ForeignAction, ForeignKey, Index, Table};

fn names_in_words(table: &Table, columns: &[usize]) -> String {
    columns.iter().map(|&at| quoted(&table.columns[at].name)).collect::<Vec<_>>().join(", ")
}

pub(super) fn index_in_words(objects: &Objects, table: &Table, index: &Index, is_pretty: bool) -> String {
    let unique = if index.is_unique { "UNIQUE " } else { "" };
    let name = if is_pretty { objects.shown(&table.name) } else { in_schema(&table.name) };
    let method = if index.is_ordered { "btree" } else { "hash" };
    let columns = index.columns.iter().enumerate().map(|(position, &at)| {
        let order = if index.is_ascending(position) { "" } else { " DESC" };
        format!("{}{order}", quoted(&table.columns[at].name))
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    format!("CREATE {unique}INDEX {} ON {name} USING {method} ({columns})", quoted(&index.name),)
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
            Kind::Check(condition) if is_pretty => format!("CHECK ({condition})"),
            Kind::Check(condition) => format!("CHECK (({condition}))"),
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
        columns: index.columns.clone(),
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
            index.is_unique
                && index.columns.len() == columns.len()
                && columns.iter().all(|column| index.columns.contains(column))
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
