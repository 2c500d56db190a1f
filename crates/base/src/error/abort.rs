//! Conflicts: why, where, and with whom.

use std::fmt;

use super::{NamedKey, tables};
use crate::id::{IndexId, TableId, WorkerId};
use crate::key::EncodedKey;

/// Why a transaction was aborted by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A record that was read has been changed by a transaction that committed first.
    StaleRead,
    /// A key was inserted where the transaction had found none: in a range it scanned or at a key it missed.
    Phantom,
    /// A record to be written stayed latched by another committing transaction.
    Latched,
    /// A record that was read is being written by another committing transaction.
    BeingWritten,
    /// The procedure ran on reads that did not fit together, and was stopped before it could do harm.
    Inconsistent,
    /// Another transaction inserted the same key first.
    InsertedFirst,
    /// A transaction with a later timestamp has read what this one would have changed.
    ReadLater,
    /// A transaction with a later timestamp has written what this one read and was going to write.
    WrittenLater,
    /// A key or a range is locked by another transaction.
    Locked,
    /// An older transaction wants a key or a range that this one had locked.
    Wounded,
    /// A condition over futures is no longer what the transaction observed.
    Condition,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::StaleRead,
        Self::Phantom,
        Self::Latched,
        Self::BeingWritten,
        Self::Inconsistent,
        Self::InsertedFirst,
        Self::ReadLater,
        Self::WrittenLater,
        Self::Locked,
        Self::Wounded,
        Self::Condition,
    ];

    /// The reason's name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StaleRead => "stale-read",
            Self::Phantom => "phantom",
            Self::Latched => "latched",
            Self::BeingWritten => "being-written",
            Self::Inconsistent => "inconsistent",
            Self::InsertedFirst => "inserted-first",
            Self::ReadLater => "read-later",
            Self::WrittenLater => "written-later",
            Self::Locked => "locked",
            Self::Wounded => "wounded",
            Self::Condition => "condition",
        }
    }
}

/// The first bytes of a key, for explaining an abort without allocating.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPreview {
    bytes: [u8; Self::BYTES],
    len: u16,
}

impl KeyPreview {
    const BYTES: usize = 24;

    /// Keeps the front of `key` and its whole length.
    pub fn new<K: EncodedKey>(key: K) -> Self {
        let mut bytes = [0; Self::BYTES];
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&key.slice(index).to_be_bytes());
        }
        Self { bytes, len: key.len().min(usize::from(u16::MAX)) as u16 }
    }

    /// The whole key, when it is short enough to be kept.
    pub fn whole(&self) -> Option<&[u8]> {
        (usize::from(self.len) <= Self::BYTES).then(|| self.bytes())
    }

    /// The kept bytes: the whole key when it is short enough.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(Self::BYTES)]
    }
}

impl fmt::Debug for KeyPreview {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for KeyPreview {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("0x")?;
        for byte in self.bytes() {
            write!(out, "{byte:02x}")?;
        }
        if usize::from(self.len) > Self::BYTES {
            write!(out, "… ({} bytes)", self.len)?;
        }
        Ok(())
    }
}

/// The other transaction of a conflict, as far as the protocol has it at hand when it finds the conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Opponent {
    /// The slot of the worker that runs it, or ran it. Workers that come later may have the same one.
    pub worker: Option<WorkerId>,
    /// Its number, as the protocol counts transactions: a timestamp, a log position, or the transaction's id.
    pub transaction: Option<u64>,
}

impl Opponent {
    /// The transaction that a worker runs.
    pub const fn of_worker(slot: usize) -> Self {
        Self { worker: Some(WorkerId(slot as u32)), transaction: None }
    }

    /// The transaction of this number.
    pub const fn numbered(transaction: u64) -> Self {
        Self { worker: None, transaction: Some(transaction) }
    }

    /// The same, whose worker is known.
    #[must_use]
    pub const fn run_by(self, slot: usize) -> Self {
        Self { worker: Some(WorkerId(slot as u32)), ..self }
    }
}

impl fmt::Display for Opponent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.transaction, self.worker) {
            (Some(number), Some(worker)) => write!(out, "transaction {number} of {worker}"),
            (Some(number), None) => write!(out, "transaction {number}"),
            (None, Some(worker)) => write!(out, "a transaction of {worker}"),
            (None, None) => out.write_str("a transaction"),
        }
    }
}

/// Why, over which key, and with whom a transaction conflicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The check that failed.
    pub reason: Reason,
    /// The table of the key.
    pub table: TableId,
    /// The index in which the key stands.
    pub index: IndexId,
    /// The encoded key, where the check knows one (a phantom in a range names a key at the range's front).
    pub key: Option<KeyPreview>,
    /// The other transaction, where the protocol knows it.
    pub opponent: Option<Opponent>,
}

impl Abort {
    /// The key in words, for as long as its table is there; without values where the protocol knows none.
    pub fn named_key(&self) -> NamedKey {
        tables::key(self.table, self.index, self.key.as_ref())
    }

    /// The same text as of [`fmt::Display`], with the key in words as they were known once.
    pub(super) fn tell(&self, key: &NamedKey, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if key.is_known() { "of " } else { "" };
        write!(out, "{} {of}{key}", self.reason.name())?;
        self.opponent.map_or(Ok(()), |opponent| write!(out, ", with {opponent}"))
    }
}

/// In words, for as long as the table is there: [`Conflicts`](super::Conflicts) keeps them.
impl fmt::Display for Abort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(&self.named_key(), out)
    }
}
