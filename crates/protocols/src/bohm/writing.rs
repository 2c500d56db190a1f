//! What a transaction puts into its versions, and versions that were not planned.

use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, Stop};
use polychron_engine::mutations::left_out;
use polychron_sync::Backoff;

use super::collection::{Readers, Superseded};
use super::planned::{Entry, Put, Want};
use super::steps::Step;
use super::table::{BohmStore, Prefix};
use super::transaction::{BohmTransaction, EntryRights, Position, UNPLANNED};
use super::version::{Chain, Version};

/// What was put before, for going back.
#[derive(Debug)]
pub(super) struct Undo {
    position: Position,
    put: Put,
    row: Option<Box<[u64]>>,
}

impl BohmTransaction<'_> {
    /// A place for a write that was not planned, with room for so many words of a row, which are enough for the row below.
    #[cold]
    pub(super) fn unplanned<K: EncodedKey>(
        &mut self,
        store: &Arc<BohmStore>,
        key: K,
        want: Want,
        words: usize,
    ) -> Result<Position, Stop> {
        let planned = self.planned.ok_or(Error::ReadOnly)?;
        let entry = Entry::new(Arc::as_ptr(store), key, key.hash(store.hash_seed()), want, 0);
        let allocate = || Version::allocate(self.timestamp, NonNull::from(planned), words, &self.guard);
        let chain = store.find(key, &self.guard);
        // What takes another version's place makes room in the end.
        let version = if chain.is_some() { self.guard.with_reserve(|_| allocate()) } else { allocate() }?;
        entry.version.set(Some(version));
        if want == Want::Guessed {
            self.is_guessing = true;
        } else if let Err(error) = self.put_late(store, key, chain, &entry, version) {
            // SAFETY: no chain took it.
            unsafe { version.free(&self.guard) };
            return Err(error.into());
        }
        let late = self.late().expect("a planned transaction has a list");
        late.push(entry);
        Ok(Position((late.len() as u32 - 1) | UNPLANNED))
    }

    /// Puts a version that was not planned into the chain of its key, which is given if it was found.
    fn put_late<K: EncodedKey>(
        &self,
        store: &BohmStore,
        key: K,
        mut found: Option<Chain>,
        entry: &Entry,
        version: Version,
    ) -> Result<(), Error> {
        let partition = self.shared.partition(entry.hash);
        let mut backoff = Backoff::new();
        loop {
            let chain = match found.take() {
                Some(chain) => chain,
                None => store.make_or_find(key, &self.guard)?,
            };
            if let Ok(superseded) = chain.head().insert(version) {
                entry.chain.set(Some(chain));
                if let Some((version, above)) = superseded {
                    let (batch, readers) = (above.begin().batch(), Readers::Snapshots(above));
                    partition.leave_superseded(Superseded { version, batch, readers });
                }
                return Ok(());
            }
            backoff.wait();
        }
    }

    /// How a key may be written that was not planned.
    pub(super) fn unplanned_want<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<Want, Stop> {
        let body = self.body().ok_or(Error::ReadOnly)?;
        if body.is_everything || self.is_covered(store, key) || left_out(Step::RefuseUnplanned) {
            Ok(Want::Late)
        } else if body.has_more {
            Ok(Want::Guessed)
        } else {
            Err(self.refuse_undeclared(store.place().table, KeyPreview::new(key)))
        }
    }

    /// Whether the transaction has named a prefix of the key.
    fn is_covered<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> bool {
        let wanted = std::ptr::from_ref(store);
        let mut prefixes = std::mem::take(&mut self.scratch.prefixes);
        if !std::mem::replace(&mut self.scratch.knows_prefixes, true) {
            let is_prefix =
                |&position: &Position| matches!(self.entry(position).want, Want::Prefix | Want::PrefixUpdate);
            prefixes.extend(self.planned_positions().filter(is_prefix));
        }
        let covers = |&position: &Position| {
            let entry = self.entry(position);
            entry.store == wanted && Prefix::of(entry.key()).covers(key)
        };
        // Keys of one prefix are mostly written one after the other.
        let latest = self.covering.filter(covers);
        self.covering = latest.or_else(|| prefixes.iter().copied().find(covers));
        self.scratch.prefixes = prefixes;
        self.covering.is_some()
    }

    /// What is planned for the entries of a secondary index.
    fn entry_rights(&mut self, store: &BohmStore) -> EntryRights {
        let (wanted, table) = (std::ptr::from_ref(store), store.place().table);
        if let Some((_, rights)) = self.scratch.rights.iter().find(|(known, _)| *known == wanted.addr()) {
            return *rights;
        }
        let mut rights = EntryRights { is_planned: false, may_write: false };
        for position in self.planned_positions() {
            let entry = self.entry(position);
            rights.is_planned |= entry.want == Want::Entries && entry.store == wanted;
            // SAFETY: the client keeps the stores of planned entries.
            rights.may_write |=
                matches!(entry.want, Want::Write | Want::Prefix) && unsafe { (*entry.store).place() }.table == table;
        }
        self.scratch.rights.push((wanted.addr(), rights));
        rights
    }

    /// How an entry of a secondary index may be written.
    pub(super) fn entries_want(&mut self, store: &BohmStore, key: &[u8]) -> Result<Want, Stop> {
        let body = self.body().ok_or(Error::ReadOnly)?;
        let table = store.place().table;
        let EntryRights { is_planned, may_write } = self.entry_rights(store);
        if body.is_everything || is_planned {
            Ok(Want::Late)
        } else if body.has_more {
            Ok(Want::Guessed)
        } else if may_write {
            // The index came after the transaction was planned.
            Err(self.plan_again())
        } else {
            Err(self.refuse_undeclared(table, KeyPreview::new(key)))
        }
    }

    pub(super) fn save(&mut self, position: Position) {
        if self.is_saving {
            let entry = self.entry(position);
            let version = entry.version.get().expect("a written key has a version");
            // SAFETY: the transaction put the row, and writes nothing here.
            let row = (entry.put.get() == Put::Row).then(|| unsafe { version.words() }.into());
            self.scratch.undo.push(Undo { position, put: entry.put.get(), row });
        }
    }

    /// Puts a row.
    #[inline]
    pub(super) fn put_words(&mut self, position: Position, words: &[u64]) -> Result<(), Stop> {
        self.save(position);
        let entry = self.entry(position);
        let version = entry.version.get().expect("a written key has a version");
        // SAFETY: the transaction is executed here, and views of its rows borrow it.
        unsafe { version.put(words, &self.guard) }?;
        entry.put.set(Put::Row);
        Ok(())
    }

    /// Deletes the row.
    pub(super) fn put_deletion(&mut self, position: Position) {
        self.save(position);
        self.entry(position).put.set(Put::Deletion);
    }

    /// Puts back what was put from this one on.
    pub(super) fn undo_puts(&mut self, len: usize) -> Result<(), Stop> {
        while self.scratch.undo.len() > len {
            let Undo { position, put, row } = self.scratch.undo.pop().expect("there are more");
            if left_out(Step::UndoWrites) {
                continue;
            }
            let entry = self.entry(position);
            entry.put.set(put);
            if let (Some(row), Some(version)) = (row, entry.version.get()) {
                // SAFETY: as in `put`.
                let restored = self.guard.with_reserve(|guard| unsafe { version.put(&row, guard) });
                if let Err(Error::OutOfMemory { requested }) = restored {
                    return Err(self.lose(requested));
                }
            }
        }
        Ok(())
    }
}
