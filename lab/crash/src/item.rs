//! The rows of tests of which no more matters than whether they are there.

use polychron::Row;

/// A row with a number and a text of any length.
#[derive(Row, Clone, Debug, PartialEq)]
pub struct Item {
    /// Its key.
    #[key]
    pub id: u64,
    /// Any.
    pub number: u64,
    /// Any.
    pub text: String,
}
