//! Types whose values are not compared: those of `json`, and arrays of them.

use crate::error::{SqlError, SqlState};
use crate::types::Type;

fn is_compared(of: Type) -> bool {
    of.element().unwrap_or(of) != Type::Json
}

/// Refuses values that nothing says to be equal.
pub(super) fn check_equal(of: Type) -> Result<(), SqlError> {
    let message = || format!("could not identify an equality operator for type {of}");
    if is_compared(of) { Ok(()) } else { Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message())) }
}

/// Refuses values that have no order.
pub(super) fn check_ordered(of: Type) -> Result<(), SqlError> {
    let message = || format!("could not identify an ordering operator for type {of}");
    let hint = "Use an explicit ordering operator or modify the query.";
    let refused = || SqlError::new(SqlState::UNDEFINED_FUNCTION, message()).with_hint(hint);
    if is_compared(of) { Ok(()) } else { Err(refused()) }
}
