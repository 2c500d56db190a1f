//! A hot counter (*Lazy state determination*, §4.2): each transaction increments the counter that all clients share, or one of its
//! client's own. The counters must add up to the increments that committed.

mod assert;

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::{Error, TableId};
use polychron_engine::{Access, Declare, Futures, Operations, Procedure, Protocol, Row, Table, Transaction, Worker};

use crate::round_trip::Talk;
use crate::run::{Part, Share, Totals, for_each_row, load_rows};
use crate::{CheckError, Checked, Client, Transact, Workload};

pub use assert::{Assert, AssertOptions};

/// Counters; the first is the hot one.
const COUNTERS: u64 = 1024;

/// The options that both workloads with a hot counter have.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct HotOptions {
    /// Transactions on the hot counter, in percent; the others go to their client's own
    #[arg(long, default_value_t = 100)]
    pub hot: u64,

    /// How a client talks to the database
    #[command(flatten)]
    #[serde(flatten)]
    pub talk: Talk,
}

impl Default for HotOptions {
    fn default() -> Self {
        Self { hot: 100, talk: Talk::default() }
    }
}

impl HotOptions {
    fn validate(&self, threads: usize) -> Result<(), String> {
        if self.hot > 100 {
            return Err(format!("--hot is {}; it is a share in percent", self.hot));
        }
        if threads as u64 >= COUNTERS {
            return Err(format!("there are counters for {} clients at most", COUNTERS - 1));
        }
        Ok(())
    }
}

/// A counter.
#[derive(Row, Clone, Debug)]
#[row(name = "counter", primary = "hash")]
pub struct Counter {
    /// 0 is the hot one.
    #[key]
    pub key: u64,
    /// Its value.
    pub value: u64,
}

fn create_counters<P: Protocol>(database: &Arc<P>) -> Result<Table<Counter>, Error> {
    let definition = Counter::definition().with_expected_rows(COUNTERS as usize);
    Table::create_as(&**database, definition)
}

/// Draws keys for one client.
#[derive(Debug)]
struct Draw {
    random: Random,
    own: u64,
    hot: u64,
}

impl Draw {
    fn new(seed: u64, thread: usize, hot: u64) -> Self {
        Self { random: Random::stream(seed, thread as u64), own: thread as u64 + 1, hot }
    }

    #[inline]
    fn key(&mut self) -> u64 {
        if self.hot == 100 || self.random.below(100) < self.hot { 0 } else { self.own }
    }
}

/// A counter that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("the counter of key {0} is missing")]
struct Missing(u64);

impl From<Missing> for Error {
    fn from(error: Missing) -> Self {
        Self::other(error)
    }
}

/// The workload.
#[derive(Debug)]
pub struct HotKey {
    options: HotOptions,
    table: Table<Counter>,
    totals: Totals<1>,
}

impl Workload for HotKey {
    const NAME: &'static str = "hotkey";
    const SUMMARY: &'static str =
        "a hot counter: each transaction increments the one that all share, or its client's own";
    const KINDS: &'static [&'static str] = &["increment"];

    type Options = HotOptions;
    type Client = HotClient;

    fn validate(options: &HotOptions, threads: usize) -> Result<(), String> {
        options.validate(threads)
    }

    fn estimated_bytes(_options: &HotOptions) -> u64 {
        COUNTERS * 96
    }

    fn create<P: Protocol>(options: &HotOptions, database: &Arc<P>) -> Result<Self, Error> {
        Ok(Self { options: options.clone(), table: create_counters(database)?, totals: Totals::default() })
    }

    fn rows_to_load(&self) -> u64 {
        COUNTERS
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        load_rows(worker, self.table.id(), COUNTERS, share, |key, row| {
            Counter { key, value: 0 }.encode(row).expect("two integers make a row");
        })
    }

    fn a_table(&self) -> TableId {
        self.table.id()
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> HotClient {
        let draw = Draw::new(seed, thread, self.options.hot);
        HotClient { table: self.table, options: self.options.clone(), draw, part: self.totals.part() }
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let mut sum = 0_u64;
        for_each_row(database, self.table.id(), COUNTERS, |_, row| sum += Counter::view(row).value())?;
        let condition = "the counters add up to the increments that committed".to_owned();
        let increments = self.totals.get(0);
        if sum as i64 != increments {
            let rows = format!("the sum over all counters is {sum}, the increments are {increments}");
            return Err(CheckError::Broken { condition, rows });
        }
        Ok(Checked { conditions: vec![condition] })
    }
}

/// Draws the transactions of one client.
#[derive(Debug)]
pub struct HotClient {
    table: Table<Counter>,
    options: HotOptions,
    draw: Draw,
    part: Part<1>,
}

impl Client for HotClient {
    type Procedure = HotProcedure;

    #[inline]
    fn next(&mut self) -> HotProcedure {
        HotProcedure { table: self.table, key: self.draw.key(), options: self.options.clone() }
    }

    #[inline]
    fn finished(&mut self, _procedure: &HotProcedure) {
        self.part.add(0, 1);
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct HotProcedure {
    table: Table<Counter>,
    key: u64,
    options: HotOptions,
}

impl Procedure for HotProcedure {
    type Output = ();
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        // The commit's messages stand before it: a client that waits for its answer holds no lock.
        self.options.talk.round_trip();
        if self.options.talk.futures {
            let value = transaction.future(&self.table, self.key, Counter::VALUE)?;
            if value.is_known() {
                self.options.talk.round_trip();
            }
            return transaction.set_future(&self.table, self.key, Counter::VALUE, value + 1);
        }
        let increment = |row: &mut CounterMut<'_>| row.set_value(row.value().wrapping_add(1));
        if !transaction.update_columns(&self.table, self.key, Counter::VALUE, increment)? {
            return Err(Missing(self.key).into());
        }
        self.options.talk.round_trip();
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.row(&self.table, self.key, Access::Update);
    }
}

impl Transact for HotProcedure {
    fn kind(&self) -> usize {
        0
    }
}
