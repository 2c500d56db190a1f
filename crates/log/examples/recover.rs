//! Measures recovery from a log: a log of transactions like orders of TPC-C is written, and then, in turns, its files are read and nothing else, and it is
//! recovered with several numbers of threads, whose rows go nowhere.
//!
//! `cargo run --release -p polychron-log --example recover -- DIRECTORY [MEGABYTES] [THREADS,…] [TURNS]`, in a directory that is made.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use polychron_base::clock::{Clock as _, SystemClock};
use polychron_base::random::Random;
use polychron_base::{IndexId, TableId};
use polychron_engine::redo::{Change, Log as _, Order};
use polychron_log::catalog::{StoredCatalog, StoredTable};
use polychron_log::disk::{Access, BLOCK, Buffer, Directory, Files};
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::recover::{Batch, Sink, Tail};
use polychron_log::{DatabaseId, Durability, Error, Log, Options, Threads};
use polychron_schema::{ColumnType, RowBuffer, TableDefinition, Value, build_row};

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

const DISTRICTS: u64 = 100;
const ITEMS: u64 = 1_000_000;

/// Districts, stock, orders, their lines, and orders that are new: numbers and a text.
fn definitions() -> Vec<TableDefinition> {
    let table = |name: &str, keys: usize, numbers: usize, text: u32| {
        let columns = keys + numbers;
        let table = TableDefinition::new(name);
        let table = (0..columns).fold(table, |table, column| table.with_column(format!("c{column}"), ColumnType::U64));
        let table = if text > 0 { table.with_column("text", ColumnType::String { max: text }) } else { table };
        table.with_key((0..keys).collect::<Vec<_>>())
    };
    vec![
        table("district", 1, 3, 20),
        table("stock", 1, 3, 50),
        table("orders", 1, 5, 0),
        table("order_line", 2, 5, 24),
        table("new_order", 1, 0, 0),
    ]
}

fn catalog() -> Answer<StoredCatalog> {
    let stored = |definition| StoredTable {
        definition: Arc::new(definition),
        indexes: Vec::new(),
        last_index: IndexId::PRIMARY,
        standing: polychron_log::catalog::Standing::Permanent,
    };
    let tables: BTreeMap<u32, StoredTable> = (0..).zip(definitions().into_iter().map(stored)).collect();
    Ok(StoredCatalog::new(tables.len() as u32, tables)?)
}

/// Writes transactions until they are so many bytes.
struct Writer<'l> {
    log: &'l Log<Directory>,
    definitions: Vec<TableDefinition>,
    row: RowBuffer,
    order: u64,
}

impl Writer<'_> {
    fn stage(&self, table: u32, key: &[u8], change: Change<'_>) -> Answer<()> {
        Ok(self.log.stage(0, TableId::new(1, table), key, change)?)
    }

    fn put(&mut self, table: u32, numbers: &[u64], text: Option<&str>) -> Answer<()> {
        let values: Vec<Value> = numbers.iter().map(|&it| Value::from(it)).chain(text.map(Value::from)).collect();
        build_row(&self.definitions[table as usize].layout()?, &values, &mut self.row)?;
        self.stage(table, b"", Change::Put(self.row.as_words()))
    }

    fn patch(&self, table: u32, key: u64, words: &[u64]) -> Answer<()> {
        self.stage(table, &key.to_be_bytes(), Change::Patch { word: 1, words })
    }

    fn seal(&mut self) -> Answer<()> {
        self.order += 1;
        self.log.seal(0, Order::from(self.order));
        Ok(self.log.admit(0)?)
    }

    fn load(&mut self) -> Answer<()> {
        for district in 0..DISTRICTS {
            self.put(0, &[district, 1, 1, 1], Some("a district"))?;
        }
        self.seal()?;
        for item in 0..ITEMS {
            self.put(1, &[item, 100, 0, 0], Some("what is known of the item that lies here"))?;
            if item % 10 == 9 {
                self.seal()?;
            }
        }
        Ok(())
    }

    fn transaction(&mut self, random: &mut Random) -> Answer<()> {
        let (number, district) = (self.order, random.below(DISTRICTS));
        self.patch(0, district, &[number, number << 9])?;
        self.put(2, &[number, district, number << 20, 0, 10, 1], None)?;
        self.put(4, &[number], None)?;
        for line in 0..10 {
            let item = random.below(ITEMS);
            self.patch(1, item, &[91 - line, number, number + 1])?;
            self.put(3, &[number, line, item, 5, number << 8, 0, 0], Some("a district's 24 letters."))?;
        }
        if number > 1000 {
            self.stage(4, &(number - 900).to_be_bytes(), Change::Delete)?;
        }
        self.seal()
    }
}

fn write(files: &Files<Directory>, bytes: u64) -> Answer<()> {
    let first = Manifest {
        database: DatabaseId(1),
        incarnation: 0,
        first_log_file: 1,
        durable: 0,
        checkpoint: None,
        catalog: Vec::new(),
    };
    let mut manifests = Manifests::create(files, first)?;
    let options = Options { durability: Durability::OnCheckpoint, ..Options::production(1) };
    let clock = Arc::new(SystemClock::new());
    let log = Arc::new(Log::open(files, &mut manifests, options, clock, Box::new(Order::default), &mut |_| {})?);
    let threads = Threads::start(Arc::clone(&log))?;
    let mut writer = Writer { log: &log, definitions: definitions(), row: RowBuffer::new(), order: 0 };
    writer.load()?;
    let random = &mut Random::from_seed(1);
    while !writer.order.is_multiple_of(1000) || files.list("log")?.len() as u64 * (64 << 20) < bytes {
        writer.transaction(random)?;
    }
    log.flush()?;
    drop(threads);
    println!("{} transactions", writer.order);
    Ok(())
}

/// Reads all files of the log, and nothing else; answers their bytes.
fn probe(files: &Files<Directory>) -> Answer<u64> {
    let mut buffer = Buffer::zeroed(1 << 20);
    let mut sum = 0;
    for entry in files.list("log")? {
        let file = files.open(&format!("log/{}", entry.name), Access::Read)?;
        for offset in (0..file.bytes()?).step_by(buffer.len()) {
            file.read_at(offset, &mut buffer)?;
            sum += u64::from(buffer[BLOCK] != 0);
        }
    }
    Ok(sum << 20)
}

struct Nowhere;

impl Sink for Nowhere {
    type Error = Error;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        std::hint::black_box(batch.rows().map(|row| row.words[0]).fold(0, u64::wrapping_add));
        Ok(())
    }
}

fn main() -> Answer<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which directory?")?;
    let bytes = arguments.next().map_or(Ok(1024), |count| count.parse::<u64>())? << 20;
    let threads = arguments.next().unwrap_or("0,1,2".to_owned());
    let threads: Vec<usize> = threads.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let turns: usize = arguments.next().map_or(Ok(3), |count| count.parse())?;
    let files = Files::new(Directory::create_or_open(Path::new(&path))?);
    if Manifests::read(&files)?.is_none() {
        write(&files, bytes)?;
    }
    let manifests = Manifests::open(&files)?.ok_or("it is there")?;
    let (clock, catalog) = (SystemClock::new(), catalog()?);
    let since = |begun: u64| (clock.now_ns() - begun) as f64 / 1e9;
    let read_with = |visit: &mut dyn FnMut(polychron_log::Logged<'_>)| {
        polychron_log::read(&files, manifests.current(), manifests.generation(), visit)
    };
    for _ in 0..turns {
        let begun = clock.now_ns();
        let gigabytes = probe(&files)? as f64 / 1e9;
        println!("{gigabytes:.2} GB: {:.2} s/GB to read the files", since(begun) / gigabytes);
        let (begun, mut records) = (clock.now_ns(), 0_u64);
        read_with(&mut |_| records += 1)?;
        println!("  {:.2} s/GB to check {records} records and do nothing with them", since(begun) / gigabytes);
        for &threads in &threads {
            let begun = clock.now_ns();
            let mut tail = Tail::new(&catalog, threads)?;
            read_with(&mut |logged| tail.add(logged))?;
            let read = since(begun);
            let newest = tail.finish()?;
            let (gathered, memory) = (since(begun), newest.memory_bytes() as f64 / 1e9);
            let rows = newest.merge(threads, &(), &Nowhere)?;
            let all = since(begun);
            println!(
                "  {:.2} s/GB with {threads} threads beside the reading one: reading {:.2}, until all is gathered {:.2}; {rows} rows, {:.2} GB a GB of memory",
                all / gigabytes,
                read / gigabytes,
                gathered / gigabytes,
                memory / gigabytes
            );
        }
    }
    Ok(())
}
