//! The five transactions.

use std::sync::LazyLock;

use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::{Access, Declare, Error, Operations, Procedure, Table, Transaction};

use super::{Account, Checking, CheckingMut, Savings, SavingsMut};
use crate::Transact;

/// The tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    pub(super) accounts: Table<Account>,
    pub(super) savings: Table<Savings>,
    pub(super) checking: Table<Checking>,
}

/// The kinds, each a fifth of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The sum of both balances of a customer.
    Balance,
    /// Money comes into a checking balance.
    DepositChecking,
    /// Money comes into, or out of, a savings balance, which must not fall below zero.
    TransactSavings,
    /// All money of one customer goes to the checking balance of another.
    Amalgamate,
    /// A check is cashed; a dollar of penalty if it is not covered.
    WriteCheck,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Balance, Self::DepositChecking, Self::TransactSavings, Self::Amalgamate, Self::WriteCheck];
}

/// Names of the kinds.
pub(super) const KINDS: &[&str] = &["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check"];

/// The penalty for a check that is not covered, in cents.
const PENALTY: i64 = 100;

/// One transaction.
#[derive(Clone, Debug)]
pub struct SmallBankProcedure {
    pub(super) tables: Tables,
    pub(super) kind: Kind,
    pub(super) name: u64,
    /// To whom money goes.
    pub(super) other: u64,
    pub(super) amount: i64,
    pub(super) spin_us: u64,
    /// The sum by which the latest run changes the bank's money.
    pub(super) change: i64,
}

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("the {table} of customer {customer} is missing")]
struct Missing {
    table: &'static str,
    customer: u64,
}

impl From<Missing> for Error {
    fn from(error: Missing) -> Self {
        Self::other(error)
    }
}

impl SmallBankProcedure {
    fn customer<T: Transaction>(&self, transaction: &mut T, name: u64) -> Result<u64, Error> {
        let found = transaction.get_columns(&self.tables.accounts, name, Account::CUSTOMER)?;
        found.ok_or_else(|| Missing { table: "account", customer: name }.into())
    }

    fn savings<T: Transaction>(&self, transaction: &mut T, customer: u64) -> Result<i64, Error> {
        let found = transaction.get_columns(&self.tables.savings, customer, Savings::BALANCE)?;
        found.ok_or_else(|| Missing { table: "savings", customer }.into())
    }

    fn checking<T: Transaction>(&self, transaction: &mut T, customer: u64) -> Result<i64, Error> {
        let found = transaction.get_columns(&self.tables.checking, customer, Checking::BALANCE)?;
        found.ok_or_else(|| Missing { table: "checking", customer }.into())
    }

    fn add_to_savings<T: Transaction>(&self, transaction: &mut T, customer: u64, amount: i64) -> Result<(), Error> {
        let add = |row: &mut SavingsMut<'_>| row.set_balance(row.balance().wrapping_add(amount));
        match transaction.update_columns(&self.tables.savings, customer, Savings::BALANCE, add)? {
            true => Ok(()),
            false => Err(Missing { table: "savings", customer }.into()),
        }
    }

    fn add_to_checking<T: Transaction>(&self, transaction: &mut T, customer: u64, amount: i64) -> Result<(), Error> {
        let add = |row: &mut CheckingMut<'_>| row.set_balance(row.balance().wrapping_add(amount));
        match transaction.update_columns(&self.tables.checking, customer, Checking::BALANCE, add)? {
            true => Ok(()),
            false => Err(Missing { table: "checking", customer }.into()),
        }
    }

    fn transact_savings<T: Transaction>(&mut self, transaction: &mut T, customer: u64) -> Result<i64, Error> {
        let balance = self.savings(transaction, customer)? + self.amount;
        if balance < 0 {
            return Err(Error::RolledBack);
        }
        self.add_to_savings(transaction, customer, self.amount)?;
        self.change = self.amount;
        Ok(balance)
    }

    fn amalgamate<T: Transaction>(&self, transaction: &mut T, customer: u64) -> Result<i64, Error> {
        let other = self.customer(transaction, self.other)?;
        let savings = self.savings(transaction, customer)?;
        let checking = self.checking(transaction, customer)?;
        self.add_to_savings(transaction, customer, -savings)?;
        self.add_to_checking(transaction, customer, -checking)?;
        self.add_to_checking(transaction, other, savings + checking)?;
        Ok(savings + checking)
    }

    fn write_check<T: Transaction>(&mut self, transaction: &mut T, customer: u64) -> Result<i64, Error> {
        let total = self.savings(transaction, customer)? + self.checking(transaction, customer)?;
        let penalty = if total < self.amount { PENALTY } else { 0 };
        self.add_to_checking(transaction, customer, -self.amount - penalty)?;
        self.change = -self.amount - penalty;
        Ok(total)
    }
}

impl Procedure for SmallBankProcedure {
    /// A balance.
    type Output = i64;
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<i64, Error> {
        self.change = 0;
        let customer = self.customer(transaction, self.name)?;
        spin(self.spin_us);
        match self.kind {
            Kind::Balance => Ok(self.savings(transaction, customer)? + self.checking(transaction, customer)?),
            Kind::DepositChecking => {
                self.add_to_checking(transaction, customer, self.amount)?;
                self.change = self.amount;
                Ok(self.amount)
            }
            Kind::TransactSavings => self.transact_savings(transaction, customer),
            Kind::Amalgamate => self.amalgamate(transaction, customer),
            Kind::WriteCheck => self.write_check(transaction, customer),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        // A customer's number equals the name, as the loader has it; every key is known.
        let Tables { accounts, savings, checking } = &self.tables;
        let (own, other) = (self.name, self.other);
        declaration.row(accounts, own, Access::Read);
        match self.kind {
            Kind::Balance => {
                declaration.row(savings, own, Access::Read);
                declaration.row(checking, own, Access::Read);
            }
            Kind::DepositChecking => declaration.row(checking, own, Access::Update),
            Kind::TransactSavings => declaration.row(savings, own, Access::Update),
            Kind::Amalgamate => {
                declaration.row(accounts, other, Access::Read);
                declaration.row(savings, own, Access::Update);
                declaration.row(checking, own, Access::Update);
                declaration.row(checking, other, Access::Update);
            }
            Kind::WriteCheck => {
                declaration.row(savings, own, Access::Read);
                declaration.row(checking, own, Access::Update);
            }
        }
    }
}

impl Transact for SmallBankProcedure {
    fn kind(&self) -> usize {
        self.kind as usize
    }
}

/// Keeps the processor busy.
#[inline]
fn spin(microseconds: u64) {
    static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
    if microseconds > 0 {
        let end = CLOCK.now_ns() + microseconds * 1000;
        while CLOCK.now_ns() < end {
            std::hint::spin_loop();
        }
    }
}
