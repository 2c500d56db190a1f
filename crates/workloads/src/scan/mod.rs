//! Scans of a whole table, beside threads that change it.
//!
//! Every row holds an amount; writers move some of it from one row to another, and each scan, a snapshot, must find all rows
//! and the sum that was there at first.

mod options;
mod procedure;

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Protocol, Worker};
use polychron_schema::{ColumnType, TableDefinition};

pub use options::ScanOptions;
pub use procedure::ScanProcedure;

use crate::run::{Part, Totals, for_each_row, load_rows, span};
use crate::{CheckError, Checked, Client, Workload};
use procedure::{AMOUNT, Shape, Task};

/// Positions in the totals.
const ROWS: usize = 0;
const NS: usize = 1;

/// The scan workload.
#[derive(Debug)]
pub struct Scan {
    options: ScanOptions,
    shape: Shape,
    totals: Totals<2>,
}

impl Workload for Scan {
    const NAME: &'static str = "scan";
    const SUMMARY: &'static str = "sums over a whole table on snapshots, beside threads that change its rows";
    const KINDS: &'static [&'static str] = procedure::KINDS;

    type Options = ScanOptions;
    type Client = ScanClient;

    fn validate(options: &ScanOptions, threads: usize) -> Result<(), String> {
        options.validate(threads)
    }

    fn estimated_bytes(options: &ScanOptions) -> u64 {
        // A record's header and padding, its key and its index entry.
        const OVERHEAD: u64 = 96;
        options.records.saturating_mul(u64::from(options.record_size) + OVERHEAD)
    }

    fn create<P: Protocol>(options: &ScanOptions, database: &Arc<P>) -> Result<Self, Error> {
        let mut definition = TableDefinition::new("scan")
            .with_column("key", ColumnType::U64)
            .with_column("amount", ColumnType::U64)
            .with_key([0])
            .with_primary_kind(options.index.into())
            .with_expected_rows(options.records as usize);
        if options.record_size > 8 {
            definition = definition.with_column("payload", ColumnType::FixedBytes { bytes: options.record_size - 8 });
        }
        let layout = definition.layout().map_err(|error| Error::Definition(error.to_string()))?;
        let payload = (options.record_size > 8).then(|| span(&layout, 2));
        let table = database.create_table(definition)?;
        let shape = Shape::new(table, layout.shape(), [span(&layout, 0), span(&layout, 1)], payload, options);
        Ok(Self { options: options.clone(), shape, totals: Totals::default() })
    }

    fn rows_to_load(&self) -> u64 {
        self.options.records
    }

    fn load_part<W: Worker>(
        &self,
        worker: &mut W,
        part: usize,
        parts: usize,
        _seed: u64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Error> {
        let build = |key, row: &mut _| self.shape.build(key, row);
        load_rows(worker, self.shape.table, self.options.records, (part, parts), progress, build)
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> ScanClient {
        let writes = thread >= threads - self.options.writers;
        ScanClient {
            shape: self.shape,
            writes,
            records: self.options.records,
            random: Random::stream(seed, thread as u64),
            part: self.totals.part(),
        }
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let (rows, ns) = (self.totals.get(ROWS), self.totals.get(NS));
        vec![("rows scanned a second, one thread", (rows as f64 * 1e9 / ns.max(1) as f64) as u64)]
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let (mut rows, mut sum) = (0_u64, 0_u64);
        for_each_row(database, self.shape.table, self.options.records, |_, row| {
            rows += 1;
            sum = sum.wrapping_add(self.shape.amount(row));
        })?;
        let condition = "every scan found all rows and the amount there was at first, and so does the check".to_owned();
        let expected = (self.options.records, self.options.records.wrapping_mul(AMOUNT));
        if (rows, sum) != expected {
            let rows = format!("{rows} rows hold {sum}, and {} ought to hold {}", expected.0, expected.1);
            return Err(CheckError::Broken { condition, rows });
        }
        Ok(Checked { conditions: vec![condition] })
    }
}

/// Draws the transactions of one thread, which scans or writes.
#[derive(Debug)]
pub struct ScanClient {
    shape: Shape,
    writes: bool,
    records: u64,
    random: Random,
    part: Part<2>,
}

impl Client for ScanClient {
    type Procedure = ScanProcedure;

    #[inline]
    fn next(&mut self) -> ScanProcedure {
        let task = if self.writes {
            let from = self.random.below(self.records);
            let to = (from + 1 + self.random.below(self.records - 1)) % self.records;
            Task::Move { from, to, amount: 1 + self.random.below(AMOUNT / 4) }
        } else {
            Task::Scan { records: self.records }
        };
        ScanProcedure { shape: self.shape, task, ns: 0 }
    }

    #[inline]
    fn finished(&mut self, procedure: &ScanProcedure) {
        if let Task::Scan { records } = procedure.task {
            self.part.add(ROWS, records as i64);
            self.part.add(NS, procedure.ns as i64);
        }
    }
}
