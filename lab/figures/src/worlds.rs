//! Every verdict on invented measurements: in one world the papers are right, in the other one they are wrong.
//!
//! The right world is written down below, as speeds that follow what the papers say. Each speed of the wrong world is one over the cube of
//! the right one's: what was faster is slower there, and what is alike (1.15 to 1) is not (1.52 to 1).

use std::collections::BTreeMap;

use polychron_sync::atomic::AtomicBool;
use polychron_workloads::modify::Operation;
use polychron_workloads::run::{self, Report, Staleness, VersionReport};
use polychron_workloads::scan::{PLAIN_ROWS_A_SECOND, ROWS_A_SECOND, ScanOptions, SnapshotTime};
use polychron_workloads::tpcc::{TpccOptions, Transactions};
use polychron_workloads::ycsb::YcsbOptions;

use crate::figure::{Figure, Verdict};
use crate::measure::Settings;
use crate::runner::{RedoLog, Runner, Work};
use crate::{PAPERS, Watch};

/// As fast as a speed of 1, up to a quarter; not so in the wrong world.
const ALIKE: f64 = 1.15;

/// Enough for what shows on many cores only.
const THREADS: usize = 32;

/// Measures nothing, and knows which figure is drawn.
struct World {
    paper: &'static str,
    figure: &'static str,
    is_right: bool,
}

/// What is to be run.
struct Run<'r> {
    protocol: &'r str,
    options: &'r [String],
    work: &'r Work,
    threads: usize,
    batch: usize,
}

impl Run<'_> {
    fn tpcc(&self) -> &TpccOptions {
        let Work::Tpcc(options) = self.work else { panic!("not TPC-C: {:?}", self.work) };
        options
    }

    fn ycsb(&self) -> &YcsbOptions {
        let Work::Ycsb(options) = self.work else { panic!("not YCSB: {:?}", self.work) };
        options
    }

    fn scan(&self) -> &ScanOptions {
        let Work::Scan(options) = self.work else { panic!("no scan: {:?}", self.work) };
        options
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|it| it == option)
    }

    /// The number that an option has.
    fn number(&self, name: &str) -> Option<f64> {
        self.options.iter().find_map(|it| it.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }

    /// The speed of the protocol in this list, or 1.
    fn among(&self, speeds: &[(&str, f64)]) -> f64 {
        speeds.iter().find(|(name, _)| *name == self.protocol).map_or(1.0, |(_, speed)| *speed)
    }

    /// Dirty records, in percent.
    fn dirty(&self) -> f64 {
        100.0 * self.scan().dirty as f64 / self.scan().records as f64
    }

    fn speed_of_cicada(&self, figure: &str) -> f64 {
        let ahead = self.among(&[("cicada", 2.0)]);
        match figure {
            "6a" => ahead * self.threads as f64,
            "6b" => ahead * (1.0 - self.ycsb().theta / 2.0),
            "6c" if self.ycsb().theta == 0.8 => ahead * 1.2,
            "6c" => ahead * (1.0 - self.ycsb().theta / 2.0),
            "7" if self.has("central-clock=yes") => 8.0,
            "7" => self.among(&[("cicada", 100.0), ("hekaton", 5.0)]),
            "8" if self.has("inlining=no") => 2.0 / (1.0 + 8.0 / f64::from(self.ycsb().record_size)),
            "9" => 1.0 / (1.0 + self.number("collection-us").expect("an interval") / 1e5),
            "10 top" | "10 middle" | "10 bottom" => {
                self.number("backoff-us").map_or(1.2, |longest| 1.0 / (1.0 + longest / 50.0))
            }
            "11a" | "11b" => self.among(&[("maflingo", 2.0)]),
            "table 2" => {
                if self.options.is_empty() {
                    1.0
                } else {
                    0.9
                }
            }
            "scans" => {
                if self.has("inlining=no") {
                    0.5
                } else {
                    1.0
                }
            }
            figure if figure.starts_with(['3', '4', '5']) => match self.protocol {
                "cicada" if self.tpcc().transactions == Transactions::Np => 8.0 * self.threads as f64,
                "cicada" => 4.0 * self.threads as f64,
                protocol => (self.threads as f64).sqrt() * if protocol == "hekaton" { 0.5 } else { 1.0 },
            },
            _ => ahead,
        }
    }

    fn speed_of_bohm(&self, figure: &str) -> f64 {
        match figure {
            "4" => match ["concurrency-control-threads", "execution-threads"].map(|name| self.number(name)) {
                [Some(control), Some(execution)] if control > 0.0 => execution.min(1.5 * control),
                _ => 0.5,
            },
            "5 top" => self.among(&[("locking", 3.0), ("bohm", 2.5)]) * self.of_many(),
            "5 bottom" if self.ycsb().theta > 0.0 => self.among(&[("locking", 6.0), ("bohm", ALIKE)]),
            "5 bottom" => self.among(&[("locking", 2.0), ("bohm", ALIKE)]),
            "6 top" => self.among(&[("bohm", 3.0), ("snapshot-isolation", 2.0), ("maflingo", 0.5), ("locking", 0.5)]),
            "6 bottom" => match self.protocol {
                "hekaton" | "snapshot-isolation" => self.of_many(),
                _ => self.among(&[("maflingo", 2.0 * ALIKE), ("bohm", 2.0)]),
            },
            "7" if self.protocol == "bohm" => 3.0,
            "7" => self.among(&[("hekaton", ALIKE)]) * (1.0 - self.ycsb().theta / 2.0),
            "8" if self.ycsb().long_readers == 100.0 => self.among(&[("bohm", ALIKE)]),
            "8" => self.among(&[("bohm", 3.0), ("maflingo", 0.3), ("locking", 0.3)]),
            "9 top" if matches!(self.work, Work::Ycsb(_)) => self.among(&[("locking", 9.0), ("bohm", 2.0)]),
            "9 top" => {
                let speeds = [("locking", 3.0), ("bohm", 2.0), ("snapshot-isolation", 0.8), ("hekaton", 0.5)];
                self.among(&speeds)
            }
            "9 bottom" => self.among(&[("bohm", ALIKE), ("hekaton", 0.5), ("snapshot-isolation", 0.5)]),
            "batches" => self.batch as f64,
            other => panic!("no world has Figure {other}"),
        }
    }

    /// What many threads leave of a speed where they are in each other's way.
    fn of_many(&self) -> f64 {
        (self.threads as f64).powf(-0.3)
    }

    fn speed_of_lazy(&self, figure: &str) -> f64 {
        let has_futures = self.protocol.starts_with("lazy");
        match (figure, self.work) {
            ("5a", _) => {
                if has_futures {
                    7.0
                } else {
                    1.0
                }
            }
            ("5d", _) => {
                if has_futures {
                    ALIKE
                } else {
                    1.0
                }
            }
            ("6ad", Work::HotKey(options)) if has_futures => 40.0 * if options.hot == 0 { ALIKE } else { 1.0 },
            ("6ad", Work::HotKey(options)) => 2.0 - options.hot as f64 / 100.0,
            (_, Work::Assert(options)) if options.speculate => 10.0 * (3.0 + (options.initial as f64).log10()),
            ("6be", _) => {
                if has_futures {
                    1.0
                } else {
                    1.0 / ALIKE
                }
            }
            ("6cf", _) => {
                if has_futures {
                    20.0
                } else {
                    1.0
                }
            }
            (other, work) => panic!("no world has Figure {other} of {work:?}"),
        }
    }

    fn speed_of_maflingo(&self, figure: &str) -> f64 {
        match figure {
            "6-2" if self.threads == 1 => self.among(&[("key-value", 0.9), ("global-tid", 1.0 / ALIKE)]),
            "6-2" => self.among(&[("key-value", 0.9), ("global-tid", 0.5)]),
            "6-3" => {
                if self.threads == 1 {
                    1.0
                } else {
                    self.threads as f64 / 1.1
                }
            }
            "6-4" if self.tpcc().remote_item_percent == 0 => {
                self.among(&[("partitioned-store", 2.0), ("maflingo", ALIKE)])
            }
            "6-4" => {
                self.among(&[("partitioned-store", 1.0 / (1.0 + f64::from(self.tpcc().remote_item_percent) / 3.0))])
            }
            "6-5" => {
                if self.tpcc().snapshots {
                    2.0
                } else {
                    1.0
                }
            }
            "6-6" => 1.0,
            other => panic!("no world has Figure {other}"),
        }
    }

    fn speed_of_hyper(&self, figure: &str) -> f64 {
        match (figure, self.work) {
            ("7", _) => match (self.scan().snapshot_time, self.scan().versions) {
                (SnapshotTime::Newest, _) => 1.0,
                (SnapshotTime::Oldest, 16) if self.dirty() > 0.05 => 0.4,
                (SnapshotTime::Oldest, _) => 1.0 / ALIKE,
            },
            ("8", _) => {
                if self.has("synopsis=none") {
                    0.3
                } else if self.options.iter().any(|option| option.starts_with("synopsis=")) {
                    1.0
                } else {
                    2.0
                }
            }
            ("rates", Work::Modify(options)) if options.operation == Operation::DeleteAndInsert => {
                self.among(&[("hyper", 1.05)])
            }
            ("rates", _) => self.among(&[("partitioned-store", 1.4)]),
            ("10a", _) => self.among(&[("hyper", 0.8), ("hekaton", 0.4), ("locking-no-wait", 0.16)]),
            ("11a", _) => self.threads as f64,
            ("11b", _) => 1.0 - f64::from(self.tpcc().remote_payment_percent) / 100.0,
            ("11c", _) => 1.0 + f64::from(self.tpcc().read_only_percent) / 100.0,
            ("tatp", _) => self.among(&[("hyper", 1.05), ("hekaton", 0.85)]),
            ("logging", _) => self.among(&[("hyper", 1.05), ("hyper-record-level", 1.05)]),
            ("9", _) => 1.0,
            (other, work) => panic!("no world has Figure {other} of {work:?}"),
        }
    }

    /// Aborts, as a multiple of those of Figure 6-5 that stay.
    fn aborts(&self) -> f64 {
        match self.work {
            Work::Tpcc(options) if options.snapshots && options.remote_item_percent == 0 => ALIKE,
            Work::Tpcc(options) if !options.snapshots => 1.0 + f64::from(options.remote_item_percent) / 100.0,
            _ => 1.0,
        }
    }
}

impl World {
    fn speed(&self, run: &Run<'_>) -> f64 {
        match self.paper {
            "cicada" => run.speed_of_cicada(self.figure),
            "bohm" => run.speed_of_bohm(self.figure),
            "lazy" => run.speed_of_lazy(self.figure),
            "maflingo" => run.speed_of_maflingo(self.figure),
            "hyper" => run.speed_of_hyper(self.figure),
            other => panic!("no world has the paper {other}"),
        }
    }

    /// As it is in this world.
    fn here(&self, right: f64) -> f64 {
        if self.is_right { right } else { right.powi(-3) }
    }

    /// What HyPer and Cicada count themselves.
    fn metrics(&self, run: &Run<'_>) -> BTreeMap<String, serde_json::Value> {
        let versions = if matches!(run.work, Work::Scan(_)) { 10.0 + 500.0 * run.dirty().min(0.1) } else { 0.0 };
        let versions = if self.is_right { versions } else { 100.0 - versions };
        let lag = self.here(run.number("collection-us").unwrap_or(1.0) / 1e4);
        let metrics = [
            ("scan_ns", 100.0 - versions),
            ("scan_version_ns", versions),
            ("collected_records", 1e6),
            ("collection_lag_mean_ns", lag * 1e9),
        ];
        metrics.map(|(name, value)| (name.to_owned(), value.into())).into()
    }
}

impl Runner for World {
    fn accepts(&self, _: &str, _: &[String]) -> Result<(), String> {
        Ok(())
    }

    fn run(
        &self,
        protocol: &str,
        options: &[String],
        work: &Work,
        settings: &run::Settings,
        _: &AtomicBool,
    ) -> Result<Report, String> {
        let run = Run { protocol, options, work, threads: settings.threads, batch: settings.batch };
        let speed = 1e6 * self.here(self.speed(&run));
        let rows = [(ROWS_A_SECOND, speed), (PLAIN_ROWS_A_SECOND, 1e6 * self.here(ALIKE))];
        let (mean, p999) = match (protocol, self.is_right) {
            ("maflingo", true) => (50_000.0, 100_000),
            (_, true) => (100.0, 700),
            (_, false) => (5000.0, 50_000),
        };
        Ok(Report {
            seconds: 1.0,
            committed_tps: speed,
            abort_rate: 0.01 * self.here(run.aborts()),
            metrics: rows.map(|(name, rows)| (name.to_owned(), rows as u64)).into(),
            versions: Some(VersionReport {
                records: vec![1_000_000],
                cumulative: vec![if self.is_right { 0.995 } else { 0.5 }],
            }),
            staleness_us: Some(Staleness { mean, p999, max: p999 }),
            protocol_metrics: self.metrics(&run),
            checks: Report::PASSED.to_owned(),
            ..Report::default()
        })
    }

    fn run_logged(
        &self,
        protocol: &str,
        options: &TpccOptions,
        _: RedoLog,
        settings: &run::Settings,
        stop: &AtomicBool,
    ) -> Result<Report, String> {
        let report = self.run(protocol, &[], &Work::Tpcc(options.clone()), settings, stop)?;
        Ok(Report { committed_tps: report.committed_tps * self.here(1.1), ..report })
    }
}

/// What no measurement of ours decides, whatever it is.
const UNDECIDED: [&str; 3] = [
    "others scale better than in Figure 3",
    "`cicada` makes 37.1 % more than TicToc",
    "`cicada` makes 8.7 % less than TicToc",
];

/// Figures that are not measured by a [`Runner`]: their verdicts have tests beside them.
const INTERLEAVED: [(&str, &str); 2] = [("hyper", "10b"), ("hyper", "10c")];

fn draw(paper: &'static str, figure: &'static str, is_right: bool) -> Figure {
    let settings = Settings { threads: THREADS, ..Settings::quick(THREADS) };
    let (world, stop) = (World { paper, figure, is_right }, AtomicBool::new(false));
    let watch = Watch { status: &|_| (), ran: &|| () };
    let paper = crate::Paper::named(paper).expect("it is in the list");
    let mut drawn = paper.draw(&[figure.to_owned()], &settings, &world, &stop, &watch);
    assert_eq!((drawn.figures.len(), drawn.ended), (1, None), "{} {figure}", paper.name);
    drawn.figures.remove(0)
}

#[test]
fn every_claim_holds_where_the_papers_are_right_and_not_where_they_are_wrong() {
    let mut claims = 0;
    for paper in PAPERS {
        for id in paper.ids().filter(|&id| !INTERLEAVED.contains(&(paper.name, id))) {
            let [right, wrong] = [true, false].map(|is_right| draw(paper.name, id, is_right));
            let [right, wrong]: [Vec<_>; 2] = [right.findings().collect(), wrong.findings().collect()];
            assert!(!right.is_empty(), "nothing is found of Figure {id} of {}", paper.name);
            assert_eq!(right.len(), wrong.len());
            for (right, wrong) in right.into_iter().zip(wrong) {
                let expected = match UNDECIDED.contains(&right.claim.as_str()) {
                    true => [Verdict::NotMeasured; 2],
                    false => [Verdict::Agrees, Verdict::Differs],
                };
                assert_eq!([right.verdict, wrong.verdict], expected, "{} {id}: {right:#?}\n{wrong:#?}", paper.name);
                claims += 1;
            }
        }
    }
    assert!(claims > 200, "{claims} claims");
}
