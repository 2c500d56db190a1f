//! Errors that a procedure catches and goes on: nothing half done may commit. And answers of optimistic transactions that mean a conflict.

use polychron_base::Error;
use polychron_base::sizes::scaled;
use polychron_engine::{Commit, Common, Insertion, Interactive, Mode, Operations, Protocol};
use polychron_memory::Options;

use super::{Fixture, Person, transact};

crate::on_each! {
    refused_duplicates_leave_nothing;
    refused_memory_leaves_nothing;
    duplicates_that_mean_conflicts;
    entries_of_a_row_are_never_its_own_duplicates;
}

fn people<P: Protocol<Worker: Interactive>>(fixture: &Fixture<P>, worker: &mut P::Worker) -> (Vec<u64>, u64, u64) {
    transact(worker, |transaction| {
        let ids = transaction.scan(&fixture.people, ..).map(|row| row.id()).collect()?;
        let by_city = transaction.scan_range_by(&fixture.people, Person::BY_CITY, 0_u64..).count()?;
        let by_number = transaction.scan_range_by(&fixture.people, Person::BY_NUMBER, 0_u64..).count()?;
        Ok((ids, by_city, by_number))
    })
}

fn refused_duplicates_leave_nothing<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let mut worker = fixture.worker();
    transact(&mut worker, |transaction| {
        (1..=3).try_for_each(|id| transaction.insert(&fixture.people, &Person::new(id, id)))
    });
    transact(&mut worker, |transaction| {
        let taken = Person { number: 1002, ..Person::new(4, 4) };
        assert!(matches!(transaction.try_insert(&fixture.people, &taken)?, Insertion::Duplicate(_)));
        assert!(transaction.upsert(&fixture.people, &taken).is_err());
        assert!(transaction.upsert(&fixture.people, &Person { number: 1002, ..Person::new(3, 9) }).is_err());
        let changed = transaction.update(&fixture.people, 1, |row| {
            row.set_city(7);
            row.set_number(1002);
        });
        assert!(matches!(changed.unwrap_err(), Error::Duplicate { .. }));
        let savepoint = transaction.savepoint();
        transaction.delete(&fixture.people, 2)?;
        transaction.insert(&fixture.people, &taken)?;
        transaction.roll_back_to(savepoint)?;
        assert!(transaction.insert(&fixture.people, &taken).is_err());
        transaction.insert(&fixture.people, &Person::new(5, 5))
    });
    assert_eq!(people(&fixture, &mut worker), (vec![1, 2, 3, 5], 4, 4));
    let cities: Vec<u64> =
        transact(&mut worker, |transaction| transaction.scan(&fixture.people, ..).map(|row| row.city()).collect());
    assert_eq!(cities, [1, 2, 3, 5]);
}

/// At the memory limit operations are refused half way, and the procedure goes on.
fn refused_memory_leaves_nothing<P: Protocol<Worker: Interactive>>() {
    let memory = Options { limit_bytes: Some(2 << 20), ..Options::tiny() };
    let fixture = Fixture::<P>::with(Common { memory, ..Common::default() });
    let mut worker = fixture.worker();
    let (mut refused, mut inserted, mut id) = (0, Vec::new(), 0);
    while refused < 20 {
        let added = transact(&mut worker, |transaction| {
            let mut added = Vec::new();
            for id in id..id + 8 {
                let text = "x".repeat(16 + 97 * (id as usize % 40));
                match transaction.insert(&fixture.people, &Person { text, ..Person::new(id, id % 7) }) {
                    Ok(()) => added.push(id),
                    Err(error) => match error {
                        Error::OutOfMemory(_) => {}
                        other => panic!("{other:?}"),
                    },
                }
            }
            Ok(added)
        });
        refused += 8 - added.len();
        inserted.extend(added);
        id += 8;
    }
    let count = inserted.len() as u64;
    assert_eq!(people(&fixture, &mut worker), (inserted, count, count));
}

/// What a procedure is told of a duplicate agrees with what it was told before, or the transaction conflicts.
fn duplicates_that_mean_conflicts<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let (mut worker, mut other) = (fixture.worker(), fixture.worker());
    transact(&mut worker, |transaction| transaction.insert(&fixture.people, &Person::new(1, 1)));
    let conflicts = |outcome: Result<(), Error>| outcome.unwrap_err().is_conflict();

    // The key was absent.
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    assert!(transaction.get(&fixture.people, 2).unwrap().is_none());
    transact(&mut other, |transaction| transaction.insert(&fixture.people, &Person::new(2, 2)));
    assert!(conflicts(transaction.insert(&fixture.people, &Person::new(2, 3))));
    drop(transaction);

    // The number was free.
    let free = |transaction: &mut <P::Worker as Interactive>::Transaction<'_>, number: u64| {
        assert_eq!(transaction.scan_by(&fixture.people, Person::BY_NUMBER, number).count().unwrap(), 0);
    };
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    free(&mut transaction, 1003);
    transact(&mut other, |transaction| transaction.insert(&fixture.people, &Person::new(3, 3)));
    assert!(conflicts(transaction.update(&fixture.people, 1, |row| row.set_number(1003)).map(drop)));
    drop(transaction);
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    free(&mut transaction, 1004);
    transact(&mut other, |transaction| transaction.insert(&fixture.people, &Person::new(4, 4)));
    assert!(conflicts(transaction.upsert(&fixture.people, &Person { number: 1004, ..Person::new(1, 1) })));
    drop(transaction);

    // A duplicate that stands is told.
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    let error = transaction.update(&fixture.people, 1, |row| row.set_number(1004)).unwrap_err();
    assert!(matches!(error, Error::Duplicate { .. }));
    transaction.commit().unwrap();
}

/// Threads that move the entries of one row, step by step: each is the only one there is, so none is a duplicate.
fn entries_of_a_row_are_never_its_own_duplicates<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    transact(&mut fixture.worker(), |transaction| transaction.insert(&fixture.people, &Person::new(1, 1)));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut worker = fixture.worker();
                for round in 0..scaled(1000, 10) as u64 {
                    let value = (round + thread) % 4;
                    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
                    let outcome = if round % 2 == 0 {
                        let change = transaction.update(&fixture.people, 1, |row| {
                            row.set_city(value);
                            row.set_number(value);
                        });
                        change.map(drop)
                    } else {
                        transaction.upsert(&fixture.people, &Person { number: value, ..Person::new(1, value) })
                    };
                    match outcome {
                        Ok(()) => drop(transaction.commit()),
                        Err(error) => assert!(error.is_conflict(), "{error:?}"),
                    }
                }
            });
        }
    });
    let mut worker = fixture.worker();
    assert_eq!(people(&fixture, &mut worker), (vec![1], 1, 1));
}
