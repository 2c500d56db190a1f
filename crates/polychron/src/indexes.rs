//! Secondary indexes that come and go at run time.

use polychron_base::line::short_type_name;
use polychron_engine::{Error, IndexDefinition, IndexId, Protocol, Row, Table, TableDefinition, TableId};
use polychron_schema::{Index, OwnedKey};

use crate::Database;

impl<P: Protocol> Database<P> {
    /// Adds a secondary index over columns of the types `K` to a table that may be in use, and returns when it can be
    /// read. Indexes that `R` declares exist from the table's creation on.
    ///
    /// ```
    /// # use polychron::schema::IndexDefinition;
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// let accounts = database.create_table::<Account>()?;
    /// let definition = IndexDefinition::new("by_balance", [Account::BALANCE.index.into()]);
    /// let by_balance = database.create_index::<Account, i64>(&accounts, definition)?;
    /// let richest = database.transact(|transaction| {
    ///     transaction.scan_range_by(&accounts, by_balance, 0_i64..).rev().first(|row| row.id())
    /// })?;
    /// assert_eq!(richest, None);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::create_index_with`], and [`Error::Definition`] when the index's columns are not of the types `K`.
    pub fn create_index<R: Row, K: OwnedKey>(
        &self,
        table: &Table<R>,
        definition: IndexDefinition,
    ) -> Result<Index<R, K>, Error> {
        let nullable = has_types::<K>(&*self.protocol.definition(table.id())?, &definition)?;
        let unique = definition.unique;
        let positions = definition.columns.clone();
        let id = self.create_index_with(table.id(), definition)?;
        Ok(Index::of_table(table.id(), id, &positions, unique, nullable))
    }

    /// Adds a secondary index to a table that may be in use, and returns when it can be read.
    ///
    /// ```
    /// use polychron::schema::IndexDefinition;
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let index = database.create_index_with(accounts.id(), IndexDefinition::new("by_balance", [1]))?;
    /// assert_eq!(database.definition(accounts.id())?.indexes[0].name, "by_balance");
    /// database.drop_index(accounts.id(), index)?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Protocol::create_index`]. A bound in time, or a token that cancels it, holds for what runs inside of [`Limits::hold`](crate::Limits::hold).
    pub fn create_index_with(&self, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        // The rows that it has found may not be durable.
        self.answers.give_behind_all(self.protocol.create_index(table, definition))
    }

    /// Drops a secondary index.
    ///
    /// ```
    /// use polychron::schema::IndexDefinition;
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// let index = database.create_index_with(accounts.id(), IndexDefinition::new("by_balance", [1]))?;
    /// database.drop_index(accounts.id(), index)?;
    /// assert!(database.definition(accounts.id())?.indexes.is_empty());
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NoSuchIndex`].
    pub fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.protocol.drop_index(table, index)
    }

    /// The id of the index of this name, if the table has one: also of one that was made at run time before the database was opened.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// assert_eq!(database.find_index(accounts.id(), "by_balance")?, None);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn find_index(&self, table: TableId, name: &str) -> Result<Option<IndexId>, Error> {
        self.protocol.find_index(table, name)
    }

    /// A handle to the index of this name over columns of the types `K`, if the table has one.
    ///
    /// ```
    /// # use polychron::schema::IndexDefinition;
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// database.create_index_with(accounts.id(), IndexDefinition::new("by_balance", [1]))?;
    /// let by_balance = database.index::<Account, i64>(&accounts, "by_balance")?.unwrap();
    /// let poorest = database.transact(|transaction| {
    ///     transaction.scan_range_by(&accounts, by_balance, 0_i64..).first(|row| row.id())
    /// })?;
    /// assert_eq!(poorest, None);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], and [`Error::Definition`] when the index's columns are not of the types `K`.
    pub fn index<R: Row, K: OwnedKey>(&self, table: &Table<R>, name: &str) -> Result<Option<Index<R, K>>, Error> {
        let present = self.protocol.definition(table.id())?;
        let Some(definition) = present.indexes.iter().find(|index| index.name == name) else { return Ok(None) };
        let nullable = has_types::<K>(&present, definition)?;
        let Some(id) = self.protocol.find_index(table.id(), name)? else { return Ok(None) };
        Ok(Some(Index::of_table(table.id(), id, &definition.columns, definition.unique, nullable)))
    }
}

/// Whether a column of an index is nullable, if they are of the types `K`.
fn has_types<K: OwnedKey>(table: &TableDefinition, index: &IndexDefinition) -> Result<bool, Error> {
    if !index.orders.is_empty() {
        let name = &index.name;
        return Err(Error::definition(format!(
            "the index `{name}` sorts columns in another order than keys of a type do"
        )));
    }
    let indexed = || index.columns.iter().filter_map(|&position| table.columns.get(position));
    if K::is_over(indexed().map(|column| (column.column_type, column.nullable))) {
        return Ok(indexed().any(|column| column.nullable));
    }
    let (index, key) = (&index.name, short_type_name::<K>());
    Err(Error::definition(format!("the columns of the index `{index}` are not of the types {key}")))
}
