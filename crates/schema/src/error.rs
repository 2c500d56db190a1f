//! Errors of definitions, rows and keys.

use polychron_base::line::OneLine;

use crate::types::ColumnType;

/// Why a definition, a row or a key is refused. Whatever was to change is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A table without columns holds nothing.
    #[error("table {} has no columns", OneLine(table))]
    NoColumns {
        /// The table's name.
        table: String,
    },
    /// More columns than [`crate::MAX_COLUMNS`].
    #[error("{columns} columns are more than a table can have")]
    TooManyColumns {
        /// The number that was given.
        columns: usize,
    },
    /// A table, column or index without a name.
    #[error("a table, column or index has an empty name")]
    EmptyName,
    /// Two columns, or two indexes, of one table have the same name.
    #[error("the name {} is used twice", OneLine(name))]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A table without a primary key.
    #[error("table {} has no primary key", OneLine(table))]
    NoKey {
        /// The table's name.
        table: String,
    },
    /// A key, an index or a partition names a column that the table does not have.
    #[error("there is no column {}", OneLine(column))]
    UnknownColumn {
        /// The name, or the position in decimal.
        column: String,
    },
    /// A column stands twice in a key or an index.
    #[error("column {} stands twice in one key", OneLine(column))]
    RepeatedKeyColumn {
        /// The column's name.
        column: String,
    },
    /// A column of the primary key may be NULL.
    #[error("key column {} may not be nullable", OneLine(column))]
    NullableKey {
        /// The column's name.
        column: String,
    },
    /// A key or an index without columns, or with more than [`crate::MAX_KEY_COLUMNS`].
    #[error("{} has {columns} columns; a key has one to {}", OneLine(key), crate::MAX_KEY_COLUMNS)]
    KeyColumns {
        /// `primary key` or the index's name.
        key: String,
        /// The number that was given.
        columns: usize,
    },
    /// Orders of an index's columns that are not one for each, or of a hash index; or they are all the default one, and given nevertheless.
    #[error(
        "the orders of {} are not one for each column of an ordered index, or they are all the default",
        OneLine(index)
    )]
    ColumnOrders {
        /// The index's name.
        index: String,
    },
    /// No index leads from the columns of a foreign key to the rows that have them.
    #[error("the foreign key to {} needs an ordered index that begins with its columns", OneLine(parent))]
    NoIndexForForeignKey {
        /// The parent's name.
        parent: String,
    },
    /// The columns of a foreign key are not of the types of the parent's primary key.
    #[error("the columns of the foreign key to {} are not of the types of its primary key", OneLine(parent))]
    ForeignKeyTypes {
        /// The parent's name.
        parent: String,
    },
    /// The fixed-width columns of a key are wider than a key may be.
    #[error("{} is at least {bytes} bytes wide; a key has at most {}", OneLine(key), crate::MAX_KEY_BYTES)]
    KeyTooWide {
        /// `primary key` or the index's name.
        key: String,
        /// Least width of an encoded key.
        bytes: usize,
    },
    /// A column type whose width, maximum or scale is out of bounds.
    #[error("column {} cannot have the type {column_type}", OneLine(column))]
    InvalidType {
        /// The column's name.
        column: String,
        /// The type.
        column_type: ColumnType,
    },
    /// The fixed part of the row is longer than a row may be.
    #[error("a row is at least {bytes} bytes long; a row has at most {}", crate::MAX_ROW_BYTES)]
    RowTooWide {
        /// Length of the fixed part.
        bytes: usize,
    },
    /// A row's bytes would be more than [`crate::MAX_ROW_BYTES`].
    #[error("a row of {bytes} bytes; a row has at most {}", crate::MAX_ROW_BYTES)]
    RowTooLong {
        /// Length the row would have.
        bytes: usize,
    },
    /// An encoded key would be more than [`crate::MAX_KEY_BYTES`].
    #[error("a key of {bytes} bytes; a key has at most {}", crate::MAX_KEY_BYTES)]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Bytes that are no encoding of a key of the expected type.
    #[error("these bytes are no key of this type")]
    MalformedKey,
    /// A string or byte string longer than its column allows.
    #[error("{} holds at most {max} bytes, and {bytes} were given", OneLine(column))]
    TooLong {
        /// The column's name, behind that of its table where the table is known: `user.email`.
        column: String,
        /// Length of what was given.
        bytes: usize,
        /// The type of the column.
        max: usize,
    },
    /// A value of another type than the column's.
    #[error("column {} has the type {expected}, not {found}", OneLine(column))]
    WrongType {
        /// The column's name, behind that of its table where the table is known.
        column: String,
        /// The column's type.
        expected: ColumnType,
        /// The given value.
        found: &'static str,
    },
    /// A number that the column's type cannot hold.
    #[error("the value is out of range for column {} of type {expected}", OneLine(column))]
    OutOfRange {
        /// The column's name.
        column: String,
        /// The column's type.
        expected: ColumnType,
    },
    /// NULL for a column that is not nullable.
    #[error("column {} is not nullable", OneLine(column))]
    UnexpectedNull {
        /// The column's name.
        column: String,
    },
    /// Too few or too many values.
    #[error("{found} values for {expected} columns")]
    Arity {
        /// The number that is needed.
        expected: usize,
        /// The number that was given.
        found: usize,
    },
    /// Too few or too many values for a row.
    #[error("{found} values for the {expected} columns of {}", OneLine(table))]
    RowArity {
        /// The table's name.
        table: String,
        /// The number that is needed.
        expected: usize,
        /// The number that was given.
        found: usize,
    },
    /// A row that is shorter or longer than rows of its table are.
    #[error("it has {bytes} bytes where {expected} are due")]
    RowLength {
        /// Its length.
        bytes: usize,
        /// The length that its columns have.
        expected: usize,
    },
    /// Bytes in a row that are no value of their column.
    #[error("column {} holds no value of type {expected}", OneLine(column))]
    MalformedColumn {
        /// The column's name.
        column: String,
        /// The column's type.
        expected: ColumnType,
    },
    /// A change of a primary key's column, which no update may make.
    #[error("column {} belongs to the primary key", OneLine(column))]
    KeyColumnChanged {
        /// The column's name.
        column: String,
    },
}

impl SchemaError {
    /// The same of a value for a row of this table.
    #[cold]
    pub(crate) fn in_table(mut self, table: &str) -> Self {
        if let Self::UnknownColumn { column }
        | Self::TooLong { column, .. }
        | Self::WrongType { column, .. }
        | Self::OutOfRange { column, .. }
        | Self::UnexpectedNull { column } = &mut self
        {
            column.insert_str(0, &format!("{table}."));
        }
        self
    }
}

impl From<SchemaError> for polychron_base::Error {
    fn from(error: SchemaError) -> Self {
        match error {
            SchemaError::KeyTooLong { bytes } => Self::key_too_long(Some(bytes)),
            SchemaError::RowTooLong { bytes } => Self::row_too_long(bytes, crate::MAX_ROW_BYTES),
            SchemaError::TooLong { column, bytes, max } => Self::too_long(column, bytes, max),
            SchemaError::MalformedKey
            | SchemaError::WrongType { .. }
            | SchemaError::OutOfRange { .. }
            | SchemaError::UnexpectedNull { .. }
            | SchemaError::Arity { .. }
            | SchemaError::RowArity { .. }
            | SchemaError::RowLength { .. }
            | SchemaError::MalformedColumn { .. }
            | SchemaError::KeyColumnChanged { .. } => Self::wrong_value(error.to_string()),
            other => Self::definition(other.to_string()),
        }
    }
}
