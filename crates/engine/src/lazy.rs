//! The parts that a layer with open futures shares with its host protocol: nodes in the order of their making, the
//! conditions that are cut out of them, and what the layer asks of the protocol. Offered, never required.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason, TableId, clear_each};
use polychron_schema::RowRef;

pub use crate::futures::Span;
use crate::futures::{Expression, Failure, FutureColumn, FutureError, Operand, Term, Texts, Value, each_term};
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

/// The kinds of futures.
#[derive(Clone, Copy, Debug)]
pub enum Node {
    /// A column's value.
    Column(Source),
    /// Made of earlier ones.
    Expression(Expression),
}

/// The values of nodes. One that is an expression and has no value although its turn has come has failed.
pub type Values = Vec<Option<Value<Span>>>;

/// Values of nodes with the text and the bytes among them: room to evaluate a condition in.
#[derive(Debug, Default)]
pub struct Scratch {
    values: Values,
    texts: Texts,
}

/// Nodes, each of which refers to earlier ones only, and the rows that they read.
#[derive(Debug, Default)]
pub struct Program {
    /// The nodes, earlier ones first.
    pub nodes: Vec<Node>,
    /// The rows.
    pub rows: Vec<RowPlace>,
    /// Keys, and rows that are inserted.
    bytes: Vec<u8>,
    /// Text and bytes that are values.
    pub texts: Texts,
}

impl Program {
    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        clear_each!(self.nodes, self.rows, self.bytes, self.texts);
    }

    /// Bytes that were kept.
    #[inline]
    pub fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
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
        Span::new(start, self.bytes.len())
    }

    /// Adds a row and answers its place.
    #[inline]
    pub fn push_row<K: EncodedKey>(&mut self, table: TableId, key: K) -> u32 {
        let start = self.bytes.len();
        self.bytes.resize(start + key.len(), 0);
        key.write_to(&mut self.bytes[start..]);
        self.rows.push(RowPlace { table, key: Span::new(start, self.bytes.len()) });
        self.rows.len() as u32 - 1
    }

    /// Adds a node and answers its place.
    #[inline]
    pub fn push(&mut self, node: Node) -> Term {
        self.nodes.push(node);
        Term::Pending(self.nodes.len() as u32 - 1)
    }

    /// The value of an expression; `None` where it has none, or what it is made of has none.
    #[inline]
    pub fn compute(expression: Expression, texts: &mut Texts, values: &[Option<Value<Span>>]) -> Option<Value<Span>> {
        expression.evaluate(texts, |position| values[position as usize].ok_or(FutureError::Foreign)).ok()
    }

    /// Gathers a node and what it depends on, as far as it has no value, from the `first` one on and earlier ones first. Takes as
    /// many steps as there are such nodes and operands of theirs.
    pub fn gather(&self, needed: &mut Needed, values: &[Option<Value<Span>>], first: usize, top: u32) {
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
                each_term(&mut expression, |term| {
                    if let Term::Pending(position) = term {
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
    pub fn failure(&self, values: &[Option<Value<Span>>], texts: &Texts, position: u32) -> FutureError {
        let (mut at, mut again) = (position, Texts::new());
        again.copy_from(texts);
        loop {
            let expression = match self.nodes[at as usize] {
                Node::Expression(expression) => expression,
                // Its turn has come, and its row was not there.
                Node::Column(source) => return FutureError::NoRow(self.rows[source.row as usize].table),
            };
            let mut missing = None;
            let outcome = expression.evaluate(&mut again, |position| {
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

    /// The value of a term, if it is known.
    ///
    /// # Errors
    /// [`FutureError::Foreign`].
    #[inline]
    pub fn value(&self, term: Term) -> Result<Option<Value<Span>>, FutureError> {
        match term {
            Term::Known(value) => Ok(Some(value)),
            Term::Pending(position) => self.values.get(position as usize).copied().ok_or(FutureError::Foreign),
        }
    }

    /// The term of an operand, which may be of this transaction.
    ///
    /// # Errors
    /// [`FutureError::Foreign`], [`FutureError::TooLong`].
    #[inline]
    pub fn term(&mut self, operand: &Operand) -> Result<Term, FutureError> {
        match operand {
            Operand::Known(value) => self.program.texts.keep_value(value).map(Term::Known),
            Operand::Pending(position) if (*position as usize) < self.values.len() => Ok(Term::Pending(*position)),
            Operand::Pending(_) => Err(FutureError::Foreign),
        }
    }

    /// A term as others have it.
    #[inline]
    pub fn operand(&self, term: Term) -> Operand {
        match term {
            Term::Known(value) => Operand::Known(self.program.texts.release(value)),
            Term::Pending(position) => Operand::Pending(position),
        }
    }

    /// Keeps the value of a column of a row.
    ///
    /// # Errors
    /// [`FutureError::Null`], [`FutureError::TooLong`].
    #[inline]
    pub fn load(
        &mut self,
        position: u32,
        column: FutureColumn,
        table: TableId,
        row: RowRef<'_>,
    ) -> Result<(), FutureError> {
        let value = column.load(table, row)?;
        self.values[position as usize] = Some(self.program.texts.keep_value(&value)?);
        Ok(())
    }

    /// Gives an expression its value, if it has one that follows from what is known.
    #[inline]
    pub fn compute(&mut self, position: usize) {
        let Self { program, values } = self;
        if let (Node::Expression(expression), None) = (program.nodes[position], values[position]) {
            values[position] = Program::compute(expression, &mut program.texts, values);
        }
    }

    /// Adds a column of a row.
    #[inline]
    pub fn column(&mut self, source: Source) -> Term {
        self.values.push(None);
        self.program.push(Node::Column(source))
    }

    /// Adds what is made of others. Where all of them are known, so is it.
    ///
    /// # Errors
    /// [`FutureError::Foreign`].
    #[inline]
    pub fn combine(&mut self, mut expression: Expression) -> Result<Term, FutureError> {
        let (mut open, mut foreign) = (false, false);
        each_term(&mut expression, |term| match self.value(*term) {
            Ok(Some(value)) => *term = Term::Known(value),
            Ok(None) => open = true,
            Err(_) => foreign = true,
        });
        if foreign {
            return Err(FutureError::Foreign);
        }
        // One that fails is kept: it may be on the side of a choice that is not taken.
        if !open && let Some(value) = Program::compute(expression, &mut self.program.texts, &[]) {
            return Ok(Term::Known(value));
        }
        self.values.push(None);
        Ok(self.program.push(Node::Expression(expression)))
    }

    /// Why a node has no value.
    #[cold]
    pub fn failure(&self, position: u32) -> FutureError {
        self.program.failure(&self.values, &self.program.texts, position)
    }
}

/// A condition by itself, that others can evaluate: what a condition lock holds.
#[derive(Debug, Default)]
pub struct Condition {
    program: Program,
    /// The value itself, if it does not depend on a row.
    root: Option<Term>,
    /// The truth value that the procedure observed.
    pub truth: bool,
    /// For each node of the arena that it depends on, the position of its copy.
    positions: Vec<u32>,
    /// The positions of its rows in the arena.
    origins: Vec<u32>,
}

impl Condition {
    /// Cuts out of an arena what `root` depends on, which was gathered. Nodes that have a value are replaced by it.
    pub fn cut(&mut self, arena: &Nodes, root: Term, needed: &Needed) {
        self.program.clear();
        self.origins.clear();
        self.root = Some(root);
        if matches!(root, Term::Known(_)) {
            return;
        }
        let Nodes { program, values } = arena;
        if self.positions.len() < values.len() {
            self.positions.resize(values.len(), 0);
        }
        for position in needed.positions.iter().map(|&position| position as usize) {
            let moved = match program.nodes[position] {
                Node::Column(source) => {
                    let row = self.moved_row(program, source.row);
                    self.program.push(Node::Column(Source { row, ..source }))
                }
                Node::Expression(mut expression) => {
                    each_term(&mut expression, |term| *term = self.moved(*term, arena));
                    self.program.push(Node::Expression(expression))
                }
            };
            if let Term::Pending(new) = moved {
                self.positions[position] = new;
            }
        }
        self.root = Some(self.moved(root, arena));
    }

    fn moved_row(&mut self, arena: &Program, row: u32) -> u32 {
        if let Some(known) = self.origins.iter().position(|&origin| origin == row) {
            return known as u32;
        }
        let (table, key) = arena.row(row);
        self.origins.push(row);
        self.program.push_row(table, key)
    }

    fn moved(&mut self, term: Term, arena: &Nodes) -> Term {
        let value = match term {
            Term::Known(value) => value,
            Term::Pending(position) => match arena.values[position as usize] {
                Some(value) => value,
                None => return Term::Pending(self.positions[position as usize]),
            },
        };
        // What does not fit here is a failure, and the condition is looked at in the arena.
        let kept = self.program.texts.keep_value(&arena.program.texts.value(value));
        match kept {
            Ok(value) => Term::Known(value),
            Err(_) => self.program.push(Node::Expression(Expression::Failed(Failure::Foreign))),
        }
    }

    /// Makes this one a copy of another.
    pub fn copy_from(&mut self, other: &Self) {
        self.program.nodes.clone_from(&other.program.nodes);
        self.program.rows.clone_from(&other.program.rows);
        self.program.bytes.clone_from(&other.program.bytes);
        self.program.texts.copy_from(&other.program.texts);
        (self.root, self.truth) = (other.root, other.truth);
    }

    /// The rows that it depends on.
    pub fn rows(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        (0..self.program.rows.len() as u32).map(|row| self.program.row(row))
    }

    /// Whether it is true of the rows that `read` tells. `scratch` is room for values.
    ///
    /// # Errors
    /// A [`FutureError`] where it has no value, or what `read` answers.
    pub fn evaluate(
        &self,
        scratch: &mut Scratch,
        mut read: impl FnMut(TableId, &[u8], FutureColumn, &mut Texts) -> Result<Value<Span>, Error>,
    ) -> Result<bool, Error> {
        let Scratch { values, texts } = scratch;
        values.clear();
        texts.copy_from(&self.program.texts);
        for node in &self.program.nodes {
            let value = match *node {
                Node::Column(Source { row, column, .. }) => {
                    let (table, key) = self.program.row(row);
                    Some(read(table, key, column, texts)?)
                }
                Node::Expression(expression) => Program::compute(expression, texts, values),
            };
            values.push(value);
        }
        match self.root {
            Some(Term::Known(value)) => Ok(value.is_true()),
            Some(Term::Pending(position)) => match values[position as usize] {
                Some(value) => Ok(value.is_true()),
                None => Err(self.program.failure(values, texts, position).into()),
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
    scratch: &mut Scratch,
) -> Result<bool, Error> {
    let mut look = |protected: bool| {
        condition.evaluate(scratch, |table, key, column, texts| {
            let projection = Projection::of(&[column.span]);
            let row = if protected {
                transaction.read_row(table, key, &projection)?
            } else {
                transaction.read_row_unvalidated(table, key, &projection)?
            };
            let row = row.ok_or(FutureError::NoRow(table))?;
            Ok(texts.keep_value(&column.load(table, row)?)?)
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
        scratch: &mut Scratch,
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
