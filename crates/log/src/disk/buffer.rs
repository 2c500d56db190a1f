//! Memory that can be read into and written from without passing through the system's cache.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The unit of files, in bytes: offsets and lengths are multiples of it, and buffers are aligned to it.
pub const BLOCK: usize = 4096;

/// Whole blocks of bytes, aligned to [`BLOCK`].
pub struct Buffer {
    /// As many bytes as there are, and one block more, so that an aligned byte is among the first.
    memory: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// So many zero bytes, rounded up to whole blocks.
    pub fn zeroed(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK);
        let memory = vec![0; bytes + BLOCK].into_boxed_slice();
        // An interpreter may not know the offset; then nothing is asked of the alignment either, because no file is opened.
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { memory, start, bytes }
    }

    /// So many arbitrary bytes, rounded up to whole blocks, where these are if there is room.
    pub(crate) fn resized(self, bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK);
        if self.start + bytes <= self.memory.len() { Self { bytes, ..self } } else { Self::zeroed(bytes) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Buffer({} bytes)", self.bytes)
    }
}

/// Why these bytes, at this offset, cannot be read or written; `None` if they can.
pub(super) fn misaligned(offset: u64, bytes: &[u8]) -> Option<&'static str> {
    let block = BLOCK as u64;
    if !offset.is_multiple_of(block) {
        Some("the offset is not a multiple of a block")
    } else if bytes.is_empty() || !bytes.len().is_multiple_of(BLOCK) {
        Some("the length is not a multiple of a block")
    } else if !bytes.as_ptr().addr().is_multiple_of(BLOCK) {
        Some("the buffer is not aligned to a block")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_whole_blocks() {
        for bytes in [0, 1, BLOCK, BLOCK + 1, 100 * BLOCK] {
            let mut buffer = Buffer::zeroed(bytes);
            assert_eq!(buffer.len(), bytes.next_multiple_of(BLOCK));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert!(bytes == 0 || misaligned(0, &buffer).is_none());
            for other in [bytes / 2, bytes, 2 * bytes] {
                buffer = buffer.resized(other);
                assert_eq!(buffer.len(), other.next_multiple_of(BLOCK));
                assert!(other == 0 || misaligned(0, &buffer).is_none());
            }
        }
    }

    #[test]
    fn what_is_not_aligned_is_refused() {
        let buffer = Buffer::zeroed(3 * BLOCK);
        assert!(misaligned(1, &buffer).is_some());
        assert!(misaligned(0, &buffer[..BLOCK + 1]).is_some());
        assert!(misaligned(0, &buffer[..0]).is_some());
        assert!(misaligned(0, &buffer[512..512 + BLOCK]).is_some());
        assert!(misaligned(0, &buffer[BLOCK..]).is_none());
    }
}
