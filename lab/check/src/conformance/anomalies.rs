//! The named anomalies over single rows and predicates, each as an interleaving of two or three transactions, after Adya
//! (*Weak Consistency*, MIT 1999) and the cases by which Kleppmann's Hermitage tells isolation levels apart.

use polychron_engine::{Insertion, Interactive, Isolation, Mode, Operations, Protocol, Worker};

use super::cases::{Case, Step, cases, flag, number, one, values, wrote};
use super::verdict::{Verdict, judge};
use crate::Setup;
use crate::client::Client;
use crate::rows::{Cell, set, value};
use crate::setup::{begin, create, items, snapshot};

/// The cases that snapshot isolation allows: two anti-dependencies follow each other in their cycles. What is promised no more
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
        rollbacks: [0],
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

    /// Write skew under the rule that some client stays on call: each leaves because there are two.
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
        let mut reader = Client::begin(reader, mode);
        let read = reader.step(|t| Ok((value(t, &table, checking)?, value(t, &table, savings)?)));
        let read = if reader.commit() { read } else { None };
        withdrawal.step(|t| set(t, &table, checking, -11));
        let withdrew = withdrawal.commit();
        let mut worker = database.worker().unwrap();
        setup.pass(&database, 3);
        worker.maintain();
        let end = snapshot(&mut worker, |t| value(t, &table, savings));
        assert_eq!(end, Some(if deposited { 20 } else { 0 }), "a later snapshot shows the end");
        let before_the_deposit = seen == Some((Some(0), Some(0)));
        let after_the_deposit = read == Some((Some(0), Some(20)));
        deposited && withdrew && before_the_deposit && after_the_deposit
    })
}
