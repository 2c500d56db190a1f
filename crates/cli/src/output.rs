//! What the program writes, where no one may read or the device is full.
//!
//! A reader that is gone wants no more, so the program ends quietly, with the code that it would have had. A standard output that cannot
//! be written otherwise is a failure, told in one line. Files get their contents at once and whole: until then they are as they were.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Why the standard output could not be written, at first.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Writes lines to the standard output.
pub fn print_output(text: impl Display) {
    let mut out = stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILURE.get_or_init(|| error.to_string());
    }
}

/// Writes a line to the standard error; when that fails nothing else can report it.
pub fn print_status(line: impl Display) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Writes a line to the standard error that says what went wrong.
pub fn print_error(line: impl Display) {
    let (bold_red, reset) = if colours_on_errors() { ("\x1b[1m\x1b[31m", "\x1b[0m") } else { ("", "") };
    print_status(format_args!("{bold_red}error:{reset} {line}"));
}

/// Whether the standard error is a terminal that shows colours, and nobody objects (`NO_COLOR`).
pub fn colours_on_errors() -> bool {
    stderr().is_terminal() && console::colors_enabled_stderr()
}

/// How many letters a line of the standard output holds, where that is a terminal.
pub fn terminal_width() -> Option<u16> {
    stdout().is_terminal().then(console::Term::stdout).and_then(|term| term.size_checked()).map(|(_, columns)| columns)
}

/// The exit code, once all is written: a success of which nothing could be said is none.
pub fn exit_code(code: u8) -> u8 {
    match FAILURE.get() {
        Some(why) => {
            print_error(format_args!("the standard output could not be written: {why}"));
            code.max(1)
        }
        None => code,
    }
}

/// A file to be written in the end. Opened beforehand, so that no run waits for a result that cannot be written.
pub struct Pending {
    path: PathBuf,
    file: File,
    /// The file beside it that takes its place; none where it is no ordinary file.
    beside: Option<PathBuf>,
}

impl Pending {
    /// Opens what will become the file of this path.
    pub fn open(option: &str, path: &Path) -> Result<Self, String> {
        let refusal = |error| format!("{option} {}: {error}", path.display());
        let itself = || OpenOptions::new().write(true).open(path);
        let known = fs::metadata(path).ok();
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            return Ok(Self { path: path.to_owned(), file: itself().map_err(refusal)?, beside: None });
        }
        let beside = beside(path);
        match OpenOptions::new().create(true).write(true).truncate(true).open(&beside) {
            Ok(file) => Ok(Self { path: path.to_owned(), file, beside: Some(beside) }),
            // The file may be written where its folder may not.
            Err(_) if known.is_some() => {
                Ok(Self { path: path.to_owned(), file: itself().map_err(refusal)?, beside: None })
            }
            Err(error) => Err(refusal(error)),
        }
    }

    /// Writes it.
    pub fn write(mut self, text: &[u8]) -> Result<(), String> {
        self.write_with(|file| file.write_all(text)).map_err(|error| self.refusal(&error))?;
        self.keep()
    }

    /// Has its contents written in pieces. They are the file's once they are kept.
    pub fn write_with<O>(&mut self, write: impl FnOnce(&mut File) -> O) -> O {
        if self.beside.is_none() {
            // No ordinary file has a length; an ordinary one loses what it had.
            let _ = self.file.set_len(0);
        }
        write(&mut self.file)
    }

    /// Puts what was written in the file's place.
    pub fn keep(mut self) -> Result<(), String> {
        if let Some(beside) = &self.beside {
            // Through links, to the file itself.
            let to = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
            fs::rename(beside, to).map_err(|error| self.refusal(&error))?;
        }
        self.beside = None;
        Ok(())
    }

    fn refusal(&self, error: &std::io::Error) -> String {
        format!("{} could not be written: {error}", self.path.display())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // What is left of a run without a result.
            let _ = fs::remove_file(beside);
        }
    }
}

/// In the same folder, so that it can take the file's place. The process's number keeps two runs apart.
fn beside(path: &Path) -> PathBuf {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
