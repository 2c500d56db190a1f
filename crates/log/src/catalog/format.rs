//! The format: numbers are varints ([`Reader::varint`]), text and lists have their length in front.
//!
//! ```text
//! catalog      format (two bytes), next position, list of tables by rising positions
//! table        position, 0 or 1 (provisional), highest index id, name, list of columns, key, kind of the primary index, list of indexes,
//!              list of foreign keys, expected rows, 0 or 1 and the partition column
//! column       name, type, 0 or 1 (nullable)
//! type         number of the type, and of an enum its list of variants (name, number in 16 bytes), of others with a bound that bound
//! index        id, name, columns, 0 or 1 (unique), kind; behind the kind 3, which is an ordered index as 1 is, for each column the sum of 1
//!              (descending) and 2 (NULL last)
//! foreign key  columns, name of the parent
//! ```
//!
//! Columns are given by lists of positions. Numbers of types and kinds stand here, not in the order of Rust's variants, and are never given to others.

use std::collections::BTreeMap;
use std::sync::Arc;

use polychron_base::IndexId;
use polychron_schema::{
    ColumnDefinition, ColumnOrder, ColumnType, EnumType, ForeignKeyDefinition, IndexDefinition, IndexKind,
    TableDefinition,
};

use super::{Error, Malformed, Standing, StoredCatalog, StoredTable};
use crate::codec::{Reader, put_varint};

/// Changes whenever the content does.
pub(super) const FORMAT: u16 = 1;

/// The catalog as bytes.
pub fn encode(catalog: &StoredCatalog) -> Vec<u8> {
    let mut bytes = FORMAT.to_le_bytes().to_vec();
    put_varint(&mut bytes, catalog.next().into());
    put_list(&mut bytes, catalog.tables().iter(), |bytes, (position, table)| {
        put_varint(bytes, (*position).into());
        put_table(bytes, table);
    });
    bytes
}

/// The catalog of these bytes: those that [`encode`] gives, and no others.
///
/// What is allocated is in proportion to the bytes. Types of enums stay for as long as the process, one for all that are equal
/// ([`EnumType::interned`]).
///
/// # Errors
/// The fault of the bytes, or of the tables.
pub fn decode(bytes: &[u8]) -> Result<StoredCatalog, Error> {
    let mut source = Source { length: bytes.len(), reader: Reader::new(bytes) };
    let format = source.reader.u16().ok_or(Error::Malformed { offset: 0, reason: Malformed::Length })?;
    if format != FORMAT {
        return Err(Error::Unsupported { format });
    }
    let next = source.number()?;
    let mut tables = BTreeMap::new();
    for _ in 0..source.number::<usize>()? {
        let offset = source.offset();
        let position = source.number::<u32>()?;
        if tables.last_key_value().is_some_and(|(last, _)| *last >= position) {
            return Err(Error::Malformed { offset, reason: Malformed::Order });
        }
        tables.insert(position, source.table()?);
    }
    if source.reader.left() > 0 {
        return Err(Error::Malformed { offset: source.offset(), reason: Malformed::Behind });
    }
    Ok(StoredCatalog::new(next, tables)?)
}

fn put_table(bytes: &mut Vec<u8>, table: &StoredTable) {
    // Without `..`, so that a new field is not forgotten.
    let TableDefinition { name, columns, key, indexes, foreign_keys, primary_kind, expected_rows, partition_column } =
        &*table.definition;
    bytes.push(u8::from(table.standing == Standing::Provisional));
    put_varint(bytes, table.last_index.0.into());
    put_text(bytes, name);
    put_list(bytes, columns.iter(), put_column);
    put_positions(bytes, key);
    bytes.push(kind_number(*primary_kind));
    put_list(bytes, table.indexes.iter().zip(indexes), |bytes, (id, index)| {
        let IndexDefinition { name, columns, orders, unique, kind } = index;
        put_varint(bytes, id.0.into());
        put_text(bytes, name);
        put_positions(bytes, columns);
        bytes.extend_from_slice(&[u8::from(*unique), if orders.is_empty() { kind_number(*kind) } else { IN_ORDERS }]);
        bytes.extend(orders.iter().map(|order| u8::from(order.descending) + 2 * u8::from(order.nulls_last)));
    });
    put_list(bytes, foreign_keys.iter(), |bytes, foreign_key| {
        let ForeignKeyDefinition { columns, parent } = foreign_key;
        put_positions(bytes, columns);
        put_text(bytes, parent);
    });
    put_varint(bytes, *expected_rows as u64);
    bytes.push(u8::from(partition_column.is_some()));
    partition_column.iter().for_each(|column| put_varint(bytes, *column as u64));
}

fn put_column(bytes: &mut Vec<u8>, column: &ColumnDefinition) {
    let ColumnDefinition { name, column_type, nullable } = column;
    put_text(bytes, name);
    bytes.push(type_number(*column_type));
    match *column_type {
        ColumnType::Enum(kind) => put_list(bytes, kind.variants().iter(), |bytes, variant| {
            put_text(bytes, variant.name);
            bytes.extend_from_slice(&variant.number.to_le_bytes());
        }),
        ColumnType::Decimal { scale: bound }
        | ColumnType::Decimal128 { scale: bound }
        | ColumnType::FixedString { bytes: bound }
        | ColumnType::FixedBytes { bytes: bound }
        | ColumnType::String { max: bound }
        | ColumnType::Bytes { max: bound } => put_varint(bytes, bound.into()),
        _ => {}
    }
    bytes.push(u8::from(*nullable));
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_varint(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn put_positions(bytes: &mut Vec<u8>, positions: &[usize]) {
    put_list(bytes, positions.iter(), |bytes, position| put_varint(bytes, *position as u64));
}

fn put_list<I: ExactSizeIterator>(bytes: &mut Vec<u8>, items: I, mut put: impl FnMut(&mut Vec<u8>, I::Item)) {
    put_varint(bytes, items.len() as u64);
    items.for_each(|item| put(bytes, item));
}

/// In place of a kind: an ordered index whose columns have orders of their own.
const IN_ORDERS: u8 = 3;

fn kind_number(kind: IndexKind) -> u8 {
    match kind {
        IndexKind::Ordered => 1,
        IndexKind::Hash => 2,
    }
}

fn kind_of(number: u8) -> Option<IndexKind> {
    match number {
        1 => Some(IndexKind::Ordered),
        2 => Some(IndexKind::Hash),
        _ => None,
    }
}

fn type_number(column_type: ColumnType) -> u8 {
    match column_type {
        ColumnType::Bool => 1,
        ColumnType::I8 => 2,
        ColumnType::I16 => 3,
        ColumnType::I32 => 4,
        ColumnType::I64 => 5,
        ColumnType::I128 => 6,
        ColumnType::U8 => 7,
        ColumnType::U16 => 8,
        ColumnType::U32 => 9,
        ColumnType::U64 => 10,
        ColumnType::U128 => 11,
        ColumnType::F32 => 12,
        ColumnType::F64 => 13,
        ColumnType::Char => 14,
        ColumnType::Enum(_) => 15,
        ColumnType::Decimal { .. } => 16,
        ColumnType::Decimal128 { .. } => 17,
        ColumnType::Date => 18,
        ColumnType::Timestamp => 19,
        ColumnType::FixedString { .. } => 20,
        ColumnType::FixedBytes { .. } => 21,
        ColumnType::String { .. } => 22,
        ColumnType::Bytes { .. } => 23,
    }
}

/// The bytes that are left. Every item of a list takes a byte at least, so lists are no longer than the bytes.
struct Source<'b> {
    length: usize,
    reader: Reader<'b>,
}

impl<'b> Source<'b> {
    fn offset(&self) -> usize {
        self.length - self.reader.left()
    }

    /// The result of `read`, or an error that names the place where it began.
    fn read<T>(&mut self, read: impl FnOnce(&mut Reader<'b>) -> Result<T, Malformed>) -> Result<T, Error> {
        let offset = self.offset();
        read(&mut self.reader).map_err(|reason| Error::Malformed { offset, reason })
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, Error> {
        self.read(|reader| {
            let number = reader.varint().and_then(|number| T::try_from(number).ok());
            number.ok_or(Malformed::Number)
        })
    }

    fn text(&mut self) -> Result<&'b str, Error> {
        let length = self.number()?;
        self.read(|reader| {
            let bytes = reader.take(length).ok_or(Malformed::Length)?;
            std::str::from_utf8(bytes).map_err(|_| Malformed::Text)
        })
    }

    /// One byte that stands for something.
    fn known<T>(&mut self, what: &'static str, of: impl FnOnce(u8) -> Option<T>) -> Result<T, Error> {
        self.read(|reader| {
            let number = reader.u8().ok_or(Malformed::Length)?;
            of(number).ok_or(Malformed::Unknown { what, number })
        })
    }

    fn flag(&mut self) -> Result<bool, Error> {
        self.known("truth value", |number| (number < 2).then_some(number == 1))
    }

    fn kind(&mut self) -> Result<IndexKind, Error> {
        self.known("kind of an index", kind_of)
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let count = self.number()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn positions(&mut self) -> Result<Vec<usize>, Error> {
        self.list(Self::number)
    }

    fn table(&mut self) -> Result<StoredTable, Error> {
        let standing = if self.flag()? { Standing::Provisional } else { Standing::Permanent };
        let last_index = IndexId(self.number()?);
        let name = self.text()?.to_owned();
        let columns = self.list(Self::column)?;
        let key = self.positions()?;
        let primary_kind = self.kind()?;
        let (ids, indexes) = self.list(Self::index)?.into_iter().unzip();
        let foreign_keys = self
            .list(|source| Ok(ForeignKeyDefinition { columns: source.positions()?, parent: source.text()?.into() }))?;
        let expected_rows = self.number()?;
        let partition_column = if self.flag()? { Some(self.number()?) } else { None };
        let definition = TableDefinition {
            name,
            columns,
            key,
            indexes,
            foreign_keys,
            primary_kind,
            expected_rows,
            partition_column,
        };
        Ok(StoredTable { definition: Arc::new(definition), indexes: ids, last_index, standing })
    }

    fn index(&mut self) -> Result<(IndexId, IndexDefinition), Error> {
        let id = IndexId(self.number()?);
        let (name, columns) = (self.text()?.to_owned(), self.positions()?);
        let unique = self.flag()?;
        let kind = self.known("kind of an index", |number| match number {
            IN_ORDERS => Some(None),
            _ => kind_of(number).map(Some),
        })?;
        let orders = match kind {
            Some(_) => Vec::new(),
            None => columns.iter().map(|_| self.order()).collect::<Result<_, _>>()?,
        };
        Ok((id, IndexDefinition { name, columns, orders, unique, kind: kind.unwrap_or(IndexKind::Ordered) }))
    }

    fn order(&mut self) -> Result<ColumnOrder, Error> {
        let order = |number| ColumnOrder { descending: number & 1 != 0, nulls_last: number & 2 != 0 };
        self.known("order of a column", |number| (number < 4).then(|| order(number)))
    }

    fn column(&mut self) -> Result<ColumnDefinition, Error> {
        let (name, column_type) = (self.text()?.to_owned(), self.column_type()?);
        Ok(ColumnDefinition { name, column_type, nullable: self.flag()? })
    }

    fn column_type(&mut self) -> Result<ColumnType, Error> {
        Ok(match self.known("column type", |number| (1..=23).contains(&number).then_some(number))? {
            1 => ColumnType::Bool,
            2 => ColumnType::I8,
            3 => ColumnType::I16,
            4 => ColumnType::I32,
            5 => ColumnType::I64,
            6 => ColumnType::I128,
            7 => ColumnType::U8,
            8 => ColumnType::U16,
            9 => ColumnType::U32,
            10 => ColumnType::U64,
            11 => ColumnType::U128,
            12 => ColumnType::F32,
            13 => ColumnType::F64,
            14 => ColumnType::Char,
            15 => ColumnType::Enum(self.enum_type()?),
            16 => ColumnType::Decimal { scale: self.number()? },
            17 => ColumnType::Decimal128 { scale: self.number()? },
            18 => ColumnType::Date,
            19 => ColumnType::Timestamp,
            20 => ColumnType::FixedString { bytes: self.number()? },
            21 => ColumnType::FixedBytes { bytes: self.number()? },
            22 => ColumnType::String { max: self.number()? },
            _ => ColumnType::Bytes { max: self.number()? },
        })
    }

    fn enum_type(&mut self) -> Result<&'static EnumType, Error> {
        let offset = self.offset();
        let variants = self.list(|source| {
            let name = source.text()?;
            let number = source.read(|reader| reader.u128().ok_or(Malformed::Length))?;
            Ok((name, number.cast_signed()))
        })?;
        EnumType::interned(&variants).map_err(|why| Error::Malformed { offset, reason: Malformed::Enum(why) })
    }
}
