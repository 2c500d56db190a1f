//! INSERT, UPDATE and DELETE.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlparser::ast;

use super::joins::filtered;
use super::query::null;
use super::{Binder, Scope, ScopeColumn, folded, object_name};
use crate::casts::Place;
use crate::catalog::{Column, Index, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::plan::{
    Condition, Node, OnConflict, OnConflictUpdate, OutputColumn, Path, Plan, Returning, Scan, conjuncts,
};

impl Binder<'_> {
    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> Result<Plan, SqlError> {
        let ast::TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::unsupported(format!("INSERT INTO {}", insert.table)));
        };
        let table = self.catalog.table(&object_name(name)?)?;
        if insert.or.is_some() || insert.replace_into || insert.overriding.is_some() || !insert.assignments.is_empty() {
            return Err(SqlError::unsupported("this form of INSERT"));
        }
        let targets = self.insert_targets(&table, &insert.columns)?;
        let source = match &insert.source {
            None => Node::Rows(vec![self.insert_row(&table, &targets, Vec::new())?]),
            Some(query) => self.insert_source(&table, &targets, query)?,
        };
        let alias = insert.table_alias.as_ref().map(|alias| folded(&alias.alias));
        let named = alias.as_deref().unwrap_or(&table.name);
        let on_conflict = match &insert.on {
            None => OnConflict::Fail,
            Some(ast::OnInsert::OnConflict(on)) => self.on_conflict(&table, named, on)?,
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
        };
        let returning = self.returning(&table, named, insert.returning.as_deref())?;
        let checks = self.checks(&table)?;
        Ok(Plan::Insert { table, source, checks, on_conflict, returning })
    }

    /// The CHECKs of a table, over all of its columns.
    fn checks(&mut self, table: &Table) -> Result<Vec<Condition>, SqlError> {
        let scope = scope_of(&table.name, &table.columns);
        let bound = table.checks.iter().map(|check| {
            let expr = crate::parse::expression(&check.condition)?;
            let holds = self.within(scope.clone(), |binder| binder.condition(&expr, "CHECK"))?;
            Ok(Condition { name: check.name.clone(), holds })
        });
        bound.collect()
    }

    fn on_conflict(&mut self, table: &Table, named: &str, on: &ast::OnConflict) -> Result<OnConflict, SqlError> {
        let index = on.conflict_target.as_ref().map(|target| arbiter(table, target)).transpose()?;
        let update = match &on.action {
            ast::OnConflictAction::DoNothing => return Ok(OnConflict::Skip(index)),
            ast::OnConflictAction::DoUpdate(update) => update,
        };
        let Some(index) = index else {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        let scope = scope_of(named, &table.columns).joined(scope_of("excluded", &table.columns))?;
        let (set, values) = self.assignments(table, &scope, &update.assignments)?;
        let condition = update.selection.as_ref().map(|condition| {
            self.within(scope.clone(), |binder| {
                binder.place = "WHERE";
                binder.condition(condition, "WHERE")
            })
        });
        Ok(OnConflict::Update(OnConflictUpdate { index, set, values, condition: condition.transpose()? }))
    }

    /// Positions of the columns that are given.
    fn insert_targets(&self, table: &Table, names: &[ast::ObjectName]) -> Result<Vec<usize>, SqlError> {
        if names.is_empty() {
            return Ok((0..table.columns.len()).collect());
        }
        let mut targets = Vec::new();
        for name in names {
            let position = target(table, &object_name(name)?)?;
            if targets.contains(&position) {
                let message = format!("column \"{}\" specified more than once", table.columns[position].name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            targets.push(position);
        }
        Ok(targets)
    }

    fn insert_source(&mut self, table: &Table, targets: &[usize], query: &ast::Query) -> Result<Node, SqlError> {
        let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.with.is_none();
        if let (ast::SetExpr::Values(values), true) = (&*query.body, is_plain) {
            // Each value takes the type of its column, not one that it has in common with the others.
            let mut rows = Vec::new();
            for row in &values.rows {
                let mut given = Vec::new();
                for expr in row.iter() {
                    given.push(match expr {
                        ast::Expr::Identifier(name) if is_default(name) => None,
                        expr => Some(self.within(Scope::default(), |binder| binder.expr(expr))?),
                    });
                }
                rows.push(self.insert_row(table, targets, given)?);
            }
            return Ok(Node::Rows(rows));
        }
        let bound = self.query(query)?;
        let given = bound.columns.iter().enumerate();
        let given = given.map(|(at, column)| Some(Typed::new(Expr::Column(at), column.of))).collect();
        let columns = self.insert_row(table, targets, given)?;
        Ok(Node::Project { input: Box::new(bound.node), columns })
    }

    /// All columns of a row, of which some are given; `None` stands for the default.
    fn insert_row(
        &mut self,
        table: &Table,
        targets: &[usize],
        given: Vec<Option<Typed>>,
    ) -> Result<Vec<Expr>, SqlError> {
        if given.len() > targets.len() {
            let message = "INSERT has more expressions than target columns";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut row: Vec<Option<Typed>> = vec![None; table.columns.len()];
        for (position, value) in targets.iter().zip(given) {
            row[*position] = value;
        }
        let all = row.into_iter().enumerate().map(|(at, value)| {
            let value = value.map_or_else(|| self.default(table, at), Ok)?;
            self.assigned(table, at, value)
        });
        all.collect()
    }

    fn default(&mut self, table: &Table, column: usize) -> Result<Typed, SqlError> {
        match &table.columns[column].default {
            None => Ok(null()),
            Some(text) => {
                let expr = crate::parse::expression(text)?;
                self.within(Scope::default(), |binder| binder.expr(&expr))
            }
        }
    }

    /// A value as one of a column.
    fn assigned(&mut self, table: &Table, column: usize, value: Typed) -> Result<Expr, SqlError> {
        let (name, of) = (&table.columns[column].name, table.columns[column].of);
        let from = value.base();
        let cast = self.cast(value, of, Place::Assignment).map_err(|error| {
            if error.state() != SqlState::DATATYPE_MISMATCH {
                return error;
            }
            let message = format!("column \"{name}\" is of type {} but expression is of type {from}", of.base);
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("You will need to rewrite or cast the expression.")
        });
        Ok(cast?.expr)
    }

    pub(crate) fn update(&mut self, update: &ast::Update) -> Result<Plan, SqlError> {
        if update.from.is_some() || !update.table.joins.is_empty() || update.limit.is_some() {
            return Err(SqlError::unsupported("UPDATE with FROM"));
        }
        let (table, scope) = self.changed_table(&update.table.relation)?;
        let source = self.rows_to_change(&table, scope.clone(), update.selection.as_ref())?;
        let (set, values) = self.assignments(&table, &scope, &update.assignments)?;
        let columns = (0..table.columns.len()).map(Expr::Column).chain(values).collect();
        let named = scope.columns.first().and_then(|column| column.table.as_ref()).unwrap_or(&table.name);
        let returning = self.returning(&table, named, update.returning.as_deref())?;
        let checks = self.checks(&table)?;
        let source = Node::Project { input: Box::new(source), columns };
        Ok(Plan::Update { table, source, set, checks, returning })
    }

    /// The columns that are set, and their new values.
    fn assignments(
        &mut self,
        table: &Table,
        scope: &Scope,
        assignments: &[ast::Assignment],
    ) -> Result<(Vec<usize>, Vec<Expr>), SqlError> {
        let (mut set, mut values) = (Vec::new(), Vec::new());
        for assignment in assignments {
            let ast::AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(SqlError::unsupported("SET of several columns at once"));
            };
            let position = target(table, &object_name(name)?)?;
            if set.contains(&position) {
                let name = &table.columns[position].name;
                let message = format!("multiple assignments to same column \"{name}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let value = match &assignment.value {
                ast::Expr::Identifier(name) if is_default(name) => self.default(table, position)?,
                value => self.within(scope.clone(), |binder| {
                    binder.place = "UPDATE";
                    binder.expr(value)
                })?,
            };
            values.push(self.assigned(table, position, value)?);
            set.push(position);
        }
        Ok((set, values))
    }

    /// Deletions of all rows.
    pub(crate) fn truncate(&mut self, truncate: &ast::Truncate) -> Result<Plan, SqlError> {
        let is_plain = truncate.cascade != Some(ast::CascadeOption::Cascade)
            && truncate.partitions.is_none()
            && truncate.identity != Some(ast::TruncateIdentityOption::Restart);
        if !is_plain {
            return Err(SqlError::unsupported(truncate));
        }
        let tables = truncate.table_names.iter().map(|target| {
            let table = self.catalog.table(&object_name(&target.name)?)?;
            let columns = (0..table.columns.len()).collect();
            let node = Node::Scan(Scan { table: table.clone(), columns, path: Path::ALL });
            Ok((table, node))
        });
        Ok(Plan::Truncate(tables.collect::<Result<_, SqlError>>()?))
    }

    pub(crate) fn delete(&mut self, delete: &ast::Delete) -> Result<Plan, SqlError> {
        let from = match &delete.from {
            ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from) => from,
        };
        let ([item], None, true) = (&from[..], &delete.using, delete.tables.is_empty()) else {
            return Err(SqlError::unsupported("DELETE with USING"));
        };
        let (table, scope) = self.changed_table(&item.relation)?;
        let alias = scope.columns.first().and_then(|column| column.table.clone());
        let source = self.rows_to_change(&table, scope, delete.selection.as_ref())?;
        let named = alias.as_deref().unwrap_or(&table.name);
        let returning = self.returning(&table, named, delete.returning.as_deref())?;
        Ok(Plan::Delete { table, source, returning })
    }

    fn changed_table(&mut self, factor: &ast::TableFactor) -> Result<(Arc<Table>, Scope), SqlError> {
        let ast::TableFactor::Table { name, alias, .. } = factor else {
            return Err(SqlError::unsupported(format!("a change of {factor}")));
        };
        let table = self.catalog.table(&object_name(name)?)?;
        let alias = alias.as_ref().map(|alias| folded(&alias.name));
        let scope = scope_of(alias.as_deref().unwrap_or(&table.name), &table.columns);
        Ok((table, scope))
    }

    fn rows_to_change(
        &mut self,
        table: &Arc<Table>,
        scope: Scope,
        condition: Option<&ast::Expr>,
    ) -> Result<Node, SqlError> {
        let columns = (0..table.columns.len()).collect();
        let node = Node::Scan(Scan { table: table.clone(), columns, path: Path::ALL });
        let Some(condition) = condition else { return Ok(node) };
        let mut parts = Vec::new();
        self.place = "WHERE";
        conjuncts(self.within(scope, |binder| binder.condition(condition, "WHERE"))?, &mut parts);
        Ok(filtered(node, parts))
    }

    fn returning(
        &mut self,
        table: &Table,
        named: &str,
        items: Option<&[ast::SelectItem]>,
    ) -> Result<Option<Returning>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        self.place = "RETURNING";
        let mut list = Vec::new();
        self.within(scope_of(named, &table.columns), |binder| {
            items.iter().try_for_each(|item| binder.select_item(item, &mut list))
        })?;
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for (name, typed) in list {
            let typed = self.known(typed)?;
            names.push(OutputColumn { name, of: typed.of });
            columns.push(typed.expr);
        }
        Ok(Some(Returning { columns, names }))
    }
}

/// Columns of a table, which goes by a name.
pub(super) fn scope_of(named: &str, columns: &[Column]) -> Scope {
    Scope::of(columns.iter().map(|column| ScopeColumn::new(Some(named), &column.name, column.of)))
}

/// The position of the unique index that ON CONFLICT is about.
fn arbiter(table: &Table, target: &ast::ConflictTarget) -> Result<usize, SqlError> {
    match target {
        ast::ConflictTarget::Columns { predicate: Some(_), .. } => {
            Err(SqlError::unsupported("ON CONFLICT with WHERE behind its columns"))
        }
        ast::ConflictTarget::Columns { columns, .. } => {
            let at = columns.iter().map(|column| {
                let name = folded(column);
                let missing = || SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
                table.column(&name).ok_or_else(missing)
            });
            let at = at.collect::<Result<BTreeSet<_>, _>>()?;
            let is_meant =
                |index: &Index| index.is_unique && index.columns.iter().copied().collect::<BTreeSet<_>>() == at;
            table.indexes.iter().position(is_meant).ok_or_else(|| {
                let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
            })
        }
        ast::ConflictTarget::OnConstraint(name) => {
            let name = object_name(name)?;
            table.indexes.iter().position(|index| index.is_unique && index.name == name).ok_or_else(|| {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                SqlError::new(SqlState::UNDEFINED_OBJECT, message)
            })
        }
    }
}

fn target(table: &Table, name: &str) -> Result<usize, SqlError> {
    let missing = || {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    };
    table.column(name).ok_or_else(missing)
}

/// The parser takes the keyword to be a name.
fn is_default(name: &ast::Ident) -> bool {
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")
}
