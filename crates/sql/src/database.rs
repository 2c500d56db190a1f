//! A database as SQL has it: its tables, and their definitions.

use std::sync::{Arc, PoisonError, RwLock};

use polychron_engine::Protocol;
use polychron_engine::definitions::Standing;

use crate::bind::NewTable;
use crate::catalog::{Catalog, Column, Table};
use crate::error::{SqlError, SqlState};
use crate::statement::Definition;

/// The tables of a database, seen through SQL.
///
/// Tables that exist are there under their names, with columns of the types that hold their values. What SQL alone knows of the tables it has made (lengths of
/// texts, defaults) is kept in memory.
pub struct SqlDatabase<P: Protocol> {
    pub(crate) protocol: Arc<P>,
    catalog: RwLock<Arc<Catalog>>,
}

impl<P: Protocol> std::fmt::Debug for SqlDatabase<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SqlDatabase").finish_non_exhaustive()
    }
}

impl<P: Protocol> SqlDatabase<P> {
    /// The database of this protocol.
    pub fn new(protocol: Arc<P>) -> Arc<Self> {
        Arc::new(Self { protocol, catalog: RwLock::default() })
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a definition, and tells its tag.
    pub(crate) fn define(&self, definition: Definition) -> Result<(), SqlError> {
        match definition {
            Definition::CreateTable(NewTable { definition, columns }) => self.replace(
                |protocol, catalog| {
                    let name = definition.name.clone();
                    catalog.check_free(&name)?;
                    let storage = protocol.storage();
                    storage.create_table(definition, Standing::Permanent).map_err(SqlError::of_engine)?;
                    Self::describe(protocol, &name, Some(columns)).map(Some)
                },
                &[],
            ),
            Definition::CreateIndex(table, index) => self.replace(
                |protocol, _| {
                    protocol.create_index(table.id, index).map_err(SqlError::of_engine)?;
                    Self::describe(protocol, &table.name, Some(table.columns.clone())).map(Some)
                },
                &[],
            ),
            Definition::DropTables { tables } => self.replace(
                |protocol, _| {
                    let dropped = tables.iter().try_for_each(|table| protocol.drop_table(table.id));
                    dropped.map_err(SqlError::of_engine)?;
                    Ok(None)
                },
                &tables,
            ),
        }
    }

    /// Replaces the catalog, once `change` has changed the tables; two definitions at a time wait for each other.
    fn replace(
        &self,
        change: impl FnOnce(&P, &Catalog) -> Result<Option<Table>, SqlError>,
        gone: &[Arc<Table>],
    ) -> Result<(), SqlError> {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let new = change(&self.protocol, &catalog)?;
        *catalog = Arc::new(catalog.with(new, gone));
        Ok(())
    }

    /// A table of the engine, with the columns as SQL has them where it knows more.
    fn describe(protocol: &P, name: &str, columns: Option<Vec<Column>>) -> Result<Table, SqlError> {
        let storage = protocol.storage();
        let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        let id = storage.find_table(name).ok_or_else(missing)?;
        let definition = storage.definition(id).map_err(SqlError::of_engine)?;
        let ids = definition.indexes.iter().map(|it| {
            let found = storage.find_index(id, &it.name).map_err(SqlError::of_engine)?;
            found.ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("index \"{}\" does not exist", it.name))
            })
        });
        let ids = ids.collect::<Result<Vec<_>, SqlError>>()?;
        let mut table = Table::of_engine(id, &definition, &ids)?;
        if let Some(columns) = columns {
            table.columns = columns;
        }
        Ok(table)
    }

    /// Makes a table of the engine known to SQL under its own name.
    ///
    /// # Errors
    /// There is no such table, or one of its columns is of a type that SQL has not.
    pub fn import(&self, name: &str) -> Result<(), SqlError> {
        self.replace(|protocol, _| Self::describe(protocol, name, None).map(Some), &[])
    }
}
