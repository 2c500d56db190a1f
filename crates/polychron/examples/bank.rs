//! A bank: threads move money between accounts while an auditor adds everything up, again and again.
//!
//! `cargo run --release -p polychron --example bank`

use polychron::{Database, Error, Operations, Row};

#[derive(Row, Debug)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

/// Why money was not moved.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("account {account} holds {balance}, not {amount}")]
    NotCovered { account: u64, balance: i64, amount: i64 },
    #[error(transparent)]
    Database(#[from] Error),
}

const ACCOUNTS: u64 = 100;
const FIRST_BALANCE: i64 = 1_000;
const TRANSFERS: u64 = 20_000;
const THREADS: u64 = 4;

fn main() -> Result<(), Error> {
    let database = Database::in_memory()?;
    let accounts = database.create_table::<Account>()?;
    database.transact(|transaction| {
        (0..ACCOUNTS).try_for_each(|id| transaction.insert(&accounts, &Account { id, balance: FIRST_BALANCE }))
    })?;

    // A transfer reads, decides and writes; a payment that is not covered leaves no trace.
    let transfer = |from: u64, to: u64, amount: i64| {
        database.transact(|transaction| {
            let balance = transaction.get(&accounts, from)?.map_or(0, |row| row.balance());
            if balance < amount {
                return Err(TransferError::NotCovered { account: from, balance, amount });
            }
            transaction.update(&accounts, from, |row| row.set_balance(row.balance() - amount))?;
            transaction.update(&accounts, to, |row| row.set_balance(row.balance() + amount))?;
            Ok(())
        })
    };
    // The auditor looks at a consistent snapshot, so the sum is right at any time.
    let audit = || database.snapshot(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum());

    let refused = std::thread::scope(|scope| {
        let clerks: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut refused = 0_u64;
                    for round in 0..TRANSFERS / THREADS {
                        let number = thread * TRANSFERS + round;
                        let (from, to) = (number * 7 % ACCOUNTS, (number * 13 + 5) % ACCOUNTS);
                        match transfer(from, to, (number % 900) as i64) {
                            Ok(()) => {}
                            Err(TransferError::NotCovered { .. }) => refused += 1,
                            Err(TransferError::Database(error)) => panic!("{error}"),
                        }
                    }
                    refused
                })
            })
            .collect();
        for _ in 0..100 {
            // A snapshot from before the accounts were filled shows an empty bank.
            let sum = audit().expect("an audit only reads");
            assert!(sum == 0 || sum == ACCOUNTS as i64 * FIRST_BALANCE, "{sum}");
        }
        clerks.into_iter().map(|clerk| clerk.join().expect("clerks do not panic")).sum::<u64>()
    });

    let total: i64 = database.transact(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum())?;
    assert_eq!(total, ACCOUNTS as i64 * FIRST_BALANCE);
    let statistics = database.statistics();
    println!("{} transactions committed, {refused} transfers were not covered", statistics.commits);
    println!("{} conflicts were retried, and the bank still holds {total}", statistics.conflicts());
    Ok(())
}
