//! From records to the parts that their keys belong to.

use std::sync::PoisonError;

use polychron_base::key::{EncodedKey as _, HashSeed};
use polychron_schema::KeyScratch;
use polychron_sync::atomic::Ordering;

use super::part::{Incoming, Kind, Part, Version};
use super::{Chunk, Shared};
use crate::error::Error;
use crate::frame::{Change, changes_of};

/// How many changes of a part, and how many bytes, are taken in at once.
const CHANGES: usize = 512;
const BYTES: usize = 32 << 10;

/// By how many changes one step of looking a key up is ahead of the next one.
const AHEAD: usize = 8;
/// How many steps that takes.
const STEPS: usize = 4;

/// What one thread has of changes that their parts do not have yet.
pub(super) struct Scatter {
    parts: Vec<Pending>,
    row: Vec<u64>,
    key: KeyScratch,
}

#[derive(Default)]
struct Pending {
    changes: Vec<Waiting>,
    /// Of each change its key, and then its words or ranges.
    bytes: Vec<u8>,
}

struct Waiting {
    table: usize,
    hash: u64,
    version: Version,
    kind: Kind,
    key_bytes: usize,
    bytes: usize,
}

/// The part of a key with this hash. Parts use the low half.
pub(super) fn part_of(hash: u64, parts: usize) -> usize {
    (hash >> 32) as usize % parts
}

/// The hash of a key of a table.
pub(super) fn hash_of(seed: HashSeed, key: &[u8]) -> u64 {
    key.hash(seed)
}

impl Scatter {
    pub(super) fn new(parts: usize) -> Self {
        Self { parts: (0..parts).map(|_| Pending::default()).collect(), row: Vec::new(), key: KeyScratch::new() }
    }

    /// The bytes of changes that their parts do not have yet.
    pub(super) fn pending_bytes(&self) -> usize {
        self.parts.iter().map(|pending| pending.bytes.len()).sum()
    }

    /// Takes in all records of a chunk.
    pub(super) fn chunk(&mut self, shared: &Shared, chunk: &Chunk) -> Result<(), Error> {
        let mut begin = 0;
        for (version, end) in &chunk.records {
            self.record(shared, *version, &chunk.bytes[begin..*end])?;
            begin = *end;
        }
        Ok(())
    }

    /// Takes in the changes of a record.
    pub(super) fn record(&mut self, shared: &Shared, version: Version, body: &[u8]) -> Result<(), Error> {
        for (change, sequence) in changes_of(body).zip(0..) {
            let version = Version { sequence, ..version };
            let Self { parts, row, key: scratch } = self;
            let (number, key, kind, bytes) = match change.map_err(|_| Error::Record)? {
                Change::Put { table, row: words } => {
                    let Some(number) = shared.tables.number(table) else { continue };
                    let (bytes, count) = words.encoded();
                    row.clear();
                    words.append_to(row);
                    let key = shared.tables.get(number).key_of(row, scratch)?;
                    (number, key, Kind::Put { words: count as u32 }, bytes)
                }
                Change::Patch { table, key, mut ranges } => {
                    let Some(number) = shared.tables.number(table) else { continue };
                    let (bytes, count) = ranges.encoded();
                    let first = ranges.next().filter(|_| count == 1);
                    let covered = first.map(|(first, words)| (first as u32, (first + words.len()) as u32));
                    (number, key, Kind::Patch { ranges: count as u32, covered }, bytes)
                }
                Change::Delete { table, key } => {
                    let Some(number) = shared.tables.number(table) else { continue };
                    (number, key, Kind::Delete, &[][..])
                }
            };
            // Others have written it, mostly.
            if !shared.touched[number].load(Ordering::Relaxed) {
                shared.touched[number].store(true, Ordering::Relaxed);
            }
            if !shared.range.has_key(key) {
                continue;
            }
            let hash = hash_of(shared.seed, key);
            let at = part_of(hash, parts.len());
            let pending = &mut parts[at];
            pending.bytes.extend_from_slice(key);
            pending.bytes.extend_from_slice(bytes);
            let (key_bytes, bytes) = (key.len(), bytes.len());
            pending.changes.push(Waiting { table: number, hash, version, kind, key_bytes, bytes });
            if pending.changes.len() >= CHANGES || pending.bytes.len() >= BYTES {
                pending.take_in(&mut shared.parts[at].lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
        Ok(())
    }

    /// Hands over what waits.
    pub(super) fn flush(&mut self, shared: &Shared) -> Result<(), Error> {
        for (pending, part) in self.parts.iter_mut().zip(&shared.parts) {
            pending.take_in(&mut part.lock().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }
}

impl Pending {
    fn take_in(&mut self, part: &mut Part) {
        let mut rest = self.bytes.as_slice();
        for step in 0..self.changes.len() + STEPS * AHEAD {
            self.fetch(step, part);
            let Some(change) = self.behind(step, STEPS) else { continue };
            let Waiting { table, hash, version, kind, key_bytes, bytes } = *change;
            let (key, behind) = rest.split_at(key_bytes);
            let (bytes, behind) = behind.split_at(bytes);
            rest = behind;
            part.apply(table, &Incoming { hash, version, key, kind, bytes });
        }
        self.changes.clear();
        self.bytes.clear();
    }

    /// The change that is so many steps behind the one that is looked at first.
    #[inline]
    fn behind(&self, step: usize, steps: usize) -> Option<&Waiting> {
        self.changes.get(step.checked_sub(steps * AHEAD)?)
    }

    /// Asks for what changes need: the place where a key is found, and for those behind what that leads to.
    #[inline]
    fn fetch(&self, step: usize, part: &Part) {
        if let Some(change) = self.behind(step, 0) {
            part.keys(change.table).fetch_slot(change.hash);
        }
        if let Some(change) = self.behind(step, 1) {
            part.keys(change.table).fetch_entry(change.hash);
        }
        if let Some(change) = self.behind(step, 2) {
            part.fetch_patch(part.keys(change.table).candidate(change.hash));
        }
        if let Some(change) = self.behind(step, 3) {
            part.fetch_bytes(part.keys(change.table).candidate(change.hash));
        }
    }
}
