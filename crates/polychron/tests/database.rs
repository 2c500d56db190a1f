//! The face: what users of the library meet, beyond the examples of the documentation.

use std::sync::Barrier;

use polychron::{Database, Error, Operations, Options, Row, Stop};

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
    Database::open(options).unwrap()
}

#[test]
fn tables_are_found_by_name_and_columns() {
    let database = open(4);
    let accounts = database.create_table::<Account>().unwrap();
    assert_eq!(database.table::<Account>().unwrap().map(|table| table.id()), Some(accounts.id()));
    assert!(matches!(database.table::<Impostor>(), Err(Error::Definition(_))));
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
                    let failed = database.transact(|_| Err::<(), _>(Stop::roll_back()));
                    assert!(matches!(failed, Err(Error::RolledBack)));
                    let panicked = database.transact(|_| -> Result<(), Stop> { panic!("as a test") });
                    assert!(matches!(panicked, Err(Error::Panicked(_))));
                });
            }
        });
    }
    let balance = database.transact(|transaction| Ok(transaction.get(&accounts, 1)?.map(|row| row.balance())));
    assert_eq!(balance.unwrap(), Some(80));
}

#[test]
fn sessions_take_the_slots_of_idle_workers() {
    let database = open(4);
    database.transact(|_| Ok(())).unwrap();
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
    database.transact(|_| Ok(())).unwrap();
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
