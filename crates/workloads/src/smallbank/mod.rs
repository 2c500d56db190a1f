//! SmallBank: accounts with a checking and a savings balance, and five short transactions over them.
//!
//! Money is counted in cents. Every transaction notes by how much it changes the bank's money, and after the run the sum
//! over all balances must be the first sum plus all these changes.

mod procedure;

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::{Error, TableId};
use polychron_engine::{Protocol, Row, Table, Worker};

pub use procedure::SmallBankProcedure;

use crate::run::{IndexChoice, Part, Share, Totals, for_each_row, load_rows};
use crate::{CheckError, Checked, Client, Workload};
use procedure::{Kind, Tables};

/// Options of the SmallBank workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct SmallBankOptions {
    /// Customers; 50 for high contention, 100000 for low
    #[arg(long, default_value_t = 100_000)]
    pub customers: u64,

    /// Microseconds that each transaction spins, as if it computed something
    #[arg(long, default_value_t = 0)]
    pub spin_us: u64,

    /// The primary indexes
    #[arg(long, value_enum, default_value_t = IndexChoice::Hash)]
    pub index: IndexChoice,
}

impl Default for SmallBankOptions {
    fn default() -> Self {
        Self { customers: 100_000, spin_us: 0, index: IndexChoice::Hash }
    }
}

/// A customer. The account leads to the customer's number in the other tables.
#[derive(Row, Clone, Debug)]
#[row(name = "account")]
pub struct Account {
    /// The name, which here is a number.
    #[key]
    pub name: u64,
    /// The customer's number.
    pub customer: u64,
}

/// A savings balance.
#[derive(Row, Clone, Debug)]
#[row(name = "savings")]
pub struct Savings {
    /// The customer's number.
    #[key]
    pub customer: u64,
    /// Cents.
    pub balance: i64,
}

/// A checking balance.
#[derive(Row, Clone, Debug)]
#[row(name = "checking")]
pub struct Checking {
    /// The customer's number.
    #[key]
    pub customer: u64,
    /// Cents.
    pub balance: i64,
}

/// The initial balance of every account, in cents.
const FIRST_BALANCE: i64 = 1_000_000;

/// The SmallBank workload.
#[derive(Debug)]
pub struct SmallBank {
    options: SmallBankOptions,
    tables: Tables,
    totals: Totals<1>,
}

impl Workload for SmallBank {
    const NAME: &'static str = "smallbank";
    const SUMMARY: &'static str = "SmallBank: balances, deposits, transfers and checks of a bank's customers";
    const KINDS: &'static [&'static str] = procedure::KINDS;

    type Options = SmallBankOptions;
    type Client = SmallBankClient;

    fn validate(options: &SmallBankOptions, _threads: usize) -> Result<(), String> {
        if options.customers < 2 {
            return Err("--customers is below 2, and money must have somewhere to go".to_owned());
        }
        Ok(())
    }

    fn estimated_bytes(options: &SmallBankOptions) -> u64 {
        options.customers.saturating_mul(3 * 96)
    }

    fn create<P: Protocol>(options: &SmallBankOptions, database: &Arc<P>) -> Result<Self, Error> {
        let sized = |definition: polychron_engine::TableDefinition| {
            definition.with_primary_kind(options.index.into()).with_expected_rows(options.customers as usize)
        };
        let tables = Tables {
            accounts: Table::create_as(&**database, sized(Account::definition()))?,
            savings: Table::create_as(&**database, sized(Savings::definition()))?,
            checking: Table::create_as(&**database, sized(Checking::definition()))?,
        };
        Ok(Self { options: options.clone(), tables, totals: Totals::default() })
    }

    fn rows_to_load(&self) -> u64 {
        3 * self.options.customers
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let (tables, count) = (&self.tables, self.options.customers);
        const FITS: &str = "two integers make a row";
        load_rows(worker, tables.accounts.id(), count, share, |key, row| {
            Account { name: key, customer: key }.encode(row).expect(FITS);
        })?;
        load_rows(worker, tables.savings.id(), count, share, |key, row| {
            Savings { customer: key, balance: FIRST_BALANCE }.encode(row).expect(FITS);
        })?;
        load_rows(worker, tables.checking.id(), count, share, |key, row| {
            Checking { customer: key, balance: FIRST_BALANCE }.encode(row).expect(FITS);
        })
    }

    fn a_table(&self) -> TableId {
        self.tables.accounts.id()
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> SmallBankClient {
        SmallBankClient {
            tables: self.tables,
            customers: self.options.customers,
            spin_us: self.options.spin_us,
            random: Random::stream(seed, thread as u64),
            part: self.totals.part(),
        }
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let (mut sum, mut rows) = (0_i64, 0_u64);
        let customers = self.options.customers;
        for_each_row(database, self.tables.savings.id(), customers, |_, row| {
            sum += Savings::view(row).balance();
            rows += 1;
        })?;
        for_each_row(database, self.tables.checking.id(), customers, |_, row| {
            sum += Checking::view(row).balance();
            rows += 1;
        })?;
        let conditions = vec![
            "every customer has a savings and a checking balance".to_owned(),
            "the money is what it was, plus what came in and less what went out".to_owned(),
        ];
        let broken = |position: usize, rows| CheckError::Broken { condition: conditions[position].clone(), rows };
        if rows != 2 * customers {
            return Err(broken(0, format!("{rows} balances of {customers} customers")));
        }
        let expected = 2 * customers as i64 * FIRST_BALANCE + self.totals.get(0);
        if sum != expected {
            return Err(broken(1, format!("all balances add up to {sum} cents, not {expected}")));
        }
        Ok(Checked { conditions })
    }
}

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct SmallBankClient {
    tables: Tables,
    customers: u64,
    spin_us: u64,
    random: Random,
    part: Part<1>,
}

impl Client for SmallBankClient {
    type Procedure = SmallBankProcedure;

    #[inline]
    fn next(&mut self) -> SmallBankProcedure {
        let kind = Kind::ALL[self.random.below(Kind::ALL.len() as u64) as usize];
        let name = self.random.below(self.customers);
        // Another customer, each of the others equally likely.
        let other = (name + 1 + self.random.below(self.customers - 1)) % self.customers;
        let amount = match kind {
            // A withdrawal half of the time.
            Kind::TransactSavings => self.random.range_inclusive(0, 20_000) as i64 - 10_000,
            _ => self.random.range_inclusive(1, 10_000) as i64,
        };
        SmallBankProcedure { tables: self.tables, kind, name, other, amount, spin_us: self.spin_us, change: 0 }
    }

    #[inline]
    fn finished(&mut self, procedure: &SmallBankProcedure) {
        self.part.add(0, procedure.change);
    }
}
