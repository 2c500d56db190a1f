//! A database as SQL has it: its tables, and their definitions.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use polychron_engine::Protocol;
use polychron_engine::definitions::Standing;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::new_number;

use crate::bind::NewTable;
use crate::catalog::{Catalog, Source, Table};
use crate::definitions::{self, Definitions};
use crate::error::SqlError;
use crate::outcome::Notice;
use crate::statement::Definition;

/// The tables of a database, seen through SQL.
///
/// Tables are there under their names, whoever has made them. What SQL alone knows of those that it has made (lengths of texts, defaults) is kept in
/// the database; the columns of others have the types that hold their values.
pub struct SqlDatabase<P: Protocol> {
    pub(crate) protocol: Arc<P>,
    /// Replaced in one step: no transaction is waited for while it is locked.
    catalog: RwLock<Arc<Catalog>>,
    /// How often that was done, behind a number that other databases do not have.
    version: AtomicU64,
    /// Held by a definition while it is made.
    defining: Mutex<()>,
}

impl<P: Protocol> std::fmt::Debug for SqlDatabase<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SqlDatabase").finish_non_exhaustive()
    }
}

impl<P: Protocol> SqlDatabase<P> {
    /// The database of this protocol.
    pub fn open(protocol: Arc<P>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let catalog = RwLock::new(Arc::new(Catalog::of(this.clone())));
            let version = AtomicU64::new(u64::from(new_number()) << 32);
            Self { protocol, catalog, version, defining: Mutex::default() }
        })
    }

    /// The protocol.
    pub fn protocol(&self) -> &Arc<P> {
        &self.protocol
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, change: impl FnOnce(&Catalog) -> Catalog) {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        *catalog = Arc::new(change(&catalog));
        // Release: pairs with `version`, whose caller looks at the catalog behind it.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes with the catalog, and no other database has. What is bound to a catalog that is looked at behind it is as new as the number, at least.
    pub(crate) fn version(&self) -> u64 {
        // Acquire: pairs with `replace`.
        self.version.load(Ordering::Acquire)
    }

    /// Forgets the tables that were dropped in another way than through this object: their names may stand for others now.
    pub(crate) fn forget_dropped(&self) {
        let storage = self.protocol.storage();
        self.replace(|catalog| catalog.retaining(|table| storage.find_table(&table.name) == Some(table.id)));
    }

    /// Makes a definition; what the client is to know of it is the answer.
    pub(crate) fn define(&self, definition: Definition) -> Result<Vec<Notice>, SqlError> {
        let _one_at_a_time = self.defining.lock().unwrap_or_else(PoisonError::into_inner);
        match definition {
            Definition::CreateTable(new) => self.create_table(new).map(|()| Vec::new()),
            Definition::CreateIndex(table, index) => {
                self.protocol.create_index(table.id, index).map_err(SqlError::of_engine)?;
                let described = self.of_engine(&table.name)?.map(|new| new.described(table.description()));
                described.into_iter().for_each(|new| self.replace(|catalog| catalog.with(new.into())));
                Ok(Vec::new())
            }
            Definition::DropTables { tables, notices } => {
                tables.iter().try_for_each(|table| self.drop_table(table))?;
                Ok(notices)
            }
        }
    }

    fn create_table(&self, NewTable { definition, description }: NewTable) -> Result<(), SqlError> {
        let (name, storage) = (definition.name.clone(), self.protocol.storage());
        if storage.find_table(&name).is_some() {
            return Err(crate::catalog::taken(&name));
        }
        let definitions = Definitions::make(&self.protocol)?;
        definitions.write(&name, &description)?;
        if let Err(error) = storage.create_table(definition, Standing::Permanent) {
            definitions.remove(&name)?;
            return Err(SqlError::of_engine(error));
        }
        let described = self.of_engine(&name)?.map(|new| new.described(description));
        described.into_iter().for_each(|new| self.replace(|catalog| catalog.with(new.into())));
        Ok(())
    }

    fn drop_table(&self, table: &Table) -> Result<(), SqlError> {
        self.protocol.drop_table(table.id).map_err(SqlError::of_engine)?;
        self.replace(|catalog| catalog.retaining(|other| other.id != table.id));
        Definitions::find(&self.protocol)?.map_or(Ok(()), |definitions| definitions.remove(&table.name))
    }

    /// A table as the engine alone knows it.
    fn of_engine(&self, name: &str) -> Result<Option<Table>, SqlError> {
        let storage = self.protocol.storage();
        let Some(id) = storage.find_table(name).filter(|_| name != definitions::NAME) else { return Ok(None) };
        let definition = storage.definition(id).map_err(SqlError::of_engine)?;
        let mut ids = Vec::new();
        for index in &definition.indexes {
            // One that is dropped at this time is not among them, and neither is its definition.
            let Some(found) = storage.find_index(id, &index.name).map_err(SqlError::of_engine)? else {
                return self.of_engine(name);
            };
            ids.push(found);
        }
        Table::of_engine(id, &definition, &ids).map(Some)
    }
}

impl<P: Protocol> Source for SqlDatabase<P> {
    fn names(&self) -> Result<Vec<String>, SqlError> {
        Definitions::find(&self.protocol)?.map_or(Ok(Vec::new()), |definitions| definitions.names())
    }

    fn find(&self, name: &str) -> Result<Option<Arc<Table>>, SqlError> {
        let Some(table) = self.of_engine(name)? else { return Ok(None) };
        let known = match Definitions::find(&self.protocol)? {
            Some(definitions) => definitions.read(&table)?,
            None => None,
        };
        let table = Arc::new(match known {
            Some(description) => table.described(description),
            None => table,
        });
        self.replace(|catalog| catalog.with(table.clone()));
        Ok(Some(table))
    }
}
