//! Transactions that their clients keep open ([`Open`]): how they end, what their operations answer behind an error, and what becomes of them beside
//! others, when they are forgotten, and when their thread panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use polychron_base::Error;
use polychron_base::clock::SystemClock;
use polychron_engine::limits::{Cancellation, Limits};
use polychron_engine::open::{Open, WorkerOwner};
use polychron_engine::options::Submissions;
use polychron_engine::redo::Answers;
use polychron_engine::submission::Service;
use polychron_engine::{
    Access, Declare, Futures, Interactive, Isolation, Mode, Operations, Procedure, Protocol, Statistics, Table,
    Transaction,
};
use polychron_schema::{Key, KeyScratch};

use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::{all, done, items, run};

type Kept<'w, P> = Open<'w, <P as Protocol>::Worker>;

fn open<P: Protocol<Worker: Interactive>>(worker: &mut P::Worker) -> Kept<'_, P> {
    Kept::<P>::lend(worker, &Answers::default(), Mode::ReadWrite).expect("a transaction begins")
}

fn add<T: Transaction>(t: &mut T, table: &Table<Item>, id: u64, by: i64) -> Result<bool, Error> {
    t.update(table, id, |row| row.set_value(row.value() + by))
}

fn values<P: Protocol<Worker: Interactive>>(worker: &mut P::Worker, table: &Table<Item>) -> Vec<(u64, i64)> {
    all(worker, table).into_iter().map(|Item { id, value }| (id, value)).collect()
}

/// What is counted of transactions: commits, what was refused or rolled back, and conflicts.
fn counted(statistics: &Statistics) -> (u64, u64, u64) {
    (statistics.commits, statistics.refusals, statistics.aborts.iter().sum())
}

/// A commit keeps what was written; a rollback, and a drop, nothing of it. They are counted as those of closures.
pub fn end<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let before = counted(&database.statistics());
    let mut kept = open::<P>(&mut worker);
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    kept.insert(&table, &Item { id: 2, value: 20 }).unwrap();
    assert_eq!(value(&mut kept, &table, 1).unwrap(), Some(11), "it reads its own writes");
    kept.commit().unwrap();
    let mut kept = open::<P>(&mut worker);
    kept.delete(&table, 1).unwrap();
    assert!(kept.rollback(), "what it has read was consistent");
    let mut kept = open::<P>(&mut worker);
    kept.insert(&table, &Item { id: 3, value: 30 }).unwrap();
    drop(kept);
    open::<P>(&mut worker).commit().unwrap();
    let (commits, refusals, aborts) = counted(&database.statistics());
    assert_eq!((commits - before.0, refusals - before.1, aborts - before.2), (2, 2, 0));
    assert_eq!(values::<P>(&mut worker, &table), [(1, 11), (2, 20)]);
}

/// A refusal leaves the transaction open.
pub fn go_on_behind_refusals<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let mut kept = open::<P>(&mut worker);
    assert!(matches!(kept.insert(&table, &Item { id: 1, value: 5 }), Err(Error::Duplicate(_))));
    let failed = kept.update(&table, 1, |row| {
        row.set_value(99);
        Err(Error::RolledBack)
    });
    assert!(matches!(failed, Err(Error::RolledBack)), "{failed:?}");
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    kept.commit().unwrap();
    assert_eq!(values::<P>(&mut worker, &table), [(1, 11)]);
}

/// Of two that read a row and write it, one commits. The other one is answered with conflicts from then on, and is counted; begun again, it
/// commits.
pub fn conflict<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    let before = counted(&database.statistics());
    let mut slow = open::<P>(&mut one);
    let read = value(&mut slow, &table, 1).unwrap().unwrap();
    // The other one does not get past a lock.
    let fast = run(&mut two, |t| add(t, &table, 1, 5));
    let fast_has_committed = match fast {
        Ok(found) => found,
        Err(Error::WaitsForItself(_)) => false,
        Err(other) => panic!("{other}"),
    };
    let written = slow.update(&table, 1, |row| row.set_value(read + 1));
    if !fast_has_committed {
        assert!(written.unwrap());
        slow.commit().unwrap();
        assert_eq!(values::<P>(&mut two, &table), [(1, 11), (2, 20)]);
        return;
    }
    if let Err(error) = &written {
        assert!(error.is_conflict(), "{error}");
        for _ in 0..2 {
            let again = value(&mut slow, &table, 2);
            assert!(again.as_ref().is_err_and(Error::is_conflict), "{again:?}");
        }
    }
    let ended = slow.commit();
    let Err(Error::Conflicts(conflicts)) = ended else { panic!("{ended:?}") };
    assert_eq!((conflicts.attempts, conflicts.abort.table), (1, table.id()));
    assert!(conflicts.to_string().contains("item"), "{conflicts}");
    let (commits, refusals, aborts) = counted(&database.statistics());
    assert_eq!((commits - before.0, refusals - before.1, aborts - before.2), (1, 0, 1));
    let mut again = open::<P>(&mut one);
    add(&mut again, &table, 1, 1).unwrap();
    again.commit().unwrap();
    assert_eq!(values::<P>(&mut two, &table), [(1, 16), (2, 20)]);
}

/// A loop that begins conflicts again ends, also where the thread itself commits meanwhile what dooms each attempt: by a commit, or an error that is
/// no conflict. Begun once more without that, it commits.
pub fn doomed_by_their_own_thread<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const ATTEMPTS: usize = 100;
    if !setup.interleaves {
        return;
    }
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    let mut doomed = || {
        let mut kept = open::<P>(&mut one);
        let read = value(&mut kept, &table, 1)?.expect("it is there");
        run(&mut two, |t| add(t, &table, 1, 1))?;
        // Where the operation conflicts, the commit says why.
        match kept.update(&table, 1, |row| row.set_value(read + 1)) {
            Err(error) if !error.is_conflict() => Err(error),
            _ => kept.commit(),
        }
    };
    let ended = (0..ATTEMPTS).map(|_| doomed()).find(|ended| !ended.as_ref().is_err_and(Error::is_conflict));
    match ended {
        Some(Ok(())) if setup.isolation != Isolation::Serializable => {}
        Some(Err(error @ Error::WaitsForItself(_))) => {
            assert!(!error.is_conflict() && error.to_string().contains("item"))
        }
        other => panic!("after {ATTEMPTS} attempts: {other:?}"),
    }
    let mut kept = open::<P>(&mut one);
    let before = value(&mut kept, &table, 1).unwrap();
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    kept.commit().unwrap();
    assert_eq!(done(&mut two, |t| value(t, &table, 1)), before.map(|before| before + 1));
}

/// What the engine gives up is over: nothing of it remains, and whatever is asked of it is an error.
pub fn given_up<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let mut kept = open::<P>(&mut worker);
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    assert!(matches!(kept.give_up(Error::key_too_long(None)), Error::KeyTooLong(_)));
    assert!(matches!(value(&mut kept, &table, 1), Err(Error::Ended)));
    assert!(matches!(add(&mut kept, &table, 1, 1), Err(Error::Ended)));
    assert!(matches!(kept.scan(&table, ..).count(), Err(Error::Ended)));
    assert!(matches!(kept.commit(), Err(Error::Ended)));
    let mut kept = open::<P>(&mut worker);
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    // As an operation does from its midst.
    let ended = kept.scan(&table, ..).for_each(|_| std::panic::resume_unwind(Box::new(Error::key_too_long(None))));
    assert!(matches!(ended, Err(Error::KeyTooLong(_))), "{ended:?}");
    assert!(matches!(value(&mut kept, &table, 1), Err(Error::Ended)));
    drop(kept);
    assert_eq!(values::<P>(&mut worker, &table), [(1, 10)]);
}

/// One that is forgotten never commits, and its worker begins others.
pub fn forgotten<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    for round in 0..3 {
        let mut kept = open::<P>(&mut worker);
        assert!(add(&mut kept, &table, 1, 1).unwrap());
        kept.insert(&table, &Item { id: 7, value: 70 }).unwrap();
        std::mem::forget(kept);
        let mut kept = open::<P>(&mut worker);
        assert!(add(&mut kept, &table, 1, 10).unwrap());
        kept.commit().unwrap();
        assert_eq!(values::<P>(&mut worker, &table), [(1, 20 + 10 * round)]);
    }
}

/// A panic undoes what is open when it passes, and leaves open what catches it.
pub fn beside_panics<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    let passed = catch_unwind(AssertUnwindSafe(|| {
        let mut kept = open::<P>(&mut worker);
        add(&mut kept, &table, 1, 1).unwrap();
        std::panic::resume_unwind(Box::new("the client's own"));
    }));
    assert!(passed.is_err());
    assert_eq!(values::<P>(&mut worker, &table), [(1, 10), (2, 20)]);
    let mut kept = open::<P>(&mut worker);
    assert!(add(&mut kept, &table, 2, 1).unwrap());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        kept.update(&table, 1, |_| -> () { std::panic::resume_unwind(Box::new("the client's own")) })
    }));
    assert!(caught.is_err());
    assert!(add(&mut kept, &table, 2, 1).unwrap());
    kept.commit().unwrap();
    assert_eq!(values::<P>(&mut worker, &table), [(1, 10), (2, 22)]);
}

/// Beside one that is open, closures of the same thread run where it is not in their way; where they would wait for it, they are told at once.
pub fn beside_closures<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    let mut kept = open::<P>(&mut one);
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    let other = run(&mut two, |t| add(t, &table, 2, 1));
    let same = run(&mut two, |t| add(t, &table, 1, 5));
    if setup.interleaves {
        assert!(matches!(other, Ok(true) | Err(Error::WaitsForItself(_))), "{other:?}");
    }
    for outcome in [&other, &same] {
        let is_told = matches!(outcome, Err(Error::WaitsForItself(_) | Error::Unsupported(_)));
        assert!(outcome.is_ok() || is_told, "{outcome:?}");
    }
    let (other, same) = (i64::from(other.is_ok()), i64::from(same.is_ok()));
    match kept.commit() {
        Ok(()) => assert_eq!(values::<P>(&mut two, &table), [(1, 11 + 5 * same), (2, 20 + other)]),
        Err(error) => {
            assert!(same == 1 && (error.is_conflict() || matches!(error, Error::WaitsForItself(_))), "{error}");
            assert_eq!(values::<P>(&mut two, &table), [(1, 15), (2, 20 + other)]);
        }
    }
}

/// Those of a thread end in any order.
pub fn end_in_any_order<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    let (database, table) = items(setup, &[(1, 10), (2, 20), (3, 30)]);
    let mut workers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut kept: Vec<_> = workers.iter_mut().map(|worker| Some(open::<P>(worker))).collect();
        for (id, kept) in (1..).zip(&mut kept) {
            assert!(add(kept.as_mut().unwrap(), &table, id, 1).unwrap());
        }
        for at in order {
            kept[at].take().unwrap().commit().unwrap();
        }
    }
    assert_eq!(values::<P>(&mut workers[0], &table), [(1, 16), (2, 26), (3, 36)]);
}

/// On a snapshot nothing is written, and nothing conflicts; it is counted as no commit.
pub fn snapshots<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    let before = counted(&database.statistics());
    let mut kept = Kept::<P>::lend(&mut one, &Answers::default(), Mode::Snapshot).unwrap();
    let seen = value(&mut kept, &table, 1).unwrap();
    if setup.snapshots_interleave && !setup.snapshots_lock {
        done(&mut two, |t| add(t, &table, 1, 1));
    }
    assert_eq!(value(&mut kept, &table, 1).unwrap(), seen);
    assert!(matches!(add(&mut kept, &table, 1, 1), Err(Error::ReadOnly)));
    kept.commit().unwrap();
    drop(Kept::<P>::lend(&mut one, &Answers::default(), Mode::Snapshot).unwrap());
    let (commits, refusals, aborts) = counted(&database.statistics());
    let own = u64::from(setup.snapshots_interleave && !setup.snapshots_lock);
    assert_eq!((commits - before.0, refusals - before.1, aborts - before.2), (own, 0, 0));
}

/// A worker that the transaction has for itself goes home when it has ended, however.
pub fn with_their_own_workers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    struct Shelf<W>(Rc<Cell<Option<Box<W>>>>);

    impl<W> WorkerOwner<W> for Shelf<W> {
        fn take_back(self, worker: Box<W>) {
            self.0.set(Some(worker));
        }
    }

    let (database, table) = items(setup, &[(1, 10)]);
    let shelf = Rc::new(Cell::new(Some(Box::new(database.worker().unwrap()))));
    let own = || {
        let worker = shelf.take().expect("it came home");
        Open::<'static, P::Worker, _>::own(worker, Shelf(Rc::clone(&shelf)), &Answers::default(), Mode::ReadWrite)
    };
    let mut kept = own().unwrap();
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    kept.commit().unwrap();
    let mut kept = own().unwrap();
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    kept.rollback();
    let mut kept = own().unwrap();
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    drop(kept);
    let token = Cancellation::default();
    token.cancel();
    let begun = Limits::token(&token).hold(|| own().map(drop));
    assert!(matches!(begun, Err(Error::Cancelled)), "{begun:?}");
    let late = Cancellation::default();
    let ended = Limits::token(&late).hold(|| {
        let mut kept = own()?;
        add(&mut kept, &table, 1, 1)?;
        late.cancel();
        kept.commit()
    });
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert_eq!(values::<P>(&mut shelf.take().unwrap(), &table), [(1, 11)]);
}

/// Futures belong to it as to any other, and have their values when it has committed.
pub fn leave_futures_open<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    let mut kept = open::<P>(&mut worker);
    let old = kept.future(&table, 1, Item::VALUE).unwrap();
    kept.set_future(&table, 1, Item::VALUE, old + 1).unwrap();
    assert_eq!(kept.commit_resolved((old, old + 1)).unwrap(), (10, 11));
    let mut kept = open::<P>(&mut worker);
    let foreign = kept.set_future(&table, 2, Item::VALUE, old);
    assert!(matches!(foreign, Err(Error::NoValue(_))), "{foreign:?}");
    drop(kept);
    assert_eq!(values::<P>(&mut worker, &table), [(1, 11), (2, 20)]);
}

/// Adds one to a row, when it is let.
struct Add(Table<Item>, Receiver<()>);

impl Procedure for Add {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        // Once it is let, it is let each time that it is run again.
        let _ = self.1.recv();
        add(t, &self.0, 1, 1).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
    }
}

/// Whoever has one open does not wait for a submission, which may wait for it.
pub fn beside_submissions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let options = Submissions { threads: 1, ..Submissions::default() };
    let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
    let mut worker = database.worker().unwrap();
    let mut kept = open::<P>(&mut worker);
    assert!(add(&mut kept, &table, 1, 1).unwrap());
    let (lets, is_let) = channel();
    let refused = service.submit(Add(table, is_let)).wait();
    let Err(Error::Unsupported(why)) = &refused else { panic!("{refused:?}") };
    assert_eq!(why.protocol, database.name());
    drop(kept);
    drop(lets);
    let (_, is_let) = channel();
    service.submit(Add(table, is_let)).wait().unwrap();
    drop(service);
    assert_eq!(values::<P>(&mut worker, &table), [(1, 12)]);
}
