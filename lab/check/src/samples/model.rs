//! What operations answer, by the values alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use polychron_engine::scan::Comparison;
use polychron_engine::{Aggregate, Restriction};
use polychron_schema::Value;

use super::{Ask, Operation, Shape, State, TOO_LONG_FOR_KEYS, Through, Values, column};

/// What refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// A key is taken.
    Duplicate,
    /// A key of an index is too long.
    KeyTooLong,
    /// A value does not fit into its column.
    ValueTooLong,
    /// The owner is not there.
    NoParent,
    /// A sample refers to the owner.
    HasChildren,
    /// The sum does not fit.
    Overflow,
    /// Such values have no sum, or do not come in batches.
    WrongType,
}

/// What an operation answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Values of one row, if it is there.
    Row(Option<Values>),
    /// Values of rows.
    Rows(Vec<Values>),
    /// A number.
    Value(Value),
    /// Whether there was a row.
    Flag(bool),
    /// It was refused. Where several things refuse it, the model names all of them, and an engine one.
    Refused(BTreeSet<Refusal>),
}

impl Answer {
    /// A refusal.
    pub(crate) fn refused(by: Refusal) -> Self {
        Self::Refused(BTreeSet::from([by]))
    }

    /// Whether `observed` is what is expected.
    pub(crate) fn allows(&self, observed: &Self) -> bool {
        match (self, observed) {
            (Self::Row(one), Self::Row(other)) => one == other,
            (Self::Rows(one), Self::Rows(other)) => one == other,
            (Self::Value(one), Self::Value(other)) => one == other,
            (Self::Flag(one), Self::Flag(other)) => one == other,
            (Self::Refused(one), Self::Refused(other)) => !one.is_disjoint(other),
            _ => false,
        }
    }
}

/// The tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) samples: BTreeMap<u64, Values>,
    pub(crate) owners: BTreeSet<u64>,
    pub(crate) flag: i64,
}

/// A value's place among all values: its kind, and where it stands within.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Null,
    Truth(bool),
    Integer(i128),
    /// Beyond the signed ones.
    Huge(u128),
    Float(i64),
    /// The whole number below, and what is left.
    Decimal(i128, i128),
    Date(i32),
    Timestamp(i64),
    Char(u32),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

/// Digits behind the point at most.
const FINEST: u32 = 18;

impl Progress {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Truth(*value),
            Value::Integer(value) => Self::Integer((*value).into()),
            Value::Unsigned(value) => Self::Integer((*value).into()),
            Value::Integer128(value) => Self::Integer(*value),
            Value::Unsigned128(value) => i128::try_from(*value).map_or(Self::Huge(*value), Self::Integer),
            Value::Char(value) => Self::Char((*value).into()),
            Value::Float(value) => {
                // IEEE 754's total order: negative numbers are the farther down the larger their other bits are.
                let bits = value.to_bits() as i64;
                Self::Float(if bits < 0 { !(bits & i64::MAX) } else { bits })
            }
            Value::Decimal { units, scale } => {
                let one = 10_i128.pow(*scale);
                Self::Decimal(units.div_euclid(one), units.rem_euclid(one) * 10_i128.pow(FINEST - scale))
            }
            Value::Date(day) => Self::Date(*day),
            Value::Timestamp(time) => Self::Timestamp(*time),
            Value::String(text) => Self::Text(text.as_bytes().to_vec()),
            Value::Bytes(bytes) => Self::Bytes(bytes.clone()),
        }
    }
}

/// Whether a value satisfies a comparison with a constant. Nothing compares with NULL.
pub(crate) fn satisfies(value: &Value, comparison: Comparison, constant: &Value) -> bool {
    if matches!(value, Value::Null) || matches!(constant, Value::Null) {
        return false;
    }
    let order = Progress::of(value).cmp(&Progress::of(constant));
    let wanted: &[Ordering] = match comparison {
        Comparison::Equal => &[Ordering::Equal],
        Comparison::NotEqual => &[Ordering::Less, Ordering::Greater],
        Comparison::Less => &[Ordering::Less],
        Comparison::AtMost => &[Ordering::Less, Ordering::Equal],
        Comparison::Greater => &[Ordering::Greater],
        Comparison::AtLeast => &[Ordering::Greater, Ordering::Equal],
    };
    wanted.contains(&order)
}

fn holds(restriction: &Restriction, row: &Values) -> bool {
    satisfies(&row[restriction.column], restriction.comparison, &restriction.value)
}

fn is_too_long_for_keys(value: &Value) -> bool {
    matches!(value, Value::String(text) if text.len() >= TOO_LONG_FOR_KEYS)
}

impl Model {
    /// Does what the operation says.
    pub(crate) fn apply(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Get { id, columns } => Answer::Row(self.samples.get(id).map(|row| project(row, columns))),
            Operation::Look { id, column, .. } => Answer::Row(self.samples.get(id).map(|row| project(row, &[*column]))),
            Operation::Ask(ask) => self.ask(ask),
            Operation::Insert(row) => self.put(row, true),
            Operation::Upsert(row) => self.put(row, false),
            Operation::Set { id, column, value, .. } => {
                let Some(mut row) = self.samples.get(id).cloned() else { return Answer::Flag(false) };
                row[*column] = value.clone();
                self.put(&row, false)
            }
            Operation::Delete(id) => Answer::Flag(self.samples.remove(id).is_some()),
            Operation::InsertOwner(id) if self.owners.contains(id) => Answer::refused(Refusal::Duplicate),
            Operation::InsertOwner(id) => Answer::Flag(self.owners.insert(*id)),
            Operation::DeleteOwner(id) => {
                let has_children = self.samples.values().any(|row| row[column::OWNER] == Value::Unsigned(*id));
                if has_children && self.owners.contains(id) {
                    return Answer::refused(Refusal::HasChildren);
                }
                Answer::Flag(self.owners.remove(id))
            }
            Operation::Tried(operation) => self.clone().apply(operation),
            Operation::ReadFlag => Answer::Value(Value::Integer(self.flag)),
            Operation::SetFlag(flag) => {
                self.flag = *flag;
                Answer::Flag(true)
            }
        }
    }

    /// Writes a row unless something refuses it.
    fn put(&mut self, row: &Values, must_be_new: bool) -> Answer {
        let Value::Unsigned(id) = row[column::ID] else { unreachable!("a key is a number") };
        let code = &row[column::CODE];
        let has_code = |(other, values): (&u64, &Values)| *other != id && values[column::CODE] == *code;
        let taken = !matches!(code, Value::Null) && self.samples.iter().any(has_code);
        let is_orphan = matches!(row[column::OWNER], Value::Unsigned(owner) if !self.owners.contains(&owner));
        let mark_is_too_long = matches!(&row[column::MARK], Value::Bytes(mark) if mark.len() > 12);
        let reasons = [
            (Refusal::Duplicate, taken || must_be_new && self.samples.contains_key(&id)),
            (Refusal::KeyTooLong, is_too_long_for_keys(&row[column::NAME])),
            (Refusal::NoParent, is_orphan),
            (Refusal::ValueTooLong, mark_is_too_long),
        ];
        let refused: BTreeSet<_> =
            reasons.iter().filter(|(_, refuses)| *refuses).map(|(refusal, _)| *refusal).collect();
        if !refused.is_empty() {
            return Answer::Refused(refused);
        }
        self.samples.insert(id, row.clone());
        Answer::Flag(true)
    }

    /// The rows that a question is about, in the order of its index.
    fn rows_of(&self, ask: &Ask) -> Vec<&Values> {
        let progress = |row: &Values, column: usize| (Progress::of(&row[column]), Progress::of(&row[column::ID]));
        let within = |row: &Values, column: usize, first: Value, last: Value| {
            satisfies(&row[column], Comparison::AtLeast, &first) && satisfies(&row[column], Comparison::AtMost, &last)
        };
        let mut rows: Vec<&Values> = self
            .samples
            .values()
            .filter(|row| match ask.through {
                Through::All => true,
                Through::Ids(first, last) => within(row, column::ID, first.into(), last.into()),
                Through::Levels(first, last) => within(row, column::LEVEL, first.into(), last.into()),
                Through::Codes(first, last) => within(row, column::CODE, first.into(), last.into()),
                Through::States(first, last) => within(row, column::STATE, number(first), number(last)),
                Through::Spans(first, last) => within(row, column::SPAN, first.into(), last.into()),
            })
            .collect();
        match ask.through {
            Through::All | Through::Ids(..) => {}
            Through::Levels(..) => rows.sort_by_key(|row| progress(row, column::LEVEL)),
            Through::Codes(..) => rows.sort_by_key(|row| progress(row, column::CODE)),
            Through::States(..) => rows.sort_by_key(|row| progress(row, column::STATE)),
            Through::Spans(..) => {
                let key =
                    |row: &&Values| [column::SPAN, column::HEAT, column::ID].map(|column| Progress::of(&row[column]));
                rows.sort_by_key(key);
            }
        }
        rows.retain(|row| ask.restrictions.iter().all(|restriction| holds(restriction, row)));
        rows
    }

    fn ask(&self, ask: &Ask) -> Answer {
        let rows = self.rows_of(ask);
        match &ask.shape {
            Shape::Rows { columns, backward, limit } => {
                let ordered: Vec<&Values> = if *backward { rows.into_iter().rev().collect() } else { rows };
                Answer::Rows(ordered.into_iter().take(*limit).map(|row| project(row, columns)).collect())
            }
            Shape::Batches(columns) if columns.iter().any(|it| column::NOT_IN_BATCHES.contains(it)) => {
                Answer::refused(Refusal::WrongType)
            }
            Shape::Batches(columns) => in_any_order(rows.into_iter().map(|row| project(row, columns)).collect()),
            Shape::Total(wanted) => total(&rows, *wanted),
            Shape::Groups { by, wanted } => groups(&rows, by, wanted),
        }
    }
}

/// The answers over each group, behind the values that its rows have in common, in the order of these.
fn groups(rows: &[&Values], by: &[usize], wanted: &[Aggregate]) -> Answer {
    let mut groups: BTreeMap<Vec<Progress>, Vec<&Values>> = BTreeMap::new();
    for row in rows {
        groups.entry(by.iter().map(|&column| Progress::of(&row[column])).collect()).or_default().push(row);
    }
    if by.is_empty() {
        groups.entry(Vec::new()).or_default();
    }
    // What has no sum has none of no rows either.
    let mut refused: BTreeSet<_> = wanted.iter().filter_map(|&wanted| refusal(total(&[], wanted))).collect();
    let mut answers = Vec::new();
    for rows in groups.into_values() {
        let mut values = rows.first().map(|row| project(row, by)).unwrap_or_default();
        for &wanted in wanted {
            match total(&rows, wanted) {
                Answer::Value(value) => values.push(value),
                other => refused.extend(refusal(other)),
            }
        }
        answers.push(values);
    }
    if refused.is_empty() { Answer::Rows(answers) } else { Answer::Refused(refused) }
}

/// Why there is no answer.
fn refusal(answer: Answer) -> Option<Refusal> {
    if let Answer::Refused(reasons) = answer { reasons.into_iter().next() } else { None }
}

/// Rows that came in an order that means nothing.
pub(crate) fn in_any_order(mut rows: Vec<Values>) -> Answer {
    rows.sort_by_cached_key(|row| row.iter().map(Progress::of).collect::<Vec<_>>());
    Answer::Rows(rows)
}

fn project(row: &Values, columns: &[usize]) -> Values {
    columns.iter().map(|&column| row[column].clone()).collect()
}

fn total(rows: &[&Values], wanted: Aggregate) -> Answer {
    let values = |column: usize| {
        rows.iter().map(move |row| &row[column]).filter(|value| !matches!(value, Value::Null)).collect::<Vec<_>>()
    };
    let extreme = |value: Option<&Value>| Answer::Value(value.cloned().unwrap_or_default());
    match wanted {
        Aggregate::Rows => Answer::Value(Value::Unsigned(rows.len() as u64)),
        Aggregate::Count(column) => Answer::Value(Value::Unsigned(values(column).len() as u64)),
        Aggregate::Min(column) => extreme(values(column).into_iter().min_by_key(|value| Progress::of(value))),
        Aggregate::Max(column) => extreme(values(column).into_iter().max_by_key(|value| Progress::of(value))),
        Aggregate::Sum(column) => sum(column, &values(column)),
        Aggregate::Average(column) => average(column, &values(column)),
    }
}

/// The exact sum in halves, as one number, by how many there are.
fn average(column: usize, values: &[&Value]) -> Answer {
    if column::NOT_SUMMED.contains(&column) {
        return Answer::refused(Refusal::WrongType);
    }
    let (mut high, mut low, mut float) = (0_i128, 0_i128, 0.0);
    let mut one = 1.0;
    for value in values {
        let (more, rest) = match value {
            Value::Integer(number) => (0, i128::from(*number)),
            Value::Unsigned(number) => (0, i128::from(*number)),
            Value::Integer128(number) => (number >> 64, number & i128::from(u64::MAX)),
            Value::Unsigned128(number) => ((number >> 64) as i128, (number & u128::from(u64::MAX)) as i128),
            Value::Decimal { units, scale } => {
                one = 10_f64.powi(*scale as i32);
                (units >> 64, units & i128::from(u64::MAX))
            }
            Value::Float(number) => {
                float += number;
                (0, 0)
            }
            _ => (0, 0),
        };
        (high, low) = (high + more, low + rest);
    }
    (high, low) = (high + (low >> 64), low & i128::from(u64::MAX));
    // A sum that is one number of 128 bits is rounded once.
    let whole = match i64::try_from(high) {
        Ok(high) => (i128::from(high) << 64 | low) as f64,
        Err(_) => u64::try_from(high)
            .map_or(high as f64 * 2_f64.powi(64) + low as f64, |high| (u128::from(high) << 64 | low as u128) as f64),
    };
    let average = (whole + float) / values.len() as f64 / one;
    Answer::Value(if values.is_empty() { Value::Null } else { normal(average) })
}

fn sum(column: usize, values: &[&Value]) -> Answer {
    if column::NOT_SUMMED.contains(&column) {
        return Answer::refused(Refusal::WrongType);
    }
    let Some(first) = values.first() else { return Answer::Value(Value::Null) };
    if [column::SPAN, column::MASS, column::TOTAL].contains(&column) {
        return wide_sum(first, values).map_or(Answer::refused(Refusal::Overflow), Answer::Value);
    }
    let whole = |value: &&Value| match value {
        Value::Integer(number) => i128::from(*number),
        Value::Decimal { units: number, .. } => *number,
        Value::Unsigned(number) => i128::from(*number),
        _ => 0,
    };
    let sum: i128 = values.iter().map(whole).sum();
    let answer = match first {
        Value::Float(_) => {
            let floats = values.iter().map(|value| if let Value::Float(number) = value { *number } else { 0.0 });
            Some(normal(floats.sum()))
        }
        Value::Decimal { scale, .. } => {
            i64::try_from(sum).ok().map(|units| Value::Decimal { units: units.into(), scale: *scale })
        }
        Value::Unsigned(_) => u64::try_from(sum).ok().map(Value::Unsigned),
        _ => i64::try_from(sum).ok().map(Value::Integer),
    };
    answer.map_or(Answer::refused(Refusal::Overflow), Answer::Value)
}

/// A sum of 128-bit numbers by halves, so that it is exact whatever the order.
fn wide_sum(first: &Value, values: &[&Value]) -> Option<Value> {
    let halves = |value: &&Value| match value {
        Value::Integer128(number) | Value::Decimal { units: number, .. } => {
            (number >> 64, number & i128::from(u64::MAX))
        }
        Value::Unsigned128(number) => ((number >> 64) as i128, (number & u128::from(u64::MAX)) as i128),
        _ => (0, 0),
    };
    let add = |sum: (i128, i128), half: (i128, i128)| (sum.0 + half.0, sum.1 + half.1);
    let (high, low) = values.iter().map(halves).fold((0, 0), add);
    let (high, low) = (high + (low >> 64), low & i128::from(u64::MAX));
    let signed = || i64::try_from(high).ok().map(|high| i128::from(high) << 64 | low);
    match first {
        Value::Unsigned128(_) => {
            u64::try_from(high).ok().map(|high| Value::Unsigned128(u128::from(high) << 64 | low as u128))
        }
        Value::Decimal { scale, .. } => signed().map(|units| Value::Decimal { units, scale: *scale }),
        _ => signed().map(Value::Integer128),
    }
}

/// The number of a state, as its declaration has it.
fn number(state: State) -> Value {
    Value::Integer(match state {
        State::Lost => -300,
        State::New => 0,
        State::Done => 5,
    })
}

/// A sum without what depends on the order of its numbers: the signs of zero and of what is no number.
pub(crate) fn normal(sum: f64) -> Value {
    Value::Float(if sum.is_nan() {
        f64::NAN
    } else if sum == 0.0 {
        0.0
    } else {
        sum
    })
}
