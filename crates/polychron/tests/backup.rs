//! Backups of databases in use, and databases that are read alone, in real directories.
#![cfg(feature = "durability")]

use std::fs;
use std::path::Path;

use polychron::schema::IndexDefinition;
use polychron::{
    Access, Database, Declare, Error, Operations, Procedure, Protocol, ProtocolInfo, ProtocolList, ProtocolVisitor,
    Protocols, Row, Table, Transaction,
};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Left {
    #[key]
    id: u64,
    note: Option<String>,
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Right {
    #[key]
    id: u64,
    value: i64,
}

type Tables = (Table<Left>, Table<Right>);

fn left(id: u64) -> Left {
    Left { id, note: (!id.is_multiple_of(3)).then(|| "note ".repeat(id as usize % 30)) }
}

/// Writes a row into each of two tables, and counts in a third row.
struct Add(Tables, u64);

impl Procedure for Add {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        let Self((lefts, rights), id) = *self;
        t.insert(&lefts, &left(id))?;
        t.insert(&rights, &Right { id, value: -(id as i64) })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declare(declaration, self.0);
    }
}

fn declare<D: Declare>(declaration: &mut D, (lefts, rights): Tables) {
    let all: &[u8] = &[];
    declaration.prefix(lefts.id(), all, Access::Write);
    declaration.prefix(rights.id(), all, Access::Write);
}

struct All(Tables);

impl Procedure for All {
    type Output = (Vec<Left>, Vec<Right>);
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Self::Output, Error> {
        Ok((t.scan(&self.0.0, ..).rows()?, t.scan(&self.0.1, ..).rows()?))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declare(declaration, self.0);
    }
}

enum Change {
    Insert,
    Update,
    Delete,
}

struct Alter(Table<Right>, Change);

impl Procedure for Alter {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        match self.1 {
            Change::Insert => t.insert(&self.0, &Right { id: 1 << 40, value: 0 }),
            Change::Update => t.update(&self.0, 1, |row| row.set_value(77)).map(drop),
            Change::Delete => t.delete(&self.0, 1).map(drop),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.0.id(), all, Access::Write);
    }
}

fn builder<P: Protocol>(info: &ProtocolInfo) -> polychron::Builder<P> {
    let builder = Database::builder().small().with::<P>();
    info.options.iter().fold(builder, |builder, (name, value)| builder.protocol_option(name, value))
}

fn tables<P: Protocol>(database: &Database<P>) -> Tables {
    (database.table().unwrap().unwrap(), database.table().unwrap().unwrap())
}

/// Ids of the rows that are there, in both tables, whole.
fn ids<P: Protocol>(database: &Database<P>) -> Vec<u64> {
    let (lefts, rights) = database.execute(&mut All(tables(database))).unwrap();
    let ids: Vec<u64> = rights.iter().map(|row| row.id).collect();
    assert!(rights.iter().all(|row| row.value == -(row.id as i64)));
    assert_eq!(lefts, ids.iter().map(|id| left(*id)).collect::<Vec<_>>(), "each transaction is whole");
    ids
}

/// Makes a database, and backups of it while two threads write.
struct Write<'p>(&'p Path, usize);

impl ProtocolVisitor for Write<'_> {
    /// How many rows of each thread were acknowledged before each backup.
    type Output = Vec<[u64; 2]>;

    fn visit<P: Protocol>(self, info: &ProtocolInfo) -> Vec<[u64; 2]> {
        let database = builder::<P>(info).open(self.0.join("source")).unwrap();
        database.create_table::<Left>().unwrap();
        let rights = Right::definition().with_index(IndexDefinition::new("by_value", [1]));
        database.create_table_with(rights).unwrap();
        let (done, is_over) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicBool::new(false));
        let mut before = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (database, done, is_over) = (&database, &done, &is_over);
                scope.spawn(move || {
                    let tables = tables(database);
                    for number in 0..20_000 {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        database.execute(&mut Add(tables, (thread << 32) + number)).unwrap();
                        done[thread as usize].store(number + 1, Ordering::Release);
                    }
                });
            }
            for number in 0..self.1 {
                before.push(done.each_ref().map(|done| done.load(Ordering::Acquire)));
                database.backup(self.0.join(format!("backup {number}"))).unwrap();
                if number == 0 {
                    database.checkpoint().unwrap();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        before
    }
}

struct Check<'p>(&'p Path, [u64; 2]);

impl ProtocolVisitor for Check<'_> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let database = builder::<P>(info).open_existing(self.0).unwrap();
        let ids = ids(&database);
        for thread in 0..2 {
            let own: Vec<u64> = ids.iter().filter(|id| *id >> 32 == thread).map(|id| id & 0xFFFF_FFFF).collect();
            assert!(own.iter().copied().eq(0..own.len() as u64), "{}: a thread's rows come one by one", info.name);
            assert!(own.len() as u64 >= self.1[thread as usize], "{}: acknowledged rows are there", info.name);
        }
        // It is a database.
        database.execute(&mut Add(tables(&database), 1 << 50)).unwrap();
        database.close().unwrap();
        let database = builder::<P>(info).open_read_only(self.0).unwrap();
        assert_eq!(self::ids(&database).len(), ids.len() + 1);
    }
}

#[test]
fn backups_under_load_open_under_every_protocol() {
    let names: Vec<_> = Protocols::all().iter().map(|protocol| protocol.name).collect();
    for (number, writer) in names.iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let before = Protocols::visit(writer, Write(directory.path(), 3)).unwrap();
        for (backup, before) in before.into_iter().enumerate() {
            let reader = names[(number + backup) % names.len()];
            let path = directory.path().join(format!("backup {backup}"));
            Protocols::visit(reader, Check(&path, before)).unwrap();
        }
    }
}

/// All files of a directory.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut paths) = (Vec::new(), vec![path.to_owned()]);
    while let Some(path) = paths.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                paths.push(path);
            } else {
                found.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn small() -> polychron::Builder {
    Database::builder().small()
}

fn made(path: &Path) {
    let database = small().open(path).unwrap();
    database.create_table::<Left>().unwrap();
    database.create_table::<Right>().unwrap();
    (1..50).for_each(|id| database.execute(&mut Add(tables(&database), id)).unwrap());
    database.close().unwrap();
}

#[test]
fn a_backup_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    made(&at("source"));
    made(&at("other"));
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/.hidden"), "text").unwrap();
    fs::write(at("file"), "text").unwrap();
    let database = small().open(at("source")).unwrap();
    let before = contents(&at("other"));
    assert!(matches!(database.backup(at("other")), Err(Error::DatabaseExists(_))));
    assert!(matches!(database.backup(at("source")), Err(Error::DatabaseExists(_))));
    assert!(contents(&at("other")) == before);
    for name in ["full", "file", "no/parent"] {
        let error = database.backup(at(name)).unwrap_err();
        assert!(matches!(error, Error::Inaccessible(_)), "{error}");
        assert!(error.to_string().contains(&at(name).display().to_string()), "{error}");
    }
    assert_eq!(contents(&at("full")).len(), 1);
    fs::create_dir(at("empty")).unwrap();
    database.backup(at("empty")).unwrap();
    assert_eq!(ids(&small().open_existing(at("empty")).unwrap()).len(), 49);
    let in_memory = Database::in_memory().unwrap().backup(at("memory"));
    assert!(matches!(in_memory, Err(Error::Options(_))) && !at("memory").exists());
}

/// Reads a database alone, and tries to change it in every way.
struct Alone<'p>(&'p Path);

impl ProtocolVisitor for Alone<'_> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let database = builder::<P>(info).open_read_only(self.0).unwrap();
        let (lefts, rights) = tables(&database);
        let refused = |result: Result<(), Error>, table: &str| match result {
            Err(Error::OpenedReadOnly(told)) => {
                assert_eq!((&*told.table, &*told.path), (table, &*self.0.display().to_string()), "{}", info.name);
            }
            other => panic!("{}: {other:?}", info.name),
        };
        for change in [Change::Insert, Change::Update, Change::Delete] {
            refused(database.execute(&mut Alter(rights, change)), "right");
        }
        refused(database.execute(&mut Add((lefts, rights), 1 << 40)), "left");
        let other = Left::definition().with_name("other");
        refused(database.create_table_with(other).map(drop), "other");
        refused(database.drop_table(rights.id()), "right");
        let index = IndexDefinition::new("by_value", [1]);
        refused(database.create_index_with(rights.id(), index).map(drop), "right");
        assert_eq!(ids(&database), (1..50).collect::<Vec<_>>(), "{}: nothing has changed", info.name);
        assert_eq!(database.create_or_open_table::<Left>().unwrap().id(), lefts.id());
        database.checkpoint().unwrap();
        database.close().unwrap();
    }
}

#[test]
fn what_is_read_alone_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    made(&path);
    let before = contents(&path);
    Protocols::all().iter().for_each(|info| Protocols::visit(info.name, Alone(&path)).unwrap());
    assert!(contents(&path) == before, "not even the lock");
}

#[test]
fn who_writes_and_who_reads_exclude_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    assert!(matches!(small().open_read_only(&path), Err(Error::NoDatabase(_))));
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    assert!(matches!(small().open_read_only(&path), Err(Error::NoDatabase(_))));
    fs::remove_dir(&path).unwrap();
    made(&path);
    let writer = small().open(&path).unwrap();
    let Err(Error::InUse(told)) = small().open_read_only(&path) else { panic!("it is in use") };
    assert_eq!((told.process, &*told.path), (Some(std::process::id()), &*path.display().to_string()));
    writer.close().unwrap();
    let reader = small().open_read_only(&path).unwrap();
    let writer = small().open(&path).unwrap();
    writer.execute(&mut Add(tables(&writer), 1000)).unwrap();
    assert_eq!((ids(&reader).len(), ids(&writer).len()), (49, 50));
}
