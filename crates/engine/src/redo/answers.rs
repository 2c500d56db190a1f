//! When answers leave.

use polychron_base::Error;

use super::{Durability, Journal, Ticket};
use crate::drive::discard;

/// Holds answers back until all that they depend on is durable, as a database wants it, or one of its handles. Where there is no journal nothing is held
/// back, and each call costs a branch.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    journal: Journal,
    /// In place of the database's.
    durability: Option<Durability>,
}

impl Answers {
    /// The answers of a database with this journal.
    pub fn new(journal: Journal) -> Self {
        Self { journal, durability: None }
    }

    /// The answers of a handle with another durability than the database has. Each handle decides whether its answers wait; the database decides how
    /// often flushes begin.
    #[must_use]
    pub fn with(&self, durability: Durability) -> Self {
        Self { journal: self.journal.clone(), durability: Some(durability) }
    }

    /// Whether there is no journal.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.journal.is_empty()
    }

    /// Whether answers wait for anything.
    pub fn holds(&self) -> bool {
        self.journal.holds(self.durability)
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Gives an answer when all up to its ticket is durable. The caller has given back what others wait for.
    ///
    /// # Errors
    /// [`Error::LogStopped`] in place of the answer: the transaction may be there or not when the database is opened again.
    #[inline]
    pub fn give<O, E: From<Error>>(&self, ticket: Ticket, answer: Result<O, E>) -> Result<O, E> {
        if ticket == Ticket::DONE { answer } else { self.give_late(ticket, answer) }
    }

    #[cold]
    fn give_late<O, E: From<Error>>(&self, ticket: Ticket, answer: Result<O, E>) -> Result<O, E> {
        match self.journal.wait_as(ticket, self.durability) {
            Ok(()) => answer,
            Err(stopped) => {
                discard(answer);
                Err(stopped.into())
            }
        }
    }

    /// As [`Answers::give`], of what depends on anything that was sealed so far.
    ///
    /// # Errors
    /// As there.
    pub fn give_behind_all<O, E: From<Error>>(&self, answer: Result<O, E>) -> Result<O, E> {
        self.give(self.journal.sealed(), answer)
    }
}
