//! What a running transaction remembers: read set, node set, write set; in memory that is kept from one transaction to the next.
//!
//! The write set is a list that only grows, so a savepoint is a length, and undoing to it is a truncation, newest write first.

use polychron_base::key::EncodedKey;
use polychron_engine::stores::{IndexRef, KeySpan, NodeSet};

use super::version::{Record, Version};

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// This version of a row.
    Version(Version),
    /// That the record shows no row.
    Record(Record),
}

/// Something that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) target: Target,
    pub(super) index_ref: IndexRef,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Update,
    Delete,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) record: Record,
    pub(super) index_ref: IndexRef,
    pub(super) kind: Kind,
    /// The version that it ends.
    pub(super) locked: Option<Version>,
    /// The version that it makes.
    pub(super) made: Option<Version>,
    /// The transaction's own version in whose place that one is.
    pub(super) replaced: Option<Version>,
    pub(super) key: KeySpan,
}

/// All that a running transaction remembers.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) reads: Vec<Read>,
    pub(super) nodes: NodeSet,
    writes: Vec<Write>,
    keys: Vec<u64>,
    /// Whether own versions must stay as they are: a savepoint may return to them.
    pub(super) has_savepoint: bool,
}

impl Sets {
    /// All writes, oldest first.
    #[inline]
    pub(super) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Keeps a key for the transaction's life.
    #[inline]
    pub(super) fn keep_key<K: EncodedKey>(&mut self, key: K) -> KeySpan {
        KeySpan::keep(&mut self.keys, key)
    }

    /// The key of a write, as bytes; empty where it was not kept.
    #[inline]
    pub(super) fn key(&self, write: &Write) -> &[u8] {
        write.key.bytes(&self.keys)
    }

    #[inline]
    pub(super) fn push(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Takes the newest write out, if there are more than `len`. Its key stays until the transaction ends.
    pub(super) fn pop(&mut self, len: usize) -> Option<Write> {
        if self.writes.len() > len { self.writes.pop() } else { None }
    }

    /// Forgets everything and keeps the memory, unless one huge transaction had inflated it.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.reads.shrink_to(1 << 16);
        self.nodes.clear();
        self.writes.clear();
        self.writes.shrink_to(1 << 14);
        self.keys.clear();
        self.keys.shrink_to(1 << 16);
        self.has_savepoint = false;
    }
}
