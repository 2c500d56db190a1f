//! The options of the workload.

use crate::run::IndexChoice;

/// Options of the scan workload.
#[derive(Clone, Debug, PartialEq, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct ScanOptions {
    /// Rows
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,

    /// Bytes of a row beside its key, 8 to 1048560
    #[arg(long, default_value_t = 8)]
    pub record_size: u32,

    /// Threads that change rows; the others scan
    #[arg(long, default_value_t = 0)]
    pub writers: usize,

    /// Add up every byte of the rows, and not only one column
    #[arg(long)]
    pub whole_rows: bool,

    /// How scans ask: for every row, for the sum of the column, or for batches of the column
    #[arg(long, value_enum, default_value_t = Ask::Rows)]
    pub ask: Ask,

    /// Rows that are changed while a transaction is open, which keeps what they were; scans follow it
    #[arg(long, default_value_t = 0)]
    pub dirty: u64,

    /// How often each of them is changed, 1 to 64
    #[arg(long, default_value_t = 1)]
    pub versions: u64,

    /// Whether scans see the state before the changes, or the one after them
    #[arg(long, value_enum, default_value_t = SnapshotTime::Newest)]
    pub snapshot_time: SnapshotTime,

    /// Add up a plain slice of as many numbers after each scan, and report how fast that goes
    #[arg(long)]
    pub plain: bool,

    /// The primary index; some protocols scan a table without order, too
    #[arg(long, value_enum, default_value_t = IndexChoice::Ordered)]
    pub index: IndexChoice,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            record_size: 8,
            writers: 0,
            whole_rows: false,
            ask: Ask::Rows,
            dirty: 0,
            versions: 1,
            snapshot_time: SnapshotTime::Newest,
            plain: false,
            index: IndexChoice::Ordered,
        }
    }
}

/// How scans ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Each row
    Rows,
    /// The sum
    Sum,
    /// Column batches
    Columns,
}

/// Which state scans see when rows are dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotTime {
    /// That of the transaction that was open before the changes
    Oldest,
    /// That of snapshots after them
    Newest,
}

/// The most versions of a row.
const MAX_VERSIONS: u64 = 64;

/// The most rows: their amounts are added up in 64 bits.
const MAX_RECORDS: u64 = 1 << 32;

/// The longest rows.
const MAX_RECORD_SIZE: u32 = (1 << 20) - 16;

impl ScanOptions {
    /// One line that says what is wrong.
    pub(super) fn validate(&self, threads: usize) -> Result<(), String> {
        if !(2..=MAX_RECORDS).contains(&self.records) {
            return Err(format!("--records is {}; it lies between 2 and {MAX_RECORDS}", self.records));
        }
        if !(8..=MAX_RECORD_SIZE).contains(&self.record_size) {
            return Err(format!("--record-size is {}; it lies between 8 and {MAX_RECORD_SIZE}", self.record_size));
        }
        if self.whole_rows && self.ask != Ask::Rows {
            return Err("--whole-rows asks for every row, and goes with --ask rows only".to_owned());
        }
        if self.dirty > self.records {
            return Err(format!("--dirty is {}, and there are {} rows", self.dirty, self.records));
        }
        if !(1..=MAX_VERSIONS).contains(&self.versions) {
            return Err(format!("--versions is {}; it lies between 1 and {MAX_VERSIONS}", self.versions));
        }
        if self.dirty > 0 && threads != 1 {
            return Err(format!(
                "--dirty goes with --threads 1, and not {threads}: a thread of its own changes the rows"
            ));
        }
        if self.writers >= threads {
            return Err(format!("--writers is {}, and of {threads} threads one must be left to scan", self.writers));
        }
        Ok(())
    }
}
