//! The model of a table of persons: a map, and a copy of it for every savepoint; and the serial orders of what was done to it.

use std::collections::BTreeMap;

use polychron_base::IndexId;
use polychron_base::random::Random;
use polychron_engine::scan::Comparison;
use polychron_engine::{Aggregate, Restriction};
use polychron_schema::Value;

use crate::conformance::differential::BY_CODE;
use crate::rows::{Person, person};
use crate::samples::model::satisfies;
use crate::samples::{disguised, draw_comparison};

/// One operation of a random transaction.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Get(u64),
    Insert(Person),
    Upsert(Person),
    SetNumber(u64, i64),
    SetText(u64, String),
    SetTeam(u64, u16),
    SetCode(u64, Option<u32>),
    Delete(u64),
    Scan {
        from: u64,
        to: u64,
        backward: bool,
        limit: usize,
    },
    ByTeam {
        team: u16,
        backward: bool,
        limit: usize,
    },
    ByCode(Option<u32>),
    /// The numbers of all rows, or of a team's, column by column.
    Columns {
        team: Option<u16>,
    },
    /// An answer over them.
    Total {
        team: Option<u16>,
        wanted: Aggregate,
    },
    /// The ids of the rows that satisfy restrictions, of which no other column is asked for.
    Find {
        restrictions: Vec<Restriction>,
        backward: bool,
        limit: usize,
    },
    /// The same, column by column.
    Gather {
        restrictions: Vec<Restriction>,
    },
    /// An answer over them.
    Measure {
        restrictions: Vec<Restriction>,
        wanted: Aggregate,
    },
    /// The number of a row, by an update that changes nothing.
    Look(u64),
    /// A write whose text is too long for its column.
    TooLong(u64),
    /// Does the same behind a savepoint, to which it then returns.
    Tried(Box<Self>),
    /// So many keys will be asked for.
    Prefetch(u64, u64),
    Savepoint,
    RollBackTo(usize),
    /// Whether the number is so large; the answer may be assumed.
    Ask {
        id: u64,
        at_least: i64,
        assumed: Option<bool>,
    },
    /// Whether the one's number is larger than the other's.
    AskOrder(u64, u64),
    /// Adds to the number, as a future.
    AddLater(u64, i64),
    /// The other's number becomes one more than the one's, as a future.
    NumberLater(u64, u64),
    /// The other's team becomes the one's, as a future.
    TeamLater(u64, u64),
    /// The other's text becomes the one's number and the length that it has, as a future.
    TextLater(u64, u64),
    /// Whether the one's text, and then its code, come before the other's.
    AskText(u64, u64),
    /// The number, by a future.
    Resolve(u64),
    /// The commit, noted where it fails.
    Commit,
}

/// Id, team, code and number of a row.
pub(crate) type Numbers = (u64, u16, Option<u32>, i64);

/// What an operation answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Row(Option<Person>),
    Rows(Vec<Person>),
    /// In the order of the ids.
    Columns(Vec<Numbers>),
    Value(Value),
    Flag(bool),
    Number(i64),
    Ids(Vec<u64>),
    Duplicate(IndexId),
    /// Something else refused it.
    Refused,
    /// A future's row is not there. It undoes the transaction, now or at the commit.
    NoRow,
}

impl Operation {
    /// A random operation over `keys` keys.
    pub(crate) fn draw(random: &mut Random, keys: u64) -> Self {
        let id = random.below(keys);
        let team = random.below(3) as u16;
        let code = (random.below(4) > 0).then(|| random.below(keys + 2) as u32);
        let number = random.below(1000) as i64;
        // Lengths that fit, that just do not fit, and that make every record move.
        let text = "t".repeat([0, 3, 9, 40, 300][random.below(5) as usize]);
        let row = Person { id, team, code, number, text: text.clone() };
        let limit = if random.below(2) == 0 { usize::MAX } else { random.below(4) as usize };
        let backward = random.below(2) == 0;
        match random.below(22) {
            0..=2 => Self::Get(id),
            3..=5 => Self::Insert(row),
            6 | 7 => Self::Upsert(row),
            8 => Self::SetNumber(id, number),
            9 => Self::SetText(id, text),
            10 => Self::SetTeam(id, team),
            11 => Self::SetCode(id, code),
            12..=14 => Self::Delete(id),
            15 | 16 => Self::Scan { from: id, to: id + random.below(keys), backward, limit },
            17 => Self::ByTeam { team, backward, limit },
            18 => Self::ByCode(code),
            20 | 21 => Self::Prefetch(id, random.range_inclusive(1, 6)),
            _ if backward => Self::Savepoint,
            _ => Self::RollBackTo(random.below(3) as usize),
        }
    }
}

/// The values of a person, in the order of the columns.
fn values(row: &Person) -> [Value; 5] {
    [row.id.into(), row.team.into(), row.code.into(), row.number.into(), row.text.as_str().into()]
}

/// A comparison of a column with a constant that a row may have there, or that looks like one.
fn draw_restriction(random: &mut Random, keys: u64) -> Restriction {
    let column = random.below(5) as usize;
    let number = random.below(keys + 1);
    let text = ["", "t", "ttt", "person 1", "person 2"][random.below(5) as usize];
    let value = match column {
        0 => number.into(),
        1 => Value::Unsigned(random.below(3)),
        2 if random.below(6) == 0 => Value::Null,
        2 => Value::Unsigned(number),
        3 => Value::Integer([-1, 0, 10, 20, i64::MAX][random.below(5) as usize]),
        _ => text.into(),
    };
    let value = if random.below(2) == 0 { value } else { disguised(random, value) };
    Restriction { column, comparison: draw_comparison(random), value }
}

impl Operation {
    /// As [`Operation::draw_of_columns`], with questions of all kinds, updates that only look, and refusals.
    pub(crate) fn draw_of_questions(random: &mut Random, keys: u64) -> Self {
        let id = random.below(keys);
        let restrictions = (0..random.below(3)).map(|_| draw_restriction(random, keys)).collect();
        let backward = random.below(2) == 0;
        let limit = if random.below(2) == 0 { usize::MAX } else { random.range_inclusive(1, 2) as usize };
        let (code, number, column) = (2, 3, random.below(5) as usize);
        let wanted = [Aggregate::Rows, Aggregate::Count(code), Aggregate::Min(column), Aggregate::Max(column)];
        match random.below(16) {
            0 | 1 => Self::Find { restrictions, backward, limit },
            2 => Self::Gather { restrictions },
            3 => Self::Measure { restrictions, wanted: wanted[random.below(4) as usize] },
            4 => Self::Measure { restrictions, wanted: Aggregate::Sum(if random.below(6) == 0 { 4 } else { number }) },
            5 | 6 => Self::Look(id),
            7 => Self::SetNumber(id, [-1, i64::MAX][random.below(2) as usize]),
            8 => Self::TooLong(id),
            9 => match Self::draw_of_questions(random, keys) {
                Self::Savepoint | Self::RollBackTo(_) => Self::Look(id),
                tried => Self::Tried(Box::new(tried)),
            },
            _ => Self::draw_of_columns(random, keys),
        }
    }

    /// As [`Operation::draw`], with questions about columns in place of every other prefetch.
    pub(crate) fn draw_of_columns(random: &mut Random, keys: u64) -> Self {
        let (id, number) = match Self::draw(random, keys) {
            Self::Prefetch(id, number) => (id, number),
            other => return other,
        };
        let team = Some(((id + number) % 4) as u16).filter(|team| *team < 3);
        let (code, amount) = (Person::CODE.index.into(), Person::NUMBER.index.into());
        let wanted = [Aggregate::Rows, Aggregate::Sum(amount), Aggregate::Min(code)];
        let others = [Aggregate::Count(code), Aggregate::Sum(amount), Aggregate::Max(amount)];
        match number {
            1 => Self::Columns { team },
            3 => Self::Total { team, wanted: wanted[(id % 3) as usize] },
            5 => Self::Total { team, wanted: others[(id % 3) as usize] },
            _ => Self::Prefetch(id, number),
        }
    }

    /// A random operation, with futures above all, over keys that are all there.
    pub(crate) fn draw_of_futures(random: &mut Random, keys: u64) -> Self {
        let (id, other) = (random.below(keys), random.below(keys));
        let number = random.below(30) as i64;
        let assumed = (random.below(3) == 0).then(|| random.below(2) == 0);
        let backward = random.below(2) == 0;
        match random.below(21) {
            0..=3 => Self::AddLater(id, number % 13 - 6),
            4..=6 => Self::Ask { id, at_least: number, assumed },
            7 | 8 => Self::AskOrder(id, other),
            9 => Self::NumberLater(id, other),
            10 => Self::TeamLater(id, other),
            11 => Self::Resolve(id),
            12 => Self::Get(id),
            13 => Self::SetNumber(id, number),
            14 => Self::SetTeam(id, random.below(3) as u16),
            15 => Self::ByTeam { team: random.below(3) as u16, backward, limit: usize::MAX },
            16 => Self::Savepoint,
            17 => Self::TextLater(id, other),
            18 | 19 => Self::AskText(id, other),
            _ => Self::RollBackTo(random.below(2) as usize),
        }
    }

    /// As [`Operation::draw_of_futures`], beside rows that come and go.
    pub(crate) fn draw_of_futures_beside_deletions(random: &mut Random, keys: u64) -> Self {
        let (id, team) = (random.below(keys), random.below(3) as u16);
        match random.below(6) {
            0 => Self::Delete(id),
            1 => Self::Insert(Person { team, ..person(id, 1, id as u32) }),
            _ => Self::draw_of_futures(random, keys),
        }
    }
}

/// The sum of numbers, if it fits.
fn sum(numbers: impl Iterator<Item = i64>) -> Answer {
    let sum = numbers.map(i128::from).fold(None, |sum, number| Some(sum.unwrap_or(0) + number));
    match sum.map(i64::try_from) {
        None => Answer::Value(Value::Null),
        Some(Ok(sum)) => Answer::Value(Value::Integer(sum)),
        Some(Err(_)) => Answer::Refused,
    }
}

/// The rows, and what they were at the savepoints of the running transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    rows: BTreeMap<u64, Person>,
    savepoints: Vec<BTreeMap<u64, Person>>,
}

impl Model {
    /// The model of these rows.
    pub(crate) fn of(rows: Vec<Person>) -> Self {
        Self { rows: rows.into_iter().map(|row| (row.id, row)).collect(), savepoints: Vec::new() }
    }

    /// All rows.
    pub(crate) fn rows(&self) -> Vec<Person> {
        self.rows.values().cloned().collect()
    }

    /// The model after the transaction has committed.
    pub(crate) fn committed(self) -> Self {
        Self { savepoints: Vec::new(), ..self }
    }

    /// Writes a row unless another one has its code.
    fn put(&mut self, row: Person) -> Answer {
        let taken = row.code.is_some() && self.rows.values().any(|other| other.id != row.id && other.code == row.code);
        if taken {
            return Answer::Duplicate(BY_CODE);
        }
        self.rows.insert(row.id, row);
        Answer::Flag(true)
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Person)) -> Answer {
        let Some(row) = self.rows.get(&id) else { return Answer::Flag(false) };
        let mut row = row.clone();
        change(&mut row);
        self.put(row)
    }

    /// The rows of a team, or all.
    fn of_team(&self, team: Option<u16>) -> impl Iterator<Item = &Person> {
        self.rows.values().filter(move |row| team.is_none_or(|team| row.team == team))
    }

    /// The rows that satisfy restrictions.
    fn satisfying(&self, restrictions: &[Restriction]) -> Vec<&Person> {
        let holds = |row: &Person, it: &Restriction| satisfies(&values(row)[it.column], it.comparison, &it.value);
        self.rows.values().filter(|row| restrictions.iter().all(|it| holds(row, it))).collect()
    }

    fn measure(&self, restrictions: &[Restriction], wanted: Aggregate) -> Answer {
        let rows = self.satisfying(restrictions);
        let of = |column: usize| {
            let values = rows.iter().map(move |row| values(row)[column].clone());
            values.filter(|value| !value.is_null()).collect::<Vec<_>>()
        };
        let better = |column: usize, comparison: Comparison| {
            of(column).into_iter().reduce(|best, value| if satisfies(&value, comparison, &best) { value } else { best })
        };
        Answer::Value(match wanted {
            Aggregate::Rows => Value::Unsigned(rows.len() as u64),
            Aggregate::Count(column) => Value::Unsigned(of(column).len() as u64),
            Aggregate::Min(column) => better(column, Comparison::Less).unwrap_or_default(),
            Aggregate::Max(column) => better(column, Comparison::Greater).unwrap_or_default(),
            // Texts have no sum.
            Aggregate::Sum(4) => return Answer::Refused,
            Aggregate::Sum(_) => return sum(rows.iter().map(|row| row.number)),
            Aggregate::Average(_) => unreachable!("samples are asked for averages"),
        })
    }

    fn total(&self, team: Option<u16>, wanted: Aggregate) -> Answer {
        let rows = || self.of_team(team);
        let codes = || rows().filter_map(|row| row.code);
        Answer::Value(match wanted {
            Aggregate::Rows => Value::Unsigned(rows().count() as u64),
            Aggregate::Count(_) => Value::Unsigned(codes().count() as u64),
            Aggregate::Sum(_) => return sum(rows().map(|row| row.number)),
            Aggregate::Min(_) => codes().min().map_or(Value::Null, |code| Value::Unsigned(code.into())),
            Aggregate::Max(_) => rows().map(|row| row.number).max().map_or(Value::Null, Value::Integer),
            Aggregate::Average(_) => unreachable!("samples are asked for averages"),
        })
    }

    /// Answers what follows from the rows of futures, if they are there.
    fn of_futures<const N: usize>(&self, ids: [u64; N], answer: impl FnOnce([&Person; N]) -> Answer) -> Answer {
        let rows = ids.map(|id| self.rows.get(&id));
        if rows.iter().all(Option::is_some) {
            answer(rows.map(|row| row.expect("it was looked at")))
        } else {
            Answer::NoRow
        }
    }

    /// Changes a row of futures, if all of them are there.
    fn change_later<const N: usize>(
        &mut self,
        ids: [u64; N],
        id: u64,
        change: impl FnOnce([&Person; N], &mut Person),
    ) -> Answer {
        let mut changed = None;
        let answer = self.of_futures(ids, |rows| {
            let mut row = self.rows[&id].clone();
            change(rows, &mut row);
            changed = Some(row);
            Answer::Flag(true)
        });
        changed.map_or(answer, |row| self.put(row))
    }

    fn change_text(&mut self, from: u64, to: u64) -> Answer {
        self.change_later([from, to], to, |[from, _], to| to.text = format!("{}/{}", from.number, to.text.len()))
    }

    fn ask_text(&self, left: u64, right: u64) -> Answer {
        self.of_futures([left, right], |[left, right]| {
            Answer::Flag((&left.text, left.code) < (&right.text, right.code))
        })
    }

    fn visit<'m>(rows: impl DoubleEndedIterator<Item = &'m Person>, backward: bool, limit: usize) -> Answer {
        let rows: Vec<&Person> = if backward { rows.rev().collect() } else { rows.collect() };
        Answer::Rows(rows.into_iter().take(limit).cloned().collect())
    }

    /// Does what the operation says.
    pub(crate) fn apply(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Get(id) => Answer::Row(self.rows.get(id).cloned()),
            Operation::Insert(row) if self.rows.contains_key(&row.id) => Answer::Duplicate(IndexId::PRIMARY),
            Operation::Insert(row) | Operation::Upsert(row) => self.put(row.clone()),
            Operation::SetNumber(id, number) => self.change(*id, |row| row.number = *number),
            Operation::SetText(id, text) => self.change(*id, |row| row.text.clone_from(text)),
            Operation::SetTeam(id, team) => self.change(*id, |row| row.team = *team),
            Operation::SetCode(id, code) => self.change(*id, |row| row.code = *code),
            Operation::Delete(id) => Answer::Flag(self.rows.remove(id).is_some()),
            Operation::Scan { from, to, backward, limit } => {
                Self::visit(self.rows.range(from..to).map(|(_, row)| row), *backward, *limit)
            }
            Operation::ByTeam { team, backward, limit } => {
                let rows: Vec<_> = self.rows.values().filter(|row| row.team == *team).collect();
                Self::visit(rows.into_iter(), *backward, *limit)
            }
            Operation::ByCode(code) => {
                let rows: Vec<_> = self.rows.values().filter(|row| row.code == *code).collect();
                Self::visit(rows.into_iter(), false, usize::MAX)
            }
            Operation::Columns { team } => {
                Answer::Columns(self.of_team(*team).map(|row| (row.id, row.team, row.code, row.number)).collect())
            }
            Operation::Total { team, wanted } => self.total(*team, *wanted),
            Operation::Find { restrictions, backward, limit } => {
                let mut ids: Vec<u64> = self.satisfying(restrictions).into_iter().map(|row| row.id).collect();
                if *backward {
                    ids.reverse();
                }
                ids.truncate(*limit);
                Answer::Ids(ids)
            }
            Operation::Gather { restrictions } => {
                Answer::Ids(self.satisfying(restrictions).into_iter().map(|row| row.id).collect())
            }
            Operation::Measure { restrictions, wanted } => self.measure(restrictions, *wanted),
            Operation::Look(id) => self.rows.get(id).map_or(Answer::Flag(false), |row| Answer::Number(row.number)),
            Operation::TooLong(_) => Answer::Refused,
            Operation::Tried(operation) => self.clone().apply(operation),
            Operation::Prefetch(..) => Answer::Flag(true),
            Operation::Ask { id, at_least, .. } => {
                self.of_futures([*id], |[row]| Answer::Flag(row.number >= *at_least))
            }
            Operation::AskOrder(left, right) => {
                self.of_futures([*left, *right], |[left, right]| Answer::Flag(left.number > right.number))
            }
            Operation::AddLater(id, more) => self.change_later([*id], *id, |_, row| row.number += more),
            Operation::NumberLater(from, to) => {
                self.change_later([*from, *to], *to, |[from, _], to| to.number = from.number + 1)
            }
            Operation::TeamLater(from, to) => self.change_later([*from, *to], *to, |[from, _], to| to.team = from.team),
            Operation::TextLater(from, to) => self.change_text(*from, *to),
            Operation::AskText(left, right) => self.ask_text(*left, *right),
            Operation::Resolve(id) => self.of_futures([*id], |[row]| Answer::Number(row.number)),
            Operation::Commit => Answer::Flag(true),
            Operation::Savepoint => {
                self.savepoints.push(self.rows.clone());
                Answer::Flag(true)
            }
            Operation::RollBackTo(position) => {
                if let Some(rows) = self.savepoints.get(*position) {
                    self.rows = rows.clone();
                    self.savepoints.truncate(*position + 1);
                }
                Answer::Flag(true)
            }
        }
    }
}

/// What a transaction did, and was answered. It has committed, unless its last answer is [`Answer::NoRow`], which undid it.
pub(crate) type Trace = Vec<(Operation, Answer)>;

/// The rows after a transaction, if it can have been answered so here.
fn replay(model: &Model, trace: &Trace) -> Option<Model> {
    let failed = trace.last().is_some_and(|(_, answer)| *answer == Answer::NoRow);
    let mut next = model.clone();
    for (operation, answer) in trace {
        match next.apply(operation) {
            // A client that leaves futures open may have gone on until the commit.
            Answer::NoRow => return failed.then(|| model.clone()),
            expected if expected != *answer => return None,
            _ => {}
        }
    }
    (!failed).then(|| next.committed())
}

/// Whether some serial order explains what happened: from `start`, the transactions of all threads, each thread's in their
/// order, give their answers and leave `end`; and the rows of every snapshot are the state between two of them.
pub(crate) fn explained(start: &Model, threads: &[Vec<Trace>], snapshots: &[Vec<Person>], end: &[Person]) -> bool {
    let missing: Vec<&Vec<Person>> = snapshots.iter().filter(|rows| **rows != start.rows()).collect();
    extends(start, &mut vec![0; threads.len()], threads, &missing, end)
}

/// Whether the order goes on from here; `done` says how many transactions of each thread are in it.
fn extends(
    model: &Model,
    done: &mut Vec<usize>,
    threads: &[Vec<Trace>],
    missing: &[&Vec<Person>],
    end: &[Person],
) -> bool {
    let mut last = true;
    for thread in 0..threads.len() {
        let Some(trace) = threads[thread].get(done[thread]) else { continue };
        last = false;
        let Some(next) = replay(model, trace) else { continue };
        let rows = next.rows();
        let missing: Vec<_> = missing.iter().copied().filter(|snapshot| **snapshot != rows).collect();
        done[thread] += 1;
        let found = extends(&next, done, threads, &missing, end);
        done[thread] -= 1;
        if found {
            return true;
        }
    }
    last && missing.is_empty() && model.rows() == end
}

/// What happened, in words.
pub(crate) fn story(start: &Model, threads: &[Vec<Trace>], snapshots: &[Vec<Person>], end: &[Person]) -> String {
    let mut story = format!("no serial order explains this. Start: {:?}\n", start.rows());
    for (thread, traces) in threads.iter().enumerate() {
        for trace in traces {
            story += &format!("thread {thread} ended:\n");
            trace.iter().for_each(|step| story += &format!("  {step:?}\n"));
        }
    }
    snapshots.iter().for_each(|rows| story += &format!("a snapshot: {rows:?}\n"));
    story + &format!("end: {end:?}")
}
