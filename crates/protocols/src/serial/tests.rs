//! White-box tests: what the maps and the undo log hold. Behaviour is tested for every protocol alike in `check`.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Commit, Common, Direction, Insertion, Interactive, Mode, Operations, Procedure, Projection, Protocol, Restriction,
    Scan, Table, TableDefinition, Transaction, Worker, drive,
};
use polychron_schema::{ColumnType, IndexDefinition, IndexKind, Key, KeyScratch, Row, RowBuffer, Value, build_row};

use super::{Options, Serial, SerialTransaction, SerialWorker};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "person")]
#[index(name = "by_city", columns(city))]
#[index(name = "by_email", columns(email), unique)]
struct Person {
    #[key]
    id: u64,
    city: String,
    email: Option<String>,
    age: u32,
}

fn person(id: u64, city: &str, email: Option<&str>) -> Person {
    Person { id, city: city.into(), email: email.map(str::to_owned), age: id as u32 * 10 }
}

fn open() -> (Arc<Serial>, Table<Person>, SerialWorker) {
    let database = Serial::open(Options::default(), Common::default()).unwrap();
    let table = Table::from_id(database.create_table(Person::definition()).unwrap());
    let worker = database.worker().unwrap();
    (database, table, worker)
}

fn transact<O>(
    worker: &mut SerialWorker,
    mut body: impl FnMut(&mut SerialTransaction<'_>) -> Result<O, Error>,
) -> Result<O, Error> {
    drive::transact(worker, Mode::ReadWrite, &mut body)
}

/// Row and entry counts: invariant 2 says that they are equal.
fn counts(database: &Serial, table: TableId) -> Vec<usize> {
    let held = database.hold().unwrap();
    let table = held.get(table).unwrap();
    let mut counts = vec![table.rows.len()];
    counts.extend((1..=2).filter_map(|id| table.secondary(IndexId(id)).ok()).map(|index| index.entries.len()));
    counts
}

fn fill(worker: &mut SerialWorker, table: Table<Person>) {
    transact(worker, |transaction| {
        transaction.insert(&table, &person(1, "Rome", Some("a@x")))?;
        transaction.insert(&table, &person(2, "Oslo", None))?;
        transaction.insert(&table, &person(3, "Rome", None))
    })
    .unwrap();
}

fn ids(transaction: &mut SerialTransaction<'_>, scan: &Scan<'_>) -> Result<Vec<u64>, Error> {
    let mut ids = Vec::new();
    transaction.scan_rows(scan, &mut |row| {
        ids.push(Person::view(row).id());
        ControlFlow::Continue(())
    })?;
    Ok(ids)
}

fn whole(table: TableId, index: IndexId) -> Scan<'static> {
    Scan {
        table,
        index,
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
        direction: Direction::Forward,
        limit: usize::MAX,
        projection: Projection::ALL,
        restrictions: &[],
    }
}

#[test]
fn secondary_entries_follow_every_change() {
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    assert_eq!(counts(&database, table.id()), [3, 3, 3]);
    transact(&mut worker, |transaction| {
        transaction.update(&table, 1, |row| row.set_city("Oslo").unwrap())?;
        transaction.upsert(&table, &person(2, "Bonn", Some("b@x")))?;
        assert_eq!(ids(transaction, &whole(table.id(), IndexId(1)))?, [2, 1, 3]);
        transaction.delete(&table, 3)
    })
    .unwrap();
    assert_eq!(counts(&database, table.id()), [2, 2, 2]);
}

#[test]
fn a_roll_back_leaves_no_trace() {
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    let changes = |transaction: &mut SerialTransaction<'_>| {
        transaction.update(&table, 1, |row| row.set_email(None).unwrap())?;
        transaction.update(&table, 1, |row| row.set_age(99))?;
        transaction.delete(&table, 2)?;
        transaction.upsert(&table, &person(2, "Kyiv", Some("a@x")))?;
        transaction.insert(&table, &person(4, "Lima", None))
    };
    let error =
        transact(&mut worker, |transaction| changes(transaction).and_then(|()| Err::<(), _>(Error::RolledBack)));
    assert!(matches!(error, Err(Error::RolledBack)));
    let panicked = transact(&mut worker, |transaction| -> Result<(), Error> {
        changes(transaction)?;
        panic!("halfway");
    });
    assert!(matches!(panicked, Err(Error::Panicked(text)) if *text == *"halfway"));
    drop(worker.begin(Mode::ReadWrite).map(|mut transaction| changes(&mut transaction)));
    assert_eq!(counts(&database, table.id()), [3, 3, 3]);
    let rows = transact(&mut worker, |transaction| transaction.scan(&table, ..).rows()).unwrap();
    assert_eq!(rows, [person(1, "Rome", Some("a@x")), person(2, "Oslo", None), person(3, "Rome", None)]);
}

#[test]
fn savepoints_undo_a_part() {
    let (_database, table, mut worker) = open();
    fill(&mut worker, table);
    let cities: Vec<String> = transact(&mut worker, |transaction| {
        transaction.update(&table, 1, |row| row.set_city("Bari").unwrap())?;
        let savepoint = transaction.savepoint();
        transaction.update(&table, 1, |row| row.set_city("Graz").unwrap())?;
        transaction.delete(&table, 2)?;
        transaction.roll_back_to(savepoint)?;
        transaction.scan(&table, ..).map(|row| row.city().to_owned()).collect()
    })
    .unwrap();
    assert_eq!(cities, ["Bari", "Oslo", "Rome"]);
}

#[test]
fn duplicates_change_nothing() {
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    transact(&mut worker, |transaction| {
        let primary = transaction.try_insert(&table, &person(1, "Bern", None))?;
        assert_eq!(primary, Insertion::Duplicate(IndexId::PRIMARY));
        let inserted = transaction.try_insert(&table, &person(4, "Bern", Some("a@x")))?;
        assert_eq!(inserted, Insertion::Duplicate(IndexId(2)));
        Ok(())
    })
    .unwrap();
    let put = transact(&mut worker, |transaction| transaction.upsert(&table, &person(3, "Bern", Some("a@x"))));
    assert!(matches!(put, Err(Error::Duplicate(of)) if of.index == IndexId(2)));
    let updated =
        transact(&mut worker, |transaction| transaction.update(&table, 2, |row| row.set_email(Some("a@x")).unwrap()));
    assert!(matches!(updated, Err(Error::Duplicate(of)) if of.index == IndexId(2)));
    assert_eq!(counts(&database, table.id()), [3, 3, 3]);
    // A row is no duplicate of itself.
    transact(&mut worker, |transaction| transaction.upsert(&table, &person(1, "Bern", Some("a@x")))).unwrap();
}

#[test]
fn scans_obey_direction_limit_bounds_and_restrictions() {
    let (_database, table, mut worker) = open();
    fill(&mut worker, table);
    transact(&mut worker, |transaction| {
        let all = whole(table.id(), IndexId::PRIMARY);
        let backward = Scan { direction: Direction::Backward, limit: 2, ..all.clone() };
        assert_eq!(ids(transaction, &backward)?, [3, 2]);
        let restriction = |column, comparison, value: Value| [Restriction { column, comparison, value }];
        let older = restriction(3, Comparison::Greater, 10_u32.into());
        assert_eq!(ids(transaction, &Scan { restrictions: &older, limit: 1, ..all.clone() })?, [2]);
        let unknown = restriction(2, Comparison::NotEqual, "b@x".into());
        assert_eq!(
            ids(transaction, &Scan { restrictions: &unknown, ..all.clone() })?,
            [1],
            "NULL compares with nothing"
        );
        let (mut two, mut one) = (KeyScratch::new(), KeyScratch::new());
        let bounds = (2_u64.encode_prefix(&mut two), 1_u64.encode_prefix(&mut one));
        let inverted = Scan { lower: Bound::Included(bounds.0), upper: Bound::Excluded(bounds.1), ..all.clone() };
        assert_eq!(ids(transaction, &inverted)?, [] as [u64; 0]);
        let open = Scan { lower: Bound::Excluded(bounds.1), upper: Bound::Excluded(bounds.0), ..all };
        assert_eq!(ids(transaction, &open)?, [] as [u64; 0]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn indexes_come_and_go_under_ids_of_their_own() {
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    let id = table.id();
    let unique = IndexDefinition::new("unique_city", [1]).with_unique(true);
    assert!(matches!(database.create_index(id, unique), Err(Error::Duplicate { .. })));
    assert!(matches!(database.create_index(id, IndexDefinition::new("by_city", [3])), Err(Error::NameTaken(_))));
    assert!(matches!(database.create_index(id, IndexDefinition::new("bad", [9])), Err(Error::Definition(_))));
    assert_eq!(database.create_index(id, IndexDefinition::new("by_age", [3])).unwrap(), IndexId(3));
    database.drop_index(id, IndexId(1)).unwrap();
    assert!(matches!(database.drop_index(id, IndexId(1)), Err(Error::NoSuchIndex(..))));
    let hash = IndexDefinition::new("by_city", [1]).with_kind(IndexKind::Hash);
    assert_eq!(database.create_index(id, hash).unwrap(), IndexId(4));
    let unique = IndexDefinition::new("by_id", [0]).with_unique(true).with_kind(IndexKind::Hash);
    assert_eq!(database.create_index(id, unique).unwrap(), IndexId(5));
    let names: Vec<_> = database.definition(id).unwrap().indexes.iter().map(|index| index.name.clone()).collect();
    assert_eq!(names, ["by_email", "by_age", "by_city", "by_id"]);
    transact(&mut worker, |transaction| {
        assert_eq!(ids(transaction, &whole(id, IndexId(3)))?, [1, 2, 3]);
        assert!(ids(transaction, &whole(id, IndexId(1))).is_err());
        assert_eq!(ids(transaction, &whole(id, IndexId(4)))?.len(), 3, "an index with equal keys is ordered");
        assert!(ids(transaction, &whole(id, IndexId(5))).is_err(), "a hash index has no order");
        Ok(())
    })
    .unwrap();
}

#[test]
fn tables_come_and_go() {
    let (database, table, mut worker) = open();
    assert!(matches!(database.create_table(Person::definition()), Err(Error::NameTaken(_))));
    assert_eq!(database.find_table("person"), Some(table.id()));
    database.drop_table(table.id()).unwrap();
    assert_eq!(database.find_table("person"), None);
    assert!(matches!(database.drop_table(table.id()), Err(Error::NoSuchTable(_))));
    let gone = transact(&mut worker, |transaction| transaction.get(&table, 1).map(|row| row.is_some()));
    assert!(matches!(gone, Err(Error::NoSuchTable(_))));
    assert_ne!(database.create_table(Person::definition()).unwrap(), table.id());
    assert!(matches!(database.create_table(TableDefinition::new("empty")), Err(Error::Definition(_))));
}

#[test]
fn keys_and_rows_have_their_limits() {
    let database = Serial::open(Options::default(), Common::default()).unwrap();
    let definition = TableDefinition::new("note")
        .with_column("title", ColumnType::String { max: 2000 })
        .with_column("text", ColumnType::String { max: 2000 })
        .with_key([0])
        .with_index(IndexDefinition::new("by_text", [1]));
    let layout = definition.layout().unwrap();
    let table = database.create_table(definition).unwrap();
    let mut worker = database.worker().unwrap();
    let long = "x".repeat(1025);
    let mut insert = |title: &str, text: &str| {
        let mut row = RowBuffer::new();
        build_row(&layout, &[title.into(), text.into()], &mut row).unwrap();
        transact(&mut worker, |transaction| transaction.insert_row(table, title.as_bytes(), row.as_row()))
    };
    assert!(matches!(insert(&long, ""), Err(Error::KeyTooLong(_))));
    assert!(matches!(insert("short", &long), Err(Error::KeyTooLong(_))));
    assert!(insert("short", "text").is_ok());
    let words = vec![0; (1 << 17) + 1];
    let row = polychron_schema::RowRef::from_words(&words);
    let inserted = transact(&mut worker, |transaction| transaction.insert_row(table, &b"huge"[..], row));
    assert!(matches!(inserted, Err(Error::RowTooLong { .. })));
}

#[test]
fn snapshots_do_not_write() {
    struct Write(Table<Person>);
    impl Procedure for Write {
        type Output = bool;
        type Error = Error;
        fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
            assert!(transaction.get(&self.0, 2)?.is_some());
            transaction.delete(&self.0, 2)
        }
    }
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    assert!(matches!(worker.snapshot(&mut Write(table)), Err(Error::ReadOnly)));
    assert!(worker.execute(&mut Write(table)).unwrap());
    let statistics = database.statistics();
    assert_eq!((statistics.commits, statistics.snapshots, statistics.refusals), (2, 0, 1));
}

#[test]
fn a_thread_does_not_wait_for_itself() {
    let (database, table, mut worker) = open();
    let mut other = database.worker().unwrap();
    transact(&mut worker, |_| {
        let nested = transact(&mut other, |transaction| transaction.delete(&table, 1));
        assert!(matches!(nested, Err(Error::Unsupported { .. })));
        assert!(matches!(database.definition(table.id()), Err(Error::Unsupported { .. })));
        Ok(())
    })
    .unwrap();
    transact(&mut other, |transaction| transaction.delete(&table, 1)).unwrap();
}

/// Nothing of a leaked transaction is committed, and others go on once its worker begins another one, or goes.
#[test]
fn leaked_transactions_are_rolled_back() {
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    let mut other = database.worker().unwrap();
    let before = transact(&mut worker, |transaction| transaction.scan(&table, ..).rows()).unwrap();
    for drops in [false, true] {
        let mut leaked = worker.begin(Mode::ReadWrite).unwrap();
        assert!(leaked.delete(&table, 1).unwrap());
        std::mem::forget(leaked);
        if drops {
            drop(worker);
            worker = database.worker().unwrap();
        } else {
            worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
        }
        assert_eq!(transact(&mut other, |transaction| transaction.scan(&table, ..).rows()).unwrap(), before);
    }
}

#[test]
fn transfers_from_many_threads_keep_the_sum() {
    const THREADS: u64 = 4;
    let rounds = polychron_base::sizes::scaled(200, 10) as u64;
    let (database, table, mut worker) = open();
    fill(&mut worker, table);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut worker = database.worker().unwrap();
            scope.spawn(move || {
                for round in 0..rounds {
                    let (from, to) = (1 + (thread + round) % 3, 1 + (thread + round + 1) % 3);
                    transact(&mut worker, |transaction| {
                        transaction.update(&table, from, |row| row.set_age(row.age().wrapping_sub(1)))?;
                        transaction.update(&table, to, |row| row.set_age(row.age().wrapping_add(1)))
                    })
                    .unwrap();
                }
            });
        }
    });
    let ages: Vec<u32> =
        transact(&mut worker, |transaction| transaction.scan(&table, ..).map(|row| row.age()).collect()).unwrap();
    assert_eq!(ages.into_iter().fold(0, u32::wrapping_add), 60);
    // The table was filled before, and is looked at now.
    assert_eq!(database.statistics().commits, THREADS * rounds + 2);
}
