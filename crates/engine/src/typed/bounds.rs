//! The bounds of ranges, encoded.

use std::ops::{Bound, RangeBounds};

use polychron_base::Error;
use polychron_schema::{Key, KeyScratch, KeyStart, MAX_KEY_BYTES, RangeScratch};

use crate::keys;

/// Encoded bounds of a range of keys.
pub(crate) struct KeyBounds {
    pub(super) lower: Bound<BoundKey>,
    pub(super) upper: Bound<BoundKey>,
}

/// A bound's bytes, on the stack when they are few.
pub(super) enum BoundKey {
    Short([u8; Self::SHORT], u8),
    Long(Box<[u8]>),
}

impl BoundKey {
    const SHORT: usize = 38;

    #[inline]
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut short = [0; Self::SHORT];
        match short.get_mut(..bytes.len()) {
            Some(front) => {
                front.copy_from_slice(bytes);
                Self::Short(short, bytes.len() as u8)
            }
            None => Self::Long(bytes.into()),
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl KeyBounds {
    /// Whole keys: a bound is exactly that key.
    #[inline]
    pub(crate) fn of<K: Key>(range: &impl RangeBounds<K>) -> Result<Self, Error> {
        let encode = |key: &K| {
            key.check()?;
            let mut scratch = KeyScratch::new();
            keys::with_bytes(key.encode(&mut scratch), BoundKey::new)
        };
        Ok(Self {
            lower: transpose(range.start_bound().map(encode))?,
            upper: transpose(range.end_bound().map(encode))?,
        })
    }

    /// All keys that begin with these columns.
    #[inline]
    pub(crate) fn of_prefix<K: Key>(prefix: &K) -> Result<Self, Error> {
        let (first, behind) = ends(prefix)?;
        Ok(Self { lower: Bound::Included(first), upper: behind.map_or(Bound::Unbounded, Bound::Excluded) })
    }

    /// All keys `K` that start so; `open` says that their entries carry more behind the columns.
    pub(crate) fn of_start<K, P: KeyStart<K>>(start: &P, open: bool) -> Result<Self, Error> {
        let mut scratch = RangeScratch::new();
        let bounds = match scratch.starting_with(start, open) {
            Some(range) => Self {
                lower: Bound::Included(BoundKey::new(range.start)),
                upper: range.end.map_or(Bound::Unbounded, |end| Bound::Excluded(BoundKey::new(end))),
            },
            // A range without keys, which are all greater than the empty one.
            None => Self { lower: Bound::Included(BoundKey::new(&[])), upper: Bound::Excluded(BoundKey::new(&[])) },
        };
        if scratch.is_too_long() { Err(Error::key_too_long(scratch.bytes_if_too_long())) } else { Ok(bounds) }
    }

    /// Leading columns: a bound stands for every key that begins with it.
    pub(crate) fn of_prefixes<K: Key>(range: &impl RangeBounds<K>) -> Result<Self, Error> {
        let lower = match range.start_bound() {
            Bound::Included(prefix) => Bound::Included(ends(prefix)?.0),
            // Nothing lies behind the greatest prefix: no key is greater than the longest one of bytes that are all 255.
            Bound::Excluded(prefix) => match ends(prefix)?.1 {
                Some(behind) => Bound::Included(behind),
                None => Bound::Excluded(BoundKey::new(&[u8::MAX; MAX_KEY_BYTES])),
            },
            Bound::Unbounded => Bound::Unbounded,
        };
        let upper = match range.end_bound() {
            Bound::Included(prefix) => ends(prefix)?.1.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Excluded(prefix) => Bound::Excluded(ends(prefix)?.0),
            Bound::Unbounded => Bound::Unbounded,
        };
        Ok(Self { lower, upper })
    }
}

/// The first key that begins with a prefix, and the first one behind all that do, if there is one.
#[inline]
fn ends<K: Key>(prefix: &K) -> Result<(BoundKey, Option<BoundKey>), Error> {
    let mut scratch = RangeScratch::new();
    let range = scratch.prefix(prefix);
    let ends = (BoundKey::new(range.start), range.end.map(BoundKey::new));
    if scratch.is_too_long() { Err(Error::key_too_long(scratch.bytes_if_too_long())) } else { Ok(ends) }
}

fn transpose<O>(bound: Bound<Result<O, Error>>) -> Result<Bound<O>, Error> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(key?),
        Bound::Excluded(key) => Bound::Excluded(key?),
        Bound::Unbounded => Bound::Unbounded,
    })
}
