//! The figures of the papers, measured again on the machine at hand.
//!
//! A [`Paper`] is a list of plans; a plan names a figure, says what the paper found, and measures. What was measured
//! becomes one page of HTML ([`page`]) and JSON. A paper has a module of its own, and a line in [`PAPERS`].

mod bohm;
mod cicada;
mod figure;
mod hyper;
mod interleaved;
mod lazy;
mod measure;
mod page;
mod plot;
mod runner;

use polychron_sync::atomic::AtomicBool;

pub use figure::{Figure, Finding, Kind, Panel, Point, Series, Verdict};
pub use measure::{Ended, Settings};
pub use page::page;
pub use runner::{Runner, Work};

use measure::Bench;

/// The papers whose figures can be drawn.
pub const PAPERS: &[Paper] = &[cicada::PAPER, bohm::PAPER, hyper::PAPER, lazy::PAPER];

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
    claim: &'static str,
    kind: Kind,
    x_name: &'static str,
    draw: fn(&Bench<'_>, &mut Figure) -> Result<(), Ended>,
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

    /// Measures the figures named in `only`, or all where there is none. Setting `stop` ends it; what was measured until
    /// then is kept. `status` hears what is measured next.
    pub fn draw(
        &self,
        only: &[String],
        settings: &Settings,
        runner: &dyn Runner,
        stop: &AtomicBool,
        status: &dyn Fn(&str),
    ) -> Drawn {
        let bench = Bench { settings, runner, stop, status };
        let wanted = |plan: &&Plan| only.is_empty() || only.iter().any(|id| id == plan.id);
        let mut drawn = Drawn { figures: Vec::new(), ended: None, load_before: load() };
        for plan in self.plans.iter().filter(wanted) {
            let mut figure = Figure::new(plan.id, plan.title, plan.claim, plan.kind, plan.x_name);
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
