//! What a sum over a column costs in HyPer's MVCC, beside a plain slice's: clean, with 0.01 % dirty records of four versions each (the
//! oldest state and the newest), and the same without synopses. The five are measured in turns; medians and quartiles of nanoseconds a
//! record and of their ratios.
//!
//! `cargo run --release -p polychron-protocols --example column_scans 10000000`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use polychron_engine::{
    Aggregate, Commit, Common, Error, Interactive, Mode, Operations, Protocol, Scan, Table, Worker,
};
use polychron_protocols::hyper::{Backend, BeforeImages, Hyper, HyperTransaction, Options};
use polychron_schema::Row;

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[row(primary = "hash")]
struct Item {
    #[key]
    id: u64,
    value: i64,
}

type Tx<'w> = HyperTransaction<'w>;

/// Rounds of the five.
const ROUNDS: usize = 25;
/// Records that one transaction inserts.
const CHUNK: u64 = 1000;
/// How often each dirty record is changed.
const VERSIONS: u64 = 4;
/// Of so many records one is dirty.
const ONE_IN: u64 = 10_000;

struct Store {
    database: Arc<Hyper>,
    items: Table<Item>,
    records: u64,
}

impl Store {
    /// A store of so many records without versions, which its intervals know.
    fn open(records: u64, options: Options) -> Self {
        let database = Hyper::open(options, Common::default()).expect("the options are sound");
        let items = Table::from_id(database.create_table(Item::definition()).expect("the definition is sound"));
        let store = Self { database, items, records };
        for first in (0..records).step_by(CHUNK as usize) {
            store.transact(|t| {
                let ids = first..records.min(first + CHUNK);
                ids.into_iter().try_for_each(|id| t.insert(&items, &Item { id, value: 1000 }))
            });
        }
        let mut worker = store.database.worker().expect("a slot is free");
        worker.maintain();
        sum(&mut worker.begin(Mode::Snapshot).expect("it begins"), &store);
        store
    }

    fn transact(&self, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) {
        let mut worker = self.database.worker().expect("a slot is free");
        let mut transaction = worker.begin(Mode::ReadWrite).expect("it begins");
        body(&mut transaction).and_then(|()| transaction.commit()).expect("nobody is in its way");
    }

    /// Changes one in [`ONE_IN`] records, far from each other, each by transactions of their own.
    fn make_dirty(&self) {
        let step = self.records / (self.records / ONE_IN).max(1);
        for _ in 0..VERSIONS {
            for number in 0..self.records / ONE_IN {
                // Anywhere in its stride.
                let id = number * step + (number * 0x9E37_79B9) % step;
                self.transact(|t| t.update(&self.items, id, |row| row.set_value(row.value() + 1)).map(drop));
            }
        }
    }
}

fn sum(transaction: &mut Tx<'_>, store: &Store) {
    black_box(transaction.aggregate(&Scan::all(store.items.id()), Aggregate::Sum(1)).expect("numbers have a sum"));
}

/// Lower quartile, median and upper quartile.
fn quartiles(rounds: &[[f64; 5]], of: impl Fn(&[f64; 5]) -> f64) -> String {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let [low, middle, high] = [1, 2, 3].map(|quarter| values[quarter * values.len() / 4]);
    format!("{middle:.3} ({low:.3} to {high:.3})")
}

fn main() {
    let records = std::env::args().nth(1).and_then(|given| given.parse().ok()).unwrap_or(10_000_000).max(ONE_IN);
    let options = Options { backend: Backend::Columns, ..Options::default() };
    let (clean, dirty) = (Store::open(records, options.clone()), Store::open(records, options.clone()));
    let bare = Store::open(records, Options { synopsis: None, before_images: BeforeImages::Records, ..options });
    let plain = vec![1000_i64; records as usize];
    let mut workers = [&clean, &dirty, &bare, &dirty].map(|store| store.database.worker().expect("a slot is free"));
    let [of_clean, of_oldest, of_bare, of_newest] = &mut workers;
    // Who may write keeps all versions since.
    let mut of_clean = of_clean.begin(Mode::ReadWrite).expect("it begins");
    let mut of_oldest = of_oldest.begin(Mode::ReadWrite).expect("it begins");
    let mut of_bare = of_bare.begin(Mode::ReadWrite).expect("it begins");
    dirty.make_dirty();
    bare.make_dirty();
    let mut of_newest = of_newest.begin(Mode::Snapshot).expect("it begins");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let time = |work: &mut dyn FnMut()| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_nanos() as f64 / records as f64
        };
        rounds.push([
            time(&mut || _ = black_box(black_box(&plain).iter().fold(0_i64, |sum, value| sum.wrapping_add(*value)))),
            time(&mut || sum(&mut of_clean, &clean)),
            time(&mut || sum(&mut of_oldest, &dirty)),
            time(&mut || sum(&mut of_newest, &dirty)),
            time(&mut || sum(&mut of_bare, &bare)),
        ]);
    }
    println!("nanoseconds a record, of {records}");
    for (place, name) in ["plain slice", "clean", "oldest", "newest", "no synopses"].into_iter().enumerate() {
        println!("  {name:12} {}", quartiles(&rounds, |round| round[place]));
    }
    println!("speed, as a multiple");
    println!("  clean, of a plain slice's   {}", quartiles(&rounds, |round| round[0] / round[1]));
    println!("  oldest, of clean            {}", quartiles(&rounds, |round| round[1] / round[2]));
    println!("  newest, of clean            {}", quartiles(&rounds, |round| round[1] / round[3]));
    println!("  oldest, of no synopses      {}", quartiles(&rounds, |round| round[4] / round[2]));
}
