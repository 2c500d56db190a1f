//! What a transaction does with records, under the lock. The row layer of the engine makes rows, secondary entries and savepoints of it.

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Lookup, Primitives, Rewrite, Visit};
use polychron_engine::stores::{Batch, Placed, Record, RowRecords, Store, StoreTable};
use polychron_engine::{Queries, RowVisitor};
use polychron_schema::RowRef;

use crate::steps::Step;
use crate::transaction::OneLockTransaction;

type Entries = Store<RowRecords>;

impl<'w> Primitives<'w> for OneLockTransaction<'w> {
    type Store = Entries;
    type Found = Record;
    type Link = ();

    fn tables(&self) -> &Seen<StoreTable<Entries>> {
        &self.state.base.tables
    }

    fn flags(&self) -> Flags {
        Flags { read_only: self.read_only && !left_out(Step::RefuseSnapshotWrites), doomed: false }
    }

    fn find<K: EncodedKey>(&mut self, at: At<'w, Entries, K>, _: Lookup<'_>) -> Finding<Record> {
        // SAFETY: the lock is held.
        Ok(unsafe { at.store.record(at.key, &self.guard) })
    }

    fn row(&self, found: Record) -> RowRef<'_> {
        RowRef::from_words(self.words(found))
    }

    fn overwrite<K: EncodedKey>(&mut self, at: At<'w, Entries, K>, write: Rewrite<'_, Record>) -> Result<(), Error> {
        let Rewrite { found, row, changes } = write;
        let place = (at.store.index(), at.key);
        // SAFETY: the lock is held, and the key led to the record.
        unsafe { self.state.log.overwrite(at.store.index_ref, place, found, (row.as_words(), changes), &self.guard)? };
        Ok(())
    }

    fn insert<K: EncodedKey>(&mut self, at: At<'w, Entries, K>, words: &[u64]) -> Result<Option<()>, Error> {
        let place = (at.store.index(), at.key);
        let link = |handle| at.store.index().insert(at.key, handle, &mut (), &self.guard);
        // SAFETY: the lock is held.
        let placed = unsafe { self.state.log.insert(at.store.index_ref, place, words, &self.guard, link)? };
        Ok((placed != Placed::Taken).then_some(()))
    }

    fn link(&self, _: Record) {}

    fn delete<K: EncodedKey>(&mut self, at: At<'w, Entries, K>, found: Record) -> Result<(), Error> {
        found.set_deleted(true);
        self.state.log.deleted(at.store.index_ref, at.key, found);
        Ok(())
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Entries, V>) -> Result<(), Error> {
        let index = visit.store()?.scanned(visit.scan)?;
        let mut batch = Batch::default();
        batch.begin(visit.scan.limit, false);
        while batch.fill(index, visit.scan, &self.guard) {
            for handle in batch.handles() {
                // SAFETY: the lock is held.
                let record = unsafe { Record::from_handle(*handle) };
                if !record.is_deleted() && visit.record(self, record)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn set_mark(&mut self) -> usize {
        self.state.log.len()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_log_to(mark);
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }
}

impl Queries for OneLockTransaction<'_> {}
