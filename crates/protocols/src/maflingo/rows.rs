//! Records as the row layer of the engine wants them. An entry of a secondary index is a record like any other (§4.4).

use std::ops::Range;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::catalog::Seen;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit, follow_key};
use polychron_engine::stores::{Hints, key_in_entry, words_of};
use polychron_engine::{Projection, Queries, RowVisitor};
use polychron_schema::{RowBuffer, RowRef};

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
    fn flags(&self) -> Flags {
        Flags { read_only: self.read_only, doomed: self.doomed }
    }

    #[inline(always)]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Store, K>, lookup: Lookup<'_>) -> Finding<FoundRow> {
        let words = words_of(lookup.projection);
        let found = match lookup.intent {
            Intent::ReadUnprotected => self.find_unprotected(at.store, at.key, words),
            Intent::Read | Intent::Change | Intent::Delete => self.find(at.store, at.key, words),
        };
        Ok(found.map(FoundRow))
    }

    #[inline]
    fn row(&self, _: FoundRow) -> RowRef<'_> {
        self.state.buffers.row.as_row()
    }

    #[inline(always)]
    fn copy(&mut self, _: &'w MaflingoTable, _: FoundRow, _: &Projection) -> Box<RowBuffer> {
        let spare = self.buffers().take_changing();
        std::mem::replace(&mut self.state.buffers.row, spare)
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
        Rewrite { found: FoundRow(record), row, changes }: Rewrite<'_, FoundRow>,
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

    fn lock<K: EncodedKey>(&mut self, at: At<'w, Store, K>) -> Result<(), Error> {
        self.latch_row(at.table, at.key)
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

    fn follow(&mut self, table: &'w MaflingoTable, entry: FoundRow, projection: &Projection) -> Finding<FoundRow> {
        let found = follow_key(self, table, entry, projection)?;
        if found.is_none() {
            // The entry and the row did not are mutually consistent; validation would find that out too.
            debug_assert!(self.snapshot.is_none(), "a snapshot is consistent");
            let key = KeyPreview::new(self.state.base.rows.followed_key());
            return Err(self.conflict_over(Reason::Inconsistent, table.primary.index_ref, None, Some(key)));
        }
        Ok(found)
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Store, V>) -> Result<(), Error> {
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

    #[inline]
    fn hints(&mut self) -> Option<&mut Hints> {
        self.snapshot.is_none().then_some(&mut self.state.base.hints)
    }

    #[inline]
    fn are_on_their_way(&self) -> bool {
        self.state.base.hints.has_declared()
    }
}

impl Queries for MaflingoTransaction<'_> {}

impl MaflingoTransaction<'_> {
    /// As [`Self::find`], and forgets what would protect the read.
    fn find_unprotected<K: EncodedKey>(&mut self, store: &Store, key: K, words: Range<usize>) -> Option<Kept> {
        let (reads, nodes) = (self.state.sets.reads.len(), self.state.sets.nodes.len());
        let found = self.find(store, key, words);
        self.state.note_reads(reads, self.shared.base.catalog.number());
        self.state.known.has_missed |= self.state.sets.nodes.len() > nodes;
        self.state.sets.reads.truncate(reads);
        self.state.sets.nodes.truncate(nodes);
        found
    }

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
