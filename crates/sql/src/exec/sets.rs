//! Rows that are there once, in one set and not in another, or made of each other.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::aggregates::group_key;
use super::{Exec, Failure, Flow, Rows, Sink, owned, pushed, run};
use crate::context::Context;
use crate::datum::Datum;
use crate::expr::Expr;
use crate::plan::Node;

#[inline(never)]
pub(super) fn distinct(
    input: &Node,
    keys: Option<&[Expr]>,
    seen: &mut HashSet<Vec<u8>>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut arena = exec.take_arena();
    let flow = run(input, exec, context, &mut |exec, row| {
        arena.reset();
        let inner = context.with_arena(&arena);
        let values = keys.map(|keys| keys.iter().map(|key| key.eval(row, &inner)).collect::<Result<Vec<_>, _>>());
        let values = values.transpose()?;
        let values = values.as_deref().unwrap_or(row);
        if !seen.insert(group_key(values)) {
            return Ok(Flow::More);
        }
        exec.keep(values)?;
        out(exec, row)
    });
    exec.give_arena(arena);
    flow
}

/// How often rows are on the right side.
pub(super) type Counts = HashMap<Vec<u8>, usize>;

/// Counts the rows of a right side.
#[inline(never)]
pub(super) fn counted(right: &Node, exec: &mut Exec<'_>, context: &Context<'_>) -> Result<Counts, Failure> {
    let mut counts = Counts::new();
    run(right, exec, context, &mut |exec, row| {
        let count = counts.entry(group_key(row)).or_default();
        if *count == 0 {
            exec.keep(row)?;
        }
        *count += 1;
        Ok(Flow::More)
    })?;
    Ok(counts)
}

#[inline(never)]
pub(super) fn without(
    left: &Node,
    counts: &mut Counts,
    (is_except, is_all): (bool, bool),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    run(left, exec, context, &mut |exec, row| {
        let key = group_key(row);
        let is_wanted = match counts.get_mut(&key) {
            // Each row of the right side stands for one of the left side.
            Some(count) if is_all && *count > 0 => {
                *count -= 1;
                !is_except
            }
            Some(_) if is_all => is_except,
            Some(count) => !is_except && std::mem::take(count) > 0,
            None => {
                if is_except && !is_all {
                    exec.keep(row)?;
                    counts.insert(key, 1);
                }
                is_except
            }
        };
        if is_wanted { out(exec, row) } else { Ok(Flow::More) }
    })
}

/// Rows that are computed when they are wanted for the first time.
#[inline(never)]
pub(super) fn kept(
    id: usize,
    input: &Node,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let known = exec.shared.results().kept.borrow().get(&id).cloned();
    let rows = match known {
        Some(rows) => rows,
        None => {
            let before = exec.shared.memory.get();
            let mut rows = Rows::new();
            run(input, exec, context, &mut |exec, row| {
                exec.keep(row)?;
                rows.push(owned(row));
                Ok(Flow::More)
            })?;
            let rows = Arc::new(rows);
            exec.shared.results().kept.borrow_mut().insert(id, rows.clone());
            exec.lasts(before);
            rows
        }
    };
    pushed(&*rows, exec, out)
}

/// Pushes rows and those that are made of them, each round of those of the last one. Its end without an end is that of the memory.
#[inline(never)]
pub(super) fn recursive(
    id: usize,
    (first, step): (&Node, &Node),
    is_all: bool,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut seen = HashSet::new();
    let mut node = first;
    let around = exec.shared.results().working.borrow_mut().remove(&id);
    let flow = loop {
        let mut rows = Rows::new();
        let flow = run(node, exec, context, &mut |exec, row| {
            if !is_all && !seen.insert(group_key(row)) {
                return Ok(Flow::More);
            }
            exec.keep(row)?;
            rows.push(owned(row));
            out(exec, row)
        })?;
        if flow == Flow::Enough || rows.is_empty() {
            break flow;
        }
        exec.shared.results().working.borrow_mut().insert(id, Arc::new(rows));
        node = step;
    };
    let mut working = exec.shared.results().working.borrow_mut();
    match around {
        Some(rows) => working.insert(id, rows),
        None => working.remove(&id),
    };
    Ok(flow)
}

/// Pushes each row with the values of functions that give several rows: one of each at a time, NULL where one has no more, and the number of the row at the end.
#[inline(never)]
pub(super) fn expand(
    input: &Node,
    (calls, has_numbers): (&[(Expr, usize)], bool),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut arena = exec.take_arena();
    let flow = run(input, exec, context, &mut |exec, row| {
        arena.reset();
        let inner = context.with_arena(&arena);
        let values = calls.iter().map(|(call, _)| call.eval(row, &inner)).collect::<Result<Vec<_>, _>>()?;
        let items = |value: &Datum<'_>| if let Datum::Array(array) = value { array.length() } else { 0 };
        let count = values.iter().zip(calls).map(|(value, (_, width))| items(value) / width).max().unwrap_or(0);
        let mut left: Vec<_> = values
            .iter()
            .map(|value| if let Datum::Array(array) = value { Some(array.items()) } else { None })
            .collect();
        for number in 1..=count {
            exec.tick()?;
            let mut made = bumpalo::collections::Vec::with_capacity_in(row.len() + calls.len() + 1, inner.arena);
            made.extend_from_slice(row);
            for (items, (_, width)) in left.iter_mut().zip(calls) {
                let next = || items.as_mut().and_then(Iterator::next).unwrap_or(Datum::Null);
                made.extend(std::iter::repeat_with(next).take(*width));
            }
            if has_numbers {
                made.push(Datum::Int(number as i64));
            }
            if out(exec, &made)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    });
    exec.give_arena(arena);
    flow
}
