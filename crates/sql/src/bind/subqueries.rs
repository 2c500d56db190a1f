//! Subqueries in expressions.

use sqlparser::ast;

use super::query::Query;
use super::{Binder, expressions::not};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::plan::{Node, Question, Subquery};
use crate::types::Type;

impl Binder<'_> {
    /// A number that no other part of the statement has.
    pub(super) fn next_part(&mut self) -> usize {
        self.part_count += 1;
        self.part_count
    }

    /// A query in an expression: its aggregates are its own.
    fn inner_query(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        // They would be read with the privileges of whoever changes a row, and do not hold for long.
        let refused = match self.place {
            "DEFAULT expressions" => Some("DEFAULT expression"),
            "check constraints" => Some("check constraint"),
            super::generated::PLACE => Some("column generation expression"),
            _ => None,
        };
        if let Some(place) = refused {
            let message = format!("cannot use subquery in {place}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let (aggregates, windows) = (self.aggregates.take(), self.behind.take());
        let named_windows = std::mem::take(&mut self.named_windows);
        let place = self.place;
        let keeps_unknown = std::mem::replace(&mut self.keeps_unknown, false);
        let bound = self.query(query);
        (self.aggregates, self.behind, self.named_windows) = (aggregates, windows, named_windows);
        (self.place, self.keeps_unknown) = (place, keeps_unknown);
        bound
    }

    fn asked(&mut self, node: Node, question: Question) -> Expr {
        Expr::Subquery(Box::new(Subquery::new(self.next_part(), node, question)))
    }

    pub(super) fn exists(&mut self, query: &ast::Query, negated: bool) -> Result<Typed, SqlError> {
        let bound = self.inner_query(query)?;
        // What the rows are does not matter, and is not computed.
        let node = match bound.node {
            Node::Project { input, .. } => *input,
            node => node,
        };
        let exists = self.asked(node, Question::Exists);
        Ok(Typed::new(if negated { not(exists) } else { exists }, Type::Bool))
    }

    pub(super) fn scalar(&mut self, query: &ast::Query) -> Result<Typed, SqlError> {
        let bound = self.inner_query(query)?;
        let [column] = &bound.columns[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let of = column.of;
        Ok(Typed { expr: self.asked(bound.node, Question::Value), of })
    }

    /// `ARRAY(query)`
    pub(super) fn array_of(&mut self, query: &ast::Query) -> Result<Typed, SqlError> {
        let bound = self.inner_query(query)?;
        let [column] = &bound.columns[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let is_nested = column.of.base.element().is_some();
        let of = if is_nested { Some(column.of.base) } else { column.of.base.array() };
        let of = of.ok_or_else(|| SqlError::unsupported("an array of such values"))?;
        let of = column.of.passed_on(of);
        Ok(Typed::new(self.asked(bound.node, Question::Array { is_nested }), of))
    }

    /// `left sign ANY (query)`, or `ALL`; several values on the left are those of a row.
    pub(super) fn any_of(
        &mut self,
        left: &ast::Expr,
        (sign, needs_all): (&str, bool),
        query: &ast::Query,
    ) -> Result<Typed, SqlError> {
        let values = match left {
            ast::Expr::Tuple(parts) => parts.iter().map(|part| self.expr(part)).collect::<Result<Vec<_>, _>>()?,
            one => vec![self.expr(one)?],
        };
        let bound = self.inner_query(query)?;
        if bound.columns.len() != values.len() {
            let few = if bound.columns.len() < values.len() { "few" } else { "many" };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {few} columns")));
        }
        if values.len() > 1 && sign != "=" {
            return Err(SqlError::unsupported(format!("{sign} between rows")));
        }
        let (mut comparisons, mut columns) = (Vec::new(), Vec::new());
        for (at, (value, column)) in values.into_iter().zip(&bound.columns).enumerate() {
            let sides = vec![value, Typed::new(Expr::Column(at), column.of)];
            let types: Vec<_> = sides.iter().map(Typed::base).collect();
            let (function, sides) = self.compared(sign, sides).map_err(|error| match error.state() {
                SqlState::UNDEFINED_FUNCTION => functions::no_operator(sign, &types, functions::Unresolved::None),
                _ => error,
            })?;
            let mut sides = sides.into_vec();
            columns.push(sides.pop().unwrap_or(Expr::NULL));
            comparisons.push((function, sides.pop().unwrap_or(Expr::NULL)));
        }
        let node = Node::Project { input: Box::new(bound.node), columns };
        Ok(Typed::new(self.asked(node, Question::Any { comparisons, needs_all }), Type::Bool))
    }
}

/// The query that an operand is, in as many parentheses as there are.
pub(super) fn query_of(expr: &ast::Expr) -> Option<&ast::Query> {
    match expr {
        ast::Expr::Subquery(query) => Some(query),
        ast::Expr::Nested(inner) => query_of(inner),
        _ => None,
    }
}
