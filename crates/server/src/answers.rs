//! What clients get: messages that are appended to one buffer, which is written in one go.

use std::io::Write as _;

use polychron_sql::{
    Bound, ColumnOrigin, CopyShape, Forms, Notice, Notification, Row, RowColumn, SqlError, TransactionStatus, Type,
};

use crate::error::End;
use crate::socket::Socket;

/// How much is gathered before it is written without being asked for.
pub(crate) const GATHERED: usize = 64 << 10;
/// Memory that is kept for the next answer.
const KEPT: usize = 1 << 20;

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

/// Messages to a client.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    buffer: Vec<u8>,
    /// A value as text.
    shown: String,
    /// The bytes that were written so far.
    pub(crate) sent: u64,
}

/// Appends a text and the byte 0; a 0 within it would end it.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u16).to_be_bytes());
}

impl Answers {
    /// Appends a message.
    pub(crate) fn put(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.buffer.push(kind);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        write(&mut self.buffer);
        let length = (self.buffer.len() - start) as u32;
        self.buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Writes what is gathered.
    pub(crate) fn write(&mut self, socket: &Socket) -> Result<(), End> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = socket.write_all(&self.buffer);
        self.sent += self.buffer.len() as u64;
        self.buffer.clear();
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        written.map_err(End::from)
    }

    /// Gives memory back that holds nothing.
    pub(crate) fn shrink(&mut self) {
        if self.buffer.is_empty() {
            *self = Self::default();
        }
    }

    /// Writes what is gathered if it is much.
    pub(crate) fn write_much(&mut self, socket: &Socket) -> Result<(), End> {
        if self.buffer.len() < GATHERED { Ok(()) } else { self.write(socket) }
    }

    /// A message that is its kind alone.
    pub(crate) fn plain(&mut self, kind: u8) {
        self.put(kind, |_| {});
    }

    pub(crate) fn authentication(&mut self, code: i32, data: &[u8]) {
        self.put(b'R', |out| {
            out.extend_from_slice(&code.to_be_bytes());
            out.extend_from_slice(data);
        });
    }

    pub(crate) fn parameter_status(&mut self, name: &str, value: &str) {
        self.put(b'S', |out| {
            put_text(out, name);
            put_text(out, value);
        });
    }

    pub(crate) fn notification(&mut self, told: &Notification) {
        self.put(b'A', |out| {
            out.extend_from_slice(&told.process().to_be_bytes());
            put_text(out, told.channel());
            put_text(out, told.payload());
        });
    }

    pub(crate) fn key(&mut self, process: i32, secret: &[u8]) {
        self.put(b'K', |out| {
            out.extend_from_slice(&process.to_be_bytes());
            out.extend_from_slice(secret);
        });
    }

    /// The newest version that is spoken, and the options that are not known.
    pub(crate) fn negotiate(&mut self, version: i32, unknown: &[&str]) {
        self.put(b'v', |out| {
            out.extend_from_slice(&version.to_be_bytes());
            out.extend_from_slice(&(unknown.len() as i32).to_be_bytes());
            unknown.iter().for_each(|name| put_text(out, name));
        });
    }

    pub(crate) fn ready(&mut self, status: TransactionStatus) {
        let status = match status {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        self.put(b'Z', |out| out.push(status));
    }

    pub(crate) fn complete(&mut self, tag: &str) {
        self.put(b'C', |out| put_text(out, tag));
    }

    /// The same of a tag with a number behind its verb.
    pub(crate) fn complete_counted(&mut self, verb: &str, count: u64) {
        self.put(b'C', |out| {
            // A vector takes whatever is written.
            let _ = write!(out, "{verb} {count}");
            out.push(0);
        });
    }

    pub(crate) fn parameters(&mut self, types: &[Type]) {
        self.put(b't', |out| {
            put_count(out, types.len());
            types.iter().for_each(|of| out.extend_from_slice(&shown_type(*of).oid().to_be_bytes()));
        });
    }

    /// The columns of rows to come.
    pub(crate) fn columns<'c>(
        &mut self,
        columns: impl ExactSizeIterator<Item = (&'c str, Type, Bound, Option<ColumnOrigin>)>,
        format: impl Fn(usize) -> Format,
    ) {
        self.put(b'T', |out| {
            put_count(out, columns.len());
            for (at, (name, of, bound, origin)) in columns.enumerate() {
                let of = shown_type(of);
                put_text(out, name);
                out.extend_from_slice(&origin.map_or(0, |it| it.relation).to_be_bytes());
                out.extend_from_slice(&origin.map_or(0, |it| it.number).to_be_bytes());
                out.extend_from_slice(&of.oid().to_be_bytes());
                out.extend_from_slice(&of.size().to_be_bytes());
                out.extend_from_slice(&bound.modifier(of).to_be_bytes());
                out.extend_from_slice(&(format(at) as i16).to_be_bytes());
            }
        });
    }

    /// A row.
    pub(crate) fn row(&mut self, row: Row<'_>, columns: &[RowColumn], forms: &Forms, format: impl Fn(usize) -> Format) {
        let values = columns.iter().enumerate().map(|(at, column)| (column.of, row.value(at)));
        self.values(values, forms, format);
    }

    /// A row of these values.
    pub(crate) fn values<'v>(
        &mut self,
        values: impl ExactSizeIterator<Item = (Type, polychron_sql::Datum<'v>)>,
        forms: &Forms,
        format: impl Fn(usize) -> Format,
    ) {
        let mut shown = std::mem::take(&mut self.shown);
        self.put(b'D', |out| {
            put_count(out, values.len());
            for (at, (of, value)) in values.enumerate() {
                match (value, format(at)) {
                    (polychron_sql::Datum::Null, _) => out.extend_from_slice(&(-1_i32).to_be_bytes()),
                    (value, Format::Binary) => forms.binary(of, value, out),
                    (value, Format::Text) => {
                        shown.clear();
                        forms.text(of, value, &mut shown);
                        out.extend_from_slice(&(shown.len() as i32).to_be_bytes());
                        out.extend_from_slice(shown.as_bytes());
                    }
                }
            }
        });
        self.shown = shown;
    }

    /// How the data of a COPY look, which go in the direction that `kind` says.
    pub(crate) fn copy(&mut self, kind: u8, shape: CopyShape) {
        self.put(kind, |out| {
            out.push(shape.is_binary.into());
            put_count(out, shape.columns);
            (0..shape.columns).for_each(|_| out.extend_from_slice(&i16::from(shape.is_binary).to_be_bytes()));
        });
    }

    pub(crate) fn notices(&mut self, notices: &[Notice]) {
        for notice in notices {
            let more = [(b'D', notice.detail.as_deref()), (b'H', notice.hint.as_deref())];
            self.report(b'N', (notice.severity, notice.state.code(), &notice.message), &more);
        }
    }

    pub(crate) fn error(&mut self, error: &SqlError) {
        self.failure("ERROR", error);
    }

    /// An error behind which the connection ends.
    pub(crate) fn fatal(&mut self, error: &SqlError) {
        self.failure("FATAL", error);
    }

    fn failure(&mut self, severity: &str, error: &SqlError) {
        self.notices(error.notices());
        let (object, position) = (error.object(), error.position().map(|position| position.to_string()));
        let more = [
            (b'D', error.detail()),
            (b'H', error.hint()),
            (b'P', position.as_deref()),
            (b'W', error.context()),
            (b's', object.schema.as_deref()),
            (b't', object.table.as_deref()),
            (b'c', object.column.as_deref()),
            (b'n', object.constraint.as_deref()),
        ];
        self.report(b'E', (severity, error.state().code(), error.message()), &more);
    }

    fn report(&mut self, kind: u8, (severity, code, message): (&str, &str, &str), more: &[(u8, Option<&str>)]) {
        self.put(kind, |out| {
            let first = [(b'S', severity), (b'V', severity), (b'C', code), (b'M', message)];
            let more = more.iter().filter_map(|(field, text)| Some((*field, (*text)?)));
            for (field, text) in first.into_iter().chain(more) {
                out.push(field);
                put_text(out, text);
            }
            out.push(0);
        });
    }
}

/// A type as clients know it: what nothing has typed is a text.
fn shown_type(of: Type) -> Type {
    if of == Type::Unknown { Type::Text } else { of }
}

#[cfg(test)]
mod tests {
    use polychron_sql::SqlState;

    use super::*;

    #[test]
    fn a_message_has_its_length() {
        let mut answers = Answers::default();
        answers.complete("SELECT 1");
        answers.plain(b'1');
        assert_eq!(answers.buffer, b"C\0\0\0\x0dSELECT 1\x001\0\0\0\x04");
        for count in [0, 7, 10, 1234, u64::MAX] {
            let (mut one, mut other) = (Answers::default(), Answers::default());
            one.complete_counted("INSERT 0", count);
            other.complete(&format!("INSERT 0 {count}"));
            assert_eq!(one.buffer, other.buffer);
        }
    }

    #[test]
    fn an_error_has_its_fields() {
        let mut answers = Answers::default();
        answers.error(&SqlError::new(SqlState::SYNTAX_ERROR, "no\0 statement"));
        assert_eq!(&answers.buffer[5..], b"SERROR\0VERROR\0C42601\0Mno statement\0\0");
    }
}
