//! Backups: a checkpoint of a database in another directory, which is a database of its own.
//!
//! A backup is folded, as a checkpoint is, from the last checkpoint and the log. So it is made beside transactions, and none of them has to do with it.
//! `docs/durability.md` has the rules.

mod archive;
mod origin;
mod restore;
mod target;

use std::path::Path;
use std::sync::Arc;

use polychron_base::Error as Told;
use polychron_base::clock::SystemClock;
use polychron_base::random::unpredictable;
use polychron_engine::mutations::left_out;
use polychron_sync::Mutex;

pub use archive::{Archive, OnFailure};
pub use origin::Origin;
pub use restore::{Restored, Sources, restore, restore_directory};

use crate::DatabaseId;
use crate::catalog::{self, StoredCatalog};
use crate::checkpoint::fold::{Fold, Kept, ReadLog};
use crate::checkpoint::known::Known;
use crate::checkpoint::pace::Pace;
use crate::checkpoint::{self, Checkpoints, directory_of, run};
use crate::disk::{Directory, Disk, Files};
use crate::error::Error;
use crate::flush::flusher::Framed;
use crate::flush::{Log, pool};
use crate::frame::Order;
use crate::manifest::{Manifest, Manifests};
use crate::read::{self, Manner};
use crate::reading::Quiet;
use crate::steps::BackupStep;
pub(crate) use target::{clear, into_directory};

/// The number of the only checkpoint of a copy.
const NUMBER: u64 = 1;

/// A database that is copied, up to a place in its log.
struct Copied<'c, D: Disk> {
    files: &'c Files<D>,
    manifest: &'c Manifest,
    /// The tables that the copy has.
    catalog: &'c StoredCatalog,
    log: &'c ReadLog<'c>,
    last: Framed,
    options: &'c checkpoint::Options,
    pace: &'c Pace<'c>,
    kept: Kept,
}

impl<D: Disk> Copied<'_, D> {
    /// Writes the copy into an empty directory. The manifests come last, so that there is no database before it is whole.
    fn write<E: Disk + Clone>(&self, to: &Files<E>, origin: Option<&Origin>) -> Result<(), Error> {
        let written = self.try_write(to, origin);
        if written.is_err() && !left_out(BackupStep::ClearFailed) {
            // Nothing is left that could be taken for a database, or that is in the way of another copy.
            let _ = target::clear(to);
        }
        written
    }

    fn try_write<E: Disk + Clone>(&self, to: &Files<E>, origin: Option<&Origin>) -> Result<(), Error> {
        let Self { files, manifest, catalog, log, last, options, pace, kept } = *self;
        let (database, directory) = (DatabaseId(unpredictable()), directory_of(NUMBER));
        to.create_directory(pool::DIRECTORY)?;
        to.create_directory(checkpoint::DIRECTORY)?;
        to.create_directory(&directory)?;
        // Nothing is known of files that are not its own.
        let known = &Known::new(options.group_bits);
        let fold =
            Fold { files, to, database, log, manifest, catalog, last, number: NUMBER, options, pace, kept, known };
        // Its log begins anew, and with it the epochs.
        let mut checkpoint = fold.run()?.checkpoint;
        if !left_out(BackupStep::BeginEpochsAnew) {
            checkpoint.epoch = 0;
        }
        let first = Manifest {
            database,
            // The next opening has a higher one than all that is carried.
            incarnation: if left_out(BackupStep::KeepIncarnation) { 1 } else { last.incarnation },
            first_log_file: 1,
            durable: 0,
            checkpoint: Some(checkpoint),
            catalog: catalog::encode(catalog),
        };
        if left_out(BackupStep::ManifestsLast) {
            Manifests::create(to, first.clone())?;
        }
        if !left_out(BackupStep::SyncNames) {
            to.sync_directory(&directory)?;
            to.sync_directory(checkpoint::DIRECTORY)?;
        }
        origin.map_or(Ok(()), |origin| origin.write(to))?;
        if !left_out(BackupStep::ManifestsLast) {
            // This makes the other names durable before it makes its own.
            Manifests::create(to, first)?;
        }
        Ok(())
    }
}

impl<D: Disk + Clone> Checkpoints<D> {
    /// Writes a copy of all that is durable into an empty directory. No checkpoint is made meanwhile.
    ///
    /// # Errors
    /// [`Error`]: nothing is there then. [`NotEmpty`](crate::disk::Cause::NotEmpty): nothing was done.
    pub fn back_up<E: Disk + Clone>(
        &self,
        log: &Log<D>,
        manifests: &Mutex<Manifests<D>>,
        to: &Files<E>,
    ) -> Result<(), Error> {
        target::refuse_full(to)?;
        let _no_other = self.lock();
        let last = log.framed();
        // Behind the epoch, as a checkpoint does.
        let (manifest, generation) = run::current_of(manifests);
        let catalog = catalog::decode(&manifest.catalog)?;
        let (live, pace) = (log.live(), self.pace(log, &|| 1.0));
        let copied = Copied {
            files: &self.files,
            manifest: &manifest,
            catalog: &catalog,
            log: &|visit| read::read_in_use(&self.files, &manifest, &live, &last, visit),
            last,
            options: &self.options,
            pace: &pace,
            kept: Kept::Records,
        };
        copied.write(to, Some(&Origin::of(&manifest, generation, &last)))
    }
}

/// Writes a copy of a database that nobody has open to write into an empty directory, and changes nothing in its own.
///
/// # Errors
/// [`Error`]: nothing is there then. [`NotEmpty`](crate::disk::Cause::NotEmpty): nothing was done.
pub fn back_up<D: Disk + Clone, E: Disk + Clone>(
    files: &Files<D>,
    to: &Files<E>,
    options: &checkpoint::Options,
) -> Result<(), Error> {
    target::refuse_full(to)?;
    let quiet = Quiet::<D>::begin(files)?;
    let Some((manifest, generation)) = Manifests::read_with_generation(files)? else { return Err(Error::NoDatabase) };
    let catalog = catalog::decode(&manifest.catalog)?.permanent();
    if manifest.incarnation == 0 {
        read::refuse_foreign(files)?;
    }
    let end = read::read_to_end(files, &manifest, generation, &Manner::default(), &mut |_| {})?;
    let last = Framed {
        epoch: end.whole,
        // Nothing is open: all was logged by this opening, or before.
        incarnation: manifest.incarnation.max(1),
        consistent: Order::LAST,
        highest: Order::LAST,
        number: end.number,
        offset: end.offset,
        written_ns: end.written_ns,
    };
    let pace = Pace {
        clock: Arc::new(SystemClock::new()),
        share: &|| 1.0,
        is_unwanted: Arc::default(),
        awaited: Arc::default(),
    };
    let log: &ReadLog<'_> = &|visit| read::read(files, &manifest, generation, visit).map(drop);
    let kept = Kept::Records;
    let copied = Copied { files, manifest: &manifest, catalog: &catalog, log, last, options, pace: &pace, kept };
    copied.write(to, Some(&Origin::of(&manifest, generation, &last)))?;
    quiet.end(files).inspect_err(|_| _ = target::clear(to))
}

/// What the user is told of a copy from one path to another that was not made: what failed in writing has to do with the latter, since the former is read
/// alone.
#[cold]
pub(crate) fn told(error: Error, from: &str, to: &str) -> Told {
    let path = if error.is_of_writing() { to } else { from };
    error.of_database(path)
}

/// Makes a backup of a database that no process has open to write, in a directory that is empty or not there.
///
/// # Errors
/// [`Told::InUse`], [`Told::NoDatabase`], [`Told::Corrupt`], [`Told::OtherFormat`], [`Told::Inaccessible`], [`Told::DiskFull`], with the path of the one or the
/// other. The database is as before, and nothing is left of the backup.
pub fn back_up_directory(from: &Path, to: &Path) -> Result<(), Told> {
    let source = from.display().to_string();
    let files = target::existing(from)?;
    let options = checkpoint::Options::production();
    into_directory(to, |files_to: &Files<Directory>| {
        back_up(&files, files_to, &options).map_err(|error| told(error, &source, &to.display().to_string()))
    })
}
