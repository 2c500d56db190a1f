//! Procedures that are handed over without waiting for them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError};

use polychron_base::clock::SystemClock;
use polychron_engine::options::Submissions;
use polychron_engine::submission::{Service, Submission, Submitter};
use polychron_engine::{Error, Interactive, Procedure, Protocol};
use polychron_sync::Mutex;

use crate::{Database, TransactionOf};

/// The service that executes what is submitted, from the first submission on.
pub(crate) struct Submitting<P: Protocol> {
    options: Submissions,
    service: OnceLock<Service<P>>,
    /// Held by who starts it.
    starting: Mutex<()>,
}

impl<P: Protocol> Submitting<P> {
    pub(crate) fn new(options: Submissions) -> Self {
        Self { options, service: OnceLock::new(), starting: Mutex::new(()) }
    }

    /// Ends the service, if there is one. `false`: not all that was submitted is executed yet.
    pub(crate) fn end(self) -> bool {
        self.service.into_inner().is_none_or(Service::end)
    }
}

/// A service as its database wants it, or as a handle does.
enum Submits<'s, P: Protocol> {
    Usual(&'s Service<P>),
    Own(Submitter<P>),
}

impl<P: Protocol> Deref for Submits<'_, P> {
    type Target = Submitter<P>;

    fn deref(&self) -> &Submitter<P> {
        match self {
            Self::Usual(service) => service,
            Self::Own(submitter) => submitter,
        }
    }
}

impl<P: Protocol> Database<P> {
    /// Hands a procedure over, to be executed as one serializable transaction, and does not wait for it. What comes back can be
    /// waited for, or awaited under any executor.
    ///
    /// The database has threads for this ([`Submissions`]), started by the first submission, each of which takes a worker's slot.
    /// They gather procedures into batches, which is what a protocol that plans lives on. Procedures that are under way at the same
    /// time take effect in any order.
    ///
    /// Dropping what comes back gives up the answer alone: the procedure is executed. When the database is dropped, that takes until
    /// all that was submitted is executed. While as many procedures wait as [`Submissions::most_waiting`] allows, this call waits;
    /// [`Database::try_submit`] does not, and with [`Database::submit_async`] a task waits in place of its thread.
    ///
    /// A procedure may submit others, but not wait for them, because they may have to wait for its own transaction: the answer of
    /// [`Submission::wait`], and of awaiting, is [`Error::Unsupported`] there.
    ///
    /// ```
    /// # use polychron::{Access, Database, Declare, Operations, Procedure, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// struct Open { accounts: Table<Account>, id: u64 }
    ///
    /// impl Procedure for Open {
    ///     type Output = u64;
    ///     type Error = Error;
    ///     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
    ///         transaction.insert(&self.accounts, &Account { id: self.id, balance: 0 })?;
    ///         Ok(self.id)
    ///     }
    /// }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// // A thread goes on, and waits when it wants the answers.
    /// let submitted: Vec<_> = (0..100).map(|id| database.submit(Open { accounts, id })).collect();
    /// for (id, submission) in (0..100).zip(submitted) {
    ///     assert_eq!(submission.wait()?, id);
    /// }
    /// // A task awaits it, whichever executor runs the task.
    /// async fn open(database: &Database, accounts: Table<Account>) -> Result<u64, polychron::Error> {
    ///     database.submit(Open { accounts, id: 100 }).await
    /// }
    /// # let task = std::pin::pin!(open(&database, accounts));
    /// # struct Thread(std::thread::Thread);
    /// # impl std::task::Wake for Thread {
    /// #     fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); }
    /// # }
    /// # let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    /// # let (mut context, mut task) = (std::task::Context::from_waker(&waker), task);
    /// # loop {
    /// #     if let std::task::Poll::Ready(id) = task.as_mut().poll(&mut context) { assert_eq!(id?, 100); break; }
    /// #     std::thread::park();
    /// # }
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// None here: they are the answer, as of [`Database::execute`]. It is [`Error::TooManyWorkers`] when the threads could not be
    /// started because all slots are taken.
    pub fn submit<R: Procedure + 'static>(&self, procedure: R) -> Submission<R::Output, R::Error> {
        match self.submitter() {
            Ok(submitter) => submitter.submit(procedure),
            Err(error) => Submission::refused(error),
        }
    }

    /// As [`Database::submit`], for tasks: while there is no room for one more procedure, the task waits, and its thread goes on with
    /// others. Nothing is done before it is polled; when it is dropped before it has given a submission, the procedure is not
    /// executed. Tasks get room roughly in the order in which they came.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Procedure, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # struct Open { accounts: Table<Account>, id: u64 }
    /// # impl Procedure for Open {
    /// #     type Output = ();
    /// #     type Error = Error;
    /// #     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
    /// #         transaction.insert(&self.accounts, &Account { id: self.id, balance: 0 })
    /// #     }
    /// # }
    /// async fn open_all(database: &Database, accounts: Table<Account>) -> Result<(), polychron::Error> {
    ///     let mut submitted = Vec::new();
    ///     for id in 0..1000 {
    ///         // As fast as the database takes them.
    ///         submitted.push(database.submit_async(Open { accounts, id }).await);
    ///     }
    ///     for submission in submitted {
    ///         submission.await?;
    ///     }
    ///     Ok(())
    /// }
    /// # fn is_for_any_thread<F: Future + Send>(_: F) {}
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// is_for_any_thread(open_all(&database, accounts));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Database::submit`].
    pub async fn submit_async<R: Procedure + 'static>(&self, procedure: R) -> Submission<R::Output, R::Error> {
        match self.submitter() {
            Ok(submitter) => submitter.submit_async(procedure).await,
            Err(error) => Submission::refused(error),
        }
    }

    /// As [`Database::execute`], for tasks: one await for the room and the answer. Dropped before it has ended, it may or may not have
    /// been executed.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Procedure, Row, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # struct Open { accounts: Table<Account>, id: u64 }
    /// # impl Procedure for Open {
    /// #     type Output = ();
    /// #     type Error = Error;
    /// #     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
    /// #         transaction.insert(&self.accounts, &Account { id: self.id, balance: 0 })
    /// #     }
    /// # }
    /// async fn open(database: &Database, accounts: Table<Account>) -> Result<(), polychron::Error> {
    ///     database.execute_async(Open { accounts, id: 100 }).await
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`Database::submit`].
    pub async fn execute_async<R: Procedure + 'static>(&self, procedure: R) -> Result<R::Output, R::Error> {
        self.submit_async(procedure).await.await
    }

    /// As [`Database::submit`], if there is room for one more procedure: for threads that must not wait, such as those of an
    /// executor.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Procedure, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # struct Open { accounts: Table<Account>, id: u64 }
    /// # impl Procedure for Open {
    /// #     type Output = ();
    /// #     type Error = Error;
    /// #     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
    /// #         transaction.insert(&self.accounts, &Account { id: self.id, balance: 0 })
    /// #     }
    /// # }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// match database.try_submit(Open { accounts, id: 1 }) {
    ///     Ok(submission) => submission.wait()?,
    ///     Err(Open { id, .. }) => println!("{id} has to come again later"),
    /// }
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// The procedure, when there is no room.
    pub fn try_submit<R: Procedure + 'static>(&self, procedure: R) -> Result<Submission<R::Output, R::Error>, R> {
        match self.submitter() {
            Ok(submitter) => submitter.try_submit(procedure),
            Err(error) => Ok(Submission::refused(error)),
        }
    }

    /// What hands procedures over as this handle of the database wants it.
    fn submitter(&self) -> Result<Submits<'_, P>, Error> {
        self.pool.check_process()?;
        let service = self.service()?;
        let holds = self.answers.holds();
        Ok(if service.holds() == holds { Submits::Usual(service) } else { Submits::Own(service.submitter(holds)) })
    }

    fn service(&self) -> Result<&Service<P>, Error> {
        let Submitting { options, service, starting } = &*self.submitting;
        if let Some(service) = service.get() {
            return Ok(service);
        }
        let _alone = starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = service.get() {
            return Ok(service);
        }
        let worker = || self.pool.take(&self.protocol);
        let started = Service::start(&self.protocol, options, Arc::new(SystemClock::new()), worker)?;
        Ok(service.get_or_init(|| started))
    }
}

impl<P: Protocol<Worker: Interactive>> Database<P> {
    /// As [`Database::submit`], a closure, which becomes a transaction as that of [`Database::transact`] does. Closures are executed one by
    /// one, on as many threads as the database has for what is submitted.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let opened: Vec<_> = (0..100)
    ///     .map(|id| database.submit_closure(move |transaction| transaction.insert(&accounts, &Account { id, balance: 0 })))
    ///     .collect();
    /// opened.into_iter().try_for_each(|submission| submission.wait())?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// None here: they are the answer, as of [`Database::transact`], and as for [`Database::submit`].
    pub fn submit_closure<O: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E> + Send + 'static,
    ) -> Submission<O, E> {
        match self.submitter() {
            Ok(submitter) => submitter.submit_closure(body),
            Err(error) => Submission::refused(error),
        }
    }

    /// As [`Database::transact`], for tasks: the closure is executed by a thread of the database, and one await is for the room and the
    /// answer. Dropped before it has ended, it may or may not have been executed.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row, Table};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// async fn open(database: &Database, accounts: Table<Account>, id: u64) -> Result<(), Error> {
    ///     database.transact_async(move |transaction| transaction.insert(&accounts, &Account { id, balance: 0 })).await
    /// }
    /// ```
    ///
    /// # Errors
    /// As of [`Database::transact`], and as for [`Database::submit`].
    pub async fn transact_async<O: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E> + Send + 'static,
    ) -> Result<O, E> {
        let submission = match self.submitter() {
            Ok(submitter) => submitter.submit_closure_async(body).await,
            Err(error) => Submission::refused(error),
        };
        submission.await
    }
}
