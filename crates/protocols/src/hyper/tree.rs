//! Predicate trees: the paths of one relation put together, so that conditions that several share are tested once.
//!
//! The nodes of a tree are conditions on one attribute, its edges mean *and*, its paths together mean *or*. Points stand beside the tree,
//! sorted; so do the ranges of indexes with which paths begin, so that of many ranges only those are tested that hold a key.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use polychron_base::IndexId;
use polychron_engine::mutations::left_out;
use polychron_schema::{ColumnSet, KeyScratch, Layout, RowRef};

use super::predicates::{Coarse, Extremum, Point, RelationLog, Test};
use super::steps::Step;
use super::table::HyperTable;
use super::undo::Undo;

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    /// Which of the relation's conditions it is.
    test: u32,
    child: u32,
    sibling: u32,
    parent: u32,
    /// The first of what ends here, and how much that is.
    leaf: u32,
    leaves: u32,
}

/// Leaves of a node that differ in the extreme value that was asked for. Beyond, the node covers all changes of the columns.
const MOST_LEAVES: u32 = 32;

/// A range of an index with which paths begin.
#[derive(Debug)]
struct First {
    index: IndexId,
    node: u32,
    /// Among those of the same index up to this one, in the order of their lower bounds, the one with the greatest upper bound.
    furthest: u32,
}

/// Where a path ends.
#[derive(Debug)]
struct Leaf {
    columns: ColumnSet,
    extremum: Option<Extremum>,
    next: u32,
}

/// The tree of one relation.
#[derive(Debug, Default)]
pub(super) struct Tree {
    points: Vec<Point>,
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
    firsts: Vec<First>,
    /// Nodes by their parents and conditions, while the tree is built.
    known: HashTable<(u64, u32)>,
    /// Columns on which any path depends.
    columns: ColumnSet,
    /// Conditions that were tested, or compared with others.
    tested: Cell<u64>,
}

/// Both sides of a change: a row that came has no *before*, one that went no *after*.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeforeImages<'a> {
    pub(super) before: Option<RowRef<'a>>,
    pub(super) after: Option<RowRef<'a>>,
    pub(super) columns: ColumnSet,
}

impl Tree {
    /// Builds the tree of what was asked.
    pub(super) fn build(&mut self, log: &RelationLog, table: &HyperTable) {
        self.points.clear();
        self.points.extend_from_slice(&log.points);
        self.points.sort_unstable_by_key(|point| point.summary);
        self.nodes.clear();
        self.leaves.clear();
        self.firsts.clear();
        self.known.clear();
        self.columns = ColumnSet::EMPTY;
        self.nodes.push(Node { test: NONE, parent: NONE, child: NONE, sibling: NONE, leaf: NONE, leaves: 0 });
        for path in &log.paths {
            let mut at = 0;
            for test in path.tests.clone() {
                at = self.child(at, test, log);
                self.columns = self.columns.union(columns_of(&log.tests[test as usize], table));
            }
            self.columns = self.columns.union(path.columns);
            self.add_leaf(at, path.columns, path.extremum);
        }
        self.sort_firsts(log);
    }

    /// Sorts the ranges with which paths begin by their lower bounds, and notes how far those before each of them go.
    fn sort_firsts(&mut self, log: &RelationLog) {
        let Self { firsts, nodes, .. } = self;
        let bounds = |node: u32| log.bounds(&log.tests[nodes[node as usize].test as usize]);
        firsts.sort_unstable_by(|one, other| {
            let order = one.index.cmp(&other.index);
            order.then_with(|| compare_lower(bounds(one.node).0, bounds(other.node).0))
        });
        for position in 1..firsts.len() {
            let before = &firsts[position - 1];
            let (index, furthest) = (before.index, before.furthest);
            let here = &mut firsts[position];
            if here.index == index && compare_upper(bounds(furthest).1, bounds(here.node).1) == Ordering::Greater {
                here.furthest = furthest;
            }
        }
    }

    /// How many conditions were tested since the last call.
    pub(super) fn take_tested(&self) -> u64 {
        self.tested.take()
    }

    /// Nodes, the root and the points included.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.points.len()
    }

    /// The child with a condition; a new one if there is none.
    fn child(&mut self, parent: usize, test: u32, log: &RelationLog) -> usize {
        let wanted = &log.tests[test as usize];
        let hash = log.hash(wanted) ^ (parent as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (nodes, next) = (&mut self.nodes, self.known.len() as u32 + 1);
        let tested = &self.tested;
        let is_child = |known: &(u64, u32)| {
            tested.set(tested.get() + 1);
            let node = &nodes[known.1 as usize];
            node.parent == parent as u32 && log.same(&log.tests[node.test as usize], wanted)
        };
        match self.known.entry(hash, is_child, |known| known.0) {
            Entry::Occupied(known) => return known.get().1 as usize,
            Entry::Vacant(vacant) => _ = vacant.insert((hash, next)),
        }
        let mut node = Node { test, parent: parent as u32, child: NONE, sibling: NONE, leaf: NONE, leaves: 0 };
        match wanted {
            Test::Key { index, .. } if parent == 0 => {
                self.firsts.push(First { index: *index, node: next, furthest: next });
            }
            _ => node.sibling = std::mem::replace(&mut nodes[parent].child, next),
        }
        nodes.push(node);
        next as usize
    }

    fn add_leaf(&mut self, node: usize, columns: ColumnSet, extremum: Option<Extremum>) {
        let Node { leaf: first, leaves, .. } = self.nodes[node];
        let extremum = extremum.filter(|_| leaves < MOST_LEAVES);
        let mut leaf = first;
        while leaf != NONE {
            let present = &mut self.leaves[leaf as usize];
            if present.extremum == extremum {
                present.columns = present.columns.union(columns);
                return;
            }
            leaf = present.next;
        }
        self.nodes[node].leaf = self.leaves.len() as u32;
        self.nodes[node].leaves += 1;
        self.leaves.push(Leaf { columns, extremum, next: first });
    }

    /// Whether a key that was looked up meets a change.
    pub(super) fn meets_point(&self, log: &RelationLog, undo: Undo<'_>, by_columns: bool) -> bool {
        if left_out(Step::ComparePoints) {
            return false;
        }
        let summary = undo.summary();
        let relevant = |columns: ColumnSet| !by_columns || undo.comes_or_goes() || columns.intersects(undo.columns());
        let first = self.points.partition_point(|point| point.summary < summary);
        let mut points = self.points[first..].iter().take_while(|point| point.summary == summary);
        let within = |range: &Coarse| range.first <= summary && summary <= range.last;
        points.any(|point| relevant(point.columns))
            || log.coarse.iter().any(|range| within(range) && relevant(range.columns))
    }

    /// Whether anything was asked that a change of this key may meet, whatever it changes.
    pub(super) fn asks_of(&self, log: &RelationLog, summary: u64) -> bool {
        let has_point = self.points.binary_search_by_key(&summary, |point| point.summary).is_ok();
        let within = |range: &Coarse| range.first <= summary && summary <= range.last;
        !self.leaves.is_empty() || has_point || log.coarse.iter().any(within)
    }

    /// Whether any path may meet a change, as far as columns tell.
    pub(super) fn may_meet(&self, undo: Undo<'_>, by_columns: bool) -> bool {
        let relevant = !by_columns || undo.comes_or_goes() || self.columns.intersects(undo.columns());
        !self.leaves.is_empty() && relevant && !left_out(Step::ComparePaths)
    }

    /// Whether a path meets a change.
    pub(super) fn meets(
        &self,
        log: &RelationLog,
        table: &HyperTable,
        before_images: BeforeImages<'_>,
        by_columns: bool,
    ) -> bool {
        self.node_meets(0, (log, table), before_images, by_columns)
            || self.firsts_meet((log, table), before_images, by_columns)
    }

    /// Whether a path meets a change that begins with a range of an index.
    fn firsts_meet(
        &self,
        within: (&RelationLog, &HyperTable),
        before_images: BeforeImages<'_>,
        by_columns: bool,
    ) -> bool {
        self.firsts.chunk_by(|one, other| one.index == other.index).any(|firsts| {
            let mut scratch = [KeyScratch::new(), KeyScratch::new()];
            let [before, after] = &mut scratch;
            let store = within.1.store(firsts[0].index).ok();
            let key =
                |row: Option<RowRef<'_>>, scratch| -> Option<&[u8]> { store?.extractor.extract(row?, scratch).ok() };
            let (was, is) = (key(before_images.before, before), key(before_images.after, after));
            if before_images.before.is_some() && was.is_none() || before_images.after.is_some() && is.is_none() {
                // Nothing is known of its keys.
                return firsts.iter().any(|first| self.child_meets(first.node, within, before_images, by_columns));
            }
            let holds = |key: &[u8]| {
                self.holding(firsts, key, within.0)
                    .any(|node| self.child_meets(node, within, before_images, by_columns))
            };
            was.is_some_and(holds) || is != was && is.is_some_and(holds)
        })
    }

    /// The nodes whose ranges hold a key, and some others.
    fn holding<'a>(
        &'a self,
        firsts: &'a [First],
        key: &'a [u8],
        log: &'a RelationLog,
    ) -> impl Iterator<Item = u32> + 'a {
        let bounds = move |node: u32| log.bounds(&log.tests[self.nodes[node as usize].test as usize]);
        let unbounded = Bound::Unbounded::<&[u8]>;
        let end = firsts.partition_point(|first| (bounds(first.node).0, unbounded).contains(key));
        let reaches = move |first: &&First| (Bound::Unbounded::<&[u8]>, bounds(first.furthest).1).contains(key);
        firsts[..end].iter().rev().take_while(reaches).map(|first| first.node)
    }

    /// Whether a path through a node meets a change of which nothing is known at its parent.
    fn child_meets(
        &self,
        child: u32,
        within: (&RelationLog, &HyperTable),
        before_images: BeforeImages<'_>,
        by_columns: bool,
    ) -> bool {
        self.tested.set(self.tested.get() + 1);
        let test = &within.0.tests[self.nodes[child as usize].test as usize];
        let holds = |row: &RowRef<'_>| holds(test, *row, within.0, within.1);
        let narrowed = BeforeImages {
            before: before_images.before.filter(holds),
            after: before_images.after.filter(holds),
            columns: before_images.columns,
        };
        let any = narrowed.before.is_some() || narrowed.after.is_some();
        any && self.node_meets(child as usize, within, narrowed, by_columns)
    }

    fn node_meets(
        &self,
        node: usize,
        within: (&RelationLog, &HyperTable),
        before_images: BeforeImages<'_>,
        by_columns: bool,
    ) -> bool {
        let node = &self.nodes[node];
        let mut leaf = node.leaf;
        while leaf != NONE {
            let present = &self.leaves[leaf as usize];
            if present.meets(&within.1.layout, before_images, by_columns) {
                return true;
            }
            leaf = present.next;
        }
        let mut child = node.child;
        while child != NONE {
            if self.child_meets(child, within, before_images, by_columns) {
                return true;
            }
            child = self.nodes[child as usize].sibling;
        }
        false
    }
}

impl Leaf {
    /// Whether the answer may be another one, given which sides of the change satisfy the path.
    fn meets(&self, layout: &Layout, before_images: BeforeImages<'_>, by_columns: bool) -> bool {
        let before = before_images.before.filter(|_| !left_out(Step::CompareBefore));
        let after = before_images.after.filter(|_| !left_out(Step::CompareAfter));
        let stays = before_images.before.is_some() && before_images.after.is_some();
        if by_columns && stays && !self.columns.intersects(before_images.columns) {
            return false;
        }
        match self.extremum {
            None => before.is_some() || after.is_some(),
            Some(extremum) => {
                before.is_some_and(|row| extremum.rests_on(layout, row))
                    || after.is_some_and(|row| extremum.is_beaten_by(layout, row))
            }
        }
    }
}

fn compare_lower(one: Bound<&[u8]>, other: Bound<&[u8]>) -> Ordering {
    // The first key that a bound lets in, and whether that is itself.
    let order = |bound| match bound {
        Bound::Unbounded => (None, false),
        Bound::Included(key) => (Some(key), false),
        Bound::Excluded(key) => (Some(key), true),
    };
    order(one).cmp(&order(other))
}

fn compare_upper(one: Bound<&[u8]>, other: Bound<&[u8]>) -> Ordering {
    let order = |bound| match bound {
        Bound::Unbounded => (true, None, false),
        Bound::Included(key) => (false, Some(key), true),
        Bound::Excluded(key) => (false, Some(key), false),
    };
    order(one).cmp(&order(other))
}

/// The columns on which a condition depends.
fn columns_of(test: &Test, table: &HyperTable) -> ColumnSet {
    match test {
        Test::Column { column, .. } => ColumnSet::single(*column),
        Test::Key { index, .. } => table.store(*index).map_or(ColumnSet::ALL, |store| store.extractor.columns()),
    }
}

/// Whether a row satisfies a condition.
fn holds(test: &Test, row: RowRef<'_>, log: &RelationLog, table: &HyperTable) -> bool {
    match test {
        Test::Column { column, comparison, constant } => {
            log.column_holds(*column, *comparison, constant, &table.layout, row)
        }
        Test::Key { index, lower, upper } => {
            let Ok(store) = table.store(*index) else { return true };
            let mut scratch = KeyScratch::new();
            let Ok(key) = store.extractor.extract(row, &mut scratch) else { return true };
            (log.bound(lower), log.bound(upper)).contains(key)
        }
    }
}
