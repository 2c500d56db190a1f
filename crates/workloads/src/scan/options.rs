//! What can be chosen.

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

    /// The primary index; some protocols scan a table without order, too
    #[arg(long, value_enum, default_value_t = IndexChoice::Ordered)]
    pub index: IndexChoice,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { records: 1_000_000, record_size: 8, writers: 0, whole_rows: false, index: IndexChoice::Ordered }
    }
}

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
        if self.writers >= threads {
            return Err(format!("--writers is {}, and of {threads} threads one must be left to scan", self.writers));
        }
        Ok(())
    }
}
