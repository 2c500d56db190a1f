//! Maflingo and GlobalTID, which are one protocol but for a shared counter.

use polychron_engine::mutations::{interrupt, left_out};
use polychron_engine::redo::{Change, Durability, Journal, Log, Order, Ticket};
use polychron_engine::stores;
use polychron_engine::{
    Commit, Common, Error, Insertion, Interactive, Mode, Operations, Protocol, Table, TableDefinition, Worker, drive,
};
use polychron_protocols::maflingo::{Maflingo, MaflingoTransaction, MaflingoWorker, Options, Point, Step};
use polychron_schema::{Index, Row};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Item {
    #[key]
    id: u64,
    value: i64,
}

/// A row that can outgrow its record.
#[derive(Row, Clone, Debug, PartialEq)]
struct Page {
    #[key]
    id: u64,
    #[column(max = 4000)]
    text: String,
}

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_code", columns(code), unique)]
struct Member {
    #[key]
    id: u64,
    code: u32,
}

/// A row that tells a reader that another transaction has committed: far from all ranges.
const FLAG: u64 = 1 << 40;

/// A database with a clock that the tests move.
struct Stage {
    database: Arc<Maflingo>,
    items: Table<Item>,
    pages: Table<Page>,
    members: Table<Member>,
}

impl Clone for Stage {
    fn clone(&self) -> Self {
        Self { database: Arc::clone(&self.database), ..*self }
    }
}

type Tx<'w> = MaflingoTransaction<'w>;

fn stage(rows: &[(u64, i64)]) -> Stage {
    let stage = Stage::open(rows, Journal::default(), 4096);
    stage.tick();
    stage.tick();
    stage
}

impl Stage {
    fn open(rows: &[(u64, i64)], journal: Journal, check_every: u32) -> Self {
        // Snapshots are of the epoch that the tests mean, whatever the tests' thread has committed.
        let options = Options {
            epoch_interval: Duration::from_secs(3600),
            check_every,
            own_commits: false,
            ..Options::default()
        };
        let memory = polychron_memory::Options {
            limit_bytes: Some(64 << 20),
            max_workers: 32,
            ..polychron_memory::Options::tiny()
        };
        let database = Maflingo::open(options, Common { memory, journal, ..Common::default() }).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let pages = Table::from_id(database.create_table(Page::definition()).unwrap());
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        let stage = Self { database, items, pages, members };
        let done = stage.once(|t| {
            rows.iter().try_for_each(|&(id, value)| t.insert(&items, &Item { id, value }))?;
            t.insert(&items, &Item { id: FLAG, value: 0 })?;
            t.insert(&pages, &Page { id: 1, text: "a page as it was".into() })?;
            t.insert(&members, &Member { id: 1, code: 1 })
        });
        assert!(done);
        // From the first snapshot on rows are kept that are overwritten.
        drop(stage.worker().begin(Mode::Snapshot));
        stage
    }

    fn worker(&self) -> MaflingoWorker {
        self.database.worker().unwrap()
    }

    /// One attempt at a transaction, by a worker of its own; whether it committed.
    fn once(&self, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) -> bool {
        let mut worker = self.worker();
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        let outcome = match body(&mut transaction) {
            Ok(()) => transaction.commit(),
            Err(error) => Err(error),
        };
        outcome.map_or_else(
            |stopped| {
                assert!(matches!(stopped, Error::Conflict), "{stopped:?}");
                false
            },
            |()| true,
        )
    }

    /// Ends the epoch; a tick that meets another one leaves the work to that one.
    fn tick(&self) {
        let before = self.database.memory().epochs().current();
        while self.database.memory().epochs().current() == before {
            self.database.tick();
        }
    }

    /// Whatever the background can do is done, by this worker.
    fn quiesce(&self, worker: &mut MaflingoWorker) {
        for _ in 0..4 {
            self.tick();
            worker.maintain();
        }
    }

    fn value(&self, id: u64) -> Option<i64> {
        let mut value = None;
        assert!(self.once(|t| {
            value = t.get(&self.items, id)?.map(|row| row.value());
            Ok(())
        }));
        value
    }

    fn set(&self, id: u64, value: i64) -> bool {
        self.once(|t| t.upsert(&self.items, &Item { id, value }))
    }

    fn add(&self, id: u64) -> bool {
        self.once(|t| t.update(&self.items, id, |row| row.set_value(row.value() + 1)).map(drop))
    }

    /// Plays: a transaction observes, then `other` writes there and raises the flag, then the transaction goes on and
    /// looks at the flag. It went wrong when the transaction commits on the old observation and the new flag.
    fn half_of_another<O: PartialEq>(
        &self,
        mut observe: impl FnMut(&mut Tx<'_>) -> Result<O, Error>,
        other: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
        go_on: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        let items = self.items;
        let mut seen = 0;
        let committed = self.once(|t| {
            observe(t)?;
            let wrote = self.once(|t| {
                other(t)?;
                t.upsert(&items, &Item { id: FLAG, value: 1 })
            });
            assert!(wrote, "nobody is in the other's way");
            go_on(t)?;
            seen = t.get(&items, FLAG)?.map_or(0, |row| row.value());
            Ok(())
        });
        committed && seen == 1
    }
}

fn present(t: &mut Tx<'_>, table: &Table<Item>, id: u64) -> Result<Option<i64>, Error> {
    Ok(t.get(table, id)?.map(|row| row.value()))
}

fn lost_update() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut other = false;
    let mine = stage.once(|t| {
        let before = present(t, &stage.items, 1)?.unwrap();
        other = stage.add(1);
        t.upsert(&stage.items, &Item { id: 1, value: before + 1 })
    });
    stage.value(1) != Some(10 + i64::from(mine) + i64::from(other))
}

/// Another transaction adds to a counter when this one's validation has passed.
fn lost_update_after_validation() -> bool {
    let stage = stage(&[(1, 10)]);
    let other = Rc::new(Cell::new(false));
    interrupt(Point::Validated, {
        let (stage, other) = (stage.clone(), Rc::clone(&other));
        move || other.set(stage.add(1))
    });
    let mine = stage.add(1);
    stage.value(1) != Some(10 + i64::from(mine) + i64::from(other.get()))
}

/// Another transaction adds to a counter while this one's read has copied the row, and not yet its id.
fn lost_update_while_reading() -> bool {
    let stage = stage(&[(1, 10)]);
    let other = Rc::new(Cell::new(false));
    interrupt(Point::Copied, {
        let (stage, other) = (stage.clone(), Rc::clone(&other));
        move || other.set(stage.add(1))
    });
    let mine = stage.add(1);
    stage.value(1) != Some(10 + i64::from(mine) + i64::from(other.get()))
}

fn insert_insert() -> bool {
    let stage = stage(&[]);
    let inserted = |t: &mut Tx<'_>, value| -> Result<bool, Error> {
        Ok(t.try_insert(&stage.items, &Item { id: 1, value })? == Insertion::Inserted)
    };
    let (mut by_me, mut by_other, mut other) = (false, false, false);
    let mine = stage.once(|t| {
        by_me = inserted(t, 1)?;
        other = stage.once(|t| {
            by_other = inserted(t, 2)?;
            Ok(())
        });
        Ok(())
    });
    mine && by_me && other && by_other
}

/// A blind write goes to a record that the row has left for a larger one.
fn write_to_a_record_that_moved() -> bool {
    let stage = stage(&[]);
    let page = |text: &str| Page { id: 1, text: text.into() };
    let mut grew = false;
    let mine = stage.once(|t| {
        t.upsert(&stage.pages, &page("mine"))?;
        grew = stage.once(|t| {
            assert_eq!(t.get(&stage.pages, 1)?.unwrap().text(), "a page as it was");
            t.upsert(&stage.pages, &page(&"long".repeat(100)))
        });
        Ok(())
    });
    let mut text = String::new();
    stage.once(|t| {
        text = t.get(&stage.pages, 1)?.unwrap().text().into();
        Ok(())
    });
    assert!(grew);
    mine && text != "mine"
}

/// Members without their index.
fn plain_members(stage: &Stage) -> Table<Member> {
    let plain = TableDefinition { name: "plain".into(), indexes: Vec::new(), ..Member::definition() };
    let table = Table::from_id(stage.database.create_table(plain).unwrap());
    assert!(stage.once(|t| (1..4).try_for_each(|id| t.insert(&table, &Member { id, code: 10 + id as u32 }))));
    table
}

/// Makes the index of members while a transaction runs that began before, and lets `meanwhile` happen before that one ends.
fn index_under_an_older_transaction(
    stage: &Stage,
    table: Table<Member>,
    meanwhile: impl FnOnce(Index<Member, u32>),
    older: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
) -> Index<Member, u32> {
    let index = Index::new("by_code", 0, true, false);
    std::thread::scope(|scope| {
        stage.once(|t| {
            t.get(&table, 2)?;
            let definition = Member::definition().indexes[0].clone();
            scope.spawn(move || stage.database.create_index(table.id(), definition).unwrap());
            // It is in the catalog before older transactions are waited for.
            while stage.database.definition(table.id()).unwrap().indexes.is_empty() {
                std::thread::yield_now();
            }
            meanwhile(index);
            older(t)
        });
    });
    index
}

fn write_skew_over_a_dropped_index() -> bool {
    crate::write_skew_over_a_dropped_index(crate::setups::maflingo())
}

fn entry_left_behind() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage);
    let change = |t: &mut Tx<'_>, code| t.update(&table, 1, |row| row.set_code(code)).map(drop);
    let index =
        index_under_an_older_transaction(&stage, table, |_| assert!(stage.once(|t| change(t, 20))), |t| change(t, 30));
    let mut code = 0;
    assert!(stage.once(|t| {
        code = t.get(&table, 1)?.unwrap().code();
        Ok(())
    }));
    let mut entries = 0;
    stage.once(|t| {
        entries = t.scan_range_by::<_, _, u32>(&table, index, ..).count()?;
        Ok(())
    });
    entries != 3
}

fn index_that_is_being_filled() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage);
    let missed = Cell::new(false);
    let look = |index| {
        let mut worker = stage.worker();
        let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
        let found = snapshot.scan_range_by::<_, _, u32>(&table, index, ..).count();
        missed.set(found.is_ok_and(|found| found != 3));
    };
    index_under_an_older_transaction(&stage, table, look, |_| Ok(()));
    missed.get()
}

/// A snapshot that begins after an index was made reads by it.
fn index_that_was_filled() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage);
    let index: Index<Member, u32> = Index::new("by_code", 0, true, false);
    stage.database.create_index(table.id(), Member::definition().indexes[0].clone()).unwrap();
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    !snapshot.scan_range_by::<_, _, u32>(&table, index, ..).count().is_ok_and(|found| found == 3)
}

/// Plays two transactions of which the first reads what the second overwrites, and asks whether a snapshot shows the second
/// one's write without the first one's.
fn snapshot_between(play: impl FnOnce(&Stage)) -> bool {
    let stage = stage(&[(1, 0), (2, 0)]);
    play(&stage);
    // The newest past is the epoch before the present one.
    assert!(stage.database.memory().epochs().refresh());
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    let seen = (present(&mut snapshot, &stage.items, 1).unwrap(), present(&mut snapshot, &stage.items, 2).unwrap());
    seen == (Some(1), Some(0))
}

fn second_in_an_earlier_epoch() -> bool {
    snapshot_between(|stage| {
        interrupt(Point::Committing, {
            let stage = stage.clone();
            move || {
                stage.tick();
                first_of_two(&stage);
            }
        });
        assert!(stage.set(1, 1));
    })
}

fn first_in_a_later_epoch() -> bool {
    snapshot_between(|stage| {
        interrupt(Point::Validated, {
            let stage = stage.clone();
            move || {
                assert!(stage.set(1, 1));
                stage.tick();
            }
        });
        first_of_two(stage);
    })
}

/// Reads row 1 and writes row 2.
fn first_of_two(stage: &Stage) {
    assert!(stage.once(|t| {
        assert_eq!(present(t, &stage.items, 1)?, Some(0));
        t.upsert(&stage.items, &Item { id: 2, value: 1 })
    }));
}

/// The second of two transactions, each of which reads what the other writes, runs while the first holds its latches and
/// has passed its validation.
fn write_skew_while_latched() -> bool {
    let stage = stage(&[(1, 0), (2, 0)]);
    let withdraw = |stage: &Stage, read, write| {
        stage.once(|t| {
            let value = present(t, &stage.items, read)?.unwrap();
            t.upsert(&stage.items, &Item { id: write, value: value + 1 })
        })
    };
    let other = Rc::new(Cell::new(false));
    interrupt(Point::Validated, {
        let (stage, other) = (stage.clone(), Rc::clone(&other));
        move || other.set(withdraw(&stage, 1, 2))
    });
    let mine = withdraw(&stage, 2, 1);
    mine && other.get() && (stage.value(1), stage.value(2)) == (Some(1), Some(1))
}

/// As before, but one of the two inserts a row that the other one finds absent.
fn write_skew_with_an_insertion() -> bool {
    let stage = stage(&[(2, 0)]);
    let other = Rc::new(Cell::new(false));
    interrupt(Point::Validated, {
        let (stage, other) = (stage.clone(), Rc::clone(&other));
        move || {
            other.set(stage.once(|t| {
                assert_eq!(present(t, &stage.items, 1)?, None);
                t.upsert(&stage.items, &Item { id: 2, value: 1 })
            }));
        }
    });
    let mine = stage.once(|t| {
        let value = present(t, &stage.items, 2)?.unwrap();
        t.insert(&stage.items, &Item { id: 1, value })
    });
    mine && other.get() && (stage.value(1), stage.value(2)) == (Some(0), Some(1))
}

fn read_of_a_record_that_moved() -> bool {
    let stage = stage(&[]);
    stage.half_of_another(
        |t| Ok(t.get(&stage.pages, 1)?.unwrap().text().len()),
        |t| t.update(&stage.pages, 1, |row| row.set_text(&"long".repeat(100)).unwrap()).map(drop),
        |_| Ok(()),
    )
}

fn absent_key() -> bool {
    let stage = stage(&[]);
    stage.half_of_another(
        |t| present(t, &stage.items, 5),
        |t| t.insert(&stage.items, &Item { id: 5, value: 1 }),
        |_| Ok(()),
    )
}

fn count_of_a_range() -> bool {
    let stage = stage(&[(3, 1)]);
    stage.half_of_another(
        |t| t.scan(&stage.items, 0..10).count(),
        |t| t.insert(&stage.items, &Item { id: 5, value: 1 }),
        |_| Ok(()),
    )
}

/// An absent key whose tombstone goes before the key comes back.
fn absent_key_without_its_tombstone() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.worker();
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| t.delete(&stage.items, 5)).unwrap();
    stage.tick();
    stage.tick();
    let cleaner = Cell::new(Some(cleaner));
    stage.half_of_another(
        |t| {
            let seen = present(t, &stage.items, 5);
            stage.quiesce(&mut cleaner.take().unwrap());
            seen
        },
        |t| t.insert(&stage.items, &Item { id: 5, value: 1 }),
        |_| Ok(()),
    )
}

fn absent_key_that_was_inserted_and_given_up() -> bool {
    let stage = stage(&[]);
    stage.half_of_another(
        |t| {
            let savepoint = t.savepoint();
            let inserted = t.try_insert(&stage.items, &Item { id: 5, value: 0 })?;
            t.roll_back_to(savepoint)?;
            Ok(inserted)
        },
        |t| t.insert(&stage.items, &Item { id: 5, value: 1 }),
        |_| Ok(()),
    )
}

/// A key is inserted, claimed by another transaction, given up by a savepoint, and inserted by the other one on the same record.
fn absent_key_that_was_given_up_to_another() -> bool {
    let stage = stage(&[]);
    let (mut worker, mut seen) = (stage.worker(), 0);
    let mine = stage.once(|t| {
        let savepoint = t.savepoint();
        assert_eq!(t.try_insert(&stage.items, &Item { id: 5, value: 0 })?, Insertion::Inserted);
        let mut other = worker.begin(Mode::ReadWrite).unwrap();
        other.insert(&stage.items, &Item { id: 5, value: 1 })?;
        other.upsert(&stage.items, &Item { id: FLAG, value: 1 })?;
        t.roll_back_to(savepoint)?;
        assert!(other.commit().is_ok(), "nobody is in the other's way");
        seen = t.get(&stage.items, FLAG)?.map_or(0, |row| row.value());
        Ok(())
    });
    mine && seen == 1
}

fn own_insertion_into_a_range() -> bool {
    let stage = stage(&[(3, 1)]);
    !stage.once(|t| {
        t.scan(&stage.items, 0..10).count()?;
        t.insert(&stage.items, &Item { id: 5, value: 1 })
    })
}

/// An own insertion comes after another's into the same node.
fn phantom_before_an_own_insertion() -> bool {
    let stage = stage(&[(3, 1)]);
    stage.half_of_another(
        |t| t.scan(&stage.items, 0..10).count(),
        |t| t.insert(&stage.items, &Item { id: 5, value: 1 }),
        |t| t.insert(&stage.items, &Item { id: 6, value: 1 }),
    )
}

/// Another's insertion goes to a node that own insertions have divided off.
fn phantom_in_a_divided_node() -> bool {
    let rows: Vec<_> = (0..10).map(|id| (id * 100, 1)).collect();
    let stage = stage(&rows);
    stage.half_of_another(
        |t| {
            let count = t.scan(&stage.items, 0..1000).count()?;
            (500..520).skip(1).try_for_each(|id| t.insert(&stage.items, &Item { id, value: 1 }))?;
            Ok(count)
        },
        |t| t.insert(&stage.items, &Item { id: 950, value: 1 }),
        |_| Ok(()),
    )
}

/// An own insertion into a range of which nodes were unlinked in the background.
fn own_insertion_after_nodes_have_gone() -> bool {
    let rows: Vec<_> = (0..200).map(|id| (id, 1)).collect();
    let stage = stage(&rows);
    let mut cleaner = stage.worker();
    let emptied = (0..200).filter(|id| id % 50 != 0);
    let mut delete = |t: &mut Tx<'_>| emptied.clone().try_for_each(|id| t.delete(&stage.items, id).map(drop));
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut delete).unwrap();
    stage.tick();
    stage.tick();
    !stage.once(|t| {
        assert_eq!(t.scan(&stage.items, 0..200).count()?, 4);
        stage.quiesce(&mut cleaner);
        (0..200).filter(|id| id % 50 == 25).try_for_each(|id| t.insert(&stage.items, &Item { id, value: 2 }))
    })
}

/// Epochs go by, so many that a transaction that stands aside is told to leave its own.
fn idle_for_long(stage: &Stage, cleaner: &mut MaflingoWorker) {
    (0..6).for_each(|_| stage.quiesce(cleaner));
}

/// Whether nothing that is retired waits for a transaction, which stands aside for long, after `remove` has unlinked what it uses.
fn nothing_waits_for(
    act: impl FnOnce(&Stage, &mut Tx<'_>),
    remove: impl FnMut(&Stage, &mut Tx<'_>) -> Result<(), Error>,
) -> bool {
    let rows: Vec<_> = (0..200).filter(|id| *id != 125).map(|id| (id, 1)).collect();
    let (stage, mut remove) = (stage(&rows), remove);
    let retired = || stage.database.statistics().memory.unwrap().retired_bytes;
    let (mut idle, mut cleaner) = (stage.worker(), stage.worker());
    idle_for_long(&stage, &mut cleaner);
    assert_eq!(retired(), 0);
    let mut transaction = idle.begin(Mode::ReadWrite).unwrap();
    act(&stage, &mut transaction);
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| remove(&stage, t)).unwrap();
    idle_for_long(&stage, &mut cleaner);
    let waits = retired() > 0;
    drop(transaction);
    idle_for_long(&stage, &mut cleaner);
    assert_eq!(retired(), 0);
    !waits
}

fn record_that_an_idle_reader_uses() -> bool {
    nothing_waits_for(
        |stage, t| assert_eq!(present(t, &stage.items, 5).unwrap(), Some(1)),
        |stage, t| t.delete(&stage.items, 5).map(drop),
    )
}

fn record_that_an_idle_writer_uses() -> bool {
    nothing_waits_for(
        |stage, t| t.upsert(&stage.items, &Item { id: 5, value: 2 }).unwrap(),
        |stage, t| t.delete(&stage.items, 5).map(drop),
    )
}

fn delete_a_leaf(stage: &Stage, t: &mut Tx<'_>) -> Result<(), Error> {
    (100..150).try_for_each(|id| t.delete(&stage.items, id).map(drop))
}

fn node_that_an_idle_reader_uses() -> bool {
    nothing_waits_for(|stage, t| assert_eq!(present(t, &stage.items, 125).unwrap(), None), delete_a_leaf)
}

/// The node in which a transaction has found nothing was unlinked while it stood aside, and what that leads to may have been freed.
fn node_that_was_unlinked_beside_an_idle_reader() -> bool {
    let rows: Vec<_> = (0..200).filter(|id| *id != 125).map(|id| (id, 1)).collect();
    let stage = stage(&rows);
    let mut cleaner = stage.worker();
    stage.once(|t| {
        assert_eq!(present(t, &stage.items, 125)?, None);
        drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| delete_a_leaf(&stage, t)).unwrap();
        idle_for_long(&stage, &mut cleaner);
        t.update(&stage.items, 5, |row| row.set_value(2)).map(drop)
    })
}

fn read_skew() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.half_of_another(
        |t| present(t, &stage.items, 1),
        |t| t.update(&stage.items, 1, |row| row.set_value(11)).map(drop),
        |_| Ok(()),
    )
}

/// Reads two rows whose sum is always 30, between which the sum moves from one to the other the first time.
fn move_between(stage: &Stage, t: &mut Tx<'_>, moved: &mut bool) -> Result<i64, Error> {
    let first = present(t, &stage.items, 1)?.unwrap();
    if !std::mem::replace(moved, true) {
        assert!(stage.once(|t| {
            t.upsert(&stage.items, &Item { id: 1, value: 20 })?;
            t.upsert(&stage.items, &Item { id: 2, value: 10 })
        }));
    }
    Ok(first)
}

fn error_that_inconsistent_reads_made() -> bool {
    let stage = stage(&[(1, 10), (2, 20)]);
    let mut moved = false;
    let outcome = drive::transact(&mut stage.worker(), Mode::ReadWrite, &mut |t| {
        let sum = move_between(&stage, t, &mut moved)? + present(t, &stage.items, 2)?.unwrap();
        if sum == 30 { Ok(()) } else { Err(Error::definition(format!("the sum is {sum}"))) }
    });
    outcome.is_err()
}

fn loop_over_inconsistent_reads() -> bool {
    let stage = Stage::open(&[(1, 10), (2, 20)], Journal::default(), 16);
    let (mut moved, mut turns) = (false, 0);
    let _ = drive::transact(&mut stage.worker(), Mode::ReadWrite, &mut |t| {
        let first = move_between(&stage, t, &mut moved)?;
        // It would never end.
        while first + present(t, &stage.items, 2)?.unwrap() != 30 && turns < 1000 {
            turns += 1;
        }
        Ok::<_, Error>(())
    });
    turns == 1000
}

/// It meets the latch of a commit that is under way.
fn conflict_that_the_procedure_ignores() -> bool {
    let stage = stage(&[]);
    let committed = Rc::new(Cell::new(false));
    interrupt(Point::Validated, {
        let (stage, committed) = (stage.clone(), Rc::clone(&committed));
        move || {
            committed.set(stage.once(|t| {
                let lost = t.upsert(&stage.items, &Item { id: 1, value: 2 });
                assert!(lost.is_err_and(|error| error.is_conflict()));
                Ok(())
            }));
        }
    });
    assert!(stage.once(|t| t.insert(&stage.items, &Item { id: 1, value: 1 })));
    committed.get()
}

/// The ids in the order of the commits.
#[derive(Clone, Debug, Default)]
struct Ids(Arc<Mutex<Vec<u64>>>);

impl Log for Ids {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, _: usize, _: polychron_engine::TableId, _: &[u8], _: Change<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _: usize) {}

    fn seal(&self, _: usize, id: Order) -> Ticket {
        self.0.lock().unwrap().push(id.timestamp);
        Ticket::DONE
    }

    fn ticket(&self, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn define(&self, _: &polychron_engine::definitions::StoredCatalog) -> Result<(), Error> {
        Ok(())
    }

    fn sealed(&self) -> Ticket {
        Ticket::DONE
    }

    fn wait(&self, _: Ticket) -> Result<(), Error> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Immediate
    }
}

/// Whether the last of these transactions has an id below an earlier one. One worker writes row 1 some times; `last` is
/// told whether it may go on with that worker.
fn id_below(last: impl FnOnce(&Stage, &mut MaflingoWorker)) -> bool {
    let ids = Ids::default();
    let stage = Stage::open(&[(1, 0), (2, 0)], Journal::new(Arc::new(ids.clone())), 4096);
    let mut worker = stage.worker();
    for value in 0..5 {
        let mut write = |t: &mut Tx<'_>| t.upsert(&stage.items, &Item { id: 1, value });
        drive::transact(&mut worker, Mode::ReadWrite, &mut write).unwrap();
    }
    last(&stage, &mut worker);
    let ids = ids.0.lock().unwrap();
    !ids.is_sorted()
}

fn id_below_that_of_a_row_read() -> bool {
    id_below(|stage, _| {
        assert!(stage.once(|t| {
            t.get(&stage.items, 1)?;
            t.upsert(&stage.items, &Item { id: 2, value: 1 })
        }));
    })
}

fn id_below_that_of_a_row_overwritten() -> bool {
    id_below(|stage, _| assert!(stage.set(1, 9)))
}

fn id_below_the_workers_last() -> bool {
    id_below(|stage, worker| {
        let mut write = |t: &mut Tx<'_>| t.upsert(&stage.items, &Item { id: 2, value: 1 });
        drive::transact(worker, Mode::ReadWrite, &mut write).unwrap();
    })
}

fn hint_to_a_deleted_row() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut found = false;
    stage.once(|t| {
        t.prefetch(&stage.items, 1);
        assert!(stage.once(|t| t.delete(&stage.items, 1).map(drop)));
        found = t.get(&stage.items, 1)?.is_some();
        Ok(())
    });
    found
}

/// A snapshot reads a row whose new words are there and which is not published yet.
fn row_that_is_being_written() -> bool {
    let stage = stage(&[(1, 10)]);
    let seen = Arc::new(Mutex::new(None));
    let (begun, open) = std::sync::mpsc::channel();
    let (go, going) = std::sync::mpsc::channel();
    let reader = std::thread::spawn({
        let (stage, seen) = (stage.clone(), Arc::clone(&seen));
        move || {
            let mut worker = stage.worker();
            let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
            begun.send(()).unwrap();
            going.recv().unwrap();
            *seen.lock().unwrap() = present(&mut snapshot, &stage.items, 1).unwrap();
        }
    });
    open.recv().unwrap();
    let reader = Arc::new(Mutex::new(Some(reader)));
    interrupt(Point::Writing, {
        let reader = Arc::clone(&reader);
        move || {
            go.send(()).unwrap();
            // With the mark the reader waits for this thread, so this thread must not wait for the reader.
            if left_out(Step::MarkDirty) {
                reader.lock().unwrap().take().unwrap().join().unwrap();
            }
        }
    });
    assert!(stage.set(1, 11));
    if let Some(reader) = reader.lock().unwrap().take() {
        reader.join().unwrap();
    }
    let seen = *seen.lock().unwrap();
    seen != Some(10)
}

/// A snapshot looks at a row again after `change` and some time.
fn snapshot_that_changes<O: PartialEq>(
    stage: &Stage,
    mut look: impl FnMut(&mut Tx<'_>) -> Result<O, Error>,
    change: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
) -> bool {
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    let before = look(&mut snapshot).unwrap();
    assert!(stage.once(change));
    stage.quiesce(&mut stage.worker());
    look(&mut snapshot).unwrap() != before
}

fn snapshot_of_a_row_that_is_overwritten() -> bool {
    let stage = stage(&[(1, 10)]);
    let items = stage.items;
    snapshot_that_changes(&stage, |t| present(t, &items, 1), |t| t.upsert(&items, &Item { id: 1, value: 11 }))
}

/// Twice as long after the last snapshot as versions are kept, if none is open.
fn wait_for_quiet(stage: &Stage) {
    (0..1000).for_each(|_| stage.tick());
}

fn snapshot_after_a_quiet_time() -> bool {
    let stage = stage(&[(1, 10)]);
    wait_for_quiet(&stage);
    assert!(stage.set(1, 11));
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(11)
}

fn snapshot_that_is_open_for_a_quiet_time() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    wait_for_quiet(&stage);
    assert!(stage.set(1, 11));
    present(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

fn snapshot_of_a_row_that_moves() -> bool {
    let stage = stage(&[]);
    let pages = stage.pages;
    snapshot_that_changes(
        &stage,
        |t| Ok(t.get(&pages, 1)?.map(|row| row.text().len())),
        |t| t.update(&pages, 1, |row| row.set_text(&"long".repeat(100)).unwrap()).map(drop),
    )
}

fn snapshot_of_a_row_that_is_deleted() -> bool {
    let stage = stage(&[(1, 10)]);
    let items = stage.items;
    snapshot_that_changes(&stage, |t| present(t, &items, 1), |t| t.delete(&items, 1).map(drop))
}

/// A transaction that an interruption may use: its worker stays for ever.
fn lasting(stage: &Stage, mode: Mode) -> Tx<'static> {
    Box::leak(Box::new(stage.worker())).begin(mode).unwrap()
}

/// Behind a snapshot that has been open for long, versions are pruned by this worker. Snapshots renew their guards whenever they
/// look.
struct Pruning {
    stage: Stage,
    oldest: Tx<'static>,
    pruner: MaflingoWorker,
}

impl Pruning {
    fn new() -> Self {
        let stage = Stage::open(&[(1, 10)], Journal::default(), 1);
        (0..2).for_each(|_| stage.tick());
        let (oldest, pruner) = (lasting(&stage, Mode::Snapshot), stage.worker());
        let mut pruning = Self { stage, oldest, pruner };
        (0..6).for_each(|_| pruning.pass(&mut []));
        drop(pruning.pruner.begin(Mode::ReadWrite).unwrap());
        pruning
    }

    fn write(&mut self, mut write: impl FnMut(&Stage, &mut Tx<'_>) -> Result<(), Error>) {
        drive::transact(&mut self.pruner, Mode::ReadWrite, &mut |t| write(&self.stage, t)).unwrap();
    }

    fn overwrite(&mut self, value: i64) {
        self.write(|stage, t| t.upsert(&stage.items, &Item { id: 1, value }));
    }

    /// What was written becomes the past; these snapshots and the oldest hold it back no longer than they must.
    fn pass(&mut self, snapshots: &mut [&mut Tx<'_>]) {
        for _ in 0..2 {
            self.stage.tick();
            for snapshot in snapshots.iter_mut() {
                present(snapshot, &self.stage.items, FLAG).unwrap();
            }
            present(&mut self.oldest, &self.stage.items, FLAG).unwrap();
        }
        self.stage.tick();
    }

    /// Row 1 as a snapshot sees it that begins now, after `change` and pruning.
    fn seen_after(&mut self, change: impl FnOnce(&mut Self)) -> Option<i64> {
        let (stage, mut worker) = (self.stage.clone(), self.stage.worker());
        let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
        change(self);
        self.pass(&mut [&mut snapshot]);
        self.pruner.maintain();
        present(&mut snapshot, &stage.items, 1).unwrap()
    }
}

/// Two snapshots are open, of which the second sees a version in the middle.
fn version_in_the_middle() -> bool {
    let mut pruning = Pruning::new();
    pruning.overwrite(11);
    pruning.pass(&mut []);
    pruning.seen_after(|pruning| pruning.overwrite(12)) != Some(11)
}

/// A row that an open snapshot sees is deleted behind a longer one.
fn row_behind_a_tombstone() -> bool {
    let mut pruning = Pruning::new();
    pruning.overwrite(11);
    pruning.pass(&mut []);
    let delete = |stage: &Stage, t: &mut Tx<'_>| t.delete(&stage.items, 1).map(drop);
    pruning.seen_after(|pruning| pruning.write(delete)) != Some(11)
}

/// Rows move to larger records, are deleted and displaced between the two looks of a scan.
fn row_that_moves_and_is_displaced_under_a_scan() -> bool {
    let stage = stage(&[]);
    let page = |id, length| Page { id, text: "x".repeat(length) };
    assert!(stage.once(|t| (2..9).try_for_each(|id| t.insert(&stage.pages, &page(id, 1)))));
    let mut cleaner = stage.worker();
    stage.quiesce(&mut cleaner);
    let mut reader = stage.worker();
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    // One lies beside already, so that the scan looks there.
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| t.delete(&stage.pages, 1)).unwrap();
    (0..4).for_each(|_| stage.quiesce(&mut cleaner));
    interrupt(stores::Point::BetweenIndexes, {
        let stage = stage.clone();
        move || {
            let mut change = |body: &mut dyn FnMut(&mut Tx<'_>, u64) -> Result<(), Error>| {
                drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| (2..9).try_for_each(|id| body(t, id))).unwrap();
                stage.quiesce(&mut cleaner);
            };
            change(&mut |t, id| t.upsert(&stage.pages, &page(id, 1000)));
            change(&mut |t, id| t.delete(&stage.pages, id).map(drop));
        }
    });
    let seen = snapshot.scan(&stage.pages, ..).map(|row| row.id()).collect::<Vec<_>>().unwrap();
    assert!(seen.contains(&1) && (2..9).all(|id| seen.contains(&id)), "{seen:?}");
    seen.len() != 8
}

/// A snapshot begins when a row was overwritten just now, and what is behind that was pruned.
fn version_for_the_next_snapshot() -> bool {
    let mut pruning = Pruning::new();
    for value in [11, 12] {
        pruning.overwrite(value);
        pruning.pass(&mut []);
    }
    // By another worker, so that the pruner has not looked yet.
    assert!(pruning.stage.set(1, 13));
    pruning.pruner.maintain();
    let mut worker = pruning.stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    present(&mut snapshot, &pruning.stage.items, 1).unwrap() != Some(12)
}

/// A snapshot begins, and time passes, while the open ones are listed.
fn snapshot_that_begins_beside_the_list() -> bool {
    let mut pruning = Pruning::new();
    pruning.overwrite(11);
    pruning.pass(&mut []);
    // Before the epoch ends, the version before is what new snapshots see.
    pruning.overwrite(12);
    present(&mut pruning.oldest, &pruning.stage.items, FLAG).unwrap();
    let open = Rc::new(Cell::new(None));
    interrupt(Point::Listed, {
        let (stage, open) = (pruning.stage.clone(), Rc::clone(&open));
        move || {
            open.set(Some(lasting(&stage, Mode::Snapshot)));
            stage.tick();
        }
    });
    pruning.pruner.maintain();
    let mut snapshot = open.take().expect("the pruner has looked");
    present(&mut snapshot, &pruning.stage.items, 1).unwrap() != Some(11)
}

/// The tombstone on which a transaction writes is due to go.
fn insertion_on_a_tombstone() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.worker();
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| t.delete(&stage.items, 5)).unwrap();
    stage.tick();
    stage.tick();
    let mut sees_itself = false;
    let committed = stage.once(|t| {
        t.insert(&stage.items, &Item { id: 5, value: 2 })?;
        stage.quiesce(&mut cleaner);
        sees_itself = present(t, &stage.items, 5)? == Some(2);
        Ok(())
    });
    !(committed && sees_itself && stage.value(5) == Some(2))
}

/// A key that came back on its tombstone is there when the tombstone would have been due.
fn key_that_came_back() -> bool {
    let stage = stage(&[(5, 1)]);
    let mut cleaner = stage.worker();
    drive::transact(&mut cleaner, Mode::ReadWrite, &mut |t| t.delete(&stage.items, 5)).unwrap();
    assert!(stage.once(|t| t.insert(&stage.items, &Item { id: 5, value: 2 })));
    stage.quiesce(&mut cleaner);
    stage.value(5) != Some(2)
}

/// Insertions that are rolled back leave their records in the index.
fn insertion_that_was_rolled_back() -> bool {
    let stage = stage(&[]);
    let mut worker = stage.worker();
    let used = || stage.database.statistics().memory.unwrap().used_bytes;
    let mut rounds = (0..2).map(|round| {
        for id in 0..1000 {
            let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
            transaction.insert(&stage.items, &Item { id: 1000 * round + id, value: 1 }).unwrap();
            drop(transaction);
        }
        stage.quiesce(&mut worker);
        used()
    });
    let (first, second) = (rounds.next().unwrap(), rounds.next().unwrap());
    second > first + 32_000
}

fn row_whose_entry_was_refused() -> bool {
    let stage = stage(&[]);
    let mut count = 0;
    assert!(stage.once(|t| {
        let refused = t.try_insert(&stage.members, &Member { id: 2, code: 1 })?;
        assert_ne!(refused, Insertion::Inserted);
        count = t.scan(&stage.members, ..).count()?;
        Ok(())
    }));
    count != 1
}

fn code_of_two_members() -> bool {
    let stage = stage(&[]);
    let mut count = 0;
    assert!(stage.once(|t| {
        let _ = t.try_insert(&stage.members, &Member { id: 2, code: 1 })?;
        count = t.scan(&stage.members, ..).count()?;
        Ok(())
    }));
    count != 1
}

fn loaded_row_is_missed() -> bool {
    crate::loaded_row_is_missed(crate::setups::maflingo())
}

crate::killers! { Step:
    LatchWrites: lost_update_after_validation, "lost update between two validated commits";
    LatchInsertions: write_skew_with_an_insertion, "write skew with a concurrent insertion";
    RefuseOvertaken: insert_insert, "one key is inserted twice";
    RefuseUnlinkedWrites: write_to_a_record_that_moved, "a blind write to an unlinked record is lost";
    KnowAllIndexes: entry_left_behind, "a stale secondary entry remains";
    KnowDropped: write_skew_over_a_dropped_index, "write skew over a dropped index";
    EpochAfterLatches: second_in_an_earlier_epoch, "a snapshot shows a later transaction without an earlier one";
    EpochBeforeChecks: first_in_a_later_epoch, "the same with the roles exchanged";
    CompareIds: lost_update, "lost update";
    RefuseLatched: write_skew_while_latched, "write skew between two concurrent commits";
    RefuseMoved: read_of_a_record_that_moved, "the old row of a moved record is read";
    CompareNodes: absent_key, "phantom under an absent key";
    ValidateReaders: read_skew, "read skew of a read-only transaction";
    ValidateRollBack: error_that_inconsistent_reads_made, "an error caused by inconsistent reads is returned";
    ValidateRunning: loop_over_inconsistent_reads, "a loop over inconsistent reads never ends";
    StayDoomed: conflict_that_the_procedure_ignores, "a doomed procedure commits";
    ExceedReads: id_below_that_of_a_row_read, "ids contradict the serial order of dependent transactions";
    ExceedWrites: id_below_that_of_a_row_overwritten, "the same for overwriting";
    ExceedLast: id_below_the_workers_last, "the same for the transactions of one worker";
    NodesOfMisses: absent_key, "phantom under an absent key";
    NodesOfTombstones: absent_key_without_its_tombstone, "phantom under an unlinked tombstone";
    NodesOfRanges: count_of_a_range, "phantom in a counted range";
    NodesOfUndone: absent_key_that_was_inserted_and_given_up, "phantom under the key of an undone insertion";
    ReadsOfUndone: absent_key_that_was_given_up_to_another, "the same, where another found the insertion before";
    FollowOwnInsertions: own_insertion_into_a_range, "an insertion into a scanned range never commits";
    FollowOnlyOwn: phantom_before_an_own_insertion, "another's insertion is taken for an own one";
    FollowSplits: phantom_in_a_divided_node, "phantom in a node that own insertions have split off";
    FollowResolved: own_insertion_after_nodes_have_gone, "an unlinked node aborts a transaction";
    NoteReads: record_that_an_idle_reader_uses, "a record that an idle transaction will validate is freed";
    NoteWrites: record_that_an_idle_writer_uses, "a record is freed that an idle transaction will write";
    NoteNodes: node_that_an_idle_reader_uses, "a node is freed whose stamp an idle transaction will compare";
    AskNodesAlone: node_that_was_unlinked_beside_an_idle_reader, "an idle transaction follows a freed successor";
    RefuseEmptyHints: hint_to_a_deleted_row, "a declared key leads to a deleted row";
    MarkDirty: row_that_is_being_written, "a snapshot shows a row that is being written";
    ReadTwice: lost_update_while_reading, "lost update: the old row is read with the new id";
    KeepVersions: snapshot_of_a_row_that_is_overwritten, "a snapshot loses a row that is overwritten";
    AwaitKeeping: snapshot_after_a_quiet_time, "the first snapshot loses a row that was overwritten before";
    KeepForOpen: snapshot_that_is_open_for_a_quiet_time, "a snapshot that is open for long loses rows";
    KeepMoved: snapshot_of_a_row_that_moves, "a snapshot loses a row that outgrows its record";
    CompareEpochs: snapshot_of_a_row_that_is_overwritten, "a snapshot shows newer state";
    AwaitIndexes: index_that_is_being_filled, "a snapshot reads a new index before it is complete";
    AwaitFilling: index_that_was_filled, "a new snapshot cannot use the index";
    LoadInThePast: loaded_row_is_missed, "the first snapshot does not find what was loaded";
    ClaimTombstones: insertion_on_a_tombstone, "unlinking a tombstone aborts an insertion";
    RespectClaims: insertion_on_a_tombstone, "the same";
    OutliveClaims: insertion_on_a_tombstone, "the same, at the second check";
    OutliveSnapshots: snapshot_of_a_row_that_is_deleted, "a snapshot loses a row deleted later";
    UnlinkOnlyTombstones: key_that_came_back, "a row inserted on its tombstone disappears";
    KeepSeen: version_in_the_middle, "another snapshot goes back to an older row";
    KeepRecent: version_for_the_next_snapshot, "the next snapshot sees an older row";
    HorizonBeforeList: snapshot_that_begins_beside_the_list, "a beginning snapshot goes back to an older row";
    KeepHidden: row_behind_a_tombstone, "another snapshot loses a row deleted later";
    LookBeside: row_behind_a_tombstone, "the same";
    SkipTwins: row_that_moves_and_is_displaced_under_a_scan, "a snapshot's scan sees a row twice";
    UndoInsertions: insertion_that_was_rolled_back, "rolled-back insertions leave records in the index";
    UndoOperations: row_whose_entry_was_refused, "a refused row remains";
    RefuseDuplicates: code_of_two_members, "a unique value occurs twice";
}
