//! Files of rows: what `export` writes and `import` reads, whatever the format.
//!
//! A format has a [`Sink`], which takes rows one after the other and keeps a bounded number of them, and a [`Source`], which gives values for
//! the columns of a table. What it means that a column is missing or a row is none of the table's is the same for all of them.

mod cells;
#[cfg(any(feature = "shell", feature = "serve"))]
pub(super) mod copied;
pub(super) mod csv;
#[cfg(feature = "parquet")]
pub(super) mod parquet;

use std::io;
use std::path::Path;

use polychron::schema::{EnumType, RowRef, TableDefinition, Value};
use polychron::{Database, TableId};

use crate::arguments::Format;

/// Where rows are, or come to.
pub(super) enum Target {
    /// A table of the engine: rows are encoded here.
    Engine(TableId),
    /// A table that SQL has made.
    #[cfg(any(feature = "shell", feature = "serve"))]
    Copied(copied::Copied),
}

impl Target {
    /// A table by its name.
    pub(super) fn find(database: &Database, name: &str, format: Format) -> Result<Self, String> {
        #[cfg(any(feature = "shell", feature = "serve"))]
        if let Some(table) = copied::Copied::find(database, name).map_err(|error| error.to_string())? {
            if format == Format::Csv {
                return Ok(Self::Copied(table));
            }
            // Parquet is read here, and rows are held to the rules that SQL has loaded.
            drop(database.sql().map_err(|error| error.to_string())?);
        }
        let _ = format;
        let table = database.find_table(name).ok_or_else(|| format!("--table {name}: there is no such table"))?;
        Ok(Self::Engine(table))
    }
}

/// What rows are written to.
pub(super) trait Sink {
    /// Writes a row, now or later.
    fn write(&mut self, row: RowRef<'_>) -> io::Result<()>;

    /// Writes what is left.
    fn finish(self) -> io::Result<()>;
}

/// What rows are read from. Errors begin with where in the file something is wrong.
pub(super) trait Source {
    /// What rows are numbered by.
    const UNIT: &'static str;

    /// The next row: its number, and a value for each column of the table, which replace those in `values`.
    fn next(&mut self, values: &mut Vec<Value>) -> Result<Option<u64>, String>;
}

/// The requested format, or else the one that the file's name ends in.
///
/// # Errors
/// The program was built without this format.
pub(super) fn format_of(requested: Option<Format>, path: Option<&Path>) -> Result<Format, String> {
    let is_parquet = path.and_then(Path::extension).is_some_and(|ending| ending == "parquet");
    let format = requested.unwrap_or(if is_parquet { Format::Parquet } else { Format::Csv });
    if format == Format::Parquet && cfg!(not(feature = "parquet")) {
        return Err("this program was built without Parquet: build it with `--features parquet`".to_owned());
    }
    Ok(format)
}

/// The file's column of each of the table's columns; none where it has no such column. `head` is the place of the names.
fn match_columns(definition: &TableDefinition, names: &[&str], head: &str) -> Result<Vec<Option<usize>>, String> {
    let known = |name: &str| definition.columns.iter().any(|column| column.name == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(format!("{head}: the table has no column `{name}`"));
    }
    if let Some(name) = names.iter().enumerate().find_map(|(at, name)| names[at + 1..].iter().find(|it| *it == name)) {
        return Err(format!("{head}: the column `{name}` is there twice"));
    }
    let found = definition.columns.iter().map(|column| {
        let at = names.iter().position(|name| *name == column.name);
        if at.is_none() && !column.nullable {
            return Err(format!("{head}: the column `{}` is missing, and cannot be NULL", column.name));
        }
        Ok(at)
    });
    found.collect()
}

/// The name of an enum's number, unless that is another one's as well.
fn variant_name(kind: &EnumType, number: i128) -> Option<&'static str> {
    let name = kind.variant(number)?.name;
    let first = kind.variants().iter().find(|variant| variant.name == name)?;
    (first.number == number).then_some(name)
}

/// The number of an enum's name, or of a number as text.
fn variant_number(kind: &EnumType, text: &str) -> Option<Value> {
    let named = kind.variants().iter().find(|variant| variant.name == text);
    named.map(|variant| variant.number).or_else(|| text.parse().ok()).map(Value::Integer128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_counts_where_no_format_is_requested() {
        let format = |requested, name: &str| format_of(requested, Some(Path::new(name)));
        assert_eq!(format(None, "rows.csv"), Ok(Format::Csv));
        assert_eq!(format(None, "parquet"), Ok(Format::Csv));
        assert_eq!(format(Some(Format::Csv), "rows.parquet"), Ok(Format::Csv));
        for parquet in [format(None, "rows.parquet"), format(Some(Format::Parquet), "rows")] {
            match parquet {
                Ok(format) => assert!(cfg!(feature = "parquet") && format == Format::Parquet),
                Err(line) => assert!(cfg!(not(feature = "parquet")) && line.contains("--features parquet"), "{line}"),
            }
        }
    }
}
