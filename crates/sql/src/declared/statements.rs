//! What a single statement declares.

use polychron_engine::Access;

use super::{Declaring, Given};
use crate::catalog::{ForeignAction, Table};
use crate::datum::Datum;
use crate::expr::Expr;
use crate::plan::{ForeignKeys, Node, OnConflict, Plan, Scan};
use crate::sequences::Draw;

/// Whether a change of a parent changes its children.
fn acts(action: ForeignAction) -> bool {
    !matches!(action, ForeignAction::NoAction | ForeignAction::Restrict)
}

/// Whether foreign keys lead a deletion of rows to other rows.
fn deletes_more(keys: &ForeignKeys, table: &Table) -> bool {
    let keys = keys.tables.get(&table.id);
    keys.is_some_and(|keys| keys.children.iter().any(|link| acts(link.key.on_delete)))
}

/// Whether they lead an update of these columns there.
fn updates_more(keys: &ForeignKeys, table: &Table, set: &[usize]) -> bool {
    let keys = keys.tables.get(&table.id);
    keys.is_some_and(|keys| {
        let is_met = |column: &usize| set.contains(column) || table.columns[*column].is_derived();
        let meets = |parents: &[usize]| parents.iter().any(is_met);
        keys.children.iter().any(|link| acts(link.key.on_update) && meets(&link.parents))
    })
}

/// How an update of these columns touches a row. `None`: it puts the row under another key.
fn access_of(table: &Table, set: &[usize]) -> Option<Access> {
    // What a computed column looks at is not asked.
    let is_met = |column: &usize| set.contains(column) || table.columns[*column].is_derived();
    let meets = |columns: &[usize]| columns.iter().any(is_met);
    if meets(&table.primary().columns) {
        return None;
    }
    let changes_entries = table.indexes[1..].iter().any(|index| meets(&index.columns));
    Some(if changes_entries { Access::Write } else { Access::Update })
}

/// Whether a primary key has values that follow from those of other columns.
fn has_computed_key(table: &Table) -> bool {
    table.primary().columns.iter().any(|column| table.columns[*column].is_derived())
}

/// The scan of the table that a statement changes: what it joins with is on the right side.
fn target<'n>(node: &'n Node, table: &Table) -> Option<&'n Scan> {
    match node {
        Node::Scan(scan) => Some(scan).filter(|scan| scan.table.id == table.id),
        Node::Filter { input, .. } | Node::Project { input, .. } => target(input, table),
        Node::Join { left, .. } => target(left, table),
        _ => None,
    }
}

/// The expression of a column of the rows that a node makes of a row of expressions.
fn column<'n>(columns: Option<&'n [Expr]>, row: &'n [Expr], at: usize) -> Option<&'n Expr> {
    match columns {
        None => row.get(at),
        Some(columns) => match columns.get(at)? {
            Expr::Column(below) => row.get(*below),
            expr => Some(expr),
        },
    }
}

impl<'t> Declaring<'t> {
    pub(super) fn plan(&mut self, plan: &Plan, given: Given<'_>) {
        match plan {
            Plan::Query { node, .. } => self.reads(node, given),
            Plan::Insert { table, source, on_conflict, keys, .. } => {
                let access = match on_conflict {
                    OnConflict::Fail | OnConflict::Skip(_) => Access::Insert,
                    OnConflict::Update(update) => {
                        let is_other = update.index > 0 || access_of(table, &update.set).is_none();
                        if is_other || updates_more(keys, table, &update.set) {
                            self.unknown("the row of ON CONFLICT", Some(table));
                        }
                        Access::Write
                    }
                };
                self.inserted(table, source, access, given);
            }
            Plan::Update { table, source, set, keys, .. } => match access_of(table, set) {
                Some(_) if updates_more(keys, table, set) => self.unknown("children of rows", Some(table)),
                Some(access) => self.found(table, source, access, given),
                None => self.unknown("other keys of rows", Some(table)),
            },
            Plan::Delete { table, source, keys, .. } if !deletes_more(keys, table) => {
                self.found(table, source, Access::Write, given);
            }
            Plan::Delete { table, .. } => self.unknown("children of rows", Some(table)),
            Plan::With(with) => {
                with.reads.iter().for_each(|(_, node)| self.reads(node, given));
                with.plans().for_each(|plan| self.plan(plan, given));
            }
            Plan::Merge(merge) => self.unknown("the rows of MERGE", Some(&merge.table)),
            Plan::Truncate(tables) => tables.iter().for_each(|(table, _)| self.unknown("all rows", Some(table))),
            Plan::Lock => {}
            Plan::Call(call) => self.call(call, given),
            Plan::Analyze(analyzed) => self.plan(&analyzed.plan, given),
        }
    }

    /// The first values of the primary keys of rows that a scan finds, as far as they are known.
    fn key_of(&self, scan: &Scan, given: Given<'_>) -> Vec<Datum<'t>> {
        let index = &scan.table.indexes[scan.path.index];
        let equal = |column: &usize| {
            let at = index.columns.iter().position(|own| own == column)?;
            self.value(scan.path.equal.get(at)?, given)
        };
        scan.table.primary().columns.iter().filter(|_| !has_computed_key(&scan.table)).map_while(equal).collect()
    }

    /// Rows that a statement finds, and changes.
    fn found(&mut self, table: &Table, source: &Node, access: Access, given: Given<'_>) {
        let key = target(source, table).map_or_else(Vec::new, |scan| self.key_of(scan, given));
        self.name(table, &key, access);
    }

    /// Rows that are read by their keys.
    fn reads(&mut self, node: &Node, given: Given<'_>) {
        match node {
            Node::Scan(scan) if scan.path.index == 0 => {
                let key = self.key_of(scan, given);
                self.name(&scan.table, &key, Access::Read);
            }
            Node::Filter { input, .. }
            | Node::Project { input, .. }
            | Node::Aggregate { input, .. }
            | Node::Sort { input, .. }
            | Node::Limit { input, .. } => self.reads(input, given),
            Node::Join { left, right, .. } => {
                self.reads(left, given);
                self.reads(right, given);
            }
            _ => {}
        }
    }

    /// Rows that are inserted.
    fn inserted(&mut self, table: &Table, source: &Node, access: Access, given: Given<'_>) {
        let (columns, rows) = match source {
            Node::Project { input, columns } => (Some(&columns[..]), &**input),
            other => (None, other),
        };
        let primary = &table.primary().columns;
        if has_computed_key(table) {
            return self.unknown("keys that are computed", Some(table));
        }
        match rows {
            Node::Rows(rows) => {
                for row in rows {
                    if !self.step() {
                        return;
                    }
                    let exprs = primary.iter().map(|at| column(columns, row, *at));
                    let key: Vec<_> = exprs.map_while(|expr| self.new_value(expr?, given)).collect();
                    self.name(table, &key, access);
                }
            }
            Node::Given(names) => {
                let width = names.len().max(1);
                for row in given.values.chunks(width) {
                    if !self.step() {
                        return;
                    }
                    let value = |at: &usize| match columns.map(|columns| columns.get(*at)) {
                        None => row.get(*at).map(|value| value.within(self.arena)),
                        Some(Some(Expr::Column(below))) => row.get(*below).map(|value| value.within(self.arena)),
                        Some(expr) => self.new_value(expr?, given),
                    };
                    let key: Vec<_> = primary.iter().map_while(value).collect();
                    self.name(table, &key, access);
                }
            }
            // How many rows come, and of which values, shows when it runs.
            _ => {
                let exprs = primary.iter().map(|at| columns.and_then(|columns| columns.get(*at)));
                let key: Vec<_> = exprs.map_while(|expr| self.value(expr?, given)).collect();
                match key.len() {
                    // Several rows cannot have one key.
                    length if length == primary.len() && matches!(rows, Node::Nothing) => {
                        self.name(table, &key, access)
                    }
                    length => self.name(table, &key[..length.min(primary.len() - 1)], access),
                }
            }
        }
    }

    /// The value of a column of a new row: the number of a row is drawn here, and given to the row when it is inserted.
    fn new_value(&self, expr: &Expr, given: Given<'_>) -> Option<Datum<'t>> {
        match expr {
            Expr::Drawn(drawing, _) => match &*drawing.draw {
                // Each round of a loop draws another one.
                Draw::Row(sequence) if self.rounds == 0 => {
                    // What is only told needs no number.
                    self.drawn.map_or(Some(0), |drawn| drawn.draw_ahead(sequence)).map(Datum::Int)
                }
                _ => None,
            },
            expr => self.value(expr, given),
        }
    }
}
