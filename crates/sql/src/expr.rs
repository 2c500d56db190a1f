//! Expressions whose names and types are decided, and their evaluation.

use std::sync::Arc;

use crate::arrays::{self, Array};
use crate::bind::Names;
use crate::casts::{self, Cast, Place};
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::functions::{Eval, Function, MOST_ARGUMENTS};
use crate::plan::Subquery;
use crate::sequences::Drawing;
use crate::types::{ColumnType, Type};

/// An expression over a row.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Constant(OwnedDatum),
    /// A parameter of the statement, counted from 0.
    Parameter(usize),
    /// A column of the row.
    Column(usize),
    /// A column of a row of a query around this one; the next one has level 1.
    Outer {
        level: usize,
        column: usize,
    },
    /// The result of an aggregate, by its number; there until groups are planned.
    Aggregate(usize),
    /// The same of a window function.
    Window(usize),
    Call(&'static Function, Box<[Expr]>),
    Cast(Cast, Box<Expr>),
    /// The value within the bound of the type.
    Bounded(ColumnType, Place, Box<Expr>),
    And(Box<[Expr]>),
    Or(Box<[Expr]>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    /// `IS TRUE`, `IS FALSE`.
    Is(bool, Box<Expr>),
    /// `IS DISTINCT FROM`, of two values of one type.
    Distinct(Box<(Expr, Expr)>),
    Case {
        branches: Box<[(Expr, Expr)]>,
        otherwise: Box<Expr>,
    },
    Coalesce(Box<[Expr]>),
    /// NULL if both are equal, else the first one.
    NullIf(Box<(Expr, Expr)>),
    /// The greatest or the least one of those that are not NULL.
    Extreme {
        is_greatest: bool,
        of: Box<[Expr]>,
    },
    /// Whether a comparison of the first one with one of the others holds, or with all of them.
    Any {
        eval: Eval,
        needs_all: bool,
        value: Box<Expr>,
        list: Box<[Expr]>,
    },
    /// Whether a comparison of the first one with an element of the array that the second one is holds, or with all of them.
    AnyItem {
        eval: Eval,
        needs_all: bool,
        pair: Box<(Expr, Expr)>,
    },
    /// An array of values, or of arrays of the same dimensions.
    Array {
        parts: Box<[Expr]>,
        is_nested: bool,
    },
    /// The text that stands for a number, or what a text stands for.
    Lookup {
        names: Arc<Names>,
        of: Box<Expr>,
    },
    /// The values of a function that gives several rows, by its number; there until they are planned.
    Set(usize),
    Subquery(Box<Subquery>),
    /// A number of a sequence.
    Drawn(Drawing, Box<[Expr]>),
}

/// An expression and its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) of: ColumnType,
}

impl Typed {
    pub(crate) fn new(expr: Expr, of: impl Into<ColumnType>) -> Self {
        Self { expr, of: of.into() }
    }

    pub(crate) const fn base(&self) -> Type {
        self.of.base
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}{:?}", self.name, self.arguments)
    }
}

impl std::fmt::Debug for Cast {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same => out.write_str("Same"),
            Self::Call(eval) => write!(out, "Call({:p})", *eval),
            Self::Read(of) => write!(out, "Read({of})"),
            Self::Write(of) => write!(out, "Write({of})"),
            Self::Show(of) => write!(out, "Show({of})"),
            Self::Items(from, to) => write!(out, "Items({from}, {to})"),
            Self::ShowItems(of) => write!(out, "ShowItems({of})"),
            Self::Json(of, is_binary) => write!(out, "Json({of}, {is_binary})"),
        }
    }
}

impl Expr {
    pub(crate) const NULL: Self = Self::Constant(OwnedDatum::NULL);

    /// Whether both are the same expression, as `GROUP BY` has to know. Two that differ in form alone are not.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // Forms are compared as they are shown: rare, and complete by construction.
        std::mem::discriminant(self) == std::mem::discriminant(other) && format!("{self:?}") == format!("{other:?}")
    }

    /// The value over a row.
    pub(crate) fn eval<'a>(&'a self, row: &[Datum<'a>], context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
        match self {
            Self::Constant(value) => Ok(value.get()),
            Self::Parameter(number) => Ok(context.parameters[*number]),
            Self::Column(column) => Ok(row[*column]),
            Self::Outer { level, column } => Ok(outer(context, *level, *column)),
            Self::Aggregate(_) | Self::Window(_) | Self::Set(_) => unreachable!("groups and windows are planned"),
            Self::Call(function, arguments) => call(function, arguments, row, context),
            Self::Cast(cast, inner) => cast.apply(inner.eval(row, context)?, context),
            Self::Bounded(of, place, inner) => casts::bound(inner.eval(row, context)?, *of, *place, context.arena),
            Self::And(parts) => connected(parts, false, row, context),
            Self::Or(parts) => connected(parts, true, row, context),
            Self::Not(inner) => Ok(match inner.eval(row, context)? {
                Datum::Bool(value) => Datum::Bool(!value),
                other => other,
            }),
            Self::IsNull(inner) => Ok(Datum::Bool(inner.eval(row, context)?.is_null())),
            Self::Is(wanted, inner) => {
                Ok(Datum::Bool(matches!(inner.eval(row, context)?, Datum::Bool(value) if value == *wanted)))
            }
            Self::Distinct(pair) => {
                let (a, b) = (pair.0.eval(row, context)?, pair.1.eval(row, context)?);
                Ok(Datum::Bool(a.compare(b).is_ne()))
            }
            Self::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    if matches!(condition.eval(row, context)?, Datum::Bool(true)) {
                        return result.eval(row, context);
                    }
                }
                otherwise.eval(row, context)
            }
            Self::Coalesce(parts) => {
                for part in parts {
                    let value = part.eval(row, context)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Datum::Null)
            }
            Self::NullIf(pair) => {
                let (a, b) = (pair.0.eval(row, context)?, pair.1.eval(row, context)?);
                Ok(if !a.is_null() && !b.is_null() && a.compare(b).is_eq() { Datum::Null } else { a })
            }
            Self::Extreme { is_greatest, of } => extreme(*is_greatest, of, row, context),
            Self::Any { eval, needs_all, value, list } => any(*eval, *needs_all, (value, list), row, context),
            Self::Lookup { names, of } => names.get(of.eval(row, context)?, context.arena),
            Self::AnyItem { eval, needs_all, pair } => any_item(*eval, *needs_all, pair, row, context),
            Self::Array { parts, is_nested } => {
                let parts = parts.iter().map(|part| part.eval(row, context)).collect::<Result<Vec<_>, _>>()?;
                if *is_nested { arrays::nested(context.arena, &parts) } else { Ok(Array::list(context.arena, &parts)) }
            }
            Self::Subquery(subquery) => subquery.answer(row, context),
            Self::Drawn(drawing, arguments) => {
                let values = arguments.iter().map(|argument| argument.eval(row, context));
                drawing.answer(&values.collect::<Result<Vec<_>, _>>()?, context)
            }
        }
    }

    /// Whether the value is true, and neither false nor NULL.
    pub(crate) fn holds<'a>(&'a self, row: &[Datum<'a>], context: &Context<'a>) -> Result<bool, SqlError> {
        Ok(matches!(self.eval(row, context)?, Datum::Bool(true)))
    }

    /// Calls `visit` with this expression and all in it.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        let mut each = |parts: &[Self]| parts.iter().for_each(|part| part.walk(visit));
        match self {
            Self::Constant(_)
            | Self::Parameter(_)
            | Self::Column(_)
            | Self::Outer { .. }
            | Self::Aggregate(_)
            | Self::Window(_)
            | Self::Set(_) => {}
            Self::Call(_, parts) | Self::And(parts) | Self::Or(parts) | Self::Coalesce(parts) => each(parts),
            Self::Drawn(_, parts) => each(parts),
            Self::Extreme { of, .. } | Self::Array { parts: of, .. } => each(of),
            Self::Cast(_, inner) | Self::Bounded(_, _, inner) | Self::Not(inner) | Self::IsNull(inner) => {
                inner.walk(visit)
            }
            Self::Is(_, inner) | Self::Lookup { of: inner, .. } => inner.walk(visit),
            Self::Distinct(pair) | Self::NullIf(pair) | Self::AnyItem { pair, .. } => {
                pair.0.walk(visit);
                pair.1.walk(visit);
            }
            Self::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    condition.walk(visit);
                    result.walk(visit);
                }
                otherwise.walk(visit);
            }
            Self::Any { value, list, .. } => {
                value.walk(visit);
                list.iter().for_each(|part| part.walk(visit));
            }
            Self::Subquery(subquery) => subquery.parts().for_each(|part| part.walk(visit)),
        }
    }

    /// The same expression with parts exchanged: `replace` is asked of each, and what it leaves alone is entered.
    pub(crate) fn replace(
        &mut self,
        replace: &mut dyn FnMut(&mut Self) -> Result<bool, SqlError>,
    ) -> Result<(), SqlError> {
        if replace(self)? {
            return Ok(());
        }
        match self {
            Self::Constant(_)
            | Self::Parameter(_)
            | Self::Column(_)
            | Self::Outer { .. }
            | Self::Aggregate(_)
            | Self::Window(_)
            | Self::Set(_) => Ok(()),
            Self::Call(_, parts)
            | Self::And(parts)
            | Self::Or(parts)
            | Self::Coalesce(parts)
            | Self::Drawn(_, parts) => parts.iter_mut().try_for_each(|part| part.replace(replace)),
            Self::Extreme { of, .. } | Self::Array { parts: of, .. } => {
                of.iter_mut().try_for_each(|part| part.replace(replace))
            }
            Self::Cast(_, inner) | Self::Bounded(_, _, inner) | Self::Not(inner) | Self::IsNull(inner) => {
                inner.replace(replace)
            }
            Self::Is(_, inner) | Self::Lookup { of: inner, .. } => inner.replace(replace),
            Self::Distinct(pair) | Self::NullIf(pair) | Self::AnyItem { pair, .. } => {
                pair.0.replace(replace)?;
                pair.1.replace(replace)
            }
            Self::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    condition.replace(replace)?;
                    result.replace(replace)?;
                }
                otherwise.replace(replace)
            }
            Self::Any { value, list, .. } => {
                value.replace(replace)?;
                list.iter_mut().try_for_each(|part| part.replace(replace))
            }
            Self::Subquery(subquery) => subquery.parts_mut().try_for_each(|part| part.replace(replace)),
        }
    }

    /// Whether it looks at no row: its value is known before any row is.
    pub(crate) fn is_known(&self) -> bool {
        let mut is_known = true;
        self.walk(&mut |it| {
            let needs_row = matches!(it, Self::Column(_) | Self::Aggregate(_) | Self::Window(_) | Self::Set(_));
            is_known &= !needs_row && !matches!(it, Self::Drawn(..));
        });
        is_known
    }
}

fn outer<'a>(context: &Context<'a>, level: usize, column: usize) -> Datum<'a> {
    let mut outer = context.outer;
    for _ in 1..level {
        outer = outer.and_then(|it| it.next);
    }
    outer.map_or(Datum::Null, |it| it.row[column])
}

#[inline]
fn call<'a>(
    function: &'a Function,
    arguments: &'a [Expr],
    row: &[Datum<'a>],
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    let mut values = [Datum::Null; MOST_ARGUMENTS];
    for (value, argument) in values.iter_mut().zip(arguments) {
        *value = argument.eval(row, context)?;
        if value.is_null() && function.is_strict {
            return Ok(Datum::Null);
        }
    }
    (function.eval)(&values[..arguments.len()], context)
}

/// `AND`, which a false part decides, or `OR`, which a true one does.
fn connected<'a>(
    parts: &'a [Expr],
    decides: bool,
    row: &[Datum<'a>],
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    let mut has_null = false;
    for part in parts {
        match part.eval(row, context)? {
            Datum::Bool(value) if value == decides => return Ok(Datum::Bool(decides)),
            Datum::Null => has_null = true,
            _ => {}
        }
    }
    Ok(if has_null { Datum::Null } else { Datum::Bool(!decides) })
}

fn extreme<'a>(
    is_greatest: bool,
    of: &'a [Expr],
    row: &[Datum<'a>],
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    let mut best = Datum::Null;
    for part in of {
        let value = part.eval(row, context)?;
        let order = value.compare(best);
        // Of those that are equal the first one counts.
        let is_beyond = if is_greatest { order.is_gt() } else { order.is_lt() };
        let is_better = !value.is_null() && (best.is_null() || is_beyond);
        if is_better {
            best = value;
        }
    }
    Ok(best)
}

fn any_item<'a>(
    eval: Eval,
    needs_all: bool,
    pair: &'a (Expr, Expr),
    row: &[Datum<'a>],
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    let (value, Datum::Array(items)) = (pair.0.eval(row, context)?, pair.1.eval(row, context)?) else {
        return Ok(Datum::Null);
    };
    let mut has_null = false;
    for item in items.items() {
        if value.is_null() || item.is_null() {
            has_null = true;
        } else if matches!(eval(&[value, item], context)?, Datum::Bool(holds) if holds != needs_all) {
            return Ok(Datum::Bool(!needs_all));
        }
    }
    Ok(if has_null { Datum::Null } else { Datum::Bool(needs_all) })
}

fn any<'a>(
    eval: Eval,
    needs_all: bool,
    (value, list): (&'a Expr, &'a [Expr]),
    row: &[Datum<'a>],
    context: &Context<'a>,
) -> Result<Datum<'a>, SqlError> {
    let value = value.eval(row, context)?;
    let mut has_null = false;
    for part in list {
        let other = part.eval(row, context)?;
        if value.is_null() || other.is_null() {
            has_null = true;
        } else if matches!(eval(&[value, other], context)?, Datum::Bool(holds) if holds != needs_all) {
            return Ok(Datum::Bool(!needs_all));
        }
    }
    Ok(if has_null { Datum::Null } else { Datum::Bool(needs_all) })
}
