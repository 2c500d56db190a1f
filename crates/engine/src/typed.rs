//! Typed access: tables of [`Row`]s, on top of the bytes that [`Transaction`](crate::Transaction) speaks.

mod bounds;
mod conditions;
mod range;
mod rows;
mod totals;

use std::cell::Cell;

use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{Row, RowBuffer, RowRef};

pub use crate::handle::Table;
pub(crate) use bounds::KeyBounds;
pub use conditions::{Condition, Conditions};
pub use range::{Mapped, Range};
pub use rows::Rows;
pub use totals::{Aggregates, GroupColumns, Groups, MOST_GROUPS, Summed, Total, Totals, count};

/// Lends the bytes of a row, built in a buffer that the thread keeps.
pub(crate) fn with_encoded<R: Row, O>(
    table: TableId,
    row: &R,
    then: impl FnOnce(RowRef<'_>) -> Result<O, Error>,
) -> Result<O, Error> {
    thread_local! {
        static BUFFER: Cell<Option<Box<RowBuffer>>> = const { Cell::new(None) };
    }
    // In a thread that ends the buffer may be gone.
    let mut buffer = BUFFER.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let outcome = match row.encode(&mut buffer) {
        Ok(()) => then(buffer.as_row()),
        Err(error) => Err(Error::from(error).in_index(table, IndexId::PRIMARY)),
    };
    let _ = BUFFER.try_with(|slot| slot.set(Some(buffer)));
    outcome
}
