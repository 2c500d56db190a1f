//! Makes of a checkpoint and the log behind it the next checkpoint's files.

use std::collections::{BTreeSet, HashMap};

use polychron_engine::mutations::left_out;
use polychron_sync::Mutex;

use super::pace::{Pace, Work};
use super::rows::{Limits, RowSink, RowSource, State, malformed};
use super::{Contents, Options, Range, Reader, RecordContent, Writer};
use crate::catalog::StoredCatalog;
use crate::disk::{Disk, Files};
use crate::error::Error;
use crate::flush::Log;
use crate::flush::flusher::Framed;
use crate::frame::Order;
use crate::manifest::{Checkpoint, CheckpointFile, Manifest};
use crate::read::{self, Logged};
use crate::recover::{Newest, Tail};
use crate::steps::CheckpointStep;

/// How many bytes of records are taken in before the memory that they take is looked at.
const LOOK_BYTES: usize = 256 << 10;

/// What a checkpoint is made of.
pub(super) struct Fold<'f, D: Disk> {
    pub(super) files: &'f Files<D>,
    pub(super) log: &'f Log<D>,
    /// Whose checkpoint, if it has one, and whose log are folded, and its catalog.
    pub(super) manifest: &'f Manifest,
    pub(super) catalog: &'f StoredCatalog,
    /// The last frame of the log that is folded.
    pub(super) last: Framed,
    pub(super) number: u64,
    pub(super) options: &'f Options,
    pub(super) pace: &'f Pace,
}

impl<D: Disk> Fold<'_, D> {
    /// Writes the files. They are durable then, and their names are not.
    pub(super) fn run(&self) -> Result<Checkpoint, Error> {
        let mut carried = self.carried();
        let first = |bits| Range { bits, prefix: 0 };
        let mut bits = 0;
        let mut gathered = self.gather(first(bits), Some(&mut carried))?;
        while let Gathered::TooMuch { parts } = gathered {
            bits = (bits + parts.next_power_of_two().ilog2() as u8).clamp(bits + 1, Range::MAX_BITS);
            gathered = self.gather(first(bits), None)?;
        }
        let mut files: Vec<CheckpointFile> = carried.finish()?.into_iter().collect();
        let (kept, base) = self.split(gathered.touched());
        files.extend(kept);
        let parts = Mutex::new(HashMap::new());
        for range in Range::all(bits) {
            let newest = match std::mem::replace(&mut gathered, Gathered::TooMuch { parts: 1 }) {
                Gathered::All(newest) => newest,
                Gathered::TooMuch { .. } => self.gather_whole(range)?,
            };
            let source = RowSource::new(self.files, self.manifest.database, &of_range(&base, range));
            let sink = self.sink(range, &parts);
            newest.merge(self.options.threads, &source, &sink)?;
            files.extend(sink.finish()?);
        }
        files.sort_by_key(|file| (file.contents.numbers(), file.number));
        let Framed { epoch, incarnation, consistent, .. } = self.last;
        Ok(Checkpoint { number: self.number, epoch, incarnation, consistent, files })
    }

    /// Files that stay as they are, because nothing was logged of their tables, and those whose rows are passed through what was gathered.
    fn split(&self, touched: BTreeSet<u32>) -> (Vec<CheckpointFile>, Vec<CheckpointFile>) {
        let files = self.manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        let known = files.filter(|file| match file.contents {
            Contents::Rows { table, .. } => self.catalog.tables().contains_key(&table),
            Contents::Records => false,
        });
        known.partition(|file| match file.contents {
            Contents::Rows { table, .. } => !touched.contains(&table) && !left_out(CheckpointStep::KeepUnchanged),
            Contents::Records => false,
        })
    }

    fn sink<'s>(&'s self, range: Range, parts: &'s Mutex<HashMap<u32, u32>>) -> RowSink<'s, D> {
        let Options { block_bytes, file_bytes, threads, .. } = *self.options;
        RowSink {
            files: self.files,
            database: self.manifest.database,
            number: self.number,
            range,
            pace: self.pace,
            works: Mutex::default(),
            limits: Limits { block_bytes, file_bytes, idle: threads.max(1) },
            parts,
            state: Mutex::new(State::new()),
        }
    }

    fn carried(&self) -> Carried<'_, D> {
        Carried {
            writer: Writer::new(self.files, self.manifest.database, self.number, Contents::Records),
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

    /// What the checkpoint before has carried and the log has of a range, if it takes no more memory than it may. The records that are carried on are
    /// written in any case.
    fn gather(&self, range: Range, carried: Option<&mut Carried<'_, D>>) -> Result<Gathered, Error> {
        let is_last = range.bits >= Range::MAX_BITS;
        let most_bytes = if is_last { usize::MAX } else { self.options.memory_bytes };
        let mut gatherer = Gatherer::new(self, range, most_bytes, carried)?;
        self.read(&mut gatherer)?;
        gatherer.finish()
    }

    fn read(&self, gatherer: &mut Gatherer<'_, '_, D>) -> Result<(), Error> {
        carried(self.files, self.manifest, &mut |logged| gatherer.take(logged))?;
        let live = self.log.live();
        read::read_in_use(self.files, self.manifest, &live, &self.last, &mut |logged| gatherer.take(logged))
    }
}

/// Hands out the records that the manifest's checkpoint carries: recovery takes them in beside those of the log.
///
/// # Errors
/// [`Error`]; what was visited before counts for nothing then.
pub fn carried<D: Disk>(files: &Files<D>, manifest: &Manifest, visit: &mut dyn FnMut(Logged<'_>)) -> Result<(), Error> {
    let Some(checkpoint) = &manifest.checkpoint else { return Ok(()) };
    let is_carried = |file: &&CheckpointFile| file.contents == Contents::Records;
    for file in checkpoint.files.iter().filter(is_carried).filter(|_| !left_out(CheckpointStep::TakeCarried)) {
        let mut reader = Reader::open(files, manifest.database, *file)?;
        while let Some(block) = reader.next_block()? {
            for record in block.records() {
                let record = record.map_err(|_| malformed(file))?;
                if record.changes().any(|change| change.is_err()) {
                    return Err(malformed(file));
                }
                visit(Logged { incarnation: checkpoint.incarnation, record });
            }
        }
    }
    Ok(())
}

/// Those of the files that may have rows of a range.
fn of_range(files: &[CheckpointFile], range: Range) -> Vec<CheckpointFile> {
    let is_met = |file: &&CheckpointFile| match file.contents {
        Contents::Rows { range: own, .. } => own.meets(range),
        Contents::Records => false,
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

/// What came of one reading of the log.
enum Gathered {
    All(Newest),
    /// It takes too much memory, and probably so many times less in so many parts.
    TooMuch {
        parts: usize,
    },
}

impl Gathered {
    fn touched(&self) -> BTreeSet<u32> {
        match self {
            Self::All(newest) => newest.touched().clone(),
            Self::TooMuch { .. } => BTreeSet::new(),
        }
    }
}

/// Takes records one after the other.
struct Gatherer<'g, 'f, D: Disk> {
    last: Framed,
    most_bytes: usize,
    /// `None` once it has taken too much memory.
    tail: Option<Tail>,
    carried: Option<&'g mut Carried<'f, D>>,
    work: Work<'g>,
    /// The bytes of records that have come, those that were taken in, and those since the memory was looked at.
    come: usize,
    taken: usize,
    unseen: usize,
    failure: Option<Error>,
}

impl<'g, 'f, D: Disk> Gatherer<'g, 'f, D> {
    fn new(
        fold: &'g Fold<'_, D>,
        range: Range,
        most_bytes: usize,
        carried: Option<&'g mut Carried<'f, D>>,
    ) -> Result<Self, Error> {
        let tail = Tail::of_range(fold.catalog, range, fold.options.threads.saturating_sub(1), most_bytes)?;
        let (last, work) = (fold.last, fold.pace.begin());
        Ok(Self { last, most_bytes, tail: Some(tail), carried, work, come: 0, taken: 0, unseen: 0, failure: None })
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
        if self.unseen >= LOOK_BYTES.min(self.most_bytes) {
            self.unseen = 0;
            self.work.pause()?;
            self.tail.take_if(|tail| tail.memory_bytes() + tail.pending_bytes() > self.most_bytes);
        }
        Ok(())
    }

    fn finish(self) -> Result<Gathered, Error> {
        match (self.failure, self.tail) {
            (Some(error), _) => Err(error),
            (None, Some(tail)) => tail.finish().map(Gathered::All),
            (None, None) => Ok(Gathered::TooMuch { parts: self.come.div_ceil(self.taken.max(1)) }),
        }
    }
}

/// Whether a record may still be followed by one of a lower order: it is of the present opening of the database, and behind the consistent point.
fn is_open(last: &Framed, logged: &Logged<'_>) -> bool {
    // A protocol that tells no point says nothing of its first order either.
    let is_behind = logged.record.order > last.consistent || last.consistent == Order::default();
    logged.incarnation == last.incarnation && is_behind && !left_out(CheckpointStep::CarryOpen)
}
