//! Interleavings of two or three transactions that are driven step by step.
//!
//! A case says what its transactions do, step by step, and whose turn it is. A protocol may refuse any of them; what it may
//! not do is commit what no serial order explains, or tell one that rolls back of its own accord that it saw what no order explains, for
//! that may be why it does. To find that out, these transactions are run again on a map, one after the other in every order: in one of
//! them each must see what it saw, and the rows must end as they did.

use std::collections::BTreeMap;
use std::ops::Range;

use polychron_engine::{Error, Insertion, Interactive, Operations, Protocol, Table, Transaction};

use super::verdict::{Verdict, judge, orders};
use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::{begin, done, items};

/// Numbers under numbers, in a table or in a map.
pub(super) trait Rows {
    fn get(&mut self, id: u64) -> Result<Option<i64>, Error>;
    fn put(&mut self, id: u64, value: i64) -> Result<(), Error>;
    /// Whether the key was absent.
    fn insert(&mut self, id: u64, value: i64) -> Result<bool, Error>;
    /// Whether there was a row to change.
    fn add(&mut self, id: u64, value: i64) -> Result<bool, Error>;
    /// Whether there was a row.
    fn delete(&mut self, id: u64) -> Result<bool, Error>;
    fn range(&mut self, ids: Range<u64>) -> Result<Vec<(u64, i64)>, Error>;

    /// The ids of the rows whose value is a multiple of `of`.
    fn multiples(&mut self, of: i64) -> Result<Vec<i64>, Error> {
        let rows = self.range(0..u64::MAX)?;
        Ok(rows.into_iter().filter(|(_, value)| value % of == 0).map(|(id, _)| id as i64).collect())
    }

    /// Deletes the rows with this value, and answers their ids.
    fn delete_where(&mut self, wanted: i64) -> Result<Vec<i64>, Error> {
        let mut ids = Vec::new();
        for (id, _) in self.range(0..u64::MAX)?.into_iter().filter(|(_, value)| *value == wanted) {
            self.delete(id)?;
            ids.push(id as i64);
        }
        Ok(ids)
    }
}

impl<T: Transaction> Rows for (&mut T, Table<Item>) {
    fn get(&mut self, id: u64) -> Result<Option<i64>, Error> {
        value(self.0, &self.1, id)
    }

    fn put(&mut self, id: u64, value: i64) -> Result<(), Error> {
        self.0.upsert(&self.1, &Item { id, value })
    }

    fn insert(&mut self, id: u64, value: i64) -> Result<bool, Error> {
        Ok(self.0.try_insert(&self.1, &Item { id, value })? == Insertion::Inserted)
    }

    fn add(&mut self, id: u64, value: i64) -> Result<bool, Error> {
        self.0.update(&self.1, id, |row| row.set_value(row.value() + value))
    }

    fn delete(&mut self, id: u64) -> Result<bool, Error> {
        self.0.delete(&self.1, id)
    }

    fn range(&mut self, ids: Range<u64>) -> Result<Vec<(u64, i64)>, Error> {
        self.0.scan(&self.1, ids).map(|row| (row.id(), row.value())).collect()
    }
}

impl Rows for BTreeMap<u64, i64> {
    fn get(&mut self, id: u64) -> Result<Option<i64>, Error> {
        Ok(BTreeMap::get(self, &id).copied())
    }

    fn put(&mut self, id: u64, value: i64) -> Result<(), Error> {
        BTreeMap::insert(self, id, value);
        Ok(())
    }

    fn insert(&mut self, id: u64, value: i64) -> Result<bool, Error> {
        let absent = !self.contains_key(&id);
        self.entry(id).or_insert(value);
        Ok(absent)
    }

    fn add(&mut self, id: u64, value: i64) -> Result<bool, Error> {
        Ok(self.get_mut(&id).map(|row| *row += value).is_some())
    }

    fn delete(&mut self, id: u64) -> Result<bool, Error> {
        Ok(self.remove(&id).is_some())
    }

    fn range(&mut self, ids: Range<u64>) -> Result<Vec<(u64, i64)>, Error> {
        Ok(BTreeMap::range(self, ids).map(|(id, value)| (*id, *value)).collect())
    }
}

/// What a transaction saw, in order; later steps may depend on it.
pub(super) type Seen = Vec<Vec<i64>>;

/// A step of a transaction. What it answers is what it saw.
pub(super) type Step = fn(&Seen, &mut dyn Rows) -> Result<Vec<i64>, Error>;

/// An interleaving.
pub(super) struct Case {
    pub(super) rows: &'static [(u64, i64)],
    /// The steps of each transaction. The turn after its last one ends it.
    pub(super) transactions: &'static [&'static [Step]],
    /// Transactions that roll back in the end.
    pub(super) rollbacks: &'static [usize],
    pub(super) turns: &'static [usize],
}

impl Case {
    pub(super) fn play<P: Protocol<Worker: Interactive>>(&self, setup: &Setup<P>) -> Verdict {
        judge(|| {
            let (database, table) = items(setup, self.rows);
            let mut watcher = database.worker().expect("a slot is free");
            let mut workers: Vec<_> = self.transactions.iter().map(|_| database.worker().unwrap()).collect();
            let mut clients: Vec<_> = workers.iter_mut().map(|worker| Some(begin(worker))).collect();
            let mut seen: Vec<Seen> = vec![Vec::new(); clients.len()];
            let mut taken = vec![0; clients.len()];
            // Those that committed, and those that rolled back and were told that what they had seen was consistent.
            let mut ended = Vec::new();
            for &turn in self.turns {
                let Some(step) = self.transactions[turn].get(taken[turn]) else {
                    let client = clients[turn].take().expect("a transaction ends once");
                    if if self.rollbacks.contains(&turn) { client.roll_back() } else { client.commit() } {
                        ended.push(turn);
                    }
                    continue;
                };
                taken[turn] += 1;
                let client = clients[turn].as_mut().expect("a transaction has its turns before its end");
                if let Some(answer) = client.step(|t| step(&seen[turn], &mut (t, table))) {
                    seen[turn].push(answer);
                }
            }
            assert!(clients.iter().all(Option::is_none), "every transaction comes to its end");
            let end = done(&mut watcher, |t| (t, table).range(0..u64::MAX));
            !orders(&ended).iter().any(|order| self.explains(order, &seen, &end))
        })
    }

    /// Whether these transactions, one after the other, see what they saw and end with these rows.
    fn explains(&self, order: &[usize], seen: &[Seen], end: &[(u64, i64)]) -> bool {
        let mut rows: BTreeMap<u64, i64> = self.rows.iter().copied().collect();
        let same = order.iter().all(|&transaction| {
            let (before, mut again) = (rows.clone(), Seen::new());
            for step in self.transactions[transaction] {
                let answer = step(&again, &mut rows).expect("a map refuses nothing");
                again.push(answer);
            }
            if self.rollbacks.contains(&transaction) {
                rows = before;
            }
            again == seen[transaction]
        });
        same && rows.into_iter().eq(end.iter().copied())
    }
}

/// Makes `name`, which asserts that the case is not shown, and `verdict::name`, which tells.
macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident $case:tt)*) => {
        $(
            $(#[$doc])*
            pub fn $name<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
                let expected = setup.isolation == Isolation::Snapshot && SKEWS.contains(&stringify!($name));
                assert_eq!(verdict::$name(setup) == Verdict::Shown, expected);
            }
        )*

        /// What becomes of each case.
        pub mod verdict {
            use super::*;
            $(
                #[doc = concat!("What becomes of [`", stringify!($name), "`](super::", stringify!($name), ").")]
                pub fn $name<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> Verdict {
                    cases!(@play setup $case)
                }
            )*
        }
    };
    (@play $setup:ident {
        rows: $rows:tt,
        $(steps: [$($step:expr),* $(,)?],)*
        $(rollbacks: $rollbacks:tt,)?
        turns: $turns:tt $(,)?
    }) => {{
        // The default comes first, and is hidden where the case has its own.
        const ROLLBACKS: &[usize] = &[];
        $(const OWN: &[usize] = &$rollbacks;)?
        let case = Case {
            rows: &$rows,
            transactions: &[$(&[$($step as Step),*]),*],
            rollbacks: cases!(@rollbacks ROLLBACKS $($rollbacks OWN)?),
            turns: &$turns,
        };
        case.play($setup)
    }};
    (@play $setup:ident { scenario: $scenario:expr $(,)? }) => { judge(|| $scenario($setup)) };
    (@rollbacks $default:ident) => { $default };
    (@rollbacks $default:ident $rollbacks:tt $own:ident) => { { let _ = $default; $own } };
}

pub(super) use cases;

/// What a read saw.
pub(super) fn one(value: Option<i64>) -> Vec<i64> {
    value.into_iter().collect()
}

/// What a write saw: nothing.
pub(super) fn wrote(_: ()) -> Vec<i64> {
    Vec::new()
}

pub(super) fn flag(found: bool) -> Vec<i64> {
    vec![i64::from(found)]
}

pub(super) fn values(rows: Vec<(u64, i64)>) -> Vec<i64> {
    rows.into_iter().flat_map(|(id, value)| [id as i64, value]).collect()
}

/// The only number that an earlier step saw, or 0.
pub(super) fn number(seen: &Seen, step: usize) -> i64 {
    seen[step].first().copied().unwrap_or(0)
}
