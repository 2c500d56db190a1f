//! Savepoints: part of a transaction is undone and the rest goes on.

use polychron_engine::{Interactive, Operations, Protocol, Savepoint, Stop, Transaction};

use crate::Setup;
use crate::rows::{Item, Person, person, set, value};
use crate::setup::{all, done, items, persons};

/// Insertions, updates and deletions behind a savepoint are undone; what came before stays.
pub fn undo_writes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20), (3, 30)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        set(t, &table, 1, 11)?;
        t.insert(&table, &Item { id: 4, value: 40 })?;
        let savepoint = t.savepoint();
        set(t, &table, 1, 12)?;
        set(t, &table, 4, 44)?;
        t.delete(&table, 2)?;
        t.insert(&table, &Item { id: 5, value: 50 })?;
        t.upsert(&table, &Item { id: 3, value: 33 })?;
        t.roll_back_to(savepoint)?;
        let values: Vec<_> = t.scan(&table, ..).map(|row| (row.id(), row.value())).collect()?;
        assert_eq!(values, [(1, 11), (2, 20), (3, 30), (4, 40)]);
        t.insert(&table, &Item { id: 5, value: 55 })?;
        Ok(())
    });
    let values = done(&mut worker, |t| t.scan(&table, ..).map(|row| row.value()).collect::<Vec<_>>());
    assert_eq!(values, [11, 20, 30, 40, 55]);
}

/// Savepoints nest; returning to an outer one makes inner ones void, and one can be returned to again and again.
pub fn nest<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let mut savepoints: Vec<Savepoint> = Vec::new();
        for level in 1..=20 {
            savepoints.push(t.savepoint());
            set(t, &table, 1, level)?;
            t.insert(&table, &Item { id: 100 + level as u64, value: level })?;
        }
        for level in (10..20).rev() {
            t.roll_back_to(savepoints[level])?;
            assert_eq!(value(t, &table, 1)?, Some(level as i64));
            assert_eq!(t.scan(&table, 100..).count()?, level as u64);
        }
        for _ in 0..3 {
            set(t, &table, 1, 99)?;
            t.delete(&table, 101)?;
            t.roll_back_to(savepoints[5])?;
            assert_eq!(value(t, &table, 1)?, Some(5));
            assert_eq!(value(t, &table, 101)?, Some(1));
        }
        t.roll_back_to(savepoints[5])
    });
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), 6);
}

/// A savepoint that another one's roll-back made void undoes nothing, and nothing breaks.
pub fn void_ones_undo_nothing<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let first = t.savepoint();
        set(t, &table, 1, 1)?;
        (2..20).try_for_each(|id| t.insert(&table, &Item { id, value: 0 }))?;
        let void = t.savepoint();
        t.roll_back_to(first)?;
        t.roll_back_to(void)?;
        t.roll_back_to(Savepoint { position: usize::MAX })?;
        assert_eq!(value(t, &table, 1)?, Some(0));
        set(t, &table, 1, 2)
    });
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 2 }]);
}

/// Secondary entries come back too.
pub fn undo_entries<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let before = [person(1, 1, 1), person(2, 2, 2)];
    let (database, table) = persons(setup, &before);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let savepoint = t.savepoint();
        for round in 0..3 {
            t.update(&table, 1, |row| row.set_team(7 + round))?;
            t.update(&table, 1, |row| row.set_text(&"s".repeat(500)).unwrap())?;
            t.delete(&table, 2)?;
            t.insert(&table, &person(3, 7, 2))?;
            t.update(&table, 1, |row| row.set_code(Some(50)))?;
            t.insert(&table, &person(2, 7, 1))?;
            t.roll_back_to(savepoint)?;
            assert_eq!(t.scan(&table, ..).rows()?, before);
            for (team, count) in [(1, 1), (2, 1), (7 + round, 0)] {
                assert_eq!(t.scan_by(&table, Person::BY_TEAM, team).count()?, count);
            }
            for (code, count) in [(1, 1), (2, 1), (50, 0)] {
                assert_eq!(t.scan_by(&table, Person::BY_CODE, Some(code)).count()?, count);
            }
        }
        Ok::<_, Stop>(())
    });
    assert_eq!(all(&mut worker, &table), before);
}

/// A transaction that undid all its writes commits, and later ones are not disturbed by what it left.
pub fn undo_everything<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    for _ in 0..50 {
        done(&mut worker, |t| {
            let savepoint = t.savepoint();
            for id in 1..20 {
                t.upsert(&table, &Item { id, value: 1 })?;
            }
            t.roll_back_to(savepoint)
        });
    }
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }]);
    done(&mut worker, |t| t.insert(&table, &Item { id: 2, value: 20 }));
    assert_eq!(all(&mut worker, &table).len(), 2);
}
