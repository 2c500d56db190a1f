//! Groups and aggregates.

use hashbrown::HashMap;

use super::states::State;
use super::{Exec, Failure, Flow, Sink, run};
use crate::bind::Aggregate;
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::expr::Expr;
use crate::plan::Node;
use crate::wide::Number;

/// A row as bytes that are equal if the values are, by the equality of SQL; NULL equals NULL.
pub(super) fn group_key(row: &[Datum<'_>]) -> Vec<u8> {
    let mut key = Vec::with_capacity(row.len() * 9);
    for datum in row {
        match datum {
            Datum::Null => key.push(0),
            Datum::Bool(value) => key.extend([1, u8::from(*value)]),
            Datum::Int(value) | Datum::Time(value) | Datum::Timestamp(value) => {
                key.push(2);
                key.extend(value.to_le_bytes());
            }
            Datum::Float(value) => {
                let value = if *value == 0.0 {
                    0.0
                } else if value.is_nan() {
                    f64::NAN
                } else {
                    *value
                };
                key.push(3);
                key.extend(value.to_bits().to_le_bytes());
            }
            Datum::Numeric(value) => {
                let value = value.normalized();
                key.push(4);
                key.extend(value.units().to_le_bytes());
                key.extend(value.scale().to_le_bytes());
            }
            // What is equal to a decimal has the key of that.
            Datum::Wide(_) => match Number::of(*datum).normalized().datum().unwrap_or(OwnedDatum::NULL) {
                OwnedDatum::Wide(bytes) => sized(&mut key, 12, &bytes),
                decimal => key.extend(group_key(&[decimal.get()])),
            },
            Datum::Text(text) => sized(&mut key, 5, text.as_bytes()),
            Datum::Bytes(bytes) => sized(&mut key, 6, bytes),
            Datum::Date(days) => {
                key.push(7);
                key.extend(days.to_le_bytes());
            }
            Datum::Interval(interval) => {
                key.push(8);
                key.extend(interval.span().to_le_bytes());
            }
            Datum::Json(text) => sized(&mut key, 10, crate::json::equal_form(text).as_bytes()),
            Datum::Array(array) => {
                let items: Vec<_> = array.items().collect();
                let dimensions: Vec<_> = array.dimensions().iter().flat_map(|it| [it.length, it.lower]).collect();
                key.push(11);
                key.extend((dimensions.len() as u64).to_le_bytes());
                dimensions.iter().for_each(|it| key.extend(it.to_le_bytes()));
                key.extend(group_key(&items));
            }
            Datum::Uuid(uuid) => {
                key.push(9);
                key.extend(uuid);
            }
        }
    }
    key
}

fn sized(key: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    key.push(tag);
    key.extend((bytes.len() as u64).to_le_bytes());
    key.extend(bytes);
}

/// A group: its values, and what its aggregates know.
struct Group {
    set: usize,
    values: Vec<OwnedDatum>,
    states: Vec<State>,
}

#[inline(never)]
pub(super) fn aggregate(
    input: &Node,
    (keys, sets, aggregates): (&[Expr], &[Vec<usize>], &[Aggregate]),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    let mut positions: Vec<HashMap<Vec<u8>, usize>> = vec![HashMap::new(); sets.len()];
    let states = || vec![State::default(); aggregates.len()];
    for (set, _) in sets.iter().enumerate().filter(|(_, set)| set.is_empty()) {
        positions[set].insert(Vec::new(), groups.len());
        groups.push(Group { set, values: vec![OwnedDatum::NULL; keys.len()], states: states() });
    }
    let mut arena = exec.take_arena();
    run(input, exec, context, &mut |exec, row| {
        arena.reset();
        let context = context.with_arena(&arena);
        let values = keys.iter().map(|key| key.eval(row, &context)).collect::<Result<Vec<_>, _>>()?;
        for (set, of_set) in sets.iter().enumerate() {
            let own: Vec<_> = of_set.iter().map(|&at| values[at]).collect();
            let key = group_key(&own);
            let at = match positions[set].get(&key) {
                Some(&at) => at,
                None => {
                    exec.keep(&own)?;
                    let mut kept = vec![OwnedDatum::NULL; keys.len()];
                    of_set.iter().for_each(|&at| kept[at] = values[at].owned());
                    groups.push(Group { set, values: kept, states: states() });
                    positions[set].insert(key, groups.len() - 1);
                    groups.len() - 1
                }
            };
            for (aggregate, state) in aggregates.iter().zip(&mut groups[at].states) {
                step(aggregate, state, row, &context, exec)?;
            }
        }
        Ok(Flow::More)
    })?;
    exec.give_arena(arena);
    for Group { set, values, states } in &groups {
        exec.tick()?;
        let results = aggregates.iter().zip(states).map(|(aggregate, state)| state.result(aggregate, &sets[*set]));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let row: Vec<_> = values.iter().chain(&results).map(OwnedDatum::get).collect();
        if out(exec, &row)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

/// Adds a row to what an aggregate knows.
pub(super) fn step<'a>(
    aggregate: &'a Aggregate,
    state: &mut State,
    row: &[Datum<'a>],
    context: &Context<'a>,
    exec: &mut Exec<'_>,
) -> Result<(), Failure> {
    exec.tick()?;
    if let Some(filter) = &aggregate.filter
        && !filter.holds(row, context)?
    {
        return Ok(());
    }
    if aggregate.is_of_rows() {
        state.count_row();
        return Ok(());
    }
    let exprs = aggregate.arguments.iter().chain(aggregate.order.iter().map(|key| &key.expr));
    let mut values = bumpalo::collections::Vec::with_capacity_in(aggregate.arguments.len(), context.arena);
    for expr in exprs {
        values.push(expr.eval(row, context)?);
    }
    if aggregate.keeps_values() {
        exec.keep(&values)?;
    }
    Ok(state.take(aggregate, &values)?)
}
