//! What is shown while a benchmark loads and runs: a bar and a live line on a terminal, plain lines elsewhere.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use polychron_workloads::run::{Live, Load, Observer};

use crate::interrupt;
use crate::report::thousands;

/// Shows what goes on, on standard error.
pub(crate) struct Progress {
    terminal: bool,
    bar: RefCell<Option<ProgressBar>>,
    /// The last tenth of the load that was told on a plain line.
    tenth: Cell<u64>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), bar: RefCell::new(None), tenth: Cell::new(0) }
    }

    fn show_on_bar(&self, rows: u64, of: u64) {
        let mut bar = self.bar.borrow_mut();
        let bar = bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("loading {wide_bar} {human_pos}/{human_len} rows, {eta} left");
            ProgressBar::new(of).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(rows);
    }

    fn end_bar(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn loading(&self, rows: u64, of: u64) {
        if self.terminal {
            return self.show_on_bar(rows, of);
        }
        let tenth = rows * 10 / of.max(1);
        if tenth > self.tenth.get() && tenth < 10 {
            self.tenth.set(tenth);
            eprintln!("loading: {} %", tenth * 10);
        }
    }

    fn loaded(&self, load: Load) {
        self.end_bar();
        eprintln!("loaded {} rows in {:.1} s", thousands(load.rows), load.seconds);
        interrupt::set_running(true);
    }

    fn live(&self, live: &Live) {
        let phase = if live.warmup { "ramp-up" } else { "running" };
        let (tps, aborts) = (thousands(live.tps as u64), live.abort_rate * 100.0);
        let line = format!(
            "{phase} {:.0}/{:.0} s: {tps} transactions/s, {aborts:.2} % aborts",
            live.elapsed_seconds, live.of_seconds
        );
        if self.terminal {
            // Back to the line's start, and clear what was there.
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
    }

    fn checking(&self) {
        interrupt::set_running(false);
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("checking consistency");
    }
}
