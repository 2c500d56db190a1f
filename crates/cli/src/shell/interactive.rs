//! The shell at a terminal: lines that are edited, with a history.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::{Command, Stdio};

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use super::session::{Flow, Session};
use super::split::Open;
use crate::arguments::Shell;
use crate::interrupt;
use crate::output::{print_output, print_status};
use polychron_sync::atomic::Ordering;

/// Reads and runs what is typed, to its end; the answer is the exit code.
pub(super) fn run(session: &mut Session, given: &Shell) -> u8 {
    let name =
        given.path.as_deref().and_then(|path| path.file_name()).map_or("memory".into(), |name| name.to_string_lossy());
    let mut editor = match Editor::<(), FileHistory>::with_config(Config::default()) {
        Ok(editor) => editor,
        Err(error) => {
            print_status(error);
            return 1;
        }
    };
    session.is_interactive = true;
    interrupt::listen();
    let (mut text, mut open) = (String::new(), Open::Nothing);
    loop {
        interrupt::STOP.store(false, Ordering::Relaxed);
        match editor.readline(&prompt(session, &name, open)) {
            Ok(line) => {
                text += &line;
                text.push('\n');
                let (left, flow) = session.run_pieces(&mut text);
                open = left;
                if flow == Flow::Quit {
                    return 0;
                }
            }
            Err(ReadlineError::Interrupted) => {
                text.clear();
                session.pending.clear();
                open = Open::Nothing;
            }
            Err(ReadlineError::Eof) => {
                print_output("");
                return 0;
            }
            Err(error) => {
                print_status(error);
                return 1;
            }
        }
    }
}

/// `bank=# `, and what is open in its place.
fn prompt(session: &Session, name: &str, open: Open) -> String {
    let sign = match open {
        Open::Nothing if session.pending.is_empty() => "=",
        Open::Nothing | Open::Statement => "-",
        Open::Quote('"') => "\"",
        Open::Quote(_) => "'",
        Open::Dollar => "$",
        Open::Comment => "*",
        Open::Parenthesis => "(",
    };
    let transaction = match (session.is_aborted, session.connection.is_in_transaction()) {
        (true, _) => "!",
        (false, true) => "*",
        (false, false) => "",
    };
    format!("{name}{sign}{transaction}# ")
}

/// Shows a text by `$PAGER` if it is longer or wider than the terminal; whether it was shown.
pub(super) fn page(text: &str) -> bool {
    let Some((lines, columns)) =
        stdout().is_terminal().then(console::Term::stdout).and_then(|term| term.size_checked())
    else {
        return false;
    };
    let is_long = text.lines().count() >= usize::from(lines)
        || text.lines().any(|line| line.chars().count() > usize::from(columns));
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if !is_long || pager.trim().is_empty() {
        return false;
    }
    let mut command = Command::new("sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "-FRSX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // The pager may be left before the end.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok_and(|status| status.success())
}
