//! The definitions that a log stores, and the tables that are made from them: `docs/durability.md`, "Catalog".

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};

use super::{Catalog, Described, TableList, slot_of};
use crate::definitions::{Standing, StoredCatalog, StoredTable};
use crate::mutations::left_out;
use crate::redo;
use crate::stores::IndexRef;

/// Tables and indexes that end with the process: they are in no stored catalog.
#[derive(Clone, Debug)]
pub(super) struct Provisional {
    pub(super) tables: Vec<TableId>,
    /// Also those that are being filled.
    pub(super) indexes: Vec<IndexRef>,
}

impl Provisional {
    pub(super) const NONE: Self = Self { tables: Vec::new(), indexes: Vec::new() };

    /// A table has gone.
    pub(super) fn forget(&mut self, gone: TableId) {
        self.tables.retain(|table| *table != gone);
        self.indexes.retain(|index_ref| index_ref.table != gone);
    }
}

impl<T: Described> TableList<T> {
    /// The part of this that a log stores.
    fn stored(&self) -> Result<StoredCatalog, Error> {
        let tables = self.iter().flatten().map(|table| {
            let id = table.id();
            let (indexes, last_index) = table.index_ids();
            let is_provisional = self.provisional.tables.contains(&id);
            let standing = if is_provisional { Standing::Provisional } else { Standing::Permanent };
            let stored = StoredTable { definition: Arc::clone(table.definition()), indexes, last_index, standing };
            let provisional = self.provisional.indexes.iter().filter(|index_ref| index_ref.table == id);
            let provisional: Vec<_> = provisional.map(|index_ref| index_ref.index).collect();
            (id.position() as u32, stored.without(&provisional))
        });
        Ok(StoredCatalog::new(self.next, tables.collect())?)
    }

    /// The same tables and one more at this position, behind all others.
    fn push(&mut self, table: T) {
        let id = table.id();
        let mut slots = (2 * (self.iter().flatten().count() + 1)).next_power_of_two().max(self.len());
        *self = loop {
            if let Some(mut spread) = self.spread(slots).filter(|spread| spread[slot_of(id, slots)].is_none()) {
                *spread.slot(id) = Some(Arc::new(table));
                break spread;
            }
            slots *= 2;
        };
        self.next = id.position() as u32 + 1;
    }
}

impl<T: Described> Catalog<T> {
    /// Tells the log, if there is one, of a list that is to take the place of the present one, unless both are the same to it.
    pub(super) fn define(&self, present: &TableList<T>, changed: &TableList<T>) -> Result<(), Error> {
        if self.journal.is_empty() {
            return Ok(());
        }
        let stored = changed.stored()?;
        if present.stored().is_ok_and(|present| present == stored) { Ok(()) } else { self.journal.define(&stored) }
    }

    /// Puts `change`'s answer in the place of a table: the same one with one more index, which is provisional.
    ///
    /// # Errors
    /// As [`Catalog::replace`], or what the log answers.
    pub fn add_index<O>(
        &self,
        id: TableId,
        change: impl FnOnce(&T) -> Result<(T, (IndexId, O)), Error>,
    ) -> Result<(IndexId, O), Error> {
        let (alone, present) = self.change();
        let (table, (index, output)) = change(present.get(id)?)?;
        let mut changed = present.copy();
        *changed.slot(id) = Some(Arc::new(table));
        // Without a log nothing outlives the process.
        if !self.journal.is_empty() {
            changed.provisional.indexes.push(IndexRef { table: id, index });
        }
        self.publish(alone, &present, changed, || ())?;
        Ok((index, output))
    }

    /// Puts `change`'s answer in the place of a table: the same one without this index. `going` is given what else `change` answers, before anybody can
    /// know that.
    ///
    /// # Errors
    /// As [`Catalog::add_index`].
    pub fn remove_index<O>(
        &self,
        index_ref: IndexRef,
        change: impl FnOnce(&T) -> Result<(T, O), Error>,
        going: impl FnOnce(O),
    ) -> Result<(), Error> {
        let (alone, present) = self.change();
        let (table, output) = change(present.get(index_ref.table)?)?;
        let mut changed = present.copy();
        *changed.slot(index_ref.table) = Some(Arc::new(table));
        changed.provisional.indexes.retain(|other| *other != index_ref);
        self.publish(alone, &present, changed, || going(output))
    }

    /// An index is permanent from now on, if it is still there.
    ///
    /// # Errors
    /// The log's answer.
    pub fn keep_index(&self, index_ref: IndexRef) -> Result<(), Error> {
        let (alone, present) = self.change();
        if !present.provisional.indexes.contains(&index_ref) || left_out(redo::Step::DefineFilled) {
            return Ok(());
        }
        let mut changed = present.copy();
        changed.provisional.indexes.retain(|other| *other != index_ref);
        self.publish(alone, &present, changed, || ())
    }

    /// A table is permanent from now on.
    ///
    /// # Errors
    /// The log's answer.
    pub fn keep_table(&self, id: TableId) -> Result<(), Error> {
        let (alone, present) = self.change();
        if !present.provisional.tables.contains(&id) {
            return Ok(());
        }
        let mut changed = present.copy();
        changed.provisional.tables.retain(|table| *table != id);
        self.publish(alone, &present, changed, || ())
    }

    /// Makes the permanent ones of these tables in a list that has had none; the log is told nothing. `make` is given a table and its id, and shown the
    /// tables so far; it answers also with what takes the place of some.
    ///
    /// # Errors
    /// [`Error::Definition`] where the database has had tables, or what `make` answers.
    pub fn restore(
        &self,
        stored: &StoredCatalog,
        mut make: impl FnMut(TableId, &StoredTable, &[Option<Arc<T>>]) -> Result<(T, Vec<(TableId, T)>), Error>,
    ) -> Result<(), Error> {
        let (_alone, present) = self.change();
        if present.next > 0 {
            return Err(Error::definition("tables are restored in an empty database"));
        }
        let mut restored = present.copy();
        // Parents have lower positions than their children, because foreign keys come with a table.
        for (position, table) in stored.permanent().tables() {
            let (table, replaced) = make(TableId::new(self.database, *position), table, &restored)?;
            restored.push(table);
            for (other, table) in replaced {
                *restored.slot(other) = Some(Arc::new(table));
            }
        }
        restored.next = stored.next();
        self.put(self.lists(), restored);
        Ok(())
    }
}
