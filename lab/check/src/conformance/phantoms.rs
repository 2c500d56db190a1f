//! Phantoms: each of two transactions observes a range (or an absent key) into which the other one writes. Both cannot
//! commit, for each saw the other's place before it was written.
//!
//! The scenarios are public as functions that tell whether the anomaly was committed, so that a test can
//! show that they find one when a protocol leaves its check out.

use polychron_base::IndexId;
use polychron_engine::{Error, Insertion, Interactive, Isolation, Operations, Protocol, Row, Table, Worker};

use super::verdict::{Verdict, judge};
use crate::Setup;
use crate::rows::{Cell, Item, Person, person};
use crate::setup::{Tx, begin, create, done, items, persons};

/// Where one of the two transactions looks and the other one writes: the tens that begin here.
const SIDES: [u64; 2] = [10, 30];

/// Runs two transactions, each of which observes its own side and then writes on the other's; `true` when both commit
/// although neither saw the other.
fn crossing<P, R, O>(
    setup: &Setup<P>,
    database: &std::sync::Arc<P>,
    table: &Table<R>,
    observe: impl Fn(&mut Tx<'_, P>, &Table<R>, u64) -> Result<O, Error>,
    write: impl Fn(&mut Tx<'_, P>, &Table<R>, u64) -> Result<(), Error>,
) -> bool
where
    P: Protocol<Worker: Interactive>,
    R: Row,
    O: PartialEq + std::fmt::Debug,
{
    let mut watcher = database.worker().expect("a slot is free");
    let before = SIDES.map(|side| done(&mut watcher, |t| observe(t, table, side)));
    let (mut left, mut right) =
        (database.worker().expect("a slot is free"), database.worker().expect("a slot is free"));
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let by_one = one.step(|t| observe(t, table, SIDES[0]));
    let by_two = two.step(|t| observe(t, table, SIDES[1]));
    one.step(|t| write(t, table, SIDES[1]));
    two.step(|t| write(t, table, SIDES[0]));
    let both = one.commit() & two.commit();
    let neither_saw_the_other = by_one.as_ref() == Some(&before[0]) && by_two.as_ref() == Some(&before[1]);
    if both {
        for (side, before) in SIDES.into_iter().zip(&before) {
            let after = done(&mut watcher, |t| observe(t, table, side));
            assert_ne!(after, *before, "the scenario's writes do not touch what it observes");
        }
    }
    let _ = setup;
    both && neither_saw_the_other
}

fn insert_at<P: Protocol<Worker: Interactive>>(
    offset: u64,
) -> impl Fn(&mut Tx<'_, P>, &Table<Item>, u64) -> Result<(), Error> {
    move |t, table, side| t.insert(table, &Item { id: side + offset, value: 1 })
}

macro_rules! scenarios {
    ($($(#[$doc:meta])* $test:ident, $scenario:ident: |$setup:ident| $run:expr;)*) => {
        /// What becomes of each case.
        pub mod verdict {
            use super::*;
            $(
                #[doc = concat!("What becomes of [`", stringify!($test), "`](super::", stringify!($test), ").")]
                pub fn $test<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> Verdict {
                    judge(|| $scenario(setup))
                }
            )*
        }

        $(
            $(#[$doc])*
            pub fn $test<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
                // Each of the two inserts where the other one looked: write skew.
                assert_eq!($scenario(setup), setup.isolation == Isolation::Snapshot, "whether a phantom was committed");
            }

            /// Whether the anomaly of the test of this name commits.
            pub fn $scenario<P: Protocol<Worker: Interactive>>($setup: &Setup<P>) -> bool {
                $run
            }
        )*
    };
}

scenarios! {
    /// A key that was looked for and not found.
    absent_key, commits_absent_key: |setup| {
        let (database, table) = items(setup, &[]);
        crossing(setup, &database, &table, |t, table, side| Ok(t.get(table, side + 1)?.is_some()), insert_at::<P>(1))
    };

    /// The same in a hash table.
    absent_key_in_a_hash_table, commits_absent_key_in_a_hash_table: |setup| {
        let database = setup.open();
        let table = create::<P, Cell>(&database);
        crossing(setup, &database, &table, |t, table, side| Ok(t.get(table, side)?.is_some()),
            |t, table, side| t.insert(table, &Cell { id: side, value: 1 }))
    };

    /// The number of rows in a range.
    count, commits_count: |setup| {
        let (database, table) = items(setup, &[(11, 1), (15, 1), (31, 1), (35, 1)]);
        crossing(setup, &database, &table, |t, table, side| t.scan(table, side..side + 10).count(), insert_at::<P>(3))
    };

    /// The number of rows in a range, by a visit of the whole table.
    whole_table, commits_whole_table: |setup| {
        let (database, table) = items(setup, &[(11, 1), (15, 1), (31, 1), (35, 1)]);
        crossing(setup, &database, &table, |t, table, side| {
            let mut rows = 0;
            t.visit_all(table, |row| rows += u32::from((side..side + 10).contains(&row.id())))?;
            Ok(rows)
        }, insert_at::<P>(3))
    };

    /// A range without rows.
    empty_range, commits_empty_range: |setup| {
        let (database, table) = items(setup, &[(5, 1), (25, 1), (45, 1)]);
        crossing(setup, &database, &table, |t, table, side| t.scan(table, side..side + 10).count(), insert_at::<P>(0))
    };

    /// The smallest row of a range.
    minimum, commits_minimum: |setup| {
        let (database, table) = items(setup, &[(5, 1), (15, 1), (35, 1)]);
        crossing(setup, &database, &table, |t, table, side| t.scan(table, side..side + 10).first(|row| row.id()),
            insert_at::<P>(1))
    };

    /// The largest row of a range.
    maximum, commits_maximum: |setup| {
        let (database, table) = items(setup, &[(5, 1), (15, 1), (35, 1), (45, 1)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan(table, side..side + 10).rev().first(|row| row.id()), insert_at::<P>(9))
    };

    /// All rows of a range from the largest down.
    backward_scan, commits_backward_scan: |setup| {
        let (database, table) = items(setup, &[(12, 1), (15, 1), (32, 1), (35, 1)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan(table, side..side + 10).rev().map(|row| row.id()).collect::<Vec<_>>(),
            insert_at::<P>(0))
    };

    /// The first two rows of a range that has more.
    stopped_scan, commits_stopped_scan: |setup| {
        let (database, table) = items(setup, &[(12, 1), (14, 1), (16, 1), (32, 1), (34, 1), (36, 1)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan(table, side..side + 10).limit(2).map(|row| row.id()).collect::<Vec<_>>(),
            insert_at::<P>(3))
    };

    /// The rows that have a value in a secondary index.
    secondary_lookup, commits_secondary_lookup: |setup| {
        let (database, table) = persons(setup, &[person(1, 10, 1), person(2, 30, 2)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan_by(table, Person::BY_TEAM, side as u16).count(),
            |t, table, side| t.insert(table, &person(100 + side, side as u16, 100 + side as u32)))
    };

    /// A range of a secondary index.
    secondary_range, commits_secondary_range: |setup| {
        let (database, table) = persons(setup, &[person(1, 9, 1), person(2, 25, 2)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan_range_by(table, Person::BY_TEAM, side as u16..side as u16 + 10).rev().count(),
            |t, table, side| t.insert(table, &person(100 + side, side as u16 + 5, 100 + side as u32)))
    };

    /// A value that a unique secondary index does not have.
    unique_secondary, commits_unique_secondary: |setup| {
        let (database, table) = persons(setup, &[person(1, 1, 1)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan_by(table, Person::BY_CODE, Some(side as u32)).count(),
            |t, table, side| t.insert(table, &person(100 + side, 1, side as u32)))
    };

    /// A row that an update moves into a range of a secondary index.
    updated_into_a_range, commits_updated_into_a_range: |setup| {
        let (database, table) = persons(setup, &[person(10, 1, 1), person(30, 2, 2)]);
        crossing(setup, &database, &table,
            |t, table, side| t.scan_by(table, Person::BY_TEAM, side as u16).count(),
            |t, table, side| t.update(table, side, |row| row.set_team(side as u16)).map(drop))
    };

    /// A row that a deletion takes out of a range.
    deleted_out_of_a_range, commits_deleted_out_of_a_range: |setup| {
        let (database, table) = items(setup, &[(12, 1), (15, 1), (32, 1), (35, 1)]);
        crossing(setup, &database, &table, |t, table, side| t.scan(table, side..side + 10).count(),
            |t, table, side| t.delete(table, side + 5).map(drop))
    };

    /// An absent key that was deleted a time ago.
    tombstone, commits_tombstone: |setup| {
        let (database, table) = items(setup, &[(11, 1), (31, 1)]);
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| t.delete(&table, 11).and(t.delete(&table, 31)));
        crossing(setup, &database, &table, |t, table, side| Ok(t.get(table, side + 1)?.is_some()), insert_at::<P>(1))
    };

    /// The same, where the new row is larger than the deleted one was.
    tombstone_that_grows, commits_tombstone_that_grows: |setup| {
        let (database, table) = persons(setup, &[person(10, 1, 1), person(30, 2, 2)]);
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| t.delete(&table, 10).and(t.delete(&table, 30)));
        crossing(setup, &database, &table, |t, table, side| Ok(t.get(table, side)?.is_some()),
            |t, table, side| t.insert(table, &Person { text: "x".repeat(1000), ..person(side, 3, 3 + side as u32) }))
    };

    /// The same, seen by a scan.
    tombstone_that_grows_in_a_range, commits_tombstone_that_grows_in_a_range: |setup| {
        let (database, table) = persons(setup, &[person(10, 1, 1), person(30, 2, 2)]);
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| t.delete(&table, 10).and(t.delete(&table, 30)));
        worker.maintain();
        crossing(setup, &database, &table, |t, table, side| t.scan(table, side..side + 10).count(),
            |t, table, side| t.upsert(table, &Person { text: "x".repeat(1000), ..person(side, 3, 3 + side as u32) }))
    };

    /// A key that was inserted and given up again, by a savepoint: that it could be inserted told that it was absent.
    insertion_given_up, commits_insertion_given_up: |setup| {
        let (database, table) = items(setup, &[(5, 1)]);
        crossing(setup, &database, &table,
            |t, table, side| {
                let savepoint = t.savepoint();
                let outcome = t.try_insert(table, &Item { id: side, value: 0 })?;
                t.roll_back_to(savepoint)?;
                Ok(outcome == Insertion::Inserted)
            },
            insert_at::<P>(0))
    };

    /// A key whose row was refused for another one's sake in a unique secondary index.
    insertion_refused, commits_insertion_refused: |setup| {
        let (database, table) = persons(setup, &[person(1, 1, 1)]);
        crossing(setup, &database, &table,
            |t, table, side| Ok(t.try_insert(table, &person(side, 1, 1))? == Insertion::Duplicate(IndexId(2))),
            |t, table, side| t.insert(table, &person(side, 2, side as u32)))
    };
}
