//! `UNION`, `INTERSECT` and `EXCEPT`, and the queries of `WITH`.

use std::sync::Arc;

use sqlparser::ast::{self, SetExpr, SetOperator};

use super::changing::{is_change, table_query};
use super::comparable::check_equal;
use super::query::Query;
use super::{Binder, folded};
use crate::casts::Place;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::plan::{Node, OutputColumn, Plan};
use crate::types::Type;

/// The most relations of a statement.
const MOST_RELATIONS: u64 = 1 << 16;

/// A query that has a name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    name: String,
    columns: Vec<OutputColumn>,
    node: Node,
    /// The number of scopes around it.
    depth: usize,
    is_used: bool,
    /// How many relations it has, those within others each time.
    relations: u64,
}

impl Named {
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// The number of the change whose rows something asks for by the name.
    pub(super) fn asked_for(&self) -> Option<usize> {
        match self.node {
            Node::Working { id, .. } if self.is_used => Some(id),
            _ => None,
        }
    }
}

impl Binder<'_> {
    /// A side of a set operation, or the whole of it.
    pub(super) fn set_operation(&mut self, body: &SetExpr) -> Result<Query, SqlError> {
        match body {
            SetExpr::Select(select) => {
                self.keeps_unknown = true;
                self.select(select, &[])
            }
            SetExpr::Values(values) => self.values(values),
            SetExpr::Query(inner) => self.query(inner),
            SetExpr::Table(table) => self.query(&table_query(table)?),
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let is_all = is_all(*set_quantifier)?;
                let (left, right) = (self.set_operation(left)?, self.set_operation(right)?);
                self.combined((*op, is_all), left, right)
            }
            other => Err(SqlError::unsupported(format!("the query {other}"))),
        }
    }

    fn combined(&mut self, (op, is_all): (SetOperator, bool), left: Query, right: Query) -> Result<Query, SqlError> {
        let name = op.to_string();
        if left.columns.len() != right.columns.len() {
            let message = format!("each {name} query must have the same number of columns");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let (mut lefts, mut rights, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (one, other)) in left.columns.iter().zip(&right.columns).enumerate() {
            let sides = [one, other].map(|column| Typed::new(Expr::Column(at), column.of)).to_vec();
            let (mut sides, of) = self.alike(&name, sides)?;
            if !(is_all && matches!(op, SetOperator::Union)) {
                check_equal(of.base)?;
            }
            rights.push(sides.pop().unwrap_or(Expr::NULL));
            lefts.push(sides.pop().unwrap_or(Expr::NULL));
            columns.push(OutputColumn::new(&*one.name, of));
        }
        let project = |node, columns| Node::Project { input: Box::new(node), columns };
        let (left, right) = (project(left.node, lefts), project(right.node, rights));
        let node = match op {
            SetOperator::Union if is_all => Node::Append(vec![left, right]),
            SetOperator::Union => Node::Distinct { input: Box::new(Node::Append(vec![left, right])), keys: None },
            op => Node::Without {
                left: Box::new(left),
                right: Box::new(right),
                is_except: op != SetOperator::Intersect,
                is_all,
            },
        };
        Ok(Query { node, columns })
    }

    /// Makes the queries of `WITH` known.
    pub(super) fn with(&mut self, with: Option<&ast::With>) -> Result<(), SqlError> {
        let Some(with) = with else { return Ok(()) };
        let mut changes = self.changes.take();
        let known = self.named_queries(with, &mut changes);
        self.changes = changes;
        known
    }

    fn named_queries(&mut self, with: &ast::With, changes: &mut Option<Vec<(usize, Plan)>>) -> Result<(), SqlError> {
        let first = self.tables.len();
        for cte in &with.cte_tables {
            let before = self.relations;
            let name = folded(&cte.alias.name);
            if self.tables[first..].iter().any(|own| own.name == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
            }
            if is_change(&cte.query) {
                let changes = changes.as_mut().ok_or_else(|| {
                    let message = "WITH clause containing a data-modifying statement must be at the top level";
                    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                })?;
                let plan = self.change_in_with(&cte.query)?;
                let (id, mut columns) = (self.next_part(), plan.columns().to_vec());
                renamed(&name, &mut columns, &cte.alias)?;
                let width = columns.len();
                changes.push((id, plan));
                self.know(name, columns, Node::Working { id, width });
                continue;
            }
            let mut bound = match (&*cte.query.body, with.recursive) {
                (SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right }, true)
                    if cte.query.with.is_none() =>
                {
                    let has_more = cte.query.order_by.is_some() || cte.query.limit_clause.is_some();
                    let is_all = is_all(*set_quantifier)?;
                    match self.recursive((&name, &cte.alias), (left, right), is_all)? {
                        Some(_) if has_more => {
                            return Err(SqlError::unsupported("ORDER BY or LIMIT in a recursive query"));
                        }
                        Some(bound) => bound,
                        None => self.query(&cte.query)?,
                    }
                }
                _ => self.query(&cte.query)?,
            };
            renamed(&name, &mut bound.columns, &cte.alias)?;
            let width = bound.columns.len();
            let is_recursive = matches!(bound.node, Node::Recursive { .. });
            let node = if is_recursive || bound.node.looks_at(None) {
                bound.node
            } else {
                Node::Kept { id: self.next_part(), input: Arc::new(bound.node), width }
            };
            self.know(name, bound.columns, node);
            let relations = self.relations - before;
            self.tables.last_mut().into_iter().for_each(|own| own.relations = relations);
        }
        Ok(())
    }

    /// Counts relations that a statement has. Named queries and views within each other may double them with each level: so plans are bounded.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn count_relations(&mut self, more: u64) -> Result<(), SqlError> {
        self.relations = self.relations.saturating_add(more);
        if self.relations <= MOST_RELATIONS {
            return Ok(());
        }
        let message = format!("a statement has more than {MOST_RELATIONS} relations, with those within views and WITH");
        Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message))
    }

    fn know(&mut self, name: String, columns: Vec<OutputColumn>, node: Node) {
        self.tables.push(Named { name, columns, node, depth: self.scopes.len(), is_used: false, relations: 0 });
    }

    /// The query of this name, as it is seen from here.
    pub(super) fn named_query(&mut self, name: &ast::ObjectName) -> Result<Option<Query>, SqlError> {
        let [ast::ObjectNamePart::Identifier(name)] = &name.0[..] else { return Ok(None) };
        let name = folded(name);
        let levels = self.scopes.len();
        let Some(found) = self.tables.iter_mut().rev().find(|own| own.name == name) else { return Ok(None) };
        found.is_used = true;
        // A query has a column at least, so this is a change without RETURNING.
        if found.columns.is_empty() && matches!(found.node, Node::Working { width: 0, .. }) {
            let message = format!("WITH query \"{name}\" does not have a RETURNING clause");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let (mut node, columns, relations) = (found.node.clone(), found.columns.clone(), found.relations);
        node.shift((levels - found.depth) as isize);
        self.count_relations(relations)?;
        Ok(Some(Query { node, columns }))
    }

    /// A query that may name itself on its right side; nothing if it does not.
    fn recursive(
        &mut self,
        (name, alias): (&str, &ast::TableAlias),
        (left, right): (&SetExpr, &SetExpr),
        is_all: bool,
    ) -> Result<Option<Query>, SqlError> {
        let mut first = self.set_operation(left)?;
        // A literal is taken to be a text: its values are texts already.
        let unknown = first.columns.iter_mut().filter(|column| column.of.base == Type::Unknown);
        unknown.for_each(|column| column.of = Type::Text.into());
        let (id, width) = (self.next_part(), first.columns.len());
        let mut columns = first.columns.clone();
        renamed(name, &mut columns, alias)?;
        self.know(name.to_owned(), columns.clone(), Node::Working { id, width });
        let step = self.set_operation(right);
        let is_used = self.tables.pop().is_some_and(|own| own.is_used);
        let step = step?;
        if !is_used {
            return Ok(None);
        }
        if step.columns.len() != width {
            let message = "each UNION query must have the same number of columns";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut made = Vec::new();
        for (at, (column, next)) in first.columns.iter().zip(&step.columns).enumerate() {
            let next = Typed::new(Expr::Column(at), next.of);
            let sides = [Typed::new(Expr::Column(at), column.of), next.clone()];
            let common = super::expressions::common_type("UNION", &sides)?;
            if common != column.of.base {
                let message = format!(
                    "recursive query \"{name}\" column {} has type {} in non-recursive term but type {common} overall",
                    at + 1,
                    column.of.base,
                );
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
            }
            made.push(self.cast(next, common.into(), Place::Implicit)?.expr);
        }
        let step = Box::new(Node::Project { input: Box::new(step.node), columns: made });
        let node = Node::Recursive { id, first: Box::new(first.node), step, is_all };
        Ok(Some(Query { node, columns }))
    }
}

fn is_all(quantifier: ast::SetQuantifier) -> Result<bool, SqlError> {
    match quantifier {
        ast::SetQuantifier::All => Ok(true),
        ast::SetQuantifier::Distinct | ast::SetQuantifier::None => Ok(false),
        other => Err(SqlError::unsupported(format!("{other}"))),
    }
}

/// Gives columns the names of an alias.
fn renamed(name: &str, columns: &mut [OutputColumn], alias: &ast::TableAlias) -> Result<(), SqlError> {
    if alias.columns.len() > columns.len() {
        let (has, wanted) = (columns.len(), alias.columns.len());
        let message = format!("WITH query \"{name}\" has {has} columns available but {wanted} columns specified");
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    columns.iter_mut().zip(&alias.columns).for_each(|(column, new)| column.name = folded(&new.name));
    Ok(())
}
