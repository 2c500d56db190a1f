//! What must be found in a log, and what must not.

use std::collections::{BTreeMap, BTreeSet};

use polychron_base::random::Random;
use polychron_engine::redo;
use polychron_log::Logged;
use polychron_log::frame::Change;

/// A change in plain values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Put(u32, Vec<u64>),
    Patch(u32, Vec<u8>, usize, Vec<u64>),
    Delete(u32, Vec<u8>),
}

impl Told {
    /// A change of one of a few rows.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let table = random.below(2) as u32;
        let key = random.below(6);
        let mut words = |count| (0..count).map(|_| random.next_u64() >> random.below(64)).collect();
        match key % 3 {
            0 => Self::Delete(table, key.to_be_bytes().to_vec()),
            1 => Self::Patch(table, key.to_be_bytes().to_vec(), 1, words(2)),
            _ => Self::Put(table, [vec![key], words(1 + 9 * (key as usize % 4))].concat()),
        }
    }

    pub(crate) fn table(&self) -> u32 {
        match self {
            Self::Put(table, _) | Self::Patch(table, ..) | Self::Delete(table, _) => *table,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match self {
            // The log does not keep it.
            Self::Put(..) => b"",
            Self::Patch(_, key, ..) | Self::Delete(_, key) => key,
        }
    }

    pub(crate) fn change(&self) -> redo::Change<'_> {
        match self {
            Self::Put(_, words) => redo::Change::Put(words),
            Self::Patch(_, _, word, words) => redo::Change::Patch { word: *word, words },
            Self::Delete(..) => redo::Change::Delete,
        }
    }

    fn read(change: Change<'_>) -> Self {
        match change {
            Change::Put { table, row } => Self::Put(table, row.collect()),
            Change::Delete { table, key } => Self::Delete(table, key.to_vec()),
            Change::Patch { table, key, mut ranges } => {
                let (word, words) = ranges.next().expect("a patch has a range");
                assert!(ranges.next().is_none(), "none was staged with two");
                Self::Patch(table, key.to_vec(), word, words.collect())
            }
        }
    }
}

/// Of which opening, and the order in it.
pub(crate) type Id = (u64, u64);

/// A transaction that was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) worker: usize,
    pub(crate) epoch: u64,
    pub(crate) changes: Vec<Told>,
}

/// What a log was found to have.
#[derive(Debug, Default)]
pub(crate) struct Found {
    records: BTreeMap<Id, (usize, Vec<Told>)>,
    /// How many records were pieces behind the first one of their transactions.
    pub(crate) later: usize,
    pub(crate) is_repeated: bool,
}

impl Found {
    pub(crate) fn visit(&mut self, logged: Logged<'_>) {
        let record = logged.record;
        let changes: Vec<_> = record.changes().map(|change| Told::read(change.expect("it was checked"))).collect();
        let id = (logged.incarnation, record.order.timestamp);
        let first = record.piece.first as usize;
        match self.records.get_mut(&id) {
            Some((_, before)) if first > 0 && first == before.len() => {
                self.later += 1;
                before.extend(changes);
            }
            None if first == 0 => _ = self.records.insert(id, (record.worker as usize, changes)),
            _ => self.is_repeated = true,
        }
    }

    pub(crate) fn ids(&self) -> BTreeSet<Id> {
        self.records.keys().copied().collect()
    }
}

/// All that was sealed, and what is certain of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) sealed: BTreeMap<Id, Sealed>,
    /// It was acknowledged, or an opening has found it.
    pub(crate) certain: BTreeSet<Id>,
    /// An opening has not found it.
    pub(crate) lost: BTreeSet<Id>,
    /// The log need no longer have it.
    pub(crate) released: BTreeSet<Id>,
}

impl Ledger {
    /// What is wrong with what was found, in words.
    pub(crate) fn complaint(&self, found: &Found) -> Option<String> {
        if found.is_repeated {
            return Some("a transaction or a piece of one is there twice, or lacks what is before it".to_owned());
        }
        for (id, (worker, changes)) in &found.records {
            match self.sealed.get(id) {
                None => return Some(format!("{id:?} was never sealed")),
                Some(sealed) if (sealed.worker, &sealed.changes) != (*worker, changes) => {
                    return Some(format!("{id:?} has become {changes:?} from {sealed:?}"));
                }
                Some(_) => {}
            }
        }
        let found = found.ids();
        if let Some(id) = self.certain.difference(&found).find(|id| !self.released.contains(id)) {
            return Some(format!("{id:?} was acknowledged or found before, and is not there: {:?}", self.sealed[id]));
        }
        if let Some(id) = self.lost.intersection(&found).next() {
            return Some(format!("{id:?} was not there, and is: {:?}", self.sealed[id]));
        }
        // Whole epochs: up to the last one that something of is there.
        for (id, sealed) in &self.sealed {
            let last = found.iter().filter(|it| it.0 == id.0).map(|it| self.sealed[it].epoch).max();
            if last.is_some_and(|last| sealed.epoch <= last) && !found.contains(id) && !self.released.contains(id) {
                return Some(format!("{id:?} of {} is not there, and {last:?} is", sealed.epoch));
            }
        }
        None
    }

    /// An opening goes on with what it has found.
    pub(crate) fn decide(&mut self, found: &Found) {
        let found = found.ids();
        let is_lost = |id: &&Id| !found.contains(id) && !self.released.contains(id);
        self.lost.extend(self.sealed.keys().filter(is_lost));
        self.certain.extend(found);
    }
}
