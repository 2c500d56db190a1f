//! Two threads whose transactions are in each other's way, where one thread or both have a transaction open inside of which they run another
//! one. The inner one waits for the other thread, which waits for the outer one: no protocol sees that cycle in its transactions alone. The
//! inner one commits, or learns that it would wait for its own thread; all else goes on.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use polychron_base::random::Random;
use polychron_engine::{Error, Futures, Interactive, Mode, Operations, Protocol, Table, Transaction, drive};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::clients::{DEEDS, Deed};
use crate::Setup;
use crate::client::Client;
use crate::rows::{Item, value};
use crate::setup::{Tx, begin, done, items, run};
use crate::watch::watched;

/// What a transaction does with a row, or beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Alone(Deed),
    ReadAndUpdate,
    /// A row comes into the range of a scan.
    InsertBeside,
    /// A condition over the row is held.
    Ask,
    /// A write that changes the condition.
    Set,
}

impl Act {
    fn act<T: Transaction>(self, transaction: &mut T, table: &Table<Item>, id: u64) -> Result<(), Error> {
        match self {
            Self::Alone(deed) => deed.act(transaction, table, id),
            Self::ReadAndUpdate => {
                Deed::Read.act(transaction, table, id)?;
                Deed::Update.act(transaction, table, id)
            }
            Self::InsertBeside => Deed::Insert.act(transaction, table, id + 5),
            Self::Ask => {
                let future = transaction.future(table, id, Item::VALUE)?;
                transaction.is_true(future.greater_than(3)).map(drop)
            }
            Self::Set => transaction.set_future(table, id, Item::VALUE, 0).map(drop),
        }
    }

    fn before(self) -> Option<i64> {
        if let Self::Alone(deed) = self { deed.before() } else { Some(5) }
    }

    /// The mode of a transaction that does nothing else, on a snapshot where that will do.
    fn mode(self) -> Mode {
        if matches!(self, Self::Alone(Deed::Read | Deed::Scan)) { Mode::Snapshot } else { Mode::ReadWrite }
    }
}

/// A pair of rows, a hundred ids from the next one's, which two threads want of each other.
#[derive(Clone, Copy)]
struct Pair {
    outer: Act,
    inner: Act,
    ids: [u64; 2],
}

/// All combinations of deeds, and the rows that they find.
fn pairs() -> (Vec<Pair>, Vec<(u64, i64)>) {
    let alone = DEEDS.iter().flat_map(|outer| DEEDS.map(|inner| (Act::Alone(*outer), Act::Alone(inner))));
    let others = [
        (Act::Alone(Deed::Read), Act::ReadAndUpdate),
        (Act::Alone(Deed::Scan), Act::InsertBeside),
        (Act::Ask, Act::Set),
        (Act::Ask, Act::ReadAndUpdate),
    ];
    let pairs: Vec<_> = (0..)
        .zip(alone.chain(others))
        .map(|(number, (outer, inner))| Pair { outer, inner, ids: [number * 200, number * 200 + 100] })
        .collect();
    let rows = pairs.iter().flat_map(|pair| pair.ids.map(|id| Some((id, pair.outer.before()?))));
    let rows = rows.flatten().collect();
    (pairs, rows)
}

/// The setup with room for so many workers, which tries without end.
fn crowded<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> Setup<P> {
    let mut setup = setup.clone();
    setup.common.memory.max_workers = 160;
    setup.common.retry.attempts = u64::MAX;
    setup
}

/// What may become of an inner transaction.
fn check_inner(what: &str, outcome: &Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::WaitsForItself { .. } | Error::Unsupported { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Each row can be written at the end.
fn write_all<P: Protocol<Worker: Interactive>>(database: &Arc<P>, table: &Table<Item>, pairs: &[Pair]) {
    let mut worker = database.worker().unwrap();
    for id in pairs.iter().flat_map(|pair| pair.ids) {
        done(&mut worker, |t| Deed::Upsert.act(t, table, id));
    }
}

/// Two threads hold a row each in an open transaction, and inside of it each wants the row of the other.
pub fn nested_on_two_threads<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = crowded(setup);
    watched(move |progress| {
        let (pairs, rows) = pairs();
        let (database, table) = items(&setup, &rows);
        setup.pass(&database, 3);
        std::thread::scope(|scope| {
            for &Pair { outer, inner, ids } in &pairs {
                let met = Arc::new(Barrier::new(2));
                for [own, others] in [ids, [ids[1], ids[0]]] {
                    let (met, database, progress) = (Arc::clone(&met), &database, progress.clone());
                    scope.spawn(move || {
                        let [mut first, mut second] = [(); 2].map(|()| database.worker().unwrap());
                        let mut client = begin(&mut first);
                        client.step(|t| outer.act(t, &table, own));
                        met.wait();
                        let outcome = run(&mut second, |t| inner.act(t, &table, others));
                        let what = format!("{inner:?} inside of {outer:?}, ended on a thread");
                        check_inner(&what, &outcome);
                        client.commit();
                        progress.at(what);
                    });
                }
            }
        });
        progress.at("the end");
        write_all(&database, &table, &pairs);
    });
}

/// A thread runs a transaction inside of another one, which meets an ordinary client on another thread: that has what the inner one wants,
/// and wants what the outer one has.
pub fn nested_beside_a_plain_client<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = crowded(setup);
    watched(move |progress| {
        let (pairs, rows) = pairs();
        let (database, table) = items(&setup, &rows);
        setup.pass(&database, 3);
        std::thread::scope(|scope| {
            for &Pair { outer, inner, ids: [first, second] } in &pairs {
                let (database, table) = (&database, &table);
                // The plain one has its first row, in its first attempt.
                let (has, hears) = channel();
                let begun = Arc::new(Barrier::new(2));
                let of_plain = Arc::clone(&begun);
                let what = format!("{inner:?} inside of {outer:?}");
                let (of_nesting, of_plain_place) = (progress.clone(), progress.clone());
                let text = what.clone();
                scope.spawn(move || {
                    let mut worker = database.worker().unwrap();
                    of_plain.wait();
                    let outcome = run(&mut worker, |t| {
                        let held = outer.act(t, table, second);
                        let _ = has.send(());
                        held?;
                        inner.act(t, table, first)
                    });
                    assert!(outcome.is_ok(), "beside {text}: {outcome:?}");
                    of_plain_place.at(format!("{text}: the plain one has ended"));
                });
                scope.spawn(move || {
                    let [mut outside, mut inside] = [(); 2].map(|()| database.worker().unwrap());
                    let mut client = begin(&mut outside);
                    client.step(|t| outer.act(t, table, first));
                    begun.wait();
                    hears.recv().expect("it tells of its first attempt");
                    let outcome = drive::transact(&mut inside, inner.mode(), &mut |t| inner.act(t, table, second));
                    check_inner(&what, &outcome);
                    client.commit();
                    of_nesting.at(format!("{what}: the nesting one has ended"));
                });
            }
        });
        progress.at("the end");
        write_all(&database, &table, &pairs);
    });
}

/// The same at random, for as long as a few inner transactions take.
pub fn nested_at_random<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const ROWS: u64 = 3;
    const TURNS: u64 = 40;
    const MOST_TOLD: u64 = 2;
    let setup = crowded(setup);
    watched(move |progress| {
        let (database, table) = items(&setup, &[(0, 0), (10, 0), (20, 0)]);
        let add =
            |t: &mut Tx<'_, P>, id: u64| t.update(&table, id * 10, |row| row.set_value(row.value() + 1)).map(drop);
        let (is_over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let [mut first, mut second] = [(); 2].map(|()| database.worker().unwrap());
                let mut random = Random::stream(7, 0);
                let mut observed = 0;
                for turn in 0..TURNS {
                    if observed == MOST_TOLD {
                        break;
                    }
                    progress.at(format!("turn {turn}, told {observed} times"));
                    let mut client = begin(&mut first);
                    let (outer, inner) = (random.below(ROWS), random.below(ROWS));
                    client.step(|t| add(t, outer));
                    let outcome = run(&mut second, |t| add(t, inner));
                    check_inner("at random", &outcome);
                    observed += u64::from(outer != inner && matches!(outcome, Err(Error::WaitsForItself { .. })));
                    commits.fetch_add(u64::from(outcome.is_ok()) + u64::from(client.commit()), Ordering::Relaxed);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            scope.spawn(|| {
                let mut worker = database.worker().unwrap();
                let mut random = Random::stream(7, 1);
                while !is_over.load(Ordering::Relaxed) {
                    let (from, to) = (random.below(ROWS), random.below(ROWS));
                    done(&mut worker, |t| {
                        add(t, from)?;
                        std::thread::yield_now();
                        add(t, to)
                    });
                    commits.fetch_add(2, Ordering::Relaxed);
                }
            });
        });
        progress.at("the end");
        let sum = done(&mut database.worker().unwrap(), |t| {
            (0..ROWS).try_fold(0, |sum, id| Ok(sum + value(t, &table, id * 10)?.unwrap_or(0)))
        });
        assert_eq!(sum, commits.into_inner() as i64);
    });
}

/// An inner transaction that meets a row whose holder goes on in a while is no wait for its own thread.
pub fn nested_meets_a_busy_row<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const HELD_MS: u64 = 30;
    let setup = crowded(setup);
    watched(move |progress| {
        let (database, table) = items(&setup, &[(0, 5), (100, 5)]);
        for deed in [Deed::Update, Deed::Read, Deed::Scan] {
            progress.at(format!("{deed:?}"));
            std::thread::scope(|scope| {
                let (has, hears) = channel();
                scope.spawn({
                    let database = &database;
                    move || {
                        let mut worker = database.worker().unwrap();
                        let mut client = Client::begin(&mut worker, Mode::ReadWrite);
                        client.step(|t| Deed::Update.act(t, &table, 100));
                        has.send(()).unwrap();
                        std::thread::sleep(Duration::from_millis(HELD_MS));
                        client.commit();
                    }
                });
                let [mut first, mut second] = [(); 2].map(|()| database.worker().unwrap());
                let mut client = begin(&mut first);
                client.step(|t| Deed::Update.act(t, &table, 0));
                hears.recv().unwrap();
                let outcome = run(&mut second, |t| deed.act(t, &table, 100));
                assert!(matches!(outcome, Ok(()) | Err(Error::Unsupported { .. })), "{deed:?}: {outcome:?}");
                client.commit();
            });
        }
    });
}
