//! A leaked transaction: safe code may forget one instead of dropping it. Nothing of it may ever commit, and nothing that it
//! held may stay held.

use polychron_engine::{Commit, Futures, Interactive, Mode, Operations, Protocol, Worker};

use super::{Counter, Fixture, Person, transact};

crate::on_each! {
    leaked_writes_never_commit;
    leaked_insertions_leave_their_keys;
    leaked_guards_end;
    a_worker_that_goes_undoes_what_it_leaked;
    leaked_futures_are_forgotten;
}

/// An update, an insertion with entries and a deletion, forgotten half way.
fn leak<P: Protocol<Worker: Interactive>>(fixture: &Fixture<P>, worker: &mut P::Worker) {
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    transaction.update(&fixture.counters, 1, |row| row.set_left(7)).unwrap();
    transaction.insert(&fixture.people, &Person::new(5, 1)).unwrap();
    transaction.delete(&fixture.counters, 2).unwrap();
    std::mem::forget(transaction);
}

fn assert_untouched<P: Protocol<Worker: Interactive>>(fixture: &Fixture<P>, worker: &mut P::Worker) {
    assert_eq!(fixture.counter(worker, 1).unwrap().left, 0);
    assert!(fixture.counter(worker, 2).is_some());
    let people = transact(worker, |transaction| transaction.scan(&fixture.people, ..).count());
    assert_eq!(people, 0);
}

fn leaked_writes_never_commit<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let (mut worker, mut other) = (fixture.worker(), fixture.worker());
    leak(&fixture, &mut worker);
    // An empty transaction, one that fails, and one that writes something else.
    worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
    assert_untouched(&fixture, &mut other);
    leak(&fixture, &mut worker);
    drop(worker.begin(Mode::ReadWrite).unwrap());
    leak(&fixture, &mut worker);
    transact(&mut worker, |transaction| transaction.update(&fixture.counters, 3, |row| row.set_left(1)));
    assert_untouched(&fixture, &mut other);
    assert_untouched(&fixture, &mut worker);
}

fn leaked_insertions_leave_their_keys<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let (mut worker, mut other) = (fixture.worker(), fixture.worker());
    leak(&fixture, &mut worker);
    worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
    // The keys of the row and of its entries are free: no thread waits for a latch of the leaked transaction.
    transact(&mut other, |transaction| transaction.insert(&fixture.people, &Person::new(5, 1)));
    transact(&mut other, |transaction| transaction.update(&fixture.counters, 1, |row| row.set_left(9)));
    assert_eq!(fixture.counter(&mut worker, 1).unwrap().left, 9);
}

fn leaked_guards_end<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let mut worker = fixture.worker();
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        for _ in 0..2 {
            let mut transaction = worker.begin(mode).unwrap();
            transaction.get(&fixture.counters, 1).unwrap();
            std::mem::forget(transaction);
        }
        worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
        // Neither a pin nor a snapshot holds the clock back any longer.
        let epochs = fixture.database.memory().epochs();
        let present = epochs.current();
        for _ in 0..3 {
            while !epochs.advance() {}
        }
        assert!(epochs.readonly() >= present && epochs.collectable() >= present, "{mode:?}: {epochs:?}");
    }
}

fn a_worker_that_goes_undoes_what_it_leaked<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let (mut worker, mut tidy) = (fixture.worker(), fixture.worker());
    leak(&fixture, &mut worker);
    drop(worker);
    leak(&fixture, &mut tidy);
    tidy.maintain();
    let mut other = fixture.worker();
    assert_untouched(&fixture, &mut other);
    transact(&mut other, |transaction| transaction.insert(&fixture.people, &Person::new(5, 1)));
}

fn leaked_futures_are_forgotten<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let mut worker = fixture.worker();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    let left = transaction.future(&fixture.counters, 1, Counter::LEFT).unwrap();
    transaction.set_future(&fixture.counters, 1, Counter::LEFT, left + 7).unwrap();
    std::mem::forget(transaction);
    worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
    assert_eq!(fixture.counter(&mut worker, 1).unwrap().left, 0);
}
