//! The origin of a backup: which database, and up to which place of its log.
//!
//! A file of one block, which opening does not look at. All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | magic |
//! | 8–9 | format |
//! | 10–11 | zero |
//! | 12–15 | checksum of all but itself |
//! | 16–31 | database |
//! | 32–39, 40–47 | incarnation and number of the last log epoch that the copy has |
//! | 48–55, 56–63 | era and timestamp of its consistent point |
//! | 64–71 | log file in which the log behind that epoch begins, or one before |
//! | 72–79 | generation of the manifest that counted |
//! | 80–87 | when that epoch was written, in nanoseconds since 1970; 0 if nothing was |
//! | 88– | zero |

use crate::DatabaseId;
use crate::codec::{Reader, checksum};
use crate::disk::{self, Access, BLOCK, Buffer, Cause, Disk, Files};
use crate::error::Error;
use crate::flush::flusher::Framed;
use crate::frame::Order;
use crate::manifest::Manifest;

/// The file's name.
pub(crate) const PATH: &str = "origin";

const MAGIC: &[u8; 8] = b"plychrOF";
const FORMAT: u16 = 1;
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// Of which database a backup is, and up to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The database.
    pub database: DatabaseId,
    /// The opening that wrote the last epoch of the copy.
    pub incarnation: u64,
    /// That epoch.
    pub epoch: u64,
    /// Up to which order all transactions had ended before it was closed.
    pub consistent: Order,
    /// The log behind that epoch begins in this file or a later one.
    pub first_log_file: u64,
    /// The generation of the manifest that counted.
    pub manifest: u64,
    /// When the epoch was written, in nanoseconds since 1970; 0 if nothing was.
    pub written_ns: u64,
}

impl Origin {
    pub(super) fn of(manifest: &Manifest, generation: u64, last: &Framed) -> Self {
        let Framed { incarnation, epoch, consistent, written_ns, .. } = *last;
        let Manifest { database, first_log_file, .. } = *manifest;
        Self { database, incarnation, epoch, consistent, first_log_file, manifest: generation, written_ns }
    }

    /// The bytes of the file.
    pub fn encode(&self) -> [u8; BLOCK] {
        let Self { database, incarnation, epoch, consistent, first_log_file, manifest, written_ns } = *self;
        let mut bytes = [0; BLOCK];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&database.0.to_le_bytes());
        let numbers = [incarnation, epoch, consistent.era, consistent.timestamp, first_log_file, manifest, written_ns];
        for (number, into) in numbers.iter().zip(bytes[32..].chunks_exact_mut(8)) {
            into.copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&[&bytes[..CHECKSUM.start], &bytes[CHECKSUM.end..]]);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The origin in these bytes; `None` if they are not what was written.
    pub fn decode(bytes: &[u8]) -> Option<Result<Self, u16>> {
        let mut reader = Reader::new(bytes.get(..BLOCK)?);
        reader.take(8).filter(|magic| magic == MAGIC)?;
        let format = reader.u16()?;
        reader.zeroes(2)?;
        let sum = reader.u32()?;
        if checksum(&[&bytes[..CHECKSUM.start], &bytes[CHECKSUM.end..BLOCK]]) != sum {
            return None;
        }
        if format != FORMAT {
            return Some(Err(format));
        }
        let database = DatabaseId(reader.u128()?);
        let (incarnation, epoch) = (reader.u64()?, reader.u64()?);
        let consistent = Order { era: reader.u64()?, timestamp: reader.u64()? };
        let (first_log_file, manifest, written_ns) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.zeroes(reader.left())?;
        Some(Ok(Self { database, incarnation, epoch, consistent, first_log_file, manifest, written_ns }))
    }

    /// Writes the file, durably; its name is not.
    pub(super) fn write<E: Disk>(&self, to: &Files<E>) -> Result<(), Error> {
        let mut bytes = Buffer::zeroed(BLOCK);
        bytes.copy_from_slice(&self.encode());
        let file = to.create(PATH, BLOCK as u64)?;
        file.write_at(0, &bytes)?;
        Ok(file.sync()?)
    }

    /// The origin of a backup; `None` if the directory has no such file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read<D: Disk>(files: &Files<D>) -> Result<Option<Self>, Error> {
        let file = match files.open(PATH, Access::Read) {
            Err(disk::Error { cause: Cause::NotFound, .. }) => return Ok(None),
            file => file?,
        };
        let mut bytes = Buffer::zeroed(BLOCK);
        let is_long = crate::read::read_at(&file, 0, &mut bytes)?;
        match Self::decode(&bytes).filter(|_| is_long) {
            Some(Ok(origin)) => Ok(Some(origin)),
            Some(Err(format)) => Err(Error::Unsupported { file: PATH.to_owned(), format }),
            None => Err(Error::Damaged { file: PATH.to_owned(), offset: 0, reason: "it is not what was written" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            database: DatabaseId(0x0102_0304),
            incarnation: 3,
            epoch: 77,
            consistent: Order { era: 1, timestamp: 9 },
            first_log_file: 5,
            manifest: 12,
            written_ns: 1_700_000_000_000_000_000,
        }
    }

    /// Files of earlier versions stay readable.
    #[test]
    fn the_format_is_fixed() {
        let bytes = origin().encode();
        assert_eq!(&bytes[..12], b"plychrOF\x01\0\0\0");
        assert_eq!(checksum(&[&bytes]), 0x149c_5ab2);
        assert_eq!(Origin::decode(&bytes), Some(Ok(origin())));
    }

    #[test]
    fn every_bit_is_covered() {
        for bit in 0..8 * BLOCK {
            let mut bytes = origin().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Origin::decode(&bytes), None, "bit {bit}");
        }
        assert_eq!(Origin::decode(&origin().encode()[1..]), None);
    }
}
