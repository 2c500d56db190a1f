//! Bytes taken for numbers, texts and keys. Where they end everything is zero, so every input means something.

/// What is left of the input.
pub(crate) struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let count = N.min(self.0.len());
        taken[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        taken
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(crate) fn wide(&mut self) -> u128 {
        u128::from_le_bytes(self.take())
    }

    /// A character of as many bytes as may be.
    pub(crate) fn character(&mut self) -> char {
        let number = self.number() as u32;
        char::from_u32(number >> (number % 29)).unwrap_or('ä')
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    pub(crate) fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| read(self))
    }

    /// Up to `most` bytes.
    pub(crate) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes.to_vec()
    }

    /// Text with bytes that escaping must handle; what is no character is replaced.
    pub(crate) fn text(&mut self, most: usize) -> String {
        String::from_utf8_lossy(&self.bytes(most)).into_owned()
    }

    /// A key that likes to collide: short ones, runs of equal bytes around the ends of slices, long common beginnings, and
    /// the longest there are.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        let (shape, fill, last) = (self.byte(), self.byte(), self.byte());
        let fill = [0, 1, b'a', 255][usize::from(fill % 4)];
        let mut key = match shape % 8 {
            0..=2 => return self.bytes(9),
            3 => vec![fill; usize::from(shape / 8)],
            4 | 5 => vec![fill; [7, 8, 9, 15, 16, 17, 24, 25][usize::from(shape / 8 % 8)]],
            6 => vec![fill; 1024 - usize::from(shape / 8 % 9)],
            _ => (0..shape / 8).map(|at| at % 3).collect(),
        };
        if let Some(end) = key.last_mut() {
            *end = last % 4;
        }
        key
    }
}
