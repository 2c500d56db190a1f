//! Who the other transaction of a conflict is: protocols report what they have at hand ([`Abort::opponent`]).

use std::sync::Barrier;

use polychron_base::error::Opponent;
use polychron_base::{Abort, Error};
use polychron_engine::{Commit, Interactive, Mode, Operations, Protocol, Table, Transaction};
use polychron_sync::atomic::{AtomicBool, Ordering};

use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::items;
use crate::watch::watched;

/// Whether a protocol knows who has written what a transaction has read and writes, or has locked it.
fn is_known(setup: &str) -> bool {
    // A setup with options is named by its protocol, a comma, and what differs.
    match setup.split(',').next().unwrap_or(setup) {
        "cicada" | "maflingo" | "global-tid" | "hyper" | "hyper-record-level" | "hyper-snapshot" => true,
        "locking" | "locking-no-wait" | "locking-wound-wait" | "hekaton" | "snapshot-isolation" => true,
        // The host protocol knows it; the layer compares values, and asks for the rows.
        "lazy-occ" | "occ" | "lazy-2pl" | "lazy-cicada" | "lazy-hyper" => true,
        // Their transactions run one after the other, as these tests drive them, and meet nobody.
        "serial" | "bohm" | "partitioned-store" | "one-lock" => false,
        other => panic!("it is not decided whether {other} knows whom its transactions conflict with"),
    }
}

fn add<T: Transaction>(t: &mut T, table: &Table<Item>) -> Result<(), Error> {
    t.update(table, 1, |row| row.set_value(row.value() + 1)).map(drop)
}

/// One attempt that adds to the row, when another one has read it, which begins later. Why it has conflicted.
fn attempt<W: Interactive>(worker: &mut W, table: &Table<Item>, turns: &Barrier) -> Option<Abort> {
    let mut transaction = worker.begin(Mode::ReadWrite).expect("a transaction begins");
    turns.wait();
    turns.wait();
    let outcome = add(&mut transaction, table).and_then(|()| transaction.commit());
    outcome.is_err().then(|| worker.last_abort().expect("a conflict has a reason"))
}

/// An attempt that reads the row, and adds to it when another thread has tried to, in a transaction that is older. Why one of the two has
/// conflicted.
fn meet<P: Protocol<Worker: Interactive>>(slow: &mut P::Worker, fast: &mut P::Worker, table: &Table<Item>) -> Abort {
    let (has_ended, turns) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let aborted = attempt(fast, table, &turns);
            has_ended.store(true, Ordering::Release);
            aborted
        });
        turns.wait();
        let mut open = slow.begin(Mode::ReadWrite).expect("a transaction begins");
        assert!(value(&mut open, table, 1).is_ok_and(|value| value.is_some()));
        turns.wait();
        let mut outcome = Ok(());
        // It may be told to make way for the other one, which then waits for it.
        while outcome.is_ok() && !has_ended.load(Ordering::Acquire) {
            outcome = value(&mut open, table, 2).map(drop);
            std::thread::yield_now();
        }
        let outcome = match outcome.and_then(|()| add(&mut open, table)) {
            Ok(()) => open.commit(),
            Err(error) => {
                open.roll_back();
                Err(error)
            }
        };
        let aborted = other.join().expect("it does not panic");
        match outcome {
            Err(_) => slow.last_abort().expect("a conflict has a reason"),
            Ok(()) => aborted.expect("one of them conflicts"),
        }
    })
}

/// The other side of a conflict is told by each protocol that knows it, and is another one when another one it is.
pub fn of_conflicts<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let is_known = is_known(setup.name);
    if !setup.interleaves {
        assert!(!is_known, "what meets nobody knows nobody");
        return;
    }
    let setup = setup.clone();
    watched(move |place| {
        let (database, table) = items(&setup, &[(1, 10), (2, 20)]);
        let mut workers: Vec<_> = (0..3).map(|_| database.worker().expect("a slot is free")).collect();
        let (slow, others) = workers.split_first_mut().expect("there are three");
        let opponents: Vec<Option<Opponent>> = others
            .iter_mut()
            .map(|fast| {
                place.at("a conflict");
                meet::<P>(slow, fast, &table).opponent
            })
            .collect();
        let who = format!("{}: {opponents:?}", setup.name);
        assert_eq!(opponents.iter().all(Option::is_some), is_known, "{who}");
        // Two transactions have two numbers.
        let numbers: Vec<_> = opponents.iter().flatten().filter_map(|opponent| opponent.transaction).collect();
        assert!(numbers.len() < 2 || numbers[0] != numbers[1], "{who}");
        let mut of_workers = opponents.iter().flatten().filter_map(|opponent| opponent.worker);
        assert!(of_workers.all(|worker| worker.position() < setup.common.memory.max_workers), "{who}");
    });
}
