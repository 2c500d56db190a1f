//! Column batches: many rows at once, a slice of words for each column, as analytical code wants them.
//!
//! A protocol that changes rows where they lie lends its own memory, while others may write it. So the slices are of atomic words, whose
//! loads are never torn; and the reader of a batch learns afterwards whether the rows changed (see
//! [`Queries::visit_columns`](crate::Queries::visit_columns)). The sums, extremes and comparisons here go along the slices by the machine's
//! vectors.

use std::ops::ControlFlow;

use polychron_base::error::column_name;
use polychron_base::floats::{narrow, widen};
use polychron_base::{Error, TableId};
use polychron_schema::{ColumnType, LayoutColumn, RowRef, Value, ValueRef};
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::vectors::{self, Form};

use crate::aggregate::{column_of, projection_of};
use crate::{Scan, Transaction};

/// Rows of a batch at most. Fewer make up a batch where each step is interpreted.
pub const ROWS: usize = if cfg!(miri) { 64 } else { 1024 };

/// A bit for each row of a batch, from the lowest of the first word on.
pub type Bits = [u64; ROWS / 64];

/// Some rows of a range, column by column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnBatch<'b> {
    /// Length of the columns' slices, 1 to [`ROWS`].
    pub rows: usize,
    /// A bit for each row, set where the row belongs to the answer; `None` when all do. A protocol that lends its own columns marks here
    /// what the restrictions left, instead of copying it together.
    pub selected: Option<&'b Bits>,
    /// The columns, in the order in which they were asked for.
    pub columns: &'b [ColumnVector<'b>],
}

/// A sum of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Of integers, or of the units of decimals; other numbers as their bits have it.
    Whole(i128),
    /// Of floating-point numbers, one after the other.
    Float(f64),
}

impl<'b> ColumnBatch<'b> {
    /// The positions of the rows that belong to the answer.
    pub fn positions(&self) -> impl Iterator<Item = usize> + use<'b> {
        let selected = self.selected;
        let is_selected =
            move |position: &usize| selected.is_none_or(|bits| bits[position / 64] >> (position % 64) & 1 != 0);
        (0..self.rows).filter(is_selected)
    }

    /// The number of rows that belong to the answer.
    pub fn count(&self) -> usize {
        self.selected.map_or(self.rows, count_ones)
    }

    /// The number of these rows that have a value in a column, which is given by its position in the batch.
    ///
    /// # Panics
    /// If the batch has no such column.
    pub fn count_values(&self, column: usize) -> usize {
        self.mask(column, &mut [0; ROWS / 64]).map_or(self.rows, count_ones)
    }

    /// The sum of a column's values; none where there are no values.
    ///
    /// # Panics
    /// If the batch has no such column.
    pub fn sum(&self, column: usize) -> Option<Sum> {
        let (vector, mut scratch) = (&self.columns[column], [0; ROWS / 64]);
        let mask = self.mask(column, &mut scratch);
        let count = mask.map_or(self.rows, count_ones);
        if count == 0 {
            return None;
        }
        let form = vector.column.form;
        if form.is_float() {
            let values = self.positions().filter(|&position| !vector.is_null(position));
            return Some(Sum::Float(values.map(|position| f64::from_bits(vector.bits(position))).sum()));
        }
        let ordered = vectors::sum(vector.words, form, mask.map(|bits| &bits[..]));
        Some(Sum::Whole(ordered + count as i128 * form.bias()))
    }

    /// The smallest of a column's values, or the largest; NULL where there are none.
    pub fn extreme(&self, column: usize, is_largest: bool) -> ValueRef<'static> {
        let (vector, mut scratch) = (&self.columns[column], [0; ROWS / 64]);
        let mask = self.mask(column, &mut scratch).map(|bits| &bits[..]);
        let found = vectors::extreme(vector.words, vector.column.form, mask, is_largest);
        found.map_or(ValueRef::Null, |number| vector.column.value(number))
    }

    /// The rows that belong to the answer and have a value in the column; `None` when all do.
    fn mask<'s>(&self, column: usize, scratch: &'s mut Bits) -> Option<&'s Bits>
    where
        'b: 's,
    {
        let nulls = self.columns[column].nulls;
        let Some(nulls) = nulls else { return self.selected };
        let all = &[u64::MAX; ROWS / 64];
        for (word, (nulls, selected)) in scratch.iter_mut().zip(nulls.iter().zip(self.selected.unwrap_or(all))) {
            *word = selected & !nulls;
        }
        clear_behind(scratch, self.rows);
        Some(scratch)
    }
}

fn count_ones(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// Clears the bits from a position on.
pub fn clear_behind(bits: &mut Bits, rows: usize) {
    for (number, word) in bits.iter_mut().enumerate() {
        let left = rows.saturating_sub(64 * number).min(64);
        *word &= u64::MAX.checked_shr(64 - left as u32).unwrap_or(0);
    }
}

/// One column of a batch.
#[derive(Clone, Copy, Debug)]
pub struct ColumnVector<'b> {
    words: &'b [AtomicU64],
    column: NumericColumn,
    nulls: Option<&'b Bits>,
}

impl<'b> ColumnVector<'b> {
    /// A column whose numbers lie in these words as they do in the words of rows. In `nulls` a set bit means NULL; the bits behind the
    /// last row are not looked at.
    pub fn new(words: &'b [AtomicU64], column: NumericColumn, nulls: Option<&'b Bits>) -> Self {
        Self { words, column, nulls }
    }

    /// The words in which the numbers lie.
    #[inline]
    pub fn words(&self) -> &'b [AtomicU64] {
        self.words
    }

    /// The position of the number in each word.
    #[inline]
    pub fn form(&self) -> Form {
        self.column.form
    }

    /// The column's type; of an enum that of its integer.
    #[inline]
    pub fn column_type(&self) -> ColumnType {
        self.column.column_type
    }

    /// Whether the value at a position is NULL.
    #[inline]
    pub fn is_null(&self, position: usize) -> bool {
        self.nulls.is_some_and(|bits| bits[position / 64] >> (position % 64) & 1 != 0)
    }

    /// The bits of the value at a position: a signed or an unsigned integer of 64 bits, or those of an `f64`. What stands in the place of
    /// a NULL means nothing.
    #[inline]
    pub fn bits(&self, position: usize) -> u64 {
        // Relaxed: the lender of the words reports afterwards whether they changed.
        self.column.bits(self.column.form.ordered(self.words[position].load(Ordering::Relaxed)))
    }

    /// The value at a position.
    ///
    /// # Panics
    /// If the column is not so long.
    #[inline]
    pub fn value(&self, position: usize) -> ValueRef<'static> {
        if self.is_null(position) {
            return ValueRef::Null;
        }
        self.column.value(self.column.form.ordered(self.words[position].load(Ordering::Relaxed)))
    }
}

/// A column of this type cannot come as a slice of numbers. Ends the procedure as [`Error::NotNumeric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNumeric(pub ColumnType);

impl NotNumeric {
    /// The error, of the column at a position of a table.
    #[cold]
    pub fn into_error(self, table: TableId, column: usize) -> Error {
        Error::not_numeric(column_name(table, column), self.0.to_string())
    }
}

/// The position of a numeric column among the words of a row.
#[derive(Clone, Copy, Debug)]
pub struct NumericColumn {
    /// Which word.
    pub word: usize,
    /// The position in that word.
    pub form: Form,
    /// The word and its bit that say NULL, where the column can be that.
    pub null: Option<(usize, u32)>,
    /// The type of the numbers; for an enum, that of its integer.
    column_type: ColumnType,
}

impl NumericColumn {
    /// Finds the place.
    ///
    /// # Errors
    /// The column does not hold numbers.
    pub fn new(column: &LayoutColumn) -> Result<Self, NotNumeric> {
        use ColumnType as Type;
        let (slot, column_type) = (column.slot, column.column_type.stored());
        let is_numeric = column_type.is_integer()
            || matches!(column_type, Type::Bool | Type::F32 | Type::F64 | Type::Char)
            || matches!(column_type, Type::Date | Type::Timestamp | Type::Decimal { .. });
        if !is_numeric {
            return Err(NotNumeric(column_type));
        }
        let from_lowest = |byte: u32, bytes: u32| if cfg!(target_endian = "big") { 8 - byte - bytes } else { byte };
        let form = match column_type {
            Type::F32 | Type::F64 => Form::float(from_lowest(slot.offset % 8, slot.width), slot.width),
            _ => Form::integer(from_lowest(slot.offset % 8, slot.width), slot.width, column_type.is_signed()),
        };
        let bit = u32::from(slot.null_bit);
        let null = slot.is_nullable().then(|| ((bit / 64) as usize, 8 * from_lowest(bit / 8 % 8, 1) + bit % 8));
        Ok(Self { word: (slot.offset / 8) as usize, form, null, column_type })
    }

    /// The bits for which an ordered number stands: an integer's, or those of an `f64`.
    #[inline]
    fn bits(&self, number: i64) -> u64 {
        let bits = self.form.bits(number);
        if self.column_type == ColumnType::F32 { widen(f32::from_bits(bits as u32)).to_bits() } else { bits }
    }

    /// The value for which an ordered number stands.
    #[inline]
    fn value(&self, number: i64) -> ValueRef<'static> {
        let bits = self.bits(number);
        match self.column_type {
            ColumnType::Bool => ValueRef::Bool(bits != 0),
            ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => ValueRef::Unsigned(bits),
            ColumnType::F32 | ColumnType::F64 => ValueRef::Float(f64::from_bits(bits)),
            // A number of no character is one that did not stand still.
            ColumnType::Char => ValueRef::Char(char::from_u32(bits as u32).unwrap_or(char::REPLACEMENT_CHARACTER)),
            ColumnType::Date => ValueRef::Date(number as i32),
            ColumnType::Timestamp => ValueRef::Timestamp(number),
            ColumnType::Decimal { scale } => ValueRef::Decimal { units: number.into(), scale },
            _ => ValueRef::Integer(number),
        }
    }

    /// The ordered number for which a value stands, unless it is of another kind or lies between two numbers; it may lie beyond all
    /// numbers of the column.
    pub fn number(&self, value: &Value) -> Option<i128> {
        // Beyond the numbers of 64 bits all are alike.
        let beyond = 1_i128 << 100;
        let is_integer = self.column_type.is_integer();
        let whole = match (value, self.column_type) {
            (Value::Integer(value), _) if is_integer => (*value).into(),
            (Value::Unsigned(value), _) if is_integer => (*value).into(),
            (Value::Integer128(value), _) if is_integer => (*value).clamp(-beyond, beyond),
            (Value::Unsigned128(value), _) if is_integer => i128::try_from(*value).unwrap_or(beyond).min(beyond),
            (Value::Char(value), ColumnType::Char) => i128::from(u32::from(*value)),
            (Value::Bool(value), ColumnType::Bool) => i128::from(*value),
            (Value::Date(value), ColumnType::Date) => (*value).into(),
            (Value::Timestamp(value), ColumnType::Timestamp) => (*value).into(),
            (Value::Decimal { units, scale }, ColumnType::Decimal { scale: own }) if *scale == own => {
                (*units).clamp(-beyond, beyond)
            }
            (Value::Float(value), ColumnType::F64) => self.form.ordered(value.to_bits()).into(),
            (Value::Float(value), ColumnType::F32) => {
                Form::float(0, 4).ordered(narrow(*value)?.to_bits().into()).into()
            }
            _ => return None,
        };
        Some(whole - self.form.bias())
    }
}

/// One column of a batch that is being gathered.
struct Gathering {
    column: NumericColumn,
    words: Vec<AtomicU64>,
    nulls: Bits,
    any_null: bool,
}

impl Gathering {
    fn new(column: &LayoutColumn) -> Result<Self, NotNumeric> {
        let column = NumericColumn::new(column)?;
        Ok(Self { column, words: Vec::with_capacity(ROWS), nulls: [0; ROWS / 64], any_null: false })
    }

    fn push(&mut self, row: RowRef<'_>, position: usize) {
        let word = |number: usize| u64::from_ne_bytes(row.load(8 * number as u32));
        self.words.push(AtomicU64::new(word(self.column.word)));
        if let Some((number, bit)) = self.column.null
            && word(number) >> bit & 1 != 0
        {
            self.nulls[position / 64] |= 1 << (position % 64);
            self.any_null = true;
        }
    }

    fn clear(&mut self) {
        self.words.clear();
        self.nulls = [0; ROWS / 64];
        self.any_null = false;
    }

    fn lend(&self) -> ColumnVector<'_> {
        ColumnVector::new(&self.words, self.column, self.any_null.then_some(&self.nulls))
    }
}

/// The default of [`Queries::visit_columns`](crate::Queries::visit_columns).
///
/// # Errors
/// As there.
pub fn over_rows<T: Transaction + ?Sized, O>(
    transaction: &mut T,
    scan: &Scan<'_>,
    columns: &[usize],
    look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
    keep: &mut impl FnMut(O) -> ControlFlow<()>,
) -> Result<(), Error> {
    let layout = transaction.definition(scan.table)?.layout().map_err(polychron_base::Error::from)?;
    let mut gathering = Vec::with_capacity(columns.len());
    for &column in columns {
        let gathered = Gathering::new(column_of(&layout, scan.table, column)?);
        gathering.push(gathered.map_err(|error| error.into_error(scan.table, column))?);
    }
    let mut hand_over = |gathering: &mut [Gathering], rows| {
        let columns: Vec<_> = gathering.iter().map(Gathering::lend).collect();
        let flow = keep(look(&ColumnBatch { rows, selected: None, columns: &columns }));
        gathering.iter_mut().for_each(Gathering::clear);
        flow
    };
    let projection = projection_of(&layout, columns);
    let (mut rows, mut flow) = (0, ControlFlow::Continue(()));
    transaction.scan_unchecked(&Scan { projection, ..scan.clone() }, &mut |row| {
        for column in &mut gathering {
            column.push(row, rows);
        }
        rows += 1;
        if rows == ROWS {
            flow = hand_over(&mut gathering, rows);
            rows = 0;
        }
        flow
    })?;
    if rows > 0 {
        // The visit is over either way.
        let _ = hand_over(&mut gathering, rows);
    }
    Ok(())
}
