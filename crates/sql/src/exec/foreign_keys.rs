//! What changes of rows lead to by foreign keys: `docs/sql.md`, "Foreign keys".
//!
//! A statement notes what it has changed. When it has changed all, the notes are gone through, and what they lead to is noted behind them: so nothing goes down deeper
//! than the table of notes is long. Reads are the transaction's own, so that a key holds because transactions have an order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use bumpalo::Bump;
use polychron_engine::Transaction;
use polychron_engine::mutations::left_out;
use polychron_schema::KeyScratch;

use super::changes::{Row, Target, change, key_of, shown};
use super::children::{Children, found};
use super::{Exec, Failure, Shared};
use crate::catalog::{ForeignAction, ForeignKey, Table};
use crate::context::{Context, Now};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::plan::{ForeignKeys, Link};
use crate::steps::Step;
use crate::text::Zone;

/// What is still to be looked at.
enum Note<'a> {
    /// A row of the parent has gone.
    Deleted(Arc<Table>, Row<'a>),
    /// A row has other values.
    Updated(Arc<Table>, Row<'a>, Row<'a>),
    Check(Check),
}

/// A question whether a key holds for these values of it.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    link: Arc<Link>,
    values: Vec<OwnedDatum>,
    /// A child has them now; otherwise a parent had them.
    is_of_child: bool,
}

impl Check {
    pub(crate) fn key(&self) -> &ForeignKey {
        &self.link.key
    }
}

/// The notes of a statement.
pub(super) struct Notes<'p, 'a> {
    keys: &'p ForeignKeys,
    notes: VecDeque<Note<'a>>,
    children: Children,
}

fn values_of(row: &[Datum<'_>], columns: &[usize]) -> Vec<OwnedDatum> {
    columns.iter().map(|&at| row[at].owned()).collect()
}

fn are_equal(one: &[OwnedDatum], other: &[OwnedDatum]) -> bool {
    one.iter().zip(other).all(|(one, other)| match (one.get(), other.get()) {
        (Datum::Null, Datum::Null) => true,
        (Datum::Null, _) | (_, Datum::Null) => false,
        (one, other) => one.compare(other).is_eq(),
    })
}

fn has_null(values: &[OwnedDatum]) -> bool {
    values.iter().any(|value| value.get().is_null())
}

impl Check {
    /// Whether the key holds for the values.
    pub(super) fn run(
        &self,
        children: &mut Children,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let Self { link, values, is_of_child } = self;
        if has_null(values) || !found(link.parent_node(*is_of_child), values, exec, context)?.is_empty() {
            return Ok(());
        }
        if children.of(link, (values, *is_of_child), exec, context)?.is_empty() {
            return Ok(());
        }
        Err(self.error(*is_of_child, context).into())
    }

    fn error(&self, is_of_child: bool, context: &Context<'_>) -> SqlError {
        let (Self { link, values, .. }, name) = (self, &self.link.key.name);
        let (child, parent) = (&link.child, &link.parent);
        let in_words = |table: &Table, columns: &[usize]| {
            let mut row = vec![Datum::Null; table.columns.len()];
            columns.iter().zip(values).for_each(|(&at, value)| row[at] = value.get());
            format!("({})=({})", table.names(columns), shown(&row, columns.iter().copied(), table, context.zone))
        };
        let (message, detail) = if is_of_child {
            let key = in_words(child, &link.columns);
            (
                format!("insert or update on table \"{}\" violates foreign key constraint \"{name}\"", child.name),
                format!("Key {key} is not present in table \"{}\".", parent.name),
            )
        } else {
            let (key, on) = (in_words(parent, &link.parents), format!("on table \"{}\"", child.name));
            (
                format!(
                    "update or delete on table \"{}\" violates foreign key constraint \"{name}\" {on}",
                    parent.name
                ),
                format!("Key {key} is still referenced from table \"{}\".", child.name),
            )
        };
        // As in PostgreSQL the table is the child's, whichever side has changed.
        SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail).about(&child.name, None, Some(name))
    }
}

/// Runs the checks that a transaction was to run before it commits.
pub(crate) fn run_deferred<T: Transaction>(
    checks: Vec<Check>,
    transaction: &mut T,
    (zone, now): (&Zone, Now<'_>),
) -> Result<(), Failure> {
    if checks.is_empty() || left_out(Step::RunDeferred) {
        return Ok(());
    }
    let arena = Bump::new();
    let (access, shared) = (RefCell::new(transaction), Shared::default());
    let mut exec = Exec::new(&access, &shared);
    let context = Context { now, exec: Some(exec), ..Context::of(&arena, zone) };
    let mut children = Children::default();
    checks.iter().try_for_each(|check| check.run(&mut children, &mut exec, &context))
}

impl<'p, 'a> Notes<'p, 'a> {
    pub(super) fn new(keys: &'p ForeignKeys) -> Self {
        Self { keys, notes: VecDeque::new(), children: Children::default() }
    }

    /// Whether the rows are a batch of a COPY.
    pub(super) fn is_copy(&self) -> bool {
        self.keys.is_copy
    }

    /// A row was inserted.
    pub(super) fn inserted(&mut self, table: &Table, row: Row<'_>) {
        let Some(keys) = self.keys.tables.get(&table.id) else { return };
        for link in &keys.parents {
            let (link, values) = (link.clone(), values_of(row, &link.columns));
            self.notes.push_back(Note::Check(Check { link, values, is_of_child: true }));
        }
    }

    /// A row was deleted.
    pub(super) fn deleted(&mut self, table: &Arc<Table>, row: Row<'a>, exec: &mut Exec<'_>) -> Result<(), Failure> {
        if self.keys.tables.get(&table.id).is_some_and(|keys| !keys.children.is_empty()) {
            exec.keep(row)?;
            self.notes.push_back(Note::Deleted(table.clone(), row));
        }
        Ok(())
    }

    /// A row was changed.
    pub(super) fn updated(
        &mut self,
        table: &Arc<Table>,
        (old, new): (Row<'a>, Row<'a>),
        exec: &mut Exec<'_>,
    ) -> Result<(), Failure> {
        let Some(keys) = self.keys.tables.get(&table.id) else { return Ok(()) };
        for link in &keys.parents {
            let values = values_of(new, &link.columns);
            if !are_equal(&values, &values_of(old, &link.columns)) {
                let link = link.clone();
                self.notes.push_back(Note::Check(Check { link, values, is_of_child: true }));
            }
        }
        if !keys.children.is_empty() {
            exec.keep(old)?;
            self.notes.push_back(Note::Updated(table.clone(), old, new));
        }
        Ok(())
    }

    /// Goes through the notes, and through what comes of them.
    pub(super) fn finish(mut self, exec: &mut Exec<'_>, context: &Context<'a>) -> Result<(), Failure> {
        let mut checks = Vec::new();
        while let Some(note) = self.notes.pop_front() {
            match note {
                Note::Check(check) => checks.push(check),
                Note::Deleted(table, row) => {
                    for link in self.links(&table) {
                        let old = values_of(row, &link.parents);
                        self.act(&link, link.key.on_delete, (old, None), &mut checks, exec, context)?;
                    }
                }
                Note::Updated(table, old, new) => {
                    for link in self.links(&table) {
                        let (old, new) = (values_of(old, &link.parents), values_of(new, &link.parents));
                        if !are_equal(&old, &new) {
                            self.act(&link, link.key.on_update, (old, Some(new)), &mut checks, exec, context)?;
                        }
                    }
                }
            }
        }
        for check in checks {
            match &self.keys.drawn {
                Some(drawn) if drawn.is_deferred(&check.link.key) => drawn.defer(check),
                Some(drawn) if self.keys.is_copy && check.link.parent.id == check.link.child.id => {
                    match check.run(&mut self.children, exec, context) {
                        Err(Failure::Sql(_)) => drawn.postpone(check)?,
                        ran => ran?,
                    }
                }
                _ => check.run(&mut self.children, exec, context)?,
            }
        }
        Ok(())
    }

    fn links(&self, table: &Table) -> Vec<Arc<Link>> {
        self.keys.tables.get(&table.id).map_or_else(Vec::new, |keys| keys.children.clone())
    }

    /// What becomes of the children of a row that has gone, or has another key.
    fn act(
        &mut self,
        link: &Arc<Link>,
        action: ForeignAction,
        (old, new): (Vec<OwnedDatum>, Option<Vec<OwnedDatum>>),
        checks: &mut Vec<Check>,
        exec: &mut Exec<'_>,
        context: &Context<'a>,
    ) -> Result<(), Failure> {
        if has_null(&old) {
            return Ok(());
        }
        let check = Check { link: link.clone(), values: old, is_of_child: false };
        if action == ForeignAction::NoAction {
            checks.push(check);
            return Ok(());
        }
        let children = self.children.of(link, (&check.values, false), exec, context)?;
        if action == ForeignAction::Restrict {
            return if children.is_empty() { Ok(()) } else { Err(check.error(false, context).into()) };
        }
        let arena = exec.take_arena();
        let values = {
            let inner = context.with_arena(&arena);
            let eval = |exprs: &[crate::expr::Expr], row: &[Datum<'_>]| -> Result<Vec<Datum<'a>>, SqlError> {
                exprs.iter().map(|expr| Ok(expr.eval(row, &inner)?.within(context.arena))).collect()
            };
            match (action, &new) {
                (ForeignAction::SetDefault, _) => eval(&link.defaults, &[])?,
                (ForeignAction::Cascade, Some(new)) => {
                    eval(&link.converted, &new.iter().map(OwnedDatum::get).collect::<Vec<_>>())?
                }
                _ => vec![Datum::Null; link.columns.len()],
            }
        };
        exec.give_arena(arena);
        for row in children {
            self.change_child(link, row, (action == ForeignAction::Cascade && new.is_none(), &values), exec, context)?;
        }
        // The default may be what has gone.
        if action == ForeignAction::SetDefault { check.run(&mut self.children, exec, context) } else { Ok(()) }
    }

    fn change_child(
        &mut self,
        link: &Link,
        row: Row<'a>,
        (goes, values): (bool, &[Datum<'a>]),
        exec: &mut Exec<'_>,
        context: &Context<'a>,
    ) -> Result<(), Failure> {
        let child = &link.child;
        if goes {
            let mut scratch = KeyScratch::new();
            if exec.access.delete(child.id, key_of(child, row, &mut scratch, context.arena)?)? {
                self.deleted(child, row, exec)?;
            }
            return Ok(());
        }
        let checks = self.keys.tables.get(&child.id).map_or(&[][..], |keys| &keys.checks);
        let target = Target { table: child, checks, returning: None };
        let new = change(&target, row, (&link.columns, values), exec, context)?;
        self.children.changed(child, new, exec, context)?;
        self.updated(child, (row, new), exec)
    }
}
