//! From the root of a tree to a leaf, and to the record of a key.
//!
//! Inner nodes are looked at and not remembered, so those of one way down may be of different moments of other transactions' validations. Each
//! node says which keys it covers: who comes to one whose keys end before the wanted one goes on to its right sibling, and who
//! comes to one that begins behind it, or is gone, begins anew. In the end the leaf covers the key. If it is remembered,
//! validation shows that it did so at the transaction's timestamp.

use std::cmp::Ordering;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Redo;
use polychron_engine::stores::IndexRef;
use polychron_schema::RowRef;
use polychron_sync::Backoff;

use super::Versioned;
use super::node::{Node, compare, record_of};
use crate::cicada::record::{Record, Seen, Version, search};
use crate::cicada::sets::{Kind, Read, Target};
use crate::cicada::steps::{Point, Step};
use crate::cicada::table::Store;
use crate::cicada::timestamp::Timestamp;
use crate::cicada::transaction::{CicadaTransaction, Found, Source};

/// How often a transaction begins a way down anew before it takes its own view of the index for inconsistent.
const MOST_ATTEMPTS: usize = 1000;

/// What a way down leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim<K> {
    /// The first leaf.
    First,
    /// The leaf that covers a key.
    At(K),
    /// The leaf that covers what lies just below a key.
    Below(K),
    /// The last leaf.
    Last,
}

impl<K: EncodedKey> Aim<K> {
    /// Whether it lies in what a node covers, or to the left or to the right.
    #[inline]
    pub(super) fn place_at(&self, node: &Node<'_>) -> Ordering {
        match self {
            Self::At(key) => node.place_of(*key),
            Self::First if node.low().is_some() => Ordering::Less,
            Self::Last if node.high().is_some() => Ordering::Greater,
            Self::First | Self::Last => Ordering::Equal,
            Self::Below(key) if node.high().is_some_and(|high| compare(high, *key).is_lt()) => Ordering::Greater,
            Self::Below(key) if node.low().is_some_and(|low| compare(*key, low).is_le()) => Ordering::Less,
            Self::Below(_) => Ordering::Equal,
        }
    }

    /// The entry of an inner node that leads there.
    #[inline]
    pub(super) fn child(&self, node: &Node<'_>) -> usize {
        match self {
            Self::First => 0,
            Self::At(key) => node.child(*key, false),
            Self::Below(key) => node.child(*key, true),
            Self::Last => node.count() - 1,
        }
    }
}

/// A node's record, and what the transaction sees there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) record: Record,
    /// An own write of it.
    pub(super) own: Option<u32>,
    pub(super) seen: Seen,
}

impl Spot {
    /// The version that is seen, where that is a node and not an own write.
    #[inline]
    pub(super) fn version(&self) -> Option<Version> {
        self.seen.version.filter(|_| self.own.is_none() && self.seen.is_row)
    }
}

/// Whose eyes a way down is gone with.
pub(super) trait Viewer {
    /// What is seen of a node's record.
    fn look_at(&self, record: Record) -> Spot;

    /// The node in it, unless there is none.
    fn node<'v>(&'v self, spot: &Spot) -> Option<Node<'v>>;
}

/// Looks at what is committed at one moment, which is held.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Moment {
    pub(in crate::cicada) timestamp: Timestamp,
    pub(in crate::cicada) wait: bool,
}

impl Viewer for Moment {
    #[inline]
    fn look_at(&self, record: Record) -> Spot {
        Spot { record, own: None, seen: search(record, self.timestamp, None, self.wait) }
    }

    #[inline]
    fn node<'v>(&'v self, spot: &Spot) -> Option<Node<'v>> {
        // SAFETY: who looks at a moment holds it, and with it what is visible then.
        let row: RowRef<'v> = unsafe { spot.version()?.row() };
        Some(Node::new(row.as_words()))
    }
}

impl<R: Redo> Viewer for CicadaTransaction<'_, R> {
    #[inline]
    fn look_at(&self, record: Record) -> Spot {
        let own = if self.state.sets.writes.has_nodes() { self.state.sets.writes.latest(record) } else { None };
        if own.is_some() {
            let seen = Seen { version: None, is_row: false, later: None, closed: false };
            return Spot { record, own, seen };
        }
        self.moment().look_at(record)
    }

    #[inline]
    fn node<'v>(&'v self, spot: &Spot) -> Option<Node<'v>> {
        match spot.own {
            None => {
                let version = spot.version()?;
                Some(Node::new(self.row_at(Source::Version(version)).as_words()))
            }
            Some(position) if self.state.sets.writes.get(position).kind == Kind::Put => {
                Some(Node::new(self.row_at(Source::Own(position)).as_words()))
            }
            Some(_) => None,
        }
    }
}

/// Goes down once, through nodes of so many cache lines. `None`: what was seen on the way does not stand together. The records of inner nodes are left in
/// `path`, from the root on.
#[inline]
pub(super) fn go_down<V: Viewer, K: EncodedKey>(
    viewer: &V,
    lines: usize,
    root: Record,
    aim: Aim<K>,
    mut path: Option<&mut Vec<Record>>,
) -> Option<Spot> {
    let mut spot = viewer.look_at(root);
    loop {
        let node = viewer.node(&spot)?;
        match aim.place_at(&node) {
            Ordering::Greater if !left_out(Step::FollowSiblings) => {
                spot = viewer.look_at(record_of(node.next())?);
                continue;
            }
            Ordering::Less => return None,
            Ordering::Equal | Ordering::Greater => {}
        }
        if node.level() == 0 {
            return Some(spot);
        }
        if let Some(path) = &mut path {
            path.push(spot.record);
        }
        let child = node.record(aim.child(&node));
        child.prefetch(lines);
        pass(Point::Led);
        spot = viewer.look_at(child);
    }
}

/// Goes down to a leaf, again if it must be; `None` after so many attempts.
#[inline]
pub(super) fn find_leaf<V: Viewer, K: EncodedKey>(
    viewer: &V,
    nodes: &Versioned,
    root: Record,
    aim: Aim<K>,
    mut path: Option<&mut Vec<Record>>,
    attempts: usize,
) -> Option<Spot> {
    let mut backoff = Backoff::new();
    for _ in 0..attempts {
        if let Some(path) = &mut path {
            path.clear();
        }
        if let Some(leaf) = go_down(viewer, nodes.nodes.lines(), root, aim, path.as_deref_mut()) {
            return Some(leaf);
        }
        backoff.wait();
    }
    None
}

impl Versioned {
    /// Brings the node where a lookup begins into the caches.
    #[inline]
    pub(in crate::cicada) fn prefetch_root<K: EncodedKey>(&self, key: K) {
        self.root(key).prefetch(self.nodes.lines());
    }

    /// The record that a key has at a moment which the caller holds, whatever becomes of it. It need not have a row.
    pub(in crate::cicada) fn record_at<K: EncodedKey>(&self, key: K, timestamp: Timestamp) -> Option<Record> {
        let moment = Moment { timestamp, wait: true };
        // What is in the way are commits with earlier timestamps, of which there are finitely many.
        let leaf = find_leaf(&moment, self, self.root(key), Aim::At(key), None, usize::MAX)?;
        let node = moment.node(&leaf)?;
        let (position, is_there) = node.rank(key);
        is_there.then(|| node.record(position))
    }
}

impl<R: Redo> CicadaTransaction<'_, R> {
    /// The transaction's moment, without its own writes.
    #[inline]
    pub(super) fn moment(&self) -> Moment {
        Moment { timestamp: self.timestamp, wait: self.shared.options.parts().wait_for_pending }
    }

    /// The leaf to which an aim leads; it is not remembered.
    #[inline]
    pub(super) fn leaf<K: EncodedKey>(
        &mut self,
        nodes: &Versioned,
        root: Record,
        aim: Aim<K>,
        place: IndexRef,
        path: Option<&mut Vec<Record>>,
    ) -> Result<Spot, Error> {
        match find_leaf(self, nodes, root, aim, path, MOST_ATTEMPTS) {
            Some(leaf) => Ok(leaf),
            None => Err(self.does_not_stand_together(place)),
        }
    }

    /// The transaction's own view of an index cannot be of one moment.
    #[cold]
    pub(super) fn does_not_stand_together(&mut self, place: IndexRef) -> Error {
        debug_assert!(!self.snapshot, "a snapshot is consistent");
        self.conflict(Reason::Inconsistent, place, None)
    }

    /// Remembers what was seen of a node, which validation then guards; `step` says for the sake of what. Whoever has written it
    /// had remembered it before.
    #[inline]
    pub(super) fn remember(&mut self, spot: &Spot, place: IndexRef, step: Step) {
        if self.snapshot || spot.own.is_some() || left_out(step) {
            return;
        }
        let Seen { version, is_row, later, .. } = spot.seen;
        let reads = &mut self.state.sets.reads;
        // Repeated misses find the same leaf.
        if reads.last().is_none_or(|last| last.record != spot.record) {
            reads.push(Read { record: spot.record, version, later, place, is_row, is_node: true });
        }
    }

    /// Finds the row of a key; what was found, or not, is protected.
    #[inline]
    pub(in crate::cicada) fn find_versioned<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
    ) -> Result<Found, Error> {
        let place = store.place();
        for _ in 0..MOST_ATTEMPTS {
            let leaf = self.leaf(nodes, nodes.root(key), Aim::At(key), place, None)?;
            let Some(node) = self.node(&leaf) else { break };
            let (position, is_there) = node.rank(key);
            if !is_there {
                self.remember(&leaf, place, Step::NodesOfMisses);
                return Ok(Found::Absent(Target::Key));
            }
            let record = node.record(position);
            record.prefetch(store.records.lines());
            pass(Point::Led);
            let found = self.read_record(record, place);
            if let Found::Row(_, source) = found {
                self.note_what_lies_outside(store, record, source, &leaf);
                return Ok(found);
            }
            if left_out(Step::LookAgain) {
                return Ok(found);
            }
            // The row went, and so the leaf has changed since it was looked at.
        }
        Err(self.does_not_stand_together(place))
    }

    /// Rows and leaves that were read outside of their heads may be worth moving there.
    #[inline]
    fn note_what_lies_outside(&mut self, store: &Store, record: Record, source: Source, leaf: &Spot) {
        if self.snapshot {
            return;
        }
        if let Source::Version(version) = source {
            self.see_outside(store, record, version);
        }
        if let Some(version) = leaf.version()
            && !leaf.record.is_inline(version)
        {
            self.note_for_promotion(store, leaf.record, version, true);
        }
    }
}
