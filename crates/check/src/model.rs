//! The model of a table of persons: a map, and a copy of it for every savepoint.

use std::collections::BTreeMap;

use polychron_base::IndexId;
use polychron_base::random::Random;

use crate::conformance::differential::BY_CODE;
use crate::rows::Person;

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
    Scan { from: u64, to: u64, backward: bool, limit: usize },
    ByTeam { team: u16, backward: bool, limit: usize },
    ByCode(Option<u32>),
    Savepoint,
    RollBackTo(usize),
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Row(Option<Person>),
    Rows(Vec<Person>),
    Flag(bool),
    Duplicate(IndexId),
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
        match random.below(20) {
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
            _ if backward => Self::Savepoint,
            _ => Self::RollBackTo(random.below(3) as usize),
        }
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
