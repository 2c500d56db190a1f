//! Rows that are written once more as they are: into the heads of their records, so that readers find them there (§3.3).
//!
//! The paper makes the transaction that reads such a row a writer of it. Here the transaction only notes the record, and its worker
//! writes it in a transaction of its own when the first one has committed: it may fail, and nobody notices.
//!
//! Nodes of multi-version indexes that deletions have written at the memory limit lie outside of their heads, in what was put aside for
//! deletions. Once that is used up, the worker that was refused moves them back, and what they took serves the next deletions.

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::Mode;
use polychron_engine::redo::Redo;
use polychron_engine::stores::IndexRef;
use polychron_memory::Local;

use super::array::Window;
use super::counts::Stage;
use super::protocol::Shared;
use super::record::{Link, Record, Status, Version, search};
use super::sets::{Kind, Target, Write};
use super::table::Store;
use super::transaction::{CicadaTransaction, Found, Source};
use super::worker::State;

/// Records noted in one transaction: what a scan over cold rows finds is not written all at once.
const MOST: usize = 8;

/// A record whose row is to move into its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    place: IndexRef,
    record: Record,
    version: Version,
    is_node: bool,
}

/// Nodes moved after one refusal, and those looked at for it.
const MOVED_AT_ONCE: usize = 256;
const LOOKED_AT: usize = 1 << 16;

impl<R: Redo> CicadaTransaction<'_, R> {
    /// A version of so many words for a deletion, or for a node that it changes.
    #[inline]
    pub(super) fn allocate_for_deletion(&self, words: usize) -> Result<Version, Error> {
        let version = self.guard.with_reserve(|guard| Version::allocate(words, guard));
        self.state.is_short.set(version.is_err());
        Ok(version?)
    }

    /// If a deletion was refused memory, the worker maintains before its next transaction.
    pub(super) fn look_after_shortage(&mut self) {
        if self.state.is_short.get() {
            self.state.maintained_ns = 0;
        }
    }

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
        place: IndexRef,
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

/// Moves nodes of multi-version indexes into their heads if a deletion of the worker was refused memory. The worker runs no transaction.
#[inline]
pub(super) fn see_to_shortage<R: Redo>(shared: &Shared<R>, state: &mut State, local: &Local) {
    if state.is_short.replace(false) && shared.options.parts().inlining {
        move_nodes(shared, state, local);
    }
}

#[cold]
fn move_nodes<R: Redo>(shared: &Shared<R>, state: &mut State, local: &Local) {
    let guard = local.pin();
    for (place, record) in find_outside(shared, state) {
        let Some(timestamp) = shared.clocks.begin_standing(state.base.slot, &mut state.clock) else { break };
        let mut transaction = CicadaTransaction::new(shared, state, local.pin(), timestamp, Mode::ReadWrite);
        let seen = search(record, timestamp, None, true);
        if let Some(version) = seen.version.filter(|_| seen.is_row)
            && transaction.rewrite(place, record, version, true, None::<&[u8]>)
        {
            // It may conflict, and stays where it is then.
            let _ = transaction.validate_and_write();
        }
        transaction.end();
    }
    drop(guard);
}

/// Nodes that lie outside of their heads, of those from where the worker looked last. The caller is pinned.
fn find_outside<R: Redo>(shared: &Shared<R>, state: &mut State) -> Vec<(IndexRef, Record)> {
    let (tables, mut found) = (state.base.tables.keep(), Vec::new());
    let mut window = Window { skipped: state.moved_to, left: LOOKED_AT };
    let _held = shared.clocks.hold(state.base.slot);
    for table in tables.iter().flatten() {
        for store in std::iter::once(&table.primary).chain(table.secondaries()) {
            let Some(nodes) = &store.versioned else { continue };
            nodes.for_some(&mut window, |record| {
                if found.len() < MOVED_AT_ONCE && lies_outside(record, nodes.nodes.inline_words()) {
                    found.push((store.place(), record));
                }
            });
        }
    }
    if window.left > 0 {
        state.moved_to = 0;
    } else if found.len() < MOVED_AT_ONCE {
        state.moved_to += LOOKED_AT;
    }
    found
}

/// Whether a node lies outside of its head, which has room for it. The caller holds a moment and a guard.
fn lies_outside(record: Record, inlined: usize) -> bool {
    match record.latest().link() {
        Link::To(version) => {
            version.status() == Status::Committed
                && version.words() <= inlined
                && !record.is_inline(version)
                && record.inline_status() == Status::Unused
        }
        Link::End | Link::Closed => false,
    }
}
