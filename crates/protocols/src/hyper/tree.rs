//! Predicate trees: the paths of one relation put together, so that conditions that several share are tested once.
//!
//! The nodes of a tree are conditions on one attribute, its edges mean *and*, its paths together mean *or*. Points stand beside the tree,
//! sorted.

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
    /// The first of what ends here.
    leaf: u32,
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
    /// Columns on which any path depends.
    columns: ColumnSet,
}

/// Both sides of a change: a row that came has no *before*, one that went no *after*.
#[derive(Clone, Copy, Debug)]
pub(super) struct Images<'a> {
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
        self.columns = ColumnSet::EMPTY;
        self.nodes.push(Node { test: NONE, child: NONE, sibling: NONE, leaf: NONE });
        for path in &log.paths {
            let mut at = 0;
            for test in path.tests.clone() {
                at = self.child(at, test, log);
                self.columns = self.columns.union(columns_of(&log.tests[test as usize], table));
            }
            self.columns = self.columns.union(path.columns);
            self.add_leaf(at, path.columns, path.extremum);
        }
    }

    /// Nodes, the root and the points included.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.points.len()
    }

    /// The child with a condition; a new one if there is none.
    fn child(&mut self, parent: usize, test: u32, log: &RelationLog) -> usize {
        let mut child = self.nodes[parent].child;
        while child != NONE {
            if log.same(&log.tests[self.nodes[child as usize].test as usize], &log.tests[test as usize]) {
                return child as usize;
            }
            child = self.nodes[child as usize].sibling;
        }
        let sibling = self.nodes[parent].child;
        self.nodes[parent].child = self.nodes.len() as u32;
        self.nodes.push(Node { test, child: NONE, sibling, leaf: NONE });
        self.nodes.len() - 1
    }

    fn add_leaf(&mut self, node: usize, columns: ColumnSet, extremum: Option<Extremum>) {
        let mut leaf = self.nodes[node].leaf;
        while leaf != NONE {
            let present = &mut self.leaves[leaf as usize];
            if present.extremum == extremum {
                present.columns = present.columns.union(columns);
                return;
            }
            leaf = present.next;
        }
        let next = self.nodes[node].leaf;
        self.nodes[node].leaf = self.leaves.len() as u32;
        self.leaves.push(Leaf { columns, extremum, next });
    }

    /// Whether a key that was looked up meets a change.
    pub(super) fn meets_point(&self, log: &RelationLog, undo: Undo, by_columns: bool) -> bool {
        if left_out(Step::ComparePoints) {
            return false;
        }
        let summary = undo.summary();
        let relevant = |columns: ColumnSet| {
            !by_columns || undo.kind() != super::undo::Kind::Update || columns.intersects(undo.columns())
        };
        let first = self.points.partition_point(|point| point.summary < summary);
        let mut points = self.points[first..].iter().take_while(|point| point.summary == summary);
        let within = |range: &Coarse| range.first <= summary && summary <= range.last;
        points.any(|point| relevant(point.columns))
            || log.coarse.iter().any(|range| within(range) && relevant(range.columns))
    }

    /// Whether any path may meet a change, as far as columns tell.
    pub(super) fn may_meet(&self, undo: Undo, by_columns: bool) -> bool {
        let relevant =
            !by_columns || undo.kind() != super::undo::Kind::Update || self.columns.intersects(undo.columns());
        !self.leaves.is_empty() && relevant && !left_out(Step::ComparePaths)
    }

    /// Whether a path meets a change.
    pub(super) fn meets(&self, log: &RelationLog, table: &HyperTable, images: Images<'_>, by_columns: bool) -> bool {
        self.node_meets(0, (log, table), images, by_columns)
    }

    fn node_meets(
        &self,
        node: usize,
        within: (&RelationLog, &HyperTable),
        images: Images<'_>,
        by_columns: bool,
    ) -> bool {
        let node = &self.nodes[node];
        let mut leaf = node.leaf;
        while leaf != NONE {
            let present = &self.leaves[leaf as usize];
            if present.meets(&within.1.layout, images, by_columns) {
                return true;
            }
            leaf = present.next;
        }
        let mut child = node.child;
        while child != NONE {
            let test = &within.0.tests[self.nodes[child as usize].test as usize];
            let holds = |row: &RowRef<'_>| holds(test, *row, within.0, within.1);
            let narrowed = Images {
                before: images.before.filter(holds),
                after: images.after.filter(holds),
                columns: images.columns,
            };
            let any = narrowed.before.is_some() || narrowed.after.is_some();
            if any && self.node_meets(child as usize, within, narrowed, by_columns) {
                return true;
            }
            child = self.nodes[child as usize].sibling;
        }
        false
    }
}

impl Leaf {
    /// Whether the answer may be another one, given which sides of the change satisfy the path.
    fn meets(&self, layout: &Layout, images: Images<'_>, by_columns: bool) -> bool {
        let before = images.before.filter(|_| !left_out(Step::CompareBefore));
        let after = images.after.filter(|_| !left_out(Step::CompareAfter));
        let stays = images.before.is_some() && images.after.is_some();
        if by_columns && stays && !self.columns.intersects(images.columns) {
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
            std::ops::RangeBounds::contains(&(log.bound(lower), log.bound(upper)), key)
        }
    }
}
