//! The systems that the paper compares, as far as they are in the list of protocols, and Cicada beside them.

use polychron_workloads::run::Report;

use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

/// Names of the series.
pub(super) const BOHM: &str = "bohm";
pub(super) const SUBMITTED: &str = "bohm, submitted";
pub(super) const HEKATON: &str = "hekaton";
pub(super) const SNAPSHOTS: &str = "snapshot-isolation";
pub(super) const LOCKING: &str = "locking";
pub(super) const OCC: &str = "maflingo (the paper's OCC)";
pub(super) const CICADA: &str = "cicada (not in the paper)";

/// A protocol that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// The name in the list.
    protocol: &'static str,
    /// The name in the figure.
    series: &'static str,
    /// Whether it divides its threads between concurrency control and execution.
    is_divided: bool,
    /// Whether its clients submit single transactions, in place of handing over batches.
    submits: bool,
}

const fn contender(protocol: &'static str, series: &'static str) -> Contender {
    Contender { protocol, series, is_divided: false, submits: false }
}

/// All of them, in the order in which they are drawn.
const CONTENDERS: [Contender; 6] = [
    Contender { is_divided: true, ..contender("bohm", BOHM) },
    contender("hekaton", HEKATON),
    contender("snapshot-isolation", SNAPSHOTS),
    contender("locking", LOCKING),
    contender("maflingo", OCC),
    contender("cicada", CICADA),
];

/// How threads are divided between concurrency control and execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Threads for concurrency control; none where those that execute do it in turns.
    pub(super) control: usize,
    pub(super) execution: usize,
}

impl Division {
    /// One thread does both in turns.
    pub(super) const TURNS: Self = Self::in_turns(1);

    /// So many threads, each of which does what is due.
    pub(super) const fn in_turns(threads: usize) -> Self {
        Self { control: 0, execution: threads }
    }

    /// So many threads in halves, the larger one for execution.
    pub(super) fn of(threads: usize) -> Self {
        let control = threads / 2;
        Self { control, execution: threads - control }
    }

    pub(super) fn threads(self) -> usize {
        self.control + self.execution
    }

    pub(super) fn name(self) -> String {
        match self {
            Self { control: 0, .. } => "in turns".to_owned(),
            Self { control, execution } => format!("{control} + {execution}"),
        }
    }

    fn options(self) -> Vec<String> {
        let Self { control, execution } = self;
        // Without threads of their own, both are done by the clients.
        let execution = if control == 0 { 0 } else { execution };
        vec![format!("concurrency-control-threads={control}"), format!("execution-threads={execution}")]
    }
}

impl Contender {
    /// Its own options for so many threads: none where it has no such knobs, or does not take these values.
    fn options(self, bench: &Bench<'_>, division: Division) -> Vec<String> {
        let options = if self.is_divided { division.options() } else { Vec::new() };
        if bench.runner.accepts(self.protocol, &options).is_ok() { options } else { Vec::new() }
    }

    /// One run, with as many clients as threads.
    pub(super) fn run(self, bench: &Bench<'_>, work: &Work, division: Division, batch: usize) -> Result<Report, Ended> {
        let options = self.options(bench, division);
        // While one batch is executed the next one is submitted.
        let submit = if self.submits { 2 * batch } else { 0 };
        bench.run_listed(self.protocol, &options, work, division.threads(), (batch, submit))
    }

    /// The same with clients that submit.
    pub(super) fn submitted(self) -> (&'static str, Self) {
        (SUBMITTED, Self { series: SUBMITTED, submits: true, ..self })
    }
}

/// The contenders of these series that are in the list, all of them where `series` is empty. Tells, and writes beside the figure,
/// which are not, and which will not be told how to divide their threads.
pub(super) fn contenders(
    bench: &Bench<'_>,
    figure: &mut Figure,
    series: &[&str],
    divisions: &[Division],
) -> Vec<(&'static str, Contender)> {
    let wanted = |contender: &&Contender| series.is_empty() || series.contains(&contender.series);
    let is_there = |contender: &Contender| bench.runner.accepts(contender.protocol, &[]).is_ok();
    let (found, missing): (Vec<_>, Vec<_>) = CONTENDERS.iter().filter(wanted).copied().partition(is_there);
    let mut lines = Vec::new();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|contender| contender.protocol).collect();
        lines.push(format!("left out, since this build's list of protocols has no {}", names.join(", no ")));
    }
    for contender in found.iter().filter(|contender| contender.is_divided) {
        let refusal = |division: &Division| bench.runner.accepts(contender.protocol, &division.options()).err();
        if let Some(line) = divisions.iter().find_map(refusal) {
            lines.push(format!(
                "{} divides its threads by itself where it refuses to be told: {line}",
                contender.protocol
            ));
        }
    }
    for line in lines {
        (bench.status)(&format!("  {line}"));
        figure.note = format!("{} Note: {line}.", figure.note);
    }
    found.into_iter().map(|contender| (contender.series, contender)).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use polychron_sync::atomic::AtomicBool;
    use polychron_workloads::increment::IncrementOptions;
    use polychron_workloads::run;
    use polychron_workloads::tpcc::TpccOptions;

    use super::*;
    use crate::measure::Settings;
    use crate::{Kind, RedoLog, Runner};

    /// Knows some protocols, and no thread that does both in turns; notes what it is to run.
    #[derive(Default)]
    struct Notes(RefCell<Vec<String>>);

    impl Runner for Notes {
        fn accepts(&self, protocol: &str, options: &[String]) -> Result<(), String> {
            match protocol {
                "bohm" if options.iter().any(|option| option.ends_with("=0")) => Err("0 is too few".to_owned()),
                "bohm" | "cicada" => Ok(()),
                other => Err(format!("there is no protocol `{other}`")),
            }
        }

        fn run(
            &self,
            protocol: &str,
            options: &[String],
            _: &Work,
            settings: &run::Settings,
            _: &AtomicBool,
        ) -> Result<Report, String> {
            let (threads, batch) = (settings.threads, settings.batch);
            self.0.borrow_mut().push(format!("{protocol} {} {threads} {batch}", options.join(" ")));
            Err("nothing is run here".to_owned())
        }

        fn run_logged(
            &self,
            protocol: &str,
            _: &TpccOptions,
            _: RedoLog,
            _: &run::Settings,
            _: &AtomicBool,
        ) -> Result<Report, String> {
            Err(format!("{protocol} has no log here"))
        }
    }

    #[test]
    fn protocols_that_are_not_there_are_left_out_and_named() {
        let (settings, runner, stop) = (Settings::quick(2), Notes::default(), AtomicBool::new(false));
        let lines = RefCell::new(Vec::new());
        let bench = Bench {
            settings: &settings,
            runner: &runner,
            stop: &stop,
            status: &|line| lines.borrow_mut().push(line.to_owned()),
            ran: &|| (),
            counts_only: false,
        };
        let mut figure = Figure::new("1", "", Kind::Lines, "");
        "A note.".clone_into(&mut figure.note);
        let divisions = [Division::TURNS, Division::of(2)];
        let found = contenders(&bench, &mut figure, &[], &divisions);
        assert_eq!(found.iter().map(|(series, _)| *series).collect::<Vec<_>>(), [BOHM, CICADA]);
        let missing = "left out, since this build's list of protocols has no hekaton, no snapshot-isolation, no locking, no maflingo";
        let divided = "bohm divides its threads by itself where it refuses to be told: 0 is too few";
        assert_eq!(figure.note, format!("A note. Note: {missing}. Note: {divided}."));
        assert_eq!(*lines.borrow(), [missing, divided].map(|line| format!("  {line}")));

        let work = Work::Increment(IncrementOptions::default());
        for division in divisions {
            for (_, contender) in &found {
                assert!(contender.run(&bench, &work, division, 7).is_err());
            }
        }
        let expected =
            ["bohm  1 7", "cicada  1 7", "bohm concurrency-control-threads=1 execution-threads=1 2 7", "cicada  2 7"];
        assert_eq!(*runner.0.borrow(), expected);
        assert_eq!(contenders(&bench, &mut figure, &[OCC, CICADA], &divisions).len(), 1);
    }

    #[test]
    fn threads_are_divided() {
        assert_eq!(Division::of(1), Division::TURNS);
        assert_eq!([2, 3, 8].map(|threads| Division::of(threads).name()), ["1 + 1", "1 + 2", "4 + 4"]);
        assert_eq!(Division::of(5).threads(), 5);
    }
}
