//! What a log is told of the tables, and tables that are made again of it.

use std::sync::{Arc, PoisonError};

use polychron_base::random::Random;
use polychron_engine::definitions::{Standing, StoredCatalog, StoredTable};
use polychron_engine::redo::{Change, Durability, Journal, Log, Order, Ticket};
use polychron_engine::{
    Common, Error, IndexDefinition, IndexId, Interactive, Operations, Protocol, Row, Scan, Table, TableDefinition,
    TableId, Transaction, Worker, evolve,
};
use polychron_schema::{ColumnType, ForeignKeyDefinition};
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{Mutex, MutexGuard};

use crate::Setup;
use crate::setup::{all, done, run};

/// A log that keeps what it is told of the tables, and refuses it while it is to.
#[derive(Debug, Default)]
pub struct Notary {
    told: Mutex<Vec<StoredCatalog>>,
    refuses: AtomicBool,
}

impl Notary {
    fn told(&self) -> MutexGuard<'_, Vec<StoredCatalog>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> StoredCatalog {
        self.told().last().cloned().unwrap_or_default()
    }
}

impl Log for Notary {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, _: usize, _: TableId, _: &[u8], _: Change<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _: usize) {}

    fn seal(&self, _: usize, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn ticket(&self, _: Order) -> Ticket {
        Ticket::DONE
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

    fn define(&self, tables: &StoredCatalog) -> Result<(), Error> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        self.told().push(tables.clone());
        Ok(())
    }
}

fn opened<P: Protocol>(setup: &Setup<P>) -> (Arc<P>, Arc<Notary>) {
    let notary = Arc::new(Notary::default());
    let journal = Journal::new(Arc::clone(&notary) as _);
    let setup = Setup { common: Common { journal, ..setup.common.clone() }, ..setup.clone() };
    (setup.open(), notary)
}

/// Compares the tables of a database with stored ones.
fn compare<P: Protocol>(database: &P, stored: &StoredCatalog, what: &str) {
    for (position, StoredTable { definition, indexes, last_index, .. }) in stored.tables() {
        let table = database.find_table(&definition.name).expect(what);
        assert_eq!(table.position(), *position as usize, "{what}");
        assert_eq!(database.definition(table).expect(what), *definition, "{what}");
        for (index, id) in definition.indexes.iter().zip(indexes) {
            assert_eq!(database.find_index(table, &index.name).expect(what), Some(*id), "{what}: {}", index.name);
            assert!(id <= last_index);
        }
    }
}

fn table(name: &str, parent: Option<&str>, random: &mut Random) -> TableDefinition {
    let table = TableDefinition::new(name)
        .with_column("id", ColumnType::U64)
        .with_column("parent", ColumnType::U64)
        .with_column("value", ColumnType::I64)
        .with_key([0]);
    let table = if random.below(2) == 0 { table.with_index(IndexDefinition::new("first", [2])) } else { table };
    let table = table.with_index(IndexDefinition::new("by_parent", [1]));
    parent.into_iter().fold(table, |table, parent| table.with_foreign_key(ForeignKeyDefinition::new([1], parent)))
}

/// One random change of the tables. Refusals that the definitions are to blame for are none of the log's.
fn change<P: Protocol>(database: &P, names: &mut Vec<String>, random: &mut Random, number: usize) -> Result<(), Error> {
    let some = |random: &mut Random, names: &[String]| names[random.below(names.len() as u64) as usize].clone();
    match random.below(8) {
        0..3 if names.len() < 12 => {
            let name = format!("table {number}");
            let parent = (!names.is_empty() && random.below(2) == 0).then(|| some(random, names));
            database.create_table(table(&name, parent.as_deref(), random))?;
            names.push(name);
        }
        _ if names.is_empty() => {}
        3 => {
            let name = some(random, names);
            database.drop_table(database.find_table(&name).expect("it is there"))?;
            names.retain(|other| *other != name);
        }
        kind => {
            let table = database.find_table(&some(random, names)).expect("it is there");
            let definition = database.definition(table)?;
            if kind < 6 {
                let index = IndexDefinition::new(format!("index {number}"), [2, 1]);
                database.create_index(table, index.with_unique(kind == 4))?;
            } else if !definition.indexes.is_empty() {
                let index = &definition.indexes[random.below(definition.indexes.len() as u64) as usize];
                let index = database.find_index(table, &index.name)?.expect("it is there");
                database.drop_index(table, index)?;
            }
        }
    }
    Ok(())
}

/// Random changes of tables and indexes, some of which the log refuses: it knows what there is, and of that the same is made again.
///
/// # Panics
/// When something differs.
pub fn definitions_are_told<P: Protocol<Worker: Interactive + 'static>>(setup: &Setup<P>, seed: u64) {
    let what = format!("{}, seed {seed}", setup.name);
    let (database, notary) = opened(setup);
    let (mut random, mut names, mut refused) = (Random::stream(18, seed), Vec::new(), 0);
    for number in 0..60 {
        let (before, count) = (notary.last(), names.len());
        let refuses = random.below(4) == 0;
        notary.refuses.store(refuses, Ordering::Relaxed);
        let outcome = change(&*database, &mut names, &mut random, number);
        refused += usize::from(matches!(outcome, Err(Error::Cancelled)));
        if refuses || outcome.is_err() {
            assert_eq!((&before, count), (&notary.last(), names.len()), "{what}");
        }
        compare(&*database, &notary.last(), &what);
        assert_eq!(notary.last().tables().len(), names.len(), "{what}");
    }
    assert!(refused > 0, "{what}");
    restores(setup, &notary.last(), &what);
}

fn restores<P: Protocol>(setup: &Setup<P>, stored: &StoredCatalog, what: &str) {
    let (again, notary) = opened(setup);
    again.storage().restore(stored).expect(what);
    assert!(notary.told().is_empty(), "{what}");
    compare(&*again, stored, what);
    // What comes next is behind all that ever were, and what was restored is told with it.
    for (position, table) in stored.tables() {
        let id = TableId::new(again.find_table(&table.definition.name).expect(what).database(), *position);
        let index = again.create_index(id, IndexDefinition::new("later", [0, 2])).expect(what);
        assert!(index > table.last_index, "{what}");
    }
    let later = again.create_table(table("later", None, &mut Random::stream(0, 0))).expect(what);
    assert!(later.position() >= stored.next() as usize, "{what}");
    assert_eq!(notary.last().tables().len(), stored.tables().len() + 1, "{what}");
    compare(&*again, &notary.last(), what);
    assert!(again.storage().restore(stored).is_err(), "{what}: there are tables");
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Parent {
    #[key]
    id: u64,
    text: String,
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Child {
    #[key]
    id: u64,
    value: i64,
    parent: u64,
}

fn stored_child(standing: Standing) -> StoredTable {
    let definition = Child::definition()
        .with_index(IndexDefinition::new("by_parent", [2]))
        .with_index(IndexDefinition::new("by_value", [1]).with_unique(true))
        .with_foreign_key(ForeignKeyDefinition::new([2], "parent"));
    let indexes = vec![IndexId(3), IndexId(7)];
    StoredTable { definition: Arc::new(definition), indexes, last_index: IndexId(9), standing }
}

/// Tables and indexes with holes in their ids hold rows, and foreign keys hold.
///
/// # Panics
/// When they do not.
pub fn restored_tables_work<P: Protocol<Worker: Interactive + 'static>>(setup: &Setup<P>) {
    let parent = StoredTable {
        definition: Arc::new(Parent::definition()),
        indexes: Vec::new(),
        last_index: IndexId::PRIMARY,
        standing: Standing::Permanent,
    };
    let mut gone = stored_child(Standing::Provisional);
    gone.definition = Arc::new(TableDefinition::clone(&gone.definition).with_name("gone"));
    let tables = [(5, parent), (64, stored_child(Standing::Permanent)), (69, gone)];
    let stored = StoredCatalog::new(1000, tables.into_iter().collect()).expect("it is sound");
    let (database, _) = opened(setup);
    database.storage().restore(&stored).expect("it is restored");
    assert_eq!(database.find_table("gone"), None);
    let parents = Table::<Parent>::with_id(&*database, database.find_table("parent").unwrap()).unwrap();
    let children = Table::<Child>::with_id(&*database, database.find_table("child").unwrap()).unwrap();
    assert_eq!((parents.id().position(), children.id().position()), (5, 64));
    let mut worker = database.worker().unwrap();
    let child = |id, value, parent| Child { id, value, parent };
    done(&mut worker, |t| {
        (1..3).try_for_each(|id| t.insert(&parents, &Parent { id, text: "text".into() }))?;
        (0..10).try_for_each(|id| t.insert(&children, &child(id, -(id as i64), 1)))
    });
    let refused = run(&mut worker, |t| t.insert(&children, &child(10, 10, 3)));
    assert!(matches!(refused, Err(Error::NoParent(_))), "{refused:?}");
    let refused = run(&mut worker, |t| t.delete(&parents, 1)).unwrap_err();
    assert!(matches!(refused, Error::HasChildren(_)), "{refused:?}");
    let refused = run(&mut worker, |t| t.insert(&children, &child(11, -5, 2))).unwrap_err();
    assert!(refused.to_string().contains("by_value"), "{refused}");
    assert!(run(&mut worker, |t| t.delete(&parents, 2)).unwrap());
    let by_value = database.find_index(children.id(), "by_value").unwrap().expect("it is there");
    let mut values = Vec::new();
    done(&mut worker, |t| {
        values.clear();
        t.scan_unchecked(&Scan { index: by_value, ..Scan::all(children.id()) }, &mut |row| {
            values.push(row.as_words().len());
            std::ops::ControlFlow::Continue(())
        })
    });
    assert_eq!(values.len(), 10);
    assert!(database.drop_index(children.id(), IndexId(3)).is_err(), "the foreign key needs it");
    drop(worker);
    assert_eq!(database.create_index(children.id(), IndexDefinition::new("later", [1])).unwrap(), IndexId(10));
    let refused = database.create_table(Child::definition());
    assert!(matches!(refused, Err(Error::NameTaken(_))), "{refused:?}");
}

mod after {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "parent")]
    pub(super) struct Parent {
        #[key]
        pub(super) id: u64,
        #[column(was = "text")]
        pub(super) name: String,
        #[column(default = 7)]
        pub(super) rank: i64,
    }
}

/// An evolution tells the log of the new table before it has rows, and of the whole change at once; one that the log refuses leaves nothing, and the old table
/// is as it was.
///
/// # Panics
/// When that is not so.
pub fn evolutions_are_told<P: Protocol<Worker: Interactive + 'static>>(setup: &Setup<P>) {
    // Each call of the log is refused in turn.
    for accepted in 0..5 {
        let (database, notary) = opened(setup);
        let table = Table::<Parent>::create(&*database).expect("it is sound");
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| (0..5).try_for_each(|id| t.insert(&table, &Parent { id, text: id.to_string() })));
        let before = notary.told().len();
        let outcome = evolve::open::<P, after::Parent>(&*database, &mut |copy| {
            let calls = notary.told().len() - before;
            notary.refuses.store(calls >= accepted, Ordering::Relaxed);
            worker.execute(copy)
        });
        notary.refuses.store(false, Ordering::Relaxed);
        let catalogs = notary.told().split_off(before);
        for catalog in &catalogs {
            let names: Vec<_> = catalog.tables().values().map(|table| &*table.definition.name).collect();
            assert!(names.contains(&"parent"), "{names:?}");
            let is_permanent = |table: &&StoredTable| table.standing == Standing::Permanent;
            assert_eq!(catalog.tables().values().filter(is_permanent).count(), 1, "{names:?}");
            let has_barrier = |table: &StoredTable| table.definition.indexes.iter().any(|it| it.name.starts_with('('));
            assert!(!catalog.tables().values().any(has_barrier), "{catalog:?}");
        }
        match outcome {
            Ok(table) => {
                let table = table.expect("it is there");
                let last = catalogs.last().expect("the log was told");
                assert_eq!(last.tables().keys().copied().collect::<Vec<_>>(), [table.id().position() as u32]);
                let rows: Vec<after::Parent> = all(&mut worker, &table);
                assert!(rows.iter().all(|row| row.name == row.id.to_string() && row.rank == 7) && rows.len() == 5);
                assert!(accepted > 0);
            }
            Err(error) => {
                assert!(matches!(error, Error::Cancelled), "{error}");
                assert_eq!(all(&mut worker, &table).len(), 5);
                done(&mut worker, |t| t.insert(&table, &Parent { id: 9, text: "later".into() }));
            }
        }
    }
}
