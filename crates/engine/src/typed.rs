//! Typed access: tables of [`Row`]s, on top of the bytes that [`Transaction`] speaks.

use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};

use polychron_base::{Error, IndexId, Stop, TableId};
use polychron_schema::{
    Columns, Index, Key, KeyScratch, MAX_KEY_BYTES, OwnedKey, Projection, RangeScratch, Row, RowBuffer, RowRef,
};

pub use crate::handle::Table;
use crate::{Direction, Scan, Transaction, keys};

/// Lends the bytes of a row, built in a buffer that the thread keeps.
pub(crate) fn with_encoded<R: Row, O>(row: &R, then: impl FnOnce(RowRef<'_>) -> Result<O, Stop>) -> Result<O, Stop> {
    thread_local! {
        static BUFFER: std::cell::Cell<RowBuffer> = const { std::cell::Cell::new(RowBuffer::new()) };
    }
    // In a thread that ends the buffer may be gone.
    let mut buffer = BUFFER.try_with(std::cell::Cell::take).unwrap_or_default();
    let outcome = match row.encode(&mut buffer) {
        Ok(()) => then(buffer.as_row()),
        Err(error) => Err(Error::from(error).into()),
    };
    let _ = BUFFER.try_with(|place| place.set(buffer));
    outcome
}

/// Encoded bounds of a range of keys.
pub(crate) struct KeyBounds {
    lower: Bound<BoundKey>,
    upper: Bound<BoundKey>,
}

/// A bound's bytes, on the stack when they are few.
enum BoundKey {
    Short([u8; Self::SHORT], u8),
    Long(Box<[u8]>),
}

impl BoundKey {
    const SHORT: usize = 38;

    #[inline]
    fn new(bytes: &[u8]) -> Self {
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
    fn as_bytes(&self) -> &[u8] {
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
    if scratch.is_too_long() { Err(Error::KeyTooLong) } else { Ok(ends) }
}

fn transpose<O>(bound: Bound<Result<O, Error>>) -> Result<Bound<O>, Error> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(key?),
        Bound::Excluded(key) => Bound::Excluded(key?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// A range of rows that is about to be read.
#[must_use = "a range reads nothing until one of its methods is called"]
pub struct Range<'t, T: ?Sized, R> {
    transaction: &'t mut T,
    table: TableId,
    index: IndexId,
    /// Refused when a bound is longer than any key.
    bounds: Result<KeyBounds, Error>,
    direction: Direction,
    limit: usize,
    projection: Projection,
    row: PhantomData<fn() -> R>,
}

impl<'t, T: Transaction + ?Sized, R: Row> Range<'t, T, R> {
    pub(crate) fn new(
        transaction: &'t mut T,
        table: TableId,
        index: IndexId,
        bounds: Result<KeyBounds, Error>,
    ) -> Self {
        Self {
            transaction,
            table,
            index,
            bounds,
            direction: Direction::Forward,
            limit: usize::MAX,
            projection: Projection::ALL,
            row: PhantomData,
        }
    }

    /// By a secondary index, whose handle must be of this table.
    #[inline]
    pub(crate) fn by<K: OwnedKey>(
        transaction: &'t mut T,
        table: &Table<R>,
        index: Index<R, K>,
        bounds: Result<KeyBounds, Error>,
    ) -> Self {
        match index.id_in(table.id) {
            Ok(index) => Self::new(transaction, table.id, index, bounds),
            Err(error) => Self::new(transaction, table.id, IndexId::PRIMARY, Err(error)),
        }
    }

    /// From the largest key down.
    pub fn reverse(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// At most so many rows.
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Only these columns will be looked at.
    pub fn columns(mut self, columns: impl Columns<R>) -> Self {
        self.projection = columns.projection();
        self
    }

    /// Visits the rows until the visitor breaks.
    ///
    /// # Errors
    /// Conflicts, [`Error::NoOrder`] for a range of a hash index, and [`Error::KeyTooLong`] for a bound longer than any key.
    pub fn try_for_each(self, mut visitor: impl FnMut(R::Ref<'_>) -> ControlFlow<()>) -> Result<(), Stop> {
        let bounds = self.bounds?;
        let scan = Scan {
            table: self.table,
            index: self.index,
            lower: bounds.lower.as_ref().map(BoundKey::as_bytes),
            upper: bounds.upper.as_ref().map(BoundKey::as_bytes),
            direction: self.direction,
            limit: self.limit,
            projection: self.projection,
            restrictions: &[],
        };
        let mut left = self.limit;
        self.transaction.scan_unchecked(&scan, &mut |row| {
            left -= 1;
            let flow = visitor(R::view(row));
            if left == 0 { ControlFlow::Break(()) } else { flow }
        })
    }

    /// Visits all rows.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn for_each(self, mut visitor: impl FnMut(R::Ref<'_>)) -> Result<(), Stop> {
        self.try_for_each(|row| {
            visitor(row);
            ControlFlow::Continue(())
        })
    }

    /// Folds the rows into one value.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn fold<A>(self, first: A, mut fold: impl FnMut(A, R::Ref<'_>) -> A) -> Result<A, Stop> {
        let mut value = Some(first);
        self.for_each(|row| {
            if let Some(before) = value.take() {
                value = Some(fold(before, row));
            }
        })?;
        Ok(value.expect("every call puts a value back"))
    }

    /// How many rows there are.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn count(mut self) -> Result<u64, Stop> {
        self.projection = Projection::NONE;
        self.fold(0, |count, _| count + 1)
    }

    /// What `read` makes of the first row, or `None` for an empty range: with [`Range::reverse`], of the last one.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn first<O>(self, mut read: impl FnMut(R::Ref<'_>) -> O) -> Result<Option<O>, Stop> {
        let mut output = None;
        self.limit(1).for_each(|row| output = Some(read(row)))?;
        Ok(output)
    }

    /// What `read` makes of each row; to be collected, summed or counted.
    pub fn map<O, F: FnMut(R::Ref<'_>) -> O>(self, read: F) -> Mapped<'t, T, R, F> {
        Mapped { range: self, read }
    }

    /// All rows as owned values.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn rows(self) -> Result<Vec<R>, Stop> {
        self.map(R::from_ref).collect()
    }
}

/// A range with something to read of each row.
#[must_use = "a range reads nothing until one of its methods is called"]
pub struct Mapped<'t, T: ?Sized, R, F> {
    range: Range<'t, T, R>,
    read: F,
}

impl<T: Transaction + ?Sized, R: Row, O, F: FnMut(R::Ref<'_>) -> O> Mapped<'_, T, R, F> {
    /// Collects what was read.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn collect<C: Default + Extend<O>>(mut self) -> Result<C, Stop> {
        let mut all = C::default();
        self.range.for_each(|row| all.extend(std::iter::once((self.read)(row))))?;
        Ok(all)
    }

    /// Sums what was read.
    ///
    /// # Errors
    /// As [`Range::try_for_each`].
    pub fn sum<S: Default + std::ops::AddAssign<O>>(mut self) -> Result<S, Stop> {
        let mut sum = S::default();
        self.range.for_each(|row| sum += (self.read)(row))?;
        Ok(sum)
    }
}
