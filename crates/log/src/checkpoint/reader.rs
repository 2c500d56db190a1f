//! Reads a file of a checkpoint, block after block.

use polychron_engine::mutations::left_out;

use super::block::{Block, Fault, Place};
use crate::DatabaseId;
use crate::disk::{Access, BLOCK, Buffer, Disk, File, Files};
use crate::error::Error;
use crate::manifest::CheckpointFile;
use crate::steps::CheckpointStep;

/// How much is read at once, in bytes: a block, unless it has a single longer row.
const AT_ONCE: u64 = 1 << 20;

/// A file of a checkpoint that is being read.
pub struct Reader<D: Disk> {
    file: File<D::File>,
    expected: CheckpointFile,
    place: Place,
    offset: u64,
    count: u64,
    buffer: Buffer,
}

impl<D: Disk> Reader<D> {
    /// Opens a file that a manifest names.
    ///
    /// # Errors
    /// [`Error`]; a file of another length is damaged.
    pub fn open(files: &Files<D>, database: DatabaseId, expected: CheckpointFile) -> Result<Self, Error> {
        let file = files.open(&expected.path(), Access::Read)?;
        let CheckpointFile { number, contents, .. } = expected;
        let place = Place { database, checkpoint: number, contents, block: 0, before: 0 };
        let this = Self { place, offset: 0, count: 0, buffer: Buffer::zeroed(0), expected, file };
        if this.file.bytes()? == expected.bytes {
            Ok(this)
        } else {
            Err(this.damaged("its length is not the one that was written"))
        }
    }

    /// The next block; `None` at the end, which is only there if all that was written was read.
    ///
    /// # Errors
    /// [`Error`]: what was read before counts for nothing then.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, Error> {
        if self.offset == self.expected.bytes {
            let is_whole = (self.place.before, self.count) == (self.expected.checksum, self.expected.count);
            return if is_whole || left_out(CheckpointStep::KnowLastBlock) {
                Ok(None)
            } else {
                Err(self.damaged("it is not the file that was written"))
            };
        }
        let mut fault = self.fill()?;
        // The device may have erred on its way.
        if fault.is_some() {
            fault = self.fill()?;
        }
        match fault {
            None => {}
            Some(Fault::Unsupported(format)) => {
                return Err(Error::Unsupported { file: self.expected.path(), format });
            }
            Some(fault) => return Err(self.damaged(reason_of(fault))),
        }
        let place = self.place;
        let Some(block) = Block::of_checked(&self.buffer, &place) else {
            return Err(Error::Damaged {
                file: self.expected.path(),
                offset: self.offset,
                reason: "a block has changed while it was read",
            });
        };
        self.offset += block.bytes as u64;
        self.count += u64::from(block.count);
        (self.place.block, self.place.before) = (place.block + 1, block.checksum);
        Ok(Some(block))
    }

    /// Reads the next block, and tells what is wrong with it.
    fn fill(&mut self) -> Result<Option<Fault>, Error> {
        let left = self.expected.bytes - self.offset;
        self.read(left.min(AT_ONCE) as usize)?;
        if let Ok(bytes) = Block::peek(&self.buffer)
            && bytes > self.buffer.len()
            && bytes as u64 <= left
        {
            self.read(bytes)?;
        }
        Ok(Block::check(&self.buffer, &self.place).err())
    }

    fn read(&mut self, bytes: usize) -> Result<(), Error> {
        if self.buffer.len() != bytes.next_multiple_of(BLOCK) {
            self.buffer = Buffer::zeroed(bytes);
        }
        Ok(self.file.read_at(self.offset, &mut self.buffer)?)
    }

    /// The error of a file that is not as it was written.
    pub(crate) fn damaged(&self, reason: &'static str) -> Error {
        Error::Damaged { file: self.expected.path(), offset: self.offset, reason }
    }
}

fn reason_of(fault: Fault) -> &'static str {
    match fault {
        Fault::Misplaced => "a block belongs elsewhere",
        Fault::Cut => "a block is cut off",
        Fault::Damaged | Fault::Unsupported(_) => "a block is damaged",
    }
}
