//! The newest state of each row, of what the log has behind a checkpoint, and of the checkpoint.
//!
//! A [`Tail`] takes the records of a log in any sequence, and keeps what counts of each key: the newest row that was put, or that it was deleted, and
//! patches that are newer. [`Tail::finish`] gives what it has gathered as [`Newest`], through which a checkpoint's rows are passed, so that each row
//! leaves once, to a [`Sink`]. `docs/durability.md` has the rules.
//!
//! Keys belong to parts, by their hashes. Each thread decodes records of its own, and hands their changes to the parts, in blocks. A part has so few keys
//! that they lie in a cache when it takes its changes in, which it does late: when its rows are wanted, or when many changes wait. Changes stay encoded
//! until their row leaves, so that memory is in proportion to the log.

mod arena;
mod groups;
mod keys;
mod merge;
mod output;
mod part;
mod scatter;
mod stream;
mod tables;

pub use groups::Grouping;
pub(crate) use groups::Touched;
pub use merge::{Batch, Newest, Row, Sink, Source, Visit};

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use polychron_base::key::HashSeed;
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::catalog::StoredCatalog;
use crate::checkpoint::Range;
use crate::error::Error;
use crate::frame::{Order, Record};
use crate::read::Logged;
use part::Part;
use scatter::Scatter;
pub(crate) use tables::{Table, Tables, hexadecimal};

/// How many bytes of records a thread is given at once.
const CHUNK_BYTES: usize = 1 << 20;
/// How many parts there are: so many that the keys of one lie in a cache, and that threads rarely want the same one; and so few that what each thread
/// writes for each of them does, too.
const PARTS: usize = 256;
/// How many bytes of records are enough for another part, where they are few.
const PART_BYTES: usize = 64 << 10;
/// How many bytes of changes may wait in a part: less where the memory is limited.
const WAITING_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=4 << 20;

/// The changes of each row, gathered from the records of a log. Those that a checkpoint has are not given to it.
pub struct Tail {
    shared: Arc<Shared>,
    /// Records that no thread has yet.
    chunk: Chunk,
    chunks: Option<SyncSender<Chunk>>,
    threads: Vec<JoinHandle<()>>,
    /// Does the work of threads where there is none.
    own: Scatter,
}

/// The state that the threads of a tail share.
struct Shared {
    tables: Tables,
    range: Range,
    /// Of which tables there was a change, of any range.
    touched: Vec<AtomicBool>,
    /// How many rows were put.
    puts: AtomicU64,
    seed: HashSeed,
    parts: Vec<Mutex<Part>>,
    most_waiting: usize,
    failure: Mutex<Option<Error>>,
    has_failed: AtomicBool,
}

/// A transaction, or a piece of one.
#[derive(Clone, Copy, Debug)]
struct Version {
    incarnation: u64,
    order: Order,
    /// The number of the first change.
    first: u32,
}

/// Copies of records.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Of each record, which one it is and where it ends.
    records: Vec<(Version, usize)>,
}

impl Tail {
    /// Nothing yet, of the tables of a catalog: what is logged of others counts for nothing. The work is done by so many threads beside the caller's; by
    /// that one alone if there are none.
    ///
    /// # Errors
    /// [`Error::Definition`].
    pub fn new(catalog: &StoredCatalog, threads: usize) -> Result<Self, Error> {
        Self::of_range(catalog, Range::default(), threads, usize::MAX)
    }

    /// The same, of keys of a range alone: records and rows of others count for nothing. Where it is to take about so much memory, what counts no longer is
    /// looked for sooner.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn of_range(catalog: &StoredCatalog, range: Range, threads: usize, most_bytes: usize) -> Result<Self, Error> {
        Self::of_parts(catalog, PARTS, range, threads, most_bytes)
    }

    /// The same for so few bytes of records, all of which the calling thread takes in.
    pub(crate) fn of_few(catalog: &StoredCatalog, bytes: usize) -> Result<Self, Error> {
        Self::of_parts(catalog, (bytes / PART_BYTES).clamp(1, PARTS), Range::default(), 0, usize::MAX)
    }

    fn of_parts(
        catalog: &StoredCatalog,
        parts: usize,
        range: Range,
        threads: usize,
        most_bytes: usize,
    ) -> Result<Self, Error> {
        let tables = Tables::new(catalog)?;
        let seed = HashSeed::random();
        let own = Scatter::new(parts);
        let most_waiting = (most_bytes / parts / 4).clamp(*WAITING_BYTES.start(), *WAITING_BYTES.end());
        let parts = (0..parts).map(|_| Mutex::new(Part::new(tables.all().len()))).collect();
        let (failure, has_failed) = (Mutex::new(None), AtomicBool::new(false));
        let touched = tables.all().iter().map(|_| AtomicBool::new(false)).collect();
        let shared = Arc::new(Shared {
            tables,
            range,
            touched,
            puts: AtomicU64::new(0),
            seed,
            parts,
            most_waiting,
            failure,
            has_failed,
        });
        let (sender, receiver) = sync_channel(threads + 1);
        let receiver = Arc::new(Mutex::new(receiver));
        let spawned = (0..threads).map_while(|_| {
            let (shared, receiver) = (Arc::clone(&shared), Arc::clone(&receiver));
            let builder = std::thread::Builder::new().name("polychron-recover".to_owned());
            // With fewer threads it takes longer.
            builder.spawn(move || shared.work(&receiver)).ok()
        });
        let threads: Vec<_> = spawned.collect();
        let chunks = (!threads.is_empty()).then_some(sender);
        Ok(Self { shared, chunk: Chunk::default(), chunks, threads, own })
    }

    /// Takes a record in. Once something was wrong it does nothing, and [`finish`](Self::finish) says what.
    pub fn add(&mut self, logged: Logged<'_>) {
        if self.shared.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let Record { order, piece, .. } = logged.record;
        let version = Version { incarnation: logged.incarnation, order, first: piece.first };
        let body = logged.record.body();
        if self.chunks.is_none() {
            return self.shared.note(self.own.record(&self.shared, version, body));
        }
        let chunk = &mut self.chunk;
        chunk.bytes.extend_from_slice(body);
        chunk.records.push((version, chunk.bytes.len()));
        if chunk.bytes.len() >= CHUNK_BYTES || chunk.records.len() >= CHUNK_BYTES / size_of::<(Version, usize)>() {
            self.send();
        }
    }

    /// The hash of the first key that a record changes, by which keys belong to ranges.
    pub(crate) fn hash_of(&mut self, record: &Record<'_>) -> Option<u32> {
        self.own.first_key(&self.shared, record.body()).map(crate::checkpoint::hash)
    }

    fn send(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        if let Some(chunks) = &self.chunks {
            // It fails if all threads have panicked, which finishing finds.
            let _ = chunks.send(chunk);
        }
    }

    /// The memory that it takes, but for a few MiB for each thread: less than a small multiple of the records' bytes.
    pub fn memory_bytes(&self) -> usize {
        let part = |part: &Mutex<Part>| part.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes();
        self.shared.parts.iter().map(part).sum()
    }

    /// Bytes that wait in the calling thread to be taken in: little, which counts where the memory may be little.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.own.pending_bytes()
    }

    /// The gathered changes, when all records are taken in.
    ///
    /// # Errors
    /// The first thing that was wrong with a record: [`Error::Record`], or [`Error::Row`].
    pub fn finish(mut self) -> Result<Newest, Error> {
        self.send();
        self.own.flush(&self.shared);
        self.chunks = None;
        for thread in std::mem::take(&mut self.threads) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        let shared = Arc::clone(&self.shared);
        drop(self);
        let Some(shared) = Arc::into_inner(shared) else { unreachable!("its threads have ended") };
        match shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => {
                let parts = shared.parts.into_iter();
                let parts = parts.map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner));
                let is_touched = |table: &usize| shared.touched[*table].load(Ordering::Relaxed);
                let touched = (0..shared.touched.len()).filter(is_touched);
                let touched = touched.map(|table| shared.tables.get(table).position).collect();
                Ok(Newest {
                    tables: shared.tables,
                    range: shared.range,
                    touched,
                    puts: shared.puts.into_inner(),
                    seed: shared.seed,
                    parts: parts.collect(),
                })
            }
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.shared.has_failed.store(true, Ordering::Relaxed);
        self.chunks = None;
        for thread in self.threads.drain(..) {
            // Nobody wants what it has done.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The loop of a thread, until there are no more records.
    fn work(&self, chunks: &Mutex<Receiver<Chunk>>) {
        let mut scatter = Scatter::new(self.parts.len());
        loop {
            let Ok(chunk) = chunks.lock().unwrap_or_else(PoisonError::into_inner).recv() else { break };
            if !self.has_failed.load(Ordering::Relaxed) {
                self.note(scatter.chunk(self, &chunk));
            }
        }
        scatter.flush(self);
    }

    fn note(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.has_failed.store(true, Ordering::Relaxed);
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}
