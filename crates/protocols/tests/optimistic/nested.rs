//! A transaction inside of another on the same thread: it may not wait for what only its own thread can give, nor begin again without end.

use std::sync::mpsc;
use std::time::Duration;

use polychron_base::Error;
use polychron_engine::{IndexDefinition, Interactive, Mode, Operations, Protocol, drive};

use super::{Counter, Fixture, transact};

crate::on_each! {
    an_inner_insertion_of_an_outer_ones_key;
    an_inner_read_of_an_outer_ones_key;
    an_outer_one_whose_row_the_inner_one_writes;
    an_inner_one_at_the_first_attempt_only;
    an_outer_one_whose_range_the_inner_one_fills;
    inner_ones_elsewhere_go_through;
    an_index_in_a_transaction;
}

/// More attempts than any of these needs.
const MANY: u32 = 1000;

fn at(id: u64) -> Counter {
    Counter { id, left: 0, right: 0 }
}

/// Runs a transaction that gives up after very many attempts.
fn attempt<W: Interactive + 'static, O>(
    worker: &mut W,
    mut body: impl FnMut(&mut W::Transaction<'_>, u32) -> Result<O, Error>,
) -> Result<O, Error> {
    let mut attempts = 0;
    drive::transact(worker, Mode::ReadWrite, &mut |transaction| {
        attempts += 1;
        assert!(attempts < MANY, "the transaction begins again and again");
        body(transaction, attempts)
    })
}

fn an_inner_insertion_of_an_outer_ones_key<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let (mut outer, mut inner) = (fixture.worker(), fixture.worker());
    let mut attempts = 0;
    let inserted = attempt(&mut outer, |transaction, attempt_number| {
        attempts = attempt_number;
        transaction.insert(&fixture.counters, &at(1))?;
        // The first to commit has the key.
        attempt(&mut inner, |transaction, _| transaction.insert(&fixture.counters, &at(1))).unwrap();
        Ok(())
    });
    assert!(matches!(inserted, Err(Error::Duplicate { .. })), "{inserted:?}");
    assert_eq!(attempts, 2);
    assert!(fixture.counter(&mut inner, 1).is_some());
}

fn an_inner_read_of_an_outer_ones_key<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let (mut outer, mut inner) = (fixture.worker(), fixture.worker());
    attempt(&mut outer, |transaction, _| {
        transaction.insert(&fixture.counters, &at(1))?;
        let read = attempt(&mut inner, |transaction, _| Ok(transaction.get(&fixture.counters, 1)?.is_some()));
        assert!(!read.unwrap(), "it has not committed");
        let failed = attempt(&mut inner, |transaction, _| {
            transaction.get(&fixture.counters, 1)?;
            Err::<(), _>(Error::RolledBack)
        });
        assert!(!matches!(failed, Err(Error::WaitsForItself { .. })), "{failed:?}");
        Ok(())
    })
    .unwrap();
}

fn an_outer_one_whose_row_the_inner_one_writes<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let (mut outer, mut inner) = (fixture.worker(), fixture.worker());
    let mut attempts = 0;
    let updated = attempt(&mut outer, |transaction, attempt| {
        attempts = attempt;
        transaction.update(&fixture.counters, 1, |row| row.set_left(row.left() + 1))?;
        transact(&mut inner, |transaction| {
            transaction.update(&fixture.counters, 1, |row| row.set_left(row.left() + 1))
        });
        Ok(())
    });
    assert!(matches!(updated, Err(Error::WaitsForItself { .. })), "{updated:?}");
    assert!(attempts <= 2, "{attempts} attempts");
    assert_eq!(fixture.counter(&mut outer, 1).unwrap().left, u64::from(attempts));
}

fn an_inner_one_at_the_first_attempt_only<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let (mut outer, mut inner) = (fixture.worker(), fixture.worker());
    for _ in 0..3 {
        attempt(&mut outer, |transaction, attempt| {
            transaction.update(&fixture.counters, 1, |row| row.set_left(row.left() + 1))?;
            if attempt == 1 {
                let change = |row: &mut <Counter as polychron_schema::Row>::Mut<'_>| row.set_left(row.left() + 1);
                transact(&mut inner, |transaction| transaction.update(&fixture.counters, 1, change));
            }
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(fixture.counter(&mut outer, 1).unwrap().left, 6);
}

fn an_outer_one_whose_range_the_inner_one_fills<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let (mut outer, mut inner) = (fixture.worker(), fixture.worker());
    let mut next = 0;
    let counted = attempt(&mut outer, |transaction, _| {
        transaction.insert(&fixture.people, &super::Person::new(1, 1))?;
        let count = transaction.scan(&fixture.counters, ..).count()?;
        next += 1;
        transact(&mut inner, |transaction| transaction.insert(&fixture.counters, &at(next)));
        Ok(count)
    });
    assert!(matches!(counted, Err(Error::WaitsForItself { .. })), "{counted:?}");
}

fn inner_ones_elsewhere_go_through<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let (mut outer, mut inner) = (fixture.worker(), fixture.worker());
    for id in 10..200 {
        attempt(&mut outer, |transaction, _| {
            transaction.update(&fixture.counters, 1, |row| row.set_left(id))?;
            attempt(&mut inner, |transaction, _| {
                transaction.insert(&fixture.people, &super::Person::new(id, 1))?;
                transaction.update(&fixture.counters, 2, |row| row.set_left(id))
            })?;
            Ok(())
        })
        .unwrap();
    }
}

/// Fails when `work` has not ended after a time that is out of all proportion.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    if wait.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the thread waits for itself");
    }
    thread.join().unwrap();
}

fn an_index_in_a_transaction<P: Protocol<Worker: Interactive>>() {
    ends(|| {
        let fixture = Fixture::<P>::open();
        fixture.fill(0..4);
        let mut worker = fixture.worker();
        let definition = || IndexDefinition::new("by_left", [1]);
        for mode in [Mode::ReadWrite, Mode::Snapshot] {
            let mut transaction = worker.begin(mode).unwrap();
            transaction.get(&fixture.counters, 1).unwrap();
            let created = fixture.database.create_index(fixture.counters.id(), definition());
            assert!(matches!(created, Err(Error::WaitsForItself { .. }) | Ok(_)), "{created:?}");
            if let Ok(index) = created {
                fixture.database.drop_index(fixture.counters.id(), index).unwrap();
            }
            assert!(mode == Mode::Snapshot || created.is_err());
        }
        fixture.database.create_index(fixture.counters.id(), definition()).unwrap();
    });
}
