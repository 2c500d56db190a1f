//! The work of a standby: it takes frames that follow, makes them durable, and says so. Showing them is the work of `show`.

use std::sync::{Arc, PoisonError};

use polychron_base::clock::{Duration, SystemClock};
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::mutations::{left_out, pass};
use polychron_sync::{Mutex, MutexGuard};

use super::marker::{self, Marked};
use super::message::{Decoder, Durable, Hello, Mark, Message, Silence, encode, most_from_primary};
use super::points::{Point, Points};
use super::sender::Source;
use super::show::{Showing, Unshown};
use super::{MOST_ARRIVED, MOST_EPOCH, MOST_FILE, Trouble, refused};
use crate::DatabaseId;
use crate::catalog;
use crate::checkpoint::{self, Checkpoints};
use crate::disk::{Disk, Files};
use crate::durable::{Load, Progress, Settings, load};
use crate::error::{Error, Stop};
use crate::flush::Log;
use crate::flush::flusher::Shipped;
use crate::frame::{Frame, Header, Pieces, Place};
use crate::manifest::{Manifest, Manifests};
use crate::read::{self, Cursor, Passed};
use crate::recover::{Newest, Tail};
use crate::steps::{self, ShipStep};

/// The files of a standby that is open.
pub struct Following<D: Disk> {
    log: Log<D>,
    manifests: Mutex<Manifests<D>>,
    checkpoints: Checkpoints<D>,
    path: String,
    _lock: Mutex<D::Lock>,
}

impl<D: Disk + Clone> Following<D> {
    /// The part of it that others are sent.
    pub fn source(&self) -> Source<'_, D> {
        Source { log: &self.log, manifests: &self.manifests, checkpoints: &self.checkpoints }
    }

    /// Makes a checkpoint if it is time: what a thread does again and again.
    pub fn tick(&self) {
        self.checkpoints.tick(&self.log, &self.manifests);
    }

    /// Makes a checkpoint of all that was received.
    ///
    /// # Errors
    /// As of [`Durable::checkpoint`](crate::Durable::checkpoint).
    pub fn checkpoint(&self) -> Result<(), polychron_base::Error> {
        let made = self.checkpoints.run(&self.log, &self.manifests, checkpoint::Haste::Unpaced);
        made.map(drop).map_err(|error| error.of_database(&self.path))
    }

    /// Makes a backup, in a directory that is empty or not there.
    ///
    /// # Errors
    /// As of [`Durable::back_up_directory`](crate::Durable::back_up_directory).
    pub fn back_up_directory(&self, path: &std::path::Path) -> Result<(), polychron_base::Error> {
        crate::backup::into_directory(path, |to| {
            let made = self.checkpoints.back_up(&self.log, &self.manifests, to);
            made.map_err(|error| crate::backup::told(error, &self.path, &path.display().to_string()))
        })
    }

    /// The standby's name in errors.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Gives up a checkpoint that is being made.
    pub fn stop(&self) {
        self.checkpoints.stop();
    }

    fn manifests(&self) -> MutexGuard<'_, Manifests<D>> {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frames that have come and are not durable yet.
#[derive(Default)]
struct Arrived {
    frames: Vec<Shipped>,
    bytes: usize,
    pieces: Pieces,
    /// How many of them are those of whole epochs, and where these end.
    whole: Option<(usize, Cursor)>,
}

impl Arrived {
    /// Adds a frame that ends here.
    fn push(&mut self, shipped: Shipped, cursor: &Cursor) {
        self.bytes += shipped.bytes.len();
        self.frames.push(shipped);
        if !cursor.is_unfinished {
            self.whole = Some((self.frames.len(), *cursor));
        }
    }

    /// Those of whole epochs, and where they end.
    fn take(&mut self) -> Option<(Vec<Shipped>, Cursor)> {
        let (count, end) = self.whole.take()?;
        let rest = self.frames.split_off(count);
        self.bytes = rest.iter().map(|shipped| shipped.bytes.len()).sum();
        Some((std::mem::replace(&mut self.frames, rest), end))
    }
}

/// A standby, and its place in the log of its primary.
pub struct Standby<D: Disk> {
    files: Files<D>,
    following: Arc<Following<D>>,
    decoder: Decoder,
    is_welcome: bool,
    /// Behind the last frame that was taken, and behind the last one that is durable.
    cursor: Cursor,
    durable: Cursor,
    /// Where that one begins.
    last: (u64, u64),
    file_bytes: u64,
    arrived: Arrived,
    unshown: Unshown,
    /// The tables of this mark come before the next frame.
    coming: Option<(Mark, Vec<u8>)>,
    /// Which standby it is.
    identity: u128,
    /// How many messages it has sent, and the last epoch that it has said to be durable, on this connection.
    sent: u64,
    acknowledged: Option<u64>,
    known: Option<Mark>,
    failed: Option<Trouble>,
    primary_epoch: u64,
    silence: Silence,
}

/// A standby whose files were opened and read.
pub struct StandbyOpening<'r, D: Disk> {
    report: &'r (dyn Fn(Progress) + Sync),
    standby: Standby<D>,
    showing: Showing,
    newest: Option<Newest>,
    found: Manifest,
    threads: usize,
}

impl<'r, D: Disk + Clone> StandbyOpening<'r, D> {
    /// Opens the files of a standby, and reads what its log has up to the last point. `report` is told how far the loading behind it has come.
    ///
    /// # Errors
    /// [`Trouble::Files`].
    pub fn begin(
        files: &Files<D>,
        settings: &Settings,
        report: &'r (dyn Fn(Progress) + Sync),
    ) -> Result<Self, Trouble> {
        let lock = files.lock()?;
        let Some(manifests) = Manifests::open(files)? else { return Err(Error::NoDatabase.into()) };
        let (found, generation) = (manifests.current().clone(), manifests.generation());
        let identity = marker::identity(files)?;
        let known = match marker::read(files)? {
            Marked::Begun => return Err(Error::NoDatabase.into()),
            Marked::Unknown => None,
            Marked::At(mark) => Some(mark),
        };
        let tables = catalog::decode(&found.catalog).map_err(Error::from)?;
        let checkpoints = Checkpoints::open(files, &found, settings.checkpoints)?;
        let (mut tail, mut points) = (Tail::new(&tables, settings.threads)?, Points::new(known));
        checkpoint::carried(files, &found, &mut |logged| points.record(logged))?;
        let mut last = (0, 0);
        let end = read::read_points_to_end(files, &found, generation, &mut |passed| {
            match passed {
                Passed::Frame(header) => points.frame(header),
                Passed::Record(logged) => points.record(logged),
                Passed::Whole(header, _) => {
                    last = (header.place.file, header.place.offset);
                    let closed = points.whole(header).map(|(_, closed)| closed).unwrap_or_default();
                    closed.iter().for_each(|pending| tail.add(pending.logged()));
                }
            }
            true
        })?;
        let Some(end) = end else { return Err(Error::NoDatabase.into()) };
        // No rings take what is meant for the log.
        points.bound(settings.log.memory_bytes);
        let newest = Some(tail.finish()?);
        let clock = Arc::new(SystemClock::new());
        let (log, cursor) = Log::follow(files, &manifests, settings.log, clock, end)?;
        checkpoints.note(&manifests);
        let path = settings.path.clone();
        let (manifests, lock) = (Mutex::new(manifests), Mutex::new(lock));
        let file_bytes = log.bytes_of(cursor.number);
        let following = Arc::new(Following { log, manifests, checkpoints, path, _lock: lock });
        let standby = Standby {
            files: files.clone(),
            following,
            decoder: Decoder::new(most_from_primary()),
            is_welcome: false,
            cursor,
            durable: cursor,
            last,
            file_bytes,
            arrived: Arrived::default(),
            unshown: Unshown::default(),
            coming: None,
            identity,
            sent: 0,
            acknowledged: None,
            known,
            failed: None,
            primary_epoch: cursor.whole,
            silence: Silence::begin(Arc::new(SystemClock::new())),
        };
        let showing = Showing { points, tables, most_bytes: settings.log.shown_bytes };
        Ok(Self { report, standby, showing, newest, found, threads: settings.threads })
    }

    /// The point up to which rows are loaded; `None`: the log has none with its tables, and has to be gone on with first.
    pub fn point(&self) -> Option<Point> {
        let folded = self.found.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
        self.showing.point().filter(|point| point.epoch >= folded)
    }

    /// The tables.
    pub fn catalog(&self) -> &StoredCatalog {
        &self.showing.tables
    }

    /// Hands out the rows, and answers how many there are.
    ///
    /// # Errors
    /// Errors of `sink`, and faults of the rows.
    pub fn load(&mut self, sink: &dyn Load) -> Result<u64, polychron_base::Error> {
        let Some(newest) = self.newest.take() else { return Ok(0) };
        let Standby { files, following, .. } = &self.standby;
        load(newest, files, &self.found, (self.threads, &following.path), self.report, sink)
    }

    /// What follows the primary from now on, and what shows what has come.
    pub fn finish(self) -> (Standby<D>, Showing) {
        (self.standby, self.showing)
    }
}

impl<D: Disk + Clone> Standby<D> {
    /// Its files.
    pub fn following(&self) -> &Arc<Following<D>> {
        &self.following
    }

    /// The last epoch that is durable here, and the last one of which the primary has said that it is durable.
    pub fn epochs(&self) -> (u64, u64) {
        (self.durable.whole, self.primary_epoch.max(self.durable.whole))
    }

    /// For how long nothing has been heard of the primary.
    pub fn silence(&self) -> Duration {
        self.silence.time()
    }

    /// Whether it has stopped following until it is opened again.
    pub fn has_ended(&self) -> bool {
        self.failed.is_some()
    }

    /// A connection begins: what the standby says first.
    ///
    /// # Errors
    /// The error that has ended the standby before.
    pub fn hello(&mut self) -> Result<Vec<u8>, Trouble> {
        self.check()?;
        (self.decoder, self.is_welcome) = (Decoder::new(most_from_primary()), false);
        // An epoch that has not come as a whole comes again.
        (self.arrived, self.coming) = (Arrived::default(), None);
        self.cursor = self.durable;
        self.file_bytes = self.following.log.bytes_of(self.cursor.number);
        (self.sent, self.acknowledged) = (1, None);
        self.silence = Silence::begin(Arc::new(SystemClock::new()));
        let manifests = self.following.manifests();
        let Manifest { database, incarnation, .. } = *manifests.current();
        let (end, last, mark) = (self.cursor, self.last, self.known.unwrap_or_default());
        Ok(encode(&Message::Hello(Hello { database, incarnation, end, last, mark }), 0))
    }

    /// For how long the primary, or this standby, may say nothing.
    pub fn silence_limit(&self) -> Duration {
        self.following.log.silence_limit()
    }

    /// The report to the primary once more, for a standby that takes nothing meanwhile and is there all the same.
    pub fn repeat(&mut self) -> Option<Vec<u8>> {
        self.acknowledged = None;
        self.acknowledgement()
    }

    /// The report to the primary: what is durable here, once it is welcome, whenever that is more, and when the primary has said that it is there.
    pub fn acknowledgement(&mut self) -> Option<Vec<u8>> {
        let framed = self.following.log.framed();
        let epoch = if left_out(ShipStep::AcknowledgeDurable) { self.cursor.whole } else { framed.epoch };
        if !self.is_welcome || self.acknowledged.is_some_and(|said| said >= epoch) {
            return None;
        }
        self.acknowledged = Some(epoch);
        let (standby, incarnation, consistent) = (self.identity, framed.incarnation, framed.consistent);
        self.sent += 1;
        Some(encode(&Message::Durable(Durable { standby, epoch, incarnation, consistent }), self.sent - 1))
    }

    /// What became durable and was not taken before: what is to be shown.
    pub fn take_unshown(&mut self) -> Unshown {
        std::mem::take(&mut self.unshown)
    }

    fn check(&self) -> Result<(), Trouble> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Which database it is, and the highest opening of it that was seen.
    fn seen(&self) -> (DatabaseId, u64) {
        let manifests = self.following.manifests();
        (manifests.current().database, manifests.current().incarnation)
    }

    /// Takes what the primary sends. What becomes durable by it is to be [shown](Self::take_unshown).
    ///
    /// # Errors
    /// [`Trouble`]: the connection ends, and what was taken before counts.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.check()?;
        self.decoder.push(bytes);
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(0));
        let result = match self.take_all(&mut decoder) {
            Err(trouble) if trouble.is_of_standby() => Err(trouble),
            taken => self.keep().and(taken),
        };
        self.silence.note(&decoder);
        match &result {
            Ok(()) => self.decoder = decoder,
            // Room may come back.
            Err(Trouble::Files(error)) if error.is_full() => {}
            Err(trouble) if trouble.is_of_standby() => {
                if matches!(trouble, Trouble::TooFarBehind) && !left_out(ShipStep::MarkBehind) {
                    // If this fails, it is told so once more.
                    let _ = marker::write(&self.files, Marked::Begun);
                }
                self.failed = Some(trouble.clone());
            }
            Err(_) => {}
        }
        result
    }

    fn take_all(&mut self, decoder: &mut Decoder) -> Result<(), Trouble> {
        while let Some(content) = decoder.next()? {
            let message = Message::decode(content).ok_or(Trouble::Garbled("a message is none that a primary sends"))?;
            self.take(&message)?;
        }
        Ok(())
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Trouble> {
        let (database, seen) = self.seen();
        match message {
            Message::Refused(refusal) => Err(refused(*refusal, seen)),
            Message::Welcome { database: other, .. } if *other != database => Err(Trouble::OtherDatabase),
            Message::Welcome { incarnation, .. } if *incarnation < seen && !left_out(ShipStep::RefuseLower) => {
                Err(Trouble::Fenced { primary: *incarnation, seen })
            }
            Message::Welcome { .. } if !self.is_welcome => {
                self.is_welcome = true;
                Ok(())
            }
            Message::Tables { mark, catalog } if self.is_welcome && !self.cursor.is_unfinished => {
                self.coming = Some((*mark, catalog.to_vec()));
                Ok(())
            }
            Message::Frame { file_bytes, frame } if self.is_welcome => self.take_frame(*file_bytes, frame),
            Message::Alive { epoch, .. } if self.is_welcome => {
                self.primary_epoch = self.primary_epoch.max(*epoch);
                // The primary hears that the standby is there, too.
                if !left_out(ShipStep::AnswerAlive) {
                    self.acknowledged = None;
                }
                Ok(())
            }
            _ => Err(Trouble::Garbled("a message is not one that a standby expects")),
        }
    }

    /// Takes the tables that count from the frame with this mark on, which is the next one, or a later one: then the primary no longer knows which
    /// tables there were before, and they have to be those that the standby knows.
    fn take_tables(&mut self, mark: Mark, encoded: &[u8], frame: Mark) -> Result<(), Trouble> {
        let is_same = self.following.manifests().current().catalog == encoded;
        if !is_same && frame < mark && !left_out(ShipStep::KnowTables) {
            return Err(Trouble::TooFarBehind);
        }
        if is_same && self.known.is_some() {
            return Ok(());
        }
        let tables = catalog::decode(encoded).map_err(Error::from)?;
        if !is_same {
            // So that neither these tables nor those before count from a frame on that is not theirs, and they come again if this is interrupted.
            let is_left_out = left_out(ShipStep::MarkUnknown);
            marker::write(&self.files, if is_left_out { Marked::At(mark) } else { Marked::Unknown })?;
            self.known = None;
            self.write(mark.generation, |manifest| manifest.catalog = encoded.to_vec())?;
        }
        marker::write(&self.files, Marked::At(mark))?;
        self.known = Some(mark);
        self.unshown.tables(tables, mark);
        Ok(())
    }

    /// Has the manifest say something else, of a generation that is at least so high. What a checkpoint has it say meanwhile stays.
    fn write(&self, generation: u64, change: impl FnOnce(&mut Manifest)) -> Result<(), Trouble> {
        pass(steps::Point::StandbyWrites);
        let mut manifests = self.following.manifests();
        let mut manifest = manifests.current().clone();
        change(&mut manifest);
        manifests.write_from(manifest, generation)?;
        self.following.checkpoints.note(&manifests);
        self.following.log.note_manifest(manifests.generation());
        Ok(())
    }

    fn take_frame(&mut self, file_bytes: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let damaged = Trouble::Garbled("a frame is damaged");
        let Ok((header, _)) = Frame::peek(bytes) else { return Err(damaged) };
        let (database, seen) = self.seen();
        if header.incarnation < seen && !left_out(ShipStep::RefuseLower) {
            return Err(Trouble::Fenced { primary: header.incarnation, seen });
        }
        let place = Place { database, ..header.place };
        let Ok(frame) = Frame::decode(bytes, place) else { return Err(damaged) };
        if frame.bytes != bytes.len() {
            return Err(damaged);
        }
        if !self.cursor.is_followed_by(&header) && !left_out(ShipStep::FollowPredecessors) {
            return Err(Trouble::OtherHistory);
        }
        let is_here = header.place.file != self.cursor.number || file_bytes == self.file_bytes;
        let end = header.place.offset + bytes.len() as u64;
        if !is_here || end > file_bytes.min(MOST_FILE) || self.arrived.bytes > MOST_EPOCH {
            return Err(Trouble::Garbled("a frame has no room in its log file"));
        }
        let pieces = &mut self.arrived.pieces;
        let has_all = frame.records().all(|record| record.and_then(|record| pieces.take(&record)).is_ok());
        if !has_all || header.last_epoch > self.cursor.whole && pieces.end().is_err() {
            return Err(damaged);
        }
        if let Some((mark, catalog)) = self.coming.take() {
            self.keep()?;
            self.take_tables(mark, &catalog, Mark { incarnation: header.incarnation, generation: header.manifest })?;
        }
        self.file_bytes = file_bytes;
        self.cursor.pass(&header, frame.checksum, bytes.len() as u64);
        let shipped = Shipped { header, checksum: frame.checksum, bytes: bytes.to_vec(), file_bytes };
        self.arrived.push(shipped, &self.cursor);
        if self.arrived.bytes >= MOST_ARRIVED { self.keep() } else { Ok(()) }
    }

    /// What has come of whole epochs becomes durable, at once, and is to be shown then.
    fn keep(&mut self) -> Result<(), Trouble> {
        let Some((frames, end)) = self.arrived.take() else { return Ok(()) };
        let Some(Header { place, incarnation, last_epoch, .. }) = frames.last().map(|last| last.header) else {
            return Ok(());
        };
        let generation = frames.iter().map(|shipped| shipped.header.manifest).max().unwrap_or(0);
        if incarnation > self.seen().1 || generation > self.following.manifests().generation() {
            self.write(generation, |manifest| manifest.incarnation = manifest.incarnation.max(incarnation))?;
        }
        if left_out(ShipStep::AppendFirst) {
            self.unshown.frames(frames.clone());
        }
        self.append(&frames)?;
        (self.durable, self.last) = (end, (place.file, place.offset));
        self.primary_epoch = self.primary_epoch.max(last_epoch);
        if !left_out(ShipStep::AppendFirst) {
            self.unshown.frames(frames);
        }
        Ok(())
    }

    fn append(&self, frames: &[Shipped]) -> Result<(), Trouble> {
        self.following.log.make_room_for(frames)?;
        let appended = self.following.log.append(frames);
        appended.map_err(|stop: Stop| Trouble::Stopped(polychron_base::Error::from(stop).to_string()))
    }
}
