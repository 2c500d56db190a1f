//! What is open across savepoints: writes that are open when a savepoint is set stay open, and are open again after a return to it, also if
//! they were flushed since.
//!
//! While there are savepoints, the list of writes keeps those that were flushed, and a write that takes the place of one from before the
//! latest savepoint stands behind it in the list and not in its place.

use polychron_base::Error;
use polychron_engine::Transaction;
use polychron_engine::futures::{FutureError, bounding_range};
use polychron_engine::lazy::{LazyHost, Node};
use polychron_engine::mutations::left_out;

use super::arena::{Arena, NONE};
use super::flush::read_row;
use super::steps::Step;
use super::transaction::LazyTransaction;

/// How long the lists of writes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) writes: usize,
    pub(super) deferred: usize,
}

/// What was open when a savepoint was set: what stands between two places of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The position of the base.
    base: usize,
    from: Lengths,
    to: Lengths,
    nodes: usize,
    overwritten: usize,
}

impl Arena {
    fn lengths(&self) -> Lengths {
        Lengths { writes: self.writes.len(), deferred: self.deferred.len() }
    }

    /// Whether nothing is going to be written.
    #[inline]
    pub(super) fn writes_nothing(&self) -> bool {
        self.lengths() == self.pending
    }

    /// The first write that no savepoint brings back.
    #[inline]
    pub(super) fn first_unmarked(&self) -> usize {
        self.marks.last().map_or(0, |mark| mark.to.writes)
    }

    /// A place to come back to, by its number.
    fn mark(&mut self, base: usize) -> usize {
        let (from, to) = (self.pending, self.lengths());
        let mark = Mark { base, from, to, nodes: self.nodes.values.len(), overwritten: self.overwritten.len() };
        if self.marks.last() != Some(&mark) {
            self.marks.push(mark);
        }
        self.marks.len() - 1
    }

    /// All that is open is flushed.
    pub(super) fn all_is_flushed(&mut self) {
        self.pending = self.lengths();
    }

    /// What has been going to be written since a mark is forgotten, and what was open there is open again.
    fn return_to(&mut self, position: usize) {
        let mark = self.marks[position];
        self.marks.truncate(position + 1);
        // What was made since is resolved, and told.
        self.marks[position].nodes = self.nodes.values.len();
        if left_out(Step::ForgetUndone) {
            return;
        }
        let is_as_it_was = self.pending == mark.from && !self.failure_is_reported;
        self.failure_is_reported = false;
        if is_as_it_was {
            (mark.to.writes..self.writes.len()).rev().for_each(|at| self.unlink(at));
            self.overwritten.truncate(mark.overwritten);
        } else {
            self.reopen(mark);
        }
        self.writes.truncate(mark.to.writes);
        self.deferred.truncate(mark.to.deferred);
    }

    /// Takes the write out of those of its row, and puts back the one whose place it had.
    fn unlink(&mut self, at: usize) {
        let write = self.writes[at];
        let instead = if write.shadows == NONE { write.before } else { write.shadows };
        if let Some(shadowed) = self.writes.get_mut(write.shadows as usize) {
            shadowed.before = write.before;
        }
        self.exchange_link(write.row, at as u32, instead);
    }

    /// Opens again what was open at a mark and has been flushed, or could not be.
    fn reopen(&mut self, mark: Mark) {
        for at in mark.from.writes..self.writes.len() {
            self.rows[self.writes[at].row as usize].write = NONE;
        }
        self.overwritten.clear();
        self.forget_tables();
        self.shorten_list();
        if left_out(Step::ReopenFlushed) {
            self.pending = mark.to;
            return;
        }
        self.pending = mark.from;
        self.flushes_at_marks |= mark.from != mark.to;
        for at in mark.from.writes..mark.to.writes {
            self.link_again(at);
        }
        for at in mark.from.deferred..mark.to.deferred {
            self.note_deferred(self.deferred[at].table);
        }
    }
}

impl<B: LazyHost> LazyTransaction<'_, B> {
    /// Nothing is flushed for a savepoint, but where that has failed already; and where a return to one before had to be followed by another
    /// flush, so that writes are not flushed time and again.
    pub(super) fn set_mark(&mut self) -> Result<usize, Error> {
        if self.expressions.is_none() {
            return self.base.mark();
        }
        let flushes = self.arena.failure_is_reported || self.arena.flushes_at_marks;
        if flushes && !self.arena.writes_nothing() {
            self.with_nodes(Self::flush)?;
        }
        let base = self.base.mark()?;
        Ok(self.with_nodes(|this| this.arena.mark(base)))
    }

    /// Undoes what was written since a mark, and forgets what was going to be.
    pub(super) fn undo_to_mark(&mut self, position: usize) -> Result<(), Error> {
        if self.expressions.is_none() {
            return self.base.undo_unchecked(position);
        }
        let mark = self.arena.marks[position];
        let unreported = self.with_nodes(|this| this.close_undone(&mark))?;
        self.base.undo_unchecked(mark.base)?;
        self.with_nodes(|this| this.arena.return_to(position));
        if let Some(error) = unreported {
            self.base.savepoints().report_on_return(error);
        }
        Ok(())
    }

    /// Resolves what was made since a mark, so that what fails of it is found. Futures keep the values that they have then. Answers a failure of
    /// which the transaction was not told.
    ///
    /// # Errors
    /// What keeps it from being undone.
    fn close_undone(&mut self, mark: &Mark) -> Result<Option<Error>, Error> {
        let mut unreported = None;
        if !self.arena.failure_is_reported && !left_out(Step::ResolveUndone) {
            // Whether an insertion is a duplicate shows when it is done.
            let inserts = self.arena.deferred.len() > mark.to.deferred.max(self.arena.pending.deferred);
            match if inserts { self.flush() } else { self.resolve_since(mark) } {
                Ok(()) => {}
                Err(Error::Conflict) => return Err(Error::Conflict),
                Err(error) => unreported = Some(error),
            }
        }
        for position in mark.nodes..self.arena.nodes.values.len() {
            match self.read_column(position) {
                Ok(()) | Err(Error::NoValue(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(unreported)
    }

    /// All that was made since a mark has a value, and what it was going to be written to takes it.
    fn resolve_since(&mut self, mark: &Mark) -> Result<(), Error> {
        for position in mark.nodes..self.arena.nodes.values.len() {
            self.read_column(position)?;
        }
        for at in mark.overwritten..self.arena.overwritten.len() {
            let write = self.arena.overwritten[at];
            self.resolve_node(write.value)?;
            self.arena.written(&write)?;
        }
        for at in mark.to.writes.max(self.arena.pending.writes)..self.arena.writes.len() {
            let write = self.arena.writes[at];
            self.resolve_node(write.value)?;
            self.arena.written(&write)?;
            self.arena.count_passed();
            let (table, key) = self.arena.nodes.program.row(write.row);
            let found = self.base.read_row(table, key, &bounding_range([write.column]))?;
            found.ok_or(FutureError::NoRow(table))?;
        }
        Ok(())
    }

    /// Reads a node that is a column, and was not read.
    fn read_column(&mut self, position: usize) -> Result<(), Error> {
        self.arena.count_passed();
        match self.arena.nodes.program.nodes[position] {
            Node::Column(source)
                if self.arena.open_columns_of(source.row).any(|(open, _)| open as usize == position) =>
            {
                let read = read_row::<B>(&mut self.base, self.arena, source.row);
                if let Err(Error::NoValue(_)) = read {
                    self.arena.read(source.row);
                }
                read
            }
            _ => Ok(()),
        }
    }
}
