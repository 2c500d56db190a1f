//! Facts about a database, for tools: they read its files, change nothing, and take no lock. Of one that is in use they see what was written so far, and
//! may find that it has changed on the way.

mod described;
mod verify;

pub use described::Described;
pub use verify::{Damage, verify};

use crate::catalog::{self, StoredCatalog};
use crate::checkpoint::carried;
use crate::disk::{Disk, Files};
use crate::error::Error;
use crate::manifest::{Manifest, Manifests};
use crate::read::{Logged, read_by_epoch};
use crate::ship;

/// The files of a database that are read alone.
pub struct ReadOnly<'f, D: Disk> {
    files: &'f Files<D>,
    /// The manifest that counts.
    pub manifest: Manifest,
    /// Its generation.
    pub generation: u64,
    /// Its catalog.
    pub catalog: StoredCatalog,
    /// Whether it is a standby.
    pub is_standby: bool,
}

/// The part of a log behind the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    /// The last epoch that is whole.
    pub epoch: u64,
    /// How many records there are.
    pub records: u64,
    /// Of how many openings.
    pub incarnations: u64,
}

impl<'f, D: Disk + Clone> ReadOnly<'f, D> {
    /// Reads manifest and catalog; `None` if there is no database.
    ///
    /// # Errors
    /// Their faults.
    pub fn open(files: &'f Files<D>) -> Result<Option<Self>, Error> {
        let Some((manifest, generation)) = Manifests::read_with_generation(files)? else { return Ok(None) };
        let catalog = match manifest.catalog.as_slice() {
            // None was written yet.
            [] => StoredCatalog::default(),
            bytes => catalog::decode(bytes)?,
        };
        let is_standby = ship::is_standby(files)?;
        Ok(Some(Self { files, manifest, generation, catalog, is_standby }))
    }

    /// Hands out all records that recovery takes in: those that the checkpoint carries, of its epoch, and those of the log, each with the log epoch that it
    /// became durable with. Answers the last epoch.
    ///
    /// # Errors
    /// The first damage.
    pub fn records(&self, visit: &mut dyn FnMut(u64, Logged<'_>)) -> Result<u64, Error> {
        let epoch = self.manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
        carried(self.files, &self.manifest, &mut |logged| visit(epoch, logged))?;
        read_by_epoch(self.files, &self.manifest, self.generation, visit)
    }

    /// Counts what the log has.
    ///
    /// # Errors
    /// As of [`records`](Self::records).
    pub fn logging(&self) -> Result<Logging, Error> {
        let (mut logging, mut last) = (Logging::default(), 0);
        logging.epoch = self.records(&mut |_, logged| {
            logging.records += 1;
            logging.incarnations += u64::from(logged.incarnation != last);
            last = logged.incarnation;
        })?;
        Ok(logging)
    }

    /// Hands out all changes of these records in words, if they are of the table or no one is named, and of the key, as [`Described`] has it.
    ///
    /// # Errors
    /// As of [`records`](Self::records), and a record or a row that is not one of its table.
    pub fn changes(
        &self,
        table: Option<&str>,
        key: Option<&str>,
        visit: &mut dyn FnMut(&Described),
    ) -> Result<(), Error> {
        let describer = described::Describer::new(&self.catalog)?;
        let mut result = Ok(());
        self.records(&mut |epoch, logged| {
            if result.is_ok() {
                result = describer.describe(epoch, logged, &mut |described: &Described| {
                    if table.is_none_or(|it| it == described.table) && key.is_none_or(|it| it == described.key) {
                        visit(described);
                    }
                });
            }
        })?;
        result
    }
}
