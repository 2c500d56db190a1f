//! Histories from outside: a line of JSON for each transaction. `docs/checker.md` describes it.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Attempt, History, Item, Operation, Outcome, Replaced, Version};

/// A line that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadLine {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// One transaction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    process: u32,
    #[serde(default)]
    begin: u64,
    #[serde(default = "forever")]
    end: u64,
    #[serde(default)]
    outcome: End,
    #[serde(default)]
    snapshot: bool,
    operations: Vec<Step>,
}

fn forever() -> u64 {
    u64::MAX
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum End {
    #[default]
    Committed,
    Aborted,
    /// No client knows: it committed if some client saw one of its writes.
    Unknown,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Step {
    /// Adds a value at the end of a list.
    Append { key: u64, value: u64 },
    /// Reads a list.
    List { key: u64, values: Vec<u64> },
    /// Reads a row whose version shows; without one, it was absent.
    Read { key: u64, version: Option<u64> },
    /// Writes a row over another version; over nothing where that is missing.
    Write { key: u64, version: u64, over: Option<u64> },
    /// Writes a row without looking.
    Put { key: u64, version: u64 },
    /// Deletes a row.
    Delete { key: u64, over: u64 },
}

/// The values of a key, each written once, and what is known of their order.
#[derive(Default)]
struct Values {
    /// Who wrote each: the transaction, counted from 0, and its version.
    writers: HashMap<u64, (usize, Version)>,
    /// The longest list that was read.
    longest: Vec<u64>,
}

/// Reads a history.
///
/// # Errors
/// The first line that is no transaction, or writes a value twice.
pub fn parse(text: &str) -> Result<History, BadLine> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |error: serde_json::Error| BadLine { line: number + 1, what: error.to_string() };
        lines.push((number + 1, serde_json::from_str::<Line>(line).map_err(bad)?));
    }
    let keys = values(&lines)?;
    let seen = seen_transactions(&lines, &keys);
    let committed: Vec<bool> = (lines.iter().enumerate())
        .map(|(at, (_, line))| line.outcome == End::Committed || (line.outcome == End::Unknown && seen[at]))
        .collect();
    let mut history = History::default();
    for (at, (_, line)) in lines.iter().enumerate() {
        let operations = Converter { at, keys: &keys, committed: &committed }.operations(line);
        let attempt = Attempt {
            id: at as u64 + 1,
            thread: line.process,
            begin: line.begin,
            // A client that was never answered may have been any time.
            end: if line.outcome == End::Unknown { u64::MAX } else { line.end },
            outcome: if committed[at] { Outcome::Committed } else { Outcome::Refused },
            snapshot: line.snapshot,
            session: 0,
            operations: 0..0,
        };
        history.push(attempt, operations);
    }
    Ok(history)
}

/// Who wrote what, and the order that reads of lists show.
fn values(lines: &[(usize, Line)]) -> Result<HashMap<u64, Values>, BadLine> {
    let mut keys: HashMap<u64, Values> = HashMap::new();
    for (at, (number, line)) in lines.iter().enumerate() {
        let mut writes = 0;
        for step in &line.operations {
            match step {
                Step::Append { key, value }
                | Step::Write { key, version: value, .. }
                | Step::Put { key, version: value } => {
                    writes += 1;
                    if writes > MOST_WRITES {
                        let what = format!("a transaction writes more than {MOST_WRITES} times");
                        return Err(BadLine { line: *number, what });
                    }
                    let version = Version::new(at as u64 + 1, writes);
                    let before = keys.entry(*key).or_default().writers.insert(*value, (at, version));
                    if before.is_some() {
                        let what = format!("value {value} is written twice at key {key}");
                        return Err(BadLine { line: *number, what });
                    }
                }
                Step::List { key, values } => {
                    let longest = &mut keys.entry(*key).or_default().longest;
                    if values.len() > longest.len() {
                        longest.clone_from(values);
                    }
                }
                Step::Read { .. } | Step::Delete { .. } => {}
            }
        }
    }
    Ok(keys)
}

/// As many as a version can distinguish.
const MOST_WRITES: u64 = 65_000;

/// Whose writes another client saw.
fn seen_transactions(lines: &[(usize, Line)], keys: &HashMap<u64, Values>) -> Vec<bool> {
    let mut seen = vec![false; lines.len()];
    for (at, (_, line)) in lines.iter().enumerate().filter(|(_, (_, line))| line.outcome == End::Committed) {
        for step in &line.operations {
            let (key, values): (_, Vec<u64>) = match step {
                Step::List { key, values } => (key, values.clone()),
                Step::Read { key, version } => (key, version.iter().copied().collect()),
                Step::Write { key, over, .. } => (key, over.iter().copied().collect()),
                Step::Delete { key, over } => (key, vec![*over]),
                Step::Append { .. } | Step::Put { .. } => continue,
            };
            let writers = keys.get(key).map(|known| &known.writers);
            for &(writer, _) in values.iter().filter_map(|value| writers?.get(value)) {
                seen[writer] |= writer != at;
            }
        }
    }
    seen
}

/// Makes operations of the steps of one transaction.
struct Converter<'a> {
    at: usize,
    keys: &'a HashMap<u64, Values>,
    committed: &'a [bool],
}

impl Converter<'_> {
    fn operations(&self, line: &Line) -> Vec<Operation> {
        let mut operations = Vec::new();
        for step in &line.operations {
            match step {
                Step::Append { key, value } => operations.push(self.append(*key, *value)),
                Step::List { key, values } => self.list(*key, values, &mut operations),
                Step::Read { key, version } => {
                    let seen = version.map(|value| self.version(*key, value));
                    operations.push(Operation::Read { item: item(*key), seen });
                }
                Step::Write { key, version, over } => {
                    let replaced = over.map_or(Replaced::Absent, |value| Replaced::Version(self.version(*key, value)));
                    operations.push(self.write(*key, *version, replaced));
                }
                Step::Put { key, version } => operations.push(self.write(*key, *version, Replaced::Unknown)),
                Step::Delete { key, over } => {
                    let replaced = Replaced::Version(self.version(*key, *over));
                    operations.push(Operation::Delete { item: item(*key), replaced });
                }
            }
        }
        operations
    }

    /// The version of a value; of one that no client wrote, a version that no client has.
    fn version(&self, key: u64, value: u64) -> Version {
        let writer = self.keys.get(&key).and_then(|known| known.writers.get(&value));
        writer.map_or(Version::new(self.committed.len() as u64 + 1, value % (MOST_WRITES + 1)), |&(_, version)| version)
    }

    fn write(&self, key: u64, value: u64, replaced: Replaced) -> Operation {
        Operation::Write {
            item: item(key),
            version: self.version(key, value),
            replaced,
            attributes: Default::default(),
        }
    }

    /// An append: over the value before it in the longest list, or behind the list where no client saw it.
    fn append(&self, key: u64, value: u64) -> Operation {
        let longest = self.keys.get(&key).map_or(&[][..], |known| &known.longest);
        let place = longest.iter().position(|&it| it == value);
        let mine = |value: &&u64| self.writer(key, **value).is_some_and(|writer| self.committed[writer]);
        let before = longest[..place.unwrap_or(longest.len())].iter().rev().find(mine);
        let before = before.map(|&value| self.version(key, value));
        let replaced = match (place, before) {
            (Some(_), before) => Replaced::Follows(before),
            (None, before) => Replaced::Behind(before),
        };
        self.write(key, value, replaced)
    }

    fn writer(&self, key: u64, value: u64) -> Option<usize> {
        self.keys.get(&key)?.writers.get(&value).map(|&(writer, _)| writer)
    }

    /// A list: its last value is what was seen; values of others that did not commit are told of, too.
    fn list(&self, key: u64, values: &[u64], operations: &mut Vec<Operation>) {
        let longest = self.keys.get(&key).map_or(&[][..], |known| &known.longest);
        if !longest.starts_with(values) {
            let what = "one list that was read there is no beginning of another";
            operations.push(Operation::Contradiction { item: item(key), what });
        }
        let stray = |value: &u64| self.writer(key, *value).is_none_or(|it| it != self.at && !self.committed[it]);
        for &value in values.iter().filter(|value| stray(value)) {
            operations.push(Operation::Read { item: item(key), seen: Some(self.version(key, value)) });
        }
        let last = values.iter().rev().find(|value| !stray(value)).map(|&value| self.version(key, value));
        operations.push(Operation::Read { item: item(key), seen: last });
    }
}

fn item(key: u64) -> Item {
    Item { table: 0, key }
}
