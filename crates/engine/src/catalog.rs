//! The list of a database's tables, changed rarely and read by every transaction.
//!
//! Each change makes a new list and raises a version. A worker keeps the list it saw last and asks for the present one
//! only when the version has moved, so that a transaction's look-up of a table is an array access.

use std::sync::{Arc, PoisonError};

use polychron_base::{Error, TableId};
use polychron_schema::TableDefinition;
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicU64, Ordering};

/// What the catalog must know of a protocol's table.
pub trait Described {
    /// The table's definition, with the indexes it has.
    fn definition(&self) -> &Arc<TableDefinition>;
}

/// The tables at one moment, by id; dropped ones leave a hole.
pub type Tables<T> = Arc<Vec<Option<Arc<T>>>>;

/// The list of tables.
#[derive(Debug)]
pub struct Catalog<T> {
    version: AtomicU64,
    tables: Mutex<Tables<T>>,
}

impl<T> Default for Catalog<T> {
    fn default() -> Self {
        Self { version: AtomicU64::new(0), tables: Mutex::new(Arc::default()) }
    }
}

impl<T: Described> Catalog<T> {
    /// Adds a table that `make` builds for its new id.
    ///
    /// # Errors
    /// [`Error::NameTaken`], or what `make` answers.
    pub fn create(&self, name: &str, make: impl FnOnce(TableId) -> Result<T, Error>) -> Result<TableId, Error> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if find(&tables, name).is_some() {
            return Err(Error::NameTaken(name.to_owned()));
        }
        let id = TableId(tables.len() as u32);
        let table = Arc::new(make(id)?);
        let mut changed = Vec::clone(&tables);
        changed.push(Some(table));
        self.publish(&mut tables, changed);
        Ok(id)
    }

    /// Puts `change`'s answer in the place of a table: the same table with other indexes.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], or what `change` answers.
    pub fn replace<O>(&self, id: TableId, change: impl FnOnce(&T) -> Result<(T, O), Error>) -> Result<O, Error> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let present = get(&tables, id)?;
        let (table, output) = change(present)?;
        let mut changed = Vec::clone(&tables);
        changed[id.position()] = Some(Arc::new(table));
        self.publish(&mut tables, changed);
        Ok(output)
    }

    /// Takes a table out and returns it.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn remove(&self, id: TableId) -> Result<Arc<T>, Error> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = Arc::clone(get(&tables, id)?);
        let mut changed = Vec::clone(&tables);
        changed[id.position()] = None;
        self.publish(&mut tables, changed);
        Ok(removed)
    }

    /// The present list and its version.
    pub fn snapshot(&self) -> (u64, Tables<T>) {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        (self.version.load(Ordering::Relaxed), Arc::clone(&tables))
    }

    /// The present version. A worker that begins a transaction after a change was acknowledged sees it here: the
    /// acquiring load pairs with the releasing store in `publish`.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The id of the table of this name.
    pub fn find(&self, name: &str) -> Option<TableId> {
        find(&self.snapshot().1, name)
    }

    /// The definition of a table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn definition(&self, id: TableId) -> Result<Arc<TableDefinition>, Error> {
        let (_, tables) = self.snapshot();
        get(&tables, id).map(|table| Arc::clone(table.definition()))
    }

    fn publish(&self, tables: &mut Tables<T>, changed: Vec<Option<Arc<T>>>) {
        *tables = Arc::new(changed);
        // Pairs with the acquiring load in `version`; the lock makes the increment the only one.
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The table of this id.
///
/// # Errors
/// [`Error::NoSuchTable`].
#[inline]
pub fn get<T>(tables: &[Option<Arc<T>>], id: TableId) -> Result<&Arc<T>, Error> {
    match tables.get(id.position()) {
        Some(Some(table)) => Ok(table),
        _ => Err(Error::NoSuchTable(id)),
    }
}

fn find<T: Described>(tables: &[Option<Arc<T>>], name: &str) -> Option<TableId> {
    let named = |table: &Option<Arc<T>>| table.as_ref().is_some_and(|table| table.definition().name == name);
    tables.iter().position(named).map(|position| TableId(position as u32))
}
