//! Two-phase locking. One thread drives two transactions, of which neither waits.

use polychron_engine::mutations::interrupt;
use polychron_engine::{
    Commit, Common, Error, Futures, Interactive, Mode, Operations, Protocol, Reason, Table, TableDefinition, drive,
};
use polychron_protocols::lazy::{Lazy, LazyTransaction};
use polychron_protocols::locking::{Locking, LockingTransaction, LockingWorker, Options, Point, Policy, Step};
use polychron_schema::{Index, Row};
use std::sync::Arc;

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

#[derive(Clone)]
struct Stage {
    database: Arc<Locking>,
    items: Table<Item>,
    pages: Table<Page>,
    members: Table<Member>,
}

type Tx<'w> = LockingTransaction<'w>;

impl Stage {
    /// Items 1, 2 and 5 of value 100, a page, and a member.
    fn new() -> Self {
        let memory = polychron_memory::Options { limit_bytes: Some(64 << 20), ..polychron_memory::Options::tiny() };
        let database = Locking::open(Options::default(), Common { memory, ..Common::default() }).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let pages = Table::from_id(database.create_table(Page::definition()).unwrap());
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        let stage = Self { database, items, pages, members };
        assert!(stage.once(|t| {
            [1, 2, 5].into_iter().try_for_each(|id| t.insert(&items, &Item { id, value: 100 }))?;
            t.insert(&pages, &Page { id: 1, text: "a page as it was".into() })?;
            t.insert(&members, &Member { id: 1, code: 1 })
        }));
        stage
    }

    fn worker(&self) -> LockingWorker {
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
        let stopped = outcome.err();
        // What another transaction of this thread holds would be waited for in vain.
        let is_lost = |stopped: &Error| matches!(stopped, Error::Conflict | Error::WaitsForItself { .. });
        assert!(stopped.as_ref().is_none_or(is_lost), "{stopped:?}");
        stopped.is_none()
    }

    fn set(&self, id: u64, value: i64) -> bool {
        self.once(|t| write(t, self, id, value))
    }

    fn insert(&self, id: u64) -> bool {
        self.once(|t| t.insert(&self.items, &Item { id, value: 100 }))
    }

    /// What another transaction reads, if it can.
    fn look(&self, id: u64) -> Option<i64> {
        let mut seen = None;
        self.once(|t| read(t, self, id).map(|value| seen = value));
        seen
    }

    /// Whether a transaction sees something change when `other` is done in its middle.
    fn changes<O: PartialEq>(
        &self,
        mut look: impl FnMut(&mut Tx<'_>) -> Result<O, Error>,
        other: impl FnOnce(),
    ) -> bool {
        let mut changed = false;
        self.once(|t| {
            let first = look(t)?;
            other();
            changed = look(t)? != first;
            Ok(())
        });
        changed
    }
}

fn read(t: &mut Tx<'_>, stage: &Stage, id: u64) -> Result<Option<i64>, Error> {
    Ok(t.get(&stage.items, id)?.map(|row| row.value()))
}

fn write(t: &mut Tx<'_>, stage: &Stage, id: u64, value: i64) -> Result<(), Error> {
    t.update(&stage.items, id, |row| row.set_value(value)).map(drop)
}

fn read_that_changes() -> bool {
    let stage = Stage::new();
    stage.changes(|t| read(t, &stage, 1), || _ = stage.set(1, 50))
}

/// Whether another transaction sees a value that is about to be taken back.
fn dirty(after: impl FnOnce(&mut Tx<'_>, &Stage) -> Result<(), Error>) -> bool {
    let stage = Stage::new();
    let mut worker = stage.worker();
    let mut writer = worker.begin(Mode::ReadWrite).unwrap();
    write(&mut writer, &stage, 1, 50).unwrap();
    after(&mut writer, &stage).unwrap();
    stage.look(1) == Some(50)
}

fn dirty_read() -> bool {
    dirty(|_, _| Ok(()))
}

fn dirty_read_after_another_operation() -> bool {
    dirty(|t, stage| read(t, stage, 2).map(drop))
}

fn row_that_two_have_read() -> bool {
    let stage = Stage::new();
    let other = || {
        stage.once(|t| {
            read(t, &stage, 1)?;
            write(t, &stage, 1, 50)
        });
    };
    stage.changes(|t| read(t, &stage, 1), other)
}

fn count_of_a_range() -> bool {
    let stage = Stage::new();
    stage.changes(|t| t.scan(&stage.items, 1..5).count(), || _ = stage.insert(3))
}

fn insertion_beside_a_scan() -> bool {
    let stage = Stage::new();
    let beside = stage.clone();
    interrupt(Point::Collected, move || _ = beside.insert(3));
    stage.changes(|t| t.scan(&stage.items, 1..5).count(), || ())
}

fn row_of_a_range_that_changes() -> bool {
    let stage = Stage::new();
    stage.changes(|t| t.scan(&stage.items, ..).map(|row| row.value()).sum(), || _ = stage.set(2, 50))
}

fn row_that_moves_beside_a_scan() -> bool {
    let stage = Stage::new();
    let beside = stage.clone();
    interrupt(Point::Collected, move || {
        assert!(
            beside.once(|t| t.update(&beside.pages, 1, |row| row.set_text(&"longer".repeat(99)).unwrap()).map(drop))
        );
    });
    let mut pages = 0;
    assert!(stage.once(|t| t.scan(&stage.pages, ..).count().map(|count| pages = count)));
    pages != 1
}

fn write_skew_over_a_dropped_index() -> bool {
    crate::write_skew_over_a_dropped_index(crate::setups::locking())
}

/// A transaction that began before an index, and is not waited for because it stands aside, changes a row of which the index has an entry.
fn entry_left_behind() -> bool {
    let stage = Stage::new();
    let plain = TableDefinition { indexes: Vec::new(), ..Member::definition().with_name("plain") };
    let table: Table<Member> = Table::from_id(stage.database.create_table(plain).unwrap());
    assert!(stage.once(|t| (0..3).try_for_each(|id| t.insert(&table, &Member { id, code: id as u32 }))));
    let by_code: Index<Member, u32> = Index::new("by_code", 0, true, false);
    let mut worker = stage.worker();
    let mut older = worker.begin(Mode::ReadWrite).unwrap();
    std::thread::scope(|scope| {
        let definition = Member::definition().indexes[0].clone();
        // On another thread, for it might wait for the transactions of this one.
        scope.spawn(|| stage.database.create_index(table.id(), definition).unwrap());
    });
    let _ = older.update(&table, 1, |row| row.set_code(20)).and_then(|_| older.commit());
    let (mut rows, mut entries) = (0, 0);
    assert!(stage.once(|t| {
        rows = t.scan(&table, ..).map(|row| u64::from(row.code() >= 20)).sum()?;
        t.scan_range_by::<_, _, u32>(&table, by_code, 20..).count().map(|count| entries = count)
    }));
    entries != rows
}

fn snapshot_that_writes() -> bool {
    let stage = Stage::new();
    let mut worker = stage.worker();
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    let _ = write(&mut snapshot, &stage, 1, 50);
    let _ = snapshot.commit();
    stage.look(1) != Some(100)
}

fn conflict_that_the_procedure_ignores() -> bool {
    let stage = Stage::new();
    let (written, over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = stage.worker();
            let mut writer = worker.begin(Mode::ReadWrite).unwrap();
            write(&mut writer, &stage, 1, 50).unwrap();
            written.wait();
            over.wait();
        });
        written.wait();
        let committed = stage.once(|t| {
            assert!(read(t, &stage, 1).is_err());
            write(t, &stage, 2, 50)
        });
        over.wait();
        committed
    })
}

/// How many members there are when a second one wants the first one's code.
fn members() -> usize {
    let stage = Stage::new();
    let mut count = 0;
    assert!(stage.once(|t| {
        let _ = t.try_insert(&stage.members, &Member { id: 2, code: 1 })?;
        t.scan(&stage.members, ..).count().map(|members| count = members as usize)
    }));
    count
}

fn code_of_two_members() -> bool {
    members() != 1
}

fn row_whose_entry_was_refused() -> bool {
    members() != 1
}

fn write_that_was_rolled_back() -> bool {
    let stage = Stage::new();
    let mut worker = stage.worker();
    let mut writer = worker.begin(Mode::ReadWrite).unwrap();
    write(&mut writer, &stage, 1, 50).unwrap();
    drop(writer);
    stage.look(1) != Some(100)
}

/// Two rows in `lazy-2pl`, 1 of value 2 and 2 of value 1, and what a condition over them is told.
struct Pair {
    database: Arc<Lazy<Locking>>,
    items: Table<Item>,
}

type Late<'w> = LazyTransaction<'w, Locking>;

impl Pair {
    fn new() -> Self {
        let memory = polychron_memory::Options::tiny();
        let database = Lazy::open(Default::default(), Common { memory, ..Common::default() }).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let pair = Self { database, items };
        assert!(
            pair.once(|t| [(1, 2), (2, 1)]
                .into_iter()
                .try_for_each(|(id, value)| t.insert(&items, &Item { id, value })))
        );
        pair
    }

    fn once(&self, body: impl FnOnce(&mut Late<'_>) -> Result<(), Error>) -> bool {
        let mut worker = self.database.worker().unwrap();
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        body(&mut transaction).and_then(|()| transaction.commit()).is_ok()
    }

    fn set(&self, t: &mut Late<'_>, id: u64, value: i64) -> Result<(), Error> {
        t.set_future(&self.items, id, Item::VALUE, value)
    }

    /// Whether row 1 comes behind row 2.
    fn ask(&self, t: &mut Late<'_>) -> Result<bool, Error> {
        let (left, right) = (t.future(&self.items, 1, Item::VALUE)?, t.future(&self.items, 2, Item::VALUE)?);
        t.is_true(left.greater_than(right))
    }

    /// Whether a transaction is told two things when `other` is done in its middle.
    fn changes(&self, other: impl FnOnce()) -> bool {
        let mut changed = false;
        self.once(|t| {
            let first = self.ask(t)?;
            other();
            changed = self.ask(t)? != first;
            Ok(())
        });
        changed
    }
}

fn condition_that_changes() -> bool {
    let pair = Pair::new();
    pair.changes(|| _ = pair.once(|t| pair.set(t, 1, 0)))
}

/// A writer goes by a value of the other row that is about to be taken back.
fn condition_over_a_value_that_is_taken_back() -> bool {
    let pair = Pair::new();
    pair.changes(|| {
        let mut worker = pair.database.worker().unwrap();
        let mut writer = worker.begin(Mode::ReadWrite).unwrap();
        assert!(writer.update(&pair.items, 2, |row| row.set_value(0)).unwrap());
        pair.once(|t| pair.set(t, 1, 1));
        drop(writer);
    })
}

/// Whether a younger transaction goes on while an older one waits for it.
fn younger_one_that_goes_on() -> bool {
    let memory = polychron_memory::Options::tiny();
    let database = Locking::open(
        Options { policy: Policy::WoundWait, ..Options::default() },
        Common { memory, ..Common::default() },
    )
    .unwrap();
    let items: Table<Item> = Table::from_id(database.create_table(Item::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let fill = |t: &mut LockingTransaction<'_>| {
        [1, 2].into_iter().try_for_each(|id| t.insert(&items, &Item { id, value: 100 }))
    };
    drive::transact(&mut worker, Mode::ReadWrite, &mut { fill }).unwrap();
    let (queued, waits) = std::sync::mpsc::channel();
    let (begun, locked) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let older = scope.spawn(|| {
            let mut worker = database.worker().unwrap();
            let mut older = worker.begin(Mode::ReadWrite).unwrap();
            begun.wait();
            locked.wait();
            interrupt(Point::Queued, move || queued.send(()).unwrap());
            older.update(&items, 1, |row| row.set_value(1)).and_then(|_| older.commit()).is_ok()
        });
        begun.wait();
        let mut younger = worker.begin(Mode::ReadWrite).unwrap();
        assert!(younger.update(&items, 1, |row| row.set_value(2)).unwrap());
        locked.wait();
        waits.recv().unwrap();
        let goes_on = younger.get(&items, 2).is_ok();
        drop(younger);
        assert!(older.join().unwrap(), "nobody is older");
        let abort = worker.last_abort().map(|abort| abort.reason);
        assert!(goes_on || abort == Some(Reason::Wounded), "{abort:?}");
        goes_on
    })
}

crate::killers! { Step:
    LockReads: read_that_changes, "a row changes between two reads of a transaction";
    LockWrites: dirty_read, "dirty read";
    Upgrade: row_that_two_have_read, "a row changes that another transaction has read, too";
    UpgradeAlone: row_that_two_have_read, "the same";
    HoldLocks: dirty_read_after_another_operation, "dirty read after the writer's next operation";
    LockRanges: count_of_a_range, "phantom in a counted range";
    LockRangesFirst: insertion_beside_a_scan, "the same, where the key is inserted while the scan collects entries";
    RespectRanges: count_of_a_range, "phantom in a counted range";
    LockScanned: row_of_a_range_that_changes, "a row changes in a range that was summed";
    LookAgain: row_that_moves_beside_a_scan, "a scan misses a row that outgrew its record meanwhile";
    KnowAllIndexes: entry_left_behind, "a stale secondary entry remains";
    KnowDropped: write_skew_over_a_dropped_index, "write skew over a dropped index";
    RefuseSnapshotWrites: snapshot_that_writes, "a snapshot writes";
    StayDoomed: conflict_that_the_procedure_ignores, "a doomed procedure commits";
    RefuseDuplicates: code_of_two_members, "a unique value occurs twice";
    HoldConditions: condition_that_changes, "a transaction observes two values of one condition";
    RespectConditions: condition_that_changes, "the same";
    LockOperands: condition_over_a_value_that_is_taken_back, "the same, because a writer used a value that was rolled back";
    GiveWay: younger_one_that_goes_on, "a younger transaction keeps an older one waiting";
    UndoTransactions: write_that_was_rolled_back, "a rollback undoes nothing";
    UndoOperations: row_whose_entry_was_refused, "a refused row remains";
}
