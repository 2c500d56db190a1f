//! What a get and a read-modify-write cost as a transaction of their own, on the protocols that have records in place.
//!
//! `cargo run --release -p polychron-compared --example point_costs [rows] [operations]`

use std::sync::Arc;
use std::time::Instant;

use polychron::protocols::maflingo;
use polychron_base::Error;
use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_compared::{key_value, partitioned_store};
use polychron_engine::{
    Access, Common, Declare, Interactive, Mode, Operations, Procedure, Protocol, Table, Transaction, Worker, drive,
};
use polychron_schema::Row;

/// A hundred bytes, as in §6.3 of the Maflingo thesis.
#[derive(Row, Clone)]
#[row(name = "record", partition = id)]
struct Record {
    #[key]
    id: u64,
    counter: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    h: u64,
    i: u64,
    j: u64,
}

/// One operation, and the partition it stays in.
#[derive(Clone)]
struct Point {
    table: Table<Record>,
    id: u64,
    write: bool,
}

impl Procedure for Point {
    type Output = u64;
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        if self.write {
            transaction.update(&self.table, self.id, |row| row.set_counter(row.counter() + 1)).map(u64::from)
        } else {
            Ok(transaction.get(&self.table, self.id)?.map_or(0, |row| row.counter() + row.j()))
        }
    }

    #[inline]
    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.partition(self.id);
        declaration.key(self.table.id(), Key8::new(self.id, 8), Access::Write);
    }
}

fn measure<P>(options: P::Options, rows: u64, operations: usize)
where
    P: Protocol,
    P::Worker: Interactive,
{
    let database: Arc<P> = P::open(options, Common::default()).expect("a database");
    let table = Table::from_id(database.create_table(Record::definition()).expect("a table"));
    let mut worker = database.worker().expect("a worker");
    let mut from = 0;
    while from < rows {
        let to = rows.min(from + 1000);
        drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
            (from..to).try_for_each(|id| transaction.insert(&table, &new_record(id)))
        })
        .expect("rows are loaded");
        from = to;
    }
    let mut random = Random::from_seed(1);
    print!("{:18}", P::NAME);
    for (name, write, batch) in
        [("get", false, 1), ("update", true, 1), ("get in batches", false, 32), ("update in batches", true, 32)]
    {
        let mut best = f64::MAX;
        for _ in 0..3 {
            let mut points: Vec<_> = (0..operations).map(|_| Point { table, id: random.below(rows), write }).collect();
            let begin = Instant::now();
            let mut sum = 0;
            for group in points.chunks_mut(batch) {
                if batch == 1 {
                    sum += worker.execute(&mut group[0]).expect("it commits");
                } else {
                    worker.execute_batch(group, &mut |_, outcome| sum += outcome.expect("it commits"));
                }
            }
            std::hint::black_box(sum);
            best = best.min(begin.elapsed().as_nanos() as f64 / operations as f64);
        }
        print!("  {name} {best:6.1} ns");
    }
    println!();
}

fn new_record(id: u64) -> Record {
    Record { id, counter: 0, a: id, b: id, c: id, d: id, e: id, f: id, g: id, h: id, i: id, j: id }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let rows = arguments.next().unwrap_or(1_000_000);
    let operations = arguments.next().unwrap_or(1_000_000) as usize;
    measure::<key_value::KeyValue>(Default::default(), rows, operations);
    measure::<partitioned_store::PartitionedStore>(partitioned_store::Options { partitions: 1 }, rows, operations);
    measure::<maflingo::Maflingo>(Default::default(), rows, operations);
}
