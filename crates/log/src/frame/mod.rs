//! A frame, which one flush of the log writes: a header with checksums, and records.
//!
//! A frame begins at a block and fills whole ones. All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | magic |
//! | 8–9 | format |
//! | 10 | codec of the content, 0: as it is |
//! | 11 | zero |
//! | 12–15 | checksum of the header, but for itself, and of the checksums behind it |
//! | 16–31 | database |
//! | 32–39 | incarnation |
//! | 40–47, 48–55 | number of the file, offset in it |
//! | 56–63 | first epoch of its records: the one behind the last epoch that the frames before have whole |
//! | 64–71 | the last epoch that is whole with this frame; below the first one if that goes on in the next frame |
//! | 72–79 | the last epoch of frames that were durable when this was written |
//! | 80–87, 88–95 | era and timestamp of the consistent point: all that is ordered up to here ended in these epochs or before |
//! | 96–103 | generation of the manifest that counted |
//! | 104–111 | wall clock, in nanoseconds since 1970 |
//! | 112–115 | bytes of content |
//! | 116–119 | how many records |
//! | 120–123 | checksum of the header of the frame before; 0 in the first one of an incarnation |
//! | 124–127 | zero |
//! | 128– | a checksum for each 64 KiB of content, then the content, then zeroes up to the end of a block |
//!
//! File and offset tell a block that was written to a wrong place, database and incarnation one that was left from before, and the checksum of the frame
//! before one that was lost. The generation tells that a manifest has gone that had counted. All bits are covered: whichever one is wrong, the frame is
//! refused.

mod edit;
mod pieces;
mod record;

pub(crate) use edit::Edit;
pub use edit::{MAX_ROW_WORDS, Refused};
pub(crate) use pieces::Pieces;
pub use record::{Body, Change, Changes, Malformed, Piece, Ranges, Record, Records, Words, Writer};
pub(crate) use record::{FRONT_BYTES, changes_of, read_put};

pub use polychron_engine::redo::Order;

use crate::DatabaseId;
use crate::codec::{Reader, checksum};
use crate::disk::BLOCK;

/// How long the content of a frame may be, in bytes.
pub const MAX_CONTENT_BYTES: usize = 32 << 20;

/// How much content a checksum covers, in bytes.
const CHUNK: usize = 64 << 10;
const MAGIC: &[u8; 8] = b"plychrLF";
/// Changes whenever header or content do. The first sixteen bytes stay.
const FORMAT: u16 = 2;
const HEADER: usize = 128;
/// Where the header's checksum is.
const CHECKSUM: std::ops::Range<usize> = 12..16;

// Header and checksums lie in the first block, so that reading that one tells how long the frame is.
const _: () = assert!(HEADER + MAX_CONTENT_BYTES.div_ceil(CHUNK) * 4 <= BLOCK);

/// Where a frame is: what a reader knows of it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose log it is in.
    pub database: DatabaseId,
    /// The number of the log file.
    pub file: u64,
    /// The byte of the file that it begins at.
    pub offset: u64,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where it is.
    pub place: Place,
    /// The opening of the database that wrote it.
    pub incarnation: u64,
    /// The first epoch of its records: the one behind the last epoch that the frames before have whole.
    pub first_epoch: u64,
    /// The last epoch that is whole with this frame; below the first one if that goes on in the next frame.
    pub last_epoch: u64,
    /// The last epoch of the frames that were durable when this was written.
    pub durable: u64,
    /// Up to which order all transactions had ended: era and timestamp.
    pub consistent: Order,
    /// The generation of the manifest that counted.
    pub manifest: u64,
    /// The wall clock, in nanoseconds since 1970.
    pub written_ns: u64,
    /// The checksum of the header of the frame before; 0 in the first one of an incarnation.
    pub before: u32,
}

/// Why bytes are not the frame that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There was never a frame here.
    #[error("no frame begins here")]
    Empty,
    /// The header is not what was written.
    #[error("the header is damaged")]
    Header,
    /// It is whole, and another version wrote it.
    #[error("the frame has format {0}, which is not known")]
    Unsupported(u16),
    /// It is whole, and belongs to another place or another database.
    #[error("the frame belongs elsewhere")]
    Misplaced(Place),
    /// The bytes end before the frame does.
    #[error("the frame is cut off")]
    Cut,
    /// The content is not what was written.
    #[error("the content is damaged from byte {0} of the frame on")]
    Content(usize),
}

/// A frame that was read and checked.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'b> {
    /// Its header.
    pub header: Header,
    /// The checksum of its header: what the next one has as [`Header::before`].
    pub checksum: u32,
    /// How many bytes it takes, whole blocks.
    pub bytes: usize,
    records: u32,
    content: &'b [u8],
}

impl<'b> Frame<'b> {
    /// Reads the frame that the bytes begin with. Allocates nothing.
    ///
    /// # Errors
    /// [`Fault`], what is wrong first.
    pub fn decode(bytes: &'b [u8], place: Place) -> Result<Self, Fault> {
        let first = bytes.get(..BLOCK).ok_or(Fault::Cut)?;
        if first.iter().all(|byte| *byte == 0) {
            return Err(Fault::Empty);
        }
        let parts = checked_header(first)?;
        if parts.header.place != place {
            return Err(Fault::Misplaced(parts.header.place));
        }
        let start = HEADER + parts.sums.len();
        let end = start + parts.content;
        let whole = bytes.get(..end.next_multiple_of(BLOCK)).ok_or(Fault::Cut)?;
        let content = &whole[start..end];
        for (number, (chunk, sum)) in content.chunks(CHUNK).zip(parts.sums.chunks_exact(4)).enumerate() {
            if checksum(&[chunk]).to_le_bytes() != sum {
                return Err(Fault::Content(start + number * CHUNK));
            }
        }
        if whole[end..].iter().any(|byte| *byte != 0) {
            return Err(Fault::Content(end));
        }
        let Parts { header, checksum, records, .. } = parts;
        Ok(Self { header, checksum, bytes: whole.len(), records, content })
    }

    /// The frame of bytes that [`decode`](Self::decode) has found right: the content is not checked again.
    pub(crate) fn of_checked(bytes: &'b [u8]) -> Option<Self> {
        let Parts { header, checksum, content, records, sums } = checked_header(bytes.get(..BLOCK)?).ok()?;
        let start = HEADER + sums.len();
        let content = bytes.get(start..start + content)?;
        Some(Self { header, checksum, bytes: (start + content.len()).next_multiple_of(BLOCK), records, content })
    }

    /// The header of the frame whose first block this is, and how many bytes the frame takes, if its header is whole.
    ///
    /// # Errors
    /// [`Fault`]. The place is not compared.
    pub fn peek(first: &[u8]) -> Result<(Header, usize), Fault> {
        let first = first.get(..BLOCK).ok_or(Fault::Cut)?;
        if first.iter().all(|byte| *byte == 0) {
            return Err(Fault::Empty);
        }
        let parts = checked_header(first)?;
        Ok((parts.header, (HEADER + parts.sums.len() + parts.content).next_multiple_of(BLOCK)))
    }

    /// The checksum of the frame whose first block this is and whose header is whole.
    pub(crate) fn checksum_of(first: &[u8]) -> u32 {
        checked_header(first).map_or(0, |parts| parts.checksum)
    }

    /// The records, in the order in which they were written.
    pub fn records(&self) -> Records<'b> {
        Records::new(self.content, self.records)
    }
}

/// The content of the first block.
struct Parts<'b> {
    header: Header,
    checksum: u32,
    content: usize,
    records: u32,
    sums: &'b [u8],
}

fn checked_header(first: &[u8]) -> Result<Parts<'_>, Fault> {
    let (mut reader, damaged) = (Reader::new(first), Fault::Header);
    let magic = reader.take(MAGIC.len()).ok_or(damaged)?;
    let format = reader.u16().ok_or(damaged)?;
    let codec = reader.u16().ok_or(damaged)?;
    let sum = reader.u32().ok_or(damaged)?;
    if magic != MAGIC {
        return Err(damaged);
    }
    let parts = read_header(reader, first, sum).ok_or(damaged)?;
    let end = HEADER + parts.sums.len();
    if checksum(&[&first[..CHECKSUM.start], &first[CHECKSUM.end..end]]) != sum {
        return Err(damaged);
    }
    if format != FORMAT || codec != 0 {
        return Err(Fault::Unsupported(format));
    }
    Ok(parts)
}

fn read_header<'b>(mut reader: Reader<'b>, first: &'b [u8], checksum: u32) -> Option<Parts<'b>> {
    let database = DatabaseId(reader.u128()?);
    let incarnation = reader.u64()?;
    let place = Place { database, file: reader.u64()?, offset: reader.u64()? };
    let (first_epoch, last_epoch, durable) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let consistent = Order { era: reader.u64()?, timestamp: reader.u64()? };
    let (manifest, written_ns) = (reader.u64()?, reader.u64()?);
    let (content, records, before) = (reader.u32()? as usize, reader.u32()?, reader.u32()?);
    reader.zeroes(4)?;
    if content > MAX_CONTENT_BYTES {
        return None;
    }
    let sums = first.get(HEADER..HEADER + 4 * content.div_ceil(CHUNK))?;
    let header =
        Header { place, incarnation, first_epoch, last_epoch, durable, consistent, manifest, written_ns, before };
    Some(Parts { header, checksum, content, records, sums })
}

/// Writes a frame of some records into a buffer of whole blocks that is as long as [`frame_bytes`] says, or longer. Answers its checksum, which the next
/// one has as [`Header::before`], and its length.
///
/// # Panics
/// When the buffer is too short or the content too long: [`Writer`] keeps it within its limit.
pub fn encode(header: &Header, records: &Writer, into: &mut [u8]) -> (u32, usize) {
    let content = records.content();
    let length = frame_bytes(content.len());
    let into = &mut into[..length];
    into.fill(0);
    into[..MAGIC.len()].copy_from_slice(MAGIC);
    into[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    let Header { place, incarnation, first_epoch, last_epoch, durable, consistent, manifest, written_ns, .. } = *header;
    into[16..32].copy_from_slice(&place.database.0.to_le_bytes());
    let numbers = [
        incarnation,
        place.file,
        place.offset,
        first_epoch,
        last_epoch,
        durable,
        consistent.era,
        consistent.timestamp,
        manifest,
        written_ns,
    ];
    for (number, bytes) in numbers.iter().zip(into[32..112].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    for (number, bytes) in
        [content.len() as u32, records.count(), header.before].iter().zip(into[112..124].chunks_exact_mut(4))
    {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    let start = HEADER + 4 * content.len().div_ceil(CHUNK);
    for (chunk, sum) in content.chunks(CHUNK).zip(into[HEADER..start].chunks_exact_mut(4)) {
        sum.copy_from_slice(&checksum(&[chunk]).to_le_bytes());
    }
    into[start..start + content.len()].copy_from_slice(content);
    let sum = checksum(&[&into[..CHECKSUM.start], &into[CHECKSUM.end..start]]);
    into[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    (sum, length)
}

/// How many bytes a frame with so much content takes, whole blocks.
pub fn frame_bytes(content: usize) -> usize {
    assert!(content <= MAX_CONTENT_BYTES, "a frame has up to {MAX_CONTENT_BYTES} bytes of content");
    (HEADER + 4 * content.div_ceil(CHUNK) + content).next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests;
