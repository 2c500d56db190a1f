//! From the root of a tree to a leaf, and to the record of a key.
//!
//! Inner nodes are looked at and not remembered, so those of one way down may be of different timestamps of other transactions' validations. Each
//! node says which keys it covers: who comes to one whose keys end before the wanted one goes on to its right sibling, and who
//! comes to one that begins behind it, or is gone, begins anew. In the end the leaf covers the key. If it is remembered,
//! validation shows that it did so at the transaction's timestamp.

use std::cmp::Ordering;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Redo;
use polychron_engine::stores::Place;
use polychron_sync::Backoff;

use super::Versioned;
use super::node::{Node, compare};
use crate::cicada::kept::{Kept, KeptVersion};
use crate::cicada::record::{Reader, Record, Seen};
use crate::cicada::sets::{Kind, Read, Target};
use crate::cicada::steps::{Point, Step};
use crate::cicada::table::Store;
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
    pub(super) fn side_at(&self, node: &Node<'_>) -> Ordering {
        match self {
            Self::At(key) => node.side_of(*key),
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
    pub(super) record: Kept,
    /// An own write of it.
    pub(super) own: Option<u32>,
    pub(super) seen: Seen<KeptVersion>,
}

impl Spot {
    /// The version that is seen, where that is a node and not an own write.
    #[inline]
    pub(super) fn version(&self) -> Option<KeptVersion> {
        self.seen.version.filter(|_| self.own.is_none() && self.seen.is_row)
    }
}

/// Whose eyes a way down is gone with.
pub(super) trait Viewer {
    /// What is seen of a node's record.
    fn look_at(&self, record: Kept) -> Spot;

    /// The node in it, unless there is none.
    fn node<'v>(&'v self, spot: &Spot) -> Option<Node<'v>>;
}

/// Looks at what is committed at one timestamp.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct CommittedView<'g> {
    pub(in crate::cicada) reader: Reader<'g>,
    pub(in crate::cicada) wait: bool,
}

impl<'g> CommittedView<'g> {
    #[inline]
    fn node_at(&self, spot: &Spot) -> Option<Node<'g>> {
        // SAFETY: what is visible at a timestamp stays while that is held; where roots and nodes lead are nodes.
        unsafe { Some(Node::new(self.reader.version(spot.version()?.address()).row().as_words())) }
    }
}

impl Viewer for CommittedView<'_> {
    #[inline]
    fn look_at(&self, kept: Kept) -> Spot {
        // SAFETY: it is a root, or was found in a node that is visible at the timestamp.
        let record = unsafe { self.reader.record(kept.address()) };
        let seen = self.reader.search(record, None, self.wait).map(KeptVersion::from);
        Spot { record: kept, own: None, seen }
    }

    #[inline]
    fn node<'v>(&'v self, spot: &Spot) -> Option<Node<'v>> {
        self.node_at(spot)
    }
}

impl<R: Redo> Viewer for CicadaTransaction<'_, R> {
    #[inline]
    fn look_at(&self, record: Kept) -> Spot {
        let own = if self.state.sets.writes.has_nodes() { self.state.sets.writes.latest(record) } else { None };
        if own.is_some() {
            return Spot { record, own, seen: Seen::NOTHING };
        }
        self.committed_view().look_at(record)
    }

    #[inline]
    fn node<'v>(&'v self, spot: &Spot) -> Option<Node<'v>> {
        let source = match spot.own {
            None => Source::Version(spot.version()?),
            Some(position) if self.state.sets.writes.get(position).kind == Kind::Put => Source::Own(position),
            Some(_) => return None,
        };
        // SAFETY: it is what this transaction sees, or has written, of a node.
        Some(unsafe { Node::new(self.row_at(source).as_words()) })
    }
}

/// Goes down once, through nodes of so many cache lines. `None`: what was seen on the way is not mutually consistent. The records of inner nodes are left in
/// `path`, from the root on.
#[inline]
pub(super) fn go_down<V: Viewer, K: EncodedKey>(
    viewer: &V,
    lines: usize,
    root: Kept,
    aim: Aim<K>,
    mut path: Option<&mut Vec<Kept>>,
) -> Option<Spot> {
    let mut spot = viewer.look_at(root);
    loop {
        let node = viewer.node(&spot)?;
        match aim.side_at(&node) {
            Ordering::Greater if !left_out(Step::FollowSiblings) => {
                spot = viewer.look_at(node.sibling()?.into());
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
        spot = viewer.look_at(child.into());
    }
}

/// Goes down to a leaf, again if it must be; `None` after so many attempts.
#[inline]
pub(super) fn find_leaf<V: Viewer, K: EncodedKey>(
    viewer: &V,
    nodes: &Versioned,
    root: Kept,
    aim: Aim<K>,
    mut path: Option<&mut Vec<Kept>>,
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

    /// The record that a key has at a timestamp which the caller holds, whatever becomes of it. It need not have a row.
    pub(in crate::cicada) fn record_at<'g, K: EncodedKey>(&self, key: K, reader: Reader<'g>) -> Option<Record<'g>> {
        let timestamp = CommittedView { reader, wait: true };
        // What is in the way are commits with earlier timestamps, of which there are finitely many.
        let leaf = find_leaf(&timestamp, self, self.root(key).into(), Aim::At(key), None, usize::MAX)?;
        let node = timestamp.node_at(&leaf)?;
        let (position, is_there) = node.rank(key);
        is_there.then(|| node.record(position))
    }
}

impl<R: Redo> CicadaTransaction<'_, R> {
    /// The transaction's timestamp, without its own writes.
    #[inline]
    pub(super) fn committed_view(&self) -> CommittedView<'_> {
        CommittedView { reader: self.guard.reader(), wait: self.shared.options.parts().wait_for_pending }
    }

    /// The leaf to which an aim leads; it is not remembered.
    #[inline]
    pub(super) fn leaf<K: EncodedKey>(
        &mut self,
        nodes: &Versioned,
        root: Kept,
        aim: Aim<K>,
        place: Place,
        path: Option<&mut Vec<Kept>>,
    ) -> Result<Spot, Error> {
        match find_leaf(self, nodes, root, aim, path, MOST_ATTEMPTS) {
            Some(leaf) => Ok(leaf),
            None => Err(self.is_inconsistent(place)),
        }
    }

    /// The transaction's own view of an index cannot be of one timestamp.
    #[cold]
    pub(super) fn is_inconsistent(&mut self, place: Place) -> Error {
        debug_assert!(!self.snapshot, "a snapshot is consistent");
        self.conflict(Reason::Inconsistent, place, None)
    }

    /// Remembers what was seen of a node, which validation then guards; `step` says for the sake of what. Whoever has written it
    /// had remembered it before.
    #[inline]
    pub(super) fn remember(&mut self, spot: &Spot, place: Place, step: Step) {
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
            let leaf = self.leaf(nodes, nodes.root(key).into(), Aim::At(key), place, None)?;
            let Some(node) = self.node(&leaf) else { break };
            let (position, is_there) = node.rank(key);
            if !is_there {
                self.remember(&leaf, place, Step::NodesOfMisses);
                return Ok(Found::Absent(Target::Key));
            }
            let record = Kept::from(node.record(position));
            record.address().prefetch(store.records.lines());
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
        Err(self.is_inconsistent(place))
    }

    /// Rows and leaves that were read outside of their heads may be worth moving there.
    #[inline]
    fn note_what_lies_outside(&mut self, store: &Store, record: Kept, source: Source, leaf: &Spot) {
        if self.snapshot {
            return;
        }
        if let Source::Version(version) = source {
            self.see_outside(store, record, version);
        }
        if let Some(version) = leaf.version()
            && !leaf.record.under(&self.guard).is_inline(version.address())
        {
            self.note_for_promotion(store, leaf.record, version, true);
        }
    }
}
