//! Foreign keys of the tables that a statement changes, and of those that its changes lead to.

use std::sync::Arc;

use hashbrown::HashMap;
use polychron_base::TableId;

use super::joins::filtered;
use super::{Binder, Scope};
use crate::casts::{self, Place};
use crate::catalog::{ForeignAction, ForeignKey, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions::resolve;
use crate::plan::{ForeignKeys, Link, Node, Scan, TableKeys};
use crate::types::{ColumnType, Type};

/// One type of all whose equal values have the same form.
fn form(of: Type) -> Type {
    match of {
        Type::Int2 | Type::Int4 => Type::Int8,
        Type::Varchar => Type::Text,
        other => other,
    }
}

/// Whether the columns of a foreign key may have these types, as in PostgreSQL: their types are compared by one kind of index, or the child's
/// becomes the parent's by itself.
fn are_comparable(child: Type, parent: Type) -> bool {
    let family = |of| match of {
        Type::Int2 | Type::Int4 | Type::Int8 => Some(Type::Int8),
        Type::Float4 | Type::Float8 => Some(Type::Float8),
        Type::Text | Type::Varchar | Type::Bpchar => Some(Type::Text),
        Type::Date | Type::Timestamp | Type::Timestamptz => Some(Type::Timestamp),
        _ => None,
    };
    let is_one = family(child).is_some() && family(child) == family(parent);
    (is_one || casts::find(child, parent, Place::Implicit).is_some()) && resolve("=", &[child, parent]).is_ok()
}

/// Refuses a foreign key whose columns have these types in the child and in the parent.
pub(super) fn check_types(key: &ForeignKey, child: &[Type], parent: &[Type]) -> Result<(), SqlError> {
    for ((own, other), (from, of)) in key.columns.iter().zip(&key.parents).zip(child.iter().zip(parent)) {
        if !are_comparable(*from, *of) {
            let message = format!("foreign key constraint \"{}\" cannot be implemented", key.name);
            let detail = format!("Key columns \"{own}\" and \"{other}\" are of incompatible types: {from} and {of}.");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_detail(detail));
        }
    }
    Ok(())
}

impl Binder<'_> {
    /// What a change of the table's rows may lead to.
    pub(super) fn foreign_keys(&mut self, table: &Arc<Table>) -> Result<Arc<ForeignKeys>, SqlError> {
        if table.foreign.is_empty() && table.children.is_empty() {
            return Ok(Arc::default());
        }
        let mut tables: HashMap<TableId, TableKeys> = HashMap::new();
        let mut waiting = vec![table.clone()];
        while let Some(table) = waiting.pop() {
            if tables.contains_key(&table.id) {
                continue;
            }
            let mut keys = TableKeys { checks: self.checks(&table)?, parents: Vec::new(), children: Vec::new() };
            for key in &table.foreign {
                let parent = self.catalog.table(&key.parent)?;
                keys.parents.push(self.link(&table, &parent, key)?);
            }
            for child in &table.children {
                let child = self.catalog.table(child)?;
                for key in child.foreign.iter().filter(|key| key.parent == table.name) {
                    keys.children.push(self.link(&child, &table, key)?);
                    let acts = |action| !matches!(action, ForeignAction::NoAction | ForeignAction::Restrict);
                    if acts(key.on_delete) || acts(key.on_update) {
                        waiting.push(child.clone());
                    }
                }
            }
            tables.insert(table.id, keys);
        }
        Ok(Arc::new(ForeignKeys { tables, drawn: Some(self.drawn.clone()), is_copy: false }))
    }

    fn link(&mut self, child: &Arc<Table>, parent: &Arc<Table>, key: &ForeignKey) -> Result<Arc<Link>, SqlError> {
        let at =
            |table: &Table, names: &[String]| names.iter().filter_map(|name| table.column(name)).collect::<Vec<_>>();
        let (columns, parents) = (at(child, &key.columns), at(parent, &key.parents));
        let of = |table: &Table, columns: &[usize]| columns.iter().map(|&at| table.columns[at].of).collect::<Vec<_>>();
        let (own, others) = (of(child, &columns), of(parent, &parents));
        let find_parent = self.rows_like(parent, (&parents, &others), &own)?;
        let find_children = self.rows_like(child, (&columns, &own), &others)?;
        let is_alike = own.iter().zip(&others).all(|(own, other)| form(own.base) == form(other.base));
        let find_by_own = match is_alike {
            true => None,
            false => Some([
                self.rows_like(parent, (&parents, &others), &others)?,
                self.rows_like(child, (&columns, &own), &own)?,
            ]),
        };
        let mut defaults = Vec::new();
        let mut converted = Vec::new();
        for (number, &column) in columns.iter().enumerate() {
            let value = self.default(child, column)?;
            defaults.push(self.cast(value, own[number], Place::Assignment)?.expr);
            let value = Typed::new(Expr::Column(number), others[number]);
            converted.push(self.cast(value, own[number], Place::Assignment)?.expr);
        }
        let (child, parent, key) = (child.clone(), parent.clone(), key.clone());
        Ok(Arc::new(Link {
            key,
            child,
            parent,
            columns,
            parents,
            find_parent,
            find_children,
            find_by_own,
            defaults,
            converted,
        }))
    }

    /// The rows of a table whose columns are equal to those of the next outer row.
    fn rows_like(
        &mut self,
        table: &Arc<Table>,
        (columns, own): (&[usize], &[ColumnType]),
        types: &[ColumnType],
    ) -> Result<Node, SqlError> {
        let mut parts = Vec::new();
        for (number, &at) in columns.iter().enumerate() {
            let sides = vec![
                Typed::new(Expr::Column(at), own[number]),
                Typed::new(Expr::Outer { level: 1, column: number }, types[number]),
            ];
            parts.push(self.within(Scope::default(), |binder| binder.equality(sides))?);
        }
        Ok(filtered(Node::Scan(Scan::whole(table)), parts))
    }
}
