//! Looking keys up: from a key to the record that it leads to, and to what the transaction sees there.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;
use polychron_index::Stamp;

use super::gaps::KeyPartition;
use super::kept::{Kept, KeptVersion};
use super::promotion;
use super::sets::Target;
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
            && let Some(record) = self.hinted(store, key)
        {
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
                if let Found::Row(_, Source::Version(version)) = found {
                    self.see_outside(store, record, version);
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
    pub(super) fn see_outside(&mut self, store: &Store, record: Kept, version: KeptVersion) {
        let (record, version) = (record.under(&self.guard), version.under(&self.guard));
        if !self.snapshot && !record.is_inline(version.address()) {
            version.prefetch_row();
            promotion::note(self.shared, &mut self.state.promotions, &self.guard, store, (record, version, false));
        }
    }

    #[inline]
    pub(super) fn reads_own(&self) -> bool {
        !self.snapshot
    }

    /// Finds the row of a key where nothing is in the way: the latest version is one that this transaction sees, and it has written
    /// no other. `None`: [`Self::find`] must look.
    #[inline]
    fn find_at_once<K: EncodedKey>(&mut self, store: &Store, key: K) -> Option<(Kept, KeptVersion)> {
        let hinted = if self.state.base.hints.any() { self.hinted(store, key) } else { None };
        let record = match hinted {
            Some(record) => record,
            None if store.versioned.is_some() => return None,
            None => self.guard.find(&mut self.state.base.fingers, store, key)?,
        };
        if hinted.is_none() {
            record.address().prefetch(store.records.lines());
        }
        if self.state.sets.writes.may_have(record.address()) && self.has_written(store.place(), record, key) {
            return None;
        }
        let found = record.under(&self.guard);
        let seen = self.guard.reader().latest_row(found)?;
        if !self.snapshot {
            let State { sets, promotions, .. } = &mut *self.state;
            sets.reads.push(&self.guard, found, &seen, (store.place(), false));
            if let Some(version) = seen.version.filter(|version| !found.is_inline(version.address())) {
                version.prefetch_row();
                promotion::note(self.shared, promotions, &self.guard, store, (found, version, false));
            }
        }
        self.guard.keep_row(found, &seen)
    }

    /// The record that a key was found to lead to a while ago, in this transaction or for its batch. That is safe because a record serves one key
    /// until it is closed, and its slot no other one while the batch holds its guard: a record that shows a row is not closed. In
    /// every other case the key is looked up again.
    #[inline]
    fn hinted<K: EncodedKey>(&mut self, store: &Store, key: K) -> Option<Kept> {
        let IndexRef { table, index } = store.place();
        if index != IndexId::PRIMARY {
            return None;
        }
        let State { base, buffers, .. } = &mut *self.state;
        if let Some(first) = base.answer_hints(&self.guard) {
            let timestamp =
                CommittedView { reader: self.guard.reader(), wait: self.shared.options.parts().wait_for_pending };
            buffers.planned.look_up(timestamp, &base.tables, &mut base.hints, first);
        }
        self.guard.hinted(&mut base.hints, table, key)
    }

    #[cold]
    #[inline(never)]
    fn has_written<K: EncodedKey>(&self, place: IndexRef, record: Kept, key: K) -> bool {
        let writes = &self.state.sets.writes;
        writes.latest(record.address()).is_some() || writes.latest_of_key(place, key).is_some()
    }

    /// Finds the row of a key; what was found, or not, is protected.
    #[inline]
    pub(super) fn find_row<K: EncodedKey>(&mut self, store: &Store, key: K) -> Result<Option<(Target, Source)>, Error> {
        if let Some((record, version)) = self.find_at_once(store, key) {
            return Ok(Some((Target::Record(record), Source::Version(version))));
        }
        match self.find(store, key)? {
            Found::Row(target, source) => Ok(Some((target, source))),
            Found::Absent(_) => Ok(None),
        }
    }
}
