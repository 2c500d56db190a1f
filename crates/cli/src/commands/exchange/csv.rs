//! CSV: a line of names first, and cells as [`cells`](super::cells) has them.

use std::io::{self, Read, Write};
use std::sync::Arc;

use polychron::schema::{Layout, RowRef, TableDefinition, Value};

use super::cells::{cell, parse};
use super::{Sink, Source, match_columns};

/// Writes rows as lines.
pub(in crate::commands) struct Lines<'d, W: Write> {
    definition: &'d TableDefinition,
    layout: &'d Layout,
    writer: csv::Writer<W>,
}

impl<'d, W: Write> Lines<'d, W> {
    pub(in crate::commands) fn new(definition: &'d TableDefinition, layout: &'d Layout, output: W) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(output);
        writer.write_record(definition.columns.iter().map(|column| &column.name))?;
        Ok(Self { definition, layout, writer })
    }
}

impl<W: Write> Sink for Lines<'_, W> {
    fn write(&mut self, row: RowRef<'_>) -> io::Result<()> {
        let cells = self.definition.columns.iter().enumerate();
        let cells = cells.map(|(number, column)| cell(column.column_type, row.value_ref(self.layout, number)));
        Ok(self.writer.write_record(cells)?)
    }

    fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Reads lines as rows.
pub(in crate::commands) struct Records<R> {
    definition: Arc<TableDefinition>,
    reader: csv::Reader<R>,
    record: csv::StringRecord,
    columns: Vec<Option<usize>>,
}

impl<R: Read> Records<R> {
    /// # Errors
    /// Where something is wrong, and what.
    pub(in crate::commands) fn open(definition: Arc<TableDefinition>, input: R) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new().from_reader(input);
        let names: Vec<&str> = reader.headers().map_err(|error| malformed(&error))?.iter().collect();
        let columns = match_columns(&definition, &names, ", line 1")?;
        Ok(Self { definition, reader, record: csv::StringRecord::new(), columns })
    }
}

impl<R: Read> Source for Records<R> {
    const UNIT: &'static str = "line";

    fn next(&mut self, values: &mut Vec<Value>) -> Result<Option<u64>, String> {
        values.clear();
        if !self.reader.read_record(&mut self.record).map_err(|error| malformed(&error))? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        for (column, at) in self.definition.columns.iter().zip(&self.columns) {
            let cell = at.and_then(|at| self.record.get(at));
            let value = cell.map_or(Ok(Value::Null), |cell| parse(column.column_type, column.nullable, cell));
            values.push(value.map_err(|what| format!(", line {line}, column `{}`: {what}", column.name))?);
        }
        Ok(Some(line))
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
