//! Which table an index belongs to.

use std::sync::{Arc, Weak};

use super::{Catalog, Table};
use crate::error::SqlError;
use crate::names::Name;

impl Catalog {
    /// Whether an object, or an index of a table, has this name.
    pub(crate) fn is_taken(&self, name: &Name) -> Result<bool, SqlError> {
        Ok(self.object(name)?.is_some() || self.index_owner(name)?.is_some())
    }

    /// The table that has an index of this name. Where none of those that were named has it, the others are looked at.
    pub(crate) fn index_owner(&self, name: &Name) -> Result<Option<Arc<Table>>, SqlError> {
        let has_index = |table: &&Arc<Table>| {
            table.name.schema() == name.schema() && table.indexes.iter().any(|index| index.name == name.plain())
        };
        if let Some(table) = self.tables().find(has_index) {
            return Ok(Some(table.clone()));
        }
        let may_be = !self.knows_all && !name.is_temporary();
        let source = self.source.as_ref().and_then(Weak::upgrade).filter(|_| may_be);
        let Some(source) = source else { return Ok(None) };
        let all = source.know_all()?;
        // What is known here may have changed.
        let is_other = |table: &Table| !self.objects.contains_key(&table.name) && !self.gone.contains(&table.name);
        Ok(all.tables().find(|table| has_index(table) && is_other(table)).cloned())
    }

    /// Whether all objects are here that SQL has made.
    pub(crate) fn knows_all(&self) -> bool {
        self.knows_all
    }

    /// The same, which are all that there are.
    #[must_use]
    pub(crate) fn knowing_all(&self) -> Self {
        Self { knows_all: true, ..self.next() }
    }
}
