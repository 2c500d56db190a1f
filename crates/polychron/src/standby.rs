//! Standbys: databases that follow another one, and are read alone.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use polychron_base::clock::{Clock, SystemClock, calendar_time};
use polychron_base::error::table_name;
use polychron_engine::definitions::{Standing, StoredCatalog, StoredTable};
use polychron_engine::redo::{Change, Durability, Journal, Log, Order, Ticket};
use polychron_engine::{
    Error, Insertion, Interactive, Mode, Projection, Protocol, RowRef, TableDefinition, TableId, Transaction, drive,
};
use polychron_log::disk::{Directory, Disk, Files};
use polychron_log::frame;
use polychron_log::ship::net::{Connection, SocketAddr};
use polychron_log::ship::{Apply, Base, Changes, Following, Point, Standby, StandbyOpening, Trouble};
use polychron_log::{Load, Settings, Wanted};
use polychron_schema::EvolutionError;
use polychron_sync::Process;
use polychron_sync::atomic::{AtomicBool, Ordering};

use crate::durable::{Ends, Home, Recovers, load};
use crate::{Builder, Database, TransactionOf};

/// How long a standby waits at first before it connects again, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection on which nothing is heard for so long has ended.
const SILENCE: Duration = Duration::from_secs(5);
/// How long an opening waits for its primary.
const OPENING: Duration = Duration::from_secs(30);
/// How often a standby looks whether a checkpoint is due.
const LOOK: Duration = Duration::from_millis(100);

thread_local! {
    /// The standby that this thread may change.
    static ADMITTED: Cell<usize> = const { Cell::new(0) };
}

/// Refuses changes that do not come from the primary.
struct Guard {
    path: String,
    tables: OnceLock<()>,
}

impl Guard {
    fn is_admitted(&self) -> bool {
        self.tables.get().is_none() || ADMITTED.get() == self.number()
    }

    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Does something that may change the standby.
    fn admit<O>(&self, act: impl FnOnce() -> O) -> O {
        struct Restore(usize);
        impl Drop for Restore {
            fn drop(&mut self) {
                ADMITTED.set(self.0);
            }
        }
        let _restore = Restore(ADMITTED.replace(self.number()));
        act()
    }
}

impl Log for Guard {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, _: usize, table: TableId, _: &[u8], _: Change<'_>) -> Result<(), Error> {
        if self.is_admitted() { Ok(()) } else { Err(Error::opened_read_only(table_name(table), self.path.clone())) }
    }

    fn discard(&self, _: usize) {}

    fn seal(&self, _: usize, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn ticket(&self, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn sealed(&self) -> Ticket {
        Ticket::DONE
    }

    fn wait(&self, _: Ticket) -> Result<(), Error> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::OnCheckpoint
    }

    fn define(&self, _: &StoredCatalog) -> Result<(), Error> {
        let refused = || Error::opened_read_only("the list of tables".to_owned(), self.path.clone());
        if self.is_admitted() { Ok(()) } else { Err(refused()) }
    }
}

/// How far a standby is behind its primary, and whether it follows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StandbyStatus {
    /// Whether it is connected to its primary.
    pub is_connected: bool,
    /// Log epochs that the primary has durably and that readers do not see yet, as far as the primary has told.
    pub epochs_behind: u64,
    /// How long what was received last had been on its way, from its frame's wall clock at the primary until readers saw it. Clocks may differ.
    pub lag: Duration,
    /// The time of what readers see, by the primary's wall clock, in nanoseconds since 1970.
    pub seen_ns: u64,
    /// How often what readers see has changed.
    pub points: u64,
    /// Why it did not follow the last time.
    pub trouble: Option<String>,
}

/// What a standby's thread tells others.
#[derive(Default)]
struct Shared {
    status: Mutex<Status>,
    is_over: AtomicBool,
    over: (Mutex<()>, Condvar),
}

#[derive(Clone, Default)]
struct Status {
    is_connected: bool,
    received: u64,
    primary: u64,
    seen: Point,
    lag: Duration,
    points: u64,
    trouble: Option<String>,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits, unless the standby is closed.
    fn pause(&self, time: Duration) {
        let lock = self.over.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over() {
            drop(self.over.1.wait_timeout(lock, time));
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.over.0.lock());
        self.over.1.notify_all();
    }
}

/// The files and threads of an open standby.
struct Held<D: Disk> {
    following: Arc<Following<D>>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: Process,
}

impl<D: Disk + Clone> Held<D> {
    fn spawn(&self, name: &str, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(act)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn end(&self) {
        self.shared.end();
        self.following.stop();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // There are no such threads in a process that was forked.
            if self.process.is_here() { drop(thread.join()) } else { std::mem::forget(thread) }
        }
    }
}

impl<D: Disk + Clone> Ends for Held<D> {
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), Error> {
        self.following.checkpoint()
    }

    fn back_up(&self, path: &Path) -> Result<(), Error> {
        self.following.back_up_directory(path)
    }

    fn close(&self) -> Result<(), Error> {
        self.end();
        Ok(())
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    fn standby(&self) -> Option<StandbyStatus> {
        let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Status { is_connected, received, primary, seen, lag, points, trouble } = status;
        let epochs_behind = primary.max(received).saturating_sub(seen.epoch);
        Some(StandbyStatus { is_connected, epochs_behind, lag, seen_ns: seen.written_ns, points, trouble })
    }
}

/// What makes a database of a standby: tables by their positions at the primary, and what is known of each.
pub(crate) struct Applier<P: Protocol> {
    protocol: Arc<P>,
    guard: Arc<Guard>,
    shared: Arc<Shared>,
    tables: BTreeMap<u32, (TableId, StoredTable)>,
    worker: P::Worker,
}

impl<P: Protocol<Worker: Interactive>> Applier<P> {
    fn new(protocol: &Arc<P>, guard: &Arc<Guard>, shared: &Arc<Shared>, tables: &StoredCatalog) -> Result<Self, Error> {
        let found = tables.tables().iter().filter_map(|(position, table)| {
            let id = protocol.storage().find_table(&table.definition.name)?;
            Some((*position, (id, table.clone())))
        });
        let (protocol, guard, shared) = (Arc::clone(protocol), Arc::clone(guard), Arc::clone(shared));
        let worker = protocol.worker()?;
        Ok(Self { tables: found.collect(), worker, protocol, guard, shared })
    }

    /// Tables and indexes go that are not there any more, and tables are made. Answers which tables take the place of others when their rows are there.
    fn prepare(&mut self, wanted: &StoredCatalog) -> Result<Vec<(u32, TableId)>, Error> {
        let storage = self.protocol.storage();
        let mut superseding = Vec::new();
        let old = std::mem::take(&mut self.tables);
        // Children before their parents.
        for (position, (id, table)) in old.into_iter().rev() {
            match wanted.tables().get(&position) {
                None => {
                    let name = &table.definition.name;
                    let other = wanted.tables().iter().find(|(_, other)| other.definition.name == *name);
                    match other {
                        Some((other, _)) => superseding.push((*other, id)),
                        None => storage.drop_table(id)?,
                    }
                }
                Some(new) => {
                    let gone = table.definition.indexes.iter().zip(&table.indexes);
                    for (index, _) in gone.filter(|(_, id)| !new.indexes.contains(id)) {
                        if let Some(index) = storage.find_index(id, &index.name)? {
                            storage.drop_index(id, index)?;
                        }
                    }
                    self.tables.insert(position, (id, table));
                }
            }
        }
        for (position, table) in wanted.tables() {
            if !self.tables.contains_key(position) {
                let mut definition = TableDefinition::clone(&table.definition);
                let is_superseding = superseding.iter().any(|(other, _)| other == position);
                if is_superseding {
                    definition.name = format!("{} (on its way)", definition.name);
                }
                let standing = if is_superseding { Standing::Provisional } else { Standing::Permanent };
                let id = storage.create_table(definition, standing)?;
                self.tables.insert(*position, (id, table.clone()));
            }
        }
        Ok(superseding)
    }

    /// Tables take the place of others, and indexes are made.
    fn complete(&mut self, wanted: &StoredCatalog, superseding: Vec<(u32, TableId)>) -> Result<(), Error> {
        let storage = self.protocol.storage();
        for (position, old) in superseding {
            let Some((id, table)) = self.tables.get(&position) else { continue };
            let name = table.definition.name.clone();
            let why = EvolutionError::Superseded { table: name, difference: "it has other columns".to_owned() };
            storage.supersede_table((old, Arc::new(why)), *id)?;
        }
        for (position, table) in wanted.tables() {
            let Some((id, present)) = self.tables.get_mut(position) else { continue };
            for (index, _) in table.definition.indexes.iter().zip(&table.indexes) {
                if storage.find_index(*id, &index.name)?.is_none() {
                    storage.create_index(*id, index.clone(), Standing::Permanent)?;
                }
            }
            *present = table.clone();
        }
        Ok(())
    }

    fn write(&mut self, changes: &Changes) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut run = Run { tables: &self.tables, changes };
        let applied = drive::transact(&mut self.worker, Mode::ReadWrite, &mut |transaction: &mut TransactionOf<
            '_,
            P,
        >| { run.run(transaction) });
        // What it waits for is nothing.
        let _ = polychron_engine::Worker::take_ticket(&mut self.worker);
        applied
    }

    fn try_apply(&mut self, tables: &StoredCatalog, changes: &Changes) -> Result<(), Error> {
        let is_other = {
            let stored = tables.tables().iter();
            self.tables.len() != tables.tables().len()
                || stored.zip(&self.tables).any(|((at, wanted), (other, (_, table)))| (at, wanted) != (other, table))
        };
        if !is_other {
            return self.write(changes);
        }
        let superseding = self.prepare(tables)?;
        self.write(changes)?;
        self.complete(tables, superseding)
    }
}

impl<P: Protocol<Worker: Interactive>> Apply for Applier<P> {
    fn apply(&mut self, tables: &StoredCatalog, changes: &Changes, point: &Point) -> Result<(), Error> {
        let guard = Arc::clone(&self.guard);
        guard.admit(|| self.try_apply(tables, changes))?;
        let now_ns = calendar_time().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let lag = Duration::from_nanos(now_ns.saturating_sub(point.written_ns));
        self.shared.change(|status| {
            (status.seen, status.lag, status.points) = (*point, lag, status.points + 1);
        });
        Ok(())
    }
}

/// All that has changed from one point to the next, as one transaction.
struct Run<'c> {
    tables: &'c BTreeMap<u32, (TableId, StoredTable)>,
    changes: &'c Changes,
}

impl Run<'_> {
    /// Rows go before others come: a unique index may get a key that another row has given up.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let mut patched: Vec<(TableId, &[u8], Vec<u64>)> = Vec::new();
        for (key, change) in self.changes.iter() {
            let Some((table, has_unique)) = self.table(&change) else { continue };
            match change {
                frame::Change::Delete { .. } => {
                    transaction.delete_unchecked(table, key)?;
                }
                frame::Change::Put { .. } if has_unique => {
                    transaction.delete_unchecked(table, key)?;
                }
                frame::Change::Put { .. } => {}
                frame::Change::Patch { ranges, .. } => {
                    let row = transaction.read_row(table, key, &Projection::ALL)?;
                    let Some(mut words) = row.map(|row| row.as_words().to_vec()) else { return Err(unknown(table)) };
                    for (first, range) in ranges {
                        let Some(target) = words.get_mut(first..first + range.len()) else {
                            return Err(unknown(table));
                        };
                        target.iter_mut().zip(range).for_each(|(to, from)| *to = from);
                    }
                    if has_unique {
                        transaction.delete_unchecked(table, key)?;
                    }
                    patched.push((table, key, words));
                }
            }
        }
        for (table, key, words) in patched {
            put(transaction, table, key, &words)?;
        }
        for (key, change) in self.changes.iter() {
            if let (frame::Change::Put { row, .. }, Some((table, _))) = (change, self.table(&change)) {
                put(transaction, table, key, &row.collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// The table of a change, and whether it has a unique index beside its key.
    fn table(&self, change: &frame::Change<'_>) -> Option<(TableId, bool)> {
        let (frame::Change::Put { table, .. }
        | frame::Change::Patch { table, .. }
        | frame::Change::Delete { table, .. }) = change;
        let (id, stored) = self.tables.get(table)?;
        Some((*id, stored.definition.indexes.iter().any(|index| index.unique)))
    }
}

fn put<T: Transaction>(transaction: &mut T, table: TableId, key: &[u8], words: &[u64]) -> Result<(), Error> {
    let row = RowRef::from_words(words);
    match transaction.put_unchecked(table, key, row)? {
        Insertion::Inserted => Ok(()),
        Insertion::Duplicate(index) => Err(transaction.constraints(table)?.duplicate(table, index, row)),
    }
}

#[cold]
fn unknown(table: TableId) -> Error {
    Error::corrupt(table_name(table), "a row was patched that the standby does not have".to_owned())
}

/// While a standby's log has no point yet.
struct Unseen;

impl Apply for Unseen {
    fn apply(&mut self, _: &StoredCatalog, _: &Changes, _: &Point) -> Result<(), Error> {
        Ok(())
    }
}

/// What a standby is made of. Tables that an evolution at the primary has not finished are there, too.
struct Recovering<D: Disk>(StandbyOpening<D>, StoredCatalog);

impl<D: Disk + Clone> Recovering<D> {
    fn new(opening: StandbyOpening<D>) -> Result<Self, Error> {
        let stored = opening.catalog();
        let permanent = |(position, table): (&u32, &StoredTable)| {
            (*position, StoredTable { standing: Standing::Permanent, ..table.clone() })
        };
        let tables = StoredCatalog::new(stored.next(), stored.tables().iter().map(permanent).collect())?;
        Ok(Self(opening, tables))
    }
}

impl<D: Disk + Clone> Recovers for Recovering<D> {
    fn catalog(&self) -> &StoredCatalog {
        &self.1
    }

    fn load<S: Load>(&mut self, sink: &S) -> Result<u64, Error> {
        self.0.load(sink)
    }
}

/// Connects to the primary, and follows it until the connection ends, the standby is closed, or this is enough.
fn follow<D: Disk + Clone>(
    standby: &mut Standby<D>,
    apply: &mut dyn Apply,
    primary: &str,
    shared: &Shared,
    is_enough: impl Fn(&Standby<D>) -> bool,
) -> Result<(), Trouble> {
    let mut connection = Connection::open(primary)?;
    connection.send(&standby.hello()?)?;
    while !shared.is_over() && !is_enough(standby) {
        let bytes = connection.receive()?;
        if bytes.is_empty() {
            if standby.silence() > SILENCE {
                return Err(Trouble::Lost("the primary has said nothing for a while".to_owned()));
            }
            continue;
        }
        standby.receive(bytes, apply)?;
        let (received, primary) = standby.epochs();
        shared.change(|status| {
            (status.received, status.primary, status.is_connected, status.trouble) = (received, primary, true, None);
        });
    }
    Ok(())
}

/// Follows the primary until the standby is closed.
fn follow_on<D: Disk + Clone>(standby: &mut Standby<D>, apply: &mut dyn Apply, primary: &str, shared: &Shared) {
    let mut pause = FIRST_PAUSE;
    while !shared.is_over() {
        let before = standby.epochs().0;
        let ended = follow(standby, apply, primary, shared, |_| false);
        shared.change(|status| {
            status.is_connected = false;
            status.trouble = ended.err().map(|trouble| trouble.to_string());
        });
        pause = if standby.epochs().0 > before { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        shared.pause(pause);
    }
}

/// Has the files of a new standby sent.
fn receive_base<D: Disk + Clone>(mut base: Base<D>, primary: &str) -> Result<(), Trouble> {
    let mut connection = Connection::open(primary)?;
    connection.send(&base.hello())?;
    let clock = SystemClock::new();
    let mut heard = 0;
    loop {
        let bytes = connection.receive()?;
        if !bytes.is_empty() {
            heard = clock.now_ns();
            if base.receive(bytes)? {
                return Ok(());
            }
        } else if clock.now_ns() - heard > SILENCE.as_nanos() as u64 {
            return Err(Trouble::Lost("the primary has said nothing for a while".to_owned()));
        }
    }
}

/// Opens the files of a standby, which are made or gone on with first where there is no point yet that readers could see.
fn open_files<D: Disk + Clone>(
    files: &Files<D>,
    settings: &Settings,
    primary: &str,
) -> Result<StandbyOpening<D>, Trouble> {
    let clock = SystemClock::new();
    let shared = Shared::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let trouble = match Base::begin(files)? {
            Some(base) => receive_base(base, primary).err(),
            None => {
                let opening = StandbyOpening::begin(files, settings)?;
                if opening.point().is_some() {
                    return Ok(opening);
                }
                let mut standby = opening.finish();
                let has_point = |standby: &Standby<D>| standby.point().is_some();
                follow(&mut standby, &mut Unseen, primary, &shared, has_point).err()
            }
        };
        match trouble {
            None => {}
            Some(trouble) if trouble.is_passing() && clock.now_ns() < OPENING.as_nanos() as u64 => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            Some(trouble) => return Err(trouble),
        }
    }
}

impl<P: Protocol<Worker: Interactive>> Builder<P> {
    /// Opens a standby of another database, its primary, which listens at this address ([`Builder::serve_standbys`]): a database that is read, and that shows what the
    /// primary has durably, a little later. Where there is nothing at the path, or an empty directory, the primary sends all that it has first. What
    /// readers see is always a state that the primary had: what has changed between two such states is seen at once.
    ///
    /// Changes are refused ([`Error::OpenedReadOnly`]). Opened with [`Builder::open`] instead, the directory is a database like any other, and the primary is
    /// not followed by anybody any more who has heard of that.
    ///
    /// # Errors
    /// As [`Builder::open`], and [`Error::NotFollowing`] where a new standby finds no primary. A standby that has been one before opens without its primary,
    /// and connects when that is there.
    pub fn open_standby(self, path: impl AsRef<Path>, primary: &str) -> Result<Database<P>, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let settings = self.settings(name.clone(), Wanted::Existing);
        let refused = |cause: polychron_log::disk::Cause| Error::inaccessible(name, cause.to_string());
        let files = Files::new(Directory::create_or_open(path).map_err(refused)?);
        let opened = self.standby(&files, settings, |settings| open_files(&files, settings, primary))?;
        let (database, mut standby, mut applier) = opened;
        let (following, shared) = (Arc::clone(standby.following()), Arc::clone(&applier.shared));
        let (primary, told, ticking) = (primary.to_owned(), Arc::clone(&shared), Arc::clone(&following));
        let follow = move || follow_on(&mut standby, &mut applier, &primary, &told);
        let looked = Arc::clone(&shared);
        let look = move || {
            while !looked.is_over() {
                ticking.tick();
                looked.pause(LOOK);
            }
        };
        let held = Held { following, shared, threads: Mutex::default(), process: Process::here() };
        let spawned = held.spawn("polychron-standby", follow).and_then(|()| held.spawn("polychron-checkpoint", look));
        database.pool.keep(Home::new(Arc::new(held)));
        spawned.map_err(|error| Error::options(format!("the standby has no threads: {error}")))?;
        Ok(database)
    }

    fn standby<D: Disk + Clone>(
        self,
        files: &Files<D>,
        settings: Settings,
        open: impl FnOnce(&Settings) -> Result<StandbyOpening<D>, Trouble>,
    ) -> Result<(Database<P>, Standby<D>, Applier<P>), Error> {
        let _ = files;
        let mut options = self.checked()?;
        let guard = Arc::new(Guard { path: settings.path.clone(), tables: OnceLock::new() });
        let memory = &mut options.common.memory;
        let files_bytes = settings.log.memory_bytes + settings.checkpoints.memory_bytes;
        memory.limit_bytes = memory.limit_bytes.map(|limit| limit.saturating_sub(files_bytes));
        options.common.journal = Journal::new(Arc::clone(&guard) as _);
        let database = Database::with_options(options)?;
        // A protocol that executes transactions elsewhere cannot tell whose changes they are.
        database.transact(|_| Ok::<_, Error>(()))?;
        let opening = open(&settings).map_err(|trouble| trouble.of_standby(&settings.path))?;
        let mut recovering = Recovering::new(opening)?;
        load(&database, settings.path.clone(), &mut recovering)?;
        let opening = recovering.0;
        let shared = Arc::<Shared>::default();
        let seen = opening.point().unwrap_or_default();
        shared.change(|status| (status.seen, status.received) = (seen, seen.epoch));
        let applier = Applier::new(&database.protocol, &guard, &shared, opening.catalog())?;
        // From now on.
        let _ = guard.tables.set(());
        Ok((database, opening.finish(), applier))
    }
}

impl<P: Protocol> Database<P> {
    /// How a standby follows its primary; `None` of another database.
    pub fn standby(&self) -> Option<StandbyStatus> {
        self.pool.home().and_then(|home| home.ends().standby())
    }

    /// Where standbys connect, if they can.
    pub fn standby_address(&self) -> Option<SocketAddr> {
        self.pool.home().and_then(|home| home.ends().standby_address())
    }
}
