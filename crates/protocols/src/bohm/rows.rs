//! The records that the row layer of the engine works on.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Watch;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit};
use polychron_engine::{Projection, Queries, RowVisitor, Savepoints};
use polychron_schema::{Changes, RowMut, RowRef};

use super::entry::Put;
use super::steps::Step;
use super::table::{BohmStore, BohmTable};
use super::transaction::{BohmTransaction, Position};
use super::version::Version;

/// A version that has a row, and of a row that is going to be written the entry for that.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow<'t> {
    position: Option<Position>,
    version: Version<'t>,
}

impl<'t> FoundRow<'t> {
    #[inline]
    fn read(version: Version<'t>) -> Self {
        Self { position: None, version }
    }

    #[inline]
    fn written(self) -> Position {
        self.position.expect("the row was found to be written")
    }
}

impl<'t> Primitives<'t> for BohmTransaction<'t> {
    type Store = BohmStore;
    type Found = FoundRow<'t>;
    type Link = ();

    #[inline]
    fn tables(&self) -> &Seen<BohmTable> {
        &self.state.tables
    }

    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.step()?;
        self.wake();
        let outcome = operation(self);
        if let Err(Error::OutOfMemory(_)) = outcome {
            self.was_refused_memory = true;
        }
        self.rest();
        outcome
    }

    #[inline]
    fn flags(&self) -> Flags {
        Flags { read_only: self.planned.is_none(), doomed: self.doomed }
    }

    /// Where no other row will be put, the room is made no larger than needed, and can be had when memory is short.
    #[inline(always)]
    fn find<K: EncodedKey>(&mut self, at: At<'t, BohmStore, K>, lookup: Lookup<'_>) -> Finding<FoundRow<'t>> {
        if matches!(lookup.intent, Intent::Read | Intent::ReadUnprotected) {
            return Ok(self.see(at.store, at.key)?.map(FoundRow::read));
        }
        if let Some(position) = self.own_written(at.store, at.key) {
            let version = self.present(position)?;
            return Ok(version.map(|version| FoundRow { position: Some(position), version }));
        }
        let want = self.unplanned_want(at.store, at.key)?;
        let Some(version) = self.see(at.store, at.key)? else { return Ok(None) };
        let words = match lookup.intent {
            // As many as there are: if the deletion is undone, its version stays, and the one that is freed makes up for it in the reserve.
            Intent::Delete => version.capacity(),
            _ => at.store.row_words,
        };
        let position = self.unplanned(at.store, at.key, want, words)?;
        Ok(Some(FoundRow { position: Some(position), version }))
    }

    #[inline]
    fn row(&self, found: FoundRow<'t>) -> RowRef<'_> {
        RowRef::from_words(self.words(found.version))
    }

    /// Changes a row of fixed length in the version that will hold it, and has none yet. Where the change panics it has none still. What was put
    /// before is changed aside: code that panics on its way leaves it as it was.
    #[inline]
    fn change_in_place<F: FnOnce(&mut RowMut<'_>)>(
        &mut self,
        table: &'t BohmTable,
        found: FoundRow<'t>,
        change: F,
    ) -> ControlFlow<Result<(), Error>, F> {
        let shape = table.layout.shape();
        let is_fixed = !table.has_secondaries && shape.variable_count == 0;
        let position = found.written();
        if !is_fixed || self.entry(position).version() == Some(found.version.raw()) {
            return ControlFlow::Continue(change);
        }
        self.save(position);
        let mut changes = Changes::NONE;
        let (mut version, entry) = match self.copy_row(position, found.version) {
            Ok(copied) => copied,
            Err(error) => return ControlFlow::Break(Err(error)),
        };
        let row = RowMut::in_place(version.words_mut(), &mut changes, shape);
        change(&mut row.expect("rows of the table have one length"));
        if !changes.is_empty() {
            entry.set_put(Put::Row);
        }
        ControlFlow::Break(Ok(()))
    }

    #[inline(always)]
    fn overwrite<K: EncodedKey>(
        &mut self,
        _: At<'t, BohmStore, K>,
        Rewrite { found, row, .. }: Rewrite<'_, FoundRow<'t>>,
    ) -> Result<(), Error> {
        self.put_words(found.written(), row.as_words())
    }

    #[inline(always)]
    fn insert<K: EncodedKey>(&mut self, at: At<'t, BohmStore, K>, words: &[u64]) -> Result<Option<()>, Error> {
        let position = self.entry_to_write(at.store, at.key)?;
        if self.present(position)?.is_some() {
            return Ok(None);
        }
        self.put_words(position, words).map(Some)
    }

    #[inline]
    fn link(&self, _: FoundRow<'t>) {}

    #[inline(always)]
    fn put<K: EncodedKey>(&mut self, at: At<'t, BohmStore, K>, words: &[u64]) -> Result<(), Error> {
        let position = self.entry_to_write(at.store, at.key)?;
        self.put_words(position, words)
    }

    fn delete<K: EncodedKey>(&mut self, _: At<'t, BohmStore, K>, found: FoundRow<'t>) -> Result<(), Error> {
        self.put_deletion(found.written());
        Ok(())
    }

    fn insert_entry(&mut self, at: At<'t, BohmStore, &[u8]>, words: &[u64]) -> Result<bool, Error> {
        if at.store.unique {
            self.enter_index(at.store)?;
            if self.see(at.store, at.key)?.is_some() && !left_out(Step::RefuseDuplicates) {
                return Ok(false);
            }
        }
        let position = self.index_entry_to_write(at.store, at.key)?;
        self.put_words(position, words).map(|()| true)
    }

    fn delete_entry(&mut self, at: At<'t, BohmStore, &[u8]>) -> Result<(), Error> {
        let position = self.index_entry_to_write(at.store, at.key)?;
        self.put_deletion(position);
        Ok(())
    }

    /// A run that guesses does not see all that it writes itself, and may find no row.
    #[inline]
    fn follow(&mut self, table: &'t BohmTable, entry: FoundRow<'t>, _: &Projection) -> Finding<FoundRow<'t>> {
        let row = self.see_behind(&table.primary, entry.version)?;
        debug_assert!(row.is_some() || self.is_void(), "an entry leads to a row");
        Ok(row.map(FoundRow::read))
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 't, BohmStore, V>) -> Result<(), Error> {
        let outcome = self
            .visit_rows(visit.scan, visit.store()?, &mut |this, version| visit.record(this, FoundRow::read(version)));
        self.asked = 0;
        outcome
    }

    fn set_mark(&mut self) -> usize {
        self.saves_operation = !self.is_saving;
        self.is_saving = true;
        self.scratch.undo.len()
    }

    fn set_savepoint(&mut self) -> usize {
        self.is_saving = true;
        self.scratch.undo.len()
    }

    fn forget_mark(&mut self, mark: usize) {
        if std::mem::take(&mut self.saves_operation) {
            self.is_saving = false;
            self.scratch.undo.truncate(mark);
        }
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_puts(mark)
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.buffers.rows
    }

    fn saved(&mut self) -> &mut Savepoints {
        &mut self.scratch.savepoints
    }

    #[inline]
    fn watch(&mut self) -> &mut Watch {
        &mut self.scratch.watch
    }

    /// What is declared was looked up when it was planned.
    #[inline]
    fn are_on_their_way(&self) -> bool {
        self.planned.is_some() && self.shared.options.annotate_reads
    }

    #[inline]
    fn fetch<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if self.planned.is_none() {
            self.asked = self.asked.saturating_add(1);
        }
        self.scratch.hints.ask(table, key);
    }

    #[inline]
    fn only_plans(&self) -> bool {
        // One that leaves to wait for others runs again as it was planned.
        self.again || self.is_guessing && !self.doomed
    }
}

impl Queries for BohmTransaction<'_> {}

impl BohmTransaction<'_> {
    /// The entry for a write of a key, whether it has a row or not.
    #[inline]
    fn entry_to_write<K: EncodedKey>(&mut self, store: &Arc<BohmStore>, key: K) -> Result<Position, Error> {
        if let Some(position) = self.own_written(store, key) {
            return Ok(position);
        }
        let want = self.unplanned_want(store, key)?;
        self.unplanned(store, key, want, store.row_words)
    }

    fn index_entry_to_write(&mut self, store: &Arc<BohmStore>, key: &[u8]) -> Result<Position, Error> {
        if let Some(position) = self.own_written(store, key) {
            return Ok(position);
        }
        let want = self.entries_want(store, key)?;
        self.unplanned(store, key, want, store.row_words)
    }

    /// Before a secondary index is read: all transactions before this one are executed that may write entries of it.
    pub(super) fn enter_index(&mut self, store: &BohmStore) -> Result<(), Error> {
        if store.index_ref().index == IndexId::PRIMARY || left_out(Step::AwaitIntents) {
            return Ok(());
        }
        self.await_intents(&store.intents)
    }
}
