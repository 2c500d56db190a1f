//! Table definitions at run time, and what makes one valid.

use std::collections::HashSet;

use crate::error::SchemaError;
use crate::layout::{ColumnShape, Layout};
use crate::types::ColumnType;
use crate::{MAX_COLUMNS, MAX_KEY_BYTES, MAX_KEY_COLUMNS, MAX_ROW_BYTES};

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// The column's name, unique in the table.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// Whether it can be NULL.
    pub nullable: bool,
}

/// The kind of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// Sorted: point lookups and range scans.
    #[default]
    Ordered,
    /// Hashed: point lookups only.
    Hash,
}

/// How an index sorts the values of one of its columns. The default is that of [`crate::Key`]: ascending, NULL first.
///
/// The position of NULL does not depend on the direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ColumnOrder {
    /// Greater values come first.
    pub descending: bool,
    /// NULL comes behind all values.
    pub nulls_last: bool,
}

impl ColumnOrder {
    /// Lesser values first, and NULL before them.
    pub const ASCENDING: Self = Self { descending: false, nulls_last: false };
    /// Greater values first, and NULL behind them: the opposite of [`ColumnOrder::ASCENDING`].
    pub const DESCENDING: Self = Self { descending: true, nulls_last: true };

    /// The same direction, with NULL behind all values or before them.
    pub const fn with_nulls_last(self, nulls_last: bool) -> Self {
        Self { nulls_last, ..self }
    }
}

/// One secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// The index's name, unique among the table's indexes.
    pub name: String,
    /// Positions of its columns.
    pub columns: Vec<usize>,
    /// How the values of each column are sorted. It is empty where all of them have the default order, and not otherwise.
    pub orders: Vec<ColumnOrder>,
    /// Whether a key occurs once at most. A key with NULL in any column equals no other.
    pub unique: bool,
    /// Ordered or hash.
    pub kind: IndexKind,
}

impl IndexDefinition {
    /// An ordered, non-unique index.
    pub fn new(name: impl Into<String>, columns: impl Into<Vec<usize>>) -> Self {
        let (name, columns) = (name.into(), columns.into());
        Self { name, columns, orders: Vec::new(), unique: false, kind: IndexKind::Ordered }
    }

    /// The same index with its columns sorted in these orders, one for each column. Such an index is one of the dynamic API: no typed handle
    /// leads to it.
    ///
    /// ```
    /// use polychron_schema::{ColumnOrder, IndexDefinition};
    ///
    /// let newest = IndexDefinition::new("newest", [1, 2]).with_orders([ColumnOrder::ASCENDING, ColumnOrder::DESCENDING]);
    /// assert_eq!(newest.order(1), ColumnOrder::DESCENDING);
    /// assert_eq!(IndexDefinition::new("by_age", [1]).with_orders([ColumnOrder::ASCENDING]), IndexDefinition::new("by_age", [1]));
    /// ```
    pub fn with_orders(self, orders: impl Into<Vec<ColumnOrder>>) -> Self {
        let mut orders = orders.into();
        if orders.iter().all(|order| *order == ColumnOrder::default()) && orders.len() == self.columns.len() {
            orders.clear();
        }
        Self { orders, ..self }
    }

    /// How the values of the column at this position of the index are sorted.
    pub fn order(&self, position: usize) -> ColumnOrder {
        self.orders.get(position).copied().unwrap_or_default()
    }

    /// The same index, unique or not.
    pub fn with_unique(self, unique: bool) -> Self {
        Self { unique, ..self }
    }

    /// The same index of another kind.
    pub fn with_kind(self, kind: IndexKind) -> Self {
        Self { kind, ..self }
    }
}

/// A foreign key: what these columns hold, unless one of them is NULL, is the primary key of a row of another table, the parent.
///
/// A transaction that would break this is refused. So that the children of a row can be found, an ordered index of the table, primary
/// or secondary, begins with these columns in this order, or an index of any kind has exactly these as its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKeyDefinition {
    /// Positions of its columns, in the order of the parent's primary key.
    pub columns: Vec<usize>,
    /// The name of the parent table, which may be the table itself.
    pub parent: String,
}

impl ForeignKeyDefinition {
    /// These columns hold the primary key of a row of `parent`.
    pub fn new(columns: impl Into<Vec<usize>>, parent: impl Into<String>) -> Self {
        Self { columns: columns.into(), parent: parent.into() }
    }
}

/// A table: its columns, primary key, indexes and foreign keys.
///
/// ```
/// use polychron_schema::{ColumnType, IndexDefinition, IndexKind, TableDefinition};
///
/// let stock = TableDefinition::new("stock")
///     .with_column("warehouse", ColumnType::U16)
///     .with_column("item", ColumnType::U32)
///     .with_column("quantity", ColumnType::I16)
///     .with_nullable_column("data", ColumnType::String { max: 50 })
///     .with_key([0, 1])
///     .with_index(IndexDefinition::new("by_item", [1]).with_kind(IndexKind::Hash))
///     .with_expected_rows(100_000);
/// let layout = stock.layout().unwrap();
/// assert_eq!(layout.shape().fixed_bytes, 24);
/// assert!(stock.clone().with_key([0, 9]).validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefinition {
    /// The table's name.
    pub name: String,
    /// The columns in declaration order.
    pub columns: Vec<ColumnDefinition>,
    /// Positions of the primary key's columns, in key order.
    pub key: Vec<usize>,
    /// Secondary indexes.
    pub indexes: Vec<IndexDefinition>,
    /// Foreign keys.
    pub foreign_keys: Vec<ForeignKeyDefinition>,
    /// The kind of the primary index.
    pub primary_kind: IndexKind,
    /// The number of rows to make room for; 0 if it is unknown.
    pub expected_rows: usize,
    /// Position of the column by whose value the table is divided into partitions.
    pub partition_column: Option<usize>,
}

impl TableDefinition {
    /// A table without columns.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            columns: Vec::new(),
            key: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            primary_kind: IndexKind::Ordered,
            expected_rows: 0,
            partition_column: None,
        }
    }

    /// The same table with one more column.
    pub fn with_column(mut self, name: impl Into<String>, column_type: ColumnType) -> Self {
        self.columns.push(ColumnDefinition { name: name.into(), column_type, nullable: false });
        self
    }

    /// The same table with one more column that can be NULL.
    pub fn with_nullable_column(mut self, name: impl Into<String>, column_type: ColumnType) -> Self {
        self.columns.push(ColumnDefinition { name: name.into(), column_type, nullable: true });
        self
    }

    /// The same table with the columns at these positions as primary key.
    pub fn with_key(self, key: impl Into<Vec<usize>>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// The same table with one more secondary index.
    pub fn with_index(mut self, index: IndexDefinition) -> Self {
        self.indexes.push(index);
        self
    }

    /// The same table with one more foreign key.
    pub fn with_foreign_key(mut self, foreign_key: ForeignKeyDefinition) -> Self {
        self.foreign_keys.push(foreign_key);
        self
    }

    /// The same table with a primary index of another kind.
    pub fn with_primary_kind(self, primary_kind: IndexKind) -> Self {
        Self { primary_kind, ..self }
    }

    /// The same table with room for so many rows.
    pub fn with_expected_rows(self, expected_rows: usize) -> Self {
        Self { expected_rows, ..self }
    }

    /// The same table divided by the column at that position.
    pub fn with_partition_column(self, column: usize) -> Self {
        Self { partition_column: Some(column), ..self }
    }

    /// The same table under another name.
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Position of the column with that name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Position of the index with that name.
    pub fn index_position(&self, name: &str) -> Option<usize> {
        self.indexes.iter().position(|index| index.name == name)
    }

    /// Checks the whole definition.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), SchemaError> {
        self.layout().map(drop)
    }

    /// Checks the whole definition and gives each column its place.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn layout(&self) -> Result<Layout, SchemaError> {
        self.validate_columns()?;
        if self.key.is_empty() {
            return Err(SchemaError::NoKey { table: self.name.clone() });
        }
        self.validate_key("primary key", &self.key, 0)?;
        if let Some(&column) = self.key.iter().find(|&&column| self.columns[column].nullable) {
            return Err(SchemaError::NullableKey { column: self.columns[column].name.clone() });
        }
        self.validate_indexes()?;
        for foreign_key in &self.foreign_keys {
            self.validate_key(&format!("foreign key to {}", foreign_key.parent), &foreign_key.columns, 0)?;
            self.index_for(foreign_key)?;
        }
        if let Some(column) = self.partition_column {
            self.column(column)?;
        }
        let columns = self.columns.iter().map(|column| (column.name.clone(), column.shape()));
        let layout = Layout::new(&self.name, columns);
        let bytes = layout.shape().fixed_bytes as usize;
        if bytes > MAX_ROW_BYTES { Err(SchemaError::RowTooWide { bytes }) } else { Ok(layout) }
    }

    fn column(&self, position: usize) -> Result<&ColumnDefinition, SchemaError> {
        self.columns
            .get(position)
            .ok_or_else(|| SchemaError::UnknownColumn { column: format!("{position} of {}", self.name) })
    }

    fn validate_columns(&self) -> Result<(), SchemaError> {
        if self.name.is_empty() {
            return Err(SchemaError::EmptyName);
        }
        if self.columns.is_empty() {
            return Err(SchemaError::NoColumns { table: self.name.clone() });
        }
        if self.columns.len() > MAX_COLUMNS {
            return Err(SchemaError::TooManyColumns { columns: self.columns.len() });
        }
        validate_names(self.columns.iter().map(|column| &column.name))?;
        match self.columns.iter().find(|column| !column.column_type.is_valid()) {
            Some(column) => {
                Err(SchemaError::InvalidType { column: column.name.clone(), column_type: column.column_type })
            }
            None => Ok(()),
        }
    }

    fn validate_indexes(&self) -> Result<(), SchemaError> {
        validate_names(self.indexes.iter().map(|index| &index.name))?;
        let primary_width: usize = self.key.iter().map(|&column| self.columns[column].least_key_width(true)).sum();
        for index in &self.indexes {
            self.validate_key(&index.name, &index.columns, 0)?;
            let is_sorted = index.kind == IndexKind::Ordered && index.orders.len() == index.columns.len();
            let is_default = index.orders.iter().all(|order| *order == ColumnOrder::default());
            if !index.orders.is_empty() && (is_default || !is_sorted) {
                return Err(SchemaError::ColumnOrders { index: index.name.clone() });
            }
            if self.appends_primary_key(index) {
                self.validate_key(&index.name, &index.columns, primary_width)?;
            }
        }
        Ok(())
    }

    /// The index that finds the rows with given values in the columns of a foreign key: none for the primary one, or the
    /// position of a secondary one.
    ///
    /// # Errors
    /// [`SchemaError::NoIndexForForeignKey`].
    pub fn index_for(&self, foreign_key: &ForeignKeyDefinition) -> Result<Option<usize>, SchemaError> {
        let columns = &foreign_key.columns[..];
        let serves = |key: &[usize], kind: IndexKind, is_whole: bool| {
            if kind == IndexKind::Ordered { key.starts_with(columns) } else { is_whole && key == columns }
        };
        if serves(&self.key, self.primary_kind, true) {
            return Ok(None);
        }
        let position = self.indexes.iter().position(|index| {
            // Of an index whose entries carry more than its columns only an order finds the entries that begin with them.
            let appends = self.appends_primary_key(index);
            serves(&index.columns, if appends { IndexKind::Ordered } else { index.kind }, !appends)
        });
        let missing = || SchemaError::NoIndexForForeignKey { parent: foreign_key.parent.clone() };
        position.map(Some).ok_or_else(missing)
    }

    /// Whether entries of the index carry the primary key behind the index's columns: always when it is not unique, and
    /// for keys with NULL when it is.
    pub fn appends_primary_key(&self, index: &IndexDefinition) -> bool {
        !index.unique || index.columns.iter().any(|&column| self.columns[column].nullable)
    }

    fn validate_key(&self, name: &str, columns: &[usize], appended: usize) -> Result<(), SchemaError> {
        if columns.is_empty() || columns.len() > MAX_KEY_COLUMNS {
            return Err(SchemaError::KeyColumns { key: name.to_owned(), columns: columns.len() });
        }
        let mut seen = HashSet::new();
        let mut bytes = appended;
        for &position in columns {
            let column = self.column(position)?;
            if !seen.insert(position) {
                return Err(SchemaError::RepeatedKeyColumn { column: column.name.clone() });
            }
            bytes += column.least_key_width(appended == 0 && Some(&position) == columns.last());
        }
        if bytes > MAX_KEY_BYTES {
            return Err(SchemaError::KeyTooWide { key: name.to_owned(), bytes });
        }
        Ok(())
    }
}

impl ColumnDefinition {
    /// The column, as the layout needs it.
    pub(crate) fn shape(&self) -> ColumnShape {
        ColumnShape { column_type: self.column_type, nullable: self.nullable }
    }

    /// Bytes of the column's shortest encoding in a key.
    fn least_key_width(&self, last: bool) -> usize {
        let shortest = if last || self.nullable { 0 } else { 2 };
        self.column_type.key_width().unwrap_or(shortest) + usize::from(self.nullable)
    }
}

fn validate_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), SchemaError> {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err(SchemaError::EmptyName);
        }
        if !seen.insert(name) {
            return Err(SchemaError::DuplicateName { name: name.clone() });
        }
    }
    Ok(())
}
