//! Transactions as objects, with workers of the database: what becomes of the worker, however the object ends. How the transactions behave is tested
//! with all protocols in `lab/check`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polychron::protocols::{
    Cicada, Hyper, LazyCicada, LazyHyper, LazyLocking, LazyMaflingo, Locking, Maflingo, Serial,
};
use polychron::{Database, Error, Interactive, OpenTransaction, Operations, Protocol, Row, Table};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "account")]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn open<P: Protocol<Worker: Interactive>>(workers: usize) -> (Database<P>, Table<Account>) {
    let database = Database::builder().small().workers(workers).with::<P>().in_memory().unwrap();
    let accounts = database.create_table().unwrap();
    database.transact(|t| t.insert(&accounts, &Account { id: 1, balance: 0 })).unwrap();
    (database, accounts)
}

fn balance<P: Protocol<Worker: Interactive>>(database: &Database<P>, accounts: &Table<Account>) -> i64 {
    database.transact(|t| t.get_owned(accounts, 1)).unwrap().unwrap().balance
}

/// A unit of work that keeps its transaction, as code does that cannot be a closure.
struct Unit<P: Protocol<Worker: Interactive>> {
    transaction: OpenTransaction<'static, P>,
    accounts: Table<Account>,
}

impl<P: Protocol<Worker: Interactive>> Unit<P> {
    fn begin(database: &Database<P>, accounts: Table<Account>) -> Result<Self, Error> {
        Ok(Self { transaction: database.begin()?, accounts })
    }

    fn add(&mut self, by: i64) -> Result<bool, Error> {
        self.transaction.update(&self.accounts, 1, |row| row.set_balance(row.balance() + by))
    }
}

/// However an object ends, its worker comes back: there is one, beside that of a session.
fn no_slot_is_lost<P: Protocol<Worker: Interactive>>() {
    let (database, accounts) = open::<P>(2);
    let mut session = database.session().unwrap();
    for _ in 0..30 {
        let mut unit = Unit::begin(&database, accounts).unwrap();
        assert!(unit.add(1).unwrap());
        unit.transaction.commit().unwrap();
        let mut unit = Unit::begin(&database, accounts).unwrap();
        assert!(unit.add(1).unwrap());
        unit.transaction.rollback();
        let mut unit = Unit::begin(&database, accounts).unwrap();
        assert!(unit.add(1).unwrap());
        drop(unit);
        drop(database.begin_snapshot().unwrap());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut unit = Unit::begin(&database, accounts).unwrap();
            assert!(unit.add(1).unwrap());
            std::panic::resume_unwind(Box::new("as a test"));
        }));
        assert!(panicked.is_err());
        let mut transaction = session.begin().unwrap();
        assert!(transaction.update(&accounts, 1, |row| row.set_balance(row.balance() + 10)).unwrap());
        transaction.commit().unwrap();
    }
    assert_eq!(balance(&database, &accounts), 30 * 11, "{}", P::NAME);
    let held = database.begin().unwrap();
    let more = database.begin();
    assert!(matches!(more, Err(Error::TooManyWorkers { limit: 2 })), "{}: {more:?}", P::NAME);
    // What waits for the worker is given it when the object ends.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| balance(&database, &accounts));
        drop(held);
        assert_eq!(waiting.join().unwrap(), 30 * 11, "{}", P::NAME);
    });
}

macro_rules! with_each {
    ($($name:ident: $protocol:ty;)*) => {$(
        #[test]
        fn $name() {
            no_slot_is_lost::<$protocol>();
        }
    )*};
}

with_each! {
    cicada: Cicada;
    maflingo: Maflingo;
    hyper: Hyper;
    locking: Locking;
    serial: Serial;
    lazy_cicada: LazyCicada;
    lazy_hyper: LazyHyper;
    lazy_locking: LazyLocking;
    lazy_maflingo: LazyMaflingo;
}

/// The worker of a forgotten one is lost, and nothing of the transaction is ever seen.
#[test]
fn a_forgotten_one_never_commits() {
    let (database, accounts) = open::<Cicada>(2);
    let mut unit = Unit::begin(&database, accounts).unwrap();
    assert!(unit.add(1).unwrap());
    std::mem::forget(unit.transaction);
    for _ in 0..10 {
        database.transact(|t| t.update(&accounts, 1, |row| row.set_balance(row.balance() + 10))).unwrap();
    }
    assert_eq!(balance(&database, &accounts), 100);
}

/// What goes by a name is called by it in errors.
#[cfg(feature = "any")]
mod chosen_by_name {
    use std::sync::mpsc::{Receiver, channel};

    use polychron::{Procedure, ProtocolList, Protocols, Transaction};

    use super::*;

    /// Does nothing, once it is let.
    struct Nothing(Receiver<()>);

    impl Procedure for Nothing {
        type Output = ();
        type Error = Error;

        fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
            let _ = self.0.recv();
            Ok(())
        }
    }

    #[test]
    fn transactions_are_objects_where_the_protocol_has_them() {
        for protocol in Protocols::all().iter().map(|info| info.name) {
            let database = Database::builder().small().protocol(protocol).in_memory().unwrap();
            let accounts = database.create_table::<Account>().unwrap();
            let mut transaction = match database.begin() {
                Ok(transaction) => transaction,
                Err(error) => {
                    let text = format!("{protocol} does not offer transactions that are driven step by step");
                    assert_eq!(error.to_string(), text);
                    assert!(matches!(database.session().unwrap().begin(), Err(Error::Unsupported(_))));
                    let text = database.transact(|_| Ok::<_, Error>(())).unwrap_err().to_string();
                    assert!(text.starts_with(protocol), "{text}");
                    continue;
                }
            };
            transaction.insert(&accounts, &Account { id: 1, balance: 5 }).unwrap();
            let (lets, is_let) = channel();
            let waits = database.submit(Nothing(is_let)).wait();
            drop(lets);
            let Err(Error::Unsupported(waits)) = waits else { panic!("{protocol}: {waits:?}") };
            assert_eq!(waits.protocol, protocol);
            transaction.commit().unwrap();
            assert_eq!(balance(&database, &accounts), 5, "{protocol}");
        }
    }

    #[test]
    fn options_are_those_of_the_protocol() {
        for protocol in Protocols::all().iter().map(|info| info.name) {
            let refused = Database::builder().small().protocol(protocol).protocol_option("colour", "red").in_memory();
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("colour") && !text.contains("any "), "{protocol}: {text}");
        }
        let hyper = Database::builder().small().protocol("hyper");
        let snapshot = hyper.protocol_option("level", "snapshot").in_memory().unwrap();
        assert_eq!(polychron::Protocol::name(&**snapshot.protocol()), "hyper-snapshot");
    }
}
