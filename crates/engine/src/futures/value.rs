//! Values of futures: numbers in their bits, text and bytes where they are kept, and NULL.

use std::fmt::{self, Write};
use std::sync::Arc;

use polychron_base::error::FutureError;
use polychron_base::room::KeptList;
use polychron_schema::MAX_ROW_BYTES;

/// The bits of a column's value, extended to 64 by its sign; truth values are 0 and 1, decimals their units.
pub type Scalar = u64;

/// Text or bytes outside of any transaction.
pub type Bytes = Arc<[u8]>;

/// A value, with text and bytes as `B` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<B> {
    /// NULL.
    Null,
    /// What fits into 64 bits.
    Scalar(Scalar),
    /// Text or bytes.
    Bytes(B),
}

/// A future, as a protocol sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A value.
    Known(Value<Bytes>),
    /// A place in the transaction's arena, which the protocol made.
    Pending(u32),
}

/// A future in its transaction's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// A value.
    Known(Value<Span>),
    /// A node.
    Pending(u32),
}

const _: () = assert!(size_of::<Term>() == 16 && size_of::<Option<Value<Span>>>() == 16, "nodes are small");

/// The position of a run of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    length: u32,
}

impl<B> Value<B> {
    /// The same with text and bytes as `change` makes them.
    #[inline]
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Value<C> {
        match self {
            Self::Null => Value::Null,
            Self::Scalar(scalar) => Value::Scalar(scalar),
            Self::Bytes(bytes) => Value::Bytes(change(bytes)),
        }
    }

    /// The bits.
    ///
    /// # Errors
    /// [`FutureError::NoNull`].
    #[inline]
    pub fn scalar(&self) -> Result<Scalar, FutureError> {
        match self {
            Self::Scalar(scalar) => Ok(*scalar),
            Self::Null | Self::Bytes(_) => Err(FutureError::NoNull),
        }
    }

    /// Whether it is a condition that is true.
    #[inline]
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Scalar(truth) if *truth != 0)
    }
}

impl Value<Bytes> {
    /// The same, borrowed.
    #[inline]
    pub fn borrow(&self) -> Value<&[u8]> {
        match self {
            Self::Null => Value::Null,
            Self::Scalar(scalar) => Value::Scalar(*scalar),
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

impl Operand {
    /// A number that is known.
    #[inline]
    pub const fn of(scalar: Scalar) -> Self {
        Self::Known(Value::Scalar(scalar))
    }

    /// The value.
    ///
    /// # Errors
    /// [`FutureError::Foreign`] where it is on a transaction's arena.
    #[inline]
    pub fn known(self) -> Result<Value<Bytes>, FutureError> {
        match self {
            Self::Known(value) => Ok(value),
            Self::Pending(_) => Err(FutureError::Foreign),
        }
    }
}

impl Span {
    /// The run that begins and ends there.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, length: (end - start) as u32 }
    }

    /// Its bytes among those that it was made of.
    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.length as usize]
    }
}

/// Text and bytes of a transaction's futures, one behind the other.
#[derive(Debug, Default)]
pub struct Texts(Vec<u8>);

impl Texts {
    /// None.
    #[inline]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// So many bytes are kept of a transaction's futures at most.
    const MOST: usize = 1 << 28;

    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.0.forget();
    }

    /// Begins with those of others.
    #[inline]
    pub fn copy_from(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }

    /// Some of them.
    #[inline]
    pub fn get(&self, span: Span) -> &[u8] {
        span.of(&self.0)
    }

    /// There is room for so many more, in one future.
    fn check(&self, bytes: usize) -> Result<(), FutureError> {
        let most = MAX_ROW_BYTES.min(Self::MOST - self.0.len());
        if bytes > most { Err(FutureError::TooLong { bytes, most }) } else { Ok(()) }
    }

    /// Keeps some.
    ///
    /// # Errors
    /// [`FutureError::TooLong`].
    pub fn keep(&mut self, bytes: &[u8]) -> Result<Span, FutureError> {
        self.check(bytes.len())?;
        let start = self.0.len();
        self.0.extend_from_slice(bytes);
        Ok(Span::new(start, self.0.len()))
    }

    /// Keeps what was kept in two parts as one.
    pub(super) fn join(&mut self, left: Span, right: Span) -> Result<Span, FutureError> {
        self.check(left.length as usize + right.length as usize)?;
        let start = self.0.len();
        for span in [left, right] {
            let from = span.start as usize;
            self.0.extend_from_within(from..from + span.length as usize);
        }
        Ok(Span::new(start, self.0.len()))
    }

    /// Keeps what is written of something.
    pub(super) fn write(&mut self, shown: impl fmt::Display) -> Result<Span, FutureError> {
        /// Longer than any number.
        const LONGEST: usize = 64;
        self.check(LONGEST)?;
        let start = self.0.len();
        let written = write!(self, "{shown}");
        debug_assert!(written.is_ok());
        Ok(Span::new(start, self.0.len()))
    }

    /// Keeps text and bytes of a value.
    ///
    /// # Errors
    /// As [`Texts::keep`].
    #[inline]
    pub fn keep_value<B: AsRef<[u8]>>(&mut self, value: &Value<B>) -> Result<Value<Span>, FutureError> {
        Ok(match value {
            Value::Null => Value::Null,
            Value::Scalar(scalar) => Value::Scalar(*scalar),
            Value::Bytes(bytes) => Value::Bytes(self.keep(bytes.as_ref())?),
        })
    }

    /// The value with its text or bytes.
    #[inline]
    pub fn value(&self, value: Value<Span>) -> Value<&[u8]> {
        value.map(|span| self.get(span))
    }

    /// The value as others have it.
    #[inline]
    pub fn release(&self, value: Value<Span>) -> Value<Bytes> {
        value.map(|span| self.get(span).into())
    }
}

impl Write for Texts {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// How a known value of one type is kept outside of arenas.
pub trait Held: Clone + fmt::Debug + Send + Sync + 'static {
    /// Keeps it in an arena.
    ///
    /// # Errors
    /// [`FutureError::TooLong`].
    fn keep(&self, texts: &mut Texts) -> Result<Value<Span>, FutureError>;

    /// The value as any type has it.
    fn into_value(self) -> Value<Bytes>;

    /// A value of this type. `None`: it is none.
    fn from_value(value: Value<Bytes>) -> Option<Self>;
}

impl Held for Scalar {
    #[inline]
    fn keep(&self, _: &mut Texts) -> Result<Value<Span>, FutureError> {
        Ok(Value::Scalar(*self))
    }

    #[inline]
    fn into_value(self) -> Value<Bytes> {
        Value::Scalar(self)
    }

    #[inline]
    fn from_value(value: Value<Bytes>) -> Option<Self> {
        value.scalar().ok()
    }
}

impl Held for Bytes {
    fn keep(&self, texts: &mut Texts) -> Result<Value<Span>, FutureError> {
        texts.keep(self).map(Value::Bytes)
    }

    fn into_value(self) -> Value<Bytes> {
        Value::Bytes(self)
    }

    fn from_value(value: Value<Bytes>) -> Option<Self> {
        if let Value::Bytes(bytes) = value { Some(bytes) } else { None }
    }
}

impl<H: Held> Held for Option<H> {
    #[inline]
    fn keep(&self, texts: &mut Texts) -> Result<Value<Span>, FutureError> {
        self.as_ref().map_or(Ok(Value::Null), |held| held.keep(texts))
    }

    #[inline]
    fn into_value(self) -> Value<Bytes> {
        self.map_or(Value::Null, H::into_value)
    }

    #[inline]
    fn from_value(value: Value<Bytes>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => H::from_value(value).map(Some),
        }
    }
}

/// Of any type.
impl Held for Value<Bytes> {
    #[inline]
    fn keep(&self, texts: &mut Texts) -> Result<Value<Span>, FutureError> {
        texts.keep_value(self)
    }

    #[inline]
    fn into_value(self) -> Self {
        self
    }

    #[inline]
    fn from_value(value: Self) -> Option<Self> {
        Some(value)
    }
}
