//! What is shown while a benchmark loads and runs: a bar and a live line on a terminal, plain lines elsewhere.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::sync::PoisonError;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use polychron::{Event, OpeningStage};
use polychron_sync::Mutex;
use polychron_workloads::run::{Live, Load, Observer};

use crate::output::print_status;
use crate::report::thousands;

/// Shows what goes on, on standard error. What it shows on a terminal's last line is gone when it is dropped.
pub(crate) struct Progress {
    terminal: bool,
    /// The terminal's last line.
    line: RefCell<Option<ProgressBar>>,
    /// The last tenth of the load that was told on a plain line.
    tenth: Cell<u64>,
}

/// The bar of a load. The numbers have fixed places, so that the bar's end stands still.
const LOADING: &str = "loading {wide_bar} {percent:>3} % of {human_len} rows";

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), line: RefCell::new(None), tenth: Cell::new(0) }
    }

    /// Works with the last line, which begins as `make` has it in the style of `template`.
    fn on_last_line(&self, make: impl FnOnce() -> ProgressBar, template: &str, show: impl FnOnce(&ProgressBar)) {
        let mut line = self.line.borrow_mut();
        show(line.get_or_insert_with(|| {
            let style = ProgressStyle::with_template(template);
            make().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        }));
    }

    fn clear_last_line(&self) {
        if let Some(line) = self.line.borrow_mut().take() {
            line.finish_and_clear();
        }
    }
}

/// How far work of a known size has come: on a terminal a bar with the time that remains, elsewhere plain lines.
pub struct Steps {
    bar: Option<ProgressBar>,
}

/// The text stands behind, because it may be cut.
const STEPS: &str = "{bar:20} {percent:>3} %, {eta} left {wide_msg}";

impl Steps {
    /// Work of so many steps.
    pub fn new(steps: u64) -> Self {
        let style = || ProgressStyle::with_template(STEPS).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(steps).with_style(style()));
        Self { bar }
    }

    /// What is done now: at the bar, or on a line.
    pub fn now(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.trim_start().to_owned()),
            None => print_status(text),
        }
    }

    /// Without the bar, so that other output finds its place.
    pub fn pause(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// So many steps are done.
    pub fn done(&self, steps: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(steps);
        }
    }

    /// Another step is done.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Whether there is a bar, which may be moved often; lines are for some seconds.
    pub fn is_bar(&self) -> bool {
        self.bar.is_some()
    }
}

/// Shows how far the opening of a database has come, with the time that remains, on a terminal alone: a listener for
/// [`Builder::on_event`](polychron::Builder::on_event).
pub fn opening() -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let shown = Mutex::new(None::<(OpeningStage, Steps)>);
    move |event| {
        let Event::Opening { stage, done, of, .. } = event else { return };
        if !std::io::stderr().is_terminal() {
            return;
        }
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == OpeningStage::Rows && done == of {
            *shown = None;
            return;
        }
        let (_, steps) = match shown.take() {
            Some(same) if same.0 == *stage => shown.insert(same),
            _ => shown.insert((*stage, Steps::new(*of))),
        };
        steps.now(stage.name());
        steps.done(*done);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear_last_line();
    }
}

impl Observer for Progress {
    fn loading(&self, rows: u64, of: u64) {
        if self.terminal {
            return self.on_last_line(|| ProgressBar::new(of), LOADING, |bar| bar.set_position(rows));
        }
        let tenth = rows * 10 / of.max(1);
        if tenth > self.tenth.get() && tenth < 10 {
            self.tenth.set(tenth);
            print_status(format_args!("loading: {} %", tenth * 10));
        }
    }

    fn loaded(&self, load: Load) {
        self.clear_last_line();
        print_status(format_args!("loaded {} rows in {:.1} s", thousands(load.rows), load.seconds));
    }

    fn live(&self, live: &Live) {
        let phase = if live.warmup { "ramp-up" } else { "running" };
        let (tps, aborts) = (thousands(live.tps as u64), live.abort_rate * 100.0);
        let memory = live.memory.map_or(String::new(), |memory| {
            format!(
                ", {} used, {} retired",
                HumanBytes(memory.used_bytes as u64),
                HumanBytes(memory.retired_bytes as u64)
            )
        });
        let text = format!(
            "{phase} {:.0}/{:.0} s: {tps} transactions/s, {aborts:.2} % aborts{memory}",
            live.elapsed_seconds, live.of_seconds
        );
        if self.terminal {
            // Cut at the terminal's width: a line that wraps could not be taken back.
            self.on_last_line(ProgressBar::new_spinner, "{wide_msg}", |line| line.set_message(text));
        } else {
            print_status(text);
        }
    }

    fn checking(&self) {
        self.clear_last_line();
        print_status("checking consistency");
    }
}
