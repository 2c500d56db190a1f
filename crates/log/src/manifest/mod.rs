//! The list of a database's files: the root of everything that recovery reads.
//!
//! Two files are overwritten in turn, `manifest.0` by even generations and `manifest.1` by odd ones, and the newest valid one counts. So a write that is
//! interrupted leaves the one before. `docs/durability.md` has the rules.

mod slots;

pub use slots::Manifests;

use crate::DatabaseId;
use crate::checkpoint::Contents;
use crate::codec::{Reader, checksum};
use crate::disk::{self, BLOCK};
use crate::frame::Order;

/// How long a manifest may be, in bytes.
pub const MAX_BYTES: usize = 16 << 20;

const MAGIC: &[u8; 8] = b"plychrMF";
/// Changes whenever the content does. The header stays, so that files of other formats are recognised.
const FORMAT: u16 = 2;
/// The one before, which checkpoints without changes still have: only that is what it does not know.
const FORMAT_WITHOUT_CHANGES: u16 = 1;
const HEADER: usize = 64;
/// Where the checksum is, which covers all but itself.
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Which database this is.
    pub database: DatabaseId,
    /// Counts the openings of the database.
    pub incarnation: u64,
    /// The log file that recovery begins with.
    pub first_log_file: u64,
    /// An epoch up to which the log is durable, known when this was written.
    pub durable: u64,
    /// The checkpoint that recovery begins with.
    pub checkpoint: Option<Checkpoint>,
    /// Definitions of tables and indexes, encoded.
    pub catalog: Vec<u8>,
}

/// A checkpoint and its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number, by which its directory is called.
    pub number: u64,
    /// The log epoch up to which it has all.
    pub epoch: u64,
    /// The opening of the database that wrote the records it carries, and all of that epoch.
    pub incarnation: u64,
    /// The order up to which records of that opening have become rows.
    pub consistent: Order,
    /// Its files, some of them in the directories of earlier checkpoints.
    pub files: Vec<CheckpointFile>,
}

/// A file of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    /// The number of the checkpoint that it was written for.
    pub number: u64,
    /// Its content.
    pub contents: Contents,
    /// How many rows or records.
    pub count: u64,
    /// Its length.
    pub bytes: u64,
    /// The checksum of its last block, which covers all blocks before.
    pub checksum: u32,
}

impl Checkpoint {
    /// How long its files are together.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl CheckpointFile {
    const BYTES: usize = 42;

    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, table, part, bits, prefix) = self.contents.numbers();
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&[kind, bits]);
        bytes.extend_from_slice(&table.to_le_bytes());
        bytes.extend_from_slice(&part.to_le_bytes());
        bytes.extend_from_slice(&prefix.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (number, kind, bits) = (reader.u64()?, reader.u8()?, reader.u8()?);
        let (table, part, prefix) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let contents = Contents::of(kind, table, part, bits, prefix)?;
        let (count, bytes, checksum) = (reader.u64()?, reader.u64()?, reader.u32()?);
        Some(Self { number, contents, count, bytes, checksum })
    }
}

/// Why manifests could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The bytes cannot be those that were written.
    #[error("{path} is damaged: {reason}")]
    Corrupt {
        /// The file.
        path: &'static str,
        /// Its fault.
        reason: &'static str,
    },
    /// Another version wrote it.
    #[error("{path} has format {format}, and this version knows format {FORMAT}")]
    Unsupported {
        /// The file.
        path: &'static str,
        /// Its format.
        format: u16,
    },
    /// A manifest would be longer than [`MAX_BYTES`].
    #[error("a manifest of {bytes} bytes is too long, and at most {MAX_BYTES} are possible")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Why bytes are no manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was ever written there.
    Empty,
    /// Not all of it is what was written: an interrupted write, or damage.
    Invalid,
    /// It is whole, and of another format.
    Unsupported(u16),
}

fn format_of(manifest: &Manifest) -> u16 {
    let mut files = manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
    if files.any(|file| file.contents == Contents::Changes) { FORMAT } else { FORMAT_WITHOUT_CHANGES }
}

/// The bytes of a manifest, without what fills its last block.
pub fn encode(manifest: &Manifest, generation: u64) -> Vec<u8> {
    let none = Checkpoint::default();
    let checkpoint = manifest.checkpoint.as_ref().unwrap_or(&none);
    let content = 16 + 4 + manifest.catalog.len() + 1 + 40 + 4 + checkpoint.files.len() * CheckpointFile::BYTES;
    let mut bytes = Vec::with_capacity(HEADER + content);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&format_of(manifest).to_le_bytes());
    bytes.resize(CHECKSUM.end, 0);
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&manifest.database.0.to_le_bytes());
    bytes.extend_from_slice(&manifest.incarnation.to_le_bytes());
    bytes.extend_from_slice(&(content as u64).to_le_bytes());
    bytes.resize(HEADER, 0);
    bytes.extend_from_slice(&manifest.first_log_file.to_le_bytes());
    bytes.extend_from_slice(&manifest.durable.to_le_bytes());
    bytes.extend_from_slice(&(manifest.catalog.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&manifest.catalog);
    bytes.push(u8::from(manifest.checkpoint.is_some()));
    let Checkpoint { number, epoch, incarnation, consistent, files } = checkpoint;
    for number in [number, epoch, incarnation, &consistent.era, &consistent.timestamp] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(files.len() as u32).to_le_bytes());
    files.iter().for_each(|file| file.encode(&mut bytes));
    debug_assert_eq!(bytes.len(), HEADER + content);
    let sum = checksum(&[&bytes[..CHECKSUM.start], &bytes[CHECKSUM.end..]]);
    bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The manifest that bytes begin with, and its generation. What follows its last block is not looked at.
///
/// # Errors
/// [`Fault`]. Nothing is allocated that is longer than the bytes.
pub fn decode(bytes: &[u8]) -> Result<(Manifest, u64), Fault> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(Fault::Empty);
    }
    let content = checked(bytes).ok_or(Fault::Invalid)?;
    let format = u16::from_le_bytes([bytes[MAGIC.len()], bytes[MAGIC.len() + 1]]);
    if ![FORMAT, FORMAT_WITHOUT_CHANGES].contains(&format) {
        return Err(Fault::Unsupported(format));
    }
    // There is one way to write everything.
    let read = read(bytes, content).ok_or(Fault::Invalid)?;
    if format_of(&read.0) == format { Ok(read) } else { Err(Fault::Invalid) }
}

/// The content, if it and the header are what was written.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let mut header = Reader::new(bytes.get(..HEADER)?);
    let _magic = header.take(MAGIC.len()).filter(|magic| magic == MAGIC)?;
    let _format = header.u16()?;
    header.zeroes(2)?;
    let expected = header.u32()?;
    let _generation_database_and_incarnation = header.take(32)?;
    let length = usize::try_from(header.u64()?).ok()?;
    header.zeroes(header.left())?;
    let end = HEADER.checked_add(length)?;
    let content = bytes.get(HEADER..end)?;
    let sum = checksum(&[&bytes[..CHECKSUM.start], &bytes[CHECKSUM.end..end]]);
    // What fills the last block was written, too.
    let mut rest = Reader::new(&bytes[end..]);
    rest.zeroes((end.next_multiple_of(BLOCK) - end).min(rest.left()))?;
    (sum == expected).then_some(content)
}

fn read(bytes: &[u8], content: &[u8]) -> Option<(Manifest, u64)> {
    let mut header = Reader::new(&bytes[CHECKSUM.end..]);
    let (generation, database, incarnation) = (header.u64()?, DatabaseId(header.u128()?), header.u64()?);
    let mut content = Reader::new(content);
    let (first_log_file, durable) = (content.u64()?, content.u64()?);
    let length = content.u32()? as usize;
    let catalog = content.take(length)?.to_vec();
    let has_checkpoint = content.u8()?;
    let (number, epoch, opening) = (content.u64()?, content.u64()?, content.u64()?);
    let consistent = Order { era: content.u64()?, timestamp: content.u64()? };
    let count = content.u32()? as usize;
    if content.left() != count.checked_mul(CheckpointFile::BYTES)? || has_checkpoint > 1 {
        return None;
    }
    let mut files = Vec::with_capacity(count);
    for _ in 0..count {
        files.push(CheckpointFile::read(&mut content)?);
    }
    let read = Checkpoint { number, epoch, incarnation: opening, consistent, files };
    // A manifest without a checkpoint has zeroes in its place.
    let is_whole = has_checkpoint == 1 || read == Checkpoint::default();
    let checkpoint = (has_checkpoint == 1).then_some(read);
    let manifest = Manifest { database, incarnation, first_log_file, durable, checkpoint, catalog };
    is_whole.then_some((manifest, generation))
}

#[cfg(test)]
mod tests;
