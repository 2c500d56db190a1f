//! Bytes that are kept until all of them go at once.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// How long the first block is, and up to which length each one is twice as long as the one before.
const FIRST_BYTES: usize = 4 << 10;
const MOST_BYTES: usize = 1 << 20;
/// Bytes in an arena may be overwritten by slightly more.
const UNIT: usize = 8;

/// Blocks that are as long as this are the system's own pages, which it has again as soon as they are not needed. An allocator would keep them.
const MAPPED_BYTES: usize = 64 << 10;

/// Blocks of bytes, filled one after the other.
#[derive(Debug, Default)]
pub(super) struct Arena {
    blocks: Vec<Memory>,
    /// How much of the last one is filled.
    filled: usize,
    bytes: usize,
}

/// Zeroes at first.
#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Pages(MmapMut),
}

impl Memory {
    fn zeroed(bytes: usize) -> Self {
        let pages = (bytes >= MAPPED_BYTES && !cfg!(miri)).then(|| MmapOptions::new().len(bytes).map_anon().ok());
        pages.flatten().map_or_else(|| Self::Heap(vec![0; bytes]), Self::Pages)
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}

/// Where some bytes lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    block: u32,
    offset: u32,
    length: u32,
}

impl Span {
    pub(super) const BYTES: usize = 12;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (part, number) in bytes.as_chunks_mut().0.iter_mut().zip([self.block, self.offset, self.length]) {
            *part = number.to_le_bytes();
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = |at: usize| bytes.as_chunks().0.get(at).map_or(0, |part| u32::from_le_bytes(*part));
        Self { block: number(0), offset: number(1), length: number(2) }
    }

    /// How many bytes there is room for.
    fn room(self) -> usize {
        (self.length as usize).next_multiple_of(UNIT)
    }
}

impl Arena {
    /// The memory that the blocks take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, span: Span) -> &[u8] {
        let block = self.blocks.get(span.block as usize).map_or(&[][..], |block| block);
        &block[span.offset as usize..][..span.length as usize]
    }

    /// Keeps a copy of bytes, which come from a frame, and so are few enough for the numbers of a span.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Span {
        let room = bytes.len().next_multiple_of(UNIT);
        if self.blocks.last().is_none_or(|block| block.len() - self.filled < room) {
            let usual = FIRST_BYTES << self.blocks.len().min(8);
            let block = Memory::zeroed(usual.min(MOST_BYTES).max(room));
            self.bytes += block.len();
            self.blocks.push(block);
            self.filled = 0;
        }
        let (number, offset) = (self.blocks.len() - 1, self.filled);
        self.blocks[number][offset..offset + bytes.len()].copy_from_slice(bytes);
        self.filled += room;
        Span { block: number as u32, offset: offset as u32, length: bytes.len() as u32 }
    }

    /// Keeps a copy of bytes over others that are no longer needed, if there is room.
    pub(super) fn replace(&mut self, span: Span, bytes: &[u8]) -> Span {
        if bytes.is_empty() {
            return Span { length: 0, ..span };
        }
        if bytes.len() > span.room() {
            return self.push(bytes);
        }
        self.blocks[span.block as usize][span.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Span { length: bytes.len() as u32, ..span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_they_were() {
        let mut arena = Arena::default();
        let texts: Vec<Vec<u8>> = (0..2000).map(|number| vec![number as u8; number * 7 % 300]).collect();
        let spans: Vec<Span> = texts.iter().map(|text| arena.push(text)).collect();
        let huge = arena.push(&vec![7; 3 * MOST_BYTES]);
        for (text, span) in texts.iter().zip(&spans) {
            assert_eq!(arena.get(*span), text);
        }
        assert_eq!(arena.get(huge).len(), 3 * MOST_BYTES);
        let bytes: usize = texts.iter().map(|text| text.len() + UNIT).sum();
        assert!(arena.bytes() >= bytes - 2000 * UNIT && arena.bytes() < 2 * bytes + 5 * MOST_BYTES);
    }

    #[test]
    fn room_is_used_again() {
        let mut arena = Arena::default();
        let span = arena.push(b"abcde");
        let other = arena.push(b"other");
        let before = arena.bytes();
        let span = (0..10_000).fold(span, |span, _| arena.replace(span, b"12345678"));
        assert_eq!((arena.get(span), arena.get(other), arena.bytes()), (&b"12345678"[..], &b"other"[..], before));
        let span = arena.replace(span, b"1");
        assert_eq!(arena.get(Span::from_bytes(span.to_bytes())), b"1");
        let span = arena.replace(span, b"123456789");
        assert_eq!((arena.get(span), arena.get(other)), (&b"123456789"[..], &b"other"[..]));
    }
}
