//! Transactions: Figures 10 and 11, the rates of section 4.2, the costs of logging predicates of section 4.4.

use polychron_protocols::hyper::Level;
use polychron_workloads::modify::{ModifyOptions, Operation};
use polychron_workloads::run::Report;
use polychron_workloads::tatp::TatpOptions;
use polychron_workloads::tpcc::{Tpcc, TpccOptions, Transactions};

use crate::figure::Point;
use crate::measure::Bench;
use crate::runner::{RedoLog, Work};
use crate::{Ended, Figure};

/// Figure 10a.
const COST: &str = "“Compared to our single-version concurrency control implementation, our MVCC implementation costs around 20% of performance.” (§4.3)";
const LOCKS: &str = "“2PL is prohibitively expensive and achieves a ∼5× smaller throughput.” (§4.3)";
const MODEL: &str = "“The MVCC model of [23] achieves a throughput of around 50k transactions/s” (§4.3), where the paper's makes more than 100k.";
/// Figure 10b.
const DISAPPEARS: &str = "“With more read-only transactions in the workload mix (as it is the case in real-world workloads), the overhead of serializability \
     validation almost disappears.” (§4.4)";
/// Figure 10c.
const CONFLICTS: &str = "“Concurrency control conflicts are reduced with an increasing number of warehouses.” (§4.4)";
const FALSE_ABORTS: &str = "“Serializability validation with SR-AL creates almost no false positive aborts.” (§4.4)";
const MORE_FALSE_ABORTS: &str = "“SR-RL creates more false positives than SR-AL […].” (§4.4)";
/// Figure 11.
const LINEAR: &str = "“Our system scales near linearly up to 20 cores.” (§4.3)";
const SHIPPING: &str = "“RDMA-based log shipping generates an overhead of 17% with 20 threads.” (§4.3)";
const CROSSING: &str = "In Figure 11b throughput falls with the share of transactions that cross partitions.";
const READ_ONLY: &str = "In Figure 11c throughput grows with the share of read-only transactions.";
/// The text of §4.2 to §4.4.
const RATES: &str = "“Compared to our single-version concurrency control implementation (5.9M inserts/s, 3.4M updates/s, 1.1M delins/s), performance with our \
     MVCC implementation is slightly degraded […] (4M inserts/s, 2M updates/s, 1M delins/s).” (§4.2)";
const TINY: &str = "“Compared to running the benchmark with single-version concurrency control (421,940 transactions/s), our MVCC implementation creates just a \
     tiny overhead (407,564 transactions/s).” (§4.3)";
const TRAILS: &str = "The model of Hekaton “still trails performance of our MVCC implementation by around 20% (340,715 transactions/s)”. (§4.3)";
const LOGGING: [&str; 2] = [
    "“This means that there is a mere 5% overhead for SR-RL and a mere 7% overhead for SR-AL.” (§4.4, of TPC-C)",
    "“For the TATP benchmark, we measured an overhead of only 1% for SR-RL and 2% for SR-AL.” (§4.4)",
];

const RATE: &str = "transactions a second";
/// What has one version of each row, and no concurrency control but a lock, as the paper's baseline.
const SINGLE: &str = "single version";
const SINGLE_PROTOCOL: &str = "partitioned-store";
const ONE_PARTITION: &str = "partitions=1";
const ALONE: &str = "The single version is `partitioned-store` on one partition: the same indexes and rows, one lock for a transaction, and no other concurrency \
     control.";

/// Transactions of a thread that are open at a time where they are interleaved; the paper does not say.
const OPEN: usize = 8;

/// The levels, in the paper's words and in ours.
const LEVELS: [(&str, (&str, Level)); 3] = [
    ("SI", ("hyper-snapshot", Level::Snapshot)),
    ("SR-AL", ("hyper", Level::Columns)),
    ("SR-RL", ("hyper-record-level", Level::Rows)),
];

/// Those that the paper's users choose from.
const TWO_LEVELS: [(&str, &str); 2] = [("SR-AL", "hyper"), ("SI", "hyper-snapshot")];

fn tpcc(bench: &Bench<'_>, warehouses: u16) -> TpccOptions {
    TpccOptions { warehouses, scale: bench.settings.scale, ..TpccOptions::default() }
}

fn one_thread(bench: &Bench<'_>, protocol: &str, option: Option<&str>, work: &Work) -> Result<[f64; 1], Ended> {
    run(bench, protocol, option, work, 1)
}

fn run(
    bench: &Bench<'_>,
    protocol: &str,
    option: Option<&str>,
    work: &Work,
    threads: usize,
) -> Result<[f64; 1], Ended> {
    let option = option.or((protocol == SINGLE_PROTOCOL).then_some(ONE_PARTITION));
    let options: Vec<_> = option.into_iter().map(str::to_owned).collect();
    Ok([bench.run_listed(protocol, &options, work, threads, (1, 0))?.committed_tps])
}

/// What share of the first series' throughput another one makes at a place.
fn share_of_first(figure: &Figure, series: usize, x: usize) -> Option<Point> {
    Some(figure.point(series, x)?.over(figure.point(0, x)?))
}

/// Figure 10 a.
pub(super) fn systems(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let work = Work::Tpcc(tpcc(bench, 5));
    let systems = [(SINGLE, SINGLE_PROTOCOL), ("HyPer", "hyper"), ("Hekaton", "hekaton"), ("2PL", "locking-no-wait")];
    let xs = [("column store", "backend=columns"), ("row store", "backend=rows")]
        .map(|(name, option)| (name.to_owned(), option));
    let measured = bench.sweep(figure, [RATE], &xs, &systems, |protocol, backend| {
        one_thread(bench, protocol, if *protocol == "hyper" { Some(backend) } else { None }, &work)
    });
    figure.note = format!("{ALONE} Only HyPer has two backends.");
    figure.expect_within(
        COST,
        "versions cost around 20 %: a share of 0.7 to 0.9 is left",
        share_of_first(figure, 1, 1),
        0.7..=0.9,
    );
    let locks = [figure.point(1, 1), figure.point(3, 1)];
    figure.expect_higher(LOCKS, "HyPer is faster than two-phase locking", locks);
    figure.expect_times(LOCKS, "4 to 6 times as fast", locks, 4.0..=6.0);
    let model = [figure.point(1, 1), figure.point(2, 1)];
    figure.expect_higher(MODEL, "HyPer is faster than the model of Hekaton", model);
    figure.expect_times(MODEL, "1.6 to 2.4 times as fast", model, 1.6..=2.4);
    measured
}

/// Figure 10 b.
pub(super) fn top_customer(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [0, 20, 40, 60, 80, 100].map(|percent: u8| (percent.to_string(), percent));
    let measured = bench.sweep(figure, [RATE], &xs, &LEVELS, |&(_, level), &percent| {
        let options = TpccOptions { top_customer_percent: percent, ..tpcc(bench, 5) };
        Ok([bench.run_interleaved::<Tpcc>(level, &options, OPEN)?.committed_tps])
    });
    note_interleaving(figure);
    judge_top_customer(figure);
    measured
}

fn judge_top_customer(figure: &mut Figure) {
    figure.expect_alike(DISAPPEARS, "SR-AL is as fast as SI", [figure.point(1, 0), figure.point(0, 0)]);
    let last = figure.last();
    let all = [figure.point(1, last), figure.point(0, last)];
    figure.expect_alike(DISAPPEARS, "also when all transactions read much", all);
}

/// Figure 10 c.
pub(super) fn aborts(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [1, 5, 10].map(|warehouses: u16| (warehouses.to_string(), warehouses));
    let measured = bench.sweep(figure, ["aborts, % of attempts"], &xs, &LEVELS, |&(_, level), &warehouses| {
        let report = bench.run_interleaved::<Tpcc>(level, &tpcc(bench, warehouses), OPEN)?;
        Ok([report.abort_rate * 100.0])
    });
    note_interleaving(figure);
    judge_aborts(figure);
    measured
}

fn judge_aborts(figure: &mut Figure) {
    let last = figure.last();
    figure.expect_higher(CONFLICTS, "more warehouses, fewer aborts", [figure.point(1, 0), figure.point(1, last)]);
    figure.expect_alike(FALSE_ABORTS, "SR-AL aborts as SI does", [figure.point(1, 0), figure.point(0, 0)]);
    let false_aborts = [figure.point(2, 0), figure.point(1, 0)];
    figure.expect_higher(MORE_FALSE_ABORTS, "SR-RL aborts more than SR-AL", false_aborts);
}

fn note_interleaving(figure: &mut Figure) {
    figure.note = format!(
        "One thread with {OPEN} transactions open, which take turns at every operation; the paper does not say how many it has."
    );
}

/// Figure 11 a.
pub(super) fn scaling(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let most = bench.settings.threads;
    let options = tpcc(bench, most.try_into().unwrap_or(u16::MAX).max(2));
    let work = Work::Tpcc(options.clone());
    let logged = [("SR-AL, log on disk", RedoLog::OnDisk), ("SR-AL, log shipped", RedoLog::Shipped)];
    let logged = logged.map(|(name, log)| (name, ("hyper", Some(log))));
    let systems = [TWO_LEVELS.map(|(name, protocol)| (name, (protocol, None))), logged].concat();
    let measured = bench.sweep(figure, [RATE], &bench.threads(), &systems, |&(protocol, log), &threads| {
        let report = match log {
            Some(log) => bench.run_logged(protocol, &options, log, threads)?,
            None => bench.run_listed(protocol, &[], &work, threads, (1, 0))?,
        };
        Ok([report.committed_tps])
    });
    "The log is flushed every 10 ms to the directory of temporary files. It is shipped over TCP to a standby of `maflingo` in the same process, which writes it to that disk again, \
     applies it, and takes its share of the cores."
        .clone_into(&mut figure.note);
    let last = figure.last();
    let scaled = [figure.point(0, last), figure.point(0, 0)];
    figure.expect_higher(LINEAR, "more threads, more transactions", scaled);
    let near = 0.8 * most as f64;
    let claim = format!("it scales near linearly, at least {near:.1} times");
    figure.expect_times(LINEAR, &claim, scaled, near..=f64::MAX);
    let claim = "shipping the log costs at most 17 %: a share of 0.83 is left";
    if bench.has_threads(20, figure, SHIPPING, claim) {
        figure.expect_within(SHIPPING, claim, share_of_first(figure, 3, last), 0.83..=f64::MAX);
    }
    measured
}

/// Figure 11 b.
pub(super) fn crossing(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [0, 5, 10, 15, 20, 25].map(|percent: u8| (percent.to_string(), percent));
    let threads = bench.settings.threads;
    let measured = bench.sweep(figure, [RATE], &xs, &TWO_LEVELS, |protocol, &percent| {
        let options = TpccOptions {
            // A payment crosses once; of ten order lines one in a hundred crosses for each ten per cent of orders that do.
            remote_payment_percent: percent,
            remote_item_percent: percent.div_ceil(10),
            ..tpcc(bench, threads.try_into().unwrap_or(u16::MAX).max(2))
        };
        Ok([bench.run_listed(protocol, &[], &Work::Tpcc(options), threads, (1, 0))?.committed_tps])
    });
    "The share of Payments by customers of another warehouse; of order lines a tenth as many are supplied by another one, so that about as many orders cross. A warehouse \
     for each thread, where the paper has 20."
        .clone_into(&mut figure.note);
    let values = [figure.point(0, 0), figure.point(0, figure.last())];
    figure.expect_higher(CROSSING, "crossing costs throughput", values);
    measured
}

/// Figure 11 c.
pub(super) fn read_only(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [0, 20, 40, 60, 80, 100].map(|percent: u8| (percent.to_string(), percent));
    let threads = bench.settings.threads;
    let measured = bench.sweep(figure, [RATE], &xs, &TWO_LEVELS, |protocol, &percent| {
        let warehouses = threads.try_into().unwrap_or(u16::MAX).max(2);
        let options = TpccOptions { read_only_percent: percent, ..tpcc(bench, warehouses) };
        Ok([bench.run_listed(protocol, &[], &Work::Tpcc(options), threads, (1, 0))?.committed_tps])
    });
    "OrderStatus and StockLevel, half and half.".clone_into(&mut figure.note);
    let values = [figure.point(0, figure.last()), figure.point(0, 0)];
    figure.expect_higher(READ_ONLY, "read-only transactions are faster", values);
    measured
}

/// The rates of section 4.2.
pub(super) fn rates(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [
        ("insert", Operation::Insert),
        ("update", Operation::Update),
        ("delete and insert", Operation::DeleteAndInsert),
    ]
    .map(|(name, operation)| (name.to_owned(), operation));
    let systems = [(SINGLE, SINGLE_PROTOCOL), ("HyPer", "hyper")];
    let measured = bench.sweep(figure, [RATE], &xs, &systems, |protocol, &operation| {
        let options =
            ModifyOptions { records: bench.settings.records.max(1000), operation, ..ModifyOptions::default() };
        one_thread(bench, protocol, None, &Work::Modify(options))
    });
    ALONE.clone_into(&mut figure.note);
    for (x, (what, least)) in [("insertions", 0.68), ("updates", 0.59)].into_iter().enumerate() {
        let claim = format!("{what} are slightly slower with versions: a share of {least} to 1 is left");
        figure.expect_within(RATES, &claim, share_of_first(figure, 1, x), least..=1.0);
    }
    let share = share_of_first(figure, 1, 2);
    figure.expect_within(
        RATES,
        "a deletion with an insertion costs at most a tenth more with versions",
        share,
        0.9..=f64::MAX,
    );
    measured
}

/// TATP, section 4.3.
pub(super) fn tatp(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let systems = [(SINGLE, SINGLE_PROTOCOL), ("HyPer", "hyper"), ("Hekaton", "hekaton")];
    let work = Work::Tatp(subscribers(bench));
    let measured = bench.sweep(figure, [RATE], &bench.threads(), &systems, |protocol, &threads| {
        run(bench, protocol, None, &work, threads)
    });
    figure.note = format!("{ALONE} The paper's figures are of one thread.");
    let share = share_of_first(figure, 1, 0);
    figure.expect_within(TINY, "versions are just a tiny overhead: a share of 0.95 is left", share, 0.95..=f64::MAX);
    let trails = [figure.point(2, 0), figure.point(1, 0)];
    let claim = "the model of Hekaton is slower by around 20 %: a share of 0.7 to 0.9";
    figure.expect_times(TRAILS, claim, trails, 0.7..=0.9);
    measured
}

fn subscribers(bench: &Bench<'_>) -> TatpOptions {
    TatpOptions { subscribers: bench.settings.records.clamp(100, 1_000_000) as u32, ..TatpOptions::default() }
}

/// What predicate logs cost in a serial stream, section 4.4.
pub(super) fn logging(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [
        ("TPC-C".to_owned(), Work::Tpcc(TpccOptions { transactions: Transactions::Full, ..tpcc(bench, 5) })),
        ("TATP".to_owned(), Work::Tatp(subscribers(bench))),
    ];
    let measured = bench.sweep(figure, [RATE], &xs, &LEVELS, |&(protocol, _), work| {
        let report: Report = bench.run_listed(protocol, &[], work, 1, (1, 0))?;
        Ok([report.committed_tps])
    });
    "One thread, so that nothing is ever compared: what is left of serializability is the logging."
        .clone_into(&mut figure.note);
    for (x, name, by_columns, by_records) in [(0, "TPC-C", 7, 5), (1, "TATP", 2, 1)] {
        for (series, level, percent) in [(1, "SR-AL", by_columns), (2, "SR-RL", by_records)] {
            let left = 1.0 - f64::from(percent) / 100.0;
            let claim = format!("{level} costs at most {percent} % of {name}: a share of {left:.2} is left");
            figure.expect_within(LOGGING[x], &claim, share_of_first(figure, series, x), left..=f64::MAX);
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Verdict};

    /// The verdicts on two places of three series.
    fn verdicts(judge: fn(&mut Figure), series: [[f64; 2]; 3]) -> Vec<Verdict> {
        let mut figure = Figure::new("10", "", Kind::Lines, "");
        figure.frame(&["first", "last"].map(str::to_owned), &[""], &LEVELS.map(|(name, _)| name));
        for (found, points) in figure.panels[0].series.iter_mut().zip(series) {
            found.points = points.map(|run| Some(Point::of(vec![run; 3]))).to_vec();
        }
        judge(&mut figure);
        figure.findings().map(|finding| finding.verdict).collect()
    }

    /// These two figures need transactions that take turns, which no `Runner` runs. `worlds.rs` has the others.
    #[test]
    fn interleaved_transactions_bear_the_paper_out_or_not() {
        let [holds, differs] = [Verdict::Agrees, Verdict::Differs];
        // SI, SR-AL, SR-RL.
        let speeds = |by_columns| verdicts(judge_top_customer, [[10.0, 1.0], by_columns, [1.0, 1.0]]);
        assert_eq!(speeds([9.0, 0.9]), [holds, holds]);
        assert_eq!(speeds([5.0, 0.9]), [differs, holds]);
        assert_eq!(speeds([9.0, 0.5]), [holds, differs]);
        let aborts =
            |snapshots, by_columns, by_records| verdicts(judge_aborts, [[snapshots, 1.0], by_columns, by_records]);
        assert_eq!(aborts(1.9, [2.0, 1.0], [3.0, 2.0]), [holds, holds, holds]);
        assert_eq!(aborts(0.5, [1.0, 2.0], [0.5, 0.5]), [differs, differs, differs]);
    }
}
