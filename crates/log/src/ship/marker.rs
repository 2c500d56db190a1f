//! The file `standby`: that a directory is a standby's, and from which frame on the tables count that its manifest has.
//!
//! One block, all numbers of which are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | magic |
//! | 8–9 | format |
//! | 10–11 | zero |
//! | 12–15 | checksum of all but itself |
//! | 16–31 | incarnation and generation of the tables' mark |
//! | 32–47 | which standby it is |
//! | 48–51 | checksum of that |
//! | 52– | zero |
//!
//! The magic alone, or with anything else behind it, says that the mark is not known. Which standby it is stays the same, whatever else is written, so that
//! an interrupted write leaves it.

use polychron_base::random::unpredictable;
use polychron_engine::mutations::left_out;

use super::message::Mark;
use crate::codec::{Reader, checksum};
use crate::disk::{self, Access, BLOCK, Buffer, Cause, Disk, Files};
use crate::read::read_at;
use crate::steps::ShipStep;

pub(super) const PATH: &str = "standby";
const MAGIC: &[u8; 8] = b"plychrSF";
const FORMAT: u16 = 1;

/// Promoted standbys begin with a multiple of this.
const TERM: u64 = 1 << 16;

/// Where the bytes are that say which standby it is, and their checksum.
const IDENTITY: std::ops::Range<usize> = 32..52;

fn encode(marked: Marked, identity: &[u8]) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes[IDENTITY].copy_from_slice(identity);
    if marked == Marked::Begun {
        return bytes;
    }
    bytes[..8].copy_from_slice(MAGIC);
    let Marked::At(mark) = marked else { return bytes };
    bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&mark.incarnation.to_le_bytes());
    bytes[24..32].copy_from_slice(&mark.generation.to_le_bytes());
    let sum = checksum(&[&bytes[..12], &bytes[16..]]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    /// The standby begins anew when it is opened: it is not whole yet, or is too far behind.
    Begun,
    /// The tables' mark is not known: they were being replaced.
    Unknown,
    /// This is the tables' mark.
    At(Mark),
}

fn decode(bytes: &[u8]) -> Marked {
    // The same magic is written again and again, so an interrupted write leaves it.
    match bytes.starts_with(MAGIC) {
        false => Marked::Begun,
        true => decode_mark(bytes).map_or(Marked::Unknown, Marked::At),
    }
}

fn decode_mark(bytes: &[u8]) -> Option<Mark> {
    let mut reader = Reader::new(bytes.get(..BLOCK)?);
    reader.take(8).filter(|magic| magic == MAGIC)?;
    let (format, zero, sum) = (reader.u16()?, reader.u16()?, reader.u32()?);
    let mark = Mark { incarnation: reader.u64()?, generation: reader.u64()? };
    let is_whole = checksum(&[&bytes[..12], &bytes[16..BLOCK]]) == sum && zero == 0 && format == FORMAT;
    is_whole.then_some(mark)
}

/// Whether a directory is a standby's.
pub(crate) fn is_there<D: Disk>(files: &Files<D>) -> Result<bool, disk::Error> {
    match files.open(PATH, Access::Read) {
        Err(error) if error.cause == Cause::NotFound => Ok(false),
        file => file.map(|_| true),
    }
}

/// The content of the file.
pub(super) fn read<D: Disk>(files: &Files<D>) -> Result<Marked, disk::Error> {
    let file = files.open(PATH, Access::Read)?;
    let mut bytes = Buffer::zeroed(BLOCK);
    Ok(if read_at(&file, 0, &mut bytes)? { decode(&bytes) } else { Marked::Begun })
}

/// Makes the file, durably with its name.
pub(super) fn create<D: Disk>(files: &Files<D>) -> Result<(), disk::Error> {
    files.create(PATH, BLOCK as u64)?;
    files.sync_directory("")
}

/// Writes what the file is to say, durably. Which standby it is stays.
pub(super) fn write<D: Disk>(files: &Files<D>, marked: Marked) -> Result<(), disk::Error> {
    let mut bytes = Buffer::zeroed(BLOCK);
    read_at(&files.open(PATH, Access::Read)?, 0, &mut bytes)?;
    let block = encode(marked, &bytes[IDENTITY]);
    bytes.copy_from_slice(&block);
    let file = files.open(PATH, Access::Write)?;
    file.write_at(0, &bytes)?;
    file.sync()
}

/// Which standby it is, by a number that is drawn when it is first asked for.
pub(super) fn identity<D: Disk>(files: &Files<D>) -> Result<u128, disk::Error> {
    let mut bytes = Buffer::zeroed(BLOCK);
    read_at(&files.open(PATH, Access::Read)?, 0, &mut bytes)?;
    if let Some(identity) = decode_identity(&bytes[IDENTITY]) {
        return Ok(identity);
    }
    let (identity, marked) = (unpredictable(), decode(&bytes));
    let block = encode(marked, &encode_identity(identity));
    bytes.copy_from_slice(&block);
    let file = files.open(PATH, Access::Write)?;
    file.write_at(0, &bytes)?;
    file.sync()?;
    Ok(identity)
}

fn encode_identity(identity: u128) -> [u8; 20] {
    let (mut bytes, number) = ([0; 20], identity.to_le_bytes());
    bytes[..16].copy_from_slice(&number);
    bytes[16..].copy_from_slice(&checksum(&[&number]).to_le_bytes());
    bytes
}

fn decode_identity(bytes: &[u8]) -> Option<u128> {
    let mut reader = Reader::new(bytes);
    let (identity, sum) = (reader.u128()?, reader.u32()?);
    (identity != 0 && checksum(&[&identity.to_le_bytes()]) == sum).then_some(identity)
}

/// The incarnation of the next opening to write. That of a standby is above all that its primary will have.
pub(crate) fn next_incarnation<D: Disk>(files: &Files<D>, present: u64) -> Result<u64, disk::Error> {
    let is_promotion = is_there(files)? && !left_out(ShipStep::RaiseTerm);
    Ok(if is_promotion { (present / TERM + 1) * TERM } else { present + 1 })
}

/// The directory is durably no longer a standby's: what is in it from now on is never taken for one's.
pub(crate) fn forget<D: Disk>(files: &Files<D>) -> Result<(), disk::Error> {
    match files.remove(PATH) {
        Err(error) if error.cause == Cause::NotFound => Ok(()),
        removed => removed.and_then(|()| files.sync_directory("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of earlier versions stay readable.
    #[test]
    fn the_format_is_fixed() {
        let mark = Mark { incarnation: 3, generation: 9 };
        let identity = encode_identity(7);
        let bytes = encode(Marked::At(mark), &identity);
        assert_eq!(&bytes[..12], b"plychrSF\x01\0\0\0");
        assert_eq!(encode(Marked::Begun, &[0; 20]), [0; BLOCK], "it is made so");
        for marked in [Marked::Begun, Marked::Unknown, Marked::At(mark)] {
            let bytes = encode(marked, &identity);
            assert_eq!(decode(&bytes), marked);
            assert_eq!(decode_identity(&bytes[IDENTITY]), Some(7));
        }
        for bit in 0..8 * IDENTITY.end {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes), if bit < 64 { Marked::Begun } else { Marked::Unknown }, "bit {bit}");
            let is_changed = bit >= 8 * IDENTITY.start;
            assert_eq!(decode_identity(&bytes[IDENTITY]), (!is_changed).then_some(7), "bit {bit}");
        }
        assert_eq!(decode(&bytes[1..]), Marked::Begun);
    }
}
