//! What is kept behind a transaction that may write and does nothing: what it sees, and what it will compare.

use polychron_base::room::ROOM;
use polychron_engine::drive;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::options::BeforeImages;
use super::*;

const COMMITS: i64 = scaled(4000, 1000) as i64;

/// Steps that some work takes.
fn steps(bank: &Bank, work: impl FnOnce()) -> f64 {
    let all = || {
        bank.metric("before_images_walked") + bank.metric("before_images_compared") + bank.metric("conditions_tested")
    };
    let before = all();
    work();
    all() - before
}

/// Whatever others commit, it holds back as many before-images as rows have changed, compares as many, and leaves no more.
#[test]
fn undo_memory_behind_an_idle_writer_is_what_it_sees() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
    (0..10).for_each(|id| set_balance(&mut worker, &accounts, id, 1));
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    open.insert(&accounts, &account(1000)).unwrap();
    let empty = Scan { lower: std::ops::Bound::Included(&[255]), ..Scan::all(accounts.id()) };
    assert_eq!(open.aggregate(&empty, Aggregate::Rows).unwrap(), Value::Unsigned(0));
    let of_all = steps(&bank, || {
        for balance in 0..COMMITS {
            set_balance(&mut worker, &accounts, balance as u64 % 10, balance);
            let kept = bank.metric("undo_buffers_kept");
            assert!(kept <= 300.0, "{kept} buffers behind {balance} commits");
        }
    });
    assert!(of_all <= 10.0 * COMMITS as f64, "{of_all} steps for {COMMITS} commits");
    let kept = (bank.metric("undo_buffers_kept"), bank.metric("undo_bytes"));
    assert!(kept.0 <= 14.0 && kept.1 <= 4096.0, "{kept:?} of ten rows");
    let of_commit = steps(&bank, || open.commit().unwrap());
    assert!(of_commit <= 200.0, "{of_commit} steps to compare ten rows");
    for number in 0..20 {
        let of_one = steps(&bank, || set_balance(&mut worker, &accounts, number % 10, 0));
        assert!(of_one <= 60.0, "{of_one} steps at one commit afterwards");
    }
    assert!(bank.metric("undo_buffers_kept") <= 2.0);
}

/// A thread that loses its processor between announcing a start and choosing it holds everything back. Lists that grew meanwhile are short
/// afterwards, and so is their room, in the database and in the worker that has drained them.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn the_room_of_a_backlog_is_freed() {
    let database = Hyper::open(Options::default(), Common::default()).unwrap();
    let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
    let bank = Bank { database, accounts };
    assert!(bank.once(|t| t.insert(&accounts, &account(1))));
    let (clock, slot, mut worker) = (&bank.database.shared.clock, 50, bank.worker());
    clock.enter(slot);
    clock.announce(slot, clock.latest());
    (0..4 * ROOM as i64).for_each(|balance| set_balance(&mut worker, &accounts, 1, balance));
    assert!(clock.history().room() > 2 * ROOM);
    clock.end(slot);
    let mut large = worker.begin(Mode::ReadWrite).unwrap();
    for balance in 0..ROOM as i64 {
        large.update(&accounts, 1, |row| row.set_balance(balance)).unwrap();
    }
    large.commit().unwrap();
    worker.maintain();
    set_balance(&mut worker, &accounts, 1, 0);
    assert!(bank.metric("undo_buffers_kept") <= 2.0);
    assert!(clock.history().room() <= ROOM, "{} commits", clock.history().room());
    assert!(worker.collector().buffers_room() <= ROOM, "{} buffers", worker.collector().buffers_room());
}

/// A change of a column meets any thread that has read it, though the before-image that is left of it is that of a change of another column.
#[test]
fn what_an_image_stands_for_is_compared() {
    for (changes_balance, stands) in [(true, false), (false, true)] {
        let options = Options { before_images: BeforeImages::Records, ..Options::default() };
        let database = Hyper::open(options, Common::default()).unwrap();
        let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
        let bank = Bank { database, accounts };
        assert!(bank.once(|t| t.insert(&accounts, &account(1))));
        let (mut idle, mut worker) = (bank.worker(), bank.worker());
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        open.get_columns(&accounts, 1, Account::BALANCE).unwrap();
        open.insert(&accounts, &account(1000)).unwrap();
        for number in 0..400 {
            let mut t = worker.begin(Mode::ReadWrite).unwrap();
            let is_changed = match number {
                1..100 if changes_balance => t.update(&accounts, 1, |row| row.set_balance(number)),
                _ => t.update(&accounts, 1, |row| row.set_credit(Some(number))),
            };
            assert!(is_changed.unwrap());
            t.commit().unwrap();
            if number == 0 {
                assert!(bank.once(|t| t.update(&accounts, 1, |row| row.set_owner(7)).map(drop)));
            }
        }
        assert_eq!(open.commit().is_ok(), stands);
    }
}

/// A row that was deleted, and is there again, meets any thread that has counted on nothing but that it is there; and so does one that went. A thread
/// that was told how many rows there are meets the latter alone.
#[test]
fn rows_that_went_behind_an_idle_writer_are_compared() {
    for (comes_back, counts) in [(false, false), (true, false), (false, true), (true, true)] {
        let look = |open: &mut HyperTransaction<'_>, accounts: &Table<Account>| {
            let rows = open.scan(accounts, ..);
            if counts { rows.count().unwrap() } else { rows.fold(0, |seen, _| seen + 1).unwrap() }
        };
        let bank = Bank::new(Backend::Rows);
        let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        assert_eq!(look(&mut open, &accounts), 10);
        open.insert(&accounts, &account(1000)).unwrap();
        set_balance(&mut worker, &accounts, 5, 3);
        for number in 0..300 {
            let mut t = worker.begin(Mode::ReadWrite).unwrap();
            assert!(t.delete(&accounts, 5).unwrap());
            t.commit().unwrap();
            if comes_back || number < 299 {
                let mut t = worker.begin(Mode::ReadWrite).unwrap();
                t.insert(&accounts, &account(5)).unwrap();
                t.commit().unwrap();
            }
        }
        (0..300).for_each(|balance| set_balance(&mut worker, &accounts, 1, balance));
        assert_eq!(look(&mut open, &accounts), 11);
        assert!(bank.metric("undo_buffers_kept") <= 10.0);
        let refusal = open.commit().err();
        assert_eq!(refusal.is_some_and(|error| error.is_conflict()), !(comes_back && counts), "it has seen that row");
    }
}

/// An open transaction that may write is in no epoch before its first operation and after any, and goes on in another one.
#[test]
fn an_idle_writer_is_in_no_epoch() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker, mut idle) = (bank.accounts, bank.worker(), bank.worker());
    let other = bank.database.create_table(Card::definition()).unwrap();
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    let mut savepoint = None;
    for operation in 0..14 {
        let epochs = bank.database.memory().epochs();
        let epoch = epochs.current();
        (0..3).for_each(|_| _ = epochs.advance());
        assert!(epochs.readonly() > epoch, "operation {operation} has left a pin");
        set_balance(&mut worker, &accounts, 1, operation);
        match operation {
            0 => assert!(open.get(&accounts, 2).unwrap().is_some()),
            1 => assert!(open.get_unvalidated(&accounts, 1).unwrap().is_some()),
            2 => assert_eq!(open.scan(&accounts, 2..).count().unwrap(), 8),
            3 => open.prefetch(&accounts, 3),
            4 => assert!(open.update(&accounts, 3, |row| row.set_balance(4)).unwrap()),
            5 => savepoint = Some(open.savepoint()),
            6 => open.insert(&accounts, &account(77)).unwrap(),
            7 => assert!(open.delete(&accounts, 4).unwrap()),
            8 => assert!(open.insert(&accounts, &account(3)).is_err()),
            9 => open.roll_back_to(savepoint.take().unwrap()).unwrap(),
            10 => open.upsert(&accounts, &account(6)).unwrap(),
            11 => assert_eq!(open.aggregate(&Scan::all(other), Aggregate::Rows).unwrap(), Value::Unsigned(0)),
            12 => assert!(open.update(&accounts, 7, |row| row.set_owner(9)).unwrap()),
            _ => bank.database.drop_table(other).unwrap(),
        }
    }
    open.commit().unwrap();
    assert!(bank.once(|t| {
        assert_eq!(t.get(&accounts, 3)?.map(|row| row.balance()), Some(4));
        assert_eq!(t.get(&accounts, 77)?.map(|row| row.id()), None);
        assert_eq!(t.scan_by(&accounts, Account::BY_OWNER, 9).count()?, 1);
        Ok(())
    }));
}

/// A thread that began before an index was added, and does nothing meanwhile, does not hold it up, and does not commit past it.
#[test]
fn an_idle_writer_does_not_hold_up_a_new_index() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut idle) = (bank.accounts, bank.worker());
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    open.insert(&accounts, &account(50)).unwrap();
    let index = polychron_engine::IndexDefinition::new("by_balance", [2]);
    let id = std::thread::scope(|scope| {
        let database = &bank.database;
        scope.spawn(move || database.create_index(accounts.id(), index).unwrap()).join().unwrap()
    });
    assert!(open.commit().is_err_and(|error| error.is_conflict()), "it has made no entry");
    assert!(bank.once(|t| t.insert(&accounts, &account(50))));
    assert!(bank.once(|t| {
        let (mut rows, scan) = (0, Scan { index: id, ..Scan::all(accounts.id()) });
        t.scan_rows(&scan, &mut |_| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        })?;
        assert_eq!(rows, 11);
        Ok(())
    }));
}

/// Ends the work of other threads, also when this one panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A number of account 0 may become 1 while that of account 1 is 0, and the other way round: the one by a transaction that stays open while
/// others change other columns of the row that it has read, the other one by short ones. They never become 1 both.
#[test]
fn long_and_short_transactions_exclude_each_other() {
    const ROUNDS: usize = scaled(30, 3);
    let options = Options { before_images: BeforeImages::Records, ..Options::default() };
    let database = Hyper::open(options, Common::default()).unwrap();
    let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
    let bank = Bank { database, accounts };
    assert!(bank.once(|t| (0..4).try_for_each(|id| t.insert(&accounts, &Account { balance: 0, ..account(id) }))));
    let balance = |t: &mut Tx<'_>, id| t.get_columns(&accounts, id, Account::BALANCE).map(Option::unwrap);
    let (over, commits) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let is_over = || over.load(Ordering::Acquire);
    let (mut stood, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let _over = Over(over);
        for thread in 0..2 {
            let bank = &bank;
            scope.spawn(move || {
                let (mut worker, mut number) = (bank.worker(), 0);
                while !is_over() {
                    number += 1;
                    let mut change = |t: &mut Tx<'_>| {
                        // Account 1 is locked by the long one.
                        t.update(&accounts, [0, 2, 3][number % 3], |row| match thread {
                            0 => row.set_credit(Some(number as i64)),
                            _ => row.set_owner(number as u32),
                        })
                    };
                    drive::transact(&mut worker, Mode::ReadWrite, &mut change).unwrap();
                    commits.fetch_add(1, Ordering::Release);
                }
            });
        }
        let pass = move |count: u64| {
            let until = commits.load(Ordering::Acquire) + count;
            while commits.load(Ordering::Acquire) < until && !is_over() {
                std::thread::yield_now();
            }
        };
        let bank = &bank;
        scope.spawn(move || {
            let mut worker = bank.worker();
            while !is_over() {
                pass(200);
                let mut set = |t: &mut Tx<'_>| {
                    if balance(t, 1)? == 0 {
                        t.update(&accounts, 0, |row| row.set_balance(1))?;
                    }
                    Ok::<_, Error>(())
                };
                drive::transact(&mut worker, Mode::ReadWrite, &mut set).unwrap();
            }
        });
        let (mut worker, mut long) = (bank.worker(), bank.worker());
        for _ in 0..ROUNDS {
            let mut reset = |t: &mut Tx<'_>| {
                let seen = (balance(t, 0)?, balance(t, 1)?);
                (0..2).try_for_each(|id| t.update(&accounts, id, |row| row.set_balance(0)).map(drop))?;
                Ok::<_, Error>(seen)
            };
            let seen = drive::transact(&mut worker, Mode::ReadWrite, &mut reset).unwrap();
            assert_ne!(seen, (1, 1), "each has seen that the other one was 0");
            let mut t = long.begin(Mode::ReadWrite).unwrap();
            if balance(&mut t, 0).unwrap() != 0 {
                continue;
            }
            let done = t.update(&accounts, 1, |row| row.set_balance(1)).is_ok();
            pass(400);
            if done && t.commit().is_ok() { stood += 1 } else { refused += 1 }
        }
    });
    println!("{stood} stood, {refused} were refused");
}
