//! How much is looked at to collect a version: counted, however many there are.

use polychron_base::room::{KeptList, ROOM};
use polychron_engine::Worker;

use super::*;
use crate::cicada::options::Indexes;
use crate::cicada::protocol::Extent;
use crate::cicada::reclaim::SLICE;

fn count(database: &Arc<Cicada>, name: &str) -> u64 {
    let MetricValue::Count(count) = metric(&database.statistics().metrics, name) else { panic!("{name}") };
    count
}

fn set(worker: &mut CicadaWorker, accounts: &Table<Account>, id: u64, balance: i64) {
    done(worker, |t| t.upsert(accounts, &Account { id, group: 0, balance }));
}

/// Versions of a row besides the latest, as they are counted for users.
fn extra_versions(database: &Arc<Cicada>) -> usize {
    let versions = database.versions().unwrap();
    versions.records.iter().enumerate().map(|(extra, &records)| extra * records as usize).sum()
}

/// A huge transaction, and garbage that piled up behind a snapshot, leave short lists with little room.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn the_room_of_a_backlog_is_freed() {
    const ROWS: u64 = 4 * ROOM as u64;
    let database = open(|options| {
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
    });
    let [mut writer, mut reader] = [database.worker().unwrap(), database.worker().unwrap()];
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let account = |id, balance| Account { id, group: 0, balance };
    done(&mut writer, |t| (0..ROWS).try_for_each(|id| t.insert(&accounts, &account(id, 0))));
    database.tick();
    let snapshot = reader.begin(Mode::Snapshot).unwrap();
    let mut huge = writer.begin(Mode::ReadWrite).unwrap();
    (0..ROWS).for_each(|id| assert!(huge.update(&accounts, id, |row| row.set_balance(1)).unwrap()));
    assert!(huge.state.sets.room() > 2 * ROOM);
    huge.commit().unwrap();
    assert!(database.shared.bins.room() > 2 * ROOM);
    // What the snapshot sees is put aside.
    for _ in 0..4 {
        database.tick();
        writer.maintain();
    }
    drop(snapshot);
    for _ in 0..4 {
        set(&mut writer, &accounts, 1, 2);
        database.tick();
        writer.maintain();
    }
    assert!(extra_versions(&database) <= 1);
    let state = &writer.state;
    let rooms = [state.sets.room(), state.garbage.room(), state.buffers.pending.room(), database.shared.bins.room()];
    assert!(rooms.iter().all(|&room| room <= ROOM), "{rooms:?}");
}

/// A row is written by two workers while nothing can be collected; then everything is, and each version is looked at a few times. So
/// it is where rows come and go.
#[test]
fn each_version_is_looked_at_a_few_times() {
    let rounds = scaled(4000, 100) as i64;
    for pruning_after in [Duration::ZERO, Duration::from_secs(3600)] {
        for deletes in [false, true] {
            let database = open(|options| {
                (options.collection_interval, options.pruning_after) = (Duration::ZERO, pruning_after);
            });
            let mut workers = [database.worker().unwrap(), database.worker().unwrap(), database.worker().unwrap()];
            let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
            let [left, right, reader] = &mut workers;
            set(left, &accounts, 1, 0);
            database.tick();
            let snapshot = reader.begin(Mode::Snapshot).unwrap();
            for round in 0..rounds {
                set(left, &accounts, 1, round);
                if deletes {
                    assert!(done(right, |t| t.delete(&accounts, 1)));
                } else {
                    set(right, &accounts, 1, round);
                }
            }
            let early = count(&database, "collected_versions");
            assert_eq!(early > 2, pruning_after == Duration::ZERO, "{early} versions beside the reader");
            drop(snapshot);
            (0..8).for_each(|_| database.tick());
            let (versions, steps) = (count(&database, "collected_versions"), count(&database, "collection_steps"));
            assert!(versions as i64 >= 2 * rounds - 4, "{versions} of {} were collected", 2 * rounds);
            assert!(steps <= 8 * versions, "{steps} steps for {versions} versions, deletions: {deletes}");
            assert!(extra_versions(&database) <= 1);
        }
    }
}

/// A worker whose transaction comes by where many versions of one row are garbage frees a slice of them, and the row stays one that others update and delete,
/// and whose table may be dropped.
#[test]
fn many_versions_of_a_row_are_freed_in_slices() {
    let updates = scaled(5 * SLICE as usize, 100) as i64;
    for what in ["nothing", "deleted", "dropped"] {
        let database = open(|options| {
            (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::from_secs(3600));
        });
        let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
        let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
        let [mut worker, mut reader] = [(); 2].map(|()| database.worker().unwrap());
        let used = database.memory().statistics().used_bytes;
        set(&mut worker, &accounts, 1, 0);
        let snapshot = reader.begin(Mode::Snapshot).unwrap();
        (0..updates).for_each(|balance| set(&mut worker, &accounts, 1, balance));
        drop(snapshot);
        let (early, mut all) = (count(&database, "collected_versions"), 0);
        for round in 0..12 {
            // The background leaves a bin to a worker that has come by since the last time.
            (0..2).for_each(|_| database.shared.tick(Extent::Some));
            done(&mut worker, |t| t.get(&notes, 1).map(drop));
            let now = count(&database, "collected_versions") - early;
            // Of this transaction, and of the one that has set a row since.
            assert!(now - all <= 2 * SLICE + 4, "{} versions at once", now - all);
            all = now;
            match (what, round) {
                ("deleted", 1) => assert!(done(&mut worker, |t| t.delete(&accounts, 1))),
                ("dropped", 1) => database.drop_table(accounts.id()).unwrap(),
                _ => set(&mut worker, &accounts, 2, round),
            }
            if what == "dropped" && round == 1 {
                break;
            }
        }
        (0..8).for_each(|_| database.tick());
        worker.local.collect();
        match what {
            "dropped" => {
                let left = database.memory().statistics().used_bytes.saturating_sub(used);
                assert!(left <= 64 << 10, "{left} bytes stay of a dropped table");
            }
            _ => {
                assert!(all as i64 >= updates - 2, "{all} of {updates}");
                assert!(extra_versions(&database) <= 1);
                let row = done(&mut worker, |t| Ok(t.get(&accounts, 1)?.map(|row| row.balance())));
                assert_eq!(row, (what != "deleted").then_some(updates - 1));
            }
        }
    }
}

/// What an idle worker has left behind others collect, and what it keeps for itself is nothing.
#[test]
fn garbage_of_an_idle_worker_is_everybodys() {
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        let database = open(|options| options.indexes = indexes.clone());
        let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
        let (mut idle, mut other) = (database.worker().unwrap(), database.worker().unwrap());
        (0..200).for_each(|id| set(&mut idle, &accounts, id, 1));
        (0..200).for_each(|id| set(&mut idle, &accounts, id, 2));
        done(&mut idle, |t| (0..100).try_for_each(|id| t.delete(&accounts, id).map(drop)));
        // The other worker's commits of the same rows do not depend on the idle one either.
        (100..200).for_each(|id| set(&mut other, &accounts, id, 3));
        (0..8).for_each(|_| database.shared.tick(Extent::Some));
        assert_eq!(extra_versions(&database), 0, "{indexes:?}");
        assert_eq!(database.versions().unwrap().records.iter().sum::<u64>(), 100, "{indexes:?}: deleted rows stay");
    }
}

/// Rows of a hundred keys come and go, with and without a reader that looks at an old timestamp: memory stays where it is.
#[test]
fn churn_on_a_few_keys_needs_no_more_memory() {
    let run = scaled(3000, 100) as u64;
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        for with_reader in [false, true] {
            let database = open(|options| {
                (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
                options.indexes = indexes.clone();
            });
            let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
            let (mut reader, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
            (0..100).for_each(|id| set(&mut worker, &accounts, id, 1));
            database.tick();
            let mut random = Random::stream(3, 3);
            let mut used = Vec::new();
            let mut snapshot = with_reader.then(|| reader.begin(Mode::Snapshot).unwrap());
            for round in 0..6 * run {
                let id = random.below(100);
                done(&mut worker, |t| {
                    if t.delete(&accounts, id)? {
                        return Ok(());
                    }
                    t.insert(&accounts, &Account { id, group: id as u16 % 7, balance: round as i64 })
                });
                if round % 64 == 0 {
                    database.shared.tick(Extent::Some);
                }
                if round % run == run - 1 {
                    if let Some(snapshot) = &mut snapshot {
                        let sum = snapshot.scan(&accounts, ..).map(|row| row.balance()).sum().unwrap();
                        assert_eq!(sum, 100, "what the reader sees stays");
                    }
                    (0..4).for_each(|_| database.tick());
                    worker.local.collect();
                    used.push(database.memory().statistics().used_bytes);
                }
            }
            assert!(used[5] <= used[1] + 64 * 1024, "{indexes:?}, {with_reader}: {used:?}");
        }
    }
}

/// Slots of deleted records wait for a transaction that is open; each is looked at once and not again with each that comes.
#[test]
fn places_that_wait_are_not_passed_again_and_again() {
    let database =
        open(|options| (options.collection_interval, options.overtaking_after) = (Duration::ZERO, Duration::ZERO));
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
    let rounds = scaled(2000, 60) as u64;
    let open = idle.begin(Mode::ReadWrite).unwrap();
    for id in 0..rounds {
        done(&mut worker, |t| t.insert(&accounts, &Account { id, group: 0, balance: 0 }));
        done(&mut worker, |t| t.delete(&accounts, id).map(drop));
        database.tick();
    }
    let steps = count(&database, "collection_steps");
    drop(open);
    assert!(steps <= 40 * rounds, "{steps} steps for {rounds} slots");
}

/// A page of which all slots are free stays as long as garbage names one of them: a thread that comes for it looks into the record's head.
#[test]
fn pages_wait_for_garbage_that_names_them() {
    let hour = Duration::from_secs(3600);
    let database = open(|options| (options.collection_interval, options.background_interval) = (hour, hour));
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut updates, mut deletes) = (database.worker().unwrap(), database.worker().unwrap());
    let pages = |worker: &mut CicadaWorker| {
        let transaction = worker.begin(Mode::ReadWrite).unwrap();
        transaction.state.base.tables.table(accounts.id()).unwrap().primary.records.pages()
    };
    let rows = scaled(500, 70) as u64;
    (0..rows).for_each(|id| set(&mut updates, &accounts, id, 1));
    // Each row leaves an item with the worker that updates it, and another one with the worker that deletes it.
    (0..rows).for_each(|id| set(&mut updates, &accounts, id, 2));
    (0..rows).for_each(|id| assert!(done(&mut deletes, |t| t.delete(&accounts, id))));
    let slot = updates.state.base.slot;
    let quiesce = |worker: &mut CicadaWorker| {
        for _ in 0..8 {
            database.tick();
            worker.maintain();
        }
    };
    let before = pages(&mut deletes);
    assert!(before > 0);
    {
        let shared = Arc::clone(&database.shared);
        let _at_work = shared.bins.of(slot).wait();
        quiesce(&mut deletes);
        assert_eq!(pages(&mut deletes), before, "what is being collected may name any place");
    }
    quiesce(&mut deletes);
    assert_eq!(pages(&mut deletes), 0, "nothing still names them");
}

/// A client pays for what it wrote, and not for a backlog that others left, or that a long reader held back: whatever waits, maintenance between two
/// transactions takes a bounded number of steps, even where each transaction is so slow that maintenance is due again behind it.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn a_backlog_is_worked_off_beside_transactions_and_not_in_their_place() {
    const ROWS: u64 = 10_000;
    for pruning_after in [Duration::ZERO, Duration::from_secs(3600)] {
        let database = open(|options| {
            (options.collection_interval, options.pruning_after) = (Duration::ZERO, pruning_after);
        });
        let [mut writer, mut reader] = [database.worker().unwrap(), database.worker().unwrap()];
        let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
        done(&mut writer, |t| (0..ROWS).try_for_each(|id| t.insert(&accounts, &Account { id, group: 0, balance: 0 })));
        database.tick();
        let snapshot = reader.begin(Mode::Snapshot).unwrap();
        (0..ROWS).for_each(|id| set(&mut writer, &accounts, id, 1));
        (0..ROWS).for_each(|id| assert!(done(&mut writer, |t| t.delete(&accounts, id))));
        drop(snapshot);
        let steps = || count(&database, "collection_steps");
        let (begun, mut most, mut transactions) = (steps(), 0, 0);
        // Of the background, epochs alone go on.
        while !database.shared.bins.are_empty() && transactions < 20 * ROWS {
            let before = steps();
            done(&mut writer, |t| t.get(&accounts, 1).map(drop));
            database.shared.base.memory.epochs().advance();
            most = most.max(steps() - before);
            transactions += 1;
        }
        let steps = steps() - begun;
        println!("{pruning_after:?}: {transactions} transactions, {steps} steps, {most} at most");
        assert!(database.shared.bins.are_empty(), "{transactions} transactions work the backlog off");
        assert!(most <= 1024, "{most} steps behind a transaction that wrote nothing");
        assert!(steps >= ROWS && steps <= 16 * transactions + 1024, "{steps} steps in {transactions} transactions");
    }
}
