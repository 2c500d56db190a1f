//! Keys out of encoded rows, for indexes that are kept up beside the row.

use polychron_base::key::Key16;

use crate::buffer::RowRef;
use crate::column::ColumnSet;
use crate::definition::{ColumnOrder, TableDefinition};
use crate::error::SchemaError;
use crate::key::{KeyReader, KeyScratch};
use crate::key_column::KeyColumn;
use crate::layout::Layout;
use crate::types::ColumnType;
use crate::value::{Value, ValueRef};

/// When entries of an index carry the primary key behind the index's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    /// The primary index, and unique indexes without nullable columns.
    Never,
    /// Unique indexes with nullable columns: NULL equals nothing, so such entries are told apart by their row.
    WithNull,
    /// Non-unique indexes.
    Always,
}

/// Makes the keys of one index, primary or secondary, from rows or from values.
///
/// The bytes are those of [`crate::Key::encode`]: of the primary key's columns; of the index's columns for a unique index
/// without nullable columns; of the index's columns followed by the primary key's for a non-unique index. In a unique
/// index with nullable columns the columns are encoded as by [`crate::Key::encode_prefix`], and the primary key follows
/// when one of them is NULL. Columns of which the index's definition says so are sorted in another order
/// ([`crate::IndexDefinition::orders`]), and then no [`crate::Key`] has these bytes.
#[derive(Clone, Debug)]
pub struct KeyExtractor {
    columns: Box<[KeyColumn]>,
    primary: Box<[KeyColumn]>,
    suffix: Suffix,
    /// Columns on which an entry depends.
    set: ColumnSet,
    positions: Box<[usize]>,
    fixed: Option<usize>,
    /// The whole key, suffix included, when it is at most 16 bytes of plain numbers.
    numbers: Option<Box<[Number]>>,
}

/// A number of a short key: where it lies, and what to flip so that it sorts.
#[derive(Clone, Copy, Debug)]
struct Number {
    offset: u32,
    width: u32,
    flip: u64,
}

impl KeyExtractor {
    /// The extractor of the primary key.
    ///
    /// # Errors
    /// When the definition is not valid.
    pub fn primary(definition: &TableDefinition) -> Result<Self, SchemaError> {
        let layout = definition.layout()?;
        let columns = in_order(&layout, &definition.key);
        Ok(Self::new(&definition.key, columns, [].into(), Suffix::Never))
    }

    /// The extractor of the secondary index at that position.
    ///
    /// # Errors
    /// When the definition is not valid or has no such index.
    pub fn secondary(definition: &TableDefinition, position: usize) -> Result<Self, SchemaError> {
        let layout = definition.layout()?;
        let found = definition.indexes.get(position);
        let index = found.ok_or_else(|| SchemaError::UnknownColumn { column: format!("index {position}") })?;
        let suffix = match (index.unique, definition.appends_primary_key(index)) {
            (false, _) => Suffix::Always,
            (true, true) => Suffix::WithNull,
            (true, false) => Suffix::Never,
        };
        let pick = |(at, &column): (usize, &usize)| KeyColumn::new(layout.columns()[column].clone(), index.order(at));
        let columns = index.columns.iter().enumerate().map(pick).collect();
        Ok(Self::new(&index.columns, columns, in_order(&layout, &definition.key), suffix))
    }

    /// The extractor of a foreign key: makes the parent's primary key of a row of which none of the columns is NULL.
    ///
    /// # Errors
    /// When a definition is not valid, or the columns are not of the types of the parent's primary key.
    pub fn foreign(child: &TableDefinition, columns: &[usize], parent: &TableDefinition) -> Result<Self, SchemaError> {
        let (own, parents) = (child.layout()?, parent.layout()?);
        let types = |layout: &Layout, positions: &[usize]| -> Vec<ColumnType> {
            positions.iter().map(|&position| layout.columns()[position].column_type).collect()
        };
        let (own_types, parent_types) = (types(&own, columns), types(&parents, &parent.key));
        let alike = own_types.len() == parent_types.len()
            && own_types.iter().zip(&parent_types).all(|(own, other)| own.is_like(*other));
        if !alike {
            return Err(SchemaError::ForeignKeyTypes { parent: parent.name.clone() });
        }
        // A key of the parent says nothing of NULL.
        let never_null = in_order(&own, columns).into_iter().map(KeyColumn::without_null).collect();
        Ok(Self::new(columns, never_null, [].into(), Suffix::Never))
    }

    /// The extractor of the columns at these positions, which may be NULL: rows with equal values there, and no others, have the same key, and it
    /// is that of [`crate::Key::encode`].
    pub fn of_columns(layout: &Layout, positions: &[usize]) -> Self {
        Self::new(positions, in_order(layout, positions), [].into(), Suffix::Never)
    }

    fn new(positions: &[usize], columns: Box<[KeyColumn]>, primary: Box<[KeyColumn]>, suffix: Suffix) -> Self {
        let set = positions.iter().fold(ColumnSet::EMPTY, |set, &position| set.with(position as u16));
        let mut fixed = width_of(&columns);
        if suffix == Suffix::Always {
            fixed = fixed.and_then(|bytes| Some(bytes + width_of(&primary)?));
        } else if suffix == Suffix::WithNull {
            fixed = None;
        }
        let all = columns.iter().chain(primary.iter().filter(|_| suffix == Suffix::Always));
        let numbers = fixed.filter(|&bytes| bytes <= 16).and_then(|_| all.map(KeyColumn::as_number).collect());
        Self { columns, primary, suffix, set, positions: positions.into(), fixed, numbers }
    }

    /// The key of a row in registers, when it consists of at most 16 bytes of integers, decimals, dates and timestamps
    /// that are not nullable; for one extractor always or never.
    #[inline]
    pub fn extract_short(&self, row: RowRef<'_>) -> Option<Key16> {
        let (value, len) = self.short(row)?;
        Some(Key16::new(value, len))
    }

    #[inline]
    fn short(&self, row: RowRef<'_>) -> Option<(u128, usize)> {
        let mut value = 0;
        for number in self.numbers.as_deref()? {
            let bits = row.number(number.offset, number.width);
            value = value << (8 * number.width) | u128::from(bits ^ number.flip);
        }
        Some((value, self.fixed?))
    }

    /// The same of one value a column, where these alone are the key and each is of the kind that its column holds.
    #[inline]
    fn short_of<'v>(&self, values: impl ExactSizeIterator<Item = ValueRef<'v>>) -> Option<(u128, usize)> {
        let numbers = self.numbers.as_deref().filter(|_| self.suffix == Suffix::Never)?;
        if values.len() != numbers.len() {
            return None;
        }
        let mut key = 0;
        for ((number, column), value) in numbers.iter().zip(&self.columns).zip(values) {
            let bits = plain_bits(column.column_type, value)?;
            key = key << (8 * number.width) | u128::from((bits ^ number.flip) & u64::MAX >> (64 - 8 * number.width));
        }
        Some((key, self.fixed?))
    }

    /// The columns on which the key depends and which an update can change: those of the index, not the appended
    /// primary key's.
    #[inline]
    pub fn columns(&self) -> ColumnSet {
        self.set
    }

    /// Positions of the columns in key order.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Whether changes of these columns can change the key.
    #[inline]
    pub fn affects(&self, changed: ColumnSet) -> bool {
        self.set.intersects(changed)
    }

    /// Bytes of every key, or `None` when they depend on the row.
    pub fn fixed_bytes(&self) -> Option<usize> {
        self.fixed
    }

    /// Whether lookups by all of the index's columns are scans of a prefix, because entries carry more behind them.
    /// Entries of a unique index do for keys with NULL only, which no lookup by equality wants.
    pub fn is_prefix(&self) -> bool {
        self.suffix == Suffix::Always
    }

    /// The key of a row.
    ///
    /// # Errors
    /// [`SchemaError::KeyTooLong`], which keys of fixed width never give.
    #[inline]
    pub fn extract<'s>(&self, row: RowRef<'_>, scratch: &'s mut KeyScratch) -> Result<&'s [u8], SchemaError> {
        if let Some((value, len)) = self.short(row) {
            return Ok(scratch.fill(value, len));
        }
        scratch.clear();
        let open = self.suffix != Suffix::Never;
        put_columns(&self.columns, row, scratch, open);
        let null = || self.columns.iter().any(|column| row.is_null(column.slot));
        if self.suffix == Suffix::Always || self.suffix == Suffix::WithNull && null() {
            put_columns(&self.primary, row, scratch, false);
        }
        scratch.checked()
    }

    /// The key of one value a column: the primary key itself, the key of a unique index, or the bytes with which the
    /// entries of a non-unique index begin. With fewer values: the bytes with which such keys begin.
    ///
    /// # Errors
    /// Too many values, a wrong type, or a key that is too long.
    pub fn encode_key<'s>(&self, values: &[Value], scratch: &'s mut KeyScratch) -> Result<&'s [u8], SchemaError> {
        self.encode_values(values.iter().map(Value::as_value_ref), scratch)
    }

    /// As [`KeyExtractor::encode_key`], of values that lie elsewhere.
    ///
    /// # Errors
    /// As there.
    pub fn encode_values<'s, 'v>(
        &self,
        values: impl ExactSizeIterator<Item = ValueRef<'v>> + Clone,
        scratch: &'s mut KeyScratch,
    ) -> Result<&'s [u8], SchemaError> {
        if let Some((value, len)) = self.short_of(values.clone()) {
            return Ok(scratch.fill(value, len));
        }
        if values.len() > self.columns.len() {
            return Err(SchemaError::Arity { expected: self.columns.len(), found: values.len() });
        }
        scratch.clear();
        let open = self.suffix != Suffix::Never || values.len() < self.columns.len();
        let last = values.len().wrapping_sub(1);
        for (index, (column, value)) in self.columns.iter().zip(values).enumerate() {
            column.put_value(value, scratch, open || index != last)?;
        }
        scratch.checked()
    }

    /// The values of a key: of the index's columns, followed by the primary key's where the key has them.
    ///
    /// # Errors
    /// [`SchemaError::MalformedKey`] when these bytes are no key of this index.
    pub fn decode_key(&self, bytes: &[u8]) -> Result<Vec<Value>, SchemaError> {
        let mut reader = KeyReader::new(bytes);
        let mut values = Vec::with_capacity(self.columns.len() + self.primary.len());
        take_values(&self.columns, &mut reader, self.suffix != Suffix::Never, &mut values)?;
        let null = values.iter().any(Value::is_null);
        if self.suffix == Suffix::Always || self.suffix == Suffix::WithNull && null {
            take_values(&self.primary, &mut reader, false, &mut values)?;
        }
        if reader.is_empty() { Ok(values) } else { Err(SchemaError::MalformedKey) }
    }
}

impl KeyExtractor {
    /// The values of the index's columns in words, of a key of which only these first bytes are known. Where they end stands `…`, behind as much of a
    /// text as there is.
    pub fn describe_front(&self, bytes: &[u8]) -> Vec<String> {
        let mut reader = Some(KeyReader::new(bytes));
        let described = self.columns.iter().map(|column| {
            let Some(values) = &mut reader else { return "…".to_owned() };
            let rest = values.rest();
            if let Ok(value) = column.take_value(values, true) {
                return value.to_string();
            }
            reader = None;
            let text = column.upright(rest.get(usize::from(column.slot.is_nullable())..).unwrap_or_default());
            match column.column_type {
                ColumnType::String { .. } => {
                    format!("{}…", String::from_utf8_lossy(&text).trim_end_matches('\u{FFFD}'))
                }
                _ => "…".to_owned(),
            }
        });
        described.collect()
    }
}

impl KeyColumn {
    fn as_number(&self) -> Option<Number> {
        let flip: u64 = match self.column_type.stored() {
            _ if self.slot.width > 8 => return None,
            kind if kind.is_signed() => 1 << (8 * self.slot.width - 1),
            ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 | ColumnType::Char => 0,
            _ => return None,
        };
        let inversion = if self.order().descending { u64::MAX >> (64 - 8 * self.slot.width) } else { 0 };
        let (offset, width) = (self.slot.offset, self.slot.width);
        (!self.slot.is_nullable()).then_some(Number { offset, width, flip: flip ^ inversion })
    }
}

/// The in-row bits of a number that a column of the type holds as it is, with its sign in front.
#[inline]
fn plain_bits(of: ColumnType, value: ValueRef<'_>) -> Option<u64> {
    let (number, width) = match (of, value) {
        (ColumnType::I64, ValueRef::Integer(value)) | (ColumnType::Timestamp, ValueRef::Timestamp(value)) => {
            (value, 64)
        }
        (ColumnType::I32, ValueRef::Integer(value)) => (value, 32),
        (ColumnType::I16, ValueRef::Integer(value)) => (value, 16),
        (ColumnType::I8, ValueRef::Integer(value)) => (value, 8),
        (ColumnType::Date, ValueRef::Date(days)) => (days.into(), 32),
        _ => return None,
    };
    let spread = number << (64 - width) >> (64 - width);
    (spread == number).then_some(number as u64)
}

/// The columns at these positions, in the default order.
fn in_order(layout: &Layout, positions: &[usize]) -> Box<[KeyColumn]> {
    positions.iter().map(|&at| KeyColumn::new(layout.columns()[at].clone(), ColumnOrder::default())).collect()
}

fn width_of(columns: &[KeyColumn]) -> Option<usize> {
    let width = |column: &KeyColumn| Some(column.column_type.key_width()? + usize::from(column.slot.is_nullable()));
    columns.iter().map(width).sum()
}

#[inline]
fn put_columns(columns: &[KeyColumn], row: RowRef<'_>, key: &mut KeyScratch, open: bool) {
    for (index, column) in columns.iter().enumerate() {
        column.put_column(row, key, open || index + 1 < columns.len());
    }
}

fn take_values(
    columns: &[KeyColumn],
    reader: &mut KeyReader<'_>,
    open: bool,
    values: &mut Vec<Value>,
) -> Result<(), SchemaError> {
    for (index, column) in columns.iter().enumerate() {
        values.push(column.take_value(reader, open || index + 1 < columns.len())?);
    }
    Ok(())
}
