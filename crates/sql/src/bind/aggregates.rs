//! Aggregates: which there are, and for which types.

use sqlparser::ast;

use super::calls::Call;
use super::comparable::{check_equal, check_ordered};
use super::query::sort_key;
use super::{Aggregate, AggregateKind, Binder, Regression};
use crate::casts::{Cast, Place};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::plan::SortKey;
use crate::types::Type;

/// The place of an aggregate within another one.
pub(super) const NESTED: &str = "arguments of aggregates";

pub(super) fn aggregate_kind(name: &str, is_star: bool) -> Option<AggregateKind> {
    let variance = |is_sample, is_root| AggregateKind::Variance { is_sample, is_root };
    Some(match name {
        "count" if is_star => AggregateKind::CountRows,
        "count" => AggregateKind::Count,
        "sum" => AggregateKind::Sum,
        "avg" => AggregateKind::Average,
        "min" => AggregateKind::Least,
        "max" => AggregateKind::Greatest,
        "bool_and" | "every" => AggregateKind::All,
        "bool_or" => AggregateKind::Any,
        "bit_and" => AggregateKind::BitAnd,
        "bit_or" => AggregateKind::BitOr,
        "bit_xor" => AggregateKind::BitXor,
        "string_agg" => AggregateKind::Join,
        "array_agg" => AggregateKind::Gather,
        "json_agg" => AggregateKind::JsonList { is_binary: false },
        "jsonb_agg" => AggregateKind::JsonList { is_binary: true },
        "json_object_agg" => AggregateKind::JsonObject { is_binary: false },
        "jsonb_object_agg" => AggregateKind::JsonObject { is_binary: true },
        "var_pop" => variance(false, false),
        "var_samp" | "variance" => variance(true, false),
        "stddev_pop" => variance(false, true),
        "stddev_samp" | "stddev" => variance(true, true),
        "percentile_cont" => AggregateKind::PercentileBetween,
        "percentile_disc" => AggregateKind::Percentile,
        "mode" => AggregateKind::Mode,
        "grouping" => AggregateKind::Grouping,
        _ => return Regression::named(name).map(AggregateKind::Regression),
    })
}

impl AggregateKind {
    /// Whether it is one of an order that WITHIN GROUP gives.
    const fn is_of_order(self) -> bool {
        matches!(self, Self::PercentileBetween | Self::Percentile | Self::Mode)
    }

    /// Whether its result depends on the order of its values.
    pub(crate) const fn has_order(self) -> bool {
        matches!(self, Self::Join | Self::Gather | Self::JsonList { .. } | Self::JsonObject { .. })
    }
}

impl Binder<'_> {
    pub(super) fn aggregate(&mut self, kind: AggregateKind, call: &Call<'_>) -> Result<Typed, SqlError> {
        let Some(mut so_far) = self.aggregates.take() else {
            let message = match (self.place, kind) {
                (NESTED, _) => "aggregate function calls cannot be nested".to_owned(),
                (place, AggregateKind::Grouping) => format!("grouping operations are not allowed in {place}"),
                (place, _) => format!("aggregate functions are not allowed in {place}"),
            };
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
        };
        // Aggregates do not nest, and have no window functions: none may stand in their arguments.
        let windows = self.behind.take();
        let bound = self.aggregate_of(kind, call);
        self.behind = windows;
        let typed = bound.map(|aggregate| {
            let of = aggregate.result;
            let shown = format!("{aggregate:?}");
            let at = so_far.iter().position(|own| format!("{own:?}") == shown).unwrap_or_else(|| {
                so_far.push(aggregate);
                so_far.len() - 1
            });
            Typed::new(Expr::Aggregate(at), of)
        });
        self.aggregates = Some(so_far);
        typed
    }

    pub(super) fn aggregate_of(&mut self, kind: AggregateKind, call: &Call<'_>) -> Result<Aggregate, SqlError> {
        let place = std::mem::replace(&mut self.place, NESTED);
        let bound = self.aggregate_within(kind, call);
        self.place = place;
        bound
    }

    fn aggregate_within(&mut self, kind: AggregateKind, call: &Call<'_>) -> Result<Aggregate, SqlError> {
        let place = std::mem::replace(&mut self.place, "FILTER");
        let filter = call.filter.map(|filter| self.condition(filter, "FILTER")).transpose();
        self.place = place;
        let filter = filter?;
        let arguments = call.arguments.iter().enumerate().map(|(at, it)| self.aggregated(kind, at, it));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        check_levels(&arguments)?;
        if kind.is_of_order() {
            return self.aggregate_of_order(kind, call, arguments, filter);
        }
        if call.is_within_group {
            let message = format!("{} is not an ordered-set aggregate, so it cannot have WITHIN GROUP", call.name);
            return Err(SqlError::new(SqlState("42809"), message));
        }
        let types: Vec<_> = arguments.iter().map(Typed::base).collect();
        let missing = || functions::no_function(call.name, &types, functions::Unresolved::None);
        let (wanted, result) = signature(kind, &types).ok_or_else(missing)?;
        let mut exprs = Vec::new();
        for (argument, wanted) in arguments.into_iter().zip(wanted) {
            exprs.push(match wanted {
                Some(wanted) => self.cast(argument, wanted.into(), Place::Implicit)?.expr,
                None => self.known(argument)?.expr,
            });
        }
        let mut order = self.order_within(call.order)?;
        if call.is_distinct {
            types.iter().try_for_each(|of| check_equal(*of))?;
            if !order.iter().all(|key| exprs.iter().any(|it| it.is_same(&key.expr))) {
                let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
            }
            if order.is_empty() && kind.has_order() {
                order.extend(exprs.iter().map(|expr| SortKey::rising(expr.clone())));
            }
        }
        Ok(Aggregate { kind, arguments: exprs, order, is_distinct: call.is_distinct, filter, result })
    }

    /// An argument; of JSON it becomes JSON, and may be a row.
    fn aggregated(&mut self, kind: AggregateKind, at: usize, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let is_binary = match kind {
            AggregateKind::JsonList { is_binary } => is_binary,
            AggregateKind::JsonObject { .. } if at == 0 => {
                let key = self.expr(expr)?;
                return Ok(Typed::new(super::expressions::shown(key), Type::Text));
            }
            AggregateKind::JsonObject { is_binary } => is_binary,
            _ => return self.expr(expr),
        };
        let of = if is_binary { Type::Jsonb } else { Type::Json };
        let value = self.expr(expr)?;
        let is_json = value.base() == of;
        let expr = self.as_json(value, is_binary)?;
        // What is JSON already has no lines of its own, whatever it was made of.
        let expr = if is_json { Expr::Cast(Cast::Same, Box::new(expr)) } else { expr };
        Ok(Typed::new(expr, of))
    }

    fn order_within(&mut self, keys: &[ast::OrderByExpr]) -> Result<Vec<SortKey>, SqlError> {
        let bound = keys.iter().map(|key| {
            let expr = self.expr(&key.expr)?;
            check_ordered(expr.base())?;
            sort_key(self.known(expr)?.expr, key)
        });
        bound.collect()
    }

    /// `percentile_cont`, `percentile_disc`, `mode`: aggregates of what WITHIN GROUP sorts.
    fn aggregate_of_order(
        &mut self,
        kind: AggregateKind,
        call: &Call<'_>,
        arguments: Vec<Typed>,
        filter: Option<Expr>,
    ) -> Result<Aggregate, SqlError> {
        if !call.is_within_group {
            let types: Vec<_> = arguments.iter().map(Typed::base).collect();
            return Err(functions::no_function(call.name, &types, functions::Unresolved::None));
        }
        let wanted = usize::from(kind != AggregateKind::Mode);
        let [key] = call.order else { return Err(SqlError::unsupported("WITHIN GROUP of several values")) };
        let value = self.expr(&key.expr)?;
        let value = match kind {
            AggregateKind::PercentileBetween => self.cast(value, Type::Float8.into(), Place::Implicit)?,
            _ => self.known(value)?,
        };
        let result = value.base();
        if arguments.len() != wanted {
            let types: Vec<_> = arguments.iter().map(Typed::base).chain([result]).collect();
            return Err(functions::no_function(call.name, &types, functions::Unresolved::None));
        }
        let mut exprs = vec![value.expr.clone()];
        for fraction in arguments {
            exprs.push(self.cast(fraction, Type::Float8.into(), Place::Implicit)?.expr);
        }
        let order = vec![sort_key(value.expr, key)?];
        Ok(Aggregate { kind, arguments: exprs, order, is_distinct: false, filter, result })
    }
}

/// What an aggregate takes its arguments as (`None`: as they are), and its result.
fn signature(kind: AggregateKind, types: &[Type]) -> Option<(Vec<Option<Type>>, Type)> {
    use AggregateKind as Kind;
    let is_number = |of: Type| matches!(of, Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric);
    let one = |of: Type, result: Type| Some((vec![Some(of)], result));
    let json = |is_binary: bool| if is_binary { Type::Jsonb } else { Type::Json };
    match (kind, types) {
        (Kind::CountRows, []) => Some((Vec::new(), Type::Int8)),
        (Kind::Count, [_]) => Some((vec![None], Type::Int8)),
        (Kind::Grouping, [_, ..]) => Some((vec![None; types.len()], Type::Int4)),
        (Kind::Sum | Kind::Average, [Type::Unknown]) => one(Type::Float8, Type::Float8),
        (Kind::Sum, [of @ (Type::Int2 | Type::Int4)]) => one(*of, Type::Int8),
        (Kind::Sum, [Type::Float4]) => one(Type::Float4, Type::Float4),
        (Kind::Sum | Kind::Average | Kind::Variance { .. }, [of]) if is_number(*of) => {
            one(Type::Numeric, Type::Numeric)
        }
        (Kind::Sum | Kind::Average, [Type::Interval]) => one(Type::Interval, Type::Interval),
        (Kind::Sum | Kind::Average | Kind::Variance { .. }, [Type::Float4 | Type::Float8 | Type::Unknown]) => {
            one(Type::Float8, Type::Float8)
        }
        (Kind::Least | Kind::Greatest, [Type::Unknown | Type::Varchar]) => one(Type::Text, Type::Text),
        (Kind::Least | Kind::Greatest, [Type::Bool | Type::Uuid | Type::Bytea]) => None,
        (Kind::Least | Kind::Greatest, [of]) => one(*of, *of),
        (Kind::All | Kind::Any, [Type::Bool | Type::Unknown]) => one(Type::Bool, Type::Bool),
        (Kind::BitAnd | Kind::BitOr | Kind::BitXor, [of @ (Type::Int2 | Type::Int4 | Type::Int8)]) => one(*of, *of),
        (Kind::Join, [Type::Bytea, Type::Bytea | Type::Unknown]) => {
            Some((vec![Some(Type::Bytea), Some(Type::Bytea)], Type::Bytea))
        }
        (Kind::Join, [value, by]) => {
            let is_text = |of: Type| matches!(of, Type::Text | Type::Varchar | Type::Bpchar | Type::Unknown);
            let texts = || (vec![Some(Type::Text), Some(Type::Text)], Type::Text);
            (is_text(*value) && is_text(*by)).then(texts)
        }
        (Kind::Gather, [Type::Unknown]) => one(Type::Text, Type::Texts),
        (Kind::Gather, [of]) => Some((vec![None], if of.element().is_some() { *of } else { of.array()? })),
        (Kind::JsonList { is_binary }, [_]) => Some((vec![None], json(is_binary))),
        (Kind::JsonObject { is_binary }, [_, _]) => Some((vec![None, None], json(is_binary))),
        (Kind::Regression(of), [x, y]) => {
            let fits = |of: &Type| is_number(*of) || matches!(of, Type::Float4 | Type::Float8 | Type::Unknown);
            let result = if of == Regression::Count { Type::Int8 } else { Type::Float8 };
            (fits(x) && fits(y)).then(|| (vec![Some(Type::Float8), Some(Type::Float8)], result))
        }
        _ => None,
    }
}

fn check_levels(arguments: &[Typed]) -> Result<(), SqlError> {
    let (mut looks_out, mut looks_in) = (false, false);
    for argument in arguments {
        argument.expr.walk(&mut |it| {
            looks_out |= matches!(it, Expr::Outer { .. });
            looks_in |= matches!(it, Expr::Column(_));
        });
    }
    if looks_out && !looks_in {
        return Err(SqlError::unsupported("an aggregate of a query around"));
    }
    Ok(())
}
