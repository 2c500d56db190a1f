//! CREATE TABLE and CREATE INDEX.

use polychron_schema::{
    ColumnOrder, ColumnType as Stored, ForeignKeyDefinition, IndexDefinition, MAX_ROW_BYTES, TableDefinition,
};
use sqlparser::ast::{self, ColumnOption, TableConstraint};

use super::changes::scope_of;
use super::{Binder, Scope, column_type, folded, object_name};
use crate::casts::Place;
use crate::catalog::{Catalog, Check, Column, Description, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::types::{Bound, ColumnType, Type};

/// A table to be made: for the engine, and what SQL alone knows of its columns.
#[derive(Clone, Debug)]
pub(crate) struct NewTable {
    pub(crate) definition: TableDefinition,
    pub(crate) description: Description,
}

/// How the engine stores values of a type.
pub(crate) fn stored(of: ColumnType) -> Result<Stored, SqlError> {
    Ok(match (of.base, of.bound) {
        (Type::Bool, _) => Stored::Bool,
        (Type::Int2, _) => Stored::I16,
        (Type::Int4, _) => Stored::I32,
        (Type::Int8 | Type::Oid | Type::Time, _) => Stored::I64,
        (Type::Float4, _) => Stored::F32,
        (Type::Float8, _) => Stored::F64,
        (Type::Numeric, Bound::Digits(precision, scale)) if precision <= 18 => Stored::Decimal { scale },
        (Type::Numeric, Bound::Digits(_, scale)) => Stored::Decimal128 { scale },
        (Type::Numeric, _) => Stored::FixedBytes { bytes: 20 },
        (Type::Text | Type::Varchar | Type::Bpchar, bound) => {
            let characters = if let Bound::Length(length) = bound { length } else { u32::MAX };
            Stored::String { max: characters.saturating_mul(4).min(MAX_ROW_BYTES as u32) }
        }
        (Type::Json | Type::Jsonb, _) => Stored::String { max: MAX_ROW_BYTES as u32 },
        (Type::Bytea | Type::Array(_), _) => Stored::Bytes { max: MAX_ROW_BYTES as u32 },
        (Type::Date, _) => Stored::Date,
        (Type::Timestamp | Type::Timestamptz, _) => Stored::Timestamp,
        (Type::Interval | Type::Uuid, _) => Stored::FixedBytes { bytes: 16 },
        (of, _) if of.is_object() => return Err(SqlError::unsupported(format!("a column of type {of}"))),
        (_, _) => {
            let message = format!("column has pseudo-type {}", of.base);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
    })
}

/// A key, a unique constraint, a foreign key or a CHECK of a table that is being defined.
enum Constraint {
    Primary(Option<String>, Vec<String>),
    Unique(Option<String>, Vec<String>),
    Foreign { columns: Vec<String>, parent: String, parents: Vec<String> },
    Check(Option<String>, Box<ast::Expr>),
}

impl Binder<'_> {
    pub(crate) fn create_table(&mut self, create: &ast::CreateTable) -> Result<NewTable, SqlError> {
        let name = object_name(&create.name)?;
        let unsupported = [
            (create.temporary, "CREATE TEMPORARY TABLE"),
            (create.query.is_some(), "CREATE TABLE AS"),
            (create.like.is_some(), "CREATE TABLE LIKE"),
            (create.partition_by.is_some(), "PARTITION BY"),
            (create.inherits.is_some(), "INHERITS"),
        ];
        if let Some((_, what)) = unsupported.into_iter().find(|(is_there, _)| *is_there) {
            return Err(SqlError::unsupported(what));
        }
        let (mut columns, mut constraints) = (Vec::new(), Vec::new());
        for column in &create.columns {
            self.new_column(column, &mut columns, &mut constraints)?;
        }
        for constraint in &create.constraints {
            constraints.push(constraint_of(constraint)?);
        }
        self.new_table(name, columns, constraints)
    }

    fn new_column(
        &mut self,
        column: &ast::ColumnDef,
        columns: &mut Vec<Column>,
        constraints: &mut Vec<Constraint>,
    ) -> Result<(), SqlError> {
        let name = folded(&column.name);
        if columns.iter().any(|other| other.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let of = column_type(&column.data_type)?;
        let mut new = Column { name: name.clone(), of, nullable: true, default: None };
        for option in &column.options {
            match &option.option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => new.nullable = false,
                ColumnOption::Default(expr) => {
                    let bound = self.within(Scope::default(), |binder| {
                        binder.place = "DEFAULT expressions";
                        binder.expr(expr)
                    })?;
                    self.cast(bound, of, Place::Assignment)?;
                    new.default = Some(expr.to_string());
                }
                ColumnOption::PrimaryKey(_) => {
                    let named = option.name.as_ref().map(folded);
                    constraints.push(Constraint::Primary(named, vec![name.clone()]));
                }
                ColumnOption::Unique(_) => {
                    let named = option.name.as_ref().map(folded);
                    constraints.push(Constraint::Unique(named, vec![name.clone()]));
                }
                ColumnOption::ForeignKey(key) => {
                    let mut foreign = foreign_of(key)?;
                    if let Constraint::Foreign { columns, .. } = &mut foreign {
                        *columns = vec![name.clone()];
                    }
                    constraints.push(foreign);
                }
                ColumnOption::Check(check) => {
                    let named = option.name.as_ref().or(check.name.as_ref()).map(folded);
                    constraints.push(Constraint::Check(named, check.expr.clone()));
                }
                other => return Err(SqlError::unsupported(format!("the column's {other}"))),
            }
        }
        columns.push(new);
        Ok(())
    }

    /// The name and the text of a CHECK. One without a name has that of the table and, where it is about one column, of the column.
    fn new_check(
        &mut self,
        table: &str,
        columns: &[Column],
        (named, expr): (Option<String>, &ast::Expr),
        checks: &[Check],
    ) -> Result<Check, SqlError> {
        let condition = self.within(scope_of(table, columns), |binder| {
            binder.place = "check constraints";
            binder.condition(expr, "CHECK")
        })?;
        let is_taken = |name: &str| checks.iter().any(|check| check.name == name);
        let name = match named {
            Some(name) if is_taken(&name) => {
                let message = format!("check constraint \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            Some(name) => name,
            None => {
                let mut about = std::collections::BTreeSet::new();
                condition.walk(&mut |part| about.extend(if let Expr::Column(at) = part { Some(*at) } else { None }));
                let first = match about.first() {
                    Some(&at) if about.len() == 1 => format!("{table}_{}_check", columns[at].name),
                    _ => format!("{table}_check"),
                };
                let numbered = (1..).map(|number| format!("{first}{number}"));
                let mut names = std::iter::once(first.clone()).chain(numbered);
                names.find(|name| !is_taken(name)).unwrap_or(first)
            }
        };
        Ok(Check { name, condition: expr.to_string() })
    }

    fn new_table(
        &mut self,
        name: String,
        mut columns: Vec<Column>,
        constraints: Vec<Constraint>,
    ) -> Result<NewTable, SqlError> {
        let position = |columns: &[Column], key: &str| {
            let missing = || {
                let message = format!("column \"{key}\" named in key does not exist");
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            };
            let at = columns.iter().position(|column| column.name == key).ok_or_else(missing)?;
            check_key(&columns[at]).map(|()| at)
        };
        let positions = |columns: &[Column], keys: &[String]| {
            keys.iter().map(|key| position(columns, key)).collect::<Result<Vec<_>, _>>()
        };
        let mut checks = Vec::new();
        let (mut definition, mut primary) = (TableDefinition::new(name.clone()), format!("{name}_pkey"));
        for constraint in &constraints {
            let Constraint::Primary(named, key) = constraint else { continue };
            if !definition.key.is_empty() {
                let message = format!("multiple primary keys for table \"{name}\" are not allowed");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            primary = named.clone().unwrap_or(primary);
            definition.key = positions(&columns, key)?;
            definition.key.iter().for_each(|&at| columns[at].nullable = false);
        }
        if definition.key.is_empty() {
            return Err(SqlError::unsupported("a table without primary key"));
        }
        for column in &columns {
            let of = stored(column.of)?;
            definition = match column.nullable {
                true => definition.with_nullable_column(column.name.clone(), of),
                false => definition.with_column(column.name.clone(), of),
            };
        }
        for constraint in constraints {
            match constraint {
                Constraint::Primary(..) => {}
                Constraint::Check(named, expr) => {
                    checks.push(self.new_check(&name, &columns, (named, &expr), &checks)?)
                }
                Constraint::Unique(named, key) => {
                    let at = positions(&columns, &key)?;
                    let named = named.unwrap_or_else(|| format!("{name}_{}_key", key.join("_")));
                    definition = definition.with_index(index(&columns, named, at, &[]).with_unique(true));
                }
                Constraint::Foreign { columns: own, parent, parents } => {
                    let at = positions(&columns, &own)?;
                    self.check_parent(&name, &parent, &parents)?;
                    let key = ForeignKeyDefinition::new(at.clone(), parent);
                    if definition.index_for(&key).is_err() {
                        // The engine finds children by an index; PostgreSQL would read the whole table.
                        let named = format!("{name}_{}_fkey", own.join("_"));
                        definition = definition.with_index(index(&columns, named, at, &[]));
                    }
                    definition = definition.with_foreign_key(key);
                }
            }
        }
        checks.sort_by(|one, other| one.name.cmp(&other.name));
        definition.validate().map_err(|error| SqlError::new(SqlState::INVALID_TABLE_DEFINITION, error.to_string()))?;
        Ok(NewTable { definition, description: Description { columns, primary, checks } })
    }

    /// Only primary keys have children in the engine.
    fn check_parent(&self, own: &str, parent: &str, columns: &[String]) -> Result<(), SqlError> {
        if columns.is_empty() || own == parent {
            return Ok(());
        }
        let table = self.catalog.table(parent)?;
        let key = table.primary().columns.iter().map(|&at| &table.columns[at].name);
        if key.eq(columns) {
            Ok(())
        } else {
            Err(SqlError::unsupported("a foreign key to other columns than a primary key"))
        }
    }
}

fn constraint_of(constraint: &TableConstraint) -> Result<Constraint, SqlError> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            Ok(Constraint::Primary(key.name.as_ref().map(folded), names_of(&key.columns)?))
        }
        TableConstraint::Unique(key) => Ok(Constraint::Unique(key.name.as_ref().map(folded), names_of(&key.columns)?)),
        TableConstraint::ForeignKey(key) => foreign_of(key),
        TableConstraint::Check(check) => Ok(Constraint::Check(check.name.as_ref().map(folded), check.expr.clone())),
        other => Err(SqlError::unsupported(format!("the constraint {other}"))),
    }
}

fn foreign_of(key: &ast::ForeignKeyConstraint) -> Result<Constraint, SqlError> {
    let is_plain = |action: &Option<ast::ReferentialAction>| {
        matches!(action, None | Some(ast::ReferentialAction::NoAction | ast::ReferentialAction::Restrict))
    };
    if !is_plain(&key.on_delete) || !is_plain(&key.on_update) || key.characteristics.is_some() {
        return Err(SqlError::unsupported(format!("the constraint {key}")));
    }
    Ok(Constraint::Foreign {
        columns: key.columns.iter().map(folded).collect(),
        parent: object_name(&key.foreign_table)?,
        parents: key.referred_columns.iter().map(folded).collect(),
    })
}

fn names_of(columns: &[ast::IndexColumn]) -> Result<Vec<String>, SqlError> {
    let name = |column: &ast::IndexColumn| match &column.column.expr {
        ast::Expr::Identifier(name) => Ok(folded(name)),
        other => Err(SqlError::unsupported(format!("the key {other}"))),
    };
    columns.iter().map(name).collect()
}

/// An index whose columns are sorted as SQL does where nothing else is said: upwards, with NULL behind all values.
fn index(columns: &[Column], name: String, at: Vec<usize>, orders: &[ColumnOrder]) -> IndexDefinition {
    let order = |(number, column): (usize, &usize)| {
        let default = ColumnOrder::ASCENDING.with_nulls_last(columns[*column].nullable);
        orders.get(number).copied().unwrap_or(default)
    };
    let orders: Vec<_> = at.iter().enumerate().map(order).collect();
    IndexDefinition::new(name, at).with_orders(orders)
}

/// Bytes of a key have the order of the column's values, and are the same for equal ones.
fn check_key(column: &Column) -> Result<(), SqlError> {
    match column.of.base {
        Type::Json => {
            let message = "data type json has no default operator class for access method \"btree\"";
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
        }
        Type::Numeric if column.of.bound == Bound::None => {
            Err(SqlError::unsupported("a key of type numeric without precision"))
        }
        of @ (Type::Jsonb | Type::Array(_) | Type::Interval) => {
            Err(SqlError::unsupported(format!("a key of type {of}")))
        }
        _ => Ok(()),
    }
}

/// The name, with the first number that makes it free.
fn free_name(catalog: &Catalog, name: &str) -> Result<String, SqlError> {
    let mut free = name.to_owned();
    for number in 1_u64.. {
        if !catalog.is_taken(&free)? {
            break;
        }
        free = format!("{name}{number}");
    }
    Ok(free)
}

/// The table and the index of a CREATE INDEX.
pub(crate) fn create_index(
    catalog: &Catalog,
    create: &ast::CreateIndex,
) -> Result<(std::sync::Arc<Table>, IndexDefinition), SqlError> {
    let table = catalog.table(&object_name(&create.table_name)?)?;
    if create.predicate.is_some() || !create.include.is_empty() || create.nulls_distinct == Some(false) {
        return Err(SqlError::unsupported("an index with WHERE, INCLUDE or NULLS NOT DISTINCT"));
    }
    let (mut at, mut orders) = (Vec::new(), Vec::new());
    for column in &create.columns {
        let ast::Expr::Identifier(name) = &column.column.expr else {
            return Err(SqlError::unsupported("an index of expressions"));
        };
        let name = folded(name);
        let position = table
            .column(&name)
            .ok_or_else(|| SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))?;
        check_key(&table.columns[position])?;
        let descending = matches!(column.column.options.sort, Some(ast::OrderBySort::Desc));
        let nulls_first = column.column.options.nulls_first.unwrap_or(descending);
        let nullable = table.columns[position].nullable;
        orders.push(ColumnOrder { descending, nulls_last: nullable && !nulls_first });
        at.push(position);
    }
    let names: Vec<_> = at.iter().map(|&at| table.columns[at].name.as_str()).collect();
    let name = match &create.name {
        Some(name) => object_name(name)?,
        None => free_name(catalog, &format!("{}_{}_idx", table.name, names.join("_")))?,
    };
    let index = index(&table.columns, name, at, &orders).with_unique(create.unique);
    Ok((table, index))
}
