//! The rows of one checkpoint, as a merge reads them, and those of the next one, as it writes them.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::thread::ThreadId;

use polychron_sync::{Mutex, MutexGuard};

use super::known::Noted;
use super::pace::{Pace, Work};
use super::{Contents, Range, Reader, RowContent, Writer};
use crate::DatabaseId;
use crate::disk::{Disk, Files};
use crate::error::Error;
use crate::manifest::{CheckpointFile, Manifest};
use crate::recover::{Batch, Grouping, Sink, Source, Visit};

/// Files of a checkpoint that have rows: what recovery begins with.
pub struct RowSource<'f, D: Disk> {
    files: &'f Files<D>,
    database: DatabaseId,
    chosen: Vec<CheckpointFile>,
}

impl<'f, D: Disk> RowSource<'f, D> {
    /// The rows of the checkpoint that a manifest names.
    pub fn of(files: &'f Files<D>, manifest: &Manifest) -> Self {
        let chosen = manifest.checkpoint.as_ref().map_or(&[][..], |checkpoint| &checkpoint.files);
        Self::new(files, manifest.database, chosen)
    }

    /// The rows of these files; those with others than rows are passed over.
    pub(super) fn new(files: &'f Files<D>, database: DatabaseId, chosen: &[CheckpointFile]) -> Self {
        let chosen = chosen.iter().filter(|file| matches!(file.contents, Contents::Rows { .. })).copied().collect();
        Self { files, database, chosen }
    }
}

impl<D: Disk> Source for RowSource<'_, D> {
    fn parts(&self) -> usize {
        self.chosen.len()
    }

    fn read(&self, part: usize, visit: &mut Visit<'_>) -> Result<(), Error> {
        let file = self.chosen[part];
        let mut reader = Reader::open(self.files, self.database, file)?;
        while let Some(block) = reader.next_block()? {
            if visit(block.rows()).map_err(|_| malformed(&file))?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The error of a file with right checksums, in which something is written wrongly.
pub(super) fn malformed(file: &CheckpointFile) -> Error {
    Error::Damaged { file: file.path(), offset: 0, reason: "a row or a record is malformed" }
}

/// Writes rows into files, as they come from several threads: each takes a file of the rows' table that no other one has.
pub(super) struct RowSink<'f, D: Disk> {
    pub(super) files: &'f Files<D>,
    pub(super) database: DatabaseId,
    pub(super) number: u64,
    pub(super) range: Range,
    pub(super) pace: &'f Pace<'f>,
    /// What each thread does. Not each file: one may lie idle while others pause, and its next thread would pause for that, too, and for longer and longer.
    /// Sinks that are used side by side have one for all.
    pub(super) works: &'f Mutex<HashMap<ThreadId, Work<'f>>>,
    pub(super) grouping: Grouping,
    pub(super) limits: Limits,
    /// How many files each table has.
    pub(super) parts: &'f Mutex<HashMap<u32, u32>>,
    pub(super) state: Mutex<State<'f, D>>,
}

/// How large what a sink writes may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) block_bytes: usize,
    /// Behind so many bytes another file is begun.
    pub(super) file_bytes: u64,
    /// How many files are kept open while nobody writes to them.
    pub(super) idle: usize,
}

pub(super) struct State<'f, D: Disk> {
    idle: Vec<Open<'f, D>>,
    finished: Vec<Finished>,
}

/// A file that was written, and the groups of its keys, if these are few.
pub(super) struct Finished {
    pub(super) file: CheckpointFile,
    pub(super) groups: Option<Vec<u64>>,
}

impl<D: Disk> State<'_, D> {
    pub(super) fn new() -> Self {
        Self { idle: Vec::new(), finished: Vec::new() }
    }
}

struct Open<'f, D: Disk> {
    table: u32,
    content: RowContent,
    writer: Writer<'f, D>,
    groups: Noted,
}

impl<'f, D: Disk> RowSink<'f, D> {
    /// The files, when all rows have come.
    pub(super) fn finish(self) -> Result<Vec<Finished>, Error> {
        let idle = std::mem::take(&mut self.lock().idle);
        idle.into_iter().try_for_each(|open| self.close(open))?;
        Ok(self.state.into_inner().unwrap_or_else(PoisonError::into_inner).finished)
    }

    /// A file of this table.
    fn take(&self, table: u32) -> Result<Open<'f, D>, Error> {
        let mut state = self.lock();
        if let Some(at) = state.idle.iter().position(|open| open.table == table) {
            return Ok(state.idle.swap_remove(at));
        }
        // Rows come table by table, mostly.
        let other = if state.idle.len() >= self.limits.idle { Some(state.idle.remove(0)) } else { None };
        drop(state);
        let part = {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let next = parts.entry(table).or_default();
            *next += 1;
            *next - 1
        };
        let contents = Contents::Rows { table, part, range: self.range };
        other.map_or(Ok(()), |open| self.close(open))?;
        Ok(Open {
            table,
            content: RowContent::new(self.limits.block_bytes),
            writer: Writer::new(self.files, self.database, self.number, contents),
            groups: Noted::new(self.limits.file_bytes),
        })
    }

    /// Pauses in proportion to what the calling thread has done since it paused last.
    fn pause(&self) -> Result<(), Error> {
        let own = std::thread::current().id();
        let works = || self.works.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work = works().remove(&own).unwrap_or_else(|| self.pace.begin());
        let paused = work.pause();
        works().insert(own, work);
        paused
    }

    fn close(&self, mut open: Open<'f, D>) -> Result<(), Error> {
        open.content.finish(&mut open.writer)?;
        let finished = open.writer.finish()?;
        let finished = finished.map(|file| Finished { groups: open.groups.finish(file.bytes), file });
        self.lock().finished.extend(finished);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<'f, D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Disk> Sink for RowSink<'_, D> {
    type Error = Error;
    const ENCODED: bool = true;

    fn grouping(&self) -> Option<Grouping> {
        Some(self.grouping)
    }

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut open = self.take(batch.table())?;
        let (rows, ends) = batch.encoded();
        open.groups.extend(batch.groups());
        open.content.push(rows, ends, &mut open.writer)?;
        self.pause()?;
        if open.writer.bytes() >= self.limits.file_bytes {
            return self.close(open);
        }
        self.lock().idle.push(open);
        Ok(())
    }
}

/// Writes changes into a file, as they come.
pub(super) struct ChangeSink<'f, D: Disk> {
    state: Mutex<Changing<'f, D>>,
}

struct Changing<'f, D: Disk> {
    content: RowContent,
    writer: Writer<'f, D>,
    work: Work<'f>,
}

impl<'f, D: Disk> ChangeSink<'f, D> {
    pub(super) fn new(writer: Writer<'f, D>, block_bytes: usize, pace: &'f Pace<'f>) -> Self {
        Self { state: Mutex::new(Changing { content: RowContent::new(block_bytes), writer, work: pace.begin() }) }
    }

    /// The file, when all changes have come.
    pub(super) fn finish(self) -> Result<Option<CheckpointFile>, Error> {
        let Changing { mut content, mut writer, .. } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        content.finish(&mut writer)?;
        Ok(writer.finish()?)
    }
}

impl<D: Disk> Sink for ChangeSink<'_, D> {
    type Error = Error;
    const ENCODED: bool = true;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, ends) = batch.encoded();
        state.content.push(changes, ends, &mut state.writer)?;
        state.work.pause()
    }
}
