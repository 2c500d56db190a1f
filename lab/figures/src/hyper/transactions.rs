//! Transactions: Figures 10 and 11, the rates of section 4.2, the costs of logging predicates of section 4.4.

use polychron_protocols::hyper::Level;
use polychron_workloads::modify::{ModifyOptions, Operation};
use polychron_workloads::run::Report;
use polychron_workloads::tatp::TatpOptions;
use polychron_workloads::tpcc::{Tpcc, TpccOptions, Transactions};

use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

pub(super) const SYSTEMS: &str = "More than 100,000 TPC-C transactions a second on either backend, some 20 % less than with single-version concurrency \
     control; a model that copies whole records, as Hekaton's does, makes 50,000, two-phase locking a fifth.";
pub(super) const TOP_CUSTOMER: &str = "Serializability costs interleaved transactions little, and next to nothing when most of them read much and write little.";
pub(super) const ABORTS: &str = "Of interleaved transactions some per cent conflict, fewer with more warehouses; predicates that know columns add almost no \
     false aborts to those of snapshot isolation, predicates that know records add some.";
pub(super) const SCALING: &str = "Throughput grows with the threads; shipping the redo log costs 17 % with 20 of them.";
pub(super) const CROSSING: &str = "Throughput falls slowly as more transactions cross partitions.";
pub(super) const READ_ONLY: &str = "Throughput grows with the share of read-only transactions.";
pub(super) const RATES: &str = "5.9 M insertions, 3.4 M updates and 1.1 M deletions with an insertion a second with single-version concurrency control, 4 M, 2 M \
     and 1 M with versions.";
pub(super) const TATP: &str = "407,564 transactions a second, 3 % less than with single-version concurrency control (421,940); the model of Hekaton 20 % less (340,715).";
pub(super) const LOGGING: &str =
    "Predicate logs by record cost 5 % of TPC-C and 1 % of TATP in a serial stream, those by column 7 % and 2 %.";

const RATE: &str = "transactions a second";
const ALONE: &str = "The serial protocol here is an oracle over ordered maps of the standard library, not an engine: it is what has no versions and no \
     concurrency, and not what such a store could be.";
const CHEAP: &str = "Predicates are summaries in a list; what they cost is near what the machine's moods hide.";
const FEW_CORES: &str = "Two threads cross each other's partitions too seldom to show it.";

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

fn one_thread(bench: &Bench<'_>, protocol: &str, options: &[String], work: &Work) -> Result<[f64; 1], Ended> {
    Ok([bench.run_listed(protocol, options, work, 1, (1, 0))?.committed_tps])
}

/// Figure 10 a.
pub(super) fn systems(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let work = Work::Tpcc(tpcc(bench, 5));
    let systems =
        [("single version", "serial"), ("HyPer", "hyper"), ("Hekaton", "hekaton"), ("2PL", "locking-no-wait")];
    let xs = [("column store", "backend=columns"), ("row store", "backend=rows")]
        .map(|(name, option)| (name.to_owned(), option.to_owned()));
    let measured = bench.sweep(figure, [RATE], &xs, &systems, |protocol, backend| {
        let options = if *protocol == "hyper" { std::slice::from_ref(backend) } else { &[] };
        one_thread(bench, protocol, options, &work)
    });
    figure.note = format!("{ALONE} Only HyPer has two backends.");
    figure.expect_higher("HyPer is faster than the model of Hekaton", [figure.point(1, 1), figure.point(2, 1)], "");
    figure.expect_higher("HyPer is faster than two-phase locking", [figure.point(1, 1), figure.point(3, 1)], "");
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
    figure.expect_alike("SR-AL is as fast as SI", [figure.point(1, 0), figure.point(0, 0)], CHEAP);
    let last = figure.last();
    let all = [figure.point(1, last), figure.point(0, last)];
    figure.expect_alike(
        "also when all transactions read much",
        all,
        "All of them update a customer of the few districts.",
    );
    measured
}

/// Figure 10 c.
pub(super) fn aborts(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [1, 5, 10].map(|warehouses: u16| (warehouses.to_string(), warehouses));
    let measured = bench.sweep(figure, ["aborts, % of attempts"], &xs, &LEVELS, |&(_, level), &warehouses| {
        let report = bench.run_interleaved::<Tpcc>(level, &tpcc(bench, warehouses), OPEN)?;
        Ok([report.abort_rate * 100.0])
    });
    note_interleaving(figure);
    let last = figure.last();
    figure.expect_higher("more warehouses, fewer aborts", [figure.point(1, 0), figure.point(1, last)], "");
    let false_aborts = [figure.point(2, 0), figure.point(1, 0)];
    figure.expect_higher("SR-RL aborts more than SR-AL", false_aborts, "Most conflicts are of two that write one row.");
    measured
}

fn note_interleaving(figure: &mut Figure) {
    figure.note = format!(
        "One thread with {OPEN} transactions open, which take turns at every operation; the paper does not say how many it has."
    );
}

/// Figure 11 a, without the log.
pub(super) fn scaling(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let most = bench.settings.threads;
    let work = Work::Tpcc(tpcc(bench, most.try_into().unwrap_or(u16::MAX).max(2)));
    let measured = bench.sweep(figure, [RATE], &bench.threads(), &TWO_LEVELS, |protocol, &threads| {
        Ok([bench.run_listed(protocol, &[], &work, threads, (1, 0))?.committed_tps])
    });
    let last = figure.last();
    let scaled = [figure.point(0, last), figure.point(0, 0)];
    figure.expect_higher("more threads, more transactions", scaled, "Free cores are few.");
    figure.cannot_show("shipping the log costs 17 %", "There is no log yet.");
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
    figure.expect_higher("crossing costs throughput", values, FEW_CORES);
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
    figure.expect_higher(
        "read-only transactions are faster",
        values,
        "StockLevel reads two hundred rows, more than NewOrder.",
    );
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
    let systems = [("single version", "serial"), ("HyPer", "hyper")];
    let measured = bench.sweep(figure, [RATE], &xs, &systems, |protocol, &operation| {
        let options =
            ModifyOptions { records: bench.settings.records.max(1000), operation, ..ModifyOptions::default() };
        one_thread(bench, protocol, &[], &Work::Modify(options))
    });
    ALONE.clone_into(&mut figure.note);
    figure.expect_higher(
        "insertions are faster than deletions with an insertion",
        [figure.point(1, 0), figure.point(1, 2)],
        "",
    );
    measured
}

/// TATP, section 4.3.
pub(super) fn tatp(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let systems = [("single version", "serial"), ("HyPer", "hyper"), ("Hekaton", "hekaton")];
    let work = Work::Tatp(subscribers(bench));
    let measured = bench.sweep(figure, [RATE], &bench.threads(), &systems, |protocol, &threads| {
        Ok([bench.run_listed(protocol, &[], &work, threads, (1, 0))?.committed_tps])
    });
    figure.note = format!("{ALONE} The paper's figures are of one thread.");
    figure.expect_higher("HyPer is faster than the model of Hekaton", [figure.point(1, 0), figure.point(2, 0)], "");
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
    for (x, name) in ["TPC-C", "TATP"].into_iter().enumerate() {
        let claim = format!("logging costs little in {name}");
        figure.expect_alike(&claim, [figure.point(0, x), figure.point(1, x)], CHEAP);
    }
    figure.cannot_show("so it is in TPC-H", "There are no analytical queries yet.");
    measured
}
