//! Scans of a whole table, beside threads that change it.
//!
//! Every row holds an amount; writers move some of it from one row to another, and each scan, a snapshot, must find all rows
//! and the sum that was there at first. Or rows are changed while a transaction is open, so that older versions are kept, and scans
//! follow (§4.1 of the paper on in-place versions): of the state before, or of the one after.

mod beside;
mod options;
mod procedure;

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::{Error, TableId};
use polychron_engine::{Protocol, Worker};
use polychron_schema::{ColumnType, TableDefinition};

pub use options::{Ask, ScanOptions, SnapshotTime};
pub use procedure::ScanProcedure;

use crate::run::{Part, Share, Totals, for_each_row, load_rows, span};
use crate::{CheckError, Checked, Client, Workload};
use beside::Beside;
use procedure::{AMOUNT, Shape, Tally, Task};

/// Positions in the totals.
const SCANS: usize = 0;
const NS: usize = 1;
const OLDER: usize = 2;
const PLAIN_NS: usize = 3;

/// The metric of how fast scans are.
pub const ROWS_A_SECOND: &str = "rows scanned a second, one thread";
/// The same of a plain slice.
pub const PLAIN_ROWS_A_SECOND: &str = "rows of a plain slice a second";
/// The number of scans that saw an older state than the present one.
pub const SCANS_OF_THE_PAST: &str = "scans that saw the state before the changes";

/// The scan workload.
#[derive(Debug)]
pub struct Scan {
    options: ScanOptions,
    shape: Shape,
    totals: Totals<4>,
    beside: Option<Arc<Beside>>,
    plain: Option<Arc<[u64]>>,
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
        let plain = if options.plain { 8 } else { 0 };
        options.records.saturating_mul(u64::from(options.record_size) + OVERHEAD + plain)
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
        let layout = definition.layout().map_err(|error| Error::definition(error.to_string()))?;
        let payload = (options.record_size > 8).then(|| span(&layout, 2));
        let table = database.create_table(definition)?;
        let shape = Shape::new(table, layout.shape(), [span(&layout, 0), span(&layout, 1)], payload, options);
        let is_dirty = options.dirty > 0;
        let beside = is_dirty.then(|| Beside::start(database, shape, options).map(Arc::new)).transpose()?;
        let plain = options.plain.then(|| vec![AMOUNT; options.records as usize].into());
        Ok(Self { options: options.clone(), shape, totals: Totals::default(), beside, plain })
    }

    fn rows_to_load(&self) -> u64 {
        self.options.records
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let build = |key, row: &mut _| self.shape.build(key, row);
        load_rows(worker, self.shape.table, self.options.records, share, build)
    }

    fn a_table(&self) -> TableId {
        self.shape.table
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> ScanClient {
        let writes = thread >= threads - self.options.writers;
        ScanClient {
            scan: match &self.beside {
                None => Task::Scan { records: self.options.records, raised: 0 },
                Some(_) => {
                    Task::ChangeAndScan { records: self.options.records, snapshot_time: self.options.snapshot_time }
                }
            },
            shape: self.shape,
            beside: self.beside.clone(),
            plain: self.plain.clone(),
            writes,
            records: self.options.records,
            random: Random::stream(seed, thread as u64),
            part: self.totals.part(),
        }
    }

    fn metrics(&self) -> Vec<(&'static str, u64)> {
        let rows = (self.totals.get(SCANS) as u64 * self.options.records) as f64;
        let rate = |ns: i64| (rows * 1e9 / ns.max(1) as f64) as u64;
        let (scanned, ns, plain_ns) = (rate(self.totals.get(NS)), self.totals.get(NS), self.totals.get(PLAIN_NS));
        let mut metrics = vec![
            (ROWS_A_SECOND, scanned),
            ("picoseconds a row", (ns as f64 * 1e3 / rows.max(1.0)) as u64),
            ("bytes of the column a second", 8 * scanned),
        ];
        if self.plain.is_some() {
            metrics.push((PLAIN_ROWS_A_SECOND, rate(plain_ns)));
            metrics.push(("speed in thousandths of a plain slice's", plain_ns as u64 * 1000 / ns.max(1) as u64));
        }
        if self.beside.is_some() {
            metrics.push((SCANS_OF_THE_PAST, self.totals.get(OLDER) as u64));
        }
        metrics
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let (mut rows, mut sum) = (0_u64, 0_u64);
        for_each_row(database, self.shape.table, self.options.records, |_, row| {
            rows += 1;
            sum = sum.wrapping_add(self.shape.amount(row));
        })?;
        let condition = "every scan found all rows and the amount there had to be, and so does the check".to_owned();
        let raised = self.beside.as_ref().map_or(0, |beside| beside.raised());
        let expected = (self.options.records, self.options.records.wrapping_mul(AMOUNT).wrapping_add(raised));
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
    scan: Task,
    beside: Option<Arc<Beside>>,
    plain: Option<Arc<[u64]>>,
    writes: bool,
    records: u64,
    random: Random,
    part: Part<4>,
}

impl Client for ScanClient {
    type Procedure = ScanProcedure;

    #[inline]
    fn next(&mut self) -> ScanProcedure {
        if !self.writes {
            return ScanProcedure::new(self.shape, self.scan).with(self.beside.as_ref(), self.plain.as_ref());
        }
        let from = self.random.below(self.records);
        let to = (from + 1 + self.random.below(self.records - 1)) % self.records;
        ScanProcedure::new(self.shape, Task::Move { from, to, amount: 1 + self.random.below(AMOUNT / 4) })
    }

    #[inline]
    fn finished(&mut self, procedure: &ScanProcedure) {
        let Tally { scans, older, ns, plain_ns } = procedure.tally;
        for (position, amount) in [(SCANS, scans), (NS, ns), (OLDER, older), (PLAIN_NS, plain_ns)] {
            self.part.add(position, amount as i64);
        }
    }
}
