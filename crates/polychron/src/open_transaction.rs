//! Transactions as objects that their clients end.

use polychron_engine::open::Open;
use polychron_engine::{Error, Interactive, Mode, Protocol};

use crate::list::DefaultProtocol;
use crate::pool::Loan;
use crate::{Database, Session};

/// An open transaction of the protocol `P`, as [`Database::begin`] and [`Session::begin`] give it: its client commits it, rolls it back, or drops it,
/// which rolls it back, too.
///
/// Its operations are in the traits [`crate::Operations`] (typed rows) and [`crate::Transaction`] (bytes). It stays on its thread.
pub type OpenTransaction<'w, P = DefaultProtocol> = Open<'w, <P as Protocol>::Worker, Loan<P>>;

impl<P: Protocol<Worker: Interactive>> Database<P> {
    /// Begins a serializable transaction that the caller ends, for code that cannot be a closure. [`Database::transact`] is what most programs want:
    /// it begins again after a conflict, waits before that, and is undone when it fails.
    ///
    /// The object has a worker for itself, as a call of [`Database::transact`] has, and the same rules hold: it may be open beside others, also
    /// of the same thread; an operation that would wait for what the thread has open fails with [`Error::WaitsForItself`]; what it holds, it holds
    /// back others with for as long as it is open. After a conflict each operation answers [`Error::Conflict`], and the commit
    /// [`Error::Conflicts`]: begin again. A conflict that comes of what the same thread commits meanwhile is [`Error::WaitsForItself`] at the
    /// commit when it comes again, and beginning again does not help; so commit also behind an operation that conflicts, for the reason. Dropping it rolls it back; forgetting it ([`std::mem::forget`]) leaks the worker, and what it has
    /// locked.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut transaction = database.begin()?;
    /// transaction.insert(&accounts, &Account { id: 1, balance: 100 })?;
    /// transaction.commit()?;
    ///
    /// let mut transaction = database.begin()?;
    /// transaction.update(&accounts, 1, |row| row.set_balance(0))?;
    /// transaction.rollback();
    ///
    /// // Begun again until it commits.
    /// let balance = loop {
    ///     let mut transaction = database.begin()?;
    ///     let mut pay = || {
    ///         let balance = transaction.get(&accounts, 1)?.map_or(0, |row| row.balance());
    ///         transaction.update(&accounts, 1, |row| row.set_balance(balance + 1))?;
    ///         polychron::Ok(balance)
    ///     };
    ///     let paid = match pay() {
    ///         Err(error) if !error.is_conflict() => return Err(error),
    ///         paid => paid,
    ///     };
    ///     // It says of a conflict whether to begin again.
    ///     match transaction.commit() {
    ///         Ok(()) => break paid?,
    ///         Err(error) if error.is_conflict() => {}
    ///         Err(error) => return Err(error),
    ///     }
    /// };
    /// assert_eq!(balance, 100);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// It stays on its thread:
    ///
    /// ```compile_fail
    /// # let database = polychron::Database::in_memory()?;
    /// let transaction = database.begin()?;
    /// std::thread::spawn(move || transaction.commit());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`], as [`Database::transact`]; refusals of the engine; [`Error::Unsupported`] of a protocol that was chosen by its name
    /// and executes procedures alone.
    pub fn begin(&self) -> Result<OpenTransaction<'static, P>, Error> {
        self.pool.borrow(&self.protocol)?.open(&self.answers, Mode::ReadWrite)
    }

    /// As [`Database::begin`], on a consistent snapshot as that of [`Database::snapshot`].
    ///
    /// Under two-phase locking a snapshot may have to begin again, which [`Database::snapshot`] does by itself: an operation then answers
    /// [`Error::Conflict`].
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut snapshot = database.begin_snapshot()?;
    /// database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 100 }))?;
    /// assert!(!snapshot.contains(&accounts, 1)?);
    /// snapshot.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn begin_snapshot(&self) -> Result<OpenTransaction<'static, P>, Error> {
        self.pool.borrow(&self.protocol)?.open(&self.answers, Mode::Snapshot)
    }
}

impl<P: Protocol<Worker: Interactive>> Session<P> {
    /// As [`Database::begin`](crate::Database::begin), with the worker of the session.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// let mut transaction = session.begin()?;
    /// transaction.insert(&accounts, &Account { id: 1, balance: 5 })?;
    /// transaction.commit()?;
    /// assert_eq!(database.statistics().commits, 1);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there, but for [`Error::TooManyWorkers`].
    pub fn begin(&mut self) -> Result<OpenTransaction<'_, P>, Error> {
        OpenTransaction::<P>::lend(&mut self.worker, &self.answers, Mode::ReadWrite)
    }

    /// As [`Database::begin_snapshot`](crate::Database::begin_snapshot).
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let mut session = database.session()?;
    /// assert_eq!(session.begin_snapshot()?.len(&accounts)?, 0);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn begin_snapshot(&mut self) -> Result<OpenTransaction<'_, P>, Error> {
        OpenTransaction::<P>::lend(&mut self.worker, &self.answers, Mode::Snapshot)
    }
}
