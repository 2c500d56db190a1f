//! Conflicts, and those with what the calling thread itself has committed inside of the transaction; see [`polychron_engine::nested`]. Timestamps tell
//! transactions apart: that of a version its writer, and the one up to which a version was read the latest reader.

use polychron_base::error::KeyPreview;
use polychron_base::{Abort, Reason, Stop};
use polychron_engine::catalog;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::stores::Place;

use super::record::{Status, Version};
use super::steps::Step;
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;

impl<R: Redo> CicadaTransaction<'_, R> {
    /// What tells this database from others while it is open.
    pub(super) fn database(&self) -> u32 {
        self.shared.catalog.number()
    }

    /// The transaction has committed. One that only read counts, too: others may not write below it any more.
    #[inline]
    pub(super) fn note_commit(&mut self) {
        let (database, moment) = (self.database(), self.timestamp.0);
        self.state.nested.committed(database, moment);
    }

    /// As [`CicadaTransaction::conflict`], with what stands at a moment.
    #[cold]
    pub(super) fn conflict_with(
        &mut self,
        other: Timestamp,
        reason: Reason,
        place: Place,
        version: Option<Version>,
    ) -> Stop {
        self.state.nested.is_behind(other.0);
        self.conflict(reason, place, version)
    }

    /// Keeps why the transaction conflicts. The key is taken from a version where it has a row.
    #[cold]
    pub(super) fn conflict(&mut self, reason: Reason, place: Place, version: Option<Version>) -> Stop {
        let key = version.and_then(|version| self.key_of(place, version));
        let abort = Abort { reason, table: place.table, index: place.index, key };
        self.state.nested.conflicts(self.database(), &abort);
        self.state.last_abort = Some(abort);
        self.state.commits_in_row = 0;
        self.shared.clocks.boost(&mut self.state.clock, self.state.worker);
        self.shared.clocks.counts(self.state.worker).abort(self.state.stage);
        self.doomed = !left_out(Step::StayDoomed);
        Stop::conflict()
    }

    fn key_of(&self, place: Place, version: Version) -> Option<KeyPreview> {
        if version.status() != Status::Committed {
            return None;
        }
        let table = catalog::known(&self.state.tables, place.table)?;
        // SAFETY: the version was visible to this transaction, which still runs.
        self.key_in(table, place.index, unsafe { version.row() })
    }
}
