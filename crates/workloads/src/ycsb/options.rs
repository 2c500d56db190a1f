//! The options of the workload, and the settings of the papers.

use crate::run::IndexChoice;

/// Options of the YCSB workload.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct YcsbOptions {
    /// Rows, with the keys 0, 1, 2, ….
    pub records: u64,
    /// Bytes of a row's payload.
    pub record_size: u32,
    /// Distinct keys that a transaction reads or writes.
    pub requests: usize,
    /// The share of reads among requests.
    pub read_share: f64,
    /// When set, every transaction has exactly this many writes, before its reads, and `read_share` is not asked.
    pub writes: Option<usize>,
    /// Skew of the keys; 0 is uniform.
    pub theta: f64,
    /// Writes replace the payload without reading it.
    pub blind_write: bool,
    /// The share of transactions that scan a range instead.
    pub scan_share: f64,
    /// The longest scan, in rows; lengths are drawn uniformly from 1.
    pub scan_length: usize,
    /// The share of transactions that delete a row, or insert it again when it is gone.
    pub insert_delete_share: f64,
    /// The share of long read-only transactions.
    pub read_only_share: f64,
    /// Rows that a long read-only transaction reads, uniformly.
    pub read_only_length: usize,
    /// The percentage of transactions that read many rows, uniformly, and are serializable like the others.
    pub long_readers: f64,
    /// Reads of such a transaction.
    pub long_reads: usize,
    /// The primary index.
    pub index: IndexChoice,
}

impl Default for YcsbOptions {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            record_size: 100,
            requests: 16,
            read_share: 0.5,
            writes: None,
            theta: 0.0,
            blind_write: false,
            scan_share: 0.0,
            scan_length: 100,
            insert_delete_share: 0.0,
            read_only_share: 0.0,
            read_only_length: 10_000,
            long_readers: 0.0,
            long_reads: 10_000,
            index: IndexChoice::Hash,
        }
    }
}

/// Settings of the papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// BOHM: 1 M × 1,000 B, 10 read-modify-writes
    #[value(name = "10rmw")]
    TenRmw,
    /// BOHM: 1 M × 1,000 B, 2 read-modify-writes and 8 reads
    #[value(name = "2rmw8r")]
    TwoRmwEightReads,
    /// Cicada: 10 M × 100 B, 16 requests, 95 % reads
    CicadaRead,
    /// Cicada: 10 M × 100 B, 16 requests, 50 % reads
    CicadaWrite,
    /// Maflingo: 100 B, one request, 80 % reads, uniform (10 M records here; the paper has 160 M)
    Maflingo,
}

impl Preset {
    fn options(self) -> YcsbOptions {
        let cicada = YcsbOptions { records: 10_000_000, theta: 0.99, ..YcsbOptions::default() };
        let bohm = YcsbOptions { record_size: 1000, requests: 10, ..YcsbOptions::default() };
        match self {
            Self::TenRmw => YcsbOptions { writes: Some(10), ..bohm },
            Self::TwoRmwEightReads => YcsbOptions { writes: Some(2), ..bohm },
            Self::CicadaRead => YcsbOptions { read_share: 0.95, ..cicada },
            Self::CicadaWrite => YcsbOptions { read_share: 0.5, ..cicada },
            Self::Maflingo => {
                let ordered = IndexChoice::Ordered;
                YcsbOptions { requests: 1, read_share: 0.8, theta: 0.0, index: ordered, ..cicada }
            }
        }
    }
}

/// The options as the command line has them: what is not given comes from the preset, or the defaults.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct YcsbArguments {
    /// Start from the setting of a paper; other options change it
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,

    /// Rows [default: 1000000]
    #[arg(long)]
    pub records: Option<u64>,

    /// Bytes of a row's payload, 8 to 1048560 [default: 100]
    #[arg(long)]
    pub record_size: Option<u32>,

    /// Distinct keys a transaction touches [default: 16]
    #[arg(long)]
    pub requests: Option<usize>,

    /// Share of reads among requests, 0 to 1 [default: 0.5]
    #[arg(long)]
    pub read_share: Option<f64>,

    /// Exactly so many writes a transaction, instead of a share
    #[arg(long, conflicts_with = "read_share")]
    pub writes: Option<usize>,

    /// Skew of the keys (Zipf), 0 to 1.2 [default: 0]
    #[arg(long)]
    pub theta: Option<f64>,

    /// Writes read the row first and change it (this is the default)
    #[arg(long, conflicts_with = "blind_write")]
    pub read_modify_write: bool,

    /// Writes replace the row without reading it
    #[arg(long)]
    pub blind_write: bool,

    /// Share of transactions that scan, 0 to 1; needs --index ordered [default: 0]
    #[arg(long)]
    pub scan_share: Option<f64>,

    /// Longest scan in rows [default: 100]
    #[arg(long)]
    pub scan_length: Option<usize>,

    /// Share of transactions that delete a row or bring it back, 0 to 1 [default: 0]
    #[arg(long)]
    pub insert_delete_share: Option<f64>,

    /// Share of long read-only transactions, on snapshots, 0 to 1 [default: 0]
    #[arg(long)]
    pub read_only_share: Option<f64>,

    /// Rows a long read-only transaction reads [default: 10000]
    #[arg(long)]
    pub read_only_length: Option<usize>,

    /// Percentage of long read-only transactions that are serializable like the others, 0 to 100 [default: 0]
    #[arg(long)]
    pub long_readers: Option<f64>,

    /// Uniform reads of a long reader [default: 10000]
    #[arg(long)]
    pub long_reads: Option<usize>,

    /// The primary index [default: hash]
    #[arg(long, value_enum)]
    pub index: Option<IndexChoice>,
}

impl From<YcsbArguments> for YcsbOptions {
    fn from(given: YcsbArguments) -> Self {
        let base = given.preset.map(Preset::options).unwrap_or_default();
        // A share that is given takes the place of the preset's fixed number of writes.
        let writes = given.writes.or(if given.read_share.is_some() { None } else { base.writes });
        Self {
            records: given.records.unwrap_or(base.records),
            record_size: given.record_size.unwrap_or(base.record_size),
            requests: given.requests.unwrap_or(base.requests),
            read_share: given.read_share.unwrap_or(base.read_share),
            writes,
            theta: given.theta.unwrap_or(base.theta),
            blind_write: given.blind_write || base.blind_write && !given.read_modify_write,
            scan_share: given.scan_share.unwrap_or(base.scan_share),
            scan_length: given.scan_length.unwrap_or(base.scan_length),
            insert_delete_share: given.insert_delete_share.unwrap_or(base.insert_delete_share),
            read_only_share: given.read_only_share.unwrap_or(base.read_only_share),
            read_only_length: given.read_only_length.unwrap_or(base.read_only_length),
            long_readers: given.long_readers.unwrap_or(base.long_readers),
            long_reads: given.long_reads.unwrap_or(base.long_reads),
            index: given.index.unwrap_or(base.index),
        }
    }
}

/// The most rows: keys are spread by a product that must stay within 64 bits.
const MAX_RECORDS: u64 = 1 << 32;

/// The longest payload: a row has at most 1 MiB, its key and padding included.
const MAX_RECORD_SIZE: u32 = (1 << 20) - 16;

impl YcsbOptions {
    /// The shares of the transactions that are no reads and writes of a few keys: scans, insertions and deletions, read-only
    /// ones on snapshots, long readers.
    pub(super) fn shares_of_others(&self) -> [f64; 4] {
        [self.scan_share, self.insert_delete_share, self.read_only_share, self.long_readers / 100.0]
    }

    /// One line that says what is wrong.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.records == 0 || self.records > MAX_RECORDS {
            return Err(format!("--records is {}; it lies between 1 and {MAX_RECORDS}", self.records));
        }
        if !(8..=MAX_RECORD_SIZE).contains(&self.record_size) {
            return Err(format!("--record-size is {}; it lies between 8 and {MAX_RECORD_SIZE}", self.record_size));
        }
        if self.requests == 0 || self.requests as u64 > self.records {
            return Err(format!("--requests is {}; it lies between 1 and --records", self.requests));
        }
        if !(0.0..=1.2).contains(&self.theta) {
            return Err(format!("--theta is {}; it lies between 0 and 1.2", self.theta));
        }
        if self.writes.is_some_and(|writes| writes > self.requests) {
            return Err("--writes is more than --requests".to_owned());
        }
        let shares = [
            ("--read-share", self.read_share),
            ("--scan-share", self.scan_share),
            ("--insert-delete-share", self.insert_delete_share),
            ("--read-only-share", self.read_only_share),
        ];
        if let Some((name, share)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err(format!("{name} is {share}; a share lies between 0 and 1"));
        }
        if !(0.0..=100.0).contains(&self.long_readers) {
            return Err(format!("--long-readers is {}; a percentage lies between 0 and 100", self.long_readers));
        }
        if self.shares_of_others().iter().sum::<f64>() > 1.0 {
            return Err("--scan-share, --insert-delete-share, --read-only-share and --long-readers are more than all \
                        transactions together"
                .to_owned());
        }
        if self.blind_write && self.insert_delete_share > 0.0 {
            return Err(
                "--blind-write would bring back rows that --insert-delete-share deletes; take one of them".to_owned()
            );
        }
        if self.scan_share > 0.0 && self.index == IndexChoice::Hash {
            return Err("--scan-share needs --index ordered: a hash index has no ranges".to_owned());
        }
        if self.scan_share > 0.0 && self.scan_length == 0 {
            return Err("--scan-length is 0".to_owned());
        }
        Ok(())
    }
}
