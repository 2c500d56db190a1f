//! Futures: values of a transaction that need not be known before its commit (lazy state determination, §3.2).
//!
//! A procedure reads a column as a [`Future`], computes with it, asks whether a condition over futures is true, and writes
//! futures back, all without learning a value. A protocol that can leave them open keeps the expressions in an arena and
//! resolves them when it commits, so that two transactions that only add to one counter need not conflict. Every other
//! protocol resolves at once, which the paper calls equivalent: the same procedure runs everywhere.
//!
//! Procedures use the typed API, [`Futures`], and operators on [`Future`]. Protocols see [`Operand`]s and [`Expression`]s, and a lazy
//! one overrides the methods of [`Transaction`] that take them. An [`Expression`] refers to [`Term`]s that were made before it, so an
//! arena in the order of their making is resolved in one pass with [`Expression::evaluate`].
//!
//! A value of at most 64 bits is its bits, NULL a value of its own. Text and bytes lie with their future, or, in an arena, one behind the
//! other ([`Texts`]), so that nodes are small and of one size.
//!
//! Operators have no transaction at hand. What they make of open futures lies with the transaction's other nodes on its [`ExpressionArena`],
//! which is the thread's. What is known is computed at once.

mod api;
mod arena;
mod column;
mod expression;
mod future;
mod keys;
mod resolved;
mod together;
mod types;
mod value;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Changes, ColumnSet, KeyScratch, RowBuffer, RowMut, RowRef, Shape};

use crate::{Insertion, Transaction, foreign_keys};

pub use api::{Assignment, Becomes, FutureColumns, Futures};
pub use arena::{Attempt, ExpressionArena, Scope};
pub use column::{FutureColumn, store_all};
pub use expression::{Arithmetic, Expression, Failure, Function, FutureError, each_term};
pub use future::{Future, Then};
pub use keys::{FutureKey, FutureKeyColumn, KeyForm, KeyPart, OpenKey, close};
pub use resolved::{Outcome, Resolved};
pub use together::{Long, Text, Together};
pub use types::{ConvertTo, Factor, FutureValue, Number, Signed};
pub use value::{Bytes, Held, Operand, Scalar, Span, Term, Texts, Value};

/// Columns with what they will be.
pub type Assigned = [(FutureColumn, Operand)];

/// The bounding range of some columns.
pub fn bounding_range(columns: impl IntoIterator<Item = FutureColumn>) -> polychron_schema::Projection {
    columns
        .into_iter()
        .fold(polychron_schema::Projection::NONE, |bounding_range, column| bounding_range.with(column.span))
}

/// Makes an expression of two operands of the transaction, for callers that know columns by their positions. What is known is computed at once.
///
/// # Errors
/// A [`FutureError`]: it has no value, or an operand is not the transaction's.
pub fn combine<T: Transaction + ?Sized>(
    transaction: &mut T,
    left: &Operand,
    right: &Operand,
    of: impl Fn(Term, Term) -> Expression,
) -> Result<Operand, Error> {
    if let (Operand::Known(left), Operand::Known(right)) = (left, right) {
        return Ok(Operand::Known(future::compute(left, right, of)?));
    }
    let made = transaction.future_scope().make(|nodes| Ok(of(nodes.term(left)?, nodes.term(right)?)));
    made.ok_or_else(|| FutureError::Foreign.into())
}

/// No column of the primary key becomes a future's value: the row stays under its key.
///
/// # Errors
/// [`Error::WrongRow`].
fn check_columns<T: Transaction + ?Sized>(transaction: &T, table: TableId, columns: &Assigned) -> Result<(), Error> {
    let Some(rules) = transaction.constraints(table)?.rules() else { return Ok(()) };
    let key = rules.key_positions();
    let Some((column, _)) = columns.iter().find(|(column, _)| key.contains(&usize::from(column.span.index))) else {
        return Ok(());
    };
    let name = &transaction.definition(table)?.columns[usize::from(column.span.index)].name;
    let why = format!("a future cannot change a column of the primary key: {name}");
    Err(Error::wrong_row(table, why))
}

/// Whether a unique secondary index has one of these columns. Insertions take keys in their order, late or not; and as long as one comes,
/// nothing else meets its table.
fn is_unique<T: Transaction + ?Sized>(transaction: &T, table: TableId, columns: &Assigned) -> Result<bool, Error> {
    let mut unique = transaction.definition(table)?.indexes.iter().filter(|index| index.unique);
    let is_among = |position: &usize| columns.iter().any(|(column, _)| usize::from(column.span.index) == *position);
    Ok(unique.any(|index| index.columns.iter().any(is_among)))
}

/// Resolves what is written in its turn among the operations: what a foreign key rests on, for whether there is a parent can be told only
/// of a value that is known, and what a unique index has, for which keys are taken depends on the order of the writes. Whether any of
/// these columns is such a one.
pub(crate) fn resolve_in_turn<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    columns: &mut Assigned,
) -> Result<bool, Error> {
    check_columns(transaction, table, columns)?;
    let set = columns.iter().fold(ColumnSet::EMPTY, |set, (column, _)| set.with(column.span.index));
    if !foreign_keys::concerns(transaction, table, set)? && !is_unique(transaction, table, columns)? {
        return Ok(false);
    }
    resolve_all(transaction, columns)?;
    Ok(true)
}

/// Resolves what columns become.
fn resolve_all<T: Transaction + ?Sized>(transaction: &mut T, columns: &mut Assigned) -> Result<(), Error> {
    for (_, value) in columns {
        if let Operand::Pending(_) = value {
            *value = Operand::Known(transaction.resolve_future(value.clone())?);
        }
    }
    Ok(())
}

/// The eager [`Transaction::read_futures`].
pub(crate) fn read_now<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    columns: &[FutureColumn],
    futures: &mut [Operand],
) -> Result<(), Error> {
    let row =
        transaction.read_row(table, key, &bounding_range(columns.iter().copied()))?.ok_or(FutureError::NoRow(table))?;
    for (column, future) in columns.iter().zip(futures) {
        *future = Operand::Known(column.load(table, row)?.map(Bytes::from));
    }
    Ok(())
}

/// The eager [`Transaction::write_futures`].
pub(crate) fn write_now<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    columns: &Assigned,
) -> Result<(), Error> {
    // Before anything is changed.
    check_known(transaction, table, columns)?;
    let projection = bounding_range(columns.iter().map(|(column, _)| *column));
    let mut stored = Ok(());
    let found = foreign_keys::update_row(transaction, table, key, &projection, |row| {
        stored = store_all(table, row, known(columns));
    })?;
    stored?;
    if found { Ok(()) } else { Err(FutureError::NoRow(table).into()) }
}

/// All values are known, and their columns take them.
fn check_known<T: Transaction + ?Sized>(transaction: &mut T, table: TableId, columns: &Assigned) -> Result<(), Error> {
    for (column, value) in columns {
        match value {
            Operand::Known(value) => column.check(table, value)?,
            Operand::Pending(_) => {
                transaction.resolve_future(value.clone())?;
                return Err(FutureError::Foreign.into());
            }
        }
    }
    Ok(())
}

/// Columns with their values, as far as these are known.
fn known(columns: &Assigned) -> impl Iterator<Item = (FutureColumn, Value<&[u8]>)> + Clone {
    columns.iter().filter_map(|(column, value)| match value {
        Operand::Known(value) => Some((*column, value.borrow())),
        Operand::Pending(_) => None,
    })
}

/// The key's bytes, once its parts are resolved.
pub(crate) fn close_key<'k, T: Transaction + ?Sized>(
    transaction: &mut T,
    open: &OpenKey,
    key: &'k mut KeyScratch,
) -> Result<&'k [u8], Error> {
    close(key, open.bytes()?, open.parts(), |key, part| {
        part.form.append(key, transaction.resolve_future(part.value.clone())?.borrow());
        Ok(())
    })?;
    Ok(key.as_bytes())
}

/// A row that is inserted, of which columns come later.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'r> {
    /// The row, with anything in these columns.
    pub row: RowRef<'r>,
    /// Its dimensions.
    pub shape: Shape,
}

/// The eager [`Transaction::insert_futures`].
pub(crate) fn insert_now<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    key: &OpenKey,
    row: NewRow<'_>,
    columns: &Assigned,
) -> Result<(), Error> {
    let (mut scratch, mut filled) = (KeyScratch::new(), RowBuffer::new());
    let key = close_key(transaction, key, &mut scratch)?;
    check_known(transaction, table, columns)?;
    filled.copy_from(row.row.as_bytes());
    store_all(table, &mut RowMut::new(&mut filled, &mut Changes::default(), row.shape), known(columns))?;
    match foreign_keys::insert_row(transaction, table, key, filled.as_row())? {
        Insertion::Inserted => Ok(()),
        Insertion::Duplicate(index) => Err(transaction.constraints(table)?.duplicate(table, index, filled.as_row())),
    }
}
