//! What a layer that leaves futures open and the protocol beneath it have in common: nodes in the order of their making, the
//! conditions that are cut out of them, and what the layer asks of the protocol. Offered, never required.

use polychron_base::key::EncodedKey;
use polychron_base::{Reason, Stop, TableId};

use crate::futures::{Expression, FutureColumn, FutureError, Operand, Scalar};
use crate::{Interactive, Protocol};

/// A column of a row that is read late.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The row's table.
    pub table: TableId,
    key: Span,
    /// The column.
    pub column: FutureColumn,
}

/// Where a key lies among the keys.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: u32,
    length: u32,
}

impl Source {
    /// Where the row's key lies.
    #[inline]
    pub fn span(&self) -> Span {
        self.key
    }
}

/// What a future is.
#[derive(Clone, Copy, Debug)]
pub enum Node {
    /// A column's value.
    Column(Source),
    /// Made of earlier ones.
    Expression(Expression),
}

/// Nodes, each of which refers to earlier ones only, and the keys of the rows that they read.
#[derive(Debug, Default)]
pub struct Program {
    /// The nodes, earlier ones first.
    pub nodes: Vec<Node>,
    keys: Vec<u8>,
}

impl Program {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.keys.clear();
    }

    /// A key that was kept.
    #[inline]
    pub fn key(&self, span: Span) -> &[u8] {
        &self.keys[span.start as usize..][..span.length as usize]
    }

    /// The key of a column's row.
    #[inline]
    pub fn key_of(&self, source: &Source) -> &[u8] {
        self.key(source.key)
    }

    /// Keeps a key.
    #[inline]
    pub fn keep_key<K: EncodedKey>(&mut self, key: K) -> Span {
        let start = self.keys.len();
        self.keys.resize(start + key.len(), 0);
        key.write_to(&mut self.keys[start..]);
        Span { start: start as u32, length: key.len() as u32 }
    }

    /// Adds a node and answers its place.
    #[inline]
    pub fn push(&mut self, node: Node) -> Operand {
        self.nodes.push(node);
        Operand::Pending(self.nodes.len() as u32 - 1)
    }

    /// Adds a column.
    #[inline]
    pub fn push_column(&mut self, table: TableId, key: Span, column: FutureColumn) -> Operand {
        self.push(Node::Column(Source { table, key, column }))
    }
}

/// Calls `visit` with the operands of an expression, which it may change.
#[inline]
pub fn each_operand(expression: &mut Expression, mut visit: impl FnMut(&mut Operand)) {
    match expression {
        Expression::Arithmetic { left, right, .. } | Expression::Compare { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Expression::Choose { condition, then, otherwise } => {
            visit(condition);
            visit(then);
            visit(otherwise);
        }
    }
}

/// A condition by itself, that others can evaluate: what a condition lock holds.
#[derive(Debug, Default)]
pub struct Condition {
    program: Program,
    /// What it is, where it does not depend on a row.
    root: Option<Operand>,
    /// What it was told to be.
    pub truth: bool,
    /// Where each of the arena's nodes has come, plus one; 0 is nowhere.
    places: Vec<u32>,
}

impl Condition {
    /// Cuts out of an arena what `root` depends on. Nodes that have a value are replaced by it.
    pub fn cut(&mut self, arena: &Program, values: &[Option<Scalar>], root: Operand) {
        self.program.clear();
        self.places.clear();
        self.root = Some(root);
        let Operand::Pending(top) = root else { return };
        self.places.resize(top as usize + 1, 0);
        self.places[top as usize] = 1;
        for place in (0..=top as usize).rev() {
            if self.places[place] == 0 || values[place].is_some() {
                continue;
            }
            if let Node::Expression(mut expression) = arena.nodes[place] {
                each_operand(&mut expression, |operand| {
                    if let Operand::Pending(place) = operand {
                        self.places[*place as usize] = 1;
                    }
                });
            }
        }
        for place in 0..=top as usize {
            if self.places[place] == 0 || values[place].is_some() {
                continue;
            }
            let moved = match arena.nodes[place] {
                Node::Column(source) => {
                    let key = self.program.keep_key(arena.key_of(&source));
                    self.program.push_column(source.table, key, source.column)
                }
                Node::Expression(mut expression) => {
                    each_operand(&mut expression, |operand| *operand = self.moved(*operand, values));
                    self.program.push(Node::Expression(expression))
                }
            };
            if let Operand::Pending(new) = moved {
                self.places[place] = new + 1;
            }
        }
        self.root = Some(self.moved(root, values));
    }

    fn moved(&self, operand: Operand, values: &[Option<Scalar>]) -> Operand {
        match operand {
            Operand::Known(_) => operand,
            Operand::Pending(place) => match values[place as usize] {
                Some(value) => Operand::Known(value),
                None => Operand::Pending(self.places[place as usize] - 1),
            },
        }
    }

    /// Makes this one a copy of another.
    pub fn copy_from(&mut self, other: &Self) {
        self.program.nodes.clone_from(&other.program.nodes);
        self.program.keys.clone_from(&other.program.keys);
        (self.root, self.truth) = (other.root, other.truth);
    }

    /// The columns that it depends on, with the keys of their rows.
    pub fn sources(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        self.program.nodes.iter().filter_map(|node| match node {
            Node::Column(source) => Some((source.table, self.program.key_of(source))),
            Node::Expression(_) => None,
        })
    }

    /// Whether it is true when `read` tells the columns' values. `values` is room for them.
    ///
    /// # Errors
    /// A [`FutureError`] where it has no value, or what `read` answers.
    pub fn evaluate(
        &self,
        values: &mut Vec<Scalar>,
        mut read: impl FnMut(TableId, &[u8], FutureColumn) -> Result<Scalar, Stop>,
    ) -> Result<bool, Stop> {
        values.clear();
        for node in &self.program.nodes {
            let value = match node {
                Node::Column(source) => read(source.table, self.program.key_of(source), source.column)?,
                Node::Expression(expression) => expression.evaluate(|place| Ok(values[place as usize]))?,
            };
            values.push(value);
        }
        match self.root {
            Some(Operand::Known(value)) => Ok(value != 0),
            Some(Operand::Pending(place)) => Ok(values[place as usize] != 0),
            None => Err(FutureError::Foreign.into()),
        }
    }
}

/// A running transaction of a protocol.
pub type Inner<'w, B> = <<B as Protocol>::Worker as Interactive>::Transaction<'w>;

/// A protocol that can be beneath such a layer. What a transaction of it has read stays, or the transaction conflicts; that is all that is
/// relied on.
pub trait Beneath: Protocol<Worker: Interactive> {
    /// Whether [`Beneath::observe`] makes a condition stay what it is told to be. Where it does not, the layer looks at it again at
    /// the commit.
    const HOLDS_CONDITIONS: bool;

    /// Tells whether a condition is true now. `scratch` is room for values.
    ///
    /// # Errors
    /// A conflict, or a [`FutureError`] where it has no value; what was read then stays.
    fn observe(
        transaction: &mut Inner<'_, Self>,
        condition: &Condition,
        scratch: &mut Vec<Scalar>,
    ) -> Result<bool, Stop>;

    /// At the commit, before a row is looked at: keeps others from writing it until the end, where it can and must.
    ///
    /// # Errors
    /// A conflict.
    fn claim(transaction: &mut Inner<'_, Self>, table: TableId, key: &[u8], written: bool) -> Result<(), Stop>;

    /// The transaction conflicts, for a reason of the layer's.
    fn conflict(transaction: &mut Inner<'_, Self>, reason: Reason, table: TableId) -> Stop;
}
