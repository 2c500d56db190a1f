//! Standbys: databases that follow another one, and are read alone. `docs/durability.md` has the rules.

mod applier;
mod connection;
mod status;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polychron_engine::definitions::{Standing, StoredCatalog, StoredTable};
use polychron_engine::redo::Journal;
use polychron_engine::{Error, Interactive, Protocol};
use polychron_log::disk::{Cause, Directory, Disk, Files};
use polychron_log::ship::net::SocketAddr;
use polychron_log::ship::{Showing, Standby, StandbyOpening};
use polychron_log::{Load, Progress, Replication, Settings, Wanted};
use polychron_sync::Process;

use crate::durable::{Home, Recovers, Told, load};
use crate::refusing::Refusing;
use crate::{Builder, Database};
use applier::Applier;
use connection::{follow_on, open_files, show_on};
pub use status::StandbyStatus;
use status::{Held, Shared};

/// How often a standby looks whether a checkpoint is due.
const LOOK: Duration = Duration::from_millis(100);

/// A database, the standby that it shows, and what makes it show that.
type Opened<P, D> = (Database<P>, Standby<D>, Showing, Applier<P>);

/// The source of a standby's database. Tables that an evolution at the primary has not finished are there, too.
struct Recovering<'r, D: Disk>(StandbyOpening<'r, D>, StoredCatalog);

impl<'r, D: Disk + Clone> Recovering<'r, D> {
    fn new(opening: StandbyOpening<'r, D>) -> Result<Self, Error> {
        let stored = opening.catalog();
        let permanent = |(position, table): (&u32, &StoredTable)| {
            (*position, StoredTable { standing: Standing::Permanent, ..table.clone() })
        };
        let tables = StoredCatalog::new(stored.next(), stored.tables().iter().map(permanent).collect())?;
        Ok(Self(opening, tables))
    }
}

impl<D: Disk + Clone> Recovers for Recovering<'_, D> {
    fn catalog(&self) -> &StoredCatalog {
        &self.1
    }

    fn load(&mut self, sink: &dyn Load) -> Result<u64, Error> {
        self.0.load(sink)
    }
}

impl<P: Protocol<Worker: Interactive>> Builder<P> {
    /// Opens a standby of another database, its primary, which listens at this address ([`Builder::serve_standbys`]): a database that is read, and that shows what the
    /// primary has durably, a little later. Where there is nothing at the path, or an empty directory, the primary sends all that it has first. What
    /// readers see is always a state that the primary had: what has changed between two such states is seen at once.
    ///
    /// Changes are refused ([`Error::OpenedReadOnly`]). Opened with [`Builder::open`] instead, the directory is a database like any other, and the primary is
    /// not followed by any standby that has heard of that.
    ///
    /// # Errors
    /// As [`Builder::open`], [`Error::Options`] with [`Builder::serve_standbys`], and [`Error::NotFollowing`] where a new standby finds no primary. A standby that has been one before opens without its primary,
    /// and connects when that is there.
    pub fn open_standby(self, path: impl AsRef<Path>, primary: &str) -> Result<Database<P>, Error> {
        self.on_disk.refuse_standbys("a standby is followed by nobody: standbys connect to its primary")?;
        let path = path.as_ref();
        let name = path.display().to_string();
        let settings = self.settings(name.clone(), Wanted::Existing)?;
        let refused = |cause: Cause| Error::inaccessible(name, cause.to_string());
        let files = Files::new(Directory::create_or_open(path).map_err(refused)?);
        let opened = self.standby(&files, settings, primary)?;
        let (database, mut standby, mut showing, mut applier) = opened;
        let (following, shared) = (Arc::clone(standby.following()), Arc::clone(&applier.shared));
        let (primary, told, ticking) = (primary.to_owned(), Arc::clone(&shared), Arc::clone(&following));
        let follow = move || follow_on(&mut standby, &primary, &told);
        let shown = Arc::clone(&shared);
        let show = move || show_on(&mut showing, &mut applier, &shown);
        let looked = Arc::clone(&shared);
        let look = move || {
            while !looked.is_over() {
                ticking.tick();
                looked.pause(LOOK);
            }
        };
        let held = Held { following, shared, threads: Mutex::default(), process: Process::here() };
        let threads = held.spawn("polychron-standby", follow).and_then(|()| held.spawn("polychron-show", show));
        let spawned = threads.and_then(|()| held.spawn("polychron-checkpoint", look));
        database.pool.keep(Home::new(Arc::new(held)));
        spawned.map_err(|error| Error::options(format!("the standby has no threads: {error}")))?;
        Ok(database)
    }

    fn standby<D: Disk + Clone>(
        self,
        files: &Files<D>,
        settings: Settings,
        primary: &str,
    ) -> Result<Opened<P, D>, Error> {
        let guard = Arc::new(Refusing::new(&settings.path));
        let database = self.beside_files(&settings, Journal::new(Arc::clone(&guard) as _))?;
        // A protocol that executes transactions elsewhere cannot tell whose changes they are.
        database.transact(|_| Ok::<_, Error>(()))?;
        let told = Told::new(&database);
        let report = |progress: Progress| told.report(progress);
        let opening = open_files(files, &settings, primary, &report);
        let opening = opening.map_err(|trouble| trouble.of_standby(&settings.path))?;
        let mut recovering = Recovering::new(opening)?;
        load(&database, settings.path.clone(), &mut recovering, &told)?;
        let opening = recovering.0;
        let shared = Arc::<Shared>::default();
        let seen = opening.point().unwrap_or_default();
        shared.change(|status| (status.seen, status.received) = (seen, seen.epoch));
        let applier = Applier::new(&database.protocol, &guard, &shared, opening.catalog())?;
        guard.begin(opening.catalog());
        let (standby, showing) = opening.finish();
        drop(told);
        Ok((database, standby, showing, applier))
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
    /// Of a database that serves standbys, how far those have come that are connected; `None` of another one.
    pub fn replication(&self) -> Option<Replication> {
        self.pool.home().and_then(|home| home.ends().replication())
    }
}
