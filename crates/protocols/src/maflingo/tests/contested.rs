//! Transactions that conflict again and again.

use std::sync::mpsc::channel;

use polychron_engine::contested::CONFLICTS_UNFAVOURED;
use polychron_engine::drive;

use super::*;

/// However often others are faster, a transaction that is run again commits after a bounded number of conflicts; rows at which it has not
/// conflicted are written meanwhile.
#[test]
fn who_is_overtaken_at_each_attempt_commits_soon() {
    let database = <Maflingo>::open(super::super::Options::default(), Common::default()).unwrap();
    let pairs = Table::<Pair>::from_id(database.create_table(Pair::definition()).unwrap());
    let pair = |id: u64| Pair { id, left: 0, right: 0 };
    let (mut unlucky, mut other) = (Maflingo::worker(&database).unwrap(), Maflingo::worker(&database).unwrap());
    let mut load =
        |t: &mut super::super::MaflingoTransaction<'_, NoRedo>| (0..8).try_for_each(|id| t.insert(&pairs, &pair(id)));
    drive::transact(&mut other, Mode::ReadWrite, &mut load).unwrap();
    let ((go, going), (overtaken, was_overtaken)) = (channel::<u64>(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for row in going {
                let mut write = |id: u64| {
                    let mut t = other.begin(Mode::ReadWrite).unwrap();
                    t.update(&pairs, id, |row| row.set_left(row.left() + 1)).unwrap();
                    t.commit().is_ok()
                };
                let has_overtaken = write(row);
                assert!(write(7), "nobody has conflicted at this row");
                overtaken.send(has_overtaken).unwrap();
            }
        });
        for round in 0..4 {
            let (mut attempts, mut last) = (0, true);
            // Two rows, at each of which it is overtaken in turns.
            let mut body = |t: &mut super::super::MaflingoTransaction<'_, NoRedo>| {
                attempts += 1;
                assert!(attempts <= 8 * CONFLICTS_UNFAVOURED, "it starves");
                for id in 0..2 {
                    t.get(&pairs, id)?;
                }
                go.send(attempts % 2).unwrap();
                last = was_overtaken.recv().unwrap();
                (0..2).try_for_each(|id| t.update(&pairs, id, |row| row.set_right(row.right() + 1)).map(drop))
            };
            drive::transact(&mut unlucky, Mode::ReadWrite, &mut body).unwrap();
            assert!(!last, "the other one is held up when it is favoured");
            assert!(attempts <= CONFLICTS_UNFAVOURED + 2, "{attempts} attempts");
            let mut reader = unlucky.begin(Mode::ReadWrite).unwrap();
            assert_eq!(reader.get(&pairs, 0).unwrap().unwrap().right(), round + 1);
            drop(reader);
            // The favour ended with the transaction.
            go.send(0).unwrap();
            assert!(was_overtaken.recv().unwrap());
        }
        drop(go);
    });
}

/// One that ends without a commit, or is leaked, is favoured no more.
#[test]
fn favour_ends_with_the_transaction() {
    let database = <Maflingo>::open(super::super::Options::default(), Common::default()).unwrap();
    let pairs = Table::<Pair>::from_id(database.create_table(Pair::definition()).unwrap());
    let (mut worker, mut other) = (Maflingo::worker(&database).unwrap(), Maflingo::worker(&database).unwrap());
    let write = |worker: &mut super::super::worker::MaflingoWorker| {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.upsert(&pairs, &Pair { id: 1, left: 0, right: 0 }).unwrap();
        t.commit().is_ok()
    };
    assert!(write(&mut other));
    for leaks in [false, true] {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.get(&pairs, 1).unwrap();
        assert!(write(&mut other));
        t.update(&pairs, 1, |row| row.set_left(5)).unwrap();
        assert!(t.commit().is_err());
        worker.back_off(CONFLICTS_UNFAVOURED);
        let t = worker.begin(Mode::ReadWrite).unwrap();
        assert!(!write(&mut other), "the row is left to who has conflicted there");
        if leaks {
            std::mem::forget(t);
            worker.tidy_up();
        } else {
            drop(t);
        }
        assert!(write(&mut other));
    }
    worker.back_off(CONFLICTS_UNFAVOURED);
    drop(worker);
    assert!(write(&mut other), "a worker that has gone is favoured no more");
}
