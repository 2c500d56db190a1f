//! Columns of a Parquet file as rows of a table.

use std::io::{self, Read};

use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result as Parsed};
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use polychron::schema::{ColumnType, TableDefinition, Value};

use super::super::{Source, match_columns};
use super::columns::{Stored, Values};
use super::guard::guarded;

/// How many rows are decoded at once.
const BATCH_ROWS: usize = 1024;

/// Reads rows by their columns.
pub(in crate::commands) struct Columns<R: ChunkReader> {
    reader: SerializedFileReader<R>,
    columns: Vec<Column>,
    next_group: usize,
    /// Rows of the group that are not decoded yet, and the decoded ones with how many of them have left.
    rest: usize,
    batch: usize,
    taken: usize,
    rows: u64,
}

/// A column of the table, and that of the file, if it has one.
struct Column {
    name: String,
    kind: ColumnType,
    input: Option<Input>,
}

struct Input {
    number: usize,
    stored: Stored,
    is_nullable: bool,
    reader: Option<ColumnReader>,
    levels: Vec<i16>,
    values: Values,
    next: usize,
}

impl Columns<bytes::Bytes> {
    /// Reads all of an input first: a Parquet file is read from its end.
    pub(in crate::commands) fn of_input(definition: &TableDefinition, mut input: impl Read) -> Result<Self, String> {
        let mut all = Vec::new();
        input.read_to_end(&mut all).map_err(|error: io::Error| format!(": {error}"))?;
        Self::open(definition, all.into())
    }
}

impl<R: ChunkReader + 'static> Columns<R> {
    /// # Errors
    /// Where something is wrong, and what.
    pub(in crate::commands) fn open(definition: &TableDefinition, input: R) -> Result<Self, String> {
        let reader = guarded(|| SerializedFileReader::new(input)).map_err(|error| format!(": {}", line_of(error)))?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        if let Some(nested) = schema.columns().iter().find(|it| it.path().parts().len() != 1 || it.max_rep_level() > 0)
        {
            return Err(format!(": the column `{}` is nested", nested.path().string()));
        }
        let names: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
        let found = match_columns(definition, &names, "")?;
        let columns = definition.columns.iter().zip(found).map(|(column, at)| {
            let input = at.map(|number| {
                let descriptor = schema.column(number);
                let stored = Stored::of(&descriptor);
                let values = Values::new(descriptor.physical_type());
                let Some((stored, values)) = stored.zip(values).filter(|(stored, _)| stored.is_of(column.column_type))
                else {
                    let what = stored.map_or_else(|| descriptor.physical_type().to_string(), |it| it.name().to_owned());
                    return Err(format!(", column `{}`: {what} are not values of {}", column.name, column.column_type));
                };
                let is_nullable = descriptor.max_def_level() > 0;
                Ok(Input { number, stored, is_nullable, reader: None, levels: Vec::new(), values, next: 0 })
            });
            Ok(Column { name: column.name.clone(), kind: column.column_type, input: input.transpose()? })
        });
        let columns = columns.collect::<Result<_, String>>()?;
        let source = Self { reader, columns, next_group: 0, rest: 0, batch: 0, taken: 0, rows: 0 };
        source.check()?;
        Ok(source)
    }

    /// Whether the file's description of itself is one, and all of it can be read.
    fn check(&self) -> Result<(), String> {
        let metadata = self.reader.metadata();
        let mut rows = 0_i64;
        for (number, group) in metadata.row_groups().iter().enumerate() {
            rows = rows.saturating_add(group.num_rows());
            for column in &self.columns {
                let Some(input) = &column.input else { continue };
                let chunk = group.columns().get(input.number);
                let chunk = chunk.filter(|chunk| chunk.num_values() == group.num_rows() && group.num_rows() >= 0);
                let Some(chunk) = chunk else {
                    return Err(format!(
                        ", row group {}, column `{}`: it has not as many values as the group has rows",
                        number + 1,
                        column.name
                    ));
                };
                let codec = chunk.compression();
                if !is_compiled(codec) {
                    let codec = codec.to_string();
                    let name = codec.split('(').next().unwrap_or(&codec);
                    return Err(format!(
                        ", column `{}`: it is compressed with {name}, and only SNAPPY, GZIP and LZ4 are read",
                        column.name
                    ));
                }
            }
        }
        let expected = metadata.file_metadata().num_rows();
        if rows == expected { Ok(()) } else { Err(format!(": it has {expected} rows, and its groups have {rows}")) }
    }

    /// Decodes more rows; says whether there are some.
    fn fill(&mut self) -> Result<bool, String> {
        while self.rest == 0 {
            let Some(group) = self.reader.metadata().row_groups().get(self.next_group) else { return Ok(false) };
            self.rest = usize::try_from(group.num_rows()).unwrap_or(0);
            let group = guarded(|| self.reader.get_row_group(self.next_group));
            self.next_group += 1;
            let group = group.map_err(|error| format!(", row group {}: {}", self.next_group, line_of(error)))?;
            for column in &mut self.columns {
                let Some(input) = &mut column.input else { continue };
                let reader = guarded(|| group.get_column_reader(input.number));
                input.reader = Some(reader.map_err(|error| at(self.next_group, &column.name, error))?);
            }
        }
        self.batch = self.rest.min(BATCH_ROWS);
        for column in &mut self.columns {
            let Some(input) = &mut column.input else { continue };
            guarded(|| input.decode(self.batch)).map_err(|error| at(self.next_group, &column.name, error))?;
        }
        (self.rest, self.taken) = (self.rest - self.batch, 0);
        Ok(true)
    }
}

impl<R: ChunkReader + 'static> Source for Columns<R> {
    const UNIT: &'static str = "row";

    fn next(&mut self, values: &mut Vec<Value>) -> Result<Option<u64>, String> {
        values.clear();
        if self.taken == self.batch && !self.fill()? {
            return Ok(None);
        }
        self.rows += 1;
        for column in &mut self.columns {
            let value = match &mut column.input {
                Some(input) if input.levels.get(self.taken) != Some(&0) => {
                    input.next += 1;
                    input.values.value(input.next - 1, input.stored, column.kind)
                }
                _ => Some(Value::Null),
            };
            let wrong = || format!(", row {}, column `{}`: the value is no {}", self.rows, column.name, column.kind);
            values.push(value.ok_or_else(wrong)?);
        }
        self.taken += 1;
        Ok(Some(self.rows))
    }
}

impl Input {
    fn decode(&mut self, rows: usize) -> Parsed<()> {
        self.levels.clear();
        self.values.clear();
        self.next = 0;
        let levels = self.is_nullable.then_some(&mut self.levels);
        let read = match (&mut self.reader, &mut self.values) {
            (Some(ColumnReader::BoolColumnReader(reader)), Values::Bool(all)) => records(reader, rows, levels, all),
            (Some(ColumnReader::Int32ColumnReader(reader)), Values::Int32(all)) => records(reader, rows, levels, all),
            (Some(ColumnReader::Int64ColumnReader(reader)), Values::Int64(all)) => records(reader, rows, levels, all),
            (Some(ColumnReader::FloatColumnReader(reader)), Values::Float(all)) => records(reader, rows, levels, all),
            (Some(ColumnReader::DoubleColumnReader(reader)), Values::Double(all)) => records(reader, rows, levels, all),
            (Some(ColumnReader::ByteArrayColumnReader(reader)), Values::Bytes(all)) => {
                records(reader, rows, levels, all)
            }
            (Some(ColumnReader::FixedLenByteArrayColumnReader(reader)), Values::Fixed(all)) => {
                records(reader, rows, levels, all)
            }
            _ => Ok(0),
        }?;
        if read == rows { Ok(()) } else { Err(ParquetError::General("it ends before the group's last row".to_owned())) }
    }
}

fn records<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: Option<&mut Vec<i16>>,
    all: &mut Vec<T::T>,
) -> Parsed<usize> {
    reader.read_records(rows, levels, None, all).map(|(records, ..)| records)
}

const fn is_compiled(codec: Compression) -> bool {
    use Compression as C;
    matches!(codec, C::UNCOMPRESSED | C::SNAPPY | C::GZIP(_) | C::LZ4 | C::LZ4_RAW)
}

fn at(group: usize, column: &str, error: ParquetError) -> String {
    format!(", row group {group}, column `{column}`: {}", line_of(error))
}

fn line_of(error: ParquetError) -> String {
    match error {
        ParquetError::General(what) | ParquetError::EOF(what) | ParquetError::NYI(what) => what,
        ParquetError::External(error) => error.to_string(),
        error => error.to_string(),
    }
}
