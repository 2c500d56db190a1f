//! Conditions on a hot counter (*Lazy state determination*, §4.2): each transaction decrements a counter if it stays above zero, and
//! puts it back to where it began if not. The smaller that is, the more often the condition changes.

use std::sync::Arc;

use polychron_base::{Error, TableId};
use polychron_engine::{Access, Declare, Futures, Operations, Procedure, Protocol, Row, Table, Transaction, Worker};

use super::{COUNTERS, Counter, CounterMut, Draw, HotOptions, Missing, create_counters};
use crate::run::{Part, Share, Totals, for_each_row, load_rows};
use crate::{CheckError, Checked, Client, Transact, Workload};

/// Options of the workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct AssertOptions {
    /// What they share with `hotkey`
    #[command(flatten)]
    #[serde(flatten)]
    pub hot: HotOptions,

    /// Where the counters begin: every so many transactions the condition is not true
    #[arg(long, default_value_t = 1000)]
    pub initial: u64,

    /// Assume that the condition is true, and ask at the second attempt only
    #[arg(long, requires = "futures")]
    pub speculate: bool,
}

impl Default for AssertOptions {
    fn default() -> Self {
        Self { hot: HotOptions::default(), initial: 1000, speculate: false }
    }
}

/// The workload.
#[derive(Debug)]
pub struct Assert {
    options: AssertOptions,
    table: Table<Counter>,
    /// Decrements, and counters that were put back.
    totals: Totals<2>,
}

impl Workload for Assert {
    const NAME: &'static str = "assert";
    const SUMMARY: &'static str =
        "a hot counter with a condition: decremented while it stays above zero, else put back";
    const KINDS: &'static [&'static str] = &["take"];

    type Options = AssertOptions;
    type Client = AssertClient;

    fn validate(options: &AssertOptions, threads: usize) -> Result<(), String> {
        if options.initial == 0 || options.initial > 1 << 32 {
            return Err(format!("--initial is {}; it lies between 1 and 2^32", options.initial));
        }
        options.hot.validate(threads)
    }

    fn estimated_bytes(_options: &AssertOptions) -> u64 {
        COUNTERS * 96
    }

    fn create<P: Protocol>(options: &AssertOptions, database: &Arc<P>) -> Result<Self, Error> {
        Ok(Self { options: options.clone(), table: create_counters(database)?, totals: Totals::default() })
    }

    fn rows_to_load(&self) -> u64 {
        COUNTERS
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let initial = self.options.initial;
        load_rows(worker, self.table.id(), COUNTERS, share, |key, row| {
            Counter { key, value: initial }.encode(row).expect("two integers make a row");
        })
    }

    fn a_table(&self) -> TableId {
        self.table.id()
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> AssertClient {
        let draw = Draw::new(seed, thread, self.options.hot.hot);
        AssertClient { table: self.table, options: self.options.clone(), draw, part: self.totals.part() }
    }

    /// A counter that was put back had come down to 1, so what was taken from all and what is left follow from each other.
    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let initial = self.options.initial;
        let (mut sum, mut outside) = (0_u64, None);
        for_each_row(database, self.table.id(), COUNTERS, |key, row| {
            let value = Counter::view(row).value();
            sum = sum.wrapping_add(value);
            if !(1..=initial).contains(&value) {
                outside = Some((key, value));
            }
        })?;
        let condition = format!("every counter lies between 1 and {initial}");
        if let Some((key, value)) = outside {
            return Err(CheckError::Broken { condition, rows: format!("counter {key} is {value}") });
        }
        let adds_up = "what was taken, put back and left adds up".to_owned();
        let (taken, restored) = (self.totals.get(0), self.totals.get(1));
        let expected = (COUNTERS * initial) as i64 - taken + restored * (initial as i64 - 1);
        if sum as i64 != expected {
            let rows =
                format!("the sum over all counters is {sum}, not {expected}: {taken} taken, {restored} put back");
            return Err(CheckError::Broken { condition: adds_up, rows });
        }
        Ok(Checked { conditions: vec![condition, adds_up] })
    }
}

/// Draws the transactions of one client.
#[derive(Debug)]
pub struct AssertClient {
    table: Table<Counter>,
    options: AssertOptions,
    draw: Draw,
    part: Part<2>,
}

impl Client for AssertClient {
    type Procedure = AssertProcedure;

    #[inline]
    fn next(&mut self) -> AssertProcedure {
        let (key, options) = (self.draw.key(), self.options.clone());
        AssertProcedure { table: self.table, key, options, attempts: 0, took: false }
    }

    #[inline]
    fn finished(&mut self, procedure: &AssertProcedure) {
        self.part.add(usize::from(!procedure.took), 1);
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct AssertProcedure {
    table: Table<Counter>,
    key: u64,
    options: AssertOptions,
    /// The number of its runs.
    attempts: u64,
    /// Whether the latest run took one.
    took: bool,
}

impl AssertProcedure {
    fn run_with_futures<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let hot = &self.options.hot;
        let value = transaction.future(&self.table, self.key, Counter::VALUE)?;
        let stays = value.greater_than(1);
        // At a second attempt it is asked in any case.
        let assumes = self.options.speculate && self.attempts == 1;
        self.took = if assumes { transaction.is_true_assuming(stays, true)? } else { transaction.is_true(stays)? };
        if value.is_known() || !assumes {
            hot.talk.round_trip();
        }
        let next = if self.took { value - 1 } else { self.options.initial.into() };
        transaction.set_future(&self.table, self.key, Counter::VALUE, next)
    }
}

impl Procedure for AssertProcedure {
    type Output = ();
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        // The commit's messages stand before it: a client that waits for its answer holds no lock.
        self.options.hot.talk.round_trip();
        self.attempts += 1;
        if self.options.hot.talk.futures {
            return self.run_with_futures(transaction);
        }
        let (initial, mut took) = (self.options.initial, false);
        let take = |row: &mut CounterMut<'_>| {
            took = row.value() > 1;
            row.set_value(if took { row.value() - 1 } else { initial });
        };
        if !transaction.update_columns(&self.table, self.key, Counter::VALUE, take)? {
            return Err(Missing(self.key).into());
        }
        self.took = took;
        self.options.hot.talk.round_trip();
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.row(&self.table, self.key, Access::Update);
    }
}

impl Transact for AssertProcedure {
    fn kind(&self) -> usize {
        0
    }
}
