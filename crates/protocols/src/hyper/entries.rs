//! Records as the row layer of the engine wants them. An entry of a secondary index has the number of its row; one whose key changes is
//! deleted and inserted anew (§2.5 of the paper).

use std::ops::{ControlFlow, Range};

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, TableId};
use polychron_engine::aggregate::{Group, Grouping};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit, watch_scan};
use polychron_engine::stores::Hints;
use polychron_engine::{ColumnBatch, Projection, Queries, RowVisitor, Scan, batch};
use polychron_schema::{Changes, ColumnSet, RowBuffer, RowRef};

use super::columns::comes_in_slot_ranges;
use super::rows::Record;
use super::steps::Step;
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;
use super::view::view;
use super::writes::{Conflict, NewRow};

/// A record that shows a row, which is in the row buffer.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow<'t>(pub(super) Record<'t>);

/// The words of an entry: the number of its row's slot.
#[inline]
pub(super) fn entry_words(row: u64, buffer: &mut RowBuffer) -> &[u64] {
    let words = buffer.overwrite_words(1);
    words[0] = row;
    words
}

impl<'w> Primitives<'w> for HyperTransaction<'w> {
    type Store = Relation;
    type Found = FoundRow<'w>;
    /// The number of the row.
    type Link = u64;

    #[inline]
    fn tables(&self) -> &Seen<HyperTable> {
        &self.state.base.tables
    }

    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.step()?;
        let outcome = operation(self);
        self.rest();
        outcome
    }

    #[inline]
    fn flags(&self) -> Flags {
        Flags { read_only: self.snapshot, doomed: self.doomed }
    }

    #[inline(always)]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Relation, K>, lookup: Lookup<'_>) -> Finding<FoundRow<'w>> {
        let Lookup { projection, intent } = lookup;
        if matches!(intent, Intent::Read | Intent::ReadUnprotected) {
            if intent == Intent::Read && at.store.index_ref().index == IndexId::PRIMARY {
                self.log_point(at.store.index_ref().table, at.key, projection.columns);
            }
            return self.read(at.store, at.key, projection).map(|found| found.map(FoundRow));
        }
        let Some((record, seen)) = self.find_seen(at.store, at.key, projection) else {
            self.log_point(at.store.index_ref().table, at.key, ColumnSet::EMPTY);
            return Ok(None);
        };
        // SAFETY: the before-image was found just above, under the guard.
        let newest = seen.version.map(|before_image| unsafe { before_image.under(&self.guard) });
        match self.check_version(newest, seen.all_visible) {
            Ok(()) => Ok(Some(FoundRow(record))),
            Err(conflict) => {
                self.state.base.contested.note(record);
                Err(self.refuse(conflict, at.store, at.key))
            }
        }
    }

    #[inline]
    fn row(&self, _: FoundRow<'w>) -> RowRef<'_> {
        self.state.buffers.row.as_row()
    }

    #[inline(always)]
    fn copy(&mut self, table: &'w HyperTable, _: FoundRow<'w>, _: &Projection) -> Box<RowBuffer> {
        if self.logs() {
            self.state.log.begin_to_show(table.id);
        }
        let spare = self.buffers().take_changing();
        std::mem::replace(&mut self.state.buffers.row, spare)
    }

    fn copy_whole<K: EncodedKey>(
        &mut self,
        _: At<'w, Relation, K>,
        FoundRow(record): FoundRow<'w>,
        row: &mut RowBuffer,
    ) -> Result<(), Error> {
        self.see(record, &Projection::ALL);
        row.copy_from(self.state.buffers.row.as_bytes());
        Ok(())
    }

    #[inline(always)]
    fn has_looked<K: EncodedKey>(&mut self, at: At<'w, Relation, K>, projection: &Projection, has_changed: bool) {
        if self.logs() {
            self.state.log.has_shown();
        }
        // If nothing is written, nothing but a predicate protects what was looked at.
        if !has_changed && !left_out(Step::LogLooks) {
            self.log_point(at.table.id, at.key, projection.columns);
        }
    }

    #[inline(always)]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Relation, K>,
        Rewrite { found: FoundRow(record), row, changes }: Rewrite<'_, FoundRow<'w>>,
    ) -> Result<(), Error> {
        let fragments = word_fragments(at.table, changes);
        let new = NewRow { words: row.as_words(), columns: changes.columns(), whole: changes.whole_row() };
        self.write(&at.table.primary, record, at.key, new, fragments)
    }

    #[inline(always)]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Relation, K>, words: &[u64]) -> Result<Option<u64>, Error> {
        Ok(self.insert_record(at.store, at.key, words)?.map(Record::id))
    }

    #[inline]
    fn link(&self, FoundRow(record): FoundRow<'w>) -> u64 {
        record.id()
    }

    fn put<K: EncodedKey>(&mut self, at: At<'w, Relation, K>, words: &[u64]) -> Result<(), Error> {
        let store = &at.table.primary;
        if let Some((record, _)) = self.find_seen(at.store, at.key, &Projection::NONE) {
            let fragments = std::iter::once(0..store.rows.words());
            return self.write(
                at.store,
                record,
                at.key,
                NewRow { words, columns: ColumnSet::ALL, whole: true },
                fragments,
            );
        }
        match self.insert_record(at.store, at.key, words)? {
            Some(_) => Ok(()),
            None => Err(self.refuse(Conflict { reason: Reason::InsertedFirst, stamp: 0 }, at.store, at.key)),
        }
    }

    #[inline(always)]
    fn delete<K: EncodedKey>(&mut self, at: At<'w, Relation, K>, FoundRow(record): FoundRow<'w>) -> Result<(), Error> {
        self.erase(at.store, record, at.key)
    }

    #[inline]
    fn entry<'b>(&self, row: u64, _primary: &[u8], buffer: &'b mut RowBuffer) -> &'b [u64] {
        entry_words(row, buffer)
    }

    fn delete_entry(&mut self, at: At<'w, Relation, &[u8]>) -> Result<(), Error> {
        match self.find_shown(at.store, at.key, &mut []) {
            Some(entry) => self.erase(at.store, entry, at.key),
            None => Ok(()),
        }
    }

    fn check_present<K: EncodedKey>(&mut self, at: At<'w, Relation, K>) -> Result<(), Error> {
        if !left_out(Step::LogDuplicates) {
            self.log_point(at.table.id, at.key, ColumnSet::EMPTY);
        }
        Ok(())
    }

    fn check_taken(&mut self, at: At<'w, Relation, &[u8]>, _primary: &[u8]) -> Result<(), Error> {
        if at.store.is_dropped() {
            // The row may have gone, and its entry not.
            return Err(self.conflict(Reason::Inconsistent, at.store.index_ref(), Some(at.key)));
        }
        if !left_out(Step::LogDuplicates) {
            self.log_key(at.table, at.store.index_ref().index, at.key);
        }
        Ok(())
    }

    /// The before-images of its entries are gone, and it never had one of its own.
    #[cold]
    fn has_refused<K: EncodedKey>(&mut self, at: At<'w, Relation, K>) {
        if !left_out(Step::LogRefused) {
            self.log_point(at.table.id, at.key, ColumnSet::ALL);
        }
    }

    fn lock<K: EncodedKey>(&mut self, at: At<'w, Relation, K>) -> Result<(), Error> {
        self.lock_row(at.store, at.key)
    }

    /// The row is written with nothing changed.
    fn hold_filled(&mut self, at: At<'w, Relation, &[u8]>, FoundRow(record): FoundRow<'w>) -> Result<(), Error> {
        if left_out(Step::LockFilledRows) {
            return Ok(());
        }
        let same = NewRow { words: &[], columns: ColumnSet::EMPTY, whole: false };
        self.write(&at.table.primary, record, at.key, same, std::iter::empty())
    }

    fn follow(&mut self, table: &'w HyperTable, entry: FoundRow<'w>, projection: &Projection) -> Finding<FoundRow<'w>> {
        let mut leads_to = [0];
        if !view(entry.0, 0..1, &mut leads_to, (self.start, self.id), &self.guard).present {
            return Ok(None);
        }
        // An entry that is visible has the number of a row of the primary index that is.
        let row = table.primary.rows.find(leads_to[0]).filter(|row| self.see(*row, projection).present);
        debug_assert!(row.is_some(), "an entry leads to a row");
        Ok(row.map(FoundRow))
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Relation, V>) -> Result<(), Error> {
        self.visit_rows(visit)
    }

    fn set_mark(&mut self) -> usize {
        self.state.writing.len()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_before_images(mark);
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }

    /// A snapshot is in no epoch between two operations, so nothing that one finds may be used by the next.
    #[inline]
    fn hints(&mut self) -> Option<&mut Hints> {
        (!self.snapshot).then_some(&mut self.state.base.hints)
    }

    #[inline]
    fn are_on_their_way(&self) -> bool {
        self.state.base.hints.has_declared()
    }

    #[inline]
    fn protect_all_reads(&mut self, protect: bool) {
        self.protects = protect && !left_out(Step::ProtectParents);
    }
}

impl Queries for HyperTransaction<'_> {
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl RowVisitor,
    ) -> Result<(), Error> {
        self.operate(|this| {
            // SAFETY: the guard stands for as long as the transaction.
            let known = unsafe { this.state.base.tables.table_during(table)? };
            this.visit_slots(known, projection, visitor)?;
            watch_scan(this, &Scan::all(table))
        })
    }

    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        self.operate(|this| this.aggregate_logged(scan, grouping))
    }

    fn visit_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.operate(|this| {
            // SAFETY: as above.
            let table = unsafe { this.state.base.tables.table_during(scan.table)? };
            if !comes_in_slot_ranges(scan, &table.layout, columns) {
                return batch::over_rows(this, scan, columns, look, keep);
            }
            this.visit_slot_ranges(table, scan, columns, look, keep)?;
            watch_scan(this, scan)
        })
    }
}

impl<'w> HyperTransaction<'w> {
    /// Logs that a key of an index was seen to lead to a row, or to none.
    pub(super) fn log_key(&mut self, table: &HyperTable, index: IndexId, key: &[u8]) {
        if self.logs() {
            self.state.log.key(table.id, index, key);
        }
    }
}

/// The words that changes touch.
#[inline]
fn word_fragments(table: &HyperTable, changes: Changes) -> impl Iterator<Item = Range<usize>> + Clone {
    let fixed_bytes = table.primary.rows.words() * 8;
    changes.runs(&table.layout, fixed_bytes).map(|bytes| bytes.start / 8..bytes.end / 8)
}
