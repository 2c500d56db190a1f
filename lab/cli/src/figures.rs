//! `polychron-lab figures`.

use std::path::PathBuf;

use polychron::{ProtocolList, Protocols};
use polychron_compared::Everything;
use polychron_engine::Common;
use polychron_figures::{Drawn, Ended, PAPERS, Paper, RedoLog, Runner, Settings, Watch, Work, page};
use polychron_sync::atomic::AtomicBool;
use polychron_workloads::Workload;
use polychron_workloads::hotkey::{Assert, HotKey};
use polychron_workloads::increment::Increment;
use polychron_workloads::modify::Modify;
use polychron_workloads::run::{self, Report, Unobserved};
use polychron_workloads::scan::Scan;
use polychron_workloads::smallbank::SmallBank;
use polychron_workloads::tatp::Tatp;
use polychron_workloads::tpcc::{Tpcc, TpccOptions};
use polychron_workloads::ycsb::Ycsb;

use crate::arguments::Figures;
use crate::durability::standby;
use polychron_cli::bench::{Refusal, Run, accepts};
use polychron_cli::interrupt;
use polychron_cli::output::{Pending, print_error, print_output};
use polychron_cli::progress::Steps;

/// Runs protocols by their names in the list, as `bench` does.
struct Listed;

impl Runner for Listed {
    fn accepts(&self, protocol: &str, options: &[String]) -> Result<(), String> {
        accepts::<Everything>(protocol, options)
    }

    fn run(
        &self,
        protocol: &str,
        options: &[String],
        work: &Work,
        settings: &run::Settings,
        stop: &AtomicBool,
    ) -> Result<Report, String> {
        match work {
            Work::Increment(given) => run_on::<Increment>(protocol, options, given, settings, stop),
            Work::Scan(given) => run_on::<Scan>(protocol, options, given, settings, stop),
            Work::Ycsb(given) => run_on::<Ycsb>(protocol, options, given, settings, stop),
            Work::SmallBank(given) => run_on::<SmallBank>(protocol, options, given, settings, stop),
            Work::Tpcc(given) => run_on::<Tpcc>(protocol, options, given, settings, stop),
            Work::Tatp(given) => run_on::<Tatp>(protocol, options, given, settings, stop),
            Work::Modify(given) => run_on::<Modify>(protocol, options, given, settings, stop),
            Work::HotKey(given) => run_on::<HotKey>(protocol, options, given, settings, stop),
            Work::Assert(given) => run_on::<Assert>(protocol, options, given, settings, stop),
        }
    }

    fn run_logged(
        &self,
        protocol: &str,
        options: &TpccOptions,
        log: RedoLog,
        settings: &run::Settings,
        stop: &AtomicBool,
    ) -> Result<Report, String> {
        let made = tempfile::tempdir();
        let directory = made.map_err(|error| format!("{}: {error}", std::env::temp_dir().display()))?;
        let has_standby = log == RedoLog::Shipped;
        let run = standby::Run { options, settings, directory: directory.path(), has_standby, stop };
        Protocols::visit(protocol, run).map_err(|unknown| unknown.to_string())?.map(|(report, _)| report)
    }
}

fn run_on<W: Workload>(
    protocol: &str,
    protocol_options: &[String],
    options: &W::Options,
    settings: &run::Settings,
    stop: &AtomicBool,
) -> Result<Report, String> {
    W::validate(options, settings.threads)?;
    let shared = Common::default();
    let run = Run::<W> { options, settings, protocol_options, shared, durable: None, stop, observer: &Unobserved };
    Everything::visit(protocol, run).map_err(|unknown| unknown.to_string())?.map_err(Refusal::line)
}

/// Runs the command.
pub(crate) fn run(given: &Figures) -> u8 {
    match draw(given) {
        Ok(Some(failure)) => {
            print_error(failure);
            1
        }
        Ok(None) => 0,
        Err(line) => {
            print_error(line);
            2
        }
    }
}

/// Measures and writes; answers what failed on the way, if anything did.
fn draw(given: &Figures) -> Result<Option<String>, String> {
    let names = || PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", ");
    let unknown = || format!("there are no figures of `{}`; the papers are {}", given.paper, names());
    let paper = Paper::named(&given.paper).ok_or_else(unknown)?;
    if let Some(id) = given.figure.iter().find(|id| !paper.ids().any(|known| known == **id)) {
        let known = paper.ids().collect::<Vec<_>>().join(", ");
        return Err(format!("--figure {id}: there is no such figure; there are {known}"));
    }
    let settings = settings(given, paper)?;
    let output = given.output.clone().unwrap_or_else(|| PathBuf::from(format!("figures-{}.html", paper.name)));
    let json = given.json.clone().unwrap_or_else(|| output.with_extension("json"));
    if output == json {
        return Err(format!(
            "--output {} would also be the file of the data; name another with --json",
            output.display()
        ));
    }
    // Opened beforehand, so that no client waits for a page that cannot be written.
    let (html_file, json_file) = (Pending::open("--output", &output)?, Pending::open("--json", &json)?);
    interrupt::listen();
    let steps = Steps::new(paper.runs(&given.figure, &settings, &Listed));
    let watch = Watch { status: &|line| steps.now(line), ran: &|| steps.step() };
    let drawn: Drawn = paper.draw(&given.figure, &settings, &Listed, &interrupt::STOP, &watch);
    drop(steps);
    let (html, data) = page(paper, &settings, &drawn);
    for (file, text) in [(html_file, &html), (json_file, &data)] {
        if let Err(line) = file.write(text.as_bytes()) {
            return Ok(Some(line));
        }
    }
    print_output(format_args!(
        "{} figures in {}, their data in {}",
        drawn.figures.len(),
        output.display(),
        json.display()
    ));
    match drawn.ended {
        Some(Ended::Failed(line)) => Ok(Some(line)),
        Some(Ended::Stopped) => {
            print_output("ended early");
            Ok(None)
        }
        None => Ok(None),
    }
}

fn settings(given: &Figures, paper: &Paper) -> Result<Settings, String> {
    let threads = given.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let most = polychron_engine::Common::default().memory.max_workers;
    if !(1..=most).contains(&threads) {
        return Err(format!("--threads is {threads}; it lies between 1 and {most}"));
    }
    let base = if given.quick { Settings::quick(threads) } else { Settings::full(threads) };
    let seconds = given.seconds.unwrap_or(base.seconds);
    if !(seconds.is_finite() && seconds > 0.0 && seconds <= 3600.0) {
        return Err(format!("--seconds is {seconds}; it lies above 0 and up to 3600"));
    }
    let repeat = given.repeat.unwrap_or(base.repeat);
    if !(1..=1000).contains(&repeat) {
        return Err(format!("--repeat is {repeat}; it lies between 1 and 1000"));
    }
    let records = given.records.unwrap_or(if given.quick { base.records } else { paper.records });
    if !(16..=1 << 32).contains(&records) {
        return Err(format!("--records is {records}; it lies between 16 and {}", 1_u64 << 32));
    }
    Ok(Settings {
        seconds,
        repeat,
        records,
        seed: given.seed,
        scale: given.scale.unwrap_or(base.scale),
        commit: polychron_cli::COMMIT.to_owned(),
        ..base
    })
}
