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
use polychron_engine::stores::IndexRef;
use polychron_sync::Backoff;

use super::Versioned;
use super::node::{Node, compare};
use crate::cicada::kept::{Kept, KeptRow, KeptVersion, OwnGuard};
use crate::cicada::promotion;
use crate::cicada::record::{Reader, Record, Seen, Version};
use crate::cicada::sets::{Kind, Target};
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

/// A node's record, and what is seen there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'v> {
    pub(super) record: Record<'v>,
    /// An own write of it.
    own: Option<u32>,
    seen: Seen<Version<'v>>,
}

impl<'v> Sight<'v> {
    /// The version that is seen, where that is a node and not an own write.
    #[inline]
    pub(super) fn version(&self) -> Option<Version<'v>> {
        self.seen.version.filter(|_| self.own.is_none() && self.seen.is_row)
    }
}

/// A node's record, and what the transaction sees there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) record: Kept,
    /// An own write of it.
    pub(super) own: Option<u32>,
    /// The version that is seen, where that is a node and not an own write.
    row: Option<KeptVersion>,
    seen: Seen<KeptVersion>,
}

impl Spot {
    /// The version that is seen, where that is a node and not an own write.
    #[inline]
    pub(super) fn version(&self) -> Option<KeptVersion> {
        self.row
    }
}

/// With which view a way down is gone.
pub(super) trait Viewer<'v>: Copy {
    /// What is seen of a node's record.
    fn look_at(self, record: Record<'v>) -> Sight<'v>;

    /// The node in it, unless there is none.
    fn node(self, sight: &Sight<'v>) -> Option<Node<'v>>;
}

/// Looks at what is committed at one timestamp.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct CommittedView<'g> {
    pub(in crate::cicada) reader: Reader<'g>,
    pub(in crate::cicada) wait: bool,
}

impl<'g> Viewer<'g> for CommittedView<'g> {
    #[inline]
    fn look_at(self, record: Record<'g>) -> Sight<'g> {
        Sight { record, own: None, seen: self.reader.search(record, None, self.wait) }
    }

    #[inline]
    fn node(self, sight: &Sight<'g>) -> Option<Node<'g>> {
        sight.version().map(node_in)
    }
}

/// The node in a version of a node's record.
#[inline]
fn node_in(version: Version<'_>) -> Node<'_> {
    // SAFETY: where roots and nodes lead are nodes, and what is visible at a timestamp stays while that is held.
    unsafe { Node::new(version.row().as_words()) }
}

impl<'v> Viewer<'v> for &'v CicadaTransaction<'_> {
    #[inline]
    fn look_at(self, record: Record<'v>) -> Sight<'v> {
        let writes = &self.state.sets.writes;
        let own = if writes.has_nodes() { writes.latest(record.address()) } else { None };
        if own.is_some() {
            return Sight { record, own, seen: Seen::NOTHING };
        }
        self.committed_view().look_at(record)
    }

    #[inline]
    fn node(self, sight: &Sight<'v>) -> Option<Node<'v>> {
        match sight.own {
            None => self.committed_view().node(sight),
            Some(position) => self.own_node(position),
        }
    }
}

/// The way from a root to a leaf, as a transaction keeps it.
#[derive(Debug)]
pub(super) struct Path<'p> {
    list: &'p mut Vec<Kept>,
    guard: &'p OwnGuard<'p>,
}

/// Goes down once, through nodes of so many cache lines. `None`: what was seen on the way is not mutually consistent. The records of inner nodes are left in
/// `path`, from the root on.
#[inline]
pub(super) fn go_down<'v, V: Viewer<'v>, K: EncodedKey>(
    viewer: V,
    lines: usize,
    root: Record<'v>,
    aim: Aim<K>,
    mut path: Option<Path<'_>>,
) -> Option<Sight<'v>> {
    let mut sight = viewer.look_at(root);
    loop {
        let node = viewer.node(&sight)?;
        match aim.side_at(&node) {
            Ordering::Greater if !left_out(Step::FollowSiblings) => {
                sight = viewer.look_at(node.sibling()?);
                continue;
            }
            Ordering::Less => return None,
            Ordering::Equal | Ordering::Greater => {}
        }
        if node.level() == 0 {
            return Some(sight);
        }
        if let Some(path) = &mut path {
            path.list.push(path.guard.keep(sight.record));
        }
        let child = node.record(aim.child(&node));
        child.prefetch(lines);
        pass(Point::Led);
        sight = viewer.look_at(child);
    }
}

/// Goes down to a leaf, again if it must be; `None` after so many attempts.
#[inline]
pub(super) fn find_leaf<'v, V: Viewer<'v>, K: EncodedKey>(
    viewer: V,
    nodes: &Versioned,
    root: Record<'v>,
    aim: Aim<K>,
    mut path: Option<Path<'_>>,
    attempts: usize,
) -> Option<Sight<'v>> {
    let mut backoff = Backoff::new();
    for _ in 0..attempts {
        if let Some(path) = &mut path {
            path.list.clear();
        }
        let path = path.as_mut().map(|path| Path { list: &mut *path.list, guard: path.guard });
        if let Some(leaf) = go_down(viewer, nodes.nodes.lines(), root, aim, path) {
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
    pub(in crate::cicada) fn record_at<'g, K: EncodedKey>(&'g self, key: K, reader: Reader<'g>) -> Option<Record<'g>> {
        let view = CommittedView { reader, wait: true };
        // What is in the way are commits with earlier timestamps, of which there are finitely many.
        let leaf = find_leaf(view, self, self.root(key), Aim::At(key), None, usize::MAX)?;
        let node = view.node(&leaf)?;
        let (position, is_there) = node.rank(key);
        is_there.then(|| node.record(position))
    }
}

impl CicadaTransaction<'_> {
    /// The transaction's timestamp, without its own writes.
    #[inline]
    pub(super) fn committed_view(&self) -> CommittedView<'_> {
        CommittedView { reader: self.guard.reader(), wait: self.shared.options.parts().wait_for_pending }
    }

    /// What the transaction sees of a node's record.
    #[inline]
    pub(super) fn spot(&self, record: Kept) -> Spot {
        self.keep(self.look_at(record.under(&self.guard)))
    }

    /// Keeps a sight beyond a borrow of the transaction: as long as the transaction where a node was seen, or written.
    #[inline]
    fn keep(&self, sight: Sight<'_>) -> Spot {
        let Sight { record, own, seen } = sight;
        let written = own.and_then(|position| self.state.sets.writes.get(position).record());
        let row = self.guard.row_in(record, &seen).map(|row| self.guard.keep_row(row));
        let record = written.or(row.map(KeptRow::record)).unwrap_or_else(|| self.guard.keep(record));
        Spot { record, own, row: row.map(KeptRow::version), seen: seen.map(|version| self.guard.keep(version)) }
    }

    /// The node at a spot, unless there is none.
    #[inline]
    pub(super) fn node_of(&self, spot: &Spot) -> Option<Node<'_>> {
        match spot.own {
            None => spot.version().map(|version| node_in(version.under(&self.guard))),
            Some(position) => self.own_node(position),
        }
    }

    /// The node that an own write makes; none if it deletes one.
    #[inline]
    fn own_node(&self, position: u32) -> Option<Node<'_>> {
        let is_put = self.state.sets.writes.get(position).kind == Kind::Put;
        // SAFETY: this transaction has written it, of records that it has found or taken.
        is_put.then(|| unsafe { Node::new(self.row_at(Source::Own(position)).as_words()) })
    }

    /// The leaf to which an aim leads; it is not remembered.
    #[inline]
    pub(super) fn leaf<K: EncodedKey>(
        &mut self,
        nodes: &Versioned,
        root: Record<'_>,
        aim: Aim<K>,
        place: IndexRef,
        path: Option<&mut Vec<Kept>>,
    ) -> Result<Spot, Error> {
        let path = path.map(|list| Path { list, guard: &self.guard });
        let leaf = find_leaf(&*self, nodes, root, aim, path, MOST_ATTEMPTS).map(|leaf| self.keep(leaf));
        match leaf {
            Some(leaf) => Ok(leaf),
            None => Err(self.is_inconsistent(place)),
        }
    }

    /// The transaction's own view of an index cannot be of one timestamp.
    #[cold]
    pub(super) fn is_inconsistent(&mut self, place: IndexRef) -> Error {
        debug_assert!(!self.snapshot, "a snapshot is consistent");
        self.conflict(Reason::Inconsistent, place, None)
    }

    /// Remembers what was seen of a node, which validation then guards; `step` says for the sake of what. A transaction that has written it
    /// had remembered it before.
    #[inline]
    pub(super) fn remember(&mut self, spot: &Spot, place: IndexRef, step: Step) {
        if self.snapshot || spot.own.is_some() || left_out(step) {
            return;
        }
        let (guard, reads) = (&self.guard, &mut self.state.sets.reads);
        // Repeated misses find the same leaf.
        if reads.last_record() != Some(spot.record.address()) {
            let seen = spot.seen.map(|version| version.under(guard));
            reads.push(guard, spot.record.under(guard), &seen, (place, true));
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
            let Some(node) = self.node_of(&leaf) else { break };
            let (position, is_there) = node.rank(key);
            if !is_there {
                self.remember(&leaf, place, Step::NodesOfMisses);
                return Ok(Found::Absent(Target::Key));
            }
            let record = self.guard.keep(node.record(position));
            record.address().prefetch(store.records.lines());
            pass(Point::Led);
            let found = self.read_record(record, place);
            if let Found::Row(source) = found {
                self.note_what_lies_outside(store, source, &leaf);
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
    fn note_what_lies_outside(&mut self, store: &Store, source: Source, leaf: &Spot) {
        if self.snapshot {
            return;
        }
        if let Source::Version(row) = source {
            self.see_outside(store, row);
        }
        if let Some(version) = leaf.version() {
            let (record, version) = (leaf.record.under(&self.guard), version.under(&self.guard));
            if !record.is_inline(version.address()) {
                promotion::note(self.shared, &mut self.state.promotions, &self.guard, store, (record, version, true));
            }
        }
    }
}
