//! The view that a standby shows its readers: the state at consistent points, made of what is durable here.

use std::sync::{Arc, PoisonError};

use polychron_engine::definitions::StoredCatalog;
use polychron_schema::KeyScratch;
use polychron_sync::Mutex;

use super::Trouble;
use super::message::Mark;
use super::points::{Pending, Point, Points, is_closed};
use crate::error::Error;
use crate::flush::flusher::Shipped;
use crate::frame::{Change, Frame, changes_of};
use crate::read::Logged;
use crate::recover::{Batch, Sink, Tail};

/// Makes what a point closes visible to readers, at once.
pub trait Apply {
    /// These are the tables from now on, and this has changed since the last point.
    ///
    /// # Errors
    /// The error that ends the standby until it is opened again.
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

    /// The result of what was gathered.
    fn of(tail: Option<Tail>) -> Result<Self, Error> {
        let Some(tail) = tail else { return Ok(Self::default()) };
        let gathered = Gathered::default();
        tail.finish()?.changes(&gathered)?;
        Ok(gathered.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Records that are closed and not applied yet, and their point.
#[derive(Default)]
struct Closed {
    tail: Option<Tail>,
    last: Option<Point>,
    bytes: usize,
}

impl Closed {
    /// Adds a record, of these tables, when so many bytes are to be expected in all.
    fn add(&mut self, logged: Logged<'_>, tables: &StoredCatalog, bytes: usize) -> Result<(), Error> {
        let tail = match &mut self.tail {
            Some(tail) => tail,
            none => none.insert(Tail::of_few(tables, bytes)?),
        };
        tail.add(logged);
        Ok(())
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
        let mut words = Vec::new();
        for &end in ends {
            let bytes = &encoded[begin..end];
            begin = end;
            match changes_of(bytes).next() {
                Some(Ok(Change::Put { row, .. })) => {
                    all.keys.extend_from_slice(batch.key_of_encoded(row, &mut words, &mut scratch)?);
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

/// Frames that are durable at a standby and not shown yet, in the sequence in which they came.
#[derive(Default)]
pub struct Unshown {
    events: Vec<Event>,
    bytes: usize,
}

enum Event {
    /// These are the tables from the first frame on that has this mark, or a later one.
    Tables(StoredCatalog, Mark),
    /// Frames of whole epochs.
    Frames(Vec<Shipped>),
}

impl Unshown {
    pub(super) fn tables(&mut self, tables: StoredCatalog, mark: Mark) {
        self.events.push(Event::Tables(tables, mark));
    }

    pub(super) fn frames(&mut self, frames: Vec<Shipped>) {
        self.bytes += frames.iter().map(|shipped| shipped.bytes.len()).sum::<usize>();
        self.events.push(Event::Frames(frames));
    }

    /// Takes in what came behind it.
    pub fn append(&mut self, mut other: Self) {
        self.events.append(&mut other.events);
        self.bytes += other.bytes;
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How long its frames are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The state that a standby shows, and the changes that wait for a point to be shown.
pub struct Showing {
    pub(super) points: Points,
    pub(super) tables: StoredCatalog,
    /// How many bytes of frames are applied at once.
    pub(super) most_bytes: usize,
}

impl Showing {
    /// The last point that counts.
    pub fn point(&self) -> Option<Point> {
        self.points.last
    }

    /// Why it shows nothing more until it is opened again, although it goes on receiving.
    pub fn lapse(&self) -> Option<&'static str> {
        let why = "more waits for transactions that are open at the primary than there is memory for: it receives, and shows that when it is opened again";
        self.points.is_lapsed.then_some(why)
    }

    /// Applies what has come up to its last point, in as few steps as tables and the bytes of a step allow.
    ///
    /// # Errors
    /// [`Trouble`] that ends the standby.
    pub fn show(&mut self, unshown: Unshown, apply: &mut dyn Apply) -> Result<(), Trouble> {
        let (mut closed, bytes) = (Closed::default(), unshown.bytes);
        for event in unshown.events {
            match event {
                Event::Frames(frames) => {
                    for epoch in frames.chunk_by(|shipped, _| shipped.header.last_epoch < shipped.header.first_epoch) {
                        self.take(epoch, &mut closed, bytes.min(self.most_bytes), apply)?;
                    }
                }
                Event::Tables(tables, mark) => {
                    self.apply(std::mem::take(&mut closed), apply)?;
                    self.tables = tables;
                    self.points.await_tables(mark);
                }
            }
        }
        self.apply(closed, apply)
    }

    /// Takes the frames of an epoch, and adds what it closes to what is closed by those before, of which so many bytes are to be expected. If that were too
    /// much, these are applied first. What is closed by the epoch that it is of waits for nothing, and is not copied for that.
    fn take(
        &mut self,
        epoch: &[Shipped],
        closed: &mut Closed,
        expected: usize,
        apply: &mut dyn Apply,
    ) -> Result<(), Trouble> {
        epoch.iter().for_each(|shipped| self.points.frame(&shipped.header));
        let Some(last) = epoch.last().map(|shipped| shipped.header) else { return Ok(()) };
        let counts = self.points.counts(&last);
        // They were checked when they were received.
        let decoded: Vec<_> = epoch.iter().filter_map(|shipped| Frame::of_checked(&shipped.bytes)).collect();
        let records = decoded.iter().flat_map(|frame| {
            let incarnation = frame.header.incarnation;
            frame.records().flatten().map(move |record| Logged { incarnation, record })
        });
        let passes = |logged: &Logged<'_>| counts && is_closed(&last, logged.incarnation, logged.record.order);
        for logged in records.clone() {
            if passes(&logged) { self.points.pass(logged.record.order) } else { self.points.record(logged) }
        }
        // What had to wait may have been too much: then nothing of this epoch counts.
        let Some((point, waited)) = self.points.whole(&last) else { return Ok(()) };
        let framed = epoch.iter().map(|shipped| shipped.bytes.len());
        let bytes: usize = framed.chain(waited.iter().map(Pending::bytes)).sum();
        if closed.bytes + bytes > self.most_bytes {
            self.apply(std::mem::take(closed), apply)?;
        }
        closed.bytes += bytes;
        waited.iter().try_for_each(|pending| closed.add(pending.logged(), &self.tables, expected))?;
        records.filter(passes).try_for_each(|logged| closed.add(logged, &self.tables, expected))?;
        closed.last = Some(point);
        Ok(())
    }

    fn apply(&self, closed: Closed, apply: &mut dyn Apply) -> Result<(), Trouble> {
        let Closed { tail, last, .. } = closed;
        let Some(point) = last else { return Ok(()) };
        let changes = Changes::of(tail)?;
        apply.apply(&self.tables, &changes, &point).map_err(|error| Trouble::Apply(Arc::new(error)))
    }
}
