//! What prepared statements take, beside the same transactions as closures: nanoseconds of each, medians of rounds that take turns.
//!
//! ```text
//! cargo run --release -p polychron --no-default-features --features sql --example statements
//! ```

use polychron::prelude::*;
use polychron::sql::{Connection, Error, Prepared};
use polychron_base::clock::{Clock as _, SystemClock};

const ROWS: u64 = 100_000;
const ROUNDS: usize = 15;

#[derive(Row)]
struct Item {
    #[key]
    id: i64,
    name: String,
    stock: i64,
}

#[derive(Row)]
struct Buyer {
    #[key]
    id: i64,
    name: String,
}

#[derive(Row)]
struct Purchase {
    #[key]
    id: i64,
    item: i64,
    buyer: i64,
}

/// Numbers that look random.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound) as i64
    }
}

struct Bench {
    database: Database,
    items: Table<Item>,
    buyers: Table<Buyer>,
    purchases: Table<Purchase>,
    connection: Connection,
    draw: Draw,
    /// The next key of an insertion.
    next: i64,
}

impl Bench {
    fn open() -> Result<Self, Box<dyn std::error::Error>> {
        let database = Database::in_memory()?;
        let (items, buyers) = (database.create_table::<Item>()?, database.create_table::<Buyer>()?);
        let purchases = database.create_table::<Purchase>()?;
        let ids: Vec<i64> = (0..ROWS as i64).collect();
        for ids in ids.chunks(1_000) {
            database.transact(|transaction| {
                for &id in ids {
                    transaction.insert(&items, &Item { id, name: format!("item {id}"), stock: 100 })?;
                    transaction.insert(&buyers, &Buyer { id, name: format!("buyer {id}") })?;
                    transaction.insert(&purchases, &Purchase { id, item: id * 7 % 99_991, buyer: id * 11 % 99_991 })?;
                }
                polychron::Ok(())
            })?;
        }
        let connection = database.sql()?;
        Ok(Self { database, items, buyers, purchases, connection, draw: Draw(1), next: ROWS as i64 })
    }

    fn prepare(&mut self, text: &str) -> Result<Prepared, Error> {
        self.connection.prepare(text)
    }
}

/// Runs both in turns, and prints the medians.
fn compare(
    bench: &mut Bench,
    name: &str,
    times: u32,
    mut sql: impl FnMut(&mut Bench) -> Result<(), Error>,
    mut native: impl FnMut(&mut Bench) -> Result<(), polychron::Error>,
) -> Result<(), Box<dyn std::error::Error>> {
    let (clock, mut of_sql, mut of_native) = (SystemClock::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = clock.now_ns();
        (0..times).try_for_each(|_| sql(bench))?;
        let between = clock.now_ns();
        (0..times).try_for_each(|_| native(bench))?;
        of_sql.push((between - begun) as f64 / f64::from(times));
        of_native.push((clock.now_ns() - between) as f64 / f64::from(times));
    }
    println!("{name:<22} {:>9.0} {:>9.0}", median(of_sql), median(of_native));
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // How often each is done in a round: fewer under an instrument that slows it down.
    let times: u32 = std::env::args().nth(1).map_or(Ok(20_000), |given| given.parse())?;
    let only = std::env::args().nth(2).unwrap_or_default();
    let mut bench = Bench::open()?;
    println!("{:<22} {:>9} {:>9}", "ns", "SQL", "closure");
    let has = |name: &str| name.contains(&only);
    if has("point read") {
        point_read(&mut bench, times)?;
    }
    if has("update") {
        update(&mut bench, times)?;
    }
    if has("insert") {
        insert(&mut bench, times)?;
    }
    if has("ten rows") {
        ten_rows(&mut bench, times)?;
    }
    if has("join") {
        join(&mut bench, times)?;
    }
    if has("no engine") {
        let mut statement = bench.prepare("SELECT $1::bigint")?;
        let sql = |bench: &mut Bench| statement.query(&mut bench.connection, (7_i64,)).map(drop);
        compare(&mut bench, "no table", times, sql, |bench| bench.database.transact(|_| polychron::Ok(())))?;
    }
    if has("prepare") {
        let mut number = 0;
        let mut prepare = |bench: &mut Bench| {
            number += 1;
            bench.prepare(&format!("SELECT name, stock FROM item WHERE id = $1 AND stock <> {number}")).map(drop)
        };
        compare(&mut bench, "prepare a new text", times / 10, &mut prepare, |_| Ok(()))?;
    }
    Ok(())
}

fn point_read(bench: &mut Bench, times: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut statement = bench.prepare("SELECT name, stock FROM item WHERE id = $1")?;
    let sql = |bench: &mut Bench| {
        let rows = statement.query(&mut bench.connection, (bench.draw.below(ROWS),))?;
        let (name, stock): (&str, i64) = rows.only()?;
        std::hint::black_box((name, stock));
        Ok(())
    };
    compare(bench, "point read", times, sql, |bench| {
        let id = bench.draw.below(ROWS);
        let read = bench.database.transact(|transaction| {
            polychron::Ok(transaction.get(&bench.items, id)?.map(|row| (row.name().to_owned(), row.stock())))
        })?;
        std::hint::black_box(read);
        Ok(())
    })
}

fn update(bench: &mut Bench, times: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut statement = bench.prepare("UPDATE item SET stock = stock + $2 WHERE id = $1")?;
    let sql = |bench: &mut Bench| {
        let id = bench.draw.below(ROWS);
        statement.execute(&mut bench.connection, (id, 1_i64)).map(drop)
    };
    compare(bench, "update", times, sql, |bench| {
        let id = bench.draw.below(ROWS);
        bench.database.transact(|transaction| {
            transaction.update(&bench.items, id, |row| row.set_stock(row.stock() + 1)).map(drop)
        })
    })
}

fn insert(bench: &mut Bench, times: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut statement = bench.prepare("INSERT INTO buyer VALUES ($1, $2)")?;
    let sql = |bench: &mut Bench| {
        bench.next += 1;
        statement.execute(&mut bench.connection, (bench.next, "somebody")).map(drop)
    };
    compare(bench, "insert", times, sql, |bench| {
        bench.next += 1;
        let row = Buyer { id: bench.next, name: "somebody".to_owned() };
        bench.database.transact(|transaction| transaction.insert(&bench.buyers, &row))
    })
}

fn ten_rows(bench: &mut Bench, times: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut statement = bench.prepare("SELECT id, name, stock FROM item WHERE id >= $1 AND id < $2 ORDER BY id")?;
    let sql = |bench: &mut Bench| {
        let first = bench.draw.below(ROWS - 10);
        let rows = statement.query(&mut bench.connection, (first, first + 10))?;
        assert_eq!(rows.len(), 10);
        for row in &rows {
            std::hint::black_box((row.get::<i64>(0)?, row.get::<&str>(1)?, row.get::<i64>(2)?));
        }
        Ok(())
    };
    compare(bench, "ten rows", times, sql, |bench| {
        let first = bench.draw.below(ROWS - 10);
        let rows: Vec<_> = bench.database.transact(|transaction| {
            let range = transaction.scan(&bench.items, first..first + 10);
            range.map(|row| (row.id(), row.name().to_owned(), row.stock())).collect()
        })?;
        std::hint::black_box(rows);
        Ok(())
    })
}

fn join(bench: &mut Bench, times: u32) -> Result<(), Box<dyn std::error::Error>> {
    let text = "SELECT i.name, b.name FROM purchase p JOIN item i ON i.id = p.item JOIN buyer b ON b.id = p.buyer WHERE p.id = $1";
    let mut statement = bench.prepare(text)?;
    let sql = |bench: &mut Bench| {
        let rows = statement.query(&mut bench.connection, (bench.draw.below(ROWS),))?;
        std::hint::black_box(rows.only::<(&str, &str)>()?);
        Ok(())
    };
    compare(bench, "join of three by keys", times, sql, |bench| {
        let id = bench.draw.below(ROWS);
        let read = bench.database.transact(|transaction| {
            let Some((item, buyer)) = transaction.get(&bench.purchases, id)?.map(|row| (row.item(), row.buyer()))
            else {
                return polychron::Ok(None);
            };
            let item = transaction.get(&bench.items, item)?.map(|row| row.name().to_owned());
            let buyer = transaction.get(&bench.buyers, buyer)?.map(|row| row.name().to_owned());
            Ok(item.zip(buyer))
        })?;
        std::hint::black_box(read);
        Ok(())
    })
}
