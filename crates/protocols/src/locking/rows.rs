//! Records as the row layer of the engine wants them: locked and written in place, each change logged to be undone.

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, Reason, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit};
use polychron_engine::stores::IndexRef;
use polychron_engine::{Queries, RowVisitor, limits};
use polychron_schema::{Changes, RowRef};

use super::held::{Lock, Taken};
use super::records::LockedRecord;
use super::steps::Step;
use super::table::{Index, Table};
use super::transaction::LockingTransaction;
use super::wounds::Wounds;

/// A record whose key is locked, or a copy of one whose lock was released, in the row buffer.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow<'w>(Option<LockedRecord<'w>>);

impl<'w> FoundRow<'w> {
    #[inline]
    pub(super) fn locked(record: LockedRecord<'w>) -> Self {
        Self(Some(record))
    }

    #[inline]
    fn record(self) -> LockedRecord<'w> {
        self.0.expect("what is written is locked")
    }
}

pub(super) fn bytes_of<K: EncodedKey>(key: K) -> Vec<u8> {
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    bytes
}

/// A wait for another transaction of the same thread would not end.
#[cold]
pub(super) fn own_wait<K: EncodedKey>(own: &Wounds, index_ref: IndexRef, key: K) -> Error {
    let (IndexRef { table, index }, key, opponent) = (index_ref, KeyPreview::new(key), own.opponent());
    match limits::check() {
        Ok(()) => Error::waits_in_index(table, index, Some(key)),
        // A caller that waits no longer has ended the wait.
        Err(error) => error.waiting_at(table, index, Some(&key)).waiting_for(opponent),
    }
}

impl LockingTransaction<'_> {
    /// Dooms the transaction: another one holds the lock that it needs.
    #[cold]
    pub(super) fn conflict(
        &mut self,
        reason: Reason,
        index_ref: IndexRef,
        key: Option<KeyPreview>,
        missing: Option<Lock>,
    ) -> Error {
        let held = self.records.held();
        let (IndexRef { table, index }, opponent) = (index_ref, held.own.opponent());
        self.state.base.last_abort = Some(Abort { reason, table, index, key, opponent });
        if self.shared.policy.is_in_order() && !self.doomed {
            self.state.wanted.remember(held, missing);
        }
        self.doomed = true;
        Error::Conflict
    }

    /// After a conflict there are only conflicts.
    #[inline]
    pub(super) fn alive(&self) -> Result<(), Error> {
        if self.doomed && !left_out(Step::StayDoomed) { Err(Error::Conflict) } else { Ok(()) }
    }

    /// Whether an older transaction requests what this one holds.
    #[inline]
    pub(super) fn is_wounded(&self) -> bool {
        self.records.held().own.wounded() && !left_out(Step::GiveWay)
    }

    /// Why a lock was refused.
    #[cold]
    pub(super) fn reason(&self) -> Reason {
        if self.is_wounded() { Reason::Wounded } else { Reason::Locked }
    }

    /// Locks a key of an index, present or not, and waits for it by age if at all.
    #[inline]
    pub(super) fn lock<K: EncodedKey>(&mut self, index: &Index, key: K, exclusive: bool) -> Result<(), Error> {
        self.lock_named(Lock { name: index.name_of(key), exclusive }, index.store.index_ref, key)
    }

    /// The same, of a key of which the lock is known.
    #[inline]
    pub(super) fn lock_named<K: EncodedKey>(&mut self, lock: Lock, index_ref: IndexRef, key: K) -> Result<(), Error> {
        self.alive()?;
        let left_alone = match lock.exclusive {
            false => left_out(Step::LockReads),
            true => left_out(Step::LockWrites) || left_out(Step::Upgrade) && self.records.held().has(lock.name),
        };
        if left_alone {
            return Ok(());
        }
        if left_out(Step::HoldLocks) {
            self.records.release_early();
        }
        if !self.is_wounded() {
            match self.records.acquire(lock) {
                Taken::Held => return Ok(()),
                Taken::Own => return Err(own_wait(&self.records.held().own, index_ref, key)),
                Taken::Refused => {}
            }
        }
        Err(self.conflict(self.reason(), index_ref, Some(KeyPreview::new(key)), Some(lock)))
    }

    /// Undoes the changes from this one on.
    pub(super) fn undo_log_to(&mut self, position: usize) {
        self.records.undo_to(position, &self.state.base.tables);
    }
}

impl<'w> Primitives<'w> for LockingTransaction<'w> {
    type Store = Index;
    type Found = FoundRow<'w>;
    type Link = ();

    const OVERWRITES_COLUMNS: bool = true;

    #[inline]
    fn tables(&self) -> &Seen<Table> {
        &self.state.base.tables
    }

    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.alive()?;
        self.work(operation)
    }

    #[inline]
    fn flags(&self) -> Flags {
        Flags { read_only: self.read_only && !left_out(Step::RefuseSnapshotWrites), doomed: self.doomed }
    }

    #[inline(always)]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Index, K>, lookup: Lookup<'_>) -> Finding<FoundRow<'w>> {
        if lookup.intent == Intent::ReadUnprotected
            && self.shared.policy.wounds()
            && !self.records.held().has(at.store.name_of(at.key))
        {
            // Rows are written in place, so none writes this one while it is copied; a transaction that waits by age may release the lock at once.
            return Ok(self.copy_unprotected(at.store, at.key)?.then_some(FoundRow(None)));
        }
        let exclusive = matches!(lookup.intent, Intent::Change | Intent::Delete);
        Ok(self.lock_and_find(at.store, at.key, exclusive)?.map(FoundRow::locked))
    }

    #[inline]
    fn row(&self, found: FoundRow<'w>) -> RowRef<'_> {
        match found.0 {
            Some(record) => RowRef::from_words(self.words(record)),
            None => self.state.buffers.row.as_row(),
        }
    }

    #[inline(always)]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Index, K>,
        Rewrite { found, row, changes }: Rewrite<'_, FoundRow<'w>>,
    ) -> Result<(), Error> {
        self.write_row(&at.table.primary, at.key, found.record(), row.as_words(), changes)
    }

    #[inline(always)]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Index, K>, words: &[u64]) -> Result<Option<()>, Error> {
        Ok(self.lock_and_insert(at.store, at.key, words)?.then_some(()))
    }

    #[inline]
    fn link(&self, _: FoundRow<'w>) {}

    #[inline(always)]
    fn put<K: EncodedKey>(&mut self, at: At<'w, Index, K>, words: &[u64]) -> Result<(), Error> {
        match self.lock_and_find(at.store, at.key, true)? {
            Some(record) => self.write_row(&at.table.primary, at.key, record, words, Changes::ALL),
            None => self.lock_and_insert(at.store, at.key, words).map(drop),
        }
    }

    #[inline(always)]
    fn delete<K: EncodedKey>(&mut self, at: At<'w, Index, K>, found: FoundRow<'w>) -> Result<(), Error> {
        self.delete_row(at.store, at.key, found.record());
        Ok(())
    }

    /// That the key is taken was read in the index.
    fn check_taken(&mut self, _: At<'w, Index, &[u8]>, _: &[u8]) -> Result<(), Error> {
        self.has_read_secondary = true;
        Ok(())
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Index, V>) -> Result<(), Error> {
        self.visit_rows(visit)
    }

    fn set_mark(&mut self) -> usize {
        self.records.changes()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_log_to(mark);
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }

    #[inline]
    fn fetch<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.work(|this| {
            if let Ok(table) = this.state.base.tables.table(table) {
                table.primary.store.index().prefetch(key, this.records.guard());
            }
        });
    }
}

impl Queries for LockingTransaction<'_> {}
