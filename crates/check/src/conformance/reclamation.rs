//! Memory comes back: after any number of rounds over a fixed set of keys as much is in use as after the first ones.

use std::sync::Arc;

use polychron_engine::{Interactive, Operations, Protocol, Stop, Table, Worker};

use crate::Setup;
use crate::rows::{Item, Person, person};
use crate::setup::{Tx, create, done, items, persons};

/// Bytes in use when everything that can be given back has been.
fn used<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, database: &Arc<P>, workers: &mut [P::Worker]) -> usize {
    for _ in 0..6 {
        setup.pass(database, 2);
        workers.iter_mut().for_each(Worker::tidy_up);
    }
    database.statistics().memory.map_or(0, |memory| memory.used_bytes)
}

/// How many sparse leaves an index has depends on when tombstones left it, thus on the clock: a few more or less are no
/// leak. What 400 rounds would leak, were it one small block a round, is several times as much.
const SLACK: usize = 8 * 384;

/// Runs rounds, and asserts that what is in use after many is what was in use after a few.
fn stays<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    database: &Arc<P>,
    mut round: impl FnMut(u64, &mut Tx<'_, P>) -> Result<(), Stop>,
) {
    if !setup.measures_memory {
        return;
    }
    let mut workers = [database.worker().unwrap()];
    let mut run = |workers: &mut [P::Worker; 1], rounds: std::ops::Range<u64>| {
        for number in rounds {
            done(&mut workers[0], |t| round(number, t));
            if number % 7 == 0 {
                (setup.tick)(database);
            }
        }
    };
    run(&mut workers, 0..40);
    let before = used(setup, database, &mut workers);
    run(&mut workers, 40..440);
    let after = used(setup, database, &mut workers);
    assert!(after <= before + SLACK, "{before} bytes were in use, and now {after}");
    let statistics = database.statistics().memory.unwrap();
    assert!(statistics.retired_bytes <= 4096, "{} bytes are still retired", statistics.retired_bytes);
}

/// Updates in place leave versions, and versions go.
pub fn updates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..100).map(|id| (id, 0)).collect();
    let (database, table) = items(setup, &rows);
    stays(setup, &database, |round, t| {
        (0..100).try_for_each(|id| t.update(&table, id, |row| row.set_value(round as i64)).map(drop))
    });
}

/// Rows that outgrow their records leave them behind, and those go.
pub fn growing_updates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &(0..30).map(|id| person(id, 1, id as u32)).collect::<Vec<_>>());
    stays(setup, &database, |round, t| {
        // Every row is as long in round 40 as in the last one, so that the two measurements can be compared.
        let length = if round % 40 == 39 { 900 } else { (round as usize * 31) % 900 };
        (0..30).try_for_each(|id| {
            t.delete(&table, id)?;
            t.insert(&table, &person(id, 1, id as u32))?;
            t.update(&table, id, |row| row.set_text(&"g".repeat(length)).unwrap()).map(drop)
        })
    });
}

/// Deleted keys leave the index, and come back.
pub fn deletions_and_insertions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[]);
    stays(setup, &database, |round, t| {
        let base = round % 2 * 1000;
        for id in 0..100 {
            t.delete(&table, 1000 - base + id)?;
            t.upsert(&table, &Item { id: base + id, value: 1 })?;
        }
        Ok(())
    });
}

/// Entries of secondary indexes go with the values they stood for.
pub fn secondary_entries<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &(0..30).map(|id| person(id, 1, id as u32)).collect::<Vec<_>>());
    stays(setup, &database, |round, t| {
        for id in 0..30 {
            t.update(&table, id, |row| {
                row.set_team(((round + 1) % 40) as u16);
                row.set_code(Some(id as u32 + ((round + 1) % 40) as u32 * 100));
            })?;
        }
        Ok(())
    });
}

/// Insertions that are undone leave nothing.
pub fn rolled_back_insertions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[]);
    stays(setup, &database, |round, t| {
        let savepoint = polychron_engine::Transaction::savepoint(t);
        for id in 0..20 {
            t.insert(&table, &person(round * 100 + id, 1, id as u32))?;
            t.update(&table, round * 100 + id, |row| row.set_text(&"r".repeat(300)).unwrap())?;
        }
        polychron_engine::Transaction::roll_back_to(t, savepoint)
    });
}

/// A dropped table gives everything back.
pub fn dropped_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let database = setup.open();
    let mut workers = [database.worker().unwrap()];
    let mut measured = Vec::new();
    for _ in 0..6 {
        let table: Table<Person> = create(&database);
        done(&mut workers[0], |t| {
            (0..500).try_for_each(|id| t.insert(&table, &person(id, (id % 7) as u16, id as u32)))
        });
        done(&mut workers[0], |t| (0..100).try_for_each(|id| t.delete(&table, id).map(drop)));
        database.drop_table(table.id()).unwrap();
        measured.push(used(setup, &database, &mut workers));
    }
    assert!(measured[5] <= measured[1], "{measured:?}");
}

/// A dropped table, and a dropped index, give everything back though workers that used them are idle ever after.
pub fn dropped_tables_of_idle_workers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let database = setup.open();
    let kept = create::<P, Item>(&database);
    let mut idle = Vec::new();
    let mut measured = Vec::new();
    for _ in 0..6 {
        let table: Table<Person> = create(&database);
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| (0..500).try_for_each(|id| t.insert(&table, &person(id, (id % 7) as u16, id as u32))));
        let by_number = polychron_engine::IndexDefinition::new("by_number", [3]);
        let index = database.create_index(table.id(), by_number).unwrap();
        done(&mut worker, |t| t.scan_by(&table, Person::BY_TEAM, 1).count());
        worker.tidy_up();
        idle.push(worker);
        let before = used(setup, &database, &mut []);
        database.drop_index(table.id(), index).unwrap();
        let between = used(setup, &database, &mut []);
        assert!(between < before, "{before} bytes were in use with the index, and {between} without");
        database.drop_table(table.id()).unwrap();
        measured.push(used(setup, &database, &mut []));
    }
    // What a worker keeps for itself is there once for each.
    let row = 500 * 64;
    assert!(measured[5] < measured[0] + row, "{measured:?}");
    done(&mut idle[0], |t| t.insert(&kept, &Item { id: 1, value: 1 }));
}

/// What a worker that leaves had not given back is given back by others.
pub fn workers_that_leave<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let (database, table) = items(setup, &[]);
    let mut measured = Vec::new();
    for _ in 0..8 {
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| (0..200).try_for_each(|id| t.upsert(&table, &Item { id, value: 1 })));
        (setup.tick)(&database);
        done(&mut worker, |t| (0..200).try_for_each(|id| t.delete(&table, id).map(drop)));
        drop(worker);
        let mut others = [database.worker().unwrap()];
        measured.push(used(setup, &database, &mut others));
    }
    assert!(measured[7] <= measured[1], "{measured:?}");
}
