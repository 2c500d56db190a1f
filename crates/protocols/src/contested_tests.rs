//! Transactions that conflict again and again, under every protocol with a favour ([`polychron_engine::contested`]).

use std::sync::Arc;
use std::sync::mpsc::channel;

use polychron_engine::contested::CONFLICTS_UNFAVOURED;
use polychron_engine::{Commit, Futures, Interactive, Mode, Operations, Protocol, Row, Table, Worker, drive};

#[derive(polychron_schema::Row, Clone, Copy, Debug, PartialEq)]
#[row(name = "contested")]
struct Account {
    #[key]
    id: u64,
    ours: i64,
    theirs: i64,
}

type Tx<'w, P> = <<P as Protocol>::Worker as Interactive>::Transaction<'w>;

/// What the other client does with a row.
#[derive(Clone, Copy)]
pub(crate) enum Deed {
    Update,
    /// By a future, which may be open until the commit.
    Add,
    Read,
    WriteBlindly,
}

/// A database with accounts 0 to 9.
fn accounts<P: Protocol<Worker: Interactive>>(database: &Arc<P>) -> Table<Account> {
    let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
    let mut load =
        |t: &mut Tx<'_, P>| (0..10).try_for_each(|id| t.insert(&accounts, &Account { id, ours: 0, theirs: 0 }));
    drive::transact(&mut database.worker().unwrap(), Mode::ReadWrite, &mut load).unwrap();
    accounts
}

/// A transaction that reads accounts 0 and 1 and writes those that it is told to, and that another client overtakes at each attempt, at one
/// of the two in turns, commits soon. Account 7 is written meanwhile as well.
pub(crate) fn overtaken_at_each_attempt<P: Protocol<Worker: Interactive>>(
    database: &Arc<P>,
    deed: Deed,
    written: &[u64],
) {
    let accounts = accounts(database);
    let (mut unlucky, mut other) = (database.worker().unwrap(), database.worker().unwrap());
    let mut act = move |id: u64| {
        let mut t = other.begin(Mode::ReadWrite).unwrap();
        let done = match deed {
            Deed::Update => t.update(&accounts, id, |row| row.set_theirs(row.theirs() + 1)).map(drop),
            Deed::Add => t
                .future(&accounts, id, Account::THEIRS)
                .and_then(|theirs| t.set_future(&accounts, id, Account::THEIRS, theirs + 1)),
            Deed::Read => t.get(&accounts, id).map(drop),
            Deed::WriteBlindly => t.upsert(&accounts, &Account { id, ours: 0, theirs: 1 }),
        };
        done.is_ok() && t.commit().is_ok()
    };
    let ((go, going), (overtaken, was_overtaken)) = (channel::<u64>(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for account in going {
                let has_overtaken = act(account);
                assert!(act(7), "no transaction has conflicted at this row");
                overtaken.send(has_overtaken).unwrap();
            }
        });
        for _ in 0..4 {
            let (mut attempts, mut last, mut ours) = (0, true, [0; 2]);
            let mut body = |t: &mut Tx<'_, P>| {
                attempts += 1;
                assert!(attempts <= 8 * CONFLICTS_UNFAVOURED, "it starves");
                for (id, ours) in (0..).zip(&mut ours) {
                    *ours = t.get(&accounts, id)?.unwrap().ours() + 1;
                }
                go.send(attempts % 2).unwrap();
                last = was_overtaken.recv().unwrap();
                written.iter().try_for_each(|&id| {
                    let ours = ours.get(id as usize).copied().unwrap_or(1);
                    t.update(&accounts, id, |row| row.set_ours(ours)).map(drop)
                })
            };
            drive::transact(&mut unlucky, Mode::ReadWrite, &mut body).unwrap();
            assert!(!last, "the other client makes way for the favoured transaction");
            assert!(attempts <= CONFLICTS_UNFAVOURED + 2, "{attempts} attempts");
            let mut read = |t: &mut Tx<'_, P>| t.scan(&accounts, ..2).rows();
            let rows = drive::transact(&mut unlucky, Mode::ReadWrite, &mut read).unwrap();
            assert!(rows.iter().zip(ours).all(|(row, ours)| !written.contains(&row.id) || row.ours == ours));
            // The favour ended with the transaction.
            go.send(0).unwrap();
            assert!(was_overtaken.recv().unwrap());
        }
        drop(go);
    });
}

/// The favour ends with a transaction that is dropped or leaked, and with its worker; and a transaction of the favoured one's own thread,
/// which it would wait for, does not make way.
pub(crate) fn favour_ends_with_the_transaction<P: Protocol<Worker: Interactive>>(database: &Arc<P>) {
    let accounts = accounts(database);
    let (mut worker, mut own) = (database.worker().unwrap(), database.worker().unwrap());
    let write = |worker: &mut P::Worker| {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.upsert(&accounts, &Account { id: 1, ours: 0, theirs: 0 }).and_then(|()| t.commit()).is_ok()
    };
    let other_writes = || {
        let mut other = database.worker().unwrap();
        std::thread::scope(|scope| scope.spawn(|| write(&mut other)).join().unwrap())
    };
    assert!(other_writes());
    for leaks in [false, true] {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.get(&accounts, 1).unwrap();
        assert!(other_writes());
        let updated = t.update(&accounts, 1, |row| row.set_ours(5));
        assert!(updated.and_then(|_| t.commit()).is_err());
        worker.back_off(CONFLICTS_UNFAVOURED);
        let t = worker.begin(Mode::ReadWrite).unwrap();
        assert!(!other_writes(), "the row is left to the transaction that has conflicted there");
        assert!(write(&mut own), "it waits for its own thread");
        if leaks {
            std::mem::forget(t);
            worker.maintain();
        } else {
            drop(t);
        }
        assert!(other_writes());
    }
    worker.back_off(CONFLICTS_UNFAVOURED);
    drop(worker);
    assert!(other_writes(), "a worker that is gone is not favoured");
}
