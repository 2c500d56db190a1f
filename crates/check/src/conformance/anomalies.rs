//! The named anomalies over single rows, each as an interleaving of two or three transactions. A protocol may refuse any
//! of the transactions; what it may not do is commit what no serial order explains.

use polychron_engine::{Insertion, Interactive, Mode, Operations, Protocol, Worker};

use crate::Setup;
use crate::party::Party;
use crate::rows::{Cell, Item, set, value};
use crate::setup::{Tx, begin, create, done, items, snapshot};

/// G0: two transactions write the same two rows in turn. The rows end with the values of one of them.
pub fn dirty_write<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    one.step(|t| t.upsert(&table, &Item { id: 1, value: 11 }));
    two.step(|t| t.upsert(&table, &Item { id: 1, value: 12 }));
    two.step(|t| t.upsert(&table, &Item { id: 2, value: 22 }));
    one.step(|t| t.upsert(&table, &Item { id: 2, value: 21 }));
    let committed = (one.commit(), two.commit());
    let end = done(&mut left, |t| Ok((value(t, &table, 1)?, value(t, &table, 2)?)));
    match committed {
        (false, false) => assert_eq!(end, (Some(10), Some(20))),
        (true, false) => assert_eq!(end, (Some(11), Some(21))),
        (false, true) => assert_eq!(end, (Some(12), Some(22))),
        (true, true) => assert!(end == (Some(11), Some(21)) || end == (Some(12), Some(22)), "{end:?}"),
    }
}

/// G1a: what a rolled-back transaction wrote is never read.
pub fn aborted_read<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    one.step(|t| set(t, &table, 1, 101));
    one.step(|t| t.insert(&table, &Item { id: 2, value: 102 }));
    let seen = two.step(|t| Ok((value(t, &table, 1)?, value(t, &table, 2)?)));
    one.roll_back();
    let again = two.step(|t| Ok((value(t, &table, 1)?, value(t, &table, 2)?)));
    if two.commit() {
        assert_eq!((seen, again), (Some((Some(10), None)), Some((Some(10), None))));
    }
    assert_eq!(done(&mut left, |t| t.scan(&table, ..).count()), 1);
}

/// G1b: what a transaction wrote and then overwrote is never read.
pub fn intermediate_read<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    one.step(|t| set(t, &table, 1, 101));
    let seen = two.step(|t| value(t, &table, 1));
    one.step(|t| set(t, &table, 1, 11));
    let first = one.commit();
    let again = two.step(|t| value(t, &table, 1));
    if two.commit() {
        let (seen, again) = (seen.flatten(), again.flatten());
        assert_eq!(seen, again, "a read is repeatable");
        assert!(seen == Some(10) || first && seen == Some(11), "{seen:?}");
    }
}

/// G1c: each of two transactions writes what the other reads. At most one sees the other.
pub fn circular_flow<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    one.step(|t| set(t, &table, 1, 11));
    two.step(|t| set(t, &table, 2, 22));
    let by_one = one.step(|t| value(t, &table, 2)).flatten();
    let by_two = two.step(|t| value(t, &table, 1)).flatten();
    if one.commit() & two.commit() {
        assert!((by_one == Some(22)) ^ (by_two == Some(11)), "{by_one:?}, {by_two:?}");
    }
}

/// P4: two transactions add to the same counter; no addition is lost.
pub fn lost_update<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    one.step(|t| t.update(&table, 1, |row| row.set_value(row.value() + 1)));
    two.step(|t| t.update(&table, 1, |row| row.set_value(row.value() + 1)));
    let commits = i64::from(one.commit()) + i64::from(two.commit());
    assert_eq!(done(&mut left, |t| value(t, &table, 1)), Some(10 + commits));
}

/// The same with a read followed by a blind write.
pub fn blind_lost_update<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let add = |t: &mut Party<Tx<'_, P>>| {
        if let Some(Some(before)) = t.step(|t| value(t, &table, 1)) {
            t.step(|t| t.upsert(&table, &Item { id: 1, value: before + 1 }));
        }
    };
    add(&mut one);
    add(&mut two);
    let commits = i64::from(two.commit()) + i64::from(one.commit());
    assert_eq!(done(&mut left, |t| value(t, &table, 1)), Some(10 + commits));
}

/// G-single: a transaction reads one row before and another after a transaction that changes both.
pub fn read_skew<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let first = one.step(|t| value(t, &table, 1)).flatten();
    two.step(|t| set(t, &table, 1, 12));
    two.step(|t| set(t, &table, 2, 18));
    two.commit();
    let second = one.step(|t| value(t, &table, 2)).flatten();
    if one.commit() {
        assert_eq!(first.unwrap() + second.unwrap(), 30, "a read-only transaction saw half of another");
    }
}

/// G-single with a write: the reader changes a third row on the strength of what it saw.
pub fn read_skew_before_a_write<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20), (3, 0)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let first = one.step(|t| value(t, &table, 1)).flatten();
    two.step(|t| set(t, &table, 1, 12));
    two.step(|t| set(t, &table, 2, 18));
    two.commit();
    let second = one.step(|t| value(t, &table, 2)).flatten();
    one.step(|t| set(t, &table, 3, first.unwrap_or(0) + second.unwrap_or(0)));
    if one.commit() {
        assert_eq!(done(&mut left, |t| value(t, &table, 3)), Some(30));
    }
}

/// G2-item: each of two transactions reads both rows and changes one.
pub fn write_skew<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 50), (2, 50)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let withdraw = |party: &mut Party<Tx<'_, P>>, id: u64| {
        let sum = party.step(|t| Ok(value(t, &table, 1)?.unwrap() + value(t, &table, 2)?.unwrap()));
        if sum.is_some_and(|sum| sum >= 100) {
            party.step(|t| set(t, &table, id, -50));
        }
    };
    withdraw(&mut one, 1);
    withdraw(&mut two, 2);
    let _ = (one.commit(), two.commit());
    let sum: i64 = done(&mut left, |t| t.scan(&table, ..).map(|row| row.value()).sum());
    assert!(sum >= 0, "both withdrew: {sum}");
}

/// G2-item where the reads happen inside updates of other rows, and the commits come in the other order.
pub fn write_skew_by_update<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 1), (2, 2)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let by_one = one.step(|t| value(t, &table, 2)).flatten().unwrap_or(0);
    one.step(|t| t.update(&table, 1, |row| row.set_value(by_one)));
    let by_two = two.step(|t| value(t, &table, 1)).flatten().unwrap_or(0);
    two.step(|t| t.update(&table, 2, |row| row.set_value(by_two)));
    let both = two.commit() & one.commit();
    let end = done(&mut left, |t| Ok((value(t, &table, 1)?, value(t, &table, 2)?)));
    assert!(!both || end.0 == end.1, "the rows changed places: {end:?}");
}

/// Three transactions in a ring, each reading what the next one writes.
pub fn write_skew_of_three<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(0, 0), (1, 0), (2, 0)]);
    let mut workers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
    let mut parties: Vec<_> = workers.iter_mut().map(begin).collect();
    for (id, party) in parties.iter_mut().enumerate() {
        party.step(|t| value(t, &table, (id as u64 + 1) % 3));
    }
    for (id, party) in parties.iter_mut().enumerate() {
        party.step(|t| t.upsert(&table, &Item { id: id as u64, value: 1 }));
    }
    let commits = parties.into_iter().map(Party::commit).filter(|&committed| committed).count();
    assert!(commits < 3, "each read the row of the next before it was written");
}

/// Both insert the same key, and both find it absent.
pub fn insert_insert<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    for first_commits_first in [true, false] {
        let id = u64::from(first_commits_first);
        let (mut one, mut two) = (begin(&mut left), begin(&mut right));
        let a = one.step(|t| t.try_insert(&table, &Item { id, value: 1 }));
        let b = two.step(|t| t.try_insert(&table, &Item { id, value: 2 }));
        let (first, second) = if first_commits_first {
            let first = one.commit();
            (first, two.commit())
        } else {
            let second = two.commit();
            (one.commit(), second)
        };
        let both = first && second && a == Some(Insertion::Inserted) && b == Some(Insertion::Inserted);
        assert!(!both, "one key was inserted twice");
        let end = done(&mut left, |t| value(t, &table, id));
        assert_eq!(end.is_some(), first && a == Some(Insertion::Inserted) || second && b == Some(Insertion::Inserted));
    }
}

/// The same in a hash table.
pub fn insert_insert_in_a_hash_table<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Cell>(&database);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let a = one.step(|t| t.try_insert(&table, &Cell { id: 1, value: 1 }));
    let b = two.step(|t| t.try_insert(&table, &Cell { id: 1, value: 2 }));
    let both = two.commit() & one.commit();
    assert!(!both || a != Some(Insertion::Inserted) || b != Some(Insertion::Inserted));
}

/// One deletes a row that the other updates: if both commit, the update came first and the row is gone.
pub fn delete_and_update<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for delete_commits_first in [true, false] {
        let (database, table) = items(setup, &[(1, 10)]);
        let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
        let (mut one, mut two) = (begin(&mut left), begin(&mut right));
        let deleted = one.step(|t| t.delete(&table, 1));
        let updated = two.step(|t| t.update(&table, 1, |row| row.set_value(11)));
        let (delete, update) = if delete_commits_first {
            let delete = one.commit();
            (delete, two.commit())
        } else {
            let update = two.commit();
            (one.commit(), update)
        };
        let end = done(&mut left, |t| value(t, &table, 1));
        if delete && deleted == Some(true) {
            assert_eq!(end, None, "the row was deleted and is there");
        } else if update && updated == Some(true) {
            assert_eq!(end, Some(11));
        }
    }
}

/// One deletes a row that the other overwrites blindly: either order is serial, a mixture is not.
pub fn delete_and_upsert<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    one.step(|t| t.delete(&table, 1));
    two.step(|t| t.upsert(&table, &Item { id: 1, value: 11 }));
    two.step(|t| t.upsert(&table, &Item { id: 2, value: 21 }));
    one.step(|t| t.delete(&table, 2));
    if two.commit() & one.commit() {
        let left_over = done(&mut left, |t| t.scan(&table, ..).count());
        assert!(left_over == 0 || left_over == 2, "half of each");
    }
}

/// Both delete the same row, and each counts it in a row of its own: it is counted once.
pub fn delete_and_delete<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (8, 0), (9, 0)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let take = |party: &mut Party<Tx<'_, P>>, own: u64| {
        if party.step(|t| t.delete(&table, 1)) == Some(true) {
            party.step(|t| t.update(&table, own, |row| row.set_value(1)));
        }
    };
    take(&mut one, 8);
    take(&mut two, 9);
    let _ = (one.commit(), two.commit());
    let taken: i64 = done(&mut left, |t| t.scan(&table, 8..).map(|row| row.value()).sum());
    assert!(taken <= 1, "one row was taken twice");
}

/// A key is read as absent after its deletion by somebody else, and the reader's world must not mix before and after.
pub fn write_after_delete<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 0)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let marked = one.step(|t| value(t, &table, 2)).flatten();
    two.step(|t| t.delete(&table, 1));
    two.step(|t| set(t, &table, 2, 1));
    two.commit();
    let seen = one.step(|t| value(t, &table, 1));
    one.step(|t| t.upsert(&table, &Item { id: 3, value: 1 }));
    if one.commit() {
        assert_eq!(seen.flatten().is_none(), marked == Some(1));
    }
}

/// The read-only anomaly of Fekete and O'Neil: a reader makes an otherwise serial history of two others impossible.
pub fn read_only_anomaly<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    read_only(setup, Mode::ReadWrite);
}

/// The same with the reader on a snapshot, before and after time has passed.
pub fn read_only_anomaly_with_a_snapshot<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    read_only(setup, Mode::Snapshot);
}

fn read_only<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, mode: Mode) {
    if !setup.interleaves {
        return;
    }
    for ticks in 0..4 {
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
        let before_the_deposit = seen == Some((Some(0), Some(0)));
        let after_the_deposit = read == Some((Some(0), Some(20)));
        assert!(!(deposited && withdrew && before_the_deposit && after_the_deposit), "the reader saw what never was");
        let mut worker = database.worker().unwrap();
        setup.pass(&database, 3);
        worker.tidy_up();
        let end = snapshot(&mut worker, |t| value(t, &table, savings));
        assert_eq!(end, Some(if deposited { 20 } else { 0 }), "a later snapshot shows the end");
    }
}
