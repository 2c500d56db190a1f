//! Changes as they come, one after the other, before their part knows of which keys they are.
//!
//! They are written where the last ones were, so that a change costs no cache miss until its part takes it in, and then among few keys. A change is its
//! table and kind in one number, which change of its transaction it is, how its timestamp differs from that of the one before, the key, and what it has:
//! encoded as in the log.

use super::part::{Incoming, Kind};
use crate::codec::{Reader, put_varint, unzigzag, zigzag};

/// How long a block becomes: the last ones of all parts lie in a cache.
pub(super) const BLOCK_BYTES: usize = 4 << 10;

const PUT: u64 = 0;
/// A patch of one range.
const PATCH: u64 = 1;
const PATCHES: u64 = 2;
const DELETE: u64 = 3;

/// Incarnation and era of an order.
pub(super) type Era = (u64, u64);

/// Changes of one part and one era.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) era: Era,
    timestamp: u64,
    bytes: Vec<u8>,
}

impl Block {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a change of this era, with so many bytes of key and content, may follow.
    #[inline]
    pub(super) fn takes(&self, era: Era, bytes: usize) -> bool {
        self.bytes.is_empty() || (self.era == era && self.bytes.len() + bytes + 64 <= BLOCK_BYTES)
    }

    /// Forgets all of it; the room stays, unless that is a long change's.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BLOCK_BYTES);
        self.timestamp = 0;
    }

    #[inline]
    pub(super) fn push(&mut self, era: Era, table: usize, change: &Incoming<'_>) {
        debug_assert!(self.takes(era, 0), "it is of another era");
        self.era = era;
        let kind = match change.kind {
            Kind::Put { .. } => PUT,
            Kind::Patch { covered: Some(_), .. } => PATCH,
            Kind::Patch { covered: None, .. } => PATCHES,
            Kind::Delete => DELETE,
        };
        let bytes = &mut self.bytes;
        put_varint(bytes, (table as u64) << 2 | kind);
        put_varint(bytes, u64::from(change.sequence));
        put_varint(bytes, zigzag(change.timestamp.wrapping_sub(self.timestamp)));
        self.timestamp = change.timestamp;
        put_varint(bytes, change.key.len() as u64);
        bytes.extend_from_slice(change.key);
        match change.kind {
            Kind::Put { words } => put_varint(bytes, u64::from(words)),
            Kind::Patch { covered: Some((first, end)), .. } => {
                put_varint(bytes, u64::from(first));
                put_varint(bytes, u64::from(end));
            }
            Kind::Patch { ranges, covered: None } => put_varint(bytes, u64::from(ranges)),
            Kind::Delete => return,
        }
        put_varint(bytes, change.bytes.len() as u64);
        bytes.extend_from_slice(change.bytes);
    }
}

/// The changes of a block, each with its table.
pub(super) struct Changes<'b> {
    reader: Reader<'b>,
    timestamp: u64,
}

impl<'b> Changes<'b> {
    /// Those that [`Block::push`] has written.
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        Self { reader: Reader::new(bytes), timestamp: 0 }
    }

    #[inline]
    fn read(&mut self) -> Option<(usize, Incoming<'b>)> {
        let reader = &mut self.reader;
        let (head, sequence) = (reader.varint()?, reader.varint()? as u32);
        self.timestamp = self.timestamp.wrapping_add(unzigzag(reader.varint()?));
        let length = reader.varint()? as usize;
        let key = reader.take(length)?;
        let kind = match head & 3 {
            PUT => Kind::Put { words: reader.varint()? as u32 },
            PATCH => Kind::Patch { ranges: 1, covered: Some((reader.varint()? as u32, reader.varint()? as u32)) },
            PATCHES => Kind::Patch { ranges: reader.varint()? as u32, covered: None },
            _ => Kind::Delete,
        };
        let length = if kind == Kind::Delete { 0 } else { reader.varint()? as usize };
        let bytes = reader.take(length)?;
        Some(((head >> 2) as usize, Incoming { timestamp: self.timestamp, sequence, key, kind, bytes }))
    }
}

impl<'b> Iterator for Changes<'b> {
    type Item = (usize, Incoming<'b>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.left() == 0 {
            return None;
        }
        let change = self.read();
        assert!(change.is_some(), "it was written here");
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let kinds = [
            Kind::Put { words: 500 },
            Kind::Delete,
            Kind::Patch { ranges: 1, covered: Some((3, 700)) },
            Kind::Patch { ranges: 2, covered: None },
        ];
        let bytes = [7; 300];
        let change = |number: usize| {
            let kind = kinds[number % 4];
            let length = if kind == Kind::Delete { 0 } else { number * 31 % 300 };
            let timestamp = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let key = &bytes[..number % 20];
            (number * 3, Incoming { timestamp, sequence: number as u32, key, kind, bytes: &bytes[..length] })
        };
        let mut block = Block::default();
        let count = (0..).take_while(|&number| {
            let (table, change) = change(number);
            let takes = block.takes((1, 2), change.key.len() + change.bytes.len());
            if takes {
                block.push((1, 2), table, &change);
            }
            takes
        });
        let count = count.count();
        assert!(count > 10 && block.bytes().len() <= BLOCK_BYTES && !block.takes((1, 3), 0));
        assert!(Changes::of(block.bytes()).eq((0..count).map(change)));
        block.clear();
        assert!(block.takes((9, 9), 1 << 20) && Changes::of(block.bytes()).next().is_none());
    }
}
