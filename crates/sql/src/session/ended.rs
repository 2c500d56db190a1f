//! What a transaction of statements ends with.

use polychron_engine::Error;

use crate::error::SqlError;
use crate::exec::Failure;

/// What a transaction of statements ends with.
pub(super) enum Ended {
    Sql(SqlError),
    Engine(Error),
}

impl Ended {
    pub(super) fn engine(&self) -> Option<&Error> {
        if let Self::Engine(error) = self { Some(error) } else { None }
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sql(error) => Self::Sql(error),
            Failure::Engine(error) => Self::Engine(error),
        }
    }
}
