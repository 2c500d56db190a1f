//! White-box tests: single operations are atomic under threads, records and entries are freed.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::sizes::scaled;
use polychron_base::{Error, IndexId};
use polychron_engine::stores::for_each;
use polychron_engine::{
    Access, Common, Declare, Insertion, Interactive, Mode, Operations, Procedure, Protocol, Table, Transaction, Worker,
    drive,
};
use polychron_memory::Guard;
use polychron_schema::{IndexDefinition, Key, KeyScratch, Row};

use super::{KeyValue, KeyValueTransaction, KeyValueWorker, Options};

/// Every column of a whole row holds the same number.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "wide")]
struct Wide {
    #[key]
    id: u64,
    first: u64,
    second: u64,
    third: u64,
    text: String,
    last: u64,
}

fn wide(id: u64, value: u64) -> Wide {
    // The text's length follows the value, so rows outgrow their records.
    let text = value.to_string().repeat(value as usize % 7);
    Wide { id, first: value, second: value, third: value, text, last: value }
}

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "person")]
#[index(name = "by_city", columns(city))]
#[index(name = "by_badge", columns(badge), unique)]
struct Person {
    #[key]
    id: u64,
    city: u32,
    badge: u64,
    age: u64,
}

fn person(id: u64, city: u32, badge: u64) -> Person {
    Person { id, city, badge, age: 30 }
}

fn common() -> Common {
    let limit_bytes = Some(64 << 20);
    Common {
        memory: polychron_memory::Options { limit_bytes, ..polychron_memory::Options::tiny() },
        ..Common::default()
    }
}

fn open<R: Row>() -> (Arc<KeyValue>, Table<R>, KeyValueWorker) {
    let database = KeyValue::open(Options::default(), common()).unwrap();
    let table = Table::from_id(database.create_table(R::definition()).unwrap());
    let worker = database.worker().unwrap();
    (database, table, worker)
}

fn run<O>(
    worker: &mut KeyValueWorker,
    mut body: impl FnMut(&mut KeyValueTransaction<'_>) -> Result<O, Error>,
) -> Result<O, Error> {
    drive::transact(worker, Mode::ReadWrite, &mut body)
}

/// How many entries each index has.
fn counts(worker: &KeyValueWorker, guard: &Guard<'_>) -> Vec<usize> {
    let (_, tables) = worker.database.catalog.snapshot();
    let table = tables[0].as_ref().unwrap();
    let stores = std::iter::once(&table.primary).chain(table.secondaries());
    stores
        .map(|store| {
            let mut count = 0;
            for_each(store.index(), guard, &mut |_, _| count += 1);
            count
        })
        .collect()
}

fn assert_counts(worker: &mut KeyValueWorker, expected: &[usize]) {
    run(worker, |_| Ok(())).unwrap();
    let guard = worker.local.pin();
    assert_eq!(counts(worker, &guard), expected);
}

#[test]
fn single_operations_work_and_are_visible_at_once() {
    let (database, table, mut worker) = open::<Wide>();
    let mut other = database.worker().unwrap();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    transaction.insert(&table, &wide(1, 3)).unwrap();
    let twice = transaction.try_insert(&table, &wide(1, 4)).unwrap();
    assert_eq!(twice, Insertion::Duplicate(IndexId::PRIMARY));
    let seen = run(&mut other, |other| Ok(other.get(&table, 1)?.map(|row| row.first()))).unwrap();
    assert_eq!(seen, Some(3));
    assert!(transaction.update(&table, 1, |row| row.set_second(9)).unwrap());
    transaction.upsert(&table, &wide(1, 13)).unwrap();
    transaction.upsert(&table, &wide(2, 5)).unwrap();
    assert!(transaction.delete(&table, 2).unwrap());
    assert!(!transaction.delete(&table, 2).unwrap());
    drop(transaction);
    let rows = run(&mut other, |other| other.scan(&table, ..).rows()).unwrap();
    assert_eq!(rows, [wide(1, 13)]);
}

#[test]
fn roll_back_reports_and_undoes_nothing() {
    let (_database, table, mut worker) = open::<Wide>();
    let outcome = run(&mut worker, |transaction| {
        let savepoint = transaction.savepoint();
        transaction.roll_back_to(savepoint)?;
        transaction.insert(&table, &wide(1, 1))?;
        let refused = transaction.roll_back_to(savepoint).unwrap_err();
        assert!(format!("{refused:?}").contains("Unsupported"));
        Err::<(), _>(Error::RolledBack)
    });
    assert!(matches!(outcome, Err(Error::RolledBack)));
    let row = run(&mut worker, |transaction| Ok(transaction.get(&table, 1)?.is_some())).unwrap();
    assert!(row, "there are no transactions");
}

#[test]
fn entries_follow_rows_and_unique_keys_are_refused() {
    let (database, table, mut worker) = open::<Person>();
    run(&mut worker, |transaction| {
        transaction.insert(&table, &person(1, 10, 100))?;
        transaction.insert(&table, &person(2, 10, 200))?;
        let refused = transaction.try_insert(&table, &person(3, 11, 200))?;
        assert_eq!(refused, Insertion::Duplicate(IndexId(2)));
        transaction.update(&table, 1, |row| row.set_city(12))?;
        transaction.upsert(&table, &person(2, 13, 300))?;
        transaction.insert(&table, &person(3, 11, 200))?;
        transaction.delete(&table, 1)
    })
    .unwrap();
    assert_counts(&mut worker, &[2, 2, 2]);
    let refused = run(&mut worker, |transaction| transaction.update(&table, 2, |row| row.set_badge(200)).map(drop));
    assert!(matches!(refused, Err(Error::Duplicate(of)) if of.index == IndexId(2)));
    assert_counts(&mut worker, &[2, 2, 2]);
    let index = database.create_index(table.id(), IndexDefinition::new("by_age", [3])).unwrap();
    assert_counts(&mut worker, &[2, 2, 2, 2]);
    let twice = database.create_index(table.id(), IndexDefinition::new("one_age", [3]).with_unique(true));
    assert!(matches!(twice, Err(Error::Duplicate { .. })));
    database.drop_index(table.id(), index).unwrap();
    assert_counts(&mut worker, &[2, 2, 2]);
}

#[test]
fn rows_are_never_torn() {
    const KEYS: u64 = 4;
    let (database, table, mut worker) = open::<Wide>();
    run(&mut worker, |transaction| (0..KEYS).try_for_each(|id| transaction.insert(&table, &wide(id, 0)))).unwrap();
    let check = |row: Option<Wide>| {
        if let Some(row) = row {
            assert_eq!(row, wide(row.id, row.first));
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let mut worker = database.worker().unwrap();
            scope.spawn(move || {
                for round in 0..scaled(3000, 20) as u64 {
                    let (id, value) = (round % KEYS, round * 3 + thread);
                    run(&mut worker, |transaction| {
                        match round % 5 {
                            0 if thread == 0 => drop(transaction.delete(&table, id)?),
                            1 | 2 => transaction.upsert(&table, &wide(id, value))?,
                            3 => transaction.scan(&table, ..).rows()?.into_iter().for_each(|row| check(Some(row))),
                            _ => check(transaction.get(&table, id)?.map(Wide::from_ref)),
                        }
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
    });
}

#[test]
fn of_insertions_of_one_key_one_succeeds() {
    const ROUNDS: u64 = scaled(500, 20) as u64;
    let (database, table, _worker) = open::<Wide>();
    let wins: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|value| {
                let mut worker = database.worker().unwrap();
                scope.spawn(move || {
                    let mut wins = 0;
                    for id in 0..ROUNDS {
                        let outcome = run(&mut worker, |transaction| transaction.try_insert(&table, &wide(id, value)));
                        wins += u64::from(outcome.unwrap() == Insertion::Inserted);
                    }
                    wins
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(wins, ROUNDS);
}

#[test]
fn memory_comes_back() {
    let (database, table, mut worker) = open::<Person>();
    let used = |worker: &mut KeyValueWorker| {
        for _ in 0..6 {
            run(worker, |_| Ok(())).unwrap();
            database.memory().epochs().advance();
            worker.maintain();
            database.base.deferred_drops.collect();
        }
        database.memory().statistics().used_bytes
    };
    let empty = used(&mut worker);
    let rows = scaled(200, 20) as u64;
    for round in 0..scaled(20, 3) as u32 {
        run(&mut worker, |transaction| {
            (0..rows).try_for_each(|id| transaction.insert(&table, &person(id, round, id)))?;
            (0..rows).try_for_each(|id| transaction.delete(&table, id).map(drop))
        })
        .unwrap();
    }
    let after = used(&mut worker);
    assert!(after <= empty + (16 << 10), "{empty} before, {after} after");
    run(&mut worker, |transaction| (0..rows).try_for_each(|id| transaction.insert(&table, &person(id, 1, id))))
        .unwrap();
    database.drop_table(table.id()).unwrap();
    let dropped = used(&mut worker);
    assert!(dropped < empty, "{empty} with an empty table, {dropped} without");
}

struct Add(Table<Person>, u64);

impl Procedure for Add {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
        transaction.update(&self.0, self.1, |row| row.set_age(row.age() + 1))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let mut scratch = KeyScratch::new();
        let key: &[u8] = self.1.encode_bytes(&mut scratch);
        declaration.key(self.0.id(), key, Access::Write);
    }
}

#[test]
fn batches_run_every_procedure() {
    let (_database, table, mut worker) = open::<Person>();
    run(&mut worker, |transaction| (0..40).try_for_each(|id| transaction.insert(&table, &person(id, 1, id)))).unwrap();
    let mut procedures: Vec<_> = (0..50).map(|id| Add(table, id)).collect();
    let mut found = vec![None; 50];
    worker.execute_batch(&mut procedures, &mut |position, outcome| found[position] = outcome.ok());
    assert_eq!(found, (0..50).map(|id| Some(id < 40)).collect::<Vec<_>>());
    let ages: u64 = run(&mut worker, |transaction| transaction.scan(&table, ..).map(|row| row.age()).sum()).unwrap();
    assert_eq!(ages, 40 * 31);
}

#[test]
fn snapshots_read_the_present_and_cannot_write() {
    let (database, table, mut worker) = open::<Person>();
    run(&mut worker, |transaction| transaction.insert(&table, &person(1, 1, 1))).unwrap();
    let mut reader = database.worker().unwrap();
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    run(&mut worker, |transaction| transaction.insert(&table, &person(2, 1, 2))).unwrap();
    assert_eq!(snapshot.scan(&table, ..).count().unwrap(), 2);
    let refused = snapshot.delete(&table, 1).unwrap_err();
    assert!(matches!(refused, polychron_base::error::Error::ReadOnly));
    let mut seen = 0;
    let scan = polychron_engine::Scan {
        table: table.id(),
        index: IndexId(1),
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
        direction: polychron_engine::Direction::Backward,
        limit: 1,
        projection: polychron_engine::Projection::ALL,
        restrictions: &[],
    };
    let mut last = 0;
    snapshot
        .scan_rows(&scan, &mut |row| {
            seen += 1;
            last = Person::view(row).id();
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((seen, last), (1, 2));
}
