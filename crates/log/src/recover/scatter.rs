//! From records to the parts that their keys belong to.

use std::sync::PoisonError;

use polychron_base::key::{EncodedKey as _, HashSeed};
use polychron_engine::mutations::left_out;
use polychron_schema::KeyScratch;
use polychron_sync::atomic::Ordering;

use super::part::{Incoming, Kind};
use super::stream::{Block, Era};
use super::{Chunk, Shared, Version};
use crate::error::Error;
use crate::frame::{Change, changes_of};
use crate::steps::RecoveryStep;

/// The changes that one thread has and their parts do not have yet.
pub(super) struct Scatter {
    parts: Vec<Block>,
    /// How many rows were put.
    puts: u64,
    row: Vec<u64>,
    key: KeyScratch,
}

/// The part of a key. Keys that differ in their last twelve bits alone are in one, so that rows leave in runs of neighbours, which an ordered index
/// has in few places.
#[inline]
pub(super) fn part_of(seed: HashSeed, key: &[u8], parts: usize) -> usize {
    let (hash, bits) = match key.split_last_chunk::<2>() {
        Some((front, [high, _])) if !front.is_empty() => (hash_of(seed, front), u64::from(high >> 4)),
        _ => (hash_of(seed, key), 0),
    };
    (hash.wrapping_add(bits.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32) as usize % parts
}

/// The hash of a key of a table.
#[inline]
pub(super) fn hash_of(seed: HashSeed, key: &[u8]) -> u64 {
    key.hash(seed)
}

impl Scatter {
    pub(super) fn new(parts: usize) -> Self {
        let parts = (0..parts).map(|_| Block::default()).collect();
        Self { parts, puts: 0, row: Vec::new(), key: KeyScratch::new() }
    }

    /// The bytes of changes that their parts do not have yet.
    pub(super) fn pending_bytes(&self) -> usize {
        self.parts.iter().map(|block| block.bytes().len()).sum()
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
        let era = (version.incarnation, version.order.era);
        let first = if left_out(RecoveryStep::NumberThroughPieces) { 0 } else { version.first };
        for (change, sequence) in changes_of(body).zip(u64::from(first)..) {
            let sequence = u32::try_from(sequence).map_err(|_| Error::Record)?;
            let (number, key, kind, bytes) = match change.map_err(|_| Error::Record)? {
                Change::Put { table, row: words } => {
                    let Some(number) = shared.tables.number(table) else { continue };
                    let (bytes, count) = words.encoded();
                    let key = shared.tables.get(number).key_of_encoded(words, &mut self.row, &mut self.key)?;
                    (number, key, Kind::Put { words: count as u32 }, bytes)
                }
                Change::Patch { table, key, ranges } => {
                    let Some(number) = shared.tables.number(table) else { continue };
                    let (bytes, count) = ranges.encoded();
                    let covered = ranges.covered().map(|(first, end)| (first as u32, end as u32));
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
            let change = Incoming { timestamp: version.order.timestamp, sequence, key, kind, bytes };
            self.puts += u64::from(matches!(kind, Kind::Put { .. }));
            add(&mut self.parts, shared, era, number, &change);
        }
        Ok(())
    }

    /// The key of a record's first change, if it has a table.
    pub(super) fn first_key<'k>(&'k mut self, shared: &Shared, body: &'k [u8]) -> Option<&'k [u8]> {
        match changes_of(body).next()?.ok()? {
            Change::Put { table, row } => {
                let table = shared.tables.get(shared.tables.number(table)?);
                table.key_of_encoded(row, &mut self.row, &mut self.key).ok()
            }
            Change::Patch { key, .. } | Change::Delete { key, .. } => Some(key),
        }
    }

    /// Hands over what waits.
    pub(super) fn flush(&mut self, shared: &Shared) {
        (0..self.parts.len()).for_each(|part| hand_over(&mut self.parts, shared, part));
        shared.puts.fetch_add(std::mem::take(&mut self.puts), Ordering::Relaxed);
    }
}

/// Adds a change to those that wait for their part.
#[inline]
fn add(parts: &mut [Block], shared: &Shared, era: Era, table: usize, change: &Incoming<'_>) {
    let part = part_of(shared.seed, change.key, parts.len());
    if !parts[part].takes(era, change.key.len() + change.bytes.len()) {
        hand_over(parts, shared, part);
    }
    parts[part].push(era, table, change);
}

#[cold]
fn hand_over(parts: &mut [Block], shared: &Shared, part: usize) {
    let block = &mut parts[part];
    if !block.bytes().is_empty() {
        shared.parts[part].lock().unwrap_or_else(PoisonError::into_inner).add(block, shared.seed, shared.most_waiting);
        block.clear();
    }
}
