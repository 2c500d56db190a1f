//! A database that is open: workers whose transactions overtake each other, a log, and checkpoints, in one thread and in turns that a seed decides.
//!
//! Transactions have their orders from the beginning, and are sealed in any sequence, as far as a protocol of timestamps lets them: who has read a row
//! prevents others from writing below. A row that was put without a look at it may be put by a lower order later.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use polychron_base::TableId;
use polychron_base::clock::{Duration, ManualClock};
use polychron_base::random::Random;
use polychron_engine::mutations::interrupt;
use polychron_engine::redo::{Change, Log as _, Order, Ticket};
use polychron_log::backup::Archive;
use polychron_log::catalog::StoredCatalog;
use polychron_log::checkpoint::{self, Checkpoints, Contents, Haste, RowSource};
use polychron_log::disk::Files;
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::recover::Tail;
use polychron_log::steps::Point;
use polychron_log::{Beat, DatabaseId, Durability, Error, Log, Logged, Options, read};
use polychron_sim::SimulatedDisk;

use crate::ledger::{Collected, Done, Found, Key, Ledger, Rows, Sealed, WORDS, encoded};

pub(crate) const DATABASE: DatabaseId = DatabaseId(77);
const WORKERS: usize = 3;
/// How many rows a table has at most.
const KEYS: u64 = 12;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) disk: SimulatedDisk,
    pub(crate) manifests: Arc<Mutex<Manifests<SimulatedDisk>>>,
    pub(crate) log: Arc<Log<SimulatedDisk>>,
    pub(crate) checkpoints: Arc<Checkpoints<SimulatedDisk>>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    pub(crate) incarnation: u64,
    durability: Durability,
    /// What was reported of the archive.
    pub(crate) failures: Arc<Mutex<Vec<String>>>,
    pub(crate) clock: Arc<ManualClock>,
    /// Some transactions are longer than rings and frames from then on. Checkpoints that may take little memory read the log very often then.
    pub(crate) has_long: Cell<bool>,
    /// How many were begun.
    pub(crate) longs: Cell<usize>,
    state: Rc<RefCell<State>>,
    orders: Arc<Mutex<(u64, BTreeSet<u64>)>>,
}

/// What a protocol would have in memory.
#[derive(Default)]
struct State {
    versions: BTreeMap<Key, Vec<Version>>,
    workers: [Option<Open>; WORKERS],
    tables: BTreeSet<u32>,
    /// What was sealed while something else was done, and what came of it.
    within: Vec<(Ticket, Result<(), polychron_base::Error>)>,
}

#[derive(Clone)]
struct Version {
    order: u64,
    row: Option<Vec<u64>>,
    /// The highest order that has read it.
    read: u64,
}

struct Open {
    order: u64,
    done: Vec<(Key, Done)>,
}

/// Opens the manifests, or makes a database with a table.
fn manifests(disk: &SimulatedDisk) -> Result<Manifests<SimulatedDisk>, Error> {
    let files = Files::new(disk.clone());
    let first = Manifest {
        database: DATABASE,
        incarnation: 0,
        first_log_file: 1,
        durable: 0,
        checkpoint: None,
        catalog: encoded(&BTreeSet::from([1])),
    };
    match Manifests::open(&files)? {
        Some(manifests) => Ok(manifests),
        None => Ok(Manifests::create(&files, first)?),
    }
}

fn tables_of(manifest: &Manifest) -> Result<(StoredCatalog, BTreeSet<u32>), Error> {
    let catalog = polychron_log::catalog::decode(&manifest.catalog)?;
    let tables = catalog.tables().keys().copied().collect();
    Ok((catalog, tables))
}

/// What recovery makes of a checkpoint and of what `read_log` visits.
fn recover(
    files: &Files<SimulatedDisk>,
    manifest: &Manifest,
    read_log: impl FnOnce(&mut dyn FnMut(Logged<'_>)) -> Result<u64, Error>,
) -> Result<Found, Error> {
    let (catalog, tables) = tables_of(manifest)?;
    let mut tail = Tail::new(&catalog, 0)?;
    checkpoint::carried(files, manifest, &mut |logged| tail.add(logged))?;
    let whole = read_log(&mut |logged| tail.add(logged))?;
    let collected = Collected::default();
    tail.finish()?.merge(1, &RowSource::of(files, manifest), &collected)?;
    let (incarnation, durable) = (manifest.incarnation, manifest.durable);
    Ok(Found { tables, rows: collected.0.into_inner().unwrap(), whole, incarnation, durable })
}

/// What is there; `None` if the database was never made.
pub(crate) fn look(disk: &SimulatedDisk) -> Result<Option<Found>, Error> {
    let files = Files::new(disk.clone());
    let Some(manifests) = Manifests::open(&files)? else { return Ok(None) };
    let (manifest, generation) = (manifests.current(), manifests.generation());
    recover(&files, manifest, |visit| read(&files, manifest, generation, visit)).map(Some)
}

/// What the files of the checkpoint have.
pub(crate) fn contents(disk: &SimulatedDisk) -> Vec<Contents> {
    let manifest = Manifests::read(&Files::new(disk.after_restart())).unwrap().expect("it was made");
    manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files).map(|file| file.contents).collect()
}

/// The files of rows that the checkpoint has: of which table each is, and for which checkpoint it was written.
pub(crate) fn files_of_rows(disk: &SimulatedDisk) -> BTreeSet<(u32, u64)> {
    let manifest = Manifests::read(&Files::new(disk.after_restart())).unwrap().expect("it was made");
    let files = manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
    let of_rows = files.filter_map(|file| match file.contents {
        Contents::Rows { table, .. } => Some((table, file.number)),
        Contents::Records | Contents::Changes => None,
    });
    of_rows.collect()
}

/// Checkpoints that leave rows until what has changed takes so many times their bytes.
pub(crate) fn leaving(changes: f64) -> checkpoint::Options {
    checkpoint::Options { memory_bytes: 1 << 20, changes, ..checkpoint::Options::tiny() }
}

/// Checkpoints that write rows again if something near them has changed, and keep the files of the others.
pub(crate) fn keeping() -> checkpoint::Options {
    leaving(0.0)
}

impl World {
    /// Opens a database, and decides with it what was unknown.
    ///
    /// # Panics
    /// When it has what it must not have, or has not what it must.
    pub(crate) fn open(disk: &SimulatedDisk, ledger: &Ledger) -> Result<Self, Error> {
        Self::open_with(disk, ledger, checkpoint::Options::tiny(), Durability::Immediate)
    }

    pub(crate) fn open_with(
        disk: &SimulatedDisk,
        ledger: &Ledger,
        options: checkpoint::Options,
        durability: Durability,
    ) -> Result<Self, Error> {
        Self::open_archived(disk, ledger, options, durability, None)
    }

    /// With answers that wait for so many standbys, and no time for them: whoever waits learns at once whether they have it.
    pub(crate) fn open_replicated(disk: &SimulatedDisk, ledger: &Ledger, replicas: usize) -> Self {
        let log = Options { replicas, replica_limit: Duration::ZERO, ..Options::tiny() };
        Self::open_log(disk, ledger, checkpoint::Options::tiny(), log, None).unwrap()
    }

    pub(crate) fn open_archived(
        disk: &SimulatedDisk,
        ledger: &Ledger,
        options: checkpoint::Options,
        durability: Durability,
        archive: Option<&SimulatedDisk>,
    ) -> Result<Self, Error> {
        Self::open_log(disk, ledger, options, Options { durability, ..Options::tiny() }, archive)
    }

    fn open_log(
        disk: &SimulatedDisk,
        ledger: &Ledger,
        options: checkpoint::Options,
        log_options: Options,
        archive: Option<&SimulatedDisk>,
    ) -> Result<Self, Error> {
        let files = Files::new(disk.clone());
        let mut manifests = manifests(disk)?;
        let before = manifests.current().clone();
        let mut checkpoints = Checkpoints::open(&files, &before, options)?;
        let clock = Arc::new(ManualClock::new());
        let orders = Arc::new(Mutex::new((1, BTreeSet::new())));
        let seen = Arc::clone(&orders);
        let ended = move || {
            let (next, open): &(u64, BTreeSet<u64>) = &seen.lock().unwrap();
            Order::from(open.first().unwrap_or(next) - 1)
        };
        let mut opened = None;
        let mut found = recover(&files, &before, |visit| {
            let log = Log::open(&files, &mut manifests, log_options, clock.clone(), Box::new(ended), visit)?;
            // An opening has an epoch of its own.
            let whole = log.durable() - 1;
            opened = Some(log);
            Ok(whole)
        })?;
        let failures = Arc::<Mutex<Vec<String>>>::default();
        if let Some(archive) = archive {
            let heard = Arc::clone(&failures);
            let on_failure = move |reason: &str| heard.lock().unwrap().push(reason.to_owned());
            let archive = Archive::new(Files::new(archive.clone()), manifests.current(), Box::new(on_failure));
            checkpoints.archive_to(archive);
        }
        checkpoints.note(&manifests);
        assert_eq!(ledger.complaint(&found), None, "an opening");
        let mut ledger = ledger.clone();
        found.incarnation = manifests.current().incarnation;
        ledger.decide(&found);
        let Found { rows, tables, incarnation, .. } = found;
        let state = State { versions: versions(rows), tables, ..State::default() };
        Ok(Self {
            disk: disk.clone(),
            incarnation,
            durability: log_options.durability,
            manifests: Arc::new(Mutex::new(manifests)),
            log: Arc::new(opened.expect("it was opened")),
            checkpoints: Arc::new(checkpoints),
            ledger: Rc::new(RefCell::new(ledger)),
            failures,
            clock,
            has_long: Cell::new(false),
            longs: Cell::new(0),
            state: Rc::new(RefCell::new(state)),
            orders,
        })
    }

    pub(crate) fn told(&self) -> Ledger {
        self.ledger.borrow().clone()
    }

    fn is_open(&self, worker: usize) -> bool {
        self.state.borrow().workers[worker].is_some()
    }

    /// Begins a transaction of a worker that has none.
    pub(crate) fn begin(&self, worker: usize) -> Result<(), polychron_base::Error> {
        self.log.admit(worker)?;
        let (next, open) = &mut *self.orders.lock().unwrap();
        self.state.borrow_mut().workers[worker] = Some(Open { order: *next, done: Vec::new() });
        open.insert(*next);
        *next += 1;
        Ok(())
    }

    /// Does something to a row, once.
    pub(crate) fn stage(&self, worker: usize, key: Key, done: Done) -> Result<(), polychron_base::Error> {
        let table = TableId::new(9, key.0);
        let change = match &done {
            Done::Put(row) => Change::Put(row),
            Done::Patch(word, words) => Change::Patch { word: *word, words },
            Done::Delete => Change::Delete,
        };
        self.log.stage(worker, table, &key.1.to_be_bytes(), change)?;
        let mut state = self.state.borrow_mut();
        state.workers[worker].as_mut().expect("it has begun").done.push((key, done));
        Ok(())
    }

    fn end(&self, worker: usize) -> Open {
        let open = self.state.borrow_mut().workers[worker].take().expect("it has begun");
        self.orders.lock().unwrap().1.remove(&open.order);
        open
    }

    pub(crate) fn discard(&self, worker: usize) {
        self.end(worker);
        self.log.discard(worker);
    }

    /// Seals a transaction, or discards it if it conflicts with others.
    pub(crate) fn seal(&self, worker: usize) -> Option<Ticket> {
        if !self.state.borrow_mut().install(worker) {
            self.discard(worker);
            return None;
        }
        let order = self.state.borrow().workers[worker].as_ref().expect("it has begun").order;
        let ticket = self.log.seal(worker, Order::from(order));
        let Open { order, done } = self.end(worker);
        let sealed = Sealed { incarnation: self.incarnation, order, epoch: ticket.0, done };
        self.ledger.borrow_mut().sealed.push(sealed);
        Some(ticket)
    }

    /// Waits until what was sealed is certain, if anything but a checkpoint makes it so.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), polychron_base::Error> {
        if self.durability == Durability::OnCheckpoint {
            return Ok(());
        }
        self.log.wait(ticket)?;
        let mut ledger = self.ledger.borrow_mut();
        ledger.certain = ledger.certain.max(ticket.0);
        Ok(())
    }

    /// A whole transaction, acknowledged.
    pub(crate) fn commit(&self, worker: usize, changes: &[(Key, Done)]) -> Result<(), polychron_base::Error> {
        self.begin(worker)?;
        for (key, done) in changes {
            self.stage(worker, *key, done.clone())?;
        }
        let ticket = self.seal(worker).expect("nothing conflicts with it");
        self.wait(ticket)
    }

    /// Has the manifest name these tables, which are used from then on.
    pub(crate) fn define(&self, tables: BTreeSet<u32>) -> Result<(), Error> {
        self.ledger.borrow_mut().tables.push(tables.clone());
        if self.log.flush().is_err() {
            return Err(Error::InDoubt);
        }
        let mut manifests = self.manifests.lock().unwrap();
        let next = Manifest { catalog: encoded(&tables), ..manifests.current().clone() };
        manifests.write(next)?;
        self.checkpoints.note(&manifests);
        // It counts now, and no file goes by that.
        let _ = self.log.release(0, manifests.generation());
        self.state.borrow_mut().tables = tables;
        let mut ledger = self.ledger.borrow_mut();
        ledger.first = ledger.tables.len() - 1;
        Ok(())
    }

    /// A checkpoint of all that is sealed. What it has is certain then, whatever else is.
    pub(crate) fn checkpoint(&self) -> Result<u64, Error> {
        let _ = self.log.flush();
        let epoch = self.checkpoints.run(&self.log, &self.manifests, Haste::Unpaced)?;
        let mut ledger = self.ledger.borrow_mut();
        ledger.certain = ledger.certain.max(epoch);
        Ok(epoch)
    }

    /// The files of the checkpoint that counts.
    pub(crate) fn files(&self) -> Vec<String> {
        let manifests = self.manifests.lock().unwrap();
        manifests.current().checkpoint.iter().flat_map(|it| &it.files).map(|file| file.path()).collect()
    }

    /// The log's threads look so often, each time after so long.
    pub(crate) fn idle(&self, times: usize, millis: u64) {
        let mut beat = Beat::default();
        for _ in 0..times {
            self.log.make_files();
            self.log.tick(&mut beat);
            self.clock.advance_ns(millis * 1_000_000);
        }
    }

    /// So many steps of workers that a seed chooses.
    pub(crate) fn run(&self, random: &mut Random, steps: usize) -> Result<(), polychron_base::Error> {
        let result = self.steps(random, steps);
        // What waits to interrupt holds this world.
        interrupt(Point::Closing, || {});
        result
    }

    fn steps(&self, random: &mut Random, steps: usize) -> Result<(), polychron_base::Error> {
        let mut pending = Vec::new();
        for _ in 0..steps {
            let worker = random.below(WORKERS as u64) as usize;
            match random.below(16) {
                _ if !self.is_open(worker) && random.chance(0.6) => self.begin(worker)?,
                0..6 if self.is_open(worker) => self.draw(worker, random)?,
                6 if self.is_open(worker) && random.chance(0.2) => self.discard(worker),
                6..10 if self.is_open(worker) => pending.extend(self.seal(worker)),
                10 => self.idle(1, random.below(20)),
                11 if random.chance(0.5) => self.checkpoint_beside(random)?,
                12 if random.chance(0.15) => self.redefine(random)?,
                _ if !pending.is_empty() => {
                    let ticket = pending.swap_remove(random.below(pending.len() as u64) as usize);
                    self.wait(ticket)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Something of which nothing is known, done to a row.
    fn draw(&self, worker: usize, random: &mut Random) -> Result<(), polychron_base::Error> {
        let tables: Vec<u32> = self.state.borrow().tables.iter().copied().collect();
        let Some(table) = tables.get(random.below(tables.len().max(1) as u64) as usize) else { return Ok(()) };
        let key = (*table, random.below(KEYS));
        let words = |random: &mut Random, count: u64| -> Vec<u64> {
            (0..count).map(|_| if random.chance(0.3) { 0 } else { random.next_u64() >> random.below(64) }).collect()
        };
        let (row, is_done) = self.state.borrow().seen(worker, key);
        let done = match random.below(5) {
            _ if is_done => return Ok(()),
            0 | 1 if row.is_some() => {
                let count = 1 + random.below(WORDS as u64 - 1);
                let first = 1 + random.below(WORDS as u64 - count) as usize;
                Done::Patch(first, words(random, count))
            }
            2 if row.is_some() => Done::Delete,
            kind => {
                if kind == 4 && self.has_long.get() && random.chance(0.15) {
                    self.put_often(worker, key)?;
                }
                Done::Put([vec![key.1], words(random, WORDS as u64 - 1)].concat())
            }
        };
        self.stage(worker, key, done)
    }

    /// Puts a row so often that the transaction is longer than its ring, and than a frame. What is put behind that counts.
    fn put_often(&self, worker: usize, (table, key): Key) -> Result<(), polychron_base::Error> {
        self.longs.set(self.longs.get() + 1);
        (1..=120).try_for_each(|word| {
            let row = [key, word, u64::MAX - word, word, u64::MAX - word];
            self.log.stage(worker, TableId::new(9, table), &key.to_be_bytes(), Change::Put(&row))
        })
    }

    /// A checkpoint, while which others seal and commit.
    fn checkpoint_beside(&self, random: &mut Random) -> Result<(), polychron_base::Error> {
        let point = if random.chance(0.5) { Point::CheckpointBegins } else { Point::FilesWritten };
        let (world, worker) = (self.clone(), random.below(WORKERS as u64) as usize);
        interrupt(point, move || {
            if world.is_open(worker)
                && let Some(ticket) = world.seal(worker)
            {
                let result = world.wait(ticket);
                world.state.borrow_mut().within.push((ticket, result));
            }
        });
        // One that fails is tried again.
        let _ = self.checkpoint();
        interrupt(Point::Closing, || {});
        let within = std::mem::take(&mut self.state.borrow_mut().within);
        within.into_iter().try_for_each(|(_, result)| result)
    }

    fn redefine(&self, random: &mut Random) -> Result<(), polychron_base::Error> {
        let open: BTreeSet<u32> = self
            .state
            .borrow()
            .workers
            .iter()
            .flatten()
            .flat_map(|it| &it.done)
            .map(|((table, _), _)| *table)
            .collect();
        let mut tables = self.state.borrow().tables.clone();
        let last = self.ledger.borrow().tables.iter().flatten().max().copied().unwrap_or(1);
        if tables.len() < 3 {
            tables.insert(last + 1);
        } else {
            let dropped = tables.iter().copied().nth(random.below(3) as usize);
            // The highest one stays, so that none has its position again.
            tables.retain(|table| Some(*table) != dropped || *table == last || open.contains(table));
        }
        // What fails ends nothing but later definitions.
        let _ = self.define(tables);
        Ok(())
    }
}

impl State {
    /// The row that a worker's transaction sees, and whether it has done something to it.
    fn seen(&self, worker: usize, key: Key) -> (Option<Vec<u64>>, bool) {
        let open = self.workers[worker].as_ref().expect("it has begun");
        let is_done = open.done.iter().any(|(done, _)| *done == key);
        let version = self.below(key, open.order).map(|at| &self.versions[&key][at]);
        (version.and_then(|version| version.row.clone()), is_done)
    }

    /// The version of a key below an order.
    fn below(&self, key: Key, order: u64) -> Option<usize> {
        self.versions.get(&key)?.iter().rposition(|version| version.order < order)
    }

    /// What a worker's transaction has done is there for others, if it does not conflict with what they have read.
    fn install(&mut self, worker: usize) -> bool {
        let Open { order, done } = self.workers[worker].as_ref().expect("it has begun");
        let fits = |(key, done): &(Key, Done)| {
            let below = self.below(*key, *order).map(|at| &self.versions[key][at]);
            let is_there = below.is_some_and(|version| version.row.is_some());
            below.is_none_or(|version| version.read <= *order) && (matches!(done, Done::Put(_)) || is_there)
        };
        if done.is_empty() || !done.iter().all(fits) {
            return false;
        }
        let (order, done) = (*order, done.clone());
        for (key, done) in done {
            let below = self.below(key, order);
            let versions = self.versions.entry(key).or_default();
            let row = match below {
                Some(at) => {
                    if !matches!(done, Done::Put(_)) {
                        versions[at].read = order;
                    }
                    done.apply(versions[at].row.as_ref())
                }
                None => done.apply(None),
            };
            versions.insert(below.map_or(0, |at| at + 1), Version { order, row, read: order });
        }
        true
    }
}

/// What was there before the first transaction.
fn versions(rows: Rows) -> BTreeMap<Key, Vec<Version>> {
    rows.into_iter().map(|(key, row)| (key, vec![Version { order: 0, row: Some(row), read: 0 }])).collect()
}
