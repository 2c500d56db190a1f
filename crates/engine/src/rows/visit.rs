//! Scans: which records are rows that are wanted, and to which rows entries lead.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::{Error, IndexId};
use polychron_schema::{ColumnSpan, Layout, Projection, RowRef};

use super::{At, Finding, Lookup, Primitives};
use crate::stores::{Keyed, StoreTable, key_in_entry};
use crate::{RowVisitor, Scan};

/// A scan on its way: which rows are wanted, how many more, and by whom.
#[derive(Debug)]
pub struct Visit<'v, 't, S, V> {
    /// The scan.
    pub scan: &'v Scan<'v>,
    /// The table whose rows are wanted.
    pub table: &'t StoreTable<S>,
    /// The columns that are looked at of a row: those that the visitor wants, and those of the restrictions.
    pub projection: Projection,
    left: usize,
    visitor: &'v mut V,
}

impl<'v, 't, S: Keyed + 'static, V: RowVisitor> Visit<'v, 't, S, V> {
    #[inline]
    pub(super) fn new(scan: &'v Scan<'v>, table: &'t StoreTable<S>, visitor: &'v mut V) -> Self {
        let projection = with_restricted(scan, &table.layout);
        Self { scan, table, projection, left: scan.limit, visitor }
    }

    /// The index that is scanned.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    #[inline]
    pub fn store(&self) -> Result<&'t Arc<S>, Error> {
        self.table.store(self.scan.index)
    }

    /// The columns that are looked at of a record of the index: all of an entry.
    #[inline]
    pub fn wanted(&self) -> &Projection {
        if self.scan.index == IndexId::PRIMARY { &self.projection } else { &Projection::ALL }
    }

    /// Visits the row of a record that the scan has come to.
    #[inline]
    pub fn record<P: Primitives<'t, Store = S>>(
        &mut self,
        transaction: &mut P,
        found: P::Found,
    ) -> Result<ControlFlow<()>, Error> {
        if self.scan.index == IndexId::PRIMARY {
            Ok(self.row(transaction.row(found)))
        } else {
            self.entry(transaction, found)
        }
    }

    /// Visits the row to which an entry leads. Beside this, which is long, the visit of a row is short.
    #[inline(never)]
    fn entry<P: Primitives<'t, Store = S>>(
        &mut self,
        transaction: &mut P,
        found: P::Found,
    ) -> Result<ControlFlow<()>, Error> {
        let row = transaction.follow(self.table, found, &self.projection)?;
        Ok(row.map_or(ControlFlow::Continue(()), |row| self.row(transaction.row(row))))
    }

    /// Shows a row to the visitor, if it is one of those that are wanted.
    #[inline]
    pub fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        if !self.scan.restrictions.iter().all(|restriction| restriction.holds(&self.table.layout, row)) {
            return ControlFlow::Continue(());
        }
        self.left -= 1;
        let flow = (self.visitor)(row);
        if self.left == 0 { ControlFlow::Break(()) } else { flow }
    }
}

/// The columns that are wanted, with those that restrictions look at.
fn with_restricted(scan: &Scan<'_>, layout: &Layout) -> Projection {
    scan.restrictions.iter().fold(scan.projection, |projection, restriction| {
        let column = &layout.columns()[restriction.column];
        projection.with(ColumnSpan { index: restriction.column as u16, slot: column.slot })
    })
}

/// As [`Primitives::follow`] of entries that have a primary key: looks it up. `None` is told of a key without a row.
pub fn follow_key<'t, P: Primitives<'t>>(
    transaction: &mut P,
    table: &'t StoreTable<P::Store>,
    entry: P::Found,
    projection: &Projection,
) -> Finding<P::Found> {
    // What finds the row may overwrite where the entry lies.
    let mut words = std::mem::take(&mut transaction.buffers().entry);
    words.copy_from(transaction.row(entry).as_bytes());
    let found = transaction.find(At::row(table, key_in_entry(words.as_words())), Lookup::to_read(projection));
    transaction.buffers().entry = words;
    found
}
