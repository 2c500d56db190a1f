//! The rows, and the transactions on them.
//!
//! Each register knows who wrote it last, and for one that was deleted a row of `gone` does. Each transaction that writes leaves an entry, which tells what it
//! found in each register. So the registers' histories can be followed back through the entries.

use std::fmt;

use polychron::{Error, Operations, Procedure, Row, Table, Transaction};
use polychron_base::random::Random;

/// Registers.
pub(crate) const REGISTERS: u64 = 24;

/// Groups of registers.
pub(crate) const GROUPS: u32 = 3;

/// A row that is written again and again.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_group", columns(group))]
pub(crate) struct Register {
    #[key]
    pub(crate) id: u64,
    pub(crate) group: u32,
    pub(crate) writer: u64,
    /// As many bytes as the writer's number says, or those of an earlier writer.
    pub(crate) text: String,
    /// The writer once more, behind the text.
    pub(crate) again: u64,
}

/// Who deleted a register last.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    #[key]
    pub(crate) id: u64,
    pub(crate) deleter: u64,
}

/// What a transaction has found, and done.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    #[key]
    pub(crate) id: u64,
    pub(crate) found: String,
}

/// The tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(crate) registers: Table<Register>,
    pub(crate) gone: Table<Gone>,
    pub(crate) entries: Table<Entry>,
}

/// What is done to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write,
    Delete,
}

/// What a transaction found in a register: its last writer, or who deleted it; 0 if it never was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) action: Action,
    pub(crate) register: u64,
    pub(crate) by: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Read => 'r',
            Action::Write => 'w',
            Action::Delete => 'd',
        };
        write!(out, "{action}{}={}", self.register, self.by)
    }
}

impl Found {
    /// Of a word as it is displayed.
    fn parse(word: &str) -> Option<Self> {
        let action = match word.get(..1)? {
            "r" => Action::Read,
            "w" => Action::Write,
            "d" => Action::Delete,
            _ => return None,
        };
        let (register, by) = word[1..].split_once('=')?;
        Some(Self { action, register: register.parse().ok()?, by: by.parse().ok()? })
    }

    /// All of an entry. `None`: it is not what any transaction has written.
    pub(crate) fn parse_all(words: &str) -> Option<Vec<Self>> {
        words.split_whitespace().map(Self::parse).collect()
    }
}

/// The error of a transaction that is meant to fail.
#[derive(Debug)]
pub(crate) enum Refusal {
    Meant,
    Engine(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) tables: Tables,
    pub(crate) id: u64,
    /// Each register once at most.
    pub(crate) steps: Vec<(u64, Action)>,
    /// Reads all registers between these by a scan, before all else.
    pub(crate) scanned: Option<(u64, u64)>,
    /// Fails when all is done.
    pub(crate) fails: bool,
}

impl Work {
    /// Draws a transaction.
    pub(crate) fn draw(tables: Tables, id: u64, random: &mut Random) -> Self {
        let is_reader = random.chance(0.2);
        let mut steps: Vec<(u64, Action)> = Vec::new();
        for _ in 0..=random.below(4) {
            let register = random.below(REGISTERS);
            let action = match random.below(8) {
                _ if is_reader => Action::Read,
                0..2 => Action::Read,
                2 => Action::Delete,
                _ => Action::Write,
            };
            if !steps.iter().any(|(other, _)| *other == register) {
                steps.push((register, action));
            }
        }
        let first = random.below(REGISTERS);
        let scanned = random.chance(0.2).then(|| (first, first + random.below(8)));
        Self { tables, id, steps, scanned, fails: random.chance(0.05) }
    }

    /// Whether it leaves no entry.
    pub(crate) fn is_reader(&self) -> bool {
        self.steps.iter().all(|(_, action)| *action == Action::Read)
    }

    fn absent<T: Transaction>(&self, transaction: &mut T, register: u64) -> Result<u64, Error> {
        Ok(transaction.get_owned(&self.tables.gone, register)?.map_or(0, |gone| gone.deleter))
    }

    fn scan<T: Transaction>(&self, transaction: &mut T, (first, last): (u64, u64)) -> Result<Vec<Found>, Error> {
        let rows: Vec<(u64, u64)> =
            transaction.scan(&self.tables.registers, first..=last).map(|row| (row.id(), row.writer())).collect()?;
        let mut found = Vec::new();
        for register in first..=last.min(REGISTERS - 1) {
            let row = rows.iter().find(|(id, _)| *id == register);
            let by = match row {
                Some((_, writer)) => *writer,
                None => self.absent(transaction, register)?,
            };
            found.push(Found { action: Action::Read, register, by });
        }
        Ok(found)
    }

    fn step<T: Transaction>(&self, transaction: &mut T, register: u64, action: Action) -> Result<Found, Error> {
        let Tables { registers, gone, .. } = &self.tables;
        let row = transaction.get_owned(registers, register)?;
        let by = match &row {
            Some(row) => row.writer,
            None => self.absent(transaction, register)?,
        };
        match (action, row) {
            (Action::Write, Some(_)) if !self.id.is_multiple_of(3) => {
                transaction.update(registers, register, |row| {
                    row.set_writer(self.id);
                    row.set_again(self.id);
                })?;
            }
            (Action::Write, _) => {
                let text = "x".repeat(length_of(self.id));
                let group = register as u32 % GROUPS;
                transaction
                    .upsert(registers, &Register { id: register, group, writer: self.id, text, again: self.id })?;
            }
            (Action::Delete, row) => {
                if row.is_some() {
                    transaction.delete(registers, register)?;
                }
                transaction.upsert(gone, &Gone { id: register, deleter: self.id })?;
            }
            (Action::Read, _) => {}
        }
        Ok(Found { action, register, by })
    }

    /// Does all of it, and answers what was found, as its entry says.
    pub(crate) fn execute<T: Transaction>(&self, transaction: &mut T) -> Result<String, Refusal> {
        let mut found = match self.scanned {
            Some(range) => self.scan(transaction, range)?,
            None => Vec::new(),
        };
        for &(register, action) in &self.steps {
            found.push(self.step(transaction, register, action)?);
        }
        let found = found.iter().map(Found::to_string).collect::<Vec<_>>().join(" ");
        if !self.is_reader() {
            transaction.insert(&self.tables.entries, &Entry { id: self.id, found: found.clone() })?;
        }
        if self.fails { Err(Refusal::Meant) } else { Ok(found) }
    }
}

/// How long the text is that a transaction writes.
pub(crate) fn length_of(id: u64) -> usize {
    match id % 16 {
        0 => 3000,
        other => other as usize * 7,
    }
}

impl Procedure for Work {
    type Output = String;
    type Error = Refusal;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<String, Refusal> {
        self.execute(transaction)
    }
}
