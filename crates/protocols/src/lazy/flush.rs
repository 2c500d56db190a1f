//! Flushing what is open: rows are claimed, columns read, expressions evaluated, conditions compared, columns written; in this
//! order, which is that of Algorithms 1 and 2. Insertions and writes under keys that were futures come last.
use polychron_base::{Error, Reason, TableId};
use polychron_engine::futures::{FutureError, Term, bounding_range, close, store_all};
use polychron_engine::lazy::{BaseTransaction, LazyHost, Needed, Node, Source};
use polychron_engine::mutations::left_out;
use polychron_engine::{Insertion, Transaction};
use polychron_schema::{Changes, KeyScratch, KeySink, RowBuffer, RowMut};

use super::arena::{Arena, NONE, Observed};
use super::steps::Step;
use super::transaction::LazyTransaction;

/// Reads what is open of a row under the protection of the host protocol.
pub(super) fn read_row<B: LazyHost>(
    base: &mut BaseTransaction<'_, B>,
    arena: &mut Arena,
    row: u32,
) -> Result<(), Error> {
    let projection = bounding_range(arena.open_columns_of(row).map(|(_, column)| column));
    let (table, key) = arena.nodes.program.row(row);
    let found = base.read_row(table, key, &projection)?.ok_or(FutureError::NoRow(table))?;
    while let Some((position, column)) = { arena.open_columns_of(row).next() } {
        arena.nodes.load(position, column, table, found)?;
    }
    arena.read(row);
    Ok(())
}

/// Reads what is open of a row and writes what is to be written in one operation, where that follows from the row alone: what most
/// futures come to. Where it does not, the row is only read.
fn change_row<B: LazyHost>(base: &mut BaseTransaction<'_, B>, arena: &mut Arena, row: u32) -> Result<(), Error> {
    let Some(nodes) = arena.nodes_around(row) else { return Ok(()) };
    let columns = arena.open_columns_of(row).map(|(_, column)| column);
    let projection = bounding_range(columns.chain(arena.writes_of(row).map(|write| write.column)));
    let (mut loaded, mut written) = (Ok(()), false);
    // The key is put aside, since the closure changes what lies beside it.
    let mut kept = std::mem::take(&mut arena.key);
    let (table, key) = arena.nodes.program.row(row);
    kept.clear();
    kept.bytes(key);
    let found = base.update_unchecked(table, kept.as_bytes(), &projection, |into| {
        while let Some((position, column)) = { arena.open_columns_of(row).next() } {
            loaded = arena.nodes.load(position, column, table, into.as_row());
            if loaded.is_err() {
                return;
            }
        }
        arena.compute(nodes);
        // What has no value, or does not fit, is told when its turn comes.
        written = arena.writes_of(row).all(|write| arena.written(write).is_ok()) && store(arena, row, into).is_ok();
    })?;
    arena.key = kept;
    if !found {
        return Err(FutureError::NoRow(table).into());
    }
    loaded?;
    arena.read(row);
    if written {
        arena.rows[row as usize].write = NONE;
    }
    Ok(())
}

/// Stores what is to be written of a row, all of which has a value and fits.
#[inline]
fn store(arena: &Arena, row: u32, into: &mut RowMut<'_>) -> Result<(), FutureError> {
    let values = arena.writes_of(row).map(|write| {
        let value = arena.resolved(write.value).expect("it was looked at before");
        (write.column, arena.nodes.program.texts.value(value))
    });
    store_all(arena.nodes.program.row(row).0, into, values)
}

/// Writes what is to be written of a row.
fn write_row<B: LazyHost>(base: &mut BaseTransaction<'_, B>, arena: &mut Arena, row: u32) -> Result<(), Error> {
    for write in arena.writes_of(row) {
        arena.written(write)?;
    }
    let projection = bounding_range(arena.writes_of(row).map(|write| write.column));
    let (table, key) = arena.nodes.program.row(row);
    let mut stored = Ok(());
    let found = base.update_unchecked(table, key, &projection, |into| stored = store(arena, row, into))?;
    if !found {
        return Err(FutureError::NoRow(table).into());
    }
    stored?;
    arena.rows[row as usize].write = NONE;
    Ok(())
}

/// Inserts or writes a row whose key is known now.
fn write_deferred<B: LazyHost>(base: &mut BaseTransaction<'_, B>, arena: &mut Arena, at: usize) -> Result<(), Error> {
    let (mut key, mut filled) = (std::mem::take(&mut arena.key), std::mem::take(&mut arena.row));
    let outcome = write_under::<B>(base, arena, at, &mut key, &mut filled);
    (arena.key, arena.row) = (key, filled);
    outcome
}

fn write_under<B: LazyHost>(
    base: &mut BaseTransaction<'_, B>,
    arena: &Arena,
    at: usize,
    key: &mut KeyScratch,
    filled: &mut RowBuffer,
) -> Result<(), Error> {
    let deferred = &arena.deferred[at];
    let table = deferred.table;
    let (program, parts) = (&arena.nodes.program, &arena.parts[deferred.parts.clone()]);
    close(key, program.bytes(deferred.key), parts, |key, part| {
        part.form.append(key, program.texts.value(arena.resolved(part.value)?));
        Ok(())
    })?;
    let columns = &arena.columns[deferred.columns.clone()];
    for &(column, value) in columns {
        arena.fitting(table, column, value)?;
    }
    let values = columns.iter().map(|&(column, value)| {
        let value = arena.resolved(value).expect("it was looked at before");
        (column, program.texts.value(value))
    });
    match deferred.row {
        Some((row, shape)) => {
            filled.copy_from(program.bytes(row));
            store_all(table, &mut RowMut::new(filled, &mut Changes::default(), shape), values)?;
            match base.insert_unchecked(table, key.as_bytes(), filled.as_row())? {
                Insertion::Inserted => Ok(()),
                Insertion::Duplicate(index) => Err(base.constraints(table)?.duplicate(table, index, filled.as_row())),
            }
        }
        None => {
            let projection = bounding_range(columns.iter().map(|(column, _)| *column));
            let mut stored = Ok(());
            let store = |into: &mut RowMut<'_>| stored = store_all(table, into, values);
            let found = base.update_unchecked(table, key.as_bytes(), &projection, store)?;
            stored?;
            if found { Ok(()) } else { Err(FutureError::NoRow(table).into()) }
        }
    }
}

impl<B: LazyHost> LazyTransaction<'_, B> {
    /// Does something with the nodes, which lie on the expression arena otherwise.
    #[inline]
    pub(super) fn with_nodes<O>(&mut self, work: impl FnOnce(&mut Self) -> O) -> O {
        let Some(expressions) = &self.expressions else { return work(self) };
        expressions.exchange(&mut self.arena.nodes);
        let done = work(self);
        if let Some(expressions) = &self.expressions {
            expressions.exchange(&mut self.arena.nodes);
        }
        done
    }

    /// Resolves all that is open, and writes what is to be written. Nothing is claimed: in the middle of a transaction it takes its
    /// chance like one that never left anything open.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let mut written = self.arena.pending.deferred;
        // Rows are changed, read and written.
        self.arena.count_steps(3 * self.arena.open.len());
        let changed = (0..self.arena.open.len()).try_for_each(|at| {
            let row = self.arena.open[at];
            change_row::<B>(&mut self.base, self.arena, row)
        });
        let read = changed.and_then(|()| self.read_all()).and_then(|()| self.check_overwritten());
        let outcome = read.and_then(|()| self.write_all(&mut written));
        match &outcome {
            Ok(()) => self.arena.leave_nothing_open(),
            Err(_) => {
                self.arena.keep_unwritten(written);
                self.arena.failure_is_reported = true;
                // If a savepoint could not be set for the same reason, that is told now.
                self.base.savepoints().failure_reported();
            }
        }
        outcome
    }

    /// What was going to be written before it was overwritten has a value.
    fn check_overwritten(&self) -> Result<(), Error> {
        let writes = if left_out(Step::ComputeOverwritten) { &[] } else { &self.arena.overwritten[..] };
        self.arena.count_steps(writes.len());
        writes.iter().try_for_each(|write| self.arena.written(write).map(drop)).map_err(Error::from)
    }

    fn write_all(&mut self, written: &mut usize) -> Result<(), Error> {
        for at in 0..self.arena.open.len() {
            let row = self.arena.open[at];
            if self.arena.rows[row as usize].write != NONE {
                write_row::<B>(&mut self.base, self.arena, row)?;
            }
        }
        for at in self.arena.pending.deferred..self.arena.deferred.len() {
            *written = at;
            write_deferred::<B>(&mut self.base, self.arena, at)?;
        }
        Ok(())
    }

    /// Gives every node its value, where it has one, and looks at the conditions again, after which they are not needed.
    fn read_all(&mut self) -> Result<(), Error> {
        let arena = &mut *self.arena;
        if arena.open_from < arena.nodes.values.len() {
            for at in 0..arena.open.len() {
                let row = arena.open[at];
                if arena.open_columns_of(row).next().is_some() {
                    read_row::<B>(&mut self.base, arena, row)?;
                }
            }
            arena.compute(arena.open_from..arena.nodes.values.len());
            arena.open_from = arena.nodes.values.len();
        }
        while let Some(&observed) = self.arena.observed.last() {
            // One that has no value stays: any thread that catches the failure must not commit.
            let truth = self.arena.resolved(observed.condition)?.is_true();
            if truth != observed.truth && !left_out(Step::CheckConditions) {
                self.arena.was_mistaken = true;
                let table = self.table_of(observed.condition);
                return Err(B::conflict(&mut self.base, Reason::Condition, table));
            }
            self.arena.observed.pop();
        }
        Ok(())
    }

    /// Whether all answers still hold that a transaction was given which fails or gives up. A condition that no longer has a value does not
    /// hold: the transaction begins again, assumes nothing then, and fails there if it must. What is read is protected.
    pub(super) fn stands(&mut self) -> bool {
        for observed in 0..if left_out(Step::CheckBeforeFailing) { 0 } else { self.arena.observed.len() } {
            let Observed { condition, truth } = self.arena.observed[observed];
            let answer = self.resolve_node(condition).and_then(|()| Ok(self.arena.resolved(condition)?));
            if answer.map_or(true, |value| value.is_true() != truth) {
                self.arena.was_mistaken = true;
                return false;
            }
        }
        true
    }

    /// Gives a node its value, and those that it depends on theirs.
    pub(super) fn resolve_node(&mut self, future: Term) -> Result<(), Error> {
        let Term::Pending(top) = future else { return Ok(()) };
        let arena = &mut *self.arena;
        let mut needed = std::mem::take(&mut arena.needed);
        arena.nodes.program.gather(&mut needed, &arena.nodes.values, arena.open_from, top);
        let outcome = self.evaluate(&needed);
        self.arena.needed = needed;
        outcome
    }

    /// Gives nodes their values, of which all that they depend on are among them or have theirs.
    fn evaluate(&mut self, needed: &Needed) -> Result<(), Error> {
        let arena = &mut *self.arena;
        arena.count_steps(needed.positions.len());
        for position in needed.positions.iter().map(|&position| position as usize) {
            // A row gives all its columns their values at once.
            if arena.nodes.values[position].is_some() {
                continue;
            }
            match arena.nodes.program.nodes[position] {
                Node::Column(Source { row, .. }) => read_row::<B>(&mut self.base, arena, row)?,
                Node::Expression(_) => arena.nodes.compute(position),
            }
        }
        Ok(())
    }

    /// Asks the host protocol whether a condition is true. `None`: it depends on so much that it is better resolved.
    pub(super) fn observe(&mut self, condition: Term) -> Result<Option<bool>, Error> {
        const MANY: usize = 64;
        let arena = &mut *self.arena;
        let nodes = &*arena.nodes;
        if let Term::Pending(top) = condition {
            // Those whose turn has come and that have no value are cut out, too: they fail.
            nodes.program.gather(&mut arena.needed, &nodes.values, 0, top);
            if arena.needed.positions.len() > MANY {
                return Ok(None);
            }
        }
        arena.condition.cut(nodes, condition, &arena.needed);
        B::observe(&mut self.base, &arena.condition, &mut arena.scratch).map(Some)
    }

    /// A table that a condition depends on, to tell where the conflict was.
    #[cold]
    fn table_of(&self, condition: Term) -> TableId {
        let Term::Pending(top) = condition else { return TableId::default() };
        let (program, mut needed) = (&self.arena.nodes.program, Needed::default());
        program.gather(&mut needed, &vec![None; program.nodes.len()], 0, top);
        let row = needed.positions.iter().find_map(|&position| match program.nodes[position as usize] {
            Node::Column(source) => Some(source.row),
            Node::Expression(_) => None,
        });
        row.map_or(TableId::default(), |row| self.arena.nodes.program.row(row).0)
    }
}
