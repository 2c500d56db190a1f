//! Clients that have a transaction open and do nothing: what others see, and what becomes of it.

use polychron_base::Error;
use polychron_engine::{IndexDefinition, Worker};

use super::*;
use crate::cicada::options::{Consistency, Indexes, Snapshots};

fn accounts(database: &Arc<Cicada>, worker: &mut CicadaWorker) -> Table<Account> {
    let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
    done(worker, |t| (0..4).try_for_each(|id| t.insert(&accounts, &Account { id, group: 0, balance: 0 })));
    accounts
}

fn add(worker: &mut CicadaWorker, accounts: &Table<Account>, id: u64) {
    done(worker, |t| t.update(accounts, id, |row| row.set_balance(row.balance() + 1)).map(drop));
}

fn balance(worker: &mut CicadaWorker, accounts: &Table<Account>, mode: Mode, id: u64) -> i64 {
    let read =
        &mut |t: &mut super::super::CicadaTransaction<'_>| Ok::<_, Error>(t.get(accounts, id)?.unwrap().balance());
    drive::transact(worker, mode, read).unwrap()
}

/// A snapshot sees what its worker has committed, whichever others have a transaction open, by all kinds of clocks.
#[test]
fn a_snapshot_sees_its_workers_commits() {
    for (central_clock, consistency) in
        [(false, Consistency::Clock), (false, Consistency::Loose), (true, Consistency::Clock)]
    {
        let database = open(|options| (options.central_clock, options.consistency) = (central_clock, consistency));
        let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
        let accounts = accounts(&database, &mut worker);
        for with_idle in [false, true] {
            let open = with_idle.then(|| {
                let mut open = idle.begin(Mode::ReadWrite).unwrap();
                open.update(&accounts, 3, |row| row.set_balance(0)).unwrap();
                open
            });
            for _ in 0..scaled(200, 10) {
                add(&mut worker, &accounts, 0);
                let now = balance(&mut worker, &accounts, Mode::ReadWrite, 0);
                assert_eq!(balance(&mut worker, &accounts, Mode::Snapshot, 0), now);
            }
            drop(open);
        }
    }
}

/// A client that asks for what has become the past waits for nothing, and learns how old it is.
#[test]
fn a_snapshot_may_be_of_the_past() {
    let hour = Duration::from_secs(3600);
    let database = open(|options| {
        (options.snapshots, options.collection_interval) = (Snapshots::Settled, hour);
    });
    let mut worker = database.worker().unwrap();
    let accounts = accounts(&database, &mut worker);
    database.tick();
    add(&mut worker, &accounts, 0);
    database.shared.clocks.pass_time(5_000_000);
    assert_eq!(balance(&mut worker, &accounts, Mode::Snapshot, 0), 0);
    let stale = database.statistics();
    assert!(stale.staleness_max_us >= 5_000, "{stale:?}");
}

/// A transaction that was idle commits what it wrote, unless what it read has changed meanwhile.
#[test]
fn an_idle_writer_commits_unless_its_reads_have_changed() {
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        let database = open(|options| {
            // A worker that had a conflict is not ahead of the others.
            (options.indexes, options.clock_boost) = (indexes.clone(), Duration::ZERO);
        });
        let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
        let accounts = accounts(&database, &mut worker);
        for (touched, commits) in [(2, true), (0, false), (1, false)] {
            let mut open = idle.begin(Mode::ReadWrite).unwrap();
            let read = open.get(&accounts, 1).unwrap().unwrap().balance();
            open.update(&accounts, 0, |row| row.set_balance(row.balance() + read + 10)).unwrap();
            let begun = open.timestamp();
            for _ in 0..3 {
                add(&mut worker, &accounts, touched);
                balance(&mut worker, &accounts, Mode::Snapshot, touched);
            }
            assert!(database.shared.clocks.min_wts().is_after(begun), "the idle transaction holds the horizon");
            // What it reads is of one timestamp all the same.
            assert_eq!(open.get(&accounts, 1).unwrap().unwrap().balance(), read);
            let before = balance(&mut worker, &accounts, Mode::ReadWrite, 0);
            assert_eq!(open.commit().is_ok(), commits, "account {touched} was written");
            let after = balance(&mut worker, &accounts, Mode::ReadWrite, 0);
            assert_eq!(after, before + if commits { read + 10 } else { 0 });
        }
    }
}

/// Insertions of a transaction that was idle: its keys may have come into being, or have been looked for, meanwhile.
#[test]
fn an_idle_writer_inserts_unless_others_have() {
    let database = open(|_| ());
    let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
    let accounts = accounts(&database, &mut worker);
    for (id, by_others, commits) in [(10, false, true), (11, true, false)] {
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        let mine = Account { id, group: 1, balance: 1 };
        assert_eq!(open.try_insert(&accounts, &mine).unwrap(), Insertion::Inserted);
        done(&mut worker, |t| {
            // A later transaction misses the key, or makes it.
            assert!(t.get(&accounts, id)?.is_none());
            if by_others { t.insert(&accounts, &Account { balance: 2, ..mine.clone() }) } else { Ok(()) }
        });
        add(&mut worker, &accounts, 0);
        balance(&mut worker, &accounts, Mode::Snapshot, 0);
        assert_eq!(open.commit().is_ok(), commits);
        assert_eq!(balance(&mut worker, &accounts, Mode::ReadWrite, id), if by_others { 2 } else { 1 });
    }
}

/// One thread has two transactions open. The inner one commits, and the outer one afterwards, under every consistency.
#[test]
fn a_transaction_inside_a_transaction_commits() {
    for consistency in [Consistency::Loose, Consistency::Clock, Consistency::External] {
        let database = open(|options| options.consistency = consistency);
        let (mut outer, mut inner) = (database.worker().unwrap(), database.worker().unwrap());
        let accounts = accounts(&database, &mut inner);
        for _ in 0..scaled(20, 3) {
            let mut open = outer.begin(Mode::ReadWrite).unwrap();
            open.update(&accounts, 0, |row| row.set_balance(row.balance() + 1)).unwrap();
            add(&mut inner, &accounts, 1);
            let seen = balance(&mut inner, &accounts, Mode::Snapshot, 1);
            assert_eq!(seen, balance(&mut inner, &accounts, Mode::ReadWrite, 1));
            open.commit().unwrap();
        }
        assert_eq!(balance(&mut inner, &accounts, Mode::ReadWrite, 0), scaled(20, 3) as i64);
    }
}

/// An index cannot be filled while the very thread has a transaction open, and it gets an error.
#[test]
fn an_index_inside_a_transaction_is_refused() {
    let database = open(|_| ());
    let mut worker = database.worker().unwrap();
    let accounts = accounts(&database, &mut worker);
    let definition = || IndexDefinition { name: "another".into(), ..Account::definition().indexes[0].clone() };
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        let open = worker.begin(mode).unwrap();
        let refused = database.create_index(accounts.id(), definition());
        assert!(matches!(refused, Err(Error::WaitsForItself { .. })), "{refused:?}");
        drop(open);
    }
    worker.maintain();
    database.create_index(accounts.id(), definition()).unwrap();
}
