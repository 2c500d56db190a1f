//! Records as the row layer of the engine wants them.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason, TableId};
use polychron_engine::catalog::{self, Seen};
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{
    At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit, follow_key, watch_scan,
};
use polychron_engine::stores::key_in_entry;
use polychron_engine::{Projection, Queries, RowVisitor, Scan, Transaction};
use polychron_schema::{KeyScratch, RowRef};

use super::options::Indexes;
use super::sets::{Kind, NewRow, Target, Write};
use super::steps::Step;
use super::table::{CicadaTable, Store};
use super::transaction::{CicadaTransaction, Source};

/// A row that the transaction sees.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow {
    source: Source,
    /// Where it is in the read set, if it was looked up to be written.
    on_read: Option<u32>,
}

impl FoundRow {
    #[inline]
    fn new(source: Source) -> Self {
        Self { source, on_read: None }
    }
}

impl<'w> Primitives<'w> for CicadaTransaction<'w> {
    type Store = Store;
    type Found = FoundRow;
    type Link = ();

    #[inline]
    fn tables(&self) -> &Seen<CicadaTable> {
        &self.state.base.tables
    }

    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.work(operation)
    }

    #[inline]
    fn flags(&self) -> Flags {
        Flags { read_only: self.snapshot, doomed: self.doomed }
    }

    #[inline(always)]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Store, K>, lookup: Lookup<'_>) -> Finding<FoundRow> {
        match lookup.intent {
            Intent::Read => Ok(self.find_row(at.store, at.key)?.map(FoundRow::new)),
            Intent::ReadUnprotected => Ok(self.find_unprotected(at.store, at.key)?.map(FoundRow::new)),
            Intent::Change | Intent::Delete => {
                let Some(source) = self.find_row(at.store, at.key)? else { return Ok(None) };
                self.check_early(source, at.store.place())?;
                let on_read = matches!(source, Source::Version(_)).then(|| self.state.sets.reads.len() as u32 - 1);
                Ok(Some(FoundRow { source, on_read }))
            }
        }
    }

    #[inline]
    fn row(&self, FoundRow { source, .. }: FoundRow) -> RowRef<'_> {
        self.row_at(source)
    }

    #[inline(always)]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        Rewrite { found: FoundRow { source, on_read }, row, .. }: Rewrite<'_, FoundRow>,
    ) -> Result<(), Error> {
        let target = self.target(source);
        let key = (target == Target::Key || self.is_logged()).then_some(at.key);
        let write = Write { on_read, ..Write::new(target, at.table.primary.place(), Kind::Put) };
        self.state.sets.writes.push(write, key, NewRow::In(row));
        Ok(())
    }

    #[inline(always)]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Store, K>, words: &[u64]) -> Result<Option<()>, Error> {
        Ok(self.insert_record(at.store, at.key, words)?.then_some(()))
    }

    #[inline]
    fn link(&self, _found: FoundRow) {}

    fn put<K: EncodedKey>(&mut self, at: At<'w, Store, K>, words: &[u64]) -> Result<(), Error> {
        self.put_record(at.store, at.key, words)
    }

    #[inline(always)]
    fn delete<K: EncodedKey>(
        &mut self,
        at: At<'w, Store, K>,
        FoundRow { source, on_read }: FoundRow,
    ) -> Result<(), Error> {
        if let Some(nodes) = &at.store.versioned {
            return self.delete_versioned(at.store, nodes, at.key).map(drop);
        }
        let write = Write { on_read, ..Write::new(self.target(source), at.store.place(), Kind::Delete) };
        self.state.sets.writes.push(write, Some(at.key), NewRow::None);
        Ok(())
    }

    #[inline]
    fn insert_entry(&mut self, at: At<'w, Store, &[u8]>, words: &[u64]) -> Result<bool, Error> {
        if !at.store.entries.is_ready() && !self.follows_unknowing(at.store) {
            return Err(self.conflict(Reason::Inconsistent, at.store.place(), None));
        }
        Ok(self.insert(at, words)?.is_some())
    }

    /// That a secondary key is taken is a duplicate if another row has the key; if the entry leads to the very row that is written,
    /// or to one that has another key, the entry and what was read of the rows are of different transactions, and the
    /// caller gets the conflict, not a duplicate that may never have been.
    fn check_taken(&mut self, at: At<'w, Store, &[u8]>, primary: &[u8]) -> Result<(), Error> {
        if let Some(entry) = self.find_row(at.store, at.key)? {
            let owner = key_in_entry(self.row_at(entry).as_words()).to_vec();
            if owner != primary
                && let Some(source) = self.find_row(&at.table.primary, &owner[..])?
            {
                let mut scratch = KeyScratch::new();
                let owned = at.store.entries.extractor.extract(self.row_at(source), &mut scratch);
                if owned.is_ok_and(|owned| owned == at.key) {
                    return Ok(());
                }
            }
        }
        Err(self.conflict(Reason::Inconsistent, at.store.place(), None))
    }

    fn follow(&mut self, table: &'w CicadaTable, entry: FoundRow, projection: &Projection) -> Finding<FoundRow> {
        let found = follow_key(self, table, entry, projection)?;
        if found.is_none() {
            // The entry and the row were not mutually consistent; validation would find that out too.
            debug_assert!(!self.snapshot, "a snapshot is consistent");
            return Err(self.conflict(Reason::Inconsistent, table.primary.place(), None));
        }
        Ok(found)
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Store, V>) -> Result<(), Error> {
        let (scan, store) = (visit.scan, visit.store()?);
        self.scan_entries(scan, store, &mut |this, source| visit.record(this, FoundRow::new(source)))
    }

    fn set_mark(&mut self) -> usize {
        self.state.sets.writes.set_floor()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        if mark < self.state.sets.writes.len() {
            self.state.sets.undo_writes(mark);
        }
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }

    #[inline]
    fn are_on_their_way(&self) -> bool {
        self.state.base.hints.has_declared()
    }

    /// Keeps the key with the hints, and fetches the root of nodes with versions.
    #[inline]
    fn fetch<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.state.base.hints.ask(table, key);
        if self.shared.options.indexes != Indexes::SingleVersion
            && let Ok(table) = self.state.base.tables.table(table)
            && let Some(nodes) = &table.primary.versioned
        {
            nodes.prefetch_root(key);
        }
    }
}

impl Queries for CicadaTransaction<'_> {
    /// A snapshot goes along the records; where absence must be protected, an index leads the way.
    #[inline]
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl RowVisitor,
    ) -> Result<(), Error> {
        if !self.snapshot {
            return self.scan_unchecked(&Scan { projection: *projection, ..Scan::all(table) }, visitor);
        }
        // Says what is wrong with an id of another database, too.
        self.state.base.tables.table(table)?;
        let tables = self.state.base.tables.keep();
        let scanned = self.scan_records(&catalog::get(&tables, table)?.primary, visitor);
        self.rest();
        scanned?;
        if self.watch().is_on() { self.operate(|this| watch_scan(this, &Scan::all(table))) } else { Ok(()) }
    }
}

impl CicadaTransaction<'_> {
    /// As [`Self::find_row`], and forgets what would protect the read.
    fn find_unprotected<K: EncodedKey>(&mut self, store: &Store, key: K) -> Finding<Source> {
        let sets = &self.state.sets;
        let (reads, nodes, gaps, searches) = (sets.reads.len(), sets.nodes.len(), sets.gaps.len(), sets.searches.len());
        let found = self.find_row(store, key)?;
        self.state.saw_unprotected |= self.has_seen_news(reads);
        let sets = &mut self.state.sets;
        sets.reads.truncate(reads);
        sets.nodes.truncate(nodes);
        sets.gaps.truncate(gaps);
        sets.searches.truncate(searches);
        Ok(found)
    }

    /// Whether this transaction comes after all that write the table and do not know a new index of it: then it sees what they
    /// did to the rows whose entries it makes. For a while nobody knows.
    #[cold]
    fn follows_unknowing(&self, store: &Store) -> bool {
        left_out(Step::FollowUnknowing)
            || store.known_after().is_some_and(|unknowing| self.state.clock.adjusted > unknowing)
    }
}
