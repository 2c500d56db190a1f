//! The dynamic API: rows and keys from [`Value`]s and back, over the same bytes as the typed one.

use polychron_base::floats::{narrow, widen};
use polychron_base::line::short_type_name;

use crate::buffer::{RowBuffer, RowRef, text_of};
use crate::column::{ColumnValue, check_max};
use crate::column_types::character;
use crate::enums::bits_of;
use crate::error::SchemaError;
use crate::key::{KeyReader, KeySink};
use crate::key_types::{float_from_bits, float_to_bits, short_float_from_bits, short_float_to_bits};
use crate::layout::{ColumnShape, Layout, LayoutColumn};
use crate::mutate::RowMut;
use crate::types::ColumnType;
use crate::value::{Value, ValueRef};

/// The bytes of a value in the form of its column: a number's in-row bytes in an array, or a reference.
pub(crate) enum Raw<'v> {
    Number([u8; 16]),
    Bytes(&'v [u8]),
}

impl LayoutColumn {
    fn wrong_type(&self, value: ValueRef<'_>) -> SchemaError {
        SchemaError::WrongType { column: self.name.clone(), expected: self.column_type, found: value.kind() }
    }

    /// Checks a value that is not NULL and gives its little-endian bytes.
    fn raw<'v>(&self, value: ValueRef<'v>) -> Result<Raw<'v>, SchemaError> {
        let out_of_range = || SchemaError::OutOfRange { column: self.name.clone(), expected: self.column_type };
        let number = |bits: u128| Ok(Raw::Number(bits.to_le_bytes()));
        match (self.column_type, value) {
            (ColumnType::Bool, ValueRef::Bool(value)) => number(value.into()),
            (ColumnType::Enum(kind), _) if value.as_whole().is_some() => {
                let bits = self.integer(value)?;
                if kind.holds_bits(bits_of(bits.cast_signed(), kind.width())) {
                    number(bits)
                } else {
                    Err(out_of_range())
                }
            }
            (ColumnType::I128 | ColumnType::U128, _) => number(self.integer(value)?),
            (kind, _) if kind.is_integer() => number(self.integer(value)?),
            (ColumnType::F32, ValueRef::Float(value)) => {
                number(narrow(value).ok_or_else(out_of_range)?.to_bits().into())
            }
            (ColumnType::F64, ValueRef::Float(value)) => number(value.to_bits().into()),
            (ColumnType::Char, ValueRef::Char(value)) => number(u32::from(value).into()),
            (ColumnType::Decimal { scale: wanted }, ValueRef::Decimal { units, scale }) => {
                let units = rescale(units, scale, wanted).and_then(|units| i64::try_from(units).ok());
                number(i128::from(units.ok_or_else(out_of_range)?).cast_unsigned())
            }
            (ColumnType::Decimal128 { scale: wanted }, ValueRef::Decimal { units, scale }) => {
                number(rescale(units, scale, wanted).ok_or_else(out_of_range)?.cast_unsigned())
            }
            (ColumnType::Date, ValueRef::Date(days)) => number(i128::from(days).cast_unsigned()),
            (ColumnType::Timestamp, ValueRef::Timestamp(time)) => number(i128::from(time).cast_unsigned()),
            (ColumnType::FixedString { .. } | ColumnType::String { .. }, ValueRef::String(text)) => {
                check_max(&self.name, self.slot, text.len())?;
                Ok(Raw::Bytes(text.as_bytes()))
            }
            (ColumnType::FixedBytes { bytes }, ValueRef::Bytes(value)) => {
                check_max(&self.name, self.slot, value.len())?;
                if value.len() < bytes as usize { Err(out_of_range()) } else { Ok(Raw::Bytes(value)) }
            }
            (ColumnType::Bytes { .. }, ValueRef::Bytes(value)) => {
                check_max(&self.name, self.slot, value.len())?;
                Ok(Raw::Bytes(value))
            }
            _ => Err(self.wrong_type(value)),
        }
    }

    /// The bits of an integer that the column can hold.
    fn integer(&self, value: ValueRef<'_>) -> Result<u128, SchemaError> {
        let whole = value.as_whole().ok_or_else(|| self.wrong_type(value))?;
        let bits = whole.in_bytes(self.slot.width, self.column_type.is_signed());
        bits.ok_or_else(|| SchemaError::OutOfRange { column: self.name.clone(), expected: self.column_type })
    }

    /// NULL, or the checked bytes.
    pub(crate) fn raw_or_null<'v>(&self, value: ValueRef<'v>) -> Result<Option<Raw<'v>>, SchemaError> {
        match value {
            ValueRef::Null if self.slot.is_nullable() => Ok(None),
            ValueRef::Null => Err(SchemaError::UnexpectedNull { column: self.name.clone() }),
            value => self.raw(value).map(Some),
        }
    }

    /// Writes the column of a row that is being built.
    fn build(&self, out: &mut RowBuffer, value: ValueRef<'_>) -> Result<(), SchemaError> {
        let raw = self.raw_or_null(value)?;
        out.set_null(self.slot, raw.is_none());
        match raw {
            None if self.slot.variable => out.append(self.slot, &[]),
            None => {}
            Some(Raw::Bytes(bytes)) if self.slot.variable => out.append(self.slot, bytes),
            Some(Raw::Bytes(bytes)) => out.store(self.slot.offset, bytes),
            Some(Raw::Number(bytes)) => out.store(self.slot.offset, &bytes[..self.slot.width as usize]),
        }
        Ok(())
    }

    /// Reads the column.
    pub(crate) fn value<'a>(&self, row: RowRef<'a>) -> ValueRef<'a> {
        if row.is_null(self.slot) {
            return ValueRef::Null;
        }
        let at = self.slot.offset;
        match self.column_type.stored() {
            ColumnType::Bool => ValueRef::Bool(row.load(at) != [0]),
            ColumnType::I8 => ValueRef::Integer(i8::from_le_bytes(row.load(at)).into()),
            ColumnType::I16 => ValueRef::Integer(i16::from_le_bytes(row.load(at)).into()),
            ColumnType::I32 => ValueRef::Integer(i32::from_le_bytes(row.load(at)).into()),
            ColumnType::I64 => ValueRef::Integer(i64::from_le_bytes(row.load(at))),
            ColumnType::U8 => ValueRef::Unsigned(u8::from_le_bytes(row.load(at)).into()),
            ColumnType::U16 => ValueRef::Unsigned(u16::from_le_bytes(row.load(at)).into()),
            ColumnType::U32 => ValueRef::Unsigned(u32::from_le_bytes(row.load(at)).into()),
            // An enum's bytes are an integer's.
            ColumnType::U64 | ColumnType::Enum(_) => ValueRef::Unsigned(u64::from_le_bytes(row.load(at))),
            ColumnType::I128 => ValueRef::Integer128(i128::from_le_bytes(row.load(at))),
            ColumnType::U128 => ValueRef::Unsigned128(u128::from_le_bytes(row.load(at))),
            ColumnType::F32 => ValueRef::Float(widen(f32::from_le_bytes(row.load(at)))),
            ColumnType::F64 => ValueRef::Float(f64::from_le_bytes(row.load(at))),
            ColumnType::Char => ValueRef::Char(character(u32::from_le_bytes(row.load(at)))),
            ColumnType::Decimal { scale } => {
                ValueRef::Decimal { units: i64::from_le_bytes(row.load(at)).into(), scale }
            }
            ColumnType::Decimal128 { scale } => ValueRef::Decimal { units: i128::from_le_bytes(row.load(at)), scale },
            ColumnType::Date => ValueRef::Date(i32::from_le_bytes(row.load(at))),
            ColumnType::Timestamp => ValueRef::Timestamp(i64::from_le_bytes(row.load(at))),
            ColumnType::FixedString { .. } => ValueRef::String(text_of(trimmed(row.fixed(self.slot)))),
            ColumnType::FixedBytes { .. } => ValueRef::Bytes(row.fixed(self.slot)),
            ColumnType::String { .. } => ValueRef::String(text_of(row.variable(self.slot))),
            ColumnType::Bytes { .. } => ValueRef::Bytes(row.variable(self.slot)),
        }
    }

    /// Appends a checked value that is not NULL to a key.
    pub(crate) fn put_raw<S: KeySink>(&self, raw: Raw<'_>, sink: &mut S, open: bool) {
        match raw {
            Raw::Bytes(bytes) => self.put_bytes(bytes, sink, open),
            Raw::Number(bytes) => self.put_number(u128::from_le_bytes(bytes), sink),
        }
    }

    /// Appends the column of a row, which is not NULL there, to a key.
    #[inline]
    pub(crate) fn put_stored<S: KeySink>(&self, row: RowRef<'_>, sink: &mut S, open: bool) {
        let at = self.slot.offset;
        match self.column_type {
            ColumnType::String { .. } | ColumnType::Bytes { .. } => self.put_bytes(row.variable(self.slot), sink, open),
            ColumnType::FixedString { .. } | ColumnType::FixedBytes { .. } => {
                self.put_bytes(row.fixed(self.slot), sink, open);
            }
            _ if self.slot.width > 8 => self.put_number(u128::from_le_bytes(row.load(at)), sink),
            _ => {
                let number = row.number(at, self.slot.width);
                self.put_number(number.into(), sink);
            }
        }
    }

    fn put_bytes<S: KeySink>(&self, bytes: &[u8], sink: &mut S, open: bool) {
        match self.column_type.key_width() {
            Some(width) => {
                sink.bytes(bytes);
                sink.zeros(width - bytes.len().min(width));
            }
            None if open => sink.escaped(bytes),
            None => sink.bytes(bytes),
        }
    }

    /// Appends the in-row bits of a number in the form that sorts.
    #[inline]
    fn put_number<S: KeySink>(&self, wide: u128, sink: &mut S) {
        let (width, bits) = (self.slot.width as usize, wide as u64);
        let sortable = match self.column_type {
            _ if width > 8 => {
                let sign = if self.column_type.is_signed() { 1 << 127 } else { 0 };
                return sink.wide(wide ^ sign);
            }
            ColumnType::F32 => short_float_to_bits(f32::from_bits(bits as u32)).into(),
            ColumnType::F64 => float_to_bits(f64::from_bits(bits)),
            ColumnType::Bool => u64::from(bits != 0),
            kind if kind.is_signed() => bits ^ 1 << (8 * width - 1),
            _ => bits,
        };
        // Only the low `width` bytes count: the sign of a negative number fills the rest.
        sink.integer(sortable & (u64::MAX >> (64 - 8 * width)), width);
    }

    /// Takes the column's value, which is not NULL, from the front of a key.
    pub(crate) fn take_present(&self, reader: &mut KeyReader<'_>, open: bool) -> Result<Value, SchemaError> {
        match self.column_type {
            ColumnType::String { .. } => text(reader.variable(open)?),
            ColumnType::Bytes { .. } => Ok(Value::Bytes(reader.variable(open)?)),
            ColumnType::FixedString { bytes } => text(trimmed(reader.slice(bytes as usize)?).to_vec()),
            ColumnType::FixedBytes { bytes } => Ok(Value::Bytes(reader.slice(bytes as usize)?.to_vec())),
            _ => self.take_number(reader),
        }
    }

    fn take_number(&self, reader: &mut KeyReader<'_>) -> Result<Value, SchemaError> {
        let width = self.slot.width as usize;
        if width > 8 {
            return self.take_wide(u128::from_be_bytes(reader.array()?));
        }
        let bits = reader.number(width)?;
        // The shift to the top and back spreads the sign over the whole integer.
        let shift = 64 - 8 * width;
        let signed = ((bits ^ 1 << (8 * width - 1)) << shift) as i64 >> shift;
        match self.column_type {
            ColumnType::Bool if bits > 1 => Err(SchemaError::MalformedKey),
            ColumnType::Bool => Ok(Value::Bool(bits == 1)),
            ColumnType::Enum(kind) if !kind.holds_bits(bits ^ self.sign()) => Err(SchemaError::MalformedKey),
            ColumnType::F32 => Ok(Value::Float(widen(short_float_from_bits(bits as u32)))),
            ColumnType::F64 => Ok(Value::Float(float_from_bits(bits))),
            ColumnType::Char => char::from_u32(bits as u32).map(Value::Char).ok_or(SchemaError::MalformedKey),
            ColumnType::Decimal { scale } => Ok(Value::Decimal { units: signed.into(), scale }),
            ColumnType::Date => Ok(Value::Date(signed as i32)),
            ColumnType::Timestamp => Ok(Value::Timestamp(signed)),
            kind if kind.is_signed() => Ok(Value::Integer(signed)),
            _ => Ok(Value::Unsigned(bits)),
        }
    }

    /// The bits that a key flips of a number of at most 8 bytes.
    fn sign(&self) -> u64 {
        if self.column_type.is_signed() { 1 << (8 * self.slot.width - 1) } else { 0 }
    }

    fn take_wide(&self, bits: u128) -> Result<Value, SchemaError> {
        let signed = (bits ^ 1 << 127).cast_signed();
        match self.column_type {
            ColumnType::I128 => Ok(Value::Integer128(signed)),
            ColumnType::Decimal128 { scale } => Ok(Value::Decimal { units: signed, scale }),
            _ => Ok(Value::Unsigned128(bits)),
        }
    }
}

/// The units of a decimal in another scale, unless digits would be lost or it does not fit.
pub(crate) fn rescale(units: i128, scale: u32, wanted: u32) -> Option<i128> {
    if scale <= wanted {
        return units.checked_mul(10_i128.checked_pow(wanted - scale)?);
    }
    let divisor = 10_i128.checked_pow(scale - wanted)?;
    (units % divisor == 0).then(|| units / divisor)
}

/// Bytes without the zeros at their end.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

fn text(bytes: Vec<u8>) -> Result<Value, SchemaError> {
    String::from_utf8(bytes).map(Value::String).map_err(|_| SchemaError::MalformedKey)
}

impl<'a> RowRef<'a> {
    /// The value of a column without copying text or bytes; NULL when there is no such column.
    pub fn value_ref(self, layout: &Layout, column: usize) -> ValueRef<'a> {
        layout.columns().get(column).map_or(ValueRef::Null, |column| column.value(self))
    }

    /// The value of a column; NULL when there is no such column.
    pub fn value(self, layout: &Layout, column: usize) -> Value {
        self.value_ref(layout, column).to_value()
    }

    /// The values of all columns.
    pub fn values(self, layout: &Layout) -> Vec<Value> {
        layout.columns().iter().map(|column| column.value(self).to_value()).collect()
    }
}

/// Writes a row of one value a column.
///
/// Integers of every type fit every integer column that can hold them, and the columns of enums with a variant of that
/// number; decimals are brought to the column's scale, and floating-point numbers to its width, as long as no digit is
/// lost; text shorter than a fixed string is padded.
///
/// # Errors
/// Too few or too many values, a wrong type, a value out of range or too long, NULL where it may not be, or a row that
/// is too long. The buffer is then empty.
///
/// ```
/// use polychron_schema::{ColumnType, RowBuffer, TableDefinition, Value, build_row};
/// let table = TableDefinition::new("note").with_column("id", ColumnType::U64).with_key([0]);
/// let table = table.with_nullable_column("text", ColumnType::String { max: 10 });
/// let layout = table.layout().unwrap();
/// let mut buffer = RowBuffer::new();
/// build_row(&layout, &[1_u64.into(), "hello".into()], &mut buffer).unwrap();
/// assert_eq!(buffer.as_row().value(&layout, 1), Value::from("hello"));
/// assert!(build_row(&layout, &[Value::Null, Value::Null], &mut buffer).is_err());
/// ```
pub fn build_row(layout: &Layout, values: &[Value], out: &mut RowBuffer) -> Result<(), SchemaError> {
    build(layout, values.iter().map(Value::as_value_ref), out)
}

/// As [`build_row`], of values that lie elsewhere.
///
/// # Errors
/// As there.
pub fn build_row_of(layout: &Layout, values: &[ValueRef<'_>], out: &mut RowBuffer) -> Result<(), SchemaError> {
    build(layout, values.iter().copied(), out)
}

fn build<'v>(
    layout: &Layout,
    values: impl ExactSizeIterator<Item = ValueRef<'v>>,
    out: &mut RowBuffer,
) -> Result<(), SchemaError> {
    out.clear();
    if values.len() != layout.columns().len() {
        let (table, expected) = (layout.table().to_owned(), layout.columns().len());
        return Err(SchemaError::RowArity { table, expected, found: values.len() });
    }
    let built = out.build(layout.shape(), |out| {
        let mut columns = layout.columns().iter().zip(values);
        columns.try_for_each(|(column, value)| column.build(out, value))
    });
    built.map_err(|error| error.in_table(layout.table()))
}

/// Changes one column of a row, and notes it in the row's changes.
///
/// Columns of the primary key must not change; this function does not know them, see
/// [`crate::KeyExtractor::columns`].
///
/// # Errors
/// As [`build_row`]; the row is then as it was.
pub fn set_value(row: &mut RowMut<'_>, layout: &Layout, column: usize, value: &Value) -> Result<(), SchemaError> {
    set_value_ref(row, layout, column, value.as_value_ref())
}

/// As [`set_value`], of a value that lies elsewhere.
///
/// # Errors
/// As there.
pub fn set_value_ref(
    row: &mut RowMut<'_>,
    layout: &Layout,
    column: usize,
    value: ValueRef<'_>,
) -> Result<(), SchemaError> {
    set(row, layout, column, value).map_err(|error| error.in_table(layout.table()))
}

fn set(row: &mut RowMut<'_>, layout: &Layout, column: usize, value: ValueRef<'_>) -> Result<(), SchemaError> {
    let found = layout.columns().get(column);
    let definition = found.ok_or_else(|| SchemaError::UnknownColumn { column: column.to_string() })?;
    let slot = definition.slot;
    match definition.raw_or_null(value)? {
        Some(Raw::Number(bytes)) => row.store(slot, &bytes[..slot.width as usize]),
        Some(Raw::Bytes(bytes)) if slot.variable => row.replace(&definition.name, slot, Some(bytes))?,
        Some(Raw::Bytes(bytes)) => {
            row.store_zeros(slot);
            row.store(slot, bytes);
        }
        None if slot.variable => row.replace(&definition.name, slot, None)?,
        None => row.store_zeros(slot),
    }
    row.mark(column as u16, slot);
    Ok(())
}

impl Value {
    /// The value as one of a column of the type `T`.
    ///
    /// ```
    /// use polychron_schema::Value;
    /// assert_eq!(Value::Integer(5).to_column::<u8>().unwrap(), 5);
    /// assert_eq!(Value::Null.to_column::<Option<String>>().unwrap(), None);
    /// assert!(Value::Integer(-5).to_column::<u8>().is_err());
    /// ```
    ///
    /// # Errors
    /// As [`build_row`], of a column that is named as the type is.
    pub fn to_column<T: ColumnValue>(&self) -> Result<T, SchemaError> {
        let shape = ColumnShape { column_type: T::TYPE, nullable: T::NULLABLE };
        let layout = Layout::new("a value", std::iter::once((short_type_name::<T>(), shape)));
        let mut row = RowBuffer::new();
        build_row(&layout, std::slice::from_ref(self), &mut row)?;
        Ok(T::own(T::read(row.as_row(), layout.columns()[0].slot)))
    }
}
