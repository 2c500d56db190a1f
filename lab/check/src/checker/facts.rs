//! A history with its versions in order: who wrote what over what, and who saw it.

use std::collections::HashMap;
use std::ops::Range;

use super::anomaly::{Anomaly, Explanation};
use super::interpret::{Absence, Install, Looked, Observations, Own, Read};
use crate::history::{Attempt, Attributes, History, Item, Name, Operation, Outcome, RangeRead, Replaced, Version};

/// No version, no item.
pub(super) const NONE: u32 = u32::MAX;

/// Anomalies of single attempts that are told of.
const MOST_FINDINGS: usize = 1000;

/// A committed state of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) item: u32,
    /// The transaction that wrote it.
    pub(super) writer: u32,
    /// `None` is a deletion.
    pub(super) row: Option<(Version, Attributes)>,
    pub(super) replaced: Replaced,
    /// The state before, [`NONE`] where a life begins.
    pub(super) previous: u32,
    /// The state that replaced it, as far as that is known.
    pub(super) next: u32,
    /// The first state of its life.
    pub(super) birth: u32,
}

/// What one transaction observed, as ranges of the lists.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) reads: Range<usize>,
    pub(super) absences: Range<usize>,
    pub(super) ranges: Range<usize>,
    pub(super) presences: Range<usize>,
    pub(super) installs: Range<usize>,
}

/// What is known of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemFacts {
    pub(super) item: Item,
    /// Somebody wrote it without looking.
    pub(super) blind: bool,
    /// Nothing can be said: it was written blindly and deleted in one transaction.
    pub(super) opaque: bool,
    /// The first state of the life that has no known end, of one of them if there are several; [`NONE`] for none.
    pub(super) open: u32,
}

/// The transactions whose answers count, and the order of what they wrote.
pub(super) struct Facts<'h> {
    pub(super) history: &'h History,
    /// The position of each transaction's attempt in the history.
    pub(super) attempts: Vec<u32>,
    pub(super) parts: Vec<Part>,
    pub(super) seen: Observations,
    /// The state that each entry of `seen.reads` saw; [`NONE`] where it is not a committed one.
    pub(super) read_states: Vec<u32>,
    /// The item of each entry of `seen.absences`; [`NONE`] where no client ever wrote it.
    pub(super) absent_items: Vec<u32>,
    pub(super) items: Vec<ItemFacts>,
    pub(super) item_numbers: HashMap<Item, u32>,
    /// States; those of a transaction are `first_states[t]..first_states[t + 1]`.
    pub(super) states: Vec<State>,
    pub(super) first_states: Vec<u32>,
    /// States of which is only known that they came behind another, or behind the item's beginning.
    pub(super) behind_state: HashMap<u32, Vec<u32>>,
    pub(super) behind_nothing: HashMap<u32, Vec<u32>>,
    pub(super) findings: Vec<Explanation>,
    versions: HashMap<Version, u32>,
}

impl<'h> Facts<'h> {
    /// Reads a history.
    pub(super) fn new(history: &'h History) -> Self {
        let mut facts = Self {
            history,
            attempts: Vec::new(),
            parts: Vec::new(),
            seen: Observations::default(),
            read_states: Vec::new(),
            absent_items: Vec::new(),
            items: Vec::new(),
            item_numbers: HashMap::new(),
            states: Vec::new(),
            first_states: Vec::new(),
            behind_state: HashMap::new(),
            behind_nothing: HashMap::new(),
            findings: Vec::new(),
            versions: HashMap::new(),
        };
        facts.observe();
        facts.install();
        facts.link();
        facts.resolve();
        facts
    }

    /// The attempt of a transaction.
    pub(super) fn attempt(&self, transaction: u32) -> &'h Attempt {
        &self.history.attempts[self.attempts[transaction as usize] as usize]
    }

    pub(super) fn reads(&self, transaction: u32) -> impl Iterator<Item = (&Read, u32)> {
        let range = self.parts[transaction as usize].reads.clone();
        self.seen.reads[range.clone()].iter().zip(self.read_states[range].iter().copied())
    }

    pub(super) fn absences(&self, transaction: u32) -> impl Iterator<Item = (&Absence, u32)> {
        let range = self.parts[transaction as usize].absences.clone();
        self.seen.absences[range.clone()].iter().zip(self.absent_items[range].iter().copied())
    }

    pub(super) fn ranges(&self, transaction: u32) -> &[Looked] {
        &self.seen.ranges[self.parts[transaction as usize].ranges.clone()]
    }

    pub(super) fn presences(&self, transaction: u32) -> &[Looked] {
        &self.seen.presences[self.parts[transaction as usize].presences.clone()]
    }

    /// The states that a transaction left, as their numbers.
    pub(super) fn states_of(&self, transaction: u32) -> Range<u32> {
        let transaction = transaction as usize;
        self.first_states[transaction]..self.first_states[transaction + 1]
    }

    pub(super) fn state(&self, state: u32) -> &State {
        &self.states[state as usize]
    }

    pub(super) fn item(&self, item: u32) -> &ItemFacts {
        &self.items[item as usize]
    }

    /// The committed state of an item with this version.
    pub(super) fn state_of(&self, version: Version, item: Item) -> Option<u32> {
        let state = self.versions.get(&version).copied()?;
        (self.item(self.state(state).item).item == item).then_some(state)
    }

    /// The range read of an operation.
    pub(super) fn range_read(&self, operation: usize) -> &'h RangeRead {
        match &self.history.operations[operation] {
            Operation::Range(range) | Operation::Present(range) => range,
            other => unreachable!("{other:?} is no range"),
        }
    }

    /// The last state of the life that begins with `birth`.
    pub(super) fn last_of_life(&self, birth: u32) -> u32 {
        let mut state = birth;
        while self.state(state).next != NONE {
            state = self.state(state).next;
        }
        state
    }

    fn observe(&mut self) {
        let mut own = Own::default();
        for (position, attempt) in self.history.attempts.iter().enumerate() {
            if !matches!(attempt.outcome, Outcome::Committed | Outcome::RolledBack) {
                continue;
            }
            let seen = &mut self.seen;
            let (reads, absences, ranges) = (seen.reads.len(), seen.absences.len(), seen.ranges.len());
            let (presences, installs) = (seen.presences.len(), seen.installs.len());
            seen.interpret(self.history, attempt, &mut own);
            if attempt.outcome == Outcome::RolledBack {
                seen.installs.truncate(installs);
            }
            self.attempts.push(position as u32);
            self.parts.push(Part {
                reads: reads..seen.reads.len(),
                absences: absences..seen.absences.len(),
                ranges: ranges..seen.ranges.len(),
                presences: presences..seen.presences.len(),
                installs: installs..seen.installs.len(),
            });
        }
        self.findings.extend(self.seen.findings.drain(..).map(|finding| Explanation {
            anomaly: finding.anomaly,
            real_time: false,
            attempts: vec![finding.attempt],
            story: vec![format!("{}, at {}: {}", Name(finding.attempt), finding.item, finding.what)],
        }));
    }

    fn item_number(&mut self, item: Item) -> u32 {
        let next = self.items.len() as u32;
        let number = *self.item_numbers.entry(item).or_insert(next);
        if number == next {
            self.items.push(ItemFacts { item, blind: false, opaque: false, open: NONE });
        }
        number
    }

    fn install(&mut self) {
        for transaction in 0..self.parts.len() {
            self.first_states.push(self.states.len() as u32);
            for position in self.parts[transaction].installs.clone() {
                let Install { item, replaced, state: row } = self.seen.installs[position];
                let item = self.item_number(item);
                if replaced == Replaced::Unknown {
                    self.items[item as usize].blind = true;
                    self.items[item as usize].opaque |= row.is_none();
                }
                let number = self.states.len() as u32;
                if let Some((version, _)) = row {
                    self.versions.insert(version, number);
                }
                let writer = transaction as u32;
                self.states.push(State { item, writer, row, replaced, previous: NONE, next: NONE, birth: number });
            }
        }
        self.first_states.push(self.states.len() as u32);
    }

    /// Links each state with the one it replaced, and finds the lives: from an insertion to a deletion.
    fn link(&mut self) {
        for number in 0..self.states.len() as u32 {
            let State { replaced, item, .. } = *self.state(number);
            let previous = match replaced {
                Replaced::Version(version) | Replaced::Follows(Some(version)) | Replaced::Behind(Some(version)) => {
                    self.versions.get(&version).copied()
                }
                Replaced::Absent | Replaced::Unknown | Replaced::Follows(None) | Replaced::Behind(None) => None,
            };
            let previous = previous.filter(|&it| it != number && self.state(it).item == item).unwrap_or(NONE);
            self.states[number as usize].previous = previous;
            match (replaced, previous) {
                (Replaced::Behind(_), NONE) => self.behind_nothing.entry(item).or_default().push(number),
                (Replaced::Behind(_), _) => self.behind_state.entry(previous).or_default().push(number),
                (_, NONE) => {}
                _ if self.state(previous).next == NONE => self.states[previous as usize].next = number,
                // Another one replaced the same state: an update is lost, which the edges will show.
                _ => {}
            }
        }
        for number in 0..self.states.len() as u32 {
            let State { previous, item, replaced, .. } = *self.state(number);
            if previous != NONE || matches!(replaced, Replaced::Behind(_)) {
                continue;
            }
            let (mut last, mut length) = (number, 0);
            // Where updates were lost a chain may run in a cycle; no client asks for lives then.
            while self.state(last).next != NONE && length <= self.states.len() {
                last = self.state(last).next;
                self.states[last as usize].birth = number;
                length += 1;
            }
            if self.state(last).row.is_some() {
                self.items[item as usize].open = number;
            }
        }
    }

    /// Finds the state that each read saw, and tells of those that saw none.
    fn resolve(&mut self) {
        let outcomes: HashMap<u64, Outcome> =
            self.history.attempts.iter().map(|attempt| (attempt.id, attempt.outcome)).collect();
        for transaction in 0..self.parts.len() {
            for position in self.parts[transaction].reads.clone() {
                let read = self.seen.reads[position];
                let state = self.state_of(read.version, read.item);
                if state.is_none() && self.findings.len() < MOST_FINDINGS {
                    let story = self.unknown(transaction as u32, &read, &outcomes);
                    self.findings.push(story);
                }
                self.read_states.push(state.unwrap_or(NONE));
                if let Some(story) = state.and_then(|state| self.misplaced(transaction as u32, &read, state)) {
                    self.findings.push(story);
                }
            }
        }
        let absences = self.seen.absences.iter();
        self.absent_items = absences.map(|it| self.item_numbers.get(&it.item).copied().unwrap_or(NONE)).collect();
    }

    /// A read of something that no committed transaction left.
    fn unknown(&self, transaction: u32, read: &Read, outcomes: &HashMap<u64, Outcome>) -> Explanation {
        let (reader, writer) = (self.attempt(transaction).id, read.version.attempt());
        let (one, other) = (Name(reader), Name(writer));
        let (item, version) = (read.item, read.version);
        let (anomaly, why) = match outcomes.get(&writer) {
            None => (Anomaly::Garbage, "which nobody wrote".to_owned()),
            Some(Outcome::Committed) if self.wrote(writer, item) => {
                (Anomaly::G1b, format!("which {other} replaced before it committed"))
            }
            Some(Outcome::Committed) => (Anomaly::G1a, format!("which {other} had undone before it committed")),
            Some(_) => (Anomaly::G1a, format!("but {other} did not commit")),
        };
        let story = vec![format!("{one} read {item} in version {version}, {why}")];
        Explanation { anomaly, real_time: false, attempts: vec![reader, writer], story }
    }

    /// Whether a committed attempt left something at an item.
    fn wrote(&self, attempt: u64, item: Item) -> bool {
        let Some(number) = self.item_numbers.get(&item) else { return false };
        let mut states = self.states.iter().filter(|state| state.item == *number);
        states.any(|state| self.attempt(state.writer).id == attempt)
    }

    /// A row that came out of a range where it does not belong.
    fn misplaced(&self, transaction: u32, read: &Read, state: u32) -> Option<Explanation> {
        let Operation::Range(range) = &self.history.operations[read.operation] else { return None };
        let (version, attributes) = self.state(state).row?;
        if range.covers(read.item.key, &attributes) {
            return None;
        }
        let reader = self.attempt(transaction).id;
        let one = Name(reader);
        let story = format!("{one} got {} in version {version} from a range that does not cover it", read.item);
        Some(Explanation { anomaly: Anomaly::Garbage, real_time: false, attempts: vec![reader], story: vec![story] })
    }
}
