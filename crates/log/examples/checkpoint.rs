//! Measures checkpoints: a log of rows is folded into files, and then, in turns, some rows are changed and all rows are written again with them, as fast
//! as that goes; as many are changed, and written beside the rows, if they are few enough; as many are changed that are near each other, and as many are
//! added, and files stay of which nothing near them was changed; and as many bytes as the rows have are written bare by as many threads, and read and
//! written.
//!
//! `cargo run --release -p polychron-log --example checkpoint -- DIRECTORY [MEGABYTES] [WORDS] [THREADS] [CHANGED]`, in a directory that is made: so many
//! megabytes of rows of so many words, of which so many are changed each time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use polychron_base::clock::{Clock as _, SystemClock};
use polychron_base::random::Random;
use polychron_base::{IndexId, TableId};
use polychron_engine::redo::{Change, Log as _, Order};
use polychron_log::catalog::{self, Standing, StoredCatalog, StoredTable};
use polychron_log::checkpoint::{self, Checkpoints, Haste};
use polychron_log::disk::{Access, Buffer, Directory, Files};
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::{DatabaseId, Durability, Log, Options, Threads};
use polychron_schema::{ColumnType, TableDefinition};
use polychron_sync::atomic::{AtomicU64, Ordering};

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// How much a bare write writes at once.
const AT_ONCE: usize = 1 << 20;

/// A table of numbers.
fn tables(words: usize) -> Answer<StoredCatalog> {
    let definition = (0..words)
        .fold(TableDefinition::new("numbers"), |it, column| it.with_column(format!("c{column}"), ColumnType::U64))
        .with_key([0]);
    let table = StoredTable {
        definition: Arc::new(definition),
        indexes: Vec::new(),
        last_index: IndexId::PRIMARY,
        standing: Standing::Permanent,
    };
    Ok(StoredCatalog::new(2, BTreeMap::from([(1, table)]))?)
}

struct Writer<'l> {
    log: &'l Log<Directory>,
    orders: Arc<AtomicU64>,
    words: usize,
    random: Random,
}

impl Writer<'_> {
    /// Puts a row in a transaction of its own. One word of four is zero.
    fn put(&mut self, key: u64) -> Answer<()> {
        let order = self.orders.load(Ordering::Relaxed) + 1;
        let number = |at: usize| if at % 4 == 3 { 0 } else { self.random.next_u64() };
        let mut row: Vec<u64> = (0..self.words).map(number).collect();
        row[0] = key;
        self.log.admit(0)?;
        self.log.stage(0, TableId::new(1, 1), b"", Change::Put(&row))?;
        self.log.seal(0, Order::from(order));
        // All up to here have ended.
        self.orders.store(order, Ordering::Release);
        Ok(())
    }
}

/// Seconds that a bare write of so many bytes takes, in as many files as threads, and of a read and a write if there are files to read.
fn bare(files: &Files<Directory>, bytes: u64, threads: usize, is_read: bool) -> Answer<f64> {
    let clock = SystemClock::new();
    let begun = clock.now_ns();
    let work = |thread: usize| -> Result<(), polychron_log::disk::Error> {
        let path = format!("bare.{thread}");
        let source = if is_read { Some(files.open(&path, Access::Read)?) } else { None };
        let file = files.create(&format!("bare.new.{thread}"), 0)?;
        let mut buffer = Buffer::zeroed(AT_ONCE);
        Random::from_seed(thread as u64).fill(&mut buffer);
        for offset in (0..bytes / threads as u64 / AT_ONCE as u64).map(|number| number * AT_ONCE as u64) {
            if let Some(source) = &source {
                source.read_at(offset, &mut buffer)?;
            }
            file.write_at(offset, &buffer)?;
        }
        file.sync()
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok((clock.now_ns() - begun) as f64 / 1e9)
}

/// Makes the files that were written last those that are read next.
fn keep(files: &Files<Directory>, root: &Path, threads: usize) -> Answer<()> {
    for thread in 0..threads {
        let _ = files.remove(&format!("bare.{thread}"));
        let (from, to) = (root.join(format!("bare.new.{thread}")), root.join(format!("bare.{thread}")));
        std::process::Command::new("mv").args([from, to]).status()?;
    }
    Ok(())
}

/// A database with a table of numbers.
fn create(files: &Files<Directory>, words: usize) -> Answer<Manifests<Directory>> {
    let first = Manifest {
        database: DatabaseId(1),
        incarnation: 0,
        first_log_file: 1,
        durable: 0,
        checkpoint: None,
        catalog: catalog::encode(&tables(words)?),
    };
    Ok(Manifests::create(files, first)?)
}

fn main() -> Answer<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which directory?")?;
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (megabytes, words, threads, changed) = (number(512)?, number(16)?, number(2)?, number(1000)? as u64);
    let root = Path::new(&path);
    let files = Files::new(Directory::create_or_open(root)?);
    let _lock = files.lock()?;
    let mut manifests = create(&files, words)?;
    let orders = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&orders);
    let ended = Box::new(move || Order::from(seen.load(Ordering::Acquire)));
    let log_options = Options { durability: Durability::OnCheckpoint, ..Options::production(1) };
    let clock = Arc::new(SystemClock::new());
    let log = Arc::new(Log::open(&files, &mut manifests, log_options, clock.clone(), ended, &mut |_| {})?);
    let manifests = Mutex::new(manifests);
    let _threads = Threads::start(Arc::clone(&log))?;
    let mut writer = Writer { log: &log, orders, words, random: Random::from_seed(1) };
    let rows = (megabytes << 20) as u64 / (8 * words as u64);
    (0..rows).try_for_each(|key| writer.put(key))?;
    let current = || manifests.lock().expect("nothing has panicked").current().clone();
    let bytes = || -> u64 { current().checkpoint.iter().flat_map(|it| &it.files).map(|file| file.bytes).sum() };
    let open = |changes: f64| -> Answer<Checkpoints<Directory>> {
        let options =
            checkpoint::Options { threads, memory_bytes: 1 << 30, changes, ..checkpoint::Options::production() };
        Ok(Checkpoints::open(&files, &current(), options)?)
    };
    let fold = |checkpoints: &Checkpoints<Directory>| -> Answer<f64> {
        log.flush()?;
        let begun = clock.now_ns();
        checkpoints.run(&log, &manifests, Haste::Unpaced)?;
        Ok((clock.now_ns() - begun) as f64 / 1e9)
    };
    let mb = |seconds: f64, bytes: u64| bytes as f64 / 1e6 / seconds;
    let keeping = open(0.0)?;
    let seconds = fold(&keeping)?;
    println!("a log of {rows} rows becomes {:.0} MB of files: {:.0} MB/s", bytes() as f64 / 1e6, mb(seconds, bytes()));
    let beside = |is_read| -> Answer<f64> {
        let seconds = bare(&files, bytes(), threads, is_read)?;
        keep(&files, root, threads)?;
        Ok(seconds)
    };
    beside(false)?;
    for round in 0..5 {
        (0..changed).try_for_each(|number| writer.put(number * 7919 % rows))?;
        let folded = fold(&keeping)?;
        (0..changed).try_for_each(|number| writer.put((round * 1_000_003 + number) % rows))?;
        let near = fold(&keeping)?;
        (0..changed).try_for_each(|number| writer.put(rows + round * changed + number))?;
        let added = fold(&keeping)?;
        let (written, copied) = (beside(false)?, beside(true)?);
        println!(
            "{:.0} MB/s fold, {:.0} MB/s bare write, {:.0} MB/s bare read and write: {:.0} % and {:.0} %; rows near each other {near:.3} s, rows added {added:.3} s",
            mb(folded, bytes()),
            mb(written, bytes()),
            mb(copied, bytes()),
            100.0 * written / folded,
            100.0 * copied / folded,
        );
    }
    let leaving = open(0.125)?;
    for _ in 0..5 {
        (0..changed).try_for_each(|number| writer.put(number * 7919 % rows))?;
        println!("rows left where few have changed {:.3} s", fold(&leaving)?);
    }
    Ok(())
}
