//! The objects of a catalog with their ids, and what the relations of the system show of them.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{Binder, table_id};
use crate::bind::literals::constant;
use crate::casts::Place;
use crate::catalog::{Catalog, Column, Index, Object, Table, View};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::procedures::Procedure;
use crate::sequences::Sequence;
use crate::types::Type;

/// Ids of views and sequences follow from their names, and are greater than those of tables.
const FIRST_NAMED: i64 = 3 << 30;
const NAMED_COUNT: i64 = 1 << 30;

/// All objects. Those of a kind are in the order of their names.
pub(super) struct Objects {
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) views: Vec<(i64, Arc<View>)>,
    pub(super) sequences: Vec<(i64, Arc<Sequence>)>,
    pub(super) procedures: Vec<(i64, Arc<Procedure>)>,
}

impl Objects {
    pub(super) fn of(catalog: &Catalog) -> Result<Self, SqlError> {
        let mut all = Self { tables: Vec::new(), views: Vec::new(), sequences: Vec::new(), procedures: Vec::new() };
        let mut taken = HashSet::new();
        let mut id_of = |name: &str| {
            // FNV-1a: the same in each process.
            let hash = name
                .bytes()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            let mut at = (hash % NAMED_COUNT as u64) as i64;
            while !taken.insert(at) {
                at = (at + 1) % NAMED_COUNT;
            }
            FIRST_NAMED + at
        };
        for object in catalog.objects()? {
            match object {
                Object::Table(table) => all.tables.push(table),
                Object::View(view) => all.views.push((id_of(&view.name), view)),
                Object::Sequence(sequence) => all.sequences.push((id_of(&sequence.name), sequence)),
                Object::Procedure(procedure) => {
                    all.procedures.push((id_of(&crate::procedures::key(&procedure.name)), procedure));
                }
            }
        }
        Ok(all)
    }

    pub(super) fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The relations that are no indexes, with their ids.
    pub(super) fn relations(&self) -> impl Iterator<Item = (i64, &str)> {
        let tables = self.tables.iter().map(|table| (table_id(table), table.name.as_str()));
        let views = self.views.iter().map(|(id, view)| (*id, view.name.as_str()));
        tables.chain(views).chain(self.sequences.iter().map(|(id, sequence)| (*id, sequence.name.as_str())))
    }

    /// The table and the number of the column with which a sequence goes.
    pub(super) fn owner(&self, sequence: &Sequence) -> Option<(&Table, i64)> {
        let (table, column) = sequence.definition.owner.as_ref()?;
        let table = self.table(table)?;
        Some((table, number(table, table.column(column)?)))
    }

    /// The sequence of a column, with its id.
    pub(super) fn sequence_of(&self, table: &str, column: &str) -> Option<&(i64, Arc<Sequence>)> {
        let is_owner = |owner: &(String, String)| owner.0 == table && owner.1 == column;
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
pub(super) fn default_in_words(column: &Column) -> Option<String> {
    let default = column.default.as_deref().filter(|_| column.identity.is_none())?;
    let sequence = default.strip_prefix("nextval('").and_then(|rest| rest.split_once('\''));
    if let Some((name, ")" | "::regclass)")) = sequence {
        return Some(format!("nextval('{name}'::regclass)"));
    }
    let inside = default.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let is_literal = inside.is_some_and(|inside| !inside.replace("''", "").contains('\''));
    Some(if is_literal { format!("{default}::{}", column.of.base) } else { default.to_owned() })
}

/// The name of a sequence with its schema.
pub(super) fn name_in_schema(sequence: &Sequence) -> String {
    format!("public.{}", super::quoted(&sequence.name))
}

/// The text of an argument that is known when the statement is bound.
fn known_text(argument: &Typed) -> Option<&str> {
    let Expr::Constant(OwnedDatum::Text(text)) = &argument.expr else { return None };
    Some(text)
}

impl Binder<'_> {
    /// `pg_get_serial_sequence` of a table and a column. Errors are those of constants.
    pub(in crate::bind) fn serial_sequence(&mut self, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
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
        let table = self.catalog.table(&super::plain_name(table))?;
        if table.visible().all(|(_, own)| own.name != column) {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
        let objects = Objects::of(&self.catalog)?;
        let name = objects.sequence_of(&table.name, column).map(|(_, sequence)| name_in_schema(sequence));
        let value = name.map_or(OwnedDatum::NULL, super::text);
        Ok(Typed::new(Expr::Constant(value), Type::Text))
    }

    /// `to_regclass`: the relation of this name, or NULL.
    pub(in crate::bind) fn known_regclass(&mut self, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let first = arguments.pop().filter(|_| arguments.is_empty());
        let Some(name) = first.as_ref().and_then(known_text) else {
            return Err(SqlError::unsupported("to_regclass of a computed name"));
        };
        match self.id_of_name(Type::Regclass, name) {
            Ok(id) => Ok(constant(Datum::Int(id), Type::Regclass)),
            Err(error) if error.state() == SqlState::UNDEFINED_TABLE => Ok(constant(Datum::Null, Type::Regclass)),
            Err(error) => Err(error),
        }
    }
}
