//! What typed answers protect: the columns asked for, of the rows that satisfy the conditions, and nothing else.

use polychron_engine::typed::{Aggregates, Conditions, count};

use super::super::predicates::Test;
use super::*;

/// Accounts 0 to 9, of which 6 has a credit.
fn bank(backend: Backend) -> Bank {
    let bank = Bank::new(backend);
    let accounts = bank.accounts;
    assert!(bank.once(|t| t.update(&accounts, 6, |row| row.set_credit(Some(50))).map(drop)));
    bank
}

/// The columns of each path that a question has logged, whether it is an extreme, and the columns of its conditions.
fn logged(t: &Tx<'_>, bank: &Bank) -> Vec<(ColumnSet, bool, Vec<u16>)> {
    let log = &t.state.log;
    let relation = log.relation_at(log.position(bank.accounts.id()).unwrap());
    assert!(relation.points.is_empty() && relation.coarse.is_empty());
    let conditions = |path: &super::super::predicates::Path| {
        let tests = &relation.tests[path.tests.start as usize..path.tests.end as usize];
        let columns =
            tests.iter().filter_map(|test| if let Test::Column { column, .. } = test { Some(*column) } else { None });
        columns.collect()
    };
    relation.paths.iter().map(|path| (path.columns, path.extremum.is_some(), conditions(path))).collect()
}

fn columns(positions: &[u16]) -> ColumnSet {
    positions.iter().fold(ColumnSet::EMPTY, |set, &column| set.with(column))
}

type Ask = fn(&mut Tx<'_>, &Table<Account>) -> Result<(), Error>;

const RICH: Ask = |t, accounts| {
    let rich = t.scan(accounts, ..).such_that(Account::BALANCE.at_least(105));
    rich.aggregate((Account::BALANCE.sum(), Account::CREDIT.min(), count())).map(drop)
};

const BY_OWNER: Ask = |t, accounts| {
    let rich = t.scan(accounts, ..).such_that(Account::BALANCE.at_least(105));
    rich.group_by(Account::OWNER, (Account::CREDIT.max(), count())).map(drop)
};

#[test]
fn the_predicate_is_that_of_the_columns() {
    for backend in [Backend::Columns, Backend::Rows] {
        let bank = bank(backend);
        let (owner, balance, credit) = (Account::OWNER.index, Account::BALANCE.index, Account::CREDIT.index);
        let mut worker = bank.worker();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        RICH(&mut t, &bank.accounts).unwrap();
        let rich = vec![balance];
        assert_eq!(
            logged(&t, &bank),
            [(columns(&[credit]), true, rich.clone()), (columns(&[balance]), false, rich.clone())]
        );
        drop(t);
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        BY_OWNER(&mut t, &bank.accounts).unwrap();
        assert_eq!(logged(&t, &bank), [(columns(&[owner, credit]), false, rich)]);
    }
}

/// Whether a transaction that has asked, and writes elsewhere, conflicts with a change.
fn conflicts(backend: Backend, ask: Ask, change: Ask) -> bool {
    let bank = bank(backend);
    let mut worker = bank.worker();
    let mut open = worker.begin(Mode::ReadWrite).unwrap();
    ask(&mut open, &bank.accounts).unwrap();
    assert!(bank.once(|t| change(t, &bank.accounts)));
    open.update(&bank.accounts, 0, |row| row.set_owner(9)).unwrap();
    match open.commit() {
        Ok(_) => false,
        Err(error) => {
            assert!(error.is_conflict());
            true
        }
    }
}

#[test]
fn what_was_not_asked_is_no_conflict() {
    // Each with whether the answers over all, and those over groups, are another one.
    let changes: [(Ask, bool, bool); 12] = [
        (|t, it| t.update(it, 7, |row| row.set_owner(8)).map(drop), false, true),
        (|t, it| t.update(it, 2, |row| row.set_owner(8)).map(drop), false, false),
        (|t, it| t.update(it, 2, |row| row.set_credit(Some(1))).map(drop), false, false),
        (|t, it| t.update(it, 2, |row| row.set_balance(104)).map(drop), false, false),
        (|t, it| t.update(it, 2, |row| row.set_balance(105)).map(drop), true, true),
        (|t, it| t.update(it, 7, |row| row.set_balance(104)).map(drop), true, true),
        (|t, it| t.update(it, 7, |row| row.set_balance(1000)).map(drop), true, false),
        // A credit beyond the least one; the groups have an extreme each.
        (|t, it| t.update(it, 7, |row| row.set_credit(Some(60))).map(drop), false, true),
        (|t, it| t.update(it, 7, |row| row.set_credit(Some(40))).map(drop), true, true),
        (|t, it| t.insert(it, &Account { balance: 50, ..account(20) }), false, false),
        (|t, it| t.insert(it, &Account { balance: 500, ..account(20) }), true, true),
        (|t, it| t.delete(it, 8).map(drop), true, true),
    ];
    for backend in [Backend::Columns, Backend::Rows] {
        for (number, (change, all, groups)) in changes.into_iter().enumerate() {
            assert_eq!(conflicts(backend, RICH, change), all, "change {number} of all");
            assert_eq!(conflicts(backend, BY_OWNER, change), groups, "change {number} of groups");
        }
    }
}
