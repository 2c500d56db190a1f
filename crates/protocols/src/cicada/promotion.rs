//! Rows that are written once more as they are: into the heads of their records, so that readers find them there (§3.3).
//!
//! The paper makes the transaction that reads such a row a writer of it. Here the transaction only notes the record, and its worker
//! writes it in a transaction of its own when the first one has committed: it may fail, and nobody notices.
//!
//! Nodes of multi-version indexes that deletions have written at the memory limit lie outside of their heads, in what was put aside for
//! deletions. Once that is used up, the worker that was refused moves them back, and what they took serves the next deletions.

use std::cell::Cell;

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::catalog::TableList;
use polychron_engine::stores::IndexRef;
use polychron_memory::{Guard, Local, OutOfMemory};

use super::array::Window;
use super::counts::Stage;
use super::kept::{Beginning, Kept, Noted, OwnGuard};
use super::protocol::Shared;
use super::reads::Reading;
use super::record::{Link, NewVersion, Reader, Record, Status, Version, VersionAddress};
use super::sets::{Kind, NewRow, Target, Write};
use super::table::{CicadaTable, Store};
use super::transaction::{CicadaTransaction, Found, Source};
use super::worker::State;

/// Records noted in one transaction: what a scan over cold rows finds is not written all at once.
const MOST: usize = 8;

/// A record whose row is to move into its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    place: IndexRef,
    record: Noted,
    version: VersionAddress,
    is_node: bool,
}

/// Nodes moved after one refusal, and those looked at for it.
const MOVED_AT_ONCE: usize = 256;
const LOOKED_AT: usize = 1 << 16;

/// Makes a version for a write. At the memory limit deletions go on, with the nodes of multi-version indexes that they change; if one is refused all
/// the same, that is noted.
#[inline]
pub(super) fn allocate<'g>(
    guard: &'g OwnGuard<'_>,
    write: &Write,
    is_short: &Cell<bool>,
    make: impl FnOnce(&'g Guard<'g>) -> Result<NewVersion<'g>, OutOfMemory>,
) -> Result<NewVersion<'g>, Error> {
    if !write.makes_room {
        return Ok(make(guard)?);
    }
    let version = guard.with_reserve(|_| make(guard));
    is_short.set(version.is_err());
    Ok(version?)
}

/// Notes a record whose row, or node, lies outside of its head, if it is worth while to move it: it fits, there is room, nobody has written it for a
/// while, and somebody else has read it since. To move it costs more than one reader saves.
#[inline]
pub(super) fn note<'g>(
    shared: &Shared,
    promotions: &mut Vec<Candidate>,
    guard: &'g OwnGuard<'_>,
    store: &Store,
    (record, version, is_node): (Record<'g>, Version<'g>, bool),
) {
    let options = &shared.options;
    if options.parts().promotion
        && options.parts().inlining
        && version.words() <= store.records_of(is_node).inline_words()
        && record.inline_status() == Status::Unused
        && promotions.len() < MOST
        && version.was_read()
        && version.wts().is_before(shared.clocks.min_rts())
    {
        let (record, version) = (guard.note(record), version.address());
        promotions.push(Candidate { place: store.place(), record, version, is_node });
    }
}

impl CicadaTransaction<'_> {
    /// If a deletion was refused memory, the worker maintains before its next transaction.
    pub(super) fn look_after_shortage(&mut self) {
        if self.state.is_short.get() {
            self.state.maintained_ns = 0;
        }
    }

    /// Moves the noted rows, when the transaction itself has ended. The guard under which they were noted still holds.
    #[cold]
    pub(super) fn promote(&mut self) {
        let commits_in_row = self.state.commits_in_row;
        while let Some(Candidate { place, record, version, is_node }) = self.state.promotions.pop() {
            // Most often the transaction itself has written what it read.
            if self.guard.noted(record).is_none_or(|record| !record.leads_to(version)) {
                continue;
            }
            // Nothing is lost where the clocks do not admit another transaction.
            if !self.begin_anew() {
                continue;
            }
            (self.doomed, self.state.base.is_open) = (false, true);
            let Some(record) = self.guard.noted(record).map(|record| self.guard.keep(record)) else { continue };
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

    /// Writes a row once more, if it is still that version; or the deletion of a key that is given. The log need not know.
    pub(super) fn rewrite<K: EncodedKey>(
        &mut self,
        place: IndexRef,
        record: Kept,
        version: VersionAddress,
        is_node: bool,
        key: Option<K>,
    ) -> bool {
        self.state.stage = Stage::Rewriting;
        let found = self.read_record(record, place);
        self.state.sets.reads.set_nodes(is_node);
        let write = |kind| Write { unlogged: true, is_node, ..Write::new(Target::Record(record), place, kind) };
        let Found::Row(Source::Version(now)) = found else {
            let is_there = |read: Reading<'_>| read.version.is_some_and(|read| read.address() == version);
            let stays = key.is_some() && self.state.sets.reads.iter(&self.guard).last().is_some_and(is_there);
            if stays {
                self.state.sets.writes.push(write(Kind::Delete), key, NewRow::None);
            }
            return stays;
        };
        if now.version().address() != version || !is_node && self.check_early(Source::Version(now), place).is_err() {
            return false;
        }
        let mut row = std::mem::take(&mut self.state.buffers.row);
        row.copy_from(self.row_at(Source::Version(now)).as_bytes());
        self.state.sets.writes.push(write(Kind::Put), None::<&[u8]>, NewRow::In(&mut row));
        self.state.buffers.row = row;
        true
    }
}

/// Moves nodes of multi-version indexes into their heads if a deletion of the worker was refused memory. The worker runs no transaction.
#[inline]
pub(super) fn see_to_shortage(shared: &Shared, state: &mut State, local: &Local) {
    if state.is_short.replace(false) && shared.options.parts().inlining {
        move_nodes(shared, state, local);
    }
}

#[cold]
fn move_nodes(shared: &Shared, state: &mut State, local: &Local) {
    let guard = local.pin();
    let tables = state.base.tables.keep();
    for (place, record) in find_outside(shared, state, &tables, &guard) {
        let Some(own) = OwnGuard::begin(shared, state, local, Beginning::InBetween) else { break };
        let mut transaction = CicadaTransaction::new(shared, state, own);
        let seen = transaction.guard.search(record, None, true);
        let (record, version) = (transaction.guard.keep(record), seen.version.filter(|_| seen.is_row));
        if let Some(version) = version.map(Version::address)
            && transaction.rewrite(place, record, version, true, None::<&[u8]>)
        {
            // It may conflict, and stays where it is then.
            let _ = transaction.validate_and_write();
        }
        transaction.end();
    }
}

/// Nodes that lie outside of their heads, of those from where the worker looked last.
fn find_outside<'g>(
    shared: &Shared,
    state: &mut State,
    tables: &'g TableList<CicadaTable>,
    guard: &'g Guard<'_>,
) -> Vec<(IndexRef, Record<'g>)> {
    let mut found = Vec::new();
    let mut window = Window { skipped: state.moved_to, left: LOOKED_AT };
    let held = shared.clocks.hold(state.base.slot);
    for table in tables.iter().flatten() {
        for store in std::iter::once(&table.primary).chain(table.secondaries()) {
            let Some(nodes) = &store.versioned else { continue };
            nodes.for_some(&mut window, guard, |record| {
                if found.len() < MOVED_AT_ONCE
                    && lies_outside(record, nodes.nodes.inline_words(), Reader::at(&held, guard))
                {
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

/// Whether a node lies outside of its head, which has room for it.
fn lies_outside<'g>(record: Record<'g>, inlined: usize, reader: Reader<'g>) -> bool {
    match reader.latest(record) {
        Link::To(version) => {
            version.status() == Status::Committed
                && version.words() <= inlined
                && !record.is_inline(version.address())
                && record.inline_status() == Status::Unused
        }
        Link::End | Link::Closed => false,
    }
}
