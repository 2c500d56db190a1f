//! The bytes of one row: borrowed ([`RowRef`]) and owned ([`RowBuffer`]).

use crate::error::SchemaError;
use crate::layout::{Shape, Slot, round_up};

/// A view of a row's bytes.
///
/// No method panics whatever the bytes are: a row that was copied while it changed may hold offsets that do not fit
/// together, and its reader finds out only later. What lies outside the row reads as zero or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRef<'a> {
    bytes: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// A view of `bytes`, which begin at a multiple of 8 and whose length is one.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.as_ptr().addr().is_multiple_of(8), "rows lie at multiples of 8");
        debug_assert!(bytes.len().is_multiple_of(8), "rows are whole words");
        Self { bytes }
    }

    /// A view of whole words.
    #[inline]
    pub fn from_words(words: &'a [u64]) -> Self {
        Self { bytes: bytes_of(words) }
    }

    /// All bytes.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The `N` bytes at `offset`, or zeros when the row ends before.
    #[inline(always)]
    pub fn load<const N: usize>(self, offset: u32) -> [u8; N] {
        match self.array(offset) {
            Some(bytes) => *bytes,
            None => [0; N],
        }
    }

    /// The `N` bytes at `offset` in place, or `None` when the row ends before.
    #[inline(always)]
    pub fn array<const N: usize>(self, offset: u32) -> Option<&'a [u8; N]> {
        let offset = offset as usize;
        self.bytes.get(offset..offset + N)?.first_chunk()
    }

    /// The bits of a number of 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(crate) fn number(self, offset: u32, width: u32) -> u64 {
        match width {
            1 => u64::from(u8::from_le_bytes(self.load(offset))),
            2 => u64::from(u16::from_le_bytes(self.load(offset))),
            4 => u64::from(u32::from_le_bytes(self.load(offset))),
            _ => u64::from_le_bytes(self.load(offset)),
        }
    }

    /// Whether the column is NULL.
    #[inline(always)]
    pub fn is_null(self, slot: Slot) -> bool {
        if !slot.is_nullable() {
            return false;
        }
        let [byte] = self.load::<1>(u32::from(slot.null_bit / 8));
        byte >> (slot.null_bit % 8) & 1 != 0
    }

    /// The bytes of a fixed-width column, or none when the row ends before.
    #[inline]
    pub fn fixed(self, slot: Slot) -> &'a [u8] {
        let offset = slot.offset as usize;
        self.bytes.get(offset..offset + slot.width as usize).unwrap_or_default()
    }

    /// The bytes of a variable column, or none when offset and length lead out of the row.
    #[inline]
    pub fn variable(self, slot: Slot) -> &'a [u8] {
        let (offset, len) = split(u64::from_le_bytes(self.load(slot.offset)));
        self.bytes.get(offset..).and_then(|rest| rest.get(..len)).unwrap_or_default()
    }
}

#[inline]
fn split(pair: u64) -> (usize, usize) {
    (pair as u32 as usize, (pair >> 32) as usize)
}

#[inline]
fn join(offset: usize, len: usize) -> u64 {
    offset as u64 | (len as u64) << 32
}

#[inline]
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: every byte of an initialised `u64` is an initialised `u8`, the alignment of `u8` is smaller, and the
    // length is that of the same memory in bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[inline]
fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; any bytes form valid words, and the exclusive borrow passes on to the result.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

/// The longest valid text at the start of `bytes`.
#[inline]
pub(crate) fn text_of(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The bytes of a row that is changed within its length.
#[derive(Debug)]
pub(crate) struct RowBytes<'a>(&'a mut [u8]);

impl<'a> RowBytes<'a> {
    #[inline(always)]
    pub(crate) fn of(words: &'a mut [u64]) -> Self {
        Self(bytes_of_mut(words))
    }

    #[inline(always)]
    pub(crate) fn store(&mut self, offset: u32, value: &[u8]) {
        let offset = offset as usize;
        if let Some(place) = self.0.get_mut(offset..offset + value.len()) {
            place.copy_from_slice(value);
        } else {
            debug_assert!(false, "the row is shorter than its fixed part");
        }
    }

    #[inline(always)]
    pub(crate) fn fixed_mut(self, slot: Slot) -> &'a mut [u8] {
        let offset = slot.offset as usize;
        self.0.get_mut(offset..offset + slot.width as usize).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn set_null(&mut self, slot: Slot, null: bool) {
        if slot.is_nullable() {
            let offset = u32::from(slot.null_bit / 8);
            let mask = 1 << (slot.null_bit % 8);
            let [byte] = RowRef { bytes: self.0 }.load::<1>(offset);
            self.store(offset, &[if null { byte | mask } else { byte & !mask }]);
        }
    }
}

/// A row in memory of its own, aligned to words, that grows and is used again and again.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    /// Capacity in use; words from `len` on hold leftovers.
    words: Vec<u64>,
    /// Bytes of the row. A multiple of 8 except while a row is being built.
    len: usize,
    /// Bytes of variable columns that did not fit while a row was being built.
    excess: usize,
    /// Memory in which the variable columns are laid out afresh.
    tail: Vec<u8>,
}

impl RowBuffer {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { words: Vec::new(), len: 0, excess: 0, tail: Vec::new() }
    }

    /// Length of the row in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer holds no row.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The row's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &bytes_of(&self.words)[..self.len]
    }

    /// The row's words.
    #[inline]
    pub fn as_words(&self) -> &[u64] {
        &self.words[..self.len.div_ceil(8)]
    }

    /// The row.
    #[inline]
    pub fn as_row(&self) -> RowRef<'_> {
        RowRef { bytes: self.as_bytes() }
    }

    /// Forgets the row and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.excess = 0;
    }

    /// Takes over a copy of a row's bytes; a length that is no multiple of 8 is filled up with zeros.
    #[inline]
    pub fn copy_from(&mut self, bytes: &[u8]) {
        let words = self.overwrite_words(bytes.len().div_ceil(8));
        if let Some(last) = words.last_mut() {
            *last = 0;
        }
        bytes_of_mut(words)[..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes the row `count` words long and hands them out to be overwritten; they hold leftovers.
    #[inline]
    pub fn overwrite_words(&mut self, count: usize) -> &mut [u64] {
        if self.words.len() < count {
            self.words.resize(count, 0);
        }
        self.len = count * 8;
        self.excess = 0;
        &mut self.words[..count]
    }

    /// Builds a row: begins with zeros, lets `columns` write, and fills the last word up.
    ///
    /// # Errors
    /// The error of `columns`, or [`SchemaError::RowTooLong`]; the buffer is then empty.
    #[inline]
    pub fn build(
        &mut self,
        shape: Shape,
        columns: impl FnOnce(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        self.begin(shape);
        let result = columns(self).and_then(|()| self.finish());
        if result.is_err() {
            self.clear();
        }
        result
    }

    #[inline]
    fn begin(&mut self, shape: Shape) {
        self.overwrite_words(shape.fixed_bytes as usize / 8).fill(0);
    }

    #[inline]
    fn finish(&mut self) -> Result<(), SchemaError> {
        let (len, end) = (self.len, round_up((self.len + self.excess) as u64, 8) as usize);
        if end > crate::MAX_ROW_BYTES {
            return Err(SchemaError::RowTooLong { bytes: end });
        }
        bytes_of_mut(&mut self.words)[len..end].fill(0);
        self.len = end;
        Ok(())
    }

    /// The bytes of the row, to be changed within its length.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> RowBytes<'_> {
        let len = self.len;
        RowBytes(&mut bytes_of_mut(&mut self.words)[..len])
    }

    /// Writes the value of a fixed-width column.
    ///
    /// A row that ends before the column, which only a wrong definition can cause, is left alone.
    #[inline(always)]
    pub fn store(&mut self, offset: u32, value: &[u8]) {
        self.bytes_mut().store(offset, value);
    }

    /// The bytes of a fixed-width column, or none when the row ends before.
    #[inline]
    pub fn fixed_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.bytes_mut().fixed_mut(slot)
    }

    /// Sets or clears the NULL bit of a nullable column.
    #[inline(always)]
    pub fn set_null(&mut self, slot: Slot, null: bool) {
        self.bytes_mut().set_null(slot, null);
    }

    /// Appends the value of a variable column to a row that is being built; columns come in their order.
    ///
    /// What overflows the longest row is not appended but counted, so that [`RowBuffer::build`] reports it.
    #[inline]
    pub fn append(&mut self, slot: Slot, value: &[u8]) {
        let (start, end) = (self.len, self.len + value.len());
        if end > crate::MAX_ROW_BYTES {
            self.excess += value.len();
            return;
        }
        self.len = end;
        let count = end.div_ceil(8);
        if self.words.len() < count {
            self.words.resize(count, 0);
        }
        bytes_of_mut(&mut self.words)[start..end].copy_from_slice(value);
        self.store(slot.offset, &join(start, value.len()).to_le_bytes());
    }

    /// Replaces the value of a variable column in a finished row; the values are laid out afresh.
    ///
    /// # Errors
    /// [`SchemaError::RowTooLong`], and the row is as it was.
    pub fn replace(&mut self, shape: Shape, slot: Slot, value: &[u8]) -> Result<(), SchemaError> {
        let mut tail = std::mem::take(&mut self.tail);
        tail.clear();
        for other in variable_slots(shape) {
            let kept = if other.offset == slot.offset { value } else { self.as_row().variable(other) };
            tail.extend_from_slice(kept);
            // In an inconsistent row every column may claim all bytes; their sum must not exhaust memory.
            if tail.len() > crate::MAX_ROW_BYTES {
                break;
            }
        }
        let fixed = shape.fixed_bytes as usize;
        let len = round_up((fixed + tail.len()) as u64, 8) as usize;
        let fits = len <= crate::MAX_ROW_BYTES;
        if fits {
            let mut offset = fixed;
            for other in variable_slots(shape) {
                let kept = if other.offset == slot.offset { value } else { self.as_row().variable(other) };
                let pair = join(offset, kept.len());
                offset += kept.len();
                self.store(other.offset, &pair.to_le_bytes());
            }
            let bytes = bytes_of_mut(self.overwrite_words(len / 8));
            bytes[fixed..fixed + tail.len()].copy_from_slice(&tail);
            bytes[fixed + tail.len()..].fill(0);
        }
        self.tail = tail;
        if fits { Ok(()) } else { Err(SchemaError::RowTooLong { bytes: len }) }
    }
}

pub(crate) fn variable_slots(shape: Shape) -> impl Iterator<Item = Slot> {
    (0..shape.variable_count).map(move |index| Slot {
        offset: shape.variable_start + 8 * index,
        width: 8,
        variable: true,
        ..Slot::EMPTY
    })
}

impl<'a> RowRef<'a> {
    /// The row as words.
    ///
    /// # Panics
    /// When the bytes given to [`RowRef::new`] did not begin at a multiple of 8.
    #[inline]
    pub fn as_words(self) -> &'a [u64] {
        // SAFETY: any eight initialised bytes form a valid word.
        let (before, words, _) = unsafe { self.bytes.align_to::<u64>() };
        assert!(before.is_empty(), "rows lie at multiples of 8");
        words
    }
}

impl RowBuffer {
    /// The row's words, to be changed.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        let count = self.len.div_ceil(8);
        &mut self.words[..count]
    }
}
