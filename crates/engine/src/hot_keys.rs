//! The keys at which transactions conflict most often: a few counters for each worker, however many keys there are (Misra and Gries, Finding
//! repeated elements, 1982).

use polychron_base::error::{KeyPreview, key_name};
use polychron_base::{Abort, IndexId, TableId};
use polychron_sync::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::PoisonError;

/// Keys that a worker counts. A key with more than one in so many of its conflicts is always among them.
const KEYS: usize = 32;

/// A key at which transactions conflicted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotKey {
    /// The key's table.
    pub table: TableId,
    /// The index in which the key stands.
    pub index: IndexId,
    /// The encoded key; `None` counts conflicts whose checks knew no key.
    pub key: Option<KeyPreview>,
    /// A lower bound of the number of conflicts there.
    pub conflicts: u64,
}

impl HotKey {
    /// One conflict at its key.
    fn of(abort: &Abort) -> Self {
        Self { table: abort.table, index: abort.index, key: abort.key, conflicts: 1 }
    }

    fn place(&self) -> (TableId, IndexId, Option<KeyPreview>) {
        (self.table, self.index, self.key)
    }
}

impl fmt::Display for HotKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {}", self.conflicts, key_name(self.table, self.index, self.key.as_ref()))
    }
}

/// The counters of one worker. Its owner counts; others read seldom. Only a conflict takes the lock.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    counts: Mutex<Vec<HotKey>>,
}

impl HotKeys {
    /// Counts a conflict. Where all counters are taken by other keys, each of them loses one: so a key's count is too small by at most a
    /// 33rd of all conflicts.
    pub(crate) fn count(&self, abort: &Abort) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = HotKey::of(abort);
        if let Some(known) = counts.iter_mut().find(|known| known.place() == new.place()) {
            known.conflicts += 1;
        } else if counts.len() < KEYS {
            counts.push(new);
        } else {
            counts.retain_mut(|known| {
                known.conflicts -= 1;
                known.conflicts > 0
            });
        }
    }

    pub(crate) fn add_to(&self, sum: &mut Vec<HotKey>) {
        merge(sum, &self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Adds counts to others, and keeps the largest, largest first.
pub(crate) fn merge(sum: &mut Vec<HotKey>, more: &[HotKey]) {
    if more.is_empty() {
        return;
    }
    let mut numbers: HashMap<_, usize> = sum.iter().enumerate().map(|(number, key)| (key.place(), number)).collect();
    for key in more {
        let number = *numbers.entry(key.place()).or_insert(sum.len());
        match sum.get_mut(number) {
            Some(known) => known.conflicts += key.conflicts,
            None => sum.push(key.clone()),
        }
    }
    sum.sort_by_key(|key| std::cmp::Reverse(key.conflicts));
    sum.truncate(KEYS);
}

#[cfg(test)]
mod tests {
    use polychron_base::Reason;
    use polychron_base::random::Random;

    use super::*;

    fn conflict(key: u64) -> Abort {
        let key = KeyPreview::new(key.to_be_bytes().as_slice());
        Abort {
            reason: Reason::StaleRead,
            table: TableId::default(),
            index: IndexId::PRIMARY,
            key: Some(key),
            opponent: None,
        }
    }

    /// The share of a key that is met often is found among many keys that are met once, and is counted to a 33rd of all conflicts.
    #[test]
    fn keys_that_are_met_often_are_found() {
        let (hot, mut random) = (HotKeys::default(), Random::from_seed(7));
        let mut met = 0;
        for number in 0..10_000 {
            let is_hot = random.below(5) == 0;
            met += u64::from(is_hot);
            hot.count(&conflict(if is_hot { 1 } else { 1000 + number }));
        }
        let mut sum = Vec::new();
        hot.add_to(&mut sum);
        assert_eq!(sum[0].key, conflict(1).key);
        assert!(sum[0].conflicts <= met && sum[0].conflicts >= met - 10_000 / 33, "{} of {met}", sum[0].conflicts);
        assert!(sum.len() <= KEYS);
    }

    #[test]
    fn counts_of_workers_are_added() {
        let workers: [HotKeys; 2] = Default::default();
        workers[0].count(&conflict(1));
        (0..3).for_each(|_| workers[1].count(&conflict(2)));
        (0..2).for_each(|_| workers[1].count(&conflict(1)));
        workers[0].count(&conflict(1));
        let mut sum = Vec::new();
        workers.iter().for_each(|worker| worker.add_to(&mut sum));
        let found: Vec<_> = sum.iter().map(|hot| (hot.key, hot.conflicts)).collect();
        assert_eq!(found, [(conflict(1).key, 4), (conflict(2).key, 3)]);
    }
}
