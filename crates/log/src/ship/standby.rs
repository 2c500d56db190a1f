//! What a standby does: it takes frames that follow, makes them durable, and has applied what a consistent point closes.

use std::sync::{Arc, PoisonError};

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::mutations::{left_out, pass};
use polychron_schema::KeyScratch;
use polychron_sync::{Mutex, MutexGuard};

use super::marker::{self, Marked};
use super::message::{Decoder, Hello, Mark, Message, encode, most_from_primary};
use super::points::{Pending, Point, Points};
use super::sender::Source;
use super::{MOST_ARRIVED, MOST_EPOCH, MOST_FILE, Trouble, refused};
use crate::DatabaseId;
use crate::catalog;
use crate::checkpoint::{self, Checkpoints};
use crate::disk::{Disk, Files};
use crate::durable::{Load, Progress, Settings, load};
use crate::error::{Error, Stop};
use crate::flush::Log;
use crate::flush::flusher::Shipped;
use crate::frame::{Change, Frame, Header, Pieces, Place, changes_of};
use crate::manifest::{Manifest, Manifests};
use crate::read::{self, Cursor, Passed};
use crate::recover::{Batch, Newest, Sink, Tail};
use crate::steps::{self, ShipStep};

/// Makes what a point closes visible to readers, at once.
pub trait Apply {
    /// These are the tables from now on, and this has changed since the last point.
    ///
    /// # Errors
    /// What ends the standby until it is opened again.
    fn apply(&mut self, tables: &StoredCatalog, changes: &Changes, point: &Point) -> Result<(), polychron_base::Error>;
}

/// One change of each key.
#[derive(Debug, Default)]
pub struct Changes {
    keys: Vec<u8>,
    changes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Changes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The changes, each with the encoded key of its row, those of one table together.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Change<'_>)> {
        let mut begin = (0, 0);
        self.ends.iter().filter_map(move |&(key, change)| {
            let (key_bytes, bytes) = (&self.keys[begin.0..key], &self.changes[begin.1..change]);
            begin = (key, change);
            // They were encoded here.
            changes_of(bytes).next().and_then(Result::ok).map(|change| (key_bytes, change))
        })
    }

    /// The result of some records, of these tables.
    fn of(closed: &[Pending], tables: &StoredCatalog) -> Result<Self, Error> {
        if closed.is_empty() {
            return Ok(Self::default());
        }
        let mut tail = Tail::of_few(tables, closed.iter().map(Pending::bytes).sum())?;
        closed.iter().for_each(|pending| tail.add(pending.logged()));
        let gathered = Gathered::default();
        tail.finish()?.changes(&gathered)?;
        Ok(gathered.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Default)]
struct Gathered(Mutex<Changes>);

impl Sink for Gathered {
    type Error = Error;
    const ENCODED: bool = true;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let all = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ((encoded, ends), mut begin, mut scratch) = (batch.encoded(), 0, KeyScratch::new());
        for &end in ends {
            let bytes = &encoded[begin..end];
            begin = end;
            match changes_of(bytes).next() {
                Some(Ok(Change::Put { row, .. })) => {
                    let words: Vec<u64> = row.collect();
                    all.keys.extend_from_slice(batch.key_of(&words, &mut scratch)?);
                }
                Some(Ok(Change::Patch { key, .. } | Change::Delete { key, .. })) => all.keys.extend_from_slice(key),
                _ => return Err(Error::Record),
            }
            all.changes.extend_from_slice(bytes);
            all.ends.push((all.keys.len(), all.changes.len()));
        }
        Ok(())
    }
}

/// The files of a standby that is open.
pub struct Following<D: Disk> {
    log: Log<D>,
    manifests: Mutex<Manifests<D>>,
    checkpoints: Checkpoints<D>,
    path: String,
    _lock: Mutex<D::Lock>,
}

impl<D: Disk + Clone> Following<D> {
    /// What others are sent of it.
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

    /// What errors call the standby.
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
    points: Points,
    /// The tables of this mark come before the next frame.
    coming: Option<(Mark, Vec<u8>)>,
    tables: StoredCatalog,
    known: Option<Mark>,
    failed: Option<Trouble>,
    primary_epoch: u64,
    clock: SystemClock,
    heard_ns: u64,
}

/// A standby whose files were opened and read.
pub struct StandbyOpening<'r, D: Disk> {
    report: &'r (dyn Fn(Progress) + Sync),
    standby: Standby<D>,
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
            points,
            coming: None,
            tables,
            known,
            failed: None,
            primary_epoch: cursor.whole,
            clock: SystemClock::new(),
            heard_ns: 0,
        };
        Ok(Self { report, standby, newest, found, threads: settings.threads })
    }

    /// The point up to which rows are loaded; `None`: the log has none with its tables, and has to be gone on with first.
    pub fn point(&self) -> Option<Point> {
        let folded = self.found.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
        self.standby.points.last.filter(|point| point.epoch >= folded)
    }

    /// The tables.
    pub fn catalog(&self) -> &StoredCatalog {
        &self.standby.tables
    }

    /// Hands out the rows, and answers how many there are.
    ///
    /// # Errors
    /// What `sink` says, and what is wrong with the rows.
    pub fn load(&mut self, sink: &dyn Load) -> Result<u64, polychron_base::Error> {
        let Some(newest) = self.newest.take() else { return Ok(0) };
        let Standby { files, following, .. } = &self.standby;
        load(newest, files, &self.found, (self.threads, &following.path), self.report, sink)
    }

    /// What follows the primary from now on.
    pub fn finish(self) -> Standby<D> {
        self.standby
    }
}

impl<D: Disk + Clone> Standby<D> {
    /// Its files.
    pub fn following(&self) -> &Arc<Following<D>> {
        &self.following
    }

    /// The last point that counts.
    pub fn point(&self) -> Option<Point> {
        self.points.last
    }

    /// The last epoch that is durable here, and the last one of which the primary has said that it is durable.
    pub fn epochs(&self) -> (u64, u64) {
        (self.durable.whole, self.primary_epoch.max(self.durable.whole))
    }

    /// Why it shows nothing more until it is opened again, although it goes on receiving.
    pub fn lapse(&self) -> Option<&'static str> {
        let why = "more waits for transactions that are open at the primary than there is memory for: it receives, and shows that when it is opened again";
        self.points.is_lapsed.then_some(why)
    }

    /// For how long nothing has been heard of the primary.
    pub fn silence(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns().saturating_sub(self.heard_ns))
    }

    /// Whether it has stopped following until it is opened again.
    pub fn has_ended(&self) -> bool {
        self.failed.is_some()
    }

    /// A connection begins: what the standby says first.
    ///
    /// # Errors
    /// What has ended the standby before.
    pub fn hello(&mut self) -> Result<Vec<u8>, Trouble> {
        self.check()?;
        (self.decoder, self.is_welcome) = (Decoder::new(most_from_primary()), false);
        // An epoch that has not come as a whole comes again.
        (self.arrived, self.coming) = (Arrived::default(), None);
        self.cursor = self.durable;
        self.file_bytes = self.following.log.bytes_of(self.cursor.number);
        self.heard_ns = self.clock.now_ns();
        let manifests = self.following.manifests();
        let Manifest { database, incarnation, .. } = *manifests.current();
        let (end, last, mark) = (self.cursor, self.last, self.known.unwrap_or_default());
        Ok(encode(&Message::Hello(Hello { database, incarnation, end, last, mark }), 0))
    }

    fn check(&self) -> Result<(), Trouble> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Which database it is, and the highest opening of it that was seen.
    fn seen(&self) -> (DatabaseId, u64) {
        let manifests = self.following.manifests();
        (manifests.current().database, manifests.current().incarnation)
    }

    /// Takes what the primary sends. What becomes visible by it goes to `apply`, all at once.
    ///
    /// # Errors
    /// [`Trouble`]: the connection ends, and what was taken before counts.
    pub fn receive(&mut self, bytes: &[u8], apply: &mut dyn Apply) -> Result<(), Trouble> {
        self.check()?;
        self.decoder.push(bytes);
        self.heard_ns = self.clock.now_ns();
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(0));
        let result = match self.take_all(&mut decoder, apply) {
            Err(trouble) if trouble.is_of_standby() => Err(trouble),
            taken => self.keep(apply).and(taken),
        };
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

    fn take_all(&mut self, decoder: &mut Decoder, apply: &mut dyn Apply) -> Result<(), Trouble> {
        while let Some(content) = decoder.next()? {
            let message = Message::decode(content).ok_or(Trouble::Garbled("a message is none that a primary sends"))?;
            self.take(&message, apply)?;
        }
        Ok(())
    }

    fn take(&mut self, message: &Message<'_>, apply: &mut dyn Apply) -> Result<(), Trouble> {
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
            Message::Frame { file_bytes, frame } if self.is_welcome => self.take_frame(*file_bytes, frame, apply),
            Message::Alive { epoch, .. } if self.is_welcome => {
                self.primary_epoch = self.primary_epoch.max(*epoch);
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
        (self.tables, self.known) = (tables, Some(mark));
        self.points.await_tables(mark);
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

    fn take_frame(&mut self, file_bytes: u64, bytes: &[u8], apply: &mut dyn Apply) -> Result<(), Trouble> {
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
            self.keep(apply)?;
            self.take_tables(mark, &catalog, Mark { incarnation: header.incarnation, generation: header.manifest })?;
        }
        self.file_bytes = file_bytes;
        self.cursor.pass(&header, frame.checksum, bytes.len() as u64);
        let shipped = Shipped { header, checksum: frame.checksum, bytes: bytes.to_vec(), file_bytes };
        self.arrived.push(shipped, &self.cursor);
        if self.arrived.bytes >= MOST_ARRIVED { self.keep(apply) } else { Ok(()) }
    }

    /// What has come of whole epochs becomes durable, at once, and then what the last point of it closes is applied.
    fn keep(&mut self, apply: &mut dyn Apply) -> Result<(), Trouble> {
        let Some((frames, end)) = self.arrived.take() else { return Ok(()) };
        let Some(Header { place, incarnation, last_epoch, .. }) = frames.last().map(|last| last.header) else {
            return Ok(());
        };
        let generation = frames.iter().map(|shipped| shipped.header.manifest).max().unwrap_or(0);
        if incarnation > self.seen().1 || generation > self.following.manifests().generation() {
            self.write(generation, |manifest| manifest.incarnation = manifest.incarnation.max(incarnation))?;
        }
        if !left_out(ShipStep::AppendFirst) {
            self.append(&frames)?;
        }
        (self.durable, self.last) = (end, (place.file, place.offset));
        self.primary_epoch = self.primary_epoch.max(last_epoch);
        self.show(&frames, apply)?;
        if left_out(ShipStep::AppendFirst) {
            self.append(&frames)?;
        }
        Ok(())
    }

    fn append(&self, frames: &[Shipped]) -> Result<(), Trouble> {
        self.following.log.make_room_for(frames)?;
        let appended = self.following.log.append(frames);
        appended.map_err(|stop: Stop| Trouble::Stopped(polychron_base::Error::from(stop).to_string()))
    }

    /// Applies what the last point of these epochs closes.
    fn show(&mut self, frames: &[Shipped], apply: &mut dyn Apply) -> Result<(), Trouble> {
        let (mut closed, mut last) = (Vec::new(), None);
        for epoch in frames.chunk_by(|shipped, _| shipped.header.last_epoch < shipped.header.first_epoch) {
            epoch.iter().for_each(|shipped| self.points.frame(&shipped.header));
            for Shipped { header, bytes, .. } in epoch {
                let Ok(frame) = Frame::decode(bytes, header.place) else { continue };
                let incarnation = header.incarnation;
                frame.records().flatten().for_each(|record| self.points.record(read::Logged { incarnation, record }));
            }
            if let Some((point, pending)) = epoch.last().and_then(|shipped| self.points.whole(&shipped.header)) {
                closed.extend(pending);
                last = Some(point);
            }
        }
        let Some(point) = last else { return Ok(()) };
        let changes = Changes::of(&closed, &self.tables)?;
        drop(closed);
        apply.apply(&self.tables, &changes, &point).map_err(|error| Trouble::Apply(Arc::new(error)))
    }
}
