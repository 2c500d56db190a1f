//! HyPer's MVCC, at the level of columns, and snapshot isolation, which is the same code without validation.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use polychron_base::Error;
use polychron_check::Setup;
use polychron_engine::mutations::interrupt;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Access, Aggregate, Commit, Common, Declare, Futures, Insertion, Interactive, Mode, Operations, Procedure, Protocol,
    Restriction, Scan, Table, TableDefinition, Transaction, Worker, drive,
};
use polychron_protocols::hyper::{Hyper, HyperTransaction, HyperWorker, Level, Options, Point, Step};
use polychron_protocols::lazy::Lazy;
use polychron_schema::{Index, Key, KeyScratch, Row, Value};

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
    database: Arc<Hyper>,
    items: Table<Item>,
    members: Table<Member>,
}

impl Clone for Stage {
    fn clone(&self) -> Self {
        Self { database: Arc::clone(&self.database), ..*self }
    }
}

type Tx<'w> = HyperTransaction<'w>;

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
        let database =
            Hyper::open(Options { level, ..Options::default() }, Common { memory, ..Common::default() }).unwrap();
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

    fn worker(&self) -> HyperWorker {
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
    fn quiesce(&self, worker: &mut HyperWorker) {
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
    stage.value(1) == Some(101)
}

fn snapshot_of_the_future() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    assert!(stage.set(1, 11));
    get(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

fn row_written_by_two() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut other = false;
    let mine = stage.once(|t| {
        t.upsert(&stage.items, &Item { id: 1, value: 11 })?;
        other = stage.set(1, 12);
        Ok(())
    });
    mine && other
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

fn write_skew() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.skew(
        |t| get(t, &stage.items, 1).map(drop),
        |t| t.upsert(&stage.items, &Item { id: 1, value: 11 }),
        |_| Ok(()),
    )
}

fn insert_five(stage: &Stage) -> impl FnOnce(&mut Tx<'_>) -> Result<(), Error> {
    let items = stage.items;
    move |t| t.insert(&items, &Item { id: 5, value: 2 })
}

fn values(t: &mut Tx<'_>, stage: &Stage) -> Result<Vec<i64>, Error> {
    t.scan(&stage.items, 0..10).map(|row| row.value()).collect()
}

fn row_that_comes_into_a_range() -> bool {
    let stage = stage(&[(3, 1)]);
    stage.skew(|t| values(t, &stage).map(drop), insert_five(&stage), |_| Ok(()))
}

fn row_that_goes_from_a_range() -> bool {
    let stage = stage(&[(3, 1), (5, 1)]);
    stage.skew(|t| values(t, &stage).map(drop), |t| t.delete(&stage.items, 5).map(drop), |_| Ok(()))
}

fn smallest_value() -> bool {
    let stage = stage(&[(3, 1)]);
    let smallest = |t: &mut Tx<'_>| t.aggregate(&Scan::all(stage.items.id()), Aggregate::Min(1)).map(drop);
    stage.skew(smallest, |t| t.insert(&stage.items, &Item { id: 5, value: -1 }), |_| Ok(()))
}

fn sum_that_comes_to_fit() -> bool {
    let stage = stage(&[(3, i64::MAX), (5, 1)]);
    let sum = |t: &mut Tx<'_>| {
        let sum = t.aggregate(&Scan::all(stage.items.id()), Aggregate::Sum(1));
        assert!(sum.is_err_and(|error| !error.is_conflict()), "it does not fit");
        Ok(())
    };
    stage.skew(sum, |t| t.upsert(&stage.items, &Item { id: 5, value: -1 }), |_| Ok(()))
}

fn row_that_was_looked_at() -> bool {
    let stage = stage(&[(1, 10)]);
    stage.skew(
        |t| t.update(&stage.items, 1, |row| assert_eq!(row.value(), 10)).map(drop),
        |t| t.upsert(&stage.items, &Item { id: 1, value: 11 }),
        |_| Ok(()),
    )
}

fn row_that_comes_to_satisfy_a_restriction() -> bool {
    let stage = stage(&[(1, 10)]);
    let large = Restriction { column: 1, comparison: Comparison::AtLeast, value: Value::Unsigned(11) };
    let count = |t: &mut Tx<'_>| {
        let scan = Scan { restrictions: std::slice::from_ref(&large), ..Scan::all(stage.items.id()) };
        t.aggregate(&scan, Aggregate::Rows).map(drop)
    };
    stage.skew(count, |t| t.update(&stage.items, 1, |row| row.set_value(11)).map(drop), |_| Ok(()))
}

fn duplicate_that_goes() -> bool {
    let stage = stage(&[(5, 1)]);
    let insert = |t: &mut Tx<'_>| t.try_insert(&stage.items, &Item { id: 5, value: 2 }).map(drop);
    stage.skew(insert, |t| t.delete(&stage.items, 5).map(drop), |_| Ok(()))
}

/// Another row has the code, and the client goes on without it.
fn row_whose_change_was_refused() -> bool {
    let stage = stage(&[]);
    assert!(stage.once(|t| t.insert(&stage.members, &Member { id: 2, code: 2 })));
    let change = |t: &mut Tx<'_>| match t.update(&stage.members, 1, |row| row.set_code(2)) {
        Err(Error::Duplicate { .. }) => Ok(()),
        Err(Error::Conflict) => Err(Error::Conflict),
        other => panic!("the code is taken: {other:?}"),
    };
    stage.skew(change, |t| t.delete(&stage.members, 1).map(drop), |_| Ok(()))
}

/// Another transaction commits when the first comparison has passed.
fn write_skew_behind_the_comparison() -> bool {
    let stage = stage(&[(1, 10)]);
    let other = Rc::new(Cell::new(false));
    interrupt(Point::Compared, {
        let (stage, other) = (stage.clone(), Rc::clone(&other));
        move || {
            other.set(stage.once(|t| {
                assert_eq!(get(t, &stage.items, FLAG)?, Some(0));
                t.upsert(&stage.items, &Item { id: 1, value: 11 })
            }));
        }
    });
    let mine = stage.once(|t| {
        assert_eq!(get(t, &stage.items, 1)?, Some(10));
        t.upsert(&stage.items, &Item { id: FLAG, value: 1 })
    });
    mine && other.get()
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
    // While it reads, the filling waits for it.
    let mut begun = None;
    let look = older.scan(&table, ..).for_each(|_| {
        begun.get_or_insert_with(|| (start_index(&stage, table), stage.lasting(Mode::Snapshot)));
    });
    look.unwrap();
    let (making, mut snapshot) = begun.expect("there are rows");
    drop(older);
    while !making.is_finished() {
        // A look renews the snapshot's guard, which the filling may wait for.
        assert_eq!(snapshot.scan(&table, ..).count().unwrap(), 3);
    }
    making.join().unwrap();
    let found = snapshot.scan_range_by::<_, _, u32>(&table, by_code(), ..).count();
    found.is_ok_and(|found| found != 3)
}

/// Two numbers in one word.
#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Couple {
    #[key]
    id: u64,
    one: u32,
    other: u32,
}

/// Whether a transaction commits that has read one number of a couple before the other one changed, and then that one itself, long ago or
/// when the first comparison has passed.
fn overlooks_a_column(is_late: bool) -> bool {
    let stage = stage(&[]);
    let couples = Table::from_id(stage.database.create_table(Couple::definition()).unwrap());
    assert!(stage.once(|t| t.insert(&couples, &Couple { id: 1, one: 0, other: 0 })));
    let pass = |stage: &Stage, commits| {
        let mut worker = stage.worker();
        for value in 0..commits {
            let mut set = |t: &mut Tx<'_>| t.upsert(&stage.items, &Item { id: 1, value });
            drive::transact(&mut worker, Mode::ReadWrite, &mut set).unwrap();
        }
    };
    let mut worker = stage.worker();
    let mut long = worker.begin(Mode::ReadWrite).unwrap();
    assert_eq!(long.get_columns(&couples, 1, Couple::OTHER).unwrap(), Some(0));
    assert!(long.update(&stage.items, FLAG, |row| row.set_value(1)).unwrap());
    assert!(stage.once(|t| t.update(&couples, 1, |row| row.set_one(1)).map(drop)));
    let change = move |stage: &Stage| assert!(stage.once(|t| t.update(&couples, 1, |row| row.set_other(1)).map(drop)));
    if !is_late {
        change(&stage);
    }
    // Until it is none of those that began lately.
    pass(&stage, 300);
    if is_late {
        interrupt(Point::Compared, {
            let stage = stage.clone();
            move || {
                change(&stage);
                pass(&stage, 3);
            }
        });
    }
    long.commit().is_ok()
}

fn column_that_changes_in_a_word_that_has_changed() -> bool {
    overlooks_a_column(false)
}

fn column_that_changes_behind_the_comparison() -> bool {
    overlooks_a_column(true)
}

/// A row is changed after the filling of an index has read it.
fn row_that_changes_under_the_filling() -> bool {
    let stage = Stage::open(Level::Snapshot, &[]);
    let table = plain_members(&stage);
    interrupt(Point::Compared, {
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

#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Pair {
    #[key]
    id: u64,
    left: i64,
    right: i64,
}

/// A number of a row changes, and later another one, which the before-image of the first change does not put back.
fn snapshot_of_a_row_that_changes_in_two_columns() -> bool {
    changes_in_two_columns(false)
}

/// The same, once it is known of the row which number the snapshot's before-image puts back.
fn snapshot_of_a_row_that_then_changes_elsewhere() -> bool {
    changes_in_two_columns(true)
}

fn changes_in_two_columns(quiesces_between: bool) -> bool {
    let stage = stage(&[]);
    let pairs: Table<Pair> = Table::from_id(stage.database.create_table(Pair::definition()).unwrap());
    assert!(stage.once(|t| t.insert(&pairs, &Pair { id: 1, left: 10, right: 10 })));
    let mut snapshot = stage.lasting(Mode::Snapshot);
    let mut writer = stage.worker();
    assert!(stage.once(|t| t.update(&pairs, 1, |row| row.set_left(11)).map(drop)));
    if quiesces_between {
        stage.quiesce(&mut writer);
    }
    assert!(stage.once(|t| t.update(&pairs, 1, |row| row.set_right(11)).map(drop)));
    stage.quiesce(&mut writer);
    let seen = snapshot.get(&pairs, 1).unwrap().map(|row| (row.left(), row.right()));
    seen != Some((10, 10))
}

/// A number changes for one snapshot, and then, after another one has begun, for that.
fn snapshot_between_two_changes() -> bool {
    let stage = stage(&[(1, 10)]);
    let _first = stage.lasting(Mode::Snapshot);
    let mut writer = stage.worker();
    assert!(stage.set(1, 11));
    stage.quiesce(&mut writer);
    let mut second = stage.lasting(Mode::Snapshot);
    assert!(stage.set(1, 12));
    stage.quiesce(&mut writer);
    get(&mut second, &stage.items, 1).unwrap() != Some(11)
}

/// As above; and what another row of the last transaction was is needed no more, so that what its buffer keeps is looked at again.
fn snapshot_between_two_changes_that_are_looked_at_again() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut writer = stage.worker();
    let set = |writer: &mut HyperWorker, ids: [u64; 2], value| {
        let mut set = |t: &mut Tx<'_>| ids.into_iter().try_for_each(|id| t.upsert(&stage.items, &Item { id, value }));
        drive::transact(writer, Mode::ReadWrite, &mut set).unwrap();
    };
    // From now on the worker's buffers are as large as two before-images.
    set(&mut writer, [3, 4], 10);
    let _first = stage.lasting(Mode::Snapshot);
    assert!(stage.set(1, 11));
    stage.quiesce(&mut writer);
    let mut second = stage.lasting(Mode::Snapshot);
    set(&mut writer, [1, 2], 12);
    stage.quiesce(&mut writer);
    assert!(stage.once(|t| t.delete(&stage.items, 2).map(drop)));
    (0..2).for_each(|_| stage.quiesce(&mut writer));
    get(&mut second, &stage.items, 1).unwrap() != Some(11)
}

/// A worker's transaction changes one row, in a buffer that is as large as what the one before made use of.
fn snapshot_of_a_row_in_a_large_buffer() -> bool {
    let stage = stage(&[(1, 10), (2, 10), (3, 10), (4, 10), (5, 10)]);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    let mut writer = stage.worker();
    for ids in [2..6, 1..2] {
        let mut set = |t: &mut Tx<'_>| ids.clone().try_for_each(|id| t.upsert(&stage.items, &Item { id, value: 11 }));
        drive::transact(&mut writer, Mode::ReadWrite, &mut set).unwrap();
    }
    stage.quiesce(&mut writer);
    get(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

/// Behind a snapshot a row is overwritten before a transaction begins, and once more after that has read it.
fn lost_update_behind_a_snapshot() -> bool {
    let stage = Stage::open(Level::Snapshot, &[(1, 10)]);
    let _snapshot = stage.lasting(Mode::Snapshot);
    assert!(stage.set(1, 11));
    let mut other = false;
    let mine = stage.once(|t| {
        let before = get(t, &stage.items, 1)?.unwrap();
        // Any client that commits this prunes what was committed before.
        other = stage.set(1, 12);
        t.upsert(&stage.items, &Item { id: 1, value: before + 10 })
    });
    assert!(other, "nobody is in the other's way");
    mine
}

/// A row is deleted, and collected as far as can be, behind a snapshot that sees it.
fn snapshot_of_a_row_that_is_deleted() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    assert!(stage.once(|t| t.delete(&stage.items, 1).map(drop)));
    stage.quiesce(&mut stage.worker());
    get(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

/// The same behind a transaction that may write, which has read the row, and no commit follows for long.
fn row_that_is_deleted_between_two_looks() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut long = stage.lasting(Mode::ReadWrite);
    let first = get(&mut long, &stage.items, 1).unwrap();
    assert!(stage.once(|t| t.delete(&stage.items, 1).map(drop)));
    // Until the open one is no longer a young one.
    (0..300).for_each(|value| assert!(stage.set(2, value)));
    stage.quiesce(&mut stage.worker());
    get(&mut long, &stage.items, 1).unwrap() != first
}

/// The same transaction inserts the row: it has seen one under the key, and must be refused.
fn row_that_is_deleted_before_an_insertion() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut long = stage.lasting(Mode::ReadWrite);
    assert!(stage.once(|t| t.delete(&stage.items, 1).map(drop)));
    (0..300).for_each(|value| assert!(stage.set(2, value)));
    stage.quiesce(&mut stage.worker());
    long.try_insert(&stage.items, &Item { id: 1, value: 11 }).is_ok_and(|answer| answer == Insertion::Inserted)
}

/// What a procedure of a batch does.
#[derive(Clone, Copy, Debug)]
enum Part {
    Delete,
    Elsewhere,
    Insert,
    Read,
}

struct Turn {
    items: Table<Item>,
    part: Part,
}

impl Procedure for Turn {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Option<i64>, Error> {
        match self.part {
            Part::Delete => t.delete(&self.items, 1).map(|_| None),
            Part::Elsewhere => t.upsert(&self.items, &Item { id: 2, value: 0 }).map(|()| None),
            Part::Insert => t.insert(&self.items, &Item { id: 1, value: 11 }).map(|()| None),
            Part::Read => Ok(t.get(&self.items, 1)?.map(|row| row.value())),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.part {
            Part::Read => declaration.key(self.items.id(), 1u64.encode(&mut KeyScratch::new()), Access::Read),
            _ => declaration.unknown(),
        }
    }
}

/// Within a batch a row is deleted behind a snapshot and comes back, and is then looked for where it was when the batch began.
fn row_that_comes_back_in_a_batch() -> bool {
    let stage = stage(&[(1, 10)]);
    let _snapshot = stage.lasting(Mode::Snapshot);
    // Any client that commits prunes what was committed before.
    let mut batch =
        [Part::Delete, Part::Elsewhere, Part::Insert, Part::Read].map(|part| Turn { items: stage.items, part });
    let mut last = None;
    stage.worker().execute_batch(&mut batch, &mut |_, answer| last = answer.unwrap());
    last != Some(11)
}

/// A row is overwritten, and what it was is collected, when a snapshot has looked at the clock and not yet said what it reads.
fn snapshot_of_a_row_that_is_overwritten_as_it_begins() -> bool {
    let stage = stage(&[(1, 10)]);
    let mut worker = stage.worker();
    assert!(worker.begin(Mode::ReadWrite).unwrap().commit().is_ok());
    interrupt(Point::Starting, {
        let stage = stage.clone();
        move || {
            assert!(stage.set(1, 11));
            stage.quiesce(&mut stage.worker());
        }
    });
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    get(&mut snapshot, &stage.items, 1).unwrap() != Some(10)
}

/// A stage whose rows have no versions, and that a scan may have found so.
fn plain_stage(is_scanned: bool) -> Stage {
    let rows: Vec<_> = (0..40).map(|id| (id, 10)).collect();
    let stage = stage(&rows);
    let mut worker = stage.worker();
    stage.quiesce(&mut worker);
    if is_scanned {
        for _ in 0..2 {
            assert_eq!(sum(&mut worker.begin(Mode::Snapshot).unwrap(), &stage), 400);
        }
    }
    stage
}

fn sum(t: &mut Tx<'_>, stage: &Stage) -> i64 {
    match t.aggregate(&Scan::all(stage.items.id()), Aggregate::Sum(1)).unwrap() {
        Value::Integer(sum) => sum,
        other => panic!("{other:?} is no sum"),
    }
}

fn range_that_was_changed() -> bool {
    let stage = plain_stage(true);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    assert!(stage.set(1, 11));
    sum(&mut snapshot, &stage) != 400
}

/// A row of a slot range is changed when a scan has seen that there are no versions.
fn range_that_changes() -> bool {
    let stage = plain_stage(true);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    interrupt(Point::Lending, {
        let stage = stage.clone();
        move || assert!(stage.set(1, 11))
    });
    sum(&mut snapshot, &stage) != 400
}

/// A row is changed when a scan has seen that it has no versions, and is about to take it out of the interval.
fn row_that_changes_as_an_interval_is_narrowed() -> bool {
    let stage = plain_stage(false);
    let mut snapshot = stage.lasting(Mode::Snapshot);
    interrupt(Point::Narrowing, {
        let stage = stage.clone();
        move || assert!(stage.set(1, 11))
    });
    assert_eq!(sum(&mut stage.lasting(Mode::Snapshot), &stage), 400);
    sum(&mut snapshot, &stage) != 400
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
    crate::child_whose_parent_goes(crate::setups::by_epochs::<Hyper>().named("hyper-snapshot"))
}

/// A database with futures above, and these rows.
fn open_lazy(rows: std::ops::RangeInclusive<u64>) -> (Arc<Lazy<Hyper>>, Table<Item>) {
    let Setup { options, common, .. } = crate::setups::by_epochs::<Lazy<Hyper>>();
    let database = Lazy::<Hyper>::open(options, common).unwrap();
    let items: Table<Item> = Table::from_id(database.create_table(Item::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut first = worker.begin(Mode::ReadWrite).unwrap();
    rows.into_iter().try_for_each(|id| first.insert(&items, &Item { id, value: 0 })).unwrap();
    first.commit().unwrap();
    (database, items)
}

/// A row is read, two are changed together, and the other one is read at the commit.
fn read_that_was_overtaken() -> bool {
    let (database, items) = open_lazy(1..=3);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    let mut reading = one.begin(Mode::ReadWrite).unwrap();
    assert_eq!(reading.get(&items, 1).unwrap().map(|item| item.value()), Some(0));
    let mut changing = two.begin(Mode::ReadWrite).unwrap();
    (1..=2).try_for_each(|id| changing.upsert(&items, &Item { id, value: 1 })).unwrap();
    changing.commit().unwrap();
    let value = reading.future(&items, 2, Item::VALUE).unwrap();
    reading.set_future(&items, 3, Item::VALUE, value).unwrap();
    reading.commit().is_ok()
}

/// A row that was deleted is going to be incremented, twice: the first failure leaves it deleted.
fn increments_of_a_deleted_row() -> bool {
    let (database, items) = open_lazy(1..=1);
    let mut worker = database.worker().unwrap();
    let mut deleting = worker.begin(Mode::ReadWrite).unwrap();
    assert!(deleting.delete(&items, 1).unwrap());
    deleting.commit().unwrap();
    let mut increment = || {
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        let value = transaction.future(&items, 1, Item::VALUE).unwrap();
        transaction.set_future(&items, 1, Item::VALUE, value + 1).unwrap();
        transaction.commit().is_ok()
    };
    let (first, second) = (increment(), increment());
    first || second
}

crate::killers! { Step:
    UndoUncommitted: dirty_read, "dirty read";
    UndoLater: snapshot_of_the_future, "a snapshot shows a commit after its start";
    RefuseBeingWritten: row_written_by_two, "two transactions write one row, and both commit";
    RefuseWrittenLater: lost_update, "lost update under snapshot isolation; predicates do not cover written rows";
    LogPoints: write_skew, "write skew";
    LogRanges: row_that_comes_into_a_range, "phantom in a range";
    LogExtremes: smallest_value, "write skew over a minimum";
    LogFailures: sum_that_comes_to_fit, "write skew over a sum that did not fit";
    LogLooks: row_that_was_looked_at, "write skew over a row that an update read and left unchanged";
    LogRestrictions: row_that_comes_to_satisfy_a_restriction, "phantom: an update moves a row into a count";
    LogDuplicates: duplicate_that_goes, "write skew over a duplicate key";
    LogRefused: row_whose_change_was_refused, "write skew over a row whose update was refused because of a duplicate";
    ComparePoints: write_skew, "write skew";
    ComparePaths: row_that_comes_into_a_range, "phantom in a range";
    CompareBefore: row_that_goes_from_a_range, "a row of a range that was read is deleted";
    CompareAfter: row_that_comes_into_a_range, "phantom in a range";
    CompareInSection: write_skew_behind_the_comparison, "write skew with a commit after the first comparison";
    CompareBeforeMoving: read_that_was_overtaken, "read skew under `lazy-hyper`: a value read before the start moved has changed";
    PassOverDeleted: increments_of_a_deleted_row, "`lazy-hyper`: a deleted row returns because a future writes to it";
    ReadsOfUndone: row_that_was_deleted_and_restored, "write skew over a row whose deletion was undone";
    StayDoomed: conflict_that_the_procedure_ignores, "a doomed procedure commits";
    KnowAllIndexes: entry_left_behind, "a stale secondary entry remains";
    AwaitIndexes: index_that_was_filled_later, "a snapshot uses an index filled later";
    LockFilledRows: row_that_changes_under_the_filling, "snapshot isolation: filling makes a stale entry";
    AwaitReaders: snapshot_of_a_row_that_is_overwritten, "a snapshot loses a row that is overwritten";
    KeepWords: snapshot_of_a_row_that_changes_in_two_columns, "a snapshot shows a later value of a second column";
    RestoredTimestamps: snapshot_between_two_changes, "a snapshot shows a later value, beside an older snapshot";
    RestoredWords: snapshot_of_a_row_that_then_changes_elsewhere, "as `KeepWords`, where the slot says what is restored";
    RestoredByOthers: snapshot_between_two_changes_that_are_looked_at_again, "a needed image is taken for redundant when its buffer is examined again";
    MoveOut: snapshot_of_a_row_in_a_large_buffer, "a snapshot loses a row whose image was freed with its buffer";
    StandForNewer: column_that_changes_in_a_word_that_has_changed, "write skew: the remaining image is of another column";
    ListedTimestamps: column_that_changes_behind_the_comparison, "as `StandForNewer`, where the remaining image was compared before";
    AwaitWriters: lost_update_behind_a_snapshot, "lost update of a row that was overwritten behind a snapshot";
    PassOverDisplaced: row_that_comes_back_in_a_batch, "a row inserted again is not found";
    LookBeside: snapshot_of_a_row_that_is_deleted, "a snapshot loses a row that is deleted";
    WritersLookBeside: row_that_is_deleted_between_two_looks, "a read-write transaction loses a row deleted since";
    InsertBeside: row_that_is_deleted_before_an_insertion, "it inserts a row under the key of one that it sees";
    AnnounceStart: snapshot_of_a_row_that_is_overwritten_as_it_begins, "a snapshot loses a row that is overwritten while it begins";
    ProtectParents: child_whose_parent_goes, "snapshot isolation: an orphan";
    CoverVersions: range_that_was_changed, "a sum shows a later change";
    StopNarrowing: row_that_changes_as_an_interval_is_narrowed, "the same, where the row left the interval while it was changed";
    LookAgain: range_that_changes, "the same, where the row changes while it is read";
    UndoOperations: row_whose_entry_was_refused, "a refused row remains";
    RefuseDuplicates: code_of_two_members, "a unique value occurs twice";
}
