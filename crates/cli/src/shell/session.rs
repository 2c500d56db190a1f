//! Statements, one after the other, and what is shown of them.

use std::fmt::Display;
use std::io::BufRead;

use polychron::AnyProtocol;
use polychron::sql::{Connection, Error, Notice, Outcome, Type};
use polychron_base::clock::{Clock as _, SystemClock};

use polychron_sync::atomic::Ordering;

use super::interactive::page;
use super::settings::{Settings, Verbosity};
use super::show::{Cell, Column, Format, show};
use super::split::Piece;
use crate::arguments::Shell;
use crate::interrupt;
use crate::output::{print_output, print_status};

/// What becomes of a script behind a statement or a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Quit,
    /// It has failed, and the script is to end there.
    Failed,
}

/// A connection and what the shell knows of it.
pub(super) struct Session {
    pub(super) connection: Connection<AnyProtocol>,
    pub(super) settings: Settings,
    /// What begins a statement, in front of a command.
    pub(super) pending: String,
    /// The statement that was run last.
    pub(super) last: String,
    /// Whether the last statement or command has failed.
    pub(super) has_failed: bool,
    /// Whether the transaction that the client holds can only be rolled back.
    pub(super) is_aborted: bool,
    /// The script and its line.
    pub(super) place: Option<(String, usize)>,
    /// How many scripts are under way within each other.
    pub(super) depth: usize,
    /// Whether the standard input is the script.
    pub(super) reads_input: bool,
    /// The script, whose lines may be data.
    pub(super) input: Option<Box<dyn BufRead>>,
    /// Whether someone reads the answers as they come.
    pub(super) is_interactive: bool,
    clock: SystemClock,
}

impl Session {
    pub(super) fn new(connection: Connection<AnyProtocol>, given: &Shell) -> Self {
        let settings = Settings {
            format: given.format,
            null: String::new(),
            is_timing: false,
            is_quiet: given.quiet,
            stops_on_error: given.stop_on_error,
            has_pager: true,
            verbosity: Verbosity::Default,
        };
        Self {
            connection,
            settings,
            pending: String::new(),
            last: String::new(),
            has_failed: false,
            is_aborted: false,
            place: None,
            depth: 0,
            reads_input: false,
            input: None,
            is_interactive: false,
            clock: SystemClock::new(),
        }
    }

    pub(super) fn run_piece(&mut self, piece: &Piece<'_>) -> Flow {
        match piece {
            Piece::Statement(text) => {
                let text = std::mem::take(&mut self.pending) + text;
                self.execute(&text)
            }
            Piece::Begun(text) => {
                self.pending += text;
                Flow::On
            }
            Piece::Command(line) => self.command(line.strip_prefix('\\').unwrap_or(line)),
        }
    }

    /// Runs a statement, or several as one transaction, and shows what they answer.
    pub(super) fn execute(&mut self, text: &str) -> Flow {
        text.clone_into(&mut self.last);
        if interrupt::STOP.load(Ordering::Relaxed) {
            // Ctrl-C came between two statements of what was typed.
            return self.failed("ERROR:  canceling statement due to user request");
        }
        if let Some(answer) = self.copy_statement(text) {
            return match answer {
                Ok(tag) => self.said(Ok(tag)),
                Err(line) => self.failed(&line),
            };
        }
        self.execute_as(text, self.settings.format)
    }

    pub(super) fn execute_as(&mut self, text: &str, format: Format) -> Flow {
        let start = self.clock.now_ns();
        let mut outcomes = Vec::new();
        let result = self.connection.run(text, &mut |outcome| outcomes.push(outcome));
        let taken = self.clock.now_ns() - start;
        outcomes.iter().for_each(|outcome| self.show(outcome, format));
        if let Err(error) = &result {
            self.show_error(error);
        }
        if self.settings.is_timing {
            print_output(format_args!("Time: {:.3} ms", taken as f64 / 1e6));
        }
        self.has_failed = result.is_err();
        self.is_aborted = self.has_failed && self.connection.is_in_transaction();
        if self.has_failed { self.after_failure() } else { Flow::On }
    }

    /// Answers a query of the shell's own.
    pub(super) fn ask(&mut self, query: &str) -> Result<Outcome, Error> {
        let mut answer = None;
        let result = self.connection.run(query, &mut |outcome| answer = Some(outcome));
        self.is_aborted = result.is_err() && self.connection.is_in_transaction();
        result.map(|()| answer.unwrap_or_default())
    }

    pub(super) fn after_failure(&mut self) -> Flow {
        self.has_failed = true;
        let is_stopped = !self.is_interactive && interrupt::STOP.load(Ordering::Relaxed);
        if is_stopped || self.settings.stops_on_error && !self.is_interactive { Flow::Failed } else { Flow::On }
    }

    fn show(&self, outcome: &Outcome, format: Format) {
        self.show_notices(&outcome.notices);
        let has_rows = !outcome.columns.is_empty() || !outcome.rows.is_empty();
        if has_rows {
            self.show_rows(outcome, format);
        }
        // Of a query, the rows say it.
        let is_change = ["INSERT ", "UPDATE ", "DELETE ", "MERGE "].iter().any(|tag| outcome.tag.starts_with(tag));
        if (is_change || !has_rows) && !outcome.tag.is_empty() && !self.settings.is_quiet {
            print_output(&outcome.tag);
        }
    }

    fn show_notices(&self, notices: &[Notice]) {
        for notice in notices {
            self.say(format_args!("{}:  {}", notice.severity, notice.message));
            let more = [("DETAIL", notice.detail.as_deref()), ("HINT", notice.hint.as_deref())];
            show_more(&more);
        }
    }

    fn show_rows(&self, outcome: &Outcome, format: Format) {
        let columns: Vec<_> = outcome.columns.iter().map(|(name, of)| column(name, *of)).collect();
        let rows: Vec<Vec<Cell>> = outcome.texts().collect();
        let mut text = show(format, &columns, &rows, &self.settings.null);
        if matches!(format, Format::Aligned | Format::Expanded) {
            text.push('\n');
        }
        self.print(&text);
    }

    /// Shows a text, by the pager where it is longer than the terminal.
    pub(super) fn print(&self, text: &str) {
        if !(self.is_interactive && self.settings.has_pager && page(text)) {
            print_output(text.strip_suffix('\n').unwrap_or(text));
        }
    }

    pub(super) fn show_error(&self, error: &Error) {
        self.show_notices(error.notices());
        let (state, message) = (error.state(), error.message());
        match self.settings.verbosity {
            Verbosity::Code => self.say(format_args!("ERROR:  {state}")),
            Verbosity::Verbose => self.say(format_args!("ERROR:  {state}: {message}")),
            Verbosity::Terse | Verbosity::Default => self.say(format_args!("ERROR:  {message}")),
        }
        if matches!(self.settings.verbosity, Verbosity::Default | Verbosity::Verbose) {
            show_more(&[("DETAIL", error.detail()), ("HINT", error.hint()), ("CONTEXT", error.context())]);
        }
    }

    /// Says something on the standard error, with the place in the script.
    pub(super) fn say(&self, line: impl Display) {
        match &self.place {
            Some((file, at)) => print_status(format_args!("{file}:{at}: {line}")),
            None => print_status(line),
        }
    }

    /// A command has failed.
    pub(super) fn complain(&mut self, line: impl Display) {
        self.say(line);
        self.has_failed = true;
    }
}

/// How values of a type are shown.
pub(super) fn column(name: &str, of: Type) -> Column<'_> {
    let is_right = ["smallint", "integer", "bigint", "oid", "real", "double precision", "numeric"].contains(&of.name());
    Column { name, is_right, is_bare: is_right || ["boolean", "json", "jsonb"].contains(&of.name()) }
}

/// Shows the lines behind a message that are there.
fn show_more(more: &[(&str, Option<&str>)]) {
    more.iter().filter_map(|(what, line)| Some((what, (*line)?))).for_each(|(what, line)| {
        print_status(format_args!("{what}:  {line}"));
    });
}
