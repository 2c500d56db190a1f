//! The names of what can go wrong, after Adya (*Weak Consistency*, MIT 1999).

use std::fmt;

use crate::history::Item;

/// What is wrong with a history, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A row that no client wrote, or a mixture of two.
    Garbage,
    /// A transaction does not see its own writes, or is told two things that contradict each other.
    Internal,
    /// Writes of two transactions are ordered one way at one place and the other way at another.
    G0,
    /// A write of a transaction that did not commit, or one that it undid, was read.
    G1a,
    /// A state was read that its writer replaced before it committed.
    G1b,
    /// Transactions depend on each other's writes in a cycle.
    G1c,
    /// Two transactions replaced the same state of a row, and one did not see what the other wrote.
    LostUpdate,
    /// A cycle with one anti-dependency: a transaction saw part of another one's effects.
    GSingle,
    /// Readers see two writes in different orders: a cycle whose anti-dependencies are never next to each other.
    LongFork,
    /// A cycle of anti-dependencies on rows: write skew.
    G2Item,
    /// A cycle with anti-dependencies on ranges: phantoms.
    G2,
}

impl Anomaly {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Internal => "internal",
            Self::G0 => "G0 (write cycle)",
            Self::G1a => "G1a (aborted read)",
            Self::G1b => "G1b (intermediate read)",
            Self::G1c => "G1c (circular information flow)",
            Self::LostUpdate => "lost update",
            Self::GSingle => "G-single (read skew)",
            Self::LongFork => "long fork",
            Self::G2Item => "G2-item (write skew)",
            Self::G2 => "G2 (phantom)",
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// An anomaly that shows in one attempt.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) anomaly: Anomaly,
    pub(super) attempt: u64,
    pub(super) item: Item,
    pub(super) what: String,
}

/// An anomaly, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its name.
    pub anomaly: Anomaly,
    /// Whether it takes real time to see it: without it, the transactions have a serial order.
    pub real_time: bool,
    /// The ids of the attempts that are part of it, in the order of the cycle.
    pub attempts: Vec<u64>,
    /// What happened: one line for each step of the cycle.
    pub story: Vec<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.anomaly)?;
        if self.real_time {
            out.write_str(", in real time")?;
        }
        self.story.iter().try_for_each(|line| write!(out, "\n  {line}"))
    }
}
