//! Memory comes back: after any number of rounds over a fixed set of keys as much is in use as after the first ones.

use std::sync::Arc;

use polychron_base::key::Key8;
use polychron_engine::{
    Access, Declare, Error, Interactive, Mode, Operations, Procedure, Protocol, Row, Table, Transaction, Worker,
};

use crate::Setup;
use crate::client::Client;
use crate::rows::{Item, Person, person};
use crate::setup::{Tx, create, done, items, persons};

/// Bytes in use when everything that can be freed has been.
pub(super) fn used<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    database: &Arc<P>,
    workers: &mut [P::Worker],
) -> usize {
    for _ in 0..6 {
        setup.pass(database, 2);
        workers.iter_mut().for_each(Worker::maintain);
    }
    database.statistics().memory.map_or(0, |memory| memory.used_bytes)
}

/// How many sparse leaves an index has depends on when tombstones left it, thus on the clock: a few more or less are no
/// leak. What 400 rounds would leak, were it one small block a round, is several times as much.
pub(super) const SLACK: usize = 8 * 384;

/// Runs rounds, and asserts that what is in use after many is what was in use after a few.
fn stays<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    database: &Arc<P>,
    mut round: impl FnMut(u64, &mut Tx<'_, P>) -> Result<(), Error>,
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
    let most = before + SLACK + setup.kept_slots_bytes;
    assert!(after <= most, "{before} bytes were in use, and now {after}");
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
        let savepoint = t.savepoint();
        for id in 0..20 {
            t.insert(&table, &person(round * 100 + id, 1, id as u32))?;
            t.update(&table, round * 100 + id, |row| row.set_text(&"r".repeat(300)).unwrap())?;
        }
        t.roll_back_to(savepoint)
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

/// Inserts persons, whose keys it names.
struct Fill(Table<Person>);

impl Procedure for Fill {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        (0..5).try_for_each(|id| t.insert(&self.0, &person(id, id as u16, id as u32)))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        (0..5).for_each(|id| declaration.key(self.0.id(), Key8::new(id, 8), Access::Insert));
    }
}

/// Tables and indexes that come and go leave nothing behind each time, not even a little.
pub fn many_dropped_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let database = setup.open();
    let mut workers = [database.worker().unwrap()];
    let mut measured = Vec::new();
    for _ in 0..4 {
        for _ in 0..12 {
            let table: Table<Person> = create(&database);
            let by_number = polychron_engine::IndexDefinition::new("by_number", [3]);
            let index = database.create_index(table.id(), by_number).unwrap();
            workers[0].execute(&mut Fill(table)).unwrap();
            database.drop_index(table.id(), index).unwrap();
            database.drop_table(table.id()).unwrap();
        }
        measured.push(used(setup, &database, &mut workers));
    }
    assert!(measured[3] <= measured[0] + setup.kept_slots_bytes, "{measured:?}");
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
        worker.maintain();
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

/// What a worker that leaves had not given back is freed by others.
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

/// How much is done behind a long snapshot.
const LONG_ROUNDS: u64 = if cfg!(miri) { 40 } else { 4000 };

/// Snapshots see what they saw; and each leaves the epoch of its last look.
fn look_again<T: polychron_engine::Commit, R: Row + PartialEq>(clients: &mut [(Client<T>, Vec<R>)], table: &Table<R>) {
    for (client, first) in clients {
        let again = client.step(|t| t.scan(table, ..).rows()).unwrap();
        assert!(again == *first, "a snapshot changed");
    }
}

/// Runs rounds behind a snapshot that stays open, another that begins in the middle, and short ones, and asserts that
/// each sees its own state to its end, that what is in use at the end is what was in use after a quarter and what the second one keeps,
/// and that all comes back when they end.
fn stays_behind_snapshots<P: Protocol<Worker: Interactive>, R: Row + PartialEq>(
    setup: &Setup<P>,
    database: &Arc<P>,
    table: &Table<R>,
    mut round: impl FnMut(u64, &mut Tx<'_, P>) -> Result<(), Error>,
) {
    if !setup.measures_memory || !setup.interleaves || setup.snapshots_lock {
        return;
    }
    let mut workers = [database.worker().unwrap()];
    let mut readers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
    let [long, late, short] = &mut readers[..] else { unreachable!("three were made") };
    let mut run = |workers: &mut [P::Worker; 1], number: u64| {
        done(&mut workers[0], |t| round(number, t));
        (setup.tick)(database);
    };
    // One round of each kind, so that what the first use needs is there.
    (0..40).for_each(|number| run(&mut workers, number));
    let before = used(setup, database, &mut workers);
    let mut clients: Vec<(Client<_>, Vec<R>)> = Vec::new();
    let begin = |worker, clients: &mut Vec<(Client<_>, Vec<R>)>| {
        setup.pass(database, 3);
        let mut client = Client::begin(worker, Mode::Snapshot);
        let first = client.step(|t: &mut Tx<'_, P>| t.scan(table, ..).rows()).unwrap();
        clients.push((client, first));
    };
    begin(long, &mut clients);
    let mut waiting = Some(late);
    let (mut quarter, mut three_quarters) = (0, 0);
    for number in 0..LONG_ROUNDS {
        run(&mut workers, number);
        if number % 16 == 0 && setup.maintains_by_clock {
            workers[0].maintain();
        }
        if number % 16 == 0 {
            look_again(&mut clients, table);
        }
        if number % 64 == 0 {
            crate::setup::snapshot(short, |t| t.scan(table, ..).count());
        }
        if number == LONG_ROUNDS / 2 {
            begin(waiting.take().unwrap(), &mut clients);
        }
        // Rows are as long then as before and at the end.
        if number + 1 == LONG_ROUNDS / 4 {
            quarter = used(setup, database, &mut workers);
        }
        if number + 1 == LONG_ROUNDS / 4 * 3 {
            look_again(&mut clients, table);
            three_quarters = used(setup, database, &mut workers);
        }
    }
    // What waits only until the snapshots look again is not to count at the end.
    look_again(&mut clients, table);
    let end = used(setup, database, &mut workers);
    holds_no_more(before, [quarter, three_quarters], end, SLACK + setup.kept_slots_bytes);
    // The first ends, then the second: each gives back what only it saw.
    for (client, _) in clients {
        assert!(client.commit());
        (LONG_ROUNDS..LONG_ROUNDS + 40).for_each(|number| run(&mut workers, number));
    }
    let after = used(setup, database, &mut workers);
    let most = before + SLACK + setup.kept_slots_bytes;
    assert!(after <= most, "{before} bytes were in use, and now {after}");
}

/// Whether what snapshots keep is bounded: bytes in use before them, after one and three quarters of the rounds, and at the end.
///
/// That they keep what they see, [`look_again`] shows. In bytes it may be nothing: an old version that moves into its row's
/// record leaves as much behind as the new one takes, and when it moves depends on the clock.
fn holds_no_more(before: usize, [quarter, three_quarters]: [usize; 2], end: usize, slack: usize) {
    // The second snapshot keeps twice as much as the first at most: that depends on what happens to its rows first.
    let most = quarter + 2 * quarter.saturating_sub(before) + slack;
    assert!(end <= most, "{quarter} bytes were in use after a quarter, and {end} at the end");
    // The rounds behind the two add nothing to what was in use before; what is collected in slices goes up and down.
    let most = quarter.max(three_quarters) + slack;
    assert!(
        end <= most,
        "{quarter} and {three_quarters} bytes were in use after one and three quarters, and {end} at the end"
    );
}

/// Behind a long snapshot one version of a row stays, however often it is updated.
pub fn updates_behind_a_snapshot<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..50).map(|id| (id, 0)).collect();
    let (database, table) = items(setup, &rows);
    stays_behind_snapshots(setup, &database, &table, |round, t| {
        (0..50).try_for_each(|id| t.update(&table, id, |row| row.set_value(round as i64)).map(drop))
    });
}

/// Keys that came after a long snapshot, and went, leave the index; those that it sees stay.
pub fn deletions_behind_a_snapshot<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[]);
    stays_behind_snapshots(setup, &database, &table, |round, t| {
        (0..20).try_for_each(|id| {
            t.delete(&table, round.saturating_sub(3) * 100 + id)?;
            t.upsert(&table, &Item { id: round * 100 + id, value: 1 })?;
            t.update(&table, round.saturating_sub(1) * 100 + id, |row| row.set_value(2)).map(drop)
        })
    });
}

/// Rows that outgrow their records, and change their secondary entries.
pub fn growth_behind_a_snapshot<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &(0..10).map(|id| person(id, 1, id as u32)).collect::<Vec<_>>());
    stays_behind_snapshots(setup, &database, &table, |round, t| {
        // The rows are as long at each measurement.
        let length = if round % 40 == 39 { 900 } else { (round as usize * 31) % 900 };
        (0..10).try_for_each(|id| {
            if (round + id) % 3 == 0 {
                t.delete(&table, id)?;
                t.insert(&table, &person(id, (round % 5) as u16, id as u32))?;
            }
            t.update(&table, id, |row| {
                row.set_text(&"g".repeat(length)).unwrap();
                row.set_code(Some(id as u32 + (round % 40) as u32 * 100));
            })
            .map(drop)
        })
    });
}
