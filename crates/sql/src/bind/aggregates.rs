//! Aggregates: `count`, `sum`, `avg`, `min`, `max`, `bool_and`, `bool_or`.

use sqlparser::ast;

use super::{Aggregate, AggregateKind, Binder};
use crate::casts::Place;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::types::Type;

/// The place of an aggregate within another one.
const NESTED: &str = "arguments of aggregates";

pub(super) fn aggregate_kind(name: &str, is_star: bool) -> Option<AggregateKind> {
    Some(match name {
        "count" if is_star => AggregateKind::CountRows,
        "count" => AggregateKind::Count,
        "sum" => AggregateKind::Sum,
        "avg" => AggregateKind::Average,
        "min" => AggregateKind::Least,
        "max" => AggregateKind::Greatest,
        "bool_and" | "every" => AggregateKind::All,
        "bool_or" => AggregateKind::Any,
        _ => return None,
    })
}

impl Binder<'_> {
    pub(super) fn aggregate(
        &mut self,
        kind: AggregateKind,
        (name, arguments): (&str, &[&ast::Expr]),
        is_distinct: bool,
        filter: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        // Aggregates do not nest: none may stand in their arguments.
        let Some(mut so_far) = self.aggregates.take() else {
            let message = match self.place {
                NESTED => "aggregate function calls cannot be nested".to_owned(),
                place => format!("aggregate functions are not allowed in {place}"),
            };
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
        };
        let place = std::mem::replace(&mut self.place, NESTED);
        let bound = self.aggregate_of(kind, (name, arguments), is_distinct, filter);
        self.place = place;
        let typed = bound.map(|aggregate| {
            let of = aggregate.result;
            so_far.push(aggregate);
            Typed::new(Expr::Aggregate(so_far.len() - 1), of)
        });
        self.aggregates = Some(so_far);
        typed
    }

    fn aggregate_of(
        &mut self,
        kind: AggregateKind,
        (name, arguments): (&str, &[&ast::Expr]),
        is_distinct: bool,
        filter: Option<&ast::Expr>,
    ) -> Result<Aggregate, SqlError> {
        let filter = filter.map(|filter| self.condition(filter, "FILTER")).transpose()?;
        let missing = |types: &[Type]| functions::no_function(name, types, functions::Unresolved::None);
        let argument = match (kind, arguments) {
            (AggregateKind::CountRows, []) => None,
            (AggregateKind::CountRows, _) | (_, []) => return Err(missing(&[])),
            (_, [one]) => Some(self.expr(one)?),
            _ => return Err(missing(&vec![Type::Unknown; arguments.len()])),
        };
        let Some(argument) = argument else {
            return Ok(Aggregate { kind, argument: None, is_distinct, filter, result: Type::Int8 });
        };
        let (mut looks_out, mut looks_in) = (false, false);
        argument.expr.walk(&mut |it| {
            looks_out |= matches!(it, Expr::Outer { .. });
            looks_in |= matches!(it, Expr::Column(_));
        });
        if looks_out && !looks_in {
            return Err(SqlError::unsupported("an aggregate of a query around"));
        }
        let of = argument.base();
        let (wanted, result) = match kind {
            AggregateKind::CountRows | AggregateKind::Count => (None, Type::Int8),
            AggregateKind::Sum | AggregateKind::Average => {
                let of = if of == Type::Unknown { Type::Float8 } else { of };
                let is_sum = kind == AggregateKind::Sum;
                match of {
                    Type::Int2 | Type::Int4 if is_sum => (Some(of), Type::Int8),
                    Type::Int2 | Type::Int4 | Type::Int8 => (Some(Type::Numeric), Type::Numeric),
                    Type::Numeric => (Some(of), Type::Numeric),
                    Type::Float4 if is_sum => (Some(of), Type::Float4),
                    Type::Float4 | Type::Float8 => (Some(Type::Float8), Type::Float8),
                    other => return Err(missing(&[other])),
                }
            }
            AggregateKind::Least | AggregateKind::Greatest => match of {
                Type::Unknown | Type::Varchar => (Some(Type::Text), Type::Text),
                Type::Bool | Type::Uuid | Type::Bytea => return Err(missing(&[of])),
                other => (Some(other), other),
            },
            AggregateKind::All | AggregateKind::Any => (Some(Type::Bool), Type::Bool),
        };
        let argument = match wanted {
            Some(wanted) => self.cast(argument, wanted.into(), Place::Implicit)?,
            None => self.known(argument)?,
        };
        Ok(Aggregate { kind, argument: Some(argument), is_distinct, filter, result })
    }
}
