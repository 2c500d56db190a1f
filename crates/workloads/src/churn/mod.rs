//! Rows that come and go under a fixed number of keys, or in queues: what is kept after any time is what was kept at first.
//!
//! For long runs, which look for memory that is not used again and for clients that are held up.

mod procedure;

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Protocol, Row, Table, TableId, Worker};

pub use procedure::{ChurnProcedure, Churned};

use crate::run::{Part, Share, Totals};
use crate::{CheckError, Checked, Client, Workload};
use procedure::{Count, KINDS, Load, Task};

/// Options of the churn workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct ChurnOptions {
    /// Keys, or rows of each queue
    #[arg(long, default_value_t = 10_000)]
    pub records: u64,

    /// What the transactions do
    #[arg(long, value_enum, default_value_t = Pattern::Keys)]
    pub pattern: Pattern,

    /// Queues, which clients choose at random
    #[arg(long, default_value_t = 1)]
    pub queues: u32,
}

impl Default for ChurnOptions {
    fn default() -> Self {
        Self { records: 10_000, pattern: Pattern::Keys, queues: 1 }
    }
}

/// Which rows come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Random rows are updated, deleted, and inserted again.
    #[default]
    Keys,
    /// The first row of a queue is deleted, and one is inserted behind its last.
    Queue,
}

/// The churn workload.
#[derive(Debug)]
pub struct Churn {
    options: ChurnOptions,
    table: Table<Churned>,
    /// The number of rows that were added to the loaded ones.
    totals: Totals<1>,
}

impl ChurnOptions {
    fn lanes(&self) -> u32 {
        if self.pattern == Pattern::Queue { self.queues } else { 1 }
    }

    fn rows(&self) -> u64 {
        self.records.saturating_mul(u64::from(self.lanes()))
    }
}

/// Rows that one transaction of the load inserts.
const CHUNK: usize = 100;

impl Workload for Churn {
    const NAME: &'static str = "churn";
    const SUMMARY: &'static str = "rows that come and go under a fixed number of keys, or in queues";
    const KINDS: &'static [&'static str] = KINDS;

    type Options = ChurnOptions;
    type Client = ChurnClient;

    fn validate(options: &ChurnOptions, threads: usize) -> Result<(), String> {
        if options.records < threads as u64 {
            return Err(format!("--records is {}, less than there are threads ({threads})", options.records));
        }
        if options.queues == 0 {
            return Err("--queues is 0; rows need a queue to go through".to_owned());
        }
        Ok(())
    }

    fn estimated_bytes(options: &ChurnOptions) -> u64 {
        options.rows().saturating_mul(512)
    }

    fn create<P: Protocol>(options: &ChurnOptions, database: &Arc<P>) -> Result<Self, Error> {
        let definition = Churned::definition().with_expected_rows(options.rows() as usize);
        let table = Table::from_id(database.create_table(definition)?);
        Ok(Self { options: options.clone(), table, totals: Totals::default() })
    }

    fn a_table(&self) -> TableId {
        self.table.id()
    }

    fn rows_to_load(&self) -> u64 {
        self.options.rows()
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let lanes = u64::from(self.options.lanes());
        let mine = (0..self.options.rows()).skip(share.part).step_by(share.parts);
        let keys: Vec<(u32, u64)> = mine.map(|row| ((row % lanes) as u32, row / lanes)).collect();
        for rows in keys.chunks(CHUNK) {
            worker.execute(&mut Load { table: self.table, rows: rows.to_vec() })?;
            (share.progress)(rows.len() as u64);
        }
        Ok(())
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> ChurnClient {
        ChurnClient {
            table: self.table,
            options: self.options.clone(),
            next: self.options.records + thread as u64,
            step: threads as u64,
            random: Random::stream(seed, thread as u64),
            part: self.totals.part(),
        }
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let (rows, entries) = database.worker()?.execute(&mut Count { table: self.table })?;
        let expected = self.options.rows() as i64 + self.totals.get(0);
        let condition = "there are as many rows, and entries of rows, as the transactions left".to_owned();
        if rows as i64 != expected || entries != rows {
            let rows = format!("{rows} rows with {entries} entries; it ought to be {expected}");
            return Err(CheckError::Broken { condition, rows });
        }
        Ok(Checked { conditions: vec![condition] })
    }
}

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct ChurnClient {
    table: Table<Churned>,
    options: ChurnOptions,
    /// The number of the next row that it puts into a queue, and how far the one after that is.
    next: u64,
    step: u64,
    random: Random,
    part: Part<1>,
}

impl ChurnClient {
    fn next_number(&mut self) -> u64 {
        let number = self.next;
        self.next += self.step;
        number
    }
}

impl Client for ChurnClient {
    type Procedure = ChurnProcedure;

    fn next(&mut self) -> ChurnProcedure {
        let task = match self.options.pattern {
            Pattern::Queue => {
                let lane = self.random.below(u64::from(self.options.queues)) as u32;
                Task::Advance { lane, number: self.next_number() }
            }
            Pattern::Keys => {
                let number = self.random.below(self.options.records);
                if self.random.below(2) == 0 { Task::Update { number } } else { Task::Toggle { number } }
            }
        };
        ChurnProcedure { table: self.table, task, draw: self.random.below(1 << 31) as u32, added: 0 }
    }

    fn again(&mut self, procedure: &mut ChurnProcedure) {
        if let Task::Advance { number, .. } = &mut procedure.task {
            *number = self.next_number();
        }
    }

    fn finished(&mut self, procedure: &ChurnProcedure) {
        self.part.add(0, procedure.added);
    }
}
