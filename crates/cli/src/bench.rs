//! `polychron bench`.

use std::path::Path;
use std::sync::Arc;

use polychron::{Database, Durability, Options, Protocol, ProtocolInfo, ProtocolList, ProtocolVisitor, Protocols};
use polychron_engine::Common as Shared;
use polychron_sync::atomic::AtomicBool;
use polychron_workloads::Workload;
use polychron_workloads::churn::Churn;
use polychron_workloads::hotkey::{Assert, HotKey};
use polychron_workloads::increment::Increment;
use polychron_workloads::modify::Modify;
use polychron_workloads::run::{self, Observer, Report, RunError, Settings, available_bytes};
use polychron_workloads::scan::Scan;
use polychron_workloads::smallbank::SmallBank;
use polychron_workloads::tatp::Tatp;
use polychron_workloads::tpcc::Tpcc;
use polychron_workloads::ycsb::Ycsb;

use crate::arguments::{Bench, Common, Compare, OneWorkload, Turns, WorkloadCommand, protocol_options};
use crate::compare::{self, Side};
use crate::interrupt;
use crate::output::{Pending, print_error, print_output};
use crate::progress::Progress;
use crate::report::{render, two_columns};

/// Name and summary of each workload.
const WORKLOADS: &[(&str, &str)] = &[
    (Tpcc::NAME, Tpcc::SUMMARY),
    (Ycsb::NAME, Ycsb::SUMMARY),
    (Increment::NAME, Increment::SUMMARY),
    (HotKey::NAME, HotKey::SUMMARY),
    (Assert::NAME, Assert::SUMMARY),
    (Scan::NAME, Scan::SUMMARY),
    (Modify::NAME, Modify::SUMMARY),
    (Churn::NAME, Churn::SUMMARY),
    (SmallBank::NAME, SmallBank::SUMMARY),
    (Tatp::NAME, Tatp::SUMMARY),
];

/// The names of the workloads.
pub fn workload_names() -> Vec<&'static str> {
    WORKLOADS.iter().map(|&(name, _)| name).collect()
}

/// Those among them that measure one property each. They are built on request, because each is compiled for every protocol.
const OF_ONE_PROPERTY: &[&str] = &[HotKey::NAME, Assert::NAME, Scan::NAME, Modify::NAME, Churn::NAME];

/// Why a benchmark was not run, or came to no end.
pub enum Refusal {
    /// Bad input, found before anything was loaded.
    Input(String),
    /// A failure while loading, running or reporting.
    Failure(String),
}

/// Runs the command with the product's protocols.
pub fn run(bench: Bench) -> u8 {
    run_with::<Protocols>(bench)
}

/// Runs the command with the protocols of a list.
pub fn run_with<L: ProtocolList>(bench: Bench) -> u8 {
    let (one, compared) = match bench.workload {
        WorkloadCommand::List => {
            print_output(format_args!("{}\n{}", list_workloads(), list_protocols(&L::all())));
            return 0;
        }
        WorkloadCommand::One(one) => (one, None),
        WorkloadCommand::Compare(Compare { turns, workload }) => (workload, Some(turns)),
    };
    let turns = compared.as_ref();
    let outcome = match one {
        OneWorkload::Tpcc(given) => bench_workload::<L, Tpcc>(&given.common, given.options, turns),
        OneWorkload::Ycsb(given) => bench_workload::<L, Ycsb>(&given.common, given.options.into(), turns),
        OneWorkload::Increment(given) => bench_workload::<L, Increment>(&given.common, given.options, turns),
        OneWorkload::Modify(given) => bench_on_request::<L, Modify>(&given.common, given.options, turns),
        OneWorkload::Hotkey(given) => bench_on_request::<L, HotKey>(&given.common, given.options, turns),
        OneWorkload::Assert(given) => bench_on_request::<L, Assert>(&given.common, given.options, turns),
        OneWorkload::Scan(given) => bench_on_request::<L, Scan>(&given.common, given.options, turns),
        OneWorkload::Churn(given) => bench_on_request::<L, Churn>(&given.common, given.options, turns),
        OneWorkload::Smallbank(given) => bench_workload::<L, SmallBank>(&given.common, given.options, turns),
        OneWorkload::Tatp(given) => bench_workload::<L, Tatp>(&given.common, given.options, turns),
    };
    let (code, line) = verdict(&outcome);
    if let Some(line) = line {
        print_error(line);
    }
    code
}

impl Refusal {
    /// Its line.
    pub fn line(self) -> String {
        let (Self::Input(line) | Self::Failure(line)) = self;
        line
    }
}

/// The exit code, and what is to be said about it.
fn verdict(outcome: &Result<Report, Refusal>) -> (u8, Option<String>) {
    match outcome {
        Ok(report) if report.passed() => (0, None),
        Ok(report) => (1, Some(format!("the consistency check failed: {}", report.checks))),
        Err(Refusal::Failure(line)) => (1, Some(line.clone())),
        Err(Refusal::Input(line)) => (2, Some(line.clone())),
    }
}

fn list_workloads() -> String {
    let shown = |&(name, summary): &(&'static str, &str)| {
        let is_built = cfg!(feature = "workloads") || !OF_ONE_PROPERTY.contains(&name);
        (name, if is_built { summary.to_owned() } else { format!("{summary} (built with `--features workloads`)") })
    };
    let rows: Vec<_> = WORKLOADS.iter().map(shown).collect();
    two_columns(["workload", ""], rows.iter().map(|(name, summary)| (*name, summary.as_str())))
}

fn list_protocols(all: &[ProtocolInfo]) -> String {
    two_columns(["protocol", ""], all.iter().map(|protocol| (protocol.name, protocol.summary)))
}

/// The run, once the protocol's name has become a type.
pub struct Run<'a, W: Workload> {
    /// The workload's options.
    pub options: &'a W::Options,
    /// How to run.
    pub settings: &'a Settings,
    /// The protocol's own options, as given.
    pub protocol_options: &'a [String],
    /// The options that all protocols have.
    pub shared: Shared,
    /// Where the database is made, and when answers leave; `None`: in memory.
    pub durable: Option<(&'a Path, Durability)>,
    /// Ends the run early.
    pub stop: &'a AtomicBool,
    /// Watches it.
    pub observer: &'a dyn Observer,
}

impl<W: Workload> ProtocolVisitor for Run<'_, W> {
    type Output = Result<Report, Refusal>;

    fn visit<P: Protocol>(self, info: &ProtocolInfo) -> Self::Output {
        let Self { options, settings, protocol_options, shared, durable, stop, observer } = self;
        let opened = open::<P>(info, protocol_options, shared, durable, settings.threads);
        run_opened(opened, &mut |database| run::run::<P, W>(database, options, settings, stop, observer))
    }
}

/// Runs a workload in a database, and closes it. As [`open`], it is compiled once for each protocol, whatever the workload.
#[inline(never)]
fn run_opened<P: Protocol>(
    opened: Result<Database<P>, String>,
    run: &mut dyn FnMut(&Arc<P>) -> Result<Report, RunError>,
) -> Result<Report, Refusal> {
    let opened = opened.map_err(Refusal::Input)?;
    let report = run(opened.protocol()).map_err(|error| Refusal::Failure(error.to_string()))?;
    opened.close().map_err(|error| Refusal::Failure(error.to_string()))?;
    Ok(report)
}

/// The database of a run. Not inlined, so that it is compiled once for each protocol.
#[inline(never)]
fn open<P: Protocol>(
    info: &ProtocolInfo,
    given: &[String],
    common: Shared,
    durable: Option<(&Path, Durability)>,
    threads: usize,
) -> Result<Database<P>, String> {
    let options = Options { protocol: protocol_options::<P>(info, given)?, common };
    let builder = Database::builder().with::<P>().options(options);
    let opened = match durable {
        None => builder.in_memory(),
        Some((directory, durability)) => builder.durability(durability).create(directory),
    };
    let opened = opened.map_err(|error| error.to_string())?;
    // A protocol may have fewer slots than were asked for, so whether there are enough shows only here.
    let workers: Result<Vec<_>, _> = (0..threads).map(|_| opened.protocol().worker()).collect();
    workers.map_err(|error| format!("--threads is {threads}: {error}"))?;
    Ok(opened)
}

/// A look at a protocol's options.
pub struct Accepts<'a>(pub &'a [String]);

impl ProtocolVisitor for Accepts<'_> {
    type Output = Result<(), String>;

    fn visit<P: Protocol>(self, info: &ProtocolInfo) -> Self::Output {
        protocol_options::<P>(info, self.0).map(|_| ())
    }
}

/// Whether there is a protocol of this name, and it has these options (`NAME=VALUE`).
///
/// # Errors
/// One line that says what there is not.
pub fn accepts<L: ProtocolList>(protocol: &str, options: &[String]) -> Result<(), String> {
    L::visit(protocol, Accepts(options)).map_err(|unknown| unknown.to_string())?
}

/// As [`bench_workload`], where the workload was built.
#[cfg(feature = "workloads")]
fn bench_on_request<L: ProtocolList, W: Workload>(
    common: &Common,
    options: W::Options,
    turns: Option<&Turns>,
) -> Result<Report, Refusal> {
    bench_workload::<L, W>(common, options, turns)
}

/// Refuses a workload that was not built.
#[cfg(not(feature = "workloads"))]
#[expect(clippy::extra_unused_type_parameters, reason = "it is called as the other one is")]
fn bench_on_request<L: ProtocolList, W: Workload>(
    _common: &Common,
    _options: W::Options,
    _turns: Option<&Turns>,
) -> Result<Report, Refusal> {
    let name = W::NAME;
    Err(Refusal::Input(format!(
        "this program was built without the workload `{name}`: build it with `--features workloads`"
    )))
}

fn bench_workload<L: ProtocolList, W: Workload>(
    common: &Common,
    options: W::Options,
    turns: Option<&Turns>,
) -> Result<Report, Refusal> {
    let settings = settings(common).map_err(Refusal::Input)?;
    let shared = shared_options(common, &settings).map_err(Refusal::Input)?;
    W::validate(&options, settings.threads).map_err(Refusal::Input)?;
    check_memory(W::estimated_bytes(&options), &shared).map_err(Refusal::Input)?;
    let durable = common.directory.as_deref().map(|directory| (directory, common.durability));
    let sides = match turns {
        Some(_) if durable.is_some() => {
            return Err(Refusal::Input(
                "--directory is for one database, and `bench compare` makes several".to_owned(),
            ));
        }
        Some(turns) => compare::sides(turns, common).map_err(Refusal::Input)?.to_vec(),
        None => vec![Side::of(&common.protocol, &common.protocol_option)],
    };
    for side in &sides {
        accepts::<L>(&side.protocol, &side.options).map_err(Refusal::Input)?;
    }
    // The file is opened beforehand, so that no run waits for a result that cannot be written; but not for a bad name.
    let json = common.json.as_deref().map(|path| Pending::open("--json", path)).transpose().map_err(Refusal::Input)?;
    interrupt::listen();
    let run = |side: &Side| {
        let run = Run::<W> {
            options: &options,
            settings: &settings,
            protocol_options: &side.options,
            shared: shared.clone(),
            durable,
            stop: &interrupt::STOP,
            observer: &Progress::new(),
        };
        L::visit(&side.protocol, run).map_err(|unknown| Refusal::Input(unknown.to_string()))?
    };
    match (turns, sides.as_slice()) {
        (Some(turns), [first, second]) => compare::compare(turns, [first, second], json, &run),
        _ => report_one(common, json, run(&sides[0])?),
    }
}

/// Prints and writes the report of a single run.
fn report_one(common: &Common, json: Option<Pending>, report: Report) -> Result<Report, Refusal> {
    print_output(render(&report));
    if let Some(file) = json {
        let failed = |error: String| Refusal::Failure(format!("the JSON could not be written: {error}"));
        let mut text = serde_json::to_vec_pretty(&report).map_err(|error| failed(error.to_string()))?;
        text.push(b'\n');
        file.write(&text).map_err(failed)?;
    }
    match report.course.fault(report.grows) {
        Some(fault) if common.steady && report.passed() => Err(Refusal::Failure(format!("not steady: {fault}"))),
        _ => Ok(report),
    }
}

/// Procedures that the threads hold at a time, all together: some gigabytes of the longest.
const MOST_PROCEDURES: usize = 10_000_000;

fn settings(common: &Common) -> Result<Settings, String> {
    let threads = common.threads.unwrap_or_else(|| Settings::default().threads);
    if threads == 0 {
        return Err("--threads is 0; transactions need a thread to run on".to_owned());
    }
    if common.batch == 0 {
        return Err("--batch is 0; 1 hands procedures over one by one".to_owned());
    }
    let most = MOST_PROCEDURES / threads;
    for (option, count) in [("batch", common.batch), ("submit", common.submit), ("pregenerate", common.pregenerate)] {
        if count > most {
            return Err(format!("--{option} is {count}; on {threads} threads it is {most} at most"));
        }
    }
    let is_duration = |seconds: f64| seconds.is_finite() && (0.0..=1e6).contains(&seconds);
    if !is_duration(common.seconds) || common.seconds == 0.0 {
        return Err(format!("--seconds is {}; it lies above 0 and up to 1000000", common.seconds));
    }
    if !is_duration(common.warmup) {
        return Err(format!("--warmup is {}; it lies between 0 and 1000000", common.warmup));
    }
    if !common.rate.is_finite() || common.rate < 0.0 {
        return Err(format!("--rate is {}; it is 0 or more transactions a second", common.rate));
    }
    Ok(Settings {
        threads,
        warmup_seconds: common.warmup,
        seconds: common.seconds,
        seed: common.seed,
        batch: common.batch,
        submit: common.submit,
        batch_time_us: common.batch_time_us,
        pregenerate: common.pregenerate,
        open_snapshot: common.open_snapshot,
        idle: common.idle,
        rate: common.rate,
        prefault_bytes: common.prefault.saturating_mul(1 << 20),
        commit: crate::COMMIT.to_owned(),
    })
}

/// Memory and worker slots.
fn shared_options(common: &Common, settings: &Settings) -> Result<Shared, String> {
    let mut shared = Shared::default();
    shared.memory.pin_workers = common.pin;
    let slots = shared.memory.max_workers;
    let (wanted, each) = if settings.submit > 0 {
        (settings.threads.saturating_mul(2), ", two for each")
    } else {
        (settings.threads, "")
    };
    if wanted > slots {
        return Err(format!("--threads is {}, but there are {slots} worker slots{each}", settings.threads));
    }
    if let Some(mebibytes) = common.memory_limit {
        let bytes = mebibytes.checked_mul(1 << 20).filter(|&bytes| bytes > 0);
        shared.memory.limit_bytes = Some(bytes.ok_or(format!("--memory-limit is {mebibytes} MiB; that is no size"))?);
    }
    check_memory(settings.prefault_bytes as u64, &shared).map_err(|line| format!("--prefault: {line}"))?;
    Ok(shared)
}

/// Refuses what cannot fit.
fn check_memory(needed: u64, shared: &Shared) -> Result<(), String> {
    let limit = shared.memory.limit_bytes.map(|bytes| bytes as u64);
    let Some(bytes) = limit.into_iter().chain(available_bytes()).min() else { return Ok(()) };
    if needed > bytes {
        let (needed, bytes) = (needed.div_ceil(1 << 20), bytes >> 20);
        return Err(format!("this needs about {needed} MiB of memory, and {bytes} MiB are available"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polychron::DefaultProtocol;
    use polychron_workloads::increment::IncrementOptions;

    #[test]
    fn a_failed_check_is_a_failed_run() {
        let settings = Settings { threads: 1, warmup_seconds: 0.0, seconds: 0.01, ..Settings::default() };
        let options = IncrementOptions { records: 100, ..IncrementOptions::default() };
        let database = DefaultProtocol::open(Default::default(), Shared::default()).unwrap();
        let stop = AtomicBool::new(false);
        let report =
            run::run::<DefaultProtocol, Increment>(&database, &options, &settings, &stop, &run::Unobserved).unwrap();
        assert_eq!(verdict(&Ok(report.clone())), (0, None));
        let broken = Report { checks: "condition 3 does not hold: warehouse 1".to_owned(), ..report };
        assert!(render(&broken).ends_with("\nconsistency: condition 3 does not hold: warehouse 1"));
        let (code, line) = verdict(&Ok(broken));
        assert_eq!(code, 1);
        assert!(line.is_some_and(|line| line.contains("condition 3") && line.contains("warehouse 1")));
        assert_eq!(verdict(&Err(Refusal::Input("no".to_owned()))).0, 2);
        assert_eq!(verdict(&Err(Refusal::Failure("no".to_owned()))).0, 1);
    }
}
