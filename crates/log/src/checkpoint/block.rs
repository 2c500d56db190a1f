//! The blocks of checkpoint files: a header with a checksum, and rows or records.
//!
//! A block begins where the one before ends, and fills whole blocks of the disk. All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | magic |
//! | 8–9 | format |
//! | 10 | what the content is: 0 rows, 1 records, 2 changes |
//! | 11 | how many bits of their keys' hashes the rows have in common |
//! | 12–15 | checksum of the header, but for itself, and of the content |
//! | 16–31 | database |
//! | 32–39 | number of the checkpoint |
//! | 40–43, 44–47 | table, part of it; of records and changes both are 0, as are the bits |
//! | 48–55 | number of the block in its file |
//! | 56–59 | bytes of content |
//! | 60–63 | how many rows, records or changes |
//! | 64–67 | checksum of the block before; 0 in the first one |
//! | 68–71 | these bits |
//! | 72–95 | zero |
//! | 96– | the content, then zeroes up to the end of a block of the disk |
//!
//! Rows are written as the log's `Put`, records as in frames, changes as in a record. All bits are covered. Database, checkpoint, table, part and number tell a block that was
//! written to a wrong place or left from before, the checksum of the block before one that was lost, and the length and last checksum of the file, which
//! the manifest has, that nothing is missing at its end.

use super::Contents;
use crate::DatabaseId;
use crate::codec::{Reader, checksum};
use crate::disk::BLOCK;
use crate::frame::{MAX_CONTENT_BYTES, Malformed, Record, Records, read_put};

/// How much content a block has, in bytes, but for one with a single longer row or record.
pub const CONTENT_BYTES: usize = (1 << 20) - HEADER;

const MAGIC: &[u8; 8] = b"plychrCB";
/// Changes whenever header or content do. The first sixteen bytes stay.
const FORMAT: u16 = 2;
const HEADER: usize = 96;
/// Where the checksum is.
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// Where a block is, and what it follows: what a reader knows of it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose checkpoint it is in.
    pub database: DatabaseId,
    /// The number of the checkpoint that its file was written for.
    pub checkpoint: u64,
    /// The content of the file.
    pub contents: Contents,
    /// The number of the block in its file.
    pub block: u64,
    /// The checksum of the block before; 0 in the first one.
    pub before: u32,
}

/// Why bytes are not the block that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The block is not what was written.
    #[error("a block is damaged")]
    Damaged,
    /// It is whole, and another version wrote it.
    #[error("a block has format {0}, which is not known")]
    Unsupported(u16),
    /// It is whole, and belongs to another place, another file or another database.
    #[error("a block belongs elsewhere")]
    Misplaced,
    /// The bytes end before the block does.
    #[error("a block is cut off")]
    Cut,
}

/// A block that was read and checked.
#[derive(Clone, Copy, Debug)]
pub struct Block<'b> {
    /// Its checksum: what the next one has as [`Place::before`].
    pub checksum: u32,
    /// How many bytes it takes, whole blocks of the disk.
    pub bytes: usize,
    /// How many rows or records it has.
    pub count: u32,
    content: &'b [u8],
    contents: Contents,
}

impl<'b> Block<'b> {
    /// Reads the block that the bytes begin with. Allocates nothing.
    ///
    /// # Errors
    /// [`Fault`], what is wrong first.
    pub fn decode(bytes: &'b [u8], place: &Place) -> Result<Self, Fault> {
        Self::check(bytes, place)?;
        Self::of_checked(bytes, place).ok_or(Fault::Damaged)
    }

    /// Whether the bytes begin with the block of this place.
    pub(super) fn check(bytes: &[u8], place: &Place) -> Result<(), Fault> {
        let whole = bytes.get(..Self::peek(bytes)?).ok_or(Fault::Cut)?;
        let parts = read_header(whole).ok_or(Fault::Damaged)?;
        let end = HEADER + parts.content;
        if checksum(&[&whole[..CHECKSUM.start], &whole[CHECKSUM.end..end]]) != parts.checksum {
            return Err(Fault::Damaged);
        }
        if parts.format != FORMAT {
            return Err(Fault::Unsupported(parts.format));
        }
        if whole[end..].iter().any(|byte| *byte != 0) {
            return Err(Fault::Damaged);
        }
        if parts.place.ok_or(Fault::Damaged)? == *place { Ok(()) } else { Err(Fault::Misplaced) }
    }

    /// The block of bytes that [`check`](Self::check) has found right.
    pub(super) fn of_checked(bytes: &'b [u8], place: &Place) -> Option<Self> {
        let Parts { checksum, count, content, .. } = read_header(bytes)?;
        let bytes_of = bytes_of(content);
        let content = bytes.get(HEADER..HEADER + content)?;
        Some(Self { checksum, bytes: bytes_of, count, content, contents: place.contents })
    }

    /// How many bytes the block takes that begins so, if it is one. It is not checked.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn peek(first: &[u8]) -> Result<usize, Fault> {
        let first = first.get(..BLOCK).ok_or(Fault::Cut)?;
        let parts = read_header(first).ok_or(Fault::Damaged)?;
        Ok(bytes_of(parts.content))
    }

    /// The rows, if these are its contents.
    pub fn rows(&self) -> Rows<'b> {
        match self.contents {
            Contents::Rows { table, .. } => Rows::new(table, self.content, self.count),
            Contents::Records | Contents::Changes => Rows::new(0, &[], 0),
        }
    }

    /// The records, if these are.
    pub fn records(&self) -> Records<'b> {
        let is_records = self.contents == Contents::Records;
        let (content, count) = if is_records { (self.content, self.count) } else { (&[][..], 0) };
        Records::new(content, count)
    }

    /// The changes, if these are, as a record that is before all others.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn changes(&self) -> Result<Option<Record<'b>>, Malformed> {
        if self.contents != Contents::Changes {
            return Ok(None);
        }
        let (record, mut count) = (Record::before_all(self.content), 0);
        for change in record.changes() {
            change?;
            count += 1;
        }
        if count == self.count { Ok(Some(record)) } else { Err(Malformed) }
    }
}

/// The rows of a block.
#[derive(Clone, Debug)]
pub struct Rows<'b> {
    table: u32,
    reader: Reader<'b>,
    left: u32,
}

impl<'b> Rows<'b> {
    /// So many rows of a table, of which nothing is believed.
    pub fn new(table: u32, content: &'b [u8], count: u32) -> Self {
        Self { table, reader: Reader::new(content), left: count }
    }

    /// The table of all of them.
    pub fn table(&self) -> u32 {
        self.table
    }

    /// Appends the words of the next row, and answers how it is encoded: another block of its table may have the same bytes.
    #[inline]
    pub(crate) fn next_into(&mut self, words: &mut Vec<u64>) -> Option<Result<&'b [u8], Malformed>> {
        let before = self.reader.rest();
        if before.is_empty() && self.left == 0 {
            return None;
        }
        // One too many, and one too few.
        let is_read = self.left > 0 && read_put(&mut self.reader, self.table, words).is_some();
        if !is_read {
            *self = Self::new(self.table, &[], 0);
            return Some(Err(Malformed));
        }
        self.left -= 1;
        Some(Ok(&before[..before.len() - self.reader.left()]))
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Vec<u64>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut words = Vec::new();
        self.next_into(&mut words).map(|read| read.map(|_| words))
    }
}

/// The header in the first bytes.
struct Parts {
    format: u16,
    checksum: u32,
    /// `None` if no such place can be.
    place: Option<Place>,
    content: usize,
    count: u32,
}

fn read_header(bytes: &[u8]) -> Option<Parts> {
    let mut reader = Reader::new(bytes.get(..HEADER)?);
    reader.take(MAGIC.len()).filter(|magic| magic == MAGIC)?;
    let (format, kind, bits, checksum) = (reader.u16()?, reader.u8()?, reader.u8()?, reader.u32()?);
    let (database, number) = (DatabaseId(reader.u128()?), reader.u64()?);
    let (table, part, block) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let (content, count, before) = (reader.u32()? as usize, reader.u32()?, reader.u32()?);
    let prefix = reader.u32()?;
    let is_filled = reader.zeroes(reader.left()).is_some();
    let place = Contents::of(kind, table, part, bits, prefix).filter(|_| is_filled).map(|contents| Place {
        database,
        checkpoint: number,
        contents,
        block,
        before,
    });
    (content <= MAX_CONTENT_BYTES).then_some(Parts { format, checksum, place, content, count })
}

/// Writes a block of so many rows or records into a buffer that is as long as [`bytes_of`] says, or longer. Answers its checksum, which the next one has
/// as [`Place::before`], and its length.
///
/// # Panics
/// When the buffer is too short or the content too long.
pub fn encode(place: &Place, content: &[u8], count: u32, into: &mut [u8]) -> (u32, usize) {
    let length = bytes_of(content.len());
    let into = &mut into[..length];
    let (kind, table, part, bits, prefix) = place.contents.numbers();
    into[..HEADER].fill(0);
    into[..MAGIC.len()].copy_from_slice(MAGIC);
    into[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    (into[10], into[11]) = (kind, bits);
    into[16..32].copy_from_slice(&place.database.0.to_le_bytes());
    into[32..40].copy_from_slice(&place.checkpoint.to_le_bytes());
    into[40..44].copy_from_slice(&table.to_le_bytes());
    into[44..48].copy_from_slice(&part.to_le_bytes());
    into[48..56].copy_from_slice(&place.block.to_le_bytes());
    into[56..60].copy_from_slice(&(content.len() as u32).to_le_bytes());
    into[60..64].copy_from_slice(&count.to_le_bytes());
    into[64..68].copy_from_slice(&place.before.to_le_bytes());
    into[68..72].copy_from_slice(&prefix.to_le_bytes());
    let end = HEADER + content.len();
    into[HEADER..end].copy_from_slice(content);
    into[end..].fill(0);
    let sum = checksum(&[&into[..CHECKSUM.start], &into[CHECKSUM.end..end]]);
    into[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    (sum, length)
}

/// How many bytes a block with so much content takes, whole blocks of the disk.
pub fn bytes_of(content: usize) -> usize {
    assert!(content <= MAX_CONTENT_BYTES, "a block has up to {MAX_CONTENT_BYTES} bytes of content");
    (HEADER + content).next_multiple_of(BLOCK)
}
