//! Keys in words.

use std::fmt;

use crate::line::OneLine;

/// A foreign key and its values in words: what a reader needs to know when the database is gone.
///
/// `order (customer) refers to customer (id)=(7)`; what breaks lines is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reference {
    /// The name of the table that refers.
    pub child: String,
    /// The names of its columns.
    pub columns: Vec<String>,
    /// The name of the table that is referred to.
    pub parent: String,
    /// The names of the columns of its primary key.
    pub key_columns: Vec<String>,
    /// Their values.
    pub values: Vec<String>,
}

impl Reference {
    /// Columns of a table that refer to the key of another one with these values.
    pub fn new(
        (child, columns): (String, Vec<String>),
        (parent, key_columns): (String, Vec<String>),
        values: Vec<String>,
    ) -> Self {
        Self { child, columns, parent, key_columns, values }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (child, columns) = (&self.child, self.columns.join(", "));
        let (parent, key_columns, values) = (&self.parent, self.key_columns.join(", "), self.values.join(", "));
        OneLine(format_args!("{child} ({columns}) refers to {parent} ({key_columns})=({values})")).fmt(out)
    }
}

/// A key of an index and its values in words: `(email)=(a@b.c) in user.by_email`; what breaks lines is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedKey {
    /// The table's name.
    pub table: String,
    /// The index's name; none of the primary one.
    pub index: Option<String>,
    /// The names of the key's columns; none where it is not decoded.
    pub columns: Vec<String>,
    /// Their values; without columns the first bytes of the key.
    pub values: Vec<String>,
}

impl NamedKey {
    /// A key with these columns and values.
    pub fn new(table: String, index: Option<String>, columns: Vec<String>, values: Vec<String>) -> Self {
        Self { table, index, columns, values }
    }

    /// Whether it is known which key it is, and not the index alone.
    pub fn is_known(&self) -> bool {
        !self.values.is_empty()
    }
}

impl fmt::Display for NamedKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.join(", ");
        if !self.columns.is_empty() {
            OneLine(format_args!("({})=({values}) ", self.columns.join(", "))).fmt(out)?;
        } else if self.is_known() {
            OneLine(format_args!("{values} ")).fmt(out)?;
        }
        OneLine(format_args!("in {}", self.table)).fmt(out)?;
        self.index.as_ref().map_or(Ok(()), |index| OneLine(format_args!(".{index}")).fmt(out))
    }
}
