//! The predicate log: what a transaction has asked of each relation, in place of what it was answered.
//!
//! * A *point* is a key that was looked up, whether or not there was a row: its summary, and the columns that were read.
//! * A *path* is a range of an index, or a whole relation, with the typed restrictions of the scan, which must all hold; the columns that
//!   were read; and for a smallest or largest value that value.
//!
//! A path keeps the restrictions as they are, constants included, and decides them as the scan does: what it covers is what was visited,
//! whatever types are compared. Points go by summaries of 64 bits: a short key is itself, a longer one is hashed, and covers more.

use std::ops::{Bound, Range};

use hashbrown::HashTable;
use polychron_base::key::{EncodedKey, HashSeed};
use polychron_base::{IndexId, TableId, clear_each};
use polychron_engine::mutations::left_out;
use polychron_engine::scan::Comparison;
use polychron_engine::{Aggregate, Restriction};
use polychron_schema::{ColumnSet, ColumnType, Layout, RowRef, Value, ValueRef};

use super::steps::Step;

/// Points of a relation from which on they are coarsened into ranges: those whose summaries have the keys' order, and hashes, which
/// coarsen badly.
const COARSEN_ABOVE: usize = 1024;
const COARSEN_HASHES_ABOVE: usize = 1 << 16;
/// Paths of a relation beyond which one takes their place that covers everything.
const MOST_PATHS: usize = 1 << 18;
/// Into how many ranges.
const RANGES: usize = 64;

/// What stands for a key. Keys of up to 8 bytes keep their order. Longer ones that share a summary conflict, as one key does with itself.
#[inline]
pub(super) fn summary_of<K: EncodedKey>(key: K) -> u64 {
    if key.len() <= 8 { key.slice(0) } else { key.hash(HashSeed::FIXED) }
}

/// What stands for a value among those of its column, in their order. `None`: it is NULL, of another kind, or has no such number.
fn order_of(column_type: ColumnType, value: ValueRef<'_>) -> Option<u64> {
    let signed = |value: i64| value as u64 ^ 1 << 63;
    Some(match (value, column_type.stored()) {
        (ValueRef::Bool(value), ColumnType::Bool) => value.into(),
        (ValueRef::Integer(value), ColumnType::I8 | ColumnType::I16 | ColumnType::I32 | ColumnType::I64)
        | (ValueRef::Timestamp(value), ColumnType::Timestamp) => signed(value),
        (ValueRef::Date(value), ColumnType::Date) => signed(value.into()),
        (ValueRef::Decimal { units, scale }, ColumnType::Decimal { scale: own }) if scale == own => {
            signed(i64::try_from(units).ok()?)
        }
        (ValueRef::Char(value), ColumnType::Char) => u32::from(value).into(),
        (ValueRef::Unsigned(value), ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64) => value,
        // As in the total order of floating-point numbers.
        (ValueRef::Float(value), ColumnType::F32 | ColumnType::F64) => {
            let bits = value.to_bits();
            bits ^ if bits >> 63 == 0 { 1 << 63 } else { u64::MAX }
        }
        _ => return None,
    })
}

fn order_of_column(layout: &Layout, row: RowRef<'_>, column: usize) -> Option<u64> {
    order_of(layout.columns()[column].column_type, row.value_ref(layout, column))
}

/// A key's bytes in the log, or a text's.
pub(super) type Span = Range<u32>;

/// The constant of a restriction.
#[derive(Clone, Debug)]
pub(super) enum Constant {
    /// Of text and bytes there are none here.
    Plain(ValueRef<'static>),
    Text(Span),
    Bytes(Span),
}

/// One condition of a path, on one attribute or on the key of an index.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// The key of this index lies in a range.
    Key { index: IndexId, lower: Bound<Span>, upper: Bound<Span> },
    /// A column compares so with a constant.
    Column { column: u16, comparison: Comparison, constant: Constant },
}

/// A smallest or largest value that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extremum {
    pub(super) column: u16,
    pub(super) is_max: bool,
    /// What it was, if there was any.
    pub(super) found: Option<u64>,
}

impl Extremum {
    /// What an aggregate came to, where that has an order.
    pub(super) fn of(layout: &Layout, wanted: Aggregate, answer: &Value) -> Option<Self> {
        let (column, is_max) = match wanted {
            Aggregate::Min(column) => (column, false),
            Aggregate::Max(column) => (column, true),
            _ => return None,
        };
        let column_type = layout.columns().get(column)?.column_type;
        let found = match answer.as_value_ref() {
            ValueRef::Null if has_order(column_type) => None,
            value => Some(order_of(column_type, value)?),
        };
        Some(Self { column: column as u16, is_max, found })
    }

    /// Whether the answer may be another one when this row comes.
    pub(super) fn is_beaten_by(self, layout: &Layout, row: RowRef<'_>) -> bool {
        let value = order_of_column(layout, row, self.column.into());
        value.is_some_and(|value| match self.found {
            None => true,
            Some(found) if self.is_max => value > found,
            Some(found) => value < found,
        })
    }

    /// Whether the answer may be another one when this row goes.
    pub(super) fn rests_on(self, layout: &Layout, row: RowRef<'_>) -> bool {
        self.found.is_some() && order_of_column(layout, row, self.column.into()) == self.found
    }
}

fn has_order(column_type: ColumnType) -> bool {
    !matches!(
        column_type,
        ColumnType::String { .. }
            | ColumnType::Bytes { .. }
            | ColumnType::FixedString { .. }
            | ColumnType::FixedBytes { .. }
            | ColumnType::I128
            | ColumnType::U128
            | ColumnType::Decimal128 { .. }
    )
}

/// A key that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) summary: u64,
    pub(super) columns: ColumnSet,
}

/// Keys that were looked up, coarsened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coarse {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) columns: ColumnSet,
}

/// A range with restrictions.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Its conditions, among those of the relation.
    pub(super) tests: Range<u32>,
    pub(super) columns: ColumnSet,
    pub(super) extremum: Option<Extremum>,
}

/// What was asked of one relation.
#[derive(Debug, Default)]
pub(super) struct RelationLog {
    pub(super) points: Vec<Point>,
    pub(super) coarse: Vec<Coarse>,
    pub(super) paths: Vec<Path>,
    pub(super) tests: Vec<Test>,
    hash_seed: HashSeed,
    keys: Vec<u8>,
    texts: String,
    /// Whether a path covers everything, so that others need not be kept.
    is_whole: bool,
    /// Whether some keys were too long to be their own summaries.
    has_hashes: bool,
}

impl RelationLog {
    fn clear(&mut self) {
        clear_each!(self.points, self.coarse, self.paths, self.tests, self.keys, self.texts);
        (self.is_whole, self.has_hashes) = (false, false);
    }

    fn bytes(&self) -> usize {
        self.points.len() * size_of::<Point>()
            + self.coarse.len() * size_of::<Coarse>()
            + self.paths.len() * size_of::<Path>()
            + self.tests.len() * size_of::<Test>()
            + self.keys.len()
            + self.texts.len()
    }

    fn keep_bytes(&mut self, bytes: &[u8]) -> Span {
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(bytes);
        start..self.keys.len() as u32
    }

    fn keep_bound(&mut self, bound: Bound<&[u8]>) -> Bound<Span> {
        bound.map(|key| self.keep_bytes(key))
    }

    fn keep_constant(&mut self, value: &Value) -> Constant {
        Constant::Plain(match value {
            Value::String(text) => {
                let start = self.texts.len() as u32;
                self.texts.push_str(text);
                return Constant::Text(start..self.texts.len() as u32);
            }
            Value::Bytes(bytes) => return Constant::Bytes(self.keep_bytes(bytes)),
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Bool(*value),
            Value::Integer(value) => ValueRef::Integer(*value),
            Value::Unsigned(value) => ValueRef::Unsigned(*value),
            Value::Integer128(value) => ValueRef::Integer128(*value),
            Value::Unsigned128(value) => ValueRef::Unsigned128(*value),
            Value::Char(value) => ValueRef::Char(*value),
            Value::Float(value) => ValueRef::Float(*value),
            Value::Decimal { units, scale } => ValueRef::Decimal { units: *units, scale: *scale },
            Value::Date(value) => ValueRef::Date(*value),
            Value::Timestamp(value) => ValueRef::Timestamp(*value),
        })
    }

    /// A constant that was kept.
    fn constant(&self, constant: &Constant) -> ValueRef<'_> {
        let range = |span: &Span| span.start as usize..span.end as usize;
        match constant {
            Constant::Plain(value) => *value,
            Constant::Text(span) => ValueRef::String(&self.texts[range(span)]),
            Constant::Bytes(span) => ValueRef::Bytes(&self.keys[range(span)]),
        }
    }

    /// Whether a row satisfies a condition on a column: exactly as the scan decides it.
    pub(super) fn column_holds(
        &self,
        column: u16,
        comparison: Comparison,
        constant: &Constant,
        layout: &Layout,
        row: RowRef<'_>,
    ) -> bool {
        Restriction::compares(row.value_ref(layout, column.into()), comparison, self.constant(constant))
    }

    /// The bounds of a range of an index.
    pub(super) fn bounds(&self, test: &Test) -> (Bound<&[u8]>, Bound<&[u8]>) {
        match test {
            Test::Key { lower, upper, .. } => (self.bound(lower), self.bound(upper)),
            Test::Column { .. } => (Bound::Unbounded, Bound::Unbounded),
        }
    }

    /// A number that is the same of conditions that are, most often.
    pub(super) fn hash(&self, test: &Test) -> u64 {
        let of_bound = |bound: &Bound<Span>| match self.bound(bound) {
            Bound::Included(key) => key.hash(self.hash_seed),
            Bound::Excluded(key) => key.hash(self.hash_seed) ^ 1,
            Bound::Unbounded => 2,
        };
        match test {
            Test::Key { index, lower, upper } => {
                of_bound(lower).rotate_left(1) ^ of_bound(upper) ^ u64::from(index.0) << 32
            }
            Test::Column { column, comparison, constant } => {
                let constant = match self.constant(constant) {
                    ValueRef::String(text) => text.as_bytes().hash(self.hash_seed),
                    ValueRef::Bytes(bytes) => bytes.hash(self.hash_seed),
                    ValueRef::Bool(value) => value.into(),
                    ValueRef::Integer(value) | ValueRef::Timestamp(value) => value as u64,
                    ValueRef::Unsigned(value) => value,
                    // The low half, so that equal integers of every type have the same number.
                    ValueRef::Integer128(value) => value as u64,
                    ValueRef::Unsigned128(value) => value as u64,
                    ValueRef::Char(value) => u64::from(value),
                    ValueRef::Float(value) => value.to_bits(),
                    ValueRef::Date(value) => value as u64,
                    ValueRef::Null | ValueRef::Decimal { .. } => 0,
                };
                let kind = u64::from(*column) << 8 | *comparison as u64;
                constant.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ kind
            }
        }
    }

    /// Whether two conditions are the same.
    pub(super) fn same(&self, one: &Test, other: &Test) -> bool {
        match (one, other) {
            (Test::Key { index, lower, upper }, Test::Key { index: other, lower: other_lower, upper: other_upper }) => {
                let bounds = [(lower, other_lower), (upper, other_upper)];
                index == other && bounds.into_iter().all(|(one, other)| self.bound(one) == self.bound(other))
            }
            (
                Test::Column { column, comparison, constant },
                Test::Column { column: other, comparison: other_comparison, constant: other_constant },
            ) => {
                column == other
                    && comparison == other_comparison
                    && self.constant(constant) == self.constant(other_constant)
            }
            _ => false,
        }
    }

    /// A bound that was kept.
    pub(super) fn bound(&self, bound: &Bound<Span>) -> Bound<&[u8]> {
        bound.as_ref().map(|span| &self.keys[span.start as usize..span.end as usize])
    }

    /// Puts all paths together to one.
    #[cold]
    fn cover_all(&mut self) {
        self.paths.clear();
        self.tests.clear();
        self.keys.clear();
        self.texts.clear();
        self.paths.push(Path { tests: 0..0, columns: ColumnSet::ALL, extremum: None });
        self.is_whole = true;
    }

    /// Puts points together to a few ranges, apart where their summaries lie farthest from each other.
    #[cold]
    fn coarsen(&mut self) {
        self.coarse.extend(self.points.drain(..).map(|Point { summary, columns }| Coarse {
            first: summary,
            last: summary,
            columns,
        }));
        self.coarse.sort_unstable_by_key(|range| range.first);
        let gap = |last: &Coarse, next: &Coarse| next.first.saturating_sub(last.last);
        let mut gaps: Vec<u64> = self.coarse.windows(2).map(|pair| gap(&pair[0], &pair[1])).collect();
        gaps.sort_unstable_by(|one, other| other.cmp(one));
        // Larger gaps than this one divide, and as many of its own size as there are ranges left.
        let least = gaps.get(RANGES - 2).copied().unwrap_or(0);
        let mut left = RANGES - 1 - gaps.iter().take_while(|gap| **gap > least).count();
        let mut kept: Vec<Coarse> = Vec::with_capacity(RANGES);
        for &range in &self.coarse {
            let between = kept.last().map_or(u64::MAX, |last| gap(last, &range));
            let divides = between > least || between == least && least > 0 && left > 0;
            if between == least && divides {
                left -= 1;
            }
            match kept.last_mut() {
                Some(last) if !divides => {
                    last.last = last.last.max(range.last);
                    last.columns = last.columns.union(range.columns);
                }
                _ => kept.push(range),
            }
        }
        self.coarse = kept;
    }
}

/// The log of one transaction.
#[derive(Debug, Default)]
pub(super) struct PredicateLog {
    /// The relations of which anything was asked.
    touched: Vec<TableId>,
    /// What was asked of each, in the same order, and behind them memory for others.
    relations: Vec<RelationLog>,
    /// Where they are, when they are many.
    positions: HashTable<u32>,
    /// The position of the one that was asked last.
    last: usize,
    /// The relation of which code of the procedure is being shown rows. It stays here only when that code panics.
    shown: Option<TableId>,
}

/// Relations whose memory is kept for the next transaction.
pub(super) const KEPT_RELATIONS: usize = 64;
/// So few relations are looked through one by one.
const FEW_RELATIONS: usize = 8;

fn hash_of(table: TableId) -> u64 {
    (table.position() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl PredicateLog {
    #[inline]
    fn relation_mut(&mut self, table: TableId) -> &mut RelationLog {
        if self.touched.get(self.last) != Some(&table) {
            self.last = self.position(table).unwrap_or_else(|| self.touch(table));
        }
        &mut self.relations[self.last]
    }

    fn touch(&mut self, table: TableId) -> usize {
        let position = self.touched.len();
        self.touched.push(table);
        if self.relations.len() == position {
            self.relations.push(RelationLog::default());
        }
        let first = if position == FEW_RELATIONS { 0 } else { position };
        if position >= FEW_RELATIONS {
            for new in first..=position {
                let touched = &self.touched;
                self.positions.insert_unique(hash_of(touched[new]), new as u32, |at| hash_of(touched[*at as usize]));
            }
        }
        position
    }

    /// The relations of which anything was asked.
    pub(super) fn touched(&self) -> &[TableId] {
        &self.touched
    }

    /// Where a relation is among those.
    #[inline]
    pub(super) fn position(&self, table: TableId) -> Option<usize> {
        if self.touched.len() <= FEW_RELATIONS {
            return self.touched.iter().position(|touched| *touched == table);
        }
        let is_wanted = |at: &u32| self.touched[*at as usize] == table;
        self.positions.find(hash_of(table), is_wanted).map(|at| *at as usize)
    }

    /// What was asked of the relation at a position.
    #[inline]
    pub(super) fn relation_at(&self, position: usize) -> &RelationLog {
        &self.relations[position]
    }

    /// Code of the procedure is going to be shown rows of a relation, and what it is shown is logged behind it. If it panics, and the
    /// procedure goes on, [`PredicateLog::close`] finds this.
    #[inline]
    pub(super) fn begin_to_show(&mut self, table: TableId) {
        self.close();
        self.shown = Some(table);
    }

    /// What was shown is logged.
    #[inline]
    pub(super) fn has_shown(&mut self) {
        self.shown = None;
    }

    /// Logs a whole relation when code panicked that was being shown rows of it.
    #[inline]
    pub(super) fn close(&mut self) {
        if let Some(table) = self.shown.take() {
            self.path(table, IndexId::PRIMARY, (Bound::Unbounded, Bound::Unbounded), &[], ColumnSet::ALL, None);
        }
    }

    /// A key was looked up.
    #[inline]
    pub(super) fn point<K: EncodedKey>(&mut self, table: TableId, key: K, columns: ColumnSet) {
        self.point_of(table, summary_of(key), key.len() > 8, columns);
    }

    /// As [`PredicateLog::point`], of a key's summary.
    #[inline]
    pub(super) fn point_of(&mut self, table: TableId, summary: u64, is_hash: bool, columns: ColumnSet) {
        let relation = self.relation_mut(table);
        relation.has_hashes |= is_hash;
        if let Some(last) = relation.points.last_mut()
            && last.summary == summary
        {
            last.columns = last.columns.union(columns);
            return;
        }
        relation.points.push(Point { summary, columns });
        let most = if relation.has_hashes { COARSEN_HASHES_ABOVE } else { COARSEN_ABOVE };
        if relation.points.len() > most {
            relation.coarsen();
        }
    }

    /// A key of an index was looked up.
    pub(super) fn key(&mut self, table: TableId, index: IndexId, key: &[u8]) {
        let bounds = (Bound::Included(key), Bound::Included(key));
        self.path(table, index, bounds, &[], ColumnSet::EMPTY, None);
    }

    /// A range was visited, or asked for its smallest or largest value.
    pub(super) fn path(
        &mut self,
        table: TableId,
        index: IndexId,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        restrictions: &[Restriction],
        columns: ColumnSet,
        extremum: Option<Extremum>,
    ) {
        let relation = self.relation_mut(table);
        if relation.paths.len() >= MOST_PATHS && !relation.is_whole {
            relation.cover_all();
        }
        if relation.is_whole {
            return;
        }
        let start = relation.tests.len() as u32;
        if (lower, upper) != (Bound::Unbounded, Bound::Unbounded) {
            let (lower, upper) = (relation.keep_bound(lower), relation.keep_bound(upper));
            relation.tests.push(Test::Key { index, lower, upper });
        }
        let kept = if left_out(Step::LogRestrictions) { &[] } else { restrictions };
        for Restriction { column, comparison, value } in kept {
            let constant = relation.keep_constant(value);
            relation.tests.push(Test::Column { column: *column as u16, comparison: *comparison, constant });
        }
        let tests = start..relation.tests.len() as u32;
        relation.paths.push(Path { tests, columns, extremum });
    }

    /// Bytes of all that was logged.
    pub(super) fn bytes(&self) -> usize {
        self.relations[..self.touched.len()].iter().map(RelationLog::bytes).sum()
    }

    /// Forgets everything, and keeps the memory.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.shown = None;
        self.relations[..self.touched.len()].iter_mut().for_each(RelationLog::clear);
        if self.touched.len() > FEW_RELATIONS {
            self.forget_many();
        }
        self.touched.clear();
    }

    #[cold]
    fn forget_many(&mut self) {
        self.relations.truncate(KEPT_RELATIONS);
        self.touched.shrink_to(KEPT_RELATIONS);
        self.positions.clear();
        self.positions.shrink_to(KEPT_RELATIONS, |_| 0);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Whatever tables there are, a log has room for those that were asked, and finds each again.
    #[test]
    fn a_log_grows_with_the_relations_that_were_asked() {
        let mut log = PredicateLog::default();
        for (tables, stride) in [(1, 1 << 20), (FEW_RELATIONS + 1, 1 << 16), (300, 1 << 10), (2, 7)] {
            let table = |number: usize| TableId::new(1, (1 + number * stride) as u32);
            for round in 0..2 {
                for number in 0..tables {
                    log.point_of(table(number), number as u64, false, ColumnSet::EMPTY);
                    log.point_of(table(number), round, false, ColumnSet::EMPTY);
                }
            }
            assert_eq!(log.touched().len(), tables);
            assert!(log.relations.len() <= tables.max(KEPT_RELATIONS), "{} relations", log.relations.len());
            assert!(log.positions.len() <= if tables > FEW_RELATIONS { tables } else { 0 });
            for number in 0..tables {
                let relation = log.relation_at(log.position(table(number)).unwrap());
                assert_eq!(relation.points.first().map(|point| point.summary), Some(number as u64));
                assert!(relation.points.len() <= 4);
            }
            assert_eq!(log.position(table(tables)), None);
            log.clear();
            assert!(log.relations.len() <= KEPT_RELATIONS && log.touched().is_empty() && log.bytes() == 0);
        }
    }
}
