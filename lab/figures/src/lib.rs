//! The figures of the papers, measured again on the machine at hand.
//!
//! A [`Paper`] is a list of plans; a plan names a figure, measures, and holds each sentence of the paper against what it measured. This
//! becomes one page of HTML ([`page`]) and JSON. A paper has a module of its own, and a line in [`PAPERS`].

mod bohm;
mod cicada;
mod figure;
mod hyper;
mod interleaved;
mod lazy;
mod maflingo;
mod measure;
mod page;
mod plot;
mod runner;
#[cfg(test)]
mod worlds;

use std::cell::Cell;

use polychron_sync::atomic::AtomicBool;

pub use figure::{Figure, Finding, Kind, Panel, Point, Quote, Series, Verdict};
pub use measure::{Ended, Settings};
pub use page::page;
pub use runner::{RedoLog, Runner, Work};

use measure::Bench;

/// The papers whose figures can be drawn.
pub const PAPERS: &[Paper] = &[maflingo::PAPER, cicada::PAPER, bohm::PAPER, hyper::PAPER, lazy::PAPER];

/// A paper.
#[derive(Debug)]
pub struct Paper {
    /// The name on the command line.
    pub name: &'static str,
    /// Authors, title, where and when.
    pub citation: &'static str,
    /// What this machine can show of it, and what not.
    pub scope: &'static str,
    /// Rows of its tables that are not TPC-C's.
    pub records: u64,
    plans: &'static [Plan],
}

/// How a figure comes to be.
#[derive(Debug)]
struct Plan {
    id: &'static str,
    title: &'static str,
    kind: Kind,
    x_name: &'static str,
    draw: fn(&Bench<'_>, &mut Figure) -> Result<(), Ended>,
}

impl Plan {
    /// A figure drawn with lines.
    const fn lines(
        id: &'static str,
        title: &'static str,
        x_name: &'static str,
        draw: fn(&Bench<'_>, &mut Figure) -> Result<(), Ended>,
    ) -> Self {
        Self { id, title, kind: Kind::Lines, x_name, draw }
    }
}

/// Watches the measuring.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "closures")]
pub struct Watch<'w> {
    /// Hears what is measured next.
    pub status: &'w dyn Fn(&str),
    /// Hears of each run that has ended.
    pub ran: &'w dyn Fn(),
}

/// What came of drawing.
#[derive(Debug)]
pub struct Drawn {
    /// The figures, as far as they were measured.
    pub figures: Vec<Figure>,
    /// What ended the measuring before its time.
    pub ended: Option<Ended>,
    /// How many threads wanted to run on this machine before it began, on average, where the system tells it.
    pub load_before: Option<f64>,
}

/// The load of the machine, of all programs.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

impl Paper {
    /// The paper of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PAPERS.iter().find(|paper| paper.name == name)
    }

    /// The names of the figures, in the order of the paper.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.plans.iter().map(|plan| plan.id)
    }

    /// The plans of the figures named in `only`, or all where there is none.
    fn wanted<'a>(&'a self, only: &'a [String]) -> impl Iterator<Item = &'a Plan> {
        self.plans.iter().filter(|plan| only.is_empty() || only.iter().any(|id| id == plan.id))
    }

    /// How many runs it takes to measure these figures.
    pub fn runs(&self, only: &[String], settings: &Settings, runner: &dyn Runner) -> u64 {
        let count = Cell::new(0);
        let (stop, ran) = (AtomicBool::new(false), || count.set(count.get() + 1));
        let bench = Bench { settings, runner, stop: &stop, status: &|_| (), ran: &ran, counts_only: true };
        for plan in self.wanted(only) {
            // Nothing fails that is not run.
            let _ = (plan.draw)(&bench, &mut plan.figure());
        }
        count.get()
    }

    /// Measures the figures named in `only`, or all where there is none. Setting `stop` ends it; what was measured until
    /// then is kept.
    pub fn draw(
        &self,
        only: &[String],
        settings: &Settings,
        runner: &dyn Runner,
        stop: &AtomicBool,
        watch: &Watch<'_>,
    ) -> Drawn {
        let bench = Bench { settings, runner, stop, status: watch.status, ran: watch.ran, counts_only: false };
        let mut drawn = Drawn { figures: Vec::new(), ended: None, load_before: load() };
        for plan in self.wanted(only) {
            let mut figure = plan.figure();
            (bench.status)(&format!("figure {}: {}", plan.id, plan.title));
            drawn.ended = (plan.draw)(&bench, &mut figure).err();
            drawn.figures.push(figure);
            if drawn.ended.is_some() {
                break;
            }
        }
        drawn
    }
}

impl Plan {
    /// The figure, of which nothing is measured.
    fn figure(&self) -> Figure {
        Figure::new(self.id, self.title, self.kind, self.x_name)
    }
}
