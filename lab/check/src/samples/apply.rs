//! Runs operations in a transaction.

use std::ops::{Bound, ControlFlow};

use polychron_base::IndexId;
use polychron_engine::aggregate::{AggregateError, Group, Grouping};
use polychron_engine::{Aggregate, ColumnBatch, Direction, Error, Insertion, Operations, Scan, Table, Transaction};
use polychron_schema::{ColumnSpan, Key, KeyExtractor, KeyScratch, Layout, Projection, RangeScratch, RowRef, Value};

use super::model::{Answer, Refusal, in_any_order, normal};
use super::{Ask, Operation, Owner, Sample, SampleMut, Shape, Through, Values};
use crate::rows::Item;

/// The tables of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(crate) samples: Table<Sample>,
    pub(crate) owners: Table<Owner>,
    pub(crate) flags: Table<Item>,
}

/// Does what the operation says; what refuses it is an answer, after which the transaction goes on.
pub(crate) fn apply<T: Transaction>(t: &mut T, tables: &Tables, operation: &Operation) -> Result<Answer, Error> {
    match run(t, tables, operation) {
        Ok(answer) => Ok(answer),
        Err(Error::Conflict) => Err(Error::Conflict),
        Err(error) => match refusal(&error) {
            Some(refusal) => Ok(Answer::refused(refusal)),
            None => Err(error),
        },
    }
}

fn refusal(error: &Error) -> Option<Refusal> {
    Some(match error {
        Error::Duplicate { .. } => Refusal::Duplicate,
        Error::KeyTooLong(_) => Refusal::KeyTooLong,
        Error::NoParent { .. } => Refusal::NoParent,
        Error::HasChildren { .. } => Refusal::HasChildren,
        Error::TooLong(_) => Refusal::ValueTooLong,
        Error::NotNumeric(_) => Refusal::WrongType,
        Error::NoAnswer(failed) => match failed.why {
            AggregateError::NoSum(..) => Refusal::WrongType,
            AggregateError::Overflow(..) => Refusal::Overflow,
            _ => return None,
        },
        _ => return None,
    })
}

fn run<T: Transaction>(t: &mut T, tables: &Tables, operation: &Operation) -> Result<Answer, Error> {
    let Tables { samples, owners, flags } = tables;
    let inserted = |insertion: Insertion| match insertion {
        Insertion::Inserted => Answer::Flag(true),
        Insertion::Duplicate(_) => Answer::refused(Refusal::Duplicate),
    };
    Ok(match operation {
        Operation::Get { id, columns } => {
            let layout = layout(t, samples)?;
            let mut scratch = KeyScratch::new();
            let row = t.read_row(samples.id(), id.encode(&mut scratch), &projection(&layout, columns))?;
            Answer::Row(row.map(|row| values(row, &layout, columns)))
        }
        Operation::Look { id, column, whole } => {
            let mut seen = None;
            let found = change(t, samples, *id, *column, *whole, |row| seen = Some(vec![value_of(row, *column)]))?;
            Answer::Row(seen.filter(|_| found))
        }
        Operation::Ask(ask) => answer(t, samples, ask)?,
        Operation::Insert(row) => inserted(t.try_insert(samples, &Sample::of(row))?),
        Operation::Upsert(row) => t.upsert(samples, &Sample::of(row)).map(|()| Answer::Flag(true))?,
        Operation::Set { id, column, value, whole } => {
            Answer::Flag(change(t, samples, *id, *column, *whole, |row| set(row, *column, value))?)
        }
        Operation::Delete(id) => Answer::Flag(t.delete(samples, *id)?),
        Operation::InsertOwner(id) => inserted(t.try_insert(owners, &Owner { id: *id, mark: 0 })?),
        Operation::DeleteOwner(id) => Answer::Flag(t.delete(owners, *id)?),
        Operation::Tried(operation) => {
            let savepoint = t.savepoint();
            let answer = apply(t, tables, operation)?;
            t.roll_back_to(savepoint)?;
            answer
        }
        Operation::ReadFlag => {
            let flag = t.get(flags, 0)?.map(|row| row.value());
            Answer::Value(flag.map_or(Value::Null, Value::Integer))
        }
        Operation::SetFlag(value) => Answer::Flag(t.update(flags, 0, |row| row.set_value(*value))?),
    })
}

fn layout<T: Transaction>(t: &T, samples: &Table<Sample>) -> Result<Layout, Error> {
    t.definition(samples.id())?.layout().map_err(Error::from)
}

fn projection(layout: &Layout, columns: &[usize]) -> Projection {
    let span = |column: &usize| ColumnSpan { index: *column as u16, slot: layout.columns()[*column].slot };
    Projection::of(&columns.iter().map(span).collect::<Vec<_>>())
}

fn values(row: RowRef<'_>, layout: &Layout, columns: &[usize]) -> Values {
    columns.iter().map(|&column| row.value_ref(layout, column).to_value()).collect()
}

/// Answers a question about many rows.
fn answer<T: Transaction>(t: &mut T, samples: &Table<Sample>, ask: &Ask) -> Result<Answer, Error> {
    let layout = layout(t, samples)?;
    let (index, lower, upper) = bounds(ask.through);
    let scan = Scan {
        index,
        lower: lower.as_ref().map(Vec::as_slice),
        upper: upper.as_ref().map(Vec::as_slice),
        restrictions: &ask.restrictions,
        ..Scan::all(samples.id())
    };
    match &ask.shape {
        Shape::Rows { columns, backward, limit } => {
            let direction = if *backward { Direction::Backward } else { Direction::Forward };
            let scan = Scan { direction, limit: *limit, projection: projection(&layout, columns), ..scan };
            let mut rows = Vec::new();
            t.scan_rows(&scan, &mut |row| {
                rows.push(values(row, &layout, columns));
                if rows.len() == *limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok(Answer::Rows(rows))
        }
        Shape::Batches(columns) => {
            let mut look = |batch: &ColumnBatch<'_>| {
                let row = |at: usize| batch.columns.iter().map(|column| column.value(at).to_value()).collect();
                batch.positions().map(row).collect::<Vec<Values>>()
            };
            let mut rows = Vec::new();
            t.scan_columns(&scan, columns, &mut look, &mut |more: Vec<Values>| {
                rows.extend(more);
                ControlFlow::Continue(())
            })?;
            Ok(in_any_order(rows))
        }
        Shape::Total(wanted) => Ok(Answer::Value(told(t.aggregate(&scan, *wanted)?, *wanted))),
        Shape::Groups { by, wanted } => {
            let keys = KeyExtractor::of_columns(&layout, by);
            let groups = t.aggregate_groups(&scan, &Grouping { by, wanted, most: usize::MAX })?;
            let values = |group: Group| {
                let mut values = keys.decode_key(&group.key)?;
                values.extend(group.values.into_iter().zip(wanted).map(|(value, wanted)| told(value, *wanted)));
                Ok(values)
            };
            groups.into_iter().map(values).collect::<Result<_, Error>>().map(Answer::Rows)
        }
    }
}

/// An answer without what depends on the order of the rows.
fn told(value: Value, wanted: Aggregate) -> Value {
    match value {
        Value::Float(sum) if matches!(wanted, Aggregate::Sum(_) | Aggregate::Average(_)) => normal(sum),
        value => value,
    }
}

type Bounds = (IndexId, Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The encoded bounds of a range of an index.
fn bounds(through: Through) -> Bounds {
    fn between<K: Key>(index: u16, first: &K, last: &K) -> Bounds {
        let mut scratch = RangeScratch::new();
        let lower = Bound::Included(scratch.prefix(first).start.to_vec());
        let upper = scratch.prefix(last).end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
        (IndexId(index), lower, upper)
    }
    match through {
        Through::All => (IndexId::PRIMARY, Bound::Unbounded, Bound::Unbounded),
        Through::Ids(first, last) => between(0, &first, &last),
        Through::Levels(first, last) => between(1, &first, &last),
        Through::Codes(first, last) => between(2, &Some(first), &Some(last)),
        Through::States(first, last) => between(5, &Some(first), &Some(last)),
        Through::Spans(first, last) => between(6, &Some(first), &Some(last)),
    }
}

macro_rules! columns {
    ($($position:literal: $constant:ident, $get:ident;)*) => {
        /// Updates a row, of which one column alone may be announced.
        fn change<T: Transaction>(
            t: &mut T,
            samples: &Table<Sample>,
            id: u64,
            column: usize,
            whole: bool,
            change: impl FnOnce(&mut SampleMut<'_>),
        ) -> Result<bool, Error> {
            match column {
                _ if whole => t.update(samples, id, change),
                $($position => t.update_columns(samples, id, (Sample::$constant,), change),)*
                _ => unreachable!("a sample has twenty columns"),
            }
        }

        /// The value of a column within an update.
        fn value_of(row: &SampleMut<'_>, column: usize) -> Value {
            match column {
                $($position => row.$get().into(),)*
                _ => unreachable!("a sample has twenty columns"),
            }
        }
    };
}

columns! {
    0: ID, id;
    1: LEVEL, level;
    2: COUNT, count;
    3: BALANCE, balance;
    4: RATIO, ratio;
    5: PRICE, price;
    6: OPEN, open;
    7: DAY, day;
    8: CODE, code;
    9: NAME, name;
    10: MARK, mark;
    11: OWNER, owner;
    12: HEAT, heat;
    13: SPAN, span;
    14: MASS, mass;
    15: LETTER, letter;
    16: STAMP, stamp;
    17: TOTAL, total;
    18: STATE, state;
    19: FEE, fee;
}

/// Sets a column.
fn set(row: &mut SampleMut<'_>, column: usize, value: &Value) {
    let whole = Sample::of(&{
        let mut values: Values = vec![Value::Null; super::column::COUNT];
        values[0] = Value::Unsigned(0);
        values[column] = value.clone();
        values
    });
    match column {
        1 => row.set_level(whole.level),
        2 => row.set_count(whole.count),
        3 => row.set_balance(whole.balance),
        4 => row.set_ratio(whole.ratio),
        5 => row.set_price(whole.price),
        6 => row.set_open(whole.open),
        7 => row.set_day(whole.day),
        8 => row.set_code(whole.code),
        9 => row.set_name(whole.name.as_deref()).expect("the column has room for it"),
        10 => row.set_mark(&whole.mark).expect("the column has room for it"),
        11 => row.set_owner(whole.owner),
        12 => row.set_heat(whole.heat),
        13 => row.set_span(whole.span),
        14 => row.set_mass(whole.mass),
        15 => row.set_letter(whole.letter),
        16 => row.set_stamp(&whole.stamp),
        17 => row.set_total(whole.total),
        18 => row.set_state(whole.state),
        19 => row.set_fee(whole.fee),
        _ => unreachable!("the key stays"),
    }
}
