//! `polychron import`.
//!
//! All rows are read and checked before the first one is inserted. What fits one transaction is one; otherwise all rows are inserted and taken back first, so
//! that nothing but the disk can refuse one of them when they are inserted for good, in several transactions.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use polychron::schema::{KeyExtractor, KeyScratch, Layout, RowBuffer, TableDefinition, Value, build_row};
use polychron::{Database, Error, Insertion, Operations as _, TableId, Transaction as _};

use super::cells::parse;
use super::export::find;
use crate::arguments::Import;
use crate::output::print_output;
use crate::progress::opening;

/// How many bytes of rows one transaction has: what the log takes at once is more.
const AT_ONCE: usize = 4 << 20;

pub(super) fn run(given: &Import) -> Result<(), String> {
    let name = given.input.as_ref().map_or("the standard input".to_owned(), |path| path.display().to_string());
    let at = |line: String| format!("{name}{line}");
    let input: Box<dyn Read> = match &given.input {
        Some(path) => Box::new(File::open(path).map_err(|error| at(format!(": {error}")))?),
        None => Box::new(io::stdin()),
    };
    let opened = Database::builder().on_event(opening()).open_existing(&given.directory);
    let database = opened.map_err(|error| error.to_string())?;
    let table = find(&database, &given.table)?;
    let definition = database.definition(table).map_err(|error| error.to_string())?;
    let rows = Rows::read(definition, input).map_err(at)?;
    rows.insert(&database, table).map_err(|refused| match refused {
        Refused::Row(line) => at(line),
        Refused::Other(error) => error.to_string(),
        Refused::Tried => "the rows were not inserted".to_owned(),
    })?;
    database.close().map_err(|error| error.to_string())?;
    print_output(format_args!("{} rows inserted", rows.all.len()));
    Ok(())
}

/// Rows of a file, each with the line that it begins in, and its key.
struct Rows {
    all: Vec<(u64, RowBuffer, Vec<u8>)>,
}

/// Why rows were not inserted.
enum Refused {
    /// Where it was, and what is wrong with it.
    Row(String),
    Other(Error),
    /// All could be, and were taken back.
    Tried,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Rows {
    /// # Errors
    /// Where something is wrong, and what.
    fn read(definition: Arc<TableDefinition>, input: impl Read) -> Result<Self, String> {
        let layout = definition.layout().map_err(|error| format!(": {error}"))?;
        let keys = KeyExtractor::primary(&definition).map_err(|error| format!(": {error}"))?;
        let mut reader = csv::ReaderBuilder::new().from_reader(input);
        let columns = columns(&definition, reader.headers().map_err(|error| malformed(&error))?)?;
        let mut all = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| malformed(&error))?;
            let line = record.position().map_or(0, csv::Position::line);
            let row = row(&definition, &layout, &columns, &record).map_err(|what| format!(", line {line}{what}"))?;
            let mut scratch = KeyScratch::new();
            let key = keys.extract(row.as_row(), &mut scratch).map_err(|error| format!(", line {line}: {error}"))?;
            all.push((line, row, key.to_vec()));
        }
        Ok(Self { all })
    }

    fn insert(&self, database: &Database, table: TableId) -> Result<(), Refused> {
        let mut parts = vec![0];
        let mut bytes = 0;
        for (number, (_, row, _)) in self.all.iter().enumerate() {
            bytes += size_of_val(row.as_row().as_words());
            if bytes > AT_ONCE && parts.last() != Some(&number) {
                parts.push(number);
                bytes = 0;
            }
        }
        parts.push(self.all.len());
        if parts.len() > 2 {
            match self.insert_part(database, table, 0..self.all.len(), true) {
                Err(Refused::Tried) | Ok(()) => {}
                refused => return refused,
            }
        }
        parts.windows(2).try_for_each(|part| self.insert_part(database, table, part[0]..part[1], false))
    }

    fn insert_part(
        &self,
        database: &Database,
        table: TableId,
        part: std::ops::Range<usize>,
        is_trial: bool,
    ) -> Result<(), Refused> {
        database.transact(|transaction| {
            for (line, row, key) in &self.all[part.clone()] {
                let row = row.as_row();
                let refused = match transaction.insert_row(table, key.as_slice(), row) {
                    Ok(Insertion::Duplicate(index)) => transaction.constraints(table)?.duplicate(table, index, row),
                    Ok(_) => continue,
                    Err(error) => error,
                };
                let is_of_row = matches!(refused, Error::Duplicate(_) | Error::NoParent(_) | Error::KeyTooLong(_));
                return Err(if is_of_row {
                    Refused::Row(format!(", line {line}: {refused}"))
                } else {
                    Refused::Other(refused)
                });
            }
            if is_trial { Err(Refused::Tried) } else { Ok(()) }
        })
    }
}

fn malformed(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!(", line {line}: there are {len} cells, and {expected_len} columns")
        }
        csv::ErrorKind::Utf8 { pos, err } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!(", line {line}, cell {}: it is not UTF-8", err.field() + 1)
        }
        csv::ErrorKind::Io(error) => format!(": {error}"),
        _ => format!(": {error}"),
    }
}

/// The cell of each of the table's columns; none where the file has no such column.
fn columns(definition: &TableDefinition, names: &csv::StringRecord) -> Result<Vec<Option<usize>>, String> {
    let known = |name: &str| definition.columns.iter().any(|column| column.name == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(format!(", line 1: the table has no column `{name}`"));
    }
    if let Some(name) = names.iter().enumerate().find_map(|(at, name)| names.iter().skip(at + 1).find(|it| *it == name))
    {
        return Err(format!(", line 1: the column `{name}` is there twice"));
    }
    let found = definition.columns.iter().map(|column| {
        let at = names.iter().position(|name| name == column.name);
        if at.is_none() && !column.nullable {
            return Err(format!(", line 1: the column `{}` is missing, and cannot be NULL", column.name));
        }
        Ok(at)
    });
    found.collect()
}

fn row(
    definition: &TableDefinition,
    layout: &Layout,
    columns: &[Option<usize>],
    record: &csv::StringRecord,
) -> Result<RowBuffer, String> {
    let mut values = Vec::with_capacity(columns.len());
    for (column, at) in definition.columns.iter().zip(columns) {
        let cell = at.and_then(|at| record.get(at));
        let value = cell.map_or(Ok(Value::Null), |cell| parse(column.column_type, column.nullable, cell));
        values.push(value.map_err(|what| format!(", column `{}`: {what}", column.name))?);
    }
    let mut row = RowBuffer::new();
    build_row(layout, &values, &mut row).map_err(|error| format!(": {error}"))?;
    Ok(row)
}
