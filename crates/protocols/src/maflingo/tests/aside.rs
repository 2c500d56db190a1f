//! Transactions that stand aside for long: what they use stays, whatever becomes of it, and they go on as if they had not been away.

use polychron_base::Error;
use polychron_base::sizes::scaled;

use super::super::{MaflingoTransaction, MaflingoWorker};
use super::*;

/// A row that can outgrow its record, with a secondary index.
#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_code", columns(code))]
struct Note {
    #[key]
    id: u64,
    code: u64,
    #[column(max = 2000)]
    text: String,
}

fn note(id: u64, length: usize) -> Note {
    Note { id, code: id / 10, text: "n".repeat(length) }
}

struct Stage {
    database: std::sync::Arc<Maflingo>,
    notes: Table<Note>,
    worker: MaflingoWorker,
}

const ROWS: u64 = 200;

impl Stage {
    fn new() -> Self {
        let options =
            super::super::Options { epoch_interval: std::time::Duration::from_secs(3600), ..Default::default() };
        let database = <Maflingo>::open(options, Common::default()).unwrap();
        let notes = Table::from_id(database.create_table(Note::definition()).unwrap());
        let worker = Maflingo::worker(&database).unwrap();
        let mut stage = Self { database, notes, worker };
        // Without those that end in 7.
        stage.done(|t, notes| (0..ROWS).filter(|id| id % 10 != 7).try_for_each(|id| t.insert(notes, &note(id, 40))));
        stage.pass();
        stage
    }

    fn done(&mut self, act: impl FnOnce(&mut MaflingoTransaction<'_>, &Table<Note>) -> Result<(), Error>) {
        let mut transaction = self.worker.begin(Mode::ReadWrite).unwrap();
        act(&mut transaction, &self.notes).unwrap();
        transaction.commit().unwrap();
    }

    /// Epochs go by, and what can be freed is freed.
    fn pass(&mut self) {
        for _ in 0..24 {
            self.database.tick();
            self.worker.maintain();
        }
    }

    /// Others replace every row of a range, some at a time, so that all memory that is freed is used again: at first by rows of other sizes.
    fn churn(&mut self, ids: std::ops::Range<u64>) {
        for round in 0..scaled(6, 2) {
            for ids in ids.clone().collect::<Vec<_>>().chunks(16) {
                self.done(|t, notes| ids.iter().try_for_each(|&id| t.delete(notes, id).map(drop)));
                self.pass();
                let length = if round % 2 == 0 { 900 } else { 40 };
                self.done(|t, notes| {
                    ids.iter().filter(|id| *id % 10 != 7).try_for_each(|&id| t.insert(notes, &note(id, length)))
                });
            }
        }
        self.pass();
    }

    /// Bytes that are retired and wait, when an idle worker has done its own background work, too.
    fn retired(&mut self, idle: &mut MaflingoWorker) -> usize {
        for _ in 0..4 {
            self.database.tick();
            idle.maintain();
        }
        self.pass();
        self.database.statistics().memory.unwrap().retired_bytes
    }

    fn text(&mut self, id: u64) -> Option<usize> {
        let mut length = None;
        self.done(|t, notes| {
            length = t.get(notes, id)?.map(|row| row.text().len());
            Ok(())
        });
        length
    }
}

/// Whatever is deleted, replaced and reused beside it, a transaction that uses none of that commits, and finds its own writes in between.
#[test]
fn who_uses_other_rows_commits() {
    let mut stage = Stage::new();
    let (notes, mut idle) = (stage.notes, Maflingo::worker(&stage.database).unwrap());
    let mut t = idle.begin(Mode::ReadWrite).unwrap();
    assert!(t.get(&notes, 3).unwrap().is_some());
    assert!(t.get(&notes, 7).unwrap().is_none());
    t.update(&notes, 5, |row| row.set_code(900)).unwrap();
    t.insert(&notes, &note(17, 60)).unwrap();
    t.upsert(&notes, &note(9, 1500)).unwrap();
    assert!(t.delete(&notes, 11).unwrap());
    for _ in 0..2 {
        stage.churn(100..ROWS);
        assert_eq!(t.get(&notes, 17).unwrap().unwrap().text().len(), 60);
        assert_eq!(t.get(&notes, 9).unwrap().unwrap().text().len(), 1500);
        assert!(t.get(&notes, 11).unwrap().is_none());
        let savepoint = t.savepoint();
        t.insert(&notes, &note(27, 10)).unwrap();
        stage.churn(100..ROWS);
        t.roll_back_to(savepoint).unwrap();
    }
    t.commit().unwrap();
    assert_eq!((stage.text(17), stage.text(9), stage.text(11), stage.text(27)), (Some(60), Some(1500), None, None));
    assert_eq!(stage.retired(&mut idle), 0);
}

/// What it uses may be deleted, replaced and come back, in any of these ways: then it conflicts, and leaves nothing behind.
#[test]
fn who_uses_the_same_rows_conflicts() {
    type Act = fn(&mut MaflingoTransaction<'_>, &Table<Note>) -> Result<(), Error>;
    let acts: [Act; 6] = [
        |t, notes| t.get(notes, 103).map(drop),
        |t, notes| t.scan(notes, 110..140).count().map(drop),
        |t, notes| t.update(notes, 105, |row| row.set_code(900)).map(drop),
        |t, notes| t.upsert(notes, &note(109, 700)),
        |t, notes| t.delete(notes, 111).map(drop),
        |t, notes| t.insert(notes, &note(117, 60)),
    ];
    for (number, act) in acts.into_iter().enumerate() {
        for drops in [false, true] {
            let mut stage = Stage::new();
            let (notes, mut idle) = (stage.notes, Maflingo::worker(&stage.database).unwrap());
            let before = stage.database.statistics().memory.unwrap().used_bytes;
            let mut t = idle.begin(Mode::ReadWrite).unwrap();
            act(&mut t, &notes).unwrap();
            // Others insert the key that this one has inserted, too.
            stage.done(|t, notes| (107..ROWS).step_by(10).try_for_each(|id| t.insert(notes, &note(id, 30))));
            stage.churn(100..ROWS);
            if drops {
                drop(t);
            } else {
                let update = t.update(&notes, 1, |row| row.set_code(901));
                assert!(update.and_then(|_| t.commit()).is_err(), "act {number} commits on what has gone");
            }
            assert_eq!((stage.text(1), stage.text(117)), (Some(40), None));
            stage.churn(100..ROWS);
            assert_eq!(stage.retired(&mut idle), 0, "act {number}");
            let after = stage.database.statistics().memory.unwrap().used_bytes;
            assert!(after <= before + (32 << 10), "act {number}: {before} bytes before, and {after}");
        }
    }
}

/// A transaction that was leaked while it stood aside is undone, and what it used goes.
#[test]
fn leaked_ones_are_undone() {
    let mut stage = Stage::new();
    let (notes, mut idle) = (stage.notes, Maflingo::worker(&stage.database).unwrap());
    let mut t = idle.begin(Mode::ReadWrite).unwrap();
    t.insert(&notes, &note(117, 60)).unwrap();
    assert_eq!(t.scan(&notes, 110..140).count().unwrap(), 28);
    std::mem::forget(t);
    stage.churn(100..ROWS);
    assert_eq!(stage.retired(&mut idle), 0);
    assert_eq!(stage.text(117), None);
}
