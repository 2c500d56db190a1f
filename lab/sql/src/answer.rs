//! What systems answer to statements.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polychron_engine::{Common, Interactive, Protocol};
use polychron_sql::{Connection, Datum, Rows, SqlDatabase, SqlError};

use crate::suites::{Value, inlined};

/// What a system answers to a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has succeeded.
    Done {
        /// How many rows it has answered or changed.
        count: u64,
        /// The rows; NULL is `None`.
        rows: Vec<Vec<Option<String>>>,
    },
    /// It has failed.
    Failed {
        /// The code of five characters.
        code: String,
        /// The first line.
        message: String,
    },
}

impl Answer {
    /// The code, if it has failed.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Done { .. } => None,
            Self::Failed { code, .. } => Some(code),
        }
    }

    /// The rows in an order that says nothing; none of a failure.
    pub fn sorted_rows(&self) -> Vec<Vec<Option<String>>> {
        match self {
            Self::Done { rows, .. } => {
                let mut rows = rows.clone();
                rows.sort_unstable();
                rows
            }
            Self::Failed { .. } => Vec::new(),
        }
    }

    /// The one value of the first row.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Done { rows, .. } => rows.first()?.first()?.as_deref(),
            Self::Failed { .. } => None,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { code, message } => write!(out, "ERROR {code}: {message}"),
            Self::Done { count, rows } => {
                write!(out, "{count}")?;
                rows.iter().take(30).try_for_each(|row| {
                    let values: Vec<_> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
                    write!(out, "\n    {}", values.join("|"))
                })
            }
        }
    }
}

/// What stands in front of a statement that is prepared; its parameters stand behind it, each behind a control character.
const PREPARED: &str = "PREPARED ";

/// The code of a statement that panics.
const PANIC: &str = "panic";

/// What runs statements.
pub trait System {
    /// Runs one statement.
    fn run(&mut self, text: &str) -> Answer;

    /// Runs one statement with parameters.
    fn ask(&mut self, text: &str, values: &[Value]) -> Answer {
        self.run(&inlined(text, values))
    }

    /// Parks the transaction that is held, where the system has that.
    fn park(&mut self) {}

    /// Prepares a statement and runs it, with literals in quotes as its parameters.
    fn run_prepared(&mut self, text: &str, parameters: &[String]) -> Answer;
}

/// A database of a protocol.
pub struct Ours<P: Protocol<Worker: Interactive>> {
    connection: Connection<P>,
}

impl<P: Protocol<Worker: Interactive>> fmt::Debug for Ours<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(P::NAME)
    }
}

impl<P: Protocol<Worker: Interactive>> Ours<P> {
    /// A connection to an empty database.
    ///
    /// # Panics
    /// When the protocol cannot be opened with its defaults.
    pub fn new() -> Self {
        Self::several(1).remove(0)
    }

    /// So many connections to one empty database.
    ///
    /// # Panics
    /// As [`Ours::new`].
    pub fn several(count: usize) -> Vec<Self> {
        let protocol = P::open(P::Options::default(), Common::default()).expect("the defaults are valid");
        let database: Arc<SqlDatabase<P>> = SqlDatabase::open(protocol);
        let connect = || Connection::open(&database).expect("there are more workers than connections");
        (0..count).map(|_| Self { connection: connect() }).collect()
    }
}

impl<P: Protocol<Worker: Interactive>> Default for Ours<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Protocol<Worker: Interactive>> System for Ours<P> {
    fn run(&mut self, text: &str) -> Answer {
        if let Some((text, parameters)) = text.strip_prefix(PREPARED).and_then(|it| it.split_once('\u{1}')) {
            let parameters: Vec<_> = parameters.split('\u{1}').map(str::to_owned).collect();
            return self.run_prepared(text, &parameters);
        }
        guarded(|| {
            if let Some((text, data)) = text.split_once("\n<<\n") {
                let mut copy = self.connection.copy_in(text)?;
                copy.write(data.as_bytes())?;
                return Ok(Answer::Done { count: copy.finish()?, rows: Vec::new() });
            }
            let outcome = self.connection.execute(text, &[])?;
            // PostgreSQL's clients read the count there.
            let count = outcome.tag.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
            Ok(Answer::Done { count, rows: outcome.texts().collect() })
        })
    }

    fn park(&mut self) {
        self.connection.park();
    }

    fn run_prepared(&mut self, text: &str, parameters: &[String]) -> Answer {
        let plain = |literal: &String| literal[1..literal.len() - 1].replace("''", "'");
        let texts: Vec<_> = parameters.iter().map(plain).collect();
        let values: Vec<_> = texts.iter().map(|it| Datum::Text(it)).collect();
        guarded(|| {
            let mut prepared = self.connection.prepare(text)?;
            Ok(done(&self.connection.answer_prepared(&mut prepared, &values)?))
        })
    }

    /// The text is bound once, as those of programs are.
    fn ask(&mut self, text: &str, values: &[Value]) -> Answer {
        let datum = |value| match value {
            &Value::Int(value) => Datum::Int(value),
            Value::Text(value) => Datum::Text(value),
        };
        let values: Vec<_> = values.iter().map(datum).collect();
        guarded(|| Ok(done(&self.connection.answer(text, &values)?)))
    }
}

fn done(rows: &Rows) -> Answer {
    let width = rows.columns().len();
    let texts = rows.iter().map(|row| (0..width).map(|at| row.text(at)).collect());
    Answer::Done { count: rows.count(), rows: texts.collect() }
}

/// What a statement answers. None panics: that is an answer of its own, so that what leads there is shrunk as other differences are.
fn guarded(run: impl FnOnce() -> Result<Answer, SqlError>) -> Answer {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Answer::Failed { code: error.state().code().into(), message: error.message().into() },
        Err(_) => Answer::Failed { code: PANIC.into(), message: "a panic".into() },
    }
}
