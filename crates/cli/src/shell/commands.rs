//! Commands that begin with a backslash.

use std::path::Path;
use std::thread::sleep;

use polychron_base::clock::{Duration, calendar_time};
use polychron_sync::atomic::Ordering;

use super::help;
use super::session::{Flow, Session};
use super::show::Format;
use crate::interrupt::STOP;
use crate::output::{print_output, print_status};

/// How many scripts may run within each other.
const DEPTH: usize = 32;
/// How often `\watch` looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

impl Session {
    /// Runs a command, given without its backslash.
    pub(super) fn command(&mut self, line: &str) -> Flow {
        let line = line.trim_end_matches(';').trim_end();
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let words = match words(rest) {
            Ok(words) => words,
            Err(why) => return self.failed(&format!("\\{name}: {why}")),
        };
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        self.has_failed = false;
        match (name, words.as_slice()) {
            ("q" | "quit" | "exit", _) => Flow::Quit,
            ("g" | "gx" | "watch", _) => self.run_again(name, &words),
            (name, words) if name.starts_with('d') && words.len() < 2 => self.describe(name, words.first().copied()),
            ("i" | "include", [path]) => self.include(path),
            ("i" | "include", _) => self.failed("\\i: one file is wanted"),
            ("copy", _) => match self.copy(rest.trim()) {
                Ok(tag) => self.said(Ok(tag)),
                Err(line) => self.failed(&line),
            },
            _ => {
                let answer = self.simple_command(name, &words);
                self.said(answer)
            }
        }
    }

    /// A command that is done at once; the answer is what it says, if anything.
    fn simple_command(&mut self, name: &str, words: &[&str]) -> Result<String, String> {
        let settings = &mut self.settings;
        let first = words.first().copied();
        match (name, words) {
            ("?", _) => Ok(help::COMMANDS.to_owned()),
            ("h" | "help", _) => help::statements(&words.join(" ")),
            ("timing", _) => settings.time(first).map(str::to_owned),
            ("x", _) => settings.expand(first).map(str::to_owned),
            ("pset", [option, ..]) => settings.print_set(option, words.get(1).copied()),
            ("pset", []) => Ok(format!("format = {}\nnull = '{}'", settings.format.name(), settings.null)),
            ("set", [variable, ..]) => settings.set(variable, words.get(1).copied()).map(|()| String::new()),
            ("set", []) => Ok(settings.all()),
            ("unset", [variable]) => {
                settings.set(variable, Some("off").filter(|_| *variable != "VERBOSITY")).map(|()| String::new())
            }
            ("echo" | "qecho", _) => {
                print_output(words.join(" "));
                Ok(String::new())
            }
            ("warn", _) => {
                print_status(words.join(" "));
                Ok(String::new())
            }
            ("p" | "print", _) => Ok(if self.pending.is_empty() { self.last.clone() } else { self.pending.clone() }),
            ("r" | "reset", _) => {
                self.pending.clear();
                Ok("Query buffer reset (cleared).".to_owned())
            }
            _ => Err(format!("invalid command \\{name}\nTry \\? for help.")),
        }
    }

    pub(super) fn said(&mut self, answer: Result<String, String>) -> Flow {
        match answer {
            Ok(text) if text.is_empty() || (self.settings.is_quiet && !text.contains('\n')) => Flow::On,
            Ok(text) => {
                self.print(&text);
                Flow::On
            }
            Err(line) => self.failed(&line),
        }
    }

    pub(super) fn failed(&mut self, line: &str) -> Flow {
        self.complain(line);
        self.after_failure()
    }

    /// `\i`
    fn include(&mut self, path: &str) -> Flow {
        if self.depth == DEPTH {
            return self.failed(&format!("{path}: more than {DEPTH} files within each other"));
        }
        self.depth += 1;
        let flow = self.run_file(Path::new(path));
        self.depth -= 1;
        match flow {
            // `\q` ends the script that has it.
            Ok(Flow::Quit) => Flow::On,
            Ok(flow) => flow,
            Err(line) => self.failed(&line),
        }
    }

    /// `\g`, `\gx` and `\watch`: what was begun, or else the last statement.
    fn run_again(&mut self, name: &str, words: &[&str]) -> Flow {
        let begun = std::mem::take(&mut self.pending);
        if !begun.trim().is_empty() {
            self.last = begun;
        }
        if self.last.is_empty() {
            return self.failed(&format!("\\{name}: there is no statement"));
        }
        let text = self.last.clone();
        match name {
            "g" => self.execute_as(&text, self.settings.format),
            "gx" => self.execute_as(&text, Format::Expanded),
            _ => match intervals(words) {
                Ok((seconds, times)) => {
                    let has_pager = std::mem::replace(&mut self.settings.has_pager, false);
                    let flow = self.watch(&text, seconds, times);
                    self.settings.has_pager = has_pager;
                    flow
                }
                Err(line) => self.failed(&line),
            },
        }
    }

    fn watch(&mut self, text: &str, seconds: f64, times: u64) -> Flow {
        let interval = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        for time in 0..times {
            let now =
                jiff::Timestamp::try_from(calendar_time()).map_or_else(|_| String::new(), |now| format!("{now:.0}"));
            print_output(format_args!("{now} (every {seconds}s)\n"));
            let flow = self.execute_as(text, self.settings.format);
            if self.has_failed {
                return flow;
            }
            let mut left = if time + 1 < times { interval } else { Duration::ZERO };
            while left > Duration::ZERO && !STOP.load(Ordering::Relaxed) {
                let nap = left.min(LOOK);
                sleep(nap);
                left -= nap;
            }
            if STOP.load(Ordering::Relaxed) {
                break;
            }
        }
        Flow::On
    }
}

/// Seconds and times of `\watch`: `2`, `i=2`, `c=3`.
fn intervals(words: &[&str]) -> Result<(f64, u64), String> {
    let (mut seconds, mut times) = (2.0_f64, u64::MAX);
    for word in words {
        let wrong = || format!("\\watch: \"{word}\" is neither seconds nor c=TIMES");
        match word.split_once('=') {
            Some(("c" | "count", count)) => times = count.parse().map_err(|_| wrong())?,
            Some(("i" | "interval", interval)) => seconds = interval.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
            None => seconds = word.parse().map_err(|_| wrong())?,
        }
        if seconds.is_nan() || seconds < 0.0 {
            return Err(wrong());
        }
    }
    Ok((seconds, times))
}

/// The arguments of a command: words, or texts in single quotes, in which two quotes are one.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(first) = letters.next_if(|letter| letter.is_whitespace()).or_else(|| letters.peek().copied()) {
        if first.is_whitespace() {
            continue;
        }
        let mut word = String::new();
        let mut is_quoted = false;
        while let Some(letter) = letters.next_if(|letter| is_quoted || !letter.is_whitespace()) {
            match letter {
                '\'' if is_quoted && letters.next_if_eq(&'\'').is_some() => word.push('\''),
                '\'' => is_quoted = !is_quoted,
                letter => word.push(letter),
            }
        }
        if is_quoted {
            return Err("unterminated quoted string");
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_words_or_quoted_texts() {
        let cases: [(&str, &[&str]); 5] = [
            ("", &[]),
            (" a  b ", &["a", "b"]),
            ("'a b' c", &["a b", "c"]),
            ("'it''s' ''", &["it's", ""]),
            ("x'y z'w", &["xy zw"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(words(text).unwrap(), wanted, "{text}");
        }
        assert!(words("'a").is_err());
    }

    #[test]
    fn watch_takes_seconds_and_times() {
        assert_eq!(intervals(&[]), Ok((2.0, u64::MAX)));
        assert_eq!(intervals(&["0.5", "c=3"]), Ok((0.5, 3)));
        assert_eq!(intervals(&["i=4"]), Ok((4.0, u64::MAX)));
        for wrong in ["x", "-1", "NaN", "c=x", "d=1"] {
            assert!(intervals(&[wrong]).is_err(), "{wrong}");
        }
    }
}
