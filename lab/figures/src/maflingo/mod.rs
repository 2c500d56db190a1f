//! Maflingo: Figures 6-2 to 6-6 of the thesis.

use polychron_workloads::run::Report;
use polychron_workloads::tpcc::{TpccOptions, Transactions};
use polychron_workloads::ycsb::YcsbOptions;

use crate::figure::{Panel, Point, Series, of_paper};
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure, Paper, Plan};

pub(crate) const PAPER: Paper = Paper {
    name: "maflingo",
    citation: "Stephen Lyle Tu: Fast Transactions for Multicore In-Memory Databases. Master's thesis, MIT, 2013.",
    scope: "The thesis measures with up to 70 threads on 80 cores and tables of 320 M rows, for 60 s each, with epochs of one second. Here \
            are as many threads as cores, and epochs of 2 ms. Its Figure 6-1 collects other systems' reports, and is not measured.",
    records: 10_000_000,
    plans: PLANS,
};

const PLANS: &[Plan] = &[
    Plan::lines("6-2", "YCSB, 80 % reads, one request of 100 bytes, uniform", "threads", overhead),
    Plan::lines("6-3", "TPC-C, a warehouse for each thread", "threads", scaling),
    Plan::lines("6-4", "NewOrder across warehouses", "transactions that touch a remote warehouse", partitions),
    Plan::lines(
        "6-5",
        "NewOrder and StockLevel, with and without snapshots",
        "items of a remote warehouse, %",
        snapshots,
    ),
    Plan::lines("6-6", "Records with at most so many extra versions", "extra versions", versions),
];

const NEGLIGIBLE: &str = "“Here, the overhead of MAFLINGO compared to Key-Value is negligible; Key-Value out-performs MAFLINGO by a maximum of 1.02× at 10 \
     threads.” (§6.3)";
const IDENTICAL: &str = "“For low core counts, GlobalTID performs identically to MAFLINGO, which is expected.” (§6.4)";
const PLATEAU: &str =
    "“However, as soon as we hit 20 cores, we see the performance of GlobalTID start to plateau.” (§6.4)";
const LINEAR: &str = "“Here, we see linear scale up to 60 threads […].” (§6.4)";
const PER_THREAD: &str =
    "“The per-thread throughput at one thread is 1.29× the per-thread throughput at 60 threads.” (§6.4)";
const LOCAL: &str = "“Partitioned-Store out-performs Maflingo by 1.43× at p=0.” (§6.5)";
const STEADY: &str = "“At roughly 15%, the throughput of Partitioned-Store drops below Maflingo and gets worse with increasing contention, whereas Maflingo \
     maintains a steady throughput throughout the entire experiment.” (§6.5)";
const REMOTE: &str = "“At p=10, Maflingo out-performs Partitioned-Store by 3.31×.” (§6.5)";
const STALE: &str = "“Using slightly stale read-only snapshots outperforms executing read-only queries in the present by a minimum of 1.18× at p=20, and a \
     maximum of 1.34× at p=60.” (§6.6)";
const ABORT_RATES: &str = "“As the contention rate increases, we see that the abort rate for No-Snapshots grows, but stays constant for Snapshots.” (§6.6)";
const EXTRA_VERSIONS: &str = "“For both experiments, our garbage collector kept the number of extra versions ≤ 2 (the maximum number of versions ever needed) for over \
     99% of all records.” (§6.7)";

/// What the vertical axes show.
const RATE: &str = "transactions a second";
const ABORTS: &str = "aborts, % of all attempts";
/// Names of series, and of the protocols.
const MAFLINGO: &str = "maflingo";
const KEY_VALUE: &str = "key-value";
const GLOBAL_TID: &str = "global-tid";
const PARTITIONED: &str = "partitioned-store";
const CICADA: &str = "cicada (not in the thesis)";

/// The cores from which a shared counter shows in the thesis.
const CORES_OF_A_PLATEAU: usize = 20;

fn run(bench: &Bench<'_>, protocol: &str, options: &[&str], work: Work, threads: usize) -> Result<Report, Ended> {
    let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
    bench.run_listed(protocol, &options, &work, threads, (1, 0))
}

fn ycsb(bench: &Bench<'_>) -> Work {
    let records = bench.settings.records;
    Work::Ycsb(YcsbOptions { records, requests: 1, read_share: 0.8, theta: 0.0, ..YcsbOptions::default() })
}

fn tpcc(bench: &Bench<'_>, warehouses: usize) -> TpccOptions {
    let warehouses = warehouses.try_into().unwrap_or(u16::MAX);
    TpccOptions { warehouses, scale: bench.settings.scale, ..TpccOptions::default() }
}

/// Figure 6-2.
fn overhead(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let systems = [KEY_VALUE, MAFLINGO, GLOBAL_TID].map(|name| (name, name));
    let threads = bench.threads();
    let measured = bench.sweep(figure, [RATE], &threads, &systems, |protocol, &threads| {
        Ok([run(bench, protocol, &[], ycsb(bench), threads)?.committed_tps])
    });
    let most = (0..threads.len())
        .filter_map(|x| Some(figure.point_of(KEY_VALUE, x)?.over(figure.point_of(MAFLINGO, x)?)))
        .max_by(|one, other| one.median.total_cmp(&other.median));
    figure.expect_within(NEGLIGIBLE, "`key-value` is at most 1.02 times as fast as `maflingo`", most, 0.0..=1.02);
    let low = [figure.point_of(GLOBAL_TID, 0), figure.point_of(MAFLINGO, 0)];
    figure.expect_alike(IDENTICAL, "on one core `global-tid` performs as `maflingo` does", low);
    let claim = "a counter in every commit slows many cores down";
    if bench.has_threads(CORES_OF_A_PLATEAU, figure, PLATEAU, claim) {
        let x = figure.last();
        figure.expect_higher(PLATEAU, claim, [figure.point_of(MAFLINGO, x), figure.point_of(GLOBAL_TID, x)]);
    }
    measured
}

/// Figure 6-3.
fn scaling(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let systems = [(MAFLINGO, "maflingo"), (CICADA, "cicada")];
    let measured = bench.sweep(
        figure,
        [RATE, "transactions a second of each thread"],
        &bench.threads(),
        &systems,
        |protocol, &threads| {
            let rate = run(bench, protocol, &[], Work::Tpcc(tpcc(bench, threads)), threads)?.committed_tps;
            Ok([rate, rate / threads as f64])
        },
    );
    let last = figure.last();
    let near = 0.8 * bench.settings.threads as f64;
    let claim = format!("the most threads make at least {near:.1} times what one makes");
    if bench.has_threads(2, figure, LINEAR, &claim) {
        let ends = [last, 0].map(|x| figure.point_of(MAFLINGO, x));
        figure.expect_times(LINEAR, &claim, ends, near..=f64::MAX);
    }
    let claim = "a thread alone makes at most 1.29 times what each of the most threads makes";
    if bench.has_threads(2, figure, PER_THREAD, claim) {
        let ends = [0, last].map(|x| figure.point_in(1, MAFLINGO, x));
        figure.expect_times(PER_THREAD, claim, ends, 0.0..=1.29);
    }
    measured
}

/// Figure 6-4.
fn partitions(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let percents: &[u8] = if bench.settings.quick { &[0, 2, 10] } else { &[0, 1, 2, 3, 5, 10] };
    let name = |&percent: &u8| format!("{:.0} % (p = {percent})", 100.0 * touches_another(percent));
    let xs: Vec<_> = percents.iter().map(|percent| (name(percent), *percent)).collect();
    let threads = bench.settings.threads;
    let warehouses = threads.max(2);
    let option = format!("partitions={warehouses}");
    let systems: [(&str, Vec<&str>); 2] = [(PARTITIONED, vec![&option]), (MAFLINGO, vec![])];
    let series: Vec<_> = systems.iter().map(|(name, options)| (*name, (*name, options))).collect();
    let measured = bench.sweep(figure, [RATE], &xs, &series, |(protocol, options), &percent| {
        let options_of_tpcc = TpccOptions {
            transactions: Transactions::NewOrder,
            remote_item_percent: percent,
            ..tpcc(bench, warehouses)
        };
        Ok([run(bench, protocol, options, Work::Tpcc(options_of_tpcc), threads)?.committed_tps])
    });
    figure.note = format!("{threads} threads and {warehouses} warehouses, where the thesis has 28 of each.");
    let at = |percent: u8| percents.iter().position(|&it| it == percent).unwrap_or_default();
    let pair = |figure: &Figure, one, other, x| [figure.point_of(one, x), figure.point_of(other, x)];
    let local = pair(figure, PARTITIONED, MAFLINGO, at(0));
    figure.expect_higher(LOCAL, "`partitioned-store` is faster at p = 0", local);
    figure.expect_times(LOCAL, "at least 1.43 times as fast", local, 1.43..=f64::MAX);
    let few = pair(figure, MAFLINGO, PARTITIONED, at(2));
    figure.expect_higher(STEADY, "`maflingo` is faster at p = 2, where 18 % touch another warehouse", few);
    let worse = [2, 10].map(|percent| figure.point_of(PARTITIONED, at(percent)));
    figure.expect_higher(STEADY, "`partitioned-store` is faster at p = 2 than at p = 10", worse);
    let steady = [figure.point_of(MAFLINGO, 0), figure.point_of(MAFLINGO, figure.last())];
    figure.expect_alike(STEADY, "`maflingo` maintains a steady throughput", steady);
    let many = pair(figure, MAFLINGO, PARTITIONED, at(10));
    figure.expect_higher(REMOTE, "`maflingo` is faster at p = 10", many);
    figure.expect_times(REMOTE, "at least 3.31 times as fast", many, 3.31..=f64::MAX);
    measured
}

/// The share of NewOrders, of 5 to 15 items each, that touch another warehouse where each item does with this chance in percent.
fn touches_another(percent: u8) -> f64 {
    let stays = 1.0 - f64::from(percent) / 100.0;
    (5..=15).map(|items| 1.0 - stays.powi(items)).sum::<f64>() / 11.0
}

/// Figure 6-5.
fn snapshots(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let percents: &[u8] = if bench.settings.quick { &[0, 20, 60, 100] } else { &[0, 20, 40, 60, 80, 100] };
    let xs: Vec<_> = percents.iter().map(|percent| (percent.to_string(), *percent)).collect();
    let threads = bench.settings.threads;
    // Two threads share a warehouse; there are two at least, or nothing would be remote.
    let warehouses = (threads / 2).max(2);
    let systems = [(SNAPSHOTS, true), (NO_SNAPSHOTS, false)];
    let measured = bench.sweep(figure, [RATE, ABORTS], &xs, &systems, |&snapshots, &percent| {
        let options = TpccOptions {
            transactions: Transactions::NewOrderStockLevel,
            remote_item_percent: percent,
            snapshots,
            ..tpcc(bench, warehouses)
        };
        // A snapshot begins at once in the past, as in the thesis, whatever its client has committed.
        let report = run(bench, MAFLINGO, &["own-commits=no"], Work::Tpcc(options), threads)?;
        Ok([report.committed_tps, report.abort_rate * 100.0])
    });
    figure.note = format!(
        "{threads} threads and {warehouses} warehouses, where the thesis has 16 and 8. Snapshots are some milliseconds old, the thesis's a second."
    );
    for (percent, times) in [(20, 1.18), (60, 1.34)] {
        let x = percents.iter().position(|&it| it == percent).unwrap_or_default();
        let points = [SNAPSHOTS, NO_SNAPSHOTS].map(|series| figure.point_of(series, x));
        figure.expect_higher(STALE, &format!("snapshots are faster at p = {percent}"), points);
        figure.expect_times(
            STALE,
            &format!("at least {times} times as fast at p = {percent}"),
            points,
            times..=f64::MAX,
        );
    }
    let aborts = |figure: &Figure, series| [figure.last(), 0].map(|x| figure.point_in(1, series, x));
    let growing = aborts(figure, NO_SNAPSHOTS);
    figure.expect_higher(ABORT_RATES, "without snapshots the abort rate grows with p", growing);
    let constant = aborts(figure, SNAPSHOTS);
    figure.expect_alike(ABORT_RATES, "with snapshots the abort rate stays constant", constant);
    measured
}

const SNAPSHOTS: &str = "Snapshots";
const NO_SNAPSHOTS: &str = "No-Snapshots";

/// The shares of records with at most 0, 1, 2, 3 and 4 extra versions in the thesis.
const OF_YCSB: [f64; 5] = [0.641, 0.927, 0.990, 0.999, 0.999];
const OF_TPCC: [f64; 5] = [0.274, 0.990, 0.991, 0.991, 0.992];

/// Figure 6-6.
fn versions(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let threads = bench.settings.threads;
    let works = [("YCSB", ycsb(bench), OF_YCSB), ("TPC-C", Work::Tpcc(tpcc(bench, threads)), OF_TPCC)];
    figure.x_values = (0..OF_YCSB.len()).map(|extra| extra.to_string()).collect();
    figure.panels = vec![Panel { y_name: "share of all records".to_owned(), series: Vec::new() }];
    for (name, _, shares) in &works {
        let points = shares.map(|share| Some(of_paper(share))).to_vec();
        let here = Series { name: format!("{name}, here"), points: vec![None; points.len()] };
        figure.panels[0].series.extend([here, Series { name: format!("{name}, the thesis"), points }]);
    }
    for (at, (name, work, _)) in works.into_iter().enumerate() {
        let mut runs = [const { Vec::new() }; OF_YCSB.len()];
        for _ in 0..bench.settings.repeat.max(1) {
            (bench.status)(&format!("  {name}"));
            let report = run(bench, MAFLINGO, &[], work.clone(), threads)?;
            let shares = report.versions.map(|versions| versions.cumulative).unwrap_or_default();
            let of = |extra: usize| shares.get(extra).or(shares.last()).copied().unwrap_or(0.0);
            runs.iter_mut().enumerate().for_each(|(extra, runs)| runs.push(of(extra)));
        }
        figure.panels[0].series[2 * at].points = runs.map(|runs| Some(Point::of(runs))).to_vec();
        let claim = format!("{name}: at most two extra versions for over 99 % of all records");
        figure.expect_within(EXTRA_VERSIONS, &claim, figure.point(2 * at, 2), 0.99..=1.0);
    }
    figure.note =
        format!("After runs of {} s on {threads} threads, the thesis after 60 s on 28.", bench.settings.seconds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_touch_other_warehouses_as_the_thesis_says() {
        assert!((touches_another(0), touches_another(100)) == (0.0, 1.0));
        assert!((touches_another(2) - 0.18).abs() < 0.01 && (touches_another(10) - 0.64).abs() < 0.01);
    }
}
