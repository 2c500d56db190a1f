//! Settling what is open: rows are claimed, columns read, expressions evaluated, conditions compared, columns written; in this
//! order, which is that of Algorithms 1 and 2.

use polychron_base::{Reason, Stop, TableId};
use polychron_engine::Transaction;
use polychron_engine::futures::{FutureColumn, FutureError, Operand, Scalar};
use polychron_engine::lazy::{Beneath, Inner, Node, each_operand};
use polychron_engine::mutations::left_out;
use polychron_schema::Projection;

use super::arena::{Arena, FutureWrite};
use super::steps::Step;
use super::transaction::LazyTransaction;

/// Reads a column under the protection of the protocol beneath.
fn read_column<B: Beneath>(
    inner: &mut Inner<'_, B>,
    table: TableId,
    key: &[u8],
    column: FutureColumn,
) -> Result<Scalar, Stop> {
    let projection = Projection::of(&[column.span]);
    let row = inner.read_row(table, key, &projection)?.ok_or(FutureError::NoRow(table))?;
    Ok(column.load(row).ok_or(FutureError::Null(table))?)
}

/// The value of a node; those before it that it depends on have theirs.
fn value_of<B: Beneath>(inner: &mut Inner<'_, B>, arena: &Arena, place: usize) -> Result<Scalar, Stop> {
    match arena.program.nodes[place] {
        Node::Column(source) => read_column::<B>(inner, source.table, arena.program.key_of(&source), source.column),
        Node::Expression(expression) => {
            Ok(expression.evaluate(|place| arena.values[place as usize].ok_or(FutureError::Foreign))?)
        }
    }
}

impl<B: Beneath> LazyTransaction<'_, B> {
    /// What the commit does before that of the protocol beneath.
    #[inline]
    pub(super) fn finish(&mut self) -> Result<(), Stop> {
        if self.arena.is_settled() {
            return Ok(());
        }
        self.arena.gather_touched();
        for touched in &self.arena.touched {
            B::claim(&mut self.inner, touched.table, self.arena.program.key(touched.key), touched.written)?;
        }
        self.settle()
    }

    /// Resolves all that is open, and writes what is to be written. Nothing is claimed: in the middle of a transaction it takes its
    /// chance like one that never left anything open.
    pub(super) fn settle(&mut self) -> Result<(), Stop> {
        self.read_all(true)?;
        for at in 0..self.arena.writes.len() {
            let written = self.write(self.arena.writes[at]);
            if written.is_err() {
                self.arena.writes.drain(..at);
                return written;
            }
        }
        self.arena.writes.clear();
        Ok(())
    }

    fn write(&mut self, write: FutureWrite) -> Result<(), Stop> {
        let value = self.arena.value(write.value)?.ok_or(FutureError::Foreign)?;
        let key = self.arena.program.key(write.key);
        let projection = Projection::of(&[write.column.span]);
        let found = self.inner.update_row(write.table, key, &projection, |row| write.column.store(row, value))?;
        if found { Ok(()) } else { Err(FutureError::NoRow(write.table).into()) }
    }

    /// Gives every node its value. With `compare` the conditions are looked at again, after which they are not needed.
    pub(super) fn read_all(&mut self, compare: bool) -> Result<(), Stop> {
        let arena = &mut *self.arena;
        for place in arena.open_from..arena.values.len() {
            if arena.values[place].is_none() {
                arena.values[place] = Some(value_of::<B>(&mut self.inner, arena, place)?);
            }
            arena.open_from = place + 1;
        }
        while compare && let Some(told) = self.arena.told.pop() {
            let truth = self.arena.value(told.condition)?.is_some_and(|value| value != 0);
            if truth != told.truth && !left_out(Step::CheckConditions) {
                let table = self.table_of(told.condition);
                return Err(B::conflict(&mut self.inner, Reason::Condition, table));
            }
        }
        Ok(())
    }

    /// Gives a node its value, and those that it depends on theirs.
    pub(super) fn resolve(&mut self, future: Operand) -> Result<(), Stop> {
        let Operand::Pending(top) = future else { return Ok(()) };
        let arena = &mut *self.arena;
        let top = top as usize;
        arena.wanted.clear();
        arena.wanted.resize(top + 1, false);
        arena.wanted[top] = true;
        for place in (arena.open_from..=top).rev() {
            if !arena.wanted[place] || arena.values[place].is_some() {
                continue;
            }
            if let Node::Expression(mut expression) = arena.program.nodes[place] {
                each_operand(&mut expression, |operand| {
                    if let Operand::Pending(place) = operand {
                        arena.wanted[*place as usize] = true;
                    }
                });
            }
        }
        for place in arena.open_from..=top {
            if arena.wanted[place] && arena.values[place].is_none() {
                arena.values[place] = Some(value_of::<B>(&mut self.inner, arena, place)?);
            }
        }
        Ok(())
    }

    /// Asks the protocol beneath whether a condition is true.
    pub(super) fn observe(&mut self, condition: Operand) -> Result<bool, Stop> {
        let arena = &mut *self.arena;
        arena.condition.cut(&arena.program, &arena.values, condition);
        B::observe(&mut self.inner, &arena.condition, &mut arena.scratch)
    }

    /// A table that a condition depends on, to tell where the conflict was.
    #[cold]
    fn table_of(&self, condition: Operand) -> TableId {
        let nodes = &self.arena.program.nodes;
        let mut at = condition;
        while let Operand::Pending(place) = at {
            match nodes[place as usize] {
                Node::Column(source) => return source.table,
                Node::Expression(mut expression) => {
                    at = Operand::Known(0);
                    each_operand(&mut expression, |operand| {
                        if matches!(operand, Operand::Pending(_)) {
                            at = *operand;
                        }
                    });
                }
            }
        }
        TableId::default()
    }
}
