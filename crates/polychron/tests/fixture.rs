//! A database as this version writes it, which every later one reads, under each protocol: an evolved table, a checkpoint with changes and carried records, and a
//! log behind it.
//!
//! `cargo test -p polychron --test fixture -- --ignored make` writes `tests/fixtures/v2`, once for each format.
#![cfg(feature = "durability")]

use std::fs;
use std::path::{Path, PathBuf};

use polychron::schema::IndexDefinition;
use polychron::{
    Access, Database, Declare, Error, Operations, Procedure, Protocol, ProtocolInfo, ProtocolList, ProtocolVisitor,
    Protocols, Row, Table, Transaction,
};
use polychron_log::disk::{Directory, Files};
use polychron_log::tools::verify;
use polychron_log::{Options, checkpoint};

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Person {
    #[key]
    id: u64,
    name: String,
}

mod after {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "person")]
    pub(super) struct Person {
        #[key]
        pub(super) id: u64,
        #[column(was = "name")]
        pub(super) title: Option<String>,
        #[column(default = 7)]
        pub(super) rank: i64,
    }
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Item {
    #[key]
    name: String,
    value: i64,
    #[key]
    part: u32,
    bytes: Vec<u8>,
}

fn item(number: u64) -> Item {
    let bytes = (0..number % 50).map(|byte| byte as u8 * 5).collect();
    Item { name: format!("item {}", number % 20), value: -(number as i64), part: number as u32, bytes }
}

fn person(id: u64) -> after::Person {
    after::Person { id, title: Some("name ".repeat(id as usize % 9)), rank: 7 }
}

/// All rows that it has in the end.
fn expected() -> (Vec<after::Person>, Vec<Item>) {
    let persons = (0..30).filter(|id| *id != 4).map(person).map(|row| match row.id {
        5 => after::Person { title: None, rank: 1, ..row },
        6 => after::Person { rank: 2, ..row },
        7 => after::Person { rank: 3, ..row },
        _ => row,
    });
    let mut items: Vec<_> = (0..64).filter(|number| *number != 3).map(item).collect();
    items.sort_by(|one, other| (&one.name, one.part).cmp(&(&other.name, other.part)));
    (persons.collect(), items)
}

fn small() -> polychron::Builder {
    Database::builder().small()
}

/// Makes it.
fn make(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).expect("it can be made");
    let files = Files::new(Directory::open(path).expect("it is there"));
    let database = small().open_on(&files, |settings| {
        settings.log = Options { workers: settings.log.workers, ..Options::tiny() };
        // Rows stay that were written once.
        settings.checkpoints =
            checkpoint::Options { memory_bytes: 1 << 20, changes: 1000.0, ..checkpoint::Options::tiny() };
        settings.has_threads = false;
    })?;
    let persons = database.create_table::<Person>()?;
    let name = |id: u64| "name ".repeat(id as usize % 9);
    database.transact(|t| (0..30).try_for_each(|id| t.insert(&persons, &Person { id, name: name(id) })))?;
    let items = Item::definition().with_index(IndexDefinition::new("by_value", [1]).with_unique(true));
    let items = Table::<Item>::from_id(database.create_table_with(items)?);
    for first in (0..60).step_by(10) {
        database.transact(|t| (first..first + 10).try_for_each(|number| t.insert(&items, &item(number))))?;
    }
    let persons = database.create_or_open_table::<after::Person>()?;
    database.checkpoint()?;
    database.transact(|t| t.update(&persons, 6, |row| row.set_rank(2)).map(drop))?;
    database.transact(|t| t.delete(&persons, 4).map(drop))?;
    // What commits beside an open transaction is carried.
    let mut open = database.begin()?;
    open.get(&persons, 1)?;
    database.transact(|t| t.insert(&items, &item(60)))?;
    database.transact(|t| t.update(&persons, 7, |row| row.set_rank(3)).map(drop))?;
    database.checkpoint()?;
    drop(open);
    database.transact(|t| (61..64).try_for_each(|number| t.insert(&items, &item(number))))?;
    database.transact(|t| t.delete(&items, ("item 3", 3)).map(drop))?;
    database.transact(|t| t.upsert(&persons, &after::Person { title: None, rank: 1, ..person(5) }))?;
    database.close()
}

/// All rows.
struct All(Table<after::Person>, Table<Item>);

impl Procedure for All {
    type Output = (Vec<after::Person>, Vec<Item>);
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Self::Output, Error> {
        Ok((t.scan(&self.0, ..).rows()?, t.scan(&self.1, ..).rows()?))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        [self.0.id(), self.1.id()].iter().for_each(|table| declaration.prefix(*table, all, Access::Read));
    }
}

/// Opens a copy.
struct Check<'p>(&'p Path);

impl ProtocolVisitor for Check<'_> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let directory = tempfile::tempdir().unwrap();
        copy(self.0, directory.path());
        let damages = verify(&Files::new(Directory::open(directory.path()).unwrap())).unwrap();
        assert!(damages.is_some_and(|damages| damages.is_empty()), "{}", info.name);
        for _ in 0..2 {
            let builder = small().with::<P>();
            let builder =
                info.options.iter().fold(builder, |builder, (name, value)| builder.protocol_option(name, value));
            let database =
                builder.open_existing(directory.path()).unwrap_or_else(|error| panic!("{}: {error}", info.name));
            let tables = All(database.table().unwrap().unwrap(), database.table().unwrap().unwrap());
            let found = database.execute(&mut { tables }).unwrap();
            assert_eq!(found, expected(), "{}", info.name);
            database.checkpoint().unwrap();
            database.close().unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn is_read_by_all(path: &Path) {
    Protocols::all().iter().for_each(|protocol| Protocols::visit(protocol.name, Check(path)).unwrap());
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v2")
}

#[test]
fn what_is_made_now_is_read() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path()).unwrap();
    let checkpoints = fs::read_dir(directory.path().join("checkpoint")).unwrap().map(|entry| entry.unwrap().path());
    assert!(checkpoints.into_iter().any(|path| path.join("carried").exists()), "nothing is carried");
    is_read_by_all(directory.path());
}

#[test]
fn what_was_made_is_read() {
    is_read_by_all(&fixture());
}

#[test]
#[ignore = "it makes the fixture"]
fn make_the_fixture() {
    assert!(!fixture().exists(), "a format has one");
    make(&fixture()).unwrap();
}
