//! The savepoints of a random transaction, and those of it and of others that are void.
use polychron_engine::{Error, Operations, Savepoint, Transaction};

/// What was returned to although it was void.
#[derive(Debug, thiserror::Error)]
#[error("a void savepoint was accepted")]
struct Accepted;

impl From<Accepted> for Error {
    fn from(error: Accepted) -> Self {
        Self::other(error)
    }
}

/// Savepoints that a transaction has, by their numbers, and void ones.
#[derive(Clone, Debug, Default)]
pub struct Savepoints {
    valid: Vec<Savepoint>,
    void: Vec<Savepoint>,
}

impl Savepoints {
    /// How many are valid.
    pub(crate) fn len(&self) -> usize {
        self.valid.len()
    }

    /// The valid one of this number.
    pub(crate) fn get(&self, number: usize) -> Option<Savepoint> {
        self.valid.get(number).copied()
    }

    /// One more is valid.
    pub(crate) fn push(&mut self, savepoint: Savepoint) {
        self.valid.push(savepoint);
    }

    /// The transaction was undone to the one of this number.
    pub(crate) fn undone_to(&mut self, number: usize) {
        self.void.extend(self.valid.drain(number + 1..));
    }

    /// The transaction has ended.
    pub(crate) fn ended(&mut self) {
        self.void.append(&mut self.valid);
    }

    /// Returns to one of the void ones, if there are any: it must be refused.
    pub(crate) fn try_void<T: Transaction>(&self, transaction: &mut T, number: usize) -> Result<(), Error> {
        let Some(&void) = self.void.iter().cycle().nth(number) else { return Ok(()) };
        match transaction.roll_back_to(void) {
            Err(Error::VoidSavepoint) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(Accepted.into()),
        }
    }
}
