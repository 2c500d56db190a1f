//! Insertions that are under way are tombstones to others, which may put their own row there.

use std::sync::Arc;

use polychron_base::sizes::scaled;
use polychron_engine::{Insertion, drive};

use super::super::MaflingoTransaction;
use super::super::aside::Kept;
use super::super::table;
use super::super::worker::MaflingoWorker;
use super::*;

type Tx<'t> = MaflingoTransaction<'t>;

fn open() -> (Arc<Maflingo>, Table<Pair>) {
    let options = super::super::Options { epoch_interval: std::time::Duration::from_secs(3600), ..Default::default() };
    let database = <Maflingo>::open(options, Common::default()).unwrap();
    let pairs = Table::from_id(database.create_table(Pair::definition()).unwrap());
    (database, pairs)
}

fn pair(id: u64) -> Pair {
    Pair { id, left: id, right: 0 }
}

fn quiesce(database: &Arc<Maflingo>, worker: &mut MaflingoWorker) {
    for _ in 0..4 {
        database.tick();
        worker.maintain();
    }
}

/// The record of the first write.
fn first_record(transaction: &Tx<'_>) -> Kept {
    transaction.state.sets.writes.get(0).record
}

/// Whichever of those that have inserted a key on one record gives up first, and whether or not one commits: the index is as small as
/// before.
#[test]
fn insertions_that_are_given_up_leave_the_index() {
    let (database, pairs) = open();
    let [mut first, mut second] = [(); 2].map(|()| database.worker().unwrap());
    for case in 0..8 {
        let (first_gives_up_first, commits, ticks) = (case & 1 == 0, case & 2 == 0, case & 4 == 0);
        let [mut inserter, mut other] = [&mut first, &mut second].map(|worker| worker.begin(Mode::ReadWrite).unwrap());
        inserter.insert(&pairs, &pair(1)).unwrap();
        other.insert(&pairs, &pair(1)).unwrap();
        assert_eq!(first_record(&inserter), first_record(&other), "both write one record");
        let end = |transaction: Tx<'_>, commits| {
            if commits {
                assert!(transaction.commit().is_ok(), "the other one has given up");
            } else {
                assert!(transaction.roll_back(), "no transaction has committed");
            }
            if ticks {
                database.tick();
            }
        };
        if first_gives_up_first {
            end(inserter, false);
            assert!(other.get(&pairs, 1).unwrap().is_some(), "an own row is where it was");
            end(other, commits);
        } else {
            end(other, false);
            end(inserter, commits);
        }
        quiesce(&database, &mut first);
        quiesce(&database, &mut second);
        assert_eq!(entries(&database, &pairs), usize::from(commits), "case {case}");
        if commits {
            assert!(drive::transact(&mut first, Mode::ReadWrite, &mut |t| t.delete(&pairs, 1)).unwrap());
            quiesce(&database, &mut first);
        }
        assert_eq!(entries(&database, &pairs), 0, "case {case}");
    }
}

/// A record that was given up may go by another way, and its memory serve the same key again, while a queue still has it: the insertion that
/// lies there then is not taken for the one that was given up.
#[test]
fn only_abandoned_insertions_are_unlinked() {
    let (database, pairs) = open();
    let mut worker = database.worker().unwrap();
    let mut inserter = worker.begin(Mode::ReadWrite).unwrap();
    inserter.insert(&pairs, &pair(1)).unwrap();
    let write = *inserter.state.sets.writes.get(0);
    let key = inserter.state.sets.writes.key_bytes(&write).to_vec();
    let (_, tables) = database.shared.base.catalog.snapshot();
    let store = super::super::versions::store_at(&tables, write.index_ref).unwrap();
    let clean = || {
        let mut reclaimer = super::super::reclaim::Reclaimer::default();
        database.shared.base.deferred_drops.with_guard(|guard| {
            let record = table::find(store, &key[..], guard).unwrap();
            reclaimer.push(super::super::reclaim::Tombstone::new(write.index_ref, &key, record, Tid::ZERO));
            reclaimer.step(&tables, 1, guard);
        });
    };
    clean();
    assert_eq!(entries(&database, &pairs), 1);
    assert!(inserter.get(&pairs, 1).unwrap().is_some());
    assert!(inserter.commit().is_ok(), "the background aborts no transaction");
    // What was given up and committed by another one stays, too.
    database.shared.base.deferred_drops.with_guard(|guard| table::find(store, &key[..], guard).unwrap().give_up());
    clean();
    assert_eq!(entries(&database, &pairs), 1);
}

/// Threads that insert the same keys in other orders, and so write each other's records, come to an end.
#[test]
fn keys_are_inserted_in_all_orders() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 8;
    let (database, pairs) = open();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let database = &database;
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                for round in 0..scaled(200, 20) as u64 {
                    let mut change = |t: &mut Tx<'_>| {
                        for key in 0..KEYS {
                            let id = if thread & 1 == 0 { (key + thread) % KEYS } else { KEYS - 1 - key };
                            if t.try_insert(&pairs, &pair(id))? != Insertion::Inserted {
                                assert!(t.delete(&pairs, id)?);
                            }
                        }
                        if round % 4 == 3 { Err(Error::RolledBack) } else { Ok(()) }
                    };
                    match drive::transact(&mut worker, Mode::ReadWrite, &mut change) {
                        Ok(()) | Err(Error::RolledBack) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut worker = database.worker().unwrap();
    let left = drive::transact(&mut worker, Mode::ReadWrite, &mut |t| t.scan(&pairs, ..).count()).unwrap();
    // An even number of commits has inserted and deleted each.
    let commits = THREADS * (0..scaled(200, 20) as u64).filter(|round| round % 4 < 3).count() as u64;
    assert_eq!(left, commits % 2 * KEYS);
    quiesce(&database, &mut worker);
    assert_eq!(entries(&database, &pairs) as u64, left);
}

/// A thread that conflicts over a key that had no row is told which one it was: the inserter that comes late, and a thread that has read the
/// insertion or a tombstone as absent.
#[test]
fn conflicts_name_keys_without_a_row() {
    let (database, pairs) = open();
    let [mut first, mut second] = [(); 2].map(|()| database.worker().unwrap());
    for deleted_before in [false, true] {
        for reads in [false, true] {
            let id = 1 + 2 * u64::from(deleted_before) + u64::from(reads);
            let mut other = |row: bool| {
                let change = &mut |t: &mut Tx<'_>| {
                    if row { t.insert(&pairs, &pair(id)) } else { t.delete(&pairs, id).map(drop) }
                };
                drive::transact(&mut second, Mode::ReadWrite, change).unwrap();
            };
            if deleted_before {
                other(true);
                other(false);
            }
            let mut transaction = first.begin(Mode::ReadWrite).unwrap();
            if reads {
                assert!(transaction.get(&pairs, id).unwrap().is_none());
                // The record that it has found or not is compared, too.
                transaction.upsert(&pairs, &pair(100 + id)).unwrap();
            } else {
                transaction.insert(&pairs, &pair(id)).unwrap();
            }
            other(true);
            assert!(transaction.commit().is_err());
            let abort = first.state.base.last_abort.unwrap();
            assert_eq!(abort.table, pairs.id());
            let key = abort.key.map(|key| key.bytes().to_vec());
            // Where there was no record the node alone tells, and does not know of keys.
            let expected = (deleted_before || !reads).then(|| id.to_be_bytes().to_vec());
            assert_eq!(key, expected, "{abort}");
        }
    }
}

/// A key that is deleted and inserted again and again beside a client that does nothing leaves a tombstone each time that was claimed when
/// the reclaimer came: those do not pile up.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn claimed_tombstones_do_not_pile_up_beside_an_idle_transaction() {
    const ROUNDS: usize = 30_000;
    let (database, pairs) = open();
    let [mut idle, mut deleter, mut inserter] = [(); 3].map(|()| database.worker().unwrap());
    let mut open = idle.begin(Mode::ReadWrite).unwrap();
    open.upsert(&pairs, &pair(2)).unwrap();
    let delete = |worker: &mut MaflingoWorker| {
        drive::transact(worker, Mode::ReadWrite, &mut |t| t.delete(&pairs, 1)).unwrap();
    };
    for _ in 0..ROUNDS {
        delete(&mut deleter);
        database.tick();
        let mut claiming = inserter.begin(Mode::ReadWrite).unwrap();
        claiming.insert(&pairs, &pair(1)).unwrap();
        // Its reclaimer comes between two transactions.
        drop(deleter.begin(Mode::ReadWrite).unwrap());
        assert!(claiming.commit().is_ok());
    }
    let (shared, own) = (database.shared.orphans.len(), deleter.state.reclaimer.len());
    assert!(own > 1000, "{own}: there are claimed ones");
    assert!(shared + own < ROUNDS / 2, "{shared} tombstones without an owner, {own} others");
    drop(open);
}
