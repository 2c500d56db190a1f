//! Conflicts, and those with what the calling thread itself has committed inside of the transaction; see [`polychron_engine::nested`]. Timestamps tell
//! transactions apart: that of a version its writer, and the one up to which a version was read the latest reader.

use polychron_base::error::KeyPreview;
use polychron_base::{Error, Reason};
use polychron_engine::catalog;
use polychron_engine::contested::RowAddress;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;

use super::counts::Stage;
use super::kept::KeptVersion;
use super::record::Status;
use super::steps::Step;
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;

impl CicadaTransaction<'_> {
    /// What tells this database from others while it is open.
    pub(super) fn database(&self) -> u32 {
        self.shared.base.catalog.number()
    }

    /// The transaction has committed. One that only read counts, too: others may no longer write below it.
    #[inline]
    pub(super) fn note_commit(&mut self) {
        let (database, timestamp) = (self.database(), self.timestamp().0);
        self.state.base.nested.committed(database, timestamp);
    }

    /// As [`CicadaTransaction::conflict`], at a record, with the other transaction's timestamp where that is known.
    #[cold]
    pub(super) fn conflict_at(
        &mut self,
        record: impl Into<RowAddress>,
        other: Option<Timestamp>,
        reason: Reason,
        (place, version): (IndexRef, Option<KeptVersion>),
    ) -> Error {
        self.state.base.contested.note(record);
        if let Some(other) = other {
            self.state.base.nested.is_behind(other.0);
        }
        self.conflict(reason, place, version)
    }

    /// Keeps why the transaction conflicts. The key is taken from a version where it has a row.
    #[cold]
    pub(super) fn conflict(&mut self, reason: Reason, place: IndexRef, version: Option<KeptVersion>) -> Error {
        let key = version.and_then(|version| self.key_of(place, version));
        let database = self.database();
        self.state.base.keep_abort(database, reason, place, key);
        self.state.commits_in_row = 0;
        self.shared.clocks.boost(&mut self.state.clock, self.state.base.slot);
        self.shared.clocks.counts(self.state.base.slot).abort(self.state.stage);
        self.doomed = !left_out(Step::StayDoomed);
        Error::Conflict
    }

    /// Conflicts where the transaction has read a row at which a favoured one has conflicted: raising the row's read timestamp would make
    /// that conflict again, as writing the row would.
    #[inline]
    pub(super) fn make_way(&mut self) -> Result<(), Error> {
        if self.shared.base.favour.other(self.state.base.slot).is_some() { self.make_way_at_reads() } else { Ok(()) }
    }

    #[cold]
    fn make_way_at_reads(&mut self) -> Result<(), Error> {
        let mut reads = self.state.sets.reads.iter(&self.guard);
        let Some(read) = reads.find(|read| self.is_barred(read.record.address())) else { return Ok(()) };
        let version = read.version.filter(|_| !read.is_node).map(|version| self.guard.keep(version));
        let (record, place) = (read.record.address(), read.place);
        drop(reads);
        Err(self.conflict_at(record, None, Reason::BeingWritten, (place, version)))
    }

    /// Whether a row is left to a favoured transaction. Not by what rewrites rows as they are, for which the favoured one may have to wait before
    /// it begins.
    #[inline]
    pub(super) fn is_barred(&self, record: impl Into<RowAddress>) -> bool {
        let is_here = |other| self.guard.epochs().is_here(other);
        self.state.base.contested.is_barred(&self.shared.base.favour, record, self.state.base.slot, is_here)
            && self.state.stage != Stage::Rewriting
    }

    fn key_of(&self, place: IndexRef, version: KeptVersion) -> Option<KeyPreview> {
        let version = version.under(&self.guard);
        if version.status() != Status::Committed {
            return None;
        }
        let table = catalog::known(&self.state.base.tables, place.table)?;
        table.key_in(place.index, version.row().as_words())
    }
}
