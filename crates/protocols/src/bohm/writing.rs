//! What a transaction puts into its versions, and versions that were not planned.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_engine::mutations::left_out;
use polychron_sync::Backoff;

use super::chain::Chain;
use super::entry::{Entry, Put, Want};
use super::steps::Step;
use super::table::{BohmStore, Prefix};
use super::transaction::{BohmTransaction, EntryRights, Position, UNPLANNED};
use super::version::Fresh;

/// What was put before, for going back.
#[derive(Debug)]
pub(super) struct Undo {
    position: Position,
    put: Put,
    row: Option<Box<[u64]>>,
}

impl BohmTransaction<'_> {
    /// An entry for a write that was not planned, with room for so many words of a row, which are enough for the row below.
    #[cold]
    pub(super) fn unplanned<K: EncodedKey>(
        &mut self,
        store: &Arc<BohmStore>,
        key: K,
        want: Want,
        words: usize,
    ) -> Result<Position, Error> {
        let planned = self.planned.as_ref().ok_or(Error::ReadOnly)?.planned();
        let entry = Entry::new(Some(store), key, key.hash(store.hash_seed()), want, 0);
        let allocate = || planned.placeholder(self.timestamp, words, &self.guard);
        let chain = self.chain_of(store, key);
        // A version that supersedes another one makes room in the end.
        let version = if chain.is_some() { self.guard.with_reserve(|_| allocate()) } else { allocate() }?;
        if want == Want::Guessed {
            entry.guess(version);
            self.is_guessing = true;
        } else {
            self.put_late(store, key, chain, &entry, version)?;
        }
        let late = &mut self.planned.as_mut().expect("it was planned").body_mut().late;
        late.push(entry);
        Ok(Position((late.len() as u32 - 1) | UNPLANNED))
    }

    /// Puts a version that was not planned into the chain of its key, which is given if it was found.
    fn put_late<K: EncodedKey>(
        &self,
        store: &BohmStore,
        key: K,
        mut found: Option<Chain<'_>>,
        entry: &Entry,
        mut version: Fresh<'_>,
    ) -> Result<(), Error> {
        let partition = self.shared.partition(entry.hash);
        let mut backoff = Backoff::new();
        loop {
            let chain = match found.take().map_or_else(|| self.make_chain_of(store, key), Ok) {
                Ok(chain) => chain,
                Err(error) => {
                    version.free(&self.guard);
                    return Err(error);
                }
            };
            match self.put_into(chain, entry, version) {
                Ok(superseded) => {
                    superseded.into_iter().for_each(|superseded| partition.leave_superseded(superseded));
                    return Ok(());
                }
                Err(refused) => version = refused,
            }
            backoff.wait();
        }
    }

    /// How a key may be written that was not planned.
    pub(super) fn unplanned_want<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<Want, Error> {
        let body = self.body().ok_or(Error::ReadOnly)?;
        let (is_everything, has_more) = (body.is_everything, body.has_more);
        if is_everything || self.is_covered(store, key) || left_out(Step::RefuseUnplanned) {
            Ok(Want::Late)
        } else if has_more {
            Ok(Want::Guessed)
        } else {
            Err(self.refuse_undeclared(store.index_ref(), KeyPreview::new(key)))
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
            entry.is_in(wanted) && Prefix::of(entry.key()).covers(key)
        };
        // Keys of one prefix are mostly written one after the other.
        let latest = self.covering.filter(covers);
        self.covering = latest.or_else(|| prefixes.iter().copied().find(covers));
        self.scratch.prefixes = prefixes;
        self.covering.is_some()
    }

    /// What is planned for the entries of a secondary index.
    fn entry_rights(&mut self, store: &BohmStore) -> EntryRights {
        let (wanted, table) = (std::ptr::from_ref(store), store.index_ref().table);
        if let Some((_, rights)) = self.scratch.rights.iter().find(|(known, _)| *known == wanted.addr()) {
            return *rights;
        }
        let mut rights = EntryRights { is_planned: false, may_write: false };
        for position in self.planned_positions() {
            let entry = self.entry(position);
            rights.is_planned |= entry.want == Want::Entries && entry.is_in(wanted);
            rights.may_write |=
                matches!(entry.want, Want::Write | Want::Prefix) && entry.store().index_ref().table == table;
        }
        self.scratch.rights.push((wanted.addr(), rights));
        rights
    }

    /// How an entry of a secondary index may be written.
    pub(super) fn entries_want(&mut self, store: &BohmStore, key: &[u8]) -> Result<Want, Error> {
        let body = self.body().ok_or(Error::ReadOnly)?;
        let (is_everything, has_more) = (body.is_everything, body.has_more);
        let EntryRights { is_planned, may_write } = self.entry_rights(store);
        if is_everything || is_planned {
            Ok(Want::Late)
        } else if has_more {
            Ok(Want::Guessed)
        } else if may_write {
            // The index came after the transaction was planned.
            Err(self.plan_again())
        } else {
            Err(self.refuse_undeclared(store.index_ref(), KeyPreview::new(key)))
        }
    }

    pub(super) fn save(&mut self, position: Position) {
        if self.is_saving {
            let (mut version, entry, _) = self.filling(position).expect("a written key has a version");
            let put = entry.put();
            let row = (put == Put::Row).then(|| (&*version.words_mut()).into());
            self.scratch.undo.push(Undo { position, put, row });
        }
    }

    /// Puts a row.
    #[inline]
    pub(super) fn put_words(&mut self, position: Position, words: &[u64]) -> Result<(), Error> {
        self.save(position);
        let (mut version, entry, guard) = self.filling(position).expect("a written key has a version");
        version.put(words, guard)?;
        entry.set_put(Put::Row);
        Ok(())
    }

    /// Deletes the row.
    pub(super) fn put_deletion(&mut self, position: Position) {
        self.save(position);
        self.entry(position).set_put(Put::Deletion);
    }

    /// Puts back what was put from this one on.
    pub(super) fn undo_puts(&mut self, len: usize) -> Result<(), Error> {
        while self.scratch.undo.len() > len {
            let Undo { position, put, row } = self.scratch.undo.pop().expect("there are more");
            if left_out(Step::UndoWrites) {
                continue;
            }
            let entry = self.entry(position);
            entry.set_put(put);
            if let (Some(row), Some((mut version, _, guard))) = (row, self.filling(position)) {
                let restored = guard.with_reserve(|guard| version.put(&row, guard));
                if let Err(Error::OutOfMemory(refused)) = restored {
                    return Err(self.lose(refused.requested));
                }
            }
        }
        Ok(())
    }
}
