//! What the process has of the machine's memory when the limit is reached: the limit, and a bounded part beyond it.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;

use polychron::protocols::{bohm::Bohm, cicada::Cicada, hyper::Hyper, maflingo::Maflingo};
use polychron::{Database, Error, Operations, Options, Procedure, Protocol, Row, Session, Table, Transaction, Worker};

const LIMIT: usize = 32 << 20;

/// Says in which of its own children the test is.
const CHILD: &str = "POLYCHRON_RESIDENT";

#[derive(Row)]
struct Item {
    #[key]
    id: u64,
    value: i64,
    #[column(max = 24)]
    text: String,
}

fn item(id: u64, value: i64) -> Item {
    Item { id, value, text: "twenty-four bytes long.".to_owned() }
}

/// Bytes of the process that lie in the memory of the machine, and in no file.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("the system tells");
    let pages =
        |field| statm.split(' ').nth(field).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages");
    // Those of files are the program, of which there is the more, the more of it has run.
    (pages(1) - pages(2)) * 4096
}

/// Whether a transaction was refused memory.
fn is_refused(outcome: Result<(), Error>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(Error::OutOfMemory(_)) => true,
        Err(other) => panic!("{other}"),
    }
}

struct Insert(Table<Item>, u64);

impl Procedure for Insert {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.insert(&self.0, &item(self.1, 0))
    }
}

struct Update(Table<Item>, u64, i64);

impl Procedure for Update {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.update(&self.0, self.1, |row| row.set_value(self.2)).map(drop)
    }
}

/// A snapshot, under which each row is updated once, or until that is refused: it keeps what it sees of each.
struct Beside<'s, P: Protocol> {
    table: Table<Item>,
    writer: &'s mut Session<P>,
    rows: u64,
}

impl<P: Protocol> Procedure for Beside<'_, P> {
    type Output = usize;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<usize, Error> {
        t.scan(&self.table, ..).count()?;
        let _refused = (0..self.rows).find(|id| is_refused(self.writer.execute(&mut Update(self.table, *id, 1))));
        Ok(resident())
    }
}

/// Inserts rows one by one, up to so many or until that is refused. How many there are.
fn fill<P: Protocol>(session: &mut Session<P>, table: Table<Item>, most: u64) -> u64 {
    (0..most).find(|id| is_refused(session.execute(&mut Insert(table, *id)))).unwrap_or(most)
}

/// How much the process grows by a database that is filled with so many rows, or as many as there is room for, and then with versions of
/// them that a snapshot may see.
fn growth<P: Protocol>(rows: u64) -> usize {
    let mut options = Options { protocol: P::Options::default(), common: polychron::Common::default() };
    options.common.memory.limit_bytes = Some(LIMIT);
    options.common.memory.huge_pages = false;
    let before = resident();
    let database = Database::builder().with::<P>().options(options).in_memory().unwrap();
    let table = database.create_table::<Item>().unwrap();
    let (mut reader, mut writer) = (database.session().unwrap(), database.session().unwrap());
    let rows = fill(&mut writer, table, rows);
    let after = reader.worker().snapshot(&mut Beside { table, writer: &mut writer, rows }).unwrap();
    after.saturating_sub(before)
}

fn measure(child: &str) -> usize {
    let (name, rows) = child.split_once(' ').expect("a name and a number of rows");
    let rows = rows.parse().expect("a number");
    match name {
        "cicada" => growth::<Cicada>(rows),
        "maflingo" => growth::<Maflingo>(rows),
        "hyper" => growth::<Hyper>(rows),
        "bohm" => growth::<Bohm>(rows),
        _ => panic!("there is no such protocol"),
    }
}

/// Grows a process of its own, so that none uses again what another one has left.
fn grow(name: &str, rows: u64) -> usize {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let arguments = ["--exact", "the_process_stays_near_the_limit", "--nocapture"];
    let output = command.args(arguments).env(CHILD, format!("{name} {rows}")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let grown = text.lines().find_map(|line| line.strip_prefix("grown by ")?.strip_suffix(" bytes"));
    grown.and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

/// Full of rows, or of rows and versions of all of them: what lies beyond the limit is what the protocol's own lists need, and a little
/// for the database itself.
#[test]
fn the_process_stays_near_the_limit() {
    if let Ok(child) = std::env::var(CHILD) {
        println!("\ngrown by {} bytes", measure(&child));
        return;
    }
    let each = |name: &str, percent: usize| {
        for rows in [120_000, 200_000] {
            let grown = grow(name, rows);
            println!("{name}, {rows} rows: {grown} bytes, {} % of the limit", grown * 100 / LIMIT);
            let beyond = LIMIT / 100 * percent + (1 << 20);
            assert!(grown <= LIMIT + beyond, "{name}, {rows} rows: {grown} bytes under a limit of {LIMIT}");
        }
    };
    std::thread::scope(|scope| {
        for (name, percent) in [("cicada", 12), ("maflingo", 4), ("hyper", 12), ("bohm", 10)] {
            scope.spawn(move || each(name, percent));
        }
    });
}
