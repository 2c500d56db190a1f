//! Tables that SQL has made, as CSV: rows are written and read as its COPY does, so that its rules hold, and values look as they do in SQL.
//!
//! A program without SQL writes such tables as it writes others, and is refused where they have rules that it does not know.

use std::io::{self, BufRead, BufReader, Read, Write};

use polychron::schema::{KeyExtractor, KeyScratch, Value};
use polychron::{Database, Error, Projection, Transaction as _};
use polychron_engine::write_rules::RECORDS;

use crate::commands::export::Failure;

/// How rows are written: NULL is what it is in files of other tables.
const FORMAT: &str = r"(FORMAT csv, HEADER, NULL '\N')";

/// The name of a table in statements.
pub(in crate::commands) struct Copied {
    name: String,
}

impl Copied {
    /// The table of this name, if SQL has made it. Schemas stand in front of names, with a point.
    pub(in crate::commands) fn find(database: &Database, table: &str) -> Result<Option<Self>, Error> {
        let in_schema = table.split_once('.').map(|(schema, name)| (Some(schema), name));
        for (schema, name) in [Some((None, table)), in_schema].into_iter().flatten() {
            let key = schema.map_or_else(|| name.to_owned(), |schema| format!("{schema}\u{1f}{name}"));
            if is_recorded(database, &key)? {
                let name = quoted(name);
                return Ok(Some(Self {
                    name: schema.map_or(name.clone(), |schema| format!("{}.{name}", quoted(schema))),
                }));
            }
        }
        Ok(None)
    }

    /// Writes all rows.
    pub(in crate::commands) fn write(&self, database: &Database, out: impl Write) -> Result<(), Failure> {
        let mut out = Noting { out, failed: None };
        let text = format!("COPY {} TO STDOUT {FORMAT}", self.name);
        let copied = database.sql().and_then(|mut connection| connection.copy_out(&text, &mut out));
        match out.failed {
            Some(failed) => Err(Failure::Output(failed)),
            None => copied.map_err(Failure::Sql).and_then(|_| out.out.flush().map_err(Failure::Output)),
        }
    }

    /// Inserts all rows of a file, or none; the answer is their number.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(in crate::commands) fn read(&self, database: &Database, input: impl Read) -> Result<u64, String> {
        let mut input = BufReader::with_capacity(1 << 16, input);
        let head = head(&mut input)?;
        let columns = names(&head)?.iter().map(quoted).collect::<Vec<_>>().join(", ");
        let mut connection = database.sql().map_err(|error| format!(": {error}"))?;
        let failed = |error: polychron::sql::Error| format!(": {error}");
        let mut copy =
            connection.copy_in(&format!("COPY {} ({columns}) FROM STDIN {FORMAT}", self.name)).map_err(failed)?;
        copy.write(&head).map_err(failed)?;
        loop {
            let bytes = input.fill_buf().map_err(|error| format!(": {error}"))?;
            if bytes.is_empty() {
                return copy.finish().map_err(failed);
            }
            copy.write(bytes).map_err(failed)?;
            let count = bytes.len();
            input.consume(count);
        }
    }
}

/// Keeps what writing has failed with.
struct Noting<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Write for Noting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.failed = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn is_recorded(database: &Database, key: &str) -> Result<bool, Error> {
    let Some(records) = database.find_table(RECORDS) else { return Ok(false) };
    let keys = KeyExtractor::primary(&*database.definition(records)?)?;
    let mut scratch = KeyScratch::new();
    let key = keys.encode_key(&[Value::String(key.to_owned())], &mut scratch)?;
    database.snapshot(|transaction| Ok(transaction.read_row(records, key, &Projection::NONE)?.is_some()))
}

/// A name as an identifier of SQL.
fn quoted(name: impl AsRef<str>) -> String {
    format!("\"{}\"", name.as_ref().replace('"', "\"\""))
}

/// The first record, with the end of its line.
fn head(input: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let (mut head, mut is_open) = (Vec::new(), false);
    loop {
        let before = head.len();
        input.read_until(b'\n', &mut head).map_err(|error| format!(": {error}"))?;
        let line = &head[before..];
        is_open ^= line.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
        if line.is_empty() || !is_open {
            return Ok(head);
        }
    }
}

fn names(head: &[u8]) -> Result<Vec<String>, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(head);
    let record = reader.records().next().ok_or(", line 1: there are no names of columns")?;
    Ok(record.map_err(|error| format!(", line 1: {error}"))?.iter().map(str::to_owned).collect())
}
