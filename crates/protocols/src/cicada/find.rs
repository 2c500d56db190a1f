//! Looking keys up: from a key to the record that it leads to, and to what the transaction sees there.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;
use polychron_index::Stamp;

use super::gaps::KeyPartition;
use super::kept::{KeptRow, OwnGuard, RowHere};
use super::promotion;
use super::protocol::Shared;
use super::record::{Record, RecordAddress};
use super::sets::{Target, WriteSet};
use super::steps::Step;
use super::table::Store;
use super::transaction::{CicadaTransaction, Found, Source};
use super::versioned::CommittedView;
use super::worker::State;

/// A lookup that came to nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    /// Where the key is missing.
    pub(super) stamp: Stamp,
    /// Whether it leads to a record all the same, such as a tombstone.
    pub(super) has_record: bool,
}

impl CicadaTransaction<'_> {
    /// The long way to the row of a key; what was found, or not, is protected.
    #[inline(never)]
    fn find<K: EncodedKey>(&mut self, store: &Store, key: K) -> Result<Found, Error> {
        if let Some(nodes) = &store.versioned {
            return self.find_versioned(store, nodes, key);
        }
        if left_out(Step::RefuseEmptyHints)
            && let Some(record) = hinted(&self.guard, self.shared, self.state, store, key)
        {
            let record = self.guard.keep(record);
            return Ok(self.read_record(record, store.place()));
        }
        let (found, missed) = self.look_up(store, key)?;
        if let Some(missed) = missed {
            let step = if missed.has_record { Step::NodesOfTombstones } else { Step::NodesOfMisses };
            if !left_out(step) {
                self.state.sets.nodes.add(missed.stamp, store.place());
            }
            if !left_out(Step::PartsOfMisses) {
                self.state.sets.gaps.push(KeyPartition::key(store.place(), key));
            }
            self.state.sets.searches.add_key(store.place(), key);
        }
        Ok(found)
    }

    /// Finds the row of a key. Where there was none, the answer's second part is still to be protected.
    #[inline]
    pub(super) fn look_up<K: EncodedKey>(&mut self, store: &Store, key: K) -> Result<(Found, Option<Missed>), Error> {
        let place = store.place();
        if self.reads_own()
            && self.state.sets.writes.has_keys()
            && let Some(position) = self.state.sets.writes.latest_of_key(place, key)
        {
            return Ok((self.own(position), None));
        }
        let (record, stamp) = self.guard.get(&mut self.state.base.fingers, store, key);
        let mut found = match record {
            Some(record) => {
                record.address().prefetch(store.records.lines());
                let found = self.read_record(record, place);
                if let Found::Row(Source::Version(row)) = found {
                    self.see_outside(store, row);
                }
                found
            }
            None => Found::Absent(Target::Key),
        };
        let is_missed = matches!(found, Found::Absent(Target::Key));
        if is_missed && store.displaced.concern(self.timestamp()) {
            found = self.look_beside(store, key, found)?;
        }
        let missed = !self.snapshot && is_missed;
        Ok((found, missed.then_some(Missed { stamp, has_record: record.is_some() })))
    }

    /// A row that lies outside of its head is fetched whole, and may be worth moving there.
    #[inline]
    pub(super) fn see_outside(&mut self, store: &Store, row: KeptRow) {
        let (record, version) = row.under(&self.guard);
        if !self.snapshot && !record.is_inline(version.address()) {
            version.prefetch_row();
            promotion::note(self.shared, &mut self.state.promotions, &self.guard, store, (record, version, false));
        }
    }

    #[inline]
    pub(super) fn reads_own(&self) -> bool {
        !self.snapshot && self.shared.options.parts().read_own_writes
    }

    /// Finds the row of a key; what was found, or not, is protected.
    #[inline(always)]
    pub(super) fn find_row<K: EncodedKey>(&mut self, store: &Store, key: K) -> Result<Option<Source>, Error> {
        if let Some(row) = find_at_once(&self.guard, self.shared, self.state, (store, self.snapshot), key) {
            return Ok(Some(Source::Version(self.guard.keep_row(row))));
        }
        match self.find(store, key)? {
            Found::Row(source) => Ok(Some(source)),
            Found::Absent(_) => Ok(None),
        }
    }
}

/// Finds the row of a key where nothing is in the way: the latest version is one that the transaction sees, and it has written no other. `None`:
/// [`CicadaTransaction::find`] must look.
#[inline(never)]
fn find_at_once<'g, K: EncodedKey>(
    guard: &'g OwnGuard<'_>,
    shared: &Shared,
    state: &mut State,
    (store, snapshot): (&Store, bool),
    key: K,
) -> Option<RowHere<'g>> {
    let hinted = if state.base.hints.any() { hinted(guard, shared, state, store, key) } else { None };
    let record = match hinted {
        Some(record) => record,
        None if store.versioned.is_some() => return None,
        None => {
            let found = guard.find(&mut state.base.fingers, store, key)?;
            found.address().prefetch(store.records.lines());
            found
        }
    };
    let State { sets, promotions, .. } = state;
    if shared.options.parts().read_own_writes
        && sets.writes.may_have(record.address())
        && has_written(&sets.writes, store.place(), record.address(), key)
    {
        return None;
    }
    let seen = guard.reader().latest_row(record)?;
    if !snapshot {
        sets.reads.push(guard, record, &seen, (store.place(), false));
        if let Some(version) = seen.version.filter(|version| !record.is_inline(version.address())) {
            version.prefetch_row();
            promotion::note(shared, promotions, guard, store, (record, version, false));
        }
    }
    guard.row_in(record, &seen)
}

/// The record that a key was found to lead to a while ago, in this transaction or for its batch. That is safe because a record serves one key
/// until it is closed, and its slot no other one while the batch holds its guard: a record that shows a row is not closed. In
/// every other case the key is looked up again.
#[inline]
fn hinted<'g, K: EncodedKey>(
    guard: &'g OwnGuard<'_>,
    shared: &Shared,
    State { base, buffers, .. }: &mut State,
    store: &Store,
    key: K,
) -> Option<Record<'g>> {
    let IndexRef { table, index } = store.place();
    if index != IndexId::PRIMARY {
        return None;
    }
    if let Some(first) = base.answer_hints(guard) {
        let timestamp = CommittedView { reader: guard.reader(), wait: shared.options.parts().wait_for_pending };
        buffers.planned.look_up(timestamp, &base.tables, &mut base.hints, first);
    }
    guard.hinted(&mut base.hints, table, key)
}

#[cold]
#[inline(never)]
fn has_written<K: EncodedKey>(writes: &WriteSet, place: IndexRef, record: RecordAddress, key: K) -> bool {
    writes.latest(record).is_some() || writes.latest_of_key(place, key).is_some()
}
