//! A database's files, read while nobody writes to them, and not written.

use polychron_base::Error;
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::mutations::{left_out, pass};

use crate::catalog;
use crate::checkpoint;
use crate::disk::{self, Disk, Files};
use crate::durable::{Load, Progress, load};
use crate::error::Error as LogError;
use crate::manifest::{Manifest, Manifests};
use crate::read::{self, Manner};
use crate::recover::{Newest, Tail};
use crate::steps::{BackupStep, Point};

/// The right to read a database's files while nobody writes to them.
pub(crate) struct Quiet<D: Disk>(Option<D::Lock>);

impl<D: Disk> Quiet<D> {
    pub(crate) fn begin(files: &Files<D>) -> Result<Self, LogError> {
        Ok(Self(files.lock_to_read()?))
    }

    /// All is read. Where there was no lock, somebody may have made one since, and written.
    pub(crate) fn end(self, files: &Files<D>) -> Result<(), LogError> {
        pass(Point::FilesRead);
        if self.0.is_some() || left_out(BackupStep::LookAgain) || files.lock_to_read()?.is_none() {
            return Ok(());
        }
        let (operation, cause) = (disk::Operation::Lock, disk::Cause::Locked { holder: None });
        Err(disk::Error { operation, path: String::new(), offset: None, cause }.into())
    }
}

/// A database that is read alone: what it has is handed out, and nothing is written.
pub struct Reading<'r, D: Disk> {
    report: &'r (dyn Fn(Progress) + Sync),
    path: String,
    threads: usize,
    catalog: StoredCatalog,
    newest: Option<Newest>,
    found: Manifest,
    files: Files<D>,
    quiet: Quiet<D>,
}

impl<'r, D: Disk + Clone> Reading<'r, D> {
    /// Reads the log of the database that is called `path`, by so many threads beside the calling one. `report` is told how far the loading behind it has
    /// come.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NoDatabase`], [`Error::Corrupt`], [`Error::OtherFormat`], [`Error::Inaccessible`].
    pub fn begin(
        files: &Files<D>,
        path: &str,
        threads: usize,
        report: &'r (dyn Fn(Progress) + Sync),
    ) -> Result<Self, Error> {
        Self::try_begin(files, path, threads, report).map_err(|error| error.of_database(path))
    }

    fn try_begin(
        files: &Files<D>,
        path: &str,
        threads: usize,
        report: &'r (dyn Fn(Progress) + Sync),
    ) -> Result<Self, LogError> {
        let quiet = Quiet::begin(files)?;
        let Some((found, generation)) = Manifests::read_with_generation(files)? else {
            return Err(LogError::NoDatabase);
        };
        if found.incarnation == 0 {
            read::refuse_foreign(files)?;
        }
        let catalog = catalog::decode(&found.catalog)?.permanent();
        let mut tail = Tail::new(&catalog, threads)?;
        checkpoint::carried(files, &found, &mut |logged| tail.add(logged))?;
        let manner = Manner { by_threads: threads > 0, report: None };
        read::read_to_end(files, &found, generation, &manner, &mut |logged| tail.add(logged))?;
        let newest = Some(tail.finish()?);
        Ok(Self { report, path: path.to_owned(), threads, catalog, newest, found, files: files.clone(), quiet })
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
        load(newest, &self.files, &self.found, (self.threads, &self.path), self.report, sink)
    }

    /// All was handed out: the files are needed no longer.
    ///
    /// # Errors
    /// [`Error::InUse`]: somebody has begun to write meanwhile, and nothing that was handed out counts.
    pub fn end(self) -> Result<(), Error> {
        self.quiet.end(&self.files).map_err(|error| error.of_database(&self.path))
    }
}
