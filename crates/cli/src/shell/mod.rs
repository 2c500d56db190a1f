//! `polychron shell`: statements of SQL that are typed, of scripts, or given as arguments.
//!
//! Answers, errors and commands are those of psql, as far as they make sense for a database in the same process. A text is cut into statements
//! and commands (`split`), which a [`Session`] runs one after the other; rows become text in `show`.

mod commands;
mod complete;
mod copy;
mod describe;
mod help;
mod interactive;
mod session;
mod settings;
mod show;
mod split;

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, stdin};
use std::path::Path;

use polychron::sql::Connection;
use polychron::{AnyProtocol, Database};
use polychron_base::line::OneLine;

use crate::arguments::Shell;
use crate::interrupt;
use crate::output::print_error;
use crate::progress::opening;
use crate::statements::check_protocol;
use session::{Flow, Session};
use split::{Open, Scan, next_piece};

/// A statement of a script has failed, and it was to end there.
const STATEMENT_FAILED: u8 = 3;

/// Why the shell cannot begin: the exit code, and a line.
struct Refusal(u8, String);

/// Runs `shell`.
pub fn run(given: &Shell) -> u8 {
    let (database, connection) = match open(given) {
        Ok(opened) => opened,
        Err(Refusal(code, line)) => {
            print_error(OneLine(line));
            return code;
        }
    };
    let mut session = Session::new(connection, given);
    let code = session.run_given(given);
    drop(session);
    match database.close() {
        Ok(()) => code,
        Err(error) => {
            print_error(OneLine(error));
            code.max(1)
        }
    }
}

fn open(given: &Shell) -> Result<(Database<AnyProtocol>, Connection<AnyProtocol>), Refusal> {
    check_protocol(&given.protocol).map_err(|line| Refusal(2, line))?;
    let builder = Database::builder().on_event(opening()).protocol(&given.protocol);
    let database = match &given.path {
        None => builder.in_memory(),
        Some(path) if given.read_only => builder.open_read_only(path),
        Some(path) => builder.open(path),
    };
    let database = database.map_err(|error| Refusal(1, error.to_string()))?;
    let connection = database.sql().map_err(|error| Refusal(1, error.to_string()))?;
    Ok((database, connection))
}

impl Session {
    /// Runs what the arguments name; the answer is the exit code.
    fn run_given(&mut self, given: &Shell) -> u8 {
        if given.command.is_empty() && given.file.is_empty() {
            if stdin().is_terminal() {
                return interactive::run(self, given);
            }
            self.listen();
            let flow = self.run_lines(stdin().lock(), true);
            return if flow == Flow::Failed { STATEMENT_FAILED } else { 0 };
        }
        let mut code = 0;
        self.listen();
        for text in &given.command {
            let flow = self.run_argument(text);
            code = u8::from(self.has_failed);
            match flow {
                Flow::On => {}
                Flow::Quit => return code,
                Flow::Failed => return STATEMENT_FAILED,
            }
        }
        for path in &given.file {
            let flow = self.run_file(path);
            match flow {
                Ok(Flow::On) => {}
                Ok(Flow::Quit) => return 0,
                Ok(Flow::Failed) => return STATEMENT_FAILED,
                Err(line) => {
                    print_error(OneLine(line));
                    return 1;
                }
            }
            code = 0;
        }
        code
    }

    /// An argument is one request, and so one transaction, or one command.
    fn run_argument(&mut self, text: &str) -> Flow {
        match text.trim_start().strip_prefix('\\') {
            Some(command) => self.command(command.trim_end()),
            None => self.execute(text),
        }
    }

    /// Runs a script; `-` is the standard input.
    ///
    /// # Errors
    /// It cannot be read.
    fn run_file(&mut self, path: &Path) -> Result<Flow, String> {
        if path == Path::new("-") {
            return Ok(self.run_lines(stdin().lock(), true));
        }
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
        let around = self.place.replace((name, 0));
        let flow = self.run_lines(BufReader::new(file), false);
        self.place = around;
        Ok(flow)
    }

    /// Ctrl-C ends the statement that runs, and then the script.
    fn listen(&mut self) {
        let handle = self.connection.cancel_handle();
        interrupt::listen_with(move || handle.cancel());
    }

    /// Runs the lines of a script as they come.
    fn run_lines(&mut self, input: impl BufRead + 'static, is_input: bool) -> Flow {
        let around = (self.reads_input, self.input.replace(Box::new(input)));
        self.reads_input |= is_input;
        let (mut text, mut scan) = (String::new(), Scan::default());
        let flow = loop {
            let start = text.len();
            match self.input.as_mut().map_or(Ok(0), |input| input.read_line(&mut text)) {
                Ok(0) => break self.run_last(&text),
                Ok(_) => {}
                Err(error) => {
                    self.complain(format_args!("the script could not be read: {error}"));
                    break self.after_failure();
                }
            }
            if let Some((_, line)) = &mut self.place {
                *line += 1;
            }
            // Nothing ends in other lines.
            if text[start..].contains([';', '\\']) {
                let flow = self.run_pieces(&mut text, &mut scan).1;
                if flow != Flow::On {
                    break flow;
                }
            }
        };
        (self.reads_input, self.input) = around;
        flow
    }

    /// Runs all of a text that is complete, and leaves the rest, of which the answer says what is open.
    fn run_pieces(&mut self, text: &mut String, scan: &mut Scan) -> (Open, Flow) {
        let mut rest = text.as_str();
        let (open, flow) = loop {
            match next_piece(rest, scan) {
                Err(open) => break (open, Flow::On),
                Ok((piece, behind)) => {
                    rest = behind;
                    let flow = self.run_piece(&piece);
                    if flow != Flow::On {
                        break (Open::Nothing, flow);
                    }
                }
            }
        };
        let done = text.len() - rest.len();
        text.drain(..done);
        (open, flow)
    }

    /// What a script ends with needs no semicolon.
    fn run_last(&mut self, text: &str) -> Flow {
        let last = std::mem::take(&mut self.pending) + text;
        if next_piece(&last, &mut Scan::default()) == Err(Open::Nothing) { Flow::On } else { self.execute(&last) }
    }
}
