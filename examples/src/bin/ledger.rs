//! A ledger: money moves between accounts on several threads, every movement is written down, and the books always balance.
//!
//! `cargo run --release -p polychron-examples --bin ledger [THREADS] [TRANSFERS]` prints the transfers a second.

use std::env::args;
use std::time::Instant;

use polychron::prelude::*;

#[derive(Row)]
struct Account {
    #[key]
    id: u32,
    balance_cents: i64,
    /// How many movements there were: the number of the next one.
    movements: u32,
}

/// One side of a transfer.
#[derive(Row)]
struct Movement {
    #[key]
    account: u32,
    #[key]
    number: u32,
    other: u32,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("there is no account {0}")]
    NoSuchAccount(u32),
    #[error("account {account} holds {balance_cents} cents, not {cents}")]
    NotCovered { account: u32, balance_cents: i64, cents: i64 },
    #[error(transparent)]
    Database(#[from] Error),
}

struct Ledger {
    database: Database,
    accounts: Table<Account>,
    movements: Table<Movement>,
}

impl Ledger {
    const ACCOUNTS: u32 = 1000;
    const FIRST_CENTS: i64 = 10_000;

    fn open() -> Result<Self, Error> {
        let database = Database::in_memory()?;
        let (accounts, movements) = (database.create_table()?, database.create_table()?);
        database.transact(|transaction| {
            (0..Self::ACCOUNTS).try_for_each(|id| {
                transaction.insert(&accounts, &Account { id, balance_cents: Self::FIRST_CENTS, movements: 0 })
            })
        })?;
        Ok(Self { database, accounts, movements })
    }

    /// Moves money, unless the first account does not hold it. Errors undo everything.
    fn transfer(&self, from: u32, to: u32, cents: i64) -> Result<(), TransferError> {
        self.database.transact(|transaction| {
            for (id, other, cents) in [(from, to, -cents), (to, from, cents)] {
                let account = transaction.get_owned(&self.accounts, id)?.ok_or(TransferError::NoSuchAccount(id))?;
                let balance_cents = account.balance_cents + cents;
                if balance_cents < 0 {
                    let balance_cents = account.balance_cents;
                    return Err(TransferError::NotCovered { account: id, balance_cents, cents: -cents });
                }
                let number = account.movements;
                transaction.upsert(&self.accounts, &Account { id, balance_cents, movements: number + 1 })?;
                transaction.insert(&self.movements, &Movement { account: id, number, other, cents })?;
            }
            Ok(())
        })
    }

    /// The last movements of an account, the latest first.
    fn statement(&self, account: u32, movements: usize) -> Result<Vec<Movement>, Error> {
        self.database
            .snapshot(|transaction| transaction.scan_prefix(&self.movements, account).rev().limit(movements).rows())
    }

    /// Checks that no cent came or went, and that each balance is the sum of its movements.
    fn audit(&self) -> Result<(), Error> {
        self.database.snapshot(|transaction| {
            let mut total = 0;
            for account in transaction.scan(&self.accounts, ..).rows()? {
                let moved =
                    transaction.scan_prefix(&self.movements, account.id).map(|movement| movement.cents()).sum()?;
                assert_eq!(Self::FIRST_CENTS + moved, account.balance_cents, "account {}", account.id);
                total += account.balance_cents;
            }
            assert_eq!(total, Self::FIRST_CENTS * i64::from(Self::ACCOUNTS));
            Ok(())
        })
    }
}

fn main() -> Result<(), TransferError> {
    let number = |position| args().nth(position).and_then(|text| text.parse().ok());
    let (threads, transfers) = (number(1).unwrap_or(2), number(2).unwrap_or(200_000));
    let ledger = Ledger::open()?;
    let begin = Instant::now();
    let refused: u32 = std::thread::scope(|scope| {
        let work = |thread: u32| {
            let ledger = &ledger;
            scope.spawn(move || {
                let mut refused = 0;
                for round in 0..transfers / threads {
                    let draw = (thread * 7919 + round).wrapping_mul(2_654_435_761);
                    let (from, to) = (draw % Ledger::ACCOUNTS, (draw / 7 + 1) % Ledger::ACCOUNTS);
                    match ledger.transfer(from, to, i64::from(draw % 5000)) {
                        Ok(()) => {}
                        Err(TransferError::NotCovered { .. }) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                refused
            })
        };
        let workers: Vec<_> = (0..threads).map(work).collect();
        workers.into_iter().map(|worker| worker.join().expect("transfers do not panic")).sum()
    });
    let seconds = begin.elapsed().as_secs_f64();
    ledger.audit()?;
    println!("{:.0} transfers a second on {threads} threads", f64::from(transfers - refused) / seconds);
    println!("{refused} were not covered; the books balance");
    for movement in ledger.statement(1, 3)? {
        println!("account 1, movement {}: {} cents, account {}", movement.number, movement.cents, movement.other);
    }
    Ok(())
}
