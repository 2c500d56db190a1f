//! Statements that begin and end transactions, and what is set for one.

use sqlparser::ast::{self, TransactionAccessMode, TransactionIsolationLevel, TransactionMode};

use crate::bind::folded;
use crate::error::SqlError;
use crate::session_functions::SessionCalls;

/// What a transaction is begun with. Each isolation level is accepted, and serializable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    /// `None`: nothing is said.
    pub(crate) is_read_only: Option<bool>,
    /// At REPEATABLE READ it reads a snapshot until it changes something.
    pub(crate) is_repeatable: Option<bool>,
}

/// A statement about the transaction itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Begin {
        modes: Modes,
        tag: &'static str,
    },
    Commit {
        chain: bool,
    },
    RollBack {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollBackTo(String),
    SetTransaction(Modes),
    /// What transactions begin with that say nothing.
    SetSession(Modes),
    Show(String),
    /// Calls that change what holds for the session or the server.
    Ask(SessionCalls),
}

impl Control {
    /// The statement, if it is of this kind.
    ///
    /// # Errors
    /// It is, in a form that PostgreSQL has not, or that is missing.
    pub(crate) fn of(statement: &ast::Statement) -> Result<Option<Self>, SqlError> {
        use ast::Statement as S;
        Ok(Some(match statement {
            S::StartTransaction { modes, begin, modifier: None, statements, exception: None, .. }
                if statements.is_empty() =>
            {
                Self::Begin { modes: modes_of(modes), tag: if *begin { "BEGIN" } else { "START TRANSACTION" } }
            }
            S::Commit { chain, modifier: None, .. } => Self::Commit { chain: *chain },
            S::Rollback { chain, savepoint: None } => Self::RollBack { chain: *chain },
            S::Rollback { savepoint: Some(name), .. } => Self::RollBackTo(folded(name)),
            S::Savepoint { name } => Self::Savepoint(folded(name)),
            S::ReleaseSavepoint { name } => Self::Release(folded(name)),
            S::Set(ast::Set::SetTransaction { modes, snapshot: None, session: false }) => {
                Self::SetTransaction(modes_of(modes))
            }
            S::Set(ast::Set::SetTransaction { modes, snapshot: None, session: true }) => {
                Self::SetSession(modes_of(modes))
            }
            S::ShowVariable { variable } => {
                let words: Vec<_> = variable.iter().map(folded).collect();
                match words.join("_").as_str() {
                    "transaction_isolation_level" => Self::Show("transaction_isolation".to_owned()),
                    "time_zone" => Self::Show("timezone".to_owned()),
                    _ => Self::Show(words.join(".")),
                }
            }
            S::Query(query) => match SessionCalls::all(query) {
                Some(calls) => Self::Ask(calls),
                None => return Ok(None),
            },
            S::StartTransaction { .. } | S::Commit { .. } | S::Set(ast::Set::SetTransaction { .. }) => {
                return Err(SqlError::unsupported(format!("the statement {statement}")));
            }
            _ => return Ok(None),
        }))
    }
}

fn modes_of(modes: &[TransactionMode]) -> Modes {
    let mut said = Modes::default();
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(access) => said.is_read_only = Some(*access == TransactionAccessMode::ReadOnly),
            TransactionMode::IsolationLevel(level) => {
                said.is_repeatable = Some(*level == TransactionIsolationLevel::RepeatableRead);
            }
        }
    }
    said
}
