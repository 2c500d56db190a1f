//! Keys in words.

use std::fmt;

/// A foreign key and its values in words: what a reader needs to know when the database is gone.
///
/// `order (customer) refers to customer (id)=(7)`; control characters in values are escaped.
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
        let (parent, key_columns) = (&self.parent, self.key_columns.join(", "));
        write!(out, "{child} ({columns}) refers to {parent} ({key_columns})=(")?;
        write_values(&self.values, out)?;
        out.write_str(")")
    }
}

/// A key of an index and its values in words: `(email)=(a@b.c) in user.by_email`; control characters in values are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedKey {
    /// The table's name.
    pub table: String,
    /// The index's name; none of the primary one.
    pub index: Option<String>,
    /// The names of the key's columns; none where only the ids of table and index are known.
    pub columns: Vec<String>,
    /// Their values.
    pub values: Vec<String>,
}

impl NamedKey {
    /// A key with these columns and values.
    pub fn new(table: String, index: Option<String>, columns: Vec<String>, values: Vec<String>) -> Self {
        Self { table, index, columns, values }
    }
}

impl fmt::Display for NamedKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.columns.is_empty() {
            write!(out, "({})=(", self.columns.join(", "))?;
            write_values(&self.values, out)?;
            out.write_str(") ")?;
        }
        write!(out, "in {}", self.table)?;
        self.index.as_ref().map_or(Ok(()), |index| write!(out, ".{index}"))
    }
}

fn write_values(values: &[String], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (number, value) in values.iter().enumerate() {
        out.write_str(if number == 0 { "" } else { ", " })?;
        escape(value, out)?;
    }
    Ok(())
}

/// Writes a value without its control characters, so that it cannot break the line in which it stands.
fn escape(value: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.chars().try_for_each(|character| match character.is_control() {
        true => write!(out, "{}", character.escape_default()),
        false => fmt::Write::write_char(out, character),
    })
}
