//! Futures across savepoints: what was open when one was set is as it was after a return to it, whatever was done since.

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::{
    Becomes, Commit, Futures, Interactive, LazyFutures, Mode, Operations, Protocol, Savepoint, Table, Transaction,
};

use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::{all, done, items};

fn add<T: Transaction>(t: &mut T, table: &Table<Item>, id: u64, more: i64) -> Result<(), Error> {
    let value = t.future(table, id, Item::VALUE)?;
    t.set_future(table, id, Item::VALUE, value + more)
}

fn values<P: Protocol<Worker: Interactive>>(worker: &mut P::Worker, table: &Table<Item>) -> Vec<(u64, i64)> {
    all(worker, table).iter().map(|row| (row.id, row.value)).collect()
}

/// Another transaction adds to a row between a savepoint and the commit: where futures stay open, neither conflicts.
pub fn stay_open<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    for returns in [false, true] {
        let mut waits = left.begin(Mode::ReadWrite).unwrap();
        if !waits.leaves_futures_open() {
            return;
        }
        add(&mut waits, &table, 1, 1).unwrap();
        let first = waits.savepoint();
        add(&mut waits, &table, 2, 1).unwrap();
        let _ = waits.savepoint();
        if returns {
            waits.roll_back_to(first).unwrap();
        }
        done(&mut right, |t| add(t, &table, 1, 100));
        waits.commit().expect("nobody has learnt what row 1 has");
    }
    assert_eq!(values::<P>(&mut left, &table), [(1, 212), (2, 21)]);
}

/// What was open at a savepoint is open again when it has been flushed since: writes, writes that took their place, and insertions.
pub fn come_back<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        add(t, &table, 1, 1)?;
        let number = t.future(&table, 2, Item::VALUE)?;
        t.insert_future(&table, &Item { id: 0, value: 3 }, [Item::ID.becomes(number.convert::<u64>())])?;
        let first = t.savepoint();
        add(t, &table, 1, 100)?;
        let second = t.savepoint();
        t.set_future(&table, 2, Item::VALUE, 7)?;
        // It flushes all.
        assert_eq!(t.scan(&table, ..).map(|row| row.value()).sum()?, 111 + 7 + 3);
        t.set_future(&table, 2, Item::VALUE, 8)?;
        t.roll_back_to(second)?;
        assert_eq!((value(t, &table, 1)?, value(t, &table, 2)?), (Some(111), Some(20)));
        t.update(&table, 1, |row| row.set_value(5))?;
        t.roll_back_to(first)?;
        let one = t.future(&table, 1, Item::VALUE)?;
        assert!(t.is_true(one.equal_to(11))?);
        assert_eq!(value(t, &table, 20)?, Some(3));
        t.roll_back_to(first)?;
        add(t, &table, 1, 1000)
    });
    assert_eq!(values::<P>(&mut worker, &table), [(1, 1011), (2, 20), (20, 3)]);
}

/// A return undoes what was made since the savepoint, and nothing else; it has no part in what was open.
pub fn are_undone<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20), (3, 30)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        add(t, &table, 1, 1)?;
        let savepoint = t.savepoint();
        add(t, &table, 1, 1)?;
        add(t, &table, 2, 1)?;
        let one = t.future(&table, 1, Item::VALUE)?;
        t.delete(&table, 3)?;
        let number = t.future(&table, 2, Item::VALUE)?;
        t.insert_future(&table, &Item { id: 0, value: 3 }, [Item::ID.becomes(number.convert::<u64>())])?;
        t.roll_back_to(savepoint)?;
        // A future keeps its value, also that of a write that was undone.
        t.set_future(&table, 3, Item::VALUE, one)
    });
    assert_eq!(values::<P>(&mut worker, &table), [(1, 11), (2, 20), (3, 12)]);
}

/// Random returns, among futures, ordinary operations and what flushes them.
pub fn random_returns<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(0, 0), (1, 0), (2, 0)]);
    let mut worker = database.worker().unwrap();
    let mut random = Random::stream(46, 0);
    for round in 0..scaled(400, 30) {
        let steps: Vec<_> =
            (0..random.range_inclusive(3, 14)).map(|_| (random.below(11), random.below(3), random.below(50))).collect();
        let mut model = Vec::new();
        done(&mut worker, |t| {
            (0..3).try_for_each(|id| t.update(&table, id, |row| row.set_value(0)).map(drop))?;
            model = vec![0; 3];
            let mut savepoints: Vec<(Savepoint, Vec<i64>)> = Vec::new();
            for &(step, id, number) in &steps {
                let at = id as usize;
                match step {
                    0..=2 => {
                        add(t, &table, id, number as i64)?;
                        model[at] += number as i64;
                    }
                    3 => {
                        let from = t.future(&table, number % 3, Item::VALUE)?;
                        t.set_future(&table, id, Item::VALUE, from + 1)?;
                        model[at] = model[(number % 3) as usize] + 1;
                    }
                    4 => {
                        t.update(&table, id, |row| row.set_value(row.value() * 2))?;
                        model[at] *= 2;
                    }
                    5 => assert_eq!(value(t, &table, id)?, Some(model[at]), "round {round}: {steps:?}"),
                    6 => {
                        let future = t.future(&table, id, Item::VALUE)?;
                        assert!(t.is_true(future.equal_to(model[at]))?, "round {round}: {steps:?}");
                    }
                    7 | 8 => savepoints.push((t.savepoint(), model.clone())),
                    _ => {
                        if let Some(number) = (number as usize).checked_rem(savepoints.len()) {
                            savepoints.truncate(number + 1);
                            t.roll_back_to(savepoints[number].0)?;
                            model.clone_from(&savepoints[number].1);
                        }
                    }
                }
            }
            Ok(())
        });
        let there: Vec<_> = values::<P>(&mut worker, &table).into_iter().map(|(_, value)| value).collect();
        assert_eq!(there, model, "round {round}: {steps:?}");
    }
}
