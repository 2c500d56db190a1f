//! Changes of records: each leaves a before-image of what was there in the transaction's undo buffer, under the latch of the slot.

use std::ops::Range;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason};
use polychron_engine::mutations::left_out;
use polychron_index::Inserted;
use polychron_memory::Guard;
use polychron_schema::ColumnSet;

use super::options::BeforeImages;
use super::out_of_line::{OutOfLine, OutOfLineAddress};
use super::predicates::summary_of;
use super::rows::{Latched, Record};
use super::steps::Step;
use super::table::Relation;
use super::transaction::HyperTransaction;
use super::undo::{Draft, FIRST_ID, Kind, Undo, Writing, fragment_head};
use super::view::view;
use super::worker::State;

/// What a row is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRow<'a> {
    pub(super) words: &'a [u64],
    /// The columns that change.
    pub(super) columns: ColumnSet,
    /// Whether what is behind the fixed part changes, too.
    pub(super) whole: bool,
}

/// Why a slot cannot be written.
enum Refusal {
    /// Its record has left its index, or is about to: it is closed or displaced. The stamp of its newest before-image, or 0.
    Closed(u64),
    /// Another transaction has written it, or is writing it.
    Conflict(Conflict),
}

/// A row's newest before-image is another transaction's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub(super) reason: Reason,
    /// The stamp of that before-image.
    pub(super) stamp: u64,
}

impl<'w> HyperTransaction<'w> {
    /// Whether the newest before-image lets this transaction write: there is none, or it is its own, or was committed before the start. What
    /// stands in place is then what the transaction sees. Of an all-visible one that is known.
    #[inline]
    pub(super) fn check_version(&self, version: Option<Undo<'_>>, all_visible: bool) -> Result<(), Conflict> {
        let Some(before_image) = version.filter(|_| !all_visible) else { return Ok(()) };
        let stamp = before_image.stamp();
        if stamp <= self.start || stamp == self.id {
            Ok(())
        } else if stamp >= FIRST_ID {
            if left_out(Step::RefuseBeingWritten) {
                Ok(())
            } else {
                Err(Conflict { reason: Reason::BeingWritten, stamp })
            }
        } else if left_out(Step::RefuseWrittenLater) {
            Ok(())
        } else {
            Err(Conflict { reason: Reason::WrittenLater, stamp })
        }
    }

    #[inline]
    fn latch(&self, record: Record<'w>) -> Result<Latched<'w>, Refusal> {
        let latched = record.latch();
        if !latched.is_in_index() && !left_out(Step::PassOverDisplaced) {
            return Err(Refusal::Closed(latched.version(&self.guard).map_or(0, Undo::stamp)));
        }
        let newest = latched.version(&self.guard);
        self.check_version(newest, latched.is_all_visible()).map_err(Refusal::Conflict)?;
        if self.is_barred(record) && newest.is_none_or(|before_image| before_image.stamp() != self.id) {
            return Err(Refusal::Conflict(Conflict { reason: Reason::BeingWritten, stamp: 0 }));
        }
        Ok(latched)
    }

    /// Whether a row is left to a favoured transaction, of another thread.
    #[inline]
    pub(super) fn is_barred(&self, record: Record<'_>) -> bool {
        let is_here = |other| self.guard.epochs().is_here(other);
        self.state.base.contested.is_barred(&self.shared.base.favour, record, self.state.base.slot, is_here)
    }

    #[cold]
    fn refused<K: EncodedKey>(&mut self, refusal: Refusal, store: &Relation, (record, key): (Record<'_>, K)) -> Error {
        self.state.base.contested.note(record);
        match refusal {
            // It was deleted by some thread that committed since.
            Refusal::Closed(stamp) => self.refuse(Conflict { reason: Reason::WrittenLater, stamp }, store, key),
            Refusal::Conflict(conflict) => self.refuse(conflict, store, key),
        }
    }

    /// There is no room to write a row. That it was there to be written, and what of it was shown, has been told.
    #[cold]
    fn lacks_memory<K: EncodedKey>(&mut self, store: &Relation, key: K, error: Error) -> Error {
        if store.index_ref().index == IndexId::PRIMARY && !left_out(Step::LogRefused) {
            self.log_point(store.index_ref().table, key, ColumnSet::ALL);
        }
        error
    }

    /// Overwrites fragments of a row that the transaction sees, and, where the whole row changes, what is behind its fixed part.
    pub(super) fn write<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        record: Record<'w>,
        key: K,
        NewRow { words: row, columns, whole }: NewRow<'_>,
        fragments: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Result<(), Error> {
        let out_of_line = if whole { OutOfLineAddress::new(&row[store.rows.words()..], &self.guard) } else { Ok(None) };
        let out_of_line = out_of_line.map_err(|error| self.lacks_memory(store, key, Error::from(error)))?;
        let keeps_record = self.shared.options.before_images == BeforeImages::Records && !columns.is_empty();
        let draft = Draft {
            kind: Kind::Update,
            index_ref: store.index_ref(),
            row: record.id(),
            summary: summary_of(key),
            columns,
            fragment_words: match keeps_record {
                true => 1 + store.rows.words(),
                false => fragments.clone().map(|fragment| 1 + fragment.len()).sum(),
            },
            has_out_of_line: whole && store.rows.has_out_of_line(),
        };
        let before_image = match self.state.writing.draft(self.id, draft, key, &self.guard) {
            Ok(before_image) => before_image,
            Err(refused) => {
                self.discard(out_of_line);
                return Err(self.lacks_memory(store, key, Error::from(refused)));
            }
        };
        let mut latched = match self.latch(record) {
            Ok(latched) => latched,
            Err(refusal) => {
                self.discard(out_of_line);
                return Err(self.refused(refusal, store, (record, key)));
            }
        };
        // SAFETY: no other thread has the before-image yet.
        let mut room = unsafe { before_image.fragments_mut() };
        if keeps_record {
            keep_fragment(room, &latched, 0..store.rows.words());
        }
        for fragment in fragments {
            if !keeps_record {
                room = keep_fragment(room, &latched, fragment.clone());
            }
            latched.store(fragment.start, &row[fragment]);
        }
        if draft.has_out_of_line {
            // SAFETY: as above.
            unsafe { Writing::set_out_of_line(before_image, latched.out_of_line()) };
            latched.set_out_of_line(out_of_line);
        }
        self.state.push(latched, before_image, &self.guard);
        Ok(())
    }

    /// Deletes a row that the transaction sees. Needs memory for its before-image only, and may draw on what is put aside.
    pub(super) fn erase<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        record: Record<'w>,
        key: K,
    ) -> Result<(), Error> {
        let words = store.rows.words();
        let draft = Draft {
            kind: Kind::Delete,
            index_ref: store.index_ref(),
            row: record.id(),
            summary: summary_of(key),
            columns: ColumnSet::ALL,
            fragment_words: 1 + words,
            has_out_of_line: store.rows.has_out_of_line(),
        };
        let (writing, id) = (&mut self.state.writing, self.id);
        let before_image = self.guard.with_reserve(|guard| writing.draft(id, draft, key, guard).map(Undo::kept));
        let before_image = before_image.map_err(|error| self.lacks_memory(store, key, Error::from(error)))?;
        // SAFETY: the before-image was made just now, in the transaction's buffer.
        let before_image = unsafe { before_image.under(&self.guard) };
        let mut latched = match self.latch(record) {
            Ok(latched) => latched,
            Err(refusal) => return Err(self.refused(refusal, store, (record, key))),
        };
        // SAFETY: no other thread has the before-image yet.
        unsafe {
            keep_fragment(before_image.fragments_mut(), &latched, 0..words);
            if draft.has_out_of_line {
                Writing::set_out_of_line(before_image, latched.out_of_line());
            }
        }
        latched.set_out_of_line(None);
        latched.set_present(false);
        self.state.push(latched, before_image, &self.guard);
        Ok(())
    }

    /// Inserts a row under a key that shows none. `None`: it shows one.
    #[inline]
    pub(super) fn insert_record<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        key: K,
        row: &[u64],
    ) -> Result<Option<Record<'w>>, Error> {
        let (fixed, rest) = row.split_at(store.rows.words());
        let out_of_line = OutOfLineAddress::new(rest, &self.guard).map_err(Error::from)?;
        let outcome = self.insert_with(store, key, fixed, out_of_line);
        if !matches!(outcome, Ok(Some(_))) {
            self.discard(out_of_line);
        }
        outcome
    }

    fn insert_with<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        key: K,
        fixed: &[u64],
        out_of_line: Option<OutOfLineAddress>,
    ) -> Result<Option<Record<'w>>, Error> {
        loop {
            let epochs = self.shared.base.memory.epochs();
            let slot = store.rows.allocate(epochs, &self.guard).map_err(Error::from)?;
            let fresh = slot.record;
            let draft = insertion(store, fresh, key);
            let before_image = match self.state.writing.draft(self.id, draft, key, &self.guard) {
                Ok(before_image) => before_image,
                Err(refused) => {
                    store.rows.give_back_unseen(fresh);
                    return Err(Error::from(refused));
                }
            };
            fill(&mut slot.latch(), fixed, out_of_line, before_image);
            // SAFETY: as in `find`.
            let inserted = unsafe { self.state.base.fingers.insert(store, key, fresh.handle(), &mut (), &self.guard) };
            if matches!(inserted, Ok(Inserted::New)) {
                self.state.writing.keep(before_image);
                if self.has_beside(store, key) {
                    self.take_back_insertion(store, fresh);
                    return Ok(None);
                }
                return Ok(Some(fresh));
            }
            clear(&mut fresh.latch());
            // A thread that goes along the slots of the table may have come by.
            self.state.writing.waste(before_image);
            store.rows.give_back_unseen(fresh);
            let Inserted::Existing(existing) = inserted.map_err(Error::from)? else { continue };
            let Some(handle) = existing.handle else { continue };
            let record = store.record(handle);
            let seen = view(record, 0..0, &mut [], (self.start, self.id), &self.guard);
            if seen.closed {
                // A thread that closed it is about to take it out; either may come first.
                store.index().remove(key, handle, &self.guard);
            } else if seen.present {
                return Ok(None);
            } else if self.revive(store, record, key, fixed, out_of_line)? {
                return Ok(Some(record));
            }
        }
    }

    /// Undoes the insertion of a record, which is the latest change. The caller sees to its out-of-line part.
    #[cold]
    fn take_back_insertion(&mut self, store: &Relation, record: Record<'w>) {
        record.latch().set_out_of_line(None);
        let newest = self.state.writing.len() - 1;
        if let Some(before_image) = self.state.writing.pop(newest) {
            // SAFETY: the before-image is the transaction's own.
            self.undo(store, record, unsafe { before_image.under(&self.guard) });
        }
    }

    /// Puts a row where the transaction sees none. `false`: the record no longer serves a key.
    fn revive<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        record: Record<'w>,
        key: K,
        fixed: &[u64],
        out_of_line: Option<OutOfLineAddress>,
    ) -> Result<bool, Error> {
        let draft = insertion(store, record, key);
        let before_image = self.state.writing.draft(self.id, draft, key, &self.guard).map_err(Error::from)?;
        let mut latched = match self.latch(record) {
            Ok(latched) => latched,
            Err(Refusal::Closed(_)) => return Ok(false),
            // Either it was inserted since the start, or it is being inserted.
            Err(Refusal::Conflict(Conflict { stamp, .. })) => {
                self.state.base.contested.note(record);
                return Err(self.refuse(Conflict { reason: Reason::InsertedFirst, stamp }, store, key));
            }
        };
        before_image.set_older(latched.version(&self.guard));
        fill(&mut latched, fixed, out_of_line, before_image);
        drop(latched);
        self.state.writing.keep(before_image);
        Ok(true)
    }

    /// Gives back an out-of-line part that came into no slot.
    fn discard(&self, out_of_line: Option<OutOfLineAddress>) {
        if let Some(out_of_line) = out_of_line {
            // SAFETY: no thread has found it.
            unsafe { out_of_line.retire(&self.guard) };
        }
    }

    /// Undoes the changes from `from` on, newest first. What they told of the present goes on being protected, for the transaction may go
    /// on.
    pub(super) fn undo_before_images(&mut self, from: usize) {
        let logs = self.logs() && !self.doomed && !left_out(Step::ReadsOfUndone);
        while let Some(before_image) = self.state.writing.pop(from) {
            // SAFETY: the before-image is in the transaction's own buffer.
            let before_image = unsafe { before_image.under(&self.guard) };
            if logs {
                self.state.log_undone(before_image);
            }
            let index_ref = before_image.index_ref();
            let store = self.state.base.tables.table(index_ref.table).and_then(|table| table.store(index_ref.index));
            // The transaction has had the table since before it wrote it.
            let Ok(store) = store else { continue };
            // The before-image is of a slot of these rows, and in its chain.
            self.undo(store, store.rows.record(before_image.row()), before_image);
        }
    }

    fn undo(&self, store: &Relation, record: Record<'_>, before_image: Undo<'_>) {
        let mut latched = record.latch();
        debug_assert!(latched.version(&self.guard) == Some(before_image), "own images are undone newest first");
        for (first, words) in before_image.fragments() {
            latched.store(first, words);
        }
        let gone = latched.out_of_line();
        if before_image.kind() == Kind::Insert {
            latched.set_out_of_line(None);
            self.discard(gone);
        } else if let Some(out_of_line) = before_image.out_of_line() {
            if before_image.kind() == Kind::Update {
                self.discard(gone);
            }
            before_image.own_out_of_line(false);
            latched.set_out_of_line(out_of_line.map(OutOfLine::address));
        }
        latched.set_present(before_image.kind() != Kind::Insert);
        let older = before_image.older();
        latched.set_version(older);
        if before_image.kind() == Kind::Insert && older.is_none() {
            let is_beside = latched.close();
            debug_assert!(!is_beside, "nothing is put on a displaced record");
            drop(latched);
            store.index().remove(before_image.key(), record.handle(), &self.guard);
            store.rows.free(record, self.shared.base.memory.epochs());
        }
    }
}

impl State {
    /// Puts a before-image in front of a slot's chain.
    #[inline]
    pub(super) fn push(&mut self, mut latched: Latched<'_>, before_image: Undo<'_>, guard: &Guard<'_>) {
        let older = latched.version(guard);
        if latched.is_all_visible() {
            before_image.set_over_all_visible(true);
            if latched.restored().is_unknown() {
                // No thread looks at it before collection does, after the commit.
                older.into_iter().for_each(Undo::prefetch);
            }
        }
        before_image.set_older(older);
        latched.set_version(Some(before_image));
        drop(latched);
        self.writing.keep(before_image);
    }

    /// A row that was changed was read, and a key that was inserted was seen to be absent.
    fn log_undone(&mut self, before_image: Undo<'_>) {
        let index_ref = before_image.index_ref();
        if index_ref.index == IndexId::PRIMARY {
            self.log.point_of(index_ref.table, before_image.summary(), true, ColumnSet::ALL);
        } else if before_image.kind() == Kind::Insert && self.base.tables.table(index_ref.table).is_ok() {
            self.log.key(index_ref.table, index_ref.index, before_image.key());
        }
    }
}

/// What an insertion's before-image is made of: before it, there was nothing to be kept.
#[inline]
fn insertion<K: EncodedKey>(store: &Relation, record: Record<'_>, key: K) -> Draft {
    Draft {
        kind: Kind::Insert,
        index_ref: store.index_ref(),
        row: record.id(),
        summary: summary_of(key),
        columns: ColumnSet::ALL,
        fragment_words: 0,
        has_out_of_line: false,
    }
}

#[inline]
fn fill(latched: &mut Latched<'_>, fixed: &[u64], out_of_line: Option<OutOfLineAddress>, before_image: Undo<'_>) {
    latched.store(0, fixed);
    latched.set_out_of_line(out_of_line);
    latched.set_present(true);
    latched.set_version(Some(before_image));
}

fn clear(latched: &mut Latched<'_>) {
    latched.set_version(None);
    latched.set_out_of_line(None);
    latched.set_present(false);
}

/// Keeps some words of a slot, and answers with the room that is left.
#[inline]
fn keep_fragment<'a>(room: &'a mut [u64], latched: &Latched<'_>, fragment: Range<usize>) -> &'a mut [u64] {
    let (here, rest) = room.split_at_mut(1 + fragment.len());
    here[0] = fragment_head(fragment.start, fragment.len());
    for (kept, word) in here[1..].iter_mut().zip(fragment) {
        *kept = latched.load(word);
    }
    rest
}
