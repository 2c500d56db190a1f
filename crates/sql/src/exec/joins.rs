//! Joins.

use bumpalo::Bump;
use hashbrown::HashMap;

use super::aggregates::group_key;
use super::{Exec, Failure, Flow, Rows, Sink, owned, run};
use crate::context::{Context, Outer};
use crate::datum::{Datum, OwnedDatum};
use crate::expr::Expr;
use crate::plan::{JoinKind, Node};

#[inline(never)]
pub(super) fn join(
    node: &Node,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let Node::Join { left, right, on, kind, right_width, keys } = node else { unreachable!("a join") };
    let Some(keys) = keys else {
        let outer_width = (*kind != JoinKind::Inner).then_some(*right_width);
        return nested((left, right), on.as_ref(), outer_width, exec, context, out);
    };
    let table = Table::of(right, keys, *kind, exec, context)?;
    let mut is_matched = vec![false; if *kind == JoinKind::Full { table.rows.len() } else { 0 }];
    let flow = probe(node, &table, &mut is_matched, exec, context, out)?;
    if *kind != JoinKind::Full || flow == Flow::Enough {
        return Ok(flow);
    }
    let nothing: Vec<_> = vec![Datum::Null; left.width()];
    for (row, _) in table.rows.iter().zip(&is_matched).filter(|(_, is_matched)| !**is_matched) {
        let row: Vec<_> = nothing.iter().copied().chain(row.iter().map(OwnedDatum::get)).collect();
        if out(exec, &row)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

/// Pushes each left row of a join with the rows of the right side that are equal. `is_matched`: where it is not empty, which of these had a left row.
pub(super) fn probe(
    node: &Node,
    table: &Table,
    is_matched: &mut [bool],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let Node::Join { left, on, kind, right_width, keys: Some(keys), .. } = node else { unreachable!("a join by keys") };
    let mut arena = exec.take_arena();
    let nothing: Vec<_> = vec![Datum::Null; *right_width];
    let flow = run(left, exec, context, &mut |exec, row| {
        arena.reset();
        let inner = context.with_arena(&arena);
        let values = keys.iter().map(|(of_left, _)| of_left.eval(row, &inner)).collect::<Result<Vec<_>, _>>()?;
        let mut has_match = false;
        for &at in table.equal(&values) {
            exec.tick()?;
            let both: Vec<_> = row.iter().copied().chain(table.rows[at].iter().map(OwnedDatum::get)).collect();
            if on.as_ref().map_or(Ok(true), |on| on.holds(&both, &inner))? {
                has_match = true;
                is_matched.get_mut(at).into_iter().for_each(|it| *it = true);
                if out(exec, &both)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
        }
        if has_match || *kind == JoinKind::Inner {
            return Ok(Flow::More);
        }
        out(exec, &[row, &nothing].concat())
    })?;
    exec.give_arena(arena);
    Ok(flow)
}

/// The rows of a right side.
pub(super) struct Table {
    rows: Rows,
    /// The positions of those with these values, none of which is NULL.
    positions: HashMap<Vec<u8>, Vec<usize>>,
}

impl Table {
    pub(super) fn of(
        right: &Node,
        keys: &[(Expr, Expr)],
        kind: JoinKind,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
    ) -> Result<Self, Failure> {
        let mut table = Self { rows: Rows::new(), positions: HashMap::new() };
        let mut arena = exec.take_arena();
        // The left row is the next outer one, and nothing looks at it.
        let outer = Outer { row: &[], next: context.outer };
        let context = Context { outer: Some(&outer), ..*context };
        run(right, exec, &context, &mut |exec, row| {
            arena.reset();
            let inner = context.with_arena(&arena);
            let values = keys.iter().map(|(_, of_right)| of_right.eval(row, &inner)).collect::<Result<Vec<_>, _>>()?;
            let has_null = values.iter().any(|it| it.is_null());
            if has_null && kind != JoinKind::Full {
                return Ok(Flow::More);
            }
            exec.keep(row)?;
            if !has_null {
                exec.keep(&values)?;
                table.positions.entry(group_key(&values)).or_default().push(table.rows.len());
            }
            table.rows.push(owned(row));
            Ok(Flow::More)
        })?;
        exec.give_arena(arena);
        Ok(table)
    }

    fn equal(&self, values: &[Datum<'_>]) -> &[usize] {
        if values.iter().any(|it| it.is_null()) {
            return &[];
        }
        self.positions.get(&group_key(values)).map_or(&[], Vec::as_slice)
    }
}

/// Runs the right side for each left row.
fn nested(
    (left, right): (&Node, &Node),
    on: Option<&Expr>,
    outer_width: Option<usize>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut arena = exec.take_arena();
    let flow = run(left, exec, context, &mut |exec, row| {
        matched(row, (right, on, outer_width), (&mut arena, &mut false), exec, context, out)
    });
    exec.give_arena(arena);
    flow
}

/// Pushes a left row with the rows of the right side, or alone where it has none and is wanted so, with this many NULLs. `is_matched`: it had one, perhaps before.
pub(super) fn matched(
    row: &[Datum<'_>],
    (right, on, outer_width): (&Node, Option<&Expr>, Option<usize>),
    (arena, is_matched): (&mut Bump, &mut bool),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let outer = Outer { row, next: context.outer };
    let inner = Context { outer: Some(&outer), ..*context };
    let flow = run(right, exec, &inner, &mut |exec, other| {
        arena.reset();
        // A row of its own for each: what the two sides lend ends at different times.
        let mut both = bumpalo::collections::Vec::with_capacity_in(row.len() + other.len(), arena);
        both.extend_from_slice(row);
        both.extend_from_slice(other);
        match on {
            Some(on) if !on.holds(&both, &context.with_arena(arena))? => Ok(Flow::More),
            _ => {
                *is_matched = true;
                out(exec, &both)
            }
        }
    })?;
    match outer_width {
        Some(width) if !*is_matched && flow == Flow::More => {
            let mut both = row.to_vec();
            both.resize(row.len() + width, Datum::Null);
            out(exec, &both)
        }
        _ => Ok(flow),
    }
}
