//! Numbers as bytes, and bytes as numbers: little-endian, or of as few bytes as they need.

use std::fmt;

/// Tells the files of one database from those of all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(pub u128);

impl fmt::Display for DatabaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DatabaseId({self})")
    }
}

/// Bytes that are read from the beginning on. Where too few are left, the answer is `None` and nothing more can be relied on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn rest(&self) -> &'b [u8] {
        self.bytes
    }

    /// What is read between here and the place where a later reader of the same bytes is.
    #[inline]
    pub(crate) fn until(&self, later: &Self) -> Option<Self> {
        let count = self.bytes.len().checked_sub(later.bytes.len())?;
        self.bytes.get(..count).map(Self::new)
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// A number of seven bits a byte, the lowest first, as few bytes as it needs.
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        match self.bytes.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.bytes = rest;
                Some(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte has one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    /// Two of them, which are mostly small.
    #[inline]
    pub(crate) fn varints(&mut self) -> Option<(u64, u64)> {
        if let Some((&[first, second], rest)) = self.bytes.split_first_chunk()
            && first | second < 0x80
        {
            self.bytes = rest;
            return Some((first.into(), second.into()));
        }
        Some((self.varint()?, self.varint()?))
    }

    /// So many bytes that must be zero.
    pub(crate) fn zeroes(&mut self, count: usize) -> Option<()> {
        self.take(count)?.iter().all(|byte| *byte == 0).then_some(())
    }
}

/// Where encoded bytes go.
pub(crate) trait Sink {
    /// Up to eight bytes of a word, the lowest first; those above are zero.
    fn few(&mut self, word: u64, bytes: usize);

    /// Whole words.
    fn words(&mut self, words: &[u64]);

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.few(u64::from_le_bytes(*word), 8));
        if !rest.is_empty() {
            self.few(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), rest.len());
        }
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn few(&mut self, word: u64, bytes: usize) {
        self.extend_from_slice(&word.to_le_bytes()[..bytes]);
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.extend_from_slice(&word.to_le_bytes()));
    }
}

/// Writes what [`Reader::varint`] reads.
#[inline]
pub(crate) fn put_varint(sink: &mut impl Sink, mut value: u64) {
    while value >= 0x80 {
        sink.few(value & 0x7F | 0x80, 1);
        value >>= 7;
    }
    sink.few(value, 1);
}

/// Writes two of them, which are mostly small.
#[inline]
pub(crate) fn put_varints(sink: &mut impl Sink, first: u64, second: u64) {
    if first | second < 0x80 {
        sink.few(first | second << 8, 2);
    } else {
        put_varint(sink, first);
        put_varint(sink, second);
    }
}

/// A signed number as an unsigned one that is small where it is near to zero.
pub(crate) fn zigzag(value: u64) -> u64 {
    value << 1 ^ ((value as i64) >> 63) as u64
}

/// The signed number of that.
pub(crate) fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// The checksum of some bytes, one after the other.
pub(crate) fn checksum(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_is_nothing() {
        let bytes = [1, 2, 3, 0, 0];
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16(), reader.left()), (Some(1), Some(0x0302), 2));
        assert_eq!(reader.u32(), None);
        assert_eq!(reader.zeroes(2), Some(()));
        assert_eq!(reader.zeroes(1), None);
        assert_eq!(Reader::new(&bytes).zeroes(1), None);
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        for shift in 0..64 {
            for value in [(1 << shift) - 1, 1 << shift, u64::MAX >> shift, u64::MAX << shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                assert_eq!(bytes.len(), (64 - value.leading_zeros() as usize).div_ceil(7).max(1));
                let mut reader = Reader::new(&bytes);
                assert_eq!((reader.varint(), reader.left()), (Some(value), 0));
                let two = [bytes.as_slice(), &[5]].concat();
                let mut reader = Reader::new(&two);
                assert_eq!((reader.varints(), reader.left()), (Some((value, 5)), 0));
                assert_eq!(Reader::new(&bytes).varints(), None);
                assert_eq!(unzigzag(zigzag(value)), value);
            }
        }
        assert_eq!([0, 1, u64::MAX, 2].map(zigzag), [0, 2, 1, 4]);
        let too_long = [[0x80; 9].as_slice(), &[2]].concat();
        let never_ends = [0x80; 11];
        for bytes in [&[0x80][..], &[0x80, 0], &[0xFF, 0x80, 0], &too_long, &never_ends] {
            assert_eq!(Reader::new(bytes).varint(), None, "{bytes:?}");
            assert_eq!(Reader::new(&[&[0], bytes].concat()).varints(), None, "{bytes:?}");
        }
    }

    /// The value that the polynomial's inventors give for these digits.
    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(checksum(&[b"123456789"]), 0xE306_9283);
        assert_eq!(checksum(&[b"1234", b"", b"56789"]), 0xE306_9283);
    }
}
