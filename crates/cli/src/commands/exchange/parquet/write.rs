//! Rows of a table as row groups of a Parquet file.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use polychron::schema::{ColumnType, Layout, RowRef, TableDefinition};

use super::super::Sink;
use super::columns::{Values, type_of};

/// How many bytes of values one row group has: a file is as long as it likes, and memory is not.
pub(super) const GROUP_BYTES: usize = 32 << 20;

/// Writes rows in groups, of which it keeps one.
pub(in crate::commands) struct Groups<'l, W: Write + Send> {
    layout: &'l Layout,
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    bytes: usize,
    most_bytes: usize,
}

struct Column {
    kind: ColumnType,
    values: Values,
    /// For a column that may be NULL: 0 where it is, and 1 where not.
    levels: Option<Vec<i16>>,
}

impl<'l, W: Write + Send> Groups<'l, W> {
    pub(in crate::commands) fn new(definition: &TableDefinition, layout: &'l Layout, output: W) -> io::Result<Self> {
        Self::with_groups_of(definition, layout, output, GROUP_BYTES).map_err(failure)
    }

    /// With groups of another length.
    pub(super) fn with_groups_of(
        definition: &TableDefinition,
        layout: &'l Layout,
        output: W,
        most_bytes: usize,
    ) -> Result<Self> {
        let types = definition.columns.iter().map(|column| type_of(column).map(Arc::new));
        let types: Vec<_> = types.collect::<Result<_>>()?;
        let columns = definition.columns.iter().zip(&types).map(|(column, written)| {
            let values = Values::new(written.get_physical_type());
            Some(Column { kind: column.column_type, values: values?, levels: column.nullable.then(Vec::new) })
        });
        let columns = columns.collect::<Option<_>>();
        let columns = columns.ok_or_else(|| ParquetError::General("a type is no longer written".to_owned()))?;
        let schema = Type::group_type_builder(&definition.name).with_fields(types).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("polychron {}", env!("CARGO_PKG_VERSION")))
            .build();
        let writer = SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties))?;
        Ok(Self { layout, writer, columns, bytes: 0, most_bytes })
    }

    fn end_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let next = group.next_column()?;
            column.write(next.ok_or_else(|| ParquetError::General("a column is missing".to_owned()))?)?;
        }
        group.close()?;
        self.bytes = 0;
        Ok(())
    }
}

impl<W: Write + Send> Sink for Groups<'_, W> {
    fn write(&mut self, row: RowRef<'_>) -> io::Result<()> {
        for (number, column) in self.columns.iter_mut().enumerate() {
            let value = row.value_ref(self.layout, number);
            if let Some(levels) = &mut column.levels {
                levels.push(i16::from(!value.is_null()));
                self.bytes += size_of::<i16>();
            }
            if !value.is_null() {
                self.bytes += column.values.push(column.kind, value);
            }
        }
        if self.bytes >= self.most_bytes { self.end_group().map_err(failure) } else { Ok(()) }
    }

    fn finish(mut self) -> io::Result<()> {
        if self.bytes > 0 {
            self.end_group().map_err(failure)?;
        }
        self.writer.into_inner().map_err(failure)?.flush()
    }
}

impl Column {
    fn write(&mut self, writer: SerializedColumnWriter<'_>) -> Result<()> {
        let levels = self.levels.as_deref();
        match &self.values {
            Values::Bool(all) => whole::<BoolType>(writer, all, levels),
            Values::Int32(all) => whole::<Int32Type>(writer, all, levels),
            Values::Int64(all) => whole::<Int64Type>(writer, all, levels),
            Values::Float(all) => whole::<FloatType>(writer, all, levels),
            Values::Double(all) => whole::<DoubleType>(writer, all, levels),
            Values::Bytes(all) => whole::<ByteArrayType>(writer, all, levels),
            Values::Fixed(all) => whole::<FixedLenByteArrayType>(writer, all, levels),
        }?;
        self.values.clear();
        self.levels.iter_mut().for_each(Vec::clear);
        Ok(())
    }
}

fn whole<T: DataType>(mut writer: SerializedColumnWriter<'_>, all: &[T::T], levels: Option<&[i16]>) -> Result<()> {
    writer.typed::<T>().write_batch(all, levels, None)?;
    writer.close()
}

/// What the device says stays what it is.
fn failure(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
