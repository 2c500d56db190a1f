//! Records as the row layer of the engine wants them. An entry of a secondary index is a record like any other (§4.4).

use std::ops::ControlFlow;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::rows::{At, Buffers, Intent, Primitives, Visit, follow_key};
use polychron_engine::stores::{key_in_entry, words_of};
use polychron_engine::{LazyFutures, Prefetch, Projection, Queries};
use polychron_schema::{Changes, RowBuffer, RowRef};

use super::aside::Kept;
use super::sets::Kind;
use super::table::{MaflingoTable, Store};
use super::transaction::MaflingoTransaction;

/// Sets up to this length are validated before a procedure is told of a duplicate.
const SMALL_SETS: usize = 256;

/// A record that has a row, which is in the row buffer. The row layer gives it back to the transaction that found it, in the same operation
/// ([`Primitives::Found`]).
#[derive(Clone, Copy, Debug)]
pub struct FoundRow(Kept);

impl<'w> Primitives<'w> for MaflingoTransaction<'w> {
    type Store = Store;
    type Found = FoundRow;
    type Link = ();

    #[inline]
    fn tables(&self) -> &Seen<MaflingoTable> {
        &self.state.base.tables
    }

    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.work(|this| {
            this.step()?;
            operation(this)
        })
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.read_only
    }

    #[inline]
    fn is_doomed(&self) -> bool {
        self.doomed
    }

    #[inline(always)]
    fn find<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        projection: &Projection,
    ) -> Result<Option<FoundRow>, Error> {
        Ok(self.find(at.store, at.key, words_of(projection)).map(FoundRow))
    }

    fn find_unprotected<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        projection: &Projection,
    ) -> Result<Option<FoundRow>, Error> {
        let (reads, nodes) = (self.state.sets.reads.len(), self.state.sets.nodes.len());
        let found = self.find(at.store, at.key, words_of(projection));
        self.state.note_reads(reads, self.shared.base.catalog.number());
        self.state.sets.reads.truncate(reads);
        self.state.sets.nodes.truncate(nodes);
        Ok(found.map(FoundRow))
    }

    #[inline(always)]
    fn find_to_write<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        projection: &Projection,
        _: Intent,
    ) -> Result<Option<FoundRow>, Error> {
        Ok(self.find(at.store, at.key, words_of(projection)).map(FoundRow))
    }

    #[inline]
    fn row(&self, _: FoundRow) -> RowRef<'_> {
        self.state.buffers.row.as_row()
    }

    #[inline(always)]
    fn copy(&mut self, _: &'w MaflingoTable, _: FoundRow, _: &Projection) -> Box<RowBuffer> {
        let spare = self.state.buffers.spare.take().unwrap_or_default();
        std::mem::replace(&mut self.state.buffers.row, spare)
    }

    #[inline(always)]
    fn give_back(&mut self, buffer: Box<RowBuffer>) {
        self.state.buffers.spare = Some(buffer);
    }

    /// The row is read again, whole; validation finds out if it was another one before.
    fn copy_whole<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        FoundRow(record): FoundRow,
        row: &mut RowBuffer,
    ) -> Result<(), Error> {
        if self.find(&at.table.primary, at.key, 0..usize::MAX) != Some(record) {
            return Err(self.conflict_at(Reason::StaleRead, at.table.primary.index_ref, record));
        }
        row.copy_from(self.state.buffers.row.as_bytes());
        Ok(())
    }

    #[inline(always)]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        FoundRow(record): FoundRow,
        row: &mut RowBuffer,
        changes: Changes,
    ) -> Result<(), Error> {
        let (index_ref, writes) = (at.table.primary.index_ref, &mut self.state.sets.writes);
        if changes.whole_row() {
            let data = writes.keep(row.as_words());
            self.push_write(record, index_ref, Kind::Put, at.key, 0, data);
            return Ok(());
        }
        let words = words_of(&changes.bounding_range());
        let data = writes.keep(&row.as_words()[words.clone()]);
        self.push_write(record, index_ref, Kind::Patch, at.key, words.start, data);
        if self.state.sets.writes.is_much_patched(record) {
            self.write_whole_row(at.table, at.key, record)
        } else {
            Ok(())
        }
    }

    #[inline(always)]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Store, K>, words: &[u64]) -> Result<Option<()>, Error> {
        Ok(self.insert_record(at.store, at.key, words)?.then_some(()))
    }

    #[inline]
    fn link(&self, _: FoundRow) {}

    fn put<K: EncodedKey>(&mut self, at: At<'w, Store, K>, words: &[u64]) -> Result<(), Error> {
        self.put_record(at.store, at.key, words)
    }

    #[inline(always)]
    fn delete<K: EncodedKey>(&mut self, at: At<'w, Store, K>, FoundRow(record): FoundRow) -> Result<(), Error> {
        self.push_write(record, at.store.index_ref, Kind::Delete, at.key, 0, Default::default());
        Ok(())
    }

    fn check_present<K: EncodedKey>(&mut self, _: At<'w, Store, K>) -> Result<(), Error> {
        self.check_small_sets()
    }

    /// An entry that leads to the row itself is no duplicate, whether or not the index is unique: it is of a state in which the row had the
    /// key already.
    fn check_taken(&mut self, at: At<'w, Store, &[u8]>, primary: &[u8]) -> Result<(), Error> {
        let found = self.find(at.store, at.key, 0..usize::MAX);
        if found.is_none() || key_in_entry(self.state.buffers.row.as_words()) == primary {
            return Err(self.conflict_over(
                Reason::Inconsistent,
                at.store.index_ref,
                None,
                Some(KeyPreview::new(primary)),
            ));
        }
        self.check_small_sets()
    }

    fn follow(
        &mut self,
        table: &'w MaflingoTable,
        entry: FoundRow,
        projection: &Projection,
    ) -> Result<Option<FoundRow>, Error> {
        let found = follow_key(self, table, entry, projection)?;
        if found.is_none() {
            // The entry and the row did not are mutually consistent; validation would find that out too.
            debug_assert!(self.snapshot.is_none(), "a snapshot is consistent");
            let key = KeyPreview::new(self.state.base.rows.followed_key());
            return Err(self.conflict_over(Reason::Inconsistent, table.primary.index_ref, None, Some(key)));
        }
        Ok(found)
    }

    fn scan<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        visit: &mut Visit<'_, 'w, Store, V>,
    ) -> Result<(), Error> {
        let (scan, store, words) = (visit.scan, visit.store()?, words_of(visit.wanted()));
        self.scan_entries(scan, store, words, &mut |this, record| visit.record(this, FoundRow(record)))
    }

    fn set_mark(&mut self) -> usize {
        self.state.sets.writes.len()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        if mark < self.state.sets.writes.len() {
            self.undo_writes(mark);
        }
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }
}

impl Queries for MaflingoTransaction<'_> {}

impl LazyFutures for MaflingoTransaction<'_> {}

impl Prefetch for MaflingoTransaction<'_> {
    /// Keeps the key. Lookups follow when the first row is asked for, so that those of several keys overlap, and so do the misses on their
    /// records. What they find stays as a hint, and the key is not looked up again.
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if self.snapshot.is_none() {
            self.state.base.hints.ask(table, key);
        }
    }

    #[inline]
    fn has_prefetched(&self) -> bool {
        self.state.base.hints.has_declared()
    }
}

impl MaflingoTransaction<'_> {
    /// Puts one whole row on top of the patches of a record, so that reading an own write goes back over a few of them, however often
    /// the row is changed. What is read of the record itself was read under protection before its first patch.
    #[cold]
    fn write_whole_row<K: EncodedKey>(&mut self, table: &MaflingoTable, key: K, record: Kept) -> Result<(), Error> {
        let index_ref = table.primary.index_ref;
        let latest = self.state.sets.writes.latest(record);
        let (reader, state) = self.reader();
        let own = record.under(reader.guard);
        if !latest.is_some_and(|latest| state.read_own(own, latest, 0..usize::MAX).present) {
            // There was a row when it was patched.
            return Err(self.conflict_at(Reason::StaleRead, index_ref, record));
        }
        let data = self.state.sets.writes.keep(self.state.buffers.row.as_words());
        self.push_write(record, index_ref, Kind::Put, key, 0, data);
        Ok(())
    }

    /// Validates what was read, where that takes few steps: answers that end most procedures are not given on a stale read. What large
    /// transactions were told is validated at their end, like everything else.
    #[cold]
    fn check_small_sets(&mut self) -> Result<(), Error> {
        let sets = &self.state.sets;
        if sets.reads.len() + sets.nodes.len() <= SMALL_SETS { self.validate().map(|_| ()) } else { Ok(()) }
    }
}
