//! Insertion, and the division of nodes that have become too large. All of it stays in the write set.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::stores::IndexRef;
use polychron_schema::RowBuffer;

use super::Versioned;
use super::draft::{Draft, keep, set_next};
use super::look_up::{Aim, Spot, Viewer, find_leaf};
use super::node::{KeyRef, Node, compare, word_of};
use crate::cicada::kept::Kept;
use crate::cicada::record::{Link, Status};
use crate::cicada::sets::{Fresh, Kind, NewRow, Target, Write};
use crate::cicada::steps::Step;
use crate::cicada::table::Store;
use crate::cicada::transaction::{CicadaTransaction, Found, Source};

/// Memory of changes, kept from one to the next.
#[derive(Debug, Default)]
pub(in crate::cicada) struct Changing {
    /// The inner nodes on the way to a leaf, from the root on.
    pub(super) path: Vec<Kept>,
    /// The key of the entry that is added, and the next one further up.
    key: Vec<u64>,
    separator: Vec<u64>,
    pub(super) left: RowBuffer,
    pub(super) right: RowBuffer,
}

/// What is known of a key that is to be written.
pub(super) enum Sought {
    /// It has a row, in a record.
    Row(Kept, Source),
    /// It has none, and would be in this leaf.
    Absent,
}

impl CicadaTransaction<'_> {
    /// Finds a key for a change, with the way to its leaf.
    pub(super) fn seek<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
        changing: &mut Changing,
    ) -> Result<(Spot, Sought), Error> {
        let place = store.place();
        // A row that is gone while its leaf names it is gone since the leaf was looked at.
        for _ in 0..1000 {
            let leaf = self.leaf(nodes, nodes.root(key), Aim::At(key), place, Some(&mut changing.path))?;
            let Some(node) = self.node_of(&leaf) else { break };
            let (position, is_there) = node.rank(key);
            if !is_there {
                return Ok((leaf, Sought::Absent));
            }
            let record = self.guard.keep(node.record(position));
            let reads = self.state.sets.reads.len();
            if let Found::Row(source) = self.read_record(record, place)
                && let Target::Record(record) = self.target(source)
            {
                return Ok((leaf, Sought::Row(record, source)));
            }
            self.state.sets.reads.truncate(reads);
        }
        Err(self.is_inconsistent(place))
    }

    /// Inserts an entry whose key is absent. `false`: the key has a row.
    pub(in crate::cicada) fn insert_versioned<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
        row: &[u64],
    ) -> Result<bool, Error> {
        let mut changing = std::mem::take(&mut self.state.buffers.changing);
        let outcome = match self.seek(store, nodes, key, &mut changing) {
            Ok((leaf, Sought::Absent)) => {
                self.add_versioned(store, nodes, key, &leaf, row, &mut changing).map(|()| true)
            }
            Ok((_, Sought::Row(..))) => Ok(false),
            Err(error) => Err(error),
        };
        self.state.buffers.changing = changing;
        outcome
    }

    /// Writes an entry whatever is there. The leaf is observed, because it says which record is the key's; the row is not.
    pub(in crate::cicada) fn put_versioned<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
        row: &[u64],
    ) -> Result<(), Error> {
        let mut changing = std::mem::take(&mut self.state.buffers.changing);
        let reads = self.state.sets.reads.len();
        let outcome = match self.seek(store, nodes, key, &mut changing) {
            Ok((leaf, Sought::Absent)) => self.add_versioned(store, nodes, key, &leaf, row, &mut changing),
            Ok((leaf, Sought::Row(record, _))) => {
                self.state.sets.reads.truncate(reads);
                self.remember(&leaf, store.place(), Step::NodesOfBlindWrites);
                let write = Write { blind: true, ..Write::new(Target::Record(record), store.place(), Kind::Put) };
                let key = self.is_logged().then_some(key);
                self.state.sets.writes.push(write, key, NewRow::Of(row));
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.state.buffers.changing = changing;
        outcome
    }

    /// Gives an absent key a record and an entry in its leaf.
    fn add_versioned<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
        leaf: &Spot,
        row: &[u64],
        changing: &mut Changing,
    ) -> Result<(), Error> {
        let place = store.place();
        self.remember(leaf, place, Step::NodesOfChanges);
        let before = self.state.sets.writes.len();
        let (record, is_fresh) = match self.own_deleted(nodes, key) {
            // The key had a row, which this transaction deleted: its record goes on, and the log gets one change.
            Some(record) => (record, false),
            None => (self.take_fresh(store, false)?, true),
        };
        let outcome = self.add_to_leaf(store, nodes, leaf, key, word_of(record.address()), changing);
        if let Err(error) = outcome {
            if !self.doomed {
                self.state.sets.undo_writes(before);
            }
            return Err(error);
        }
        let write = Write { is_fresh, ..Write::new(Target::Record(record), place, Kind::Put) };
        let key = self.is_logged().then_some(key);
        self.state.sets.writes.push(write, key, NewRow::Of(row));
        Ok(())
    }

    /// The record of a key whose row this transaction has deleted.
    fn own_deleted<K: EncodedKey>(&self, nodes: &Versioned, key: K) -> Option<Kept> {
        if !self.state.sets.writes.has_nodes() {
            return None;
        }
        let view = self.committed_view();
        // Where this fails, validation will, too.
        let leaf = find_leaf(view, nodes, nodes.root(key), Aim::At(key), None, 2)?;
        let node = view.node(&leaf)?;
        let (position, is_there) = node.rank(key);
        let record = node.record(if is_there { position } else { return None });
        let writes = &self.state.sets.writes;
        let write = writes.latest(record.address()).map(|write| writes.get(write));
        write.filter(|write| write.kind == Kind::Delete).and_then(Write::record)
    }

    /// A record that nobody else knows, until this transaction commits.
    pub(super) fn take_fresh(&mut self, store: &Store, is_node: bool) -> Result<Kept, Error> {
        let records = store.records_of(is_node);
        let record = records.take(self.state.base.slot, &self.guard).map_err(Error::from)?;
        let record = record.keep();
        let kept = self.guard.keep_taken(&record);
        self.state.sets.fresh.push(Fresh { record, place: store.place(), is_node });
        Ok(kept)
    }

    /// Keeps what a node is to become.
    pub(super) fn write_node(&mut self, record: Kept, place: IndexRef, row: &mut RowBuffer, is_fresh: bool) {
        let write = Write { is_fresh, ..Write::of_node(record, place, Kind::Put) };
        self.state.sets.writes.push(write, None::<&[u8]>, NewRow::In(row));
    }

    /// Ends the transaction early when a write on a node can hardly pass.
    pub(super) fn check_node_early(&mut self, spot: &Spot, place: IndexRef) -> Result<(), Error> {
        let Some(version) = spot.version() else { return Ok(()) };
        let (record, version) = (spot.record.under(&self.guard), version.under(&self.guard));
        let (rts, latest) = (version.rts(), self.guard.reader().latest(record));
        if rts.is_after(self.timestamp()) && !self.is_overtaken() {
            return Err(self.conflict_at(spot.record, None, Reason::ReadLater, (place, None)));
        }
        let is_superseded = match latest {
            Link::To(latest) => latest.wts().is_after(self.timestamp()) && latest.status() != Status::Aborted,
            Link::End | Link::Closed => false,
        };
        if is_superseded && self.shared.options.parts().write_latest_only {
            return Err(self.conflict_at(spot.record, None, Reason::WrittenLater, (place, None)));
        }
        Ok(())
    }

    /// Adds an entry to a leaf, and divides what becomes too large, from there up.
    fn add_to_leaf<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        leaf: &Spot,
        key: K,
        value: u64,
        changing: &mut Changing,
    ) -> Result<(), Error> {
        let place = store.place();
        let Changing { path, key: entry, separator, left, right } = changing;
        keep(key, entry);
        let (mut spot, mut len, mut value) = (*leaf, key.len(), value);
        loop {
            self.remember(&spot, place, Step::NodesOfChanges);
            self.check_node_early(&spot, place)?;
            let Some(node) = self.node_of(&spot) else { return Err(self.is_inconsistent(place)) };
            let (level, key) = (node.level(), KeyRef::new(entry, len));
            let mut draft = Draft::of(node);
            let (position, is_there) = node.rank(key);
            debug_assert!(!is_there, "an entry that is added is new");
            draft.insert(position, key, value);
            if draft.fits(nodes.node_words()) {
                draft.write(left);
                self.write_node(spot.record, place, left, false);
                return Ok(());
            }
            let ascending = draft.high.is_none() && position + 1 == draft.count();
            let upper = draft.divide(ascending);
            draft.write(left);
            upper.write(right);
            keep(upper.key(0), separator);
            let separator_len = upper.key(0).len();
            // What is written from here on is taken back if a slot for a node cannot be had further up.
            self.state.sets.writes.set_floor();
            let is_root = path.is_empty();
            let (lower_record, upper_record) = self.take_halves(store, &spot, is_root)?;
            set_next(left, word_of(upper_record.address()));
            self.write_node(lower_record, place, left, is_root);
            self.write_node(upper_record, place, right, true);
            if is_root {
                let mut root = Draft::empty(level + 1);
                root.push(KeyRef::EMPTY, word_of(lower_record.address()));
                root.push(KeyRef::new(separator, separator_len), word_of(upper_record.address()));
                root.write(left);
                self.write_node(spot.record, place, left, false);
                return Ok(());
            }
            std::mem::swap(entry, separator);
            (len, value) = (separator_len, word_of(upper_record.address()));
            let child = spot.record;
            spot = self.parent(path, KeyRef::new(entry, len), level + 1, child, place)?;
        }
    }

    /// The records of the halves of a node: its own and a new one, or two new ones, because a root's record stays the root's.
    fn take_halves(&mut self, store: &Store, spot: &Spot, is_root: bool) -> Result<(Kept, Kept), Error> {
        let lower = if is_root { self.take_fresh(store, true)? } else { spot.record };
        Ok((lower, self.take_fresh(store, true)?))
    }

    /// The node above the one that was last on the way: the one that covers `key` now and leads to `child` there.
    pub(super) fn parent(
        &mut self,
        path: &mut Vec<Kept>,
        key: KeyRef<'_>,
        level: usize,
        child: Kept,
        place: IndexRef,
    ) -> Result<Spot, Error> {
        let mut next = path.pop();
        while let Some(record) = next {
            let spot = self.spot(record);
            let Some(node) = self.node_of(&spot) else { break };
            if node.level() != level {
                break;
            }
            if node.high().is_some_and(|high| compare(high, key).is_le()) {
                next = node.sibling().map(|record| self.guard.keep(record));
                continue;
            }
            if leads_to(&node, key, child) {
                return Ok(spot);
            }
            break;
        }
        Err(self.is_inconsistent(place))
    }
}

/// Whether an inner node leads from `key` to `child`.
fn leads_to(node: &Node<'_>, key: KeyRef<'_>, child: Kept) -> bool {
    node.low().is_none_or(|low| compare(low, key).is_le())
        && node.record(node.child(key, false)).address() == child.address()
}
