//! Deletion, and what becomes of a leaf that has become empty.
//!
//! An empty leaf is merged with a neighbour at once. The two lie under a common ancestor, the lowest one on the way with more
//! than one child; below it, on each level, the left node of the seam takes over what the right one covers, and the right
//! one is deleted. One side of the seam is but the way to the empty leaf, so the merged nodes are no larger than the other side's.
//! The ancestor loses an entry. A root with a single child becomes what that child is.

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::stores::IndexRef;
use polychron_schema::RowBuffer;

use super::Versioned;
use super::change::{Changing, Sought};
use super::draft::Draft;
use super::look_up::Spot;
use super::node::Node;
use crate::cicada::kept::Kept;
use crate::cicada::record::Record;
use crate::cicada::sets::{Kind, NewRow, Target, Write};
use crate::cicada::steps::Step;
use crate::cicada::table::Store;
use crate::cicada::transaction::CicadaTransaction;

impl CicadaTransaction<'_> {
    /// Deletes an entry. `false`: the key has no row.
    pub(in crate::cicada) fn delete_versioned<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
    ) -> Result<bool, Error> {
        let mut changing = std::mem::take(&mut self.state.buffers.changing);
        let outcome = self.delete_sought(store, nodes, key, &mut changing);
        self.state.buffers.changing = changing;
        outcome
    }

    fn delete_sought<K: EncodedKey>(
        &mut self,
        store: &Store,
        nodes: &Versioned,
        key: K,
        changing: &mut Changing,
    ) -> Result<bool, Error> {
        let place = store.place();
        let (leaf, sought) = self.seek(store, nodes, key, changing)?;
        let Sought::Row(record, source) = sought else {
            self.remember(&leaf, place, Step::NodesOfMisses);
            return Ok(false);
        };
        self.check_early(source, place)?;
        self.remember(&leaf, place, Step::NodesOfChanges);
        self.check_node_early(&leaf, place)?;
        let Some(node) = self.node_of(&leaf) else { return Err(self.is_inconsistent(place)) };
        let mut draft = Draft::of(node);
        let (position, is_there) = node.rank(key);
        debug_assert!(is_there, "the key was found there");
        draft.remove(position);
        let is_empty = draft.count() == 0;
        draft.write_padded(self.words_outside(&node, place), &mut changing.left);
        self.shrink_node(leaf.record, place, &mut changing.left);
        let write = Write::new(Target::Record(record), place, Kind::Delete);
        let key = self.is_logged().then_some(key);
        self.state.sets.writes.push(write, key, NewRow::None);
        if is_empty && !changing.path.is_empty() {
            self.merge(place, leaf.record, changing)?;
        }
        Ok(true)
    }

    /// Takes an empty leaf, which is written already, out of its tree.
    fn merge(&mut self, place: IndexRef, leaf: Kept, changing: &mut Changing) -> Result<(), Error> {
        let Some((ancestor, position)) = self.common_ancestor(place, leaf, changing)? else { return Ok(()) };
        let Some(node) = self.node_of(&ancestor) else { return Err(self.is_inconsistent(place)) };
        let right = position.max(1);
        let [mut lower, mut upper] = [right - 1, right].map(|position| self.guard.keep(node.record(position)));
        let mut draft = Draft::of(node);
        draft.remove(right);
        let is_single = draft.count() == 1;
        draft.write_padded(self.words_outside(&node, place), &mut changing.left);
        self.shrink_node(ancestor.record, place, &mut changing.left);
        let only = lower;
        while let Some((last, first)) = self.merge_pair(place, lower, upper, changing)? {
            (lower, upper) = (last, first);
        }
        if is_single && changing.path.is_empty() {
            self.lower_root(place, ancestor.record, only, changing)?;
        }
        Ok(())
    }

    /// The lowest node on the way to a leaf with more than one child, and which of them leads to the leaf. It is the root if there
    /// is none; a root with a single child is none.
    fn common_ancestor(
        &mut self,
        place: IndexRef,
        leaf: Kept,
        changing: &mut Changing,
    ) -> Result<Option<(Spot, usize)>, Error> {
        let mut child = leaf;
        while let Some(record) = changing.path.pop() {
            let spot = self.spot(record);
            self.remember(&spot, place, Step::NodesOfMerges);
            self.check_node_early(&spot, place)?;
            let position = self.node_of(&spot).and_then(|node| position_of(&node, child));
            let Some(position) = position else { return Err(self.is_inconsistent(place)) };
            if self.node_of(&spot).is_some_and(|node| node.count() > 1) {
                return Ok(Some((spot, position)));
            }
            child = record;
        }
        Ok(None)
    }

    /// Merges two neighbours into the left one. Answers the pair below them: of the left one the last child, of the right one
    /// the first.
    fn merge_pair(
        &mut self,
        place: IndexRef,
        lower: Kept,
        upper: Kept,
        changing: &mut Changing,
    ) -> Result<Option<(Kept, Kept)>, Error> {
        let (left, right) = (self.spot(lower), self.spot(upper));
        for spot in [&left, &right] {
            self.remember(spot, place, Step::NodesOfMerges);
            self.check_node_early(spot, place)?;
        }
        let (lower, upper) = (left.record, right.record);
        let (Some(left), Some(right)) = (self.node_of(&left), self.node_of(&right)) else {
            return Err(self.is_inconsistent(place));
        };
        if left.sibling().map(Record::address) != Some(upper.address()) || left.level() != right.level() {
            return Err(self.is_inconsistent(place));
        }
        let is_leaf = left.level() == 0;
        let seam =
            (!is_leaf).then(|| (self.guard.keep(left.record(left.count() - 1)), self.guard.keep(right.record(0))));
        let mut draft = Draft::of(left);
        (draft.high, draft.next) = (right.high(), right.next());
        // The first child of the right one is merged, too.
        for position in usize::from(!is_leaf)..right.count() {
            draft.push(right.key(position), right.value(position));
        }
        draft.write_padded(self.words_outside(&left, place), &mut changing.left);
        self.shrink_node(lower, place, &mut changing.left);
        self.delete_node(upper, place);
        Ok(seam)
    }

    /// The words of a node that does not lie in its head; none of another one.
    fn words_outside(&self, node: &Node<'_>, place: IndexRef) -> usize {
        let inlined = self.store(place).map_or(0, |store| store.records_of(true).inline_words());
        if node.words() > inlined { node.words() } else { 0 }
    }

    /// Keeps what a deletion makes of a node.
    fn shrink_node(&mut self, record: Kept, place: IndexRef, row: &mut RowBuffer) {
        let write = Write { makes_room: true, ..Write::of_node(record, place, Kind::Put) };
        self.state.sets.writes.push(write, None::<&[u8]>, NewRow::In(row));
    }

    fn delete_node(&mut self, record: Kept, place: IndexRef) {
        self.state.sets.writes.push(Write::of_node(record, place, Kind::Delete), None::<&[u8]>, NewRow::None);
    }

    /// A root with a single child takes over what that child is.
    fn lower_root(
        &mut self,
        place: IndexRef,
        root: Kept,
        mut only: Kept,
        changing: &mut Changing,
    ) -> Result<(), Error> {
        loop {
            let spot = self.spot(only);
            self.remember(&spot, place, Step::NodesOfMerges);
            self.check_node_early(&spot, place)?;
            let Some(node) = self.node_of(&spot) else { return Err(self.is_inconsistent(place)) };
            let below = (node.level() > 0 && node.count() == 1).then(|| self.guard.keep(node.record(0)));
            Draft::of(node).write(&mut changing.left);
            self.shrink_node(root, place, &mut changing.left);
            self.delete_node(spot.record, place);
            match below {
                Some(child) => only = child,
                None => return Ok(()),
            }
        }
    }
}

/// Which entry of an inner node leads to a child.
fn position_of(node: &Node<'_>, child: Kept) -> Option<usize> {
    (0..node.count()).find(|&position| node.record(position).address() == child.address())
}
