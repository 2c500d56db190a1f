//! Futures: values of a transaction that need not be known before its commit (lazy state determination, §3.2).
//!
//! A procedure reads a column as a [`Future`], computes with it, asks whether a condition over futures is true, and writes
//! futures back, all without learning a value. A protocol that can leave them open keeps the expressions in an arena and
//! resolves them when it commits, so that two transactions that only add to one counter need not conflict. Every other
//! protocol resolves at once, which the paper calls equivalent: the same procedure runs everywhere.
//!
//! Procedures use the typed API, [`Futures`], and operators on [`Future`]. Protocols see [`Operand`]s and [`Expression`]s, and a lazy
//! one overrides the methods of [`Transaction`] that take them. An [`Expression`] refers to operands that were made before it, so an
//! arena in the order of their making is resolved in one pass with [`Expression::evaluate`].
//!
//! Operators have no transaction at hand. What they make of open futures lies with the transaction's other nodes on its [`ExpressionArena`],
//! which is the thread's. What is known is computed at once.

mod api;
mod arena;
mod expression;
mod future;
mod keys;
mod resolved;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{ColumnSet, RowBuffer, RowRef};

use crate::{Insertion, Transaction, foreign_keys};

pub use api::{Assignment, Becomes, FutureColumns, Futures};
pub use arena::{Attempt, ExpressionArena, Scope};
pub use expression::{Arithmetic, Expression, FutureColumn, FutureError, Operand, Scalar, each_operand};
pub use future::{Factor, Future, FutureValue, Number, Signed, Then};
pub use keys::{FutureKey, FutureKeyColumn, KeyPart, OpenKey};
pub use resolved::{Outcome, Resolved};

/// Columns with what they will be.
pub type Assigned = [(FutureColumn, Operand)];

/// The bounding range of some columns.
pub fn bounding_range(columns: impl IntoIterator<Item = FutureColumn>) -> polychron_schema::Projection {
    columns
        .into_iter()
        .fold(polychron_schema::Projection::NONE, |bounding_range, column| bounding_range.with(column.span))
}

/// Makes an expression of operands of the transaction, for callers that know columns by their positions. What is known is computed at once.
///
/// # Errors
/// A [`FutureError`]: it has no value, or an operand is not the transaction's.
pub fn combine<T: Transaction + ?Sized>(transaction: &mut T, expression: Expression) -> Result<Operand, Error> {
    match expression.evaluate(|_| Err(FutureError::Foreign)) {
        Ok(value) => Ok(Operand::Known(value)),
        Err(FutureError::Foreign) => {
            let made = transaction.future_scope().make(expression);
            made.ok_or_else(|| FutureError::Foreign.into())
        }
        Err(why) => Err(why.into()),
    }
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
    for (_, value) in columns {
        *value = Operand::Known(transaction.resolve_future(*value)?);
    }
    Ok(true)
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
        *future = Operand::Known(column.load(row).ok_or(FutureError::Null(table))?);
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
    for (_, value) in columns {
        if !matches!(value, Operand::Known(_)) {
            transaction.resolve_future(*value)?;
            return Err(FutureError::Foreign.into());
        }
    }
    let projection = bounding_range(columns.iter().map(|(column, _)| *column));
    let found = foreign_keys::update_row(transaction, table, key, &projection, |row| {
        for (column, value) in columns {
            if let Operand::Known(value) = value {
                column.store(row, *value);
            }
        }
    })?;
    if found { Ok(()) } else { Err(FutureError::NoRow(table).into()) }
}

/// The key's bytes, once its parts are resolved.
pub(crate) fn close_key<'k, T: Transaction + ?Sized>(
    transaction: &mut T,
    key: &OpenKey,
    bytes: &'k mut Vec<u8>,
) -> Result<&'k [u8], Error> {
    bytes.clear();
    bytes.extend_from_slice(key.bytes()?);
    for part in key.parts() {
        part.put(bytes, transaction.resolve_future(part.value)?);
    }
    Ok(bytes)
}

/// The eager [`Transaction::insert_futures`].
pub(crate) fn insert_now<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    key: &OpenKey,
    row: RowRef<'_>,
    columns: &Assigned,
) -> Result<(), Error> {
    let (mut bytes, mut filled) = (Vec::new(), RowBuffer::new());
    let key = close_key(transaction, key, &mut bytes)?;
    filled.copy_from(row.as_bytes());
    for (column, value) in columns {
        column.store_in(&mut filled, transaction.resolve_future(*value)?);
    }
    match foreign_keys::insert_row(transaction, table, key, filled.as_row())? {
        Insertion::Inserted => Ok(()),
        Insertion::Duplicate(index) => Err(transaction.constraints(table)?.duplicate(table, index, filled.as_row())),
    }
}
