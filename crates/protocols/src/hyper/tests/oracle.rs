//! An oracle of predicates. One transaction asks a question or two and writes somewhere else; before it commits, another one writes at random and
//! commits. Both the question before that write and the question after it are answered from a plain list of rows: where the answers differ, the
//! first transaction must not commit. Where they are the same and it is refused nevertheless, that is counted and printed.

mod long;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::batch::NumericColumn;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Aggregate, ColumnBatch, Commit, Common, Direction, IndexDefinition, Insertion, Interactive, Mode, Operations,
    Projection, Protocol, Restriction, Scan, TableDefinition, Transaction, Worker,
};
use polychron_schema::{
    ColumnSpan, ColumnType, EnumType, EnumVariant, Layout, RowBuffer, RowMut, RowRef, Value, build_row, set_value,
};

use crate::hyper::{Backend, Hyper, HyperTransaction, Level, Options};

type Tx<'w> = HyperTransaction<'w>;
/// All rows by their keys.
type Rows = BTreeMap<u64, Vec<Value>>;

const SHELF: usize = 1;
static STATE: EnumType = EnumType::new(&[
    EnumVariant { name: "Lost", number: -300 },
    EnumVariant { name: "New", number: 0 },
    EnumVariant { name: "Done", number: 5 },
]);
const TYPES: [ColumnType; 20] = [
    ColumnType::U64,
    ColumnType::U8,
    ColumnType::I64,
    ColumnType::U64,
    ColumnType::I8,
    ColumnType::Bool,
    ColumnType::F64,
    ColumnType::Decimal { scale: 2 },
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::String { max: 20 },
    ColumnType::FixedString { bytes: 2 },
    ColumnType::Bytes { max: 20 },
    ColumnType::U32,
    ColumnType::F32,
    ColumnType::I128,
    ColumnType::U128,
    ColumnType::Char,
    ColumnType::Decimal128 { scale: 1 },
    ColumnType::Enum(&STATE),
];
/// Columns behind the key and the shelf may be NULL.
const FIRST_NULLABLE: usize = 2;
const KEYS: u64 = 6;

fn definition() -> TableDefinition {
    let table = TableDefinition::new("thing").with_key([0]);
    let table = TYPES.iter().enumerate().fold(table, |table, (column, &column_type)| {
        let name = format!("c{column}");
        match column < FIRST_NULLABLE {
            true => table.with_column(name, column_type),
            false => table.with_nullable_column(name, column_type),
        }
    });
    table.with_index(IndexDefinition::new("by_shelf", [SHELF]))
}

fn one_of<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

/// A value of a type, of the few that come often and of those at the ends.
fn value_of(random: &mut Random, column_type: ColumnType) -> Value {
    match column_type {
        ColumnType::Bool => (random.below(2) == 0).into(),
        ColumnType::I8 => one_of(random, &[-128_i64, -1, 0, 1, 127]).into(),
        ColumnType::I16 | ColumnType::I32 | ColumnType::I64 => {
            one_of(random, &[i64::MIN, -2, -1, 0, 1, 2, i64::MAX]).into()
        }
        ColumnType::U8 | ColumnType::U16 | ColumnType::U32 => random.below(4).into(),
        ColumnType::U64 => one_of(random, &[0, 1, 2, 1 << 63, u64::MAX]).into(),
        ColumnType::F64 => {
            let special = [-1.5, -0.0, 0.0, 0.5, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
            one_of(random, &special).into()
        }
        ColumnType::F32 => {
            let special = [-1.5, -0.0, 0.0, 0.1, 2.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
            one_of(random, &special).into()
        }
        ColumnType::Decimal { scale } | ColumnType::Decimal128 { scale } => {
            Value::Decimal { units: 50 * (i128::from(random.below(7)) - 3), scale }
        }
        ColumnType::I128 => one_of(random, &[-(1_i128 << 64), -1, 0, 1, 1 << 64]).into(),
        ColumnType::U128 => one_of(random, &[0_u128, 1, 1 << 64, 1 << 127]).into(),
        ColumnType::Char => one_of(random, &['a', 'b', 'é']).into(),
        ColumnType::Enum(_) => one_of(random, &[-300_i64, 0, 5]).into(),
        ColumnType::Date => Value::Date(random.below(5) as i32 - 2),
        ColumnType::Timestamp => Value::Timestamp(random.below(5) as i64 - 2),
        ColumnType::String { .. } => one_of(random, &["", "a", "ab", "abcdefghij", "abcdefghijk", "b", "é"]).into(),
        ColumnType::FixedString { .. } => one_of(random, &["aa", "ab", "ba"]).into(),
        _ => one_of(random, &[&[][..], &[0], &[0, 0], &[0, 1], &[255]]).into(),
    }
}

/// A constant to compare a column with: mostly of its own type, also of all others.
fn constant(random: &mut Random, column: usize) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => {
            let column_type = one_of(random, &TYPES);
            value_of(random, column_type)
        }
        2 => Value::Integer(random.below(5) as i64 - 2),
        3 => Value::Unsigned(random.below(3)),
        // Beside the numbers of narrower types, and beyond them.
        5 => one_of(random, &[Value::Float(0.1), Value::Integer128(-1 << 70), Value::Unsigned128(u128::MAX)]),
        4 => Value::Decimal { units: 5 * (i128::from(random.below(9)) - 4), scale: random.below(4) as u32 },
        _ => value_of(random, TYPES[column]),
    }
}

fn row_of(random: &mut Random, id: u64) -> Vec<Value> {
    let column = |(column, &column_type): (usize, &ColumnType)| match column {
        0 => id.into(),
        _ if column >= FIRST_NULLABLE && random.below(4) == 0 => Value::Null,
        _ => value_of(random, column_type),
    };
    TYPES.iter().enumerate().map(column).collect()
}

/// What is asked.
#[derive(Clone, Debug)]
enum Ask {
    Rows {
        columns: Vec<usize>,
        limit: usize,
        direction: Direction,
    },
    Batches {
        columns: Vec<usize>,
    },
    Aggregate(Aggregate),
    Get {
        key: u64,
        columns: Vec<usize>,
    },
    /// An update that looks and changes nothing.
    Look {
        key: u64,
        columns: Vec<usize>,
    },
    /// An insertion under a key that may be taken.
    Insert {
        key: u64,
    },
}

#[derive(Clone, Debug)]
struct Question {
    ask: Ask,
    restrictions: Vec<Restriction>,
    /// A range of primary keys, or one shelf by its index.
    keys: Option<(u64, u64)>,
    shelf: Option<u8>,
}

fn question(random: &mut Random) -> Question {
    let layout = definition().layout().unwrap();
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::AtMost,
        Comparison::Greater,
        Comparison::AtLeast,
    ];
    let columns = |random: &mut Random, most: usize| {
        (0..random.below(3)).map(|_| random.below(most as u64) as usize).collect::<Vec<_>>()
    };
    let ask = match random.below(12) {
        0..=2 => Ask::Rows {
            columns: columns(random, TYPES.len()),
            limit: one_of(random, &[usize::MAX, usize::MAX, 1, 2]),
            direction: one_of(random, &[Direction::Forward, Direction::Backward]),
        },
        3..=4 => {
            let numeric = |column: &usize| NumericColumn::new(&layout.columns()[*column]).is_ok();
            Ask::Batches { columns: columns(random, TYPES.len()).into_iter().filter(numeric).collect() }
        }
        5..=8 => {
            let column = random.below(TYPES.len() as u64) as usize;
            let wanted = [Aggregate::Rows, Aggregate::Count(column), Aggregate::Sum(column), Aggregate::Min(column)];
            Ask::Aggregate(one_of(random, &[&wanted[..], &[Aggregate::Max(column)]].concat()))
        }
        9 => Ask::Get { key: random.below(KEYS), columns: columns(random, TYPES.len()) },
        10 => Ask::Look { key: random.below(KEYS), columns: columns(random, TYPES.len()) },
        _ => Ask::Insert { key: random.below(KEYS) },
    };
    let restriction = |random: &mut Random| {
        let column = random.below(TYPES.len() as u64) as usize;
        Restriction { column, comparison: one_of(random, &comparisons), value: constant(random, column) }
    };
    let restrictions = (0..one_of(random, &[0, 1, 1, 1, 2])).map(|_| restriction(random)).collect();
    let first = random.below(KEYS);
    let (keys, shelf) = match random.below(4) {
        0 => (Some((first, first + random.below(KEYS))), None),
        1 => (None, Some(random.below(4) as u8)),
        _ => (None, None),
    };
    Question { ask, restrictions, keys, shelf }
}

/// What the question is answered, in a form that can be compared.
#[derive(Clone, Debug)]
enum Answer {
    Rows(Vec<Vec<Value>>),
    Value(Value),
    /// The sum does not fit, or there is none.
    Refused,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rows(rows), Self::Rows(others)) => rows == others,
            // NaNs of sums differ in what the machine makes of them, zeros in their sign.
            (Self::Value(Value::Float(one)), Self::Value(Value::Float(other))) => {
                one == other || one.is_nan() && other.is_nan()
            }
            (Self::Value(one), Self::Value(other)) => one == other,
            (Self::Refused, Self::Refused) => true,
            _ => false,
        }
    }
}

fn some_columns(row: &[Value], columns: &[usize]) -> Vec<Value> {
    columns.iter().map(|column| row[*column].clone()).collect()
}

/// The answer, from a plain list of rows.
fn brute_force(rows: &Rows, question: &Question) -> Answer {
    let holds = |row: &[Value], Restriction { column, comparison, value }: &Restriction| {
        !row[*column].is_null() && !value.is_null() && {
            let order = row[*column].cmp(value);
            match comparison {
                Comparison::Equal => order == Ordering::Equal,
                Comparison::NotEqual => order != Ordering::Equal,
                Comparison::Less => order == Ordering::Less,
                Comparison::AtMost => order != Ordering::Greater,
                Comparison::Greater => order == Ordering::Greater,
                Comparison::AtLeast => order != Ordering::Less,
            }
        }
    };
    let in_range = |(id, row): &(&u64, &Vec<Value>)| {
        question.keys.is_none_or(|(first, last)| first <= **id && **id <= last)
            && question.shelf.is_none_or(|shelf| row[SHELF] == Value::Unsigned(shelf.into()))
            && question.restrictions.iter().all(|restriction| holds(row, restriction))
    };
    let in_range: Vec<&Vec<Value>> = rows.iter().filter(in_range).map(|(_, row)| row).collect();
    match &question.ask {
        Ask::Rows { columns, limit, direction } => {
            let some = |row: &&Vec<Value>| some_columns(row, columns);
            Answer::Rows(match direction {
                Direction::Forward => in_range.iter().take(*limit).map(some).collect(),
                Direction::Backward => in_range.iter().rev().take(*limit).map(some).collect(),
            })
        }
        Ask::Batches { columns } => {
            let mut rows: Vec<_> = in_range.iter().map(|row| some_columns(row, columns)).collect();
            rows.sort();
            Answer::Rows(rows)
        }
        Ask::Aggregate(wanted) => aggregate(&in_range, *wanted),
        Ask::Get { key, columns } | Ask::Look { key, columns } => {
            Answer::Rows(rows.get(key).map(|row| some_columns(row, columns)).into_iter().collect())
        }
        Ask::Insert { key } => Answer::Value(rows.contains_key(key).into()),
    }
}

fn aggregate(rows: &[&Vec<Value>], wanted: Aggregate) -> Answer {
    let Some(column) = wanted.column() else { return Answer::Value(Value::Unsigned(rows.len() as u64)) };
    let values: Vec<&Value> = rows.iter().map(|row| &row[column]).filter(|value| !value.is_null()).collect();
    let answer = match wanted {
        Aggregate::Rows => unreachable!("it has no column"),
        Aggregate::Count(_) => Some(Value::Unsigned(values.len() as u64)),
        Aggregate::Min(_) => Some(values.iter().min().map_or(Value::Null, |value| (*value).clone())),
        Aggregate::Max(_) => Some(values.iter().max().map_or(Value::Null, |value| (*value).clone())),
        Aggregate::Sum(_) => sum(&values, TYPES[column]),
        Aggregate::Average(_) => unreachable!("it is not drawn"),
    };
    answer.map_or(Answer::Refused, Answer::Value)
}

fn sum(values: &[&Value], column_type: ColumnType) -> Option<Value> {
    let whole = || -> i128 {
        let whole = |value: &&Value| match value {
            Value::Integer(value) => i128::from(*value),
            Value::Integer128(value) | Value::Decimal { units: value, .. } => *value,
            Value::Unsigned(value) => i128::from(*value),
            other => unreachable!("{other:?} is no whole number"),
        };
        values.iter().map(whole).sum()
    };
    let is_none = values.is_empty();
    Some(match column_type {
        ColumnType::I64 | ColumnType::I8 if !is_none => Value::Integer(whole().try_into().ok()?),
        ColumnType::U8 | ColumnType::U32 | ColumnType::U64 if !is_none => Value::Unsigned(whole().try_into().ok()?),
        ColumnType::Decimal { scale } if !is_none => {
            Value::Decimal { units: i64::try_from(whole()).ok()?.into(), scale }
        }
        ColumnType::Decimal128 { scale } if !is_none => Value::Decimal { units: whole(), scale },
        ColumnType::I128 if !is_none => Value::Integer128(whole()),
        ColumnType::U128 if !is_none => {
            let number = |value: &&Value| if let Value::Unsigned128(value) = value { *value } else { 0 };
            Value::Unsigned128(values.iter().map(number).try_fold(0_u128, u128::checked_add)?)
        }
        ColumnType::F32 | ColumnType::F64 if !is_none => {
            let add = |sum: f64, value: &&Value| match value {
                Value::Float(value) => sum + value,
                other => unreachable!("{other:?} is no number"),
            };
            Value::Float(values.iter().fold(0.0, add))
        }
        ColumnType::I64 | ColumnType::I8 | ColumnType::U8 | ColumnType::U32 | ColumnType::U64 => Value::Null,
        ColumnType::F32 | ColumnType::F64 | ColumnType::Decimal { .. } => Value::Null,
        ColumnType::I128 | ColumnType::U128 | ColumnType::Decimal128 { .. } => Value::Null,
        _ => return None,
    })
}

struct Lab {
    database: Arc<Hyper>,
    table: TableId,
    elsewhere: TableId,
    layout: Layout,
}

fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

impl Lab {
    fn open(level: Level, backend: Backend) -> Self {
        let memory = polychron_memory::Options { epoch_interval: None, ..polychron_memory::Options::tiny() };
        let common = Common { memory, ..Common::default() };
        let database = Hyper::open(Options { level, backend, ..Options::default() }, common).unwrap();
        let elsewhere = TableDefinition::new("elsewhere").with_column("id", ColumnType::U64).with_key([0]);
        let elsewhere = database.create_table(elsewhere).unwrap();
        let table = database.create_table(definition()).unwrap();
        Self { database, table, elsewhere, layout: definition().layout().unwrap() }
    }

    fn elsewhere_layout(&self) -> Layout {
        TableDefinition::new("elsewhere").with_column("id", ColumnType::U64).with_key([0]).layout().unwrap()
    }

    fn put(&self, t: &mut Tx<'_>, id: u64, row: &[Value]) -> Result<(), Error> {
        let mut buffer = RowBuffer::new();
        build_row(&self.layout, row, &mut buffer).unwrap();
        t.put_row(self.table, &key(id)[..], buffer.as_row()).map(drop)
    }

    fn projection(&self, columns: &[usize]) -> Projection {
        let span = |column: &usize| ColumnSpan { index: *column as u16, slot: self.layout.columns()[*column].slot };
        Projection::of(&columns.iter().map(span).collect::<Vec<_>>())
    }

    fn some_columns(&self, row: RowRef<'_>, columns: &[usize]) -> Vec<Value> {
        columns.iter().map(|column| row.value(&self.layout, *column)).collect()
    }

    /// The answer, from the transaction.
    fn ask(&self, t: &mut Tx<'_>, question: &Question) -> Answer {
        let ends = question.keys.map(|(first, last)| (key(first), key(last)));
        let shelf = question.shelf.map(|shelf| ([shelf], [shelf + 1]));
        let (index, lower, upper) = match (&ends, &shelf) {
            (Some((first, last)), _) => (IndexId::PRIMARY, Bound::Included(&first[..]), Bound::Included(&last[..])),
            (_, Some((this, next))) => (IndexId(1), Bound::Included(&this[..]), Bound::Excluded(&next[..])),
            _ => (IndexId::PRIMARY, Bound::Unbounded, Bound::Unbounded),
        };
        let scan = Scan { index, lower, upper, restrictions: &question.restrictions, ..Scan::all(self.table) };
        match &question.ask {
            Ask::Rows { columns, limit, direction } => {
                let mut rows = Vec::new();
                let projection = self.projection(columns);
                let scan = Scan { projection, limit: *limit, direction: *direction, ..scan };
                t.scan_rows(&scan, &mut |row| {
                    rows.push(self.some_columns(row, columns));
                    ControlFlow::Continue(())
                })
                .unwrap();
                Answer::Rows(rows)
            }
            Ask::Batches { columns } => {
                let mut rows = Vec::new();
                let look = |batch: &ColumnBatch<'_>| -> Vec<Vec<Value>> {
                    let of_row = |row: usize| batch.columns.iter().map(|column| column.value(row).to_value()).collect();
                    batch.positions().map(of_row).collect()
                };
                t.scan_columns(&scan, columns, &mut { look }, &mut |more| {
                    rows.extend(more);
                    ControlFlow::Continue(())
                })
                .unwrap();
                rows.sort();
                Answer::Rows(rows)
            }
            // The procedure catches the error.
            Ask::Aggregate(wanted) => t.aggregate(&scan, *wanted).map_or(Answer::Refused, Answer::Value),
            Ask::Get { key: id, columns } => {
                let row = t.read_row(self.table, &key(*id)[..], &self.projection(columns)).unwrap();
                Answer::Rows(row.map(|row| self.some_columns(row, columns)).into_iter().collect())
            }
            Ask::Look { key: id, columns } => {
                let mut rows = Vec::new();
                let look = |row: &mut RowMut<'_>| rows.push(self.some_columns(row.as_row(), columns));
                t.update_row(self.table, &key(*id)[..], &self.projection(columns), look).unwrap();
                Answer::Rows(rows)
            }
            Ask::Insert { key: id } => {
                let mut buffer = RowBuffer::new();
                build_row(&self.layout, &row_of(&mut Random::from_seed(1), *id), &mut buffer).unwrap();
                let savepoint = t.savepoint();
                let outcome = t.insert_row(self.table, &key(*id)[..], buffer.as_row()).unwrap();
                t.roll_back_to(savepoint).unwrap();
                Answer::Value((outcome != Insertion::Inserted).into())
            }
        }
    }

    /// Writes something at random and commits. `false`: the first transaction has locked it.
    fn disturb(&self, random: &mut Random, rows: &mut Rows) -> bool {
        let mut worker = self.database.worker().unwrap();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let before = rows.clone();
        let id = random.below(KEYS);
        let done = match random.below(8) {
            0 => t.delete_row(self.table, &key(id)[..]).map(|_| _ = rows.remove(&id)),
            1 => {
                let row = row_of(random, id);
                self.put(&mut t, id, &row).map(|()| _ = rows.insert(id, row))
            }
            _ => {
                let columns: Vec<_> = (0..random.range_inclusive(1, 2))
                    .map(|_| {
                        let column = random.range_inclusive(1, TYPES.len() as u64 - 1) as usize;
                        (column, row_of(random, id)[column].clone())
                    })
                    .collect();
                let change = |row: &mut RowMut<'_>| {
                    columns.iter().for_each(|(column, value)| set_value(row, &self.layout, *column, value).unwrap());
                };
                if let Some(row) = rows.get_mut(&id) {
                    columns.iter().for_each(|(column, value)| row[*column] = value.clone());
                }
                t.update_row(self.table, &key(id)[..], &Projection::ALL, change).map(drop)
            }
        };
        let has_committed = done.is_ok() && t.commit().is_ok();
        if !has_committed {
            *rows = before;
        }
        has_committed
    }
}

/// What the first transaction is shown while code of its procedure panics, which the procedure catches.
/// Ends code that the engine calls, without the hook that writes about it.
fn fails() {
    std::panic::resume_unwind(Box::new("seen"));
}

#[test]
fn rows_shown_to_code_that_panics_are_protected() {
    for ask in 0..3 {
        let (lab, mut random) = (Lab::open(Level::Columns, Backend::Rows), Random::from_seed(5));
        let (mut worker, mut other) = (lab.database.worker().unwrap(), lab.database.worker().unwrap());
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        lab.put(&mut t, 1, &row_of(&mut random, 1)).unwrap();
        t.commit().unwrap();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match ask {
            0 => t.scan_rows(&Scan::all(lab.table), &mut |_| std::panic::resume_unwind(Box::new("seen"))),
            1 => t.update_row(lab.table, &key(1)[..], &Projection::ALL, |_| fails()).map(drop),
            // The engine's own code panics, of a column that is not there.
            _ => {
                let none = [Restriction { column: 60, comparison: Comparison::Equal, value: Value::Null }];
                let scan = Scan { restrictions: &none, ..Scan::all(lab.table) };
                t.scan_unchecked(&scan, &mut |_| ControlFlow::Continue(()))
            }
        }));
        assert!(panicked.is_err());
        assert!(t.read_row(lab.table, &key(1)[..], &Projection::ALL).unwrap().is_some());
        let mut buffer = RowBuffer::new();
        build_row(&lab.elsewhere_layout(), &[1_u64.into()], &mut buffer).unwrap();
        assert_eq!(t.insert_row(lab.elsewhere, &key(1)[..], buffer.as_row()).unwrap(), Insertion::Inserted);
        let mut interfering = other.begin(Mode::ReadWrite).unwrap();
        assert!(interfering.delete_row(lab.table, &key(1)[..]).unwrap());
        interfering.commit().unwrap();
        assert!(t.commit().is_err_and(|error| error.is_conflict()), "way {ask}");
    }
}

/// Answers that changed, and refusals where none did, of so many cases.
#[derive(Debug, Default)]
struct Counts {
    cases: u32,
    changed: u32,
    needless: u32,
}

fn play(level: Level, backend: Backend, seed: u64, cases: usize) -> Counts {
    let (lab, mut random, mut rows) = (Lab::open(level, backend), Random::from_seed(seed), Rows::new());
    let (mut counts, mut worker) = (Counts::default(), lab.database.worker().unwrap());
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    for id in 0..KEYS - 2 {
        let row = row_of(&mut random, id);
        lab.put(&mut t, id, &row).unwrap();
        rows.insert(id, row);
    }
    t.commit().unwrap();
    let elsewhere_layout = lab.elsewhere_layout();
    for case in 0..cases as u64 {
        let questions: Vec<_> = (0..random.range_inclusive(1, 2)).map(|_| question(&mut random)).collect();
        let answers = |rows: &Rows| questions.iter().map(|question| brute_force(rows, question)).collect::<Vec<_>>();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let seen: Vec<_> = questions.iter().map(|question| lab.ask(&mut t, question)).collect();
        let before = answers(&rows);
        assert_eq!(seen, before, "{questions:?}");
        if !lab.disturb(&mut random, &mut rows) {
            continue;
        }
        let mut buffer = RowBuffer::new();
        build_row(&elsewhere_layout, &[case.into()], &mut buffer).unwrap();
        assert_eq!(t.insert_row(lab.elsewhere, &key(case)[..], buffer.as_row()).unwrap(), Insertion::Inserted);
        let (stands, after) = (t.commit().is_ok(), answers(&rows));
        counts.cases += 1;
        if after != before {
            counts.changed += 1;
            assert!(!stands, "{questions:?}\nwas answered {before:?},\nwhich is now {after:?}");
        } else if !stands {
            counts.needless += 1;
        }
    }
    counts
}

#[test]
fn no_answer_changes_under_a_transaction_that_commits() {
    let cases = scaled(8000, 30);
    for (seed, backend) in [Backend::Rows, Backend::Columns].into_iter().enumerate() {
        let by_column = play(Level::Columns, backend, 10 + seed as u64, cases);
        let by_record = play(Level::Rows, backend, 20 + seed as u64, cases);
        for (level, counts) in [("columns", &by_column), ("records", &by_record)] {
            let of_unchanged = 100.0 * f64::from(counts.needless) / f64::from((counts.cases - counts.changed).max(1));
            println!("{level}, {backend:?}: {counts:?}, {of_unchanged:.1} % refused without need");
        }
        assert!(cases < 1000 || by_column.changed > 200 && by_record.changed > 200, "answers change");
        // Coarser ones would be of no use.
        assert!(by_column.needless * 10 < by_column.cases, "{by_column:?}");
    }
}
