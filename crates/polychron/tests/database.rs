//! The public API: what users of the library meet, beyond the examples of the documentation.

use std::cell::RefCell;
use std::sync::{Arc, Barrier};

use polychron::{Database, Error, EvolutionError, Operations, Options, Row};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "account")]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

/// A row of the same table's name with other columns.
#[derive(Row, Clone, Debug)]
#[row(name = "account")]
struct Impostor {
    #[key]
    id: u64,
    name: String,
}

fn open(max_workers: usize) -> Database {
    let mut options = Options::default();
    options.common.memory.max_workers = max_workers;
    Database::builder().options(options).in_memory().unwrap()
}

#[test]
fn tables_are_found_by_name_and_columns() {
    let database = open(4);
    let accounts = database.create_table::<Account>().unwrap();
    assert_eq!(database.table::<Account>().unwrap().map(|table| table.id()), Some(accounts.id()));
    assert!(matches!(database.table::<Impostor>(), Err(Error::Other(error)) if error.is::<EvolutionError>()));
    assert!(matches!(database.create_table::<Account>(), Err(Error::NameTaken(name)) if name == "account"));
    database.drop_table(accounts.id()).unwrap();
    assert!(database.table::<Account>().unwrap().is_none());
}

#[test]
fn any_thread_transacts_and_no_slot_leaks() {
    let database = open(8);
    let accounts = database.create_table::<Account>().unwrap();
    database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 0 })).unwrap();
    for _ in 0..20 {
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let add = |row: &mut AccountMut<'_>| row.set_balance(row.balance() + 1);
                    database.transact(|transaction| transaction.update(&accounts, 1, add)).unwrap();
                    let failed = database.transact(|_| Err::<(), _>(Error::RolledBack));
                    assert!(matches!(failed, Err(Error::RolledBack)));
                    let panicked = database.transact(|_| -> Result<(), Error> { panic!("as a test") });
                    assert!(matches!(panicked, Err(Error::Panicked(_))));
                });
            }
        });
    }
    let balance =
        database.transact(|transaction| transaction.get(&accounts, 1).map(|row| row.map(|row| row.balance())));
    assert_eq!(balance.unwrap(), Some(80));
}

#[test]
fn sessions_take_the_slots_of_idle_workers() {
    let database = open(4);
    database.transact(|_| Ok::<_, Error>(())).unwrap();
    // Protocols may keep slots for themselves; the worker behind `transact` is not to hold one back for good.
    let refused = |outcome: &Error| matches!(outcome, Error::TooManyWorkers { .. });
    let mut sessions = Vec::new();
    let last = loop {
        match database.session() {
            Ok(session) => sessions.push(session),
            Err(error) => break error,
        }
    };
    assert!(refused(&last) && sessions.len() >= 3, "{last}, {} sessions", sessions.len());
    assert!(database.transact(|_| Ok(())).is_err_and(|error| refused(&error)));
    sessions.pop();
    database.transact(|_| Ok::<_, Error>(())).unwrap();
}

#[test]
fn a_snapshot_refuses_to_write() {
    let database = open(2);
    let accounts = database.create_table::<Account>().unwrap();
    let row = Account { id: 1, balance: 5 };
    assert!(matches!(database.snapshot(|transaction| transaction.insert(&accounts, &row)), Err(Error::ReadOnly)));
    database.transact(|transaction| transaction.insert(&accounts, &row)).unwrap();
    let rows = database.transact(|transaction| transaction.scan(&accounts, ..).rows()).unwrap();
    assert_eq!(rows, [row]);
}

/// Runs a test that hangs when it fails in a thread of its own.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let running = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match is_done.recv_timeout(std::time::Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => running.join().unwrap(),
    }
}

#[test]
fn more_threads_than_slots_wait_for_workers() {
    within_a_minute(|| {
        const THREADS: u64 = 40;
        let database = open(4);
        let accounts = database.create_table::<Account>().unwrap();
        database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 0 })).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let database = &database;
                scope.spawn(move || {
                    for round in 0..20 {
                        if (thread + round) % 5 == 0 {
                            let panicked = database.transact(|_| -> Result<(), Error> { panic!("as a test") });
                            assert!(matches!(panicked, Err(Error::Panicked(_))), "{panicked:?}");
                        }
                        if (thread + round) % 7 == 0 {
                            // A session takes a slot when there is one, and gives it back behind the pool's back.
                            drop(database.session());
                        }
                        let add = |row: &mut AccountMut<'_>| row.set_balance(row.balance() + 1);
                        let outcome = database.transact(|transaction| {
                            std::thread::yield_now();
                            transaction.update(&accounts, 1, add)
                        });
                        assert!(matches!(outcome, Ok(true)), "{outcome:?}");
                    }
                });
            }
        });
        let balance = database.transact(|t| Ok::<_, Error>(t.get(&accounts, 1)?.map(|row| row.balance()))).unwrap();
        assert_eq!(balance, Some(20 * THREADS as i64));
    });
}

/// Transactions inside of transactions, as deep as there are workers: the one that could only wait for its own thread fails.
#[test]
fn a_thread_does_not_wait_for_its_own_workers() {
    fn nest(database: &Database, depth: usize) -> usize {
        let mut deepest = depth;
        let outcome = database.transact(|_| {
            deepest = nest(database, depth + 1);
            Ok(())
        });
        assert!(matches!(outcome, Ok(()) | Err(Error::TooManyWorkers { .. })), "{outcome:?}");
        deepest
    }
    within_a_minute(|| {
        let database = open(6);
        let alone = nest(&database, 0);
        assert!((2..=6).contains(&alone), "{alone} workers");
        assert_eq!(nest(&database, 0), alone, "all of them came back");
        // Several threads that nest at the same time: whoever would close the cycle fails, and the others go on.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10).for_each(|_| assert!(nest(&database, 0) <= alone)));
            }
        });
        assert_eq!(nest(&database, 0), alone, "all of them came back");
    });
}

/// Sessions that hold all slots may hold them for ever, so nobody waits for them.
#[test]
fn no_transaction_waits_for_sessions() {
    within_a_minute(|| {
        let database = open(4);
        let mut sessions: Vec<_> = std::iter::from_fn(|| database.session().ok()).collect();
        assert!(matches!(database.transact(|_| Ok(())), Err(Error::TooManyWorkers { .. })));
        sessions.pop();
        // One transaction holds the last slot, another one waits for it, and gets what a session leaves.
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = database.transact(|_| {
                    barrier.wait();
                    barrier.wait();
                    Ok::<_, Error>(())
                });
                held.unwrap();
            });
            barrier.wait();
            let waiting = scope.spawn(|| database.transact(|_| Ok::<_, Error>(())));
            sessions.pop();
            waiting.join().unwrap().unwrap();
            barrier.wait();
        });
    });
}

/// What a thread does last, when what others kept there may be gone.
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

/// Destructors of a thread's variables transact as any other code does, also those that run after the library's own.
#[test]
fn destructors_of_a_thread_transact() {
    let database = Arc::new(open(4));
    let accounts = database.create_table::<Account>().unwrap();
    let of_thread = Arc::clone(&database);
    let thread = std::thread::spawn(move || {
        // What is used first goes last.
        AT_END.with(|_| ());
        let insert = move |id| of_thread.transact(|t| t.insert(&accounts, &Account { id, balance: 0 }));
        insert(1).unwrap();
        // A panic would end the process, so what fails shows in the rows.
        AT_END.with_borrow_mut(|at_end| at_end.0 = Some(Box::new(move || drop(insert(2)))));
    });
    thread.join().unwrap();
    assert_eq!(database.transact(|t| t.scan(&accounts, ..).count()).unwrap(), 2);
}

/// A thread with transactions of many databases open transacts on one more, and is refused, and does not wait, where that has no worker left.
#[test]
fn many_databases_in_one_thread() {
    fn nest(databases: &[Database], then: &mut dyn FnMut()) {
        match databases.split_first() {
            None => then(),
            Some((first, others)) => {
                first
                    .transact(|_| {
                        nest(others, then);
                        Ok::<_, Error>(())
                    })
                    .unwrap();
            }
        }
    }
    let databases: Vec<Database> = (0..12).map(|_| open(1)).collect();
    nest(&databases, &mut || {
        for database in &databases {
            assert!(matches!(database.transact(|_| Ok(())), Err(Error::TooManyWorkers { .. })));
        }
    });
    nest(&databases, &mut || ());
}
