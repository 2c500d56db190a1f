//! Transactions of many rows, which the log has in many pieces: another protocol finds all of each, or nothing.
//!
//! `POLYCHRON_LONG_ROWS` says how many rows the longest one has: a million take 100 MB in the log.
#![cfg(feature = "durability")]

use std::path::Path;

use polychron::{
    Access, Database, Declare, Error, Operations, Procedure, Protocol, ProtocolInfo, ProtocolList as _,
    ProtocolVisitor, Protocols, Row, Table, Transaction,
};
use polychron_base::clock::{Clock as _, SystemClock};
use polychron_base::sizes::scaled;

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Item {
    #[key]
    id: u64,
    count: u64,
    #[column(max = 80)]
    text: String,
}

fn item(id: u64, count: u64) -> Item {
    Item { id, count, text: format!("{id:080}") }
}

/// How many rows the longest transaction has.
fn rows() -> u64 {
    let given = std::env::var("POLYCHRON_LONG_ROWS").ok();
    given.map_or(scaled(20_000, 1000) as u64, |rows| rows.parse().expect("POLYCHRON_LONG_ROWS is a number of rows"))
}

/// What one transaction does.
#[derive(Clone, Copy)]
enum Does {
    /// Inserts rows of these ids.
    Insert(u64, u64),
    /// Counts in each fourth row of so many, and deletes the one behind it.
    Change(u64),
    /// Inserts so many rows, and then one that is there.
    Fail(u64),
}

struct Long(Does, Table<Item>);

impl Procedure for Long {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        let Self(does, items) = *self;
        match does {
            Does::Insert(first, end) => (first..end).try_for_each(|id| t.insert(&items, &item(id, 0))),
            Does::Change(count) => (0..count).step_by(4).try_for_each(|id| {
                t.update(&items, id, |row| row.set_count(7))?;
                t.delete(&items, id + 1).map(drop)
            }),
            Does::Fail(count) => {
                (0..count).try_for_each(|id| t.insert(&items, &item(10 * count + id, 1)))?;
                t.insert(&items, &item(0, 1))
            }
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.1.id(), all, Access::Write);
    }
}

struct All(Table<Item>);

impl Procedure for All {
    type Output = Vec<Item>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<Item>, Error> {
        t.scan(&self.0, ..).rows()
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.0.id(), all, Access::Write);
    }
}

fn open<P: Protocol>(path: &Path, info: &ProtocolInfo) -> Database<P> {
    let builder = Database::builder().with::<P>();
    let builder = info.options.iter().fold(builder, |builder, (name, value)| builder.protocol_option(name, value));
    builder.open(path).unwrap_or_else(|error| panic!("{}: {error}", info.name))
}

/// The most memory that the process has had so far.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.map_or(String::new(), |line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
}

/// Says how long something took, and what memory the process has had.
fn timed<O>(what: &str, run: impl FnOnce() -> O) -> O {
    let clock = SystemClock::new();
    let begun_ns = clock.now_ns();
    let output = run();
    let seconds = (clock.now_ns() - begun_ns) as f64 / 1e9;
    println!("{what}: {seconds:.2} s, at most {} resident", peak());
    output
}

struct Write<'p>(&'p Path);

impl ProtocolVisitor for Write<'_> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let (count, name) = (rows(), info.name);
        let database = open::<P>(self.0, info);
        let items = database.create_table::<Item>().unwrap();
        let execute = |does| database.execute(&mut Long(does, items));
        execute(Does::Insert(2 * count, 2 * count + 1)).unwrap();
        timed(&format!("{name}: {count} rows in one transaction"), || execute(Does::Insert(0, count))).unwrap();
        let failed = execute(Does::Fail(count / 4));
        assert!(matches!(failed, Err(Error::Duplicate(_))), "{name}: {failed:?}");
        execute(Does::Insert(2 * count + 1, 2 * count + 2)).unwrap();
        timed(&format!("{name}: a quarter changed, a quarter deleted"), || execute(Does::Change(count))).unwrap();
        if count.is_multiple_of(3) {
            database.checkpoint().unwrap();
        }
        database.close().unwrap();
    }
}

struct Read<'p>(&'p Path);

impl ProtocolVisitor for Read<'_> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let (count, name) = (rows(), info.name);
        let database = timed(&format!("{name}: opened"), || open::<P>(self.0, info));
        let items = database.table::<Item>().unwrap().unwrap();
        let found = database.execute(&mut All(items)).unwrap();
        let long = (0..count).filter(|id| id % 4 != 1).map(|id| item(id, if id % 4 == 0 { 7 } else { 0 }));
        let expected = long.chain((2 * count..2 * count + 2).map(|id| item(id, 0)));
        assert!(found.into_iter().eq(expected), "{name}");
        database.close().unwrap();
    }
}

/// Writes with one protocol, and reads with another one and, behind a checkpoint, with this one again.
fn is_whole(writer: &str, reader: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("items");
    Protocols::visit(writer, Write(&path)).unwrap();
    Protocols::visit(reader, Read(&path)).unwrap();
    Protocols::visit(writer, Read(&path)).unwrap();
}

macro_rules! is_whole {
    ($($name:ident: $writer:literal read by $reader:literal;)+) => {
        $(
            #[test]
            fn $name() {
                is_whole($writer, $reader);
            }
        )+
    };
}

is_whole! {
    cicada: "cicada" read by "hyper";
    maflingo: "maflingo" read by "cicada";
    hyper: "hyper" read by "locking";
    locking: "locking" read by "bohm";
    bohm: "bohm" read by "maflingo";
    serial: "serial" read by "lazy-occ";
    lazy_occ: "lazy-occ" read by "serial";
}

/// What does not fit the log's memory is refused while it is staged, with how many bytes there are, and leaves nothing; what comes then is logged.
#[test]
fn what_is_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let limited = |limit| Database::builder().memory_limit(limit).open(directory.path().join("items")).unwrap();
    let database = limited(256 << 20);
    let items = database.create_table::<Item>().unwrap();
    // The log has an eighth of the memory, and a transaction three quarters of that.
    let refused = database.execute(&mut Long(Does::Insert(0, 300_000), items)).unwrap_err();
    match refused {
        Error::TransactionTooLong(refused) => {
            assert_eq!(refused.limit, 24 << 20);
            assert!(refused.bytes > refused.limit && refused.bytes < refused.limit + 1000, "{refused}");
        }
        other => panic!("{other}"),
    }
    database.execute(&mut Long(Does::Insert(5, 150_000), items)).unwrap();
    database.close().unwrap();
    let database = limited(256 << 20);
    let items = database.table::<Item>().unwrap().unwrap();
    let ids: Vec<u64> = database.execute(&mut All(items)).unwrap().iter().map(|item| item.id).collect();
    assert!(ids.into_iter().eq(5..150_000));
}
