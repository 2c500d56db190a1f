//! What it costs Cicada that the serial order agrees with real time: throughput, and how long an update takes, under each `Consistency` in turns.
//!
//! `cargo run --release -p polychron-protocols --no-default-features --example consistency_costs [turns] [milliseconds]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use polychron_base::random::Random;
use polychron_engine::{Common, Error, Mode, Operations, Protocol, Table, drive};
use polychron_protocols::cicada::{Cicada, Consistency, Options};
use polychron_schema::Row;
use polychron_sync::atomic::{AtomicBool, Ordering};

#[derive(Row, Clone, Copy)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

const ROWS: u64 = 1000;

struct Database {
    cicada: Arc<Cicada>,
    accounts: Table<Account>,
}

fn open(consistency: Consistency) -> Result<Database, Error> {
    let cicada = Cicada::open(Options { consistency, ..Options::default() }, Common::default())?;
    let accounts = Table::from_id(cicada.create_table(Account::definition())?);
    drive::transact(&mut cicada.worker()?, Mode::ReadWrite, &mut |t| {
        (0..ROWS).try_for_each(|id| t.insert(&accounts, &Account { id, balance: 0 }))
    })?;
    Ok(Database { cicada, accounts })
}

/// Updates rows on so many threads for a while. Answers how long each took, in nanoseconds.
fn run(Database { cicada, accounts }: &Database, threads: u64, time: Duration) -> Result<Vec<u64>, Error> {
    let over = AtomicBool::new(false);
    let update = |thread: u64| {
        let mut worker = cicada.worker()?;
        let (mut random, mut taken) = (Random::from_seed(thread), Vec::with_capacity(1 << 20));
        // Relaxed: the flag orders nothing.
        while !over.load(Ordering::Relaxed) {
            let (id, begin) = (random.below(ROWS), Instant::now());
            drive::transact(&mut worker, Mode::ReadWrite, &mut |t| {
                t.update(accounts, id, |row| row.set_balance(row.balance() + 1))
            })?;
            taken.push(begin.elapsed().as_nanos() as u64);
        }
        Ok::<_, Error>(taken)
    };
    std::thread::scope(|scope| {
        let update = &update;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || update(thread))).collect();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().expect("no thread panics")?);
        }
        Ok(all)
    })
}

/// The value at a share of sorted ones.
fn at(sorted: &[u64], share: f64) -> u64 {
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0)
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (turns, milliseconds) = (arguments.next().unwrap_or(9), arguments.next().unwrap_or(500));
    let modes = [("loose", Consistency::Loose), ("clock", Consistency::Clock), ("external", Consistency::External)];
    let databases = modes.iter().map(|(_, consistency)| open(*consistency)).collect::<Result<Vec<_>, _>>()?;
    for threads in [1, 2] {
        let mut found: [Vec<[u64; 4]>; 3] = Default::default();
        for _ in 0..turns {
            for (database, found) in databases.iter().zip(&mut found) {
                let mut taken = run(database, threads, Duration::from_millis(milliseconds))?;
                taken.sort_unstable();
                let a_second = taken.len() as u64 * 1000 / milliseconds;
                found.push([a_second, at(&taken, 0.5), at(&taken, 0.99), at(&taken, 0.999)]);
            }
        }
        for ((name, _), found) in modes.iter().zip(found) {
            let median = |metric: usize| {
                let mut values: Vec<_> = found.iter().map(|turn| turn[metric]).collect();
                values.sort_unstable();
                at(&values, 0.5)
            };
            println!(
                "{threads} threads, {name:8}: {:8} a second, an update takes {} ns, 99 % at most {} ns, 99.9 % {} ns",
                median(0),
                median(1),
                median(2),
                median(3)
            );
        }
    }
    Ok(())
}
