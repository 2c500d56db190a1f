//! What an UPDATE, and ON CONFLICT, set: columns one by one, or several at once from a row or a subquery.

use std::borrow::Cow;

use sqlparser::ast;

use super::changes::{is_default, target};
use super::{Binder, Scope, plain_name};
use crate::catalog::{Identity, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;

/// Columns, each with the expression that it is set to.
type Pairs<'a> = Vec<(&'a ast::ObjectName, Cow<'a, ast::Expr>)>;

/// The name under which the subquery of several columns stands in those of each of them.
const SOURCE: &str = "\u{2}source";

fn other_count() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "number of columns does not match number of values")
}

/// A name that no statement says.
fn own_name(number: usize) -> ast::Ident {
    ast::Ident::with_quote('"', format!("{SOURCE}{number}"))
}

/// The keyword that an expression is a call of, to the parser.
fn called(expr: &ast::Expr) -> Option<&'static str> {
    let ast::Expr::Function(ast::Function { name, .. }) = expr else { return None };
    let name = plain_name(name).ok()?;
    ["row", "values"].into_iter().find(|word| *word == name)
}

/// The values of a row that is written as one.
pub(super) fn row(value: &ast::Expr) -> Option<Vec<&ast::Expr>> {
    match value {
        ast::Expr::Tuple(values) => Some(values.iter().collect()),
        // The parser takes VALUES in parentheses to be a call.
        ast::Expr::Nested(inner) if called(inner) == Some("values") => row(inner),
        ast::Expr::Function(ast::Function { args: ast::FunctionArguments::List(list), .. })
            if matches!(called(value), Some("row" | "values")) =>
        {
            let values = list.args.iter().map(|argument| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => Some(value),
                _ => None,
            });
            values.collect()
        }
        _ => None,
    }
}

/// The value of one column of a query that gives one row, as a subquery of its own.
fn column_of(query: &ast::Query, number: usize, count: usize) -> Result<ast::Expr, SqlError> {
    let mut wrapped = crate::parse::expression("(SELECT 1 FROM (SELECT 1) s (c))")?;
    let ast::Expr::Subquery(outer) = &mut wrapped else { return Err(other_count()) };
    let ast::SetExpr::Select(select) = &mut *outer.body else { return Err(other_count()) };
    select.projection = vec![ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(own_name(number)))];
    let item = select.from.first_mut().map(|item| &mut item.relation);
    let Some(ast::TableFactor::Derived { subquery, alias: Some(alias), .. }) = item else { return Err(other_count()) };
    **subquery = query.clone();
    alias.name = own_name(count);
    alias.columns = (0..count).map(|at| ast::TableAliasColumnDef { name: own_name(at), data_type: None }).collect();
    Ok(wrapped)
}

impl Binder<'_> {
    /// The columns that are set, and their new values.
    pub(super) fn assignments(
        &mut self,
        table: &Table,
        scope: &Scope,
        assignments: &[ast::Assignment],
    ) -> Result<(Vec<usize>, Vec<Expr>), SqlError> {
        let (mut set, mut values) = (Vec::new(), Vec::new());
        for (name, value) in self.pairs(scope, assignments)? {
            let position = target(table, &plain_name(name)?).map_err(|error| super::places::of_target(error, name))?;
            if set.contains(&position) {
                let name = &table.columns[position].name;
                let message = format!("multiple assignments to same column \"{name}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let is_default_given = matches!(&*value, ast::Expr::Identifier(name) if is_default(name));
            let column = &table.columns[position];
            let is_always = column.identity == Some(Identity::Always) || column.generated.is_some();
            if is_always && !is_default_given {
                let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
                let detail = super::generated::detail(column);
                return Err(SqlError::new(SqlState::GENERATED_ALWAYS, message).with_detail(detail));
            }
            let value = match is_default_given {
                true => self.default(table, position)?,
                false => self.within(scope.clone(), |binder| {
                    binder.place = "UPDATE";
                    binder.expr(&value)
                })?,
            };
            values.push(self.assigned(table, position, value)?);
            set.push(position);
        }
        Ok((set, values))
    }

    /// The columns one by one. A subquery stands for each of the columns that it gives, and runs once for each.
    fn pairs<'a>(&mut self, scope: &Scope, assignments: &'a [ast::Assignment]) -> Result<Pairs<'a>, SqlError> {
        let mut pairs = Pairs::new();
        for ast::Assignment { target, value } in assignments {
            let names = match target {
                ast::AssignmentTarget::ColumnName(name) => {
                    pairs.push((name, Cow::Borrowed(value)));
                    continue;
                }
                ast::AssignmentTarget::Tuple(names) => names,
            };
            if let ast::Expr::Subquery(query) = value {
                let bound = self.within(scope.clone(), |binder| binder.query(query))?;
                if bound.columns.len() != names.len() {
                    return Err(other_count());
                }
                for (at, name) in names.iter().enumerate() {
                    pairs.push((name, Cow::Owned(column_of(query, at, names.len())?)));
                }
                continue;
            }
            let values = row(value).ok_or_else(|| {
                let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            })?;
            if values.len() != names.len() {
                return Err(other_count());
            }
            pairs.extend(names.iter().zip(values.into_iter().map(Cow::Borrowed)));
        }
        Ok(pairs)
    }
}
