//! FROM: tables, subqueries and joins, and which index answers their conditions.

use sqlparser::ast::{self, TableFactor};

use super::{Binder, Scope, ScopeColumn, folded, object_name};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::paths;
use crate::plan::{Node, Path, Scan, all_of, conjuncts};

/// What a FROM gives.
pub(super) struct Source {
    pub(super) node: Node,
    pub(super) scope: Scope,
}

impl Binder<'_> {
    pub(super) fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<Source, SqlError> {
        let start = std::mem::replace(&mut self.from_start, self.scopes.len());
        let all = from.iter().try_fold(None, |all: Option<Source>, item| {
            let Some(left) = all else { return self.joins(item).map(Some) };
            let right = self.beside(&left, |binder| binder.joins(item))?;
            joined(left, right, None, false).map(Some)
        });
        self.from_start = start;
        Ok(all?.unwrap_or(Source { node: Node::Nothing, scope: Scope::default() }))
    }

    fn joins(&mut self, item: &ast::TableWithJoins) -> Result<Source, SqlError> {
        let mut source = self.factor(&item.relation)?;
        for join in &item.joins {
            source = self.join(source, join)?;
        }
        Ok(source)
    }

    /// Binds the right side of a join: to it the left row is the next outer one, which is seen by what is `LATERAL`.
    fn beside<O>(&mut self, left: &Source, bind: impl FnOnce(&mut Self) -> Result<O, SqlError>) -> Result<O, SqlError> {
        self.within(Scope { is_aside: true, ..left.scope.clone() }, bind)
    }

    /// A subquery in FROM, which sees what stands to its left if it is `LATERAL`.
    fn derived(&mut self, query: &ast::Query, is_lateral: bool) -> Result<super::query::Query, SqlError> {
        let start = self.from_start;
        let aside: Vec<_> = (start..self.scopes.len()).filter(|&at| is_lateral && self.scopes[at].is_aside).collect();
        aside.iter().for_each(|&at| self.scopes[at].is_aside = false);
        let bound = self.query(query);
        aside.iter().for_each(|&at| self.scopes[at].is_aside = true);
        bound
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<Source, SqlError> {
        match factor {
            TableFactor::Table {
                name, alias, args: None, version: None, sample: None, with_ordinality: false, ..
            } => {
                let table = self.catalog.table(&object_name(name)?)?;
                let named = alias.as_ref().map_or_else(|| table.name.clone(), |alias| folded(&alias.name));
                let columns = table.columns.iter().map(|column| (column.name.clone(), column.of));
                let scope = scope_of(&named, columns.collect(), alias.as_ref())?;
                let columns = (0..table.columns.len()).collect();
                let node = Node::Scan(Scan { table: table.clone(), columns, path: Path::ALL });
                Ok(Source { node, scope })
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let Some(alias) = alias else {
                    let message = "subquery in FROM must have an alias";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                };
                let bound = self.derived(subquery, *lateral)?;
                let columns = bound.columns.into_iter().map(|column| (column.name, column.of)).collect();
                Ok(Source { node: bound.node, scope: scope_of(&folded(&alias.name), columns, Some(alias))? })
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joins(table_with_joins),
            other => Err(SqlError::unsupported(format!("{other} in FROM"))),
        }
    }

    fn join(&mut self, left: Source, join: &ast::Join) -> Result<Source, SqlError> {
        use ast::JoinOperator::{CrossJoin, Inner, Join, Left, LeftOuter};
        let (constraint, is_outer) = match &join.join_operator {
            Join(constraint) | Inner(constraint) => (constraint, false),
            CrossJoin(constraint) => (constraint, false),
            Left(constraint) | LeftOuter(constraint) => (constraint, true),
            _ => return Err(SqlError::unsupported(format!("{join}"))),
        };
        let right = self.beside(&left, |binder| binder.factor(&join.relation))?;
        match constraint {
            ast::JoinConstraint::None => joined(left, right, None, is_outer),
            ast::JoinConstraint::On(condition) => {
                let scope = left.scope.clone().joined(right.scope.clone())?;
                let on = self.within(scope, |binder| {
                    binder.place = "JOIN conditions";
                    binder.condition(condition, "JOIN/ON")
                })?;
                joined(left, right, Some(on), is_outer)
            }
            ast::JoinConstraint::Using(names) => {
                let names = names.iter().map(object_name).collect::<Result<Vec<_>, _>>()?;
                self.join_using(left, right, &names, is_outer)
            }
            ast::JoinConstraint::UsingAlias(..) => Err(SqlError::unsupported("an alias behind USING")),
            ast::JoinConstraint::Natural => Err(SqlError::unsupported("NATURAL JOIN")),
        }
    }

    fn join_using(
        &mut self,
        left: Source,
        mut right: Source,
        names: &[String],
        is_outer: bool,
    ) -> Result<Source, SqlError> {
        let width = left.scope.columns.len();
        let mut parts = Vec::new();
        for name in names {
            let find = |scope: &Scope, side: &str| {
                let found = scope.columns.iter().position(|column| column.name == *name && !column.is_hidden);
                found.ok_or_else(|| {
                    let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
                })
            };
            let (one, other) = (find(&left.scope, "left")?, find(&right.scope, "right")?);
            right.scope.columns[other].is_hidden = true;
            let sides = vec![
                Typed::new(Expr::Column(one), left.scope.columns[one].of),
                Typed::new(Expr::Column(width + other), right.scope.columns[other].of),
            ];
            parts.push(self.equality(sides)?);
        }
        joined(left, right, all_of(parts), is_outer)
    }
}

/// The columns of a table or a subquery in FROM, renamed where the alias says so.
fn scope_of(
    table: &str,
    columns: Vec<(String, crate::types::ColumnType)>,
    alias: Option<&ast::TableAlias>,
) -> Result<Scope, SqlError> {
    let renamed = alias.map_or(&[][..], |alias| &alias.columns);
    if renamed.len() > columns.len() {
        let message = format!(
            "table \"{table}\" has {} columns available but {} columns specified",
            columns.len(),
            renamed.len()
        );
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    let columns = columns.into_iter().enumerate().map(|(at, (name, of))| ScopeColumn {
        table: Some(table.to_owned()),
        name: renamed.get(at).map_or(name, |column| folded(&column.name)),
        of,
        is_hidden: false,
    });
    Ok(Scope::of(columns))
}

fn joined(left: Source, right: Source, on: Option<Expr>, is_outer: bool) -> Result<Source, SqlError> {
    let (left_width, right_width) = (left.scope.columns.len(), right.scope.columns.len());
    let scope = left.scope.joined(right.scope)?;
    let mut parts = Vec::new();
    on.into_iter().for_each(|on| conjuncts(on, &mut parts));
    let right = looked_up(right.node, left_width, &parts);
    let (left, right) = (Box::new(left.node), Box::new(right));
    Ok(Source { node: Node::Join { left, right, on: all_of(parts), is_outer, right_width }, scope })
}

/// Finds the rows of the right side by key, where the condition says what its columns are equal to.
fn looked_up(right: Node, left_width: usize, parts: &[Expr]) -> Node {
    let Node::Scan(scan) = right else { return right };
    if !scan.path.equal.is_empty() || scan.path.lower.is_some() || scan.path.upper.is_some() {
        return Node::Scan(scan);
    }
    let column_of = |at: usize| at.checked_sub(left_width).and_then(|at| scan.columns.get(at).copied());
    let is_of_left = |expr: &Expr| {
        let mut is_of_left = true;
        expr.walk(&mut |it| is_of_left &= !matches!(it, Expr::Column(at) if *at >= left_width));
        is_of_left
    };
    let mut path = paths::choose(&scan.table, parts, &column_of, &is_of_left);
    let values = path.equal.iter_mut().chain(path.lower.iter_mut().chain(&mut path.upper).map(|(value, _)| value));
    for value in values {
        let _ = value.replace(&mut |it| {
            match it {
                Expr::Column(column) => *it = Expr::Outer { level: 1, column: *column },
                Expr::Outer { level, .. } => *level += 1,
                _ => {}
            }
            Ok(false)
        });
    }
    Node::Scan(Scan { path, ..scan })
}

/// The rows of which all parts hold. A scan of one table takes the index that fits; in a join the parts of the left side go there.
pub(crate) fn filtered(node: Node, parts: Vec<Expr>) -> Node {
    match node {
        Node::Scan(mut scan) => {
            let column_of = |at: usize| scan.columns.get(at).copied();
            scan.path = paths::choose(&scan.table, &parts, &column_of, &Expr::is_known);
            with_filter(Node::Scan(scan), parts)
        }
        Node::Join { left, right, on, is_outer: false, right_width } => {
            let width = left.width();
            let mut both: Vec<Expr> = parts;
            on.into_iter().for_each(|on| conjuncts(on, &mut both));
            let is_of_left = |expr: &Expr| {
                let mut is_of_left = true;
                expr.walk(&mut |it| is_of_left &= !matches!(it, Expr::Column(at) if *at >= width));
                is_of_left
            };
            let (of_left, others): (Vec<_>, Vec<_>) = both.into_iter().partition(is_of_left);
            let left = Box::new(filtered(*left, of_left));
            let right = Box::new(looked_up(*right, width, &others));
            Node::Join { left, right, on: all_of(others), is_outer: false, right_width }
        }
        other => with_filter(other, parts),
    }
}

fn with_filter(node: Node, parts: Vec<Expr>) -> Node {
    match all_of(parts) {
        Some(condition) => Node::Filter { input: Box::new(node), condition },
        None => node,
    }
}
