//! Ranges of typed rows, one row after the other.

use std::ops::{Bound, ControlFlow};

use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{Index, KeyExtractor, KeyScratch, Projection, Row, RowRef};

use super::Range;
use super::bounds::{BoundKey, KeyBounds};
use crate::{Direction, Restriction, Scan, Transaction};

/// Rows of the first part that is read ahead; each further one has twice as many.
const FIRST_ROWS: usize = 16;

/// Rows that are read ahead at most.
const MOST_ROWS: usize = 1024;

/// The rows of a range, one after the other, from either end. See [`Range::iter`].
///
/// Parts of the range are copied: one from the lower end, one from the upper end, and what lies between them was not read yet. A part is
/// read when the one before it is used up, so a range that is left early is protected a little further than it was read.
pub struct Rows<'t, T: ?Sized, R: Row> {
    transaction: &'t mut T,
    table: TableId,
    index: IndexId,
    secondary: Option<Index<R, ()>>,
    restrictions: Vec<Restriction>,
    /// The bounds of what was not read yet; `None` when all was, or after an error.
    unread: Option<KeyBounds>,
    /// An error that ends the iteration before it begins.
    refused: Option<Error>,
    lower: Part,
    upper: Part,
    /// Makes keys of rows; known from the end of the first part on.
    extractor: Option<KeyExtractor>,
    is_reversed: bool,
    /// Rows that may still be given.
    left: usize,
}

/// Rows that were copied, in the order in which they were read.
struct Part {
    words: Vec<u64>,
    /// The end of each row in `words`.
    ends: Vec<usize>,
    /// Which rows were not given yet.
    waiting: std::ops::Range<usize>,
    /// The number of rows to read next.
    rows: usize,
}

impl Part {
    const EMPTY: Self = Self { words: Vec::new(), ends: Vec::new(), waiting: 0..0, rows: FIRST_ROWS };

    fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
        self.waiting = 0..0;
    }

    fn push(&mut self, row: RowRef<'_>) {
        let words = row.as_bytes().chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        self.words.extend(words);
        self.ends.push(self.words.len());
        self.waiting.end += 1;
    }

    fn row(&self, position: usize) -> RowRef<'_> {
        let begin = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        RowRef::from_words(&self.words[begin..self.ends[position]])
    }
}

impl<'t, T: Transaction + ?Sized, R: Row> Rows<'t, T, R> {
    pub(super) fn new(range: Range<'t, T, R>) -> Self {
        let Range { transaction, table, index, secondary, bounds, direction, limit, restrictions, .. } = range;
        let (unread, refused) = match bounds {
            Ok(bounds) => (Some(bounds), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            transaction,
            table,
            index,
            secondary,
            restrictions,
            unread,
            refused,
            lower: Part::EMPTY,
            upper: Part::EMPTY,
            extractor: None,
            is_reversed: direction == Direction::Backward,
            left: limit,
        }
    }

    /// The next row, where it was copied to: for as long as no other one is asked for.
    ///
    /// # Errors
    /// As [`Range::visit`].
    #[allow(clippy::should_implement_trait, reason = "it lends, and the iterator's method owns")]
    pub fn next_ref(&mut self) -> Result<Option<R::Ref<'_>>, Error> {
        self.take(self.is_reversed)
    }

    /// The next row from the other end.
    ///
    /// # Errors
    /// As [`Range::visit`].
    pub fn next_back_ref(&mut self) -> Result<Option<R::Ref<'_>>, Error> {
        self.take(!self.is_reversed)
    }

    /// The row nearest to one end.
    fn take(&mut self, from_above: bool) -> Result<Option<R::Ref<'_>>, Error> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        if self.left == 0 {
            return Ok(None);
        }
        if self.part(from_above).waiting.is_empty() && self.unread.is_some() {
            self.read(from_above)?;
        }
        // What this end has not read, the other one may have: its last row is the nearest.
        let (part, position) = if self.part(from_above).waiting.is_empty() {
            let other = self.part(!from_above);
            (!from_above, other.waiting.next_back())
        } else {
            (from_above, self.part(from_above).waiting.next())
        };
        let Some(position) = position else { return Ok(None) };
        self.left -= 1;
        Ok(Some(R::view(self.part(part).row(position))))
    }

    fn part(&mut self, from_above: bool) -> &mut Part {
        if from_above { &mut self.upper } else { &mut self.lower }
    }

    /// Reads rows from one end of what was not read. After an error nothing is left.
    fn read(&mut self, from_above: bool) -> Result<(), Error> {
        let Some(mut unread) = self.unread.take() else { return Ok(()) };
        let part = if from_above { &mut self.upper } else { &mut self.lower };
        let limit = part.rows.min(self.left);
        part.clear();
        part.rows = (part.rows * 2).min(MOST_ROWS);
        let scan = Scan {
            table: self.table,
            index: self.index,
            lower: unread.lower.as_ref().map(BoundKey::as_bytes),
            upper: unread.upper.as_ref().map(BoundKey::as_bytes),
            direction: if from_above { Direction::Backward } else { Direction::Forward },
            limit,
            projection: Projection::ALL,
            restrictions: &self.restrictions,
        };
        let read = self.transaction.scan_unchecked(&scan, &mut |row| {
            part.push(row);
            if part.ends.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if let Err(error) = read {
            self.lower.clear();
            self.upper.clear();
            return Err(error);
        }
        let count = self.part(from_above).ends.len();
        if count == limit {
            let end = Bound::Excluded(self.key_of_last(from_above)?);
            if from_above {
                unread.upper = end
            } else {
                unread.lower = end
            }
            self.unread = Some(unread);
        }
        Ok(())
    }

    /// The key, in the index that is read, of the row that was read last.
    fn key_of_last(&mut self, from_above: bool) -> Result<BoundKey, Error> {
        if self.extractor.is_none() {
            self.extractor = Some(self.make_extractor()?);
        }
        let part = if from_above { &self.upper } else { &self.lower };
        let extractor = self.extractor.as_ref().expect("it was made above");
        let mut scratch = KeyScratch::new();
        Ok(BoundKey::new(extractor.extract(part.row(part.ends.len() - 1), &mut scratch)?))
    }

    fn make_extractor(&self) -> Result<KeyExtractor, Error> {
        let mut definition = R::definition();
        let Some(index) = self.secondary else { return Ok(KeyExtractor::primary(&definition)?) };
        definition.indexes = vec![index.definition()];
        Ok(KeyExtractor::secondary(&definition, 0)?)
    }
}

impl<T: Transaction + ?Sized, R: Row> Rows<'_, T, R> {
    fn take_owned(&mut self, from_above: bool) -> Option<Result<R, Error>> {
        self.take(from_above).map(|row| row.map(R::from_ref)).transpose()
    }
}

impl<T: Transaction + ?Sized, R: Row> Iterator for Rows<'_, T, R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take_owned(self.is_reversed)
    }
}

impl<T: Transaction + ?Sized, R: Row> DoubleEndedIterator for Rows<'_, T, R> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take_owned(!self.is_reversed)
    }
}

impl<T: Transaction + ?Sized, R: Row> std::iter::FusedIterator for Rows<'_, T, R> {}
