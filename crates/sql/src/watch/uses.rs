//! What plans do with tables.

use polychron_base::TableId;

use super::Use;
use crate::plan::{Node, Plan};

impl Plan {
    /// What it does with which tables each time. Subqueries of expressions, and what foreign keys lead to, are not among them.
    pub(crate) fn uses(&self) -> Vec<(TableId, Use)> {
        let mut uses = Vec::new();
        match self {
            Self::Query { node, .. } => node.uses(&mut uses),
            Self::Insert { table, source, .. } => {
                source.uses(&mut uses);
                uses.push((table.id, Use::Inserts));
            }
            Self::Update { table, source, .. } => {
                source.uses(&mut uses);
                uses.push((table.id, Use::Updates));
            }
            Self::Delete { table, source, .. } => {
                source.uses(&mut uses);
                uses.push((table.id, Use::Deletes));
            }
            Self::With(with) => {
                with.reads.iter().for_each(|(_, node)| node.uses(&mut uses));
                with.plans().for_each(|plan| uses.extend(plan.uses()));
            }
            Self::Merge(merge) => {
                merge.source.uses(&mut uses);
                uses.push((merge.table.id, Use::Updates));
            }
            Self::Analyze(analyzed) => uses = analyzed.plan.uses(),
            Self::Truncate(_) | Self::Lock | Self::Call(_) => {}
        }
        uses
    }
}

impl Node {
    fn uses(&self, uses: &mut Vec<(TableId, Use)>) {
        match self {
            Self::Scan(scan) => {
                uses.push((scan.table.id, if scan.path.is_narrow() { Use::Indexed } else { Use::Whole }))
            }
            Self::Nothing | Self::Rows(_) | Self::Given(_) | Self::Series(_) | Self::Working { .. } => {}
            Self::Filter { input, .. }
            | Self::Project { input, .. }
            | Self::Aggregate { input, .. }
            | Self::Window { input, .. }
            | Self::Expand { input, .. }
            | Self::Sort { input, .. }
            | Self::Distinct { input, .. }
            | Self::Limit { input, .. } => input.uses(uses),
            Self::Kept { input, .. } => input.uses(uses),
            Self::Join { left, right, .. }
            | Self::Without { left, right, .. }
            | Self::Recursive { first: left, step: right, .. } => {
                left.uses(uses);
                right.uses(uses);
            }
            Self::Append(inputs) => inputs.iter().for_each(|input| input.uses(uses)),
        }
    }
}
