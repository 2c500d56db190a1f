//! Statements that make several changes: `crate::changing`.

use std::sync::Arc;

use hashbrown::HashSet;
use polychron_engine::Insertion;
use polychron_schema::KeyScratch;

use super::changes::{Row, Target, change, changed, duplicate, gathered, insert_row, key_of, with_rules};
use super::foreign_keys::Notes;
use super::{Exec, Failure, Flow, Rows, Sink, executed, owned, run};
use crate::catalog::Table;
use crate::changing::{Merge, MergeAction, With};
use crate::context::Context;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::Plan;

impl Exec<'_> {
    /// Whether a part of a statement may change a row: no part before it has. Where a statement has one part, it may.
    pub(super) fn is_unchanged(
        &self,
        table: &Table,
        row: &[crate::datum::Datum<'_>],
        context: &Context<'_>,
    ) -> Result<bool, Failure> {
        if !self.makes_several_changes() {
            return Ok(true);
        }
        let mut scratch = KeyScratch::new();
        let key = key_of(table, row, &mut scratch, context.arena)?;
        self.take(key.len() + size_of::<Vec<u8>>())?;
        let mut changed = self.shared.results().changed.borrow_mut();
        Ok(changed.as_mut().is_none_or(|changed| changed.insert((table.id, key.to_vec()))))
    }

    /// A part of a statement has written this row, which other parts then do not change.
    pub(super) fn note_written(
        &self,
        table: &Table,
        row: &[crate::datum::Datum<'_>],
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        self.is_unchanged(table, row, context).map(drop)
    }

    /// Whether a part of a statement has written the row of this key.
    pub(super) fn has_written(&self, table: &Table, key: &[u8]) -> bool {
        let Some(results) = self.shared.results.get() else { return false };
        let changed = results.changed.borrow();
        changed.as_ref().is_some_and(|changed| changed.contains(&(table.id, key.to_vec())))
    }

    /// Whether the statement has changes in its WITH.
    pub(super) fn makes_several_changes(&self) -> bool {
        self.shared.results.get().is_some_and(|results| results.changed.borrow().is_some())
    }

    /// Keeps rows under a number, where parts of the statement find them.
    fn keep_rows(
        &mut self,
        id: usize,
        fill: impl FnOnce(&mut Self, &mut Sink<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (before, mut rows) = (self.shared.memory.get(), Rows::new());
        fill(self, &mut |exec, row| {
            exec.keep(row)?;
            rows.push(owned(row));
            Ok(Flow::More)
        })?;
        self.shared.results().working.borrow_mut().insert(id, Arc::new(rows));
        self.lasts(before);
        Ok(())
    }
}

/// Reads what parts are to see, makes the changes that the statement asks for, runs it, and makes the others. Foreign keys are looked at when all is changed.
pub(super) fn with(
    with: &With,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    for (id, node) in &with.reads {
        exec.keep_rows(*id, |exec, keep| run(node, exec, context, keep).map(drop))?;
    }
    let mut notes = Vec::new();
    exec.shared.results().changed.replace(Some(HashSet::new()));
    for (id, part) in &with.parts {
        exec.keep_rows(*id, |exec, keep| {
            let (_, of_part) = changed(part, exec, context, keep)?;
            notes.push(of_part);
            Ok(())
        })?;
    }
    let count = match &with.plan {
        query @ Plan::Query { .. } => executed(query, exec, context, out)?,
        plan => {
            let (count, own) = changed(plan, exec, context, out)?;
            notes.push(own);
            count
        }
    };
    for part in &with.last {
        notes.push(changed(part, exec, context, &mut |_, _| Ok(Flow::More))?.1);
    }
    exec.shared.results().changed.replace(None);
    notes.into_iter().try_for_each(|notes| notes.finish(exec, context))?;
    Ok(count)
}

fn affected_twice() -> SqlError {
    let hint = "Ensure that not more than one source row matches any one target row.";
    SqlError::new(SqlState::CARDINALITY_VIOLATION, "MERGE command cannot affect row a second time").with_hint(hint)
}

/// Takes the rows of the source one after the other, and does what the first clause says that holds of each.
pub(super) fn merge<'p, 'a>(
    merge: &'p Merge,
    exec: &mut Exec<'_>,
    context: &Context<'a>,
) -> Result<(u64, Notes<'p, 'a>), Failure> {
    let table = &merge.table;
    let target = Target { table, checks: &merge.checks, returning: None };
    let (width, first_of_key) = (table.columns.len(), table.primary().columns[0]);
    let (mut count, mut notes, mut met) = (0, Notes::new(&merge.keys), HashSet::new());
    for row in gathered(&merge.source, exec, context, context.arena)? {
        exec.tick()?;
        let (old, beside) = row.split_at(width);
        let is_matched = !old[first_of_key].is_null();
        let Some(action) = action(merge, (if is_matched { row } else { beside }, is_matched), exec, context)? else {
            continue;
        };
        if is_matched {
            let mut scratch = KeyScratch::new();
            let key = key_of(table, old, &mut scratch, context.arena)?;
            exec.take(key.len() + size_of::<Vec<u8>>())?;
            if !met.insert(key.to_vec()) {
                return Err(affected_twice().into());
            }
            if !exec.is_unchanged(table, old, context)? {
                continue;
            }
        }
        match action {
            MergeAction::Nothing => continue,
            MergeAction::Insert(values) => {
                let new = values_over(values, beside, exec, context)?;
                let new = with_rules(table.generated()?, new, exec, context, context.arena)?;
                target.check(new, exec, context)?;
                let new = with_rules(table.rules()?, new, exec, context, context.arena)?;
                if let Insertion::Duplicate(index) = insert_row(table, new, exec)? {
                    return Err(duplicate(table, index, new, context.zone).into());
                }
                notes.inserted(table, new);
            }
            MergeAction::Update { set, values } => {
                let values = values_over(values, row, exec, context)?;
                let new = change(&target, old, (set, values), exec, context)?;
                notes.updated(table, (old, new), exec)?;
            }
            MergeAction::Delete => {
                let mut scratch = KeyScratch::new();
                exec.access.delete(table.id, key_of(table, old, &mut scratch, context.arena)?)?;
                notes.deleted(table, old, exec)?;
            }
        }
        count += 1;
    }
    Ok((count, notes))
}

/// What is to be done with a row. `None`: nothing.
fn action<'p>(
    merge: &'p Merge,
    (row, is_matched): (Row<'_>, bool),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
) -> Result<Option<&'p MergeAction>, Failure> {
    let arena = exec.take_arena();
    let inner = context.with_arena(&arena);
    for clause in merge.clauses.iter().filter(|clause| clause.is_matched == is_matched) {
        if clause.condition.as_ref().map_or(Ok(true), |condition| condition.holds(row, &inner))? {
            let is_nothing = matches!(clause.action, MergeAction::Nothing);
            return Ok((!is_nothing).then_some(&clause.action));
        }
    }
    exec.give_arena(arena);
    Ok(None)
}

/// The values of expressions over a row, in the memory of the statement.
fn values_over<'a>(
    exprs: &[Expr],
    row: Row<'_>,
    exec: &mut Exec<'_>,
    context: &Context<'a>,
) -> Result<Row<'a>, Failure> {
    let arena = exec.take_arena();
    let mut values = bumpalo::collections::Vec::with_capacity_in(exprs.len(), context.arena);
    for expr in exprs {
        values.push(expr.eval(row, &context.with_arena(&arena))?.within(context.arena));
    }
    exec.give_arena(arena);
    Ok(values.into_bump_slice())
}
