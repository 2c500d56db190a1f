//! Bounds of transactions: time, cancellation, attempts.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use polychron::protocols::{
    Cicada, Hyper, LazyCicada, LazyHyper, LazyLocking, LazyMaflingo, Locking, Maflingo, Serial,
};
use polychron::{
    Builder, Cancellation, Database, Error, Futures, Interactive, Limits, Operations, Procedure, Protocol, Retry, Row,
    Session, Table, Transaction,
};

#[derive(Row, Clone, Debug, PartialEq)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn open<P: Protocol<Worker: Interactive>>(
    change: impl FnOnce(Builder<P>) -> Builder<P>,
) -> (Database<P>, Table<Account>) {
    let database = change(Database::builder().small().with::<P>()).in_memory().unwrap();
    let accounts = database.create_table().unwrap();
    database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 0 })).unwrap();
    (database, accounts)
}

/// Runs `then` while another thread has written the row and keeps its transaction open.
fn beside_a_holder<P: Protocol<Worker: Interactive>>(
    mut session: Session<P>,
    accounts: Table<Account>,
    then: impl FnOnce(),
) {
    fn hold(held: &Sender<()>, go: &Receiver<()>) {
        // Again at a second attempt, when nobody listens any longer.
        let _ = held.send(());
        let _ = go.recv();
    }
    let (held, is_held) = channel();
    let (go, may_go) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            session
                .transact(|transaction| {
                    transaction.update(&accounts, 1, |row| row.set_balance(row.balance() + 1))?;
                    hold(&held, &may_go);
                    Ok::<_, Error>(())
                })
                .unwrap();
        });
        is_held.recv().unwrap();
        then();
        drop(go);
    });
}

fn add<P: Protocol<Worker: Interactive>>(
    database: &Database<P>,
    accounts: &Table<Account>,
    limits: &Limits,
) -> Result<bool, Error> {
    database.transact_within(limits, |transaction| {
        transaction.update(accounts, 1, |row| row.set_balance(row.balance() + 1))
    })
}

fn waits_for_a_lock_end<P: Protocol<Worker: Interactive>>() {
    let (database, accounts) = open::<P>(|builder| builder);
    beside_a_holder(database.session().unwrap(), accounts, || {
        let late = add(&database, &accounts, &Limits::timeout(Duration::from_millis(20)));
        assert!(matches!(late, Err(Error::TimedOut(ref of)) if of.after_ms == 20), "{late:?}");
        let token = Cancellation::default();
        std::thread::scope(|scope| {
            let cancelled = scope.spawn(|| add(&database, &accounts, &Limits::token(&token)));
            token.cancel();
            assert!(matches!(cancelled.join().unwrap(), Err(Error::Cancelled)));
        });
    });
    // What was given up has left nothing behind.
    assert!(add(&database, &accounts, &Limits::timeout(Duration::from_secs(600))).unwrap());
    let row = database.transact(|transaction| transaction.get_owned(&accounts, 1));
    assert_eq!(row.unwrap(), Some(Account { id: 1, balance: 2 }));
}

#[test]
fn waits_for_locks_end_when_the_caller_asks() {
    waits_for_a_lock_end::<Locking>();
    waits_for_a_lock_end::<LazyLocking>();
}

/// Whether a protocol waits for the other transaction, conflicts with it or passes it by: its transactions end in time, also those that leave a
/// future open, and what was given up has left nothing behind.
fn ends_in_time<P: Protocol<Worker: Interactive>>() {
    let (database, accounts) = open::<P>(|builder| builder);
    let mut added = 1;
    beside_a_holder(database.session().unwrap(), accounts, || {
        for round in 0..4 {
            let limits = Limits::timeout(Duration::from_millis(10));
            let outcome = if round % 2 == 0 {
                add(&database, &accounts, &limits).map(drop)
            } else {
                database.transact_within(&limits, |transaction| {
                    let balance = transaction.future(&accounts, 1, Account::BALANCE)?;
                    transaction.is_true(balance.at_least(-5))?;
                    transaction.set_future(&accounts, 1, Account::BALANCE, balance + 1)
                })
            };
            match outcome {
                Ok(()) => added += 1,
                Err(Error::TimedOut(of)) if of.after_ms == 10 => {}
                Err(error) => panic!("{}: {error}", P::NAME),
            }
        }
    });
    let row = database.transact(|transaction| transaction.get_owned(&accounts, 1));
    assert_eq!(row.unwrap(), Some(Account { id: 1, balance: added }), "{}", P::NAME);
}

#[test]
fn transactions_end_in_time_under_every_protocol() {
    ends_in_time::<Cicada>();
    ends_in_time::<Maflingo>();
    ends_in_time::<Hyper>();
    ends_in_time::<Locking>();
    ends_in_time::<Serial>();
    ends_in_time::<LazyCicada>();
    ends_in_time::<LazyMaflingo>();
    ends_in_time::<LazyHyper>();
    ends_in_time::<LazyLocking>();
}

#[test]
fn waits_for_workers_end_when_the_caller_asks() {
    let (database, accounts) = open::<Locking>(|builder| builder.workers(2));
    let (held, is_held) = channel();
    let (go, may_go) = channel::<()>();
    std::thread::scope(|scope| {
        let mut holders = Vec::new();
        // As many calls as there are workers; more would wait.
        let session = database.session().unwrap();
        holders.push(session);
        let calls = &database;
        scope.spawn(move || {
            calls
                .transact(|_| {
                    held.send(()).unwrap();
                    let _ = may_go.recv();
                    Ok::<_, Error>(())
                })
                .unwrap();
        });
        is_held.recv().unwrap();
        while let Ok(session) = database.session() {
            holders.push(session);
        }
        let late = add(&database, &accounts, &Limits::timeout(Duration::from_millis(20)));
        assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
        drop(go);
    });
    assert!(add(&database, &accounts, &Limits::default()).unwrap());
}

#[test]
fn what_is_called_off_in_time_does_not_commit() {
    let (database, accounts) = open::<polychron::DefaultProtocol>(|builder| builder);
    let token = Cancellation::default();
    let mut runs = 0;
    let cancelled: Result<(), Error> = database.transact_within(&Limits::token(&token), |transaction| {
        runs += 1;
        transaction.update(&accounts, 1, |row| row.set_balance(7))?;
        token.cancel();
        Ok(())
    });
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    let before = add(&database, &accounts, &Limits::token(&token));
    assert!(matches!(before, Err(Error::Cancelled)));
    assert_eq!(runs, 1);
    let row = database.transact(|transaction| transaction.get_owned(&accounts, 1));
    assert_eq!(row.unwrap(), Some(Account { id: 1, balance: 0 }));
}

#[test]
fn limits_hold_for_transactions_inside() {
    let (database, accounts) = open::<Locking>(|builder| builder);
    beside_a_holder(database.session().unwrap(), accounts, || {
        let outer: Result<(), Error> = database.transact_timeout(Duration::from_millis(20), |_| {
            let inner = database.transact(|transaction| transaction.update(&accounts, 1, |row| row.set_balance(3)));
            assert!(matches!(inner, Err(Error::TimedOut { .. })), "{inner:?}");
            Ok(())
        });
        assert!(matches!(outer, Err(Error::TimedOut { .. })));
    });
}

/// Whatever is called inside: what was called off before does not run.
fn hold_inside<P: Protocol<Worker: Interactive>>() {
    struct Add(Table<Account>);
    impl Procedure for Add {
        type Output = bool;
        type Error = Error;
        fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
            transaction.update(&self.0, 1, |row| row.set_balance(row.balance() + 1))
        }
    }

    let (database, accounts) = open::<P>(|builder| builder);
    let (other, others) = open::<P>(|builder| builder);
    let token = Cancellation::default();
    let is_cancelled = |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    let outer: Result<(), Error> = database.transact_within(&Limits::token(&token), |_| {
        token.cancel();
        let update = |row: &mut AccountMut<'_>| row.set_balance(row.balance() + 1);
        is_cancelled(other.transact(|transaction| transaction.update(&others, 1, update).map(drop)));
        is_cancelled(other.snapshot(|transaction| transaction.get(&others, 1).map(drop)));
        is_cancelled(other.execute(&mut Add(others)).map(drop));
        is_cancelled(other.claim_first(&others, |_, _| Ok(())).map(drop));
        is_cancelled(add(&other, &others, &Limits::timeout(Duration::from_secs(600))).map(drop));
        let mut session = other.session()?;
        is_cancelled(session.transact(|transaction| transaction.update(&others, 1, update).map(drop)));
        is_cancelled(session.execute(&mut Add(others)).map(drop));
        Ok(())
    });
    is_cancelled(outer);
    for (database, accounts) in [(&database, accounts), (&other, others)] {
        let row = database.transact(|transaction| transaction.get_owned(&accounts, 1));
        assert_eq!(row.unwrap(), Some(Account { id: 1, balance: 0 }));
    }
}

#[test]
fn limits_hold_for_everything_inside() {
    hold_inside::<Cicada>();
    hold_inside::<Maflingo>();
    hold_inside::<Hyper>();
    hold_inside::<Locking>();
    hold_inside::<Serial>();
    hold_inside::<LazyHyper>();
}

#[test]
fn attempts_and_time_bound_conflicts() {
    for retry in [
        Retry { attempts: 20, time: None, ..Retry::default() },
        Retry { attempts: u64::MAX, time: Some(Duration::from_millis(5)), ..Retry::default() },
    ] {
        let (database, accounts) = open::<polychron::DefaultProtocol>(|builder| builder.retry(retry));
        let mut other = database.session().unwrap();
        let mut attempts = 0;
        let conflicts: Result<(), Error> = database.transact(|transaction| {
            attempts += 1;
            let balance = transaction.get(&accounts, 1)?.map(|row| row.balance());
            // Another session changes what was read, in a thread of its own: whoever does so in one thread waits for itself.
            std::thread::scope(|scope| {
                let add =
                    || other.transact(|other| other.update(&accounts, 1, |row| row.set_balance(row.balance() + 1)));
                scope.spawn(add).join().unwrap()
            })?;
            transaction.update(&accounts, 1, |row| row.set_balance(balance.unwrap_or_default()))?;
            Ok(())
        });
        let Err(Error::Conflicts(conflicts)) = conflicts else { panic!("{conflicts:?}") };
        assert_eq!(conflicts.attempts, attempts);
        assert!(conflicts.to_string().contains("of (id)=(1) in account, with transaction "), "{conflicts}");
        assert!(attempts >= 16, "{attempts}");
    }
}
