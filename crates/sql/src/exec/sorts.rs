//! Sorted rows.

use std::cmp::Ordering;

use super::{Exec, Failure, Flow, Sink, owned, pushed, run};
use crate::context::Context;
use crate::datum::OwnedDatum;
use crate::plan::{Node, SortKey};

/// A row, the values that it is sorted by, and its bytes.
struct Row {
    values: Vec<OwnedDatum>,
    row: Vec<OwnedDatum>,
    bytes: usize,
}

/// Pushes rows in their order; of more than `most`, the last ones may be missing.
#[inline(never)]
pub(super) fn sort(
    input: &Node,
    keys: &[SortKey],
    most: usize,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut rows: Vec<Row> = Vec::new();
    // Once there are more rows than are wanted: how many are the first ones, in order, of which the last one is the limit for others.
    let mut first = 0;
    let room = most.saturating_mul(2).max(64);
    let mut arena = exec.take_arena();
    run(input, exec, context, &mut |exec, row| {
        arena.reset();
        let context = context.with_arena(&arena);
        let values = keys.iter().map(|key| key.expr.eval(row, &context).map(|value| value.owned()));
        let values: Vec<_> = values.collect::<Result<_, _>>()?;
        if first > 0 && compare(keys, &values, &rows[first - 1].values).is_ge() {
            return Ok(Flow::More);
        }
        rows.push(Row { values, row: owned(row), bytes: exec.keep(row)? });
        if rows.len() >= room {
            sort_by(&mut rows, exec, &|one, other| compare(keys, &one.values, &other.values))?;
            exec.forget(rows.drain(most..).map(|row| row.bytes).sum());
            first = most;
        }
        Ok(Flow::More)
    })?;
    exec.give_arena(arena);
    sort_by(&mut rows, exec, &|one, other| compare(keys, &one.values, &other.values))?;
    pushed(rows.iter().map(|row| &row.row), exec, out)
}

/// How many rows are sorted before it is looked whether the statement may go on.
const RUN: usize = 16 << 10;

/// Sorts, stably. A statement that can be called off sorts runs, and merges them: between two steps it looks whether it was.
pub(super) fn sort_by<T>(
    rows: &mut Vec<T>,
    exec: &Exec<'_>,
    order: &dyn Fn(&T, &T) -> Ordering,
) -> Result<(), Failure> {
    if rows.len() <= RUN || !exec.is_limited() {
        rows.sort_by(order);
        return Ok(());
    }
    let mut all = std::mem::take(rows).into_iter();
    let mut runs = Vec::new();
    loop {
        let mut run: Vec<_> = all.by_ref().take(RUN).collect();
        if run.is_empty() {
            break;
        }
        run.sort_by(order);
        exec.check()?;
        runs.push(run);
    }
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(first) = pairs.next() {
            merged.push(match pairs.next() {
                Some(second) => merge(first, second, exec, order)?,
                None => first,
            });
        }
        runs = merged;
    }
    *rows = runs.pop().unwrap_or_default();
    Ok(())
}

fn merge<T>(
    first: Vec<T>,
    second: Vec<T>,
    exec: &Exec<'_>,
    order: &dyn Fn(&T, &T) -> Ordering,
) -> Result<Vec<T>, Failure> {
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    while let (Some(one), Some(other)) = (first.peek(), second.peek()) {
        exec.tick()?;
        merged.extend(if order(other, one).is_lt() { second.next() } else { first.next() });
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}

/// The order of two rows' values of the keys.
pub(super) fn compare(keys: &[SortKey], one: &[OwnedDatum], other: &[OwnedDatum]) -> Ordering {
    let by_key = keys.iter().zip(one.iter().zip(other)).map(|(key, (a, b))| {
        let (a, b) = (a.get(), b.get());
        match (a.is_null(), b.is_null()) {
            (false, false) if key.is_descending => b.compare(a),
            (false, false) => a.compare(b),
            (a, b) if key.nulls_first => b.cmp(&a),
            (a, b) => a.cmp(&b),
        }
    });
    by_key.fold(Ordering::Equal, Ordering::then)
}
