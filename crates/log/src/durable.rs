//! A database on a disk: its lock, its manifests and its log.
//!
//! A [`Durable`] is made before anything is opened, so that a protocol can have it for its journal, and may refuse it, before a file is touched. While it
//! has no log it does nothing: what recovery loads is not logged again. An [`Opening`] is a database whose files were opened and read;
//! [`Opening::load`] hands its rows out, and [`Opening::finish`] gives its log to the `Durable`.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

use polychron_base::clock::{Duration, SystemClock};
use polychron_base::random::unpredictable;
use polychron_base::{Error, TableId};
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::{self, Change, Durability, KeyRange, Ticket};
use polychron_memory::Origin;
use polychron_schema::KeyExtractor;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Mutex, MutexGuard, Process};

use crate::DatabaseId;
use crate::backup::{self, Archive};
use crate::catalog;
use crate::checkpoint::{self, Checkpoints, Contents, Haste, RowSource};
use crate::disk::{Disk, Files};
use crate::error::Error as LogError;
use crate::flush::{Ended, Log, Options, Replication, Threads};
use crate::frame::Order;
use crate::manifest::{self, Manifest, Manifests};
use crate::read::{End, Manner};
use crate::recover::{Batch, Newest, Sink, Tail};
use crate::ship::Source;
use crate::ship::net::{Listener, Shipped, SocketAddr};
use crate::steps::OpeningStep;

/// How often a thread looks whether a checkpoint is due.
const LOOK: Duration = Duration::from_millis(100);

/// The files that a creation makes first. Nothing else is there while there are no manifests.
const FIRST_FILES: [&str; 2] = ["manifest.0", "manifest.1"];

/// In a process that was forked: waiting for it is refused.
const NEVER: Ticket = Ticket(u64::MAX);

/// Which database is to be there when one is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One, or none: then it is made.
    Any,
    /// One.
    Existing,
    /// None.
    New,
}

/// How a database's files are opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The database's name in errors.
    pub path: String,
    /// Which database is to be there.
    pub wanted: Wanted,
    /// The log's options.
    pub log: Options,
    /// How checkpoints are made.
    pub checkpoints: checkpoint::Options,
    /// How many threads read the log and load rows; none: the calling one does it.
    pub threads: usize,
    /// Whether threads flush what nobody waits for, make files ahead, and begin checkpoints.
    pub has_threads: bool,
}

/// The log of a database, as soon as there is one.
pub struct Durable<D: Disk> {
    durability: Durability,
    /// Whose files they are. A process that is forked from it neither touches them nor waits for threads that it does not have.
    origin: Origin,
    opened: OnceLock<Opened<D>>,
}

/// The parts of an open database. The threads go first.
struct Opened<D: Disk> {
    /// Where standbys connect.
    listener: Mutex<Option<Listener>>,
    threads: Mutex<Option<Threads<D>>>,
    parts: Arc<Parts<D>>,
    process: Process,
}

/// The parts that the threads share. The lock goes last.
struct Parts<D: Disk> {
    log: Arc<Log<D>>,
    manifests: Mutex<Manifests<D>>,
    checkpoints: Checkpoints<D>,
    path: String,
    _lock: Mutex<D::Lock>,
}

/// A database whose files are open and read. Nothing is changed before it is finished.
pub struct Opening<'r, D: Disk> {
    settings: Settings,
    report: &'r (dyn Fn(Progress) + Sync),
    catalog: StoredCatalog,
    /// Whether the catalog is another one than the manifest has.
    is_changed: bool,
    newest: Option<Newest>,
    end: End,
    files: Files<D>,
    manifests: Manifests<D>,
    /// Where log files are copied to, and who hears of failures.
    archive: Option<(Files<D>, backup::OnFailure)>,
    lock: D::Lock,
}

/// How far an opening has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many bytes of the log were read, of so many at most.
    Log {
        /// These.
        bytes: u64,
        /// All.
        of: u64,
    },
    /// So many rows were loaded, of so many at most.
    Rows {
        /// These.
        rows: u64,
        /// All.
        of: u64,
    },
}

impl<'r, D: Disk + Clone> Opening<'r, D> {
    /// Opens the files of a database, or makes them, and reads what the log has. `report` is told how far that has come, and the loading behind it.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NoDatabase`], [`Error::DatabaseExists`], [`Error::Corrupt`], [`Error::OtherFormat`], [`Error::Inaccessible`],
    /// [`Error::DiskFull`], [`Error::Options`]. What is there is as before then, or as an interrupted creation leaves it, and may be opened again.
    pub fn begin(files: &Files<D>, settings: Settings, report: &'r (dyn Fn(Progress) + Sync)) -> Result<Self, Error> {
        let failed = |error: LogError| error.of_database(&settings.path);
        settings.log.check()?;
        look(files, &settings, failed)?;
        let lock = files.lock().map_err(|error| failed(error.into()))?;
        let manifests = manifests_of(files, &settings, failed)?;
        let stored = catalog::decode(&manifests.current().catalog).map_err(|error| failed(error.into()))?;
        let catalog = stored.permanent();
        let mut tail = Tail::new(&catalog, settings.threads).map_err(failed)?;
        checkpoint::carried(files, manifests.current(), &mut |logged| tail.add(logged)).map_err(failed)?;
        let file_bytes = settings.log.file_bytes;
        let told = |bytes: u64, files: usize| report(Progress::Log { bytes, of: bytes.max(files as u64 * file_bytes) });
        let manner = Manner { by_threads: settings.threads > 0, report: Some(&told) };
        let end = Log::read(files, &manifests, &manner, &mut |logged| tail.add(logged)).map_err(failed)?;
        let newest = Some(tail.finish().map_err(failed)?);
        let is_changed = stored != catalog;
        let (files, archive) = (files.clone(), None);
        Ok(Self { settings, report, catalog, is_changed, newest, end, files, manifests, archive, lock })
    }

    /// Has log files copied there before they are used again or removed. `on_failure` hears of failures; then they stay.
    pub fn archive(&mut self, to: Files<D>, on_failure: backup::OnFailure) {
        self.archive = Some((to, on_failure));
    }

    /// The tables.
    pub fn catalog(&self) -> &StoredCatalog {
        &self.catalog
    }

    /// Hands out the rows, and answers how many there are.
    ///
    /// # Errors
    /// Errors of `sink`, and faults of the rows.
    pub fn load(&mut self, sink: &dyn Load) -> Result<u64, Error> {
        let Some(newest) = self.newest.take() else { return Ok(0) };
        let Settings { threads, path, .. } = &self.settings;
        load(newest, &self.files, self.manifests.current(), (*threads, path), self.report, sink)
    }

    /// The database is loaded, and logs what changes from now on. `ended` says up to which order all transactions have ended. This opening gets its own
    /// incarnation.
    ///
    /// # Errors
    /// [`Error::Options`] when the system has no threads for the log, [`Error::DiskFull`], [`Error::Inaccessible`].
    pub fn finish(self, durable: &Durable<D>, ended: Ended) -> Result<(), Error> {
        let Self { settings, catalog, is_changed, end, files, mut manifests, archive, lock, .. } = self;
        let failed = |error: LogError| error.of_database(&settings.path);
        let mut checkpoints = Checkpoints::open(&files, manifests.current(), settings.checkpoints).map_err(failed)?;
        let clock = Arc::new(SystemClock::new());
        let log = Log::go_on(&files, &mut manifests, settings.log, clock, ended, end).map_err(failed)?;
        if let Some((to, on_failure)) = archive {
            checkpoints.archive_to(Archive::new(to, manifests.current(), on_failure));
        }
        checkpoints.note(&manifests);
        let path = settings.path.clone();
        let (manifests, lock) = (Mutex::new(manifests), Mutex::new(lock));
        let parts = Arc::new(Parts { log: Arc::new(log), manifests, checkpoints, path, _lock: lock });
        if is_changed {
            parts.define(&catalog)?;
        }
        let threads = if settings.has_threads { Some(parts.start()) } else { None };
        let threads =
            threads.transpose().map_err(|error| Error::options(format!("the log has no threads: {error}")))?;
        let listener = Mutex::default();
        let opened = Opened { listener, threads: Mutex::new(threads), parts, process: Process::here() };
        assert!(durable.opened.set(opened).is_ok(), "a journal is for one database");
        Ok(())
    }
}

/// Looks at the names in a directory, before anything is changed there.
fn look<D: Disk>(files: &Files<D>, settings: &Settings, failed: impl Fn(LogError) -> Error) -> Result<(), Error> {
    let entries = files.list("").map_err(|error| failed(error.into()))?;
    let has_first = entries.iter().any(|entry| FIRST_FILES.contains(&&*entry.name));
    if has_first || left_out(OpeningStep::RefuseForeign) {
        return Ok(());
    }
    match files.other_than(&[]).map_err(|error| failed(error.into()))? {
        Some(name) => Err(Error::no_database(settings.path.clone(), format!("it has `{name}` and no manifest"))),
        None if settings.wanted == Wanted::Existing => {
            Err(Error::no_database(settings.path.clone(), "it is empty".to_owned()))
        }
        None => Ok(()),
    }
}

/// The manifests that are there, or new ones.
fn manifests_of<D: Disk + Clone>(
    files: &Files<D>,
    settings: &Settings,
    failed: impl Fn(LogError) -> Error,
) -> Result<Manifests<D>, Error> {
    let found = match Manifests::open(files) {
        Ok(found) => found,
        Err(error) => return Err(failed(error.into())),
    };
    match found {
        // An opening that was interrupted before the log began has nothing that anybody was told of.
        Some(manifests) if settings.wanted != Wanted::New || manifests.current().incarnation == 0 => Ok(manifests),
        Some(_) => Err(Error::database_exists(settings.path.clone())),
        None if settings.wanted == Wanted::Existing => {
            Err(Error::no_database(settings.path.clone(), "its creation was interrupted".to_owned()))
        }
        None => {
            if let Some(name) = files.other_than(&FIRST_FILES).map_err(|error| failed(error.into()))? {
                let reason = format!("it has `{name}` and no manifest that counts");
                return Err(Error::no_database(settings.path.clone(), reason));
            }
            let first = Manifest {
                database: DatabaseId(unpredictable()),
                incarnation: 0,
                first_log_file: 0,
                durable: 0,
                checkpoint: None,
                catalog: catalog::encode(&StoredCatalog::default()),
            };
            Manifests::create(files, first).map_err(|error| failed(error.into()))
        }
    }
}

/// Hands out the rows of a database that is called so, by so many threads, and reports how many there were.
pub(crate) fn load<D: Disk>(
    newest: Newest,
    files: &Files<D>,
    manifest: &Manifest,
    (threads, path): (usize, &str),
    report: &(dyn Fn(Progress) + Sync),
    sink: &dyn Load,
) -> Result<u64, Error> {
    let in_checkpoint = manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
    let of_rows = in_checkpoint.filter(|file| matches!(file.contents, Contents::Rows { .. }));
    let of = of_rows.map(|file| file.count).sum::<u64>() + newest.puts();
    let loading = Loading { sink, report, rows: AtomicU64::new(0), of };
    newest.merge(threads, &RowSource::of(files, manifest), &loading).map_err(|unloaded| match unloaded {
        Unloaded::Read(error) => error.of_database(path),
        Unloaded::Refused(error) => error,
    })
}

/// A sink, whose errors are told apart from those of what is read.
struct Loading<'s> {
    sink: &'s dyn Load,
    report: &'s (dyn Fn(Progress) + Sync),
    rows: AtomicU64,
    of: u64,
}

/// Why rows were not loaded.
enum Unloaded {
    /// The files are damaged.
    Read(LogError),
    /// The sink refuses them.
    Refused(Error),
}

impl From<LogError> for Unloaded {
    fn from(error: LogError) -> Self {
        Self::Read(error)
    }
}

/// Receives the rows of a recovered database, from several threads at a time.
pub trait Load: Sync {
    /// Rows of one table, in no order. Each row comes once in all.
    ///
    /// # Errors
    /// The error that ends the recovery.
    fn load(&self, batch: &Batch<'_>) -> Result<(), Error>;
}

impl Sink for Loading<'_> {
    type Error = Unloaded;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Unloaded> {
        self.sink.load(batch).map_err(Unloaded::Refused)?;
        let count = batch.len() as u64;
        let rows = self.rows.fetch_add(count, Ordering::Relaxed) + count;
        (self.report)(Progress::Rows { rows, of: rows.max(self.of) });
        Ok(())
    }
}

impl<D: Disk> Durable<D> {
    /// No log yet. Answers of the database will leave so.
    pub fn new(durability: Durability) -> Self {
        Self { durability, origin: Origin::here(), opened: OnceLock::new() }
    }

    /// Refuses a process that was forked from the one that has opened the database.
    ///
    /// # Errors
    /// [`Error::OtherProcess`].
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        if self.origin.is_here() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    /// The open parts, if there are any yet.
    #[inline]
    fn opened(&self) -> Result<Option<&Opened<D>>, Error> {
        self.check_process()?;
        Ok(self.opened.get())
    }

    #[inline]
    fn log(&self) -> Result<Option<&Log<D>>, Error> {
        Ok(self.opened()?.map(|opened| &*opened.parts.log))
    }

    /// The ticket that the log gives, or one that is never granted.
    #[inline]
    fn ticket_by(&self, give: impl FnOnce(&Log<D>) -> Ticket) -> Ticket {
        self.log().map_or(NEVER, |log| log.map_or(Ticket::DONE, give))
    }

    /// Makes all durable that was sealed so far.
    ///
    /// # Errors
    /// [`Error::LogStopped`].
    pub fn flush(&self) -> Result<(), Error> {
        self.log()?.map_or(Ok(()), Log::flush)
    }

    /// Makes all durable, and ends the log's threads. Whoever commits behind this flushes himself.
    ///
    /// # Errors
    /// [`Error::LogStopped`].
    pub fn close(&self) -> Result<(), Error>
    where
        D: Clone,
    {
        let Some(opened) = self.opened()? else { return Ok(()) };
        opened.stop();
        opened.parts.log.close()?;
        // All is durable. Without this manifest the log is as long as after a crash.
        let _ = opened.parts.log.note_end(&mut opened.parts.manifests());
        opened.parts.checkpoints.archive(&opened.parts.log, &opened.parts.manifests);
        Ok(())
    }

    /// Makes a checkpoint of all that is durable, as fast as it can.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Corrupt`], [`Error::Inaccessible`], [`Error::LogStopped`]; [`Error::Cancelled`] when the log was closed. The log then
    /// keeps everything.
    pub fn checkpoint(&self) -> Result<(), Error>
    where
        D: Clone,
    {
        let Some(Opened { parts, .. }) = self.opened()? else { return Ok(()) };
        let run = || {
            let made = parts.checkpoints.run(&parts.log, &parts.manifests, Haste::Unpaced);
            made.map(drop).map_err(|error| error.of_database(&parts.path))
        };
        // What is not durable yet may need the room that one frees.
        if parts.log.is_full() {
            run()?;
        }
        parts.log.flush()?;
        run()
    }
}

impl<D: Disk + Clone> Durable<D> {
    /// Writes a copy of all that was sealed before the call into an empty directory at `path`, as a database of its own; see [`backup`](crate::backup).
    ///
    /// # Errors
    /// As of [`checkpoint`](Self::checkpoint), with the path of the one or the other.
    pub fn back_up<E: Disk + Clone>(&self, to: &Files<E>, path: &str) -> Result<(), Error> {
        let Some(Opened { parts, .. }) = self.opened.get() else { return Ok(()) };
        parts.log.flush()?;
        let made = parts.checkpoints.back_up(&parts.log, &parts.manifests, to);
        made.map_err(|error| backup::told(error, &parts.path, path))
    }

    /// The same into a directory of the file system that is empty or not there.
    ///
    /// # Errors
    /// As of [`back_up`](Self::back_up), [`Error::DatabaseExists`], and [`Error::Inaccessible`].
    pub fn back_up_directory(&self, path: &Path) -> Result<(), Error> {
        backup::into_directory(path, |to| self.back_up(to, &path.display().to_string()))
    }
}

impl<D: Disk + Clone> Durable<D> {
    /// Listens at an address for standbys, until the log ends. Answers where that is.
    ///
    /// # Errors
    /// [`Error::Options`]: the system refuses the address.
    pub fn serve_standbys(&self, address: &str) -> Result<SocketAddr, Error> {
        let Some(opened) = self.opened()? else { return Err(Error::options("the database is not open yet")) };
        let refused = |error: io::Error| Error::options(format!("standbys cannot connect at {address}: {error}"));
        let listener = Listener::open(address, Arc::clone(&opened.parts)).map_err(refused)?;
        let address = listener.address();
        *opened.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
        Ok(address)
    }

    /// Where standbys connect, if they can.
    pub fn standby_address(&self) -> Option<SocketAddr> {
        let listener = self.opened.get()?.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().map(Listener::address)
    }
}

impl<D: Disk> Durable<D> {
    /// How far standbys have come; `None` where none connect.
    pub fn replication(&self) -> Option<Replication> {
        let opened = self.opened.get()?;
        let is_served = opened.listener.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        is_served.then(|| opened.parts.log.replication())
    }
}

impl<D: Disk + Clone> Shipped for Parts<D> {
    type Disk = D;

    fn source(&self) -> Source<'_, D> {
        Source { log: &self.log, manifests: &self.manifests, checkpoints: &self.checkpoints }
    }
}

impl<D: Disk> Opened<D> {
    /// Ends the threads, and a checkpoint that is being made.
    fn stop(&self) {
        self.parts.log.end_replicas();
        drop(self.listener.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.parts.checkpoints.stop();
        drop(self.threads.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl<D: Disk> Drop for Opened<D> {
    fn drop(&mut self) {
        // Threads of another process are forgotten, and not ended; no lock is taken that one of them may have.
        if self.process.is_here() {
            self.stop();
        }
    }
}

impl<D: Disk + Clone> Parts<D> {
    fn start(self: &Arc<Self>) -> io::Result<Threads<D>> {
        let mut threads = Threads::start(Arc::clone(&self.log))?;
        let parts = Arc::clone(self);
        threads.spawn("polychron-checkpoint", LOOK, move || parts.checkpoints.tick(&parts.log, &parts.manifests))?;
        Ok(threads)
    }
}

impl<D: Disk> Parts<D> {
    /// The same with the database's path, which the log does not know.
    #[cold]
    fn named(&self, error: Error) -> Error {
        match error {
            Error::DiskFull(full) => Error::disk_full(self.path.clone(), full.reason.clone()),
            other => other,
        }
    }

    fn manifests(&self) -> MutexGuard<'_, Manifests<D>> {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn define(&self, tables: &StoredCatalog) -> Result<(), Error>
    where
        D: Clone,
    {
        // Records of unknown tables are passed over, so which ones there are must be durable before that is acted on. And rows may
        // be as the new list has them only by what is not durable yet: a unique index, a table that takes another one's place.
        if !left_out(OpeningStep::FlushFirst) {
            self.log.flush()?;
        }
        let mut manifests = self.manifests();
        let catalog = catalog::encode(tables);
        let before = manifests.current().clone();
        // Not what is durable: epochs without records are, for which there is no frame.
        let durable = before.durable.max(self.log.framed().epoch);
        let next = Manifest { catalog, durable, ..before };
        match manifests.write(next) {
            Ok(()) => {
                self.checkpoints.note(&manifests);
                self.log.note_manifest(manifests.generation());
                Ok(())
            }
            Err(manifest::Error::TooLong { .. }) => {
                Err(Error::definition("the definitions of all tables are too long"))
            }
            Err(manifest::Error::Disk(error)) if error.is_full() => Err(LogError::from(error).of_database(&self.path)),
            Err(manifest::Error::Disk(error)) => {
                // Either list of tables counts when the database is opened again; so from now on nothing may be acknowledged that needs one of them.
                if !left_out(OpeningStep::StopInDoubt) {
                    self.log.stop(&error);
                }
                Err(Error::log_stopped(error.to_string()))
            }
            Err(error) => Err(LogError::from(error).of_database(&self.path)),
        }
    }
}

impl<D: Disk + Clone> redo::Log for Durable<D> {
    #[inline]
    fn admit(&self, worker: usize) -> Result<(), Error> {
        self.log()?.map_or(Ok(()), |log| log.admit(worker))
    }

    #[inline]
    fn stage(&self, worker: usize, table: TableId, key: &[u8], change: Change<'_>) -> Result<(), Error> {
        let Some(opened) = self.opened()? else { return Ok(()) };
        opened.parts.log.stage(worker, table, key, change).map_err(|error| opened.parts.named(error))
    }

    fn discard(&self, worker: usize) {
        if let Ok(Some(log)) = self.log() {
            log.discard(worker);
        }
    }

    #[inline]
    fn seal(&self, worker: usize, order: Order) -> Ticket {
        self.ticket_by(|log| log.seal(worker, order))
    }

    #[inline]
    fn ticket(&self, read: Order) -> Ticket {
        self.ticket_by(|log| log.ticket(read))
    }

    #[inline]
    fn sealed(&self) -> Ticket {
        self.ticket_by(redo::Log::sealed)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        self.log()?.map_or(Ok(()), |log| log.wait(ticket))
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    #[inline]
    fn has_stopped(&self) -> bool {
        matches!(self.log(), Ok(Some(log)) if log.has_stopped())
    }

    fn is_lost(&self, table: TableId, range: KeyRange<'_>, extractor: &KeyExtractor) -> bool {
        !matches!(self.log(), Ok(Some(log)) if !log.is_lost(table, range, extractor))
    }

    fn define(&self, tables: &StoredCatalog) -> Result<(), Error> {
        self.opened()?.map_or(Ok(()), |opened| opened.parts.define(tables))
    }
}
