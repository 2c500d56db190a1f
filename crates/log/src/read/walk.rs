//! From frame to frame.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use polychron_engine::mutations::left_out;

use super::ahead::Ahead;
use super::{End, Found, Logged, scan};
use crate::DatabaseId;
use crate::disk::{Access, BLOCK, Buffer, Cause, Disk, File, Files};
use crate::error::Error;
use crate::flush::flusher::Framed;
use crate::flush::pool::{DIRECTORY, Live, path_of, slot_of};
use crate::frame::{Fault, Frame, Header, Order, Pieces, Place};
use crate::manifest::Manifest;
use crate::steps::{CheckpointStep, Step};

/// A log that is being read.
pub(super) struct Walk<'f, D: Disk> {
    pub(super) files: &'f Files<D>,
    pub(super) database: DatabaseId,
    /// The manifest that counts: incarnation and generation.
    newest: (u64, u64),
    pub(super) slots: Vec<u32>,
    /// Files by the number that their first block says.
    numbers: BTreeMap<u64, Vec<u32>>,
    file: Option<Opened<D>>,
    /// Whether other threads read ahead.
    by_threads: bool,
    /// Whether this process has written what is read, or read it when it opened the log. Then changes are only read by who they are handed to.
    is_in_use: bool,
    /// Where the next frame is looked for.
    pub(super) number: u64,
    pub(super) offset: u64,
    /// Up to this epoch the manifest's checkpoint has all.
    folded: u64,
    /// The last epoch that is whole; `None` before the first frame.
    whole: Option<u64>,
    /// Of the last frame: its incarnation and checksum.
    incarnation: u64,
    before: u32,
    /// An epoch up to which the log was durable, as far as it is known.
    pub(super) known: u64,
    /// Frames of the epoch that is not whole yet.
    unfinished: Vec<Found>,
    unsure: Vec<Found>,
    live: Vec<Live>,
    /// Where the last whole epoch ends, and when that was written.
    end: (u64, u64),
    written_ns: u64,
    /// The last frame that ends an epoch: incarnation, checksum and consistent point.
    last: (u64, u32, Order),
}

/// A file that is being read.
struct Opened<D: Disk> {
    slot: u32,
    file: Arc<File<D::File>>,
    bytes: u64,
    ahead: Ahead<D>,
    /// Bytes that were read before, and are no longer needed.
    spare: Option<Buffer>,
}

impl<'f, D: Disk> Walk<'f, D> {
    pub(super) fn begin(
        files: &'f Files<D>,
        manifest: &Manifest,
        generation: u64,
        by_threads: bool,
    ) -> Result<Self, Error> {
        let (slots, numbers) = slots(files, manifest.database)?;
        Ok(Self { slots, numbers, by_threads, ..Self::empty(files, manifest, generation) })
    }

    /// How many files there may be to read.
    pub(super) fn files_to_read(&self) -> usize {
        self.numbers.range(self.number..).count()
    }

    fn open(&self, slot: u32) -> Result<Opened<D>, Error> {
        let file = Arc::new(self.files.open(&path_of(slot), Access::Read)?);
        let bytes = file.bytes()?;
        Ok(Opened { slot, bytes, ahead: Ahead::new(Arc::clone(&file), bytes, self.by_threads), file, spare: None })
    }

    /// The walk through a log that is in use, up to a frame that is durable, in files that are known.
    pub(super) fn of(files: &'f Files<D>, manifest: &Manifest, live: &[Live], last: &Framed) -> Self {
        let numbers = live.iter().map(|live| (live.number, vec![live.slot])).collect();
        let slots = live.iter().map(|live| live.slot).collect();
        // Further manifests may be written meanwhile.
        Self { numbers, slots, known: last.epoch, is_in_use: true, ..Self::empty(files, manifest, u64::MAX) }
    }

    fn empty(files: &'f Files<D>, manifest: &Manifest, generation: u64) -> Self {
        let number = manifest.first_log_file;
        let folded = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
        Self {
            files,
            database: manifest.database,
            newest: (manifest.incarnation, generation),
            slots: Vec::new(),
            numbers: BTreeMap::new(),
            file: None,
            by_threads: false,
            is_in_use: false,
            number,
            offset: 0,
            folded: if left_out(CheckpointStep::SkipFolded) { 0 } else { folded },
            whole: None,
            incarnation: 0,
            before: 0,
            known: if left_out(Step::KnowFloor) { 0 } else { manifest.durable },
            unfinished: Vec::new(),
            unsure: Vec::new(),
            live: Vec::new(),
            end: (number, 0),
            written_ns: 0,
            last: (0, 0, Order::default()),
        }
    }

    /// Whether this epoch was read, as a whole.
    pub(super) fn has(&self, epoch: u64) -> bool {
        self.whole >= Some(epoch) && self.unfinished.is_empty()
    }

    /// The frame that follows; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Found>, Error> {
        if let Some(mut file) = self.file.take() {
            let found = self.look(&mut file, self.number, self.offset)?;
            let is_full = file.bytes == self.offset;
            self.file = Some(file);
            if let Some((found, _)) = found {
                return Ok(Some(found));
            }
            return self.go_over(self.number + 1, is_full);
        }
        self.go_over(self.number, true)
    }

    /// The frame that follows at the beginning of a log file, from whichever file of that number has it. A new opening begins there only if there was no
    /// room in the file before.
    fn go_over(&mut self, number: u64, may_begin: bool) -> Result<Option<Found>, Error> {
        let mut chosen: Option<(Found, Header, Opened<D>)> = None;
        for slot in self.numbers.get(&number).cloned().unwrap_or_default() {
            let mut file = self.open(slot)?;
            if let Some((found, header)) = self.look(&mut file, number, 0)?
                && (may_begin || header.incarnation == self.incarnation)
                && chosen.as_ref().is_none_or(|(_, other, _)| other.incarnation < header.incarnation)
            {
                chosen = Some((found, header, file));
            }
        }
        Ok(chosen.map(|(found, _, file)| {
            self.file = Some(file);
            (self.number, self.offset) = (number, 0);
            found
        }))
    }

    /// The frame at some place of a file, if one is there that follows. What cannot be read is read once more: the device may have erred on its way.
    fn look(&self, file: &mut Opened<D>, number: u64, offset: u64) -> Result<Option<(Found, Header)>, Error> {
        let (place, slot) = (Place { database: self.database, file: number, offset }, file.slot);
        for attempt in 0..if left_out(Step::ReadTwice) { 1 } else { 2 } {
            match self.decode(file, place, attempt > 0)? {
                Ok((found, header)) => return Ok(self.follows(&header).then_some((found, header))),
                Err(Fault::Unsupported(format)) => {
                    return Err(Error::Unsupported { file: path_of(slot), format });
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    fn decode(&self, file: &mut Opened<D>, place: Place, again: bool) -> Result<Result<(Found, Header), Fault>, Error> {
        let (slot, spare) = (file.slot, file.spare.take());
        let mut read = |into: &mut Buffer| {
            if !again && file.ahead.read(place.offset, into) {
                return Ok(true);
            }
            read_at(&file.file, place.offset, into)
        };
        let mut bytes = Buffer::zeroed(BLOCK);
        if !read(&mut bytes)? {
            return Ok(Err(Fault::Cut));
        }
        let length = match Frame::peek(&bytes) {
            Ok((header, _)) if header.place != place => return Ok(Err(Fault::Misplaced(header.place))),
            Ok((_, length)) => length,
            Err(fault) => return Ok(Err(fault)),
        };
        if length > BLOCK {
            bytes = spare.map_or_else(|| Buffer::zeroed(length), |spare| spare.resized(length));
            if !read(&mut bytes)? {
                return Ok(Err(Fault::Cut));
            }
        }
        let header = Frame::decode(&bytes, place).map(|frame| frame.header);
        Ok(header.map(|header| (Found { slot, offset: place.offset, first_epoch: header.first_epoch, bytes }, header)))
    }

    /// Whether a frame was written behind the last one, or a new opening behind the last whole epoch.
    fn follows(&self, header: &Header) -> bool {
        let Some(whole) = self.whole else { return true };
        if left_out(Step::FollowPredecessors) {
            return true;
        }
        let is_next = header.incarnation == self.incarnation && header.before == self.before;
        let is_opening = header.incarnation > self.incarnation && header.before == 0 && self.unfinished.is_empty();
        header.first_epoch == whole + 1 && (is_next || is_opening)
    }

    /// Reads the frames, and hands no record out.
    pub(super) fn without_records(self) -> Self {
        Self { folded: u64::MAX, ..self }
    }

    /// Takes a frame that follows, and hands its records out when their epoch is whole.
    pub(super) fn take(&mut self, found: Found, visit: &mut dyn FnMut(Logged<'_>)) -> Result<(), Error> {
        let Some(frame) = Frame::of_checked(&found.bytes) else {
            return Err(self.corrupt("a frame has changed while it was read"));
        };
        let (header, checksum) = (frame.header, frame.checksum);
        if header.incarnation > self.newest.0 || header.manifest > self.newest.1 {
            return Err(self.corrupt("the log knows a newer manifest than the one that is there"));
        }
        (self.incarnation, self.before) = (header.incarnation, frame.checksum);
        self.offset += frame.bytes as u64;
        self.known = self.known.max(header.durable);
        let whole = *self.whole.get_or_insert(header.first_epoch - 1);
        if self.live.last().is_none_or(|last| last.number < self.number) {
            self.live.push(Live { number: self.number, slot: found.slot, first_epoch: header.first_epoch });
        }
        self.unfinished.push(found);
        if header.last_epoch > whole || left_out(Step::CutUnfinished) {
            self.whole = Some(header.last_epoch);
            (self.end, self.written_ns) = ((self.number, self.offset), header.written_ns);
            self.last = (header.incarnation, checksum, header.consistent);
            let mut pieces = Pieces::default();
            for found in std::mem::take(&mut self.unfinished) {
                if header.last_epoch > self.folded {
                    self.hand_out(&found, &mut pieces, visit)?;
                }
                self.unsure.push(found);
            }
            pieces.end().map_err(|_| self.corrupt("a transaction lacks its last piece"))?;
        }
        let known = self.known;
        let sure = self.unsure.extract_if(.., |found| found.first_epoch <= known);
        if let (Some(file), Some(last)) = (&mut self.file, sure.last()) {
            file.spare = Some(last.bytes);
        }
        Ok(())
    }

    fn hand_out(&self, found: &Found, pieces: &mut Pieces, visit: &mut dyn FnMut(Logged<'_>)) -> Result<(), Error> {
        let malformed = || self.corrupt_at(path_of(found.slot), found.offset, "a record is malformed");
        let Some(frame) = Frame::of_checked(&found.bytes) else { return Err(malformed()) };
        for record in frame.records() {
            let record = record.map_err(|_| malformed())?;
            let taken = if self.is_in_use { pieces.follow(&record) } else { pieces.take(&record) };
            taken.map_err(|_| malformed())?;
            visit(Logged { incarnation: frame.header.incarnation, record });
        }
        Ok(())
    }

    /// Nothing follows: whether that is the end, and where it is.
    pub(super) fn end(mut self) -> Result<End, Error> {
        if !left_out(Step::LookBehind) {
            self.known = self.known.max(scan::known_behind(&self)?);
        }
        let whole = self.whole.unwrap_or(0);
        if self.known > whole {
            return Err(self.corrupt("no frame follows here"));
        }
        let (number, offset) = self.end;
        self.live.retain(|live| live.number < number || (live.number == number && offset > 0));
        let Self { live, slots, unsure, written_ns, last: (incarnation, before, consistent), .. } = self;
        Ok(End { whole, number, offset, written_ns, incarnation, before, consistent, live, slots, unsure })
    }

    pub(super) fn corrupt(&self, reason: &'static str) -> Error {
        let file = self.file.as_ref().map_or(DIRECTORY.to_owned(), |file| path_of(file.slot));
        self.corrupt_at(file, self.offset, reason)
    }

    fn corrupt_at(&self, file: String, offset: u64, reason: &'static str) -> Error {
        let first_epoch = self.whole.unwrap_or(0) + 1;
        Error::Corrupt { file, offset, first_epoch, last_epoch: self.known.max(first_epoch), reason }
    }

    /// Which bytes of a file were not read as frames that follow each other.
    pub(super) fn unread(&self, slot: u32, bytes: u64) -> RangeInclusive<u64> {
        let is_here = self.file.as_ref().is_some_and(|here| here.slot == slot);
        let is_before = self.live.iter().any(|live| live.slot == slot && live.number < self.number);
        if is_before {
            #[expect(clippy::reversed_empty_ranges, reason = "it has none")]
            return 1..=0;
        }
        (if is_here { self.offset } else { 0 })..=bytes
    }
}

/// Reads, unless the file ends before.
pub(crate) fn read_at<F: crate::disk::DiskFile>(
    file: &File<F>,
    offset: u64,
    into: &mut Buffer,
) -> Result<bool, crate::disk::Error> {
    match file.read_at(offset, into) {
        Err(error) if error.cause == Cause::Ended => Ok(false),
        result => result.map(|()| true),
    }
}

/// All files of the log, and which of them say in their first block that they are the log file of some number.
type Slots = (Vec<u32>, BTreeMap<u64, Vec<u32>>);

fn slots<D: Disk>(files: &Files<D>, database: DatabaseId) -> Result<Slots, Error> {
    let slots = all_slots(files)?;
    let mut numbers: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for slot in &slots {
        match first_header(files, *slot)?.map(|header| header.place) {
            Some(place) if place.database == database && place.offset == 0 => {
                numbers.entry(place.file).or_default().push(*slot);
            }
            _ => {}
        }
    }
    Ok((slots, numbers))
}

/// The slots of all files of the log; none if there is no directory.
pub(crate) fn all_slots<D: Disk>(files: &Files<D>) -> Result<Vec<u32>, Error> {
    match files.list(DIRECTORY) {
        Err(error) if error.cause == Cause::NotFound => Ok(Vec::new()),
        entries => Ok(entries?.iter().filter_map(|entry| slot_of(&entry.name)).collect()),
    }
}

/// The header in the first block of a file, if that is a frame's.
fn first_header<D: Disk>(files: &Files<D>, slot: u32) -> Result<Option<Header>, Error> {
    let file = files.open(&path_of(slot), Access::Read)?;
    let mut first = Buffer::zeroed(BLOCK);
    for _ in 0..if left_out(Step::ReadTwice) { 1 } else { 2 } {
        if !read_at(&file, 0, &mut first)? {
            break;
        }
        match Frame::peek(&first) {
            Ok((header, _)) => return Ok(Some(header)),
            Err(Fault::Unsupported(format)) => return Err(Error::Unsupported { file: path_of(slot), format }),
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Refuses a directory in which some log lies: the database was never opened, so that it is another one's, or this one's with a manifest that is too old.
pub(crate) fn refuse_foreign<D: Disk>(files: &Files<D>) -> Result<(), Error> {
    for slot in all_slots(files)? {
        if let Some(header) = first_header(files, slot)? {
            let (first_epoch, last_epoch) = (header.first_epoch, header.last_epoch);
            let reason = "it is a log, and the manifest says that there was never one";
            return Err(Error::Corrupt { file: path_of(slot), offset: 0, first_epoch, last_epoch, reason });
        }
    }
    Ok(())
}
