//! Running workloads on any protocol of the list, which lies above this crate.

use polychron_sync::atomic::AtomicBool;
use polychron_workloads::hotkey::{AssertOptions, HotOptions};
use polychron_workloads::increment::IncrementOptions;
use polychron_workloads::modify::ModifyOptions;
use polychron_workloads::run::{Report, Settings};
use polychron_workloads::scan::ScanOptions;
use polychron_workloads::smallbank::SmallBankOptions;
use polychron_workloads::tatp::TatpOptions;
use polychron_workloads::tpcc::TpccOptions;
use polychron_workloads::ycsb::YcsbOptions;

/// A workload with its options.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the workloads by name")]
pub enum Work {
    Increment(IncrementOptions),
    Scan(ScanOptions),
    Ycsb(YcsbOptions),
    SmallBank(SmallBankOptions),
    Tpcc(TpccOptions),
    Tatp(TatpOptions),
    Modify(ModifyOptions),
    HotKey(HotOptions),
    Assert(AssertOptions),
}

impl From<TpccOptions> for Work {
    fn from(options: TpccOptions) -> Self {
        Self::Tpcc(options)
    }
}

impl From<YcsbOptions> for Work {
    fn from(options: YcsbOptions) -> Self {
        Self::Ycsb(options)
    }
}

impl From<ScanOptions> for Work {
    fn from(options: ScanOptions) -> Self {
        Self::Scan(options)
    }
}

/// A redo log that is flushed every few milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedoLog {
    /// It is on the disk.
    OnDisk,
    /// It is on the disk, and a standby on the same machine follows it.
    Shipped,
}

/// Turns a protocol's name into runs of it. A client that has the list has this, and each workload is compiled for each protocol once.
pub trait Runner {
    /// Whether there is a protocol of this name, and it has these options (`NAME=VALUE`).
    ///
    /// # Errors
    /// One line that says what there is not.
    fn accepts(&self, protocol: &str, options: &[String]) -> Result<(), String>;

    /// Runs a workload on a fresh database of the protocol.
    ///
    /// # Errors
    /// One line that says what failed.
    fn run(
        &self,
        protocol: &str,
        options: &[String],
        work: &Work,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<Report, String>;

    /// Runs TPC-C on a fresh database of the protocol that has a redo log.
    ///
    /// # Errors
    /// One line that says what failed.
    fn run_logged(
        &self,
        protocol: &str,
        options: &TpccOptions,
        log: RedoLog,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<Report, String>;
}
