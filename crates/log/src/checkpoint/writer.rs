//! Writes a file of a checkpoint, block after block.

use polychron_engine::mutations::left_out;

use super::block::{CONTENT_BYTES, Place, bytes_of, encode};
use super::{Contents, path_of};
use crate::DatabaseId;
use crate::disk::{Buffer, Disk, Error, File, Files};
use crate::frame::{self, FRONT_BYTES, MAX_CONTENT_BYTES, Record};
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
    /// The disk's error.
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
    /// The disk's error.
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
    content: Vec<u8>,
    count: u32,
    content_bytes: usize,
}

impl RowContent {
    /// Of so many bytes, or a single row.
    pub fn new(content_bytes: usize) -> Self {
        Self { content: Vec::new(), count: 0, content_bytes: content_bytes.min(CONTENT_BYTES) }
    }

    /// Adds encoded rows, each of which ends there. As many as have room beside each other go to the writer together.
    ///
    /// # Errors
    /// The disk's error.
    pub fn push<D: Disk>(&mut self, rows: &[u8], ends: &[usize], writer: &mut Writer<'_, D>) -> Result<(), Error> {
        let (mut start, mut left) = (0, ends);
        while !left.is_empty() {
            let room = self.content_bytes.saturating_sub(self.content.len());
            let having = left.partition_point(|end| end - start <= room);
            if having == 0 && self.count > 0 {
                self.finish(writer)?;
                continue;
            }
            // One that is too long for any has a block of its own.
            let (taken, rest) = left.split_at(having.max(1));
            let end = taken.last().copied().unwrap_or(start);
            self.content.extend_from_slice(&rows[start..end]);
            self.count += taken.len() as u32;
            (start, left) = (end, rest);
        }
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The disk's error.
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
    /// The disk's error.
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
    /// The disk's error.
    pub fn finish<D: Disk>(&mut self, writer: &mut Writer<'_, D>) -> Result<usize, Error> {
        if self.records.count() == 0 {
            return Ok(0);
        }
        let bytes = writer.write(self.records.content(), self.records.count())?;
        self.records.clear();
        Ok(bytes)
    }
}
