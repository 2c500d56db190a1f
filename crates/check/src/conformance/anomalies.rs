//! The named anomalies over single rows and predicates, each as an interleaving of two or three transactions, after Adya
//! (*Weak Consistency*, MIT 1999) and the cases by which Kleppmann's Hermitage tells isolation levels apart.
//!
//! A case says what its transactions do, step by step, and whose turn it is. A protocol may refuse any of them; what it may
//! not do is commit what no serial order explains. To find that out, the transactions that committed are run again on a
//! map, one after the other in every order: in one of them each must see what it saw, and the rows must end as they did.

use std::collections::BTreeMap;
use std::ops::Range;

use polychron_engine::{
    Insertion, Interactive, Isolation, Mode, Operations, Protocol, Stop, Table, Transaction, Worker,
};

use super::verdict::{Verdict, judge, orders};
use crate::Setup;
use crate::party::Party;
use crate::rows::{Cell, Item, set, value};
use crate::setup::{begin, create, done, items, snapshot};

/// Numbers under numbers, in a table or in a map.
trait Rows {
    fn get(&mut self, id: u64) -> Result<Option<i64>, Stop>;
    fn put(&mut self, id: u64, value: i64) -> Result<(), Stop>;
    /// Whether the key was absent.
    fn insert(&mut self, id: u64, value: i64) -> Result<bool, Stop>;
    /// Whether there was a row to change.
    fn add(&mut self, id: u64, value: i64) -> Result<bool, Stop>;
    /// Whether there was a row.
    fn delete(&mut self, id: u64) -> Result<bool, Stop>;
    fn range(&mut self, ids: Range<u64>) -> Result<Vec<(u64, i64)>, Stop>;

    /// The ids of the rows whose value is a multiple of `of`.
    fn multiples(&mut self, of: i64) -> Result<Vec<i64>, Stop> {
        let rows = self.range(0..u64::MAX)?;
        Ok(rows.into_iter().filter(|(_, value)| value % of == 0).map(|(id, _)| id as i64).collect())
    }

    /// Deletes the rows with this value, and answers their ids.
    fn delete_where(&mut self, wanted: i64) -> Result<Vec<i64>, Stop> {
        let mut ids = Vec::new();
        for (id, _) in self.range(0..u64::MAX)?.into_iter().filter(|(_, value)| *value == wanted) {
            self.delete(id)?;
            ids.push(id as i64);
        }
        Ok(ids)
    }
}

impl<T: Transaction> Rows for (&mut T, Table<Item>) {
    fn get(&mut self, id: u64) -> Result<Option<i64>, Stop> {
        value(self.0, &self.1, id)
    }

    fn put(&mut self, id: u64, value: i64) -> Result<(), Stop> {
        self.0.upsert(&self.1, &Item { id, value })
    }

    fn insert(&mut self, id: u64, value: i64) -> Result<bool, Stop> {
        Ok(self.0.try_insert(&self.1, &Item { id, value })? == Insertion::Inserted)
    }

    fn add(&mut self, id: u64, value: i64) -> Result<bool, Stop> {
        self.0.update(&self.1, id, |row| row.set_value(row.value() + value))
    }

    fn delete(&mut self, id: u64) -> Result<bool, Stop> {
        self.0.delete(&self.1, id)
    }

    fn range(&mut self, ids: Range<u64>) -> Result<Vec<(u64, i64)>, Stop> {
        self.0.scan(&self.1, ids).map(|row| (row.id(), row.value())).collect()
    }
}

impl Rows for BTreeMap<u64, i64> {
    fn get(&mut self, id: u64) -> Result<Option<i64>, Stop> {
        Ok(BTreeMap::get(self, &id).copied())
    }

    fn put(&mut self, id: u64, value: i64) -> Result<(), Stop> {
        BTreeMap::insert(self, id, value);
        Ok(())
    }

    fn insert(&mut self, id: u64, value: i64) -> Result<bool, Stop> {
        let absent = !self.contains_key(&id);
        self.entry(id).or_insert(value);
        Ok(absent)
    }

    fn add(&mut self, id: u64, value: i64) -> Result<bool, Stop> {
        Ok(self.get_mut(&id).map(|row| *row += value).is_some())
    }

    fn delete(&mut self, id: u64) -> Result<bool, Stop> {
        Ok(self.remove(&id).is_some())
    }

    fn range(&mut self, ids: Range<u64>) -> Result<Vec<(u64, i64)>, Stop> {
        Ok(BTreeMap::range(self, ids).map(|(id, value)| (*id, *value)).collect())
    }
}

/// What a transaction saw, in order; later steps may depend on it.
type Seen = Vec<Vec<i64>>;

/// A step of a transaction. What it answers is what it saw.
type Step = fn(&Seen, &mut dyn Rows) -> Result<Vec<i64>, Stop>;

/// An interleaving.
struct Case {
    rows: &'static [(u64, i64)],
    /// The steps of each transaction. The turn after its last one ends it.
    transactions: &'static [&'static [Step]],
    /// Transactions that roll back in the end.
    roll_backs: &'static [usize],
    turns: &'static [usize],
}

impl Case {
    fn play<P: Protocol<Worker: Interactive>>(&self, setup: &Setup<P>) -> Verdict {
        judge(|| {
            let (database, table) = items(setup, self.rows);
            let mut watcher = database.worker().expect("a slot is free");
            let mut workers: Vec<_> = self.transactions.iter().map(|_| database.worker().unwrap()).collect();
            let mut parties: Vec<_> = workers.iter_mut().map(|worker| Some(begin(worker))).collect();
            let mut seen: Vec<Seen> = vec![Vec::new(); parties.len()];
            let mut taken = vec![0; parties.len()];
            let mut committed = Vec::new();
            for &turn in self.turns {
                let Some(step) = self.transactions[turn].get(taken[turn]) else {
                    let party = parties[turn].take().expect("a transaction ends once");
                    if self.roll_backs.contains(&turn) {
                        party.roll_back();
                    } else if party.commit() {
                        committed.push(turn);
                    }
                    continue;
                };
                taken[turn] += 1;
                let party = parties[turn].as_mut().expect("a transaction has its turns before its end");
                if let Some(answer) = party.step(|t| step(&seen[turn], &mut (t, table))) {
                    seen[turn].push(answer);
                }
            }
            assert!(parties.iter().all(Option::is_none), "every transaction comes to its end");
            let end = done(&mut watcher, |t| (t, table).range(0..u64::MAX));
            !orders(&committed).iter().any(|order| self.explains(order, &seen, &end))
        })
    }

    /// Whether these transactions, one after the other, see what they saw and end with these rows.
    fn explains(&self, order: &[usize], seen: &[Seen], end: &[(u64, i64)]) -> bool {
        let mut rows: BTreeMap<u64, i64> = self.rows.iter().copied().collect();
        let same = order.iter().all(|&transaction| {
            let mut again = Seen::new();
            for step in self.transactions[transaction] {
                let answer = step(&again, &mut rows).expect("a map refuses nothing");
                again.push(answer);
            }
            again == seen[transaction]
        });
        same && rows.into_iter().eq(end.iter().copied())
    }
}

/// The cases that snapshot isolation allows: two anti-dependencies follow each other in their circles. What is promised no more
/// than that must show them, or it is not the comparison that it is meant to be.
pub const SKEWS: &[&str] = &[
    "g1c_circular_information_flow",
    "g2_item",
    "g2_predicate",
    "write_skew_of_a_sum",
    "write_skew_of_a_count",
    "write_skew_by_insertion",
    "write_skew_of_absent_keys",
    "write_skew_by_update",
    "write_skew_of_three",
    "read_only_anomaly",
    "read_only_anomaly_with_a_snapshot",
];

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
        $(roll_backs: $roll_backs:tt,)?
        turns: $turns:tt $(,)?
    }) => {{
        // The default comes first, and is hidden where the case has its own.
        const ROLL_BACKS: &[usize] = &[];
        $(const OWN: &[usize] = &$roll_backs;)?
        let case = Case {
            rows: &$rows,
            transactions: &[$(&[$($step as Step),*]),*],
            roll_backs: cases!(@roll_backs ROLL_BACKS $($roll_backs OWN)?),
            turns: &$turns,
        };
        case.play($setup)
    }};
    (@play $setup:ident { scenario: $scenario:expr $(,)? }) => { judge(|| $scenario($setup)) };
    (@roll_backs $default:ident) => { $default };
    (@roll_backs $default:ident $roll_backs:tt $own:ident) => { { let _ = $default; $own } };
}

/// What a read saw.
fn one(value: Option<i64>) -> Vec<i64> {
    value.into_iter().collect()
}

/// What a write saw: nothing.
fn wrote(_: ()) -> Vec<i64> {
    Vec::new()
}

fn flag(found: bool) -> Vec<i64> {
    vec![i64::from(found)]
}

fn values(rows: Vec<(u64, i64)>) -> Vec<i64> {
    rows.into_iter().flat_map(|(id, value)| [id as i64, value]).collect()
}

/// The only number that an earlier step saw, or 0.
fn number(seen: &Seen, step: usize) -> i64 {
    seen[step].first().copied().unwrap_or(0)
}

cases! {
    /// G0: two transactions write the same two rows in turn.
    g0_dirty_write {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.put(1, 11).map(wrote), |_, rows| rows.put(2, 21).map(wrote)],
        steps: [|_, rows| rows.put(1, 12).map(wrote), |_, rows| rows.put(2, 22).map(wrote)],
        turns: [0, 1, 1, 0, 0, 1],
    }

    /// G1a: what a rolled-back transaction wrote is never read.
    g1a_aborted_read {
        rows: [(1, 10)],
        steps: [|_, rows| rows.put(1, 101).map(wrote), |_, rows| rows.insert(2, 102).map(flag)],
        steps: [|_, rows| rows.range(0..9).map(values), |_, rows| rows.range(0..9).map(values)],
        roll_backs: [0],
        turns: [0, 0, 1, 0, 1, 1],
    }

    /// G1b: what a transaction wrote and then overwrote is never read.
    g1b_intermediate_read {
        rows: [(1, 10)],
        steps: [|_, rows| rows.put(1, 101).map(wrote), |_, rows| rows.put(1, 11).map(wrote)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(1).map(one)],
        turns: [0, 1, 0, 0, 1, 1],
    }

    /// G1c: each of two transactions reads what the other writes.
    g1c_circular_information_flow {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.put(1, 11).map(wrote), |_, rows| rows.get(2).map(one)],
        steps: [|_, rows| rows.put(2, 22).map(wrote), |_, rows| rows.get(1).map(one)],
        turns: [0, 1, 0, 1, 0, 1],
    }

    /// OTV: a transaction that a third one has seen vanishes for it again.
    otv_observed_transaction_vanishes {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.put(1, 11).map(wrote), |_, rows| rows.put(2, 19).map(wrote)],
        steps: [|_, rows| rows.put(1, 12).map(wrote), |_, rows| rows.put(2, 18).map(wrote)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(2).map(one), |_, rows| rows.get(2).map(one),
            |_, rows| rows.get(1).map(one)],
        turns: [0, 0, 1, 0, 2, 2, 1, 2, 1, 2, 2],
    }

    /// PMP: a predicate is read again after a row that meets it was inserted.
    pmp_predicate_many_preceders {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.multiples(30), |_, rows| rows.multiples(3)],
        steps: [|_, rows| rows.insert(3, 30).map(flag)],
        turns: [0, 1, 1, 0, 0],
    }

    /// PMP where the predicate says what to delete.
    pmp_predicate_many_preceders_by_a_write {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.add(1, 10).map(flag), |_, rows| rows.add(2, 10).map(flag)],
        steps: [|_, rows| rows.delete_where(20)],
        turns: [0, 1, 0, 0, 1],
    }

    /// P4: two transactions read a counter, and write what they read and one more.
    p4_lost_update {
        rows: [(1, 10)],
        steps: [|_, rows| rows.get(1).map(one), |seen, rows| rows.put(1, number(seen, 0) + 1).map(wrote)],
        steps: [|_, rows| rows.get(1).map(one), |seen, rows| rows.put(1, number(seen, 0) + 1).map(wrote)],
        turns: [0, 1, 0, 1, 0, 1],
    }

    /// P4 where each counts in one operation.
    p4_lost_update_in_place {
        rows: [(1, 10)],
        steps: [|_, rows| rows.add(1, 1).map(flag), |_, rows| rows.get(1).map(one)],
        steps: [|_, rows| rows.add(1, 1).map(flag), |_, rows| rows.get(1).map(one)],
        turns: [0, 1, 1, 1, 0, 0],
    }

    /// G-single: one row is read before and another after a transaction that changes both.
    g_single_read_skew {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(2).map(one)],
        steps: [|_, rows| rows.put(1, 12).map(wrote), |_, rows| rows.put(2, 18).map(wrote)],
        turns: [0, 1, 1, 1, 0, 0],
    }

    /// G-single by predicates: what is counted before and after does not fit.
    g_single_dependencies {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.multiples(5), |_, rows| rows.multiples(3)],
        steps: [|_, rows| rows.put(1, 12).map(wrote)],
        turns: [0, 1, 1, 0, 0],
    }

    /// G-single where what was read decides what a predicate deletes.
    g_single_write_1 {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.delete_where(20)],
        steps: [|_, rows| rows.range(0..9).map(values), |_, rows| rows.put(1, 12).map(wrote),
            |_, rows| rows.put(2, 18).map(wrote)],
        turns: [0, 1, 1, 1, 1, 0, 0],
    }

    /// The same where the deletion comes before the other's end.
    g_single_write_2 {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.delete_where(20)],
        steps: [|_, rows| rows.range(0..9).map(values), |_, rows| rows.put(1, 12).map(wrote),
            |_, rows| rows.put(2, 18).map(wrote)],
        turns: [0, 1, 1, 0, 1, 0, 1],
    }

    /// G-single with a third row that is written on the strength of what was seen.
    g_single_before_a_write {
        rows: [(1, 10), (2, 20), (3, 0)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(2).map(one),
            |seen, rows| rows.put(3, number(seen, 0) + number(seen, 1)).map(wrote)],
        steps: [|_, rows| rows.put(1, 12).map(wrote), |_, rows| rows.put(2, 18).map(wrote)],
        turns: [0, 1, 1, 1, 0, 0, 0],
    }

    /// G-single over a deleted row.
    g_single_of_a_deletion {
        rows: [(1, 10), (2, 0)],
        steps: [|_, rows| rows.get(2).map(one), |_, rows| rows.get(1).map(one), |_, rows| rows.put(3, 1).map(wrote)],
        steps: [|_, rows| rows.delete(1).map(flag), |_, rows| rows.put(2, 1).map(wrote)],
        turns: [0, 1, 1, 1, 0, 0, 0],
    }

    /// G2-item: each of two transactions reads both rows and changes one.
    g2_item {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(2).map(one), |_, rows| rows.put(1, 11).map(wrote)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(2).map(one), |_, rows| rows.put(2, 21).map(wrote)],
        turns: [0, 0, 1, 1, 0, 1, 0, 1],
    }

    /// G2: each of two transactions finds no row that meets a predicate and inserts one.
    g2_predicate {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.multiples(3), |_, rows| rows.insert(3, 30).map(flag)],
        steps: [|_, rows| rows.multiples(3), |_, rows| rows.insert(4, 42).map(flag)],
        turns: [0, 1, 0, 1, 0, 1],
    }

    /// G2 with two anti-dependencies and a reader that sees the first two (Fekete and others).
    g2_two_edges {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.range(0..9).map(values), |_, rows| rows.put(1, 0).map(wrote)],
        steps: [|_, rows| rows.add(2, 5).map(flag)],
        steps: [|_, rows| rows.range(0..9).map(values)],
        turns: [0, 1, 1, 2, 2, 0, 0],
    }

    /// Write skew under the rule that the sum is not negative.
    write_skew_of_a_sum {
        rows: [(1, 50), (2, 50)],
        steps: [|_, rows| rows.range(0..9).map(values),
            |seen, rows| if seen[0][1] + seen[0][3] >= 100 { rows.add(1, -100).map(flag) } else { Ok(Vec::new()) }],
        steps: [|_, rows| rows.range(0..9).map(values),
            |seen, rows| if seen[0][1] + seen[0][3] >= 100 { rows.add(2, -100).map(flag) } else { Ok(Vec::new()) }],
        turns: [0, 1, 0, 1, 0, 1],
    }

    /// Write skew under the rule that somebody stays on call: each leaves because there are two.
    write_skew_of_a_count {
        rows: [(1, 1), (2, 1)],
        steps: [|_, rows| Ok(vec![rows.range(0..9)?.len() as i64]),
            |seen, rows| if number(seen, 0) > 1 { rows.delete(1).map(flag) } else { Ok(Vec::new()) }],
        steps: [|_, rows| Ok(vec![rows.range(0..9)?.len() as i64]),
            |seen, rows| if number(seen, 0) > 1 { rows.delete(2).map(flag) } else { Ok(Vec::new()) }],
        turns: [0, 1, 0, 1, 1, 0],
    }

    /// Write skew under the rule that there is one row at most.
    write_skew_by_insertion {
        rows: [],
        steps: [|_, rows| Ok(vec![rows.range(0..9)?.len() as i64]),
            |seen, rows| if number(seen, 0) == 0 { rows.insert(1, 1).map(flag) } else { Ok(Vec::new()) }],
        steps: [|_, rows| Ok(vec![rows.range(0..9)?.len() as i64]),
            |seen, rows| if number(seen, 0) == 0 { rows.insert(2, 1).map(flag) } else { Ok(Vec::new()) }],
        turns: [0, 1, 0, 1, 0, 1],
    }

    /// Write skew over two absent keys: each inserts the one that the other looked for.
    write_skew_of_absent_keys {
        rows: [],
        steps: [|_, rows| rows.get(2).map(one), |_, rows| rows.insert(1, 1).map(flag)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.insert(2, 1).map(flag)],
        turns: [0, 1, 0, 1, 1, 0],
    }

    /// Write skew where rows change places.
    write_skew_by_update {
        rows: [(1, 1), (2, 2)],
        steps: [|_, rows| rows.get(2).map(one), |seen, rows| rows.put(1, number(seen, 0)).map(wrote)],
        steps: [|_, rows| rows.get(1).map(one), |seen, rows| rows.put(2, number(seen, 0)).map(wrote)],
        turns: [0, 1, 0, 1, 1, 0],
    }

    /// Three transactions in a ring, each of which reads what the next one writes.
    write_skew_of_three {
        rows: [(1, 0), (2, 0), (3, 0)],
        steps: [|_, rows| rows.get(2).map(one), |_, rows| rows.put(1, 1).map(wrote)],
        steps: [|_, rows| rows.get(3).map(one), |_, rows| rows.put(2, 1).map(wrote)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.put(3, 1).map(wrote)],
        turns: [0, 1, 2, 0, 1, 2, 0, 1, 2],
    }

    /// Both insert the same key.
    insert_insert {
        rows: [],
        steps: [|_, rows| rows.insert(1, 1).map(flag)],
        steps: [|_, rows| rows.insert(1, 2).map(flag)],
        turns: [0, 1, 0, 1],
    }

    /// Both insert the same key, and the later one commits first.
    insert_insert_the_other_way_round {
        rows: [],
        steps: [|_, rows| rows.insert(1, 1).map(flag)],
        steps: [|_, rows| rows.insert(1, 2).map(flag)],
        turns: [0, 1, 1, 0],
    }

    /// Both insert the same key of a hash table.
    insert_insert_in_a_hash_table {
        scenario: inserted_twice,
    }

    /// One deletes a row that the other updates.
    delete_and_update {
        rows: [(1, 10)],
        steps: [|_, rows| rows.delete(1).map(flag)],
        steps: [|_, rows| rows.add(1, 1).map(flag)],
        turns: [0, 1, 0, 1],
    }

    /// The same, and the update commits first.
    update_and_delete {
        rows: [(1, 10)],
        steps: [|_, rows| rows.delete(1).map(flag)],
        steps: [|_, rows| rows.add(1, 1).map(flag)],
        turns: [0, 1, 1, 0],
    }

    /// One deletes two rows that the other overwrites blindly.
    delete_and_upsert {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.delete(1).map(flag), |_, rows| rows.delete(2).map(flag)],
        steps: [|_, rows| rows.put(1, 11).map(wrote), |_, rows| rows.put(2, 21).map(wrote)],
        turns: [0, 1, 1, 0, 1, 0],
    }

    /// Both delete the same row, and each counts it in a row of its own.
    delete_and_delete {
        rows: [(1, 10), (8, 0), (9, 0)],
        steps: [|_, rows| rows.delete(1).map(flag), |seen, rows| rows.add(8, number(seen, 0)).map(flag)],
        steps: [|_, rows| rows.delete(1).map(flag), |seen, rows| rows.add(9, number(seen, 0)).map(flag)],
        turns: [0, 1, 0, 1, 0, 1],
    }

    /// The read-only anomaly: a reader makes an otherwise serial history of two others impossible.
    read_only_anomaly {
        scenario: |setup| read_only(setup, Mode::ReadWrite),
    }

    /// The same with the reader on a snapshot, before and after time has passed.
    read_only_anomaly_with_a_snapshot {
        scenario: |setup| read_only(setup, Mode::Snapshot),
    }
}

fn inserted_twice<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> bool {
    let database = setup.open();
    let table = create::<P, Cell>(&database);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let a = one.step(|t| t.try_insert(&table, &Cell { id: 1, value: 1 }));
    let b = two.step(|t| t.try_insert(&table, &Cell { id: 1, value: 2 }));
    let both = two.commit() & one.commit();
    both && a == Some(Insertion::Inserted) && b == Some(Insertion::Inserted)
}

fn read_only<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, mode: Mode) -> bool {
    (0..4).any(|ticks| {
        let (checking, savings) = (1, 2);
        let (database, table) = items(setup, &[(checking, 0), (savings, 0)]);
        setup.pass(&database, 3);
        let mut workers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
        let [deposit, withdrawal, reader] = &mut workers[..] else { unreachable!("three workers were made") };
        let mut withdrawal = begin(withdrawal);
        let seen = withdrawal.step(|t| Ok((value(t, &table, checking)?, value(t, &table, savings)?)));
        let mut deposit = begin(deposit);
        deposit.step(|t| t.update(&table, savings, |row| row.set_value(row.value() + 20)));
        let deposited = deposit.commit();
        setup.pass(&database, ticks);
        let mut reader = Party::begin(reader, mode);
        let read = reader.step(|t| Ok((value(t, &table, checking)?, value(t, &table, savings)?)));
        let read = if reader.commit() { read } else { None };
        withdrawal.step(|t| set(t, &table, checking, -11));
        let withdrew = withdrawal.commit();
        let mut worker = database.worker().unwrap();
        setup.pass(&database, 3);
        worker.tidy_up();
        let end = snapshot(&mut worker, |t| value(t, &table, savings));
        assert_eq!(end, Some(if deposited { 20 } else { 0 }), "a later snapshot shows the end");
        let before_the_deposit = seen == Some((Some(0), Some(0)));
        let after_the_deposit = read == Some((Some(0), Some(20)));
        deposited && withdrew && before_the_deposit && after_the_deposit
    })
}
