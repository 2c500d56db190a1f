//! Dates, points in time, and strings and bytes of fixed width.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// A date: days since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Date(pub i32);

/// A point in time: microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Timestamp(pub i64);

/// Exactly `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FixedBytes<const N: usize>(pub [u8; N]);

/// Text of at most `N` bytes in exactly `N` bytes: the rest are zeros.
///
/// No length is stored; trailing zero characters are padding and are not part of the text.
///
/// ```
/// use polychron_schema::FixedString;
/// let state = FixedString::<16>::new("Bavaria").unwrap();
/// assert_eq!(state.as_str(), "Bavaria");
/// assert!(FixedString::<2>::new("Bavaria").is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FixedString<const N: usize>([u8; N]);

impl<const N: usize> FixedBytes<N> {
    /// All zeros.
    pub const ZERO: &'static Self = &Self([0; N]);

    /// The bytes in place.
    #[inline]
    pub const fn from_array(bytes: &[u8; N]) -> &Self {
        // SAFETY: `Self` is a transparent wrapper of the array, and every array is valid.
        unsafe { &*std::ptr::from_ref(bytes).cast() }
    }
}

impl<const N: usize> FixedString<N> {
    /// The empty text.
    pub const ZERO: &'static Self = &Self([0; N]);

    /// The text padded with zeros, or `None` when it is longer than `N` bytes.
    #[inline]
    pub const fn new(text: &str) -> Option<Self> {
        if text.len() > N {
            return None;
        }
        let mut bytes = [0; N];
        bytes.split_at_mut(text.len()).0.copy_from_slice(text.as_bytes());
        Some(Self(bytes))
    }

    /// The text, cut at the last character that fits into `N` bytes.
    #[inline]
    pub fn truncated(text: &str) -> Self {
        let end = text.floor_char_boundary(N);
        Self::new(&text[..end]).unwrap_or(*Self::ZERO)
    }

    /// The bytes in place; they need not be text.
    #[inline]
    pub const fn from_array(bytes: &[u8; N]) -> &Self {
        // SAFETY: `Self` is a transparent wrapper of the array, and every array is valid (`as_str` checks the text).
        unsafe { &*std::ptr::from_ref(bytes).cast() }
    }

    /// All `N` bytes, padding included.
    #[inline]
    pub const fn as_array(&self) -> &[u8; N] {
        &self.0
    }

    /// The text without the padding.
    ///
    /// Bytes that are no text, which only a torn row can hold, end it.
    #[inline]
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        crate::buffer::text_of(&self.0[..end])
    }
}

impl<const N: usize> Default for FixedBytes<N> {
    fn default() -> Self {
        *Self::ZERO
    }
}

impl<const N: usize> Default for FixedString<N> {
    fn default() -> Self {
        *Self::ZERO
    }
}

impl<const N: usize> Deref for FixedBytes<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Deref for FixedString<N> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> Ord for FixedString<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<const N: usize> PartialOrd for FixedString<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> PartialEq<str> for FixedString<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const N: usize> PartialEq<&str> for FixedString<N> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<const N: usize> fmt::Debug for FixedBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<const N: usize> fmt::Debug for FixedString<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> fmt::Display for FixedString<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
