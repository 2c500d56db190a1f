//! Increments of random integers (BOHM §4.1): the smallest read-modify-writes there are, so that what is measured is the
//! protocol. The sum over all rows must be the number of increments that committed.

use std::sync::Arc;

use polychron_base::random::{Random, Zipf};
use polychron_base::{Error, TableId};
use polychron_engine::{Access, Declare, Operations, Procedure, Protocol, Row, Table, Transaction, Worker};

use crate::run::{IndexChoice, Part, Share, Totals, for_each_row, load_rows};
use crate::{CheckError, Checked, Client, Transact, Workload};

/// Options of the increment workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct IncrementOptions {
    /// Rows, one 64-bit integer each
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,

    /// Distinct integers that a transaction increments
    #[arg(long, default_value_t = 10)]
    pub requests: usize,

    /// Skew of the keys (Zipf), 0 to 1.2
    #[arg(long, default_value_t = 0.0)]
    pub theta: f64,

    /// The primary index
    #[arg(long, value_enum, default_value_t = IndexChoice::Hash)]
    pub index: IndexChoice,
}

impl Default for IncrementOptions {
    fn default() -> Self {
        Self { records: 1_000_000, requests: 10, theta: 0.0, index: IndexChoice::Hash }
    }
}

/// One integer.
#[derive(Row, Clone, Debug)]
#[row(name = "integer")]
pub struct Integer {
    /// Its key.
    #[key]
    pub key: u64,
    /// The number of its increments.
    pub value: u64,
}

/// The most increments of a transaction.
const MAX_REQUESTS: usize = 64;

/// The increment workload.
#[derive(Debug)]
pub struct Increment {
    options: IncrementOptions,
    table: Table<Integer>,
    totals: Totals<1>,
}

impl Workload for Increment {
    const NAME: &'static str = "increment";
    const SUMMARY: &'static str = "counters: each transaction increments ten random 64-bit integers";
    const KINDS: &'static [&'static str] = &["increment"];

    type Options = IncrementOptions;
    type Client = IncrementClient;

    fn validate(options: &IncrementOptions, _threads: usize) -> Result<(), String> {
        if options.records == 0 {
            return Err("--records is 0".to_owned());
        }
        if options.requests == 0 || options.requests > MAX_REQUESTS || options.requests as u64 > options.records {
            return Err(format!("--requests lies between 1 and {MAX_REQUESTS}, and is no more than --records"));
        }
        if !(0.0..=1.2).contains(&options.theta) {
            return Err(format!("--theta is {}; it lies between 0 and 1.2", options.theta));
        }
        Ok(())
    }

    fn estimated_bytes(options: &IncrementOptions) -> u64 {
        options.records.saturating_mul(96)
    }

    fn create<P: Protocol>(options: &IncrementOptions, database: &Arc<P>) -> Result<Self, Error> {
        let definition =
            Integer::definition().with_primary_kind(options.index.into()).with_expected_rows(options.records as usize);
        let table = Table::create_as(&**database, definition)?;
        Ok(Self { options: options.clone(), table, totals: Totals::default() })
    }

    fn rows_to_load(&self) -> u64 {
        self.options.records
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        load_rows(worker, self.table.id(), self.options.records, share, |key, row| {
            Integer { key, value: 0 }.encode(row).expect("two integers make a row");
        })
    }

    fn a_table(&self) -> TableId {
        self.table.id()
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> IncrementClient {
        IncrementClient {
            table: self.table,
            requests: self.options.requests,
            records: self.options.records,
            random: Random::stream(seed, thread as u64),
            zipf: Zipf::new(self.options.records, self.options.theta),
            part: self.totals.part(),
        }
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let mut sum = 0_u64;
        for_each_row(database, self.table.id(), self.options.records, |_, row| sum += Integer::view(row).value())?;
        let condition = "the integers add up to the increments that committed".to_owned();
        let increments = self.totals.get(0);
        if sum as i64 != increments {
            let rows = format!("the sum over all rows is {sum}, the increments are {increments}");
            return Err(CheckError::Broken { condition, rows });
        }
        Ok(Checked { conditions: vec![condition] })
    }
}

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct IncrementClient {
    table: Table<Integer>,
    requests: usize,
    records: u64,
    random: Random,
    zipf: Zipf,
    part: Part<1>,
}

impl Client for IncrementClient {
    type Procedure = IncrementProcedure;

    #[inline]
    fn next(&mut self) -> IncrementProcedure {
        let mut keys = [0; MAX_REQUESTS];
        for position in 0..self.requests {
            let mut key = self.zipf.draw(&mut self.random);
            while keys[..position].contains(&key) {
                // The next key in place of another draw: under a high skew those would seldom be new.
                key = (key + 1) % self.records;
            }
            keys[position] = key;
        }
        IncrementProcedure { table: self.table, keys, requests: self.requests }
    }

    #[inline]
    fn finished(&mut self, procedure: &IncrementProcedure) {
        self.part.add(0, procedure.requests as i64);
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct IncrementProcedure {
    table: Table<Integer>,
    keys: [u64; MAX_REQUESTS],
    requests: usize,
}

impl IncrementProcedure {
    fn keys(&self) -> &[u64] {
        &self.keys[..self.requests]
    }
}

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("the integer of key {0} is missing")]
struct Missing(u64);

impl From<Missing> for Error {
    fn from(error: Missing) -> Self {
        Self::other(error)
    }
}

impl Procedure for IncrementProcedure {
    type Output = ();
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        for &key in self.keys() {
            let increment = |row: &mut IntegerMut<'_>| row.set_value(row.value().wrapping_add(1));
            if !transaction.update_columns(&self.table, key, Integer::VALUE, increment)? {
                return Err(Missing(key).into());
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for &key in self.keys() {
            declaration.row(&self.table, key, Access::Update);
        }
    }
}

impl Transact for IncrementProcedure {
    fn kind(&self) -> usize {
        0
    }
}
