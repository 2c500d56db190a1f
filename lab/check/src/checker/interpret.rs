//! What an attempt's operations say about the rest of the world, once its own writes are taken out.

use std::ops::Range;

use super::anomaly::{Anomaly, Finding};
use crate::history::{Attempt, Attributes, History, Item, Operation, RangeRead, Replaced, Version};

/// A row's state that another client wrote and the attempt read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) item: Item,
    pub(super) version: Version,
    pub(super) operation: usize,
}

/// A row that the attempt found absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    pub(super) item: Item,
    pub(super) operation: usize,
}

/// A range that the attempt read, and the keys in its table that it had changed itself by then.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    pub(super) operation: usize,
    pub(super) own: Range<usize>,
}

/// What is left of the attempt's writes at its end. `None` is a deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Install {
    pub(super) item: Item,
    pub(super) replaced: Replaced,
    pub(super) state: Option<(Version, Attributes)>,
}

/// What attempts observed and left, one after the other.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) reads: Vec<Read>,
    pub(super) absences: Vec<Absence>,
    pub(super) ranges: Vec<Looked>,
    /// Ranges of which the attempt was told that some row of others is there.
    pub(super) presences: Vec<Looked>,
    pub(super) installs: Vec<Install>,
    /// Keys that [`Looked::own`] names.
    pub(super) own_keys: Vec<u64>,
    pub(super) findings: Vec<Finding>,
}

/// The attempt's own writes.
#[derive(Default)]
pub(super) struct Own {
    items: Vec<Install>,
    /// What stood in `items` before each write, for savepoints.
    undo: Vec<(Item, Option<Install>)>,
    savepoints: Vec<usize>,
}

impl Own {
    fn find(&self, item: Item) -> Option<&Install> {
        self.items.iter().find(|own| own.item == item)
    }

    fn set(&mut self, install: Install) {
        match self.items.iter_mut().find(|own| own.item == install.item) {
            Some(own) => {
                self.undo.push((own.item, Some(*own)));
                *own = install;
            }
            None => {
                self.undo.push((install.item, None));
                self.items.push(install);
            }
        }
    }

    fn roll_back_to(&mut self, number: usize) {
        let Some(&length) = self.savepoints.get(number) else { return };
        self.savepoints.truncate(number + 1);
        while self.undo.len() > length {
            let Some((item, before)) = self.undo.pop() else { return };
            let position = self.items.iter().position(|own| own.item == item);
            match (position, before) {
                (Some(position), Some(before)) => self.items[position] = before,
                (Some(position), None) => drop(self.items.swap_remove(position)),
                (None, _) => {}
            }
        }
    }

    fn clear(&mut self) {
        self.items.clear();
        self.undo.clear();
        self.savepoints.clear();
    }
}

impl Observations {
    /// Adds what `attempt` observed. `own` is memory to use.
    pub(super) fn interpret(&mut self, history: &History, attempt: &Attempt, own: &mut Own) {
        own.clear();
        for operation in attempt.operations.clone() {
            match &history.operations[operation] {
                Operation::Read { item, seen } => self.read(attempt, own, *item, *seen, operation),
                Operation::Range(range) => self.range(attempt, own, range, operation),
                Operation::Present(range) => self.presence(own, range, operation),
                Operation::Write { item, version, replaced, attributes } => {
                    self.write(attempt, own, *item, *replaced, Some((*version, *attributes)), operation);
                }
                Operation::Delete { item, replaced } => self.write(attempt, own, *item, *replaced, None, operation),
                Operation::Savepoint => own.savepoints.push(own.undo.len()),
                Operation::RollBackTo(number) => own.roll_back_to(*number),
                Operation::Torn { item } => {
                    self.find(Anomaly::Garbage, attempt, *item, "its columns were not written together".to_owned());
                }
                Operation::Contradiction { item, what } => {
                    self.find(Anomaly::Internal, attempt, *item, (*what).to_owned());
                }
            }
        }
        let changes = |own: &&Install| own.state.is_some() || own.replaced != Replaced::Absent;
        self.installs.extend(own.items.iter().filter(changes));
    }

    fn find(&mut self, anomaly: Anomaly, attempt: &Attempt, item: Item, what: String) {
        self.findings.push(Finding { anomaly, attempt: attempt.id, item, what });
    }

    fn observe(&mut self, attempt: &Attempt, item: Item, seen: Option<Version>, operation: usize) {
        match seen {
            Some(version) if version.attempt() == attempt.id => {
                let what = format!("it saw version {version}, which it had not written there, or no longer");
                self.find(Anomaly::Internal, attempt, item, what);
            }
            Some(version) => self.reads.push(Read { item, version, operation }),
            None => self.absences.push(Absence { item, operation }),
        }
    }

    fn read(&mut self, attempt: &Attempt, own: &Own, item: Item, seen: Option<Version>, operation: usize) {
        match own.find(item) {
            None => self.observe(attempt, item, seen, operation),
            Some(own) => self.own_state(attempt, item, own.state.map(|(version, _)| version), seen),
        }
    }

    /// What the attempt has written must be what it sees.
    fn own_state(&mut self, attempt: &Attempt, item: Item, written: Option<Version>, seen: Option<Version>) {
        if written != seen {
            let name = |version: Option<Version>| version.map_or("nothing".to_owned(), |it| format!("version {it}"));
            let what = format!("it had left {} there, and saw {}", name(written), name(seen));
            self.find(Anomaly::Internal, attempt, item, what);
        }
    }

    fn range(&mut self, attempt: &Attempt, own: &Own, range: &RangeRead, operation: usize) {
        let of_table = own.items.iter().filter(|own| own.item.table == range.table);
        let own_keys = self.note_own(of_table.clone());
        for &(key, version) in &range.rows {
            self.read(attempt, own, Item { table: range.table, key }, Some(version), operation);
        }
        for own in of_table {
            let missing = |&(version, attributes): &(Version, Attributes)| {
                range.covers(own.item.key, &attributes) && !range.rows.contains(&(own.item.key, version))
            };
            if let Some((version, _)) = own.state.filter(missing) {
                let what = format!("it had written version {version}, and a range over it lacks the row");
                self.find(Anomaly::Internal, attempt, own.item, what);
            }
        }
        self.ranges.push(Looked { operation, own: own_keys });
    }

    fn note_own<'o>(&mut self, items: impl Iterator<Item = &'o Install>) -> Range<usize> {
        let start = self.own_keys.len();
        self.own_keys.extend(items.map(|own| own.item.key));
        start..self.own_keys.len()
    }

    /// What the attempt has written itself may be what it was told of.
    fn presence(&mut self, own: &Own, range: &RangeRead, operation: usize) {
        let of_table = own.items.iter().filter(|own| own.item.table == range.table);
        let covers = |own: &Install| own.state.is_some_and(|(_, attributes)| range.covers(own.item.key, &attributes));
        if !of_table.clone().any(covers) {
            let own = self.note_own(of_table);
            self.presences.push(Looked { operation, own });
        }
    }

    fn write(
        &mut self,
        attempt: &Attempt,
        own: &mut Own,
        item: Item,
        replaced: Replaced,
        state: Option<(Version, Attributes)>,
        operation: usize,
    ) {
        let seen = match replaced {
            Replaced::Unknown | Replaced::Follows(_) | Replaced::Behind(_) => None,
            Replaced::Absent => Some(None),
            Replaced::Version(version) => Some(Some(version)),
        };
        let mut below = replaced;
        match (own.find(item).copied(), seen) {
            (Some(before), seen) => {
                below = before.replaced;
                if let Some(seen) = seen {
                    self.own_state(attempt, item, before.state.map(|(version, _)| version), seen);
                }
            }
            (None, Some(seen)) => self.observe(attempt, item, seen, operation),
            (None, None) => {}
        }
        own.set(Install { item, replaced: below, state });
    }
}
