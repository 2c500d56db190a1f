//! Bytes into rows, with what errors say of their place.

use std::ops::Range;

use bumpalo::Bump;

use super::fields::{Fields, text_of};
use super::lines::{Lines, Next};
use super::options::{Format, Header, Options};
use super::{LONGEST, bad_data, binary, shortened, too_long};
use crate::casts::{self, Place};
use crate::context::{Context, Now};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::exec::bytes_of;
use crate::text::{self, Zone};
use crate::types::ColumnType;

/// What a batch has at most before it is inserted.
const BATCH_ROWS: usize = 1000;
const BATCH_BYTES: usize = 64 << 10;

/// A copied column.
pub(super) struct Column {
    name: String,
    of: ColumnType,
    is_never_null: bool,
    may_be_quoted_null: bool,
}

impl Column {
    pub(super) fn new(name: String, of: ColumnType) -> Self {
        Self { name, of, is_never_null: false, may_be_quoted_null: false }
    }
}

/// The bytes that are not rows yet.
enum Reader {
    Lines(Lines, Fields),
    Binary(Bytes),
}

/// Those of the binary format.
#[derive(Default)]
struct Bytes {
    buffer: Vec<u8>,
    start: usize,
    /// There is nothing to be read before so many bytes are there.
    needed: usize,
    is_begun: bool,
    is_ended: bool,
    rows: u64,
}

/// Rows that are to be inserted together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) values: Vec<OwnedDatum>,
    /// The lines that they come from: their numbers, and what messages show of them.
    lines: Vec<(u64, Range<usize>)>,
    text: Vec<u8>,
    bytes: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.lines.clear();
        self.text.clear();
        self.bytes = 0;
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The row is complete whose values were added.
    fn end_row(&mut self, line: u64, shown: &str) {
        let start = self.text.len();
        self.text.extend_from_slice(shown.as_bytes());
        self.lines.push((line, start..self.text.len()));
    }

    fn add(&mut self, value: Datum<'_>) {
        self.bytes += bytes_of(&[value]);
        self.values.push(value.owned());
    }
}

/// What decoding has come to.
pub(super) enum Progress {
    /// More bytes are needed, or there are no more.
    Waits,
    /// The batch is to be inserted.
    IsFull,
}

/// Bytes into batches of rows.
pub(super) struct Decoder {
    /// As messages have it.
    table: String,
    options: Options,
    columns: Vec<Column>,
    reader: Reader,
    header: Header,
    pub(super) batch: Batch,
    arena: Bump,
    zone: Zone,
    now: i64,
}

impl Decoder {
    /// How the data look.
    pub(super) fn shape(&self) -> super::CopyShape {
        super::CopyShape { is_binary: self.options.format == Format::Binary, columns: self.columns.len() }
    }

    /// `all` are the names of all columns of the table.
    pub(super) fn new(
        (table, all): (String, &[String]),
        mut columns: Vec<Column>,
        options: Options,
    ) -> Result<Self, SqlError> {
        let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
        let never = options.force_not_null.among("FORCE_NOT_NULL", &names, (&table, all))?;
        let quoted = options.force_null.among("FORCE_NULL", &names, (&table, all))?;
        for (column, (never, quoted)) in columns.iter_mut().zip(never.into_iter().zip(quoted)) {
            (column.is_never_null, column.may_be_quoted_null) = (never, quoted);
        }
        let reader = match options.format {
            Format::Text => Reader::Lines(Lines::new(None), Fields::default()),
            Format::Csv => Reader::Lines(Lines::new(Some((options.quote, options.escape))), Fields::default()),
            Format::Binary => Reader::Binary(Bytes::default()),
        };
        let (header, batch, arena, zone) = (options.header, Batch::default(), Bump::new(), Zone::utc());
        Ok(Self { table, options, columns, reader, header, batch, arena, zone, now: 0 })
    }

    /// The same in a zone, in a transaction that has begun then.
    pub(super) fn with_time(self, zone: Zone, now: i64) -> Self {
        Self { zone, now, ..self }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        match &mut self.reader {
            Reader::Lines(lines, _) => lines.add(bytes),
            Reader::Binary(own) => {
                own.buffer.drain(..own.start);
                own.start = 0;
                own.buffer.extend_from_slice(bytes);
            }
        }
    }

    /// Reads rows until the batch is full, or bytes are missing. `is_last`: no more will come.
    pub(super) fn decode(&mut self, is_last: bool) -> Result<Progress, SqlError> {
        let mut place = Shown::Nothing;
        let decoded = match &self.reader {
            Reader::Lines(..) => self.decode_lines(is_last, &mut place),
            Reader::Binary(_) => self.decode_binary(is_last, &mut place),
        };
        decoded.map_err(|error| {
            // Of the row that cannot be read, nothing is inserted.
            self.batch.values.truncate(self.batch.lines.len() * self.columns.len());
            let line = match &self.reader {
                Reader::Lines(lines, _) => lines.number(),
                Reader::Binary(bytes) => bytes.rows,
            };
            self.placed(error, line.max(1), &place)
        })
    }

    /// An error with its place in the data.
    fn placed(&self, error: SqlError, line: u64, place: &Shown) -> SqlError {
        let table = &self.table;
        let name = |at: usize| self.columns.get(at).map_or("", |column| &column.name);
        error.with_context(match place {
            Shown::Nothing => format!("COPY {table}, line {line}"),
            Shown::Line(text) => format!("COPY {table}, line {line}: \"{text}\""),
            Shown::Column(at) => format!("COPY {table}, line {line}, column {}", name(*at)),
            Shown::Field(at, None) => format!("COPY {table}, line {line}, column {}: null input", name(*at)),
            Shown::Field(at, Some(text)) => format!("COPY {table}, line {line}, column {}: \"{text}\"", name(*at)),
        })
    }

    /// The error of a batch with the place of its row.
    pub(super) fn in_batch(&self, error: SqlError) -> SqlError {
        let Some((line, text)) = error.row().and_then(|row| self.batch.lines.get(row)) else { return error };
        let has_line = [SqlState::CHECK_VIOLATION, SqlState::NOT_NULL_VIOLATION].contains(&error.state())
            && !matches!(self.reader, Reader::Binary(_));
        let text = String::from_utf8_lossy(&self.batch.text[text.clone()]).into_owned();
        self.placed(error, *line, &if has_line { Shown::Line(text) } else { Shown::Nothing })
    }

    fn decode_lines(&mut self, is_last: bool, place: &mut Shown) -> Result<Progress, SqlError> {
        let Reader::Lines(lines, fields) = &mut self.reader else { return Ok(Progress::Waits) };
        loop {
            *place = Shown::Nothing;
            let (line, is_missing) = match lines.next(is_last)? {
                Next::Line(line) => (text_of(lines.bytes(line))?, false),
                // A header that is looked at has to be there.
                Next::End if is_last && self.header == Header::Match => ("", true),
                Next::More | Next::End => return Ok(Progress::Waits),
            };
            let number = lines.number();
            *place = Shown::Line(shortened(line.as_bytes()));
            if self.header != Header::None {
                if self.header == Header::Match {
                    fields.read(line, &self.options)?;
                    check_header(fields, &self.columns, &self.options)?;
                }
                self.header = Header::None;
                if is_missing {
                    return Ok(Progress::Waits);
                }
                continue;
            }
            fields.read(line, &self.options)?;
            if fields.len() > self.columns.len() {
                return Err(bad_data("extra data after last expected column"));
            }
            for (at, column) in self.columns.iter().enumerate() {
                if at >= fields.len() {
                    return Err(bad_data(format!("missing data for column \"{}\"", column.name)));
                }
                let null = self.options.null.as_str();
                let field = match fields.get(at) {
                    None if column.is_never_null => Some(null),
                    Some(text) if column.may_be_quoted_null && text == null => None,
                    field => field,
                };
                let context = Context { now: Now::At(self.now), ..Context::of(&self.arena, &self.zone) };
                let value = field.map_or(Ok(Datum::Null), |text| {
                    let value = text::read(column.of.base, text, &context)?;
                    casts::bound(value, column.of, Place::Assignment, &self.arena)
                });
                let value = value.inspect_err(|_| {
                    *place = Shown::Field(at, field.map(|text| shortened(text.as_bytes())));
                })?;
                self.batch.add(value);
            }
            if let Shown::Line(text) = &place {
                self.batch.end_row(number, text);
            }
            self.arena.reset();
            if self.batch.is_full() {
                return Ok(Progress::IsFull);
            }
        }
    }

    fn decode_binary(&mut self, is_last: bool, place: &mut Shown) -> Result<Progress, SqlError> {
        let Reader::Binary(bytes) = &mut self.reader else { return Ok(Progress::Waits) };
        loop {
            *place = Shown::Nothing;
            let rest = &bytes.buffer[bytes.start..];
            if rest.len() > LONGEST + (1 << 20) {
                return Err(too_long());
            }
            if rest.len() < bytes.needed && !is_last {
                return Ok(Progress::Waits);
            }
            if bytes.is_ended {
                return if rest.is_empty() {
                    Ok(Progress::Waits)
                } else {
                    Err(bad_data("received copy data after EOF marker"))
                };
            }
            if !bytes.is_begun {
                let Some(length) = binary::header(rest, is_last)? else { return Ok(Progress::Waits) };
                (bytes.is_begun, bytes.start) = (true, bytes.start + length);
                continue;
            }
            bytes.rows += 1;
            let (fields, length) = match binary::row(rest, self.columns.len(), is_last)? {
                binary::Row::More(length) => {
                    bytes.rows -= 1;
                    bytes.needed = length;
                    return Ok(Progress::Waits);
                }
                binary::Row::End(length) => {
                    (bytes.is_ended, bytes.needed) = (true, 0);
                    bytes.start += length;
                    continue;
                }
                binary::Row::Fields(fields, length) => (fields, length),
            };
            for (at, (field, column)) in fields.into_iter().zip(&self.columns).enumerate() {
                let value = field.map_or(Ok(Datum::Null), |field| {
                    let value = binary::read(column.of.base, field, &self.arena)?;
                    casts::bound(value, column.of, Place::Assignment, &self.arena)
                });
                self.batch.add(value.inspect_err(|_| *place = Shown::Column(at))?);
            }
            self.batch.end_row(bytes.rows, "");
            self.arena.reset();
            (bytes.start, bytes.needed) = (bytes.start + length, 0);
            if self.batch.is_full() {
                return Ok(Progress::IsFull);
            }
        }
    }
}

/// What is shown of where an error is.
enum Shown {
    Nothing,
    Line(String),
    Column(usize),
    Field(usize, Option<String>),
}

/// Whether the names of the first line are those of the columns.
fn check_header(fields: &Fields, columns: &[Column], options: &Options) -> Result<(), SqlError> {
    if fields.len() != columns.len() {
        let (got, wanted) = (fields.len(), columns.len());
        return Err(bad_data(format!("wrong number of fields in header line: got {got}, expected {wanted}")));
    }
    for (at, Column { name, .. }) in columns.iter().enumerate() {
        let got = match fields.get(at) {
            Some(field) if field == name => continue,
            Some(field) => format!("\"{field}\""),
            None => format!("null value (\"{}\")", options.null),
        };
        let at = at + 1;
        let message = format!("column name mismatch in header line field {at}: got {got}, expected \"{name}\"");
        return Err(bad_data(message));
    }
    Ok(())
}
