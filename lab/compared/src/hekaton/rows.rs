//! Records as the row layer of the engine wants them.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit, follow_key};
use polychron_engine::stores::Hints;
use polychron_engine::{Projection, Queries, RowVisitor};
use polychron_schema::RowRef;

use super::steps::Step;
use super::table::{HekatonTable, Store};
use super::transaction::{Found, HekatonTransaction, Remember};
use super::version::{Record, Version};

/// The version that the transaction sees of a record.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow {
    record: Record,
    version: Version,
}

impl FoundRow {
    #[inline]
    fn of(found: Found) -> Option<Self> {
        match found {
            Found::Row(record, version) => Some(Self { record, version }),
            Found::Nothing => None,
        }
    }

    #[inline]
    fn parts(self) -> (Record, Version) {
        (self.record, self.version)
    }
}

impl<'w> Primitives<'w> for HekatonTransaction<'w> {
    type Store = Store;
    type Found = FoundRow;
    type Link = ();

    #[inline]
    fn tables(&self) -> &Seen<HekatonTable> {
        &self.state.base.tables
    }

    #[inline]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.step()?;
        operation(self)
    }

    #[inline]
    fn flags(&self) -> Flags {
        Flags { read_only: self.snapshot, doomed: self.doomed }
    }

    #[inline]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Store, K>, lookup: Lookup<'_>) -> Finding<FoundRow> {
        let (reads, nodes) = (self.state.sets.reads.len(), self.state.sets.nodes.len());
        let remember = if lookup.intent == Intent::Delete { Remember::Nothing } else { Remember::Rows };
        let found = FoundRow::of(self.find(at.store, at.key, remember)?);
        if lookup.intent == Intent::ReadUnprotected {
            self.state.sets.reads.truncate(reads);
            self.state.sets.nodes.truncate(nodes);
        }
        if let Some(FoundRow { version, .. }) = found
            && lookup.intent == Intent::Change
            && !left_out(Step::RefuseOverwritten)
        {
            self.check_unwritten(version, at.store.index_ref)?;
        }
        Ok(found)
    }

    #[inline]
    fn row(&self, found: FoundRow) -> RowRef<'_> {
        found.version.row()
    }

    #[inline]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        Rewrite { found, row, .. }: Rewrite<'_, FoundRow>,
    ) -> Result<(), Error> {
        self.write_version(at.table.primary.index_ref, found.parts(), at.key, row.as_words())
    }

    #[inline]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Store, K>, words: &[u64]) -> Result<Option<()>, Error> {
        Ok(self.insert_record(at.store, at.key, words)?.then_some(()))
    }

    #[inline]
    fn link(&self, _: FoundRow) {}

    fn put<K: EncodedKey>(&mut self, at: At<'w, Store, K>, words: &[u64]) -> Result<(), Error> {
        self.put_record(at.store, at.key, words)
    }

    #[inline]
    fn delete<K: EncodedKey>(&mut self, at: At<'w, Store, K>, found: FoundRow) -> Result<(), Error> {
        self.end_version(at.store.index_ref, found.parts(), at.key)
    }

    fn check_present<K: EncodedKey>(&mut self, _: At<'w, Store, K>) -> Result<(), Error> {
        self.stand_by()
    }

    fn check_taken(&mut self, _: At<'w, Store, &[u8]>, _: &[u8]) -> Result<(), Error> {
        self.stand_by()
    }

    /// Where reads are not validated, the row is written again as it is.
    fn hold_filled(&mut self, at: At<'w, Store, &[u8]>, row: FoundRow) -> Result<(), Error> {
        if self.shared.options.level.validates() || left_out(Step::LockFilledRows) {
            return Ok(());
        }
        self.write_version(at.table.primary.index_ref, row.parts(), at.key, row.version.row().as_words())
    }

    fn follow(&mut self, table: &'w HekatonTable, entry: FoundRow, projection: &Projection) -> Finding<FoundRow> {
        let found = follow_key(self, table, entry, projection)?;
        if found.is_none() {
            // The entry was written by a transaction that has been undone since, or is going to be.
            debug_assert!(!self.snapshot || left_out(Step::RefuseOverwritten), "a snapshot is consistent");
            return Err(self.conflict(Reason::Inconsistent, table.primary.index_ref, None));
        }
        Ok(found)
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Store, V>) -> Result<(), Error> {
        let (scan, table) = (visit.scan, visit.table);
        self.scan_entries(scan, table, &mut |this, record, version| visit.record(this, FoundRow { record, version }))
    }

    fn set_mark(&mut self) -> usize {
        self.state.sets.writes().len()
    }

    fn set_savepoint(&mut self) -> usize {
        self.state.sets.has_savepoint = true;
        self.set_mark()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_writes(mark);
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }

    #[inline]
    fn hints(&mut self) -> Option<&mut Hints> {
        Some(&mut self.state.base.hints)
    }

    #[inline]
    fn are_on_their_way(&self) -> bool {
        self.state.base.hints.has_declared()
    }

    fn protect_all_reads(&mut self, protect: bool) {
        self.protects = protect && !left_out(Step::ProtectParents);
        self.has_protected |= self.protects;
    }
}

impl Queries for HekatonTransaction<'_> {}

impl HekatonTransaction<'_> {
    /// A key is taken. That is the answer if what this transaction has read on condition has happened: an entry may be there only because
    /// the transaction that moved it, and whose row was read, has been undone since.
    #[cold]
    fn stand_by(&mut self) -> Result<(), Error> {
        if self.depends_on.is_some() && !self.await_others() { Err(self.cascade()) } else { Ok(()) }
    }
}
