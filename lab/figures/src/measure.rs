//! Measuring the points of a figure.

use polychron_engine::{Common, Protocol};
use polychron_protocols::hyper::{self, Hyper, Level};
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_workloads::Workload;
use polychron_workloads::run::{self, Report, Unobserved};
use polychron_workloads::tpcc::{Scale, TpccOptions};
use serde::Serialize;

use crate::figure::{Figure, Point};
use crate::interleaved::{self, Interleaved};
use crate::runner::{RedoLog, Runner, Work};

/// Transactions in a batch for each that is open at a time: only at its end are fewer open.
const TURNS_A_BATCH: usize = 32;

/// How large and how long.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The most threads.
    pub threads: usize,
    /// Seconds that each run of a point measures.
    pub seconds: f64,
    /// Runs of each point.
    pub repeat: usize,
    /// The seed of all inputs.
    pub seed: u64,
    /// Rows of the tables that are not TPC-C's.
    pub records: u64,
    /// Cardinalities of TPC-C.
    pub scale: Scale,
    /// Whether to leave places out of the axes.
    pub quick: bool,
    /// The commit that was built.
    pub commit: String,
}

impl Settings {
    /// Long runs on large tables.
    pub fn full(threads: usize) -> Self {
        Self {
            threads,
            seconds: 2.0,
            repeat: 5,
            seed: 1,
            records: 10_000_000,
            scale: Scale::standard(),
            quick: false,
            commit: "unknown".to_owned(),
        }
    }

    /// Small tables and short runs: the whole page in a few minutes.
    pub fn quick(threads: usize) -> Self {
        let scale = Scale { items: 10_000, districts: 10, customers: 300, orders: 300, undelivered: 90 };
        Self { seconds: 0.2, repeat: 3, records: 200_000, scale, quick: true, ..Self::full(threads) }
    }
}

/// What ended the measuring before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was to stop.
    Stopped,
    /// A run failed, or its check did.
    Failed(String),
}

/// A protocol of the list with options of its own.
#[derive(Clone, Debug)]
pub(crate) struct System {
    protocol: &'static str,
    options: Vec<String>,
}

impl System {
    /// The protocol of this name, with its default options.
    pub(crate) fn of(protocol: &'static str) -> Self {
        Self { protocol, options: Vec::new() }
    }

    /// The same with an option, NAME=VALUE.
    pub(crate) fn with(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }
}

/// Measures.
pub(crate) struct Bench<'s> {
    pub(crate) settings: &'s Settings,
    pub(crate) runner: &'s dyn Runner,
    pub(crate) stop: &'s AtomicBool,
    pub(crate) status: &'s dyn Fn(&str),
    /// Hears of each run that has ended.
    pub(crate) ran: &'s dyn Fn(),
    /// Whether nothing is run, because runs are only counted.
    pub(crate) counts_only: bool,
}

impl Bench<'_> {
    /// One run of a workload.
    pub(crate) fn run(&self, system: &System, work: impl Into<Work>, threads: usize) -> Result<Report, Ended> {
        self.run_listed(system.protocol, &system.options, &work.into(), threads, (1, 0))
    }

    /// The systems that are in the list of protocols, with the names of their series; the figure says which are not.
    pub(crate) fn known<'n>(
        &self,
        figure: &mut Figure,
        systems: impl IntoIterator<Item = (&'n str, System)>,
    ) -> Vec<(&'n str, System)> {
        let is_there = |(_, system): &(&str, System)| self.runner.accepts(system.protocol, &system.options).is_ok();
        let (found, missing): (Vec<_>, Vec<_>) = systems.into_iter().partition(is_there);
        for (_, System { protocol, options }) in missing {
            let options: String = options.iter().map(|option| format!(" with {option}")).collect();
            figure.note += &format!(" Left out: this build has no {protocol}{options}.");
        }
        found
    }

    /// Whether there are as many threads as a claim needs; if not, the figure says so.
    pub(crate) fn has_threads(&self, fewest: usize, figure: &mut Figure, quote: &str, claim: &str) -> bool {
        let here = self.settings.threads;
        if here < fewest {
            let why = format!("This needs {fewest} threads and as many cores; it was measured with {here}.");
            figure.cannot_show(quote, claim, &why);
        }
        here >= fewest
    }

    /// A bench whose runs measure for at least so long.
    pub(crate) fn for_at_least<O>(&self, seconds: f64, measure: impl FnOnce(&Bench<'_>) -> O) -> O {
        let settings = Settings { seconds: self.settings.seconds.max(seconds), ..self.settings.clone() };
        measure(&Bench { settings: &settings, ..*self })
    }

    fn run_on<P: Protocol, W: Workload>(
        &self,
        protocol: P::Options,
        options: &W::Options,
        threads: usize,
        batch: usize,
    ) -> Result<Report, Ended> {
        self.one(P::NAME, threads, batch, |settings| {
            W::validate(options, threads)?;
            let database = P::open(protocol, Common::default()).map_err(|error| error.to_string())?;
            let report = run::run::<P, W>(&database, options, settings, self.stop, &Unobserved);
            report.map_err(|error| error.to_string())
        })
    }

    /// One run of a workload on a protocol of the list, in batches of this size; of what each client submits and has under way, if
    /// it does.
    pub(crate) fn run_listed(
        &self,
        protocol: &str,
        protocol_options: &[String],
        work: &Work,
        threads: usize,
        (batch, submit): (usize, usize),
    ) -> Result<Report, Ended> {
        self.one(protocol, threads, batch, |settings| {
            let settings = run::Settings { submit, ..settings.clone() };
            self.runner.run(protocol, protocol_options, work, &settings, self.stop)
        })
    }

    /// One run of TPC-C on a protocol of the list that has a redo log.
    pub(crate) fn run_logged(
        &self,
        protocol: &str,
        options: &TpccOptions,
        log: RedoLog,
        threads: usize,
    ) -> Result<Report, Ended> {
        self.one(protocol, threads, 1, |settings| self.runner.run_logged(protocol, options, log, settings, self.stop))
    }

    /// A run on HyPer of one thread, of whose transactions so many are open at a time and take turns.
    pub(crate) fn run_interleaved<W: Workload>(
        &self,
        level: Level,
        options: &W::Options,
        open: usize,
    ) -> Result<Report, Ended> {
        let base = hyper::Options { level, ..Default::default() };
        self.run_on::<Interleaved<Hyper>, W>(interleaved::Options { base, open }, options, 1, open * TURNS_A_BATCH)
    }

    /// One run, unless all is to stop.
    fn one(
        &self,
        protocol: &str,
        threads: usize,
        batch: usize,
        run: impl FnOnce(&run::Settings) -> Result<Report, String>,
    ) -> Result<Report, Ended> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Ended::Stopped);
        }
        if self.counts_only {
            (self.ran)();
            return Ok(Report::default());
        }
        let settings = run::Settings {
            threads,
            batch,
            warmup_seconds: self.settings.seconds / 5.0,
            seconds: self.settings.seconds,
            seed: self.settings.seed,
            commit: self.settings.commit.clone(),
            ..run::Settings::default()
        };
        let failed = |line: String| Ended::Failed(format!("{protocol}: {line}"));
        let report = run(&settings).map_err(failed)?;
        (self.ran)();
        match report {
            report if report.interrupted => Err(Ended::Stopped),
            report if !report.passed() => Err(failed(format!("{}: {}", report.workload, report.checks))),
            report => Ok(report),
        }
    }

    /// Fills a figure: for each place and series, what `measure` gives for each of the panels. The series of a place are
    /// measured in turns, so that they meet the same moods of the machine.
    pub(crate) fn sweep<X, S, const N: usize>(
        &self,
        figure: &mut Figure,
        panels: [&str; N],
        xs: &[(String, X)],
        series: &[(&str, S)],
        measure: impl Fn(&S, &X) -> Result<[f64; N], Ended>,
    ) -> Result<(), Ended> {
        let x_values: Vec<_> = xs.iter().map(|(value, _)| value.clone()).collect();
        let names: Vec<_> = series.iter().map(|&(name, _)| name).collect();
        figure.frame(&x_values, &panels, &names);
        for (position, (value, x)) in xs.iter().enumerate() {
            let mut runs = vec![[const { Vec::new() }; N]; series.len()];
            for _ in 0..self.settings.repeat.max(1) {
                for ((name, system), runs) in series.iter().zip(&mut runs) {
                    (self.status)(&format!("  {} {value}, {name}", figure.x_name));
                    let measured = measure(system, x)?;
                    runs.iter_mut().zip(measured).for_each(|(runs, it)| runs.push(it));
                }
            }
            for (series, runs) in runs.into_iter().enumerate() {
                for (panel, runs) in runs.into_iter().enumerate() {
                    figure.panels[panel].series[series].points[position] = Some(Point::of(runs));
                }
            }
        }
        Ok(())
    }

    /// What another load makes of some systems, where a claim compares the figure with it: a figure of one place, which is not drawn.
    pub(crate) fn aside<S>(
        &self,
        figure: &Figure,
        series: &[(&str, S)],
        measure: impl Fn(&S) -> Result<f64, Ended>,
    ) -> Result<Figure, Ended> {
        let mut aside = Figure::new(&figure.id, "", figure.kind, "to compare with");
        let only = [(String::new(), ())];
        self.sweep(&mut aside, [""], &only, series, |system, ()| Ok([measure(system)?]))?;
        Ok(aside)
    }

    /// 1, 2, 4, … threads, and the most there are.
    pub(crate) fn threads(&self) -> Vec<(String, usize)> {
        let most = self.settings.threads;
        let powers = std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|threads| *threads < most);
        powers.chain([most]).map(|threads| (threads.to_string(), threads)).collect()
    }
}
