//! Temporary tables: objects of a schema that belongs to one session, and goes with it.
//!
//! Their definitions are in the catalog alone, not in the database, and their tables of the engine stay provisional, so that a recovery drops them. No other
//! session sees them: names of such a schema are looked for nowhere but in the catalog, and a session knows the name of its own one alone.

use polychron_engine::Protocol;
use serde::{Deserialize, Serialize};

use crate::catalog::{Changes, Object};
use crate::connection::Connection;
use crate::error::{SqlError, SqlState};
use crate::names::Name;
use crate::plan::{Node, Plan, Scan};

/// What becomes of a temporary table when a transaction commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OnCommit {
    #[default]
    Keep,
    DeleteRows,
    Drop,
}

impl<P: Protocol> Connection<P> {
    /// A plan is about to run, which messages call so, or as it calls itself. Sequences are told whether they may give numbers.
    ///
    /// # Errors
    /// It changes something in a read-only transaction. That may change rows of temporary tables, unless it would have to leave its snapshot and cannot.
    pub(crate) fn check_may_run(&mut self, plan: &Plan, called: Option<&'static str>) -> Result<(), SqlError> {
        if matches!(plan, Plan::Lock) && !self.is_in_block() {
            let message = "LOCK TABLE can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message));
        }
        let is_read_only = self.session.is_read_only();
        self.session.drawn().set_read_only(is_read_only);
        let verb = match () {
            () if !is_read_only => None,
            () if self.session.is_bound_to_snapshot() => plan.changes(),
            () => plan.changes_kept(),
        };
        verb.map_or(Ok(()), |verb| self.check_writable(called.unwrap_or(verb)))
    }

    /// The session's temporary objects.
    fn temporary_objects(&self) -> Vec<(Name, Object)> {
        self.database.catalog().in_schema(&self.path.temporary)
    }

    /// A transaction has defined temporary objects, and committed.
    pub(crate) fn note_temporary(&mut self, changes: &Changes) {
        if changes.keys().any(Name::is_temporary) {
            let acts =
                |(_, object): &(Name, Object)| object.table().is_some_and(|table| table.on_commit != OnCommit::Keep);
            self.acts_on_commit = self.temporary_objects().iter().any(acts);
        }
    }

    /// Does what ON COMMIT says of the session's temporary tables. What fails here is done after the next transaction.
    pub(crate) fn act_on_commit(&mut self) {
        if !self.acts_on_commit {
            return;
        }
        let (mut emptied, mut dropped) = (Vec::new(), Vec::new());
        for (name, object) in self.temporary_objects() {
            match object.table().map(|table| (table, table.on_commit)) {
                Some((table, OnCommit::DeleteRows)) => {
                    emptied.push((table.clone(), Node::Scan(Scan::whole(table))));
                }
                Some((_, OnCommit::Drop)) => dropped.push(name),
                _ => {}
            }
        }
        if !emptied.is_empty() {
            let _ = self.session.run_all(&[(&Plan::Truncate(emptied), &[])], None, &self.zone, &mut |_| {});
        }
        self.drop_temporary(&|name, object| match object {
            Object::Sequence(of) => of.definition.owner.as_ref().is_some_and(|(table, _)| dropped.contains(table)),
            _ => dropped.contains(name),
        });
    }

    /// Drops the session's temporary objects of which this holds.
    pub(crate) fn drop_temporary(&mut self, goes: &dyn Fn(&Name, &Object) -> bool) {
        let all = self.temporary_objects();
        let gone: Vec<_> = all.into_iter().filter(|(name, object)| goes(name, object)).collect();
        if !gone.is_empty() {
            self.database.drop_temporary(gone);
        }
    }
}
