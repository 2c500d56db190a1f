//! Reading a log back: frame after frame from the manifest's first file on, each behind the one that it was written behind.
//!
//! The log ends where no such frame is. Whether what lies there is an unfinished write or damage, the rest of the files says: if the manifest, a frame
//! before, or any frame behind knows that more was durable, it is damage. `docs/durability.md` has the rules.

//! A log that is in use is read up to a frame that was durable before: what lies there is no tail, and anything else is damage.

mod ahead;
mod scan;
mod walk;

use crate::DatabaseId;
use crate::disk::{Access, BLOCK, Buffer, Disk, Files};
use crate::error::Error;
use crate::flush::flusher::Framed;
use crate::flush::pool::{Live, path_of};
use crate::frame::{Frame, Header, Order, Place, Record};
use crate::manifest::Manifest;
use walk::Walk;
pub(crate) use walk::{all_slots, read_at, refuse_foreign};

/// A record that was read.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'b> {
    /// The opening of the database that wrote it: changes of a later one win.
    pub incarnation: u64,
    /// The transaction: its order within the incarnation, and its changes.
    pub record: Record<'b>,
}

/// The content of a log, and where it goes on.
pub(crate) struct End {
    /// The last epoch that is whole.
    pub(crate) whole: u64,
    /// The number of the log file that the next frame belongs into, and where in it.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    /// When the last whole epoch was written, by the wall clock.
    pub(crate) written_ns: u64,
    /// The opening that wrote its last frame, that frame's checksum, and its consistent point.
    pub(crate) incarnation: u64,
    pub(crate) before: u32,
    pub(crate) consistent: Order,
    /// The files that have something.
    pub(crate) live: Vec<Live>,
    /// The slots of all files.
    pub(crate) slots: Vec<u32>,
    /// Whole frames of which no other says that they are durable.
    pub(crate) unsure: Vec<Found>,
}

impl End {
    /// Of a log that was never begun, and begins with this file.
    pub(crate) fn of_none(number: u64) -> Self {
        Self {
            whole: 0,
            number,
            offset: 0,
            written_ns: 0,
            incarnation: 0,
            before: 0,
            consistent: Order::default(),
            live: Vec::new(),
            slots: Vec::new(),
            unsure: Vec::new(),
        }
    }
}

/// A frame that was read.
pub(crate) struct Found {
    pub(crate) slot: u32,
    pub(crate) offset: u64,
    pub(crate) first_epoch: u64,
    pub(crate) bytes: Buffer,
}

/// Reads the log of a database, of which this manifest counts, and changes nothing. `visit` is given all records of whole epochs; among those of one
/// key the newest is the one with the highest incarnation, and then order. Answers the last epoch that is whole.
///
/// # Errors
/// [`Error`]; what was visited before counts for nothing then.
pub fn read<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    generation: u64,
    visit: &mut dyn FnMut(Logged<'_>),
) -> Result<u64, Error> {
    read_to_end(files, manifest, generation, &Manner::default(), visit).map(|end| end.whole)
}

/// The same, each record with the last epoch of the frame with which it became whole: the epoch that it became durable with.
pub(crate) fn read_by_epoch<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    generation: u64,
    visit: &mut dyn FnMut(u64, Logged<'_>),
) -> Result<u64, Error> {
    let mut walk = Walk::begin(files, manifest, generation, false)?;
    while let Some(found) = walk.next()? {
        let epoch = Frame::peek(&found.bytes).map_or(0, |(header, _)| header.last_epoch);
        walk.take(found, &mut |logged| visit(epoch, logged))?;
    }
    walk.end().map(|end| end.whole)
}

/// How a log is read.
#[derive(Default)]
pub(crate) struct Manner<'m> {
    /// Whether other threads read ahead.
    pub(crate) by_threads: bool,
    /// Is told how many bytes were read, and how many files there may be in all.
    pub(crate) report: Option<&'m dyn Fn(u64, usize)>,
}

/// The same, and all that it takes to go on.
pub(crate) fn read_to_end<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    generation: u64,
    manner: &Manner<'_>,
    visit: &mut dyn FnMut(Logged<'_>),
) -> Result<End, Error> {
    let mut walk = Walk::begin(files, manifest, generation, manner.by_threads)?;
    let (count, mut bytes) = (walk.files_to_read(), 0);
    while let Some(found) = walk.next()? {
        bytes += found.bytes.len() as u64;
        walk.take(found, visit)?;
        if let Some(report) = manner.report {
            report(bytes, count);
        }
    }
    walk.end()
}

/// Reads a log that is in use up to a frame that is durable, from these files, which have it. What the manifest's checkpoint has is left out.
///
/// # Errors
/// [`Error`]; what was visited before counts for nothing then.
pub(crate) fn read_in_use<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    live: &[Live],
    last: &Framed,
    visit: &mut dyn FnMut(Logged<'_>),
) -> Result<(), Error> {
    let mut walk = Walk::of(files, manifest, live, last);
    while !walk.has(last.epoch) {
        let Some(found) = walk.next()? else { return Err(walk.corrupt("no frame follows here")) };
        walk.take(found, visit)?;
    }
    Ok(())
}

/// The frames and records that are passed on the way through a log.
pub(crate) enum Passed<'b> {
    /// The next frame. Reading ends before it if it is not wanted.
    Frame(&'b Header),
    /// A record of an epoch that is whole.
    Record(Logged<'b>),
    /// All records of the epochs up to this frame have come. It ends at this place.
    Whole(&'b Header, (u64, u64)),
}

/// Reads a log from frame to frame. `visit` says of each frame whether it is wanted; what it answers to the rest does not count.
///
/// # Errors
/// [`Error`]; what was visited before counts for nothing then.
pub(crate) fn read_points<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    visit: &mut dyn FnMut(Passed<'_>) -> bool,
) -> Result<(), Error> {
    read_points_to_end(files, manifest, u64::MAX, visit).map(drop)
}

/// The same of a database whose manifest has this generation. Answers all that it takes to go on, if all frames were wanted.
pub(crate) fn read_points_to_end<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    generation: u64,
    visit: &mut dyn FnMut(Passed<'_>) -> bool,
) -> Result<Option<End>, Error> {
    let mut walk = Walk::begin(files, manifest, generation, false)?;
    while let Some(found) = walk.next()? {
        let Ok((header, _)) = Frame::peek(&found.bytes) else {
            return Err(walk.corrupt("a frame has changed while it was read"));
        };
        if !visit(Passed::Frame(&header)) {
            return Ok(None);
        }
        walk.take(found, &mut |logged| _ = visit(Passed::Record(logged)))?;
        if walk.has(header.last_epoch) {
            visit(Passed::Whole(&header, (walk.number, walk.offset)));
        }
    }
    walk.end().map(Some)
}

/// A place in a log behind a frame: what the next one has to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Number of the log file, and where in it the next frame is, unless it begins the next file.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    /// The last epoch that is whole.
    pub(crate) whole: u64,
    /// Of the last frame: its incarnation and checksum, and whether its epoch goes on in the next one.
    pub(crate) incarnation: u64,
    pub(crate) before: u32,
    pub(crate) is_unfinished: bool,
}

impl Cursor {
    /// Whether a frame follows here, as far as its header tells.
    pub(crate) fn is_followed_by(&self, header: &Header) -> bool {
        let Place { file, offset, .. } = header.place;
        let is_here = (file, offset) == (self.number, self.offset) || (file, offset) == (self.number + 1, 0);
        let is_next = header.incarnation == self.incarnation && header.before == self.before;
        let is_opening = header.incarnation > self.incarnation && header.before == 0 && !self.is_unfinished;
        is_here && header.first_epoch == self.whole + 1 && (is_next || is_opening)
    }

    /// Goes on behind a frame that follows.
    pub(crate) fn pass(&mut self, header: &Header, checksum: u32, bytes: u64) {
        (self.number, self.offset) = (header.place.file, header.place.offset + bytes);
        (self.incarnation, self.before) = (header.incarnation, checksum);
        self.is_unfinished = header.last_epoch <= self.whole;
        self.whole = self.whole.max(header.last_epoch);
    }
}

/// The bytes of the frame behind a place of a log that is in use, before the end of one that is durable; `None` if that is here.
///
/// # Errors
/// [`Error`]: also where its file was given back meanwhile.
pub(crate) fn next_frame<D: Disk>(
    files: &Files<D>,
    database: DatabaseId,
    live: &[Live],
    cursor: &mut Cursor,
    last: &Framed,
) -> Result<Option<Buffer>, Error> {
    if (cursor.number, cursor.offset) == (last.number, last.offset) {
        return Ok(None);
    }
    for (number, offset) in [(cursor.number, cursor.offset), (cursor.number + 1, 0)] {
        let Some(live) = live.iter().find(|live| live.number == number) else { continue };
        let file = files.open(&path_of(live.slot), Access::Read)?;
        let mut bytes = Buffer::zeroed(BLOCK);
        let is_there = read_at(&file, offset, &mut bytes)?;
        let Some((_, length)) = Frame::peek(&bytes).ok().filter(|_| is_there) else { continue };
        if length > BLOCK {
            bytes = Buffer::zeroed(length);
            if !read_at(&file, offset, &mut bytes)? {
                continue;
            }
        }
        // A file that is used again meanwhile has a higher number.
        let Ok(frame) = Frame::decode(&bytes, Place { database, file: number, offset }) else { continue };
        if cursor.is_followed_by(&frame.header) {
            cursor.pass(&frame.header, frame.checksum, frame.bytes as u64);
            return Ok(Some(bytes));
        }
    }
    let (first_epoch, last_epoch) = (cursor.whole + 1, last.epoch);
    let file = format!("log file {}", cursor.number);
    Err(Error::Corrupt { file, offset: cursor.offset, first_epoch, last_epoch, reason: "no frame follows here" })
}

/// Hands out the frames of a log that is in use, from the manifest's first file on, each with number and slot of its file and its offset, until one is not wanted.
///
/// # Errors
/// [`Error`], and that of `visit`.
pub(crate) fn read_frames<D: Disk>(
    files: &Files<D>,
    manifest: &Manifest,
    live: &[Live],
    last: &Framed,
    visit: &mut dyn FnMut(u64, &Found) -> Result<bool, Error>,
) -> Result<(), Error> {
    // The first file may have the later pieces of a transaction alone.
    let mut walk = Walk::of(files, manifest, live, last).without_records();
    while let Some(found) = walk.next()? {
        if !visit(walk.number, &found)? {
            return Ok(());
        }
        walk.take(found, &mut |_| {})?;
    }
    Err(walk.corrupt("no frame follows here"))
}
