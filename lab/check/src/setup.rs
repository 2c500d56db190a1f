//! How a protocol is opened for the tests, and what they do with it most often.

use std::fmt;
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::key::HashSeed;
use polychron_engine::any::{AnyOptions, AnyProtocol};
use polychron_engine::{Common, Interactive, Isolation, Mode, Operations, Protocol, Row, Table, drive};

use crate::client::Client;
use crate::rows::{Item, Person};

/// Lets time pass in a database.
type Tick<P> = Arc<dyn Fn(&Arc<P>) + Send + Sync>;

/// How a protocol is tested.
pub struct Setup<P: Protocol> {
    /// The protocol's options. Clocks should stand still where [`Setup::tick`] can move them.
    pub options: P::Options,
    /// The common options.
    pub common: Common,
    /// The protocol's name.
    pub name: &'static str,
    /// What it promises.
    pub isolation: Isolation,
    /// Lets time pass and background work be done, once.
    pub tick: Tick<P>,
    /// Whether two transactions can be open at the same time in one thread. Where they cannot, tests that need it pass
    /// without having shown anything.
    pub interleaves: bool,
    /// Whether a snapshot can be open in one thread beside transactions, even where two transactions cannot.
    pub snapshots_interleave: bool,
    /// Whether [`polychron_engine::Statistics::memory`] tells what rows need.
    pub measures_memory: bool,
    /// Whether a worker's maintenance goes by a clock, which stands still in tests, and not by [`Setup::tick`].
    pub maintains_by_clock: bool,
    /// Bytes by which what is in use may differ between two measurements: places of records stay with their index to serve
    /// again, more of them when a long snapshot held more back at a time, and large versions lie in heads or outside. That does
    /// not add up.
    pub kept_slots_bytes: usize,
    /// Whether snapshots lock what they read: they hold writers back, and may be made to begin again. What tests ask of snapshots
    /// beside writers is then not asked.
    pub snapshots_lock: bool,
    /// Whether the serial order agrees with real time.
    pub strict: bool,
}

impl<P: Protocol> fmt::Debug for Setup<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Setup")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<P: Protocol> Clone for Setup<P> {
    fn clone(&self) -> Self {
        Self { options: self.options.clone(), common: self.common.clone(), tick: Arc::clone(&self.tick), ..*self }
    }
}

impl<P: Protocol> Setup<P> {
    /// A protocol with its clock and nothing else.
    pub fn new(options: P::Options, tick: fn(&Arc<P>)) -> Self {
        let memory = polychron_memory::Options {
            huge_pages: false,
            region_bytes: 16 << 20,
            limit_bytes: Some(1 << 30),
            max_workers: 32,
            ..polychron_memory::Options::default()
        };
        // A test that can never commit fails instead of trying for ever.
        let retry = polychron_engine::options::Retry { attempts: 100_000, ..Default::default() };
        // A run of a seed is to be repeated exactly.
        let common = Common { memory, retry, hash_seed: HashSeed::FIXED, ..Common::default() };
        Self {
            options,
            common,
            name: P::NAME,
            isolation: P::ISOLATION,
            tick: Arc::new(tick),
            interleaves: true,
            snapshots_interleave: true,
            measures_memory: true,
            maintains_by_clock: false,
            kept_slots_bytes: 0,
            snapshots_lock: false,
            strict: true,
        }
    }

    /// The same with one of the protocol's named configurations.
    ///
    /// # Panics
    /// When there is none of this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        let found = P::CONFIGURATIONS.iter().find(|configuration| configuration.name == name);
        let configuration = found.expect("the protocol has this configuration");
        for (name, value) in configuration.options {
            P::set_option(&mut self.options, name, value).expect("the options of a configuration are sound");
        }
        Self { name: configuration.name, isolation: configuration.isolation, ..self }
    }

    /// The same for a protocol that runs one transaction at a time.
    pub fn alone(self) -> Self {
        Self { interleaves: false, snapshots_interleave: false, ..self }
    }

    /// The same test of the same protocol behind virtual calls: what it runs is compiled once, and not once for each protocol.
    pub fn erased(self) -> Setup<AnyProtocol>
    where
        P::Worker: Interactive,
    {
        let tick = self.tick;
        Setup {
            options: AnyOptions::interactive::<P>(self.options),
            common: self.common,
            name: self.name,
            isolation: self.isolation,
            tick: Arc::new(move |any| tick(any.database().expect("the options open this protocol"))),
            interleaves: self.interleaves,
            snapshots_interleave: self.snapshots_interleave,
            measures_memory: self.measures_memory,
            maintains_by_clock: self.maintains_by_clock,
            kept_slots_bytes: self.kept_slots_bytes,
            snapshots_lock: self.snapshots_lock,
            strict: self.strict,
        }
    }

    /// Opens an empty database.
    pub(crate) fn open(&self) -> Arc<P> {
        P::open(self.options.clone(), self.common.clone()).expect("the options are sound")
    }

    /// Lets `ticks` units of time pass.
    pub(crate) fn pass(&self, database: &Arc<P>, ticks: usize) {
        for _ in 0..ticks {
            (self.tick)(database);
        }
    }
}

/// A running transaction of a protocol.
pub(crate) type Tx<'w, P> = <<P as Protocol>::Worker as Interactive>::Transaction<'w>;

/// Creates the table of `R`.
pub(crate) fn create<P: Protocol, R: Row>(database: &Arc<P>) -> Table<R> {
    Table::from_id(database.create_table(R::definition()).expect("the definition is sound"))
}

/// Runs a body in transactions until one commits.
pub(crate) fn run<W: Interactive + 'static, O>(
    worker: &mut W,
    mut body: impl FnMut(&mut W::Transaction<'_>) -> Result<O, Error>,
) -> Result<O, Error> {
    drive::transact(worker, Mode::ReadWrite, &mut body)
}

/// As [`run`], where nothing may go wrong.
pub(crate) fn done<W: Interactive + 'static, O>(
    worker: &mut W,
    body: impl FnMut(&mut W::Transaction<'_>) -> Result<O, Error>,
) -> O {
    run(worker, body).expect("the transaction commits")
}

/// As [`done`], on a snapshot.
pub(crate) fn snapshot<W: Interactive + 'static, O>(
    worker: &mut W,
    mut body: impl FnMut(&mut W::Transaction<'_>) -> Result<O, Error>,
) -> O {
    drive::transact(worker, Mode::Snapshot, &mut body).expect("a snapshot ends well")
}

/// All rows of a table in the order of their keys.
pub(crate) fn all<W: Interactive + 'static, R: Row>(worker: &mut W, table: &Table<R>) -> Vec<R> {
    done(worker, |transaction| transaction.scan(table, ..).rows())
}

/// A database with the items `(id, value)`.
pub(crate) fn items<P>(setup: &Setup<P>, rows: &[(u64, i64)]) -> (Arc<P>, Table<Item>)
where
    P: Protocol,
    P::Worker: Interactive,
{
    let database = setup.open();
    let table = create::<P, Item>(&database);
    let mut worker = database.worker().expect("a slot is free");
    done(&mut worker, |transaction| {
        rows.iter().try_for_each(|&(id, value)| transaction.insert(&table, &Item { id, value }))
    });
    (database, table)
}

/// A database with these persons.
pub(crate) fn persons<P>(setup: &Setup<P>, rows: &[Person]) -> (Arc<P>, Table<Person>)
where
    P: Protocol,
    P::Worker: Interactive,
{
    let database = setup.open();
    let table = create::<P, Person>(&database);
    let mut worker = database.worker().expect("a slot is free");
    done(&mut worker, |transaction| rows.iter().try_for_each(|row| transaction.insert(&table, row)));
    (database, table)
}

/// Begins a read-write transaction that is driven interactively.
pub(crate) fn begin<W: Interactive>(worker: &mut W) -> Client<W::Transaction<'_>> {
    Client::begin(worker, Mode::ReadWrite)
}
