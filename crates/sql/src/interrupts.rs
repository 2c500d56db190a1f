//! What ends a statement before it has ended by itself: its time, and other threads.
//!
//! A statement runs within the engine's limits. Operators look at them between pieces of their work; waits and retries look at them by themselves.
//! A connection without a time-out and without a handle has no limits, and its statements look at nothing.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polychron_base::clock::Duration;
use polychron_engine::Protocol;
use polychron_engine::limits::{Cancellation, Limits};

use crate::connection::Connection;
use crate::error::SqlError;
use crate::watch::Begun;

/// Ends the running statement of a connection, from any thread. Clones are the same handle.
#[derive(Clone, Default)]
pub struct CancelHandle(Arc<Mutex<Current>>);

/// What a handle calls off. A token goes from one statement to the next as long as nobody has used it.
#[derive(Default)]
struct Current {
    token: Cancellation,
    is_running: bool,
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CancelHandle").finish_non_exhaustive()
    }
}

impl CancelHandle {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the statement that runs with [`SqlState::QUERY_CANCELED`](crate::SqlState::QUERY_CANCELED), and tells whether one does. It has no effect on later ones, nor on
    /// one that has committed.
    pub fn cancel(&self) -> bool {
        let current = self.current();
        if current.is_running {
            current.token.cancel();
        }
        current.is_running
    }
}

/// What can end the statements of a connection.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    pub(crate) timeout: Option<Duration>,
    /// There is one once it was asked for.
    handle: Option<CancelHandle>,
}

/// A statement that something can end.
#[derive(Debug)]
pub(crate) struct Running {
    limits: Limits,
    handle: Option<CancelHandle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.current().is_running = false;
        }
    }
}

impl Interrupts {
    fn begin(&self) -> Option<Running> {
        if self.timeout.is_none() && self.handle.is_none() {
            return None;
        }
        let mut limits = self.timeout.map_or_else(Limits::default, Limits::timeout);
        if let Some(handle) = &self.handle {
            let mut current = handle.current();
            if current.token.is_cancelled() {
                current.token = Cancellation::default();
            }
            current.is_running = true;
            limits = limits.with_token(&current.token);
        }
        Some(Running { limits, handle: self.handle.clone() })
    }
}

impl Running {
    /// Does a part of the statement's work within its limits.
    pub(crate) fn hold<O>(running: Option<&Self>, work: impl FnOnce() -> O) -> O {
        match running {
            Some(running) => running.limits.hold(work),
            None => work(),
        }
    }

    /// Whether it may go on.
    pub(crate) fn check(running: Option<&Self>) -> Result<(), SqlError> {
        running.map_or(Ok(()), |running| running.limits.check().map_err(SqlError::of_engine))
    }
}

impl<P: Protocol> Connection<P> {
    /// A handle that ends the statement which the connection runs, from any thread.
    pub fn cancel_handle(&mut self) -> CancelHandle {
        let handle = self.interrupts.handle.get_or_insert_default().clone();
        self.slot.activity.set_cancel(&handle);
        handle
    }

    /// A statement begins: what can end it, if something can.
    pub(crate) fn begin_statement(&mut self) -> Option<Running> {
        self.end_leaked_copy();
        self.interrupts.begin()
    }

    /// A COPY begins, as a statement that is counted.
    pub(crate) fn begin_counted(&self, text: &str) -> Result<Begun, SqlError> {
        let begun = self.slot.activity.begin()?;
        self.slot.activity.note_text(text);
        Ok(begun)
    }

    /// It has ended.
    pub(crate) fn end_counted(&self, begun: Begun, ended: Result<u64, &SqlError>) {
        self.slot.activity.count_noted(ended.ok());
        self.slot.activity.end(begun, ended.err(), self.session.state(), self.session.has_ended());
    }

    /// Runs a statement within its limits. A transaction that is parked is run again before; behind it, the transaction rests.
    pub(crate) fn limited<O>(
        &mut self,
        text: &str,
        work: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        self.session.check_thread()?;
        let begun = self.slot.activity.begin()?;
        let running = self.begin_statement();
        let ended = Running::hold(running.as_ref(), || {
            self.wake(text)?;
            work(self)
        });
        self.session.rest();
        self.slot.activity.end(begun, ended.as_ref().err(), self.session.state(), self.session.has_ended());
        ended.map_err(|error| self.shown_to_role(error))
    }
}
