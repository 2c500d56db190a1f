//! `polychron import`.
//!
//! All rows are read and checked before the first one is inserted, and inserted as one transaction.

use std::fs::File;
use std::io;
use std::sync::Arc;

use polychron::schema::{KeyExtractor, KeyScratch, RowBuffer, TableDefinition, build_row};
use polychron::{Database, Error, Insertion, Operations as _, TableId, Transaction as _};

#[cfg(feature = "parquet")]
use super::exchange::parquet;
use super::exchange::{Source, Target, csv, format_of};
use crate::arguments::{Format, Import};
use crate::output::print_output;
use crate::progress::opening;

pub(super) fn run(given: &Import) -> Result<(), String> {
    let name = given.input.as_ref().map_or("the standard input".to_owned(), |path| path.display().to_string());
    let at = |line: String| format!("{name}{line}");
    let format = format_of(given.format, given.input.as_deref())?;
    let file = given.input.as_ref().map(File::open).transpose().map_err(|error| at(format!(": {error}")))?;
    let opened = Database::builder().on_event(opening()).open_existing(&given.directory);
    let database = opened.map_err(|error| error.to_string())?;
    let count = match Target::find(&database, &given.table, format)? {
        Target::Engine(table) => insert(&database, table, format, file).map_err(|refused| match refused {
            Refused::Row(line) => at(line),
            Refused::Other(error) => error.to_string(),
        })?,
        #[cfg(any(feature = "shell", feature = "serve"))]
        Target::Copied(table) => {
            let count = match file {
                Some(file) => table.read(&database, file),
                None => table.read(&database, io::stdin()),
            };
            count.map_err(at)?
        }
    };
    database.close().map_err(|error| error.to_string())?;
    print_output(format_args!("{count} rows inserted"));
    Ok(())
}

fn insert(database: &Database, table: TableId, format: Format, file: Option<File>) -> Result<u64, Refused> {
    let rows = read(database.definition(table)?, format, file).map_err(Refused::Row)?;
    rows.insert(database, table)?;
    Ok(rows.all.len() as u64)
}

fn read(definition: Arc<TableDefinition>, format: Format, file: Option<File>) -> Result<Rows, String> {
    match (format, file) {
        (Format::Csv, Some(file)) => Rows::read(&definition, csv::Records::open(definition.clone(), file)?),
        (Format::Csv, None) => Rows::read(&definition, csv::Records::open(definition.clone(), io::stdin())?),
        #[cfg(feature = "parquet")]
        (Format::Parquet, Some(file)) => Rows::read(&definition, parquet::Columns::open(&definition, file)?),
        #[cfg(feature = "parquet")]
        (Format::Parquet, None) => Rows::read(&definition, parquet::Columns::of_input(&definition, io::stdin())?),
        #[cfg(not(feature = "parquet"))]
        (Format::Parquet, _) => unreachable!("`format_of` refuses it"),
    }
}

/// Rows of a file, each with its number there, and its key.
struct Rows {
    /// What the numbers count.
    unit: &'static str,
    all: Vec<(u64, RowBuffer, Vec<u8>)>,
}

/// Why rows were not inserted.
enum Refused {
    /// Where it was, and what is wrong with it.
    Row(String),
    Other(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Rows {
    /// # Errors
    /// Where something is wrong, and what.
    fn read<S: Source>(definition: &TableDefinition, mut source: S) -> Result<Self, String> {
        let layout = definition.layout().map_err(|error| format!(": {error}"))?;
        let keys = KeyExtractor::primary(definition).map_err(|error| format!(": {error}"))?;
        let (mut all, mut values) = (Vec::new(), Vec::new());
        while let Some(number) = source.next(&mut values)? {
            let at = |error| format!(", {} {number}: {error}", S::UNIT);
            let mut row = RowBuffer::new();
            build_row(&layout, &values, &mut row).map_err(at)?;
            let mut scratch = KeyScratch::new();
            let key = keys.extract(row.as_row(), &mut scratch).map_err(at)?;
            all.push((number, row, key.to_vec()));
        }
        Ok(Self { unit: S::UNIT, all })
    }

    /// All of them, as one transaction.
    fn insert(&self, database: &Database, table: TableId) -> Result<(), Refused> {
        database.transact(|transaction| {
            for (number, row, key) in &self.all {
                let row = row.as_row();
                let refused = match transaction.insert_row(table, key.as_slice(), row) {
                    Ok(Insertion::Duplicate(index)) => transaction.constraints(table)?.duplicate(table, index, row),
                    Ok(_) => continue,
                    Err(error) => error,
                };
                let is_of_row = matches!(
                    refused,
                    Error::Duplicate(_) | Error::NoParent(_) | Error::KeyTooLong(_) | Error::Other(_)
                );
                return Err(if is_of_row {
                    Refused::Row(format!(", {} {number}: {refused}", self.unit))
                } else {
                    Refused::Other(refused)
                });
            }
            Ok(())
        })
    }
}
