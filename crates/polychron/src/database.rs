//! The database as users see it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polychron_engine::limits::{self, Limits};
use polychron_engine::redo::{Answers, Durability};
use polychron_engine::watch::Watch;
use polychron_engine::{
    Common, Error, Interactive, Mode, Procedure, Protocol, Row, Table, TableDefinition, TableId, Worker, drive,
};

use crate::claims::Claims;
use crate::list::DefaultProtocol;
use crate::pool::Pool;
use crate::requests::Requests;
use crate::submitting::Submitting;
use crate::{Builder, Session};

/// All options of a database, for those that [`Builder`] has no methods for.
///
/// ```
/// use polychron::{Database, Options};
///
/// let mut options = Options::default();
/// options.common.memory.soft_percent = 90;
/// let database = Database::builder().options(options).in_memory()?;
/// # Ok::<(), polychron::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options<O = <DefaultProtocol as Protocol>::Options> {
    /// The protocol's own knobs.
    pub protocol: O,
    /// The options that all protocols share: memory, worker slots, retry.
    pub common: Common,
}

/// A transaction of the protocol `P`, as [`Database::transact`] lends it.
///
/// Its operations are in the traits [`crate::Operations`] (typed rows) and [`crate::Transaction`] (bytes).
pub type TransactionOf<'w, P> = <<P as Protocol>::Worker as Interactive>::Transaction<'w>;

/// A main-memory database with the concurrency-control protocol `P`. Any thread may use it at any time.
///
/// ```
/// use polychron::{Database, Operations, Row};
///
/// #[derive(Row)]
/// struct Account {
///     #[key]
///     id: u64,
///     balance: i64,
/// }
///
/// let database = Database::in_memory()?;
/// let accounts = database.create_table::<Account>()?;
/// database.transact(|transaction| {
///     transaction.insert(&accounts, &Account { id: 1, balance: 100 })?;
///     transaction.insert(&accounts, &Account { id: 2, balance: 0 })
/// })?;
/// // Retried until it commits, undone when it fails.
/// database.transact(|transaction| {
///     transaction.update(&accounts, 1, |row| row.set_balance(row.balance() - 10))?;
///     transaction.update(&accounts, 2, |row| row.set_balance(row.balance() + 10))
/// })?;
/// let total: i64 = database.transact(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum())?;
/// assert_eq!(total, 100);
/// // A consistent view of the recent past, for free.
/// let rich = database.snapshot(|transaction| {
///     transaction.scan(&accounts, ..).fold(0, |count, row| count + u32::from(row.balance() > 50))
/// })?;
/// assert!(rich <= 1);
/// # Ok::<(), polychron::Error>(())
/// ```
pub struct Database<P: Protocol = DefaultProtocol> {
    pub(crate) submitting: Arc<Submitting<P>>,
    pub(crate) pool: Pool<P>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) requests: Arc<Requests>,
    watch: Option<Arc<Watch>>,
    pub(crate) answers: Answers,
    /// The tables as SQL sees them, when it has been asked for.
    #[cfg(feature = "sql")]
    pub(crate) sql: Arc<std::sync::OnceLock<Arc<polychron_sql::SqlDatabase<P>>>>,
    /// Behind the pool, which ends the log.
    pub(crate) protocol: Arc<P>,
}

/// Another handle of the same database. What the last one does when it is dropped, the others do not.
impl<P: Protocol> Clone for Database<P> {
    fn clone(&self) -> Self {
        Self {
            protocol: Arc::clone(&self.protocol),
            submitting: Arc::clone(&self.submitting),
            pool: self.pool.clone(),
            claims: Arc::clone(&self.claims),
            requests: Arc::clone(&self.requests),
            watch: self.watch.clone(),
            answers: self.answers.clone(),
            #[cfg(feature = "sql")]
            sql: Arc::clone(&self.sql),
        }
    }
}

impl<P: Protocol> fmt::Debug for Database<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Database").field("protocol", &P::NAME).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens an empty database in memory, with the default protocol and the default options.
    ///
    /// ```
    /// let database = polychron::Database::in_memory()?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the memory limit leaves no room to start.
    pub fn in_memory() -> Result<Self, Error> {
        Self::builder().in_memory()
    }

    /// A builder, for other protocols and options.
    ///
    /// ```
    /// use polychron::Database;
    ///
    /// let database = Database::builder().memory_limit(1 << 30).threads(2).in_memory()?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<P: Protocol> Database<P> {
    pub(crate) fn with_options(options: Options<P::Options>) -> Result<Self, Error> {
        let submitting = Arc::new(Submitting::new(options.common.submissions.clone()));
        let events = options.common.events.clone();
        let protocol = P::open(options.protocol, options.common)?;
        let watch = Watch::start(&protocol, &events)?.map(Arc::new);
        let answers = Answers::new(protocol.storage().journal().clone());
        let (pool, claims, requests) = (Pool::new(), Arc::default(), Arc::default());
        Ok(Self {
            protocol,
            submitting,
            pool,
            claims,
            requests,
            watch,
            answers,
            #[cfg(feature = "sql")]
            sql: Arc::default(),
        })
    }

    /// Gives this handle up, as dropping it does, and tells what goes wrong: makes all durable that was committed so far, of a database that was opened
    /// with a path. If this was the last use of the database, nothing of it is left in the process, and the path may be opened again.
    ///
    /// ```
    /// let database = polychron::Database::in_memory()?;
    /// database.close()?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LogStopped`]: what was not durable may be there or not when the path is opened again. [`Error::WaitsForItself`]: what was submitted may have to
    /// wait for a transaction that the calling thread has open, or has leaked; it is executed when that has ended, and then the database is closed.
    /// [`Error::OtherProcess`] in a process that was forked: nothing is done.
    pub fn close(self) -> Result<(), Error> {
        #[cfg(feature = "sql")]
        drop(self.sql);
        let Self { submitting, pool, claims, requests, watch, answers, protocol, .. } = self;
        #[cfg(feature = "durability")]
        let home = pool.home().cloned();
        let is_executed = Arc::into_inner(submitting).is_none_or(Submitting::end);
        drop((pool, claims, requests, watch, answers));
        #[cfg(feature = "durability")]
        home.map_or(Ok(()), crate::durable::Home::close)?;
        drop(protocol);
        if is_executed { Ok(()) } else { Err(Error::waits_for_itself(TableId::NONE, None)) }
    }

    /// The protocol itself, for code that is generic over protocols.
    ///
    /// ```
    /// use polychron::Protocol;
    /// # let database = polychron::Database::in_memory()?;
    /// assert_eq!(database.protocol().find_table("account"), None);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn protocol(&self) -> &Arc<P> {
        &self.protocol
    }

    /// Creates the table of the rows `R`, with the indexes that `R` declares.
    ///
    /// ```
    /// use polychron::{Database, Error, Row};
    ///
    /// #[derive(Row)]
    /// #[index(name = "by_owner", columns(owner))]
    /// struct Account {
    ///     #[key]
    ///     id: u64,
    ///     owner: u32,
    /// }
    ///
    /// let database = Database::in_memory()?;
    /// let accounts = database.create_table::<Account>()?;
    /// assert!(matches!(database.create_table::<Account>(), Err(Error::NameTaken(_))));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::Definition`], [`Error::OutOfMemory`].
    pub fn create_table<R: Row>(&self) -> Result<Table<R>, Error> {
        self.pool.check_process()?;
        Table::create(&*self.protocol)
    }

    /// Creates a table from a definition made at run time.
    ///
    /// ```
    /// use polychron::schema::{ColumnType, TableDefinition};
    /// # use polychron::Database;
    /// # let database = Database::in_memory()?;
    /// let definition = TableDefinition::new("note")
    ///     .with_column("id", ColumnType::U64)
    ///     .with_column("text", ColumnType::String { max: 1000 })
    ///     .with_key([0]);
    /// let table = database.create_table_with(definition)?;
    /// assert_eq!(database.definition(table)?.name, "note");
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::create_table`].
    pub fn create_table_with(&self, definition: TableDefinition) -> Result<TableId, Error> {
        self.pool.check_process()?;
        self.protocol.create_table(definition)
    }

    /// The table of the rows `R`, by its name; `None` when there is no such table.
    ///
    /// ```
    /// # use polychron::{Database, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// assert!(database.table::<Account>()?.is_none());
    /// database.create_table::<Account>()?;
    /// assert!(database.table::<Account>()?.is_some());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`EvolutionError`](crate::EvolutionError) when the table of that name has other columns than `R`, and [`Error::Definition`] when it lacks
    /// an index that `R` declares.
    pub fn table<R: Row>(&self) -> Result<Option<Table<R>>, Error> {
        let Some(id) = self.protocol.find_table(R::NAME) else { return Ok(None) };
        Table::with_id(&*self.protocol, id).map(Some)
    }

    /// The id of the table of this name.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// assert_eq!(database.find_table("account"), Some(accounts.id()));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn find_table(&self, name: &str) -> Option<TableId> {
        self.protocol.find_table(name)
    }

    /// The names of all tables, sorted. With SQL that has defined tables, the one that keeps its definitions is among them.
    ///
    /// ```
    /// # use polychron::{Database, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// assert_eq!(database.table_names(), ["account"]);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn table_names(&self) -> Vec<String> {
        self.protocol.table_names()
    }

    /// The definition of a table, with the indexes it has now.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// assert_eq!(database.definition(accounts.id())?.columns[1].name, "balance");
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.protocol.definition(table)
    }

    /// Drops a table.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// database.drop_table(accounts.id())?;
    /// assert!(database.table::<Account>()?.is_none());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.pool.check_process()?;
        self.protocol.drop_table(table)
    }

    /// A handle of the same database whose answers wait until all that they depend on is durable, or do not, whatever the others do. How often what was
    /// written becomes durable by itself stays as it is. Sessions, transactions and submissions are as the handle from which they come.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use polychron::{Database, Durability, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let at_once = database.with(Durability::Eventual(Duration::from_millis(10)));
    /// at_once.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 0 }))?;
    /// // Whoever waits reads nothing that a crash can undo.
    /// let durable = database.with(Durability::Immediate);
    /// assert!(durable.transact(|transaction| transaction.contains(&accounts, 1))?);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    #[must_use]
    pub fn with(&self, durability: Durability) -> Self {
        Self { answers: self.answers.with(durability), ..self.clone() }
    }

    /// Executes a procedure as one serializable transaction, retried until it commits.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Procedure, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// struct Deposit { accounts: Table<Account>, id: u64, amount: i64 }
    ///
    /// impl Procedure for Deposit {
    ///     type Output = bool;
    ///     type Error = Error;
    ///     fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
    ///         transaction.update(&self.accounts, self.id, |row| row.set_balance(row.balance() + self.amount))
    ///     }
    /// }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let found = database.execute(&mut Deposit { accounts, id: 1, amount: 5 })?;
    /// assert!(!found, "there is no account yet");
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that stopped it; all its changes are undone.
    pub fn execute<R: Procedure>(&self, procedure: &mut R) -> Result<R::Output, R::Error> {
        // A protocol that plans looks no more once it has the procedure.
        limits::check()?;
        self.answer(|worker| worker.execute(procedure))
    }

    /// A worker of its own for one thread: the fast way for threads that execute many transactions.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// for id in 0..100 {
    ///     session.transact(|transaction| transaction.insert(&accounts, &Account { id, balance: 0 }))?;
    /// }
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`] when all slots are taken.
    pub fn session(&self) -> Result<Session<P>, Error> {
        let worker = self.pool.take(&self.protocol)?;
        Ok(Session {
            worker,
            _slot: self.pool.slot(),
            claims: Arc::clone(&self.claims),
            answers: self.answers.clone(),
            #[cfg(feature = "durability")]
            _home: self.pool.home().cloned(),
            _protocol: Arc::clone(&self.protocol),
        })
    }

    /// Lends a worker. What comes of it is answered when the worker is back, and all that it depends on is durable.
    #[inline]
    pub(crate) fn answer<O, E: From<Error>>(&self, work: impl FnOnce(&mut P::Worker) -> Result<O, E>) -> Result<O, E> {
        let mut borrowed = self.pool.borrow(&self.protocol)?;
        let answer = work(borrowed.worker());
        if self.answers.is_empty() {
            return answer;
        }
        let ticket = borrowed.worker().take_ticket();
        drop(borrowed);
        self.answers.give(ticket, answer)
    }
}

impl<P: Protocol<Worker: Interactive>> Database<P> {
    /// Runs `body` as one serializable transaction: again and again until it commits, or until `body` returns an error,
    /// which undoes everything. `body` must not have effects outside of the transaction.
    ///
    /// The error type is the caller's: any into which an [`Error`] can be made, `anyhow::Error` for example. Errors come back as `body` returned
    /// them. Whether it is run again depends on whether the transaction conflicts, and on no error of `body`. Where nothing else says
    /// what the error type is, because `body` ends with `Ok(..)`, end it with [`polychron::Ok(..)`](crate::Ok).
    ///
    /// Each call borrows a worker. While all slots are taken it waits, first come, first served, for a call of another thread to give one
    /// back. It is [`Error::TooManyWorkers`] when that cannot happen: because sessions hold all slots, or because all calls
    /// that hold a worker wait for one themselves, inside of their transactions.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let outcome = database.transact(|transaction| {
    ///     transaction.insert(&accounts, &Account { id: 1, balance: -5 })?;
    ///     let balance = transaction.get(&accounts, 1)?.map_or(0, |row| row.balance());
    ///     if balance < 0 { Err(Error::RolledBack) } else { Ok(balance) }
    /// });
    /// assert!(matches!(outcome, Err(Error::RolledBack)));
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// enum PaymentError {
    ///     #[error("account {0} does not exist")]
    ///     NoAccount(u64),
    ///     #[error(transparent)]
    ///     Database(#[from] Error),
    /// }
    ///
    /// let outcome = database.transact(|transaction| {
    ///     if transaction.update(&accounts, 7, |row| row.set_balance(row.balance() - 5))? {
    ///         Ok(())
    ///     } else {
    ///         Err(PaymentError::NoAccount(7))
    ///     }
    /// });
    /// assert!(matches!(outcome, Err(PaymentError::NoAccount(7))));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of `body`, a panic as [`Error::Panicked`], and refusals of the engine.
    pub fn transact<O, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.answer(|worker| drive::transact(worker, Mode::ReadWrite, &mut body))
    }

    /// As [`Database::transact`], but for so long at most: then the transaction is rolled back. The time is looked at while the call waits for a
    /// worker or for other transactions, before each attempt and before the commit, not while `body` runs. A transaction that has committed waits until it
    /// is durable, however long that takes: no answer says that it did not commit.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use polychron::{Database, Error, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let row = Account { id: 1, balance: 5 };
    /// database.transact_timeout(Duration::from_secs(5), |transaction| transaction.insert(&accounts, &row))?;
    /// let late = database.transact_timeout(Duration::ZERO, |transaction| transaction.insert(&accounts, &row));
    /// assert!(matches!(late, Err(Error::TimedOut { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::transact`], and [`Error::TimedOut`].
    pub fn transact_timeout<O, E: From<Error>>(
        &self,
        timeout: Duration,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.transact_within(&Limits::timeout(timeout), body)
    }

    /// As [`Database::transact_timeout`], with a time, a token by which another thread calls the transaction off, or both.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// use polychron::{Cancellation, Limits};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let token = Cancellation::default();
    /// let cancelled = database.transact_within(&Limits::token(&token), |transaction| {
    ///     // As another thread would.
    ///     token.cancel();
    ///     transaction.insert(&accounts, &Account { id: 1, balance: 5 })
    /// });
    /// assert!(matches!(cancelled, Err(Error::Cancelled)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`].
    pub fn transact_within<O, E: From<Error>>(
        &self,
        limits: &Limits,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        limits.hold(|| self.transact(body))
    }

    /// Runs `body` on a consistent snapshot, which may lie slightly in the past: it only reads, never conflicts, and
    /// neither waits for writers nor makes them wait (where the protocol keeps versions).
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let total: i64 = database.snapshot(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum())?;
    /// assert_eq!(total, 0);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when `body` writes; otherwise as [`Database::transact`].
    pub fn snapshot<O, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.answer(|worker| drive::transact(worker, Mode::Snapshot, &mut body))
    }
}
