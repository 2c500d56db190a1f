//! A transaction inside of another one of the same thread, which would wait for it for ever.

use polychron_base::Error;
use polychron_engine::lazy::{Claim, LazyHost};
use polychron_engine::{IndexDefinition, drive};

use super::*;

/// Runs a transaction until it commits, beside one of the same thread that has written.
fn attempts(write: impl Fn(&mut Tx<'_>, &Bank, Table<Card>) -> Result<(), Error>) -> Result<(), Error> {
    let bank = Bank::new(Backend::Rows);
    let cards: Table<Card> = Table::from_id(bank.database.create_table(Card::definition()).unwrap());
    let (accounts, mut outer, mut inner) = (bank.accounts, bank.worker(), bank.worker());
    let mut open = outer.begin(Mode::ReadWrite).unwrap();
    assert!(open.update(&accounts, 1, |row| row.set_balance(5)).unwrap());
    open.insert(&accounts, &account(50)).unwrap();
    assert!(open.delete(&accounts, 2).unwrap());
    let mut attempts = 0;
    let outcome = drive::transact(&mut inner, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
        attempts += 1;
        assert!(attempts < 100, "it would go on for ever");
        write(t, &bank, cards)
    });
    assert_eq!(attempts, 1);
    // The worker goes on, with what is not in the way, and with the rest when the outer transaction has ended.
    let mut change = |id| {
        let mut change = |t: &mut Tx<'_>| t.update(&accounts, id, |row| row.set_balance(7));
        drive::transact(&mut inner, Mode::ReadWrite, &mut change).unwrap()
    };
    assert!(change(3));
    open.commit().unwrap();
    assert!(change(1));
    outcome
}

#[test]
fn a_nested_transaction_fails_where_it_would_wait_for_its_own_thread() {
    let waits =
        |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::WaitsForItself(wait)) if wait.key.is_some()));
    waits(attempts(|t, bank, _| t.update(&bank.accounts, 1, |row| row.set_balance(6)).map(drop)));
    waits(attempts(|t, bank, _| t.delete(&bank.accounts, 1).map(drop)));
    waits(attempts(|t, bank, _| t.upsert(&bank.accounts, &account(1))));
    waits(attempts(|t, bank, _| t.insert(&bank.accounts, &account(50))));
    waits(attempts(|t, bank, _| t.upsert(&bank.accounts, &account(50))));
    // The parent is about to be deleted.
    waits(attempts(|t, _, cards| t.insert(&cards, &Card { id: 1, account: 2 })));
    // What a layer above locks for its commit.
    waits(attempts(|t, bank, _| {
        let (table, key) = (bank.accounts.id(), &1_u64.to_be_bytes());
        Hyper::claim(t, &Claim { table, key, is_written: true })
    }));
    assert!(attempts(|t, bank, _| t.get(&bank.accounts, 1).map(drop)).is_ok());
}

#[test]
fn another_thread_conflicts() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut outer, mut inner) = (bank.accounts, bank.worker(), bank.worker());
    let mut open = outer.begin(Mode::ReadWrite).unwrap();
    assert!(open.update(&accounts, 1, |row| row.set_balance(5)).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut t = inner.begin(Mode::ReadWrite).unwrap();
            assert!(t.update(&accounts, 1, |row| row.set_balance(6)).is_err_and(|error| error.is_conflict()));
        });
    });
}

#[test]
fn an_index_is_not_created_inside_of_a_transaction() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker) = (bank.accounts, bank.worker());
    let create = || bank.database.create_index(accounts.id(), IndexDefinition::new("by_balance", [2]));
    let open = worker.begin(Mode::ReadWrite).unwrap();
    assert!(matches!(create(), Err(Error::WaitsForItself(wait)) if wait.table == accounts.id()));
    drop(open);
    assert!(create().is_ok(), "nothing of the refused one is left");
}
