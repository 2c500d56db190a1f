//! Closures that are submitted.

use std::sync::mpsc::channel;

use polychron::protocols::{Cicada, Hyper, Maflingo};
use polychron::{
    Database, Error, Interactive, Operations, Options, Procedure, Protocol, ProtocolInfo, ProtocolList,
    ProtocolVisitor, Protocols, Row, Table, Transaction,
};

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

const ACCOUNTS: u64 = 8;

fn open<P: Protocol>() -> (Database<P>, Table<Account>) {
    open_with(P::Options::default())
}

fn open_with<P: Protocol>(protocol: P::Options) -> (Database<P>, Table<Account>) {
    let mut options = Options { protocol, common: Default::default() };
    options.common.memory.huge_pages = false;
    options.common.submissions.threads = 2;
    let database = Database::builder().with::<P>().options(options).in_memory().unwrap();
    let accounts = database.create_table::<Account>().unwrap();
    (database, accounts)
}

/// The same as a procedure.
struct Deposit(Table<Account>, u64);

impl Procedure for Deposit {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        transaction.update(&self.0, self.1, |row| row.set_balance(row.balance() + 1)).map(drop)
    }
}

fn is_answered<P: Protocol<Worker: Interactive>>(name: &str, protocol: P::Options) {
    let (database, accounts) = open_with::<P>(protocol);
    let rows: Vec<_> = (0..ACCOUNTS).map(|id| Account { id, balance: 0 }).collect();
    // What a closure owns lives until it has run.
    let loaded =
        database.submit_closure(move |transaction| rows.iter().try_for_each(|row| transaction.insert(&accounts, row)));
    loaded.wait().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let database = &database;
            scope.spawn(move || {
                let mut closures = Vec::new();
                let mut procedures = Vec::new();
                for number in 0..400 {
                    let id = (thread + number) % ACCOUNTS;
                    closures.push(database.submit_closure(move |transaction| -> Result<i64, Error> {
                        transaction.update(&accounts, id, |row| row.set_balance(row.balance() + 1))?;
                        transaction.update(&accounts, (id + 1) % ACCOUNTS, |row| row.set_balance(row.balance() - 1))?;
                        Ok(transaction.get_owned(&accounts, id)?.map_or(0, |row| row.balance))
                    }));
                    procedures.push(database.submit(Deposit(accounts, id)));
                }
                assert!(closures.into_iter().all(|closure| closure.wait().is_ok()));
                procedures.into_iter().for_each(|procedure| procedure.wait().unwrap());
            });
        }
    });
    let sum: i64 =
        database.transact(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum()).unwrap();
    assert_eq!(sum, 3 * 400, "{name}");
}

#[test]
fn closures_and_procedures_are_executed_once_each() {
    struct Answers;

    impl ProtocolVisitor for Answers {
        type Output = bool;

        fn visit<P: Protocol>(self, _: &ProtocolInfo) -> bool {
            false
        }

        fn visit_interactive<P: Protocol<Worker: Interactive>>(self, info: &ProtocolInfo) -> bool {
            is_answered::<P>(info.name, info.options_of::<P>().unwrap());
            true
        }
    }

    let visited = |info: &ProtocolInfo| Protocols::visit(info.name, Answers).unwrap();
    let without: Vec<_> = Protocols::all().into_iter().filter(|info| !visited(info)).map(|info| info.name).collect();
    assert_eq!(without, ["bohm"], "protocols that take no closures");
}

#[derive(Debug, thiserror::Error)]
enum Own {
    #[error("not enough")]
    NotEnough,
    #[error(transparent)]
    Database(#[from] Error),
}

/// Something that panics when it is dropped, unless some panic is on its way.
struct Drops;

impl Drop for Drops {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[test]
fn errors_and_panics_are_answers() {
    let (database, accounts) = open::<Cicada>();
    let refused = database.submit_closure(move |transaction| -> Result<(), Own> {
        transaction.insert(&accounts, &Account { id: 1, balance: 0 })?;
        Err(Own::NotEnough)
    });
    assert!(matches!(refused.wait(), Err(Own::NotEnough)));
    let panicked = database.submit_closure(|_| -> Result<(), Own> { panic!("at the disco") });
    let Err(Own::Database(Error::Panicked(text))) = panicked.wait() else { panic!("it panicked") };
    assert!(text.to_string().contains("at the disco"));
    let drops = Drops;
    let dropped = database.submit_closure(move |_| -> Result<u64, Own> {
        let _ = &drops;
        Ok(7)
    });
    assert_eq!(dropped.wait().unwrap(), 7);
    let is_empty =
        database.submit_closure(move |transaction| Ok::<_, Error>(transaction.scan(&accounts, ..).count()? == 0));
    assert!(is_empty.wait().unwrap(), "what failed has changed nothing");
    let inside = database.submit_closure({
        let database = database.clone();
        move |_| database.submit_closure(|_| Ok::<_, Error>(())).wait()
    });
    // Another thread may have been so fast that the answer is there already.
    assert!(matches!(inside.wait(), Ok(()) | Err(Error::Unsupported(_))), "it would wait for itself");
}

#[test]
fn a_closure_that_lasts_holds_up_no_other() {
    let (database, accounts) = open::<Maflingo>();
    let (go_on, waits) = channel::<()>();
    let lasting = database.submit_closure(move |_| {
        waits.recv().expect("the test sends something");
        Ok::<_, Error>(())
    });
    let others: Vec<_> = (0..100)
        .map(|id| {
            database.submit_closure(move |transaction| transaction.insert(&accounts, &Account { id, balance: 1 }))
        })
        .collect();
    others.into_iter().for_each(|other| other.wait().unwrap());
    assert!(!lasting.is_answered());
    go_on.send(()).unwrap();
    lasting.wait().unwrap();
}

#[test]
fn a_dropped_database_executes_closures_that_are_under_way() {
    let (database, accounts) = open::<Hyper>();
    let other = database.clone();
    let submitted: Vec<_> = (0..1000)
        .map(|id| {
            database.submit_closure(move |transaction| transaction.insert(&accounts, &Account { id, balance: 1 }))
        })
        .collect();
    drop(database);
    drop(other);
    submitted.into_iter().for_each(|submission| submission.wait().unwrap());
}

#[cfg(feature = "any")]
#[test]
fn a_protocol_that_plans_refuses_closures() {
    let database = Database::builder().small().protocol("bohm").in_memory().unwrap();
    let refused = database.submit_closure(|_| Ok::<_, Error>(()));
    assert!(matches!(refused.wait(), Err(Error::Unsupported(_))));
}
