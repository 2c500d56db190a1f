//! Threads that run freely over few keys, and invariants that must hold: the number of operations is fixed, not the time.

use polychron_base::random::Random;
use polychron_engine::{Error, Insertion, Interactive, Mode, Operations, Protocol, Transaction, Worker};
use polychron_sync::atomic::{AtomicUsize, Ordering};

use crate::Setup;
use crate::client::Client;
use crate::rows::{Item, Person, person, value};
use crate::setup::{Tx, done, items, persons, run, snapshot};

const ACCOUNTS: u64 = 12;

/// Moves money between two accounts; an account that is empty is closed, and a missing one is opened.
fn transfer<T: Transaction>(
    t: &mut T,
    table: &polychron_engine::Table<Item>,
    from: u64,
    to: u64,
    amount: i64,
) -> Result<(), Error> {
    let Some(balance) = value(t, table, from)? else { return Ok(()) };
    let moved = balance.min(amount);
    if moved == balance {
        t.delete(table, from)?;
    } else {
        t.update(table, from, |row| row.set_value(balance - moved))?;
    }
    match value(t, table, to)? {
        Some(_) => t.update(table, to, |row| row.set_value(row.value() + moved)).map(drop),
        None => t.insert(table, &Item { id: to, value: moved }),
    }
}

fn run_bank<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    audit: impl Fn(&mut P::Worker, &polychron_engine::Table<Item>) -> i64 + Sync,
) {
    let rows: Vec<_> = (0..ACCOUNTS).map(|id| (id, 10)).collect();
    let (database, table) = items(setup, &rows);
    setup.pass(&database, 3);
    let total = 10 * ACCOUNTS as i64;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (database, table) = (&database, &table);
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut random = Random::stream(1, thread);
                for round in 0..2500 {
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    let amount = random.below(12) as i64;
                    if from != to {
                        done(&mut worker, |t| transfer(t, table, from, to, amount));
                    }
                    if round % 64 == 0 {
                        (setup.tick)(database);
                    }
                }
            });
        }
        let mut worker = database.worker().unwrap();
        for _ in 0..300 {
            assert_eq!(audit(&mut worker, &table), total, "money was made or lost");
        }
    });
    let mut worker = database.worker().unwrap();
    let sum: i64 = done(&mut worker, |t| t.scan(&table, ..).rev().map(|row| row.value()).sum());
    assert_eq!(sum, total);
}

/// Snapshots of several ages stay open while money moves and versions that none of them sees go: each sees the same rows
/// again and again, and their sum.
pub fn audited_by_long_snapshots<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    let rows: Vec<_> = (0..ACCOUNTS).map(|id| (id, 10)).collect();
    let (database, table) = items(setup, &rows);
    setup.pass(&database, 3);
    let total = 10 * ACCOUNTS as i64;
    let (looks, snapshots) = if cfg!(miri) { (5, 2) } else { (60, 12) };
    let auditing = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (database, table, auditing) = (&database, &table, &auditing);
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut random = Random::stream(2, thread);
                // As long as some client looks, and a number of times at least.
                for round in 0.. {
                    if round > 2000 && auditing.load(Ordering::Relaxed) == 0 {
                        break;
                    }
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    let amount = random.below(12) as i64;
                    if from != to {
                        done(&mut worker, |t| transfer(t, table, from, to, amount));
                    }
                    if round % 4 == 0 {
                        (setup.tick)(database);
                    }
                    if round % 512 == 0 {
                        worker.maintain();
                    }
                }
            });
        }
        for thread in 0..3u64 {
            let (database, table, auditing) = (&database, &table, &auditing);
            scope.spawn(move || {
                let _leaving = Leaving(auditing);
                let mut worker = database.worker().unwrap();
                // One snapshot for the whole time, or one after the other, longer and shorter ones.
                for round in 0..if thread == 0 { 1 } else { snapshots } {
                    let mut client = Client::begin(&mut worker, Mode::Snapshot);
                    let mut look = || client.step(|t: &mut Tx<'_, P>| t.scan(table, ..).rows()).unwrap();
                    let first: Vec<Item> = look();
                    assert_eq!(first.iter().map(|row| row.value).sum::<i64>(), total, "money was made or lost");
                    let looks = if thread == 0 { looks * snapshots } else { looks * (1 + round * thread % 5) / 3 };
                    for _ in 0..looks {
                        assert_eq!(look(), first, "a snapshot changed");
                        std::thread::yield_now();
                    }
                    assert!(client.commit());
                }
            });
        }
    });
    let mut worker = database.worker().unwrap();
    let sum: i64 = done(&mut worker, |t| t.scan(&table, ..).map(|row| row.value()).sum());
    assert_eq!(sum, total);
}

/// Counts a thread out, however it ends.
struct Leaving<'c>(&'c AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Transfers, closings and openings of accounts beside an auditor that scans.
pub fn bank<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    run_bank(setup, |worker, table| done(worker, |t| t.scan(table, ..).map(|row| row.value()).sum()));
}

/// The same with the auditor on snapshots.
pub fn audited_by_snapshots<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    run_bank(setup, |worker, table| snapshot(worker, |t| t.scan(table, ..).map(|row| row.value()).sum()));
}

/// Three threads count in the same two rows, one in the other order.
pub fn counters<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const ROUNDS: i64 = 1500;
    let (database, table) = items(setup, &[(0, 0), (1, 0)]);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (database, table) = (&database, &table);
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                for _ in 0..ROUNDS {
                    done(&mut worker, |t| {
                        for id in [thread % 2, 1 - thread % 2] {
                            t.update(table, id, |row| row.set_value(row.value() + 1))?;
                        }
                        Ok(())
                    });
                }
            });
        }
    });
    let mut worker = database.worker().unwrap();
    let end = done(&mut worker, |t| Ok((value(t, &table, 0)?, value(t, &table, 1)?)));
    assert_eq!(end, (Some(3 * ROUNDS), Some(3 * ROUNDS)));
    assert_eq!(database.statistics().commits as i64, 3 * ROUNDS + 2);
}

/// A change of a random kind to a random person. The answer is whether the unique values allowed it.
fn meddle<T: Transaction>(
    t: &mut T,
    table: &polychron_engine::Table<Person>,
    random: &mut Random,
) -> Result<(), Error> {
    let (id, team, code) = (random.below(16), random.below(4) as u16, random.below(24) as u32);
    let text = "m".repeat(random.below(5) as usize * 60);
    match random.below(6) {
        0 => t.delete(table, id).map(drop),
        1 => t.try_insert(table, &Person { text, ..person(id, team, code) }).map(drop::<Insertion>),
        2 => t.update(table, id, |row| row.set_team(team)).map(drop),
        3 => t.update(table, id, |row| row.set_text(&text).unwrap_or_default()).map(drop),
        4 => t.update(table, id, |row| row.set_code(Some(code))).map(drop),
        _ => {
            let rows: Vec<u64> = t.scan_by(table, Person::BY_TEAM, team).map(|row| row.id()).collect()?;
            rows.into_iter().try_for_each(|id| t.update(table, id, |row| row.set_number(row.number() + 1)).map(drop))
        }
    }
}

/// All rows, and what the secondary indexes say of them.
type Entries = (Vec<Person>, Vec<(u16, u64)>, Vec<Option<u32>>);

fn agree<P: Protocol<Worker: Interactive>>(
    t: &mut Tx<'_, P>,
    table: &polychron_engine::Table<Person>,
) -> Result<Entries, Error> {
    Ok((
        t.scan(table, ..).rows()?,
        t.scan_range_by::<_, _, u16>(table, Person::BY_TEAM, ..).map(|row| (row.team(), row.id())).collect()?,
        t.scan_range_by::<_, _, Option<u32>>(table, Person::BY_CODE, ..).map(|row| row.code()).collect()?,
    ))
}

fn check_agreement((rows, teams, codes): Entries) {
    let mut expected: Vec<_> = rows.iter().map(|row| (row.team, row.id)).collect();
    expected.sort_unstable();
    assert_eq!(teams, expected, "the entries by team are not those of the rows");
    let mut expected: Vec<_> = rows.iter().map(|row| row.code).collect();
    expected.sort_unstable();
    assert_eq!(codes, expected, "the entries by code are not those of the rows");
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "a code was given twice");
}

/// All kinds of changes of few rows with secondary indexes; at any time the entries are those of the rows.
pub fn secondaries_agree<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[]);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (database, table) = (&database, &table);
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut random = Random::stream(2, thread);
                for round in 0..2500 {
                    let start = random.clone();
                    // A unique value that is taken fails the transaction, which is an answer like any other.
                    let _ = run(&mut worker, |t| {
                        random = start.clone();
                        meddle(t, table, &mut random)?;
                        meddle(t, table, &mut random)
                    });
                    if round % 32 == 0 {
                        (setup.tick)(database);
                        worker.maintain();
                    }
                }
            });
        }
        let mut worker = database.worker().unwrap();
        for _ in 0..60 {
            check_agreement(done(&mut worker, |t| agree::<P>(t, &table)));
            check_agreement(snapshot(&mut worker, |t| agree::<P>(t, &table)));
        }
    });
    let mut worker = database.worker().unwrap();
    check_agreement(done(&mut worker, |t| agree::<P>(t, &table)));
}

/// One key is inserted by any client that finds it absent and deleted by any client that finds it: insertions and deletions take turns.
pub fn queue_of_one_key<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[]);
    let balances: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut worker = database.worker().unwrap();
                    let mut balance = 0;
                    for round in 0..1200 {
                        balance += done(&mut worker, |t| {
                            if t.delete(&table, 1)? {
                                return Ok(-1);
                            }
                            t.insert(&table, &Item { id: 1, value: round })?;
                            Ok(1)
                        });
                        if round % 32 == 0 {
                            (setup.tick)(&database);
                            worker.maintain();
                        }
                    }
                    balance
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread ends well")).collect()
    });
    let mut worker = database.worker().unwrap();
    let left = done(&mut worker, |t| t.scan(&table, ..).count());
    assert_eq!(balances.iter().sum::<i64>(), left as i64);
}
