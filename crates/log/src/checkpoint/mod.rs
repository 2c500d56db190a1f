//! Checkpoints: what the log up to an epoch amounts to, as files of rows, so that recovery need not read that log and it can go.
//!
//! `docs/durability.md` has the rules: which epoch, which records become rows and which are carried, and what a crash leaves.

pub mod block;
pub(crate) mod fold;
pub(crate) mod known;
pub(crate) mod pace;
mod reader;
mod rows;
pub(crate) mod run;
mod writer;

pub use fold::carried;
pub use reader::Reader;
pub use rows::RowSource;
pub use run::{Checkpoints, Counts, Haste, Options};
pub use writer::{RecordContent, RowContent, Writer};

use crate::codec::checksum;
use crate::manifest::CheckpointFile;

/// The directory of all checkpoints.
pub(crate) const DIRECTORY: &str = "checkpoint";

/// The content of a checkpoint's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Rows of a table.
    Rows {
        /// The table's number in the catalog.
        table: u32,
        /// Tells the files of one table and one checkpoint from each other.
        part: u32,
        /// The properties that all rows of the file have in common.
        range: Range,
    },
    /// Records that are carried.
    Records,
    /// The changes since the rows were written: one of each key.
    Changes,
}

/// Keys whose [`hash`] begins with some bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// How many bits.
    pub bits: u8,
    /// These bits.
    pub prefix: u32,
}

impl Range {
    /// How many bits a range fixes at most.
    pub const MAX_BITS: u8 = 8;

    /// The one of so many bits that has the keys of a hash.
    pub(crate) fn of(hash: u32, bits: u8) -> Self {
        Self { bits, prefix: first_bits(hash, bits) }
    }

    /// Whether a key of this hash is in it.
    #[inline]
    pub fn has(self, hash: u32) -> bool {
        first_bits(hash, self.bits) == self.prefix
    }

    /// Whether a key is in it.
    #[inline]
    pub fn has_key(self, key: &[u8]) -> bool {
        self.bits == 0 || self.has(hash(key))
    }

    /// Whether some key can be in both.
    pub fn meets(self, other: Self) -> bool {
        let bits = self.bits.min(other.bits);
        self.prefix >> (self.bits - bits) == other.prefix >> (other.bits - bits)
    }

    /// The ranges of so many bits, which have all keys.
    pub(crate) fn all(bits: u8) -> impl Iterator<Item = Self> {
        (0..1 << bits).map(move |prefix| Self { bits, prefix })
    }
}

impl Contents {
    /// The contents that these numbers stand for, if any.
    pub(crate) fn of(kind: u8, table: u32, part: u32, bits: u8, prefix: u32) -> Option<Self> {
        match (kind, table, part, bits, prefix) {
            (0, ..) if bits <= Range::MAX_BITS && prefix >> bits == 0 => {
                Some(Self::Rows { table, part, range: Range { bits, prefix } })
            }
            (1, 0, 0, 0, 0) => Some(Self::Records),
            (2, 0, 0, 0, 0) => Some(Self::Changes),
            _ => None,
        }
    }

    /// These numbers: kind, table, part, bits and prefix.
    pub(crate) fn numbers(self) -> (u8, u32, u32, u8, u32) {
        match self {
            Self::Rows { table, part, range: Range { bits, prefix } } => (0, table, part, bits, prefix),
            Self::Records => (1, 0, 0, 0, 0),
            Self::Changes => (2, 0, 0, 0, 0),
        }
    }
}

/// The hash that decides in which [`Range`] a key is: the same for ever, whatever the version.
pub fn hash(key: &[u8]) -> u32 {
    // Checksums of short keys differ in few bits; a product's upper bits depend on all of them.
    checksum(&[key]).wrapping_mul(0x9E37_79B1)
}

#[inline]
fn first_bits(hash: u32, bits: u8) -> u32 {
    (u64::from(hash) >> (32 - u32::from(bits))) as u32
}

/// The directory of a checkpoint.
pub(crate) fn directory_of(number: u64) -> String {
    format!("{DIRECTORY}/{number}")
}

/// The path of a file of a checkpoint.
pub(crate) fn path_of(number: u64, contents: Contents) -> String {
    format!("{DIRECTORY}/{number}/{}", name_of(contents))
}

fn name_of(contents: Contents) -> String {
    match contents {
        Contents::Rows { table, part, .. } => format!("{table}.{part}"),
        Contents::Records => "carried".to_owned(),
        Contents::Changes => "changes".to_owned(),
    }
}

impl CheckpointFile {
    /// Its path from the database's directory.
    pub fn path(&self) -> String {
        path_of(self.number, self.contents)
    }
}

#[cfg(test)]
mod tests;
