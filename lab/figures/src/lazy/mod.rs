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
    Plan::lines(
        "5a",
        "TPC-C, one server, high contention",
        "clients",
        "On one warehouse “the lsd-aware OCC variant achieved a peak throughput of ≈ 1K committed transactions per second […], which amounts to ≈ 6.5× higher \
         throughput […] than standard OCC under the same load. The lsd-aware 2PL variant achieved […] ≈ 2.5× higher throughput […] than standard 2PL.”",
        |bench, figure| tpcc(bench, figure, 1, true),
    ),
    Plan::lines(
        "5d",
        "TPC-C, one server, low contention",
        "clients",
        "On 32 warehouses futures cost OCC next to nothing.",
        |bench, figure| tpcc(bench, figure, if bench.settings.quick { 4 } else { 32 }, false),
    ),
    Plan::lines(
        "6ad",
        "hotkey: throughput and aborts",
        "transactions on the hot counter in percent",
        "“The lsd-aware protocols are not affected by the parameter because the increments are delayed until commit time, whereas the throughput of the \
         OCC and 2PL protocols decreases when contention increases.” “At 100 % contention, lsd’s throughput is ≈ 5× higher that 2PL and ≈ 30× more \
         than OCC.”",
        hotkey,
    ),
    Plan::lines(
        "6be",
        "assert, no contention: throughput and aborts",
        "counters begin at",
        "Asking costs 1.1 to 1.25 times; with answers that are assumed it gains up to 1.3 times, if they seldom change.",
        |bench, figure| assert(bench, figure, 0),
    ),
    Plan::lines(
        "6cf",
        "assert, all on one counter: throughput and aborts",
        "counters begin at",
        "“As the abort percentage decreased (Figure 6(f)), the lsd-aware variant of OCC (resp. 2PL) achieved up to ≈ 17× (resp. ≈ 2×) more throughput \
         than its standard counterpart (Figure 6(c)). The lsd+ variant was able to further boost the throughput gains to ≈ 30× the performance of OCC.”",
        |bench, figure| assert(bench, figure, 100),
    ),
];

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

fn tpcc(bench: &Bench<'_>, figure: &mut Figure, warehouses: u16, high: bool) -> Result<(), Ended> {
    format!("NewOrder and Payment, half and half, on {warehouses} warehouses; the paper runs the whole mix.")
        .clone_into(&mut figure.note);
    let series = contenders(bench, figure);
    let most = clients(bench);
    let all = if bench.settings.quick { vec![1, most / 2, most] } else { vec![1, 2, 4, most / 2, most, 2 * most] };
    let xs: Vec<_> = all.into_iter().map(|clients| (clients.to_string(), clients)).collect();
    let measured = bench.sweep(figure, [THROUGHPUT, LATENCY], &xs, &series, |contender, &clients| {
        let talk = contender.talk();
        let scale = bench.settings.scale;
        let transactions = Transactions::Np;
        let options = TpccOptions { warehouses, transactions, talk, scale, ..TpccOptions::default() };
        let report = contender.run(bench, &Work::Tpcc(options), clients)?;
        Ok([report.committed_tps, report.latency_us.p50 / 1e3])
    });
    let last = figure.last();
    for (lazy, plain) in [(OCC_LSD, OCC), (LOCKING_LSD, LOCKING)] {
        let points = [figure.point_of(lazy, last), figure.point_of(plain, last)];
        if high {
            figure.expect_higher(&format!("{lazy} is faster than {plain}"), points);
        } else {
            figure.expect_alike(&format!("{lazy} is as fast as {plain}"), points);
        }
    }
    measured
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
        figure.expect_alike(&format!("{lazy} does not care"), ends);
        let points = [figure.point_of(lazy, last), figure.point_of(plain, last)];
        figure.expect_higher(&format!("{lazy} is faster than {plain} where all meet"), points);
        let points = [figure.point_of(plain, 0), figure.point_of(plain, last)];
        figure.expect_higher(&format!("{plain} is slower where all meet"), points);
    }
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
    let ends = |figure: &Figure, name: &str| [figure.point_of(name, last), figure.point_of(name, 0)];
    let points = ends(figure, OCC_LSD_PLUS);
    figure.expect_higher("the seldomer the condition changes, the more assuming gains", points);
    if hot > 0 {
        for (lazy, plain) in [(OCC_LSD, OCC), (LOCKING_LSD, LOCKING)] {
            let points = [figure.point_of(lazy, last), figure.point_of(plain, last)];
            figure.expect_higher(&format!("{lazy} is faster than {plain}"), points);
        }
    } else {
        let points = [figure.point_of(OCC_LSD, last), figure.point_of(OCC, last)];
        figure.expect_alike("asking costs little where nobody is in the way", points);
    }
    measured
}
