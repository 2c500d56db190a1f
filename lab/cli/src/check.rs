//! `polychron-lab check`.

use polychron::{Protocol, ProtocolList};
use polychron_base::clock::{Clock, SystemClock};
use polychron_check::checker::{Aborts, Explanation, Verdict, check, examine_at};
use polychron_check::history::{Leeway, Outcome, Round, lines, run_round};
use polychron_compared::{Everything, any_protocol};
use polychron_engine::any::AnyProtocol;
use polychron_engine::{Common, Isolation};
use polychron_sync::atomic::Ordering;

use crate::arguments::Check;
use polychron_cli::arguments::knobs;
use polychron_cli::interrupt;
use polychron_cli::output::{print_error, print_output};
use polychron_cli::progress::Steps;
use polychron_cli::report::{columns, thousands};

/// Transactions of all threads in one round: enough to collide, few enough for the memory of a laptop.
const ROUND: usize = 2000;

/// What was seen of one protocol.
#[derive(Default)]
struct Outcomes {
    rounds: u64,
    committed: u64,
    /// Attempts that found out what their transaction writes, and were discarded for no conflict.
    reconnaissance: u64,
    aborts: Aborts,
    /// Rounds that have no serial order, and need none for what was promised.
    skewed: u64,
    undecided: u64,
    /// The seed of the first undecided round.
    undecided_seed: Option<u64>,
    /// The seed of the round that shows an anomaly, and what it is.
    anomaly: Option<(u64, Explanation)>,
}

impl Outcomes {
    fn finding(&self) -> Finding {
        match (&self.anomaly, self.undecided) {
            (Some(_), _) => Finding::Anomalous,
            (None, 0) => Finding::Serializable,
            (None, _) => Finding::Undecided,
        }
    }
}

/// What a check came to; the later one counts where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    /// There is a serial order.
    Serializable,
    /// The checker gave up.
    Undecided,
    /// There is none.
    Anomalous,
}

impl Finding {
    /// The exit code; 2 stands for bad input.
    const fn exit_code(self) -> u8 {
        match self {
            Self::Serializable => 0,
            Self::Anomalous => 1,
            Self::Undecided => 3,
        }
    }
}

/// Runs the command.
pub(crate) fn run(given: &Check) -> u8 {
    let outcome = match &given.history {
        Some(_) => check_file(given),
        None => check_protocols(given),
    };
    match outcome {
        Ok(finding) => finding.exit_code(),
        Err(line) => {
            print_error(line);
            2
        }
    }
}

/// Checks a history that another client wrote.
fn check_file(given: &Check) -> Result<Finding, String> {
    let Some(path) = &given.history else { return Ok(Finding::Serializable) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("--history {}: {error}", path.display()))?;
    let history = lines::parse(&text).map_err(|error| format!("--history {}: {error}", path.display()))?;
    let (finding, line) = describe(&check(&history, given.strict), history.commits());
    print_output(line);
    Ok(finding)
}

/// What is said of a history with so many transactions.
fn describe(verdict: &Verdict, commits: usize) -> (Finding, String) {
    match verdict {
        Verdict::Serializable(_) => {
            (Finding::Serializable, format!("{} transactions have a serial order", thousands(commits as u64)))
        }
        // A file is checked for a serial order.
        Verdict::Skewed(explanation) => (Finding::Anomalous, explanation.to_string()),
        Verdict::Undecided => (Finding::Undecided, "undecided: the history leaves too much open".to_owned()),
        Verdict::Anomalous(explanations) => (Finding::Anomalous, explanations[0].to_string()),
    }
}

/// Checks one protocol for what it promises, or all that promise something, each for its share of the time.
fn check_protocols(given: &Check) -> Result<Finding, String> {
    let seconds = seconds(given)?;
    let threads = given.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |it| it.get().max(2)));
    let slots = Common::default().memory.max_workers;
    if !(1..=slots).contains(&threads) {
        return Err(format!("--threads is {threads}; it lies between 1 and {slots}"));
    }
    let names: Vec<&str> = match &given.protocol {
        Some(name) => vec![name],
        None => Everything::all().iter().filter(|it| it.isolation != Isolation::Nothing).map(|it| it.name).collect(),
    };
    interrupt::listen();
    let mut rows = Vec::new();
    let mut worst = Finding::Serializable;
    let steps = Steps::new((seconds * STEPS_A_SECOND) as u64);
    for (at, name) in names.iter().enumerate() {
        let share = seconds / names.len() as f64;
        let run = Run {
            steps: &steps,
            steps_before: (share * at as f64 * STEPS_A_SECOND) as u64,
            protocol_options: &given.protocol_option,
            seconds: share,
            seed: given.seed,
            threads,
            strict: given.strict,
        };
        let outcomes = run.run(name)?;
        rows.push(row(name, &outcomes));
        worst = worst.max(outcomes.finding());
        if let Some(seed) = outcomes.undecided_seed {
            let (undecided, rounds) = (thousands(outcomes.undecided), thousands(outcomes.rounds));
            steps.pause(|| {
                print_output(format_args!(
                    "{name}: {undecided} of {rounds} rounds undecided, the first with --seed {seed}: they leave too much open\n"
                ));
            });
        }
        if let Some((seed, explanation)) = &outcomes.anomaly {
            let strict = if given.strict { " --strict" } else { "" };
            let options: String = given.protocol_option.iter().map(|it| format!(" --protocol-option {it}")).collect();
            let again =
                format!("polychron-lab check --protocol {name}{options} --seed {seed} --threads {threads}{strict}");
            let text = format!("{name}: {explanation}\nThe same transactions run again with: {again}\n");
            steps.pause(|| print_output(text));
        }
        if interrupt::STOP.load(Ordering::Relaxed) {
            break;
        }
    }
    drop(steps);
    print_output(columns(HEADER, &rows));
    Ok(worst)
}

const HEADER: [&str; 8] =
    ["protocol", "rounds", "transactions", "reconnaissance", "aborts", "false aborts", "of all attempts", "verdict"];

fn row(name: &str, outcomes: &Outcomes) -> [String; 8] {
    let Aborts { all, unexplained } = outcomes.aborts;
    let attempts = outcomes.committed + all as u64;
    let percent = |part: usize, of: u64| format!("{:.2} %", part as f64 * 100.0 / of.max(1) as f64);
    let verdict = match &outcomes.anomaly {
        Some((_, explanation)) => explanation.anomaly.to_string(),
        None if outcomes.undecided > 0 => format!("{} rounds undecided", outcomes.undecided),
        None if outcomes.skewed > 0 => {
            format!("snapshot isolation, write skew in {} rounds", thousands(outcomes.skewed))
        }
        None if interrupt::STOP.load(Ordering::Relaxed) => "serializable, ended early".to_owned(),
        None => "serializable".to_owned(),
    };
    [
        name.to_owned(),
        thousands(outcomes.rounds),
        thousands(outcomes.committed),
        thousands(outcomes.reconnaissance),
        thousands(all as u64),
        thousands(unexplained as u64),
        percent(unexplained, attempts),
        verdict,
    ]
}

fn seconds(given: &Check) -> Result<f64, String> {
    let is_duration = |seconds: f64| seconds.is_finite() && seconds > 0.0 && seconds <= 1e7;
    match (given.minutes, given.seconds) {
        (Some(minutes), _) if !is_duration(minutes * 60.0) => {
            Err(format!("--minutes is {minutes}; it lies above 0 and up to 100000"))
        }
        (_, Some(seconds)) if !is_duration(seconds) => {
            Err(format!("--seconds is {seconds}; it lies above 0 and up to 10000000"))
        }
        (Some(minutes), _) => Ok(minutes * 60.0),
        (None, seconds) => Ok(seconds.unwrap_or(10.0)),
    }
}

/// How finely the bar shows the time that has gone.
const STEPS_A_SECOND: f64 = 10.0;

/// Rounds of random transactions.
struct Run<'a> {
    steps: &'a Steps,
    /// Steps of the protocols before this one.
    steps_before: u64,
    protocol_options: &'a [String],
    seconds: f64,
    seed: u64,
    threads: usize,
    strict: bool,
}

impl Run<'_> {
    /// Behind virtual calls: what takes the time is the check.
    fn run(&self, name: &str) -> Result<Outcomes, String> {
        let knobs = knobs(self.protocol_options)?;
        let open = || {
            let protocol = any_protocol(name, &knobs)?;
            AnyProtocol::open(protocol, Common::default())
        };
        let mut database = open().map_err(|error| error.to_string())?;
        // Names that are not listed were refused just now.
        let isolation =
            Everything::all().iter().find(|it| it.name == name).map_or(Isolation::Serializable, |it| it.isolation);
        let clock = SystemClock::new();
        let end = clock.now_ns() + (self.seconds * 1e9) as u64;
        let mut outcomes = Outcomes::default();
        let mut last_report = clock.now_ns();
        // The first round comes in any case, so that a seed is always tried.
        while outcomes.rounds == 0 || clock.now_ns() < end {
            let seed = self.seed.wrapping_add(outcomes.rounds);
            let stale_snapshots = knobs.contains(&("stale-snapshots", "true"));
            let leeway = Leeway { stale_snapshots, ..Leeway::of(name) };
            let round = Round { leeway, ..Round::new(seed, self.threads as u32, ROUND.div_ceil(self.threads)) };
            let history = run_round(&database, &round, &interrupt::STOP);
            outcomes.rounds += 1;
            let history = match history {
                Ok(history) => history,
                // A row that others were writing may be no row at all, and stay there.
                Err(_) if isolation == Isolation::Nothing && !interrupt::STOP.load(Ordering::Relaxed) => {
                    database = open().map_err(|error| error.to_string())?;
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            };
            outcomes.committed += history.commits() as u64;
            outcomes.reconnaissance += history.count(Outcome::Reconnaissance) as u64;
            match examine_at(&history, self.strict, isolation) {
                (Verdict::Serializable(_), aborts) => {
                    let aborts = aborts.unwrap_or_default();
                    outcomes.aborts.all += aborts.all;
                    outcomes.aborts.unexplained += aborts.unexplained;
                }
                (Verdict::Skewed(_), _) => {
                    outcomes.aborts.all += history.count(Outcome::Aborted);
                    outcomes.skewed += 1;
                }
                (Verdict::Undecided, _) => {
                    outcomes.undecided += 1;
                    outcomes.undecided_seed.get_or_insert(seed);
                }
                (Verdict::Anomalous(mut explanations), _) => {
                    outcomes.aborts.all += history.count(Outcome::Aborted);
                    outcomes.anomaly = Some((seed, explanations.swap_remove(0)));
                    break;
                }
            }
            if interrupt::STOP.load(Ordering::Relaxed) {
                break;
            }
            let now = clock.now_ns();
            let gone = self.seconds - (end.saturating_sub(now)) as f64 / 1e9;
            self.steps.done(self.steps_before + (gone * STEPS_A_SECOND) as u64);
            if now - last_report > if self.steps.is_bar() { 100_000_000 } else { 1_000_000_000 } {
                last_report = now;
                let committed = thousands(outcomes.committed);
                self.steps.now(&format!("{name}: {} rounds, {committed} transactions", outcomes.rounds));
            }
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undecided_is_no_success_and_no_anomaly() {
        let (finding, line) = describe(&Verdict::Undecided, 7);
        assert_eq!((finding, finding.exit_code()), (Finding::Undecided, 3));
        assert!(line.starts_with("undecided"), "{line}");
        let outcomes = Outcomes { rounds: 5, undecided: 2, undecided_seed: Some(9), ..Outcomes::default() };
        assert_eq!(outcomes.finding(), Finding::Undecided);
        assert_eq!(row("some", &outcomes)[7], "2 rounds undecided");
        // An anomaly of one protocol counts more than another one that is undecided.
        assert_eq!(Finding::Undecided.max(Finding::Anomalous).exit_code(), 1);
        assert_eq!(describe(&Verdict::Serializable(vec![1]), 1).0.exit_code(), 0);
    }
}
