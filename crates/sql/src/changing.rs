//! Statements that make several changes: changes in WITH, and MERGE.
//!
//! All parts of a statement see the rows as they were before its first change. So what a part reads of a table that a part before it changes is read ahead
//! of all changes, and so is what is read while rows are changed: by RETURNING, ON CONFLICT and the clauses of MERGE. And a row is changed by the first part alone that wants it, as in PostgreSQL.

use std::sync::Arc;

use hashbrown::HashSet;
use polychron_base::TableId;

use crate::catalog::Table;
use crate::expr::Expr;
use crate::plan::{Condition, ForeignKeys, Node, OnConflict, Path, Plan, Returning, Scan};

/// A statement with changes in its WITH.
#[derive(Clone, Debug)]
pub(crate) struct With {
    /// What is read ahead of all changes, by the numbers under which parts find the rows.
    pub(crate) reads: Vec<(usize, Node)>,
    /// The changes, whose rows are found under these numbers.
    pub(crate) parts: Vec<(usize, Plan)>,
    pub(crate) plan: Plan,
    /// The changes whose rows nothing asks for: they come last, as in PostgreSQL.
    pub(crate) last: Vec<Plan>,
}

/// Rows of a source, each with the row of the table that it matches or NULLs in its place. `source` gives the columns of the table first.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    pub(crate) table: Arc<Table>,
    pub(crate) source: Node,
    pub(crate) clauses: Vec<MergeClause>,
    pub(crate) checks: Vec<Condition>,
    pub(crate) keys: Arc<ForeignKeys>,
}

/// `WHEN`: its expressions are over the whole row where it is matched, else over that of the source.
#[derive(Clone, Debug)]
pub(crate) struct MergeClause {
    pub(crate) is_matched: bool,
    pub(crate) condition: Option<Expr>,
    pub(crate) action: MergeAction,
}

/// What becomes of a row.
#[derive(Clone, Debug)]
pub(crate) enum MergeAction {
    Nothing,
    /// All columns of a new row.
    Insert(Vec<Expr>),
    Update {
        set: Vec<usize>,
        values: Vec<Expr>,
    },
    Delete,
}

impl With {
    /// A statement with changes in front of it and behind it. It reads ahead what it would find changed otherwise; `next` gives numbers that no part has.
    pub(crate) fn plan(
        mut parts: Vec<(usize, Plan)>,
        mut plan: Plan,
        mut last: Vec<Plan>,
        next: &mut dyn FnMut() -> usize,
    ) -> Plan {
        let (mut reads, mut changed) = (Vec::new(), HashSet::new());
        for plan in parts.iter_mut().map(|(_, plan)| plan).chain([&mut plan]).chain(&mut last) {
            if !changed.is_empty() {
                let source = plan.source_mut();
                source.into_iter().for_each(|node| node.each_node(&mut |node| read(node, &changed, &mut reads, next)));
            }
            // What is computed of changed rows is computed while others are changed.
            changed.extend(plan.target().map(|table| table.id));
            plan.each_expr_behind(&mut |expr| expr.each_node(&mut |node| read(node, &changed, &mut reads, next)));
        }
        match reads.is_empty() && parts.is_empty() && last.is_empty() {
            true => plan,
            false => Plan::With(Self { reads, parts, plan, last }.into()),
        }
    }

    /// All plans, in the order in which they run.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.parts.iter().map(|(_, plan)| plan).chain([&self.plan]).chain(&self.last)
    }

    /// The same with other plans.
    pub(crate) fn map_plans(self, map: fn(Plan) -> Plan) -> Self {
        let parts = self.parts.into_iter().map(|(id, plan)| (id, map(plan))).collect();
        let last = self.last.into_iter().map(map).collect();
        Self { reads: self.reads, parts, plan: map(self.plan), last }
    }
}

impl Plan {
    /// The table that it changes.
    fn target(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Insert { table, .. } | Self::Update { table, .. } | Self::Delete { table, .. } => Some(table),
            Self::Merge(merge) => Some(&merge.table),
            _ => None,
        }
    }

    /// Where its rows come from.
    fn source_mut(&mut self) -> Option<&mut Node> {
        match self {
            Self::Query { node, .. } => Some(node),
            Self::Insert { source, .. } | Self::Update { source, .. } | Self::Delete { source, .. } => Some(source),
            Self::Merge(merge) => Some(&mut merge.source),
            Self::With(_) | Self::Truncate(_) | Self::Lock | Self::Call(_) | Self::Analyze(_) => None,
        }
    }

    /// Calls `visit` with the expressions over rows that are being changed.
    fn each_expr_behind(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Self::Insert { on_conflict, returning, .. } => {
                if let OnConflict::Update(update) = on_conflict {
                    update.values.iter_mut().chain(&mut update.condition).for_each(&mut *visit);
                }
                exprs_of(returning).for_each(visit);
            }
            Self::Update { returning, .. } | Self::Delete { returning, .. } => exprs_of(returning).for_each(visit),
            Self::Merge(merge) => merge.clauses.iter_mut().flat_map(MergeClause::exprs_mut).for_each(visit),
            Self::Query { .. } | Self::With(_) | Self::Truncate(_) | Self::Lock | Self::Call(_) | Self::Analyze(_) => {}
        }
    }
}

/// Puts a scan of a changed table among the reads.
fn read(node: &mut Node, changed: &HashSet<TableId>, reads: &mut Vec<(usize, Node)>, next: &mut dyn FnMut() -> usize) {
    let Node::Scan(scan) = node else { return };
    if !changed.contains(&scan.table.id) {
        return;
    }
    let (id, width) = (next(), scan.columns.len());
    if let Node::Scan(scan) = std::mem::replace(node, Node::Working { id, width }) {
        reads.push((id, Node::Scan(apart(scan))));
    }
}

fn exprs_of(returning: &mut Option<Returning>) -> impl Iterator<Item = &mut Expr> {
    returning.iter_mut().flat_map(|returning| &mut returning.columns)
}

impl MergeClause {
    fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let values = match &mut self.action {
            MergeAction::Insert(values) | MergeAction::Update { values, .. } => &mut values[..],
            MergeAction::Nothing | MergeAction::Delete => &mut [],
        };
        self.condition.iter_mut().chain(values)
    }
}

/// The scan without bounds that look at rows around it, which conditions behind it test again. The order stays.
fn apart(mut scan: Scan) -> Scan {
    let path = &scan.path;
    let bounds = path.lower.iter().chain(&path.upper).map(|(value, _)| value);
    let mut is_apart = true;
    path.equal.iter().chain(bounds).for_each(|value| {
        value.walk(&mut |it| is_apart &= !matches!(it, Expr::Outer { .. } | Expr::Column(_) | Expr::Drawn(..)));
    });
    if !is_apart {
        let is_ordered = scan.table.indexes[path.index].is_ordered;
        scan.path =
            if is_ordered { Path { index: path.index, is_backward: path.is_backward, ..Path::ALL } } else { Path::ALL };
    }
    scan
}

impl Expr {
    /// Calls `visit` with each node of the subqueries in it.
    fn each_node(&mut self, visit: &mut dyn FnMut(&mut Node)) {
        // Nothing in here fails.
        let _ = self.replace(&mut |it| {
            if let Self::Subquery(subquery) = it {
                subquery.node.each_node(visit);
            }
            Ok(false)
        });
    }
}

impl Node {
    /// Calls `visit` with this node and with each below it, those of subqueries and of queries of WITH among them.
    fn each_node(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        self.each_expr(0, &mut |expr, _| expr.each_node(visit));
        self.each_below(visit);
    }

    fn each_below(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        visit(self);
        match self {
            Self::Nothing | Self::Rows(_) | Self::Given(_) | Self::Scan(_) | Self::Series(_) | Self::Working { .. } => {
            }
            Self::Filter { input, .. }
            | Self::Project { input, .. }
            | Self::Aggregate { input, .. }
            | Self::Window { input, .. }
            | Self::Expand { input, .. }
            | Self::Sort { input, .. }
            | Self::Distinct { input, .. }
            | Self::Limit { input, .. } => input.each_below(visit),
            // Its expressions are not among those of what is around it.
            Self::Kept { input, .. } => Arc::make_mut(input).each_node(visit),
            Self::Join { left, right, .. }
            | Self::Without { left, right, .. }
            | Self::Recursive { first: left, step: right, .. } => {
                left.each_below(visit);
                right.each_below(visit);
            }
            Self::Append(inputs) => inputs.iter_mut().for_each(|input| input.each_below(visit)),
        }
    }
}
