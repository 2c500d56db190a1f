//! The operations of a procedure: reads of the versions before its log position, and rows for its placeholders.

use std::cell::RefCell;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, clear_each};
use polychron_engine::Savepoints;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Watch;
use polychron_engine::stores::{Fingers, Hints, IndexRef};
use polychron_index::Handle;
use polychron_memory::{Guard, Local, Snapshot};
use polychron_sync::atomic::Ordering;

use super::entry::{Known, Want};
use super::execution::ExecutorState;
use super::interactive::Driver;
use super::naming::{ByKey, ByVersion, FEW};
use super::planned::{Body, Executing};
use super::protocol::Shared;
use super::steps::{Point, Step};
use super::table::BohmStore;
use super::timestamp::Timestamp;
use super::version::RawVersion;
use super::writing::Undo;

/// Which entry of the transaction: the planned ones come first, those that were not planned have the highest bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(pub(super) u32);

pub(super) const UNPLANNED: u32 = 1 << 31;

impl Position {
    /// Which of the entries it is that were not planned. `None`: it is a planned one.
    #[inline]
    pub(super) fn late(self) -> Option<usize> {
        (self.0 & UNPLANNED != 0).then_some((self.0 & !UNPLANNED) as usize)
    }
}

/// After so many reads of keys that were fetched a snapshot goes over to the present epoch.
const RENEWED_EVERY: u32 = 64;

/// A transaction that is being executed, or a snapshot.
#[derive(Debug)]
pub struct BohmTransaction<'t> {
    pub(super) shared: &'t Shared,
    pub(super) state: &'t mut ExecutorState,
    pub(super) local: &'t Local,
    pub(super) guard: Guard<'t>,
    /// Of a snapshot: what keeps its tables while its guard rests.
    pub(super) kept: Option<Snapshot<'t>>,
    /// Keys that a snapshot has asked to be fetched, and not read yet.
    pub(super) asked: u32,
    /// `None`: a snapshot.
    pub(super) planned: Option<Executing<'t>>,
    /// Versions that begin later are not seen; the version that begins then is its own.
    pub(super) timestamp: Timestamp,
    /// It must be executed again: it waits for another thread, or cannot be executed as it was planned.
    pub(super) doomed: bool,
    /// It is to be planned again.
    pub(super) again: bool,
    /// It wrote what it had not named: this run only finds out what there is to plan.
    pub(super) is_guessing: bool,
    /// The first key that it wanted to write without having named it; it can no longer commit.
    pub(super) undeclared: Option<(IndexRef, KeyPreview)>,
    /// The bytes that it could not have to go back to a savepoint; it can neither go on nor commit.
    pub(super) lost: Option<usize>,
    /// An operation was refused because memory is short.
    pub(super) was_refused_memory: bool,
    /// Earlier transactions may be under way. A snapshot of finished batches only has none before it.
    pub(super) awaits: bool,
    /// What drives it.
    pub(super) driver: Driver<'t>,
    pub(super) is_saving: bool,
    /// Whether that is for the operation that is under way.
    pub(super) saves_operation: bool,
    /// The planned entry behind the one that was used last.
    pub(super) next: u32,
    /// The prefix that was used last.
    pub(super) covering: Option<Position>,
    pub(super) trusts_annotations: bool,
    pub(super) scratch: Scratch,
    /// It has staged changes for the log, and is going to commit.
    pub(super) has_staged: bool,
}

/// What is planned for the entries of a secondary index.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRights {
    /// Some of them may be written.
    pub(super) is_planned: bool,
    /// Rows of their table may be written, other than by updates that leave the index alone.
    pub(super) may_write: bool,
}

/// Memory of a transaction, which the next one uses again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) undo: Vec<Undo>,
    pub(super) savepoints: Savepoints,
    /// The entries of a transaction that has many, as far as they were looked at.
    known: ByKey,
    /// The same by their versions.
    versions: ByVersion,
    /// What is planned for secondary indexes, as far as it was asked.
    pub(super) rights: Vec<(usize, EntryRights)>,
    /// The prefixes that are planned, once they were looked for.
    pub(super) prefixes: Vec<Position>,
    pub(super) knows_prefixes: bool,
    /// Lists of intents over a range that is about to be scanned.
    pub(super) lists: Vec<Handle>,
    /// Keys that it will read without having declared them, which are fetched together. What a hint found is not kept: by the time the key is
    /// read it may be under another chain.
    pub(super) hints: Hints,
    /// Leaves of indexes that it was at, if it is no snapshot.
    pub(super) fingers: RefCell<Fingers>,
    /// What it reads of a log that has stopped.
    pub(super) watch: Watch,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        clear_each!(self.undo, self.savepoints, self.known, self.versions, self.rights, self.prefixes, self.hints);
        self.knows_prefixes = false;
        self.fingers.get_mut().clear();
    }
}

impl<'t> BohmTransaction<'t> {
    /// Waits for the transactions before it that may write anything, and then looks at the list of tables: they may have written by a later list than
    /// it would have found before.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        let waits_first = !left_out(Step::ListBehindWaits);
        if !waits_first {
            self.renew_tables();
        }
        pass(Point::Begins);
        if !left_out(Step::AwaitEverything) {
            self.await_intents(&self.shared.everything)?;
        }
        if waits_first {
            self.renew_tables();
        }
        Ok(())
    }

    /// Why it cannot be executed at all: it named what cannot be a key, or there was no memory for a placeholder.
    pub(super) fn refusal(&self) -> Option<Error> {
        if self.body().is_some_and(|body| body.is_too_long) {
            return Some(Error::key_too_long(None));
        }
        let requested = self.planned.as_ref()?.planned().refused.load(Ordering::Relaxed);
        (requested > 0).then(|| self.out_of_memory(requested))
    }

    /// Whether it is to be planned again, or be executed again.
    pub(super) fn is_void(&self) -> bool {
        self.doomed || self.again || self.is_guessing
    }

    #[inline]
    pub(super) fn body(&self) -> Option<&Body> {
        self.planned.as_ref().map(Executing::body)
    }

    /// How many entries it has that were not planned.
    #[inline]
    pub(super) fn late_count(&self) -> usize {
        self.body().map_or(0, |body| body.late.len())
    }

    #[inline]
    pub(super) fn step(&self) -> Result<(), Error> {
        if self.doomed { Err(Error::Conflict) } else { Ok(()) }
    }

    /// Called at the start of every operation that a snapshot can do: it comes back into an epoch.
    #[inline]
    pub(super) fn wake(&mut self) {
        if self.kept.is_some() {
            self.guard.resume();
            self.awaits = self.awaits && self.timestamp.batch() > self.shared.pipeline.finished();
        }
    }

    /// Called at the end: a snapshot is in no epoch between two operations, so one whose client does nothing holds back nothing but the versions
    /// that it sees. Only while it reads keys that it has asked to be fetched it stays, for coming back each time waits for all that is being fetched.
    #[inline]
    pub(super) fn rest(&mut self) {
        if self.kept.is_none() {
            return;
        }
        self.asked = self.asked.saturating_sub(1);
        if self.asked == 0 {
            self.guard.rest();
        } else if self.asked.is_multiple_of(RENEWED_EVERY) {
            self.guard.refresh();
        }
    }

    /// Between the parts of a long operation: a snapshot goes over to the present epoch. What it has found in the last one it does not look at again.
    #[inline]
    pub(super) fn renew(&mut self) {
        if self.kept.is_some() {
            self.guard.refresh();
        }
    }

    /// Ends the run: the transaction is executed again later.
    #[cold]
    pub(super) fn doom(&mut self) -> Error {
        self.doomed = true;
        Error::Conflict
    }

    /// Refuses a write of a key that was not named, and with it the transaction.
    #[cold]
    pub(super) fn refuse_undeclared(&mut self, at: IndexRef, key: KeyPreview) -> Error {
        let (IndexRef { table, index }, key) = *self.undeclared.get_or_insert((at, key));
        Error::undeclared(table, index, key)
    }

    /// So many bytes could not be had.
    #[cold]
    pub(super) fn out_of_memory(&self, requested: usize) -> Error {
        self.shared.base.memory.refusal(requested).into()
    }

    /// Refuses the transaction, which has lost what it put before a savepoint, and shows nothing of it from now on.
    #[cold]
    pub(super) fn lose(&mut self, requested: usize) -> Error {
        (self.doomed, self.lost) = (true, Some(requested));
        self.out_of_memory(requested)
    }

    /// Why it cannot commit, whatever its procedure answers.
    pub(super) fn failure(&self) -> Option<Error> {
        if let Some(requested) = self.lost {
            return Some(self.out_of_memory(requested));
        }
        self.undeclared.map(|(at, key)| Error::undeclared(at.table, at.index, key))
    }

    /// Ends the run: the transaction is planned again by its client.
    #[cold]
    pub(super) fn plan_again(&mut self) -> Error {
        self.again = true;
        self.doom()
    }

    /// An entry of its own.
    #[inline]
    pub(super) fn entry(&self, position: Position) -> Known<'_> {
        self.planned.as_ref().expect("a snapshot has no entries").entry(position)
    }

    /// The planned entries.
    pub(super) fn planned_positions(&self) -> impl Iterator<Item = Position> + use<> {
        let (first, end) = self.body().map_or((0, 0), |body| (body.first, body.end));
        (first..end).map(Position)
    }

    /// All entries.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> + use<> {
        let late = self.late_count() as u32;
        self.planned_positions().chain((0..late).map(|late| Position(late | UNPLANNED)))
    }

    /// The entry of a key.
    #[inline]
    pub(super) fn own<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Option<Position> {
        let body = self.body()?;
        let (planned, end, late) = ((body.end - body.first) as usize, body.end, body.late.len());
        if planned + late == 0 {
            return None;
        }
        let (hash, wanted) = (key.hash(store.hash_seed()), std::ptr::from_ref(store));
        // Procedures use their keys in the order in which they declare them.
        let found = if self.next < end && self.entry(Position(self.next)).is_of(wanted, hash, key) {
            self.planned.as_ref()?.client_batch().fetch_behind(self.next as usize);
            Some(Position(self.next))
        } else if planned + late <= FEW {
            self.positions().find(|&position| self.entry(position).is_of(wanted, hash, key))
        } else {
            self.own_of_many(wanted, hash, key)
        };
        if let Some(Position(position)) = found.filter(|position| position.0 & UNPLANNED == 0) {
            self.next = position + 1;
        }
        if found.is_none_or(|position| self.entry(position).want != Want::Read) {
            return found;
        }
        // A key that was planned to be read may be written all the same.
        let is_right = |this: &Self, position: u32| {
            position & UNPLANNED != 0 && this.entry(Position(position)).is_of(wanted, hash, key)
        };
        let written = if late <= FEW {
            (0..late as u32).map(|late| late | UNPLANNED).find(|&position| is_right(self, position)).map(Position)
        } else {
            self.find_known(hash, is_right)
        };
        written.or(found)
    }

    /// As [`Self::own`], with a table of all entries.
    #[cold]
    fn own_of_many<K: EncodedKey>(&mut self, store: *const BohmStore, hash: u64, key: K) -> Option<Position> {
        self.find_known(hash, |this, position| this.entry(Position(position)).is_of(store, hash, key))
    }

    /// The entry with this ordinal among the planned ones and those behind them.
    fn position_at(&self, ordinal: usize) -> u32 {
        let (first, end) = self.body().map_or((0, 0), |body| (body.first, body.end));
        match ordinal.checked_sub((end - first) as usize) {
            None => first + ordinal as u32,
            Some(late) => late as u32 | UNPLANNED,
        }
    }

    /// How many entries there are.
    fn entry_count(&self) -> usize {
        let planned = self.body().map_or(0, |body| (body.end - body.first) as usize);
        planned + self.late_count()
    }

    fn find_known(&mut self, hash: u64, is_right: impl Fn(&Self, u32) -> bool) -> Option<Position> {
        let mut known = std::mem::take(&mut self.scratch.known);
        for ordinal in known.seen..self.entry_count() {
            let position = self.position_at(ordinal);
            known.add(position, &self.entry(Position(position)), |other| self.entry(Position(other)).hash);
        }
        let found = known.find(hash, |position| is_right(self, position));
        self.scratch.known = known;
        found.map(Position)
    }

    /// The entry of a version of its own.
    pub(super) fn own_version(&mut self, version: RawVersion) -> Option<Position> {
        if self.entry_count() <= FEW {
            return self.positions().find(|&position| self.entry(position).version() == Some(version));
        }
        let mut versions = std::mem::take(&mut self.scratch.versions);
        for ordinal in versions.seen..self.entry_count() {
            let position = self.position_at(ordinal);
            versions.add(position, &self.entry(Position(position)));
        }
        let found = versions.find(version);
        self.scratch.versions = versions;
        found.map(Position)
    }

    /// The entry of a key that the transaction may write.
    #[inline]
    pub(super) fn own_written<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Option<Position> {
        self.own(store, key).filter(|&position| self.entry(position).is_written())
    }
}
