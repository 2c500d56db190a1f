//! The catalog as bytes: which tables there are, under which ids, and what defines them. A manifest carries it.
//!
//! [`StoredCatalog::new`] checks everything that creating the tables would check, and decoding goes through it. `docs/durability.md` has the rules.

mod format;

pub use format::{decode, encode};
pub use polychron_engine::definitions::{CatalogError, Standing, StoredCatalog, StoredTable};

/// Why bytes are no catalog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another version wrote it.
    #[error("the catalog has format {format}, and this version knows format {}", format::FORMAT)]
    Unsupported {
        /// Its format.
        format: u16,
    },
    /// The bytes are not what any catalog is encoded as.
    #[error("the catalog is damaged at byte {offset}: {reason}")]
    Malformed {
        /// Where what is wrong begins.
        offset: usize,
        /// The fault.
        reason: Malformed,
    },
    /// The tables cannot be those of a database.
    #[error(transparent)]
    Tables(#[from] CatalogError),
}

/// A fault of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end within a number, or it is too large, or longer than it needs to be.
    #[error("there is no number that is possible here")]
    Number,
    /// A length goes beyond the last byte.
    #[error("the bytes end before what is announced")]
    Length,
    /// Text is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// A number that stands for nothing.
    #[error("no {what} has the number {number}")]
    Unknown {
        /// The value that it should stand for.
        what: &'static str,
        /// The number.
        number: u8,
    },
    /// The variants of an enum are no type.
    #[error("an enum is no column type: {0}")]
    Enum(&'static str),
    /// The positions of tables do not rise.
    #[error("a table is not behind the one before it")]
    Order,
    /// There is more than the catalog.
    #[error("there are bytes behind the catalog")]
    Behind,
}

#[cfg(test)]
mod tests;
