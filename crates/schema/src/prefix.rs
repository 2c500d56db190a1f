//! Scans by the first columns of a composite key.

use crate::key::{Key, KeyScratch};

/// The first columns of the composite key `K`: a single value, or a tuple shorter than `K`.
pub trait KeyPrefix<K>: Key {}

/// A bound of a range of the keys `K`: a whole key, or the first columns of one.
pub trait KeyBound<K>: Key {
    /// Whether it is a whole key.
    const WHOLE: bool;
}

impl<K: Key> KeyBound<K> for K {
    const WHOLE: bool = true;
}

macro_rules! prefixes {
    ($($prefix:ident)+; $($rest:ident)+) => {
        impl<$($prefix: Key,)+ $($rest),+> KeyPrefix<($($prefix,)+ $($rest,)+)> for ($($prefix,)+) {}
        impl<$($prefix: Key,)+ $($rest),+> KeyBound<($($prefix,)+ $($rest,)+)> for ($($prefix,)+) {
            const WHOLE: bool = false;
        }
    };
}

macro_rules! prefixes_of {
    ($first:ident $second:ident $($rest:ident)*) => {
        impl<$first: Key, $second, $($rest),*> KeyPrefix<($first, $second, $($rest,)*)> for $first {}
        impl<$first: Key, $second, $($rest),*> KeyBound<($first, $second, $($rest,)*)> for $first {
            const WHOLE: bool = false;
        }
        prefixes_of!(@step $first; $second $($rest)*);
    };
    (@step $($prefix:ident)+; $next:ident) => { prefixes!($($prefix)+; $next); };
    (@step $($prefix:ident)+; $next:ident $($rest:ident)+) => {
        prefixes!($($prefix)+; $next $($rest)+);
        prefixes_of!(@step $($prefix)+ $next; $($rest)+);
    };
}

prefixes_of!(A B);
prefixes_of!(A B C);
prefixes_of!(A B C D);
prefixes_of!(A B C D E);
prefixes_of!(A B C D E F);
prefixes_of!(A B C D E F G);
prefixes_of!(A B C D E F G H);

/// Memory for the two bounds of a range.
#[derive(Debug, Default)]
pub struct RangeScratch {
    start: KeyScratch,
    end: KeyScratch,
}

impl RangeScratch {
    /// Memory of which nothing is initialised.
    #[inline]
    pub const fn new() -> Self {
        Self { start: KeyScratch::new(), end: KeyScratch::new() }
    }

    /// The range of all keys that begin with the columns of `prefix`.
    #[inline]
    pub fn prefix<'s, K: Key + ?Sized>(&'s mut self, prefix: &K) -> ByteRange<'s> {
        prefix.encode_prefix(&mut self.end);
        let start = prefix.encode_prefix(&mut self.start);
        let bounded = self.end.make_successor();
        ByteRange { start, end: bounded.then(|| self.end.as_bytes()) }
    }

    /// The memory of the lower bound, and that of the upper one.
    pub(crate) fn both(&mut self) -> (&mut KeyScratch, &mut KeyScratch) {
        (&mut self.start, &mut self.end)
    }

    /// Whether the bounds made last were cut because a key is never so long.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.start.is_too_long()
    }

    /// The length that the lower bound would have in that case.
    pub fn bytes_if_too_long(&self) -> Option<usize> {
        self.start.bytes_if_too_long()
    }

    /// The range that holds this key alone.
    #[inline]
    pub fn exactly<'s, K: Key + ?Sized>(&'s mut self, key: &K) -> ByteRange<'s> {
        key.encode_bytes(&mut self.end);
        self.end.make_next();
        ByteRange { start: key.encode_bytes(&mut self.start), end: Some(self.end.as_bytes()) }
    }
}

/// A range of encoded keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange<'s> {
    /// The first key that may be in the range.
    pub start: &'s [u8],
    /// The first key behind the range, or `None` when the range has no end.
    pub end: Option<&'s [u8]>,
}

impl ByteRange<'_> {
    /// Whether the key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start <= key && self.end.is_none_or(|end| key < end)
    }
}
