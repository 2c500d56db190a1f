//! A flush: it writes the records of an epoch as frames behind those before, and syncs them.

use std::sync::Arc;

use polychron_base::clock::Clock;
use polychron_engine::mutations::{left_out, pass};

use super::pool::Pool;
use crate::DatabaseId;
use crate::disk::{Buffer, Disk, Error, File};
use crate::frame::{self, FRONT_BYTES, Header, MAX_CONTENT_BYTES, Order, Place, Writer};
use crate::ring::{Heads, Rings};
use crate::steps::{Point, Step};

/// Where the next frame is written, and what it has to say. Whoever has this flushes.
pub(crate) struct Flusher<D: Disk> {
    file: File<D::File>,
    file_bytes: u64,
    /// Whether the file has something that is not synced.
    is_unsynced: bool,
    /// Where the next frame is to be.
    place: Place,
    incarnation: u64,
    /// The checksum of the frame before.
    before: u32,
    /// The last epoch that the frames so far have whole.
    whole: u64,
    /// How much content a frame has, but for one with a single longer record: a long row, or what a ring had.
    content_bytes: usize,
    writer: Writer,
    buffer: Buffer,
    heads: Vec<Heads>,
    /// When the last frame was written, by the wall clock.
    written_ns: u64,
    /// The lowest order of what was taken of the rings and is not durable.
    lowest: Option<Order>,
    /// The records of frames that were written of an epoch that is not whole yet.
    written: Vec<Writer>,
    /// Not all of what was taken and is not durable is there.
    is_unknown: bool,
    /// The highest order of what was taken of the rings.
    highest: Order,
    /// When the last flush began.
    pub(super) begun_ns: u64,
    clock: Arc<dyn Clock>,
}

/// How many bytes of records are kept until their epoch is durable, and no more than so many frames have.
const MOST_WRITTEN: usize = 4 << 20;
const MOST_FRAMES: usize = 4;

/// What was taken of the rings and is not durable.
pub(crate) enum Taken {
    Known(Vec<Writer>),
    Unknown,
}

/// The facts that are known when an epoch is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Up to which order all transactions had ended.
    pub(crate) consistent: Order,
    /// The generation of the manifest that counts.
    pub(crate) manifest: u64,
}

/// The last frame that is durable: what reading a log that is in use goes up to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framed {
    /// The last epoch that is whole with it.
    pub(crate) epoch: u64,
    /// What its opening of the database is, and up to which order all transactions had ended before the epoch was closed.
    pub(crate) incarnation: u64,
    pub(crate) consistent: Order,
    /// The highest order of this opening up to here.
    pub(crate) highest: Order,
    /// Where it ends.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    /// When it was written, by the wall clock.
    pub(crate) written_ns: u64,
}

/// A frame that another opening of the database has written.
#[derive(Clone)]
pub(crate) struct Shipped {
    pub(crate) header: Header,
    pub(crate) checksum: u32,
    pub(crate) bytes: Vec<u8>,
    /// How long its file is.
    pub(crate) file_bytes: u64,
}

/// Where a log goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) database: DatabaseId,
    pub(crate) incarnation: u64,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) whole: u64,
}

impl<D: Disk> Flusher<D> {
    pub(crate) fn new(
        file: File<D::File>,
        start: Start,
        content_bytes: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let Start { database, incarnation, number, offset, whole } = start;
        Ok(Self {
            file_bytes: file.bytes()?,
            file,
            is_unsynced: false,
            place: Place { database, file: number, offset },
            incarnation,
            before: 0,
            whole,
            content_bytes: content_bytes.min(MAX_CONTENT_BYTES),
            writer: Writer::new(),
            buffer: Buffer::zeroed(0),
            heads: Vec::new(),
            written_ns: 0,
            lowest: None,
            written: Vec::new(),
            is_unknown: false,
            highest: Order::default(),
            begun_ns: 0,
            clock,
        })
    }

    /// The last epoch that the frames so far have whole: once a flush has ended they are durable.
    pub(crate) fn whole(&self) -> u64 {
        self.whole
    }

    /// The lowest order of what would not be durable if it ended now, of what was taken of the rings.
    pub(crate) fn lowest(&self) -> Option<Order> {
        self.lowest
    }

    /// All that would not be durable if it ended now, of what was taken of the rings. It is taken away, for nothing is written from now on.
    pub(crate) fn take_lost(&mut self) -> Taken {
        if self.is_unknown {
            return Taken::Unknown;
        }
        self.written.push(std::mem::take(&mut self.writer));
        Taken::Known(std::mem::take(&mut self.written))
    }

    /// How many bytes the file has behind the last frame.
    pub(crate) fn rest(&self) -> u64 {
        self.file_bytes.saturating_sub(self.place.offset)
    }

    /// How much content a frame has: in a short file less, so that little of it is left empty at the end.
    fn most_content(&self) -> usize {
        self.content_bytes.min((self.file_bytes / 4) as usize)
    }

    /// The last frame, of which the flush has ended.
    pub(crate) fn framed(&self, consistent: Order) -> Framed {
        let Self { whole: epoch, incarnation, place: Place { file: number, offset, .. }, written_ns, .. } = *self;
        Framed { epoch, incarnation, consistent, highest: self.highest, number, offset, written_ns }
    }

    /// Closes the epoch of the rings, and copies its records; frames that are full are written. Answers the epoch and whether it has records.
    pub(crate) fn close(
        &mut self,
        rings: &Rings,
        mark: impl FnOnce() -> Mark,
        pool: &Pool<D>,
    ) -> Result<(u64, Mark, bool), Error> {
        // Asked for before the epoch is closed, so that all that has ended by then is in this epoch or before.
        let mark = mark();
        let mut heads = std::mem::take(&mut self.heads);
        let epoch = rings.close(&mut heads);
        let has_long = heads.iter().any(Heads::is_long);
        let mut has_records = false;
        for ring in &mut heads {
            while let Some(sealed) = rings.take(ring, epoch) {
                has_records = true;
                self.lowest = Some(self.lowest.map_or(sealed.order, |lowest| lowest.min(sealed.order)));
                self.highest = self.highest.max(sealed.order);
                let bytes = self.writer.content().len() + sealed.bytes + FRONT_BYTES;
                if bytes > self.most_content() && self.writer.count() > 0 {
                    self.write_part(mark, has_long, pool)?;
                }
                let pushed =
                    self.writer.push_with(sealed.order, ring.worker(), sealed.piece, sealed.bytes, |content| {
                        rings.copy(ring, &sealed, content);
                    });
                assert!(pushed.is_ok(), "a piece is shorter than a frame may be");
            }
            rings.free(ring);
        }
        heads.clear();
        self.heads = heads;
        Ok((epoch, mark, has_records))
    }

    /// Writes the last frame of an epoch, and makes it durable with all before.
    pub(crate) fn finish(&mut self, epoch: u64, mark: Mark, pool: &Pool<D>) -> Result<(), Error> {
        self.write(mark, epoch, pool)?;
        pass(Point::FrameWritten);
        if !left_out(Step::SyncFrames) {
            self.file.sync()?;
            self.is_unsynced = false;
        }
        self.whole = epoch;
        (self.lowest, self.is_unknown) = (None, false);
        self.written.clear();
        self.writer.clear();
        // What a huge row took is given back.
        self.writer.shrink_to(self.content_bytes);
        if self.buffer.len() > frame::frame_bytes(self.content_bytes) {
            self.buffer = Buffer::zeroed(0);
        }
        Ok(())
    }

    /// Writes what was gathered as a frame with which no epoch is whole. Its records are kept until their epoch is durable, as long as they are few.
    fn write_part(&mut self, mark: Mark, has_long: bool, pool: &Pool<D>) -> Result<(), Error> {
        // If this fails, what was to come of the rings lies there still, but for long transactions, which go with the heads.
        let was_unknown = self.is_unknown;
        self.is_unknown |= has_long;
        self.write(mark, self.whole, pool)?;
        let bytes: usize = self.written.iter().map(|writer| writer.content().len()).sum();
        let most = MOST_WRITTEN.min(MOST_FRAMES * self.content_bytes);
        self.is_unknown = was_unknown || bytes + self.writer.content().len() > most;
        if self.is_unknown {
            self.written.clear();
            self.writer.clear();
        } else {
            self.written.push(std::mem::take(&mut self.writer));
        }
        Ok(())
    }

    /// Writes what was gathered as a frame, whose records stay where they were gathered.
    fn write(&mut self, mark: Mark, last_epoch: u64, pool: &Pool<D>) -> Result<(), Error> {
        let bytes = frame::frame_bytes(self.writer.content().len());
        if self.place.offset + bytes as u64 > self.file_bytes {
            self.go_over(pool, bytes as u64)?;
        }
        if self.buffer.len() < bytes {
            self.buffer = Buffer::zeroed(bytes.next_power_of_two());
        }
        self.written_ns = self.clock.calendar_ns();
        let header = Header {
            place: self.place,
            incarnation: self.incarnation,
            first_epoch: self.whole + 1,
            last_epoch,
            // What the frames before have whole is durable, for their flushes have ended.
            durable: self.whole,
            consistent: mark.consistent,
            manifest: mark.manifest,
            written_ns: self.written_ns,
            before: self.before,
        };
        let (sum, length) = frame::encode(&header, &self.writer, &mut self.buffer);
        self.is_unsynced = true;
        self.file.write_at(self.place.offset, &self.buffer[..length])?;
        self.place.offset += length as u64;
        self.before = sum;
        Ok(())
    }

    /// Writes the frames of whole epochs, which another opening of the database has written, to the places that they say, and makes them durable at once. Each one
    /// follows the one before.
    pub(crate) fn append(&mut self, frames: &[Shipped], pool: &Pool<D>) -> Result<u64, Error> {
        for Shipped { header, checksum, bytes, file_bytes } in frames {
            if header.place.file != self.place.file {
                self.sync_left()?;
                self.file = pool.take_exact(header.place.file, header.first_epoch, *file_bytes)?;
                self.file_bytes = *file_bytes;
            }
            if self.buffer.len() < bytes.len() {
                self.buffer = Buffer::zeroed(bytes.len());
            }
            self.buffer[..bytes.len()].copy_from_slice(bytes);
            self.is_unsynced = true;
            self.file.write_at(header.place.offset, &self.buffer[..bytes.len()])?;
            self.place = Place { offset: header.place.offset + bytes.len() as u64, ..header.place };
            (self.incarnation, self.before, self.written_ns) = (header.incarnation, *checksum, header.written_ns);
            self.whole = self.whole.max(header.last_epoch);
        }
        self.file.sync()?;
        self.is_unsynced = false;
        Ok(self.whole)
    }

    /// Nothing is left of this file that is not durable.
    fn sync_left(&mut self) -> Result<(), Error> {
        if self.is_unsynced && !left_out(Step::SyncLeftFile) {
            self.file.sync()?;
        }
        self.is_unsynced = false;
        Ok(())
    }

    /// Goes over to the next file, for a frame of so many bytes.
    fn go_over(&mut self, pool: &Pool<D>, bytes: u64) -> Result<(), Error> {
        self.sync_left()?;
        self.file = pool.take(self.place.file + 1, self.whole + 1, bytes)?;
        self.file_bytes = self.file.bytes()?;
        self.place = Place { file: self.place.file + 1, offset: 0, ..self.place };
        Ok(())
    }
}
