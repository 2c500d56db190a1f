//! The lines that a client writes: one before each transaction, one after it, each by one call of the system. Pipes keep them when the client is killed, and a
//! line that comes behind another one was written later.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// What a client tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The database is open.
    Open,
    /// A transaction begins.
    Begin(u64),
    /// It was answered: what it found.
    Done(u64, String),
    /// It has failed for certain.
    Failed(u64),
    /// A table is about to be created, or was; about to be dropped, or was.
    Creating(u64),
    Created(u64),
    Dropping(u64),
    Dropped(u64),
    /// The client has closed its database.
    Closed,
    /// Something was answered that is never right.
    Wrong(String),
}

impl Line {
    /// Writes it down. The process that listens may have gone, and then nobody cares.
    pub(crate) fn tell(&self) {
        let text = match self {
            Self::Open => "open\n".to_owned(),
            Self::Begin(id) => format!("begin {id}\n"),
            Self::Done(id, found) => format!("done {id} {found}\n"),
            Self::Failed(id) => format!("failed {id}\n"),
            Self::Creating(id) => format!("creating {id}\n"),
            Self::Created(id) => format!("created {id}\n"),
            Self::Dropping(id) => format!("dropping {id}\n"),
            Self::Dropped(id) => format!("dropped {id}\n"),
            Self::Closed => "closed\n".to_owned(),
            Self::Wrong(what) => format!("wrong {}\n", what.replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Of a line without its end.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let id = || rest.parse().ok();
        Some(match word {
            "open" => Self::Open,
            "begin" => Self::Begin(id()?),
            "done" => {
                let (id, found) = rest.split_once(' ').unwrap_or((rest, ""));
                Self::Done(id.parse().ok()?, found.to_owned())
            }
            "failed" => Self::Failed(id()?),
            "creating" => Self::Creating(id()?),
            "created" => Self::Created(id()?),
            "dropping" => Self::Dropping(id()?),
            "dropped" => Self::Dropped(id()?),
            "closed" => Self::Closed,
            "wrong" => Self::Wrong(rest.to_owned()),
            _ => return None,
        })
    }
}

/// All that was told of a directory, in the order in which it was written.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) lines: Vec<Line>,
    /// What must be there from now on: transactions.
    pub(crate) present: BTreeSet<u64>,
    /// And those that must never be.
    pub(crate) absent: BTreeSet<u64>,
    /// Tables that have to be there or not; others may.
    pub(crate) tables: BTreeMap<u64, bool>,
}

impl Ledger {
    /// Adds what one client told. `waits`: it was answered only what was durable, or has closed its database.
    pub(crate) fn add(&mut self, lines: Vec<Line>, waits: bool) {
        for line in &lines {
            match line {
                Line::Done(id, _) if waits => {
                    self.present.insert(*id);
                }
                Line::Failed(id) => {
                    self.absent.insert(*id);
                }
                Line::Creating(id) | Line::Dropping(id) => {
                    self.tables.remove(id);
                }
                Line::Created(id) => {
                    self.tables.insert(*id, true);
                }
                Line::Dropped(id) => {
                    self.tables.insert(*id, false);
                }
                _ => {}
            }
        }
        self.lines.extend(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for (text, line) in [
            ("begin 7", Line::Begin(7)),
            ("done 7 r1=0 w2=5", Line::Done(7, "r1=0 w2=5".into())),
            ("done 8 ", Line::Done(8, String::new())),
            ("dropped 3", Line::Dropped(3)),
        ] {
            assert_eq!(Line::parse(text), Some(line));
        }
        assert_eq!(Line::parse("done x"), None);
        assert_eq!(Line::parse("begun 7"), None);
    }
}
