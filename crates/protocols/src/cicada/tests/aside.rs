//! Transactions whose clients do nothing between two operations, while everything that others leave behind is given back and used again.

use polychron_engine::lazy::LazyHost;
use polychron_engine::{Direction, Projection, Transaction, Worker, catalog};

use super::*;
use crate::cicada::CicadaTransaction;
use crate::cicada::kept::{Kept, OwnGuard};
use crate::cicada::options::Indexes;
use crate::cicada::worker::State;

type Tx<'w> = CicadaTransaction<'w>;
type Act = fn(&mut Tx<'_>, Tables) -> Result<(), Error>;

/// Rows 0, 10, … in four groups: enough that keys far from each other lie in different nodes.
const ROWS: u64 = 128;

#[derive(Clone, Copy)]
struct Tables {
    accounts: Table<Account>,
    notes: Table<Note>,
}

struct Stage {
    database: Arc<Cicada>,
    tables: Tables,
    others: CicadaWorker,
}

fn account(id: u64) -> Account {
    Account { id, group: (id / 10 % 4) as u16, balance: 0 }
}

impl Stage {
    /// A database whose garbage is given back at once.
    fn new(indexes: &Indexes) -> Self {
        let database = open(|options| {
            (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
            (options.indexes, options.clock_boost) = (indexes.clone(), Duration::ZERO);
        });
        let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
        let notes = Table::from_id(database.create_table(Note::definition()).unwrap());
        let mut others = database.worker().unwrap();
        done(&mut others, |t| {
            (0..ROWS).try_for_each(|id| t.insert(&accounts, &account(10 * id)))?;
            (0..ROWS).try_for_each(|id| t.insert(&notes, &Note { id, text: "short".to_owned() }))
        });
        let mut stage = Self { database, tables: Tables { accounts, notes }, others };
        stage.pass();
        stage
    }

    /// Time passes and epochs go by, and what others have left behind is given back.
    fn pass(&mut self) {
        self.database.shared.clocks.pass_time(2_000_000);
        for _ in 0..4 {
            self.database.tick();
            self.database.shared.base.memory.epochs().advance();
            self.others.maintain();
        }
    }

    /// Others insert and delete, so that slots and blocks that were given back are reused.
    fn use_again(&mut self) {
        let Tables { accounts, notes } = self.tables;
        for round in 0..3 {
            for id in 1000..1032 {
                done(&mut self.others, |t| {
                    t.insert(&accounts, &Account { id: 10 * id, group: 7, balance: -1 })?;
                    t.insert(&notes, &Note { id, text: "used again ".repeat(id as usize % 7) })
                });
            }
            self.pass();
            if round < 2 {
                (1000..1032).for_each(|id| {
                    done(&mut self.others, |t| Ok(t.delete(&accounts, 10 * id)? && t.delete(&notes, id)?));
                });
                self.pass();
            }
        }
    }
}

/// Whether what was kept is refused.
fn is_refused(kept: Kept, guard: &OwnGuard<'_>) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kept.under(guard).address())).is_err()
}

/// What a transaction has found is looked at only while something keeps it: a record while its guard is in the same epoch, and with a row that was read
/// there while it holds its timestamp.
#[test]
fn what_is_not_kept_is_refused() {
    let stage = Stage::new(&Indexes::default());
    let mut idle = stage.database.worker().unwrap();
    let mut open = idle.begin_in_epoch(Mode::ReadWrite).unwrap();
    let tables = open.state.base.tables.keep();
    let store = &catalog::get(&tables, stage.tables.accounts.id()).unwrap().primary;
    let found = open.guard.find_anew(store, 10u64.to_be_bytes().as_slice()).expect("the row is there");
    let record = found.under(&open.guard);
    let row = open.guard.row_in(record, &open.guard.search(record, None, true)).expect("it is a row");
    let row = open.guard.keep_row(row).record();
    assert!(!is_refused(found, &open.guard) && !is_refused(row, &open.guard));
    open.guard.stand_aside();
    assert!(is_refused(found, &open.guard) && !is_refused(row, &open.guard), "it stands aside");
    stage.database.shared.base.memory.epochs().advance();
    let State { base, stays, .. } = &mut *open.state;
    let has_stayed = open.guard.come_back(base, stays);
    assert!(is_refused(found, &open.guard) != has_stayed && !is_refused(row, &open.guard));
    open.guard.end();
    assert!(is_refused(found, &open.guard) && is_refused(row, &open.guard), "it has ended");
}

/// One that has only looked at rows without protection may begin again, and has nothing left then that an epoch or its earlier timestamp kept.
#[test]
fn one_that_begins_again_may_leave_its_epoch() {
    let mut stage = Stage::new(&Indexes::default());
    let mut idle = stage.database.worker().unwrap();
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    let (accounts, key) = (stage.tables.accounts, 10u64.to_be_bytes());
    assert!(open.read_row_unvalidated(accounts.id(), &key[..], &Projection::ALL).unwrap().is_some());
    Cicada::resolving(&mut open).unwrap();
    let epoch = open.guard.epoch();
    stage.pass();
    assert_eq!(open.get_owned(&accounts, 10).unwrap(), Some(account(10)));
    assert!(open.guard.epoch() > epoch, "it was not asked to leave");
    open.commit().unwrap();
}

/// Whether a transaction commits that does `first` and, after others have acted, `then`; whether or not it had to leave its epoch.
fn commits(indexes: &Indexes, leaves: bool, first: Act, act: Act, then: Act) -> bool {
    let mut stage = Stage::new(indexes);
    let mut idle = stage.database.worker().unwrap();
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    first(&mut open, stage.tables).unwrap();
    let epoch = open.guard.epoch();
    let mut worker = stage.database.worker().unwrap();
    done(&mut worker, |t| act(t, stage.tables));
    drop(worker);
    // The horizon passes it in any case.
    stage.database.shared.clocks.pass_time(2_000_000);
    (0..3).for_each(|_| while !stage.database.shared.clocks.lead() {});
    if leaves {
        stage.pass();
        stage.use_again();
    }
    let went_on = then(&mut open, stage.tables);
    assert!(went_on.is_err() || !leaves || open.guard.epoch() > epoch, "the transaction was not asked to leave");
    let committed = went_on.and_then(|()| open.commit()).is_ok();
    // The indexes and the rows stand together.
    let accounts = stage.tables.accounts;
    let (all, grouped) = done(&mut stage.others, |t| {
        let all = t.scan(&accounts, ..).count()?;
        let groups = [0, 1, 2, 3, 7].into_iter().map(|group| t.scan_by(&accounts, Account::BY_GROUP, group).count());
        Ok((all, groups.sum::<Result<_, Error>>()?))
    });
    assert_eq!(all, grouped);
    committed
}

fn both(name: &str, expected: bool, first: Act, act: Act, then: Act) {
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        for leaves in [false, true] {
            assert_eq!(commits(&indexes, leaves, first, act, then), expected, "{name}, {indexes:?}, leaves: {leaves}");
        }
    }
}

/// The same of transactions that insert: in multi-version indexes they may meet others in the nodes above.
fn inserting(name: &str, expected: bool, first: Act, act: Act, then: Act) {
    for leaves in [false, true] {
        let committed = commits(&Indexes::SingleVersion, leaves, first, act, then);
        assert_eq!(committed, expected, "{name}, leaves: {leaves}");
        let committed = commits(&Indexes::MultiVersion, leaves, first, act, then);
        assert!(expected || !committed, "{name}, multi-version, leaves: {leaves}");
    }
}

/// A write of its own, so that it commits at a later timestamp.
fn write(t: &mut Tx<'_>, on: Tables) -> Result<(), Error> {
    t.update(&on.notes, 0, |row| row.set_text("mine").unwrap()).map(drop)
}

fn add(t: &mut Tx<'_>, on: Tables, id: u64) -> Result<(), Error> {
    t.insert(&on.accounts, &account(id))
}

fn change(t: &mut Tx<'_>, on: Tables, id: u64) -> Result<(), Error> {
    t.update(&on.accounts, id, |row| row.set_balance(row.balance() + 1)).map(drop)
}

fn delete(t: &mut Tx<'_>, on: Tables, id: u64) -> Result<(), Error> {
    t.delete(&on.accounts, id).map(|deleted| assert!(deleted))
}

fn miss(t: &mut Tx<'_>, on: Tables, id: u64) -> Result<(), Error> {
    t.get(&on.accounts, id).map(|row| assert!(row.is_none()))
}

fn see(t: &mut Tx<'_>, on: Tables, id: u64) -> Result<(), Error> {
    t.get(&on.accounts, id).map(|row| assert_eq!(row.unwrap().balance(), 0))
}

/// Changes many rows far away, and as many keys, so that nodes are divided.
fn act_far_away(t: &mut Tx<'_>, on: Tables) -> Result<(), Error> {
    (1201..1209).try_for_each(|id| add(t, on, id))?;
    (120..124).try_for_each(|id| change(t, on, 10 * id))
}

/// Inserts many keys beside one, which divides its node.
fn divide(t: &mut Tx<'_>, on: Tables) -> Result<(), Error> {
    (100..180).filter(|id| id % 10 != 0 && *id != 155).try_for_each(|id| add(t, on, id))
}

#[test]
fn what_was_read_must_be_as_it_was() {
    let read = |t: &mut Tx<'_>, on: Tables| see(t, on, 50);
    both("read", true, read, act_far_away, write);
    both("read and changed", false, read, |t, on| change(t, on, 50), write);
    both("read and deleted", false, read, |t, on| delete(t, on, 50), write);
    both("read again", true, read, act_far_away, |t, on| {
        see(t, on, 50)?;
        write(t, on)
    });
    // What it saw at its timestamp stands together, whatever came later.
    both("only read", true, read, |t, on| change(t, on, 50), |t, on| see(t, on, 60));
    both("only read, deleted", true, read, |t, on| delete(t, on, 50), |t, on| see(t, on, 60));
}

#[test]
fn what_was_missed_must_be_absent() {
    let miss_it = |t: &mut Tx<'_>, on: Tables| miss(t, on, 155);
    both("missed", true, miss_it, act_far_away, write);
    both("missed and inserted", false, miss_it, |t, on| add(t, on, 155), write);
    // A stamp does not tell what came beside, or later; a second look does. At the transaction's own timestamp leaves do.
    for leaves in [false, true] {
        for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
            let is_versioned = indexes == Indexes::MultiVersion;
            let insert = |t: &mut Tx<'_>, on: Tables| add(t, on, 155);
            let only_missed = commits(&indexes, leaves, miss_it, insert, |t, on| see(t, on, 60));
            assert!(only_missed || !leaves && !is_versioned, "{indexes:?}, {leaves}");
            let committed = commits(&indexes, leaves, miss_it, divide, write);
            assert!(committed != is_versioned || !leaves && !committed, "{indexes:?}, {leaves}");
        }
    }
}

#[test]
fn what_was_scanned_must_be_as_it_was() {
    let scan = |t: &mut Tx<'_>, on: Tables| {
        assert_eq!(t.scan(&on.accounts, 95..145).count()?, 5);
        Ok(())
    };
    both("scanned", true, scan, act_far_away, write);
    both("inserted within", false, scan, |t, on| add(t, on, 101), write);
    both("changed within", false, scan, |t, on| change(t, on, 100), write);
    both("deleted within", false, scan, |t, on| delete(t, on, 100), write);
    let replace = |t: &mut Tx<'_>, on: Tables| {
        delete(t, on, 100)?;
        add(t, on, 101)
    };
    both("replaced within", false, scan, replace, write);
    assert!(commits(&Indexes::SingleVersion, true, scan, replace, |t, on| see(t, on, 60)), "at its own timestamp");
    let by_group = |t: &mut Tx<'_>, on: Tables| {
        assert_eq!(t.scan_by(&on.accounts, Account::BY_GROUP, 1).count()?, 32);
        Ok(())
    };
    both("by a secondary index", false, by_group, |t, on| add(t, on, 1051), write);
    both("by a secondary index, elsewhere", true, by_group, |t, on| change(t, on, 1200), write);
    // Behind the row at which it stopped.
    for (direction, expected) in [(Direction::Forward, true), (Direction::Backward, false)] {
        let first: Act = match direction {
            Direction::Forward => |t, on| t.scan(&on.accounts, ..).limit(3).count().map(drop),
            Direction::Backward => |t, on| t.scan(&on.accounts, ..).rev().limit(3).count().map(drop),
        };
        let committed = commits(&Indexes::SingleVersion, true, first, |t, on| add(t, on, 1275), write);
        assert_eq!(committed, expected, "{direction:?}");
    }
}

/// Own writes in the range of a scan hide what lies under them; what comes there besides is found.
#[test]
fn a_range_with_own_writes_is_searched_again() {
    let scan = |t: &mut Tx<'_>, on: Tables| {
        change(t, on, 100)?;
        delete(t, on, 110)?;
        add(t, on, 111)?;
        t.upsert(&on.accounts, &account(120))?;
        assert_eq!(t.scan(&on.accounts, 95..145).count()?, 5);
        t.delete(&on.accounts, 130).map(drop)
    };
    inserting("own writes", true, scan, act_far_away, nothing_but_look);
    inserting("own writes, and an insertion", false, scan, |t, on| add(t, on, 112), nothing_but_look);
    inserting("own writes, and the same", false, scan, |t, on| add(t, on, 111), nothing_but_look);
}

fn nothing_but_look(t: &mut Tx<'_>, on: Tables) -> Result<(), Error> {
    see(t, on, 60)
}

#[test]
fn own_writes_stay() {
    let insert = |t: &mut Tx<'_>, on: Tables| add(t, on, 155);
    inserting("inserted", true, insert, act_far_away, nothing_but_look);
    inserting("inserted twice", false, insert, insert, nothing_but_look);
    let update = |t: &mut Tx<'_>, on: Tables| change(t, on, 50);
    both("updated", true, update, act_far_away, update);
    both("updated twice", false, update, update, nothing_but_look);
    let remove = |t: &mut Tx<'_>, on: Tables| delete(t, on, 50);
    inserting("deleted", true, remove, act_far_away, |t, on| miss(t, on, 50));
    both("deleted twice", false, remove, remove, nothing_but_look);
    inserting("deleted and inserted", true, remove, act_far_away, |t, on| add(t, on, 50));
    assert!(commits(&Indexes::SingleVersion, true, insert, divide, nothing_but_look), "a node was divided");
    let put = |t: &mut Tx<'_>, on: Tables| {
        t.upsert(&on.notes, &Note { id: 3, text: "put".to_owned() })?;
        t.upsert(&on.notes, &Note { id: 3000, text: "put".to_owned() })
    };
    inserting("put", true, put, act_far_away, nothing_but_look);
    let put_too = |t: &mut Tx<'_>, on: Tables| t.upsert(&on.notes, &Note { id: 3, text: "theirs".to_owned() });
    assert!(commits(&Indexes::SingleVersion, true, put, put_too, nothing_but_look), "a blind write observes nothing");
}

/// An insertion that is undone, or deleted again, has shown that its key was absent.
#[test]
fn undone_insertions_are_remembered() {
    let insert = |t: &mut Tx<'_>, on: Tables| {
        t.mark()?;
        add(t, on, 155)
    };
    let undo = |t: &mut Tx<'_>, on: Tables| {
        t.undo_unchecked(0)?;
        write(t, on)
    };
    let insert_too = |t: &mut Tx<'_>, on: Tables| add(t, on, 155);
    inserting("undone", true, insert, act_far_away, undo);
    inserting("undone, inserted by others", false, insert, insert_too, undo);
    let take_back = |t: &mut Tx<'_>, on: Tables| {
        delete(t, on, 155)?;
        write(t, on)
    };
    inserting("deleted again", true, insert, act_far_away, take_back);
    inserting("deleted again, inserted by others", false, insert, insert_too, take_back);
}

/// What was read without validation is no observation, and what is returned by a transaction that is rolled back is one.
#[test]
fn only_observations_are_searched_again() {
    let peek = |t: &mut Tx<'_>, on: Tables| {
        assert!(t.read_row_unvalidated(on.accounts.id(), Key8::new(155, 8), &Projection::ALL)?.is_none());
        Ok(())
    };
    both("not validated", true, peek, |t, on| add(t, on, 155), write);
    for leaves in [false, true] {
        let mut stage = Stage::new(&Indexes::SingleVersion);
        let (mut early, mut idle) = (stage.database.worker().unwrap(), stage.database.worker().unwrap());
        let mut earlier = early.begin(Mode::ReadWrite).unwrap();
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        miss(&mut open, stage.tables, 155).unwrap();
        add(&mut earlier, stage.tables, 155).unwrap();
        earlier.commit().unwrap();
        if leaves {
            stage.pass();
        }
        assert!(!open.roll_back(), "an earlier transaction has inserted it");
    }
}

/// A row that the client was handed stays, whatever others do: also when an earlier transaction has replaced it.
#[test]
fn a_row_in_hand_stays() {
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        let mut stage = Stage::new(&indexes);
        let (mut early, mut idle) = (stage.database.worker().unwrap(), stage.database.worker().unwrap());
        let mut earlier = early.begin(Mode::ReadWrite).unwrap();
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        let row = open.read_row(stage.tables.accounts.id(), Key8::new(50, 8), &Projection::ALL).unwrap().unwrap();
        let bytes = row.as_bytes().to_vec();
        change(&mut earlier, stage.tables, 50).unwrap();
        earlier.commit().unwrap();
        let accounts = stage.tables.accounts;
        for round in 0..8 {
            done(&mut stage.others, |t| t.update(&accounts, 50, |row| row.set_balance(100 + round)).map(drop));
            stage.pass();
        }
        stage.use_again();
        assert_eq!(row.as_bytes(), bytes, "the version has served again");
        assert!(write(&mut open, stage.tables).and_then(|()| open.commit()).is_err(), "what it read has changed");
    }
}

/// A record without a row leaves its index while the client does nothing, and its slot serves another key.
#[test]
fn the_slot_of_a_record_that_was_missed_is_reused() {
    for inserted in [false, true] {
        let mut stage = Stage::new(&Indexes::SingleVersion);
        let (accounts, mut idle) = (stage.tables.accounts, stage.database.worker().unwrap());
        done(&mut stage.others, |t| t.delete(&accounts, 50));
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        miss(&mut open, stage.tables, 50).unwrap();
        assert!(open.state.sets.reads.has_absent(), "its record was still there");
        stage.pass();
        stage.use_again();
        if inserted {
            done(&mut stage.others, |t| t.insert(&accounts, &account(50)));
        }
        write(&mut open, stage.tables).unwrap();
        assert_eq!(open.commit().is_ok(), !inserted);
    }
}

/// Keys that are asked for in one epoch are looked up in another one, and what was noted for promotion is left alone.
#[test]
fn hints_and_notes_are_good_for_an_epoch() {
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        let mut stage = Stage::new(&indexes);
        let Tables { accounts, notes } = stage.tables;
        // Their rows lie outside of the heads, which become free.
        done(&mut stage.others, |t| {
            (1..9).try_for_each(|id| t.update(&notes, id, |row| row.set_text("again").unwrap()).map(drop))
        });
        stage.pass();
        // Rows that are read for the second time are worth moving.
        done(&mut stage.others, |t| (1..9).try_for_each(|id| t.get(&notes, id).map(drop)));
        let mut idle = stage.database.worker().unwrap();
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        for id in 1..9 {
            open.prefetch(&notes, id);
            open.prefetch(&accounts, 10 * id);
        }
        for id in 1..5 {
            assert_eq!(open.get(&notes, id).unwrap().unwrap().text(), "again");
        }
        assert!(!open.state.promotions.is_empty() && open.state.base.hints.any());
        for text in ["others'", "theirs again"] {
            done(&mut stage.others, |t| {
                (1..9).try_for_each(|id| t.update(&notes, id, |row| row.set_text(text).unwrap()).map(drop))
            });
            stage.pass();
        }
        stage.use_again();
        for id in 1..9 {
            assert_eq!(open.get(&notes, id).unwrap().unwrap().text(), "again", "it reads as of its timestamp");
            see(&mut open, stage.tables, 10 * id).unwrap();
        }
        open.commit().unwrap();
    }
}

/// A table that is dropped beside a transaction stays for it, and goes with it; also when it is leaked.
#[test]
fn a_dropped_table_stays_for_a_client_that_does_nothing() {
    for leaks in [false, true] {
        let mut stage = Stage::new(&Indexes::SingleVersion);
        let Tables { accounts, notes } = stage.tables;
        let mut idle = stage.database.worker().unwrap();
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        open.insert(&notes, &Note { id: 500, text: "mine".to_owned() }).unwrap();
        see(&mut open, stage.tables, 50).unwrap();
        let table = Arc::downgrade(
            polychron_engine::catalog::known(&stage.database.shared.base.catalog.snapshot().1, accounts.id()).unwrap(),
        );
        stage.database.drop_table(accounts.id()).unwrap();
        for id in 1000..1100 {
            done(&mut stage.others, |t| t.insert(&notes, &Note { id, text: "others'".to_owned() }));
        }
        stage.pass();
        see(&mut open, stage.tables, 60).unwrap();
        miss(&mut open, stage.tables, 61).unwrap();
        assert!(table.upgrade().is_some());
        if leaks {
            std::mem::forget(open);
            stage.pass();
            done(&mut idle, |t| t.get(&notes, 1).map(|row| assert!(row.is_some())));
        } else {
            open.commit().unwrap();
        }
        stage.pass();
        assert!(table.upgrade().is_none(), "nobody still uses the table");
    }
}

/// However often a transaction leaves its epoch, each read and write is looked at once for it.
#[test]
fn leaving_an_epoch_looks_at_what_came_since() {
    let stage = Stage::new(&Indexes::SingleVersion);
    let tables = stage.tables;
    let operations = scaled(400, 40) as u64;
    let mut idle = stage.database.worker().unwrap();
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    let mut epochs = 0;
    for number in 0..operations {
        let epoch = open.guard.epoch();
        match number % 4 {
            0 => see(&mut open, tables, 10 * (60 + number % 60)).unwrap(),
            1 => miss(&mut open, tables, 5 + 10 * number).unwrap(),
            2 => add(&mut open, tables, 10_005 + 10 * number).unwrap(),
            _ => change(&mut open, tables, 10 * (number % 60)).unwrap(),
        }
        epochs += u64::from(open.guard.epoch() > epoch);
        stage.database.shared.base.memory.epochs().advance();
    }
    let sets = &open.state.sets;
    assert!(epochs > operations / 2, "it left {epochs} epochs in {operations} operations");
    // An operation reads and writes a few records, those of secondary entries among them.
    assert!(sets.steps as u64 <= 8 * operations, "{} steps for {operations} operations", sets.steps);
    open.commit().unwrap();
}

/// What transactions have seen, short ones and long ones, does not wait for the longest one beside them.
#[test]
fn what_transactions_see_is_given_back_behind_them() {
    let hour = Duration::from_secs(3600);
    let all = [Mode::Snapshot, Mode::ReadWrite].map(|mode| [(mode, hour), (mode, Duration::ZERO)]);
    for (mode, pruning_after) in all.into_iter().flatten() {
        let database =
            open(|options| (options.collection_interval, options.pruning_after) = (Duration::ZERO, pruning_after));
        let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
        let [mut idle, mut short, mut others] = [(); 3].map(|()| database.worker().unwrap());
        let open = idle.begin(mode).unwrap();
        // The horizon passes it at the second look.
        for passed in [3 * hour, Duration::from_millis(2)] {
            database.shared.clocks.pass_time(passed.as_nanos() as u64);
            database.tick();
        }
        for id in 0..64 {
            done(&mut others, |t| t.insert(&accounts, &account(id)));
            database.tick();
            let mut reader = short.begin(Mode::ReadWrite).unwrap();
            see(&mut reader, Tables { accounts, notes: Table::from_id(accounts.id()) }, id).unwrap();
            assert!(done(&mut others, |t| t.delete(&accounts, id)));
            (0..2).for_each(|_| {
                // A long one is overtaken.
                let passed = if pruning_after == hour { Duration::ZERO } else { Duration::from_millis(2) };
                database.shared.clocks.pass_time(passed.as_nanos() as u64);
                database.tick();
                others.maintain();
            });
            drop(reader);
        }
        // Some of them are looked at in each round.
        for _ in 0..40 {
            database.tick();
            others.maintain();
        }
        let mut waiting = 0;
        database.shared.bins.go_round(true, |reclaimer| {
            waiting += reclaimer.held.len() + reclaimer.garbage.len();
            true
        });
        assert_eq!(waiting, 0, "records wait for a {mode:?} that never saw them");
        drop(open);
    }
}
