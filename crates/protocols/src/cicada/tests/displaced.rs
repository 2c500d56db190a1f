//! Deleted rows that only old readers see: they are out of the way of others, and the readers find them.

use polychron_engine::Worker;

use super::*;
use crate::displaced_tests::{Stage, check, member, readers_find_what_was_displaced, rows_are_displaced_under_a_scan};

/// What can be collected is so at once, and the background is the test's.
fn stage(change: impl FnOnce(&mut Options)) -> Stage<Cicada> {
    let database = open(|options| {
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
        change(options);
    });
    Stage::new(
        database,
        |store| store.displaced.index(),
        |database, worker| {
            // The horizon passes an idle writer when its time has come.
            database.shared.clocks.pass_time(2_000_000);
            while !database.shared.clocks.min_wts().is_after(worker.last_timestamp()) {
                database.tick();
            }
            (0..8).for_each(|_| database.tick());
        },
    )
}

/// A queue beside an idle snapshot and an idle writer: the head of the index is the head of the queue.
#[test]
fn a_queue_beside_idle_readers_has_no_deleted_head() {
    let rows = scaled(600, 40) as u64;
    for mode in [Mode::Snapshot, Mode::ReadWrite] {
        let stage = stage(|_| ());
        let clocks = &stage.database.shared.clocks;
        let (mut idle, mut worker) = (stage.worker(), stage.worker());
        stage.fill(&mut worker, 0..rows);
        stage.database.tick();
        let mut open = idle.begin(mode).unwrap();
        // The horizon passes an idle writer when its time has come.
        clocks.pass_time(2_000_000);
        for tail in rows..3 * rows {
            clocks.pass_time(1000);
            stage.turn(&mut worker, tail - rows, tail);
        }
        for (there, beside) in stage.entries() {
            assert!(there as u64 <= rows + rows / 4, "{mode:?}: {there} entries for {rows} rows");
            // A few wait for the transaction that has just run, where the background looked meanwhile.
            assert!(beside as u64 <= rows + 8, "what came after the reader began is not kept for it: {beside}");
        }
        if mode == Mode::Snapshot {
            check(&mut open, &stage.members, &(0..rows).map(|id| (id, member(id).balance)).collect(), 3 * rows);
        } else {
            let stale = open.scan(&stage.members, ..).count();
            assert!(stale.is_err_and(|error| error.is_conflict()), "a writer so old conflicts");
        }
        drop(open);
        // A tick leaves to the background what that is at just now.
        let is_gone = || stage.entries().iter().all(|&counts| counts == (rows as usize, 0));
        for _ in 0..1000 {
            if !is_gone() {
                stage.database.tick();
            }
        }
        stage.has_rows_alone(rows as usize);
    }
}

#[test]
fn snapshots_find_what_was_displaced() {
    readers_find_what_was_displaced(&stage(|_| ()), 0, || ());
}

#[test]
fn rows_leave_under_a_scan() {
    rows_are_displaced_under_a_scan(|| stage(|_| ()));
}

/// Insertions that are given up beside an idle snapshot leave nothing in the index: nobody sees what never was.
#[test]
fn insertions_that_are_given_up_leave_the_index() {
    let rounds = scaled(400, 30) as u64;
    // A transaction that is overtaken writes at another timestamp, and may commit.
    let stage = stage(|options| options.overtaking_after = Duration::from_secs(3600));
    let (database, table) = (&stage.database, stage.members);
    let (mut idle, mut worker, mut loser) = (stage.worker(), stage.worker(), stage.worker());
    done(&mut worker, |t| t.insert(&table, &member(0)));
    database.tick();
    let mut snapshot = idle.begin(Mode::Snapshot).unwrap();
    assert_eq!(snapshot.scan(&table, ..).count().unwrap(), 1);
    let (mut used, mut refused, mut id) = (Vec::new(), 0, 0);
    while refused < 2 * rounds {
        id += 1;
        let mut given_up = loser.begin(Mode::ReadWrite).unwrap();
        given_up.insert(&table, &member(id)).unwrap();
        given_up.update(&table, 0, |row| row.set_balance(0)).unwrap();
        // Read later than it writes, if the clocks say so: found when its versions are installed.
        done(&mut worker, |t| t.get(&table, 0).map(|row| assert_eq!(row.unwrap().balance(), 1)));
        if given_up.commit().is_ok() {
            done(&mut worker, |t| {
                t.delete(&table, id)?;
                t.update(&table, 0, |row| row.set_balance(1)).map(drop)
            });
            continue;
        }
        refused += 1;
        database.tick();
        if refused % rounds == 0 {
            for _ in 0..4 {
                database.tick();
                Worker::maintain(&mut loser);
                Worker::maintain(&mut worker);
            }
            used.push(database.memory().statistics().used_bytes);
        }
    }
    let (there, beside) = stage.entries()[0];
    assert!(there <= 2 && beside == 0, "{there} entries, and {beside} beside");
    assert!(used[1] <= used[0] + 4096, "{used:?}");
    assert_eq!(snapshot.scan(&table, ..).map(|row| row.balance()).sum().unwrap(), 1);
}
