//! Handles to typed tables.

use std::fmt;
use std::marker::PhantomData;

use polychron_base::{Error, TableId};
use polychron_schema::{Evolution, EvolutionError, Row};

use crate::{Protocol, TableDefinition};

/// A table whose rows are `R`s. A handle: small, free to copy, the same for every protocol.
pub struct Table<R> {
    pub(crate) id: TableId,
    row: PhantomData<fn() -> R>,
}

impl<R: Row> Table<R> {
    /// Creates the table of the rows `R`.
    ///
    /// # Errors
    /// As [`Protocol::create_table`].
    pub fn create<P: Protocol>(database: &P) -> Result<Self, Error> {
        database.create_table(R::definition()).map(Self::from_id)
    }

    /// Creates a table of the rows `R` from another definition than their own: of another kind or size, or with other indexes. Indexes
    /// that `R` declares come first.
    ///
    /// # Errors
    /// As [`Protocol::create_table`], [`EvolutionError`] for other columns than those of `R`, and [`Error::Definition`] where indexes that `R`
    /// declares are missing.
    pub fn create_as<P: Protocol>(database: &P, definition: TableDefinition) -> Result<Self, Error> {
        Self::check(&definition)?;
        database.create_table(definition).map(Self::from_id)
    }

    /// The table with this id.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::OtherDatabase`], [`EvolutionError`] when the table has other columns than `R`, which the error names, and
    /// [`Error::Definition`] when it does not have the indexes that `R` declares.
    pub fn with_id<P: Protocol>(database: &P, id: TableId) -> Result<Self, Error> {
        Self::check(&*database.definition(id)?)?;
        Ok(Self::from_id(id))
    }

    fn check(present: &TableDefinition) -> Result<(), Error> {
        let (name, wanted) = (&present.name, R::definition());
        if let Some(evolution) = Evolution::between(present, &wanted, &R::history())? {
            let difference = evolution.difference().to_owned();
            return Err(EvolutionError::Older { table: name.clone(), difference }.into());
        }
        let mut indexes = wanted.indexes.iter().enumerate();
        match indexes.find(|&(position, index)| present.indexes.get(position) != Some(index)) {
            Some((_, index)) => {
                Err(Error::definition(format!("the table `{name}` does not have the index `{}`", index.name)))
            }
            None => Ok(()),
        }
    }
}

impl<R> Table<R> {
    /// The table with this id, which the caller knows to hold `R`s: nothing is checked. Of a table with other columns, rows are read at
    /// the wrong places; [`Table::with_id`] is for everyone else.
    #[doc(hidden)]
    pub const fn from_id(id: TableId) -> Self {
        Self { id, row: PhantomData }
    }

    /// The table's id.
    #[inline]
    pub const fn id(&self) -> TableId {
        self.id
    }
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Table<R> {}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, out)
    }
}
