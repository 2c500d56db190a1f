//! The rows of an answer.
//!
//! They lie side by side, and their texts in one buffer, so that an answer takes a few blocks of memory whatever it has. A row is a reference into them.

use std::fmt;
use std::sync::Arc;

use crate::arrays::Array;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::outcome::{Notice, Tag};
use crate::text::{self, Zone};
use crate::types::{Bound, Type};
use crate::values::{FromSql, kind};
use crate::wide::Wide;

/// The column of a table that a column of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnOrigin {
    /// The table's object id.
    pub relation: u32,
    /// The number of the column there, from 1 on.
    pub number: i16,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// What its type allows of values.
    pub bound: Bound,
    /// The column of a table that it is, if it is one.
    pub origin: Option<ColumnOrigin>,
}

#[derive(Clone, Copy, Debug)]
enum Cell {
    Plain(Datum<'static>),
    /// From where to where in the buffer.
    Text(usize, usize),
    Json(usize, usize),
    Bytes(usize, usize),
    Array(usize, usize),
    Wide(usize, usize),
}

/// What a statement has answered: its rows, and how many it has changed or answered.
#[derive(Clone, Debug)]
pub struct Rows {
    columns: Arc<[RowColumn]>,
    cells: Vec<Cell>,
    text: String,
    bytes: Vec<u8>,
    length: usize,
    count: u64,
    /// How many rows of them the client has got otherwise.
    given: u64,
    notices: Vec<Notice>,
    tag: Tag,
    /// In which zone values are shown.
    zone: Zone,
}

/// How many rows there is room for behind the second one, at least, and how many bytes of text behind the first text. A first row takes what it
/// needs, because it is often the only one.
const MORE_ROWS: usize = 16;
const MORE_BYTES: usize = 256;

/// Appends a text, and tells where it ends.
fn keep(texts: &mut String, text: &str) -> usize {
    if texts.capacity() == 0 {
        *texts = String::with_capacity(text.len());
    } else if texts.capacity() - texts.len() < text.len() {
        texts.reserve(text.len().max(MORE_BYTES));
    }
    texts.push_str(text);
    texts.len()
}

/// As [`keep`], of bytes.
fn keep_bytes(all: &mut Vec<u8>, bytes: &[u8]) -> usize {
    all.extend_from_slice(bytes);
    all.len()
}

impl Default for Rows {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Rows {
    pub(crate) fn new(columns: Arc<[RowColumn]>) -> Self {
        let (cells, bytes, notices) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            columns,
            cells,
            text: String::new(),
            bytes,
            length: 0,
            count: 0,
            given: 0,
            notices,
            tag: Tag::None,
            zone: Zone::utc(),
        }
    }

    /// About how many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.cells.capacity() * size_of::<Cell>() + self.text.capacity() + self.bytes.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.text.clear();
        self.bytes.clear();
        self.notices.clear();
        (self.length, self.count, self.given) = (0, 0, 0);
    }

    /// In which zone values are shown.
    pub(crate) fn set_zone(&mut self, zone: &Zone) {
        self.zone = zone.clone();
    }

    pub(crate) fn set_notices(&mut self, notices: Vec<Notice>) {
        self.notices = notices;
    }

    pub(crate) fn push(&mut self, row: &[Datum<'_>]) {
        if self.cells.capacity() == 0 {
            self.cells = Vec::with_capacity(row.len());
        } else if self.cells.capacity() - self.cells.len() < row.len() {
            self.cells.reserve(row.len() * MORE_ROWS);
        }
        self.length += 1;
        for value in row {
            let cell = match *value {
                Datum::Text(it) => Cell::Text(self.text.len(), keep(&mut self.text, it)),
                Datum::Json(it) => Cell::Json(self.text.len(), keep(&mut self.text, it)),
                Datum::Bytes(it) => Cell::Bytes(self.bytes.len(), keep_bytes(&mut self.bytes, it)),
                Datum::Array(it) => Cell::Array(self.bytes.len(), keep_bytes(&mut self.bytes, it.bytes())),
                Datum::Wide(it) => Cell::Wide(self.bytes.len(), keep_bytes(&mut self.bytes, it.bytes())),
                plain => Cell::Plain(plain.moved(|_| "", |_| &[])),
            };
            self.cells.push(cell);
        }
    }

    /// The rows of another answer.
    pub(crate) fn of_outcome(outcome: crate::Outcome) -> Self {
        let columns = outcome.columns.into_iter().enumerate().map(|(at, (name, of))| {
            let bound = outcome.bounds.get(at).copied().unwrap_or_default();
            RowColumn { name, of, bound, origin: outcome.origins.get(at).copied().flatten() }
        });
        let columns = columns.collect();
        let mut rows = Self::new(columns);
        for row in &outcome.rows {
            let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
            rows.push(&row);
        }
        (rows.count, rows.notices, rows.zone) = (outcome.count, outcome.notices, outcome.zone);
        rows.tag = Tag::Fixed(outcome.tag.into());
        rows
    }

    fn datum(&self, cell: &Cell) -> Datum<'_> {
        match *cell {
            Cell::Plain(value) => value,
            Cell::Text(start, end) => Datum::Text(&self.text[start..end]),
            Cell::Json(start, end) => Datum::Json(&self.text[start..end]),
            Cell::Bytes(start, end) => Datum::Bytes(&self.bytes[start..end]),
            Cell::Array(start, end) => Datum::Array(Array::of_bytes(&self.bytes[start..end])),
            Cell::Wide(start, end) => Datum::Wide(Wide::of_bytes(&self.bytes[start..end])),
        }
    }

    /// The values of all rows.
    pub(crate) fn values(&self) -> impl Iterator<Item = Datum<'_>> {
        self.cells.iter().map(|cell| self.datum(cell))
    }

    pub(crate) fn set_count(&mut self, count: u64) {
        self.count = count;
    }

    pub(crate) fn set_tag(&mut self, tag: Tag) {
        self.tag = tag;
    }

    /// What PostgreSQL calls what the statement has done: `INSERT 0 2`, `SELECT 3`, `ROLLBACK`.
    pub fn tag(&self) -> String {
        self.tag.text(self.count)
    }

    /// What the statement is called, but for its count.
    pub(crate) fn kind(&self) -> &Tag {
        &self.tag
    }

    /// The values of a row, each with memory of its own.
    pub(crate) fn owned(&self, position: usize) -> Vec<OwnedDatum> {
        let width = self.columns.len();
        let cells = self.cells.get(position * width..(position + 1) * width).unwrap_or_default();
        cells.iter().map(|cell| self.datum(cell).owned()).collect()
    }

    /// The words in front of the count, of a tag that ends with [`Rows::count`].
    pub fn counted_verb(&self) -> Option<&'static str> {
        if let Tag::Counted(verb) = self.tag { Some(verb) } else { None }
    }

    /// Whether the statement has rows to answer, even if these have no columns.
    pub fn is_of_query(&self) -> bool {
        self.counted_verb() == Some(Tag::QUERY)
    }

    /// How many rows the statement has changed, or answered.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn set_given(&mut self, given: u64) {
        self.given = given;
    }

    /// How many rows of the answer were given while the statement ran: they are not here.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// What the client is to know, although nothing has failed.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The columns.
    pub fn columns(&self) -> &[RowColumn] {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The row at a position.
    pub fn get(&self, position: usize) -> Option<Row<'_>> {
        (position < self.length).then_some(Row { rows: self, position })
    }

    /// The first row.
    pub fn first(&self) -> Option<Row<'_>> {
        self.get(0)
    }

    /// All rows.
    pub fn iter(&self) -> RowsIter<'_> {
        RowsIter { rows: self, next: 0 }
    }

    /// All rows as values of a type.
    ///
    /// # Errors
    /// Those of [`FromRow::from_row`].
    pub fn all<'r, T: FromRow<'r>>(&'r self) -> Result<Vec<T>, SqlError> {
        self.iter().map(T::from_row).collect()
    }

    /// The first row as a value of a type, if there is one.
    ///
    /// # Errors
    /// As [`Rows::all`].
    pub fn find<'r, T: FromRow<'r>>(&'r self) -> Result<Option<T>, SqlError> {
        self.first().map(T::from_row).transpose()
    }

    /// The only row as a value of a type.
    ///
    /// # Errors
    /// As [`Rows::all`]; [`SqlState::NO_DATA`] without a row, and [`SqlState::CARDINALITY_VIOLATION`] with more than one.
    pub fn only<'r, T: FromRow<'r>>(&'r self) -> Result<T, SqlError> {
        match self.length {
            1 => T::from_row(Row { rows: self, position: 0 }),
            0 => Err(SqlError::new(SqlState::NO_DATA, "the query has returned no rows")),
            more => {
                let message = format!("the query has returned {more} rows, where one is wanted");
                Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message))
            }
        }
    }
}

impl<'r> IntoIterator for &'r Rows {
    type Item = Row<'r>;
    type IntoIter = RowsIter<'r>;

    fn into_iter(self) -> RowsIter<'r> {
        self.iter()
    }
}

/// The rows of an answer, one after the other.
#[derive(Clone, Debug)]
pub struct RowsIter<'r> {
    rows: &'r Rows,
    next: usize,
}

impl<'r> Iterator for RowsIter<'r> {
    type Item = Row<'r>;

    fn next(&mut self) -> Option<Row<'r>> {
        let row = self.rows.get(self.next)?;
        self.next += 1;
        Some(row)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.rows.length - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for RowsIter<'_> {}

/// A row of an answer. Texts and bytes that are read of it lie in the answer.
#[derive(Clone, Copy)]
pub struct Row<'r> {
    rows: &'r Rows,
    position: usize,
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.columns.iter().enumerate();
        out.debug_map().entries(columns.map(|(at, column)| (&column.name, self.value(at)))).finish()
    }
}

/// What names a column of a row: its position, or its name.
pub trait RowIndex {
    /// The position among these columns.
    fn position(&self, columns: &[RowColumn]) -> Option<usize>;

    /// The column in words, for errors.
    fn words(&self) -> String;
}

impl RowIndex for usize {
    fn position(&self, columns: &[RowColumn]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }

    fn words(&self) -> String {
        format!("at position {self}")
    }
}

impl RowIndex for &str {
    fn position(&self, columns: &[RowColumn]) -> Option<usize> {
        columns.iter().position(|column| column.name == *self)
    }

    fn words(&self) -> String {
        format!("\"{self}\"")
    }
}

impl<'r> Row<'r> {
    /// The value of a column, by its position from 0 or its name; text and bytes as references are not copied.
    ///
    /// # Errors
    /// [`SqlState::UNDEFINED_COLUMN`]; [`SqlState::NULL_VALUE`] where the column is NULL and `T` is no [`Option`]; [`SqlState::DATATYPE_MISMATCH`] where its value is none
    /// of `T`.
    pub fn get<T: FromSql<'r>>(self, column: impl RowIndex) -> Result<T, SqlError> {
        let Some(position) = column.position(&self.rows.columns) else {
            let message = format!("column {} does not exist", column.words());
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        };
        let value = self.value(position);
        T::from_sql(value).ok_or_else(|| {
            let to = std::any::type_name::<T>();
            if value.is_null() {
                let message = format!("column {} is NULL, and {to} has no such value", column.words());
                return SqlError::new(SqlState::NULL_VALUE, message);
            }
            let message = format!("column {} is a {}, which is not read as {to}", column.words(), kind(value));
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
        })
    }

    /// The value of the column at a position from 0; NULL beyond the last one.
    pub fn value(self, position: usize) -> Datum<'r> {
        let width = self.rows.columns.len();
        let cell = (position < width).then(|| self.rows.cells.get(self.position * width + position));
        let value = cell.flatten().map_or(Datum::Null, |cell| self.rows.datum(cell));
        match (value, self.rows.columns.get(position).map(|column| column.of)) {
            // What a program reads of an enum is the label.
            (Datum::Int(code), Some(Type::Enum(of))) => of.label(code).map_or(value, Datum::Text),
            _ => value,
        }
    }

    /// The value of a column as text, as PostgreSQL shows it; NULL is `None`.
    pub fn text(self, position: usize) -> Option<String> {
        let value = self.value(position);
        (!value.is_null()).then(|| {
            let mut shown = String::new();
            text::write(self.rows.columns[position].of, value, &self.rows.zone, &mut shown);
            shown
        })
    }

    /// The columns.
    pub fn columns(self) -> &'r [RowColumn] {
        &self.rows.columns
    }
}

/// A type that a row can be read as: a tuple of as many values as there are columns, or a struct with `#[derive(FromRow)]`.
pub trait FromRow<'r>: Sized {
    /// The value.
    ///
    /// # Errors
    /// As [`Row::get`].
    fn from_row(row: Row<'r>) -> Result<Self, SqlError>;
}

macro_rules! tuples {
    ($($($name:ident $position:literal)+;)*) => {$(
        impl<'r, $($name: FromSql<'r>),+> FromRow<'r> for ($($name,)+) {
            fn from_row(row: Row<'r>) -> Result<Self, SqlError> {
                let wanted = [$($position),+].len();
                if row.columns().len() != wanted {
                    let message = format!("the answer has {} columns, and {wanted} are read", row.columns().len());
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
                }
                Ok(($(row.get::<$name>($position as usize)?,)+))
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11;
}
