//! A running transaction: reads, writes, scans, savepoints (§4.2, 4.3, 4.5, 4.7).
//!
//! This file knows records and indexes; `rows.rs` makes rows of them and keeps secondary indexes up; `commit.rs` ends it.

use std::ops::Range;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason};
use polychron_engine::midway::Midway;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Primitives;
use polychron_engine::stores::{IndexRef, KeySpan, WorkerBase};
use polychron_engine::{Commit, Mode};
use polychron_index::{Inserted, Lookup, Stamp};
use polychron_memory::{Local, Snapshot};
use polychron_schema::RowBuffer;

use super::aside::{Kept, OwnGuard};
use super::conflicts::Met;
use super::protocol::Shared;
use super::record::{Claim, Record, Seen};
use super::scan::ScanBatch;
use super::sets::{Kind, MOST_PATCHES, Read, Span, Write};
use super::steps::Step;
use super::table::Store;
use super::worker::State;
use super::writing::{Group, Prepared};

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The row that was read last.
    pub(super) row: Box<RowBuffer>,
    /// A row as it was before a change, for the secondary indexes.
    pub(super) old: RowBuffer,
    pub(super) groups: Vec<Group>,
    /// What each of the groups needs.
    pub(super) prepared: Vec<Prepared>,
    /// Entries of a scan's leaf, read before the visitor sees any.
    pub(super) batch: ScanBatch,
}

/// A running transaction.
#[derive(Debug)]
pub struct MaflingoTransaction<'w> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    pub(super) guard: OwnGuard<'w>,
    /// What a snapshot keeps; `None` in a read-write transaction.
    pub(super) open: Option<Snapshot<'w>>,
    /// The epoch whose end a snapshot reads.
    pub(super) snapshot: Option<u64>,
    pub(super) read_only: bool,
    /// After a conflict every call conflicts.
    pub(super) doomed: bool,
    pub(super) midway: Midway,
}

/// What a lookup of a record came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'g> {
    /// The key leads to no record.
    Nothing,
    /// A record without a row: a tombstone, or an insertion under way.
    Empty(Record<'g>),
    /// A row; its projected words are in the row buffer.
    Row(Record<'g>),
}

/// With what an operation reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'g> {
    pub(super) guard: &'g OwnGuard<'g>,
    /// None in a transaction that may write, and where snapshots are switched off.
    pub(super) snapshot: Option<&'g Snapshot<'g>>,
}

impl<'w> MaflingoTransaction<'w> {
    /// Begins one. What a snapshot keeps was opened before.
    #[inline]
    pub(super) fn begin(
        shared: &'w Shared,
        state: &'w mut State,
        local: &'w Local,
        open: Option<Snapshot<'w>>,
        mode: Mode,
    ) -> Self {
        // Pinned first: a thread that waits for the transactions that know an old catalog waits for their epochs.
        // SAFETY: the sets are empty. The transaction puts into them what it finds under the guard, and has cleared them when it ends.
        let guard = unsafe { OwnGuard::new(local.pin()) };
        // SAFETY: the transaction holds the guard until its end, or has the snapshot, which was opened before.
        unsafe { state.base.tables.renew(&shared.base.catalog) };
        state.reclaim_between(shared, &guard);
        debug_assert!(
            !state.base.is_open && state.sets.writes.is_empty(),
            "the transaction before left something behind"
        );
        let read_only = mode == Mode::Snapshot;
        let snapshot = open.as_ref().map(Snapshot::epoch);
        if let Some(epoch) = snapshot {
            state.base.counters.snapshot(guard.epochs().age_ns(epoch) / 1000);
        }
        let midway = Midway::new(shared.options.check_every, read_only);
        state.base.begin_logged(&shared.base.common.journal);
        let mut transaction = Self { shared, state, guard, open, snapshot, read_only, doomed: false, midway };
        transaction.stand_aside();
        transaction
    }

    /// With what the transaction reads, and its worker's state.
    #[inline]
    pub(super) fn reader(&mut self) -> (Reader<'_>, &mut State) {
        (Reader { guard: &self.guard, snapshot: self.open.as_ref() }, &mut *self.state)
    }

    /// As [`State::find`].
    #[inline]
    pub(super) fn find<K: EncodedKey>(&mut self, store: &Store, key: K, range: Range<usize>) -> Option<Kept> {
        let (reader, state) = self.reader();
        match state.find(reader, store, key, range) {
            Found::Row(record) => Some(record.into()),
            Found::Empty(_) | Found::Nothing => None,
        }
    }

    /// Called at the start of every operation: conflicts stick, and long procedures find out that they are doomed.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), Error> {
        self.flags().check()?;
        if self.midway.is_due() { self.check() } else { Ok(()) }
    }

    /// §5, inconsistent reads: a procedure that loops on what were never mutually consistent is stopped here. A snapshot takes
    /// the occasion to leave its epoch for the present one, so that it holds back nothing but the versions it can see.
    #[cold]
    fn check(&mut self) -> Result<(), Error> {
        self.midway = Midway::new(self.shared.options.check_every, self.snapshot.is_some());
        if self.snapshot.is_some() {
            self.state.base.leave_epoch();
            self.guard.refresh();
            return Ok(());
        }
        if left_out(Step::ValidateRunning) {
            return Ok(());
        }
        let checked = self.validate().and_then(|_| self.check_written());
        checked.inspect_err(|_| self.state.base.conflicted_midway())
    }

    /// Whether the records that are going to be written are where they were found: own writes are looked for there. Own insertions are read
    /// there.
    fn check_written(&mut self) -> Result<(), Error> {
        let (writes, guard) = (&self.state.sets.writes, &self.guard);
        let gone = |write: &&Write| {
            let record = write.record.under(guard);
            let unlinked = record.state().unlinked() && !left_out(Step::RefuseUnlinkedWrites);
            unlinked || write.own_record && record.is_overtaken()
        };
        let gone = writes.iter().find(gone).copied();
        match gone {
            Some(write) => Err(self.conflict_at(Reason::StaleRead, write.index_ref, write.record)),
            None => Ok(()),
        }
    }

    /// Adds a write: see [`State::push_write`].
    #[inline(always)]
    pub(super) fn push_write<K: EncodedKey>(
        &mut self,
        record: Kept,
        index_ref: IndexRef,
        kind: Kind,
        key: K,
        start: usize,
        data: Span,
    ) {
        self.state.push_write(record, (index_ref, key), kind, start, data, !self.shared.base.common.journal.is_empty());
    }

    /// Inserts an entry whose key is absent (§4.5). `false`: the key has a row.
    ///
    /// Its record is absent and free, as the thesis has it, and not latched from its birth, as the thesis then says is faster: others read
    /// and write there as if it were a tombstone, however long this transaction takes. The first that commits has the key.
    #[inline]
    pub(super) fn insert_record<K: EncodedKey>(&mut self, store: &Store, key: K, row: &[u64]) -> Result<bool, Error> {
        let guard = &*self.guard;
        let record = Record::absent(row, guard).map_err(Error::from)?;
        let State { base: WorkerBase { fingers, .. }, sets, .. } = &mut *self.state;
        // SAFETY: as in `look_up`. The record is freed below only where the index has not taken it.
        let inserted = unsafe { fingers.insert(store, key, record.handle(), &mut sets.nodes, guard) };
        if matches!(inserted, Ok(Inserted::New)) {
            let record = record.into();
            self.push_write(record, store.index_ref, Kind::Insert, key, 0, Span::default());
            return Ok(true);
        }
        // SAFETY: the index did not take the record, so it is still ours alone.
        unsafe { record.free(guard) };
        inserted.map_err(Error::from)?;
        let (reader, state) = self.reader();
        match state.find(reader, store, key, 0..0) {
            Found::Row(_) => Ok(false),
            Found::Empty(record) => match state.keep_linked(record, store.index_ref) {
                Ok(Some(record)) => {
                    let data = state.sets.writes.keep(row);
                    self.push_write(record, store.index_ref, Kind::Put, key, 0, data);
                    Ok(true)
                }
                Ok(None) => self.insert_record(store, key, row),
                Err(met) => Err(self.is_inserted(store, met)),
            },
            // The key went between the two looks; it is tried again with a record of its own.
            Found::Nothing => self.insert_record(store, key, row),
        }
    }

    /// Writes an entry whatever is there.
    pub(super) fn put_record<K: EncodedKey>(&mut self, store: &Store, key: K, row: &[u64]) -> Result<(), Error> {
        let (reader, state) = self.reader();
        let (Some(record), _) = state.look_up(reader, store, key) else {
            if self.insert_record(store, key, row)? {
                return Ok(());
            }
            return self.put_record(store, key, row);
        };
        match state.keep_linked(record, store.index_ref) {
            Ok(Some(record)) => {
                let data = state.sets.writes.keep(row);
                self.push_write(record, store.index_ref, Kind::Put, key, 0, data);
                Ok(())
            }
            Ok(None) => self.put_record(store, key, row),
            Err(met) => Err(self.is_inserted(store, met)),
        }
    }

    /// Another transaction inserts the key.
    #[cold]
    fn is_inserted(&mut self, store: &Store, met: Met) -> Error {
        self.conflict(Reason::InsertedFirst, store.index_ref, Some(met))
    }

    fn end(&mut self) {
        self.state.base.is_open = false;
        self.state.unlatch_rows(&self.guard);
        self.state.base.contested.end_attempt(&self.shared.base.favour, self.doomed);
        self.open = None;
        self.state.reclaimer.share_surplus(&self.shared.orphans, self.shared.base.memory.most_waiting());
    }
}

impl State {
    /// Undoes a transaction that was leaked.
    pub(super) fn undo_leaked(&mut self, local: &Local) {
        // SAFETY: where there is something to undo, the leaked guard still holds the epoch of its records and tables. The sets are cleared
        // below.
        let guard = unsafe { OwnGuard::new(local.pin()) };
        self.undo_writes(0, &guard);
        self.unlatch_rows(&guard);
        self.sets.clear();
    }

    /// Works off what waits between two transactions. Whether there is more.
    pub(super) fn maintain(&mut self, local: &Local, shared: &Shared) -> bool {
        let guard = local.pin();
        let Self { base: WorkerBase { tables, .. }, pruner, reclaimer, .. } = self;
        // SAFETY: pinned just before; no thread looks at the list between transactions without renewing it like this.
        unsafe { tables.renew(&shared.base.catalog) };
        if !pruner.is_empty() {
            pruner.pass(tables, true, &guard, |_| {});
        }
        reclaimer.drain(&shared.orphans, tables, &guard)
    }

    /// Finds the record of a key and reads words `range` of its row into the row buffer; the reading is protected.
    #[inline(always)]
    pub(super) fn find<'g, K: EncodedKey>(
        &mut self,
        reader: Reader<'g>,
        store: &Store,
        key: K,
        range: Range<usize>,
    ) -> Found<'g> {
        if self.base.hints.any()
            && let Some(record) = self.find_hinted(reader, store, key, range.clone())
        {
            return Found::Row(record);
        }
        self.find_in_index(reader, store, key, range)
    }

    #[inline(never)]
    fn find_in_index<'g, K: EncodedKey>(
        &mut self,
        reader: Reader<'g>,
        store: &Store,
        key: K,
        range: Range<usize>,
    ) -> Found<'g> {
        loop {
            let (record, stamp) = self.look_up(reader, store, key);
            let Some(record) = record else {
                if reader.snapshot.is_none() && !left_out(Step::NodesOfMisses) {
                    self.sets.nodes.add(stamp, store.index_ref);
                }
                return self.or_beside(reader, store, key, range, Found::Nothing);
            };
            let seen = self.read_record(reader, record, stamp, store.index_ref, range.clone());
            if seen.moved && reader.snapshot.is_none() {
                // The row moved to a larger record just now; the index leads there.
                self.sets.reads.pop();
                continue;
            }
            if seen.present {
                return Found::Row(record);
            }
            return self.or_beside(reader, store, key, range, Found::Empty(record));
        }
    }

    /// Asks an index; an ordered one near where its last key was.
    #[inline]
    fn look_up<'g, K: EncodedKey>(
        &mut self,
        Reader { guard, .. }: Reader<'g>,
        store: &Store,
        key: K,
    ) -> (Option<Record<'g>>, Stamp) {
        // SAFETY: fingers are cleared when the transaction begins and when its guard is renewed. The handle was found under the guard.
        unsafe {
            let Lookup { handle, stamp } = self.base.fingers.get(store, key, guard);
            (handle.map(|handle| Record::from_handle(handle, guard)), stamp)
        }
    }

    /// As [`Self::find`], by a hint of the batch; `None` when there is none or it does not lead to a row.
    ///
    /// Nothing is concluded from a hint but the record's address, in an epoch that the batch holds: if the record has a row and is not
    /// unlinked when the transaction reads it, and validation finds it so again with the same TID, then it was the key's record at that
    /// instant, however the hint came about. Otherwise the key is looked up again.
    #[inline(always)]
    fn find_hinted<'g, K: EncodedKey>(
        &mut self,
        reader: Reader<'g>,
        store: &Store,
        key: K,
        range: Range<usize>,
    ) -> Option<Record<'g>> {
        if store.index_ref.index != IndexId::PRIMARY || reader.snapshot.is_some() {
            return None;
        }
        self.base.answer_hints(reader.guard);
        let handle = self.base.hints.find(store.index_ref.table, key)?;
        // SAFETY: the batch found the handle under a guard that it still holds.
        let record = unsafe { Record::from_handle(handle, reader.guard) };
        let reads = self.sets.reads.len();
        let seen = self.read_protected(reader, record, store.index_ref, range);
        if (seen.present || left_out(Step::RefuseEmptyHints)) && !seen.moved {
            return Some(record);
        }
        self.sets.reads.truncate(reads);
        None
    }

    /// Reads a record as the transaction sees it, and remembers that it did: for a record without a row, the node too.
    #[inline(always)]
    pub(super) fn read_record<'g>(
        &mut self,
        reader: Reader<'g>,
        record: Record<'g>,
        stamp: Stamp,
        index_ref: IndexRef,
        range: Range<usize>,
    ) -> Seen {
        let seen = self.read_protected(reader, record, index_ref, range);
        if !seen.present && reader.snapshot.is_none() && !left_out(Step::NodesOfTombstones) {
            self.sets.nodes.add(stamp, index_ref);
        }
        seen
    }

    /// Reads a record as the transaction sees it, and adds it to the read set.
    #[inline(always)]
    fn read_protected<'g>(
        &mut self,
        reader: Reader<'g>,
        record: Record<'g>,
        index_ref: IndexRef,
        range: Range<usize>,
    ) -> Seen {
        if let Some(snapshot) = reader.snapshot {
            return record.read_at(snapshot, range, &mut self.buffers.row);
        }
        if self.reads_own_writes()
            && let Some(latest) = self.sets.writes.latest(record.into())
        {
            return self.read_own(record, latest, range);
        }
        let seen = record.read(range, &mut self.buffers.row);
        self.sets.reads.push(Read { record: record.into(), tid: seen.tid, index_ref });
        seen
    }

    /// Reads a record that the transaction wrote: the row as it will be.
    pub(super) fn read_own(&mut self, record: Record<'_>, latest: u32, range: Range<usize>) -> Seen {
        let Self { sets, buffers, .. } = self;
        let writes = &sets.writes;
        // Back to the write that says what the whole row is, then forward again over the patches.
        let mut chain = [0u32; MOST_PATCHES];
        let (mut depth, mut at, mut base) = (0, Some(latest), None);
        while let Some(position) = at {
            let write = writes.get(position);
            if write.kind != Kind::Patch {
                base = Some(write);
                break;
            }
            chain[depth] = position;
            depth += 1;
            at = write.prior;
        }
        let row = &mut buffers.row;
        let mut seen = match base.map(|write| (write.kind, write.data)) {
            Some((Kind::Delete, _)) => return Seen { tid: record.tid(), ..Seen::default() },
            Some((Kind::Put, data)) => {
                let words = writes.words(data);
                row.overwrite_words(words.len()).copy_from_slice(words);
                Seen { tid: record.tid(), present: true, moved: false }
            }
            // An own insertion is copied without asking: if another one has put its row there, this transaction is told that before it is
            // believed.
            Some(_) => {
                let length = record.length();
                polychron_sync::load_words(&record.words()[..length], row.overwrite_words(length));
                Seen { tid: record.tid(), present: true, moved: false }
            }
            None => record.read(range, row),
        };
        let words = row.as_words().len();
        for &position in chain[..depth].iter().rev() {
            let write = writes.get(position);
            let (start, data) = (write.start as usize, writes.words(write.data));
            let end = (start + data.len()).min(words);
            if start < end {
                row.words_mut()[start..end].copy_from_slice(&data[..end - start]);
            }
        }
        seen.moved = false;
        seen
    }

    /// Adds a write. Its key is kept where it will be needed: to take a record out of the index, or where changes are `logged`.
    #[inline(always)]
    pub(super) fn push_write<K: EncodedKey>(
        &mut self,
        record: Kept,
        (index_ref, key): (IndexRef, K),
        kind: Kind,
        start: usize,
        data: Span,
        logged: bool,
    ) {
        let writes = &mut self.sets.writes;
        let key = if kind == Kind::Patch && !logged { KeySpan::default() } else { writes.keep_key(key) };
        writes.push(Write {
            record,
            index_ref,
            kind,
            own_record: kind == Kind::Insert,
            start: start as u32,
            key,
            data,
            prior: None,
        });
    }

    /// Makes sure that a record that is to be written stays in the index until the transaction ends, so that it finds
    /// its own write there. `None`: it has left already. An error: some thread kept its latch.
    ///
    /// A record with a row needs nothing: if it is deleted and leaves the index, the transaction conflicts, at its commit or before what
    /// it did is believed ([`MaflingoTransaction::check_written`]).
    #[inline]
    fn keep_linked(&mut self, record: Record<'_>, index_ref: IndexRef) -> Result<Option<Kept>, Met> {
        if !record.state().absent()
            || left_out(Step::ClaimTombstones)
            || self.sets.writes.latest(record.into()).is_some()
        {
            return Ok(Some(record.into()));
        }
        match record.claim() {
            Claim::Held => Ok(Some(record.into())),
            Claim::Gone => Ok(None),
            Claim::Latched => Err(self.meet(index_ref, record)),
        }
    }
}

impl Commit for MaflingoTransaction<'_> {
    fn commit(mut self) -> Result<(), Error> {
        self.flags().check()?;
        if self.snapshot.is_none() {
            self.come_back();
            if self.state.sets.writes.is_empty() {
                // The reads acquired, so validation's loads come after them; nothing was written that others must see.
                let newest = match left_out(Step::ValidateReaders) {
                    true => self.state.newest_read(0),
                    false => self.validate()?.epoch(),
                };
                self.state.known.note(self.shared.base.catalog.number(), newest);
                self.state.base.nested.forget_conflicts();
                self.await_reads();
                self.state.sets.clear();
            } else {
                self.commit_writes()?;
            }
        } else {
            self.await_reads();
        }
        self.end();
        Ok(())
    }

    fn roll_back(mut self) -> bool {
        let validated = self.snapshot.is_some() || left_out(Step::ValidateRollBack);
        if !self.doomed && !validated {
            self.come_back();
            return self.validate().and_then(|_| self.check_written()).is_ok();
        }
        !self.doomed
    }
}

impl Drop for MaflingoTransaction<'_> {
    fn drop(&mut self) {
        if self.state.base.is_open {
            if self.snapshot.is_none() {
                self.come_back();
                self.state.note_reads(0, self.shared.base.catalog.number());
            }
            if !self.doomed {
                self.await_reads();
            }
            self.undo_writes(0);
            self.state.sets.clear();
            self.end();
        }
    }
}
