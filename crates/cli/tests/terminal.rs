//! `polychron shell` at a terminal.
#![cfg(feature = "shell")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};

/// Nothing takes so long: a text that does not come fails the test.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A shell, and the other end of its terminal.
struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    /// What was shown behind the last text that was awaited.
    seen: String,
}

impl Terminal {
    fn open(base: &Path, state: &Path) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).unwrap();
        let end = File::from(pair.slave);
        let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
        command
            .arg("shell")
            .arg(base)
            .env("XDG_STATE_HOME", state)
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env("PAGER", "cat -n");
        command.stdin(end.try_clone().unwrap()).stdout(end.try_clone().unwrap()).stderr(end);
        let child = command.spawn().expect("the binary was built for this test");
        // The command has the shell's end of the terminal, too.
        drop(command);
        let keys = File::from(pair.master);
        let mut screen = keys.try_clone().unwrap();
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, shown, seen: String::new() }
    }

    #[track_caller]
    fn awaits(&mut self, text: &str) {
        while !self.seen.contains(text) {
            match self.shown.recv_timeout(TOO_LONG) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} does not come: {:?}", self.seen),
            }
        }
        let end = self.seen.find(text).map_or(0, |at| at + text.len());
        self.seen.drain(..end);
    }

    /// Types keys and awaits texts, one behind the other.
    #[track_caller]
    fn types(&mut self, keys: &str, texts: &[&str]) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        texts.iter().for_each(|text| self.awaits(text));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Of a test that has failed; otherwise it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prompts_completions_history_and_the_pager() {
    let directory = tempfile::tempdir().unwrap();
    let (base, state) = (directory.path().join("bank"), directory.path().join("state"));
    let mut terminal = Terminal::open(&base, &state);
    terminal.awaits("bank=# ");
    terminal.types("create table account (id int primary key,\r", &["bank(# "]);
    terminal.types("balance int);\r", &["CREATE TABLE", "bank=# "]);
    terminal.types("select 'a\r", &["bank'# "]);
    terminal.types("b' as words;\r", &["words", "bank=# "]);
    terminal.types("select bal\t", &["select balance"]);
    terminal.types(" fro\t acc\t;\r", &["(0 rows)", "bank=# "]);
    terminal.types("begin;\r", &["BEGIN", "bank=*# "]);
    terminal.types("select x;\r", &["ERROR:  column \"x\" does not exist", "bank=!# "]);
    terminal.types("rollback;\r", &["ROLLBACK", "bank=# "]);
    // Ctrl-C forgets what is typed.
    terminal.types("select 1,\r", &["bank-# "]);
    terminal.types("\x03", &["bank=# "]);
    terminal.types("select 6 + 1 as seven;\r", &["     7\r\n", "bank=# "]);
    let many: Vec<_> = (1..=40).map(|number| format!("({number})")).collect();
    terminal.types(&format!("values {};\r", many.join(", ")), &["    42\t      40", "(40 rows)", "bank=# "]);
    terminal.types("help\r", &["\\watch", "bank=# "]);
    // Ctrl-D ends it.
    terminal.types("\x04", &[]);
    assert!(terminal.child.wait().unwrap().success());
    let history = fs::read_to_string(state.join("polychron/shell_history")).unwrap();
    assert!(history.contains("begin;\n") && !history.contains("select 1,"), "{history}");

    let mut terminal = Terminal::open(&base, &state);
    terminal.awaits("bank=# ");
    // Ctrl-R searches what another shell has run.
    terminal.types("\x12seven", &["seven': select 6 + 1 as seven;"]);
    terminal.types("\r", &["     7\r\n", "bank=# "]);
    terminal.types("exit\r", &[]);
    assert!(terminal.child.wait().unwrap().success());
}
