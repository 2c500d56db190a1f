//! Window functions: rows are gathered, sorted by partition and order, and each looks at those of its frame.

use std::ops::Range;

use super::aggregates::step;
use super::states::State;
use super::{Exec, Failure, Flow, Sink, owned, run, sorts};
use crate::bind::{Aggregate, Edge, Exclusion, Offset, Units, Window, WindowCall, WindowFunction};
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::plan::{Node, SortKey};
use crate::wide::Number;

/// A row with what it is sorted by.
struct Row {
    partition: Vec<OwnedDatum>,
    order: Vec<OwnedDatum>,
    row: Vec<OwnedDatum>,
}

/// The rows that belong together, and for each of them the rows that are equal to it in the order.
struct Partition<'r> {
    rows: &'r [Row],
    peers: Vec<Range<usize>>,
    /// The number of each row's peers, from 0.
    groups: Vec<usize>,
    starts: Vec<usize>,
}

/// The rows of a frame: a range, without the rows of another one, but with one of these.
#[derive(Clone, PartialEq, Eq)]
struct Frame {
    rows: Range<usize>,
    without: Range<usize>,
    but: Option<usize>,
}

impl Frame {
    fn positions(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let Range { start, end } = self.rows;
        let before = start..self.without.start.clamp(start, end.max(start));
        let behind = self.without.end.clamp(start, end.max(start))..end;
        let but = self.but.filter(|at| self.rows.contains(at));
        before.chain(but).chain(behind)
    }
}

/// What a call remembers from row to row of a partition.
#[derive(Default)]
struct Memory {
    frame: Option<Frame>,
    state: State,
    result: Option<OwnedDatum>,
}

#[inline(never)]
pub(super) fn windows(
    input: &Node,
    (window, calls): (&Window, &[WindowCall]),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut rows: Vec<Row> = Vec::new();
    let mut arena = exec.take_arena();
    run(input, exec, context, &mut |exec, row| {
        arena.reset();
        let context = context.with_arena(&arena);
        let partition = window.partition.iter().map(|key| Ok(key.eval(row, &context)?.owned()));
        let partition = partition.collect::<Result<Vec<_>, SqlError>>()?;
        let order = window.order.iter().map(|key| Ok(key.expr.eval(row, &context)?.owned()));
        let order = order.collect::<Result<Vec<_>, SqlError>>()?;
        exec.keep(row)?;
        exec.keep(&borrowed(&partition))?;
        exec.keep(&borrowed(&order))?;
        rows.push(Row { partition, order, row: owned(row) });
        Ok(Flow::More)
    })?;
    exec.give_arena(arena);
    let by_partition: Vec<_> = window.partition.iter().map(|expr| SortKey::rising(expr.clone())).collect();
    let is_together = |one: &Row, other: &Row| sorts::compare(&by_partition, &one.partition, &other.partition);
    sorts::sort_by(&mut rows, exec, &|one, other| {
        is_together(one, other).then_with(|| sorts::compare(&window.order, &one.order, &other.order))
    })?;
    for rows in rows.chunk_by(|one, other| is_together(one, other).is_eq()) {
        let partition = Partition::of(rows, &window.order);
        if partition.push((window, calls), exec, context, out)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

fn borrowed(values: &[OwnedDatum]) -> Vec<Datum<'_>> {
    values.iter().map(OwnedDatum::get).collect()
}

impl<'r> Partition<'r> {
    fn of(rows: &'r [Row], order: &[SortKey]) -> Self {
        let mut it = Self { rows, peers: Vec::new(), groups: Vec::new(), starts: Vec::new() };
        let mut start = 0;
        for group in rows.chunk_by(|one, other| sorts::compare(order, &one.order, &other.order).is_eq()) {
            let end = start + group.len();
            it.groups.extend(std::iter::repeat_n(it.starts.len(), group.len()));
            it.peers.extend(std::iter::repeat_n(start..end, group.len()));
            it.starts.push(start);
            start = end;
        }
        it
    }

    fn push(
        &self,
        (window, calls): (&Window, &[WindowCall]),
        exec: &mut Exec<'_>,
        context: &Context<'_>,
        out: &mut Sink<'_>,
    ) -> Result<Flow, Failure> {
        let mut memories: Vec<_> = calls.iter().map(|_| Memory::default()).collect();
        let mut results: Vec<OwnedDatum> = Vec::new();
        let uses_frame = calls.iter().any(|call| call.function.uses_frame());
        for at in 0..self.rows.len() {
            exec.tick()?;
            let frame = if uses_frame { self.frame(at, window, context)? } else { self.whole() };
            results.clear();
            for (call, memory) in calls.iter().zip(&mut memories) {
                results.push(self.result(at, &frame, (call, memory), exec, context)?);
            }
            let row: Vec<_> = self.rows[at].row.iter().chain(&results).map(OwnedDatum::get).collect();
            if out(exec, &row)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    const fn whole(&self) -> Frame {
        Frame { rows: 0..self.rows.len(), without: 0..0, but: None }
    }

    fn frame(&self, at: usize, window: &Window, context: &Context<'_>) -> Result<Frame, Failure> {
        let frame = &window.frame;
        let start = match &frame.start {
            Edge::Unbounded => 0,
            Edge::Current if frame.units == Units::Rows => at,
            Edge::Current => self.peers[at].start,
            Edge::Offset(offset) => self.reached(at, (frame.units, offset, true), &window.order, context)?,
        };
        let end = match &frame.end {
            Edge::Unbounded => self.rows.len(),
            Edge::Current if frame.units == Units::Rows => at + 1,
            Edge::Current => self.peers[at].end,
            Edge::Offset(offset) => self.reached(at, (frame.units, offset, false), &window.order, context)?,
        };
        let (without, but) = match frame.exclusion {
            Exclusion::None => (start..start, None),
            Exclusion::Current => (at..at + 1, None),
            Exclusion::Group => (self.peers[at].clone(), None),
            Exclusion::Ties => (self.peers[at].clone(), Some(at)),
        };
        Ok(Frame { rows: start..end.max(start), without, but })
    }

    /// Where a frame begins, or ends before, at a distance from a row.
    fn reached(
        &self,
        at: usize,
        (units, offset, is_start): (Units, &Offset, bool),
        order: &[SortKey],
        context: &Context<'_>,
    ) -> Result<usize, Failure> {
        let edge = if is_start { "starting" } else { "ending" };
        let count = offset.count.eval(&[], context)?;
        if count.is_null() {
            let message = format!("frame {edge} offset must not be null");
            return Err(SqlError::new(SqlState("22004"), message).into());
        }
        if units == Units::Range {
            return self.reached_value(at, (offset, is_start), count, order, context);
        }
        let Datum::Int(count) = count else { unreachable!("an integer") };
        if count < 0 {
            let message = format!("frame {edge} offset must not be negative");
            return Err(SqlError::new(SqlState("22013"), message).into());
        }
        let signed = if offset.is_before { -i128::from(count) } else { i128::from(count) };
        let (here, most) =
            if units == Units::Rows { (at, self.rows.len()) } else { (self.groups[at], self.starts.len()) };
        let reached = here as i128 + signed + i128::from(!is_start);
        let reached = reached.clamp(0, most as i128) as usize;
        Ok(match units {
            Units::Rows => reached,
            _ => self.starts.get(reached).copied().unwrap_or(self.rows.len()),
        })
    }

    fn reached_value(
        &self,
        at: usize,
        (offset, is_start): (&Offset, bool),
        count: Datum<'_>,
        order: &[SortKey],
        context: &Context<'_>,
    ) -> Result<usize, Failure> {
        let is_negative = match count {
            Datum::Int(count) => count < 0,
            Datum::Float(count) => count < 0.0 || count.is_nan(),
            Datum::Numeric(_) | Datum::Wide(_) => Number::of(count).sign().is_none_or(|sign| sign < 0),
            Datum::Interval(count) => count.span() < 0,
            _ => false,
        };
        if is_negative {
            let message = "invalid preceding or following size in window function";
            return Err(SqlError::new(SqlState("22013"), message).into());
        }
        let ([key], Some((own, limit))) = (order, &offset.reach) else { unreachable!("one key") };
        let current = self.rows[at].order[0].get();
        if current.is_null() {
            return Ok(if is_start { self.peers[at].start } else { self.peers[at].end });
        }
        let limit = match limit.eval(&[current, count], context) {
            Ok(limit) => limit.owned(),
            // Beyond what the type has are no values.
            Err(error) if error.state() == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => {
                let is_before = |row: &Row| row.order[0].get().is_null() == key.nulls_first;
                return Ok(match (offset.is_before, key.nulls_first) {
                    (true, true) | (false, false) => self.rows.partition_point(is_before),
                    (true, false) => 0,
                    (false, true) => self.rows.len(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        // The first row that is not before the limit, or that is beyond it.
        let mut failure = None;
        let reached = self.rows.partition_point(|row| {
            let value = row.order[0].get();
            if value.is_null() {
                return key.nulls_first;
            }
            match own.eval(&[value, count], context) {
                Ok(value) => {
                    let order = value.compare(limit.get());
                    let order = if key.is_descending { order.reverse() } else { order };
                    if is_start { order.is_lt() } else { order.is_le() }
                }
                Err(error) => {
                    failure.get_or_insert(error);
                    false
                }
            }
        });
        failure.map_or(Ok(reached), |error| Err(error.into()))
    }

    /// The value of a call's argument over a row.
    fn argument(
        &self,
        at: usize,
        call: &WindowCall,
        number: usize,
        context: &Context<'_>,
    ) -> Result<OwnedDatum, Failure> {
        let row: Vec<_> = self.rows[at].row.iter().map(OwnedDatum::get).collect();
        Ok(call.arguments[number].eval(&row, context)?.owned())
    }

    fn result(
        &self,
        at: usize,
        frame: &Frame,
        (call, memory): (&WindowCall, &mut Memory),
        exec: &mut Exec<'_>,
        context: &Context<'_>,
    ) -> Result<OwnedDatum, Failure> {
        let mut arena = exec.take_arena();
        let result = self.result_in(at, frame, (call, memory), exec, &context.with_arena(&arena));
        arena.reset();
        exec.give_arena(arena);
        result
    }

    fn result_in(
        &self,
        at: usize,
        frame: &Frame,
        (call, memory): (&WindowCall, &mut Memory),
        exec: &mut Exec<'_>,
        context: &Context<'_>,
    ) -> Result<OwnedDatum, Failure> {
        let int = |value: usize| OwnedDatum::Plain(Datum::Int(value as i64));
        let float = |value: f64| OwnedDatum::Plain(Datum::Float(value));
        let count = self.rows.len();
        let peers = &self.peers[at];
        let value_at = |position: Option<usize>| match position {
            Some(position) => self.argument(position, call, 0, context),
            None => Ok(OwnedDatum::NULL),
        };
        Ok(match &call.function {
            WindowFunction::RowNumber => int(at + 1),
            WindowFunction::Rank => int(peers.start + 1),
            WindowFunction::DenseRank => int(self.groups[at] + 1),
            WindowFunction::PercentRank if count == 1 => float(0.0),
            WindowFunction::PercentRank => float(peers.start as f64 / (count - 1) as f64),
            WindowFunction::CumeDist => float(peers.end as f64 / count as f64),
            WindowFunction::Ntile => match self.integer(at, call, 0, context)? {
                None => OwnedDatum::NULL,
                Some(..=0) => {
                    let message = "argument of ntile must be greater than zero";
                    return Err(SqlError::new(SqlState("22014"), message).into());
                }
                Some(buckets) => int(bucket(at, count, buckets as usize)),
            },
            WindowFunction::Lag | WindowFunction::Lead => {
                let is_lag = matches!(call.function, WindowFunction::Lag);
                let steps = if call.arguments.len() > 1 { self.integer(at, call, 1, context)? } else { Some(1) };
                let Some(steps) = steps else { return Ok(OwnedDatum::NULL) };
                let target = at as i64 + if is_lag { -steps } else { steps };
                match usize::try_from(target).ok().filter(|target| *target < count) {
                    Some(target) => self.argument(target, call, 0, context)?,
                    None if call.arguments.len() > 2 => self.argument(at, call, 2, context)?,
                    None => OwnedDatum::NULL,
                }
            }
            WindowFunction::FirstValue => value_at(frame.positions().next())?,
            WindowFunction::LastValue => value_at(frame.positions().next_back())?,
            WindowFunction::NthValue => match self.integer(at, call, 1, context)? {
                None => OwnedDatum::NULL,
                Some(..=0) => {
                    let message = "argument of nth_value must be greater than zero";
                    return Err(SqlError::new(SqlState("22016"), message).into());
                }
                Some(nth) => value_at(frame.positions().nth(nth as usize - 1))?,
            },
            WindowFunction::Aggregate(aggregate) => self.aggregated(aggregate, frame, memory, exec, context)?,
        })
    }

    /// An aggregate of the rows of a frame. One that begins where the last row's did goes on from there.
    fn aggregated(
        &self,
        aggregate: &Aggregate,
        frame: &Frame,
        memory: &mut Memory,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
    ) -> Result<OwnedDatum, Failure> {
        let known = memory.frame.take();
        let is_longer = known.as_ref().is_some_and(|known| {
            known.rows.start == frame.rows.start
                && known.rows.end <= frame.rows.end
                && known.without.is_empty()
                && frame.without.is_empty()
        });
        let is_same = known.as_ref() == Some(frame);
        if let (true, Some(result)) = (is_same, &memory.result) {
            memory.frame = known;
            return Ok(result.clone());
        }
        let from = if is_longer { known.map_or(0, |known| known.rows.end) } else { 0 };
        if !is_longer {
            memory.state = State::default();
        }
        // What is new is a range, as one that grows leaves nothing out.
        let new = Frame { rows: frame.rows.start.max(from)..frame.rows.end.max(from), ..frame.clone() };
        for position in new.positions() {
            let row: Vec<_> = self.rows[position].row.iter().map(OwnedDatum::get).collect();
            step(aggregate, &mut memory.state, &row, context, exec)?;
        }
        let result = memory.state.result(aggregate, &[])?;
        memory.frame = Some(frame.clone());
        memory.result = Some(result.clone());
        Ok(result)
    }

    fn integer(
        &self,
        at: usize,
        call: &WindowCall,
        number: usize,
        context: &Context<'_>,
    ) -> Result<Option<i64>, Failure> {
        let value = self.argument(at, call, number, context)?;
        Ok(if let Datum::Int(value) = value.get() { Some(value) } else { None })
    }
}

/// The number of a row's bucket where the first ones have one row more than the others.
const fn bucket(at: usize, count: usize, buckets: usize) -> usize {
    let (size, larger) = (count / buckets, count % buckets);
    if at < larger * (size + 1) { at / (size + 1) + 1 } else { larger + (at - larger * (size + 1)) / size + 1 }
}

impl WindowFunction {
    /// Whether it looks at the rows of the frame alone.
    const fn uses_frame(&self) -> bool {
        matches!(self, Self::Aggregate(_) | Self::FirstValue | Self::LastValue | Self::NthValue)
    }
}
