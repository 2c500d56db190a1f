//! Column batches: many rows at once, a slice for each column, as analytical code wants them.

use std::fmt;
use std::ops::ControlFlow;

use polychron_base::Stop;
use polychron_schema::{ColumnType, LayoutColumn, RowRef};

use crate::aggregate::{column_of, projection_of};
use crate::{Scan, Transaction};

/// Rows of a batch at most.
pub const ROWS: usize = 1024;

/// Some rows of a range, column by column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnBatch<'b> {
    /// Length of the columns' slices.
    pub rows: usize,
    /// The positions of the rows that belong to the answer, ascending; `None` when all do. A protocol that lends its own
    /// columns names here what the restrictions left, instead of copying it together.
    pub selected: Option<&'b [u16]>,
    /// The columns, in the order in which they were asked for.
    pub columns: &'b [ColumnVector<'b>],
}

impl ColumnBatch<'_> {
    /// The positions of the rows that belong to the answer.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        let all = if self.selected.is_none() { 0..self.rows } else { 0..0 };
        all.chain(self.selected.unwrap_or_default().iter().map(|&position| usize::from(position)))
    }
}

/// One column of a batch.
#[derive(Clone, Copy, Debug)]
pub struct ColumnVector<'b> {
    /// The values; what stands in the place of a NULL means nothing.
    pub values: ColumnValues<'b>,
    /// A bit for each row, from the lowest of the first word on: set means NULL. Empty when the batch has none.
    pub nulls: &'b [u64],
}

impl ColumnVector<'_> {
    /// Whether the value at a position is NULL.
    #[inline]
    pub fn is_null(&self, position: usize) -> bool {
        self.nulls.get(position / 64).is_some_and(|word| word >> (position % 64) & 1 != 0)
    }
}

/// A column that cannot come as a slice of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNumeric(pub ColumnType);

impl fmt::Display for NotNumeric {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a column of type {} does not come in batches", self.0)
    }
}

impl std::error::Error for NotNumeric {}

macro_rules! numeric {
    ($($variant:ident($type:ty), $bytes:literal, [$pattern:pat];)*) => {
        /// The values of a column, in the width they have in the row: decimals as their units, dates in days, timestamps in
        /// microseconds, truth values as 0 and 1.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum ColumnValues<'b> {
            $($variant(&'b [$type]),)*
        }

        /// The values of a batch that is being gathered.
        enum Gathered {
            $($variant(Vec<$type>),)*
        }

        impl Gathered {
            fn new(column_type: ColumnType) -> Result<Self, NotNumeric> {
                match column_type {
                    $($pattern => Ok(Self::$variant(Vec::with_capacity(ROWS))),)*
                    other => Err(NotNumeric(other)),
                }
            }

            fn push(&mut self, row: RowRef<'_>, offset: u32) {
                match self {
                    $(Self::$variant(values) => values.push(<$type>::from_le_bytes(row.load::<$bytes>(offset))),)*
                }
            }

            fn clear(&mut self) {
                match self {
                    $(Self::$variant(values) => values.clear(),)*
                }
            }

            fn lend(&self) -> ColumnValues<'_> {
                match self {
                    $(Self::$variant(values) => ColumnValues::$variant(values),)*
                }
            }
        }
    };
}

numeric! {
    I8(i8), 1, [ColumnType::I8];
    I16(i16), 2, [ColumnType::I16];
    I32(i32), 4, [ColumnType::I32 | ColumnType::Date];
    I64(i64), 8, [ColumnType::I64 | ColumnType::Timestamp | ColumnType::Decimal { .. }];
    U8(u8), 1, [ColumnType::U8 | ColumnType::Bool];
    U16(u16), 2, [ColumnType::U16];
    U32(u32), 4, [ColumnType::U32];
    U64(u64), 8, [ColumnType::U64];
    F64(f64), 8, [ColumnType::F64];
}

/// One column of a batch that is being gathered.
struct Gathering<'l> {
    column: &'l LayoutColumn,
    values: Gathered,
    nulls: [u64; ROWS / 64],
    any_null: bool,
}

impl<'l> Gathering<'l> {
    fn new(column: &'l LayoutColumn) -> Result<Self, NotNumeric> {
        Ok(Self { column, values: Gathered::new(column.column_type)?, nulls: [0; ROWS / 64], any_null: false })
    }

    fn push(&mut self, row: RowRef<'_>, position: usize) {
        self.values.push(row, self.column.slot.offset);
        if row.is_null(self.column.slot) {
            self.nulls[position / 64] |= 1 << (position % 64);
            self.any_null = true;
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        self.nulls = [0; ROWS / 64];
        self.any_null = false;
    }

    fn lend(&self) -> ColumnVector<'_> {
        ColumnVector { values: self.values.lend(), nulls: if self.any_null { &self.nulls } else { &[] } }
    }
}

/// The default of [`Transaction::scan_columns`].
pub(crate) fn over_rows<T: Transaction + ?Sized>(
    transaction: &mut T,
    scan: &Scan<'_>,
    columns: &[usize],
    visitor: &mut impl FnMut(&ColumnBatch<'_>) -> ControlFlow<()>,
) -> Result<(), Stop> {
    let layout = transaction.definition(scan.table)?.layout().map_err(polychron_base::Error::from)?;
    let mut gathering = Vec::with_capacity(columns.len());
    for &column in columns {
        gathering.push(Gathering::new(column_of(&layout, scan.table, column)?)?);
    }
    let projection = projection_of(&layout, columns);
    let (mut rows, mut flow) = (0, ControlFlow::Continue(()));
    transaction.scan_rows(&Scan { projection, ..scan.clone() }, &mut |row| {
        for column in &mut gathering {
            column.push(row, rows);
        }
        rows += 1;
        if rows == ROWS {
            flow = hand_over(&mut gathering, rows, visitor);
            rows = 0;
        }
        flow
    })?;
    if rows > 0 {
        // The visit is over either way.
        let _ = hand_over(&mut gathering, rows, visitor);
    }
    Ok(())
}

fn hand_over(
    gathering: &mut [Gathering<'_>],
    rows: usize,
    visitor: &mut impl FnMut(&ColumnBatch<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let columns: Vec<_> = gathering.iter().map(Gathering::lend).collect();
    let flow = visitor(&ColumnBatch { rows, selected: None, columns: &columns });
    gathering.iter_mut().for_each(Gathering::clear);
    flow
}
