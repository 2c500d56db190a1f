//! Hekaton, and snapshot isolation, which is the same code without validation.

use polychron_compared::hekaton::{Hekaton, HekatonTransaction, HekatonWorker, Level, Options, Point, Step};
use polychron_engine::mutations::{interrupt, left_out};
use polychron_engine::{
    Commit, Common, Error, Insertion, Interactive, Mode, Operations, Protocol, Table, TableDefinition, Worker, drive,
};
use polychron_schema::{Index, Row};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};

#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Item {
    #[key]
    id: u64,
    value: i64,
}

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_code", columns(code), unique)]
struct Member {
    #[key]
    id: u64,
    code: u32,
}

/// A row far from all ranges.
const FLAG: u64 = 1 << 40;

/// A database with epochs that the tests move.
struct Stage {
    database: Arc<Hekaton>,
    items: Table<Item>,
    members: Table<Member>,
}

impl Clone for Stage {
    fn clone(&self) -> Self {
        Self { database: Arc::clone(&self.database), ..*self }
    }
}

type Tx<'w> = HekatonTransaction<'w>;

fn stage(rows: &[(u64, i64)]) -> Stage {
    Stage::open(Level::default(), rows)
}

impl Stage {
    fn open(level: Level, rows: &[(u64, i64)]) -> Self {
        let memory = polychron_memory::Options {
            limit_bytes: Some(64 << 20),
            max_workers: 32,
            epoch_interval: None,
            ..polychron_memory::Options::tiny()
        };
        let database = Hekaton::open(Options { level }, Common { memory, ..Common::default() }).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        let stage = Self { database, items, members };
        assert!(stage.once(|t| {
            rows.iter().try_for_each(|&(id, value)| t.insert(&items, &Item { id, value }))?;
            t.insert(&items, &Item { id: FLAG, value: 0 })?;
            t.insert(&members, &Member { id: 1, code: 1 })
        }));
        stage
    }

    fn worker(&self) -> HekatonWorker {
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

    fn value(&self, id: u64) -> Option<i64> {
        let mut value = None;
        assert!(self.once(|t| {
            value = get(t, &self.items, id)?;
            Ok(())
        }));
        value
    }

    fn set(&self, id: u64, value: i64) -> bool {
        self.once(|t| t.upsert(&self.items, &Item { id, value }))
    }

    /// Whatever can be collected is collected, by this worker.
    fn quiesce(&self, worker: &mut HekatonWorker) {
        for _ in 0..4 {
            self.database.memory().epochs().advance();
            worker.maintain();
        }
    }

    /// A transaction that an interruption may use: its worker stays for ever.
    fn lasting(&self, mode: Mode) -> Tx<'static> {
        Box::leak(Box::new(self.worker())).begin(mode).unwrap()
    }

    /// Plays write skew: a transaction observes; another one sees the flag down and writes there; then the first one goes on and raises
    /// the flag. It went wrong when both commit.
    fn skew(
        &self,
        observe: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
        other: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
        go_on: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        let mut wrote = false;
        let committed = self.once(|t| {
            observe(t)?;
            wrote = self.once(|t| {
                assert_eq!(get(t, &self.items, FLAG)?, Some(0));
                other(t)
            });
            assert!(wrote, "nobody is in the other's way");
            go_on(t)?;
            t.upsert(&self.items, &Item { id: FLAG, value: 1 })
        });
        committed && wrote
    }
}

fn get(t: &mut Tx<'_>, table: &Table<Item>, id: u64) -> Result<Option<i64>, Error> {
    Ok(t.get(table, id)?.map(|row| row.value()))
}

fn dirty_read() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut writer = stage.lasting(Mode::ReadWrite);
    writer.upsert(&stage.items, &Item { id: 1, value: 101 }).unwrap();
    let mut reader = stage.lasting(Mode::ReadWrite);
    let seen = get(&mut reader, &stage.items, 1).unwrap();
    drop(writer);
    reader.commit().is_ok() && seen == Some(101)
}

fn lost_update() -> bool {
    let stage = Stage::open(Level::Snapshot, &[(1, 10)]);
    let mut other = false;
    let mine = stage.once(|t| {
        let before = get(t, &stage.items, 1)?.unwrap();
        other = stage.set(1, 11);
        t.upsert(&stage.items, &Item { id: 1, value: before + 1 })
    });
    stage.value(1) != Some(10 + i64::from(mine) + i64::from(other))
}

fn row_deleted_twice() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut other = false;
    let mine = stage.once(|t| {
        assert!(t.delete(&stage.items, 1)?);
        other = stage.once(|t| t.delete(&stage.items, 1).map(drop));
        Ok(())
    });
    mine && other
}

/// A snapshot begins when a transaction has drawn its end, and reads one row then and the other after the commit.
fn snapshot_while_the_end_is_drawn() -> bool {
    let stage = stage(&[(1, 10), (2, 20)]);
    let (begun, has_begun) = mpsc::channel();
    let (end, has_ended) = mpsc::channel();
    let (answer, answered) = mpsc::channel();
    let waits = !left_out(Step::AnnounceEnd);
    let reader = stage.clone();
    interrupt(Point::Drawn, move || {
        let (read, has_read) = mpsc::channel();
        std::thread::spawn(move || {
            let mut worker = reader.worker();
            let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
            begun.send(()).unwrap();
            let first = get(&mut snapshot, &reader.items, 1).unwrap();
            // No client listens where the reader has to wait.
            let _ = read.send(());
            has_ended.recv().unwrap();
            let second = get(&mut snapshot, &reader.items, 2).unwrap();
            answer.send((first, second)).unwrap();
        });
        has_begun.recv().unwrap();
        if !waits {
            has_read.recv().unwrap();
        }
    });
    assert!(stage.once(|t| {
        t.upsert(&stage.items, &Item { id: 1, value: 11 })?;
        t.upsert(&stage.items, &Item { id: 2, value: 21 })
    }));
    end.send(()).unwrap();
    let seen = answered.recv().unwrap();
    seen != (Some(10), Some(20)) && seen != (Some(11), Some(21))
}

/// A transaction reads what another one has written that is preparing, and is undone.
fn reads_of_the_undone(end: impl FnOnce(Tx<'static>) -> bool) -> bool {
    let stage = stage(&[(1, 10), (2, 20)]);
    let mut writer = stage.lasting(Mode::ReadWrite);
    get(&mut writer, &stage.items, 2).unwrap();
    writer.upsert(&stage.items, &Item { id: 1, value: 101 }).unwrap();
    assert!(stage.set(2, 21));
    let reader: Rc<RefCell<Option<Tx<'static>>>> = Rc::default();
    let seen = Rc::new(Cell::new(None));
    interrupt(Point::Preparing, {
        let (stage, reader, seen) = (stage.clone(), Rc::clone(&reader), Rc::clone(&seen));
        move || {
            let mut t = stage.lasting(Mode::ReadWrite);
            seen.set(get(&mut t, &stage.items, 1).unwrap());
            *reader.borrow_mut() = Some(t);
        }
    });
    assert!(writer.commit().is_err(), "what it read was overwritten");
    let reader = reader.borrow_mut().take().expect("it was interrupted");
    end(reader) && seen.get() == Some(101)
}

fn aborted_read() -> bool {
    reads_of_the_undone(|t| t.commit().is_ok())
}

fn error_of_an_aborted_read() -> bool {
    reads_of_the_undone(Commit::roll_back)
}

fn write_skew() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.skew(
        |t| get(t, &stage.items, 1).map(drop),
        |t| t.upsert(&stage.items, &Item { id: 1, value: 11 }),
        |_| Ok(()),
    )
}

/// A key that was deleted, and whose record is still there.
fn with_tombstone() -> Stage {
    let stage = stage(&[(5, 1)]);
    assert!(stage.once(|t| t.delete(&stage.items, 5).map(drop)));
    stage
}

fn insert_five(stage: &Stage) -> impl FnOnce(&mut Tx<'_>) -> Result<(), Error> {
    let items = stage.items;
    move |t| t.insert(&items, &Item { id: 5, value: 2 })
}

fn key_that_comes_back() -> bool {
    let stage = with_tombstone();
    stage.skew(|t| get(t, &stage.items, 5).map(drop), insert_five(&stage), |_| Ok(()))
}

/// The key comes back on another record.
fn key_that_comes_back_on_another_record() -> bool {
    let stage = with_tombstone();
    stage.skew(
        |t| {
            assert_eq!(get(t, &stage.items, 5)?, None);
            stage.quiesce(&mut stage.worker());
            Ok(())
        },
        insert_five(&stage),
        |_| Ok(()),
    )
}

fn hint_to_a_deleted_row() -> bool {
    let stage = with_tombstone();
    stage.skew(
        |t| {
            t.prefetch(&stage.items, 5);
            get(t, &stage.items, 5).map(drop)
        },
        insert_five(&stage),
        |_| Ok(()),
    )
}

fn absent_key() -> bool {
    let stage = stage(&[]);
    stage.skew(|t| get(t, &stage.items, 5).map(drop), insert_five(&stage), |_| Ok(()))
}

fn count_of_a_range() -> bool {
    let stage = stage(&[(3, 1)]);
    stage.skew(|t| t.scan(&stage.items, 0..10).count().map(drop), insert_five(&stage), |_| Ok(()))
}

fn absent_key_that_was_inserted_and_given_up() -> bool {
    let stage = stage(&[]);
    stage.skew(
        |t| {
            let savepoint = t.savepoint();
            t.insert(&stage.items, &Item { id: 5, value: 1 })?;
            t.roll_back_to(savepoint)
        },
        insert_five(&stage),
        |_| Ok(()),
    )
}

fn row_that_was_deleted_and_restored() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.skew(
        |t| {
            let savepoint = t.savepoint();
            assert!(t.delete(&stage.items, 1)?);
            t.roll_back_to(savepoint)
        },
        |t| t.delete(&stage.items, 1).map(drop),
        |_| Ok(()),
    )
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
    stage.skew(
        |t| t.scan(&stage.items, 0..10).count().map(drop),
        insert_five(&stage),
        |t| t.insert(&stage.items, &Item { id: 6, value: 1 }),
    )
}

/// Another's insertion goes to a node that own insertions have divided off.
fn phantom_in_a_divided_node() -> bool {
    let rows: Vec<_> = (0..10).map(|id| (id * 100, 1)).collect();
    let stage = stage(&rows);
    stage.skew(
        |t| {
            t.scan(&stage.items, 0..1000).count()?;
            (500..520).skip(1).try_for_each(|id| t.insert(&stage.items, &Item { id, value: 1 }))
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
    !stage.once(|t| {
        assert_eq!(t.scan(&stage.items, 0..200).count()?, 4);
        stage.quiesce(&mut cleaner);
        (0..200).filter(|id| id % 50 == 25).try_for_each(|id| t.insert(&stage.items, &Item { id, value: 2 }))
    })
}

fn conflict_that_the_procedure_ignores() -> bool {
    let stage = stage(&[]);
    let mut first = stage.lasting(Mode::ReadWrite);
    first.insert(&stage.items, &Item { id: 1, value: 1 }).unwrap();
    stage.once(|t| {
        let lost = t.insert(&stage.items, &Item { id: 1, value: 2 });
        assert!(lost.is_err_and(|error| error.is_conflict()));
        drop(first);
        Ok(())
    })
}

/// Members without their index.
fn plain_members(stage: &Stage) -> Table<Member> {
    let plain = TableDefinition { name: "plain".into(), indexes: Vec::new(), ..Member::definition() };
    let table = Table::from_id(stage.database.create_table(plain).unwrap());
    assert!(stage.once(|t| (1..4).try_for_each(|id| t.insert(&table, &Member { id, code: 10 + id as u32 }))));
    table
}

fn by_code() -> Index<Member, u32> {
    Index::new("by_code", 0, true, false)
}

/// Whether an index leads to something else than the table's three rows, each with the code under which it is found.
fn is_wrong(stage: &Stage, table: Table<Member>) -> bool {
    let mut found = Vec::new();
    let read = stage.once(|t| {
        let mut codes: Vec<u32> = t.scan(&table, ..).map(|row| row.code()).collect()?;
        codes.sort_unstable();
        for code in 0..100 {
            let rows: Vec<u32> = t.scan_by(&table, by_code(), code).map(|row| row.code()).collect()?;
            found.extend(rows.into_iter().map(|row| (code, row)));
        }
        assert_eq!(codes.len(), 3);
        Ok(())
    });
    !read || found.len() != 3 || found.iter().any(|(code, row)| code != row)
}

/// Starts to make the index of members, and returns when the catalog shows it.
fn start_index(stage: &Stage, table: Table<Member>) -> std::thread::JoinHandle<()> {
    let making = stage.clone();
    let thread = std::thread::spawn(move || {
        making.database.create_index(table.id(), Member::definition().indexes[0].clone()).unwrap();
    });
    while stage.database.definition(table.id()).unwrap().indexes.is_empty() {
        std::thread::yield_now();
    }
    thread
}

fn write_skew_over_a_dropped_index() -> bool {
    crate::write_skew_over_a_dropped_index(crate::setups::by_epochs::<Hekaton>())
}

/// A transaction looks at the catalog; then an index is added, and another one changes a row; then the first one begins, and
/// changes the row again.
fn entry_left_behind() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage);
    let making = Rc::new(Cell::new(None));
    let mut worker = stage.worker();
    interrupt(Point::Beginning, {
        let (stage, making) = (stage.clone(), Rc::clone(&making));
        move || {
            making.set(Some(start_index(&stage, table)));
            assert!(stage.once(|t| t.update(&table, 1, |row| row.set_code(20)).map(drop)));
        }
    });
    let mut older = worker.begin(Mode::ReadWrite).unwrap();
    let changed = older.update(&table, 1, |row| row.set_code(30)).is_ok_and(|there| there);
    let committed = changed && older.commit().is_ok();
    making.take().unwrap().join().unwrap();
    committed && is_wrong(&stage, table)
}

/// A snapshot begins while an index is made, and asks it when it is ready.
fn index_that_was_filled_later() -> bool {
    let stage = stage(&[]);
    let table = plain_members(&stage);
    let mut older = stage.lasting(Mode::ReadWrite);
    assert!(older.get(&table, 2).unwrap().is_some());
    let making = start_index(&stage, table);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    drop(older);
    while !making.is_finished() {
        // A look renews the snapshot's guard, which the filling may wait for.
        assert_eq!(snapshot.scan(&table, ..).count().unwrap(), 3);
    }
    making.join().unwrap();
    let found = snapshot.scan_range_by::<_, _, u32>(&table, by_code(), ..).count();
    found.is_ok_and(|found| found != 3)
}

/// A row is changed after the filling of an index has read it.
fn row_that_changes_under_the_filling() -> bool {
    let stage = Stage::open(Level::Snapshot, &[]);
    let table = plain_members(&stage);
    interrupt(Point::Committing, {
        let stage = stage.clone();
        move || _ = stage.once(|t| t.update(&table, 1, |row| row.set_code(20)).map(drop))
    });
    stage.database.create_index(table.id(), Member::definition().indexes[0].clone()).unwrap();
    is_wrong(&stage, table)
}

fn snapshot_of_a_row_that_is_overwritten() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    let mut writer = stage.worker();
    for value in 11..14 {
        let mut set = |t: &mut Tx<'_>| t.upsert(&stage.items, &Item { id: 1, value });
        drive::transact(&mut writer, Mode::ReadWrite, &mut set).unwrap();
    }
    stage.quiesce(&mut writer);
    get(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
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

fn child_whose_parent_goes() -> bool {
    crate::child_whose_parent_goes(crate::setups::by_epochs::<Hekaton>().named("snapshot-isolation"))
}

crate::killers! { Step:
    PassUncommitted: dirty_read, "dirty read";
    RefuseOverwritten: lost_update, "lost update under snapshot isolation; validation ignores rows that are written";
    RefuseLocked: row_deleted_twice, "two transactions delete one row, and both commit";
    AnnounceEnd: snapshot_while_the_end_is_drawn, "a snapshot shows half of an ending transaction";
    DependOnOthers: aborted_read, "aborted read";
    AwaitOthers: aborted_read, "the same";
    CompareVersions: write_skew, "write skew";
    CompareRecords: key_that_comes_back, "phantom under a key whose record had shown no row";
    CompareNodes: absent_key, "phantom under an absent key";
    NodesOfMisses: absent_key, "the same";
    NodesOfBlanks: key_that_comes_back_on_another_record, "phantom under a key inserted again";
    NodesOfRanges: count_of_a_range, "phantom in a counted range";
    NodesOfUndone: absent_key_that_was_inserted_and_given_up, "phantom under the key of an undone insertion";
    ReadsOfUndone: row_that_was_deleted_and_restored, "write skew over a row whose deletion was undone";
    FollowOwnInsertions: own_insertion_into_a_range, "an insertion into a scanned range never commits";
    FollowOnlyOwn: phantom_before_an_own_insertion, "another's insertion is taken for an own one";
    FollowSplits: phantom_in_a_divided_node, "phantom in a node that own insertions have split off";
    FollowResolved: own_insertion_after_nodes_have_gone, "an unlinked node aborts a transaction";
    RefuseEmptyHints: hint_to_a_deleted_row, "phantom under a prefetched key";
    AwaitRollBack: error_of_an_aborted_read, "an error caused by an undone write is returned";
    StayDoomed: conflict_that_the_procedure_ignores, "a doomed procedure commits";
    KnowAllIndexes: entry_left_behind, "a stale secondary entry remains";
    KnowDropped: write_skew_over_a_dropped_index, "write skew over a dropped index";
    AwaitIndexes: index_that_was_filled_later, "a snapshot uses an index filled later";
    LockFilledRows: row_that_changes_under_the_filling, "snapshot isolation: filling makes a stale entry";
    AwaitReaders: snapshot_of_a_row_that_is_overwritten, "a snapshot loses a row that is overwritten";
    ProtectParents: child_whose_parent_goes, "snapshot isolation: an orphan";
    UndoOperations: row_whose_entry_was_refused, "a refused row remains";
    RefuseDuplicates: code_of_two_members, "a unique value occurs twice";
}
