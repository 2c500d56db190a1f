//! Writes a file of a checkpoint, block after block.

use polychron_engine::mutations::left_out;

use super::block::{CONTENT_BYTES, Place, bytes_of, encode};
use super::{Contents, path_of};
use crate::DatabaseId;
use crate::disk::{Buffer, Disk, Error, File, Files};
use crate::frame::{self, Edit, FRONT_BYTES, MAX_CONTENT_BYTES, Record};
use crate::manifest::CheckpointFile;
use crate::steps::CheckpointStep;

/// A file of a checkpoint that is being written: made with its first block, so that there is none without contents.
pub struct Writer<'f, D: Disk> {
    files: &'f Files<D>,
    file: Option<File<D::File>>,
    place: Place,
    offset: u64,
    /// How many rows or records the blocks so far have.
    count: u64,
    buffer: Buffer,
}

impl<'f, D: Disk> Writer<'f, D> {
    /// Of these contents of a checkpoint, whose directory is there.
    pub fn new(files: &'f Files<D>, database: DatabaseId, checkpoint: u64, contents: Contents) -> Self {
        let place = Place { database, checkpoint, contents, block: 0, before: 0 };
        Self { files, file: None, place, offset: 0, count: 0, buffer: Buffer::zeroed(0) }
    }

    /// Writes a block of so many rows or records. Answers how many bytes it takes.
    ///
    /// # Errors
    /// What the disk says.
    pub fn write(&mut self, content: &[u8], count: u32) -> Result<usize, Error> {
        let bytes = bytes_of(content.len());
        if self.buffer.len() < bytes {
            self.buffer = Buffer::zeroed(bytes.max(bytes_of(CONTENT_BYTES)));
        }
        let (sum, length) = encode(&self.place, content, count, &mut self.buffer);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.files.create(&path_of(self.place.checkpoint, self.place.contents), 0)?),
        };
        file.write_at(self.offset, &self.buffer[..length])?;
        self.offset += length as u64;
        self.count += u64::from(count);
        (self.place.block, self.place.before) = (self.place.block + 1, sum);
        Ok(length)
    }

    /// How many bytes were written.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Makes the file durable; its name is not. `None` if there was nothing to write.
    ///
    /// # Errors
    /// What the disk says.
    pub fn finish(self) -> Result<Option<CheckpointFile>, Error> {
        let Some(file) = self.file else { return Ok(None) };
        if !left_out(CheckpointStep::SyncRows) {
            file.sync()?;
        }
        let Place { checkpoint: number, contents, before: checksum, .. } = self.place;
        Ok(Some(CheckpointFile { number, contents, count: self.count, bytes: self.offset, checksum }))
    }
}

/// Gathers rows for a block.
#[derive(Debug)]
pub struct RowContent {
    table: u32,
    content: Vec<u8>,
    /// Where the last row begins, and how many there are.
    last: usize,
    count: u32,
    content_bytes: usize,
}

impl RowContent {
    /// Of a table's rows, which takes so many bytes, or a single row.
    pub fn new(table: u32, content_bytes: usize) -> Self {
        let content_bytes = content_bytes.min(CONTENT_BYTES);
        Self { table, content: Vec::new(), last: 0, count: 0, content_bytes }
    }

    /// Adds a row. Where the content is longer than a block's then, all rows but this one go to the writer, if there are others. Answers how many bytes
    /// were written.
    ///
    /// # Errors
    /// What the disk says.
    pub fn push<D: Disk>(&mut self, row: &[u64], writer: &mut Writer<'_, D>) -> Result<usize, Error> {
        self.last = self.content.len();
        Edit::Put(row).write(self.table, &mut self.content);
        self.count += 1;
        if self.content.len() <= self.content_bytes || self.count == 1 {
            return Ok(0);
        }
        let bytes = writer.write(&self.content[..self.last], self.count - 1)?;
        self.content.drain(..self.last);
        self.count = 1;
        Ok(bytes)
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// What the disk says.
    pub fn finish<D: Disk>(&mut self, writer: &mut Writer<'_, D>) -> Result<usize, Error> {
        if self.count == 0 {
            return Ok(0);
        }
        let count = std::mem::take(&mut self.count);
        let bytes = writer.write(&self.content, count)?;
        self.content.clear();
        Ok(bytes)
    }
}

/// Gathers records for a block.
#[derive(Debug)]
pub struct RecordContent {
    records: frame::Writer,
    content_bytes: usize,
}

impl RecordContent {
    /// Of so many bytes, or a single record.
    pub fn new(content_bytes: usize) -> Self {
        Self { records: frame::Writer::new(), content_bytes: content_bytes.min(CONTENT_BYTES) }
    }

    /// Adds a record; those before are written if there is no room for it beside them.
    ///
    /// # Errors
    /// What the disk says.
    pub fn push<D: Disk>(&mut self, record: &Record<'_>, writer: &mut Writer<'_, D>) -> Result<usize, Error> {
        let bytes = self.records.content().len() + record.bytes() + FRONT_BYTES;
        let written = if bytes > self.content_bytes.min(MAX_CONTENT_BYTES) { self.finish(writer)? } else { 0 };
        let pushed = self.records.push_record(record);
        assert!(pushed.is_ok(), "it was in a frame, which is no longer");
        Ok(written)
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// What the disk says.
    pub fn finish<D: Disk>(&mut self, writer: &mut Writer<'_, D>) -> Result<usize, Error> {
        if self.records.count() == 0 {
            return Ok(0);
        }
        let bytes = writer.write(self.records.content(), self.records.count())?;
        self.records.clear();
        Ok(bytes)
    }
}
