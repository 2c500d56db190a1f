//! The log of an open database: rings for what commits hand over, flushes that make it durable, and waiting for them.
//!
//! `docs/durability.md` has the invariants.

mod finished;
pub(crate) mod flusher;
mod follow;
mod lost;
mod options;
pub(crate) mod pool;
pub(crate) mod replicas;
mod room;
mod signal;
mod threads;
mod turn;

use std::sync::{Arc, PoisonError};

use polychron_base::clock::{Clock, Duration};
use polychron_base::{Error, TableId};
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::{self, Change, Durability, KeyRange, Ticket};
use polychron_schema::KeyExtractor;
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use polychron_sync::{Condvar, Mutex};

use crate::disk::Disk;
use crate::error::Stop;
use crate::frame::{Edit, Order};
use crate::manifest::{self, Manifest, Manifests};
use crate::ring::{Rings, Staged, Unstaged};
use crate::steps::Step;
use finished::Finished;
use flusher::{Flusher, Framed, Mark};
use lost::Lost;
pub use options::Options;
use pool::{Live, Pool};
use replicas::Replicas;
pub use replicas::Replication;
use signal::Signal;
pub use threads::Threads;
use turn::Turn;

/// After so long an idle log writes down what is durable, at the latest after twice as long.
const IDLE: Duration = Duration::from_millis(10);
/// How long a flush whose time has not come sleeps between two looks at whether it is urgent.
const LOOK: Duration = Duration::from_millis(2);
/// How long what was sealed may lie in the rings while nobody waits for it.
fn period(durability: Durability) -> Option<Duration> {
    match durability {
        Durability::Immediate | Durability::Group(_) => Some(IDLE),
        Durability::Eventual(period) => Some(period),
        Durability::OnCheckpoint => None,
    }
}

/// Up to which order all transactions of a protocol have ended.
pub type Ended = Box<dyn Fn() -> Order + Send + Sync>;

/// The log of an open database.
///
/// A worker's number is below the options' `workers`, and one thread's at a time.
pub struct Log<D: Disk> {
    rings: Rings,
    turn: Turn<Flusher<D>>,
    pool: Pool<D>,
    finished: Finished,
    replicas: Replicas,
    framed: Mutex<Framed>,
    /// That has become another one.
    framed_changed: Condvar,
    /// It is a standby's: frames come from its primary.
    is_following: bool,
    ended: Ended,
    options: Options,
    clock: Arc<dyn Clock>,
    /// The generation of the manifest that counts.
    manifest: AtomicU64,
    /// The last epoch with records that is durable, while no frame says so; else 0.
    owed: AtomicU64,
    /// How many bytes the present file has behind the last frame.
    rest: AtomicU64,
    /// The room ahead may not be enough for all that may be sealed, and nobody has looked yet whether there is more.
    is_short: AtomicBool,
    is_full: AtomicBool,
    is_stopped: AtomicBool,
    lost: Mutex<Lost>,
    /// How many threads wait for a flush that is not to wait for its time.
    urgent: AtomicUsize,
    /// Calls the thread that flushes when rings fill.
    filling: Arc<Signal>,
}

/// The parts of a log, when it is opened.
pub(crate) struct Parts<D: Disk> {
    pub(crate) flusher: Flusher<D>,
    pub(crate) pool: Pool<D>,
    pub(crate) ended: Ended,
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) manifest: u64,
}

impl<D: Disk> Log<D> {
    pub(crate) fn new(parts: Parts<D>) -> Self {
        let Parts { flusher, pool, ended, options, clock, manifest } = parts;
        let (durable, framed) = (flusher.whole(), flusher.framed(Order::default()));
        let rest = AtomicU64::new(flusher.rest());
        pool.begin();
        Self {
            rings: Rings::new(options.workers, durable + 1, options.limits()),
            turn: Turn::new(flusher, durable),
            pool,
            finished: Finished::default(),
            replicas: Replicas::new(options.replicas, options.replica_limit, durable),
            framed: Mutex::new(framed),
            framed_changed: Condvar::new(),
            is_following: false,
            ended,
            options,
            clock,
            manifest: AtomicU64::new(manifest),
            owed: AtomicU64::new(0),
            rest,
            is_short: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            lost: Mutex::new(Lost::Unknown),
            urgent: AtomicUsize::new(0),
            filling: Arc::default(),
        }
    }

    #[cold]
    fn unstaged(&self, refusal: Unstaged) -> Error {
        match refusal {
            Unstaged::Refused(refused) => Error::wrong_value(refused.to_string()),
            Unstaged::TooLong { bytes } => Error::transaction_too_long(bytes, self.options.transaction_bytes),
            Unstaged::OutOfMemory { requested, used } => {
                Error::out_of_memory(requested, used, self.options.memory_bytes)
            }
        }
    }

    /// Waits until all that was sealed so far is durable.
    ///
    /// # Errors
    /// As of [`wait`](redo::Log::wait).
    pub fn flush(&self) -> Result<(), Error> {
        if self.is_following {
            return Ok(());
        }
        self.at_once(|| self.wait_with(self.rings.current(), false))
    }

    /// Flushes what was sealed, unless all is durable, so that rings have room.
    fn make_room(&self) {
        if self.rings.last_sealed() > self.durable() {
            // Whoever waits or begins learns of a failure.
            let _ = self.at_once(|| self.wait_with(self.rings.last_sealed(), false));
        }
    }

    /// Waits until a worker's ring has room. A flush that is under way may have freed it already; if not, one more does.
    #[cold]
    fn await_room(&self, worker: usize) {
        let closed = self.rings.current() - 1;
        if closed > self.durable() {
            let _ = self.at_once(|| self.wait_with(closed, false));
        }
        if self.rings.is_behind(worker) {
            let _ = self.flush();
        }
    }

    /// From now on no flush waits for its time to begin.
    fn hurry(&self) {
        self.urgent.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets no flush wait for its time to begin, so that neither full rings nor changes of tables nor the end of the log wait with it.
    fn at_once<O>(&self, flush: impl FnOnce() -> O) -> O {
        self.urgent.fetch_add(1, Ordering::Relaxed);
        let flushed = flush();
        self.urgent.fetch_sub(1, Ordering::Relaxed);
        flushed
    }

    /// The epoch up to which all is durable.
    pub fn durable(&self) -> u64 {
        self.turn.durable()
    }

    /// The memory that rings take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.rings.memory_bytes()
    }

    /// Stops the log, as a failed write does: what is on the disk is in doubt.
    pub(crate) fn stop(&self, why: &crate::disk::Error) {
        // No epoch has this number, so it ends with the failure.
        let _ = self.turn.wait(u64::MAX, |flusher| {
            self.note_lost(flusher.lowest(), flusher.take_lost());
            Err(Stop::Disk(why.clone()))
        });
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// A manifest of this generation is durable.
    pub(crate) fn note_manifest(&self, generation: u64) {
        polychron_sync::raise(&self.manifest, generation, Ordering::Relaxed);
    }

    fn wait_with(&self, epoch: u64, is_wanted: bool) -> Result<(), Error> {
        self.turn.wait(epoch, |flusher| self.flush_with(flusher, is_wanted)).map_err(|why| {
            self.is_stopped.store(true, Ordering::Relaxed);
            why.into()
        })
    }

    /// One flush: of what was sealed, or of an empty frame if that is wanted.
    fn flush_with(&self, flusher: &mut Flusher<D>, is_wanted: bool) -> Result<u64, Stop> {
        let flushed = self.try_flush(flusher, is_wanted);
        if flushed.is_err() {
            self.note_lost(flusher.lowest(), flusher.take_lost());
        }
        flushed
    }

    fn try_flush(&self, flusher: &mut Flusher<D>, is_wanted: bool) -> Result<u64, Stop> {
        self.pace(flusher);
        let mark = || Mark { consistent: (self.ended)(), manifest: self.manifest.load(Ordering::Relaxed) };
        let (epoch, mark, has_records) = flusher.close(&self.rings, mark, &self.pool)?;
        if has_records || is_wanted {
            flusher.finish(epoch, mark, &self.pool)?;
            self.note_framed(flusher.framed(mark.consistent));
            self.rest.store(flusher.rest(), Ordering::Relaxed);
            self.is_short.store(self.room() < self.comfort() || self.pool.has_grown(), Ordering::Relaxed);
            // The frame says what was durable before it.
            self.owed.store(if has_records { epoch } else { 0 }, Ordering::Relaxed);
        }
        if self.replicas.wanted() == 0 {
            self.finished.raise(mark.consistent);
        }
        self.replicas.flushed(epoch, self.clock.now_ns());
        Ok(epoch)
    }

    /// Lets a flush not begin too soon behind the last one.
    fn pace(&self, flusher: &mut Flusher<D>) {
        if let Durability::Group(time) = self.options.durability {
            let early_ns = (flusher.begun_ns + time.as_nanos() as u64).saturating_sub(self.clock.now_ns());
            let mut left = Duration::from_nanos(early_ns);
            while !left.is_zero() && self.urgent.load(Ordering::Relaxed) == 0 {
                let part = left.min(LOOK);
                std::thread::sleep(part);
                left -= part;
            }
            flusher.begun_ns = self.clock.now_ns();
        }
    }

    /// Flushes what nobody waits for, and writes down what is durable once the log is idle: what another thread does again and again.
    pub fn tick(&self, beat: &mut Beat) {
        let now_ns = self.clock.now_ns();
        let is_over = |since_ns: u64, time: Duration| now_ns.saturating_sub(since_ns) >= time.as_nanos() as u64;
        let sealed = self.rings.last_sealed();
        let period = period(self.options.durability);
        if sealed > self.durable() && period.is_some_and(|period| is_over(beat.flushed_ns, period)) {
            beat.flushed_ns = now_ns;
            // Whoever waits or begins learns of a failure.
            let _ = self.wait_with(sealed, false);
        }
        let owed = self.owed.load(Ordering::Relaxed);
        if beat.owed != owed {
            (beat.owed, beat.owed_ns) = (owed, now_ns);
        } else if owed > 0 && is_over(beat.owed_ns, IDLE) {
            self.carry();
        }
    }

    /// Writes down that all so far is durable, if no frame says so.
    fn carry(&self) {
        if self.owed.load(Ordering::Relaxed) > 0 && !left_out(Step::CarryDurable) {
            let _ = self.wait_with(self.rings.current(), true);
        }
    }

    /// Makes all that was sealed durable, and writes down that it is, before the log goes.
    ///
    /// # Errors
    /// As of [`wait`](redo::Log::wait).
    pub fn close(&self) -> Result<(), Error> {
        self.pool.give_up();
        self.flush()?;
        self.at_once(|| self.carry());
        Ok(())
    }

    /// Writes down in the manifest how far the log goes, when it was closed. No frame tells of this manifest: who knows the one before knows enough.
    ///
    /// # Errors
    /// Errors of the manifest. All is durable nevertheless; how long the log is only its frames tell then.
    pub fn note_end(&self, manifests: &mut Manifests<D>) -> Result<(), manifest::Error>
    where
        D: Clone,
    {
        let durable = self.framed().epoch;
        if durable <= manifests.current().durable || left_out(Step::NoteEnd) {
            return Ok(());
        }
        let next = Manifest { durable, ..manifests.current().clone() };
        manifests.write(next)
    }

    /// The last frame that is durable. What is before it is no longer written, until its files are [released](Self::release).
    pub(crate) fn framed(&self) -> Framed {
        *self.framed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that have something, those of frames that were durable before among them.
    pub(crate) fn live(&self) -> Vec<Live> {
        self.pool.live()
    }

    /// How long the log is from the file of this number to a frame.
    pub(crate) fn bytes_between(&self, first: u64, last: &Framed) -> u64 {
        self.pool.bytes(first..last.number) + last.offset
    }

    /// How long the file is in which a frame lies.
    pub(crate) fn file_bytes(&self, last: &Framed) -> u64 {
        self.pool.bytes(last.number..last.number + 1)
    }

    /// The files of the last checkpoint are so long: so the next one may need as much.
    pub(crate) fn note_checkpoint(&self, bytes: u64) {
        self.pool.note_checkpoint(bytes);
    }

    /// Gives up room that files hold, for a checkpoint that finds none. Answers whether there was any.
    pub(crate) fn give_up_room(&self) -> bool {
        self.pool.give_up_room().unwrap_or(false)
    }

    /// How long the log file of this number is; 0 if it is not there.
    pub(crate) fn bytes_of(&self, number: u64) -> u64 {
        self.pool.bytes(number..number + 1)
    }

    /// A standby that has said nothing for so long is gone.
    pub(crate) fn silence_limit(&self) -> Duration {
        self.options.silence_limit
    }

    /// The clock by which it measures.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The log file that recovery has to begin with, if all up to this epoch is found elsewhere. Files before may be
    /// [released](Self::release).
    pub fn first_needed(&self, epoch: u64) -> Option<u64> {
        self.pool.first_needed(epoch)
    }

    /// The log files below this number are needed no longer: a manifest that begins with it, of this generation, is durable.
    ///
    /// # Errors
    /// The disk's error. The files are removed when the database is opened again.
    pub fn release(&self, first_log_file: u64, generation: u64) -> Result<(), crate::disk::Error> {
        self.note_manifest(generation);
        self.pool.release(first_log_file)?;
        // Whoever was refused for a lack of room need not wait for a thread to look.
        if self.is_full() {
            self.make_files();
        }
        Ok(())
    }
}

impl<D: Disk> redo::Log for Log<D> {
    #[inline]
    fn admit(&self, worker: usize) -> Result<(), Error> {
        if self.is_short.load(Ordering::Relaxed) {
            self.make_files();
        }
        // What does not write is told of nothing, and waits for nothing that may not come.
        if self.rings.is_behind(worker) && !self.refuses() && !left_out(Step::AwaitRoom) {
            self.await_room(worker);
        }
        Ok(())
    }

    #[inline]
    fn stage(&self, worker: usize, table: TableId, key: &[u8], change: Change<'_>) -> Result<(), Error> {
        if self.refuses() {
            self.refuse(change)?;
        }
        let range;
        let edit = match change {
            Change::Put(words) => Edit::Put(words),
            Change::Patch { word, words } => {
                range = [(word, words)];
                Edit::Patch(key, &range)
            }
            Change::Delete => Edit::Delete(key),
        };
        match self.rings.stage(worker, table.position() as u32, &edit) {
            Ok(Staged::InRing) => Ok(()),
            Ok(Staged::Long) => self.find_room(change),
            Err(refusal) => Err(self.unstaged(refusal)),
        }
    }

    fn discard(&self, worker: usize) {
        self.rings.discard(worker);
    }

    #[inline]
    fn seal(&self, worker: usize, order: Order) -> Ticket {
        match self.rings.seal(worker, order) {
            0 => self.ticket(order),
            epoch => {
                // Acquire: pairs with the release in `note_lost`. Whoever has not found this in its ring has had the ring's latch before.
                if self.is_stopped.load(Ordering::Acquire) {
                    self.lose(order);
                }
                if self.rings.is_filling(worker) {
                    self.filling.call();
                }
                Ticket(epoch)
            }
        }
    }

    #[inline]
    fn ticket(&self, read: Order) -> Ticket {
        if left_out(Step::AwaitSealed) {
            return Ticket::DONE;
        }
        match redo::Log::sealed(self) {
            Ticket::DONE => Ticket::DONE,
            sealed => {
                let is_kept = || self.is_stopped.load(Ordering::Relaxed) && self.is_kept(read);
                let is_certain = match self.replicas.wanted() {
                    0 => self.finished.covers(read) || is_kept(),
                    _ => self.replicas.replicated() >= self.replicas.opened() && self.finished.covers(read),
                };
                if is_certain { Ticket::DONE } else { sealed }
            }
        }
    }

    #[inline]
    fn sealed(&self) -> Ticket {
        let (mut sealed, mut certain) = (self.rings.last_sealed(), self.turn.durable());
        if self.replicas.wanted() > 0 {
            (sealed, certain) = (sealed.max(self.replicas.opened()), certain.min(self.replicas.replicated()));
        }
        if sealed <= certain { Ticket::DONE } else { Ticket(sealed) }
    }

    fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        self.wait_with(ticket.0, false)?;
        let replicated = self.replicas.wait(ticket.0, self.durable(), &*self.clock);
        replicated.map_err(|few| Error::not_replicated(few.0, self.options.replicas))
    }

    fn durability(&self) -> Durability {
        self.options.durability
    }

    #[inline]
    fn has_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn is_lost(&self, table: TableId, range: KeyRange<'_>, extractor: &KeyExtractor) -> bool {
        // What is durable here may be at too few standbys.
        let is_replicated =
            self.replicas.wanted() == 0 || self.replicas.replicated() >= self.durable().max(self.replicas.opened());
        !is_replicated || !self.keeps_range(table.position() as u32, range, extractor)
    }

    /// Manifests have definitions, which a log does not write: [`Durable`](crate::Durable) does.
    fn define(&self, _: &StoredCatalog) -> Result<(), Error> {
        Ok(())
    }
}

/// The state when the log's thread looked last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beat {
    flushed_ns: u64,
    owed: u64,
    owed_ns: u64,
}
