//! Keys that a running transaction keeps in an arena of words, beside whatever else it keeps there.

use polychron_base::key::EncodedKey;
use polychron_schema::RowRef;

/// A kept key. The words of the arena hold its bytes in memory order, so that they can be lent as a byte slice. The default is an empty key.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeySpan {
    offset: u32,
    bytes: u16,
}

impl KeySpan {
    /// Appends a key to an arena.
    #[inline]
    pub fn keep<K: EncodedKey>(arena: &mut Vec<u64>, key: K) -> Self {
        let offset = arena.len() as u32;
        arena.extend((0..key.len().div_ceil(8)).map(|index| key.slice(index).to_be()));
        Self { offset, bytes: key.len() as u16 }
    }

    /// Its offset in its arena, in words.
    #[inline]
    pub fn offset(self) -> usize {
        self.offset as usize
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        usize::from(self.bytes)
    }

    /// Whether it has no bytes, as where no key was kept.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// Its words in its arena.
    #[inline]
    pub fn words(self, arena: &[u64]) -> &[u64] {
        &arena[self.offset()..][..self.len().div_ceil(8)]
    }

    /// Its bytes in its arena.
    #[inline]
    pub fn bytes(self, arena: &[u64]) -> &[u8] {
        &RowRef::from_words(self.words(arena)).as_bytes()[..self.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_keys_are_as_they_were() {
        let mut arena = vec![7];
        let keys: [&[u8]; 4] = [b"", b"a", b"12345678", b"a key of some words"];
        let spans = keys.map(|key| KeySpan::keep(&mut arena, key));
        for (span, key) in spans.into_iter().zip(keys) {
            assert_eq!(span.bytes(&arena), key);
            assert_eq!((span.len(), span.is_empty()), (key.len(), key.is_empty()));
        }
        assert_eq!(spans.map(KeySpan::offset), [1, 1, 2, 3]);
        assert_eq!(KeySpan::default().bytes(&arena), b"");
    }
}
