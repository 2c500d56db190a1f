//! The shell at a terminal: lines that are edited, with a history.

use std::env;
use std::fs;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use polychron_sync::atomic::Ordering;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use super::complete::Words;
use super::session::{Flow, Session};
use super::split::{Open, Scan};
use crate::arguments::Shell;
use crate::interrupt;
use crate::output::{print_error, print_output};

/// How many statements the history keeps.
const HISTORY: usize = 10_000;

/// What is typed, and the history of it.
struct Typed {
    editor: Editor<Words, FileHistory>,
    history: Option<PathBuf>,
    /// What is not run yet.
    text: String,
    scan: Scan,
    /// All lines since the last statement has ended, for the history.
    entry: String,
    open: Open,
}

/// Reads and runs what is typed, to its end; the answer is the exit code.
pub(super) fn run(session: &mut Session, given: &Shell) -> u8 {
    let name = given.path.as_deref().and_then(|path| path.file_name());
    let name = name.map_or("memory".into(), |name| name.to_string_lossy());
    let mut typed = match Typed::new() {
        Ok(typed) => typed,
        Err(error) => {
            print_error(error);
            return 1;
        }
    };
    session.is_interactive = true;
    let handle = session.connection.cancel_handle();
    // It ends what runs, be it a statement or a command.
    interrupt::listen_with(move || {
        handle.cancel();
        true
    });
    if !given.quiet {
        let version = env!("CARGO_PKG_VERSION");
        print_output(format_args!(
            "polychron {version}, protocol {}. \\? lists the commands, \\q ends.",
            given.protocol
        ));
    }
    loop {
        if typed.open == Open::Nothing
            && let Some(words) = typed.editor.helper_mut()
        {
            words.look(session);
        }
        // Ctrl-C is a letter here: a signal is the system's, and ends the program at once.
        interrupt::STOP.store(true, Ordering::Relaxed);
        let line = typed.editor.readline(&prompt(session, &name, typed.open));
        interrupt::STOP.store(false, Ordering::Relaxed);
        match line {
            Ok(line) => {
                if typed.take(&line, session) == Flow::Quit {
                    return 0;
                }
            }
            Err(ReadlineError::Interrupted) => {
                session.pending.clear();
                typed.forget();
            }
            Err(ReadlineError::Eof) => {
                print_output("");
                return 0;
            }
            Err(error) => {
                print_error(error);
                return 1;
            }
        }
    }
}

impl Typed {
    fn new() -> rustyline::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY)?.completion_type(CompletionType::List);
        let mut editor = Editor::with_config(config.build())?;
        editor.set_helper(Some(Words { names: Vec::new(), is_coloured: console::colors_enabled() }));
        let history = history_path();
        if let Some(path) = &history {
            // There is none at first.
            let _ = editor.load_history(path);
        }
        Ok(Self {
            editor,
            history,
            text: String::new(),
            scan: Scan::default(),
            entry: String::new(),
            open: Open::Nothing,
        })
    }

    /// Runs what ends with a line.
    fn take(&mut self, line: &str, session: &mut Session) -> Flow {
        if self.open == Open::Nothing && session.pending.is_empty() {
            match line.trim().trim_end_matches(';') {
                "quit" | "exit" => return Flow::Quit,
                "help" => return session.command("?"),
                _ => {}
            }
        }
        for text in [&mut self.text, &mut self.entry] {
            *text += line;
            text.push('\n');
        }
        let (open, flow) = session.run_pieces(&mut self.text, &mut self.scan);
        self.open = open;
        if open == Open::Nothing && session.pending.is_empty() {
            self.remember();
        }
        flow
    }

    /// Adds what was run to the history, and to its file at once, so that shells beside this one lose nothing.
    fn remember(&mut self) {
        let entry = std::mem::take(&mut self.entry);
        let is_new = self.editor.add_history_entry(entry.trim_end()).unwrap_or(false);
        if let Some(path) = self.history.as_ref().filter(|_| is_new) {
            // Without a history the shell works all the same.
            let _ = self.editor.append_history(path);
        }
    }

    /// Forgets what is not run.
    fn forget(&mut self) {
        self.text.clear();
        self.scan = Scan::default();
        self.entry.clear();
        self.open = Open::Nothing;
    }
}

/// In the user's folder for what programs remember.
fn history_path() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    let own = state.join("polychron");
    fs::create_dir_all(&own).ok()?;
    Some(own.join("shell_history"))
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
    let pager = env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
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
