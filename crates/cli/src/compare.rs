//! `polychron bench compare`: one workload on two protocols, in turns, so that both meet the same moods of the machine.

use polychron_workloads::run::{Contest, Report, Spread};
use serde_json::json;

use crate::arguments::{Common, Turns};
use crate::bench::Refusal;
use crate::output::{Pending, print_output, print_status};
use crate::report::{columns, microseconds, thousands};

/// The most runs of each.
const MOST_RUNS: usize = 1000;

/// A protocol with its own options, given as `PROTOCOL,NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// As it was given.
    pub(crate) text: String,
    /// The protocol's name.
    pub(crate) protocol: String,
    /// Its own options, each NAME=VALUE.
    pub(crate) options: Vec<String>,
}

impl Side {
    /// A protocol of this name with these options.
    pub(crate) fn of(protocol: &str, options: &[String]) -> Self {
        Self { text: protocol.to_owned(), protocol: protocol.to_owned(), options: options.to_vec() }
    }

    /// Reads it. A comma before something that is no NAME=VALUE belongs to the value before.
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let protocol = parts.next().unwrap_or_default().to_owned();
        let mut options: Vec<String> = Vec::new();
        for part in parts {
            match options.last_mut() {
                _ if part.contains('=') => options.push(part.to_owned()),
                Some(value) => *value += &format!(",{part}"),
                None => return Err(format!("{text}: behind the protocol stand its options, each NAME=VALUE")),
            }
        }
        Ok(Self { text: text.to_owned(), protocol, options })
    }
}

/// What was measured of one side.
#[derive(Default)]
struct Runs {
    reports: Vec<Report>,
}

impl Runs {
    fn spread(&self, of: impl Fn(&Report) -> f64) -> Spread {
        Spread::of(self.reports.iter().map(of).collect())
    }

    fn throughput(&self) -> Spread {
        self.spread(|report| report.committed_tps)
    }
}

/// Reads both sides, before anything runs.
pub(crate) fn sides(given: &Turns, common: &Common) -> Result<[Side; 2], String> {
    if !(1..=MOST_RUNS).contains(&given.runs) {
        return Err(format!("--runs is {}; it lies between 1 and {MOST_RUNS}", given.runs));
    }
    for (option, is_given) in [
        ("--protocol", common.protocol != Common::default_protocol()),
        ("--protocol-option", !common.protocol_option.is_empty()),
        ("--steady", common.steady),
    ] {
        if is_given {
            return Err(format!("{option} does not go with compare, which is given two protocols with their options"));
        }
    }
    Ok([Side::parse(&given.first)?, Side::parse(&given.second)?])
}

/// Runs both in turns, and prints what was found; answers the last report.
pub(crate) fn compare(
    given: &Turns,
    sides: [&Side; 2],
    json: Option<Pending>,
    run: &dyn Fn(&Side) -> Result<Report, Refusal>,
) -> Result<Report, Refusal> {
    let mut both = [Runs::default(), Runs::default()];
    let mut last = Report::default();
    'rounds: for round in 1..=given.runs {
        for (side, runs) in sides.iter().zip(&mut both) {
            last = run(side)?;
            if last.interrupted {
                break 'rounds;
            }
            if !last.passed() {
                return Ok(last);
            }
            let tps = thousands(last.committed_tps as u64);
            print_status(format_args!("run {round} of {}: {}: {tps} transactions/s", given.runs, side.text));
            runs.reports.push(last.clone());
        }
    }
    if both.iter().any(|runs| runs.reports.is_empty()) {
        return Err(Refusal::Failure("ended before each protocol had a run".to_owned()));
    }
    print_output(render(sides, &both));
    if let Some(file) = json {
        write(file, given.runs, sides, &both).map_err(Refusal::Failure)?;
    }
    Ok(last)
}

fn write(file: Pending, runs: usize, sides: [&Side; 2], both: &[Runs; 2]) -> Result<(), String> {
    let side = |at: usize| {
        let (side, runs): (&Side, &Runs) = (sides[at], &both[at]);
        json!({ "protocol": side.protocol, "options": side.options, "throughput": runs.throughput(), "runs": runs.reports })
    };
    let mut text = serde_json::to_vec_pretty(&json!({ "runs": runs, "first": side(0), "second": side(1) }))
        .map_err(|error| format!("the JSON could not be written: {error}"))?;
    text.push(b'\n');
    file.write(&text)
}

fn render(sides: [&Side; 2], both: &[Runs; 2]) -> String {
    let range = |spread: Spread, text: fn(f64) -> String| [text(spread.median), text(spread.least), text(spread.most)];
    let row = |name: &str, of: fn(&Report) -> f64, text: fn(f64) -> String| {
        [0, 1].map(|at: usize| {
            let [median, least, most] = range(both[at].spread(of), text);
            [name.to_owned(), sides[at].text.clone(), median, least, most]
        })
    };
    let count = |number: f64| thousands(number as u64);
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let rows = [
        row("transactions/s", |report| report.committed_tps, count),
        row("latency p50", |report| report.latency_us.p50, microseconds),
        row("latency p99", |report| report.latency_us.p99, microseconds),
        row("aborts", |report| report.abort_rate, percent),
    ]
    .concat();
    let runs = both[0].reports.len().min(both[1].reports.len());
    let table = columns(["", "protocol", &format!("median of {runs}"), "least", "most"], &rows);
    format!("{table}\nconsistency: {}\n{}", both[1].reports[0].checks, verdict(sides, both))
}

/// Which one is faster, in one line.
fn verdict(sides: [&Side; 2], both: &[Runs; 2]) -> String {
    let [first, second] = [0, 1].map(|at: usize| both[at].throughput());
    let names = |one: usize, other: usize| (&sides[one].text, &sides[other].text);
    let faster = |(one, other): (&String, &String), ratio: f64| format!("{one} is {ratio:.2} times as fast as {other}");
    match first.against(second) {
        Contest::Higher => faster(names(0, 1), first.median / second.median),
        Contest::Lower => faster(names(1, 0), second.median / first.median),
        Contest::Alike => "too close to tell: the medians differ by less than a tenth".to_owned(),
        Contest::Overlap => "too close to tell: the runs of both overlap".to_owned(),
        Contest::TooFewRuns => format!("too few runs to tell; it takes {} of each", Spread::FEWEST_RUNS),
        Contest::Nothing => "nothing to tell: a run completed no transaction".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_protocol_with_options() {
        let side = Side::parse("mine,indexes=some:a,b.c,snapshots=new").unwrap();
        assert_eq!((side.protocol.as_str(), side.text.as_str()), ("mine", "mine,indexes=some:a,b.c,snapshots=new"));
        assert_eq!(side.options, ["indexes=some:a,b.c", "snapshots=new"]);
        assert!(Side::parse("mine,new").is_err());
        assert!(Side::parse("mine").unwrap().options.is_empty());
    }

    #[test]
    fn the_verdict_names_the_faster_one() {
        let [a, b] = ["a", "b"].map(|name| Side::of(name, &[]));
        let runs = |all: &[f64]| Runs {
            reports: all.iter().map(|&committed_tps| Report { committed_tps, ..Report::default() }).collect(),
        };
        let said = |one: &[f64], other: &[f64]| verdict([&a, &b], &[runs(one), runs(other)]);
        assert_eq!(said(&[30.0; 3], &[10.0; 3]), "a is 3.00 times as fast as b");
        assert_eq!(said(&[10.0; 3], &[15.0; 3]), "b is 1.50 times as fast as a");
        assert!(said(&[10.0; 3], &[10.1; 3]).starts_with("too close"));
        assert!(said(&[30.0], &[10.0; 3]).starts_with("too few runs"));
        assert!(said(&[0.0; 3], &[10.0; 3]).starts_with("nothing"));
    }
}
