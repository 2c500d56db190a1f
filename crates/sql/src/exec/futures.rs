//! `UPDATE … SET x = x + e WHERE key = … AND x >= e`: under a protocol that leaves futures open, such statements change one row without conflict, because none of them learns what `x` is.
//!
//! The plan is the same under all protocols. What a future cannot tell (no row, NULL, a sum that does not fit) shows at the latest at the commit; then the statement is run again in the ordinary
//! way, which answers it. So only statements that are a transaction alone leave futures open.

use std::cell::Cell;

use polychron_base::Error;
use polychron_engine::futures::{Arithmetic, FutureColumn};
use polychron_engine::scan::Comparison;
use polychron_schema::{ColumnSpan, ColumnType, KeyScratch};

use super::scans::{is_point, point_key};
use super::{Exec, Failure};
use crate::context::Context;
use crate::datum::Datum;
use crate::expr::Expr;
use crate::plan::{ForeignKeys, Node, Plan, Returning, Scan};
use crate::types::Type;

/// A column that becomes what it is and something more or less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'p> {
    scan: &'p Scan,
    /// Its position in the table.
    pub(crate) column: usize,
    operation: Arithmetic,
    by: &'p Expr,
    /// What must hold of it before.
    bound: Option<(Comparison, &'p Expr)>,
}

/// The same with values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepped {
    pub(crate) column: FutureColumn,
    pub(crate) operation: Arithmetic,
    pub(crate) by: i64,
    pub(crate) bound: Option<(Comparison, i64)>,
}

thread_local! {
    /// Whether the statement may leave futures open.
    static MAY_DEFER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the statement that begins in this thread may leave futures open.
pub(super) fn may_defer() -> bool {
    MAY_DEFER.get()
}

/// Runs a statement that is a transaction alone, which may leave futures open if `defers` says so; where one of them has no value, in the ordinary way.
pub(crate) fn deferring<O, E>(
    defers: bool,
    mut run: impl FnMut() -> Result<O, E>,
    error_of: impl Fn(&E) -> Option<&Error>,
) -> Result<O, E> {
    /// Brings back what held before, also when `run` panics.
    struct Before(bool);

    impl Drop for Before {
        fn drop(&mut self) {
            MAY_DEFER.set(self.0);
        }
    }

    if defers {
        let before = Before(MAY_DEFER.replace(true));
        let ended = run();
        drop(before);
        match &ended {
            Err(error) if matches!(error_of(error), Some(Error::NoValue(_))) => {}
            _ => return ended,
        }
    }
    run()
}

/// The step that a plan is, if it is one.
pub(crate) fn of_plan(plan: &Plan) -> Option<Step<'_>> {
    match plan {
        Plan::Update { source, is_joined: false, set, checks, keys, returning, .. } if checks.is_empty() => {
            of_update(source, set, keys, returning.as_ref())
        }
        _ => None,
    }
}

/// The same of the parts of an update without CHECKs.
pub(super) fn of_update<'p>(
    source: &'p Node,
    set: &[usize],
    keys: &ForeignKeys,
    returning: Option<&Returning>,
) -> Option<Step<'p>> {
    let (Node::Project { input, columns }, &[column], None) = (source, set, returning) else { return None };
    let (scan, condition) = match &**input {
        Node::Scan(scan) => (scan, None),
        Node::Filter { input, condition } => match &**input {
            Node::Scan(scan) => (scan, Some(condition)),
            _ => return None,
        },
        _ => return None,
    };
    let table = &scan.table;
    let is_integer = matches!(
        (table.layout.columns()[column].column_type, table.columns[column].of.base),
        (ColumnType::I16, Type::Int2) | (ColumnType::I32, Type::Int4) | (ColumnType::I64, Type::Int8)
    );
    // What follows from a column is not known before the column is.
    if table.columns.iter().any(|column| column.generated.is_some()) {
        return None;
    }
    let is_of_index = table.indexes.iter().any(|index| index.columns.contains(&column));
    if !is_integer || is_of_index || !is_point(scan) || keys.tables.contains_key(&table.id) {
        return None;
    }
    let is_it = |expr: &Expr| matches!(expr, Expr::Column(at) if scan.columns.get(*at) == Some(&column));
    let (operation, by) = match without_casts(columns.get(table.columns.len())?) {
        Expr::Call(function, arguments) => match (function.name, &**arguments) {
            ("+", [left, by]) if is_it(left) => (Arithmetic::Add, by),
            ("+", [by, right]) if is_it(right) => (Arithmetic::Add, by),
            ("-", [left, by]) if is_it(left) => (Arithmetic::Subtract, by),
            _ => return None,
        },
        _ => return None,
    };
    let bound = match condition {
        None => None,
        Some(Expr::Call(function, arguments)) => match (&**arguments, comparison(function.name)?) {
            ([left, value], (comparison, _)) if is_it(left) => Some((comparison, value)),
            ([value, right], (_, turned)) if is_it(right) => Some((turned, value)),
            _ => return None,
        },
        Some(_) => return None,
    };
    let is_known = is_known(by) && bound.is_none_or(|(_, value)| is_known(value));
    is_known.then_some(Step { scan, column, operation, by, bound })
}

/// A comparison, and the one that says the same with its sides exchanged.
fn comparison(sign: &str) -> Option<(Comparison, Comparison)> {
    use Comparison::{AtLeast, AtMost, Greater, Less};
    Some(match sign {
        ">=" => (AtLeast, AtMost),
        ">" => (Greater, Less),
        "<=" => (AtMost, AtLeast),
        "<" => (Less, Greater),
        _ => return None,
    })
}

fn without_casts(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(_, inner) | Expr::Bounded(_, _, inner) => without_casts(inner),
        expr => expr,
    }
}

/// Whether an expression is made of constants and parameters alone.
fn is_known(expr: &Expr) -> bool {
    match expr {
        Expr::Constant(_) | Expr::Parameter(_) => true,
        Expr::Call(_, arguments) => arguments.iter().all(is_known),
        Expr::Cast(_, inner) | Expr::Bounded(_, _, inner) => is_known(inner),
        _ => false,
    }
}

impl Step<'_> {
    /// Makes the step as a future. `None`: it is to be made in the ordinary way.
    pub(super) fn run(&self, exec: &Exec<'_>, context: &Context<'_>) -> Result<Option<u64>, Failure> {
        let number = |expr: &Expr| match expr.eval(&[], context) {
            Ok(Datum::Int(number)) => Some(number),
            // What is NULL or fails is answered in the ordinary way, in which a row that is not there comes first.
            _ => None,
        };
        let Some(by) = number(self.by) else { return Ok(None) };
        let bound = match self.bound {
            None => None,
            Some((comparison, value)) => match number(value) {
                Some(value) => Some((comparison, value)),
                None => return Ok(None),
            },
        };
        let mut scratch = KeyScratch::new();
        let Some(key) = point_key(self.scan, context, &mut scratch)? else { return Ok(Some(0)) };
        let stored = &self.scan.table.layout.columns()[self.column];
        let span = ColumnSpan { index: self.column as u16, slot: stored.slot };
        let column = FutureColumn { span, column_type: stored.column_type, nullable: false };
        let step = Stepped { column, operation: self.operation, by, bound };
        Ok(Some(exec.access.step(self.scan.table.id, key, &step)?.into()))
    }
}
