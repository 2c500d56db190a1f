//! What transactions did: the input of the [checker](crate::checker).
//!
//! A history knows which version each read saw, because the recorder writes a unique number into each row it writes, and
//! which version each write replaced, because it looks at it in the same transaction. `docs/checker.md` tells the rest.

mod interleave;
pub mod lines;
mod log;
mod questions;
mod recorded;
mod rows;
mod script;
mod threads;

pub use interleave::{find_anomaly, find_skew, interleave};
pub use log::{Log, Sequence};
pub use recorded::Recorded;
pub use rows::{Owner, Tracked};
pub use script::{Mix, Pair, Script, Tables};
pub use threads::{Beside, Round, run_round, run_round_beside, run_round_until};

use std::fmt;

/// Protocols whose `read_one` takes its place behind the writer of what it read, wherever in the past that is.
const PAST_READS: &[&str] = &["cicada"];

/// Stores that cannot undo what was written.
const UNDOES_NOTHING: &[&str] = &["key-value"];

/// What a protocol does not promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leeway {
    /// Snapshots may miss what their session has committed: no protocol's by default, but an option may say so.
    pub stale_snapshots: bool,
    /// Reads outside of transactions may be of the past.
    pub past_reads: bool,
    /// What was written cannot be undone; to ask for that is refused.
    pub undoes_nothing: bool,
    /// The log refuses some transactions.
    pub refusing_log: bool,
}

impl Leeway {
    /// That of the protocol of this name.
    pub fn of(name: &str) -> Self {
        Self {
            stale_snapshots: false,
            past_reads: PAST_READS.contains(&name),
            undoes_nothing: UNDOES_NOTHING.contains(&name),
            refusing_log: false,
        }
    }
}

/// A row's place: its table and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The table's id.
    pub table: u32,
    /// The primary key.
    pub key: u64,
}

impl fmt::Display for Item {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "key {} of table {}", self.key, self.table)
    }
}

/// The unique number of a row's state: who wrote it, and which of the writer's writes it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    const WRITE_BITS: u32 = 16;
    const BESIDE_TEXT: u64 = 1 << (Self::WRITE_BITS - 1);

    /// The version of an attempt's write. Writes beyond 32,768 of one attempt would not be unique.
    pub fn new(attempt: u64, write: u64) -> Self {
        assert!(write < Self::BESIDE_TEXT, "an attempt writes at most 32768 times");
        Self(attempt << Self::WRITE_BITS | write)
    }

    /// The same of a write that leaves the row's text as it was.
    #[must_use]
    pub fn beside_text(self) -> Self {
        Self(self.0 | Self::BESIDE_TEXT)
    }

    /// Whether the row's text is an earlier version's.
    pub fn is_beside_text(self) -> bool {
        self.0 & Self::BESIDE_TEXT != 0
    }

    /// The id of the attempt that wrote it.
    pub fn attempt(self) -> u64 {
        self.0 >> Self::WRITE_BITS
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", Name(self.attempt()), self.0 & (Self::BESIDE_TEXT - 1))
    }
}

/// An attempt's id as people read it: of recorded ones, the thread and its count of attempts.
#[derive(Clone, Copy, Debug)]
pub struct Name(pub u64);

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (thread, number) = (self.0 >> Log::THREAD_SHIFT, self.0 & ((1 << Log::THREAD_SHIFT) - 1));
        if thread == 0 { write!(out, "T{number}") } else { write!(out, "T{thread}.{number}") }
    }
}

/// What a write found where it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: the key was absent.
    Absent,
    /// This version, read in the same transaction.
    Version(Version),
    /// It did not look: a blind write.
    Unknown,
    /// It did not look, but it came right behind this version, or was the first, as others saw.
    Follows(Option<Version>),
    /// It did not look, but it came behind this version, or behind nothing; what else did, no client saw.
    Behind(Option<Version>),
}

/// Attributes of a row.
pub const ATTRIBUTES: usize = 3;

/// What a row has in its first two secondary indexes, as numbers in the order of the index, where NULL is 0; and behind these its *mark*,
/// from which all columns follow that restrictions look at.
pub type Attributes = [u32; ATTRIBUTES];

/// A set of marks. A restriction is one, whatever it compares with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(pub u32);

impl Marks {
    /// Any mark.
    pub const ALL: Self = Self(u32::MAX);

    /// Those that are not in this set.
    #[must_use]
    pub fn others(self) -> Self {
        Self(!self.0)
    }

    /// Whether a row with these attributes has one of the marks.
    pub fn include(self, attributes: &Attributes) -> bool {
        self.0 >> attributes[ATTRIBUTES - 1] & 1 != 0
    }
}

/// At which rows of a range a transaction looked so that it knows what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// The row of this key alone: what an answer says of it, without the row itself, is that it does not lie in the range.
    Only(u64),
    /// All but the rows of these keys, which were seen without their versions.
    Except(Vec<u64>),
}

/// A position in an index: the indexed value, then the primary key. In the primary index both are the key.
pub type Position = (u64, u64);

/// Rows read through an index. The range is what was looked at: where a limit stopped the scan, it ends with the last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRead {
    /// The table's id.
    pub table: u32,
    /// 0 is the primary index.
    pub index: u8,
    /// The first position, included.
    pub lower: Position,
    /// The last position, included.
    pub upper: Position,
    /// From the upper end down.
    pub backward: bool,
    /// Which rows were looked at.
    pub which: Which,
    /// Only rows with these marks belong to the range.
    pub marks: Marks,
    /// The rows, in the order in which they came.
    pub rows: Vec<(u64, Version)>,
}

impl RangeRead {
    /// Where a row with these attributes stands in the index.
    pub fn position(index: u8, key: u64, attributes: &Attributes) -> Position {
        if index == 0 { (key, key) } else { (attributes[usize::from(index) - 1].into(), key) }
    }

    /// Whether the row of a key was looked at, if it lies in the range.
    pub fn looks_at(&self, key: u64) -> bool {
        match &self.which {
            Which::All => true,
            Which::Only(only) => *only == key,
            Which::Except(keys) => !keys.contains(&key),
        }
    }

    /// Whether a row with these attributes lies in the range.
    pub fn covers(&self, key: u64, attributes: &Attributes) -> bool {
        let position = Self::position(self.index, key, attributes);
        self.looks_at(key) && self.marks.include(attributes) && self.lower <= position && position <= self.upper
    }
}

/// One operation and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A lookup; `None` is an absent key.
    Read {
        /// The row.
        item: Item,
        /// What was seen.
        seen: Option<Version>,
    },
    /// A range.
    Range(Box<RangeRead>),
    /// Some row of a range was there; which state of it, was not told.
    Present(Box<RangeRead>),
    /// An insertion, update or upsert.
    Write {
        /// The row.
        item: Item,
        /// The state that was written.
        version: Version,
        /// The state before.
        replaced: Replaced,
        /// The secondary keys that were written.
        attributes: Attributes,
    },
    /// A deletion.
    Delete {
        /// The row.
        item: Item,
        /// The state before.
        replaced: Replaced,
    },
    /// A savepoint.
    Savepoint,
    /// Writes since the savepoint of this number, counted from 0, are undone.
    RollBackTo(usize),
    /// The row's columns do not belong to one version.
    Torn {
        /// The row.
        item: Item,
    },
    /// An answer that contradicts an answer just before.
    Contradiction {
        /// The row.
        item: Item,
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { item, seen: Some(version) } => write!(out, "read {item}: {version}"),
            Self::Read { item, seen: None } => write!(out, "read {item}: absent"),
            Self::Range(range) => write!(out, "{range}"),
            Self::Present(range) => {
                let RangeRead { table, index, lower, .. } = &**range;
                match index {
                    0 => write!(out, "was told that key {} of table {table} is there", lower.0),
                    _ => write!(out, "was told that index {index} of table {table} has {}", lower.0),
                }
            }
            Self::Write { item, version, replaced, .. } => match replaced {
                Replaced::Absent | Replaced::Follows(None) => write!(out, "inserted {item}: {version}"),
                Replaced::Version(before) | Replaced::Follows(Some(before)) => {
                    write!(out, "wrote {item}: {version} over {before}")
                }
                Replaced::Unknown | Replaced::Behind(_) => write!(out, "wrote {item}: {version}, without looking"),
            },
            Self::Delete { item, replaced: Replaced::Version(before) } => write!(out, "deleted {item}: {before}"),
            Self::Delete { item, .. } => write!(out, "deleted {item}"),
            Self::Savepoint => out.write_str("savepoint"),
            Self::RollBackTo(number) => write!(out, "rolled back to savepoint {number}"),
            Self::Torn { item } => write!(out, "got a torn row at {item}"),
            Self::Contradiction { item, what } => write!(out, "{item}: {what}"),
        }
    }
}

impl fmt::Display for RangeRead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, index, lower, upper, marks, .. } = self;
        let of_marks = if *marks == Marks::ALL { String::new() } else { format!(" with marks {:#b}", marks.0) };
        if let Which::Only(key) = self.which {
            let (lower, upper) = (lower.0, upper.0);
            return write!(
                out,
                "was told that key {key} of table {table} is not within {lower} to {upper} of index {index}{of_marks}"
            );
        }
        let direction = if self.backward { " backward" } else { "" }.to_owned() + &of_marks;
        match index {
            0 => write!(out, "scanned keys {} to {} of table {table}{direction}: ", lower.0, upper.0)?,
            _ => {
                write!(out, "scanned index {index} of table {table} from {}", lower.0)?;
                if lower.1 > 0 {
                    write!(out, " (key {})", lower.1)?;
                }
                write!(out, " to {}", upper.0)?;
                if upper.1 < u64::MAX {
                    write!(out, " (key {})", upper.1)?;
                }
                write!(out, "{direction}: ")?;
            }
        }
        if let Which::Except(keys) = &self.which {
            write!(out, "{keys:?} and ")?;
        }
        let rows: Vec<_> = self.rows.iter().map(|(key, version)| format!("{key} {version}")).collect();
        if rows.is_empty() { out.write_str("nothing") } else { write!(out, "[{}]", rows.join(", ")) }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Committed,
    /// The engine aborted it because of a conflict.
    Aborted,
    /// It only found out what the transaction writes: the engine discarded it, without any conflict, and ran the procedure again.
    Reconnaissance,
    /// The procedure wanted it undone, failed, or panicked; its reads are answers all the same.
    RolledBack,
    /// The commit was refused for another reason than a conflict; nothing is promised of its reads.
    Refused,
}

impl Outcome {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Reconnaissance => "found out what to write",
            Self::RolledBack => "rolled back",
            Self::Refused => "refused",
        }
    }
}

/// One attempt to run a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Unique in the history.
    pub id: u64,
    /// Who ran it.
    pub thread: u32,
    /// When it was called for: before the engine knew of it.
    pub begin: u64,
    /// When its end was known: after the engine had told.
    pub end: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it read a snapshot, which may be of the past.
    pub snapshot: bool,
    /// By which of its thread's sessions. A snapshot has all writes whose commits its session was told of.
    pub session: u32,
    /// What it did, as positions in [`History::operations`].
    pub operations: std::ops::Range<usize>,
}

/// Attempts and what they did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In any order.
    pub attempts: Vec<Attempt>,
    /// The operations of all, attempt by attempt.
    pub operations: Vec<Operation>,
}

impl History {
    /// What an attempt did.
    pub fn operations_of(&self, attempt: &Attempt) -> &[Operation] {
        &self.operations[attempt.operations.clone()]
    }

    /// Adds an attempt with its operations.
    pub fn push(&mut self, attempt: Attempt, operations: impl IntoIterator<Item = Operation>) {
        let start = self.operations.len();
        self.operations.extend(operations);
        self.attempts.push(Attempt { operations: start..self.operations.len(), ..attempt });
    }

    /// Adds another history, whose attempts have other ids.
    pub fn append(&mut self, mut other: Self) {
        let shift = self.operations.len();
        self.operations.append(&mut other.operations);
        self.attempts.extend(other.attempts.into_iter().map(|attempt| {
            let std::ops::Range { start, end } = attempt.operations;
            Attempt { operations: start + shift..end + shift, ..attempt }
        }));
    }

    /// The attempt's operations in words, separated by commas; long ones are cut.
    pub(crate) fn describe(&self, attempt: &Attempt) -> String {
        const MOST: usize = 24;
        let operations = self.operations_of(attempt);
        let mut words: Vec<String> = operations.iter().take(MOST).map(Operation::to_string).collect();
        if operations.len() > MOST {
            words.push(format!("and {} more", operations.len() - MOST));
        }
        let kind = if attempt.snapshot { ", on a snapshot" } else { "" };
        format!("{} ({}{kind}): {}", Name(attempt.id), attempt.outcome.name(), words.join(", "))
    }

    /// How many attempts ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.attempts.iter().filter(|attempt| attempt.outcome == outcome).count()
    }

    /// How many attempts committed.
    pub fn commits(&self) -> usize {
        self.count(Outcome::Committed)
    }
}
