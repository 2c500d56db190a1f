//! Clients as they are: they begin a transaction inside of another one, forget one, end while one is open, come in numbers, and
//! ask for conflicts of their own. Whatever they do, there is an end to it: a commit or a typed error.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;

use polychron_base::key::Key8;
use polychron_engine::any::AnyProtocol;
use polychron_engine::{
    Access, Declare, Error, IndexDefinition, Insertion, Interactive, Mode, Operations, Procedure, Protocol, Table,
    Transaction, Worker, drive,
};

pub use super::callbacks::changes_between_transactions;
pub use super::crossed::{
    nested_at_random, nested_beside_a_plain_client, nested_meets_a_busy_row, nested_on_two_threads,
};
use crate::Setup;
use crate::client::Client;
use crate::rows::{Item, value};
use crate::setup::{Tx, all, begin, done, items, run};
use crate::watch::{Progress, watched};

/// What a transaction does with the rows of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Read,
    Update,
    Insert,
    Upsert,
    Delete,
    Scan,
}

pub(super) const DEEDS: [Deed; 5] = [Deed::Read, Deed::Update, Deed::Insert, Deed::Delete, Deed::Scan];

impl Deed {
    const WITH_UPSERTS: [Self; 6] = [Self::Read, Self::Update, Self::Insert, Self::Upsert, Self::Delete, Self::Scan];

    pub(super) fn act<T: Transaction>(self, transaction: &mut T, table: &Table<Item>, id: u64) -> Result<(), Error> {
        match self {
            Self::Read => value(transaction, table, id).map(drop),
            Self::Update => transaction.update(table, id, |row| row.set_value(row.value() + 1)).map(drop),
            Self::Insert => transaction.try_insert(table, &Item { id, value: 10 }).map(drop::<Insertion>),
            Self::Upsert => transaction.upsert(table, &Item { id, value: 20 }),
            Self::Delete => transaction.delete(table, id).map(drop),
            Self::Scan => transaction.scan(table, id..id + 10).count().map(drop),
        }
    }

    /// What it makes of a row.
    fn of(self, row: Option<i64>) -> Option<i64> {
        match self {
            Self::Read | Self::Scan => row,
            Self::Update => row.map(|value| value + 1),
            Self::Insert => row.or(Some(10)),
            Self::Upsert => Some(20),
            Self::Delete => None,
        }
    }

    /// The row that is there before: an insertion finds none.
    pub(super) fn before(self) -> Option<i64> {
        if self == Self::Insert { None } else { Some(5) }
    }
}

/// Attempts after which a transaction counts as one that would go on for ever.
const MOST_ATTEMPTS: u64 = 1000;

/// The setup with a bound for attempts.
fn bounded<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> Setup<P> {
    let mut setup = setup.clone();
    setup.common.retry.attempts = MOST_ATTEMPTS;
    setup
}

/// A database with the rows that the deeds `before` find, each ten ids apart.
fn rows_for<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, deeds: &[Deed]) -> (Arc<P>, Table<Item>) {
    let row = |(number, deed): (usize, &Deed)| Some((number as u64 * 10, deed.before()?));
    let rows: Vec<_> = deeds.iter().enumerate().filter_map(row).collect();
    let opened = items(setup, &rows);
    // Rows of an epoch that has ended are updated in another way than new ones.
    setup.pass(&opened.0, 3);
    opened
}

/// A second transaction on the thread of an open one commits, or learns that it would wait for its own thread.
pub fn nested_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = bounded(setup);
    watched(move |progress| {
        let cases: Vec<_> = DEEDS.iter().flat_map(|outer| DEEDS.map(|inner| (*outer, inner))).collect();
        let outers: Vec<_> = cases.iter().map(|(outer, _)| *outer).collect();
        let (database, table) = rows_for(&setup, &outers);
        let (mut first, mut second) = (database.worker().unwrap(), database.worker().unwrap());
        for (number, (outer, inner)) in cases.into_iter().enumerate() {
            progress.at(format!("{inner:?} inside of {outer:?}"));
            let id = number as u64 * 10;
            let mut client = begin(&mut first);
            client.step(|t| outer.act(t, &table, id));
            let is_open = client.is_running();
            let outcome = run(&mut second, |t| inner.act(t, &table, id));
            match &outcome {
                Ok(()) | Err(Error::WaitsForItself { .. } | Error::Unsupported { .. }) => {}
                Err(error) => panic!("{inner:?} inside of {outer:?}: {error}"),
            }
            let has_committed = client.commit();
            assert!(is_open || !has_committed);
            let end = done(&mut second, |t| value(t, &table, id));
            let both = |first: Option<Deed>, second: Option<Deed>| {
                let of = |row, deed: Option<Deed>| deed.map_or(row, |deed| deed.of(row));
                of(of(outer.before(), first), second)
            };
            let (first, second) = (has_committed.then_some(outer), outcome.is_ok().then_some(inner));
            let explained = [both(first, second), both(second, first)].contains(&end);
            assert!(explained, "{inner:?} inside of {outer:?}: {end:?} after {first:?} and {second:?}");
        }
    });
}

/// A procedure that executes another one with a worker of its own.
struct Outer<W> {
    table: Table<Item>,
    deed: Deed,
    inner: Inner,
    worker: W,
    /// What became of the inner one in each run.
    outcomes: Vec<Result<(), Error>>,
}

#[derive(Clone, Copy)]
struct Inner {
    table: Table<Item>,
    deed: Deed,
}

impl Procedure for Inner {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        self.deed.act(transaction, &self.table, 0)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declare(declaration, &self.table, self.deed);
    }
}

fn declare<D: Declare>(declaration: &mut D, table: &Table<Item>, deed: Deed) {
    if !matches!(deed, Deed::Read | Deed::Scan) {
        declaration.key(table.id(), Key8::new(0, 8), Access::Write);
    }
}

impl<W: Worker> Procedure for Outer<W> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        self.deed.act(transaction, &self.table, 0)?;
        let outcome = self.worker.execute(&mut self.inner);
        self.outcomes.push(outcome);
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declare(declaration, &self.table, self.deed);
    }
}

/// The same with whole procedures, of which a protocol may plan both.
pub fn nested_procedures<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let mut setup = bounded(setup);
    // The outer one may fail as often as it is tried: each time the inner one changes what it has read.
    setup.common.retry.attempts = 20;
    watched(move |progress| {
        for (outer, inner) in [(Deed::Update, Deed::Update), (Deed::Read, Deed::Update), (Deed::Update, Deed::Read)] {
            progress.at(format!("{inner:?} inside of {outer:?}"));
            let (database, table) = rows_for(&setup, &[outer]);
            let inner = Inner { table, deed: inner };
            let mut procedure =
                Outer { table, deed: outer, inner, worker: database.worker().unwrap(), outcomes: Vec::new() };
            let outcome = database.worker().unwrap().execute(&mut procedure);
            progress.at("the end");
            let is_typed = |error: &Error| {
                matches!(error, Error::WaitsForItself { .. } | Error::Conflicts { .. } | Error::Unsupported { .. })
            };
            let outcomes = procedure.outcomes.iter().chain([&outcome]);
            let wrong = outcomes.filter_map(|it| it.as_ref().err()).find(|error| !is_typed(error));
            assert!(wrong.is_none(), "{:?} inside of {outer:?}: {wrong:?}", inner.deed);
            let inner_commits = procedure.outcomes.iter().filter(|it| it.is_ok()).count() as i64;
            let committed = |deed, times| if deed == Deed::Update { times } else { 0 };
            let expected = 5 + committed(inner.deed, inner_commits) + committed(outer, i64::from(outcome.is_ok()));
            drop(procedure);
            let end = done(&mut database.worker().unwrap(), |t| value(t, &table, 0));
            assert_eq!(end, Some(expected), "{:?} inside of {outer:?}", inner.deed);
        }
    });
}

/// Attempts after which a transaction must have learnt that it is its own thread that stands in its way.
const MOST_OF_ITS_OWN: u64 = 100;

/// A transaction inside of which another one commits each time, which may be why it conflicts each time: it commits, or learns that in few
/// attempts.
pub fn doomed_by_their_own_thread<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let mut setup = setup.clone();
    setup.common.retry.attempts = MOST_OF_ITS_OWN;
    watched(move |progress| {
        for outer in Deed::WITH_UPSERTS {
            let (database, table) = rows_for(&setup, &[]);
            let (mut first, mut second) = (database.worker().unwrap(), database.worker().unwrap());
            for inner in Deed::WITH_UPSERTS {
                for late in [false, true] {
                    progress.at(format!("{inner:?} inside of {outer:?}, late: {late}"));
                    // Both find what they look for.
                    let set = |t: &mut Tx<'_, P>| match outer.before().or(inner.before()) {
                        Some(value) => t.upsert(&table, &Item { id: 0, value }),
                        None => t.delete(&table, 0).map(drop),
                    };
                    run(&mut first, set).unwrap();
                    let outcome = run(&mut first, |t| {
                        if late {
                            // The outer one is under way before the inner one begins, and meets its row afterwards.
                            value(t, &table, 100)?;
                        } else {
                            outer.act(t, &table, 0)?;
                        }
                        match run(&mut second, |t| inner.act(t, &table, 0)) {
                            // It is in the way of the inner one.
                            Ok(()) | Err(Error::WaitsForItself { .. } | Error::Unsupported { .. }) => {}
                            Err(error) => panic!("{inner:?} inside of {outer:?}: {error}"),
                        }
                        outer.act(t, &table, 0)
                    });
                    let ended = matches!(outcome, Ok(()) | Err(Error::WaitsForItself { .. }));
                    assert!(ended, "{inner:?} inside of {outer:?}, late: {late}: {outcome:?}");
                }
            }
        }
    });
}

/// Conflicts with another thread are no wait for its own, however many there are in a row, and although something commits inside of each
/// attempt.
pub fn doomed_by_other_threads<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = bounded(setup);
    watched(move |progress| {
        let (database, table) = items(&setup, &[(0, 0), (10, 0)]);
        let add = |t: &mut Tx<'_, P>, id| t.update(&table, id, |row| row.set_value(row.value() + 1)).map(drop);
        let [mut outer, mut inner, mut beside] = [(); 3].map(|()| database.worker().unwrap());
        let (wanted, mut attempts) = (100, 0);
        let outcome = run(&mut outer, |t| {
            attempts += 1;
            progress.at(format!("attempt {attempts}"));
            value(t, &table, 0)?;
            run(&mut inner, |t| add(t, 10)).expect("nobody is in its way");
            if attempts <= wanted {
                let update = || run(&mut beside, |t| add(t, 0)).expect("a read is not in its way");
                std::thread::scope(|scope| scope.spawn(update).join()).expect("no panic");
            }
            add(t, 0)
        });
        assert!(outcome.is_ok(), "after {attempts} attempts: {outcome:?}");
        assert_eq!(attempts, wanted + 1);
        drop(outer);
        assert_eq!(done(&mut inner, |t| Ok((value(t, &table, 0)?, value(t, &table, 10)?))), (Some(101), Some(101)));
    });
}

/// An index that is made on the thread of an open transaction is there, or its maker learns that it would wait for its own
/// thread; made afterwards it is whole.
pub fn new_index_inside_of_a_transaction<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = bounded(setup);
    watched(move |progress| {
        for deed in DEEDS {
            progress.at(format!("an index inside of {deed:?}"));
            let (database, table) = rows_for(&setup, &[deed]);
            let mut worker = database.worker().unwrap();
            let mut client = begin(&mut worker);
            client.step(|t| deed.act(t, &table, 0));
            let made = database.create_index(table.id(), IndexDefinition::new("by_value", [1]));
            match &made {
                Ok(_) | Err(Error::WaitsForItself { .. } | Error::Unsupported { .. }) => {}
                Err(error) => panic!("an index inside of {deed:?}: {error}"),
            }
            progress.at(format!("the end of {deed:?}"));
            let has_committed = client.commit();
            progress.at(format!("an index after {deed:?}"));
            if made.is_err() {
                database.create_index(table.id(), IndexDefinition::new("by_value", [1])).unwrap();
            }
            let expected = if has_committed { deed.of(deed.before()) } else { deed.before() };
            done(&mut worker, |t| t.try_insert(&table, &Item { id: 7, value: 70 }).map(drop::<Insertion>));
            let rows = all(&mut worker, &table);
            let expected: Vec<_> = expected.into_iter().chain([70]).collect();
            assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), expected, "{deed:?}");
        }
    });
}

/// A transaction that is forgotten is never committed, whatever its worker does next, and no longer stands in a client's way.
pub fn leaked_transactions(setup: &Setup<AnyProtocol>) {
    leak(setup, |mut worker, database, table| {
        // An empty transaction has nothing to commit.
        match Client::begin(&mut worker, Mode::ReadWrite) {
            client if client.is_running() => assert!(client.commit()),
            _ => {}
        }
        let mut other = database.worker().unwrap();
        check_rows(&mut other, table);
        check_rows(&mut worker, table);
    });
}

/// The same where the worker leaves after it.
pub fn leaked_transactions_of_workers_that_leave(setup: &Setup<AnyProtocol>) {
    leak(setup, |worker, database, table| {
        drop(worker);
        check_rows(&mut database.worker().unwrap(), table);
    });
}

/// The same where the worker runs something that conflicts, fails, or reads a snapshot.
pub fn leaked_transactions_before_failures(setup: &Setup<AnyProtocol>) {
    leak(setup, |mut worker, database, table| {
        let failed: Result<(), Error> = run(&mut worker, |_| Err(Error::RolledBack));
        assert!(matches!(failed, Err(Error::RolledBack)), "{failed:?}");
        let seen = crate::setup::snapshot(&mut worker, |t| t.scan(table, ..).count());
        assert!(seen <= LEAK_ROWS, "{seen} rows");
        check_rows(&mut database.worker().unwrap(), table);
    });
}

/// Rows before a leaked transaction, each with its id as value; the next ones it inserts.
const LEAK_ROWS: u64 = 8;

/// That nothing has changed, and that everything can be changed.
fn check_rows(worker: &mut <AnyProtocol as Protocol>::Worker, table: &Table<Item>) {
    let rows = all(worker, table);
    let expected: Vec<_> = (0..LEAK_ROWS).map(|id| Item { id, value: id as i64 }).collect();
    assert_eq!(rows, expected, "what was forgotten is there");
}

/// Runs `then` with a worker whose transaction was forgotten, after each number of steps.
fn leak(
    setup: &Setup<AnyProtocol>,
    then: impl Fn(<AnyProtocol as Protocol>::Worker, &Arc<AnyProtocol>, &Table<Item>) + Send + Sync + 'static,
) {
    let setup = bounded(setup);
    watched(move |progress: &Progress| {
        for steps in 0..=DEEDS.len() {
            progress.at(format!("a transaction that is forgotten after {steps} steps"));
            let rows: Vec<_> = (0..LEAK_ROWS).map(|id| (id, id as i64)).collect();
            let (database, table) = items(&setup, &rows);
            setup.pass(&database, 3);
            let mut worker = database.worker().unwrap();
            let mut client = Client::begin(&mut worker, Mode::ReadWrite);
            for (number, deed) in DEEDS.iter().enumerate().take(steps) {
                let id = if *deed == Deed::Insert { 100 } else { number as u64 };
                client.step(|t| deed.act(t, &table, id));
            }
            client.leak();
            setup.pass(&database, 3);
            then(worker, &database, &table);
            // Every row can be written, and background work goes on.
            let mut other = database.worker().unwrap();
            done(&mut other, |t| (0..LEAK_ROWS).try_for_each(|id| Deed::Update.act(t, &table, id)));
            done(&mut other, |t| (0..LEAK_ROWS).chain([100]).try_for_each(|id| Deed::Delete.act(t, &table, id)));
            setup.pass(&database, 3);
            other.maintain();
            assert_eq!(all(&mut other, &table), []);
        }
    });
}

/// How a thread ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It goes out of its transaction.
    Returns,
    Panics,
    /// It forgets the transaction; the worker is dropped.
    Forgets,
}

/// Threads that end at each point of a transaction leave nothing behind, and their slots are reused.
pub fn threads_that_end(setup: &Setup<AnyProtocol>) {
    let mut setup = bounded(setup);
    setup.common.memory.max_workers = 3;
    watched(move |progress: &Progress| {
        let rows: Vec<_> = (0..LEAK_ROWS).map(|id| (id, id as i64)).collect();
        let (database, table) = items(&setup, &rows);
        setup.pass(&database, 3);
        for ending in [Ending::Returns, Ending::Panics, Ending::Forgets] {
            for steps in 0..=DEEDS.len() {
                progress.at(format!("a thread {ending:?} after {steps} steps"));
                let of_thread = Arc::clone(&database);
                let thread = std::thread::spawn(move || {
                    let mut worker = of_thread.worker().unwrap();
                    let mut client = begin(&mut worker);
                    for (number, deed) in DEEDS.iter().enumerate().take(steps) {
                        let id = if *deed == Deed::Insert { 100 } else { number as u64 };
                        client.step(|t| deed.act(t, &table, id));
                    }
                    match ending {
                        Ending::Returns => {}
                        // Without the hook that writes about it.
                        Ending::Panics => resume_unwind(Box::new("on purpose")),
                        Ending::Forgets => client.leak(),
                    }
                });
                assert_eq!(thread.join().is_err(), matches!(ending, Ending::Panics));
                let mut worker = database.worker().unwrap();
                check_rows(&mut worker, &table);
                let written = run(&mut worker, |t| {
                    (0..LEAK_ROWS).try_for_each(|id| Deed::Update.act(t, &table, id))?;
                    Err::<(), Error>(Error::RolledBack)
                });
                assert!(matches!(written, Err(Error::RolledBack)), "{written:?}");
                setup.pass(&database, 1);
            }
        }
    });
}

/// Does something when its thread ends.
struct AtEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

thread_local! {
    static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) };
}

/// Has `prepare` called in the thread that calls this, and what it gives when that thread ends: behind most of what the thread keeps of its
/// own, for what is used first goes last.
pub(super) fn at_end<W: FnOnce() + 'static>(prepare: impl FnOnce() -> W) {
    AT_END.with(|_| ());
    let work = Box::new(prepare());
    AT_END.with_borrow_mut(|progress| progress.0 = Some(work));
}

/// A worker that a thread keeps among its own variables works while the thread ends, when what the engine keeps there may be gone.
pub fn work_at_the_end_of_a_thread<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = bounded(setup);
    watched(move |_| {
        let (database, table) = items(&setup, &[(0, 0), (1, 1), (2, 2)]);
        let of_thread = Arc::clone(&database);
        let thread = std::thread::spawn(move || {
            // What is used first goes last.
            AT_END.with(|_| ());
            let mut worker = of_thread.worker().unwrap();
            let work = move |worker: &mut P::Worker| {
                run(worker, |t| {
                    Deed::Update.act(t, &table, 0)?;
                    Deed::Scan.act(t, &table, 0)?;
                    Deed::Insert.act(t, &table, 7)
                })
            };
            work(&mut worker).unwrap();
            // A panic would end the process, so what fails shows in the rows.
            let at_end = move || {
                let worked = work(&mut worker);
                let seen =
                    worked.and_then(|()| drive::transact(&mut worker, Mode::Snapshot, &mut |t| value(t, &table, 0)));
                if let (Ok(_), Ok(mut another)) = (seen, of_thread.worker()) {
                    let _ = run(&mut another, |t| Deed::Delete.act(t, &table, 2));
                }
            };
            AT_END.with_borrow_mut(|progress| progress.0 = Some(Box::new(at_end)));
        });
        thread.join().unwrap();
        let rows = all(&mut database.worker().unwrap(), &table);
        assert_eq!(rows.iter().map(|row| (row.id, row.value)).collect::<Vec<_>>(), [(0, 2), (1, 1), (7, 10)]);
    });
}

/// A procedure that asks for a conflict itself is tried as often as the options say, and no more.
pub fn conflicts_of_their_own<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    struct Asks {
        runs: u64,
    }
    impl Procedure for Asks {
        type Output = ();
        type Error = Error;
        fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
            self.runs += 1;
            assert!(self.runs < MOST_ATTEMPTS, "it is tried for ever");
            Err(Error::Conflict)
        }
        fn declare<D: Declare>(&self, _: &mut D) {}
    }
    let mut setup = setup.clone();
    setup.common.retry.attempts = 25;
    watched(move |progress| {
        let (database, table) = items(&setup, &[(1, 1)]);
        let mut worker = database.worker().unwrap();
        for mode in [Mode::ReadWrite, Mode::Snapshot] {
            progress.at(format!("{mode:?}"));
            let mut asks = Asks { runs: 0 };
            let outcome = match mode {
                Mode::ReadWrite => worker.execute(&mut asks),
                Mode::Snapshot => worker.snapshot(&mut asks),
            };
            let is_bounded = !matches!(outcome, Ok(()) | Err(Error::Panicked(_)));
            assert!(is_bounded, "{mode:?}: {outcome:?} after {} runs", asks.runs);
        }
        let mut runs = 0;
        let outcome = run(&mut worker, |t: &mut Tx<'_, P>| {
            runs += 1;
            assert!(runs < MOST_ATTEMPTS, "it is tried for ever");
            Deed::Update.act(t, &table, 1)?;
            Err::<(), _>(Error::Conflict)
        });
        assert!(matches!(outcome, Err(ref error) if !matches!(error, Error::Panicked(_))), "{outcome:?}");
        assert_eq!(done(&mut worker, |t| value(t, &table, 1)), Some(1));
    });
}

/// More threads than slots, each of which wants one from time to time: those that find none come again.
pub fn more_threads_than_slots<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const THREADS: i64 = 12;
    const TURNS: i64 = 10;
    let mut setup = setup.clone();
    setup.common.memory.max_workers = 4;
    watched(move |_| {
        let (database, table) = items(&setup, &[(0, 0)]);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        let mut worker = loop {
                            match database.worker() {
                                Ok(worker) => break worker,
                                Err(Error::TooManyWorkers { .. }) => std::thread::yield_now(),
                                Err(error) => panic!("{error}"),
                            }
                        };
                        done(&mut worker, |t| Deed::Update.act(t, &table, 0));
                    }
                });
            }
        });
        let end = done(&mut database.worker().unwrap(), |t| value(t, &table, 0));
        assert_eq!(end, Some(THREADS * TURNS));
    });
}
