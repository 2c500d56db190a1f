//! What a transaction keeps of its futures: the arena, the values that are known already, the future write set and the condition
//! set. All of it is memory that is used again, and no node is allocated by itself.

use polychron_base::TableId;
use polychron_base::key::EncodedKey;
use polychron_engine::futures::{Expression, FutureColumn, FutureError, Operand, Scalar};
use polychron_engine::lazy::{Condition, Node, Program, Span, each_operand};
use polychron_engine::mutations::left_out;

use super::steps::Step;

/// A column that will be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct FutureWrite {
    pub(super) table: TableId,
    pub(super) key: Span,
    pub(super) column: FutureColumn,
    pub(super) value: Operand,
}

/// A condition, and what the procedure was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) condition: Operand,
    pub(super) truth: bool,
}

/// A row that will be touched at the commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    pub(super) table: TableId,
    pub(super) key: Span,
    pub(super) written: bool,
}

/// The futures of a worker's running transaction.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pub(super) program: Program,
    pub(super) values: Vec<Option<Scalar>>,
    /// The first node without a value.
    pub(super) open_from: usize,
    pub(super) writes: Vec<FutureWrite>,
    /// Writes before the latest savepoint that failed: they are not forgotten with it.
    pub(super) owed: usize,
    pub(super) told: Vec<Told>,
    /// The rows to be touched, while that is found out.
    pub(super) touched: Vec<Touched>,
    /// The condition that is being tested.
    pub(super) condition: Condition,
    /// Room for its values.
    pub(super) scratch: Vec<Scalar>,
    /// Whether nodes are wanted, while one is resolved.
    pub(super) wanted: Vec<bool>,
}

fn same_key<K: EncodedKey>(kept: &[u8], key: K) -> bool {
    kept.len() == key.len()
        && kept.chunks(8).enumerate().all(|(index, chunk)| key.slice(index).to_be_bytes()[..chunk.len()] == *chunk)
}

impl Arena {
    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.program.clear();
        self.values.clear();
        self.open_from = 0;
        self.writes.clear();
        self.owed = 0;
        self.told.clear();
    }

    /// Whether nothing is to be done at the commit.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.open_from == self.values.len() && self.writes.is_empty() && self.told.is_empty()
    }

    /// The value of an operand, if it is known.
    #[inline]
    pub(super) fn value(&self, operand: Operand) -> Result<Option<Scalar>, FutureError> {
        match operand {
            Operand::Known(value) => Ok(Some(value)),
            Operand::Pending(place) => self.values.get(place as usize).copied().ok_or(FutureError::Foreign),
        }
    }

    /// A future for a column: what this transaction will write there, or what it has asked for before.
    #[inline]
    pub(super) fn column<K: EncodedKey>(&mut self, table: TableId, key: K, column: FutureColumn) -> Operand {
        let own =
            self.writes.iter().rev().find(|write| {
                write.table == table && write.column == column && same_key(self.program.key(write.key), key)
            });
        if let Some(write) = own
            && !left_out(Step::ReadOwnFutures)
        {
            return write.value;
        }
        for place in self.open_from..self.values.len() {
            if let (Node::Column(source), None) = (&self.program.nodes[place], self.values[place])
                && source.table == table
                && source.column == column
                && same_key(self.program.key_of(source), key)
            {
                return Operand::Pending(place as u32);
            }
        }
        let key = self.program.keep_key(key);
        self.values.push(None);
        self.program.push_column(table, key, column)
    }

    /// A future that is made of others. Where all of them are known, so is it.
    pub(super) fn combine(&mut self, mut expression: Expression) -> Result<Operand, FutureError> {
        let mut open = false;
        let mut foreign = None;
        each_operand(&mut expression, |operand| match self.value(*operand) {
            Ok(Some(value)) => *operand = Operand::Known(value),
            Ok(None) => open = true,
            Err(error) => foreign = Some(error),
        });
        if let Some(error) = foreign {
            return Err(error);
        }
        if !open {
            return expression.evaluate(|_| Err(FutureError::Foreign)).map(Operand::Known);
        }
        self.values.push(None);
        Ok(self.program.push(Node::Expression(expression)))
    }

    /// Adds to the future write set.
    pub(super) fn write<K: EncodedKey>(&mut self, table: TableId, key: K, column: FutureColumn, value: Operand) {
        let key = self.program.keep_key(key);
        self.writes.push(FutureWrite { table, key, column, value });
    }

    /// Whether the row will be written.
    #[inline]
    pub(super) fn writes_row<K: EncodedKey>(&self, table: TableId, key: K) -> bool {
        self.writes.iter().any(|write| write.table == table && same_key(self.program.key(write.key), key))
    }

    /// Whether a row of the table will be written.
    #[inline]
    pub(super) fn writes_table(&self, table: TableId) -> bool {
        self.writes.iter().any(|write| write.table == table)
    }

    /// Whether a column of the row is still to be read.
    #[inline]
    pub(super) fn reads_row<K: EncodedKey>(&self, table: TableId, key: K) -> bool {
        self.program.nodes[self.open_from..].iter().zip(&self.values[self.open_from..]).any(|(node, value)| {
            matches!(node, Node::Column(source)
                if value.is_none() && source.table == table && same_key(self.program.key_of(source), key))
        })
    }

    /// Finds out which rows the commit will touch, each once, in one order.
    pub(super) fn gather_touched(&mut self) {
        let Self { program, values, writes, touched, open_from, .. } = self;
        touched.clear();
        touched.extend(writes.iter().map(|write| Touched { table: write.table, key: write.key, written: true }));
        for (node, value) in program.nodes[*open_from..].iter().zip(&values[*open_from..]) {
            if let (Node::Column(source), None) = (node, value) {
                touched.push(Touched { table: source.table, key: source.span(), written: false });
            }
        }
        let order = |touched: &Touched| (touched.table.position(), program.key(touched.key), !touched.written);
        touched.sort_unstable_by(|left, right| order(left).cmp(&order(right)));
        touched.dedup_by(|later, earlier| {
            later.table == earlier.table && program.key(later.key) == program.key(earlier.key)
        });
    }
}
