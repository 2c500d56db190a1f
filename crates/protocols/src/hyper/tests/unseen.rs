//! Rows that come and go behind a transaction that does nothing: any thread that looks for rows must not meet them.

use super::*;

/// Takes the first row of the queue and puts one behind it.
fn turn(worker: &mut HyperWorker, queue: &Table<Account>, id: u64) {
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    let mut first = None;
    t.scan(queue, 100..).limit(1).for_each(|row| first = Some(row.id())).unwrap();
    if let Some(first) = first {
        assert!(t.delete(queue, first).unwrap());
    }
    t.insert(queue, &account(id)).unwrap();
    t.commit().unwrap();
}

/// Entries of the index that has most: the rows that are there, and a few that were deleted just now.
fn most_entries(bank: &Bank, worker: &HyperWorker) -> usize {
    let all = bank.database.shared.base.catalog.snapshot().1;
    let table = polychron_engine::catalog::known(&all, bank.accounts.id()).unwrap();
    let entries = |store: &super::super::table::Relation| {
        let (mut entries, guard) = (0, worker.pin());
        polychron_engine::stores::for_each(store.index(), &guard, &mut |_, _| entries += 1);
        entries
    };
    std::iter::once(&table.primary).chain(table.secondaries()).map(|store| entries(store)).max().unwrap()
}

#[test]
fn rows_that_come_and_go_behind_an_idle_transaction_leave_the_indexes() {
    const TURNS: u64 = scaled(2000, 600) as u64;
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        let bank = Bank::new(Backend::Rows);
        let (accounts, mut worker, mut idle) = (bank.accounts, bank.worker(), bank.worker());
        turn(&mut worker, &accounts, 100);
        let mut open = idle.begin(mode).unwrap();
        assert!(open.get(&accounts, 100).unwrap().is_some());
        (101..101 + TURNS).for_each(|id| turn(&mut worker, &accounts, id));
        let epochs = bank.database.memory().epochs();
        (0..3).for_each(|_| _ = epochs.advance());
        let most = most_entries(&bank, &worker);
        assert!(most < 20, "{most} entries beside an idle {mode:?}");
        // It still sees what it saw, and nothing of what came since meets what it has asked.
        assert_eq!(open.scan(&accounts, 100..).count().unwrap(), 1);
        if mode == Mode::ReadWrite {
            open.insert(&accounts, &account(50)).unwrap();
            assert!(open.commit().is_err_and(|error| error.is_conflict()), "the row that it saw has gone");
        } else {
            drop(open);
        }
        // The backlog goes in slices; rows that come and go meanwhile do not wait for their turn.
        for id in 200 + TURNS..300 + TURNS {
            turn(&mut worker, &accounts, id);
            let most = most_entries(&bank, &worker);
            assert!(most < 20, "{most} entries behind an idle {mode:?}");
        }
        worker.maintain();
        assert!(bank.metric("undo_buffers_kept") <= 2.0);
    }
}

#[test]
fn a_row_that_came_and_went_meets_no_range() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker, mut idle) = (bank.accounts, bank.worker(), bank.worker());
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    assert_eq!(open.scan(&accounts, 100..).count().unwrap(), 0);
    (100..120).for_each(|id| turn(&mut worker, &accounts, id));
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    assert!(t.delete(&accounts, 119).unwrap());
    t.commit().unwrap();
    // Until the open one is no longer a young one.
    (0..300).for_each(|_| set_balance(&mut worker, &accounts, 1, 0));
    open.insert(&accounts, &account(50)).unwrap();
    open.commit().unwrap();
}

/// An idle snapshot holds back the before-images that it undoes, and no epoch, before its first operation and after any.
#[test]
fn an_idle_snapshot_is_in_no_epoch() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker, mut idle) = (bank.accounts, bank.worker(), bank.worker());
    let mut open = idle.begin(Mode::Snapshot).unwrap();
    let other = bank.database.create_table(Card::definition()).unwrap();
    for operation in 0..7 {
        let epochs = bank.database.memory().epochs();
        let epoch = epochs.current();
        (0..3).for_each(|_| _ = epochs.advance());
        assert!(epochs.readonly() > epoch, "operation {operation} has left a pin");
        set_balance(&mut worker, &accounts, 1, operation);
        match operation {
            0 => assert!(open.get(&accounts, 1).unwrap().is_some()),
            1 => assert!(open.get_unvalidated(&accounts, 1).unwrap().is_some()),
            2 => assert_eq!(open.scan(&accounts, ..).count().unwrap(), 10),
            3 => open.visit_all(&accounts, |_| {}).unwrap(),
            4 => _ = open.aggregate(&Scan::all(accounts.id()), Aggregate::Sum(2)).unwrap(),
            5 => open.prefetch(&accounts, 1),
            _ => bank.database.drop_table(other).unwrap(),
        }
    }
    assert_eq!(open.get(&accounts, 1).unwrap().map(|row| row.balance()), Some(account(1).balance));
}

/// The list of tables that a snapshot uses stays until it ends, whatever was dropped in the meantime, and no longer.
#[test]
fn an_idle_snapshot_keeps_its_tables() {
    let bank = Bank::new(Backend::Rows);
    let (database, accounts, mut idle) = (&bank.database, bank.accounts, bank.worker());
    let slot = idle.pin().worker_id().position();
    let kept = || database.shared.kept.version(slot);
    let other = database.create_table(Card::definition()).unwrap();
    idle.begin(Mode::Snapshot).unwrap().commit().unwrap();
    // The worker is idle, and is going to use this list again.
    database.take_lists();
    let first = kept();
    assert!(first.is_some());
    let mut open = idle.begin(Mode::Snapshot).unwrap();
    database.drop_table(other).unwrap();
    (0..3).for_each(|_| _ = database.memory().epochs().advance());
    assert_eq!(kept(), first);
    assert!(open.get(&accounts, 1).unwrap().is_some());
    open.commit().unwrap();
    assert_eq!(kept(), None);
    // A list is taken from a worker that is idle when a table goes.
    let other = database.create_table(Card::definition()).unwrap();
    idle.begin(Mode::Snapshot).unwrap().commit().unwrap();
    assert!(kept() > first);
    database.drop_table(other).unwrap();
    assert_eq!(kept(), None);
    assert!(idle.begin(Mode::Snapshot).unwrap().get(&accounts, 1).unwrap().is_some());
}
