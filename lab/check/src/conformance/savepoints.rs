//! Savepoints: part of a transaction is undone and the rest goes on.

use polychron_base::key::Key8;
use polychron_engine::{
    Access, Declare, Error, Interactive, Operations, Procedure, Protocol, Savepoint, Table, Transaction, Worker,
};
use std::sync::Mutex;

use crate::Setup;
use crate::rows::{Item, Person, person, set, value};
use crate::setup::{all, begin, done, items, persons};

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

/// Returning to a savepoint that is void is refused, and undoes nothing.
fn refuse<T: Transaction>(t: &mut T, void: Savepoint) -> Result<(), Error> {
    match t.roll_back_to(void) {
        Err(Error::VoidSavepoint) => Ok(()),
        Err(Error::Conflict) => Err(Error::Conflict),
        other => panic!("{void:?} is void: {other:?}"),
    }
}

/// Changes of rows and of their entries, in another way each time: a position that was kept from one of them lies amid another one.
fn change<T: Transaction>(t: &mut T, table: &Table<Person>, way: u64) -> Result<(), Error> {
    let (team, code) = (7 + way as u16, 70 + way as u32);
    if way.is_multiple_of(2) {
        t.update(table, 1, |row| row.set_text(&"s".repeat(60 + way as usize)).unwrap())?;
    }
    t.update(table, 1, |row| row.set_team(team))?;
    t.insert(table, &person(10 + way, team, code))?;
    if way.is_multiple_of(3) {
        t.delete(table, 2)?;
    }
    t.update(table, 3, |row| row.set_code(Some(code + 10)))?;
    t.update(table, 3, |row| row.set_number(code.into()))?;
    Ok(())
}

/// The rows of the table, which each index tells as well.
fn by_every_index<T: Transaction>(t: &mut T, table: &Table<Person>) -> Result<Vec<Person>, Error> {
    let rows = t.scan(table, ..).rows()?;
    let mut by_team = t.scan_range_by::<_, _, u16>(table, Person::BY_TEAM, ..).rows()?;
    let mut by_code = t.scan_range_by::<_, _, Option<u32>>(table, Person::BY_CODE, ..).rows()?;
    by_team.sort_by_key(|row| row.id);
    by_code.sort_by_key(|row| row.id);
    assert_eq!((&by_team, &by_code), (&rows, &rows));
    for row in &rows {
        assert_eq!(t.scan_by(table, Person::BY_TEAM, row.team).rows()?.iter().filter(|it| it.id == row.id).count(), 1);
        assert_eq!(t.scan_by(table, Person::BY_CODE, row.code).rows()?, std::slice::from_ref(row));
    }
    Ok(rows)
}

/// Runs transactions that are given void savepoints between any two of their changes; then rows and entries belong together.
fn refuse_everywhere<P: Protocol<Worker: Interactive>>(
    worker: &mut P::Worker,
    table: &Table<Person>,
    void: &[Savepoint],
) {
    for way in 0..6 {
        let rows = done(worker, |t| {
            void.iter().try_for_each(|&void| refuse(t, void))?;
            let savepoint = t.savepoint();
            change(t, table, way + 1)?;
            void.iter().try_for_each(|&void| refuse(t, void))?;
            t.roll_back_to(savepoint)?;
            change(t, table, way)?;
            void.iter().try_for_each(|&void| refuse(t, void))?;
            by_every_index(t, table)
        });
        assert_eq!(done(worker, |t| by_every_index(t, table)), rows);
        done(worker, |t| {
            rows.iter().try_for_each(|row| t.delete(table, row.id).map(drop))?;
            (1..4).try_for_each(|id| t.insert(table, &person(id, id as u16, id as u32)))
        });
    }
}

fn three() -> [Person; 3] {
    [person(1, 1, 1), person(2, 2, 2), person(3, 3, 3)]
}

/// A savepoint behind which its transaction was undone is void, whatever is written after that.
pub fn undone_ones_are_void<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &three());
    let mut worker = database.worker().unwrap();
    for way in 0..6 {
        let rows = done(&mut worker, |t| {
            let first = t.savepoint();
            change(t, &table, way)?;
            let second = t.savepoint();
            change(t, &table, way + 2)?;
            let third = t.savepoint();
            change(t, &table, way + 4)?;
            t.roll_back_to(second)?;
            refuse(t, third)?;
            change(t, &table, way + 3)?;
            refuse(t, third)?;
            t.roll_back_to(first)?;
            [second, third].into_iter().try_for_each(|void| refuse(t, void))?;
            change(t, &table, way + 1)?;
            [third, second].into_iter().try_for_each(|void| refuse(t, void))?;
            let fourth = t.savepoint();
            change(t, &table, way + 5)?;
            t.roll_back_to(fourth)?;
            t.roll_back_to(fourth)?;
            by_every_index(t, &table)
        });
        assert!(rows.iter().any(|row| row.id == 11 + way), "what was written behind a void savepoint stays");
        assert_eq!(done(&mut worker, |t| by_every_index(t, &table)), rows);
        done(&mut worker, |t| {
            rows.iter().try_for_each(|row| t.delete(&table, row.id).map(drop))?;
            three().iter().try_for_each(|row| t.insert(&table, row))
        });
    }
}

/// Savepoints of transactions of the same session that have ended are void, however they ended.
pub fn those_of_earlier_transactions_are_void<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &three());
    let mut worker = database.worker().unwrap();
    let mut void = Vec::new();
    for way in 0..4 {
        let mut client = begin(&mut worker);
        for step in 0..3 {
            void.extend(client.step(|t| {
                let savepoint = t.savepoint();
                t.update(&table, 1, |row| row.set_team(20 + step + way))?;
                Ok(savepoint)
            }));
        }
        match way {
            0 => assert!(client.commit()),
            1 => assert!(client.roll_back()),
            2 => drop(client),
            _ => {
                void.extend(client.step(|t| {
                    t.roll_back_to(void[void.len() - 2])?;
                    Ok(t.savepoint())
                }));
                assert!(client.commit());
            }
        }
    }
    assert_eq!(void.len(), 13, "nobody was there to conflict with");
    refuse_everywhere::<P>(&mut worker, &table, &void);
}

/// Savepoints of other sessions, whose transactions are open or have ended, and of other databases are void.
pub fn those_of_others_are_void<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &three());
    let (elsewhere, _) = items(setup, &[(1, 1)]);
    let mut far = elsewhere.worker().unwrap();
    let mut far_one = begin(&mut far);
    let mut void: Vec<_> = (0..5).filter_map(|_| far_one.step(|t| Ok(t.savepoint()))).collect();
    let mut beside = database.worker().unwrap();
    void.push(done(&mut beside, |t| Ok(t.savepoint())));
    // It is open beside those that are given its savepoint where the protocol can do that.
    let mut open = setup.interleaves.then(|| begin(&mut beside));
    void.extend(open.as_mut().and_then(|open| open.step(|t| Ok(t.savepoint()))));
    let mut worker = database.worker().unwrap();
    refuse_everywhere::<P>(&mut worker, &table, &void);
    // Those who set them have lost nothing.
    if let Some(mut open) = open {
        let own = void[void.len() - 1];
        assert_eq!(open.step(|t| t.roll_back_to(own)), Some(()));
    }
    assert_eq!(far_one.step(|t| t.roll_back_to(void[0])), Some(()));
    assert_eq!(far_one.step(|t| refuse(t, void[4])), Some(()));
    assert!(far_one.commit());
}

/// A procedure that takes what others like it have left behind for its own.
struct Smuggler<'s> {
    table: Table<Person>,
    id: u64,
    left: &'s Mutex<Vec<Savepoint>>,
}

impl Procedure for Smuggler<'_> {
    type Output = usize;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<usize, Error> {
        let before = self.left.lock().expect("nobody panics under it").clone();
        let own = t.savepoint();
        t.upsert(&self.table, &person(self.id, 5, self.id as u32))?;
        before.iter().try_for_each(|&void| refuse(t, void))?;
        t.update(&self.table, self.id, |row| row.set_team(6))?;
        let behind = t.savepoint();
        t.update(&self.table, self.id, |row| row.set_code(Some(900 + self.id as u32)))?;
        t.roll_back_to(behind)?;
        if self.id.is_multiple_of(2) {
            t.roll_back_to(own)?;
            refuse(t, behind)?;
        }
        self.left.lock().expect("nobody panics under it").extend([own, behind]);
        Ok(before.len())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.table.id(), Key8::new(self.id, 8), Access::Write);
        declaration.unknown();
    }
}

/// Savepoints that procedures pass on to later ones, of the same batch too, are void there.
pub fn those_of_other_procedures_are_void<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[]);
    let mut worker = database.worker().unwrap();
    let left = Mutex::default();
    let smuggler = |id| Smuggler { table, id, left: &left };
    for id in 0..4 {
        worker.execute(&mut smuggler(id)).unwrap();
    }
    let mut batch: Vec<_> = (4..12).map(smuggler).collect();
    let mut most = 0;
    worker.execute_batch(&mut batch, &mut |_, answer| most = answer.unwrap().max(most));
    assert!(most >= 8, "no savepoint was passed on");
    let rows = done(&mut worker, |t| by_every_index(t, &table));
    let expected: Vec<_> = (0..12).filter(|id| id % 2 == 1).map(|id| person(id, 6, id as u32)).collect();
    assert_eq!(rows, expected);
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
        Ok::<_, Error>(())
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
