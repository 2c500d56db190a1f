//! White-box tests: leaked and nested transactions, and collection in slices.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::sizes::scaled;
use polychron_engine::{Commit, Common, Interactive, Mode, Operations, Protocol, Table, Worker, drive};
use polychron_schema::{IndexDefinition, Row};

use super::{Hekaton, HekatonTransaction, HekatonWorker, Level, Options};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "entry")]
#[index(name = "by_count", columns(count))]
struct Entry {
    #[key]
    id: u64,
    count: u64,
}

struct Opened {
    database: Arc<Hekaton>,
    table: Table<Entry>,
}

fn entry(id: u64) -> Entry {
    Entry { id, count: 0 }
}

fn open(level: Level, rows: u64) -> Opened {
    let memory = polychron_memory::Options { limit_bytes: Some(256 << 20), ..polychron_memory::Options::tiny() };
    let database = Hekaton::open(Options { level }, Common { memory, ..Common::default() }).unwrap();
    let table = Table::from_id(database.create_table(Entry::definition()).unwrap());
    let opened = Opened { database, table };
    opened.transact(|it| (0..rows).try_for_each(|id| it.insert(&table, &entry(id)))).unwrap();
    opened
}

type Transaction<'w> = HekatonTransaction<'w>;

impl Opened {
    fn worker(&self) -> HekatonWorker {
        self.database.worker().unwrap()
    }

    fn transact<O>(&self, mut body: impl FnMut(&mut Transaction<'_>) -> Result<O, Error>) -> Result<O, Error> {
        drive::transact(&mut self.worker(), Mode::ReadWrite, &mut body)
    }

    fn rows(&self) -> Vec<Entry> {
        self.transact(|it| it.scan(&self.table, ..).rows()).unwrap()
    }
}

fn leaked_transactions(level: Level) {
    let opened = open(level, 4);
    let (table, mut worker) = (opened.table, opened.worker());
    let before = opened.rows();
    for drops in [false, true] {
        let mut leaked = worker.begin(Mode::ReadWrite).unwrap();
        assert!(leaked.update(&table, 1, |row| row.set_count(1)).unwrap());
        assert!(leaked.delete(&table, 2).unwrap());
        leaked.insert(&table, &entry(9)).unwrap();
        std::mem::forget(leaked);
        if drops {
            drop(worker);
            worker = opened.worker();
        } else {
            worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
        }
        assert_eq!(opened.rows(), before);
        assert!(opened.transact(|it| it.update(&table, 1, |row| row.set_count(0))).unwrap(), "it is locked");
        std::mem::forget(worker.begin(Mode::Snapshot).unwrap());
    }
    worker.maintain();
    let epochs = opened.database.memory().epochs();
    let readonly = epochs.readonly();
    (0..4).for_each(|_| _ = epochs.advance());
    assert!(epochs.readonly() > readonly, "a leaked guard holds up the epochs");
}

#[test]
fn leaked_transactions_are_undone() {
    leaked_transactions(Level::Serializable);
    leaked_transactions(Level::Snapshot);
}

fn is_own_wait<O: std::fmt::Debug>(answer: Result<O, Error>) {
    assert!(matches!(answer, Err(Error::WaitsForItself { .. })), "{answer:?}");
}

fn nested_transactions(level: Level) {
    let opened = open(level, 4);
    let table = opened.table;
    opened
        .transact(|outer| {
            outer.update(&table, 1, |row| row.set_count(7))?;
            outer.insert(&table, &entry(9))?;
            is_own_wait(opened.transact(|it| it.update(&table, 1, |row| row.set_count(8))));
            is_own_wait(opened.transact(|it| it.delete(&table, 1)));
            is_own_wait(opened.transact(|it| it.insert(&table, &entry(9))));
            assert!(opened.transact(|it| it.update(&table, 2, |row| row.set_count(3)))?);
            let by_id = IndexDefinition { name: "by_id".into(), ..Entry::definition().indexes[0].clone() };
            is_own_wait(opened.database.create_index(table.id(), by_id));
            Ok(())
        })
        .unwrap();
    assert_eq!(opened.rows().iter().map(|row| row.count).collect::<Vec<_>>(), [0, 7, 3, 0, 0]);
}

#[test]
fn waiting_for_oneself_is_an_error() {
    nested_transactions(Level::Serializable);
    nested_transactions(Level::Snapshot);
}

/// A transaction that meets the writes of an open one is told the key, whether the row was there before or not.
fn conflicts_over_open_writes(level: Level) {
    let opened = open(level, 4);
    let table = opened.table;
    let mut other = opened.worker();
    let mut writer = other.begin(Mode::ReadWrite).unwrap();
    writer.update(&table, 1, |row| row.set_count(7)).unwrap();
    writer.delete(&table, 2).unwrap();
    writer.insert(&table, &entry(9)).unwrap();
    for id in [1, 2, 9] {
        let mut worker = opened.worker();
        let mut refused = worker.begin(Mode::ReadWrite).unwrap();
        let answer = match id {
            1 => refused.update(&table, 1, |row| row.set_count(8)).map(drop),
            2 => refused.delete(&table, 2).map(drop),
            _ => refused.insert(&table, &entry(9)),
        };
        assert!(answer.is_err(), "{id}");
        drop(refused);
        let abort = worker.last_abort().unwrap();
        let key = abort.key.unwrap_or_else(|| panic!("{id}: {abort}"));
        assert_eq!(key.bytes(), u64::to_be_bytes(id), "{abort}");
    }
    writer.commit().unwrap();
}

#[test]
fn conflicts_over_open_writes_name_the_key() {
    conflicts_over_open_writes(Level::Serializable);
    conflicts_over_open_writes(Level::Snapshot);
}

/// What an operation costs does not grow with those before it: a transaction of which it did would not end.
fn large_transactions(level: Level) {
    let opened = open(level, 0);
    let (table, count) = (opened.table, scaled(1 << 15, 100) as u64);
    let mut worker = opened.worker();
    for savepoints in [false, true] {
        let large = |it: &mut Transaction<'_>| {
            for id in 0..count {
                assert!(it.get(&table, id)?.is_none());
                it.insert(&table, &entry(id))?;
                if savepoints {
                    let _ = it.savepoint();
                }
                it.update(&table, 0, |row| row.set_count(id))?;
            }
            (0..count).try_for_each(|id| it.get(&table, id).map(|row| assert!(row.is_some())))?;
            assert_eq!(it.scan(&table, ..).count()?, count);
            (0..count).try_for_each(|id| it.delete(&table, id).map(|deleted| assert!(deleted)))
        };
        drive::transact(&mut worker, Mode::ReadWrite, &mut { large }).unwrap();
    }
}

#[test]
fn large_transactions_end() {
    large_transactions(Level::Serializable);
    large_transactions(Level::Snapshot);
}

/// What has waited for an idle transaction is collected in slices: no transaction that begins works off all of it, and in the end
/// nothing is left.
#[test]
fn a_backlog_is_collected_in_slices() {
    let opened = open(Level::Serializable, 2);
    let (table, mut idle, mut worker) = (opened.table, opened.worker(), opened.worker());
    let waits = idle.begin(Mode::ReadWrite).unwrap();
    let count = scaled(4000, 600);
    for _ in 0..count {
        let change = |it: &mut Transaction<'_>| it.update(&table, 0, |row| row.set_count(1));
        assert!(drive::transact(&mut worker, Mode::ReadWrite, &mut { change }).unwrap());
    }
    drop(waits);
    let mut backlog = worker.state.collector.len();
    assert!(backlog >= count, "a transaction that may write holds what was written since it began");
    let mut begun = 0;
    while backlog > 0 {
        worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
        let left = worker.state.collector.len();
        assert!(backlog - left <= 256, "a transaction works off {} items", backlog - left);
        (backlog, begun) = (left, begun + 1);
        assert!(begun <= count, "the backlog does not shrink");
    }
}

/// Behind a transaction that is open for long, a hot row's list is long. What is collected of it does not pass by all of it each time.
#[test]
fn a_long_list_is_gone_through_seldom() {
    let opened = open(Level::Serializable, 1);
    let (table, mut worker) = (opened.table, opened.worker());
    let mut idle = [opened.worker(), opened.worker()];
    let [first, second] = &mut idle;
    let count = scaled(3000, 600);
    let change = |worker: &mut HekatonWorker| {
        for _ in 0..count {
            let change = |it: &mut Transaction<'_>| it.update(&table, 0, |row| row.set_count(1));
            assert!(drive::transact(worker, Mode::ReadWrite, &mut { change }).unwrap());
        }
    };
    let older = first.begin(Mode::ReadWrite).unwrap();
    change(&mut worker);
    let younger = second.begin(Mode::ReadWrite).unwrap();
    change(&mut worker);
    drop(older);
    // What the older one held goes, step by step, below what the younger one holds.
    change(&mut worker);
    drop(younger);
    change(&mut worker);
    let looked_at = worker.state.collector.looked_at;
    assert!(looked_at < 8 * 4 * count, "{looked_at} versions were looked at for {} items", 4 * count);
    worker.maintain();
    worker.maintain();
    assert_eq!(worker.state.collector.len(), 0);
}
