//! LOCK TABLE, and what FOR UPDATE and its like say of rows.
//!
//! Transactions are serializable without locks: what one has read, no other one changes before it in the order. So the weak modes of LOCK TABLE, which only keep definitions
//! away, are what any statement does that uses the table.

use sqlparser::ast;

use super::{Binder, Written, folded};
use crate::catalog::Object;
use crate::error::{SqlError, SqlState};
use crate::plan::Plan;
use crate::roles::bits;

impl Binder<'_> {
    pub(super) fn lock(&mut self, lock: &ast::Lock) -> Result<Plan, SqlError> {
        use ast::LockTableMode::{AccessExclusive, AccessShare, RowExclusive, RowShare};
        let mode = lock.lock_mode.clone().unwrap_or(AccessExclusive);
        if !matches!(mode, AccessShare | RowShare | RowExclusive) {
            return Err(SqlError::unsupported(format!("LOCK TABLE IN {mode} MODE")));
        }
        let any = bits::INSERT | bits::UPDATE | bits::DELETE | bits::TRUNCATE;
        for target in &lock.tables {
            let written = Written::of(&target.name)?;
            let object = match self.catalog.find_written(&written)? {
                Some((_, Object::Table(_))) => Object::Table(self.catalog.written_table(&target.name)?),
                Some((_, view @ Object::View(_))) => view,
                Some(_) => {
                    let message = format!("\"{}\" is not a table or view", written.name);
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
                None => return Err(written.missing()),
            };
            self.catalog.need_any(object, if mode == AccessShare { any | bits::SELECT } else { any });
        }
        Ok(Plan::Lock)
    }
}

/// Refuses FOR UPDATE and its like where rows are not those of tables, and of tables that are not in FROM.
pub(super) fn check(query: &ast::Query) -> Result<(), SqlError> {
    let Some(first) = query.locks.first() else { return Ok(()) };
    let clause = format!("FOR {}", first.lock_type);
    let refused = |with: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{clause} {with}")));
    let select = match &*query.body {
        ast::SetExpr::Select(select) => select,
        ast::SetExpr::Values(_) => return refused("cannot be applied to VALUES"),
        ast::SetExpr::SetOperation { .. } => return refused("is not allowed with UNION/INTERSECT/EXCEPT"),
        _ => return Ok(()),
    };
    match (&select.distinct, &select.group_by, &select.having) {
        (Some(ast::Distinct::Distinct | ast::Distinct::On(_)), ..) => {
            return refused("is not allowed with DISTINCT clause");
        }
        (_, ast::GroupByExpr::Expressions(keys, _), _) if !keys.is_empty() => {
            return refused("is not allowed with GROUP BY clause");
        }
        (.., Some(_)) => return refused("is not allowed with HAVING clause"),
        _ => {}
    }
    let mut names = Vec::new();
    select.from.iter().for_each(|item| called(item, &mut names));
    for table in query.locks.iter().filter_map(|lock| lock.of.as_ref()) {
        let name = super::plain_name(table)?;
        if !names.contains(&name) {
            let message = format!("relation \"{name}\" in {clause} clause not found in FROM clause");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
    }
    Ok(())
}

/// What the parts of a FROM are called.
fn called(item: &ast::TableWithJoins, names: &mut Vec<String>) {
    let parts = std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation));
    for part in parts {
        match part {
            ast::TableFactor::Table { alias: Some(alias), .. }
            | ast::TableFactor::Derived { alias: Some(alias), .. }
            | ast::TableFactor::Function { alias: Some(alias), .. } => names.push(folded(&alias.name)),
            ast::TableFactor::Table { name, .. } => names.extend(Written::of(name).ok().map(|written| written.name)),
            ast::TableFactor::NestedJoin { table_with_joins, .. } => called(table_with_joins, names),
            _ => {}
        }
    }
}
