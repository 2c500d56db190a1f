//! Connections that hear nothing: where their workers go, and come from.

use polychron_base::clock::Duration;
use polychron_engine::{Error, Protocol};
use sqlparser::ast;

use crate::connection::Connection;
use crate::error::SqlError;
use crate::parse::{self, Command};
use crate::session::{KeptBecause, Parking};

/// Where a connection's workers come from. A connection has one as long as it runs statements or holds a transaction that is not parked.
pub trait Workers<W>: Send + Sync {
    /// A worker for a connection.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`], and whatever else there is none for.
    fn take(&self) -> Result<W, Error>;

    /// Takes a worker back whose connection has nothing to do.
    fn give_back(&self, worker: Box<W>);
}

/// Workers that are made when they are needed, and end when they are not.
impl<P: Protocol> Workers<P::Driven> for std::sync::Arc<P> {
    fn take(&self) -> Result<P::Driven, Error> {
        self.worker().map(Into::into)
    }

    fn give_back(&self, worker: Box<P::Driven>) {
        drop(worker);
    }
}

impl<P: Protocol> Connection<P> {
    /// Parks the transaction that the client holds, whether or not it was idle for `park_after`: what it has of the engine ends, and its worker is given back. The next
    /// statement has it run again in the thread where it comes, and fails with [`SqlState::SERIALIZATION_FAILURE`](crate::SqlState::SERIALIZATION_FAILURE) where something else is answered. Without a transaction the worker alone is
    /// given back.
    pub fn park(&mut self) -> Parking {
        if self.is_copying {
            return Parking::Kept(KeptBecause::Copying);
        }
        self.session.park()
    }

    /// As [`Connection::park`], where the transaction has heard nothing for `park_after`. For whoever has many connections, to be called now and then.
    pub fn park_idle(&mut self) -> Parking {
        let is_idle = match (self.session.idle_for(), self.session.park_after) {
            (Some(idle), Some(park_after)) => idle >= park_after,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if is_idle { self.park() } else { Parking::Kept(KeptBecause::NotIdle) }
    }

    /// After how long a silence transactions are parked; `None`: never.
    pub fn park_after(&self) -> Option<Duration> {
        self.session.park_after
    }

    /// After how long a silence the transaction that the client holds ends (`idle_in_transaction_session_timeout`); `None`: never.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.session.idle_timeout
    }

    /// How long the transaction that the client holds has heard nothing, if it holds one.
    pub fn idle_for(&self) -> Option<Duration> {
        self.session.idle_for()
    }

    /// A text comes: a transaction that is parked is run again, unless the text only rolls it back.
    pub(crate) fn wake(&mut self, text: &str) -> Result<(), SqlError> {
        let is_parked = self.session.wake()?;
        if !is_parked || rolls_back(text) {
            return Ok(());
        }
        let (slot, zone) = (self.slot.clone(), &self.zone);
        self.session.unpark(&slot, zone)
    }
}

/// Whether a text begins with a rollback of the transaction.
fn rolls_back(text: &str) -> bool {
    let commands = parse::commands(text).unwrap_or_default();
    matches!(commands.first(), Some(Command::Sql(ast::Statement::Rollback { savepoint: None, .. })))
}
