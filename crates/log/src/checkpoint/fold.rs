//! Makes of a checkpoint and the log behind it the next checkpoint's files.

use std::collections::{BTreeSet, HashMap};
use std::thread::ThreadId;

use polychron_engine::mutations::left_out;
use polychron_sync::Mutex;

use super::known::Known;
use super::pace::{Pace, Work};
use super::rows::{ChangeSink, Finished, Limits, RowSink, RowSource, State, malformed};
use super::{Contents, Options, Range, Reader, RecordContent, Writer};
use crate::DatabaseId;
use crate::catalog::StoredCatalog;
use crate::disk::{Disk, Files};
use crate::error::Error;
use crate::flush::flusher::Framed;
use crate::frame::{Order, Pieces};
use crate::manifest::{Checkpoint, CheckpointFile, Manifest};
use crate::read::Logged;
use crate::recover::{Newest, Tail, Touched};
use crate::steps::CheckpointStep;

/// How many bytes of records are taken in before the memory that they take is looked at.
const LOOK_BYTES: usize = 256 << 10;

/// How many files are kept open while nobody writes to them, or as many as threads: what was gathered comes part by part, and of each part table by table.
const IDLE: usize = 16;

/// The opening that changes are of: openings count from 1 on.
const BEFORE_ALL: u64 = 0;

/// Hands out the records of a log behind the manifest's checkpoint.
pub(crate) type ReadLog<'f> = dyn Fn(&mut dyn FnMut(Logged<'_>)) -> Result<(), Error> + 'f;

/// The sources of a checkpoint.
pub(crate) struct Fold<'f, D: Disk, E: Disk> {
    pub(crate) files: &'f Files<D>,
    /// Where it is written, and of which database.
    pub(crate) to: &'f Files<E>,
    pub(crate) database: DatabaseId,
    pub(crate) log: &'f ReadLog<'f>,
    /// Whose checkpoint, if it has one, and whose log are folded.
    pub(crate) manifest: &'f Manifest,
    /// The tables that count.
    pub(crate) catalog: &'f StoredCatalog,
    /// The last frame of the log that is folded.
    pub(crate) last: Framed,
    pub(crate) number: u64,
    pub(crate) options: &'f Options,
    pub(crate) pace: &'f Pace<'f>,
    pub(crate) kept: Kept,
    /// What is known of the files that the manifest's checkpoint has.
    pub(crate) known: &'f Known,
}

/// What was written.
pub(crate) struct Folded {
    pub(crate) checkpoint: Checkpoint,
    /// The groups of the keys of some of the files that were written.
    pub(crate) groups: Vec<(Contents, Vec<u64>)>,
}

/// The files that are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Files of tables of which nothing, or little, was logged, and records that may still be followed by lower ones.
    FilesAndRecords,
    /// These records alone: the files are another database's.
    Records,
    /// Nothing: what is behind the consistent point does not count.
    Nothing,
}

impl<D: Disk, E: Disk> Fold<'_, D, E> {
    /// Writes the files. They are durable then, and their names are not.
    pub(crate) fn run(&self) -> Result<Folded, Error> {
        let mut carried = self.carried();
        let (mut newest, range) = self.gather_range(&mut carried)?;
        let mut files: Vec<CheckpointFile> = carried.finish()?.into_iter().collect();
        let (kept, base) = self.split(newest.touched());
        files.extend(kept);
        let mut groups = Vec::new();
        if range.bits == 0 && self.is_little(&mut newest, &base) {
            files.extend(self.write_changes(newest)?);
            files.extend(base);
        } else {
            let touched = self.touched(&newest, range, &base);
            let (untouched, base) = self.split_touched(touched.as_ref(), base);
            files.extend(untouched);
            for finished in self.write_rows(newest, range, &base, touched.as_ref())? {
                files.push(finished.file);
                groups.extend(finished.groups.map(|groups| (finished.file.contents, groups)));
            }
        }
        files.sort_by_key(|file| (file.contents.numbers(), file.number));
        let Framed { epoch, incarnation, consistent, .. } = self.last;
        Ok(Folded { checkpoint: Checkpoint { number: self.number, epoch, incarnation, consistent, files }, groups })
    }

    /// What came of the keys of a range, and which one: all ranges are to be as small. Where all keys take too much memory, smaller ranges are tried that have
    /// a key of which something came when the memory was used up: if few keys take all of it, that is one of them, mostly.
    fn gather_range(&self, carried: &mut Carried<'_, E>) -> Result<(Newest, Range), Error> {
        let (mut range, mut last, mut before, mut hash) = (Range::default(), Range::default(), 0, None);
        let mut gathered = self.gather(range, (self.kept != Kept::Nothing).then_some(carried))?;
        loop {
            let (parts, taken, hash) = match gathered {
                Gathered::All(newest) => return Ok((newest, range)),
                Gathered::TooMuch { parts, taken, hash: its } => (parts, taken, *hash.get_or_insert(its)),
            };
            if range.bits > 0 && taken < before + before / 4 {
                // So few keys take all of it that smaller ranges do not help.
                return Ok((self.gather_whole(last)?, last));
            }
            (last, before) = (range, taken);
            let bits = range.bits + parts.next_power_of_two().ilog2() as u8;
            range = Range::of(hash, bits.clamp(range.bits + 1, Range::MAX_BITS));
            gathered = self.gather(range, None)?;
        }
    }

    /// Whether so little has changed of these files' rows that they stay.
    fn is_little(&self, newest: &mut Newest, base: &[CheckpointFile]) -> bool {
        let bytes: u64 = base.iter().map(|file| file.bytes).sum();
        let most = self.options.changes * bytes as f64;
        if self.kept != Kept::FilesAndRecords || bytes == 0 {
            return false;
        }
        // What counts no longer takes no memory then.
        newest.take_in(self.options.threads);
        newest.memory_bytes() as f64 <= most && !left_out(CheckpointStep::LeaveRows)
    }

    /// Writes what has changed.
    fn write_changes(&self, newest: Newest) -> Result<Option<CheckpointFile>, Error> {
        let writer = Writer::new(self.to, self.database, self.number, Contents::Changes);
        let sink = ChangeSink::new(writer, self.options.block_bytes, self.pace);
        newest.changes(&sink)?;
        sink.finish()
    }

    /// The groups of all keys of which something was gathered, if files may stay for that. Where the log is read for ranges of keys, they are not known.
    fn touched(&self, newest: &Newest, range: Range, base: &[CheckpointFile]) -> Option<Touched> {
        let are_known = self.kept == Kept::FilesAndRecords && range.bits == 0 && !base.is_empty();
        are_known.then(|| newest.groups(self.options.threads, self.known.grouping))
    }

    /// Files that stay, because nothing was touched of them, and the others. Short ones are written again with others, so that files do not become many.
    fn split_touched(
        &self,
        touched: Option<&Touched>,
        base: Vec<CheckpointFile>,
    ) -> (Vec<CheckpointFile>, Vec<CheckpointFile>) {
        base.into_iter().partition(|file| {
            let is_long = file.bytes >= self.options.least_bytes || left_out(CheckpointStep::JoinShort);
            let is_untouched = touched.is_some_and(|touched| self.known.is_untouched(file, touched));
            is_long && is_untouched && !left_out(CheckpointStep::KeepUntouched)
        })
    }

    /// Writes all rows: those of the files before, as they are now, and those that came since, of which those of one range are gathered already.
    fn write_rows(
        &self,
        newest: Newest,
        gathered: Range,
        base: &[CheckpointFile],
        touched: Option<&Touched>,
    ) -> Result<Vec<Finished>, Error> {
        let (mut files, parts, works) = (Vec::new(), Mutex::new(HashMap::new()), Mutex::new(HashMap::new()));
        let others = Range::all(gathered.bits).filter(|range| *range != gathered);
        let mut first = Some(newest);
        for range in std::iter::once(gathered).chain(others) {
            let newest = first.take().map_or_else(|| self.gather_whole(range), Ok)?;
            let source = RowSource::new(self.files, self.manifest.database, &of_range(base, range));
            let [sink, apart] = [(); 2].map(|()| self.sink(range, &parts, &works));
            let touched = touched.filter(|_| !left_out(CheckpointStep::WriteApart));
            newest.merge_apart(self.options.threads, &source, &sink, touched.map(|touched| (touched, &apart)))?;
            files.extend(sink.finish()?);
            files.extend(apart.finish()?);
        }
        Ok(files)
    }

    /// Files that stay as they are, because nothing was logged of their tables, and those whose rows are passed through what was gathered.
    fn split(&self, touched: &BTreeSet<u32>) -> (Vec<CheckpointFile>, Vec<CheckpointFile>) {
        let files = self.manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        let known = files.filter(|file| match file.contents {
            Contents::Rows { table, .. } => self.catalog.tables().contains_key(&table),
            Contents::Records | Contents::Changes => false,
        });
        known.partition(|file| match file.contents {
            Contents::Rows { table, .. } => {
                let is_kept = self.kept == Kept::FilesAndRecords && !touched.contains(&table);
                is_kept && !left_out(CheckpointStep::KeepUnchanged)
            }
            Contents::Records | Contents::Changes => false,
        })
    }

    fn sink<'s>(
        &'s self,
        range: Range,
        parts: &'s Mutex<HashMap<u32, u32>>,
        works: &'s Mutex<HashMap<ThreadId, Work<'s>>>,
    ) -> RowSink<'s, E> {
        let Options { block_bytes, file_bytes, threads, .. } = *self.options;
        RowSink {
            files: self.to,
            database: self.database,
            number: self.number,
            range,
            pace: self.pace,
            works,
            grouping: self.known.grouping,
            limits: Limits { block_bytes, file_bytes, idle: threads.max(IDLE) },
            parts,
            state: Mutex::new(State::new()),
        }
    }

    fn carried(&self) -> Carried<'_, E> {
        Carried {
            writer: Writer::new(self.to, self.database, self.number, Contents::Records),
            content: RecordContent::new(self.options.block_bytes),
        }
    }

    fn gather_whole(&self, range: Range) -> Result<Newest, Error> {
        let mut gatherer = Gatherer::new(self, range, usize::MAX, None)?;
        self.read(&mut gatherer)?;
        match gatherer.finish()? {
            Gathered::All(newest) => Ok(newest),
            Gathered::TooMuch { .. } => unreachable!("nothing bounds it"),
        }
    }

    /// The records of a range that the checkpoint before has carried, and those of the log, if they take no more memory than they may. Carried records are
    /// written in any case.
    fn gather(&self, range: Range, carried: Option<&mut Carried<'_, E>>) -> Result<Gathered, Error> {
        let is_last = range.bits >= Range::MAX_BITS;
        let most_bytes = if is_last { usize::MAX } else { self.options.memory_bytes };
        let mut gatherer = Gatherer::new(self, range, most_bytes, carried)?;
        self.read(&mut gatherer)?;
        gatherer.finish()
    }

    fn read(&self, gatherer: &mut Gatherer<'_, '_, E>) -> Result<(), Error> {
        carried(self.files, self.manifest, &mut |logged| gatherer.take(logged))?;
        (self.log)(&mut |logged| gatherer.take(logged))
    }
}

/// Hands out what the manifest's checkpoint has besides rows, as records that recovery takes in beside those of the log: changes, and what is carried.
///
/// # Errors
/// [`Error`]; what was visited before counts for nothing then.
pub fn carried<D: Disk>(files: &Files<D>, manifest: &Manifest, visit: &mut dyn FnMut(Logged<'_>)) -> Result<(), Error> {
    let Some(checkpoint) = &manifest.checkpoint else { return Ok(()) };
    let is_taken = |file: &&CheckpointFile| match file.contents {
        Contents::Rows { .. } => false,
        Contents::Records => !left_out(CheckpointStep::TakeCarried),
        Contents::Changes => !left_out(CheckpointStep::TakeChanges),
    };
    for file in checkpoint.files.iter().filter(is_taken) {
        let (mut reader, mut pieces) = (Reader::open(files, manifest.database, *file)?, Pieces::default());
        while let Some(block) = reader.next_block()? {
            if let Some(record) = block.changes().map_err(|_| malformed(file))? {
                visit(Logged { incarnation: BEFORE_ALL, record });
            }
            for record in block.records() {
                let record = record.map_err(|_| malformed(file))?;
                pieces.take(&record).map_err(|_| malformed(file))?;
                visit(Logged { incarnation: checkpoint.incarnation, record });
            }
        }
        pieces.end().map_err(|_| malformed(file))?;
    }
    Ok(())
}

/// Those of the files that may have rows of a range.
fn of_range(files: &[CheckpointFile], range: Range) -> Vec<CheckpointFile> {
    let is_met = |file: &&CheckpointFile| match file.contents {
        Contents::Rows { range: own, .. } => own.meets(range),
        Contents::Records | Contents::Changes => false,
    };
    files.iter().filter(is_met).copied().collect()
}

/// Records that are carried on, as they are written.
struct Carried<'f, D: Disk> {
    writer: Writer<'f, D>,
    content: RecordContent,
}

impl<D: Disk> Carried<'_, D> {
    fn finish(mut self) -> Result<Option<CheckpointFile>, Error> {
        self.content.finish(&mut self.writer)?;
        Ok(self.writer.finish()?)
    }
}

/// The result of one reading of the log.
enum Gathered {
    All(Newest),
    /// It takes too much memory, and probably so many times less in so many parts.
    TooMuch {
        parts: usize,
        /// The bytes of records that were taken in before it did.
        taken: usize,
        /// The hash of the key that came then.
        hash: u32,
    },
}

/// Takes records one after the other.
struct Gatherer<'g, 'f, E: Disk> {
    last: Framed,
    most_bytes: usize,
    /// Its size without a record.
    least_bytes: usize,
    /// `None` once it has taken too much memory.
    tail: Option<Tail>,
    /// The hash of the key that came then.
    hash: u32,
    carried: Option<&'g mut Carried<'f, E>>,
    work: Work<'g>,
    /// The bytes of records that have come, those that were taken in, and those since the memory was looked at.
    come: usize,
    taken: usize,
    unseen: usize,
    failure: Option<Error>,
}

impl<'g, 'f, E: Disk> Gatherer<'g, 'f, E> {
    fn new<D: Disk>(
        fold: &'g Fold<'_, D, E>,
        range: Range,
        most_bytes: usize,
        carried: Option<&'g mut Carried<'f, E>>,
    ) -> Result<Self, Error> {
        let tail = Tail::of_range(fold.catalog, range, fold.options.threads.saturating_sub(1), most_bytes)?;
        let (last, work, least_bytes) = (fold.last, fold.pace.begin(), tail.memory_bytes());
        Ok(Self {
            last,
            most_bytes,
            least_bytes,
            tail: Some(tail),
            hash: 0,
            carried,
            work,
            come: 0,
            taken: 0,
            unseen: 0,
            failure: None,
        })
    }

    fn take(&mut self, logged: Logged<'_>) {
        if self.failure.is_none()
            && let Err(error) = self.try_take(logged)
        {
            self.failure = Some(error);
        }
    }

    fn try_take(&mut self, logged: Logged<'_>) -> Result<(), Error> {
        let bytes = logged.record.bytes();
        if is_open(&self.last, &logged) {
            if let Some(carried) = &mut self.carried {
                carried.content.push(&logged.record, &mut carried.writer)?;
            }
        } else {
            self.come += bytes;
            if let Some(tail) = &mut self.tail {
                tail.add(logged);
                self.taken += bytes;
            }
        }
        self.unseen += bytes;
        if self.unseen >= LOOK_BYTES.min(self.most_bytes / 64) {
            self.unseen = 0;
            self.work.pause()?;
            let most = self.least_bytes.saturating_add(self.most_bytes);
            if let Some(mut tail) = self.tail.take_if(|tail| tail.memory_bytes() + tail.pending_bytes() > most) {
                self.hash = tail.hash_of(&logged.record).unwrap_or(0);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Gathered, Error> {
        match (self.failure, self.tail) {
            (Some(error), _) => Err(error),
            (None, Some(tail)) => tail.finish().map(Gathered::All),
            (None, None) => {
                let parts = self.come.div_ceil(self.taken.max(1));
                Ok(Gathered::TooMuch { parts, taken: self.taken, hash: self.hash })
            }
        }
    }
}

/// Whether a record may still be followed by one of a lower order: it is of the present opening of the database, and behind the consistent point.
fn is_open(last: &Framed, logged: &Logged<'_>) -> bool {
    // A protocol that tells no point says nothing of its first order either.
    let is_behind = logged.record.order > last.consistent || last.consistent == Order::default();
    logged.incarnation == last.incarnation && is_behind && !left_out(CheckpointStep::CarryOpen)
}
