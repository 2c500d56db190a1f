//! Options of a log: its memory and files, and when its answers leave.

use polychron_base::Error;
use polychron_base::clock::Duration;
use polychron_engine::redo::Durability;

use super::pool::Lengths;
use crate::ring::Limits;
use crate::ship::MOST_STANDBYS;

/// The bytes of the longest ring.
const LONGEST_RING: usize = 1 << 20;

/// A ring takes one of so many parts of what is left, if there are as many workers: the first 64 rings are long, and hundreds still have some.
const RING_PARTS: usize = 64;

/// How much memory rings and long transactions of a database may take.
const MOST_MEMORY: usize = 4 << 30;
/// The longest time between the flushes of a group.
const LONGEST_GROUP: Duration = Duration::from_secs(60);

/// How long an answer waits for standbys unless told otherwise.
const REPLICA_LIMIT: Duration = Duration::from_secs(10);

/// For how long a primary or a standby may say nothing unless told otherwise, and at least: both say something several times as often.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
const SHORTEST_SILENCE: Duration = Duration::from_millis(100);

/// The memory that a log takes, and its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When answers leave.
    pub durability: Durability,
    /// How many workers there are: they have the numbers below.
    pub workers: usize,
    /// How long the first files are, in bytes: whole blocks.
    pub first_file_bytes: u64,
    /// How long files become, in bytes: whole blocks. Each is as long as all before that the log still has, within these two, or as its first frame needs.
    pub file_bytes: u64,
    /// How much content frames have, in bytes, but for one with a single longer record.
    pub frame_bytes: usize,
    /// How much may be sealed and not flushed, in bytes. The rings share it: each takes a 64th of what is left when its worker begins, or as much as each of
    /// fewer workers may, and has a power of two, between 4 KiB and 1 MiB. A transaction begins while its ring is at most half full.
    pub unflushed_bytes: usize,
    /// How much a transaction may log, in bytes, below 2^32. One that is too long for its ring is gathered on the heap, in pieces.
    pub transaction_bytes: usize,
    /// How much memory all rings and long transactions may take, in bytes: the log's share of the database's limit.
    pub memory_bytes: usize,
    /// How much a standby shows at once, in bytes of frames, but for a single point that closes more: enough that the beginning and the end of a transaction
    /// cost little beside its changes, and little enough that readers see a standby catch up, and that there is memory for it.
    pub shown_bytes: usize,
    /// How many standbys are to have durably what an answer depends on before it leaves, and how long it waits for them.
    pub replicas: usize,
    /// See there.
    pub replica_limit: Duration,
    /// A connection between a primary and a standby ends when the other side has said nothing for so long.
    pub silence_limit: Duration,
}

impl Options {
    /// For a database.
    pub fn production(workers: usize) -> Self {
        Self {
            durability: Durability::Immediate,
            workers,
            first_file_bytes: 1 << 20,
            file_bytes: 32 << 20,
            frame_bytes: 4 << 20,
            unflushed_bytes: 64 << 20,
            transaction_bytes: 96 << 20,
            memory_bytes: 128 << 20,
            shown_bytes: 2 << 20,
            replicas: 0,
            replica_limit: REPLICA_LIMIT,
            silence_limit: SILENCE_LIMIT,
        }
    }

    /// For a database whose memory is limited like this: the log takes an eighth of that, up to 4 GiB, and a transaction three quarters of it.
    pub fn within(limit_bytes: Option<usize>, workers: usize) -> Self {
        let production = Self::production(workers);
        let memory_bytes =
            limit_bytes.map_or(production.memory_bytes, |limit| (limit / 8).clamp(64 << 10, MOST_MEMORY));
        let file_bytes = (2 * memory_bytes as u64).next_multiple_of(crate::disk::BLOCK as u64);
        Self {
            file_bytes: file_bytes.clamp(production.first_file_bytes, production.file_bytes),
            frame_bytes: production.frame_bytes.min(memory_bytes / 2),
            unflushed_bytes: production.unflushed_bytes.min(memory_bytes / 2),
            transaction_bytes: memory_bytes / 4 * 3,
            memory_bytes,
            shown_bytes: production.shown_bytes.min(memory_bytes / 4),
            ..production
        }
    }

    /// So small that files end and rings are full after some transactions.
    pub fn tiny() -> Self {
        Self {
            workers: 3,
            first_file_bytes: 16 << 10,
            file_bytes: 16 << 10,
            frame_bytes: 2 << 10,
            unflushed_bytes: 12 << 10,
            transaction_bytes: 24 << 10,
            memory_bytes: 1 << 20,
            shown_bytes: 64 << 10,
            ..Self::production(1)
        }
    }

    /// Refuses what a log cannot be.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub fn check(&self) -> Result<(), Error> {
        self.complaint().map_or(Ok(()), |complaint| Err(Error::options(complaint)))
    }

    /// Their fault.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        let is_length = |bytes: u64| bytes > 0 && bytes.is_multiple_of(crate::disk::BLOCK as u64);
        if !is_length(self.first_file_bytes) || !is_length(self.file_bytes) || self.first_file_bytes > self.file_bytes {
            Some("the files of a log have whole blocks, and the first ones are no longer than the others")
        } else if self.transaction_bytes > u32::MAX as usize {
            Some("a transaction may log less than 4 GiB")
        } else if self.transaction_bytes < 4 << 10 {
            Some("a transaction may log 4 KiB")
        } else if matches!(self.durability, Durability::Group(time) if time > LONGEST_GROUP) {
            Some("answers of a group wait for a minute at most")
        } else if self.replicas > MOST_STANDBYS {
            Some("a database has at most 16 standbys")
        } else if self.silence_limit < SHORTEST_SILENCE {
            Some("a standby, or its primary, may be silent for 100 ms")
        } else if self.workers == 0 {
            Some("a log has a worker")
        } else {
            None
        }
    }

    pub(crate) fn lengths(&self) -> Lengths {
        Lengths { first: self.first_file_bytes, most: self.file_bytes }
    }

    pub(crate) fn limits(&self) -> Limits {
        let longest = (self.transaction_bytes / 8).min(LONGEST_RING / 8);
        // A quarter of any file, so that no more is lost at its end.
        let piece_bytes = LONGEST_RING.min(self.frame_bytes).min((self.first_file_bytes / 4) as usize);
        Limits {
            ring_words: 1 << longest.ilog2(),
            rings_bytes: self.unflushed_bytes,
            parts: self.workers.min(RING_PARTS),
            transaction_bytes: self.transaction_bytes,
            piece_bytes: piece_bytes.saturating_sub(crate::frame::FRONT_BYTES),
            memory_bytes: self.memory_bytes,
        }
    }
}
