//! Transactions that conflict again and again.

use std::sync::mpsc::channel;

use polychron_engine::Worker;
use polychron_engine::contested::CONFLICTS_UNFAVOURED;

use super::*;

/// What another client does with the row of an id between the two halves of each attempt.
type Deed = fn(&mut <CicadaWorker as Interactive>::Transaction<'_>, &Table<Account>, u64) -> Result<(), Stop>;

/// A transaction that another client makes conflict at each attempt, at one of two rows in turns. Row 7 is written meanwhile as well.
fn overtaken_at_each_attempt(deed: Deed) {
    let database = open(|_| {});
    let table = Table::<Account>::from_id(database.create_table(Account::definition()).unwrap());
    let (mut unlucky, mut other) = (Protocol::worker(&database).unwrap(), Protocol::worker(&database).unwrap());
    done(&mut other, |t| (0..8).try_for_each(|id| t.insert(&table, &Account { id, group: 0, balance: 0 })));
    let ((go, going), (overtaken, was_overtaken)) = (channel::<u64>(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for row in going {
                let mut act = |id: u64| {
                    let mut t = other.begin(Mode::ReadWrite).unwrap();
                    deed(&mut t, &table, id).is_ok() && t.commit().is_ok()
                };
                let has_overtaken = act(row);
                assert!(act(7), "no transaction has conflicted at this row");
                overtaken.send(has_overtaken).unwrap();
            }
        });
        for _ in 0..4 {
            let (mut attempts, mut last, mut balances) = (0, true, [0; 2]);
            done(&mut unlucky, |t| {
                attempts += 1;
                assert!(attempts <= 8 * CONFLICTS_UNFAVOURED, "it starves");
                for (id, balance) in (0..).zip(&mut balances) {
                    *balance = t.get(&table, id)?.unwrap().balance() + 1;
                }
                go.send(attempts % 2).unwrap();
                last = was_overtaken.recv().unwrap();
                let write = |(id, balance)| t.update(&table, id, |row| row.set_balance(balance)).map(drop);
                (0..).zip(balances).try_for_each(write)
            });
            assert!(!last, "the other client makes way for the favoured transaction");
            assert!(attempts <= CONFLICTS_UNFAVOURED + 2, "{attempts} attempts");
            let rows = done(&mut unlucky, |t| t.scan(&table, ..2).rows());
            assert!(rows.iter().map(|row| row.balance).eq(balances));
            // The favour ended with the transaction.
            go.send(0).unwrap();
            assert!(was_overtaken.recv().unwrap());
        }
        drop(go);
    });
}

#[test]
fn a_transaction_that_writers_overtake_commits_soon() {
    overtaken_at_each_attempt(|t, table, id| t.update(table, id, |row| row.set_group(row.group() + 1)).map(drop));
}

#[test]
fn a_transaction_that_readers_overtake_commits_soon() {
    overtaken_at_each_attempt(|t, table, id| t.get(table, id).map(drop));
}

/// Blind writes are not read, so only their installation can make way.
#[test]
fn a_transaction_that_blind_writers_overtake_commits_soon() {
    overtaken_at_each_attempt(|t, table, id| t.upsert(table, &Account { id, group: 1, balance: 0 }));
}

/// The favour ends with a transaction that is dropped or leaked, and with its worker; and a transaction of the favoured one's own thread, which
/// waits for it, does not make way.
#[test]
fn the_favour_ends_with_the_transaction() {
    let database = open(|_| {});
    let table = Table::<Account>::from_id(database.create_table(Account::definition()).unwrap());
    let (mut worker, mut own) = (Protocol::worker(&database).unwrap(), Protocol::worker(&database).unwrap());
    let write = |worker: &mut CicadaWorker| {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.upsert(&table, &Account { id: 1, group: 0, balance: 0 }).unwrap();
        t.commit().is_ok()
    };
    let other_writes = || {
        let mut other = Protocol::worker(&database).unwrap();
        std::thread::scope(|scope| scope.spawn(|| write(&mut other)).join().unwrap())
    };
    assert!(other_writes());
    for leaks in [false, true] {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.get(&table, 1).unwrap();
        assert!(other_writes());
        let updated = t.update(&table, 1, |row| row.set_balance(5)).map(drop);
        assert!(updated.and_then(|()| t.commit()).is_err());
        worker.back_off(CONFLICTS_UNFAVOURED);
        let t = worker.begin(Mode::ReadWrite).unwrap();
        assert!(!other_writes(), "the row is left to the transaction that has conflicted there");
        assert!(write(&mut own), "it waits for its own thread");
        if leaks {
            std::mem::forget(t);
            worker.tidy_up();
        } else {
            drop(t);
        }
        assert!(other_writes());
    }
    worker.back_off(CONFLICTS_UNFAVOURED);
    drop(worker);
    assert!(other_writes(), "a worker that is gone is not favoured");
}
