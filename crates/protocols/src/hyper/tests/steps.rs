//! How many steps work takes that goes along chains, lists and predicates: never more than a few for each version or question.

use polychron_engine::drive;

use super::super::clock::{Committed, History};
use super::*;

const MANY: i64 = scaled(40_000, 300) as i64;

fn bank_with_snapshots() -> Bank {
    Bank::new(Backend::Rows)
}

/// Steps that some work takes.
fn steps(bank: &Bank, work: impl FnOnce()) -> f64 {
    let all = || bank.metric("before_images_walked") + bank.metric("conditions_tested");
    let before = all();
    work();
    all() - before
}

/// Behind a transaction that may write all before-images stay. When it ends they go, in slices, and each chain is cut once.
#[test]
fn a_long_chain_is_cut_once() {
    for has_second in [false, true] {
        let bank = bank_with_snapshots();
        let (accounts, mut writer, mut old, mut younger) = (bank.accounts, bank.worker(), bank.worker(), bank.worker());
        let reader = old.begin(Mode::ReadWrite).unwrap();
        (0..MANY).for_each(|balance| set_balance(&mut writer, &accounts, 1, balance));
        let second = has_second.then(|| younger.begin(Mode::ReadWrite).unwrap());
        if has_second {
            (0..MANY).for_each(|balance| set_balance(&mut writer, &accounts, 1, balance));
        }
        drop(reader);
        // A commit sees to no more than a slice.
        let of_one = steps(&bank, || set_balance(&mut writer, &accounts, 2, 0));
        assert!(of_one <= 1000.0 + if has_second { MANY as f64 } else { 0.0 }, "{of_one} steps at one commit");
        let commits = MANY / 10 + 100;
        let of_all = steps(&bank, || (0..commits).for_each(|balance| set_balance(&mut writer, &accounts, 2, balance)));
        assert!(of_all <= 10.0 * MANY as f64 + 20_000.0, "{of_all} steps for {MANY} images");
        if has_second {
            drop(second);
            let rest =
                steps(&bank, || (0..commits).for_each(|balance| set_balance(&mut writer, &accounts, 2, balance)));
            assert!(rest <= 10.0 * MANY as f64 + 20_000.0, "{rest} steps for {MANY} images");
        }
        assert!(bank.metric("undo_buffers_kept") <= 2.0, "the backlog is gone");
        assert!(bank.metric("undo_bytes") <= 8192.0);
    }
}

/// The same beside a snapshot that is older, for which one before-image stays.
#[test]
fn a_long_chain_is_pruned_once() {
    let bank = bank_with_snapshots();
    let (accounts, mut writer) = (bank.accounts, bank.worker());
    let (mut oldest, mut old, mut younger) = (bank.worker(), bank.worker(), bank.worker());
    let mut snapshot = oldest.begin(Mode::Snapshot).unwrap();
    let seen = snapshot.get(&accounts, 1).unwrap().map(|row| row.balance());
    let reader = old.begin(Mode::ReadWrite).unwrap();
    (0..MANY).for_each(|balance| set_balance(&mut writer, &accounts, 1, balance));
    let second = younger.begin(Mode::ReadWrite).unwrap();
    (0..MANY).for_each(|balance| set_balance(&mut writer, &accounts, 1, balance));
    drop(reader);
    let commits = MANY / 8 + 100;
    let mut drain =
        || steps(&bank, || (0..commits).for_each(|balance| set_balance(&mut writer, &accounts, 2, balance)));
    let first = drain();
    assert!(first <= 20.0 * MANY as f64 + 50_000.0, "{first} steps for {MANY} images");
    drop(second);
    let rest = drain();
    assert!(rest <= 20.0 * MANY as f64 + 50_000.0, "{rest} steps for {MANY} images");
    assert_eq!(snapshot.get(&accounts, 1).unwrap().map(|row| row.balance()), seen);
    drop(snapshot);
    drain();
    assert!(bank.metric("undo_buffers_kept") <= 2.0, "{}", bank.metric("undo_buffers_kept"));
}

/// One transaction that changed a row many times is compared, and collected, in as many steps.
#[test]
fn a_row_that_was_changed_many_times_is_compared_once() {
    for apart in [false, true] {
        let bank = bank_with_snapshots();
        let (accounts, mut writer) = (bank.accounts, bank.worker());
        let poor = [Restriction { column: 2, comparison: Comparison::Less, value: Value::Integer(-1) }];
        let scan = Scan { restrictions: &poor, ..Scan::all(accounts.id()) };
        let mut asking = bank.worker();
        let mut t = asking.begin(Mode::ReadWrite).unwrap();
        t.scan_rows(&scan, &mut |_| unreachable!("no row is poor")).unwrap();
        t.insert(&accounts, &Account { owner: 99, balance: 50, ..account(1000) }).unwrap();
        if apart {
            (0..MANY).for_each(|balance| set_balance(&mut writer, &accounts, 1, balance));
        } else {
            assert!(bank.once(|t| {
                (0..MANY).try_for_each(|balance| t.update(&accounts, 1, |row| row.set_balance(balance)).map(drop))
            }));
        }
        let of_commit = steps(&bank, || t.commit().unwrap());
        assert!(of_commit <= 10.0 * MANY as f64 + 1000.0, "{of_commit} steps for {MANY} images");
        let of_rest = steps(&bank, || (0..MANY / 8 + 100).for_each(|_| set_balance(&mut writer, &accounts, 2, 0)));
        assert!(of_rest <= 10.0 * MANY as f64 + 1000.0, "{of_rest} steps for {MANY} images");
    }
}

/// Many questions of different ranges are put together, and compared with what others have changed, in about as many steps.
#[test]
fn many_questions_are_compared_in_few_steps() {
    const QUESTIONS: u64 = scaled(64 << 10, 200) as u64;
    let bank = bank_with_snapshots();
    let accounts = bank.accounts;
    let mut worker = bank.worker();
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    for owner in 100..100 + QUESTIONS {
        assert_eq!(t.scan_by(&accounts, Account::BY_OWNER, owner as u32).count().unwrap(), 0);
        t.get(&accounts, 100 + owner).unwrap();
    }
    for balance in 0..QUESTIONS as i64 {
        assert!(t.update(&accounts, 1, |row| row.set_balance(-balance)).unwrap());
        t.get(&accounts, 1).unwrap();
        if balance % 64 == 0 {
            t.aggregate(&Scan::all(accounts.id()), Aggregate::Min(2)).unwrap();
        }
    }
    assert!(bank.once(|t| {
        for id in 2..10 {
            assert!(t.update(&accounts, id, |row| row.set_owner(id as u32))?);
        }
        Ok(())
    }));
    let of_commit = steps(&bank, || t.commit().unwrap());
    assert!(of_commit <= 10.0 * QUESTIONS as f64 + 1000.0, "{of_commit} steps for {QUESTIONS} questions");
    // The index tells the ranges apart nevertheless.
    let asks = |t: &mut Tx<'_>| {
        for owner in 100..110 {
            assert_eq!(t.scan_by(&accounts, Account::BY_OWNER, owner).count()?, 0);
        }
        Ok(())
    };
    assert!(bank.stands(asks, move |t| t.update(&accounts, 2, |row| row.set_owner(110)).map(drop)));
    assert!(!bank.once(|t| {
        asks(t)?;
        assert!(bank.once(|t| t.update(&accounts, 2, |row| row.set_owner(105)).map(drop)));
        t.update(&accounts, 3, |row| row.set_balance(1)).map(drop)
    }));
}

/// Two threads on one row, beside any thread that comes and goes: chains stay short.
#[test]
fn a_hot_row_keeps_its_chain_short() {
    const UPDATES: usize = scaled(20_000, 50);
    let bank = bank_with_snapshots();
    let accounts = bank.accounts;
    let work = steps(&bank, || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut worker = bank.worker();
                    for _ in 0..UPDATES {
                        let mut add = |t: &mut Tx<'_>| t.update(&accounts, 1, |row| row.set_balance(row.balance() + 1));
                        assert!(drive::transact(&mut worker, Mode::ReadWrite, &mut add).unwrap());
                    }
                });
            }
        });
    });
    assert!(work <= 40.0 * UPDATES as f64, "{work} steps");
    assert!(bank.once(|t| {
        assert_eq!(t.get(&accounts, 1)?.map(|row| row.balance()), Some(account(1).balance + 2 * UPDATES as i64));
        Ok(())
    }));
    bank.worker().maintain();
    assert!(bank.metric("undo_buffers_kept") <= 2.0);
}

/// The list of what has committed is told in slices of a bounded length, wherever its parts lie.
#[test]
fn a_list_is_processed_in_slices() {
    const COMMITS: u64 = 1000;
    const MOST: usize = 50;
    let bank = bank_with_snapshots();
    let mut idle = bank.worker();
    let _open = idle.begin(Mode::ReadWrite).unwrap();
    set_balance(&mut bank.worker(), &bank.accounts, 1, 1);
    let one = *bank.database.shared.clock.history().recent.back().unwrap();
    let mut history = History::default();
    history.recent.extend((1..=COMMITS).map(|at| Committed { at, bytes: 0, ..one }));
    for at in 1..=400 {
        let next = history.put_behind(400, 0).unwrap();
        history.end_pruning(0);
        if !u64::is_multiple_of(at, 3) {
            history.keep_behind(next);
        }
    }
    (401..=410).for_each(|by| assert!(history.put_behind(by, by as usize % 3).is_some()));
    let is_there = |at: &u64| *at > 400 || !at.is_multiple_of(3);
    for after in [0, 100, 395, 405, 900, COMMITS] {
        let (mut listed, mut all) = (after, Vec::new());
        while listed < COMMITS {
            let by = history.slice(listed, COMMITS, MOST);
            assert!(by > listed && by <= COMMITS);
            let before = all.len();
            all.extend(history.between(listed, by).map(|committed| committed.at));
            assert!(all.len() - before <= MOST + 10 + 1, "{} at once", all.len() - before);
            listed = by;
        }
        // What workers are pruning comes in no order.
        all.sort_unstable();
        assert!(all.into_iter().eq((after + 1..=COMMITS).filter(is_there)));
    }
}

/// Rows whose entries move, and rows that come and go, beside an idle transaction: of what is no longer needed the list behind one that
/// may write is told where it is, and the list behind a snapshot is gone through once in many commits.
#[test]
fn what_goes_behind_an_idle_transaction_is_found_in_few_steps() {
    const ROWS: u64 = scaled(400, 40) as u64;
    const COMMITS: u64 = scaled(6000, 600) as u64;
    for (mode, most) in [(Mode::ReadWrite, 9.0), (Mode::Snapshot, 9.0)] {
        let bank = bank_with_snapshots();
        let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
        assert!(bank.once(|t| (10..=ROWS).try_for_each(|id| t.insert(&accounts, &account(id)))));
        let mut open = idle.begin(mode).unwrap();
        match mode {
            Mode::ReadWrite => open.insert(&accounts, &account(1 << 40)).unwrap(),
            Mode::Snapshot => assert!(open.get(&accounts, 1).unwrap().is_some()),
        }
        let walked = steps(&bank, || {
            for number in 0..COMMITS {
                let id = number * 7 % ROWS;
                let mut change = |t: &mut Tx<'_>| match number % 2 {
                    0 => t.update(&accounts, id, |row| row.set_owner(row.owner() + 1)).map(drop),
                    _ if t.delete(&accounts, id)? => Ok(()),
                    _ => t.insert(&accounts, &account(id)),
                };
                drive::transact(&mut worker, Mode::ReadWrite, &mut change).unwrap();
            }
        });
        assert!(walked <= most * COMMITS as f64, "{walked} steps for {COMMITS} commits beside {mode:?}");
        let kept = bank.metric("undo_buffers_kept");
        assert!(kept <= 3.0 * ROWS as f64 + 20.0, "{kept} buffers for {ROWS} rows beside {mode:?}");
        open.commit().unwrap();
        // What was kept goes in slices, and then a commit looks at what the one before has left, and no more.
        (0..COMMITS).for_each(|balance| set_balance(&mut worker, &accounts, ROWS, balance as i64));
        let kept = bank.metric("undo_buffers_kept");
        assert!(kept <= 2.0, "{kept} buffers are left of {mode:?}");
        let walked = steps(&bank, || (0..100).for_each(|balance| set_balance(&mut worker, &accounts, ROWS, balance)));
        assert!(walked <= 400.0, "{walked} steps for 100 commits after {mode:?}");
    }
}
