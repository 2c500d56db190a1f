//! Databases of long rows, long keys, many tables and many sessions: each is closed, opened under another protocol, gets a checkpoint and a backup, and has the
//! same rows then.
//!
//! Every number here has a variable: `POLYCHRON_LONG_ROWS`, `POLYCHRON_LONG_KEYS`, `POLYCHRON_MANY_TABLES`, `POLYCHRON_MANY_SESSIONS`.
#![cfg(feature = "durability")]

use std::path::Path;
use std::sync::Barrier;

use polychron::schema::{IndexDefinition, IndexKind, TableDefinition};
use polychron::{
    Access, Builder, Database, Declare, Error, Index, Operations, Procedure, Protocol, ProtocolInfo, ProtocolList,
    ProtocolVisitor, Protocols, Row, Table, TableId, Transaction,
};
use polychron_base::random::Random;

/// How many there are of something: so many, or as many as a variable says.
fn wanted(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// What is made, and found again.
trait Extreme: Sync {
    fn make<P: Protocol>(&self, database: &Database<P>);

    fn check<P: Protocol>(&self, database: &Database<P>, what: &str);

    fn memory_bytes(&self) -> usize {
        64 << 20
    }

    fn workers(&self) -> usize {
        8
    }
}

/// How a database is opened, and what happens to it.
#[derive(Clone, Copy, Debug)]
enum Act {
    Make,
    /// It is given a checkpoint, and copied.
    Copy,
    Check,
    CheckCopy,
    /// The copy is opened by a reader alone.
    Read,
}

struct Visit<'e, E>(&'e E, &'e Path, Act);

impl<E: Extreme> ProtocolVisitor for Visit<'_, E> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let Self(extreme, path, act) = self;
        let what = format!("{}, {act:?}", info.name);
        let builder = || -> Builder<P> {
            let small = Database::builder().small().memory_limit(extreme.memory_bytes()).workers(extreme.workers());
            info.options.iter().fold(small.with::<P>(), |builder, (name, value)| builder.protocol_option(name, value))
        };
        let (source, copy) = (path.join("source"), path.join("copy"));
        let database = match act {
            Act::Make => builder().create(&source),
            Act::Copy | Act::Check => builder().open_existing(&source),
            Act::CheckCopy => builder().open_existing(&copy),
            Act::Read => builder().open_read_only(&copy),
        };
        let database = database.unwrap_or_else(|error| panic!("{what}: {error}"));
        if matches!(act, Act::Make) {
            extreme.make(&database);
        }
        extreme.check(&database, &what);
        if matches!(act, Act::Copy) {
            database.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"));
            extreme.check(&database, &what);
            database.backup(&copy).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        database.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Takes a database through all of that, each time by another protocol; each one makes it once.
fn everywhere(extreme: &impl Extreme, makers: usize) {
    let names: Vec<_> = Protocols::all().iter().map(|protocol| protocol.name).collect();
    for number in 0..makers.min(names.len()) {
        let directory = tempfile::tempdir().unwrap();
        for (act, at) in [Act::Make, Act::Copy, Act::Check, Act::CheckCopy, Act::Read].into_iter().zip(number..) {
            Protocols::visit(names[at % names.len()], Visit(extreme, directory.path(), act)).unwrap();
        }
    }
}

/// Does something in one transaction that may write all of these tables.
struct All<'t, F>(&'t [TableId], F);

trait Does: Send {
    type Output: Send;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Self::Output, Error>;
}

impl<F: Does> Procedure for All<'_, F> {
    type Output = F::Output;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<F::Output, Error> {
        self.1.run(t)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        self.0.iter().for_each(|table| declaration.prefix(*table, all, Access::Write));
    }
}

/// Inserts rows.
struct Insert<'r, R: Row>(Table<R>, &'r [R]);

impl<R: Row + Sync> Does for Insert<'_, R> {
    type Output = ();

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.1.iter().try_for_each(|row| t.insert(&self.0, row))
    }
}

/// Answers all rows.
struct Rows<R: Row>(Table<R>);

impl<R: Row + Send> Does for Rows<R> {
    type Output = Vec<R>;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<R>, Error> {
        t.scan(&self.0, ..).rows()
    }
}

fn table<P: Protocol, R: Row>(database: &Database<P>) -> Table<R> {
    database.table().unwrap().expect("it is there")
}

/// A row that is as long as one may be.
#[derive(Row, Clone, PartialEq, Eq)]
struct Long {
    #[key]
    id: u64,
    bytes: Vec<u8>,
}

fn long(id: u64) -> Long {
    // The key, and offset and length of the bytes.
    let mut bytes = vec![0; (1 << 20) - 16];
    Random::from_seed(id).fill(&mut bytes);
    Long { id, bytes }
}

struct LongRows(u64);

impl Extreme for LongRows {
    fn make<P: Protocol>(&self, database: &Database<P>) {
        let longs = database.create_table::<Long>().unwrap();
        for id in 0..self.0 {
            // Each is another one first.
            for row in [long(id + 1000), long(id)] {
                let row = Long { id, ..row };
                database.execute(&mut All(&[longs.id()], Put(longs, row))).unwrap();
            }
        }
        let longer = Long { id: 0, bytes: vec![1; (1 << 20) - 15] };
        let refused = database.execute(&mut All(&[longs.id()], Put(longs, longer)));
        assert!(refused.is_err(), "no row is longer");
    }

    fn check<P: Protocol>(&self, database: &Database<P>, what: &str) {
        let longs = table(database);
        for id in 0..self.0 {
            let found = database.execute(&mut All(&[longs.id()], Get(longs, id))).unwrap();
            assert!(found == Some(long(id)), "{what}: row {id} is another one");
        }
    }

    fn memory_bytes(&self) -> usize {
        (256 << 20) + self.0 as usize * (8 << 20)
    }
}

struct Put(Table<Long>, Long);

impl Does for Put {
    type Output = ();

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.upsert(&self.0, &self.1)
    }
}

struct Get(Table<Long>, u64);

impl Does for Get {
    type Output = Option<Long>;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Option<Long>, Error> {
        t.get_owned(&self.0, self.1)
    }
}

/// Rows of a MiB, which are noise.
#[test]
fn rows_are_as_long_as_they_may_be() {
    everywhere(&LongRows(wanted("POLYCHRON_LONG_ROWS", 3)), if cfg!(debug_assertions) { 3 } else { 11 });
}

/// A row whose keys are as long as keys may be, by each index: the entry of one that is not unique has the primary key behind.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Keyed {
    #[key]
    id: [u8; 512],
    sorted: [u8; 512],
    hashed: [u8; 512],
    alone: [u8; 1024],
}

/// One whose primary key is as long as one may be.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Named {
    #[key]
    id: [u8; 1024],
    number: u64,
}

/// Keys that differ in their last bytes only, and sort backwards.
fn bytes<const N: usize>(number: u64) -> [u8; N] {
    let mut bytes = [0xA5; N];
    bytes[N - 8..].copy_from_slice(&(u64::MAX - number).to_be_bytes());
    bytes
}

fn keyed(number: u64) -> Keyed {
    Keyed { id: bytes(number), sorted: bytes(number / 3), hashed: bytes(number / 5), alone: bytes(number) }
}

fn named(number: u64) -> Named {
    Named { id: bytes(number), number }
}

struct LongKeys(u64);

const KINDS: [(&str, IndexKind); 2] = [("named sorted", IndexKind::Ordered), ("named hashed", IndexKind::Hash)];

impl Extreme for LongKeys {
    fn make<P: Protocol>(&self, database: &Database<P>) {
        let index = |name: &str, column: usize, kind| IndexDefinition::new(name, [column]).with_kind(kind);
        let definition = Keyed::definition()
            .with_index(index("by_sorted", 1, IndexKind::Ordered))
            .with_index(index("by_hashed", 2, IndexKind::Hash))
            .with_index(index("alone_sorted", 3, IndexKind::Ordered).with_unique(true))
            .with_index(index("alone_hashed", 3, IndexKind::Hash).with_unique(true));
        let keys = Table::from_id(database.create_table_with(definition).unwrap());
        let rows: Vec<_> = (0..self.0).map(keyed).collect();
        for rows in rows.chunks(20) {
            database.execute(&mut All(&[keys.id()], Insert(keys, rows))).unwrap();
        }
        let rows: Vec<_> = (0..self.0).map(named).collect();
        for (name, kind) in KINDS {
            let definition = Named::definition().with_name(name).with_primary_kind(kind);
            let names = Table::<Named>::from_id(database.create_table_with(definition).unwrap());
            for rows in rows.chunks(20) {
                database.execute(&mut All(&[names.id()], Insert(names, rows))).unwrap();
            }
        }
    }

    fn check<P: Protocol>(&self, database: &Database<P>, what: &str) {
        let keys = table::<_, Keyed>(database);
        let expected: Vec<_> = (0..self.0).rev().map(keyed).collect();
        let found = database.execute(&mut All(&[keys.id()], Rows(keys))).unwrap();
        assert!(found == expected, "{what}: {} rows", found.len());
        let by = |name: &str| database.index::<Keyed, [u8; 512]>(&keys, name).unwrap().expect("it is there");
        let alone = |name: &str| database.index::<Keyed, [u8; 1024]>(&keys, name).unwrap().expect("it is there");
        for (number, row) in (0..self.0).map(|number| (number, keyed(number))) {
            let like = |other: &dyn Fn(&Keyed) -> bool| (0..self.0).map(keyed).filter(|row| other(row)).count() as u64;
            let counts = [
                (Count::By(by("by_sorted"), Box::new(row.sorted)), like(&|other| other.sorted == row.sorted)),
                (Count::By(by("by_hashed"), Box::new(row.hashed)), like(&|other| other.hashed == row.hashed)),
                (Count::Alone(alone("alone_sorted"), Box::new(row.alone)), 1),
                (Count::Alone(alone("alone_hashed"), Box::new(row.alone)), 1),
            ];
            for (count, expected) in counts {
                let found = database.execute(&mut All(&[keys.id()], CountRows(keys, count))).unwrap();
                assert_eq!(found, expected, "{what}: of row {number}");
            }
        }
        for (name, _) in KINDS {
            let names = Table::<Named>::from_id(database.find_table(name).expect("it is there"));
            for number in 0..self.0 + 1 {
                let found = database.execute(&mut All(&[names.id()], Find(names, number))).unwrap();
                assert_eq!(found, (number < self.0).then_some(number), "{what}: {name}");
            }
        }
    }
}

enum Count {
    By(Index<Keyed, [u8; 512]>, Box<[u8; 512]>),
    Alone(Index<Keyed, [u8; 1024]>, Box<[u8; 1024]>),
}

struct CountRows(Table<Keyed>, Count);

impl Does for CountRows {
    type Output = u64;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<u64, Error> {
        match &self.1 {
            Count::By(index, key) => t.scan_by(&self.0, *index, **key).count(),
            Count::Alone(index, key) => t.scan_by(&self.0, *index, **key).count(),
        }
    }
}

struct Find(Table<Named>, u64);

impl Does for Find {
    type Output = Option<u64>;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Option<u64>, Error> {
        Ok(t.get(&self.0, bytes(self.1))?.map(|row| row.number()))
    }
}

#[test]
fn keys_are_as_long_as_they_may_be() {
    everywhere(&LongKeys(wanted("POLYCHRON_LONG_KEYS", 25)), 11);
}

/// One of many tables.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Little {
    #[key]
    id: u64,
    number: u64,
}

struct ManyTables(u64);

fn name(number: u64) -> String {
    format!("table number {number} of many")
}

impl Extreme for ManyTables {
    fn make<P: Protocol>(&self, database: &Database<P>) {
        for number in 0..self.0 {
            let definition = || -> TableDefinition {
                let index = IndexDefinition::new("by_number", [1]);
                Little::definition().with_name(name(number)).with_index(index)
            };
            let mut table = Table::<Little>::from_id(database.create_table_with(definition()).unwrap());
            if number % 10 == 3 {
                // Its id is not taken again.
                database.drop_table(table.id()).unwrap();
                table = Table::from_id(database.create_table_with(definition()).unwrap());
            }
            let rows = [Little { id: number, number: 7 * number }, Little { id: number + 1, number: 0 }];
            database.execute(&mut All(&[table.id()], Insert(table, &rows))).unwrap();
        }
    }

    fn check<P: Protocol>(&self, database: &Database<P>, what: &str) {
        for number in 0..self.0 {
            let table = Table::<Little>::from_id(database.find_table(&name(number)).expect(what));
            let rows = database.execute(&mut All(&[table.id()], Rows(table))).unwrap();
            let expected = [Little { id: number, number: 7 * number }, Little { id: number + 1, number: 0 }];
            assert_eq!(rows, expected, "{what}: {}", name(number));
        }
        assert!(database.find_table(&name(self.0)).is_none(), "{what}");
    }

    fn memory_bytes(&self) -> usize {
        (64 << 20) + self.0 as usize * (256 << 10)
    }
}

#[test]
fn tables_are_many() {
    everywhere(&ManyTables(wanted("POLYCHRON_MANY_TABLES", 30)), if cfg!(debug_assertions) { 3 } else { 11 });
}

/// Sessions, each of which has a worker, and writes a row of its own.
struct ManySessions(u64);

impl Extreme for ManySessions {
    fn make<P: Protocol>(&self, database: &Database<P>) {
        let table = database.create_table::<Little>().unwrap();
        let sessions: Vec<_> = (0..self.0).map(|_| database.session().unwrap()).collect();
        let begin = &Barrier::new(sessions.len());
        std::thread::scope(|scope| {
            for (mut session, id) in sessions.into_iter().zip(0..) {
                scope.spawn(move || {
                    begin.wait();
                    let rows = [Little { id, number: id * id }];
                    session.execute(&mut All(&[table.id()], Insert(table, &rows))).unwrap();
                });
            }
        });
    }

    fn check<P: Protocol>(&self, database: &Database<P>, what: &str) {
        let table = table::<_, Little>(database);
        let rows = database.execute(&mut All(&[table.id()], Rows(table))).unwrap();
        assert_eq!(rows, (0..self.0).map(|id| Little { id, number: id * id }).collect::<Vec<_>>(), "{what}");
    }

    fn memory_bytes(&self) -> usize {
        256 << 20
    }

    /// One for calls beside them, and what submissions want.
    fn workers(&self) -> usize {
        self.0 as usize + 4
    }
}

#[test]
fn sessions_are_many() {
    everywhere(&ManySessions(wanted("POLYCHRON_MANY_SESSIONS", 256)), 11);
}
