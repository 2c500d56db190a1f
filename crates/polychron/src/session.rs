//! Workers that stay with their threads.

use std::fmt;
use std::sync::Arc;

use polychron_engine::limits::{self, Limits};
use polychron_engine::redo::Answers;
use polychron_engine::{Error, Interactive, Mode, Procedure, Protocol, Worker, drive};

use crate::TransactionOf;
use crate::claims::Claims;
use crate::list::DefaultProtocol;
use crate::pool::Slot;

/// A worker of its own for one thread; see [`Database::session`](crate::Database::session).
///
/// ```
/// # use polychron::{Database, Operations, Row};
/// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
/// # let database = Database::in_memory()?;
/// # let accounts = database.create_table::<Account>()?;
/// std::thread::scope(|scope| {
///     for id in 0..4 {
///         let mut session = database.session().unwrap();
///         scope.spawn(move || {
///             session.transact(|transaction| transaction.insert(&accounts, &Account { id, balance: 10 })).unwrap();
///         });
///     }
/// });
/// assert_eq!(database.transact(|transaction| transaction.scan(&accounts, ..).count())?, 4);
/// # Ok::<(), polychron::Error>(())
/// ```
pub struct Session<P: Protocol = DefaultProtocol> {
    pub(crate) worker: P::Worker,
    /// Behind the worker, so that its slot is free when others are told.
    pub(crate) _slot: Slot<P>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) answers: Answers,
    /// Behind the worker: the last use of a database ends its log.
    #[cfg(feature = "durability")]
    pub(crate) _home: Option<crate::durable::Home>,
    pub(crate) _protocol: Arc<P>,
}

impl<P: Protocol> fmt::Debug for Session<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("protocol", &P::NAME).finish_non_exhaustive()
    }
}

impl<P: Protocol> Session<P> {
    /// As [`Database::execute`](crate::Database::execute).
    ///
    /// ```
    /// use polychron::{Database, Error, Operations, Procedure, Row, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// struct Open { accounts: Table<Account>, id: u64 }
    ///
    /// impl Procedure for Open {
    ///     type Output = ();
    ///     type Error = Error;
    ///     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
    ///         transaction.insert(&self.accounts, &Account { id: self.id, balance: 0 })
    ///     }
    /// }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// session.execute(&mut Open { accounts, id: 1 })?;
    /// assert!(matches!(session.execute(&mut Open { accounts, id: 1 }), Err(Error::Duplicate { .. })));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn execute<R: Procedure>(&mut self, procedure: &mut R) -> Result<R::Output, R::Error> {
        limits::check()?;
        self.answer(|worker| worker.execute(procedure))
    }

    /// Answers the outcome of work with the worker when all that it depends on is durable.
    #[inline]
    pub(crate) fn answer<O, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut P::Worker) -> Result<O, E>,
    ) -> Result<O, E> {
        let answer = work(&mut self.worker);
        if self.answers.is_empty() { answer } else { self.answers.give(self.worker.take_ticket(), answer) }
    }

    /// Executes independent procedures, each as a transaction of its own, in any order; `done` is told each procedure's
    /// position and outcome. Faster than one by one where the protocol looks ahead. Where answers wait until they are durable `done` is told at the end, and
    /// the wait is one.
    ///
    /// ```
    /// use polychron::{Database, Error, Operations, Procedure, Row, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// struct Open { accounts: Table<Account>, id: u64 }
    ///
    /// impl Procedure for Open {
    ///     type Output = ();
    ///     type Error = Error;
    ///     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
    ///         transaction.insert(&self.accounts, &Account { id: self.id, balance: 0 })
    ///     }
    /// }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// let mut openings: Vec<_> = (0..8).map(|id| Open { accounts, id }).collect();
    /// let mut opened = 0;
    /// session.execute_batch(&mut openings, |_, outcome| opened += u32::from(outcome.is_ok()));
    /// assert_eq!(opened, 8);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn execute_batch<R: Procedure>(
        &mut self,
        procedures: &mut [R],
        mut done: impl FnMut(usize, Result<R::Output, R::Error>),
    ) {
        if self.answers.is_empty() {
            return self.worker.execute_batch(procedures, &mut done);
        }
        let mut outcomes = Vec::with_capacity(procedures.len());
        self.worker.execute_batch(procedures, &mut |position, outcome| outcomes.push((position, outcome)));
        let ticket = self.worker.take_ticket();
        outcomes.into_iter().for_each(|(position, outcome)| done(position, self.answers.give(ticket, outcome)));
    }

    /// The worker itself. Its own answers wait for nothing.
    ///
    /// ```
    /// use polychron::Worker;
    /// # let database = polychron::Database::in_memory()?;
    /// let mut session = database.session()?;
    /// session.worker().maintain();
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn worker(&mut self) -> &mut P::Worker {
        &mut self.worker
    }
}

impl<P: Protocol<Worker: Interactive>> Session<P> {
    /// As [`Database::transact`](crate::Database::transact).
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// session.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 5 }))?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn transact<O, E: From<Error>>(
        &mut self,
        mut body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.answer(|worker| drive::transact(worker, Mode::ReadWrite, &mut body))
    }

    /// As [`Database::transact_within`](crate::Database::transact_within).
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// use std::time::Duration;
    ///
    /// use polychron::Limits;
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// let limits = Limits::timeout(Duration::from_secs(5));
    /// session.transact_within(&limits, |transaction| transaction.insert(&accounts, &Account { id: 1, balance: 5 }))?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn transact_within<O, E: From<Error>>(
        &mut self,
        limits: &Limits,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        limits.hold(|| self.transact(body))
    }

    /// As [`Database::snapshot`](crate::Database::snapshot).
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// let count = session.snapshot(|transaction| transaction.scan(&accounts, ..).count())?;
    /// assert_eq!(count, 0);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn snapshot<O, E: From<Error>>(
        &mut self,
        mut body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.answer(|worker| drive::transact(worker, Mode::Snapshot, &mut body))
    }
}
