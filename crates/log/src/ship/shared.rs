//! State that connections to standbys share with the rest of a database's log: the latest lists of tables, and the log files that are kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_sync::{Mutex, MutexGuard};

use super::message::Mark;
use crate::manifest::Manifest;
use crate::steps::ShipStep;

/// How many lists of tables are known, and how many bytes those before the last one may have together.
const MOST_LISTS: usize = 64;
const MOST_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct Shared {
    /// By ascending marks.
    lists: Mutex<VecDeque<(Mark, Vec<u8>)>>,
    /// The log file that each connection needs next.
    holds: Mutex<(u64, BTreeMap<u64, u64>)>,
}

impl Shared {
    /// A manifest of this generation is durable. What has to do with its tables waits for this.
    pub(crate) fn note(&self, manifest: &Manifest, generation: u64) {
        let mut lists = self.lists();
        let mark = Mark { incarnation: manifest.incarnation, generation };
        if lists.back().is_some_and(|(_, catalog)| *catalog == manifest.catalog) {
            return;
        }
        lists.push_back((mark, manifest.catalog.clone()));
        let bytes = |lists: &VecDeque<(Mark, Vec<u8>)>| lists.iter().map(|(_, list)| list.len()).sum::<usize>();
        while lists.len() > 1 && (lists.len() > MOST_LISTS || bytes(&lists) > MOST_BYTES) {
            lists.pop_front();
        }
    }

    /// The tables that a standby has to know before it gets a frame with this mark, if it knows only those of another one: those that counted then, or
    /// the first ones behind that are known.
    pub(crate) fn tables(&self, frame: Mark, known: Mark) -> Option<(Mark, Vec<u8>)> {
        if left_out(ShipStep::SendTables) {
            return None;
        }
        let lists = self.lists();
        let counted = lists.iter().rev().find(|(mark, _)| *mark <= frame).or(lists.front());
        counted.filter(|(mark, _)| *mark > known).cloned()
    }

    /// The mark of the last list.
    pub(crate) fn last(&self) -> Mark {
        self.lists().back().map(|(mark, _)| *mark).unwrap_or_default()
    }

    /// A connection begins, and needs the log from this file on. Answers its number.
    pub(crate) fn hold(&self, file: u64) -> u64 {
        let (next, holds) = &mut *self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        holds.insert(*next, file);
        *next
    }

    /// It needs the log from this file on; `None`: it has ended.
    pub(crate) fn hold_on(&self, connection: u64, file: Option<u64>) {
        let holds = &mut self.holds.lock().unwrap_or_else(PoisonError::into_inner).1;
        match file {
            Some(file) => holds.insert(connection, file),
            None => holds.remove(&connection),
        };
    }

    /// The first log file that any connection needs.
    pub(crate) fn first_held(&self) -> Option<u64> {
        if left_out(ShipStep::HoldFiles) {
            return None;
        }
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).1.values().min().copied()
    }

    fn lists(&self) -> MutexGuard<'_, VecDeque<(Mark, Vec<u8>)>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
