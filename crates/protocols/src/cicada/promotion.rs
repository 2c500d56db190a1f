//! Rows that are written once more as they are: into the heads of their records, so that readers find them there (§3.3).
//!
//! The paper makes the transaction that reads such a row a writer of it. Here the transaction only notes the record, and its worker
//! writes it in a transaction of its own when the first one has committed: it may fail, and nobody notices.

use polychron_base::key::EncodedKey;
use polychron_engine::redo::Redo;
use polychron_engine::stores::Place;

use super::counts::Stage;
use super::record::{Link, Record, Status, Version};
use super::sets::{Kind, Target, Write};
use super::table::Store;
use super::transaction::{CicadaTransaction, Found, Source};

/// Records noted in one transaction: what a scan over cold rows finds is not written all at once.
const MOST: usize = 8;

/// A record whose row is to move into its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    place: Place,
    record: Record,
    version: Version,
    is_node: bool,
}

impl<R: Redo> CicadaTransaction<'_, R> {
    /// Notes a record whose row lies outside of its head, if it is worth while to move it: it fits, there is room, and nobody has
    /// written it for a while.
    #[inline]
    pub(super) fn note_for_promotion(&mut self, store: &Store, record: Record, version: Version, is_node: bool) {
        let options = &self.shared.options;
        if options.parts().promotion
            && options.parts().inlining
            && version.words() <= store.records_of(is_node).inline_words()
            && record.inline_status() == Status::Unused
            && self.state.promotions.len() < MOST
            && version.wts().is_before(self.shared.clocks.min_rts())
        {
            self.state.promotions.push(Candidate { place: store.place(), record, version, is_node });
        }
    }

    /// Moves the noted rows, when the transaction itself has ended. The guard under which they were noted still holds.
    #[cold]
    pub(super) fn promote(&mut self) {
        let commits_in_row = self.state.commits_in_row;
        while let Some(Candidate { place, record, version, is_node }) = self.state.promotions.pop() {
            // Most often the transaction itself has written what it read.
            if record.latest().link() != Link::To(version) {
                continue;
            }
            // Nothing is lost where the clocks do not admit another transaction.
            let begun = self.shared.clocks.begin_standing(self.state.base.slot, &mut self.state.clock);
            let Some(timestamp) = begun else { continue };
            (self.doomed, self.ended, self.timestamp) = (false, false, timestamp);
            let again = self.rewrite(place, record, version, is_node, None::<&[u8]>);
            if again && self.validate_and_write().is_ok() {
                self.shared.clocks.counts(self.state.base.slot).promotions.add(1);
            }
            self.end();
        }
        // Whether these pass says nothing about the user's transactions.
        self.state.commits_in_row = commits_in_row;
        self.shared.clocks.calm(&mut self.state.clock);
    }

    /// Writes a row once more, if it is still that version; or the deletion of a key that is told. The log need not know.
    pub(super) fn rewrite<K: EncodedKey>(
        &mut self,
        place: Place,
        record: Record,
        version: Version,
        is_node: bool,
        key: Option<K>,
    ) -> bool {
        self.state.stage = Stage::Rewriting;
        let found = self.read_record(record, place);
        self.state.sets.reads.iter_mut().for_each(|read| read.is_node = is_node);
        let write = |kind| Write { unlogged: true, is_node, ..Write::new(Target::Record(record), place, kind) };
        let Found::Row(target, Source::Version(now)) = found else {
            let stays = key.is_some() && self.state.sets.reads.last().is_some_and(|read| read.version == Some(version));
            if stays {
                self.state.sets.writes.push(write(Kind::Delete), key, None);
            }
            return stays;
        };
        if now != version || !is_node && self.check_early(target, Source::Version(now), place).is_err() {
            return false;
        }
        let mut row = std::mem::take(&mut self.state.buffers.row);
        row.copy_from(self.row_at(Source::Version(now)).as_bytes());
        self.state.sets.writes.push(write(Kind::Put), None::<&[u8]>, Some(&mut row));
        self.state.buffers.row = row;
        true
    }
}
