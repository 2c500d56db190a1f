//! Tables that are opened or made.

use polychron_engine::{Error, Protocol, Row, Table, evolve};

use crate::Database;

impl<P: Protocol> Database<P> {
    /// The table of the rows `R`: the one that there is, or a new one. A table of older rows becomes one of `R`s where their fields declare what
    /// has changed ([`Row`]'s `default` and `was`); handles of the older rows are then refused.
    ///
    /// ```
    /// use polychron::{Database, Operations, Row};
    ///
    /// mod before {
    ///     #[derive(polychron::Row)]
    ///     pub struct Account { #[key] pub id: u64, pub name: String }
    /// }
    ///
    /// #[derive(Row)]
    /// struct Account {
    ///     #[key]
    ///     id: u64,
    ///     #[column(was = "name")]
    ///     owner: String,
    ///     #[column(default = 100)]
    ///     limit: i64,
    /// }
    ///
    /// let database = Database::in_memory()?;
    /// let older = database.create_or_open_table::<before::Account>()?;
    /// database.transact(|transaction| transaction.insert(&older, &before::Account { id: 1, name: "Ada".into() }))?;
    /// let accounts = database.create_or_open_table::<Account>()?;
    /// let ada = database.transact(|transaction| transaction.get_owned(&accounts, 1))?.unwrap();
    /// assert_eq!((&*ada.owner, ada.limit), ("Ada", 100));
    /// assert!(database.transact(|transaction| transaction.len(&older)).is_err());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// ```
    /// # use polychron::{Database, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// let accounts = database.create_or_open_table::<Account>()?;
    /// assert_eq!(database.create_or_open_table::<Account>()?.id(), accounts.id());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::table`] and [`Database::create_table`], but for [`Error::NameTaken`]; what refuses the older rows in the new table, and
    /// [`Error::WaitsForItself`] where the calling thread has a transaction open; [`Error::TimedOut`], [`Error::Cancelled`] and
    /// [`Error::Conflicts`] where transactions of others stand in the way for longer than [`Limits`](crate::Limits) or
    /// [`Retry::time`](crate::Retry::time) allow. The table is then as before.
    pub fn create_or_open_table<R: Row>(&self) -> Result<Table<R>, Error> {
        loop {
            // Others may create it, or drop it, between the two.
            match evolve::open(&*self.protocol, &mut |copy| self.execute(copy)) {
                Ok(Some(table)) => return Ok(table),
                Err(Error::NoSuchTable(_)) | Ok(None) => {}
                Err(error) => return Err(error),
            }
            match self.create_table() {
                Err(Error::NameTaken(_)) => {}
                other => return other,
            }
        }
    }
}
