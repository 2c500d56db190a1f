//! TPC-C and YCSB with and without a log.

use std::time::Duration;

use polychron::{Durability, ProtocolList, Protocols};
use polychron_cli::bench::{Refusal, Run};
use polychron_cli::interrupt;
use polychron_engine::Common;
use polychron_workloads::Workload;
use polychron_workloads::run::{Settings, Unobserved};
use polychron_workloads::tpcc::{Tpcc, TpccOptions};
use polychron_workloads::ycsb::{Ycsb, YcsbOptions};

use super::{Comparison, Place, Series};

const LEVELS: [Option<Durability>; 3] =
    [None, Some(Durability::Eventual(Duration::from_millis(10))), Some(Durability::Immediate)];

/// A comparison for each workload. Every run has a database of its own.
pub(super) fn with_and_without<'p>(place: &'p Place<'_>) -> Vec<Comparison<'p>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let tpcc = TpccOptions { warehouses: threads as u16, ..TpccOptions::default() };
    let ycsb = YcsbOptions { records: 1_000_000, ..YcsbOptions::default() };
    vec![compared::<Tpcc>(place, "TPC-C", tpcc, threads), compared::<Ycsb>(place, "YCSB, half writes", ycsb, threads)]
}

fn compared<'p, W: Workload<Options: Clone> + 'p>(
    place: &'p Place<'_>,
    name: &str,
    options: W::Options,
    threads: usize,
) -> Comparison<'p> {
    let series = LEVELS.into_iter().map(|level| {
        let options = options.clone();
        let name = level.map_or("in memory".to_owned(), |level| level.to_string());
        Series::new(name, move || run::<W>(place, &options, level, threads))
    });
    Comparison::new(format!("{name}, {threads} threads"), "transactions a second", series.collect())
}

fn run<W: Workload>(
    place: &Place<'_>,
    options: &W::Options,
    level: Option<Durability>,
    threads: usize,
) -> Result<f64, String> {
    let seconds = place.given.seconds;
    let settings = Settings { threads, seconds, warmup_seconds: seconds / 4.0, ..Settings::default() };
    let directory = level.map(|_| place.directory()).transpose()?;
    let durable = directory.as_ref().map(tempfile::TempDir::path).zip(level);
    let shared = Common::default();
    let stop = &interrupt::STOP;
    let run =
        Run::<W> { options, settings: &settings, protocol_options: &[], shared, durable, stop, observer: &Unobserved };
    let report = Protocols::visit(&place.given.protocol, run).map_err(|unknown| unknown.to_string())?;
    let report = report.map_err(Refusal::line)?;
    if report.interrupted || report.passed() {
        Ok(report.committed_tps)
    } else {
        Err(format!("the consistency check failed: {}", report.checks))
    }
}
