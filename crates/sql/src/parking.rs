//! Connections that hear nothing: where their workers go, and come from.

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_engine::{Error, Protocol, limits};
use polychron_sync::atomic::{AtomicUsize, Ordering};
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

/// How many connections wait for workers.
#[derive(Debug, Default)]
pub(crate) struct Shortage(AtomicUsize);

/// How long a wait for a worker looks away.
const NAP: Duration = Duration::from_millis(1);

impl Shortage {
    fn is_there(&self) -> bool {
        // Relaxed: who waits looks again and again.
        self.0.load(Ordering::Relaxed) > 0
    }

    /// A worker, which is waited for so long where there is none.
    pub(crate) fn wait<W>(&self, longest: Duration, source: &dyn Workers<W>) -> Result<W, Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let clock = SystemClock::new();
        let begun = clock.now_ns();
        let taken = loop {
            match source.take() {
                Err(full @ Error::TooManyWorkers { .. }) => {
                    let waited = Duration::from_nanos(clock.now_ns().saturating_sub(begun));
                    let may_wait = if waited < longest { limits::check() } else { Err(full) };
                    if let Err(error) = may_wait {
                        break Err(error);
                    }
                    std::thread::sleep(NAP);
                }
                taken => break taken,
            }
        };
        self.0.fetch_sub(1, Ordering::Relaxed);
        taken
    }
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

    /// From now on a statement that finds no worker waits for one so long. Only for connections whose threads hold no other ones: those would wait for themselves.
    pub fn wait_for_workers(&mut self, longest: Duration) {
        self.session.worker_wait = Some((longest, self.database.shortage.clone()));
    }

    /// Whether another connection waits for a worker.
    pub fn is_worker_wanted(&self) -> bool {
        self.database.shortage.is_there()
    }

    /// Gives memory back that only makes the next statement cheaper, but for what is bound. For whoever has many connections that are silent.
    pub fn shrink(&mut self) {
        self.session.shrink();
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
