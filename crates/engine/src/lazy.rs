//! The parts that a layer with open futures shares with its host protocol: nodes in the order of their making, the
//! conditions that are cut out of them, and what the layer asks of the protocol. Offered, never required.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason, TableId, clear_each};

use crate::futures::{Expression, FutureColumn, FutureError, Operand, Scalar, each_operand};
use crate::{Configuration, Interactive, Projection, Protocol, Transaction};

/// A column that is read late.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its row's place among the rows.
    pub row: u32,
    /// The column.
    pub column: FutureColumn,
    /// The row's column before it, counted in the order in which they are added.
    pub before: u32,
}

/// A row of which columns are read, or written.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    /// Its table.
    pub table: TableId,
    key: Span,
}

/// The position of a run of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    start: u32,
    length: u32,
}

/// The kinds of futures.
#[derive(Clone, Copy, Debug)]
pub enum Node {
    /// A column's value.
    Column(Source),
    /// Made of earlier ones.
    Expression(Expression),
}

/// The values of nodes. One that is an expression and has no value although its turn has come has failed.
pub type Values = Vec<Option<Scalar>>;

/// Nodes, each of which refers to earlier ones only, and the rows that they read.
#[derive(Debug, Default)]
pub struct Program {
    /// The nodes, earlier ones first.
    pub nodes: Vec<Node>,
    /// The rows.
    pub rows: Vec<RowPlace>,
    bytes: Vec<u8>,
}

impl Program {
    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        clear_each!(self.nodes, self.rows, self.bytes);
    }

    /// Bytes that were kept.
    #[inline]
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.length as usize]
    }

    /// A row's table and key.
    #[inline]
    pub fn row(&self, row: u32) -> (TableId, &[u8]) {
        let RowPlace { table, key } = self.rows[row as usize];
        (table, self.bytes(key))
    }

    /// Keeps bytes.
    #[inline]
    pub fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Span { start: start as u32, length: bytes.len() as u32 }
    }

    /// Adds a row and answers its place.
    #[inline]
    pub fn push_row<K: EncodedKey>(&mut self, table: TableId, key: K) -> u32 {
        let start = self.bytes.len();
        self.bytes.resize(start + key.len(), 0);
        key.write_to(&mut self.bytes[start..]);
        self.rows.push(RowPlace { table, key: Span { start: start as u32, length: key.len() as u32 } });
        self.rows.len() as u32 - 1
    }

    /// Adds a node and answers its place.
    #[inline]
    pub fn push(&mut self, node: Node) -> Operand {
        self.nodes.push(node);
        Operand::Pending(self.nodes.len() as u32 - 1)
    }

    /// The value of an expression; `None` where it has none, or what it is made of has none.
    #[inline]
    pub fn compute(expression: Expression, values: &[Option<Scalar>]) -> Option<Scalar> {
        expression.evaluate(|position| values[position as usize].ok_or(FutureError::Foreign)).ok()
    }

    /// Gathers a node and what it depends on, as far as it has no value, from the `first` one on and earlier ones first. Takes as
    /// many steps as there are such nodes and operands of theirs.
    pub fn gather(&self, needed: &mut Needed, values: &[Option<Scalar>], first: usize, top: u32) {
        let Needed { positions, marks } = needed;
        positions.clear();
        if marks.len() < self.nodes.len() {
            marks.resize(self.nodes.len(), false);
        }
        let mut add = |positions: &mut Vec<u32>, position: u32| {
            let at = position as usize;
            if at >= first && values[at].is_none() && !std::mem::replace(&mut marks[at], true) {
                positions.push(position);
            }
        };
        add(positions, top);
        let mut looked_at = 0;
        while let Some(&position) = positions.get(looked_at) {
            looked_at += 1;
            if let Node::Expression(mut expression) = self.nodes[position as usize] {
                each_operand(&mut expression, |operand| {
                    if let Operand::Pending(position) = operand {
                        add(positions, *position);
                    }
                });
            }
        }
        positions.sort_unstable();
        positions.iter().for_each(|&position| marks[position as usize] = false);
    }

    /// Why an expression has no value: the first computation on the way to it that fails.
    #[cold]
    pub fn failure(&self, values: &[Option<Scalar>], position: u32) -> FutureError {
        let mut at = position;
        loop {
            let expression = match self.nodes[at as usize] {
                Node::Expression(expression) => expression,
                // Its turn has come, and its row was not there.
                Node::Column(source) => return FutureError::NoRow(self.rows[source.row as usize].table),
            };
            let mut missing = None;
            let outcome = expression.evaluate(|position| {
                values[position as usize].ok_or_else(|| {
                    missing = Some(position);
                    FutureError::Foreign
                })
            });
            match (outcome, missing) {
                (_, Some(position)) => at = position,
                (Err(error), None) => return error,
                (Ok(_), None) => return FutureError::Foreign,
            }
        }
    }
}

/// The nodes that a node depends on, and memory for finding them.
#[derive(Debug, Default)]
pub struct Needed {
    /// The nodes, earlier ones first.
    pub positions: Vec<u32>,
    /// Whether a node is among them; none between two calls.
    marks: Vec<bool>,
}

/// A program with what its nodes have come to so far: what a transaction that leaves futures open has on its bench.
#[derive(Debug, Default)]
pub struct Nodes {
    /// The nodes.
    pub program: Program,
    /// Their values.
    pub values: Values,
}

impl Nodes {
    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.program.clear();
        self.values.clear();
    }

    /// The value of an operand, if it is known.
    ///
    /// # Errors
    /// [`FutureError::Foreign`].
    #[inline]
    pub fn value(&self, operand: Operand) -> Result<Option<Scalar>, FutureError> {
        match operand {
            Operand::Known(value) => Ok(Some(value)),
            Operand::Pending(position) => self.values.get(position as usize).copied().ok_or(FutureError::Foreign),
        }
    }

    /// Adds a column of a row.
    #[inline]
    pub fn column(&mut self, source: Source) -> Operand {
        self.values.push(None);
        self.program.push(Node::Column(source))
    }

    /// Adds what is made of others. Where all of them are known, so is it.
    ///
    /// # Errors
    /// [`FutureError::Foreign`].
    #[inline]
    pub fn combine(&mut self, mut expression: Expression) -> Result<Operand, FutureError> {
        let (mut open, mut foreign) = (false, false);
        each_operand(&mut expression, |operand| match self.value(*operand) {
            Ok(Some(value)) => *operand = Operand::Known(value),
            Ok(None) => open = true,
            Err(_) => foreign = true,
        });
        if foreign {
            return Err(FutureError::Foreign);
        }
        // One that fails is kept: it may be on the side of a choice that is not taken.
        if !open && let Some(value) = Program::compute(expression, &[]) {
            return Ok(Operand::Known(value));
        }
        self.values.push(None);
        Ok(self.program.push(Node::Expression(expression)))
    }

    /// Why a node has no value.
    #[cold]
    pub fn failure(&self, position: u32) -> FutureError {
        self.program.failure(&self.values, position)
    }
}

/// A condition by itself, that others can evaluate: what a condition lock holds.
#[derive(Debug, Default)]
pub struct Condition {
    program: Program,
    /// The value itself, if it does not depend on a row.
    root: Option<Operand>,
    /// The truth value that the procedure observed.
    pub truth: bool,
    /// For each node of the arena that it depends on, the position of its copy.
    positions: Vec<u32>,
    /// The positions of its rows in the arena.
    origins: Vec<u32>,
}

impl Condition {
    /// Cuts out of an arena what `root` depends on, which was gathered. Nodes that have a value are replaced by it.
    pub fn cut(&mut self, arena: &Program, values: &[Option<Scalar>], root: Operand, needed: &Needed) {
        self.program.clear();
        self.origins.clear();
        self.root = Some(root);
        if matches!(root, Operand::Known(_)) {
            return;
        }
        if self.positions.len() < values.len() {
            self.positions.resize(values.len(), 0);
        }
        for position in needed.positions.iter().map(|&position| position as usize) {
            let moved = match arena.nodes[position] {
                Node::Column(source) => {
                    let row = self.moved_row(arena, source.row);
                    self.program.push(Node::Column(Source { row, ..source }))
                }
                Node::Expression(mut expression) => {
                    each_operand(&mut expression, |operand| *operand = self.moved(*operand, values));
                    self.program.push(Node::Expression(expression))
                }
            };
            if let Operand::Pending(new) = moved {
                self.positions[position] = new;
            }
        }
        self.root = Some(self.moved(root, values));
    }

    fn moved_row(&mut self, arena: &Program, row: u32) -> u32 {
        if let Some(known) = self.origins.iter().position(|&origin| origin == row) {
            return known as u32;
        }
        let (table, key) = arena.row(row);
        self.origins.push(row);
        self.program.push_row(table, key)
    }

    fn moved(&self, operand: Operand, values: &[Option<Scalar>]) -> Operand {
        match operand {
            Operand::Known(_) => operand,
            Operand::Pending(position) => match values[position as usize] {
                Some(value) => Operand::Known(value),
                None => Operand::Pending(self.positions[position as usize]),
            },
        }
    }

    /// Makes this one a copy of another.
    pub fn copy_from(&mut self, other: &Self) {
        self.program.nodes.clone_from(&other.program.nodes);
        self.program.rows.clone_from(&other.program.rows);
        self.program.bytes.clone_from(&other.program.bytes);
        (self.root, self.truth) = (other.root, other.truth);
    }

    /// The rows that it depends on.
    pub fn rows(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        (0..self.program.rows.len() as u32).map(|row| self.program.row(row))
    }

    /// Whether it is true when `read` tells the columns' values. `values` is room for them.
    ///
    /// # Errors
    /// A [`FutureError`] where it has no value, or what `read` answers.
    pub fn evaluate(
        &self,
        values: &mut Values,
        mut read: impl FnMut(TableId, &[u8], FutureColumn) -> Result<Scalar, Error>,
    ) -> Result<bool, Error> {
        values.clear();
        for node in &self.program.nodes {
            let value = match *node {
                Node::Column(Source { row, column, .. }) => {
                    let (table, key) = self.program.row(row);
                    Some(read(table, key, column)?)
                }
                Node::Expression(expression) => Program::compute(expression, values),
            };
            values.push(value);
        }
        match self.root {
            Some(Operand::Known(value)) => Ok(value != 0),
            Some(Operand::Pending(position)) => match values[position as usize] {
                Some(value) => Ok(value != 0),
                None => Err(self.program.failure(values, position).into()),
            },
            None => Err(FutureError::Foreign.into()),
        }
    }
}

/// A running transaction of a protocol.
pub type BaseTransaction<'w, B> = <<B as Protocol>::Worker as Interactive>::Transaction<'w>;

/// A protocol's name on the command line, and its line in lists.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as `Protocol` has them")]
pub struct Names {
    pub name: &'static str,
    pub summary: &'static str,
}

/// Looks at a condition without protecting what is read, for a layer that looks again at the commit. What has no value ends the
/// transaction, so that must come from reads that are protected.
///
/// # Errors
/// As [`LazyHost::observe`].
fn look_unprotected<T: Transaction>(
    transaction: &mut T,
    condition: &Condition,
    scratch: &mut Values,
) -> Result<bool, Error> {
    let mut look = |protected: bool| {
        condition.evaluate(scratch, |table, key, column| {
            let projection = Projection::of(&[column.span]);
            let row = if protected {
                transaction.read_row(table, key, &projection)?
            } else {
                transaction.read_row_unvalidated(table, key, &projection)?
            };
            let row = row.ok_or(FutureError::NoRow(table))?;
            Ok(column.load(row).ok_or(FutureError::Null(table))?)
        })
    };
    look(false).or_else(|_| look(true))
}

/// A row that is going to be read at the commit, or written.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'k> {
    /// Its table.
    pub table: TableId,
    /// Its key.
    pub key: &'k [u8],
    /// Whether it is going to be written.
    pub is_written: bool,
}

/// A protocol that can host such a layer. What a transaction of it has read stays, or the transaction conflicts; that is all that is
/// relied on.
pub trait LazyHost: Protocol<Worker: Interactive> {
    /// The layer's name and line in lists.
    const DEFERRED: Names;

    /// The same of a layer that resolves futures at once, if it stands in lists.
    const EAGER: &'static [Configuration] = &[];

    /// Whether [`LazyHost::observe`] makes a condition stay what it is told to be. Where it does not, the layer looks at it again at
    /// the commit.
    const HOLDS_CONDITIONS: bool = false;

    /// Sets what the layer needs of the options.
    fn prepare(_options: &mut Self::Options) {}

    /// Tells whether a condition is true now. `scratch` is room for values. A protocol without condition locks reads without protection.
    ///
    /// # Errors
    /// A conflict, or a [`FutureError`] where it has no value; what was read then stays.
    fn observe(
        transaction: &mut BaseTransaction<'_, Self>,
        condition: &Condition,
        scratch: &mut Values,
    ) -> Result<bool, Error> {
        look_unprotected(transaction, condition, scratch)
    }

    /// At the commit, before a row is looked at: keeps others from writing it until the end, where it can and must.
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    fn claim(_transaction: &mut BaseTransaction<'_, Self>, _claim: &Claim<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// At the commit, when everything is claimed and nothing was read.
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    fn resolving(_transaction: &mut BaseTransaction<'_, Self>) -> Result<(), Error> {
        Ok(())
    }

    /// The transaction conflicts, for a reason of the layer's.
    fn conflict(transaction: &mut BaseTransaction<'_, Self>, reason: Reason, table: TableId) -> Error;
}
