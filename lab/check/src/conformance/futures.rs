//! Futures: the same procedures on every protocol, whether it leaves futures open or resolves them at once.
//!
//! A condition is an observation of its truth, and of nothing else: what the serial order must give is the answer.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::futures::FutureError;
use polychron_engine::{
    Commit, Futures, Interactive, Isolation, LazyFutures, Mode, Operations, Protocol, Table, Transaction,
};
use polychron_sync::thread;

use super::differential::{apply, find_anomaly_of_futures};
use crate::Setup;
use crate::model::{Model, Operation};
use crate::rows::{Item, person, value};
use crate::savepoints::Savepoints;
use crate::setup::{all, begin, done, items, persons, run};

/// Transactions one after the other: every answer and every end is the model's.
pub fn one_by_one<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for seed in 0..8 {
        let mut random = Random::stream(41, seed);
        let rows: Vec<_> = (0..3).map(|id| person(id, 1, id as u32)).collect();
        let (database, table) = persons(setup, &rows);
        let mut worker = database.worker().unwrap();
        let (mut model, mut savepoints) = (Model::of(rows), Savepoints::default());
        for round in 0..scaled(100, 10) {
            let mut client = begin(&mut worker);
            let mut trial = model.clone();
            savepoints.ended();
            for _ in 0..random.range_inclusive(1, 10) {
                let mut operation = Operation::draw_of_futures(&mut random, 3);
                // A wrong assumption would make it conflict.
                if let Operation::Ask { assumed, .. } = &mut operation {
                    *assumed = None;
                }
                let expected = trial.apply(&operation);
                let answer = client.step(|t| apply(t, &table, &operation, &mut savepoints));
                assert_eq!(answer, Some(expected), "seed {seed}, round {round}: {operation:?}");
            }
            if random.below(4) == 0 {
                client.roll_back();
            } else {
                assert!(client.commit(), "nobody was there to conflict with");
                model = trial.committed();
            }
            assert_eq!(all(&mut worker, &table), model.rows(), "seed {seed}, round {round}");
        }
    }
}

/// Three transactions at a time, step by step in random turns: those that commit have a serial order.
pub fn interleaved<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation != Isolation::Serializable {
        return;
    }
    for seed in 0..6 {
        if let Some(story) = find_anomaly_of_futures(setup, seed, scaled(400, 20)) {
            panic!("{story}");
        }
    }
}

fn add<T: Transaction>(t: &mut T, items: &Table<Item>, id: u64, more: i64) -> Result<(), Error> {
    let value = t.future(items, id, Item::VALUE)?;
    t.set_future(items, id, Item::VALUE, value + more)
}

/// Threads add to a few rows, unless one would fall below zero or come before another: no update is lost, and no condition
/// is broken.
pub fn counters<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const THREADS: u64 = 4;
    let rounds = scaled(300, 20) as u64;
    let (database, table) = items(setup, &[(0, 0), (1, 20), (2, 10)]);
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let mut worker = database.worker().unwrap();
            thread::spawn(move || {
                let mut random = Random::stream(42, number);
                for _ in 0..rounds {
                    let less = random.range_inclusive(1, 4) as i64;
                    let choice = random.below(3);
                    done(&mut worker, |t| {
                        add(t, &table, 0, 1)?;
                        let (one, two) = (t.future(&table, 1, Item::VALUE)?, t.future(&table, 2, Item::VALUE)?);
                        // Only over both: what one thread takes from the one, another may add to the other.
                        match (choice, t.is_true(one.at_least(two + less))?) {
                            (0, true) => add(t, &table, 1, -less),
                            (1, true) => add(t, &table, 2, less),
                            (2, _) => add(t, &table, 1, less),
                            _ => Ok(()),
                        }
                    });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut worker = database.worker().unwrap();
    let values = done(&mut worker, |t| (0..3).map(|id| value(t, &table, id)).collect::<Result<Vec<_>, _>>());
    let [Some(counter), Some(one), Some(two)] = values[..] else { panic!("{values:?}") };
    assert_eq!(counter as u64, THREADS * rounds);
    if setup.isolation == Isolation::Serializable {
        assert!(one >= two, "{one} came before {two}");
    }
}

/// §3.3.4: a condition over two rows, each of which another transaction changes.
pub fn conditions_over_two_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation != Isolation::Serializable {
        return;
    }
    for (id, changed) in [(1, 1), (2, 2), (1, 0), (2, 7)] {
        let (database, table) = items(setup, &[(1, 2), (2, 1), (3, 0)]);
        let [mut first, mut second] = [database.worker().unwrap(), database.worker().unwrap()];
        let mut asks = begin(&mut first);
        let ask = |t: &mut <P::Worker as Interactive>::Transaction<'_>| {
            let (x, y) = (t.future(&table, 1, Item::VALUE)?, t.future(&table, 2, Item::VALUE)?);
            t.is_true(x.greater_than(y))
        };
        assert_eq!(asks.step(ask), Some(true));
        let mut writes = begin(&mut second);
        writes.step(|t| t.set_future(&table, id, Item::VALUE, changed));
        let wrote = writes.commit();
        // A client that is told that it is so, twice, may rely on it, and any client that changed that comes later.
        let again = asks.step(ask);
        asks.step(|t| t.set_future(&table, 3, Item::VALUE, 1));
        let committed = asks.commit();
        assert!(!(wrote && committed) || again == Some(true), "{id} became {changed}: {again:?}");
        let mut worker = database.worker().unwrap();
        let written = done(&mut worker, |t| value(t, &table, id)) == Some(changed);
        assert_eq!(written, wrote);
    }
}

/// Runs a body behind another write, and answers why it failed.
fn fails_with<W: Interactive + 'static>(
    worker: &mut W,
    table: &Table<Item>,
    mut body: impl FnMut(&mut W::Transaction<'_>) -> Result<(), Error>,
) -> FutureError {
    let outcome = run(worker, |t| {
        t.set_future(table, 1, Item::VALUE, 7)?;
        body(t)
    });
    let Err(Error::NoValue(failed)) = outcome else { panic!("{outcome:?}") };
    failed.why
}

/// What has no value undoes the transaction, now or at its commit, with an error that names the expression.
pub fn errors<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 5), (2, 0)]);
    let mut worker = database.worker().unwrap();
    let quotient = fails_with(&mut worker, &table, |t| {
        let (left, right) = (t.future(&table, 1, Item::VALUE)?, t.future(&table, 2, Item::VALUE)?);
        t.resolve(left / right).map(drop)
    });
    assert_eq!(quotient, FutureError::DivisionByZero { left: 7 });
    assert_eq!(quotient.to_string(), "7 ÷ 0 has no value");
    let product = fails_with(&mut worker, &table, |t| {
        let left = t.future(&table, 1, Item::VALUE)?;
        t.set_future(&table, 1, Item::VALUE, left * i64::MAX)
    });
    assert_eq!(product.to_string(), format!("7 × {} does not fit in i64", i64::MAX));
    assert!(matches!(
        fails_with(&mut worker, &table, |t| t.future(&table, 9, Item::VALUE).map(drop)),
        FutureError::NoRow(_)
    ));
    assert!(matches!(
        fails_with(&mut worker, &table, |t| t.set_future(&table, 9, Item::VALUE, 1)),
        FutureError::NoRow(_)
    ));
    let values = done(&mut worker, |t| Ok((value(t, &table, 1)?, value(t, &table, 2)?)));
    assert_eq!(values, (Some(5), Some(0)), "nothing of them remains");
}

/// A chain of sums as long as one likes is resolved, at once or in the end.
pub fn long_chains<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let mut worker = database.worker().unwrap();
    let length = scaled(20_000, 500) as i64;
    for now in [true, false] {
        done(&mut worker, |t| {
            let mut sum = t.future(&table, 1, Item::VALUE)?;
            for _ in 0..length {
                sum = sum + 1;
            }
            if now {
                t.resolve(sum)?;
            }
            t.set_future(&table, 1, Item::VALUE, sum)
        });
    }
    assert_eq!(done(&mut worker, |t| value(t, &table, 1)), Some(2 * length));
}

/// A wrong assumption costs an attempt and nothing else.
pub fn assumptions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 5)]);
    let database = Arc::clone(&database);
    let mut worker = database.worker().unwrap();
    for (assumed, expected) in [(true, 4), (false, 3)] {
        done(&mut worker, |t| {
            let value = t.future(&table, 1, Item::VALUE)?;
            let more = if t.is_true_assuming(value.at_least(1), assumed)? { -1 } else { 100 };
            add(t, &table, 1, more)
        });
        assert_eq!(done(&mut worker, |t| value(t, &table, 1)), Some(expected));
    }
    // A client that gives up because of a wrong assumption is asked again.
    let outcome = run(&mut worker, |t| {
        let value = t.future(&table, 1, Item::VALUE)?;
        if t.is_true_assuming(value.at_least(1000), true)? { Err(Error::RolledBack) } else { Ok(()) }
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    // The same of a client that begins again by itself, and of a row that is not there.
    let fails = |_: &u32| {
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        let observed = transaction
            .future(&table, 9, Item::VALUE)
            .and_then(|value| transaction.is_true_assuming(value.at_least(1), true));
        let stands = transaction.roll_back();
        assert!(observed.is_err() || !stands, "nothing was there to be compared");
        observed.is_err()
    };
    assert!((0..2).find(fails).is_some(), "the assumption is made again and again");
}

/// Ordinary operations and futures of one row see each other, in their order.
pub fn beside_ordinary_operations<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 5), (2, 0), (3, 0)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let before = t.future(&table, 1, Item::VALUE)?;
        t.update(&table, 1, |row| row.set_value(50))?;
        let after = t.future(&table, 1, Item::VALUE)?;
        t.set_future(&table, 2, Item::VALUE, before)?;
        t.set_future(&table, 3, Item::VALUE, after)?;
        add(t, &table, 1, 1)?;
        assert_eq!(value(t, &table, 1)?, Some(51));
        let sum: i64 = t.scan(&table, ..).map(|row| row.value()).sum()?;
        assert_eq!(sum, 51 + 5 + 50);
        add(t, &table, 1, 1)?;
        let savepoint = t.savepoint();
        add(t, &table, 1, 100)?;
        t.roll_back_to(savepoint)?;
        t.set_future(&table, 3, Item::VALUE, 0)?;
        assert!(t.delete(&table, 3)?);
        Ok(())
    });
    let values = done(&mut worker, |t| Ok((value(t, &table, 1)?, value(t, &table, 2)?, value(t, &table, 3)?)));
    assert_eq!(values, (Some(52), Some(5), None));
    let foreign = run(&mut worker, |t| t.resolve_future(polychron_engine::futures::Operand::Pending(9)));
    assert!(matches!(foreign, Err(Error::NoValue(_))), "{foreign:?}");
    // A failure that the procedure passes over at a savepoint is not forgotten.
    let outcome = run(&mut worker, |t| {
        t.set_future(&table, 9, Item::VALUE, 1)?;
        let savepoint = t.savepoint();
        t.roll_back_to(savepoint)
    });
    assert!(matches!(outcome, Err(Error::NoValue(_))), "{outcome:?}");
}

/// What was left open behind a savepoint is undone with it, also when it could not be flushed meanwhile. That failure is reported once.
pub fn failures_behind_savepoints<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    for way in 0..5 {
        done(&mut worker, |t| {
            let first = t.savepoint();
            t.set_future(&table, 1, Item::VALUE, 11)?;
            // At once where nothing is left open, and later elsewhere.
            let missing = t.set_future(&table, 9, Item::VALUE, 99);
            t.set_future(&table, 2, Item::VALUE, 21)?;
            let second = match way {
                0 | 4 => Some(t.savepoint()),
                1 => t.get(&table, 9).map(|_| None).unwrap_or_default(),
                2 => t.scan(&table, ..).count().map(|_| None).unwrap_or_default(),
                _ => None,
            };
            // Nothing was done since.
            if let (Some(second), 0) = (second, way) {
                t.roll_back_to(second)?;
            }
            // Where it was not told before.
            let was_told = missing.is_err() || way == 1 || way == 2;
            assert_eq!(t.roll_back_to(first).is_err(), !was_told, "way {way}");
            t.roll_back_to(first)?;
            assert_eq!((value(t, &table, 1)?, value(t, &table, 2)?), (Some(10), Some(20)));
            Ok(())
        });
        assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }, Item { id: 2, value: 20 }], "way {way}");
    }
}
