//! Keys: values whose encoded bytes sort as the values do.
//!
//! The rules, which the typed and the dynamic API share: integers are big-endian in their natural width with the sign
//! bit flipped; floating-point numbers follow [`f64::total_cmp`]; strings and bytes of fixed width are taken as they
//! are; those of variable width are escaped unless nothing can follow them; `Option` puts a byte before the value (0 for
//! NULL, 1 otherwise), so that NULL sorts first.

use std::mem::MaybeUninit;

use polychron_base::key::{EncodedKey, Key8, Key16, MAX_KEY_BYTES};

use crate::ColumnType;
use crate::error::SchemaError;

/// A destination of the bytes of a key: registers or memory.
#[doc(hidden)]
pub trait KeySink {
    /// Appends the low `bytes` bytes of `value`, at most 8, the highest first.
    fn integer(&mut self, value: u64, bytes: usize);

    /// Appends a number of 16 bytes.
    #[inline(always)]
    fn wide(&mut self, value: u128) {
        self.integer((value >> 64) as u64, 8);
        self.integer(value as u64, 8);
    }

    /// Appends bytes.
    fn bytes(&mut self, bytes: &[u8]);

    /// Appends `count` zero bytes.
    fn zeros(&mut self, count: usize);

    /// Appends bytes in the form that tells where they end: 0 becomes 0 255, and 0 0 ends.
    fn escaped(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
            self.bytes(&rest[..zero]);
            self.bytes(&[0, 255]);
            rest = &rest[zero + 1..];
        }
        self.bytes(rest);
        self.bytes(&[0, 0]);
    }
}

macro_rules! register_sink {
    ($name:ident, $integer:ty) => {
        struct $name($integer);

        impl KeySink for $name {
            #[inline(always)]
            fn integer(&mut self, value: u64, bytes: usize) {
                // Two half shifts: one by the full width of the register is not defined.
                self.0 = (self.0 << (4 * bytes)) << (4 * bytes) | <$integer>::from(value);
            }

            #[inline(always)]
            fn bytes(&mut self, bytes: &[u8]) {
                for &byte in bytes {
                    self.integer(u64::from(byte), 1);
                }
            }

            #[inline(always)]
            fn zeros(&mut self, count: usize) {
                for _ in 0..count {
                    self.integer(0, 1);
                }
            }
        }
    };
}

register_sink!(Register8, u64);
register_sink!(Register16, u128);

/// Memory in which one key is encoded; lives on the stack.
///
/// Bytes beyond [`MAX_KEY_BYTES`] are dropped and remembered: [`KeyScratch::is_too_long`].
pub struct KeyScratch {
    bytes: [MaybeUninit<u8>; MAX_KEY_BYTES],
    /// Bytes that are initialised.
    len: usize,
    /// Bytes of the key that found no room.
    dropped: usize,
}

impl Default for KeyScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for KeyScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyScratch(\"{}\")", self.as_bytes().escape_ascii())
    }
}

impl KeyScratch {
    /// Empty memory, of which nothing is initialised.
    #[inline]
    pub const fn new() -> Self {
        Self { bytes: [const { MaybeUninit::uninit() }; MAX_KEY_BYTES], len: 0, dropped: 0 }
    }

    /// Forgets the key.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.dropped = 0;
    }

    /// The key encoded last.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised, as every method that sets `len` has written or kept them.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }

    /// Whether bytes were dropped.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.dropped > 0
    }

    /// The length that the key would have, if bytes were dropped.
    pub fn bytes_if_too_long(&self) -> Option<usize> {
        self.is_too_long().then(|| MAX_KEY_BYTES + self.dropped)
    }

    /// The key encoded last, or [`SchemaError::KeyTooLong`].
    #[inline]
    pub fn checked(&self) -> Result<&[u8], SchemaError> {
        match self.dropped {
            0 => Ok(self.as_bytes()),
            dropped => Err(SchemaError::KeyTooLong { bytes: MAX_KEY_BYTES + dropped }),
        }
    }

    /// Turns the key into the least byte string that is greater than every one that begins with the key; false when
    /// there is none.
    pub fn make_successor(&mut self) -> bool {
        while let Some(&last) = self.as_bytes().last() {
            if last < 255 {
                self.bytes[self.len - 1].write(last + 1);
                return true;
            }
            self.len -= 1;
        }
        false
    }
}

impl KeyScratch {
    /// Makes the low `len` bytes of `value`, at most 16, the key.
    #[inline]
    pub(crate) fn fill(&mut self, value: u128, len: usize) -> &[u8] {
        let shifted = if len == 0 { 0 } else { value << (128 - 8 * len) };
        self.bytes[..16].write_copy_of_slice(&shifted.to_be_bytes());
        self.len = len;
        self.dropped = 0;
        self.as_bytes()
    }

    /// Inverts the bytes behind the first `start`.
    pub(crate) fn invert_from(&mut self, start: usize) {
        for index in start..self.len {
            let byte = self.as_bytes()[index];
            self.bytes[index].write(!byte);
        }
    }

    /// Turns the key into the least one that is greater. There is one unless the key is longest and all 255.
    pub(crate) fn make_next(&mut self) {
        if self.len < MAX_KEY_BYTES {
            self.zeros(1);
        } else {
            self.make_successor();
        }
    }
}

impl KeySink for KeyScratch {
    #[inline]
    fn integer(&mut self, value: u64, bytes: usize) {
        self.bytes(&value.to_be_bytes()[8 - bytes..]);
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let fitting = bytes.len().min(MAX_KEY_BYTES - self.len);
        self.dropped += bytes.len() - fitting;
        self.bytes[self.len..self.len + fitting].write_copy_of_slice(&bytes[..fitting]);
        self.len += fitting;
    }

    #[inline]
    fn zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.bytes(&[0]);
        }
    }
}

/// Counts a key's bytes.
struct Counter(usize);

impl KeySink for Counter {
    #[inline]
    fn integer(&mut self, _: u64, bytes: usize) {
        self.0 += bytes;
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn zeros(&mut self, count: usize) {
        self.0 += count;
    }
}

/// The width of a key as a type, so that the compiler picks the representation: [`Key8`] up to 8 bytes, [`Key16`] up to
/// 16, a byte slice for everything else.
pub trait KeyWidth {
    /// One byte more.
    type Next: KeyWidth;
    /// The width of both, one after the other.
    type Plus<W: KeyWidth>: KeyWidth;
    /// The representation.
    type Encoded<'a>: EncodedKey + std::fmt::Debug;

    /// Encodes a key of this width.
    fn encode<'a, K: Key + ?Sized>(key: &'a K, open: bool, scratch: &'a mut KeyScratch) -> Self::Encoded<'a>;
}

macro_rules! widths {
    ($($name:ident, $bytes:literal, $next:ident, $plus:ty, $encoded:ident, $register:ident;)*) => {$(
        #[doc = concat!("A key of ", $bytes, " bytes.")]
        #[derive(Debug)]
        pub enum $name {}

        impl KeyWidth for $name {
            type Next = $next;
            type Plus<W: KeyWidth> = $plus;
            type Encoded<'a> = $encoded;

            #[inline(always)]
            fn encode<K: Key + ?Sized>(key: &K, open: bool, _: &mut KeyScratch) -> $encoded {
                let mut register = $register(0);
                key.put(&mut register, open);
                $encoded::new(register.0, $bytes)
            }
        }
    )*};
}

/// The widths.
pub mod width {
    use super::*;

    widths! {
        W0, 0, W1, W, Key8, Register8;
        W1, 1, W2, W::Next, Key8, Register8;
        W2, 2, W3, <<W1 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W3, 3, W4, <<W2 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W4, 4, W5, <<W3 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W5, 5, W6, <<W4 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W6, 6, W7, <<W5 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W7, 7, W8, <<W6 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W8, 8, W9, <<W7 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key8, Register8;
        W9, 9, W10, <<W8 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W10, 10, W11, <<W9 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W11, 11, W12, <<W10 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W12, 12, W13, <<W11 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W13, 13, W14, <<W12 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W14, 14, W15, <<W13 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W15, 15, W16, <<W14 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
        W16, 16, Wide, <<W15 as KeyWidth>::Plus<W> as KeyWidth>::Next, Key16, Register16;
    }

    /// A key of more than 16 bytes, of variable width, or with a column that is bytes already.
    #[derive(Debug)]
    pub enum Wide {}

    impl KeyWidth for Wide {
        type Next = Self;
        type Plus<W: KeyWidth> = Self;
        type Encoded<'a> = &'a [u8];

        #[inline]
        fn encode<'a, K: Key + ?Sized>(key: &'a K, open: bool, scratch: &'a mut KeyScratch) -> &'a [u8] {
            if let Some(bytes) = key.raw(open) {
                return &bytes[..bytes.len().min(MAX_KEY_BYTES)];
            }
            scratch.clear();
            key.put(scratch, open);
            scratch.as_bytes()
        }
    }
}

/// A value, or a tuple of up to eight, that is a key.
///
/// ```
/// use polychron_base::key::{EncodedKey, Key8};
/// use polychron_schema::{Key, KeyScratch, OwnedKey};
///
/// let mut scratch = KeyScratch::new();
/// let stock: Key8 = (7_u16, 1_000_u32).encode(&mut scratch); // six bytes, in a register
/// let mut bytes = [0; 8];
/// let len = stock.write_to(&mut bytes);
/// assert_eq!(bytes[..len], [0, 7, 0, 0, 3, 232]);
/// assert_eq!(<(u16, u32)>::decode(&bytes[..len]).unwrap(), (7, 1_000));
/// ```
pub trait Key {
    /// The width as a type.
    type Width: KeyWidth;

    /// The encoded key: [`Key8`], [`Key16`] or `&[u8]`.
    type Encoded<'a>: EncodedKey + std::fmt::Debug
    where
        Self: 'a;

    /// Bytes of every key of this type, or `None` when they depend on the value.
    const FIXED_BYTES: Option<usize>;

    /// Appends the key's bytes. `open` says that more may follow, so that the end of a string must show.
    #[doc(hidden)]
    fn put<S: KeySink>(&self, sink: &mut S, open: bool);

    /// The key's bytes where they are the value's own.
    #[doc(hidden)]
    #[inline(always)]
    fn raw(&self, open: bool) -> Option<&[u8]> {
        let _ = open;
        None
    }

    /// The encoded key. Only keys that do not fit into registers touch `scratch`, which nothing then allocates for.
    ///
    /// A key of more than [`MAX_KEY_BYTES`] is cut there, and could be taken for another: see [`Key::check`].
    fn encode<'a>(&'a self, scratch: &'a mut KeyScratch) -> Self::Encoded<'a>;

    /// The bytes with which every longer key begins whose first columns these are.
    #[inline]
    fn encode_prefix<'a>(&self, scratch: &'a mut KeyScratch) -> &'a [u8] {
        scratch.clear();
        self.put(scratch, true);
        scratch.as_bytes()
    }

    /// The encoded key as bytes in memory, whatever its width.
    #[inline]
    fn encode_bytes<'a>(&self, scratch: &'a mut KeyScratch) -> &'a [u8] {
        scratch.clear();
        self.put(scratch, false);
        scratch.as_bytes()
    }

    /// Refuses a key of more than [`MAX_KEY_BYTES`]; for fixed-width keys that is decided at compile time.
    #[inline(always)]
    fn check(&self) -> Result<(), SchemaError> {
        if let Some(bytes) = Self::FIXED_BYTES {
            return if bytes > MAX_KEY_BYTES { Err(SchemaError::KeyTooLong { bytes }) } else { Ok(()) };
        }
        let mut counter = Counter(0);
        self.put(&mut counter, false);
        let bytes = counter.0;
        if bytes > MAX_KEY_BYTES { Err(SchemaError::KeyTooLong { bytes }) } else { Ok(()) }
    }
}

/// A key that owns what it is made of, and can be read back from its bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type that keys are made of",
    label = "keys cannot be made of this",
    note = "every column type is one: an enum without fields and a struct around one column type become one with \
            `#[derive(Column)]`"
)]
pub trait OwnedKey: Key + Clone + Send + Sync + 'static {
    /// The same key by reference: `&str` for `String`, the value itself where it is small.
    type Ref<'a>: Key + Copy;

    /// The key by reference.
    fn as_key_ref(&self) -> Self::Ref<'_>;

    /// Takes the key from the front of a longer one.
    #[doc(hidden)]
    fn take(reader: &mut KeyReader<'_>, open: bool) -> Result<Self, SchemaError>;

    /// Takes as many columns, each with whether it is nullable, as the key has, and tells whether they are of its types.
    #[doc(hidden)]
    fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool;

    /// Whether the key is one over columns of these types, each with whether it is nullable.
    fn is_over(columns: impl IntoIterator<Item = (ColumnType, bool)>) -> bool {
        let mut columns = columns.into_iter();
        Self::takes(&mut columns) && columns.next().is_none()
    }

    /// Reads the key back.
    ///
    /// # Errors
    /// [`SchemaError::MalformedKey`] when the bytes are not the encoding of exactly one key.
    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let mut reader = KeyReader { bytes };
        let key = Self::take(&mut reader, false)?;
        if reader.bytes.is_empty() { Ok(key) } else { Err(SchemaError::MalformedKey) }
    }
}

/// The rest of a key's bytes.
#[doc(hidden)]
#[derive(Debug)]
pub struct KeyReader<'a> {
    bytes: &'a [u8],
}

impl<'a> KeyReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], SchemaError> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(SchemaError::MalformedKey)?;
        self.bytes = rest;
        Ok(*array)
    }

    /// The next `count` bytes, at most 8, as a number.
    #[inline]
    pub fn number(&mut self, count: usize) -> Result<u64, SchemaError> {
        let mut bytes = [0; 8];
        bytes[8 - count..].copy_from_slice(self.slice(count)?);
        Ok(u64::from_be_bytes(bytes))
    }

    /// The next `count` bytes.
    pub fn slice(&mut self, count: usize) -> Result<&'a [u8], SchemaError> {
        let (slice, rest) = self.bytes.split_at_checked(count).ok_or(SchemaError::MalformedKey)?;
        self.bytes = rest;
        Ok(slice)
    }

    /// A value of variable width: escaped when it is `open`, all the rest otherwise.
    pub fn variable(&mut self, open: bool) -> Result<Vec<u8>, SchemaError> {
        if !open {
            return Ok(std::mem::take(&mut self.bytes).to_vec());
        }
        let mut value = Vec::new();
        loop {
            let zero = self.bytes.iter().position(|&byte| byte == 0).ok_or(SchemaError::MalformedKey)?;
            value.extend_from_slice(self.slice(zero)?);
            match self.array()? {
                [0, 0] => return Ok(value),
                [0, 255] => value.push(0),
                _ => return Err(SchemaError::MalformedKey),
            }
        }
    }
}
