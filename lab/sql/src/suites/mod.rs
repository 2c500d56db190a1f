//! Benchmarks as they are written for PostgreSQL: their tables, rows, transactions of single statements, and what must hold in the end.

mod smallbank;
mod tatp;
mod tpcc;
mod ycsb;

use crate::answer::{Answer, System};
use crate::draw::Draw;

pub use smallbank::SmallBank;
pub use tatp::Tatp;
pub use tpcc::Tpcc;
pub use ycsb::Ycsb;

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A text, or any other type's value as one.
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// A statement's text with values in the places of its parameters.
pub(crate) fn inlined(text: &str, values: &[Value]) -> String {
    // From the last one, so that `$1` is not found in `$10`.
    values.iter().enumerate().rev().fold(text.to_owned(), |text, (at, value)| {
        let literal = match value {
            Value::Int(value) => value.to_string(),
            Value::Text(value) => format!("'{}'", value.replace('\'', "''")),
        };
        text.replace(&format!("${}", at + 1), &literal)
    })
}

/// The values of a statement's parameters.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::suites::Value::from($value)),*] };
}
use values;

/// Why a transaction has ended before its COMMIT.
#[derive(Debug)]
pub enum Stop {
    /// A statement has failed.
    Failed(Answer),
    /// The benchmark rolls it back.
    RolledBack,
}

/// The rows of an answer.
pub type Rows = Vec<Vec<Option<String>>>;

/// Runs the statements of a transaction.
pub struct Steps<'s> {
    system: &'s mut dyn System,
    /// What was answered, where it is wanted.
    answers: Option<Vec<Answer>>,
}

impl std::fmt::Debug for Steps<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl Steps<'_> {
    /// Runs a statement, and answers with its rows and their count.
    fn run(&mut self, text: &str, values: &[Value]) -> Result<(u64, Rows), Stop> {
        let answer = self.system.ask(text, values);
        if let Some(answers) = &mut self.answers {
            answers.push(answer.clone());
        }
        match answer {
            Answer::Done { count, rows } => Ok((count, rows)),
            Answer::Failed { .. } => Err(Stop::Failed(answer)),
        }
    }

    /// The rows of a query.
    fn rows(&mut self, text: &str, values: &[Value]) -> Result<Rows, Stop> {
        self.run(text, values).map(|(_, rows)| rows)
    }

    /// The values of the only row, NULL as nothing.
    fn row(&mut self, text: &str, values: &[Value]) -> Result<Vec<String>, Stop> {
        let row = self.find(text, values)?;
        Ok(row.unwrap_or_else(|| panic!("no row: {}", inlined(text, values))))
    }

    /// The values of the only row, if there is one.
    fn find(&mut self, text: &str, values: &[Value]) -> Result<Option<Vec<String>>, Stop> {
        let rows = self.rows(text, values)?;
        assert!(rows.len() < 2, "several rows: {}", inlined(text, values));
        Ok(rows.into_iter().next().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()))
    }

    /// Changes rows, and answers how many.
    fn change(&mut self, text: &str, values: &[Value]) -> Result<u64, Stop> {
        self.run(text, values).map(|(count, _)| count)
    }
}

/// A benchmark. Its clients may run beside each other.
pub trait Suite: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The statements that make its tables.
    fn definitions(&self) -> Vec<String>;
    /// The statements that fill them.
    fn contents(&self, draw: &mut Draw) -> Vec<String>;
    /// Runs the statements of a drawn transaction, without BEGIN and COMMIT.
    ///
    /// # Errors
    /// A statement has failed, or the transaction is to be rolled back.
    fn transact(&self, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop>;
    /// Queries that answer no rows: what a row would say is wrong.
    fn conditions(&self) -> Vec<(&'static str, String)>;
    /// Whether a transaction may end with the error of this code.
    fn permits(&self, _code: &str) -> bool {
        false
    }
}

/// What has become of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// They have committed.
    pub committed: u64,
    /// The benchmark has rolled them back, or they have ended with an error that it permits.
    pub rolled_back: u64,
    /// They have conflicted, and were run again.
    pub conflicts: u64,
}

/// Makes the tables of a benchmark and fills them.
///
/// # Panics
/// When a statement fails.
pub fn load(suite: &dyn Suite, seed: u64, system: &mut dyn System) {
    let contents = suite.contents(&mut Draw::of(seed));
    for text in suite.definitions().iter().chain(&contents) {
        let answer = system.run(text);
        assert_eq!(answer.code(), None, "{}: {answer}", &text[..text.len().min(200)]);
    }
}

/// Runs so many transactions that a seed draws, each until it commits, and tells `answered` what each statement of one has answered that has ended.
///
/// # Panics
/// When a statement fails with an error that the benchmark does not permit.
pub fn run(
    suite: &dyn Suite,
    (seed, count): (u64, u64),
    system: &mut dyn System,
    mut answered: Option<&mut dyn FnMut(Vec<Answer>)>,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for number in 0..count {
        loop {
            let draw = &mut Draw::of(seed.wrapping_mul(1 << 32).wrapping_add(number));
            let mut steps = Steps { system: &mut *system, answers: answered.is_some().then(Vec::new) };
            let ended = attempt(suite, draw, &mut steps);
            let answers = steps.answers;
            match ended {
                Ok(()) => outcomes.committed += 1,
                Err(Stop::RolledBack) => outcomes.rolled_back += 1,
                Err(Stop::Failed(answer)) => match answer.code() {
                    Some("40001" | "40P01") => {
                        outcomes.conflicts += 1;
                        continue;
                    }
                    Some(code) if suite.permits(code) => outcomes.rolled_back += 1,
                    _ => panic!("{}, seed {seed}, transaction {number}: {answer}", suite.name()),
                },
            }
            if let (Some(answered), Some(answers)) = (&mut answered, answers) {
                answered(answers);
            }
            break;
        }
    }
    outcomes
}

fn attempt(suite: &dyn Suite, draw: &mut Draw, steps: &mut Steps<'_>) -> Result<(), Stop> {
    steps.run("BEGIN", &[])?;
    let ended = suite.transact(draw, steps).and_then(|()| steps.run("COMMIT", &[]).map(drop));
    if ended.is_err() {
        steps.run("ROLLBACK", &[])?;
    }
    ended
}

/// The conditions that do not hold, with the rows that say so.
pub fn broken(suite: &dyn Suite, system: &mut dyn System) -> Vec<String> {
    let answers = suite.conditions().into_iter().map(|(name, text)| (name, system.run(&text)));
    answers
        .filter(|(_, answer)| !matches!(answer, Answer::Done { rows, .. } if rows.is_empty()))
        .map(|(name, answer)| format!("{name}: {answer}"))
        .collect()
}

/// Letters.
fn letters(draw: &mut Draw, least: usize, most: usize) -> String {
    let length = draw.within(least, most);
    (0..length).map(|_| char::from(b'a' + draw.below(26) as u8)).collect()
}

/// INSERT statements with up to 100 rows each.
fn insertions(table: &str, rows: &[String]) -> Vec<String> {
    rows.chunks(100).map(|rows| format!("INSERT INTO {table} VALUES {}", rows.join(", "))).collect()
}
