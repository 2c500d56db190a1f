//! Single rows: read, insert, upsert, update, delete, in one transaction and over several.

use std::panic::resume_unwind;
use std::sync::Arc;

use polychron_base::clock::SystemClock;
use polychron_base::key::Key8;
use polychron_base::{Error, IndexId};
use polychron_engine::futures::Resolved;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{
    Access, Commit, Declare, IndexDefinition, Insertion, Interactive, Mode, Operations, Procedure, Projection,
    Protocol, Table, Transaction, Worker, drive,
};
use polychron_schema::{Key, KeyScratch};

use crate::Setup;
use crate::rows::{Cell, Item, Person, person, set, value};
use crate::setup::{all, create, done, items, persons, run};

/// A row is read as it was written, an absent one is not there, in ordered and hash tables.
pub fn reads_and_writes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let cells = create::<P, Cell>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        assert_eq!(value(transaction, &table, 1)?, Some(10));
        assert_eq!(value(transaction, &table, 3)?, None);
        transaction.insert(&table, &Item { id: 3, value: 30 })?;
        assert_eq!(value(transaction, &table, 3)?, Some(30), "own insertions are read");
        transaction.insert(&cells, &Cell { id: 3, value: 33 })?;
        assert_eq!(transaction.get(&cells, 3)?.map(|row| row.value()), Some(33));
        assert_eq!(transaction.get_unvalidated(&table, 2)?.map(|row| row.value()), Some(20));
        Ok(())
    });
    done(&mut worker, |transaction| {
        assert_eq!(value(transaction, &table, 3)?, Some(30));
        assert_eq!(transaction.get(&cells, 3)?.map(|row| row.value()), Some(33));
        assert!(transaction.get(&cells, 4)?.is_none());
        Ok(())
    });
}

/// A duplicate key is told, changes nothing, and the transaction lives; or it is an error that aborts.
pub fn duplicates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        let outcome = transaction.try_insert(&table, &Item { id: 1, value: 99 })?;
        assert_eq!(outcome, Insertion::Duplicate(IndexId::PRIMARY));
        assert_eq!(transaction.try_insert(&table, &Item { id: 2, value: 20 })?, Insertion::Inserted);
        let outcome = transaction.try_insert(&table, &Item { id: 2, value: 99 })?;
        assert_eq!(outcome, Insertion::Duplicate(IndexId::PRIMARY), "own insertions count");
        Ok(())
    });
    let refused = run(&mut worker, |transaction| {
        transaction.insert(&table, &Item { id: 3, value: 30 })?;
        transaction.insert(&table, &Item { id: 1, value: 99 })
    });
    assert!(matches!(refused, Err(Error::Duplicate(ref of)) if of.index == IndexId::PRIMARY), "{refused:?}");
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }, Item { id: 2, value: 20 }]);
}

/// An upsert inserts or overwrites, with and without secondary indexes.
pub fn upserts<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let people = create::<P, Person>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        transaction.upsert(&table, &Item { id: 1, value: 11 })?;
        transaction.upsert(&table, &Item { id: 2, value: 20 })?;
        assert_eq!((value(transaction, &table, 1)?, value(transaction, &table, 2)?), (Some(11), Some(20)));
        transaction.upsert(&table, &Item { id: 2, value: 21 })?;
        transaction.upsert(&people, &person(1, 5, 100))?;
        transaction.upsert(&people, &Person { text: "long ".repeat(100), ..person(1, 6, 101) })
    });
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 11 }, Item { id: 2, value: 21 }]);
    done(&mut worker, |transaction| {
        assert_eq!(transaction.scan_by(&people, Person::BY_TEAM, 5).count()?, 0);
        assert_eq!(transaction.scan_by(&people, Person::BY_TEAM, 6).count()?, 1);
        assert_eq!(transaction.scan_by(&people, Person::BY_CODE, Some(100)).count()?, 0);
        assert_eq!(transaction.scan_by(&people, Person::BY_CODE, Some(101)).count()?, 1);
        transaction.delete(&table, 1)?;
        transaction.upsert(&table, &Item { id: 1, value: 12 })
    });
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 12 }, Item { id: 2, value: 21 }]);
}

/// Fixed columns change in place, alone or several times; an update of an absent row finds nothing.
pub fn fixed_updates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1), person(2, 1, 2)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        assert!(!transaction.update(&table, 3, |row| row.set_number(1))?);
        for _ in 0..40 {
            let found = transaction.update(&table, 1, |row| row.set_number(row.number() + 1))?;
            assert!(found);
        }
        assert!(transaction.update_columns(&table, 2, Person::NUMBER, |row| row.set_number(-1))?);
        assert_eq!(transaction.get(&table, 1)?.map(|row| row.number()), Some(50));
        assert!(transaction.update(&table, 2, |_| ())?, "a change of nothing is a change");
        Ok(())
    });
    let expected = [Person { number: 50, ..person(1, 1, 1) }, Person { number: -1, ..person(2, 1, 2) }];
    assert_eq!(all(&mut worker, &table), expected);
}

/// Variable columns grow beyond what their record holds and shrink again, in one transaction and over several.
pub fn growing_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1)]);
    let mut worker = database.worker().unwrap();
    for length in [0, 1, 100, 7, 1000, 999, 4000, 3] {
        let text = "x".repeat(length);
        done(&mut worker, |transaction| {
            transaction.update(&table, 1, |row| row.set_text(&text).unwrap())?;
            assert_eq!(transaction.get(&table, 1)?.map(|row| row.text() == text), Some(true));
            transaction.update(&table, 1, |row| row.set_number(length as i64)).map(drop)
        });
        let expected = Person { text, number: length as i64, ..person(1, 1, 1) };
        assert_eq!(all(&mut worker, &table), [expected]);
        (setup.tick)(&database);
    }
    done(&mut worker, |transaction| {
        transaction.insert(&table, &person(2, 1, 2))?;
        transaction.update(&table, 2, |row| row.set_number(5))?;
        transaction.update(&table, 2, |row| row.set_text(&"y".repeat(2000)).unwrap())?;
        transaction.update(&table, 2, |row| row.set_number(row.number() + 1))?;
        Ok(())
    });
    let grown = Person { number: 6, text: "y".repeat(2000), ..person(2, 1, 2) };
    assert_eq!(all(&mut worker, &table)[1], grown);
}

/// A deleted key can be inserted again by the same transaction, by the next one, and after its tombstone has gone.
pub fn deleted_keys_come_back<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for ticks in [0, 1, 6] {
        let (database, table) = persons(setup, &[person(1, 1, 1)]);
        let mut worker = database.worker().unwrap();
        done(&mut worker, |transaction| {
            assert!(transaction.delete(&table, 1)?);
            assert!(!transaction.delete(&table, 1)?, "it is gone already");
            assert!(transaction.get(&table, 1)?.is_none());
            Ok(())
        });
        assert_eq!(all(&mut worker, &table), []);
        setup.pass(&database, ticks);
        worker.maintain();
        let second = Person { text: "much longer than the first".repeat(20), ..person(1, 2, 2) };
        done(&mut worker, |transaction| {
            assert!(!transaction.delete(&table, 1)?);
            transaction.insert(&table, &second)
        });
        assert_eq!(all(&mut worker, &table), [second]);
        let third = person(1, 3, 2);
        done(&mut worker, |transaction| {
            assert!(transaction.delete(&table, 1)?);
            transaction.insert(&table, &third)?;
            assert_eq!(transaction.get(&table, 1)?.map(|row| row.team()), Some(3));
            Ok(())
        });
        assert_eq!(all(&mut worker, &table), [third]);
    }
}

/// Insertions, updates and deletions of one key inside one transaction end as the last of them says.
pub fn many_changes_of_one_row<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(2, 1, 2)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        transaction.insert(&table, &person(1, 1, 1))?;
        assert!(transaction.delete(&table, 1)?);
        assert!(transaction.get(&table, 1)?.is_none());
        assert_eq!(transaction.scan(&table, ..).count()?, 1);
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), [person(2, 1, 2)]);
    done(&mut worker, |transaction| {
        for round in 0..5 {
            assert!(transaction.delete(&table, 2)?);
            transaction.insert(&table, &Person { text: "t".repeat(round * 50), ..person(2, round as u16, 2) })?;
            transaction.update(&table, 2, |row| row.set_number(row.number() + 1))?;
        }
        transaction.insert(&table, &person(3, 1, 3))?;
        transaction.delete(&table, 3)?;
        transaction.insert(&table, &Person { text: "u".repeat(300), ..person(3, 2, 3) })
    });
    let second = Person { text: "t".repeat(200), number: 21, ..person(2, 4, 2) };
    assert_eq!(all(&mut worker, &table), [second, Person { text: "u".repeat(300), ..person(3, 2, 3) }]);
    done(&mut worker, |transaction| {
        assert_eq!(transaction.scan_by(&table, Person::BY_TEAM, 4).count()?, 1);
        assert_eq!(transaction.scan_by(&table, Person::BY_TEAM, 1).count()?, 0);
        assert_eq!(transaction.scan_by(&table, Person::BY_TEAM, 2).count()?, 1);
        Ok(())
    });
}

/// NULL is stored, comes back, is set and taken back, and equals nothing in a unique index.
pub fn nulls<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let nobody = |id| Person { code: None, ..person(id, 1, 0) };
    let (database, table) = persons(setup, &[nobody(1), nobody(2), person(3, 1, 3)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        assert_eq!(transaction.get(&table, 1)?.map(|row| row.code()), Some(None));
        transaction.update(&table, 1, |row| row.set_code(Some(1)))?;
        transaction.update(&table, 3, |row| row.set_code(None))?;
        assert_eq!(transaction.get(&table, 1)?.map(|row| row.code()), Some(Some(1)));
        Ok(())
    });
    assert_eq!(
        all(&mut worker, &table),
        [person(1, 1, 1), nobody(2), Person { number: 30, text: "person 3".into(), ..nobody(3) }]
    );
    done(&mut worker, |transaction| {
        assert_eq!(transaction.scan_by(&table, Person::BY_CODE, Some(1)).count()?, 1);
        assert_eq!(transaction.scan_by(&table, Person::BY_CODE, Some(3)).count()?, 0);
        assert_eq!(transaction.scan_by(&table, Person::BY_CODE, None).map(|row| row.id()).collect::<Vec<_>>()?, [2, 3]);
        Ok(())
    });
}

/// Columns that are asked for are right, also after own changes of others.
pub fn projections<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 7, 1)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |transaction| {
        assert_eq!(transaction.get_columns(&table, 1, Person::NUMBER)?, Some(10));
        assert_eq!(transaction.get_columns(&table, 1, (Person::TEAM, Person::TEXT))?, Some((7, "person 1")));
        transaction.update_columns(&table, 1, Person::NUMBER, |row| row.set_number(11))?;
        assert_eq!(transaction.get_columns(&table, 1, Person::TEAM)?, Some(7));
        assert_eq!(transaction.get_columns(&table, 1, Person::NUMBER)?, Some(11));
        transaction.update_columns(&table, 1, Person::TEAM, |row| row.set_team(8))?;
        let numbers: Vec<_> = transaction.scan(&table, ..).columns(Person::NUMBER).map(|row| row.number()).collect()?;
        assert_eq!(numbers, [11]);
        assert_eq!(transaction.get_columns(&table, 2, Person::NUMBER)?, None);
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), [Person { number: 11, ..person(1, 8, 1) }]);
}

/// A transaction that is rolled back, or dropped, leaves nothing behind.
pub fn roll_back_undoes_everything<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let before = [person(1, 1, 1), person(2, 1, 2)];
    let (database, table) = persons(setup, &before);
    let mut worker = database.worker().unwrap();
    for by_drop in [false, true] {
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        transaction.insert(&table, &person(3, 1, 3)).unwrap();
        transaction.update(&table, 1, |row| row.set_text(&"z".repeat(900)).unwrap()).unwrap();
        transaction.update(&table, 1, |row| row.set_team(9)).unwrap();
        transaction.delete(&table, 2).unwrap();
        if by_drop {
            drop(transaction);
        } else {
            assert!(transaction.roll_back());
        }
        assert_eq!(all(&mut worker, &table), before);
        let nine = done(&mut worker, |transaction| transaction.scan_by(&table, Person::BY_TEAM, 9).count());
        assert_eq!(nine, 0);
    }
    let refused = run(&mut worker, |transaction| {
        transaction.delete(&table, 1)?;
        Err::<(), _>(Error::RolledBack)
    });
    assert!(matches!(refused, Err(Error::RolledBack)));
    assert_eq!(all(&mut worker, &table), before);
    assert_eq!(database.statistics().refusals, 1);
}

/// A procedure that panics is reported with its text, undone, and the worker goes on.
pub fn panics_are_reported_and_undone<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    for step in 0..4 {
        let outcome = run(&mut worker, |transaction| {
            let stop_at = |now| assert!(now != step, "stopped at {step}");
            stop_at(0);
            transaction.insert(&table, &Item { id: 3, value: 30 })?;
            stop_at(1);
            transaction.update(&table, 1, |row| {
                row.set_value(11);
                stop_at(2);
            })?;
            transaction.scan(&table, ..).for_each(|_| stop_at(3))?;
            Ok(())
        });
        let Err(Error::Panicked(text)) = outcome else { panic!("step {step}: {outcome:?}") };
        assert!(text.contains(&format!("stopped at {step}")), "{text}");
        assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }, Item { id: 2, value: 20 }]);
    }
    done(&mut worker, |transaction| set(transaction, &table, 2, 21));

    let mut outcomes: Vec<_> = (0..3).map(|_| None).collect();
    let mut procedures = [1, 2, 3].map(|id| Wild { table, id });
    worker.execute_batch(&mut procedures, &mut |position, outcome| outcomes[position] = Some(outcome));
    for (outcome, id) in outcomes.into_iter().zip(1..) {
        match outcome.expect("each procedure is answered") {
            Err(Error::Panicked(_)) if id == Wild::PANICS => {}
            Ok(value) if id != Wild::PANICS => assert_eq!(value, [Some(10), None, None][id as usize - 1]),
            outcome => panic!("{id}: {outcome:?}"),
        }
    }
}

/// What a panic carries that panics again where it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            resume_unwind(Box::new("on purpose, too"));
        }
    }
}

/// Where code of the user's panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Panics {
    Nowhere,
    WhereItDeclares,
    WhereItRuns,
    WhereItHasCommitted,
}

/// Adds to a row, and panics.
struct Explodes {
    table: Table<Item>,
    panics: Panics,
}

impl Explodes {
    fn perhaps_panic(&self, here: Panics) {
        if self.panics == here {
            resume_unwind(Box::new(Bomb));
        }
    }
}

impl Procedure for Explodes {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        transaction.update(&self.table, 1, |row| row.set_value(row.value() + 1))?;
        self.perhaps_panic(Panics::WhereItRuns);
        Ok(())
    }

    fn committed(&mut self, _: &mut (), _: &Resolved) {
        self.perhaps_panic(Panics::WhereItHasCommitted);
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.perhaps_panic(Panics::WhereItDeclares);
        declaration.key(self.table.id(), Key8::new(1, 8), Access::Update);
    }
}

/// Panics whose destructors panic are answered like all others, wherever they come from, and all goes on.
pub fn panics_that_panic_again<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let mut worker = database.worker().unwrap();
    let options = Submissions { threads: 1, ..Submissions::default() };
    let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
    let mut expected = 0;
    let mut check = |panics, outcome: Result<(), Error>| match outcome {
        Ok(()) if matches!(panics, Panics::Nowhere | Panics::WhereItDeclares) => expected += 1,
        Err(Error::Panicked(_)) if panics == Panics::WhereItHasCommitted => expected += 1,
        Err(Error::Panicked(_)) if panics != Panics::Nowhere => {}
        outcome => panic!("{panics:?}: {outcome:?}"),
    };
    for panics in [Panics::WhereItDeclares, Panics::WhereItRuns, Panics::WhereItHasCommitted, Panics::Nowhere] {
        let explodes = |panics| Explodes { table, panics };
        check(panics, worker.execute(&mut explodes(panics)));
        let order = [Panics::Nowhere, panics, Panics::Nowhere];
        worker.execute_batch(&mut order.map(explodes), &mut |position, outcome| check(order[position], outcome));
        let submitted = order.map(|panics| (panics, service.submit(explodes(panics))));
        submitted.into_iter().for_each(|(panics, submission)| check(panics, submission.wait()));
    }
    let (key, mut scratch) = (1_u64, KeyScratch::new());
    let read = worker.read_one(table.id(), key.encode(&mut scratch), &Projection::ALL, |row| {
        assert!(row.is_some());
        resume_unwind(Box::new(Bomb))
    });
    assert!(matches!(read, Err::<(), _>(Error::Panicked(_))), "{read:?}");
    // Nothing that panicked stands in the way.
    database.create_index(table.id(), IndexDefinition::new("by_value", [1])).unwrap();
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: expected }]);
}

/// An answer that panics where it is dropped, unless its client got it.
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        resume_unwind(Box::new("on purpose"));
    }
}

/// Why a procedure's answer does not come to its client, in some protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// It writes what it did not name, and thinks nothing of the refusal.
    Undeclared,
    /// Another transaction changes what it has read.
    Conflict,
    /// It panics once it has committed.
    PanicsThen,
}

/// Adds to a row, and answers with something loud.
struct Loses<W> {
    table: Table<Item>,
    lost: Lost,
    other: Option<W>,
}

impl<W: Worker> Procedure for Loses<W> {
    type Output = Loud;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Loud, Error> {
        value(t, &self.table, 1)?;
        if let Some(mut other) = self.other.take() {
            // Where it would be in this one's way it is refused.
            let _ = other.execute(&mut Explodes { table: self.table, panics: Panics::Nowhere });
        }
        let updated = t.update(&self.table, 1, |row| row.set_value(row.value() + 1));
        if self.lost == Lost::Undeclared && updated.is_err() {
            return Ok(Loud);
        }
        updated.map(|_| Loud)
    }

    fn committed(&mut self, _: &mut Loud, _: &Resolved) {
        if self.lost == Lost::PanicsThen {
            resume_unwind(Box::new("on purpose"));
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        if self.lost != Lost::Undeclared {
            declaration.key(self.table.id(), Key8::new(1, 8), Access::Update);
        }
    }
}

/// Answers that no client gets are dropped, and panic then: that is no client's end.
pub fn answers_that_panic<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let [mut worker, mut beside] = [(); 2].map(|()| database.worker().unwrap());
    for lost in [Lost::Undeclared, Lost::Conflict, Lost::PanicsThen] {
        let other = (lost == Lost::Conflict).then(|| database.worker().unwrap());
        match worker.execute(&mut Loses { table, lost, other }) {
            Ok(loud) => std::mem::forget(loud),
            Err(Error::Panicked(_)) if lost == Lost::PanicsThen => {}
            Err(Error::Undeclared { .. }) if lost == Lost::Undeclared => {}
            Err(Error::WaitsForItself { .. }) if lost == Lost::Conflict => {}
            Err(error) => panic!("{lost:?}: {error:?}"),
        }
        beside.execute(&mut Explodes { table, panics: Panics::Nowhere }).unwrap();
        worker.execute(&mut Explodes { table, panics: Panics::Nowhere }).unwrap();
    }
}

/// Reads a row; one of them panics when it is asked what it will touch, and when it runs.
struct Wild {
    table: Table<Item>,
    id: u64,
}

impl Wild {
    const PANICS: u64 = 2;

    fn perhaps_panic(&self) {
        assert!(self.id != Self::PANICS, "what {} touches is not told", self.id);
    }
}

impl Procedure for Wild {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        self.perhaps_panic();
        value(transaction, &self.table, self.id)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.perhaps_panic();
        declaration.partition(self.id);
        let mut scratch = KeyScratch::new();
        declaration.key(self.table.id(), self.id.encode(&mut scratch), Access::Read);
    }
}

/// A procedure's own error ends it and comes back as it was.
pub fn foreign_errors_are_passed_on<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let outcome = run(&mut worker, |transaction| {
        set(transaction, &table, 1, 11)?;
        Err::<(), Error>(Error::other(std::fmt::Error))
    });
    assert!(matches!(outcome, Err(Error::Other(error)) if error.is::<std::fmt::Error>()));
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }]);
    let mut transaction = worker.begin(Mode::Snapshot).unwrap();
    let refused = transaction.insert(&table, &Item { id: 2, value: 20 });
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

/// A procedure that makes up a conflict is not run for ever: it is answered, in a transaction and in a snapshot, and nothing of it stays.
pub fn conflicts_of_its_own<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    /// Writes, and says that it conflicts, so often.
    struct Stubborn(Table<Item>, usize);

    impl Procedure for Stubborn {
        type Output = ();
        type Error = Error;

        fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
            self.1 += 1;
            assert!(self.1 < 100, "it is run without end");
            set(transaction, &self.0, 1, 11)?;
            Err(Error::Conflict)
        }

        fn declare<D: Declare>(&self, declaration: &mut D) {
            declaration.key(self.0.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
        }
    }

    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let outcome = worker.execute(&mut Stubborn(table, 0));
    assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
    let mut runs = 0;
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        let outcome = drive::transact(&mut worker, mode, &mut |transaction| {
            runs += 1;
            assert!(runs < 100, "it is run without end");
            value(transaction, &table, 1)?;
            Err::<(), Error>(Error::Conflict)
        });
        assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
    }
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }]);
}
