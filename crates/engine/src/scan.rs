//! The parameters of a scan.

use std::cmp::Ordering;
use std::ops::Bound;

use polychron_base::{IndexId, TableId};
use polychron_schema::{Layout, Projection, RowRef, Value, ValueRef};

/// The order in which a range is visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    #[default]
    Forward,
    /// From the largest key down.
    Backward,
}

/// A range of an index, and what is wanted of its rows.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    /// The table.
    pub table: TableId,
    /// The index whose order and keys are meant.
    pub index: IndexId,
    /// Lower bound on the encoded key.
    pub lower: Bound<&'a [u8]>,
    /// Upper bound on the encoded key.
    pub upper: Bound<&'a [u8]>,
    /// Order of the visit.
    pub direction: Direction,
    /// Rows to visit at most.
    pub limit: usize,
    /// Columns that the visitor looks at.
    pub projection: Projection,
    /// Only rows that satisfy all of these are visited. A protocol that locks predicates (HyPer's) logs them instead of
    /// the whole range; for every other protocol they are a filter.
    pub restrictions: &'a [Restriction],
}

impl<'a> Scan<'a> {
    /// All rows of a table, in the order of their primary keys.
    pub const fn all(table: TableId) -> Self {
        Self {
            table,
            index: IndexId::PRIMARY,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            direction: Direction::Forward,
            limit: usize::MAX,
            projection: Projection::ALL,
            restrictions: &[],
        }
    }

    /// The key, when the range is exactly one: the only range that an index without order answers.
    #[inline]
    pub fn point(&self) -> Option<&'a [u8]> {
        match (self.lower, self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => Some(lower),
            _ => None,
        }
    }
}

/// A comparison of a column with a constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Restriction {
    /// The column's position in the table.
    pub column: usize,
    /// The comparison.
    pub comparison: Comparison,
    /// With what.
    pub value: Value,
}

impl Restriction {
    /// Whether a row satisfies it. A comparison with NULL holds for no row, as in SQL.
    pub fn holds(&self, layout: &Layout, row: RowRef<'_>) -> bool {
        Self::compares(row.value_ref(layout, self.column), self.comparison, self.value.as_value_ref())
    }

    /// Whether a restriction with this comparison and constant holds for a value.
    #[inline]
    pub fn compares(value: ValueRef<'_>, comparison: Comparison, constant: ValueRef<'_>) -> bool {
        !value.is_null() && !constant.is_null() && comparison.holds(&value, &constant)
    }
}

/// The comparisons a [`Restriction`] or a condition over futures may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `≠`
    NotEqual,
    /// `<`
    Less,
    /// `≤`
    AtMost,
    /// `>`
    Greater,
    /// `≥`
    AtLeast,
}

impl Comparison {
    /// Whether `left` compares so with `right`.
    pub fn holds<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        let Some(order) = left.partial_cmp(right) else { return false };
        match self {
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::Less => order == Ordering::Less,
            Self::AtMost => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            Self::AtLeast => order != Ordering::Less,
        }
    }
}
