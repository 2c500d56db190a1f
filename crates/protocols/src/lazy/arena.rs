//! What a transaction keeps of its futures: the arena, the values that are known already, the future write set and the condition set. All of
//! it is memory that is used again, and no node is allocated by itself. The nodes lie on the transaction's expression arena, where operators
//! find them, and are here while they are looked at.
//!
//! Nodes and writes of one row hang together, so that a row is looked up once however many of its columns are wanted.

use std::ops::Range;

use hashbrown::HashTable;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId, clear_each};
use polychron_engine::futures::{
    Assigned, Expression, Function, FutureColumn, FutureError, KeyPart, NewRow, OpenKey, Span, Term, Value,
};
use polychron_engine::lazy::{Condition, Needed, Node, Nodes, Scratch, Source};
use polychron_engine::mutations::left_out;
use polychron_schema::{KeyScratch, RowBuffer, Shape};

use super::savepoints::{Lengths, Mark};
use super::steps::Step;

/// No node, or no write.
pub(super) const NONE: u32 = u32::MAX;

/// Rows that are compared one after the other before a table finds them.
const FEW: usize = 16;

/// A row of the program, and what is open of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRow {
    /// Made of its table and key.
    print: u64,
    /// The latest of its columns that were not read when it was asked for.
    column: u32,
    /// The latest of its writes.
    pub(super) write: u32,
    /// Whether it is in the list of those of which something may be open.
    is_listed: bool,
}

/// A column that will be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct FutureWrite {
    pub(super) row: u32,
    pub(super) column: FutureColumn,
    pub(super) value: Term,
    /// The row's write before.
    pub(super) before: u32,
    /// The write whose place it has among those of its row, and that a savepoint may bring back.
    pub(super) shadows: u32,
}

/// A row that will be inserted, or written under a key that is not known.
#[derive(Clone, Debug)]
pub(super) struct DeferredWrite {
    pub(super) table: TableId,
    pub(super) key: Span,
    pub(super) parts: Range<usize>,
    pub(super) columns: Range<usize>,
    /// The row that is inserted.
    pub(super) row: Option<(Span, Shape)>,
}

/// A condition, and what the procedure was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) condition: Term,
    pub(super) truth: bool,
}

/// The futures of a worker's running transaction.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// The nodes of the transaction, while they are not on its expression arena.
    pub(super) nodes: Box<Nodes>,
    /// What is open of each row of the program.
    pub(super) rows: Vec<OpenRow>,
    /// Finds rows by their prints, once there are more than a few.
    by_print: HashTable<u32>,
    /// The rows of which something may be open. Any thread that closes what is open goes along it and shortens it, so that each row is
    /// passed once for each time that it was opened.
    pub(super) open: Vec<u32>,
    /// The first node whose turn has not come.
    pub(super) open_from: usize,
    pub(super) writes: Vec<FutureWrite>,
    /// The first of `writes` and of `deferred` that are not flushed.
    pub(super) pending: Lengths,
    /// The places that savepoints have.
    pub(super) marks: Vec<Mark>,
    /// Whether what is open is flushed before a savepoint is set.
    pub(super) flushes_at_marks: bool,
    pub(super) deferred: Vec<DeferredWrite>,
    /// Values that were going to be written, and were overwritten: they may fail, and their writer does not know that.
    pub(super) overwritten: Vec<FutureWrite>,
    /// Whether an answer of the transaction, or of the one before, did not hold: the next one assumes nothing.
    pub(super) was_mistaken: bool,
    /// Whether the transaction was told that something could not be flushed which is open still.
    pub(super) failure_is_reported: bool,
    /// The tables of `writes`, and of `deferred`, each once.
    written_tables: Vec<TableId>,
    deferred_tables: Vec<TableId>,
    pub(super) parts: Vec<KeyPart<Term>>,
    pub(super) columns: Vec<(FutureColumn, Term)>,
    pub(super) observed: Vec<Observed>,
    /// The rows to be touched, while that is found out.
    pub(super) touched: Vec<u32>,
    /// The condition that is being tested.
    pub(super) condition: Condition,
    /// Room for its values.
    pub(super) scratch: Scratch,
    /// What a node depends on, while it is resolved or observed.
    pub(super) needed: Needed,
    /// A key and a row that are being put together.
    pub(super) key: KeyScratch,
    pub(super) row: RowBuffer,
    /// Rows, writes and nodes that were passed.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<usize>,
}

fn note(tables: &mut Vec<TableId>, table: TableId) {
    if !tables.contains(&table) {
        tables.push(table);
    }
}

fn same_key<K: EncodedKey>(kept: &[u8], key: K) -> bool {
    kept.len() == key.len()
        && kept.chunks(8).enumerate().all(|(index, chunk)| key.slice(index).to_be_bytes()[..chunk.len()] == *chunk)
}

#[inline]
fn print_of<K: EncodedKey>(table: TableId, key: K) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = (table.position() as u64 + 1).wrapping_mul(FACTOR);
    (0..key.len().div_ceil(8))
        .fold(start, |print, slice| (print.rotate_left(5) ^ key.slice(slice)).wrapping_mul(FACTOR))
}

impl Arena {
    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        clear_each!(self.rows, self.open, self.observed, self.marks);
        if !self.by_print.is_empty() {
            self.by_print.clear();
            self.by_print.shrink_to(1 << 12, |_| unreachable!("the table is empty"));
        }
        self.open_from = 0;
        (self.failure_is_reported, self.flushes_at_marks) = (false, false);
        self.forget_writes();
    }

    #[inline]
    fn forget_writes(&mut self) {
        clear_each!(self.writes, self.deferred, self.overwritten, self.parts, self.columns);
        self.pending = Lengths::default();
        self.forget_tables();
    }

    #[inline]
    pub(super) fn forget_tables(&mut self) {
        clear_each!(self.written_tables, self.deferred_tables);
    }

    /// Whether nothing was left open.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deferred.is_empty() && self.observed.is_empty()
    }

    /// The value of an operand whose turn has come.
    #[inline]
    pub(super) fn resolved(&self, term: Term) -> Result<Value<Span>, FutureError> {
        match (self.nodes.value(term)?, term) {
            (Some(value), _) | (None, Term::Known(value)) => Ok(value),
            (None, Term::Pending(position)) => Err(self.nodes.failure(position)),
        }
    }

    /// The value that a write has come to, which its column takes.
    #[inline]
    pub(super) fn written(&self, write: &FutureWrite) -> Result<Value<&[u8]>, FutureError> {
        self.fitting(self.nodes.program.row(write.row).0, write.column, write.value)
    }

    /// The value of a term whose turn has come, and that a column takes.
    #[inline]
    pub(super) fn fitting(
        &self,
        table: TableId,
        column: FutureColumn,
        term: Term,
    ) -> Result<Value<&[u8]>, FutureError> {
        let value = self.nodes.program.texts.value(self.resolved(term)?);
        column.check(table, &value)?;
        Ok(value)
    }

    #[inline]
    pub(super) fn count_steps(&self, _steps: usize) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + _steps);
    }

    /// Something was passed.
    #[inline]
    pub(super) fn count_passed(&self) {
        self.count_steps(1);
    }

    #[inline]
    fn find<K: EncodedKey>(&self, print: u64, table: TableId, key: K) -> Option<u32> {
        self.find_print(print, |position| {
            let (its_table, kept) = self.nodes.program.row(position);
            its_table == table && same_key(kept, key)
        })
    }

    /// A row with this print of which something is true.
    #[inline]
    fn find_print(&self, print: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let is_it = |position: u32| {
            self.count_steps(1);
            self.rows[position as usize].print == print && is_it(position)
        };
        if self.rows.len() > FEW {
            return self.by_print.find(print, |&position| is_it(position)).copied();
        }
        (0..self.rows.len() as u32).find(|&position| is_it(position))
    }

    /// The row's place; it gets one.
    #[inline]
    pub(super) fn row<K: EncodedKey>(&mut self, table: TableId, key: K) -> u32 {
        let print = print_of(table, key);
        if let Some(known) = self.find(print, table, key) {
            return known;
        }
        self.rows.push(OpenRow { print, column: NONE, write: NONE, is_listed: false });
        if self.rows.len() > FEW {
            self.enter_prints();
        }
        self.nodes.program.push_row(table, key)
    }

    /// Enters the rows that the table does not know yet.
    #[cold]
    fn enter_prints(&mut self) {
        let rows = &self.rows;
        for position in self.by_print.len()..rows.len() {
            self.by_print
                .insert_unique(rows[position].print, position as u32, |&position| rows[position as usize].print);
        }
    }

    /// Something of the row is open from now on.
    #[inline]
    fn list(&mut self, row: u32) {
        if !std::mem::replace(&mut self.rows[row as usize].is_listed, true) {
            self.open.push(row);
        }
    }

    /// Takes rows off the list of which nothing is still open.
    pub(super) fn shorten_list(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        self.count_steps(open.len());
        open.retain(|&row| {
            let is_open = self.is_open(row);
            self.rows[row as usize].is_listed = is_open;
            is_open
        });
        self.open = open;
    }

    /// Whether the row will be written, or a column of it is still to be read.
    fn is_open(&self, row: u32) -> bool {
        self.rows[row as usize].write != NONE || self.open_columns_of(row).next().is_some()
    }

    /// All columns that were open of a row have been read.
    #[inline]
    pub(super) fn read(&mut self, row: u32) {
        self.rows[row as usize].column = NONE;
    }

    /// The row's writes.
    pub(super) fn writes_of(&self, row: u32) -> impl Iterator<Item = &FutureWrite> + Clone {
        let mut at = self.rows[row as usize].write;
        std::iter::from_fn(move || {
            let write = self.writes.get(at as usize)?;
            at = write.before;
            Some(write)
        })
    }

    /// The row's columns that are still to be read.
    pub(super) fn open_columns_of(&self, row: u32) -> impl Iterator<Item = (u32, FutureColumn)> {
        let mut at = self.rows[row as usize].column;
        let all = std::iter::from_fn(move || match self.nodes.program.nodes.get(at as usize) {
            Some(Node::Column(source)) => {
                self.count_steps(1);
                Some((std::mem::replace(&mut at, source.before), source.column))
            }
            _ => None,
        });
        all.filter(|&(position, _)| self.nodes.values[position as usize].is_none())
    }

    /// The nodes from the first open column of a row that is going to be written to the last of what will be written; none where they
    /// are many, so that it would not pay to go through them for one row.
    pub(super) fn nodes_around(&self, row: u32) -> Option<Range<usize>> {
        const MANY: usize = 32;
        let first = self.open_columns_of(row).map(|(position, _)| position).min()? as usize;
        let values = self.writes_of(row).map(|write| match write.value {
            Term::Pending(position) => position as usize,
            Term::Known(_) => first,
        });
        let last = values.max()?;
        (last < first + MANY).then(|| first..(last + 1).max(first))
    }

    /// Gives expressions their values, where they have one that follows from what is known.
    #[inline]
    pub(super) fn compute(&mut self, positions: Range<usize>) {
        positions.for_each(|position| self.nodes.compute(position));
    }

    /// A future for a column: what this transaction will write there, or what it has asked for before.
    #[inline]
    pub(super) fn column(&mut self, row: u32, column: FutureColumn) -> Term {
        let own = self.writes_of(row).find(|write| write.column.span == column.span);
        if let Some((value, nullable)) = own.map(|own| (own.value, own.column.nullable))
            && !left_out(Step::ReadOwnFutures)
        {
            return if nullable && !column.nullable { self.not_null(value) } else { value };
        }
        if let Some((position, _)) = self.open_columns_of(row).find(|(_, its)| *its == column) {
            return Term::Pending(position);
        }
        let before = self.rows[row as usize].column;
        let made = self.nodes.column(Source { row, column, before });
        if let Term::Pending(position) = made {
            self.rows[row as usize].column = position;
            self.list(row);
        }
        made
    }

    /// What NULL is no value of.
    #[cold]
    fn not_null(&mut self, value: Term) -> Term {
        self.nodes.combine(Expression::Apply { function: Function::NotNull, value }).unwrap_or(value)
    }

    /// Adds to the future write set.
    #[inline]
    pub(super) fn write(&mut self, row: u32, column: FutureColumn, value: Term) {
        let write = FutureWrite { row, column, value, before: NONE, shadows: NONE };
        match self.write_of(row, column) {
            None => self.link(write),
            Some(at) if at as usize >= self.first_unmarked() => {
                let known = &mut self.writes[at as usize];
                let before = std::mem::replace(known, FutureWrite { column, value, ..*known });
                self.note_overwritten(before);
            }
            Some(at) => {
                self.note_overwritten(self.writes[at as usize]);
                self.writes.push(FutureWrite { shadows: at, ..write });
                self.shadow(self.writes.len() - 1, at);
            }
        }
    }

    /// The row's write of a column.
    #[inline]
    fn write_of(&self, row: u32, column: FutureColumn) -> Option<u32> {
        let mut at = self.rows[row as usize].write;
        while let Some(write) = self.writes.get(at as usize) {
            if write.column.span == column.span {
                return Some(at);
            }
            at = write.before;
        }
        None
    }

    /// Gives a write the place of another one of its row and column.
    fn shadow(&mut self, at: usize, shadowed: u32) {
        let row = self.writes[at].row;
        self.writes[at].before = self.writes[shadowed as usize].before;
        self.exchange_link(row, shadowed, at as u32);
    }

    /// Puts a write in the place of another one of the row.
    pub(super) fn exchange_link(&mut self, row: u32, old: u32, new: u32) {
        let (mut before, mut at) = (NONE, self.rows[row as usize].write);
        while at != old {
            self.count_steps(1);
            let Some(write) = self.writes.get(at as usize) else { return };
            (before, at) = (at, write.before);
        }
        match self.writes.get_mut(before as usize) {
            Some(write) => write.before = new,
            None => self.rows[row as usize].write = new,
        }
    }

    /// Links a write again that was one of its row.
    pub(super) fn link_again(&mut self, at: usize) {
        let FutureWrite { row, column, .. } = self.writes[at];
        self.count_steps(1);
        note(&mut self.written_tables, self.nodes.program.row(row).0);
        self.list(row);
        match self.write_of(row, column) {
            Some(shadowed) => self.shadow(at, shadowed),
            None => self.writes[at].before = std::mem::replace(&mut self.rows[row as usize].write, at as u32),
        }
    }

    pub(super) fn note_deferred(&mut self, table: TableId) {
        note(&mut self.deferred_tables, table);
    }

    /// Every column is read, used or not, and a number fits wherever it may be written, so only expressions are kept, and what may be too
    /// long.
    #[inline]
    fn note_overwritten(&mut self, write: FutureWrite) {
        if let Term::Pending(position) = write.value
            && (write.column.may_be_too_long()
                || matches!(self.nodes.program.nodes[position as usize], Node::Expression(_)))
        {
            self.overwritten.push(write);
        }
    }

    fn link(&mut self, write: FutureWrite) {
        note(&mut self.written_tables, self.nodes.program.row(write.row).0);
        self.list(write.row);
        let state = &mut self.rows[write.row as usize];
        let before = std::mem::replace(&mut state.write, self.writes.len() as u32);
        self.writes.push(FutureWrite { before, ..write });
    }

    /// Adds an insertion, or a write under a key that is open, to the future write set.
    ///
    /// # Errors
    /// An operand is not the transaction's.
    pub(super) fn defer_write(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: Option<NewRow<'_>>,
        columns: &Assigned,
    ) -> Result<(), Error> {
        let (parts, assigned) = (self.parts.len(), self.columns.len());
        let bytes = key.bytes()?;
        for part in key.parts() {
            self.parts.push(KeyPart { value: self.nodes.term(&part.value)?, offset: part.offset, form: part.form });
        }
        for (column, value) in columns {
            self.columns.push((*column, self.nodes.term(value)?));
        }
        let deferred = DeferredWrite {
            table,
            key: self.nodes.program.keep(bytes),
            parts: parts..self.parts.len(),
            columns: assigned..self.columns.len(),
            row: row.map(|new| (self.nodes.program.keep(new.row.as_bytes()), new.shape)),
        };
        self.deferred.push(deferred);
        note(&mut self.deferred_tables, table);
        Ok(())
    }

    /// Whether something may be open of the row. Asks for no nodes.
    #[inline]
    pub(super) fn may_touch<K: EncodedKey>(&self, table: TableId, key: K) -> bool {
        if self.is_empty() {
            return false;
        }
        self.find_print(print_of(table, key), |_| true).is_some() || self.has_deferred_in(table)
    }

    /// Whether the row will be written.
    #[inline]
    pub(super) fn writes_row<K: EncodedKey>(&self, table: TableId, key: K) -> bool {
        let found = self.find(print_of(table, key), table, key);
        found.is_some_and(|row| self.rows[row as usize].write != NONE) || self.has_deferred_in(table)
    }

    /// Whether a row of the table will be written under a key that is not known.
    #[inline]
    pub(super) fn has_deferred_in(&self, table: TableId) -> bool {
        self.deferred_tables.contains(&table)
    }

    /// Whether a row of the table will be written.
    #[inline]
    pub(super) fn writes_table(&self, table: TableId) -> bool {
        self.written_tables.contains(&table) || self.has_deferred_in(table)
    }

    /// Whether a column of the row is still to be read.
    #[inline]
    pub(super) fn reads_row<K: EncodedKey>(&self, table: TableId, key: K) -> bool {
        let found = self.find(print_of(table, key), table, key);
        found.is_some_and(|row| self.open_columns_of(row).next().is_some())
    }

    /// Finds out which rows the commit will touch, each once, in one order.
    pub(super) fn gather_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.clear();
        touched.extend(self.open.iter().copied().filter(|&row| self.is_open(row)));
        touched.sort_unstable_by(|left, right| {
            let order = |row: &u32| (self.nodes.program.row(*row).0.position(), self.nodes.program.row(*row).1);
            order(left).cmp(&order(right))
        });
        self.touched = touched;
    }

    /// What was going to be written could not be, from the `first` unplaced one on; rows that were written no longer have writes.
    #[cold]
    pub(super) fn keep_unwritten(&mut self, first: usize) {
        if !self.marks.is_empty() {
            self.pending.deferred = first;
            return;
        }
        self.deferred.drain(..first);
        let mut writes = std::mem::take(&mut self.writes);
        writes.retain(|write| self.rows[write.row as usize].write != NONE);
        self.relink(writes);
    }

    /// All of what was going to be written was. It is kept where a savepoint may bring it back.
    pub(super) fn leave_nothing_open(&mut self) {
        self.failure_is_reported = false;
        self.forget_links();
        if self.marks.is_empty() {
            self.forget_writes();
        } else {
            self.all_is_flushed();
            self.overwritten.clear();
            self.forget_tables();
        }
        self.shorten_list();
    }

    fn relink(&mut self, writes: Vec<FutureWrite>) {
        self.forget_links();
        self.written_tables.clear();
        writes.into_iter().for_each(|write| self.link(write));
        self.deferred_tables.clear();
        self.deferred.iter().for_each(|deferred| note(&mut self.deferred_tables, deferred.table));
        self.shorten_list();
    }

    fn forget_links(&mut self) {
        self.open.iter().for_each(|&row| self.rows[row as usize].write = NONE);
    }
}
