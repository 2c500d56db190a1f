//! Databases that are opened with a path: what is committed is written to a log there, and is there again when the path is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::redo::{Durability, Journal, Order};
use polychron_engine::{Error, Events, LoadedRow, OpeningStage, Protocol, RowRef, TableId, Worker as _};
use polychron_log::disk::{Cause, Directory, Disk, Files};
use polychron_log::recover::Batch;
use polychron_log::ship::net::SocketAddr;
use polychron_log::{Durable, Load, Opening, Progress, Reading, Replication, Settings, Wanted};
use polychron_sync::{Mutex, MutexGuard};

use crate::standby::StandbyStatus;
use crate::{Builder, Database, ruled};

/// The files of an open database, whatever disk they are on.
pub(crate) trait Ends: Send + Sync {
    fn flush(&self) -> Result<(), Error>;
    fn checkpoint(&self) -> Result<(), Error>;
    fn back_up(&self, path: &Path) -> Result<(), Error>;
    fn close(&self) -> Result<(), Error>;
    fn check_process(&self) -> Result<(), Error>;

    /// Of a standby, how it follows.
    fn standby(&self) -> Option<StandbyStatus> {
        None
    }

    /// Where standbys connect, if they can.
    fn standby_address(&self) -> Option<SocketAddr> {
        None
    }

    /// How far they have come.
    fn replication(&self) -> Option<Replication> {
        None
    }
}

impl<D: Disk + Clone> Ends for Durable<D> {
    fn flush(&self) -> Result<(), Error> {
        Self::flush(self)
    }

    fn checkpoint(&self) -> Result<(), Error> {
        Self::checkpoint(self)
    }

    fn back_up(&self, path: &Path) -> Result<(), Error> {
        self.back_up_directory(path)
    }

    fn close(&self) -> Result<(), Error> {
        Self::close(self)
    }

    fn check_process(&self) -> Result<(), Error> {
        Self::check_process(self)
    }

    fn standby_address(&self) -> Option<SocketAddr> {
        Self::standby_address(self)
    }

    fn replication(&self) -> Option<Replication> {
        Self::replication(self)
    }
}

/// What a builder says of a database with a path.
#[derive(Clone, Debug)]
pub(crate) struct OnDisk {
    durability: Durability,
    archive: Option<PathBuf>,
    /// Where standbys connect.
    standbys: Option<String>,
    /// How many of them answers wait for, and how long, if the builder says so.
    replicas: usize,
    replica_timeout: Option<Duration>,
    standby_timeout: Option<Duration>,
}

impl Default for OnDisk {
    fn default() -> Self {
        Self {
            durability: Durability::Immediate,
            archive: None,
            standbys: None,
            replicas: 0,
            replica_timeout: None,
            standby_timeout: None,
        }
    }
}

impl OnDisk {
    /// Refuses standbys, for a database that has none.
    pub(crate) fn refuse_standbys(&self, why: &str) -> Result<(), Error> {
        if self.standbys.is_none() && self.replicas == 0 { Ok(()) } else { Err(Error::options(why)) }
    }
}

/// Where a database keeps its files. The last use of the database that ends ends the log; it has the protocol until then, because the log's threads ask
/// that for what has ended, and must not be the last to have it.
#[derive(Clone)]
pub(crate) struct Home(Arc<Inner>);

struct Inner(Arc<dyn Ends>);

impl fmt::Debug for Home {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Home").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Who wants to know what goes wrong closes the database.
        let _ = self.0.close();
    }
}

impl Home {
    pub(crate) fn new(home: Arc<dyn Ends>) -> Self {
        Self(Arc::new(Inner(home)))
    }

    /// The interface to the database's files.
    pub(crate) fn ends(&self) -> &dyn Ends {
        &*self.0.0
    }

    /// Refuses a process that was forked from the one that has opened the database.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.0.0.check_process()
    }

    /// Makes everything durable, and ends the log if nothing else uses it.
    pub(crate) fn close(self) -> Result<(), Error> {
        let home = Arc::clone(&self.0.0);
        match Arc::into_inner(self.0) {
            Some(_last) => home.close(),
            None => home.flush(),
        }
    }
}

impl<P: Protocol> Builder<P> {
    /// Opens the database at a path, and makes an empty one where there is no directory yet, or an empty one. What is committed is on the disk before its
    /// transaction is answered, and is there again when the path is opened, under this protocol or another one.
    ///
    /// ```
    /// use polychron::prelude::*;
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("bank");
    ///
    /// let database = Database::builder().small().open(&path)?;
    /// let accounts = database.create_or_open_table::<Account>()?;
    /// database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 5 }))?;
    /// database.close()?;
    ///
    /// let database = Database::builder().small().with::<polychron::protocols::Hyper>().open(&path)?;
    /// let accounts = database.create_or_open_table::<Account>()?;
    /// let account = database.transact(|transaction| transaction.get_owned(&accounts, 1))?;
    /// assert_eq!(account.map(|account| account.balance), Some(5));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::in_memory`], and [`Error::Unsupported`] where the protocol cannot log; then nothing is made. [`Error::InUse`], [`Error::NoDatabase`]
    /// where the directory has anything else than a database (but `lost+found` and `.DS_Store`), [`Error::Corrupt`], [`Error::OtherFormat`], [`Error::DiskFull`], and [`Error::Inaccessible`] where the
    /// system refuses something.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database<P>, Error> {
        self.open_path(path.as_ref(), Wanted::Any)
    }

    /// The same where there is a database at the path already.
    ///
    /// # Errors
    /// As [`Builder::open`], and [`Error::NoDatabase`].
    pub fn open_existing(self, path: impl AsRef<Path>) -> Result<Database<P>, Error> {
        self.open_path(path.as_ref(), Wanted::Existing)
    }

    /// The same where there is none: an empty one is made.
    ///
    /// # Errors
    /// As [`Builder::open`], and [`Error::DatabaseExists`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Database<P>, Error> {
        self.open_path(path.as_ref(), Wanted::New)
    }

    /// When answers leave and when what they say is written, of a database that is opened with a path: [`Durability::Immediate`] unless told otherwise.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.on_disk.durability = durability;
        self
    }

    /// Has log files that are full copied to a directory, which is made if it is not there, before they are used again or removed. With a backup, they give the
    /// database back as it was at any later time: `polychron restore`. One directory may be the archive of several databases. While it fails, the
    /// log grows, and [`Event::ArchiveFails`](crate::Event::ArchiveFails) tells of it.
    pub fn archive(mut self, path: impl AsRef<Path>) -> Self {
        self.on_disk.archive = Some(path.as_ref().to_owned());
        self
    }

    /// Has standbys connect at an address ([`Builder::open_standby`]), and sends them what is committed, as soon as it is durable here. No transaction waits for a
    /// standby, unless [`Builder::replicas`] has answers wait. An address of this machine alone, such as `127.0.0.1:7300`, is what others cannot reach; connections are neither encrypted nor
    /// authenticated, so that another one is for networks that are trusted. With port 0 the system chooses one: see [`Database::standby_address`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (directory.path().join("bank"), directory.path().join("standby"));
    /// use polychron::prelude::*;
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    ///
    /// let primary = Database::builder().small().serve_standbys("127.0.0.1:0").open(&path)?;
    /// let accounts = primary.create_table::<Account>()?;
    /// primary.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 5 }))?;
    ///
    /// let address = primary.standby_address().unwrap().to_string();
    /// let standby = Database::builder().small().open_standby(&copy, &address)?;
    /// while standby.table::<Account>()?.is_none_or(|accounts| {
    ///     standby.snapshot(|transaction| transaction.get_owned(&accounts, 1)).unwrap().is_none()
    /// }) {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn serve_standbys(mut self, address: &str) -> Self {
        self.on_disk.standbys = Some(address.to_owned());
        self
    }

    /// Has answers wait until so many standbys, 16 at most, have durably what they depend on, beside being durable here: those of [`Durability::Immediate`] and
    /// [`Durability::Group`], and [`Submission::durable`](crate::Submission::durable). So what was answered is not lost with this machine: of any standbys, all but
    /// this number less one, at least one has all of it. [`StandbyStatus::received`] says which one has most: that one is to take over. With 0, as
    /// unless told otherwise, no answer waits for a standby.
    ///
    /// While fewer are connected, answers wait, and end with [`Error::NotReplicated`] after [`Builder::replica_timeout`]. [`Database::replication`] says how
    /// many there are, and how far they have come. What makes and changes tables waits for none: what is committed into a table does, and brings it.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.on_disk.replicas = replicas;
        self
    }

    /// How long an answer waits for standbys ([`Builder::replicas`]) from when it could leave without them: 10 s unless told otherwise.
    pub fn replica_timeout(mut self, time: Duration) -> Self {
        self.on_disk.replica_timeout = Some(time);
        self
    }

    /// How long a primary and a standby may hear nothing of each other: 10 s unless told otherwise, and 100 ms at least. Then the connection ends. A standby
    /// connects again as soon as it can. Until it does no log is kept for it, and no answer waits for it or counts it ([`Builder::replicas`]); if what
    /// follows what it has is gone by then, it says so ([`StandbyStatus::ended`]), and begins anew when it is opened again. Both sides say
    /// something each second, and four times within this time. The option is one of a primary, and of a standby.
    pub fn standby_timeout(mut self, time: Duration) -> Self {
        self.on_disk.standby_timeout = Some(time);
        self
    }

    fn open_path(self, path: &Path, wanted: Wanted) -> Result<Database<P>, Error> {
        let settings = self.settings(path.display().to_string(), wanted)?;
        let archive = self.on_disk.archive.clone();
        self.opened(settings, |settings| {
            let opened = |path: &Path, cause: Cause| Error::inaccessible(path.display().to_string(), cause.to_string());
            let archive = archive.map(|path| Directory::create_or_open(&path).map_err(|cause| opened(&path, cause)));
            let archive = archive.transpose()?.map(Files::new);
            let directory = match settings.wanted {
                Wanted::Existing => Directory::open(path),
                Wanted::Any | Wanted::New => Directory::create_or_open(path),
            };
            let directory = directory.map_err(|cause| match cause {
                Cause::NotFound if settings.wanted == Wanted::Existing => {
                    Error::no_database(settings.path.clone(), cause.to_string())
                }
                cause => opened(path, cause),
            })?;
            Ok((Files::new(directory), archive))
        })
    }

    /// Opens a database on any disk, with other settings than the usual ones.
    #[doc(hidden)]
    pub fn open_on<D: Disk + Clone>(
        self,
        files: &Files<D>,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Database<P>, Error> {
        let mut settings = self.settings("a disk".to_owned(), Wanted::Any)?;
        change(&mut settings);
        self.opened(settings, |_| Ok((files.clone(), None)))
    }

    /// What a database with a path is opened with.
    ///
    /// # Errors
    /// [`Error::Options`], before anything is made.
    pub(crate) fn settings(&self, path: String, wanted: Wanted) -> Result<Settings, Error> {
        let memory = &self.options.common.memory;
        let workers = polychron_memory::OWN_SLOTS + memory.max_workers;
        let mut log = polychron_log::Options {
            durability: self.on_disk.durability,
            replicas: self.on_disk.replicas,
            ..polychron_log::Options::within(memory.limit_bytes.or_else(polychron_memory::granted_bytes), workers)
        };
        log.replica_limit = self.on_disk.replica_timeout.unwrap_or(log.replica_limit);
        log.silence_limit = self.on_disk.standby_timeout.unwrap_or(log.silence_limit);
        let checkpoints = polychron_log::checkpoint::Options::within(log.memory_bytes);
        log.check()?;
        Ok(Settings { path, wanted, log, checkpoints, threads: self.recovering_threads(), has_threads: true })
    }

    /// How many threads read and load what a database has.
    pub(crate) fn recovering_threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.min(self.options.common.memory.max_workers).min(16)
    }

    /// An empty database with a journal. What its files take in memory is taken off its limit.
    pub(crate) fn beside_files(self, settings: &Settings, journal: Journal) -> Result<Database<P>, Error> {
        let mut options = self.checked()?;
        let memory = &mut options.common.memory;
        let files_bytes = settings.log.memory_bytes + settings.checkpoints.memory_bytes;
        let limit = memory.limit_bytes.or_else(polychron_memory::granted_bytes);
        memory.limit_bytes = limit.map(|limit| limit.saturating_sub(files_bytes));
        options.common.journal = journal;
        Database::with_options(options)
    }

    fn opened<D: Disk + Clone>(
        self,
        settings: Settings,
        files: impl FnOnce(&Settings) -> Result<(Files<D>, Option<Files<D>>), Error>,
    ) -> Result<Database<P>, Error> {
        if self.on_disk.replicas > 0 && self.on_disk.standbys.is_none() {
            return Err(Error::options("answers wait for standbys, and none can connect: `serve_standbys` says where"));
        }
        let standbys = self.on_disk.standbys.clone();
        let events = self.options.common.events.clone();
        let durable = Arc::new(Durable::new(settings.log.durability));
        // First, for a protocol may refuse the journal, or the options.
        let database = self.beside_files(&settings, Journal::new(Arc::clone(&durable) as _))?;
        let (files, archive) = files(&settings)?;
        recover(&database, &durable, &files, settings, |opening| {
            if let Some(archive) = archive {
                opening.archive(archive, Box::new(move |reason| events.archive_fails(reason)));
            }
        })?;
        // Before anything may fail: the log ends before its protocol.
        database.pool.keep(Home::new(Arc::clone(&durable) as _));
        ruled::refuse_writes(&database)?;
        if let Some(address) = standbys {
            durable.serve_standbys(&address)?;
        }
        Ok(database)
    }
}

impl<P: Protocol> Database<P> {
    /// Writes what the database has to its path, as files of rows, so that the log up to here is needed no longer, and opening takes less time. No transaction
    /// waits for it or is aborted by it. A thread of the database does the same, slowly, whenever the log has become long; so nobody has to call this. Of a
    /// database in memory it does nothing.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Inaccessible`], [`Error::Corrupt`], and [`Error::LogStopped`]. Nothing is lost then: the log keeps everything.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.pool.home().map_or(Ok(()), |home| home.0.0.checkpoint())
    }
}

impl<P: Protocol> Database<P> {
    /// Writes a backup to a path where there is nothing, or an empty directory: a database of its own, which opens as it is, and has everything that was
    /// acknowledged before this call. No transaction waits for it or is aborted by it; checkpoints wait. If it fails, nothing is left there.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (directory.path().join("bank"), directory.path().join("copy"));
    /// # use polychron::Database;
    /// let database = Database::builder().small().open(&path)?;
    /// database.backup(&copy)?;
    /// let copied = Database::builder().small().open_existing(&copy)?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DatabaseExists`], [`Error::DiskFull`], [`Error::Inaccessible`], and [`Error::Corrupt`], with the path of the database or of the backup;
    /// [`Error::LogStopped`]; [`Error::Cancelled`] when the database was closed; [`Error::Options`] of a database in memory.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        match self.pool.home() {
            Some(home) => home.0.0.back_up(path.as_ref()),
            None => Err(Error::options("a database in memory has no files of which there could be a backup")),
        }
    }
}

/// Makes the tables again and loads their rows; from then on what changes is logged.
fn recover<P: Protocol, D: Disk + Clone>(
    database: &Database<P>,
    durable: &Durable<D>,
    files: &Files<D>,
    settings: Settings,
    archive: impl FnOnce(&mut Opening<'_, D>),
) -> Result<(), Error> {
    let path = settings.path.clone();
    let told = Told::new(database);
    let report = |progress: Progress| told.report(progress);
    let mut opening = Opening::begin(files, settings, &report)?;
    archive(&mut opening);
    load(database, path, &mut opening, &told)?;
    let protocol = Arc::downgrade(&database.protocol);
    let ended = move || protocol.upgrade().map_or(Order::default(), |protocol| protocol.storage().ended());
    opening.finish(durable, Box::new(ended))
}

/// A source of tables and rows for recovery.
pub(crate) trait Recovers {
    fn catalog(&self) -> &StoredCatalog;
    fn load(&mut self, sink: &dyn Load) -> Result<u64, Error>;
}

impl<D: Disk + Clone> Recovers for Opening<'_, D> {
    fn catalog(&self) -> &StoredCatalog {
        self.catalog()
    }

    fn load(&mut self, sink: &dyn Load) -> Result<u64, Error> {
        self.load(sink)
    }
}

impl<D: Disk + Clone> Recovers for Reading<'_, D> {
    fn catalog(&self) -> &StoredCatalog {
        self.catalog()
    }

    fn load(&mut self, sink: &dyn Load) -> Result<u64, Error> {
        self.load(sink)
    }
}

/// Makes the tables again in an empty database, and loads their rows. What they have counted does not count.
pub(crate) fn load<P: Protocol>(
    database: &Database<P>,
    path: String,
    from: &mut impl Recovers,
    told: &Told<'_>,
) -> Result<(), Error> {
    let storage = database.protocol.storage();
    storage.restore(from.catalog())?;
    let ids = from.catalog().tables().iter().filter_map(|(position, table)| {
        let id = storage.find_table(&table.definition.name)?;
        Some((*position, id))
    });
    let loader = Loader { database, path, tables: ids.collect(), workers: Mutex::default() };
    let rows = from.load(&loader)?;
    drop(loader);
    told.end(rows);
    storage.counters().forget();
    Ok(())
}

/// Tells whoever listens how far an opening has come.
pub(crate) struct Told<'d> {
    events: &'d Events,
    clock: SystemClock,
    /// When the stage began of which something was told last, and when that was told, in nanoseconds.
    last: Mutex<Last>,
}

type Last = Option<(OpeningStage, u64, u64)>;

/// How much time is between two reports of one stage, at least.
const REPORT_EVERY_NS: u64 = 100_000_000;

impl<'d> Told<'d> {
    pub(crate) fn new<P: Protocol>(database: &'d Database<P>) -> Self {
        let events = database.protocol.storage().counters().events();
        Self { events, clock: SystemClock::new(), last: Mutex::new(None) }
    }

    /// So many rows are loaded, and the opening is nearly done.
    fn end(&self, rows: u64) {
        if self.events.is_heard() {
            // The threads that load have ended.
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            self.report_under(last, Progress::Rows { rows, of: rows }, 0);
        }
    }

    pub(crate) fn report(&self, progress: Progress) {
        if self.events.is_heard()
            // Whoever finds it locked leaves it to the other one.
            && let Ok(last) = self.last.try_lock()
        {
            self.report_under(last, progress, REPORT_EVERY_NS);
        }
    }

    /// Reports, unless the same stage was reported less than so many nanoseconds ago.
    fn report_under(&self, mut last: MutexGuard<'_, Last>, progress: Progress, every_ns: u64) {
        let (stage, done, of) = match progress {
            Progress::Log { bytes, of } => (OpeningStage::Log, bytes, of),
            Progress::Rows { rows, of } => (OpeningStage::Rows, rows, of),
        };
        // Under the lock, so that it is not before what another thread has reported.
        let now_ns = self.clock.now_ns();
        let begun_ns = match *last {
            Some((of, _, told_ns)) if of == stage && now_ns - told_ns < every_ns => return,
            Some((of, begun_ns, _)) if of == stage => begun_ns,
            _ => now_ns,
        };
        *last = Some((stage, begun_ns, now_ns));
        drop(last);
        self.events.opening(stage, (done, of), Duration::from_nanos(now_ns - begun_ns));
    }
}

/// Puts recovered rows into a database.
struct Loader<'d, P: Protocol> {
    database: &'d Database<P>,
    path: String,
    /// The tables by their positions.
    tables: BTreeMap<u32, TableId>,
    /// Those that no thread has. They go with this, and what they have counted does not count.
    workers: Mutex<Vec<P::Worker>>,
}

impl<P: Protocol> Loader<'_, P> {
    fn workers(&self) -> MutexGuard<'_, Vec<P::Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Protocol> Load for Loader<'_, P> {
    fn load(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let Some(&table) = self.tables.get(&batch.table()) else { return Ok(()) };
        let worker = self.workers().pop();
        let mut worker = worker.map_or_else(|| self.database.protocol.worker(), Ok)?;
        let rows = batch.rows().map(|row| LoadedRow { key: row.key, row: RowRef::from_words(row.words) });
        let loaded = worker.load(table, &rows.collect::<Vec<_>>());
        self.workers().push(worker);
        loaded.map_err(|error| match error {
            duplicate @ Error::Duplicate(_) => Error::corrupt(self.path.clone(), duplicate.to_string()),
            other => other,
        })
    }
}

impl Database {
    /// Opens the database at a path, with the default protocol and the default options, and makes an empty one where there is none: see
    /// [`Builder::open`]. [`Builder::open_existing`] makes none, and [`Builder::create`] opens no other.
    ///
    /// ```no_run
    /// let database = polychron::Database::open("bank")?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path)
    }
}
