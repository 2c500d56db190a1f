//! Groups and aggregates.

use hashbrown::HashMap;

use super::{Exec, Failure, Flow, Sink, run};
use crate::bind::{Aggregate, AggregateKind};
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::decimal::Decimal;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::plan::Node;
use crate::types::Type;

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

/// What an aggregate knows of the rows so far.
#[derive(Clone)]
struct State {
    count: i64,
    /// The sum, or the least, the greatest, the and, the or; NULL before the first value.
    value: OwnedDatum,
    seen: hashbrown::HashSet<Vec<u8>>,
}

impl State {
    fn new() -> Self {
        Self { count: 0, value: OwnedDatum::NULL, seen: hashbrown::HashSet::new() }
    }

    fn add(&mut self, aggregate: &Aggregate, value: Datum<'_>) -> Result<(), SqlError> {
        if value.is_null() || aggregate.is_distinct && !self.seen.insert(group_key(&[value])) {
            return Ok(());
        }
        self.count += 1;
        let so_far = self.value.get();
        self.value = match (aggregate.kind, so_far, value) {
            (AggregateKind::CountRows | AggregateKind::Count, ..) => return Ok(()),
            (AggregateKind::Sum | AggregateKind::Average, Datum::Null, Datum::Int(value)) => {
                OwnedDatum::Plain(Datum::Numeric(value.into()))
            }
            (_, Datum::Null, value) => value.owned(),
            (AggregateKind::Sum | AggregateKind::Average, sum, value) => OwnedDatum::Plain(add(sum, value)?),
            (AggregateKind::Least, least, value) if value.compare(least).is_lt() => value.owned(),
            (AggregateKind::Greatest, greatest, value) if value.compare(greatest).is_gt() => value.owned(),
            (AggregateKind::All, Datum::Bool(all), Datum::Bool(value)) => OwnedDatum::Plain(Datum::Bool(all && value)),
            (AggregateKind::Any, Datum::Bool(any), Datum::Bool(value)) => OwnedDatum::Plain(Datum::Bool(any || value)),
            _ => return Ok(()),
        };
        Ok(())
    }

    fn result(&self, aggregate: &Aggregate) -> Result<Datum<'_>, SqlError> {
        match (aggregate.kind, self.value.get()) {
            (AggregateKind::CountRows | AggregateKind::Count, _) => Ok(Datum::Int(self.count)),
            (AggregateKind::Average, Datum::Numeric(sum)) => sum.divide(self.count.into()).map(Datum::Numeric),
            (AggregateKind::Average, Datum::Float(sum)) => Ok(Datum::Float(sum / self.count as f64)),
            (AggregateKind::Sum, Datum::Numeric(sum)) if aggregate.result == Type::Int8 => {
                crate::casts::in_range(sum.units(), Type::Int8)
            }
            (AggregateKind::Sum, Datum::Float(sum)) if aggregate.result == Type::Float4 => {
                Ok(Datum::Float(f64::from(sum as f32)))
            }
            (_, value) => Ok(value),
        }
    }
}

fn add(sum: Datum<'_>, value: Datum<'_>) -> Result<Datum<'static>, SqlError> {
    match (sum, value) {
        (Datum::Numeric(sum), Datum::Int(value)) => sum.add(Decimal::from(value)).map(Datum::Numeric),
        (Datum::Numeric(sum), Datum::Numeric(value)) => sum.add(value).map(Datum::Numeric),
        (Datum::Float(sum), Datum::Float(value)) => Ok(Datum::Float(sum + value)),
        (sum, value) => unreachable!("{sum:?} and {value:?} are of one type"),
    }
}

type Groups = HashMap<Vec<u8>, usize>;

pub(super) fn aggregate(
    input: &Node,
    (keys, aggregates): (&[Expr], &[Aggregate]),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut positions = Groups::new();
    let mut groups: Vec<(Vec<OwnedDatum>, Vec<State>)> = Vec::new();
    let mut arena = exec.take_arena();
    run(input, exec, context, &mut |exec, row| {
        arena.reset();
        let context = context.with_arena(&arena);
        let values = keys.iter().map(|key| key.eval(row, &context)).collect::<Result<Vec<_>, _>>()?;
        let key = group_key(&values);
        let at = match positions.get(&key) {
            Some(at) => *at,
            None => {
                exec.keep(&values)?;
                positions.insert(key, groups.len());
                groups.push((values.iter().map(|it| it.owned()).collect(), vec![State::new(); aggregates.len()]));
                groups.len() - 1
            }
        };
        for (aggregate, state) in aggregates.iter().zip(&mut groups[at].1) {
            step(aggregate, state, row, &context, exec)?;
        }
        Ok(Flow::More)
    })?;
    if keys.is_empty() && groups.is_empty() {
        groups.push((Vec::new(), vec![State::new(); aggregates.len()]));
    }
    exec.give_arena(arena);
    for (values, states) in &groups {
        let results = aggregates.iter().zip(states).map(|(aggregate, state)| state.result(aggregate));
        let mut row: Vec<_> = values.iter().map(OwnedDatum::get).collect();
        row.extend(results.collect::<Result<Vec<_>, _>>()?);
        if out(exec, &row)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

fn step<'a>(
    aggregate: &'a Aggregate,
    state: &mut State,
    row: &[Datum<'a>],
    context: &Context<'a>,
    exec: &mut Exec<'_>,
) -> Result<(), Failure> {
    if let Some(filter) = &aggregate.filter
        && !filter.holds(row, context)?
    {
        return Ok(());
    }
    let Some(argument) = &aggregate.argument else {
        state.count += 1;
        return Ok(());
    };
    let value = argument.expr.eval(row, context)?;
    if aggregate.is_distinct {
        exec.keep(&[value])?;
    }
    Ok(state.add(aggregate, value)?)
}
