//! Lazy state determination: Figures 5 a and d, and 6. What needs several servers (5 b, c, e and f) waits for a server.
//!
//! Clients are far away: each waits for its answers as long as a network takes, and holds meanwhile what its protocol holds.

use polychron_workloads::hotkey::{AssertOptions, HotOptions};
use polychron_workloads::round_trip::Talk;
use polychron_workloads::run::Report;
use polychron_workloads::tpcc::{TpccOptions, Transactions};

use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure, Paper, Plan};

pub(crate) const PAPER: Paper = Paper {
    name: "lazy",
    citation: "Tiago M. Vale, João Leitão, Nuno Preguiça, Rodrigo Rodrigues, Ricardo J. Dias, João M. Lourenço: Lazy State \
               Determination: More concurrency for contending linearizable transactions. 2020.",
    scope: "The paper measures clients and a server in a cluster, with rows on a disk. Here each client is a thread of the process \
            that waits 200 µs for each answer that it needs, eight of them for each core. Figures 5 b, c, e and f need several \
            servers. The paper's OCC is `occ`, its 2PL `locking-wound-wait`.",
    records: 1,
    plans: PLANS,
};

/// What the vertical axes show.
const THROUGHPUT: &str = "transactions a second";
const LATENCY: &str = "median latency in ms";
const ABORTS: &str = "aborts in percent of all attempts";

const ROUND_TRIP_US: u64 = 200;

const PLANS: &[Plan] = &[
    Plan::lines("5a", "TPC-C, one server, high contention", "clients", high_contention),
    Plan::lines("5d", "TPC-C, one server, low contention", "clients", low_contention),
    Plan::lines("6ad", "hotkey: throughput and aborts", "transactions on the hot counter in percent", hotkey),
    Plan::lines("6be", "assert, no contention: throughput and aborts", "counters begin at", |bench, figure| {
        assert(bench, figure, 0)
    }),
    Plan::lines("6cf", "assert, all on one counter: throughput and aborts", "counters begin at", |bench, figure| {
        assert(bench, figure, 100)
    }),
];

/// Figure 5a, on one warehouse.
const OCC_GAINS: &str = "“The lsd-aware OCC variant achieved a peak throughput of ≈ 1K committed transactions per second […], which amounts to ≈ 6.5× higher \
     throughput […] than standard OCC under the same load.”";
const LOCKING_GAINS: &str =
    "“The lsd-aware 2PL variant achieved […] ≈ 2.5× higher throughput […] than standard 2PL under the same load.”";
/// Figure 5d, on 32 warehouses.
const MARGINAL: &str = "“In both the centralized (Figure 5(d)) […], we observe that the lsd-aware OCC variant incurred in marginal overhead.”";
/// Figure 6a.
const NOT_AFFECTED: &str = "“The lsd-aware protocols are not affected by the parameter because the increments are delayed until commit time, whereas the throughput of the \
     OCC and 2PL protocols decreases when contention increases.”";
const ALL_HOT: &str = "“At 100 % contention, lsd’s throughput is ≈ 5× higher that 2PL and ≈ 30× more than OCC.”";
/// Figure 6b.
const ASKING: &str = "“For a scenario with no contention […], the lsd variants incur in an overhead of ≈ 1.1–1.25× when compared to their standard counterparts \
     (Figure 6(b)).”";
const ASSUMING: &str = "“As expected, the results in Figure 6(b) show that the throughput of the lsd+ variant increased when we decreased the condition invalidation \
     ratio, increasing throughput up to ≈ 1.3× that of the standard protocols.”";
/// Figure 6c.
const MORE_THROUGHPUT: &str = "“In particular, as the abort percentage decreased (Figure 6(f)), the lsd-aware variant of OCC (resp. 2PL) achieved up to ≈ 17× (resp. ≈ 2×) \
     more throughput than its standard counterpart (Figure 6(c)).”";
const BOOST: &str =
    "“The lsd+ variant was able to further boost the throughput gains to ≈ 30× the performance of OCC.”";

/// A protocol as it is measured.
#[derive(Clone, Copy, Debug)]
struct Contender {
    protocol: &'static str,
    futures: bool,
    speculates: bool,
}

const fn contender(protocol: &'static str, futures: bool) -> Contender {
    Contender { protocol, futures, speculates: false }
}

/// Names of the series.
const OCC: &str = "OCC";
const OCC_LSD: &str = "OCC-LSD";
const OCC_LSD_PLUS: &str = "OCC-LSD+";
const LOCKING: &str = "2PL";
const LOCKING_LSD: &str = "2PL-LSD";
const CICADA_LSD: &str = "cicada with futures (not in the paper)";
const HYPER_LSD: &str = "hyper with futures (not in the paper)";

const CONTENDERS: [(&str, Contender); 6] = [
    (OCC, contender("occ", false)),
    (OCC_LSD, contender("lazy-occ", true)),
    (LOCKING, contender("locking-wound-wait", false)),
    (LOCKING_LSD, contender("lazy-2pl", true)),
    (CICADA_LSD, contender("lazy-cicada", true)),
    (HYPER_LSD, contender("lazy-hyper", true)),
];

/// Those that are in the list of protocols; the figure says which are not.
fn contenders(bench: &Bench<'_>, figure: &mut Figure) -> Vec<(&'static str, Contender)> {
    let is_there = |contender: &Contender| bench.runner.accepts(contender.protocol, &[]).is_ok();
    let (found, missing): (Vec<_>, Vec<_>) = CONTENDERS.into_iter().partition(|(_, contender)| is_there(contender));
    for (_, contender) in missing {
        figure.note = format!("{} Left out: this build has no {}.", figure.note, contender.protocol).trim().to_owned();
    }
    found
}

impl Contender {
    fn talk(self) -> Talk {
        Talk { futures: self.futures, round_trip_us: ROUND_TRIP_US }
    }

    fn run(self, bench: &Bench<'_>, work: &Work, clients: usize) -> Result<Report, Ended> {
        bench.run_listed(self.protocol, &[], work, clients, (1, 0))
    }
}

fn clients(bench: &Bench<'_>) -> usize {
    8 * bench.settings.threads
}

fn high_contention(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let measured = tpcc(bench, figure, 1);
    expect_gain(figure, OCC_GAINS, [OCC_LSD, OCC], 6.5);
    expect_gain(figure, LOCKING_GAINS, [LOCKING_LSD, LOCKING], 2.5);
    measured
}

fn low_contention(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let measured = tpcc(bench, figure, if bench.settings.quick { 4 } else { 32 });
    let points = [OCC_LSD, OCC].map(|series| figure.point_of(series, figure.last()));
    figure.expect_alike(MARGINAL, &format!("{OCC_LSD} is as fast as {OCC}"), points);
    measured
}

/// That one is so many times as fast as another at the last place.
fn expect_gain(figure: &mut Figure, quote: &str, [lazy, plain]: [&str; 2], times: f64) {
    let points = [lazy, plain].map(|series| figure.point_of(series, figure.last()));
    figure.expect_higher(quote, &format!("{lazy} is faster than {plain}"), points);
    figure.expect_times(quote, &format!("at least {times} times as fast"), points, times..=f64::MAX);
}

fn tpcc(bench: &Bench<'_>, figure: &mut Figure, warehouses: u16) -> Result<(), Ended> {
    format!("NewOrder and Payment, half and half, on {warehouses} warehouses; the paper runs the whole mix.")
        .clone_into(&mut figure.note);
    let series = contenders(bench, figure);
    let most = clients(bench);
    let all = if bench.settings.quick { vec![1, most / 2, most] } else { vec![1, 2, 4, most / 2, most, 2 * most] };
    let xs: Vec<_> = all.into_iter().map(|clients| (clients.to_string(), clients)).collect();
    bench.sweep(figure, [THROUGHPUT, LATENCY], &xs, &series, |contender, &clients| {
        let talk = contender.talk();
        let scale = bench.settings.scale;
        let transactions = Transactions::Np;
        let options = TpccOptions { warehouses, transactions, talk, scale, ..TpccOptions::default() };
        let report = contender.run(bench, &Work::Tpcc(options), clients)?;
        Ok([report.committed_tps, report.latency_us.p50 / 1e3])
    })
}

fn hotkey(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let series = contenders(bench, figure);
    let shares: &[u64] = if bench.settings.quick { &[0, 50, 100] } else { &[0, 10, 20, 40, 60, 80, 100] };
    let xs: Vec<_> = shares.iter().map(|hot| (hot.to_string(), *hot)).collect();
    let measured = bench.sweep(figure, [THROUGHPUT, ABORTS], &xs, &series, |contender, &hot| {
        let options = HotOptions { hot, talk: contender.talk() };
        let report = contender.run(bench, &Work::HotKey(options), clients(bench))?;
        Ok([report.committed_tps, 100.0 * report.abort_rate])
    });
    let last = figure.last();
    for (lazy, plain) in [(OCC_LSD, OCC), (LOCKING_LSD, LOCKING)] {
        let ends = [figure.point_of(lazy, last), figure.point_of(lazy, 0)];
        figure.expect_alike(NOT_AFFECTED, &format!("{lazy} does not care"), ends);
        let points = [figure.point_of(plain, 0), figure.point_of(plain, last)];
        figure.expect_higher(NOT_AFFECTED, &format!("{plain} is slower where all meet"), points);
    }
    expect_gain(figure, ALL_HOT, [LOCKING_LSD, LOCKING], 5.0);
    expect_gain(figure, ALL_HOT, [OCC_LSD, OCC], 30.0);
    measured
}

fn assert(bench: &Bench<'_>, figure: &mut Figure, hot: u64) -> Result<(), Ended> {
    let mut series = contenders(bench, figure);
    if let Some(x) = series.iter().position(|(name, _)| *name == OCC_LSD) {
        let speculating = Contender { speculates: true, ..series[x].1 };
        series.insert(x + 1, (OCC_LSD_PLUS, speculating));
    }
    let beginnings: &[u64] = if bench.settings.quick { &[1, 100, 10_000] } else { &[1, 10, 100, 1000, 10_000] };
    let xs: Vec<_> = beginnings.iter().map(|initial| (initial.to_string(), *initial)).collect();
    let measured = bench.sweep(figure, [THROUGHPUT, ABORTS], &xs, &series, |contender, &initial| {
        let hot = HotOptions { hot, talk: contender.talk() };
        let options = AssertOptions { hot, initial, speculate: contender.speculates };
        let report = contender.run(bench, &Work::Assert(options), clients(bench))?;
        Ok([report.committed_tps, 100.0 * report.abort_rate])
    });
    let last = figure.last();
    if hot > 0 {
        expect_gain(figure, MORE_THROUGHPUT, [OCC_LSD, OCC], 17.0);
        expect_gain(figure, MORE_THROUGHPUT, [LOCKING_LSD, LOCKING], 2.0);
    } else {
        for (lazy, plain) in [(OCC_LSD, OCC), (LOCKING_LSD, LOCKING)] {
            let points = [plain, lazy].map(|series| figure.point_of(series, last));
            figure.expect_times(
                ASKING,
                &format!("{plain} is at most 1.25 times as fast as {lazy}"),
                points,
                0.0..=1.25,
            );
        }
    }
    let (quote, times) = if hot > 0 { (BOOST, 30.0) } else { (ASSUMING, 1.3) };
    let ends = [last, 0].map(|x| figure.point_of(OCC_LSD_PLUS, x));
    figure.expect_higher(quote, "the seldomer the condition changes, the more assuming gains", ends);
    expect_gain(figure, quote, [OCC_LSD_PLUS, OCC], times);
    measured
}
